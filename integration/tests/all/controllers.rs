//! The controllers: namespace deletion, garbage collection, default objects of namespaces, aggregated
//! roles, protection of volumes.

use integration::{Http, Server, Version, eventually, shared};
use serde_json::{Value, json};

use crate::{assert_contains, with_each_kubectl};

const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: nginx}]}
";

fn uid(http: &Http, path: &str) -> String {
    http.get(path).expect(200)["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

fn is_gone(http: &Http, path: &str) -> Option<()> {
    (http.get(path).code == 404).then_some(())
}

fn owned_by(kind: &str, name: &str, uid: &str) -> Value {
    let version = if kind == "Deployment" || kind == "ReplicaSet" { "apps/v1" } else { "v1" };
    json!([{
        "apiVersion": version, "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A deployment with a replica set and a pod, as the controllers of a cluster would have made them.
fn deploy(http: &Http, namespace: &str) {
    let sets = format!("/apis/apps/v1/namespaces/{namespace}/replicasets");
    let deployment = uid(http, &format!("/apis/apps/v1/namespaces/{namespace}/deployments/web"));
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]},
    });
    let set = json!({
        "metadata": {
            "name": "web-1",
            "labels": {"app": "web"},
            "ownerReferences": owned_by("Deployment", "web", &deployment),
        },
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    http.post(&sets, &set).expect(201);
    let set = uid(http, &format!("{sets}/web-1"));
    let mut pod = template;
    pod["metadata"]["name"] = json!("web-1-x");
    pod["metadata"]["ownerReferences"] = owned_by("ReplicaSet", "web-1", &set);
    // Otherwise it could not be created before its namespace has an account.
    pod["spec"]["automountServiceAccountToken"] = json!(false);
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    eventually("a pod can be made", || (http.post(&pods, &pod).code == 201).then_some(()));
}

#[test]
fn a_deleted_deployment_takes_what_it_owns_along_or_leaves_it_behind() {
    if !shared().has_controllers() {
        return;
    }
    for cascade in ["background", "foreground", "orphan"] {
        with_each_kubectl("cascade", |kubectl| {
            let server = shared();
            let http = server.http();
            kubectl.ok_with_yaml("apply -f -", DEPLOYMENT);
            let name = kubectl.ok("get deploy web -o jsonpath={.metadata.namespace}");
            deploy(&http, &name);
            let set = format!("/apis/apps/v1/namespaces/{name}/replicasets/web-1");
            let pod = format!("/api/v1/namespaces/{name}/pods/web-1-x");
            // kubectl waits until the deployment itself is gone.
            kubectl.ok(&format!("delete deploy web --cascade={cascade} --timeout=60s"));
            if cascade == "orphan" {
                let set = http.get(&set).expect(200);
                assert_eq!(set["metadata"].get("ownerReferences"), None, "{set}");
                let pod = http.get(&pod).expect(200);
                assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], "web-1");
                return;
            }
            if cascade == "foreground" {
                assert_eq!(http.get(&set).code, 404, "the dependents go first");
                assert_eq!(http.get(&pod).code, 404, "and theirs before them");
            }
            eventually("the replica set is gone", || is_gone(&http, &set));
            eventually("the pod is gone", || is_gone(&http, &pod));
        });
    }
}

#[test]
fn a_pod_can_be_run_in_a_new_namespace() {
    if !shared().has_controllers() {
        return;
    }
    with_each_kubectl("run", |kubectl| {
        eventually("the namespace has its account", || {
            kubectl.run("get sa default", "").status.success().then_some(())
        });
        kubectl.ok("run web --image=nginx");
        let certificate = kubectl.ok("get cm kube-root-ca.crt -o jsonpath={.data.ca\\.crt}");
        assert_contains(&certificate, &["BEGIN CERTIFICATE"]);
        kubectl.ok("delete pod web --timeout=60s");
        // Deleted ones are recreated.
        for object in ["sa default", "cm kube-root-ca.crt"] {
            let before = kubectl.ok(&format!("get {object} -o jsonpath={{.metadata.uid}}"));
            kubectl.ok(&format!("delete {object} --wait=false"));
            eventually("it is back", || {
                let output =
                    kubectl.run(&format!("get {object} -o jsonpath={{.metadata.uid}}"), "");
                let after = String::from_utf8_lossy(&output.stdout).into_owned();
                (output.status.success() && after != before).then_some(())
            });
        }
    });
}

const WIDGETS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.emptied.example.com}
spec:
  group: emptied.example.com
  names: {plural: widgets, singular: widget, kind: Widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
";

fn condition(namespace: &Value, name: &str) -> String {
    let conditions = namespace["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == name);
    let text =
        |field: &str| found.and_then(|found| found[field].as_str()).unwrap_or_default().to_owned();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
}

#[test]
fn a_terminating_namespace_reports_its_remaining_content() {
    let server = shared();
    if !server.has_controllers() {
        return;
    }
    let (http, kubectl) = (server.http(), server.kubectl(Version::Current));
    let name = server.namespace("emptied");
    let kubectl = kubectl.in_namespace(&name);
    kubectl.ok_with_yaml("apply -f -", WIDGETS);
    kubectl.established("crd/widgets.emptied.example.com");
    let widget = "apiVersion: emptied.example.com/v1\nkind: Widget\nmetadata: {name: w, \
                  finalizers: [example.com/wait]}";
    eventually("custom objects can be made", || {
        kubectl.run("create -f -", widget).status.success().then_some(())
    });
    kubectl.ok("create configmap a");
    kubectl.ok("create configmap b");
    kubectl.ok("annotate configmap b x=y");
    kubectl.ok(
        r#"patch configmap b --type=merge -p '{"metadata":{"finalizers":["example.com/wait"]}}'"#,
    );

    kubectl.ok(&format!("delete ns {name} --wait=false"));
    let path = format!("/api/v1/namespaces/{name}");
    let namespace = eventually("the namespace tells what is left", || {
        let namespace = http.get(&path).expect(200);
        let remains = condition(&namespace, "NamespaceContentRemaining").contains("widgets");
        remains.then_some(namespace)
    });
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let cases = [
        (
            "NamespaceDeletionDiscoveryFailure",
            "False ResourcesDiscovered: All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False ParsedGroupVersions: All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "False ContentDeleted: All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            "True SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource \
             instances, widgets.emptied.example.com has 1 resource instances",
        ),
        (
            "NamespaceFinalizersRemaining",
            "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: \
             example.com/wait in 2 resource instances",
        ),
    ];
    for (name, expected) in cases {
        assert_eq!(condition(&namespace, name), expected);
    }
    // Nothing new comes into it.
    let refused = http.post(&format!("{path}/configmaps"), &json!({"metadata": {"name": "late"}}));
    assert_contains(
        refused.expect(403)["message"].as_str().unwrap_or_default(),
        &["because it is being terminated"],
    );
    kubectl.ok(r#"patch configmap b --type=merge -p '{"metadata":{"finalizers":null}}'"#);
    kubectl.ok(r#"patch widget w --type=merge -p '{"metadata":{"finalizers":null}}'"#);
    eventually("the namespace is gone", || is_gone(&http, &path));
    kubectl.ok("delete crd widgets.emptied.example.com --timeout=60s");
}

/// O06 (CVE-2024-7598): as long as a pod of the namespace may run, what protects it stays.
#[test]
fn o06_network_policies_outlive_the_pods_of_their_namespace() {
    let server = shared();
    if !server.has_controllers() {
        return;
    }
    let http = server.http();
    let name = server.namespace("protected");
    let path = format!("/api/v1/namespaces/{name}");
    let policies = format!("/apis/networking.k8s.io/v1/namespaces/{name}/networkpolicies");
    let policy = json!({"metadata": {"name": "deny"}, "spec": {"podSelector": {}}});
    http.post(&policies, &policy).expect(201);
    http.post(&format!("{path}/secrets"), &json!({"metadata": {"name": "s"}})).expect(201);
    let pod = json!({
        "metadata": {"name": "p", "finalizers": ["example.com/runs"]},
        "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false},
    });
    eventually("pods can be made", || {
        (http.post(&format!("{path}/pods"), &pod).code == 201).then_some(())
    });
    http.delete(&path).expect(200);
    eventually("the controller waits for the pod", || {
        let namespace = http.get(&path).expect(200);
        let remaining = condition(&namespace, "NamespaceFinalizersRemaining");
        remaining.contains("example.com/runs in 1 resource instances").then_some(())
    });
    for object in [format!("{policies}/deny"), format!("{path}/secrets/s")] {
        let object = http.get(&object).expect(200);
        assert_eq!(object["metadata"]["deletionTimestamp"], Value::Null, "{object}");
    }
    let free = json!({"metadata": {"finalizers": null}});
    http.patch(&format!("{path}/pods/p"), "application/merge-patch+json", &free).expect(200);
    eventually("the namespace is gone", || is_gone(&http, &path));
    assert_eq!(http.get(&format!("{policies}/deny")).code, 404);
}

#[test]
fn a_foreign_finalizer_keeps_an_empty_namespace() {
    let server = shared();
    if !server.has_controllers() {
        return;
    }
    let http = server.http();
    let name = server.namespace("finalized");
    let path = format!("/api/v1/namespaces/{name}");
    let mut namespace = http.get(&path).expect(200);
    namespace["spec"]["finalizers"] = json!(["kubernetes", "example.com/mine"]);
    http.put(&format!("{path}/finalize"), &namespace).expect(200);
    http.delete(&path).expect(200);
    let mut namespace = eventually("it is empty", || {
        let namespace = http.get(&path).expect(200);
        (namespace["spec"]["finalizers"] == json!(["example.com/mine"])).then_some(namespace)
    });
    assert_eq!(namespace["status"]["phase"], "Terminating");
    namespace["spec"]["finalizers"] = json!([]);
    http.put(&format!("{path}/finalize"), &namespace).expect(200);
    eventually("the namespace is gone", || is_gone(&http, &path));
}

#[test]
fn owners_are_looked_up_in_the_dependents_namespace() {
    let server = shared();
    if !server.has_controllers() {
        return;
    }
    let http = server.http();
    let (here, there) = (server.namespace("owner"), server.namespace("owner"));
    let maps = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
    let make = |namespace: &str, name: &str, owners: Value| {
        let object = json!({"metadata": {"name": name, "ownerReferences": owners}});
        http.post(&maps(namespace), &object).expect(201);
    };
    make(&here, "owner", json!([]));
    let owner = uid(&http, &format!("{}/owner", maps(&here)));
    let account = http.get(&format!("/api/v1/namespaces/{here}")).expect(200);
    let namespace_uid = account["metadata"]["uid"].as_str().expect("a uid");
    make(&here, "owned", owned_by("ConfigMap", "owner", &owner));
    // An owner in another namespace is no owner.
    make(&there, "astray", owned_by("ConfigMap", "owner", &owner));
    // One without a namespace is.
    make(&there, "of-namespace", owned_by("Namespace", &here, namespace_uid));
    // Nor is one that has the name but is another.
    make(&here, "mistaken", owned_by("ConfigMap", "owner", "00000000-0000-0000-0000-000000000000"));
    // An owner of an unknown kind keeps the object.
    let unknown =
        json!([{"apiVersion": "nobody.example.com/v1", "kind": "X", "name": "x", "uid": "x"}]);
    make(&here, "unknown", unknown);
    for (namespace, name) in [(&there, "astray"), (&here, "mistaken")] {
        let path = format!("{}/{name}", maps(namespace));
        eventually(name, || is_gone(&http, &path));
    }
    for (namespace, name) in [(&here, "owned"), (&there, "of-namespace"), (&here, "unknown")] {
        http.get(&format!("{}/{name}", maps(namespace))).expect(200);
    }
    http.delete(&format!("{}/owner", maps(&here))).expect(200);
    let owned = format!("{}/owned", maps(&here));
    eventually("it goes with its owner", || is_gone(&http, &owned));
    http.delete(&format!("/api/v1/namespaces/{here}")).expect(200);
    let of_namespace = format!("{}/of-namespace", maps(&there));
    eventually("it goes with the namespace that owns it", || is_gone(&http, &of_namespace));
}

#[test]
fn aggregated_roles_follow_what_they_select() {
    let server = shared();
    if !server.has_controllers() {
        return;
    }
    let http = server.http();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let rule =
        json!([{"apiGroups": ["sum.example.com"], "resources": ["things"], "verbs": ["get"]}]);
    let sum = json!({
        "metadata": {"name": "sum.example.com"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"sum.example.com": "yes"}}]},
    });
    http.post(roles, &sum).expect(201);
    let part = json!({
        "metadata": {"name": "part.example.com", "labels": {"sum.example.com": "yes"}},
        "rules": rule,
    });
    http.post(roles, &part).expect(201);
    let sum = format!("{roles}/sum.example.com");
    eventually("the rules are gathered", || {
        (http.get(&sum).expect(200)["rules"] == rule).then_some(())
    });
    http.delete(&format!("{roles}/part.example.com")).expect(200);
    eventually("they go again", || {
        let rules = http.get(&sum).expect(200)["rules"].clone();
        (rules.is_null() || rules == json!([])).then_some(())
    });
    http.delete(&sum).expect(200);
}

#[test]
fn a_volume_claim_in_use_stays_until_its_pod_is_gone() {
    let server = shared();
    if !server.has_controllers() || server.flavour().is_peer() {
        return;
    }
    let http = server.http();
    let namespace = server.namespace("claims");
    let claims = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    http.post(&claims, &claim).expect(201);
    let claim = format!("{claims}/c");
    eventually("it is protected", || {
        let finalizers = http.get(&claim).expect(200)["metadata"]["finalizers"].clone();
        (finalizers == json!(["kubernetes.io/pvc-protection"])).then_some(())
    });
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "somewhere",
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        },
    });
    eventually("a pod can be made", || (http.post(&pods, &pod).code == 201).then_some(()));
    let left = http.delete(&claim).expect(200);
    assert!(left["metadata"]["deletionTimestamp"].is_string(), "{left}");
    http.delete(&format!("{pods}/p?gracePeriodSeconds=0")).expect(200);
    eventually("the claim is gone", || is_gone(&http, &claim));
}

#[test]
fn a_real_controller_manager_runs_beside_a_server_that_leaves_its_work_to_it() {
    let mut server = Server::with(integration::Flavour::Embedded, &["--standalone-controllers="]);
    let http = server.http();
    let namespace = server.namespace("managed");
    let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
    assert_eq!(http.get(&account).code, 404, "no controller creates accounts yet");
    if server.run_controller_manager().is_none() {
        return;
    }
    let kubectl = server.kubectl(Version::Current).in_namespace(&namespace);
    eventually("the namespace has its account", || (http.get(&account).code == 200).then_some(()));
    kubectl.ok("create deployment web --image=nginx --replicas=2");
    kubectl.ok("create job once --image=busybox");
    let pods = |selector: &str| {
        let line = format!("get pods -l {selector} -o jsonpath={{.items[*].metadata.name}}");
        kubectl.ok(&line).split_whitespace().count()
    };
    eventually("the deployment has its pods", || (pods("app=web") == 2).then_some(()));
    eventually("the job has its pod", || (pods("job-name=once") == 1).then_some(()));
    kubectl.ok("expose deployment web --port=80");
    eventually("the service has a slice of endpoints", || {
        let slices = kubectl.ok("get endpointslices -l kubernetes.io/service-name=web -o name");
        (!slices.is_empty()).then_some(())
    });
    kubectl.ok("scale deployment web --replicas=1");
    eventually("it shrinks", || (pods("app=web") == 1).then_some(()));
    kubectl.ok("delete deployment web --cascade=foreground --timeout=60s");
    assert_eq!(pods("app=web"), 0);
    kubectl.ok(&format!("delete ns {namespace} --timeout=60s"));
    let lease = http
        .get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager");
    assert!(lease.expect(200)["spec"]["holderIdentity"].is_string(), "it leads");
    let log = server.controllers_log();
    for complaint in ["forbidden", "Failed to watch", "the server could not find", "panic"] {
        let found: Vec<&str> = log.lines().filter(|line| line.contains(complaint)).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
}
