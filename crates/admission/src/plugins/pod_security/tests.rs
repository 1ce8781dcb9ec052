//! Namespaces, pods and workloads under the Pod Security Standards.

use meta::GroupVersionResource;

use super::{policy::Version, *};
use crate::{
    Configurations,
    harness::{cluster, create, update, yaml},
};

const RESTRICTED: &str = "securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, \
                          capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}";

fn level_version(text: &str) -> LevelVersion {
    let (level, version) = text.split_once(':').unwrap();
    LevelVersion { level: Level::parse(level).unwrap(), version: Version::parse(version).unwrap() }
}

#[track_caller]
fn check(policy: &str, pod: &str, expected: &str) {
    let pod = yaml(pod);
    let (metadata, spec) = parts(&pod);
    let found = details(&evaluate(level_version(policy), metadata, spec));
    assert_eq!(found, expected, "{policy} {pod:?}");
}

/// A pod with a restricted container, and something else.
fn pod(spec: &str) -> String {
    format!("{{spec: {{containers: [{{name: c, {RESTRICTED}}}], {spec}}}}}")
}

/// A pod with one container.
fn container(fields: &str) -> String {
    format!("{{spec: {{containers: [{{name: c, {fields}}}]}}}}")
}

#[test]
fn baseline() {
    let cases = [
        (container(""), ""),
        (
            container("securityContext: {privileged: true}"),
            "privileged (container \"c\" must not set securityContext.privileged=true)",
        ),
        (
            pod("hostNetwork: true, hostPID: true, hostIPC: false"),
            "host namespaces (hostNetwork=true, hostPID=true)",
        ),
        (
            pod("volumes: [{name: a, hostPath: {path: /}}, {name: b, emptyDir: {}}, {name: d, hostPath: {}}]"),
            "hostPath volumes (volumes \"a\", \"d\")",
        ),
        (
            container("ports: [{hostPort: 80}, {hostPort: 8080}, {containerPort: 1}, {hostPort: 0}]"),
            "hostPort (container \"c\" uses hostPorts 80, 8080)",
        ),
        (
            container("securityContext: {capabilities: {add: [CHOWN, NET_RAW, SYS_ADMIN]}}"),
            "non-default capabilities (container \"c\" must not include \"NET_RAW\", \"SYS_ADMIN\" in securityContext.capabilities.add)",
        ),
        (
            container("securityContext: {procMount: Unmasked}"),
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            container("securityContext: {seccompProfile: {type: Unconfined}}"),
            "seccompProfile (container \"c\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            pod("securityContext: {seccompProfile: {type: Unconfined}}"),
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            pod("securityContext: {sysctls: [{name: kernel.msgmax}, {name: net.ipv4.tcp_rmem}, {name: a}]}"),
            "forbidden sysctls (kernel.msgmax, a)",
        ),
        (
            pod("securityContext: {seLinuxOptions: {type: container_engine_t}}"),
            "",
        ),
        (
            pod("securityContext: {seLinuxOptions: {type: x, user: u, role: r}}"),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"x\"; user may not be set; role may not be set)",
        ),
        (
            pod("securityContext: {windowsOptions: {hostProcess: true}}"),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            pod("securityContext: {appArmorProfile: {type: Unconfined}}"),
            "forbidden AppArmor profile (pod must not set AppArmor profile type to \"Unconfined\")",
        ),
        (
            format!("{{metadata: {{annotations: {{container.apparmor.security.beta.kubernetes.io/c: unconfined}}}}, {}", &pod("")[1..]),
            "forbidden AppArmor profile (annotation must not set AppArmor profile type to \"container.apparmor.security.beta.kubernetes.io/c=\"unconfined\"\")",
        ),
        (
            container("livenessProbe: {httpGet: {host: h}}, lifecycle: {preStop: {tcpSocket: {host: i}}}"),
            "probe or lifecycle host (container \"c\" uses probe or lifecycle hosts \"h\", \"i\")",
        ),
        (
            "{spec: {initContainers: [{name: i, securityContext: {privileged: true}}], containers: [{name: c}], ephemeralContainers: [{name: e, securityContext: {privileged: true}}]}}".to_owned(),
            "privileged (containers \"i\", \"e\" must not set securityContext.privileged=true)",
        ),
    ];
    for (pod, expected) in cases {
        check("baseline:latest", &pod, expected);
        check("privileged:latest", &pod, "");
    }
}

#[test]
fn restricted() {
    let cases = [
        (pod(""), ""),
        (
            container(""),
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
             unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), \
             runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), \
             seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        ),
        (
            container("securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE, CHOWN]}, seccompProfile: {type: Localhost}}"),
            "unrestricted capabilities (container \"c\" must not include \"CHOWN\" in securityContext.capabilities.add)",
        ),
        (
            pod("volumes: [{name: a, nfs: {}}, {name: b, hostPath: {}}, {name: d, image: {}}, {name: e}]"),
            "restricted volume types (volumes \"a\", \"b\", \"e\" use restricted volume types \"hostPath\", \"nfs\", \"unknown\")",
        ),
        (
            pod("securityContext: {runAsNonRoot: false, runAsUser: 0}"),
            "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false), runAsUser=0 (pod must not set runAsUser=0)",
        ),
        (pod("hostUsers: false, securityContext: {runAsNonRoot: false, runAsUser: 0}"), ""),
        (
            "{spec: {os: {name: windows}, securityContext: {runAsNonRoot: true}, containers: [{name: c}]}}".to_owned(),
            "",
        ),
        (
            "{spec: {hostUsers: false, containers: [{name: c, securityContext: {procMount: Unmasked, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}]}}".to_owned(),
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        ),
    ];
    for (pod, expected) in cases {
        check("restricted:latest", &pod, expected);
    }
}

#[test]
fn versions_differ() {
    let windows = "{spec: {os: {name: windows}, securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: [{name: c}]}}";
    let unmasked = "{spec: {hostUsers: false, containers: [{name: c, securityContext: {procMount: Unmasked}}]}}";
    let cases: [(&str, &str, &str); 15] = [
        ("restricted:v1.7", &pod("securityContext: {allowPrivilegeEscalation: true}"), ""),
        (
            "restricted:v1.24",
            windows,
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
             unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"])",
        ),
        ("restricted:v1.25", windows, ""),
        (
            "baseline:v1.34",
            unmasked,
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        ("baseline:v1.35", unmasked, ""),
        (
            "baseline:v1.30",
            &pod("securityContext: {seLinuxOptions: {type: container_engine_t}}"),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"container_engine_t\")",
        ),
        (
            "baseline:v1.26",
            &pod("securityContext: {sysctls: [{name: net.ipv4.ip_local_reserved_ports}]}"),
            "forbidden sysctls (net.ipv4.ip_local_reserved_ports)",
        ),
        (
            "baseline:v1.27",
            &pod("securityContext: {sysctls: [{name: net.ipv4.ip_local_reserved_ports}]}"),
            "",
        ),
        (
            "baseline:v1.28",
            &pod("securityContext: {sysctls: [{name: net.ipv4.tcp_fin_timeout}]}"),
            "forbidden sysctls (net.ipv4.tcp_fin_timeout)",
        ),
        (
            "baseline:v1.31",
            &pod("securityContext: {sysctls: [{name: net.ipv4.tcp_wmem}]}"),
            "forbidden sysctls (net.ipv4.tcp_wmem)",
        ),
        ("baseline:v1.33", &container("livenessProbe: {httpGet: {host: h}}"), ""),
        ("restricted:v1.22", &pod("securityContext: {runAsUser: 0}"), ""),
        ("baseline:v1.18", &pod("securityContext: {seccompProfile: {type: Unconfined}}"), ""),
        (
            "baseline:v1.18",
            "{metadata: {annotations: {seccomp.security.alpha.kubernetes.io/pod: unconfined, container.seccomp.security.alpha.kubernetes.io/c: x, container.seccomp.security.alpha.kubernetes.io/other: x}}, spec: {containers: [{name: c}]}}",
            "seccompProfile (forbidden annotations container.seccomp.security.alpha.kubernetes.io/c=\"x\", seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")",
        ),
        (
            "baseline:v1.99",
            &container("livenessProbe: {httpGet: {host: h}}"),
            "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"h\")",
        ),
    ];
    for (policy, pod, expected) in cases {
        check(policy, pod, expected);
    }
}

fn plugin(configuration: &str) -> PodSecurity {
    let text = format!(
        "{{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, {configuration}}}"
    );
    let configurations = Configurations::for_test("PodSecurity", yaml(&text));
    PodSecurity::new(configurations.of("PodSecurity")).unwrap()
}

const NAMESPACES: [(&GroupVersionResource, &str); 4] = [
    (&resources::NAMESPACES, "{metadata: {name: plain}}"),
    (
        &resources::NAMESPACES,
        "{metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: baseline, pod-security.kubernetes.io/audit: baseline, pod-security.kubernetes.io/warn: baseline}}}",
    ),
    (
        &resources::NAMESPACES,
        "{metadata: {name: warned, labels: {pod-security.kubernetes.io/warn: baseline, pod-security.kubernetes.io/audit: baseline, pod-security.kubernetes.io/audit-version: v1.30}}}",
    ),
    (
        &resources::NAMESPACES,
        "{metadata: {name: wrong, labels: {pod-security.kubernetes.io/enforce: x}}}",
    ),
];

fn in_namespace(namespace: &str, spec: &str) -> Value {
    yaml(&format!("{{kind: Pod, metadata: {{name: p, namespace: {namespace}}}, spec: {spec}}}"))
}

const HOST_NETWORK: &str = "{hostNetwork: true, containers: [{name: c, image: a}]}";

#[test]
fn pods_are_refused_audited_and_warned_about() {
    let detail = "host namespaces (hostNetwork=true)";
    let refused =
        format!("pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": {detail}");
    let warning = format!("would violate PodSecurity \"baseline:latest\": {detail}");
    let cases = [
        (
            "plain",
            "{hostNetwork: true}",
            String::new(),
            String::new(),
            "enforce-policy=privileged:latest".to_owned(),
        ),
        ("strict", "{}", String::new(), String::new(), "enforce-policy=baseline:latest".to_owned()),
        (
            "strict",
            "{hostNetwork: true}",
            refused.clone(),
            String::new(),
            format!("audit-violations={warning} enforce-policy=baseline:latest"),
        ),
        (
            "warned",
            "{hostNetwork: true}",
            String::new(),
            warning.clone(),
            format!(
                "audit-violations=would violate PodSecurity \"baseline:v1.30\": {detail} enforce-policy=privileged:latest"
            ),
        ),
        (
            "gone",
            "{}",
            "Internal error occurred: failed to lookup namespace \"gone\"".to_owned(),
            String::new(),
            "error=Internal error occurred: failed to lookup namespace \"gone\"".to_owned(),
        ),
        (
            "exempt",
            "{hostNetwork: true}",
            String::new(),
            String::new(),
            "exempt=namespace".to_owned(),
        ),
        (
            "strict",
            "{hostNetwork: true, runtimeClassName: kata}",
            String::new(),
            String::new(),
            "exempt=runtimeClass".to_owned(),
        ),
    ];
    let plugin =
        plugin("exemptions: {namespaces: [exempt], runtimeClasses: [kata], usernames: [admin]}");
    for (namespace, spec, error, warning, audit) in cases {
        let pod = in_namespace(namespace, spec);
        let outcome = create(&resources::PODS).validate(&plugin, &pod, &cluster(&NAMESPACES, &[]));
        assert_eq!(outcome.message(), error, "{namespace} {spec}");
        assert_eq!(outcome.warnings.join("|"), warning, "{namespace} {spec}");
        let annotations: Vec<String> = outcome
            .audit
            .iter()
            .map(|(key, value)| format!("{}={value}", key.strip_prefix(LABEL_PREFIX).unwrap()))
            .collect();
        assert_eq!(annotations.join(" "), audit, "{namespace} {spec}");
    }
    let pod = in_namespace("strict", HOST_NETWORK);
    let user = meta::User { name: "admin".into(), ..meta::User::anonymous() };
    let outcome =
        create(&resources::PODS).by(user).validate(&plugin, &pod, &cluster(&NAMESPACES, &[]));
    assert_eq!(outcome.message(), "");
    assert_eq!(outcome.audit["pod-security.kubernetes.io/exempt"], "user");
    let outcome = create(&resources::PODS).validate(
        &plugin,
        &in_namespace("wrong", "{containers: [{name: c}]}"),
        &cluster(&NAMESPACES, &[]),
    );
    assert!(outcome.message().contains("violates PodSecurity \"restricted:latest\""));
    assert!(
        outcome.audit["pod-security.kubernetes.io/error"]
            .starts_with("Failed to parse policy: metadata.labels[")
    );
}

#[test]
fn updates_count_if_images_or_ephemeral_containers_change() {
    let old = "{hostNetwork: true, containers: [{name: c, image: a}], ephemeralContainers: [{name: e, image: a}]}";
    let cases = [
        (old, "", false),
        ("{hostNetwork: true, nodeName: x, containers: [{name: c, image: a}]}", "", false),
        ("{hostNetwork: true, containers: [{name: c, image: b}]}", "", true),
        (
            "{hostNetwork: true, containers: [{name: c, image: a}], ephemeralContainers: [{name: f, image: a}]}",
            "ephemeralcontainers",
            true,
        ),
        ("{hostNetwork: true, containers: [{name: c, image: b}]}", "status", false),
        ("{hostNetwork: true, containers: [{name: c, image: b}]}", "unheard-of", true),
    ];
    for (new, subresource, refused) in cases {
        let request =
            update(&resources::PODS, in_namespace("strict", old)).subresource(subresource);
        let new = in_namespace("strict", new);
        let outcome = request.validate(&plugin(""), &new, &cluster(&NAMESPACES, &[]));
        assert_eq!(outcome.error.is_some(), refused, "{new:?}");
    }
}

#[test]
fn workloads_are_warned_about() {
    let expected =
        "would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
    let template = "{spec: {hostNetwork: true}}";
    let cases = [
        ("apps", "deployments", format!("spec: {{template: {template}}}"), expected),
        ("apps", "deployments", "spec: {template: {spec: {}}}".to_owned(), ""),
        ("apps", "replicasets", format!("spec: {{template: {template}}}"), expected),
        ("apps", "daemonsets", format!("spec: {{template: {template}}}"), expected),
        ("apps", "statefulsets", format!("spec: {{template: {template}}}"), expected),
        ("batch", "jobs", format!("spec: {{template: {template}}}"), expected),
        (
            "batch",
            "cronjobs",
            format!("spec: {{jobTemplate: {{spec: {{template: {template}}}}}}}"),
            expected,
        ),
        ("", "podtemplates", format!("template: {template}"), expected),
        ("", "replicationcontrollers", format!("spec: {{template: {template}}}"), expected),
        ("", "replicationcontrollers", "spec: {}".to_owned(), ""),
        ("other", "deployments", format!("spec: {{template: {template}}}"), ""),
    ];
    for (group, resource, fields, expected) in cases {
        let gvr = GroupVersionResource {
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
        };
        for (namespace, expected) in [("strict", expected), ("plain", "")] {
            let object =
                yaml(&format!("{{metadata: {{name: w, namespace: {namespace}}}, {fields}}}"));
            let outcome = create(&gvr).validate(&plugin(""), &object, &cluster(&NAMESPACES, &[]));
            assert_eq!(outcome.message(), "");
            assert_eq!(outcome.warnings.join("|"), expected, "{resource} {namespace}");
        }
    }
}

#[test]
fn namespaces_have_valid_labels() {
    let namespace = |labels: &str| {
        yaml(&format!("{{kind: Namespace, metadata: {{name: ns, labels: {{{labels}}}}}}}"))
    };
    let wrong = "pod-security.kubernetes.io/enforce: x";
    let invalid = "Namespace \"ns\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: \
                   Invalid value: \"x\": must be one of privileged, baseline, restricted";
    let cases = [
        (create(&resources::NAMESPACES), "", ""),
        (create(&resources::NAMESPACES), "pod-security.kubernetes.io/enforce: baseline", ""),
        (create(&resources::NAMESPACES), wrong, invalid),
        (update(&resources::NAMESPACES, namespace("")), wrong, invalid),
        (update(&resources::NAMESPACES, namespace(wrong)), wrong, ""),
        (update(&resources::NAMESPACES, namespace("")).subresource("finalize"), wrong, ""),
    ];
    for (request, labels, expected) in cases {
        let outcome = request.validate(&plugin(""), &namespace(labels), &cluster(&NAMESPACES, &[]));
        assert_eq!(outcome.message(), expected, "{labels}");
    }
}

#[test]
fn a_stricter_level_warns_about_existing_pods() {
    let pod = |name: &str, owner: &str, spec: &str| {
        let owner = if owner.is_empty() {
            String::new()
        } else {
            format!(", ownerReferences: [{{uid: {owner}, controller: true}}]")
        };
        format!("{{metadata: {{name: {name}, namespace: ns{owner}}}, spec: {spec}}}")
    };
    let pods = [
        pod("b", "", "{hostNetwork: true}"),
        pod("a", "x", "{hostNetwork: true}"),
        pod("d", "x", "{hostNetwork: true}"),
        pod("fine", "", "{}"),
        pod(
            "c",
            "",
            "{hostPID: true, containers: [{name: c, securityContext: {privileged: true}}]}",
        ),
        pod("kata", "", "{hostNetwork: true, runtimeClassName: kata}"),
    ];
    let pods: Vec<_> = pods.iter().map(|pod| (&resources::PODS, pod.as_str())).collect();
    let namespace = |labels: &str| {
        let labels: Vec<String> = labels
            .split(", ")
            .filter(|label| !label.is_empty())
            .map(|label| format!("{LABEL_PREFIX}{label}"))
            .collect();
        yaml(&format!("{{metadata: {{name: ns, labels: {{{}}}}}}}", labels.join(", ")))
    };
    let all = "existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\"|\
               a (and 2 other pods): host namespaces|c: host namespaces, privileged";
    let cases = [
        ("", "enforce: baseline", all),
        ("", "enforce: privileged", ""),
        ("enforce: restricted", "enforce: baseline", ""),
        ("enforce: baseline", "enforce: baseline, a: b", ""),
        ("enforce: baseline, enforce-version: v1.30", "enforce: baseline", all),
    ];
    let plugin_here = plugin("exemptions: {runtimeClasses: [kata]}");
    for (old, new, expected) in cases {
        let request = update(&resources::NAMESPACES, namespace(old));
        let outcome = request.validate(&plugin_here, &namespace(new), &cluster(&pods, &[]));
        assert_eq!(outcome.message(), "");
        assert_eq!(outcome.warnings.join("|"), expected, "{old} -> {new}");
    }
    let exempt = plugin("exemptions: {namespaces: [ns]}");
    let request = update(&resources::NAMESPACES, namespace(""));
    let new = namespace("enforce: baseline, audit-version: v1.30");
    let outcome = request.validate(&exempt, &new, &cluster(&pods, &[]));
    assert_eq!(
        outcome.warnings,
        [
            "namespace \"ns\" is exempt from Pod Security, and the policy (enforce=baseline:latest) will be ignored"
        ]
    );
}
