//! Service account tokens: the key that signs them, the objects they are bound to, and the documents
//! by which others can check them.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use auth::authn::{
    jwt::{PublicKey, SigningKey},
    service_account::{self, Bound, ServiceAccounts},
};
use controllers::{Api as _, Target};
use http::{HeaderValue, Method, Request, Response, header::CACHE_CONTROL, header::CONTENT_TYPE};
use hyper::body::Incoming;
use meta::{ApiError, Str, Value, json};
use registry::{Kind, Pinned, Storage};
use serve::{Body, Claims, Context, Delegate, Serving, pki::Pki};
use tokio::sync::Semaphore;

use crate::{
    cache_informer::metadata,
    in_process::{Api, tree},
    options::ServiceAccountOptions,
};

/// Everything about tokens that is decided at the start.
pub(crate) struct Tokens {
    key: SigningKey,
    issuer: Str,
    keys: Vec<PublicKey>,
    audiences: Vec<Str>,
    expiration_seconds_max: i64,
    extends_expiration: bool,
}

impl Tokens {
    pub(crate) fn load(options: &ServiceAccountOptions, pki: &Pki) -> Result<Self, String> {
        let read = |flag: &str, file: &Path| {
            std::fs::read(file).map_err(|error| format!("{flag} {}: {error}", file.display()))
        };
        let signing = options.signing_key_file.as_ref().unwrap_or(&pki.service_account_key);
        let flag = "--service-account-signing-key-file";
        let key = SigningKey::from_pem(&read(flag, signing)?)
            .map_err(|why| format!("{flag} {}: {why}", signing.display()))?;
        let mut keys = Vec::new();
        for file in &options.key_files {
            let flag = "--service-account-key-file";
            let found = PublicKey::all_from_pem(&read(flag, file)?);
            keys.extend(found.map_err(|why| format!("{flag} {}: {why}", file.display()))?);
        }
        if keys.is_empty() {
            keys.push(key.public().clone());
        }
        Ok(Self {
            key,
            issuer: options.issuers.first().cloned().unwrap_or_default(),
            keys,
            audiences: options.audiences.clone(),
            expiration_seconds_max: options.max_expiration.as_secs().cast_signed(),
            extends_expiration: options.extend_expiration,
        })
    }

    pub(crate) fn audiences(&self) -> &[Str] {
        &self.audiences
    }

    pub(crate) fn authenticator(
        &self,
        options: &ServiceAccountOptions,
        objects: Arc<TokenObjects>,
    ) -> ServiceAccounts {
        let options = service_account::Options {
            issuers: options.issuers.clone(),
            keys: self.keys.clone(),
            audiences: self.audiences.clone(),
            lookup: options.lookup,
        };
        ServiceAccounts::new(options, objects)
    }
}

impl builtin::Tokens for Tokens {
    fn audiences(&self) -> &[Str] {
        &self.audiences
    }

    fn expiration_seconds_max(&self) -> i64 {
        self.expiration_seconds_max
    }

    fn extends_expiration(&self) -> bool {
        self.extends_expiration
    }

    fn sign(&self, mut claims: Value) -> Result<String, String> {
        claims.set_at(&["iss"], self.issuer.clone());
        self.key.token(&claims)
    }
}

impl controllers::TokenGenerator for Tokens {
    fn token(&self, account: &Value, secret: &str) -> Result<String, String> {
        self.key.token(&service_account::legacy_claims(account, secret))
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
    api: Arc<Api>,
    /// Notes of uses that are being written.
    notes: Arc<Semaphore>,
}

/// So many notes of uses are written at a time; others are left to the next use.
const NOTES_MAX: usize = 4;

impl TokenObjects {
    pub(crate) fn connect(&self, kinds: &[Arc<Kind>], api: Arc<Api>) {
        let storage = |name: &str| {
            let mut core = kinds.iter().filter(|kind| kind.gvk().group.is_empty());
            core.find(|kind| kind.gvk().kind == name)?.storage.clone()
        };
        let connected = Connected {
            accounts: storage("ServiceAccount"),
            pods: storage("Pod"),
            secrets: storage("Secret"),
            nodes: storage("Node"),
            api,
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
    ) -> Pinned<'a, Option<Value>> {
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
        let (api, mut secret) = (connected.api.clone(), secret.clone());
        tokio::spawn(async move {
            let text = |field| secret.str_at(&["metadata", field]).to_owned();
            let target = Target::cluster("", "v1", "secrets").in_namespace(&text("namespace"));
            let target = target.named(&text("name"));
            secret.set_at(&["metadata", "labels", LAST_USED], today);
            // A secret that changed meanwhile is noted when it is used the next time.
            match api.update(&target, &secret).await {
                Ok(_) | Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => {}
                Err(error) => tracing::warn!("cannot note the use of a token: {error}"),
            }
            drop(permit);
        });
    }
}

/// `/.well-known/openid-configuration` and `/openid/v1/jwks`: how others check tokens.
#[derive(Default)]
pub(crate) struct OpenId(OnceLock<Discovery>);

struct Discovery {
    configuration: String,
    keys: String,
}

const CONFIGURATION: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/openid/v1/jwks";

impl OpenId {
    /// `address` is where others reach this server. Compat: an issuer that is no https URL can't be
    /// discovered, and is not.
    pub(crate) fn publish(&self, tokens: &Tokens, jwks_uri: &str, address: &str) {
        let issuer = &tokens.issuer;
        if !issuer.starts_with("https://") || issuer.contains(['?', '#']) {
            tracing::warn!(%issuer, "the issuer of tokens is no plain https URL: its keys are not published");
            return;
        }
        let quoted = |text: &str| json::to_string(&Value::from(text));
        let uri = match jwks_uri {
            "" => format!("https://{address}{KEYS}"),
            given => given.to_owned(),
        };
        let mut algorithms: Vec<String> =
            tokens.keys.iter().map(|key| quoted(key.algorithm())).collect();
        algorithms.sort();
        algorithms.dedup();
        let configuration = format!(
            r#"{{"issuer":{},"jwks_uri":{},"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":[{}]}}"#,
            quoted(issuer),
            quoted(&uri),
            algorithms.join(",")
        );
        let keys: Vec<String> = tokens.keys.iter().map(PublicKey::to_jwk).collect();
        let keys = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
        let _ = self.0.set(Discovery { configuration, keys });
    }

    fn answer(&self, path: &str) -> Option<Response<Body>> {
        let discovery = self.0.get()?;
        let (content_type, body) = match path.strip_suffix('/').unwrap_or(path) {
            CONFIGURATION => ("application/json", &discovery.configuration),
            KEYS => ("application/jwk-set+json", &discovery.keys),
            _ => return None,
        };
        let mut response = Response::new(Body::full(body.clone()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
        Some(response)
    }
}

impl Delegate for OpenId {
    fn name(&self) -> &'static str {
        "openid"
    }

    fn serve<'a>(&'a self, cx: &'a mut Context, request: Request<Incoming>) -> Serving<'a> {
        Box::pin(async move {
            let answer = self.answer(&cx.info.path).ok_or(ApiError::UnknownPath)?;
            if *request.method() != Method::GET {
                return Err(ApiError::MethodNotAllowed);
            }
            Ok(answer)
        })
    }
}

impl OpenId {
    pub(crate) fn claims() -> Claims {
        Claims { paths: Self::PATHS.to_vec(), ..Claims::default() }
    }

    pub(crate) const PATHS: [&str; 2] = [CONFIGURATION, KEYS];
}
