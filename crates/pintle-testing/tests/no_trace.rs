//! What is left when a server was dropped. A binary with one test: others have threads and files, too.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams, WatchParams};
use pintle_testing::Server;

/// The names of the threads of this process.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        let comm = task.expect("readable").path().join("comm");
        std::fs::read_to_string(comm).unwrap_or_default().trim().to_owned()
    };
    let mut names: Vec<_> = tasks.map(name).filter(|name| !name.is_empty()).collect();
    names.sort();
    names
}

/// What the open file descriptors of this process refer to: `socket:[7]`, `anon_inode:[eventpoll]`.
fn descriptors() -> Vec<String> {
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux");
    // The directory itself is open while it is read, and gone when its link is.
    let target = |fd: std::io::Result<std::fs::DirEntry>| {
        Some(std::fs::read_link(fd.ok()?.path()).ok()?.display().to_string())
    };
    let mut targets: Vec<_> = open.filter_map(target).collect();
    targets.retain(|target| !target.starts_with("/proc/"));
    targets.sort();
    targets
}

fn resident_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("is listed");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

fn files() -> Vec<std::path::PathBuf> {
    let here = std::fs::read_dir(".").expect("readable");
    let mut files: Vec<_> = here.map(|file| file.expect("readable").path()).collect();
    files.sort();
    files
}

/// A server with objects, a watch and a client over TLS, dropped while they are there.
async fn start_use_and_drop() {
    let server = Server::builder().tls().start().await.expect("starts");
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let mut map = ConfigMap::default();
    map.metadata.generate_name = Some("a-".to_owned());
    for _ in 0..10 {
        maps.create(&PostParams::default(), &map).await.expect("created");
    }
    let mut watch = Box::pin(maps.watch(&WatchParams::default(), "0").await.expect("watched"));
    assert!(futures_util::StreamExt::next(&mut watch).await.is_some(), "has begun");
    let config = server.config().await.expect("a port is open");
    let remote = kube::Client::try_from(config).expect("a usable configuration");
    let over_tls: Api<ConfigMap> = Api::default_namespaced(remote);
    over_tls.list(&ListParams::default()).await.expect("listed");
    assert!(threads().iter().any(|name| name == "pintle"));
    drop(server);
    let refused = maps.list(&ListParams::default()).await.expect_err("is gone");
    assert!(refused.to_string().contains("the server was dropped"), "{refused}");
}

fn use_servers(count: usize) {
    for _ in 0..count {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(start_use_and_drop());
    }
}

/// A thread that has been told to end takes a moment to be gone from the list.
fn wait_for_threads(expected: &[String]) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while threads() != expected && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(threads(), expected);
}

const SERVERS: usize = 50;
/// Far less than a server has: one of them kept several megabytes when its parts referred to each other.
const KEPT_BY_ALL_MEGABYTES: u64 = 50;

#[test]
fn nothing_is_left_of_dropped_servers() {
    let (files_before, threads_before) = (files(), threads());
    // The first ones fill what the process keeps: parsed definitions, static metrics, the allocator's arenas.
    use_servers(5);
    wait_for_threads(&threads_before);
    let (descriptors_before, before) = (descriptors(), resident_megabytes());
    use_servers(SERVERS);
    wait_for_threads(&threads_before);
    let after = resident_megabytes();
    println!("{SERVERS} servers: {before} MB before, {after} MB after");
    assert_eq!(descriptors(), descriptors_before);
    assert!(after < before + KEPT_BY_ALL_MEGABYTES, "{before} MB before, {after} MB after");
    assert_eq!(files(), files_before);
}
