//! Decodes a request body into an object of the kind that the path names.

use std::sync::Arc;

use codec::{
    json::{DecodeError, DecodeOptions, Decoded, StrictError, list_strict_errors},
    negotiate::{self, MediaType},
    protobuf,
};
use http::header::CONTENT_TYPE;
use meta::{
    ApiError, GroupVersion, GroupVersionKind, Value,
    field::quote,
    limits::{QUOTED_BYTES_MAX, check_depth, cut},
};
use schema::{Schema, TypeId, structural::UnknownFields};

use crate::{CustomKind, options::FieldValidation, resource_request::ResourceRequest};

/// The kind that a body is decoded as.
pub(crate) struct Expected<'a> {
    pub(crate) gvk: &'a GroupVersionKind,
    pub(crate) schema: &'a Schema,
    pub(crate) ty: TypeId,
    pub(crate) validation: FieldValidation,
}

/// Decodes the body by its content type. Unknown and duplicate fields are dropped, warned about or
/// refused, depending on `fieldValidation`.
pub(crate) fn body(
    request: &ResourceRequest<'_>,
    expected: &Expected<'_>,
) -> Result<Value, ApiError> {
    decode(request, media_type(request)?, &request.body, expected)
}

/// The kind that the body names, if it can be decoded and names one.
pub(crate) fn stated_kind(request: &ResourceRequest<'_>) -> Option<GroupVersionKind> {
    let lenient = DecodeOptions { strict: false };
    let tree = match media_type(request).ok()? {
        MediaType::Json => codec::json::decode_any_body(&request.body, lenient).ok()?.value,
        MediaType::Yaml => codec::yaml::decode_any(&request.body, lenient).ok()?.value,
        MediaType::Cbor => codec::cbor::decode(&request.body).ok()?,
        MediaType::Protobuf => {
            let envelope = protobuf::Envelope::open(&request.body).ok()?;
            return Some(GroupVersion::parse(&envelope.api_version)?.with_kind(&envelope.kind));
        }
    };
    Some(GroupVersion::parse(tree.str_at(&["apiVersion"]))?.with_kind(tree.str_at(&["kind"])))
}

fn media_type(request: &ResourceRequest<'_>) -> Result<MediaType, ApiError> {
    let header = request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    negotiate::content_type(header, request.engine.options.offered)
        .map_err(|error| ApiError::UnsupportedMediaType(error.to_string()))
}

pub(crate) fn decode(
    request: &ResourceRequest<'_>,
    media_type: MediaType,
    bytes: &[u8],
    expected: &Expected<'_>,
) -> Result<Value, ApiError> {
    let strict = expected.validation != FieldValidation::Ignore;
    let mut decoded = match read(request, media_type, bytes, expected, DecodeOptions { strict }) {
        // Not JSON at all; Go shows the byte as if it were a character.
        Err(_)
            if bytes.first().is_some_and(|byte| *byte >= 0x80) && media_type == MediaType::Json =>
        {
            let shown = codec::json::quote_byte(bytes[0]);
            let why = format!("invalid character {shown} looking for beginning of value");
            return Err(unreadable(bytes, media_type, expected, &Unreadable::no_kind(why)));
        }
        Ok(decoded) => decoded,
        Err(_) if media_type == MediaType::Json && !is_object(bytes) => {
            return Err(no_object(bytes, expected));
        }
        Err(_) if no_kind(bytes, media_type).is_some() => {
            let why = no_kind(bytes, media_type).unwrap_or_default();
            return Err(unreadable(bytes, media_type, expected, &Unreadable::no_kind(why)));
        }
        Err(why) => {
            // Go checks the kind before it decodes the fields.
            if why.stage == Stage::Value
                && let Some(tree) = untyped(bytes, media_type)
            {
                check_kind(request, media_type, bytes, &tree, expected)?;
            }
            return Err(unreadable(bytes, media_type, expected, &why));
        }
    };
    if of_custom(request, expected).is_some() {
        check_type_meta(&decoded.value, bytes, media_type, expected)?;
    }
    check_kind(request, media_type, bytes, &decoded.value, expected)?;
    if let Some(custom) = of_custom(request, expected) {
        prune_and_default(custom, &mut decoded, strict)
            .map_err(|why| cannot_be_handled(expected.gvk, expected, &why))?;
    }
    // A body without a kind gets that of the path.
    if decoded.value.str_at(&["kind"]).is_empty() {
        decoded.value.set_at(&["kind"], expected.gvk.kind.clone());
    }
    decoded.value.set_at(&["apiVersion"], expected.gvk.group_version().to_string());
    check_strict(request, &decoded.strict, expected.validation)
        .map_err(|why| cannot_be_handled(expected.gvk, expected, &why))?;
    Ok(decoded.value)
}

/// Custom resources must name their kind and apiVersion.
fn check_type_meta(
    object: &Value,
    bytes: &[u8],
    media_type: MediaType,
    expected: &Expected<'_>,
) -> Result<(), ApiError> {
    if object.str_at(&["kind"]).is_empty() {
        let json = match media_type {
            MediaType::Yaml => meta::json::to_string(object),
            _ => String::from_utf8_lossy(bytes).into_owned(),
        };
        let (kind, summary) = (&expected.gvk.kind, summarize(bytes));
        let json = cut(&json, QUOTED_BYTES_MAX);
        return Err(ApiError::BadRequest(format!(
            "the object provided is unrecognized (must be of type {kind}): Object 'Kind' is \
             missing in '{json}' ({summary})"
        )));
    }
    if matches!(object.str_at(&["apiVersion"]), "" | "/") {
        return Err(other_version("", expected));
    }
    Ok(())
}

fn other_version(given: &str, expected: &Expected<'_>) -> ApiError {
    ApiError::BadRequest(format!(
        "the API version in the data ({given}) does not match the expected API version ({})",
        expected.gvk.group_version()
    ))
}

/// The custom kind of a body, if it has one: options and scales are decoded here too.
pub(crate) fn of_custom<'a>(
    request: &'a ResourceRequest<'_>,
    expected: &Expected<'_>,
) -> Option<&'a CustomKind> {
    request
        .kind
        .custom
        .as_ref()
        .filter(|_| std::ptr::eq(expected.schema, Arc::as_ptr(&request.kind.schema)))
}

/// Prunes and defaults a custom resource.
fn prune_and_default(
    custom: &CustomKind,
    decoded: &mut Decoded,
    strict: bool,
) -> Result<(), String> {
    let mut unknown = UnknownFields::default();
    custom
        .prune_and_default
        .prune_and_default(&mut decoded.value, strict.then_some(&mut unknown))?;
    decoded.strict.extend(unknown.paths.into_iter().map(StrictError::UnknownField));
    if unknown.more > 0 {
        decoded.strict.push(StrictError::More(unknown.more));
    }
    decoded.strict = list_strict_errors(std::mem::take(&mut decoded.strict));
    Ok(())
}

/// Applies `fieldValidation` to unknown and duplicate fields: nothing, warnings, or an error.
fn check_strict(
    request: &ResourceRequest<'_>,
    errors: &[StrictError],
    validation: FieldValidation,
) -> Result<(), String> {
    if validation == FieldValidation::Strict
        && let Some(error) = strict_decoding_error(errors)
    {
        return Err(error);
    }
    warn_strict(request, errors, validation);
    Ok(())
}

/// What kube-apiserver says of unknown and duplicate fields where they may not be ignored.
pub fn strict_decoding_error(errors: &[StrictError]) -> Option<String> {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| format!("strict decoding error: {}", texts.join(", ")))
}

/// Warns about unknown and duplicate fields if `fieldValidation` is `Warn`.
pub(crate) fn warn_strict(
    request: &ResourceRequest<'_>,
    errors: &[StrictError],
    validation: FieldValidation,
) {
    if validation == FieldValidation::Warn {
        let lines = errors.iter().flat_map(StrictError::lines);
        lines.for_each(|line| request.warnings.add(line));
    }
}

/// Checks that a patch left kind and apiVersion as they were.
pub(crate) fn check_patched_kind(
    request: &ResourceRequest<'_>,
    object: &Value,
    expected: &Expected<'_>,
) -> Result<(), String> {
    if let Some(why) = type_meta_error(object).filter(|_| of_custom(request, expected).is_none()) {
        return Err(format!("couldn't get version/kind; json parse error: {why}"));
    }
    let given = given_kind(object, expected.gvk)?;
    if given == *expected.gvk || of_custom(request, expected).is_some() {
        return Ok(());
    }
    // Compat: Go decodes it as the kind that it names before it compares the kinds.
    read_as(request, &given, object)?;
    Err(no_conversion(request, &given, expected.gvk))
}

/// The patch that an object comes from.
pub(crate) struct PatchContext<'a> {
    /// Unknown and duplicate fields of the patch itself.
    pub(crate) strict: &'a [StrictError],
    /// It is a server-side apply.
    pub(crate) applied: bool,
}

/// Why a patched object cannot be read as its kind.
pub(crate) enum PatchedError {
    Decode(DecodeError),
    Other(String),
}

impl std::fmt::Display for PatchedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Decode(error) => error.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl From<String> for PatchedError {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

/// Decodes a patched object, which may have values of any type.
pub(crate) fn patched(
    request: &ResourceRequest<'_>,
    patched: &Value,
    expected: &Expected<'_>,
    context: &PatchContext<'_>,
) -> Result<Value, PatchedError> {
    let (schema, ty, validation) = (expected.schema, expected.ty, expected.validation);
    let options = DecodeOptions { strict: validation != FieldValidation::Ignore };
    let mut decoded = match codec::json::to_canonical(patched.clone(), schema, ty) {
        Ok(value) => Decoded { value, strict: Vec::new() },
        Err(patched) => {
            let json = meta::json::to_string(&patched);
            codec::json::decode_body(json.as_bytes(), schema, ty, options)
                .map_err(PatchedError::Decode)?
        }
    };
    match of_custom(request, expected) {
        Some(custom) if context.applied => {
            custom.prune_and_default.prune_and_default_applied(&mut decoded.value);
        }
        Some(custom) => prune_and_default(custom, &mut decoded, options.strict)?,
        None => {}
    }
    let strict: Vec<StrictError> = context.strict.iter().cloned().chain(decoded.strict).collect();
    let strict = list_strict_errors(strict);
    check_strict(request, &strict, validation)?;
    Ok(decoded.value)
}

fn read(
    request: &ResourceRequest<'_>,
    media_type: MediaType,
    bytes: &[u8],
    expected: &Expected<'_>,
    options: DecodeOptions,
) -> Result<Decoded, Unreadable> {
    let decoded = read_tree(request, media_type, bytes, expected, options)?;
    check_depth(&decoded.value).map_err(|error| Unreadable::no_kind(error.to_string()))?;
    Ok(decoded)
}

fn read_tree(
    request: &ResourceRequest<'_>,
    media_type: MediaType,
    bytes: &[u8],
    expected: &Expected<'_>,
    options: DecodeOptions,
) -> Result<Decoded, Unreadable> {
    let (schema, ty) = (expected.schema, expected.ty);
    let failed = |error| Unreadable::new(error, of_custom(request, expected).is_some());
    match media_type {
        MediaType::Json => codec::json::decode_body(bytes, schema, ty, options).map_err(failed),
        MediaType::Yaml => codec::yaml::decode(bytes, schema, ty, options).map_err(failed),
        MediaType::Protobuf => {
            let tables = request.engine.tables();
            // An envelope that can be opened has a kind, even if the message is broken.
            let opens = protobuf::Envelope::open(bytes).is_ok();
            let stage = if opens { Stage::Value } else { Stage::Kind };
            let value = protobuf::decode_object(bytes, tables, schema, ty)
                .map_err(|error| Unreadable { why: error.to_string(), stage })?;
            Ok(Decoded { value, strict: Vec::new() })
        }
        MediaType::Cbor => {
            let tree = codec::cbor::decode(bytes)
                .map_err(|error| Unreadable::no_kind(error.to_string()))?;
            // The tree has every number and text in the form that JSON has them in.
            let json = meta::json::to_string(&tree);
            // Two trees at a time would be twice the memory.
            drop(tree);
            codec::json::decode_body(json.as_bytes(), schema, ty, options).map_err(failed)
        }
    }
}

struct Unreadable {
    why: String,
    stage: Stage,
}

/// How far Go's decoder gets with a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is not YAML.
    Yaml,
    /// The kind cannot be read.
    Kind,
    /// The kind is known, but a value is wrong.
    Value,
}

impl Unreadable {
    fn no_kind(why: String) -> Self {
        Self { why, stage: Stage::Kind }
    }

    fn new(error: DecodeError, custom: bool) -> Self {
        let stage = match &error {
            DecodeError::Syntax { .. } => Stage::Kind,
            DecodeError::Yaml(_) => Stage::Yaml,
            DecodeError::Type(_) | DecodeError::Value(_) => Stage::Value,
        };
        let why = match error {
            // Of a custom resource only the metadata is typed, and Go decodes it on its own.
            DecodeError::Type(mut error)
                if custom && error.struct_name.as_deref() == Some("ObjectMeta") =>
            {
                if error.go_path.len() > 1 && error.go_path[0] == "metadata" {
                    error.go_path.remove(0);
                }
                error.to_string()
            }
            other => other.to_string(),
        };
        Self { why, stage }
    }
}

/// Whether JSON could be an object, going by its first character.
fn is_object(bytes: &[u8]) -> bool {
    !matches!(
        bytes.trim_ascii_start().first(),
        Some(b'[' | b'"' | b't' | b'f' | b'0'..=b'9' | b'-')
    )
}

/// Decodes a text without a schema.
fn untyped(bytes: &[u8], media_type: MediaType) -> Option<Value> {
    let lenient = DecodeOptions { strict: false };
    match media_type {
        MediaType::Json => Some(codec::json::decode_any_body(bytes, lenient).ok()?.value),
        MediaType::Yaml => Some(codec::yaml::decode_any(bytes, lenient).ok()?.value),
        MediaType::Protobuf | MediaType::Cbor => None,
    }
}

/// The error of Go's decoder if it cannot read the kind, which it does first.
fn no_kind(bytes: &[u8], media_type: MediaType) -> Option<String> {
    let tree = untyped(bytes, media_type)?;
    if !matches!(tree, Value::Object(_) | Value::Null) {
        return Some(not_type_meta(tree.type_name()));
    }
    type_meta_error(&tree)
}

/// Go's error about an apiVersion or kind that is no string.
fn type_meta_error(object: &Value) -> Option<String> {
    let wrong = |field: &&&str| {
        object.get(field).is_some_and(|given| !matches!(given, Value::String(_) | Value::Null))
    };
    let field = ["apiVersion", "kind"].iter().find(wrong)?;
    let given = object.get(field)?.type_name();
    Some(format!("json: cannot unmarshal {given} into Go struct field .{field} of type string"))
}

/// The error about JSON that is not an object.
fn no_object(bytes: &[u8], expected: &Expected<'_>) -> ApiError {
    let what = match tree(bytes) {
        Ok(value) => value.type_name(),
        Err(error) => {
            let why = Unreadable::no_kind(without_prefix(&error));
            return unreadable(bytes, MediaType::Json, expected, &why);
        }
    };
    let why = not_type_meta(what);
    unreadable(bytes, MediaType::Json, expected, &Unreadable::no_kind(why))
}

fn without_prefix(error: &ApiError) -> String {
    match error {
        ApiError::Internal(why) => why.clone(),
        other => other.to_string(),
    }
}

/// The error about a body that cannot be decoded.
fn unreadable(
    bytes: &[u8],
    media_type: MediaType,
    expected: &Expected<'_>,
    unreadable: &Unreadable,
) -> ApiError {
    let why = &*cut(&unreadable.why, QUOTED_BYTES_MAX);
    if unreadable.stage == Stage::Value {
        return cannot_be_handled(expected.gvk, expected, why);
    }
    let (kind, summary) = (&expected.gvk.kind, summarize(bytes));
    let why = match media_type {
        MediaType::Protobuf | MediaType::Cbor => why.to_owned(),
        MediaType::Yaml if unreadable.stage == Stage::Yaml => why.to_owned(),
        _ => format!("{NO_KIND}: {why}"),
    };
    ApiError::BadRequest(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({summary})"
    ))
}

/// Bytes of the reason in an error: all listed strict errors fit.
const STRICT_TEXT_BYTES_MAX: usize = 256 * 1024;

fn cannot_be_handled(given: &GroupVersionKind, expected: &Expected<'_>, why: &str) -> ApiError {
    let (version, kind) = (quote(&given.version), &expected.gvk.kind);
    let why = cut(why, STRICT_TEXT_BYTES_MAX);
    ApiError::BadRequest(format!(
        "{} in version {version} cannot be handled as a {kind}: {why}",
        given.kind
    ))
}

/// The beginning of a body: as text if it looks like JSON, else in hexadecimal.
fn summarize(bytes: &[u8]) -> String {
    const BYTES_MAX: usize = 30;
    let (start, more) =
        if bytes.len() > BYTES_MAX { (&bytes[..BYTES_MAX], " ...") } else { (bytes, "") };
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

/// Checks that the kind in the body is the one of the path.
fn check_kind(
    request: &ResourceRequest<'_>,
    media_type: MediaType,
    bytes: &[u8],
    object: &Value,
    expected: &Expected<'_>,
) -> Result<(), ApiError> {
    let given = given_kind(object, expected.gvk).map_err(|why| {
        let (kind, summary) = (&expected.gvk.kind, summarize(bytes));
        ApiError::BadRequest(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({summary})"
        ))
    })?;
    if given == *expected.gvk {
        return Ok(());
    }
    let custom = of_custom(request, expected).is_some();
    if custom && given.group_version() == expected.gvk.group_version() {
        // The validation of custom resources reports another kind.
        return Ok(());
    }
    if custom || given.kind == expected.gvk.kind && is_known(request, &given) {
        return Err(other_version(&given.group_version().to_string(), expected));
    }
    // Compat: Go decodes it as the kind that it names before it compares the kinds.
    let tree = untyped(bytes, media_type);
    let read = tree.map_or(Ok(()), |tree| read_as(request, &given, &tree));
    let why = read.err().unwrap_or_else(|| no_conversion(request, &given, expected.gvk));
    Err(cannot_be_handled(&given, expected, &why))
}

/// Decodes an object as the built-in kind that it names, if there is one.
fn read_as(
    request: &ResourceRequest<'_>,
    gvk: &GroupVersionKind,
    object: &Value,
) -> Result<(), String> {
    let schema = &request.engine.schema;
    let Some((ty, _)) = schema.types().find(|(_, ty)| ty.kinds.contains(gvk)) else {
        return Ok(());
    };
    let json = meta::json::to_string(object);
    let lenient = DecodeOptions { strict: false };
    let read = codec::json::decode(json.as_bytes(), schema, ty, lenient);
    read.map(drop).map_err(|error| error.to_string())
}

/// The kind that an object names; what it leaves out is as expected.
fn given_kind(object: &Value, expected: &GroupVersionKind) -> Result<GroupVersionKind, String> {
    let group_version = match object.str_at(&["apiVersion"]) {
        // Compat: a slash alone is an empty group and an empty version, which is as good as none.
        "" | "/" => expected.group_version(),
        text => GroupVersion::parse(text)
            .ok_or_else(|| format!("unexpected GroupVersion string: {text}"))?,
    };
    let kind = object.str_at(&["kind"]);
    Ok(group_version.with_kind(if kind.is_empty() { &expected.kind } else { kind }))
}

fn is_known(request: &ResourceRequest<'_>, gvk: &GroupVersionKind) -> bool {
    request.engine.schema.types().any(|(_, ty)| ty.kinds.contains(gvk))
}

/// The error about an object of another kind.
fn no_conversion(
    request: &ResourceRequest<'_>,
    given: &GroupVersionKind,
    expected: &GroupVersionKind,
) -> String {
    if !is_known(request, given) {
        return not_registered(given);
    }
    let package = match expected.group.split('.').next() {
        None | Some("") => "core",
        Some(first) => first,
    };
    format!(
        "converting ({}.{}) to ({package}.{}): unknown conversion",
        given.version, given.kind, expected.kind
    )
}

fn not_registered(gvk: &GroupVersionKind) -> String {
    format!(
        "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
        quote(&gvk.kind),
        quote(&gvk.group_version().to_string())
    )
}

/// The body of a delete.
pub(crate) fn delete_options(request: &ResourceRequest<'_>) -> Result<Value, ApiError> {
    let (schema, ty, _) = request.engine.meta_type("DeleteOptions")?;
    let options = DecodeOptions { strict: false };
    let gvk = GroupVersionKind::new("meta.k8s.io", "v1", "DeleteOptions");
    let validation = FieldValidation::Ignore;
    let expected = Expected { gvk: &gvk, schema, ty, validation };
    let media_type = media_type(request)?;
    let decoded = read(request, media_type, &request.body, &expected, options);
    let decoded = decoded.map_err(|Unreadable { why, .. }| {
        // Go reads the kind first.
        let broken = match media_type {
            MediaType::Json => tree(&request.body).err().map(|error| without_prefix(&error)),
            _ => None,
        };
        let kindless = broken.or_else(|| no_kind(&request.body, media_type));
        ApiError::BadRequest(kindless.map_or(why, |why| format!("{NO_KIND}: {why}")))
    })?;
    // Clients send it in `v1`, `meta.k8s.io/v1` or in the version of any group.
    let given = given_kind(&decoded.value, &gvk).map_err(ApiError::BadRequest)?;
    if given.kind != "DeleteOptions" {
        return Err(ApiError::BadRequest(not_registered(&given)));
    }
    Ok(decoded.value)
}

const NO_KIND: &str = "couldn't get version/kind; json parse error";

/// Go's error about a document in which it looks for the kind.
fn not_type_meta(what: &str) -> String {
    format!(
        "json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

/// Decodes an object that the server itself has written, with the text of its raw fields.
pub(crate) fn object(json: &[u8], schema: &Schema, ty: TypeId) -> Result<Value, ApiError> {
    if !schema.has_raw_fields(ty) {
        return tree(json);
    }
    let options = DecodeOptions { strict: false };
    let decoded = codec::json::decode(json, schema, ty, options).map_err(ApiError::internal)?;
    // A decoder that knows the type drops nulls, which Go writes for fields without a value.
    let mut object = decoded.value;
    codec::json::normalize(&mut object, schema, ty);
    Ok(object)
}

/// Decodes JSON that the server itself has written.
pub(crate) fn tree(json: &[u8]) -> Result<Value, ApiError> {
    let options = DecodeOptions { strict: false };
    Ok(codec::json::decode_any(json, options).map_err(ApiError::internal)?.value)
}
