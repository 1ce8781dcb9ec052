//! The index of roles and bindings that RBAC decides by, kept current by the watch caches. Requests
//! read it without a lock. The write of a role or a binding is answered when the index has it: a
//! right that was taken away is gone for the next request.

use std::sync::Arc;

use arc_swap::ArcSwap;
use auth::authz::rbac::{Index, Roles, Rule};
use background::Tasks;
use parking_lot::Mutex;
use registry::Kind;

use crate::{
    cache_follower::{Change, DerivedState, follow},
    in_process::tree,
};

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

#[derive(Default)]
pub(crate) struct RoleIndex {
    current: ArcSwap<Index>,
    /// The same, for the tasks that change it, one after the other.
    next: Mutex<Index>,
}

impl Roles for RoleIndex {
    fn current(&self) -> Arc<Index> {
        self.current.load_full()
    }
}

impl RoleIndex {
    /// Reads what there is, and follows it from then on. The caches are filled.
    pub(crate) fn follow(self: &Arc<Self>, kinds: &[Arc<Kind>], tasks: &Tasks) {
        for kind in kinds.iter().filter(|kind| kind.gvk().group == GROUP) {
            let Some(storage) = kind.storage.clone() else { continue };
            let is_binding = kind.gvk().kind.ends_with("Binding");
            let state = RolesOfKind { index: self.clone(), is_binding };
            // It ends with the process only: a frozen index grants rights that were taken away.
            tasks.critical("role-index", follow(storage, state));
        }
    }
}

/// One of the four kinds.
struct RolesOfKind {
    index: Arc<RoleIndex>,
    is_binding: bool,
}

impl DerivedState for RolesOfKind {
    const NAME: &'static str = "the index of roles";

    fn apply(&mut self, changes: &mut dyn Iterator<Item = Change<'_>>) {
        let mut next = self.index.next.lock();
        for Change { entry, deleted } in changes {
            // What cannot be read gives no rights.
            let object = if deleted { None } else { tree(entry).ok() };
            let (namespace, name) = (&entry.namespace, &entry.name);
            if self.is_binding {
                next.set_binding(namespace, name, object.as_ref());
            } else {
                next.set_role(namespace, name, object.as_ref().map(Rule::all_of));
            }
        }
        self.index.current.store(Arc::new(next.clone()));
    }
}
