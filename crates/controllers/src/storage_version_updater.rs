//! Writes into StorageVersion objects in which version this apiserver stores a resource. Together with those of
//! other apiservers they say whether all of them store the same version, which is when a migration of the
//! storage has an end.

use std::{sync::Arc, time::Duration};

use meta::{ApiError, GroupResource, Value, value};

use crate::{ApiClient, ResourceRef};

pub struct StorageVersionUpdater {
    pub api: Arc<dyn ApiClient>,
    /// The name of the identity lease.
    pub api_server_id: String,
}

/// How this apiserver stores a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStorageVersion {
    pub resource: GroupResource,
    /// `apps/v1`
    pub encoding_version: String,
    pub decodable_versions: Vec<String>,
    pub served_versions: Vec<String>,
}

impl ServerStorageVersion {
    /// The name of the StorageVersion: `core.pods`, `apps.deployments`.
    fn object_name(&self) -> String {
        let group = match self.resource.group.as_str() {
            "" => "core",
            group => group,
        };
        format!("{group}.{}", self.resource.resource)
    }
}

/// Attempts for one object; those that another apiserver was faster in are not counted.
const ATTEMPTS_MAX: usize = 3;
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl StorageVersionUpdater {
    /// Creates the StorageVersion of a resource, or adds this apiserver to it.
    pub async fn update(&self, version: &ServerStorageVersion) -> Result<(), ApiError> {
        let mut failures = 0;
        loop {
            let error = match self.update_once(version).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if !matches!(error, ApiError::AlreadyExists { .. } | ApiError::Conflict { .. }) {
                failures += 1;
                tracing::warn!(%error, resource = %version.resource, "cannot update the storage version");
            }
            if failures == ATTEMPTS_MAX {
                return Err(error);
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    async fn update_once(&self, version: &ServerStorageVersion) -> Result<(), ApiError> {
        let target =
            ResourceRef::cluster("internal.apiserver.k8s.io", "v1alpha1", "storageversions");
        let named = target.clone().named(&version.object_name());
        let mut object = match self.api.get(&named).await {
            Ok(object) => object,
            // The status of a new object is written in a second step.
            Err(ApiError::NotFound { .. } | ApiError::NotServed) => {
                let new = value!({
                    "kind": "StorageVersion",
                    "apiVersion": "internal.apiserver.k8s.io/v1alpha1",
                    "metadata": {"name": (named.name.as_str())},
                    "spec": {},
                });
                self.api.create(&target, &new).await?
            }
            Err(error) => return Err(error),
        };
        add_server(&mut object, &self.api_server_id, version, &meta::time::now());
        let status = ResourceRef { subresource: "status", ..named };
        self.api.update(&status, &object).await.map(drop)
    }
}

/// Adds or replaces the entry of an apiserver, and says what all of them have in common.
fn add_server(object: &mut Value, id: &str, version: &ServerStorageVersion, now: &str) {
    let texts =
        |texts: &[String]| -> Vec<Value> { texts.iter().map(|v| v.as_str().into()).collect() };
    let entry = value!({
        "apiServerID": (id),
        "encodingVersion": (version.encoding_version.as_str()),
        "decodableVersions": (texts(&version.decodable_versions)),
        "servedVersions": (texts(&version.served_versions)),
    });
    let mut servers = object.items_at(&["status", "storageVersions"]).to_vec();
    match servers.iter_mut().find(|server| server.str_at(&["apiServerID"]) == id) {
        Some(own) => *own = entry,
        None => servers.push(entry),
    }
    object.set_at(&["status", "storageVersions"], servers);
    set_common_encoding_version(object, now);
}

fn set_common_encoding_version(object: &mut Value, now: &str) {
    let servers = object.items_at(&["status", "storageVersions"]);
    let mut encodings = servers.iter().map(|server| server.str_at(&["encodingVersion"]));
    let first = encodings.next().map(str::to_owned);
    let common = first.filter(|first| encodings.all(|other| other == first));
    let old = object.str_at(&["status", "commonEncodingVersion"]).to_owned();
    match &common {
        Some(common) => object.set_at(&["status", "commonEncodingVersion"], common.as_str()),
        None => drop(object.remove_at(&["status", "commonEncodingVersion"])),
    }
    // Another common version is a transition, although the condition stays true.
    let is_replaced = common.as_ref().is_some_and(|common| !old.is_empty() && *common != old);
    let (status, verb) = if common.is_some() { ("True", "set") } else { ("False", "unset") };
    let reason =
        if common.is_some() { "CommonEncodingVersionSet" } else { "CommonEncodingVersionUnset" };
    let mut conditions = object.items_at(&["status", "conditions"]).to_vec();
    let known = conditions.iter().position(|condition| condition.str_at(&["type"]) == CONDITION);
    let since = known
        .map(|at| &conditions[at])
        .filter(|known| known.str_at(&["status"]) == status && !is_replaced);
    let since = since.map_or(now, |known| known.str_at(&["lastTransitionTime"])).to_owned();
    let mut condition = value!({
        "type": (CONDITION),
        "status": (status),
        "lastTransitionTime": (since),
        "reason": (reason),
        "message": (format!("Common encoding version {verb}")),
    });
    if let Some(generation) = object.i64_at(&["metadata", "generation"]) {
        condition.set_at(&["observedGeneration"], generation);
    }
    match known {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    object.set_at(&["status", "conditions"], conditions);
}

const CONDITION: &str = "AllEncodingVersionsEqual";

#[cfg(test)]
mod tests {
    use super::*;

    fn version(encoding: &str) -> ServerStorageVersion {
        ServerStorageVersion {
            resource: GroupResource::new("apps", "deployments"),
            encoding_version: encoding.to_owned(),
            decodable_versions: vec![encoding.to_owned()],
            served_versions: vec!["apps/v1".to_owned()],
        }
    }

    /// Servers as `id=encoding`, the common version, the condition's status and since when it is so.
    fn summary(object: &Value) -> String {
        let servers = object.items_at(&["status", "storageVersions"]).iter();
        let servers: Vec<String> = servers
            .map(|s| format!("{}={}", s.str_at(&["apiServerID"]), s.str_at(&["encodingVersion"])))
            .collect();
        let [condition] = object.items_at(&["status", "conditions"]) else { panic!("{object:?}") };
        let say = |field| condition.str_at(&[field]);
        let common = object.str_at(&["status", "commonEncodingVersion"]);
        format!(
            "{} common={common} {}/{} since {}",
            servers.join(","),
            say("status"),
            say("reason"),
            say("lastTransitionTime")
        )
    }

    #[test]
    fn servers_agree_on_a_version_or_do_not() {
        // Each step adds to the object of the last one.
        let steps = [
            ("a", "apps/v1", "a=apps/v1 common=apps/v1 True/CommonEncodingVersionSet since 0"),
            (
                "b",
                "apps/v1",
                "a=apps/v1,b=apps/v1 common=apps/v1 True/CommonEncodingVersionSet since 0",
            ),
            (
                "b",
                "apps/v2",
                "a=apps/v1,b=apps/v2 common= False/CommonEncodingVersionUnset since 2",
            ),
            (
                "c",
                "apps/v2",
                "a=apps/v1,b=apps/v2,c=apps/v2 common= False/CommonEncodingVersionUnset since 2",
            ),
            (
                "a",
                "apps/v2",
                "a=apps/v2,b=apps/v2,c=apps/v2 common=apps/v2 True/CommonEncodingVersionSet since 4",
            ),
        ];
        let mut object = value!({"metadata": {"name": "apps.deployments"}});
        for (now, (id, encoding, expected)) in steps.iter().enumerate() {
            add_server(&mut object, id, &version(encoding), &now.to_string());
            assert_eq!(summary(&object), *expected);
        }
        // Another common version of the only server.
        let mut object = value!({});
        add_server(&mut object, "a", &version("apps/v1"), "0");
        add_server(&mut object, "a", &version("apps/v2"), "1");
        let expected = "a=apps/v2 common=apps/v2 True/CommonEncodingVersionSet since 1";
        assert_eq!(summary(&object), expected);
        let again = object.clone();
        add_server(&mut object, "a", &version("apps/v2"), "2");
        assert_eq!(object, again, "nothing to write");
    }

    #[test]
    fn the_core_group_has_a_name() {
        let mut pods = version("v1");
        assert_eq!(pods.object_name(), "apps.deployments");
        pods.resource = GroupResource::new("", "pods");
        assert_eq!(pods.object_name(), "core.pods");
    }
}
