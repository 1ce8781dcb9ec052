//! One plugin of the configuration: which seed is written with, until when, and which seeds have been
//! decrypted for reading.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use meta::field::quote;
use parking_lot::Mutex;
use prost::Message as _;
use store::BoxFuture;
use store::encrypt::{KmsConfig, Opened, Remote, RemoteError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::client::{Client, Encrypted, Status};
use crate::envelope::{Dek, EncryptedObject, SEED, SEED_BYTES, hash, validate_key_id};

/// Compat: how long a seed may be written with after the plugin was last seen well with its key, so
/// that a rotation is over after a time that can be waited for.
const WRITE_TTL: Duration = Duration::from_mins(3);
const PROBE_WELL: Duration = Duration::from_mins(1);
const PROBE_ILL: Duration = Duration::from_secs(10);
/// How old an answer about health may be before the plugin is asked again.
const HEALTH_WELL: Duration = Duration::from_secs(20);
const HEALTH_ILL: Duration = Duration::from_secs(3);
/// Seeds that are kept decrypted: one for each key and start of a server whose values are still
/// there. When there are more, all are forgotten and asked for again.
const SEEDS_MAX: usize = 10_000;

/// Makes a provider. It looks after itself, on the current runtime, until it is dropped.
pub fn connect(config: &KmsConfig) -> Result<Arc<dyn Remote>, String> {
    let client = Client::new(&config.endpoint, config.timeout).map_err(|error| {
        format!("could not configure KMSv2-Plugin's probe {}, error: {error}", quote(&config.name))
    })?;
    let provider = Arc::new(Provider {
        name: config.name.clone(),
        client,
        writing: ArcSwapOption::empty(),
        seeds: Mutex::default(),
        health: Mutex::new(None),
        version: Mutex::default(),
        asked: Arc::default(),
    });
    tokio::spawn(look_after(Arc::downgrade(&provider), Arc::clone(&provider.asked)));
    Ok(provider)
}

struct Provider {
    name: String,
    client: Client,
    /// `None` until the plugin has been seen well.
    writing: ArcSwapOption<Writing>,
    seeds: Mutex<HashMap<Vec<u8>, Arc<Dek>>>,
    /// What the last look has found, and when it was.
    health: Mutex<Option<(Instant, Result<(), String>)>>,
    /// Of the API, as the plugin first said it.
    version: Mutex<String>,
    /// Somebody wants to know how it is now.
    asked: Arc<Notify>,
}

/// A seed and the plugin's word for it.
struct Writing {
    seed: Arc<Dek>,
    encrypted: Encrypted,
    until: Instant,
}

/// Keeps the seed fresh and follows the plugin's key.
async fn look_after(provider: Weak<Provider>, asked: Arc<Notify>) {
    loop {
        let pause = match provider.upgrade() {
            Some(provider) if provider.look().await.is_ok() => PROBE_WELL,
            Some(_) => PROBE_ILL,
            None => return,
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = asked.notified() => {}
        }
    }
}

impl Provider {
    async fn look(&self) -> Result<(), String> {
        let found = match self.client.status().await {
            Ok(status) => self.judge(&status).await,
            Err(error) => Err(format!(
                "failed to perform status section of the healthz check for KMS Provider {}, error: \
                 {error}",
                self.name
            )),
        };
        if let Err(error) = &found {
            tracing::warn!(name = self.name, %error, "a KMS plugin is not well");
        }
        *self.health.lock() = Some((Instant::now(), found.clone()));
        found
    }

    async fn judge(&self, status: &Status) -> Result<(), String> {
        let mut errors = Vec::new();
        if status.healthz != "ok" {
            errors.push(format!("got unexpected healthz status: {}", status.healthz));
        }
        if matches!(status.version.as_str(), "v2" | "v2beta1") {
            let mut first = self.version.lock();
            if first.is_empty() {
                first.clone_from(&status.version);
            }
            if *first != status.version {
                errors.push(format!(
                    "KMSv2 API version should not change after the initial status response version \
                     {first}, got {}",
                    status.version
                ));
            }
        } else {
            errors.push(format!("expected KMSv2 API version v2, got {}", status.version));
        }
        match validate_key_id(&status.key_id) {
            Ok(()) => errors.extend(self.rotate(&status.key_id).await.err()),
            Err(why) => {
                errors.push(format!(
                    "got invalid KMSv2 KeyID hash {}: {why}",
                    quote(&hash(&status.key_id))
                ));
            }
        }
        match errors.len() {
            0 => return Ok(()),
            1 => {}
            _ => errors = vec![format!("[{}]", errors.join(", "))],
        }
        Err(format!("kmsv2 Provider {} is not healthy, error: {}", self.name, errors[0]))
    }

    /// Makes sure that what is written has a seed of the plugin's current key. If that can't be done,
    /// the old one goes on for as long as it may.
    async fn rotate(&self, key_id: &str) -> Result<(), String> {
        // Counted from before the call: the time is an upper bound.
        let until = Instant::now() + WRITE_TTL;
        if let Some(now) = &*self.writing.load()
            && now.encrypted.key_id == key_id
        {
            let (seed, encrypted) = (Arc::clone(&now.seed), now.encrypted.clone());
            self.writing.store(Some(Arc::new(Writing { seed, encrypted, until })));
            return Ok(());
        }
        let mut secret = [0; SEED_BYTES];
        getrandom::fill(&mut secret).map_err(|error| error.to_string())?;
        let failed = |why: &str, other: &str| {
            format!(
                "failed to rotate DEK, error: {why}, statusKeyIDHash={}, encryptKeyIDHash={}",
                quote(&hash(key_id)),
                quote(&hash(other))
            )
        };
        let encrypted = self.client.encrypt(&secret).await;
        let encrypted =
            encrypted.map_err(|why| failed(&format!("failed to encrypt DEK, error: {why}"), ""))?;
        let object = EncryptedObject::new(&encrypted, vec![0]);
        object.validate().map_err(|why| failed(&why, &encrypted.key_id))?;
        if encrypted.key_id != key_id {
            return Err(failed("the key changes just now", &encrypted.key_id));
        }
        let seed = Arc::new(Dek::new(SEED, &secret)?);
        self.remember(object.seed_id(), &seed);
        self.writing.store(Some(Arc::new(Writing { seed, encrypted, until })));
        tracing::info!(name = self.name, key = hash(key_id), "a KMS plugin's key is written with");
        Ok(())
    }

    fn remember(&self, id: Vec<u8>, seed: &Arc<Dek>) {
        let mut seeds = self.seeds.lock();
        if seeds.len() >= SEEDS_MAX {
            seeds.clear();
        }
        seeds.insert(id, Arc::clone(seed));
    }

    async fn seed_of(&self, object: &EncryptedObject) -> Result<Arc<Dek>, RemoteError> {
        let id = object.seed_id();
        if let Some(seed) = self.seeds.lock().get(&id) {
            return Ok(Arc::clone(seed));
        }
        let secret = self.client.decrypt(object.encrypted()).await.map_err(|why| {
            RemoteError::Unavailable(format!("failed to decrypt DEK, error: {why}"))
        })?;
        let seed = Dek::new(object.source_type, &secret).map_err(RemoteError::Unreadable)?;
        let seed = Arc::new(seed);
        self.remember(id, &seed);
        Ok(seed)
    }
}

impl Remote for Provider {
    fn seal(&self, value: &[u8], context: &[u8]) -> Result<Vec<u8>, String> {
        let writing = self.writing.load();
        let writing = writing.as_ref().ok_or_else(|| match &*self.health.lock() {
            Some((_, Err(why))) => why.clone(),
            _ => format!("KMS Provider {} has not answered yet", self.name),
        })?;
        let late = Instant::now().saturating_duration_since(writing.until);
        if !late.is_zero() {
            return Err(format!(
                "encryptedDEKSource with keyID hash {} expired {} seconds ago: KMS Provider {} has \
                 not been well since",
                quote(&hash(&writing.encrypted.key_id)),
                late.as_secs(),
                self.name
            ));
        }
        let data = writing.seed.seal(value, context)?;
        Ok(EncryptedObject::new(&writing.encrypted, data).encode_to_vec())
    }

    fn open<'a>(
        &'a self,
        sealed: &'a [u8],
        context: &'a [u8],
    ) -> BoxFuture<'a, Result<Opened, RemoteError>> {
        Box::pin(async move {
            let object = EncryptedObject::read(sealed).map_err(RemoteError::Unreadable)?;
            let seed = self.seed_of(&object).await?;
            let value = seed.open(&object.data, context).map_err(RemoteError::Unreadable)?;
            let writing = self.writing.load();
            let stale = object.source_type != SEED
                || writing.as_ref().is_some_and(|now| now.encrypted.key_id != object.key_id);
            Ok(Opened { value: value.into(), stale })
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.look())
    }

    fn health(&self) -> Result<(), String> {
        let health = self.health.lock();
        let Some((at, found)) = &*health else {
            return Err(format!("KMS Provider {} has not answered yet", self.name));
        };
        let fresh = if found.is_ok() { HEALTH_WELL } else { HEALTH_ILL };
        if at.elapsed() > fresh {
            self.asked.notify_one();
        }
        found.clone()
    }
}
