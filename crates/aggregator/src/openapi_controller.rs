//! `apiservice-openapi-controller`: the parts of OpenAPI v2 that remote group-versions have. What cannot
//! be read is left out, and the last good part stays.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use codec::json::{self, DecodeOptions};
use controllers::{BoxFuture, Informer};
use meta::{Map, Value};
use prometheus::{GaugeVec, IntCounterVec, Opts, Registry};

use crate::{
    Registration, RemoteApis,
    remote_server::RemoteServer,
    remote_spec_controller::{
        OPENAPI_RETRY_MIN, OpenApiV2, OpenApiV2Reader, RemoteSpec, RemoteSpecController,
    },
};

pub struct OpenApiController {
    registration: Arc<Registration>,
    parts: Parts,
}

struct Parts {
    apis: Arc<RemoteApis>,
    documents: OpenApiV2Reader,
    metrics: OpenApiMetrics,
}

impl OpenApiController {
    pub fn new(
        registration: Arc<Registration>,
        apis: Arc<RemoteApis>,
        metrics: OpenApiMetrics,
    ) -> Self {
        let documents = OpenApiV2Reader::default();
        Self { registration, parts: Parts { apis, documents, metrics } }
    }

    /// Runs until the server stops.
    pub async fn run(self, events: impl Informer) {
        RemoteSpecController::run(self.registration, self.parts, events).await;
    }
}

impl RemoteSpec for Parts {
    const QUEUE: &'static str = "open_api_aggregation_controller";
    const NAME: &'static str = "OpenAPI v2";
    const RETRY_MIN: Duration = OPENAPI_RETRY_MIN;

    fn sync<'a>(&'a self, server: &'a RemoteServer) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let name = server.api_service.name.as_str();
            let is_known = self.apis.get(name).openapi_v2.is_some();
            let part = match self.documents.read(server, is_known, own_part).await? {
                OpenApiV2::Unchanged => return Ok(()),
                OpenApiV2::Missing => None,
                OpenApiV2::Part(part) => Some(part),
            };
            let began = Instant::now();
            let regenerated = self.apis.update(server, |api| {
                let changed = api.openapi_v2 != part;
                api.openapi_v2.clone_from(&part);
                changed
            });
            if regenerated {
                let reason = if is_known { "update" } else { "add" };
                self.metrics.regenerated(name, reason, began.elapsed());
            }
            Ok(())
        })
    }

    fn forget(&self, name: &str) {
        if self.documents.forget(name) {
            self.metrics.regenerated(name, "delete", Duration::ZERO);
        }
    }
}

/// The paths below `prefix` with what they refer to, as JSON.
fn own_part(document: &[u8], prefix: &str) -> Result<Bytes, String> {
    Ok(written(own_members(document, prefix)?.0))
}

/// The same with `info`.
pub(crate) fn own_document(document: &[u8], prefix: &str) -> Result<Bytes, String> {
    let (mut part, info) = own_members(document, prefix)?;
    part.insert("info", info);
    Ok(written(part))
}

fn written(part: Map) -> Bytes {
    let mut out = Vec::new();
    meta::json::write_value(&mut out, &Value::Object(part));
    out.into()
}

fn own_members(document: &[u8], prefix: &str) -> Result<(Map, Value), String> {
    let document = json::decode_any_body(document, DecodeOptions { strict: false });
    let mut document = document.map_err(|error| error.to_string())?.value;
    let info = document.remove_at(&["info"]).unwrap_or_default();
    let mut take = |member: &str| match document.remove_at(&[member]) {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    };
    let (mut paths, mut definitions, mut parameters) =
        (take("paths"), take("definitions"), take("parameters"));
    let below = format!("{prefix}/");
    paths.retain(|path, _| path == prefix || path.starts_with(&below));
    let mut wanted = Wanted::default();
    for path in paths.values() {
        wanted.add_references(path);
    }
    // References of references; each name is followed once.
    while let Some(reference) = wanted.next.pop() {
        let found = match reference.split_once('/') {
            Some(("definitions", name)) => definitions.get(name),
            Some(("parameters", name)) => parameters.get(name),
            _ => None,
        };
        if let Some(found) = found {
            wanted.add_references(found);
        }
    }
    definitions.retain(|name, _| wanted.seen.contains(&format!("definitions/{name}")));
    parameters.retain(|name, _| wanted.seen.contains(&format!("parameters/{name}")));
    let mut part = Map::new();
    part.insert("paths", Value::Object(paths));
    part.insert("definitions", Value::Object(definitions));
    part.insert("parameters", Value::Object(parameters));
    Ok((part, info))
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
