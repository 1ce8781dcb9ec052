//! kube-apiserver's metrics of the Pod Security Standards.

use prometheus::{IntCounterVec, Opts};

use super::policy::{Level, LevelVersion, Version};
use crate::{Attributes, Operation};

pub(crate) struct Metrics {
    evaluations: IntCounterVec,
    exemptions: IntCounterVec,
    errors: IntCounterVec,
}

/// The minor version of the API; a policy of a later one is of the future.
const MINOR: u64 = 36;

impl Metrics {
    pub(crate) fn new() -> Self {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels).expect("valid names")
        };
        Self {
            evaluations: counter(
                "pod_security_evaluations_total",
                "Policies evaluated, without those of exempt requests.",
                &[
                    "decision",
                    "policy_level",
                    "policy_version",
                    "mode",
                    "request_operation",
                    "resource",
                    "subresource",
                ],
            ),
            exemptions: counter(
                "pod_security_exemptions_total",
                "Requests that were exempt.",
                &["request_operation", "resource", "subresource"],
            ),
            errors: counter(
                "pod_security_errors_total",
                "Errors that prevented an evaluation, or led to one of level restricted.",
                &["fatal", "request_operation", "resource", "subresource"],
            ),
        }
    }

    pub(crate) fn counters(&self) -> Vec<IntCounterVec> {
        vec![self.evaluations.clone(), self.exemptions.clone(), self.errors.clone()]
    }

    pub(crate) fn evaluated(
        &self,
        attributes: &Attributes<'_>,
        mode: &str,
        policy: LevelVersion,
        allowed: bool,
    ) {
        let minor;
        let version = match policy.version {
            _ if policy.level == Level::Privileged => "latest",
            Version::Latest => "latest",
            // Compat: a label has no more values than there are versions.
            Version::Minor(minor) if minor > MINOR => "future",
            Version::Minor(number) => {
                minor = format!("v1.{number}");
                &minor
            }
        };
        let [operation, resource, subresource] = labels(attributes);
        let decision = if allowed { "allow" } else { "deny" };
        let level = policy.level.as_str();
        self.evaluations
            .with_label_values(&[decision, level, version, mode, operation, resource, subresource])
            .inc();
    }

    pub(crate) fn exempted(&self, attributes: &Attributes<'_>) {
        self.exemptions.with_label_values(&labels(attributes)).inc();
    }

    pub(crate) fn failed(&self, attributes: &Attributes<'_>, fatal: bool) {
        let [operation, resource, subresource] = labels(attributes);
        let fatal = if fatal { "true" } else { "false" };
        self.errors.with_label_values(&[fatal, operation, resource, subresource]).inc();
    }
}

fn labels<'a>(attributes: &Attributes<'a>) -> [&'a str; 3] {
    let operation = match attributes.operation {
        Operation::Create => "create",
        _ => "update",
    };
    let resource = match attributes.gvr.resource.as_str() {
        "pods" => "pod",
        "namespaces" => "namespace",
        _ => "controller",
    };
    [operation, resource, attributes.subresource]
}
