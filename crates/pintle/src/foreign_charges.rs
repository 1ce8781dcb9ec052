//! What other servers over the same store have charged to quotas lately. Their objects may not be stored yet,
//! so the quota controller must not take the charges back.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use admission::quota::{CHARGE_SETTLED_AFTER, ResourceList, add};
use meta::{Str, Value, quantity::Quantity};
use tokio::time::Instant;

/// Fed with every change of a quota, in order.
#[derive(Default)]
pub(crate) struct ForeignCharges {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By namespace and name.
    quotas: HashMap<(Str, Str), History>,
    /// The last versions that this server has written, oldest first.
    own: VecDeque<u64>,
}

#[derive(Default)]
struct History {
    /// The version up to which all changes are known.
    seen: u64,
    /// Before this, charges are possible that were made before the history began.
    complete_from: Option<Instant>,
    raises: VecDeque<Raise>,
}

struct Raise {
    version: u64,
    at: Instant,
    usage: ResourceList,
}

/// A version is asked for right after its event: at most as many are in between as writes are under way.
const OWN_VERSIONS_MAX: usize = 4096;

/// What the controller may not take back from a quota.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ForeignUsage {
    /// Charges of other servers, and the time until the first of them is settled.
    Charges(ResourceList, Option<Duration>),
    /// Nothing may be taken back for this time.
    Unknown(Duration),
    /// The quota has changed, and the event is on its way.
    Behind,
}

impl ForeignCharges {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This server has written the status of a quota.
    pub(crate) fn wrote(&self, quota: &Value) {
        let mut state = self.lock();
        if state.own.len() == OWN_VERSIONS_MAX {
            state.own.pop_front();
        }
        state.own.push_back(version(quota));
    }

    /// A quota has changed, or is listed and has no `previous`.
    pub(crate) fn changed(&self, quota: &Value, previous: Option<&Value>) {
        let (at, version) = (Instant::now(), version(quota));
        let mut state = self.lock();
        let history = state.quotas.entry(key(quota)).or_default();
        history.seen = version;
        let used = used(quota);
        let Some(previous) = previous else {
            history.raises.clear();
            // A quota without a status was never charged.
            history.complete_from = (!used.is_empty()).then(|| at + CHARGE_SETTLED_AFTER);
            return;
        };
        let usage = difference(used, &self::used(previous));
        if !usage.is_empty() {
            history.raises.push_back(Raise { version, at, usage });
        }
        history.forget_settled(at);
    }

    pub(crate) fn deleted(&self, quota: &Value) {
        self.lock().quotas.remove(&key(quota));
    }

    /// What a quota, as it was read, was charged by other servers.
    pub(crate) fn of_quota(&self, quota: &Value) -> ForeignUsage {
        let now = Instant::now();
        let mut state = self.lock();
        let State { quotas, own } = &mut *state;
        let Some(history) = quotas.get_mut(&key(quota)) else { return ForeignUsage::Behind };
        if history.seen < version(quota) {
            return ForeignUsage::Behind;
        }
        if let Some(from) = history.complete_from.filter(|from| now < *from) {
            return ForeignUsage::Unknown(from - now);
        }
        history.forget_settled(now);
        history.raises.retain(|raise| !own.contains(&raise.version));
        let mut usage = ResourceList::new();
        for raise in &history.raises {
            add(&mut usage, &raise.usage);
        }
        let settled = history.raises.front().map(|first| first.at + CHARGE_SETTLED_AFTER - now);
        ForeignUsage::Charges(usage, settled)
    }
}

impl History {
    fn forget_settled(&mut self, now: Instant) {
        while self.raises.front().is_some_and(|first| now >= first.at + CHARGE_SETTLED_AFTER) {
            self.raises.pop_front();
        }
    }
}

fn key(quota: &Value) -> (Str, Str) {
    let of = |field| quota.str_at(&["metadata", field]).into();
    (of("namespace"), of("name"))
}

fn version(quota: &Value) -> u64 {
    quota.str_at(&["metadata", "resourceVersion"]).parse().unwrap_or_default()
}

/// `status.used`.
pub(crate) fn used(quota: &Value) -> ResourceList {
    let used = quota.at(&["status", "used"]).and_then(Value::as_object);
    let used = used.into_iter().flat_map(meta::Map::iter);
    used.filter_map(|(name, amount)| Some((name.clone(), Quantity::from_value(amount).ok()?)))
        .collect()
}

/// By how much amounts have grown.
fn difference(mut new: ResourceList, old: &ResourceList) -> ResourceList {
    for (name, amount) in old {
        if let Some(new) = new.get_mut(name) {
            new.sub(amount);
        }
    }
    let zero = Quantity::default();
    new.retain(|_, amount| *amount > zero);
    new
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    fn quota(version: u64, pods: &str) -> Value {
        let mut quota = value!({"metadata": {"namespace": "n", "name": "q"}});
        quota.set_at(&["metadata", "resourceVersion"], version.to_string());
        if !pods.is_empty() {
            quota.set_at(&["status", "used", "pods"], pods);
        }
        quota
    }

    fn pods(count: &str) -> ResourceList {
        ResourceList::from([("pods".into(), Quantity::parse(count).unwrap())])
    }

    #[tokio::test(start_paused = true)]
    async fn raises_of_other_servers_count_until_they_are_settled() {
        let charges = ForeignCharges::default();
        let second = Duration::from_secs(1);
        let rest = CHARGE_SETTLED_AFTER.saturating_sub(second);
        charges.changed(&quota(1, ""), None);
        assert_eq!(
            charges.of_quota(&quota(1, "")),
            ForeignUsage::Charges(ResourceList::new(), None)
        );
        assert_eq!(charges.of_quota(&quota(2, "2")), ForeignUsage::Behind);
        charges.changed(&quota(2, "2"), Some(&quota(1, "")));
        tokio::time::advance(second).await;
        charges.wrote(&quota(3, "3"));
        charges.changed(&quota(3, "3"), Some(&quota(2, "2")));
        charges.changed(&quota(4, "1"), Some(&quota(3, "3")));
        charges.changed(&quota(5, "2"), Some(&quota(4, "1")));
        let of = || charges.of_quota(&quota(5, "2"));
        assert_eq!(of(), ForeignUsage::Charges(pods("3"), Some(rest)));
        tokio::time::advance(rest).await;
        assert_eq!(of(), ForeignUsage::Charges(pods("1"), Some(second)));
        tokio::time::advance(second).await;
        assert_eq!(of(), ForeignUsage::Charges(ResourceList::new(), None));
        charges.deleted(&quota(5, "2"));
        assert_eq!(of(), ForeignUsage::Behind);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_charged_before_the_first_sight_is_unknown_for_a_while() {
        let charges = ForeignCharges::default();
        charges.changed(&quota(7, "2"), None);
        let of = || charges.of_quota(&quota(7, "2"));
        assert_eq!(of(), ForeignUsage::Unknown(CHARGE_SETTLED_AFTER));
        tokio::time::advance(CHARGE_SETTLED_AFTER).await;
        assert_eq!(of(), ForeignUsage::Charges(ResourceList::new(), None));
    }
}
