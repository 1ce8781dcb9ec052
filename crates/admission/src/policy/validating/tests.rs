use std::sync::Arc;

use meta::{AuditAnnotations, GroupVersionKind, GroupVersionResource, User, Warnings, value};

use super::*;
use crate::{DynamicAdmission, DynamicKind, Reinvocation, testing};

/// What came of a request.
#[derive(Debug)]
struct Outcome {
    refused: Option<meta::Status>,
    warnings: Vec<String>,
    annotations: BTreeMap<String, String>,
}

/// Creates a cluster-scoped widget with these policies, each bound with these actions.
async fn decide(policies: &[Value], actions: &[&str]) -> Outcome {
    decide_in(&cluster_with(policies, actions)).await
}

fn cluster_with(policies: &[Value], actions: &[&str]) -> Cluster {
    let dynamic = DynamicAdmission::default();
    for (at, spec) in policies.iter().enumerate() {
        let name = Str::from(format!("p{at}"));
        let mut spec = spec.clone();
        spec.set_at(
            &["matchConstraints"],
            value!({"resourceRules": [{
                "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
            }]}),
        );
        dynamic.apply(
            DynamicKind::ValidatingAdmissionPolicy,
            vec![(name.clone(), Some(value!({"spec": (spec)})))],
        );
        let actions = actions.iter().map(Value::string).collect();
        let binding = value!({
            "policyName": (name.clone()), "validationActions": (Value::Array(actions)),
        });
        dynamic.apply(
            DynamicKind::ValidatingAdmissionPolicyBinding,
            vec![(Str::from(format!("b{at}")), Some(value!({"spec": (binding)})))],
        );
    }
    Cluster { dynamic_admission: Arc::new(dynamic), ..testing::empty_cluster() }
}

async fn decide_in(cluster: &Cluster) -> Outcome {
    let gvr = GroupVersionResource {
        group: Str::new("example.com"),
        version: Str::new("v1"),
        resource: Str::new("widgets"),
    };
    let gvk = GroupVersionKind::new("example.com", "v1", "Widget");
    let (user, warnings, audit) =
        (User::default(), Warnings::default(), AuditAnnotations::recorded());
    let attributes = Attributes {
        operation: Operation::Create,
        gvk: &gvk,
        gvr: &gvr,
        subresource: "",
        namespace: "",
        name: "w",
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
    let object = value!({"metadata": {"name": "w"}, "size": 3i64});
    let decided = ValidatingAdmissionPolicy.validate(&attributes, Some(&object), cluster).await;
    Outcome {
        refused: decided.err().map(|error| error.status()),
        warnings: warnings.take(),
        annotations: audit.take(),
    }
}

#[tokio::test]
async fn the_actions_of_a_binding_decide_what_a_failed_validation_does() {
    let policy = value!({"validations": [
        {"expression": "object.size > 2"},
        {"expression": "object.size > 3", "message": "too small"},
        {"expression": "object.size > 4", "reason": "Forbidden"},
    ]});
    let warned = |why: &str| {
        format!("Validation failed for ValidatingAdmissionPolicy 'p0' with binding 'b0': {why}")
    };
    let failure = r#"[{"message":"too small","policy":"p0","binding":"b0","expressionIndex":1,"validationActions":["Audit","Warn"]}]"#;
    let denied = decide(std::slice::from_ref(&policy), &["Deny"]).await;
    let status = denied.refused.expect("refused");
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let expected = "widgets.example.com \"w\" is forbidden: ValidatingAdmissionPolicy 'p0' with \
                    binding 'b0' denied request: too small";
    assert_eq!(status.message, expected);
    assert!(denied.warnings.is_empty() && denied.annotations.is_empty());
    let told = decide(&[policy], &["Audit", "Warn"]).await;
    assert!(told.refused.is_none());
    assert_eq!(told.warnings, [warned("too small"), warned("failed expression: object.size > 4")]);
    // Of several failures the first is annotated, as upstream.
    let annotations: Vec<_> = told.annotations.into_iter().collect();
    assert_eq!(annotations, [(VALIDATION_FAILURE.to_owned(), failure.to_owned())]);
}

#[tokio::test]
async fn audit_annotations_are_published_by_policy_and_key() {
    let annotate = |expression: &str| value!({"auditAnnotations": [{"key": "k", "valueExpression": (expression)}]});
    let long = "'0123456789'.replace('', '0123456789').replace('', '0123456789')\
                .replace('', '0123456789').replace('', '0123456789')";
    let cases = [
        ("' a ' + string(object.size)", Some("a 3".to_owned()), false),
        ("null", None, false),
        ("'  '", None, false),
        ("string(object.nothing)", None, true),
    ];
    for (expression, expected, refused) in cases {
        let outcome = decide(&[annotate(expression)], &["Deny"]).await;
        assert_eq!(outcome.annotations.get("p0/k").cloned(), expected, "{expression}");
        assert_eq!(outcome.refused.is_some(), refused, "{expression}");
    }
    let outcome = decide(&[annotate(long)], &["Deny"]).await;
    assert_eq!(outcome.annotations["p0/k"].len(), ANNOTATION_BYTES_MAX);
}

#[tokio::test]
async fn what_cannot_be_evaluated_refuses_unless_the_policy_fails_open() {
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let loops = |depth: usize| {
        (0..depth)
            .fold("object.size > 0".to_owned(), |inner, at| format!("{ten}.all(v{at}, {inner})"))
    };
    let validations = |expressions: Vec<String>| {
        let each = expressions.iter().map(|text| value!({"expression": (text.as_str())}));
        value!({"validations": (Value::Array(each.collect()))})
    };
    let cases = [
        (validations(vec!["object.nothing".to_owned() + " == 1"]), "no such key: nothing"),
        // One expression may cost a million.
        (validations(vec![loops(6)]), "operation cancelled: actual cost limit exceeded"),
        // All of a policy together may cost ten million.
        (validations(vec![loops(5); 30]), OutOfBudget::TEXT),
    ];
    for (policy, why) in cases {
        let refused = decide(std::slice::from_ref(&policy), &["Deny"]).await.refused;
        let message = refused.expect("refused").message;
        assert!(message.contains(why), "{why}: {message}");
        let mut open = policy;
        open.set_at(&["failurePolicy"], "Ignore");
        let outcome = decide(&[open], &["Deny"]).await;
        assert!(outcome.refused.is_none(), "{why}: {:?}", outcome.refused);
    }
}

#[tokio::test]
async fn variables_are_computed_when_they_are_read_and_once() {
    let variable =
        |name: &str, expression: &str| value!({"name": (name), "expression": (expression)});
    let policy = |variables: Vec<Value>, expression: &str| {
        value!({
            "variables": (Value::Array(variables)),
            "validations": [{"expression": (expression)}],
        })
    };
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    // Costs most of what one expression may; computed for each reading it would cost too much.
    let dear = (0..5).fold("true".to_owned(), |inner, at| format!("{ten}.all(v{at}, {inner})"));
    let broken = || variable("broken", "object.nothing");
    let cases = [
        (policy(vec![broken()], "true || variables.broken"), None),
        (
            policy(vec![broken()], "variables.broken == 1"),
            Some("composited variable \"broken\" fails to evaluate: no such key: nothing"),
        ),
        (
            policy(
                vec![variable("a", "object.size"), variable("b", "variables.a * 2")],
                "variables.b == 6",
            ),
            None,
        ),
        (policy(vec![variable("dear", &dear)], &["variables.dear"; 60].join(" && ")), None),
    ];
    for (policy, expected) in cases {
        let refused = decide(&[policy], &["Deny"]).await.refused.map(|status| status.message);
        match (refused, expected) {
            (None, None) => {}
            (Some(message), Some(why)) => assert!(message.contains(why), "{message}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }
}

/// `cargo test --release -p admission -- --ignored speed --nocapture`: the aim is under 10 µs for an expression.
#[tokio::test]
#[ignore = "a measurement"]
async fn speed_of_typical_expressions() {
    const ROUNDS: u32 = 20_000;
    let typical = [
        "object.size <= 5",
        "has(object.metadata.name) && object.metadata.name.startsWith('w')",
        "object.metadata.?labels['team'].orValue('a') in ['a', 'b']",
        "['registry.example.com/', 'w'].exists(prefix, object.metadata.name.startsWith(prefix))",
    ];
    let policy = |expressions: &[&str]| {
        let each = expressions.iter().map(|text| value!({"expression": (*text)}));
        value!({"validations": (Value::Array(each.collect()))})
    };
    let mut timed = Vec::new();
    for expressions in [&typical[..1], &typical.repeat(8)] {
        let cluster = cluster_with(&[policy(expressions)], &["Deny"]);
        let started = Instant::now();
        for _ in 0..ROUNDS {
            assert!(decide_in(&cluster).await.refused.is_none());
        }
        timed.push(started.elapsed() / ROUNDS);
    }
    let each = timed[1].saturating_sub(timed[0]) / 31;
    println!("a request with one expression: {:?}, each further expression: {each:?}", timed[0]);
    let bound = Duration::from_micros(if cfg!(debug_assertions) { 500 } else { 10 });
    assert!(each < bound, "{each:?}");
}
