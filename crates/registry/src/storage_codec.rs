//! Between the JSON of an object, which the cache holds and clients get, and the bytes that a
//! backend keeps. Everything above this seam knows JSON only; everything below it bytes only.

use bytes::Bytes;
use meta::Value;

/// How the objects of one resource are stored.
pub trait StorageCodec: Send + Sync + 'static {
    /// The bytes to keep for an object without its resourceVersion. `json` is the same object, for
    /// those that keep it as it is.
    fn encode(&self, object: &Value, json: &Bytes) -> Result<Bytes, String>;

    /// An object that was just encoded as it will be read, where that is not as it was written: a
    /// schema may have defaults for what the server itself has dropped.
    fn read_back(&self, _object: &Value, _json: &Bytes) -> Option<Bytes> {
        None
    }

    /// The JSON of what was stored, by this server or by another one.
    fn decode(&self, stored: &Bytes) -> Result<Bytes, String>;

    /// Whether what is stored may read as something that would be stored otherwise now: in another
    /// version, or with fields that a schema has given up.
    fn may_outdate(&self) -> bool {
        false
    }
}

/// Stored as it is served: the embedded store, and custom resources anywhere.
pub struct AsJson;

impl StorageCodec for AsJson {
    fn encode(&self, _object: &Value, json: &Bytes) -> Result<Bytes, String> {
        Ok(json.clone())
    }

    fn decode(&self, stored: &Bytes) -> Result<Bytes, String> {
        Ok(stored.clone())
    }
}

/// An object on its way into the store.
#[derive(Clone)]
pub(crate) struct Encoded {
    /// What clients get, but for the resourceVersion.
    pub(crate) json: Bytes,
    /// What the backend keeps.
    pub(crate) bytes: Bytes,
}
