//! Mode `Webhook`: another server decides about a SubjectAccessReview.

mod conditions;
#[cfg(test)]
mod tests;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use client::Dial;
use meta::{
    User, Value,
    selector::{FieldSelector, LabelSelector, Operator},
    value,
};

use self::conditions::Conditions;
pub(crate) use self::conditions::compile;
use super::{Attributes, Authorize, Authorizer, Decision, Rules, Verdict};
use crate::{
    expiring_cache::{ExpiringCache, Key, key},
    metrics::Metrics,
    review::{Outcome, ReviewClient, flag},
};

/// A webhook of `--authorization-mode` or of an `AuthorizationConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookConfig {
    pub kubeconfig: PathBuf,
    /// Of one call.
    pub timeout: Duration,
    /// Zero: not remembered.
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
    /// `v1` or `v1beta1`.
    pub version: String,
    /// Without an answer: deny, instead of leaving it to the next authorizer.
    pub denies_on_failure: bool,
    pub match_conditions: Vec<String>,
}

pub struct WebhookAuthorizer {
    name: String,
    config: WebhookConfig,
    reviews: ReviewClient,
    conditions: Conditions,
    answers: ExpiringCache<Answer>,
    metrics: Metrics,
}

/// What a webhook has said.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    allowed: bool,
    denied: bool,
    reason: String,
}

const ANSWERS_MAX: usize = 8192;
/// Compat: a request whose attributes are longer than this is not remembered.
const REMEMBERED_BYTES_MAX: usize = 10_000;

impl WebhookAuthorizer {
    pub fn load(
        name: &str,
        config: &WebhookConfig,
        metrics: &Metrics,
        dial: Option<Arc<dyn Dial>>,
    ) -> Result<Self, String> {
        if !matches!(config.version.as_str(), "v1" | "v1beta1") {
            return Err(format!(
                "unsupported webhook authorizer version {}, supported versions are \"v1\", \
                 \"v1beta1\"",
                meta::field::quote(&config.version)
            ));
        }
        let version = format!("authorization.k8s.io/{}", config.version);
        let kind = "SubjectAccessReview";
        Ok(Self {
            name: name.to_owned(),
            reviews: ReviewClient::load(&config.kubeconfig, version, kind, config.timeout, dial)?,
            conditions: Conditions::new(&config.match_conditions)?,
            answers: ExpiringCache::new(ANSWERS_MAX),
            config: config.clone(),
            metrics: metrics.clone(),
        })
    }

    #[cfg(test)]
    fn without_pauses(self) -> Self {
        Self { reviews: self.reviews.without_pauses(), ..self }
    }

    fn on_failure(&self, error: String) -> Verdict {
        let decision =
            if self.config.denies_on_failure { Decision::Deny } else { Decision::NoOpinion };
        Verdict { decision, reason: String::new(), error: Some(error) }
    }

    async fn ask(&self, spec: Value, key: Key, remembers: bool) -> Verdict {
        let spec = if self.config.version == "v1beta1" { of_v1beta1(spec) } else { spec };
        let counted = |took: Duration, outcome: Option<Outcome>| {
            let labels = [self.name.as_str(), outcome.map_or("success", Outcome::name)];
            self.metrics.webhook_evaluations.with_label_values(&labels).inc();
            self.metrics.webhook_duration.with_label_values(&labels).observe(took.as_secs_f64());
        };
        let status = match self.reviews.status(&spec, counted).await {
            Ok(status) => status,
            Err(error) => {
                tracing::error!("Failed to make webhook authorizer request: {}", error.message);
                if !self.config.denies_on_failure {
                    let labels = [self.name.as_str(), error.outcome.name()];
                    self.metrics.webhook_fail_open.with_label_values(&labels).inc();
                }
                return self.on_failure(error.message);
            }
        };
        let answer = match Answer::read(&status) {
            Ok(answer) => answer,
            Err(why) => return self.on_failure(why),
        };
        if remembers {
            let config = &self.config;
            let ttl = if answer.allowed { config.authorized_ttl } else { config.unauthorized_ttl };
            self.answers.put(key, answer.clone(), ttl, Instant::now());
        }
        answer.verdict()
    }
}

impl Authorizer for WebhookAuthorizer {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Authorize<'a> {
        let spec = review_spec(attributes);
        if !self.conditions.is_empty() {
            let began = Instant::now();
            let matched = self.conditions.match_all(attributes, &spec);
            let labels = [self.name.as_str(), "Webhook"];
            let metrics = &self.metrics;
            let seconds = began.elapsed().as_secs_f64();
            metrics.match_condition_seconds.with_label_values(&labels).observe(seconds);
            match matched {
                Ok(true) => {}
                Ok(false) => {
                    metrics.match_condition_exclusions.with_label_values(&labels).inc();
                    return Verdict::no_opinion("").into();
                }
                Err(why) => {
                    metrics.match_condition_errors.with_label_values(&labels).inc();
                    return self.on_failure(why).into();
                }
            }
        }
        let key = key([meta::json::to_string(&spec).as_str()]);
        if let Some(answer) = self.answers.get(&key, Instant::now()) {
            return answer.verdict().into();
        }
        let remembers = controlled_bytes(attributes) < REMEMBERED_BYTES_MAX;
        Authorize::later(self.ask(spec, key, remembers))
    }

    fn rules(&self, _user: &User, _namespace: &str) -> Rules {
        Rules {
            incomplete: true,
            error: Some("webhook authorizer does not support user rule resolution".to_owned()),
            ..Rules::default()
        }
    }
}

impl Answer {
    fn read(status: &Value) -> Result<Self, String> {
        Ok(Self {
            allowed: flag(status, "allowed")?,
            denied: flag(status, "denied")?,
            reason: status.str_at(&["reason"]).to_owned(),
        })
    }

    fn verdict(self) -> Verdict {
        let decision = match (self.allowed, self.denied) {
            (_, true) => Decision::Deny,
            (true, false) => Decision::Allow,
            (false, false) => Decision::NoOpinion,
        };
        let both = "webhook subject access review returned both allow and deny response";
        let error = (self.allowed && self.denied).then(|| both.to_owned());
        Verdict { decision, reason: self.reason, error }
    }
}

/// What the client decides about.
fn controlled_bytes(attributes: &Attributes<'_>) -> usize {
    let Attributes { verb, group, version, resource, subresource, namespace, name, path, .. } =
        attributes;
    [verb, group, version, resource, subresource, namespace, name, path]
        .iter()
        .map(|part| part.len())
        .sum()
}

/// The `spec` of a SubjectAccessReview in v1.
fn review_spec(attributes: &Attributes<'_>) -> Value {
    let (user, mut spec) = (attributes.user, Value::object());
    let set = |object: &mut Value, name: &str, text: &str| {
        if !text.is_empty() {
            object.set_at(&[name], text);
        }
    };
    if attributes.is_resource {
        let mut asked = Value::object();
        let fields = [
            ("namespace", attributes.namespace),
            ("verb", attributes.verb),
            ("group", attributes.group),
            ("version", attributes.version),
            ("resource", attributes.resource),
            ("subresource", attributes.subresource),
            ("name", attributes.name),
        ];
        for (name, text) in fields {
            set(&mut asked, name, text);
        }
        let selectors = [
            ("fieldSelector", field_requirements(attributes.field_selector)),
            ("labelSelector", label_requirements(attributes.label_selector)),
        ];
        for (name, requirements) in selectors {
            if !requirements.is_empty() {
                asked.set_at(&[name, "requirements"], requirements);
            }
        }
        spec.set_at(&["resourceAttributes"], asked);
    } else {
        let mut asked = Value::object();
        set(&mut asked, "path", attributes.path);
        set(&mut asked, "verb", attributes.verb);
        spec.set_at(&["nonResourceAttributes"], asked);
    }
    set(&mut spec, "user", &user.name);
    set(&mut spec, "uid", &user.uid);
    if !user.groups.is_empty() {
        spec.set_at(&["groups"], user.groups.clone());
    }
    for (name, values) in &user.extra {
        spec.set_at(&["extra", name], values.clone());
    }
    spec
}

/// Compat: a selector that cannot be parsed is left out, which only widens what is asked for.
fn field_requirements(selector: &str) -> Vec<Value> {
    let selector = FieldSelector::parse(selector).unwrap_or_default();
    let requirement = |requirement: &meta::selector::FieldRequirement| {
        let operator = if requirement.negated { "NotIn" } else { "In" };
        value!({
            "key": (requirement.field.clone()),
            "operator": (operator),
            "values": [(requirement.value.clone())],
        })
    };
    selector.requirements().iter().map(requirement).collect()
}

fn label_requirements(selector: &str) -> Vec<Value> {
    let Ok(selector) = LabelSelector::parse(selector) else { return Vec::new() };
    let requirement = |requirement: &meta::selector::Requirement| {
        let operator = match requirement.operator() {
            Operator::In | Operator::Equals | Operator::DoubleEquals => "In",
            Operator::NotIn | Operator::NotEquals => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            // Compat: it has no form here, and is left out.
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        let mut value = value!({"key": (requirement.key()), "operator": (operator)});
        if !requirement.values().is_empty() {
            value.set_at(&["values"], requirement.values().to_vec());
        }
        Some(value)
    };
    selector.requirements().iter().filter_map(requirement).collect()
}

/// `group` instead of `groups`.
fn of_v1beta1(mut spec: Value) -> Value {
    if let Some(groups) = spec.remove_at(&["groups"]) {
        spec.set_at(&["group"], groups);
    }
    spec
}
