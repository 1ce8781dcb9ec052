//! The flags about etcd.

use std::time::Duration;

use builtin::StorageFormat;

use super::{duration, path};
use crate::flags::Parsed;

/// The etcd clusters and how objects are stored in them.
#[derive(Debug, Clone)]
pub(crate) struct Etcd {
    pub(crate) servers: Vec<String>,
    pub(crate) tls: etcd::Tls,
    /// `--etcd-servers-overrides`
    pub(crate) overrides: Vec<Override>,
    /// Storage format of built-in objects.
    pub(crate) form: StorageFormat,
    pub(crate) healthcheck_timeout: Duration,
    pub(crate) readycheck_timeout: Duration,
    pub(crate) lease_reuse_seconds: u64,
}

/// `group/resource#url;url`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) servers: Vec<String>,
}

impl Etcd {
    /// None without `--etcd-servers`: the embedded store is used.
    pub(super) fn from_flags(parsed: &Parsed, warnings: &mut Vec<String>) -> Option<Self> {
        let servers = parsed.texts("etcd-servers");
        if servers.is_empty() {
            return None;
        }
        let overrides = parsed.texts("etcd-servers-overrides");
        let overrides: Vec<Override> =
            overrides.iter().filter_map(|text| Override::parse(text)).collect();
        for server in servers.iter().chain(overrides.iter().flat_map(|own| &own.servers)) {
            if is_plain_and_remote(server) {
                warnings.push(format!(
                    "etcd at {server} is reached without TLS: all objects, Secrets among them, can be \
                     read and changed on the way"
                ));
            }
        }
        Some(Self {
            servers,
            tls: tls(parsed),
            overrides,
            form: form(parsed),
            healthcheck_timeout: duration(parsed, "etcd-healthcheck-timeout"),
            readycheck_timeout: duration(parsed, "etcd-readycheck-timeout"),
            lease_reuse_seconds: u64::try_from(parsed.int("lease-reuse-duration-seconds"))
                .unwrap_or(0),
        })
    }
}

/// Whether a URL has no TLS and leaves this machine.
fn is_plain_and_remote(url: &str) -> bool {
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest,
        Some(_) => return false,
        // Compat: a name without a scheme is reached without TLS.
        None => url,
    };
    let host = rest.split('/').next().unwrap_or_default();
    let host = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, _port)) => address,
        None => host.rsplit_once(':').map_or(host, |(host, _port)| host),
    };
    let address = host.parse::<std::net::IpAddr>();
    host != "localhost" && !address.is_ok_and(|address| address.is_loopback())
}

impl Override {
    fn parse(text: &str) -> Option<Self> {
        let (resource, servers) = text.split_once('#')?;
        let (group, resource) = resource.split_once('/')?;
        if resource.contains('/') || servers.contains('#') {
            return None;
        }
        let servers: Vec<String> = servers.split(';').map(str::to_owned).collect();
        let are_urls = servers.iter().all(|server| server.contains("://"));
        are_urls.then(|| Self { group: group.to_owned(), resource: resource.to_owned(), servers })
    }
}

/// The CA and the client certificate.
pub(crate) fn tls(parsed: &Parsed) -> etcd::Tls {
    etcd::Tls {
        ca_file: path(parsed, "etcd-cafile"),
        cert_file: path(parsed, "etcd-certfile"),
        key_file: path(parsed, "etcd-keyfile"),
    }
}

/// `--storage-media-type`
pub(crate) fn form(parsed: &Parsed) -> StorageFormat {
    match parsed.text("storage-media-type").as_str() {
        "application/json" => StorageFormat::Json,
        "application/yaml" => StorageFormat::Yaml,
        _ => StorageFormat::Protobuf,
    }
}

/// Normalizes the prefix: one leading slash, no trailing one.
pub(crate) fn prefix(parsed: &Parsed) -> String {
    format!("/{}", parsed.text("etcd-prefix").trim_matches('/'))
}

/// Adds errors, with kube-apiserver's messages where it has the same rule.
pub(super) fn validate(parsed: &Parsed, errors: &mut Vec<String>) {
    storage_backend(parsed, errors);
    let (servers, overrides) =
        (parsed.texts("etcd-servers"), parsed.texts("etcd-servers-overrides"));
    if servers.is_empty() {
        let needy = ["etcd-servers-overrides", "etcd-cafile", "etcd-certfile", "etcd-keyfile"];
        for flag in needy.iter().filter(|flag| parsed.is_changed(flag)) {
            errors.push(format!("--{flag} needs --etcd-servers"));
        }
    } else if overrides.iter().any(|text| Override::parse(text).is_none()) {
        errors.push(
            "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where \
             servers are URLs, semicolon separated"
                .to_owned(),
        );
    }
    let all = servers.iter().chain(&overrides);
    if all.clone().any(|url| url.contains("https://")) && parsed.text("etcd-cafile").is_empty() {
        errors
            .push("--etcd-servers with https need --etcd-cafile, to know whom to trust".to_owned());
    }
    if parsed.text("etcd-certfile").is_empty() != parsed.text("etcd-keyfile").is_empty() {
        errors.push("--etcd-certfile and --etcd-keyfile go together".to_owned());
    }
    if parsed.int("lease-reuse-duration-seconds") < 0 {
        errors.push("--lease-reuse-duration-seconds can not be negative value".to_owned());
    }
}

/// `--storage-backend` names the store that `--etcd-servers`, or its absence, chooses anyway; only `memory`
/// is a choice of its own.
fn storage_backend(parsed: &Parsed, errors: &mut Vec<String>) {
    let over_etcd = !parsed.texts("etcd-servers").is_empty();
    match parsed.text("storage-backend").as_str() {
        // Compat: kube-apiserver's message.
        "etcd3" if !over_etcd => errors.push("--etcd-servers must be specified".to_owned()),
        own @ ("embedded" | "memory") if over_etcd => {
            errors.push(format!("--storage-backend={own} and --etcd-servers exclude each other"));
        }
        "" | "etcd3" | "embedded" | "memory" => {}
        _ => errors.push(
            "--storage-backend invalid, allowed values: etcd3, embedded, memory. If not specified, it \
             will default to 'etcd3' with --etcd-servers, and to 'embedded' without"
                .to_owned(),
        ),
    }
}

/// Whether objects end with the process.
pub(crate) fn in_memory(parsed: &Parsed) -> bool {
    parsed.text("storage-backend") == "memory"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Security case I14.
    #[test]
    fn a_remote_etcd_without_tls_is_warned_about() {
        let cases = [
            ("http://127.0.0.1:2379", false),
            ("http://localhost:2379", false),
            ("http://[::1]:2379", false),
            ("https://etcd.example:2379", false),
            ("unix:///run/etcd.sock", false),
            ("http://etcd.example:2379", true),
            ("http://10.0.0.1:2379", true),
            ("http://[fd00::1]:2379", true),
            ("etcd.example:2379", true),
            ("localhost:2379", false),
        ];
        for (url, expected) in cases {
            assert_eq!(is_plain_and_remote(url), expected, "{url}");
            let flag = format!("--etcd-servers={url}");
            let parsed = crate::flags::parse([flag]).expect("a flag");
            let mut warnings = Vec::new();
            Etcd::from_flags(&parsed, &mut warnings);
            let warned = warnings.iter().any(|warning| warning.contains("without TLS"));
            assert_eq!(warned, expected, "{url}: {warnings:?}");
        }
    }
}
