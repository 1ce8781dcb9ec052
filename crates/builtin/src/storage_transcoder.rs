//! Transcodes stored objects from one storage format to another, for copies between stores.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use codec::json::DecodeOptions;
use meta::Str;
use registry::{StorageCodec, Strategy};
use schema::Schema;

use crate::Definitions;
use crate::kinds::ServedResource;
use crate::storage_format::{StorageFormat, StorageFormats};

/// Reads stored objects in any form.
pub struct StorageTranscoder {
    /// By what their keys begin with below the root: `services/specs`.
    codecs: HashMap<Str, Arc<dyn StorageCodec>>,
    /// What is written.
    form: StorageFormat,
}

impl StorageTranscoder {
    /// `crd_strategy` is the strategy of CustomResourceDefinition.
    pub fn new(
        definitions: &Definitions,
        schema: &Arc<Schema>,
        form: StorageFormat,
        crd_strategy: &Arc<dyn Strategy>,
    ) -> Self {
        let written = if form == StorageFormat::Own { StorageFormat::Protobuf } else { form };
        let forms = StorageFormats::new(definitions, schema, written, crd_strategy);
        let mut codecs = HashMap::new();
        // Where several versions are stored alike, any of them will do: each reads all.
        for facts in definitions.resources.iter().filter(|facts| facts.on_by_default) {
            if let Some(stored) = ServedResource::new(definitions, facts).stored {
                let codec = || forms.codec(facts, &stored.gvk, stored.ty);
                codecs.entry(stored.prefix).or_insert_with(codec);
            }
        }
        Self { codecs, form }
    }

    /// What a server would write for the object at a key, below the root, whatever form it has now.
    /// What is no built-in object is left as it is: custom resources are JSON everywhere.
    pub fn written(&self, path: &str, value: &Bytes) -> Result<Bytes, String> {
        let Some(codec) = self.codec(path) else { return Ok(value.clone()) };
        let json = codec.decode(value)?;
        if self.form == StorageFormat::Own {
            return Ok(json);
        }
        let object = codec::json::decode_any(&json, DecodeOptions { strict: false });
        codec.encode(&object.map_err(|error| error.to_string())?.value, &json)
    }

    /// The object as it is served, to compare by.
    pub fn served(&self, path: &str, value: &Bytes) -> Result<Bytes, String> {
        self.codec(path).map_or_else(|| Ok(value.clone()), |codec| codec.decode(value))
    }

    fn codec(&self, path: &str) -> Option<&Arc<dyn StorageCodec>> {
        let mut ends = path.match_indices('/').map(|(at, _)| at);
        let (first, second) = (ends.next()?, ends.next());
        let both = second.and_then(|second| self.codecs.get(&path[..second]));
        both.or_else(|| self.codecs.get(&path[..first]))
    }
}
