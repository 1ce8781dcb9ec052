//! Privilege escalation: a user who writes a role must hold every rule in it (or be allowed to
//! `escalate`), a user who writes a binding every rule of its role (or be allowed to `bind` it).

use meta::{ApiError, User, Value, authorization::Attributes, value};
use registry::{BoxFuture, WriteAuthorizer, WriteRequest};

use crate::access::Access;

const GROUP: &str = "rbac.authorization.k8s.io";

/// For roles and cluster roles.
pub(crate) struct RoleEscalation(pub(crate) Access);

impl WriteAuthorizer for RoleEscalation {
    fn check<'a>(&'a self, write: &'a WriteRequest<'a>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if write.user.is_in(User::MASTERS) || only_for_garbage_collection(write) {
                return Ok(());
            }
            let info = write.info;
            let escalate = Attributes {
                version: "*",
                name: &info.name,
                namespace: &info.namespace,
                ..Attributes::of_resource(write.user, "escalate", GROUP, &info.resource)
            };
            if self.0.authorizer.authorize(&escalate).await.is_allowed() {
                return Ok(());
            }
            let resolver = &self.0.rule_resolver;
            let rules = write.object.items_at(&["rules"]);
            resolver
                .confirm_no_escalation(write.user, &info.namespace, rules)
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
                resolver
                    .confirm_no_escalation(write.user, &info.namespace, &all)
                    .map_err(|_| forbidden(write, why.to_owned()))?;
            }
            Ok(())
        })
    }
}

/// For role bindings and cluster role bindings.
pub(crate) struct BindingEscalation(pub(crate) Access);

impl WriteAuthorizer for BindingEscalation {
    fn check<'a>(&'a self, write: &'a WriteRequest<'a>) -> BoxFuture<'a, Result<(), ApiError>> {
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
            let bind = Attributes {
                version: "*",
                name,
                namespace,
                ..Attributes::of_resource(write.user, "bind", role("apiGroup"), resource)
            };
            if self.0.authorizer.authorize(&bind).await.is_allowed() {
                return Ok(());
            }
            let resolver = &self.0.rule_resolver;
            let Some(rules) = resolver.rules_of_role(kind, namespace, name) else {
                // Compat: the message speaks of the resource that the request is about.
                return Err(ApiError::not_found(write.info.group_resource(), name));
            };
            resolver
                .confirm_no_escalation(write.user, namespace, &rules)
                .map_err(|why| forbidden(write, why))
        })
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
    use meta::RequestInfo;

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
