//! Everything that can go wrong with a request, and the one place where it becomes a `Status`.

use thiserror::Error;

use crate::{
    FieldErrors, GroupKind, GroupResource,
    authorization::Attributes,
    field::{cut, quote},
    json,
    limits::{self, FIELD_PATH_BYTES_MAX},
};

/// A failed request, in the words that Kubernetes clients know.
#[derive(Clone, Debug, Error)]
pub enum ApiError {
    #[error("{resource} {} not found", quote(.name))]
    NotFound { resource: GroupResource, name: String },
    /// The group-version is known, the resource, subresource or path below it is not.
    #[error("the server could not find the requested resource")]
    NotServed,
    /// No server has the path: plain text, not a `Status`.
    #[error("404 page not found")]
    UnknownPath,
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    /// The same, where custom resources say it.
    #[error("{verb} is not supported on resources of kind {}", quote(&.resource.to_string()))]
    MethodNotSupported { resource: GroupResource, verb: String },
    /// The name is taken, by an object that may be on its way out.
    #[error(
        "{}{resource} {} already exists",
        if *.deleting { "object is being deleted: " } else { "" },
        quote(.name)
    )]
    AlreadyExists { resource: GroupResource, name: String, deleting: bool },
    #[error("Operation cannot be fulfilled on {resource} {}: {why}", quote(.name))]
    Conflict { resource: GroupResource, name: String, why: String },
    /// Server-side apply met fields of other managers.
    #[error("{message}")]
    ApplyConflict { message: String, causes: Vec<Cause> },
    #[error("{kind} {} is invalid: {errors}", quote(.name))]
    Invalid { kind: GroupKind, name: String, errors: Box<FieldErrors> },
    /// A patch that is well-formed but doesn't apply.
    #[error("the server rejected our request due to an error in our request")]
    Unprocessable,
    #[error("{0}")]
    BadRequest(String),
    #[error("Unauthorized")]
    Unauthorized,
    /// Refused for what the object is (admission, escalation):
    /// `{resource} "{name}" is forbidden: {why}`; without a name for lists and creates.
    #[error("{}", forbidden_message(.resource, .name, .why))]
    Forbidden { resource: GroupResource, name: String, why: String, causes: Vec<Cause> },
    /// Refused by an authorizer, which looks at the user, the verb and the resource. Clients get the
    /// same `Status` as for `Forbidden`, with `X-Content-Type-Options: nosniff`.
    #[error("{}", forbidden_message(.resource, .name, .why))]
    DeniedByAuthorizer { resource: GroupResource, name: String, why: String },
    /// The same for a path that is no resource.
    #[error("forbidden: {0}")]
    ForbiddenPath(String),
    /// Too old for the history that is kept. A list hands out a token to go on with.
    #[error("{message}")]
    Expired { message: String, continue_token: String },
    #[error("Timeout: Too large resource version: {asked}, current: {current}")]
    TooLargeResourceVersion {
        asked: u64,
        current: u64,
        /// 0: there is no cache that could catch up.
        retry_after_seconds: u32,
    },
    #[error("{0}")]
    Timeout(String),
    #[error("{message}")]
    TooManyRequests { message: String, retry_after_seconds: u32, causes: Vec<Cause> },
    /// No seat got free in time. The one error besides an unknown path that clients get as plain text.
    #[error("Too many requests, please try again later.")]
    Overloaded { retry_after_seconds: u32 },
    #[error("{0}")]
    TooLarge(String),
    #[error("{0}")]
    UnsupportedMediaType(String),
    #[error("{0}")]
    NotAcceptable(String),
    /// The same, said by the router of built-in kinds.
    #[error("{0}")]
    NotRepresentable(String),
    /// A patch of a type that the router of built-in kinds doesn't know.
    #[error("415: Unsupported Media Type")]
    UnsupportedPatch,
    #[error("{0}")]
    ServiceUnavailable(String),
    #[error("Internal error occurred: {0}")]
    Internal(String),
    /// A 500 whose message is not ours to prefix and that has no reason (storage errors, plain Go errors).
    #[error("{0}")]
    Storage(String),
    /// Made elsewhere (a webhook, a remote server).
    #[error("{}", .0.message)]
    Status(Box<Status>),
}

/// `v1` `Status`: the body of every failed request and of some deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub code: u16,
    /// Empty on success.
    pub reason: String,
    pub message: String,
    pub details: Option<Details>,
    /// None: empty, as almost always.
    pub metadata: Option<Box<ListMeta>>,
    /// Empty: `Success` or `Failure`, as the code says. A webhook may call its refusal something else.
    pub status: String,
}

/// `v1` `ListMeta`, as a `Status` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    pub self_link: String,
    pub resource_version: String,
    pub continue_token: String,
    pub remaining_item_count: Option<i64>,
    /// `shardInfo.selector`.
    pub shard_selector: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    pub group: String,
    /// The resource for most errors, the kind for invalid objects.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    /// Those of a webhook may be negative.
    pub retry_after_seconds: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

impl ApiError {
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::BadRequest(message.into())
    }

    pub fn internal(error: impl ToString) -> Self {
        Self::Internal(error.to_string())
    }

    pub fn not_found(resource: GroupResource, name: impl Into<String>) -> Self {
        Self::NotFound { resource, name: name.into() }
    }

    /// Another client changed the object since it was read.
    pub fn modified(resource: GroupResource, name: impl Into<String>) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::Conflict { resource, name: name.into(), why: why.to_owned() }
    }

    /// An authorizer did not allow this.
    pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Self {
        // A made-up name of a whole URL would be repeated in the message and its details.
        let quote = |text: &str| quote(&limits::cut(text, FIELD_PATH_BYTES_MAX));
        let verb = attributes.verb;
        let user = quote(&attributes.user.name);
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        if !attributes.is_resource {
            let path = quote(attributes.path);
            return Self::ForbiddenPath(format!("User {user} cannot {verb} path {path}{reason}"));
        }
        let resource = if attributes.subresource.is_empty() {
            attributes.resource.to_owned()
        } else {
            format!("{}/{}", attributes.resource, attributes.subresource)
        };
        let scope = if attributes.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {}", quote(attributes.namespace))
        };
        let why = format!(
            "User {user} cannot {verb} resource {} in API group {} {scope}{reason}",
            quote(&resource),
            quote(attributes.group),
        );
        let cut = |text| limits::cut(text, FIELD_PATH_BYTES_MAX);
        let resource = GroupResource::new(cut(attributes.group), cut(attributes.resource));
        Self::DeniedByAuthorizer { resource, name: cut(attributes.name).into_owned(), why }
    }

    /// Whether an authorizer refused, rather than admission.
    pub fn is_denied_by_authorizer(&self) -> bool {
        matches!(self, Self::DeniedByAuthorizer { .. } | Self::ForbiddenPath(_))
    }

    /// The only place where an error becomes an HTTP code and a Kubernetes reason.
    pub fn status(&self) -> Status {
        let (code, reason, details) = match self {
            Self::NotFound { resource, name } => (404, "NotFound", Details::of(resource, name)),
            Self::NotServed => (404, "NotFound", Some(Details::default())),
            Self::UnknownPath => (404, "NotFound", None),
            Self::MethodNotAllowed => (405, "MethodNotAllowed", Some(Details::default())),
            Self::MethodNotSupported { resource, .. } => {
                (405, "MethodNotAllowed", Details::of(resource, ""))
            }
            Self::AlreadyExists { resource, name, .. } => {
                (409, "AlreadyExists", Details::of(resource, name))
            }
            Self::Conflict { resource, name, .. } => (409, "Conflict", Details::of(resource, name)),
            Self::ApplyConflict { causes, .. } => (409, "Conflict", Details::of_causes(causes)),
            Self::Invalid { kind, name, errors } => {
                (422, "Invalid", Some(Details::of_field_errors(kind, name, errors)))
            }
            Self::Unprocessable => (422, "Invalid", Some(Details::default())),
            Self::BadRequest(_) => (400, "BadRequest", None),
            Self::Unauthorized => (401, "Unauthorized", None),
            Self::Forbidden { resource, name, causes, .. } => {
                let details = Details::of(resource, name);
                (403, "Forbidden", details.map(|details| details.with_causes(causes)))
            }
            Self::DeniedByAuthorizer { resource, name, .. } => {
                (403, "Forbidden", Details::of(resource, name))
            }
            Self::ForbiddenPath(_) => (403, "Forbidden", Some(Details::default())),
            // kube-rs and client-go list again on 410 only; any other code keeps them where they are.
            Self::Expired { .. } => (410, "Expired", None),
            Self::TooLargeResourceVersion { retry_after_seconds, .. } => {
                let details = Details::of_too_large_resource_version(*retry_after_seconds);
                (504, "Timeout", Some(details))
            }
            Self::Timeout(_) => (504, "Timeout", Some(Details::default())),
            Self::TooManyRequests { retry_after_seconds, causes, .. } => {
                let details = Details::of_retry(*retry_after_seconds);
                (429, "TooManyRequests", Some(details.with_causes(causes)))
            }
            Self::Overloaded { retry_after_seconds } => {
                (429, "TooManyRequests", Some(Details::of_retry(*retry_after_seconds)))
            }
            Self::TooLarge(_) => (413, "RequestEntityTooLarge", None),
            Self::UnsupportedMediaType(_) => (415, "UnsupportedMediaType", None),
            Self::NotAcceptable(_) => (406, "NotAcceptable", None),
            Self::NotRepresentable(_) => (406, "NotAcceptable", Some(Details::default())),
            Self::UnsupportedPatch => (415, "UnsupportedMediaType", Some(Details::default())),
            Self::ServiceUnavailable(_) => (503, "ServiceUnavailable", None),
            Self::Internal(_) => {
                let cause = Cause { message: self.cause_text(), ..Cause::default() };
                let details = Details { causes: vec![cause], ..Details::default() };
                (500, "InternalError", Some(details))
            }
            Self::Storage(_) => (500, "", None),
            Self::Status(status) => return (**status).clone().within_bounds(),
        };
        let continue_token = match self {
            Self::Expired { continue_token, .. } => continue_token.clone(),
            _ => String::new(),
        };
        let (reason, message) = (reason.to_owned(), self.to_string());
        let metadata = (!continue_token.is_empty())
            .then(|| Box::new(ListMeta { continue_token, ..ListMeta::default() }));
        let status = String::new();
        Status { code, reason, message, details, metadata, status }.within_bounds()
    }

    fn cause_text(&self) -> String {
        match self {
            Self::Internal(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

impl Details {
    fn of(resource: &GroupResource, name: &str) -> Option<Self> {
        Some(Self {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..Self::default()
        })
    }

    fn of_causes(causes: &[Cause]) -> Option<Self> {
        Some(Self { causes: causes.to_vec(), ..Self::default() })
    }

    fn of_field_errors(kind: &GroupKind, name: &str, errors: &FieldErrors) -> Self {
        let cause = |error: &crate::FieldError| Cause {
            reason: error.reason.as_str().to_owned(),
            message: error.message.clone(),
            field: error.field.clone(),
        };
        let omitted = errors.omitted_text().map(|message| Cause { message, ..Cause::default() });
        Self {
            name: name.to_owned(),
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            causes: errors.iter().map(cause).chain(omitted).collect(),
            ..Self::default()
        }
    }

    fn of_too_large_resource_version(retry_after_seconds: u32) -> Self {
        let cause = Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            ..Cause::default()
        };
        Self { causes: vec![cause], ..Self::of_retry(retry_after_seconds) }
    }

    fn of_retry(seconds: u32) -> Self {
        let retry_after_seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
        Self { retry_after_seconds, ..Self::default() }
    }

    fn with_causes(mut self, causes: &[Cause]) -> Self {
        self.causes = causes.to_vec();
        self
    }
}

impl Status {
    /// A delete that is done at once.
    pub fn success(details: Details) -> Self {
        Self { code: 200, details: Some(details), ..Self::default() }
    }

    pub fn is_failure(&self) -> bool {
        self.code >= 400
    }

    /// The field `status`.
    pub fn status_text(&self) -> &str {
        match self.status.as_str() {
            "" if self.is_failure() => "Failure",
            "" => "Success",
            given => given,
        }
    }

    /// Cuts what a client or a webhook could make arbitrarily long, so that the answer to a bad request is below 2 MB
    /// however its texts are escaped.
    fn within_bounds(mut self) -> Self {
        cut(&mut self.message, STATUS_PART_BYTES_MAX);
        for text in [&mut self.reason, &mut self.status] {
            cut(text, STATUS_NAME_BYTES_MAX);
        }
        if let Some(metadata) = &mut self.metadata {
            let ListMeta { self_link, resource_version, continue_token, shard_selector, .. } =
                &mut **metadata;
            let texts = [self_link, resource_version, continue_token];
            for text in texts.into_iter().chain(shard_selector) {
                cut(text, STATUS_NAME_BYTES_MAX);
            }
        }
        let Some(details) = &mut self.details else { return self };
        for text in [&mut details.name, &mut details.group, &mut details.kind, &mut details.uid] {
            cut(text, STATUS_NAME_BYTES_MAX);
        }
        let (mut bytes, all) = (0, details.causes.len());
        let fits = details.causes.iter_mut().take_while(|cause| {
            let texts = [&cause.reason, &cause.message, &cause.field];
            bytes += CAUSE_FRAME_BYTES
                + texts.map(|text| json::escaped_bytes(text)).iter().sum::<usize>();
            bytes <= STATUS_PART_BYTES_MAX
        });
        let kept = fits.count();
        if kept < all {
            details.causes.truncate(kept);
            let message = format!("{} more causes", all - kept);
            details.causes.push(Cause { message, ..Cause::default() });
        }
        self
    }

    /// Compact JSON in the field order of the Go type, without a final newline.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Writer::new(br#"{"kind":"Status","apiVersion":"v1","metadata":{"#);
        if let Some(metadata) = &self.metadata {
            metadata.write(&mut out);
        }
        out.raw(b"}");
        out.text("status", self.status_text());
        out.text("message", &self.message);
        out.text("reason", &self.reason);
        if let Some(details) = &self.details {
            out.open("details", b'{');
            details.write(&mut out);
            out.raw(b"}");
        }
        // Compat: of the successful ones, creates say their code and deletes don't.
        if self.is_failure() || self.code == 201 {
            out.number("code", self.code);
        }
        out.raw(b"}");
        out.0
    }
}

/// The message of a `Status`, and all its causes together, as they are written in JSON; the rest is cut.
pub const STATUS_PART_BYTES_MAX: usize = 900 * 1024;

/// The name of the object that a `Status` is about. A valid one has at most 253 characters.
pub const STATUS_NAME_BYTES_MAX: usize = 16 * 1024;

/// The JSON around the texts of a cause.
const CAUSE_FRAME_BYTES: usize = 40;

impl ListMeta {
    fn write(&self, out: &mut Writer) {
        out.text("selfLink", &self.self_link);
        out.text("resourceVersion", &self.resource_version);
        out.text("continue", &self.continue_token);
        if let Some(count) = self.remaining_item_count {
            out.number("remainingItemCount", count);
        }
        if let Some(selector) = &self.shard_selector {
            out.open("shardInfo", b'{');
            out.name("selector");
            json::write_string(&mut out.0, selector);
            out.raw(b"}");
        }
    }
}

impl Details {
    fn write(&self, out: &mut Writer) {
        out.text("name", &self.name);
        out.text("group", &self.group);
        out.text("kind", &self.kind);
        out.text("uid", &self.uid);
        if !self.causes.is_empty() {
            out.open("causes", b'[');
            for (at, cause) in self.causes.iter().enumerate() {
                out.raw(if at > 0 { b",{" } else { b"{" });
                out.text("reason", &cause.reason);
                out.text("message", &cause.message);
                out.text("field", &cause.field);
                out.raw(b"}");
            }
            out.raw(b"]");
        }
        if self.retry_after_seconds != 0 {
            out.number("retryAfterSeconds", self.retry_after_seconds);
        }
    }
}

/// Writes members with their commas; empty texts are left out.
struct Writer(Vec<u8>);

impl Writer {
    fn new(start: &[u8]) -> Self {
        Self(start.to_vec())
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn name(&mut self, name: &str) {
        if !matches!(self.0.last(), Some(b'{' | b'[')) {
            self.raw(b",");
        }
        json::write_string(&mut self.0, name);
        self.raw(b":");
    }

    fn open(&mut self, name: &str, bracket: u8) {
        self.name(name);
        self.0.push(bracket);
    }

    fn text(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.name(name);
            json::write_string(&mut self.0, text);
        }
    }

    fn number(&mut self, name: &str, number: impl Into<i64>) {
        self.name(name);
        let number: i64 = number.into();
        self.raw(number.to_string().as_bytes());
    }
}

fn forbidden_message(resource: &GroupResource, name: &str, why: &str) -> String {
    if name.is_empty() {
        format!("{resource} is forbidden: {why}")
    } else {
        format!("{resource} {} is forbidden: {why}", quote(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{User, field::path};

    #[track_caller]
    fn check(error: &ApiError, expected: &str) {
        assert_eq!(String::from_utf8(error.status().to_json()).unwrap(), expected);
    }

    #[test]
    fn errors_become_the_status_that_clients_know() {
        check(
            &ApiError::not_found(GroupResource::new("apps", "deployments"), "web"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"web\" not found","reason":"NotFound","details":{"name":"web","group":"apps","kind":"deployments"},"code":404}"#,
        );
        let mut errors = FieldErrors::default();
        errors.required(path("metadata").child("name"), "name or generateName is required");
        check(
            &ApiError::Invalid {
                kind: GroupKind::new("", "ConfigMap"),
                name: String::new(),
                errors: Box::new(errors),
            },
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required","reason":"Invalid","details":{"kind":"ConfigMap","causes":[{"reason":"FieldValueRequired","message":"Required value: name or generateName is required","field":"metadata.name"}]},"code":422}"#,
        );
        check(
            &ApiError::MethodNotAllowed,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server does not allow this method on the requested resource","reason":"MethodNotAllowed","details":{},"code":405}"#,
        );
    }

    #[test]
    fn the_answer_to_a_bad_request_is_below_2_megabytes() {
        for text in ["x", "\u{1}", "\"", "<", "\u{fffd}"] {
            let long = text.repeat(1 << 20);
            let mut many = FieldErrors::default();
            for at in 0..3_000 {
                many.invalid(
                    path("spec").key(&format!("{text}{at}")),
                    text.repeat(200),
                    &text.repeat(50),
                );
            }
            let mut huge = FieldErrors::default();
            huge.invalid(path(&long), long.as_str(), &long);
            let resource = GroupResource::new("", "pods");
            let cause = Cause { message: long.clone(), ..Cause::default() };
            let kind = GroupKind::new("", &long);
            for error in [
                ApiError::Invalid {
                    kind: kind.clone(),
                    name: long.clone(),
                    errors: Box::new(many),
                },
                ApiError::Invalid { kind, name: long.clone(), errors: Box::new(huge) },
                ApiError::BadRequest(long.clone()),
                ApiError::Internal(long.clone()),
                ApiError::not_found(resource.clone(), long.as_str()),
                ApiError::Forbidden {
                    resource,
                    name: long.clone(),
                    why: long.clone(),
                    causes: vec![cause; 9],
                },
                // What a webhook says.
                ApiError::Status(Box::new(Status {
                    code: 400,
                    reason: long.clone(),
                    message: long.clone(),
                    details: None,
                    metadata: Some(Box::new(ListMeta {
                        self_link: long.clone(),
                        resource_version: long.clone(),
                        continue_token: long.clone(),
                        remaining_item_count: Some(i64::MIN),
                        shard_selector: Some(long.clone()),
                    })),
                    status: long.clone(),
                })),
            ] {
                let bytes = error.status().to_json().len();
                assert!(bytes < 2_000_000, "{bytes}: {text:?}");
            }
        }
    }

    /// 1 000 anonymous GETs of 60 KB were answered with 136 MB.
    #[test]
    fn a_denial_quotes_little_of_a_long_url() {
        let (user, long) = (User::default(), "g".repeat(60_000));
        let resource = Attributes {
            namespace: &long,
            name: &long,
            subresource: &long,
            ..Attributes::of_resource(&user, "get", &long, &long)
        };
        for denied in [resource, Attributes::of_path(&user, "get", &long)] {
            let status = ApiError::forbidden(&denied, "").status();
            assert!(status.message.contains("ggg... (58976 bytes more)"), "{}", status.message);
            assert!(status.to_json().len() < 10_000);
        }
    }

    #[test]
    fn a_denial_names_user_verb_resource_and_scope() {
        let user = User { name: "jane".into(), ..User::default() };
        let log = Attributes {
            subresource: "log",
            namespace: "probe",
            name: "pod1",
            ..Attributes::of_resource(&user, "get", "", "pods")
        };
        let path = Attributes::of_path(&user, "get", "/metrics");
        let cases = [
            (
                log,
                r#"pods "pod1" is forbidden: User "jane" cannot get resource "pods/log" in API group "" in the namespace "probe""#,
            ),
            (path, r#"forbidden: User "jane" cannot get path "/metrics""#),
        ];
        for (attributes, expected) in cases {
            let error = ApiError::forbidden(&attributes, "");
            assert_eq!(error.to_string(), expected);
            assert!(error.is_denied_by_authorizer());
        }
        // Admission may use the same words: the variant decides, not the text.
        let why = "User \"jane\" cannot get resource \"pods\"".to_owned();
        let resource = GroupResource::new("", "pods");
        let by_admission =
            ApiError::Forbidden { resource, name: String::new(), why, causes: Vec::new() };
        assert!(!by_admission.is_denied_by_authorizer());
    }
}
