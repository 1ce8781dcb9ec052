//! How many seats a request takes, and for how long after its response.

use std::time::Duration;

use meta::{Query, RequestInfo};

use crate::seat_seconds::SeatSeconds;

/// What a request costs, as far as that is known before it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkEstimate {
    /// Seats while the request is served.
    pub initial_seats: u32,
    /// Seats during `additional_latency`.
    pub final_seats: u32,
    /// How long seats stay taken after the request was served: the events of a write are sent to
    /// watchers then. The client does not wait for it.
    pub additional_latency: Duration,
}

impl WorkEstimate {
    pub(crate) const MINIMUM: Self = Self::seats(SEATS_MIN);

    const fn seats(initial_seats: u32) -> Self {
        Self { initial_seats, final_seats: 0, additional_latency: Duration::ZERO }
    }

    /// A request holds the larger number all the time, since seats cannot be waited for twice.
    pub fn max_seats(&self) -> u32 {
        self.initial_seats.max(self.final_seats)
    }
}

/// The objects of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectStatistics {
    pub count: u64,
    pub average_bytes: u64,
}

/// Knows how many objects a resource has.
pub trait ObjectCounts: Send + Sync {
    /// None for a resource that this server does not store, e.g. an aggregated one.
    fn statistics(&self, info: &RequestInfo) -> Option<ObjectStatistics>;
}

const SEATS_MIN: u32 = 1;
const MUTATING_SEATS_MAX: u32 = 10;
const OBJECTS_PER_SEAT: u64 = 100;
const BYTES_PER_SEAT: u64 = 100_000;
/// A list from the cache is streamed, so that it never holds more than this.
const STREAMED_BYTES_MAX: u64 = 1_000_000;
/// Of an object whose size is not known.
const OBJECT_BYTES_MAX: u64 = 1_500_000;
const WATCHES_PER_SEAT: u64 = 10;
/// How long the event of a write keeps a seat per [`WATCHES_PER_SEAT`].
const EVENT_NANOS: u64 = 5_000_000;

/// The parts of a level and a server that estimates depend on.
pub(crate) struct Estimator<'a> {
    /// The most seats that a request of the level may take; 0: no limit of its own.
    pub(crate) level_seats_max: u32,
    /// Feature gate `SizeBasedListCostEstimate`: lists by bytes instead of by objects.
    pub(crate) by_size: bool,
    pub(crate) counts: &'a dyn ObjectCounts,
}

impl Estimator<'_> {
    /// `query` is the request's query as it was sent, `watchers` counts the watches that a write of
    /// this request is sent to.
    pub(crate) fn estimate(
        &self,
        info: &RequestInfo,
        query: &str,
        watchers: impl FnOnce() -> u64,
    ) -> WorkEstimate {
        match info.verb.as_str() {
            "list" | "watch" if info.is_resource => WorkEstimate::seats(self.list(info, query)),
            "create" | "update" | "patch" | "delete" if info.is_resource => {
                self.mutating(info, watchers)
            }
            _ => WorkEstimate::MINIMUM,
        }
    }

    fn at_most(&self, limit: u32) -> u32 {
        if self.level_seats_max == 0 { limit } else { self.level_seats_max.min(limit) }
    }

    fn list(&self, info: &RequestInfo, query: &str) -> u32 {
        let seats_max = self.at_most(if self.by_size { 100 } else { 10 });
        // The request will fail in validation; until then it may cost anything.
        let Some(options) = ListOptions::parse(query) else { return seats_max };
        let watch = info.verb == "watch";
        if watch && !options.has_initial_events() {
            return SEATS_MIN;
        }
        // An aggregated server does the work, or there is none to do.
        let Some(objects) = self.counts.statistics(info) else {
            return SEATS_MIN;
        };
        let from_cache = watch || options.is_from_cache();
        let single = !info.name.is_empty();
        let seats = if self.by_size {
            seats_by_bytes(objects, &options, from_cache, single)
        } else {
            seats_by_objects(objects, &options, from_cache, single)
        };
        u32::try_from(seats).unwrap_or(u32::MAX).clamp(SEATS_MIN, seats_max.max(SEATS_MIN))
    }

    fn mutating(&self, info: &RequestInfo, watchers: impl FnOnce() -> u64) -> WorkEstimate {
        // A token is not stored, so that no watch hears of it.
        if info.resource == "serviceaccounts" && info.subresource == "token" {
            return WorkEstimate::MINIMUM;
        }
        let watchers = watchers();
        // Compat: below one seat's worth of watchers a write costs nothing more.
        if watchers < WATCHES_PER_SEAT {
            return WorkEstimate::MINIMUM;
        }
        let wanted = u32::try_from(watchers.div_ceil(WATCHES_PER_SEAT)).unwrap_or(u32::MAX);
        let final_seats = wanted.min(self.at_most(MUTATING_SEATS_MAX));
        // Fewer seats are taken for longer: a wide request blocks the level until it fits.
        let work = SeatSeconds::new(wanted, EVENT_NANOS);
        let additional_latency = Duration::from_nanos(work.duration_for(final_seats));
        WorkEstimate { initial_seats: SEATS_MIN, final_seats, additional_latency }
    }
}

/// What of a query decides how much a list reads.
struct ListOptions {
    limit: u64,
    send_initial_events: bool,
    version: Version,
    exact: bool,
    not_older: bool,
    /// `resourceVersionMatch` with an unknown value.
    match_unknown: bool,
    continued: bool,
    selective: bool,
}

#[derive(PartialEq, Eq)]
enum Version {
    /// The newest.
    Unset,
    /// Any.
    Zero,
    Given,
}

impl ListOptions {
    fn parse(raw: &str) -> Option<Self> {
        let query = Query::parse(raw).ok()?;
        let limit = query.integer("limit").ok()?.unwrap_or_default();
        let matching = query.text("resourceVersionMatch");
        Some(Self {
            limit: u64::try_from(limit).unwrap_or_default(),
            send_initial_events: query.optional_flag("sendInitialEvents") == Some(true),
            version: match query.text("resourceVersion") {
                "" => Version::Unset,
                "0" => Version::Zero,
                _ => Version::Given,
            },
            exact: matching == "Exact",
            not_older: matching == "NotOlderThan",
            match_unknown: !matches!(matching, "" | "Exact" | "NotOlderThan"),
            continued: !query.text("continue").is_empty(),
            selective: !query.text("labelSelector").is_empty()
                || !query.text("fieldSelector").is_empty(),
        })
    }

    fn has_initial_events(&self) -> bool {
        self.send_initial_events || self.version != Version::Given
    }

    /// Compat: which lists kube-apiserver reads from etcd, for which it charges more.
    fn is_from_cache(&self) -> bool {
        if self.exact || self.match_unknown {
            return false;
        }
        if self.not_older {
            return true;
        }
        let legacy_exact = self.limit > 0 && self.version == Version::Given;
        !self.continued && !legacy_exact
    }

    fn limited(&self, count: u64) -> u64 {
        if self.limit > 0 { self.limit.min(count) } else { count }
    }
}

fn seats_by_bytes(
    objects: ObjectStatistics,
    options: &ListOptions,
    from_cache: bool,
    single: bool,
) -> u64 {
    let limited = options.limited(objects.count);
    let loaded = if single {
        1
    } else if !from_cache && options.selective {
        limited.max(objects.count / 2)
    } else {
        limited
    };
    let unknown = objects.average_bytes == 0 && objects.count != 0;
    let average = if unknown { OBJECT_BYTES_MAX } else { objects.average_bytes };
    let bytes = loaded.saturating_mul(average);
    let bytes = if from_cache { bytes.min(STREAMED_BYTES_MAX) } else { bytes };
    bytes.div_ceil(BYTES_PER_SEAT)
}

fn seats_by_objects(
    objects: ObjectStatistics,
    options: &ListOptions,
    from_cache: bool,
    single: bool,
) -> u64 {
    let limited = options.limited(objects.count);
    let read = if single {
        1
    } else if from_cache {
        objects.count
    } else if options.selective {
        objects.count.saturating_add(limited)
    } else {
        limited.saturating_mul(2)
    };
    read.div_ceil(OBJECTS_PER_SEAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Option<ObjectStatistics>);

    impl ObjectCounts for Fixed {
        fn statistics(&self, _: &RequestInfo) -> Option<ObjectStatistics> {
            self.0
        }
    }

    fn objects(count: u64, average_bytes: u64) -> Option<ObjectStatistics> {
        Some(ObjectStatistics { count, average_bytes })
    }

    fn request(verb: &str, name: &str) -> RequestInfo {
        RequestInfo {
            verb: verb.into(),
            is_resource: true,
            group: "foo.bar".into(),
            resource: "events".into(),
            name: name.into(),
            ..RequestInfo::default()
        }
    }

    /// Cases read from kube-apiserver's `TestWorkEstimator` of v1.36, among others.
    #[test]
    fn lists_cost_what_they_load() {
        let small = objects(799, 10_000);
        // Verb, name, query, objects, most seats of the level; seats by size and by count.
        let cases = [
            ("list", "", "", small, 100, 10, 8),
            ("list", "", "limit=29&resourceVersion=0", small, 100, 3, 8),
            ("list", "", "limit=49", small, 100, 5, 8),
            ("list", "", "limit=499", small, 100, 10, 8),
            ("list", "", "limit=499&resourceVersion=1", small, 100, 50, 10),
            ("list", "", "limit=49&continue=x", small, 100, 5, 1),
            ("list", "", "continue=x", small, 100, 80, 10),
            ("list", "", "continue=x&labelSelector=app%3Dtest", small, 100, 80, 10),
            ("list", "", "continue=x&labelSelector=app%3Dtest&limit=49", small, 100, 40, 9),
            ("list", "", "resourceVersionMatch=Exact&resourceVersion=3", small, 100, 80, 10),
            ("list", "", "resourceVersionMatch=NotOlderThan&limit=5", small, 100, 1, 8),
            ("list", "", "resourceVersionMatch=Odd", small, 100, 80, 10),
            ("list", "", "limit=x", small, 100, 100, 10),
            ("list", "", "limit=x", small, 4, 4, 4),
            ("list", "", "", small, 4, 4, 4),
            ("list", "", "", small, 0, 10, 8),
            ("list", "test", "limit=500", objects(799, 200_000), 100, 2, 1),
            ("list", "test", "", objects(799, 1_500_000), 100, 10, 1),
            ("list", "", "", objects(0, 0), 100, 1, 1),
            ("list", "", "continue=x", objects(2, 0), 100, 30, 1),
            ("list", "", "continue=x", objects(u64::MAX / 4, u64::MAX), 100, 100, 10),
            ("list", "", "", None, 100, 1, 1),
            ("watch", "", "watch=true", objects(799, 1000), 100, 8, 8),
            ("watch", "", "resourceVersion=0", objects(799, 1000), 100, 8, 8),
            ("watch", "", "resourceVersion=1", objects(799, 1000), 100, 1, 1),
            ("watch", "", "sendInitialEvents=false", objects(799, 1000), 100, 8, 8),
            ("watch", "", "sendInitialEvents=false&resourceVersion=1", small, 100, 1, 1),
            ("watch", "", "sendInitialEvents=true&resourceVersion=1", small, 100, 10, 8),
            ("get", "test", "", small, 100, 1, 1),
            ("deletecollection", "", "", small, 100, 1, 1),
        ];
        for (verb, name, query, objects, level_seats_max, by_size, by_count) in cases {
            for (gate, expected) in [(true, by_size), (false, by_count)] {
                let counts = Fixed(objects);
                let estimator = Estimator { level_seats_max, by_size: gate, counts: &counts };
                let estimate = estimator.estimate(&request(verb, name), query, || 0);
                assert_eq!(
                    estimate,
                    WorkEstimate::seats(expected),
                    "{verb} {name} {query} {objects:?} by size: {gate}"
                );
            }
        }
    }

    #[test]
    fn writes_cost_what_their_watchers_hear() {
        // Verb, watchers, most seats of the level; final seats, milliseconds.
        let cases = [
            ("create", 0, 10, 0, 0),
            ("create", 5, 10, 0, 0),
            ("create", 29, 10, 3, 5),
            ("update", 199, 10, 10, 10),
            ("patch", 100, 5, 5, 10),
            ("delete", 1000, 20, 10, 50),
            ("delete", 1000, 0, 10, 50),
            ("get", 1000, 10, 0, 0),
        ];
        for (verb, watchers, level_seats_max, final_seats, millis) in cases {
            let estimator = Estimator { level_seats_max, by_size: true, counts: &Fixed(None) };
            let expected = WorkEstimate {
                initial_seats: 1,
                final_seats,
                additional_latency: Duration::from_millis(millis),
            };
            let estimate = estimator.estimate(&request(verb, "x"), "", || watchers);
            assert_eq!(estimate, expected, "{verb} {watchers}");
        }
    }

    #[test]
    fn a_token_of_a_service_account_is_no_event() {
        let estimator = Estimator { level_seats_max: 10, by_size: true, counts: &Fixed(None) };
        let mut token = request("create", "default");
        token.resource = "serviceaccounts".into();
        token.subresource = "token".into();
        assert_eq!(estimator.estimate(&token, "", || 5777), WorkEstimate::MINIMUM);
    }
}
