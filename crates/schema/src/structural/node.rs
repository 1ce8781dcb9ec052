//! One node of a structural schema.

use std::sync::OnceLock;

use meta::{Str, Value};

use super::{format::Format, pattern::Pattern, validate::EnumIndex};

/// The schema of one value. The subschemas of `allOf`, `anyOf`, `oneOf` and `not` are nodes as
/// well, with fewer keywords allowed by the structural rules.
///
/// A cluster may have hundreds of thousands of nodes, so rarely used keywords are boxed.
#[derive(Debug, Default)]
pub struct StructuralNode {
    pub ty: JsonType,
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
    pub validations: Box<[ValidationRule]>,
    pub items: Option<Box<StructuralNode>>,
    /// Sorted by name.
    pub properties: Box<[(Str, StructuralNode)]>,
    pub additional_properties: AdditionalProperties,
    /// The keywords that only restrict values; most nodes have none.
    pub value_validation: Option<Box<ValueValidation>>,
    pub(super) doc_keywords: DocKeywords,
    pub(super) subtree: SubtreeFlags,
}

/// The `type` keyword.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JsonType {
    #[default]
    None,
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
    /// Any other text; invalid in a CRD.
    Other(Str),
}

/// The `additionalProperties` keyword.
#[derive(Debug, Default)]
pub enum AdditionalProperties {
    #[default]
    None,
    /// `false`.
    Forbidden,
    /// `true`.
    Any,
    Schema(Box<StructuralNode>),
}

/// Keywords that only restrict values (`ValueValidation` in apiextensions-apiserver).
#[derive(Debug, Default)]
pub struct ValueValidation {
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
    /// `required: []`, which Go distinguishes from an absent list.
    pub(super) requires_nothing: bool,
    pub all_of: Vec<StructuralNode>,
    pub any_of: Vec<StructuralNode>,
    pub one_of: Vec<StructuralNode>,
    pub not: Option<Box<StructuralNode>>,
    /// The format if it is one that is checked; computed on first use.
    pub(super) checked_format: OnceLock<Option<Format>>,
    /// Of a long `enum`; made on first use.
    pub(super) enum_index: OnceLock<EnumIndex>,
}

/// One of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationRule {
    pub rule: Str,
    pub message: Str,
    pub message_expression: Str,
    /// Empty where none is given.
    pub reason: Str,
    pub field_path: Str,
    pub optional_old_self: Option<bool>,
}

/// Which documentation keywords are present. Their texts stay in the CRD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DocKeywords {
    pub title: bool,
    pub description: bool,
    /// `example` or `externalDocs`.
    pub others: bool,
}

/// What the subtree below a node contains, so that walks can stop early.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SubtreeFlags {
    pub defaults: bool,
    pub embedded: bool,
    pub list_types: bool,
    pub rules: bool,
}

impl StructuralNode {
    /// Sets the flags from the children, whose flags must be set already.
    pub(super) fn set_subtree_flags(&mut self) {
        let properties = self.properties.iter().map(|(_, node)| node);
        let children =
            properties.chain(self.items.as_deref()).chain(self.additional_properties.schema());
        let mut below = SubtreeFlags::default();
        for child in children {
            below.defaults |= child.subtree.defaults || child.default.is_some();
            below.embedded |= child.subtree.embedded || child.embedded_resource;
            below.list_types |= child.subtree.list_types || child.list_type.is_some();
            below.rules |= child.subtree.rules || !child.validations.is_empty();
        }
        self.subtree = below;
    }

    pub fn property(&self, name: &str) -> Option<&StructuralNode> {
        let at = self.properties.binary_search_by(|(own, _)| own.as_str().cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }

    /// The schema of the field `name`: its property or `additionalProperties`.
    pub fn member(&self, name: &str) -> Option<&StructuralNode> {
        self.property(name).or_else(|| self.additional_properties.schema())
    }
}

impl StructuralNode {
    /// Whether there is no keyword but `type`, `default` and `properties`.
    pub(super) fn is_unconstrained(&self) -> bool {
        !self.nullable
            && !self.preserve_unknown
            && !self.embedded_resource
            && !self.int_or_string
            && self.list_type.is_none()
            && self.list_map_keys.is_empty()
            && self.map_type.is_none()
            && self.validations.is_empty()
            && self.items.is_none()
            && !self.additional_properties.is_given()
            && self.value_validation.as_deref().is_none_or(ValueValidation::is_empty)
            && self.doc_keywords == DocKeywords::default()
    }
}

impl ValueValidation {
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

impl JsonType {
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

impl From<&str> for JsonType {
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

impl AdditionalProperties {
    pub fn schema(&self) -> Option<&StructuralNode> {
        match self {
            Self::Schema(node) => Some(node),
            _ => None,
        }
    }

    pub fn is_given(&self) -> bool {
        !matches!(self, Self::None)
    }
}
