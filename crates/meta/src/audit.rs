//! What the handling of a request adds to its audit event: annotations, bodies, latencies.
//!
//! The event itself and the policy are in crate `audit`; the registry and admission know only this.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{Status, Str, Value, time};

/// How much of a request is recorded. Each level includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditLevel {
    #[default]
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl AuditLevel {
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// Annotations of a request's audit event, added by authentication, authorization and admission.
///
/// By default nothing is kept: a request that is not audited pays nothing for them.
#[derive(Debug, Default)]
pub struct AuditAnnotations(Option<Mutex<BTreeMap<String, String>>>);

impl AuditAnnotations {
    /// Annotations of a request that is audited.
    pub fn recorded() -> Self {
        Self(Some(Mutex::default()))
    }

    /// Adds an annotation. Compat: the first value of a key stays.
    pub fn add(&self, key: impl Into<String>, value: impl Into<String>) {
        if let Some(mut annotations) = self.lock() {
            annotations.entry(key.into()).or_insert_with(|| value.into());
        }
    }

    pub fn take(&self) -> BTreeMap<String, String> {
        self.lock().map(|mut annotations| std::mem::take(&mut *annotations)).unwrap_or_default()
    }

    /// The annotations so far.
    pub fn snapshot(&self) -> BTreeMap<String, String> {
        self.lock().map(|annotations| annotations.clone()).unwrap_or_default()
    }

    fn lock(&self) -> Option<MutexGuard<'_, BTreeMap<String, String>>> {
        self.0.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Collects what is recorded of a request while it is handled. The default records nothing.
#[derive(Debug, Default)]
pub struct AuditRecord {
    pub level: AuditLevel,
    /// The policy leaves managedFields out of bodies.
    pub omit_managed_fields: bool,
    pub annotations: AuditAnnotations,
    latencies: [AtomicU64; LATENCIES],
    content: Mutex<AuditContent>,
}

/// The parts of an audit event that come from the object of a request.
#[derive(Clone, Debug, Default)]
pub struct AuditContent {
    /// From the body: what the path of the request does not have.
    pub object: ObjectIdentity,
    /// Compact JSON. Present at levels Request and RequestResponse only.
    pub request_object: Option<Vec<u8>>,
    /// Compact JSON. Present at level RequestResponse only.
    pub response_object: Option<Vec<u8>>,
    /// The `Status` of a success that has one (some deletes).
    pub response_status: Option<Status>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectIdentity {
    pub namespace: Str,
    pub name: Str,
    pub uid: Str,
    pub resource_version: Str,
}

impl ObjectIdentity {
    pub fn of(object: &Value) -> Self {
        let field = |name| Str::new(object.str_at(&["metadata", name]));
        Self {
            namespace: field("namespace"),
            name: field("name"),
            uid: field("uid"),
            resource_version: field("resourceVersion"),
        }
    }
}

impl AuditRecord {
    pub fn new(
        level: AuditLevel,
        omit_managed_fields: bool,
        annotations: AuditAnnotations,
    ) -> Self {
        Self { level, omit_managed_fields, annotations, ..Self::default() }
    }

    pub fn is_on(&self) -> bool {
        self.level > AuditLevel::None
    }

    /// Records the object of a request; `json` is called only if the policy asks for bodies.
    pub fn request_object(&self, object: &Value, json: impl FnOnce() -> Vec<u8>) {
        if !self.is_on() {
            return;
        }
        let json = (self.level >= AuditLevel::Request).then(json);
        let mut content = self.content();
        content.object = ObjectIdentity::of(object);
        content.request_object = json;
    }

    /// Records a patch. Compat: unlike an object, a patch says nothing about the object's identity.
    pub fn request_patch(&self, json: impl FnOnce() -> Vec<u8>) {
        if self.level >= AuditLevel::Request {
            let json = json();
            self.content().request_object = Some(json);
        }
    }

    pub fn wants_response_object(&self) -> bool {
        self.level >= AuditLevel::RequestResponse
    }

    /// Records the object of the response; called only where `wants_response_object`.
    pub fn response_object(&self, json: Vec<u8>) {
        if self.wants_response_object() {
            self.content().response_object = Some(json);
        }
    }

    /// Records a `Status` that is the response to a success.
    pub fn response_status(&self, status: &Status) {
        if self.is_on() {
            self.content().response_status = Some(status.clone());
        }
    }

    pub fn take_content(&self) -> AuditContent {
        std::mem::take(&mut *self.content())
    }

    /// Adds time spent in a layer.
    pub fn track(&self, layer: LatencyLayer, spent: Duration) {
        if self.is_on() {
            let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
            self.latencies[layer as usize].fetch_add(nanos, Ordering::Relaxed);
        }
    }

    /// Adds `apiserver.latency.k8s.io/*` to the annotations of a request that took `total`.
    pub fn annotate_latencies(&self, total: Duration) {
        if !self.is_on() || total <= SLOW_REQUEST {
            return;
        }
        let add = |key: &str, nanos: u64| {
            let spent = time::Duration { nanos: i64::try_from(nanos).unwrap_or(i64::MAX) };
            self.annotations.add(format!("apiserver.latency.k8s.io/{key}"), spent.to_string());
        };
        for (latency, key) in self.latencies.iter().zip(LATENCY_KEYS) {
            match latency.load(Ordering::Relaxed) {
                0 => {}
                nanos => add(key, nanos),
            }
        }
        add("total", u64::try_from(total.as_nanos()).unwrap_or(u64::MAX));
    }

    fn content(&self) -> MutexGuard<'_, AuditContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compat: faster requests have no latency annotations.
const SLOW_REQUEST: Duration = Duration::from_millis(500);

/// A layer of the server whose latency is shown in the events of slow requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyLayer {
    Authentication,
    Impersonation,
    QueueWait,
    Authorization,
    MutatingWebhook,
    ValidatingWebhook,
    Storage,
    Transform,
    Serialize,
    ResponseWrite,
}

const LATENCIES: usize = 10;

/// In the order of `LatencyLayer`.
const LATENCY_KEYS: [&str; LATENCIES] = [
    "authentication",
    "impersonation",
    "apf-queue-wait",
    "authorization",
    "mutating-webhook",
    "validating-webhook",
    "etcd",
    "transform-response-object",
    "serialize-response-object",
    "response-write",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn record(level: AuditLevel) -> AuditRecord {
        AuditRecord::new(level, false, AuditAnnotations::recorded())
    }

    #[test]
    fn bodies_are_kept_up_to_the_level() {
        let mut object = Value::default();
        object.set_at(&["metadata", "name"], "a");
        for (level, request, response) in [
            (AuditLevel::None, false, false),
            (AuditLevel::Metadata, false, false),
            (AuditLevel::Request, true, false),
            (AuditLevel::RequestResponse, true, true),
        ] {
            let record = record(level);
            record.request_object(&object, || b"{}".to_vec());
            record.response_object(b"{}".to_vec());
            let content = record.take_content();
            assert_eq!(content.request_object.is_some(), request, "{level:?}");
            assert_eq!(content.response_object.is_some(), response, "{level:?}");
            assert_eq!(content.object.name == "a", level != AuditLevel::None, "{level:?}");
        }
    }

    #[test]
    fn slow_requests_have_latencies_and_fast_ones_none() {
        let record = record(AuditLevel::Metadata);
        record.track(LatencyLayer::Authorization, Duration::from_micros(1500));
        record.track(LatencyLayer::Storage, Duration::from_millis(300));
        record.track(LatencyLayer::Storage, Duration::from_millis(301));
        record.annotate_latencies(Duration::from_millis(500));
        assert!(record.annotations.take().is_empty());
        record.annotate_latencies(Duration::from_millis(610));
        let annotations: Vec<_> = record.annotations.take().into_iter().collect();
        let expected = [
            ("apiserver.latency.k8s.io/authorization", "1.5ms"),
            ("apiserver.latency.k8s.io/etcd", "601ms"),
            ("apiserver.latency.k8s.io/total", "610ms"),
        ];
        assert_eq!(annotations, expected.map(|(key, value)| (key.into(), value.into())));
    }
}
