//! CustomResourceDefinitions themselves: their conditions and how they are published.

use std::time::{Duration, Instant};

use integration::{Flavour, Http, Server, eventually, shared};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE: &str = "application/merge-patch+json";

/// A definition without anything special.
fn definition(plural: &str, kind: &str, group: &str) -> Value {
    json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [version("v1", true)],
        },
    })
}

fn version(name: &str, storage: bool) -> Value {
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
}

/// Waits until a condition of a definition has a status and a reason.
fn wait_for(http: &Http, name: &str, condition: &str, status: &str, reason: &str) -> Value {
    eventually(&format!("{condition} of {name} is {status}: {reason}"), || {
        let found = http.get(&format!("{DEFINITIONS}/{name}"));
        let found = (found.code == 200).then(|| found.json())?;
        let conditions = found["status"]["conditions"].as_array()?;
        let known = conditions.iter().find(|known| known["type"] == condition)?;
        (known["status"] == status && known["reason"] == reason).then_some(found)
    })
}

fn established(http: &Http, name: &str) -> Value {
    wait_for(http, name, "Established", "True", "InitialNamesAccepted")
}

#[test]
fn groups_of_the_kubernetes_project_need_an_approval() {
    let server = shared();
    let http = server.http();
    let annotation = "api-approved.kubernetes.io";
    let mut approved = definition("sloops", "Sloop", "approval.x-k8s.io");
    http.post(DEFINITIONS, &approved).expect(201);
    let free = established(&http, "sloops.approval.x-k8s.io");
    let conditions = free["status"]["conditions"].as_array().expect("conditions");
    assert_eq!(conditions.len(), 2, "{conditions:?}");

    approved = definition("sloops", "Sloop", "approval.k8s.io");
    let refused = http.post(DEFINITIONS, &approved).expect(422);
    let cause = &refused["details"]["causes"][0];
    assert_eq!(cause["field"], format!("metadata.annotations[{annotation}]"));
    approved["metadata"]["annotations"] = json!({annotation: "unapproved, a test"});
    http.post(DEFINITIONS, &approved).expect(201);
    let name = "sloops.approval.k8s.io";
    let conformant = "KubernetesAPIApprovalPolicyConformant";
    wait_for(&http, name, conformant, "False", "UnapprovedAnnotation");
    // That is for people to know: it is served all the same.
    established(&http, name);
    let url = "https://github.com/kubernetes/enhancements/pull/1";
    let patch = json!({"metadata": {"annotations": {annotation: url}}});
    http.patch(&format!("{DEFINITIONS}/{name}"), MERGE, &patch).expect(200);
    wait_for(&http, name, conformant, "True", "ApprovedAnnotation");
    let none = json!({"metadata": {"annotations": {annotation: null}}});
    http.patch(&format!("{DEFINITIONS}/{name}"), MERGE, &none).expect(422);
}

/// `kubectl create -f crd.yaml && kubectl create -f cr.yaml` failed with "no matches for kind", and
/// `kubectl wait` met a status without conditions.
#[test]
fn a_definition_is_served_established_and_discovered_when_its_creation_is_answered() {
    let flavour = Flavour::from_env();
    if flavour.is_peer() {
        eprintln!("SKIPPED: kube-apiserver answers at once, and serves a moment later");
        return;
    }
    let server = shared();
    let http = server.http();
    for n in 0..10 {
        let group = format!("g{n}.at-once.example.com");
        let name = format!("ketches.{group}");
        http.post(DEFINITIONS, &definition("ketches", "Ketch", &group)).expect(201);
        let found = http.get(&format!("{DEFINITIONS}/{name}")).expect(200);
        let conditions = found["status"]["conditions"].as_array().expect("conditions are written");
        let is_established =
            |known: &Value| known["type"] == "Established" && known["status"] == "True";
        assert!(conditions.iter().any(is_established), "{conditions:?}");
        let groups = http.get("/apis").expect(200);
        let groups = groups["groups"].as_array().expect("a list");
        assert!(groups.iter().any(|known| known["name"] == group.as_str()), "{group}");
        let resources = http.get(&format!("/apis/{group}/v1")).expect(200);
        assert_eq!(resources["resources"][0]["name"], "ketches");
        let objects = format!("/apis/{group}/v1/namespaces/default/ketches");
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Ketch", "metadata": {"name": "a"}});
        http.post(&objects, &object).expect(201);
        http.delete(&format!("{DEFINITIONS}/{name}")).expect(200);
    }
}

#[test]
fn with_several_servers_a_definition_is_established_after_a_delay() {
    let server = Server::with(Flavour::from_env(), &["--apiserver-count=2"]);
    let http = server.http();
    let asked = Instant::now();
    http.post(DEFINITIONS, &definition("yawls", "Yawl", "moment.example.com")).expect(201);
    let name = "yawls.moment.example.com";
    wait_for(&http, name, "Established", "False", "Installing");
    established(&http, name);
    assert!(asked.elapsed() >= Duration::from_secs(5), "{:?}", asked.elapsed());
    // kube-apiserver starts a cache with the first request for it, and says so.
    eventually("yawls are served", || {
        (http.get("/apis/moment.example.com/v1/yawls").code == 200).then_some(())
    });
}

#[test]
fn conflicting_names_are_accepted_once_they_are_free() {
    let server = shared();
    let http = server.http();
    let cases = [
        ("short", "ShortNamesConflict", json!({"shortNames": ["fl"]})),
        ("singular", "SingularConflict", json!({"singular": "fl"})),
        ("kind", "KindConflict", json!({"kind": "First", "singular": "x", "listKind": "Xs"})),
        ("list", "ListKindConflict", json!({"listKind": "FirstList"})),
    ];
    for (case, reason, names) in cases {
        let group = format!("{case}.taken.example.com");
        let mut first = definition("firsts", "First", &group);
        let names_of_first = first["spec"]["names"].as_object_mut().expect("names");
        // What is a singular of one may not be a short name of another.
        names_of_first.extend(json!({"shortNames": ["fl"]}).as_object().expect("names").clone());
        http.post(DEFINITIONS, &first).expect(201);
        established(&http, &format!("firsts.{group}"));

        let mut second = definition("seconds", "Second", &group);
        let wanted = second["spec"]["names"].as_object_mut().expect("names");
        wanted.extend(names.as_object().expect("names").clone());
        http.post(DEFINITIONS, &second).expect(201);
        let name = format!("seconds.{group}");
        let refused = wait_for(&http, &name, "NamesAccepted", "False", reason);
        // What is not taken is given.
        assert_eq!(refused["status"]["acceptedNames"]["plural"], "seconds");
        assert_eq!(http.get(&format!("/apis/{group}/v1/seconds")).code, 404);
        http.delete(&format!("{DEFINITIONS}/firsts.{group}")).expect(200);
        let accepted = established(&http, &name);
        for (what, given) in names.as_object().expect("names") {
            assert_eq!(&accepted["status"]["acceptedNames"][what], given);
        }
        eventually("the second is served", || {
            (http.get(&format!("/apis/{group}/v1/seconds")).code == 200).then_some(())
        });
    }
}

#[test]
fn a_version_goes_when_nothing_is_stored_in_it_any_more() {
    let server = shared();
    let http = server.http();
    let group = "stored.example.com";
    http.post(DEFINITIONS, &definition("hulls", "Hull", group)).expect(201);
    let name = format!("hulls.{group}");
    let path = format!("{DEFINITIONS}/{name}");
    established(&http, &name);
    let namespace = server.namespace("stored");
    let at = |version: &str| format!("/apis/{group}/{version}/namespaces/{namespace}/hulls");
    eventually("hulls are served", || (http.get(&at("v1")).code == 200).then_some(()));
    let hull = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Hull", "metadata": {"name": "a"},
        "spec": {"planks": 7},
    });
    http.post(&at("v1"), &hull).expect(201);

    let both = json!({"spec": {"versions": [version("v1", false), version("v2", true)]}});
    let changed = http.patch(&path, MERGE, &both).expect(200);
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    let only_v2 = json!({"spec": {"versions": [version("v2", true)]}});
    let refused = http.patch(&path, MERGE, &only_v2).expect(422);
    let cause = &refused["details"]["causes"][0];
    assert_eq!(cause["field"], "status.storedVersions[0]");

    eventually("v2 is served", || (http.get(&at("v2")).code == 200).then_some(()));
    let stored = http.get(&format!("{}/a", at("v2"))).expect(200);
    // An object that is written as it is takes the new version along.
    let written = http.put(&format!("{}/a", at("v2")), &stored).expect(200);
    assert_ne!(written["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"]);
    let migrated = json!({"status": {"storedVersions": ["v2"]}});
    http.patch(&format!("{path}/status"), MERGE, &migrated).expect(200);
    http.patch(&path, MERGE, &only_v2).expect(200);
    eventually("v1 is gone", || (http.get(&at("v1")).code == 404).then_some(()));
    let left = eventually("v2 goes on", || {
        let answer = http.get(&format!("{}/a", at("v2")));
        (answer.code == 200).then(|| answer.json())
    });
    assert_eq!(left["spec"], json!({"planks": 7}));
}

/// How often discovery was made anew.
fn published(http: &Http) -> Option<u64> {
    let name = "aggregator_discovery_aggregation_count_total ";
    let metrics = http.get("/metrics").text();
    metrics.lines().find_map(|line| line.strip_prefix(name)).and_then(|count| count.parse().ok())
}

#[test]
fn many_definitions_at_once_are_published_together() {
    const DEFINITIONS_EACH: usize = 20;
    let server = Server::start();
    if server.flavour().is_peer() {
        return;
    }
    let http = server.http();
    let before = published(&http).expect("it is counted");
    let group = |writer: usize| format!("burst{writer}.example.com");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (http, group) = (server.http(), group(writer));
            scope.spawn(move || {
                for number in 0..DEFINITIONS_EACH {
                    let (plural, kind) = (format!("things{number}"), format!("Thing{number}"));
                    http.post(DEFINITIONS, &definition(&plural, &kind, &group)).expect(201);
                }
            });
        }
    });
    for writer in 0..4 {
        eventually("discovery tells of all of them", || {
            let answer = http.get(&format!("/apis/{}/v1", group(writer)));
            let answer = (answer.code == 200).then(|| answer.json())?;
            (answer["resources"].as_array()?.len() == DEFINITIONS_EACH).then_some(())
        });
    }
    let times = published(&http).expect("it is counted") - before;
    // A busy machine may pause in between; one by one it would have been 80 times. A write is answered when its
    // definition is served, which takes longer over etcd than the pause after which changes are published.
    let most = if *server.flavour() == Flavour::Etcd { 60 } else { 20 };
    assert!((1..=most).contains(&times), "published {times} times");
}
