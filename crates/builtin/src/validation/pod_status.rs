//! The status of pods, as kubelets and the scheduler write it.

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_subdomain, is_qualified_name},
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
