//! How loops learn what happens: changes of objects, as they come.

use std::{sync::Arc, time::Duration};

use meta::{GroupVersionResource, Str, Value};

use crate::{Pinned, Target};

/// A stream of changes. Begins with what is there.
pub trait Informer: Send + 'static {
    /// None: the server stops.
    fn next(&mut self) -> Pinned<'_, Option<InformerEvent>>;
}

#[derive(Clone, Debug)]
pub enum InformerEvent {
    Object(ObjectEvent),
    /// Some changes of a resource were missed. What is there now is told again; what went meanwhile
    /// is not.
    Relisted,
}

/// Lets some time pass, so that changes that come in a burst are looked at once. None: the server stops.
pub(crate) async fn drain_burst(changes: &mut impl Informer, time: Duration) -> Option<()> {
    let end = tokio::time::Instant::now() + time;
    while let Ok(change) = tokio::time::timeout_at(end, changes.next()).await {
        change?;
    }
    Some(())
}

/// Changes come in bursts: what comes within this time is looked at once.
pub(crate) const BURST_WINDOW: Duration = Duration::from_millis(20);
/// When something failed, it is tried again this much later.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(1);

/// An object, as it was when it changed.
#[derive(Clone, Debug)]
pub struct ObjectEvent {
    pub resource: Arc<Resource>,
    pub namespace: Str,
    pub name: Str,
    /// Deleted; the metadata is the last one.
    pub deleted: bool,
    /// `metadata`.
    pub metadata: Value,
}

/// A resource that objects belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    pub gvr: GroupVersionResource,
    pub namespaced: bool,
}

impl Resource {
    pub fn target(&self, namespace: &str, name: &str) -> Target {
        let namespace = if self.namespaced { namespace } else { "" };
        Target { gvr: self.gvr.clone(), ..Target::default() }.in_namespace(namespace).named(name)
    }
}
