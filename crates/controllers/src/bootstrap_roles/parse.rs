//! Parses `roles.txt`; the head of that file describes the format.

use meta::{Value, value};

use super::{AUTOUPDATE, GROUP};

/// The objects, or the line that cannot be parsed.
pub(super) fn objects(text: &str) -> Result<Vec<Value>, String> {
    let mut objects: Vec<Value> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let read = match line.strip_prefix("  ") {
            Some(line) => objects.last_mut().and_then(|role| {
                let mut rules = role.items_at(&["rules"]).to_vec();
                rules.push(rule(line)?);
                role.set_at(&["rules"], rules);
                Some(())
            }),
            None => object(line).map(|object| objects.push(object)),
        };
        read.ok_or_else(|| line.to_owned())?;
    }
    Ok(objects)
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

fn rule(line: &str) -> Option<Value> {
    let texts = |word: &str| -> Vec<Value> { word.split(',').map(Value::from).collect() };
    let groups = |word: &str| -> Vec<Value> {
        word.split(',').map(|group| Value::from(if group == "core" { "" } else { group })).collect()
    };
    let words: Vec<&str> = line.split(' ').collect();
    Some(match words.as_slice() {
        [verbs, paths] => {
            value!({"verbs": (texts(verbs)), "nonResourceURLs": (texts(paths))})
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

    #[test]
    fn the_table_has_every_role_and_binding() {
        let objects = objects(include_str!("roles.txt")).unwrap();
        let count =
            |kind: &str| objects.iter().filter(|object| object.str_at(&["kind"]) == kind).count();
        let counts = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"].map(count);
        assert_eq!(counts, [69, 50, 7, 7]);
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

    #[test]
    fn lines_become_objects() {
        let text = "ClusterRole x aggregate-to=edit aggregates=view\n\nRole n/r\n  get,list core,apps a,b/c d\n  get /x,/y/*\nBind n/b r User:u:v ServiceAccount:m/s\n";
        let objects = objects(text).unwrap();
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
        assert!(super::objects("Role").is_err() && super::objects("Role r\n  get").is_err());
    }
}
