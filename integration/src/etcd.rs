//! A real etcd, for servers that keep their objects there.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::eventually::eventually;
use crate::janitor::Janitor;
use crate::process::{Process, directory, free_port};
use crate::programs;

pub(crate) struct Etcd {
    /// What `--etcd-servers` wants.
    pub(crate) url: String,
    _process: Process,
}

impl Etcd {
    pub(crate) fn start(janitor: &Arc<Janitor>) -> Self {
        let (port, peer_port) = (free_port(), free_port());
        let url = format!("http://127.0.0.1:{port}");
        let peers = format!("http://127.0.0.1:{peer_port}");
        let mut command = Command::new(programs::tool("etcd"));
        command
            .arg("--data-dir")
            .arg(directory(janitor.directory(), "etcd"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            // The tests are about the server's promises, not the disk's.
            .arg("--unsafe-no-fsync");
        let mut process = Process::start("etcd", command, janitor);
        eventually("etcd is healthy", || {
            process.assert_alive();
            is_healthy(port).then_some(())
        });
        Self { url, _process: process }
    }
}

fn is_healthy(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut answer = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(5))).is_ok()
        && stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.contains(r#""health":"true""#)
}
