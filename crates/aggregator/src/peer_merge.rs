//! Discovery of all API servers of a cluster in one document: kube-apiserver's peer-aggregated discovery.

use std::collections::{BTreeMap, BTreeSet};

use meta::Value;

/// Groups of this server and of its peers, by their identities. None: they are this server's.
pub(crate) fn merge_groups(
    id: &str,
    local: &[Value],
    peers: &BTreeMap<String, Vec<Value>>,
) -> Option<Vec<Value>> {
    // Compat: in the order of the identities, so that all servers show the same.
    let mut servers: BTreeMap<&str, &[Value]> =
        peers.iter().map(|(id, groups)| (id.as_str(), &groups[..])).collect();
    servers.insert(id, local);
    let lists: Vec<&[Value]> = servers.into_values().collect();
    let merged = merge(&lists, &group_name, &merge_versions);
    (merged != local).then_some(merged)
}

fn group_name(group: &Value) -> &str {
    group.str_at(&["metadata", "name"])
}

fn version_name(version: &Value) -> &str {
    version.str_at(&["version"])
}

fn resource_name(resource: &Value) -> &str {
    resource.str_at(&["resource"])
}

fn merge_versions(one: &Value, other: &Value) -> Value {
    merge_field(one, other, "versions", &version_name, &merge_resources)
}

fn merge_resources(one: &Value, other: &Value) -> Value {
    merge_field(one, other, "resources", &resource_name, &merge_capabilities)
}

/// The first, with a list that has the items of both.
fn merge_field(
    one: &Value,
    other: &Value,
    field: &str,
    name: &dyn Fn(&Value) -> &str,
    merge_items: &dyn Fn(&Value, &Value) -> Value,
) -> Value {
    let (own, added) = (one.items_at(&[field]), other.items_at(&[field]));
    if own == added {
        return one.clone();
    }
    let mut merged = one.clone();
    merged.set_at(&[field], merge(&[own, added], name, merge_items));
    merged
}

/// A resource with the verbs and subresources of both, sorted.
fn merge_capabilities(one: &Value, other: &Value) -> Value {
    if one == other {
        return one.clone();
    }
    let texts = |resource: &Value| -> BTreeSet<String> {
        let verbs = resource.items_at(&["verbs"]).iter();
        verbs.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let verbs: Vec<Value> = texts(one).union(&texts(other)).map(Value::string).collect();
    let mut subresources = BTreeMap::new();
    for resource in [one, other] {
        for subresource in resource.items_at(&["subresources"]) {
            subresources.insert(subresource.str_at(&["subresource"]), subresource.clone());
        }
    }
    let mut merged = one.clone();
    merged.set_at(&["verbs"], verbs);
    if !subresources.is_empty() {
        merged.set_at(&["subresources"], subresources.into_values().collect::<Vec<_>>());
    }
    merged
}

/// The items of several lists, each once. The first list that has an item decides, `merge_items` adds what
/// later ones say.
fn merge(
    lists: &[&[Value]],
    name: &dyn Fn(&Value) -> &str,
    merge_items: &dyn Fn(&Value, &Value) -> Value,
) -> Vec<Value> {
    let mut by_name: BTreeMap<&str, Value> = BTreeMap::new();
    for list in lists {
        // Of several items of one list that have the same name the first counts: each merge copies what is known,
        // which grows with it.
        let mut seen = BTreeSet::new();
        for item in list.iter().filter(|item| seen.insert(name(item))) {
            match by_name.get_mut(name(item)) {
                Some(known) => *known = merge_items(known, item),
                None => drop(by_name.insert(name(item), item.clone())),
            }
        }
    }
    let names: Vec<Vec<&str>> = lists.iter().map(|list| list.iter().map(name).collect()).collect();
    let ordered = merge_preserving_relative_order(&names);
    ordered.into_iter().filter_map(|name| by_name.remove(name)).collect()
}

/// All names, those of each list in its order as far as the lists agree; otherwise, and where the lists say
/// nothing, sorted.
fn merge_preserving_relative_order<'a>(lists: &[Vec<&'a str>]) -> Vec<&'a str> {
    let mut followers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut preceding: BTreeMap<&str, usize> = BTreeMap::new();
    for list in lists {
        for &name in list {
            followers.entry(name).or_default();
            preceding.entry(name).or_default();
        }
        for pair in list.windows(2) {
            if followers.entry(pair[0]).or_default().insert(pair[1]) {
                *preceding.entry(pair[1]).or_default() += 1;
            }
        }
    }
    let is_whole = |list: &&Vec<&str>| {
        list.len() == followers.len() && list.iter().collect::<BTreeSet<_>>().len() == list.len()
    };
    if let Some(whole) = lists.iter().find(is_whole) {
        return whole.clone();
    }
    let mut free: BTreeSet<&str> =
        preceding.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    let mut ordered = Vec::new();
    while let Some(name) = free.pop_first() {
        ordered.push(name);
        for &follower in &followers[name] {
            let count = preceding.entry(follower).or_default();
            *count -= 1;
            if *count == 0 {
                free.insert(follower);
            }
        }
    }
    if ordered.len() == followers.len() { ordered } else { followers.into_keys().collect() }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn lists_keep_their_order_as_far_as_they_agree() {
        let cases: [(&[&[&str]], &str); 7] = [
            (&[&["b", "a"]], "b a"),
            (&[&["b", "a", "c"], &["a", "c"]], "b a c"),
            (&[&["a", "c"], &["b", "c"]], "a b c"),
            (&[&["z", "m"], &["z", "a", "m"]], "z a m"),
            (&[&["z", "m"], &["z", "a"]], "z a m"),
            // They contradict each other, and neither has all.
            (&[&["b", "a", "x"], &["a", "b", "y"]], "a b x y"),
            (&[&[], &["q"]], "q"),
        ];
        for (lists, expected) in cases {
            let lists: Vec<Vec<&str>> = lists.iter().map(|list| list.to_vec()).collect();
            assert_eq!(merge_preserving_relative_order(&lists).join(" "), expected, "{lists:?}");
        }
    }

    fn resource(name: &str, verbs: &[&str]) -> Value {
        let verbs: Vec<Value> = verbs.iter().map(Value::string).collect();
        value!({"resource": name, "scope": "Namespaced", "verbs": (verbs)})
    }

    fn group(name: &str, versions: &[(&str, Vec<Value>)]) -> Value {
        let versions: Vec<Value> = versions
            .iter()
            .map(|(version, resources)| value!({"version": (*version), "resources": (resources.clone())}))
            .collect();
        value!({"metadata": {"name": name}, "versions": (versions)})
    }

    fn told(groups: &[Value]) -> String {
        let mut lines = Vec::new();
        for group in groups {
            for version in group.items_at(&["versions"]) {
                let resources = version.items_at(&["resources"]).iter().map(|resource| {
                    let verbs = resource.items_at(&["verbs"]).iter().filter_map(Value::as_str);
                    let verbs = verbs.collect::<Vec<_>>().join("+");
                    format!(" {}:{verbs}", resource_name(resource))
                });
                let resources: String = resources.collect();
                lines.push(format!("{}/{}{resources}", group_name(group), version_name(version)));
            }
        }
        lines.join(", ")
    }

    #[test]
    fn discovery_is_merged_in_linear_time() {
        let equal_groups = |n: usize| -> Vec<Value> {
            let resources = |at: usize| vec![resource(&format!("r{at}"), &["get"])];
            (0..n).map(|at| group("g", &[("v1", resources(at))])).collect()
        };
        let other_groups = |n: usize| -> Vec<Value> {
            (0..n).map(|at| group(&format!("g{at}"), &[("v1", vec![])])).rev().collect()
        };
        let long_group = |n: usize| -> Vec<Value> {
            let resources = (0..n).map(|at| resource(&format!("r{}", at / 2), &["get", "list"]));
            vec![group("g", &[("v1", resources.collect())])]
        };
        let local = [group("g", &[("v1", vec![resource("a", &["get"])])])];
        let merged = |groups: &Vec<Value>| {
            let peers = [("a".to_owned(), groups.clone()), ("c".to_owned(), groups.clone())];
            assert!(merge_groups("b", &local, &BTreeMap::from(peers)).is_some());
        };
        meta::growth::assert_linear("equal groups", 1_000, equal_groups, merged);
        meta::growth::assert_linear("other groups", 1_000, other_groups, merged);
        meta::growth::assert_linear("a long group", 1_000, long_group, merged);
    }

    #[test]
    fn groups_versions_and_resources_of_all_servers_are_in_one_list() {
        let local = [
            group("apps", &[("v1", vec![resource("a", &["get"])])]),
            group("batch", &[("v1", vec![])]),
        ];
        let of = |peers: &[(&str, Vec<Value>)]| {
            let peers =
                peers.iter().map(|(id, groups)| ((*id).to_owned(), groups.clone())).collect();
            merge_groups("apiserver-b", &local, &peers).map(|merged| told(&merged))
        };
        // Nothing new.
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("apiserver-c", local.to_vec())]), None);
        assert_eq!(of(&[("apiserver-a", local[..1].to_vec())]), None);
        // A resource, a verb, a version and a group that only the peer has.
        let peer = vec![
            group(
                "apps",
                &[
                    ("v2", vec![]),
                    ("v1", vec![resource("a", &["list", "get"]), resource("b", &["get"])]),
                ],
            ),
            group("new", &[("v1alpha1", vec![])]),
            group("batch", &[("v1", vec![])]),
        ];
        let expected = "apps/v2, apps/v1 a:get+list b:get, new/v1alpha1, batch/v1";
        assert_eq!(of(&[("apiserver-c", peer.clone())]).as_deref(), Some(expected));
        assert_eq!(of(&[("apiserver-a", peer)]).as_deref(), Some(expected));
    }
}
