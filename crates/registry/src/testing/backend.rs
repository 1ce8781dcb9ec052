//! A memory backend whose writes can fail as those of a real one do.

use std::sync::Arc;

use parking_lot::Mutex;
use store::{
    Backend, KeyValue, MemoryBackend, Range, RangeResult, StoreError, Write,
    backend::{BoxFuture, WatchStream},
};
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct FaultyBackend {
    memory: Arc<MemoryBackend>,
    fault: Mutex<Option<WriteFault>>,
}

/// What happens to the next write.
#[derive(Clone)]
pub(crate) enum WriteFault {
    /// Nothing is written, and the store says so.
    Full,
    /// It is written, but the answer is lost.
    AnswerLost,
    /// Notifies `begun` when the store is asked for it; it is written once `go_on` is notified, whether the
    /// caller still waits or not.
    Delayed { begun: Arc<Notify>, go_on: Arc<Notify> },
}

impl FaultyBackend {
    pub(crate) fn fail_next_write(&self, fault: WriteFault) {
        *self.fault.lock() = Some(fault);
    }
}

impl Backend for FaultyBackend {
    fn oldest_revision(&self) -> u64 {
        self.memory.oldest_revision()
    }

    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<KeyValue>, StoreError>> {
        self.memory.get(key)
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, StoreError>> {
        self.memory.range(range)
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>> {
        let fault = self.fault.lock().take();
        let memory = self.memory.clone();
        Box::pin(async move {
            match fault {
                None => memory.write(write).await,
                Some(WriteFault::Full) => Err(StoreError::Full("no space left".to_owned())),
                Some(WriteFault::AnswerLost) => {
                    memory.write(write).await?;
                    Err(StoreError::Unavailable("request timed out".to_owned()))
                }
                Some(WriteFault::Delayed { begun, go_on }) => {
                    begun.notify_one();
                    let writing = tokio::spawn(async move {
                        go_on.notified().await;
                        memory.write(write).await
                    });
                    writing.await.expect("the memory backend does not panic")
                }
            }
        })
    }

    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.memory.revision()
    }

    fn compact(&self, revision: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        self.memory.compact(revision)
    }

    fn watch(&self, prefix: &str, after: u64) -> BoxFuture<'_, Result<WatchStream, StoreError>> {
        self.memory.watch(prefix, after)
    }
}
