//! The setting of `--tracing-config-file`.

use otlp::TracingConfig;

use super::path;
use crate::flags::Parsed;

/// A larger file is refused: it has two fields.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// None: no spans are recorded.
pub(super) fn from_flags(parsed: &Parsed, errors: &mut Vec<String>) -> Option<TracingConfig> {
    let file = path(parsed, "tracing-config-file")?;
    let show = file.display();
    let config = match std::fs::metadata(&file) {
        Err(_) => Err(format!("tracing-config-file {show} does not exist")),
        Ok(found) if found.len() > FILE_BYTES_MAX => {
            Err(format!("tracing-config-file {show} is larger than {FILE_BYTES_MAX} bytes"))
        }
        Ok(_) => std::fs::read(&file)
            .map_err(|error| {
                format!("failed to read tracing config: unable to read tracing configuration from {show:?}: {error}")
            })
            .and_then(|bytes| TracingConfig::parse(&bytes))
            .map_err(|why| format!("--tracing-config-file {show}: {why}")),
    };
    config.map_err(|why| errors.push(why)).ok()
}
