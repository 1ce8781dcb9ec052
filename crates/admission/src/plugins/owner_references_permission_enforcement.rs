//! Naming an owner is a way to have an object deleted, and blocking the owner's deletion is one to keep
//! it: both need the right to do so directly.

use std::collections::HashMap;

use meta::{
    ApiError, GroupVersion, Value, authorization::Attributes as Asked, authorization::Verdict,
    field::quote,
};

use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin};

pub struct OwnerReferencesPermissionEnforcement;

impl Plugin for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        // Old kubelets send broken owners there; the strategy of pods keeps them as they are.
        !attributes.is("", "pods", "status")
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let (new, old) = (owners(object), owners(attributes.old));
            if new == old {
                return Ok(());
            }
            match check(attributes, new, old, cluster).await {
                Ok(()) => Ok(()),
                Err(why) => Err(attributes.forbidden(object, why)),
            }
        })
    }
}

fn owners(object: Option<&Value>) -> &[Value] {
    object.map(|object| object.items_at(&["metadata", "ownerReferences"])).unwrap_or_default()
}

async fn check(
    attributes: &Attributes<'_>,
    new: &[Value],
    old: &[Value],
    cluster: &Cluster,
) -> Result<(), String> {
    let user = attributes.user;
    // The creator of an object could as well not have created it.
    if attributes.operation != Operation::Create {
        let asked = Asked {
            version: &attributes.gvr.version,
            subresource: attributes.subresource,
            namespace: attributes.namespace,
            name: attributes.name,
            ..Asked::of_resource(user, "delete", &attributes.gvr.group, &attributes.gvr.resource)
        };
        let verdict = cluster.authorizer.authorize(&asked).await;
        if !verdict.is_allowed() {
            let why = reason(&verdict);
            return Err(format!("cannot set an ownerRef on a resource you can't delete: {why}"));
        }
    }
    let blocking = new_blocking(new, old);
    if blocking.is_empty() {
        return Ok(());
    }
    let anything = Asked {
        version: "*",
        subresource: "finalizers",
        name: "*",
        ..Asked::of_resource(user, "update", "*", "*")
    };
    if cluster.authorizer.authorize(&anything).await.is_allowed() {
        return Ok(());
    }
    for owner in blocking {
        check_owner(attributes, owner, cluster).await?;
    }
    Ok(())
}

/// The owners whose deletion is blocked now and was not before.
fn new_blocking<'a>(new: &'a [Value], old: &[Value]) -> Vec<&'a Value> {
    let old: HashMap<&str, &Value> =
        old.iter().map(|owner| (owner.str_at(&["uid"]), owner)).collect();
    let is_blocking = |owner: &Value| owner.bool_at(&["blockOwnerDeletion"]);
    let was_blocking =
        |owner: &Value| old.get(owner.str_at(&["uid"])).is_some_and(|old| is_blocking(old));
    new.iter().filter(|owner| is_blocking(owner) && !was_blocking(owner)).collect()
}

async fn check_owner(
    attributes: &Attributes<'_>,
    owner: &Value,
    cluster: &Cluster,
) -> Result<(), String> {
    let (version, kind) = (owner.str_at(&["apiVersion"]), owner.str_at(&["kind"]));
    let group_version = GroupVersion::parse(version);
    let found = group_version.and_then(|gv| cluster.objects.resource_of(&gv.with_kind(kind)));
    let Some((resource, namespaced)) = found else {
        return Err(format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for \
             APIVersion {version} Kind {kind}: no matches for kind {} in version {}",
            quote(kind),
            quote(version)
        ));
    };
    let asked = Asked {
        version: &resource.version,
        subresource: "finalizers",
        namespace: if namespaced { attributes.namespace } else { "" },
        name: owner.str_at(&["name"]),
        ..Asked::of_resource(attributes.user, "update", &resource.group, &resource.resource)
    };
    let verdict = cluster.authorizer.authorize(&asked).await;
    if verdict.is_allowed() {
        return Ok(());
    }
    Err(format!(
        "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set \
         finalizers on: {}",
        reason(&verdict)
    ))
}

/// As Go prints a reason and an error.
fn reason(verdict: &Verdict) -> String {
    format!("{}, {}", verdict.reason, verdict.error.as_deref().unwrap_or("<nil>"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{cluster, create, update, yaml},
        resources,
    };

    #[test]
    fn owners_are_set_by_users_with_rights() {
        let plain = "{apiVersion: v1, kind: Pod, name: o, uid: a}";
        let blocking = "{apiVersion: v1, kind: Pod, name: o, uid: a, blockOwnerDeletion: true}";
        let unknown = "{apiVersion: x/v1, kind: Foo, name: o, uid: b, blockOwnerDeletion: true}";
        let node = "{apiVersion: v1, kind: Node, name: o, uid: c, blockOwnerDeletion: true}";
        let forbidden = |why: &str| format!("pods \"p\" is forbidden: {why}");
        let no_delete =
            forbidden("cannot set an ownerRef on a resource you can't delete: no right, <nil>");
        let no_update = forbidden(
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set \
             finalizers on: no right, <nil>",
        );
        let no_mapping = forbidden(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for \
             APIVersion x/v1 Kind Foo: no matches for kind \"Foo\" in version \"x/v1\"",
        );
        let cases: [(Option<&str>, &str, &'static [&'static str], &str); 12] = [
            (None, "", &[], ""),
            (None, plain, &[], ""),
            (None, blocking, &[], &no_update),
            (None, blocking, &["update pods/finalizers o"], ""),
            (None, node, &["update nodes/finalizers o"], ""),
            (None, blocking, &["update */finalizers *"], ""),
            (None, unknown, &[], &no_mapping),
            (Some(""), plain, &[], &no_delete),
            (Some(""), plain, &["delete pods p"], ""),
            (Some(plain), plain, &[], ""),
            (Some(plain), blocking, &["delete pods p"], &no_update),
            (Some(blocking), "", &["delete pods p"], ""),
        ];
        let pod = |owners: &str| {
            yaml(&format!("{{metadata: {{name: p, namespace: ns, ownerReferences: [{owners}]}}}}"))
        };
        for (old, new, rights, expected) in cases {
            let request = match old {
                None => create(&resources::PODS),
                Some(old) => update(&resources::PODS, pod(old)),
            };
            let plugin = OwnerReferencesPermissionEnforcement;
            let outcome = request.validate(&plugin, &pod(new), &cluster(&[], rights));
            assert_eq!(outcome.message(), expected, "{old:?} {new} {rights:?}");
        }
    }
}
