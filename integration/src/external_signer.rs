//! An external signer of service account tokens for tests: `v1.ExternalJWTSigner` on a Unix socket.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message;
use rcgen::PublicKeyData as _;

use crate::grpc_plugin::GrpcPlugin;
use crate::process::directory;
use crate::process_cleanup::ProcessCleanup;

/// A signer. It answers until it is stopped or dropped.
pub struct ExternalSigner {
    socket: PathBuf,
    state: Arc<Mutex<SignerState>>,
    server: Option<GrpcPlugin>,
    _cleanup: ProcessCleanup,
}

/// What a signer says; tests change it while it runs.
pub struct SignerState {
    pub keys: Vec<SignerKey>,
    /// The index of the key that signs.
    pub signs_with: usize,
    pub refresh_hint_seconds: i64,
    pub max_token_expiration_seconds: i64,
    /// Every call fails with this.
    pub failure: Option<String>,
    /// Instead of the header that belongs to the key, as JSON.
    pub header: Option<String>,
    pub calls: Vec<String>,
    data_timestamp_seconds: i64,
}

pub struct SignerKey {
    pub id: String,
    pub excluded_from_discovery: bool,
    pair: EcdsaKeyPair,
    info: Vec<u8>,
}

impl SignerKey {
    pub fn new(id: &str) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::from_private_key_der(algorithm, &key.serialize_der());
        Self {
            id: id.to_owned(),
            excluded_from_discovery: false,
            pair: pair.expect("a key of that curve"),
            info: key.subject_public_key_info(),
        }
    }
}

impl ExternalSigner {
    /// With one key called `first`.
    pub fn start() -> Self {
        let cleanup = ProcessCleanup::new();
        let socket = directory(cleanup.directory(), "signer").join("s");
        let state = Arc::new(Mutex::new(SignerState {
            keys: vec![SignerKey::new("first")],
            signs_with: 0,
            refresh_hint_seconds: 3600,
            max_token_expiration_seconds: 7200,
            failure: None,
            header: None,
            calls: Vec::new(),
            data_timestamp_seconds: 1_700_000_000,
        }));
        let mut signer = Self { socket, state, server: None, _cleanup: cleanup };
        signer.start_again();
        signer
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn change(&self, change: impl FnOnce(&mut SignerState)) {
        let mut state = self.state.lock().expect("no holder panics");
        change(&mut state);
        state.data_timestamp_seconds += 1;
    }

    /// How often a method was called.
    pub fn calls(&self, method: &str) -> usize {
        let state = self.state.lock().expect("no holder panics");
        state.calls.iter().filter(|call| call.ends_with(method)).count()
    }

    pub fn stop(&mut self) {
        self.server = None;
    }

    pub fn start_again(&mut self) {
        let state = self.state.clone();
        self.server = Some(GrpcPlugin::start(&self.socket, move |method, message| {
            let mut state = state.lock().expect("no holder panics");
            state.calls.push(method.to_owned());
            match &state.failure {
                Some(why) => Err(why.clone()),
                None => state.call(method, message),
            }
        }));
    }
}

impl SignerState {
    fn call(&self, method: &str, message: &[u8]) -> Result<Vec<u8>, String> {
        match method {
            "/v1.ExternalJWTSigner/Sign" => {
                let request = SignRequest::decode(message).map_err(|error| error.to_string())?;
                Ok(self.sign(&request.claims).encode_to_vec())
            }
            "/v1.ExternalJWTSigner/FetchKeys" => {
                let keys = self.keys.iter().map(|key| Key {
                    key_id: key.id.clone(),
                    key: key.info.clone(),
                    exclude_from_oidc_discovery: key.excluded_from_discovery,
                });
                let at = Timestamp { seconds: self.data_timestamp_seconds, nanos: 0 };
                let response = Keys {
                    keys: keys.collect(),
                    data_timestamp: Some(at),
                    refresh_hint_seconds: self.refresh_hint_seconds,
                };
                Ok(response.encode_to_vec())
            }
            "/v1.ExternalJWTSigner/Metadata" => {
                let max_token_expiration_seconds = self.max_token_expiration_seconds;
                Ok(Metadata { max_token_expiration_seconds }.encode_to_vec())
            }
            other => Err(format!("there is no method {other}")),
        }
    }

    fn sign(&self, claims: &str) -> Signed {
        let key = &self.keys[self.signs_with];
        let own = format!(r#"{{"alg":"ES256","kid":"{}","typ":"JWT"}}"#, key.id);
        let header = URL_SAFE_NO_PAD.encode(self.header.as_ref().unwrap_or(&own));
        let message = format!("{header}.{claims}");
        let signature = key.pair.sign(&SystemRandom::new(), message.as_bytes()).expect("signs");
        Signed { header, signature: URL_SAFE_NO_PAD.encode(signature.as_ref()) }
    }
}

#[derive(Clone, PartialEq, Message)]
struct SignRequest {
    #[prost(string, tag = "1")]
    claims: String,
}

#[derive(Clone, PartialEq, Message)]
struct Signed {
    #[prost(string, tag = "1")]
    header: String,
    #[prost(string, tag = "2")]
    signature: String,
}

#[derive(Clone, PartialEq, Message)]
#[expect(clippy::struct_field_names, reason = "the names of the protocol")]
struct Keys {
    #[prost(message, repeated, tag = "1")]
    keys: Vec<Key>,
    #[prost(message, optional, tag = "2")]
    data_timestamp: Option<Timestamp>,
    #[prost(int64, tag = "3")]
    refresh_hint_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
#[expect(clippy::struct_field_names, reason = "the names of the protocol")]
struct Key {
    #[prost(string, tag = "1")]
    key_id: String,
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
    #[prost(bool, tag = "3")]
    exclude_from_oidc_discovery: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Metadata {
    #[prost(int64, tag = "1")]
    max_token_expiration_seconds: i64,
}
