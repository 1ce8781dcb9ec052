//! An HTTP proxy that is asked to CONNECT.

use std::time::Duration;

use bytes::Bytes;
use client::Stream;
use http::{Request, StatusCode, header::HOST};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::selector::join_host_port;

/// What a proxy may answer to a CONNECT; more ends the connection.
const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;
const RESPONSE_HEADERS_MAX: usize = 64;
/// For the proxy to reach the target.
pub(crate) const PROXY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("reading HTTP response from CONNECT to {target} via proxy {proxy} failed: {source}")]
    Response { target: String, proxy: String, source: hyper::Error },
    #[error("proxy error from {proxy} while dialing {target}, code {code}: {status}")]
    Refused { proxy: String, target: String, code: u16, status: StatusCode },
    #[error("proxy {proxy} did not reach {target} within {PROXY_TIMEOUT:?}")]
    Timeout { proxy: String, target: String },
}

/// Asks the proxy at the other end of `stream` for a connection to the target.
pub(crate) async fn connect(
    stream: Box<dyn Stream>,
    proxy: &str,
    host: &str,
    port: u16,
) -> Result<Box<dyn Stream>, ConnectError> {
    let target = join_host_port(host, port);
    let connecting = tunnel(stream, proxy, &target);
    let timeout =
        |_| Err(ConnectError::Timeout { proxy: proxy.to_owned(), target: target.clone() });
    tokio::time::timeout(PROXY_TIMEOUT, connecting).await.unwrap_or_else(timeout)
}

async fn tunnel(
    stream: Box<dyn Stream>,
    proxy: &str,
    target: &str,
) -> Result<Box<dyn Stream>, ConnectError> {
    let failed = |source| ConnectError::Response {
        target: target.to_owned(),
        proxy: proxy.to_owned(),
        source,
    };
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(RESPONSE_HEAD_BYTES_MAX)
        .max_headers(RESPONSE_HEADERS_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    tokio::spawn(async move {
        // Its errors are those of the request, or of the tunnel.
        let _ = connection.with_upgrades().await;
    });
    // Compat: the host that kube-apiserver names.
    let request = Request::connect(target).header(HOST, "127.0.0.1").body(Empty::<Bytes>::new());
    let request = request.expect("a host and a port are a valid target");
    let response = sender.send_request(request).await.map_err(failed)?;
    if response.status() != StatusCode::OK {
        let status = response.status();
        let (proxy, target, code) = (proxy.to_owned(), target.to_owned(), status.as_u16());
        return Err(ConnectError::Refused { proxy, target, code, status });
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(failed)?;
    Ok(Box::new(TokioIo::new(upgraded)))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// What a proxy is asked, and what becomes of its answer.
    async fn check(answer: &'static str) -> (String, Result<String, String>) {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let proxy = tokio::spawn(async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(far.read_u8().await.unwrap());
            }
            let _ = far.write_all(answer.as_bytes()).await;
            drop(far);
            String::from_utf8(head).unwrap()
        });
        let connected = connect(Box::new(near), "/run/p.sock", "2001:db8::1", 443).await;
        let read = match connected {
            Ok(mut stream) => {
                let mut text = String::new();
                stream.read_to_string(&mut text).await.unwrap();
                Ok(text)
            }
            Err(error) => Err(error.to_string()),
        };
        (proxy.await.unwrap(), read)
    }

    #[tokio::test]
    async fn a_proxy_is_asked_to_connect() {
        let (asked, read) = check("HTTP/1.1 200 Connected\r\n\r\nhello").await;
        assert!(asked.starts_with("CONNECT [2001:db8::1]:443 HTTP/1.1\r\n"), "{asked}");
        assert!(asked.to_lowercase().contains("host: 127.0.0.1\r\n"), "{asked}");
        assert_eq!(read, Ok("hello".to_owned()));
        let (_, refused) = check("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await;
        let expected = "proxy error from /run/p.sock while dialing [2001:db8::1]:443, code 403: 403 \
                        Forbidden";
        assert_eq!(refused, Err(expected.to_owned()));
        let (_, garbage) = check("what?\r\n\r\n").await;
        assert!(garbage.unwrap_err().starts_with("reading HTTP response from CONNECT to "));
    }
}
