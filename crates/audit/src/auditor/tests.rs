use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use meta::{AuditLevel, Str, User, time::Time};
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::{
    DeliveryOptions, WebhookOptions,
    event::{ObjectReference, Stage},
    options::tests::{delivery, log, truncate},
};

fn event(number: usize) -> Event {
    Event {
        level: AuditLevel::Metadata,
        audit_id: format!("4d312b2f-eae4-4cb3-8c06-{number:012}"),
        stage: Stage::ResponseComplete,
        request_uri: "/api/v1/namespaces/default/pods/web-5d78c9869d-abcde".to_owned(),
        verb: "get".into(),
        user: User {
            name: "system:serviceaccount:kube-system:deployment-controller".into(),
            uid: "631b68a3-bc89-4b47-8d17-575813c62195".into(),
            groups: ["system:serviceaccounts", "system:serviceaccounts:kube-system"]
                .map(Into::into)
                .to_vec(),
            extra: vec![(
                "authentication.kubernetes.io/credential-id".into(),
                vec!["JTI=4d31".into()],
            )],
        },
        impersonated_user: None,
        impersonation_constraint: Str::default(),
        source_ips: vec!["10.0.0.1".parse().unwrap()],
        user_agent: "kube-controller-manager/v1.36.4 (linux/amd64) kubernetes/abc".to_owned(),
        object_ref: Some(ObjectReference {
            resource: "pods".into(),
            namespace: "default".into(),
            name: "web-5d78c9869d-abcde".into(),
            api_version: "v1".into(),
            ..ObjectReference::default()
        }),
        response_status: Some(crate::ResponseStatus::code(200)),
        request_object: None,
        response_object: None,
        request_received: Time::now(),
        stage_time: Time::now(),
        annotations: BTreeMap::from([
            ("authorization.k8s.io/decision".to_owned(), "allow".to_owned()),
            (
                "authorization.k8s.io/reason".to_owned(),
                "RBAC: allowed by ClusterRoleBinding".to_owned(),
            ),
        ]),
    }
}

struct Setup {
    directory: tempfile::TempDir,
    options: Options,
}

impl Setup {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let policy = directory.path().join("policy.yaml");
        let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
        fs::write(&policy, text).unwrap();
        Self { directory, options: Options { policy_file: Some(policy), ..Options::default() } }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("audit.log")
    }

    fn with_log(mut self, mode: &str) -> Self {
        self.options.log = log(self.path().to_str().unwrap());
        self.options.log.delivery = delivery(mode);
        self
    }

    fn with_webhook(mut self, port: u16, delivery: DeliveryOptions) -> Self {
        let file = self.directory.path().join("kubeconfig");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c}}}}], \
             clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}/events'}}}}]}}"
        );
        fs::write(&file, text).unwrap();
        self.options.webhook = WebhookOptions {
            config_file: Some(file),
            version: "audit.k8s.io/v1".to_owned(),
            initial_backoff: Duration::from_millis(20),
            delivery,
            truncate: truncate(),
        };
        self
    }

    fn start(&self) -> Arc<Auditor> {
        assert_eq!(self.options.validate(), Vec::<String>::new());
        let metrics = AuditMetrics::register(&Registry::new());
        Auditor::start(&self.options, metrics, &Tasks::default())
            .unwrap()
            .expect("a policy and a backend")
    }
}

fn ids(text: &str) -> Vec<usize> {
    let ids = text.match_indices("4d312b2f-eae4-4cb3-8c06-");
    ids.map(|(at, prefix)| text[at + prefix.len()..][..12].parse().unwrap()).collect()
}

fn lines(path: &Path) -> Vec<usize> {
    ids(&fs::read_to_string(path).unwrap())
}

#[tokio::test]
async fn without_policy_or_backend_nothing_is_recorded() {
    let setup = Setup::new();
    let metrics = AuditMetrics::register(&Registry::new());
    assert!(Auditor::start(&setup.options, metrics.clone(), &Tasks::default()).unwrap().is_none());
    let mut setup = setup.with_log("blocking");
    setup.options.policy_file = None;
    assert!(Auditor::start(&setup.options, metrics.clone(), &Tasks::default()).unwrap().is_none());
    assert!(!setup.path().exists());
    setup.options.policy_file = Some("/none".into());
    let error = Auditor::start(&setup.options, metrics, &Tasks::default()).err().unwrap();
    assert!(error.starts_with("loading audit policy file: failed to read file path \"/none\": "));
}

#[tokio::test]
async fn the_log_has_every_event_in_order() {
    for mode in ["blocking", "blocking-strict", "batch"] {
        let setup = Setup::new().with_log(mode);
        let auditor = setup.start();
        for number in 0..50 {
            assert!(auditor.process(&event(number)).stored().await);
        }
        auditor.flush(Duration::from_secs(10)).await;
        assert_eq!(lines(&setup.path()), (0..50).collect::<Vec<_>>(), "{mode}");
        assert_eq!(auditor.metrics.events.get(), 50);
    }
}

#[tokio::test]
async fn only_blocking_strict_tells_of_a_failure() {
    for (mode, stored) in [("blocking", true), ("blocking-strict", false)] {
        let mut setup = Setup::new().with_log(mode);
        // Every write to this device fails: no space left.
        setup.options.log.path = "/dev/full".to_owned();
        let auditor = setup.start();
        assert_eq!(auditor.process(&event(1)).stored().await, stored, "{mode}");
        assert_eq!(auditor.metrics.errors("log"), 1);
    }
}

#[tokio::test]
async fn large_events_lose_their_objects_and_then_themselves() {
    let mut setup = Setup::new().with_log("blocking");
    setup.options.log.truncate.enabled = true;
    setup.options.log.truncate.max_event_bytes = 1500;
    let auditor = setup.start();
    let mut large = event(1);
    large.level = AuditLevel::Request;
    large.request_object = Some(format!("{{\"a\":\"{}\"}}", "x".repeat(2000)).into_bytes());
    let mut larger = event(2);
    larger.user_agent = "x".repeat(2000);
    for event in [&event(0), &large, &larger, &event(3)] {
        assert!(auditor.process(event).stored().await);
    }
    assert_eq!(lines(&setup.path()), [0, 1, 3]);
    let text = fs::read_to_string(setup.path()).unwrap();
    assert_eq!(text.matches("audit.k8s.io/truncated\":\"true\"").count(), 1);
    assert_eq!(auditor.metrics.errors("truncate"), 1);
}

#[tokio::test]
async fn the_legacy_format_has_a_line_per_event() {
    let mut setup = Setup::new().with_log("blocking");
    setup.options.log.format = "legacy".to_owned();
    let auditor = setup.start();
    assert!(auditor.process(&event(7)).stored().await);
    let text = fs::read_to_string(setup.path()).unwrap();
    assert!(text.contains(" AUDIT: id=") && text.ends_with("response=\"200\"\n"), "{text}");
}

/// A server that fails the first calls and keeps the bodies of the others.
struct Receiver {
    port: u16,
    calls: Arc<AtomicUsize>,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    async fn start(failures: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (calls, bodies) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let receiver = Self { port, calls: calls.clone(), bodies: bodies.clone() };
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (calls, bodies) = (calls.clone(), bodies.clone());
                tokio::spawn(async move {
                    let mut read = Vec::new();
                    let mut buffer = [0; 4096];
                    loop {
                        let text = String::from_utf8_lossy(&read).into_owned();
                        if let Some((head, body)) = text.split_once("\r\n\r\n") {
                            let length = head.to_lowercase();
                            let length = length.split_once("content-length: ").unwrap().1;
                            let length: usize = length.lines().next().unwrap().parse().unwrap();
                            if body.len() == length {
                                assert!(head.starts_with("POST /events HTTP/1.1"), "{head}");
                                let call = calls.fetch_add(1, Ordering::SeqCst);
                                let code = if call < failures { "500 no" } else { "200 OK" };
                                if call >= failures {
                                    bodies.lock().push(body.to_owned());
                                }
                                let answer =
                                    format!("HTTP/1.1 {code}\r\ncontent-length: 0\r\n\r\n");
                                stream.write_all(answer.as_bytes()).await.unwrap();
                                read.clear();
                                continue;
                            }
                        }
                        match stream.read(&mut buffer).await {
                            Ok(0) | Err(_) => return,
                            Ok(count) => read.extend_from_slice(&buffer[..count]),
                        }
                    }
                });
            }
        });
        receiver
    }

    fn received(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.bodies.lock().iter().flat_map(|body| ids(body)).collect();
        all.sort_unstable();
        all
    }
}

fn batches() -> DeliveryOptions {
    DeliveryOptions {
        max_batch_size: 4,
        max_batch_wait: Duration::from_secs(30),
        ..delivery("batch")
    }
}

#[tokio::test]
async fn a_webhook_gets_batches_and_is_retried() {
    let receiver = Receiver::start(2).await;
    let setup = Setup::new().with_webhook(receiver.port, batches());
    let auditor = setup.start();
    for number in 0..10 {
        assert!(auditor.process(&event(number)).stored().await);
    }
    // Two batches are full; the third one goes out at shutdown.
    auditor.flush(Duration::from_secs(10)).await;
    assert_eq!(receiver.received(), (0..10).collect::<Vec<_>>());
    assert_eq!(receiver.bodies.lock().len(), 3);
    assert!(receiver.bodies.lock()[0].starts_with(
        r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[{"level":"#
    ));
    assert_eq!(receiver.calls.load(Ordering::SeqCst), 5);
    assert_eq!(auditor.metrics.errors("webhook"), 0);
    assert!(auditor.process(&event(11)).stored().await);
    assert_eq!(auditor.metrics.errors("buffered"), 1, "closed");
}

/// Panics at the first call, then dials as always.
struct PanicsOnce(AtomicUsize);

impl Dial for PanicsOnce {
    fn dial<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> client::BoxFuture<'a, Result<Box<dyn client::Stream>, client::DialError>> {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "asked for");
        Box::pin(async move { client::TcpDial::default().dial(host, port).await })
    }
}

#[tokio::test]
async fn a_batch_that_panics_is_counted_and_the_next_ones_are_sent() {
    let receiver = Receiver::start(0).await;
    let setup = Setup::new().with_webhook(receiver.port, batches());
    let (metrics, tasks) = (AuditMetrics::register(&Registry::new()), Tasks::default());
    let dial = Some(Arc::new(PanicsOnce(AtomicUsize::new(0))) as Arc<dyn Dial>);
    let auditor = Auditor::start_with(&setup.options, metrics, dial, &tasks).unwrap().unwrap();
    for number in 0..4 {
        assert!(auditor.process(&event(number)).stored().await);
    }
    while tasks.panics("audit-batch") == 0 {
        tokio::task::yield_now().await;
    }
    for number in 4..10 {
        assert!(auditor.process(&event(number)).stored().await);
    }
    auditor.flush(Duration::from_secs(10)).await;
    assert_eq!(receiver.received(), (4..10).collect::<Vec<_>>());
    assert_eq!(auditor.metrics.errors("webhook"), 4, "lost events are counted");
    assert_eq!((tasks.running("audit-batches"), tasks.running("audit-batch")), (0, 0));
}

#[tokio::test]
async fn a_blocking_webhook_answers_for_its_event() {
    for (mode, failures, stored) in
        [("blocking", 0, true), ("blocking", 9, true), ("blocking-strict", 9, false)]
    {
        let receiver = Receiver::start(failures).await;
        let setup = Setup::new().with_webhook(receiver.port, delivery(mode));
        let auditor = setup.start();
        assert_eq!(auditor.process(&event(1)).stored().await, stored, "{mode} {failures}");
        let lost = u64::from(failures > 0);
        assert_eq!(auditor.metrics.errors("webhook"), lost);
        assert_eq!(receiver.calls.load(Ordering::SeqCst), if failures > 0 { 5 } else { 1 });
    }
}

#[tokio::test]
async fn a_webhook_that_is_down_fills_the_queue_and_no_more() {
    // Nothing listens on the port of a listener that is gone.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let mut setup = Setup::new().with_webhook(port, batches());
    setup.options.webhook.initial_backoff = Duration::from_mins(10);
    let auditor = setup.start();
    for number in 0..5000 {
        assert!(auditor.process(&event(number)).stored().await);
        if number % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    // A hundred in the queue, and at most sixteen batches and one more under way.
    let refused = auditor.metrics.errors("buffered");
    assert!((5000 - 100 - 17 * 4..=4900).contains(&refused), "{refused}");
    let began = Instant::now();
    auditor.flush(Duration::from_millis(100)).await;
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(refused + auditor.metrics.errors("webhook"), 5000, "all lost events are counted");
}

/// `cargo test --release -p audit -- --ignored --nocapture cost`
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "a measurement"]
async fn cost_of_an_event_in_batch_mode() {
    let mut setup = Setup::new().with_log("batch");
    setup.options.log.delivery.buffer_size = 1_000_000;
    let auditor = setup.start();
    let (rounds, event) = (200_000, event(1));
    let ticks = || {
        let text = fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let (before, began) = (ticks(), Instant::now());
    for round in 0..rounds {
        let mut event = event.clone();
        event.stage_time = Time::now();
        assert!(auditor.process(&event).stored().await);
        if round % 1000 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let spent = began.elapsed();
    auditor.flush(Duration::from_mins(1)).await;
    let cpu = Duration::from_millis((ticks() - before) * 10);
    println!(
        "per event: {:?} on the request's thread, {:?} CPU of the whole process with the writes",
        spent / rounds,
        cpu / rounds
    );
    assert_eq!(auditor.metrics.errors("buffered"), 0);
}
