//! Patch strategies and merge keys from the schema (Go's `LookupPatchMeta`), with the error texts
//! of upstream's reflection.

use meta::{Str, field::quote};
use schema::{Node, NodeType, PatchStrategy, Schema, TypeId};

use crate::PatchError;

/// Looks up patch metadata for the fields of one schema node.
#[derive(Clone, Copy)]
pub(super) struct PatchMetaLookup<'a> {
    schema: &'a Schema,
    target: LookupTarget<'a>,
}

#[derive(Clone, Copy)]
enum LookupTarget<'a> {
    Type(TypeId),
    /// An object without declared fields: its definition name.
    Opaque(&'a str),
    /// Not a struct: the name of its `reflect.Kind`.
    Other(&'static str),
}

/// The patch metadata of a field, and the lookup for its value (for a list: its items).
pub(super) struct PatchMeta<'a> {
    pub(super) patch: &'a PatchStrategy,
    pub(super) lookup: PatchMetaLookup<'a>,
}

impl PatchMeta<'_> {
    pub(super) fn merge_key(&self) -> Option<&Str> {
        self.patch.merge_key.as_ref()
    }
}

impl<'a> PatchMetaLookup<'a> {
    pub(super) fn of_type(schema: &'a Schema, ty: TypeId) -> Self {
        Self { schema, target: LookupTarget::Type(ty) }
    }

    /// A field that is an object.
    pub(super) fn field(&self, name: &str) -> Result<PatchMeta<'a>, PatchError> {
        let (node, patch) = self.find(name)?;
        Ok(PatchMeta { patch, lookup: self.of_node(node) })
    }

    /// A field that is a list.
    pub(super) fn list(&self, name: &str) -> Result<PatchMeta<'a>, PatchError> {
        let (node, patch) = self.find(name)?;
        let NodeType::List(item, _) = &node.kind else {
            let found = self.go_kind();
            return Err(contradiction(format!("expected slice or array type, but got: {found}")));
        };
        if matches!(item.kind, NodeType::List(..) | NodeType::Bytes) {
            return Err(contradiction("unexpected slice of slice".to_owned()));
        }
        Ok(PatchMeta { patch, lookup: self.of_node(item) })
    }

    /// The name of the type's `reflect.Kind`.
    pub(super) fn go_kind(&self) -> &'static str {
        match self.target {
            LookupTarget::Type(_) | LookupTarget::Opaque(_) => "struct",
            LookupTarget::Other(kind) => kind,
        }
    }

    fn find(&self, name: &str) -> Result<(&'a Node, &'a PatchStrategy), PatchError> {
        let unknown = |ty: &str| {
            let (ty, name) = (ty.rsplit('.').next().unwrap_or_default(), quote(name));
            contradiction(format!(
                "unable to find api field in struct {ty} for the json field {name}"
            ))
        };
        match self.target {
            LookupTarget::Type(id) => {
                let ty = self.schema.get(id);
                // Compat: Go's lookup falls back to a field that only differs in case.
                let folded = || ty.fields.iter().find(|f| f.name.eq_ignore_ascii_case(name));
                let field = ty.field(name).or_else(folded).ok_or_else(|| unknown(&ty.name))?;
                Ok((&field.node, &field.patch))
            }
            LookupTarget::Opaque(ty) => Err(unknown(ty)),
            LookupTarget::Other(kind) => Err(contradiction(format!(
                "merging an object in json but data type is not struct, instead is: {kind}"
            ))),
        }
    }

    fn of_node(&self, node: &'a Node) -> Self {
        let target = match &node.kind {
            NodeType::Object(ty)
            | NodeType::SchemaOrBool(ty)
            | NodeType::SchemaOrArray(ty)
            | NodeType::SchemaOrStringArray(ty) => LookupTarget::Type(*ty),
            NodeType::Any
            | NodeType::Raw
            | NodeType::AnyObject
            | NodeType::Time
            | NodeType::MicroTime
            | NodeType::Duration
            | NodeType::Quantity
            | NodeType::IntOrString => {
                LookupTarget::Opaque(node.definition.as_deref().unwrap_or_default())
            }
            NodeType::Map(_) => LookupTarget::Other("map"),
            NodeType::List(..) | NodeType::Bytes => LookupTarget::Other("slice"),
            NodeType::Bool => LookupTarget::Other("bool"),
            NodeType::Int32 => LookupTarget::Other("int32"),
            NodeType::Int64 => LookupTarget::Other("int64"),
            NodeType::Double => LookupTarget::Other("float64"),
            NodeType::String => LookupTarget::Other("string"),
        };
        Self { schema: self.schema, target }
    }
}

fn contradiction(why: String) -> PatchError {
    PatchError::Contradiction(why)
}
