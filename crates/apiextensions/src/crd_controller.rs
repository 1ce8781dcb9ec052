//! The loop behind custom resources: follows the definitions, judges their names, serves their
//! objects, and says so in their status. What is served is in place before the status says so.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use endpoints::{Kinds, LoopbackClient, Resources};
use meta::{ApiError, FieldErrors, Str, Value, field::path};
use registry::{Kind, Storage};
use schema::structural::Structural;
use store::{Entry, EventKind, WatchItem, Watcher};
use tokio::{
    sync::{Semaphore, mpsc},
    time::Instant,
};

use crate::{
    api_approval_controller,
    conditions::{self, Condition, NAMES_ACCEPTED, NON_STRUCTURAL_SCHEMA, TERMINATING},
    crd::Crd,
    establishing_controller,
    finalizing_controller::{self, Finalizing, write_status},
    naming_controller::NameRegistry,
    served_definition::{ServedDefinition, ServingContext},
    types::Envelope,
};

/// What the loop works with.
pub struct Options {
    /// Where the definitions are kept.
    pub definitions: Arc<Storage>,
    /// The table that custom kinds are put into, beside those that are in it already.
    pub resources: Arc<Resources>,
    pub local: LoopbackClient,
    pub backend: Arc<dyn store::Backend>,
    /// `/registry`
    pub prefix: String,
    /// Which resources are read from the backend each time, not from memory.
    pub from_store: Arc<dyn Fn(&meta::GroupResource) -> bool + Send + Sync>,
    /// The types that every group shares.
    pub schema: Arc<schema::Schema>,
    /// Hears of every change of what is served.
    pub listener: Arc<dyn Listener>,
    /// How long after its names were accepted a definition is established: where several servers share
    /// a store, the others need a moment to serve it as well.
    pub establish_after: Duration,
}

/// Hears what becomes of custom kinds.
pub trait Listener: Send + Sync + 'static {
    /// The table has changed: discovery and OpenAPI have to be made anew.
    fn changed(&self);

    /// A new cache is there; the kind is its stored version.
    fn started(&self, stored: &Arc<Kind>);
}

/// Keeps the table of custom kinds in step with the definitions.
pub struct CrdController {
    options: Options,
    serving: ServingContext,
    /// What the table had before any custom kind.
    base: Vec<Arc<Kind>>,
    served: BTreeMap<Str, ServedDefinition>,
    taken: NameRegistry,
    /// The groups of the definitions that are known.
    groups: HashMap<Str, Str>,
    /// When definitions that are served here may be established.
    installing: HashMap<Str, Instant>,
    /// Definitions that are being finalized.
    finalizing: HashSet<Str>,
    again: mpsc::Sender<Again>,
    agains: mpsc::Receiver<Again>,
    writes: Arc<Semaphore>,
    due: Due,
}

/// What looking at definitions has led to, and what happens when all of a burst have been looked at.
#[derive(Default)]
struct Due {
    /// The table of kinds has to be made anew.
    swap: bool,
    /// Caches that are served from now on.
    started: Vec<(Arc<Storage>, Arc<Kind>)>,
    /// Those that others serve from now on, or nobody.
    retiring: Vec<Arc<Storage>>,
    statuses: Vec<(Str, Value)>,
    finalizing: Vec<(Str, Value)>,
}

/// A definition that has to be looked at once more.
enum Again {
    Look(Str),
    Finalized(Str),
}

/// So many status writes run side by side and share their fsyncs.
const WRITES_AT_ONCE: usize = 32;
const AGAIN_MAX: usize = 1024;
const RETRY: Duration = Duration::from_millis(500);

impl CrdController {
    /// Serves what is defined already; [`CrdController::run`] goes on from there.
    pub async fn start(options: Options) -> Self {
        let serving = ServingContext {
            backend: options.backend.clone(),
            prefix: options.prefix.clone(),
            schema: options.schema.clone(),
            envelope: Envelope::new(&options.schema),
            local: options.local.clone(),
            from_store: options.from_store.clone(),
        };
        let base = options.resources.kinds().iter().cloned().collect();
        let (again, agains) = mpsc::channel(AGAIN_MAX);
        let mut crd_controller = Self {
            options,
            serving,
            base,
            served: BTreeMap::new(),
            taken: NameRegistry::default(),
            groups: HashMap::new(),
            installing: HashMap::new(),
            finalizing: HashSet::new(),
            again,
            agains,
            writes: Arc::new(Semaphore::new(WRITES_AT_ONCE)),
            due: Due::default(),
        };
        crd_controller.look_at_all().await;
        crd_controller
    }

    /// Works until the server stops.
    pub async fn run(mut self) {
        loop {
            let revision = self.look_at_all().await;
            let Ok(watcher) = self.options.definitions.cache.watch(revision, None) else {
                tokio::time::sleep(RETRY).await;
                continue;
            };
            if self.follow(watcher).await {
                break;
            }
        }
        for served in self.served.values() {
            served.storage.cache.close();
        }
    }

    /// Answers true when the server stops, false when changes were lost.
    async fn follow(&mut self, mut watcher: Watcher) -> bool {
        loop {
            tokio::select! {
                item = watcher.next() => match item {
                    WatchItem::Events(events) => {
                        for event in events {
                            if event.kind == EventKind::Deleted {
                                self.forget(&event.entry.name);
                            } else {
                                self.look_at(&event.entry);
                            }
                        }
                        self.settle().await;
                    }
                    WatchItem::Progress(_) => {}
                    WatchItem::TooSlow | WatchItem::Expired => return false,
                    WatchItem::Closed => return true,
                },
                Some(again) = self.agains.recv() => {
                    let name = match again {
                        Again::Look(name) => name,
                        Again::Finalized(name) => {
                            self.finalizing.remove(&name);
                            name
                        }
                    };
                    if let Some(entry) = self.definition(&name) {
                        self.look_at(&entry);
                        self.settle().await;
                    }
                }
            }
        }
    }

    fn definition(&self, name: &str) -> Option<Arc<Entry>> {
        let storage = &self.options.definitions;
        storage.cache.get(&format!("{}{name}", storage.prefix))
    }

    /// Looks at every definition there is; answers the revision of that.
    async fn look_at_all(&mut self) -> u64 {
        let storage = self.options.definitions.clone();
        let snapshot = storage.cache.snapshot();
        let entries: Vec<Arc<Entry>> = snapshot.range(&storage.prefix, None).cloned().collect();
        let names: HashSet<&Str> = entries.iter().map(|entry| &entry.name).collect();
        let gone: Vec<Str> =
            self.groups.keys().filter(|name| !names.contains(name)).cloned().collect();
        for name in gone {
            self.forget(&name);
        }
        // Those that have names keep them, whatever others ask for.
        for entry in &entries {
            let crd = Crd::read(&tree(entry));
            self.taken.accept(&crd, crd.accepted.clone());
        }
        for entry in &entries {
            self.look_at(entry);
        }
        self.settle().await;
        snapshot.revision
    }

    /// A definition as it is now.
    fn look_at(&mut self, entry: &Entry) {
        let mut definition = tree(entry);
        let before = definition.get("status").cloned();
        let mut crd = Crd::read(&definition);
        self.groups.insert(crd.name.clone(), crd.group.clone());
        let now = meta::time::now();

        if let Some((names, condition)) = self.taken.judge(&crd) {
            definition.set_at(&["status", "acceptedNames"], names.write());
            conditions::set(&mut definition, &condition, &now);
            crd.accepted = names;
        }
        self.taken.accept(&crd, crd.accepted.clone());
        let same = self.served.get(&crd.name).filter(|before| before.crd == crd);
        let flaw = same.map_or_else(|| not_structural(&crd, &definition), |same| same.flaw.clone());
        report(&mut definition, NON_STRUCTURAL_SCHEMA, flaw.as_ref(), &now);
        let approval = api_approval_controller::judge(&crd.group, &definition);

        let name = crd.name.clone();
        let due = conditions::is_true(&definition, NAMES_ACCEPTED)
            || conditions::is_true(&definition, conditions::ESTABLISHED);
        if due {
            self.serve(crd, conditions::is_true(&definition, TERMINATING), flaw);
        }
        let served = self.served.contains_key(&name) && self.has_waited(&name, &definition);
        let established = establishing_controller::judge(&definition, served);
        for condition in established.into_iter().chain(approval) {
            conditions::set(&mut definition, &condition, &now);
        }

        if finalizing_controller::is_due(&definition) {
            self.due.finalizing.push((name, definition));
        } else if definition.get("status") != before.as_ref() {
            self.due.statuses.push((name, definition));
        }
    }

    /// Whether the others have had their moment. If not, the definition is looked at again after it.
    fn has_waited(&mut self, name: &Str, definition: &Value) -> bool {
        let wait = self.options.establish_after;
        if wait.is_zero() || conditions::is_true(definition, conditions::ESTABLISHED) {
            self.installing.remove(name);
            return true;
        }
        let due = *self.installing.entry(name.clone()).or_insert_with(|| {
            let due = Instant::now() + wait;
            let (again, name) = (self.again.clone(), name.clone());
            tokio::spawn(async move {
                tokio::time::sleep_until(due).await;
                // The crd_controller is gone only when the server stops.
                let _ = again.send(Again::Look(name)).await;
            });
            due
        });
        Instant::now() >= due
    }

    /// Puts a definition's objects into service, if they aren't already in this shape.
    fn serve(&mut self, crd: Crd, terminating: bool, flaw: Option<Condition>) {
        let before = self.served.get(&crd.name);
        let same_shape = before.filter(|before| before.crd == crd);
        if same_shape.is_some_and(|before| before.terminating == terminating) {
            return;
        }
        let name = crd.name.clone();
        if let Some(flaw) = flaw.as_ref().filter(|flaw| flaw.status == UNREADABLE)
            && !crd.preserve_unknown
        {
            tracing::error!(definition = %name, "cannot serve custom resources: {}", flaw.message);
            return;
        }
        let new_cache = same_shape.is_none();
        match ServedDefinition::new(&self.serving, crd, terminating, flaw, same_shape) {
            Ok(served) => {
                let (storage, stored) = (served.storage.clone(), served.stored.clone());
                let before = self.served.insert(name, served);
                self.due.swap = true;
                // Whoever watches the old shape starts anew.
                let before = before.map(|before| before.storage);
                self.due.retiring.extend(before.filter(|before| !Arc::ptr_eq(before, &storage)));
                if new_cache {
                    self.due.started.push((storage, stored));
                }
            }
            Err(why) => {
                tracing::error!(definition = %name, "cannot serve custom resources: {why}");
            }
        }
    }

    /// Does what is due, in the order that others rely on: objects are served before a status says so,
    /// and nothing new is created before the deletion of all objects begins.
    async fn settle(&mut self) {
        let due = std::mem::take(&mut self.due);
        for (storage, _) in &due.started {
            storage.cache.ready().await;
        }
        for (_, stored) in &due.started {
            self.options.listener.started(stored);
        }
        if due.swap {
            let custom = self.served.values().flat_map(|served| &served.kinds);
            self.options.resources.replace(Kinds::new(self.base.iter().chain(custom).cloned()));
        }
        for storage in due.retiring {
            storage.cache.retire();
        }
        for (name, definition) in due.statuses {
            self.write(name, definition);
        }
        for (name, definition) in due.finalizing {
            self.finalize(name, definition);
        }
        if due.swap {
            self.options.listener.changed();
        }
    }

    /// A definition is gone. Its names are free for others of its group.
    fn forget(&mut self, name: &Str) {
        self.taken.free(name);
        self.installing.remove(name);
        let group = self.groups.remove(name).unwrap_or_default();
        if let Some(served) = self.served.remove(name) {
            self.due.swap = true;
            self.due.retiring.push(served.storage);
        }
        let others = self.groups.iter().filter(|(_, of)| **of == group);
        let others: Vec<Str> = others.map(|(name, _)| name.clone()).collect();
        for other in others {
            // Full: it is looked at with the next change.
            let _ = self.again.try_send(Again::Look(other));
        }
    }

    /// Writes a status on the side; the change comes back as an event.
    fn write(&self, name: Str, definition: Value) {
        let (local, again) = (self.options.local.clone(), self.again.clone());
        let writes = self.writes.clone();
        tokio::spawn(async move {
            let _turn = writes.acquire().await;
            match write_status(&local, &definition).await {
                // Somebody was faster: what he wrote comes as an event too.
                Ok(_) | Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => {}
                Err(error) => {
                    tracing::warn!(definition = %name, "cannot write the status: {error}");
                    tokio::time::sleep(RETRY).await;
                    let _ = again.send(Again::Look(name)).await;
                }
            }
        });
    }

    fn finalize(&mut self, name: Str, definition: Value) {
        if !self.finalizing.insert(name.clone()) {
            return;
        }
        let finalizing = Finalizing {
            local: self.options.local.clone(),
            engine: self.options.resources.engine.clone(),
            stored: self.served.get(&name).map(|served| served.stored.clone()),
        };
        let again = self.again.clone();
        tokio::spawn(async move {
            match finalizing.run(definition).await {
                Ok(()) | Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => {}
                Err(error) => {
                    tracing::warn!(definition = %name, "cannot delete all objects yet: {error}");
                    tokio::time::sleep(RETRY).await;
                }
            }
            let _ = again.send(Again::Finalized(name)).await;
        });
    }
}

fn report(definition: &mut Value, ty: &str, condition: Option<&Condition>, now: &str) {
    match condition {
        Some(condition) => conditions::set(definition, condition, now),
        None => conditions::remove(definition, ty),
    }
}

/// What about a definition's schemas is not structural. Validation refuses that in new definitions;
/// old ones are told.
fn not_structural(crd: &Crd, definition: &Value) -> Option<Condition> {
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
                let status = UNREADABLE;
                return Some(Condition { ty: NON_STRUCTURAL_SCHEMA, status, reason, message });
            }
        }
    }
    (!errors.is_empty())
        .then(|| Condition::new(NON_STRUCTURAL_SCHEMA, true, "Violations", errors.to_string()))
}

/// The condition's status where there is nothing to be said about the schemas, as they can't be read.
const UNREADABLE: &str = "Unknown";

/// The server has written it itself.
fn tree(entry: &Entry) -> Value {
    let options = codec::json::DecodeOptions { strict: false };
    codec::json::decode_any(&entry.json, options).map(|decoded| decoded.value).unwrap_or_default()
}
