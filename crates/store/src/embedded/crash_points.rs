//! Runs the store in a child process that crashes at every named point, on real files: acknowledged
//! writes survive, and the history leads to the state.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use meta::Str;

use super::*;
use crate::contract::{self, Random};
use crate::failpoint::POINTS;
use crate::{Cache, CacheOptions, Entry, Expect, Materialize};

/// Set in the child process, which runs the same test.
const DIRECTORY: &str = "PINTLE_CRASH_DIR";
const KEYS: u64 = 12;
const SIGABRT: i32 = 6;

#[test]
fn acknowledged_writes_survive_a_crash_at_every_point() {
    if let Some(root) = std::env::var_os(DIRECTORY) {
        return run_until_killed(Path::new(&root));
    }
    let root = tempfile::tempdir().expect("makes a directory");
    let mut acknowledged = Acknowledged::default();
    for seed in contract::seeds(8) {
        let mut random = Random::new(seed);
        for point in POINTS {
            let times = match point.split('.').next() {
                Some("recover") => 1,
                Some("log" | "publish" | "cache") => 40,
                _ => 3,
            };
            let nth = 1 + random.below(times);
            let case = format!("seed {seed}, {point}:{nth}");
            File::create(root.path().join("journal")).expect("each round has its own");
            let child = Command::new(std::env::current_exe().expect("this is a program"))
                .args([
                    "--exact",
                    "embedded::crash_points::acknowledged_writes_survive_a_crash_at_every_point",
                ])
                .env(DIRECTORY, root.path())
                .env("PINTLE_DIE_AT", format!("{point}:{nth}"))
                .output()
                .expect("it can be started");
            assert_eq!(
                child.status.signal(),
                Some(SIGABRT),
                "{case}: it was never there: {child:?}"
            );
            acknowledged.check(root.path(), &case);
        }
    }
}

/// Small segments, so that all points are reached soon.
fn open(root: &Path) -> Embedded {
    let dir = root.join("store");
    make_private(&dir).expect("makes a directory");
    let tuning = Tuning { segment_bytes: 16 << 10, ..Tuning::new(None) };
    Embedded::start(Box::new(RealDisk { dir }), tuning).expect("opens")
}

/// Serves stored values as text.
struct Texts;

impl Materialize for Texts {
    fn entry(&self, key: &Str, value: &Bytes, revision: u64) -> Result<Entry, String> {
        let metadata = format!(r#"{{"resourceVersion":"{revision}"}}"#);
        let json = format!(r#"{{"metadata":{metadata},"text":"{}"}}"#, text(value));
        let at = r#"{"metadata":"#.len();
        let meta = (at as u32, (at + metadata.len()) as u32);
        Ok(Entry { key: key.clone(), revision, json: json.into(), meta, ..Entry::default() })
    }
}

/// Writes, compacts and saves snapshots until the crash point; logs each write to the journal
/// before and after.
#[tokio::main(worker_threads = 2)]
async fn run_until_killed(root: &Path) {
    let store: Arc<Embedded> = Arc::new(open(root));
    let cache = Cache::start(store.clone(), CacheOptions::new("/", Arc::new(Texts)));
    cache.ready().await;
    let journal = Arc::new(Journal::open(root));
    let clients = (0..4).map(|client| {
        let (store, journal, root) = (store.clone(), journal.clone(), root.to_owned());
        tokio::spawn(async move {
            let mut random = Random::new(journal.next() + client);
            for _ in 0..2000 {
                match random.below(40) {
                    0 => {
                        let now = store.revision().await.expect("has a revision");
                        store.compact(now - random.below(now.min(20))).await.expect("compacts");
                    }
                    1 => {
                        let file = root.join(format!("backup-{}", journal.next()));
                        let dir = root.join("store");
                        // It may fail because the store changes too fast.
                        let _ =
                            tokio::task::spawn_blocking(move || backup::save(&dir, &file)).await;
                    }
                    choice => {
                        let key = format!("/k{}", random.below(KEYS));
                        let value = (choice > 10).then(|| journal.value(random.below(900)));
                        journal.write(&format!("begin {key} {}", value.as_deref().unwrap_or("-")));
                        let write = match &value {
                            Some(value) => Write::put(key.clone(), Expect::Any, value.clone()),
                            None => Write::delete(key.clone(), Expect::Any),
                        };
                        // A delete of an absent key is rejected.
                        let revision = store.write(write).await.unwrap_or(0);
                        let value = value.as_deref().unwrap_or("-");
                        journal.write(&format!("done {key} {value} {revision}"));
                    }
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("writes");
    }
}

/// A file of lines. What was written to it survives the process.
struct Journal {
    file: File,
    count: AtomicU64,
}

impl Journal {
    fn open(root: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(root.join("journal"));
        let file = file.expect("opens");
        let begin = file.metadata().expect("is a file").len() + u64::from(std::process::id());
        Self { file, count: AtomicU64::new(begin) }
    }

    fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// A unique value.
    fn value(&self, length: u64) -> String {
        format!("{}-{}", self.next(), "v".repeat(length as usize))
    }

    fn write(&self, line: &str) {
        (&self.file).write_all(format!("{line}\n").as_bytes()).expect("writes");
    }
}

/// What clients know of the store.
#[derive(Default)]
struct Acknowledged {
    revision: u64,
    state: BTreeMap<String, (u64, String)>,
}

impl Acknowledged {
    /// Opens what the crashed process left behind and compares it with the journal.
    #[tokio::main(flavor = "current_thread")]
    async fn check(&mut self, root: &Path, case: &str) {
        let journal = std::fs::read_to_string(root.join("journal")).expect("reads");
        let mut acknowledged: BTreeMap<String, (u64, String)> = BTreeMap::new();
        let mut open_writes: Vec<(&str, &str)> = Vec::new();
        let mut highest = self.revision;
        // The crash may have truncated the last line.
        let whole = journal.rfind('\n').map_or("", |end| &journal[..end]);
        for line in whole.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["begin", key, value] => open_writes.push((key, value)),
                ["done", key, value, revision] => {
                    let begun = open_writes.iter().position(|open| *open == (key, value));
                    open_writes.swap_remove(begun.expect("it was begun"));
                    let revision: u64 = revision.parse().expect("a number");
                    if revision == 0 {
                        continue;
                    }
                    assert!(revision > self.revision, "{case}: {revision} was given before");
                    highest = highest.max(revision);
                    let newest = acknowledged.entry(key.to_owned()).or_default();
                    if revision > newest.0 {
                        *newest = (revision, value.to_owned());
                    }
                }
                _ => panic!("{case}: {line}"),
            }
        }

        let store = open(root);
        let revision = store.revision().await.expect("has a revision");
        assert!(revision >= highest, "{case}: at {revision}, {highest} had been acknowledged");
        let found = state(&store, None).await;
        for n in 0..KEYS {
            let key = format!("/k{n}");
            let expected = acknowledged.get(&key).filter(|(_, value)| value != "-");
            let expected =
                if acknowledged.contains_key(&key) { expected } else { self.state.get(&key) };
            let last = found.get(&key);
            // A write that was not acknowledged may have taken effect.
            let newest = acknowledged.get(&key).map_or(self.revision, |(at, _)| *at);
            let pending = match last {
                Some((at, value)) => *at > newest && open_writes.contains(&(&*key, &**value)),
                None => open_writes.contains(&(&*key, "-")),
            };
            assert!(last == expected || pending, "{case}: {key} is {last:?}, not {expected:?}");
        }
        replay(&store, &found, case).await;
        store.close();
        drop(store);
        let checked = backup::check(&root.join("store")).expect("is whole");
        assert_eq!((checked.revision, checked.keys), (revision, found.len()), "{case}");
        for file in std::fs::read_dir(root).expect("reads") {
            let file = file.expect("reads").path();
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("backup-") {
                // An incomplete one has an extension.
                if file.extension().is_none() {
                    backup::status(&file).unwrap_or_else(|error| panic!("{case}: {name}: {error}"));
                }
                std::fs::remove_file(&file).expect("removes");
            }
        }
        (self.revision, self.state) = (revision, found);
    }
}

async fn state(store: &Embedded, at: Option<u64>) -> BTreeMap<String, (u64, String)> {
    let range = Range { revision: at, ..Range::of("/") };
    let items = store.range(range).await.expect("reads").items.into_iter();
    items.map(|kv| (kv.key.to_string(), (kv.mod_revision, text(&kv.value)))).collect()
}

fn text(value: &Bytes) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// The oldest readable state and the events since lead to the newest state.
async fn replay(store: &Embedded, newest: &BTreeMap<String, (u64, String)>, case: &str) {
    let oldest = store.store.index.read().compacted.max(1);
    let mut replayed = state(store, Some(oldest)).await;
    let now = store.revision().await.expect("has a revision");
    let mut watch = store.watch("/", oldest).await.expect("starts");
    for change in contract::collect(&mut watch, now).await {
        match change.value {
            Some(value) => {
                drop(replayed.insert(change.key.to_string(), (change.revision, text(&value))));
            }
            None => drop(replayed.remove(change.key.as_str())),
        }
    }
    assert_eq!(&replayed, newest, "{case}");
}
