//! One plugin of the configuration: the seed that encrypts writes, its expiry, and the decrypted
//! seeds for reads.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use background::Tasks;
use meta::field::quote;
use parking_lot::Mutex;
use prost::Message as _;
use store::BoxFuture;
use store::encrypt::{KmsConfig, Opened, RemoteError, RemoteProvider};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::client::{Client, Encrypted, Status};
use crate::envelope::{
    Dek, EncryptedObject, SEED_BYTES, SOURCE_TYPE_SEED, key_id_hash, validate_key_id,
};
use crate::metrics::{self, Transformation};

/// Compat: how long a seed may encrypt writes after the plugin was last healthy with its key, so
/// that the time until a key rotation is complete is bounded.
const WRITE_TTL: Duration = Duration::from_mins(3);
const PROBE_INTERVAL_HEALTHY: Duration = Duration::from_mins(1);
const PROBE_INTERVAL_UNHEALTHY: Duration = Duration::from_secs(10);
/// How old a health result may be before it triggers another probe.
const HEALTH_TTL_HEALTHY: Duration = Duration::from_secs(20);
const HEALTH_TTL_UNHEALTHY: Duration = Duration::from_secs(3);
/// Decrypted seeds in the cache: one for each key and server start whose values still exist. When
/// the limit is reached the cache is cleared, and seeds are decrypted again on demand.
const SEEDS_MAX: usize = 10_000;

/// Creates a provider. It probes the plugin in a background task on the current runtime until it is
/// dropped.
pub fn connect(config: &KmsConfig, tasks: &Tasks) -> Result<Arc<dyn RemoteProvider>, String> {
    let client = Client::new(&config.name, &config.endpoint, config.timeout).map_err(|error| {
        format!("could not configure KMSv2-Plugin's probe {}, error: {error}", quote(&config.name))
    })?;
    let provider = Arc::new(Provider {
        name: config.name.clone(),
        client,
        write_seed: ArcSwapOption::empty(),
        seeds: Mutex::default(),
        health: Mutex::new(None),
        version: Mutex::default(),
        probe_requested: Arc::default(),
    });
    let (probed, requested) = (Arc::downgrade(&provider), Arc::clone(&provider.probe_requested));
    tasks.restarting("kms-plugin-probe", move || probe_loop(probed.clone(), requested.clone()));
    Ok(provider)
}

struct Provider {
    name: String,
    client: Client,
    /// `None` until the plugin has been healthy once.
    write_seed: ArcSwapOption<WriteSeed>,
    seeds: Mutex<HashMap<Vec<u8>, Arc<Dek>>>,
    /// The result of the last probe, and its time.
    health: Mutex<Option<(Instant, Result<(), String>)>>,
    /// The API version of the plugin's first response.
    version: Mutex<String>,
    /// Triggers a probe before its time.
    probe_requested: Arc<Notify>,
}

/// A seed that encrypts writes, and its encrypted form.
struct WriteSeed {
    seed: Arc<Dek>,
    encrypted: Encrypted,
    until: Instant,
}

/// Extends the expiry of the seed and follows rotations of the plugin's key.
async fn probe_loop(provider: Weak<Provider>, probe_requested: Arc<Notify>) {
    loop {
        let pause = match provider.upgrade() {
            Some(provider) if provider.check_health().await.is_ok() => PROBE_INTERVAL_HEALTHY,
            Some(_) => PROBE_INTERVAL_UNHEALTHY,
            None => return,
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = probe_requested.notified() => {}
        }
    }
}

impl Provider {
    async fn check_health(&self) -> Result<(), String> {
        let found = match self.client.status().await {
            Ok(status) => self.evaluate_status(&status).await,
            Err(error) => Err(format!(
                "failed to perform status section of the healthz check for KMS Provider {}, error: \
                 {error}",
                self.name
            )),
        };
        if let Err(error) = &found {
            tracing::warn!(name = self.name, %error, "a KMS plugin is not healthy");
        }
        *self.health.lock() = Some((Instant::now(), found.clone()));
        found
    }

    async fn evaluate_status(&self, status: &Status) -> Result<(), String> {
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
            Ok(()) => {
                metrics::key_of_status(&self.name, &status.key_id);
                errors.extend(self.rotate(&status.key_id).await.err());
            }
            Err(why) => {
                metrics::invalid_key_id(&self.name, &status.key_id);
                errors.push(format!(
                    "got invalid KMSv2 KeyID hash {}: {why}",
                    quote(&key_id_hash(&status.key_id))
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

    /// Ensures that writes use a seed of the plugin's current key. If that fails, the old seed
    /// stays in use until it expires.
    async fn rotate(&self, key_id: &str) -> Result<(), String> {
        // From before the call, so that the expiry is an upper bound.
        let until = Instant::now() + WRITE_TTL;
        if let Some(now) = &*self.write_seed.load()
            && now.encrypted.key_id == key_id
        {
            let (seed, encrypted) = (Arc::clone(&now.seed), now.encrypted.clone());
            self.write_seed.store(Some(Arc::new(WriteSeed { seed, encrypted, until })));
            return Ok(());
        }
        let mut secret = [0; SEED_BYTES];
        let began = Instant::now();
        let filled = getrandom::fill(&mut secret);
        metrics::key_generated(filled.map(|()| began.elapsed()).map_err(drop));
        filled.map_err(|error| error.to_string())?;
        let failed = |why: &str, other: &str| {
            format!(
                "failed to rotate DEK, error: {why}, statusKeyIDHash={}, encryptKeyIDHash={}",
                quote(&key_id_hash(key_id)),
                quote(&key_id_hash(other))
            )
        };
        let encrypted = self.client.encrypt(&secret).await;
        let encrypted =
            encrypted.map_err(|why| failed(&format!("failed to encrypt DEK, error: {why}"), ""))?;
        let object = EncryptedObject::new(&encrypted, vec![0]);
        object.validate().map_err(|why| failed(&why, &encrypted.key_id))?;
        if encrypted.key_id != key_id {
            return Err(failed("the key id changed during the call", &encrypted.key_id));
        }
        let seed = Arc::new(Dek::new(SOURCE_TYPE_SEED, &secret)?);
        self.cache_seed(object.seed_id(), &seed);
        self.write_seed.store(Some(Arc::new(WriteSeed { seed, encrypted, until })));
        tracing::info!(
            name = self.name,
            key = key_id_hash(key_id),
            "writes use a new seed of the KMS plugin's key"
        );
        Ok(())
    }

    fn cache_seed(&self, id: Vec<u8>, seed: &Arc<Dek>) {
        let mut seeds = self.seeds.lock();
        if seeds.len() >= SEEDS_MAX {
            seeds.clear();
        }
        seeds.insert(id, Arc::clone(seed));
        metrics::seeds_kept(&self.name, seeds.len());
    }

    async fn cached_or_decrypted_seed(
        &self,
        object: &EncryptedObject,
    ) -> Result<Arc<Dek>, RemoteError> {
        let id = object.seed_id();
        if let Some(seed) = self.seeds.lock().get(&id) {
            return Ok(Arc::clone(seed));
        }
        metrics::cache_missed();
        let secret = self.client.decrypt(object.encrypted()).await.map_err(|why| {
            RemoteError::Unavailable(format!("failed to decrypt DEK, error: {why}"))
        })?;
        let seed = Dek::new(object.source_type, &secret).map_err(RemoteError::Unreadable)?;
        let seed = Arc::new(seed);
        self.cache_seed(id, &seed);
        Ok(seed)
    }
}

impl RemoteProvider for Provider {
    fn seal(&self, value: &[u8], context: &[u8]) -> Result<Vec<u8>, String> {
        let write_seed = self.write_seed.load();
        let write_seed = write_seed.as_ref().ok_or_else(|| match &*self.health.lock() {
            Some((_, Err(why))) => why.clone(),
            _ => format!("KMS Provider {} has not answered yet", self.name),
        })?;
        let late = Instant::now().saturating_duration_since(write_seed.until);
        if !late.is_zero() {
            return Err(format!(
                "encryptedDEKSource with keyID hash {} expired {} seconds ago: KMS Provider {} has \
                 not been healthy since",
                quote(&key_id_hash(&write_seed.encrypted.key_id)),
                late.as_secs(),
                self.name
            ));
        }
        let data = write_seed.seed.seal(value, context)?;
        let key_id = &write_seed.encrypted.key_id;
        metrics::key_used(Transformation::ToStorage, &self.name, key_id);
        Ok(EncryptedObject::new(&write_seed.encrypted, data).encode_to_vec())
    }

    fn open<'a>(
        &'a self,
        sealed: &'a [u8],
        context: &'a [u8],
    ) -> BoxFuture<'a, Result<Opened, RemoteError>> {
        Box::pin(async move {
            let object = EncryptedObject::read(sealed).map_err(RemoteError::Unreadable)?;
            let seed = self.cached_or_decrypted_seed(&object).await?;
            let value = seed.open(&object.data, context).map_err(RemoteError::Unreadable)?;
            metrics::key_used(Transformation::FromStorage, &self.name, &object.key_id);
            let write_seed = self.write_seed.load();
            let stale = object.source_type != SOURCE_TYPE_SEED
                || write_seed.as_ref().is_some_and(|now| now.encrypted.key_id != object.key_id);
            Ok(Opened { value: value.into(), stale })
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.check_health())
    }

    fn health(&self) -> Result<(), String> {
        let health = self.health.lock();
        let Some((at, found)) = &*health else {
            return Err(format!("KMS Provider {} has not answered yet", self.name));
        };
        let fresh = if found.is_ok() { HEALTH_TTL_HEALTHY } else { HEALTH_TTL_UNHEALTHY };
        if at.elapsed() > fresh {
            self.probe_requested.notify_one();
        }
        found.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_plugin_is_probed_by_a_named_task_until_its_provider_is_dropped() {
        let tasks = Tasks::default();
        let config = KmsConfig {
            name: "p".to_owned(),
            endpoint: "unix:///nonexistent/kms.sock".to_owned(),
            timeout: Duration::from_secs(1),
        };
        let provider = connect(&config, &tasks).expect("a valid endpoint");
        while provider.health() == Err("KMS Provider p has not answered yet".to_owned()) {
            sleep(Duration::from_secs(1)).await;
        }
        assert!(provider.health().is_err(), "there is no plugin");
        assert_eq!(tasks.running("kms-plugin-probe"), 1);
        drop(provider);
        sleep(2 * PROBE_INTERVAL_HEALTHY).await;
        assert_eq!(tasks.running("kms-plugin-probe"), 0);
    }
}
