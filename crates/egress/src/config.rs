//! `EgressSelectorConfiguration`: read strictly, and validated in kube-apiserver's words.

use std::path::{Path, PathBuf};

use meta::{
    Value,
    field::{FieldErrors, FieldPath},
};

use crate::selector::EgressType;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);

pub(crate) struct Selection {
    pub(crate) egress: EgressType,
    pub(crate) connection: Connection,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    Direct,
    HttpConnectUds(PathBuf),
    HttpConnectTcp { host: String, port: u16, tls: TlsFiles },
    GrpcUds(PathBuf),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) ca_bundle: Option<PathBuf>,
    pub(crate) client_cert: PathBuf,
    pub(crate) client_key: PathBuf,
    pub(crate) server_name: Option<String>,
}

pub(crate) fn read(file: &Path) -> Result<Vec<Selection>, ConfigError> {
    let text = std::fs::read(file).map_err(|error| {
        let file = file.display();
        ConfigError(format!(
            "unable to read egress selector configuration from \"{file}\" [{error}]"
        ))
    })?;
    let loaded = codec::yaml::load(&text).map_err(|error| ConfigError(error.to_string()))?;
    if let Some(duplicate) = loaded.duplicates.first() {
        return Err(ConfigError(format!("strict decoding error: {duplicate}")));
    }
    parse(&loaded.value)
}

const VERSIONS: [&str; 2] = ["apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"];

fn parse(config: &Value) -> Result<Vec<Selection>, ConfigError> {
    let (version, kind) = (config.str_at(&["apiVersion"]), config.str_at(&["kind"]));
    if kind != "EgressSelectorConfiguration" || !VERSIONS.contains(&version) {
        return Err(ConfigError(format!(
            "expected kind EgressSelectorConfiguration of {}, found {kind:?} of {version:?}",
            VERSIONS[0]
        )));
    }
    refuse_unknown(config, "", &FIELDS)?;
    let mut errors = FieldErrors::default();
    let path = FieldPath::new("service").child("connection");
    let mut selections = Vec::new();
    let items = config.items_at(&["egressSelections"]);
    for selection in items {
        let connection = connection(selection, &path, &mut errors);
        let egress = EgressType::from_name(&selection.str_at(&["name"]).to_lowercase());
        if let (Some(egress), Some(connection)) = (egress, connection) {
            selections.push(Selection { egress, connection });
        }
    }
    let mut seen: Vec<String> = Vec::new();
    for (at, selection) in items.iter().enumerate() {
        let name = selection.str_at(&["name"]).to_lowercase();
        if seen.contains(&name) {
            errors.duplicate(path.index(at), name);
            continue;
        }
        if EgressType::from_name(&name).is_none() {
            errors.not_supported(path.clone(), name.as_str(), &["cluster", "controlplane", "etcd"]);
        }
        seen.push(name);
    }
    if errors.is_empty() { Ok(selections) } else { Err(ConfigError(errors.to_string())) }
}

/// The fields of each object, by the path to it.
const FIELDS: [(&str, &[&str]); 7] = [
    ("", &["apiVersion", "kind", "egressSelections"]),
    ("egressSelections", &["name", "connection"]),
    ("egressSelections.connection", &["proxyProtocol", "transport"]),
    ("egressSelections.connection.transport", &["tcp", "uds"]),
    ("egressSelections.connection.transport.tcp", &["url", "tlsConfig"]),
    (
        "egressSelections.connection.transport.tcp.tlsConfig",
        &["caBundle", "clientKey", "clientCert", "tlsServerName"],
    ),
    ("egressSelections.connection.transport.uds", &["udsName"]),
];

fn refuse_unknown(value: &Value, at: &str, fields: &[(&str, &[&str])]) -> Result<(), ConfigError> {
    if let Value::Array(items) = value {
        return items.iter().try_for_each(|item| refuse_unknown(item, at, fields));
    }
    let Value::Object(map) = value else { return Ok(()) };
    let known = fields.iter().find(|(path, _)| *path == at).map_or(&[][..], |(_, names)| names);
    for (name, value) in map.iter() {
        let path = if at.is_empty() { name.to_string() } else { format!("{at}.{name}") };
        if !known.contains(&name.as_str()) {
            return Err(ConfigError(format!("strict decoding error: unknown field \"{path}\"")));
        }
        refuse_unknown(value, &path, fields)?;
    }
    Ok(())
}

fn connection(selection: &Value, path: &FieldPath, errors: &mut FieldErrors) -> Option<Connection> {
    let transport = selection.at(&["connection", "transport"]).filter(|value| !value.is_null());
    let part = |name: &str| transport?.at(&[name]).filter(|value| !value.is_null());
    match selection.str_at(&["connection", "proxyProtocol"]) {
        "Direct" if transport.is_none() => Some(Connection::Direct),
        "Direct" => {
            let why = "config must be absent for direct connect";
            errors.invalid(path.child("transport"), "direct", why);
            None
        }
        "HTTPConnect" => match (transport, part("tcp"), part("uds")) {
            (None, ..) => {
                let why = "transport must be set for HTTPConnect";
                errors.required(path.child("transport"), why);
                None
            }
            (_, Some(tcp), Some(_)) => {
                let why = "TCP and UDS cannot both be set";
                errors.invalid(path.child("tcp"), tcp.clone(), why);
                None
            }
            (_, None, None) => {
                let why = "One of TCP or UDS must be set";
                errors.required(path.child("tcp"), why);
                None
            }
            (_, Some(tcp), None) => tcp_connection(tcp, path, errors),
            (_, None, Some(uds)) => socket(uds, path, errors).map(Connection::HttpConnectUds),
        },
        "GRPC" => match (transport, part("uds")) {
            (None, _) => {
                let why = "transport must be set for GRPC";
                errors.required(path.child("transport"), why);
                None
            }
            (_, Some(uds)) => socket(uds, path, errors).map(Connection::GrpcUds),
            (_, None) => {
                errors.required(path.child("uds"), "UDS must be set with GRPC");
                None
            }
        },
        other => {
            let supported = ["Direct", "HTTPConnect", "GRPC"];
            errors.not_supported(path.child("protocol"), other, &supported);
            None
        }
    }
}

fn socket(uds: &Value, path: &FieldPath, errors: &mut FieldErrors) -> Option<PathBuf> {
    match uds.str_at(&["udsName"]) {
        "" => {
            errors.invalid(path.child("udsName"), "nil", "must be present for UDS connections");
            None
        }
        name => Some(name.into()),
    }
}

fn tcp_connection(tcp: &Value, path: &FieldPath, errors: &mut FieldErrors) -> Option<Connection> {
    let url = tcp.str_at(&["url"]);
    let tls = tcp.at(&["tlsConfig"]).filter(|value| !value.is_null());
    if url.starts_with("http://") {
        if tls.is_some() {
            let why = "config must not be present when using HTTP";
            errors.invalid(path.child("tlsConfig"), "nil", why);
        } else {
            // kube-apiserver accepts it and then dereferences the TLS settings that are not there.
            let why = "HTTPConnect over TCP needs TLS: use https://";
            errors.invalid(path.child("url"), url, why);
        }
        return None;
    }
    if !url.starts_with("https://") {
        let why = "supported connection protocols are http:// and https://";
        errors.invalid(path.child("url"), url, why);
        return None;
    }
    let Some(tls) = tls else {
        let why = "TLSConfig must be present when using HTTPS";
        errors.required(path.child("tlsConfig"), why);
        return None;
    };
    let before = errors.count();
    let tls_path = path.child("tlsConfig");
    let ca_bundle = match tls.str_at(&["caBundle"]) {
        "" => None,
        file => {
            if !Path::new(file).exists() {
                let why = "TLS config ca bundle does not exist";
                errors.invalid(tls_path.child("caBundle"), file, why);
            }
            Some(file.into())
        }
    };
    let mut file = |name: &str, missing: &str, absent: &str| -> PathBuf {
        match tls.str_at(&[name]) {
            "" => errors.invalid(tls_path.child(name), "nil", missing),
            file if !Path::new(file).exists() => {
                errors.invalid(tls_path.child(name), file, absent);
            }
            _ => {}
        }
        tls.str_at(&[name]).into()
    };
    let client_cert =
        file("clientCert", "Using TLS requires clientCert", "TLS client cert does not exist");
    // Compat: with the word that kube-apiserver repeats.
    let client_key =
        file("clientKey", "Using TLS requires requires clientKey", "TLS client key does not exist");
    let server_name = Some(tls.str_at(&["tlsServerName"]).to_owned()).filter(|n| !n.is_empty());
    let authority = url.parse::<http::Uri>().ok().and_then(|url| url.authority().cloned());
    let Some(authority) = authority else {
        errors.invalid(path.child("url"), url, "it cannot be parsed");
        return None;
    };
    if errors.count() > before {
        return None;
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = authority.port_u16().unwrap_or(443);
    let tls = TlsFiles { ca_bundle, client_cert, client_key, server_name };
    Some(Connection::HttpConnectTcp { host, port, tls })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selections: &str) -> Result<Vec<Connection>, String> {
        let text = format!(
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n\
             egressSelections: [{selections}]"
        );
        let config = codec::yaml::load(text.as_bytes()).unwrap().value;
        parse(&config)
            .map(|all| all.into_iter().map(|selection| selection.connection).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_configuration_is_validated_in_the_words_of_kube_apiserver() {
        let uds = "transport: {uds: {udsName: /run/proxy.sock}}";
        let tcp = |url: &str, tls: &str| {
            format!(
                "{{name: cluster, connection: {{proxyProtocol: HTTPConnect, transport: {{tcp: \
                 {{url: {url}, {tls}}}}}}}}}"
            )
        };
        let socket = || PathBuf::from("/run/proxy.sock");
        let cases = [
            (
                "{name: etcd, connection: {proxyProtocol: Direct}}".to_owned(),
                Ok(vec![Connection::Direct]),
            ),
            (
                format!("{{name: Cluster, connection: {{proxyProtocol: HTTPConnect, {uds}}}}}"),
                Ok(vec![Connection::HttpConnectUds(socket())]),
            ),
            (
                format!("{{name: controlplane, connection: {{proxyProtocol: GRPC, {uds}}}}}"),
                Ok(vec![Connection::GrpcUds(socket())]),
            ),
            (
                format!("{{name: etcd, connection: {{proxyProtocol: Direct, {uds}}}}}"),
                Err("service.connection.transport: Invalid value: \"direct\": config must be \
                     absent for direct connect"),
            ),
            (
                "{name: etcd, connection: {proxyProtocol: GRPC}}".to_owned(),
                Err("service.connection.transport: Required value: transport must be set for GRPC"),
            ),
            (
                "{name: etcd, connection: {proxyProtocol: GRPC, transport: {}}}".to_owned(),
                Err("service.connection.uds: Required value: UDS must be set with GRPC"),
            ),
            (
                "{name: master, connection: {proxyProtocol: Direct}}".to_owned(),
                Err("service.connection: Unsupported value: \"master\": supported values: \
                     \"cluster\", \"controlplane\", \"etcd\""),
            ),
            (
                "{name: cluster}".to_owned(),
                Err("service.connection.protocol: Unsupported value: \"\": supported values: \
                     \"Direct\", \"HTTPConnect\", \"GRPC\""),
            ),
            (
                "{name: cluster, connection: {proxyProtocol: Direct}, port: 1}".to_owned(),
                Err("strict decoding error: unknown field \"egressSelections.port\""),
            ),
            (
                tcp("ftp://proxy", ""),
                Err(
                    "service.connection.url: Invalid value: \"ftp://proxy\": supported connection \
                     protocols are http:// and https://",
                ),
            ),
            (
                tcp("https://proxy:8131", ""),
                Err(
                    "service.connection.tlsConfig: Required value: TLSConfig must be present when \
                     using HTTPS",
                ),
            ),
            (
                tcp("https://proxy:8131", "tlsConfig: {clientKey: /nowhere}"),
                Err("[service.connection.tlsConfig.clientCert: Invalid value: \"nil\": Using TLS \
                     requires clientCert, service.connection.tlsConfig.clientKey: Invalid value: \
                     \"/nowhere\": TLS client key does not exist]"),
            ),
            (
                "{name: etcd, connection: {proxyProtocol: Direct}}, {name: ETCD, connection: \
                 {proxyProtocol: Direct}}"
                    .to_owned(),
                Err("service.connection[1]: Duplicate value: \"etcd\""),
            ),
        ];
        for (selections, expected) in cases {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(check(&selections), expected, "{selections}");
        }
        assert!(parse(&Value::object()).is_err());
    }
}
