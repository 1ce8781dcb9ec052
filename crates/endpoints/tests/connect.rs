//! CONNECT subresources: admission sees them, and nothing is read before they ask for it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, OnceLock},
};

use admission::{Attributes, BoxFuture, Cluster, Operation, Plugin};
use bytes::Bytes;
use endpoints::{Connect, Connecter, Connecters, Kinds, Resources};
use futures_util::StreamExt as _;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use meta::{ApiError, GroupResource, GroupVersionKind, Query, RequestInfo, User, Value, value};
use registry::{Behaviour, DefaultStrategy, Engine, Kind, RegistryOptions};
use schema::{ResourceFacts, Schema};
use serve::{Body, Context, Delegate as _, Serving, connection::Peer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// Sends back what the client sends: over the upgraded connection, or as the body comes in.
struct Echo;

impl Connecter for Echo {
    fn options(&self, query: &Query, _info: &RequestInfo) -> Result<Value, ApiError> {
        if query.text("command").is_empty() {
            return Err(ApiError::bad_request(
                "you must specify at least 1 command for the container",
            ));
        }
        Ok(
            value!({"kind": "PodExecOptions", "apiVersion": "v1", "command": [(query.text("command"))]}),
        )
    }

    fn methods(&self) -> &'static [Method] {
        &[Method::POST]
    }

    fn connect<'a>(&'a self, connect: Connect<'a>) -> Serving<'a> {
        Box::pin(async move {
            let mut request = connect.request;
            if !request.headers().contains_key(header::UPGRADE) {
                let body = request.into_body().into_data_stream();
                return Ok(Response::new(Body::events(body.filter_map(async |data| data.ok()))));
            }
            let upgraded = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgraded.await.expect("the client switches"));
                let mut line = [0; 5];
                stream.read_exact(&mut line).await.expect("the client sends");
                stream.write_all(&line).await.expect("the client reads");
            });
            let mut response = Response::new(Body::full(Bytes::new()));
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let echo = HeaderValue::from_static("echo");
            response.headers_mut().insert(header::UPGRADE, echo);
            let upgrade = HeaderValue::from_static("upgrade");
            response.headers_mut().insert(header::CONNECTION, upgrade);
            Ok(response)
        })
    }
}

/// Notes what admission is asked about, and refuses the command `rm`.
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Plugin for Recorder {
    fn name(&self) -> &'static str {
        "Recorder"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Connect
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let command = object.map(|options| options.items_at(&["command"])[0].clone());
        let seen = format!(
            "{} {} {}/{} by {} for {} dry run {}",
            attributes.operation.as_str(),
            attributes.gvk.kind,
            attributes.gvr.resource,
            attributes.subresource,
            attributes.authenticated_user.name,
            attributes.user.name,
            attributes.options.is_dry_run(),
        );
        self.0.lock().unwrap().push(seen);
        let refused = command.is_some_and(|command| command == Value::from("rm"));
        Box::pin(async move { if refused { Err(ApiError::bad_request("no")) } else { Ok(()) } })
    }
}

fn server(seen: &Arc<Mutex<Vec<String>>>) -> Arc<Resources> {
    let facts = ResourceFacts {
        kind: GroupVersionKind::new("", "v1", "Pod"),
        plural: "pods".into(),
        namespaced: true,
        type_id: schema().1,
        ..ResourceFacts::default()
    };
    let schema = schema().0;
    let strategy = Arc::new(DefaultStrategy);
    let pods = Kind::new(facts, schema.clone(), Behaviour::default(), strategy, None, None, None);
    let cluster = admission::testing::empty_cluster();
    let authorizer = cluster.authorizer.clone();
    let admission = admission::Chain::new(vec![Box::new(Recorder(seen.clone()))], cluster);
    let options = RegistryOptions {
        min_request_timeout: std::time::Duration::from_mins(30),
        offered: codec::negotiate::OFFERED,
        delete_collection_workers: 1,
        garbage_collection: true,
        unsafe_deletion: false,
    };
    let words = Box::new(|_: &[(&str, &str)]| Vec::new());
    let engine = Engine::new(admission, authorizer, options, schema, words);
    let echo = Connecters::default().with(GroupResource::new("", "pods"), "exec", Arc::new(Echo));
    let resources = Resources::new("test", engine, Kinds::new([Arc::new(pods)]));
    Arc::new(resources.with_connecters(echo))
}

fn schema() -> (Arc<Schema>, schema::TypeId) {
    static SCHEMA: OnceLock<(Arc<Schema>, schema::TypeId)> = OnceLock::new();
    let made = SCHEMA.get_or_init(|| {
        let mut schema = Schema::default();
        let pod = schema.add(schema::Type::default());
        (Arc::new(schema), pod)
    });
    made.clone()
}

/// A connection to the server over which `jane` sends requests as `robot`.
fn client(server: Arc<Resources>) -> DuplexStream {
    let (client, connection) = tokio::io::duplex(64 * 1024);
    let service = service_fn(move |request: Request<Incoming>| {
        let server = server.clone();
        async move {
            let peer = Peer::detached(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
            let mut cx = Context::new(Arc::new(peer));
            cx.info = RequestInfo {
                is_resource: true,
                verb: "create".into(),
                version: "v1".into(),
                namespace: "n".into(),
                resource: "pods".into(),
                subresource: "exec".into(),
                name: "p".into(),
                ..RequestInfo::default()
            };
            cx.user = User { name: "robot".into(), ..User::default() };
            cx.authenticated_user = Some(User { name: "jane".into(), ..User::default() });
            let answer = server.serve(&mut cx, request).await;
            Ok::<_, std::convert::Infallible>(answer.unwrap_or_else(|error| {
                let mut response = Response::new(Body::full(error.to_string()));
                *response.status_mut() = StatusCode::from_u16(error.status().code).unwrap();
                response
            }))
        }
    });
    tokio::spawn(async move {
        let connection = TokioIo::new(connection);
        let _ = http1::Builder::new().serve_connection(connection, service).with_upgrades().await;
    });
    client
}

/// What the server sends until it has sent `end`.
async fn read_until(client: &mut DuplexStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let mut byte = [0];
        let read = client.read(&mut byte).await.expect("the connection is open");
        assert_eq!(read, 1, "the connection ended after {text:?}");
        text.push(byte[0].into());
    }
    text
}

#[tokio::test]
async fn a_connecter_takes_the_connection_over_once_admission_has_seen_its_options() {
    let seen = Arc::default();
    let mut client = client(server(&seen));
    let request = "POST /exec?command=cat HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n\
                   upgrade: echo\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let head = read_until(&mut client, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    client.write_all(b"hello").await.unwrap();
    assert_eq!(read_until(&mut client, "hello").await, "hello");
    let expected = "CONNECT PodExecOptions pods/exec by jane for robot dry run false";
    assert_eq!(*seen.lock().unwrap(), [expected]);
}

#[tokio::test]
async fn a_body_is_streamed_while_the_client_still_sends_it() {
    let mut client = client(server(&Arc::default()));
    let head = "POST /exec?command=cat HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    read_until(&mut client, "\r\n\r\n").await;
    // Each chunk comes back before the next is sent.
    for chunk in ["one", "two", "three"] {
        let sent = format!("{:x}\r\n{chunk}\r\n", chunk.len());
        client.write_all(sent.as_bytes()).await.unwrap();
        assert!(read_until(&mut client, &format!("{chunk}\r\n")).await.contains(chunk));
    }
}

#[tokio::test]
async fn wrong_options_and_what_admission_refuses_never_reach_the_connecter() {
    let seen = Arc::default();
    let mut client = client(server(&seen));
    for (query, message) in
        [("", "you must specify at least 1 command for the container"), ("command=rm", "no")]
    {
        let request =
            format!("POST /exec?{query} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let head = read_until(&mut client, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
        assert_eq!(read_until(&mut client, message).await, message);
    }
    assert_eq!(seen.lock().unwrap().len(), 1, "options are read before admission is asked");
}
