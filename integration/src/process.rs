//! A background process whose output goes to a file.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use crate::eventually::{PATIENCE, eventually};
use crate::process_cleanup::ProcessCleanup;

pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// Locked while a test waits for a line, so that tests can share a process.
    stdout: Mutex<Receiver<String>>,
    cleanup: Arc<ProcessCleanup>,
}

impl Process {
    /// Starts a program whose output goes to `<name>.log` in the cleanup's directory. A program that
    /// is started again continues its log.
    pub(crate) fn start(name: &str, mut command: Command, cleanup: &Arc<ProcessCleanup>) -> Self {
        let log = cleanup.directory().join(format!("{name}.log"));
        let open = || OpenOptions::new().create(true).append(true).open(&log).expect("a log file");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(open())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}: {command:?}"));
        cleanup.register(child.id());
        let pipe = child.stdout.take().expect("stdout was asked for above");
        let stdout = Mutex::new(forward_lines(pipe, Some(open())));
        Self { name: name.to_owned(), child, log, stdout, cleanup: Arc::clone(cleanup) }
    }

    /// The first line on stdout for which `find` has an answer.
    pub(crate) fn wait_for_line<T>(&self, find: impl Fn(&str) -> Option<T>) -> T {
        let stdout = self.stdout.lock().expect("no holder panics");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match stdout.recv_timeout(left) {
                Ok(line) => {
                    if let Some(answer) = find(&line) {
                        return answer;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.give_up("is not ready"),
                Err(RecvTimeoutError::Disconnected) => self.give_up("ended before it was ready"),
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Panics, with the log, when the program has ended: there is nothing left to wait for.
    pub(crate) fn assert_alive(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            self.give_up(&format!("ended with {status}"));
        }
    }

    /// Asks the program to end and waits until it has.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        let name = self.name.clone();
        eventually(&format!("{name} ends after SIGTERM"), || {
            self.child.try_wait().expect("a child can be waited for")
        })
    }

    /// Waits until a program that was asked to end has done so.
    pub(crate) fn wait(mut self) -> ExitStatus {
        let name = self.name.clone();
        eventually(&format!("{name} ends"), || {
            self.child.try_wait().expect("a child can be waited for")
        })
    }

    /// Ends the program without giving it a chance to do anything about it.
    pub(crate) fn kill(mut self) {
        self.kill_and_wait();
    }

    /// Waits until the program has ended by itself.
    pub(crate) fn wait_for_death(mut self, why: &str) {
        let status = eventually(&format!("{} dies at {why}", self.name), || {
            self.child.try_wait().expect("a child can be waited for")
        });
        assert_eq!(status.signal(), Some(SIGABRT), "{status}: {}", self.log_since(0));
    }

    /// What the program has printed since its log was `from` bytes long.
    pub(crate) fn log_since(&self, from: u64) -> String {
        let mut text = Vec::new();
        if let Ok(mut log) = File::open(&self.log) {
            let _ = log.seek(SeekFrom::Start(from));
            let _ = log.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        self.log.metadata().map_or(0, |metadata| metadata.len())
    }

    /// The standard library can only kill; everything else is the business of kill(1).
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status()
            .expect("kill(1) can be started");
        assert!(status.success(), "{} is not there to get SIG{name}", self.name);
    }

    fn kill_and_wait(&mut self) {
        // Both fail only when it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn give_up(&self, what: &str) -> ! {
        panic!("{} {what}; its log:\n{}", self.name, self.log_since(0));
    }
}

const SIGABRT: i32 = 6;

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_and_wait();
        self.cleanup.unregister(self.child.id());
    }
}

/// Reads lines on a thread of their own, so that the writer never waits for a test and a test can
/// wait with a deadline.
pub(crate) fn forward_lines(
    pipe: impl Read + Send + 'static,
    mut copy: Option<File>,
) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            let Ok(line) = line else { break };
            if let Some(copy) = &mut copy {
                // In one write: the program's stderr goes to the same file.
                let _ = copy.write_all(format!("{line}\n").as_bytes());
            }
            // Without a receiver the pipe still has to be drained.
            let _ = sender.send(line);
        }
    });
    lines
}

/// A port that was free a moment ago, for programs that cannot pick one themselves.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// Makes a directory inside another, which may exist.
pub(crate) fn directory(parent: &Path, name: &str) -> PathBuf {
    let path = parent.join(name);
    std::fs::create_dir_all(&path).expect("a directory can be made in the data directory");
    path
}
