//! What the schema says about a field on the way down, worded as upstream's reflection words it.

use meta::{Str, field::quote};
use schema::{Node, NodeType, PatchStrategy, Schema, TypeId};

use crate::PatchError;

/// Where in the schema an object is.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    schema: &'a Schema,
    shape: Shape<'a>,
}

#[derive(Clone, Copy)]
enum Shape<'a> {
    Type(TypeId),
    /// An object without known fields: its name.
    Opaque(&'a str),
    /// Anything that is not an object with fields: what Go calls it.
    Other(&'static str),
}

/// A field and what is in it: for a list, its items.
pub(super) struct Field<'a> {
    pub(super) patch: &'a PatchStrategy,
    pub(super) place: Place<'a>,
}

impl Field<'_> {
    pub(super) fn merge_key(&self) -> Option<&Str> {
        self.patch.merge_key.as_ref()
    }
}

impl<'a> Place<'a> {
    pub(super) fn of_type(schema: &'a Schema, ty: TypeId) -> Self {
        Self { schema, shape: Shape::Type(ty) }
    }

    /// A field that is an object.
    pub(super) fn field(&self, name: &str) -> Result<Field<'a>, PatchError> {
        let (node, patch) = self.find(name)?;
        Ok(Field { patch, place: self.of_node(node) })
    }

    /// A field that is a list.
    pub(super) fn list(&self, name: &str) -> Result<Field<'a>, PatchError> {
        let (node, patch) = self.find(name)?;
        let NodeType::List(item, _) = &node.kind else {
            let found = self.go_kind();
            return Err(contradiction(format!("expected slice or array type, but got: {found}")));
        };
        if matches!(item.kind, NodeType::List(..) | NodeType::Bytes) {
            return Err(contradiction("unexpected slice of slice".to_owned()));
        }
        Ok(Field { patch, place: self.of_node(item) })
    }

    /// What Go calls this kind of type.
    pub(super) fn go_kind(&self) -> &'static str {
        match self.shape {
            Shape::Type(_) | Shape::Opaque(_) => "struct",
            Shape::Other(kind) => kind,
        }
    }

    fn find(&self, name: &str) -> Result<(&'a Node, &'a PatchStrategy), PatchError> {
        let unknown = |ty: &str| {
            let (ty, name) = (ty.rsplit('.').next().unwrap_or_default(), quote(name));
            contradiction(format!(
                "unable to find api field in struct {ty} for the json field {name}"
            ))
        };
        match self.shape {
            Shape::Type(id) => {
                let ty = self.schema.get(id);
                // Compat: Go's lookup falls back to a field that only differs in case.
                let folded = || ty.fields.iter().find(|f| f.name.eq_ignore_ascii_case(name));
                let field = ty.field(name).or_else(folded).ok_or_else(|| unknown(&ty.name))?;
                Ok((&field.node, &field.patch))
            }
            Shape::Opaque(ty) => Err(unknown(ty)),
            Shape::Other(kind) => Err(contradiction(format!(
                "merging an object in json but data type is not struct, instead is: {kind}"
            ))),
        }
    }

    fn of_node(&self, node: &'a Node) -> Self {
        let shape = match &node.kind {
            NodeType::Object(ty)
            | NodeType::SchemaOrBool(ty)
            | NodeType::SchemaOrArray(ty)
            | NodeType::SchemaOrStringArray(ty) => Shape::Type(*ty),
            NodeType::Any
            | NodeType::AnyObject
            | NodeType::Time
            | NodeType::MicroTime
            | NodeType::Duration
            | NodeType::Quantity
            | NodeType::IntOrString => {
                Shape::Opaque(node.definition.as_deref().unwrap_or_default())
            }
            NodeType::Map(_) => Shape::Other("map"),
            NodeType::List(..) | NodeType::Bytes => Shape::Other("slice"),
            NodeType::Bool => Shape::Other("bool"),
            NodeType::Int32 => Shape::Other("int32"),
            NodeType::Int64 => Shape::Other("int64"),
            NodeType::Double => Shape::Other("float64"),
            NodeType::String => Shape::Other("string"),
        };
        Self { schema: self.schema, shape }
    }
}

fn contradiction(why: String) -> PatchError {
    PatchError::Contradiction(why)
}
