use auth::authz::AlwaysAllow;
use meta::{AuditAnnotations, User, Warnings, value};
use std::sync::Arc;

use super::*;
use crate::{Pinned, Reinvocation, ServedObjects, testing};

/// Widgets in v1 and v2, and a namespace `labelled` with `team: a`.
struct Widgets;

const WIDGETS: [(&str, &str); 2] = [("v1", "Widget"), ("v2", "Widget")];

fn widgets(version: &str) -> GroupVersionResource {
    GroupVersionResource {
        group: Str::new("example.com"),
        version: Str::new(version),
        resource: Str::new("widgets"),
    }
}

impl ServedObjects for Widgets {
    fn get<'a>(
        &'a self,
        resource: &'a GroupVersionResource,
        _namespace: &'a str,
        name: &'a str,
        _freshness: Freshness,
    ) -> Pinned<'a, Result<Option<Value>, ApiError>> {
        let found = (*resource == resources::NAMESPACES && name == "labelled")
            .then(|| value!({"metadata": {"name": "labelled", "labels": {"team": "a"}}}));
        Box::pin(std::future::ready(Ok(found)))
    }

    fn list<'a>(
        &'a self,
        _resource: &'a GroupVersionResource,
        _namespace: &'a str,
        _selector: &'a LabelSelector,
    ) -> Pinned<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn resource_of(&self, kind: &GroupVersionKind) -> Option<(GroupVersionResource, bool)> {
        let known = WIDGETS.iter().find(|(version, own)| {
            kind.version == *version && kind.kind == *own && kind.group == "example.com"
        });
        known.map(|(version, _)| (widgets(version), true))
    }

    fn equivalents(
        &self,
        resource: &GroupVersionResource,
    ) -> Vec<(GroupVersionResource, GroupVersionKind)> {
        let others = WIDGETS.iter().filter(|(version, _)| resource.version != *version);
        let others = others.filter(|_| resource.resource == "widgets");
        others
            .map(|(version, kind)| {
                (widgets(version), GroupVersionKind::new("example.com", version, kind))
            })
            .collect()
    }

    fn convert<'a>(
        &'a self,
        object: Value,
        _from: &'a GroupVersionResource,
        _to: &'a GroupVersionResource,
    ) -> Pinned<'a, Result<Value, ApiError>> {
        Box::pin(std::future::ready(Ok(object)))
    }

    fn encode(
        &self,
        _resource: &GroupVersionResource,
        _kind: &GroupVersionKind,
        object: &Value,
    ) -> Vec<u8> {
        meta::json::to_string(object).into_bytes()
    }

    fn decode_changed(
        &self,
        _resource: &GroupVersionResource,
        _kind: &GroupVersionKind,
        json: &[u8],
        _strict: bool,
    ) -> Result<Value, ApiError> {
        crate::versioned::decode(json)
    }

    fn merge_applied(
        &self,
        _resource: &GroupVersionResource,
        _kind: &GroupVersionKind,
        live: &Value,
        _configuration: &Value,
    ) -> Result<Value, String> {
        Ok(live.clone())
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
    };
    let cluster = Cluster {
        objects: Box::new(Widgets),
        authorizer: Arc::new(AlwaysAllow),
        ..testing::empty_cluster()
    };
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
    let all = &["*"][..];
    let criteria: Vec<Criteria> = ["/v1/pods", "*/*/*", "apps/v1/deployments/scale", "/v1/pods/*"]
        .iter()
        .map(|path| Criteria::of_webhook(&value!({"rules": [(rule(all, path, "*"))]})))
        .collect();
    let index = ResourceIndex::new(criteria.iter());
    let cases: [(&str, &[usize]); 4] =
        [("pods", &[0, 1, 3]), ("deployments", &[1, 2]), ("configmaps", &[1]), ("", &[1])];
    for (resource, expected) in cases {
        assert_eq!(index.candidates(resource), expected, "{resource}");
    }
    assert!(ResourceIndex::default().candidates("pods").is_empty());
}
