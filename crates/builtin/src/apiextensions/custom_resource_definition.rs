//! Custom resource definitions.

use meta::{Map, Value};
use registry::{Strategy, WriteContext};

use crate::fill::{Fill, default_service_reference, is_empty};

pub(crate) struct CustomResourceDefinition;

impl Strategy for CustomResourceDefinition {
    fn default(&self, definition: &mut Value) {
        let definition = definition.object_at_mut(&[]);
        let spec = definition.part("spec");
        default_names(spec.part("names"));
        if let Some(conversion) = spec.given("conversion") {
            let webhook = conversion.given("webhook");
            if let Some(client_config) = webhook.and_then(|own| own.given("clientConfig")) {
                default_service_reference(client_config);
            }
        } else {
            spec.part("conversion").insert("strategy", "None");
        }
        default_stored_versions(definition);
    }

    /// Its objects go first; the server lets it go afterwards.
    fn holds_deletion(&self, definition: &Value) -> bool {
        definition.str_at(&["metadata", "deletionTimestamp"]).is_empty()
    }

    fn begin_deletion(&self, definition: &mut Value) {
        apiextensions::finalizing::begin(definition);
    }

    fn prepare_for_create(&self, definition: &mut Value, _cx: &WriteContext<'_>) {
        default_stored_versions(definition.object_at_mut(&[]));
    }
}

/// Objects may be stored in the version that is marked so from now on.
fn default_stored_versions(definition: &mut Map) {
    let spec = definition.part("spec");
    let stored = spec.each("versions").find_map(|version| {
        let is_stored = version.get("storage").and_then(Value::as_bool) == Some(true);
        version.get("name").filter(|_| is_stored).cloned()
    });
    if let Some(stored) = stored {
        definition.part("status").fill_empty("storedVersions", vec![stored]);
    }
}

fn default_names(names: &mut Map) {
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.is_empty() {
        return;
    }
    if names.get("singular").is_none_or(is_empty) {
        names.insert("singular", kind.to_lowercase());
    }
    if names.get("listKind").is_none_or(is_empty) {
        names.insert("listKind", format!("{kind}List"));
    }
}
