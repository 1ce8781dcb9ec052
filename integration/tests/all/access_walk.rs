//! Every endpoint with every verb, requested by clients that no role was given to. What they may do
//! is written out here; everything else is a 403, or a 401 where anonymous requests are off.
//!
//! The endpoints come from discovery, the index and the OpenAPI v3 index, so a new one is walked
//! without being named here. The exceptions are what kube-apiserver's default ClusterRoles
//! `system:public-info-viewer`, `system:discovery`, `system:basic-user` and
//! `system:service-account-issuer-discovery` allow.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Method, Request};
use integration::{Connection, Flavour, Http, Server, eventually};
use serde_json::{Value, json};

/// `system:public-info-viewer`: GET for every client. A trailing `*` stands for any rest.
const PUBLIC_PATHS: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// `system:discovery`: GET for the group `system:authenticated`.
const DISCOVERY_PATHS: [&str; 11] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];

/// `system:service-account-issuer-discovery`: GET for the group `system:serviceaccounts`.
const ISSUER_PATHS: [&str; 4] = [
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
];

/// `system:basic-user`: POST for the group `system:authenticated`, in every served version.
const SELF_REVIEWS: [(&str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

/// Paths that neither discovery nor the index names: some are served, the others must not tell a
/// client without rights that they are not.
const FURTHER_PATHS: [&str; 28] = [
    "/",
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/api/",
    "/apis/",
    "/apis/nosuch.example.com",
    "/configz",
    "/debug/api_priority_and_fairness/dump_priority_levels",
    "/debug/flags/v",
    "/debug/pprof",
    "/debug/pprof/",
    "/debug/pprof/cmdline",
    "/debug/pprof/heap",
    "/debug/pprof/profile",
    "/debug/pprof/symbol",
    "/debug/pprof/trace",
    "/flagz",
    "/healthz/ping",
    "/logs",
    "/logs/",
    "/metrics/cadvisor",
    "/nosuch",
    "/openapi",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
    "/statusz",
    "/swagger.json",
    "/version/",
];

/// One request of the walk.
#[derive(Clone, Debug)]
struct Endpoint {
    method: Method,
    path: String,
    /// Group and resource (with its subresource); none for a path that is no resource.
    resource: Option<(String, String)>,
    body: Value,
}

impl Endpoint {
    fn is_self_review(&self) -> bool {
        let listed = |(group, resource): &(String, String)| {
            SELF_REVIEWS.contains(&(group.as_str(), resource.as_str()))
        };
        self.method == Method::POST && self.resource.as_ref().is_some_and(listed)
    }

    /// The pattern that lets this request through, if one does.
    fn pattern_in<'a>(&self, patterns: &[&'a str]) -> Option<&'a str> {
        let matches = |pattern: &&&str| match pattern.strip_suffix('*') {
            Some(prefix) => self.path.starts_with(prefix),
            None => **pattern == self.path,
        };
        let is_get = self.method == Method::GET && self.resource.is_none();
        patterns.iter().find(matches).copied().filter(|_| is_get)
    }
}

/// The methods of a discovery verb; whether it is about one object or the collection.
fn request_of(verb: &str) -> (Method, bool, &'static str) {
    match verb {
        "get" => (Method::GET, true, ""),
        "list" => (Method::GET, false, ""),
        "watch" => (Method::GET, false, "?watch=true&timeoutSeconds=1"),
        "create" => (Method::POST, false, ""),
        "update" => (Method::PUT, true, ""),
        "patch" => (Method::PATCH, true, ""),
        "delete" => (Method::DELETE, true, ""),
        "deletecollection" => (Method::DELETE, false, ""),
        other => panic!("discovery has a verb that this walk does not know: {other}"),
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Everything that the server says it serves.
fn endpoints(admin: &Http) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for root in ["/api", "/apis"] {
        for group in items(&aggregated_discovery(admin, root)["items"]) {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            for version in items(&group["versions"]) {
                let version_name = version["version"].as_str().expect("a version has a name");
                let base = match name {
                    "" => format!("/api/{version_name}"),
                    group => format!("/apis/{group}/{version_name}"),
                };
                for resource in items(&version["resources"]) {
                    add_resource(&mut endpoints, &base, name, resource);
                }
            }
        }
    }
    let mut paths: BTreeSet<String> = FURTHER_PATHS.map(str::to_owned).into();
    paths.extend(strings(&admin.get("/").expect(200)["paths"]).map(str::to_owned));
    let openapi = admin.get("/openapi/v3").expect(200);
    let documents = openapi["paths"].as_object().expect("the OpenAPI index has paths");
    paths.extend(documents.keys().map(|document| format!("/openapi/v3/{document}")));
    for path in paths {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let method = method.parse().expect("a valid method");
            let path = path.clone();
            endpoints.push(Endpoint { method, path, resource: None, body: json!({}) });
        }
    }
    endpoints
}

fn aggregated_discovery(admin: &Http, root: &str) -> Value {
    let request = Request::get(root)
        .header("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
        .body(Bytes::new())
        .expect("a valid request");
    admin.request(request).expect(200)
}

/// A resource and its subresources: each verb once, and for namespaced resources the requests that
/// span all namespaces as well.
fn add_resource(endpoints: &mut Vec<Endpoint>, base: &str, group: &str, resource: &Value) {
    let name = resource["resource"].as_str().expect("a resource has a name");
    let namespaced = resource["scope"] == "Namespaced";
    let all = format!("{base}/{name}");
    let collection =
        if namespaced { format!("{base}/namespaces/default/{name}") } else { all.clone() };
    let mut add = |method: Method, path: String, resource: &str| {
        let resource = Some((group.to_owned(), resource.to_owned()));
        let body = review_body(name);
        endpoints.push(Endpoint { method, path, resource, body });
    };
    for verb in strings(&resource["verbs"]) {
        let (method, is_single, query) = request_of(verb);
        let single = if is_single { "/walked" } else { "" };
        add(method.clone(), format!("{collection}{single}{query}"), name);
        if namespaced && !is_single && method == Method::GET {
            add(method.clone(), format!("{all}{query}"), name);
        }
        if verb == "get" {
            add(Method::HEAD, format!("{collection}/walked"), name);
            add(Method::OPTIONS, format!("{collection}/walked"), name);
        }
        if verb == "watch" {
            // The old form of a watch, which kube-apiserver still serves.
            let path = collection.replacen(base, &format!("{base}/watch"), 1);
            add(Method::GET, format!("{path}?timeoutSeconds=1"), name);
        }
    }
    for subresource in items(&resource["subresources"]) {
        let sub = subresource["subresource"].as_str().expect("a subresource has a name");
        let full = format!("{name}/{sub}");
        for verb in strings(&subresource["verbs"]) {
            let (method, ..) = request_of(verb);
            add(method.clone(), format!("{collection}/walked/{sub}"), &full);
            if sub == "proxy" {
                add(method, format!("{collection}/walked/{sub}/some/path"), &full);
            }
        }
    }
}

/// What makes the reviews that are open answer 201. The others never get to read it.
fn review_body(resource: &str) -> Value {
    match resource {
        "selfsubjectaccessreviews" => {
            json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})
        }
        "selfsubjectrulesreviews" => json!({"spec": {"namespace": "default"}}),
        _ => json!({}),
    }
}

/// Sends every request as one user and compares the status code with `expected`, which answers
/// `None` where a request must get through. Answers what got through.
fn walk(
    user: &str,
    http: &Http,
    endpoints: &[Endpoint],
    expected: impl Fn(&Endpoint) -> Option<u16>,
) -> Vec<Endpoint> {
    let (wrong, open) = try_walk(user, http, endpoints, expected);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    open
}

/// What was wrong, and what got through.
fn try_walk(
    user: &str,
    http: &Http,
    endpoints: &[Endpoint],
    expected: impl Fn(&Endpoint) -> Option<u16>,
) -> (Vec<String>, Vec<Endpoint>) {
    let (mut wrong, mut open) = (Vec::new(), Vec::new());
    let mut connection: Option<Connection> = None;
    for endpoint in endpoints {
        let content_type = match endpoint.method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = || {
            Request::builder()
                .method(&endpoint.method)
                .uri(&endpoint.path)
                .header("content-type", content_type)
                .body(Bytes::from(endpoint.body.to_string()))
                .expect("a valid request")
        };
        // The server may close a connection between two requests.
        let reused = connection.as_mut().and_then(|open| open.request(request()).ok());
        let answer = reused.unwrap_or_else(|| {
            let mut fresh = http.connect().expect("the server takes connections");
            let answer = fresh.request(request());
            connection = Some(fresh);
            answer.unwrap_or_else(|error| panic!("{endpoint:?} as {user}: {error}"))
        });
        let is_refused = matches!(answer.code, 401 | 403);
        match expected(endpoint) {
            None if is_refused => wrong.push((endpoint, answer.code, "must be open")),
            None => open.push(endpoint.clone()),
            Some(code) if code != answer.code => {
                wrong.push((endpoint, answer.code, "is open, or refused in another way"));
            }
            Some(_) => {}
        }
        if endpoint.is_self_review() && !is_refused {
            assert_eq!(answer.code, 201, "{endpoint:?} as {user}: {}", answer.text());
        }
    }
    let wrong: Vec<String> = wrong
        .iter()
        .map(|(at, code, why)| format!("{} {} as {user}: {code}, {why}", at.method, at.path))
        .collect();
    (wrong, open)
}

/// The walk itself finds an endpoint that is open although it should not be: one verb of one resource, and
/// one path.
#[test]
fn the_walk_finds_an_endpoint_that_is_open() {
    let server = Server::start();
    let admin = server.http();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([
        {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]);
    let role = json!({"metadata": {"name": "hole"}, "rules": rules});
    admin.post(&format!("{rbac}/clusterroles"), &role).expect(201);
    let binding = json!({
        "metadata": {"name": "hole"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "hole"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group",
            "name": "system:unauthenticated"}],
    });
    admin.post(&format!("{rbac}/clusterrolebindings"), &binding).expect(201);
    let endpoints = endpoints(&admin);
    let anonymous = admin.clone().anonymous();
    let (wrong, _) = try_walk("anonymous", &anonymous, &endpoints, |endpoint| {
        if endpoint.pattern_in(&PUBLIC_PATHS).is_some() { None } else { Some(403) }
    });
    let found = |what: &str| wrong.iter().any(|line| line.starts_with(what));
    assert!(found("PATCH /apis/apps/v1/namespaces/default/deployments/walked/scale"), "{wrong:?}");
    assert!(found("GET /metrics"), "{wrong:?}");
    assert_eq!(wrong.len(), 2, "{wrong:?}");
}

/// Every pattern has let something through: one that no longer does has to leave the list.
#[track_caller]
fn assert_all_used(patterns: &[&str], open: &[Endpoint]) {
    for pattern in patterns {
        let is_used = open.iter().any(|endpoint| endpoint.pattern_in(&[pattern]).is_some());
        assert!(is_used, "nothing was requested that {pattern} opens");
    }
}

/// A token of a service account that no role is bound to.
fn powerless_token(admin: &Http) -> String {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.post(accounts, &json!({"metadata": {"name": "powerless"}})).expect(201);
    let token = admin.post(&format!("{accounts}/powerless/token"), &json!({"spec": {}}));
    token.expect(201)["status"]["token"].as_str().expect("a token").to_owned()
}

fn create_custom_resource(admin: &Http) {
    let definition = json!({
        "metadata": {"name": "walks.access.example.com"},
        "spec": {
            "group": "access.example.com",
            "scope": "Namespaced",
            "names": {"plural": "walks", "singular": "walk", "kind": "Walk", "listKind": "WalkList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas"}},
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    admin.post(path, &definition).expect(201);
    eventually("the custom resource is in discovery", || {
        let groups = aggregated_discovery(admin, "/apis");
        let found =
            items(&groups["items"]).any(|group| group["metadata"]["name"] == "access.example.com");
        found.then_some(())
    });
}

#[test]
fn without_roles_only_the_listed_endpoints_are_open() {
    // A user of a token file has no groups but `system:authenticated`.
    let directory = tempfile::tempdir().expect("a directory for the token file");
    let tokens = directory.path().join("tokens.csv");
    std::fs::write(&tokens, "powerless-token,powerless,uid\n").expect("it can be written");
    let flag = format!("--token-auth-file={}", tokens.display());
    let server = Server::with(Flavour::from_env(), &[&flag]);
    let admin = server.http();
    create_custom_resource(&admin);
    let endpoints = endpoints(&admin);
    let resources = endpoints.iter().filter(|endpoint| endpoint.resource.is_some());
    assert!(resources.count() > 800, "discovery must name every resource");

    let open = walk("anonymous", &admin.clone().anonymous(), &endpoints, |endpoint| {
        if endpoint.pattern_in(&PUBLIC_PATHS).is_some() { None } else { Some(403) }
    });
    assert_all_used(&PUBLIC_PATHS, &open);

    let account = admin.clone().with_token(&powerless_token(&admin));
    let open = walk("service account", &account, &endpoints, |endpoint| {
        let listed = endpoint.is_self_review()
            || endpoint.pattern_in(&DISCOVERY_PATHS).is_some()
            || endpoint.pattern_in(&ISSUER_PATHS).is_some();
        if listed { None } else { Some(403) }
    });
    assert_all_used(&DISCOVERY_PATHS, &open);
    assert_all_used(&ISSUER_PATHS, &open);
    let user = admin.clone().with_token("powerless-token");
    let open_to_user = walk("user of the token file", &user, &endpoints, |endpoint| {
        let listed = endpoint.is_self_review() || endpoint.pattern_in(&DISCOVERY_PATHS).is_some();
        if listed { None } else { Some(403) }
    });
    assert_all_used(&DISCOVERY_PATHS, &open_to_user);
    for (group, resource) in SELF_REVIEWS {
        let listed = (group.to_owned(), resource.to_owned());
        assert!(
            open.iter().any(|endpoint| endpoint.resource.as_ref() == Some(&listed)),
            "{resource} was not walked"
        );
    }
    the_default_roles_allow_what_is_listed(&admin);
}

/// The lists above are the rules of the default ClusterRoles, neither more nor less.
fn the_default_roles_allow_what_is_listed(admin: &Http) {
    let rules = |role: &str| {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}");
        admin.get(&path).expect(200)["rules"].clone()
    };
    let paths = |role: &str| -> BTreeSet<String> {
        let rules = rules(role);
        items(&rules)
            .flat_map(|rule| strings(&rule["nonResourceURLs"]))
            .map(str::to_owned)
            .collect()
    };
    let expected =
        |listed: &[&str]| -> BTreeSet<String> { listed.iter().map(ToString::to_string).collect() };
    assert_eq!(paths("system:public-info-viewer"), expected(&PUBLIC_PATHS));
    assert_eq!(paths("system:discovery"), expected(&DISCOVERY_PATHS));
    assert_eq!(paths("system:service-account-issuer-discovery"), expected(&ISSUER_PATHS));
    let reviews: BTreeSet<(String, String)> = items(&rules("system:basic-user"))
        .flat_map(|rule| {
            let groups: Vec<&str> = strings(&rule["apiGroups"]).collect();
            let pairs = strings(&rule["resources"])
                .flat_map(|resource| groups.iter().map(move |group| (*group, resource)));
            pairs
                .map(|(group, resource)| (group.to_owned(), resource.to_owned()))
                .collect::<Vec<_>>()
        })
        .collect();
    let listed = SELF_REVIEWS.map(|(group, resource)| (group.to_owned(), resource.to_owned()));
    assert_eq!(reviews, listed.into());
}

#[test]
fn with_anonymous_requests_off_every_endpoint_is_a_401() {
    let server = Server::with(Flavour::from_env(), &["--anonymous-auth=false"]);
    let admin = server.http();
    let endpoints = endpoints(&admin);
    walk("anonymous", &admin.clone().anonymous(), &endpoints, |_| Some(401));
    let stranger = admin.with_token("no-token-of-this-cluster");
    walk("a bad token", &stranger, &endpoints, |_| Some(401));
}
