//! Parses `roles.txt`; the head of that file describes the format.

use meta::{Value, value};

use super::{AUTOUPDATE, GROUP};

/// Whether a feature gate is on.
pub(super) type IsOn<'a> = &'a dyn Fn(&str) -> bool;

/// The objects, or the line that cannot be parsed.
pub(super) fn objects(text: &str, is_on: IsOn<'_>) -> Result<Vec<Value>, String> {
    let mut objects: Vec<Value> = Vec::new();
    // Whether the rules that follow belong to an object that is there.
    let mut is_there = true;
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let parsed = match line.strip_prefix("  ") {
            Some(line) => gated(line, is_on).and_then(|(line, gates_are_on)| {
                let rule = rule(line, is_on)?;
                if is_there && gates_are_on {
                    let role = objects.last_mut()?;
                    let mut rules = role.items_at(&["rules"]).to_vec();
                    rules.push(rule);
                    role.set_at(&["rules"], rules);
                }
                Some(())
            }),
            None => gated(line, is_on).and_then(|(line, gates_are_on)| {
                is_there = gates_are_on;
                let object = object(line)?;
                objects.extend(gates_are_on.then_some(object));
                Some(())
            }),
        };
        parsed.ok_or_else(|| line.to_owned())?;
    }
    Ok(objects)
}

/// A line without its gates, and whether they are on.
fn gated<'a>(line: &'a str, is_on: IsOn<'_>) -> Option<(&'a str, bool)> {
    let Some(marked) = line.strip_prefix('@') else { return Some((line, true)) };
    let (gates, rest) = marked.split_once(' ')?;
    Some((rest, gates.split(',').all(is_on)))
}

fn object(line: &str) -> Option<Value> {
    let mut words = line.split(' ');
    let (word, name) = (words.next()?, words.next()?);
    let (namespace, name) = match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, name),
    };
    let is_binding = word == "Bind";
    let kind = match (word, namespace) {
        ("Bind", None) => "ClusterRoleBinding",
        ("Bind", Some(_)) => "RoleBinding",
        ("ClusterRole" | "Role", _) => word,
        _ => return None,
    };
    let mut object = value!({
        "kind": (kind),
        "apiVersion": (format!("{GROUP}/v1")),
        "metadata": {
            "name": (name),
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        },
    });
    object.set_at(&["metadata", "annotations", AUTOUPDATE], "true");
    if let Some(namespace) = namespace {
        object.set_at(&["metadata", "namespace"], namespace);
    }
    if is_binding {
        let role_kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        let role = value!({"apiGroup": (GROUP), "kind": (role_kind), "name": (words.next()?)});
        object.set_at(&["roleRef"], role);
        let subjects = words.map(subject).collect::<Option<Vec<_>>>()?;
        if !subjects.is_empty() {
            object.set_at(&["subjects"], subjects);
        }
        return Some(object);
    }
    for word in words {
        let (what, to) = word.split_once('=')?;
        let label = format!("{GROUP}/aggregate-to-{to}");
        match what {
            "aggregate-to" => object.set_at(&["metadata", "labels", &label], "true"),
            "aggregates" => {
                let mut selector = Value::object();
                selector.set_at(&["matchLabels", &label], "true");
                object.set_at(&["aggregationRule", "clusterRoleSelectors"], vec![selector]);
            }
            _ => return None,
        }
    }
    Some(object)
}

fn subject(word: &str) -> Option<Value> {
    let (kind, name) = word.split_once(':')?;
    if kind == "ServiceAccount" {
        let (namespace, name) = name.split_once('/')?;
        return Some(value!({"kind": (kind), "name": (name), "namespace": (namespace)}));
    }
    Some(value!({"apiGroup": (GROUP), "kind": (kind), "name": (name)}))
}

fn rule(line: &str, is_on: IsOn<'_>) -> Option<Value> {
    let texts = |word: &str| -> Vec<Value> { word.split(',').map(Value::from).collect() };
    let groups = |word: &str| -> Vec<Value> {
        word.split(',').map(|group| Value::from(if group == "core" { "" } else { group })).collect()
    };
    let words: Vec<&str> = line.split(' ').collect();
    Some(match words.as_slice() {
        [verbs, paths] => {
            let paths = paths.split(',').filter_map(|path| match path.split_once('@') {
                Some((path, gate)) => is_on(gate).then(|| Value::from(path)),
                None => Some(Value::from(path)),
            });
            let paths: Vec<Value> = paths.collect();
            value!({"verbs": (texts(verbs)), "nonResourceURLs": (paths)})
        }
        [verbs, api_groups, resources, names @ ..] if names.len() < 2 => {
            let mut rule = value!({
                "verbs": (texts(verbs)),
                "apiGroups": (groups(api_groups)),
                "resources": (texts(resources)),
            });
            if let [names] = names {
                rule.set_at(&["resourceNames"], texts(names));
            }
            rule
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: &str = include_str!("roles.txt");

    #[test]
    fn the_table_has_every_role_and_binding() {
        let on_by_default =
            |gate: &str| gate.starts_with("Component") || gate == "APIServerIdentity";
        let all_on = |_: &str| true;
        let cases: [(IsOn<'_>, [usize; 4]); 2] =
            [(&on_by_default, [69, 50, 7, 7]), (&all_on, [76, 57, 7, 7])];
        for (is_on, expected) in cases {
            let objects = objects(ROLES, is_on).unwrap();
            let count = |kind: &str| {
                objects.iter().filter(|object| object.str_at(&["kind"]) == kind).count()
            };
            let counts = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"].map(count);
            assert_eq!(counts, expected);
            // Every binding refers to a role of the table.
            for binding in objects.iter().filter(|object| object.get("roleRef").is_some()) {
                let role = |field| binding.str_at(&["roleRef", field]);
                assert!(
                    objects.iter().any(|object| object.str_at(&["kind"]) == role("kind")
                        && object.str_at(&["metadata", "name"]) == role("name")),
                    "{binding:?}"
                );
            }
        }
    }

    /// Every gate adds its rules, and no other's.
    #[test]
    fn a_gate_adds_its_roles_rules_and_bindings() {
        let rules = |gates: &[&str]| {
            let objects = objects(ROLES, &|gate| gates.contains(&gate)).unwrap();
            let rules =
                objects.iter().map(|object| object.items_at(&["rules"]).len()).sum::<usize>();
            (objects.len() as i64, rules as i64)
        };
        let (objects, all) = rules(&["APIServerIdentity"]);
        let cases: [(&str, (i64, i64)); 9] = [
            ("ClusterTrustBundle", (4, 5)),
            ("DRADeviceTaintRules", (0, 3)),
            ("DRAResourcePoolStatus", (2, 5)),
            ("DRAWorkloadResourceClaims", (0, 2)),
            ("GenericWorkload", (2, 6)),
            ("PodCertificateRequest", (2, 2)),
            ("StorageVersionAPI", (2, 3)),
            ("StorageVersionMigrator", (2, 4)),
            ("WorkloadWithJob", (0, 1)),
        ];
        for (gate, added) in cases {
            let with = rules(&["APIServerIdentity", gate]);
            assert_eq!((with.0 - objects, with.1 - all), added, "{gate}");
        }
        assert_eq!(rules(&["StorageVersionAPI"]), rules(&[]), "it needs APIServerIdentity");
        let asked = std::cell::RefCell::new(std::collections::BTreeSet::new());
        let ask = |gate: &str| asked.borrow_mut().insert(gate.to_owned());
        super::objects(ROLES, &|gate| {
            ask(gate);
            true
        })
        .unwrap();
        let listed = super::super::ROLE_GATES.map(str::to_owned);
        assert_eq!(
            asked.into_inner(),
            listed.into(),
            "a gate that is not listed seems to have no effect"
        );
    }

    #[test]
    fn lines_become_objects() {
        let text = "ClusterRole x aggregate-to=edit aggregates=view\n\n@Off Role n/q\n  get a b\nRole n/r\n  get,list core,apps a,b/c d\n  @Off get a b\n  @On get /x,/y/*,/z@Off\n@On Bind n/b r User:u:v ServiceAccount:m/s\n";
        let is_on = |gate: &str| gate == "On";
        let objects = objects(text, &is_on).unwrap();
        assert_eq!(
            objects[0].at(&["aggregationRule"]),
            Some(
                &value!({"clusterRoleSelectors": [{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}]})
            )
        );
        assert_eq!(
            objects[1].get("rules"),
            Some(&value!([
                {"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["a", "b/c"], "resourceNames": ["d"]},
                {"verbs": ["get"], "nonResourceURLs": ["/x", "/y/*"]},
            ]))
        );
        assert_eq!(
            objects[2].get("subjects"),
            Some(&value!([
                {"apiGroup": (GROUP), "kind": "User", "name": "u:v"},
                {"kind": "ServiceAccount", "name": "s", "namespace": "m"},
            ]))
        );
        for wrong in ["Role", "Role r\n  get", "@Off Role r\n  get", "@Off"] {
            assert!(super::objects(wrong, &is_on).is_err(), "{wrong}");
        }
    }
}
