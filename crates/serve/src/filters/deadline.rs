//! How long a request may take: `--request-timeout`, or less if the client says so.

use std::time::Duration;

use meta::{ApiError, Query};
use tokio::time::Instant;

use crate::context::Context;

/// Long-running requests have no deadline.
pub(crate) fn set_deadline(cx: &mut Context, query: &str, limit: Duration) -> Result<(), ApiError> {
    if cx.info.is_long_running() {
        return Ok(());
    }
    let query = Query::parse(query)?;
    let asked = match query.text("timeout") {
        "" => limit,
        text => parse(text)?.min(limit),
    };
    cx.deadline = Some(Instant::now() + asked);
    Ok(())
}

fn parse(text: &str) -> Result<Duration, ApiError> {
    let duration = meta::time::Duration::parse(text).map_err(|error| {
        ApiError::BadRequest(format!("invalid timeout specified in the request URL - {error}"))
    })?;
    // Zero means as long as allowed, as upstream.
    match u64::try_from(duration.nanos) {
        Ok(nanos @ 1..) => Ok(Duration::from_nanos(nanos)),
        _ => Ok(Duration::MAX),
    }
}

/// What a client hears when its time is up.
pub(crate) fn timed_out() -> ApiError {
    ApiError::Timeout("Timeout: request did not complete within the allotted timeout".to_owned())
}
