use std::time::Instant;

use meta::{AuditLevel, RequestInfo, User};

use super::{Policy, decode::parse};
use crate::event::Stage;

fn policy(rules: &str) -> Policy {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}");
    parse(text.as_bytes()).expect(rules)
}

/// `get apps deployments/scale ns/name`
fn request(text: &str) -> RequestInfo {
    let mut words = text.split(' ');
    let mut next = || words.next().unwrap_or_default();
    let verb = next().into();
    let group = next();
    if group.starts_with('/') {
        return RequestInfo { verb, path: group.to_owned(), ..RequestInfo::default() };
    }
    let (resource, subresource) = {
        let text = next();
        text.split_once('/').unwrap_or((text, ""))
    };
    let (namespace, name) = {
        let text = next();
        text.split_once('/').unwrap_or((text, ""))
    };
    RequestInfo {
        verb,
        is_resource: true,
        group: if group == "core" { "" } else { group }.into(),
        resource: resource.into(),
        subresource: subresource.into(),
        namespace: namespace.into(),
        name: name.into(),
        ..RequestInfo::default()
    }
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|group| (*group).into()).collect();
    User { name: name.into(), groups, ..User::default() }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = policy(
        r#"
omitStages: [RequestReceived]
rules:
- {level: None, users: [quiet]}
- {level: Metadata, userGroups: [staff], verbs: [get, list]}
- {level: Request, resources: [{group: "", resources: [secrets, "pods/log"]}]}
- {level: RequestResponse, resources: [{group: apps, resources: ["*/scale"]}], omitStages: [Panic]}
- {level: Metadata, resources: [{group: apps, resources: ["daemonsets/*"], resourceNames: [a, b]}]}
- {level: Request, resources: [{group: "*", resources: ["*"]}], namespaces: [ns1]}
- {level: Metadata, resources: [{group: "batch"}], namespaces: [""]}
- {level: Metadata, nonResourceURLs: ["/healthz*", "/metrics"]}
- {level: RequestResponse, nonResourceURLs: ["*"], userGroups: ["staff"]}
"#,
    );
    let (joe, staff) = (user("joe", &["x"]), user("ann", &["y", "staff"]));
    let cases = [
        (&joe, "get core secrets ns/a", AuditLevel::Request),
        (&joe, "get core secrets/status ns/a", AuditLevel::None),
        (&joe, "get core pods/log ns/a", AuditLevel::Request),
        (&joe, "get core pods ns/a", AuditLevel::None),
        (&staff, "get core pods ns/a", AuditLevel::Metadata),
        (&staff, "create core pods ns/a", AuditLevel::None),
        (&joe, "get apps deployments/scale ns/a", AuditLevel::RequestResponse),
        (&joe, "get apps deployments ns/a", AuditLevel::None),
        (&joe, "get apps daemonsets/status ns/a", AuditLevel::Metadata),
        (&joe, "get apps daemonsets ns/b", AuditLevel::Metadata),
        (&joe, "get apps daemonsets ns/c", AuditLevel::None),
        (&joe, "get some.group things/sub ns1/x", AuditLevel::Request),
        (&joe, "get batch jobs", AuditLevel::Metadata),
        (&joe, "get batch jobs ns/x", AuditLevel::None),
        (&joe, "get /healthz/ping", AuditLevel::Metadata),
        (&joe, "get /metrics", AuditLevel::Metadata),
        (&joe, "get /metrics/slis", AuditLevel::None),
        (&staff, "post /else", AuditLevel::RequestResponse),
        (&user("quiet", &["staff"]), "get core secrets ns/a", AuditLevel::None),
    ];
    for (user, text, level) in cases {
        let answer = policy.evaluate(Some(user), &request(text));
        assert_eq!(answer.level, level, "{}: {text}", user.name);
    }
    let answer = policy.evaluate(None, &request("get core secrets ns/a"));
    assert_eq!(answer.level, AuditLevel::Request);
    assert!(answer.omit_stages.contains(Stage::RequestReceived));
    assert!(!answer.omit_stages.contains(Stage::Panic));
    assert_eq!(policy.evaluate(None, &request("post /else")).level, AuditLevel::None);
    let answer = policy.evaluate(Some(&joe), &request("get apps deployments/scale ns/a"));
    assert!(answer.omit_stages.contains(Stage::Panic));
    assert!(answer.omit_stages.contains(Stage::RequestReceived));
}

#[test]
fn a_rule_overrides_omit_managed_fields() {
    let policy = policy(
        "omitManagedFields: true\nrules:\n- {level: Request, verbs: [a], omitManagedFields: false}\n- {level: Request}",
    );
    let joe = user("joe", &[]);
    assert!(!policy.evaluate(Some(&joe), &request("a core pods")).omit_managed_fields);
    assert!(policy.evaluate(Some(&joe), &request("b core pods")).omit_managed_fields);
}

#[test]
fn errors_have_the_words_of_kubernetes_and_a_line() {
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    let cases = [
        ("", "failed decoding: couldn't get version/kind; json parse error: not an object: null"),
        ("a: [", "failed decoding: yaml: line "),
        ("kind: Policy", "failed decoding: Object 'apiVersion' is missing"),
        ("apiVersion: audit.k8s.io/v1", "failed decoding: Object 'Kind' is missing"),
        (
            "apiVersion: audit.k8s.io/v1beta1\nkind: Policy",
            "failed decoding: no kind \"Policy\" is registered for version \"audit.k8s.io/v1beta1\": \
             only Policy of audit.k8s.io/v1 is",
        ),
        (head, "loaded illegal policy with 0 rules"),
        (
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n  user: [a]\n  level: Metadata",
            "failed decoding: strict decoding error: line 6: key \"level\" already set in map, line 5: \
             unknown field \"rules[0].user\"",
        ),
        (
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n  users: joe",
            "failed decoding: line 5: json: cannot unmarshal string into field rules[0].users of type list",
        ),
        (
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- users: [a]",
            "rules[0].level: Required value (line 4)",
        ),
        (
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Full",
            "rules[0].level: Unsupported value: \"Full\": supported values: \"None\", \"Metadata\", \
             \"Request\", \"RequestResponse\" (line 4)",
        ),
        (
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [Foo]\nrules:\n- level: None\n  nonResourceURLs: [logs, /a*b]\n  namespaces: [x]",
            "[omitStages[0]: Invalid value: \"Foo\": allowed stages are \
             RequestReceived,ResponseStarted,ResponseComplete,Panic (line 3), \
             rules[0].nonResourceURLs[0]: Invalid value: \"logs\": non-resource URL rules must begin \
             with a '/' character (line 6), \
             rules[0].nonResourceURLs[1]: Invalid value: \"/a*b\": non-resource URL wildcards '*' must \
             be the final character of the rule (line 6), \
             rules[0].nonResourceURLs: Invalid value: [\"logs\",\"/a*b\"]: rules cannot apply to both \
             regular resources and non-resource URLs (line 6)]",
        ),
        (
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n  resources:\n  - group: rbac/v1\n    resourceNames: [a]",
            "[rules[0].resources.group: Invalid value: \"rbac/v1\": a lowercase RFC 1123 subdomain must",
        ),
    ];
    for (text, expected) in cases {
        let error = parse(text.as_bytes()).expect_err(text);
        assert!(error.starts_with(expected), "{text}\n got: {error}\nwant: {expected}");
    }
}

#[test]
fn an_error_names_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    let missing = Policy::load(&file).unwrap_err();
    assert!(missing.contains("policy.yaml") && missing.contains("failed to read"), "{missing}");
    std::fs::write(&file, "kind: Policy").unwrap();
    let wrong = Policy::load(&file).unwrap_err();
    assert!(wrong.ends_with(&format!(": from file {}", file.display())), "{wrong}");
    std::fs::write(&file, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(Policy::load(&file).unwrap_err().contains("larger than"));
}

/// `cargo test --release -p audit -- --ignored --nocapture cost`
#[test]
#[ignore = "a measurement"]
fn cost_of_fifty_rules() {
    let rules: String = (0..50)
        .map(|n| {
            format!(
                "- {{level: Request, users: [user{n}, other{n}], verbs: [get, list], resources: \
                 [{{group: apps, resources: [things{n}, others{n}]}}]}}\n"
            )
        })
        .collect();
    let by_user = policy(&format!("rules:\n{rules}"));
    let rules = rules.replace("users: [", "userGroups: [");
    let by_group = policy(&format!("rules:\n{rules}"));
    let user = user("joe", &["a", "b", "system:authenticated"]);
    let info = request("get apps things49 ns/name");
    for (name, policy) in [("users", by_user), ("groups", by_group)] {
        let began = Instant::now();
        for _ in 0..100_000 {
            assert_eq!(policy.evaluate(Some(&user), &info).level, AuditLevel::None);
        }
        println!("50 rules by {name}: {:?} per request", began.elapsed() / 100_000);
    }
}
