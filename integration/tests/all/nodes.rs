//! The Node authorizer and NodeRestriction.

use integration::{Http, Server, eventually, shared};
use serde_json::{Value, json};

/// A request of a node, sent by the administrator.
fn as_node(http: &Http, node: &str, method: &str, path: &str, body: &Value) -> (u16, String) {
    let content_type =
        if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("impersonate-user", format!("system:node:{node}"))
        .header("impersonate-group", "system:nodes")
        .header("content-type", content_type)
        .body(bytes::Bytes::from(if body.is_null() { String::new() } else { body.to_string() }))
        .expect("a valid request");
    let answer = http.request(request);
    let status = serde_json::from_str::<Value>(&answer.text()).unwrap_or_default();
    (answer.code, status["message"].as_str().unwrap_or_default().to_owned())
}

fn account(server: &Server, namespace: &str) {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    server.http().post(&path, &json!({"metadata": {"name": "robot"}})).expect(201);
}

#[test]
fn a_node_reads_what_its_pods_need() {
    let server = shared();
    let (namespace, http) = (server.namespace("node"), server.http());
    let node = format!("n-{namespace}");
    account(&server, &namespace);
    let core = format!("/api/v1/namespaces/{namespace}");
    for (resource, name) in
        [("secrets", "used"), ("secrets", "other"), ("configmaps", "used"), ("configmaps", "other")]
    {
        http.post(&format!("{core}/{resource}"), &json!({"metadata": {"name": name}})).expect(201);
    }
    let read = |path: &str| as_node(&http, &node, "GET", path, &Value::Null).0;
    assert_eq!(read(&format!("{core}/secrets/used")), 403, "no pod needs it yet");
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "nodeName": node,
        "serviceAccountName": "robot",
        "containers": [{"name": "c", "image": "i",
            "envFrom": [{"configMapRef": {"name": "used"}}]}],
        "volumes": [{"name": "v", "secret": {"secretName": "used"}}],
    }});
    let pod = http.post(&format!("{core}/pods"), &pod).expect(201);
    eventually("the pod counts", || (read(&format!("{core}/secrets/used")) == 200).then_some(()));
    let cases = [
        (format!("{core}/secrets/other"), 403),
        (format!("{core}/secrets"), 403),
        (format!("{core}/secrets?fieldSelector=metadata.name=used"), 200),
        ("/api/v1/secrets".to_owned(), 403),
        (format!("{core}/configmaps/used"), 200),
        (format!("{core}/configmaps/other"), 403),
        (format!("{core}/pods/p"), 200),
        (format!("/api/v1/pods?fieldSelector=spec.nodeName={node}"), 200),
        ("/api/v1/pods?fieldSelector=spec.nodeName=another".to_owned(), 403),
        ("/api/v1/pods".to_owned(), 403),
        (format!("{core}/serviceaccounts/robot"), 200),
        ("/api/v1/nodes".to_owned(), 403),
        (format!("/api/v1/nodes/{node}"), 404),
        ("/api/v1/nodes/another".to_owned(), 403),
        ("/api/v1/services".to_owned(), 200),
        ("/apis/apps/v1/deployments".to_owned(), 403),
        (format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"), 404),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/another".to_owned(), 403),
    ];
    for (path, code) in cases {
        assert_eq!(read(&path), code, "{path}");
    }
    let (code, message) =
        as_node(&http, &node, "GET", &format!("{core}/secrets/other"), &Value::Null);
    assert_eq!(code, 403);
    assert!(
        message.ends_with(&format!(
            "in API group \"\" in the namespace \"{namespace}\": no relationship found between node \
             '{node}' and this object"
        )),
        "{message}"
    );
    // By name and group only. (Without a group, impersonating a node adds the group of nodes.)
    let by_name = http::Request::get(format!("{core}/secrets/used"))
        .header("impersonate-user", format!("system:node:{node}"))
        .header("impersonate-group", "others")
        .body(bytes::Bytes::new())
        .expect("a valid request");
    http.request(by_name).expect(403);

    // Tokens for the accounts of its pods.
    let bound = json!({"spec": {"audiences": [], "boundObjectRef": {"kind": "Pod",
        "apiVersion": "v1", "name": "p", "uid": pod["metadata"]["uid"]}}});
    let token = format!("{core}/serviceaccounts/robot/token");
    assert_eq!(as_node(&http, "another", "POST", &token, &bound).0, 403);

    http.delete(&format!("{core}/pods/p?gracePeriodSeconds=0")).expect(200);
    eventually("the right goes with the pod", || {
        (read(&format!("{core}/secrets/used")) == 403).then_some(())
    });
}

#[test]
fn a_node_writes_what_is_its_own() {
    let server = shared();
    let (namespace, http) = (server.namespace("kubelet"), server.http());
    let node = format!("n-{namespace}");
    account(&server, &namespace);
    let write = |method: &str, path: &str, body: &Value| as_node(&http, &node, method, path, body);
    let nodes = "/api/v1/nodes";
    let named = |name: &str| json!({"metadata": {"name": name}});
    let (code, message) = write("POST", nodes, &named("another"));
    assert_eq!(code, 403, "{message}");
    let mut labelled = named(&node);
    labelled["metadata"]["labels"] = json!({"node-role.kubernetes.io/control-plane": ""});
    let (code, message) = write("POST", nodes, &labelled);
    assert_eq!(code, 403);
    assert!(
        message.contains(
            "is not allowed to set the following labels: node-role.kubernetes.io/control-plane"
        ),
        "{message}"
    );
    let mut own = named(&node);
    own["metadata"]["labels"] = json!({"kubernetes.io/hostname": node, "mine": "1"});
    assert_eq!(write("POST", nodes, &own).0, 201);
    let path = format!("{nodes}/{node}");
    let uid = http.get(&path).expect(200)["metadata"]["uid"].clone();
    let quoted = format!("{node:?}");
    let cases = [
        (json!({"metadata": {"labels": {"mine": "2"}}}), 200, String::new()),
        (
            json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "1"}}}),
            403,
            "is not allowed to modify labels: node-restriction.kubernetes.io/x".to_owned(),
        ),
        (
            json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
            403,
            format!("node {quoted} is not allowed to modify taints"),
        ),
        (
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node",
                "name": "x", "uid": "y"}]}}),
            403,
            format!("node {quoted} is not allowed to modify ownerReferences"),
        ),
    ];
    for (patch, code, says) in cases {
        let (answered, message) = write("PATCH", &path, &patch);
        assert_eq!(answered, code, "{patch}: {message}");
        assert!(message.contains(&says), "{message}");
    }

    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let mirror = |change: &dyn Fn(&mut Value)| {
        let mut pod = json!({
            "metadata": {"name": "mirror", "annotations": {"kubernetes.io/config.mirror": "x"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid,
                    "controller": true}]},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        });
        change(&mut pod);
        pod
    };
    let refused = [
        (
            mirror(&|pod| pod["metadata"]["annotations"] = Value::Null),
            "can only create mirror pods",
        ),
        (mirror(&|pod| pod["spec"]["nodeName"] = json!("x")), "with spec.nodeName set to itself"),
        (
            mirror(&|pod| pod["metadata"]["ownerReferences"] = json!([])),
            "with an owner reference set to itself",
        ),
        (mirror(&|pod| pod["metadata"]["ownerReferences"][0]["uid"] = json!("x")), "UID mismatch"),
        (
            mirror(&|pod| {
                pod["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
            }),
            // The plugin ServiceAccount says so first, where it is on.
            "reference secrets",
        ),
        (
            mirror(&|pod| {
                pod["spec"]["resourceClaims"] = json!([{"name": "r", "resourceClaimName": "c"}]);
            }),
            "can not create pods that reference resourceclaims",
        ),
    ];
    for (pod, says) in refused {
        let (code, message) = write("POST", &pods, &pod);
        assert_eq!(code, 403, "{says}: {message}");
        assert!(message.contains(says), "{message}");
    }
    let (code, message) = write("POST", &pods, &mirror(&|_| {}));
    assert_eq!(code, 201, "{message}");

    let elsewhere = json!({"metadata": {"name": "elsewhere"}, "spec": {"nodeName": "another",
        "serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}});
    http.post(&pods, &elsewhere).expect(201);
    let status = json!({"status": {"message": "hello"}});
    assert_eq!(write("PATCH", &format!("{pods}/mirror/status"), &status).0, 200);
    assert_eq!(write("PATCH", &format!("{pods}/elsewhere/status"), &status).0, 403);
    assert_eq!(write("DELETE", &format!("{pods}/elsewhere"), &Value::Null).0, 403);

    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(write("POST", leases, &named("another")).0, 403);
    assert_eq!(write("POST", leases, &named(&node)).0, 201);

    // Tokens for pods on the node, for the audience that the pod names.
    let here = json!({"metadata": {"name": "here"}, "spec": {"nodeName": node,
        "serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "t", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "audience": "vault"}}]}}]}});
    let here = http.post(&pods, &here).expect(201);
    let token = format!("/api/v1/namespaces/{namespace}/serviceaccounts/robot/token");
    let request = |audience: &str, uid: &Value| {
        json!({"spec": {"audiences": [audience],
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "here", "uid": uid}}})
    };
    let uid = &here["metadata"]["uid"];
    eventually("the pod counts", || {
        (write("POST", &token, &request("vault", uid)).0 == 201).then_some(())
    });
    let refused = [
        (json!({"spec": {"audiences": ["vault"]}}), "node requested token not bound to a pod"),
        (request("vault", &json!("")), "node requested token with a pod binding without a uid"),
        (request("vault", &json!("x")), "does not match the UID in record"),
        (request("other", uid), "audience \"other\" not found in pod spec volume"),
    ];
    for (body, says) in refused {
        let (code, message) = write("POST", &token, &body);
        assert_eq!(code, 403, "{body}: {message}");
        assert!(message.contains(says), "{message}");
    }
    http.delete(&path).expect(200);
}
