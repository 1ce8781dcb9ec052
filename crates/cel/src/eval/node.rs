//! The planned tree that is evaluated.

use std::sync::Arc;

use meta::Str;

use crate::cost::actual::CallCost;
use crate::functions::{Function, Overload};
use crate::regex::Regex;
use crate::value::Val;

#[derive(Debug)]
pub(crate) enum Node {
    Const(Val<'static>),
    Attribute(Attribute),
    /// `has(...)`
    Test(Attribute),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Not(Box<Node>),
    NotStrictlyFalse(Box<Node>),
    Operator {
        operator: Operator,
        sides: Box<[Node; 2]>,
        cost: CallCost,
    },
    /// Membership in a constant list of plain values.
    InConstant(Box<[Node; 2]>),
    OptionalOr {
        or: Box<[Node; 2]>,
        unwrap: bool,
    },
    Call(Box<Call>),
    List {
        items: Vec<Node>,
        optional: Vec<bool>,
    },
    Map(Vec<MapEntry>),
    /// An object by the name of its type.
    Object(Str, Vec<MapEntry>),
    Fold(Box<FoldNode>),
    /// `accu + [item]`
    Append {
        slot: usize,
        item: Box<Node>,
    },
    /// `cel.@mapInsert(accu, key, value)` or `(accu, map)`
    Insert {
        slot: usize,
        args: Vec<Node>,
        cost: CallCost,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    In,
}

/// Something to start from, and steps from there.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) qualifiers: Vec<Arc<Qualifier>>,
}

#[derive(Debug)]
pub(crate) enum Base {
    Variable(usize, Str),
    Local(usize),
    Node(Box<Node>),
    Conditional(Box<(Node, Attribute, Attribute)>),
}

#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) kind: QualifierKind,
    /// `.?field`, `[?index]`
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) enum QualifierKind {
    /// A name as written, and the property it refers to.
    Field((Str, Option<Str>)),
    Test((Str, Option<Str>)),
    Const(Val<'static>),
    Attribute(Attribute),
    Node(Node),
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: &'static Function,
    /// None if several are possible.
    pub(crate) overload: Option<&'static Overload>,
    pub(crate) args: Vec<Node>,
    pub(crate) cost: CallCost,
    pub(crate) regex: Option<Arc<Regex>>,
    /// Do the values have to be looked at before the call?
    pub(crate) guard: bool,
    /// Are all arguments evaluated even if one fails? Then the call is charged for as well.
    pub(crate) all: bool,
}

#[derive(Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: Node,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct FoldNode {
    pub(crate) range: Node,
    pub(crate) init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
    /// Of the accumulator; the variables are in the next two.
    pub(crate) slot: usize,
    pub(crate) two: bool,
}

impl Attribute {
    /// Adds a step; a conditional takes it on both sides.
    pub(crate) fn qualify(&mut self, qualifier: &Arc<Qualifier>) {
        match &mut self.base {
            Base::Conditional(sides) => {
                sides.1.qualify(qualifier);
                sides.2.qualify(qualifier);
            }
            _ => self.qualifiers.push(qualifier.clone()),
        }
    }
}
