//! The tree of an expression, after macros are expanded.

use meta::Str;

/// Numbers the nodes of one tree, from 1.
pub(crate) type Id = u32;

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) id: Id,
    pub(crate) kind: ExprKind,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    /// A node that did not parse.
    Invalid,
    Literal(Literal),
    Ident(Str),
    Select {
        operand: Box<Expr>,
        field: Str,
        test: bool,
    },
    Call {
        function: Str,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    List {
        items: Vec<Expr>,
        /// Which items are `?item`.
        optional: Vec<usize>,
    },
    Map(Vec<Entry>),
    Struct {
        name: Str,
        fields: Vec<StructField>,
    },
    Comprehension(Box<Comprehension>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Str),
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A field of a struct literal.
#[derive(Clone, Debug)]
pub(crate) struct StructField {
    pub(crate) id: Id,
    pub(crate) name: Str,
    pub(crate) optional: bool,
    pub(crate) value: Expr,
}

/// What every comprehension macro expands to: a loop with an accumulator.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    pub(crate) var: Str,
    pub(crate) var2: Option<Str>,
    pub(crate) accu: Str,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

/// The accumulator's name, which no expression can write.
pub(crate) const ACCU: &str = "@result";

/// The operators, as functions are named.
pub(crate) mod op {
    pub(crate) const CONDITIONAL: &str = "_?_:_";
    pub(crate) const AND: &str = "_&&_";
    pub(crate) const OR: &str = "_||_";
    pub(crate) const NOT: &str = "!_";
    pub(crate) const EQUALS: &str = "_==_";
    pub(crate) const NOT_EQUALS: &str = "_!=_";
    pub(crate) const LESS: &str = "_<_";
    pub(crate) const LESS_EQUALS: &str = "_<=_";
    pub(crate) const GREATER: &str = "_>_";
    pub(crate) const GREATER_EQUALS: &str = "_>=_";
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const SUBTRACT: &str = "_-_";
    pub(crate) const MULTIPLY: &str = "_*_";
    pub(crate) const DIVIDE: &str = "_/_";
    pub(crate) const MODULO: &str = "_%_";
    pub(crate) const NEGATE: &str = "-_";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const OPT_INDEX: &str = "_[?_]";
    pub(crate) const OPT_SELECT: &str = "_?._";
    pub(crate) const IN: &str = "@in";
    pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
}

impl Expr {
    /// Adds the pairs of `name.field` and `name.?field` in this tree.
    pub(crate) fn selections(&self, found: &mut Vec<(Str, Str)>) {
        match &self.kind {
            ExprKind::Invalid | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, field, .. } => {
                if let ExprKind::Ident(name) = &operand.kind {
                    found.push((name.clone(), field.clone()));
                }
                operand.selections(found);
            }
            ExprKind::Call { function, target, args } => {
                if let (op::OPT_SELECT, [operand, field]) = (function.as_str(), args.as_slice())
                    && let ExprKind::Ident(name) = &operand.kind
                    && let ExprKind::Literal(Literal::String(field)) = &field.kind
                {
                    found.push((name.clone(), field.clone()));
                }
                for part in target.iter().map(|target| &**target).chain(args) {
                    part.selections(found);
                }
            }
            ExprKind::List { items, .. } => {
                for item in items {
                    item.selections(found);
                }
            }
            ExprKind::Map(entries) => {
                for entry in entries {
                    entry.key.selections(found);
                    entry.value.selections(found);
                }
            }
            ExprKind::Struct { fields, .. } => {
                for field in fields {
                    field.value.selections(found);
                }
            }
            ExprKind::Comprehension(fold) => {
                let parts = [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result];
                for part in parts {
                    part.selections(found);
                }
            }
        }
    }

    /// `a.b.c` as one name, if it is nothing but identifiers.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.to_string()),
            ExprKind::Select { operand, field, test: false } => {
                Some(format!("{}.{field}", operand.qualified_name()?))
            }
            _ => None,
        }
    }
}
