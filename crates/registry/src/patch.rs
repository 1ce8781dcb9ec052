//! PATCH: the same loop as an update; only the next state is computed, from the current one.

use ::patch::json_patch::JsonPatch;
use codec::{
    json::{DecodeOptions, Decoded},
    negotiate::MediaType,
};
use http::header::CONTENT_TYPE;
use meta::{ApiError, FieldErrors, GroupKind, Number, Value, field::path};
use schema::Schema;

use crate::{
    ResourceResponse, decode, get as read, managed, object_meta,
    options::WriteOptions,
    patch_errors,
    resource_request::ResourceRequest,
    response_format::{self, ResponseFormat},
    update::change,
};

pub(crate) async fn patch(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    let patch_type = PatchType::of(request)?;
    let format = ResponseFormat::negotiate(request)?;
    let apply = patch_type.is_apply();
    let options = WriteOptions::read(request.query, "PatchOptions", apply)?;
    let parsed = Change::parse_strictly(patch_type, &request.body);
    if parsed.is_err() && !apply {
        // What isn't there can't be patched, well or badly.
        read::entry(request, "").await?;
    }
    let (change_of, strict) = parsed?;
    let expected = decode::Expected {
        gvk: request.kind.gvk(),
        schema: &request.kind.schema,
        ty: request.kind.ty(),
        validation: options.field_validation,
    };
    // An apply creates what is missing, though not by a part of it.
    let creates = apply && request.info.subresource.is_empty();
    let written = change(request, &options, creates, &mut |current| {
        let patched = change_of.apply(request, &options, current)?;
        // What a configuration says twice is of interest once it could be applied.
        let strict = if apply { said_twice(request, &options, &strict)? } else { &strict[..] };
        let mut object = reread(request, &expected, &change_of, strict, current, &patched)?;
        object_meta::settle_namespace(request.kind, &request.info.namespace, &mut object)?;
        object_meta::check_name(&object, &request.info.name)?;
        Ok(object)
    })
    .await?;
    response_format::json(request, &format, if written.created { 201 } else { 200 }, written.json)
}

/// Refuses what an applied configuration says twice, or warns of it; nothing is left to be said then.
fn said_twice<'a>(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    strict: &'a [String],
) -> Result<&'a [String], ApiError> {
    if let Some(why) = strict.first().filter(|_| options.is_strict()) {
        return Err(ApiError::BadRequest(format!(
            "error strict decoding YAML: error converting YAML to JSON: {why}"
        )));
    }
    decode::warn_of(request, strict, options.field_validation);
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
        match given {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !request.kind.is_custom() => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            "application/apply-patch+cbor" if offers_cbor(request) => Ok(Self::ApplyCbor),
            _ if request.kind.is_custom() => Err(ApiError::UnsupportedMediaType(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
                    .to_owned(),
            )),
            _ => Err(ApiError::UnsupportedPatch),
        }
    }
}

fn offers_cbor(request: &ResourceRequest<'_>) -> bool {
    request.engine.tuning.offered.contains(&MediaType::Cbor)
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
    /// Reads a patch, and says what of it `fieldValidation` has an opinion about.
    pub(crate) fn parse_strictly(
        patch_type: PatchType,
        body: &[u8],
    ) -> Result<(Self, Vec<String>), ApiError> {
        let options = DecodeOptions { strict: true };
        let decoded = match patch_type {
            PatchType::ApplyCbor => codec::cbor::decode(body)
                .map(|value| Decoded { value, strict: Vec::new() })
                .map_err(|error| ApiError::BadRequest(format!("error decoding CBOR: {error}"))),
            PatchType::Apply => codec::yaml::decode_any(body, options).map_err(|error| {
                let why = format!("error decoding YAML: error converting YAML to JSON: {error}");
                ApiError::BadRequest(why)
            }),
            PatchType::Strategic => codec::json::decode_any(body, options)
                .map_err(|error| ApiError::BadRequest(error.to_string())),
            PatchType::Json | PatchType::Merge => codec::json::decode_any(body, options)
                .map_err(|error| ApiError::BadRequest(format!("error decoding patch: {error}"))),
        };
        let Decoded { value: tree, strict } = decoded?;
        let mut strict: Vec<String> = strict.iter().map(ToString::to_string).collect();
        let change = match patch_type {
            PatchType::Json => {
                let patch = JsonPatch::decode(&tree)?;
                for error in &mut strict {
                    *error = format!("json patch {error}");
                }
                strict.extend_from_slice(patch.strict_errors());
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
            (Self::Apply(config), current) => managed::merge(request, options, current, config),
            (_, None) => {
                Err(ApiError::not_found(kind.group_resource(), request.info.name.as_str()))
            }
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

/// A configuration is an object, or nothing.
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

/// A patched tree may hold anything: it is read again like a body, with all checks.
pub(crate) fn reread(
    request: &ResourceRequest<'_>,
    expected: &decode::Expected<'_>,
    change: &Change,
    strict: &[String],
    current: Option<&Value>,
    patched: &Value,
) -> Result<Value, ApiError> {
    let json = meta::json::to_string(patched);
    // Compat: a strategic patch can say what it likes here, and changes nothing by it.
    let same_kind = match change {
        Change::Json(_) | Change::Merge(_) => {
            decode::check_patched_kind(request, patched, expected)
        }
        Change::Strategic(_) | Change::Apply(_) => Ok(()),
    };
    let of_patch = decode::OfPatch { strict, applied: matches!(change, Change::Apply(_)) };
    let read =
        same_kind.and_then(|()| decode::patched(request, json.as_bytes(), expected, &of_patch));
    read.map_err(|why| {
        let mut errors = FieldErrors::default();
        match change {
            // Compat: strategic patches are shown as Go prints maps, and in the words of another
            // decoder.
            Change::Strategic(patch) => {
                errors.invalid(
                    path("patch"),
                    ::patch::go_text::show(patch),
                    &conversion(&why, patched, expected.schema),
                );
            }
            Change::Json(_) | Change::Merge(_)
                if decode::of_custom(request, expected).is_none() =>
            {
                let current = current.unwrap_or(&Value::Null);
                let shown = patch_errors::show(current, patched, expected.schema, expected.ty);
                errors.invalid(path("patch"), shown.as_str(), &why);
            }
            _ => errors.invalid(path("patch"), json.as_str(), &why),
        }
        ApiError::Invalid { kind: GroupKind::default(), name: String::new(), errors }
    })
}

/// `json: cannot unmarshal number into Go struct field A.b of type string` as the decoder of trees
/// says it: `cannot convert int64 to string`.
fn conversion(why: &str, patched: &Value, schema: &Schema) -> String {
    let Some(request) = why.strip_prefix("json: cannot unmarshal ") else { return why.to_owned() };
    let (found, wanted) = (request.split(" into ").next(), request.rsplit(" of type ").next());
    let (found, wanted) = (found.unwrap_or_default(), wanted.unwrap_or_default());
    // Kind and type of what was given.
    let (found, number) = found.split_once(' ').unwrap_or((found, ""));
    let (kind, given) = match found {
        "number" if number.contains(['.', 'e', 'E']) => ("float64", "float64"),
        "number" if number.is_empty() && is_float_at(patched, field_path(request)) => {
            ("float64", "float64")
        }
        "number" => ("int64", "int64"),
        "object" => ("map", "map[string]interface {}"),
        "array" => ("slice", "[]interface {}"),
        other => (other, other),
    };
    let is_struct = || {
        let name = format!(".{wanted}");
        wanted.contains('.') && schema.types().any(|(_, ty)| ty.name.ends_with(&name))
    };
    if wanted.starts_with("map[") || wanted.ends_with("ResourceList") {
        return format!("cannot restore map from {kind}");
    }
    if wanted.starts_with("[]") {
        return format!("cannot restore slice from {kind}");
    }
    if is_struct() {
        return format!("cannot restore struct from: {kind}");
    }
    // Go can make a text of a whole number, and numbers of numbers; it says so, and doesn't.
    let wanted_kind = if wanted.contains('.') { "string" } else { wanted };
    let is_number = matches!(wanted_kind, "int32" | "int64" | "float64");
    let is_convertible = given == "int64" || given == "float64" && is_number;
    if is_convertible && wanted_kind != "bool" {
        return format!("cannot convert {given} to {wanted}");
    }
    format!("unrecognized type: {wanted_kind}")
}

/// `a.b` in `… Go struct field Type.a.b of type …`.
fn field_path(text: &str) -> &str {
    let field = text.split("struct field ").nth(1).and_then(|request| request.split(' ').next());
    field.and_then(|field| field.split_once('.')).map_or("", |(_, path)| path)
}

/// Whether a number with a fraction is at this path, which says nothing of places in lists.
fn is_float_at(value: &Value, path: &str) -> bool {
    match (value, path.split_once('.')) {
        (Value::Array(items), _) => items.iter().any(|item| is_float_at(item, path)),
        (value, Some((first, request))) => {
            value.get(first).is_some_and(|inner| is_float_at(inner, request))
        }
        (Value::Number(Number::Float(_)), None) if path.is_empty() => true,
        (value, None) if !path.is_empty() => {
            value.get(path).is_some_and(|inner| is_float_at(inner, ""))
        }
        // The values of a map have the path of their map.
        (Value::Object(map), None) => map.values().any(|value| is_float_at(value, "")),
        _ => false,
    }
}
