//! The status of pods, as kubelets and the scheduler write it.

use std::collections::BTreeSet;

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_label, is_dns1123_subdomain, is_qualified_name},
};

use super::{
    cursor::Field,
    ip::{legacy_ip, parse_sloppy},
};

pub(super) fn validate_update(pod: &Field<'_>, old: &Field<'_>, errors: &mut FieldErrors) {
    let (status, before) = (pod.get("status"), old.get("status"));
    for condition in status.get("conditions").items() {
        observed_generation(&condition, errors);
        let kind = condition.str_at(&["type"]);
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            for why in is_qualified_name(kind) {
                condition.get("Type").invalid_value(errors, kind, &why);
            }
        }
    }
    let (name, old_name) = (status.get("nominatedNodeName"), before.get("nominatedNodeName"));
    if name.str() != old_name.str() && !name.is_empty() {
        name.rule(errors, is_dns1123_subdomain);
        if !old.str_at(&["spec", "nodeName"]).is_empty() {
            name.forbidden(errors, "may not be set on pods that are already bound to a node");
        }
    }
    observed_generation(&status, errors);
    status.get("qosClass").immutable(&before.get("qosClass"), errors);
    state_transitions(pod, old, errors);
    ips(&status.get("podIPs"), &before.get("podIPs"), errors);
    host_ips(&status, &before, errors);
    claim_statuses(pod, errors);
    extended_claim(pod, errors);
}

fn claim_statuses(pod: &Field<'_>, errors: &mut FieldErrors) {
    let claims = pod.value().map_or(&[][..], |pod| pod.items_at(&["spec", "resourceClaims"]));
    let mut seen = BTreeSet::new();
    let status = pod.get("status");
    for claim in status.get("resourceClaimStatuses").items() {
        let name = claim.get("name");
        if !claims.iter().any(|known| known.str_at(&["name"]) == name.str()) {
            let why = "must match the name of an entry in `spec.resourceClaims`";
            name.invalid_value(errors, name.str(), why);
        }
        if !seen.insert(claim.str_at(&["name"])) {
            errors.duplicate(name.path(), name.str());
        }
        if claim.get("resourceClaimName").is_set() {
            claim.get("resourceClaimName").rule(errors, is_dns1123_subdomain);
        }
    }
}

/// The claim that was made for resources that containers ask for by name.
fn extended_claim(pod: &Field<'_>, errors: &mut FieldErrors) {
    let status = pod.get("status");
    let claim = status.get("extendedResourceClaimStatus");
    if !claim.is_set() {
        return;
    }
    let mappings = claim.get("requestMappings");
    if mappings.is_empty() {
        mappings.required(errors, "at least one request mapping is required");
    }
    let lists = ["initContainers", "containers"];
    let containers: Vec<&Value> = pod
        .value()
        .into_iter()
        .flat_map(|pod| lists.iter().flat_map(|list| pod.items_at(&["spec", list])))
        .collect();
    let mut seen = BTreeSet::new();
    for mapping in mappings.items() {
        let [container, resource, request] =
            ["containerName", "resourceName", "requestName"].map(|part| mapping.get(part));
        match containers.iter().find(|other| other.str_at(&["name"]) == container.str()) {
            None => {
                let why = "must match the name of an entry in spec.initContainers.name or \
                           spec.containers.name";
                container.invalid_value(errors, container.str(), why);
            }
            Some(found) if found.at(&["resources", "requests", resource.str()]).is_none() => {
                let why = "must match the extended resource name of an entry in \
                           spec.initContainers.resources.requests or \
                           spec.containers.resources.requests";
                resource.invalid_value(errors, resource.str(), why);
            }
            Some(_) => {}
        }
        // Compat: upstream doesn't say which of the mappings it is about.
        claim.get("requestName").with(request.value()).rule(errors, is_dns1123_label);
        let parts = ["containerName", "resourceName", "requestName"];
        if !seen.insert(parts.map(|part| mapping.str_at(&[part]))) {
            for part in [container, resource, request] {
                errors.duplicate(part.path(), part.str());
            }
        }
    }
    claim.get("resourceClaimName").require_rule(errors, is_dns1123_subdomain);
}

fn observed_generation(parent: &Field<'_>, errors: &mut FieldErrors) {
    let generation = parent.get("observedGeneration");
    if generation.int_or_zero() < 0 {
        generation.invalid(errors, "must be a non-negative integer");
    }
}

/// A container that has ended runs again only if its pod says so.
fn state_transitions(pod: &Field<'_>, old: &Field<'_>, errors: &mut FieldErrors) {
    let (status, before, spec) = (pod.get("status"), old.get("status"), old.get("spec"));
    for (list, containers) in [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ] {
        let (statuses, before) = (status.get(list), before.get(list));
        for (at, old) in before.items().enumerate() {
            let Some(ended) = old.value_at(&["state", "terminated"]) else { continue };
            let name = old.str_at(&["name"]);
            let Some(now) = statuses.items().find(|now| now.str_at(&["name"]) == name) else {
                continue;
            };
            if now.value_at(&["state", "terminated"]).is_some() {
                continue;
            }
            let exit_code = ended.i64_at(&["exitCode"]).unwrap_or_default();
            let may_restart = containers.is_some_and(|list| {
                let containers = spec.value().map_or(&[][..], |spec| spec.items_at(&[list]));
                let container = containers.iter().find(|other| other.str_at(&["name"]) == name);
                let policy = spec.str_at(&["restartPolicy"]);
                container.is_some_and(|container| restarts(container, policy, exit_code))
            });
            if !may_restart {
                let why = "may not be transitioned to non-terminated state";
                statuses.index(at).get("state").forbidden(errors, why);
            }
        }
    }
}

/// Whether a container starts again after this exit code: its own rules first, then its policy, then
/// that of the pod.
fn restarts(container: &Value, pod_policy: &str, exit_code: i64) -> bool {
    for rule in container.items_at(&["restartPolicyRules"]) {
        let listed = rule.items_at(&["exitCodes", "values"]).iter();
        let listed = listed.filter_map(Value::as_i64).any(|code| code == exit_code);
        let applies = match rule.str_at(&["exitCodes", "operator"]) {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        if applies {
            return true;
        }
    }
    match container.get("restartPolicy").and_then(Value::as_str).unwrap_or(pod_policy) {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        _ => true,
    }
}

fn ips(list: &Field<'_>, old: &Field<'_>, errors: &mut FieldErrors) {
    let before: Vec<&str> = old
        .value()
        .map_or(&[][..], |old| old.as_array().unwrap_or_default())
        .iter()
        .map(|ip| ip.str_at(&["ip"]))
        .collect();
    for ip in list.items() {
        // Compat: upstream leaves `ip` out of this path.
        let text = ip.value_at(&["ip"]);
        legacy_ip(&ip.with(text), &before, errors);
    }
    if list.len() > 1 {
        let families: Vec<Option<bool>> = list
            .items()
            .map(|ip| parse_sloppy(ip.str_at(&["ip"])).map(|ip| ip.is_ipv4()))
            .collect();
        let is_dual = families.contains(&Some(true)) && families.contains(&Some(false));
        if !is_dual || families.len() > 2 {
            let shown: Vec<String> = list
                .items()
                .map(|ip| {
                    format!(r#"{{"IP":{}}}"#, meta::json::to_string(&ip.str_at(&["ip"]).into()))
                })
                .collect();
            let why = "may specify no more than one IP for each IP family";
            list.invalid_shown(errors, &format!("[{}]", shown.join(",")), why);
        }
    }
}

fn host_ips(status: &Field<'_>, before: &Field<'_>, errors: &mut FieldErrors) {
    let list = status.get("hostIPs");
    if list.is_empty() {
        return;
    }
    let first = list.index(0);
    if first.str_at(&["ip"]) != status.str_at(&["hostIP"]) {
        first.get("ip").invalid(errors, "must be equal to `hostIP`");
    }
    ips(&list, &before.get("hostIPs"), errors);
}
