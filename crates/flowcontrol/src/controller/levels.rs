//! The priority levels and how many seats each of them has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use meta::{Str, Value};

use crate::concurrency_allocation::{Claim, allocate};
use crate::dump::LevelDump;
use crate::flow_schema::{CATCH_ALL, EXEMPT};
use crate::metrics;
use crate::priority_level::{Clock, PriorityLevel};
use crate::queue_set::LimitResponse;
use crate::read_vs_write::ReadVsWrite;
use crate::seat_demand::SeatDemand;
use crate::shuffle_sharding::{DECK_SIZE_MAX, Dealer};

/// `spec` of a PriorityLevelConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LevelSpec {
    shares: f64,
    lendable_percent: f64,
    /// None: all that other levels lend.
    borrowing_limit_percent: Option<f64>,
    response: LimitResponse,
}

impl LevelSpec {
    pub(super) fn parse(name: &str, spec: &Value) -> Result<Self, String> {
        let exempt = match spec.str_at(&["type"]) {
            "Exempt" => true,
            "Limited" => false,
            other => return Err(format!("unknown type {other:?}")),
        };
        // A level does not change between exempt and limited while it has requests.
        if exempt != (name == EXEMPT) {
            return Err(format!("only level {EXEMPT:?} can be and has to be exempt"));
        }
        let part = if exempt { "exempt" } else { "limited" };
        let Some(part) = spec.at(&[part]).filter(|part| !part.is_null()) else {
            return Err(format!("field {part} is missing"));
        };
        let number = |field: &str| part.i64_at(&[field]).map(|number| number.max(0) as f64);
        let response = if exempt { LimitResponse::Exempt } else { limit_response(part)? };
        Ok(Self {
            shares: number("nominalConcurrencyShares").unwrap_or_default(),
            lendable_percent: number("lendablePercent").unwrap_or_default().min(100.0),
            borrowing_limit_percent: if exempt { None } else { number("borrowingLimitPercent") },
            response,
        })
    }

    /// Stands in for a missing object.
    fn mandatory(name: &str) -> Self {
        let (shares, response) = if name == EXEMPT {
            (0.0, LimitResponse::Exempt)
        } else {
            (5.0, LimitResponse::Reject)
        };
        Self { shares, lendable_percent: 0.0, borrowing_limit_percent: None, response }
    }
}

fn limit_response(limited: &Value) -> Result<LimitResponse, String> {
    let response = limited.at(&["limitResponse"]).unwrap_or(&Value::Null);
    match response.str_at(&["type"]) {
        "Reject" => Ok(LimitResponse::Reject),
        "Queue" => {
            let number = |field: &str| {
                let number = response.i64_at(&["queuing", field]);
                number.and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
            };
            let (queues, hand_size) = (number("queues"), number("handSize"));
            if queues > DECK_SIZE_MAX {
                tracing::warn!("{queues} queues are more than {DECK_SIZE_MAX}, which are used");
            }
            let dealer = Dealer::new(queues.min(DECK_SIZE_MAX), hand_size)
                .ok_or_else(|| format!("no hands of {hand_size} out of {queues} queues"))?;
            Ok(LimitResponse::Queue { dealer, queue_length_max: number("queueLengthLimit") })
        }
        other => Err(format!("unknown limit response {other:?}")),
    }
}

pub(super) struct Levels {
    /// `--max-requests-inflight` and `--max-mutating-requests-inflight` together.
    seats: u32,
    clock: Clock,
    read_vs_write: Arc<ReadVsWrite>,
    by_name: BTreeMap<Str, Level>,
    /// May be a little more than `seats`, because nominal limits are rounded up.
    nominal_sum: u32,
    fair_fraction: f64,
}

struct Level {
    inner: Arc<PriorityLevel>,
    uid: Str,
    spec: LevelSpec,
    /// Its object is gone; the level stays until its requests have left.
    quiescing: bool,
    limits: Limits,
    demand: SeatDemand,
    /// Seats that the level should have by its demand.
    target: f64,
}

/// In seats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    nominal: u32,
    /// What is left when all that is lendable is lent.
    least: u32,
    /// With all that may be borrowed.
    most: u32,
    current: u32,
}

/// Most seats of one request, as a part of the level's nominal limit.
const SEATS_MAX_FRACTION: f64 = 0.15;

impl Levels {
    pub(super) fn new(seats: u32, clock: Clock, read_vs_write: Arc<ReadVsWrite>) -> Self {
        let by_name = BTreeMap::new();
        Self { seats, clock, read_vs_write, by_name, nominal_sum: 0, fair_fraction: 0.0 }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// A level that flow schemas may name, and its UID.
    pub(super) fn desired(&self, name: &str) -> Option<(Arc<PriorityLevel>, Str)> {
        let found = self.by_name.get(name).filter(|level| !level.quiescing)?;
        Some((Arc::clone(&found.inner), found.uid.clone()))
    }

    /// Sets all levels that there should be, with name and UID.
    pub(super) fn replace(&mut self, wanted: impl Iterator<Item = (Str, Str, LevelSpec)>) {
        for level in self.by_name.values_mut() {
            level.quiescing = true;
        }
        for (name, uid, spec) in wanted {
            self.set(name, uid, spec);
        }
        for name in [EXEMPT, CATCH_ALL] {
            if self.by_name.get(name).is_none_or(|level| level.quiescing) {
                self.set(Str::new_static(name), Str::default(), LevelSpec::mandatory(name));
            }
        }
        self.remove_idle();
        self.set_limits();
    }

    fn set(&mut self, name: Str, uid: Str, spec: LevelSpec) {
        if let Some(level) = self.by_name.get_mut(&name) {
            level.inner.with(|set, now| set.set_response(now, spec.response));
            level.inner.set_has_queues(spec.response);
            (level.uid, level.spec, level.quiescing) = (uid, spec, false);
            return;
        }
        let shared = Arc::clone(&self.read_vs_write);
        let level = PriorityLevel::new(name.clone(), spec.response, self.clock, shared);
        let level = Level {
            inner: Arc::new(level),
            uid,
            spec,
            quiescing: false,
            limits: Limits::default(),
            demand: SeatDemand::default(),
            target: 0.0,
        };
        self.by_name.insert(name, level);
    }

    /// Returns whether there was one.
    fn remove_idle(&mut self) -> bool {
        let before = self.by_name.len();
        self.by_name
            .retain(|_, level| !(level.quiescing && level.inner.with(|set, _| set.is_idle())));
        self.by_name.len() < before
    }

    /// Divides the seats by shares, then by demand.
    fn set_limits(&mut self) {
        let share_sum: f64 = self.by_name.values().map(|level| level.spec.shares).sum();
        let seats = f64::from(self.seats);
        let mut waiting_max = 0usize;
        self.nominal_sum = 0;
        for level in self.by_name.values_mut() {
            let spec = &level.spec;
            // Rounded up, so that no level with shares is left without a seat.
            let nominal = (seats * spec.shares / share_sum.max(1.0)).ceil();
            let percent = |percent: f64| (nominal * percent / 100.0).round();
            let lendable = percent(spec.lendable_percent);
            let borrowable = spec.borrowing_limit_percent.map_or(seats, percent);
            level.limits = Limits {
                nominal: nominal as u32,
                least: (nominal - lendable) as u32,
                most: (nominal + borrowable) as u32,
                ..level.limits
            };
            self.nominal_sum = self.nominal_sum.saturating_add(level.limits.nominal);
            waiting_max = waiting_max.saturating_add(spec.response.waiting_max());
            let seats_max = match spec.response {
                LimitResponse::Queue { dealer, .. } => {
                    let fraction = (nominal * SEATS_MAX_FRACTION).ceil();
                    let per_card = (nominal / dealer.hand_size() as f64).floor();
                    fraction.min(per_card).max(1.0) as u32
                }
                LimitResponse::Exempt | LimitResponse::Reject => 0,
            };
            level.inner.seats_max.store(seats_max, Relaxed);
        }
        self.read_vs_write.set_limits(waiting_max, self.nominal_sum);
        self.borrow();
    }

    /// Ends an adjustment period.
    pub(super) fn adjust(&mut self) {
        if self.remove_idle() {
            self.set_limits();
        } else {
            self.borrow();
        }
    }

    /// Sets the current limits by the seat demand since the last time.
    ///
    /// Invariant: a level has at least what it does not lend, and of the rest of its nominal limit
    /// as much as it just used.
    fn borrow(&mut self) {
        let mut exempt_seats = 0u32;
        let (mut least_sum, mut floor_sum) = (0u32, 0u32);
        let mut claims = Vec::new();
        for level in self.by_name.values_mut() {
            let period = level.inner.with(|set, _| {
                let demanded = set.seats_demanded();
                set.demand.reset(demanded)
            });
            level.demand.update(&period);
            let floor = level.floor();
            level.target = f64::from(floor);
            if level.is_exempt() {
                exempt_seats = exempt_seats.saturating_add(floor);
                continue;
            }
            level.target = level.target.max(level.demand.smoothed);
            claims.push(Claim {
                target: level.target,
                least: f64::from(floor),
                most: f64::from(level.limits.most),
            });
            least_sum = least_sum.saturating_add(level.limits.least);
            floor_sum = floor_sum.saturating_add(floor);
        }
        let remaining = self.nominal_sum.saturating_sub(exempt_seats);
        let (mut shares, mut fraction_of_floor) = (Vec::new(), 0.0);
        self.fair_fraction = 0.0;
        if remaining > floor_sum {
            // Compat: the whole, although exempt requests take seats too.
            let allocated = allocate(f64::from(self.nominal_sum), &claims);
            if let Some(allocation) = allocated {
                self.fair_fraction = allocation.fair_fraction;
                shares = allocation.seats;
            } else {
                // The levels together may not borrow what there is: each gets what it may have.
                shares = claims.iter().map(|claim| claim.most).collect();
            }
        } else if remaining > least_sum {
            fraction_of_floor =
                f64::from(remaining - least_sum) / f64::from(floor_sum - least_sum).max(1.0);
        }
        let mut shares = shares.into_iter();
        let seats = self.seats;
        for level in self.by_name.values_mut() {
            let (least, floor) = (level.limits.least, level.floor());
            let current = if level.is_exempt() {
                f64::from(floor)
            } else {
                shares.next().unwrap_or_else(|| {
                    f64::from(least) + f64::from(floor - least) * fraction_of_floor
                })
            };
            level.limits.current = current.round() as u32;
            // A level without seats has requests too; they are measured against a tenth of all.
            let measure = match level.limits.current {
                0 => (f64::from(seats) / 10.0).round() as u32,
                current => current,
            };
            level.inner.with(|set, now| set.set_limit(now, level.limits.current, measure));
        }
    }

    pub(super) fn fair_fraction(&self) -> f64 {
        self.fair_fraction
    }

    #[cfg(test)]
    pub(super) fn limits(&self, name: &str) -> Option<[u32; 4]> {
        let Limits { nominal, least, most, current } = self.by_name.get(name)?.limits;
        Some([nominal, least, most, current])
    }

    pub(super) fn snapshot(&self) -> Vec<metrics::Level> {
        self.by_name.iter().map(|(name, level)| level.snapshot(name)).collect()
    }

    pub(super) fn dump(&self, requests: bool) -> Vec<LevelDump> {
        let dump = |(name, level): (&Str, &Level)| {
            let (state, requests) = level.inner.with(|set, _| {
                let requests = if requests { set.dump_requests() } else { Vec::new() };
                (set.dump(), requests)
            });
            LevelDump { name: name.clone(), is_quiescing: level.quiescing, state, requests }
        };
        self.by_name.iter().map(dump).collect()
    }
}

impl Level {
    fn is_exempt(&self) -> bool {
        self.spec.response == LimitResponse::Exempt
    }

    /// Seats that the level keeps for itself.
    fn floor(&self) -> u32 {
        let used = self.demand.high_watermark;
        let used = if self.is_exempt() { used } else { used.min(self.limits.nominal) };
        used.max(self.limits.least)
    }

    fn snapshot(&self, name: &Str) -> metrics::Level {
        let Limits { nominal, least, most, current } = self.limits;
        let mut gauges = vec![
            ("nominal_limit_seats", "", f64::from(nominal)),
            ("lower_limit_seats", "", f64::from(least)),
            ("upper_limit_seats", "", f64::from(most)),
            ("current_limit_seats", "", f64::from(current)),
            ("demand_seats_high_watermark", "", f64::from(self.demand.high_watermark)),
            ("demand_seats_average", "", self.demand.average),
            ("demand_seats_stdev", "", self.demand.deviation),
            ("demand_seats_smoothed", "", self.demand.smoothed),
            ("target_seats", "", self.target),
        ];
        let histograms = self.inner.with(|set, _| {
            gauges.push(("current_r", "", set.current_r().to_f64()));
            if let LimitResponse::Queue { .. } = set.response() {
                let dispatch = &set.dispatch;
                gauges.push(("dispatch_r", "", dispatch.r.to_f64()));
                gauges.push(("latest_s", "", dispatch.s.to_f64()));
                for (bound, at) in [("min", 0), ("max", 1)] {
                    gauges.push(("next_s_bounds", bound, dispatch.s_bounds[at].to_f64()));
                    let discounted = dispatch.discounted_s_bounds[at].to_f64();
                    gauges.push(("next_discounted_s_bounds", bound, discounted));
                }
            }
            let timings = &set.timings;
            let requests = "priority_level_request_utilization";
            vec![
                ("priority_level_seat_utilization", "executing", timings.seats.snapshot()),
                (requests, "waiting", timings.requests_waiting.snapshot()),
                (requests, "executing", timings.requests_executing.snapshot()),
                ("demand_seats", "", timings.demand.snapshot()),
            ]
        });
        metrics::Level { name: name.clone(), gauges, histograms }
    }
}
