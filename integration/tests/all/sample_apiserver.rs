//! The published sample-apiserver behind the server, used by kubectl as any other API.

use integration::{Flavour, SampleApiServer, Server, Version, eventually};
use serde_json::json;

use crate::{aggregation::API_SERVICES, assert_contains};

const GROUP: &str = "wardle.example.com";

fn register(server: &Server, sample: &SampleApiServer, version: &str) {
    let object = json!({
        "metadata": {"name": format!("{version}.{GROUP}")},
        "spec": {
            "group": GROUP, "version": version,
            "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": "wardle", "name": "api", "port": sample.port()},
            "caBundle": sample.ca_bundle,
        },
    });
    server.http().post(API_SERVICES, &object).expect(201);
}

fn wait_for(server: &Server, version: &str, status: &str) {
    let path = format!("{API_SERVICES}/{version}.{GROUP}");
    eventually(&format!("{version}.{GROUP} is {status}"), || {
        let object = server.http().get(&path).expect(200);
        (object["status"]["conditions"][0]["status"] == status).then_some(())
    });
}

#[test]
fn the_sample_apiserver_works_behind_the_server() {
    let server = Server::of(Flavour::Embedded);
    let http = server.http();
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "wardle"}})).expect(201);
    let service = json!({
        "metadata": {"name": "api"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    http.post("/api/v1/namespaces/wardle/services", &service).expect(201);
    let mut sample = SampleApiServer::start(&server, "api.wardle.svc");
    for version in ["v1alpha1", "v1beta1"] {
        register(&server, &sample, version);
        wait_for(&server, version, "True");
    }

    let kubectl = server.kubectl(Version::Current);
    let resources = eventually("discovery has its resources", || {
        let found = kubectl.ok("api-resources --api-group=wardle.example.com");
        found.contains("flunders").then_some(found)
    });
    assert_contains(&resources, &["fischers", "wardle.example.com/v1alpha1", "flunders"]);
    let flunder = "
apiVersion: wardle.example.com/v1beta1
kind: Flunder
metadata: {name: one, namespace: wardle, labels: {a: b}}
spec: {referenceType: Flunder, flunderReference: fl}
";
    kubectl.ok_with_yaml("apply -f -", flunder);
    kubectl.ok_with_yaml("apply -f -", flunder);
    assert_contains(
        &kubectl.ok("get flunders -n wardle -o name"),
        &["flunder.wardle.example.com/one"],
    );
    kubectl.ok("label flunder one -n wardle c=d");
    assert_contains(&kubectl.ok("get flunder one -n wardle -o yaml"), &["c: d"]);
    let explained = eventually("OpenAPI has its kinds", || {
        let output = kubectl.run("explain flunder.spec", "");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    assert_contains(&explained, &["GROUP:", "wardle.example.com", "FIELDS:"]);

    let list = http.get(&format!("/apis/{GROUP}/v1alpha1/namespaces/wardle/flunders")).expect(200);
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let path = format!("/apis/{GROUP}/v1alpha1/namespaces/wardle/flunders");
    let mut watch = http.stream(&format!("{path}?watch=1&resourceVersion={version}"));
    kubectl.ok("delete flunder one -n wardle");
    assert_eq!(watch.expect("DELETED")["metadata"]["name"], "one");

    // Permissions are the API server's, asked for by SubjectAccessReview.
    let refused = kubectl.fail("get flunders -n wardle --as jane");
    assert_contains(&refused, &["Forbidden", "jane"]);

    sample.kill();
    for version in ["v1alpha1", "v1beta1"] {
        let touch = json!({"metadata": {"labels": {"touched": "1"}}});
        let path = format!("{API_SERVICES}/{version}.{GROUP}");
        http.patch(&path, "application/merge-patch+json", &touch).expect(200);
        wait_for(&server, version, "False");
    }
    assert_eq!(http.get(&path).text(), "service unavailable\n");
    assert_contains(
        &kubectl.ok("get apiservices v1alpha1.wardle.example.com"),
        &["False (FailedDiscoveryCheck)"],
    );
    kubectl.ok("get namespaces");
    sample.start_again();
    for version in ["v1alpha1", "v1beta1"] {
        wait_for(&server, version, "True");
    }
    eventually("it answers again", || (http.get(&path).code == 200).then_some(()));
}
