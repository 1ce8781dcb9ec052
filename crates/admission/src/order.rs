//! The admission plugins that are built, in the order in which they run. kube-apiserver's other
//! plugins take their places here as they come.

use crate::{Plugin, plugins, policy, webhook};

/// Those that are on.
pub fn plugins(is_on: &dyn Fn(&str) -> bool) -> Vec<Box<dyn Plugin>> {
    all().into_iter().filter(|plugin| is_on(plugin.name())).collect()
}

fn all() -> Vec<Box<dyn Plugin>> {
    vec![
        // First, as upstream: nothing else needs to look at an object that has no
        // namespace to live in.
        Box::new(plugins::namespace_lifecycle::NamespaceLifecycle),
        Box::new(plugins::service_account::ServiceAccount),
        Box::new(plugins::node_restriction::NodeRestriction),
        Box::new(policy::MutatingAdmissionPolicy),
        Box::new(webhook::MutatingAdmissionWebhook),
        Box::new(policy::ValidatingAdmissionPolicy),
        Box::new(webhook::ValidatingAdmissionWebhook),
    ]
}
