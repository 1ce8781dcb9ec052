//! Several servers over one etcd: two Pintles, and Pintle and the real kube-apiserver taking turns.

use integration::{Flavour, Server, eventually, peer_program};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
#[ignore = "new, and not seen passing yet"]
fn two_servers_over_one_etcd_see_each_others_writes_at_once() {
    let one = Server::of(Flavour::Etcd);
    let two = one.beside(Flavour::Etcd);
    let (first, second) = (one.http(), two.http());
    let mut watch = second.stream(&format!("{CONFIG_MAPS}?watch=true"));
    for n in 0..20 {
        let name = format!("cm-{n}");
        let path = format!("{CONFIG_MAPS}/{name}");
        let made = first.post(CONFIG_MAPS, &json!({"metadata": {"name": name}})).expect(201);
        // Not eventually: at once.
        let mut found = second.get(&path).expect(200);
        assert_eq!(made, found);
        found["data"] = json!({"n": n.to_string()});
        let changed = second.put(&path, &found).expect(200);
        assert_eq!(first.get(&path).expect(200), changed);
        first.delete(&path).expect(200);
        second.get(&path).expect(404);
    }
    let mut deleted = 0;
    while deleted < 20 {
        let event = watch.next_event().expect("the other server's writes are seen");
        deleted += usize::from(event["type"] == "DELETED");
    }
}

/// What the two servers make, and where it is found. Each kind is stored in its own way: protobuf, JSON,
/// another version than it is served in.
fn objects() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        (
            CONFIG_MAPS,
            "cm",
            json!({"metadata": {"labels": {"a": "b"}}, "data": {"k": "v"}, "binaryData": {"b": "AAEC"}}),
        ),
        ("/api/v1/namespaces/default/secrets", "s", json!({"stringData": {"a": "b"}})),
        (
            "/api/v1/namespaces/default/services",
            "svc",
            json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "targetPort": "http"}]}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            "d",
            json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m"}}}]},
            }}}),
        ),
        (
            "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
            "hpa",
            json!({"spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
                "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}),
        ),
        (
            "/apis/events.k8s.io/v1/namespaces/default/events",
            "e",
            json!({"eventTime": "2026-01-01T00:00:00.000000Z", "action": "a", "reason": "r", "type": "Normal",
                "reportingController": "x.io/c", "reportingInstance": "i",
                "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}}),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            "l",
            json!({"spec": {"holderIdentity": "me", "renewTime": "2026-01-01T00:00:00.123456Z"}}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "widgets.example.com",
            json!({"spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                    "additionalPrinterColumns": [{"name": "R", "type": "integer", "jsonPath": ".spec.r"}]}]}}),
        ),
        (
            "/apis/example.com/v1/namespaces/default/widgets",
            "w",
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"z": 1, "a": "<x>"}}),
        ),
    ]
}

/// Creates an object with one server and reads it with both.
fn make(by: &Server, with: &Server, path: &str, name: &str, mut object: Value) {
    object["metadata"]["name"] = name.into();
    // A definition is served a moment after it was made.
    eventually("the collection is served", || (by.http().get(path).code == 200).then_some(()));
    by.http().post(path, &object).expect(201);
    agree(by, with, &format!("{path}/{name}"));
}

/// Both servers show the same, down to the last field.
fn agree(one: &Server, other: &Server, path: &str) {
    eventually("both servers show the same", || {
        let (left, right) = (one.http().get(path), other.http().get(path));
        (left.code == 200 && left.json() == right.json()).then_some(())
    });
}

#[test]
#[ignore = "new, and not seen passing yet"]
fn pintle_and_the_real_server_take_turns_over_one_etcd() {
    let Some(program) = peer_program() else {
        eprintln!("SKIPPED: there is no kube-apiserver here (make peer builds it)");
        return;
    };
    let real = Server::of(Flavour::Peer(program));
    let pintle = real.beside(Flavour::Etcd);
    for (path, name, object) in objects() {
        make(&real, &pintle, path, name, object.clone());
        let at = format!("{path}/{name}");
        // Each changes what the other one made.
        let patch = |by: &Server, n: &str| {
            let patch = json!({"metadata": {"annotations": {"n": n}}});
            by.http().patch(&at, "application/merge-patch+json", &patch).expect(200);
            agree(&real, &pintle, &at);
        };
        patch(&pintle, "1");
        patch(&real, "2");
        patch(&pintle, "3");
    }
    // And the other way round.
    for (path, name, mut object) in objects() {
        if path.contains("customresourcedefinitions") {
            continue;
        }
        object["metadata"]["labels"] = json!({"by": "pintle"});
        make(&pintle, &real, path, &format!("{name}-2"), object);
        real.http().delete(&format!("{path}/{name}-2")).expect(200);
        pintle.http().get(&format!("{path}/{name}-2")).expect(404);
    }
}
