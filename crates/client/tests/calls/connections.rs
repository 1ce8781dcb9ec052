use std::{sync::Arc, time::Duration};

use client::{Error, Limits, Trust};
use http::Method;
use tokio::sync::{Notify, Semaphore};

use crate::{
    call, get, plain, post, run_all_tasks,
    server::{Ca, HTTP1, HTTP2, OK, RawServer, TlsServer},
    text, trusting,
};

#[tokio::test]
async fn a_connection_is_used_again_over_http1_and_http2() {
    let ca = Ca::new();
    for (alpn, version) in [(HTTP1, "HTTP/1.1 "), (HTTP2, "HTTP/2.0 "), (&[], "HTTP/1.1 ")] {
        let server = TlsServer::start(&ca.sign(&["127.0.0.1"]), alpn, None).await;
        let client = trusting(Trust::Bundle(ca.pem()));
        for number in 0..5 {
            let call = if number % 2 == 0 { get } else { post };
            let seen = text(&client, call(&server.url("/"))).await;
            assert!(seen.starts_with(version), "{seen}");
            run_all_tasks().await;
        }
        assert_eq!(server.accepted(), 1, "{version}");
    }
}

#[tokio::test]
async fn a_burst_over_http2_ends_with_one_connection() {
    let ca = Ca::new();
    let server = TlsServer::start(&ca.sign(&["127.0.0.1"]), HTTP2, None).await;
    let client = trusting(Trust::Bundle(ca.pem()));
    let burst = || async {
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let (client, url) = (client.clone(), server.url("/"));
                tokio::spawn(async move { text(&client, get(&url)).await })
            })
            .collect();
        for call in calls {
            assert!(call.await.unwrap().starts_with("HTTP/2.0 "));
        }
    };
    burst().await;
    let first = server.accepted();
    burst().await;
    assert_eq!(server.accepted(), first);
}

#[tokio::test]
async fn no_more_connections_than_allowed_are_open() {
    let (asked, answers) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (ask, answer) = (asked.clone(), answers.clone());
    let server = RawServer::start(move |_, mut peer| {
        let (ask, answer) = (ask.clone(), answer.clone());
        async move {
            while peer.request().await.is_some() {
                ask.add_permits(1);
                answer.acquire().await.unwrap().forget();
                peer.write(OK).await;
            }
        }
    })
    .await;
    let client = plain(Limits { connections_per_host_max: 2, ..Limits::default() });
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let (client, url) = (client.clone(), server.url());
            tokio::spawn(async move { text(&client, get(&url)).await })
        })
        .collect();
    asked.acquire_many(2).await.unwrap().forget();
    run_all_tasks().await;
    assert_eq!((server.accepted(), server.requests()), (2, 2));
    answers.add_permits(5);
    for call in calls {
        assert_eq!(call.await.unwrap(), "ok");
    }
    assert_eq!((server.accepted(), server.requests()), (2, 5));
}

#[tokio::test]
async fn connections_beyond_the_idle_bound_are_closed() {
    let (both, closed) = (Arc::new(tokio::sync::Barrier::new(2)), Arc::new(Notify::new()));
    let gone = closed.clone();
    let server = RawServer::start(move |_, mut peer| {
        let (both, gone) = (both.clone(), gone.clone());
        async move {
            peer.request().await;
            both.wait().await;
            peer.write(OK).await;
            peer.serve_all().await;
            gone.notify_one();
        }
    })
    .await;
    let client = plain(Limits { idle_connections_per_host_max: 1, ..Limits::default() });
    let url = server.url();
    let (one, two) = tokio::join!(text(&client, get(&url)), text(&client, get(&url)));
    assert_eq!((one.as_str(), two.as_str()), ("ok", "ok"));
    closed.notified().await;
    assert_eq!(text(&client, get(&url)).await, "ok");
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_a_while() {
    let closed = Arc::new(Notify::new());
    let gone = closed.clone();
    let server = RawServer::start(move |_, mut peer| {
        let gone = gone.clone();
        async move {
            peer.serve_all().await;
            gone.notify_one();
        }
    })
    .await;
    let limits = Limits { idle_timeout: Duration::from_mins(1), ..Limits::default() };
    let client = plain(limits);
    assert_eq!(text(&client, get(&server.url())).await, "ok");
    run_all_tasks().await;
    let begin = tokio::time::Instant::now();
    tokio::time::pause();
    closed.notified().await;
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(59) && took < Duration::from_secs(62), "{took:?}");
    tokio::time::resume();
    assert_eq!(text(&client, get(&server.url())).await, "ok");
    assert_eq!(server.accepted(), 2);
}

/// The server closes each connection after one answer, without having said so.
#[tokio::test]
async fn a_connection_that_the_server_has_closed_does_not_fail_the_next_call() {
    let closed = Arc::new(Notify::new());
    let gone = closed.clone();
    let server = RawServer::start(move |_, mut peer| {
        let gone = gone.clone();
        async move {
            peer.request().await;
            peer.write(OK).await;
            drop(peer);
            gone.notify_one();
        }
    })
    .await;
    let client = plain(Limits::default());
    for (number, call) in [get, get, post, post].into_iter().enumerate() {
        assert_eq!(text(&client, call(&server.url())).await, "ok");
        closed.notified().await;
        // hyper has noticed, so nothing was sent in vain, of a POST neither.
        run_all_tasks().await;
        assert_eq!(server.requests(), number + 1);
    }
    assert_eq!(server.accepted(), 4);
}

/// Answers the first request of a connection, and closes it upon the second without an answer.
async fn closes_upon_second() -> RawServer {
    RawServer::start(|_, mut peer| async move {
        peer.request().await;
        peer.write(OK).await;
        peer.request().await;
    })
    .await
}

/// Connections, and requests, that the second of two calls leads to.
async fn second_call(method: Method) -> (Result<String, Error>, usize, usize) {
    let server = closes_upon_second().await;
    let client = plain(Limits::default());
    assert_eq!(text(&client, get(&server.url())).await, "ok");
    run_all_tasks().await;
    let second = client.call(call(method, &server.url())).await;
    let second = second.map(|response| String::from_utf8_lossy(response.body()).into_owned());
    run_all_tasks().await;
    (second, server.accepted(), server.requests())
}

#[tokio::test]
async fn a_get_is_sent_again_when_its_connection_dies() {
    let (second, accepted, requests) = second_call(Method::GET).await;
    assert_eq!((second.unwrap().as_str(), accepted, requests), ("ok", 2, 3));
}

#[tokio::test]
async fn a_post_is_not_sent_again_when_its_connection_dies() {
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
        let (second, accepted, requests) = second_call(method).await;
        assert!(matches!(&second, Err(Error::Http(error)) if error.is_incomplete_message()));
        assert_eq!((accepted, requests), (1, 2));
    }
}

#[tokio::test]
async fn nothing_is_sent_again_over_a_new_connection() {
    let server = RawServer::start(|_, mut peer| async move {
        peer.request().await;
    })
    .await;
    let failed = plain(Limits::default()).call(get(&server.url())).await;
    assert!(matches!(failed, Err(Error::Http(_))));
    assert_eq!((server.accepted(), server.requests()), (1, 1));
}

#[tokio::test]
async fn a_dropped_call_closes_its_connection() {
    let (asked, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (ask, gone) = (asked.clone(), closed.clone());
    let server = RawServer::start(move |_, mut peer| {
        let (ask, gone) = (ask.clone(), gone.clone());
        async move {
            peer.request().await;
            ask.notify_one();
            // Never answered.
            peer.request().await;
            gone.notify_one();
        }
    })
    .await;
    let (client, url) = (plain(Limits::default()), server.url());
    let dropped = tokio::spawn(async move { client.call(get(&url)).await.map(drop) });
    asked.notified().await;
    dropped.abort();
    closed.notified().await;
}
