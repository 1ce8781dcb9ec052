//! ResourceQuota: what a namespace may use, enforced by admission and counted by the controller.

use std::{sync::Arc, thread};

use integration::{Flavour, Http, Server, Version, eventually, shared};
use serde_json::{Value, json};

fn path(namespace: &str, resource: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{resource}")
}

/// Creates a quota and waits until its status is known.
fn create_quota(http: &Http, namespace: &str, spec: Value) {
    let quotas = path(namespace, "resourcequotas");
    http.post(&quotas, &json!({"metadata": {"name": "q"}, "spec": spec})).expect(201);
    eventually("the quota's status", || {
        http.get(&format!("{quotas}/q")).json()["status"]["used"].is_object().then_some(())
    });
}

fn used(http: &Http, namespace: &str) -> Value {
    http.get(&format!("{}/q", path(namespace, "resourcequotas"))).expect(200)["status"]["used"]
        .clone()
}

fn pod(name: &str, resources: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": resources}]}})
}

#[test]
fn pods_are_counted_refused_and_freed() {
    let server = shared();
    if !server.has_controllers() {
        return;
    }
    let namespace = server.namespace("quota-pods");
    let http = server.http();
    create_quota(
        &http,
        &namespace,
        json!({"hard": {"pods": "2", "requests.cpu": "1", "count/pods": "9"}}),
    );
    let pods = path(&namespace, "pods");
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    let refused = |pod: &Value, message: &str| {
        let status = http.post(&pods, pod).expect(403);
        assert_eq!(status["message"], message);
    };
    eventually("the default service account", || {
        (http.get(&path(&namespace, "serviceaccounts/default")).code == 200).then_some(())
    });
    refused(
        &pod("none", json!({})),
        "pods \"none\" is forbidden: failed quota: q: must specify requests.cpu for: c",
    );
    http.post(&pods, &pod("a", cpu("600m"))).expect(201);
    refused(
        &pod("b", cpu("600m")),
        "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1",
    );
    // A dry run is checked and costs nothing.
    http.post(&format!("{pods}?dryRun=All"), &pod("b", cpu("100m"))).expect(201);
    http.post(&pods, &pod("b", cpu("100m"))).expect(201);
    assert_eq!(
        used(&http, &namespace),
        json!({"count/pods": "2", "pods": "2", "requests.cpu": "700m"})
    );
    refused(
        &pod("c", cpu("1m")),
        "pods \"c\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
    );
    http.delete(&format!("{pods}/a?gracePeriodSeconds=0")).expect(200);
    eventually("the deleted pod's share", || {
        (used(&http, &namespace) == json!({"count/pods": "1", "pods": "1", "requests.cpu": "100m"}))
            .then_some(())
    });
    http.post(&pods, &pod("c", cpu("1m"))).expect(201);
}

/// O05: a pod that has finished uses nothing of `pods`, but takes space in the store, so `count/pods` still
/// has it.
#[test]
fn o05_count_quotas_count_finished_pods() {
    let server = shared();
    if !server.has_controllers() {
        return;
    }
    let namespace = server.namespace("quota-finished");
    let http = server.http();
    create_quota(&http, &namespace, json!({"hard": {"pods": "5", "count/pods": "2"}}));
    let pods = path(&namespace, "pods");
    eventually("the default service account", || {
        (http.get(&path(&namespace, "serviceaccounts/default")).code == 200).then_some(())
    });
    for name in ["a", "b"] {
        http.post(&pods, &pod(name, json!({}))).expect(201);
        let done = json!({"status": {"phase": "Succeeded"}});
        let status = format!("{pods}/{name}/status");
        http.patch(&status, "application/merge-patch+json", &done).expect(200);
    }
    eventually("finished pods use no pods", || {
        (used(&http, &namespace) == json!({"count/pods": "2", "pods": "0"})).then_some(())
    });
    let refused = http.post(&pods, &pod("c", json!({}))).expect(403);
    assert_eq!(
        refused["message"],
        "pods \"c\" is forbidden: exceeded quota: q, requested: count/pods=1, used: count/pods=2, limited: count/pods=2"
    );
}

#[test]
fn kubectl_shows_and_meets_a_quota() {
    let server = shared();
    if !server.has_controllers() {
        return;
    }
    let namespace = server.namespace("quota-kubectl");
    let kubectl = server.kubectl(Version::Current).in_namespace(&namespace);
    kubectl.ok("create quota q --hard=count/secrets=1,services.nodeports=2,services=5");
    eventually("the quota's status", || {
        let shown = kubectl.ok("get quota q -o jsonpath='{.status.used}'");
        shown.contains("count/secrets").then_some(())
    });
    kubectl.ok("create secret generic one");
    let refused = kubectl.fail("create secret generic two");
    assert!(
        refused.contains("exceeded quota: q, requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1"),
        "{refused}"
    );
    kubectl.ok("create service nodeport np --tcp=80,81");
    let refused = kubectl.fail("create service loadbalancer lb --tcp=80");
    assert!(
        refused.contains("requested: services.nodeports=1, used: services.nodeports=2"),
        "{refused}"
    );
    // An update to a type without node ports frees them, and back again needs them.
    let patch = r#"{"spec":{"type":"ClusterIP"}}"#;
    kubectl.ok(&format!("patch service np -p '{patch}'"));
    eventually("the node ports", || {
        let shown = kubectl.ok("get quota q -o jsonpath='{.status.used}'");
        shown.contains(r#""services.nodeports":"0""#).then_some(())
    });
    kubectl.ok("create service loadbalancer lb --tcp=80");
}

/// Two servers over one etcd accept exactly what the quota allows, together.
#[test]
fn a_race_over_two_servers_accepts_exactly_the_quota() {
    const HARD: usize = 50;
    let first = Server::on_own_etcd(Flavour::Etcd, 1);
    let namespace = first.namespace("quota-race");
    create_quota(
        &first.http(),
        &namespace,
        json!({"hard": {"count/configmaps": (HARD + 1).to_string()}}),
    );
    // kube-root-ca.crt counts as well.
    eventually("the published CA", || {
        (used(&first.http(), &namespace)["count/configmaps"] == "1").then_some(())
    });
    let second = first.beside(Flavour::Etcd);
    let namespace: Arc<str> = namespace.into();
    let clients = (0..8).map(|at| {
        let http = if at % 2 == 0 { first.http() } else { second.http() };
        let namespace = namespace.clone();
        thread::spawn(move || {
            let config_maps = path(&namespace, "configmaps");
            let name = |i| json!({"metadata": {"name": format!("c-{at}-{i}")}});
            (0..20).filter(|i| http.post(&config_maps, &name(*i)).code == 201).count()
        })
    });
    let clients: Vec<_> = clients.collect();
    let accepted: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert_eq!(accepted, HARD);
    let listed = first.http().get(&path(&namespace, "configmaps")).expect(200);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(HARD + 1));
}

/// How many objects of a quota clients have created, and how many there were at once.
struct Churn {
    created: usize,
    most: usize,
}

const CHURN_HARD: usize = 5;

/// Clients create and delete at once, in a namespace that may have few objects.
fn churn(servers: &[&Server], purpose: &str) -> Churn {
    const ROUNDS: usize = 60;
    let http = servers[0].http();
    let namespace = servers[0].namespace(purpose);
    create_quota(&http, &namespace, json!({"hard": {"count/secrets": CHURN_HARD.to_string()}}));
    let secrets = path(&namespace, "secrets");
    let mut watch = http.stream(&format!("{secrets}?watch=true&resourceVersion=0"));
    let clients = (0..8).map(|at| {
        let http = servers[at % servers.len()].http();
        let secrets = secrets.clone();
        thread::spawn(move || {
            let mut created = 0;
            for i in 0..ROUNDS {
                let name = format!("s-{at}-{i}");
                if http.post(&secrets, &json!({"metadata": {"name": name}})).code == 201 {
                    created += 1;
                    http.delete(&format!("{secrets}/{name}")).expect(200);
                }
            }
            created
        })
    });
    let clients: Vec<_> = clients.collect();
    let created: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    let (mut now, mut most, mut deleted) = (0_usize, 0, 0);
    while deleted < created {
        match watch.next_event().expect("the watch goes on")["type"].as_str() {
            Some("ADDED") => now += 1,
            Some("DELETED") => (now, deleted) = (now - 1, deleted + 1),
            other => panic!("{other:?}"),
        }
        most = most.max(now);
    }
    Churn { created, most }
}

/// What is deleted is free again, and what is on its way to the store is not: the controller counted without it
/// once, and the quota accepted one too many.
#[test]
fn creates_mixed_with_deletes_never_exceed_the_quota() {
    let server = shared();
    // Against kube-controller-manager this would fail.
    if server.flavour().is_peer() {
        return;
    }
    let churn = churn(&[&server], "quota-churn");
    assert!(churn.most <= CHURN_HARD, "{} at once", churn.most);
    // Much more than the quota, or nothing was raced.
    assert!(churn.created > 2 * CHURN_HARD, "{}", churn.created);
}

/// A controller does not know what another server has on its way to the store.
#[test]
fn creates_mixed_with_deletes_never_exceed_the_quota_over_two_servers() {
    let first = Server::on_own_etcd(Flavour::Etcd, 1);
    let second = first.beside(Flavour::Etcd);
    let churn = churn(&[&first, &second], "quota-churn-two");
    assert!(churn.most <= CHURN_HARD, "{} at once", churn.most);
    assert!(churn.created >= CHURN_HARD, "{}", churn.created);
}
