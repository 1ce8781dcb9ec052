//! Limits how many events are written: in all, by namespace, by user, or by source and object.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    mem,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use codec::config_file::FieldType;
use meta::{ApiError, FieldErrors, Status, Value, field::path};

use super::aggregate;
use crate::{
    Attributes, BoxFuture, Cluster, Operation, Phases, Plugin, configuration::PluginConfiguration,
};

pub struct EventRateLimit {
    limits: Vec<Limit>,
}

struct Limit {
    ty: Type,
    qps: f64,
    burst: f64,
    buckets: Mutex<Buckets>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

/// The buckets of the keys that were used last. When `recent` is full it becomes `older`, and what was
/// older is forgotten: a key that comes back then has a full bucket.
struct Buckets {
    recent: HashMap<u64, Bucket>,
    older: HashMap<u64, Bucket>,
    size: usize,
    /// Keys are kept as hashes: they come from clients and have no bound.
    hasher: RandomState,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

const CACHE_SIZE_DEFAULT: i64 = 4096;
/// A key is cut to this in an error.
const KEY_BYTES_MAX: usize = 1024;

const VERSIONS: [(&str, &str); 1] = [("eventratelimit.admission.k8s.io/v1alpha1", "Configuration")];

const FIELDS: FieldType = FieldType::Fields(&[
    ("apiVersion", FieldType::Text),
    ("kind", FieldType::Text),
    (
        "limits",
        FieldType::List(&FieldType::Fields(&[
            ("type", FieldType::Text),
            ("qps", FieldType::Int),
            ("burst", FieldType::Int),
            ("cacheSize", FieldType::Int),
        ])),
    ),
]);

impl EventRateLimit {
    pub(crate) fn new(configuration: Option<&PluginConfiguration>) -> Result<Self, String> {
        let Some(given) = configuration else {
            return Err(
                "couldn't init admission plugin \"EventRateLimit\": limits: Invalid value: \
                        null: must not be empty; give it a configuration with \
                        --admission-control-config-file"
                    .to_owned(),
            );
        };
        let value = given.decode(&VERSIONS, &FIELDS)?;
        let mut errors = FieldErrors::default();
        let limits = value.items_at(&["limits"]);
        if limits.is_empty() {
            errors.invalid(path("limits"), Value::Array(Vec::new()), "must not be empty");
        }
        let limits = limits.iter().enumerate();
        let limits: Vec<Limit> =
            limits.filter_map(|(at, limit)| Limit::read(limit, at, &mut errors)).collect();
        if errors.is_empty() { Ok(Self { limits }) } else { Err(given.wrong(&errors.to_string())) }
    }

    fn check(&self, attributes: &Attributes<'_>, event: &Value, now: Instant) -> Option<String> {
        let refused = self.limits.iter().filter_map(|limit| {
            let key = limit.ty.key(attributes, event);
            if limit.try_accept(&key, now) {
                return None;
            }
            let end = key.floor_char_boundary(KEY_BYTES_MAX);
            Some(format!("limit reached on type {} for key {}", limit.ty.as_str(), &key[..end]))
        });
        aggregate(refused.collect())
    }
}

impl Limit {
    fn read(limit: &Value, at: usize, errors: &mut FieldErrors) -> Option<Self> {
        let at = path("limits").index(at);
        let number = |field| limit.i64_at(&[field]).unwrap_or_default();
        let ty = Type::parse(limit.str_at(&["type"]));
        if ty.is_none() {
            let valid = ["Namespace", "Server", "SourceAndObject", "User"];
            errors.not_supported(at.child("type"), limit.str_at(&["type"]), &valid);
        }
        for field in ["burst", "qps"] {
            if number(field) <= 0 {
                errors.invalid(at.child(field), number(field), "must be positive");
            }
        }
        let size = number("cacheSize");
        if size < 0 && ty != Some(Type::Server) {
            errors.invalid(at.child("cacheSize"), size, "must not be negative");
        }
        let size = if size <= 0 { CACHE_SIZE_DEFAULT } else { size };
        let number = |field| i32::try_from(number(field)).map_or(f64::MAX, f64::from);
        Some(Self {
            ty: ty?,
            qps: number("qps"),
            burst: number("burst"),
            buckets: Mutex::new(Buckets {
                recent: HashMap::new(),
                older: HashMap::new(),
                size: usize::try_from(size).unwrap_or(usize::MAX),
                hasher: RandomState::new(),
            }),
        })
    }

    fn try_accept(&self, key: &str, now: Instant) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let key = buckets.hasher.hash_one(key);
        let full = Bucket { tokens: self.burst, at: now };
        let bucket = buckets.get(key, full);
        let elapsed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + elapsed * self.qps).min(self.burst);
        bucket.at = now;
        let accepted = bucket.tokens >= 1.0;
        if accepted {
            bucket.tokens -= 1.0;
        }
        accepted
    }
}

impl Buckets {
    fn get(&mut self, key: u64, full: Bucket) -> &mut Bucket {
        if !self.recent.contains_key(&key) {
            let known = self.older.remove(&key);
            if self.recent.len() >= self.size {
                self.older = mem::take(&mut self.recent);
            }
            self.recent.insert(key, known.unwrap_or(full));
        }
        self.recent.entry(key).or_insert(full)
    }
}

impl Type {
    fn parse(text: &str) -> Option<Self> {
        let types = [Self::Server, Self::Namespace, Self::User, Self::SourceAndObject];
        types.into_iter().find(|ty| ty.as_str() == text)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Server => "Server",
            Self::Namespace => "Namespace",
            Self::User => "User",
            Self::SourceAndObject => "SourceAndObject",
        }
    }

    fn key(self, attributes: &Attributes<'_>, event: &Value) -> String {
        match self {
            Self::Server => String::new(),
            Self::Namespace => attributes.namespace.to_owned(),
            Self::User => attributes.user.name.to_string(),
            Self::SourceAndObject => {
                let source =
                    ["component", "host"].iter().map(|field| event.str_at(&["source", field]));
                let object = ["kind", "namespace", "name", "uid", "apiVersion"].iter();
                let object = object.map(|field| event.str_at(&["involvedObject", field]));
                source.chain(object).collect()
            }
        }
    }
}

impl Plugin for EventRateLimit {
    fn name(&self) -> &'static str {
        "EventRateLimit"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        // Compat: events of events.k8s.io are not limited.
        attributes.gvk.kind == "Event"
            && attributes.gvk.group.is_empty()
            && !attributes.is_dry_run()
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let event = object.unwrap_or(&Value::Null);
        let result = match self.check(attributes, event, Instant::now()) {
            None => Ok(()),
            Some(why) => Err(ApiError::Status(Box::new(Status {
                code: 429,
                reason: "TooManyRequests".to_owned(),
                message: format!("Too many requests: {why}"),
                ..Status::default()
            }))),
        };
        Box::pin(std::future::ready(result))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        Configurations,
        harness::{cluster, create, yaml},
        resources,
    };

    fn plugin(limits: &str) -> Result<EventRateLimit, String> {
        let value = yaml(&format!(
            "{{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{limits}]}}"
        ));
        let configurations = Configurations::for_test("EventRateLimit", value);
        EventRateLimit::new(configurations.of("EventRateLimit"))
    }

    #[test]
    fn events_beyond_the_burst_are_refused() {
        let event = |namespace: &str, name: &str, kind: &str| {
            yaml(&format!(
                "{{kind: {kind}, metadata: {{name: e, namespace: {namespace}}}, source: {{component: c}}, \
                 involvedObject: {{name: {name}}}}}"
            ))
        };
        let reached = |ty: &str, key: &str| {
            format!("Too many requests: limit reached on type {ty} for key {key}")
        };
        let cases = [
            ("Server", event("a", "x", "Event"), event("b", "z", "Event"), reached("Server", "")),
            (
                "Namespace",
                event("a", "x", "Event"),
                event("a", "z", "Event"),
                reached("Namespace", "a"),
            ),
            ("Namespace", event("a", "x", "Event"), event("b", "z", "Event"), String::new()),
            (
                "User",
                event("a", "x", "Event"),
                event("b", "z", "Event"),
                reached("User", "someone"),
            ),
            (
                "SourceAndObject",
                event("a", "x", "Event"),
                event("a", "x", "Event"),
                reached("SourceAndObject", "cx"),
            ),
            ("SourceAndObject", event("a", "x", "Event"), event("a", "z", "Event"), String::new()),
            ("Server", event("a", "x", "Pod"), event("a", "x", "Pod"), String::new()),
        ];
        for (ty, first, second, expected) in cases {
            let plugin = plugin(&format!("{{type: {ty}, qps: 1, burst: 1}}")).unwrap();
            let request = create(&resources::EVENTS);
            assert_eq!(request.validate(&plugin, &first, &cluster(&[], &[])).message(), "");
            let outcome = request.validate(&plugin, &second, &cluster(&[], &[]));
            assert_eq!(outcome.message(), expected, "{ty}");
            let dry = create(&resources::EVENTS).dry_run();
            assert_eq!(dry.validate(&plugin, &second, &cluster(&[], &[])).message(), "");
        }
    }

    #[test]
    fn buckets_fill_up_again_and_are_bounded() {
        let plugin = plugin("{type: Namespace, qps: 2, burst: 3, cacheSize: 10}").unwrap();
        let (limit, start) = (&plugin.limits[0], Instant::now());
        let accepted = |key: &str, seconds: f64, tries: usize| {
            let now = start + Duration::from_secs_f64(seconds);
            (0..tries).filter(|_| limit.try_accept(key, now)).count()
        };
        assert_eq!(accepted("a", 0.0, 5), 3);
        assert_eq!(accepted("a", 1.0, 5), 2);
        assert_eq!(accepted("a", 100.0, 5), 3);
        for other in 0..9 {
            accepted(&format!("other {other}"), 100.0, 1);
        }
        assert_eq!(accepted("a", 100.0, 5), 0, "one of the last ten keys is remembered");
        for other in 0..100_000 {
            accepted(&format!("key {other}"), 100.0, 1);
        }
        let buckets = limit.buckets.lock().unwrap();
        assert!(buckets.recent.len() + buckets.older.len() <= 20);
    }

    #[test]
    fn configurations_are_checked() {
        let prefix = "couldn't init admission plugin \"EventRateLimit\": test.yaml: ";
        let cases = [
            ("", "limits: Invalid value: []: must not be empty"),
            (
                "{type: Server, qps: 0, burst: 1}",
                "limits[0].qps: Invalid value: 0: must be positive",
            ),
            ("{type: Server, qps: 1}", "limits[0].burst: Invalid value: 0: must be positive"),
            (
                "{type: User, qps: 1, burst: 1, cacheSize: -1}",
                "limits[0].cacheSize: Invalid value: -1: must not be negative",
            ),
            (
                "{type: X, qps: 1, burst: 1}",
                "limits[0].type: Unsupported value: \"X\": supported values: \"Namespace\", \"Server\", \"SourceAndObject\", \"User\"",
            ),
        ];
        for (limits, expected) in cases {
            let error = plugin(limits).err().unwrap_or_default();
            assert_eq!(error, format!("{prefix}{expected}"));
        }
        assert!(EventRateLimit::new(None).is_err());
    }
}
