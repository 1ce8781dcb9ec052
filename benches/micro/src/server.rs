//! Pods as the server has them: built-in facts and strategy, the registry's verbs, a watch cache over a store in
//! memory. There is no admission plugin, no authentication and no HTTP. All of it runs on the thread that sends.

use std::{pin::Pin, sync::Arc, time::Duration};

use builtin::{
    Access, Definitions, FeatureGates, RuleResolver, StorageFormat, TokenAuthenticator,
    TokenIssuer, TokenUser,
};
use bytes::Bytes;
use codec::{json::DecodeOptions, negotiate::OFFERED};
use futures_core::Stream;
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderValue, header};
use meta::{AuditRecord, Query, RequestInfo, Str, User, Value, Warnings};
use registry::{
    BoxFuture, DefaultStrategy, Engine, Kind, Payload, RegistryOptions, ResourceRequest, Storage,
};
use store::{Backend, MemoryBackend};
use tokio::runtime::{Builder, Runtime};

pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

pub(crate) struct Server {
    pub(crate) pods: Arc<Kind>,
    /// The pod that workloads are about, as a client sends it: compact JSON, in the order of the fields.
    pub(crate) pod: Bytes,
    pub(crate) user: User,
    engine: Arc<Engine>,
    runtime: Runtime,
}

/// The frames of a watch.
pub(crate) type Frames = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

impl Server {
    pub(crate) fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let in_runtime = runtime.enter();
        let mut definitions = Definitions::load();
        let schema = Arc::new(std::mem::take(&mut definitions.schema));
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
        let cluster = admission::testing::empty_cluster();
        let authorizer = cluster.authorizer.clone();
        let is_pod =
            |facts: &schema::ResourceFacts| facts.kind.group.is_empty() && facts.kind.kind == "Pod";
        let options = builtin::Options {
            prefix: "/registry".to_owned(),
            form: StorageFormat::Own,
            from_store: Arc::new(|_| false),
            overrides: Vec::new(),
            event_ttl: Duration::from_hours(1),
            crd_strategy: Arc::new(DefaultStrategy),
            access: Access {
                authorizer: authorizer.clone(),
                rule_resolver: Arc::new(NoAccess),
                token_authenticator: Arc::new(NoAccess),
            },
            tokens: Arc::new(NoAccess),
            service_cluster_ip_ranges: vec!["10.0.0.0/24".to_owned()],
            service_node_ports: (30_000, 32_767),
            allow_privileged: true,
            features: FeatureGates::default(),
        };
        let (mut kinds, _) = builtin::kinds(&definitions, &schema, &is_pod, &backend, &options);
        let pods = kinds.pop().expect("pods are built-in");
        let options = RegistryOptions {
            min_request_timeout: Duration::from_mins(30),
            offered: OFFERED,
            delete_collection_workers: 1,
            garbage_collection: true,
            unsafe_deletion: false,
        };
        let descriptions = Box::new(|fields: &[(&str, &str)]| vec![String::new(); fields.len()]);
        let chain = admission::Chain::new(Vec::new(), cluster);
        let engine = Engine::new(chain, authorizer, options, schema, descriptions);
        let pod = pod(&pods);
        drop(in_runtime);
        let user = User { name: "bench".into(), ..User::default() };
        let server = Self { pods, pod, user, engine, runtime };
        server.wait_for_cache();
        server
    }

    /// A server with so many pods, named by [`pod_name`].
    pub(crate) fn with_pods(count: usize) -> Self {
        let server = Self::start();
        for number in 0..count {
            server.send(&server.create(number));
        }
        server.wait_for_cache();
        server
    }

    /// The request that creates a pod.
    pub(crate) fn create(&self, number: usize) -> Request {
        let pod = str::from_utf8(&self.pod).expect("JSON is UTF-8");
        let pod = pod.replacen("pod-000000", &pod_name(number), 1);
        Request::new("create", "").with_body(JSON, pod)
    }

    /// The pod as a tree, with its defaults not set.
    pub(crate) fn tree(&self) -> Value {
        self.decode(&self.pod)
    }

    pub(crate) fn decode(&self, json: &[u8]) -> Value {
        let options = DecodeOptions { strict: true };
        let decoded = codec::json::decode(json, &self.pods.schema, self.pods.ty(), options);
        decoded.expect("a pod").value
    }

    /// The size of the response to a request, which has to succeed. Chunks are made one by one, as they are sent.
    pub(crate) fn send(&self, request: &Request) -> usize {
        match self.serve(request) {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Chunks(chunks) | Payload::CostlyChunks(chunks) => {
                chunks.map(|chunk| chunk.expect("a chunk").len()).sum()
            }
            Payload::Stream(_) => panic!("a watch has no size"),
        }
    }

    pub(crate) fn watch(&self, request: &Request) -> Frames {
        match self.serve(request) {
            Payload::Stream(frames) => frames,
            _ => panic!("only a watch is a stream"),
        }
    }

    pub(crate) fn next(&self, frames: &mut Frames) -> Bytes {
        self.runtime.block_on(frames.next()).expect("a watch goes on")
    }

    fn serve(&self, request: &Request) -> Payload {
        let (warnings, audit) = (Warnings::default(), AuditRecord::default());
        let resource_request = ResourceRequest {
            engine: &self.engine,
            kind: &self.pods,
            info: &request.info,
            user: &self.user,
            authenticated_user: &self.user,
            query: &request.query,
            headers: &request.headers,
            body: request.body.clone(),
            warnings: &warnings,
            audit: &audit,
            websocket: false,
            deadline: None,
        };
        let response = self.runtime.block_on(registry::serve(&resource_request));
        let verb = &request.info.verb;
        response.unwrap_or_else(|error| panic!("{verb}: {}", error.status().message)).payload
    }

    /// Waits until the watch cache has what was written.
    pub(crate) fn wait_for_cache(&self) {
        let fresh = self.storage().cache.fresh();
        self.runtime.block_on(fresh).expect("the store in memory does not fail");
    }

    fn storage(&self) -> &Storage {
        self.pods.storage.as_ref().expect("pods are stored")
    }
}

pub(crate) fn pod_name(number: usize) -> String {
    format!("pod-{number:06}")
}

fn pod(pods: &Kind) -> Bytes {
    let options = DecodeOptions { strict: true };
    let text = include_bytes!("pod.json");
    let decoded = codec::json::decode(text, &pods.schema, pods.ty(), options).expect("pod.json");
    assert!(decoded.strict.is_empty(), "fields that pods do not have: {:?}", decoded.strict);
    let mut json = Vec::new();
    codec::json::encode(&decoded.value, &pods.schema, pods.ty(), &mut json);
    json.into()
}

/// A request for pods, as the registry gets it.
pub(crate) struct Request {
    info: RequestInfo,
    query: Query,
    headers: HeaderMap,
    body: Bytes,
}

impl Request {
    pub(crate) fn new(verb: &str, name: &str) -> Self {
        let info = RequestInfo {
            path: format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}"),
            verb: Str::new(verb),
            is_resource: true,
            prefix: "api".into(),
            version: "v1".into(),
            namespace: NAMESPACE.into(),
            resource: "pods".into(),
            name: Str::new(name),
            ..RequestInfo::default()
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(JSON));
        headers.insert(header::USER_AGENT, HeaderValue::from_static("pintle-micro/1.0"));
        let query = Query::parse("").expect("an empty query");
        Self { info, query, headers, body: Bytes::new() }
    }

    pub(crate) fn subresource(mut self, name: &str) -> Self {
        self.info.subresource = Str::new(name);
        self
    }

    pub(crate) fn query(mut self, query: &str) -> Self {
        self.query = Query::parse(query).expect("a query");
        self
    }

    pub(crate) fn accept(mut self, media_type: &'static str) -> Self {
        self.headers.insert(header::ACCEPT, HeaderValue::from_static(media_type));
        self
    }

    pub(crate) fn with_body(mut self, media_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        self.body = body.into();
        self
    }
}

/// Pods need neither roles nor tokens.
struct NoAccess;

impl RuleResolver for NoAccess {
    fn confirm_no_escalation(&self, _: &User, _: &str, _: &[Value]) -> Result<(), String> {
        Err("no roles here".to_owned())
    }

    fn rules_of_role(&self, _: &str, _: &str, _: &str) -> Option<Vec<Value>> {
        None
    }
}

impl TokenAuthenticator for NoAccess {
    fn authenticate_token<'a>(
        &'a self,
        _: &'a str,
        _: &'a [Str],
    ) -> BoxFuture<'a, Result<Option<TokenUser>, String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

impl TokenIssuer for NoAccess {
    fn audiences(&self) -> &[Str] {
        &[]
    }

    fn expiration_seconds_max(&self) -> i64 {
        0
    }

    fn extended_expiration_seconds(&self) -> Option<i64> {
        None
    }

    fn sign(&self, _: Value) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(std::future::ready(Err("no tokens here".to_owned())))
    }
}
