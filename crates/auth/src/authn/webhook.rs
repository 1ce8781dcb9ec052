//! `--authentication-token-webhook-config-file`: another server says who is behind a token.

use std::{path::Path, sync::Arc, time::Duration};

use meta::{Str, User, Value};

use super::{TokenResult, TokenUser, token_cache::TokenCache};
use crate::{
    egress::Egress,
    metrics::Metrics,
    review::{CALL_TIMEOUT, ReviewClient, flag},
};

pub struct TokenWebhook {
    inner: Arc<Inner>,
    cache: TokenCache,
}

struct Inner {
    reviews: ReviewClient,
    /// Of this server: what a webhook means that knows no audiences.
    implicit_audiences: Vec<Str>,
}

impl TokenWebhook {
    /// `version` is that of the TokenReview; answers are remembered for `cache_ttl`.
    pub fn load(
        kubeconfig: &Path,
        version: &str,
        audiences: Vec<Str>,
        cache_ttl: Duration,
        metrics: &Metrics,
        egress: &Egress,
    ) -> Result<Self, String> {
        if !matches!(version, "v1" | "v1beta1") {
            return Err(format!(
                "unsupported authentication webhook version {}, supported versions are \"v1\", \
                 \"v1beta1\"",
                meta::field::quote(version)
            ));
        }
        let version = format!("authentication.k8s.io/{version}");
        let (kind, dial) = ("TokenReview", egress.control_plane.clone());
        let reviews = ReviewClient::load(kubeconfig, version, kind, CALL_TIMEOUT, dial)?;
        Ok(Self::new(reviews, audiences, cache_ttl, metrics))
    }

    fn new(
        reviews: ReviewClient,
        implicit_audiences: Vec<Str>,
        cache_ttl: Duration,
        metrics: &Metrics,
    ) -> Self {
        let inner = Arc::new(Inner { reviews, implicit_audiences });
        Self { inner, cache: TokenCache::new(cache_ttl, cache_ttl, metrics) }
    }

    pub(super) async fn user(&self, token: &str, audiences: &[Str]) -> TokenResult {
        let lookup = || {
            let (inner, token) = (self.inner.clone(), Str::new(token));
            let audiences = audiences.to_vec();
            Box::pin(async move { inner.ask(&token, &audiences).await }) as _
        };
        self.cache.get(token, audiences, lookup).await
    }
}

impl Inner {
    async fn ask(&self, token: &str, audiences: &[Str]) -> TokenResult {
        let mut spec = Value::object();
        spec.set_at(&["token"], token);
        if !audiences.is_empty() {
            spec.set_at(&["audiences"], audiences.to_vec());
        }
        let status = self.reviews.status(&spec, |_, _| {}).await.map_err(|error| {
            tracing::error!("Failed to make webhook authenticator request: {}", error.message);
            error.message
        })?;
        self.user(&status, audiences)
    }

    fn user(&self, status: &Value, wanted: &[Str]) -> TokenResult {
        let texts = |value: &Value, path: &[&str]| -> Vec<Str> {
            value.items_at(path).iter().filter_map(Value::as_str).map(Str::new).collect()
        };
        let answered = texts(status, &["audiences"]);
        let meant = if answered.is_empty() { &self.implicit_audiences } else { &answered };
        let both: Vec<Str> = wanted.iter().filter(|name| meant.contains(name)).cloned().collect();
        if both.is_empty() && !wanted.is_empty() {
            return Ok(None);
        }
        if !flag(status, "authenticated")? {
            return match status.str_at(&["error"]) {
                "" => Ok(None),
                why => Err(why.to_owned()),
            };
        }
        let user = status.get("user").unwrap_or(&Value::Null);
        let extra = user.get("extra").and_then(Value::as_object);
        let mut extra: Vec<(Str, Vec<Str>)> = extra
            .into_iter()
            .flat_map(meta::Map::iter)
            .map(|(key, values)| (Str::new(key), texts(values, &[])))
            .collect();
        extra.sort();
        let user = User {
            name: Str::new(user.str_at(&["username"])),
            uid: Str::new(user.str_at(&["uid"])),
            groups: texts(user, &["groups"]),
            extra,
        };
        // A user without a name could not be told from any other.
        if user.name.is_empty() {
            return Err("the webhook authenticated a user without a name".to_owned());
        }
        Ok(Some(TokenUser { user, audiences: both }))
    }
}

#[cfg(test)]
mod tests;
