//! The backend contract, as tests. Each function takes an empty backend; `check_all` runs them all.
//! The random ones compare with `MemoryBackend`, step by step.

use std::sync::Arc;

use bytes::Bytes;
use meta::Str;

use crate::{
    Backend, Batch, Change, Expect, KeyValue, MemoryBackend, Range, StoreError, WatchStream, Write,
};

/// Runs every test, each on a backend of its own.
pub async fn check_all<F: AsyncFn() -> Arc<dyn Backend>>(make: F) {
    writes_compare_the_expected_revision(&*make().await).await;
    revisions_count_every_write(&*make().await).await;
    ranges_page_through_one_revision(&*make().await).await;
    old_revisions_are_readable_until_compacted(&*make().await).await;
    watches_replay_history_then_follow(&*make().await).await;
    watches_from_before_a_compaction_fail(&*make().await).await;
    a_quiet_watch_learns_the_revision(&*make().await).await;
    oversized_writes_fail(&*make().await).await;
    concurrent_writers_of_a_key_serialize(make().await).await;
    watches_see_every_write_once_while_many_write(make().await).await;
    for seed in seeds(8) {
        random_operations_agree_with_the_model(&*make().await, seed, 150).await;
    }
}

/// The seeds of a random test: 1 to `short`, or `PINTLE_PROVE` times as many.
pub fn seeds(short: u64) -> std::ops::RangeInclusive<u64> {
    let times = std::env::var("PINTLE_PROVE").ok().and_then(|text| text.parse().ok());
    1..=short * times.unwrap_or(1)
}

pub async fn writes_compare_the_expected_revision(backend: &dyn Backend) {
    let current = |result: Result<u64, StoreError>| match result {
        Err(StoreError::Conflict { current }) => {
            current.map(|found| (found.mod_revision, found.value))
        }
        other => panic!("expected a conflict, got {other:?}"),
    };
    let missing = backend.write(Write::update("/k", 7, "v")).await;
    assert_eq!(current(missing), None, "an update of nothing");
    let missing = backend.write(Write::delete("/k", Expect::Any)).await;
    assert_eq!(current(missing), None, "a deletion of nothing");

    let first = backend.write(Write::create("/k", "one")).await.expect("creates");
    let again = backend.write(Write::create("/k", "x")).await;
    assert_eq!(current(again), Some((first, "one".into())), "a second create");
    let second = backend.write(Write::update("/k", first, "two")).await.expect("updates");
    let stale = backend.write(Write::update("/k", first, "x")).await;
    assert_eq!(current(stale), Some((second, "two".into())), "a stale update");
    let stale = backend.write(Write::delete("/k", Expect::At(first))).await;
    assert_eq!(current(stale), Some((second, "two".into())), "a stale deletion");
    let third = backend.write(Write::put("/k", Expect::Any, "three")).await.expect("overwrites");

    let found = backend.get("/k").await.expect("reads").expect("is there");
    assert_eq!((found.create_revision, found.mod_revision), (first, third));
    assert_eq!(found.value, "three");
    backend.write(Write::delete("/k", Expect::At(third))).await.expect("deletes");
    assert_eq!(backend.get("/k").await.expect("reads"), None);
    let anew = backend.write(Write::create("/k", "four")).await.expect("creates again");
    let found = backend.get("/k").await.expect("reads").expect("is there");
    assert_eq!((found.create_revision, found.mod_revision), (anew, anew));
}

pub async fn revisions_count_every_write(backend: &dyn Backend) {
    let start = backend.revision().await.expect("has a revision");
    for n in 1..=5 {
        let revision = backend.write(Write::create(format!("/{n}"), "v")).await.expect("creates");
        assert_eq!(revision, start + n);
        assert_eq!(backend.revision().await.expect("has a revision"), revision);
    }
    let _ = backend.write(Write::create("/1", "v")).await;
    assert_eq!(backend.revision().await.expect("has a revision"), start + 5, "a refused write");
    let revision = backend.write(Write::delete("/1", Expect::Any)).await.expect("deletes");
    assert_eq!(revision, start + 6, "a deletion");
}

pub async fn ranges_page_through_one_revision(backend: &dyn Backend) {
    for name in ["/a/1", "/b/1", "/b/2", "/b/3", "/b0", "/c/1"] {
        backend.write(Write::create(name, name.to_owned())).await.expect("creates");
    }
    let first = backend.range(Range::of("/b/").limit(2)).await.expect("reads");
    assert_eq!(keys(&first.items), ["/b/1", "/b/2"]);
    assert_eq!((first.more, first.remaining), (true, 1));
    let uncounted = backend.range(Range::of("/b/").limit(1).uncounted()).await.expect("reads");
    assert_eq!(keys(&uncounted.items), ["/b/1"]);
    assert!(uncounted.more && uncounted.remaining > 0);
    backend.write(Write::delete("/b/3", Expect::Any)).await.expect("deletes");
    backend.write(Write::create("/b/4", "late")).await.expect("creates");
    let rest = Range::of("/b/").after("/b/2").at(first.revision).limit(2);
    let rest = backend.range(rest).await.expect("reads");
    assert_eq!(keys(&rest.items), ["/b/3"]);
    assert_eq!((rest.more, rest.remaining, rest.revision), (false, 0, first.revision));
    assert_eq!(rest.items[0].value, "/b/3");
    let now = backend.range(Range::of("/b/")).await.expect("reads");
    assert_eq!(keys(&now.items), ["/b/1", "/b/2", "/b/4"]);
    let nothing = backend.range(Range::of("/d/")).await.expect("reads");
    assert!(nothing.items.is_empty() && !nothing.more);
}

pub async fn old_revisions_are_readable_until_compacted(backend: &dyn Backend) {
    let first = backend.write(Write::create("/k", "one")).await.expect("creates");
    let second = backend.write(Write::update("/k", first, "two")).await.expect("updates");
    let third = backend.write(Write::delete("/k", Expect::At(second))).await.expect("deletes");
    let at = async |revision| {
        let range = backend.range(Range::of("/").at(revision)).await?;
        Ok(range.items.into_iter().map(|item| item.value).collect::<Vec<_>>())
    };
    let expect = [(first, vec!["one"]), (second, vec!["two"]), (third, vec![])];
    for (revision, values) in &expect {
        let found: Result<_, StoreError> = at(*revision).await;
        assert_eq!(found.expect("is kept"), *values, "at {revision}");
    }
    assert!(matches!(at(third + 1).await, Err(StoreError::Future { .. })));
    backend.compact(second).await.expect("compacts");
    backend.compact(first).await.expect("has been compacted further already");
    assert!(
        matches!(at(first).await, Err(StoreError::Compacted { oldest }) if oldest == second),
        "compacted"
    );
    assert_eq!(at(second).await.expect("is the oldest kept"), ["two"]);
    // It may not know, but it must not take what can be read for compacted.
    assert!([0, second].contains(&backend.oldest_revision()), "{}", backend.oldest_revision());
    backend.compact(third).await.expect("compacts");
    assert!(at(third).await.expect("is kept").is_empty());
    assert!(matches!(backend.compact(third + 1).await, Err(StoreError::Future { .. })));
}

pub async fn watches_replay_history_then_follow(backend: &dyn Backend) {
    let start = backend.revision().await.expect("has a revision");
    let first = backend.write(Write::create("/a/1", "one")).await.expect("creates");
    backend.write(Write::create("/b/1", "other")).await.expect("creates");
    let mut all = backend.watch("/a/", start).await.expect("starts");
    let mut late = backend.watch("/a/", first).await.expect("starts");
    let second = backend.write(Write::update("/a/1", first, "two")).await.expect("updates");
    let third = backend.write(Write::delete("/a/1", Expect::Any)).await.expect("deletes");
    let fourth = backend.write(Write::create("/a/1", "new")).await.expect("creates");
    let expected = [
        (first, first, Some("one")),
        (second, first, Some("two")),
        (third, 0, None),
        (fourth, fourth, Some("new")),
    ];
    let seen = collect(&mut all, fourth).await;
    assert_eq!(simple(&seen), expected);
    let seen = collect(&mut late, fourth).await;
    assert_eq!(simple(&seen), expected[1..]);
}

pub async fn watches_from_before_a_compaction_fail(backend: &dyn Backend) {
    let first = backend.write(Write::create("/k", "one")).await.expect("creates");
    let second = backend.write(Write::update("/k", first, "two")).await.expect("updates");
    backend.compact(second).await.expect("compacts");
    let refused = backend.watch("/", first).await.err();
    assert!(matches!(refused, Some(StoreError::Compacted { oldest }) if oldest == second));
    let third = backend.write(Write::update("/k", second, "three")).await.expect("updates");
    let mut watch = backend.watch("/", second).await.expect("starts at the compacted revision");
    assert_eq!(simple(&collect(&mut watch, third).await), [(third, first, Some("three"))]);
}

pub async fn a_quiet_watch_learns_the_revision(backend: &dyn Backend) {
    let start = backend.revision().await.expect("has a revision");
    let mut quiet = backend.watch("/quiet/", start).await.expect("starts");
    for n in 0..10 {
        let revision = backend.write(Write::create(format!("/k/{n}"), "v")).await.expect("writes");
        quiet.request_progress();
        let batch = collect(&mut quiet, revision).await;
        assert!(batch.is_empty(), "nothing happened there");
    }
}

pub async fn oversized_writes_fail(backend: &dyn Backend) {
    let big = Bytes::from(vec![b'x'; 1_572_865]);
    let refused = backend.write(Write::create("/k", big)).await.expect_err("is too large");
    assert_eq!(refused.to_string(), "etcdserver: request is too large");
    let fits = Bytes::from(vec![b'x'; 1_500_000]);
    backend.write(Write::create("/k", fits.clone())).await.expect("fits");
    assert_eq!(backend.get("/k").await.expect("reads").expect("is there").value, fits);
}

pub async fn concurrent_writers_of_a_key_serialize(backend: Arc<dyn Backend>) {
    const WRITERS: u64 = 8;
    const TURNS: u64 = 25;
    backend.write(Write::create("/count", "0")).await.expect("creates");
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move {
                for _ in 0..TURNS {
                    let mut found = backend.get("/count").await.expect("reads").expect("is there");
                    loop {
                        let text = std::str::from_utf8(&found.value).expect("is text");
                        let next = text.parse::<u64>().expect("is a number") + 1;
                        let write = Write::update("/count", found.mod_revision, next.to_string());
                        match backend.write(write).await {
                            Ok(_) => break,
                            Err(StoreError::Conflict { current }) => {
                                found = current.expect("it is never deleted");
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("finishes");
    }
    let found = backend.get("/count").await.expect("reads").expect("is there");
    assert_eq!(found.value, (WRITERS * TURNS).to_string());
}

pub async fn watches_see_every_write_once_while_many_write(backend: Arc<dyn Backend>) {
    const WRITERS: u64 = 6;
    const WRITES: u64 = 60;
    let start = backend.revision().await.expect("has a revision");
    let last = start + WRITERS * WRITES;
    let watches: Vec<_> = (0..12)
        .map(|n| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move {
                let mut random = Random::new(n + 1);
                while backend.revision().await.expect("has a revision") < start + n * 20 {
                    tokio::task::yield_now().await;
                }
                let prefix = ["/", "/a/", "/b/"][n as usize % 3];
                let now = backend.revision().await.expect("has a revision");
                let after = start + random.below(now - start + 1);
                let mut watch = backend.watch(prefix, after).await.expect("starts");
                (prefix, after, collect(&mut watch, last).await)
            })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move {
                let mut written = Vec::new();
                for i in 0..WRITES {
                    let key = format!("/{}/{}", ["a", "b"][(i % 2) as usize], (n + i) % 9);
                    let value = format!("{n}.{i}");
                    let write = Write::put(key.clone(), Expect::Any, value.clone());
                    let revision = backend.write(write).await.expect("writes");
                    written.push((revision, key, value));
                }
                written
            })
        })
        .collect();
    let mut written = Vec::new();
    for writer in writers {
        written.extend(writer.await.expect("finishes"));
    }
    written.sort();
    for watch in watches {
        let (prefix, after, changes) = watch.await.expect("finishes");
        let seen: Vec<_> = changes
            .into_iter()
            .map(|change| (change.revision, change.key, change.value.expect("is a put")))
            .map(|(revision, key, value)| (revision, key.to_string(), value))
            .collect();
        let expected: Vec<_> = written
            .iter()
            .filter(|(revision, key, _)| *revision > after && key.starts_with(prefix))
            .map(|(revision, key, value)| (*revision, key.clone(), Bytes::from(value.clone())))
            .collect();
        assert_eq!(seen, expected, "{prefix} after {after}");
    }
}

/// Applies the same random operations to the backend and to the model, and compares every result,
/// the states at all revisions, and the events of watches from various revisions.
pub async fn random_operations_agree_with_the_model(
    backend: &dyn Backend,
    seed: u64,
    steps: usize,
) {
    let model = MemoryBackend::new();
    let offset = backend.revision().await.expect("has a revision") - 1;
    let mut random = Random::new(seed);
    let mut watches: Vec<(Str, u64, WatchStream)> = Vec::new();
    for step in 0..steps {
        random_step(backend, &model, offset, &mut random, &format!("seed {seed} step {step}"))
            .await;
        if random.below(8) == 0 {
            let prefix = Str::new(["/", "/a/", "/b/", "/a/1"][random.below(4) as usize]);
            let now = model.revision().await.expect("has a revision");
            let after = now.saturating_sub(random.below(12)).max(1);
            match (model.watch(&prefix, after).await, backend.watch(&prefix, after + offset).await)
            {
                (Ok(_), Ok(watch)) => watches.push((prefix, after, watch)),
                (Err(_), Err(_)) => {}
                (model, real) => panic!(
                    "seed {seed} step {step}: watch after {after}: {:?} and {:?}",
                    model.err(),
                    real.err()
                ),
            }
        }
        // Watches are read only sometimes, so that some lag behind compactions.
        if let Some((prefix, after, watch)) = watches.last_mut()
            && random.below(4) == 0
        {
            let now = model.revision().await.expect("has a revision");
            // A watch that compaction has overtaken may end, or go on if it had read the events
            // already.
            let Ok(mut twin) = model.watch(prefix, *after).await else {
                watches.pop();
                continue;
            };
            let expected = collect(&mut twin, now).await;
            let real = collect(watch, now + offset).await;
            assert_eq!(shifted(real, offset), expected, "seed {seed} step {step} from {after}");
            *after = now;
            if random.below(2) == 0 {
                watches.pop();
            }
        }
    }
}

async fn random_step(
    backend: &dyn Backend,
    model: &MemoryBackend,
    offset: u64,
    random: &mut Random,
    step: &str,
) {
    let now = model.revision().await.expect("has a revision");
    let key = Str::from(format!("/{}/{}", ["a", "b"][random.below(2) as usize], random.below(5)));
    match random.below(10) {
        0..=6 => {
            let found = model.get(&key).await.expect("reads").map(|found| found.mod_revision);
            let expect = match random.below(4) {
                0 => Expect::Any,
                1 => Expect::Absent,
                _ => Expect::At(found.unwrap_or(now)),
            };
            let value =
                (random.below(3) > 0).then(|| Bytes::from(vec![b'v'; random.below(300) as usize]));
            let write = Write { key, expect, value, ttl: None };
            let mut shifted_write = write.clone();
            if let Expect::At(at) = &mut shifted_write.expect {
                *at += offset;
            }
            let (expected, real) = (model.write(write).await, backend.write(shifted_write).await);
            match (expected, real) {
                (Ok(expected), Ok(real)) => assert_eq!(expected + offset, real, "{step}"),
                (
                    Err(StoreError::Conflict { current: expected }),
                    Err(StoreError::Conflict { current: real }),
                ) => assert_eq!(
                    expected.into_iter().collect::<Vec<_>>(),
                    unshifted(real.into_iter().collect(), offset),
                    "{step}"
                ),
                (expected, real) => panic!("{step}: {expected:?} and {real:?}"),
            }
        }
        7..=8 => {
            let prefix = ["/", "/a/", "/b/", "/b/1"][random.below(4) as usize];
            let mut range = Range::of(prefix).limit(random.below(4) as usize);
            range.after = (random.below(3) == 0).then_some(key);
            let at =
                (random.below(2) == 0).then(|| (now + 2).saturating_sub(random.below(20)).max(1));
            range.revision = at;
            let expected = model.range(range.clone()).await;
            range.revision = at.map(|at| at + offset);
            match (expected, backend.range(range).await) {
                (Ok(expected), Ok(real)) => {
                    assert_eq!(expected.items, unshifted(real.items, offset), "{step}");
                    assert_eq!(expected.revision + offset, real.revision, "{step}");
                    assert_eq!((expected.more, expected.remaining), (real.more, real.remaining));
                }
                (
                    Err(StoreError::Compacted { oldest: expected }),
                    Err(StoreError::Compacted { oldest: real }),
                ) => assert_eq!(expected + offset, real, "{step}"),
                (Err(StoreError::Future { .. }), Err(StoreError::Future { .. })) => {}
                (expected, real) => panic!("{step}: {expected:?} and {real:?}"),
            }
        }
        _ => {
            let revision = now.saturating_sub(random.below(15)).max(1);
            model.compact(revision).await.expect("compacts");
            backend.compact(revision + offset).await.expect("compacts");
        }
    }
}

/// Reads a watch until it is at `revision`, and checks that revisions only grow.
pub async fn collect(watch: &mut WatchStream, revision: u64) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    loop {
        // Progress is reported at once, so this task has to yield to the writers.
        tokio::task::yield_now().await;
        watch.request_progress();
        let Batch { changes: more, revision: reached } = watch.next().await.expect("goes on");
        for mut change in more {
            if change.value.is_none() {
                // Not every backend reports the create revision of a deleted key.
                change.create_revision = 0;
            }
            let last = changes.last().map_or(0, |change| change.revision);
            assert!(change.revision > last, "{} comes after {last}", change.revision);
            assert!(change.revision <= reached, "progress lags behind an event");
            changes.push(change);
        }
        if reached >= revision {
            return changes;
        }
    }
}

fn keys(items: &[KeyValue]) -> Vec<&str> {
    items.iter().map(|item| item.key.as_str()).collect()
}

fn simple(changes: &[Change]) -> Vec<(u64, u64, Option<&str>)> {
    let text =
        |value: &Bytes| std::str::from_utf8(value).expect("is text").to_owned().leak() as &str;
    changes
        .iter()
        .map(|change| (change.revision, change.create_revision, change.value.as_ref().map(text)))
        .collect()
}

fn shifted(mut changes: Vec<Change>, offset: u64) -> Vec<Change> {
    for change in &mut changes {
        change.revision -= offset;
        change.create_revision = change.create_revision.saturating_sub(offset);
    }
    changes
}

fn unshifted(mut items: Vec<KeyValue>, offset: u64) -> Vec<KeyValue> {
    for item in &mut items {
        item.create_revision -= offset;
        item.mod_revision -= offset;
    }
    items
}

/// Small, seeded and the same everywhere, so that a failing seed can be reproduced.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_memory_backend_fulfils_the_contract() {
        check_all(async || Arc::new(MemoryBackend::new()) as Arc<dyn Backend>).await;
    }
}
