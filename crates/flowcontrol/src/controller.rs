//! Observes FlowSchemas and PriorityLevelConfigurations, and lets requests in by them.

mod levels;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use meta::{RequestInfo, Str, User, Value, time::Time};
use tokio::time::Instant;

use self::levels::{LevelSpec, Levels};
use crate::dump::{self, LevelDump};
use crate::flow_schema::{CATCH_ALL, EXEMPT, FlowSchema, FlowSchemaSpec};
use crate::metrics::{SchemaMetrics, Snapshot};
use crate::priority_level::{Clock, Rejection, Seat, Traffic};
use crate::queue_set::Arrival;
use crate::read_vs_write::ReadVsWrite;
use crate::watch_tracker::{WatchRegistration, WatchTracker};
use crate::work_estimate::{Estimator, ObjectCounts, WorkEstimate};

/// What a controller is made of.
pub struct Options {
    /// Seats of the server: `--max-requests-inflight` and `--max-mutating-requests-inflight`
    /// together.
    pub seats: u32,
    /// Feature gate `SizeBasedListCostEstimate`.
    pub lists_by_size: bool,
    pub counts: Arc<dyn ObjectCounts>,
}

/// A request, as far as flow control is concerned.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub info: &'a RequestInfo,
    pub user: &'a User,
    /// As it was sent.
    pub query: &'a str,
}

/// API Priority and Fairness of one server.
pub struct FlowController {
    options: Options,
    /// The wall clock when the controller's clock was 0.
    started: Time,
    /// In matching order. Swapped whole, so that requests take no lock.
    schemas: ArcSwap<Vec<Arc<FlowSchema>>>,
    state: Mutex<State>,
    watches: Arc<WatchTracker>,
    /// Keyed with a secret: a client that could predict hands would pick a name that shares all
    /// queues with its victim.
    flow_hasher: RandomState,
    read_vs_write: Arc<ReadVsWrite>,
}

struct State {
    levels: Levels,
    /// By level and flow schema.
    metrics: HashMap<(Str, Str), Arc<SchemaMetrics>>,
}

/// How often seats are lent and borrowed anew.
const ADJUSTMENT_INTERVAL: Duration = Duration::from_secs(10);

impl FlowController {
    /// Starts with the mandatory objects only.
    pub fn new(options: Options) -> Self {
        let clock = Clock(Instant::now());
        let read_vs_write = Arc::new(ReadVsWrite::new(clock));
        let levels = Levels::new(options.seats, clock, Arc::clone(&read_vs_write));
        let controller = Self {
            options,
            started: Time::now(),
            schemas: ArcSwap::default(),
            state: Mutex::new(State { levels, metrics: HashMap::new() }),
            watches: Arc::default(),
            flow_hasher: RandomState::new(),
            read_vs_write,
        };
        controller.configure(&[], &[]);
        controller
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over all PriorityLevelConfigurations and FlowSchemas as they are now. A flow schema
    /// whose level is missing or broken has no effect; mandatory objects that are missing are
    /// replaced by what they should be.
    pub fn configure(&self, levels: &[Value], schemas: &[Value]) {
        let mut state = self.lock();
        state.levels.replace(levels.iter().filter_map(named_level));
        let mut compiled: Vec<(Str, Str, FlowSchemaSpec)> = schemas.iter().map(schema).collect();
        for (name, spec) in
            [(EXEMPT, FlowSchemaSpec::exempt()), (CATCH_ALL, FlowSchemaSpec::catch_all())]
        {
            if !compiled.iter().any(|(found, _, _)| found == name) {
                compiled.push((Str::new_static(name), Str::default(), spec));
            }
        }
        compiled.sort_by(|(one, _, first), (other, _, second)| {
            (first.precedence, one).cmp(&(second.precedence, other))
        });
        let mut metrics = HashMap::new();
        let table: Vec<Arc<FlowSchema>> = compiled
            .into_iter()
            .filter_map(|(name, uid, spec)| {
                let (level, level_uid) = state.levels.desired(&spec.level)?;
                let key = (spec.level.clone(), name.clone());
                let known = state.metrics.get(&key).cloned();
                let counts = known
                    .unwrap_or_else(|| Arc::new(SchemaMetrics::new(key.0.clone(), name.clone())));
                metrics.insert(key, Arc::clone(&counts));
                Some(Arc::new(FlowSchema { name, uid, level_uid, spec, level, metrics: counts }))
            })
            .collect();
        state.metrics = metrics;
        self.schemas.store(Arc::new(table));
        tracing::debug!(v = 5, levels = state.levels.len(), "flow control is configured");
    }

    /// Lends and borrows seats between levels by their demand since the last call.
    pub fn adjust(&self) {
        self.lock().levels.adjust();
    }

    /// Adjusts the limits periodically until the server stops.
    pub async fn run(&self) {
        loop {
            tokio::time::sleep(ADJUSTMENT_INTERVAL).await;
            self.adjust();
        }
    }

    /// The first flow schema that matches the request.
    pub fn classify(&self, request: &Request<'_>) -> Arc<FlowSchema> {
        let schemas = self.schemas.load();
        let matching =
            schemas.iter().find(|schema| schema.spec.matches(request.info, request.user));
        // Every user is authenticated or not, so that `catch-all` matches; unless it was deleted and
        // created with another spec, which API validation refuses.
        let fallback = || schemas.iter().find(|schema| schema.name == CATCH_ALL);
        Arc::clone(matching.or_else(fallback).expect("configure() adds the mandatory schemas"))
    }

    /// Takes the seats of a request; waits for them until `wait_until` if the level has queues.
    pub async fn seat(
        &self,
        schema: &FlowSchema,
        request: &Request<'_>,
        wait_until: Instant,
    ) -> Result<Seat, Rejection> {
        let estimate = self.estimate(schema, request);
        schema.metrics.estimated_seats.observe(u64::from(estimate.max_seats()));
        let (distinguisher, hash) = self.flow(schema, request);
        let arrival = Arrival {
            estimate,
            hash,
            distinguisher,
            schema: &schema.metrics,
            user: &request.user.name,
            info: request.info,
        };
        let verb = request.info.verb.as_str();
        let traffic = Traffic {
            mutating: !matches!(verb, "get" | "list" | "watch"),
            watch: verb == "watch" && request.info.is_resource,
        };
        schema.level.seat(arrival, traffic, wait_until).await
    }

    /// How much work the request is, before it is served.
    pub fn estimate(&self, schema: &FlowSchema, request: &Request<'_>) -> WorkEstimate {
        let estimator = Estimator {
            level_seats_max: schema.level.seats_max.load(Relaxed),
            by_size: self.options.lists_by_size,
            counts: &*self.options.counts,
        };
        estimator.estimate(request.info, request.query, || {
            let watchers = self.watches.interested(request.info);
            schema.metrics.watch_counts.observe(watchers);
            watchers
        })
    }

    /// Flows matter where there are several queues.
    fn flow(&self, schema: &FlowSchema, request: &Request<'_>) -> (Str, u64) {
        if !schema.level.has_queues() {
            return (Str::default(), 0);
        }
        let distinguisher = schema.spec.flow(request.info, request.user);
        let hash = self.flow_hasher.hash_one((schema.name.as_str(), distinguisher.as_str()));
        (distinguisher, hash)
    }

    /// Counts a watch among those that writes are sent to. None if it makes no difference to them.
    pub fn register_watch(&self, info: &RequestInfo, query: &str) -> Option<WatchRegistration> {
        self.watches.register(info, query)
    }

    pub fn metrics(&self) -> Snapshot {
        let state = self.lock();
        let mut schemas: Vec<_> =
            state.metrics.values().map(|metrics| metrics.snapshot()).collect();
        schemas.sort_by(|one, other| (&one.level, &one.name).cmp(&(&other.level, &other.name)));
        Snapshot {
            levels: state.levels.snapshot(),
            schemas,
            read_vs_write: self.read_vs_write.snapshot(),
            seat_fair_frac: state.levels.fair_fraction(),
            waiting_peaks: self.read_vs_write.waiting_peaks(),
        }
    }

    /// `/debug/api_priority_and_fairness/dump_priority_levels`.
    pub fn dump_priority_levels(&self) -> String {
        dump::priority_levels(&self.dumps(false))
    }

    /// `/debug/api_priority_and_fairness/dump_queues`.
    pub fn dump_queues(&self) -> String {
        dump::queues(&self.dumps(false))
    }

    /// `/debug/api_priority_and_fairness/dump_requests`.
    pub fn dump_requests(&self, include_details: bool) -> String {
        dump::requests(&self.dumps(true), include_details, self.started)
    }

    fn dumps(&self, requests: bool) -> Vec<LevelDump> {
        self.lock().levels.dump(requests)
    }
}

fn named_level(object: &Value) -> Option<(Str, Str, LevelSpec)> {
    let (name, uid) = name_and_uid(object);
    match LevelSpec::parse(&name, object.at(&["spec"])?) {
        Ok(spec) => Some((name, uid, spec)),
        Err(why) => {
            tracing::warn!(%name, "priority level is ignored because its spec is broken: {why}");
            None
        }
    }
}

fn schema(object: &Value) -> (Str, Str, FlowSchemaSpec) {
    let (name, uid) = name_and_uid(object);
    (name, uid, FlowSchemaSpec::parse(object.at(&["spec"]).unwrap_or(&Value::Null)))
}

fn name_and_uid(object: &Value) -> (Str, Str) {
    let of = |field: &str| Str::new(object.str_at(&["metadata", field]));
    (of("name"), of("uid"))
}
