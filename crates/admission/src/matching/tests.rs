use meta::{AuditAnnotations, User, Warnings, value};

use super::*;
use crate::{
    Reinvocation,
    testing::{self, FakeObjects},
};

fn widgets(version: &str) -> GroupVersionResource {
    GroupVersionResource {
        group: Str::new("example.com"),
        version: Str::new(version),
        resource: Str::new("widgets"),
    }
}

/// Widgets in v1 and v2, and a namespace `labelled` with `team: a`.
fn objects() -> FakeObjects {
    let kind =
        |version| (widgets(version), GroupVersionKind::new("example.com", version, "Widget"), true);
    let namespace = value!({"metadata": {"name": "labelled", "labels": {"team": "a"}}});
    FakeObjects {
        objects: vec![(resources::NAMESPACES.clone(), namespace)],
        kinds: vec![kind("v1"), kind("v2")],
    }
}

/// A request: operation, `group/version/resource[/subresource]`, namespace, name, labels.
struct Case<'a> {
    operation: Operation,
    path: &'a str,
    namespace: &'a str,
    labels: Value,
}

/// `requested`, the version of an equivalent, `none`, or the error.
async fn matched(criteria: &Criteria, case: &Case<'_>) -> String {
    let parts: Vec<&str> = case.path.split('/').collect();
    let gvr = GroupVersionResource {
        group: Str::new(parts[0]),
        version: Str::new(parts[1]),
        resource: Str::new(parts[2]),
    };
    let gvk = GroupVersionKind::new(parts[0], parts[1], "Widget");
    let object = value!({"metadata": {"name": "a", "labels": (case.labels.clone())}});
    let (user, warnings, audit) =
        (User::default(), Warnings::default(), AuditAnnotations::default());
    let attributes = Attributes {
        operation: case.operation,
        gvk: &gvk,
        gvr: &gvr,
        subresource: parts.get(3).copied().unwrap_or_default(),
        namespace: case.namespace,
        name: "a",
        user: &user,
        authenticated_user: &user,
        options: &Value::Null,
        old: None,
        warnings: &warnings,
        audit: &audit,
        reinvocation: Reinvocation::default(),
        charges: crate::quota::WriteCharges::default(),
        deadline: None,
    };
    let cluster = Cluster { objects: Box::new(objects()), ..testing::empty_cluster() };
    let mut cx = MatchContext::new(&attributes, &cluster);
    match criteria.matches(&mut cx, Some(&object)).await {
        Ok(None) => "none".to_owned(),
        Ok(Some(MatchedResource::Requested)) => "requested".to_owned(),
        Ok(Some(equivalent)) => cx.resource(equivalent).0.version.to_string(),
        Err(error) => error.to_string(),
    }
}

fn rule(operations: &[&str], path: &str, scope: &str) -> Value {
    let parts: Vec<&str> = path.splitn(3, '/').collect();
    let operations = operations.iter().map(Value::string).collect();
    value!({
        "operations": (Value::Array(operations)),
        "apiGroups": [(parts[0])],
        "apiVersions": [(parts[1])],
        "resources": [(parts[2])],
        "scope": (scope),
    })
}

#[tokio::test]
async fn rules_match_operation_group_version_resource_and_scope() {
    use Operation::{Connect, Create, Update};
    let all = &["*"][..];
    let cases = [
        (rule(all, "*/*/*", "*"), Create, "/v1/pods", "n", "requested"),
        (rule(all, "*/*/*", "*"), Create, "/v1/pods/status", "n", "none"),
        (rule(all, "*/*/*/*", "*"), Create, "/v1/pods/status", "n", "requested"),
        (rule(all, "*/*/*/*", "*"), Create, "/v1/pods", "n", "requested"),
        (rule(all, "/v1/pods", "*"), Create, "/v1/pods", "n", "requested"),
        (rule(all, "/v1/pods", "*"), Create, "/v1/pods/exec", "n", "none"),
        (rule(all, "/v1/pods/exec", "*"), Connect, "/v1/pods/exec", "n", "requested"),
        (rule(all, "/v1/pods/*", "*"), Connect, "/v1/pods/exec", "n", "requested"),
        (rule(all, "/v1/pods/*", "*"), Create, "/v1/pods", "n", "requested"),
        (rule(all, "/v1/*/status", "*"), Update, "/v1/nodes/status", "", "requested"),
        (rule(all, "/v1/*/status", "*"), Update, "/v1/nodes", "", "none"),
        (rule(&["CREATE", "DELETE"], "/v1/pods", "*"), Update, "/v1/pods", "n", "none"),
        (rule(&["CREATE", "UPDATE"], "/v1/pods", "*"), Update, "/v1/pods", "n", "requested"),
        (rule(all, "apps/v1/pods", "*"), Create, "/v1/pods", "n", "none"),
        (rule(all, "/v2/pods", "*"), Create, "/v1/pods", "n", "none"),
        (rule(all, "*/*/*", "Namespaced"), Create, "/v1/pods", "n", "requested"),
        (rule(all, "*/*/*", "Namespaced"), Create, "/v1/nodes", "", "none"),
        (rule(all, "*/*/*", "Cluster"), Create, "/v1/nodes", "", "requested"),
        (rule(all, "*/*/*", "Cluster"), Create, "/v1/pods", "n", "none"),
        // A namespace is cluster-scoped, although its requests have a namespace.
        (rule(all, "*/*/*", "Cluster"), Create, "/v1/namespaces", "n", "requested"),
        (rule(all, "*/*/*", "Namespaced"), Create, "/v1/namespaces", "n", "none"),
    ];
    for (rule, operation, path, namespace, expected) in cases {
        let shown = meta::json::to_string(&rule);
        let criteria = Criteria::of_webhook(&value!({"rules": [(rule)], "matchPolicy": "Exact"}));
        let case = Case { operation, path, namespace, labels: value!({}) };
        assert_eq!(matched(&criteria, &case).await, expected, "{shown} for {path}");
    }
}

#[tokio::test]
async fn equivalent_versions_selectors_exclusions_and_names() {
    let all = &["*"][..];
    let v2 = rule(all, "example.com/v2/widgets", "*");
    let pods = rule(all, "/v1/pods", "*");
    let mut named = pods.clone();
    named.set_at(&["resourceNames"], value!(["a"]));
    let mut others = pods.clone();
    others.set_at(&["resourceNames"], value!(["b"]));
    let team = value!({"matchLabels": {"team": "a"}});
    let widget = ("example.com/v1/widgets", "labelled");
    let pod = ("/v1/pods", "labelled");
    let missing = "namespaces \"gone\" not found";
    let cases = [
        ("webhook", value!({"rules": [(v2.clone())]}), widget, "none"),
        ("webhook", value!({"rules": [(v2.clone())], "matchPolicy": "Equivalent"}), widget, "v2"),
        ("webhook", value!({"rules": []}), pod, "none"),
        ("policy", value!({"resourceRules": []}), pod, "requested"),
        ("policy", value!({"resourceRules": [(named.clone())]}), pod, "requested"),
        ("policy", value!({"resourceRules": [(others)]}), pod, "none"),
        (
            "policy",
            value!({"resourceRules": [(pods.clone())], "excludeResourceRules": [(named)]}),
            pod,
            "none",
        ),
        (
            "policy",
            value!({"resourceRules": [], "excludeResourceRules": [(v2)], "matchPolicy": "Equivalent"}),
            widget,
            "none",
        ),
        (
            "webhook",
            value!({"rules": [(pods.clone())], "namespaceSelector": (team.clone())}),
            pod,
            "requested",
        ),
        (
            "webhook",
            value!({"rules": [(pods.clone())], "namespaceSelector": {"matchLabels": {"team": "b"}}}),
            pod,
            "none",
        ),
        (
            "webhook",
            value!({"rules": [(pods.clone())], "namespaceSelector": (team.clone())}),
            ("/v1/pods", "gone"),
            missing,
        ),
        // An object that is not selected is decided without its namespace.
        (
            "webhook",
            value!({
                "rules": [(pods.clone())],
                "namespaceSelector": (team.clone()),
                "objectSelector": {"matchLabels": {"app": "other"}},
            }),
            ("/v1/pods", "gone"),
            "none",
        ),
        (
            "webhook",
            value!({"rules": [(pods)], "objectSelector": {"matchLabels": {"app": "own"}}}),
            pod,
            "requested",
        ),
        // Of a namespace that is being created, its own labels count.
        (
            "webhook",
            value!({
                "rules": [(rule(all, "*/*/*", "*"))],
                "namespaceSelector": {"matchLabels": {"app": "own"}},
            }),
            ("/v1/namespaces", "gone"),
            "requested",
        ),
    ];
    for (kind, from, (path, namespace), expected) in cases {
        let criteria = match kind {
            "webhook" => Criteria::of_webhook(&from),
            _ => Criteria::of_policy(&from),
        };
        let labels = value!({"app": "own"});
        let case = Case { operation: Operation::Create, path, namespace, labels };
        let shown = meta::json::to_string(&from);
        assert_eq!(matched(&criteria, &case).await, expected, "{shown}");
    }
}

#[test]
fn the_index_finds_what_can_concern_a_resource_in_its_order() {
    use Visibility::{All, Nothing, Static};
    let all = &["*"][..];
    let criteria: Vec<Criteria> = ["/v1/pods", "*/*/*", "apps/v1/deployments/scale", "/v1/pods/*"]
        .iter()
        .map(|path| Criteria::of_webhook(&value!({"rules": [(rule(all, path, "*"))]})))
        .collect();
    let index = ResourceIndex::new(criteria.iter(), 2);
    let cases: [(&str, Visibility, &[usize]); 8] = [
        ("pods", All, &[0, 1, 3]),
        ("deployments", All, &[1, 2]),
        ("configmaps", All, &[1]),
        ("", All, &[1]),
        ("pods", Static, &[0, 1]),
        ("deployments", Static, &[1]),
        ("pods", Nothing, &[]),
        ("configmaps", Nothing, &[]),
    ];
    for (resource, visibility, expected) in cases {
        assert_eq!(index.candidates(resource, visibility), expected, "{resource} {visibility:?}");
    }
    assert!(ResourceIndex::default().candidates("pods", All).is_empty());
}

#[test]
fn configurations_do_not_lock_themselves_and_policies_see_no_reviews() {
    use Visibility::{All, Nothing, Static};
    let admission = "admissionregistration.k8s.io";
    let cases = [
        (
            admission,
            "ValidatingWebhookConfiguration",
            Static,
            "validatingwebhookconfigurations",
            All,
        ),
        (admission, "MutatingWebhookConfiguration", Static, "mutatingwebhookconfigurations", All),
        (admission, "ValidatingAdmissionPolicy", Static, "validatingadmissionpolicies", Static),
        (
            admission,
            "MutatingAdmissionPolicyBinding",
            Static,
            "mutatingadmissionpolicybindings",
            Static,
        ),
        ("authentication.k8s.io", "TokenReview", All, "tokenreviews", Nothing),
        ("authorization.k8s.io", "SubjectAccessReview", All, "subjectaccessreviews", Nothing),
        ("authentication.k8s.io", "TokenRequest", All, "serviceaccounts", All),
        ("example.com", "ValidatingAdmissionPolicy", All, "validatingadmissionpolicies", All),
        ("", "Pod", All, "pods", All),
    ];
    for (group, kind, to_webhooks, resource, to_policies) in cases {
        let gvk = GroupVersionKind::new(group, "v1", kind);
        assert_eq!(Visibility::to_webhooks(&gvk), to_webhooks, "{kind}");
        let gvr = GroupVersionResource {
            group: Str::new(group),
            version: Str::new("v1"),
            resource: Str::new(resource),
        };
        assert_eq!(Visibility::to_policies(&gvr), to_policies, "{resource}");
    }
}
