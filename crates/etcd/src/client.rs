//! The members of an etcd cluster: connections, failover and retries.
//!
//! One member serves all calls until it fails, then the next one does. Each member has two
//! connections, opened on demand: one for unary calls and one for watch streams, so that a flood of
//! events does not delay a response.

use std::error::Error as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::PathAndQuery;
use parking_lot::Mutex;
use prost::Message;
use store::StoreError;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::Streaming;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;
use trace::{Kind, Span};

use crate::error::is_member_failure;
use crate::metrics::{self, CallType};
use crate::{Options, Tls, pb};

/// The gRPC methods in use.
pub(crate) mod method {
    pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
    pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
    pub(crate) const COMPACT: &str = "/etcdserverpb.KV/Compact";
    pub(crate) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
    pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
    pub(crate) const MOVE_LEADER: &str = "/etcdserverpb.Maintenance/MoveLeader";
    pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
}

pub(crate) struct Client {
    members: Vec<Member>,
    /// The member that serves calls. Advances when that one fails.
    current: AtomicUsize,
    /// When broken watches were last logged as a warning.
    warned_at: Mutex<Option<Instant>>,
}

struct Member {
    url: String,
    calls: Channel,
    watches: Channel,
}

/// The status of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub version: String,
    pub member: u64,
    pub leader: u64,
    /// Size of the database file, free pages included.
    pub db_size: u64,
}

/// Whether a call may be sent again after a member failed in the middle of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The call is idempotent.
    Always,
    /// Only if the first attempt certainly had no effect.
    IfUnsent,
}

/// A call that failed.
#[derive(Debug)]
pub(crate) struct CallError {
    pub(crate) status: tonic::Status,
    /// Whether the call may have taken effect.
    pub(crate) outcome_unknown: bool,
}

impl Client {
    pub(crate) fn new(options: &Options) -> Result<Self, String> {
        let tls = read_tls(&options.tls)?;
        let members = options.servers.iter();
        let dialer = options.dialer.as_ref();
        let members = members.map(|url| Member::new(url, tls.as_ref(), dialer));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        if members.is_empty() {
            return Err("no etcd servers are given".to_owned());
        }
        Ok(Self { members, current: AtomicUsize::new(0), warned_at: Mutex::default() })
    }

    /// Calls a method on the current member, and on the following ones as far as `retry` allows.
    pub(crate) async fn call<Q, A>(
        &self,
        method: &'static str,
        request: Q,
        retry: Retry,
    ) -> Result<A, CallError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let deadline = Instant::now() + CALL_TIMEOUT;
        let mut attempt = 0;
        loop {
            let at = self.current.load(Ordering::Relaxed);
            let attempt_deadline = (Instant::now() + ATTEMPT_TIMEOUT).min(deadline);
            let call = self.members[at].call(method, request.clone());
            let status = match timeout_at(attempt_deadline, call).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_) => tonic::Status::deadline_exceeded(TIMED_OUT),
            };
            if !is_member_failure(&status) {
                return Err(CallError { status, outcome_unknown: false });
            }
            self.fail_over(at);
            let outcome_unknown = !is_unsent(&status);
            if (outcome_unknown && retry == Retry::IfUnsent) || Instant::now() >= deadline {
                return Err(CallError { status, outcome_unknown });
            }
            tracing::debug!(member = %self.members[at].url, %status, "retrying on another member");
            attempt += 1;
            if attempt % self.members.len() == 0 {
                // All members have failed: an election may be in progress.
                sleep(ROUND_BACKOFF).await;
            }
        }
    }

    /// Opens a stream for a watch.
    pub(crate) async fn watch(
        &self,
        at: usize,
        requests: ReceiverStream<pb::WatchRequest>,
    ) -> Result<Streaming<pb::WatchResponse>, tonic::Status> {
        self.members[at].watch(requests).await
    }

    /// The stream of a watch broke: the next one is opened on the next member.
    pub(crate) fn watch_failed(&self, at: usize, why: &str) {
        self.fail_over(at);
        let url = &self.members[at].url;
        // All watches of a member break together; only one of them is worth a warning.
        let mut warned_at = self.warned_at.lock();
        if warned_at.is_none_or(|warned_at| warned_at.elapsed() > WARN_INTERVAL) {
            *warned_at = Some(Instant::now());
            tracing::warn!(member = url, why, "watch streams of an etcd member broke");
        } else {
            tracing::debug!(member = url, why, "a watch stream of etcd broke");
        }
    }

    /// Whether a member responds at all, on the connection of its watches.
    pub(crate) async fn is_reachable(&self, at: usize) -> bool {
        let member = &self.members[at];
        let call =
            unary::<_, pb::StatusResponse>(&member.watches, method::STATUS, pb::StatusRequest {});
        timeout_at(Instant::now() + PROBE_TIMEOUT, call).await.is_ok_and(|answer| answer.is_ok())
    }

    /// The member failed: the next one serves calls from now on.
    pub(crate) fn fail_over(&self, from: usize) {
        let next = (from + 1) % self.members.len();
        // The first caller to notice advances it; for the others it has advanced already.
        let _ = self.current.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// The status of each member.
    pub(crate) async fn statuses(&self) -> Vec<(String, Result<Status, StoreError>)> {
        let mut statuses = Vec::with_capacity(self.members.len());
        for member in &self.members {
            let call = member.call::<_, pb::StatusResponse>(method::STATUS, pb::StatusRequest {});
            let status = match timeout_at(Instant::now() + ATTEMPT_TIMEOUT, call).await {
                Ok(Ok(status)) => Ok(Status {
                    member: status.header.map_or(0, |header| header.member_id),
                    version: status.version,
                    leader: status.leader,
                    db_size: status.db_size.max(0) as u64,
                }),
                Ok(Err(status)) => Err(crate::error::store_error(&status)),
                Err(_) => Err(StoreError::Unavailable(TIMED_OUT.to_owned())),
            };
            statuses.push((member.url.clone(), status));
        }
        statuses
    }

    /// Asks the leader to transfer leadership.
    pub(crate) async fn move_leader(&self, target: u64) -> Result<(), StoreError> {
        let mut last = StoreError::Unavailable("no member is the leader".to_owned());
        for member in &self.members {
            let request = pb::MoveLeaderRequest { target_id: target };
            let call = member.call::<_, pb::MoveLeaderResponse>(method::MOVE_LEADER, request);
            match timeout_at(Instant::now() + ATTEMPT_TIMEOUT, call).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(status)) => last = crate::error::store_error(&status),
                Err(_) => {}
            }
        }
        Err(last)
    }
}

/// Timeout of one attempt. etcd itself gives up a proposal after about 7 seconds, so only a member
/// that hangs altogether reaches this.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(4);
/// Timeout of a call with all its attempts.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout of the probe of a member that sends nothing.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
const WARN_INTERVAL: Duration = Duration::from_secs(1);
const ROUND_BACKOFF: Duration = Duration::from_millis(100);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// etcd closes connections of clients that ping more often than every 5 seconds.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Compat: etcd's own message.
const TIMED_OUT: &str = "etcdserver: request timed out";
/// etcd fragments watch responses and ranges are read in pages, so this is never reached; without a
/// bound a faulty member could make the apiserver allocate any amount of memory.
const RESPONSE_BYTES_MAX: usize = 1 << 30;

impl Member {
    fn new(
        url: &str,
        tls: Option<&ClientTlsConfig>,
        dialer: Option<&grpc::Dialer>,
    ) -> Result<Self, String> {
        let failed = |error: &dyn std::error::Error| format!("etcd server {url}: {error}");
        let full = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let mut endpoint = Endpoint::from_shared(full.clone())
            .map_err(|error| failed(&error))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
        if full.starts_with("https://") {
            let tls =
                tls.ok_or_else(|| format!("etcd server {url}: https needs a CA (--etcd-cafile)"))?;
            endpoint = endpoint.tls_config(tls.clone()).map_err(|error| failed(&error))?;
        }
        let with_windows = |stream, connection| {
            let endpoint = endpoint.clone().initial_stream_window_size(stream);
            let endpoint = endpoint.initial_connection_window_size(connection);
            match dialer {
                Some(dialer) => endpoint.connect_with_connector_lazy(dialer.clone()),
                None => endpoint.connect_lazy(),
            }
        };
        let calls = with_windows(CALLS_WINDOW_BYTES, CALLS_WINDOW_BYTES);
        let watches = with_windows(WATCH_WINDOW_BYTES, WATCHES_WINDOW_BYTES);
        Ok(Self { url: full, calls, watches })
    }

    async fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A, tonic::Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        unary(&self.calls, method, request).await
    }

    async fn watch(
        &self,
        requests: ReceiverStream<pb::WatchRequest>,
    ) -> Result<Streaming<pb::WatchResponse>, tonic::Status> {
        let mut grpc =
            Grpc::new(self.watches.clone()).max_decoding_message_size(RESPONSE_BYTES_MAX);
        grpc.ready().await.map_err(|error| tonic::Status::from_error(error.into()))?;
        let codec = ProstCodec::<pb::WatchRequest, pb::WatchResponse>::default();
        let path = http_path(method::WATCH);
        metrics::started(method::WATCH, CallType::BidiStream);
        let opened = grpc.streaming(with_leader(requests), path, codec).await;
        let opened = opened.inspect_err(|status| {
            metrics::handled(method::WATCH, CallType::BidiStream, status.code());
        });
        Ok(opened?.into_inner())
    }
}

async fn unary<Q, A>(
    channel: &Channel,
    method: &'static str,
    request: Q,
) -> Result<A, tonic::Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut span = call_span(method);
    metrics::started(method, CallType::Unary);
    metrics::sent(method, CallType::Unary);
    let answered = span.run(async {
        let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(RESPONSE_BYTES_MAX);
        grpc.ready().await.map_err(|error| tonic::Status::from_error(error.into()))?;
        let codec = ProstCodec::<Q, A>::default();
        let request = with_trace(with_leader(request));
        grpc.unary(request, http_path(method), codec).await
    });
    let answered = answered.await;
    match &answered {
        Ok(_) => {
            metrics::received(method, CallType::Unary);
            metrics::handled(method, CallType::Unary, Code::Ok);
        }
        Err(status) => metrics::handled(method, CallType::Unary, status.code()),
    }
    let answered = answered.inspect_err(|status| {
        if span.is_recorded() {
            span.attribute("rpc.grpc.status_code", i64::from(status.code() as i32));
            span.error(status.message());
        }
    })?;
    Ok(answered.into_inner())
}

/// Ranges are large, and the round trip to etcd is short.
const CALLS_WINDOW_BYTES: u32 = 4 << 20;
/// How much a watch may leave unread before its member stops sending.
const WATCH_WINDOW_BYTES: u32 = 2 << 20;
/// The same for all watches of a member, so that one that is not read does not block the others.
const WATCHES_WINDOW_BYTES: u32 = 64 << 20;

fn http_path(method: &'static str) -> PathAndQuery {
    PathAndQuery::from_static(method)
}

/// Compat: named after the method, as otelgrpc does.
fn call_span(method: &'static str) -> Span {
    let method = method.trim_start_matches('/');
    let mut span = trace::start_kind(Kind::Client, method);
    if span.is_recorded() {
        let (service, method) = method.split_once('/').unwrap_or((method, ""));
        span.attribute("rpc.system", "grpc");
        span.attribute("rpc.service", service);
        span.attribute("rpc.method", method);
    }
    span
}

/// Tells etcd, which has traces of its own, which span it is called from.
fn with_trace<T>(mut request: Request<T>) -> Request<T> {
    let mut propagated = trace::propagated_headers().peekable();
    if propagated.peek().is_some() {
        let mut headers = std::mem::take(request.metadata_mut()).into_headers();
        headers.extend(propagated);
        *request.metadata_mut() = MetadataMap::from_headers(headers);
    }
    request
}

/// Makes a member that has lost its leader return an error instead of hanging or serving stale
/// data.
fn with_leader<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

/// Whether the request certainly had no effect.
fn is_unsent(status: &tonic::Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    status.code() == Code::Unavailable
        && matches!(status.message(), "etcdserver: no leader" | "etcdserver: not leader")
}

fn read_tls(tls: &Tls) -> Result<Option<ClientTlsConfig>, String> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let mut config = match &tls.ca_file {
        Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
        None => return Ok(None),
    };
    if let (Some(cert), Some(key)) = (&tls.cert_file, &tls.key_file) {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(Some(config))
}
