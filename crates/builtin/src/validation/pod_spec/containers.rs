//! The containers of a pod, of each of the three kinds.

use std::collections::BTreeSet;

use meta::{
    FieldErrors,
    field::RuleId,
    names::{is_dns1123_label, is_port_name, is_port_number},
};

use super::{Owner, env, mounts, probes, resources, security, volumes::Volumes};
use crate::validation::cursor::Field;

/// What the containers of a pod refer to.
pub(super) struct PodReferences<'a> {
    pub(super) spec: &'a Field<'a>,
    pub(super) volumes: &'a Volumes<'a>,
    /// The names of `resourceClaims`.
    pub(super) claims: BTreeSet<&'a str>,
    /// Whether the pod uses the host's users.
    pub(super) host_users: bool,
}

impl<'a> PodReferences<'a> {
    pub(super) fn new(spec: &'a Field<'a>, volumes: &'a Volumes<'a>) -> Self {
        let claims = spec.value().map_or(&[][..], |spec| spec.items_at(&["resourceClaims"]));
        let claims = claims.iter().map(|claim| claim.str_at(&["name"]));
        let host_users = spec.get("hostUsers");
        let host_users = !host_users.is_set() || host_users.bool();
        Self { spec, volumes, claims: claims.filter(|name| !name.is_empty()).collect(), host_users }
    }

    fn names(&self, list: &str) -> BTreeSet<&'a str> {
        let containers = self.spec.value().map_or(&[][..], |spec| spec.items_at(&[list]));
        containers.iter().map(|container| container.str_at(&["name"])).collect()
    }
}

pub(crate) fn regular(scope: &PodReferences<'_>, errors: &mut FieldErrors) {
    let containers = scope.spec.get("containers");
    if containers.is_empty() {
        return containers.required(errors, "");
    }
    let mut names = BTreeSet::new();
    for container in containers.items() {
        if errors.stop_early() {
            break;
        }
        common(&container, scope, errors);
        let name = container.get("name");
        if !names.insert(name.str().to_owned()) {
            name.duplicate(errors);
        }
        probes::validate(&container, scope.spec, errors);
        restart_policy(&container, errors);
    }
    host_ports(containers.items(), errors);
}

pub(crate) fn init(scope: &PodReferences<'_>, errors: &mut FieldErrors) {
    let containers = scope.spec.get("initContainers");
    let mut names: BTreeSet<String> =
        scope.names("containers").into_iter().map(str::to_owned).collect();
    for container in containers.items() {
        if errors.stop_early() {
            break;
        }
        common(&container, scope, errors);
        restart_policy(&container, errors);
        let name = container.get("name");
        if names.contains(name.str()) {
            name.duplicate(errors);
        } else if !name.is_empty() {
            names.insert(name.str().to_owned());
        }
        // Compat: upstream counts each init container on its own, so the first is named.
        let alone = containers.index(0).with(container.value());
        host_ports(std::iter::once(alone), errors);
        let is_sidecar = container.get("restartPolicy").is("Always");
        if is_sidecar {
            probes::validate(&container, scope.spec, errors);
        } else {
            for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.get(name).is_set() {
                    let why = "may not be set for init containers without restartPolicy=Always";
                    container.get(name).forbidden(errors, why);
                }
            }
            for policy in container.get("resizePolicy").items() {
                if policy.get("restartPolicy").is("RestartContainer") {
                    let why = "must not be set to 'RestartContainer' for non-sidecar \
                               initContainers";
                    errors.with_rule(NON_SIDECAR_RESIZE_POLICY, |errors| {
                        policy.get("restartPolicy").invalid(errors, why);
                    });
                }
            }
        }
    }
}

/// Init containers that are not sidecars are never restarted by a resize.
pub(crate) const NON_SIDECAR_RESIZE_POLICY: RuleId = RuleId::new("non-sidecar resize policy");

pub(crate) fn ephemeral(scope: &PodReferences<'_>, errors: &mut FieldErrors) {
    let others = &scope.names("containers") | &scope.names("initContainers");
    let mut names: BTreeSet<String> = others.iter().map(|&name| name.to_owned()).collect();
    for container in scope.spec.get("ephemeralContainers").items() {
        if errors.stop_early() {
            break;
        }
        common(&container, scope, errors);
        image_whitespace(&container, errors);
        let name = container.get("name");
        if !names.insert(name.str().to_owned()) {
            name.duplicate(errors);
        }
        let target = container.get("targetContainerName");
        if !target.is_empty() && !others.contains(target.str()) {
            target.not_found(errors);
        }
        let why = "cannot be set for an Ephemeral Container";
        for name in NOT_FOR_EPHEMERAL {
            let field = container.get(name);
            // Resources are always there, the rest only if the client has set it.
            if if name == "resources" { !field.is_empty() } else { field.is_set() } {
                field.forbidden(errors, why);
            }
        }
        for mount in container.get("volumeMounts").items() {
            for name in ["subPath", "subPathExpr"] {
                if !mount.get(name).is_empty() {
                    mount.get(name).forbidden(errors, why);
                }
            }
        }
    }
}

/// What a container that is put into a running pod can't have.
const NOT_FOR_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Pods only: a template may have an image with blanks around it, for those that are there already.
pub(crate) fn image_whitespace(container: &Field<'_>, errors: &mut FieldErrors) {
    let image = container.get("image");
    if image.str().trim() != image.str() {
        image.invalid(errors, "must not have leading or trailing whitespace");
    }
}

fn common(container: &Field<'_>, scope: &PodReferences<'_>, errors: &mut FieldErrors) {
    container.get("name").require_rule(errors, is_dns1123_label);
    container.get("image").require(errors);
    let policies = ["File", "FallbackToLogsOnError"];
    container.get("terminationMessagePolicy").one_of_or_default(errors, &policies);
    ports(&container.get("ports"), errors);
    env::variables(&container.get("env"), errors);
    env::from_sources(&container.get("envFrom"), errors);
    mounts::validate(container, scope.volumes, errors);
    let pull = ["Always", "IfNotPresent", "Never"];
    container.get("imagePullPolicy").one_of_or_default(errors, &pull);
    resources::container(&container.get("resources"), &scope.claims, errors);
    resize_policy(container, scope.spec.str_at(&["restartPolicy"]), errors);
    security::container(&container.get("securityContext"), scope.host_users, errors);
}

fn ports(ports: &Field<'_>, errors: &mut FieldErrors) {
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.is_empty() {
            if !is_port_name(name.str()).is_empty() {
                name.rule(errors, is_port_name);
            } else if !names.insert(name.str().to_owned()) {
                name.duplicate(errors);
            }
        }
        let number = port.get("containerPort");
        if number.int_or_zero() == 0 {
            number.required(errors, "");
        } else {
            number.int_rule(errors, is_port_number);
        }
        if port.get("hostPort").int_or_zero() != 0 {
            port.get("hostPort").int_rule(errors, is_port_number);
        }
        port.get("protocol").one_of_or_default(errors, &["SCTP", "TCP", "UDP"]);
    }
}

/// No two containers on one port of the host.
fn host_ports<'a>(containers: impl Iterator<Item = Field<'a>>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for container in containers {
        for port in container.get("ports").items() {
            let number = port.get("hostPort");
            if number.int_or_zero() == 0 {
                continue;
            }
            let (protocol, ip) = (port.str_at(&["protocol"]), port.str_at(&["hostIP"]));
            let text = format!("{protocol}/{ip}/{}", number.int_or_zero());
            if seen.contains(&text) {
                errors.duplicate(number.path(), text.as_str());
            }
            seen.insert(text);
        }
    }
}

pub(crate) fn host_network_ports(spec: &Field<'_>, owner: &Owner<'_>, errors: &mut FieldErrors) {
    if !spec.get("hostNetwork").bool() {
        return;
    }
    for container in spec.get("containers").items() {
        for port in container.get("ports").items() {
            let host = port.get("hostPort");
            let differs = host.int_or_zero() != port.get("containerPort").int_or_zero();
            if differs && (owner.is_pod || host.int_or_zero() != 0) {
                let why = "must match `containerPort` when `hostNetwork` is true";
                host.invalid_value(errors, host.int_or_zero(), why);
            }
        }
    }
}

fn resize_policy(container: &Field<'_>, pod_restart: &str, errors: &mut FieldErrors) {
    let policies = container.get("resizePolicy");
    let mut seen = BTreeSet::new();
    for policy in policies.items() {
        let (resource, restart) =
            (policy.str_at(&["resourceName"]), policy.str_at(&["restartPolicy"]));
        if !seen.insert(resource) {
            errors.duplicate(policy.path(), resource);
        }
        // Compat: upstream doesn't say which of the policies it is about.
        for (text, supported) in
            [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])]
        {
            if text.is_empty() {
                policies.required(errors, "");
            } else if !supported.contains(&text) {
                errors.not_supported(policies.path(), text, &supported);
            }
        }
        if pod_restart == "Never" && restart != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            policies.invalid_value(errors, restart, why);
        }
    }
}

fn restart_policy(container: &Field<'_>, errors: &mut FieldErrors) {
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    // Compat: the rules of an init container without a restart policy are not validated.
    let is_init = container.is_within("initContainers");
    if is_init && !policy.is_set() && !rules.is_empty() {
        let why = "must specify restartPolicy when restart rules are used";
        return policy.required(errors, why);
    }
    if policy.is_set() {
        policy.one_of(errors, &["Always", "Never", "OnFailure"]);
    } else if !rules.is_empty() {
        policy.required(errors, "must specify restartPolicy when restart rules are used");
    }
    if rules.len() > 20 {
        errors.too_many(rules.path(), rules.len(), 20);
    }
    for rule in rules.items() {
        let actions = ["Restart", "RestartAllContainers"];
        if !actions.contains(&rule.str_at(&["action"])) {
            rule.get("action").not_supported(errors, &actions);
        }
        let codes = rule.get("exitCodes");
        if codes.is_set() {
            if !matches!(codes.str_at(&["operator"]), "In" | "NotIn") {
                codes.get("operator").not_supported(errors, &["In", "NotIn"]);
            }
            if codes.get("values").len() > 255 {
                errors.too_many(codes.get("values").path(), codes.get("values").len(), 255);
            }
        } else {
            codes.required(errors, "must be specified");
        }
    }
}
