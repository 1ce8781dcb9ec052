//! PATCH: an update whose next state is computed from the current one.

use ::patch::json_patch::JsonPatch;
use codec::{
    json::{
        DecodeError, DecodeOptions, Decoded, Found, GoKind, Step, StrictError, TypeError,
        list_strict_errors,
    },
    negotiate::MediaType,
};
use http::header::CONTENT_TYPE;
use meta::{
    ApiError, FieldErrors, GroupKind, Number, Value,
    field::path,
    limits::{QUOTED_BYTES_MAX, TreeSize, check_depth, cut},
};

use schema::openapi::CUSTOM_PATCHES;

use crate::{
    ResourceResponse, audit, decode, get as read, managed_fields, object_meta,
    options::WriteOptions,
    patch_errors::{self, redact},
    resource_request::ResourceRequest,
    response_format::{self, ResponseFormat},
    update::guaranteed_update,
};

pub(crate) async fn patch(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    let patch_type = PatchType::of(request)?;
    let format = ResponseFormat::negotiate(request)?;
    let apply = patch_type.is_apply();
    let options = WriteOptions::read(request.query, "PatchOptions", apply)?;
    audit::request_patch(request, patch_type);
    let parsed = Patch::parse_strictly(patch_type, &request.body);
    if parsed.is_err() && !apply {
        // A missing object is a 404, even if the patch is invalid.
        read::entry(request, "").await?;
    }
    let (patch, strict) = parsed?;
    let expected = decode::Expected {
        gvk: request.kind.gvk(),
        schema: &request.kind.schema,
        ty: request.kind.ty(),
        validation: options.field_validation,
    };
    // An apply creates a missing object, but not through a subresource.
    let creates = apply && request.info.subresource.is_empty();
    let written = guaranteed_update(request, &options, creates, &mut |current| {
        let patched = patch.apply(request, &options, current)?;
        // Copies add up. Other patches make at most the sum of both, which is looked at before defaults are added.
        if let Patch::Json(_) = patch {
            TreeSize::of(&patched)?;
        }
        // Duplicate keys of a configuration are reported after conflicts.
        let strict =
            if apply { check_duplicate_keys(request, &options, &strict)? } else { &strict[..] };
        let mut object = decode_patched(request, &expected, &patch, strict, current, patched)?;
        object_meta::ensure_namespace_matches(request.kind, &request.info.namespace, &mut object)?;
        object_meta::check_name(&object, &request.info.name)?;
        Ok(object)
    })
    .await?;
    response_format::json(request, &format, if written.created { 201 } else { 200 }, written.json)
}

/// Refuses duplicate keys of an applied configuration, or warns about them; the rest of the request
/// ignores them.
fn check_duplicate_keys<'a>(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    strict: &'a [StrictError],
) -> Result<&'a [StrictError], ApiError> {
    if let Some(why) = strict.first().filter(|_| options.is_strict()) {
        return Err(ApiError::BadRequest(format!(
            "error strict decoding YAML: error converting YAML to JSON: {why}"
        )));
    }
    decode::warn_strict(request, strict, options.field_validation);
    Ok(&[])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
    ApplyCbor,
}

impl PatchType {
    pub(crate) fn is_apply(self) -> bool {
        matches!(self, Self::Apply | Self::ApplyCbor)
    }

    pub(crate) fn of(request: &ResourceRequest<'_>) -> Result<Self, ApiError> {
        let given = request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let given = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        let found = MEDIA_TYPES.iter().find(|(media_type, _)| *media_type == given);
        match found.map(|(_, patch_type)| *patch_type) {
            Some(Self::Strategic) if request.kind.is_custom() => Err(unsupported(request)),
            Some(Self::ApplyCbor) if !offers_cbor(request) => Err(unsupported(request)),
            Some(patch_type) => Ok(patch_type),
            None => Err(unsupported(request)),
        }
    }
}

/// What OpenAPI says about patches is the same list, without CBOR.
const MEDIA_TYPES: [(&str, PatchType); 5] = [
    ("application/json-patch+json", PatchType::Json),
    ("application/merge-patch+json", PatchType::Merge),
    ("application/strategic-merge-patch+json", PatchType::Strategic),
    ("application/apply-patch+yaml", PatchType::Apply),
    ("application/apply-patch+cbor", PatchType::ApplyCbor),
];

fn unsupported(request: &ResourceRequest<'_>) -> ApiError {
    if !request.kind.is_custom() {
        return ApiError::UnsupportedPatch;
    }
    ApiError::UnsupportedMediaType(format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        CUSTOM_PATCHES.join(", ")
    ))
}

fn offers_cbor(request: &ResourceRequest<'_>) -> bool {
    request.engine.options.offered.contains(&MediaType::Cbor)
}

/// A patch: decoded once, applied in every attempt of the update.
pub(crate) enum Patch {
    Json(JsonPatch),
    Merge(Value),
    Strategic(Value),
    /// A configuration to apply.
    Apply(Value),
}

impl Patch {
    /// Decodes a patch, and lists its unknown and duplicate fields.
    pub(crate) fn parse_strictly(
        patch_type: PatchType,
        body: &[u8],
    ) -> Result<(Self, Vec<StrictError>), ApiError> {
        let options = DecodeOptions { strict: true };
        let decoded = match patch_type {
            PatchType::ApplyCbor => codec::cbor::decode(body)
                .map(|value| Decoded { value, strict: Vec::new() })
                .map_err(|error| ApiError::BadRequest(format!("error decoding CBOR: {error}"))),
            PatchType::Apply => codec::yaml::decode_any(body, options).map_err(|error| {
                let why = format!("error decoding YAML: error converting YAML to JSON: {error}");
                ApiError::BadRequest(why)
            }),
            PatchType::Strategic => codec::json::decode_any_body(body, options)
                .map_err(|error| ApiError::BadRequest(error.to_string())),
            PatchType::Json | PatchType::Merge => codec::json::decode_any_body(body, options)
                .map_err(|error| ApiError::BadRequest(format!("error decoding patch: {error}"))),
        };
        let Decoded { value: tree, mut strict } = decoded?;
        check_depth(&tree).map_err(|error| ApiError::BadRequest(error.to_string()))?;
        let change = match patch_type {
            PatchType::Json => {
                let patch = JsonPatch::decode(&tree)?;
                for error in &mut strict {
                    *error = StrictError::Other(format!("json patch {error}"));
                }
                strict.extend(patch.strict_errors().iter().cloned().map(StrictError::Other));
                strict = list_strict_errors(strict);
                Self::Json(patch)
            }
            PatchType::Merge => Self::Merge(tree),
            PatchType::Strategic => Self::Strategic(tree),
            PatchType::Apply | PatchType::ApplyCbor => {
                check_configuration(&tree)?;
                Self::Apply(tree)
            }
        };
        Ok((change, strict))
    }

    fn apply(
        &self,
        request: &ResourceRequest<'_>,
        options: &WriteOptions,
        current: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let kind = request.kind;
        match (self, current) {
            (Self::Apply(config), current) => {
                managed_fields::merge(request, options, current, config)
            }
            (_, None) => {
                Err(ApiError::not_found(kind.group_resource(), request.info.name.as_str()))
            }
            (Self::Strategic(patch), Some(current)) => {
                Ok(::patch::strategic::apply(current, patch, &kind.schema, kind.ty())?)
            }
            (other, Some(current)) => other.apply_untyped(current),
        }
    }

    /// Applies the patch without a schema (scale).
    pub(crate) fn apply_untyped(&self, current: &Value) -> Result<Value, ApiError> {
        match self {
            Self::Json(patch) => Ok(patch.apply(current)?),
            Self::Merge(patch) | Self::Strategic(patch) | Self::Apply(patch) => {
                Ok(::patch::merge::apply(current, patch)?)
            }
        }
    }
}

/// Checks that a configuration is an object or null.
fn check_configuration(tree: &Value) -> Result<(), ApiError> {
    if matches!(tree, Value::Object(_) | Value::Null) {
        return Ok(());
    }
    Err(ApiError::BadRequest(format!(
        "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal \
         {} into Go value of type map[string]interface {{}}",
        tree.type_name()
    )))
}

/// Decodes a patched tree like a body, with all checks.
pub(crate) fn decode_patched(
    request: &ResourceRequest<'_>,
    expected: &decode::Expected<'_>,
    change: &Patch,
    strict: &[StrictError],
    current: Option<&Value>,
    patched: Value,
) -> Result<Value, ApiError> {
    let is_custom = decode::of_custom(request, expected).is_some();
    // Compat: kind and apiVersion in a strategic patch are ignored.
    let same_kind = match change {
        Patch::Json(_) | Patch::Merge(_) => decode::check_patched_kind(request, &patched, expected),
        Patch::Strategic(_) | Patch::Apply(_) => Ok(()),
    };
    // Most patches leave nothing to decode, and then nothing can fail either.
    let patched = if !is_custom && same_kind.is_ok() && strict.is_empty() {
        match codec::json::to_canonical(patched, expected.schema, expected.ty) {
            Ok(object) => return Ok(object),
            Err(patched) => patched,
        }
    } else {
        patched
    };
    let patched = &patched;
    let same_kind = same_kind.map_err(decode::PatchedError::from);
    let context = decode::PatchContext { strict, applied: matches!(change, Patch::Apply(_)) };
    let read = same_kind.and_then(|()| decode::patched(request, patched, expected, &context));
    read.map_err(|error| {
        if let (decode::PatchedError::Decode(error), Patch::Apply(config)) = (&error, change)
            && let Some(error) = unconvertible(error, config, patched).filter(|_| !is_custom)
        {
            return error;
        }
        let why = match (&error, change) {
            // Compat: Go's decoder of strategic patches has other messages.
            (decode::PatchedError::Decode(DecodeError::Type(error)), Patch::Strategic(_)) => {
                conversion_error(error, patched)
            }
            (decode::PatchedError::Decode(error), Patch::Strategic(_)) => value_error(error),
            (error, _) => error.to_string(),
        };
        let shown = match change {
            // Compat: strategic patches are shown as Go prints maps.
            Patch::Strategic(patch) => ::patch::go_text::show(&redact(patch, expected.gvk)),
            Patch::Json(_) | Patch::Merge(_) if !is_custom => {
                let current = redact(current.unwrap_or(&Value::Null), expected.gvk);
                let patched = redact(patched, expected.gvk);
                patch_errors::show(&current, &patched, expected.schema, expected.ty)
            }
            _ => meta::json::to_string(&redact(patched, expected.gvk)),
        };
        let mut errors = FieldErrors::default();
        errors.invalid(path("patch"), &*cut(&shown, QUOTED_BYTES_MAX), &why);
        ApiError::Invalid {
            kind: GroupKind::default(),
            name: String::new(),
            errors: Box::new(errors),
        }
    })
}

/// The error for a configuration with a value of the right type of JSON and the wrong form: a quantity, a time, base64.
/// Compat: kube-apiserver finds it when it converts the merged object, which is a 500 without a reason. None: an integer
/// that is too large, which kube-apiserver cuts.
fn unconvertible(error: &DecodeError, config: &Value, patched: &Value) -> Option<ApiError> {
    let why = match error {
        DecodeError::Type(error) if !is_float(error, patched) => return None,
        DecodeError::Type(error) => conversion_error(error, patched),
        error => value_error(error),
    };
    let text = |name| config.str_at(&["metadata", name]);
    let (version, kind) = (config.str_at(&["apiVersion"]), config.str_at(&["kind"]));
    let slash = if version.contains('/') { "" } else { "/" };
    let gvk = format!("{slash}{version}, Kind={kind}");
    Some(ApiError::Storage(format!(
        "failed to convert new object ({}/{}; {gvk}) to proper version: unable to convert \
         unstructured object to {gvk}: {why}",
        text("namespace"),
        text("name"),
    )))
}

/// A value of the wrong form, as Go's `FromUnstructured` reports it.
fn value_error(error: &DecodeError) -> String {
    let why = error.to_string();
    if why.starts_with("illegal base64") { format!("error decoding from json: {why}") } else { why }
}

/// A value of another type than its field, as Go's `FromUnstructured` reports it: `cannot convert int64
/// to string`.
fn conversion_error(error: &TypeError, patched: &Value) -> String {
    // Kind and type of what was given.
    let (kind, given) = match &error.found {
        Found::Number(_) if is_float(error, patched) => ("float64", "float64"),
        Found::Number(_) => ("int64", "int64"),
        Found::Object => ("map", "map[string]interface {}"),
        Found::Array => ("slice", "[]interface {}"),
        Found::String => ("string", "string"),
        Found::Bool => ("bool", "bool"),
    };
    let wanted = error.wanted.name.as_str();
    // The type behind the name: named types are strings here.
    let wanted_kind = match error.wanted.kind {
        GoKind::Map => return format!("cannot restore map from {kind}"),
        GoKind::Slice => return format!("cannot restore slice from {kind}"),
        GoKind::Struct => return format!("cannot restore struct from: {kind}"),
        GoKind::Named => "string",
        GoKind::Basic => wanted,
    };
    // Go considers integers convertible to strings, and numbers to numbers, and reports the failed
    // conversion.
    let is_number = matches!(wanted_kind, "int32" | "int64" | "float64");
    let is_convertible = given == "int64" || given == "float64" && is_number;
    if is_convertible && wanted_kind != "bool" {
        return format!("cannot convert {given} to {wanted}");
    }
    format!("unrecognized type: {wanted_kind}")
}

/// Whether a number is a float in the patched tree. Its text does not tell: 1.0 is written as 1.
fn is_float(error: &TypeError, patched: &Value) -> bool {
    let found = error.at.iter().try_fold(patched, |value, step| match (value, step) {
        (Value::Array(items), Step::Index(at)) => items.get(*at),
        (value, Step::Key(key)) => value.get(key),
        _ => None,
    });
    matches!(found, Some(Value::Number(Number::Float(_))))
}

#[cfg(test)]
mod tests;
