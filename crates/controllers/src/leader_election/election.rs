//! The decisions of an election: functions of a Lease, its LeaseCandidates and the time. No state is kept between two
//! steps, so that another apiserver can go on where this one has stopped.

use std::time::Duration;

use meta::{Value, time::Time};

use super::version::Version;

/// The strategy that is known here. Leases of others get no holder.
pub(super) const OLDEST_EMULATION_VERSION: &str = "OldestEmulationVersion";
/// How long candidates have to acknowledge a ping, and how long an acknowledgement counts.
const ELECTION_DURATION: Duration = Duration::from_secs(5);
/// A candidate that was not renewed for so long is not one any more.
const CANDIDATE_VALID_DURATION: Duration = Duration::from_mins(30);
/// What a new holder gets to renew its lease.
pub(super) const LEASE_SECONDS: i64 = 5;

/// What an election needs next.
#[derive(Debug, PartialEq)]
pub(super) enum Step<'a> {
    /// The holder is the best one, or candidates have still time to answer.
    Wait,
    /// These candidates are asked whether they are there: `spec.pingTime` is to be set.
    Ping(Vec<&'a Value>),
    Elect {
        strategy: &'a str,
        /// None: another controller elects by this strategy.
        holder: Option<&'a str>,
    },
}

/// Candidates that have not expired.
pub(super) fn is_admissible(candidate: &Value, now: Time) -> bool {
    renewed(candidate).is_some_and(|renewed| after(renewed, CANDIDATE_VALID_DURATION) >= now)
}

/// `candidates` are admissible ones of this lease, and at least one.
pub(super) fn next_step<'a>(
    lease: Option<&Value>,
    candidates: &'a [Value],
    now: Time,
) -> Result<Step<'a>, String> {
    if !is_needed(lease, candidates, now)? {
        return Ok(Step::Wait);
    }
    let mut pinged = Vec::new();
    let mut is_waiting = false;
    for candidate in candidates {
        let (ping, renewed) = (pinged_at(candidate), renewed(candidate));
        let has_acked = match (ping, renewed) {
            (Some(ping), Some(renewed)) => renewed >= ping,
            _ => true,
        };
        let is_pending = ping.is_some_and(|ping| after(ping, ELECTION_DURATION) > now);
        if is_pending && !has_acked {
            is_waiting = true;
        } else if renewed.is_some_and(|renewed| after(renewed, ELECTION_DURATION) > now) {
            // It has answered just now.
        } else if ping.is_none_or(|ping| after(ping, ELECTION_DURATION) < now && has_acked) {
            pinged.push(candidate);
        }
    }
    if !pinged.is_empty() {
        return Ok(Step::Ping(pinged));
    }
    if is_waiting {
        return Ok(Step::Wait);
    }
    let answered = candidates.iter().filter(|candidate| {
        renewed(candidate).is_some_and(|renewed| after(renewed, ELECTION_DURATION) > now)
    });
    let answered: Vec<&Value> = answered.collect();
    if answered.is_empty() {
        return Err("no available candidates".to_owned());
    }
    let strategy = best_strategy(&answered)?;
    if strategy != OLDEST_EMULATION_VERSION {
        return Ok(Step::Elect { strategy, holder: None });
    }
    let leader = best_leader(&answered).ok_or("no candidate has a valid version")?;
    Ok(Step::Elect { strategy, holder: Some(name(leader)) })
}

fn is_needed(lease: Option<&Value>, candidates: &[Value], now: Time) -> Result<bool, String> {
    let Some(lease) = lease else { return Ok(true) };
    let holder = lease.str_at(&["spec", "holderIdentity"]);
    if is_expired(lease, now) || holder.is_empty() {
        return Ok(true);
    }
    // Candidates renew themselves when they are asked: once in half of the time after which they expire.
    let is_old = |candidate: &Value| {
        renewed(candidate).is_some_and(|renewed| after(renewed, CANDIDATE_VALID_DURATION / 2) < now)
    };
    if candidates.iter().any(is_old) {
        return Ok(true);
    }
    let candidates: Vec<&Value> = candidates.iter().collect();
    if best_strategy(&candidates)? != OLDEST_EMULATION_VERSION {
        return Ok(false);
    }
    Ok(best_leader(&candidates).is_some_and(|best| name(best) != holder))
}

/// The strategy of the candidate with the newest binary version.
fn best_strategy<'a>(candidates: &[&'a Value]) -> Result<&'a str, String> {
    let strategy = |candidate: &'a Value| candidate.str_at(&["spec", "strategy"]);
    let mut candidates = candidates.iter().copied();
    let Some(mut best) = candidates.next() else { return Err("no candidates".to_owned()) };
    for candidate in candidates {
        let (old, new) = (binary_version(best), binary_version(candidate));
        if old < new {
            best = candidate;
        } else if old == new && strategy(best) != strategy(candidate) {
            return Err(format!(
                "candidates {:?}, {:?} at same binary version but received differing strategies {}, {}",
                name(best),
                name(candidate),
                strategy(best),
                strategy(candidate),
            ));
        }
    }
    Ok(strategy(best))
}

/// The oldest emulation version, then the oldest binary version, then the oldest candidate.
fn best_leader<'a>(candidates: &[&'a Value]) -> Option<&'a Value> {
    let valid = candidates.iter().copied().filter(|candidate| {
        let version = |field| Version::parse(candidate.str_at(&["spec", field]));
        version("emulationVersion").is_some() && version("binaryVersion").is_some()
    });
    valid.min_by_key(|candidate| {
        let emulated = Version::parse(candidate.str_at(&["spec", "emulationVersion"]));
        let created = Time::parse(candidate.str_at(&["metadata", "creationTimestamp"])).ok();
        (emulated, binary_version(candidate), created)
    })
}

fn binary_version(candidate: &Value) -> Version {
    Version::parse(candidate.str_at(&["spec", "binaryVersion"])).unwrap_or_default()
}

fn name(candidate: &Value) -> &str {
    candidate.str_at(&["metadata", "name"])
}

fn pinged_at(candidate: &Value) -> Option<Time> {
    Time::parse(candidate.str_at(&["spec", "pingTime"])).ok()
}

fn renewed(object: &Value) -> Option<Time> {
    Time::parse(object.str_at(&["spec", "renewTime"])).ok()
}

fn after(time: Time, duration: Duration) -> Time {
    time.plus(meta::time::Duration {
        nanos: i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX),
    })
}

fn is_expired(lease: &Value, now: Time) -> bool {
    let seconds = lease.i64_at(&["spec", "leaseDurationSeconds"]);
    match (renewed(lease), seconds) {
        (Some(renewed), Some(seconds)) => {
            after(renewed, Duration::from_secs(u64::try_from(seconds).unwrap_or_default())) < now
        }
        _ => true,
    }
}

/// An existing lease after an election; None: nothing changes.
pub(super) fn elected(
    lease: &Value,
    strategy: &str,
    holder: Option<&str>,
    now: Time,
) -> Option<Value> {
    let mut new = lease.clone();
    if lease.str_at(&["spec", "strategy"]) != strategy {
        new.set_at(&["spec", "strategy"], strategy);
    }
    let old = lease.str_at(&["spec", "holderIdentity"]);
    if let Some(holder) = holder.filter(|holder| *holder != old) {
        if old.is_empty() || is_expired(lease, now) {
            new.remove_at(&["spec", "preferredHolder"]);
            new.remove_at(&["spec", "acquireTime"]);
            new.set_at(&["spec", "holderIdentity"], holder);
            new.set_at(&["spec", "renewTime"], now.to_rfc3339_micro());
            new.set_at(&["spec", "leaseDurationSeconds"], LEASE_SECONDS);
        } else {
            // The holder gives its lease up when it sees this.
            new.set_at(&["spec", "preferredHolder"], holder);
        }
    }
    (new != *lease).then_some(new)
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    fn at(seconds: i64) -> Time {
        Time::from_unix(1_800_000_000 + seconds, 0)
    }

    /// `name emulation/binary ping renewed [strategy]`, times in seconds or `-`.
    fn candidate(text: &str) -> Value {
        let words: Vec<&str> = text.split(' ').collect();
        let (emulation, binary) = words[1].split_once('/').unwrap();
        let strategy = words.get(4).copied().unwrap_or(OLDEST_EMULATION_VERSION);
        let mut candidate = value!({
            "metadata": {"name": (words[0]), "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "emulationVersion": (emulation), "binaryVersion": (binary), "strategy": (strategy),
            },
        });
        for (field, time) in [("pingTime", words[2]), ("renewTime", words[3])] {
            if let Ok(seconds) = time.parse() {
                candidate.set_at(&["spec", field], at(seconds).to_rfc3339_micro());
            }
        }
        candidate
    }

    /// `holder renewed`; the lease lasts 15 seconds.
    fn lease(text: &str) -> Option<Value> {
        let (holder, renewed) = text.split_once(' ')?;
        let renewed = at(renewed.parse().unwrap()).to_rfc3339_micro();
        Some(value!({"spec": {
            "holderIdentity": (holder), "renewTime": (renewed), "leaseDurationSeconds": 15i64,
        }}))
    }

    fn step(lease_text: &str, candidates: &[&str]) -> String {
        let candidates: Vec<Value> = candidates.iter().map(|text| candidate(text)).collect();
        match next_step(lease(lease_text).as_ref(), &candidates, at(1000)) {
            Ok(Step::Ping(pinged)) => {
                let names: Vec<&str> = pinged.iter().map(|candidate| name(candidate)).collect();
                format!("ping {}", names.join(" "))
            }
            Ok(Step::Elect { strategy: OLDEST_EMULATION_VERSION, holder: Some(holder) }) => {
                format!("elect {holder}")
            }
            Ok(Step::Elect { strategy, holder }) => format!("elect {holder:?} by {strategy}"),
            Ok(step) => format!("{step:?}"),
            Err(error) => error,
        }
    }

    #[test]
    fn an_election_goes_on_step_by_step() {
        let cases: [(&str, &[&str], &str); 18] = [
            // No lease: the candidate that has just come is elected, the others are asked.
            ("", &["a 1.36/1.36 - 999"], "elect a"),
            ("", &["a 1.36/1.36 - 900"], "ping a"),
            ("", &["a 1.36/1.36 - 999", "b 1.35/1.36 - 900"], "ping b"),
            ("", &["a 1.36/1.36 - 999", "b 1.35/1.36 998 900"], "Wait"),
            ("", &["a 1.36/1.36 - 999", "b 1.35/1.36 998 999"], "elect b"),
            // One that did not answer in time is left out, and asked again once it has.
            ("", &["a 1.36/1.36 - 999", "b 1.35/1.36 990 900"], "elect a"),
            ("", &["a 1.36/1.36 - 999", "b 1.35/1.36 990 991"], "ping b"),
            ("", &["a 1.36/1.36 990 900"], "no available candidates"),
            // A lease without a holder, that has expired, or whose holder is not the best.
            (" 999", &["a 1.36/1.36 - 999"], "elect a"),
            ("a 980", &["a 1.36/1.36 - 999"], "elect a"),
            ("a 999", &["a 1.36/1.36 - 999"], "Wait"),
            ("a 999", &["a 1.36/1.36 - 900", "b 1.35/1.35 - 999"], "ping a"),
            ("a 999", &["a 1.36/1.36 - 999", "b 1.35/1.35 - 999"], "elect b"),
            ("b 999", &["a 1.36/1.36 - 999", "b 1.35/1.35 - 900"], "Wait"),
            // Candidates are asked every 15 minutes.
            ("a 999", &["a 1.36/1.36 - 99"], "ping a"),
            // Strategies: that of the newest binary.
            ("", &["a 1.36/1.36 - 999", "b 1.35/1.37 - 999 x.io/y"], "elect None by x.io/y"),
            ("a 999", &["a 1.36/1.36 - 999", "b 1.35/1.37 - 999 x.io/y"], "Wait"),
            (
                "",
                &["a 1.36/1.36 - 999", "b 1.35/1.36 - 999 x.io/y"],
                "candidates \"a\", \"b\" at same binary version but received differing strategies \
                 OldestEmulationVersion, x.io/y",
            ),
        ];
        for (lease, candidates, expected) in cases {
            assert_eq!(step(lease, candidates), expected, "{lease:?} {candidates:?}");
        }
    }

    #[test]
    fn the_oldest_version_leads() {
        let cases: [(&[&str], Option<&str>); 6] = [
            (&["a 1.36/1.36", "b 1.35/1.36"], Some("b")),
            (&["a 1.36.1/1.37", "b 1.36/1.38"], Some("b")),
            (&["a 1.36/1.37", "b 1.36/1.36"], Some("b")),
            (&["a 1.36/1.36", "b 1.36/1.36"], Some("a")),
            (&["a x/1.36", "b 1.36/1.37"], Some("b")),
            (&["a x/1.36", "b 1.36/y"], None),
        ];
        for (candidates, expected) in cases {
            let candidates: Vec<Value> =
                candidates.iter().map(|text| candidate(&format!("{text} - 0"))).collect();
            let candidates: Vec<&Value> = candidates.iter().collect();
            assert_eq!(best_leader(&candidates).map(name), expected, "{candidates:?}");
        }
        let [mut old, mut new] = ["a 1.36/1.36 - 0", "b 1.36/1.36 - 0"].map(candidate);
        old.set_at(&["metadata", "creationTimestamp"], "2026-01-01T00:00:01Z");
        new.set_at(&["metadata", "creationTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(best_leader(&[&old, &new]).map(name), Some("b"));
    }

    #[test]
    fn candidates_expire_after_half_an_hour() {
        for (text, expected) in
            [("a 1/1 - -800", true), ("a 1/1 - -801", false), ("a 1/1 - -", false)]
        {
            assert_eq!(is_admissible(&candidate(text), at(1000)), expected, "{text}");
        }
    }

    #[test]
    fn a_holder_is_replaced_or_asked_to_go() {
        let now = at(1000).to_rfc3339_micro();
        let base = |text: &str| {
            let mut lease = lease(text).unwrap();
            lease.set_at(&["spec", "strategy"], OLDEST_EMULATION_VERSION);
            lease.set_at(&["spec", "acquireTime"], "t");
            lease
        };
        let taken = value!({"spec": {
            "holderIdentity": "b", "renewTime": (now.as_str()), "leaseDurationSeconds": (LEASE_SECONDS),
            "strategy": (OLDEST_EMULATION_VERSION),
        }});
        let mut asked = base("a 999");
        asked.set_at(&["spec", "preferredHolder"], "b");
        let by = OLDEST_EMULATION_VERSION;
        let cases = [
            (base(" 999"), by, Some("b"), Some(taken.clone())),
            (base("a 980"), by, Some("b"), Some(taken.clone())),
            (asked.clone(), by, Some("b"), None),
            (base("a 999"), by, Some("b"), Some(asked)),
            (base("b 999"), by, Some("b"), None),
            (base("b 980"), by, Some("b"), None),
            (base("a 999"), by, None, None),
        ];
        for (lease, strategy, holder, expected) in cases {
            assert_eq!(
                elected(&lease, strategy, holder, at(1000)),
                expected,
                "{lease:?} {holder:?}"
            );
        }
        let changed = elected(&base("a 999"), "x.io/y", None, at(1000)).unwrap();
        assert_eq!(changed.str_at(&["spec", "strategy"]), "x.io/y");
        assert_eq!(changed.str_at(&["spec", "holderIdentity"]), "a");
    }
}
