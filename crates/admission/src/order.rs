//! The admission plugins that are built, in the order in which they run. kube-apiserver's other
//! plugins take their places here as they come.

use crate::{Plugin, plugins};

pub fn plugins() -> Vec<Box<dyn Plugin>> {
    vec![
        // First, as upstream: nothing else needs to look at an object that has no
        // namespace to live in.
        Box::new(plugins::namespace_lifecycle::NamespaceLifecycle),
    ]
}
