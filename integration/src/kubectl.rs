//! kubectl as a user types it.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;

use crate::eventually::{PATIENCE, eventually};
use crate::process::{directory, forward_lines};
use crate::programs;
use crate::server::Server;

/// The kubectl of the server's own version, and the oldest one that is looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Current,
    Old,
}

/// kubectl, ready to be called on one server and in one namespace.
#[derive(Clone)]
pub struct Kubectl<'a> {
    server: &'a Server,
    version: Version,
    namespace: Option<String>,
    environment: Vec<(String, String)>,
}

impl<'a> Kubectl<'a> {
    pub(crate) fn new(server: &'a Server, version: Version) -> Self {
        Self { server, version, namespace: None, environment: Vec::new() }
    }

    /// The namespace for commands that do not name one.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// What a command that succeeds prints. `line` is split as a shell would: blanks separate words,
    /// quotes keep them together.
    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        self.ok_with_yaml(line, "")
    }

    /// As [`Self::ok`], for a command with `-f -`.
    #[track_caller]
    pub fn ok_with_yaml(&self, line: &str, documents: &str) -> String {
        let output = self.run(line, documents);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "kubectl {line}: {}\n{stdout}{stderr}", output.status);
        stdout
    }

    /// Waits for definitions (`crd/NAME`, `crd --all`) to be served. kubectl gives up at once on a
    /// definition that the CRD controller has not processed yet, because its conditions are null then.
    #[track_caller]
    pub fn established(&self, definitions: &str) {
        let line = format!("wait --for=condition=Established {definitions} --timeout=60s");
        eventually(&line, || {
            let output = self.run(&line, "");
            let stderr = text(&output.stderr);
            let early = stderr.contains(".status.conditions accessor error");
            let done = output.status.success();
            assert!(done || early, "kubectl {line}: {}\n{stderr}", output.status);
            done.then_some(())
        });
    }

    /// What a command that fails has to say about it.
    #[track_caller]
    pub fn fail(&self, line: &str) -> String {
        self.fail_with_yaml(line, "")
    }

    #[track_caller]
    pub fn fail_with_yaml(&self, line: &str, documents: &str) -> String {
        let output = self.run(line, documents);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(!output.status.success(), "kubectl {line} succeeds:\n{stdout}{stderr}");
        stderr
    }

    /// Everything a command leaves behind.
    pub fn run(&self, line: &str, documents: &str) -> Output {
        let mut child = self
            .command(line)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl can be started");
        let mut pipe = child.stdin.take().expect("stdin was asked for above");
        // kubectl takes everything that opens with a brace for JSON by default.
        let stdin = format!("---\n{documents}");
        // On a thread, because kubectl may print more than a pipe holds before it has read it all;
        // it may as well end without reading, so a broken pipe is fine.
        let writer = thread::spawn(move || pipe.write_all(stdin.as_bytes()));
        let output = child.wait_with_output().expect("kubectl can be waited for");
        let _ = writer.join();
        output
    }

    /// A command that goes on until it is dropped, such as `get -w`.
    pub fn follow(&self, line: &str) -> Following {
        let mut child = self
            .command(line)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("kubectl can be started");
        let lines = forward_lines(child.stdout.take().expect("stdout was asked for above"), None);
        Following { child, lines }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(programs::tool(match self.version {
            Version::Current => "kubectl",
            Version::Old => "kubectl-1.32",
        }));
        // Nothing of the machine's own configuration counts.
        let home = directory(self.server.directory(), "home");
        command
            .env("HOME", &home)
            .env("KUBECONFIG", self.server.kubeconfig())
            .env("KUBECACHEDIR", home.join("cache"))
            .env("KUBERC", "off")
            .env_remove("KUBECTL_EXTERNAL_DIFF")
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        // `--namespace` in the middle of the flags would hide a `--` that belongs to the command.
        if let Some(namespace) = &self.namespace {
            command.arg(format!("--namespace={namespace}"));
        }
        command.args(words(line));
        command
    }
}

/// A kubectl that is still running.
pub struct Following {
    child: Child,
    lines: Receiver<String>,
}

impl Following {
    /// The next line for which `matches` holds, skipping others.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, matches: impl Fn(&str) -> bool) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if matches(&line) => return line,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => panic!("kubectl did not print {what}"),
                Err(RecvTimeoutError::Disconnected) => panic!("kubectl ended before {what}"),
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Splits at blanks outside of single or double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in line.chars() {
        match (quote, character) {
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (Some(open), _) if open == character => quote = None,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}
