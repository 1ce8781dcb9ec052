//! `/logs`: the files below `/var/log`, with `--enable-logs-handler`. Nothing outside of it can be
//! reached, not even through a symbolic link.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS},
};

use crate::{Body, CpuPool, health::text};

/// Where log files are.
pub const LOG_DIR: &str = "/var/log";
/// Names of a directory that are listed; the rest is left out.
const LISTED_MAX: usize = 10_000;
const CHUNK_BYTES: usize = 64 * 1024;

/// Answers `/logs` and what is below it. It reads the disk, so it has a thread of its own.
pub(crate) async fn answer(path: &str, root: &'static Path, pool: CpuPool) -> Response<Body> {
    let asked = path.strip_prefix("/logs").unwrap_or_default().to_owned();
    let is_folder = asked.is_empty() || asked.ends_with('/');
    let found = tokio::task::spawn_blocking(move || find(root, &asked)).await;
    match found {
        Ok(Found::File(file, bytes)) => stream(file, bytes, pool),
        Ok(Found::Folder(_)) if !is_folder => {
            // Relative links of the page would lead elsewhere without the slash.
            let mut response = text(StatusCode::MOVED_PERMANENTLY, Bytes::new());
            if let Ok(location) = HeaderValue::from_str(&format!("{path}/")) {
                response.headers_mut().insert(LOCATION, location);
            }
            response
        }
        Ok(Found::Folder(names)) => {
            let mut page = String::from("<pre>\n");
            for name in names {
                let name = escape(&name);
                page.push_str(&format!("<a href=\"{name}\">{name}</a>\n"));
            }
            page.push_str("</pre>\n");
            let mut response = text(StatusCode::OK, page);
            let html = HeaderValue::from_static("text/html; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, html);
            response
        }
        Ok(Found::Nothing) | Err(_) => text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

enum Found {
    File(File, u64),
    Folder(Vec<String>),
    Nothing,
}

fn find(root: &Path, asked: &str) -> Found {
    let Some(relative) = relative(asked) else { return Found::Nothing };
    // Resolved, so that a link out of the directory is seen as what it is.
    let (Ok(root), Ok(path)) = (root.canonicalize(), root.join(relative).canonicalize()) else {
        return Found::Nothing;
    };
    if !path.starts_with(&root) {
        return Found::Nothing;
    }
    let Ok(meta) = path.metadata() else { return Found::Nothing };
    if meta.is_dir() {
        let Ok(entries) = path.read_dir() else { return Found::Nothing };
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            let entry = entry.ok()?;
            let slash = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
            Some(entry.file_name().to_string_lossy().into_owned() + slash)
        };
        let mut names: Vec<String> = entries.filter_map(name).take(LISTED_MAX).collect();
        names.sort();
        return Found::Folder(names);
    }
    // A pipe would never end, a device may do anything when it is read.
    match File::open(&path) {
        Ok(file) if meta.is_file() => Found::File(file, meta.len()),
        _ => Found::Nothing,
    }
}

/// The path below the directory; None if it leads out of it.
fn relative(asked: &str) -> Option<PathBuf> {
    let decoded = percent_encoding::percent_decode_str(asked).decode_utf8().ok()?;
    let parts: Vec<&str> =
        decoded.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let is_safe = |part: &&str| *part != ".." && !part.contains('\0');
    parts.iter().all(is_safe).then(|| parts.iter().collect())
}

/// The bytes that the file has now; what is added meanwhile is not waited for.
fn stream(file: File, bytes: u64, pool: CpuPool) -> Response<Body> {
    let mut rest = file.take(bytes);
    let chunks = std::iter::from_fn(move || {
        let mut chunk = vec![0; CHUNK_BYTES];
        match rest.read(&mut chunk) {
            Ok(0) => None,
            Ok(read) => {
                chunk.truncate(read);
                Some(Ok(Bytes::from(chunk)))
            }
            Err(error) => Some(Err(error.into())),
        }
    });
    let mut response = Response::new(Body::pooled_chunks(chunks, pool));
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // Log lines are of others' making: no browser should take them for a page.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn escape(name: &str) -> String {
    let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    name.replace('"', "&#34;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_of_the_directory_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let logs = dir.path().join("log");
        std::fs::create_dir_all(logs.join("pods")).expect("created");
        std::fs::write(logs.join("pods/a.log"), "line").expect("written");
        std::fs::write(dir.path().join("secret"), "key").expect("written");
        std::os::unix::fs::symlink(dir.path().join("secret"), logs.join("link")).expect("linked");
        std::os::unix::fs::symlink("pods/a.log", logs.join("inside")).expect("linked");
        let cases = [
            ("", "folder inside link pods/"),
            ("/", "folder inside link pods/"),
            ("/pods", "folder a.log"),
            ("/pods/a.log", "file 4"),
            ("/pods//./a.log", "file 4"),
            ("/inside", "file 4"),
            ("/link", "nothing"),
            ("/../secret", "nothing"),
            ("/pods/..%2f..%2fsecret", "nothing"),
            ("/%2e%2e/secret", "nothing"),
            ("/none", "nothing"),
            ("/a%00b", "nothing"),
        ];
        for (asked, expected) in cases {
            let found = match find(&logs, asked) {
                Found::File(_, bytes) => format!("file {bytes}"),
                Found::Folder(names) => format!("folder {}", names.join(" ")),
                Found::Nothing => "nothing".to_owned(),
            };
            assert_eq!(found, expected, "{asked}");
        }
    }
}
