//! What decides about a write after the client was authorized and before the object is stored: a chain
//! of plugins that may change the object (`admit`) and then may only refuse it (`validate`).
//!
//! `order.rs` is the list, as it runs. `webhook` and `policy` are the plugins that the cluster's own
//! configurations extend; `matching` decides which requests these are for.

mod attributes;
mod authorizer_checks;
mod changed_object;
mod dynamic_admission;
mod expressions;
mod matching;
pub mod order;
pub mod plugins;
pub mod policy;
mod served_objects;
pub mod testing;
mod versioned;
pub mod webhook;

pub use attributes::{Attributes, Operation, Reinvocation, RequestOptions};
pub use authorizer_checks::evaluate_with_authorizer;
pub use dynamic_admission::{DynamicAdmission, DynamicChange, DynamicKind};
pub use served_objects::{Cluster, Freshness, Pinned, ServedObjects, resources};

use meta::{ApiError, GroupVersionResource, Value};

/// One plugin. `object` is None on delete; on connect it is the options (`PodExecOptions`).
pub trait Plugin: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    fn handles(&self, operation: Operation) -> bool;

    /// Before the strategy prepares and validates: may change the object.
    fn admit<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: Option<&'a mut Value>,
        _cluster: &'a Cluster,
    ) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// After validation: the object as it will be stored.
    fn validate<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: Option<&'a Value>,
        _cluster: &'a Cluster,
    ) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The plugins in their order.
pub struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
    cluster: Cluster,
}

impl Chain {
    pub fn new(plugins: Vec<Box<dyn Plugin>>, cluster: Cluster) -> Self {
        Self { plugins, cluster }
    }

    /// Runs the mutating plugins, a second time if one of them asks for it.
    pub async fn admit(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Value>,
    ) -> Result<(), ApiError> {
        loop {
            for plugin in self.plugins.iter().filter(|plugin| plugin.handles(attributes.operation))
            {
                plugin.admit(attributes, object.as_deref_mut(), &self.cluster).await?;
            }
            if !attributes.reinvocation.begin_if_requested() {
                return Ok(());
            }
        }
    }

    pub async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<(), ApiError> {
        for plugin in self.plugins.iter().filter(|plugin| plugin.handles(attributes.operation)) {
            plugin.validate(attributes, object, &self.cluster).await?;
        }
        Ok(())
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
