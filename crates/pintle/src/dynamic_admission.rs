//! Keeps the compiled webhooks and policies current by the watch caches. The write of a configuration
//! is answered when it counts: the next request sees it.

use std::sync::Arc;

use admission::{DynamicAdmission, DynamicChange, DynamicKind};
use background::Tasks;
use registry::Kind;

use crate::{
    cache_follower::{self, Change, DerivedState},
    in_process::tree,
};

const GROUP: &str = "admissionregistration.k8s.io";

/// Reads what there is, and follows it from then on. The caches are filled.
pub(crate) fn follow(dynamic: &Arc<DynamicAdmission>, kinds: &[Arc<Kind>], tasks: &Tasks) {
    for kind in DynamicKind::ALL {
        let mut served = kinds.iter();
        let served = served.find(|own| own.gvk().group == GROUP && own.gvk().kind == kind.as_str());
        let Some(storage) = served.and_then(|own| own.storage.clone()) else {
            // `--runtime-config` has turned it off.
            dynamic.skip(kind);
            continue;
        };
        let state = Configurations { dynamic: dynamic.clone(), kind };
        // Frozen rules would let pass what they are there to refuse.
        tasks.critical("dynamic-admission", cache_follower::follow(storage, state));
    }
}

/// The configurations of one kind.
struct Configurations {
    dynamic: Arc<DynamicAdmission>,
    kind: DynamicKind,
}

impl DerivedState for Configurations {
    const NAME: &'static str = "the set of webhooks and policies";

    fn apply(&mut self, changes: &mut dyn Iterator<Item = Change<'_>>) {
        let mut applied: Vec<DynamicChange> = Vec::new();
        for Change { entry, deleted } in changes {
            if deleted {
                applied.push((entry.name.clone(), None));
                continue;
            }
            match tree(entry) {
                Ok(object) => applied.push((entry.name.clone(), Some(object))),
                // What was compiled before stays: dropping it could let requests through.
                Err(error) => {
                    tracing::error!(name = %entry.name, kind = self.kind.as_str(), %error,
                        "an admission configuration cannot be read");
                }
            }
        }
        self.dynamic.apply(self.kind, applied);
    }
}
