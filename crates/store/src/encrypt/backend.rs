//! A backend that encrypts values on the way to another backend.

use std::sync::Arc;

use meta::Str;

use super::Encryption;
use crate::{
    Backend, Batch, BoxFuture, KeyValue, Range, RangeResult, StoreError, Watch, WatchStream, Write,
};

/// Any backend, with encrypted values.
pub struct Encrypted {
    inner: Arc<dyn Backend>,
    encryption: Arc<Encryption>,
}

impl Encrypted {
    pub fn new(inner: Arc<dyn Backend>, encryption: Arc<Encryption>) -> Self {
        Self { inner, encryption }
    }
}

impl Encryption {
    /// An unreadable value is reported with the value, so that it does not hide the others.
    async fn open_in_place(&self, found: &mut KeyValue) -> Result<(), StoreError> {
        match self.open(&found.key, &found.value).await {
            Ok(opened) => found.value = opened.value,
            Err(StoreError::Unreadable { why, .. }) => found.problem = Some(why.into()),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Backend for Encrypted {
    fn oldest_revision(&self) -> u64 {
        self.inner.oldest_revision()
    }

    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<KeyValue>, StoreError>> {
        let found = self.inner.get(key);
        Box::pin(async move {
            let mut found = found.await?;
            if let Some(found) = &mut found {
                self.encryption.open_in_place(found).await?;
            }
            Ok(found)
        })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, StoreError>> {
        Box::pin(async move {
            let mut found = self.inner.range(range).await?;
            for item in &mut found.items {
                self.encryption.open_in_place(item).await?;
            }
            Ok(found)
        })
    }

    fn write(&self, mut write: Write) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            if let Some(value) = &mut write.value {
                *value = self.encryption.seal(&write.key, value)?;
            }
            let mut done = self.inner.write(write).await;
            if let Err(StoreError::Conflict { current: Some(current) }) = &mut done {
                self.encryption.open_in_place(current).await?;
            }
            done
        })
    }

    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.inner.revision()
    }

    fn compact(&self, revision: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.compact(revision)
    }

    fn watch(&self, prefix: &str, after: u64) -> BoxFuture<'_, Result<WatchStream, StoreError>> {
        let inner = self.inner.watch(prefix, after);
        Box::pin(async move {
            let (inner, encryption) = (inner.await?, Arc::clone(&self.encryption));
            Ok(Box::new(DecryptingWatch { inner, encryption, taken: None }) as WatchStream)
        })
    }

    fn is_stale(&self, key: &str) -> BoxFuture<'_, Result<bool, StoreError>> {
        let (key, found) = (Str::new(key), self.inner.get(key));
        Box::pin(async move {
            let Some(found) = found.await? else { return Ok(false) };
            Ok(self.encryption.open(&key, &found.value).await?.stale)
        })
    }
}

/// A watch that decrypts its values.
struct DecryptingWatch {
    inner: WatchStream,
    encryption: Arc<Encryption>,
    /// A batch that was received, and how many of its changes are decrypted: kept here because the
    /// caller may cancel `next` while a KMS plugin is being called.
    taken: Option<(Batch, usize)>,
}

impl Watch for DecryptingWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        Box::pin(async move {
            if self.taken.is_none() {
                self.taken = Some((self.inner.next().await?, 0));
            }
            while let Some((batch, opened)) = &mut self.taken
                && let Some(change) = batch.changes.get_mut(*opened)
            {
                if let Some(value) = &mut change.value {
                    match self.encryption.open(&change.key, value).await {
                        Ok(opened) => *value = opened.value,
                        Err(StoreError::Unreadable { why, .. }) => {
                            change.problem = Some(why.into());
                        }
                        Err(error) => return Err(error),
                    }
                }
                *opened += 1;
            }
            Ok(self.taken.take().map(|(batch, _)| batch).unwrap_or_default())
        })
    }

    fn request_progress(&mut self) {
        self.inner.request_progress();
    }
}
