//! PATCH: the same loop as an update; only the next state is computed, from the current one.

use ::patch::json_patch::JsonPatch;
use codec::json::DecodeOptions;
use http::header::CONTENT_TYPE;
use meta::{ApiError, FieldErrors, GroupKind, Value, field::path};

use crate::{
    Answer, decode, managed, object_meta,
    options::WriteOptions,
    response::{self, Form},
    rest::Rest,
    update::change,
};

pub(crate) async fn patch(rest: &Rest<'_>) -> Result<Answer, ApiError> {
    let patch_type = PatchType::of(rest)?;
    let form = Form::negotiate(rest)?;
    let apply = patch_type == PatchType::Apply;
    let options = WriteOptions::read(rest.query, "PatchOptions", apply)?;
    let change_of = Change::parse(patch_type, &rest.body)?;
    // An apply creates what is missing.
    let written = change(rest, &options, apply, &mut |current| {
        let patched = change_of.apply(rest, &options, current)?;
        let mut object = reread(rest, &options, &change_of, &patched)?;
        object_meta::settle_namespace(rest.kind, &rest.info.namespace, &mut object)?;
        object_meta::check_name(&object, &rest.info.name)?;
        Ok(object)
    })
    .await?;
    response::json(rest, &form, if written.created { 201 } else { 200 }, written.json)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    pub(crate) fn of(rest: &Rest<'_>) -> Result<Self, ApiError> {
        let given = rest.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let given = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        match given {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !rest.kind.is_custom() => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ if rest.kind.is_custom() => Err(ApiError::UnsupportedMediaType(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
                    .to_owned(),
            )),
            _ => Err(ApiError::UnsupportedPatch),
        }
    }
}

/// A patch, read once and applied as often as the loop goes round.
pub(crate) enum Change {
    Json(JsonPatch),
    Merge(Value),
    Strategic(Value),
    /// A configuration to apply.
    Apply(Value),
}

impl Change {
    pub(crate) fn parse(patch_type: PatchType, body: &[u8]) -> Result<Self, ApiError> {
        let options = DecodeOptions { strict: false };
        let decoded = match patch_type {
            PatchType::Apply => codec::yaml::decode_any(body, options).map_err(|error| {
                let why = format!("error decoding YAML: error converting YAML to JSON: {error}");
                ApiError::BadRequest(why)
            }),
            PatchType::Strategic => codec::json::decode_any(body, options)
                .map_err(|error| ApiError::BadRequest(error.to_string())),
            PatchType::Json | PatchType::Merge => codec::json::decode_any(body, options)
                .map_err(|error| ApiError::BadRequest(format!("error decoding patch: {error}"))),
        };
        let tree = decoded?.value;
        match patch_type {
            PatchType::Json => Ok(Self::Json(JsonPatch::decode(&tree)?)),
            PatchType::Merge => Ok(Self::Merge(tree)),
            PatchType::Strategic => Ok(Self::Strategic(tree)),
            PatchType::Apply => Ok(Self::Apply(tree)),
        }
    }

    fn apply(
        &self,
        rest: &Rest<'_>,
        options: &WriteOptions,
        current: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let kind = rest.kind;
        match (self, current) {
            (Self::Apply(config), current) => managed::merge(rest, options, current, config),
            (_, None) => Err(ApiError::not_found(kind.group_resource(), rest.info.name.as_str())),
            (Self::Strategic(patch), Some(current)) => {
                Ok(::patch::strategic::apply(current, patch, &kind.schema, kind.ty())?)
            }
            (other, Some(current)) => other.apply_untyped(current),
        }
    }

    /// For what has no schema at hand (scale).
    pub(crate) fn apply_untyped(&self, current: &Value) -> Result<Value, ApiError> {
        match self {
            Self::Json(patch) => Ok(patch.apply(current)?),
            Self::Merge(patch) | Self::Strategic(patch) | Self::Apply(patch) => {
                Ok(::patch::merge::apply(current, patch)?)
            }
        }
    }
}

/// A patched tree may hold anything: it is read again like a body, with all checks.
fn reread(
    rest: &Rest<'_>,
    options: &WriteOptions,
    change: &Change,
    patched: &Value,
) -> Result<Value, ApiError> {
    let json = meta::json::to_string(patched);
    decode::patched(rest, json.as_bytes(), options.field_validation).map_err(|why| {
        let mut errors = FieldErrors::default();
        match change {
            // Compat: strategic patches are shown as Go prints maps, and in the words of another
            // decoder.
            Change::Strategic(patch) => {
                errors.invalid(path("patch"), ::patch::go_text::show(patch), &conversion(&why));
            }
            _ => errors.invalid(path("patch"), json.as_str(), &why),
        }
        ApiError::Invalid { kind: GroupKind::default(), name: String::new(), errors }
    })
}

/// `json: cannot unmarshal number into Go struct field A.b of type string` as the decoder of trees
/// says it: `cannot convert int64 to string`.
fn conversion(why: &str) -> String {
    let Some(rest) = why.strip_prefix("json: cannot unmarshal ") else { return why.to_owned() };
    let (given, wanted) = (rest.split(' ').next(), rest.rsplit(" of type ").next());
    let given = match given {
        Some("number") => "int64",
        Some("object") => "map[string]interface {}",
        Some("array") => "[]interface {}",
        Some(other) => other,
        None => return why.to_owned(),
    };
    format!("cannot convert {given} to {}", wanted.unwrap_or_default())
}
