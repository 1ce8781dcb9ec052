//! `metadata.finalizers`: what keeps an object from going.

use meta::Value;

const FINALIZERS: [&str; 2] = ["metadata", "finalizers"];

pub(crate) fn has_finalizer(object: &Value, name: &str) -> bool {
    object.items_at(&FINALIZERS).iter().any(|finalizer| finalizer.as_str() == Some(name))
}

/// The object with this finalizer; None: it has it.
pub(crate) fn with_finalizer(mut object: Value, name: &str) -> Option<Value> {
    if has_finalizer(&object, name) {
        return None;
    }
    let mut finalizers = object.items_at(&FINALIZERS).to_vec();
    finalizers.push(name.into());
    object.set_at(&FINALIZERS, finalizers);
    Some(object)
}

/// The object without this finalizer; None: it doesn't have it.
pub(crate) fn without_finalizer(mut object: Value, name: &str) -> Option<Value> {
    if !has_finalizer(&object, name) {
        return None;
    }
    let mut finalizers = object.items_at(&FINALIZERS).to_vec();
    finalizers.retain(|finalizer| finalizer.as_str() != Some(name));
    object.set_at(&FINALIZERS, finalizers);
    Some(object)
}
