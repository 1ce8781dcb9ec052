//! The built-in admission plugins, through kubectl.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use integration::{Flavour, Kubectl, Server, Version, eventually, shared};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::json;

use crate::assert_contains;

fn kubectl<'a>(server: &'a Server, namespace: &str) -> Kubectl<'a> {
    server.kubectl(Version::Current).in_namespace(namespace)
}

/// What a command prints as warnings.
fn warnings(kubectl: &Kubectl<'_>, line: &str, documents: &str) -> String {
    let output = kubectl.run(line, documents);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "kubectl {line}: {stderr}");
    stderr
}

/// A pod with one container, in which `fields` are those of the spec.
fn pod(name: &str, fields: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, \
         spec: {{{fields}containers: [{{name: c, image: i}}]}}}}"
    )
}

fn signing_request(name: &str, organization: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "someone");
    params.distinguished_name.push(DnType::OrganizationName, organization);
    let key = KeyPair::generate().expect("ring makes keys");
    let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": STANDARD.encode(request),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
        },
    })
    .to_string()
}

#[test]
fn certificates_are_approved_and_signed_with_a_right_on_the_signer() {
    let server = shared();
    let namespace = server.namespace("certificates");
    let kubectl = kubectl(&server, &namespace);
    let name = format!("csr-{namespace}");
    let refused = kubectl.fail_with_yaml("create -f -", &signing_request(&name, "system:masters"));
    assert_contains(
        &refused,
        &[
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
        ],
    );
    kubectl.ok_with_yaml("create -f -", &signing_request(&name, "developers"));
    let role = format!("approver-{namespace}");
    kubectl.ok_with_yaml(
        "apply -f -",
        &format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: {role}}}, \
             rules: [{{apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests, \
             certificatesigningrequests/approval, certificatesigningrequests/status], verbs: ['*']}}]}}"
        ),
    );
    kubectl.ok(&format!("create clusterrolebinding {role} --clusterrole={role} --user={role}"));
    let approve = format!("certificate approve {name} --as={role}");
    eventually("the role counts", || {
        let refused = kubectl.fail(&approve);
        refused.contains("user not permitted to approve requests with signerName").then_some(())
    });
    let sign = format!(
        "patch csr {name} --subresource=status --type=merge --as={role} -p \
         '{{\"status\":{{\"conditions\":[{{\"type\":\"Failed\",\"status\":\"True\"}}]}}}}'"
    );
    assert_contains(&kubectl.fail(&sign), &["user not permitted to sign requests with signerName"]);
    kubectl.ok_with_yaml(
        "apply -f -",
        &format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: \
             {role}-signers}}, rules: [{{apiGroups: [certificates.k8s.io], resources: [signers], \
             resourceNames: ['kubernetes.io/*'], verbs: [approve]}}]}}"
        ),
    );
    kubectl.ok(&format!(
        "create clusterrolebinding {role}-signers --clusterrole={role}-signers --user={role}"
    ));
    eventually("the right on the signer counts", || {
        kubectl.run(&approve, "").status.success().then_some(())
    });
    for kind in ["clusterrolebinding", "clusterrole"] {
        kubectl.ok(&format!("delete {kind} {role} {role}-signers"));
    }
    kubectl.ok(&format!("delete csr {name}"));
}

#[test]
fn limit_ranges_fill_in_and_refuse() {
    let server = shared();
    let namespace = server.namespace("limits");
    let kubectl = kubectl(&server, &namespace);
    kubectl.ok_with_yaml(
        "create -f -",
        "{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [{type: Container, \
         default: {cpu: 500m}, defaultRequest: {cpu: 250m}, max: {cpu: '1'}}, {type: \
         PersistentVolumeClaim, max: {storage: 1Gi}}]}}",
    );
    eventually("the LimitRange counts", || {
        let created = kubectl.ok_with_yaml("create -f - -o yaml --dry-run=server", &pod("p", ""));
        created.contains("LimitRanger plugin set").then_some(())
    });
    kubectl.ok_with_yaml("create -f -", &pod("p", ""));
    let shown = kubectl
        .ok("get pod p -o jsonpath='{.spec.containers[0].resources}{.metadata.annotations}'");
    assert_contains(
        &shown,
        &[
            r#""limits":{"cpu":"500m"}"#,
            r#""requests":{"cpu":"250m"}"#,
            "LimitRanger plugin set: cpu request for container c; cpu limit for container c",
        ],
    );
    let large = pod("large", "").replace("image: i", "image: i, resources: {limits: {cpu: '2'}}");
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", &large),
        &["maximum cpu usage per Container is 1, but limit is 2"],
    );
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {accessModes: \
                 [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}";
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", claim),
        &["maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"],
    );
}

#[test]
fn pods_have_priority_and_tolerations() {
    let server = shared();
    let namespace = server.namespace("priority");
    let kubectl = kubectl(&server, &namespace);
    let class = format!("high-{namespace}");
    kubectl.ok(&format!("create priorityclass {class} --value=1000 --preemption-policy=Never"));
    kubectl.ok_with_yaml("create -f -", &pod("plain", ""));
    kubectl.ok_with_yaml("create -f -", &pod("high", &format!("priorityClassName: {class}, ")));
    let priority = "-o jsonpath='{.spec.priority} {.spec.preemptionPolicy}'";
    assert_eq!(kubectl.ok(&format!("get pod plain {priority}")), "0 PreemptLowerPriority");
    assert_eq!(kubectl.ok(&format!("get pod high {priority}")), "1000 Never");
    let tolerations = kubectl.ok("get pod plain -o jsonpath='{.spec.tolerations}'");
    assert_contains(
        &tolerations,
        &[
            r#"{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300}"#,
            r#"{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}"#,
        ],
    );
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", &pod("none", "priorityClassName: missing, ")),
        &["no PriorityClass with name missing was found"],
    );
    kubectl.ok(&format!("delete priorityclass {class}"));
}

#[test]
fn pod_security_enforces_and_warns() {
    let server = shared();
    let namespace = server.namespace("standards");
    let kubectl = kubectl(&server, &namespace);
    let label = |labels: &str| format!("label --overwrite ns {namespace} {labels}");
    kubectl.ok_with_yaml("create -f -", &pod("old", "hostNetwork: true, "));
    let invalid = kubectl.fail(&label("pod-security.kubernetes.io/enforce=strict"));
    assert_contains(&invalid, &["must be one of privileged, baseline, restricted"]);
    let warned = warnings(&kubectl, &label("pod-security.kubernetes.io/enforce=baseline"), "");
    assert_contains(
        &warned,
        &[
            &format!(
                "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \
                 \"baseline:latest\""
            ),
            "old: host namespaces",
        ],
    );
    let host_network = pod("new", "hostNetwork: true, ");
    eventually("the label counts", || {
        let output = kubectl.run("create --dry-run=server -f -", &host_network);
        let stderr = String::from_utf8_lossy(&output.stderr);
        stderr
            .contains(
                "violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)",
            )
            .then_some(())
    });
    kubectl.ok_with_yaml("create -f -", &pod("fine", ""));
    let deployment = format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d}}, spec: {{selector: {{matchLabels: \
         {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}}, spec: {}}}}}}}",
        "{hostPID: true, containers: [{name: c, image: i}]}"
    );
    let warned = warnings(&kubectl, "create -f -", &deployment);
    assert_contains(
        &warned,
        &["would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)"],
    );
}

#[test]
fn storage_objects_are_protected_and_have_a_class() {
    let server = shared();
    let namespace = server.namespace("claims");
    let kubectl = kubectl(&server, &namespace);
    let class = format!("default-{namespace}");
    kubectl.ok_with_yaml(
        "create -f -",
        &format!(
            "{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: {class}, annotations: \
             {{storageclass.kubernetes.io/is-default-class: 'true'}}}}, provisioner: p, \
             reclaimPolicy: Delete}}"
        ),
    );
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {accessModes: \
                 [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
    let shown = eventually("the class counts", || {
        let shown = kubectl.ok_with_yaml("create --dry-run=server -o json -f -", claim);
        shown.contains(&class).then_some(shown)
    });
    assert_contains(&shown, &["kubernetes.io/pvc-protection"]);
    kubectl.ok_with_yaml("create -f -", claim);
    let bind =
        "patch pvc c --subresource=status --type=merge -p '{\"status\":{\"phase\":\"Bound\"}}'";
    kubectl.ok(bind);
    let grow = "patch pvc c --type=merge -p \
                '{\"spec\":{\"resources\":{\"requests\":{\"storage\":\"2Gi\"}}}}'";
    assert_contains(
        &kubectl.fail(grow),
        &["only dynamically provisioned pvc can be resized and the storageclass that provisions"],
    );
    kubectl.ok("delete pvc c");
    kubectl.ok(&format!("delete storageclass {class}"));
}

#[test]
fn classes_are_filled_in() {
    let server = shared();
    let namespace = server.namespace("classes");
    let kubectl = kubectl(&server, &namespace);
    let (runtime, ingress) = (format!("runtime-{namespace}"), format!("ingress-{namespace}"));
    kubectl.ok_with_yaml(
        "create -f -",
        &format!(
            "{{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {{name: {runtime}}}, handler: h, \
             overhead: {{podFixed: {{cpu: 100m}}}}, scheduling: {{nodeSelector: {{a: b}}}}}}"
        ),
    );
    kubectl.ok_with_yaml(
        "create -f -",
        &format!(
            "{{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {{name: {ingress}, \
             annotations: {{ingressclass.kubernetes.io/is-default-class: 'true'}}}}, spec: {{controller: \
             example.com/c}}}}"
        ),
    );
    kubectl.ok_with_yaml("create -f -", &pod("p", &format!("runtimeClassName: {runtime}, ")));
    let shown = kubectl.ok("get pod p -o jsonpath='{.spec.overhead}{.spec.nodeSelector}'");
    assert_eq!(shown, r#"{"cpu":"100m"}{"a":"b"}"#);
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", &pod("q", "overhead: {cpu: 1m}, ")),
        &["Pod Overhead set without corresponding RuntimeClass defined Overhead"],
    );
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", &pod("q", "runtimeClassName: missing, ")),
        &["pod rejected: RuntimeClass \"missing\" not found"],
    );
    eventually("the ingress class counts", || {
        let line = "create ingress i --rule=example.com/=s:80 --dry-run=server -o json";
        kubectl.ok(line).contains(&ingress).then_some(())
    });
    kubectl.ok(&format!("delete runtimeclass/{runtime} ingressclass/{ingress}"));
}

#[test]
fn nodes_are_tainted_and_their_topology_is_copied() {
    let server = shared();
    let namespace = server.namespace("topology");
    let kubectl = kubectl(&server, &namespace);
    let node = format!("node-{namespace}");
    kubectl.ok_with_yaml(
        "create -f -",
        &format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {node}, labels: \
             {{topology.kubernetes.io/zone: z}}}}}}"
        ),
    );
    let taints = kubectl.ok(&format!("get node {node} -o jsonpath='{{.spec.taints}}'"));
    assert_eq!(taints, r#"[{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready"}]"#);
    kubectl.ok_with_yaml("create -f -", &pod("p", ""));
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": node},
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/p/binding");
    server.http().post(&path, &binding).expect(201);
    let labels = kubectl.ok("get pod p -o jsonpath='{.metadata.labels}'");
    assert_eq!(labels, r#"{"topology.kubernetes.io/zone":"z"}"#);
    kubectl.ok("delete pod p --force");
    kubectl.ok(&format!("delete node {node}"));
}

#[test]
fn label_keys_become_part_of_selectors() {
    let server = shared();
    let namespace = server.namespace("label-keys");
    let kubectl = kubectl(&server, &namespace);
    let fields = "topologySpreadConstraints: [{maxSkew: 1, topologyKey: k, whenUnsatisfiable: \
                  ScheduleAnyway, labelSelector: {matchLabels: {app: a}}, matchLabelKeys: [version]}], ";
    let spread = pod("p", fields).replace("name: p}", "name: p, labels: {app: a, version: v1}}");
    kubectl.ok_with_yaml("create -f -", &spread);
    let shown =
        kubectl.ok("get pod p -o jsonpath='{.spec.topologySpreadConstraints[0].labelSelector}'");
    assert_contains(
        &shown,
        &[r#""matchExpressions":[{"key":"version","operator":"In","values":["v1"]}]"#],
    );
}

#[test]
fn plugins_that_are_off_by_default_are_turned_on_and_configured() {
    let directory = std::env::temp_dir().join(format!("pintle-plugins-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    write(
        "events.yaml",
        "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits:\n\
         - {type: Namespace, qps: 1, burst: 3}\n",
    );
    let configuration = write(
        "admission.yaml",
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n\
         - name: EventRateLimit\n  path: events.yaml\n\
         - name: PodNodeSelector\n  configuration:\n    podNodeSelectorPluginConfig:\n      \
         clusterDefaultNodeSelector: disk=fast\n\
         - name: PodSecurity\n  configuration:\n    \
         apiVersion: pod-security.admission.config.k8s.io/v1\n    kind: PodSecurityConfiguration\n    \
         defaults: {enforce: baseline}\n    exemptions: {namespaces: [exempt]}\n",
    );
    let flags = [
        "--enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs,EventRateLimit,\
         NamespaceAutoProvision,PodNodeSelector,ExtendedResourceToleration",
        &format!("--admission-control-config-file={configuration}"),
        "--default-not-ready-toleration-seconds=7",
    ];
    let server = Server::with(Flavour::Embedded, &flags);
    let kubectl = kubectl(&server, "made-by-the-plugin");
    kubectl.ok_with_yaml("create -f -", &pod("p", ""));
    let shown = kubectl
        .ok("get pod p -o jsonpath='{.spec.containers[0].imagePullPolicy} {.spec.nodeSelector} \
         {.spec.tolerations[0].tolerationSeconds}'");
    assert_eq!(shown, r#"Always {"disk":"fast"} 7"#);
    let host = pod("h", "hostNetwork: true, ");
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", &host),
        &["violates PodSecurity \"baseline:latest\""],
    );
    kubectl.clone().in_namespace("exempt").ok_with_yaml("create -f -", &host);
    let service = "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {externalIPs: [192.0.2.1], \
                   ports: [{port: 80}]}}";
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", service),
        &["Use of external IPs is denied by admission control"],
    );
    let event = |n: usize| {
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": format!("e{n}"), "namespace": "made-by-the-plugin"},
            "involvedObject": {"namespace": "made-by-the-plugin"},
        })
    };
    let codes: Vec<u16> = (0..8)
        .map(|n| {
            let path = "/api/v1/namespaces/made-by-the-plugin/events";
            server.http().post(path, &event(n)).code
        })
        .collect();
    assert_eq!(codes[0], 201, "{codes:?}");
    assert!(codes.contains(&429), "{codes:?}");
    let metrics = server.http().get("/metrics").text();
    assert_contains(
        &metrics,
        &[
            "apiserver_admission_controller_admission_duration_seconds_count{name=\"EventRateLimit\"",
            "apiserver_admission_step_admission_duration_seconds_count{operation=\"CREATE\",rejected=\"true\",type=\"validate\"}",
        ],
    );
    drop(server);
    fs::remove_dir_all(&directory).expect("the directory is gone");
}
