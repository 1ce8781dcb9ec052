//! Paths, queries, selectors and headers.

use bytes::Bytes;
use http::Request;

use super::{Case, Client, NAMESPACE, Outcome, request, sized};

fn pods(query: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods{query}")
}

pub(super) fn cases() -> Vec<Case> {
    let user = Client::NamespaceAdmin;
    let get = |name, client, codes, path: String| Case::get(name, client, codes, path, Vec::new());
    let header = |name, codes, header: &'static str, value: String| {
        Case::get(name, Client::NamespaceAdmin, codes, pods(""), vec![(header, value)])
    };
    vec![
        Case::new(
            "paths: 1 000 of 60 KB, each another one",
            Client::Anonymous,
            &[403, 401],
            |http| {
                let mut connection = http.connect().expect("the server accepts");
                let mut last = Outcome { code: 0, bytes: 0 };
                for i in 0..sized(1_000) {
                    let path = format!("/apis/g{i}{}/v1/r/x/y", "g".repeat(60_000));
                    let request = Request::get(path).body(Bytes::new()).expect("a valid request");
                    last = Outcome::from(&connection.request(request).expect("the server answers"));
                }
                last
            },
        ),
        Case::new("paths: 500 resources that do not exist", Client::ClusterAdmin, &[404], |http| {
            let mut last = Outcome { code: 0, bytes: 0 };
            for i in 0..sized(500) {
                last = request(http, &format!("/apis/apps/v1/r{i}{}", "r".repeat(20_000)), &[]);
            }
            last
        }),
        get("paths: 20 000 slashes", Client::Anonymous, &[403, 404, 401], "/".repeat(20_000)),
        get("paths: 15 000 dots", Client::Anonymous, &[403, 404, 401, 301], "/..".repeat(15_000)),
        get(
            "paths: escapes only",
            Client::Anonymous,
            &[403, 401],
            format!("/{}", "%41".repeat(18_000)),
        ),
        get("namespace: .", Client::ClusterAdmin, &[400], "/api/v1/namespaces/./pods".to_owned()),
        get(
            "namespace: %2e",
            Client::ClusterAdmin,
            &[400],
            "/api/v1/namespaces/%2e/pods".to_owned(),
        ),
        get(
            "namespace: ..",
            Client::ClusterAdmin,
            &[400],
            "/api/v1/namespaces/%2e%2e/pods".to_owned(),
        ),
        get(
            "namespace: .. in a watch",
            Client::ClusterAdmin,
            &[400],
            "/api/v1/namespaces/%2e%2e/pods?watch=1&timeoutSeconds=1".to_owned(),
        ),
        get("query: 15 000 parameters", user, &[400], pods(&format!("?{}", "a=b&".repeat(15_000)))),
        get(
            "query: 8 000 timeouts",
            user,
            &[200, 400],
            pods(&format!("?{}", "timeout=1".repeat(6_000))),
        ),
        get(
            "query: a limit of 10^60",
            user,
            &[200, 400],
            pods(&format!("?limit=1{}", "0".repeat(60))),
        ),
        get(
            "query: a continue token of 50 KB",
            user,
            &[400],
            pods(&format!("?continue={}", "A".repeat(50_000))),
        ),
        get(
            "query: a resource version of 50 KB",
            user,
            &[400],
            pods(&format!("?resourceVersion={}", "9".repeat(50_000))),
        ),
        get("query: a negative resource version", user, &[400], pods("?resourceVersion=-1")),
        get(
            "label selector: 6 000 values",
            user,
            &[200],
            pods(&format!("?labelSelector=a%20in%20({}z)", "abcdefg,".repeat(6_000))),
        ),
        get(
            "label selector: 12 000 requirements",
            user,
            &[200],
            pods(&format!("?labelSelector={}z", "ab%2C".repeat(11_000))),
        ),
        get(
            "label selector: 50 000 parentheses",
            user,
            &[400],
            pods(&format!("?labelSelector=a%20in%20{}", "(".repeat(50_000))),
        ),
        get(
            "label selector: 50 000 exclamation marks",
            user,
            &[400],
            pods(&format!("?labelSelector={}", "!".repeat(50_000))),
        ),
        get(
            "field selector: 10 000 terms",
            user,
            &[200, 400],
            pods(&format!(
                "?fieldSelector={}metadata.name%3Da",
                "metadata.name%3Da%2C".repeat(2_500)
            )),
        ),
        get(
            "field selector: 50 000 backslashes",
            user,
            &[200],
            pods(&format!("?fieldSelector=metadata.name%3D{}", "%5C".repeat(16_000))),
        ),
        get(
            "watch: a selector of 6 000 values",
            user,
            &[200],
            pods(&format!(
                "?watch=1&timeoutSeconds=1&labelSelector=a%20in%20({}z)",
                "abcdefg,".repeat(6_000)
            )),
        ),
        header("accept: 6 000 clauses", &[200, 406], "accept", "a/b;q=0.1,".repeat(5_000)),
        header(
            "accept: 6 000 parameters",
            &[200, 406],
            "accept",
            format!("application/json{}", ";a=b".repeat(12_000)),
        ),
        header(
            "content encoding: 5 000 codings",
            &[200, 406],
            "accept-encoding",
            "gzip;q=0.1,".repeat(5_000),
        ),
        header("audit id: 50 KB", &[200], "audit-id", "a".repeat(50_000)),
        header("user agent: 60 KB", &[200], "user-agent", "a".repeat(60_000)),
        header("impersonation: a user of 60 KB", &[403], "impersonate-user", "a".repeat(60_000)),
        Case::get(
            "impersonation: 3 000 groups",
            Client::NamespaceAdmin,
            &[403, 431, 400, 0],
            pods(""),
            [("impersonate-user", "u".to_owned())]
                .into_iter()
                .chain((0..3_000).map(|i| ("impersonate-group", format!("g{i}"))))
                .collect(),
        ),
        Case::get(
            "headers: 20 000",
            Client::Anonymous,
            &[431, 400, 403, 0],
            "/version".to_owned(),
            (0..20_000).map(|_| ("x-a", "b".to_owned())).collect(),
        ),
        Case::get(
            "headers: 2 MB",
            Client::Anonymous,
            &[431, 400, 0],
            "/version".to_owned(),
            vec![("x-a", "b".repeat(2_000_000))],
        ),
        Case::get(
            "token: 60 KB of dots",
            Client::Anonymous,
            &[401],
            "/version".to_owned(),
            vec![("authorization", format!("Bearer {}", ".".repeat(60_000)))],
        ),
        Case::get(
            "token: a nested header",
            Client::Anonymous,
            &[401],
            "/version".to_owned(),
            // base64url of `[[[[…`
            vec![("authorization", format!("Bearer {}.e30.e30", "W1tb".repeat(10_000)))],
        ),
        Case::get(
            "cors: an origin of 60 KB",
            Client::Anonymous,
            &[200, 403],
            "/version".to_owned(),
            vec![("origin", "http://a".repeat(7_000))],
        ),
    ]
}
