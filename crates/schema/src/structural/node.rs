//! One node of a structural schema: what may stand at a place of an object.

use std::sync::OnceLock;

use meta::{Str, Value};

use super::{format::Format, pattern::Pattern};

/// What a CRD says about one place of its objects. The alternatives of `allOf`, `anyOf`, `oneOf` and
/// `not` are nodes as well; that they say less is one of the rules of structural schemas.
///
/// A platform has hundreds of thousands of these, so what most of them lack is kept small.
#[derive(Debug, Default)]
pub struct Node {
    pub ty: Type,
    pub nullable: bool,
    pub default: Option<Box<Value>>,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded_resource: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-list-type`: `atomic`, `set` or `map`.
    pub list_type: Option<Box<str>>,
    /// `x-kubernetes-list-map-keys`.
    pub list_map_keys: Box<[Str]>,
    /// `x-kubernetes-map-type`: `atomic` or `granular`.
    pub map_type: Option<Box<str>>,
    /// `x-kubernetes-validations`.
    pub validations: Box<[Rule]>,
    pub items: Option<Box<Node>>,
    /// Sorted by name.
    pub properties: Box<[(Str, Node)]>,
    pub additional: Additional,
    /// The keywords that only restrict values; most nodes have none.
    pub checks: Option<Box<Checks>>,
    pub(super) texts: Texts,
    pub(super) below: Below,
}

/// The `type` keyword.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Type {
    #[default]
    None,
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
    /// Nothing that a CRD may say.
    Other(Str),
}

/// The `additionalProperties` keyword.
#[derive(Debug, Default)]
pub enum Additional {
    #[default]
    None,
    /// `false`.
    Forbidden,
    /// `true`.
    Any,
    Schema(Box<Node>),
}

/// Keywords that restrict values and nothing else.
#[derive(Debug, Default)]
pub struct Checks {
    pub format: Str,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    pub pattern: Option<Pattern>,
    pub max_items: Option<i64>,
    pub min_items: Option<i64>,
    pub unique_items: bool,
    pub multiple_of: Option<f64>,
    pub enumeration: Vec<Value>,
    pub max_properties: Option<i64>,
    pub min_properties: Option<i64>,
    pub required: Vec<Str>,
    /// `required: []`, which is something else than nothing to Go.
    pub(super) requires_nothing: bool,
    pub all_of: Vec<Node>,
    pub any_of: Vec<Node>,
    pub one_of: Vec<Node>,
    pub not: Option<Box<Node>>,
    /// The format as far as it is checked, worked out when first asked for.
    pub(super) checked_format: OnceLock<Option<Format>>,
}

/// One of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub rule: Str,
    pub message: Str,
    pub message_expression: Str,
    /// Empty where none is given.
    pub reason: Str,
    pub field_path: Str,
    pub optional_old_self: Option<bool>,
}

/// Which keywords for readers are there. Their texts stay in the CRD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Texts {
    pub title: bool,
    pub description: bool,
    /// `example` or `externalDocs`.
    pub others: bool,
}

/// What is to be found somewhere below a node, so that walks can stop early.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Below {
    pub defaults: bool,
    pub embedded: bool,
    pub list_types: bool,
    pub rules: bool,
}

impl Node {
    /// Looks at the children and notes what is below. Children come first.
    pub(super) fn note_below(&mut self) {
        let properties = self.properties.iter().map(|(_, node)| node);
        let children = properties.chain(self.items.as_deref()).chain(self.additional.schema());
        let mut below = Below::default();
        for child in children {
            below.defaults |= child.below.defaults || child.default.is_some();
            below.embedded |= child.below.embedded || child.embedded_resource;
            below.list_types |= child.below.list_types || child.list_type.is_some();
            below.rules |= child.below.rules || !child.validations.is_empty();
        }
        self.below = below;
    }

    pub fn property(&self, name: &str) -> Option<&Node> {
        let at = self.properties.binary_search_by(|(own, _)| own.as_str().cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }

    /// What holds for the member `name`: its own schema or that of additional properties.
    pub fn member(&self, name: &str) -> Option<&Node> {
        self.property(name).or_else(|| self.additional.schema())
    }
}

impl Node {
    /// Whether there is no keyword but `type`, `default` and `properties`.
    pub(super) fn says_nothing_of_its_own(&self) -> bool {
        !self.nullable
            && !self.preserve_unknown
            && !self.embedded_resource
            && !self.int_or_string
            && self.list_type.is_none()
            && self.list_map_keys.is_empty()
            && self.map_type.is_none()
            && self.validations.is_empty()
            && self.items.is_none()
            && !self.additional.is_given()
            && self.checks.as_deref().is_none_or(Checks::is_empty)
            && self.texts == Texts::default()
    }
}

impl Checks {
    pub(super) fn is_empty(&self) -> bool {
        self.format.is_empty()
            && self.maximum.is_none()
            && !self.exclusive_maximum
            && self.minimum.is_none()
            && !self.exclusive_minimum
            && self.max_length.is_none()
            && self.min_length.is_none()
            && self.pattern.is_none()
            && self.max_items.is_none()
            && self.min_items.is_none()
            && !self.unique_items
            && self.multiple_of.is_none()
            && self.enumeration.is_empty()
            && self.max_properties.is_none()
            && self.min_properties.is_none()
            && self.required.is_empty()
            && !self.requires_nothing
            && self.all_of.is_empty()
            && self.any_of.is_empty()
            && self.one_of.is_empty()
            && self.not.is_none()
    }
}

impl Type {
    /// As a schema says it; empty for none.
    pub fn as_str(&self) -> &str {
        match self {
            Self::None => "",
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Object => "object",
            Self::String => "string",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for Type {
    fn from(name: &str) -> Self {
        match name {
            "" => Self::None,
            "array" => Self::Array,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "object" => Self::Object,
            "string" => Self::String,
            other => Self::Other(other.into()),
        }
    }
}

impl Additional {
    pub fn schema(&self) -> Option<&Node> {
        match self {
            Self::Schema(node) => Some(node),
            _ => None,
        }
    }

    pub fn is_given(&self) -> bool {
        !matches!(self, Self::None)
    }
}
