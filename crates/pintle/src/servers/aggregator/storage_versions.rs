//! The StorageVersions of built-in resources (feature gate `StorageVersionAPI`): what this server says about
//! itself, and the barrier that writes wait at until it has said so.

use std::{cmp::Reverse, collections::HashSet, sync::Arc, time::Duration};

use builtin::Definitions;
use controllers::{ApiClient as _, ResourceRef, ServerStorageVersion, StorageVersionUpdater};
use futures_util::future::join_all;
use meta::{ApiError, GroupResource, GroupVersion};
use registry::Kind;
use serve::StorageVersions;

use super::super::{GenericApiServer, server_identity};
use crate::{options::Options, post_start_hooks::HookContext};

pub(crate) struct StorageVersionManager {
    pub(crate) barrier: Arc<StorageVersions>,
    resources: Vec<ResourceInfo>,
}

#[derive(Debug, PartialEq)]
struct ResourceInfo {
    version: ServerStorageVersion,
    /// The resource, and those of other groups with the same objects (Events).
    equivalents: Vec<GroupResource>,
}

impl StorageVersionManager {
    /// None: the gates are off.
    pub(crate) fn new(
        options: &Options,
        definitions: &Definitions,
        kinds: &[Arc<Kind>],
    ) -> Option<Arc<Self>> {
        let gates = &options.feature_gates;
        let is_on = gates.enabled("StorageVersionAPI") && gates.enabled("APIServerIdentity");
        let resources = is_on.then(|| resource_infos(definitions, kinds))?;
        let waiting = resources.iter().flat_map(|info| info.equivalents.iter().cloned());
        let barrier = Arc::new(StorageVersions::new(waiting));
        Some(Arc::new(Self { barrier, resources }))
    }

    /// Writes all StorageVersions. Those that fail are tried again with the next call.
    async fn update(&self, updater: &StorageVersionUpdater) {
        let mut is_complete = true;
        // Several at a time, so that their writes share an fsync.
        for resources in self.resources.chunks(CONCURRENT_UPDATES) {
            let updates = resources.iter().map(|info| self.update_one(updater, info));
            is_complete &= join_all(updates).await.into_iter().all(|is_updated| is_updated);
        }
        if is_complete {
            tracing::info!("storage version updates complete");
            self.barrier.complete();
        }
    }

    async fn update_one(&self, updater: &StorageVersionUpdater, info: &ResourceInfo) -> bool {
        let updated = updater.update(&info.version).await.map_err(|error| described(&error));
        if let Err(error) = &updated {
            let resource = info.version.resource.to_string();
            tracing::error!(error, resource, "failed to update storage version");
        }
        let is_updated = updated.is_ok();
        self.barrier.record(&info.equivalents, updated);
        is_updated
    }

    /// Adds the hook that writes them, once the identity lease of this server exists: the storage version garbage
    /// collector deletes entries of servers without one.
    pub(super) fn install(self: &Arc<Self>, server: &mut GenericApiServer) {
        let manager = self.clone();
        server.add_post_start_hook("built-in-resources-storage-version-updater", async move |cx| {
            cx.after("start-kube-apiserver-identity-lease-controller").await;
            identity_lease_exists(&cx).await?;
            let updater =
                StorageVersionUpdater { api: cx.api.clone(), api_server_id: server_identity() };
            let (own, updater) = (manager.clone(), Arc::new(updater));
            cx.tasks.restarting("storage-version-updater", move || {
                let (manager, updater) = (own.clone(), updater.clone());
                async move {
                    loop {
                        manager.update(&updater).await;
                        tokio::time::sleep(UPDATE_INTERVAL).await;
                    }
                }
            });
            manager.barrier.completed().await;
            Ok(())
        });
    }
}

/// Compat: client-go names the request where the API is off.
fn described(error: &ApiError) -> String {
    match error {
        ApiError::NotServed => format!("{error} (post storageversions.internal.apiserver.k8s.io)"),
        _ => error.to_string(),
    }
}

const CONCURRENT_UPDATES: usize = 16;
/// Compat: what others have changed or deleted is put right after this time.
const UPDATE_INTERVAL: Duration = Duration::from_mins(10);
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// It is written again and again, should the store have refused it at first.
async fn identity_lease_exists(cx: &HookContext) -> Result<(), String> {
    let id = server_identity();
    let leases = ResourceRef::cluster("coordination.k8s.io", "v1", "leases");
    let lease = leases.in_namespace("kube-system").named(&id);
    loop {
        match cx.api.get(&lease).await {
            Ok(_) => return Ok(()),
            Err(ApiError::NotFound { .. }) => tokio::time::sleep(LEASE_POLL_INTERVAL).await,
            Err(error) => {
                return Err(format!(
                    "failed to wait for apiserver-identity lease {id} to be created: {error}"
                ));
            }
        }
    }
}

/// The stored resources, one for each that shares its objects with others: the first by group and name.
fn resource_infos(definitions: &Definitions, kinds: &[Arc<Kind>]) -> Vec<ResourceInfo> {
    let mut stored: Vec<&Arc<Kind>> = kinds.iter().filter(|kind| kind.storage.is_some()).collect();
    stored.sort_by_key(|kind| (kind.gvk().group.clone(), kind.facts.plural.clone()));
    let mut seen = HashSet::new();
    let once =
        stored.into_iter().filter(|kind| seen.insert(kind.storage.as_ref().map(Arc::as_ptr)));
    once.filter_map(|kind| resource_info(definitions, kinds, kind)).collect()
}

fn resource_info(
    definitions: &Definitions,
    kinds: &[Arc<Kind>],
    kind: &Arc<Kind>,
) -> Option<ResourceInfo> {
    let resource = |kind: &Kind| GroupResource::new(&kind.gvk().group, &kind.facts.plural);
    let own = resource(kind);
    let priority = |group_version: &GroupVersion| {
        let mut all = definitions.group_versions.iter();
        all.find(|facts| facts.group_version == *group_version).map(|facts| facts.version_priority)
    };
    let mut known: Vec<GroupVersion> = definitions
        .group_versions
        .iter()
        .map(|facts| facts.group_version.clone())
        .filter(|group_version| group_version.group == kind.gvk().group)
        .filter(|group_version| {
            definitions.type_of(&group_version.with_kind(&kind.gvk().kind)).is_some()
        })
        .collect();
    known.sort_by_key(|group_version| Reverse(priority(group_version)));
    let equal: Vec<&Arc<Kind>> = kinds.iter().filter(|other| other.shares_storage(kind)).collect();
    for other in &equal {
        let group_version = other.facts.group_version();
        if !known.contains(&group_version) {
            known.push(group_version);
        }
    }
    let mut served: Vec<GroupVersion> = equal
        .iter()
        .filter(|other| resource(other) == own)
        .map(|other| other.facts.group_version())
        .collect();
    served.sort_by_key(|group_version| Reverse(priority(group_version)));
    let mut equivalents: Vec<GroupResource> = equal.iter().map(|other| resource(other)).collect();
    equivalents.sort();
    equivalents.dedup();
    let texts = |all: &[GroupVersion]| all.iter().map(ToString::to_string).collect();
    let version = ServerStorageVersion {
        resource: own,
        encoding_version: kind.facts.storage.as_ref()?.version.to_string(),
        decodable_versions: texts(&known),
        served_versions: texts(&served),
    };
    Some(ResourceInfo { version, equivalents })
}
