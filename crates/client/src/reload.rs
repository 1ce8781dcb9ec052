//! Settings that come from files and follow them: certificates and tokens are rotated while the
//! server runs.

use std::{
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use parking_lot::Mutex;

use crate::error::ConfigError;

/// A value made from files, and made again when one of them has changed.
///
/// Files are looked at when the value is used, so there is no task to stop, and a rotated file
/// counts for the next call. A `stat` takes about a microsecond.
pub(crate) struct Reloaded<T> {
    files: Vec<PathBuf>,
    load: Box<dyn Fn() -> Result<T, ConfigError> + Send + Sync>,
    state: Mutex<State<T>>,
}

struct State<T> {
    seen: Vec<Option<Stamp>>,
    /// Counts the values; two calls with the same generation have the same value.
    generation: u64,
    value: Arc<T>,
}

/// What differs when a file has been written, or replaced by another (also through a symbolic link,
/// as in mounted Secrets).
#[derive(PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl<T> Reloaded<T> {
    pub(crate) fn new(
        files: Vec<PathBuf>,
        load: impl Fn() -> Result<T, ConfigError> + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        // Before the files are read: a change in between is noticed at the next use.
        let seen = stamps(&files);
        let value = Arc::new(load()?);
        let state = Mutex::new(State { seen, generation: 0, value });
        Ok(Self { files, load: Box::new(load), state })
    }

    /// The value as the files have it now, and its generation. If they cannot be read or do not fit
    /// together (a certificate is written before its key), the last good value goes on.
    pub(crate) fn current(&self) -> (u64, Arc<T>) {
        let seen = stamps(&self.files);
        {
            let state = self.state.lock();
            if state.seen == seen {
                return (state.generation, state.value.clone());
            }
        }
        let loaded = (self.load)();
        let mut state = self.state.lock();
        state.seen = seen;
        match loaded {
            Ok(value) => {
                state.value = Arc::new(value);
                state.generation += 1;
            }
            Err(error) => tracing::warn!(%error, "changed files not used"),
        }
        (state.generation, state.value.clone())
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    files.iter().map(|path| stamp(path).ok()).collect()
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = std::fs::metadata(path)?;
    let modified = metadata.modified().ok();
    Ok(Stamp { inode: metadata.ino(), bytes: metadata.len(), modified })
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(path: &Path) -> Result<u32, ConfigError> {
        let text = String::from_utf8(read(path)?).expect("the test writes text");
        text.parse().map_err(|_| ConfigError::TokenEmpty { path: Some(path.to_owned()) })
    }

    #[test]
    fn a_changed_file_counts_at_the_next_use_and_a_bad_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("number");
        // Written elsewhere and renamed, as kubelets and cert-manager do: no half-written file.
        let write = |text: &str| {
            let new = dir.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(&new, &path).unwrap();
        };
        write("1");
        let from = path.clone();
        let reloaded = Reloaded::new(vec![path.clone()], move || number(&from)).unwrap();
        let current = || {
            let (generation, value) = reloaded.current();
            (generation, *value)
        };
        assert_eq!(current(), (0, 1));
        write("2");
        assert_eq!(current(), (1, 2));
        assert_eq!(current(), (1, 2));
        write("no number");
        assert_eq!(current(), (1, 2));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(current(), (1, 2));
        write("3");
        assert_eq!(current(), (2, 3));
    }
}
