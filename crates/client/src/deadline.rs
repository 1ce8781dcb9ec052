//! One deadline for a whole call: dialing, TLS, sending and receiving share it, so that a server
//! cannot stretch a call by being slow in each step.

use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Phase};

/// None: the caller ends the call by dropping it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(pub(crate) Option<Instant>);

impl Deadline {
    /// Runs one step of a call; the error says which step was cut off.
    pub(crate) async fn bound<T>(
        self,
        phase: Phase,
        step: impl Future<Output = T>,
    ) -> Result<T, Error> {
        match self.0 {
            None => Ok(step.await),
            Some(at) => timeout_at(at, step).await.map_err(|_| Error::DeadlineExceeded(phase)),
        }
    }
}
