//! An audit event, and its bytes: exactly those of kube-apiserver's encoder, written without a tree
//! in between.

mod source_ips;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr};

use meta::{
    AuditLevel, Details, RequestInfo, Status, Str, User, audit::ObjectIdentity, field::quote,
    json::write_string, time::Time,
};

pub use source_ips::source_ips;

/// When in the life of a request an event is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    RequestReceived,
    /// The head of the response is sent; long-running requests only.
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Stage {
    pub const ALL: [Self; 4] =
        [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// `audit.k8s.io/v1` Event. The fields are in the order of the JSON.
#[derive(Clone, Debug)]
pub struct Event {
    pub level: AuditLevel,
    pub audit_id: String,
    pub stage: Stage,
    pub request_uri: String,
    pub verb: Str,
    /// Empty if authentication failed.
    pub user: User,
    pub impersonated_user: Option<User>,
    /// The verb of constrained impersonation that allowed it; empty: none.
    pub impersonation_constraint: Str,
    pub source_ips: Vec<IpAddr>,
    pub user_agent: String,
    /// None for a non-resource request.
    pub object_ref: Option<ObjectReference>,
    pub response_status: Option<ResponseStatus>,
    /// Compact JSON.
    pub request_object: Option<Vec<u8>>,
    /// Compact JSON.
    pub response_object: Option<Vec<u8>>,
    pub request_received: Time,
    pub stage_time: Time,
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference {
    pub resource: Str,
    pub namespace: Str,
    pub name: Str,
    pub uid: Str,
    pub api_group: Str,
    pub api_version: Str,
    pub resource_version: Str,
    pub subresource: Str,
}

impl ObjectReference {
    pub fn of(info: &RequestInfo) -> Option<Self> {
        info.is_resource.then(|| Self {
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            api_group: info.group.clone(),
            api_version: info.version.clone(),
            subresource: info.subresource.clone(),
            ..Self::default()
        })
    }

    /// Fills in what the path of the request did not say.
    pub fn complete(&mut self, object: &ObjectIdentity) {
        let fill = |field: &mut Str, found: &Str| {
            if field.is_empty() {
                field.clone_from(found);
            }
        };
        fill(&mut self.namespace, &object.namespace);
        fill(&mut self.name, &object.name);
        fill(&mut self.uid, &object.uid);
        fill(&mut self.resource_version, &object.resource_version);
    }
}

/// A `Status` without type and list metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseStatus {
    /// `Success`, `Failure`, what a webhook calls its refusal, or empty where the response is no `Status`.
    pub status: Cow<'static, str>,
    pub message: String,
    pub reason: String,
    pub details: Option<Details>,
    pub code: u16,
}

impl ResponseStatus {
    /// Of a response that is no `Status`.
    pub fn code(code: u16) -> Self {
        Self { code, ..Self::default() }
    }
}

impl From<Status> for ResponseStatus {
    fn from(status: Status) -> Self {
        let is_failure = status.is_failure();
        let Status { code, reason, message, details, status, .. } = status;
        let status = match status.as_str() {
            "" if is_failure => Cow::Borrowed("Failure"),
            "" => Cow::Borrowed("Success"),
            _ => Cow::Owned(status),
        };
        Self { status, message, reason, details, code }
    }
}

/// Longer ones are cut, as by kube-apiserver.
const USER_AGENT_BYTES_MAX: usize = 1024;

/// The `User-Agent` header as an event has it.
pub fn user_agent(given: &[u8]) -> String {
    match given.get(..USER_AGENT_BYTES_MAX) {
        Some(cut) if given.len() > USER_AGENT_BYTES_MAX => {
            format!("{}...TRUNCATED", String::from_utf8_lossy(cut))
        }
        _ => String::from_utf8_lossy(given).into_owned(),
    }
}

impl Event {
    /// A line of the log: JSON with its kind, and a newline.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",");
        self.write_fields(out);
        out.extend_from_slice(b"}\n");
    }

    /// An item of an `EventList`, which has no kind.
    pub fn write_item(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.write_fields(out);
        out.push(b'}');
    }

    /// Without the objects of request and response, and marked so.
    pub fn truncate(&mut self) {
        self.request_object = None;
        self.response_object = None;
        self.annotations.insert("audit.k8s.io/truncated".to_owned(), "true".to_owned());
    }

    fn write_fields(&self, out: &mut Vec<u8>) {
        let bodies = [&self.request_object, &self.response_object].into_iter().flatten();
        out.reserve(1024 + bodies.map(Vec::len).sum::<usize>());
        let mut writer = Writer { out, first: true };
        writer.word("level", self.level.as_str());
        writer.text("auditID", &self.audit_id);
        writer.word("stage", self.stage.as_str());
        writer.text("requestURI", &self.request_uri);
        writer.text("verb", &self.verb);
        writer.name("user");
        write_user(writer.out, &self.user);
        if let Some(user) = &self.impersonated_user {
            writer.name("impersonatedUser");
            write_user(writer.out, user);
        }
        if !self.impersonation_constraint.is_empty() {
            writer.name("authenticationMetadata");
            writer.out.extend_from_slice(b"{\"impersonationConstraint\":");
            write_string(writer.out, &self.impersonation_constraint);
            writer.out.push(b'}');
        }
        if !self.source_ips.is_empty() {
            writer.name("sourceIPs");
            write_list(writer.out, &self.source_ips, |out, ip| source_ips::write(out, *ip));
        }
        writer.text_if_any("userAgent", &self.user_agent);
        if let Some(object) = &self.object_ref {
            writer.name("objectRef");
            write_object_ref(writer.out, object);
        }
        if let Some(status) = &self.response_status {
            writer.name("responseStatus");
            write_status(writer.out, status);
        }
        if let Some(json) = &self.request_object {
            writer.name("requestObject");
            writer.out.extend_from_slice(json);
        }
        if let Some(json) = &self.response_object {
            writer.name("responseObject");
            writer.out.extend_from_slice(json);
        }
        writer.time("requestReceivedTimestamp", self.request_received);
        writer.time("stageTimestamp", self.stage_time);
        if !self.annotations.is_empty() {
            writer.name("annotations");
            writer.out.push(b'{');
            let mut inner = Writer { out: writer.out, first: true };
            for (key, value) in &self.annotations {
                inner.key(key);
                write_string(inner.out, value);
            }
            inner.out.push(b'}');
        }
    }

    /// The line of `--audit-log-format=legacy`, without its newline.
    pub fn to_legacy(&self) -> String {
        let list = |groups: &[Str]| {
            let quoted: Vec<String> = groups.iter().map(|group| quote(group)).collect();
            quoted.join(",")
        };
        let none = || "<none>".to_owned();
        let named = !self.user.name.is_empty();
        let user = if named { self.user.name.to_string() } else { none() };
        let groups = match self.user.groups.as_slice() {
            [_, ..] if named => list(&self.user.groups),
            _ => none(),
        };
        let (as_user, as_groups) = match &self.impersonated_user {
            None => ("<self>".to_owned(), "<lookup>".to_owned()),
            Some(user) => (user.name.to_string(), list(&user.groups)),
        };
        let namespace = self.object_ref.as_ref().map(|object| object.namespace.as_str());
        let ip = self.source_ips.first().map_or("<unknown>".to_owned(), ToString::to_string);
        let response = match &self.response_status {
            Some(status) => status.code.to_string(),
            None => "<deferred>".to_owned(),
        };
        format!(
            "{} AUDIT: id={} stage={} ip={} method={} user={} groups={} as={} asgroups={} \
             user-agent={} namespace={} uri={} response=\"{response}\"",
            rfc3339_nano(self.request_received),
            quote(&self.audit_id),
            quote(self.stage.as_str()),
            quote(&ip),
            quote(&self.verb),
            quote(&user),
            quote(&groups),
            quote(&as_user),
            quote(&as_groups),
            quote(&self.user_agent),
            quote(namespace.filter(|name| !name.is_empty()).unwrap_or("<none>")),
            quote(&self.request_uri),
        )
    }
}

/// Go's `time.RFC3339Nano` of a time in UTC: a fraction without trailing zeros.
fn rfc3339_nano(time: Time) -> String {
    let seconds = time.to_rfc3339();
    if time.nanos() == 0 {
        return seconds;
    }
    let fraction = format!("{:09}", time.nanos());
    format!("{}.{}Z", seconds.trim_end_matches('Z'), fraction.trim_end_matches('0'))
}

/// The members of a JSON object.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl Writer<'_> {
    fn separate(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
    }

    /// The name of a field; it needs no escaping.
    fn name(&mut self, name: &str) {
        self.separate();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn key(&mut self, key: &str) {
        self.separate();
        write_string(self.out, key);
        self.out.push(b':');
    }

    /// A text that needs no escaping.
    fn word(&mut self, name: &str, word: &str) {
        self.name(name);
        self.out.push(b'"');
        self.out.extend_from_slice(word.as_bytes());
        self.out.push(b'"');
    }

    fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        write_string(self.out, text);
    }

    fn text_if_any(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.text(name, text);
        }
    }

    fn number(&mut self, name: &str, number: impl Into<i64>) {
        self.name(name);
        let number: i64 = number.into();
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    fn time(&mut self, name: &str, time: Time) {
        self.word(name, &time.to_rfc3339_micro());
    }
}

fn write_list<T>(out: &mut Vec<u8>, items: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

fn write_texts(out: &mut Vec<u8>, texts: &[Str]) {
    write_list(out, texts, |out, text| write_string(out, text));
}

fn write_user(out: &mut Vec<u8>, user: &User) {
    out.push(b'{');
    let mut writer = Writer { out, first: true };
    writer.text_if_any("username", &user.name);
    writer.text_if_any("uid", &user.uid);
    if !user.groups.is_empty() {
        writer.name("groups");
        write_texts(writer.out, &user.groups);
    }
    if !user.extra.is_empty() {
        writer.name("extra");
        writer.out.push(b'{');
        let mut inner = Writer { out: writer.out, first: true };
        for (key, values) in &user.extra {
            inner.key(key);
            write_texts(inner.out, values);
        }
        inner.out.push(b'}');
    }
    out.push(b'}');
}

fn write_object_ref(out: &mut Vec<u8>, object: &ObjectReference) {
    out.push(b'{');
    let mut writer = Writer { out, first: true };
    writer.text_if_any("resource", &object.resource);
    writer.text_if_any("namespace", &object.namespace);
    writer.text_if_any("name", &object.name);
    writer.text_if_any("uid", &object.uid);
    writer.text_if_any("apiGroup", &object.api_group);
    writer.text_if_any("apiVersion", &object.api_version);
    writer.text_if_any("resourceVersion", &object.resource_version);
    writer.text_if_any("subresource", &object.subresource);
    out.push(b'}');
}

fn write_status(out: &mut Vec<u8>, status: &ResponseStatus) {
    out.extend_from_slice(b"{\"metadata\":{}");
    let mut writer = Writer { out, first: false };
    writer.text_if_any("status", &status.status);
    writer.text_if_any("message", &status.message);
    writer.text_if_any("reason", &status.reason);
    if let Some(details) = &status.details {
        writer.name("details");
        write_details(writer.out, details);
    }
    if status.code != 0 {
        writer.number("code", u32::from(status.code));
    }
    out.push(b'}');
}

fn write_details(out: &mut Vec<u8>, details: &Details) {
    out.push(b'{');
    let mut writer = Writer { out, first: true };
    writer.text_if_any("name", &details.name);
    writer.text_if_any("group", &details.group);
    writer.text_if_any("kind", &details.kind);
    writer.text_if_any("uid", &details.uid);
    if !details.causes.is_empty() {
        writer.name("causes");
        write_list(writer.out, &details.causes, |out, cause| {
            out.push(b'{');
            let mut writer = Writer { out, first: true };
            writer.text_if_any("reason", &cause.reason);
            writer.text_if_any("message", &cause.message);
            writer.text_if_any("field", &cause.field);
            out.push(b'}');
        });
    }
    if details.retry_after_seconds != 0 {
        writer.number("retryAfterSeconds", details.retry_after_seconds);
    }
    out.push(b'}');
}
