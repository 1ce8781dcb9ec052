//! The controller of CustomResourceDefinitions: watches them, serves their objects and writes their
//! conditions. Objects are served before the condition `Established` says so.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use background::Tasks;
use endpoints::{Kinds, LoopbackClient, Resources};
use meta::{ApiError, FieldErrors, Str, Value, field::path};
use registry::{Kind, Storage};
use schema::structural::Structural;
use store::{Entry, EventKind, WatchItem, Watcher};
use tokio::{
    runtime::RuntimeFlavor,
    sync::{Semaphore, mpsc, oneshot},
    time::Instant,
};

use crate::{
    api_approval_controller,
    conditions::{self, Condition, NAMES_ACCEPTED, NON_STRUCTURAL_SCHEMA, TERMINATING},
    crd::Crd,
    establishing_controller,
    finalizing_controller::{self, CrdFinalizer},
    naming_controller::NameRegistry,
    progress::Progress,
    served_definition::{ServedDefinition, ServingContext},
    types::UnstructuredType,
};

/// What the controller needs.
pub struct Options {
    /// The storage of CustomResourceDefinitions.
    pub definitions: Arc<Storage>,
    /// The table of served kinds, to which custom kinds are added.
    pub resources: Arc<Resources>,
    pub local: LoopbackClient,
    pub backend: Arc<dyn store::Backend>,
    /// `/registry`
    pub prefix: String,
    /// Which resources bypass the watch cache (`--watch-cache-sizes=<resource>#0`).
    pub from_store: Arc<dyn Fn(&meta::GroupResource) -> bool + Send + Sync>,
    /// The built-in types, for `ObjectMeta`.
    pub schema: Arc<schema::Schema>,
    /// Notified of every change of the served kinds.
    pub event_handler: Arc<dyn CrdEventHandler>,
    /// Delay between NamesAccepted and Established: apiservers that share the store need time to serve
    /// the definition as well.
    pub establish_after: Duration,
    /// How conversion webhooks are dialed.
    pub webhook_dials: client::WebhookDials,
    /// Starts writes of status and finalizers, which take long.
    pub tasks: Tasks,
}

/// Notified when the served custom kinds change.
pub trait CrdEventHandler: Send + Sync + 'static {
    /// The table has changed: discovery and OpenAPI have to be rendered again.
    fn on_kinds_changed(&self);

    /// A watch cache was started; the kind is its storage version.
    fn on_cache_started(&self, stored: &Arc<Kind>);
}

/// Reconciles the table of custom kinds with the definitions.
pub struct CrdController {
    options: Options,
    serving: ServingContext,
    /// The kinds of the table that are not custom.
    base: Vec<Arc<Kind>>,
    served: BTreeMap<Str, ServedDefinition>,
    names: NameRegistry,
    /// The group of each known definition, by its name.
    groups: HashMap<Str, Str>,
    /// When a definition that is served here may be established.
    establish_at: HashMap<Str, Instant>,
    /// Definitions that are being finalized.
    finalizing: HashSet<Str>,
    /// Writers of definitions wait for it.
    progress: Arc<Progress>,
    requeue: mpsc::Sender<Requeue>,
    requeued: mpsc::Receiver<Requeue>,
    writes: Arc<Semaphore>,
    pending: PendingActions,
}

/// Actions that a burst of events leads to; they are applied once all events are processed.
#[derive(Default)]
struct PendingActions {
    /// The table of kinds has to be replaced.
    swap: bool,
    /// New caches, with their storage version.
    started: Vec<(Arc<Storage>, Arc<Kind>)>,
    /// Caches that were replaced or whose definition was deleted.
    retiring: Vec<Arc<Storage>>,
    statuses: Vec<(Str, Value)>,
    finalizing: Vec<(Str, Value)>,
}

/// A definition to reconcile again.
enum Requeue {
    Sync(Str),
    Finalized(Str),
}

/// Status writes that run concurrently and share their fsyncs.
const CONCURRENT_STATUS_WRITES: usize = 32;
const REQUEUE_MAX: usize = 1024;
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// So much of a definition is reconciled in some milliseconds.
const LARGE_DEFINITION_BYTES: usize = 64 * 1024;

impl CrdController {
    /// Serves the stored definitions; [`CrdController::run`] follows their changes.
    pub async fn start(options: Options) -> Self {
        let serving = ServingContext {
            backend: options.backend.clone(),
            prefix: options.prefix.clone(),
            schema: options.schema.clone(),
            unstructured: UnstructuredType::new(&options.schema),
            local: options.local.clone(),
            webhook_dials: options.webhook_dials.clone(),
            from_store: options.from_store.clone(),
        };
        let base = options.resources.kinds().iter().cloned().collect();
        let (requeue, requeued) = mpsc::channel(REQUEUE_MAX);
        let mut controller = Self {
            options,
            serving,
            base,
            served: BTreeMap::new(),
            names: NameRegistry::default(),
            groups: HashMap::new(),
            establish_at: HashMap::new(),
            finalizing: HashSet::new(),
            progress: Arc::default(),
            requeue,
            requeued,
            writes: Arc::new(Semaphore::new(CONCURRENT_STATUS_WRITES)),
            pending: PendingActions::default(),
        };
        controller.sync_all().await;
        controller.options.definitions.follow(controller.progress.clone());
        controller
    }

    /// Runs until the server stops.
    pub async fn run(mut self) {
        loop {
            let revision = self.sync_all().await;
            let Ok(watcher) = self.options.definitions.cache.watch(revision, None) else {
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            };
            if self.process_events(watcher).await {
                break;
            }
        }
        self.progress.close();
        for served in self.served.values() {
            served.storage.cache.close();
        }
    }

    /// Returns true when the server stops, false when the watch expired and a relist is needed.
    async fn process_events(&mut self, mut watcher: Watcher) -> bool {
        loop {
            tokio::select! {
                item = watcher.next() => match item {
                    WatchItem::Events(events) => {
                        let last = events.last().map_or(0, |event| event.revision);
                        for event in events {
                            if event.kind == EventKind::Deleted {
                                self.remove_definition(&event.entry.name);
                            } else {
                                self.sync_definition(&event.entry);
                            }
                        }
                        self.apply_pending().await;
                        self.progress.reach(last);
                    }
                    WatchItem::Progress(_) => {}
                    WatchItem::TooSlow | WatchItem::Expired => return false,
                    WatchItem::Closed => return true,
                },
                Some(requeued) = self.requeued.recv() => {
                    let name = match requeued {
                        Requeue::Sync(name) => name,
                        Requeue::Finalized(name) => {
                            self.finalizing.remove(&name);
                            name
                        }
                    };
                    if let Some(entry) = self.definition(&name) {
                        self.sync_definition(&entry);
                        self.apply_pending().await;
                    }
                }
            }
        }
    }

    fn definition(&self, name: &str) -> Option<Arc<Entry>> {
        let storage = &self.options.definitions;
        storage.cache.get(&format!("{}{name}", storage.prefix))
    }

    /// Reconciles every definition; returns the revision of the list.
    async fn sync_all(&mut self) -> u64 {
        let storage = self.options.definitions.clone();
        let snapshot = storage.cache.snapshot();
        let entries: Vec<Arc<Entry>> = snapshot.range(&storage.prefix, None).cloned().collect();
        let names: HashSet<&Str> = entries.iter().map(|entry| &entry.name).collect();
        let gone: Vec<Str> =
            self.groups.keys().filter(|name| !names.contains(name)).cloned().collect();
        for name in gone {
            self.remove_definition(&name);
        }
        // Accepted names first: no other definition may take them.
        for entry in &entries {
            let crd = Crd::read(&decode(entry));
            self.names.accept(&crd, crd.accepted.clone());
        }
        for entry in &entries {
            self.sync_definition(entry);
        }
        self.apply_pending().await;
        self.progress.reach(snapshot.revision);
        snapshot.revision
    }

    /// Reconciles one definition. A large one takes a tenth of a second: the connections and timers of this
    /// thread go on meanwhile on another.
    #[allow(clippy::disallowed_methods)] // Called on a multi-threaded runtime only.
    fn sync_definition(&mut self, entry: &Entry) {
        let runtime = tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor());
        match runtime {
            Ok(RuntimeFlavor::MultiThread) if entry.json.len() > LARGE_DEFINITION_BYTES => {
                tokio::task::block_in_place(|| self.sync_in_place(entry));
            }
            _ => self.sync_in_place(entry),
        }
    }

    fn sync_in_place(&mut self, entry: &Entry) {
        let mut definition = decode(entry);
        let before = definition.get("status").cloned();
        let mut crd = Crd::read(&definition);
        self.groups.insert(crd.name.clone(), crd.group.clone());
        let now = meta::time::now();

        if let Some((names, condition)) = self.names.calculate(&crd) {
            definition.set_at(&["status", "acceptedNames"], names.write());
            conditions::set(&mut definition, &condition, &now);
            crd.accepted = names;
        }
        self.names.accept(&crd, crd.accepted.clone());
        let same = self.served.get(&crd.name).filter(|before| before.crd == crd);
        let schema_condition = same.map_or_else(
            || non_structural_condition(&crd, &definition),
            |same| same.schema_condition.clone(),
        );
        set_or_remove(&mut definition, NON_STRUCTURAL_SCHEMA, schema_condition.as_ref(), &now);
        let approval = api_approval_controller::condition(&crd.group, &definition);

        let name = crd.name.clone();
        let due = conditions::is_true(&definition, NAMES_ACCEPTED)
            || conditions::is_true(&definition, conditions::ESTABLISHED);
        if due {
            self.serve(crd, conditions::is_true(&definition, TERMINATING), schema_condition);
        }
        let served =
            self.served.contains_key(&name) && self.establishing_delay_passed(&name, &definition);
        let established = establishing_controller::condition(&definition, served);
        for condition in established.into_iter().chain(approval) {
            conditions::set(&mut definition, &condition, &now);
        }

        if finalizing_controller::needs_finalizing(&definition) {
            self.progress.settle(&name);
            self.pending.finalizing.push((name, definition));
        } else if definition.get("status") != before.as_ref() {
            self.progress.unsettle(&name, entry.revision);
            self.pending.statuses.push((name, definition));
        } else {
            self.progress.settle(&name);
        }
    }

    /// Whether `establish_after` has passed. If not, the definition is requeued for that time.
    fn establishing_delay_passed(&mut self, name: &Str, definition: &Value) -> bool {
        let wait = self.options.establish_after;
        if wait.is_zero() || conditions::is_true(definition, conditions::ESTABLISHED) {
            self.establish_at.remove(name);
            return true;
        }
        let due = *self.establish_at.entry(name.clone()).or_insert_with(|| {
            let due = Instant::now() + wait;
            let (requeue, name) = (self.requeue.clone(), name.clone());
            tokio::spawn(async move {
                tokio::time::sleep_until(due).await;
                // Fails only when the server stops.
                let _ = requeue.send(Requeue::Sync(name)).await;
            });
            due
        });
        Instant::now() >= due
    }

    /// Serves a definition's objects, unless they are served by the same spec already.
    fn serve(&mut self, crd: Crd, terminating: bool, schema_condition: Option<Condition>) {
        let before = self.served.get(&crd.name);
        let same_shape = before.filter(|before| before.crd == crd);
        if same_shape.is_some_and(|before| before.terminating == terminating) {
            return;
        }
        let name = crd.name.clone();
        if let Some(schema_condition) = schema_condition
            .as_ref()
            .filter(|schema_condition| schema_condition.status == STATUS_UNKNOWN)
            && !crd.preserve_unknown
        {
            tracing::error!(definition = %name, "cannot serve custom resources: {}", schema_condition.message);
            return;
        }
        let new_cache = same_shape.is_none();
        match ServedDefinition::new(&self.serving, crd, terminating, schema_condition, same_shape) {
            Ok(served) => {
                let (storage, stored) = (served.storage.clone(), served.stored.clone());
                let before = self.served.insert(name, served);
                self.pending.swap = true;
                // Retiring the old cache ends its watches; clients list again.
                let before = before.map(|before| before.storage);
                self.pending
                    .retiring
                    .extend(before.filter(|before| !Arc::ptr_eq(before, &storage)));
                if new_cache {
                    self.pending.started.push((storage, stored));
                }
            }
            Err(why) => {
                tracing::error!(definition = %name, "cannot serve custom resources: {why}");
            }
        }
    }

    /// Applies the pending actions in the order that clients rely on: objects are served, and discovery knows
    /// that it is behind, before a status says so, and creates are refused before the deletion of all objects begins.
    async fn apply_pending(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        for (storage, _) in &pending.started {
            storage.cache.ready().await;
        }
        for (_, stored) in &pending.started {
            self.options.event_handler.on_cache_started(stored);
        }
        if pending.swap {
            let custom = self.served.values().flat_map(|served| &served.kinds);
            self.options.resources.replace(Kinds::new(self.base.iter().chain(custom).cloned()));
            self.options.event_handler.on_kinds_changed();
        }
        for storage in pending.retiring {
            storage.cache.retire();
        }
        for (name, definition) in pending.statuses {
            self.write_status(name, definition);
        }
        for (name, definition) in pending.finalizing {
            self.finalize(name, definition);
        }
    }

    /// A definition was deleted: its names are free for others of its group.
    fn remove_definition(&mut self, name: &Str) {
        self.names.free(name);
        self.progress.settle(name);
        self.establish_at.remove(name);
        let group = self.groups.remove(name).unwrap_or_default();
        if let Some(served) = self.served.remove(name) {
            self.pending.swap = true;
            self.pending.retiring.push(served.storage);
        }
        let others = self.groups.iter().filter(|(_, of)| **of == group);
        let others: Vec<Str> = others.map(|(name, _)| name.clone()).collect();
        for other in others {
            // Full: the next event reconciles it.
            let _ = self.requeue.try_send(Requeue::Sync(other));
        }
    }

    /// Writes a status in a task; the change comes back as an event.
    fn write_status(&self, name: Str, definition: Value) {
        let (local, requeue) = (self.options.local.clone(), self.requeue.clone());
        let writes = self.writes.clone();
        self.options.tasks.once("crd-status", async move {
            let _turn = writes.acquire().await;
            match finalizing_controller::write_status(&local, &definition).await {
                // Conflict: the other write comes as an event.
                Ok(_) | Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => {}
                Err(error) => {
                    tracing::warn!(definition = %name, "cannot write the status: {error}");
                    tokio::time::sleep(RETRY_DELAY).await;
                    let _ = requeue.send(Requeue::Sync(name)).await;
                }
            }
        });
    }

    fn finalize(&mut self, name: Str, definition: Value) {
        if !self.finalizing.insert(name.clone()) {
            return;
        }
        let finalizer = CrdFinalizer {
            local: self.options.local.clone(),
            engine: self.options.resources.engine.clone(),
            stored: self.served.get(&name).map(|served| served.stored.clone()),
        };
        let requeue = self.requeue.clone();
        let (done, ended) = oneshot::channel();
        let of = name.clone();
        self.options.tasks.once("crd-finalizer", async move {
            let ended = match finalizer.run(definition).await {
                Ok(()) | Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => Ok(()),
                Err(error) => Err(error),
            };
            let _ = done.send(ended);
        });
        // Beside it, so that a definition whose finalizer panics is tried again as well.
        self.options.tasks.once("crd-finalizer-result", async move {
            match ended.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(definition = %of, "cannot delete all objects yet: {error}");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(_) => {
                    tracing::error!(definition = %of, "deleting all objects panicked");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
            let _ = requeue.send(Requeue::Finalized(of)).await;
        });
    }
}

fn set_or_remove(definition: &mut Value, ty: &str, condition: Option<&Condition>, now: &str) {
    match condition {
        Some(condition) => conditions::set(definition, condition, now),
        None => conditions::remove(definition, ty),
    }
}

/// The condition `NonStructuralSchema`; None if all schemas are structural. Validation refuses others
/// in new definitions, but stored ones may have them.
fn non_structural_condition(crd: &Crd, definition: &Value) -> Option<Condition> {
    let mut errors = FieldErrors::default();
    if crd.preserve_unknown {
        errors.invalid(path("spec").child("preserveUnknownFields"), true, "must be false");
    }
    for (at, version) in definition.items_at(&["spec", "versions"]).iter().enumerate() {
        let schema = version.at(&["schema", "openAPIV3Schema"]);
        let Some(schema) = schema.filter(|schema| !schema.is_null()) else { continue };
        let place = path("spec").child("versions").index(at).child("schema");
        match Structural::new(schema) {
            Ok(structural) => structural.check(&place.child("openAPIV3Schema"), &mut errors),
            Err(why) => {
                let name = version.str_at(&["name"]);
                let message =
                    format!("failed to check validation schema for version {name}: {why}");
                let reason = "StructuralError";
                let status = STATUS_UNKNOWN;
                return Some(Condition { ty: NON_STRUCTURAL_SCHEMA, status, reason, message });
            }
        }
    }
    (!errors.is_empty())
        .then(|| Condition::new(NON_STRUCTURAL_SCHEMA, true, "Violations", errors.to_string()))
}

/// The condition's status if a schema cannot be parsed.
const STATUS_UNKNOWN: &str = "Unknown";

/// Infallible in practice: the apiserver wrote these bytes.
fn decode(entry: &Entry) -> Value {
    let options = codec::json::DecodeOptions { strict: false };
    codec::json::decode_any(&entry.json.text(), options)
        .map(|decoded| decoded.value)
        .unwrap_or_default()
}
