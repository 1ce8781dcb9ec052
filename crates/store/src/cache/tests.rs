//! The cache over the in-memory backend.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use meta::Str;
use tokio::time::timeout;

use super::*;
use crate::contract::Random;
use crate::{Consistency, Event, EventKind, Expect, MemoryBackend, WatchItem, Write};

/// Stores a node name; serves it as an object with metadata.
struct Nodes;

impl Materialize for Nodes {
    fn entry(&self, key: &Str, value: &Bytes, revision: u64) -> Result<Entry, String> {
        let node = std::str::from_utf8(value).map_err(|error| error.to_string())?;
        let mut parts = key.rsplitn(3, '/');
        let name = Str::new(parts.next().unwrap_or_default());
        let namespace = Str::new(parts.next().unwrap_or_default());
        let head = r#"{"metadata":"#;
        let meta = format!(r#"{{"name":"{name}","resourceVersion":"{revision}"}}"#);
        let json = format!(r#"{head}{meta},"spec":{{"nodeName":"{node}"}}}}"#);
        Ok(Entry {
            key: key.clone(),
            name,
            namespace,
            revision,
            json: json.into(),
            meta: (head.len() as u32, (head.len() + meta.len()) as u32),
            fields: Box::new([Str::new(node)]),
            ..Entry::default()
        })
    }
}

const PODS: &str = "/registry/pods/";

fn options() -> CacheOptions {
    CacheOptions::new(PODS, Arc::new(Nodes)).index(Some(0))
}

async fn start(options: CacheOptions) -> (Arc<MemoryBackend>, Arc<Cache>) {
    let backend = Arc::new(MemoryBackend::new());
    let cache = Cache::start(Arc::clone(&backend) as Arc<dyn Backend>, options);
    cache.ready().await;
    (backend, cache)
}

async fn put(backend: &MemoryBackend, name: &str, node: &str) -> u64 {
    let write = Write::put(format!("{PODS}{name}"), Expect::Any, node.to_owned());
    backend.write(write).await.expect("writes")
}

async fn delete(backend: &MemoryBackend, name: &str) -> u64 {
    let write = Write::delete(format!("{PODS}{name}"), Expect::Any);
    backend.write(write).await.expect("deletes")
}

/// Reads events until `revision` has been seen.
async fn events_until(watcher: &mut Watcher, revision: u64) -> Vec<Arc<Event>> {
    let mut events: Vec<Arc<Event>> = Vec::new();
    while events.last().is_none_or(|last| last.revision < revision) {
        match timeout(Duration::from_secs(5), watcher.next()).await.expect("an event comes") {
            WatchItem::Events(more) => events.extend(more),
            other => panic!("expected events, got {other:?}"),
        }
    }
    events
}

fn shown(events: &[Arc<Event>]) -> Vec<String> {
    let tell = |event: &Arc<Event>| {
        let before = event.previous.as_ref().map_or("-", |entry| entry.fields[0].as_str());
        format!("{:?} {} {}<-{before}", event.kind, event.entry.name, event.entry.fields[0])
    };
    events.iter().map(tell).collect()
}

#[tokio::test]
async fn a_read_after_a_write_sees_it() {
    let (backend, cache) = start(options()).await;
    for n in 0..50 {
        let revision = put(&backend, &format!("ns/p{n}"), "n1").await;
        let snapshot = cache.fresh().await.expect("catches up");
        assert!(snapshot.revision >= revision);
        assert_eq!(snapshot.len(), n + 1);
        // Writes of other resources move the revision as well.
        backend.write(Write::create(format!("/registry/x/{n}"), "v")).await.expect("writes");
        cache.fresh().await.expect("learns of progress elsewhere");
    }
    let entry = cache.get("/registry/pods/ns/p7").expect("is there");
    assert!(entry.json.text().ends_with(br#""spec":{"nodeName":"n1"}}"#));
    assert_eq!((entry.name.as_str(), entry.namespace.as_str()), ("p7", "ns"));
}

#[tokio::test(start_paused = true)]
async fn a_read_of_a_future_revision_waits_three_seconds() {
    let (backend, cache) = start(options()).await;
    let before = Instant::now();
    let refused = cache.at_least(1000).await.expect_err("never comes");
    assert!(matches!(refused, StoreError::TooLargeRevision { asked: 1000, current: 1 }));
    assert_eq!(before.elapsed().as_secs(), 3);

    let (waiting, writing) = tokio::join!(cache.at_least(3), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        put(&backend, "ns/a", "n").await;
        put(&backend, "ns/b", "n").await
    });
    assert_eq!((waiting.expect("comes").revision, writing), (3, 3));
}

#[tokio::test]
async fn events_have_their_type_the_new_and_the_previous_state() {
    let (backend, cache) = start(options()).await;
    let mut watcher = cache.watch(cache.revision(), None).expect("starts");
    put(&backend, "ns/a", "n1").await;
    put(&backend, "ns/a", "n2").await;
    let gone = delete(&backend, "ns/a").await;
    let events = events_until(&mut watcher, gone).await;
    assert_eq!(shown(&events), ["Added a n1<--", "Modified a n2<-n1", "Deleted a n2<-n2"]);
    let resource_version = format!(r#""resourceVersion":"{gone}""#);
    let json = String::from_utf8(events[2].entry.json.text().into_owned()).expect("is text");
    assert!(json.contains(&resource_version), "{json}");
    assert_eq!(events[2].entry.revision, gone);
    let departed = events[1].departed().expect("there was a state before");
    assert_eq!((departed.fields[0].as_str(), departed.revision), ("n1", events[1].revision));
}

#[tokio::test]
async fn a_trigger_selects_events_by_key_namespace_or_indexed_value() {
    let (backend, cache) = start(options()).await;
    let start = cache.revision();
    put(&backend, "ns/a", "n1").await;
    cache.fresh().await.expect("catches up");
    let trigger = |trigger| cache.watch(start, Some(trigger)).expect("starts");
    let mut by_node = trigger(Trigger::Index("n1".into()));
    let mut by_key = trigger(Trigger::Key("/registry/pods/other/b".into()));
    let mut by_namespace = trigger(Trigger::Namespace("other".into()));
    put(&backend, "other/b", "n2").await;
    put(&backend, "ns/a", "n2").await;
    put(&backend, "ns/c", "n3").await;
    put(&backend, "other/b", "n1").await;
    let last = delete(&backend, "other/b").await;

    let events = events_until(&mut by_node, last).await;
    let expected = ["Added a n1<--", "Modified a n2<-n1", "Modified b n1<-n2", "Deleted b n1<-n1"];
    assert_eq!(shown(&events), expected);
    let expected = ["Added b n2<--", "Modified b n1<-n2", "Deleted b n1<-n1"];
    assert_eq!(shown(&events_until(&mut by_key, last).await), expected);
    assert_eq!(shown(&events_until(&mut by_namespace, last).await), expected);
    // One that starts later but further back sees the same.
    let mut late = trigger(Trigger::Index("n2".into()));
    let expected = ["Added b n2<--", "Modified a n2<-n1", "Modified b n1<-n2"];
    let until = last - 1;
    assert_eq!(shown(&events_until(&mut late, until).await), expected);
}

#[tokio::test]
async fn a_watch_from_a_future_revision_starts_there_and_leaves_others_alone() {
    let (backend, cache) = start(options()).await;
    let trigger = || Some(Trigger::Index("n".into()));
    let mut future = cache.watch(4, trigger()).expect("starts");
    let mut future_of_all = cache.watch(4, None).expect("starts");
    for name in ["ns/a", "ns/b", "ns/c", "ns/d"] {
        put(&backend, name, "n").await;
    }
    cache.fresh().await.expect("catches up");
    let mut other = cache.watch(1, trigger()).expect("starts");
    for (watcher, from) in [(&mut future, 5), (&mut future_of_all, 5), (&mut other, 2)] {
        let events = events_until(watcher, 5).await;
        let revisions: Vec<u64> = events.iter().map(|event| event.revision).collect();
        assert_eq!(revisions, (from..=5).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_watcher_that_falls_behind_ends_too_slow_but_one_without_events_does_not() {
    let mut options = options();
    options.ring.events_max = 50;
    let (backend, cache) = start(options).await;
    let start = cache.revision();
    let mut slow = cache.watch(start, None).expect("starts");
    let mut rare = cache.watch(start, Some(Trigger::Index("rare".into()))).expect("starts");
    for n in 0..200 {
        put(&backend, &format!("ns/p{}", n % 7), "busy").await;
    }
    cache.fresh().await.expect("catches up");
    assert!(matches!(slow.next().await, WatchItem::TooSlow));
    assert_eq!(cache.watchers_slow(), 1);
    assert!(rare.try_next().is_none());
    assert_eq!(rare.progress(), Some(cache.revision()));
    let last = put(&backend, "ns/p1", "rare").await;
    assert_eq!(shown(&events_until(&mut rare, last).await), ["Modified p1 rare<-busy"]);
    let refused = cache.watch(start, None).err();
    assert!(matches!(refused, Some(StoreError::Expired { oldest }) if oldest > start));
}

#[tokio::test(start_paused = true)]
async fn events_are_evicted_by_age_down_to_the_minimum() {
    let (backend, cache) = start(options()).await;
    for n in 0..300 {
        put(&backend, "ns/a", &format!("n{n}")).await;
    }
    cache.fresh().await.expect("catches up");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(cache.events_kept(), 300);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(cache.events_kept(), 100);
}

#[tokio::test]
async fn exact_revisions_agree_with_history_from_memory_and_from_the_backend() {
    let mut options = options();
    options.ring.events_max = 400;
    let (backend, cache) = start(options).await;
    let mut random = Random::new(7);
    let mut model: BTreeMap<String, String> = BTreeMap::new();
    let mut history = vec![(cache.revision(), model.clone())];
    for n in 0..1500 {
        let name = format!("ns/p{}", random.below(20));
        let revision = if random.below(3) == 0 && model.contains_key(&name) {
            model.remove(&name);
            delete(&backend, &name).await
        } else {
            model.insert(name.clone(), format!("n{n}"));
            put(&backend, &name, &format!("n{n}")).await
        };
        history.push((revision, model.clone()));
        if random.below(5) == 0 {
            cache.fresh().await.expect("catches up");
        }
    }
    cache.fresh().await.expect("catches up");
    for (revision, expected) in history.iter().step_by(37).chain(history.last()) {
        let snapshot = cache.exact(*revision).await.expect("is kept");
        assert_eq!(snapshot.revision, *revision);
        let found: BTreeMap<String, String> = snapshot
            .range(PODS, None)
            .map(|entry| (entry.key[PODS.len()..].to_owned(), entry.fields[0].to_string()))
            .collect();
        assert_eq!(found, *expected, "at {revision}");
        for (name, node) in expected {
            let indexed: Vec<_> = snapshot.indexed(node).map(|e| e.key.to_string()).collect();
            assert_eq!(indexed, [format!("{PODS}{name}")]);
        }
    }
    backend.compact(1000).await.expect("compacts");
    let refused = cache.exact(900).await.expect_err("is compacted");
    assert!(matches!(refused, StoreError::Compacted { oldest: 1000 }));
}

/// Continue tokens never expired while the ring reached back to their revision, however often the store was
/// compacted.
#[tokio::test]
async fn what_is_compacted_is_not_read_from_memory_either() {
    let (backend, cache) = start(options()).await;
    let first = put(&backend, "ns/a", "n1").await;
    let second = put(&backend, "ns/b", "n2").await;
    put(&backend, "ns/c", "n3").await;
    cache.fresh().await.expect("catches up");
    for revision in [first, second] {
        assert_eq!(cache.exact(revision).await.expect("is kept").revision, revision);
    }
    backend.compact(second).await.expect("compacts");
    let refused = cache.exact(first).await.expect_err("is compacted");
    assert!(matches!(refused, StoreError::Compacted { oldest } if oldest == second));
    assert_eq!(cache.exact(second).await.expect("is kept").len(), 2);
    // A watch needs the events only, and the ring has them.
    assert!(cache.watch(first, None).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_starting_anywhere_see_every_revision_once_and_in_order() {
    const WRITES: u64 = 1500;
    let (backend, cache) = start(options()).await;
    let start = cache.revision();
    let watchers: Vec<_> = (0..60)
        .map(|seed| {
            let cache = Arc::clone(&cache);
            tokio::spawn(async move {
                let mut random = Random::new(seed + 1);
                tokio::time::sleep(Duration::from_micros(random.below(50_000))).await;
                let trigger =
                    (seed % 3 == 0).then(|| Trigger::Index(format!("n{}", seed % 4).into()));
                let after = start + random.below(cache.revision() - start + 1);
                let mut watcher = cache.watch(after, trigger.clone()).expect("starts");
                let mut seen: Vec<Arc<Event>> = Vec::new();
                while watcher.progress().is_none_or(|at| at < start + WRITES) {
                    tokio::select! {
                        item = watcher.next() => match item {
                            WatchItem::Events(events) => seen.extend(events),
                            other => panic!("{other:?}"),
                        },
                        () = tokio::time::sleep(Duration::from_millis(1)) => {}
                    }
                }
                (after, trigger, seen)
            })
        })
        .collect();
    let mut random = Random::new(99);
    let mut writes: Vec<(u64, Option<String>, Option<String>)> = Vec::new();
    let mut nodes: BTreeMap<String, String> = BTreeMap::new();
    for n in 0..WRITES {
        let name = format!("ns/p{}", random.below(50));
        let node = format!("n{}", random.below(4));
        let (revision, before, now) = if random.below(4) == 0 && nodes.contains_key(&name) {
            let node = nodes.remove(&name);
            (delete(&backend, &name).await, node.clone(), node)
        } else {
            let before = nodes.insert(name.clone(), node.clone());
            (put(&backend, &name, &node).await, before, Some(node))
        };
        writes.push((revision, before, now));
        if n % 20 == 0 {
            tokio::time::sleep(Duration::from_micros(300)).await;
        }
    }
    for watcher in watchers {
        let (after, trigger, seen) = watcher.await.expect("finishes");
        let wanted = |before: &Option<String>, now: &Option<String>| match &trigger {
            Some(Trigger::Index(node)) => [before, now].into_iter().flatten().any(|n| n == node),
            _ => true,
        };
        let expected: Vec<u64> = writes
            .iter()
            .filter(|(revision, before, now)| *revision > after && wanted(before, now))
            .map(|(revision, ..)| *revision)
            .collect();
        let revisions: Vec<u64> = seen.iter().map(|event| event.revision).collect();
        assert_eq!(revisions, expected, "after {after}, {trigger:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_sent_on_request_and_never_overtake_events() {
    let (backend, cache) = start(options()).await;
    let mut watcher = cache.watch(1, None).expect("starts").with_bookmarks(Duration::from_mins(1));
    // A write to another resource.
    backend.write(Write::create("/registry/x/1", "v")).await.expect("writes");
    let began = Instant::now();
    assert!(matches!(watcher.next().await, WatchItem::Progress(2)));
    assert_eq!(began.elapsed().as_secs(), 60);
    let revision = put(&backend, "ns/a", "n").await;
    assert_eq!(events_until(&mut watcher, revision).await.len(), 1);
    backend.write(Write::create("/registry/x/2", "v")).await.expect("writes");
    assert!(matches!(watcher.next().await, WatchItem::Progress(4)));
    // Nothing new, no bookmark.
    assert!(timeout(Duration::from_mins(10), watcher.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_resumes_and_a_gap_ends_the_watchers() {
    let (backend, cache) = start(options()).await;
    let mut watcher = cache.watch(1, None).expect("starts");
    let outage = || Some(StoreError::Unavailable("gone for a while".into()));
    put(&backend, "ns/a", "n1").await;
    cache.fresh().await.expect("catches up");
    backend.fail(outage());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(matches!(cache.fresh().await, Err(StoreError::Unavailable(_))));
    assert_eq!(cache.snapshot().len(), 1, "the last state is still there");
    backend.fail(None);
    let revision = put(&backend, "ns/b", "n2").await;
    let events = events_until(&mut watcher, revision).await;
    assert_eq!(shown(&events), ["Added a n1<--", "Added b n2<--"]);

    backend.fail(outage());
    tokio::time::sleep(Duration::from_secs(1)).await;
    backend.fail(None);
    let revision = put(&backend, "ns/c", "n3").await;
    backend.compact(revision).await.expect("compacts");
    assert!(matches!(watcher.next().await, WatchItem::Expired));
    let snapshot = cache.fresh().await.expect("has listed again");
    assert_eq!(snapshot.len(), 3);
    let refused = cache.watch(revision - 1, None).err();
    assert!(matches!(refused, Some(StoreError::Expired { oldest }) if oldest == revision));
    let mut watcher = cache.watch(revision, None).expect("starts");
    cache.close();
    assert!(matches!(watcher.next().await, WatchItem::Closed));
}

/// A read that had found a custom kind just before its definition changed waited for a cache that
/// had stopped, and failed after three seconds with "Too large resource version".
#[tokio::test(start_paused = true)]
async fn a_retired_cache_ends_watches_and_still_serves_reads() {
    let (backend, cache) = start(options()).await;
    let mut watcher = cache.watch(1, None).expect("starts");
    cache.retire();
    assert!(matches!(watcher.next().await, WatchItem::Closed));
    let revision = put(&backend, "ns/a", "n1").await;
    let snapshot = cache.fresh().await.expect("catches up");
    assert_eq!((snapshot.revision, snapshot.len()), (revision, 1));
    let mut late = cache.watch(revision, None).expect("starts");
    assert!(matches!(late.next().await, WatchItem::Closed));
}

#[tokio::test]
async fn watches_from_before_a_restart_resume_on_a_new_cache() {
    let backend = Arc::new(MemoryBackend::new());
    put(&backend, "ns/a", "n1").await;
    for n in 0..50 {
        put(&backend, "ns/b", &format!("n{n}")).await;
    }
    let cases = [(1000, None, 1), (10, None, 42), (1000, Some(40), 40), (1000, Some(52), 52)];
    for (resume_revisions, compacted, oldest) in cases {
        if let Some(compacted) = compacted {
            backend.compact(compacted).await.expect("compacts");
        }
        let options = CacheOptions { resume_revisions, ..options() };
        let cache = Cache::start(Arc::clone(&backend) as Arc<dyn Backend>, options);
        cache.ready().await;
        assert_eq!((cache.revision(), cache.oldest()), (52, oldest));
        assert_eq!(cache.snapshot().len(), 2);
        let refused = cache.watch(oldest - 1, None).err();
        assert!(matches!(refused, Some(StoreError::Expired { .. })));
        let mut watcher = cache.watch(oldest, None).expect("starts");
        if oldest < 52 {
            let events = events_until(&mut watcher, 52).await;
            assert_eq!(events.len() as u64, 52 - oldest);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn frames_are_shared_at_first_and_released_later() {
    let (backend, cache) = start(options()).await;
    let mut one = cache.watch(1, None).expect("starts");
    let mut two = cache.watch(1, None).expect("starts");
    let revision = put(&backend, "ns/a", "n").await;
    let mut made = 0;
    let mut frame = |events: Vec<Arc<Event>>| {
        assert_eq!(events[0].kind, EventKind::Added);
        events[0].frame(0, || {
            made += 1;
            Bytes::from_static(b"frame")
        })
    };
    let events = events_until(&mut one, revision).await;
    frame(events.clone());
    frame(events_until(&mut two, revision).await);
    tokio::time::sleep(Duration::from_secs(10)).await;
    frame(events);
    assert_eq!(made, 2);
}

#[tokio::test]
async fn an_unreadable_object_does_not_hide_the_others() {
    let backend = Arc::new(MemoryBackend::new());
    put(&backend, "ns/a", "n1").await;
    let bad = |key: &str| Write::put(format!("{PODS}{key}"), Expect::Any, vec![0xff]);
    let old = backend.write(bad("other/old")).await.expect("writes");
    let cache = Cache::start(Arc::clone(&backend) as Arc<dyn Backend>, options());
    cache.ready().await;
    let snapshot = cache.fresh().await.expect("reads");
    assert_eq!((snapshot.len(), snapshot.broken_len()), (1, 1));
    let broken = snapshot.broken("/registry/pods/other/old").expect("is noted");
    assert_eq!(broken.revision, old);
    assert!(broken.why.contains("utf-8"), "{}", broken.why);
    let first = |prefix: &str, after| snapshot.first_broken(prefix, after).map(|found| &found.key);
    assert_eq!(first("/registry/pods/ns/", None), None);
    assert_eq!(first(PODS, None).map(Str::as_str), Some("/registry/pods/other/old"));
    assert_eq!(first(PODS, Some("/registry/pods/other/old")), None);

    // There is no event for this: watchers have to list again.
    let mut watcher = cache.watch(cache.revision(), None).expect("starts");
    backend.write(bad("ns/a")).await.expect("writes");
    cache.fresh().await.expect("goes on");
    assert!(matches!(watcher.next().await, WatchItem::Expired));
    assert!(cache.get("/registry/pods/ns/a").is_none());
    let at = put(&backend, "ns/b", "n2").await;
    let mended = put(&backend, "ns/a", "n3").await;
    delete(&backend, "other/old").await;
    let snapshot = cache.fresh().await.expect("goes on");
    assert_eq!((snapshot.len(), snapshot.broken_len()), (2, 0));
    assert_eq!(cache.get("/registry/pods/ns/a").map(|entry| entry.revision), Some(mended));
    let then = cache.exact(at).await.expect("is read from the store");
    assert_eq!((then.len(), then.broken_len()), (1, 2));
    assert_eq!((cache.initializations(), cache.watchers_slow()), (1, 0));
    let (objects, events) = cache.bytes();
    assert!(objects > 100 && events < 1000, "{objects} {events}");
}

/// A cache whose reflector had panicked served the state of that moment for ever, to RBAC as well.
#[tokio::test(start_paused = true)]
async fn a_reflector_that_panics_lists_again() {
    struct PanicsOnce(AtomicBool);

    impl Materialize for PanicsOnce {
        fn entry(&self, key: &Str, value: &Bytes, revision: u64) -> Result<Entry, String> {
            let panics = &value[..] == b"panic" && !self.0.swap(true, Ordering::Relaxed);
            assert!(!panics, "asked for");
            Nodes.entry(key, value, revision)
        }
    }

    let materialize = Arc::new(PanicsOnce(AtomicBool::new(false)));
    let (backend, cache) = start(CacheOptions::new(PODS, materialize).index(Some(0))).await;
    put(&backend, "ns/a", "n1").await;
    cache.fresh().await.expect("reads");
    let mut watcher = cache.watch(cache.revision(), None).expect("starts");
    put(&backend, "ns/b", "panic").await;
    delete(&backend, "ns/a").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let snapshot = cache.fresh().await.expect("goes on");
    assert_eq!(snapshot.len(), 1);
    assert!(
        cache.get("/registry/pods/ns/a").is_none() && cache.get("/registry/pods/ns/b").is_some()
    );
    assert!(matches!(watcher.next().await, WatchItem::Expired | WatchItem::Events(_)));
}

/// Makes a cache differ from its backend.
type Damage = fn(&mut Snapshot);

#[tokio::test]
async fn a_cache_that_differs_from_its_backend_is_found_and_filled_again() {
    let (backend, cache) = start(options()).await;
    for name in ["n/a", "n/b", "n/c"] {
        put(&backend, name, "node").await;
    }
    let checked = cache.check_consistency().await.expect("the backend answers");
    assert!(matches!(checked, Consistency::Same { .. }), "{checked:?}");
    let damages: [(Damage, &str); 3] = [
        (|snapshot| drop(snapshot.remove("/registry/pods/n/b")), "/registry/pods/n/b"),
        (|snapshot| drop(snapshot.remove("/registry/pods/n/c")), "/registry/pods/n/c"),
        (
            |snapshot| {
                let surplus = Nodes.entry(&"/registry/pods/n/d".into(), &"x".into(), 1);
                drop(snapshot.insert(Arc::new(surplus.expect("an entry"))));
            },
            "/registry/pods/n/d",
        ),
    ];
    for (damage, expected) in damages {
        let mut snapshot = Snapshot::clone(&cache.snapshot());
        damage(&mut snapshot);
        cache.shared.current.store(Arc::new(snapshot));
        let before = cache.initializations();
        let checked = cache.check_consistency().await.expect("the backend answers");
        let Consistency::Different { key, .. } = checked else { panic!("{checked:?}") };
        assert_eq!(key.as_str(), expected);
        let filled = async {
            while cache.initializations() == before {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(5), filled).await.expect("it is filled again");
        assert_eq!(cache.snapshot().len(), 3);
    }
    let reads = cache.read_metrics();
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((count(&reads.checks_passed), count(&reads.checks_failed)), (1, 3));
    assert!(count(&reads.storage_lists.lists) >= 4);
    assert!(count(&reads.storage_lists.returned) >= 9);
}
