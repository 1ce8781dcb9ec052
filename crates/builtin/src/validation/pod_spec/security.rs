//! Security contexts, of a pod and of its containers.

use std::collections::BTreeSet;

use meta::{
    FieldErrors,
    field::RuleId,
    names::{is_dns1123_subdomain, is_user_id},
};

use super::{PodSpecOptions, each_container, volume_sources::relative_path};
use crate::validation::cursor::Field;

/// The pod's own context, and the fields of the spec that belong to it.
pub(crate) fn pod(spec: &Field<'_>, options: PodSpecOptions, errors: &mut FieldErrors) {
    let context = spec.get("securityContext");
    ids(&context, &["fsGroup", "runAsUser", "runAsGroup"], errors);
    for group in context.get("supplementalGroups").items() {
        group.int_rule(errors, is_user_id);
    }
    if spec.get("shareProcessNamespace").bool() && spec.get("hostPID").bool() {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        context.get("shareProcessNamespace").invalid_value(errors, true, why);
    }
    sysctls(spec, &context.get("sysctls"), errors);
    context.get("fsGroupChangePolicy").one_of(errors, &["Always", "OnRootMismatch"]);
    seccomp(&context.get("seccompProfile"), errors);
    windows(&context.get("windowsOptions"), errors);
    app_armor(&context.get("appArmorProfile"), errors);
    context.get("supplementalGroupsPolicy").one_of(errors, &["Merge", "Strict"]);
    let policies: &[&str] =
        if options.selinux_mount_option { &["MountOption", "Recursive"] } else { &["Recursive"] };
    context.get("seLinuxChangePolicy").one_of(errors, policies);
}

pub(crate) fn container(context: &Field<'_>, host_users: bool, errors: &mut FieldErrors) {
    if !context.is_set() {
        return;
    }
    ids(context, &["runAsUser", "runAsGroup"], errors);
    let mount = context.get("procMount");
    mount.one_of(errors, &["Default", "Unmasked"]);
    if host_users && mount.is("Unmasked") {
        mount.invalid(errors, "`hostUsers` must be false to use `Unmasked`");
    }
    seccomp(&context.get("seccompProfile"), errors);
    let escalation = context.get("allowPrivilegeEscalation");
    if escalation.is_set() && !escalation.bool() {
        if context.get("privileged").bool() {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            context.invalid_shown(errors, &show(context), why);
        }
        let capabilities = context.get("capabilities");
        if capabilities.get("add").items().any(|capability| capability.is("CAP_SYS_ADMIN")) {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` \
                       CAP_SYS_ADMIN";
            context.invalid_shown(errors, &show(context), why);
        }
    }
    windows(&context.get("windowsOptions"), errors);
    app_armor(&context.get("appArmorProfile"), errors);
}

fn ids(context: &Field<'_>, names: &[&str], errors: &mut FieldErrors) {
    for name in names {
        if context.get(name).is_set() {
            context.get(name).int_rule(errors, is_user_id);
        }
    }
}

/// A container's context as Go prints its internal struct.
fn show(context: &Field<'_>) -> String {
    let member = |go: &str, value: Option<&meta::Value>| {
        format!("\"{go}\":{}", value.map_or_else(|| "null".to_owned(), go_case))
    };
    let members: Vec<String> = [
        ("Capabilities", "capabilities"),
        ("Privileged", "privileged"),
        ("SELinuxOptions", "seLinuxOptions"),
        ("WindowsOptions", "windowsOptions"),
        ("RunAsUser", "runAsUser"),
        ("RunAsGroup", "runAsGroup"),
        ("RunAsNonRoot", "runAsNonRoot"),
        ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem"),
        ("AllowPrivilegeEscalation", "allowPrivilegeEscalation"),
        ("ProcMount", "procMount"),
        ("SeccompProfile", "seccompProfile"),
        ("AppArmorProfile", "appArmorProfile"),
    ]
    .iter()
    .map(|(go, name)| match context.value_at(&[name]) {
        Some(capabilities) if *name == "capabilities" => {
            let part = |name: &str| {
                capabilities.get(name).map_or_else(|| "null".to_owned(), meta::json::to_string)
            };
            format!(r#""{go}":{{"Add":{},"Drop":{}}}"#, part("add"), part("drop"))
        }
        value => member(go, value),
    })
    .collect();
    format!("{{{}}}", members.join(","))
}

/// A nested value, its members named and ordered as Go has them.
fn go_case(value: &meta::Value) -> String {
    let Some(map) = value.as_object() else { return meta::json::to_string(value) };
    let mut names: Vec<&str> = map.keys().map(meta::Str::as_str).collect();
    // Of what is nested here, only profiles are not in the order of the alphabet.
    names.sort_by_key(|name| *name == "localhostProfile");
    let members: Vec<String> = names
        .iter()
        .map(|name| {
            let mut letters = name.chars();
            let first = letters.next().map(|c| c.to_ascii_uppercase()).into_iter();
            let go: String = first.chain(letters).collect();
            format!("\"{go}\":{}", map.get(name).map(go_case).unwrap_or_default())
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

fn seccomp(profile: &Field<'_>, errors: &mut FieldErrors) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
    if kind.is_empty() {
        kind.required(errors, "type is required when seccompProfile is set");
    } else {
        kind.one_of(errors, PROFILE_TYPES);
    }
    if kind.is("Localhost") {
        if local.is_set() {
            relative_path(&local, errors);
        } else {
            local.required(errors, "must be set when seccomp type is Localhost");
        }
    } else if local.is_set() {
        let shown = format!(
            r#"{{"Type":{},"LocalhostProfile":{}}}"#,
            meta::json::to_string(&kind.str().into()),
            meta::json::to_string(&local.str().into()),
        );
        local.invalid_shown(errors, &shown, "can only be set when seccomp type is Localhost");
    }
}

const PROFILE_TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

fn app_armor(profile: &Field<'_>, errors: &mut FieldErrors) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
    let must = "must be set when AppArmor type is Localhost";
    match kind.str() {
        "Localhost" if !local.is_set() => local.required(errors, must),
        "Localhost" => {
            if local.str().trim() != local.str() {
                local.invalid(errors, "must not be padded with whitespace");
            } else if local.is_empty() {
                local.required(errors, must);
            }
            if local.len() > 4095 {
                errors.too_long(local.path(), 4095);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if local.is_set() {
                local.invalid(errors, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => kind.required(errors, "type is required when appArmorProfile is set"),
        _ => kind.not_supported(errors, PROFILE_TYPES),
    }
}

fn sysctls(spec: &Field<'_>, sysctls: &Field<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for sysctl in sysctls.items() {
        let name = sysctl.get("name");
        if name.is_empty() {
            name.required(errors, "");
        } else if !is_sysctl(name.str()) {
            let segment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
            let why = format!(
                "must have at most 253 characters and match regex ^({segment}[\\./])*{segment}$"
            );
            name.invalid(errors, &why);
        } else if seen.contains(name.str()) {
            name.duplicate(errors);
        }
        // A name's separator may be a slash; then its dots are slashes.
        let (dotted, separator) = (name.str(), name.str().find(['.', '/']));
        let dotted = match separator.map(|at| dotted.as_bytes()[at]) {
            Some(b'/') => dotted.replace('/', "."),
            _ => dotted.to_owned(),
        };
        let is_ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."]
            .iter()
            .any(|prefix| dotted.starts_with(prefix))
            || dotted == "kernel.sem";
        errors.with_rule(SYSCTL_OF_HOST_NAMESPACE, |errors| {
            if spec.get("hostNetwork").bool() && dotted.starts_with("net.") {
                name.invalid(errors, "may not be specified when 'hostNetwork' is true");
            } else if spec.get("hostIPC").bool() && is_ipc {
                name.invalid(errors, "may not be specified when 'hostIPC' is true");
            }
        });
        seen.insert(name.str().to_owned());
    }
}

/// A pod that uses a namespace of the host does not set its sysctls.
pub(crate) const SYSCTL_OF_HOST_NAMESPACE: RuleId = RuleId::new("sysctl of host namespace");

fn is_sysctl(name: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            part.starts_with(is_edge)
                && part.ends_with(is_edge)
                && part.chars().all(|c| is_edge(c) || "-_".contains(c))
        })
}

fn windows(options: &Field<'_>, errors: &mut FieldErrors) {
    if options.get("gmsaCredentialSpecName").is_set() {
        options.get("gmsaCredentialSpecName").rule(errors, is_dns1123_subdomain);
    }
    let credential = options.get("gmsaCredentialSpec");
    if credential.is_set() && credential.is_empty() {
        credential.invalid(errors, "gmsaCredentialSpec cannot be an empty string");
    } else if credential.len() > 64 * 1024 {
        credential.invalid(errors, "gmsaCredentialSpec size must be under 64 KiB");
    }
    let user = options.get("runAsUserName");
    if user.is_set() {
        for why in windows_user_errors(user.str()) {
            user.invalid(errors, why);
        }
    }
}

/// `DOMAIN\User` or `User`.
fn windows_user_errors(name: &str) -> Vec<&'static str> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string"];
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters"];
    }
    let (domain, user) = match *name.split('\\').collect::<Vec<_>>() {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return vec!["runAsUserName cannot contain more than one backslash"],
    };
    let mut errors = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            errors.push("runAsUserName's Domain length must be under 256 characters");
        }
        if !is_net_bios(domain) && !is_windows_dns(domain) {
            errors.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        errors.push("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        errors.push("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        errors.push("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(|c: char| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        errors.push(
            "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]",
        );
    }
    errors
}

fn is_net_bios(domain: &str) -> bool {
    let is_bad = |c: char| "\\/:*?\"<>|".contains(c);
    (1..=15).contains(&domain.chars().count())
        && !domain.starts_with('.')
        && !domain.contains(is_bad)
}

fn is_windows_dns(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let is_edge = |c: char| c.is_ascii_alphanumeric();
        (1..=63).contains(&label.len())
            && label.starts_with(is_edge)
            && label.ends_with(is_edge)
            && label.chars().all(|c| is_edge(c) || c == '-')
    })
}

/// Host process containers: all or none, and on the host's network.
pub(crate) fn windows_host_process(spec: &Field<'_>, errors: &mut FieldErrors) {
    let path = ["securityContext", "windowsOptions", "hostProcess"];
    let of_pod = spec.value_at(&path).and_then(meta::Value::as_bool);
    let (mut all, mut on_host) = (0, 0);
    each_container(spec, |container| {
        all += 1;
        let own = container.value_at(&path).and_then(meta::Value::as_bool);
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let why = format!(
                "pod hostProcess value must be identical if both are specified, was {of_pod}"
            );
            let context = container.get("securityContext");
            context.get("windowsOptions").get("hostProcess").invalid_value(errors, own, &why);
        }
        if own.or(of_pod) == Some(true) {
            on_host += 1;
        }
    });
    if on_host == 0 {
        return;
    }
    if on_host != all {
        let why = "If pod contains any hostProcess containers then all containers must be \
                   HostProcess containers";
        spec.invalid_value(errors, "", why);
    }
    if !spec.get("hostNetwork").bool() {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        spec.get("hostNetwork").invalid_value(errors, false, why);
    }
}
