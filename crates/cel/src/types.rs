//! The types the checker reasons with.

use std::fmt;
use std::sync::Arc;

use meta::Str;

use crate::decl::{Decl, DeclKind};

#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    Null,
    Dyn,
    Any,
    /// The type of what does not type-check; goes with everything, so that one mistake is
    /// reported once.
    Error,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    Object(ObjectType),
    Optional(Arc<Type>),
    /// A type with values of its own that only its functions can read: `net.IP`, `net.CIDR`.
    Opaque(&'static str),
    /// The type of types.
    Type(Option<Arc<Type>>),
    /// A type parameter: of an overload's declaration, or one still to be found by the checker.
    Param(u32),
}

/// A type with a name: a declared object, or one of the libraries' own (without fields).
#[derive(Clone, Debug)]
pub struct ObjectType {
    pub name: Str,
    pub decl: Option<Arc<Decl>>,
}

impl PartialEq for ObjectType {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Type {
    pub fn list(items: Self) -> Self {
        Self::List(Arc::new(items))
    }

    pub fn map(keys: Self, values: Self) -> Self {
        Self::Map(Arc::new((keys, values)))
    }

    pub fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    pub(crate) fn object(name: &'static str) -> Self {
        Self::Object(ObjectType { name: Str::new_static(name), decl: None })
    }

    /// The type of the variable `authorizer` of admission policies.
    pub fn authorizer() -> Self {
        Self::object("kubernetes.authorization.Authorizer")
    }

    /// The type of the variable `authorizer.requestResource`.
    pub fn resource_check() -> Self {
        Self::object("kubernetes.authorization.ResourceCheck")
    }

    /// What a mutation that is an apply configuration makes.
    pub fn patched_object() -> Self {
        Self::object("Object")
    }

    /// What a mutation that is a JSON patch makes.
    pub fn json_patch() -> Self {
        Self::list(Self::object(crate::env::PATCH))
    }

    /// The type of declared data. Objects are named after the path that leads to them, so that
    /// two of them are the same type only at the same place.
    pub fn of(decl: &Arc<Decl>, name: &str) -> Self {
        match &decl.kind {
            DeclKind::Bool => Self::Bool,
            DeclKind::Int => Self::Int,
            DeclKind::Double => Self::Double,
            DeclKind::String => Self::String,
            DeclKind::Bytes => Self::Bytes,
            DeclKind::Duration => Self::Duration,
            DeclKind::Date | DeclKind::DateTime => Self::Timestamp,
            DeclKind::Quantity => Self::object("kubernetes.Quantity"),
            DeclKind::Any => Self::Any,
            DeclKind::IntOrString | DeclKind::Dyn | DeclKind::Preserved => Self::Dyn,
            DeclKind::List { items, .. } => Self::list(Self::of(items, &format!("{name}.@idx"))),
            DeclKind::Map { values, .. } => {
                Self::map(Self::String, Self::of(values, &format!("{name}.@elem")))
            }
            DeclKind::Object(_) => {
                Self::Object(ObjectType { name: Str::new(name), decl: Some(decl.clone()) })
            }
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any | Self::Error)
    }

    /// Can a value's kind only be known at run time?
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Dyn | Self::Any | Self::Error | Self::Param(_) | Self::Null => true,
            Self::List(items) => items.is_open(),
            Self::Map(entry) => entry.0.is_open() || entry.1.is_open(),
            Self::Optional(of) => of.is_open(),
            _ => false,
        }
    }

    /// The name that values of the type have at run time (`type(x)`, conversion errors).
    pub fn name(&self) -> &str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Null => "null_type",
            Self::Dyn | Self::Param(_) => "dyn",
            Self::Any => "google.protobuf.Any",
            Self::Error => "error",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Object(object) => &object.name,
            Self::Optional(_) => "optional_type",
            Self::Opaque(name) => name,
            Self::Type(_) => "type",
        }
    }
}

/// As error messages write it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Null => f.write_str("null"),
            Self::Any => f.write_str("any"),
            Self::Error => f.write_str("!error!"),
            Self::Param(number) => write!(f, "_var{number}"),
            Self::List(items) => write!(f, "list({items})"),
            Self::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Type(Some(of)) => write!(f, "type({of})"),
            _ => f.write_str(self.name()),
        }
    }
}
