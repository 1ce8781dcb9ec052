//! The webhooks and policies of the cluster, as the watch caches have them. Requests read them
//! without a lock.

use prometheus::Registry;
use tokio::sync::watch;

use meta::{ApiError, Str, Value};

use crate::{
    Attributes,
    policy::{MutatingPolicies, PolicyMetrics, ValidatingPolicies},
    webhook::{AuthInfos, Clients, WebhookMetrics, Webhooks},
};

/// A change of a webhook configuration, policy or binding: its name and what it is now; None: it is gone.
pub type DynamicChange = (Str, Option<Value>);

pub struct DynamicAdmission {
    pub(crate) mutating_webhooks: Webhooks,
    pub(crate) validating_webhooks: Webhooks,
    pub(crate) validating_policies: ValidatingPolicies,
    pub(crate) mutating_policies: MutatingPolicies,
    mutating_clients: Clients,
    validating_clients: Clients,
    pub(crate) metrics: WebhookMetrics,
    pub(crate) policy_metrics: PolicyMetrics,
    /// The kinds that have been read.
    synced: watch::Sender<u8>,
}

/// The configurations of one plugin that are read from files, by name, with defaults and valid.
#[derive(Clone, Debug)]
pub enum StaticConfigurations {
    MutatingWebhooks(Vec<(Str, Value)>),
    ValidatingWebhooks(Vec<(Str, Value)>),
    ValidatingPolicies { policies: Vec<(Str, Value)>, bindings: Vec<(Str, Value)> },
    MutatingPolicies { policies: Vec<(Str, Value)>, bindings: Vec<(Str, Value)> },
}

/// The kinds of objects that extend admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DynamicKind {
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
}

impl DynamicKind {
    pub const ALL: [Self; 6] = [
        Self::MutatingWebhookConfiguration,
        Self::ValidatingWebhookConfiguration,
        Self::ValidatingAdmissionPolicy,
        Self::ValidatingAdmissionPolicyBinding,
        Self::MutatingAdmissionPolicy,
        Self::MutatingAdmissionPolicyBinding,
    ];

    /// The kind as objects spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MutatingWebhookConfiguration => "MutatingWebhookConfiguration",
            Self::ValidatingWebhookConfiguration => "ValidatingWebhookConfiguration",
            Self::ValidatingAdmissionPolicy => "ValidatingAdmissionPolicy",
            Self::ValidatingAdmissionPolicyBinding => "ValidatingAdmissionPolicyBinding",
            Self::MutatingAdmissionPolicy => "MutatingAdmissionPolicy",
            Self::MutatingAdmissionPolicyBinding => "MutatingAdmissionPolicyBinding",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

const ALL_SYNCED: u8 = (1 << DynamicKind::ALL.len()) - 1;

impl Default for DynamicAdmission {
    /// Without any, and complete.
    fn default() -> Self {
        let none = AuthInfos::default;
        let complete = Self::new(none(), none(), client::WebhookDials::default());
        complete.synced.send_replace(ALL_SYNCED);
        complete
    }
}

impl DynamicAdmission {
    /// Not read yet: requests wait until every kind is. The plugins of mutating and of validating
    /// webhooks each have their own credentials.
    pub fn new(mutating: AuthInfos, validating: AuthInfos, dials: client::WebhookDials) -> Self {
        Self {
            mutating_webhooks: Webhooks::default(),
            validating_webhooks: Webhooks::default(),
            validating_policies: ValidatingPolicies::default(),
            mutating_policies: MutatingPolicies::default(),
            mutating_clients: Clients::new(mutating, dials.clone()),
            validating_clients: Clients::new(validating, dials),
            metrics: WebhookMetrics::default(),
            policy_metrics: PolicyMetrics::default(),
            synced: watch::channel(0).0,
        }
    }

    pub fn register_metrics(&self, registry: &Registry) {
        self.metrics.register(registry);
        self.policy_metrics.register(registry);
    }

    /// Takes over changes of one kind. The first call has all there are.
    pub fn apply(&self, kind: DynamicKind, changes: Vec<DynamicChange>) {
        use DynamicKind as Kind;
        match kind {
            Kind::MutatingWebhookConfiguration => {
                self.mutating_webhooks.apply(changes, &self.mutating_clients);
            }
            Kind::ValidatingWebhookConfiguration => {
                self.validating_webhooks.apply(changes, &self.validating_clients);
            }
            Kind::ValidatingAdmissionPolicy => self.validating_policies.apply_policies(changes),
            Kind::ValidatingAdmissionPolicyBinding => {
                self.validating_policies.apply_bindings(changes);
            }
            Kind::MutatingAdmissionPolicy => self.mutating_policies.apply_policies(changes),
            Kind::MutatingAdmissionPolicyBinding => self.mutating_policies.apply_bindings(changes),
        }
        self.synced.send_modify(|synced| *synced |= kind.bit());
    }

    /// Replaces the configurations from files of one plugin. Each part is sorted by name.
    pub fn replace_from_files(&self, files: &StaticConfigurations) {
        match files {
            StaticConfigurations::MutatingWebhooks(configurations) => {
                self.mutating_webhooks.replace_from_files(configurations, &self.mutating_clients);
            }
            StaticConfigurations::ValidatingWebhooks(configurations) => {
                self.validating_webhooks
                    .replace_from_files(configurations, &self.validating_clients);
            }
            StaticConfigurations::ValidatingPolicies { policies, bindings } => {
                self.validating_policies.replace_from_files(policies, bindings);
            }
            StaticConfigurations::MutatingPolicies { policies, bindings } => {
                self.mutating_policies.replace_from_files(policies, bindings);
            }
        }
    }

    /// This kind is not served, so that there is nothing to read.
    pub fn skip(&self, kind: DynamicKind) {
        self.synced.send_modify(|synced| *synced |= kind.bit());
    }

    pub(crate) fn are_synced(&self) -> bool {
        *self.synced.borrow() == ALL_SYNCED
    }

    /// Waits until every kind has been read. Compat: a request that waits for longer is refused, so
    /// that no `failurePolicy: Fail` is missed.
    pub(crate) async fn wait_until_synced(
        &self,
        attributes: &Attributes<'_>,
    ) -> Result<(), ApiError> {
        let mut synced = self.synced.subscribe();
        let wait = synced.wait_for(|synced| *synced == ALL_SYNCED);
        match tokio::time::timeout(SYNC_TIMEOUT, wait).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(ApiError::Forbidden {
                resource: attributes.gvr.group_resource(),
                name: attributes.name.to_owned(),
                why: "not yet ready to handle request".to_owned(),
                causes: Vec::new(),
            }),
        }
    }
}

/// As upstream.
const SYNC_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
