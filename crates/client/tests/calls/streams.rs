use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client::{
    BoxFuture, Client, Config, Credentials, Dial, DialError, Error, Limits, SendOptions, Stream,
    TcpDial, Tls, Trust, empty_body, full_body,
};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::Notify,
};

use crate::{
    get, plain, run_all_tasks,
    server::{Ca, HTTP1, HTTP2, OK, RawServer, TlsServer},
    text, trusting,
};

#[tokio::test]
async fn a_body_is_handed_over_as_it_comes() {
    let more = Arc::new(Notify::new());
    let go_on = more.clone();
    let server = RawServer::start(move |_, mut peer| {
        let go_on = go_on.clone();
        async move {
            peer.request().await;
            peer.write(b"HTTP/1.1 302 Found\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
                .await;
            go_on.notified().await;
            peer.write(b"3\r\ntwo\r\n0\r\n\r\n").await;
            peer.serve_all().await;
        }
    })
    .await;
    let client = plain(Limits::default());
    let request = Request::get(server.url()).body(empty_body()).unwrap();
    let mut response = client.send(request, SendOptions::default()).await.unwrap();
    // What is done about a redirect is for the caller to decide.
    assert_eq!(response.status(), StatusCode::FOUND);
    let next = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(next, "one");
    more.notify_one();
    let rest = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(rest, "two");
    // The connection is free again only now, and used.
    assert_eq!(text(&client, get(&server.url())).await, "ok");
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_response_outlives_its_client() {
    let ca = Ca::new();
    for alpn in [HTTP1, HTTP2] {
        let server = TlsServer::start(&ca.sign(&["127.0.0.1"]), alpn, None).await;
        let client = trusting(Trust::Bundle(ca.pem()));
        let body = full_body(Bytes::from(vec![0; 100_000]));
        let request = Request::post(server.url("/")).body(body).unwrap();
        let response = client.send(request, SendOptions::default()).await.unwrap();
        drop(client);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.ends_with(b"body=100000"));
    }
}

#[tokio::test]
async fn a_connection_can_be_upgraded() {
    let server = RawServer::start(|_, mut peer| async move {
        let request = peer.request().await.unwrap();
        assert!(request.to_lowercase().contains("upgrade: echo\r\n"), "{request}");
        peer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\n",
        )
        .await;
        let mut buffer = [0; 5];
        peer.tcp.read_exact(&mut buffer).await.unwrap();
        peer.write(&buffer).await;
    })
    .await;
    let request = Request::get(server.url())
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "echo")
        .body(empty_body())
        .unwrap();
    let client = plain(Limits::default());
    let response = client.send(request, SendOptions::default()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut upgraded = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    upgraded.write_all(b"hello").await.unwrap();
    let mut echoed = [0; 5];
    upgraded.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"hello");
}

/// An upgraded connection belongs to its caller, who may keep it for days; hyper's sender, which the
/// pool has, ends with the 101.
#[tokio::test]
async fn upgraded_connections_count_until_they_are_closed() {
    let server = RawServer::start(|_, mut peer| async move {
        let request = peer.request().await.unwrap();
        if request.starts_with("GET /echo") {
            peer.write(
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\n",
            )
            .await;
            // Until the client closes it.
            let _ = peer.tcp.read(&mut [0]).await;
        } else {
            peer.write(OK).await;
            peer.serve_all().await;
        }
    })
    .await;
    let client = plain(Limits { connections_per_host_max: 2, ..Limits::default() });
    let upgrade = |dedicated| {
        let request = Request::get(format!("{}echo", server.url()))
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "echo")
            .body(empty_body())
            .unwrap();
        client.send(request, SendOptions { dedicated, ..SendOptions::default() })
    };
    let mut open = Vec::new();
    for dedicated in [true, false] {
        let response = upgrade(dedicated).await.unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        open.push(hyper::upgrade::on(response).await.unwrap());
    }
    run_all_tasks().await;
    for dedicated in [true, false] {
        let refused = upgrade(dedicated).await.err();
        assert!(
            matches!(refused, Some(Error::TooManyUpgrades { connections_max: 2, .. })),
            "{refused:?}"
        );
    }
    // Other calls to the host have their own bound.
    assert_eq!(text(&client, get(&server.url())).await, "ok");
    open.pop();
    run_all_tasks().await;
    assert_eq!(upgrade(true).await.unwrap().status(), StatusCode::SWITCHING_PROTOCOLS);
}

#[tokio::test]
async fn an_upgrade_is_asked_for_over_http1() {
    let ca = Ca::new();
    let server = TlsServer::start(&ca.sign(&["127.0.0.1"]), HTTP2, None).await;
    let client = trusting(Trust::Bundle(ca.pem()));
    assert!(text(&client, get(&server.url("/"))).await.starts_with("HTTP/2.0"));
    let mut upgrade = get(&server.url("/"));
    upgrade.headers.insert(header::CONNECTION, "Upgrade".parse().unwrap());
    upgrade.headers.insert(header::UPGRADE, "websocket".parse().unwrap());
    assert!(text(&client, upgrade).await.starts_with("HTTP/1.1"));
}

/// Goes to one address whatever it is asked for, and notes what that was.
struct Egress {
    asked: Mutex<Vec<String>>,
    to: std::net::SocketAddr,
}

impl Dial for Egress {
    fn dial<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<Box<dyn Stream>, DialError>> {
        self.asked.lock().unwrap().push(format!("{host} {port}"));
        Box::pin(async move {
            let to = self.to.ip().to_string();
            TcpDial::default().dial(&to, self.to.port()).await
        })
    }
}

#[tokio::test]
async fn connections_are_opened_by_the_dial_hook() {
    let ca = Ca::new();
    let server = TlsServer::start(&ca.sign(&["a.example"]), HTTP2, None).await;
    let egress = Arc::new(Egress { asked: Mutex::default(), to: server.address });
    let tls = Tls { trust: Trust::Bundle(ca.pem()), ..Tls::default() };
    let client = Client::new(Config { tls, dial: egress.clone(), ..Config::default() }).unwrap();
    let seen = text(&client, get("https://a.example:8443/b")).await;
    assert!(seen.starts_with("HTTP/2.0 GET /b host=a.example:8443 "), "{seen}");
    assert_eq!(*egress.asked.lock().unwrap(), ["a.example 8443"]);
}

#[tokio::test]
async fn a_refused_connection_names_its_address() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let failed = plain(Limits::default()).call(get(&format!("http://{closed}/"))).await;
    let failed = failed.unwrap_err();
    let expected = format!("connect to {closed}: Connection refused (os error 111)");
    assert_eq!(failed.to_string(), expected);
    assert!(matches!(failed, client::Error::Dial(DialError::Connect { .. })));
}

#[tokio::test]
async fn a_token_is_sent_and_follows_its_file() {
    let ca = Ca::new();
    let server = TlsServer::start(&ca.sign(&["127.0.0.1"]), HTTP2, None).await;
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    let replace = |text: &str| {
        let new = dir.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &token).unwrap();
    };
    replace("first\n");
    let tls = Tls { trust: Trust::Bundle(ca.pem()), ..Tls::default() };
    let credentials = Credentials::BearerFile(token.clone());
    let client = Client::new(Config { tls, credentials, ..Config::default() }).unwrap();
    let url = server.url("/");
    assert!(text(&client, get(&url)).await.contains("authorization=Bearer first "));
    replace("second\n");
    assert!(text(&client, get(&url)).await.contains("authorization=Bearer second "));
    assert_eq!(server.accepted(), 1);
    // A request may bring its own.
    let mut own = get(&url);
    own.method = Method::PUT;
    own.headers.insert(header::AUTHORIZATION, "Bearer own".parse().unwrap());
    assert!(text(&client, own).await.contains("authorization=Bearer own "));
}

/// A shared connection takes as many calls as a server allows; what waits behind them would wait for
/// watches.
#[tokio::test]
async fn more_calls_than_a_connection_takes_open_another() {
    let ca = Ca::new();
    let server = TlsServer::start(&ca.sign(&["127.0.0.1"]), HTTP2, None).await;
    let tls = Tls { trust: Trust::Bundle(ca.pem()), ..Tls::default() };
    let limits = Limits { streams_per_connection_max: 3, ..Limits::default() };
    let client = Client::new(Config { tls, limits, ..Config::default() }).unwrap();
    let mut responses = Vec::new();
    for expected in [1, 1, 1, 2, 2, 2, 3] {
        let request = Request::get(server.url("/")).body(empty_body()).unwrap();
        responses.push(client.send(request, SendOptions::default()).await.unwrap());
        assert_eq!(server.accepted(), expected);
    }
    // Those that are over make room.
    responses.clear();
    assert!(text(&client, get(&server.url("/"))).await.starts_with("HTTP/2.0"));
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn a_dedicated_connection_is_used_once() {
    let server = RawServer::start(|_, mut peer| async move { peer.serve_all().await }).await;
    let client = plain(Limits::default());
    assert_eq!(text(&client, get(&server.url())).await, "ok");
    for _ in 0..2 {
        let request = Request::get(server.url()).body(empty_body()).unwrap();
        let options = SendOptions { dedicated: true, ..SendOptions::default() };
        let response = client.send(request, options).await.unwrap();
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(text(&client, get(&server.url())).await, "ok");
    assert_eq!(server.accepted(), 3);
}
