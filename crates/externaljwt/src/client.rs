//! The three calls of the signer.

use std::time::{Duration, Instant};

use grpc::{CallError, Channel};
use prost::Message;

use crate::{Metrics, metrics::OK};

pub(crate) struct Client {
    channel: Channel,
    metrics: Metrics,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignJwtRequest {
    #[prost(string, tag = "1")]
    pub(crate) claims: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignJwtResponse {
    #[prost(string, tag = "1")]
    pub(crate) header: String,
    #[prost(string, tag = "2")]
    pub(crate) signature: String,
}

#[derive(Clone, PartialEq, Message)]
struct FetchKeysRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FetchKeysResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) keys: Vec<Key>,
    #[prost(message, optional, tag = "2")]
    pub(crate) data_timestamp: Option<Timestamp>,
    #[prost(int64, tag = "3")]
    pub(crate) refresh_hint_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
#[expect(clippy::struct_field_names, reason = "the names of the protocol")]
pub(crate) struct Key {
    #[prost(string, tag = "1")]
    pub(crate) key_id: String,
    /// A `SubjectPublicKeyInfo`.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
    #[prost(bool, tag = "3")]
    pub(crate) exclude_from_oidc_discovery: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct MetadataRequest {}

#[derive(Clone, PartialEq, Message)]
struct MetadataResponse {
    #[prost(int64, tag = "1")]
    max_token_expiration_seconds: i64,
}

/// To connect to the socket; there is no network between.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A call that takes longer is logged.
const LOGGED_AFTER: Duration = Duration::from_secs(1);
const METADATA_TIMEOUT: Duration = Duration::from_secs(10);
/// Compat: as long as kube-apiserver waits for keys.
const KEYS_TIMEOUT: Duration = Duration::from_mins(1);
/// A request for a token waits no longer than any other request.
const SIGN_TIMEOUT: Duration = Duration::from_secs(30);

impl Client {
    /// `endpoint` is the path of the socket; with `@` it is an abstract one.
    pub(crate) fn new(endpoint: &str, metrics: Metrics) -> Self {
        let socket = match endpoint.strip_prefix('@') {
            Some(name) => grpc::Socket::abstract_name(name),
            None => grpc::Socket::file(endpoint.as_ref()),
        };
        Self { channel: grpc::lazy_channel(socket, CONNECT_TIMEOUT), metrics }
    }

    pub(crate) async fn sign(&self, claims: String) -> Result<SignJwtResponse, CallError> {
        self.call("/v1.ExternalJWTSigner/Sign", SignJwtRequest { claims }, SIGN_TIMEOUT).await
    }

    pub(crate) async fn fetch_keys(&self) -> Result<FetchKeysResponse, CallError> {
        self.call("/v1.ExternalJWTSigner/FetchKeys", FetchKeysRequest {}, KEYS_TIMEOUT).await
    }

    /// The longest life of a token that the signer signs, in seconds.
    pub(crate) async fn max_token_expiration(&self) -> Result<i64, CallError> {
        let method = "/v1.ExternalJWTSigner/Metadata";
        let answer: MetadataResponse =
            self.call(method, MetadataRequest {}, METADATA_TIMEOUT).await?;
        Ok(answer.max_token_expiration_seconds)
    }

    async fn call<Q, A>(
        &self,
        method: &'static str,
        request: Q,
        time: Duration,
    ) -> Result<A, CallError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let began = Instant::now();
        let call = grpc::call_when_ready(&self.channel, method, request, time);
        tokio::pin!(call);
        let answer = match tokio::time::timeout(LOGGED_AFTER, &mut call).await {
            Ok(answer) => answer,
            Err(_) => {
                // An operator whose server does not start finds the reason here.
                tracing::info!(method, "The external signer has not answered yet");
                call.await
            }
        };
        let code = answer.as_ref().map_or_else(|error: &CallError| error.code, |_| OK);
        self.metrics.called(method, code, began.elapsed());
        answer
    }
}
