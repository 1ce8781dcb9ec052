//! Validation of the flags. All errors are reported, with kube-apiserver's messages where it has the
//! same rule.

use std::net::IpAddr;

use super::Options;
use crate::flags::{Parsed, format_duration, quote};

/// Adds the errors in the flags and in the options derived from them.
pub(super) fn validate(parsed: &Parsed, options: &Options, errors: &mut Vec<String>) {
    logging(parsed, options, errors);
    ranges(parsed, errors);
    headers(parsed, errors);
    storage(parsed, errors);
    super::etcd::validate(parsed, errors);
    serving(parsed, errors);
    flow_control(parsed, options, errors);
    services(parsed, options, errors);
    coordination(parsed, errors);
    needed_apis(options, errors);
    peers(parsed, options, errors);
}

/// APIs that the server itself cannot do without. kube-apiserver starts without them, and is never
/// ready.
fn needed_apis(options: &Options, errors: &mut Vec<String>) {
    let config = &options.runtime_config;
    let core = ["namespaces", "services", "endpoints", "configmaps", "secrets", "serviceaccounts"];
    if !core.iter().all(|resource| config.serves("", "v1", resource, true)) {
        errors.push(
            "--runtime-config turns v1 off, which the server itself needs for namespaces, services \
             and config maps"
                .to_owned(),
        );
    }
    let addresses = ["ipaddresses", "servicecidrs"];
    let networking = "networking.k8s.io";
    if !addresses.iter().all(|resource| config.serves(networking, "v1", resource, true)) {
        errors.push(format!(
            "--runtime-config turns {networking}/v1 off, which the addresses of services are kept in"
        ));
    }
    let roles = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];
    let rbac = "rbac.authorization.k8s.io";
    if options.has_rbac() && !roles.iter().all(|role| config.serves(rbac, "v1", role, true)) {
        errors.push(format!(
            "--runtime-config turns {rbac}/v1 off, which --authorization-mode=RBAC needs"
        ));
    }
}

fn peers(parsed: &Parsed, options: &Options, errors: &mut Vec<String>) {
    let enabled = options.feature_gates.enabled("UnknownVersionInteroperabilityProxy");
    for flag in ["peer-ca-file", "peer-advertise-ip", "peer-advertise-port"] {
        if !enabled && parsed.is_changed(flag) {
            errors.push(format!(
                "--{flag} requires UnknownVersionInteroperabilityProxy feature to be turned on"
            ));
        }
    }
    let (ip, port) = (parsed.text("peer-advertise-ip"), parsed.text("peer-advertise-port"));
    if !ip.is_empty() && options.peer_advertise_ip.is_none() {
        errors.push(format!("--peer-advertise-ip {} is not an IP address", quote(&ip)));
    }
    if !port.is_empty() && options.peer_advertise_port.is_none() {
        errors.push(format!("--peer-advertise-port {} is not a port", quote(&port)));
    }
    // Compat: peers know this server by it. The generated certificate has a CA that they do not trust.
    let mut pairs = options.authentication.client_pairs.iter();
    let is_known = pairs.any(|(flag, _)| *flag == "proxy-client-cert-file");
    if options.peer_ca_file.is_some() && !is_known {
        errors.push("error building peer proxy handler, proxy-cert-file not specified".to_owned());
    }
}

fn logging(parsed: &Parsed, options: &Options, errors: &mut Vec<String>) {
    let format = parsed.text("logging-format");
    let flush = parsed.nanos("log-flush-frequency");
    if flush <= 0 {
        let flush = quote(&format_duration(flush));
        errors.push(format!("flushFrequency: Invalid value: {flush}: Must be greater than zero"));
    }
    if !matches!(format.as_str(), "text" | "json") {
        errors.push(format!("format: Invalid value: {}: Unsupported log format", quote(&format)));
    }
    if format != "text" && !parsed.vmodule("vmodule").is_empty() {
        errors.push("vmodule: Forbidden: Only supported for text log format".to_owned());
    }
    let alpha = [
        ("log-text-split-stream", "text.splitStream"),
        ("log-text-info-buffer-size", "text.infoBufferSize"),
        ("log-json-split-stream", "json.splitStream"),
        ("log-json-info-buffer-size", "json.infoBufferSize"),
    ];
    for (flag, field) in alpha {
        if parsed.is_changed(flag) && !options.feature_gates.enabled("LoggingAlphaOptions") {
            errors.push(format!(
                "options.{field}: Forbidden: Feature LoggingAlphaOptions is disabled"
            ));
        }
    }
}

/// Numbers and durations that must not be negative.
fn ranges(parsed: &Parsed, errors: &mut Vec<String>) {
    // Compat: the messages differ from flag to flag as in kube-apiserver.
    let rules = [
        (parsed.nanos("livez-grace-period"), "--livez-grace-period can not be a negative value"),
        (parsed.int("max-requests-inflight"), "--max-requests-inflight can not be negative value"),
        (
            parsed.int("max-mutating-requests-inflight"),
            "--max-mutating-requests-inflight can not be negative value",
        ),
        (parsed.nanos("request-timeout"), "--request-timeout can not be negative value"),
        (parsed.int("min-request-timeout"), "--min-request-timeout can not be negative value"),
        (
            parsed.nanos("storage-initialization-timeout"),
            "--storage-initialization-timeout can not be negative value",
        ),
        (
            parsed.nanos("shutdown-delay-duration"),
            "--shutdown-delay-duration can not be negative value",
        ),
        (
            parsed.nanos("shutdown-watch-termination-grace-period"),
            "shutdown-watch-termination-grace-period, if provided, can not be a negative value",
        ),
        (parsed.nanos("event-ttl"), "--event-ttl can not be negative value"),
        (
            parsed.nanos("etcd-compaction-interval"),
            "--etcd-compaction-interval can not be negative value",
        ),
        (
            parsed.int("http2-max-streams-per-connection"),
            "--http2-max-streams-per-connection can not be negative value",
        ),
    ];
    errors.extend(rules.iter().filter(|(value, _)| *value < 0).map(|(_, rule)| (*rule).to_owned()));
    // Written as "not allowed" so that NaN is refused as well.
    if !(0.0..=0.02).contains(&parsed.float("goaway-chance")) {
        errors.push("--goaway-chance can not be less than 0 or greater than 0.02".to_owned());
    }
}

fn headers(parsed: &Parsed, errors: &mut Vec<String>) {
    for directive in parsed.texts("strict-transport-security-directives") {
        let is_max_age = || {
            let parts: Vec<_> = directive.split('=').collect();
            parts.len() == 2 && parts[0] == "max-age"
        };
        if directive.trim().is_empty() {
            errors.push("empty value in strict-transport-security-directives".to_owned());
        } else if !matches!(directive.as_str(), "includeSubDomains" | "preload") && !is_max_age() {
            errors.push(
                "--strict-transport-security-directives invalid, allowed values: \
                 max-age=expireTime, includeSubDomains, preload. see \
                 https://tools.ietf.org/html/rfc6797#section-6.1 for more information"
                    .to_owned(),
            );
        }
    }
    // An expression that is not anchored also matches example.com.evil.org. Its syntax is checked where
    // it is compiled.
    for origin in parsed.texts("cors-allowed-origins") {
        let pinned_at = |marks: [&str; 2]| marks.iter().any(|mark| origin.contains(mark));
        if origin.is_empty() {
            errors.push("empty value in --cors-allowed-origins".to_owned());
        } else if !pinned_at(["^", "//"]) || !pinned_at(["$", ":"]) {
            errors.push(format!(
                "--cors-allowed-origins has an invalid regular expression: regular expression does \
                 not pin to start/end of host in the origin header: {}",
                quote(&origin)
            ));
        }
    }
}

const MEDIA_TYPES: [&str; 3] =
    ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];

fn storage(parsed: &Parsed, errors: &mut Vec<String>) {
    if parsed.text("data-dir").is_empty() {
        errors.push("--data-dir must not be empty".to_owned());
    }
    if parsed.bool("encryption-provider-config-automatic-reload")
        && parsed.text("encryption-provider-config").is_empty()
    {
        errors.push(
            "--encryption-provider-config-automatic-reload must be set with \
             --encryption-provider-config"
                .to_owned(),
        );
    }
    let media_type = parsed.text("storage-media-type");
    if !media_type.is_empty() && !MEDIA_TYPES.contains(&media_type.as_str()) {
        errors.push(format!(
            "--storage-media-type {} invalid, allowed values: {}",
            quote(&media_type),
            MEDIA_TYPES.join(", ")
        ));
    }
}

fn serving(parsed: &Parsed, errors: &mut Vec<String>) {
    let port = parsed.int("secure-port");
    if !(0..=65535).contains(&port) {
        errors.push(format!(
            "--secure-port {port} must be between 0 and 65535, inclusive. 0 picks a free port"
        ));
    }
    let cert = !parsed.text("tls-cert-file").is_empty();
    let key = !parsed.text("tls-private-key-file").is_empty();
    if cert != key {
        errors.push(
            "missing filename for serving cert: --tls-cert-file and --tls-private-key-file go \
             together"
                .to_owned(),
        );
    }
    for pair in parsed.cert_keys("tls-sni-cert-key") {
        if pair.cert_file.is_empty() || pair.key_file.is_empty() {
            errors.push(format!(
                "failed to load SNI cert and key: missing filename for serving cert in {}",
                quote(&pair.to_string())
            ));
        }
    }
}

fn flow_control(parsed: &Parsed, options: &Options, errors: &mut Vec<String>) {
    if !parsed.bool("enable-priority-and-fairness") {
        return;
    }
    let (reads, writes) =
        (parsed.int("max-requests-inflight"), parsed.int("max-mutating-requests-inflight"));
    if reads.saturating_add(writes) <= 0 {
        errors.push(format!(
            "invalid configuration: MaxRequestsInFlight={reads} and \
             MaxMutatingRequestsInFlight={writes}; they must add up to something positive"
        ));
    }
    // The most specific entry counts; priority and fairness reads its own API.
    let keys = ["flowcontrol.apiserver.k8s.io/v1", "api/ga", "api/all"];
    let said =
        keys.iter().find_map(|key| Some((key, options.runtime_config.explicit_setting(key)?)));
    if let Some((key, false)) = said {
        errors.push(format!(
            "--runtime-config={key}=false conflicts with --enable-priority-and-fairness=true"
        ));
    }
}

fn services(parsed: &Parsed, options: &Options, errors: &mut Vec<String>) {
    let range = options.service_node_port_range;
    let node_port = parsed.int("kubernetes-service-node-port");
    if !(0..=65535).contains(&node_port) {
        errors.push(format!(
            "--kubernetes-service-node-port {node_port} must be between 0 and 65535, inclusive. If \
             0, the Kubernetes master service will be of type ClusterIP"
        ));
    } else if node_port > 0 && !range.contains(node_port) {
        errors.push(format!(
            "kubernetes service node port range {} doesn't contain {node_port}",
            parsed.value("service-node-port-range")
        ));
    }
    let reconciler = parsed.text("endpoint-reconciler-type");
    if !matches!(reconciler.as_str(), "" | "master-count" | "lease" | "none") {
        errors.push(format!("Reconciler not implemented: {reconciler}"));
    }
    // The endpoints of service kubernetes must have the IP family of its address.
    if let Some(primary) = options.service_cluster_ip_ranges.first() {
        let same_family = |ip: IpAddr| ip.is_ipv4() == primary.network.is_ipv4();
        if reconciler != "none" && !same_family(options.advertise_address) {
            errors.push(format!(
                "service IP family {} must match public address family {}",
                quote(&primary.to_string()),
                quote(&options.advertise_address.to_string())
            ));
        }
    }
    let servers = parsed.int("apiserver-count");
    if servers <= 0 {
        errors.push(format!(
            "--apiserver-count should be a positive number, but value '{servers}' provided"
        ));
    }
}

fn coordination(parsed: &Parsed, errors: &mut Vec<String>) {
    let names = ["lease-duration", "renew-deadline", "retry-period"]
        .map(|name| format!("coordinated-leadership-{name}"));
    for pair in names.windows(2) {
        if parsed.nanos(&pair[0]) <= parsed.nanos(&pair[1]) {
            errors.push(format!("--{} must be greater than --{}", pair[0], pair[1]));
        }
    }
}
