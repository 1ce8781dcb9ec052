//! gRPC client of a KMS v2 plugin: its three calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use grpc::Channel;
use prost::Message;

use crate::metrics;

pub(crate) struct Client {
    channel: Channel,
    timeout: Duration,
    /// The name of the provider, for metrics.
    name: String,
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
    pub(crate) fn new(name: &str, endpoint: &str, timeout: Duration) -> Result<Self, String> {
        let path = endpoint.strip_prefix("unix://").filter(|path| path.starts_with('/'));
        let path = path.ok_or_else(|| {
            let why = "not the path of a socket: unix:///path";
            format!("failed to create connection to {endpoint}, error: {why}")
        })?;
        let socket = match path.strip_prefix("/@") {
            Some(name) => grpc::Socket::abstract_name(name),
            None => grpc::Socket::file(Path::new(path)),
        };
        let channel = grpc::lazy_channel(socket, timeout);
        Ok(Self { channel, timeout, name: name.to_owned() })
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
        let began = Instant::now();
        let answer = grpc::call(&self.channel, method, request, self.timeout).await;
        let code = answer.as_ref().map_or_else(|error| error.code, |_| "OK");
        metrics::called(&self.name, method, code, began.elapsed());
        answer.map_err(|error| error.to_string())
    }
}

/// Identifies a call in the logs of both sides.
fn uid() -> String {
    uuid::Uuid::new_v4().to_string()
}
