//! Encryption at rest with KMS v2 plugins, which are called over gRPC on a Unix socket.
//!
//! The plugin never sees an object. It encrypts a random seed; each value is encrypted with a key
//! of its own, derived from the seed. `envelope` has the format, `client` the calls, `provider` the
//! rotation and caching of seeds.
//!
//! A crate of its own for the same reason as `etcd`: nothing above
//! [`store::encrypt::RemoteProvider`] needs gRPC.

mod client;
mod envelope;
mod metrics;
mod provider;

pub use metrics::register_metrics;
pub use provider::connect;

/// Entry points for the fuzz target: envelopes whose seed is known, so that no plugin is called.
#[doc(hidden)]
pub mod fuzzing {
    use prost::Message as _;

    use crate::client::Encrypted;
    use crate::envelope::{Dek, EncryptedObject, SEED_BYTES, SOURCE_TYPE_SEED};

    /// Encrypts a value.
    pub fn seal(value: &[u8], context: &[u8]) -> Vec<u8> {
        let seed = Dek::new(SOURCE_TYPE_SEED, &[7; SEED_BYTES]).expect("the length of a seed");
        let data = seed.seal(value, context).expect("a seed encrypts");
        let encrypted = Encrypted {
            ciphertext: vec![1; 60],
            key_id: "key".to_owned(),
            annotations: [("version.example.com".to_owned(), vec![2])].into(),
        };
        EncryptedObject::new(&encrypted, data).encode_to_vec()
    }

    /// Decrypts what was stored.
    pub fn open(stored: &[u8], context: &[u8]) -> Result<Vec<u8>, String> {
        let object = EncryptedObject::read(stored)?;
        let _ = object.seed_id();
        Dek::new(object.source_type, &[7; SEED_BYTES])?.open(&object.data, context)
    }
}
