//! Adding and removing entries of `metadata.finalizers`.

use meta::Value;

const FINALIZERS: [&str; 2] = ["metadata", "finalizers"];

pub(crate) fn has_finalizer(object: &Value, name: &str) -> bool {
    object.items_at(&FINALIZERS).iter().any(|finalizer| finalizer.as_str() == Some(name))
}

/// The object with this finalizer added; None if it has it already.
pub(crate) fn with_finalizer(mut object: Value, name: &str) -> Option<Value> {
    if has_finalizer(&object, name) {
        return None;
    }
    let mut finalizers = object.items_at(&FINALIZERS).to_vec();
    finalizers.push(name.into());
    object.set_at(&FINALIZERS, finalizers);
    Some(object)
}

/// The object with this finalizer removed; None if it does not have it.
pub(crate) fn without_finalizer(mut object: Value, name: &str) -> Option<Value> {
    if !has_finalizer(&object, name) {
        return None;
    }
    let mut finalizers = object.items_at(&FINALIZERS).to_vec();
    finalizers.retain(|finalizer| finalizer.as_str() != Some(name));
    object.set_at(&FINALIZERS, finalizers);
    Some(object)
}
