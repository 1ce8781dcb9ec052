//! Secrets.

mod key_pair;
mod validation;

use base64::{Engine, prelude::BASE64_STANDARD as STANDARD};
use meta::{FieldErrors, Value};
use registry::{Cell, Column, Strategy};

use crate::defaulting::SetDefault;
use crate::printer_cells::{keys, text};

pub(crate) struct Secret;

impl Strategy for Secret {
    fn default(&self, secret: &mut Value) {
        let secret = secret.object_at_mut(&[]);
        secret.set_default_if_empty("type", "Opaque");
        // Only ever written: what it says ends up in `data`, over what that says.
        if let Some(Value::Object(texts)) = secret.remove("stringData") {
            for (key, text) in texts {
                let text = STANDARD.encode(text.as_str().unwrap_or_default());
                secret.part("data").insert(key, text);
            }
        }
    }

    fn validate(&self, secret: &Value, errors: &mut FieldErrors) {
        validation::validate(secret, errors);
    }

    fn validate_update(&self, secret: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(secret, old, errors);
    }

    fn warnings(&self, _subresource: &str, secret: &Value, _old: Option<&Value>) -> Vec<String> {
        if secret.str_at(&["type"]) != "kubernetes.io/tls" {
            return Vec::new();
        }
        let data = |key| STANDARD.decode(secret.str_at(&["data", key])).unwrap_or_default();
        key_pair::error(&data("tls.crt"), &data("tls.key")).into_iter().collect()
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Type", |secret, _| text(secret, &["type"])),
            Column::new("Data", |secret, _| Cell::Integer(keys(secret, &["data"]))),
            Column::AGE,
        ]
    }
}
