//! `apiservice-openapi-controller`: the parts of OpenAPI v2 that remote group-versions have. What cannot
//! be read is left out, and the last good part stays.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use codec::json::{self, DecodeOptions};
use controllers::{Informer, Key, ObjectEvent, Pinned, ReconcileResult, Reconciler};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, ETAG, IF_NONE_MATCH},
};
use meta::{ApiError, Map, Value};
use parking_lot::Mutex;
use prometheus::{GaugeVec, IntCounterVec, Opts, Registry};

use crate::{
    Registration, RemoteApis,
    backoff::Backoff,
    openapiv3_controller::{REFRESH_INTERVAL, RETRY_MIN, openapi_user},
    remote_server::{Fetch, RemoteServer},
};

pub struct OpenApiController {
    registration: Arc<Registration>,
    apis: Arc<RemoteApis>,
    /// Of the parts that are known, by the names of APIServices.
    etags: Mutex<HashMap<String, HeaderValue>>,
    failures: Backoff,
    metrics: OpenApiMetrics,
}

impl OpenApiController {
    pub fn new(
        registration: Arc<Registration>,
        apis: Arc<RemoteApis>,
        metrics: OpenApiMetrics,
    ) -> Self {
        let failures = Backoff::new(RETRY_MIN, REFRESH_INTERVAL);
        Self { registration, apis, etags: Mutex::default(), failures, metrics }
    }

    /// Runs until the server stops.
    pub async fn run(self, events: impl Informer) {
        controllers::run_workqueue(self, events).await;
    }

    async fn sync(&self, server: &RemoteServer) -> Result<(), String> {
        if !server.api_service.available {
            return Err("service unavailable".to_owned());
        }
        let name = server.api_service.name.as_str();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let known = self.etags.lock().get(name).cloned();
        if let Some(etag) = known {
            headers.insert(IF_NONE_MATCH, etag);
        }
        let fetch = Fetch {
            path: "/openapi/v2",
            headers,
            user: &openapi_user(),
            timeout: TIMEOUT,
            bytes_max: DOCUMENT_BYTES_MAX,
        };
        let response = server.fetch(fetch).await?;
        let part = match response.status() {
            StatusCode::NOT_MODIFIED => return Ok(()),
            StatusCode::NOT_FOUND => None,
            StatusCode::OK => {
                let (body, prefix) = (response.body().clone(), server.api_service.discovery_path());
                // A large document takes a while.
                let part = tokio::task::spawn_blocking(move || own_part(&body, &prefix));
                Some(part.await.map_err(|error| error.to_string())??)
            }
            code => return Err(format!("/openapi/v2 answered {}", code.as_u16())),
        };
        match response.headers().get(ETAG) {
            Some(etag) => drop(self.etags.lock().insert(name.to_owned(), etag.clone())),
            None => drop(self.etags.lock().remove(name)),
        }
        let began = Instant::now();
        let was_known = self.apis.get(name).openapi_v2.is_some();
        let regenerated = self.apis.update(server, |api| {
            let changed = api.openapi_v2 != part;
            api.openapi_v2.clone_from(&part);
            changed
        });
        if regenerated {
            let reason = if was_known { "update" } else { "add" };
            self.metrics.regenerated(name, reason, began.elapsed());
        }
        Ok(())
    }
}

const TIMEOUT: Duration = Duration::from_mins(1);
/// kube-apiserver's own document, the largest that is known, has 4 MB.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// The paths below `prefix` with what they refer to, as JSON.
fn own_part(document: &[u8], prefix: &str) -> Result<Bytes, String> {
    let document = json::decode_any(document, DecodeOptions { strict: false });
    let mut document = document.map_err(|error| error.to_string())?.value;
    let mut take = |member: &str| match document.remove_at(&[member]) {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    };
    let (mut paths, definitions, parameters) =
        (take("paths"), take("definitions"), take("parameters"));
    let below = format!("{prefix}/");
    paths.retain(|path, _| path == prefix || path.starts_with(&below));
    let mut wanted = Wanted::default();
    for path in paths.values() {
        wanted.add_references(path);
    }
    let (mut kept_definitions, mut kept_parameters) = (Map::new(), Map::new());
    // References of references; each name is taken once.
    while let Some(reference) = wanted.next.pop() {
        let (from, kept, name) = match reference.split_once('/') {
            Some(("definitions", name)) => (&definitions, &mut kept_definitions, name),
            Some(("parameters", name)) => (&parameters, &mut kept_parameters, name),
            _ => continue,
        };
        if let Some(found) = from.get(name) {
            wanted.add_references(found);
            kept.insert(name, found.clone());
        }
    }
    let mut part = Map::new();
    part.insert("paths", Value::Object(paths));
    part.insert("definitions", Value::Object(kept_definitions));
    part.insert("parameters", Value::Object(kept_parameters));
    let mut out = Vec::new();
    meta::json::write_value(&mut out, &Value::Object(part));
    Ok(out.into())
}

/// References that are to be followed.
#[derive(Default)]
struct Wanted {
    seen: BTreeSet<String>,
    /// `definitions/…` and `parameters/…`
    next: Vec<String>,
}

impl Wanted {
    /// The decoder has bounded the depth.
    fn add_references(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                let reference = members.get("$ref").and_then(Value::as_str);
                let reference = reference.and_then(|text| text.strip_prefix("#/"));
                if let Some(reference) = reference
                    && self.seen.insert(reference.to_owned())
                {
                    self.next.push(reference.to_owned());
                }
                for member in members.values() {
                    self.add_references(member);
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.add_references(item);
                }
            }
            _ => {}
        }
    }
}

impl Reconciler for OpenApiController {
    const QUEUE: &'static str = "open_api_aggregation_controller";

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        vec![("".into(), event.name.clone())]
    }

    fn reconcile<'a>(&'a self, key: &'a Key) -> Pinned<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(async move {
            let name = key.1.as_str();
            let Some(server) = self.registration.find_by_name(name) else {
                self.failures.reset(name);
                if self.etags.lock().remove(name).is_some() {
                    self.metrics.regenerated(name, "delete", Duration::ZERO);
                }
                return Ok(ReconcileResult::Done);
            };
            let after = match self.sync(&server).await {
                Ok(()) => {
                    self.failures.reset(name);
                    REFRESH_INTERVAL
                }
                Err(error) => {
                    tracing::debug!(name, error, "OpenAPI v2 of an APIService failed");
                    self.failures.next(name)
                }
            };
            Ok(ReconcileResult::RequeueAfter(after))
        })
    }
}

/// By kube-aggregator's names.
#[derive(Clone)]
pub struct OpenApiMetrics {
    count: IntCounterVec,
    duration: GaugeVec,
}

impl Default for OpenApiMetrics {
    fn default() -> Self {
        let count = Opts::new(
            "aggregator_openapi_v2_regeneration_count",
            "Counter of OpenAPI v2 spec regeneration count broken down by causing APIService name \
             and reason.",
        );
        let duration = Opts::new(
            "aggregator_openapi_v2_regeneration_duration",
            "Gauge of OpenAPI v2 spec regeneration duration in seconds.",
        );
        Self {
            count: IntCounterVec::new(count, &["apiservice", "reason"]).expect("a valid name"),
            duration: GaugeVec::new(duration, &["reason"]).expect("a valid name"),
        }
    }
}

impl OpenApiMetrics {
    pub fn register(&self, registry: &Registry) {
        registry.register(Box::new(self.count.clone())).expect("registered once");
        registry.register(Box::new(self.duration.clone())).expect("registered once");
    }

    fn regenerated(&self, name: &str, reason: &str, took: Duration) {
        self.count.with_label_values(&[name, reason]).inc();
        self.duration.with_label_values(&[reason]).set(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_its_paths_and_all_that_they_refer_to() {
        let document = br##"{
            "swagger": "2.0",
            "paths": {
                "/apis/g/v1/": {"get": {"schema": {"$ref": "#/definitions/A"}, "parameters": [{"$ref": "#/parameters/p"}]}},
                "/apis/g/v1beta1/": {"get": {"schema": {"$ref": "#/definitions/Other"}}},
                "/version": {}
            },
            "definitions": {
                "A": {"properties": {"b": {"$ref": "#/definitions/B"}}},
                "B": {"properties": {"a": {"$ref": "#/definitions/A"}, "gone": {"$ref": "#/definitions/Gone"}}},
                "Other": {}
            },
            "parameters": {"p": {"in": "query"}, "q": {}}
        }"##;
        let part = own_part(document, "/apis/g/v1").expect("JSON");
        let part = json::decode_any(&part, DecodeOptions::default()).expect("JSON").value;
        let keys = |member: &str| {
            let members = part.get(member).and_then(Value::as_object).expect("an object");
            members.keys().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(keys("paths"), "/apis/g/v1/");
        assert_eq!(keys("definitions"), "A B");
        assert_eq!(keys("parameters"), "p");
        for broken in ["", "[]", "{\"paths\": 7}", "nonsense"] {
            // None of them is a panic.
            let _ = own_part(broken.as_bytes(), "/apis/g/v1");
        }
    }
}
