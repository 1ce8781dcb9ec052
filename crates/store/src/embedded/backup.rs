//! Saves a snapshot of an embedded store to one file, while a server uses it or not; restores it;
//! and checks either. The log is append-only, so the records that are complete at some moment are a
//! consistent state: nothing has to be stopped or locked to copy them.
//!
//! `docs/storage-format.md` describes the snapshot file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, DiskFile, RealDisk};
use super::recover;
use super::segment::{self, HEADER_BYTES, Segment};
use crate::failpoint::failpoint;
use crate::{Range, StoreError};

/// Statistics of a store or a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The newest revision.
    pub revision: u64,
    /// The oldest revision whose state can still be read.
    pub compacted: u64,
    pub keys: usize,
    /// Size of the log.
    pub bytes: u64,
}

/// Reads every record of a store that no server uses. The error names the damaged place.
pub fn check(dir: &Path) -> Result<Summary, StoreError> {
    let disk = ReadOnlyDisk(dir.to_owned());
    if !dir.exists() || numbers(&disk)?.is_empty() {
        return Err(StoreError::Unavailable(format!("there is no store in {}", dir.display())));
    }
    let _lock = super::lock(dir)?;
    summary(&disk)
}

/// Saves a snapshot of a store, which may be in use. An existing file is not overwritten.
pub fn save(dir: &Path, file: &Path) -> Result<Summary, StoreError> {
    let disk = ReadOnlyDisk(dir.to_owned());
    let part = partial_path(file);
    if !dir.exists() {
        return Err(StoreError::Unavailable(format!("there is no store in {}", dir.display())));
    }
    if file.exists() {
        return Err(StoreError::Unavailable(format!("{} exists already", file.display())));
    }
    let saved = (0..SAVE_TRIES)
        .find_map(|_| match copy_segments(&disk, &part) {
            // A segment was reclaimed before it was copied: its live records were appended to the
            // log.
            Err(StoreError::Compacted { .. }) => None,
            done => Some(done),
        })
        .unwrap_or_else(|| {
            Err(StoreError::Unavailable("the store changes too fast; try again".into()))
        });
    let saved = saved.and_then(|()| status(&part)).and_then(|summary| {
        failpoint!("backup.written");
        std::fs::rename(&part, file).map_err(|error| failed(file, &error))?;
        sync_parent(file)?;
        Ok(summary)
    });
    if saved.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    saved
}

/// Reads a whole snapshot and returns its statistics.
pub fn status(file: &Path) -> Result<Summary, StoreError> {
    summary(&SnapshotFile::open(file)?)
}

/// Restores a snapshot into a directory without a store.
pub fn restore(file: &Path, dir: &Path) -> Result<Summary, StoreError> {
    let snapshot = SnapshotFile::open(file)?;
    let summary = summary(&snapshot)?;
    let in_dir = |error: io::Error| failed(dir, &error);
    super::make_private(dir).map_err(in_dir)?;
    let _lock = super::lock(dir)?;
    let disk = RealDisk { dir: dir.to_owned() };
    let interrupted = disk.list().map_err(in_dir)?.iter().any(|name| name == recover::RESTORING);
    for number in numbers(&disk)? {
        if !interrupted {
            let held = format!("{} holds a store already", dir.display());
            return Err(StoreError::Unavailable(held));
        }
        disk.remove(&segment::file_name(number)).map_err(in_dir)?;
    }
    // The first segments alone may be a valid store, so a crash before the last one must not leave what
    // a server would open.
    disk.create(recover::RESTORING).map_err(in_dir)?;
    disk.sync().map_err(in_dir)?;
    for section in &snapshot.sections {
        let target = disk.create(&segment::file_name(section.number)).map_err(in_dir)?;
        let mut at = 0;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let n = section.read_at(&mut buffer, at).map_err(|error| failed(file, &error))?;
            if n == 0 {
                break;
            }
            target.write_at(&buffer[..n], at).map_err(in_dir)?;
            at += n as u64;
        }
        target.sync().map_err(in_dir)?;
    }
    disk.sync().map_err(in_dir)?;
    disk.remove(recover::RESTORING).map_err(in_dir)?;
    disk.sync().map_err(in_dir)?;
    Ok(summary)
}

const SAVE_TRIES: usize = 10;
const COPY_BYTES: usize = 1 << 20;
const MAGIC: &[u8; 8] = b"pintlesn";
const VERSION: u32 = 1;
const HEAD_BYTES: u64 = 16;

fn failed(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

fn partial_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

pub(super) fn sync_parent(file: &Path) -> Result<(), StoreError> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(|error| failed(parent, &error))
}

fn numbers(disk: &dyn Disk) -> Result<Vec<u64>, StoreError> {
    let names = disk.list().map_err(|error| {
        StoreError::Unavailable(format!("cannot read the data directory: {error}"))
    })?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::number_of(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Recovers a store as a server would, but without hint files: every record is read.
fn summary(disk: &dyn Disk) -> Result<Summary, StoreError> {
    let recovered = recover::recover(disk)?;
    let (found, revision, _) = recovered.index.range(&Range::default())?;
    let (bytes, _) = recovered.index.usage();
    Ok(Summary { revision, compacted: recovered.index.compacted, keys: found.len(), bytes })
}

/// `Compacted` means that a segment was reclaimed meanwhile.
fn copy_segments(disk: &ReadOnlyDisk, to: &Path) -> Result<(), StoreError> {
    let written = |error: io::Error| failed(to, &error);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(to);
    let mut out = ChecksumWriter {
        out: BufWriter::new(file.map_err(written)?),
        sum: crc32fast::Hasher::new(),
    };
    out.put(MAGIC).map_err(written)?;
    out.put(&VERSION.to_le_bytes()).map_err(written)?;
    out.put(&[0; 4]).map_err(written)?;
    let numbers = numbers(disk)?;
    if numbers.is_empty() {
        return Err(StoreError::Unavailable(format!("there is no store in {}", disk.0.display())));
    }
    let mut buffer = vec![0; COPY_BYTES];
    for number in &numbers {
        let opened = Segment::open(disk, *number);
        let segment = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::Compacted { oldest: *number },
            _ => failed(&disk.0, &error),
        })?;
        // The last segment may have just been created.
        if segment.header()?.is_none() && Some(number) == numbers.last() {
            break;
        }
        let end = complete_records_end(&segment)?;
        out.put(&number.to_le_bytes()).map_err(written)?;
        out.put(&end.to_le_bytes()).map_err(written)?;
        let mut at = 0;
        while at < end {
            let want = buffer.len().min((end - at) as usize);
            let n = segment.file().read_at(&mut buffer[..want], at);
            let n = n.map_err(|error| segment.read_error(&error))?;
            if n == 0 {
                return Err(segment.read_error(&io::ErrorKind::UnexpectedEof.into()));
            }
            out.put(&buffer[..n]).map_err(written)?;
            at += n as u64;
        }
    }
    out.put(&[0; 16]).map_err(written)?;
    let sum = out.sum.clone().finalize();
    out.put(&sum.to_le_bytes()).map_err(written)?;
    let file = out.out.into_inner().map_err(|error| written(error.into_error()))?;
    file.sync_all().map_err(written)
}

/// Where the complete records end. If later records follow, either they are being written right now
/// and the end moves, or the log is damaged.
fn complete_records_end(segment: &Segment) -> Result<u64, StoreError> {
    let mut end = HEADER_BYTES as u64;
    loop {
        end = segment.scan(end, |_, _, _| true)?;
        if !segment.has_later_batch(end)? {
            return Ok(end);
        }
        if segment.scan(end, |_, _, _| true)? == end {
            return Err(StoreError::Corrupt(format!(
                "{} is damaged at byte {end}: later records follow",
                segment::file_name(segment.number)
            )));
        }
    }
}

struct ChecksumWriter {
    out: BufWriter<File>,
    sum: crc32fast::Hasher,
}

impl ChecksumWriter {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes)
    }
}

/// A directory that is only read: recovery leaves it as it is. Hint files are hidden.
struct ReadOnlyDisk(PathBuf);

/// A file that is only read.
struct ReadOnlyFile<F>(F);

impl Disk for ReadOnlyDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        RealDisk { dir: self.0.clone() }.list()
    }

    fn create(&self, _name: &str) -> io::Result<Box<dyn DiskFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        if segment::number_of(name).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Box::new(ReadOnlyFile(File::open(self.0.join(name))?)))
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: DiskFile> DiskFile for ReadOnlyFile<F> {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A snapshot, presented as the directory it was saved from.
struct SnapshotFile {
    sections: Vec<Section>,
}

#[derive(Clone)]
struct Section {
    file: Arc<File>,
    number: u64,
    start: u64,
    len: u64,
}

impl SnapshotFile {
    /// Verifies the checksum of the whole file before anything in it is used.
    fn open(path: &Path) -> Result<Self, StoreError> {
        let in_file = |error: io::Error| failed(path, &error);
        let damaged = |what: &str| StoreError::Corrupt(format!("{} {what}", path.display()));
        let file = File::open(path).map_err(in_file)?;
        let len = DiskFile::len(&file).map_err(in_file)?;
        let mut head = [0; HEAD_BYTES as usize];
        let n = DiskFile::read_at(&file, &mut head, 0).map_err(in_file)?;
        if n < head.len() || head[..8] != *MAGIC {
            return Err(damaged("is not a snapshot"));
        }
        if head[8..12] != VERSION.to_le_bytes() {
            return Err(damaged("has a format that this version does not know"));
        }
        let body = len.checked_sub(4).ok_or_else(|| damaged("is cut short"))?;
        let mut sum = crc32fast::Hasher::new();
        let mut reader = BufReader::with_capacity(COPY_BYTES, &file).take(body);
        let mut buffer = vec![0; 64 << 10];
        loop {
            let n = reader.read(&mut buffer).map_err(in_file)?;
            if n == 0 {
                break;
            }
            sum.update(&buffer[..n]);
        }
        let mut stored = [0; 4];
        file.read_exact_at(&mut stored, body).map_err(in_file)?;
        if stored != sum.finalize().to_le_bytes() {
            return Err(damaged("does not match its checksum"));
        }

        let file = Arc::new(file);
        let (mut sections, mut at) = (Vec::new(), HEAD_BYTES);
        loop {
            let mut numbers = [0; 16];
            file.read_exact_at(&mut numbers, at).map_err(in_file)?;
            let (number, len) = numbers.split_at(8);
            let number = u64::from_le_bytes(number.try_into().unwrap_or_default());
            let len = u64::from_le_bytes(len.try_into().unwrap_or_default());
            at += 16;
            if number == 0 {
                return Ok(Self { sections });
            }
            sections.push(Section { file: Arc::clone(&file), number, start: at, len });
            at = at
                .checked_add(len)
                .filter(|end| *end <= body)
                .ok_or_else(|| damaged("is cut short"))?;
        }
    }
}

impl Disk for SnapshotFile {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.sections.iter().map(|section| segment::file_name(section.number)).collect())
    }

    fn create(&self, _name: &str) -> io::Result<Box<dyn DiskFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let found = self.sections.iter().find(|section| segment::file_name(section.number) == name);
        Ok(Box::new(ReadOnlyFile(found.ok_or(io::ErrorKind::NotFound)?.clone())))
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for Section {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        DiskFile::read_at(&*self.file, &mut buffer[..left], self.start + offset)
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::make_private;
    use super::*;
    use crate::{Backend as _, Embedded, EmbeddedOptions, Expect, Write};

    #[tokio::test]
    async fn a_store_in_use_is_saved_restored_and_checked() {
        let root = tempfile::tempdir().expect("a directory");
        let (dir, file, copy) =
            (root.path().join("a"), root.path().join("snapshot"), root.path().join("b"));
        let store = Arc::new(Embedded::open(&EmbeddedOptions::new(&dir)).expect("open"));
        for n in 0..50 {
            let key = format!("/registry/pods/{}", n % 20);
            store.write(Write::put(key, Expect::Any, vec![7; 5000])).await.expect("written");
        }
        let before = store.revision().await.expect("known");
        // A concurrent writer.
        let busy = tokio::spawn({
            let store = Arc::clone(&store);
            async move {
                for n in 0..200 {
                    let write =
                        Write::put(format!("/registry/busy/{n}"), Expect::Any, vec![1; 100]);
                    store.write(write).await.expect("written");
                }
            }
        });
        let (from, to) = (dir.clone(), file.clone());
        let saved = tokio::task::spawn_blocking(move || save(&from, &to)).await.expect("no panic");
        let saved = saved.expect("saved");
        busy.await.expect("no panic");
        assert!(saved.revision >= before && saved.keys >= 20, "{saved:?}");
        assert_eq!(status(&file).expect("readable"), saved);
        assert!(save(&dir, &file).is_err(), "an existing file is kept");
        assert!(check(&dir).expect_err("in use").to_string().contains("in use"));
        store.close();
        assert_eq!(check(&dir).expect("good").keys, 220);

        assert_eq!(restore(&file, &copy).expect("restored"), saved);
        assert!(restore(&file, &copy).is_err(), "an existing store is kept");
        assert_eq!(check(&copy).expect("good"), saved);
        let again = Embedded::open(&EmbeddedOptions::new(&copy)).expect("open");
        assert_eq!(again.revision().await.expect("known"), saved.revision);
        let pod = again.get("/registry/pods/3").await.expect("read").expect("there");
        assert_eq!(pod.value, vec![7; 5000]);
        again.write(Write::create("/registry/pods/new", "x")).await.expect("it goes on");
    }

    /// A restore that was killed after the first segments left a store at an older revision, which a server
    /// opened without complaint.
    #[tokio::test]
    async fn an_interrupted_restore_leaves_no_store_and_can_be_repeated() {
        let root = tempfile::tempdir().expect("a directory");
        let (dir, file, copy) =
            (root.path().join("a"), root.path().join("snapshot"), root.path().join("b"));
        let store = Embedded::open(&EmbeddedOptions::new(&dir)).expect("open");
        // More than one segment.
        for n in 0..20 {
            store.write(Write::create(format!("/k/{n}"), vec![7; 1 << 20])).await.expect("written");
        }
        store.close();
        let saved = save(&dir, &file).expect("saved");
        // As killed after the first segment.
        make_private(&copy).expect("makes a directory");
        std::fs::copy(dir.join("000000000001.log"), copy.join("000000000001.log")).expect("copies");
        std::fs::write(copy.join(recover::RESTORING), "").expect("writes");
        let refused = Embedded::open(&EmbeddedOptions::new(&copy)).err().expect("is incomplete");
        assert!(refused.to_string().contains("restore"), "{refused}");
        assert!(check(&copy).is_err());
        assert_eq!(restore(&file, &copy).expect("is repeated"), saved);
        assert_eq!(check(&copy).expect("good"), saved);
        Embedded::open(&EmbeddedOptions::new(&copy)).expect("open");
    }

    #[tokio::test]
    async fn damage_is_reported_with_its_place() {
        let root = tempfile::tempdir().expect("a directory");
        let (dir, file) = (root.path().join("a"), root.path().join("snapshot"));
        let store = Embedded::open(&EmbeddedOptions::new(&dir)).expect("open");
        for n in 0..10 {
            store.write(Write::create(format!("/k/{n}"), vec![7; 500])).await.expect("written");
        }
        store.close();
        save(&dir, &file).expect("saved");
        let flip = |path: &Path, at: usize| {
            let mut bytes = std::fs::read(path).expect("readable");
            bytes[at] ^= 1;
            std::fs::write(path, bytes).expect("writable");
        };
        flip(&file, 1000);
        let error = status(&file).expect_err("damaged").to_string();
        assert!(error.contains("does not match its checksum"), "{error}");
        let segment = dir.join("000000000001.log");
        flip(&segment, 1000);
        for error in [check(&dir), save(&dir, &root.path().join("other"))] {
            let error = error.expect_err("damaged").to_string();
            assert!(error.contains("000000000001.log is damaged at byte"), "{error}");
        }
        assert!(!root.path().join("other").exists() && !root.path().join("other.part").exists());
    }
}
