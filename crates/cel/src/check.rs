//! The type checker: finds what names mean and which overloads a call can be, and reports what
//! cannot be. The tree is changed where a chain of fields turns out to be a name.

use std::sync::Arc;

use meta::Str;

use crate::ast::{Comprehension, Expr, ExprKind, Id, Literal, StructField, op};
use crate::env::{Env, PATCH, field_type};
use crate::functions::{Function, Overload, STANDARD};
use crate::parse::Parsed;
use crate::source::Issues;
use crate::types::Type;
use crate::unify::{Bindings, instantiate, most_general};

/// A tree that type-checks.
pub(crate) struct Checked {
    pub(crate) parsed: Parsed,
    /// By id.
    pub(crate) types: Vec<Type>,
    pub(crate) references: Vec<Option<Reference>>,
}

/// What a name or a call refers to.
#[derive(Clone)]
pub(crate) enum Reference {
    /// A variable, or a type.
    Name(Str),
    Overloads(Vec<&'static Overload>),
}

impl Checked {
    pub(crate) fn type_of(&self, expr: &Expr) -> &Type {
        &self.types[expr.id as usize]
    }

    pub(crate) fn overloads(&self, expr: &Expr) -> &[&'static Overload] {
        match &self.references[expr.id as usize] {
            Some(Reference::Overloads(overloads)) => overloads,
            _ => &[],
        }
    }
}

pub(crate) fn check(mut parsed: Parsed, env: &Env, mut issues: Issues) -> Result<Checked, Issues> {
    let mut expr = std::mem::replace(&mut parsed.expr, Expr { id: 0, kind: ExprKind::Invalid });
    let mut checker = Checker {
        env,
        parsed: &parsed,
        issues: &mut issues,
        bindings: Bindings::default(),
        types: vec![None; parsed.ids()],
        references: vec![None; parsed.ids()],
        scopes: Vec::new(),
    };
    checker.check(&mut expr);
    let bindings = checker.bindings;
    let types = checker
        .types
        .into_iter()
        .map(|ty| ty.map_or(Type::Dyn, |ty| bindings.substitute(&ty, true)))
        .collect();
    let references = checker.references;
    parsed.expr = expr;
    if !issues.is_empty() {
        return Err(issues);
    }
    Ok(Checked { parsed, types, references })
}

struct Checker<'e> {
    env: &'e Env,
    parsed: &'e Parsed,
    issues: &'e mut Issues,
    bindings: Bindings,
    types: Vec<Option<Type>>,
    references: Vec<Option<Reference>>,
    scopes: Vec<(Str, Type)>,
}

impl Checker<'_> {
    fn check(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let ty = match &mut expr.kind {
            ExprKind::Invalid => Type::Error,
            ExprKind::Literal(literal) => literal_type(literal),
            ExprKind::Ident(name) => match self.lookup(name) {
                Some((name, ty)) => {
                    self.set_reference(id, Reference::Name(name));
                    ty
                }
                None => {
                    let name = name.clone();
                    self.undeclared(id, &name)
                }
            },
            ExprKind::Select { .. } => self.select(expr),
            ExprKind::Call { .. } => self.call(expr),
            ExprKind::List { items, optional } => self.list(items, optional),
            ExprKind::Map(_) => self.map(expr),
            ExprKind::Struct { name, fields } => {
                let name = name.clone();
                self.structure(id, &name, fields)
            }
            ExprKind::Comprehension(fold) => self.fold(fold),
        };
        self.types[id as usize] = Some(ty);
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.types[expr.id as usize].clone().unwrap_or(Type::Error)
    }

    fn set_reference(&mut self, id: Id, reference: Reference) {
        self.references[id as usize] = Some(reference);
    }

    fn report(&mut self, id: Id, message: impl Into<String>) {
        self.issues.report(self.parsed.position(id), message);
    }

    fn undeclared(&mut self, id: Id, name: &str) -> Type {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    /// The variable or type of a name.
    fn lookup(&mut self, name: &str) -> Option<(Str, Type)> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some((name, ty)) = self.scopes.iter().rev().find(|(local, _)| local == name) {
            return Some((name.clone(), ty.clone()));
        }
        if let Some(variable) = self.env.variable_named(name) {
            return Some((variable.name.clone(), variable.ty.clone()));
        }
        let ty = self.env.made(name).or_else(|| type_named(name))?;
        let ty = match &ty {
            // `list` and `map` are types of anything.
            Type::List(_) => Type::list(self.bindings.fresh()),
            Type::Map(_) => Type::map(self.bindings.fresh(), self.bindings.fresh()),
            _ => ty,
        };
        Some((Str::new(name), Type::Type(Some(Arc::new(ty)))))
    }

    fn select(&mut self, expr: &mut Expr) -> Type {
        // A dotted name may be one name: `google.protobuf.Timestamp`.
        if let Some(name) = expr.qualified_name()
            && let Some((name, ty)) = self.lookup(&name)
        {
            expr.kind = ExprKind::Ident(name.clone());
            self.set_reference(expr.id, Reference::Name(name));
            return ty;
        }
        let id = expr.id;
        let ExprKind::Select { operand, field, test } = &mut expr.kind else {
            unreachable!("called for a selection")
        };
        self.check(operand);
        let operand = self.type_of(operand);
        let ty = self.field(id, &operand, field, false);
        if *test { Type::Bool } else { self.bindings.substitute(&ty, false) }
    }

    /// An object that the expression makes by the name of its type.
    fn structure(&mut self, id: Id, name: &str, fields: &mut [StructField]) -> Type {
        let Some((name, ty)) = self.lookup(name) else { return self.undeclared(id, name) };
        self.set_reference(id, Reference::Name(name.clone()));
        let is_type = matches!(ty, Type::Type(_));
        let made = match ty {
            Type::Type(Some(of)) if matches!(*of, Type::Object(_)) => (*of).clone(),
            Type::Type(of) => {
                let of = of.as_deref().unwrap_or(&Type::Dyn).name().to_owned();
                self.report(id, format!("'{of}' is not a message type"));
                Type::Error
            }
            other => {
                self.report(id, format!("'{}' is not a type", other.name()));
                Type::Error
            }
        };
        for field in fields {
            self.check(&mut field.value);
            let mut given = self.type_of(&field.value);
            if made == Type::Error {
                let unknown = if is_type {
                    format!("undefined field '{}'", field.name)
                } else {
                    format!("unexpected failed resolution of '{name}'")
                };
                self.report(field.id, unknown);
                continue;
            }
            if field.optional {
                given = self.unwrap_optional(field.value.id, given);
            }
            // Compat: a field that a patch doesn't have is of a type without a name.
            let (fits, wanted) = match made_field(&name, &field.name) {
                Some(wanted) => (self.bindings.assignable(&wanted, &given), wanted.to_string()),
                None => (given.is_dyn_or_error(), String::new()),
            };
            if !fits {
                let given = self.bindings.substitute(&given, true);
                let field_name = &field.name;
                self.report(
                    field.id,
                    format!(
                        "expected type of field '{field_name}' is '{wanted}' but provided type is \
                         '{given}'"
                    ),
                );
            }
        }
        made
    }

    fn opt_select(&mut self, id: Id, args: &mut [Expr]) -> Type {
        let [operand, field] = args else { unreachable!("made by the parser with two arguments") };
        let ExprKind::Literal(Literal::String(name)) = &field.kind else {
            unreachable!("made by the parser with a name")
        };
        let name = name.clone();
        self.types[field.id as usize] = Some(Type::String);
        self.check(operand);
        let operand = self.type_of(operand);
        let ty = self.field(id, &operand, &name, true);
        let overload = &STANDARD.get(op::OPT_SELECT).expect("declared").overloads[0];
        self.set_reference(id, Reference::Overloads(vec![overload]));
        self.bindings.substitute(&ty, false)
    }

    fn field(&mut self, id: Id, operand: &Type, field: &str, optional: bool) -> Type {
        let operand = self.bindings.substitute(operand, false);
        let (target, unwrapped) = match &operand {
            Type::Optional(of) => ((**of).clone(), true),
            other => (other.clone(), false),
        };
        let result = match &target {
            Type::Map(entry) => entry.1.clone(),
            Type::Object(object) => match &object.decl {
                None if self.env.made(&object.name).is_some() => {
                    made_field(&object.name, field).unwrap_or(Type::Dyn)
                }
                None => {
                    self.report(id, format!("unexpected failed resolution of '{}'", object.name));
                    Type::Error
                }
                Some(decl) => match field_type(&object.name, decl, field) {
                    Some(ty) => ty,
                    None => {
                        self.report(id, format!("undefined field '{field}'"));
                        Type::Error
                    }
                },
            },
            Type::Param(_) => {
                self.bindings.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.report(id, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if unwrapped || optional { Type::optional(result) } else { result }
    }

    fn call(&mut self, expr: &mut Expr) -> Type {
        let id = expr.id;
        let ExprKind::Call { function, target, args } = &mut expr.kind else {
            unreachable!("called for a call")
        };
        if function == op::OPT_SELECT {
            return self.opt_select(id, args);
        }
        for arg in args.iter_mut() {
            self.check(arg);
        }
        let Some(receiver) = target else {
            let name = function.strip_prefix('.').map_or_else(|| function.clone(), Str::new);
            return match self.env.function(&name) {
                Some(found) => {
                    *function = name;
                    self.resolve(id, found, None, args)
                }
                None => {
                    let function = function.clone();
                    self.undeclared(id, &function)
                }
            };
        };
        // `sets.contains(a, b)` is a function of that name, not a call on `sets`.
        if let Some(prefix) = receiver.qualified_name() {
            let name = format!("{prefix}.{function}");
            if let Some(found) = self.env.function(&name) {
                *function = Str::from(name);
                *target = None;
                return self.resolve(id, found, None, args);
            }
        }
        self.check(receiver);
        match self.env.function(function) {
            Some(found) => {
                let receiver = self.type_of(receiver);
                self.resolve(id, found, Some(receiver), args)
            }
            None => {
                let function = function.clone();
                self.undeclared(id, &function)
            }
        }
    }

    fn resolve(
        &mut self,
        id: Id,
        function: &'static Function,
        target: Option<Type>,
        args: &[Expr],
    ) -> Type {
        let member = target.is_some();
        let types: Vec<Type> =
            target.into_iter().chain(args.iter().map(|arg| self.type_of(arg))).collect();
        if matches!(function.name, op::AND | op::OR) {
            return self.resolve_logic(id, function, &types, args);
        }
        let mut found = Vec::new();
        let mut result: Option<Type> = None;
        for overload in &function.overloads {
            if overload.member != member || overload.args.len() != types.len() {
                continue;
            }
            let first = self.bindings.fresh_block(overload.params);
            let fits = if overload.params == 0 {
                self.bindings.assignable_all(&types, &overload.args)
            } else {
                let args: Vec<Type> =
                    overload.args.iter().map(|arg| instantiate(arg, first)).collect();
                self.bindings.assignable_all(&types, &args)
            };
            if !fits {
                continue;
            }
            found.push(overload);
            let ty = self.bindings.substitute(&instantiate(&overload.result, first), false);
            result = Some(match result {
                None => ty,
                Some(known) if known.is_dyn() || known == ty => known,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let types: Vec<String> =
                types.iter().map(|ty| self.bindings.substitute(ty, true).to_string()).collect();
            let signature = match types.split_first() {
                Some((target, args)) if member => format!("{target}.({})", args.join(", ")),
                _ => format!("({})", types.join(", ")),
            };
            let name = function.name;
            self.report(
                id,
                format!("found no matching overload for '{name}' applied to '{signature}'"),
            );
            return Type::Error;
        };
        self.set_reference(id, Reference::Overloads(found));
        result
    }

    fn resolve_logic(
        &mut self,
        id: Id,
        function: &'static Function,
        types: &[Type],
        args: &[Expr],
    ) -> Type {
        let mut result = Type::Bool;
        for (ty, arg) in types.iter().zip(args) {
            if !self.bindings.assignable(ty, &Type::Bool) {
                self.mismatch(arg.id, &Type::Bool, ty);
                result = Type::Error;
            }
        }
        self.set_reference(id, Reference::Overloads(vec![&function.overloads[0]]));
        result
    }

    fn list(&mut self, items: &mut [Expr], optional: &[usize]) -> Type {
        let mut joined: Option<Type> = None;
        for (at, item) in items.iter_mut().enumerate() {
            self.check(item);
            let mut ty = self.type_of(item);
            if optional.contains(&at) {
                ty = self.unwrap_optional(item.id, ty);
            }
            joined = Some(self.join(joined, ty));
        }
        Type::list(joined.unwrap_or_else(|| self.bindings.fresh()))
    }

    fn map(&mut self, expr: &mut Expr) -> Type {
        let ExprKind::Map(entries) = &mut expr.kind else { unreachable!("called for a map") };
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.check(&mut entry.key);
            let key = self.type_of(&entry.key);
            keys = Some(self.join(keys, key));
            self.check(&mut entry.value);
            let mut value = self.type_of(&entry.value);
            if entry.optional {
                value = self.unwrap_optional(entry.value.id, value);
            }
            values = Some(self.join(values, value));
        }
        let keys = keys.unwrap_or_else(|| self.bindings.fresh());
        let values = values.unwrap_or_else(|| self.bindings.fresh());
        Type::map(keys, values)
    }

    fn unwrap_optional(&mut self, id: Id, ty: Type) -> Type {
        match ty {
            Type::Optional(of) => (*of).clone(),
            ty => {
                if !ty.is_dyn() {
                    self.mismatch(id, &Type::optional(ty.clone()), &ty);
                }
                ty
            }
        }
    }

    /// The one type of the elements of a literal. That they have one is for `validate` to say:
    /// the arguments of `format` need not.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else { return current };
        if self.bindings.assignable(&previous, &current) {
            return most_general(&previous, &current);
        }
        Type::Dyn
    }

    fn fold(&mut self, fold: &mut Comprehension) -> Type {
        self.check(&mut fold.range);
        self.check(&mut fold.init);
        let range = self.bindings.substitute(&self.type_of(&fold.range), false);
        let accu = self.type_of(&fold.init);
        let depth = self.scopes.len();
        self.scopes.push((fold.accu.clone(), accu.clone()));
        let two = fold.var2.is_some();
        let (var, var2) = match &range {
            Type::List(items) if two => (Type::Int, (**items).clone()),
            Type::List(items) => ((**items).clone(), Type::Error),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.bindings.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be \
                     list, map, or dynamic)"
                );
                self.report(fold.range.id, message);
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((fold.var.clone(), var));
        if let Some(name) = &fold.var2 {
            self.scopes.push((name.clone(), var2));
        }
        self.check(&mut fold.condition);
        self.assert_type(&fold.condition, &Type::Bool);
        self.check(&mut fold.step);
        self.assert_type(&fold.step, &accu);
        self.scopes.truncate(depth + 1);
        self.check(&mut fold.result);
        self.scopes.truncate(depth);
        let result = self.type_of(&fold.result);
        self.bindings.substitute(&result, false)
    }

    fn assert_type(&mut self, expr: &Expr, expected: &Type) {
        let found = self.type_of(expr);
        if !self.bindings.assignable(expected, &found) {
            self.mismatch(expr.id, expected, &found);
        }
    }
}

/// The type of a field of an object that expressions make: nothing is known about those of
/// Kubernetes' own objects. None: there is no such field.
fn made_field(object: &str, field: &str) -> Option<Type> {
    match field {
        _ if object != PATCH => Some(Type::Dyn),
        "op" | "from" | "path" => Some(Type::String),
        "value" => Some(Type::Dyn),
        _ => None,
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// The types that expressions can name.
pub(crate) fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "string" => Type::String,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        "net.IP" => Type::Opaque("net.IP"),
        "net.CIDR" => Type::Opaque("net.CIDR"),
        "optional_type" => Type::optional(Type::Dyn),
        _ => return None,
    })
}
