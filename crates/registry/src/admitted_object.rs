//! What admission does with objects of a kind whose schema it does not know.

use std::sync::Arc;

use bytes::Bytes;
use codec::json::DecodeOptions;
use meta::{ApiError, Map, Value};
use schema::{
    Schema, TypeId,
    cel_decl::{self, Decl},
};

use crate::{Kind, decode::strict_decoding_error};

impl Kind {
    /// The JSON that clients get of an object of this version.
    pub fn json_of(&self, object: &Value) -> Bytes {
        self.encode(object)
    }

    /// An object that admission has changed, read as if a client had sent it: typed, without unknown
    /// fields, with defaults. `strict`: unknown fields of built-in kinds are an error.
    ///
    /// Compat: fields of a custom object's metadata that have the wrong type are dropped.
    pub fn decode_changed(&self, json: &[u8], strict: bool) -> Result<Value, ApiError> {
        let decode =
            |json: &[u8]| decode_typed(json, &self.schema, self.ty(), strict && !self.is_custom());
        let mut object = match decode(json) {
            Err(error) if self.is_custom() => {
                let cleaned = without_malformed_metadata(json, |json| decode(json).is_ok());
                decode(cleaned.ok_or(error)?.as_bytes())?
            }
            decoded => decoded?,
        };
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

/// An object without the fields of its metadata that cannot be decoded. None: it is no object.
fn without_malformed_metadata(json: &[u8], is_decodable: impl Fn(&[u8]) -> bool) -> Option<String> {
    let options = DecodeOptions { strict: false };
    let mut object = codec::json::decode_any_body(json, options).ok()?.value;
    let metadata = object.as_object_mut()?.get_mut("metadata")?;
    let fields = metadata.as_object().into_iter().flat_map(Map::iter);
    let kept = fields.filter(|(key, value)| {
        let alone = Map::from_pairs(vec![((*key).clone(), (*value).clone())]);
        let alone = meta::value!({"metadata": (Value::Object(alone))});
        is_decodable(meta::json::to_string(&alone).as_bytes())
    });
    let kept = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    *metadata = Value::Object(Map::from_pairs(kept));
    Some(meta::json::to_string(&object))
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
    match strict_decoding_error(&decoded.strict) {
        Some(error) => Err(ApiError::internal(error)),
        None => Ok(decoded.value),
    }
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
