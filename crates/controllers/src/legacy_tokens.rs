//! Long-lived tokens, for those who ask for one: a Secret of type
//! `kubernetes.io/service-account-token` that names an account is given its token, and goes with the
//! account.

use std::{collections::HashSet, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use meta::{ApiError, Value, value};

use crate::{Api, Change, Informer, Target};

/// Makes tokens.
pub trait LegacyTokens: Send + Sync + 'static {
    /// The token of an account, to be kept in the secret of this name.
    fn token(&self, account: &Value, secret: &str) -> Result<String, String>;
}

pub struct LegacyTokenController {
    pub api: Arc<dyn Api>,
    pub tokens: Arc<dyn LegacyTokens>,
    /// The certificate by which the server is known, PEM.
    pub ca: String,
}

pub(crate) const TYPE: &str = "kubernetes.io/service-account-token";
pub(crate) const ACCOUNT: &str = "kubernetes.io/service-account.name";
pub(crate) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// When something failed, it is tried again this much later.
const RETRY: Duration = Duration::from_secs(1);

impl LegacyTokenController {
    /// Works until the server stops. `changes` are of secrets of the type, and of accounts.
    pub async fn run(self, mut changes: impl Informer) {
        let mut failed: HashSet<(String, String)> = HashSet::new();
        loop {
            let change = if failed.is_empty() {
                changes.next().await
            } else {
                tokio::select! {
                    change = changes.next() => change,
                    () = tokio::time::sleep(RETRY) => {
                        for (namespace, name) in std::mem::take(&mut failed) {
                            self.reconcile(namespace, name, &mut failed).await;
                        }
                        continue;
                    }
                }
            };
            let seen = match change {
                None => return,
                // What is there is told again.
                Some(Change::Lost) => continue,
                Some(Change::Seen(seen)) => seen,
            };
            let namespace = seen.namespace.to_string();
            if seen.resource.gvr.resource == "secrets" {
                if !seen.gone {
                    self.reconcile(namespace, seen.name.to_string(), &mut failed).await;
                }
                continue;
            }
            // An account came or went: its secrets get their tokens, or go.
            let target = Target::cluster("", "v1", "secrets").in_namespace(&namespace);
            let secrets = self.api.list(&target).await.unwrap_or_default();
            let of_account = |secret: &&Value| {
                secret.str_at(&["type"]) == TYPE
                    && secret.str_at(&["metadata", "annotations", ACCOUNT]) == seen.name
            };
            for secret in secrets.iter().filter(of_account) {
                let name = secret.str_at(&["metadata", "name"]).to_owned();
                self.reconcile(namespace.clone(), name, &mut failed).await;
            }
        }
    }

    async fn reconcile(
        &self,
        namespace: String,
        name: String,
        failed: &mut HashSet<(String, String)>,
    ) {
        match self.settle(&namespace, &name).await {
            // Gone, or changed and therefore seen again.
            Ok(()) | Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => {}
            Err(error) => {
                tracing::warn!(namespace, name, "cannot reconcile the token secret yet: {error}");
                failed.insert((namespace, name));
            }
        }
    }

    async fn settle(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let target = Target::cluster("", "v1", "secrets").in_namespace(namespace).named(name);
        let mut secret = self.api.get(&target).await?;
        if secret.str_at(&["type"]) != TYPE {
            return Ok(());
        }
        let annotation = |key| secret.str_at(&["metadata", "annotations", key]);
        let account = Target::cluster("", "v1", "serviceaccounts").in_namespace(namespace);
        let account = self.api.get(&account.named(annotation(ACCOUNT))).await;
        let account = match account {
            Ok(found) => Some(found),
            Err(ApiError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        let uid = annotation(ACCOUNT_UID);
        let account =
            account.filter(|account| uid.is_empty() || uid == account.str_at(&["metadata", "uid"]));
        let Some(account) = account else {
            // Its account is gone, perhaps replaced by another of the same name.
            let own = secret.str_at(&["metadata", "uid"]);
            return self.api.delete(&target, &value!({"preconditions": {"uid": (own)}})).await;
        };
        if fill(&mut secret, &account, &self.ca, &*self.tokens)? {
            self.api.update(&target, &secret).await?;
        }
        Ok(())
    }
}

/// Puts into a secret what it lacks; answers whether it lacked anything.
fn fill(
    secret: &mut Value,
    account: &Value,
    ca: &str,
    tokens: &dyn LegacyTokens,
) -> Result<bool, ApiError> {
    let ca = encode(ca.as_bytes());
    let needs_ca = secret.str_at(&["data", "ca.crt"]) != ca;
    let needs = |key| secret.str_at(&["data", key]).is_empty();
    let (needs_namespace, needs_token) = (needs("namespace"), needs("token"));
    if !(needs_ca || needs_namespace || needs_token) {
        return Ok(false);
    }
    let metadata = |field| secret.str_at(&["metadata", field]).to_owned();
    let (namespace, name) = (metadata("namespace"), metadata("name"));
    if needs_ca {
        secret.set_at(&["data", "ca.crt"], ca);
    }
    if needs_namespace {
        secret.set_at(&["data", "namespace"], encode(namespace.as_bytes()));
    }
    if needs_token {
        let token = tokens.token(account, &name).map_err(ApiError::internal)?;
        secret.set_at(&["data", "token"], encode(token.as_bytes()));
    }
    for (key, field) in [(ACCOUNT, "name"), (ACCOUNT_UID, "uid")] {
        let text = account.str_at(&["metadata", field]);
        secret.set_at(&["metadata", "annotations", key], text);
    }
    Ok(true)
}

fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl LegacyTokens for Fixed {
        fn token(&self, account: &Value, secret: &str) -> Result<String, String> {
            Ok(format!("{}-{secret}", account.str_at(&["metadata", "name"])))
        }
    }

    #[test]
    fn a_secret_gets_what_it_lacks_once() {
        let account = value!({"metadata": {"name": "robot", "uid": "u"}});
        let mut secret = value!({
            "type": (TYPE),
            "metadata": {"name": "s", "namespace": "n"},
            "data": {"mine": "eA=="},
        });
        assert_eq!(fill(&mut secret, &account, "CA", &Fixed).ok(), Some(true));
        let data = |key| secret.str_at(&["data", key]).to_owned();
        assert_eq!(data("token"), encode(b"robot-s"));
        assert_eq!((data("ca.crt"), data("namespace")), (encode(b"CA"), encode(b"n")));
        assert_eq!(data("mine"), "eA==");
        assert_eq!(secret.str_at(&["metadata", "annotations", ACCOUNT_UID]), "u");
        assert_eq!(fill(&mut secret, &account, "CA", &Fixed).ok(), Some(false));
    }
}
