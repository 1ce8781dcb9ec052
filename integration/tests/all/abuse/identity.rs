//! Tokens, reviews and certificate signing requests.

use http::Method;
use serde_json::{Value, json};

use super::{Case, Client, JSON, NAMESPACE, Outcome, request, sized};

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/abuse/roles";
const ROLE_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/abuse/rolebindings";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

pub(super) fn cases() -> Vec<Case> {
    let review = |name, codes, path: &'static str, spec: fn() -> Value| {
        Case::new(name, Client::ClusterAdmin, codes, move |http| {
            let body = json!({"spec": spec()}).to_string();
            Outcome::from(&http.send(Method::POST, path, Some(JSON), body))
        })
    };
    let token = |name, codes, token: fn() -> String| {
        Case::new(name, Client::Anonymous, codes, move |http| {
            request(http, "/api", &[("authorization", format!("Bearer {}", token()))])
        })
    };
    vec![
        review(
            "token review: a token of 900 KB",
            &[201, 400, 413],
            TOKEN_REVIEWS,
            || json!({"token": "t".repeat(sized(900_000))}),
        ),
        review(
            "token review: a token with a header of 600 KB",
            &[201, 413],
            TOKEN_REVIEWS,
            || json!({"token": format!("{}.e30.e30", "W1tb".repeat(sized(150_000)))}),
        ),
        review(
            "token review: 70 000 audiences",
            &[201, 413, 422],
            TOKEN_REVIEWS,
            || json!({"token": "t", "audiences": vec!["a"; sized(100_000)]}),
        ),
        review("access review: 100 000 groups", &[201, 413, 422], ACCESS_REVIEWS, || {
            let groups: Vec<String> = (0..sized(100_000)).map(|at| format!("g{at}")).collect();
            json!({"user": "u", "groups": groups, "resourceAttributes": {"verb": "get", "resource": "pods"}})
        }),
        review("access review: 50 000 extra keys", &[201, 413, 422], ACCESS_REVIEWS, || {
            let extra: serde_json::Map<String, Value> =
                (0..sized(50_000)).map(|at| (format!("k{at}"), json!(["v"]))).collect();
            json!({"user": "u", "extra": extra, "resourceAttributes": {"verb": "get", "resource": "pods"}})
        }),
        review("access review: names of 500 KB", &[201, 413, 422], ACCESS_REVIEWS, || {
            let long = "n".repeat(sized(500_000));
            json!({"user": long, "resourceAttributes": {"verb": long, "resource": long, "namespace": long}})
        }),
        review(
            "access review: a field selector of 34 000 requirements",
            &[201, 413, 422],
            ACCESS_REVIEWS,
            || {
                let requirement =
                    json!({"key": "metadata.name", "operator": "In", "values": ["a"]});
                json!({"user": "u", "resourceAttributes": {"verb": "list", "resource": "pods",
                "fieldSelector": {"requirements": vec![requirement; sized(34_000)]}}})
            },
        ),
        Case::new("rules review: 300 roles", Client::NamespaceAdmin, &[201], |http| {
            let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
            Outcome::from(&http.post(path, &json!({"spec": {"namespace": NAMESPACE}})))
        })
        .before(|admin| {
            let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
            for at in 0..sized(300) {
                let name = json!({"name": format!("many-{at}")});
                let role = json!({"metadata": name, "rules": vec![rule.clone(); 20]});
                admin.post(ROLES, &role).expect(201);
                let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("many-{at}")});
                let subjects = json!([{"kind": "ServiceAccount", "name": "admin", "namespace": NAMESPACE}]);
                let binding = json!({"metadata": name, "roleRef": role, "subjects": subjects});
                admin.post(ROLE_BINDINGS, &binding).expect(201);
            }
        })
        .after(|admin| {
            for at in 0..sized(300) {
                admin.delete(&format!("{ROLE_BINDINGS}/many-{at}")).expect(200);
                admin.delete(&format!("{ROLES}/many-{at}")).expect(200);
            }
        }),
        Case::new(
            "token request: 70 000 audiences",
            Client::NamespaceAdmin,
            &[201, 413, 422],
            |http| {
                let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/user/token");
                let body =
                    json!({"spec": {"audiences": vec!["audience"; sized(70_000)]}}).to_string();
                Outcome::from(&http.send(Method::POST, &path, Some(JSON), body))
            },
        ),
        token("token: a header of 700 KB", &[401, 431], || {
            format!("{}.e30.e30", "W1tb".repeat(sized(175_000)))
        }),
        token("token: claims of 700 KB", &[401, 431], || {
            // {"alg":"RS256"}
            format!("eyJhbGciOiJSUzI1NiJ9.{}.e30", "eyJh".repeat(sized(175_000)))
        }),
        token("token: 200 000 parts", &[401, 431], || "a.".repeat(sized(200_000))),
        signing("certificate request: 1 MB of no DER", || vec![0x30; sized(1_000_000)]),
        signing("certificate request: sequences nested 100 000 times", || {
            let mut der = Vec::new();
            for _ in 0..sized(100_000) {
                der.extend([0x30, 0x84, 0x7f, 0xff, 0xff, 0xff]);
            }
            der
        }),
        signing("certificate request: a length of 2^60", || {
            vec![0x30, 0x88, 0x10, 0, 0, 0, 0, 0, 0, 0]
        }),
        signing("certificate request: a subject of 50 000 names", || {
            // A relative distinguished name: CN=a.
            let name = [
                0x31, 0x0c, 0x30, 0x0a, 0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, 0x03, b'a', b'b', b'c',
            ];
            let subject = der(0x30, &name.repeat(sized(50_000)));
            let info = der(0x30, &[&[0x02, 0x01, 0x00], &subject[..]].concat());
            der(0x30, &info)
        }),
        Case::new(
            "certificate request: 900 KB of PEM blocks",
            Client::ClusterAdmin,
            &[400, 413, 422],
            |http| {
                let pem = "-----BEGIN CERTIFICATE REQUEST-----\nMA==\n-----END CERTIFICATE REQUEST-----\n";
                send_request(http, pem.repeat(sized(11_000)).as_bytes())
            },
        ),
    ]
}

fn signing(name: &'static str, bytes: impl Fn() -> Vec<u8> + 'static) -> Case {
    Case::new(name, Client::ClusterAdmin, &[400, 413, 422], move |http| {
        let body = base64(&bytes());
        let pem = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n"
        );
        send_request(http, pem.as_bytes())
    })
}

fn send_request(http: &integration::Http, pem: &[u8]) -> Outcome {
    let object = json!({"metadata": {"generateName": "hostile-"}, "spec": {
        "request": base64(pem), "signerName": "example.com/signer", "usages": ["client auth"]}});
    Outcome::from(&http.send(Method::POST, REQUESTS, Some(JSON), object.to_string()))
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&[tag, 0x84], &length[..], content].concat()
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
