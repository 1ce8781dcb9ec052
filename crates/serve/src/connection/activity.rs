//! What a connection is doing, so that the clock knows which time limit applies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Limits;
use super::turns::Turn;

/// Written by the wire and by requests, read when a timer fires. Times are milliseconds since `start`, plus one: zero is
/// "not".
pub(super) struct Activity {
    http2: bool,
    start: Instant,
    /// Requests being answered, until their last byte is handed over.
    active: AtomicU32,
    /// Requests that began, ever.
    requests: AtomicU64,
    idle_since: AtomicU64,
    /// When the first byte since the last request arrived.
    header_since: AtomicU64,
    /// Since when the client does not take what is written.
    stalled_since: AtomicU64,
    /// HTTP/1.1: when the response has to be sent at last.
    send_by: AtomicU64,
    /// The client may be sending a request that has its answer: of HTTP/1.1 the last one, of HTTP/2 any.
    may_be_sending: AtomicBool,
    turn: Arc<Turn>,
}

/// What to do, and when.
pub(super) enum Deadline {
    None,
    /// Send GOAWAY, or `Connection: close`.
    Close(Instant),
    /// Hang up.
    Drop(Instant),
}

impl Activity {
    pub(super) fn new(http2: bool, turn: Arc<Turn>) -> Self {
        Self {
            http2,
            start: Instant::now(),
            active: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            idle_since: AtomicU64::new(0),
            header_since: AtomicU64::new(0),
            stalled_since: AtomicU64::new(0),
            send_by: AtomicU64::new(0),
            may_be_sending: AtomicBool::new(false),
            turn,
        }
    }

    pub(super) fn http2(&self) -> bool {
        self.http2
    }

    pub(super) fn turn(&self) -> &Arc<Turn> {
        &self.turn
    }

    /// A request arrived; it is over when the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.header_since.store(0, Ordering::Relaxed);
        ActiveRequest(self.clone())
    }

    /// A request has a body, or not; whether it is read to its end is up to the handler.
    pub(super) fn begin_body(&self, present: bool) {
        if present || !self.http2 {
            self.may_be_sending.store(present, Ordering::Relaxed);
        }
    }

    /// A request is refused that was not read to its end.
    pub(super) fn refuse(&self) {
        self.may_be_sending.store(true, Ordering::Relaxed);
    }

    pub(super) fn may_be_sending(&self) -> bool {
        self.may_be_sending.load(Ordering::Relaxed)
    }

    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Bytes came in.
    pub(super) fn read(&self) {
        if !self.is_active() && self.header_since.load(Ordering::Relaxed) == 0 {
            self.header_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Bytes went out, or would not.
    pub(super) fn wrote(&self, stalled: bool) {
        let before = self.stalled_since.load(Ordering::Relaxed);
        if stalled && before == 0 {
            self.stalled_since.store(self.now(), Ordering::Relaxed);
            self.turn.set_stalled(true);
        } else if !stalled && before != 0 {
            self.stalled_since.store(0, Ordering::Relaxed);
            self.turn.set_stalled(false);
        }
    }

    pub(super) fn deadline(&self, closing: Option<Instant>, limits: &Limits) -> Deadline {
        let stalled = self.since(&self.stalled_since).map(|since| since + limits.stall_timeout);
        let idle = !self.is_active();
        if self.http2 {
            let preface = self.since(&self.header_since).is_none() && self.requests() == 0;
            match (stalled, closing) {
                (Some(at), _) => Deadline::Drop(at),
                (None, _) if preface => Deadline::Drop(self.start + limits.preface_timeout),
                (None, Some(since)) if idle => {
                    let since = self.since(&self.idle_since).map_or(since, |idle| idle.max(since));
                    Deadline::Drop(since + limits.linger_timeout)
                }
                (None, None) if idle => {
                    let since = self.since(&self.idle_since).unwrap_or(self.start);
                    Deadline::Close(since + limits.idle_timeout)
                }
                _ => Deadline::None,
            }
        } else if let Some(at) = self.since(&self.send_by).into_iter().chain(stalled).min() {
            Deadline::Drop(at)
        } else if !idle {
            Deadline::None
        } else if let Some(since) = self.since(&self.header_since) {
            Deadline::Drop(since + limits.header_timeout)
        } else if let Some(since) = self.since(&self.idle_since) {
            Deadline::Drop(since + limits.idle_timeout)
        } else {
            Deadline::Drop(self.start + limits.header_timeout)
        }
    }

    fn since(&self, time: &AtomicU64) -> Option<Instant> {
        let milliseconds = time.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.start + Duration::from_millis(milliseconds))
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64 + 1
    }
}

/// Held while a request is answered.
pub(super) struct ActiveRequest(Arc<Activity>);

impl ActiveRequest {
    /// The response is ready and has to be sent by then. Only for HTTP/1.1, where there is one
    /// request at a time.
    pub(super) fn send_by(&self, at: Option<Instant>) {
        let Some(at) = at else { return };
        let milliseconds = at.saturating_duration_since(self.0.start).as_millis() as u64 + 1;
        self.0.send_by.store(milliseconds, Ordering::Relaxed);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.send_by.store(0, Ordering::Relaxed);
        if self.0.active.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.idle_since.store(self.0.now(), Ordering::Relaxed);
        }
    }
}
