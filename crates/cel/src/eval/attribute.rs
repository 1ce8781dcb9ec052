//! Attributes: a variable, and the fields and elements below it.

use std::sync::Arc;

use meta::{Str, Value};

use super::{
    Attribute, Base, Bound, Evaluator, LazyFields, LocalValue, Qualifier, QualifierKind, limited,
};
use crate::decl::{Decl, DeclKind};
use crate::go_text::show;
use crate::value::{EvalError, EvalResult, Map, NO_SUCH_OVERLOAD, Text, Val, fail, find_in_tree};

impl<'a> Evaluator<'a> {
    /// What most attributes are, fields of declared objects that are there, without a value for each
    /// step on the way. None: it takes a closer look. Nothing is charged for yet.
    pub(super) fn look_up(&self, attribute: &'a Attribute) -> Option<Val<'a>> {
        let (mut map, mut object) = match &attribute.base {
            Base::Variable(slot, _) => match self.variables.get(*slot)? {
                Bound::Data(Value::Object(map), Decl { kind: DeclKind::Object(object), .. }) => {
                    (map, object)
                }
                _ => return None,
            },
            Base::Local(slot) => match self.locals.get(*slot)? {
                LocalValue::Set(Ok(Val::Map(Map::Tree(map, decl)))) => match &decl.kind {
                    DeclKind::Object(object) => (*map, object),
                    _ => return None,
                },
                _ => return None,
            },
            Base::Node(_) | Base::Conditional(_) => return None,
        };
        let (last, steps) = attribute.qualifiers.split_last()?;
        for step in steps {
            let QualifierKind::Field((_, Some(property))) = &step.kind else { return None };
            match (map.get(property)?, &object.property(property)?.decl.kind) {
                (Value::Object(next), DeclKind::Object(declared)) if !step.optional => {
                    (map, object) = (next, declared);
                }
                _ => return None,
            }
        }
        if last.optional {
            return None;
        }
        let found = |property: &Str| {
            let (value, field) = map.get(property).zip(object.property(property))?;
            (!value.is_null()).then(|| Val::of(value, &field.decl).ok())
        };
        match &last.kind {
            QualifierKind::Field((_, Some(property))) => found(property)?,
            QualifierKind::Test((_, Some(property))) => match found(property) {
                Some(readable) => readable.map(|_| Val::Bool(true)),
                None => Some(Val::Bool(false)),
            },
            _ => None,
        }
    }

    pub(super) fn resolve(&mut self, attribute: &'a Attribute) -> EvalResult<'a> {
        if let Base::Variable(slot, _) = &attribute.base
            && let Some(Bound::Lazy(fields)) = self.variables.get(*slot)
        {
            return self.qualify_lazy(*fields, &attribute.qualifiers);
        }
        let base = match &attribute.base {
            Base::Variable(slot, name) => self.variable(*slot, name)?,
            Base::Local(slot) => match &self.locals[*slot] {
                LocalValue::Set(value) => value.clone()?,
                LocalValue::Lazy(init) => {
                    let value = limited(self.eval(init))?;
                    self.locals[*slot] = LocalValue::Set(value.clone());
                    value?
                }
            },
            Base::Node(node) => self.eval(node)?,
            Base::Conditional(sides) => {
                return match self.eval(&sides.0)? {
                    Val::Bool(true) => self.resolve(&sides.1),
                    Val::Bool(false) => self.resolve(&sides.2),
                    _ => Err(NO_SUCH_OVERLOAD),
                };
            }
        };
        if attribute.qualifiers.is_empty() {
            return Ok(base);
        }
        self.qualify(base, &attribute.qualifiers)
    }

    /// The steps from an object whose fields are computed.
    pub(super) fn qualify_lazy(
        &mut self,
        fields: &'a dyn LazyFields,
        qualifiers: &'a [Arc<Qualifier>],
    ) -> EvalResult<'a> {
        let Some((first, others)) = qualifiers.split_first() else {
            return fail("the variables as a whole cannot be used");
        };
        let name = match &first.kind {
            QualifierKind::Field((name, _)) => Some(name.as_str()),
            QualifierKind::Test((name, _)) => {
                self.charge(1)?;
                // Compat: the field is computed, and why it cannot be is the outcome.
                return match fields.field(name) {
                    Some(value) => limited(value)?.map(|_| Val::Bool(true)),
                    None => Ok(Val::Bool(false)),
                };
            }
            QualifierKind::Const(index) => index.as_str(),
            _ => None,
        };
        let Some(name) = name else { return Err(NO_SUCH_OVERLOAD) };
        let value = match fields.field(name) {
            Some(value) => limited(value)?,
            None if first.optional => return Ok(Val::Optional(None)),
            None => return fail(format!("no such key: {name}")),
        };
        self.charge(1)?;
        let value = value?;
        let value = if first.optional { Val::some(value) } else { value };
        if others.is_empty() { Ok(value) } else { self.qualify(value, others) }
    }

    pub(super) fn variable(&self, slot: usize, name: &str) -> EvalResult<'a> {
        match self.variables.get(slot) {
            Some(Bound::Data(value, decl)) => Val::of(value, decl),
            Some(Bound::Optional(None)) => Ok(Val::Optional(None)),
            Some(Bound::Optional(Some((value, decl)))) => Val::of(value, decl).map(Val::some),
            Some(Bound::Val(value)) => Ok(value.clone()),
            Some(Bound::Lazy(_) | Bound::Missing) | None => {
                fail(format!("no such attribute(s): {name}"))
            }
        }
    }

    /// The steps from a value. Behind an optional, what is missing is none instead of an error.
    pub(super) fn qualify(
        &mut self,
        base: Val<'a>,
        qualifiers: &'a [Arc<Qualifier>],
    ) -> EvalResult<'a> {
        let (mut value, mut optional) = match base {
            Val::Optional(None) => return Ok(Val::Optional(None)),
            Val::Optional(Some(value)) => ((*value).clone(), true),
            value => (value, false),
        };
        for qualifier in qualifiers {
            optional |= qualifier.optional;
            let found = match &qualifier.kind {
                QualifierKind::Field(name) => field(&value, name, optional),
                QualifierKind::Test(name) => match field(&value, name, true) {
                    Ok(found) if optional => Ok(found.map(|_| Val::Bool(true))),
                    Ok(found) => Ok(Some(Val::Bool(found.is_some()))),
                    Err(error) => Err(error),
                },
                QualifierKind::Const(index) => element(&value, index, optional),
                QualifierKind::Attribute(index) => match limited(self.resolve(index))? {
                    Ok(index) => element(&value, &index, optional),
                    Err(error) => Err(error),
                },
                QualifierKind::Node(index) => match limited(self.eval(index))? {
                    Ok(index) => element(&value, &index, optional),
                    Err(error) => Err(error),
                },
            };
            match found {
                Ok(Some(next)) => {
                    self.charge(1)?;
                    value = next;
                }
                Ok(None) => return Ok(Val::Optional(None)),
                Err(error) => {
                    if !optional {
                        self.charge(1)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(if optional { Val::some(value) } else { value })
    }
}

/// A member by name. None if it is missing and that is fine.
fn field<'a>(
    value: &Val<'a>,
    (name, property): &(Str, Option<Str>),
    optional: bool,
) -> Result<Option<Val<'a>>, EvalError> {
    let found = match value {
        Val::Map(Map::Tree(map, decl)) => match &decl.kind {
            DeclKind::Object(object) => {
                let property = property.as_deref();
                match property.and_then(|p| map.get(p).zip(object.property(p))) {
                    Some((value, field)) if !value.is_null() => Some(Val::of(value, &field.decl)?),
                    _ => None,
                }
            }
            _ => find_in_tree(map, decl, name)?,
        },
        Val::Map(map) => map.find(&Val::String(Text::Ref(name)))?,
        Val::List(_) => return fail("unsupported index type 'string' in list"),
        _ => None,
    };
    match found {
        None if !optional => fail(format!("no such key: {name}")),
        found => Ok(found),
    }
}

/// An element by index or key. None if it is missing and that is fine.
fn element<'a>(
    value: &Val<'a>,
    index: &Val<'a>,
    optional: bool,
) -> Result<Option<Val<'a>>, EvalError> {
    match value {
        Val::Map(map) => match map.find(index)? {
            None if !optional => fail(format!("no such key: {}", show(index))),
            found => Ok(found),
        },
        Val::List(list) => {
            let at = match index {
                Val::Int(int) => *int,
                Val::Double(double) if double.fract() == 0.0 && double.abs() < 9e18 => {
                    *double as i64
                }
                Val::Uint(uint) if i64::try_from(*uint).is_ok() => *uint as i64,
                Val::Double(_) | Val::Uint(_) => {
                    return fail(format!("unsupported index value {} in list", show(index)));
                }
                other => {
                    let name = other.type_of();
                    return fail(format!("unsupported index type '{}' in list", name.name()));
                }
            };
            match usize::try_from(at).ok().and_then(|at| list.get(at)) {
                Some(_) if list.is_declared() && !matches!(index, Val::Int(_)) => {
                    fail(format!("unsupported index: {}", show(index)))
                }
                Some(item) => item.map(Some),
                None if optional => Ok(None),
                None => fail(format!("index out of bounds: {}", show(index))),
            }
        }
        _ if optional => Ok(None),
        _ => fail(format!("no such key: {}", show(index))),
    }
}
