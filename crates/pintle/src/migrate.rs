//! `pintle migrate`: copies one store into another, etcd or embedded, and compares the two at the end.
//! Objects are written as a server on the target would write them.
//!
//! In an embedded target keys keep their revisions; etcd assigns new ones. TTLs are kept. The leases of
//! running apiservers (`masterleases`) are not copied.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use apiextensions::definition::CustomResourceDefinition;
use builtin::{Definitions, StorageFormat, StorageTranscoder};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use meta::Str;
use registry::Strategy;
use store::embedded::Import;
use store::encrypt::{Encrypted, Encryption};
use store::{Backend, Embedded, EmbeddedOptions, KeyValue, Range, StoreError, Write};

use crate::encryption_at_rest;
use crate::flags::{self, Parsed};
use crate::options;

// Not after a backslash, which would strip the indentation of the first line.
pub(crate) const USAGE: &str = "  pintle migrate --from PLACE --to PLACE [flags]  copy a store; a PLACE is a data directory, or etcd
                                                  servers: http://host:2379[,http://…]
      --etcd-prefix, --etcd-cafile, --etcd-certfile, --etcd-keyfile, --storage-media-type,
      --encryption-provider-config, --event-ttl   as of the server
      --resume                                    go on with an interrupted migration into etcd
";

/// The server's flags that apply here.
const FLAGS: [&str; 7] = [
    "etcd-prefix",
    "etcd-cafile",
    "etcd-certfile",
    "etcd-keyfile",
    "storage-media-type",
    "encryption-provider-config",
    "event-ttl",
];

/// Runs the migration and returns the summary. Progress goes to standard error.
pub(crate) fn run(args: &[String]) -> Result<String, String> {
    let wanted = MigrateOptions::parse(args)?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(migrate(&wanted))
}

struct MigrateOptions {
    from: StoreLocation,
    to: StoreLocation,
    resume: bool,
    parsed: Parsed,
    /// With a trailing slash.
    prefix: String,
}

#[derive(Debug, PartialEq, Eq)]
enum StoreLocation {
    Etcd(Vec<String>),
    /// A data directory.
    Dir(PathBuf),
}

impl MigrateOptions {
    fn parse(args: &[String]) -> Result<Self, String> {
        let (mut from, mut to, mut resume, mut rest) = (None, None, false, Vec::new());
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (arg.as_str(), None),
            };
            let place = match name {
                "--from" => &mut from,
                "--to" => &mut to,
                "--resume" if value.is_none() => {
                    resume = true;
                    continue;
                }
                _ => {
                    rest.push(arg.clone());
                    continue;
                }
            };
            let value = value.or_else(|| args.next().cloned());
            *place = Some(StoreLocation::parse(
                &value.ok_or_else(|| format!("flag needs an argument: {name}"))?,
            ));
        }
        let parsed = flags::parse(rest).map_err(|error| error.to_string())?;
        if let Some(word) = parsed.arguments.first() {
            return Err(format!("unknown argument: {word}"));
        }
        let strange =
            |flag: &&flags::Flag| parsed.is_changed(flag.name) && !FLAGS.contains(&flag.name);
        if let Some(flag) = flags::all().find(strange) {
            return Err(format!("--{} does not apply to migrate", flag.name));
        }
        let prefix = format!("{}/", options::storage_prefix(&parsed));
        let missing = |name| format!("migrate needs {name}");
        let from = from.ok_or_else(|| missing("--from"))?;
        let to = to.ok_or_else(|| missing("--to"))?;
        if from == to {
            return Err("--from and --to are the same".to_owned());
        }
        Ok(Self { from, to, resume, parsed, prefix })
    }

    fn open(&self, place: &StoreLocation) -> Result<Arc<dyn Backend>, String> {
        match place {
            StoreLocation::Etcd(servers) => {
                let etcd = etcd::Options {
                    tls: options::etcd_tls(&self.parsed),
                    compact_every: None,
                    ..etcd::Options::new(servers.clone())
                };
                Ok(Arc::new(etcd::Etcd::new(&etcd, &background::Tasks::default())?))
            }
            StoreLocation::Dir(dir) => open_embedded(&dir.join("store")),
        }
    }
}

impl StoreLocation {
    fn parse(text: &str) -> Self {
        if text.contains("://") {
            Self::Etcd(text.split(',').map(str::to_owned).collect())
        } else {
            Self::Dir(text.into())
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Etcd(servers) => servers.join(","),
            Self::Dir(dir) => dir.display().to_string(),
        }
    }
}

fn open_embedded(dir: &Path) -> Result<Arc<dyn Backend>, String> {
    if !dir.exists() {
        return Err(format!("there is no store in {}", dir.display()));
    }
    let options = EmbeddedOptions { dir: dir.to_owned(), compact_every: None };
    Ok(Arc::new(Embedded::open(&options).map_err(store_error)?))
}

fn store_error(error: StoreError) -> String {
    error.to_string()
}

/// What both directions need.
struct Copy {
    /// Decrypted.
    source: Arc<dyn Backend>,
    encryption: Arc<Encryption>,
    objects: StorageTranscoder,
    prefix: String,
    /// Description of the target for messages.
    to: String,
    event_ttl: Duration,
    /// The revision that is copied.
    revision: u64,
    keys: u64,
}

async fn migrate(wanted: &MigrateOptions) -> Result<String, String> {
    let mut definitions = Definitions::load();
    let schema = Arc::new(std::mem::take(&mut definitions.schema));
    let file = options::path(&wanted.parsed, "encryption-provider-config");
    let root = wanted.prefix.trim_end_matches('/');
    let tasks = background::Tasks::default();
    let encryption = encryption_at_rest::encryption(file.as_deref(), root, &definitions, &tasks)?;
    encryption.prime().await?;
    let form = match &wanted.to {
        StoreLocation::Etcd(_) => options::storage_form(&wanted.parsed),
        StoreLocation::Dir(_) => StorageFormat::Own,
    };
    let source = wanted.open(&wanted.from)?;
    let source: Arc<dyn Backend> = Arc::new(Encrypted::new(source, encryption.clone()));
    let first = source.range(Range::of(wanted.prefix.as_str()).limit(1)).await;
    let first = first.map_err(|error| format!("cannot read {}: {error}", wanted.from.shown()))?;
    let keys = first.items.len() as u64 + first.remaining;
    if keys == 0 {
        return Err(format!("{} has no keys under {}", wanted.from.shown(), wanted.prefix));
    }
    let crd_strategy: Arc<dyn Strategy> = Arc::new(CustomResourceDefinition);
    let copy = Copy {
        source,
        encryption,
        objects: StorageTranscoder::new(&definitions, &schema, form, &crd_strategy),
        prefix: wanted.prefix.clone(),
        to: wanted.to.shown(),
        event_ttl: options::duration(&wanted.parsed, "event-ttl"),
        revision: first.revision,
        keys,
    };
    let (copied, verified) = match &wanted.to {
        StoreLocation::Etcd(_) => copy.fill_etcd(wanted.open(&wanted.to)?, wanted.resume).await?,
        StoreLocation::Dir(dir) => copy.fill_dir(&dir.join("store")).await?,
    };
    let (from, to) = (wanted.from.shown(), wanted.to.shown());
    Ok(format!(
        "migrated {} keys ({} bytes) of revision {} from {from} to {to}; {verified} keys compared \
         and found the same\n",
        copied.keys, copied.bytes, copy.revision
    ))
}

/// Keys per read.
const PAGE_KEYS: usize = 500;
/// Concurrent writes, which share etcd's fsyncs.
const WRITES: usize = 64;

impl Copy {
    async fn fill_etcd(
        &self,
        target: Arc<dyn Backend>,
        resume: bool,
    ) -> Result<(Progress, u64), String> {
        let target: Arc<dyn Backend> = Arc::new(Encrypted::new(target, self.encryption.clone()));
        let there = target.range(Range::of(self.prefix.as_str()).limit(1)).await;
        let there = there.map_err(|error| format!("cannot read {}: {error}", self.to))?;
        if !there.items.is_empty() && !resume {
            return Err(format!(
                "the target holds {} keys under {} already: use another --etcd-prefix, empty it, or \
                 go on with an interrupted migration (--resume)",
                1 + there.remaining,
                self.prefix
            ));
        }
        let mut progress = Progress::new(self.keys);
        let mut pages = Pages::new(&*self.source, &self.prefix, Some(self.revision));
        while let Some(page) = pages.next().await? {
            let mut writes = Vec::with_capacity(page.len());
            for item in page.into_iter().filter(|item| self.is_data(&item.key)) {
                progress.add(&item);
                let value = self.written(&item)?;
                let ttl = self.ttl(&item);
                writes.push(Write::create(item.key, value).with_ttl(ttl));
            }
            let target = &target;
            let written = stream::iter(writes).map(|write| async move {
                let (key, value) = (write.key.clone(), write.value.clone());
                match target.write(write).await {
                    // Copied before an interruption.
                    Err(StoreError::Conflict { current: Some(ref current) })
                        if resume && Some(&current.value) == value.as_ref() =>
                    {
                        Ok(())
                    }
                    Err(error) => Err(format!("{key}: {error}")),
                    Ok(_) => Ok(()),
                }
            });
            written.buffer_unordered(WRITES).try_collect::<()>().await?;
            progress.report();
        }
        let verified = self.compare(&*target, false).await?;
        Ok((progress, verified))
    }

    async fn fill_dir(&self, dir: &Path) -> Result<(Progress, u64), String> {
        let mut import = Import::begin(dir, self.revision).map_err(store_error)?;
        let mut progress = Progress::new(self.keys);
        let mut pages = Pages::new(&*self.source, &self.prefix, Some(self.revision));
        while let Some(page) = pages.next().await? {
            for item in page.into_iter().filter(|item| self.is_data(&item.key)) {
                progress.add(&item);
                let value = self.written(&item)?;
                let value = self.encryption.seal(&item.key, &value).map_err(store_error)?;
                let expires_ms = self.ttl(&item).map(|ttl| now_ms() + ttl.as_millis() as u64);
                import.add(&KeyValue { value, expires_ms, ..item }).map_err(store_error)?;
            }
            progress.report();
        }
        import.finish().map_err(store_error)?;
        let target = open_embedded(import.partial_dir())?;
        let target = Encrypted::new(target, self.encryption.clone());
        let verified = self.compare(&target, true).await?;
        drop(target);
        import.commit().map_err(store_error)?;
        Ok((progress, verified))
    }

    /// The value that a server on the target would have written.
    fn written(&self, item: &KeyValue) -> Result<Bytes, String> {
        if let Some(problem) = &item.problem {
            return Err(format!("{} cannot be read: {problem}", item.key));
        }
        let path = &item.key[self.prefix.len()..];
        self.objects.written(path, &item.value).map_err(|why| format!("{}: {why}", item.key))
    }

    /// The remaining TTL. etcd does not return it with the key, so events get the full TTL again.
    fn ttl(&self, item: &KeyValue) -> Option<Duration> {
        match item.expires_ms {
            Some(at) => Some(Duration::from_millis(at.saturating_sub(now_ms()).max(1000))),
            None => self.is_event(&item.key).then_some(self.event_ttl),
        }
    }

    fn is_event(&self, key: &str) -> bool {
        key[self.prefix.len()..].starts_with("events/")
    }

    fn is_data(&self, key: &str) -> bool {
        !key[self.prefix.len()..].starts_with("masterleases/")
    }

    /// Compares the current state of both stores, so that writes to the source during the migration are
    /// noticed. Returns the number of equal keys, or the first difference.
    async fn compare(&self, target: &dyn Backend, same_revisions: bool) -> Result<u64, String> {
        let mut left = Pages::new(&*self.source, &self.prefix, None);
        let mut right = Pages::new(target, &self.prefix, None);
        let mut same = 0;
        loop {
            let (one, other) = (left.peek().await?, right.peek().await?);
            let order = match (one, other) {
                (None, None) => return Ok(same),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(other)) => one.key.cmp(&other.key),
            };
            match (order, one, other) {
                (Ordering::Equal, Some(one), Some(other)) => {
                    self.compare_values(one, other, same_revisions)?;
                    same += 1;
                }
                (Ordering::Less, Some(alone), _) | (_, _, Some(alone))
                    // Events may have expired on one side first.
                    if self.is_data(&alone.key) && !self.is_event(&alone.key) => {
                        return Err(format!(
                            "{} is only in one of the stores: was there a writer meanwhile? Stop \
                             the servers on both and migrate again",
                            alone.key
                        ));
                    }
                _ => {}
            }
            if order.is_le() {
                left.pass();
            }
            if order.is_ge() {
                right.pass();
            }
        }
    }

    fn compare_values(
        &self,
        one: &KeyValue,
        other: &KeyValue,
        same_revisions: bool,
    ) -> Result<(), String> {
        let (key, path) = (&one.key, &one.key[self.prefix.len()..]);
        let served = |item: &KeyValue| {
            self.objects.served(path, &item.value).map_err(|why| format!("{key}: {why}"))
        };
        let revisions = |item: &KeyValue| (item.create_revision, item.mod_revision);
        if served(one)? != served(other)? || (same_revisions && revisions(one) != revisions(other))
        {
            return Err(format!(
                "{key} is not the same in both stores: was there a writer meanwhile? Stop the \
                 servers on both and migrate again"
            ));
        }
        Ok(())
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Iterates over the keys of a store page by page.
struct Pages<'a> {
    store: &'a dyn Backend,
    range: Option<Range>,
    /// The current page in reverse order, to be popped.
    page: Vec<KeyValue>,
}

impl<'a> Pages<'a> {
    fn new(store: &'a dyn Backend, prefix: &str, revision: Option<u64>) -> Self {
        let mut range = Range::of(Str::new(prefix)).limit(PAGE_KEYS);
        range.revision = revision;
        Self { store, range: Some(range), page: Vec::new() }
    }

    async fn next(&mut self) -> Result<Option<Vec<KeyValue>>, String> {
        let Some(range) = &mut self.range else { return Ok(None) };
        let found = self.store.range(range.clone()).await.map_err(store_error)?;
        range.revision = Some(found.revision);
        range.after = found.items.last().map(|item| item.key.clone());
        if !found.more {
            self.range = None;
        }
        Ok(Some(found.items))
    }

    async fn peek(&mut self) -> Result<Option<&KeyValue>, String> {
        while self.page.is_empty() {
            let Some(mut page) = self.next().await? else { return Ok(None) };
            page.reverse();
            self.page = page;
        }
        Ok(self.page.last())
    }

    fn pass(&mut self) {
        self.page.pop();
    }
}

/// Progress, printed about once a second.
struct Progress {
    all: u64,
    keys: u64,
    bytes: u64,
    reported_at: Instant,
}

impl Progress {
    fn new(all: u64) -> Self {
        Self { all, keys: 0, bytes: 0, reported_at: Instant::now() }
    }

    fn add(&mut self, item: &KeyValue) {
        self.keys += 1;
        self.bytes += (item.key.len() + item.value.len()) as u64;
    }

    fn report(&mut self) {
        if self.reported_at.elapsed() > Duration::from_secs(1) || self.keys == self.all {
            self.reported_at = Instant::now();
            eprintln!("{} of {} keys, {} bytes", self.keys, self.all, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_arguments_are_reported() {
        let cases = [
            ("", "migrate needs --from"),
            ("--from a", "migrate needs --to"),
            ("--from", "flag needs an argument: --from"),
            ("--from a --to a", "the same"),
            ("--from a --to b c", "unknown argument: c"),
            ("--from a --to b --nonsense", "unknown flag: --nonsense"),
            ("--from a --to b --secure-port=1", "--secure-port does not apply to migrate"),
            ("--from /nowhere --to b", "there is no store in /nowhere/store"),
        ];
        for (line, wrong) in cases {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let error = run(&args).expect_err("is a mistake");
            assert!(error.contains(wrong), "{line}: {error}");
        }
    }

    #[test]
    fn urls_are_etcd_and_paths_are_data_directories() {
        let etcd =
            |urls: &[&str]| StoreLocation::Etcd(urls.iter().map(ToString::to_string).collect());
        assert_eq!(
            StoreLocation::parse("http://a:1,https://b:2"),
            etcd(&["http://a:1", "https://b:2"])
        );
        assert_eq!(
            StoreLocation::parse("./pintle-data"),
            StoreLocation::Dir("./pintle-data".into())
        );
    }
}
