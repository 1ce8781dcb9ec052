//! `--disabled-metrics`, `--allow-metric-labels` and its manifest, `--show-hidden-metrics-for-version`.

use serve::metrics::MetricsConfig;

use super::path;
use crate::{flags::Parsed, version::MINOR_NUMBER};

pub(super) fn from_flags(parsed: &Parsed, errors: &mut Vec<String>) -> MetricsConfig {
    let disabled = parsed.texts("disabled-metrics").into_iter().filter(|name| !name.is_empty());
    let mut config = MetricsConfig { disabled: disabled.collect(), ..MetricsConfig::default() };
    let pairs = parsed.map("allow-metric-labels");
    let pairs = pairs.iter().map(|(key, values)| (key.as_str(), values.as_str()));
    if let Err(error) = config.allow(pairs) {
        errors.push(format!("--allow-metric-labels: {error}"));
    }
    // Compat: the manifest counts only without the flag.
    if let (true, Some(file)) =
        (config.allowed.is_empty(), path(parsed, "allow-metric-labels-manifest"))
    {
        let read = std::fs::read(&file).map_err(|error| error.to_string());
        if let Err(error) = read.and_then(|bytes| read_manifest(&bytes, &mut config)) {
            let file = file.display();
            errors.push(format!("--allow-metric-labels-manifest {file}: {error}"));
        }
    }
    // No metric of Pintle is hidden, so there is none to show.
    let shown = parsed.text("show-hidden-metrics-for-version");
    let previous = format!("1.{}", MINOR_NUMBER - 1);
    if !shown.is_empty() && shown != previous {
        errors.push(format!(
            "--show-hidden-metrics-for-version must be omitted or have the value '{previous}'. Only \
             the previous minor version is allowed"
        ));
    }
    config
}

/// A YAML map of `metric,label` to `value,value`.
fn read_manifest(bytes: &[u8], config: &mut MetricsConfig) -> Result<(), String> {
    let options = codec::json::DecodeOptions { strict: false };
    let decoded = codec::yaml::decode_any(bytes, options).map_err(|error| error.to_string())?;
    let meta::Value::Object(map) = &decoded.value else { return Err("not a map".to_owned()) };
    let pairs = map.iter().map(|(key, values)| (key.as_str(), values.as_str().unwrap_or_default()));
    config.allow(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_a_map_of_texts() {
        let mut config = MetricsConfig::default();
        read_manifest(b"requests,verb: GET,LIST\n", &mut config).unwrap();
        let values = &config.allowed[&("requests".to_owned(), "verb".to_owned())];
        assert!(values.contains("LIST") && values.len() == 2);
        assert!(read_manifest(b"[1]", &mut config).is_err());
        assert!(read_manifest(b"requests: GET", &mut config).is_err());
    }
}
