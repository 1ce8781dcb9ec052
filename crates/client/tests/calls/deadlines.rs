use std::{sync::Arc, time::Duration};

use client::{BoxFuture, Call, Client, Config, Dial, DialError, Error, Limits, Phase, Stream};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use crate::{
    get, plain, run_all_tasks,
    server::{OK, RawServer},
};

const DEADLINE: Duration = Duration::from_secs(10);

/// Makes a call that has to end at its deadline, once `stalled` is there. The clock is stopped then,
/// so the test takes no time, and a call that waits for anything but its deadline would be seen.
async fn timed_out(client: Client, url: String, stalled: Arc<Notify>) -> Phase {
    let begin = Instant::now();
    let call = Call { deadline: begin + DEADLINE, ..get(&url) };
    let call = tokio::spawn(async move { client.call(call).await });
    stalled.notified().await;
    run_all_tasks().await;
    tokio::time::pause();
    let ended = call.await.expect("the call does not panic");
    assert!(begin.elapsed() < DEADLINE + Duration::from_secs(1), "{:?}", begin.elapsed());
    match ended {
        Err(Error::DeadlineExceeded(phase)) => phase,
        other => panic!("{other:?}"),
    }
}

/// Plays a script to the first request, and then does nothing more.
async fn stalling(answer: &'static [u8], stalled: Arc<Notify>) -> RawServer {
    RawServer::start(move |_, mut peer| {
        let stalled = stalled.clone();
        async move {
            peer.request().await;
            peer.write(answer).await;
            stalled.notify_one();
            std::future::pending::<()>().await;
        }
    })
    .await
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_ends_the_call() {
    let stalled = Arc::new(Notify::new());
    let server = stalling(b"", stalled.clone()).await;
    let phase = timed_out(plain(Limits::default()), server.url(), stalled).await;
    assert_eq!(phase, Phase::WaitingForResponse);
}

#[tokio::test]
async fn a_server_that_never_finishes_its_handshake_ends_the_call() {
    let stalled = Arc::new(Notify::new());
    let reached = stalled.clone();
    let server = RawServer::start(move |_, peer| {
        let reached = reached.clone();
        async move {
            peer.tcp.readable().await.expect("a ClientHello");
            reached.notify_one();
            std::future::pending::<()>().await;
        }
    })
    .await;
    let url = format!("https://{}/", server.address);
    assert_eq!(timed_out(plain(Limits::default()), url, stalled).await, Phase::TlsHandshake);
}

#[tokio::test]
async fn a_server_that_stalls_in_the_body_ends_the_call() {
    let stalled = Arc::new(Notify::new());
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345";
    let server = stalling(half, stalled.clone()).await;
    let phase = timed_out(plain(Limits::default()), server.url(), stalled).await;
    assert_eq!(phase, Phase::ReadingBody);
}

#[tokio::test]
async fn a_server_that_trickles_ends_the_call() {
    let started = Arc::new(Notify::new());
    let reached = started.clone();
    let server = RawServer::start(move |_, mut peer| {
        let reached = reached.clone();
        async move {
            peer.request().await;
            peer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n").await;
            reached.notify_one();
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                peer.write(b".").await;
            }
        }
    })
    .await;
    let phase = timed_out(plain(Limits::default()), server.url(), started).await;
    assert_eq!(phase, Phase::ReadingBody);
}

/// Says that it was asked, and never answers.
struct DialNever(Arc<Notify>);

impl Dial for DialNever {
    fn dial<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, Result<Box<dyn Stream>, DialError>> {
        self.0.notify_one();
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_ends_the_call() {
    let stalled = Arc::new(Notify::new());
    let dial = Arc::new(DialNever(stalled.clone()));
    let client = Client::new(Config { dial, ..Config::default() }).unwrap();
    let phase = timed_out(client, "http://a/".to_owned(), stalled).await;
    assert_eq!(phase, Phase::Dialing);
}

#[tokio::test]
async fn a_call_that_gets_no_connection_ends_and_the_next_one_gets_it() {
    let stalled = Arc::new(Notify::new());
    let (answer, answered) = oneshot::channel::<()>();
    let answered = Arc::new(tokio::sync::Mutex::new(Some(answered)));
    let reached = stalled.clone();
    let server = RawServer::start(move |_, mut peer| {
        let (reached, answered) = (reached.clone(), answered.clone());
        async move {
            peer.request().await;
            reached.notify_one();
            if let Some(answered) = answered.lock().await.take() {
                let _ = answered.await;
            }
            peer.write(OK).await;
            peer.serve_all().await;
        }
    })
    .await;
    let client = plain(Limits { connections_per_host_max: 1, ..Limits::default() });
    let first = tokio::spawn({
        let (client, url) = (client.clone(), server.url());
        async move { client.call(get(&url)).await.map(|response| response.status()) }
    });
    let phase = timed_out(client.clone(), server.url(), stalled).await;
    assert_eq!(phase, Phase::WaitingForConnection);
    tokio::time::resume();
    answer.send(()).unwrap();
    assert_eq!(first.await.unwrap().unwrap(), 200);
    client.call(get(&server.url())).await.unwrap();
    assert_eq!(server.accepted(), 1);
}
