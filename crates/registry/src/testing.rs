//! A harness for the verbs: an engine with a few kinds over an in-memory store. Requests are one line,
//! bodies are YAML, and answers are compared by the fields that a test is about.
//!
//! - `widgets` (namespaced): served as `v1`, which is stored, and as `v2`, where `spec.color` is
//!   called `spec.colour`; with `/status`, `/scale` and `/launch`, a subresource that acts.
//! - `gadgets` (cluster-scoped): a PUT creates, and needs a resourceVersion otherwise.
//! - `sums`: computed, nothing is stored.

mod backend;
mod kinds;

use std::sync::Arc;

use bytes::Bytes;
use codec::json::DecodeOptions;
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderValue, header};
use meta::{ApiError, AuditRecord, Query, RequestInfo, Str, User, Value, Warnings};

pub(crate) use self::backend::{FaultyBackend, WriteFault};
use crate::{Kind, Payload, ResourceRequest, Storage, serve};

pub(crate) struct TestServer {
    pub(crate) backend: Arc<FaultyBackend>,
    engine: Arc<crate::Engine>,
    kinds: Vec<Arc<Kind>>,
}

/// What a client gets.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Bytes,
    pub(crate) warnings: Vec<String>,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(|widgets| widgets).await
    }

    /// `change` may add to what the widgets of `v1` do.
    pub(crate) async fn start_with(change: impl FnOnce(Kind) -> Kind) -> Self {
        Self::over(Arc::default(), change).await
    }

    /// Another server over the same store, with new caches.
    pub(crate) async fn restarted(&self) -> Self {
        Self::over(self.backend.clone(), |widgets| widgets).await
    }

    async fn over(backend: Arc<FaultyBackend>, change: impl FnOnce(Kind) -> Kind) -> Self {
        let kinds = kinds::all(&backend, change);
        for kind in kinds.iter().filter_map(|kind| kind.storage.as_ref()) {
            kind.cache.fresh().await.expect("the memory backend is there");
        }
        Self { backend, engine: kinds::engine(&kinds[0].schema, kinds::options()), kinds }
    }

    /// The same server with `--enable-garbage-collector=false`.
    pub(crate) fn without_garbage_collection(self) -> Self {
        let options = crate::RegistryOptions { garbage_collection: false, ..kinds::options() };
        Self { engine: kinds::engine(&self.kinds[0].schema, options), ..self }
    }

    pub(crate) fn engine(&self) -> &Arc<crate::Engine> {
        &self.engine
    }

    pub(crate) fn kind(&self, version: &str, plural: &str) -> &Arc<Kind> {
        let mut kinds = self.kinds.iter();
        let found = kinds.find(|kind| kind.gvk().version == version && kind.facts.plural == plural);
        found.unwrap_or_else(|| panic!("no kind {version} {plural}"))
    }

    pub(crate) fn storage(&self, plural: &str) -> &Arc<Storage> {
        self.kind("v1", plural).storage.as_ref().expect("a kind that is stored")
    }

    /// Sends `METHOD /VERSION/[namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]][?QUERY]`. The
    /// method of a patch is its type: `JSON-PATCH`, `MERGE-PATCH`, `STRATEGIC-PATCH`, `APPLY`.
    pub(crate) async fn send(&self, line: &str, body: &str) -> Answer {
        self.send_accepting("application/json", line, body).await
    }

    /// Whether a request would be served on the CPU pool.
    pub(crate) fn is_costly(&self, accept: &str, line: &str, body: &str) -> bool {
        let parts = Parts::read(line, accept, to_json(body));
        crate::is_costly(&parts.request(self, &Warnings::default()))
    }

    pub(crate) async fn send_accepting(&self, accept: &str, line: &str, body: &str) -> Answer {
        let parts = Parts::read(line, accept, to_json(body));
        let warnings = Warnings::default();
        let answer = serve(&parts.request(self, &warnings)).await;
        let answer = answer.and_then(|answer| Ok((answer.code, answer.into_bytes()?)));
        let (code, body) = answer.unwrap_or_else(|error| {
            let status = error.status();
            (status.code, status.to_json().into())
        });
        Answer { code, body, warnings: warnings.take() }
    }

    /// Lists as a client that accepts gzip: `plain` chunks are taken first, then the rest is compressed.
    pub(crate) async fn list_compressed(&self, accept: &str, line: &str, plain: usize) -> Vec<u8> {
        self.try_list_compressed(accept, line, plain).await.expect(line)
    }

    pub(crate) async fn try_list_compressed(
        &self,
        accept: &str,
        line: &str,
        plain: usize,
    ) -> Result<Vec<u8>, ApiError> {
        let mut parts = Parts::read(line, accept, Bytes::new());
        parts.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        let answer = serve(&parts.request(self, &Warnings::default())).await?;
        let (Payload::Chunks(mut chunks) | Payload::CostlyChunks(mut chunks)) = answer.payload
        else {
            panic!("{line} has no chunks");
        };
        let mut gzip = codec::gzip::GzipWriter::new();
        for chunk in chunks.by_ref().take(plain) {
            gzip.write(&chunk?);
        }
        while let Some(written) = chunks.compress_next(&mut gzip) {
            written?;
        }
        Ok(gzip.finish())
    }

    /// Sends a request, and returns what is left in its audit record.
    pub(crate) async fn record(
        &self,
        audit: AuditRecord,
        accept: &str,
        line: &str,
        body: &str,
    ) -> AuditRecord {
        let body = if line.starts_with("APPLY") { body.to_owned().into() } else { to_json(body) };
        let mut parts = Parts::read(line, accept, body);
        parts.audit = audit;
        let warnings = Warnings::default();
        let answer = serve(&parts.request(self, &warnings)).await;
        answer.and_then(crate::ResourceResponse::into_bytes).expect(line);
        parts.audit
    }

    /// Sends a request and compares its answer, see [`Answer::check`].
    pub(crate) async fn check(&self, line: &str, body: &str, expected: &str) -> Answer {
        let answer = self.send(line, body).await;
        answer.check(&format!("{line} {body}"), expected);
        answer
    }

    pub(crate) async fn check_all(&self, cases: &[(&str, &str, &str)]) {
        for (line, body, expected) in cases {
            self.check(line, body, expected).await;
        }
    }

    /// Opens a watch. Err: it is refused.
    pub(crate) async fn watch(&self, path: &str) -> Result<TestWatch, ApiError> {
        self.watch_accepting("application/json", path).await
    }

    pub(crate) async fn watch_accepting(
        &self,
        accept: &str,
        path: &str,
    ) -> Result<TestWatch, ApiError> {
        let parts = Parts::read(&format!("WATCH {path}"), accept, Bytes::new());
        let warnings = Warnings::default();
        match serve(&parts.request(self, &warnings)).await?.payload {
            Payload::Stream(stream) => Ok(TestWatch { stream, lines: Vec::new() }),
            _ => panic!("a watch is a stream"),
        }
    }

    /// Puts bytes into the store behind the server's back.
    pub(crate) async fn write_raw(&self, plural: &str, name: &str, json: &str) {
        let storage = self.storage(plural);
        let namespace = if storage.namespaced { "ns" } else { "" };
        let key = storage.key(namespace, name);
        let write = store::Write::put(key, store::Expect::Any, Bytes::from(json.to_owned()));
        store::Backend::write(&*self.backend, write).await.expect("the memory backend is there");
    }

    /// The resourceVersion of the newest write.
    pub(crate) async fn revision(&self) -> u64 {
        store::Backend::revision(&*self.backend).await.expect("the memory backend is there")
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        decode(&self.body)
    }

    /// `path` is as in [`Answer::check`].
    pub(crate) fn at(&self, path: &str) -> String {
        show(&self.json(), path)
    }

    /// Compares with `CODE PATH=VALUE…`, or for a failure with `CODE REASON: MESSAGE`. A path is
    /// dotted, with numbers for the items of lists; `names` are the names of a list's items. The value
    /// of what is absent is empty.
    pub(crate) fn check(&self, context: &str, expected: &str) {
        let body = self.json();
        let actual = if body.str_at(&["status"]) == "Failure" {
            let (reason, message) = (body.str_at(&["reason"]), body.str_at(&["message"]));
            format!("{} {reason}: {message}", self.code)
        } else {
            let mut actual = self.code.to_string();
            for pair in expected.split(' ').skip(1) {
                let path = pair.split('=').next().unwrap_or_default();
                actual.push_str(&format!(" {path}={}", show(&body, path)));
            }
            actual
        };
        let body = String::from_utf8_lossy(&self.body);
        assert_eq!(actual, expected, "\nrequest: {context}\nanswer: {body}");
    }
}

/// A watch whose events are read one by one.
pub(crate) struct TestWatch {
    stream: std::pin::Pin<Box<dyn futures_core::Stream<Item = Bytes> + Send>>,
    /// What was received and not read, last first.
    lines: Vec<Vec<u8>>,
}

impl TestWatch {
    /// `TYPE NAME RESOURCE_VERSION` of the next event, or what an error says; `end` after the last.
    pub(crate) async fn next(&mut self) -> String {
        let Some(event) = self.next_event().await else { return "end".to_owned() };
        let ty = event.str_at(&["type"]).to_owned();
        let object = event.get("object").expect("an event has an object");
        if ty == "ERROR" {
            return format!("ERROR {} {}", show(object, "code"), object.str_at(&["message"]));
        }
        let meta = |field| object.str_at(&["metadata", field]);
        format!("{ty} {} {}", meta("name"), meta("resourceVersion"))
    }

    pub(crate) async fn next_event(&mut self) -> Option<Value> {
        if self.lines.is_empty() {
            let bytes = self.next_bytes().await?;
            let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            self.lines = lines.map(<[u8]>::to_vec).collect();
            self.lines.reverse();
        }
        self.lines.pop().map(|line| decode(&line))
    }

    pub(crate) async fn next_bytes(&mut self) -> Option<Bytes> {
        let next = tokio::time::timeout(std::time::Duration::from_secs(10), self.stream.next());
        next.await.expect("an event comes within seconds")
    }

    pub(crate) async fn check(&mut self, expected: &[&str]) {
        for expected in expected {
            assert_eq!(self.next().await, *expected);
        }
    }
}

/// A request taken apart.
pub(crate) struct Parts {
    pub(crate) info: RequestInfo,
    query: Query,
    headers: HeaderMap,
    user: User,
    pub(crate) audit: AuditRecord,
    body: Bytes,
}

impl Parts {
    pub(crate) fn read(line: &str, accept: &str, body: Bytes) -> Self {
        let (method, target) = line.split_once(' ').expect("a method and a path");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut steps = path.trim_start_matches('/').split('/').map(Str::new).peekable();
        let mut next = || steps.next().unwrap_or_default();
        let version = next();
        let (mut namespace, mut resource) = (Str::default(), next());
        if resource == "namespaces" {
            (namespace, resource) = (next(), next());
        }
        let (name, subresource) = (next(), next());
        let (verb, content_type) = match method {
            "GET" if name.is_empty() => ("list", ""),
            "GET" => ("get", ""),
            "WATCH" => ("watch", ""),
            "POST" => ("create", "application/json"),
            "PUT" => ("update", "application/json"),
            "DELETE" if name.is_empty() => ("deletecollection", "application/json"),
            "DELETE" => ("delete", "application/json"),
            "JSON-PATCH" => ("patch", "application/json-patch+json"),
            "MERGE-PATCH" => ("patch", "application/merge-patch+json"),
            "STRATEGIC-PATCH" => ("patch", "application/strategic-merge-patch+json"),
            "APPLY" => ("patch", "application/apply-patch+yaml"),
            other => panic!("unknown method {other}"),
        };
        let query = if method == "WATCH" { format!("watch=1&{query}") } else { query.to_owned() };
        let mut headers = HeaderMap::new();
        let value = |text: &str| HeaderValue::from_str(text).expect("a header");
        headers.insert(header::ACCEPT, value(accept));
        headers.insert(header::CONTENT_TYPE, value(content_type));
        headers.insert(header::USER_AGENT, value("test/1.0"));
        Self {
            info: RequestInfo {
                path: path.to_owned(),
                verb: Str::new(verb),
                is_resource: true,
                prefix: "apis".into(),
                group: kinds::GROUP.into(),
                version,
                namespace,
                resource,
                subresource,
                name,
                ..RequestInfo::default()
            },
            query: Query::parse(&query).expect("a query"),
            headers,
            user: User { name: "alice".into(), ..User::default() },
            audit: AuditRecord::default(),
            body,
        }
    }

    pub(crate) fn request<'a>(
        &'a self,
        server: &'a TestServer,
        warnings: &'a Warnings,
    ) -> ResourceRequest<'a> {
        ResourceRequest {
            engine: &server.engine,
            kind: server.kind(&self.info.version, &self.info.resource),
            info: &self.info,
            user: &self.user,
            authenticated_user: &self.user,
            query: &self.query,
            headers: &self.headers,
            body: self.body.clone(),
            warnings,
            audit: &self.audit,
            websocket: false,
            deadline: None,
        }
    }
}

/// A body that is not YAML is sent as it is.
fn to_json(yaml: &str) -> Bytes {
    match codec::yaml::decode_any(yaml.as_bytes(), DecodeOptions { strict: false }) {
        _ if yaml.is_empty() => Bytes::new(),
        // JSON is sent as it is: it may say something twice.
        _ if yaml.starts_with("{\"") => Bytes::from(yaml.to_owned()),
        Ok(decoded) => meta::json::to_string(&decoded.value).into(),
        Err(_) => Bytes::from(yaml.to_owned()),
    }
}

fn decode(json: &[u8]) -> Value {
    let decoded = codec::json::decode_any(json, DecodeOptions { strict: true });
    decoded.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(json))).value
}

fn show(value: &Value, path: &str) -> String {
    if path == "names" {
        let names = value.items_at(&["items"]).iter();
        return names.map(|item| item.str_at(&["metadata", "name"])).collect::<Vec<_>>().join(",");
    }
    let mut found = Some(value);
    for step in path.split('.') {
        found = found.and_then(|value| match value {
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            value => value.get(step),
        });
    }
    match found {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.to_string(),
        Some(other) => meta::json::to_string(other),
    }
}
