//! `/debug/pprof/profile`: where the CPU time goes, in the format that `go tool pprof` reads.
//!
//! Only in builds with the feature `cpu-profiler`. The crate behind it unwinds stacks in a signal
//! handler, which may deadlock in the dynamic linker's lock, and needs older versions of four crates. A
//! sampler without signals would need `perf_event_open`, which the default seccomp profile of containers
//! denies. `perf record -p` from the host needs no feature, only the symbols of `--profile profiling`.

use http::{Response, StatusCode};

#[cfg(feature = "cpu-profiler")]
pub(crate) use self::sampled::{INDEX, cpu};
#[cfg(not(feature = "cpu-profiler"))]
pub(crate) use self::unsupported::{INDEX, cpu};
use crate::{Body, health::text};

/// The page of `/debug/pprof/`.
pub(crate) fn index() -> String {
    let mut page = String::from(INDEX);
    for (name, why) in OF_GO {
        page.push_str(&format!("/debug/pprof/{name}: not available: {why}\n"));
    }
    page
}

/// The profiles that only Go's runtime can make: refused with the reason, so that no user takes an empty
/// one for an answer.
pub(crate) fn of_go(name: &str) -> Response<Body> {
    match OF_GO.iter().find(|(known, _)| *known == name) {
        Some((_, why)) => {
            text(StatusCode::NOT_IMPLEMENTED, format!("{name} is not available: {why}\n"))
        }
        None => text(StatusCode::NOT_FOUND, "Unknown profile\n"),
    }
}

const OF_GO: [(&str, &str); 8] = [
    ("allocs", "Rust's allocator keeps no samples; process_resident_memory_bytes is in /metrics"),
    ("block", "there is no scheduler that records what blocks; use perf or eBPF's offcputime"),
    ("goroutine", "there are no goroutines; pintle_background_task_up is in /metrics"),
    ("heap", "Rust's allocator keeps no samples; process_resident_memory_bytes is in /metrics"),
    ("mutex", "locks are not instrumented; use perf lock"),
    ("symbol", "profiles carry their symbols"),
    ("threadcreate", "threads are started once; /proc/PID/task has them"),
    ("trace", "there is no execution tracer; --tracing-config-file traces requests"),
];

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
        assert_eq!(of_go("heap").status(), http::StatusCode::NOT_IMPLEMENTED);
        assert_eq!(of_go("nonsense").status(), http::StatusCode::NOT_FOUND);
        assert!(index().contains("/debug/pprof/goroutine: not available: "), "{}", index());
        assert_eq!(response.status(), http::StatusCode::NOT_IMPLEMENTED);
        assert!(INDEX.contains("--features cpu-profiler"), "{INDEX}");
    }
}
