//! The root certificates that the host trusts.
//!
//! Read by hand rather than with `rustls-native-certs`: on Linux that crate comes down to the same
//! list of files (through `openssl-probe`), for two more crates, and this list is the one that Go
//! has, so that Pintle finds what kube-apiserver finds on the same host. What is lost: the keychain
//! of macOS, where `/etc/ssl/cert.pem` has Apple's roots but not the user's own.

use std::path::{Path, PathBuf};

use rustls_pki_types::{CertificateDer, pem::PemObject as _};

/// The first one that exists counts.
const FILES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt", // Debian, Ubuntu, Gentoo, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",   // Fedora, RHEL 6
    "/etc/ssl/ca-bundle.pem",             // openSUSE
    "/etc/pki/tls/cacert.pem",            // OpenELEC
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // CentOS, RHEL 7
    "/etc/ssl/cert.pem",                  // Alpine, macOS
];

/// Where none of the files exists.
const DIRECTORIES: [&str; 2] = ["/etc/ssl/certs", "/etc/pki/tls/certs"];

/// None found: no server is trusted, which is what Go does as well.
pub(crate) fn load() -> Vec<CertificateDer<'static>> {
    // Compat: Go reads these two variables before its own list.
    let file = std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty());
    let directories = std::env::var_os("SSL_CERT_DIR").filter(|path| !path.is_empty());
    let directories = directories.map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    load_from(file.map(PathBuf::from), directories)
}

fn load_from(
    file: Option<PathBuf>,
    directories: Option<Vec<PathBuf>>,
) -> Vec<CertificateDer<'static>> {
    let files = match file {
        Some(file) => vec![file],
        None => FILES.map(PathBuf::from).to_vec(),
    };
    let mut roots: Vec<_> = files.iter().find_map(|file| read(file)).unwrap_or_default();
    let directories = match directories {
        Some(directories) => directories,
        None if roots.is_empty() => DIRECTORIES.map(PathBuf::from).to_vec(),
        None => Vec::new(),
    };
    for directory in directories {
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            roots.extend(read(&entry.path()).unwrap_or_default());
        }
    }
    roots
}

fn read(file: &Path) -> Option<Vec<CertificateDer<'static>>> {
    let pem = std::fs::read(file).ok()?;
    Some(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directories_can_be_named() {
        let dir = tempfile::tempdir().unwrap();
        let pem =
            |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap().cert.pem();
        let file = dir.path().join("bundle.pem");
        std::fs::write(&file, format!("{}\n{}", pem("a"), pem("b"))).unwrap();
        let directory = dir.path().join("certs");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("c.pem"), pem("c")).unwrap();
        std::fs::write(directory.join("README"), "not PEM").unwrap();
        let none = dir.path().join("none");
        let cases = [
            (file.clone(), vec![], 2),
            (file, vec![directory.clone()], 3),
            (none.clone(), vec![directory], 1),
            (none.clone(), vec![none], 0),
        ];
        for (file, directories, expected) in cases {
            assert_eq!(load_from(Some(file), Some(directories)).len(), expected);
        }
    }
}
