//! The default roles and bindings of RBAC (post-start hook `rbac/bootstrap-roles`). Every start adds
//! missing rules and subjects, keeps additional ones, and skips objects annotated with
//! `autoupdate: "false"`.

mod parse;

use std::sync::Arc;

use auth::authz::rbac::{Rule, missing};
use futures_util::future::try_join_all;
use meta::{ApiError, Value};

use crate::{ApiClient, BoxFuture, ResourceRef};

/// Feature gates that add roles, rules or bindings.
pub const ROLE_GATES: [&str; 12] = [
    "APIServerIdentity",
    "ClusterTrustBundle",
    "ComponentFlagz",
    "ComponentStatusz",
    "DRADeviceTaintRules",
    "DRAResourcePoolStatus",
    "DRAWorkloadResourceClaims",
    "GenericWorkload",
    "PodCertificateRequest",
    "StorageVersionAPI",
    "StorageVersionMigrator",
    "WorkloadWithJob",
];

/// Creates or reconciles all of them. `is_on` says which of `ROLE_GATES` are on.
pub fn reconcile_bootstrap_roles(
    api: Arc<dyn ApiClient>,
    is_on: impl Fn(&str) -> bool,
) -> BoxFuture<'static, Result<(), ApiError>> {
    let objects = parse::objects(include_str!("bootstrap_roles/roles.txt"), &is_on);
    Box::pin(async move {
        let objects = objects
            .map_err(|line| ApiError::internal(format!("default roles: cannot read {line:?}")))?;
        let mut reconciled = Vec::with_capacity(objects.len());
        for object in &objects {
            reconciled.push(reconcile(&*api, object));
        }
        try_join_all(reconciled).await.map(drop)
    })
}

const GROUP: &str = "rbac.authorization.k8s.io";
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Attempts per object: other apiservers and clients write these objects as well.
const ATTEMPTS_MAX: usize = 5;

async fn reconcile(api: &dyn ApiClient, expected: &Value) -> Result<(), ApiError> {
    let resource = match expected.str_at(&["kind"]) {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        "ClusterRoleBinding" => "clusterrolebindings",
        _ => "rolebindings",
    };
    let namespace = expected.str_at(&["metadata", "namespace"]);
    let target = ResourceRef::cluster(GROUP, "v1", resource).in_namespace(namespace);
    let named = target.clone().named(expected.str_at(&["metadata", "name"]));
    let mut last = None;
    for _ in 0..ATTEMPTS_MAX {
        let done = match api.get(&named).await {
            Err(ApiError::NotFound { .. }) => api.create_only(&target, expected).await,
            Err(error) => Err(error),
            Ok(existing) => match compute_operation(existing, expected) {
                ReconcileOperation::None => Ok(()),
                ReconcileOperation::Update(object) => api.update(&named, &object).await.map(drop),
                // `roleRef` is immutable.
                ReconcileOperation::Recreate => match api.delete(&named, &Value::object()).await {
                    Ok(()) => api.create_only(&target, expected).await,
                    Err(error) => Err(error),
                },
            },
        };
        match done {
            Err(
                error @ (ApiError::AlreadyExists { .. }
                | ApiError::NotFound { .. }
                | ApiError::Conflict { .. }),
            ) => last = Some(error),
            other => return other,
        }
    }
    let (name, last) = (&named.name, last.map(|error| error.to_string()).unwrap_or_default());
    Err(ApiError::internal(format!("{resource} {name} keeps changing: {last}")))
}

/// What an existing object needs.
#[derive(Debug, PartialEq)]
enum ReconcileOperation {
    None,
    Update(Value),
    Recreate,
}

fn compute_operation(existing: Value, expected: &Value) -> ReconcileOperation {
    if existing.str_at(&["metadata", "annotations", AUTOUPDATE]) == "false" {
        return ReconcileOperation::None;
    }
    let is_binding = expected.get("roleRef").is_some();
    if is_binding && existing.get("roleRef") != expected.get("roleRef") {
        return ReconcileOperation::Recreate;
    }
    let mut object = existing.clone();
    for part in ["annotations", "labels"] {
        let wanted = expected.at(&["metadata", part]).and_then(Value::as_object);
        for (key, text) in wanted.into_iter().flat_map(meta::Map::iter) {
            if existing.at(&["metadata", part, key]).is_none() {
                object.set_at(&["metadata", part, key], text.clone());
            }
        }
    }
    if is_binding {
        append_missing(&mut object, expected, &["subjects"]);
    } else {
        let lacking = missing(&Rule::all_of(&existing), &Rule::all_of(expected));
        append(&mut object, &["rules"], lacking.iter().map(Rule::to_object));
        if expected.get("aggregationRule").is_some() {
            append_missing(&mut object, expected, &["aggregationRule", "clusterRoleSelectors"]);
        } else {
            object.remove_at(&["aggregationRule"]);
        }
    }
    if object == existing { ReconcileOperation::None } else { ReconcileOperation::Update(object) }
}

/// Appends the expected items that a list lacks.
fn append_missing(object: &mut Value, expected: &Value, path: &[&str]) {
    let have = object.items_at(path).to_vec();
    let lacking = expected.items_at(path).iter().filter(|item| !have.contains(item)).cloned();
    append(object, path, lacking);
}

fn append(object: &mut Value, path: &[&str], more: impl Iterator<Item = Value>) {
    let more: Vec<Value> = more.collect();
    if !more.is_empty() {
        let mut items = object.items_at(path).to_vec();
        items.extend(more);
        object.set_at(path, items);
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn missing_rules_are_added_and_additional_rules_stay() {
        let rule = |verb: &str, resource: &str| value!({"verbs": [(verb)], "apiGroups": [""], "resources": [(resource)]});
        let expected = value!({
            "metadata": {"name": "r", "labels": {"a": "1"}},
            "rules": [(rule("get", "pods")), (rule("get", "secrets"))],
        });
        let role = |rules: Vec<Value>| value!({"metadata": {"name": "r", "labels": {"a": "mine"}}, "rules": (rules)});
        let all = || value!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        let cases = [
            (vec![rule("get", "pods"), rule("get", "secrets")], None),
            (vec![all()], None),
            (
                vec![rule("list", "pods"), rule("get", "pods")],
                Some(vec![rule("list", "pods"), rule("get", "pods"), rule("get", "secrets")]),
            ),
            (vec![], Some(vec![rule("get", "pods"), rule("get", "secrets")])),
        ];
        for (have, wanted) in cases {
            let expected_operation = wanted
                .map_or(ReconcileOperation::None, |rules| ReconcileOperation::Update(role(rules)));
            assert_eq!(compute_operation(role(have), &expected), expected_operation);
        }
        let mut protected = role(vec![]);
        protected.set_at(&["metadata", "annotations", AUTOUPDATE], "false");
        assert_eq!(compute_operation(protected, &expected), ReconcileOperation::None);
    }

    #[test]
    fn a_binding_regains_its_subjects_and_is_recreated_for_another_role() {
        let binding = |role: &str, subjects: &[&str]| {
            value!({
                "metadata": {"name": "b"},
                "roleRef": {"name": (role)},
                "subjects": (subjects.iter().map(|name| value!({"name": (*name)})).collect::<Vec<_>>()),
            })
        };
        let expected = binding("r", &["a", "b"]);
        assert_eq!(
            compute_operation(binding("r", &["b", "x", "a"]), &expected),
            ReconcileOperation::None
        );
        assert_eq!(
            compute_operation(binding("r", &["x"]), &expected),
            ReconcileOperation::Update(binding("r", &["x", "a", "b"]))
        );
        assert_eq!(
            compute_operation(binding("other", &["a", "b"]), &expected),
            ReconcileOperation::Recreate
        );
    }
}
