//! Converts between the JSON of an object, which the cache holds and clients get, and the bytes in
//! the backend. Code above this interface handles JSON only, code below it bytes only.

use bytes::Bytes;
use meta::Value;

/// How the objects of one resource are stored.
pub trait StorageCodec: Send + Sync + 'static {
    /// Encodes an object without its resourceVersion. `json` is the same object.
    fn encode(&self, object: &Value, json: &Bytes) -> Result<Bytes, String>;

    /// An object that was just encoded as it will be decoded, where that differs: a schema may have
    /// defaults for fields that the server has dropped.
    fn read_back(&self, _object: &Value, _json: &Bytes) -> Option<Bytes> {
        None
    }

    /// Decodes stored bytes, written by this server or by another one.
    fn decode(&self, stored: &Bytes) -> Result<Bytes, String>;

    /// Whether stored bytes may differ from what would be stored now: another version, or fields
    /// that were removed from a schema.
    fn may_outdate(&self) -> bool {
        false
    }
}

/// Stores the served JSON: the embedded store, and custom resources in any store.
pub struct AsJson;

impl StorageCodec for AsJson {
    fn encode(&self, _object: &Value, json: &Bytes) -> Result<Bytes, String> {
        Ok(json.clone())
    }

    fn decode(&self, stored: &Bytes) -> Result<Bytes, String> {
        Ok(stored.clone())
    }
}

/// An encoded object.
#[derive(Clone)]
pub(crate) struct EncodedObject {
    /// The JSON for clients, without the resourceVersion.
    pub(crate) json: Bytes,
    /// The bytes for the backend.
    pub(crate) bytes: Bytes,
}
