//! The file of `--tracing-config-file`: a `TracingConfiguration`, decoded strictly. Compat: errors have
//! kube-apiserver's words.

use codec::config_file::{self, FieldType};
use meta::{FieldErrors, Value, field::path};

use crate::endpoint::{Endpoint, unsupported_scheme};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfig {
    pub endpoint: Endpoint,
    /// Of requests that no caller records.
    pub sampling_rate_per_million: u32,
}

const KINDS: [(&str, &str); 3] = [
    ("apiserver.config.k8s.io/v1", "TracingConfiguration"),
    ("apiserver.config.k8s.io/v1beta1", "TracingConfiguration"),
    ("apiserver.config.k8s.io/v1alpha1", "TracingConfiguration"),
];

const FILE: FieldType = FieldType::Fields(&[
    ("apiVersion", FieldType::Text),
    ("kind", FieldType::Text),
    ("endpoint", FieldType::Text),
    ("samplingRatePerMillion", FieldType::Int),
]);

const MILLION: i64 = 1_000_000;

impl TracingConfig {
    /// Reads the content of a file.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let config = config_file::decode(bytes, &KINDS, &FILE).map_err(|why| {
            format!(
                "failed to read tracing config: unable to decode tracing configuration data: {why}"
            )
        })?;
        let mut errors = FieldErrors::default();
        let rate = config.get("samplingRatePerMillion").and_then(Value::as_i64).unwrap_or_default();
        let rate_field = path("samplingRatePerMillion");
        if rate < 0 {
            errors.invalid(&rate_field, rate, "sampling rate must be positive");
        }
        if rate > MILLION {
            let why = "sampling rate per million must be less than or equal to one million";
            errors.invalid(&rate_field, rate, why);
        }
        let given = config.get("endpoint").and_then(Value::as_str).unwrap_or(DEFAULT_ENDPOINT);
        let endpoint = match (unsupported_scheme(given), Endpoint::parse(given)) {
            (Some(scheme), _) => Err(format!(
                "unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  See \
                 https://github.com/grpc/grpc/blob/master/doc/naming.md"
            )),
            (None, parsed) => parsed,
        };
        let endpoint = endpoint.map_err(|why| errors.invalid(path("endpoint"), given, &why));
        match endpoint {
            Ok(endpoint) if errors.is_empty() => {
                let sampling_rate_per_million = u32::try_from(rate).unwrap_or_default();
                Ok(Self { endpoint, sampling_rate_per_million })
            }
            _ => Err(format!("failed to validate tracing configuration: {errors}")),
        }
    }
}

/// OTLP's own.
const DEFAULT_ENDPOINT: &str = "localhost:4317";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TracingConfig, String> {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
        TracingConfig::parse(format!("{head}{text}").as_bytes())
    }

    #[test]
    fn a_file_says_where_spans_go_and_how_many() {
        let cases = [
            ("", "http://localhost:4317", 0),
            ("endpoint: 127.0.0.1:4000\nsamplingRatePerMillion: 100", "http://127.0.0.1:4000", 100),
            ("endpoint: dns:///collector:4000", "http://collector:4000", 0),
            ("samplingRatePerMillion: 1000000", "http://localhost:4317", 1_000_000),
        ];
        for (text, endpoint, rate) in cases {
            let config = parse(text).expect(text);
            let expected = Endpoint::Tcp(endpoint.to_owned());
            assert_eq!(
                (config.endpoint, config.sampling_rate_per_million),
                (expected, rate),
                "{text}"
            );
        }
        for version in ["v1alpha1", "v1beta1", "v1"] {
            let text = format!(
                "apiVersion: apiserver.config.k8s.io/{version}\nkind: TracingConfiguration"
            );
            assert!(TracingConfig::parse(text.as_bytes()).is_ok(), "{version}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let decode = "failed to read tracing config: unable to decode tracing configuration data: ";
        let validate = "failed to validate tracing configuration: ";
        let cases = [
            ("endpoints: x", decode, "strict decoding error: line 3: unknown field \"endpoints\""),
            (
                "endpoint: 1",
                decode,
                "line 3: json: cannot unmarshal number into field endpoint of type string",
            ),
            (
                "samplingRatePerMillion: -1",
                validate,
                "samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
            ),
            (
                "samplingRatePerMillion: 1000001",
                validate,
                "samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one million",
            ),
            (
                "endpoint: https://collector:4317",
                validate,
                "endpoint: Invalid value: \"https://collector:4317\": unsupported scheme: https.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md",
            ),
            (
                "endpoint: 'a b:1'",
                validate,
                "endpoint: Invalid value: \"a b:1\": not an address of a collector",
            ),
        ];
        for (text, what, why) in cases {
            assert_eq!(parse(text), Err(format!("{what}{why}")), "{text}");
        }
    }
}
