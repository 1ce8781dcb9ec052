//! What a pod's spec must be: of pods, and of the templates that controllers make pods from.

mod affinity;
mod containers;
mod env;
mod mounts;
mod os;
mod probes;
mod resources;
mod scheduling;
mod security;
pub(crate) mod volume_sources;
mod volumes;

use meta::{
    FieldErrors, Value,
    field::RuleId,
    names::{
        is_dns1123_label, is_dns1123_subdomain, is_dns1123_subdomain_with_underscore,
        is_qualified_name, validate_labels,
    },
};

pub(crate) use self::{
    affinity::{
        NODE_SELECTOR_VALUE, POD_AFFINITY_SELECTOR_VALUE, POD_ANTI_AFFINITY_SELECTOR_VALUE,
        node_selector, taint_effect,
    },
    containers::{NON_SIDECAR_RESIZE_POLICY, image_whitespace},
    probes::port,
    resources::{
        HUGE_PAGES_MULTIPLE, STANDARD_RESOURCES, allows_overcommit, basic_resource,
        compare_quantities, container_resource_name, is_extended_resource, is_native_resource,
        is_quota_huge_page, positive_quantity, quantity, quantity_value, requirements,
        resource_name,
    },
    scheduling::{
        TOPOLOGY_SPREAD_SELECTOR_VALUE, added_tolerations_only, removed_gates_only, tolerations,
    },
    security::SYSCTL_OF_HOST_NAMESPACE,
    volume_sources::{TOKEN_PATH, relative_path},
};
use super::{cursor::Field, ip::legacy_ip};
use crate::feature_gates::{FeatureGate, FeatureGates};

/// The object that a spec is in.
pub(crate) struct Owner<'a> {
    /// Whether it is a pod: a template may leave a few things open.
    pub(crate) is_pod: bool,
    /// The pod's name, from which those of its ephemeral claims are made; "" for a template.
    pub(crate) name: &'a str,
    pub(crate) is_mirror: bool,
    pub(crate) options: PodSpecOptions,
}

impl Owner<'_> {
    pub(crate) fn template(options: PodSpecOptions) -> Owner<'static> {
        Owner { is_pod: false, name: "", is_mirror: false, options }
    }
}

/// What a spec may hold depending on the server and, in an update, on the old spec.
#[derive(Clone, Copy, Default)]
pub(crate) struct PodSpecOptions {
    /// `seLinuxChangePolicy` may be `MountOption`.
    pub(crate) selinux_mount_option: bool,
}

impl PodSpecOptions {
    pub(crate) fn new(features: FeatureGates) -> Self {
        Self { selinux_mount_option: features.enabled(FeatureGate::SELinuxMount) }
    }

    /// Compat: a spec that has a policy may change it to any, so that pods stay writable after the
    /// feature is turned off.
    pub(crate) fn for_update(self, old_spec: Option<&Value>) -> Self {
        let policy = ["securityContext", "seLinuxChangePolicy"];
        let had_policy = old_spec.is_some_and(|spec| spec.at(&policy).is_some());
        Self { selinux_mount_option: self.selinux_mount_option || had_policy }
    }
}

pub(crate) fn validate(spec: &Field<'_>, owner: &Owner<'_>, errors: &mut FieldErrors) {
    let volumes = volumes::validate(&spec.get("volumes"), owner, errors);
    resources::pod_claims(&spec.get("resourceClaims"), owner, errors);
    let scope = containers::PodReferences::new(spec, &volumes);
    containers::regular(&scope, errors);
    containers::init(&scope, errors);
    containers::ephemeral(&scope, errors);
    resources::pod_level(spec, &scope.claims, errors);
    containers::host_network_ports(spec, owner, errors);
    spec.get("restartPolicy").one_of_or_default(errors, &["Always", "OnFailure", "Never"]);
    let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    spec.get("dnsPolicy").one_of_or_default(errors, &dns);
    let selector = spec.get("nodeSelector");
    validate_labels(selector.value(), &selector.path(), errors);
    security::pod(spec, owner.options, errors);
    affinity::validate(&spec.get("affinity"), errors);
    dns_config(spec, errors);
    for gate in spec.get("readinessGates").items() {
        gate.get("conditionType").rule(errors, is_qualified_name);
    }
    scheduling::gates(&spec.get("schedulingGates"), errors);
    scheduling::topology_spread(&spec.get("topologySpreadConstraints"), errors);
    security::windows_host_process(spec, errors);
    host_users(spec, errors);
    hostname_override(spec, errors);
    names(spec, errors);
    if let Some(seconds) = spec.get("activeDeadlineSeconds").int()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        spec.get("activeDeadlineSeconds").in_range(errors, 1, i64::from(i32::MAX));
    }
    spec.get("hostname").rule_if_filled(errors, is_dns1123_label);
    spec.get("subdomain").rule_if_filled(errors, is_dns1123_label);
    scheduling::tolerations(&spec.get("tolerations"), errors);
    host_aliases(&spec.get("hostAliases"), errors);
    spec.get("priorityClassName").rule_if_filled(errors, is_dns1123_subdomain);
    if spec.get("runtimeClassName").is_set() {
        spec.get("runtimeClassName").rule(errors, is_dns1123_subdomain);
    }
    preemption_policy(&spec.get("preemptionPolicy"), errors);
    resources::overhead(&spec.get("overhead"), errors);
    os::validate(spec, errors);
    let group = spec.get("schedulingGroup");
    if group.is_set() {
        let name = group.get("podGroupName");
        if name.is_set() {
            name.rule(errors, is_dns1123_subdomain);
        } else {
            name.invalid(errors, "must specify one of: `podGroupName`");
        }
    }
    env::file_key_volumes(spec, errors);
}

pub(crate) fn preemption_policy(policy: &Field<'_>, errors: &mut FieldErrors) {
    if policy.is_set() && policy.require(errors) {
        policy.one_of(errors, &["PreemptLowerPriority", "Never"]);
    }
}

fn names(spec: &Field<'_>, errors: &mut FieldErrors) {
    spec.get("serviceAccountName").rule_if_filled(errors, is_dns1123_subdomain);
    spec.get("nodeName").rule_if_filled(errors, is_dns1123_subdomain);
}

fn dns_config(spec: &Field<'_>, errors: &mut FieldErrors) {
    let config = spec.get("dnsConfig");
    let (servers, searches) = (config.get("nameservers"), config.get("searches"));
    if spec.get("dnsPolicy").is("None") {
        if !config.is_set() {
            return config.required(errors, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return servers.required(errors, why);
        }
    }
    if servers.len() > 3 {
        servers.invalid(errors, "must not have more than 3 nameservers");
    }
    for server in servers.items() {
        legacy_ip(&server, &[], errors);
    }
    if searches.len() > 32 {
        searches.invalid(errors, "must not have more than 32 search paths");
    }
    let characters: usize = searches.items().map(|search| search.len() + 1).sum();
    if characters > SEARCH_LIST_BYTES_MAX + 1 {
        let why = format!(
            "must not have more than {SEARCH_LIST_BYTES_MAX} characters (including spaces) in \
             the search list"
        );
        searches.invalid(errors, &why);
    }
    for search in searches.items().filter(|search| !search.is(".")) {
        let text = search.str();
        let name = text.strip_suffix('.').unwrap_or(text);
        for why in is_dns1123_subdomain_with_underscore(name) {
            search.invalid_value(errors, name, &why);
        }
    }
    for option in config.get("options").items() {
        if option.get("name").is_empty() {
            option.required(errors, "must not be empty");
        }
    }
}

const SEARCH_LIST_BYTES_MAX: usize = 2048;

/// Without the host's users, nothing else of the host may be shared.
fn host_users(spec: &Field<'_>, errors: &mut FieldErrors) {
    let users = spec.get("hostUsers");
    if !users.is_set() || users.bool() {
        return;
    }
    let why = "when `hostUsers` is false";
    if spec.get("hostNetwork").bool() {
        spec.get("hostNetwork").forbidden(errors, why);
    }
    // Compat: upstream names these two as its Go fields.
    for (name, shown) in [("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.get(name).bool() {
            spec.get(shown).forbidden(errors, why);
        }
    }
    each_container(spec, |container| {
        let devices = container.get("volumeDevices");
        if !devices.is_empty() {
            errors.with_rule(DEVICES_WITHOUT_HOST_USERS, |errors| devices.forbidden(errors, why));
        }
    });
}

/// Containers in a user namespace use no block devices.
pub(crate) const DEVICES_WITHOUT_HOST_USERS: RuleId = RuleId::new("devices without host users");

fn hostname_override(spec: &Field<'_>, errors: &mut FieldErrors) {
    let name = spec.get("hostnameOverride");
    if !name.is_set() {
        return;
    }
    if spec.get("setHostnameAsFQDN").bool() {
        name.forbidden(errors, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.get("hostNetwork").bool() {
        name.forbidden(errors, "may not be specified when hostNetwork is true");
    }
    if name.len() > 64 {
        errors.too_long(name.path(), 64);
    }
    name.rule(errors, is_dns1123_subdomain);
}

fn host_aliases(aliases: &Field<'_>, errors: &mut FieldErrors) {
    for alias in aliases.items() {
        legacy_ip(&alias.get("ip"), &[], errors);
        for name in alias.get("hostnames").items() {
            name.rule(errors, is_dns1123_subdomain);
        }
    }
}

/// Init containers, containers, ephemeral containers: the order in which upstream visits them.
pub(crate) fn each_container(spec: &Field<'_>, mut visit: impl FnMut(Field<'_>)) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let list = spec.get(list);
        for container in list.items() {
            visit(container);
        }
    }
}
