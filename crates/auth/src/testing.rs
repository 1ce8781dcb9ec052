//! A webhook for tests: plain HTTP on loopback, with answers by the test.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use meta::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

/// What the test server does with a request.
pub(crate) enum Answer {
    Json(u16, String),
    /// As it goes over the wire.
    Raw(String),
    /// The connection is closed without an answer.
    Close,
    /// No answer ever.
    Hang,
}

impl Answer {
    pub(crate) fn ok(body: impl Into<String>) -> Self {
        Self::Json(200, body.into())
    }
}

type Respond = Arc<dyn Fn(usize, &str, Value) -> Answer + Send + Sync>;

pub(crate) struct TestServer {
    address: SocketAddr,
    calls: Arc<AtomicUsize>,
    task: AbortHandle,
    directory: tempfile::TempDir,
}

impl TestServer {
    /// `respond` gets the number of the call (from 0), the path and the JSON body.
    pub(crate) async fn start(
        respond: impl Fn(usize, &str, Value) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let calls = Arc::new(AtomicUsize::new(0));
        let (counted, respond): (_, Respond) = (calls.clone(), Arc::new(respond));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, respond.clone(), counted.clone()));
            }
        });
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { address, calls, task: task.abort_handle(), directory }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: \
             {{server: \"{}\"}}}}]\ncontexts: [{{name: c, context: {{cluster: c}}}}]\n",
            self.url("/review")
        );
        let path = self.directory.path().join("kubeconfig");
        std::fs::write(&path, text).expect("a file in a temporary directory");
        path
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, respond: Respond, calls: Arc<AtomicUsize>) {
    let mut bytes = Vec::new();
    loop {
        // Head and body of one request; what a client pipelines is not read.
        let (path, body) = loop {
            let text = String::from_utf8_lossy(&bytes);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length")
                        .then(|| value.trim().parse().ok())?
                });
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let length: usize = length.unwrap_or(0);
                if body.len() >= length {
                    break (path, body[..length].to_owned());
                }
            }
            let mut chunk = [0; 8192];
            match stream.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(read) => bytes.extend_from_slice(&chunk[..read]),
            }
        };
        bytes.clear();
        let options = codec::json::DecodeOptions { strict: false };
        let body = codec::json::decode_any(body.as_bytes(), options);
        let body = body.map_or(Value::Null, |decoded| decoded.value);
        let call = calls.fetch_add(1, Ordering::SeqCst);
        let answer = match respond(call, &path, body) {
            Answer::Json(code, body) => format!(
                "HTTP/1.1 {code} Answer\r\nContent-Type: application/json\r\nContent-Length: \
                 {}\r\n\r\n{body}",
                body.len()
            ),
            Answer::Raw(text) => text,
            Answer::Close => return,
            Answer::Hang => std::future::pending().await,
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
