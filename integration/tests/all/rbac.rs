//! RBAC: roles and bindings, created with kubectl and over HTTP.

use integration::{Flavour, Http, Server, Version, eventually, shared};
use serde_json::{Value, json};

use crate::assert_contains;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A request that the administrator sends as an impersonated user.
fn as_user(http: &Http, user: &str, method: &str, path: &str, body: &Value) -> (u16, String) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("impersonate-user", user)
        .header("content-type", "application/json")
        .body(bytes::Bytes::from(if body.is_null() { String::new() } else { body.to_string() }))
        .expect("a valid request");
    let answer = http.request(request);
    let message = serde_json::from_slice::<Value>(answer.text().as_bytes())
        .ok()
        .and_then(|status| status["message"].as_str().map(str::to_owned));
    (answer.code, message.unwrap_or_default())
}

/// Lets a user do something in a namespace, by a role and a binding of that name.
fn allow(server: &Server, namespace: &str, user: &str, rules: &Value) {
    let http = server.http();
    let role = json!({"metadata": {"name": user}, "rules": rules});
    http.post(&format!("{RBAC}/namespaces/{namespace}/roles"), &role).expect(201);
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    http.post(&format!("{RBAC}/namespaces/{namespace}/rolebindings"), &binding).expect(201);
}

/// kube-apiserver learns of roles through a watch, a little later.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    eventually(what, || condition().then_some(()));
}

#[test]
fn kubectl_auth_can_i_follows_the_rules() {
    let server = shared();
    let namespace = server.namespace("can-i");
    let user = format!("jane-{namespace}");
    let kubectl = server.kubectl(Version::Current).in_namespace(&namespace);
    assert_eq!(kubectl.ok("auth can-i create pods"), "yes\n");
    assert_eq!(kubectl.ok("auth can-i '*' '*'"), "yes\n");
    let refused = kubectl.run(&format!("auth can-i list pods --as {user}"), "");
    assert_eq!(String::from_utf8_lossy(&refused.stdout), "no\n");
    assert_contains(
        &kubectl.fail(&format!("get pods --as {user}")),
        &[&format!(
            "Error from server (Forbidden): pods is forbidden: User \"{user}\" cannot list resource \
             \"pods\" in API group \"\" in the namespace \"{namespace}\""
        )],
    );
    assert_contains(
        &kubectl.fail(&format!("get --raw /metrics --as {user}")),
        &[&format!("forbidden: User \"{user}\" cannot get path \"/metrics\"")],
    );
    kubectl.ok("create role reader --verb=get,list --resource=pods,deployments.apps");
    kubectl.ok(&format!("create rolebinding readers --role=reader --user={user}"));
    wait_until("the role counts", || {
        let answer = kubectl.run(&format!("auth can-i list pods --as {user}"), "");
        answer.stdout == b"yes\n"
    });
    assert_contains(
        &kubectl.ok(&format!("auth can-i --list --as {user}")),
        &["deployments.apps", "[get list]", "selfsubjectaccessreviews.authorization.k8s.io"],
    );
    assert_eq!(kubectl.ok(&format!("get pods --as {user}")), "");
    assert_contains(
        &kubectl.ok(&format!("auth whoami --as {user} --as-group dev")),
        &[&user, "[dev system:authenticated]"],
    );
}

#[test]
fn rights_are_exactly_what_the_rules_say() {
    let server = shared();
    let (namespace, http) = (server.namespace("rights"), server.http());
    let user = format!("joe-{namespace}");
    allow(
        &server,
        &namespace,
        &user,
        &json!([
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"]},
            {"verbs": ["get"], "apiGroups": ["apps"], "resources": ["*/scale"]},
            {"verbs": ["*"], "apiGroups": [""], "resources": ["secrets"]},
        ]),
    );
    let core = format!("/api/v1/namespaces/{namespace}");
    let apps = format!("/apis/apps/v1/namespaces/{namespace}");
    wait_until("the role counts", || {
        as_user(&http, &user, "GET", &format!("{core}/secrets"), &Value::Null).0 == 200
    });
    // What is allowed and not there is 404.
    let cases = [
        ("GET", format!("{core}/configmaps/mine"), 404),
        ("GET", format!("{core}/configmaps/other"), 403),
        ("GET", format!("{core}/configmaps"), 403),
        ("GET", format!("{core}/configmaps?fieldSelector=metadata.name=mine"), 200),
        ("GET", format!("{core}/configmaps?fieldSelector=metadata.name!=mine"), 403),
        ("GET", format!("{apps}/deployments/x/scale"), 404),
        ("GET", format!("{apps}/deployments/x"), 403),
        ("GET", format!("{apps}/deployments/x/status"), 403),
        ("DELETE", format!("{core}/secrets/x"), 404),
        ("GET", "/api/v1/secrets".to_owned(), 403),
        ("GET", "/api/v1/namespaces/default/secrets".to_owned(), 403),
        ("GET", "/version".to_owned(), 200),
        ("GET", "/apis".to_owned(), 200),
        ("GET", "/".to_owned(), 403),
    ];
    for (method, path, code) in cases {
        let (answered, message) = as_user(&http, &user, method, &path, &Value::Null);
        assert_eq!(answered, code, "{method} {path}: {message}");
    }
}

#[test]
fn a_right_that_was_taken_away_is_gone_with_the_next_request() {
    let server = shared();
    if server.flavour().is_peer() {
        // kube-apiserver needs a moment, in which the right is still there.
        return;
    }
    let (namespace, http) = (server.namespace("revoked"), server.http());
    let user = format!("eve-{namespace}");
    allow(
        &server,
        &namespace,
        &user,
        &json!([
        {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]),
    );
    let secret = format!("/api/v1/namespaces/{namespace}/secrets/x");
    let path = format!("{RBAC}/namespaces/{namespace}/rolebindings");
    let binding = http.get(&format!("{path}/{user}")).expect(200);
    for _ in 0..50 {
        assert_eq!(as_user(&http, &user, "GET", &secret, &Value::Null).0, 404);
        http.delete(&format!("{path}/{user}")).expect(200);
        assert_eq!(as_user(&http, &user, "GET", &secret, &Value::Null).0, 403);
        let again = json!({"metadata": {"name": user}, "roleRef": binding["roleRef"],
            "subjects": binding["subjects"]});
        http.post(&path, &again).expect(201);
    }
}

#[test]
fn aggregated_roles_gather_what_their_labels_select() {
    let server = shared();
    if !server.has_controllers() {
        return;
    }
    let http = server.http();
    let suffix = server.namespace("aggregate");
    let (one, all) = (format!("one-{suffix}"), format!("all-{suffix}"));
    let role = json!({"metadata": {"name": one, "labels": {"to": suffix}},
        "rules": [{"verbs": ["get"], "apiGroups": ["x"], "resources": ["ys"]}]});
    http.post(&format!("{RBAC}/clusterroles"), &role).expect(201);
    let sum = json!({"metadata": {"name": all},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": suffix}}]}});
    http.post(&format!("{RBAC}/clusterroles"), &sum).expect(201);
    let rules =
        |name: &str| http.get(&format!("{RBAC}/clusterroles/{name}")).expect(200)["rules"].clone();
    wait_until("rules are gathered", || rules(&all) == role["rules"]);
    http.delete(&format!("{RBAC}/clusterroles/{one}")).expect(200);
    wait_until("rules go with their role", || rules(&all).as_array().is_none_or(Vec::is_empty));
    http.delete(&format!("{RBAC}/clusterroles/{all}")).expect(200);
    wait_until("admin may edit and view", || {
        rules("admin").as_array().is_some_and(|rules| rules.len() > 20)
    });
}

#[test]
fn anonymous_users_see_health_and_version_and_nothing_else() {
    let server = shared();
    let http = server.http().anonymous();
    for (path, code) in [
        ("/livez", 200),
        ("/readyz", 200),
        ("/healthz", 200),
        ("/version", 200),
        ("/api", 403),
        ("/apis", 403),
        ("/openapi/v2", 403),
        ("/metrics", 403),
        ("/debug/pprof", 403),
        ("/.well-known/openid-configuration", 403),
        ("/openid/v1/jwks", 403),
        ("/api/v1/namespaces", 403),
    ] {
        assert_eq!(http.get(path).code, code, "{path}");
    }
}

#[test]
fn privilege_escalation_through_roles_and_bindings_is_forbidden() {
    let server = shared();
    let (namespace, http) = (server.namespace("escalate"), server.http());
    let user = format!("bob-{namespace}");
    let write = ["create", "update", "patch", "get"];
    allow(
        &server,
        &namespace,
        &user,
        &json!([
            {"verbs": write, "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
        ]),
    );
    let roles = format!("{RBAC}/namespaces/{namespace}/roles");
    let bindings = format!("{RBAC}/namespaces/{namespace}/rolebindings");
    let role = |name: &str, verbs: &[&str]| {
        json!({"metadata": {"name": name},
        "rules": [{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}]})
    };
    let binding = |kind: &str, name: &str| {
        json!({"metadata": {"name": format!("b-{name}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "x"}]})
    };
    wait_until("the role counts", || {
        as_user(&http, &user, "POST", &roles, &role("held", &["get"])).0 == 201
    });
    let lacks = |verbs: &str| {
        let head = format!(
            "user \"{user}\" (groups=[\"system:authenticated\"]) is attempting to \
                            grant RBAC permissions not currently held:"
        );
        format!("{head}\n{{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[{verbs}]}}")
    };
    let cases = [
        ("POST", &roles, role("more", &["get", "delete"]), 403, lacks("\"delete\"")),
        ("POST", &roles, role("all", &["*"]), 403, lacks("\"*\"")),
        ("POST", &bindings, binding("Role", "held"), 201, String::new()),
        (
            "POST",
            &bindings,
            binding("ClusterRole", "cluster-admin"),
            403,
            "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n\
             {NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"
                .to_owned(),
        ),
        ("POST", &bindings, binding("Role", "gone"), 404, "\"gone\" not found".to_owned()),
    ];
    for (method, path, body, code, says) in cases {
        let (answered, message) = as_user(&http, &user, method, path, &body);
        assert_eq!(answered, code, "{body}: {message}");
        assert!(message.contains(&says), "{message}");
    }
    // By update as well, and not by a change of labels.
    let held = format!("{roles}/held");
    let more = role("held", &["get", "delete"]);
    assert_eq!(as_user(&http, &user, "PUT", &held, &more).0, 403);
    let mut labelled = role("held", &["get"]);
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(as_user(&http, &user, "PUT", &held, &labelled).0, 200);
    // A user that may `escalate`, or `bind`, need not hold the rules.
    let trusted = format!("eva-{namespace}");
    allow(
        &server,
        &namespace,
        &trusted,
        &json!([
        {"verbs": ["create", "escalate", "bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"]}]),
    );
    wait_until("the role counts", || {
        as_user(&http, &trusted, "POST", &roles, &role("more", &["delete"])).0 == 201
    });
    assert_eq!(as_user(&http, &trusted, "POST", &bindings, &binding("Role", "more")).0, 201);
}

#[test]
fn an_apply_that_creates_an_object_needs_the_verb_create() {
    let server = shared();
    let (namespace, http) = (server.namespace("upsert"), server.http());
    let user = format!("pat-{namespace}");
    allow(
        &server,
        &namespace,
        &user,
        &json!([
        {"verbs": ["get", "patch", "update"], "apiGroups": [""], "resources": ["configmaps"]}]),
    );
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/new");
    wait_until("the role counts", || as_user(&http, &user, "GET", &path, &Value::Null).0 == 404);
    let apply = || {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
        let request = http::Request::patch(format!("{path}?fieldManager=test"))
            .header("impersonate-user", &user)
            .header("content-type", "application/apply-patch+yaml")
            .body(bytes::Bytes::from(body.to_string()))
            .expect("a valid request");
        http.request(request)
    };
    let refused = apply().expect(403);
    assert_eq!(
        refused["message"],
        format!(
            "configmaps \"new\" is forbidden: User \"{user}\" cannot create resource \
             \"configmaps\" in API group \"\" in the namespace \"{namespace}\""
        )
    );
    let new = json!({"metadata": {"name": "new"}});
    http.post(&format!("/api/v1/namespaces/{namespace}/configmaps"), &new).expect(201);
    apply().expect(200);
}

/// Roles that a gate adds, with their rules, and rules that it adds to other roles. Each has a binding if it is new.
#[test]
fn gates_that_are_off_by_default_add_their_bootstrap_roles() {
    let gates = "ClusterTrustBundle,DRADeviceTaintRules,DRAResourcePoolStatus,DRAWorkloadResourceClaims,GenericWorkload,\
                 PodCertificateRequest,StorageVersionMigrator,WorkloadWithJob";
    let gates = gates.split(',').map(|gate| format!("{gate}=true")).collect::<Vec<_>>().join(",");
    let server = Server::with(Flavour::from_env(), &[&format!("--feature-gates={gates}")]);
    let http = server.http();
    let new = [
        ("system:cluster-trust-bundle-discovery", 1),
        ("system:controller:kube-apiserver-serving-clustertrustbundle-publisher", 3),
        ("system:controller:podcertificaterequestcleaner", 1),
        ("system:controller:podgroup-protection-controller", 2),
        ("system:controller:resourcepoolstatusrequest-controller", 5),
        ("system:controller:storage-version-migrator-controller", 4),
    ];
    for (name, rules) in new {
        let role = http.get(&format!("{RBAC}/clusterroles/{name}")).expect(200);
        assert_eq!(role["rules"].as_array().map(Vec::len), Some(rules), "{role}");
        let binding = http.get(&format!("{RBAC}/clusterrolebindings/{name}")).expect(200);
        assert_eq!(binding["roleRef"]["name"], name);
    }
    // The last rules of each, in kube-apiserver's order.
    let changed = [
        ("system:aggregate-to-edit", 16, ["podgroups,workloads"].as_slice()),
        ("system:aggregate-to-view", 13, &["podgroups,podgroups/status,workloads"]),
        (
            "system:controller:device-taint-eviction-controller",
            8,
            &["devicetaintrules/status", "devicetaintrules"],
        ),
        ("system:controller:job-controller", 6, &["podgroups,workloads"]),
        (
            "system:controller:resource-claim-controller",
            9,
            &["podgroups", "podgroups/status", "resourceclaims/binding"],
        ),
        (
            "system:kube-scheduler",
            30,
            &["devicetaintrules", "resourceclaims/binding", "podgroups", "podgroups/status"],
        ),
        ("system:node", 27, &["clustertrustbundles", "serviceaccounts", "podcertificaterequests"]),
    ];
    for (name, count, last) in changed {
        let role = http.get(&format!("{RBAC}/clusterroles/{name}")).expect(200);
        let rules = role["rules"].as_array().expect("a list");
        assert_eq!(rules.len(), count, "{role}");
        let resources = rules[count - last.len()..].iter().map(|rule| {
            let resources = rule["resources"].as_array().expect("a list").iter();
            resources.filter_map(|one| one.as_str()).collect::<Vec<_>>().join(",")
        });
        assert_eq!(resources.collect::<Vec<_>>(), last, "{name}");
    }
}
