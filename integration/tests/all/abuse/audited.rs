//! An audit log of all bodies: large ones, long lists, and what a client says about itself.

use std::{fs, path::Path};

use serde_json::json;

use super::{Case, Client, JSON, NAMESPACE, Outcome, request, sized};

pub(super) fn cases(log: &Path) -> Vec<Case> {
    let path = log.to_owned();
    let named = move |name, header: &'static str, value: fn() -> String| {
        let log = path.clone();
        Case::new(name, Client::NamespaceAdmin, &[200], move |http| {
            let before = fs::metadata(&log).map_or(0, |log| log.len());
            let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/target");
            let mut last = Outcome::code(0);
            for _ in 0..10 {
                last = request(http, &path, &[(header, value())]);
            }
            // What a client says about itself is cut in what is kept of it.
            let text = fs::read(&log).unwrap_or_default();
            let written = text.get(usize::try_from(before).expect("a size")..).unwrap_or_default();
            let longest = written.split(|byte| *byte == b'\n').map(<[u8]>::len).max();
            assert!(longest.is_some_and(|bytes| bytes < 150_000), "{longest:?} bytes in a line");
            last
        })
    };
    vec![
        Case::new("audit: 10 bodies of 900 KB", Client::NamespaceAdmin, &[201], |http| {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?dryRun=All");
            // Each of these is six bytes in an event.
            let data = "<".repeat(sized(900_000));
            let object = json!({"metadata": {"generateName": "audited-"}, "data": {"a": data}});
            let body = object.to_string();
            let mut last = Outcome::code(0);
            for _ in 0..10 {
                let answer = http.send(http::Method::POST, &path, Some(JSON), body.clone());
                last = Outcome::code(answer.code);
            }
            last
        }),
        Case::new("audit: 200 lists", Client::NamespaceAdmin, &[200], |http| {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
            let mut last = Outcome::code(0);
            for _ in 0..sized(200) {
                last = Outcome::code(http.get(&path).code);
            }
            last
        }),
        Case::new("audit: a body that is no object", Client::NamespaceAdmin, &[400, 413], |http| {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
            let body = vec![b'['; sized(2_900_000)];
            Outcome::from(&http.send(http::Method::POST, &path, Some(JSON), body))
        }),
        named("audit: ids of 50 KB", "audit-id", || "<\"\\>".repeat(12_500)),
        named("audit: user agents of 60 KB", "user-agent", || "<\"\\>".repeat(15_000)),
        named("audit: 60 KB of addresses", "x-forwarded-for", || "192.0.2.1, ".repeat(5_400)),
    ]
}
