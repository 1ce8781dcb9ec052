//! Snapshots of a store in use, the check of a store, and how much disk a store takes.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use integration::{Flavour, Server, eventually};
use serde_json::json;

use super::load::{CONFIG_MAPS, Load};
use super::rounds;
use crate::assert_contains;

#[test]
fn a_snapshot_under_load_restores_to_what_was_there_at_its_revision() {
    let mut server = Server::of(Flavour::Embedded);
    let mut load = Load::new(&server.http());
    load.begin(&[server.http()]);
    let saved: Vec<(u64, PathBuf)> = (0..rounds(3))
        .map(|n| {
            // Under load: clients have written since the last one.
            let before = version(&server);
            eventually("the writer writes", || (version(&server) > before + 20).then_some(()));
            let file = server.scratch("snapshots").join(n.to_string());
            let name = file.display().to_string();
            let revision = revision(&good(&server.pintle(&["snapshot", "save", &name])));
            assert!(revision >= before, "it has everything that was acknowledged before");
            let status = good(&server.pintle(&["snapshot", "status", &name]));
            assert_eq!(self::revision(&status), revision);
            (revision, file)
        })
        .collect();
    load.end_writing();
    let (operations, verified) = load.verify(&server.http());
    eprintln!("{operations} operations, {verified:?}");

    let store = server.data_directory().join("store");
    for (revision, file) in saved {
        assert!(server.stop().success());
        let name = file.display().to_string();
        let refused = server.pintle(&["snapshot", "restore", &name]);
        assert!(!refused.status.success(), "a store that is there is not overwritten");
        fs::remove_dir_all(&store).expect("the store can be removed");
        let restored = good(&server.pintle(&["snapshot", "restore", &name]));
        assert_eq!(self::revision(&restored), revision);
        assert_eq!(self::revision(&good(&server.pintle(&["check"]))), revision);
        server.start_again();
        load.verify_restored(revision, &server.http());
        server.http().post(CONFIG_MAPS, &json!({"metadata": {"name": "goes-on"}})).expect(201);
    }
}

#[test]
fn a_flipped_bit_is_found_by_the_check_and_refused_by_the_server() {
    let mut server = Server::of(Flavour::Embedded);
    for n in 0..20 {
        let text = "whole".repeat(400);
        let object = json!({"metadata": {"name": format!("cm-{n}")}, "data": {"text": text}});
        server.http().post(CONFIG_MAPS, &object).expect(201);
    }
    let used = server.pintle(&["check"]);
    assert!(!used.status.success(), "a store in use cannot be checked");
    assert!(server.stop().success());
    good(&server.pintle(&["check"]));

    let log = server.data_directory().join("store/000000000001.log");
    let whole = fs::read(&log).expect("the log can be read");
    let needle = b"wholewhole";
    let at = whole.windows(needle.len()).position(|part| part == needle).expect("it is there");
    let mut damaged = whole.clone();
    damaged[at] ^= 0x04;
    fs::write(&log, &damaged).expect("the log can be written");
    let found = server.pintle(&["check"]);
    assert!(!found.status.success(), "{found:?}");
    assert_contains(&String::from_utf8_lossy(&found.stderr), &["000000000001.log", "byte"]);
    let refused = server.same_again().expect("it has its own store").output();
    let refused = refused.expect("it can be started");
    assert!(!refused.status.success(), "a damaged store is not served");
    assert_contains(&String::from_utf8_lossy(&refused.stderr), &["000000000001.log is damaged"]);
    assert_eq!(fs::read(&log).expect("the log can be read"), damaged, "nothing is thrown away");

    fs::write(&log, &whole).expect("the log can be written");
    server.start_again();
    let list = server.http().get(&format!("{CONFIG_MAPS}?limit=500")).expect(200);
    let ours = list["items"].as_array().expect("a list").iter();
    let ours = ours.filter(|item| item["data"]["text"] == "whole".repeat(400));
    assert_eq!(ours.count(), 20);
}

#[test]
fn disk_space_of_overwritten_revisions_is_reclaimed() {
    let mut server = Server::of(Flavour::Embedded);
    assert!(server.stop().success());
    server.set_flags(&["--etcd-compaction-interval=1s"]);
    server.start_again();
    let http = server.http();
    let mut written = 0;
    let text = "x".repeat(500_000);
    for n in 0..100 * rounds(1) {
        let object =
            json!({"metadata": {"name": "cm"}, "data": {"n": n.to_string(), "text": text}});
        let answer = match n {
            0 => http.post(CONFIG_MAPS, &object),
            _ => http.put(&format!("{CONFIG_MAPS}/cm"), &object),
        };
        assert!(answer.code < 300, "{}", answer.text());
        written += text.len() as u64;
    }
    let bytes = || {
        let files = fs::read_dir(server.data_directory().join("store")).expect("a directory");
        files.map(|file| file.and_then(|file| file.metadata()).map_or(0, |file| file.len())).sum()
    };
    assert!(written > 48_000_000);
    // One object, and what has happened since the last compaction.
    eventually("the disk is given back", || {
        let used: u64 = bytes();
        (used < 20_000_000).then_some(())
    });
}

/// The newest version.
fn version(server: &Server) -> u64 {
    let list = server.http().get(&format!("{CONFIG_MAPS}?limit=1")).expect(200);
    let version = list["metadata"]["resourceVersion"].as_str();
    version.and_then(|text| text.parse().ok()).expect("a list has a version")
}

/// What a command that went well has said.
#[track_caller]
fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `saved …: revision 17, 5 keys, …`
#[track_caller]
fn revision(said: &str) -> u64 {
    let (_, rest) = said.split_once(": revision ").expect("it names a revision");
    rest.split(',').next().and_then(|number| number.parse().ok()).expect("a revision is a number")
}
