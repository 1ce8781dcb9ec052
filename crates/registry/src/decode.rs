//! From a request body to an object of the kind that the path names.

use meta::{ApiError, GroupVersionKind, Value};
use schema::{Schema, TypeId};

use crate::{options::FieldValidation, rest::Rest};

/// What a body is read as.
pub(crate) struct Expected<'a> {
    pub(crate) gvk: &'a GroupVersionKind,
    pub(crate) schema: &'a Schema,
    pub(crate) ty: TypeId,
    /// 406/415 texts differ for custom resources.
    pub(crate) validation: FieldValidation,
}

/// Reads the body in its content type. Unknown and duplicate fields are dropped, warned about or
/// refused, as `fieldValidation` asks.
pub(crate) fn body(rest: &Rest<'_>, expected: &Expected<'_>) -> Result<Value, ApiError> {
    let media = crate::pending::negotiate::content_type(rest.headers)?;
    decode(rest, media, &rest.body, expected)
}

pub(crate) fn decode(
    rest: &Rest<'_>,
    media: crate::pending::negotiate::Media,
    bytes: &[u8],
    expected: &Expected<'_>,
) -> Result<Value, ApiError> {
    let decoded = crate::pending::decode(media, bytes, expected.schema, expected.ty, expected.gvk)
        .map_err(|error| ApiError::BadRequest(error.to_string()))?;
    match expected.validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => {
            for error in &decoded.strict {
                rest.warnings.add(error.to_string());
            }
        }
        FieldValidation::Strict if decoded.strict.is_empty() => {}
        FieldValidation::Strict => {
            let errors: Vec<String> = decoded.strict.iter().map(ToString::to_string).collect();
            return Err(ApiError::BadRequest(format!(
                "{} in version {} cannot be handled as a {}: strict decoding error: {}",
                expected.gvk.kind,
                meta::field::quote(&expected.gvk.group_version().to_string()),
                expected.gvk.kind,
                errors.join(", ")
            )));
        }
    }
    Ok(decoded.value)
}

/// The body of a delete.
pub(crate) fn delete_options(rest: &Rest<'_>) -> Result<Value, ApiError> {
    let (schema, ty, _) = rest.engine.meta_type("DeleteOptions")?;
    let gvk = GroupVersionKind::new("", "v1", "DeleteOptions");
    let media = crate::pending::negotiate::content_type(rest.headers)?;
    let validation = FieldValidation::Ignore;
    decode(rest, media, &rest.body, &Expected { gvk: &gvk, schema, ty, validation })
}

/// The tree of JSON that the server itself has written.
pub(crate) fn tree(json: &[u8]) -> Result<Value, ApiError> {
    let options = codec::json::DecodeOptions { strict: false };
    Ok(codec::json::decode_any(json, options).map_err(ApiError::internal)?.value)
}
