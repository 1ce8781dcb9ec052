//! gRPC client of a KMS v2 plugin: its three calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

pub(crate) struct Client {
    channel: Channel,
    timeout: Duration,
}

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {}

/// The status of a plugin.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    /// `ok`, or what is wrong.
    #[prost(string, tag = "2")]
    pub(crate) healthz: String,
    /// The id of the key that it encrypts with now.
    #[prost(string, tag = "3")]
    pub(crate) key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
}

/// A seed as the plugin has encrypted it, with what it needs to decrypt it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Encrypted {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(crate) key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub(crate) annotations: BTreeMap<String, Vec<u8>>,
}

impl Client {
    /// Prepares a connection, which is opened by the first call. `endpoint` is
    /// `unix:///path/of/the.sock`, or `unix:///@name` for an abstract socket.
    pub(crate) fn new(endpoint: &str, timeout: Duration) -> Result<Self, String> {
        let path = endpoint.strip_prefix("unix://").filter(|path| path.starts_with('/'));
        let path = path.ok_or_else(|| {
            let why = "not the path of a socket: unix:///path";
            format!("failed to create connection to {endpoint}, error: {why}")
        })?;
        let path = match path.strip_prefix("/@") {
            // How Linux spells the name of an abstract socket.
            Some(name) => format!("\0{name}"),
            None => path.to_owned(),
        };
        // Compat: the authority that plugins see from kube-apiserver.
        let channel = Endpoint::from_static("http://localhost")
            .connect_timeout(timeout)
            .connect_with_connector_lazy(Socket { path });
        Ok(Self { channel, timeout })
    }

    pub(crate) async fn status(&self) -> Result<Status, String> {
        self.call("/v2.KeyManagementService/Status", StatusRequest {}).await
    }

    pub(crate) async fn encrypt(&self, plaintext: &[u8]) -> Result<Encrypted, String> {
        let request = EncryptRequest { plaintext: plaintext.to_vec(), uid: uid() };
        self.call("/v2.KeyManagementService/Encrypt", request).await
    }

    pub(crate) async fn decrypt(&self, encrypted: Encrypted) -> Result<Vec<u8>, String> {
        let Encrypted { ciphertext, key_id, annotations } = encrypted;
        let request = DecryptRequest { ciphertext, uid: uid(), key_id, annotations };
        let answer: DecryptResponse =
            self.call("/v2.KeyManagementService/Decrypt", request).await?;
        Ok(answer.plaintext)
    }

    async fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A, String>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let call = async {
            let mut grpc = Grpc::new(self.channel.clone());
            grpc.ready().await.map_err(|error| tonic::Status::from_error(error.into()))?;
            let codec = ProstCodec::<Q, A>::default();
            let path = PathAndQuery::from_static(method);
            grpc.unary(Request::new(request), path, codec).await
        };
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => {
                Err(format!("rpc error: code = {:?} desc = {}", status.code(), status.message()))
            }
            Err(_) => {
                Err("rpc error: code = DeadlineExceeded desc = context deadline exceeded"
                    .to_owned())
            }
        }
    }
}

/// Connects to the plugin's socket, whatever the URI.
struct Socket {
    path: String,
}

impl tower_service::Service<Uri> for Socket {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = self.path.clone();
        Box::pin(async move { UnixStream::connect(path).await.map(TokioIo::new) })
    }
}

/// Identifies a call in the logs of both sides.
fn uid() -> String {
    uuid::Uuid::new_v4().to_string()
}
