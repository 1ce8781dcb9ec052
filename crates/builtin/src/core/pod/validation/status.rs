//! The status of pods, as kubelets and the scheduler write it.

use std::collections::{BTreeSet, HashSet};

use meta::{
    FieldErrors, Value,
    field::FieldReason,
    names::{is_dns1123_label, is_dns1123_subdomain, is_qualified_name, is_user_id},
};

use crate::validation::{
    by_name,
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
    claim_statuses(pod, errors);
    extended_claim(pod, errors);
    ips(&status.get("podIPs"), &before.get("podIPs"), errors);
    host_ips(&status, &before, errors);
    container_users(pod, &status, errors);
    allocated_resources(pod, &status, errors);
}

/// The users that containers run as.
fn container_users(pod: &Field<'_>, status: &Field<'_>, errors: &mut FieldErrors) {
    let os = pod.str_at(&["spec", "os", "name"]);
    for list in STATUSES.map(|(list, _)| status.get(list)) {
        for container in list.items() {
            let user = container.get("user");
            let linux = user.get("linux");
            match os {
                "windows" if linux.is_set() => {
                    linux.forbidden(errors, "cannot be set for a windows pod");
                }
                "" | "linux" if linux.is_set() => {
                    linux.get("uid").int_rule(errors, is_user_id);
                    linux.get("gid").int_rule(errors, is_user_id);
                    for group in linux.get("supplementalGroups").items() {
                        group.int_rule(errors, is_user_id);
                    }
                }
                _ => {}
            }
        }
    }
}

const STATUSES: [(&str, Option<&str>); 3] = [
    ("containerStatuses", Some("containers")),
    ("initContainerStatuses", Some("initContainers")),
    ("ephemeralContainerStatuses", None),
];

/// How the devices of containers are.
fn allocated_resources(pod: &Field<'_>, status: &Field<'_>, errors: &mut FieldErrors) {
    for (list, containers) in STATUSES {
        let spec = containers.map(|list| pod.value_at(&["spec", list]));
        let spec = spec.flatten().and_then(Value::as_array).unwrap_or_default();
        let specs = by_name(spec);
        for own in status.get(list).items() {
            let resources = own.get("allocatedResourcesStatus");
            if containers.is_none() {
                if !resources.is_empty() {
                    resources.forbidden(errors, "must not be specified in container status");
                }
                continue;
            }
            let container = specs.get(own.str_at(&["name"])).map(|container| {
                let claims = container.items_at(&["resources", "claims"]).iter();
                let claims = claims.map(|claim| match claim.str_at(&["request"]) {
                    "" => claim.str_at(&["name"]).to_owned(),
                    request => format!("{}/{request}", claim.str_at(&["name"])),
                });
                (*container, claims.collect::<HashSet<_>>())
            });
            for resource in resources.items() {
                if let Some((container, claims)) = &container {
                    allocated_name(&resource.get("name"), container, claims, errors);
                }
                health(&resource.get("resources"), errors);
            }
        }
    }
}

fn allocated_name(
    name: &Field<'_>,
    container: &Value,
    claims: &HashSet<String>,
    errors: &mut FieldErrors,
) {
    let (known, why) = if let Some(claimed) = name.str().strip_prefix("claim:") {
        let known = claims.contains(claimed);
        let why = "must match one of the container's resource claims in a format \
                   'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";
        (known, why)
    } else {
        let known = container.at(&["resources", "requests", name.str()]).is_some();
        (known, "must match one of the container's resource requests")
    };
    if !known {
        name.invalid_value(errors, name.str(), why);
    }
}

fn health(resources: &Field<'_>, errors: &mut FieldErrors) {
    const MESSAGE_BYTES_MAX: usize = 1024;
    let words = ["Healthy", "Unhealthy", "Unknown"];
    let mut seen = BTreeSet::new();
    for resource in resources.items() {
        let [health, message, id] =
            ["health", "message", "resourceID"].map(|name| resource.get(name));
        if !words.contains(&health.str()) {
            health.not_supported(errors, &words);
        }
        if message.is_set() && message.is_empty() {
            message.required(errors, "must be non-empty if specified");
        } else if message.len() > MESSAGE_BYTES_MAX {
            errors.too_long(message.path(), MESSAGE_BYTES_MAX);
        }
        if !seen.insert(resource.str_at(&["resourceID"])) {
            errors.duplicate(id.path(), id.str());
        }
    }
}

fn claim_statuses(pod: &Field<'_>, errors: &mut FieldErrors) {
    let claims =
        by_name(pod.value().map_or(&[][..], |pod| pod.items_at(&["spec", "resourceClaims"])));
    let mut seen = BTreeSet::new();
    let status = pod.get("status");
    for claim in status.get("resourceClaimStatuses").items() {
        let name = claim.get("name");
        if !claims.contains_key(name.str()) {
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
    let containers = by_name(
        pod.value()
            .into_iter()
            .flat_map(|pod| lists.iter().flat_map(|list| pod.items_at(&["spec", list]))),
    );
    let mut seen = BTreeSet::new();
    for mapping in mappings.items() {
        let [container, resource, request] =
            ["containerName", "resourceName", "requestName"].map(|part| mapping.get(part));
        match containers.get(container.str()) {
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
    let restarts_all = ["initContainers", "containers"].iter().any(|list| {
        let containers = spec.value().map_or(&[][..], |spec| spec.items_at(&[list]));
        let mut rules = containers.iter().flat_map(|own| own.items_at(&["restartPolicyRules"]));
        rules.any(|rule| rule.str_at(&["action"]) == "RestartAllContainers")
    });
    for (list, containers) in STATUSES {
        if restarts_all && containers.is_some() {
            continue;
        }
        let (statuses, before) = (status.get(list), before.get(list));
        let now_by_name = by_name(values(&statuses));
        let containers = containers.map(|list| by_name(values(&spec.get(list))));
        for (at, old) in before.items().enumerate() {
            let Some(ended) = old.value_at(&["state", "terminated"]) else { continue };
            let name = old.str_at(&["name"]);
            let Some(now) = now_by_name.get(name) else { continue };
            if now.at(&["state", "terminated"]).is_some_and(|state| !state.is_null()) {
                continue;
            }
            let exit_code = ended.i64_at(&["exitCode"]).unwrap_or_default();
            let may_restart = containers.as_ref().is_some_and(|containers| {
                let container = containers.get(name);
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

fn values<'a>(list: &Field<'a>) -> &'a [Value] {
    list.value().and_then(Value::as_array).unwrap_or_default()
}

/// Whether a container starts again after this exit code: its own rules first, then its policy, then
/// that of the pod.
fn restarts(container: &Value, pod_policy: &str, exit_code: i64) -> bool {
    let own_policy = container.str_at(&["restartPolicy"]);
    let rules =
        if own_policy.is_empty() { &[] } else { container.items_at(&["restartPolicyRules"]) };
    for rule in rules {
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
    match if own_policy.is_empty() { pod_policy } else { own_policy } {
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
        let bad = list.items().zip(&families).enumerate().find(|(_, (_, family))| family.is_none());
        if let Some((at, (ip, _))) = bad {
            let message = format!(
                "Internal error: failed to check for dual stack with error:invalid IP[{at}]: {}",
                ip.str_at(&["ip"])
            );
            errors.push(FieldReason::Internal, list.path(), message);
        }
        let is_dual = families.contains(&Some(true)) && families.contains(&Some(false));
        if bad.is_some() || !is_dual || families.len() > 2 {
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
