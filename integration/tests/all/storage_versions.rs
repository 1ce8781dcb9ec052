//! Gate `StorageVersionAPI`: StorageVersion objects say in which version each server stores a resource, and nothing is
//! written before they do.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};

use bytes::Bytes;
use http::Request;
use integration::{Flavour, Server, eventually};
use serde_json::{Value, json};

const GATE: &str = "--feature-gates=StorageVersionAPI=true";
const API: &str = "--runtime-config=internal.apiserver.k8s.io/v1alpha1=true";
const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
/// Name, encodingVersion, decodableVersions, servedVersions, as kube-apiserver v1.36 writes them with these flags.
const EXPECTED: &str = include_str!("storage-versions.tsv");

fn texts(list: &Value) -> BTreeSet<String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn columns(row: &str) -> [&str; 4] {
    let columns: Vec<&str> = row.split('\t').collect();
    columns.try_into().expect("four columns")
}

#[test]
fn every_stored_resource_has_the_storage_version_of_kube_apiserver() {
    let server = Server::with(Flavour::from_env(), &[GATE, API]);
    let http = server.http();
    let list = http.get(VERSIONS).expect(200);
    let items = list["items"].as_array().expect("a list");
    let own = |item: &Value| item["status"]["storageVersions"][0].clone();
    let found: Vec<String> = items
        .iter()
        .map(|item| {
            let name = item["metadata"]["name"].as_str().expect("a name");
            let own = own(item);
            let encoding = own["encodingVersion"].as_str().expect("a version");
            let served: Vec<String> = texts(&own["servedVersions"]).into_iter().collect();
            format!("{name} {encoding} {}", served.join(","))
        })
        .collect();
    let expected: Vec<String> = EXPECTED
        .lines()
        .map(columns)
        .map(|[name, encoding, _, served]| format!("{name} {encoding} {served}"))
        .collect();
    assert_eq!(found, expected);

    let lease = "apiserver.kubernetes.io/identity=kube-apiserver";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let leases = http.get(&format!("{leases}?labelSelector={lease}")).expect(200);
    let id = &leases["items"][0]["metadata"]["name"];
    for (item, row) in items.iter().zip(EXPECTED.lines()) {
        let [name, encoding, decodable, _] = columns(row);
        let status = &item["status"];
        assert_eq!(status["commonEncodingVersion"], encoding, "{name}");
        let servers = status["storageVersions"].as_array().expect("a list");
        assert_eq!((servers.len(), &servers[0]["apiServerID"]), (1, id), "{name}");
        // Versions that have not been served for years are not read by Pintle.
        let known: BTreeSet<String> = decodable.split(',').map(str::to_owned).collect();
        let own = texts(&servers[0]["decodableVersions"]);
        assert!(own.contains(encoding) && own.is_subset(&known), "{name}: {own:?}");
        let conditions = status["conditions"].as_array().expect("a list");
        let [condition] = &conditions[..] else { panic!("{name}: {conditions:?}") };
        assert_eq!(condition["type"], "AllEncodingVersionsEqual");
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["reason"], "CommonEncodingVersionSet");
        assert_eq!(condition["message"], "Common encoding version set");
        assert!(condition["lastTransitionTime"].is_string(), "{name}");
        // Compat: an update of the status keeps the metadata as they were, and this object has none before it.
        assert_eq!(item["metadata"].get("managedFields"), None, "{name}");
    }
    let checks = http.get("/readyz?verbose").text();
    let names: Vec<&str> = checks.lines().collect();
    let at = |name: &str| names.iter().position(|line| line.contains(name)).expect("a check");
    let hook = at("[+]poststarthook/built-in-resources-storage-version-updater ok");
    assert_eq!(hook, at("poststarthook/apiservice-discovery-controller") + 1, "{checks}");
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:storage-version-garbage-collector";
    http.get(role).expect(200);
    http.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "a"}}))
        .expect(201);
}

/// What a server that is gone has said stays until kube-controller-manager removes it.
#[test]
fn servers_of_one_cluster_have_an_entry_each() {
    let server = Server::with(Flavour::from_env(), &[GATE, API]);
    let http = server.http();
    let path = format!("{VERSIONS}/apps.deployments/status");
    let mut version = http.get(&format!("{VERSIONS}/apps.deployments")).expect(200);
    let other = json!({
        "apiServerID": "apiserver-other", "encodingVersion": "apps/v0",
        "decodableVersions": ["apps/v0", "apps/v1"], "servedVersions": ["apps/v0"],
    });
    let servers = version["status"]["storageVersions"].as_array_mut().expect("a list");
    servers.push(other);
    version["status"]["commonEncodingVersion"] = Value::Null;
    http.put(&path, &version).expect(200);
    let mut server = server;
    assert!(server.stop().success());
    server.start_again();
    let version = server.http().get(&format!("{VERSIONS}/apps.deployments")).expect(200);
    let status = &version["status"];
    assert_eq!(status["storageVersions"].as_array().map(Vec::len), Some(2), "{status}");
    assert_eq!(status.get("commonEncodingVersion"), None, "{status}");
    assert_eq!(status["conditions"][0]["status"], "False");
    assert_eq!(status["conditions"][0]["reason"], "CommonEncodingVersionUnset");
}

struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The API of StorageVersions is off, so that they cannot be written.
#[test]
fn writes_wait_for_the_storage_versions() {
    let mut server = Server::with(Flavour::from_env(), &[]);
    // Only Pintle on its own store is started anew here; kube-apiserver was seen to do the same.
    let Some(mut command) = server.same_again() else { return };
    let http = server.http();
    let port = http.host().rsplit(':').next().expect("a port").to_owned();
    assert!(server.stop().success());
    let _process = Stopped(
        command
            .arg(GATE)
            .arg(format!("--secure-port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts"),
    );
    let configmaps = "/api/v1/namespaces/default/configmaps";
    let post = || {
        let object = json!({"metadata": {"name": "a"}}).to_string();
        let request = Request::post(configmaps).header("content-type", "application/json");
        http.try_request(request.body(Bytes::from(object)).expect("a request")).ok()
    };
    let head = "wait for storage version registration to complete for resource: configmaps, last seen error: ";
    eventually("the error is told", || {
        let refused = post()?;
        let status = refused.expect(503);
        assert_eq!(status["reason"], "ServiceUnavailable");
        let message = status["message"].as_str().expect("a message");
        let error = message.strip_prefix(head).unwrap_or_else(|| panic!("{message}"));
        let expected = "the server could not find the requested resource (post storageversions.internal.apiserver.k8s.io)";
        (error == expected).then_some(())
    });
    // Reads, what is not stored, and what StorageVersions depend on.
    http.get(configmaps).expect(200);
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    http.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).expect(201);
    let lease = json!({"metadata": {"name": "a"}});
    let leases = |namespace| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    http.post(&leases("kube-system"), &lease).expect(201);
    http.post(&leases("default"), &lease).expect(503);
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "b"}})).expect(503);
    let checks = http.get("/readyz?verbose");
    assert_eq!(checks.code, 500);
    let hook = "[-]poststarthook/built-in-resources-storage-version-updater failed";
    assert!(checks.text().contains(hook), "{}", checks.text());
}
