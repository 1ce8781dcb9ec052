//! Pruning: removes the fields that a schema does not specify.

use meta::Value;

use super::node::{AdditionalProperties, StructuralNode};

/// Paths of unknown fields, in upstream's spelling: `spec.list[0].field`.
pub(super) struct Unknown<'a> {
    found: Option<&'a mut Vec<String>>,
    here: String,
}

impl<'a> Unknown<'a> {
    pub(super) fn new(found: Option<&'a mut Vec<String>>) -> Self {
        Self { found, here: String::new() }
    }

    fn key(&mut self, key: &str) -> usize {
        let length = self.here.len();
        if self.found.is_some() {
            if length > 0 {
                self.here.push('.');
            }
            self.here.push_str(key);
        }
        length
    }

    fn index(&mut self, at: usize) -> usize {
        let length = self.here.len();
        if self.found.is_some() {
            self.here.push_str(&format!("[{at}]"));
        }
        length
    }

    fn back(&mut self, length: usize) {
        self.here.truncate(length);
    }

    fn record(&mut self, key: &str) {
        let length = self.key(key);
        if let Some(found) = &mut self.found {
            found.push(self.here.clone());
        }
        self.back(length);
    }
}

/// `embedded`: `apiVersion`, `kind` and `metadata` are handled by the caller.
pub(super) fn prune(
    value: &mut Value,
    node: Option<&StructuralNode>,
    embedded: bool,
    unknown: &mut Unknown<'_>,
) {
    if let Some(node) = node.filter(|node| node.preserve_unknown) {
        return below_preserved(value, node, embedded, unknown);
    }
    match value {
        Value::Object(map) => map.retain(|key, value| {
            if embedded && is_type_or_object_meta(key) {
                return true;
            }
            let below = match node {
                None => None,
                Some(node) => match (node.property(key), &node.additional_properties) {
                    (Some(property), _) => Some(Some(property)),
                    (None, AdditionalProperties::None) => None,
                    (None, additional) => Some(additional.schema()),
                },
            };
            let Some(below) = below else {
                // Compat: upstream never reports the metadata of the root, not even without a
                // schema.
                if node.is_none() || !is_type_or_object_meta(key) || !unknown.here.is_empty() {
                    unknown.record(key);
                }
                return false;
            };
            let back = unknown.key(key);
            prune(value, below, is_embedded(below), unknown);
            unknown.back(back);
            true
        }),
        Value::Array(items) => {
            let below = node.and_then(|node| node.items.as_deref());
            for (at, item) in items.iter_mut().enumerate() {
                let back = unknown.index(at);
                prune(item, below, is_embedded(below), unknown);
                unknown.back(back);
            }
        }
        _ => {}
    }
}

/// Unknown fields are preserved here; specified fields are pruned recursively.
fn below_preserved(
    value: &mut Value,
    node: &StructuralNode,
    embedded: bool,
    unknown: &mut Unknown<'_>,
) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                if embedded && is_type_or_object_meta(key) {
                    continue;
                }
                let below = match (node.property(key), &node.additional_properties) {
                    (Some(property), _) => Some(property),
                    (None, AdditionalProperties::None) => continue,
                    (None, additional) => additional.schema(),
                };
                let back = unknown.key(key);
                prune(value, below, is_embedded(below), unknown);
                unknown.back(back);
            }
        }
        Value::Array(items) => {
            let Some(below) = node.items.as_deref() else { return };
            for (at, item) in items.iter_mut().enumerate() {
                let back = unknown.index(at);
                below_preserved(item, below, below.embedded_resource, unknown);
                unknown.back(back);
            }
        }
        _ => {}
    }
}

fn is_embedded(node: Option<&StructuralNode>) -> bool {
    node.is_some_and(|node| node.embedded_resource)
}

fn is_type_or_object_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}
