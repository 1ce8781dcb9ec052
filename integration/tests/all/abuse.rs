//! Hostile requests: small or large ones that are made to cost the server much. Each has its bounds:
//! the status code, CPU time and memory of the server, the size of the answer, and the latency of
//! another client meanwhile.
//!
//! `make abuse` runs them at full size against the release binary. `make test` runs them against the
//! debug binary with smaller inputs; it has no bound on latency then, because other tests run beside it.

mod aggregated;
mod audited;
mod bodies;
mod called;
mod custom;
mod framing;
mod hooks;
mod identity;
mod many;
mod objects;
mod patches;
mod policies;
mod requests;
mod spdy;
mod streams;
mod updates;

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, Request};
use integration::{Answer, Flavour, Http, NodeNetwork, Protocol, Server, eventually};
use serde_json::{Value, json};

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const CBOR: &str = "application/cbor";

/// The namespace that the attacks work in.
pub(crate) const NAMESPACE: &str = "abuse";

/// The attacking client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    Anonymous,
    /// Authenticated, without a role.
    User,
    /// ClusterRole `admin` in one namespace, and everything on one custom resource there.
    NamespaceAdmin,
    /// May create CustomResourceDefinitions and other cluster-scoped objects.
    ClusterAdmin,
}

/// One attack.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    client: Client,
    codes: &'static [u16],
    attack: Attack,
    /// What an administrator does first and afterwards, which is not measured.
    before: Option<Preparation>,
    after: Option<Preparation>,
}

type Attack = Box<dyn Fn(&Http) -> Outcome>;
type Preparation = Box<dyn Fn(&Http)>;

/// What an attacker got: the last status code, and the bytes of the longest answer. The code is 0 when
/// the server closed the connection without an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) code: u16,
    pub(crate) bytes: usize,
}

impl Outcome {
    /// Of an attack whose answer is as long as it should be.
    pub(crate) fn code(code: u16) -> Self {
        Self { code, bytes: 0 }
    }
}

impl From<&Answer> for Outcome {
    fn from(answer: &Answer) -> Self {
        let headers: usize =
            answer.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        Self { code: answer.code, bytes: answer.body.len() + headers }
    }
}

impl Case {
    pub(crate) fn new(
        name: &'static str,
        client: Client,
        codes: &'static [u16],
        attack: impl Fn(&Http) -> Outcome + 'static,
    ) -> Self {
        Self { name, client, codes, attack: Box::new(attack), before: None, after: None }
    }

    pub(crate) fn before(mut self, prepare: impl Fn(&Http) + 'static) -> Self {
        self.before = Some(Box::new(prepare));
        self
    }

    pub(crate) fn after(mut self, clean_up: impl Fn(&Http) + 'static) -> Self {
        self.after = Some(Box::new(clean_up));
        self
    }

    /// One request with a body.
    pub(crate) fn send(
        name: &'static str,
        client: Client,
        codes: &'static [u16],
        (method, path, content_type): (Method, &str, &'static str),
        body: impl Fn() -> Vec<u8> + 'static,
    ) -> Self {
        let path = path.to_owned();
        Self::new(name, client, codes, move |http| {
            Outcome::from(&http.send(method.clone(), &path, Some(content_type), body()))
        })
    }

    /// One request without a body, with these headers.
    pub(crate) fn get(
        name: &'static str,
        client: Client,
        codes: &'static [u16],
        path: String,
        headers: Vec<(&'static str, String)>,
    ) -> Self {
        Self::new(name, client, codes, move |http| request(http, &path, &headers))
    }
}

/// A GET whose refusal may be a closed connection.
pub(crate) fn request(http: &Http, path: &str, headers: &[(&'static str, String)]) -> Outcome {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    match http.try_request(request.body(Bytes::new()).expect("a valid request")) {
        Ok(answer) => Outcome::from(&answer),
        Err(_) => Outcome { code: 0, bytes: 0 },
    }
}

/// Bytes over TLS.
pub(crate) type Raw = rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream>;

/// A connection on which this was sent, and nothing was read yet. A read waits long, a write that makes no progress does
/// not: the server need not read what floods it.
pub(crate) fn open(http: &Http, head: &str) -> Raw {
    let mut stream = http.raw_blocking(Duration::from_secs(30)).expect("the server accepts");
    stream.write_all(head.as_bytes()).expect("the server reads");
    stream.sock.set_write_timeout(Some(SILENCE)).expect("a socket");
    stream
}

/// A peer that is silent for so long is done.
pub(crate) const SILENCE: Duration = Duration::from_secs(3);

/// The sizes of `make abuse`; everything is smaller in the debug binary, which is some ten times slower.
pub(crate) fn sized(full: usize) -> usize {
    if is_full() { full } else { full / 8 }
}

fn is_full() -> bool {
    env::var_os("PINTLE_ABUSE").is_some_and(|value| value == "full")
}

/// What one attack may cost.
struct Bounds {
    cpu: Duration,
    memory_kb: u64,
    answer: usize,
    /// Of another client's GET.
    p99: Option<Duration>,
}

fn bounds() -> Bounds {
    let (cpu, p99) = if is_full() {
        (Duration::from_secs(1), Some(Duration::from_millis(100)))
    } else {
        (Duration::from_secs(8), None)
    };
    Bounds { cpu, memory_kb: 60 << 10, answer: 2 << 20, p99 }
}

/// A server with a client for each attacker.
struct Arena<'a> {
    server: &'a Server,
    clients: BTreeMap<Client, Http>,
}

impl<'a> Arena<'a> {
    fn new(server: &'a Server) -> Self {
        let admin = server.http();
        admin.post("/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}})).expect(201);
        let mut clients = BTreeMap::from([
            (Client::Anonymous, server.http().anonymous()),
            (Client::ClusterAdmin, server.http()),
        ]);
        for (client, name) in [(Client::User, "user"), (Client::NamespaceAdmin, "admin")] {
            let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
            admin.post(&accounts, &json!({"metadata": {"name": name}})).expect(201);
            let token = admin.post(&format!("{accounts}/{name}/token"), &json!({})).expect(201);
            let token = token["status"]["token"].as_str().expect("a token").to_owned();
            clients.insert(client, server.http().with_token(&token));
        }
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
        let rules = json!([{"apiGroups": [custom::GROUP], "resources": ["*"], "verbs": ["*"]}]);
        let role = json!({"metadata": {"name": "custom"}, "rules": rules});
        admin.post(&format!("{rbac}/roles"), &role).expect(201);
        for (kind, role) in [("ClusterRole", "admin"), ("Role", "custom")] {
            let binding = json!({
                "metadata": {"name": role},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": "admin", "namespace": NAMESPACE}],
            });
            admin.post(&format!("{rbac}/rolebindings"), &binding).expect(201);
        }
        let config_map = json!({"metadata": {"name": "target"}, "data": {"a": "b"}});
        let config_maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        let http = clients[&Client::NamespaceAdmin].clone();
        eventually("the namespace's admin may write", || {
            (http.post(&config_maps, &config_map).code == 201).then_some(())
        });
        let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default");
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        eventually("the namespace's admin may read", || {
            (http.get(&pods).code == 200).then_some(())
        });
        eventually("the default service account", || {
            (admin.get(&accounts).code == 200).then_some(())
        });
        custom::install(&admin);
        Self { server, clients }
    }

    /// Runs one attack and says what was beyond its bounds.
    fn run(&self, case: &Case) -> Measured {
        let http = &self.clients[&case.client];
        let admin = self.server.http();
        if let Some(prepare) = &case.before {
            prepare(&admin);
        }
        let before = Usage::of(self.server, true);
        let began = Instant::now();
        let neighbour = Neighbour::start(self.server);
        let outcome = (case.attack)(http);
        let latency = neighbour.stop();
        let wall = began.elapsed();
        let after = Usage::of(self.server, false);
        if let Some(clean_up) = &case.after {
            clean_up(&admin);
        }
        Measured {
            outcome,
            cpu: after.cpu.saturating_sub(before.cpu),
            memory_kb: after.peak_kb.saturating_sub(before.peak_kb),
            latency,
            wall,
        }
    }

    /// Runs all attacks, and fails if one was beyond its bounds.
    fn run_all(&self, cases: impl Iterator<Item = Case>) {
        let wanted = env::var("PINTLE_ABUSE_CASE").unwrap_or_default();
        let mut failures = Vec::new();
        for case in cases.filter(|case| case.name.contains(&wanted)) {
            let measured = self.run(&case);
            let violations = measured.violations(&case);
            eprintln!(
                "{:<58} {:>3}  cpu {:>5} ms  +{:>4} MB  {:>8} B  p99 {:>4} ms  {:>6} ms  {}",
                case.name,
                measured.outcome.code,
                measured.cpu.as_millis(),
                measured.memory_kb >> 10,
                measured.outcome.bytes,
                measured.latency.as_millis(),
                measured.wall.as_millis(),
                violations.join("; "),
            );
            failures
                .extend(violations.iter().map(|violation| format!("{}: {violation}", case.name)));
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        // And afterwards it still does what it is for.
        let version = self.server.http().over(Protocol::Http2).get("/version").expect(200);
        assert_eq!(version["major"], Value::from("1"));
    }
}

/// What an attack cost.
#[derive(Debug)]
struct Measured {
    outcome: Outcome,
    cpu: Duration,
    memory_kb: u64,
    latency: Duration,
    wall: Duration,
}

impl Measured {
    fn violations(&self, case: &Case) -> Vec<String> {
        let Bounds { cpu, memory_kb, answer, p99 } = bounds();
        let mut violations = Vec::new();
        if !case.codes.contains(&self.outcome.code) {
            violations.push(format!("answered {}, not {:?}", self.outcome.code, case.codes));
        }
        if self.cpu > cpu {
            violations.push(format!("took {:?} of CPU", self.cpu));
        }
        if self.memory_kb > memory_kb {
            violations.push(format!("took {} MB of memory", self.memory_kb >> 10));
        }
        if self.outcome.bytes > answer {
            violations.push(format!("answered {} bytes", self.outcome.bytes));
        }
        if p99.is_some_and(|p99| self.latency > p99) {
            violations.push(format!("another client's GET took {:?} (p99)", self.latency));
        }
        violations
    }
}

/// CPU time and the highest resident set of the server's process.
struct Usage {
    cpu: Duration,
    peak_kb: u64,
}

impl Usage {
    /// `reset` makes the highest resident set what it is now.
    fn of(server: &Server, reset: bool) -> Self {
        let process = format!("/proc/{}", server.id());
        if reset {
            fs::write(format!("{process}/clear_refs"), "5").expect("it is our own process");
        }
        let status = fs::read_to_string(format!("{process}/status")).expect("the server runs");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak_kb = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok());
        let stat = fs::read_to_string(format!("{process}/stat")).expect("the server runs");
        let (_, fields) = stat.rsplit_once(')').expect("the name is in parentheses");
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(|field| field.parse::<u64>().expect("a number")).sum();
        Self { cpu: Duration::from_millis(ticks * 10), peak_kb: peak_kb.expect("VmHWM") }
    }
}

/// Another client, which reads one object again and again.
struct Neighbour {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<Duration>,
}

impl Neighbour {
    fn start(server: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let http = server.http();
        let thread = thread::spawn(move || {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/target");
            let mut connection = http.connect().expect("another client can connect");
            let mut seen = Vec::new();
            while seen.is_empty() || !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                let request = Request::get(&path).body(Bytes::new()).expect("a valid request");
                let answer = connection.request(request).expect("another client is served");
                assert_eq!(answer.code, 200, "another client is refused: {}", answer.text());
                seen.push(began.elapsed());
                // A client that asks without a pause would be the load itself.
                thread::park_timeout(Duration::from_millis(2));
            }
            seen.sort();
            seen[(seen.len() * 99 / 100).min(seen.len() - 1)]
        });
        Self { stop, thread }
    }

    fn stop(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().expect("another client is served")
    }
}

#[test]
fn every_attack_stays_within_its_bounds() {
    // CBOR is off by default.
    let flags = ["--feature-gates=CBORServingAndStorage=true"];
    let server = Server::with(Flavour::from_env(), &flags);
    let arena = Arena::new(&server);
    let all = [
        bodies::cases(),
        patches::cases(),
        objects::cases(),
        updates::cases(),
        custom::cases(),
        requests::cases(),
        identity::cases(),
        framing::cases(),
    ];
    arena.run_all(all.into_iter().flatten());
}

/// Kubelets that flood, stall and answer garbage, and clients of exec, attach, port-forward and logs that do.
#[test]
fn attacks_through_kubelets_stay_within_their_bounds() {
    let network = NodeNetwork::start();
    let arena = Arena::new(&network.server);
    let all = [streams::cases(&network), spdy::cases(&network)];
    arena.run_all(all.into_iter().flatten());
}

/// Webhooks of admission and conversion, aggregated servers, and an OpenID issuer.
#[test]
fn attacks_through_other_servers_stay_within_their_bounds() {
    let directory = tempfile::tempdir().expect("a directory");
    let issuer = called::Issuer::start(directory.path());
    let flags = issuer.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::with(Flavour::from_env(), &flags);
    let arena = Arena::new(&server);
    let all = [hooks::cases(), aggregated::cases(), called::cases(issuer)];
    arena.run_all(all.into_iter().flatten());
}

#[test]
fn attacks_through_many_aggregated_resources_stay_within_their_bounds() {
    let server = Server::with(Flavour::from_env(), &[]);
    Arena::new(&server).run_all(aggregated::cases_of_many_resources().into_iter());
}

/// Policies, quotas, flow control, definitions, watches, and an audit log of all bodies.
#[test]
fn attacks_on_what_every_request_passes_stay_within_their_bounds() {
    let directory = tempfile::tempdir().expect("a directory");
    let policy = directory.path().join("policy.yaml");
    let rules = format!(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n\
         - {{level: RequestResponse, namespaces: [{NAMESPACE}]}}\n- {{level: Metadata}}\n"
    );
    fs::write(&policy, rules).expect("a file");
    let log = directory.path().join("audit.log");
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    let server = Server::with(Flavour::from_env(), &[&flags[0], &flags[1]]);
    let arena = Arena::new(&server);
    let all = [policies::cases(), many::cases(), audited::cases(&log)];
    arena.run_all(all.into_iter().flatten());
}
