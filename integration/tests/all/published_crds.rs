//! Definitions that well-known projects publish, with objects as their documents show them, and the same
//! objects broken.

use integration::{Kubectl, Server, Version};

/// The definitions of a project that others build upon, without the lines that are for Helm.
fn published(project: &str) -> Vec<String> {
    let directory = integration::published_definitions().join(project);
    let files = std::fs::read_dir(&directory).expect("the definitions are there");
    let mut files: Vec<_> = files.map(|file| file.expect("readable").path()).collect();
    files.sort();
    let texts = files.iter().filter(|file| file.extension().is_some_and(|ext| ext == "yaml"));
    let texts = texts.map(|file| std::fs::read_to_string(file).expect("definitions are text"));
    let texts = texts.map(|text| {
        text.lines().filter(|line| !line.contains("{{")).collect::<Vec<_>>().join("\n")
    });
    texts.filter(|text| text.contains("kind: CustomResourceDefinition")).collect()
}

/// The projects, each with objects that it takes and why it does not take others.
const PROJECTS: [(&str, &[(&str, &str)]); 6] = [
    (
        "argo-cd",
        &[
            (
                "{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: guestbook}, spec: {project: default, \
                 source: {repoURL: 'https://example.com/apps.git', path: guestbook, targetRevision: HEAD}, \
                 destination: {server: 'https://kubernetes.default.svc', namespace: guestbook}, \
                 syncPolicy: {automated: {prune: true}, syncOptions: [CreateNamespace=true]}}}",
                "",
            ),
            (
                "{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: nowhere}, spec: {project: default}}",
                "spec.destination: Required value",
            ),
            (
                "{apiVersion: argoproj.io/v1alpha1, kind: AppProject, metadata: {name: p}, spec: {sourceRepos: ['*'], \
                 syncWindows: [{kind: allow, schedule: '10 1 * * *', duration: 1h, applications: ['*']}]}}",
                "",
            ),
        ],
    ),
    (
        "cert-manager",
        &[
            (
                "{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: web}, spec: {secretName: web-tls, \
                 dnsNames: [example.com], issuerRef: {name: ca, kind: ClusterIssuer}, \
                 privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}, usages: [server auth]}}",
                "",
            ),
            (
                "{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: x}, spec: {secretName: s, \
                 issuerRef: {name: ca}, privateKey: {algorithm: DSA}, usages: [serving]}}",
                "spec.privateKey.algorithm: Unsupported value: \"DSA\"",
            ),
            (
                "{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: x}, spec: {secretName: s}}",
                "spec.issuerRef: Required value",
            ),
            (
                "{apiVersion: cert-manager.io/v1, kind: ClusterIssuer, metadata: {name: le}, spec: {acme: {server: 'https://acme.example.com', \
                 privateKeySecretRef: {name: key}, solvers: [{http01: {ingress: {ingressClassName: nginx}}}]}}}",
                "",
            ),
        ],
    ),
    (
        "crossplane",
        &[
            (
                "{apiVersion: apiextensions.crossplane.io/v1, kind: CompositeResourceDefinition, \
                 metadata: {name: xdatabases.example.org}, spec: {group: example.org, \
                 names: {kind: XDatabase, plural: xdatabases}, versions: [{name: v1, served: true, referenceable: true, \
                 schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}}]}}",
                "",
            ),
            (
                "{apiVersion: apiextensions.crossplane.io/v1, kind: CompositeResourceDefinition, \
                 metadata: {name: x.example.org}, spec: {group: example.org, versions: []}}",
                "spec.names: Required value",
            ),
        ],
    ),
    (
        "gateway-api",
        &[
            (
                "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: r}, \
                 spec: {rules: [{backendRefs: [{name: web, port: 80}]}]}}",
                "",
            ),
            (
                "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: x}, \
                 spec: {rules: [{backendRefs: [{name: web, port: 123456}]}]}}",
                "should be less than or equal to 65535",
            ),
            (
                "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: g}, spec: {gatewayClassName: c, \
                 listeners: [{name: web, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}]}}",
                "",
            ),
            (
                "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: x}, spec: {gatewayClassName: c, \
                 listeners: [{name: web, port: 80, protocol: HTTP, tls: {certificateRefs: [{name: cert}]}}]}}",
                "tls must not be specified for protocols",
            ),
            (
                "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: x}, spec: {gatewayClassName: c, \
                 listeners: [{name: a, port: 80, protocol: HTTP}, {name: a, port: 81, protocol: HTTP}]}}",
                "spec.listeners[1]: Duplicate value: {\"name\":\"a\"}",
            ),
        ],
    ),
    (
        "istio",
        &[
            (
                "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: reviews}, spec: {hosts: [reviews], \
                 http: [{match: [{headers: {end-user: {exact: jason}}}], route: [{destination: {host: reviews, subset: v2}, weight: 90}]}]}}",
                "",
            ),
            (
                "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: x}, spec: {hosts: [reviews], \
                 http: [{match: [{uri: {exact: a, prefix: b}}]}]}}",
                "must validate one and only one schema (oneOf)",
            ),
            (
                "{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: x}, spec: {action: MAYBE}}",
                "spec.action: Unsupported value: \"MAYBE\"",
            ),
            (
                "{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: reviews}, spec: {host: reviews, \
                 trafficPolicy: {loadBalancer: {simple: LEAST_REQUEST}}, subsets: [{name: v1, labels: {version: v1}}]}}",
                "",
            ),
        ],
    ),
    (
        "prometheus-operator",
        &[
            (
                "{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, \
                 endpoints: [{port: http, interval: 30s, path: /metrics, targetPort: 8080}]}}",
                "",
            ),
            (
                "{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {name: x}, spec: {selector: {}, \
                 endpoints: [{port: http, interval: soon}]}}",
                "spec.endpoints[0].interval in body should match",
            ),
            (
                "{apiVersion: monitoring.coreos.com/v1, kind: PrometheusRule, metadata: {name: rules}, spec: {groups: [{name: g, \
                 rules: [{alert: Down, expr: up == 0, for: 5m}, {record: one, expr: 1}]}]}}",
                "",
            ),
            (
                "{apiVersion: monitoring.coreos.com/v1, kind: PrometheusRule, metadata: {name: x}, spec: {groups: [{rules: []}]}}",
                "spec.groups[0].name: Required value",
            ),
        ],
    ),
];

#[test]
fn definitions_of_well_known_projects_take_their_objects_and_refuse_broken_ones() {
    let server = Server::start();
    let kubectl = server.kubectl(Version::Current);
    for (project, _) in PROJECTS {
        let definitions = published(project);
        assert!(!definitions.is_empty(), "{project} has no definitions");
        for definition in definitions {
            kubectl.ok_with_yaml("create --validate=false -f -", &definition);
        }
    }
    kubectl.established("crd --all");
    for (project, objects) in PROJECTS {
        for (object, refusal) in objects {
            if refusal.is_empty() {
                kubectl.ok_with_yaml("create --validate=strict -f -", object);
                continue;
            }
            let refused = kubectl.fail_with_yaml("create --validate=false -f -", object);
            assert!(refused.contains(refusal), "{project}: {refusal} is missing in {refused}");
        }
    }
    let matches = kubectl.ok("get httproute r -o jsonpath='{.spec.rules[0].matches[0].path}'");
    assert_eq!(matches, r#"{"type":"PathPrefix","value":"/"}"#);
    explained(
        &kubectl,
        "certificate.spec.issuerRef.name",
        "Name of the resource being referred to",
    );
    explained(
        &kubectl,
        "virtualservice.spec.http",
        "An ordered list of route rules for HTTP traffic",
    );
    let table = kubectl.ok("get certificate,gateway,virtualservice,application");
    assert!(table.contains("web-tls") && table.contains("reviews"), "{table}");
}

fn explained(kubectl: &Kubectl<'_>, field: &str, sentence: &str) {
    let text = kubectl.ok(&format!("explain {field}"));
    assert!(text.contains(sentence), "{text}");
}
