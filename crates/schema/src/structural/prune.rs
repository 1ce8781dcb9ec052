//! Drops what a schema doesn't know.

use meta::Value;

use super::node::{Additional, Node};

/// Where unknown fields were found, in upstream's spelling: `spec.list[0].field`.
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

/// `embedded`: `apiVersion`, `kind` and `metadata` are looked after elsewhere.
pub(super) fn prune(
    value: &mut Value,
    node: Option<&Node>,
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
                Some(node) => match (node.property(key), &node.additional) {
                    (Some(property), _) => Some(Some(property)),
                    (None, Additional::None) => None,
                    (None, additional) => Some(additional.schema()),
                },
            };
            let Some(below) = below else {
                // Upstream names a root's metadata nowhere, not even where no schema is.
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

/// Everything is kept here, but what the schema does specify is pruned below.
fn below_preserved(value: &mut Value, node: &Node, embedded: bool, unknown: &mut Unknown<'_>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                if embedded && is_type_or_object_meta(key) {
                    continue;
                }
                let below = match (node.property(key), &node.additional) {
                    (Some(property), _) => Some(property),
                    (None, Additional::None) => continue,
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

fn is_embedded(node: Option<&Node>) -> bool {
    node.is_some_and(|node| node.embedded_resource)
}

fn is_type_or_object_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}
