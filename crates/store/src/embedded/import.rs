//! Creates an embedded store from the state of another store at one revision. Keys keep their
//! revisions, and the counter continues after that revision: clients that know objects of the old
//! store find them at the same resourceVersion.
//!
//! The log consists of *moved* records, as if all history had been compacted and reclaimed. It is
//! written to a partial directory and renamed when it is complete, so that an interrupted import
//! leaves no store.

use std::io;
use std::path::{Path, PathBuf};

use super::backup::{self, Summary};
use super::disk::{Disk, RealDisk};
use super::record::{FIXED_BYTES, RecordHeader, RecordKind};
use super::segment::{HEADER_BYTES, Segment, SegmentHeader};
use crate::{KeyValue, StoreError};

/// An import in progress.
pub struct Import {
    dir: PathBuf,
    disk: RealDisk,
    revision: u64,
    segment: Segment,
    /// Where the next batch goes.
    end: u64,
    batch: Vec<u8>,
}

impl Import {
    /// Starts a store in a directory without one. What an interrupted import left behind is
    /// removed.
    pub fn begin(dir: &Path, revision: u64) -> Result<Self, StoreError> {
        if dir.exists() {
            let there = format!("there is a store in {} already", dir.display());
            return Err(StoreError::Unavailable(there));
        }
        let disk = RealDisk { dir: partial_path(dir) };
        if disk.dir.exists() {
            std::fs::remove_dir_all(&disk.dir).map_err(|error| failed(&disk.dir, &error))?;
        }
        super::make_private(&disk.dir).map_err(|error| failed(&disk.dir, &error))?;
        let segment = begin_segment(&disk, 1, revision)?;
        let (dir, end, batch) = (dir.to_owned(), HEADER_BYTES as u64, Vec::new());
        Ok(Self { dir, disk, revision, segment, end, batch })
    }

    /// Adds one key. Each key may be added once, in any order.
    pub fn add(&mut self, item: &KeyValue) -> Result<(), StoreError> {
        let header = RecordHeader {
            kind: RecordKind::Moved,
            revision: item.mod_revision,
            create_revision: item.create_revision,
            expires_ms: item.expires_ms.unwrap_or(0),
            superseded: 0,
            key: item.key.clone(),
        };
        let room = (FIXED_BYTES + item.key.len() + item.value.len()) as u64;
        if self.end + self.batch.len() as u64 + room > SEGMENT_BYTES {
            self.flush()?;
            self.sync()?;
            self.segment = begin_segment(&self.disk, self.segment.number + 1, self.revision)?;
            self.end = HEADER_BYTES as u64;
        }
        header.encode(&item.value, &mut self.batch);
        if self.batch.len() > BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Makes everything durable and verifies it. The store is in its partial directory until
    /// [`Import::commit`].
    pub fn finish(&mut self) -> Result<Summary, StoreError> {
        self.flush()?;
        self.sync()?;
        backup::check(&self.disk.dir)
    }

    /// Where the store is until it is committed.
    pub fn partial_dir(&self) -> &Path {
        &self.disk.dir
    }

    /// Renames the partial directory to its final name.
    pub fn commit(self) -> Result<(), StoreError> {
        let Self { dir, disk, .. } = self;
        std::fs::rename(&disk.dir, &dir).map_err(|error| failed(&dir, &error))?;
        backup::sync_parent(&dir)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let written = self.segment.file().write_at(&self.batch, self.end);
        written.map_err(|error| failed(&self.disk.dir, &error))?;
        self.end += self.batch.len() as u64;
        self.batch.clear();
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        let synced = self.segment.file().sync().and_then(|()| self.disk.sync());
        synced.map_err(|error| failed(&self.disk.dir, &error))
    }
}

/// The same size as the writer's.
const SEGMENT_BYTES: u64 = 16 << 20;
const BATCH_BYTES: usize = 1 << 20;

/// History begins at the revision of the import.
fn begin_segment(disk: &RealDisk, number: u64, revision: u64) -> Result<Segment, StoreError> {
    let header = SegmentHeader { number, revision, compacted: revision };
    Segment::create(disk, header).map_err(|error| failed(&disk.dir, &error))
}

fn partial_path(dir: &Path) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn failed(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend as _, Embedded, EmbeddedOptions, Expect, Range, Write};

    #[tokio::test]
    async fn imported_keys_keep_their_revisions_and_the_counter_continues() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("data/store");
        let item = |n: u64| KeyValue {
            key: format!("/registry/pods/{n:04}").into(),
            // Together more than one segment.
            value: vec![n as u8; 100_000].into(),
            create_revision: n + 2,
            mod_revision: 3 * n + 2,
            expires_ms: (n == 7).then_some(u64::MAX),
            problem: None,
        };
        let abandoned = Import::begin(&dir, 9000).expect("begins");
        drop(abandoned);
        let mut import = Import::begin(&dir, 9000).expect("begins again");
        for n in 0..400 {
            import.add(&item(n)).expect("is taken");
        }
        let summary = import.finish().expect("is whole");
        assert_eq!((summary.revision, summary.compacted, summary.keys), (9000, 9000, 400));
        assert!(!dir.exists(), "nothing is in its place before it is kept");
        import.commit().expect("is kept");
        let again = Import::begin(&dir, 1).err().expect("there is a store").to_string();
        assert!(again.contains("already"), "{again}");

        let store = Embedded::open(&EmbeddedOptions::new(&dir)).expect("opens");
        let all = store.range(Range::of("/registry/")).await.expect("reads");
        assert_eq!(all.items, (0..400).map(item).collect::<Vec<_>>());
        let next = store.write(Write::update("/registry/pods/0001", 5, "new")).await;
        assert_eq!(next.expect("is at its old revision"), 9001);
        store.write(Write::delete("/registry/pods/0002", Expect::Any)).await.expect("deletes");
        store.close();
        let store = Embedded::open(&EmbeddedOptions::new(&dir)).expect("opens again");
        assert_eq!(store.revision().await.expect("known"), 9002);
        assert_eq!(store.get("/registry/pods/0002").await.expect("reads"), None);
    }
}
