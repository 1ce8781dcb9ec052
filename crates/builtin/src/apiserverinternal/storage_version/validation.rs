//! Storage versions: what each API server says it stores a resource in, and whether they agree.

use std::collections::{BTreeMap, BTreeSet};

use meta::{
    FieldErrors, Value,
    names::{
        is_dns1035_label, is_dns1123_subdomain, is_qualified_name, name_is_dns_subdomain,
        regex_error,
    },
};

use crate::validation::cursor::Field;

pub(crate) fn status(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let status = root.get("status");
    let servers = status.get("storageVersions");
    let mut seen = BTreeSet::new();
    for server in servers.items() {
        let id = server.get("apiServerID");
        if !seen.insert(id.str().to_owned()) {
            errors.duplicate(id.path(), id.str());
        }
        for why in name_is_dns_subdomain(id.str(), false) {
            id.invalid_value(errors, id.str(), &why);
        }
        versions_of(&server, errors);
    }
    common_version(&status, &servers, errors);
    conditions(&status, errors);
}

fn versions_of(server: &Field<'_>, errors: &mut FieldErrors) {
    let (encoding, decodable) = (server.get("encodingVersion"), server.get("decodableVersions"));
    api_version(&encoding, errors);
    let known: Vec<String> = decodable.items().map(|version| version.str().to_owned()).collect();
    for version in decodable.items() {
        api_version(&version, errors);
    }
    let own = encoding.str();
    if !known.iter().any(|version| version == own) {
        let why = format!("decodableVersions must include encodingVersion {own}");
        decodable.invalid(errors, &why);
    }
    for version in server.get("servedVersions").items() {
        api_version(&version, errors);
        let own = version.str();
        if !known.iter().any(|known| known == own) {
            let why = format!(
                "individual served version : {own} must be included in decodableVersions : [{}]",
                known.join(" ")
            );
            version.invalid(errors, &why);
        }
    }
}

/// `commonEncodingVersion` must be the version that all servers store in, if there is one.
fn common_version(status: &Field<'_>, servers: &Field<'_>, errors: &mut FieldErrors) {
    let given = status.get("commonEncodingVersion");
    let mut versions: BTreeSet<String> = BTreeSet::new();
    versions.extend(servers.items().map(|server| server.str_at(&["encodingVersion"]).to_owned()));
    let common = versions.first().filter(|_| versions.len() == 1);
    let why = match common {
        None if given.is_set() => "should be nil if servers do not agree on the same encoding \
                                  version, or if there is no server reporting the supported \
                                  versions yet"
            .to_owned(),
        Some(common) if !given.is_set() => format!("the common encoding version is {common}"),
        Some(common) if common != given.str() => {
            format!("the actual common encoding version is {common}")
        }
        _ => return,
    };
    given.invalid(errors, &why);
}

fn conditions(status: &Field<'_>, errors: &mut FieldErrors) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (at, condition) in status.get("conditions").items().enumerate() {
        // Compat: upstream leaves `conditions` out of these paths.
        let place = status.path().index(at);
        let name = condition.str_at(&["type"]);
        if let Some(before) = seen.insert(name.to_owned(), at) {
            let why = format!(
                "the type of the condition is not unique, it also appears in conditions[{before}]"
            );
            errors.invalid(place.child("type"), name, &why);
        }
        for field in ["type", "status"] {
            for why in is_qualified_name(condition.str_at(&[field])) {
                errors.invalid(place.child(field), condition.str_at(&[field]), &why);
            }
        }
        for field in ["reason", "message"] {
            if condition.str_at(&[field]).is_empty() {
                errors.required(place.child(field), "");
            }
        }
    }
}

/// `v1`, `apps/v1`.
fn api_version(version: &Field<'_>, errors: &mut FieldErrors) {
    let wrong = api_version_errors(version.str());
    if !wrong.is_empty() {
        version.invalid_value(errors, version.str(), &wrong.join(","));
    }
}

fn api_version_errors(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (group, version) = match parts[..] {
        [version] => (None, version),
        [group, version] => (Some(group), version),
        _ => {
            let rule = regex_error(
                "a DNS-1035 label, which must consist of lower case alphanumeric characters or \
                 '-', start with an alphabetic character, and end with an alphanumeric character",
                "[a-z]([-a-z0-9]*[a-z0-9])?",
                &["my-name", "abc-123"],
            );
            return vec![format!(
                "an apiVersion is {rule} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyVersion')"
            )];
        }
    };
    let part = |name: &str, text: &str, rule: fn(&str) -> Vec<String>| -> Vec<String> {
        let wrong = if text.is_empty() { vec!["must be non-empty".to_owned()] } else { rule(text) };
        wrong.into_iter().map(|why| format!("{name} part: {why}")).collect()
    };
    let mut wrong = Vec::new();
    wrong.extend(group.into_iter().flat_map(|group| part("group", group, is_dns1123_subdomain)));
    wrong.extend(part("version", version, is_dns1035_label));
    wrong
}
