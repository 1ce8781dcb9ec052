//! Calls to real servers on loopback: over TLS with hyper (`TlsServer`), and over plain TCP where a
//! test decides about every byte (`RawServer`).

mod bounds;
mod connections;
mod deadlines;
mod server;
mod streams;
mod trust;

use std::time::Duration;

use bytes::Bytes;
use client::{Call, Client, Config, Limits, Tls, Trust};
use http::{HeaderMap, Method};
use tokio::time::Instant;

/// Long enough that no test reaches it by being slow.
const LONG: Duration = Duration::from_mins(2);

fn call(method: Method, url: &str) -> Call {
    Call {
        method,
        url: url.parse().expect("tests have valid URLs"),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        connect_to: None,
        deadline: Instant::now() + LONG,
        response_bytes_max: 1024 * 1024,
    }
}

fn get(url: &str) -> Call {
    call(Method::GET, url)
}

fn post(url: &str) -> Call {
    Call { body: Bytes::from_static(b"{}"), ..call(Method::POST, url) }
}

fn client(tls: Tls) -> Client {
    Client::new(Config { tls, ..Config::default() }).expect("the settings are valid")
}

fn trusting(trust: Trust) -> Client {
    client(Tls { trust, ..Tls::default() })
}

fn plain(limits: Limits) -> Client {
    let tls = Tls { trust: Trust::Insecure, ..Tls::default() };
    Client::new(Config { tls, limits, ..Config::default() }).expect("the settings are valid")
}

/// The body of a response, as text.
async fn text(client: &Client, call: Call) -> String {
    let response = client.call(call).await.expect("the call succeeds");
    String::from_utf8(response.into_body().to_vec()).expect("tests answer in text")
}

/// Lets all tasks run until none of them has anything to do: what was written on loopback has been
/// read then.
async fn run_all_tasks() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}
