//! From a checked tree to what runs: names become slots, chains of fields become one attribute,
//! constants are evaluated and patterns compiled once.
//!
//! What is folded here costs nothing at run time, which users see; so it is exactly what cel-go
//! folds.

use std::collections::BTreeMap;
use std::sync::Arc;

use meta::Str;

use crate::ast::{Comprehension, Expr, ExprKind, Literal, StructField, op};
use crate::check::{Checked, Reference, type_named};
use crate::cost::actual::call_cost_of;
use crate::env::Env;
use crate::escape::unescape;
use crate::eval::{
    Attribute, Base, Call, FoldNode, MapEntry, Node, Operator, Qualifier, QualifierKind,
};
use crate::functions::Overload;
use crate::regex::Regex;
use crate::value::{Entries, Key, List, Map, Text, Val};

/// The program, and how many local variables it needs; or why it can never run.
pub(crate) fn plan(checked: &Checked, env: &Env) -> Result<(Node, usize), String> {
    let mut planner = Planner { checked, env, scopes: Vec::new(), locals: 0 };
    let root = planner.plan(&checked.parsed.expr)?;
    Ok((root, planner.locals))
}

struct Planner<'e> {
    checked: &'e Checked,
    env: &'e Env,
    scopes: Vec<(Str, usize)>,
    locals: usize,
}

type Planned = Result<Node, String>;

impl Planner<'_> {
    fn plan(&mut self, expr: &Expr) -> Planned {
        match &expr.kind {
            ExprKind::Invalid => Err("unsupported expression".into()),
            ExprKind::Struct { name, fields } => self.structure(name, fields),
            ExprKind::Literal(literal) => Ok(Node::Const(constant(literal))),
            ExprKind::Ident(name) => self.ident(expr, name),
            ExprKind::Select { operand, field, test } => {
                let mut attribute = self.attribute(operand)?;
                let kind = if *test {
                    QualifierKind::Test(field_name(field))
                } else {
                    QualifierKind::Field(field_name(field))
                };
                attribute.qualify(&Arc::new(Qualifier { kind, optional: false }));
                Ok(if *test { Node::Test(attribute) } else { Node::Attribute(attribute) })
            }
            ExprKind::Call { function, target, args } => {
                self.call(expr, function, target.as_deref(), args)
            }
            ExprKind::List { items, optional } => self.list(items, optional),
            ExprKind::Map(_) => self.map(expr),
            ExprKind::Comprehension(fold) => self.fold(fold),
        }
    }

    fn ident(&mut self, expr: &Expr, name: &Str) -> Planned {
        let name = match &self.checked.references[expr.id as usize] {
            Some(Reference::Name(name)) => name,
            _ => name,
        };
        let base = match self.scopes.iter().rev().find(|(local, _)| local == name) {
            Some((_, slot)) => Base::Local(*slot),
            None => match self.env.slot(name) {
                Some(slot) => Base::Variable(slot, name.clone()),
                None => {
                    // Compat: those that expressions can make are unknown by their bare names.
                    let ty = type_named(name);
                    let ty = ty.ok_or_else(|| format!("reference to undefined type: {name}"))?;
                    return Ok(Node::Const(Val::Type(Arc::new(ty))));
                }
            },
        };
        Ok(Node::Attribute(Attribute { base, qualifiers: Vec::new() }))
    }

    /// The attribute of an operand, to add a qualifier to.
    fn attribute(&mut self, operand: &Expr) -> Result<Attribute, String> {
        Ok(match self.plan(operand)? {
            Node::Attribute(attribute) | Node::Test(attribute) => attribute,
            node => Attribute { base: Base::Node(Box::new(node)), qualifiers: Vec::new() },
        })
    }

    fn call(
        &mut self,
        expr: &Expr,
        function: &Str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Planned {
        match function.as_str() {
            op::INDEX => return self.index(args, false),
            op::OPT_INDEX => return self.index(args, true),
            op::OPT_SELECT => {
                let mut attribute = self.attribute(&args[0])?;
                let ExprKind::Literal(Literal::String(field)) = &args[1].kind else {
                    return Err("unsupported optional field selection".into());
                };
                let kind = QualifierKind::Field(field_name(field));
                attribute.qualify(&Arc::new(Qualifier { kind, optional: true }));
                return Ok(Node::Attribute(attribute));
            }
            _ => {}
        }
        let mut nodes = target
            .into_iter()
            .chain(args)
            .map(|arg| self.plan(arg))
            .collect::<Result<Vec<_>, _>>()?;
        let overloads = self.checked.overloads(expr);
        let overload = match overloads {
            [one] => Some(*one),
            _ => None,
        };
        let id = overload.map_or("", |overload| overload.id);
        let operator = match function.as_str() {
            op::CONDITIONAL => {
                let [condition, truthy, falsy] = nodes.try_into().expect("checked");
                let side = |node: Node| match node {
                    Node::Attribute(attribute) | Node::Test(attribute) => attribute,
                    node => Attribute { base: Base::Node(Box::new(node)), qualifiers: Vec::new() },
                };
                let base = Base::Conditional(Box::new((condition, side(truthy), side(falsy))));
                return Ok(Node::Attribute(Attribute { base, qualifiers: Vec::new() }));
            }
            op::AND => return Ok(Node::And(Box::new(pair(nodes)))),
            op::OR => return Ok(Node::Or(Box::new(pair(nodes)))),
            op::NOT => return Ok(Node::Not(Box::new(nodes.remove(0)))),
            op::NOT_STRICTLY_FALSE => {
                return Ok(Node::NotStrictlyFalse(Box::new(nodes.remove(0))));
            }
            "or" | "orValue" if nodes.len() == 2 => {
                return Ok(Node::OptionalOr {
                    or: Box::new(pair(nodes)),
                    unwrap: function == "orValue",
                });
            }
            op::EQUALS => Some(Operator::Equal),
            op::NOT_EQUALS => Some(Operator::NotEqual),
            op::LESS => Some(Operator::Less),
            op::LESS_EQUALS => Some(Operator::LessEqual),
            op::GREATER => Some(Operator::Greater),
            op::GREATER_EQUALS => Some(Operator::GreaterEqual),
            op::ADD => Some(Operator::Add),
            op::SUBTRACT => Some(Operator::Subtract),
            op::MULTIPLY => Some(Operator::Multiply),
            op::DIVIDE => Some(Operator::Divide),
            op::MODULO => Some(Operator::Modulo),
            op::IN => Some(Operator::In),
            _ => None,
        };
        let id = match operator {
            Some(Operator::Equal) => "equals",
            Some(Operator::NotEqual) => "not_equals",
            _ => id,
        };
        let cost = call_cost_of(function, id);
        if let Some(operator) = operator {
            if let (Operator::In, "in_list", Node::Const(Val::List(list))) =
                (operator, id, &nodes[1])
            {
                if list.is_empty() {
                    return Ok(Node::Const(Val::Bool(false)));
                }
                if is_plain(list) {
                    return Ok(Node::InConstant(Box::new(pair(nodes))));
                }
            }
            return Ok(Node::Operator { operator, sides: Box::new(pair(nodes)), cost });
        }
        self.function_call(expr, function, overload, nodes)
    }

    fn function_call(
        &mut self,
        expr: &Expr,
        name: &str,
        overload: Option<&'static Overload>,
        args: Vec<Node>,
    ) -> Planned {
        let function =
            self.env.function(name).ok_or_else(|| format!("no such overload: {name}"))?;
        let cost = call_cost_of(name, overload.map_or("", |overload| overload.id));
        let regex = match (name, args.get(1)) {
            ("matches" | "find" | "findAll", Some(Node::Const(Val::String(pattern)))) => {
                Some(Arc::new(Regex::new(pattern.as_str())?))
            }
            _ => None,
        };
        // A declared type needs no look at the values; what is dynamic does.
        let open = match &expr.kind {
            ExprKind::Call { target, args, .. } => target
                .iter()
                .map(|target| &**target)
                .chain(args)
                .any(|arg| self.checked.type_of(arg).is_open()),
            _ => true,
        };
        let known = overload.is_some() || function.single.is_some();
        let all = known && args.len() <= 2 && regex.is_none() && name != "format";
        let folds = matches!(
            name,
            "bool"
                | "bytes"
                | "double"
                | "duration"
                | "dyn"
                | "int"
                | "string"
                | "timestamp"
                | "type"
                | "uint"
        );
        let call = Call { function, overload, args, cost, regex, guard: open, all };
        if folds && let [Node::Const(value)] = call.args.as_slice() {
            return match call.apply(std::slice::from_ref(value)) {
                Ok(value) => Ok(Node::Const(value)),
                Err(error) => Err(error.to_string()),
            };
        }
        Ok(Node::Call(Box::new(call)))
    }

    fn index(&mut self, args: &[Expr], optional: bool) -> Planned {
        let mut attribute = self.attribute(&args[0])?;
        let kind = match self.plan(&args[1])? {
            Node::Const(Val::String(name)) => {
                let name = Str::new(name.as_str());
                QualifierKind::Field(field_name(&name))
            }
            Node::Const(value) => QualifierKind::Const(value),
            Node::Attribute(index) | Node::Test(index) => QualifierKind::Attribute(index),
            node => QualifierKind::Node(node),
        };
        attribute.qualify(&Arc::new(Qualifier { kind, optional }));
        Ok(Node::Attribute(attribute))
    }

    fn list(&mut self, items: &[Expr], optional: &[usize]) -> Planned {
        let items = items.iter().map(|item| self.plan(item)).collect::<Result<Vec<_>, _>>()?;
        if optional.is_empty() && items.iter().all(|item| matches!(item, Node::Const(_))) {
            let items = items
                .into_iter()
                .map(|item| match item {
                    Node::Const(value) => value,
                    _ => unreachable!("checked above"),
                })
                .collect();
            return Ok(Node::Const(Val::List(List::own(items))));
        }
        let optional = (0..items.len()).map(|at| optional.contains(&at)).collect();
        Ok(Node::List { items, optional })
    }

    fn map(&mut self, expr: &Expr) -> Planned {
        let ExprKind::Map(entries) = &expr.kind else { unreachable!("called for a map") };
        let entries = entries
            .iter()
            .map(|entry| {
                Ok(MapEntry {
                    key: self.plan(&entry.key)?,
                    value: self.plan(&entry.value)?,
                    optional: entry.optional,
                })
            })
            .collect::<Result<Vec<_>, String>>()?;
        let constant = entries.iter().all(|entry| {
            !entry.optional
                && matches!((&entry.key, &entry.value), (Node::Const(_), Node::Const(_)))
        });
        if constant {
            let mut map = BTreeMap::new();
            for entry in entries {
                if let (Node::Const(key), Node::Const(value)) = (entry.key, entry.value) {
                    map.insert(Key::of(&key).map_err(|error| error.to_string())?, value);
                }
            }
            return Ok(Node::Const(Val::Map(Map::Own(Arc::new(Entries::new(map))))));
        }
        Ok(Node::Map(entries))
    }

    fn structure(&mut self, name: &str, fields: &[StructField]) -> Planned {
        let entry = |field: &StructField| {
            let key = Node::Const(Val::String(Text::Own(field.name.clone())));
            let value = self.plan(&field.value)?;
            Ok(MapEntry { key, value, optional: field.optional })
        };
        let name = Str::new(name.strip_prefix('.').unwrap_or(name));
        Ok(Node::Object(name, fields.iter().map(entry).collect::<Result<_, String>>()?))
    }

    fn fold(&mut self, fold: &Comprehension) -> Planned {
        let range = self.plan(&fold.range)?;
        let init = self.plan(&fold.init)?;
        let first = self.locals;
        self.locals += 3;
        let depth = self.scopes.len();
        self.scopes.push((fold.accu.clone(), first));
        self.scopes.push((fold.var.clone(), first + 1));
        if let Some(var2) = &fold.var2 {
            self.scopes.push((var2.clone(), first + 2));
        }
        let condition = self.plan(&fold.condition)?;
        let step = self.plan(&fold.step)?;
        self.scopes.truncate(depth + 1);
        let result = self.plan(&fold.result)?;
        self.scopes.truncate(depth);
        let step = appending(step, first);
        Ok(Node::Fold(Box::new(FoldNode {
            range,
            init,
            condition,
            step,
            result,
            slot: first,
            two: fold.var2.is_some(),
        })))
    }
}

/// `accu + [item]` as a push onto the accumulator: without that every step would copy the list.
fn appending(step: Node, slot: usize) -> Node {
    match step {
        Node::Operator { operator: Operator::Add, sides, cost } if is_local(&sides[0], slot) => {
            match *sides {
                [_, Node::List { items, optional }] if items.len() == 1 && !optional[0] => {
                    let item = items.into_iter().next().expect("has one");
                    Node::Append { slot, item: Box::new(item) }
                }
                sides => Node::Operator { operator: Operator::Add, sides: Box::new(sides), cost },
            }
        }
        Node::Attribute(Attribute { base: Base::Conditional(sides), qualifiers })
            if qualifiers.is_empty() =>
        {
            let (condition, truthy, falsy) = *sides;
            let truthy = match truthy {
                Attribute { base: Base::Node(node), qualifiers } if qualifiers.is_empty() => {
                    Attribute {
                        base: Base::Node(Box::new(appending(*node, slot))),
                        qualifiers: Vec::new(),
                    }
                }
                other => other,
            };
            let base = Base::Conditional(Box::new((condition, truthy, falsy)));
            Node::Attribute(Attribute { base, qualifiers: Vec::new() })
        }
        Node::Call(call)
            if call.function.name == "cel.@mapInsert" && is_local(&call.args[0], slot) =>
        {
            let mut args = call.args;
            args.remove(0);
            Node::Insert { slot, args, cost: call.cost }
        }
        other => other,
    }
}

fn is_local(node: &Node, slot: usize) -> bool {
    matches!(node, Node::Attribute(Attribute { base: Base::Local(local), qualifiers })
        if *local == slot && qualifiers.is_empty())
}

fn pair(nodes: Vec<Node>) -> [Node; 2] {
    let Ok(pair) = <[Node; 2]>::try_from(nodes) else {
        unreachable!("the checker saw two arguments")
    };
    pair
}

fn constant(literal: &Literal) -> Val<'static> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(value) => Val::Bool(*value),
        Literal::Int(int) => Val::Int(*int),
        Literal::Uint(uint) => Val::Uint(*uint),
        Literal::Double(double) => Val::Double(*double),
        Literal::String(text) => Val::String(Text::Own(text.clone())),
        Literal::Bytes(bytes) => Val::Bytes(bytes.as_slice().into()),
    }
}

/// A field's name as written, and the property it refers to.
fn field_name(name: &Str) -> (Str, Option<Str>) {
    let property =
        if name.contains("__") { unescape(name).map(Str::from) } else { Some(name.clone()) };
    (name.clone(), property)
}

/// Is membership a matter of plain comparison?
fn is_plain(list: &List<'_>) -> bool {
    list.iter().all(|item| {
        matches!(
            item,
            Ok(Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::String(_))
        )
    })
}
