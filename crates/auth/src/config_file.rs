//! Configuration files: YAML or JSON of a kind of `apiserver.config.k8s.io`, decoded strictly, and
//! followed while the server runs.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use codec::config_file::{self, FieldType};
use meta::Value;

use crate::metrics::ReloadMetrics;

const GROUP: &str = "apiserver.config.k8s.io";
/// A file of this size is certainly wrong.
const FILE_BYTES_MAX: u64 = 3 * 1024 * 1024;

pub(crate) fn read(file: &Path) -> Result<Vec<u8>, String> {
    let length = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!("the file is larger than {FILE_BYTES_MAX} bytes"));
    }
    std::fs::read(file).map_err(|error| error.to_string())
}

/// Decodes a file of a kind in one of these versions of the group.
pub(crate) fn decode(
    bytes: &[u8],
    kind: &str,
    versions: &[&str],
    ty: &FieldType,
) -> Result<Value, String> {
    if bytes.is_empty() {
        return Err("empty config data".to_owned());
    }
    let versions: Vec<String> =
        versions.iter().map(|version| format!("{GROUP}/{version}")).collect();
    let kinds: Vec<(&str, &str)> =
        versions.iter().map(|version| (version.as_str(), kind)).collect();
    config_file::decode(bytes, &kinds, ty)
}

/// Go's `time.ParseDuration`, in nanoseconds; None: it is none.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let unit = &rest[number..];
        let unit_end = unit.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(unit.len());
        let nanos = match &unit[..unit_end] {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 6e10,
            "h" => 3.6e12,
            _ => return None,
        };
        total += rest[..number].parse::<f64>().ok()? * nanos;
        rest = &unit[unit_end..];
    }
    (!text.trim_start_matches(['+', '-']).is_empty() && total < 9.2e18)
        .then_some((sign * total) as i64)
}

/// Why a new version of a file was not taken over.
pub(crate) enum ReloadError {
    /// The content is wrong, and stays wrong.
    Content(String),
    /// It may work the next time.
    Retry(String),
}

/// Follows a file: `apply` gets every new content. What cannot be applied is logged and counted, and
/// what was applied before stays in use.
pub(crate) async fn follow<Apply, Applying>(
    file: PathBuf,
    mut applied: Vec<u8>,
    every: Duration,
    what: &'static str,
    metrics: ReloadMetrics,
    mut apply: Apply,
) where
    Apply: FnMut(Vec<u8>) -> Applying,
    Applying: Future<Output = Result<(), ReloadError>>,
{
    metrics.applied(&applied);
    loop {
        tokio::time::sleep(every).await;
        let content = match read(&file) {
            Ok(content) if content == applied => continue,
            Ok(content) => content,
            Err(error) => {
                tracing::error!(%error, "failed to read {what} config file");
                metrics.failed();
                continue;
            }
        };
        match apply(content.clone()).await {
            Ok(()) => {
                tracing::info!("reloaded {what} config");
                metrics.reloaded(&content);
                applied = content;
            }
            Err(ReloadError::Content(error)) => {
                tracing::error!(%error, "failed to load {what} config; the previous one stays");
                metrics.failed();
                applied = content;
            }
            Err(ReloadError::Retry(error)) => {
                tracing::error!(%error, "failed to update {what} config; the previous one stays");
                metrics.failed();
            }
        }
    }
}
