//! helm 3 and 4: a chart with a definition, its object, a Deployment and hooks, from install to uninstall.

use std::path::Path;
use std::process::Command;

use integration::{Shared, helm, shared};
use serde_json::{Value, json};

struct Helm<'a> {
    server: &'a Shared,
    namespace: String,
    program: std::path::PathBuf,
    home: tempfile::TempDir,
}

impl Helm<'_> {
    fn run(&self, args: &[&str]) -> String {
        let output = Command::new(&self.program)
            .args(args)
            .arg(format!("--kubeconfig={}", self.server.kubeconfig().display()))
            .arg(format!("--namespace={}", self.namespace))
            .env("HOME", self.home.path())
            .env("HELM_CACHE_HOME", self.home.path())
            .env("HELM_CONFIG_HOME", self.home.path())
            .env("HELM_DATA_HOME", self.home.path())
            .output()
            .expect("helm can be started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "helm {args:?}: {error}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn get(&self, path: &str) -> Value {
        let server = self.server.http();
        let path = path.replacen("NS", &format!("namespaces/{}", self.namespace), 1);
        server.get(&path).expect(200)
    }

    /// The colour of the chart's objects, in all of them.
    fn color(&self) -> Value {
        let map = self.get("/api/v1/NS/configmaps/demo-colors")["data"]["color"].clone();
        let lamp = self.get("/apis/helm.example.com/v1/NS/lamps/demo")["spec"]["color"].clone();
        let deployment = self.get("/apis/apps/v1/NS/deployments/demo");
        let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"];
        assert_eq!((&map, env), (&lamp, &lamp));
        lamp
    }
}

#[track_caller]
fn a_release_lives_its_life(version: u32) {
    let server = shared();
    let namespace = server.namespace("helm");
    let home = tempfile::tempdir().expect("a directory");
    let helm = Helm { server: &server, namespace, program: helm(version), home };
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/helm-chart");
    let chart = chart.to_str().expect("a path is text");

    helm.run(&["install", "demo", chart]);
    assert_eq!(helm.color(), "red");
    let map = helm.get("/api/v1/NS/configmaps/demo-colors");
    assert_eq!(map["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm");
    assert!(map["data"]["kubernetes"].as_str().is_some_and(|found| found.starts_with("v1.36")));
    let before = |revision: &str| {
        let hook = helm.get("/api/v1/NS/configmaps/demo-before");
        assert_eq!(hook["data"]["revision"], revision);
    };
    before("1");
    let once = format!("/api/v1/namespaces/{}/configmaps/demo-once", helm.namespace);
    assert_eq!(server.http().get(&once).code, 404, "the hook is deleted when it has succeeded");

    helm.run(&["upgrade", "demo", chart, "--set", "color=blue"]);
    assert_eq!(helm.color(), "blue");
    before("2");
    helm.run(&["rollback", "demo", "1"]);
    assert_eq!(helm.color(), "red");
    let history: Value = serde_json::from_str(&helm.run(&["history", "demo", "-o", "json"]))
        .expect("a list of revisions");
    let states: Vec<_> =
        history.as_array().expect("a list").iter().map(|row| &row["status"]).collect();
    assert_eq!(states, [&json!("superseded"), &json!("superseded"), &json!("deployed")]);
    let list: Value = serde_json::from_str(&helm.run(&["list", "-o", "json"])).expect("a list");
    assert_eq!((&list[0]["name"], &list[0]["revision"]), (&json!("demo"), &json!("3")));
    assert_eq!(helm.run(&["get", "values", "demo", "-o", "json"]).trim(), "null");

    helm.run(&["uninstall", "demo"]);
    for path in [
        "/api/v1/NS/configmaps/demo-colors",
        "/apis/helm.example.com/v1/NS/lamps/demo",
        "/apis/apps/v1/NS/deployments/demo",
    ] {
        let path = path.replacen("NS", &format!("namespaces/{}", helm.namespace), 1);
        assert_eq!(server.http().get(&path).code, 404, "{path}");
    }
    // Definitions stay, as helm documents it.
    helm.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/lamps.helm.example.com");
}

#[test]
fn a_release_of_helm_4_lives_its_life() {
    a_release_lives_its_life(4);
}

#[test]
fn a_release_of_helm_3_lives_its_life() {
    a_release_lives_its_life(3);
}
