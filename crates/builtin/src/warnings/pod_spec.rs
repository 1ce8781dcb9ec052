//! Pods, and the templates that controllers make pods from.

use std::collections::{BTreeMap, BTreeSet};

use meta::{Value, field::quote, names::is_label_value};

use super::{
    address, named,
    node_label::{expressions, node_label},
    virtual_path, volume,
};
use crate::validation::cursor::Field;

/// A new pod.
pub(crate) fn pod(pod: &Value) -> Vec<String> {
    let mut texts = named(pod, "this is used in the Pod's hostname");
    spec_and_meta(&Field::root(pod), false, &mut texts);
    texts
}

pub(crate) fn template(template: &Field<'_>) -> Vec<String> {
    let mut texts = Vec::new();
    if template.is_set() {
        spec_and_meta(template, true, &mut texts);
    }
    texts
}

/// The order is upstream's.
fn spec_and_meta(object: &Field<'_>, is_template: bool, texts: &mut Vec<String>) {
    let (metadata, spec) = (object.get("metadata"), object.get("spec"));
    let annotations = metadata.get("annotations");
    node_labels(&spec, texts);
    for constraint in spec.get("topologySpreadConstraints").items() {
        let key = constraint.get("topologyKey");
        if let Some(text) = node_label(key.str()) {
            texts.push(format!("{}: {} is {text}", key.path(), key.str()));
        }
        null_selector(&constraint, texts);
    }
    for (key, text) in DEPRECATED_ANNOTATIONS {
        if annotations.key(key).is_set() {
            texts.push(format!("{}: {text}", annotations.key(key).path()));
        }
    }
    let volumes = spec.get("volumes");
    for volume in volumes.items() {
        volume::gone(&volume, texts);
        let ephemeral = volume.get("ephemeral");
        let claim = ephemeral.get("volumeClaimTemplate");
        let claim = claim.get("spec");
        if claim.is_set() {
            texts.extend(volume::claim_spec(&claim.path().to_string(), claim.value()));
        }
    }
    virtual_path::overlaps(&volumes, texts);
    repeated(&spec.get("hostAliases"), "ip", texts);
    pull_secrets(&spec.get("imagePullSecrets"), texts);
    fractions(&spec.get("overhead"), texts);
    profile_annotation(&annotations, SECCOMP_POD, &spec.get("securityContext"), texts);
    each_container(&spec, |container| {
        let security = container.get("securityContext");
        let name = container.str_at(&["name"]);
        profile_annotation(&annotations, &format!("{SECCOMP_CONTAINER}{name}"), &security, texts);
        if is_template && !security.get("appArmorProfile").is_set() {
            app_armor_annotation(&annotations, name, &spec, texts);
        }
        container_resources(&container, texts);
        hidden_variables(&container.get("env"), texts);
    });
    ports(&spec, texts);
    port_names(&spec, texts);
    let grace = spec.get("terminationGracePeriodSeconds");
    if grace.int_or_zero() < 0 {
        texts.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            grace.path()
        ));
    }
    pod_affinity(&spec.get("affinity"), texts);
    let dns = spec.get("dnsConfig");
    for server in dns.get("nameservers").items() {
        texts.extend(address::ip(&server.path().to_string(), server.str()));
    }
    for alias in spec.get("hostAliases").items() {
        texts.extend(address::ip(&alias.get("ip").path().to_string(), alias.str_at(&["ip"])));
    }
}

const DEPRECATED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

fn node_labels(spec: &Field<'_>, texts: &mut Vec<String>) {
    let selector = spec.get("nodeSelector");
    for (key, entry) in selector.entries() {
        if let Some(text) = node_label(key) {
            texts.push(format!("{}: {text}", entry.path()));
        }
    }
    let affinity = spec.get("affinity");
    let affinity = affinity.get("nodeAffinity");
    let required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution");
    for term in required.get("nodeSelectorTerms").items() {
        expressions(&term, texts);
    }
    for preferred in affinity.get("preferredDuringSchedulingIgnoredDuringExecution").items() {
        let term = preferred.get("preference");
        let list = term.get("matchExpressions");
        for expression in list.items() {
            let key = expression.get("key");
            if let Some(text) = node_label(key.str()) {
                texts.push(format!("{}: {} is {text}", key.path(), key.str()));
            }
            for value in expression.get("values").items() {
                for why in is_label_value(value.str()) {
                    texts.push(format!("{}: {} is invalid, {why}", value.path(), value.str()));
                }
            }
        }
    }
}

fn null_selector(owner: &Field<'_>, texts: &mut Vec<String>) {
    let selector = owner.get("labelSelector");
    if !selector.is_set() {
        let path = selector.path();
        texts.push(format!("{path}: a null labelSelector results in matching no pod"));
    }
}

fn pod_affinity(affinity: &Field<'_>, texts: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = affinity.get(kind);
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution").items() {
            null_selector(&term, texts);
        }
        for weighted in affinity.get("preferredDuringSchedulingIgnoredDuringExecution").items() {
            null_selector(&weighted.get("podAffinityTerm"), texts);
        }
    }
}

fn repeated(list: &Field<'_>, name: &str, texts: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for item in list.items() {
        let text = item.str_at(&[name]);
        if !seen.insert(text) {
            texts.push(format!("{}: duplicate {name} {}", item.get(name).path(), quote(text)));
        }
    }
}

fn pull_secrets(secrets: &Field<'_>, texts: &mut Vec<String>) {
    repeated(secrets, "name", texts);
    for secret in secrets.items().filter(|secret| secret.get("name").is_empty()) {
        texts.push(format!("{}: invalid empty name \"\"", secret.get("name").path()));
    }
}

/// Bytes come whole.
fn fractions(resources: &Field<'_>, texts: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        let entry = resources.key(name);
        texts.extend(volume::fraction(&entry.path().to_string(), entry.value()));
    }
}

fn container_resources(container: &Field<'_>, texts: &mut Vec<String>) {
    let resources = container.get("resources");
    for name in ["memory", "ephemeral-storage"] {
        for list in ["limits", "requests"] {
            let list = resources.get(list);
            let entry = list.key(name);
            texts.extend(volume::fraction(&entry.path().to_string(), entry.value()));
        }
    }
}

fn profile_annotation(
    annotations: &Field<'_>,
    key: &str,
    security: &Field<'_>,
    texts: &mut Vec<String>,
) {
    if annotations.key(key).is_set() && !security.get("seccompProfile").is_set() {
        texts.push(format!(
            "{}: non-functional in v1.27+; use the \"seccompProfile\" field instead",
            annotations.key(key).path()
        ));
    }
}

fn app_armor_annotation(
    annotations: &Field<'_>,
    container: &str,
    spec: &Field<'_>,
    texts: &mut Vec<String>,
) {
    let key = format!("{APP_ARMOR}{container}");
    let annotation = annotations.key(&key);
    let security = spec.get("securityContext");
    let profile = security.get("appArmorProfile");
    if !annotation.is_set() || is_same_profile(&profile, annotation.str()) {
        return;
    }
    texts.push(format!(
        "{}: deprecated since v1.30; use the \"appArmorProfile\" field instead",
        annotation.path()
    ));
}

fn is_same_profile(profile: &Field<'_>, annotation: &str) -> bool {
    match (profile.str_at(&["type"]), annotation) {
        ("Unconfined", "unconfined") | ("RuntimeDefault", "runtime/default") => true,
        ("Localhost", text) => {
            text.strip_prefix("localhost/") == Some(profile.str_at(&["localhostProfile"]))
        }
        _ => false,
    }
}

/// A variable that replaces an earlier one without making use of it.
fn hidden_variables(variables: &Field<'_>, texts: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for variable in variables.items() {
        let (name, value) = (variable.str_at(&["name"]), variable.str_at(&["value"]));
        if seen.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        let builds_on = value != reference && value.contains(&reference);
        if variable.get("valueFrom").is_set() || !builds_on {
            texts.push(format!(
                "{}: hides previous definition of {}, which may be dropped when using apply",
                variable.path(),
                quote(name)
            ));
        }
    }
}

/// More than a response may carry.
const TEXTS_MAX: usize = meta::request::WARNINGS_CHARS_MAX;

/// A port is compared with at most this many others that have the same number and protocol.
const PORTS_COMPARED_MAX: usize = 256;

struct Defined {
    path: String,
    host_ip: String,
    host_port: i64,
}

/// Ports of all containers that are, or may be, the same.
fn ports(spec: &Field<'_>, texts: &mut Vec<String>) {
    let mut seen: BTreeMap<(i64, String), Vec<Defined>> = BTreeMap::new();
    each_container(spec, |container| {
        for port in container.get("ports").items() {
            let number = port.get("containerPort").int_or_zero();
            let protocol = port.str_at(&["protocol"]);
            let this = Defined {
                path: port.path().to_string(),
                host_ip: port.str_at(&["hostIP"]).to_owned(),
                host_port: port.get("hostPort").int_or_zero(),
            };
            if !this.host_ip.is_empty() && this.host_port == 0 {
                texts.push(format!(
                    "{}: hostIP set without hostPort: {{Name:{} HostPort:0 \
                     ContainerPort:{number} Protocol:{protocol} HostIP:{}}}",
                    this.path,
                    port.str_at(&["name"]),
                    this.host_ip
                ));
            }
            let others = seen.entry((number, protocol.to_owned())).or_default();
            for other in &*others {
                if texts.len() >= TEXTS_MAX {
                    break;
                }
                if let Some(how) = conflict(&this, other) {
                    texts.push(format!("{}: {how} port definition with {}", this.path, other.path));
                }
            }
            if others.len() < PORTS_COMPARED_MAX {
                others.push(this);
            }
        }
    });
}

fn conflict(one: &Defined, other: &Defined) -> Option<&'static str> {
    if one.host_ip == other.host_ip && one.host_port == other.host_port {
        Some("duplicate")
    } else if one.host_port == 0 || other.host_port == 0 {
        Some("overlapping")
    } else if one.host_port == other.host_port && one.host_ip.is_empty() != other.host_ip.is_empty()
    {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

fn port_names(spec: &Field<'_>, texts: &mut Vec<String>) {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    each_container(spec, |container| {
        for port in container.get("ports").items() {
            let name = port.str_at(&["name"]);
            if name.is_empty() {
                continue;
            }
            let path = port.path().to_string();
            if let Some(first) = seen.get(name) {
                texts.push(format!(
                    "{path}: duplicate port name {} with {first}, services and probes that \
                     select ports by name will use {first}",
                    quote(name)
                ));
            } else {
                seen.insert(name.to_owned(), path);
            }
        }
    });
}

fn each_container(spec: &Field<'_>, visit: impl FnMut(Field<'_>)) {
    crate::validation::pod_spec::each_container(spec, visit);
}
