//! Cleaning up after a test process, however it ends.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;

/// Owns a directory and the processes that work in it.
///
/// A server shared by all tests lives in a static, which is never dropped, and a test process may
/// be killed. So a small shell holds the other end of a pipe: when the pipe closes, for whatever
/// reason, it ends the processes that are left and removes the directory.
pub(crate) struct Janitor {
    directory: PathBuf,
    pipe: Mutex<Option<ChildStdin>>,
    shell: Child,
}

const SCRIPT: &str = r#"
trap '' INT TERM
left=' '
while read -r what pid; do
    case $what in
    began) left="$left$pid " ;;
    ended) left="${left%% $pid *} ${left#* $pid }" ;;
    esac
done
for pid in $left; do kill -9 "$pid"; done
rm -rf "$0" || rm -rf "$0"
"#;

impl Janitor {
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

    pub(crate) fn began(&self, pid: u32) {
        self.tell("began", pid);
    }

    pub(crate) fn ended(&self, pid: u32) {
        self.tell("ended", pid);
    }

    fn tell(&self, what: &str, pid: u32) {
        if let Some(pipe) = self.pipe.lock().expect("nobody panics while telling").as_mut() {
            writeln!(pipe, "{what} {pid}").expect("the janitor listens until the pipe closes");
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        if let Ok(mut pipe) = self.pipe.lock() {
            pipe.take();
        }
        // Its exit code says nothing: a process may have ended before it was told to.
        let _ = self.shell.wait();
    }
}
