//! The authorizers of a server, which change with their configuration file.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use arc_swap::{ArcSwap, Guard};
use meta::User;
use prometheus::IntCounter;

use super::{
    AlwaysAllow, AlwaysDeny, Attributes, Authorize, Authorizer, Decision, PrivilegedGroup, Rules,
    Union, Verdict,
    config::{self, AuthorizationConfig, AuthorizerType},
    webhook::WebhookAuthorizer,
};
use crate::{
    config_file::{self, ReloadError},
    metrics::Metrics,
};

/// `system:masters`, then the authorizers of the configuration.
pub struct AuthorizerChain {
    current: ArcSwap<Generation>,
    fixed: FixedAuthorizers,
    metrics: Metrics,
}

/// Authorizers that stay when a configuration is reloaded, and cannot be added by a reload.
#[derive(Default)]
pub struct FixedAuthorizers {
    pub node: Option<Arc<dyn Authorizer>>,
    pub rbac: Option<Arc<dyn Authorizer>>,
    pub abac: Option<Arc<dyn Authorizer>>,
    /// How webhooks are dialed. None: directly.
    pub webhook_dial: Option<Arc<dyn client::Dial>>,
}

struct Generation {
    union: Union,
    /// Authorizers before the first webhook, which decide from memory.
    immediate: usize,
}

impl AuthorizerChain {
    pub fn new(
        config: &AuthorizationConfig,
        fixed: FixedAuthorizers,
        metrics: &Metrics,
    ) -> Result<Self, String> {
        let current = ArcSwap::from_pointee(Generation::new(config, &fixed, metrics)?);
        Ok(Self { current, fixed, metrics: metrics.clone() })
    }

    /// Follows the configuration file. A new one needs the same types beside webhooks.
    pub async fn follow(self: Arc<Self>, file: PathBuf, content: Vec<u8>, every: Duration) {
        let first = config::parse(&content).unwrap_or_default();
        let metrics = self.metrics.authorization_reloads();
        config_file::follow(file, content, every, "authorization", metrics, |content| {
            let next = self.reload(&first, &content);
            let applied = next.map(|next| self.current.store(Arc::new(next)));
            async { applied.map_err(ReloadError::Content) }
        })
        .await;
    }

    fn reload(&self, first: &AuthorizationConfig, content: &[u8]) -> Result<Generation, String> {
        let config = config::parse(content)?;
        let missing: Vec<&str> = first
            .authorizers
            .iter()
            .map(|authorizer| authorizer.kind)
            .filter(|kind| *kind != AuthorizerType::Webhook && !config.has(*kind))
            .map(AuthorizerType::name)
            .collect();
        if !missing.is_empty() {
            return Err(format!("missing required types: [{}]", missing.join(" ")));
        }
        Generation::new(&config, &self.fixed, &self.metrics)
    }
}

impl Generation {
    fn new(
        config: &AuthorizationConfig,
        fixed: &FixedAuthorizers,
        metrics: &Metrics,
    ) -> Result<Self, String> {
        let mut authorizers: Vec<Arc<dyn Authorizer>> = vec![Arc::new(PrivilegedGroup)];
        let mut immediate = None;
        for authorizer in &config.authorizers {
            let (kind, name) = (authorizer.kind, authorizer.name.as_str());
            let of_start = |fixed: &Option<Arc<dyn Authorizer>>| {
                fixed.clone().ok_or_else(|| {
                    format!(
                        "authorizer type {} is not allowed if it was not enabled at initial server \
                         startup",
                        kind.name()
                    )
                })
            };
            let inner: Arc<dyn Authorizer> = match (kind, &authorizer.webhook) {
                (AuthorizerType::AlwaysAllow, _) => Arc::new(AlwaysAllow),
                (AuthorizerType::AlwaysDeny, _) => Arc::new(AlwaysDeny),
                (AuthorizerType::Abac, _) => of_start(&fixed.abac)?,
                (AuthorizerType::Rbac, _) => of_start(&fixed.rbac)?,
                (AuthorizerType::Node, _) => of_start(&fixed.node)?,
                (AuthorizerType::Webhook, Some(webhook)) => {
                    immediate.get_or_insert(authorizers.len());
                    let dial = fixed.webhook_dial.clone();
                    Arc::new(WebhookAuthorizer::load(name, webhook, metrics, dial)?)
                }
                (AuthorizerType::Webhook, None) => {
                    return Err(format!("authorizer {name}: no webhook"));
                }
            };
            authorizers.push(Arc::new(Counted::new(inner, kind, name, metrics)));
        }
        let immediate = immediate.unwrap_or(authorizers.len());
        Ok(Self { union: Union(authorizers), immediate })
    }
}

impl Authorizer for AuthorizerChain {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Authorize<'a> {
        let current = self.current.load();
        let Generation { union, immediate } = &**current;
        if *immediate == union.0.len()
            && let Authorize::Ready(verdict) = union.authorize(attributes)
        {
            return verdict.into();
        }
        for authorizer in &union.0[..*immediate] {
            if let Authorize::Ready(verdict) = authorizer.authorize(attributes)
                && verdict.decision != Decision::NoOpinion
            {
                return verdict.into();
            }
        }
        // The future keeps the configuration with which it began. Those that had no opinion are asked
        // once more, for their reasons.
        let generation = Guard::into_inner(current);
        Authorize::later(async move { generation.union.authorize(attributes).await })
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        self.current.load().union.rules(user, namespace)
    }
}

/// Counts the decisions of an authorizer.
struct Counted {
    inner: Arc<dyn Authorizer>,
    kind: AuthorizerType,
    name: String,
    metrics: Metrics,
    allowed: OnceLock<IntCounter>,
    denied: OnceLock<IntCounter>,
}

impl Counted {
    fn new(
        inner: Arc<dyn Authorizer>,
        kind: AuthorizerType,
        name: &str,
        metrics: &Metrics,
    ) -> Self {
        let (name, metrics) = (name.to_owned(), metrics.clone());
        Self { inner, kind, name, metrics, allowed: OnceLock::new(), denied: OnceLock::new() }
    }

    fn count(&self, verdict: &Verdict) {
        let (counter, decision) = match verdict.decision {
            Decision::Allow => (&self.allowed, "allowed"),
            Decision::Deny => (&self.denied, "denied"),
            Decision::NoOpinion => return,
        };
        // A series appears with its first decision.
        let counter = counter.get_or_init(|| {
            let labels = [decision, self.name.as_str(), self.kind.name()];
            self.metrics.decisions.with_label_values(&labels)
        });
        counter.inc();
    }
}

impl Authorizer for Counted {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Authorize<'a> {
        match self.inner.authorize(attributes) {
            Authorize::Ready(verdict) => {
                self.count(&verdict);
                verdict.into()
            }
            Authorize::Pending(verdict) => Authorize::later(async move {
                let verdict = verdict.await;
                self.count(&verdict);
                verdict
            }),
        }
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        self.inner.rules(user, namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::config::AuthorizerConfig, *};

    fn chain(kinds: &[AuthorizerType]) -> Result<AuthorizerChain, String> {
        let config = AuthorizationConfig {
            authorizers: kinds.iter().copied().map(AuthorizerConfig::of).collect(),
        };
        let fixed = FixedAuthorizers { rbac: Some(Arc::new(AlwaysDeny)), ..Default::default() };
        AuthorizerChain::new(&config, fixed, &Metrics::new("test"))
    }

    #[test]
    fn decisions_come_from_memory_and_are_counted() {
        let chain = chain(&[AuthorizerType::Rbac, AuthorizerType::AlwaysAllow]).unwrap();
        let user = User { name: "jane".into(), ..User::default() };
        let attributes = Attributes::of_path(&user, "get", "/");
        for _ in 0..3 {
            let Authorize::Ready(verdict) = chain.authorize(&attributes) else { panic!("waits") };
            assert!(verdict.is_allowed());
        }
        let labels = ["allowed", "alwaysallow", "AlwaysAllow"];
        assert_eq!(chain.metrics.decisions.with_label_values(&labels).get(), 3);
    }

    #[test]
    fn masters_are_allowed_before_anything_else() {
        let chain = chain(&[AuthorizerType::AlwaysDeny]).unwrap();
        let user = User { groups: vec![User::MASTERS.into()], ..User::default() };
        let attributes = Attributes::of_path(&user, "get", "/");
        let Authorize::Ready(verdict) = chain.authorize(&attributes) else { panic!("waits") };
        assert!(verdict.is_allowed());
    }

    #[test]
    fn a_reload_neither_adds_nor_drops_types() {
        assert!(chain(&[AuthorizerType::Node]).is_err(), "it was not there at the start");
        let chain = chain(&[AuthorizerType::Rbac]).unwrap();
        let first =
            AuthorizationConfig { authorizers: vec![AuthorizerConfig::of(AuthorizerType::Rbac)] };
        let file = |authorizers: &str| {
            format!(
                "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n\
                 authorizers: [{authorizers}]"
            )
        };
        let cases = [
            ("{type: RBAC, name: rbac}", ""),
            ("{type: AlwaysDeny, name: alwaysdeny}, {type: RBAC, name: rbac}", ""),
            ("{type: AlwaysAllow, name: alwaysallow}", "missing required types: [RBAC]"),
            (
                "{type: RBAC, name: rbac}, {type: Node, name: node}",
                "authorizer type Node is not allowed if it was not enabled at initial server startup",
            ),
        ];
        for (authorizers, expected) in cases {
            let why = chain.reload(&first, file(authorizers).as_bytes()).err().unwrap_or_default();
            assert_eq!(why, expected, "{authorizers}");
        }
    }
}
