//! The published webhook of cert-manager, set up by the project's own chart and definitions.
//!
//! It takes five minutes of CPU to build, so these tests run with `PINTLE_CERT_MANAGER` only (`make cert-manager`).

use std::process::Command;

use integration::{
    CertManagerWebhook, Flavour, Kubectl, Server, Version, cert_manager, eventually, helm,
};

fn is_wanted() -> bool {
    let wanted = std::env::var_os("PINTLE_CERT_MANAGER").is_some();
    if !wanted {
        eprintln!("left out: PINTLE_CERT_MANAGER is not set");
    }
    wanted
}

/// The definitions, the webhook, and its configurations as the chart renders them.
fn installed(server: &Server, kubectl: &Kubectl<'_>) -> CertManagerWebhook {
    kubectl.ok(&format!("create -f {}", cert_manager().join("crds").display()));
    kubectl.established("crd --all");
    kubectl.ok("create namespace cert-manager");
    let webhook = CertManagerWebhook::start(server);
    for kind in ["validating", "mutating"] {
        kubectl.ok_with_yaml("create -f -", &configuration(kind, webhook.port));
    }
    // This is what its cainjector does.
    let bundle = eventually("the webhook has made its authority", || {
        let authority =
            "get secret cert-manager-webhook-ca -n cert-manager -o jsonpath={.data.ca\\.crt}";
        let output = kubectl.run(authority, "");
        let bundle = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success() && !bundle.is_empty()).then_some(bundle)
    });
    for kind in ["validating", "mutating"] {
        let patch = format!(
            r#"[{{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"{bundle}"}}]"#
        );
        kubectl.ok(&format!(
            "patch {kind}webhookconfiguration cert-manager-webhook --type=json -p='{patch}'"
        ));
    }
    webhook
}

fn configuration(kind: &str, port: u16) -> String {
    let home = tempfile::tempdir().expect("a directory");
    let output = Command::new(helm(4))
        .args(["template", "cert-manager", "--namespace=cert-manager"])
        .arg(cert_manager().join("charts/cert-manager"))
        .arg(format!("--show-only=templates/webhook-{kind}-webhook.yaml"))
        .arg(format!("--set=webhook.url.host=localhost:{port}"))
        .env("HOME", home.path())
        .env("HELM_CACHE_HOME", home.path())
        .env("HELM_CONFIG_HOME", home.path())
        .env("HELM_DATA_HOME", home.path())
        .output()
        .expect("helm can be started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "helm template: {error}");
    String::from_utf8(output.stdout).expect("text")
}

/// Objects that satisfy their definition, with what the webhook says to them.
const CASES: [(&str, &str); 9] = [
    ("{kind: Issuer, metadata: {name: ca}, spec: {ca: {secretName: root}}}", ""),
    ("{kind: Issuer, metadata: {name: own}, spec: {selfSigned: {}}}", ""),
    (
        "{kind: Issuer, metadata: {name: none}, spec: {}}",
        "spec: Required value: at least one issuer must be configured",
    ),
    (
        "{kind: Issuer, metadata: {name: two}, spec: {selfSigned: {}, ca: {secretName: root}}}",
        "spec.selfSigned: Forbidden: may not specify more than one issuer type",
    ),
    (
        "{kind: ClusterIssuer, metadata: {name: acme}, spec: {acme: {server: 'https://acme.example.com', \
         privateKeySecretRef: {name: key}, solvers: [{}]}}}",
        "spec.acme.solvers[0]: Required value: no solver type configured",
    ),
    (
        "{kind: Certificate, metadata: {name: web}, spec: {secretName: web-tls, dnsNames: [example.com], \
         issuerRef: {name: ca}}}",
        "",
    ),
    (
        "{kind: Certificate, metadata: {name: nameless}, spec: {secretName: s, issuerRef: {name: ca}}}",
        "spec: Invalid value: \"\": at least one of commonName (from the commonName field or from a literalSubject), \
         dnsNames, emailSANs, ipAddresses, otherNames, or uriSANs must be set",
    ),
    (
        "{kind: Certificate, metadata: {name: short}, spec: {secretName: s, issuerRef: {name: ca}, \
         dnsNames: [example.com], duration: 1h, renewBefore: 2h}}",
        "spec.renewBefore: Invalid value: 7200000000000: certificate duration 1h0m0s must be greater than renewBefore \
         2h0m0s",
    ),
    (
        "{kind: CertificateRequest, metadata: {name: broken}, spec: {issuerRef: {name: ca}, request: bm9uZQ==}}",
        "spec.request: Invalid value:",
    ),
];

const DENIED: &str = "admission webhook \"webhook.cert-manager.io\" denied the request: ";

#[test]
fn the_webhook_of_cert_manager_decides_about_its_objects() {
    if !is_wanted() {
        return;
    }
    let server = Server::of(Flavour::from_env());
    let kubectl = server.kubectl(Version::Current);
    let _webhook = installed(&server, &kubectl);
    let create = |object: &str| {
        let object = object.replacen('{', "{apiVersion: cert-manager.io/v1, ", 1);
        let output = kubectl.run("create -n default -f -", &object);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    eventually("the webhook answers", || {
        create("{kind: Issuer, metadata: {name: first}, spec: {selfSigned: {}}}").0.then_some(())
    });
    for (object, refusal) in CASES {
        let (created, said) = create(object);
        assert_eq!(created, refusal.is_empty(), "{object}: {said}");
        assert!(
            refusal.is_empty() || said.contains(&format!("{DENIED}{refusal}")),
            "{object}: {said}"
        );
    }
    // Updates are checked too, however they come.
    for change in [
        "patch issuer own -n default --type=merge -p='{\"spec\":{\"selfSigned\":null}}'",
        "patch issuer own -n default --type=json -p='[{\"op\":\"remove\",\"path\":\"/spec/selfSigned\"}]'",
    ] {
        let said = kubectl.fail(change);
        assert!(said.contains("at least one issuer must be configured"), "{change}: {said}");
    }
    let applied = "{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: applied}, spec: {ca: {secretName: ''}}}";
    let said = kubectl.fail_with_yaml("apply --server-side -n default -f -", applied);
    assert!(said.contains(DENIED), "{said}");
}

/// The webhook writes down who asks for a certificate, and asks the API who may approve it.
#[test]
fn the_webhook_of_cert_manager_knows_who_asks_and_who_approves() {
    if !is_wanted() {
        return;
    }
    let server = Server::of(Flavour::from_env());
    let kubectl = server.kubectl(Version::Current);
    let _webhook = installed(&server, &kubectl);
    kubectl.ok("create clusterrole requester --verb=get,create,patch --resource=certificaterequests.cert-manager.io,certificaterequests.cert-manager.io/status");
    kubectl.ok("create clusterrolebinding requester --clusterrole=requester --user=alice --group=approvers");
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(["example.com".to_owned()]).expect("a name");
    params.distinguished_name = rcgen::DistinguishedName::new();
    let request = params.serialize_request(&key).expect("a request").pem().expect("text");
    let request = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, request);
    let request = format!(
        "{{apiVersion: cert-manager.io/v1, kind: CertificateRequest, metadata: {{name: web}}, spec: {{issuerRef: {{name: \
         ca}}, request: {request}, username: mallory, groups: ['system:masters']}}}}"
    );
    eventually("the webhook answers", || {
        kubectl.run("create -n default -f - --as=alice", &request).status.success().then_some(())
    });
    let asked = kubectl
        .ok("get certificaterequest web -n default -o jsonpath={.spec.username},{.spec.groups}");
    assert_eq!(asked, r#"alice,["system:authenticated"]"#);

    let approval =
        r#"{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Tested"}]}}"#;
    let approve = |who: &str| {
        format!(
            "patch certificaterequest web -n default --subresource=status --type=merge {who} -p='{approval}'"
        )
    };
    let said = kubectl.fail(&approve("--as=alice"));
    let refusal = "status.conditions: Forbidden: user \"alice\" does not have permissions to set approved/denied \
                   conditions for issuer";
    assert!(said.contains(refusal), "{said}");
    kubectl.ok_with_yaml(
        "create -f -",
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: approver}, rules: [{apiGroups: \
         [cert-manager.io], resources: [signers], verbs: [approve], resourceNames: [issuers.cert-manager.io/*]}]}",
    );
    kubectl.ok("create clusterrolebinding approver --clusterrole=approver --group=approvers");
    eventually("bob may approve", || {
        let output = kubectl.run(&approve("--as=bob --as-group=approvers"), "");
        output.status.success().then_some(())
    });
}
