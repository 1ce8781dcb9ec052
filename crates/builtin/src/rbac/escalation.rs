//! Nobody hands out rights that he doesn't have: whoever writes a role must hold every rule in it (or
//! may `escalate`), whoever writes a binding every rule of its role (or may `bind` it).

use std::sync::Arc;

use meta::{ApiError, RequestInfo, Str, User, Value, value};
use registry::{Pinned, WriteAuthorizer, WriteRequest};

use crate::access::Access;

const GROUP: &str = "rbac.authorization.k8s.io";

/// For roles and cluster roles.
pub(crate) struct RoleEscalation(pub(crate) Arc<dyn Access>);

impl WriteAuthorizer for RoleEscalation {
    fn check<'a>(&'a self, write: &'a WriteRequest<'a>) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if write.user.is_in(User::MASTERS) || only_for_garbage_collection(write) {
                return Ok(());
            }
            let info = write.info;
            let escalate = RequestInfo {
                name: info.name.clone(),
                ..question("escalate", &info.resource, &info.namespace)
            };
            if self.0.decide(write.user, &escalate).await.allowed {
                return Ok(());
            }
            let rules = write.object.items_at(&["rules"]);
            self.0
                .may_grant(write.user, &info.namespace, rules)
                .map_err(|why| forbidden(write, why))?;
            // It can gather anything, and keep others from taking it back.
            let aggregates = |role: &Value| {
                !role.items_at(&["aggregationRule", "clusterRoleSelectors"]).is_empty()
            };
            if aggregates(write.object) || write.old.is_some_and(aggregates) {
                let all = [
                    value!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
                    value!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
                ];
                let why = "must have cluster-admin privileges to use the aggregationRule";
                self.0
                    .may_grant(write.user, &info.namespace, &all)
                    .map_err(|_| forbidden(write, why.to_owned()))?;
            }
            Ok(())
        })
    }
}

/// For role bindings and cluster role bindings.
pub(crate) struct BindingEscalation(pub(crate) Arc<dyn Access>);

impl WriteAuthorizer for BindingEscalation {
    fn check<'a>(&'a self, write: &'a WriteRequest<'a>) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if write.user.is_in(User::MASTERS) || only_for_garbage_collection(write) {
                return Ok(());
            }
            let role = |field| write.object.str_at(&["roleRef", field]);
            let (kind, name) = (role("kind"), role("name"));
            let namespace = &write.info.namespace;
            let resource = match kind {
                "ClusterRole" => "clusterroles",
                "Role" => "roles",
                _ => {
                    let kind = meta::field::quote(kind);
                    let why = format!("unsupported role reference kind: {kind}");
                    return Err(ApiError::internal(why));
                }
            };
            let bind = RequestInfo {
                group: Str::new(role("apiGroup")),
                name: Str::new(name),
                ..question("bind", resource, namespace)
            };
            if self.0.decide(write.user, &bind).await.allowed {
                return Ok(());
            }
            let Some(rules) = self.0.rules_of_role(kind, namespace, name) else {
                // Compat: the message speaks of the resource that the request is about.
                return Err(ApiError::not_found(write.info.group_resource(), name));
            };
            self.0.may_grant(write.user, namespace, &rules).map_err(|why| forbidden(write, why))
        })
    }
}

fn question(verb: &'static str, resource: &str, namespace: &str) -> RequestInfo {
    RequestInfo {
        verb: Str::new_static(verb),
        is_resource: true,
        group: Str::new_static(GROUP),
        version: Str::new_static("*"),
        resource: Str::new(resource),
        namespace: Str::new(namespace),
        ..RequestInfo::default()
    }
}

fn forbidden(write: &WriteRequest<'_>, why: String) -> ApiError {
    ApiError::Forbidden {
        resource: write.info.group_resource(),
        name: write.object.str_at(&["metadata", "name"]).to_owned(),
        why,
        causes: Vec::new(),
    }
}

/// The garbage collector, which has few rights, must be able to let go of any object.
fn only_for_garbage_collection(write: &WriteRequest<'_>) -> bool {
    let Some(old) = write.old else { return false };
    let without = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            object.remove_at(&["metadata", field]);
        }
        object
    };
    without(write.object) == without(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_owners_and_finalizers_may_change_freely() {
        let old = value!({"metadata": {"name": "r", "uid": "u", "resourceVersion": "1"}, "rules": [{"verbs": ["*"]}]});
        let info = RequestInfo::default();
        let user = User::default();
        let changed = |path: &[&str]| {
            let mut object = old.clone();
            object.set_at(path, "x");
            let write = WriteRequest { user: &user, info: &info, object: &object, old: Some(&old) };
            !only_for_garbage_collection(&write)
        };
        let cases = [
            (["metadata", "finalizers"], false),
            (["metadata", "ownerReferences"], false),
            (["metadata", "managedFields"], false),
            (["metadata", "labels"], true),
            (["rules", "x"], true),
        ];
        for (path, expected) in cases {
            assert_eq!(changed(&path), expected, "{path:?}");
        }
        let new = WriteRequest { user: &user, info: &info, object: &old, old: None };
        assert!(!only_for_garbage_collection(&new));
    }
}
