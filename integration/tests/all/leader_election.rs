//! Coordinated leader election: candidates are asked whether they are there, and one of them gets the lease.

use std::time::Duration;

use integration::{Flavour, Http, Server, eventually};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

const GATE: &str = "--feature-gates=CoordinatedLeaderElection=true";
const API: &str = "--runtime-config=coordination.k8s.io/v1beta1=true";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const CANDIDATES: &str = "/apis/coordination.k8s.io/v1beta1/namespaces/default/leasecandidates";
const OWN: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/leader-election-controller";

fn start() -> Server {
    Server::with(Flavour::from_env(), &[GATE, API])
}

fn before(time: Duration) -> String {
    (Timestamp::now() - time).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

fn now() -> String {
    before(Duration::ZERO)
}

fn candidate(name: &str, lease: &str, emulation: &str, renewed: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "leaseName": lease, "strategy": "OldestEmulationVersion", "renewTime": renewed,
            "binaryVersion": "1.36.0", "emulationVersion": emulation,
        },
    })
}

/// What a component does when it sees its candidate: it answers pings.
fn acknowledge(http: &Http, name: &str) {
    let path = format!("{CANDIDATES}/{name}");
    let mut candidate = http.get(&path).expect(200);
    let text = |field: &str| candidate["spec"][field].as_str().unwrap_or_default().to_owned();
    if text("pingTime") > text("renewTime") {
        candidate["spec"]["renewTime"] = json!(now());
        // A conflict is as good: the next look sees the newer object.
        let code = http.put(&path, &candidate).code;
        assert!(matches!(code, 200 | 409), "{code}");
    }
}

fn lease(http: &Http, name: &str) -> Option<Value> {
    let answer = http.get(&format!("{LEASES}/{name}"));
    (answer.code == 200).then(|| answer.json())
}

/// The holder of a lease renews it.
fn renew(http: &Http, name: &str) {
    if let Some(mut lease) = lease(http, name) {
        lease["spec"]["renewTime"] = json!(now());
        lease["spec"]["leaseDurationSeconds"] = json!(3600);
        let code = http.put(&format!("{LEASES}/{name}"), &lease).code;
        assert!(matches!(code, 200 | 409), "{code}");
    }
}

#[test]
fn the_candidate_with_the_oldest_emulation_version_gets_the_lease() {
    let server = start();
    let http = server.http();
    let own = eventually("the server leads the controller", || {
        let answer = http.get(OWN);
        (answer.code == 200).then(|| answer.json())
    });
    assert_eq!(own["spec"]["leaseDurationSeconds"], 15);
    assert_eq!(own["spec"]["leaseTransitions"], 0);
    assert!(own["spec"]["holderIdentity"].as_str().expect("a holder").contains('_'));
    assert_eq!(own["spec"].get("strategy"), None);
    let checks = http.get("/readyz?verbose").text();
    let hook = "poststarthook/start-kube-apiserver-coordinated-leader-election-controller";
    assert!(checks.contains(&format!("[+]{hook} ok\n")), "{checks}");

    // The first one gets it: it has just been there.
    http.post(CANDIDATES, &candidate("new", "work", "1.36.0", &now())).expect(201);
    let first = eventually("a leader is elected", || lease(&http, "work"));
    assert_eq!(first["spec"]["holderIdentity"], "new");
    assert_eq!(first["spec"]["strategy"], "OldestEmulationVersion");
    assert_eq!(first["spec"]["leaseDurationSeconds"], 5);
    assert!(first["spec"]["renewTime"].is_string(), "{first}");
    assert_eq!(first["spec"].get("acquireTime"), None);
    renew(&http, "work");

    // A better one: everybody is asked, and the holder is told who is to take over.
    http.post(CANDIDATES, &candidate("old", "work", "1.35.0", &now())).expect(201);
    let told = eventually("the holder is told", || {
        acknowledge(&http, "new");
        acknowledge(&http, "old");
        lease(&http, "work").filter(|lease| lease["spec"]["preferredHolder"] == "old")
    });
    assert_eq!(told["spec"]["holderIdentity"], "new");

    // It steps down, as client-go does.
    eventually("the holder steps down", || {
        let mut lease = lease(&http, "work")?;
        lease["spec"]["holderIdentity"] = json!("");
        lease["spec"]["renewTime"] = json!(now());
        (http.put(&format!("{LEASES}/work"), &lease).code == 200).then_some(())
    });
    let taken = eventually("the other one takes over", || {
        acknowledge(&http, "new");
        acknowledge(&http, "old");
        lease(&http, "work").filter(|lease| lease["spec"]["holderIdentity"] == "old")
    });
    assert_eq!(taken["spec"].get("preferredHolder"), None, "{taken}");
}

#[test]
fn a_candidate_that_does_not_answer_is_not_elected() {
    let server = start();
    let http = server.http();
    let old = before(Duration::from_mins(1));
    http.post(CANDIDATES, &candidate("silent", "work", "1.34.0", &old)).expect(201);
    eventually("it is asked", || {
        let candidate = http.get(&format!("{CANDIDATES}/silent")).expect(200);
        candidate["spec"]["pingTime"].is_string().then_some(())
    });
    assert_eq!(lease(&http, "work"), None);
    http.post(CANDIDATES, &candidate("there", "work", "1.36.0", &now())).expect(201);
    let elected = eventually("the other one is elected", || {
        acknowledge(&http, "there");
        // It has to have been there in the last seconds when the time of the silent one is over.
        let path = format!("{CANDIDATES}/there");
        let mut candidate = http.get(&path).expect(200);
        candidate["spec"]["renewTime"] = json!(now());
        http.put(&path, &candidate);
        lease(&http, "work")
    });
    assert_eq!(elected["spec"]["holderIdentity"], "there");
}

#[test]
fn expired_candidates_are_deleted_and_not_elected() {
    let mut server = start();
    let long_ago = "2020-01-01T00:00:00.000000Z";
    server.http().post(CANDIDATES, &candidate("dead", "work", "1.34.0", long_ago)).expect(201);
    // The controller looks for them when it begins to lead, and every half hour.
    assert!(server.stop().success());
    server.start_again();
    let http = server.http();
    eventually("it is deleted", || {
        (http.get(&format!("{CANDIDATES}/dead")).code == 404).then_some(())
    });
    assert_eq!(lease(&http, "work"), None);
}

#[test]
fn one_of_two_servers_elects_and_the_other_takes_over() {
    let mut first = Server::with(Flavour::Etcd, &[GATE, API]);
    let http = first.http();
    let holder = |http: &Http| {
        let answer = http.get(OWN);
        let held = answer.code == 200;
        held.then(|| {
            answer.json()["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
        })
    };
    let leader = eventually("the first server leads", || holder(&http));
    let second = first.beside_with(Flavour::Etcd, &[GATE, API]);
    assert_eq!(holder(&second.http()), Some(leader.clone()));
    // It gives the lease up when it stops, so that nobody waits until it has expired.
    assert!(first.stop().success());
    let http = second.http();
    eventually("the second server leads", || {
        holder(&http).filter(|holder| !holder.is_empty() && *holder != leader)
    });
    http.post(CANDIDATES, &candidate("a", "work", "1.36.0", &now())).expect(201);
    eventually("it elects", || lease(&http, "work"));
}

#[test]
fn kube_controller_manager_is_elected() {
    let mut server = start();
    if server.flavour().is_peer() {
        return;
    }
    let flags = [
        format!("--kubeconfig={}", server.kubeconfig().display()),
        GATE.to_owned(),
        "--leader-elect=true".to_owned(),
        "--secure-port=0".to_owned(),
        "--controllers=ttl".to_owned(),
    ];
    // `tools/build` may not have built it.
    let Some(()) = server.run_component("kube-controller-manager", &flags) else { return };
    let http = server.http();
    let own = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
    let lease = eventually("it has the lease and renews it", || {
        let answer = http.get(own);
        let lease = (answer.code == 200).then(|| answer.json())?;
        // The server gives it five seconds, the holder itself fifteen.
        (lease["spec"]["leaseDurationSeconds"] == 15).then_some(lease)
    });
    assert_eq!(lease["spec"]["strategy"], "OldestEmulationVersion", "{lease}");
    let candidates = CANDIDATES.replace("/default/", "/kube-system/");
    let candidates = http.get(&candidates).expect(200);
    let candidate = &candidates["items"][0];
    assert_eq!(candidate["spec"]["leaseName"], "kube-controller-manager");
    assert_eq!(lease["spec"]["holderIdentity"], candidate["metadata"]["name"]);
    server.component_log("kube-controller-manager");
}
