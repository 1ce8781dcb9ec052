//! The embedded store on a disk that loses power, tears writes, fails and fills up.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::fake_disk::{FakeDisk, Fault};
use super::*;
use crate::contract::{self, Random};
use crate::{Cache, Expect, MemoryBackend};

/// Small segments, so that every test has several.
fn tuning() -> Tuning {
    Tuning { segment_bytes: 4096, ..Tuning::new(None) }
}

fn open(disk: &FakeDisk) -> Embedded {
    Embedded::start(Box::new(disk.clone()), tuning()).expect("opens")
}

fn try_open(disk: &FakeDisk) -> Result<Embedded, StoreError> {
    Embedded::start(Box::new(disk.clone()), tuning())
}

async fn state(store: &dyn Backend, revision: Option<u64>) -> BTreeMap<String, (u64, Bytes)> {
    let mut range = Range::of("/");
    range.revision = revision;
    let found = store.range(range).await.expect("reads");
    found.items.into_iter().map(|kv| (kv.key.to_string(), (kv.mod_revision, kv.value))).collect()
}

async fn revision(store: &dyn Backend) -> u64 {
    store.revision().await.expect("has a revision")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_backend_fulfils_the_contract() {
    let small = async || Arc::new(open(&FakeDisk::default())) as Arc<dyn Backend>;
    contract::check_all(small).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_backend_fulfils_the_contract_on_a_real_disk() {
    let dir = tempfile::tempdir().expect("makes a directory");
    let count = AtomicU64::new(0);
    let real = async || {
        let n = count.fetch_add(1, Ordering::Relaxed);
        let options = EmbeddedOptions::new(dir.path().join(n.to_string()));
        Arc::new(Embedded::open(&options).expect("opens")) as Arc<dyn Backend>
    };
    contract::check_all(real).await;
}

/// `revision` returned a revision a moment before watches were notified of it. A reader that waited
/// for it in a cache, while other resources were written, waited for 100 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revision_is_returned_only_after_watches_have_it() {
    let store = Arc::new(open(&FakeDisk::default()));
    let mut watch = store.watch("/mine/", 1).await.expect("starts");
    let writer = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for n in 0..5000 {
                store
                    .write(Write::put("/others/a", Expect::Any, n.to_string()))
                    .await
                    .expect("writes");
            }
        }
    });
    while !writer.is_finished() {
        let named = revision(&*store).await;
        watch.request_progress();
        let delivered = watch.next().await.expect("goes on").revision;
        assert!(delivered >= named, "{named} was returned, and {delivered} delivered");
    }
    writer.await.expect("writes all");
}

/// The same operations on the model and the store. Sometimes the store is closed or killed and
/// reopened, and must be the same at every readable revision.
#[tokio::test]
async fn the_store_is_the_same_after_every_restart() {
    for seed in contract::seeds(25) {
        let mut random = Random::new(seed);
        let disk = FakeDisk::default();
        let model = MemoryBackend::new();
        let mut store = open(&disk);
        let mut compacted = 1;
        for step in 0..200 {
            let key = format!("/k{}", random.below(8));
            match random.below(20) {
                0 => {
                    drop(store);
                    store = open(&disk);
                }
                1 => {
                    let now = revision(&model).await;
                    compacted = compacted.max(now.saturating_sub(random.below(30)));
                    model.compact(compacted).await.expect("compacts");
                    store.compact(compacted).await.expect("compacts");
                }
                2..=6 => {
                    let write = Write::delete(key, Expect::Any);
                    let expected = model.write(write.clone()).await.ok();
                    assert_eq!(store.write(write).await.ok(), expected);
                }
                _ => {
                    let value = vec![b'a' + (step % 26) as u8; random.below(700) as usize];
                    let write = Write::put(key, Expect::Any, value);
                    let expected = model.write(write.clone()).await.ok();
                    assert_eq!(store.write(write).await.ok(), expected);
                }
            }
            if step % 10 == 9 {
                let killed = open(&disk.process_crash());
                let now = revision(&model).await;
                assert_eq!(revision(&killed).await, now, "seed {seed} step {step}");
                for at in compacted..=now {
                    let expected = state(&model, Some(at)).await;
                    assert_eq!(state(&store, Some(at)).await, expected, "seed {seed} at {at}");
                    assert_eq!(state(&killed, Some(at)).await, expected, "seed {seed} at {at}");
                }
                let mut expected = model.watch("/", compacted).await.expect("starts");
                let expected = contract::collect(&mut expected, now).await;
                let mut watch = killed.watch("/", compacted).await.expect("starts");
                assert_eq!(contract::collect(&mut watch, now).await, expected, "seed {seed}");
            }
        }
    }
}

/// Power is lost during writes. Whatever the disk kept of them, the store opens at a revision not
/// before the last acknowledged one, with the state of that revision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_power_loss() {
    for seed in contract::seeds(40) {
        let mut random = Random::new(seed);
        let disk = FakeDisk::default();
        let store = Arc::new(open(&disk));
        for round in 0..6 {
            let acknowledged = Arc::new(AtomicU64::new(revision(&*store).await));
            let writers: Vec<_> = (0..8)
                .map(|n| {
                    let (store, acknowledged) = (Arc::clone(&store), Arc::clone(&acknowledged));
                    let key = format!("/k{}", random.below(12));
                    let size = random.below(900) as usize;
                    let delete = random.below(4) == 0;
                    tokio::spawn(async move {
                        let write = if delete {
                            Write::delete(key, Expect::Any)
                        } else {
                            Write::put(key, Expect::Any, vec![b'a' + n; size])
                        };
                        if let Ok(revision) = store.write(write).await {
                            acknowledged.fetch_max(revision, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            tokio::time::sleep(Duration::from_micros(random.below(400))).await;
            let mut images = Vec::new();
            for _ in 0..4 {
                let before = acknowledged.load(Ordering::SeqCst);
                images.push((before, disk.power_loss(&mut random)));
            }
            for writer in writers {
                writer.await.expect("finishes");
            }
            for (before, image) in images {
                let crashed = try_open(&image)
                    .unwrap_or_else(|error| panic!("seed {seed} round {round}: {error}"));
                let reached = revision(&crashed).await;
                assert!(reached >= before, "seed {seed}: at {reached}, acknowledged {before}");
                let expected = state(&*store, Some(reached)).await;
                assert_eq!(state(&crashed, None).await, expected, "seed {seed} round {round}");
                let next = crashed.write(Write::put("/n", Expect::Any, "v")).await;
                assert_eq!(next.expect("writes"), reached + 1, "goes on from there");
            }
            if random.below(2) == 0 {
                let now = revision(&*store).await;
                store.compact(now - random.below(10).min(now - 1)).await.expect("compacts");
            }
        }
    }
}

/// A server was killed between a write and its sync, and the next one served what it found in the
/// page cache. Then power was lost, and a revision that clients had read was gone or belonged to
/// another write.
#[tokio::test]
async fn what_a_restarted_server_serves_survives_a_power_loss() {
    let disk = FakeDisk::default();
    disk.set_fault(None);
    script(&open(&disk)).await;
    let calls = disk.calls();
    let mut random = Random::new(5);
    for at_call in 1..=calls {
        let disk = FakeDisk::default();
        disk.crash_at(at_call);
        script(&open(&disk)).await;
        // Reclaiming runs between writes, so the number of calls differs a little.
        let Some(image) = disk.crash_image() else { continue };
        survives_power_loss(&image, &mut random, &format!("killed before call {at_call}")).await;
    }
}

/// A failed sync leaves pages in the cache that later syncs take for stored: syncing the log again
/// does not make a recovered write durable, it has to be written again.
#[tokio::test]
async fn what_a_failed_sync_left_in_the_page_cache_is_written_again_before_it_is_served() {
    let mut random = Random::new(7);
    for permanent in [false, true] {
        let disk = FakeDisk::default();
        let store = open(&disk);
        store.write(Write::create("/a", "v")).await.expect("writes");
        // The space is allocated already, so a write is two calls: write, sync.
        disk.set_fault(Some(Fault { at_call: 2, kind: ErrorKind::Other, permanent }));
        store.write(Write::create("/b", "v")).await.expect_err("is not synced");
        drop(store);
        let image = disk.process_crash();
        assert!(state(&open(&image.process_crash()), None).await.contains_key("/b"));
        survives_power_loss(&image, &mut random, &format!("for good: {permanent}")).await;
    }
}

/// Opens the disk as a restarted server does, and loses power in several ways: the next server
/// finds everything that this one has served.
async fn survives_power_loss(disk: &FakeDisk, random: &mut Random, case: &str) {
    let restarted = try_open(disk).unwrap_or_else(|error| panic!("{case}: {error}"));
    let (served, at) = (state(&restarted, None).await, revision(&restarted).await);
    let images: Vec<_> = (0..8).map(|_| disk.power_loss(random)).collect();
    let next = restarted.write(Write::put("/next", Expect::Any, "v")).await;
    assert_eq!(next.expect("writes"), at + 1, "{case}");
    for image in images {
        let store = try_open(&image).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(revision(&store).await, at, "{case}");
        assert_eq!(state(&store, None).await, served, "{case}");
    }
    let written = try_open(&disk.power_loss(random)).unwrap_or_else(|e| panic!("{case}: {e}"));
    assert_eq!(revision(&written).await, at + 1, "{case}");
}

#[tokio::test]
async fn a_store_that_cannot_make_its_log_durable_does_not_start() {
    let disk = FakeDisk::default();
    let store = open(&disk);
    store.write(Write::create("/a", "v")).await.expect("writes");
    drop(store);
    disk.set_fault(None);
    drop(open(&disk));
    let calls = disk.calls();
    assert!(calls >= 3, "recovery changes the disk {calls} times");
    for at_call in 1..=calls {
        disk.set_fault(Some(Fault { at_call, kind: ErrorKind::Other, permanent: false }));
        let refused = try_open(&disk).err();
        assert!(matches!(refused, Some(StoreError::Unavailable(_))), "{at_call}: {refused:?}");
    }
    disk.set_fault(None);
    assert!(state(&open(&disk), None).await.contains_key("/a"));
}

/// The last write is truncated or damaged at every byte: the writes before it survive.
#[tokio::test]
async fn a_log_torn_anywhere_in_its_last_write_opens_without_it() {
    let disk = FakeDisk::default();
    let tuning = || Tuning { segment_bytes: 1 << 20, ..tuning() };
    let open = |disk: &FakeDisk| Embedded::start(Box::new(disk.clone()), tuning());
    let store = open(&disk).expect("opens");
    for n in 0..5 {
        store.write(Write::create(format!("/k{n}"), vec![b'v'; 50 + n])).await.expect("writes");
    }
    let before = store.usage().0 as usize;
    let expected = state(&store, None).await;
    store.write(Write::create("/last", vec![b'l'; 100])).await.expect("writes");
    let end = store.usage().0 as usize;
    drop(store);
    let name = segment::file_name(1);
    let bytes = disk.contents(&name);
    for cut in before..end {
        let mut images = Vec::new();
        let mut truncated = bytes.clone();
        truncated.truncate(cut);
        images.push(truncated);
        let mut zeroed = bytes.clone();
        zeroed[cut..].fill(0);
        images.push(zeroed);
        let mut damaged = bytes.clone();
        damaged[cut] ^= 0x55;
        images.push(damaged);
        for (n, image) in images.into_iter().enumerate() {
            // The padding after the record may be missing.
            let whole = image.get(before..).and_then(record::decode).is_some();
            disk.set_contents(&name, image);
            let store = open(&disk).unwrap_or_else(|error| panic!("cut {cut} way {n}: {error}"));
            let mut found = state(&store, None).await;
            assert_eq!(found.remove("/last").is_some(), whole, "cut {cut} way {n}");
            assert_eq!(found, expected, "cut {cut} way {n}");
            // What was torn must not be taken for records once others are in front of it.
            let behind = disk.contents(&name).split_off(store.usage().0 as usize);
            assert!(behind.iter().all(|byte| *byte == 0), "cut {cut} way {n}: {behind:?}");
            let write = store.write(Write::put("/next", Expect::Any, "v")).await;
            assert_eq!(write.expect("writes"), 7 + u64::from(whole));
            drop(store);
            assert!(state(&open(&disk).expect("opens"), None).await.contains_key("/next"));
        }
    }
}

#[tokio::test]
async fn a_log_damaged_before_its_last_write_is_refused() {
    let disk = FakeDisk::default();
    let store = open(&disk);
    let mut ends = vec![segment::HEADER_BYTES];
    for n in 0..4 {
        store.write(Write::create(format!("/k{n}"), vec![b'v'; 100])).await.expect("writes");
        ends.push(store.usage().0 as usize);
    }
    drop(store);
    let name = segment::file_name(1);
    let bytes = disk.contents(&name);
    for at in (0..ends[3]).step_by(3) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        disk.set_contents(&name, damaged);
        let padding = at >= segment::HEADER_BYTES && {
            let record = ends.iter().rposition(|end| *end <= at).expect("behind the header");
            let len = record::claimed_len(&bytes[ends[record]..]).expect("is a record");
            at >= ends[record] + len
        };
        match try_open(&disk) {
            Err(StoreError::Corrupt(_)) => assert!(!padding, "byte {at}"),
            Err(error) => panic!("byte {at}: {error}"),
            Ok(_) => assert!(padding, "byte {at} was changed and it was not noticed"),
        }
    }
}

/// Every bit of a record flips while the store is open: the value is not served, and the others
/// are.
#[tokio::test]
async fn a_value_that_is_damaged_while_the_store_is_open_is_not_served() {
    let disk = FakeDisk::default();
    let store = open(&disk);
    store.write(Write::create("/good", vec![b'g'; 40])).await.expect("writes");
    let start = store.usage().0 as usize;
    store.write(Write::create("/rots", vec![b'r'; 40])).await.expect("writes");
    let name = segment::file_name(1);
    let whole = disk.contents(&name);
    let len = record::claimed_len(&whole[start..]).expect("is a record");
    for bit in 0..len * 8 {
        let mut rotten = whole.clone();
        rotten[start + bit / 8] ^= 1 << (bit % 8);
        disk.set_contents(&name, rotten);
        let refused = store.get("/rots").await;
        assert!(matches!(refused, Err(StoreError::Corrupt(_))), "bit {bit}: {refused:?}");
        assert!(store.range(Range::of("/")).await.is_err(), "bit {bit}");
        assert!(store.get("/good").await.expect("reads").is_some(), "bit {bit}");
    }
    disk.set_contents(&name, whole);
    assert_eq!(state(&store, None).await.len(), 2);
}

#[tokio::test]
async fn a_missing_segment_or_a_lost_end_of_one_is_refused() {
    let disk = FakeDisk::default();
    let store = open(&disk);
    for n in 0..30 {
        store.write(Write::create(format!("/k{n}"), vec![b'v'; 500])).await.expect("writes");
    }
    drop(store);
    let corrupt = |disk: &FakeDisk| matches!(try_open(disk), Err(StoreError::Corrupt(_)));
    let whole = disk.process_crash();
    whole.remove(&segment::file_name(2)).expect("was there");
    assert!(corrupt(&whole), "a segment is missing");
    let whole = disk.process_crash();
    let name = segment::file_name(2);
    whole.remove(&hint::file_name(2)).expect("was there");
    assert!(!corrupt(&whole), "the table of contents can be done without");
    let bytes = whole.contents(&name);
    whole.set_contents(&name, bytes[..2000].to_vec());
    assert!(corrupt(&whole), "half a segment is missing");
    let whole = disk.process_crash();
    let table = hint::file_name(2);
    let mut bytes = whole.contents(&table);
    bytes[40] ^= 1;
    whole.set_contents(&table, bytes);
    let store = try_open(&whole).expect("a damaged table of contents is not used");
    assert_eq!(state(&store, None).await.len(), 30);
}

#[test]
fn a_log_that_is_compacted_beyond_its_end_is_refused() {
    assert!(fuzzing::Log::sample().read().is_ok());
    for compacted in [7, u64::MAX - 1, u64::MAX] {
        let mut log = fuzzing::Log::sample();
        // The compaction is the last record of the segment and has neither key nor value.
        let at = log.first.len() - record::FIXED_BYTES;
        log.first[at + 8..at + 16].copy_from_slice(&u64::to_le_bytes(compacted));
        fuzzing::repair_segment(&mut log.first);
        log.hint.clear();
        assert!(matches!(log.read(), Err(StoreError::Corrupt(_))), "{compacted}");
    }
}

/// A hint file is used if its own checksum is right. With one that pointed to the record of another
/// key, the store served that key's value.
#[tokio::test]
async fn a_hint_file_that_points_to_another_record_serves_no_wrong_value() {
    let disk = FakeDisk::default();
    let store = open(&disk);
    for n in 0..30 {
        store.write(Write::create(format!("/k{n:02}"), vec![n; 500])).await.expect("writes");
    }
    drop(store);
    let name = hint::file_name(1);
    let mut bytes = disk.contents(&name);
    // Header, then entries of 44 bytes and a key of 4; the offset is at byte 32.
    let offset = |entry: usize| 32 + entry * 48 + 32;
    let (first, second) = (offset(0), offset(1));
    for byte in 0..4 {
        bytes.swap(first + byte, second + byte);
    }
    fuzzing::repair_hint(&mut bytes);
    disk.set_contents(&name, bytes);
    let store = open(&disk);
    for key in ["/k00", "/k01"] {
        let refused = store.get(key).await;
        assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{refused:?}");
    }
    let mut watch = store.watch("/k00", 1).await.expect("starts");
    assert!(matches!(watch.next().await, Err(StoreError::Corrupt(_))));
    let found = store.get("/k02").await.expect("reads").expect("is there");
    assert_eq!(found.value, vec![2; 500]);
}

/// Puts, deletes and compacts, with several segments and a reclaimed one. Returns the writes that were
/// acknowledged (key and revision, `None` for a delete) and those that failed.
async fn script(store: &Embedded) -> (BTreeMap<String, Option<u64>>, Vec<(String, bool)>) {
    let mut done: BTreeMap<String, Option<u64>> = BTreeMap::new();
    let mut unknown: Vec<(String, bool)> = Vec::new();
    for n in 0..24_u64 {
        let key = format!("/k{}", n % 7);
        let write = if n % 5 == 4 {
            Write::delete(key.clone(), Expect::Any)
        } else {
            Write::put(key.clone(), Expect::Any, vec![b'v'; 600])
        };
        let puts = write.value.is_some();
        match store.write(write).await {
            Ok(revision) => drop(done.insert(key, puts.then_some(revision))),
            Err(StoreError::Conflict { .. }) => {}
            Err(_) => unknown.push((key, puts)),
        }
        if n % 8 == 7 {
            let _ = store.compact(revision(store).await).await;
        }
        let found = state(store, None).await;
        let expected = done.iter().filter_map(|(key, at)| at.map(|at| (key.clone(), at)));
        let expected: BTreeMap<_, _> = expected.collect();
        let found: BTreeMap<_, _> = found.into_iter().map(|(k, (at, _))| (k, at)).collect();
        assert_eq!(found, expected, "reads go on");
    }
    (done, unknown)
}

/// Every call to the disk fails once, in turn, in several ways, during the same script.
#[tokio::test]
async fn acknowledged_writes_survive_a_failure_of_any_disk_call() {
    let disk = FakeDisk::default();
    let store = open(&disk);
    disk.set_fault(None);
    script(&store).await;
    drop(store);
    let calls = disk.calls();
    assert!(calls > 60, "the script uses the disk {calls} times");

    let mut random = Random::new(3);
    for at_call in 1..=calls {
        for (kind, permanent) in
            [(ErrorKind::Other, false), (ErrorKind::Other, true), (ErrorKind::StorageFull, false)]
        {
            let disk = FakeDisk::default();
            let store = open(&disk);
            disk.set_fault(Some(Fault { at_call, kind, permanent }));
            let (done, unknown) = script(&store).await;
            drop(store);
            disk.set_fault(None);
            let story = format!("call {at_call} {kind:?} {permanent}");
            survives_power_loss(&disk.process_crash(), &mut random, &story).await;
            for image in [disk.process_crash(), disk.power_loss(&mut random)] {
                let store = try_open(&image).unwrap_or_else(|e| panic!("{story}: {e}"));
                let found = state(&store, None).await;
                for (key, at) in &done {
                    let maybe = |puts: bool| unknown.contains(&(key.clone(), puts));
                    match (at, found.get(key)) {
                        (Some(at), Some((have, _))) => {
                            assert!(have == at || maybe(true), "{story}: {key}");
                        }
                        (None, Some(_)) => assert!(maybe(true), "{story}: {key} came back"),
                        (Some(_), None) => assert!(maybe(false), "{story}: {key} is lost"),
                        (None, None) => {}
                    }
                }
            }
        }
    }
}

/// Every read of the disk fails once, or permanently, while the store is opened and used: a result
/// is right or an error, and when the disk works again everything is there.
#[tokio::test]
async fn a_failing_read_is_an_error_and_never_an_incomplete_result() {
    let disk = FakeDisk::default();
    let store = open(&disk);
    for n in 0..40_u64 {
        let write = Write::put(format!("/k{}", n % 9), Expect::Any, vec![n as u8; 700]);
        store.write(write).await.expect("writes");
    }
    let (whole, now) = (state(&store, None).await, revision(&store).await);
    drop(store);
    let use_it = async |disk: &FakeDisk| -> Result<(), StoreError> {
        let store = try_open(disk)?;
        for at in [None, Some(now), Some(now - 7)] {
            let mut range = Range::of("/");
            range.revision = at;
            let found = store.range(range).await?;
            assert_eq!(found.items.len(), whole.len());
        }
        for (key, (at, value)) in &whole {
            let found = store.get(key).await?.expect("is there");
            assert_eq!((found.mod_revision, &found.value), (*at, value));
        }
        let mut watch = store.watch("/", now - 7).await?;
        let mut seen = 0;
        while seen < 7 {
            seen += watch.next().await?.changes.len();
        }
        Ok(())
    };
    disk.set_read_fault(None);
    use_it(&disk).await.expect("the disk works");
    let reads = disk.reads();
    assert!(reads > 10, "the script reads the disk {reads} times");

    let mut refused = 0;
    for at_call in 1..=reads {
        for permanent in [false, true] {
            let kind = ErrorKind::Other;
            disk.set_read_fault(Some(Fault { at_call, kind, permanent }));
            if let Err(error) = use_it(&disk).await {
                refused += 1;
                // A retry may succeed; nothing is reported as lost or damaged.
                assert!(matches!(error, StoreError::Unavailable(_)), "read {at_call}: {error:?}");
            }
            disk.set_read_fault(None);
            use_it(&disk).await.expect("the disk works again");
        }
    }
    assert!(refused > reads, "{refused} of {reads} failures were noticed");
}

#[tokio::test]
async fn a_full_disk_fails_writes_until_there_is_space_again() {
    let disk = FakeDisk::default();
    let store = open(&disk);
    store.write(Write::create("/a", vec![0; 3000])).await.expect("writes");
    disk.set_fault(Some(Fault { at_call: 1, kind: ErrorKind::StorageFull, permanent: true }));
    for _ in 0..3 {
        let refused = store.write(Write::create("/b", vec![0; 3000])).await;
        assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
        assert!(store.get("/a").await.expect("reads go on").is_some());
    }
    disk.set_fault(None);
    assert_eq!(store.write(Write::create("/b", vec![0; 3000])).await.expect("has room"), 3);
}

#[tokio::test]
async fn after_a_failed_sync_no_write_is_accepted_until_a_restart() {
    let disk = FakeDisk::default();
    let store = open(&disk);
    store.write(Write::create("/a", "v")).await.expect("writes");
    // The space is allocated already, so a write is two calls: write, sync.
    disk.set_fault(Some(Fault { at_call: 2, kind: ErrorKind::Other, permanent: false }));
    for _ in 0..2 {
        let refused = store.write(Write::create("/b", "v")).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
    assert!(store.get("/b").await.expect("reads go on").is_none());
    drop(store);
    let store = open(&disk);
    store.write(Write::create("/c", "v")).await.expect("writes");
}

#[tokio::test]
async fn revisions_never_go_back_and_deletions_stay_deleted_when_space_is_reclaimed() {
    let disk = FakeDisk::default();
    let mut store = open(&disk);
    let kept = store.write(Write::create("/kept", "v")).await.expect("writes");
    let mut expected = kept;
    for round in 0..20 {
        for n in 0..20 {
            let write = Write::put(format!("/k{n}"), Expect::Any, vec![b'v'; 300]);
            store.write(write).await.expect("writes");
        }
        for n in 0..20 {
            let write = Write::delete(format!("/k{n}"), Expect::Any);
            expected = store.write(write).await.expect("deletes");
        }
        store.compact(expected).await.expect("compacts");
        // Each request lets the writer thread reclaim a step.
        for _ in 0..20 {
            let _ = store.compact(expected).await;
        }
        if round % 3 == 0 {
            drop(store);
            store = open(&disk);
        }
        assert_eq!(revision(&store).await, expected);
        let found = state(&store, None).await;
        assert_eq!(found, BTreeMap::from([("/kept".to_owned(), (kept, "v".into()))]));
    }
    let (bytes, _) = store.usage();
    assert!(bytes < 40_000, "{bytes} bytes for one key");
    let files = disk.names().into_iter().filter(|name| segment::number_of(name).is_some()).count();
    assert!(files < 12, "{files} files for one key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_expire_also_after_a_restart_unless_they_were_renewed() {
    let disk = FakeDisk::default();
    let now = Arc::new(AtomicU64::new(1_000_000));
    let open = || {
        let now = Arc::clone(&now);
        let clock = Arc::new(move || now.load(Ordering::SeqCst));
        Embedded::start(Box::new(disk.clone()), Tuning { clock, ..tuning() }).expect("opens")
    };
    let hour = Some(Duration::from_hours(1));
    let store = open();
    store.write(Write::create("/old", "v").with_ttl(hour)).await.expect("writes");
    let renewed = store.write(Write::create("/renewed", "v").with_ttl(hour)).await.expect("writes");
    let freed = store.write(Write::create("/freed", "v").with_ttl(hour)).await.expect("writes");
    now.fetch_add(1_800_000, Ordering::SeqCst);
    let again = Write::update("/renewed", renewed, "w").with_ttl(hour);
    store.write(again).await.expect("writes");
    let before = store.write(Write::update("/freed", freed, "w")).await.expect("writes");
    drop(store);
    let store = open();
    let found = store.get("/renewed").await.expect("reads").expect("is there");
    assert_eq!(found.expires_ms, Some(1_000_000 + 1_800_000 + 3_600_000));
    let mut watch = store.watch("/", before).await.expect("starts");

    now.fetch_add(1_800_000, Ordering::SeqCst);
    store.write(Write::create("/nudge", "v")).await.expect("writes");
    let changes = contract::collect(&mut watch, before + 2).await;
    let delivered: Vec<_> = changes.iter().map(|c| (c.key.as_str(), c.value.is_some())).collect();
    assert_eq!(delivered, [("/nudge", true), ("/old", false)]);
    now.fetch_add(1_800_000, Ordering::SeqCst);
    drop(store);
    let store = open();
    let mut watch = store.watch("/", before + 2).await.expect("starts");
    let changes = contract::collect(&mut watch, before + 3).await;
    assert_eq!((changes[0].key.as_str(), changes.len()), ("/renewed", 1));
    assert_eq!(state(&store, None).await.len(), 2);
}

/// O09: a clock that jumps moves no revision, loses no key, and delays or hastens expiry by the jump only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o09_a_clock_that_jumps_changes_no_revision() {
    let disk = FakeDisk::default();
    let start = 1_000_000_000;
    let now = Arc::new(AtomicU64::new(start));
    let open = || {
        let now = Arc::clone(&now);
        let clock = Arc::new(move || now.load(Ordering::SeqCst));
        Embedded::start(Box::new(disk.clone()), Tuning { clock, ..tuning() }).expect("opens")
    };
    let mut store = open();
    let ttl = Some(Duration::from_mins(1));
    let mut last = revision(&store).await;
    // A day back, and to the epoch; each time also over a restart.
    for (step, at) in [start, start - 86_400_000, 0].into_iter().enumerate() {
        now.store(at, Ordering::SeqCst);
        for restart in [false, true] {
            if restart {
                drop(store);
                store = open();
            }
            for (key, ttl) in [("kept", None), ("leased", ttl)] {
                let write = Write::create(format!("/{key}-{step}-{restart}"), "v").with_ttl(ttl);
                let written = store.write(write).await.expect("writes");
                assert_eq!(written, last + 1, "step {step}");
                last = written;
            }
        }
    }
    let mut watch = store.watch("/leased", last).await.expect("starts");
    for (at, expired, leased) in [(start, 4, 2), (start + 61_000, 2, 0)] {
        now.store(at, Ordering::SeqCst);
        let nudge = store.write(Write::create(format!("/nudge-{at}"), "v")).await.expect("writes");
        // Keys may expire before it.
        assert!((last + 1..=last + 1 + expired).contains(&nudge), "{nudge} after {last}");
        last += 1 + expired;
        let changes = contract::collect(&mut watch, last).await;
        assert!(changes.iter().all(|change| change.value.is_none()), "{changes:?}");
        let found = state(&store, None).await;
        let count = |prefix: &str| found.keys().filter(|key| key.starts_with(prefix)).count();
        assert_eq!((count("/kept"), count("/leased")), (6, leased));
    }
}

/// Keys with a TTL are renewed, made permanent and deleted at random: they expire when the model
/// says, each once, also while the store is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_expire_when_the_model_says_so_also_across_restarts() {
    for seed in contract::seeds(12) {
        let mut random = Random::new(seed);
        let disk = FakeDisk::default();
        let now = Arc::new(AtomicU64::new(1_000_000));
        let open = || {
            let now = Arc::clone(&now);
            let clock = Arc::new(move || now.load(Ordering::SeqCst));
            Embedded::start(Box::new(disk.clone()), Tuning { clock, ..tuning() }).expect("opens")
        };
        let model = MemoryBackend::new();
        let mut store = open();
        for step in 0..120 {
            let key = format!("/k{}", random.below(9));
            let ttl = Duration::from_millis(random.below(4000) + 1);
            let write = match random.below(8) {
                0 => Write::delete(key, Expect::Any),
                1 => Write::put(key, Expect::Any, format!("{step}")),
                2 => {
                    let time = Duration::from_millis(random.below(1500));
                    let restart = random.below(3) == 0;
                    if restart {
                        store.close();
                    }
                    now.fetch_add(time.as_millis() as u64, Ordering::SeqCst);
                    model.advance(time);
                    if restart {
                        store = open();
                    }
                    // A write makes the writer thread check the clock.
                    Write::put("/nudge", Expect::Any, format!("{step}"))
                }
                _ => Write::put(key, Expect::Any, format!("{step}")).with_ttl(Some(ttl)),
            };
            let (expected, done) = (model.write(write.clone()).await, store.write(write).await);
            assert_eq!(expected.is_ok(), done.is_ok(), "seed {seed} step {step}");
            // Keys that expire at the same time may do so in any order, but each once.
            let reached = revision(&model).await;
            for _ in 0..2000 {
                if revision(&store).await >= reached {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(revision(&store).await, reached, "seed {seed} step {step}");
            let values = |state: BTreeMap<String, (u64, Bytes)>| {
                state.into_iter().map(|(key, (_, value))| (key, value)).collect::<BTreeMap<_, _>>()
            };
            let expected = values(state(&model, None).await);
            assert_eq!(values(state(&store, None).await), expected, "seed {seed} step {step}");
        }
    }
}

#[tokio::test]
async fn too_much_history_is_compacted_automatically() {
    let tuning = Tuning { history_max: 50, ..tuning() };
    let store = Embedded::start(Box::new(FakeDisk::default()), tuning).expect("opens");
    for _ in 0..200 {
        store.write(Write::put("/k", Expect::Any, "v")).await.expect("writes");
    }
    let refused = store.range(Range::of("/").at(100)).await;
    assert!(matches!(refused, Err(StoreError::Compacted { .. })));
    store.range(Range::of("/").at(199)).await.expect("is recent");
}

#[tokio::test]
async fn a_watch_whose_queue_overflowed_reads_the_log() {
    let store = open(&FakeDisk::default());
    let mut watch = store.watch("/", 1).await.expect("starts");
    let big = Bytes::from(vec![b'v'; 1 << 20]);
    for n in 0..40 {
        store.write(Write::create(format!("/k{n:02}"), big.clone())).await.expect("writes");
    }
    let changes = contract::collect(&mut watch, 41).await;
    assert_eq!(changes.len(), 40);
    store.write(Write::create("/more", "v")).await.expect("writes");
    assert_eq!(contract::collect(&mut watch, 42).await.len(), 1);
}

#[tokio::test]
async fn a_second_server_on_the_same_directory_fails_with_the_pid_of_the_first() {
    let dir = tempfile::tempdir().expect("makes a directory");
    let options = EmbeddedOptions::new(dir.path().join("store"));
    let first = Embedded::open(&options).expect("opens");
    first.write(Write::create("/k", "v")).await.expect("writes");
    let refused = Embedded::open(&options).err().expect("is locked").to_string();
    let pid = std::process::id().to_string();
    assert!(refused.contains("in use by another server") && refused.contains(&pid), "{refused}");
    first.close();
    let closed = first.write(Write::create("/l", "v")).await;
    assert!(matches!(closed, Err(StoreError::Unavailable(_))));
    let second = Embedded::open(&options).expect("is free again");
    assert!(second.get("/k").await.expect("reads").is_some());
}

#[test]
fn a_log_of_an_unknown_format_version_is_refused() {
    let disk = FakeDisk::default();
    drop(open(&disk));
    let name = segment::file_name(1);
    let mut bytes = disk.contents(&name);
    bytes[8] = 2;
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    disk.set_contents(&name, bytes);
    let refused = try_open(&disk).err().expect("is too new").to_string();
    assert!(refused.contains("storage format 2"), "{refused}");
}

struct Raw;

impl crate::Materialize for Raw {
    fn entry(&self, key: &meta::Str, value: &Bytes, revision: u64) -> Result<crate::Entry, String> {
        let (key, json) = (key.clone(), value.clone().into());
        Ok(crate::Entry { key, revision, json, ..crate::Entry::default() })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consistent_read_of_the_cache_sees_every_write() {
    let store: Arc<dyn Backend> = Arc::new(open(&FakeDisk::default()));
    let cache = Cache::start(Arc::clone(&store), crate::CacheOptions::new("/a/", Arc::new(Raw)));
    cache.ready().await;
    for n in 0..300 {
        let key = format!("/{}/{n}", ["a", "b"][n % 2]);
        let revision = store.write(Write::create(key, "v")).await.expect("writes");
        let snapshot = cache.fresh().await.expect("catches up");
        assert!(snapshot.revision >= revision);
        assert_eq!(snapshot.len(), n / 2 + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_panics_is_noticed_and_one_that_is_closed_is_none() {
    let closed = open(&FakeDisk::default());
    let ended = closed.writer_ended();
    closed.close();
    assert!(ended.await, "it has ended as it should");

    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = Arc::clone(&broken);
    let clock = Arc::new(move || {
        assert!(!is_broken.load(Ordering::SeqCst), "asked for");
        1_000_000
    });
    let disk = Box::new(FakeDisk::default());
    let store = Embedded::start(disk, Tuning { clock, ..tuning() }).expect("opens");
    let hour = Some(Duration::from_hours(1));
    store.write(Write::create("/a", "v").with_ttl(hour)).await.expect("writes");
    broken.store(true, Ordering::SeqCst);
    let lost = store.write(Write::create("/b", "v").with_ttl(hour)).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    assert!(!store.writer_ended().await, "it has panicked");
    // What was written before is still read: nothing else would tell.
    assert!(store.get("/a").await.expect("reads").is_some());
}
