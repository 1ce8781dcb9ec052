//! Objects that the server creates itself at its first start.

use std::net::SocketAddr;

use integration::{Http, eventually, shared};
use serde_json::{Value, json};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

fn dangling(http: &Http, schema: &str) -> Option<String> {
    let schema = http.get(&format!("{SCHEMAS}/{schema}")).expect(200);
    let conditions = schema.pointer("/status/conditions")?.as_array()?.clone();
    let condition = conditions.iter().find(|condition| condition["type"] == "Dangling")?;
    Some(format!("{} {}", condition["status"].as_str()?, condition["reason"].as_str()?))
}

/// A generated name comes after managedFields, so that no manager owns the label with it.
#[test]
fn a_namespace_with_a_generated_name_has_a_label_that_nobody_owns() {
    let http = shared().http();
    let namespaces = "/api/v1/namespaces?dryRun=All&fieldManager=m";
    let made = http.post(namespaces, &json!({"metadata": {"generateName": "gen-"}})).expect(201);
    let metadata = &made["metadata"];
    assert!(metadata["name"].as_str().is_some_and(|name| name.len() == "gen-".len() + 5), "{made}");
    assert_eq!(metadata["labels"], json!({"kubernetes.io/metadata.name": metadata["name"]}));
    let owned = &metadata["managedFields"][0]["fieldsV1"];
    assert_eq!(owned, &json!({"f:metadata": {"f:generateName": {}}}));
    let named = http.post(namespaces, &json!({"metadata": {"name": "named-here"}})).expect(201);
    let owned = &named["metadata"]["managedFields"][0]["fieldsV1"];
    let label = json!({".": {}, "f:kubernetes.io/metadata.name": {}});
    assert_eq!(owned, &json!({"f:metadata": {"f:labels": label}}));
}

#[test]
fn the_identity_lease_says_where_other_servers_reach_this_one() {
    let http = shared().http();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let leases = http.get(&format!("{leases}?labelSelector=apiserver.kubernetes.io/identity"));
    let lease = leases.expect(200)["items"][0].clone();
    let address = &lease["metadata"]["annotations"]["kubernetes.io/peer-advertise-address"];
    let address = address.as_str().and_then(|address| address.parse::<SocketAddr>().ok());
    assert!(address.is_some_and(|address| address.port() > 0), "{lease}");
}

#[test]
fn flow_schemas_and_priority_levels_are_there_and_know_each_other() {
    let server = shared();
    let http = server.http();
    let line = |object: &Value| {
        let (name, spec) = (&object["metadata"]["name"], &object["spec"]);
        let (level, precedence) =
            (&spec["priorityLevelConfiguration"]["name"], &spec["matchingPrecedence"]);
        format!("{precedence} {} {}", name.as_str().unwrap_or(""), level.as_str().unwrap_or(""))
    };
    let schemas = http.get(SCHEMAS).expect(200);
    let lines: Vec<String> =
        schemas["items"].as_array().expect("a list").iter().map(line).collect();
    for expected in [
        "1 exempt exempt",
        "2 probes exempt",
        "100 system-leader-election leader-election",
        "400 system-node-high node-high",
        "500 system-nodes system",
        "800 kube-controller-manager workload-high",
        "800 kube-scheduler workload-high",
        "900 kube-system-service-accounts workload-high",
        "9000 service-accounts workload-low",
        "9900 global-default global-default",
        "10000 catch-all catch-all",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected} is missing in {lines:#?}");
    }
    for name in ["exempt", "catch-all", "system-leader-election"] {
        eventually(name, || dangling(&http, name).filter(|condition| condition == "False Found"));
    }
    let low = http.get(&format!("{LEVELS}/workload-low")).expect(200);
    assert_eq!(
        low["spec"],
        json!({"type": "Limited", "limited": {
            "nominalConcurrencyShares": 100,
            "lendablePercent": 90,
            "limitResponse": {
                "type": "Queue",
                "queuing": {"queues": 128, "handSize": 6, "queueLengthLimit": 50},
            },
        }})
    );

    let mut lost = http.get(&format!("{SCHEMAS}/probes")).expect(200);
    lost["metadata"] = json!({"name": format!("lost-{}", server.namespace("flow"))});
    lost["spec"]["priorityLevelConfiguration"]["name"] = json!("nowhere");
    lost["spec"]["matchingPrecedence"] = json!(9998);
    let name = lost["metadata"]["name"].as_str().expect("set above").to_owned();
    http.post(SCHEMAS, &lost).expect(201);
    eventually("the missing level is condition", || {
        dangling(&http, &name).filter(|condition| condition == "True NotFound")
    });
    http.delete(&format!("{SCHEMAS}/{name}")).expect(200);
}

/// Names of managers are what an apply that conflicts shows.
#[test]
fn objects_of_the_server_have_its_field_managers() {
    let http = shared().http();
    let managers = |path: &str| -> Vec<String> {
        let object = http.get(path).expect(200);
        let fields = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        fields.iter().map(|own| text(&own["manager"]) + " " + &text(&own["operation"])).collect()
    };
    let producer = "api-priority-and-fairness-config-producer-v1 Update";
    let consumer = "api-priority-and-fairness-config-consumer-v1 Apply";
    let schema = format!("{SCHEMAS}/service-accounts");
    eventually("the state of a schema is condition", || {
        let mut found = managers(&schema);
        found.sort();
        (found == [consumer, producer]).then_some(())
    });
    assert_eq!(managers(&format!("{LEVELS}/workload-low")), [producer]);
    eventually("the range of services is ready", || {
        let mut found = managers("/apis/networking.k8s.io/v1/servicecidrs/kubernetes");
        found.sort();
        let expected = ["kube-apiserver Update", "kubernetes-service-cidr-controller Apply"];
        (found == expected).then_some(())
    });
    assert_eq!(
        managers("/apis/apiregistration.k8s.io/v1/apiservices/v1.apps"),
        ["kube-apiserver Update"]
    );
}

#[test]
fn the_store_is_asked_for_its_health_under_the_name_of_etcd() {
    let http = shared().http();
    for path in ["/healthz/etcd", "/livez/etcd", "/readyz/etcd", "/readyz/etcd-readiness"] {
        assert_eq!(http.get(path).text(), "ok", "{path}");
    }
    // Whether the server can be used says nothing about whether it should live.
    assert_eq!(http.get("/livez/etcd-readiness").code, 404);
}
