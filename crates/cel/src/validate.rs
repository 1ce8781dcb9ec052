//! Validation of literals beyond types: patterns compile, durations and timestamps parse, lists are
//! homogeneous, format strings match their arguments.

use std::cell::Cell;

use crate::ast::{Expr, ExprKind, Literal};
use crate::check::Checked;
use crate::library::{Clause, FormatArgument, check_format};
use crate::regex::Regex;
use crate::source::Issues;
use crate::time::{Duration, Timestamp};
use crate::types::Type;

pub(crate) fn validate(checked: &Checked, issues: &mut Issues) {
    let mut validator = Validator { checked, issues };
    validator.walk(&checked.parsed.expr, false);
}

struct Validator<'v> {
    checked: &'v Checked,
    issues: &'v mut Issues,
}

impl Validator<'_> {
    /// `formatting`: within the arguments of `format`, which may be of different types.
    fn walk(&mut self, expr: &Expr, formatting: bool) {
        match &expr.kind {
            ExprKind::Call { function, target, args } => {
                self.call(expr, function, target.as_deref(), args);
                let formatting = formatting || function == "format";
                if let Some(target) = target {
                    self.walk(target, formatting);
                }
                for arg in args {
                    self.walk(arg, formatting);
                }
            }
            ExprKind::List { items, optional } => {
                if !formatting {
                    self.list(items, optional);
                }
                for item in items {
                    self.walk(item, formatting);
                }
            }
            ExprKind::Map(entries) => {
                if !formatting {
                    self.map(expr);
                }
                for entry in entries {
                    self.walk(&entry.key, formatting);
                    self.walk(&entry.value, formatting);
                }
            }
            ExprKind::Select { operand, .. } => self.walk(operand, formatting),
            ExprKind::Struct { fields, .. } => {
                for field in fields {
                    self.walk(&field.value, formatting);
                }
            }
            ExprKind::Comprehension(fold) => {
                for part in [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result] {
                    self.walk(part, formatting);
                }
            }
            ExprKind::Invalid | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
        }
    }

    fn report(&mut self, expr: &Expr, message: String) {
        self.issues.report(self.checked.parsed.position(expr.id), message);
    }

    fn call(&mut self, expr: &Expr, function: &str, target: Option<&Expr>, args: &[Expr]) {
        if let Some(arg) = args.first()
            && let ExprKind::Literal(literal) = &arg.kind
        {
            let valid = match (function, literal) {
                ("duration", Literal::String(text)) => Duration::parse(text).is_some(),
                ("duration", Literal::Int(_)) => false,
                ("timestamp", Literal::String(text)) => {
                    Timestamp::parse(text).is_some_and(|time| time.0.is_some())
                }
                ("timestamp", Literal::Int(int)) => Timestamp::new(*int, 0, 0).is_some(),
                // Compat: of `matches(text, pattern)` it is the text that is looked at.
                ("matches", Literal::String(text)) => Regex::new(text).is_ok(),
                _ => true,
            };
            if !valid {
                self.report(arg, format!("invalid {function} argument"));
            }
        }
        if let ("format", Some(target), [list]) = (function, target, args)
            && let ExprKind::Literal(Literal::String(format)) = &target.kind
            && let ExprKind::List { items, .. } = &list.kind
        {
            self.format(expr, format, items);
        }
    }

    fn format(&mut self, expr: &Expr, format: &str, args: &[Expr]) {
        let operands: Vec<FormatOperand<'_>> = args
            .iter()
            .map(|expr| FormatOperand { checked: self.checked, expr, wrong: Cell::default() })
            .collect();
        match check_format(format, &operands) {
            Ok(used) if used < args.len() => {
                let message = format!(
                    "too many arguments supplied to string.format (expected {used}, got {})",
                    args.len()
                );
                self.report(expr, message);
            }
            Ok(_) => {}
            Err((message, about)) => {
                let at = match about {
                    Some(at) => operands[at].wrong.get().unwrap_or(&args[at]),
                    None => expr,
                };
                self.report(at, message);
            }
        }
    }

    fn list(&mut self, items: &[Expr], optional: &[usize]) {
        let mut first: Option<Type> = None;
        for (at, item) in items.iter().enumerate() {
            let ty = unwrapped(self.checked.type_of(item), optional.contains(&at));
            match &first {
                None => first = Some(ty),
                Some(first) if *first != ty => {
                    let message = format!("expected type '{first}' but found '{ty}'");
                    self.report(item, message);
                    break;
                }
                Some(_) => {}
            }
        }
    }

    fn map(&mut self, expr: &Expr) {
        let ExprKind::Map(entries) = &expr.kind else { unreachable!("called for a map") };
        let mut first: Option<(Type, Type)> = None;
        for entry in entries {
            let key = self.checked.type_of(&entry.key).clone();
            let value = unwrapped(self.checked.type_of(&entry.value), entry.optional);
            let Some((keys, values)) = &first else {
                first = Some((key, value));
                continue;
            };
            let mut wrong = Vec::new();
            if *keys != key {
                wrong.push((&entry.key, format!("expected type '{keys}' but found '{key}'")));
            }
            if *values != value {
                wrong.push((&entry.value, format!("expected type '{values}' but found '{value}'")));
            }
            for (expr, message) in wrong {
                self.report(expr, message);
            }
        }
    }
}

/// An argument of `format`, of which only the type is known.
struct FormatOperand<'v> {
    checked: &'v Checked,
    expr: &'v Expr,
    /// The part of a literal argument that does not match.
    wrong: Cell<Option<&'v Expr>>,
}

impl<'v> FormatOperand<'v> {
    /// Checks an expression, and the elements of a list or map that is written out.
    fn check(&self, expr: &'v Expr, clause: Clause) -> Result<(), String> {
        if let Err(message) = self.checked.type_of(expr).fill(clause) {
            self.wrong.set(Some(expr));
            return Err(message);
        }
        match &expr.kind {
            ExprKind::List { items, .. } if clause == Clause::String => {
                items.iter().try_for_each(|item| self.check(item, clause))
            }
            ExprKind::Map(entries) if clause == Clause::String => {
                entries.iter().try_for_each(|entry| {
                    self.check(&entry.key, clause)?;
                    self.check(&entry.value, clause)
                })
            }
            _ => Ok(()),
        }
    }
}

impl FormatArgument for FormatOperand<'_> {
    const RUNNING: bool = false;

    fn fill(&self, clause: Clause) -> Result<String, String> {
        self.check(self.expr, clause).map(|()| String::new())
    }
}

fn unwrapped(ty: &Type, optional: bool) -> Type {
    match ty {
        Type::Optional(of) if optional => (**of).clone(),
        ty => ty.clone(),
    }
}
