//! A server of any flavour: started, stopped, killed and started again.

use std::env;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::etcd::{self, Etcd, Part};
use crate::eventually::eventually;
use crate::http::Http;
use crate::kubectl::{Kubectl, Version};
use crate::peer::Peer;
use crate::process::{Process, directory, free_port};
use crate::process_cleanup::ProcessCleanup;
use crate::programs;

/// Which server, on which store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Pintle and nothing else.
    Embedded,
    /// Pintle on etcd.
    Etcd,
    /// The kube-apiserver at this path, on etcd.
    Peer(PathBuf),
}

impl Flavour {
    /// The flavour that the environment asks for; the crate's documentation has the table.
    pub fn from_env() -> Self {
        if let Some(path) = env::var_os("PINTLE_PEER") {
            return Self::Peer(path.into());
        }
        match env::var("PINTLE_BACKEND").as_deref() {
            Ok("etcd") => Self::Etcd,
            Ok("embedded") | Err(_) => Self::Embedded,
            Ok(other) => panic!("PINTLE_BACKEND is embedded or etcd, not {other}"),
        }
    }

    pub fn is_peer(&self) -> bool {
        matches!(self, Self::Peer(_))
    }
}

/// A running server with a data directory of its own; dropping it stops the one and deletes the other.
pub struct Server {
    flavour: Flavour,
    address: Option<Address>,
    /// Additional flags for the next start.
    flags: Vec<String>,
    /// File size limit of Pintle's next run, in KB.
    file_limit: Option<u64>,
    /// Limit of open files of Pintle's next run.
    descriptor_limit: Option<u64>,
    /// What Pintle sees as /etc/hosts.
    hosts: Option<PathBuf>,
    /// The failpoint of Pintle's next run.
    dies_at: Option<String>,
    peer: Option<Peer>,
    // Dropped in this order: clients of the server, the server, its etcd, and the directory.
    controllers: Option<Process>,
    components: Vec<(&'static str, Process)>,
    process: Option<Process>,
    etcd: Option<Part>,
    cleanup: Arc<ProcessCleanup>,
}

/// The address and kubeconfig that a server prints.
struct Address {
    url: String,
    kubeconfig: PathBuf,
}

impl Server {
    /// Starts the flavour that the environment asks for; returns once it is ready.
    pub fn start() -> Self {
        Self::of(Flavour::from_env())
    }

    pub fn of(flavour: Flavour) -> Self {
        Self::with(flavour, &[])
    }

    /// With additional flags.
    pub fn with(flavour: Flavour, flags: &[&str]) -> Self {
        let etcd = (flavour != Flavour::Embedded).then(Part::shared);
        Self::over(flavour, etcd, flags)
    }

    /// A server on the default prefix of the shared etcd, which may have objects already. For one test
    /// only.
    pub fn on_plain_etcd(flavour: Flavour) -> Self {
        Self::over(flavour, Some(Part::plain(etcd::shared())), &[])
    }

    /// Pintle with a file of host names of its own. None: this user may not mount one.
    pub fn with_hosts(flavour: Flavour, flags: &[&str], hosts: &Path) -> Option<Self> {
        let mut probe = Command::new("unshare");
        let probe = probe.args(UNSHARE).arg("true").stderr(Stdio::null()).status();
        if !probe.is_ok_and(|status| status.success()) {
            return None;
        }
        let etcd = (flavour != Flavour::Embedded).then(Part::shared);
        let mut server = Self::new(flavour, etcd, Arc::new(ProcessCleanup::new()));
        server.set_flags(flags);
        server.hosts = Some(hosts.to_owned());
        server.start_again();
        Some(server)
    }

    fn over(flavour: Flavour, etcd: Option<Part>, flags: &[&str]) -> Self {
        let mut server = Self::new(flavour, etcd, Arc::new(ProcessCleanup::new()));
        server.set_flags(flags);
        server.start_again();
        server.controllers = server.start_controllers();
        server
    }

    /// Pintle over an etcd of several members.
    pub fn on_members(members: usize) -> Self {
        Self::on_own_etcd(Flavour::Etcd, members)
    }

    /// A server over an etcd of its own.
    pub fn on_own_etcd(flavour: Flavour, members: usize) -> Self {
        Self::on_own_etcd_with(flavour, members, &[])
    }

    /// The same with additional flags.
    pub fn on_own_etcd_with(flavour: Flavour, members: usize, flags: &[&str]) -> Self {
        let cleanup = Arc::new(ProcessCleanup::new());
        let etcd = Some(Part::plain(Arc::new(Etcd::start(&cleanup, members))));
        let mut server = Self::new(flavour, etcd, cleanup);
        server.set_flags(flags);
        server.start_again();
        server
    }

    /// Another server over the objects of this one, with a data directory of its own.
    #[must_use]
    pub fn beside(&self, flavour: Flavour) -> Self {
        self.beside_with(flavour, &[])
    }

    /// The same with additional flags.
    #[must_use]
    pub fn beside_with(&self, flavour: Flavour, flags: &[&str]) -> Self {
        let cleanup = Arc::new(ProcessCleanup::new());
        let etcd = self.etcd.clone();
        assert!(etcd.is_some() && flavour != Flavour::Embedded, "there is no etcd to share");
        let mut server = Self::new(flavour, etcd, cleanup);
        server.set_flags(flags);
        server.start_again();
        server
    }

    fn new(flavour: Flavour, etcd: Option<Part>, cleanup: Arc<ProcessCleanup>) -> Self {
        let peer = flavour.is_peer().then(|| Peer::new(cleanup.directory(), free_port()));
        Self {
            flavour,
            address: None,
            flags: Vec::new(),
            file_limit: None,
            descriptor_limit: None,
            hosts: None,
            dies_at: None,
            peer,
            controllers: None,
            components: Vec::new(),
            process: None,
            etcd,
            cleanup,
        }
    }

    /// Starts a server that was stopped or killed, with the same data and address, so that clients can
    /// reconnect.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "the server is still running");
        let mut process = if let (Flavour::Peer(program), Some(peer), Some(etcd)) =
            (&self.flavour, &self.peer, &self.etcd)
        {
            let url = Http::new(&peer.kubeconfig).url().to_owned();
            self.address = Some(Address { url, kubeconfig: peer.kubeconfig.clone() });
            let command = peer.command(program, etcd, &self.flags);
            Process::start("kube-apiserver", command, &self.cleanup)
        } else {
            let process = Process::start("pintle", self.command(), &self.cleanup);
            self.address = Some(process.wait_for_line(ready_line));
            process
        };
        let http = self.http();
        eventually("the server is ready", || {
            process.assert_alive();
            let request = Request::get("/readyz").body(Bytes::new()).expect("a valid request");
            http.try_request(request).is_ok_and(|answer| answer.code == 200).then_some(())
        });
        self.process = Some(process);
    }

    /// The controllers that Pintle has built in. For a kube-apiserver they are kube-controller-manager,
    /// which is started if it is in the same directory.
    fn start_controllers(&self) -> Option<Process> {
        let (Flavour::Peer(program), Some(peer)) = (&self.flavour, &self.peer) else { return None };
        let program = program.with_file_name("kube-controller-manager");
        let command = program.exists().then(|| peer.controllers_command(&program))?;
        Some(Process::start("kube-controller-manager", command, &self.cleanup))
    }

    /// Whether controllers delete namespaces, collect garbage and create default objects.
    pub fn has_controllers(&self) -> bool {
        !self.flavour.is_peer() || self.controllers.is_some()
    }

    /// The command line that started Pintle, for a test that starts a second one on the same data.
    pub fn same_again(&self) -> Option<Command> {
        if self.flavour != Flavour::Embedded {
            return None;
        }
        let mut command = Command::new(programs::pintle());
        command
            .arg(format!("--data-dir={}", self.data_directory().display()))
            .arg("--secure-port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Some(command)
    }

    /// Where Pintle keeps its objects and keys.
    pub fn data_directory(&self) -> PathBuf {
        self.directory().join("data")
    }

    fn command(&self) -> Command {
        let port = match &self.address {
            Some(address) => address.url.rsplit(':').next().unwrap_or("0").to_owned(),
            None => "0".to_owned(),
        };
        // The signal is ignored, so that a write beyond the limit fails as on a full disk.
        let files = self.file_limit.map(|kb| format!("trap '' XFSZ; ulimit -S -f {kb}; "));
        let descriptors = self.descriptor_limit.map(|count| format!("ulimit -n {count}; "));
        let limits: String = files.into_iter().chain(descriptors).collect();
        let mut command = if let Some(hosts) = &self.hosts {
            let mut shell = Command::new("unshare");
            let mount = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
            shell.args(UNSHARE).args(["bash", "-c", mount]).arg(hosts).arg(programs::pintle());
            shell
        } else if limits.is_empty() {
            Command::new(programs::pintle())
        } else {
            let mut shell = Command::new("bash");
            shell.arg("-c").arg(format!("{limits}exec \"$0\" \"$@\"")).arg(programs::pintle());
            shell
        };
        command
            .arg(format!("--data-dir={}", self.data_directory().display()))
            .arg(format!("--secure-port={port}"))
            // Over etcd the default is every address.
            .arg("--bind-address=127.0.0.1")
            .envs(self.dies_at.as_ref().map(|point| ("PINTLE_DIE_AT", point)));
        if let Some(etcd) = &self.etcd {
            command.arg(format!("--etcd-servers={}", etcd.etcd.url));
            command.arg(format!("--etcd-prefix={}", etcd.prefix));
            command.arg("--standalone-controllers=*");
        }
        command.args(&self.flags);
        command
    }

    /// Flags for the next start, besides those that every test needs.
    pub fn set_flags(&mut self, flags: &[&str]) {
        self.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    }

    /// Limits the file size in the next run of Pintle, to simulate a full disk.
    pub fn limit_files(&mut self, kilobytes: u64) {
        self.file_limit = Some(kilobytes);
    }

    /// Limits the number of open files in the next run of Pintle.
    pub fn limit_descriptors(&mut self, count: u64) {
        self.descriptor_limit = Some(count);
    }

    /// Makes Pintle's next run exit at the `nth` pass of a point of `store::failpoint`.
    pub fn die_at(&mut self, point: &str, nth: u64) {
        self.dies_at = Some(format!("{point}:{nth}"));
    }

    /// Waits until the server has exited at its failpoint.
    pub fn wait_for_death(&mut self) {
        let point = self.dies_at.take().expect("a crash point is set");
        self.process.take().expect("the server is running").wait_for_death(&point);
    }

    /// Lifts the file size limit of the running server.
    pub fn make_room(&mut self) {
        self.file_limit = None;
        let pid = self.process.as_ref().expect("the server is running").id().to_string();
        let status =
            Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:unlimited"]).status();
        assert!(status.expect("prlimit (util-linux) can be started").success());
    }

    /// A command of Pintle other than serving, such as `check`, on the data of this server.
    pub fn pintle(&self, command: &[&str]) -> std::process::Output {
        let data = format!("--data-dir={}", self.data_directory().display());
        let output = Command::new(programs::pintle()).args(command).arg(data).output();
        output.expect("pintle can be started")
    }

    /// The etcd that it keeps its objects in.
    pub fn etcd(&self) -> Option<&Etcd> {
        self.etcd.as_ref().map(|part| &*part.etcd)
    }

    /// What the keys of its objects begin with.
    pub fn storage_prefix(&self) -> &str {
        self.etcd.as_ref().map_or("/registry", |part| &part.prefix)
    }

    /// A whole kube-controller-manager beside Pintle; None: there is none on this machine.
    pub fn run_controller_manager(&mut self) -> Option<()> {
        let program = programs::controller_manager()?;
        let pki = self.data_directory().join("pki");
        let mut command = Command::new(program);
        command
            .arg(format!("--kubeconfig={}", self.kubeconfig().display()))
            .arg(format!("--root-ca-file={}", pki.join("ca.crt").display()))
            .arg(format!("--service-account-private-key-file={}", pki.join("sa.key").display()))
            .arg("--use-service-account-credentials=true")
            .arg("--leader-elect=true")
            .arg("--secure-port=0");
        self.controllers = Some(Process::start("kube-controller-manager", command, &self.cleanup));
        Some(())
    }

    /// A component of the control plane beside the server, such as kube-scheduler; None: `tools/build` has not
    /// built it.
    pub fn run_component(&mut self, name: &'static str, flags: &[String]) -> Option<()> {
        let mut command = Command::new(programs::component(name)?);
        command.args(flags);
        self.components.push((name, Process::start(name, command, &self.cleanup)));
        Some(())
    }

    /// What a component printed so far; it has to be alive.
    pub fn component_log(&mut self, name: &str) -> String {
        let component = self.components.iter_mut().find(|(known, _)| *known == name);
        let (_, process) = component.expect("the component was started");
        process.assert_alive();
        process.log_since(0)
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        self.process.as_ref().map_or_else(String::new, |process| process.log_since(0))
    }

    /// What the controller manager printed so far.
    pub fn controllers_log(&self) -> String {
        self.controllers.as_ref().map_or_else(String::new, |process| process.log_since(0))
    }

    /// The process of the running server.
    pub fn id(&self) -> u32 {
        self.process.as_ref().expect("the server is running").id()
    }

    /// Stops the server with SIGTERM and returns its exit status.
    pub fn stop(&mut self) -> ExitStatus {
        self.process.take().expect("the server is running").stop()
    }

    /// Sends a signal, such as `TERM`, and goes on.
    pub fn signal(&self, name: &str) {
        self.process.as_ref().expect("the server is running").signal(name);
    }

    /// Waits until the server has ended after a signal.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.take().expect("the server is running").wait()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process.take().expect("the server is running").kill();
    }

    /// Compacts the server's etcd at this revision.
    pub fn compact(&self, revision: u64) {
        self.etcd.as_ref().expect("a server on etcd").etcd.compact(revision);
    }

    pub fn flavour(&self) -> &Flavour {
        &self.flavour
    }

    /// `https://host:port`
    pub fn url(&self) -> &str {
        &self.address().url
    }

    /// The administrator's.
    pub fn kubeconfig(&self) -> &Path {
        &self.address().kubeconfig
    }

    /// A directory for a test's own files, gone with the server.
    pub fn scratch(&self, name: &str) -> PathBuf {
        directory(&directory(self.directory(), "scratch"), name)
    }

    /// A raw client, as the administrator, over HTTP/1.1.
    pub fn http(&self) -> Http {
        Http::new(self.kubeconfig())
    }

    pub fn kubectl(&self, version: Version) -> Kubectl<'_> {
        Kubectl::new(self, version)
    }

    /// kube-rs, as the administrator. Made per test: it belongs to the runtime it is made on.
    pub async fn kube(&self) -> kube::Client {
        let file = Kubeconfig::read_from(self.kubeconfig()).expect("the kubeconfig can be read");
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .expect("kube-rs understands the kubeconfig");
        kube::Client::try_from(config).expect("kube-rs can be set up")
    }

    /// A new namespace whose name begins with what it is for.
    pub fn namespace(&self, purpose: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{purpose}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let namespace = json!({"metadata": {"name": name}});
        self.http().post("/api/v1/namespaces", &namespace).expect(201);
        name
    }

    pub(crate) fn directory(&self) -> &Path {
        self.cleanup.directory()
    }

    fn address(&self) -> &Address {
        self.address.as_ref().expect("a server has an address once it was ready")
    }
}

/// Mounts of its own, for any user where user namespaces are allowed.
const UNSHARE: [&str; 2] = ["--map-root-user", "--mount"];

/// Parses the server's ready line: `… https://host:port … kubectl --kubeconfig <path> get ns`.
fn ready_line(line: &str) -> Option<Address> {
    let unquoted = |word: &str| word.trim_matches(['`', '\'', '"', ',', '.', ':', ';']).to_owned();
    let mut words = line.split_whitespace();
    let url = unquoted(words.clone().find(|word| unquoted(word).starts_with("https://"))?);
    words.find(|word| *word == "--kubeconfig")?;
    Some(Address { url, kubeconfig: unquoted(words.next()?).into() })
}

/// The shared server as one test uses it: if the test fails, the server's log since its start is printed.
pub struct Shared {
    server: &'static Server,
    log_from: u64,
}

/// The server for all tests that neither stop it nor need exclusive use of it. Each works in a namespace
/// of its own.
pub fn shared() -> Shared {
    // A server that does not start poisons the lock, so that the other tests fail at once.
    static SHARED: Mutex<Option<&'static Server>> = Mutex::new(None);
    let server = *SHARED
        .lock()
        .expect("the shared server starts; the first test that failed says why it did not")
        .get_or_insert_with(|| Box::leak(Box::new(Server::start())));
    let log_from = server.process.as_ref().map_or(0, Process::log_bytes);
    Shared { server, log_from }
}

impl Deref for Shared {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.server
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(process) = &self.server.process
        {
            eprintln!("--- the server meanwhile:\n{}", process.log_since(self.log_from));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(process) = &self.process
        {
            eprintln!("--- the server's log:\n{}", process.log_since(0));
        }
    }
}
