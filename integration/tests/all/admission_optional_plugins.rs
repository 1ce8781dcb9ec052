//! The admission plugins that are off by default or wait for a feature gate, through kubectl.

use std::fs;

use integration::{Flavour, Kubectl, Server, Version, Webhook, eventually};
use serde_json::{Value, json};

use crate::assert_contains;

const OPTIONAL: &str = "--enable-admission-plugins=AlwaysAdmit,AlwaysPullImages,\
    DenyServiceExternalIPs,EventRateLimit,ExtendedResourceToleration,ImagePolicyWebhook,\
    LimitPodHardAntiAffinityTopology,NamespaceExists,OwnerReferencesPermissionEnforcement,\
    PodNodeSelector,PodTolerationRestriction";

fn kubectl<'a>(server: &'a Server, namespace: &str) -> Kubectl<'a> {
    server.kubectl(Version::Current).in_namespace(namespace)
}

/// A pod of one container with these fields, in a spec with those.
fn pod(name: &str, container: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, \
         spec: {{{spec}containers: [{{name: c, {container}}}]}}}}"
    )
}

/// Says no to images that are called bad.
fn image_policy() -> Webhook {
    Webhook::start(|mut review| {
        let images = review["spec"]["containers"].as_array().cloned().unwrap_or_default();
        let bad = images.iter().any(|own| own["image"].as_str().unwrap_or_default() == "bad");
        review["status"] = json!({"allowed": !bad, "reason": "the image is bad"});
        review
    })
}

#[test]
fn every_plugin_that_is_off_by_default_works_when_it_is_turned_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let webhook = image_policy();
    let kubeconfig = directory.path().join("images.json");
    fs::write(&kubeconfig, webhook.kubeconfig("/images")).expect("a file");
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [
            {"name": "ImagePolicyWebhook", "configuration": {"imagePolicy": {
                "kubeConfigFile": kubeconfig, "allowTTL": 50, "denyTTL": 50, "retryBackoff": 500,
                "defaultAllow": false,
            }}},
            {"name": "EventRateLimit", "configuration": {
                "apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration",
                "limits": [{"type": "Namespace", "qps": 1, "burst": 2}],
            }},
        ],
    });
    let file = directory.path().join("admission.json");
    fs::write(&file, configuration.to_string()).expect("a file");
    let file = format!("--admission-control-config-file={}", file.display());
    let flags = [OPTIONAL, "--disable-admission-plugins=NamespaceLifecycle", &file];
    let server = Server::with(Flavour::Embedded, &flags);
    let kubectl = kubectl(&server, &server.namespace("optional"));

    // AlwaysPullImages, ImagePolicyWebhook
    kubectl.ok_with_yaml("create -f -", &pod("p", "image: i", ""));
    let shown = kubectl.ok("get pod p -o jsonpath='{.spec.containers[0].imagePullPolicy}'");
    assert_eq!(shown, "Always");
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", &pod("q", "image: bad", "")),
        &["image policy webhook backend denied one or more images: the image is bad"],
    );
    // CVE-2023-2727: ephemeral containers are containers, too.
    assert_contains(
        &kubectl.fail("debug p --image=bad --container=e --profile=general"),
        &["image policy webhook backend denied one or more images: the image is bad"],
    );
    // A repeated question is answered from the cache.
    assert!(webhook.calls() >= 2, "the webhook was called {} times", webhook.calls());

    // ExtendedResourceToleration
    let gpu = "image: i, resources: {limits: {example.com/gpu: 1}}";
    kubectl.ok_with_yaml("create -f -", &pod("gpu", gpu, ""));
    let path = "{.spec.tolerations[?(@.key==\"example.com/gpu\")].operator}";
    assert_eq!(kubectl.ok(&format!("get pod gpu -o jsonpath='{path}'")), "Exists");

    // LimitPodHardAntiAffinityTopology
    let apart = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
                 [{topologyKey: zone, labelSelector: {}}]}}, ";
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", &pod("apart", "image: i", apart)),
        &["has TopologyKey zone but only key kubernetes.io/hostname is allowed"],
    );

    // DenyServiceExternalIPs
    let service = "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {externalIPs: \
                   [192.0.2.1], ports: [{port: 80}]}}";
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", service),
        &["Use of external IPs is denied by admission control"],
    );

    // NamespaceExists: NamespaceLifecycle, which says the same, is off.
    let elsewhere = kubectl.clone().in_namespace("nowhere");
    assert_contains(&elsewhere.fail("create configmap a"), &["namespaces \"nowhere\" not found"]);

    // EventRateLimit
    let event = |n: usize| {
        format!(
            "{{apiVersion: v1, kind: Event, metadata: {{name: e{n}}}, involvedObject: \
             {{namespace: {}}}}}",
            kubectl.ok("get pod p -o jsonpath='{.metadata.namespace}'")
        )
    };
    let events: Vec<String> = (0..8).map(event).collect();
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", &events.join("\n---\n")),
        &["limit reached on type Namespace for key"],
    );

    // AlwaysAdmit
    assert_contains(&server.log(), &["AlwaysAdmit admission controller is deprecated"]);
    owner_references_need_a_right(&kubectl);
    namespaces_restrict_nodes_and_tolerations(&kubectl);
}

fn owner_references_need_a_right(kubectl: &Kubectl<'_>) {
    kubectl.ok("create role maps --verb=create,get --resource=configmaps");
    kubectl.ok("create rolebinding maps --role=maps --user=limited");
    let owned = "{apiVersion: v1, kind: ConfigMap, metadata: {name: owned, ownerReferences: \
                 [{apiVersion: v1, kind: Secret, name: o, uid: u, blockOwnerDeletion: true}]}}";
    assert_contains(
        &kubectl.fail_with_yaml("create -f - --as=limited", owned),
        &["cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set \
           finalizers on"],
    );
    let unblocked = owned.replace("true", "false");
    kubectl.ok_with_yaml("create -f - --as=limited", &unblocked);
}

/// PodNodeSelector and PodTolerationRestriction.
fn namespaces_restrict_nodes_and_tolerations(kubectl: &Kubectl<'_>) {
    let namespace = kubectl.ok("get pod p -o jsonpath='{.metadata.namespace}'");
    let tolerations = |keys: &[&str]| -> String {
        let listed = keys.iter().map(|key| json!({"key": key, "operator": "Exists"}));
        json!(listed.collect::<Vec<_>>()).to_string()
    };
    let allowed = tolerations(&[
        "dedicated",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]);
    let annotations = json!({"metadata": {"annotations": {
        "scheduler.alpha.kubernetes.io/node-selector": "env=test",
        "scheduler.alpha.kubernetes.io/defaultTolerations": tolerations(&["dedicated"]),
        "scheduler.alpha.kubernetes.io/tolerationsWhitelist": allowed,
    }}});
    kubectl.ok(&format!("patch namespace {namespace} --type=merge -p '{annotations}'"));
    kubectl.ok_with_yaml("create -f -", &pod("placed", "image: i", ""));
    let shown =
        kubectl.ok("get pod placed -o jsonpath='{.spec.nodeSelector} {.spec.tolerations[*].key}'");
    assert_contains(&shown, &[r#"{"env":"test"}"#, "dedicated"]);
    assert_contains(
        &kubectl
            .fail_with_yaml("create -f -", &pod("q", "image: i", "nodeSelector: {env: live}, ")),
        &["pod node label selector conflicts with its namespace node label selector"],
    );
    let spoiled = pod("q", "image: i", "tolerations: [{key: spoiled, operator: Exists}], ");
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", &spoiled),
        &["conflict with its namespace whitelist"],
    );
}

/// Those that are on by default and of which no other test is.
#[test]
fn plugins_of_nodes_namespaces_and_gates_refuse_through_kubectl() {
    let flags = [
        "--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true,GenericWorkload=true",
        "--runtime-config=certificates.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha2=true",
    ];
    let server = Server::with(Flavour::Embedded, &flags);
    let namespace = server.namespace("gated");
    let kubectl = kubectl(&server, &namespace);

    // NamespaceLifecycle
    assert_contains(
        &kubectl.fail("delete namespace default"),
        &["namespaces \"default\" is forbidden: this namespace may not be deleted"],
    );

    // NodeRestriction
    kubectl.ok_with_yaml("create -f -", "{apiVersion: v1, kind: Node, metadata: {name: one}}");
    let as_one = "--as=system:node:one --as-group=system:nodes";
    kubectl.ok(&format!("label node one example.com/a=b {as_one}"));
    assert_contains(
        &kubectl.fail(&format!("label node one node-restriction.kubernetes.io/a=b {as_one}")),
        &["is not allowed to modify labels: node-restriction.kubernetes.io/a"],
    );

    // PodResizeValidator
    let allocatable = "{\"status\":{\"allocatable\":{\"cpu\":\"2\",\"memory\":\"1Gi\"}}}";
    kubectl.ok(&format!("patch node one --subresource=status --type=merge -p '{allocatable}'"));
    let small = "image: i, resources: {requests: {cpu: 1}, limits: {cpu: 1}}";
    kubectl.ok_with_yaml("create -f -", &pod("p", small, "nodeName: one, "));
    let larger = "{\"spec\":{\"containers\":[{\"name\":\"c\",\"resources\":\
                  {\"requests\":{\"cpu\":\"3\"},\"limits\":{\"cpu\":\"3\"}}}]}}";
    assert_contains(
        &kubectl.fail(&format!("patch pod p --subresource=resize -p '{larger}'")),
        &["node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000"],
    );

    // PodGroupWorkloadExists
    let group = "{apiVersion: scheduling.k8s.io/v1alpha2, kind: PodGroup, metadata: {name: g}, spec: \
                 {podGroupTemplateRef: {workload: {workloadName: w, podGroupTemplateName: t}}, \
                 schedulingPolicy: {basic: {}}}}";
    assert_contains(
        &kubectl.fail_with_yaml("create -f -", group),
        &["PodGroup rejected: Workload \"w\" not found"],
    );
}

/// ClusterTrustBundleAttest.
#[test]
fn a_trust_bundle_of_a_signer_needs_the_right_to_attest() {
    let flags = [
        "--feature-gates=ClusterTrustBundle=true",
        "--runtime-config=certificates.k8s.io/v1beta1=true",
    ];
    let server = Server::with(Flavour::Embedded, &flags);
    let kubectl = kubectl(&server, "default");
    kubectl.ok("create clusterrole bundles --verb=create,get --resource=clustertrustbundles.certificates.k8s.io");
    kubectl.ok("create clusterrolebinding bundles --clusterrole=bundles --user=limited");
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key can be made");
    let certificate = params.self_signed(&key).expect("a certificate can be made").pem();
    let bundle = json!({
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "ClusterTrustBundle",
        "metadata": {"name": "example.com:signer:a"},
        "spec": {"signerName": "example.com/signer", "trustBundle": certificate},
    });
    let refused = kubectl.fail_with_yaml("create -f - --as=limited", &bundle.to_string());
    assert_contains(
        &refused,
        &["user not permitted to attest for signerName \"example.com/signer\""],
    );
}

/// A server that asks about images as this configuration says.
fn asks_about_images(kubeconfig: &str, fields: &Value) -> (Server, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: String| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let mut image_policy = fields.clone();
    image_policy["kubeConfigFile"] = write("kubeconfig", kubeconfig.to_owned()).into();
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{
            "name": "ImagePolicyWebhook", "configuration": {"imagePolicy": image_policy},
        }],
    });
    let file = write("admission.json", configuration.to_string());
    let flags = [
        "--enable-admission-plugins=ImagePolicyWebhook",
        "--disable-admission-plugins=ServiceAccount",
        &format!("--admission-control-config-file={file}"),
    ];
    (Server::with(Flavour::from_env(), &flags), directory)
}

/// What the server says to a pod with this image; nothing is stored.
fn try_image(server: &Server, image: &str) -> (u16, String) {
    let pod = json!({
        "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": image}]},
    });
    let answer = server.http().post("/api/v1/namespaces/default/pods?dryRun=All", &pod);
    let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
    (answer.code, message)
}

#[test]
fn answers_about_images_are_kept_for_as_long_as_the_configuration_says() {
    let webhook = image_policy();
    let mut kubeconfig: Value =
        serde_json::from_str(&webhook.kubeconfig("/images")).expect("a kubeconfig");
    kubeconfig["users"] = json!([{"name": "server", "user": {"token": "for-the-webhook"}}]);
    kubeconfig["contexts"][0]["context"]["user"] = "server".into();
    let fields = json!({"allowTTL": 1, "denyTTL": 1, "retryBackoff": 1, "defaultAllow": false});
    let (server, _files) = asks_about_images(&kubeconfig.to_string(), &fields);
    for (image, code) in [("good", 201), ("bad", 403)] {
        let before = webhook.calls();
        let denied = r#"pods "p" is forbidden: image policy webhook backend denied one or more images: the image is bad"#;
        let expected = (code, if code == 403 { denied.to_owned() } else { String::new() });
        assert_eq!(try_image(&server, image), expected);
        assert_eq!(webhook.calls(), before + 1);
        let sent = webhook.last_headers();
        assert_eq!(sent["authorization"], "Bearer for-the-webhook");
        // A second later the webhook is asked again.
        eventually("the answer expires", || {
            assert_eq!(try_image(&server, image), expected);
            (webhook.calls() > before + 1).then_some(())
        });
    }
    // An image that was allowed is asked about again where nothing is to be kept.
    let fields = json!({"allowTTL": -1, "denyTTL": -1, "retryBackoff": 1, "defaultAllow": false});
    let (server, _files) = asks_about_images(&kubeconfig.to_string(), &fields);
    let before = webhook.calls();
    for asked in 1..=3 {
        assert_eq!(try_image(&server, "good").0, 201);
        assert_eq!(webhook.calls(), before + asked);
    }
}

#[test]
fn a_webhook_for_images_that_is_not_trusted_is_not_asked() {
    let webhook = image_policy();
    let mut kubeconfig: Value =
        serde_json::from_str(&webhook.kubeconfig("/images")).expect("a kubeconfig");
    let cluster = &mut kubeconfig["clusters"][0]["cluster"];
    cluster.as_object_mut().expect("an object").remove("certificate-authority-data");
    for default_allow in [false, true] {
        let fields = json!({"allowTTL": 50, "denyTTL": 50, "defaultAllow": default_allow});
        let (server, _files) = asks_about_images(&kubeconfig.to_string(), &fields);
        let (code, message) = try_image(&server, "good");
        if default_allow {
            assert_eq!((code, message.as_str()), (201, ""));
        } else {
            let url = webhook.url("/images?timeout=30s");
            let expected = format!(
                "pods \"p\" is forbidden: Post \"{url}\": tls: failed to verify certificate: x509: \
                 certificate signed by unknown authority"
            );
            assert_eq!((code, message), (403, expected));
        }
        assert_eq!(webhook.calls(), 0);
    }
}
