//! A real etcd for tests: one member or several, on loopback, stopped at the end.

// Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub struct Cluster {
    pub urls: Vec<String>,
    members: Vec<Option<Child>>,
    commands: Vec<Vec<String>>,
    _directory: TempDir,
}

/// Without automatic compaction.
pub fn options(cluster: &Cluster) -> etcd::Options {
    etcd::Options { compact_every: None, ..etcd::Options::new(cluster.urls.clone()) }
}

impl Cluster {
    pub fn start(members: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        // Held until the last port is known, so that no two are the same.
        let listeners: Vec<_> =
            (0..members * 2).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let url = |at: usize| {
            let port = listeners[at].local_addr().expect("an address").port();
            format!("http://127.0.0.1:{port}")
        };
        let (urls, peers): (Vec<_>, Vec<_>) =
            (0..members).map(|n| (url(2 * n), url(2 * n + 1))).unzip();
        let initial: Vec<_> =
            peers.iter().enumerate().map(|(n, url)| format!("m{n}={url}")).collect();
        let commands = (0..members).map(|n| {
            let data = directory.path().join(format!("m{n}"));
            [
                ("name", format!("m{n}")),
                ("data-dir", data.display().to_string()),
                ("listen-client-urls", urls[n].clone()),
                ("advertise-client-urls", urls[n].clone()),
                ("listen-peer-urls", peers[n].clone()),
                ("initial-advertise-peer-urls", peers[n].clone()),
                ("initial-cluster", initial.join(",")),
                ("log-level", "error".to_owned()),
            ]
            .map(|(name, value)| format!("--{name}={value}"))
            .into_iter()
            .chain(["--unsafe-no-fsync".to_owned()])
            .collect()
        });
        let commands = commands.collect();
        drop(listeners);
        let members = (0..members).map(|_| None).collect();
        let mut cluster = Self { urls, members, commands, _directory: directory };
        for n in 0..cluster.urls.len() {
            cluster.start_member(n);
        }
        for url in &cluster.urls {
            wait_until("etcd is healthy", || is_healthy(url));
        }
        cluster
    }

    pub fn start_member(&mut self, n: usize) {
        let child = Command::new(program())
            .args(&self.commands[n])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd can be started");
        self.members[n] = Some(child);
    }

    /// `kill -9`
    pub fn kill(&mut self, n: usize) {
        let mut child = self.members[n].take().expect("the member runs");
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
    }

    /// Sends a signal to a member: STOP makes it hang.
    pub fn signal(&self, n: usize, name: &str) {
        let pid = self.members[n].as_ref().expect("the member runs").id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(status.expect("kill can be started").success());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.members.iter_mut().flatten() {
            // It may have exited already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `tools/bin/etcd`, built if it is missing.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("in a workspace");
        let status = Command::new(root.join("tools/build")).arg("etcd").status();
        assert!(status.expect("tools/build can be started").success(), "etcd does not build");
        root.join("tools/bin/etcd")
    })
}

pub fn is_healthy(url: &str) -> bool {
    let address = url.strip_prefix("http://").expect("a plain URL");
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let mut answer = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(5))).is_ok()
        && stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.contains(r#""health":"true""#)
}

#[expect(clippy::disallowed_methods, reason = "the test's own thread waits for another process")]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
