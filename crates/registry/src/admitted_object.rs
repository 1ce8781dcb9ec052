//! What admission does with objects of a kind whose schema it does not know.

use std::sync::Arc;

use bytes::Bytes;
use codec::json::DecodeOptions;
use meta::{ApiError, Value};
use schema::{
    Schema, TypeId,
    cel_decl::{self, Decl},
};

use crate::Kind;

impl Kind {
    /// The JSON that clients get of an object of this version.
    pub fn json_of(&self, object: &Value) -> Bytes {
        self.encode(object)
    }

    /// An object that admission has changed, read as if a client had sent it: typed, without unknown
    /// fields, with defaults. `strict`: unknown fields of built-in kinds are an error.
    pub fn decode_changed(&self, json: &[u8], strict: bool) -> Result<Value, ApiError> {
        let mut object = decode_typed(json, &self.schema, self.ty(), strict && !self.is_custom())?;
        object.set_at(&["kind"], self.gvk().kind.clone());
        object.set_at(&["apiVersion"], self.group_version().to_string());
        if let Some(custom) = &self.custom {
            let pruned = custom.prune_and_default.prune_and_default(&mut object, None);
            pruned.map_err(ApiError::internal)?;
        }
        self.apply_defaults(&mut object)?;
        Ok(object)
    }

    /// What is known of objects in the expressions of admission policies.
    pub fn cel_decl(&self) -> Arc<Decl> {
        let (schema, ty) = self.apply_type();
        cel_decl::declare(schema, ty)
    }

    /// Merges a configuration into an object without owners. Err: why it does not fit the kind.
    pub fn merge_unowned(&self, live: &Value, configuration: &Value) -> Result<Value, String> {
        let (schema, ty) = self.apply_type();
        merge_unowned(schema, ty, live, configuration)
    }
}

/// An object of any type, decoded. `strict`: unknown fields are an error.
pub fn decode_typed(
    json: &[u8],
    schema: &Schema,
    ty: TypeId,
    strict: bool,
) -> Result<Value, ApiError> {
    let decoded = codec::json::decode(json, schema, ty, DecodeOptions { strict });
    let decoded = decoded.map_err(ApiError::internal)?;
    if !decoded.strict.is_empty() {
        let texts: Vec<String> = decoded.strict.iter().map(ToString::to_string).collect();
        return Err(ApiError::internal(format!("strict decoding error: {}", texts.join(", "))));
    }
    Ok(decoded.value)
}

/// Merges a configuration into an object of any type.
pub fn merge_unowned(
    schema: &Schema,
    ty: TypeId,
    live: &Value,
    configuration: &Value,
) -> Result<Value, String> {
    ::patch::apply::merge_unowned(schema, ty, live, configuration)
}
