//! AdmissionReview: what a webhook is asked, and what it answers.

use bytes::Bytes;
use meta::{
    ApiError, Cause, Details, GroupVersionKind, GroupVersionResource, Map, Status, Str, Value,
    field::quote, json,
};

use super::configuration::{ReviewVersion, Webhook};
use crate::{
    Attributes,
    expressions::{kind_value, resource_value},
    versioned::VersionedObjects,
};

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
    for (field, value) in [
        ("kind", kind_value(kind)),
        ("resource", resource_value(resource)),
        ("requestKind", kind_value(attributes.gvk)),
        ("requestResource", resource_value(attributes.gvr)),
        ("userInfo", user_info(attributes)),
    ] {
        raw(&mut out, &format!(r#","{field}":"#));
        json::write_value(&mut out, &value);
    }
    for (field, text) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", attributes.name),
        ("namespace", attributes.namespace),
        ("operation", attributes.operation.as_str()),
    ] {
        if !text.is_empty() {
            raw(&mut out, &format!(r#","{field}":"#));
            json::write_string(&mut out, text);
        }
    }
    raw(&mut out, r#","object":"#);
    out.extend_from_slice(object);
    raw(&mut out, r#","oldObject":"#);
    out.extend_from_slice(old);
    raw(&mut out, if attributes.is_dry_run() { r#","dryRun":true"# } else { r#","dryRun":false"# });
    raw(&mut out, r#","options":"#);
    out.extend_from_slice(options);
    raw(&mut out, "}}");
    out.into()
}

impl ReviewVersion {
    fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }
}

fn user_info(attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let texts = |texts: &[Str]| {
        Value::Array(texts.iter().map(|text| Value::String(text.clone())).collect())
    };
    let mut info = Value::object();
    for (field, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            info.set_at(&[field], text.clone());
        }
    }
    if !user.groups.is_empty() {
        info.set_at(&["groups"], texts(&user.groups));
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(key, values)| (key.clone(), texts(values)));
        info.set_at(&["extra"], Value::Object(Map::from_pairs(extra.collect())));
    }
    info
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
    answer: &[u8],
    version: ReviewVersion,
    uid: &str,
    mutating: bool,
) -> Result<Response, InvalidAnswer> {
    let answer = decode_answer(answer).map_err(InvalidAnswer::Undecodable)?;
    check_kind(&answer, version).map_err(InvalidAnswer::Undecodable)?;
    let response = match answer.get("response") {
        None | Some(Value::Null) => None,
        Some(Value::Object(fields)) => {
            Some(Fields(fields).decode().map_err(InvalidAnswer::Undecodable)?)
        }
        Some(other) => {
            return Err(InvalidAnswer::Undecodable(format!(
                "json: cannot unmarshal {} into Go struct field AdmissionReview.response of type \
                 {}.AdmissionResponse",
                other.type_name(),
                version.as_str(),
            )));
        }
    };
    let verified = match response {
        None => Err("webhook response was absent".to_owned()),
        Some(response) => verify(response, &answer, version, uid, mutating),
    };
    verified.map_err(InvalidAnswer::Invalid)
}

#[derive(Debug, PartialEq)]
pub(super) enum InvalidAnswer {
    /// It is no AdmissionReview at all.
    Undecodable(String),
    /// It is no answer to the question.
    Invalid(String),
}

/// An object that a webhook answers with. Compat: YAML is read as well.
pub(crate) fn decode_answer(answer: &[u8]) -> Result<Value, String> {
    let options = codec::json::DecodeOptions { strict: false };
    let no_kind = |why: String| format!("couldn't get version/kind; json parse error: {why}");
    let value = match codec::json::decode_any_body(answer, options) {
        Ok(decoded) => decoded.value,
        Err(error) if answer.len() > YAML_BYTES_MAX => return Err(no_kind(error.to_string())),
        Err(error) => match codec::yaml::decode_any(answer, options) {
            Ok(decoded) => decoded.value,
            Err(_) => return Err(no_kind(error.to_string())),
        },
    };
    match value {
        Value::Null => Ok(Value::object()),
        Value::Object(_) => Ok(value),
        other => Err(no_kind(format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            other.type_name()
        ))),
    }
}

/// As for request bodies. A longer answer is JSON or an error.
const YAML_BYTES_MAX: usize = 3 << 20;

/// What says that it is something else cannot be decoded as a review. Compat: upstream's words.
fn check_kind(answer: &Value, version: ReviewVersion) -> Result<(), String> {
    let (api_version, kind) = (answer.str_at(&["apiVersion"]), answer.str_at(&["kind"]));
    if api_version.is_empty() || kind.is_empty() {
        return Ok(());
    }
    let given = match api_version {
        "admission.k8s.io/v1" => Some(ReviewVersion::V1),
        "admission.k8s.io/v1beta1" => Some(ReviewVersion::V1beta1),
        _ => None,
    };
    match given {
        Some(given) if kind == "AdmissionReview" && given == version => Ok(()),
        Some(given) if kind == "AdmissionReview" => Err(format!(
            "converting ({}.AdmissionReview) to ({}.AdmissionReview): unknown conversion",
            given.as_str(),
            version.as_str()
        )),
        _ => Err(format!(
            "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
            quote(kind),
            quote(api_version)
        )),
    }
}

/// The fields of a response before they are checked against the question.
struct Decoded {
    uid: Str,
    patch_type: Option<Str>,
    response: Response,
}

struct Fields<'a>(&'a Map);

impl Fields<'_> {
    fn decode(&self) -> Result<Decoded, String> {
        let patch = match self.text("patch", "[]uint8")? {
            None => Vec::new(),
            Some(text) => codec::base64::decode(&text).map_err(|error| error.to_string())?,
        };
        // Only `true` lets a request through.
        let allowed = match self.given("allowed") {
            None => false,
            Some(Value::Bool(allowed)) => *allowed,
            Some(other) => return Err(Self::mistyped("allowed", other, "bool")),
        };
        let status = match self.given("status") {
            None => None,
            Some(status @ Value::Object(_)) => Some(status.clone()),
            Some(other) => return Err(Self::mistyped("status", other, "v1.Status")),
        };
        let mut audit_annotations = Vec::new();
        match self.given("auditAnnotations") {
            None => {}
            Some(Value::Object(annotations)) => {
                for (key, value) in annotations.iter() {
                    let text = Self::string("auditAnnotations", value, "string")?;
                    audit_annotations.push((key.clone(), text));
                }
            }
            Some(other) => {
                return Err(Self::mistyped("auditAnnotations", other, "map[string]string"));
            }
        }
        let mut warnings = Vec::new();
        match self.given("warnings") {
            None => {}
            Some(Value::Array(texts)) => {
                for text in texts {
                    warnings.push(Self::string("warnings", text, "string")?);
                }
            }
            Some(other) => return Err(Self::mistyped("warnings", other, "[]string")),
        }
        Ok(Decoded {
            uid: self.text("uid", "types.UID")?.unwrap_or_default(),
            patch_type: self.text("patchType", "v1.PatchType")?,
            response: Response {
                allowed,
                patch,
                patch_type: String::new(),
                status,
                audit_annotations,
                warnings,
            },
        })
    }

    fn given(&self, field: &str) -> Option<&Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    fn text(&self, field: &str, ty: &str) -> Result<Option<Str>, String> {
        self.given(field).map(|value| Self::string(field, value, ty)).transpose()
    }

    fn string(field: &str, value: &Value, ty: &str) -> Result<Str, String> {
        match value {
            Value::String(text) => Ok(text.clone()),
            Value::Null => Ok(Str::default()),
            other => Err(Self::mistyped(field, other, ty)),
        }
    }

    fn mistyped(field: &str, value: &Value, ty: &str) -> String {
        format!(
            "json: cannot unmarshal {} into Go struct field AdmissionResponse.response.{field} of \
             type {ty}",
            value.type_name()
        )
    }
}

fn verify(
    decoded: Decoded,
    answer: &Value,
    version: ReviewVersion,
    uid: &str,
    mutating: bool,
) -> Result<Response, String> {
    let Decoded { uid: got, patch_type, mut response } = decoded;
    if version == ReviewVersion::V1beta1 {
        // v1beta1 checked neither the uid nor the kind, and had one type of patch.
        if mutating && !response.patch.is_empty() {
            JSON_PATCH.clone_into(&mut response.patch_type);
        }
        return Ok(response);
    }
    if got != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(&got)));
    }
    let (api_version, kind) = (answer.str_at(&["apiVersion"]), answer.str_at(&["kind"]));
    if api_version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
        // Compat: of what names neither group nor version, a slash is left.
        let got = if api_version.is_empty() { "/" } else { api_version };
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {got}, \
             Kind={kind}"
        ));
    }
    let has_patch = !response.patch.is_empty();
    let why = match (mutating, has_patch, patch_type.as_deref()) {
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
    let code = status.i64_at(&["code"]).and_then(|code| u16::try_from(code).ok());
    ApiError::Status(Box::new(Status {
        // Nothing below an error, and nothing that is no code of HTTP, can be sent.
        code: code.filter(|code| (400..=999).contains(code)).unwrap_or(400),
        reason: reason.to_owned(),
        message,
        details: status.get("details").filter(|details| !details.is_null()).map(details),
        continue_token: String::new(),
    }))
}

pub(crate) fn details(details: &Value) -> Details {
    let text = |field: &str| details.str_at(&[field]).to_owned();
    let causes = details.items_at(&["causes"]).iter().map(|cause| Cause {
        reason: cause.str_at(&["reason"]).to_owned(),
        message: cause.str_at(&["message"]).to_owned(),
        field: cause.str_at(&["field"]).to_owned(),
    });
    let seconds = details.i64_at(&["retryAfterSeconds"]).and_then(|s| u32::try_from(s).ok());
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
            let read = response(text(&answer).as_bytes(), version, "u", mutating);
            assert_eq!(read.map(|read| read.allowed), expected, "{}", text(&answer));
        }
        for broken in ["nonsense", "[]", r#"{"response":[]}"#, r#"{"response":{"allowed":"yes"}}"#]
        {
            let read = response(broken.as_bytes(), V1beta1, "u", false);
            assert!(matches!(read, Err(InvalidAnswer::Undecodable(_))), "{broken}: {read:?}");
        }
    }
}
