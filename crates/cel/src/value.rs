//! Values at run time. Lists and maps of the object are not copied: they are a reference and its
//! declaration, and an element is converted on access.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use meta::{Number, Str, Value, quantity::Quantity};

use crate::decl::{Decl, DeclKind};
use crate::escape::{escape, unescape};
use crate::kubernetes_value::KubernetesValue;
use crate::time::{Duration, Timestamp};
use crate::types::Type;

/// Why an evaluation ended without a value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EvalError {
    /// An error in the data or the expression; `&&` and `||` can absorb it.
    #[error("{0}")]
    Failed(Str),
    /// No overload of a function takes the arguments; absorbed like [`EvalError::Failed`].
    #[error("{0}")]
    NoSuchOverload(Str),
    /// The cost limit is exceeded; no operator absorbs that.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// An authorizer has to be asked that does not answer from memory; nothing absorbs that, and the
    /// expression is evaluated again when the answer is there.
    #[error("the authorizer has not decided yet")]
    Undecided,
}

pub type EvalResult<'a> = Result<Val<'a>, EvalError>;

/// The maximum number of values in a list or map that an expression builds, nested ones included.
/// Costs do not depend on the depth of values, so without this bound an expression could exhaust
/// memory.
pub(crate) const WEIGHT_MAX: u64 = 4_000_000;

/// The longest string or bytes that an expression may build: more than any object has. From 10 MB on it would exceed
/// kube-apiserver's cost limit of one expression, a tenth of each byte.
pub(crate) const TEXT_BYTES_MAX: usize = 5 << 20;

pub(crate) fn fail<T>(message: impl AsRef<str>) -> Result<T, EvalError> {
    Err(EvalError::Failed(Str::new(message)))
}

pub(crate) const NO_SUCH_OVERLOAD: EvalError =
    EvalError::NoSuchOverload(Str::new_static("no such overload"));

#[derive(Clone, Debug, Default)]
pub enum Val<'a> {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    Duration(Duration),
    Timestamp(Timestamp),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Arc<Val<'a>>>),
    Type(Arc<Type>),
    /// A value of one of Kubernetes' libraries.
    Kubernetes(Arc<KubernetesValue>),
    /// A value without a schema.
    Preserved(&'a Value),
}

#[derive(Clone, Debug)]
pub enum Text<'a> {
    Ref(&'a str),
    Own(Str),
}

impl Text<'_> {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Ref(text) => text,
            Self::Own(text) => text,
        }
    }
}

#[derive(Clone, Debug)]
pub enum List<'a> {
    Tree(&'a [Value], &'a Decl),
    Own(Arc<Items<'a>>),
    /// The result of adding to a list with a schema, which has the schema as well.
    Declared(Arc<Items<'a>>, &'a Decl),
    /// Two lists, concatenated lazily: adding costs the same for any length.
    Concat(Arc<Concat<'a>>),
}

#[derive(Clone, Debug)]
pub struct Items<'a> {
    pub(crate) items: Vec<Val<'a>>,
    weight: u64,
}

#[derive(Debug)]
pub struct Concat<'a> {
    pub(crate) first: List<'a>,
    pub(crate) second: List<'a>,
    len: usize,
    weight: u64,
}

#[derive(Clone, Debug)]
pub enum Map<'a> {
    Tree(&'a meta::Map, &'a Decl),
    Own(Arc<Entries<'a>>),
}

#[derive(Clone, Debug)]
pub struct Entries<'a> {
    pub(crate) map: BTreeMap<Key<'a>, Val<'a>>,
    weight: u64,
    /// The type of an object that the expression made by its name (`Object.spec{…}`).
    pub(crate) made: Option<Str>,
}

/// A key of a map that an expression made.
#[derive(Clone, Debug)]
pub enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Text<'a>),
}

impl<'a> Val<'a> {
    pub(crate) fn text(text: impl Into<Str>) -> Self {
        Self::String(Text::Own(text.into()))
    }

    pub(crate) fn list(items: Vec<Val<'a>>) -> Self {
        Self::List(List::own(items))
    }

    pub(crate) fn some(value: Val<'a>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn kubernetes(value: KubernetesValue) -> Self {
        Self::Kubernetes(Arc::new(value))
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Converts a value of the tree according to its declaration.
    pub fn of(value: &'a Value, decl: &'a Decl) -> EvalResult<'a> {
        if value.is_null() && !decl.is_untyped() {
            return if decl.nullable {
                Ok(Self::Null)
            } else {
                fail("invalid data, got null for schema with nullable=false")
            };
        }
        match (&decl.kind, value) {
            (DeclKind::Dyn | DeclKind::Any, value) => Ok(Self::untyped(value, decl)),
            (DeclKind::Quantity, Value::String(text)) => match Quantity::parse(text) {
                Ok(quantity) => Ok(Self::kubernetes(KubernetesValue::Quantity(quantity))),
                Err(error) => fail(error.to_string()),
            },
            (DeclKind::IntOrString | DeclKind::String, Value::String(text)) => {
                Ok(Self::String(Text::Ref(text)))
            }
            (DeclKind::IntOrString | DeclKind::Int, Value::Number(Number::Int(int))) => {
                Ok(Self::Int(*int))
            }
            (DeclKind::IntOrString, _) => {
                fail("invalid data, expected XIntOrString value to be either a string or integer")
            }
            (DeclKind::Object(_) | DeclKind::Map { .. }, Value::Object(map)) => {
                Ok(Self::Map(Map::Tree(map, decl)))
            }
            (DeclKind::Object(_) | DeclKind::Map { .. }, _) => {
                fail("invalid data, expected a map for the provided schema with type=object")
            }
            (DeclKind::List { .. }, Value::Array(items)) => Ok(Self::List(List::Tree(items, decl))),
            (DeclKind::List { .. }, _) => {
                fail("invalid data, expected an array for the provided schema with type=array")
            }
            (DeclKind::Duration, Value::String(text)) => match Duration::parse_open_api(text) {
                Some(duration) => Ok(Self::Duration(duration)),
                None => fail(format!(
                    "Invalid duration {text}: unable to parse {} as duration",
                    meta::field::quote(text)
                )),
            },
            (DeclKind::Date, Value::String(text)) => match Timestamp::parse_date(text) {
                Some(date) => Ok(Self::Timestamp(date)),
                None => fail(format!("Invalid date formatted string {text}: not a date")),
            },
            (DeclKind::DateTime, Value::String(text)) => match Timestamp::parse_open_api(text) {
                Some(time) => Ok(Self::Timestamp(time)),
                None => fail(format!("Invalid date-time formatted string {text}: not a time")),
            },
            (DeclKind::Bytes, Value::String(text)) => {
                use base64::Engine;
                match base64::engine::general_purpose::STANDARD.decode(text.as_str()) {
                    Ok(bytes) => Ok(Self::Bytes(bytes.into())),
                    Err(error) => fail(format!("Invalid byte formatted string {text}: {error}")),
                }
            }
            (DeclKind::Double, Value::Number(Number::Float(double))) => Ok(Self::Double(*double)),
            (DeclKind::Double, Value::Number(Number::Int(int))) => Ok(Self::Double(*int as f64)),
            (DeclKind::Bool, Value::Bool(value)) => Ok(Self::Bool(*value)),
            (DeclKind::Preserved, value) => Ok(Self::Preserved(value)),
            (kind, value) => {
                let expected = match kind {
                    DeclKind::Double => "float",
                    DeclKind::Int => "int",
                    DeclKind::Bool => "bool",
                    _ => "string",
                };
                fail(format!("invalid data, expected {expected}, got {}", go_type(value)))
            }
        }
    }

    fn untyped(value: &'a Value, decl: &'a Decl) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(Number::Int(int)) => Self::Int(*int),
            Value::Number(Number::Float(double)) => Self::Double(*double),
            Value::String(text) => Self::String(Text::Ref(text)),
            Value::Array(items) => Self::List(List::Tree(items, decl)),
            Value::Object(map) => Self::Map(Map::Tree(map, decl)),
            Value::Raw(raw) => Self::untyped(raw.tree(), decl),
        }
    }

    /// The type the value has at run time.
    pub(crate) fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::Duration(_) => Type::Duration,
            Self::Timestamp(_) => Type::Timestamp,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Type(_) => Type::Type(None),
            Self::Kubernetes(value) => value.type_of(),
            Self::Preserved(_) => Type::Opaque("unknown"),
        }
    }

    /// Is it of the declared type of a parameter? Of a list or a map, one element is looked at.
    pub(crate) fn is_a(&self, ty: &Type) -> bool {
        match (ty, self) {
            (Type::Dyn | Type::Any | Type::Param(_), _) => true,
            (Type::List(items), Self::List(list)) => {
                list.get(0).is_none_or(|first| first.is_ok_and(|first| first.is_a(items)))
            }
            (Type::Map(entry), Self::Map(map)) => map.keys().first().is_none_or(|key| {
                let value = map.find(key);
                key.is_a(&entry.0)
                    && value.is_ok_and(|value| value.is_some_and(|value| value.is_a(&entry.1)))
            }),
            _ => ty.name() == self.type_of().name(),
        }
    }

    /// The number of nested values; shared ones count each time. Of the object's tree only the
    /// direct elements count: it is bounded already.
    pub(crate) fn weight(&self) -> u64 {
        match self {
            Self::List(List::Tree(items, _)) => items.len() as u64,
            Self::List(List::Own(items) | List::Declared(items, _)) => items.weight,
            Self::List(List::Concat(parts)) => parts.weight,
            Self::Map(Map::Tree(map, _)) => map.len() as u64,
            Self::Map(Map::Own(entries)) => entries.weight,
            Self::Optional(Some(value)) => value.weight().saturating_add(1),
            _ => 1,
        }
    }

    /// The number of elements, for values that have any; used for costs.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Self::String(text) => Some(char_count(text.as_str())),
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::List(list) => Some(list.len() as u64),
            Self::Map(map) => Some(map.len() as u64),
            Self::Kubernetes(value) => value.size(),
            _ => None,
        }
    }
}

fn char_count(text: &str) -> u64 {
    if text.is_ascii() { text.len() as u64 } else { text.chars().count() as u64 }
}

/// How Go's `%T` names a decoded JSON value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(Number::Int(_)) => "int64",
        Value::Number(Number::Float(_)) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) | Value::Raw(_) => "map[string]interface {}",
    }
}

impl<'a> Items<'a> {
    pub(crate) fn new(items: Vec<Val<'a>>) -> Self {
        let weight = items.iter().fold(1, |sum: u64, item| sum.saturating_add(item.weight()));
        Self { items, weight }
    }

    pub(crate) fn push(&mut self, item: Val<'a>) {
        self.weight = self.weight.saturating_add(item.weight());
        self.items.push(item);
    }
}

impl<'a> Entries<'a> {
    pub(crate) fn new(map: BTreeMap<Key<'a>, Val<'a>>) -> Self {
        let weight = map.values().fold(1, |sum: u64, value| sum.saturating_add(value.weight()));
        Self { map, weight, made: None }
    }

    pub(crate) fn insert(&mut self, key: Key<'a>, value: Val<'a>) {
        self.weight = self.weight.saturating_add(value.weight());
        self.map.insert(key, value);
    }
}

impl<'a> List<'a> {
    pub(crate) fn own(items: Vec<Val<'a>>) -> Self {
        Self::Own(Arc::new(Items::new(items)))
    }

    pub(crate) fn concat(first: Self, second: Self) -> Self {
        let len = first.len().saturating_add(second.len());
        let (first_weight, second_weight) =
            (Val::List(first.clone()).weight(), Val::List(second.clone()).weight());
        let weight = first_weight.saturating_add(second_weight);
        Self::Concat(Arc::new(Concat { first, second, len, weight }))
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Tree(items, _) => items.len(),
            Self::Own(own) | Self::Declared(own, _) => own.items.len(),
            Self::Concat(parts) => parts.len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Is it a list with a schema, which is stricter than one of an expression?
    pub(crate) fn is_declared(&self) -> bool {
        match self {
            Self::Tree(_, decl) | Self::Declared(_, decl) => !decl.is_untyped(),
            Self::Own(_) => false,
            Self::Concat(parts) => parts.first.is_declared(),
        }
    }

    pub fn get(&self, index: usize) -> Option<EvalResult<'a>> {
        match self {
            Self::Tree(items, decl) => {
                let decl: &'a Decl = decl;
                let items: &'a [Value] = items;
                let item = items.get(index)?;
                Some(Val::of(item, decl.element().map_or(decl, |items| &**items)))
            }
            Self::Own(own) | Self::Declared(own, _) => own.items.get(index).cloned().map(Ok),
            Self::Concat(parts) => match index.checked_sub(parts.first.len()) {
                Some(index) => parts.second.get(index),
                None => parts.first.get(index),
            },
        }
    }

    /// Every element; an element that cannot be converted is an error in its place.
    pub fn iter(&self) -> impl Iterator<Item = EvalResult<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Map<'a> {
    /// The number of entries. Of an object that is every property it has, declared or not.
    pub fn len(&self) -> usize {
        match self {
            Self::Tree(map, _) => map.len(),
            Self::Own(entries) => entries.map.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys to iterate over: of an object the declared properties that are there.
    pub fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Self::Tree(map, decl) => {
                let map: &'a meta::Map = map;
                match &decl.kind {
                    DeclKind::Object(object) => map
                        .keys()
                        .filter(|key| object.property(key).is_some())
                        .map(|key| match escape(key) {
                            Some(escaped) if escaped != key.as_str() => Val::text(escaped),
                            _ => Val::String(Text::Ref(key)),
                        })
                        .collect(),
                    _ => map.keys().map(|key| Val::String(Text::Ref(key))).collect(),
                }
            }
            Self::Own(entries) => entries.map.keys().map(Key::to_val).collect(),
        }
    }

    pub fn find(&self, key: &Val<'_>) -> Result<Option<Val<'a>>, EvalError> {
        match self {
            Self::Tree(map, decl) => {
                let (map, decl): (&'a meta::Map, &'a Decl) = (map, decl);
                match key {
                    Val::String(text) => find_in_tree(map, decl, text.as_str()),
                    _ if decl.is_untyped() => Ok(None),
                    _ => Err(NO_SUCH_OVERLOAD),
                }
            }
            Self::Own(entries) => Ok(Key::candidates(key)
                .into_iter()
                .flatten()
                .find_map(|key| entries.map.get(&key).cloned())),
        }
    }
}

/// The value under a name that an expression gave.
pub(crate) fn find_in_tree<'a>(
    map: &'a meta::Map,
    decl: &'a Decl,
    name: &str,
) -> Result<Option<Val<'a>>, EvalError> {
    match &decl.kind {
        DeclKind::Object(object) => {
            let unescaped;
            let property = if name.contains("__") {
                match unescape(name) {
                    Some(property) => {
                        unescaped = property;
                        unescaped.as_str()
                    }
                    None => return Ok(None),
                }
            } else {
                name
            };
            match (map.get(property), object.property(property)) {
                (Some(value), Some(field)) if !value.is_null() => {
                    Val::of(value, &field.decl).map(Some)
                }
                _ => Ok(None),
            }
        }
        kind => {
            let unescaped = (decl.unescapes_keys && name.contains("__")).then(|| unescape(name));
            let unescaped = unescaped.flatten();
            let Some(value) = map.get(unescaped.as_deref().unwrap_or(name)) else {
                return Ok(None);
            };
            let decl = if let DeclKind::Map { values, .. } = kind { values } else { decl };
            Val::of(value, decl).map(Some)
        }
    }
}

impl<'a> Key<'a> {
    pub(crate) fn of(value: &Val<'a>) -> Result<Self, EvalError> {
        match value {
            Val::Bool(value) => Ok(Self::Bool(*value)),
            Val::Int(value) => Ok(Self::Int(*value)),
            Val::Uint(value) => Ok(Self::Uint(*value)),
            Val::String(text) => Ok(Self::String(text.clone())),
            Val::Double(value) if value.fract() == 0.0 && value.abs() < 9e18 => {
                Ok(Self::Int(*value as i64))
            }
            other => fail(format!("unsupported key type: {}", other.type_of().name())),
        }
    }

    fn to_val(&self) -> Val<'a> {
        match self {
            Self::Bool(value) => Val::Bool(*value),
            Self::Int(value) => Val::Int(*value),
            Self::Uint(value) => Val::Uint(*value),
            Self::String(text) => Val::String(text.clone()),
        }
    }

    /// The keys that a value finds: numbers are the same whatever their type.
    fn candidates(value: &Val<'a>) -> [Option<Self>; 2] {
        match value {
            Val::Int(int) => [Some(Self::Int(*int)), u64::try_from(*int).ok().map(Self::Uint)],
            Val::Uint(uint) => [Some(Self::Uint(*uint)), i64::try_from(*uint).ok().map(Self::Int)],
            Val::Double(double) if double.fract() == 0.0 && double.abs() < 9e18 => {
                let int = *double as i64;
                [Some(Self::Int(int)), u64::try_from(int).ok().map(Self::Uint)]
            }
            other => [Self::of(other).ok(), None],
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Int(_) => 1,
            Self::Uint(_) => 2,
            Self::String(_) => 3,
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Uint(a), Self::Uint(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => a.as_str().cmp(b.as_str()),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}
