//! A real etcd of one member or several, for servers that keep their objects there.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::eventually::eventually;
use crate::peer::write_etcd_pki;
use crate::process::{Process, directory, free_port};
use crate::process_cleanup::ProcessCleanup;
use crate::programs;

pub struct Etcd {
    /// What `--etcd-servers` wants.
    pub(crate) url: String,
    ports: Vec<u16>,
    peer_ports: Vec<u16>,
    members: Vec<Mutex<Option<Process>>>,
    cleanup: Arc<ProcessCleanup>,
}

impl Etcd {
    pub(crate) fn start(cleanup: &Arc<ProcessCleanup>, members: usize) -> Self {
        // All held until the last one is known, so that no two are the same.
        let listeners: Vec<TcpListener> = (0..members * 2)
            .map(|_| TcpListener::bind("127.0.0.1:0").expect("loopback has a free port"))
            .collect();
        let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
        let mut ports: Vec<u16> = listeners.iter().map(port).collect();
        drop(listeners);
        let peer_ports = ports.split_off(members);
        let urls: Vec<String> = ports.iter().map(|port| url(*port)).collect();
        let etcd = Self {
            url: urls.join(","),
            ports,
            peer_ports,
            members: (0..members).map(|_| Mutex::new(None)).collect(),
            cleanup: Arc::clone(cleanup),
        };
        // All first: alone a member waits for the others.
        for n in 0..members {
            etcd.launch(n);
        }
        for n in 0..members {
            etcd.wait_until_healthy(n);
        }
        etcd
    }

    fn launch(&self, n: usize) {
        let name = |n: usize| format!("etcd-{n}");
        let peers: Vec<String> = (0..self.ports.len())
            .map(|n| format!("{}={}", name(n), url(self.peer_ports[n])))
            .collect();
        let (client, peer) = (url(self.ports[n]), url(self.peer_ports[n]));
        let mut command = Command::new(programs::tool("etcd"));
        command
            .arg("--data-dir")
            .arg(directory(self.cleanup.directory(), &name(n)))
            .args(["--name", &name(n)])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers.join(",")])
            // The tests are about the server's promises, not the disk's.
            .arg("--unsafe-no-fsync");
        let process = Process::start(&name(n), command, &self.cleanup);
        *self.members[n].lock().expect("no holder panics") = Some(process);
    }

    fn wait_until_healthy(&self, n: usize) {
        eventually("etcd is healthy", || {
            self.with(n, Process::assert_alive);
            let answer = ask(self.ports[n], "GET", "/health", None)?;
            (answer["health"] == "true").then_some(())
        });
    }

    /// `kill -9` of a member.
    pub fn kill(&self, n: usize) {
        let member = self.members[n].lock().expect("no holder panics").take();
        member.expect("the member runs").kill();
    }

    /// Starts a member that was killed, and waits until it is one of them again.
    pub fn start_again(&self, n: usize) {
        self.launch(n);
        self.wait_until_healthy(n);
    }

    /// Makes a member hang.
    pub fn pause(&self, n: usize) {
        self.with(n, |member| member.signal("STOP"));
    }

    /// Lets a member that hangs go on, and waits until it has caught up.
    pub fn resume(&self, n: usize) {
        self.with(n, |member| member.signal("CONT"));
        self.wait_until_healthy(n);
    }

    /// Gives the lead to another member.
    pub fn move_leader(&self) {
        let status = |port: u16| ask(port, "POST", "/v3/maintenance/status", Some(&json!({})));
        eventually("the lead moves", || {
            let known: Vec<(u16, Value)> =
                self.ports.iter().filter_map(|port| Some((*port, status(*port)?))).collect();
            let id = |status: &Value| status["header"]["member_id"].clone();
            let leader = known.iter().find(|(_, status)| status["leader"] == id(status))?;
            let (_, other) = known.iter().find(|(port, _)| *port != leader.0)?;
            let target = json!({"targetID": id(other)});
            let path = "/v3/maintenance/transfer-leadership";
            let moved = ask(leader.0, "POST", path, Some(&target))?;
            moved.get("error").is_none().then_some(())
        });
    }

    /// Forgets all revisions before this one.
    pub(crate) fn compact(&self, revision: u64) {
        let compaction = json!({"revision": revision, "physical": true});
        let answer = ask(self.ports[0], "POST", "/v3/kv/compaction", Some(&compaction));
        assert!(answer.as_ref().is_some_and(|answer| answer.get("code").is_none()), "{answer:?}");
    }

    /// The bytes that are kept under a key.
    pub fn value(&self, key: &str) -> Option<Vec<u8>> {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;
        let range = json!({"key": STANDARD.encode(key)});
        let found = ask(self.ports[0], "POST", "/v3/kv/range", Some(&range))?;
        let value = found["kvs"][0]["value"].as_str()?;
        Some(STANDARD.decode(value).expect("etcd encodes values in base64"))
    }

    /// Puts bytes under a key, past every server.
    pub fn put(&self, key: &str, value: &[u8]) {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;
        let put = json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)});
        let done = ask(self.ports[0], "POST", "/v3/kv/put", Some(&put)).expect("etcd answers");
        assert!(done.get("header").is_some(), "{done}");
    }

    fn with<T>(&self, n: usize, act: impl FnOnce(&mut Process) -> T) -> T {
        let mut member = self.members[n].lock().expect("no holder panics");
        act(member.as_mut().expect("the member runs"))
    }
}

/// A part of an etcd, under a prefix of its own.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) etcd: Arc<Etcd>,
    /// What `--etcd-prefix` wants.
    pub(crate) prefix: String,
}

impl Part {
    /// An empty part of the one etcd that the servers of a test process share: starting an etcd takes
    /// longer than most tests.
    pub(crate) fn shared() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("/registry-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self { etcd: shared(), prefix }
    }

    /// The default prefix of servers.
    pub(crate) fn plain(etcd: Arc<Etcd>) -> Self {
        Self { etcd, prefix: "/registry".to_owned() }
    }
}

/// The one etcd of the test process.
pub(crate) fn shared() -> Arc<Etcd> {
    // Never dropped: its cleanup ends it with the test process.
    static SHARED: Mutex<Option<Arc<Etcd>>> = Mutex::new(None);
    let mut shared = SHARED.lock().expect("etcd starts; the first test says why it did not");
    shared.get_or_insert_with(|| Arc::new(Etcd::start(&Arc::new(ProcessCleanup::new()), 1))).clone()
}

/// Where it is: what `--etcd-servers` wants.
pub fn etcd_url() -> String {
    shared().url.clone()
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// What etcd answers over plain HTTP; nothing if it does not.
fn ask(port: u16, method: &str, path: &str, body: Option<&Value>) -> Option<Value> {
    let body = body.map_or_else(String::new, Value::to_string);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let length = body.len();
    let request = format!("{method} {path} HTTP/1.0\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    serde_json::from_str(body.trim()).ok()
}

/// An etcd that requires client certificates.
pub struct TlsEtcd {
    /// What `--etcd-servers` wants.
    pub url: String,
    pki: PathBuf,
    ports: [u16; 3],
    process: Mutex<Option<Process>>,
    cleanup: Arc<ProcessCleanup>,
}

impl TlsEtcd {
    pub fn start() -> Self {
        let cleanup = Arc::new(ProcessCleanup::new());
        let pki = directory(cleanup.directory(), "etcd-pki");
        write_etcd_pki(&pki);
        let ports = [free_port(), free_port(), free_port()];
        let url = format!("https://127.0.0.1:{}", ports[0]);
        let etcd = Self { url, pki, ports, process: Mutex::new(None), cleanup };
        etcd.start_again();
        etcd
    }

    /// The flags of a server that authenticates itself.
    pub fn flags(&self) -> Vec<String> {
        [("cafile", "ca.crt"), ("certfile", "client.crt"), ("keyfile", "client.key")]
            .map(|(flag, file)| format!("--etcd-{flag}={}", self.pki.join(file).display()))
            .to_vec()
    }

    /// `kill -9`
    pub fn kill(&self) {
        let process = self.process.lock().expect("no holder panics").take();
        process.expect("it runs").kill();
    }

    pub fn start_again(&self) {
        let file = |name: &str| self.pki.join(name).display().to_string();
        let [_, peers, health] = self.ports.map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new(programs::tool("etcd"));
        command
            .arg("--data-dir")
            .arg(directory(self.cleanup.directory(), "etcd"))
            .args(["--listen-client-urls", &self.url, "--advertise-client-urls", &self.url])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .args(["--cert-file", &file("server.crt"), "--key-file", &file("server.key")])
            .args(["--trusted-ca-file", &file("ca.crt"), "--client-cert-auth"])
            .args(["--listen-metrics-urls", &health])
            .arg("--unsafe-no-fsync");
        let mut process = Process::start("etcd", command, &self.cleanup);
        eventually("etcd is healthy", || {
            process.assert_alive();
            let answer = ask(self.ports[2], "GET", "/health", None)?;
            (answer["health"] == "true").then_some(())
        });
        *self.process.lock().expect("no holder panics") = Some(process);
    }
}
