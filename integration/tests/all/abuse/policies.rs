//! Admission policies with expensive expressions, long messages, many variables, parameters or bindings.

use integration::Http;
use serde_json::{Value, json};

use super::{Case, Client, NAMESPACE, Outcome, sized};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

pub(super) fn cases() -> Vec<Case> {
    vec![
        policy(
            "policy: a loop in a loop over 2 000 keys",
            || {
                json!({"validations": [{"expression":
                "object.data.all(a, object.data.all(b, object.data[a] != object.data[b] + 'x'))"}]})
            },
            sized(2_000),
            "",
        ),
        policy(
            "policy: 200 loops over 2 000 keys",
            || {
                let validation =
                    json!({"expression": "object.data.all(a, a.matches('^k[0-9]+$'))"});
                json!({"validations": vec![validation; 200]})
            },
            sized(2_000),
            "",
        ),
        policy(
            "policy: 300 parameters",
            || {
                json!({
                    "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                    "validations": [{"expression": "object.data.all(k, !(k in params.data))"}],
                })
            },
            200,
            "parameters",
        ),
        policy(
            "policy: a text that grows with each variable",
            || {
                let mut variables = vec![json!({"name": "v0", "expression": "'xxxxxxxxxxxxxxxx'"})];
                variables.extend((1..40).map(|at| {
                    let last = format!("variables.v{}", at - 1);
                    json!({"name": format!("v{at}"), "expression": format!("{last} + {last}")})
                }));
                json!({"variables": variables, "validations": [{"expression": "variables.v39.size() > 0"}]})
            },
            1,
            "",
        ),
        Case::new("policy: an expression of 100 KB", Client::ClusterAdmin, &[201, 422], |http| {
            let expression = format!("{}true", "true && ".repeat(12_000));
            let policy = policy_object(json!({"validations": [{"expression": expression}]}));
            define(http, "validatingadmissionpolicies", &policy)
        }),
        Case::new("policy: 5 000 validations", Client::ClusterAdmin, &[201, 413, 422], |http| {
            let validations = vec![json!({"expression": "object.x == oldObject.y"}); sized(5_000)];
            let policy = policy_object(json!({"validations": validations}));
            define(http, "validatingadmissionpolicies", &policy)
        }),
        Case::new("policy: 900 KB of messages", Client::ClusterAdmin, &[201, 413, 422], |http| {
            let validation = json!({"expression": "false", "message": "m".repeat(9_000)});
            let policy = policy_object(json!({"validations": vec![validation; 100]}));
            define(http, "validatingadmissionpolicies", &policy)
        }),
        policy(
            "policy: 100 messages of 9 KB, all of them said",
            || {
                let validation = json!({"expression": "false", "message": "m".repeat(9_000)});
                json!({"validations": vec![validation; 100]})
            },
            1,
            "",
        ),
        policy(
            "policy: messages that expressions make of 2 000 keys",
            || {
                let message = "object.data.map(k, k).join(',') + object.data.map(k, k).join(',')";
                let validation = json!({"expression": "false", "messageExpression": message});
                json!({"validations": vec![validation; 50]})
            },
            sized(2_000),
            "",
        ),
        policy(
            "policy: 900 variables, each of all before it",
            || {
                let mut variables = vec![json!({"name": "v0", "expression": "1"})];
                variables.extend((1..900).map(|at| {
                    let last = format!("variables.v{}", at - 1);
                    json!({"name": format!("v{at}"), "expression": format!("{last} + 1")})
                }));
                json!({"variables": variables,
                    "validations": [{"expression": "variables.v899 == 900"}]})
            },
            1,
            "",
        ),
        bindings("policy: 2 000 bindings", sized(2_000)),
        Case::new(
            "policy: a patch of 5 000 operations by an expression",
            Client::ClusterAdmin,
            &[201, 400, 403, 413, 422, 500],
            |http| {
                let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets?dryRun=All");
                let data: serde_json::Map<String, Value> =
                    (0..sized(5_000)).map(|at| (format!("k{at}"), json!("dg=="))).collect();
                let secret = json!({"metadata": {"generateName": "mutated-"}, "data": data});
                let mut last = Outcome::code(0);
                for _ in 0..3 {
                    last = Outcome { code: http.post(&secrets, &secret).code, bytes: 0 };
                }
                last
            },
        )
        .before(|admin| {
            let patch = "object.data.map(k, JSONPatch{op: 'add', \
                         path: '/metadata/annotations/' + k, value: 'v'})";
            let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": patch}});
            let mut policy = policy_object(json!({"reinvocationPolicy": "Never",
                "failurePolicy": "Fail", "mutations": [mutation]}));
            policy["spec"]["matchConstraints"]["matchPolicy"] = json!("Equivalent");
            let answer = admin.post(&format!("{GROUP}/mutatingadmissionpolicies"), &policy);
            assert!(matches!(answer.code, 201), "{}", answer.text());
            let binding =
                json!({"metadata": {"name": "hostile"}, "spec": {"policyName": "hostile"}});
            admin.post(&format!("{GROUP}/mutatingadmissionpolicybindings"), &binding).expect(201);
        })
        .after(|admin| {
            admin.delete(&format!("{GROUP}/mutatingadmissionpolicybindings/hostile")).expect(200);
            admin.delete(&format!("{GROUP}/mutatingadmissionpolicies/hostile")).expect(200);
        }),
    ]
}

/// A secret with so many keys, under a policy. With `params`, 300 ConfigMaps are its parameters.
fn policy(
    name: &'static str,
    spec: impl Fn() -> Value + 'static,
    keys: usize,
    params: &'static str,
) -> Case {
    let config_maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let count = if params.is_empty() { 0 } else { sized(300) };
    let params_path = config_maps.clone();
    Case::new(name, Client::NamespaceAdmin, &[201, 403, 422, 500], move |http| {
        let data: serde_json::Map<String, Value> =
            (0..keys).map(|at| (format!("k{at}"), json!("dg=="))).collect();
        let secret = json!({"metadata": {"generateName": "judged-"}, "data": data});
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets?dryRun=All");
        // Once before the policy may be known, and once after.
        http.post(&path, &secret);
        Outcome::from(&http.post(&path, &secret))
    })
    .before(move |admin| {
        for at in 0..count {
            let object = json!({"metadata": {"name": format!("param-{at}"),
                "labels": {"for": "policy"}}, "data": {format!("p{at}"): "v"}});
            admin.post(&params_path, &object).expect(201);
        }
        let policies = format!("{GROUP}/validatingadmissionpolicies");
        admin.post(&policies, &policy_object(spec())).expect(201);
        let mut binding = binding("hostile");
        if count > 0 {
            binding["spec"]["paramRef"] = json!({"namespace": NAMESPACE,
                "selector": {"matchLabels": {"for": "policy"}}, "parameterNotFoundAction": "Allow"});
        }
        admin.post(&format!("{GROUP}/validatingadmissionpolicybindings"), &binding).expect(201);
    })
    .after(move |admin| {
        admin.delete(&format!("{GROUP}/validatingadmissionpolicybindings/hostile")).expect(200);
        admin.delete(&format!("{GROUP}/validatingadmissionpolicies/hostile")).expect(200);
        for at in 0..count {
            admin.delete(&format!("{config_maps}/param-{at}")).expect(200);
        }
    })
}

fn binding(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "policyName": "hostile", "validationActions": ["Deny"]}})
}

/// Writes that so many bindings of one policy are asked about.
fn bindings(name: &'static str, count: usize) -> Case {
    let path = |at: usize| format!("{GROUP}/validatingadmissionpolicybindings/many-{at}");
    Case::new(name, Client::NamespaceAdmin, &[201, 403], |http| {
        let secret = json!({"metadata": {"generateName": "judged-"}});
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets?dryRun=All");
        let mut last = Outcome::code(0);
        for _ in 0..10 {
            last = Outcome::from(&http.post(&path, &secret));
        }
        last
    })
    .before(move |admin| {
        let expression = "object.metadata.generateName.startsWith('judged') && \
                          !object.metadata.generateName.matches('^x[0-9]+$')";
        let policy = policy_object(json!({"validations": [{"expression": expression}]}));
        admin.post(&format!("{GROUP}/validatingadmissionpolicies"), &policy).expect(201);
        let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
        for at in 0..count {
            admin.post(&bindings, &binding(&format!("many-{at}"))).expect(201);
        }
    })
    .after(move |admin| {
        for at in 0..count {
            admin.delete(&path(at)).expect(200);
        }
        admin.delete(&format!("{GROUP}/validatingadmissionpolicies/hostile")).expect(200);
    })
}

fn policy_object(mut spec: Value) -> Value {
    spec["matchConstraints"] = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["secrets"]}]});
    json!({"metadata": {"name": "hostile"}, "spec": spec})
}

fn define(http: &Http, resource: &str, object: &Value) -> Outcome {
    let answer = http.post(&format!("{GROUP}/{resource}"), object);
    http.delete(&format!("{GROUP}/{resource}/hostile"));
    Outcome::from(&answer)
}
