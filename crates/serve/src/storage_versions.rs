//! The storage version barrier (feature gate `StorageVersionAPI`): a resource is not written before the StorageVersion
//! objects of the cluster say in which version this server stores it. Otherwise a migration of the storage could
//! end while this server still adds objects in another version.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use meta::{ApiError, GroupResource, RequestInfo, User};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Which resources wait for their StorageVersion.
#[derive(Default)]
pub struct StorageVersions {
    completed: AtomicBool,
    /// Resources that are not stored are not in it.
    statuses: Mutex<HashMap<GroupResource, Status>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Status {
    done: bool,
    last_error: Option<String>,
}

impl StorageVersions {
    /// All of these wait.
    pub fn new(resources: impl IntoIterator<Item = GroupResource>) -> Self {
        let statuses = resources.into_iter().map(|resource| (resource, Status::default()));
        Self { statuses: Mutex::new(statuses.collect()), ..Self::default() }
    }

    /// A StorageVersion was written, or could not be. One may stand for the resources of several groups.
    pub fn record(&self, resources: &[GroupResource], updated: Result<(), String>) {
        let mut statuses = self.statuses.lock();
        for resource in resources {
            let Some(status) = statuses.get_mut(resource) else { continue };
            status.done |= updated.is_ok();
            status.last_error = updated.clone().err();
        }
        drop(statuses);
        self.changed.notify_waiters();
    }

    /// All StorageVersions are written.
    pub fn complete(&self) {
        self.completed.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    fn is_completed(&self) -> bool {
        self.completed.load(Ordering::Acquire)
    }

    pub async fn completed(&self) {
        self.wait(|| self.is_completed()).await;
    }

    /// Refuses writes of resources that wait. Passed are, until all are written: reads, StorageVersions themselves,
    /// and what they depend on (leases in `kube-system`, the server's own creation of namespaces).
    pub fn precondition(&self, info: &RequestInfo, user: &User) -> Result<(), ApiError> {
        if self.is_completed() || is_exempt(info, user) {
            return Ok(());
        }
        let resource = info.group_resource();
        match self.statuses.lock().get(&resource) {
            Some(status) if !status.done => {
                let error = status.last_error.as_deref().unwrap_or("<nil>");
                Err(ApiError::ServiceUnavailable(format!(
                    "wait for storage version registration to complete for resource: {resource}, \
                     last seen error: {error}"
                )))
            }
            _ => Ok(()),
        }
    }

    /// The precondition of the server's own requests: they wait for a while instead of being repeated.
    pub async fn wait_for_precondition(
        &self,
        info: &RequestInfo,
        user: &User,
    ) -> Result<(), ApiError> {
        let passed = self.wait(|| self.precondition(info, user).is_ok());
        // What hangs here longer would hang the shutdown too, so the caller gets the error.
        drop(tokio::time::timeout(OWN_REQUEST_WAIT, passed).await);
        self.precondition(info, user)
    }

    async fn wait(&self, holds: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before looking: what changes in between is not missed.
            changed.as_mut().enable();
            if holds() {
                return;
            }
            changed.await;
        }
    }
}

const OWN_REQUEST_WAIT: Duration = Duration::from_secs(10);

fn is_exempt(info: &RequestInfo, user: &User) -> bool {
    if !info.is_resource || matches!(info.verb.as_str(), "get" | "list" | "watch") {
        return true;
    }
    match (info.group.as_str(), info.resource.as_str()) {
        ("internal.apiserver.k8s.io", "storageversions") => true,
        ("", "namespaces") => {
            info.verb == "create"
                && user.name == APISERVER_USER
                && user.groups.iter().any(|group| group == User::MASTERS)
        }
        ("coordination.k8s.io", "leases") => info.namespace == "kube-system",
        _ => false,
    }
}

const APISERVER_USER: &str = "system:apiserver";

#[cfg(test)]
mod tests {
    use meta::Str;

    use super::*;

    fn info(request: &str) -> RequestInfo {
        let words: Vec<&str> = request.split(' ').collect();
        let (group, resource) = words[1].split_once('/').unwrap_or(("", words[1]));
        RequestInfo {
            verb: Str::new(words[0]),
            is_resource: true,
            group: Str::new(group),
            resource: Str::new(resource),
            namespace: Str::new(words.get(2).unwrap_or(&"")),
            ..RequestInfo::default()
        }
    }

    fn user(name: &str) -> User {
        let groups = vec![Str::new_static(User::MASTERS)];
        User { name: Str::new(name), groups, ..User::default() }
    }

    fn barrier() -> StorageVersions {
        let resources = [
            ("", "namespaces"),
            ("", "pods"),
            ("apps", "deployments"),
            ("coordination.k8s.io", "leases"),
            ("internal.apiserver.k8s.io", "storageversions"),
        ];
        StorageVersions::new(resources.map(|(group, name)| GroupResource::new(group, name)))
    }

    #[test]
    fn writes_wait_for_the_storage_version_of_their_resource() {
        let versions = barrier();
        let cases = [
            ("get pods", ""),
            ("list pods", ""),
            ("watch pods", ""),
            ("create pods", "pods, last seen error: <nil>"),
            ("deletecollection pods", "pods, last seen error: <nil>"),
            ("patch apps/deployments", "deployments.apps, last seen error: <nil>"),
            // Not stored.
            ("create authorization.k8s.io/subjectaccessreviews", ""),
            ("create example.com/widgets", ""),
            ("update internal.apiserver.k8s.io/storageversions", ""),
            ("create namespaces", "namespaces, last seen error: <nil>"),
            ("update coordination.k8s.io/leases kube-system", ""),
            (
                "update coordination.k8s.io/leases kube-node-lease",
                "leases.coordination.k8s.io, last seen error: <nil>",
            ),
        ];
        let refused = |request: &str, name: &str| {
            let done = versions.precondition(&info(request), &user(name));
            let text = done.err().map(|error| error.to_string()).unwrap_or_default();
            let head = "wait for storage version registration to complete for resource: ";
            text.strip_prefix(head).unwrap_or_default().to_owned()
        };
        for (request, expected) in cases {
            assert_eq!(refused(request, "admin"), expected, "{request}");
        }
        assert_eq!(refused("create namespaces", "system:apiserver"), "");
        assert_ne!(refused("update namespaces", "system:apiserver"), "");

        let pods = [GroupResource::new("", "pods")];
        versions.record(&pods, Err("no".to_owned()));
        assert_eq!(refused("create pods", "admin"), "pods, last seen error: no");
        versions.record(&pods, Ok(()));
        assert_eq!(refused("create pods", "admin"), "");
        // A later failure does not close it again.
        versions.record(&pods, Err("no".to_owned()));
        assert_eq!(refused("create pods", "admin"), "");
        assert_ne!(refused("patch apps/deployments", "admin"), "");
        versions.complete();
        assert_eq!(refused("patch apps/deployments", "admin"), "");
    }

    #[tokio::test(start_paused = true)]
    async fn own_requests_wait_and_give_up() {
        let versions = barrier();
        let (info, user) = (info("create pods"), user("system:apiserver"));
        let gave_up = versions.wait_for_precondition(&info, &user).await;
        assert_eq!(gave_up.unwrap_err().status().code, 503);
        let pods = [GroupResource::new("", "pods")];
        let (waited, ()) = tokio::join!(versions.wait_for_precondition(&info, &user), async {
            tokio::task::yield_now().await;
            versions.record(&pods, Ok(()));
        });
        waited.unwrap();
    }
}
