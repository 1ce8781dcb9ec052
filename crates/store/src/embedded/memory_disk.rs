//! A disk in memory, for a store that ends with its process. A segment owns its file, so the names
//! need not be kept: memory is freed when the last reader of a reclaimed segment is done.

use std::io;

use parking_lot::RwLock;

use super::disk::{Disk, DiskFile};

/// An empty directory that nothing is found in again.
pub(crate) struct MemoryDisk;

#[derive(Default)]
struct MemoryFile(RwLock<Vec<u8>>);

impl Disk for MemoryDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn create(&self, _name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(MemoryFile::default()))
    }

    fn open(&self, _name: &str) -> io::Result<Box<dyn DiskFile>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.read().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.0.read();
        let found = content.get(offset as usize..).unwrap_or_default();
        let len = found.len().min(buffer.len());
        buffer[..len].copy_from_slice(&found[..len]);
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        let mut content = self.0.write();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.write().resize(len as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::embedded::Embedded;
    use crate::{Backend, Expect, StoreError, Write, contract};

    fn store() -> Arc<Embedded> {
        Arc::new(Embedded::in_memory(None).expect("needs no disk"))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_store_in_memory_fulfils_the_contract() {
        contract::check_all(async || store() as Arc<dyn Backend>).await;
    }

    #[tokio::test]
    async fn stores_in_memory_are_empty_and_apart() {
        let (one, other) = (store(), store());
        one.write(Write::create("/k", "v")).await.expect("writes");
        assert_eq!(other.get("/k").await.expect("reads"), None);
        one.close();
        let refused = one.write(Write::create("/l", "v")).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }

    #[tokio::test]
    async fn a_key_in_memory_expires_and_watches_see_it() {
        let store = store();
        let ttl = std::time::Duration::from_millis(20);
        let created = Write::create("/k", "v").with_ttl(Some(ttl));
        let created = store.write(created).await.expect("writes");
        let mut watch = store.watch("/", created).await.expect("starts");
        let change = loop {
            if let Some(change) = watch.next().await.expect("goes on").changes.pop() {
                break change;
            }
        };
        assert_eq!((change.key.as_str(), change.value), ("/k", None));
        assert_eq!(store.get("/k").await.expect("reads"), None);
    }

    /// Memory is the only place there is: what compaction drops has to be given back.
    #[tokio::test]
    async fn memory_of_overwritten_values_is_reclaimed() {
        let store = store();
        let value = vec![b'x'; 64 << 10];
        for _ in 0..256 {
            let written = store.write(Write::put("/k", Expect::Any, value.clone())).await;
            written.expect("writes");
        }
        let (before, _) = store.usage();
        assert!(before >= 16 << 20, "{before}");
        let revision = store.revision().await.expect("has a revision");
        store.compact(revision).await.expect("compacts");
        // Segments are reclaimed between writes, one after the other.
        let mut after = before;
        for _ in 0..100 {
            store.write(Write::put("/l", Expect::Any, "v")).await.expect("writes");
            (after, _) = store.usage();
            if after < 4 << 20 {
                break;
            }
        }
        assert!(after < 4 << 20, "{after} of {before} bytes are left");
        assert_eq!(store.get("/k").await.expect("reads").expect("is there").value, value);
    }
}
