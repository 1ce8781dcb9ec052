//! `--egress-selector-config-file`: which connections go through a proxy. Pintle connects directly, so
//! that a configuration is accepted as far as direct connections do what it asks for.

use std::path::Path;

use meta::Value;

/// Checks the file; the result is a warning for each selection that has no effect.
pub(crate) fn check(file: &Path) -> Result<Vec<String>, String> {
    let text = std::fs::read(file).map_err(|error| error.to_string())?;
    let loaded = codec::yaml::load(&text).map_err(|error| error.to_string())?;
    if let Some(duplicate) = loaded.duplicates.first() {
        return Err(duplicate.clone());
    }
    selections(&loaded.value)
}

const VERSIONS: [&str; 2] = ["apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"];

fn selections(config: &Value) -> Result<Vec<String>, String> {
    let (version, kind) = (config.str_at(&["apiVersion"]), config.str_at(&["kind"]));
    if kind != "EgressSelectorConfiguration" || !VERSIONS.contains(&version) {
        return Err(format!(
            "expected kind EgressSelectorConfiguration of {}, found {kind:?} of {version:?}",
            VERSIONS[0]
        ));
    }
    let mut warnings = Vec::new();
    for (at, selection) in config.items_at(&["egressSelections"]).iter().enumerate() {
        let field = format!("egressSelections[{at}]");
        let name = selection.str_at(&["name"]);
        let protocol = selection.str_at(&["connection", "proxyProtocol"]);
        match (name, protocol) {
            ("controlplane" | "etcd" | "cluster", "Direct") => {}
            ("cluster", "HTTPConnect" | "GRPC") => warnings.push(format!(
                "{field}: connections to nodes, pods and services do not go through a proxy in \
                 Pintle yet"
            )),
            ("controlplane" | "etcd", "HTTPConnect" | "GRPC") => {
                return Err(format!(
                    "{field}: {name} through a proxy is not available in Pintle yet"
                ));
            }
            ("controlplane" | "etcd" | "cluster", other) => {
                return Err(format!(
                    "{field}.connection.proxyProtocol: Unsupported value: {other:?}: supported \
                     values: \"Direct\", \"GRPC\", \"HTTPConnect\""
                ));
            }
            (other, _) => {
                return Err(format!(
                    "{field}.name: Unsupported value: {other:?}: supported values: \"cluster\", \
                     \"controlplane\", \"etcd\""
                ));
            }
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selections: &str) -> Result<usize, String> {
        let text = format!(
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n\
             egressSelections: [{selections}]"
        );
        let config = codec::yaml::load(text.as_bytes()).unwrap().value;
        super::selections(&config).map(|warnings| warnings.len())
    }

    #[test]
    fn only_what_is_meant_to_be_direct_is_accepted_in_silence() {
        let proxied = "connection: {proxyProtocol: HTTPConnect}";
        let cases = [
            ("{name: etcd, connection: {proxyProtocol: Direct}}".to_owned(), Ok(0)),
            (format!("{{name: cluster, {proxied}}}"), Ok(1)),
            (
                format!("{{name: etcd, {proxied}}}"),
                Err("egressSelections[0]: etcd through a proxy is not available in Pintle yet"),
            ),
            (
                format!("{{name: master, {proxied}}}"),
                Err("egressSelections[0].name: Unsupported value: \"master\": supported values: \
                     \"cluster\", \"controlplane\", \"etcd\""),
            ),
            (
                "{name: cluster}".to_owned(),
                Err("egressSelections[0].connection.proxyProtocol: Unsupported value: \"\": \
                     supported values: \"Direct\", \"GRPC\", \"HTTPConnect\""),
            ),
        ];
        for (selections, expected) in cases {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(check(&selections), expected, "{selections}");
        }
        assert!(super::selections(&Value::object()).is_err());
    }
}
