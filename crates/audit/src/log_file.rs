//! The file of the log backend: whole lines, rotated by size as by kube-apiserver (lumberjack), with
//! the same file names.

mod backups;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use meta::time::Time;
use parking_lot::Mutex;

use self::backups::Backups;

/// What happens to a file that is full, and to the files before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// Zero: the file is never rotated.
    pub(crate) max_bytes: u64,
    /// Rotated files are deleted after this; zero: never.
    pub(crate) max_age: Duration,
    /// So many rotated files are kept; zero: all.
    pub(crate) max_backups: usize,
    /// Rotated files are compressed with gzip.
    pub(crate) compress: bool,
}

/// A log file, or standard output.
pub(crate) struct LogFile(Mutex<Output>);

enum Output {
    Stdout,
    File(RotatedFile),
}

struct RotatedFile {
    path: PathBuf,
    rotation: Rotation,
    /// None: the last attempt to open it failed.
    file: Option<File>,
    bytes: u64,
    /// The last write was cut short: the next one begins with a newline.
    torn: bool,
    backups: Arc<Backups>,
}

impl LogFile {
    /// `-` is standard output.
    pub(crate) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self(Mutex::new(Output::Stdout)));
        }
        RotatedFile::open(path, rotation).map(|file| Self(Mutex::new(Output::File(file))))
    }

    /// Writes lines, each with its newline, in as few calls as rotation allows. A line is written by
    /// one call, so that a process that is killed leaves whole lines.
    pub(crate) fn write(&self, lines: &[Vec<u8>]) -> io::Result<()> {
        match &mut *self.0.lock() {
            Output::Stdout => {
                let mut stdout = io::stdout().lock();
                match lines {
                    [line] => stdout.write_all(line)?,
                    lines => stdout.write_all(&lines.concat())?,
                }
                stdout.flush()
            }
            Output::File(file) => file.write(lines),
        }
    }
}

impl RotatedFile {
    fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty())
        {
            use std::os::unix::fs::DirBuilderExt as _;
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let backups = Arc::new(Backups::new(path, rotation.clone()));
        let mut opened =
            Self { path: path.to_owned(), rotation, file: None, bytes: 0, torn: false, backups };
        opened.reopen()?;
        opened.backups.clean_in_background();
        Ok(opened)
    }

    /// Opens the file that is there, or a new one.
    fn reopen(&mut self) -> io::Result<()> {
        let mut file =
            OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(&self.path)?;
        self.bytes = file.metadata()?.len();
        // A process that was killed, or a full disk, may have cut the last line.
        self.torn = self.bytes > 0 && !ends_with_newline(&mut file).unwrap_or(true);
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, lines: &[Vec<u8>]) -> io::Result<()> {
        let mut rest = lines;
        while !rest.is_empty() {
            self.make_space_for(rest[0].len() as u64)?;
            let space = match self.rotation.max_bytes {
                0 => u64::MAX,
                max => max.saturating_sub(self.bytes + u64::from(self.torn)),
            };
            // A line that is larger than a whole file has one of its own.
            let (mut count, mut bytes) = (1, rest[0].len() as u64);
            while let Some(line) = rest.get(count)
                && bytes + line.len() as u64 <= space
                && bytes < WRITE_BYTES_MAX
            {
                bytes += line.len() as u64;
                count += 1;
            }
            self.write_once(&rest[..count])?;
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Rotates the file if it has no space for another line.
    fn make_space_for(&mut self, bytes: u64) -> io::Result<()> {
        if self.file.is_none() {
            self.reopen()?;
        }
        let max = self.rotation.max_bytes;
        if max > 0 && self.bytes > 0 && self.bytes + bytes > max {
            self.rotate()?;
        }
        Ok(())
    }

    fn write_once(&mut self, lines: &[Vec<u8>]) -> io::Result<()> {
        let mut joined;
        let bytes: &[u8] = match lines {
            [line] if !self.torn => line,
            lines => {
                joined = Vec::with_capacity(1 + lines.iter().map(Vec::len).sum::<usize>());
                if self.torn {
                    joined.push(b'\n');
                }
                joined.extend(lines.iter().flatten());
                &joined
            }
        };
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        let mut written = 0;
        while written < bytes.len() {
            match file.write(&bytes[written..]) {
                Ok(0) => return self.cut(written, io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.cut(written, error),
            }
        }
        self.bytes += bytes.len() as u64;
        self.torn = false;
        Ok(())
    }

    fn cut(&mut self, written: usize, error: io::Error) -> io::Result<()> {
        self.bytes += written as u64;
        self.torn |= written > 0;
        Err(error)
    }

    /// Moves the file aside and begins a new one.
    fn rotate(&mut self) -> io::Result<()> {
        let mode = match &self.file {
            Some(file) => file.metadata()?.permissions().mode(),
            None => 0o600,
        };
        self.file = None;
        fs::rename(&self.path, self.backups.free_name(SystemTime::now()))?;
        let options = OpenOptions::new().create(true).append(true).read(true).mode(mode).clone();
        self.file = Some(options.open(&self.path)?);
        (self.bytes, self.torn) = (0, false);
        self.backups.clean_in_background();
        Ok(())
    }
}

/// Lines are joined to writes of about this size.
const WRITE_BYTES_MAX: u64 = 256 * 1024;

fn ends_with_newline(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// `2006-01-02T15-04-05.000`, the time in the name of a rotated file.
fn time_in_name(time: SystemTime) -> String {
    // 2006-01-02T15:04:05.000000Z
    let text = Time::from(time).to_rfc3339_micro();
    text[..text.len() - 4].replace(':', "-")
}

/// The time in a name; None: not written by `time_in_name`.
fn parse_time_in_name(text: &str) -> Option<Time> {
    let (date, time) = text.split_once('T')?;
    if text.len() != "2006-01-02T15-04-05.000".len() {
        return None;
    }
    Time::parse(&format!("{date}T{}Z", time.replace('-', ":"))).ok()
}
