//! Accounts for every task and thread that is started without `background::Tasks`: a panic of it would
//! be noticed by nobody.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Files below `crates/` that start tasks or threads by themselves, how many, and why that is right.
const SPAWNS: &[(&str, usize, &str)] = &[
    // What is awaited where it is started: a panic of it is an error of its caller.
    ("aggregator/src/remote_spec_controller.rs", 1, AWAITED),
    ("aggregator/src/server.rs", 1, AWAITED),
    ("audit/src/backend.rs", 1, AWAITED),
    ("pintle/src/admission_manifests.rs", 1, AWAITED),
    ("pintle/src/discovery_publisher.rs", 1, AWAITED),
    ("serve/src/logs.rs", 1, AWAITED),
    ("serve/src/pki.rs", 1, AWAITED),
    ("serve/src/pki/files.rs", 1, AWAITED),
    ("pintle/src/post_start_hooks.rs", 1, "a part of a hook, which awaits it and panics with it"),
    ("pintle/src/servers/config.rs", 1, "files of keys, awaited before the port opens"),
    ("serve/src/profile.rs", 1, AWAITED),
    ("serve/src/tls.rs", 1, AWAITED),
    // Of one connection or one request: it ends with them, and a panic costs no other.
    ("client/src/connection.rs", 2, "one connection each; calls on it fail when it ends"),
    ("egress/src/http_connect.rs", 1, "one tunnel; it is closed when its task ends"),
    ("egress/src/konnectivity.rs", 1, "one tunnel; it is closed when its task ends"),
    ("pintle-testing/src/in_memory.rs", 1, "one connection of a test"),
    ("pintle/src/envtest.rs", 1, "one connection to the stand-in for etcd"),
    ("serve/src/connection/linger.rs", 1, "what is left of one connection, for some seconds"),
    ("serve/src/debug_socket.rs", 1, "one connection to the debug socket"),
    ("serve/src/listener.rs", 2, "one connection each, which `Registration` takes off the list"),
    ("serve/src/take_over.rs", 1, "one upgraded connection, with its guards"),
    ("serve/src/websocket.rs", 1, "one WebSocket"),
    ("audit/src/auditor.rs", 3, "flushes are awaited; the others are the event of one request"),
    (
        "builtin/src/core/service/allocate.rs",
        1,
        "gives addresses back; the repair finds what is left",
    ),
    ("builtin/src/core/service/ports.rs", 1, "gives ports back; the repair finds what is left"),
    (
        "registry/src/allocation.rs",
        2,
        "one write, which is awaited; an `InFlight` that is dropped abandons",
    ),
    ("pintle/src/tokens.rs", 1, "notes one use of a token; the next use does it again"),
    // Started again by their owner.
    (
        "admission/src/quota/plugin.rs",
        1,
        "decides what waits; its `Drop` lets the next request start another",
    ),
    (
        "aggregator/src/remote_reflectors.rs",
        1,
        "a set that starts a reflector again that has panicked",
    ),
    (
        "pintle/src/cache_informer.rs",
        2,
        "a set that panics with its controller, which is supervised",
    ),
    (
        "store/src/cache.rs",
        2,
        "a reflector that catches its panics and lists again; the other is awaited",
    ),
    (
        "client/src/pool.rs",
        2,
        "one connection; closes idle ones, and its `Drop` lets the next one start it",
    ),
    (
        "flowcontrol/src/priority_level.rs",
        1,
        "a timer, and its `Drop` lets the next request start it",
    ),
    ("apiextensions/src/crd_controller.rs", 1, "a timer that sends one message"),
    (
        "audit/src/log_file/backups.rs",
        1,
        "cleans up once; its `Drop` lets the next rotation start another",
    ),
    // Threads for as long as the process lives.
    (
        "store/src/embedded.rs",
        2,
        "the writer, whose end the task store-writer waits for; the other is awaited",
    ),
    ("serve/src/cpu_pool.rs", 1, "catch the panics of what they run, which are their requests'"),
    ("serve/src/lifecycle.rs", 1, "signals; the server stops when the thread ends"),
    (
        "pintle/src/servers/generic.rs",
        1,
        "flushes standard error; the check `log` fails without it",
    ),
    (
        "pintle/src/logging/output.rs",
        1,
        "flushes buffered lines, which a full buffer and the end do as well",
    ),
    ("pintle/src/hosted.rs", 1, "the server inside of another process; its start fails with it"),
    // The supervisor, and tests of other crates.
    ("background/src/lib.rs", 4, "here they are supervised"),
    ("store/src/contract.rs", 3, "tests of backends"),
    ("store/src/embedded/crash_points.rs", 2, "tests"),
];

const AWAITED: &str = "it is awaited where it is started";

/// What starts a task or a thread.
const CALLS: &[&str] = &[
    "tokio::spawn(",
    "task::spawn(",
    "spawn_blocking(",
    "spawn_local(",
    "thread::spawn(",
    ".spawn(",
];

#[test]
fn every_task_is_supervised_or_accounted_for() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&crates).expect("the crates") {
        let source = entry.expect("a crate").path().join("src");
        count(&crates, &source, &mut found);
    }
    assert!(found.len() > 20, "the crates are not where they are looked for");
    for (file, number, reason) in SPAWNS {
        assert!(!reason.is_empty(), "{file}");
        let there = found.remove(*file).unwrap_or(0);
        assert_eq!(there, *number, "{file} starts another number of tasks and threads by itself");
    }
    assert!(
        found.is_empty(),
        "tasks and threads that nothing supervises; use background::Tasks, or say why not: {found:?}"
    );
}

fn count(crates: &Path, directory: &Path, found: &mut BTreeMap<String, usize>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_test = ["tests", "testing"].contains(&name.trim_end_matches(".rs"))
            || name.ends_with("_tests.rs");
        if is_test {
            continue;
        }
        if path.is_dir() {
            count(crates, &path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let number = spawns(&path);
            if number > 0 {
                let file = path.strip_prefix(crates).expect("below the crates");
                found.insert(file.display().to_string(), number);
            }
        }
    }
}

/// Lines that start something, up to the module of tests at the end of the file.
fn spawns(path: &PathBuf) -> usize {
    let text = fs::read_to_string(path).expect("a source file");
    let mut number = 0;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().map_or("", |next| next.trim());
        if line.trim() == "#[cfg(test)]" && next.contains("mod ") && next.ends_with('{') {
            break;
        }
        let is_code = !line.trim_start().starts_with("//");
        number += usize::from(is_code && CALLS.iter().any(|call| line.contains(call)));
    }
    number
}
