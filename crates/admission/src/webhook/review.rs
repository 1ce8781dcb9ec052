//! AdmissionReview: what a webhook is asked, and what it answers.

use bytes::Bytes;
use meta::{
    ApiError, Cause, Details, GroupVersionKind, GroupVersionResource, ListMeta, Map, Status, Str,
    User, Value, field::quote, json,
};

use super::configuration::{ReviewVersion, Webhook};
use crate::{Attributes, ServedObjects, ordered_json, versioned::VersionedObjects};

/// The body of a review. The objects are copied from JSON that all webhooks share.
pub(super) fn request(
    attributes: &Attributes<'_>,
    (resource, kind): (&GroupVersionResource, &GroupVersionKind),
    objects: &VersionedObjects,
    options: &Bytes,
    version: ReviewVersion,
    uid: &str,
) -> Bytes {
    let object = objects.object.as_ref().map_or(&b"null"[..], |object| &object.json);
    let old = objects.old.as_ref().map_or(&b"null"[..], |old| &old.json);
    let mut out = Vec::with_capacity(1024 + object.len() + old.len() + options.len());
    let raw = |out: &mut Vec<u8>, text: &str| out.extend_from_slice(text.as_bytes());
    raw(&mut out, r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/"#);
    raw(&mut out, version.as_str());
    raw(&mut out, r#"","request":{"uid":"#);
    json::write_string(&mut out, uid);
    raw(&mut out, r#","kind":"#);
    write_kind(&mut out, kind);
    raw(&mut out, r#","resource":"#);
    write_resource(&mut out, resource);
    write_texts(&mut out, &[("subResource", attributes.subresource)]);
    raw(&mut out, r#","requestKind":"#);
    write_kind(&mut out, attributes.gvk);
    raw(&mut out, r#","requestResource":"#);
    write_resource(&mut out, attributes.gvr);
    let texts = [
        ("requestSubResource", attributes.subresource),
        ("name", attributes.name),
        ("namespace", attributes.namespace),
        ("operation", attributes.operation.as_str()),
    ];
    write_texts(&mut out, &texts);
    raw(&mut out, r#","userInfo":"#);
    write_user_info(&mut out, attributes.user);
    raw(&mut out, r#","object":"#);
    out.extend_from_slice(object);
    raw(&mut out, r#","oldObject":"#);
    out.extend_from_slice(old);
    raw(&mut out, if attributes.is_dry_run() { r#","dryRun":true"# } else { r#","dryRun":false"# });
    raw(&mut out, r#","options":"#);
    out.extend_from_slice(options);
    raw(&mut out, "}}\n");
    out.into()
}

fn write_kind(out: &mut Vec<u8>, GroupVersionKind { group, version, kind }: &GroupVersionKind) {
    write_members(out, &[("group", group), ("version", version), ("kind", kind)]);
}

fn write_resource(out: &mut Vec<u8>, gvr: &GroupVersionResource) {
    let GroupVersionResource { group, version, resource } = gvr;
    write_members(out, &[("group", group), ("version", version), ("resource", resource)]);
}

fn write_members(out: &mut Vec<u8>, members: &[(&str, &Str)]) {
    for (at, (name, text)) in members.iter().enumerate() {
        out.push(if at == 0 { b'{' } else { b',' });
        json::write_string(out, name);
        out.push(b':');
        json::write_string(out, text);
    }
    out.push(b'}');
}

/// Members that are left out if they are empty.
fn write_texts(out: &mut Vec<u8>, members: &[(&str, &str)]) {
    for (name, text) in members.iter().filter(|(_, text)| !text.is_empty()) {
        out.push(b',');
        json::write_string(out, name);
        out.push(b':');
        json::write_string(out, text);
    }
}

fn write_user_info(out: &mut Vec<u8>, user: &User) {
    let texts = |texts: &[Str]| {
        Value::Array(texts.iter().map(|text| Value::String(text.clone())).collect())
    };
    let mut members: Vec<(&str, Value)> = Vec::new();
    for (name, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            members.push((name, text.clone().into()));
        }
    }
    if !user.groups.is_empty() {
        members.push(("groups", texts(&user.groups)));
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(key, values)| (key.clone(), texts(values)));
        members.push(("extra", Value::Object(Map::from_pairs(extra.collect()))));
    }
    out.extend_from_slice(ordered_json(&members).as_bytes());
}

impl ReviewVersion {
    fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }
}

/// What a webhook decided.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Response {
    pub(super) allowed: bool,
    pub(super) patch: Vec<u8>,
    /// "" where there is no patch.
    pub(super) patch_type: String,
    pub(super) status: Option<Value>,
    pub(super) audit_annotations: Vec<(Str, Str)>,
    pub(super) warnings: Vec<Str>,
}

/// Reads an answer. Err: why it is none.
pub(super) fn response(
    objects: &dyn ServedObjects,
    answer: &[u8],
    version: ReviewVersion,
    uid: &str,
    mutating: bool,
) -> Result<Response, InvalidAnswer> {
    let review = decode_review(objects, answer, version).map_err(InvalidAnswer::Undecodable)?;
    let verified = match review.get("response").filter(|response| !response.is_null()) {
        None => Err("webhook response was absent".to_owned()),
        Some(response) => verify(response, &review, version, uid, mutating),
    };
    verified.map_err(InvalidAnswer::Invalid)
}

fn decode_review(
    objects: &dyn ServedObjects,
    answer: &[u8],
    version: ReviewVersion,
) -> Result<Value, String> {
    let kind = GroupVersionKind::new("admission.k8s.io", version.as_str(), "AdmissionReview");
    let stated = match decode_answer(answer) {
        Ok(stated) => stated,
        Err(_) if has_huge_number(answer) => {
            let review = objects.decode_typed(&kind, answer, false)?;
            return check_kind(&review, version).map(|()| review);
        }
        Err(why) => return Err(why),
    };
    check_kind(&stated, version)?;
    if is_json(answer) {
        return objects.decode_typed(&kind, answer, false);
    }
    objects.decode_typed(&kind, json::to_string(&stated).as_bytes(), false)
}

/// Whether an answer is JSON with a number that a tree cannot hold. What that means depends on its field.
fn has_huge_number(answer: &[u8]) -> bool {
    let options = codec::json::DecodeOptions { strict: false };
    let decoded = || codec::json::decode_any_body(answer, options);
    is_json(answer) && matches!(decoded(), Err(codec::json::DecodeError::Type(_)))
}

/// Whether an answer is read as JSON; all else is YAML.
fn is_json(answer: &[u8]) -> bool {
    answer.trim_ascii_start().starts_with(b"{")
}

#[derive(Debug, PartialEq)]
pub(super) enum InvalidAnswer {
    /// It is no AdmissionReview at all.
    Undecodable(String),
    /// It is no answer to the question.
    Invalid(String),
}

/// An object that a webhook answers with. Compat: what does not begin as an object of JSON is read as YAML.
pub(crate) fn decode_answer(answer: &[u8]) -> Result<Value, String> {
    let options = codec::json::DecodeOptions { strict: false };
    let no_kind = |why: String| format!("couldn't get version/kind; json parse error: {why}");
    let value = if is_json(answer) || answer.len() > YAML_BYTES_MAX {
        let decoded = codec::json::decode_any_body(answer, options);
        decoded.map_err(|error| no_kind(error.to_string()))?.value
    } else {
        codec::yaml::decode_any(answer, options).map_err(|error| error.to_string())?.value
    };
    let fields = match &value {
        Value::Null => return Ok(Value::object()),
        Value::Object(fields) => fields,
        other => {
            return Err(no_kind(format!(
                "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                 \"json:\\\"kind,omitempty\\\"\" }}",
                other.type_name()
            )));
        }
    };
    for name in ["apiVersion", "kind"] {
        match fields.get(name) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => {
                let found = other.type_name();
                return Err(no_kind(format!(
                    "json: cannot unmarshal {found} into Go struct field .{name} of type string"
                )));
            }
        }
    }
    Ok(value)
}

/// As for request bodies. A longer answer is JSON or an error.
const YAML_BYTES_MAX: usize = 3 << 20;

/// What says that it is something else cannot be decoded as a review. What it does not say is taken from the
/// question. Compat: upstream's words.
fn check_kind(answer: &Value, version: ReviewVersion) -> Result<(), String> {
    /// What is registered with every version, and what is in version `v1` of all groups.
    const OF_EVERY_VERSION: [&str; 7] = [
        "WatchEvent",
        "ListOptions",
        "GetOptions",
        "DeleteOptions",
        "CreateOptions",
        "UpdateOptions",
        "PatchOptions",
    ];
    const UNVERSIONED: [&str; 5] =
        ["Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList"];
    let (api_version, kind) = (answer.str_at(&["apiVersion"]), answer.str_at(&["kind"]));
    if api_version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {api_version}"));
    }
    let own = format!("admission.k8s.io/{}", version.as_str());
    let api_version = if api_version.is_empty() { own.as_str() } else { api_version };
    let kind = if kind.is_empty() { "AdmissionReview" } else { kind };
    let given = match api_version {
        "admission.k8s.io/v1" => Some(ReviewVersion::V1),
        "admission.k8s.io/v1beta1" => Some(ReviewVersion::V1beta1),
        _ => None,
    };
    let wanted = version.as_str();
    let unconvertible = |package: &str| {
        Err(format!(
            "converting ({package}.{kind}) to ({wanted}.AdmissionReview): unknown conversion"
        ))
    };
    match given {
        Some(given) if kind == "AdmissionReview" && given == version => Ok(()),
        Some(given) if kind == "AdmissionReview" => unconvertible(given.as_str()),
        Some(_) if OF_EVERY_VERSION.contains(&kind) => unconvertible("v1"),
        None if api_version == "v1" && UNVERSIONED.contains(&kind) => unconvertible("v1"),
        _ => Err(format!(
            "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
            quote(kind),
            quote(api_version)
        )),
    }
}

/// Checks a response against the question.
fn verify(
    fields: &Value,
    review: &Value,
    version: ReviewVersion,
    uid: &str,
    mutating: bool,
) -> Result<Response, String> {
    let mut response = read(fields);
    if version == ReviewVersion::V1beta1 {
        // v1beta1 checked neither the uid nor the kind, and had one type of patch.
        if mutating && !response.patch.is_empty() {
            JSON_PATCH.clone_into(&mut response.patch_type);
        }
        return Ok(response);
    }
    let got = fields.str_at(&["uid"]);
    if got != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(got)));
    }
    let (api_version, kind) = (review.str_at(&["apiVersion"]), review.str_at(&["kind"]));
    if api_version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
        // Compat: of what names neither group nor version, a slash is left.
        let got = if api_version.is_empty() { "/" } else { api_version };
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {got}, \
             Kind={kind}"
        ));
    }
    let has_patch = !response.patch.is_empty();
    let patch_type = fields.get("patchType").and_then(Value::as_str);
    let why = match (mutating, has_patch, patch_type) {
        (true, true, None) => "webhook returned response.patch but not response.patchType",
        (true, false, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, true, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, true, _) => "validating webhook may not return response.patch",
        (false, false, Some(_)) => "validating webhook may not return response.patchType",
        (true, _, given) => {
            given.unwrap_or_default().clone_into(&mut response.patch_type);
            return Ok(response);
        }
        (false, false, None) => return Ok(response),
    };
    Err(why.to_owned())
}

/// The fields of a response, whose types have been checked. Only `true` lets a request through.
fn read(fields: &Value) -> Response {
    let annotations = fields.get("auditAnnotations").and_then(Value::as_object);
    let text = |value: &Value| Str::new(value.as_str().unwrap_or_default());
    Response {
        allowed: fields.get("allowed").and_then(Value::as_bool) == Some(true),
        patch: codec::base64::decode(fields.str_at(&["patch"])).unwrap_or_default(),
        patch_type: String::new(),
        status: fields.get("status").filter(|status| !status.is_null()).cloned(),
        audit_annotations: annotations
            .into_iter()
            .flat_map(Map::iter)
            .map(|(key, value)| (key.clone(), text(value)))
            .collect(),
        warnings: fields.items_at(&["warnings"]).iter().map(text).collect(),
    }
}

pub(super) const JSON_PATCH: &str = "JSONPatch";

/// The answer to a client whose request a webhook has refused.
pub(super) fn denial(webhook: &Webhook, status: Option<&Value>) -> ApiError {
    let denied_by = format!("admission webhook {} denied the request", quote(&webhook.name));
    let null = Value::Null;
    let status = status.unwrap_or(&null);
    let (message, reason) = (status.str_at(&["message"]), status.str_at(&["reason"]));
    let message = match (message, reason) {
        ("", "") => format!("{denied_by} without explanation"),
        ("", reason) => format!("{denied_by}: {reason}"),
        (message, _) => format!("{denied_by}: {message}"),
    };
    // Compat: one that says that it was a success is none.
    let named = match status.str_at(&["status"]) {
        "Success" => "",
        other => other,
    };
    let code = status.i64_at(&["code"]).and_then(|code| u16::try_from(code).ok());
    ApiError::Status(Box::new(Status {
        // Nothing below an error, and nothing that is no code of HTTP, can be sent.
        code: code.filter(|code| (400..=999).contains(code)).unwrap_or(400),
        reason: reason.to_owned(),
        message,
        details: status.get("details").filter(|details| !details.is_null()).map(details),
        metadata: status.get("metadata").map(|metadata| Box::new(list_meta(metadata))),
        status: named.to_owned(),
    }))
}

fn list_meta(metadata: &Value) -> ListMeta {
    let text = |field: &str| metadata.str_at(&[field]).to_owned();
    let shard = metadata.get("shardInfo").filter(|shard| !shard.is_null());
    ListMeta {
        self_link: text("selfLink"),
        resource_version: text("resourceVersion"),
        continue_token: text("continue"),
        remaining_item_count: metadata.i64_at(&["remainingItemCount"]),
        shard_selector: shard.map(|shard| shard.str_at(&["selector"]).to_owned()),
    }
}

pub(crate) fn details(details: &Value) -> Details {
    let text = |field: &str| details.str_at(&[field]).to_owned();
    let causes = details.items_at(&["causes"]).iter().map(|cause| Cause {
        reason: cause.str_at(&["reason"]).to_owned(),
        message: cause.str_at(&["message"]).to_owned(),
        field: cause.str_at(&["field"]).to_owned(),
    });
    let seconds = details.i64_at(&["retryAfterSeconds"]).and_then(|s| i32::try_from(s).ok());
    Details {
        name: text("name"),
        group: text("group"),
        kind: text("kind"),
        uid: text("uid"),
        causes: causes.collect(),
        retry_after_seconds: seconds.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;
    use crate::testing::FakeObjects;

    #[test]
    fn an_answer_counts_only_if_it_answers_the_question() {
        use ReviewVersion::{V1, V1beta1};
        let review = |response: Value| {
            value!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": (response),
            })
        };
        let text = |value: &Value| json::to_string(value);
        let invalid = |why: &str| Err(InvalidAnswer::Invalid(why.to_owned()));
        let cases: Vec<(Value, ReviewVersion, bool, Result<bool, InvalidAnswer>)> = vec![
            (review(value!({"uid": "u", "allowed": true})), V1, false, Ok(true)),
            (review(value!({"uid": "u", "allowed": false})), V1, false, Ok(false)),
            (review(value!({"uid": "u"})), V1, false, Ok(false)),
            (value!({}), V1, false, invalid("webhook response was absent")),
            (
                review(value!({"uid": "other", "allowed": true})),
                V1,
                false,
                invalid(r#"expected response.uid="u", got "other""#),
            ),
            (
                value!({"response": {"uid": "u", "allowed": true}}),
                V1,
                false,
                invalid(
                    "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got \
                     /, Kind=",
                ),
            ),
            (
                review(value!({"uid": "u", "allowed": true, "patch": "W10="})),
                V1,
                true,
                invalid("webhook returned response.patch but not response.patchType"),
            ),
            (
                review(value!({"uid": "u", "allowed": true, "patchType": "JSONPatch"})),
                V1,
                true,
                invalid("webhook returned response.patchType but not response.patch"),
            ),
            (
                review(value!({"uid": "u", "allowed": true, "patch": "W10="})),
                V1,
                false,
                invalid("validating webhook may not return response.patch"),
            ),
            // v1beta1 checked neither the uid nor the kind.
            (value!({"response": {"allowed": true}}), V1beta1, true, Ok(true)),
        ];
        for (answer, version, mutating, expected) in cases {
            let objects = FakeObjects::default();
            let read = response(&objects, text(&answer).as_bytes(), version, "u", mutating);
            assert_eq!(read.map(|read| read.allowed), expected, "{}", text(&answer));
        }
        for broken in ["nonsense", "[]", "{", r#"{"response":}"#] {
            let objects = FakeObjects::default();
            let read = response(&objects, broken.as_bytes(), V1beta1, "u", false);
            assert!(matches!(read, Err(InvalidAnswer::Undecodable(_))), "{broken}: {read:?}");
        }
    }
}
