//! The Pod Security Standards: what a pod may not do at a level, in a version.

use std::collections::BTreeSet;

use meta::{Value, field::quote};

use super::policy::{Level, LevelVersion};

/// What is wrong with a pod.
pub(crate) struct Violation {
    reason: &'static str,
    detail: String,
}

/// The reasons and their details, for the pod that a request is about.
pub(crate) fn details(violations: &[Violation]) -> String {
    let text = |violation: &Violation| match violation.detail.as_str() {
        "" => violation.reason.to_owned(),
        detail => format!("{} ({detail})", violation.reason),
    };
    violations.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The reasons alone, for pods that exist.
pub(crate) fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
}

/// Checks a pod or pod template.
pub(crate) fn evaluate(policy: LevelVersion, metadata: &Value, spec: &Value) -> Vec<Violation> {
    if policy.level == Level::Privileged {
        return Vec::new();
    }
    let pod = Pod { metadata, spec };
    let from = |minor| policy.version.is_at_least(minor);
    // A check of level restricted takes the place of the one of level baseline.
    let restricted = policy.level == Level::Restricted;
    let restricted_from = |minor| restricted && from(minor);
    let in_user_namespace = from(35) && pod.spec.get("hostUsers") == Some(&Value::Bool(false));
    let on_windows = from(25) && spec.str_at(&["os", "name"]) == "windows";
    let mut found = Vec::new();
    // Compat: in the order of upstream's check ids, baseline first.
    found.extend(pod.app_armor());
    if !restricted_from(22) {
        found.extend(pod.default_capabilities());
    }
    found.extend(pod.host_namespaces());
    if !restricted {
        found.extend(pod.host_paths());
    }
    found.extend(pod.host_ports());
    if from(34) {
        found.extend(pod.probe_hosts());
    }
    found.extend(pod.privileged());
    if !restricted_from(35) && !in_user_namespace {
        found.extend(pod.proc_mount());
    }
    found.extend(pod.selinux(from(31)));
    if !restricted_from(19) {
        found.extend(if from(19) { pod.seccomp(false) } else { pod.seccomp_annotations() });
    }
    found.extend(pod.sysctls(&from));
    found.extend(pod.host_process());
    if !restricted {
        return found;
    }
    if from(8) && !on_windows {
        found.extend(pod.privilege_escalation());
    }
    if from(22) && !on_windows {
        found.extend(pod.no_capabilities());
    }
    if from(35) {
        found.extend(pod.proc_mount());
    }
    found.extend(pod.volume_types());
    if !in_user_namespace {
        found.extend(pod.run_as_non_root());
    }
    if from(23) && !in_user_namespace {
        found.extend(pod.run_as_user());
    }
    if from(19) && !on_windows {
        found.extend(pod.seccomp(true));
    }
    found
}

struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
}

type Found = Option<Violation>;

fn violation(reason: &'static str, detail: String) -> Found {
    Some(Violation { reason, detail })
}

/// `"a", "b"`
fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> =
        items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    items.join(", ")
}

fn plural<'a>(count: usize, singular: &'a str, plural: &'a str) -> &'a str {
    if count == 1 { singular } else { plural }
}

/// `container "a"`, `containers "a", "b"`
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names))
}

/// The pod and the containers that set something: `pod and container "a"`.
fn setters(pod: bool, names: &[&str]) -> String {
    match (pod, names) {
        (true, []) => "pod".to_owned(),
        (true, names) => format!("pod and {}", containers(names)),
        (false, names) => containers(names),
    }
}

fn name(container: &Value) -> &str {
    container.str_at(&["name"])
}

impl<'a> Pod<'a> {
    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        let spec = self.spec;
        lists.into_iter().flat_map(move |list| spec.items_at(&[list]))
    }

    /// The names of the containers that something holds for.
    fn containers_where(&self, holds: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| holds(container)).map(name).collect()
    }

    fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let annotations = self.metadata.get("annotations").and_then(Value::as_object);
        let annotations = annotations.into_iter().flat_map(meta::Map::iter);
        annotations.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }

    /// Which of the pod and its containers set a type in their security context that is not allowed,
    /// and these types.
    fn bad_types(&self, field: &str, allowed: &[&str]) -> (bool, Vec<&'a str>, BTreeSet<&'a str>) {
        let path = ["securityContext", field];
        let mut bad = BTreeSet::new();
        let mut is_bad = |holder: &'a Value| {
            let Some(profile) = holder.at(&path).filter(|profile| !profile.is_null()) else {
                return false;
            };
            let ty = profile.str_at(&["type"]);
            if allowed.contains(&ty) {
                return false;
            }
            bad.insert(ty);
            true
        };
        let of_pod = is_bad(self.spec);
        let of_containers =
            self.containers().filter(|container| is_bad(container)).map(name).collect();
        (of_pod, of_containers, bad)
    }

    fn app_armor(&self) -> Found {
        let allowed = ["RuntimeDefault", "Localhost"];
        let (of_pod, of_containers, bad) = self.bad_types("appArmorProfile", &allowed);
        let mut values: Vec<String> = bad.into_iter().map(str::to_owned).collect();
        let prefix = "container.apparmor.security.beta.kubernetes.io/";
        let is_allowed = |value: &str| {
            matches!(value, "" | "runtime/default") || value.starts_with("localhost/")
        };
        let annotations = self.annotations();
        let annotations =
            annotations.filter(|(key, value)| key.starts_with(prefix) && !is_allowed(value));
        let mut annotations: Vec<String> =
            annotations.map(|(key, value)| format!("{key}={}", quote(value))).collect();
        annotations.sort();
        let mut who = Vec::new();
        if of_pod || !of_containers.is_empty() {
            who.push(setters(of_pod, &of_containers));
        }
        if !annotations.is_empty() {
            who.push(plural(annotations.len(), "annotation", "annotations").to_owned());
        }
        if who.is_empty() {
            return None;
        }
        values.extend(annotations);
        let reason =
            plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
        let (who, values) = (who.join(" and "), quoted(values));
        violation(reason, format!("{who} must not set AppArmor profile type to {values}"))
    }

    /// The containers that add capabilities other than some, and these.
    fn added_capabilities(&self, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
        let mut bad = BTreeSet::new();
        let mut adds = |container: &&'a Value| {
            let added = container.items_at(&["securityContext", "capabilities", "add"]).iter();
            let added = added.filter_map(Value::as_str);
            let before: Vec<&str> = added.filter(|name| !allowed.contains(name)).collect();
            bad.extend(before.iter().copied());
            !before.is_empty()
        };
        let names = self.containers().filter(|container| adds(container)).map(name).collect();
        (names, bad)
    }

    fn default_capabilities(&self) -> Found {
        const DEFAULT: [&str; 13] = [
            "AUDIT_WRITE",
            "CHOWN",
            "DAC_OVERRIDE",
            "FOWNER",
            "FSETID",
            "KILL",
            "MKNOD",
            "NET_BIND_SERVICE",
            "SETFCAP",
            "SETGID",
            "SETPCAP",
            "SETUID",
            "SYS_CHROOT",
        ];
        let (names, bad) = self.added_capabilities(&DEFAULT);
        if names.is_empty() {
            return None;
        }
        let (who, bad) = (containers(&names), quoted(bad));
        let detail = format!("{who} must not include {bad} in securityContext.capabilities.add");
        violation("non-default capabilities", detail)
    }

    fn host_namespaces(&self) -> Found {
        let fields = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
        let set = fields.filter(|field| self.spec.bool_at(&[field]));
        let set: Vec<String> = set.map(|field| format!("{field}=true")).collect();
        if set.is_empty() { None } else { violation("host namespaces", set.join(", ")) }
    }

    fn host_paths(&self) -> Found {
        let volumes = self.spec.items_at(&["volumes"]).iter();
        let volumes = volumes.filter(|volume| has(volume, "hostPath"));
        let names: Vec<&str> = volumes.map(name).collect();
        if names.is_empty() {
            return None;
        }
        let volumes = plural(names.len(), "volume", "volumes");
        violation("hostPath volumes", format!("{volumes} {}", quoted(names)))
    }

    fn host_ports(&self) -> Found {
        let mut ports = BTreeSet::new();
        let mut uses = |container: &&Value| {
            let of_container = container.items_at(&["ports"]).iter();
            let of_container = of_container.filter_map(|port| port.i64_at(&["hostPort"]));
            let before: Vec<i64> = of_container.filter(|port| *port != 0).collect();
            ports.extend(before.iter().map(ToString::to_string));
            !before.is_empty()
        };
        let names: Vec<&str> =
            self.containers().filter(|container| uses(container)).map(name).collect();
        if names.is_empty() {
            return None;
        }
        let detail = format!(
            "{} {} {} {}",
            containers(&names),
            plural(names.len(), "uses", "use"),
            plural(ports.len(), "hostPort", "hostPorts"),
            ports.into_iter().collect::<Vec<_>>().join(", ")
        );
        violation("hostPort", detail)
    }

    fn probe_hosts(&self) -> Found {
        const HANDLERS: [&[&str]; 5] = [
            &["livenessProbe"],
            &["readinessProbe"],
            &["startupProbe"],
            &["lifecycle", "postStart"],
            &["lifecycle", "preStop"],
        ];
        let (mut names, mut hosts) = (BTreeSet::new(), BTreeSet::new());
        for container in self.containers() {
            for handler in HANDLERS {
                let Some(handler) = container.at(handler) else { continue };
                for action in ["httpGet", "tcpSocket"] {
                    let host = handler.str_at(&[action, "host"]);
                    if !host.is_empty() {
                        names.insert(name(container));
                        hosts.insert(host);
                    }
                }
            }
        }
        if names.is_empty() {
            return None;
        }
        let names: Vec<&str> = names.into_iter().collect();
        let detail = format!(
            "{} {} {} {}",
            containers(&names),
            plural(names.len(), "uses", "use"),
            plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts"),
            quoted(hosts)
        );
        violation("probe or lifecycle host", detail)
    }

    fn privileged(&self) -> Found {
        let bad = self.containers_where(|c| c.bool_at(&["securityContext", "privileged"]));
        if bad.is_empty() {
            return None;
        }
        let who = containers(&bad);
        violation("privileged", format!("{who} must not set securityContext.privileged=true"))
    }

    fn proc_mount(&self) -> Found {
        let mount = |container: &'a Value| container.str_at(&["securityContext", "procMount"]);
        let bad = self.containers().filter(|container| !matches!(mount(container), "" | "Default"));
        let bad: Vec<&Value> = bad.collect();
        if bad.is_empty() {
            return None;
        }
        let names: Vec<&str> = bad.iter().map(|container| name(container)).collect();
        let types: BTreeSet<&str> = bad.iter().map(|container| mount(container)).collect();
        let (who, types) = (containers(&names), quoted(types));
        violation("procMount", format!("{who} must not set securityContext.procMount to {types}"))
    }

    fn selinux(&self, with_engine: bool) -> Found {
        let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
        let mut is_bad = |holder: &'a Value| {
            let Some(options) = holder.at(&["securityContext", "seLinuxOptions"]) else {
                return false;
            };
            let ty = options.str_at(&["type"]);
            let allowed = matches!(ty, "" | "container_t" | "container_init_t" | "container_kvm_t")
                || (with_engine && ty == "container_engine_t");
            if !allowed {
                types.insert(ty);
            }
            let sets_user = !options.str_at(&["user"]).is_empty();
            let sets_role = !options.str_at(&["role"]).is_empty();
            user |= sets_user;
            role |= sets_role;
            !allowed || sets_user || sets_role
        };
        let of_pod = is_bad(self.spec);
        let names: Vec<&str> =
            self.containers().filter(|container| is_bad(container)).map(name).collect();
        if !of_pod && names.is_empty() {
            return None;
        }
        let mut what = Vec::new();
        if !types.is_empty() {
            what.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(types)));
        }
        if user {
            what.push("user may not be set".to_owned());
        }
        if role {
            what.push("role may not be set".to_owned());
        }
        let (who, what) = (setters(of_pod, &names), what.join("; "));
        violation(
            "seLinuxOptions",
            format!("{who} set forbidden securityContext.seLinuxOptions: {what}"),
        )
    }

    /// As before v1.19, when there was no field.
    fn seccomp_annotations(&self) -> Found {
        const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
        const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
        let is_allowed = |value: &str| {
            matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")
        };
        let names: BTreeSet<&str> = self.containers().map(name).collect();
        let concerns = |key: &str| {
            key == POD || key.strip_prefix(CONTAINER).is_some_and(|name| names.contains(name))
        };
        let bad = self.annotations().filter(|(key, value)| concerns(key) && !is_allowed(value));
        let bad: BTreeSet<String> =
            bad.map(|(key, value)| format!("{key}={}", quote(value))).collect();
        if bad.is_empty() {
            return None;
        }
        let annotations = plural(bad.len(), "annotation", "annotations");
        let bad = bad.into_iter().collect::<Vec<_>>().join(", ");
        violation("seccompProfile", format!("forbidden {annotations} {bad}"))
    }

    /// `required`: a container without a profile needs one of the pod.
    fn seccomp(&self, required: bool) -> Found {
        let allowed = ["Localhost", "RuntimeDefault"];
        let (of_pod, names, bad) = self.bad_types("seccompProfile", &allowed);
        if of_pod || !names.is_empty() {
            let (who, bad) = (setters(of_pod, &names), quoted(bad));
            let detail = format!("{who} must not set securityContext.seccompProfile.type to {bad}");
            return violation("seccompProfile", detail);
        }
        let has_profile = |holder: &Value| {
            holder.at(&["securityContext", "seccompProfile"]).is_some_and(|value| !value.is_null())
        };
        if !required || has_profile(self.spec) {
            return None;
        }
        let missing = self.containers_where(|container| !has_profile(container));
        if missing.is_empty() {
            return None;
        }
        let detail = format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
             \"Localhost\"",
            containers(&missing)
        );
        violation("seccompProfile", detail)
    }

    fn sysctls(&self, from: &dyn Fn(u64) -> bool) -> Found {
        let is_allowed = |name: &str| match name {
            "kernel.shm_rmid_forced"
            | "net.ipv4.ip_local_port_range"
            | "net.ipv4.tcp_syncookies"
            | "net.ipv4.ping_group_range"
            | "net.ipv4.ip_unprivileged_port_start" => true,
            "net.ipv4.ip_local_reserved_ports" => from(27),
            "net.ipv4.tcp_keepalive_time"
            | "net.ipv4.tcp_fin_timeout"
            | "net.ipv4.tcp_keepalive_intvl"
            | "net.ipv4.tcp_keepalive_probes" => from(29),
            "net.ipv4.tcp_rmem" | "net.ipv4.tcp_wmem" => from(32),
            _ => false,
        };
        let names = self.spec.items_at(&["securityContext", "sysctls"]).iter().map(name);
        let bad: Vec<&str> = names.filter(|name| !is_allowed(name)).collect();
        if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
    }

    fn host_process(&self) -> Found {
        let path = ["securityContext", "windowsOptions", "hostProcess"];
        let of_pod = self.spec.bool_at(&path);
        let names = self.containers_where(|container| container.bool_at(&path));
        if !of_pod && names.is_empty() {
            return None;
        }
        let who = setters(of_pod, &names);
        let detail = format!("{who} must not set securityContext.windowsOptions.hostProcess=true");
        violation("hostProcess", detail)
    }

    fn privilege_escalation(&self) -> Found {
        let path = ["securityContext", "allowPrivilegeEscalation"];
        let bad =
            self.containers_where(|container| container.at(&path) != Some(&Value::Bool(false)));
        if bad.is_empty() {
            return None;
        }
        let detail =
            format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&bad));
        violation("allowPrivilegeEscalation != false", detail)
    }

    fn no_capabilities(&self) -> Found {
        let keeps = |container: &Value| {
            let dropped = container.items_at(&["securityContext", "capabilities", "drop"]);
            dropped.iter().all(|name| name.as_str() != Some("ALL"))
        };
        let keeping = self.containers_where(keeps);
        let (adding, bad) = self.added_capabilities(&["NET_BIND_SERVICE"]);
        let mut details = Vec::new();
        if !keeping.is_empty() {
            let who = containers(&keeping);
            details.push(format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
        }
        if !adding.is_empty() {
            let (who, bad) = (containers(&adding), quoted(bad));
            details
                .push(format!("{who} must not include {bad} in securityContext.capabilities.add"));
        }
        if details.is_empty() {
            return None;
        }
        violation("unrestricted capabilities", details.join("; "))
    }

    fn volume_types(&self) -> Found {
        const ALLOWED: [&str; 9] = [
            "configMap",
            "csi",
            "downwardAPI",
            "emptyDir",
            "ephemeral",
            "image",
            "persistentVolumeClaim",
            "projected",
            "secret",
        ];
        const OTHERS: [&str; 21] = [
            "hostPath",
            "gcePersistentDisk",
            "awsElasticBlockStore",
            "gitRepo",
            "nfs",
            "iscsi",
            "glusterfs",
            "rbd",
            "flexVolume",
            "cinder",
            "cephfs",
            "flocker",
            "fc",
            "azureFile",
            "vsphereVolume",
            "quobyte",
            "azureDisk",
            "photonPersistentDisk",
            "portworxVolume",
            "scaleIO",
            "storageos",
        ];
        let is_allowed = |volume: &&Value| ALLOWED.iter().any(|ty| has(volume, ty));
        let volumes = self.spec.items_at(&["volumes"]).iter();
        let bad: Vec<&Value> = volumes.filter(|volume| !is_allowed(volume)).collect();
        if bad.is_empty() {
            return None;
        }
        let type_of =
            |volume: &Value| OTHERS.into_iter().find(|ty| has(volume, ty)).unwrap_or("unknown");
        let types: BTreeSet<&str> = bad.iter().map(|volume| type_of(volume)).collect();
        let detail = format!(
            "{} {} {} {} {}",
            plural(bad.len(), "volume", "volumes"),
            quoted(bad.iter().map(|volume| name(volume))),
            plural(bad.len(), "uses", "use"),
            plural(types.len(), "restricted volume type", "restricted volume types"),
            quoted(types)
        );
        violation("restricted volume types", detail)
    }

    fn run_as_non_root(&self) -> Found {
        let of = |holder: &Value| {
            holder.at(&["securityContext", "runAsNonRoot"]).and_then(Value::as_bool)
        };
        let bad = self.containers_where(|container| of(container) == Some(false));
        let of_pod = of(self.spec);
        if of_pod == Some(false) || !bad.is_empty() {
            let who = setters(of_pod == Some(false), &bad);
            let detail = format!("{who} must not set securityContext.runAsNonRoot=false");
            return violation("runAsNonRoot != true", detail);
        }
        let missing = self.containers_where(|container| of(container).is_none());
        if of_pod == Some(true) || missing.is_empty() {
            return None;
        }
        let who = containers(&missing);
        let detail = format!("pod or {who} must set securityContext.runAsNonRoot=true");
        violation("runAsNonRoot != true", detail)
    }

    fn run_as_user(&self) -> Found {
        let is_root = |holder: &Value| holder.i64_at(&["securityContext", "runAsUser"]) == Some(0);
        let names = self.containers_where(is_root);
        let of_pod = is_root(self.spec);
        if !of_pod && names.is_empty() {
            return None;
        }
        let who = setters(of_pod, &names);
        violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
    }
}

fn has(volume: &Value, ty: &str) -> bool {
    volume.get(ty).is_some_and(|source| !source.is_null())
}
