//! What decides about a write after the caller was authorized and before it is stored: a chain of
//! plugins that may change the object (`admit`) and then may only refuse it (`validate`).
//!
//! `order.rs` is the list, as it runs. Webhooks and policies join it there.

pub mod order;
pub mod plugins;

use std::{future::Future, pin::Pin};

use meta::{ApiError, GroupVersionKind, GroupVersionResource, RequestInfo, Str, User, Value};

/// A write, as the plugins see it.
pub struct Attributes<'a> {
    pub operation: Operation,
    pub gvk: &'a GroupVersionKind,
    pub gvr: &'a GroupVersionResource,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub user: &'a User,
    pub dry_run: bool,
    /// The object as it was; None on create.
    pub old: Option<&'a Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// What plugins may look up; given by the server, so that they don't know the store.
pub trait Lookup: Send + Sync + 'static {
    /// The namespace as it is now, or None. Linearizable when `fresh`.
    fn namespace(&self, name: &str, fresh: bool) -> Pinned<'_, Result<Option<Value>, ApiError>>;

    /// A service account as it is now, or None. Linearizable when `fresh`.
    fn service_account<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        fresh: bool,
    ) -> Pinned<'a, Result<Option<Value>, ApiError>>;

    /// An object of a built-in resource as it is now, or None.
    fn object<'a>(
        &'a self,
        group: &'static str,
        resource: &'static str,
        namespace: &'a str,
        name: &'a str,
    ) -> Pinned<'a, Result<Option<Value>, ApiError>>;

    /// May this user do this?
    fn allows(&self, user: &User, info: &RequestInfo) -> bool;
}

pub type Pinned<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One plugin. `object` is None on delete and connect.
pub trait Plugin: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    fn handles(&self, operation: Operation) -> bool;

    /// Before the strategy prepares and validates: may change the object.
    fn admit<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: Option<&'a mut Value>,
        _lookup: &'a dyn Lookup,
    ) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// After validation: the object as it will be stored.
    fn validate<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: Option<&'a Value>,
        _lookup: &'a dyn Lookup,
    ) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The plugins in their order.
pub struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
    lookup: Box<dyn Lookup>,
}

impl Chain {
    pub fn new(plugins: Vec<Box<dyn Plugin>>, lookup: Box<dyn Lookup>) -> Self {
        Self { plugins, lookup }
    }

    pub async fn admit(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Value>,
    ) -> Result<(), ApiError> {
        for plugin in self.plugins.iter().filter(|plugin| plugin.handles(attributes.operation)) {
            plugin.admit(attributes, object.as_deref_mut(), &*self.lookup).await?;
        }
        Ok(())
    }

    pub async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<(), ApiError> {
        for plugin in self.plugins.iter().filter(|plugin| plugin.handles(attributes.operation)) {
            plugin.validate(attributes, object, &*self.lookup).await?;
        }
        Ok(())
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.plugins.iter().map(|plugin| plugin.name())
    }
}

/// The namespace that a write happens in: its own name for a namespace.
pub(crate) fn namespace_of<'a>(attributes: &Attributes<'a>) -> Option<&'a str> {
    Some(attributes.namespace).filter(|namespace| !namespace.is_empty())
}

/// Names that other rooms need to agree on.
pub fn is_namespace(gvr: &GroupVersionResource) -> bool {
    gvr.group.is_empty() && gvr.resource == Str::new_static("namespaces")
}
