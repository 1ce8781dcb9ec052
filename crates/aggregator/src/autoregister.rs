//! The local APIService objects that kube-apiserver-autoregistration creates.

use meta::{Value, value};

use crate::ServedGroupVersion;

/// The APIService of a local group-version, as the server creates it.
pub fn local_api_service(served: &ServedGroupVersion) -> Value {
    let (group, version) = (&served.group_version.group, &served.group_version.version);
    let now = meta::time::now();
    let managed = if served.custom.is_some() { "true" } else { "onstart" };
    value!({
        "kind": "APIService",
        "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {
            "name": (api_service_name(group, version)),
            "labels": {"kube-aggregator.kubernetes.io/automanaged": (managed)},
        },
        "spec": {
            "group": (group.as_str()),
            "version": (version.as_str()),
            "groupPriorityMinimum": (i64::from(served.group_priority)),
            "versionPriority": (i64::from(served.version_priority)),
        },
        "status": {"conditions": [{
            "type": "Available",
            "status": "True",
            "lastTransitionTime": (now),
            "reason": "Local",
            "message": "Local APIServices are always available",
        }]},
    })
}

/// `v1.apps`; the core group's is `v1.`.
pub fn api_service_name(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}
