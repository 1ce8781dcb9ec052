//! Hollow nodes.

use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use http::Method;
use http_body_util::BodyExt as _;
use memchr::memmem::Finder;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use super::objects::{lease, lease_path, namespace_of, node_name, node_status, now};
use super::stats::{Stats, Work};
use super::{Cluster, Load};
use crate::client::{Call, Client, Failure, JSON, Keep, PROTOBUF, Target};

/// One node in so many is timed, by the thread that also times what is no node.
const TIMED_NODES: usize = 16;

/// Starts the nodes: most of them by `bulk`, which receives their events.
pub(super) async fn start(cluster: &Rc<Cluster>, bulk: &Bulk, nodes: Range<usize>) -> Result<()> {
    let (timed, others) = nodes.partition(|node| node % TIMED_NODES == 0);
    bulk.start(&cluster.stats, others).await;
    start_these(cluster, timed).await
}

/// A thread with the nodes whose latencies are not measured: each event of the cluster is for all nodes, and a thread that
/// receives it thousands of times has no time to look at a clock.
pub(super) struct Bulk(mpsc::Sender<Vec<usize>>);

impl Bulk {
    pub(super) fn spawn(target: Target, stats: &Stats, load: Load) -> Self {
        let (sender, mut received) = mpsc::channel(1);
        let stats = stats.untimed();
        std::thread::spawn(move || {
            let serve = async {
                let client = Client::connect(&target, 1).await?;
                let cluster = Rc::new(Cluster { target, client, stats, load });
                while let Some(nodes) = received.recv().await {
                    start_these(&cluster, nodes).await?;
                    cluster.stats.started();
                }
                Ok(())
            };
            if let Err(error) = crate::block_on(LocalSet::new().run_until(serve)) {
                eprintln!("nodes do not start: {error:#}");
            }
        });
        Self(sender)
    }

    async fn start(&self, stats: &Stats, nodes: Vec<usize>) {
        // Until it has counted their watches. One that has failed has said so.
        stats.starts();
        let _ = self.0.send(nodes).await;
    }
}

/// Opens the connections and starts what the nodes do.
async fn start_these(cluster: &Rc<Cluster>, nodes: Vec<usize>) -> Result<()> {
    for node in nodes {
        let client = Rc::new(Client::connect(&cluster.target, 1).await?);
        for path in watched(node) {
            cluster.stats.starts();
            spawn_local(follow(cluster.clone(), client.clone(), path));
        }
        spawn_local(renew(cluster.clone(), client.clone(), node));
        spawn_local(report_status(cluster.clone(), client, node));
    }
    Ok(())
}

/// What a kubelet and a kube-proxy watch.
fn watched(node: usize) -> [String; 7] {
    let (name, namespace) = (node_name(node), namespace_of(node));
    let object = |resource: &str, name: &str| {
        format!("/api/v1/namespaces/{namespace}/{resource}?fieldSelector=metadata.name%3D{name}&")
    };
    [
        format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{name}&"),
        format!("/api/v1/nodes?fieldSelector=metadata.name%3D{name}&"),
        object("configmaps", "checkout-config"),
        object("configmaps", "kube-root-ca.crt"),
        object("secrets", "checkout-db"),
        "/api/v1/services?".to_owned(),
        "/apis/discovery.k8s.io/v1/endpointslices?".to_owned(),
    ]
}

/// Watches for ever, beginning with the state as client-go's reflectors do: one that the server ends is opened again.
/// The caller has counted it as one that starts.
pub(super) async fn follow(cluster: Rc<Cluster>, client: Rc<Client>, path: String) {
    let watch = format!(
        "{path}watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let call = Call::get(watch).accept(PROTOBUF_STREAM);
    let mut is_starting = true;
    loop {
        if let Ok(response) = client.open(&call).await
            && response.status().is_success()
        {
            let (mut body, mut moments) = (response.into_body(), Moments::new());
            // A deleted object has the moment of the write before, which was counted when that came.
            let mut seen = HashSet::new();
            while let Some(Ok(frame)) = body.frame().await {
                let Some(data) = frame.data_ref() else { continue };
                cluster.stats.saw(data.len());
                let initial_events_end = moments.feed(data, |moment| {
                    if seen.insert(moment) {
                        cluster.stats.saw_event(moment);
                    }
                });
                if initial_events_end && std::mem::take(&mut is_starting) {
                    cluster.stats.started();
                }
            }
        }
        cluster.stats.watch_ended();
        tokio::time::sleep(RETRY).await;
    }
}

async fn renew(cluster: Rc<Cluster>, client: Rc<Client>, node: usize) {
    let mut version = String::new();
    let mut ticks = ticks(node, LEASE_EVERY);
    loop {
        ticks.tick().await;
        if version.is_empty() {
            version = current_version(&client, node).await.unwrap_or_default();
        }
        let body = lease(node, &version, &now());
        let call = Call::send(Method::PUT, lease_path(node), JSON, body);
        let work = Work::Single("update leases");
        version = match cluster.stats.timed(work, &client, &call, Keep::Head).await {
            Ok(answer) => resource_version(&answer.kept).unwrap_or_default(),
            Err(_) => String::new(),
        };
    }
}

async fn current_version(client: &Client, node: usize) -> Result<String, Failure> {
    let answer = client.ok(&Call::get(lease_path(node)), Keep::Head).await?;
    Ok(resource_version(&answer.kept).unwrap_or_default())
}

/// Found without parsing: it stands in the metadata, before anything that a user writes.
fn resource_version(object: &[u8]) -> Option<String> {
    const MARKER: &[u8] = b"\"resourceVersion\":\"";
    let begin = memchr::memmem::find(object, MARKER)? + MARKER.len();
    let digits = object[begin..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.map(|&byte| char::from(byte)).collect())
}

async fn report_status(cluster: Rc<Cluster>, client: Rc<Client>, node: usize) {
    let path = format!("/api/v1/nodes/{}/status", node_name(node));
    let mut ticks = ticks(node, STATUS_EVERY);
    loop {
        ticks.tick().await;
        let body = node_status(&cluster.stats.moment());
        let call = Call::send(Method::PATCH, path.clone(), STRATEGIC, body);
        let work = Work::Single("patch nodes/status");
        // Counted in the statistics.
        let _ = cluster.stats.timed(work, &client, &call, Keep::Nothing).await;
    }
}

/// Spread over the period, so that the nodes do not all come at once.
fn ticks(node: usize, period: Duration) -> tokio::time::Interval {
    let share = (node as f64 * 0.618_034).fract();
    let first = tokio::time::Instant::now() + period.mul_f64(share);
    let mut ticks = tokio::time::interval_at(first, period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks
}

/// Finds the moments that writes carry in an annotation, and the end of the initial events, in a stream of protobuf.
pub(super) struct Moments {
    protobuf: Finder<'static>,
    initial_events_end: Finder<'static>,
    /// The end of what came before: a moment may be cut in two.
    rest: Vec<u8>,
}

impl Moments {
    pub(super) fn new() -> Self {
        Self {
            protobuf: Finder::new(b"\nbench-sent\x12"),
            initial_events_end: Finder::new(b"k8s.io/initial-events-end"),
            rest: Vec::new(),
        }
    }

    /// Returns whether the bookmark after the initial events is there.
    pub(super) fn feed(&mut self, data: &[u8], mut event: impl FnMut(u64)) -> bool {
        let joined;
        let text = if self.rest.is_empty() {
            data
        } else {
            joined = [&self.rest[..], data].concat();
            &joined
        };
        let mut from = 0;
        while let Some(at) = self.protobuf.find(&text[from..]) {
            let begin = from + at + MARKER_BYTES;
            let Some(&length) = text.get(begin) else { break };
            let Some(digits) = text.get(begin + 1..begin + 1 + usize::from(length)) else { break };
            if let Some(moment) =
                std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok())
            {
                event(moment);
            }
            from = begin + 1;
        }
        let ended = self.initial_events_end.find(text).is_some();
        let keep = from.max(text.len().saturating_sub(MOMENT_BYTES_MAX));
        self.rest = text[keep..].to_vec();
        ended
    }
}

/// Of the entry's key with its length, and the tag of its value.
const MARKER_BYTES: usize = 12;
/// The longest that a moment with its marker can be.
const MOMENT_BYTES_MAX: usize = 40;

const PROTOBUF_STREAM: &str =
    "application/vnd.kubernetes.protobuf;stream=watch,application/vnd.kubernetes.protobuf";
pub(super) const LIST_FORMAT: &str = PROTOBUF;
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";
const LEASE_EVERY: Duration = Duration::from_secs(10);
const STATUS_EVERY: Duration = Duration::from_mins(5);
const RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_found_however_the_stream_is_cut() {
        let entry = |moment: &str| {
            let mut entry = b"..\x0a\x14\x0a\nbench-sent\x12".to_vec();
            entry.push(moment.len() as u8);
            entry.extend_from_slice(moment.as_bytes());
            entry
        };
        let end = b"k8s.io/initial-events-end".to_vec();
        let stream =
            [entry("17"), b"\"f:bench-sent\":{}".to_vec(), end, entry("4200"), vec![0; 50]]
                .concat();
        for size in [1, 2, 7, 31, 1000] {
            let (mut moments, mut found, mut ended) = (Moments::new(), Vec::new(), false);
            for part in stream.chunks(size) {
                ended |= moments.feed(part, |moment| found.push(moment));
            }
            assert_eq!(found, [17, 4200], "cut into pieces of {size}");
            assert!(ended, "cut into pieces of {size}");
        }
    }

    #[test]
    fn the_version_of_an_object_is_found() {
        let object = br#"{"metadata":{"name":"x","resourceVersion":"123","uid":"y"}}"#;
        assert_eq!(resource_version(object).as_deref(), Some("123"));
        assert_eq!(resource_version(b"{}"), None);
    }
}
