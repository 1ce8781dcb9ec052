//! PEM text that is in a file, which may change, or in memory only.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// What stands for the directory of what is in memory.
pub(crate) const MEMORY: &str = "(generated, in memory)";

/// Certificates or a private key as PEM.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    File(PathBuf),
    Memory(Arc<str>),
    /// A file that is being written.
    Unwritten(Arc<UnwrittenFile>),
}

/// Until the file has its name, its content is here.
#[derive(PartialEq, Eq)]
pub struct UnwrittenFile {
    pub(crate) path: PathBuf,
    pub(crate) content: String,
    pub(crate) mode: u32,
    /// Set when the file can be read.
    pub(crate) written: OnceLock<()>,
}

impl Pem {
    /// The content of now.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::File(path) => std::fs::read(path),
            Self::Memory(text) => Ok(text.as_bytes().to_vec()),
            Self::Unwritten(file) if file.written.get().is_none() => {
                Ok(file.content.as_bytes().to_vec())
            }
            Self::Unwritten(file) => std::fs::read(&file.path),
        }
    }

    /// The same as text, for where it is passed on.
    pub fn read_text(&self) -> io::Result<String> {
        match self {
            Self::File(path) => std::fs::read_to_string(path),
            Self::Memory(text) => Ok(text.as_ref().to_owned()),
            Self::Unwritten(file) if file.written.get().is_none() => Ok(file.content.clone()),
            Self::Unwritten(file) => std::fs::read_to_string(&file.path),
        }
    }

    /// The file, or what an error calls the memory.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::Memory(_) => Path::new(MEMORY),
            Self::Unwritten(file) => &file.path,
        }
    }
}

impl Default for Pem {
    fn default() -> Self {
        Self::File(PathBuf::new())
    }
}

impl From<PathBuf> for Pem {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&str> for Pem {
    fn from(path: &str) -> Self {
        Self::File(path.into())
    }
}

impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}

/// Without the text, which may be a private key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_memory_is_not_printed() {
        let pem = Pem::Memory("secret".into());
        assert_eq!(pem.read_text().expect("is there"), "secret");
        assert!(!format!("{pem} {pem:?}").contains("secret"));
        let file = Pem::from("/no/such.key");
        assert!(file.read().is_err());
        assert_eq!(file.to_string(), "/no/such.key");
    }
}
