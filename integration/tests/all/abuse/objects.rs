//! Objects of built-in kinds that are made to be dear to validate.

use http::Method;
use serde_json::{Value, json};

use super::{Case, Client, JSON, NAMESPACE, Outcome, sized};

fn create(
    name: &'static str,
    codes: &'static [u16],
    collection: &'static str,
    object: impl Fn() -> Value + 'static,
) -> Case {
    // Those that the role `admin` has no right to: a refusal comes before the body is read.
    let foreign = ["v1/endpoints", "v1/limitranges", "discovery.k8s.io/v1/endpointslices"];
    let client =
        if foreign.contains(&collection) { Client::ClusterAdmin } else { Client::NamespaceAdmin };
    Case::new(name, client, codes, move |http| {
        let mut object = object();
        object["metadata"]["name"] = "hostile".into();
        let path = match collection.split_once('/') {
            Some((group_version, resource)) if group_version != "v1" => {
                let (version, resource) = resource.split_once('/').expect("group/version/resource");
                format!("/apis/{group_version}/{version}/namespaces/{NAMESPACE}/{resource}")
            }
            _ => {
                let (_, resource) = collection.split_once('/').expect("version/resource");
                format!("/api/v1/namespaces/{NAMESPACE}/{resource}")
            }
        };
        let answer = http.send(Method::POST, &path, Some(JSON), object.to_string());
        if answer.code == 201 {
            http.delete(&format!("{path}/hostile"));
        }
        Outcome::from(&answer)
    })
}

fn many(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..sized(count)).map(item).collect()
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({"metadata": {}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    if let (Some(into), Value::Object(from)) = (pod["spec"].as_object_mut(), spec) {
        into.extend(from);
    }
    pod
}

fn container(field: &str, value: Value) -> Value {
    let mut container = json!({"name": "a", "image": "b"});
    container[field] = value;
    pod(json!({"containers": [container]}))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = metadata_cases();
    cases.extend(pod_cases());
    cases.extend(other_cases());
    cases
}

fn metadata_cases() -> Vec<Case> {
    let config_map = |field: &'static str, value: fn() -> Value| {
        move || {
            let mut object = json!({"metadata": {}});
            object["metadata"][field] = value();
            object
        }
    };
    vec![
        create("metadata: 2 000 owners that are controllers", &[422], "v1/configmaps", || {
            let owners = many(
                2_000 * 8 / 8,
                |i| json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": format!("u{i}"), "controller": true}),
            );
            json!({"metadata": {"ownerReferences": owners}})
        }),
        create("metadata: 30 000 owners that are controllers", &[422], "v1/configmaps", || {
            let owners = many(
                30_000,
                |i| json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": format!("u{i}"), "controller": true}),
            );
            json!({"metadata": {"ownerReferences": owners}})
        }),
        create(
            "metadata: 100 000 wrong finalizers",
            &[422],
            "v1/configmaps",
            config_map("finalizers", || many(100_000, |_| json!("a b"))),
        ),
        create(
            "metadata: 100 000 wrong labels",
            &[422],
            "v1/configmaps",
            config_map("labels", || {
                let labels = (0..sized(100_000)).map(|i| (format!("a b{i}"), json!("c d")));
                Value::Object(labels.collect())
            }),
        ),
        create(
            "metadata: annotations beyond 256 KB",
            &[422],
            "v1/configmaps",
            config_map("annotations", || json!({"a": "b".repeat(2_900_000)})),
        ),
        create(
            "metadata: 10 000 managers",
            &[201, 400, 422],
            "v1/configmaps",
            config_map("managedFields", || {
                many(10_000, |i| {
                    json!({"manager": format!("m{i}"), "operation": "Update", "apiVersion": "v1",
                        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}})
                })
            }),
        ),
        create(
            "metadata: managed fields nested 5 000 levels",
            &[201, 400, 422],
            "v1/configmaps",
            config_map("managedFields", || {
                let mut fields = json!({});
                for _ in 0..900 {
                    fields = json!({"f:a": fields});
                }
                json!([{"manager": "m", "operation": "Update", "apiVersion": "v1",
                    "fieldsType": "FieldsV1", "fieldsV1": fields}])
            }),
        ),
        create(
            "metadata: a generateName of 1 MB",
            &[422],
            "v1/configmaps",
            config_map("generateName", || json!("a".repeat(1_000_000))),
        ),
    ]
}

fn pod_cases() -> Vec<Case> {
    let pods = |name, field: &'static str, value: fn() -> Value| {
        create(name, &[201, 400, 413, 422, 500], "v1/pods", move || {
            let mut spec = json!({});
            spec[field] = value();
            pod(spec)
        })
    };
    // Compat: a pod that is too large for the store is a 500.
    let containers = |name, field: &'static str, value: fn() -> Value| {
        create(name, &[201, 400, 413, 422, 500], "v1/pods", move || container(field, value()))
    };
    vec![
        pods("pod: 50 000 empty containers", "containers", || many(50_000, |_| json!({}))),
        pods("pod: 1 000 000 empty containers", "containers", || {
            // As many as a body may have; the others of their kind are counted in objects.
            many(1_000_000, |_| json!({}))
        }),
        pods("pod: 50 000 equal containers", "containers", || {
            many(50_000, |_| json!({"name": "a", "image": "b"}))
        }),
        pods("pod: 25 000 init containers", "initContainers", || {
            many(25_000, |i| json!({"name": format!("i{i}"), "image": "b"}))
        }),
        pods("pod: 100 000 empty volumes", "volumes", || many(100_000, |_| json!({}))),
        pods("pod: 60 000 equal volumes", "volumes", || {
            many(60_000, |_| json!({"name": "v", "emptyDir": {}}))
        }),
        pods("pod: 60 000 tolerations", "tolerations", || {
            many(60_000, |_| json!({"key": "a b", "operator": "Exists"}))
        }),
        pods("pod: 50 000 host aliases", "hostAliases", || {
            many(50_000, |_| json!({"ip": "x", "hostnames": ["-"]}))
        }),
        pods("pod: 100 000 pull secrets", "imagePullSecrets", || {
            many(100_000, |_| json!({"name": ""}))
        }),
        pods("pod: 60 000 spread constraints", "topologySpreadConstraints", || {
            many(
                30_000,
                |_| json!({"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}),
            )
        }),
        pods("pod: 40 000 resource claims", "resourceClaims", || {
            many(40_000, |_| json!({"name": "c", "resourceClaimName": "d"}))
        }),
        pods("pod: node affinity of 30 000 terms", "affinity", || {
            let terms =
                many(30_000, |_| json!({"matchExpressions": [{"key": "a b", "operator": "In"}]}));
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": terms}}})
        }),
        containers("pod: 60 000 ports", "ports", || {
            many(60_000, |_| json!({"containerPort": 80, "name": "a"}))
        }),
        containers("pod: 90 000 wrong variables", "env", || many(90_000, |_| json!({"name": "="}))),
        containers("pod: 50 000 equal mounts", "volumeMounts", || {
            many(50_000, |_| json!({"name": "v", "mountPath": "/a"}))
        }),
        containers("pod: a command of 500 000 words", "command", || many(500_000, |_| json!("a"))),
        containers("pod: 30 000 resources", "resources", || {
            let limits = (0..sized(30_000)).map(|i| (format!("r{i}"), json!("1x")));
            json!({"limits": Value::Object(limits.collect())})
        }),
        containers(
            "pod: a quantity of 1 MB",
            "resources",
            || json!({"limits": {"cpu": "9".repeat(1_000_000)}}),
        ),
    ]
}

fn other_cases() -> Vec<Case> {
    let words =
        |count: usize| move || -> Vec<String> { (0..count).map(|i| format!("w{i}")).collect() };
    let eighty = words(80);
    let rbac = "rbac.authorization.k8s.io/v1/roles";
    vec![
        create("role: 80 verbs, 80 groups, 80 resources", &[403], rbac, move || {
            let words = eighty();
            json!({"metadata": {}, "rules": [{"verbs": words, "apiGroups": words, "resources": words}]})
        }),
        create("role: 500 verbs, groups, resources and names", &[403], rbac, move || {
            let words = words(500)();
            json!({"metadata": {}, "rules": [
                {"verbs": words, "apiGroups": words, "resources": words, "resourceNames": words}]})
        }),
        create("role: 40 000 rules", &[403, 422], rbac, || {
            let rule = json!({"verbs": ["x"], "apiGroups": ["y"], "resources": ["z"]});
            json!({"metadata": {}, "rules": many(40_000, |_| rule.clone())})
        }),
        create(
            "role: 100 000 empty rules",
            &[422, 403, 413],
            rbac,
            || json!({"metadata": {}, "rules": many(100_000, |_| json!({}))}),
        ),
        create(
            "role binding: 60 000 wrong subjects",
            &[422, 403, 413],
            "rbac.authorization.k8s.io/v1/rolebindings",
            || {
                json!({"metadata": {}, "subjects": many(60_000, |_| json!({"kind": "x"})),
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "custom"}})
            },
        ),
        create(
            "service: 40 000 ports",
            &[422],
            "v1/services",
            || json!({"metadata": {}, "spec": {"ports": many(40_000, |_| json!({"port": 80}))}}),
        ),
        create(
            "service: 60 000 wrong ports",
            &[413, 422],
            "v1/services",
            || json!({"metadata": {}, "spec": {"ports": many(60_000, |i| json!({"port": 0, "name": format!("-{i}")}))}}),
        ),
        create("endpoints: 60 000 wrong addresses", &[422, 403, 413], "v1/endpoints", || {
            json!({"metadata": {}, "subsets": [{"addresses": many(60_000, |_| json!({"ip": "x"})),
                "ports": [{"port": 80}]}]})
        }),
        create(
            "endpoint slice: 40 000 endpoints",
            &[422, 403],
            "discovery.k8s.io/v1/endpointslices",
            || {
                json!({"metadata": {}, "addressType": "IPv4", "ports": [],
                "endpoints": many(40_000, |_| json!({"addresses": ["x"]}))})
            },
        ),
        create("ingress: 20 000 rules", &[422], "networking.k8s.io/v1/ingresses", || {
            json!({"metadata": {}, "spec": {"rules": many(20_000, |_| json!({
                "host": "a", "http": {"paths": [{"path": "x"}]}}))}})
        }),
        create(
            "network policy: 40 000 peers",
            &[422],
            "networking.k8s.io/v1/networkpolicies",
            || {
                json!({"metadata": {}, "spec": {"podSelector": {}, "ingress": [
                {"from": many(40_000, |_| json!({"ipBlock": {"cidr": "x", "except": ["y"]}}))}]}})
            },
        ),
        create(
            "limit range: 40 000 limits",
            &[400],
            "v1/limitranges",
            || json!({"metadata": {}, "spec": {"limits": many(40_000, |_| json!({"type": "Pod", "max": {"cpu": "x"}}))}}),
        ),
        create(
            "horizontal autoscaler: 40 000 metrics",
            &[422],
            "autoscaling/v2/horizontalpodautoscalers",
            || {
                json!({"metadata": {}, "spec": {"maxReplicas": 1, "scaleTargetRef": {"kind": "a", "name": "b"},
                "metrics": many(40_000, |_| json!({"type": "x"}))}})
            },
        ),
        create("cron job: a schedule of 1 MB", &[422], "batch/v1/cronjobs", || {
            json!({"metadata": {}, "spec": {"schedule": "1,".repeat(500_000), "jobTemplate": {"spec": {
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}}}}})
        }),
        create("deployment: a selector of 60 000 labels", &[422], "apps/v1/deployments", || {
            let labels = (0..sized(60_000)).map(|i| (format!("l{i}"), json!("v")));
            let labels = Value::Object(labels.collect());
            json!({"metadata": {}, "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}}}})
        }),
        create("config map: 200 000 keys", &[201, 413, 422, 500], "v1/configmaps", || {
            let data = (0..sized(200_000)).map(|i| (i.to_string(), json!("")));
            json!({"metadata": {}, "data": Value::Object(data.collect())})
        }),
        create("config map: 300 000 wrong keys", &[422], "v1/configmaps", || {
            let data = (0..sized(150_000)).map(|i| (format!("/{i}"), json!("v")));
            json!({"metadata": {}, "data": Value::Object(data.collect())})
        }),
        create(
            "secret: 3 MB of data",
            &[422, 413],
            "v1/secrets",
            || json!({"metadata": {}, "stringData": {"a": "b".repeat(2_900_000)}}),
        ),
        Case::send(
            "review: 50 000 requirements",
            Client::User,
            &[201, 400, 422],
            (Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", JSON),
            || {
                let requirement = json!({"key": "a", "operator": "In", "values": ["b"]});
                json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods",
                    "labelSelector": {"requirements": many(40_000, |_| requirement.clone())}}}})
                .to_string()
                .into()
            },
        ),
        Case::send(
            "review: 100 000 groups",
            Client::ClusterAdmin,
            &[201, 400, 422],
            (Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews", JSON),
            || {
                json!({"spec": {"user": "u", "groups": many(100_000, |i| json!(format!("g{i}"))),
                    "resourceAttributes": {"verb": "list", "resource": "pods"}}})
                .to_string()
                .into()
            },
        ),
    ]
}
