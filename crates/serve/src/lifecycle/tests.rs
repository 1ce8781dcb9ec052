use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use tokio::net::TcpStream;

use super::*;
use crate::listener::testing::{Client, Setup, TestServer};

const NEVER: Duration = Duration::from_mins(10);

/// Runs a shutdown in the background.
fn shut_down(
    server: &TestServer,
    in_flight: &Arc<InFlight>,
    options: ShutdownOptions,
    hooks: impl Future<Output = ()> + Send + 'static,
) -> (Arc<Lifecycle>, Arc<AtomicBool>, tokio::task::JoinHandle<()>) {
    let lifecycle = Arc::new(Lifecycle::default());
    let flushed = Arc::new(AtomicBool::new(false));
    let (running, server, in_flight) =
        (lifecycle.clone(), server.server.clone(), in_flight.clone());
    let audit = flushed.clone();
    let task = tokio::spawn(async move {
        let flush = async { audit.store(true, Ordering::SeqCst) };
        running.run(&server, &in_flight, &options, async {}, hooks, flush).await;
    });
    (lifecycle, flushed, task)
}

#[tokio::test]
async fn running_requests_end_before_the_server_does() {
    let server = TestServer::start(Setup::default());
    let in_flight = Arc::new(InFlight::default());
    let mut connection = Client { http2: true, ..server.client() }.connect().await;
    let waiting = tokio::spawn(async move { connection.get("/wait").await.status });
    server.eventually(|server| server.handler.running() == 1).await;
    let inside = in_flight.enter(false).expect("open");
    let watch = in_flight.enter(true).expect("open");

    let (lifecycle, flushed, ended) =
        shut_down(&server, &in_flight, ShutdownOptions::default(), async {});
    lifecycle.http_server_stopped_listening.fired().await;
    assert!(lifecycle.shutdown_initiated.is_fired());
    assert!(lifecycle.not_accepting_new_request.is_fired());
    assert!(TcpStream::connect(server.server.address()).await.is_err());
    watch.ending().await;
    assert_eq!(in_flight.enter(false).err(), Some(Draining));
    assert!(!lifecycle.in_flight_requests_drained.is_fired());

    server.handler.release();
    assert_eq!(waiting.await.expect("no panic"), StatusCode::OK);
    assert!(!flushed.load(Ordering::SeqCst), "the last request may still write to the audit log");
    drop(inside);
    ended.await.expect("no panic");
    assert!(lifecycle.in_flight_requests_drained.is_fired());
    assert!(flushed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn hooks_and_delay_come_before_anything_is_refused() {
    let server = TestServer::start(Setup::default());
    let in_flight = Arc::new(InFlight::default());
    let (go_on, hook) = oneshot::channel();
    let (lifecycle, _, ended) = shut_down(&server, &in_flight, ShutdownOptions::default(), async {
        hook.await.expect("told to go on");
    });
    lifecycle.after_shutdown_delay_duration.fired().await;
    assert!(!lifecycle.pre_shutdown_hooks_stopped.is_fired());
    assert!(!lifecycle.not_accepting_new_request.is_fired());
    let answer = server.client().connect().await.get("/whoami").await;
    assert_eq!(answer.status, StatusCode::OK, "hooks need the server themselves");
    assert!(in_flight.enter(false).is_ok());

    go_on.send(()).expect("the hook waits");
    ended.await.expect("no panic");

    let server = TestServer::start(Setup::default());
    let options = ShutdownOptions { delay: NEVER, ..ShutdownOptions::default() };
    let (lifecycle, _, running) = shut_down(&server, &in_flight, options, async {});
    lifecycle.pre_shutdown_hooks_stopped.fired().await;
    assert!(lifecycle.shutdown_initiated.is_fired());
    assert!(!lifecycle.not_accepting_new_request.is_fired());
    running.abort();
}

#[tokio::test]
async fn with_retry_after_the_server_listens_until_all_is_drained() {
    let server = TestServer::start(Setup::default());
    let in_flight = Arc::new(InFlight::default());
    let inside = in_flight.enter(false).expect("open");
    let options = ShutdownOptions { send_retry_after: true, ..ShutdownOptions::default() };
    let (lifecycle, _, ended) = shut_down(&server, &in_flight, options, async {});
    lifecycle.not_accepting_new_request.fired().await;
    let answer = server.client().connect().await.get("/whoami").await;
    assert_eq!(answer.status, StatusCode::OK, "the handler is asked and could say 429");
    assert!(!lifecycle.http_server_stopped_listening.is_fired());
    drop(inside);
    ended.await.expect("no panic");
    assert!(lifecycle.http_server_stopped_listening.is_fired());
}

#[tokio::test]
async fn a_request_that_does_not_end_holds_nothing_up_after_its_timeout() {
    let server = TestServer::start(Setup::default());
    let in_flight = Arc::new(InFlight::default());
    let _stuck = in_flight.enter(false).expect("open");
    let request_timeout = Duration::from_millis(20);
    let options = ShutdownOptions { request_timeout, ..ShutdownOptions::default() };
    let (_, _, ended) = shut_down(&server, &in_flight, options, async {});
    tokio::time::timeout(NEVER, ended).await.expect("in time").expect("no panic");
}

#[tokio::test]
async fn a_signal_asks_to_stop() {
    let mut stop = Box::pin(stop_signal(Duration::from_hours(1)).expect("signals can be received"));
    let early = tokio::time::timeout(Duration::from_millis(1), &mut stop).await;
    assert!(early.is_err(), "shutdown was not requested yet");
    let pid = std::process::id().to_string();
    let sent = std::process::Command::new("kill").args(["-TERM", &pid]).status();
    assert!(sent.expect("kill can be run").success());
    stop.await;
}
