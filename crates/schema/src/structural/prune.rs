//! Pruning: removes the fields that a schema does not specify.

use meta::{
    Value, cancel,
    limits::{FIELD_PATH_BYTES_MAX, STRICT_ERRORS_MAX},
};

use super::node::{AdditionalProperties, StructuralNode};

/// Unknown fields that were removed from an object, in upstream's spelling: `spec.list[0].field`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownFields {
    pub paths: Vec<String>,
    /// Those that are not listed.
    pub more: usize,
}

/// Paths that are listed. More than a response lists, because they are sorted afterwards.
const PATHS_MAX: usize = 4 * STRICT_ERRORS_MAX;

impl UnknownFields {
    /// Adds a path that is written out only if it is listed.
    pub(super) fn add(&mut self, path: impl FnOnce() -> String) {
        if self.paths.len() < PATHS_MAX {
            self.paths.push(path());
        } else {
            self.more += 1;
        }
    }

    /// Adds the paths of one walk, sorted.
    pub(super) fn append(&mut self, mut walk: Self) {
        walk.paths.sort_unstable();
        self.paths.append(&mut walk.paths);
        self.more += walk.more;
    }
}

/// Where pruning is, and what it has removed.
pub(super) struct Unknown<'a> {
    found: Option<&'a mut UnknownFields>,
    here: String,
}

impl<'a> Unknown<'a> {
    pub(super) fn new(found: Option<&'a mut UnknownFields>) -> Self {
        Self { found, here: String::new() }
    }

    fn key(&mut self, key: &str) -> usize {
        let length = self.here.len();
        if self.found.is_some() {
            if length > 0 {
                self.here.push('.');
            }
            // A key of a megabyte would otherwise be copied for each unknown field below it.
            let rest = (FIELD_PATH_BYTES_MAX + 1).saturating_sub(length);
            self.here.push_str(&key[..key.floor_char_boundary(rest)]);
        }
        length
    }

    fn index(&mut self, at: usize) -> usize {
        let length = self.here.len();
        if self.found.is_some() && length <= FIELD_PATH_BYTES_MAX {
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
            found.add(|| meta::limits::cut(&self.here, FIELD_PATH_BYTES_MAX).into_owned());
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
    cancel::checkpoint();
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
