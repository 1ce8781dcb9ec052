//! Webhook configurations, compiled once for each change and swapped as a whole.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use meta::{Str, Value};

use super::call::{Clients, Endpoint};
use crate::{
    DynamicChange,
    expressions::MatchConditions,
    matching::{Criteria, ResourceIndex, Visibility, texts},
};

/// The webhooks of all configurations of one kind, kept current.
pub struct Webhooks {
    current: ArcSwap<Compiled>,
    /// For the next change.
    next: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    by_configuration: BTreeMap<Str, Vec<Arc<Webhook>>>,
    from_files: Vec<Arc<Webhook>>,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self { current: ArcSwap::from_pointee(Compiled::default()), next: Mutex::default() }
    }
}

/// In the order in which they are called: those from files first, then by the name of the
/// configuration, then as listed.
#[derive(Default)]
pub(super) struct Compiled {
    webhooks: Vec<Arc<Webhook>>,
    index: ResourceIndex,
}

impl Webhooks {
    /// Takes over some changes; requests see all of them or none.
    pub(crate) fn apply(&self, changes: Vec<DynamicChange>, clients: &Clients) {
        self.change(|parts| {
            for (name, configuration) in changes {
                match configuration {
                    None => drop(parts.by_configuration.remove(&name)),
                    Some(configuration) => {
                        let webhooks = read(&name, &configuration, clients, "");
                        parts.by_configuration.insert(name, webhooks);
                    }
                }
            }
        });
    }

    /// Replaces those from files, which are sorted by name.
    pub(crate) fn replace_from_files(&self, configurations: &[(Str, Value)], clients: &Clients) {
        let read = |(name, object): &(Str, Value)| read(name, object, clients, "manifest/");
        let webhooks = configurations.iter().flat_map(read).collect();
        self.change(|parts| parts.from_files = webhooks);
    }

    fn change(&self, change: impl FnOnce(&mut Parts)) {
        let mut parts = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut parts);
        let of_api = parts.by_configuration.values().flatten();
        let webhooks: Vec<Arc<Webhook>> = parts.from_files.iter().chain(of_api).cloned().collect();
        let criteria = webhooks.iter().map(|webhook| &webhook.criteria);
        let index = ResourceIndex::new(criteria, parts.from_files.len());
        self.current.store(Arc::new(Compiled { webhooks, index }));
    }

    /// Whether no webhook can concern a resource: all that most requests ask.
    pub(super) fn are_idle(&self, resource: &str, visibility: Visibility) -> bool {
        self.current.load().index.candidates(resource, visibility).is_empty()
    }

    pub(super) fn current(&self) -> Arc<Compiled> {
        self.current.load_full()
    }
}

impl Compiled {
    /// The places of those that can concern a resource, in their order.
    pub(super) fn candidates(&self, resource: &str, visibility: Visibility) -> &[usize] {
        self.index.candidates(resource, visibility)
    }

    pub(super) fn at(&self, place: usize) -> &Webhook {
        &self.webhooks[place]
    }
}

/// One webhook, ready to be matched and called.
pub(super) struct Webhook {
    pub(super) name: Str,
    pub(super) configuration: Str,
    /// Tells webhooks of one name apart: `configuration/name/number`, from a file
    /// `manifest/configuration/name/number`.
    pub(super) uid: Str,
    pub(super) criteria: Criteria,
    pub(super) conditions: MatchConditions,
    /// `failurePolicy: Ignore`.
    pub(super) fails_open: bool,
    pub(super) side_effects: Str,
    pub(super) timeout: Duration,
    /// The first listed version of AdmissionReview that is known here; None: there is none.
    pub(super) review_version: Option<ReviewVersion>,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) reinvoked_if_needed: bool,
    pub(super) endpoint: Endpoint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1beta1,
}

/// Compat: kube-apiserver's default, for configurations that were stored without.
const TIMEOUT_SECONDS: i64 = 10;

fn read(
    configuration: &Str,
    object: &Value,
    clients: &Clients,
    uid_prefix: &str,
) -> Vec<Arc<Webhook>> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let webhooks = object.items_at(&["webhooks"]).iter().map(|webhook| {
        let name = webhook.str_at(&["name"]);
        let number = seen.entry(name).or_default();
        let uid = format!("{uid_prefix}{configuration}/{name}/{number}");
        *number += 1;
        let fails_open = webhook.str_at(&["failurePolicy"]) == "Ignore";
        let seconds = webhook.i64_at(&["timeoutSeconds"]).unwrap_or(TIMEOUT_SECONDS);
        Arc::new(Webhook {
            name: Str::new(name),
            configuration: configuration.clone(),
            uid: Str::from(uid),
            criteria: Criteria::of_webhook(webhook),
            conditions: MatchConditions::read(
                webhook.items_at(&["matchConditions"]),
                false,
                fails_open,
            ),
            fails_open,
            side_effects: Str::new(webhook.str_at(&["sideEffects"])),
            timeout: Duration::from_secs(seconds.clamp(1, 30).unsigned_abs()),
            review_version: review_version(&texts(webhook, "admissionReviewVersions")),
            reinvoked_if_needed: webhook.str_at(&["reinvocationPolicy"]) == "IfNeeded",
            endpoint: Endpoint::read(webhook.get("clientConfig").unwrap_or(&Value::Null), clients),
        })
    });
    webhooks.collect()
}

fn review_version(listed: &[Str]) -> Option<ReviewVersion> {
    listed.iter().find_map(|version| match version.as_str() {
        "v1" => Some(ReviewVersion::V1),
        "v1beta1" => Some(ReviewVersion::V1beta1),
        _ => None,
    })
}
