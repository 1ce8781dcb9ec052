//! LIST: a snapshot, streamed. Nothing is decoded; memory is one chunk for a list of any size.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use codec::gzip::GzipWriter;
use meta::{ApiError, Str};
use store::{Entry, ListCounters, ReadMetrics, Snapshot, StoreError};

use crate::{
    ListChunks, Payload, ResourceResponse, Storage, computed_resource,
    continue_token::Continue,
    get::storage,
    list_pieces::ListPieces,
    options::{EXACT, ListOptions},
    resource_request::ResourceRequest,
    response_format::{self, ItemWriter, ResponseFormat},
    selectors::Selection,
    storage::{parse_revision, store_error, unreadable_list},
};

pub(crate) async fn list(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    let format = ResponseFormat::negotiate(request)?;
    let options = ListOptions::read(request.query)?;
    if let Some(computed) = &request.kind.computed {
        return computed_resource::list(request, &format, &options, &**computed).await;
    }
    let found = prepared(request, &options, find(request, &options).await?).await?;
    response_format::list(request, &format, found).await
}

/// Converts all objects where a webhook converts, and applies the selectors that need converted
/// objects.
pub(crate) async fn prepared(
    request: &ResourceRequest<'_>,
    options: &ListOptions,
    found: ListResult,
) -> Result<ListResult, ApiError> {
    if !request.kind.is_remote() {
        return Ok(found);
    }
    let mut entries: Vec<Arc<Entry>> = found.items.collect();
    request.kind.prepare(&entries.iter().collect::<Vec<_>>()).await?;
    let selection = Selection::read(request, options)?;
    if selection.needs_view() {
        let mut matching = Vec::with_capacity(entries.len());
        for entry in entries {
            if selection.matches_view(request.kind, &entry)? {
                matching.push(entry);
            }
        }
        entries = matching;
    }
    Ok(ListResult { items: Items::of(entries), head: found.head })
}

/// The result of a list: the metadata is known, items are read while they are sent.
pub(crate) struct ListResult {
    pub(crate) items: Items,
    pub(crate) head: ListHead,
}

/// `metadata` of a list. Revision 0: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListHead {
    pub(crate) revision: u64,
    pub(crate) continue_token: String,
    pub(crate) remaining: Option<u64>,
}

impl ListHead {
    /// Computed lists have no resourceVersion.
    pub(crate) fn version(&self) -> String {
        if self.revision == 0 { String::new() } else { self.revision.to_string() }
    }
}

/// The entries of a list, in order.
pub(crate) struct Items {
    /// Returned before the snapshot is read further.
    ready: VecDeque<Arc<Entry>>,
    /// None: `ready` is all.
    rest: Option<Cursor>,
    /// They follow each other in the watch cache: none was left out by a selector.
    consecutive: bool,
}

struct Cursor {
    snapshot: Arc<Snapshot>,
    prefix: Str,
    after: Option<Str>,
    selection: Selection,
    /// None: the backend was read, which counts itself.
    metrics: Option<Arc<ReadMetrics>>,
}

/// How many entries are taken from a snapshot at a time.
const PAGE_ENTRIES: usize = 64;

impl Items {
    pub(crate) fn of(entries: impl IntoIterator<Item = Arc<Entry>>) -> Self {
        Self { ready: entries.into_iter().collect(), rest: None, consecutive: false }
    }

    pub(crate) fn consecutive(self, consecutive: bool) -> Self {
        Self { consecutive, ..self }
    }

    pub(crate) fn are_consecutive(&self) -> bool {
        self.consecutive
    }

    /// Whether many entries may be looked at for one that matches.
    fn are_searched(&self) -> bool {
        self.rest.as_ref().is_some_and(|cursor| {
            !cursor.selection.is_everything() && cursor.snapshot.len() > SEARCHED_ENTRIES
        })
    }
}

/// So many entries are searched in a fraction of a millisecond.
const SEARCHED_ENTRIES: usize = 5_000;

impl Iterator for Items {
    type Item = Arc<Entry>;

    fn next(&mut self) -> Option<Arc<Entry>> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some(entry);
            }
            let Cursor { snapshot, prefix, after, selection, metrics } = self.rest.as_mut()?;
            let mut fetched = 0;
            // Entries that do not match are not cloned.
            let matching = snapshot.range(prefix, after.as_deref()).filter(|entry| {
                fetched += 1;
                selection.matches(entry)
            });
            self.ready.extend(matching.take(PAGE_ENTRIES).cloned());
            if let Some(metrics) = metrics {
                metrics.cache_lists.add(fetched, self.ready.len());
            }
            match self.ready.back() {
                Some(last) if self.ready.len() == PAGE_ENTRIES => *after = Some(last.key.clone()),
                _ => self.rest = None,
            }
            if self.ready.is_empty() {
                return None;
            }
        }
    }
}

pub(crate) async fn find(
    request: &ResourceRequest<'_>,
    options: &ListOptions,
) -> Result<ListResult, ApiError> {
    let storage = storage(request)?;
    let selection = Selection::read(request, options)?;
    let (snapshot, start) = snapshot(storage, options).await?;
    let metrics = (!storage.from_store).then(|| storage.cache.read_metrics());
    let prefix = storage.key_prefix(&request.info.namespace);
    let head = ListHead { revision: snapshot.revision, ..ListHead::default() };
    let (cached, in_cache) = (storage.is_cached(), !storage.from_store);

    let after = start.as_ref().map(|start| before(Str::new(format!("{prefix}{}", start.start))));
    check_readable(request, &selection, &snapshot, after.as_deref())?;
    // Compat: a list from any cached state (resourceVersion 0) ignores the limit.
    let paged = options.limit > 0 && (options.resource_version != "0" || !cached);
    // Compat: pages of an old state and continued pages are cut as a range scan would cut them.
    let indexed = start.is_none() && !(paged && is_exact(options));
    // A name or an indexed field is looked up without a scan.
    if let Some(by_name_or_index) =
        by_name_or_index(storage, &request.info.namespace, &selection, &snapshot, indexed)
    {
        let by_name_or_index =
            by_name_or_index.into_iter().filter(|entry| entry.key.starts_with(prefix.as_str()));
        let is_indexed = selection.exact_name().is_none();
        let counters = metrics
            .map(|metrics| if is_indexed { &metrics.indexed_lists } else { &metrics.cache_lists });
        if paged {
            let by_name_or_index: Vec<Arc<Entry>> = by_name_or_index.collect();
            let part = Part { prefix: &prefix, continued: false, with_slash: cached, in_cache };
            let entries = by_name_or_index.iter();
            return Ok(page(options, &snapshot, &part, entries, &selection, counters));
        }
        let mut fetched = 0;
        let items = Items::of(by_name_or_index.filter(|entry| {
            fetched += 1;
            selection.matches(entry)
        }));
        if let Some(counters) = counters {
            counters.begin();
            counters.add(fetched, items.ready.len());
        }
        return Ok(ListResult { items, head });
    }
    let continued = start.is_some();
    let start = start.map(|start| Str::new(format!("{prefix}{}", start.start)));
    // Tokens of this server start right after a key, those of others may start at one.
    let first = start.as_deref().and_then(|key| snapshot.get(key)).cloned();
    let after = start.map(before);
    if paged {
        let walk = first.iter().chain(snapshot.range(&prefix, after.as_deref()));
        let counters = metrics.map(|metrics| &metrics.cache_lists);
        let part = Part { prefix: &prefix, continued, with_slash: cached, in_cache };
        return Ok(page(options, &snapshot, &part, walk, &selection, counters));
    }
    let ready: VecDeque<_> = first.into_iter().filter(|entry| selection.matches(entry)).collect();
    if let Some(metrics) = metrics {
        metrics.cache_lists.begin();
        metrics.cache_lists.add(ready.len(), ready.len());
    }
    let metrics = metrics.cloned();
    let consecutive = selection.is_everything() && in_cache;
    let rest = Some(Cursor { snapshot, prefix, after, selection, metrics });
    Ok(ListResult { items: Items { ready, rest, consecutive }, head })
}

/// Fails if a listed range after `after` has an object that cannot be read: a client would take it
/// for deleted.
pub(crate) fn check_readable(
    request: &ResourceRequest<'_>,
    selection: &Selection,
    snapshot: &Snapshot,
    after: Option<&str>,
) -> Result<(), ApiError> {
    if snapshot.broken_len() == 0 {
        return Ok(());
    }
    let storage = storage(request)?;
    let namespace = &request.info.namespace;
    let broken = match selection.exact_name() {
        Some(name) if !storage.namespaced || !namespace.is_empty() => {
            snapshot.broken(&storage.key(namespace, name))
        }
        _ => snapshot.first_broken(&storage.key_prefix(namespace), after),
    };
    broken.map_or(Ok(()), |broken| Err(unreadable_list(&request.kind.group_resource(), broken)))
}

/// The snapshot to list, and where to continue.
async fn snapshot(
    storage: &Storage,
    options: &ListOptions,
) -> Result<(Arc<Snapshot>, Option<Continue>), ApiError> {
    let cache = &storage.cache;
    if !options.continue_token.is_empty() {
        let start = Continue::decode(&options.continue_token)?;
        if !matches!(options.resource_version.as_str(), "" | "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let snapshot = match start.revision {
            Some(revision) => {
                cache.exact(revision).await.map_err(|error| expired(error, &start))?
            }
            None => storage.newest().await.map_err(store_error)?,
        };
        return Ok((snapshot, Some(start)));
    }
    let revision = parse_revision(&options.resource_version)
        .map_err(|why| ApiError::BadRequest(format!("invalid resource version: {why}")))?;
    let snapshot = match options.resource_version.as_str() {
        "" => {
            let newest = storage.newest().await;
            if !storage.from_store {
                let metrics = cache.read_metrics();
                let counter = match &newest {
                    Ok(_) => &metrics.consistent_reads,
                    Err(_) => &metrics.consistent_reads_failed,
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }
            newest
        }
        "0" => storage.any().await,
        _ if is_exact(options) => cache.exact(revision).await,
        _ => storage.at_least(revision).await,
    };
    Ok((snapshot.map_err(|error| storage.read_error(error))?, None))
}

/// Whether the exact version is requested. Compat: pages with a resourceVersion are always exact.
fn is_exact(options: &ListOptions) -> bool {
    let legacy = options.limit > 0 && options.resource_version_match.is_empty();
    !matches!(options.resource_version.as_str(), "" | "0")
        && (legacy || options.resource_version_match == EXACT)
}

/// The error for a token whose revision is compacted: the client may start over, or continue at the
/// newest state.
fn expired(error: StoreError, start: &Continue) -> ApiError {
    if !matches!(error, StoreError::Compacted { .. }) {
        return store_error(error);
    }
    let go_on = Continue { revision: None, start: start.start.clone(), with_slash: false };
    ApiError::Expired {
        message: "The provided continue parameter is too old to display a consistent list result. \
                  You can start a new list without the continue parameter, or use the continue \
                  token in this response to retrieve the remainder of the results. Continuing with \
                  the provided token results in an inconsistent list - objects that were created, \
                  modified, or deleted between the time the first chunk was returned and now may \
                  show up in the list."
            .to_owned(),
        continue_token: go_on.encode(),
    }
}

/// The entries of the one name, or of the value of the indexed field, that the selection asks for. Those of other
/// namespaces may be among them.
pub(crate) fn by_name_or_index(
    storage: &Storage,
    namespace: &str,
    selection: &Selection,
    snapshot: &Snapshot,
    indexed: bool,
) -> Option<Vec<Arc<Entry>>> {
    if let Some(name) = selection.exact_name()
        && (!storage.namespaced || !namespace.is_empty())
    {
        return Some(snapshot.get(&storage.key(namespace, name)).cloned().into_iter().collect());
    }
    let value = selection.exact_field(storage.index.filter(|_| indexed)?)?;
    Some(snapshot.indexed(value).cloned().collect())
}

/// What a page is a part of.
struct Part<'a> {
    prefix: &'a str,
    /// It is not the first page.
    continued: bool,
    /// See [`Continue::with_slash`].
    with_slash: bool,
    /// Its entries are those of the watch cache.
    in_cache: bool,
}

/// One page of the entries.
fn page<'a>(
    options: &ListOptions,
    snapshot: &Snapshot,
    part: &Part<'_>,
    mut entries: impl Iterator<Item = &'a Arc<Entry>>,
    selection: &Selection,
    counters: Option<&ListCounters>,
) -> ListResult {
    let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
    let mut fetched = 0;
    let matching = entries.by_ref().filter(|entry| {
        fetched += 1;
        selection.matches(entry)
    });
    let taken: Vec<Arc<Entry>> = matching.take(limit).cloned().collect();
    if let Some(counters) = counters {
        counters.begin();
        counters.add(fetched, taken.len());
    }
    let mut head = ListHead { revision: snapshot.revision, ..ListHead::default() };
    // Compat: whether later entries match is not checked, so that the last page may be empty.
    let more = taken.len() == limit && entries.next().is_some();
    if let (true, Some(last)) = (more, taken.last()) {
        let next = Continue {
            revision: Some(snapshot.revision),
            start: format!("{}\0", &last.key[part.prefix.len()..]),
            with_slash: part.with_slash,
        };
        head.continue_token = next.encode();
        if selection.is_everything() {
            let remaining = if part.continued {
                snapshot.remaining(part.prefix, Some(&last.key))
            } else {
                snapshot.count(part.prefix).saturating_sub(taken.len())
            };
            head.remaining = Some(remaining as u64);
        }
    }
    let consecutive = selection.is_everything() && part.in_cache;
    ListResult { items: Items::of(taken).consecutive(consecutive), head }
}

/// A token has the first key of the next page; cursors need the last key of the previous one.
fn before(start: Str) -> Str {
    match start.strip_suffix('\0') {
        Some(last) => Str::new(last),
        None => start,
    }
}

/// A list body, made chunk by chunk.
pub(crate) struct Chunks {
    items: Items,
    writer: Box<dyn ItemWriter>,
    state: State,
    /// None: nothing of the list is kept compressed.
    pieces: Option<ListPieces>,
    chunk_bytes: usize,
}

enum State {
    Head,
    Items { first: bool },
    Done,
}

/// A chunk is sent when it has grown past this: a TLS record is full, and thousands of lists at once fit into memory. The
/// connection holds one or two of them for each list that its client does not read.
const CHUNK_BYTES: usize = 16 * 1024;
/// The same for chunks that are made by the CPU pool: each of them changes threads twice.
const COSTLY_CHUNK_BYTES: usize = 128 * 1024;

/// So many objects are converted in a millisecond.
const REMADE_ITEMS: usize = 32;

impl Chunks {
    pub(crate) fn payload(items: Items, writer: Box<dyn ItemWriter>) -> Payload {
        // What was prepared may have found no place to be kept.
        let remade = writer.needs_prepared() && items.ready.len() > REMADE_ITEMS;
        let costly = writer.is_costly() || remade || items.are_searched();
        let pieces = writer.piece_slot().filter(|_| items.consecutive).map(ListPieces::new);
        let chunk_bytes = if costly { COSTLY_CHUNK_BYTES } else { CHUNK_BYTES };
        let chunks = Box::new(Self { items, writer, state: State::Head, pieces, chunk_bytes });
        if costly { Payload::CostlyChunks(chunks) } else { Payload::Chunks(chunks) }
    }

    fn end(&mut self, empty: bool, out: &mut Vec<u8>) {
        self.writer.tail(empty, out);
        self.state = State::Done;
    }
}

impl Iterator for Chunks {
    type Item = Result<Bytes, ApiError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut chunk = Vec::new();
        let mut first = match self.state {
            State::Done => return None,
            State::Head => {
                self.writer.head(&mut chunk);
                true
            }
            State::Items { first } => first,
        };
        while chunk.len() < self.chunk_bytes {
            let Some(entry) = self.items.next() else {
                self.end(first, &mut chunk);
                return Some(Ok(chunk.into()));
            };
            if chunk.capacity() < self.chunk_bytes {
                chunk.reserve(self.chunk_bytes + entry.json.len());
            }
            let written =
                meta::cancel::check().and_then(|()| self.writer.item(&entry, first, &mut chunk));
            if let Err(error) = written {
                self.state = State::Done;
                return Some(Err(error));
            }
            if let Some(pieces) = self.pieces.as_mut().filter(|_| !first) {
                pieces.follow(entry);
            }
            first = false;
        }
        self.state = State::Items { first };
        Some(Ok(chunk.into()))
    }
}

impl ListChunks for Chunks {
    fn compress_next(&mut self, gzip: &mut GzipWriter) -> Option<Result<(), ApiError>> {
        let Some(pieces) = self.pieces.as_mut().filter(|pieces| pieces.follow_any()) else {
            let chunk = self.next()?;
            return Some(chunk.map(|chunk| gzip.write(&chunk)));
        };
        if matches!(self.state, State::Done) {
            return None;
        }
        let output_max = gzip.output_len() + COSTLY_CHUNK_BYTES;
        let mut compressed = 0;
        while compressed < COMPRESSED_BYTES && gzip.output_len() < output_max {
            let Some(entry) = self.items.next() else {
                let mut end = Vec::new();
                self.end(false, &mut end);
                gzip.write(&end);
                break;
            };
            let written =
                meta::cancel::check().and_then(|()| pieces.write(entry, &*self.writer, gzip));
            match written {
                Ok(bytes) => compressed += bytes,
                Err(error) => {
                    self.state = State::Done;
                    return Some(Err(error));
                }
            }
        }
        Some(Ok(()))
    }
}

/// So much is compressed in a millisecond or two.
const COMPRESSED_BYTES: usize = 512 * 1024;

#[cfg(test)]
mod tests;
