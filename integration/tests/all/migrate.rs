//! `pintle migrate`: from the embedded store into etcd and back, with the servers on either side.

use std::process::{Command, Output};

use integration::{Flavour, Http, Server, etcd_url, eventually, peer_program, pintle_program};
use serde_json::{Value, json};

fn migrate(args: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } = Command::new(pintle_program())
        .arg("migrate")
        .args(args)
        .output()
        .expect("the binary under test starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.success(), text(&stdout) + &text(&stderr))
}

const MADE: &[(&str, &str)] = &[
    ("/api/v1/namespaces/default/configmaps", r#"{"metadata": {"name": "m"}, "data": {"a": "b"}}"#),
    (
        "/api/v1/namespaces/default/secrets",
        r#"{"metadata": {"name": "m"}, "stringData": {"a": "b"}}"#,
    ),
    (
        "/api/v1/namespaces/default/events",
        r#"{"metadata": {"name": "m"}, "reason": "r", "type": "Normal",
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}}"#,
    ),
    (
        "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
        r#"{"metadata": {"name": "m"}, "spec": {"maxReplicas": 3,
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}"#,
    ),
    (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        r#"{"metadata": {"name": "movers.migrate.example.org"}, "spec": {"group": "migrate.example.org",
            "scope": "Cluster", "names": {"plural": "movers", "kind": "Mover"}, "versions": [{"name": "v1",
            "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "x-kubernetes-preserve-unknown-fields": true}}}]}}"#,
    ),
    (
        "/apis/migrate.example.org/v1/movers",
        r#"{"apiVersion": "migrate.example.org/v1", "kind": "Mover", "metadata": {"name": "m"}, "z": [1, {}]}"#,
    ),
];

/// Every object of the kinds above, and of some that the server makes itself.
fn shown(server: &Http) -> Vec<Value> {
    let own = ["/api/v1/namespaces", "/apis/rbac.authorization.k8s.io/v1/clusterroles"];
    let paths = MADE.iter().map(|(path, _)| *path).chain(own);
    let lists = paths.flat_map(|path| {
        eventually("it is served", || (server.get(path).code == 200).then_some(()));
        let list = server.get(path).expect(200);
        // Every server puts its own authority there.
        let own = |item: &Value| item["metadata"]["name"] == "kube-root-ca.crt";
        let items = list["items"].as_array().expect("a list").iter();
        items.filter(|item| !own(item)).cloned().collect::<Vec<_>>()
    });
    lists.collect()
}

fn without_versions(mut objects: Vec<Value>) -> Vec<Value> {
    for object in &mut objects {
        object["metadata"]["resourceVersion"] = Value::Null;
    }
    objects
}

#[test]
fn a_cluster_moves_into_etcd_and_back() {
    let mut embedded = Server::of(Flavour::Embedded);
    for (path, object) in MADE {
        let object = serde_json::from_str(object).expect("JSON");
        let http = embedded.http();
        eventually("it is served", || (http.get(path).code == 200).then_some(()));
        http.post(path, &object).expect(201);
    }
    // The last condition of the definition is on its way for a moment.
    eventually("the definition is settled", || {
        let path = format!("{}/movers.migrate.example.org", MADE[4].0);
        let conditions = embedded.http().get(&path).json()["status"]["conditions"].clone();
        let is = |kind| conditions.as_array()?.iter().find(|found| found["type"] == kind).cloned();
        (is("Established")?["status"] == "True").then_some(())
    });
    let before = shown(&embedded.http());
    let (data, etcd) = (embedded.data_directory(), etcd_url());
    let data = data.to_str().expect("a path of ours");

    let (ok, said) = migrate(&["--from", data, "--to", &etcd]);
    assert!(!ok && said.contains("in use by another server"), "{said}");
    assert!(embedded.stop().success());
    let (ok, said) = migrate(&["--from", data, "--to", &etcd]);
    assert!(ok && said.contains("keys compared and found the same"), "{said}");
    let (ok, said) = migrate(&["--from", data, "--to", &etcd]);
    assert!(!ok && said.contains("already: use another --etcd-prefix"), "{said}");
    let (ok, said) = migrate(&["--from", data, "--to", &etcd, "--resume"]);
    assert!(ok, "{said}");

    // etcd counts revisions its own way.
    let before = without_versions(before);
    if let Some(program) = peer_program() {
        let mut real = Server::on_plain_etcd(Flavour::Peer(program));
        assert_eq!(without_versions(shown(&real.http())), before);
        let new = json!({"metadata": {"name": "by-the-real-one"}});
        real.http().post(MADE[0].0, &new).expect(201);
        assert!(real.stop().success());
    }
    let mut on_etcd = Server::on_plain_etcd(Flavour::Etcd);
    let new = json!({"metadata": {"name": "by-pintle"}});
    on_etcd.http().post(MADE[0].0, &new).expect(201);
    let after = shown(&on_etcd.http());
    assert!(on_etcd.stop().success());

    let (ok, said) = migrate(&["--from", &etcd, "--to", data]);
    assert!(!ok && said.contains("already"), "{said}");
    std::fs::remove_dir_all(embedded.data_directory().join("store")).expect("it can be removed");
    let (ok, said) = migrate(&["--from", &etcd, "--to", data]);
    assert!(ok && said.contains("keys compared and found the same"), "{said}");
    embedded.start_again();
    // Back here everything has the version that it had in etcd, and the counter goes on behind it.
    assert_eq!(shown(&embedded.http()), after);
    let newest = after
        .iter()
        .filter_map(|object| object["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok());
    let new = json!({"metadata": {"name": "later"}});
    let later = embedded.http().post(MADE[0].0, &new).expect(201);
    let later = later["metadata"]["resourceVersion"].as_str().map(str::parse::<u64>);
    assert!(later.expect("a version").expect("a number") > newest.max().expect("some"));
}
