use std::sync::atomic::AtomicBool;

use super::*;

/// A cache that no other test uses.
fn cache(bytes_max: usize) -> &'static EncodingCache {
    Box::leak(Box::new(EncodingCache::new(bytes_max)))
}

fn entries(cache: &'static EncodingCache, count: usize) -> Vec<CachedEncodings> {
    (0..count).map(|_| CachedEncodings::within(cache)).collect()
}

/// What one encoding of the tests costs; they fit sixteen times into the smallest budget that keeps any.
const COST: usize = 1000;

fn encoding() -> Bytes {
    Bytes::from(vec![7; COST - OVERHEAD_BYTES])
}

/// As a request reads an object: what is kept, or made and kept if possible. Returns whether it was kept.
fn read(entry: &CachedEncodings) -> bool {
    let hit = entry.get(0).is_some();
    if !hit && entry.has_place(encoding().len()) {
        entry.keep(0, &encoding(), false);
    }
    hit
}

fn hits(entries: &[CachedEncodings]) -> usize {
    entries.iter().filter(|entry| read(entry)).count()
}

#[test]
fn the_budget_is_never_exceeded() {
    let cases = [
        // (budget in encodings, entries, kept)
        (0, 10, 0),
        (15, 10, 0),
        (16, 10, 10),
        (16, 16, 16),
        (16, 17, 16),
        (20, 1000, 20),
    ];
    for (budget, count, kept) in cases {
        let cache = cache(budget * COST);
        let entries = entries(cache, count);
        for entry in &entries {
            read(entry);
            assert!(cache.bytes() <= budget * COST);
        }
        let found = entries.iter().filter(|entry| entry.has(0)).count();
        assert_eq!((found, cache.bytes()), (kept, kept * COST), "{budget} for {count}");
    }
}

#[test]
fn an_entry_that_goes_gives_its_bytes_back() {
    let cache = cache(100 * COST);
    let mut entries = entries(cache, 50);
    assert_eq!(hits(&entries), 0);
    entries[0].keep(1, &encoding(), false);
    entries[0].pin(2, &encoding());
    assert_eq!((cache.bytes(), cache.pinned_bytes()), (51 * COST, COST));
    let shared = entries[0].get(1);
    entries.drain(..10);
    assert_eq!((cache.bytes(), cache.pinned_bytes()), (40 * COST, 0));
    drop(entries);
    assert_eq!(cache.bytes(), 0);
    assert_eq!(shared, Some(encoding()), "a response still has it");
}

#[test]
fn one_encoding_is_replaced_and_others_stay() {
    let cache = cache(100 * COST);
    let entry = &entries(cache, 1)[0];
    entry.keep(0, b"first", false);
    entry.keep(1, b"other", false);
    entry.keep(0, b"late", false);
    assert_eq!(entry.get(0).as_deref(), Some(&b"first"[..]));
    entry.keep(0, b"new", true);
    assert_eq!(entry.get(0).as_deref(), Some(&b"new"[..]));
    assert_eq!(entry.get(1).as_deref(), Some(&b"other"[..]));
    assert_eq!(cache.bytes(), cost(3) + cost(5));
}

#[test]
fn what_is_pinned_is_neither_refused_nor_evicted() {
    for budget in [0, 16] {
        let cache = cache(budget * COST);
        let entries = entries(cache, 40);
        for entry in &entries {
            entry.pin(5, &encoding());
            read(entry);
        }
        hits(&entries);
        assert!(entries.iter().all(|entry| entry.has(5)));
        assert_eq!(cache.pinned_bytes(), 40 * COST);
        assert_eq!(cache.bytes(), budget * COST);
    }
}

/// A list of more than fits has as many hits as fit, list after list: nothing is replaced in vain.
#[test]
fn lists_of_more_than_fits_find_what_fits() {
    let cache = cache(100 * COST);
    let entries = entries(cache, 300);
    hits(&entries);
    for round in 0..20 {
        let hits = hits(&entries);
        assert!((75..=100).contains(&hits), "{hits} in round {round}");
    }
    let evicted = cache.evicted();
    assert!(evicted < 300, "{evicted}");
}

/// Encodings that are not used any longer leave their places to others in the end.
#[test]
fn a_new_working_set_takes_over() {
    let cache = cache(100 * COST);
    let old = entries(cache, 100);
    for _ in 0..10 {
        hits(&old);
    }
    let new = entries(cache, 80);
    let rounds = (0..200).find(|_| hits(&new) == 80).expect("all are kept in the end");
    assert!(rounds > 1, "not at once: the others were used often");
    assert_eq!(cache.bytes(), 100 * COST);
}

/// Objects that change and are read again use places that the old ones gave back; the queue does not grow with each.
#[test]
fn places_of_entries_that_are_gone_are_removed() {
    let cache = cache(100 * COST);
    let mut entries = entries(cache, 50);
    for n in 0..20_000 {
        entries[n % 50] = CachedEncodings::within(cache);
        read(&entries[n % 50]);
    }
    assert_eq!(entries.iter().filter(|entry| entry.has(0)).count(), 50);
    let places = cache.queue.lock().places.len();
    assert!(places <= PLACES_MIN + 1, "{places}");
    assert_eq!((cache.bytes(), cache.evicted()), (50 * COST, 0));
}

#[test]
fn a_smaller_budget_takes_effect_at_once() {
    let cache = cache(100 * COST);
    let entries = entries(cache, 60);
    hits(&entries);
    cache.set_bytes_max(20 * COST);
    assert_eq!(cache.bytes(), 20 * COST);
    assert_eq!(entries.iter().filter(|entry| entry.has(0)).count(), 20);
    cache.set_bytes_max(0);
    assert_eq!(cache.bytes(), 0);
    hits(&entries);
    assert_eq!(hits(&entries), 0);
}

/// Readers, evictions, and entries that go at the same time.
#[test]
fn concurrent_use_keeps_the_count_right() {
    let cache = cache(40 * COST);
    let entries: Vec<Mutex<Arc<CachedEncodings>>> =
        (0..100).map(|_| Mutex::new(Arc::new(CachedEncodings::within(cache)))).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|thread| {
                let entries = &entries;
                scope.spawn(move || {
                    for n in 0..20_000 {
                        let entry = entries[(n * 7 + thread * 31) % 100].lock().clone();
                        match entry.get(0) {
                            Some(kept) => assert_eq!(kept, encoding()),
                            None => entry.keep(0, &encoding(), n % 5 == 0),
                        }
                        assert!(cache.bytes() <= 40 * COST);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            for n in (0..100).cycle() {
                *entries[n].lock() = Arc::new(CachedEncodings::within(cache));
                if done.load(Relaxed) {
                    break;
                }
            }
        });
        for reader in readers {
            reader.join().expect("no reader panics");
        }
        done.store(true, Relaxed);
    });
    let kept = entries.iter().filter(|entry| entry.lock().has(0)).count();
    assert_eq!(cache.bytes(), kept * COST);
    drop(entries);
    assert_eq!(cache.bytes(), 0);
}

/// `cargo test --release -p store -- --ignored --nocapture speed`
#[test]
#[ignore = "a measurement"]
fn speed() {
    const ENTRIES: usize = 10_000;
    const ROUNDS: usize = 20;
    let measure = |what: &str, bytes_max: usize, len: usize| {
        let cache = cache(bytes_max);
        let (entries, made) = (entries(cache, ENTRIES), vec![7; len]);
        let mut hits = 0;
        let mut round = || {
            let began = std::time::Instant::now();
            for entry in &entries {
                if entry.get(0).is_some() {
                    hits += 1;
                } else if entry.has_place(len) {
                    entry.keep(0, &made, false);
                }
            }
            began.elapsed().as_nanos() as usize / ENTRIES
        };
        let first = round();
        let rest = (0..ROUNDS).map(|_| round()).sum::<usize>() / ROUNDS;
        let share = hits * 100 / (ENTRIES * ROUNDS);
        let evicted = cache.evicted();
        println!(
            "{what}: first {first} ns, then {rest} ns an entry, {share} % hits, {evicted} evictions"
        );
    };
    measure("all fit", 1 << 30, 700);
    measure("all fit, 8 KB", 1 << 30, 8 << 10);
    measure("half of 8 KB fits", 40 << 20, 8 << 10);
    measure("a twentieth of 8 KB fits", 4 << 20, 8 << 10);
    measure("nothing is kept", 0, 8 << 10);
}
