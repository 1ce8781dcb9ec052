use meta::{RequestInfo, Str, Value, value};

use super::*;
use crate::authz::Decision;

/// Roles that stay as they are.
struct Fixed(Arc<Index>);

impl Roles for Fixed {
    fn current(&self) -> Arc<Index> {
        self.0.clone()
    }
}

fn rbac(index: Index) -> Rbac {
    Rbac(Arc::new(Fixed(Arc::new(index))))
}

fn rules(rules: Value) -> Vec<Rule> {
    Rule::all_of(&value!({"rules": (rules)}))
}

fn binding(role: (&str, &str), subject: Value) -> Value {
    value!({"roleRef": {"kind": (role.0), "name": (role.1)}, "subjects": [(subject)]})
}

fn group(name: &str) -> Value {
    value!({"kind": "Group", "name": (name)})
}

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(Str::new).collect(), ..User::default() }
}

fn decide(rbac: &Rbac, user: &User, text: &str) -> Verdict {
    let info = request(text);
    match rbac.authorize(&Attributes::of_request(user, &info)) {
        Authorize::Ready(verdict) => verdict,
        Authorize::Pending(_) => panic!("decides from memory"),
    }
}

fn allows(rule: &Rule, text: &str) -> bool {
    rule.allows(&Attributes::of_request(&User::default(), &request(text)))
}

/// `verb [namespace:]resource[/subresource][.group][=name]`, or `verb /path`.
fn request(text: &str) -> RequestInfo {
    let (verb, what) = text.split_once(' ').unwrap();
    if what.starts_with('/') {
        return RequestInfo { verb: verb.into(), path: what.into(), ..RequestInfo::default() };
    }
    let (what, name) = what.split_once('=').unwrap_or((what, ""));
    let (namespace, what) = what.split_once(':').unwrap_or(("", what));
    let (what, group) = what.split_once('.').unwrap_or((what, ""));
    let (resource, subresource) = what.split_once('/').unwrap_or((what, ""));
    RequestInfo {
        verb: verb.into(),
        is_resource: true,
        group: group.into(),
        namespace: namespace.into(),
        resource: resource.into(),
        subresource: subresource.into(),
        name: name.into(),
        ..RequestInfo::default()
    }
}

#[test]
fn a_rule_allows_what_it_names_and_nothing_else() {
    let pods = value!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    let named = value!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"],
        "resourceNames": ["a", "b"]});
    let scales = value!({"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*/scale"]});
    let all = value!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let paths = value!({"verbs": ["get"], "nonResourceURLs": ["/version", "/healthz/*"]});
    let cases: [(&Value, &[&str], &[&str]); 5] = [
        (
            &pods,
            &["get pods", "get pods=x", "get ns:pods=x"],
            &["list pods", "get pods/log=x", "get secrets", "get pods.apps", "get /pods"],
        ),
        (&named, &["get n:pods=a"], &["get n:pods=c", "get n:pods"]),
        (
            &scales,
            &["patch n:deployments/scale.apps=x", "get statefulsets/scale.apps"],
            &[
                "get deployments.apps",
                "get deployments/status.apps",
                "get x/scale",
                "get scale.apps",
            ],
        ),
        (&all, &["get pods", "delete x/y.z=w"], &["get /version"]),
        (
            &paths,
            &["get /version", "get /healthz/", "get /healthz/ping"],
            &["get /versions", "get /healthz", "post /version", "get version"],
        ),
    ];
    for (rule, allowed, refused) in cases {
        let rule = Rule::from_object(rule);
        for text in allowed {
            assert!(allows(&rule, text), "{rule:?} allows {text}");
        }
        for text in refused {
            assert!(!allows(&rule, text), "{rule:?} refuses {text}");
        }
    }
}

#[test]
fn bindings_give_roles_to_users_groups_and_service_accounts() {
    let mut index = Index::default();
    let read =
        || Some(rules(value!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])));
    index.set_role("", "reader", read());
    index.set_role("ns", "local", read());
    let jane = value!({"kind": "User", "name": "jane"});
    index.set_binding("", "everywhere", Some(&binding(("ClusterRole", "reader"), group("ops"))));
    index.set_binding("ns", "here", Some(&binding(("ClusterRole", "reader"), jane.clone())));
    let robot = value!({"kind": "ServiceAccount", "name": "robot"});
    index.set_binding("ns", "robots", Some(&binding(("Role", "local"), robot.clone())));
    // In the cluster there is no namespace that the account could be in.
    index.set_binding("", "nowhere", Some(&binding(("ClusterRole", "reader"), robot)));
    index.set_binding("ns", "broken", Some(&binding(("ClusterRole", "gone"), group("lost"))));
    let robot = user("system:serviceaccount:ns:robot", &["system:serviceaccounts"]);
    let cases = [
        (
            user("x", &["ops"]),
            "get pods",
            true,
            "RBAC: allowed by ClusterRoleBinding \"everywhere\" of ClusterRole \"reader\" to Group \"ops\"",
        ),
        (
            user("x", &["ops"]),
            "get other:pods",
            true,
            "RBAC: allowed by ClusterRoleBinding \"everywhere\" of ClusterRole \"reader\" to Group \"ops\"",
        ),
        (
            user("jane", &[]),
            "get ns:pods",
            true,
            "RBAC: allowed by RoleBinding \"here/ns\" of ClusterRole \"reader\" to User \"jane\"",
        ),
        (user("jane", &[]), "get other:pods", false, ""),
        (user("jane", &[]), "get pods", false, ""),
        (
            robot.clone(),
            "get ns:pods",
            true,
            "RBAC: allowed by RoleBinding \"robots/ns\" of Role \"local\" to ServiceAccount \"robot/ns\"",
        ),
        (robot, "get pods", false, ""),
        (
            user("x", &["lost"]),
            "get ns:pods",
            false,
            "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found",
        ),
    ];
    let rbac = rbac(index);
    for (user, text, allowed, reason) in cases {
        let verdict = decide(&rbac, &user, text);
        assert_eq!(verdict.decision == Decision::Allow, allowed, "{} {text}", user.name);
        assert_eq!(verdict.reason, reason, "{} {text}", user.name);
        assert_eq!(verdict.error, None);
    }
}

#[test]
fn what_is_taken_away_is_gone() {
    let mut index = Index::default();
    let all = || rules(value!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]));
    index.set_role("", "all", Some(all()));
    index.set_binding("n", "b", Some(&binding(("ClusterRole", "all"), group("g"))));
    let allowed = |index: &Index| {
        let verdict = decide(&rbac(index.clone()), &user("u", &["g"]), "get n:pods");
        verdict.decision == Decision::Allow
    };
    let before = index.clone();
    assert!(allowed(&index));
    index.set_binding("n", "b", Some(&binding(("ClusterRole", "all"), group("other"))));
    assert!(!allowed(&index));
    index.set_binding("n", "b", Some(&binding(("ClusterRole", "all"), group("g"))));
    assert!(allowed(&index));
    index.set_role("", "all", None);
    assert!(!allowed(&index));
    index.set_role("", "all", Some(all()));
    index.set_binding("n", "b", None);
    assert!(!allowed(&index));
    assert!(allowed(&before), "a reader of the old index still has it");
}

#[test]
fn rules_are_listed_with_what_could_not_be_resolved() {
    let mut index = Index::default();
    let both = value!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["get"], "nonResourceURLs": ["/version"]}]);
    index.set_role("", "both", Some(rules(both)));
    index.set_binding("", "a", Some(&binding(("ClusterRole", "both"), group("g"))));
    index.set_binding("n", "b", Some(&binding(("Role", "gone"), group("g"))));
    let listed = rbac(index).rules(&user("u", &["g"]), "n");
    assert_eq!(listed.resource.len(), 1);
    assert_eq!(listed.resource[0].resources, ["pods"]);
    assert_eq!(listed.non_resource[0].urls, ["/version"]);
    assert!(!listed.incomplete);
    assert_eq!(listed.error.as_deref(), Some("role.rbac.authorization.k8s.io \"gone\" not found"));
}

#[test]
fn nobody_hands_out_what_he_does_not_have() {
    let held = rules(value!([
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/scale"]},
        {"verbs": ["get"], "apiGroups": ["apps"], "resources": ["*"], "resourceNames": ["web"]},
        {"verbs": ["get"], "nonResourceURLs": ["/healthz/*"]},
    ]));
    let mut index = Index::default();
    index.set_role("", "held", Some(held));
    index.set_binding("", "b", Some(&binding(("ClusterRole", "held"), group("g"))));
    let rbac = rbac(index);
    let head =
        "user \"u\" (groups=[\"g\"]) is attempting to grant RBAC permissions not currently held:\n";
    let cases = [
        (value!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]), ""),
        (
            value!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["x"]}]),
            "",
        ),
        (value!([{"verbs": ["list"], "apiGroups": [""], "resources": ["deployments/scale"]}]), ""),
        (value!([{"verbs": ["get"], "nonResourceURLs": ["/healthz/ping", "/healthz/*"]}]), ""),
        (
            value!([{"verbs": ["get", "delete", "watch"], "apiGroups": [""], "resources": ["pods"]}]),
            "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"watch\"]}",
        ),
        (
            value!([{"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}]),
            "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"*\"]}",
        ),
        (
            value!([{"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"]}]),
            "{APIGroups:[\"apps\"], Resources:[\"deployments\"], Verbs:[\"get\"]}",
        ),
        (
            value!([{"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["web", "db"]}]),
            "{APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"db\"], Verbs:[\"get\"]}",
        ),
        (
            value!([{"verbs": ["get", "post"], "nonResourceURLs": ["*", "/healthz/x"]}]),
            "{NonResourceURLs:[\"*\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"post\"]}\n\
             {NonResourceURLs:[\"/healthz/x\"], Verbs:[\"post\"]}",
        ),
    ];
    for (wanted, expected) in cases {
        let answer = rbac.confirm_no_escalation(&user("u", &["g"]), "", &rules(wanted));
        let expected = match expected {
            "" => Ok(()),
            lacking => Err(format!("{head}{lacking}")),
        };
        assert_eq!(answer, expected);
    }
}

/// The cheapest of several rounds of a hundred decisions.
fn round(index: &Arc<Index>, user: &User) -> std::time::Duration {
    let rbac = Rbac(Arc::new(Fixed(index.clone())));
    let attributes =
        Attributes { namespace: "ns", ..Attributes::of_resource(user, "get", "", "pods") };
    let rounds = (0..20).map(|_| {
        let began = std::time::Instant::now();
        for _ in 0..100 {
            let Authorize::Ready(verdict) = rbac.authorize(&attributes) else { panic!("it waits") };
            assert!(verdict.is_allowed());
        }
        began.elapsed()
    });
    rounds.min().expect("there are rounds")
}

/// Roles and bindings in the cluster and in a namespace, one user each.
fn filled(count: usize) -> Index {
    let mut index = Index::default();
    for at in 0..count {
        let namespace = if at % 2 == 0 { "" } else { "ns" };
        let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
        let name = format!("role-{at}");
        let rule =
            value!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
        index.set_role(namespace, &name, Some(Rule::all_of(&rule)));
        let binding = value!({
            "roleRef": {"kind": (kind), "name": (name.as_str())},
            "subjects": [{"kind": "User", "name": (format!("user-{at}"))}],
        });
        index.set_binding(namespace, &name, Some(&binding));
    }
    index
}

/// A decision does not depend on the roles and bindings of others, nor does a change.
#[test]
fn ten_thousand_roles_and_bindings_cost_what_a_hundred_do() {
    let (small, mut large) = (filled(100), filled(10_000));
    for at in [50, 51] {
        let user = User { name: format!("user-{at}").into(), ..User::default() };
        let (few, many) =
            (round(&Arc::new(small.clone()), &user), round(&Arc::new(large.clone()), &user));
        let bound = few * 10 + std::time::Duration::from_millis(2);
        assert!(many < bound, "{few:?} per hundred decisions became {many:?}");
    }
    // With an index in use, as in the server.
    let used = large.clone();
    let began = std::time::Instant::now();
    for _ in 0..100 {
        large.set_binding("", "role-0", None);
    }
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_millis(500), "a hundred changes took {took:?}");
    let user = User { name: "user-0".into(), ..User::default() };
    assert_eq!((used.granted(&user, "").count(), large.granted(&user, "").count()), (1, 0));
}
