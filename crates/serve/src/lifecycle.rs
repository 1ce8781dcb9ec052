//! From the first signal to the end: shutdown in kube-apiserver's phases, and what each waits for.

pub(crate) mod drain;
mod in_flight;

use std::future::Future;
use std::io;
use std::time::Duration;

use futures_util::future::join;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

pub use self::in_flight::{Draining, Ending, InFlight, InFlightGuard};
use crate::listener::Server;

/// Something that happens once.
pub struct Signal {
    name: &'static str,
    fired: watch::Sender<bool>,
}

impl Signal {
    fn new(name: &'static str) -> Self {
        Self { name, fired: watch::Sender::new(false) }
    }

    /// Whether it has happened.
    pub fn is_fired(&self) -> bool {
        *self.fired.borrow()
    }

    /// Waits for it, no longer than it takes.
    pub async fn fired(&self) {
        // The sender is `self`, so it cannot be gone.
        let _ = self.fired.subscribe().wait_for(|fired| *fired).await;
    }

    fn fire(&self) {
        tracing::info!(name = self.name, "[graceful-termination] shutdown event");
        self.fired.send_replace(true);
    }
}

/// The phases of a shutdown, in their order.
pub struct Lifecycle {
    /// `/readyz` fails from here on; everything else goes on.
    pub shutdown_initiated: Signal,
    pub after_shutdown_delay_duration: Signal,
    pub pre_shutdown_hooks_stopped: Signal,
    /// New requests are refused: there is no listener any more, or they are told to try again elsewhere.
    pub not_accepting_new_request: Signal,
    pub in_flight_requests_drained: Signal,
    pub http_server_stopped_listening: Signal,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            shutdown_initiated: Signal::new("ShutdownInitiated"),
            after_shutdown_delay_duration: Signal::new("AfterShutdownDelayDuration"),
            pre_shutdown_hooks_stopped: Signal::new("PreShutdownHooksStopped"),
            not_accepting_new_request: Signal::new("NotAcceptingNewRequest"),
            in_flight_requests_drained: Signal::new("InFlightRequestsDrained"),
            http_server_stopped_listening: Signal::new("HTTPServerStoppedListening"),
        }
    }
}

/// How long each phase may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownOptions {
    /// `--shutdown-delay-duration`: time for load balancers to see that `/readyz` fails.
    pub delay: Duration,
    /// `--shutdown-send-retry-after`: keep listening while draining, to tell clients to try again.
    pub send_retry_after: bool,
    /// `--shutdown-watch-termination-grace-period`: watches end one after the other within this time; zero ends them all
    /// at once and waits for none.
    pub watch_grace_period: Duration,
    /// `--request-timeout`: no request takes longer, so draining does not either.
    pub request_timeout: Duration,
}

impl Default for ShutdownOptions {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            send_retry_after: false,
            watch_grace_period: Duration::ZERO,
            request_timeout: Duration::from_mins(1),
        }
    }
}

impl ShutdownOptions {
    /// How long a shutdown takes at most; a process that is still there after it hangs.
    pub fn longest(&self) -> Duration {
        let drain = self.request_timeout.max(self.watch_grace_period);
        self.delay + drain + HTTP_TIMEOUT + SHUTDOWN_MARGIN
    }
}

/// For what has no time limit of its own: hooks, the store's last writes.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(30);

impl Lifecycle {
    /// Waits for `stop`, then walks through the phases; returns when the last connection is closed. `pre_shutdown_hooks` runs
    /// beside the delay, while requests are still served; `flush_audit` when the last one was answered.
    pub async fn run(
        &self,
        server: &Server,
        in_flight: &InFlight,
        options: &ShutdownOptions,
        stop: impl Future<Output = ()>,
        pre_shutdown_hooks: impl Future<Output = ()>,
        flush_audit: impl Future<Output = ()>,
    ) {
        stop.await;
        self.shutdown_initiated.fire();
        let delay = async {
            tokio::time::sleep(options.delay).await;
            self.after_shutdown_delay_duration.fire();
        };
        let hooks = async {
            pre_shutdown_hooks.await;
            self.pre_shutdown_hooks_stopped.fire();
        };
        join(delay, hooks).await;

        self.not_accepting_new_request.fire();
        let drain = async {
            self.drain(in_flight, options).await;
            self.in_flight_requests_drained.fire();
            flush_audit.await;
        };
        let stop_http = async {
            let timeout = if options.send_retry_after {
                self.in_flight_requests_drained.fired().await;
                RETRY_AFTER_HTTP_TIMEOUT
            } else {
                HTTP_TIMEOUT
            };
            server.stop_listening().await;
            self.http_server_stopped_listening.fire();
            let cut = server.shutdown(timeout).await;
            if cut > 0 {
                tracing::warn!(connections = cut, "cut off connections that did not end");
            }
        };
        join(drain, stop_http).await;
        tracing::info!("[graceful-termination] apiserver is exiting");
    }

    async fn drain(&self, in_flight: &InFlight, options: &ShutdownOptions) {
        let requests = async {
            let drained = in_flight.drain_requests();
            if tokio::time::timeout(options.request_timeout, drained).await.is_err() {
                tracing::warn!("requests are still running after their timeout");
            }
            tracing::info!(
                "[graceful-termination] in-flight non long-running request(s) have drained"
            );
        };
        let watches = async {
            let before = in_flight.long_running();
            in_flight.end_long_running(options.watch_grace_period).await;
            let after = in_flight.long_running();
            tracing::info!(
                active_watches_before = before,
                active_watches_after = after,
                "[graceful-termination] active watch request(s) have drained"
            );
        };
        join(requests, watches).await;
    }
}

/// For connections to end by themselves once nothing runs on them.
const HTTP_TIMEOUT: Duration = Duration::from_mins(1);
/// All requests are answered by then; what is left is to close connections.
const RETRY_AFTER_HTTP_TIMEOUT: Duration = Duration::from_secs(2);

/// Resolves at the first SIGTERM or SIGINT. A second one ends the process at once, with code 1: the operator does not
/// want to wait. So does a shutdown that takes longer than `longest`. To be called once.
///
/// Signals have a thread and a runtime of their own, so that they are heard even when all other threads are busy.
pub fn stop_signal(longest: Duration) -> io::Result<impl Future<Output = ()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let (first, received) = oneshot::channel();
    std::thread::Builder::new().name("pintle-signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            let mut next =
                async || tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} };
            next().await;
            // The receiver may not be waiting yet.
            let _ = first.send(());
            if tokio::time::timeout(longest, next()).await.is_err() {
                tracing::error!(after = ?longest, "shutdown did not end; leaving at once");
            }
            leave_at_once();
        });
    })?;
    Ok(async move {
        // Without its thread nothing would hear a signal any more, which is a reason to stop as well.
        let _ = received.await;
    })
}

#[expect(clippy::disallowed_methods, reason = "a second signal asks for just that")]
fn leave_at_once() -> ! {
    std::process::exit(1)
}

#[cfg(test)]
mod tests;
