//! Type unification: assignability, with inference of type parameters.

use std::sync::Arc;

use crate::types::Type;

/// The inferred type parameters.
#[derive(Default)]
pub(crate) struct Bindings {
    types: Vec<Option<Type>>,
    /// What to restore when an attempt fails.
    undo: Vec<(u32, Option<Type>)>,
}

impl Bindings {
    pub(crate) fn fresh(&mut self) -> Type {
        self.fresh_block(1);
        Type::Param(self.types.len() as u32 - 1)
    }

    /// The first of `count` new parameters.
    pub(crate) fn fresh_block(&mut self, count: u32) -> u32 {
        let first = self.types.len() as u32;
        self.types.resize(self.types.len() + count as usize, None);
        first
    }

    fn find(&self, param: u32) -> Option<&Type> {
        self.types[param as usize].as_ref()
    }

    fn bind(&mut self, param: u32, ty: Type) {
        let old = self.types[param as usize].replace(ty);
        self.undo.push((param, old));
    }

    /// Is `right` assignable to `left`? If so, the bindings of type parameters are kept.
    pub(crate) fn assignable(&mut self, left: &Type, right: &Type) -> bool {
        self.attempt(|bindings| bindings.assign(left, right))
    }

    pub(crate) fn assignable_all(&mut self, left: &[Type], right: &[Type]) -> bool {
        self.attempt(|bindings| bindings.assign_all(left, right))
    }

    fn attempt(&mut self, check: impl FnOnce(&mut Self) -> bool) -> bool {
        self.undo.clear();
        let fits = check(self);
        if !fits {
            while let Some((param, old)) = self.undo.pop() {
                self.types[param as usize] = old;
            }
        }
        fits
    }

    fn assign_all(&mut self, left: &[Type], right: &[Type]) -> bool {
        left.len() == right.len()
            && left.iter().zip(right).all(|(left, right)| self.assign(left, right))
    }

    fn assign(&mut self, left: &Type, right: &Type) -> bool {
        if let Type::Param(param) = right {
            match self.substitution(left, *param) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(param) = left {
            return self.substitution(right, *param).0;
        }
        if left.is_dyn_or_error() || right.is_dyn_or_error() {
            return true;
        }
        match (left, right) {
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                self.assign(a, b)
            }
            (Type::Map(a), Type::Map(b)) => self.assign(&a.0, &b.0) && self.assign(&a.1, &b.1),
            (Type::Type(_), Type::Type(_)) => true,
            _ => left == right,
        }
    }

    /// Can the parameter be bound to `ty`? And was it bound already?
    fn substitution(&mut self, ty: &Type, param: u32) -> (bool, bool) {
        if matches!(ty, Type::Param(other) if *other == param) {
            return (true, true);
        }
        if let Some(known) = self.find(param).cloned() {
            if *ty == known {
                return (true, true);
            }
            if self.assign(ty, &known) {
                let general = most_general(ty, &known);
                if self.not_in(param, &general) {
                    self.bind(param, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.not_in(param, ty) {
            self.bind(param, ty.clone());
            return (true, false);
        }
        (false, false)
    }

    /// The occurs check: a type must not contain itself.
    fn not_in(&self, param: u32, within: &Type) -> bool {
        match within {
            Type::Param(other) if *other == param => false,
            Type::Param(other) => self.find(*other).is_none_or(|ty| self.not_in(param, ty)),
            Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => self.not_in(param, of),
            Type::Map(of) => self.not_in(param, &of.0) && self.not_in(param, &of.1),
            _ => true,
        }
    }

    /// The type with bound parameters substituted; unbound ones stay, or become dyn.
    pub(crate) fn substitute(&self, ty: &Type, to_dyn: bool) -> Type {
        match ty {
            Type::Param(param) => match self.find(*param) {
                Some(known) => self.substitute(known, to_dyn),
                None if to_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(of) => Type::list(self.substitute(of, to_dyn)),
            Type::Optional(of) => Type::optional(self.substitute(of, to_dyn)),
            Type::Map(of) => {
                Type::map(self.substitute(&of.0, to_dyn), self.substitute(&of.1, to_dyn))
            }
            Type::Type(Some(of)) => Type::Type(Some(Arc::new(self.substitute(of, to_dyn)))),
            other => other.clone(),
        }
    }
}

/// The declared type with its parameters numbered from `first`.
pub(crate) fn instantiate(ty: &Type, first: u32) -> Type {
    match ty {
        Type::Param(param) => Type::Param(first + param),
        Type::List(of) => Type::list(instantiate(of, first)),
        Type::Optional(of) => Type::optional(instantiate(of, first)),
        Type::Map(of) => Type::map(instantiate(&of.0, first), instantiate(&of.1, first)),
        Type::Type(Some(of)) => Type::Type(Some(Arc::new(instantiate(of, first)))),
        other => other.clone(),
    }
}

pub(crate) fn most_general(left: &Type, right: &Type) -> Type {
    if as_general(left, right) { left.clone() } else { right.clone() }
}

fn as_general(left: &Type, right: &Type) -> bool {
    if left.is_dyn() || matches!(left, Type::Param(_)) {
        return true;
    }
    if right.is_dyn() || matches!(right, Type::Param(_)) {
        return false;
    }
    match (left, right) {
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => as_general(a, b),
        (Type::Map(a), Type::Map(b)) => as_general(&a.0, &b.0) && as_general(&a.1, &b.1),
        (Type::Type(_), Type::Type(_)) => true,
        _ => left == right,
    }
}

fn nullable(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Null
            | Type::Any
            | Type::Duration
            | Type::Timestamp
            | Type::Object(_)
            | Type::Opaque(_)
            | Type::Optional(_)
    )
}
