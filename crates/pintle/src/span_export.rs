//! Sends the spans of requests to the collector of `--tracing-config-file`.

use std::{sync::Arc, time::Duration};

use background::Tasks;
use otlp::{Exporter, TracingConfig};
use prometheus::Registry;

use crate::servers::server_identity;

/// None: no collector is configured.
pub(crate) fn start(
    config: Option<&TracingConfig>,
    registry: &Registry,
    tasks: &Tasks,
    dialer: Option<grpc::Dialer>,
) -> Result<Option<Arc<Exporter>>, String> {
    let Some(config) = config else { return Ok(None) };
    let exporter = Arc::new(Exporter::new(config, &server_identity(), registry, dialer)?);
    let sending = exporter.clone();
    tasks.restarting("span-exporter", move || sending.clone().run());
    Ok(Some(exporter))
}

/// What the collector gets to take the last spans.
pub(crate) const FLUSH_MAX: Duration = Duration::from_secs(5);
