//! Every authorization mode but RBAC and Node, which have files of their own.

use std::{fs, path::Path, sync::Arc, sync::Mutex};

use bytes::Bytes;
use http::Request;
use integration::{Flavour, Http, Server, Version, Webhook, eventually, shared};
use serde_json::{Value, json};

use crate::assert_contains;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn write(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, content).expect("a file in a temporary directory");
    path.display().to_string()
}

/// A server that knows the token of jane, who has no rights.
fn start(files: &Path, flags: &[String]) -> (Server, Http) {
    let tokens = write(files, "tokens.csv", "jane,jane,1,dev\nbob,bob,2,ops\n");
    let mut all = vec![format!("--token-auth-file={tokens}")];
    all.extend_from_slice(flags);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let server = Server::with(Flavour::Embedded, &all);
    let jane = server.http().anonymous().with_token("jane");
    (server, jane)
}

const PODS: &str = "/api/v1/namespaces/default/pods";

#[test]
fn abac_allows_what_its_file_says() {
    let files = directory();
    let policy = |spec: &str| {
        format!(
            r#"{{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{{{spec}}}}}"#
        )
    };
    let text = [
        "# who may what".to_owned(),
        policy(r#""user":"jane","namespace":"default","resource":"pods","readonly":true"#),
        policy(r#""group":"ops","nonResourcePath":"/version""#),
    ];
    let file = write(files.path(), "policy.jsonl", &text.join("\n"));
    let flags =
        ["--authorization-mode=ABAC".to_owned(), format!("--authorization-policy-file={file}")];
    let (server, jane) = start(files.path(), &flags);
    jane.get(PODS).expect(200);
    let refused = jane.get("/api/v1/namespaces/default/secrets").expect(403);
    let message = "secrets is forbidden: User \"jane\" cannot list resource \"secrets\" in API group \
                   \"\" in the namespace \"default\": No policy matched.";
    assert_eq!(refused["message"], message);
    jane.post(PODS, &json!({})).expect(403);
    let bob = server.http().anonymous().with_token("bob");
    assert_eq!((bob.get("/version").code, jane.get("/version").code), (200, 403));
}

/// A webhook that allows by the test's rule, and keeps what it was asked.
fn hook(
    rule: impl Fn(&Value) -> Value + Send + Sync + 'static,
) -> (Webhook, Arc<Mutex<Vec<Value>>>) {
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let seen = asked.clone();
    let webhook = Webhook::start(move |review| {
        let status = rule(&review["spec"]);
        seen.lock().expect("no panic").push(review["spec"].clone());
        json!({"kind": review["kind"], "apiVersion": review["apiVersion"], "status": status})
    });
    (webhook, asked)
}

#[test]
fn a_webhook_decides_and_leaves_the_rest_to_rbac() {
    let files = directory();
    let (webhook, asked) = hook(|spec| match spec["resourceAttributes"]["resource"].as_str() {
        Some("pods") => json!({"allowed": true, "reason": "pods are free"}),
        Some("secrets") => json!({"denied": true, "reason": "never"}),
        _ => json!({"allowed": false, "reason": "no idea"}),
    });
    let kubeconfig = write(files.path(), "hook.yaml", &webhook.kubeconfig("/authorize"));
    for version in ["v1", "v1beta1"] {
        let flags = [
            "--authorization-mode=Webhook,RBAC".to_owned(),
            format!("--authorization-webhook-config-file={kubeconfig}"),
            format!("--authorization-webhook-version={version}"),
        ];
        let (server, jane) = start(files.path(), &flags);
        asked.lock().expect("no panic").clear();
        jane.get(&format!("{PODS}?labelSelector=app%3Dx&fieldSelector=metadata.name%3Dy"))
            .expect(200);
        let spec = asked.lock().expect("no panic").pop().expect("it was asked");
        assert_eq!(spec["user"], "jane");
        let groups = if version == "v1" { "groups" } else { "group" };
        assert_eq!(spec[groups], json!(["dev", "system:authenticated"]));
        let attributes = &spec["resourceAttributes"];
        let selector = json!({"requirements": [{"key": "app", "operator": "In", "values": ["x"]}]});
        assert_eq!(attributes["labelSelector"], selector);
        assert_eq!(attributes["fieldSelector"]["requirements"][0]["key"], "metadata.name");

        let calls = webhook.calls();
        jane.get(&format!("{PODS}?labelSelector=app%3Dx&fieldSelector=metadata.name%3Dy"))
            .expect(200);
        assert_eq!(webhook.calls(), calls, "it is remembered");
        let denied = jane.get("/api/v1/secrets").expect(403);
        assert_contains(
            denied["message"].as_str().expect("a message"),
            &["at the cluster scope: never"],
        );
        let unknown = jane.get("/api/v1/nodes").expect(403);
        assert_contains(
            unknown["message"].as_str().expect("a message"),
            &["cannot list resource", "no idea"],
        );
        // RBAC decides: every user may create self reviews.
        let kubectl = server.kubectl(Version::Current);
        assert_eq!(kubectl.ok("auth can-i list pods --as jane").trim(), "yes");
        kubectl.fail("auth can-i list secrets --as jane");
        let metrics = server.http().get("/metrics").text();
        assert_contains(
            &metrics,
            &[
                "apiserver_authorization_decisions_total{decision=\"allowed\",name=\"default\",type=\"Webhook\"}",
                "apiserver_authorization_decisions_total{decision=\"denied\",name=\"default\",type=\"Webhook\"}",
                "apiserver_authorization_webhook_evaluations_total{name=\"default\",result=\"success\"}",
            ],
        );
    }
}

/// Security case R13, as a client sees it.
#[test]
fn a_webhook_that_fails_allows_nothing() {
    let files = directory();
    let webhook = Webhook::start(|_| json!({"status": {"allowed": true}}));
    let kubeconfig = write(files.path(), "hook.yaml", &webhook.kubeconfig("/authorize"));
    let flags = [
        "--authorization-mode=Webhook".to_owned(),
        format!("--authorization-webhook-config-file={kubeconfig}"),
    ];
    let (server, jane) = start(files.path(), &flags);
    assert_eq!(jane.get(PODS).code, 500);
    drop(webhook);
    assert_eq!(jane.get(PODS).code, 500);
    // The administrator can still get in.
    server.http().get(PODS).expect(200);
}

#[test]
fn a_chain_from_a_file_is_reloaded() {
    let files = directory();
    let (webhook, asked) = hook(|_| json!({"allowed": true}));
    let kubeconfig = write(files.path(), "hook.yaml", &webhook.kubeconfig("/authorize"));
    let authorizer = |name: &str, condition: &str| {
        json!({"type": "Webhook", "name": name, "webhook": {
            "timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
            "matchConditions": [{"expression": condition}],
        }})
    };
    let file = |authorizers: Value| {
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
            "authorizers": authorizers})
        .to_string()
    };
    let rbac = json!({"type": "RBAC", "name": "rbac"});
    let pods = authorizer(
        "pods",
        "has(request.resourceAttributes) && request.resourceAttributes.resource == 'pods'",
    );
    let config = write(files.path(), "authz.yaml", &file(json!([pods, rbac])));
    let (server, jane) = start(files.path(), &[format!("--authorization-config={config}")]);
    jane.get(PODS).expect(200);
    jane.get("/api/v1/nodes").expect(403);
    let others = asked
        .lock()
        .expect("no panic")
        .iter()
        .any(|spec| spec["resourceAttributes"]["resource"] != "pods");
    assert!(!others, "the condition keeps other requests from the webhook");

    // A wrong file changes nothing, and is counted.
    write(files.path(), "authz.yaml", &file(json!([pods])));
    let counted = |status: &str| {
        let metrics = server.http().get("/metrics").text();
        let name = "apiserver_authorization_config_controller_automatic_reloads_total";
        let mut lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.any(|line| line.contains(&format!("status=\"{status}\"")))
    };
    eventually("the error is counted", || counted("failure").then_some(()));
    jane.get(PODS).expect(200);
    jane.get("/api/v1/nodes").expect(403);
    assert!(server.log().contains("missing required types: [RBAC]"), "it is logged");

    let nodes = authorizer(
        "nodes",
        "has(request.resourceAttributes) && request.resourceAttributes.resource == 'nodes'",
    );
    write(files.path(), "authz.yaml", &file(json!([nodes, rbac])));
    eventually("nodes are allowed", || (jane.get("/api/v1/nodes").code == 200).then_some(()));
    jane.get(PODS).expect(403);
    assert!(counted("success"));
}

#[test]
fn modes_that_need_no_data() {
    let files = directory();
    let (_server, jane) = start(files.path(), &["--authorization-mode=AlwaysAllow".to_owned()]);
    jane.get(PODS).expect(200);
    let (server, jane) = start(files.path(), &["--authorization-mode=AlwaysDeny".to_owned()]);
    let refused = jane.get(PODS).expect(403);
    assert_contains(refused["message"].as_str().expect("a message"), &["Everything is forbidden."]);
    server.http().get(PODS).expect(200);
}

/// Security case I07: each part of an impersonated user needs a right of its own.
#[test]
fn the_right_to_impersonate_a_user_gives_no_groups() {
    let server = shared();
    let name = server.namespace("impersonate");
    let role = json!({"metadata": {"name": name}, "rules": [
        {"apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"], "verbs": ["impersonate"]}]});
    let group = "/apis/rbac.authorization.k8s.io/v1";
    server.http().post(&format!("{group}/clusterroles"), &role).expect(201);
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": name, "name": "j"}]});
    server.http().post(&format!("{group}/clusterrolebindings"), &binding).expect(201);
    let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
    server.http().post(&accounts, &json!({"metadata": {"name": "j"}})).expect(201);
    let token = server.http().post(&format!("{accounts}/j/token"), &json!({})).expect(201);
    let token = token["status"]["token"].as_str().expect("a token").to_owned();
    let client = server.http().anonymous().with_token(&token);
    let ask = |headers: &[(&str, &str)]| {
        let body = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
        let mut request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        client.request(request.body(Bytes::from(body.to_string())).expect("a valid request"))
    };
    let bob = ("Impersonate-User", "bob");
    let user = ask(&[bob]).expect(201)["status"]["userInfo"].clone();
    assert_eq!(
        (&user["username"], &user["groups"]),
        (&json!("bob"), &json!(["system:authenticated"]))
    );
    let forbidden: [&[(&str, &str)]; 6] = [
        &[bob, ("Impersonate-Group", "system:masters")],
        &[bob, ("Impersonate-Group", "dev")],
        &[bob, ("Impersonate-Uid", "1")],
        &[bob, ("Impersonate-Extra-Scopes", "x")],
        &[("Impersonate-User", "alice")],
        &[("Impersonate-User", "system:serviceaccount:kube-system:default")],
    ];
    for headers in forbidden {
        assert_eq!(ask(headers).code, 403, "{headers:?}");
    }
    let incomplete: [(&str, &str); 3] = [
        ("Impersonate-Group", "system:masters"),
        ("Impersonate-Uid", "1"),
        ("Impersonate-Extra-Scopes", "x"),
    ];
    for header in incomplete {
        let code = ask(&[header]).code;
        assert!(matches!(code, 400 | 500), "{header:?}: {code}");
    }
}
