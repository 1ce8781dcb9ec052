//! kube-controller-manager's serviceaccount-token-controller: a Secret of type
//! `kubernetes.io/service-account-token` gets the long-lived token of the service account that it
//! names, and is deleted with the account.

use std::{collections::HashSet, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use meta::{ApiError, Value, value};

use crate::{ApiClient, Informer, InformerEvent, ResourceRef};

/// Signs tokens.
pub trait TokenGenerator: Send + Sync + 'static {
    /// A token of the service account, bound to the secret of this name.
    fn token(&self, account: &Value, secret: &str) -> Result<String, String>;
}

pub struct TokensController {
    pub api: Arc<dyn ApiClient>,
    pub tokens: Arc<dyn TokenGenerator>,
    /// The CA's certificate, PEM.
    pub ca: String,
}

pub(crate) const TYPE: &str = "kubernetes.io/service-account-token";
pub(crate) const ACCOUNT: &str = "kubernetes.io/service-account.name";
pub(crate) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// Delay before a failed secret is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl TokensController {
    /// Runs until the server stops. `events` are events of secrets of the type and of accounts.
    pub async fn run(self, mut events: impl Informer) {
        let mut failed: HashSet<(String, String)> = HashSet::new();
        loop {
            let change = if failed.is_empty() {
                events.next().await
            } else {
                tokio::select! {
                    change = events.next() => change,
                    () = tokio::time::sleep(RETRY_DELAY) => {
                        for (namespace, name) in std::mem::take(&mut failed) {
                            self.sync_or_retry(namespace, name, &mut failed).await;
                        }
                        continue;
                    }
                }
            };
            let event = match change {
                None => return,
                // Every object is reported again.
                Some(InformerEvent::Relisted) => continue,
                Some(InformerEvent::Object(event)) => event,
            };
            let namespace = event.namespace.to_string();
            if event.resource.gvr.resource == "secrets" {
                if !event.deleted {
                    self.sync_or_retry(namespace, event.name.to_string(), &mut failed).await;
                }
                continue;
            }
            // A service account was added or deleted: its secrets get tokens or are deleted.
            let target = ResourceRef::cluster("", "v1", "secrets").in_namespace(&namespace);
            let secrets = self.api.list(&target).await.unwrap_or_default();
            let of_account = |secret: &&Value| {
                secret.str_at(&["type"]) == TYPE
                    && secret.str_at(&["metadata", "annotations", ACCOUNT]) == event.name
            };
            for secret in secrets.iter().filter(of_account) {
                let name = secret.str_at(&["metadata", "name"]).to_owned();
                self.sync_or_retry(namespace.clone(), name, &mut failed).await;
            }
        }
    }

    async fn sync_or_retry(
        &self,
        namespace: String,
        name: String,
        failed: &mut HashSet<(String, String)>,
    ) {
        match self.sync_secret(&namespace, &name).await {
            // Deleted, or changed, which leads to another event.
            Ok(()) | Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => {}
            Err(error) => {
                tracing::warn!(namespace, name, "cannot reconcile the token secret yet: {error}");
                failed.insert((namespace, name));
            }
        }
    }

    async fn sync_secret(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let target = ResourceRef::cluster("", "v1", "secrets").in_namespace(namespace).named(name);
        let mut secret = self.api.get(&target).await?;
        if secret.str_at(&["type"]) != TYPE {
            return Ok(());
        }
        let annotation = |key| secret.str_at(&["metadata", "annotations", key]);
        let account = ResourceRef::cluster("", "v1", "serviceaccounts").in_namespace(namespace);
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
            // The account was deleted, or replaced by another of the same name.
            let own = secret.str_at(&["metadata", "uid"]);
            return self.api.delete(&target, &value!({"preconditions": {"uid": (own)}})).await;
        };
        if fill_token_data(&mut secret, &account, &self.ca, &*self.tokens)? {
            self.api.update(&target, &secret).await?;
        }
        Ok(())
    }
}

/// Adds missing data to a secret; returns whether anything was missing.
fn fill_token_data(
    secret: &mut Value,
    account: &Value,
    ca: &str,
    tokens: &dyn TokenGenerator,
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

    struct FakeGenerator;

    impl TokenGenerator for FakeGenerator {
        fn token(&self, account: &Value, secret: &str) -> Result<String, String> {
            Ok(format!("{}-{secret}", account.str_at(&["metadata", "name"])))
        }
    }

    #[test]
    fn missing_data_is_added_once() {
        let account = value!({"metadata": {"name": "robot", "uid": "u"}});
        let mut secret = value!({
            "type": (TYPE),
            "metadata": {"name": "s", "namespace": "n"},
            "data": {"mine": "eA=="},
        });
        assert_eq!(fill_token_data(&mut secret, &account, "CA", &FakeGenerator).ok(), Some(true));
        let data = |key| secret.str_at(&["data", key]).to_owned();
        assert_eq!(data("token"), encode(b"robot-s"));
        assert_eq!((data("ca.crt"), data("namespace")), (encode(b"CA"), encode(b"n")));
        assert_eq!(data("mine"), "eA==");
        assert_eq!(secret.str_at(&["metadata", "annotations", ACCOUNT_UID]), "u");
        assert_eq!(fill_token_data(&mut secret, &account, "CA", &FakeGenerator).ok(), Some(false));
    }
}
