//! The event stream that controllers are driven by.

use std::{sync::Arc, time::Duration};

use meta::{GroupVersionResource, Str, Value};

use crate::{BoxFuture, ResourceRef};

/// A list followed by a watch, as one stream of events.
pub trait Informer: Send + 'static {
    /// None once the server stops.
    fn next(&mut self) -> BoxFuture<'_, Option<InformerEvent>>;
}

#[derive(Clone, Debug)]
pub enum InformerEvent {
    Object(ObjectEvent),
    /// The watch of a resource expired and its objects are listed again. Deletions in between are
    /// not reported.
    Relisted,
}

/// Discards the events that arrive within `time`, so that a burst leads to one reconciliation. None
/// once the server stops.
pub(crate) async fn drain_burst(events: &mut impl Informer, time: Duration) -> Option<()> {
    let end = tokio::time::Instant::now() + time;
    while let Ok(change) = tokio::time::timeout_at(end, events.next()).await {
        change?;
    }
    Some(())
}

/// Events that arrive within this time are reconciled together.
pub(crate) const BURST_WINDOW: Duration = Duration::from_millis(20);
/// Delay before a failed reconciliation is retried.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(1);

/// An object that was added, modified or deleted.
#[derive(Clone, Debug)]
pub struct ObjectEvent {
    pub resource: Arc<Resource>,
    pub namespace: Str,
    pub name: Str,
    /// The object was deleted; `metadata` is its last state.
    pub deleted: bool,
    /// `metadata`.
    pub metadata: Value,
}

/// A resource and its scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    pub gvr: GroupVersionResource,
    pub namespaced: bool,
}

impl Resource {
    pub fn target(&self, namespace: &str, name: &str) -> ResourceRef {
        let namespace = if self.namespaced { namespace } else { "" };
        ResourceRef { gvr: self.gvr.clone(), ..ResourceRef::default() }
            .in_namespace(namespace)
            .named(name)
    }
}
