//! Files that are either there as a whole or not at all, also after a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::pem::{MEMORY, Pem, UnwrittenFile};

/// Files to be written together. Waiting for the disk is what takes time, so it waits for all of them at once.
#[derive(Default)]
pub(super) struct Batch {
    files: Vec<Arc<UnwrittenFile>>,
    /// What is below [`MEMORY`], and never written.
    memory: BTreeMap<PathBuf, String>,
}

impl Batch {
    /// A file that only the owner may read.
    pub(super) fn private(&mut self, path: &Path, content: impl Into<String>) {
        self.add(path, content.into(), 0o600);
    }

    pub(super) fn public(&mut self, path: &Path, content: impl Into<String>) {
        self.add(path, content.into(), 0o644);
    }

    fn add(&mut self, path: &Path, content: String, mode: u32) {
        let path = path.to_owned();
        if path.starts_with(MEMORY) {
            self.memory.insert(path, content);
        } else {
            let written = OnceLock::new();
            self.files.push(Arc::new(UnwrittenFile { path, content, mode, written }));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// What is there already, or `None`.
    pub(super) fn load(&self, path: &Path) -> io::Result<Option<String>> {
        if path.starts_with(MEMORY) {
            return Ok(self.memory.get(path).cloned());
        }
        read_optional(path)
    }

    /// Where the content of a path is read, before and after the commit.
    pub(super) fn pem(&self, path: PathBuf) -> Pem {
        if let Some(content) = self.memory.get(&path) {
            return Pem::Memory(content.as_str().into());
        }
        match self.files.iter().find(|file| file.path == path) {
            Some(file) => Pem::Unwritten(file.clone()),
            None => Pem::File(path),
        }
    }

    /// Writes everything, then gives the files their names in the order they were added.
    pub(super) fn commit(self) -> Result<(), (PathBuf, io::Error)> {
        std::thread::scope(|scope| {
            let writers: Vec<_> = self
                .files
                .iter()
                .map(|file| (file, scope.spawn(|| write_temporary(file))))
                .collect();
            for (file, writer) in writers {
                let written = writer.join().unwrap_or_else(|_| Err(io::Error::other("panicked")));
                written.map_err(|error| (file.path.clone(), error))?;
            }
            Ok(())
        })?;
        let mut directories = BTreeSet::new();
        for file in &self.files {
            std::fs::rename(temporary(&file.path), &file.path)
                .map_err(|error| (file.path.clone(), error))?;
            directories.extend(file.path.parent());
            let _ = file.written.set(());
        }
        for directory in directories {
            let synced = File::open(directory).and_then(|directory| directory.sync_all());
            synced.map_err(|error| (directory.to_owned(), error))?;
        }
        Ok(())
    }
}

fn write_temporary(file: &UnwrittenFile) -> io::Result<()> {
    let path = temporary(&file.path);
    // Left behind by a crash, perhaps with another mode.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut output = OpenOptions::new().write(true).create_new(true).mode(file.mode).open(&path)?;
    output.write_all(file.content.as_bytes())?;
    output.sync_all()
}

/// In the same directory, so that the rename is atomic.
fn temporary(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".tmp");
    path.with_file_name(name)
}

/// Makes a directory that only the owner may enter; one that exists is left as it is.
pub(super) fn make_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The content, or `None` if there is no such file.
pub(super) fn read_optional(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_batch_replaces_files_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let inner = dir.path().join("a/b");
        make_private_dir(&inner).expect("it can be made");
        make_private_dir(&inner).expect("and is then there");
        let (key, cert) = (inner.join("x.key"), inner.join("x.crt"));
        std::fs::write(&key, "old").expect("writable");
        std::fs::write(inner.join(".x.key.tmp"), "left by a crash").expect("writable");

        let mut batch = Batch::default();
        batch.private(&key, "secret");
        batch.public(&cert, "open");
        batch.commit().expect("committed");

        assert_eq!(read_optional(&key).expect("readable").as_deref(), Some("secret"));
        assert_eq!(read_optional(&cert).expect("readable").as_deref(), Some("open"));
        assert_eq!(read_optional(&inner.join("none")).expect("no error"), None);
        let mode = |path: &Path| path.metadata().expect("exists").permissions().mode() & 0o777;
        assert_eq!((mode(&key), mode(&inner)), (0o600, 0o700));
        assert_eq!(std::fs::read_dir(&inner).expect("readable").count(), 2);
    }

    #[test]
    fn a_failed_write_names_the_file() {
        let mut batch = Batch::default();
        batch.private(Path::new("/proc/no/such.key"), "x");
        let (path, _) = batch.commit().expect_err("no such directory");
        assert_eq!(path, Path::new("/proc/no/such.key"));
    }
}
