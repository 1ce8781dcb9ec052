//! What decides about a write after the client was authorized and before the object is stored: a chain
//! of plugins that may change the object (`admit`) and then may only refuse it (`validate`).
//!
//! `order.rs` is the list of all plugins, as they run; `chain.rs` runs those that are on. `webhook` and
//! `policy` are the plugins that the cluster's own configurations extend; `matching` decides which requests
//! these are for.

mod attributes;
mod authorizer_checks;
mod chain;
mod changed_object;
pub mod configuration;
mod dynamic_admission;
mod expressions;
#[cfg(test)]
mod harness;
mod matching;
mod metrics;
pub mod order;
mod patched_object;
pub mod plugins;
pub mod policy;
pub mod quota;
mod served_objects;
#[cfg(test)]
mod speed;
pub mod static_manifests;
pub mod testing;
mod versioned;
pub mod webhook;

pub use attributes::{Attributes, Operation, Reinvocation, RequestOptions};
pub use authorizer_checks::evaluate_with_authorizer;
pub use chain::Chain;
pub use configuration::Configurations;
pub use dynamic_admission::{DynamicAdmission, DynamicChange, DynamicKind, StaticConfigurations};
pub use metrics::Metrics;
pub use served_objects::{BoxFuture, Cluster, Freshness, ServedObjects, resources};

use meta::{ApiError, GroupVersionResource, Value};
use prometheus::IntCounterVec;

/// One plugin. `object` is None on delete; on connect it is the options (`PodExecOptions`).
pub trait Plugin: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    fn handles(&self, operation: Operation) -> bool;

    /// Whether the plugin looks at this request at all. It is called for every write, so it must not
    /// allocate: what it refuses costs nothing else.
    fn concerns(&self, _attributes: &Attributes<'_>) -> bool {
        true
    }

    /// Whether `admit`, `validate` or both do something.
    fn phases(&self) -> Phases {
        Phases::Both
    }

    /// The plugin's own counters.
    fn counters(&self) -> Vec<IntCounterVec> {
        Vec::new()
    }

    /// Before the strategy prepares and validates: may change the object.
    fn admit<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: Option<&'a mut Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// After validation: the object as it will be stored.
    fn validate<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: Option<&'a Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// kube-apiserver's `MutationInterface` and `ValidationInterface`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phases {
    Mutating,
    Validating,
    Both,
}

impl Phases {
    pub fn mutates(self) -> bool {
        self != Self::Validating
    }

    pub fn validates(self) -> bool {
        self != Self::Mutating
    }
}

/// The namespace that a write happens in; None for cluster-scoped resources.
pub(crate) fn namespace_of<'a>(attributes: &Attributes<'a>) -> Option<&'a str> {
    Some(attributes.namespace).filter(|namespace| !namespace.is_empty())
}

pub(crate) fn is_namespace(gvr: &GroupVersionResource) -> bool {
    gvr.group.is_empty() && gvr.resource == "namespaces"
}

/// JSON with its keys in this order, as Go writes a struct.
pub(crate) fn ordered_json(fields: &[(&str, Value)]) -> String {
    let mut out = vec![b'{'];
    for (at, (key, value)) in fields.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        meta::json::write_string(&mut out, key);
        out.push(b':');
        meta::json::write_value(&mut out, value);
    }
    out.push(b'}');
    String::from_utf8_lossy(&out).into_owned()
}
