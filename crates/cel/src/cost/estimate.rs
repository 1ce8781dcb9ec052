//! The cost an expression can have at most, from the sizes that the declarations allow.

use std::collections::HashMap;

use meta::Str;

use crate::ast::{Comprehension, Expr, ExprKind, Id, Literal};
use crate::check::Checked;
use crate::cost::calls::{Argument, call_estimate};
use crate::cost::{CostEstimate, IDENT, LIST, MAP, REGEX, STRUCT, TRAVERSAL};
use crate::decl::DeclKind;
use crate::env::Root;
use crate::types::Type;

/// How many elements something has: at least, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Size {
    pub(crate) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(crate) const fn fixed(size: u64) -> Self {
        Self { min: size, max: size }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    pub(crate) fn cost(self, per_unit: f64) -> CostEstimate {
        CostEstimate { min: self.min, max: self.max }.scaled(per_unit)
    }
}

impl CostEstimate {
    pub(crate) const fn fixed(cost: u64) -> Self {
        Self { min: cost, max: cost }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    pub(crate) fn scaled(self, factor: f64) -> Self {
        let scale = |units: u64| {
            let cost = (units as f64 * factor).ceil();
            if cost >= 18_446_744_073_709_551_616.0 { u64::MAX } else { cost as u64 }
        };
        Self { min: scale(self.min), max: scale(self.max) }
    }
}

/// The cost of a call, and the size of its result if it can be estimated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallEstimate {
    pub(crate) cost: CostEstimate,
    pub(crate) size: Option<Size>,
}

/// Sizes are looked up in the declaration of the root, for paths from any variable.
pub(crate) fn estimate(checked: &Checked, root: Option<&Root>) -> CostEstimate {
    let mut estimator = Estimator {
        checked,
        root,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        locals: Vec::new(),
    };
    estimator.cost(&checked.parsed.expr)
}

/// The sizes of the keys and values of a list or map.
#[derive(Clone, Copy, Debug)]
struct Entries {
    list: bool,
    key: Size,
    value: Size,
}

impl Entries {
    fn union(self, other: Self) -> Self {
        Self {
            list: self.list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

struct LocalEstimate {
    name: Str,
    path: Vec<Str>,
    size: Option<Size>,
    entries: Option<Entries>,
}

struct Estimator<'e> {
    checked: &'e Checked,
    root: Option<&'e Root>,
    /// The path from a variable to the node's value.
    paths: HashMap<Id, Vec<Str>>,
    sizes: HashMap<Id, Size>,
    entries: HashMap<Id, Entries>,
    locals: Vec<LocalEstimate>,
}

impl Estimator<'_> {
    fn cost(&mut self, expr: &Expr) -> CostEstimate {
        match &expr.kind {
            ExprKind::Invalid | ExprKind::Literal(_) => CostEstimate::default(),
            ExprKind::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![name.clone()],
                };
                self.paths.insert(expr.id, path);
                CostEstimate::fixed(IDENT)
            }
            ExprKind::Select { operand, field, test } => {
                let mut cost = self.cost(operand);
                if *test {
                    return cost;
                }
                if matches!(
                    self.checked.type_of(operand),
                    Type::Map(_) | Type::Object(_) | Type::Param(_)
                ) {
                    cost = cost.plus(CostEstimate::fixed(IDENT));
                }
                let mut path = self.path(operand);
                path.push(field.clone());
                self.paths.insert(expr.id, path);
                cost
            }
            ExprKind::Call { .. } => self.call(expr),
            ExprKind::List { items, .. } => {
                let mut cost = CostEstimate::fixed(LIST);
                let mut value = Size { min: if items.is_empty() { 0 } else { u64::MAX }, max: 0 };
                for item in items {
                    cost = cost.plus(self.cost(item));
                    value = value.union(self.size_or_unknown(item));
                }
                self.entries.insert(expr.id, Entries { list: true, key: Size::fixed(1), value });
                cost
            }
            ExprKind::Map(entries) => {
                let mut cost = CostEstimate::fixed(MAP);
                let nothing = Size { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let (mut key, mut value) = (nothing, nothing);
                for entry in entries {
                    cost = cost.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.entries.insert(expr.id, Entries { list: false, key, value });
                cost
            }
            ExprKind::Struct { fields, .. } => {
                fields.iter().fold(CostEstimate::fixed(STRUCT), |cost, field| {
                    cost.plus(self.cost(&field.value))
                })
            }
            ExprKind::Comprehension(fold) => self.fold(expr, fold),
        }
    }

    fn fold(&mut self, expr: &Expr, fold: &Comprehension) -> CostEstimate {
        let mut cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        let accu = LocalEstimate {
            name: fold.accu.clone(),
            path: self.path(&fold.init),
            size: self.size(&fold.init),
            entries: self.entry_sizes(&fold.init),
        };
        self.locals.push(accu);
        if is_binding(fold) {
            cost = cost.plus(self.cost(&fold.result));
            self.copy_sizes(expr, &fold.result);
            self.locals.pop();
            return cost;
        }
        let depth = self.locals.len();
        match &fold.var2 {
            Some(var2) => {
                self.push_variable(&fold.var, &fold.range, true);
                self.push_variable(var2, &fold.range, false);
            }
            None => {
                let list = self.is_list(&fold.range);
                self.push_variable(&fold.var, &fold.range, !list);
            }
        }
        let iteration = self.cost(&fold.condition).plus(self.cost(&fold.step));
        // What the step says about sizes is asked for below, with the variables gone.
        self.locals.truncate(depth);
        cost = cost.plus(self.cost(&fold.result));
        self.locals.pop();
        let iterations = self.size_or_unknown(&fold.range);
        cost =
            cost.plus(CostEstimate { min: iterations.min, max: iterations.max }.times(iteration));
        match &fold.init.kind {
            ExprKind::Literal(_) => {
                if let Some(size) = self.size(&fold.init) {
                    self.sizes.insert(expr.id, size);
                }
            }
            ExprKind::List { .. } | ExprKind::Map(_) => {
                self.sizes.insert(expr.id, iterations);
                if let Some(entries) = self.entry_sizes(&fold.step) {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        cost
    }

    fn is_list(&self, range: &Expr) -> bool {
        match self.entry_sizes(range) {
            Some(entries) => entries.list,
            None => matches!(self.checked.type_of(range), Type::List(_)),
        }
    }

    /// Binds a loop variable to the keys or the values of a range.
    fn push_variable(&mut self, name: &Str, range: &Expr, key: bool) {
        let list = self.is_list(range);
        let entries = self.entry_sizes(range);
        let step = match (key, list) {
            (true, true) => "@indices",
            (true, false) => "@keys",
            (false, true) => "@items",
            (false, false) => "@values",
        };
        let mut path = self.path(range);
        path.push(Str::new_static(step));
        let size = entries.map(|entries| if key { entries.key } else { entries.value });
        self.locals.push(LocalEstimate { name: name.clone(), path, size, entries: None });
    }

    fn call(&mut self, expr: &Expr) -> CostEstimate {
        let ExprKind::Call { function, target, args } = &expr.kind else {
            unreachable!("called for a call")
        };
        if function == "dyn" {
            let cost = self.cost(&args[0]);
            self.copy_sizes(expr, &args[0]);
            return cost.plus(CostEstimate::fixed(1));
        }
        let costs: Vec<CostEstimate> = args.iter().map(|arg| self.cost(arg)).collect();
        let nodes: Vec<Argument> = args.iter().map(|arg| self.argument(arg)).collect();
        let overloads: Vec<&str> =
            self.checked.overloads(expr).iter().map(|overload| overload.id).collect();
        if overloads.is_empty() {
            return CostEstimate::default();
        }
        let mut sum = CostEstimate::default();
        let mut receiver = None;
        if let Some(target) = target {
            sum = self.cost(target);
            receiver = Some(self.argument(target));
        }
        let mut cost = CostEstimate { min: u64::MAX, max: 0 };
        let mut size: Option<Size> = None;
        for overload in overloads {
            let one =
                self.overload(expr, function, overload, receiver.as_ref(), &nodes, &costs, args);
            cost = cost.union(one.cost);
            if let Some(of_one) = one.size {
                size = Some(size.map_or(of_one, |size| size.union(of_one)));
            }
            if let (step @ ("@items" | "@values"), [container, ..]) = (
                match overload {
                    "index_list" => "@items",
                    "index_map" => "@values",
                    _ => "",
                },
                args.as_slice(),
            ) {
                size = self.entry_sizes(container).map(|entries| entries.value);
                let mut path = self.path(container);
                path.push(Str::new_static(step));
                self.paths.insert(expr.id, path);
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
        sum.plus(cost)
    }

    #[allow(clippy::too_many_arguments)]
    fn overload(
        &mut self,
        expr: &Expr,
        function: &str,
        overload: &str,
        target: Option<&Argument>,
        args: &[Argument],
        costs: &[CostEstimate],
        exprs: &[Expr],
    ) -> CallEstimate {
        let sum = costs.iter().fold(CostEstimate::default(), |sum, cost| sum.plus(*cost));
        let size_at = |path: &[Str]| size_at(self.root, path);
        if let Some(call) = call_estimate(function, overload, target, args, &size_at) {
            return CallEstimate { cost: call.cost.plus(sum), size: call.size };
        }
        let plain = |cost: CostEstimate| CallEstimate { cost: cost.plus(sum), size: None };
        let size = |at: usize| args[at].size.unwrap_or(Size::UNKNOWN);
        let of_target = target.map(|target| target.size.unwrap_or(Size::UNKNOWN));
        match (overload, of_target, args.len()) {
            ("string_format", Some(text), _) => plain(text.cost(TRAVERSAL)),
            ("string_to_bytes", _, 1) => CallEstimate {
                cost: size(0).cost(TRAVERSAL).plus(sum),
                size: Some(Size { min: size(0).min, max: size(0).max.wrapping_mul(4) }),
            },
            ("bytes_to_string", _, 1) => CallEstimate {
                cost: size(0).cost(TRAVERSAL).plus(sum),
                size: Some(Size { min: size(0).min / 4, max: size(0).max }),
            },
            ("strings_quote", _, 1) => CallEstimate {
                cost: size(0).cost(TRAVERSAL).plus(sum),
                size: Some(Size {
                    min: size(0).min.wrapping_add(2),
                    max: size(0).max.wrapping_mul(2).wrapping_add(2),
                }),
            },
            ("starts_with_string" | "ends_with_string", _, 1) => plain(size(0).cost(TRAVERSAL)),
            ("in_list", _, 2) => plain(size(1).cost(1.0)),
            ("matches_string", Some(text), 1) => {
                let text = text.plus(Size::fixed(1)).cost(TRAVERSAL);
                plain(text.times(size(0).cost(REGEX)))
            }
            ("contains_string", Some(text), 1) => {
                plain(text.cost(TRAVERSAL).times(size(0).cost(TRAVERSAL)))
            }
            ("logical_or" | "logical_and", ..) => {
                let max = costs[0].plus(costs[1]).max;
                CallEstimate { cost: CostEstimate { min: costs[0].min, max }, size: None }
            }
            ("conditional", ..) => {
                let sides = (self.entry_sizes(&exprs[1]), self.entry_sizes(&exprs[2]));
                if let (Some(truthy), Some(falsy)) = sides {
                    self.entries.insert(expr.id, truthy.union(falsy));
                }
                let cost = costs[0].plus(costs[1].union(costs[2]));
                CallEstimate { cost, size: Some(size(1).union(size(2))) }
            }
            ("add_string" | "add_bytes" | "add_list", _, 2) => {
                let result = size(0).plus(size(1));
                let sides = (self.entry_sizes(&exprs[0]), self.entry_sizes(&exprs[1]));
                if let (Some(left), Some(right)) = sides {
                    self.entries.insert(expr.id, left.union(right));
                }
                let cost = if overload == "add_list" {
                    CostEstimate::fixed(1)
                } else {
                    result.cost(TRAVERSAL)
                };
                CallEstimate { cost: cost.plus(sum), size: Some(result) }
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                ..,
            ) => {
                let max = size(0).max.min(size(1).max);
                plain(Size { min: u64::from(max > 0), max }.cost(TRAVERSAL))
            }
            _ => plain(CostEstimate::fixed(1)),
        }
    }

    fn argument(&mut self, expr: &Expr) -> Argument {
        let path = self.path(expr);
        let of_accu = path.first().is_some_and(|first| first == "@result" || first == "__result__");
        let literal = match &expr.kind {
            ExprKind::Literal(Literal::Int(int)) => Some(*int),
            _ => None,
        };
        Argument {
            path: if of_accu { Vec::new() } else { path },
            ty: self.checked.type_of(expr).clone(),
            size: self.size(expr),
            literal,
        }
    }

    fn local(&self, name: &str) -> Option<&LocalEstimate> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path(&self, expr: &Expr) -> Vec<Str> {
        if let ExprKind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn size(&mut self, expr: &Expr) -> Option<Size> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expr) {
            return Some(size);
        }
        if let Some(size) = size_at(self.root, &self.path(expr)) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.checked.type_of(expr)) {
            return Some(Size::fixed(1));
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Size {
        self.size(expr).unwrap_or(Size::UNKNOWN)
    }

    fn entry_sizes(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entries) = self.entry_sizes(from) {
            self.entries.insert(to.id, entries);
        }
    }
}

/// A loop over nothing, whose result is an expression with a variable bound.
fn is_binding(fold: &Comprehension) -> bool {
    matches!(&fold.range.kind, ExprKind::List { items, .. } if items.is_empty())
        && matches!(fold.condition.kind, ExprKind::Literal(Literal::Bool(false)))
}

/// The declared size at a path. The first step names a variable, or is the element of a literal;
/// either way the path goes on from the root.
fn size_at(root: Option<&Root>, path: &[Str]) -> Option<Size> {
    let (first, steps) = path.split_first()?;
    let root = root?;
    if root.variable.as_ref().is_some_and(|variable| variable != first) {
        return None;
    }
    let mut decl = &*root.decl;
    for step in steps {
        decl = match (step.as_str(), &decl.kind) {
            ("@items" | "@values", _) => decl.element()?,
            ("@keys", DeclKind::Map { key_elements, .. }) => {
                return keys_at(steps, step, *key_elements);
            }
            // All attributes have the same size, independent of their name.
            (_, DeclKind::Map { values, .. }) if values.kind == DeclKind::Any => values,
            (name, DeclKind::Object(object)) => &object.field(name)?.decl,
            _ => return None,
        };
    }
    Some(Size { min: 0, max: decl.max_elements })
}

/// Keys about which nothing is declared have a declared length of zero.
fn keys_at(steps: &[Str], step: &Str, key_elements: u64) -> Option<Size> {
    std::ptr::eq(steps.last()?, step).then_some(Size { min: 0, max: key_elements })
}

fn literal_size(expr: &Expr) -> Option<Size> {
    Some(Size::fixed(match &expr.kind {
        ExprKind::Literal(Literal::String(text)) => text.chars().count() as u64,
        ExprKind::Literal(Literal::Bytes(bytes)) => bytes.len() as u64,
        ExprKind::Literal(_) => 1,
        ExprKind::List { items, .. } => items.len() as u64,
        ExprKind::Map(entries) => entries.len() as u64,
        _ => return None,
    }))
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        Type::Optional(of) => is_scalar(of),
        _ => false,
    }
}
