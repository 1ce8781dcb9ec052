//! Kills the processes and deletes the directory of a test, however the test process ends.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;

/// Owns a directory and the processes that work in it.
///
/// A server shared by all tests lives in a static, which is never dropped, and a test process may
/// be killed. So a shell reads from a pipe: when the pipe closes, for whatever
/// reason, it kills the remaining processes and removes the directory.
pub(crate) struct ProcessCleanup {
    directory: PathBuf,
    pipe: Mutex<Option<ChildStdin>>,
    shell: Child,
}

const SCRIPT: &str = r#"
trap '' INT TERM
left=' '
while read -r what pid; do
    case $what in
    started) left="$left$pid " ;;
    exited) left="${left%% $pid *} ${left#* $pid }" ;;
    esac
done
for pid in $left; do kill -9 "$pid"; done
rm -rf "$0" || rm -rf "$0"
"#;

impl ProcessCleanup {
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("pintle-test-")
            .tempdir()
            .expect("a temporary directory can be made")
            .keep();
        let mut shell = Command::new("sh")
            .arg("-c")
            .arg(SCRIPT)
            .arg(&directory)
            .stdin(Stdio::piped())
            // Inherited, they would keep a pipe behind `cargo test` open.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh can be started");
        let pipe = shell.stdin.take();
        Self { directory, pipe: Mutex::new(pipe), shell }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn register(&self, pid: u32) {
        self.send("started", pid);
    }

    pub(crate) fn unregister(&self, pid: u32) {
        self.send("exited", pid);
    }

    fn send(&self, what: &str, pid: u32) {
        if let Some(pipe) = self.pipe.lock().expect("no thread panics while it writes").as_mut() {
            writeln!(pipe, "{what} {pid}").expect("the shell reads until the pipe closes");
        }
    }
}

impl Drop for ProcessCleanup {
    fn drop(&mut self) {
        if let Ok(mut pipe) = self.pipe.lock() {
            pipe.take();
        }
        // The exit code has no meaning: a process may have exited before.
        let _ = self.shell.wait();
    }
}
