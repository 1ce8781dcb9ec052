//! Service account tokens: what signs them, and the objects they are bound to.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use auth::authn::{
    jwt::{PublicKey, SigningKey},
    service_account::{self, Bound, ServiceAccounts},
};
use endpoints::{LoopbackClient, ResourceRef};
use externaljwt::{ExternalSigner, KeyCache};
use meta::{ApiError, Str, Value};
use prometheus::Registry;
use registry::{BoxFuture, Kind, Storage};
use serve::{Pem, pki::Pki};
use tokio::sync::Semaphore;

use crate::{
    cache_informer::metadata, flags::format_duration, in_process::tree,
    options::ServiceAccountOptions,
};

/// Everything about tokens that is decided at the start.
pub(crate) struct ServiceAccountTokens {
    signer: Signer,
    issuer: Str,
    audiences: Vec<Str>,
    /// 0: as requested.
    expiration_seconds_max: i64,
    /// None: `--service-account-extend-token-expiration` is off.
    extended_expiration_seconds: Option<i64>,
}

/// Which program has the private key.
enum Signer {
    Local { key: Box<SigningKey>, keys: Vec<PublicKey> },
    External(ExternalSigner),
}

/// What the volume of a pod asks for, and how long its tokens live if they are not renewed.
const POD_EXPIRATION: Duration = Duration::from_secs(3607);
const EXTENDED_EXPIRATION: Duration = Duration::from_hours(365 * 24);

impl ServiceAccountTokens {
    /// Reads the key files, or waits for the external signer.
    pub(crate) async fn load(
        options: &ServiceAccountOptions,
        pki: &Pki,
        registry: &Registry,
    ) -> Result<Self, String> {
        let mut max_expiration = options.max_expiration;
        let mut extended = EXTENDED_EXPIRATION;
        let signer = match &options.signing_endpoint {
            None => Signer::local(options, pki)?,
            Some(endpoint) => {
                let metrics = externaljwt::Metrics::register(registry);
                let metrics = metrics.map_err(|error| error.to_string())?;
                let signer = ExternalSigner::connect(endpoint, metrics).await?;
                max_expiration = bounded(max_expiration, signer.max_expiration())?;
                extended = extended.min(signer.max_expiration());
                Signer::External(signer)
            }
        };
        if options.extend_expiration && !max_expiration.is_zero() {
            warn_about_extension(max_expiration, options.signing_endpoint.is_some());
        }
        let seconds = |duration: Duration| duration.as_secs().cast_signed();
        Ok(Self {
            signer,
            issuer: options.issuers.first().cloned().unwrap_or_default(),
            audiences: options.audiences.clone(),
            expiration_seconds_max: seconds(max_expiration),
            extended_expiration_seconds: options.extend_expiration.then(|| seconds(extended)),
        })
    }

    pub(crate) fn audiences(&self) -> &[Str] {
        &self.audiences
    }

    pub(crate) fn issuer(&self) -> &Str {
        &self.issuer
    }

    pub(crate) fn authenticator(
        &self,
        options: &ServiceAccountOptions,
        objects: Arc<TokenObjects>,
        metrics: &auth::Metrics,
    ) -> ServiceAccounts {
        let options = service_account::Options {
            issuers: options.issuers.clone(),
            keys: match &self.signer {
                Signer::Local { keys, .. } => Arc::new(keys.clone()),
                Signer::External(signer) => signer.keys().clone(),
            },
            audiences: self.audiences.clone(),
            lookup: options.lookup,
            metrics: metrics.clone(),
        };
        ServiceAccounts::new(options, objects)
    }

    /// The keys of an external signer, which change.
    pub(crate) fn external_keys(&self) -> Option<&Arc<KeyCache>> {
        match &self.signer {
            Signer::Local { .. } => None,
            Signer::External(signer) => Some(signer.keys()),
        }
    }

    /// The keys that are published for others.
    pub(crate) fn published_keys(&self) -> Vec<PublicKey> {
        match &self.signer {
            Signer::Local { keys, .. } => keys.clone(),
            Signer::External(signer) => {
                let keys = signer.keys().keys();
                let published = keys.iter().filter(|key| !key.excluded_from_discovery);
                published.map(|key| key.key.clone()).collect()
            }
        }
    }
}

impl Signer {
    fn local(options: &ServiceAccountOptions, pki: &Pki) -> Result<Self, String> {
        let read =
            |flag: &str, pem: &Pem| pem.read().map_err(|error| format!("{flag} {pem}: {error}"));
        let signing = options.signing_key_file.clone().map(Pem::from);
        let signing = signing.unwrap_or_else(|| pki.service_account_key.clone());
        let flag = "--service-account-signing-key-file";
        let key = SigningKey::from_pem(&read(flag, &signing)?)
            .map_err(|why| format!("{flag} {signing}: {why}"))?;
        let mut keys = Vec::new();
        for file in &options.key_files {
            let flag = "--service-account-key-file";
            let file = Pem::from(file.clone());
            let found = PublicKey::all_from_pem(&read(flag, &file)?);
            keys.extend(found.map_err(|why| format!("{flag} {file}: {why}"))?);
        }
        if keys.is_empty() {
            keys.push(key.public().clone());
        }
        Ok(Self::Local { key: Box::new(key), keys })
    }
}

/// The longest life of a token: as the flag says, within what the external signer signs.
fn bounded(wanted: Duration, external: Duration) -> Result<Duration, String> {
    if wanted > external {
        return Err(format!(
            "service-account-max-token-expiration cannot be set longer than the token expiration \
             supported by service-account-signing-endpoint: {} > {}",
            go_duration(wanted),
            go_duration(external)
        ));
    }
    Ok(if wanted.is_zero() { external } else { wanted })
}

/// Compat: kube-apiserver's warnings about bounds that cut the extension of pods' tokens short.
fn warn_about_extension(max: Duration, external: bool) {
    let (pod, extended) = (POD_EXPIRATION.as_secs(), EXTENDED_EXPIRATION.as_secs());
    let now = go_duration(max);
    if max < POD_EXPIRATION {
        let bound = if external {
            "token lifetime supported by external-jwt-signer must be"
        } else {
            "service-account-max-token-expiration must be set"
        };
        tracing::warn!(
            "service-account-extend-token-expiration is true, in order to correctly trigger safe \
             transition logic, {bound} longer than {pod} seconds (currently {now})"
        );
    }
    if max < EXTENDED_EXPIRATION && external {
        tracing::warn!(
            "service-account-extend-token-expiration is true, tokens validity will be caped at the \
             smaller of {extended} seconds and maximum token lifetime supported by \
             external-jwt-signer ({now})"
        );
    } else if max < EXTENDED_EXPIRATION {
        tracing::warn!(
            "service-account-extend-token-expiration is true, enabling tokens valid up to {extended} \
             seconds, which is longer than service-account-max-token-expiration set to {now}"
        );
    }
}

fn go_duration(duration: Duration) -> String {
    format_duration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

impl builtin::TokenIssuer for ServiceAccountTokens {
    fn audiences(&self) -> &[Str] {
        &self.audiences
    }

    fn expiration_seconds_max(&self) -> i64 {
        self.expiration_seconds_max
    }

    fn extended_expiration_seconds(&self) -> Option<i64> {
        self.extended_expiration_seconds
    }

    fn sign(&self, mut claims: Value) -> BoxFuture<'_, Result<String, String>> {
        claims.set_at(&["iss"], self.issuer.clone());
        Box::pin(async move {
            match &self.signer {
                Signer::Local { key, .. } => key.token(&claims),
                Signer::External(signer) => signer.token(&claims).await,
            }
        })
    }
}

impl controllers::TokenGenerator for ServiceAccountTokens {
    fn token(&self, account: &Value, secret: &str) -> Result<String, String> {
        match &self.signer {
            Signer::Local { key, .. } => {
                key.token(&service_account::legacy_claims(account, secret))
            }
            // The controller does not run then, as kube-controller-manager's does not without a key.
            Signer::External(_) => Err("the external signer signs no tokens of Secrets".to_owned()),
        }
    }
}

/// The objects that tokens are bound to, once there are any.
#[derive(Default)]
pub(crate) struct TokenObjects(OnceLock<Connected>);

struct Connected {
    accounts: Option<Arc<Storage>>,
    pods: Option<Arc<Storage>>,
    secrets: Option<Arc<Storage>>,
    nodes: Option<Arc<Storage>>,
    local: LoopbackClient,
    /// Notes of uses that are being written.
    notes: Arc<Semaphore>,
}

/// So many notes of uses are written at a time; others are left to the next use.
const NOTES_MAX: usize = 4;

impl TokenObjects {
    pub(crate) fn connect(&self, kinds: &[Arc<Kind>], local: LoopbackClient) {
        let storage = |name: &str| {
            let mut core = kinds.iter().filter(|kind| kind.gvk().group.is_empty());
            core.find(|kind| kind.gvk().kind == name)?.storage.clone()
        };
        let connected = Connected {
            accounts: storage("ServiceAccount"),
            pods: storage("Pod"),
            secrets: storage("Secret"),
            nodes: storage("Node"),
            local,
            notes: Arc::new(Semaphore::new(NOTES_MAX)),
        };
        let _ = self.0.set(connected);
    }
}

impl service_account::Objects for TokenObjects {
    fn find<'a>(
        &'a self,
        kind: Bound,
        namespace: &'a str,
        name: &'a str,
        fresh: bool,
    ) -> BoxFuture<'a, Option<Value>> {
        Box::pin(async move {
            let connected = self.0.get()?;
            let storage = match kind {
                Bound::ServiceAccount => &connected.accounts,
                Bound::Pod => &connected.pods,
                Bound::Secret => &connected.secrets,
                Bound::Node => &connected.nodes,
            };
            let entry = storage.as_ref()?.find(namespace, name, fresh).await.ok()??;
            if kind == Bound::Secret {
                return tree(&entry).ok();
            }
            let mut object = Value::object();
            object.set_at(&["metadata"], metadata(&entry));
            Some(object)
        })
    }

    fn account_names_secret<'a>(
        &'a self,
        namespace: &'a str,
        account: &'a str,
        secret: &'a str,
    ) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let accounts = self.0.get().and_then(|connected| connected.accounts.as_ref());
            let Some(accounts) = accounts else { return false };
            let Ok(Some(entry)) = accounts.find(namespace, account, false).await else {
                return false;
            };
            let account = tree(&entry).unwrap_or_default();
            account.items_at(&["secrets"]).iter().any(|named| named.str_at(&["name"]) == secret)
        })
    }

    /// Compat: a label says on which day a legacy token was last used.
    fn note_use(&self, secret: &Value) {
        const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
        let now = meta::time::now();
        let today = now.split('T').next().unwrap_or_default().to_owned();
        if secret.str_at(&["metadata", "labels", LAST_USED]) == today {
            return;
        }
        let Some(connected) = self.0.get() else { return };
        let Ok(permit) = connected.notes.clone().try_acquire_owned() else { return };
        let (local, mut secret) = (connected.local.clone(), secret.clone());
        tokio::spawn(async move {
            let text = |field| secret.str_at(&["metadata", field]).to_owned();
            let (namespace, name) = (text("namespace"), text("name"));
            let target = ResourceRef {
                version: "v1",
                resource: "secrets",
                namespace: &namespace,
                name: &name,
                ..ResourceRef::default()
            };
            secret.set_at(&["metadata", "labels", LAST_USED], today);
            // A secret that changed meanwhile is noted when it is used the next time.
            match local.update(&target, &secret).await {
                Ok(_) | Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => {}
                Err(error) => tracing::warn!("cannot note the use of a token: {error}"),
            }
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_external_signer_bounds_the_life_of_tokens() {
        let hours = Duration::from_hours;
        assert_eq!(bounded(Duration::ZERO, hours(5)), Ok(hours(5)));
        assert_eq!(bounded(hours(2), hours(5)), Ok(hours(2)));
        let expected = "service-account-max-token-expiration cannot be set longer than the token \
                        expiration supported by service-account-signing-endpoint: 6h0m0s > 5h0m0s";
        assert_eq!(bounded(hours(6), hours(5)), Err(expected.to_owned()));
    }
}
