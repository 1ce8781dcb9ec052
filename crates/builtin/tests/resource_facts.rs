//! Is every resource there, under the right names? `resource-facts.tsv` has what kube-apiserver's
//! discovery says with every API on, and where and how it stored one object of each resource. `?` marks
//! what was not observed, as the resource is off by default.

use builtin::Definitions;
use meta::Str;
use schema::{ResourceFacts, StorageEncoding};

#[test]
fn resources_are_those_of_discovery() {
    let definitions = Definitions::load();
    let mut differences = Vec::new();
    let mut rows = 0;
    for line in include_str!("resource-facts.tsv").lines().skip(1) {
        let expected: Vec<&str> = line.split('\t').collect();
        rows += 1;
        let found = definitions.resources.iter().find(|resource| {
            [&resource.kind.group, &resource.kind.version, &resource.plural]
                == [expected[0], expected[1], expected[2]]
        });
        let Some(resource) = found else {
            differences.push(format!("{}/{} {} is missing", expected[0], expected[1], expected[2]));
            continue;
        };
        for (expected, ours) in expected.iter().zip(row(resource)) {
            if *expected != "?" && *expected != ours {
                differences.push(format!("{}: {expected}, ours: {ours}", resource.plural));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert_eq!(
        definitions.resources.len(),
        rows,
        "there are resources that discovery doesn't have"
    );
}

fn row(resource: &ResourceFacts) -> [String; 15] {
    let storage = resource.storage.as_ref();
    let subresources: Vec<_> = resource
        .subresources
        .iter()
        .map(|subresource| {
            let kind = &subresource.kind;
            let home = kind.group_version() == resource.group_version();
            let group =
                if home { String::new() } else { format!("{}/{}.", kind.group, kind.version) };
            format!("{}[{group}{}]({})", subresource.name, kind.kind, subresource.verbs.join(","))
        })
        .collect();
    let mut labels: Vec<Str> =
        resource.selectable.iter().map(|field| field.label.clone()).collect();
    labels.sort();
    [
        resource.kind.group.to_string(),
        resource.kind.version.to_string(),
        resource.plural.to_string(),
        resource.kind.kind.to_string(),
        resource.singular.to_string(),
        resource.short_names.join(","),
        resource.categories.join(","),
        if resource.namespaced { "namespaced" } else { "cluster" }.to_owned(),
        resource.verbs.join(","),
        subresources.join(" "),
        storage.map(|storage| storage.version_hash.to_string()).unwrap_or_default(),
        if resource.on_by_default { "on" } else { "off" }.to_owned(),
        storage.map_or("-".to_owned(), |storage| {
            let encoding =
                if storage.encoding == StorageEncoding::Json { "json" } else { "protobuf" };
            let version =
                [&storage.version.group, &storage.version.version].map(Str::as_str).join("/");
            format!("/registry/{}/ {encoding} {}", storage.prefix, version.trim_start_matches('/'))
        }),
        labels.join(","),
        // The file has X for the label, in quotes or not.
        resource.unknown_label("X"),
    ]
}
