//! Measures the store on this machine: `cargo run --release -p store --example measure`. Uses a
//! directory below the current one (a tmpfs would sync for free) and removes it again. With a
//! number after `--`, that many objects instead of 10 000.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use meta::Str;
use store::{
    Backend, Cache, CacheOptions, Embedded, EmbeddedOptions, Entry, Expect, Materialize, Trigger,
    WatchItem, Write,
};

/// The server's allocator; memory and start-up time depend on it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OBJECTS: usize = 10_000;
const OBJECTS_MIN: usize = 5_000;
const OBJECT_BYTES: usize = 5 * 1024;
const WATCHERS: usize = 1000;

/// Splices the revision in at a known offset, as the registry does.
struct Splice;

impl Materialize for Splice {
    fn entry(&self, key: &Str, value: &Bytes, revision: u64) -> Result<Entry, String> {
        let head = r#"{"metadata":{"resourceVersion":""#;
        let mut json = Vec::with_capacity(value.len() + 64);
        json.extend_from_slice(head.as_bytes());
        json.extend_from_slice(revision.to_string().as_bytes());
        json.extend_from_slice(b"\"}");
        let meta = (12, json.len() as u32);
        json.extend_from_slice(value);
        let node = Str::from(format!("n{}", revision % 500));
        let fields = Box::new([node]);
        let (key, json) = (key.clone(), json.into());
        Ok(Entry { key, revision, json, meta, fields, ..Entry::default() })
    }
}

fn value() -> Bytes {
    let mut value = vec![b'x'; OBJECT_BYTES];
    value[..8].copy_from_slice(br#","spec":"#);
    Bytes::from(value)
}

#[tokio::main]
async fn main() {
    let objects = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let objects = objects.unwrap_or(OBJECTS).max(OBJECTS_MIN);
    let dir = std::env::current_dir().expect("has a directory").join("measure-data");
    let _ = std::fs::remove_dir_all(&dir);
    let options = EmbeddedOptions::new(&dir);
    let open = |what: &str| {
        let (began, cpu) = (Instant::now(), cpu_ms());
        let store = Arc::new(Embedded::open(&options).expect("opens"));
        println!("{what}: {:?}, {} ms CPU", began.elapsed(), cpu_ms() - cpu);
        store
    };
    let store = open("open an empty directory");
    println!("memory: {} MB", rss_mb());
    single_writes(&store).await;
    fill(&store, objects).await;
    drop(store);

    let store = open("open with the objects");
    let (began, cpu) = (Instant::now(), cpu_ms());
    let cache = start(&store);
    cache.ready().await;
    let (took, cpu) = (began.elapsed(), cpu_ms() - cpu);
    println!("fill the cache with {}: {took:?}, {cpu} ms CPU", cache.snapshot().len());
    println!("memory: {} MB", rss_mb());
    reads(&store, &cache).await;
    fan_out(&store, &cache).await;
    println!("memory: {} MB", rss_mb());
    cache.close();
    drop(cache);
    drop(store);
    std::fs::remove_dir_all(&dir).expect("cleans up");
}

fn start(store: &Arc<Embedded>) -> Arc<Cache> {
    let options = CacheOptions::new("/registry/pods/", Arc::new(Splice)).index(Some(0));
    Cache::start(Arc::clone(store) as Arc<dyn Backend>, options)
}

async fn single_writes(store: &Embedded) {
    let mut took = Vec::new();
    for n in 0..300 {
        let began = Instant::now();
        let key = format!("/registry/single/{n}");
        store.write(Write::create(key, value())).await.expect("writes");
        took.push(began.elapsed());
    }
    took.sort_unstable();
    println!("one writer: p50 {:?}, p99 {:?}", took[150], took[297]);
}

async fn fill(store: &Arc<Embedded>, objects: usize) {
    let began = Instant::now();
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for n in (writer..objects).step_by(64) {
                    let key = format!("/registry/pods/ns-{}/pod-{n}", n % 20);
                    store.write(Write::create(key, value())).await.expect("writes");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("finishes");
    }
    let took = began.elapsed();
    println!("64 writers: {:.0} writes/s", objects as f64 / took.as_secs_f64());
}

async fn reads(store: &Embedded, cache: &Cache) {
    let time = |what: &str, times: u32, took: Duration| println!("{what}: {:?}", took / times);
    let began = Instant::now();
    for _ in 0..100_000 {
        cache.get("/registry/pods/ns-7/pod-4567").expect("is there");
    }
    time("get", 100_000, began.elapsed());
    let snapshot = cache.snapshot();
    let began = Instant::now();
    let bytes: usize = snapshot.range("/registry/pods/", None).map(|e| e.json.len()).sum();
    println!("walk {bytes} bytes: {:?}", began.elapsed());
    let mut took = Duration::ZERO;
    for n in 0..200 {
        // Another resource: the cache has to learn that nothing changed here.
        let write = Write::put(format!("/registry/other/{n}"), Expect::Any, "v");
        store.write(write).await.expect("writes");
        let began = Instant::now();
        cache.fresh().await.expect("catches up");
        took += began.elapsed();
    }
    time("fresh after a write elsewhere", 200, took);
}

async fn fan_out(store: &Embedded, cache: &Arc<Cache>) {
    const WRITES: u64 = 200;
    let after = cache.fresh().await.expect("is there").revision;
    let last = after + WRITES;
    let watch = |trigger: Option<Trigger>| {
        let mut watcher = cache.watch(after, trigger).expect("starts");
        tokio::spawn(async move {
            let (mut seen, mut bytes) = (0_u64, 0);
            loop {
                match watcher.next().await {
                    WatchItem::Events(events) => {
                        for event in events {
                            bytes += event.frame(0, || event.entry.json.bytes()).len();
                            seen += 1;
                            if event.revision == last {
                                return (seen, bytes);
                            }
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
        })
    };
    let nodes: Vec<_> = (0..WATCHERS)
        .map(|n| watch(Some(Trigger::Index(format!("n{}", 1000 + n).into()))))
        .collect();
    let all: Vec<_> = (0..WATCHERS).map(|_| watch(None)).collect();
    let cpu = cpu_ms();
    let began = Instant::now();
    for n in 0..WRITES {
        let key = format!("/registry/pods/ns-1/pod-{}", n * 20 + 1);
        store.write(Write::put(key, Expect::Any, value())).await.expect("writes");
    }
    let mut events = 0;
    for watcher in all {
        events += watcher.await.expect("finishes").0;
    }
    let (took, cpu) = (began.elapsed(), cpu_ms() - cpu);
    println!(
        "{events} events to {WATCHERS} watchers ({WATCHERS} others asleep): {took:?}, {cpu} ms CPU"
    );
    for watcher in nodes {
        watcher.abort();
    }
}

/// Resident memory of this process.
fn rss_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or_default() / 1024
}

/// CPU time of this process, user and system.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<u64> =
        stat.split_whitespace().skip(13).take(2).filter_map(|n| n.parse().ok()).collect();
    fields.iter().sum::<u64>() * 10
}
