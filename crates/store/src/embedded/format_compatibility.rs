//! Stores that earlier versions wrote, kept in `testdata/<format version>/`: each must open for ever.
//!
//! A directory has the log and its hint files as a server left them, a snapshot of the same store, and
//! `contents.txt`, which says what has to be found in both. `docs/storage-format.md` says when to add
//! another.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::record::RecordKind;
use super::segment::Segment;
use super::*;
use crate::{Expect, Write};

/// The time of all servers here. Keys that expire do so an hour later.
const NOW_MS: u64 = 1_700_000_000_000;
const HOUR_MS: u64 = 3_600_000;

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

fn open(dir: &Path, now_ms: u64) -> Embedded {
    let disk = Box::new(RealDisk { dir: dir.to_owned() });
    // Small segments, so that a few kilobytes have several.
    let tuning =
        Tuning { segment_bytes: 4096, clock: Arc::new(move || now_ms), ..Tuning::new(None) };
    Embedded::start(disk, tuning).unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
}

/// Copies the files with these endings, so that a test may write to them.
fn copy(from: &Path, to: &Path, endings: &[&str]) {
    make_private(to).expect("makes a directory");
    for file in std::fs::read_dir(from).expect("reads") {
        let path = file.expect("reads").path();
        let ending = path.extension().unwrap_or_default().to_str().unwrap_or_default();
        if endings.contains(&ending) {
            std::fs::copy(&path, to.join(path.file_name().expect("a file"))).expect("copies");
        }
    }
}

/// Everything that can be read from a store: revisions, the oldest and the newest state, and the changes
/// between them as a watch has them.
async fn contents(store: &Embedded) -> String {
    let compacted = store.store.index.read().compacted;
    let revision = store.revision().await.expect("has a revision");
    let mut text = format!("revision {revision}\ncompacted {compacted}\n");
    for at in [compacted, revision] {
        let _ = writeln!(text, "\nstate at {at}");
        for item in store.range(Range::of("").at(at)).await.expect("reads").items {
            let KeyValue { key, value, create_revision, mod_revision, expires_ms, .. } = item;
            let expires = expires_ms.map_or_else(|| "-".to_owned(), |at| at.to_string());
            let value = checksum(Some(&value));
            let _ = writeln!(text, "{key} {create_revision} {mod_revision} {expires} {value}");
        }
    }
    let _ = writeln!(text, "\nchanges after {compacted}");
    let mut watch = store.watch("", compacted).await.expect("starts");
    for change in crate::contract::collect(&mut watch, revision).await {
        let value = checksum(change.value.as_deref());
        let _ = writeln!(text, "{} {} {value}", change.revision, change.key);
    }
    text
}

fn checksum(value: Option<&[u8]>) -> String {
    value.map_or_else(
        || "deleted".to_owned(),
        |value| format!("{} bytes {:08x}", value.len(), crc32fast::hash(value)),
    )
}

#[tokio::test]
async fn a_store_of_every_earlier_format_opens_with_its_exact_contents_and_is_writable() {
    let mut formats = 0;
    for dir in std::fs::read_dir(testdata()).expect("reads") {
        let from = dir.expect("reads").path();
        if !from.is_dir() {
            continue;
        }
        formats += 1;
        let expected = std::fs::read_to_string(from.join("contents.txt")).expect("reads");
        let root = tempfile::tempdir().expect("makes a directory");
        // The hint files are optional, and a snapshot holds the same store.
        let (hinted, bare) = (root.path().join("hinted"), root.path().join("bare"));
        copy(&from, &hinted, &["log", "idx"]);
        copy(&from, &bare, &["log"]);
        let restored = root.path().join("restored");
        let snapshot = from.join("store.snapshot");
        let summary = backup::status(&snapshot).expect("is a snapshot");
        assert_eq!(backup::restore(&snapshot, &restored).expect("is restored"), summary);
        for dir in [hinted, bare, restored] {
            let store = open(&dir, NOW_MS);
            assert_eq!(contents(&store).await, expected, "{}", dir.display());
            let revision = summary.revision;
            assert_eq!(store.revision().await.expect("has a revision"), revision);
            let next = store.write(Write::create("/registry/new", "v")).await.expect("writes");
            assert_eq!(next, revision + 1);
            let refused = store.write(Write::create("/registry/configmaps/a/0", "v")).await;
            assert!(matches!(refused, Err(StoreError::Conflict { current: Some(_) })));
            drop(store);

            // An hour later the keys with a TTL go, one revision each.
            let store = open(&dir, NOW_MS + 2 * HOUR_MS);
            let expiring = expected.lines().filter(|line| line.starts_with("/registry/events/"));
            let mut watch = store.watch("", next).await.expect("starts");
            while store.revision().await.expect("has a revision") < next + 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let changes = crate::contract::collect(&mut watch, next + 2).await;
            assert!(changes.iter().all(|change| change.value.is_none()), "{changes:?}");
            assert_eq!((changes.len(), expiring.count()), (2, 4), "two, in two states");
            store.compact(next + 2).await.expect("compacts");
            drop(store);
            let store = open(&dir, NOW_MS);
            assert!(store.get("/registry/new").await.expect("reads").is_some());
            assert!(store.get("/registry/events/a/0").await.expect("reads").is_none());
            drop(store);
            backup::check(&dir).expect("is whole");
        }
    }
    assert!(formats > 0, "the stores of earlier versions are there");
}

/// Writes `testdata/v1`. Only for a new format, into a directory of its own: what is there was written
/// by the version that had the format, and is never written again.
///
/// `cargo test -p store --lib write_testdata -- --ignored`
#[tokio::test]
#[ignore = "writes files into the repository; run once for each storage format"]
async fn write_testdata() {
    let dir = testdata().join("v1");
    assert!(!dir.exists(), "{} is never written again", dir.display());
    make_private(&dir).expect("makes a directory");
    let store = open(&dir, NOW_MS);
    let key = |n: u64| format!("/registry/configmaps/{}/{}", ["a", "b"][n as usize % 2], n / 2);
    let value = |n: u64| vec![b'a' + (n % 26) as u8; 150 + (n % 7) as usize * 40];
    for n in 0..3 {
        store.write(Write::create(format!("/registry/old/{n}"), value(n))).await.expect("writes");
    }
    for n in 0..110 {
        let write = Write::put(key(n % 12), Expect::Any, value(n));
        store.write(write).await.expect("writes");
    }
    // Neighbours of a key, an empty value, bytes that are not text.
    for (key, value) in [("/registry/configmaps/a", &b""[..]), ("/registry/umläut", &[0, 255, 10])]
    {
        store.write(Write::create(key, value.to_vec())).await.expect("writes");
    }
    let ttl = Some(Duration::from_millis(HOUR_MS));
    for n in 0..2 {
        let write = Write::create(format!("/registry/events/a/{n}"), value(n)).with_ttl(ttl);
        store.write(write).await.expect("writes");
    }
    store.write(Write::delete(key(3), Expect::Any)).await.expect("deletes");
    let compacted = store.revision().await.expect("has a revision");
    // A value that is replaced after the compacted revision is moved together with the revision that
    // replaced it.
    store.write(Write::put("/registry/old/0", Expect::Any, value(9))).await.expect("writes");
    store.write(Write::delete("/registry/old/1", Expect::Any)).await.expect("deletes");
    for n in 110..122 {
        store.write(Write::put(key(n % 12), Expect::Any, value(n))).await.expect("writes");
    }
    store.write(Write::delete(key(5), Expect::Any)).await.expect("deletes");
    store.compact(compacted).await.expect("compacts");
    // Each request lets the writer thread reclaim a step.
    for _ in 0..100 {
        store.compact(compacted).await.expect("compacts");
    }
    for n in 130..136 {
        store.write(Write::put(key(n % 12), Expect::Any, value(n))).await.expect("writes");
    }
    store.write(Write::delete(key(7), Expect::Any)).await.expect("deletes");
    std::fs::write(dir.join("contents.txt"), contents(&store).await).expect("writes");
    drop(store);
    backup::save(&dir, &dir.join("store.snapshot")).expect("saves");

    let disk = RealDisk { dir: dir.clone() };
    let (mut kinds, mut segments, mut superseded) = (Vec::new(), 0, false);
    for name in disk.list().expect("lists") {
        let Some(number) = segment::number_of(&name) else { continue };
        segments += 1;
        let segment = Segment::open(&disk, number).expect("opens");
        let scanned = segment.scan(segment::HEADER_BYTES as u64, |_, _, decoded| {
            kinds.push(decoded.header.kind);
            superseded |= decoded.header.superseded > 0;
            true
        });
        scanned.expect("reads");
    }
    for kind in [RecordKind::Put, RecordKind::Delete, RecordKind::Moved, RecordKind::Compact] {
        assert!(kinds.contains(&kind), "{kind:?} is among the records");
    }
    assert!(segments > 2 && superseded, "{segments} segments");
}
