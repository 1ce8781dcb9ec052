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
    matching::{Criteria, ResourceIndex, texts},
};

/// The webhooks of all configurations of one kind, kept current.
pub struct Webhooks {
    current: ArcSwap<Compiled>,
    /// By the name of their configuration, for the next change.
    next: Mutex<BTreeMap<Str, Vec<Arc<Webhook>>>>,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self { current: ArcSwap::from_pointee(Compiled::default()), next: Mutex::default() }
    }
}

/// In the order in which they are called: by the name of the configuration, then as listed.
#[derive(Default)]
struct Compiled {
    webhooks: Vec<Arc<Webhook>>,
    index: ResourceIndex,
}

impl Webhooks {
    /// Takes over some changes; requests see all of them or none.
    pub(crate) fn apply(&self, changes: Vec<DynamicChange>, clients: &Clients) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, configuration) in changes {
            match configuration {
                None => drop(next.remove(&name)),
                Some(configuration) => {
                    let webhooks = read(&name, &configuration, clients);
                    next.insert(name, webhooks);
                }
            }
        }
        let webhooks: Vec<Arc<Webhook>> = next.values().flatten().cloned().collect();
        let index = ResourceIndex::new(webhooks.iter().map(|webhook| &webhook.criteria));
        self.current.store(Arc::new(Compiled { webhooks, index }));
    }

    /// Whether no webhook can concern a resource: all that most requests ask.
    pub(super) fn are_idle(&self, resource: &str) -> bool {
        self.current.load().index.candidates(resource).is_empty()
    }

    /// Those that can concern a resource, in their order, and the place of each among all.
    pub(super) fn of_resource(&self, resource: &str) -> Vec<(usize, Arc<Webhook>)> {
        let compiled = self.current.load();
        let places = compiled.index.candidates(resource).iter();
        places.map(|at| (*at, compiled.webhooks[*at].clone())).collect()
    }
}

/// One webhook, ready to be matched and called.
pub(super) struct Webhook {
    pub(super) name: Str,
    pub(super) configuration: Str,
    /// Tells webhooks of one name apart: `configuration/name/number`.
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

fn read(configuration: &Str, object: &Value, clients: &Clients) -> Vec<Arc<Webhook>> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let webhooks = object.items_at(&["webhooks"]).iter().map(|webhook| {
        let name = webhook.str_at(&["name"]);
        let number = seen.entry(name).or_default();
        let uid = format!("{configuration}/{name}/{number}");
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
