//! Macro expansion: comprehensions (`all`, `map`, `transformMap` …), tests (`has`) and bindings
//! (`optMap`, `sortBy`).

use meta::Str;

use crate::ast::{ACCU, Comprehension, Expr, ExprKind, Id, Literal, op};
use crate::parse::Parser;

type Args = (Option<Expr>, Vec<Expr>);

/// The expansion of a call, or its parts if it is not a macro. An invalid macro call is reported
/// and becomes an invalid node.
pub(crate) fn expand(
    parser: &mut Parser<'_>,
    id: Id,
    function: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expr, Args> {
    if function == "bind" && !(parser.bindings && is_ident(target.as_ref(), "cel")) {
        return Err((target, args));
    }
    let Some(expander) = find(function, args.len(), target.is_some()) else {
        return Err((target, args));
    };
    let mut builder = Builder { parser, id };
    match expander(&mut builder, function, target, args) {
        Ok(expr) => Ok(expr),
        Err(MacroError { at, message }) => {
            builder.parser.error_at(at, &message);
            Ok(builder.node(ExprKind::Invalid))
        }
    }
}

type Expander = fn(&mut Builder<'_, '_>, &str, Option<Expr>, Vec<Expr>) -> Result<Expr, MacroError>;

struct MacroError {
    at: Id,
    message: String,
}

impl MacroError {
    fn new(at: Id, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// A copied target doubles the tree; nothing real comes near this size.
const NODES_MAX: Id = 100_000;

fn find(function: &str, args: usize, member: bool) -> Option<Expander> {
    let expander: Expander = match (function, args, member) {
        ("has", 1, false) => has,
        ("all" | "exists" | "exists_one", 2 | 3, true) | ("existsOne", 3, true) => quantifier,
        ("map", 2 | 3, true) => map,
        ("filter", 2, true) => filter,
        ("transformList" | "transformMap" | "transformMapEntry", 3 | 4, true) => transform,
        ("optMap" | "optFlatMap", 2, true) => opt_map,
        ("sortBy", 2, true) => sort_by,
        ("bind", 3, true) => bind,
        _ => return None,
    };
    Some(expander)
}

fn has(
    make: &mut Builder<'_, '_>,
    _: &str,
    _: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expr, MacroError> {
    let [arg]: [Expr; 1] = args.try_into().expect("found by its count");
    match arg.kind {
        ExprKind::Select { operand, field, test: false } => {
            Ok(make.node(ExprKind::Select { operand, field, test: true }))
        }
        _ => Err(MacroError::new(arg.id, "invalid argument to has() macro")),
    }
}

fn quantifier(
    make: &mut Builder<'_, '_>,
    function: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expr, MacroError> {
    let (vars, mut rest) = variables(args, "argument must be a simple name", 1)?;
    let predicate = rest.remove(0);
    let (init, condition, step, result);
    match function {
        "all" => {
            init = make.literal(Literal::Bool(true));
            let accu = make.accu();
            condition = make.call(op::NOT_STRICTLY_FALSE, vec![accu]);
            let accu = make.accu();
            step = make.call(op::AND, vec![accu, predicate]);
            result = make.accu();
        }
        "exists" => {
            init = make.literal(Literal::Bool(false));
            let accu = make.accu();
            let not = make.call(op::NOT, vec![accu]);
            condition = make.call(op::NOT_STRICTLY_FALSE, vec![not]);
            let accu = make.accu();
            step = make.call(op::OR, vec![accu, predicate]);
            result = make.accu();
        }
        _ => {
            init = make.literal(Literal::Int(0));
            condition = make.literal(Literal::Bool(true));
            let (accu, one) = (make.accu(), make.literal(Literal::Int(1)));
            let more = make.call(op::ADD, vec![accu, one]);
            let same = make.accu();
            step = make.call(op::CONDITIONAL, vec![predicate, more, same]);
            let (accu, one) = (make.accu(), make.literal(Literal::Int(1)));
            result = make.call(op::EQUALS, vec![accu, one]);
        }
    }
    Ok(make.fold(target, vars, init, condition, step, result))
}

fn map(
    make: &mut Builder<'_, '_>,
    _: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expr, MacroError> {
    let (vars, mut rest) = one_variable(args)?;
    let transform = rest.pop().expect("found by its count");
    let item = make.list(vec![transform]);
    Ok(make.collect_list(target, vars, rest.pop(), item))
}

fn filter(
    make: &mut Builder<'_, '_>,
    _: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expr, MacroError> {
    let var = args[0].clone();
    let (vars, mut rest) = one_variable(args)?;
    let item = make.list(vec![var]);
    Ok(make.collect_list(target, vars, rest.pop(), item))
}

fn transform(
    make: &mut Builder<'_, '_>,
    function: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expr, MacroError> {
    let (vars, mut rest) = variables(args, "argument must be a simple name", 2)?;
    let transform = rest.pop().expect("found by its count");
    let predicate = rest.pop();
    if function == "transformList" {
        let item = make.list(vec![transform]);
        return Ok(make.collect_list(target, vars, predicate, item));
    }
    let mut insert = vec![make.accu()];
    if function == "transformMap" {
        insert.push(make.node(ExprKind::Ident(vars.0.clone())));
    }
    insert.push(transform);
    let mut step = make.call("cel.@mapInsert", insert);
    if let Some(predicate) = predicate {
        let accu = make.accu();
        step = make.call(op::CONDITIONAL, vec![predicate, step, accu]);
    }
    let init = make.node(ExprKind::Map(Vec::new()));
    let condition = make.literal(Literal::Bool(true));
    let result = make.accu();
    Ok(make.fold(target, vars, init, condition, step, result))
}

fn opt_map(
    make: &mut Builder<'_, '_>,
    function: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expr, MacroError> {
    let target = target.expect("found as a member");
    let [var, body]: [Expr; 2] = args.try_into().expect("found by its count");
    let ExprKind::Ident(name) = var.kind else {
        let message = match function {
            "optMap" => "optMap() variable name must be a simple identifier",
            _ => "optFlatMap() variable name must be a simple identifier",
        };
        return Err(MacroError::new(var.id, message));
    };
    if make.parser.last_id() > NODES_MAX {
        return Err(MacroError::new(target.id, "expression is too large after macro expansion"));
    }
    let copy = make.copy(&target);
    let value = make.member_call("value", copy, Vec::new());
    let bound = make.bind(name, value, body);
    let present = if function == "optMap" { make.call("optional.of", vec![bound]) } else { bound };
    let test = make.member_call("hasValue", target, Vec::new());
    let none = make.call("optional.none", Vec::new());
    Ok(make.call(op::CONDITIONAL, vec![test, present, none]))
}

fn sort_by(
    make: &mut Builder<'_, '_>,
    _: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expr, MacroError> {
    const INPUT: Str = Str::new_static("@__sortBy_input__");
    let target = target.expect("found as a member");
    if matches!(target.kind, ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct { .. }) {
        let message = "sortBy can only be applied to a list, identifier, comprehension, call or \
                       select expression";
        return Err(MacroError::new(target.id, message));
    }
    let (vars, mut rest) = one_variable(args)?;
    let key = rest.pop().expect("found by its count");
    let item = make.list(vec![key]);
    let input = make.node(ExprKind::Ident(INPUT));
    let keys = make.collect_list(Some(input), vars, None, item);
    let input = make.node(ExprKind::Ident(INPUT));
    let sorted = make.member_call("@sortByAssociatedKeys", input, vec![keys]);
    Ok(make.bind(INPUT, target, sorted))
}

fn is_ident(expr: Option<&Expr>, name: &str) -> bool {
    matches!(expr.map(|expr| &expr.kind), Some(ExprKind::Ident(ident)) if ident == name)
}

fn bind(
    make: &mut Builder<'_, '_>,
    _: &str,
    _: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expr, MacroError> {
    let [var, value, body]: [Expr; 3] = args.try_into().expect("found by its count");
    match var.kind {
        ExprKind::Ident(name) => Ok(make.bind(name, value, body)),
        _ => Err(MacroError::new(var.id, "cel.bind() variable names must be simple identifiers")),
    }
}

type Variables = (Str, Option<Str>);

fn one_variable(args: Vec<Expr>) -> Result<(Variables, Vec<Expr>), MacroError> {
    let mut args = args.into_iter();
    let first = args.next().expect("found by its count");
    let name = variable(&first, "argument is not an identifier")?;
    check_variable(&name, first.id)?;
    Ok(((name, None), args.collect()))
}

/// The loop variables in front of the last `rest` or more arguments.
fn variables(
    args: Vec<Expr>,
    message: &'static str,
    rest: usize,
) -> Result<(Variables, Vec<Expr>), MacroError> {
    let two = args.len() > 1 + rest || rest == 2;
    let mut args = args.into_iter();
    let first = args.next().expect("found by its count");
    let var = variable(&first, message)?;
    if !two {
        check_variable(&var, first.id)?;
        return Ok(((var, None), args.collect()));
    }
    let second = args.next().expect("found by its count");
    let var2 = variable(&second, message)?;
    if var == var2 {
        return Err(MacroError::new(second.id, format!("duplicate variable name: {var}")));
    }
    check_variable(&var, first.id)?;
    check_variable(&var2, second.id)?;
    Ok(((var, Some(var2)), args.collect()))
}

fn variable(expr: &Expr, message: &'static str) -> Result<Str, MacroError> {
    match &expr.kind {
        ExprKind::Ident(name) => Ok(name.clone()),
        _ => Err(MacroError::new(expr.id, message)),
    }
}

fn check_variable(name: &str, at: Id) -> Result<(), MacroError> {
    if name == "__result__" {
        return Err(MacroError::new(at, "iteration variable overwrites accumulator variable"));
    }
    Ok(())
}

/// Builds nodes at the source position of the macro.
struct Builder<'p, 's> {
    parser: &'p mut Parser<'s>,
    id: Id,
}

impl Builder<'_, '_> {
    fn node(&mut self, kind: ExprKind) -> Expr {
        Expr { id: self.parser.id_like(self.id), kind }
    }

    fn accu(&mut self) -> Expr {
        self.node(ExprKind::Ident(Str::new_static(ACCU)))
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.node(ExprKind::Literal(literal))
    }

    fn list(&mut self, items: Vec<Expr>) -> Expr {
        self.node(ExprKind::List { items, optional: Vec::new() })
    }

    fn call(&mut self, function: &'static str, args: Vec<Expr>) -> Expr {
        self.node(ExprKind::Call { function: Str::new_static(function), target: None, args })
    }

    fn member_call(&mut self, function: &'static str, target: Expr, args: Vec<Expr>) -> Expr {
        let target = Some(Box::new(target));
        self.node(ExprKind::Call { function: Str::new_static(function), target, args })
    }

    fn fold(
        &mut self,
        range: Option<Expr>,
        (var, var2): Variables,
        init: Expr,
        condition: Expr,
        step: Expr,
        result: Expr,
    ) -> Expr {
        let range = range.expect("found as a member");
        let accu = Str::new_static(ACCU);
        let fold = Comprehension { range, var, var2, accu, init, condition, step, result };
        self.node(ExprKind::Comprehension(Box::new(fold)))
    }

    /// A loop that adds `item`, a list, to its result, for elements that pass the predicate.
    fn collect_list(
        &mut self,
        range: Option<Expr>,
        vars: Variables,
        predicate: Option<Expr>,
        item: Expr,
    ) -> Expr {
        let init = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(true));
        let accu = self.accu();
        let mut step = self.call(op::ADD, vec![accu, item]);
        if let Some(predicate) = predicate {
            let accu = self.accu();
            step = self.call(op::CONDITIONAL, vec![predicate, step, accu]);
        }
        let result = self.accu();
        self.fold(range, vars, init, condition, step, result)
    }

    /// `body` with `name` bound to `value`: a loop over nothing.
    fn bind(&mut self, name: Str, value: Expr, body: Expr) -> Expr {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.node(ExprKind::Ident(name.clone()));
        let fold = Comprehension {
            range,
            var: Str::new_static("#unused"),
            var2: None,
            accu: name,
            init: value,
            condition,
            step,
            result: body,
        };
        self.node(ExprKind::Comprehension(Box::new(fold)))
    }

    /// A copy of an expression with new ids, at the same source positions.
    fn copy(&mut self, expr: &Expr) -> Expr {
        let mut copy = expr.clone();
        self.renumber(&mut copy);
        copy
    }

    fn renumber(&mut self, expr: &mut Expr) {
        expr.id = self.parser.id_like(expr.id);
        match &mut expr.kind {
            ExprKind::Invalid | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => self.renumber(operand),
            ExprKind::Call { target, args, .. } => {
                if let Some(target) = target {
                    self.renumber(target);
                }
                for arg in args {
                    self.renumber(arg);
                }
            }
            ExprKind::List { items, .. } => {
                for item in items {
                    self.renumber(item);
                }
            }
            ExprKind::Map(entries) => {
                for entry in entries {
                    self.renumber(&mut entry.key);
                    self.renumber(&mut entry.value);
                }
            }
            ExprKind::Struct { fields, .. } => {
                for field in fields {
                    field.id = self.parser.id_like(field.id);
                    self.renumber(&mut field.value);
                }
            }
            ExprKind::Comprehension(fold) => {
                self.renumber(&mut fold.range);
                self.renumber(&mut fold.init);
                self.renumber(&mut fold.condition);
                self.renumber(&mut fold.step);
                self.renumber(&mut fold.result);
            }
        }
    }
}
