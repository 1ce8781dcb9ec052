//! `/debug/pprof/profile`: where the CPU time goes, in the format that `go tool pprof` reads.

use std::{io::Write as _, time::Duration};

use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, Response, header::CONTENT_TYPE};
use meta::ApiError;
use pprof::{ProfilerGuardBuilder, protos::Message as _};

use crate::Body;

/// Samples the whole process for some seconds.
pub(crate) async fn cpu(seconds: i64) -> Result<Response<Body>, ApiError> {
    let seconds = seconds.clamp(1, SECONDS_MAX);
    let guard = ProfilerGuardBuilder::default()
        .frequency(SAMPLES_PER_SECOND)
        .build()
        .map_err(|error| ApiError::Internal(format!("Could not enable CPU profiling: {error}")))?;
    tokio::time::sleep(Duration::from_secs(seconds as u64)).await;
    // Symbols take a while to resolve, and nobody else should wait for it.
    let encoded = tokio::task::spawn_blocking(move || {
        let report = guard.report().build().map_err(ApiError::internal)?;
        let profile = report.pprof().map_err(ApiError::internal)?;
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&profile.encode_to_vec()).map_err(ApiError::internal)?;
        gzip.finish().map_err(ApiError::internal)
    });
    let encoded = encoded.await.map_err(ApiError::internal)??;
    let mut response = Response::new(Body::full(encoded));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(
        "content-disposition",
        HeaderValue::from_static("attachment; filename=\"profile\""),
    );
    Ok(response)
}

const SAMPLES_PER_SECOND: i32 = 100;
/// Longer profiles are cut: a forgotten one should not sample for ever.
const SECONDS_MAX: i64 = 600;
