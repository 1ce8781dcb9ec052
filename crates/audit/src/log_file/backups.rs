//! Rotated files: their names, and which of them are compressed or deleted.

use std::{
    cmp::Reverse,
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use flate2::{Compression, write::GzEncoder};
use meta::time::Time;

use super::{Rotation, parse_time_in_name, time_in_name};

pub(super) struct Backups {
    directory: PathBuf,
    /// `audit-` and `.log` of `audit-2006-01-02T15-04-05.000.log`.
    prefix: String,
    extension: String,
    rotation: Rotation,
    /// A thread is cleaning up, or about to.
    cleaning: AtomicBool,
    /// Files have been rotated since it began.
    again: AtomicBool,
}

const GZIP: &str = ".gz";

struct Backup {
    name: String,
    time: Time,
}

/// Says that no thread is cleaning up any more, if this one panics.
struct Cleaning<'a>(&'a AtomicBool);

impl Drop for Cleaning<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(false, Ordering::SeqCst);
            tracing::error!("cleaning up rotated audit logs panicked");
        }
    }
}

impl Backups {
    pub(super) fn new(path: &Path, rotation: Rotation) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Go's `filepath.Ext`: from the last dot on, even if the name begins with it.
        let (prefix, extension) = name.split_at(name.rfind('.').unwrap_or(name.len()));
        Self {
            directory: path.parent().map(Path::to_owned).unwrap_or_default(),
            prefix: format!("{prefix}-"),
            extension: extension.to_owned(),
            rotation,
            cleaning: AtomicBool::new(false),
            again: AtomicBool::new(false),
        }
    }

    /// The name of a file that is rotated now. Two rotations within a millisecond have different
    /// names, so that the second file does not replace the first.
    pub(super) fn free_name(&self, now: SystemTime) -> PathBuf {
        let names = (0..).map(|more| {
            let time = time_in_name(now + Duration::from_millis(more));
            self.directory.join(format!("{}{time}{}", self.prefix, self.extension))
        });
        let is_free = |path: &PathBuf| {
            let compressed = PathBuf::from(format!("{}{GZIP}", path.display()));
            !path.exists() && !compressed.exists()
        };
        names.into_iter().find(is_free).expect("a name is free sooner or later")
    }

    /// Deletes and compresses files on a thread of its own: a large file takes seconds.
    pub(super) fn clean_in_background(self: &Arc<Self>) {
        let Rotation { max_age, max_backups, compress, .. } = self.rotation;
        if max_age.is_zero() && max_backups == 0 && !compress {
            return;
        }
        self.again.store(true, Ordering::SeqCst);
        if self.cleaning.swap(true, Ordering::SeqCst) {
            return;
        }
        let own = self.clone();
        let thread = std::thread::Builder::new().name("audit-log-backups".to_owned());
        let started = thread.spawn(move || {
            loop {
                while own.again.swap(false, Ordering::SeqCst) {
                    // After a panic the next rotation starts a thread again.
                    let _cleaning = Cleaning(&own.cleaning);
                    if let Err(error) = own.clean(SystemTime::now()) {
                        tracing::error!(%error, "cannot clean up rotated audit logs");
                    }
                }
                own.cleaning.store(false, Ordering::SeqCst);
                // A rotation between the two lines above did not start another thread.
                if !own.again.load(Ordering::SeqCst) || own.cleaning.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
        });
        if let Err(error) = started {
            self.cleaning.store(false, Ordering::SeqCst);
            tracing::error!(%error, "cannot start the thread that cleans up rotated audit logs");
        }
    }

    /// Deletes files beyond the number and the age that are kept, and compresses the others. The
    /// first error is returned when everything has been tried.
    pub(super) fn clean(&self, now: SystemTime) -> io::Result<()> {
        let mut kept = Vec::new();
        let mut outcome = Ok(());
        // The same file with and without `.gz` counts once.
        let mut names = HashSet::new();
        let cutoff = now.checked_sub(self.rotation.max_age).unwrap_or(SystemTime::UNIX_EPOCH);
        for backup in self.find()? {
            names.insert(backup.name.trim_end_matches(GZIP).to_owned());
            let too_many = self.rotation.max_backups > 0 && names.len() > self.rotation.max_backups;
            let too_old = !self.rotation.max_age.is_zero() && backup.time < Time::from(cutoff);
            if too_many || too_old {
                outcome = outcome.and(fs::remove_file(self.directory.join(&backup.name)));
            } else {
                kept.push(backup);
            }
        }
        if self.rotation.compress {
            for backup in kept.iter().filter(|backup| !backup.name.ends_with(GZIP)) {
                outcome = outcome.and(compress(&self.directory.join(&backup.name)));
            }
        }
        outcome
    }

    /// The newest first.
    fn find(&self) -> io::Result<Vec<Backup>> {
        let directory = match self.directory.as_os_str() {
            name if name.is_empty() => Path::new("."),
            _ => &self.directory,
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let plain = name.strip_suffix(GZIP).unwrap_or(&name);
            let time = plain.strip_prefix(&self.prefix);
            let time = time.and_then(|rest| rest.strip_suffix(&self.extension));
            if let Some(time) = time.and_then(parse_time_in_name)
                && entry.file_type()?.is_file()
            {
                found.push(Backup { name, time });
            }
        }
        found.sort_by_key(|backup| Reverse(backup.time));
        Ok(found)
    }
}

/// Replaces a file by its compressed form. If the process is killed in between, the next clean-up
/// begins again from the file that is still there.
fn compress(path: &Path) -> io::Result<()> {
    let target = PathBuf::from(format!("{}{GZIP}", path.display()));
    let done = (|| {
        let mut source = File::open(path)?;
        let mode = source.metadata()?.permissions().mode();
        let file =
            OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&target)?;
        let mut encoder = GzEncoder::new(file, Compression::default());
        io::copy(&mut source, &mut encoder)?;
        encoder.finish()?.sync_all()?;
        fs::remove_file(path)
    })();
    if done.is_err() {
        let _ = fs::remove_file(&target);
    }
    done
}
