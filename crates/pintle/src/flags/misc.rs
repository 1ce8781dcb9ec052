//! The sections "Misc" and "Global".

use super::FlagKind::{Bool, Duration, Int, PortRange, Text, Texts, Uint, Version};
use super::{Flag, done};

pub(super) const FLAGS: &[Flag] = &[
    done("aggregator-reject-forwarding-redirect", Bool, "true")
        .help("Turn redirects of aggregated servers into errors."),
    done("allow-privileged", Bool, "false").help("Allow pods with privileged containers."),
    done("apiserver-count", Int, "1")
        .help("Number of API servers in the cluster; with several, CRDs are established after a delay.")
        .deprecated("apiserver-count is deprecated and will be removed in a future version.")
        .hidden(),
    done("coordinated-leadership-lease-duration", Duration, "15s")
        .help("Coordinated leader election: how long a lease lasts."),
    done("coordinated-leadership-renew-deadline", Duration, "10s")
        .help("Coordinated leader election: how long renewing may take."),
    done("coordinated-leadership-retry-period", Duration, "2s")
        .help("Coordinated leader election: wait between attempts."),
    done("enable-aggregator-routing", Bool, "false")
        .help("Call aggregated servers at their endpoints instead of their cluster address."),
    done("enable-logs-handler", Bool, "false")
        .help("Serve the files below /var/log at /logs.")
        .deprecated("Log handler functionality is deprecated"),
    done("endpoint-reconciler-type", Text, "lease").help(
        "How the endpoints of service kubernetes are reconciled: lease, master-count with \
         --apiserver-count, or none.",
    ),
    done("event-ttl", Duration, "1h0m0s").help("How long events are kept."),
    done("kubelet-certificate-authority", Text, "")
        .help("Authority of the kubelets' certificates. Unset: they are not verified."),
    done("kubelet-client-certificate", Text, "")
        .help("Client certificate shown to kubelets."),
    done("kubelet-client-key", Text, "").help("Private key of --kubelet-client-certificate."),
    done("kubelet-port", Uint, "10250")
        .help("Port of kubelets whose node does not name one.")
        .deprecated("kubelet-port is deprecated and will be removed.")
        .hidden(),
    done(
        "kubelet-preferred-address-types",
        Texts,
        "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP",
    )
    .help("Which address of a node is used: the first type that it has."),
    done("kubelet-read-only-port", Uint, "10255")
        .help("Read-only port of the kubelets; kube-apiserver does not use it either.")
        .deprecated("kubelet-read-only-port is deprecated and will be removed.")
        .hidden(),
    done("kubelet-timeout", Duration, "5s").help("Longest time to connect to a kubelet or a pod."),
    done("kubernetes-service-node-port", Int, "0")
        .help("Node port of service kubernetes; 0: none."),
    done("max-connection-bytes-per-sec", Int, "0").help(
        "Bytes per second and direction of each connection of exec, attach, port-forward and upgraded \
         proxies; 0: no limit.",
    ),
    done("peer-advertise-ip", Text, "")
        .help("Address under which other API servers reach this one."),
    done("peer-advertise-port", Text, "")
        .help("Port under which other API servers reach this one."),
    done("peer-ca-file", Text, "").help(
        "CAs of the other API servers' certificates. If set, requests for resources that only another API \
         server of the cluster has are sent on to it, with --proxy-client-cert-file.",
    ),
    done("proxy-client-cert-file", Text, "").help(
        "Client certificate shown to aggregated servers. Unset, and without \
         --requestheader-client-ca-file: pki/front-proxy-client.crt in the data directory.",
    ),
    done("proxy-client-key-file", Text, "").help("Private key of --proxy-client-cert-file."),
    done("service-account-signing-endpoint", Text, "").help(
        "Unix socket, or @name of an abstract one, of a program that signs service account tokens, \
         instead of --service-account-signing-key-file and --service-account-key-file.",
    ),
    done("service-account-signing-key-file", Text, "").help(
        "Private key that signs service account tokens: RSA, or ECDSA on P-256, P-384 or P-521. Unset: \
         pki/sa.key in the data directory.",
    ),
    done("service-cluster-ip-range", Text, "10.0.0.0/24").help(
        "Range of service addresses, or two of different families. (kube-apiserver warns when it \
         falls back to this default.)",
    ),
    done("service-node-port-range", PortRange, "30000-32767")
        .help("Ports for services of type NodePort, both ends included."),
];

pub(super) const GLOBAL: &[Flag] = &[
    done("help", Bool, "false").short('h').help("Print this text."),
    done("version", Version, "false").help(
        "Print the version (=raw: in full) and exit; =v1.36.4… sets the version that is \
         reported.",
    ),
];
