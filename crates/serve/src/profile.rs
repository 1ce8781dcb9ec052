//! `/debug/pprof/profile`: where the CPU time goes, in the format that `go tool pprof` reads.
//!
//! Only in builds with the feature `cpu-profiler`. The crate behind it unwinds stacks in a signal
//! handler, which may deadlock in the dynamic linker's lock, and needs older versions of four crates. A
//! sampler without signals would need `perf_event_open`, which the default seccomp profile of containers
//! denies. `perf record -p` from the host needs no feature, only the symbols of `--profile profiling`.

#[cfg(feature = "cpu-profiler")]
pub(crate) use self::sampled::{INDEX, cpu};
#[cfg(not(feature = "cpu-profiler"))]
pub(crate) use self::unsupported::{INDEX, cpu};

#[cfg(feature = "cpu-profiler")]
mod sampled {
    use std::{io::Write as _, time::Duration};

    use flate2::{Compression, write::GzEncoder};
    use http::{HeaderValue, Response, header::CONTENT_TYPE};
    use meta::ApiError;
    use pprof::{ProfilerGuardBuilder, protos::Message as _};

    use crate::Body;

    /// What `/debug/pprof/` says.
    pub(crate) const INDEX: &str =
        "/debug/pprof/profile?seconds=30: CPU profile in pprof's format\n";

    /// Samples the whole process for some seconds.
    pub(crate) async fn cpu(seconds: i64) -> Result<Response<Body>, ApiError> {
        let seconds = seconds.clamp(1, SECONDS_MAX);
        let guard = ProfilerGuardBuilder::default().frequency(SAMPLES_PER_SECOND).build().map_err(
            |error| ApiError::Internal(format!("Could not enable CPU profiling: {error}")),
        )?;
        tokio::time::sleep(Duration::from_secs(seconds as u64)).await;
        // Resolving symbols takes a while and would block the other requests of this thread.
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
}

#[cfg(not(feature = "cpu-profiler"))]
mod unsupported {
    use std::future::{Ready, ready};

    use http::{Response, StatusCode};
    use meta::ApiError;

    use crate::{Body, health};

    /// What `/debug/pprof/` says, and with the code 501 each profile.
    pub(crate) const INDEX: &str = "CPU profiles are not part of this build: build with \
        `--features cpu-profiler`, or build with `--profile profiling` and use `perf record`.\n";

    pub(crate) fn cpu(_seconds: i64) -> Ready<Result<Response<Body>, ApiError>> {
        ready(Ok(health::text(StatusCode::NOT_IMPLEMENTED, INDEX)))
    }
}

#[cfg(all(test, not(feature = "cpu-profiler")))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_build_without_the_profiler_answers_501() {
        let response = cpu(30).await.expect("an answer");
        assert_eq!(response.status(), http::StatusCode::NOT_IMPLEMENTED);
        assert!(INDEX.contains("--features cpu-profiler"), "{INDEX}");
    }
}
