//! The environment of a container, and what of a pod can be shown to it.

use meta::{
    FieldErrors,
    names::{
        is_config_map_key, is_dns1123_label, is_dns1123_subdomain, is_qualified_name,
        is_relaxed_env_var_name, name_is_dns_subdomain,
    },
    quantity::Quantity,
};

use super::{each_container, volume_sources::no_backsteps};
use crate::validation::cursor::Field;

pub(crate) fn variables(variables: &Field<'_>, errors: &mut FieldErrors) {
    for variable in variables.items() {
        variable.get("name").require_rule(errors, is_relaxed_env_var_name);
        value_from(&variable, errors);
    }
}

fn value_from(variable: &Field<'_>, errors: &mut FieldErrors) {
    let from = variable.get("valueFrom");
    if !from.is_set() {
        return;
    }
    let mut found = 0;
    let mut each = |name: &str, check: &dyn Fn(&Field<'_>, &mut FieldErrors)| {
        let source = from.get(name);
        if source.is_set() {
            found += 1;
            check(&source, errors);
        }
    };
    each("fieldRef", &|source, errors| field_ref(source, ENV_FIELDS, errors));
    each("resourceFieldRef", &|source, errors| resource_ref(source, false, errors));
    each("configMapKeyRef", &key_ref);
    each("secretKeyRef", &key_ref);
    each("fileKeyRef", &file_key_ref);
    let why = match found {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, \
             `secretKeyRef` or `fileKeyRef`"
        }
        _ if !variable.get("value").is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    from.invalid_value(errors, "", why);
}

fn key_ref(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("name").rule(errors, is_dns1123_subdomain);
    source.get("key").require_rule(errors, is_config_map_key);
}

fn file_key_ref(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("key").require_rule(errors, is_relaxed_env_var_name);
    source.get("volumeName").require_rule(errors, is_dns1123_label);
    if source.get("path").require(errors) {
        no_backsteps(&source.get("path"), errors);
    }
}

/// A file with variables has to be in an `emptyDir`.
pub(crate) fn file_key_volumes(spec: &Field<'_>, errors: &mut FieldErrors) {
    let volumes = spec.value().map_or(&[][..], |spec| spec.items_at(&["volumes"]));
    each_container(spec, |container| {
        for variable in container.get("env").items() {
            let from = variable.get("valueFrom");
            let source = from.get("fileKeyRef");
            if !source.is_set() {
                continue;
            }
            let name = source.get("volumeName");
            match volumes.iter().rfind(|volume| volume.str_at(&["name"]) == name.str()) {
                None => name.not_found(errors),
                Some(volume) if volume.get("emptyDir").is_none() => {
                    name.invalid(errors, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    });
}

pub(crate) fn from_sources(sources: &Field<'_>, errors: &mut FieldErrors) {
    for source in sources.items() {
        source.get("prefix").rule_if_filled(errors, is_relaxed_env_var_name);
        let mut found = 0;
        for name in ["configMapRef", "secretRef"] {
            let reference = source.get(name);
            if !reference.is_set() {
                continue;
            }
            found += 1;
            let name = reference.get("name");
            // Compat: checked like the beginning of a name, so it may end in a dash.
            name.require_rule(errors, |name| name_is_dns_subdomain(name, true));
        }
        // Compat: upstream doesn't say which of the sources it is about.
        match found {
            0 => {
                let why = "must specify one of: `configMapRef` or `secretRef`";
                sources.invalid_value(errors, "", why);
            }
            1 => {}
            _ => {
                let why = "may not have more than one field specified at a time";
                sources.invalid_value(errors, "", why);
            }
        }
    }
}

/// What variables can show of their pod; labels and annotations one by one.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// What files can show of their pod.
pub(crate) const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// Fields of a pod that a reference can name at all; not all of them can be shown.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.host",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];

pub(crate) fn field_ref(source: &Field<'_>, fields: &[&str], errors: &mut FieldErrors) {
    if !source.get("apiVersion").require(errors) || !source.get("fieldPath").require(errors) {
        return;
    }
    let (version, field) = (source.str_at(&["apiVersion"]), source.get("fieldPath"));
    let cannot_convert = |why: String, errors: &mut FieldErrors| {
        field.invalid(errors, &format!("error converting fieldPath: {why}"));
    };
    if version != "v1" {
        return cannot_convert(format!("unsupported pod version: {version}"), errors);
    }
    match subscript(field.str()) {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            for why in is_qualified_name(&key) {
                source.invalid_value(errors, key.as_str(), &why);
            }
        }
        Some(("metadata.labels", key)) => {
            for why in is_qualified_name(key) {
                source.invalid_value(errors, key, &why);
            }
        }
        Some(_) => {
            let why = format!("field label does not support subscript: {}", field.str());
            cannot_convert(why, errors);
        }
        None if !KNOWN_FIELDS.contains(&field.str()) => {
            cannot_convert(format!("field label not supported: {}", field.str()), errors);
        }
        None => {
            let path = if field.is("spec.host") { "spec.nodeName" } else { field.str() };
            if !fields.contains(&path) {
                errors.not_supported(field.path(), path, fields);
            }
        }
    }
}

/// `metadata.labels['app']` is `metadata.labels` and `app`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['").filter(|(path, _)| !path.is_empty())
}

/// What of a container's resources can be shown.
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(crate) fn resource_ref(source: &Field<'_>, in_volume: bool, errors: &mut FieldErrors) {
    let (container, resource) = (source.get("containerName"), source.get("resource"));
    let is_huge_pages = ["limits.hugepages-", "requests.hugepages-"]
        .iter()
        .any(|prefix| resource.str().starts_with(prefix));
    if in_volume && container.is_empty() {
        container.required(errors, "");
    } else if resource.is_empty() {
        resource.required(errors, "");
    } else if !RESOURCES.contains(&resource.str()) && !is_huge_pages {
        resource.not_supported(errors, RESOURCES);
    }
    let divisor = source.value_at(&["divisor"]).and_then(|text| Quantity::from_value(text).ok());
    let Some(divisor) = divisor.filter(|divisor| !divisor.is_zero()) else { return };
    let divisor = divisor.to_string();
    let (fine, which) = match resource.str() {
        "limits.cpu" | "requests.cpu" => {
            if !matches!(divisor.as_str(), "1m" | "1") {
                let why = "only divisor's values 1m and 1 are supported with the cpu resource";
                source.get("divisor").invalid_value(errors, resource.str(), why);
            }
            return;
        }
        "limits.memory" | "requests.memory" => {
            (BYTE_DIVISORS.contains(&divisor.as_str()), "memory")
        }
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (BYTE_DIVISORS.contains(&divisor.as_str()), "local ephemeral storage")
        }
        _ if is_huge_pages => (BYTE_DIVISORS.contains(&divisor.as_str()), "hugepages"),
        _ => return,
    };
    if !fine {
        let why = format!(
            "only divisor's values {} are supported with the {which} resource",
            BYTE_DIVISORS.join(", "),
        );
        source.get("divisor").invalid_value(errors, resource.str(), &why);
    }
}

const BYTE_DIVISORS: [&str; 13] =
    ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
