//! A KMS v2 plugin for tests: gRPC on a Unix socket. Its keys are derived from their names, so it protects
//! nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use prost::Message;

use crate::grpc_plugin::GrpcPlugin;
use crate::process::directory;
use crate::process_cleanup::ProcessCleanup;

/// A plugin. It answers until it is stopped or dropped.
pub struct KmsPlugin {
    /// What `--encryption-provider-config` wants.
    pub config: PathBuf,
    socket: PathBuf,
    key: Arc<Mutex<String>>,
    server: Option<GrpcPlugin>,
    _cleanup: ProcessCleanup,
}

impl KmsPlugin {
    /// A plugin called `name`, with a configuration that encrypts secrets and config maps by it.
    pub fn start(name: &str, key: &str) -> Self {
        Self::at(name, key, |home| (home.join("s"), format!("unix://{}/s", home.display())))
    }

    /// The same, on a socket that is a name and not a file.
    pub fn start_without_file(name: &str, key: &str) -> Self {
        Self::at(name, key, |home| {
            let socket = format!("pintle-kms{}", home.display());
            (format!("\0{socket}").into(), format!("unix:///@{socket}"))
        })
    }

    /// `place` says where the socket is, and how a configuration says it.
    fn at(name: &str, key: &str, place: impl Fn(&Path) -> (PathBuf, String)) -> Self {
        let cleanup = ProcessCleanup::new();
        let home = directory(cleanup.directory(), "kms");
        let config = home.join("config.yaml");
        let (socket, endpoint) = place(&home);
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
             - resources: [secrets, configmaps]\n  providers:\n  \
             - kms: {{apiVersion: v2, name: {name}, endpoint: '{endpoint}'}}\n  \
             - identity: {{}}\n"
        );
        fs::write(&config, text).expect("a file");
        let key = Arc::new(Mutex::new(key.to_owned()));
        let mut plugin = Self { config, socket, key, server: None, _cleanup: cleanup };
        plugin.start_again();
        plugin
    }

    /// Turns the key. `ill` and `none` are not keys, but what goes wrong.
    pub fn set_key(&self, key: &str) {
        key.clone_into(&mut self.key.lock().expect("no holder panics"));
    }

    /// Goes away, and takes its connections along.
    pub fn stop(&mut self) {
        self.server = None;
    }

    pub fn start_again(&mut self) {
        let key = self.key.clone();
        self.server = Some(GrpcPlugin::start(&self.socket, move |method, message| {
            let key = key.lock().expect("no holder panics").clone();
            if key == "none" {
                return Err("the plugin has no key".to_owned());
            }
            call(method, message, &key)
        }));
    }
}

fn call(method: &str, message: &[u8], key: &str) -> Result<Vec<u8>, String> {
    let wrong = |error: prost::DecodeError| error.to_string();
    match method {
        "/v2.KeyManagementService/Status" => {
            let healthz = if key == "ill" { "the plugin is ill" } else { "ok" };
            let (version, healthz) = ("v2".to_owned(), healthz.to_owned());
            Ok(Status { version, healthz, key_id: key.to_owned() }.encode_to_vec())
        }
        "/v2.KeyManagementService/Encrypt" => {
            let asked = EncryptRequest::decode(message).map_err(wrong)?;
            let mut ciphertext = key.as_bytes().to_vec();
            ciphertext.extend(mask(&asked.plaintext, key));
            let annotations = BTreeMap::from([(ANNOTATION.to_owned(), b"1".to_vec())]);
            Ok(Encrypted { ciphertext, key_id: key.to_owned(), annotations }.encode_to_vec())
        }
        "/v2.KeyManagementService/Decrypt" => {
            let asked = DecryptRequest::decode(message).map_err(wrong)?;
            let ours = asked.annotations.get(ANNOTATION).is_some_and(|value| value == b"1");
            let sealed = asked.ciphertext.strip_prefix(asked.key_id.as_bytes());
            match sealed.filter(|_| ours && !asked.uid.is_empty()) {
                Some(sealed) => {
                    Ok(DecryptResponse { plaintext: mask(sealed, &asked.key_id) }.encode_to_vec())
                }
                None => Err("this is not from here".to_owned()),
            }
        }
        other => Err(format!("there is no method {other}")),
    }
}

const ANNOTATION: &str = "plugin.tests.pintle.dev";

/// Both ways.
fn mask(bytes: &[u8], key: &str) -> Vec<u8> {
    bytes.iter().zip(key.bytes().cycle()).map(|(byte, key)| byte ^ key ^ 0xa5).collect()
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    healthz: String,
    #[prost(string, tag = "3")]
    key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Encrypted {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    annotations: BTreeMap<String, Vec<u8>>,
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
