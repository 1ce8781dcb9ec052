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
    let options = codec::json::DecodeOptions { strict: false };
    let answer = codec::json::decode_any(answer, options)
        .map_err(|error| InvalidAnswer::Undecodable(error.to_string()))?
        .value;
    verify(&answer, version, uid, mutating)
}

#[derive(Debug, PartialEq)]
pub(super) enum InvalidAnswer {
    /// It is no AdmissionReview at all.
    Undecodable(String),
    /// It is no answer to the question.
    Invalid(String),
}

fn verify(
    answer: &Value,
    version: ReviewVersion,
    uid: &str,
    mutating: bool,
) -> Result<Response, InvalidAnswer> {
    let undecodable = |why: String| Err(InvalidAnswer::Undecodable(why));
    let invalid = |why: String| Err(InvalidAnswer::Invalid(why));
    let expected = format!("admission.k8s.io/{}", version.as_str());
    let (api_version, kind) = (answer.str_at(&["apiVersion"]), answer.str_at(&["kind"]));
    // Compat: Go's decoder finds the type by what the answer says of itself.
    if answer.as_object().is_none() {
        return undecodable(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value \
             of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
             \"json:\\\"kind,omitempty\\\"\" }}",
            answer.type_name()
        ));
    }
    let response = match answer.get("response") {
        None | Some(Value::Null) => return invalid("webhook response was absent".to_owned()),
        Some(response @ Value::Object(_)) => response,
        Some(other) => {
            return undecodable(format!(
                "json: cannot unmarshal {} into Go struct field AdmissionReview.response of type \
                 {}.AdmissionResponse",
                other.type_name(),
                version.as_str(),
            ));
        }
    };
    if version == ReviewVersion::V1 {
        let got = response.str_at(&["uid"]);
        if got != uid {
            return invalid(format!("expected response.uid={}, got {}", quote(uid), quote(got)));
        }
        if api_version != expected || kind != "AdmissionReview" {
            // Compat: of what names neither group nor version, a slash is left.
            let got = if api_version.is_empty() { "/" } else { api_version };
            return invalid(format!(
                "expected webhook response of {expected}, Kind=AdmissionReview, got {got}, \
                 Kind={kind}"
            ));
        }
    }
    let patch = match response.get("patch") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => match codec::base64::decode(text) {
            Ok(patch) => patch,
            Err(error) => return undecodable(error.to_string()),
        },
        Some(other) => {
            return undecodable(format!(
                "json: cannot unmarshal {} into Go struct field \
                 AdmissionResponse.response.patch of type []uint8",
                other.type_name()
            ));
        }
    };
    let given_type = response.get("patchType").and_then(Value::as_str);
    let patch_type = match version {
        ReviewVersion::V1 if mutating => match (patch.is_empty(), given_type) {
            (false, None) => {
                let why = "webhook returned response.patch but not response.patchType";
                return invalid(why.to_owned());
            }
            (true, Some(_)) => {
                let why = "webhook returned response.patchType but not response.patch";
                return invalid(why.to_owned());
            }
            (_, Some("")) => {
                return invalid("webhook returned invalid response.patchType of \"\"".to_owned());
            }
            (_, given) => given.unwrap_or_default(),
        },
        ReviewVersion::V1 if !patch.is_empty() => {
            return invalid("validating webhook may not return response.patch".to_owned());
        }
        ReviewVersion::V1 if given_type.is_some() => {
            return invalid("validating webhook may not return response.patchType".to_owned());
        }
        ReviewVersion::V1beta1 if mutating && !patch.is_empty() => JSON_PATCH,
        _ => "",
    };
    // Only `true` lets a request through: anything else is a refusal or an error.
    let allowed = match response.get("allowed") {
        Some(Value::Bool(allowed)) => *allowed,
        None | Some(Value::Null) => false,
        Some(other) => {
            return undecodable(format!(
                "json: cannot unmarshal {} into Go struct field \
                 AdmissionResponse.response.allowed of type bool",
                other.type_name()
            ));
        }
    };
    let annotations = response.get("auditAnnotations").and_then(Value::as_object);
    let annotations = annotations.into_iter().flat_map(Map::iter);
    Ok(Response {
        allowed,
        patch: if mutating { patch } else { Vec::new() },
        patch_type: patch_type.to_owned(),
        status: response.get("status").filter(|status| status.as_object().is_some()).cloned(),
        audit_annotations: annotations
            .filter_map(|(key, text)| Some((key.clone(), Str::new(text.as_str()?))))
            .collect(),
        warnings: crate::matching::texts(response, "warnings"),
    })
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

fn details(details: &Value) -> Details {
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
        for broken in
            ["", "nonsense", "[]", r#"{"response":[]}"#, r#"{"response":{"allowed":"yes"}}"#]
        {
            let read = response(broken.as_bytes(), V1beta1, "u", false);
            assert!(matches!(read, Err(InvalidAnswer::Undecodable(_))), "{broken}: {read:?}");
        }
    }
}
