//! Thousands of small things that every request passes or every write makes: quotas, FlowSchemas, flows, definitions,
//! and watches with long selectors.

use std::io::{Read as _, Write as _};

use integration::{Http, eventually};
use serde_json::{Value, json};

use super::{Case, Client, JSON, NAMESPACE, Outcome, open, request, sized};

const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = quotas();
    cases.extend(flow_control());
    cases.extend(definitions());
    cases.extend(watches());
    cases
}

fn quotas() -> Vec<Case> {
    let path = || format!("/api/v1/namespaces/{NAMESPACE}/resourcequotas");
    let counted = |http: &Http| {
        let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets?dryRun=All");
        let secret = json!({"metadata": {"generateName": "counted-"}});
        let mut last = Outcome::code(0);
        for _ in 0..5 {
            last = Outcome::from(&http.post(&secrets, &secret));
        }
        last
    };
    let many = |name, count: usize, quota: fn(usize) -> Value| {
        Case::new(name, Client::NamespaceAdmin, &[403], counted)
            .before(move |admin| {
                for at in 0..count {
                    let mut quota = quota(at);
                    quota["metadata"]["name"] = json!(format!("q{at}"));
                    admin.post(&path(), &quota).expect(201);
                }
                let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets?dryRun=All");
                let secret = json!({"metadata": {"generateName": "counted-"}});
                eventually("the quotas are known", || {
                    (admin.post(&secrets, &secret).code == 403).then_some(())
                });
            })
            .after(move |admin| {
                for at in 0..count {
                    admin.delete(&format!("{}/q{at}", path())).expect(200);
                }
            })
    };
    vec![
        many("quota: 40 quotas of 50 names", 40, |_| {
            let name = |at: usize| (format!("count/r{at}.example.com"), json!("5"));
            let mut hard = Value::from((0..50).map(name).collect::<serde_json::Map<_, _>>());
            hard["count/secrets"] = json!("0");
            json!({"spec": {"hard": hard}})
        }),
        many(
            "quota: 1 000 quotas",
            sized(1_000),
            |_| json!({"spec": {"hard": {"count/secrets": "0"}}}),
        ),
        Case::new(
            "quota: a scope selector of 20 000 values",
            Client::ClusterAdmin,
            &[201, 413, 422],
            move |http| {
                let values: Vec<String> = (0..sized(20_000)).map(|at| format!("p{at}")).collect();
                let expression =
                    json!({"scopeName": "PriorityClass", "operator": "In", "values": values});
                let quota = json!({"metadata": {"name": "scoped"}, "spec": {
                    "hard": {"pods": "0"},
                    "scopeSelector": {"matchExpressions": vec![expression; 5]}}});
                let code = http.post(&path(), &quota).code;
                // Pods are compared with it meanwhile.
                let pod = json!({"metadata": {"generateName": "scoped-"}, "spec": {
                    "containers": [{"name": "c", "image": "i"}]}});
                let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All");
                for _ in 0..5 {
                    http.post(&pods, &pod);
                }
                Outcome::code(code)
            },
        )
        .after(move |admin| drop(admin.delete(&format!("{}/scoped", path())))),
    ]
}

fn flow_control() -> Vec<Case> {
    let schema = |name: String, subjects: Vec<Value>| {
        let rule = json!({"subjects": subjects, "resourceRules": [{"verbs": ["*"],
            "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}]});
        json!({"metadata": {"name": name}, "spec": {
            "priorityLevelConfiguration": {"name": "global-default"},
            "distinguisherMethod": {"type": "ByUser"},
            "matchingPrecedence": 500, "rules": [rule]}})
    };
    let user = |name: String| json!({"kind": "User", "user": {"name": name}});
    let schemas = format!("{FLOWS}/flowschemas");
    let path = schemas.clone();
    let each_user = |http: &Http, users: usize| {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
        let mut last = Outcome::code(0);
        for at in 0..users {
            last = request(http, &path, &[("impersonate-user", format!("u{at}"))]);
        }
        last
    };
    vec![
        Case::new("flow control: 500 flows", Client::ClusterAdmin, &[403], move |http| {
            each_user(http, sized(500))
        }),
        Case::new(
            "flow control: a schema of 20 000 subjects",
            Client::ClusterAdmin,
            &[201, 413, 422],
            {
                let schemas = schemas.clone();
                move |http| {
                    let subjects = (0..sized(20_000)).map(|at| user(format!("u{at}"))).collect();
                    let answer = http.post(&schemas, &schema("hostile".to_owned(), subjects));
                    // Requests are classified by it meanwhile.
                    each_user(http, 50);
                    Outcome::code(answer.code)
                }
            },
        )
        .after({
            let schemas = schemas.clone();
            move |admin| drop(admin.delete(&format!("{schemas}/hostile")))
        }),
        Case::new("flow control: 1 000 schemas", Client::ClusterAdmin, &[403], move |http| {
            each_user(http, 100)
        })
        .before(move |admin| {
            for at in 0..sized(1_000) {
                let object =
                    schema(format!("hostile-{at}"), vec![user(format!("absent-user-{at}"))]);
                admin.post(&schemas, &object).expect(201);
            }
        })
        .after(move |admin| {
            for at in 0..sized(1_000) {
                admin.delete(&format!("{path}/hostile-{at}")).expect(200);
            }
        }),
        Case::new("flow control: a billion queues", Client::ClusterAdmin, &[422], |http| {
            let queuing =
                json!({"queues": 1_000_000_000, "handSize": 10, "queueLengthLimit": 1_000_000_000});
            let level = json!({"metadata": {"name": "hostile"}, "spec": {"type": "Limited",
                "limited": {"nominalConcurrencyShares": 1,
                    "limitResponse": {"type": "Queue", "queuing": queuing}}}});
            Outcome::from(&http.post(&format!("{FLOWS}/prioritylevelconfigurations"), &level))
        }),
    ]
}

/// Definitions one after the other, each with a schema of some size, and none of them used.
fn definitions() -> Vec<Case> {
    let name = |at: usize| format!("floods{at}.flood{at}.example.com");
    let flood =
        Case::new("definitions: a flood of 40", Client::ClusterAdmin, &[201], move |http| {
            let property = |at: usize| (format!("p{at}"), json!({"type": "string"}));
            let properties: serde_json::Map<String, Value> = (0..200).map(property).collect();
            let mut last = Outcome::code(0);
            for at in 0..sized(40) {
                let definition = json!({
                    "metadata": {"name": name(at)},
                    "spec": {"group": format!("flood{at}.example.com"), "scope": "Namespaced",
                        "names": {"plural": format!("floods{at}"), "kind": format!("Flood{at}")},
                        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                            "openAPIV3Schema": {"type": "object", "properties": properties}}}]},
                });
                last = Outcome::code(http.post(DEFINITIONS, &definition).code);
            }
            last
        })
        .after(move |admin| {
            for at in 0..sized(40) {
                let path = format!("{DEFINITIONS}/{}", name(at));
                admin.delete(&path).expect(200);
                eventually("it is gone", || (admin.get(&path).code == 404).then_some(()));
            }
        });
    vec![flood]
}

fn watches() -> Vec<Case> {
    let watched = |name, selector: fn(usize) -> String| {
        Case::new(name, Client::NamespaceAdmin, &[200], move |http| {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
            let mut watches = Vec::new();
            for at in 0..sized(400).min(100) {
                let head = format!(
                    "GET {path}?watch=1&{} HTTP/1.1\r\nHost: {}\r\n{}\r\n",
                    selector(at),
                    http.host(),
                    http.authorization(),
                );
                let mut watch = open(http, &head);
                let mut answer = [0; 12];
                watch.read_exact(&mut answer).expect("the server answers");
                assert_eq!(&answer, b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&answer));
                watches.push(watch);
            }
            // Each write is compared with every selector.
            let mut connection = http.connect().expect("the server accepts");
            for at in 0..sized(400).min(100) {
                let object = json!({"metadata": {"name": format!("selected-{at}"),
                    "labels": {"a": "b", "c": "d"}}});
                let write = http::Request::post(path.as_str())
                    .header("content-type", JSON)
                    .body(object.to_string().into())
                    .expect("a valid request");
                let answer = connection.request(write).expect("the server answers");
                assert_eq!(answer.code, 201, "{}", answer.text());
            }
            for watch in &mut watches {
                watch.flush().expect("it is open");
            }
            Outcome::code(request(http, &format!("{path}?limit=1"), &[]).code)
        })
        .after(|admin| {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
            for at in 0..sized(400).min(100) {
                admin.delete(&format!("{path}/selected-{at}")).expect(200);
            }
        })
    };
    vec![
        watched("watches: 100 selectors of 5 000 absent labels", |at| {
            let absent: Vec<String> = (0..5_000).map(|key| format!("!k{at}x{key}")).collect();
            format!("labelSelector={}", absent.join("%2C"))
        }),
        watched("watches: 100 selectors of 4 000 unequal values", |at| {
            let unequal: Vec<String> =
                (0..4_000).map(|value| format!("a!%3D{at}{value}")).collect();
            format!("labelSelector={}", unequal.join("%2C"))
        }),
        watched("watches: 100 selectors of 6 000 values", |at| {
            let values: Vec<String> = (0..6_000).map(|value| format!("{at}{value}")).collect();
            format!("labelSelector=a%20notin%20({})", values.join(","))
        }),
        watched("watches: 100 selectors of 1 800 unequal names", |at| {
            let names: Vec<String> =
                (0..1_800).map(|name| format!("metadata.name!%3D{at}n{name}")).collect();
            format!("fieldSelector={}", names.join("%2C"))
        }),
    ]
}
