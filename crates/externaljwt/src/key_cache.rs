//! The public keys of the signer: fetched at the start, again when it hints, and when a token names a key
//! that is not known.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use auth::authn::jwt::PublicKey;
use auth::authn::service_account::PublicKeys;
use meta::BoxFuture;
use meta::field::quote;

use crate::{
    Metrics,
    client::{Client, FetchKeysResponse, Timestamp},
    metrics::Failure,
};

pub struct KeyCache {
    client: Arc<Client>,
    metrics: Metrics,
    keys: ArcSwap<FetchedKeys>,
    /// Held while keys are fetched, so that one fetch serves all who wait for it.
    fetching: tokio::sync::Mutex<()>,
    /// When the last fetch began, also one that failed.
    attempted: Mutex<Instant>,
}

/// What the signer said last.
struct FetchedKeys {
    keys: Arc<[VerificationKey]>,
    data_timestamp: Timestamp,
    refresh: Instant,
    /// Counts the sets of keys that differ.
    generation: u64,
    /// Counts all fetches.
    fetches: u64,
}

/// A key that verifies tokens.
#[derive(Clone, Debug)]
pub struct VerificationKey {
    pub key: PublicKey,
    /// For tokens that were issued earlier; new ones are not signed with it, and it is not published.
    pub excluded_from_discovery: bool,
}

const KEY_ID_BYTES_MAX: usize = 1024;
/// Far more than a signer rotates through; each token without a key id is verified with all of them.
const KEYS_MAX: usize = 1000;
/// After a failed fetch.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Clients choose the key ids in their tokens, so unknown ones cause at most one fetch in this time.
const UNKNOWN_ID_INTERVAL: Duration = Duration::from_secs(1);
/// A hint beyond this is as good as never.
const REFRESH_SECONDS_MAX: i64 = 10 * 365 * 24 * 3600;

impl KeyCache {
    /// With the keys that the signer has now.
    pub(crate) async fn filled(client: Arc<Client>, metrics: Metrics) -> Result<Self, Failure> {
        let now = Instant::now();
        let empty = FetchedKeys {
            keys: Arc::default(),
            data_timestamp: Timestamp::default(),
            refresh: now,
            generation: 0,
            fetches: 0,
        };
        let cache = Self {
            client,
            metrics,
            keys: ArcSwap::from_pointee(empty),
            fetching: tokio::sync::Mutex::default(),
            attempted: Mutex::new(now),
        };
        cache.fetch().await.map_err(|failure| {
            failure
                .within("while performing initial cache fill")
                .within("while initially filling key cache")
        })?;
        Ok(cache)
    }

    /// Follows the signer's hints, for ever.
    pub async fn keep_fresh(self: Arc<Self>) {
        loop {
            let mut next = self.keys.load().refresh;
            tokio::time::sleep_until(next.into()).await;
            while let Err(failure) = self.fetch().await {
                tracing::error!(
                    error = failure.why,
                    "fetching the keys of the external signer failed; the last ones stay in use"
                );
                next = Instant::now() + RETRY_INTERVAL;
                tokio::time::sleep_until(next.into()).await;
            }
        }
    }

    /// All keys.
    pub fn keys(&self) -> Arc<[VerificationKey]> {
        self.keys.load().keys.clone()
    }

    /// How long others may keep the keys: until the next fetch.
    pub fn max_age(&self) -> Duration {
        self.keys.load().refresh.saturating_duration_since(Instant::now())
    }

    /// The keys of this id, those that the signer has had only for a moment included.
    pub(crate) async fn of_id(&self, id: &str, interval: Duration) -> Vec<VerificationKey> {
        let known = self.known(id);
        let attempted = *self.attempted.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.is_empty() || attempted.elapsed() < interval {
            return known;
        }
        if let Err(failure) = self.fetch().await {
            tracing::error!(error = failure.why, "fetching the keys of the external signer failed");
            return Vec::new();
        }
        self.known(id)
    }

    fn known(&self, id: &str) -> Vec<VerificationKey> {
        let keys = self.keys.load();
        keys.keys.iter().filter(|key| id.is_empty() || key.key.id() == id).cloned().collect()
    }

    async fn fetch(&self) -> Result<(), Failure> {
        let before = self.keys.load().fetches;
        let _guard = self.fetching.lock().await;
        // Another task has fetched them meanwhile.
        if self.keys.load().fetches > before {
            return Ok(());
        }
        *self.attempted.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let fetched = self.client.fetch_keys().await.map_err(|error| {
            Failure::call("while getting externally supported jwt signing keys", &error)
        });
        let fetched = fetched.and_then(|response| read(&response));
        self.metrics.fetched(&fetched);
        let (keys, data_timestamp, refresh_seconds) =
            fetched.map_err(|failure| failure.within("while fetching token verification keys"))?;
        self.metrics.data_is_from(data_timestamp);
        let old = self.keys.load_full();
        let now = Instant::now();
        let changed = old.data_timestamp != data_timestamp || differ(&old.keys, &keys);
        self.keys.store(Arc::new(FetchedKeys {
            keys: keys.into(),
            data_timestamp,
            refresh: now + Duration::from_secs(refresh_seconds),
            generation: old.generation + u64::from(changed),
            fetches: old.fetches + 1,
        }));
        Ok(())
    }
}

fn differ(old: &[VerificationKey], new: &[VerificationKey]) -> bool {
    let same = |(old, new): (&VerificationKey, &VerificationKey)| {
        old.excluded_from_discovery == new.excluded_from_discovery && old.key == new.key
    };
    old.len() != new.len() || !old.iter().zip(new).all(same)
}

/// Keys, the time of the data, and seconds until the next fetch.
type Fetched = (Vec<VerificationKey>, Timestamp, u64);

/// Compat: what kube-apiserver refuses, in its words.
fn read(response: &FetchKeysResponse) -> Result<Fetched, Failure> {
    let refresh = response.refresh_hint_seconds;
    if refresh <= 0 {
        return Err(Failure::answer(format!("found invalid refresh hint ({refresh}s)")));
    }
    if response.keys.is_empty() {
        return Err(Failure::answer("found no keys"));
    }
    if response.keys.len() > KEYS_MAX {
        let count = response.keys.len();
        return Err(Failure::answer(format!("found {count} keys, more than {KEYS_MAX}")));
    }
    let invalid = |why: &str| Failure::answer(format!("invalid data timestamp: {why}"));
    let at = response.data_timestamp.ok_or_else(|| invalid("proto: invalid nil Timestamp"))?;
    // From year 1 to year 9999.
    if !(-62_135_596_800..=253_402_300_799).contains(&at.seconds) {
        let (seconds, nanos) = (at.seconds, at.nanos);
        let side = if seconds < 0 { "before 0001-01-01" } else { "after 9999-12-31" };
        return Err(invalid(&format!("proto: timestamp (seconds:{seconds} nanos:{nanos}) {side}")));
    }
    if !(0..1_000_000_000).contains(&at.nanos) {
        let (seconds, nanos) = (at.seconds, at.nanos);
        return Err(invalid(&format!(
            "proto: timestamp (seconds:{seconds} nanos:{nanos}) has out-of-range nanos"
        )));
    }
    let mut keys = Vec::with_capacity(response.keys.len());
    for key in &response.keys {
        if key.key_id.is_empty() || key.key_id.len() > KEY_ID_BYTES_MAX {
            let id = quote(&key.key_id);
            return Err(Failure::answer(format!("found invalid public key id {id}")));
        }
        if key.key.is_empty() {
            return Err(Failure::answer("found empty public key"));
        }
        let parsed = PublicKey::from_pkix(&key.key_id, &key.key);
        let parsed = parsed
            .map_err(|why| Failure::answer(format!("while parsing external public keys: {why}")))?;
        let excluded_from_discovery = key.exclude_from_oidc_discovery;
        keys.push(VerificationKey { key: parsed, excluded_from_discovery });
    }
    Ok((keys, at, refresh.min(REFRESH_SECONDS_MAX).unsigned_abs()))
}

impl PublicKeys for KeyCache {
    fn of_id<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Vec<PublicKey>> {
        Box::pin(async move {
            let keys = KeyCache::of_id(self, id, UNKNOWN_ID_INTERVAL).await;
            keys.into_iter().map(|key| key.key).collect()
        })
    }

    fn generation(&self) -> u64 {
        self.keys.load().generation
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PublicKeyData as _};

    use super::*;
    use crate::client::Key;

    type Change = fn(&mut FetchKeysResponse);

    fn response(change: impl FnOnce(&mut FetchKeysResponse)) -> Result<usize, String> {
        let key = KeyPair::generate().expect("a key").subject_public_key_info();
        let mut response = FetchKeysResponse {
            keys: vec![Key { key_id: "one".to_owned(), key, exclude_from_oidc_discovery: false }],
            data_timestamp: Some(Timestamp { seconds: 1_700_000_000, nanos: 5 }),
            refresh_hint_seconds: 60,
        };
        change(&mut response);
        read(&response).map(|(keys, ..)| keys.len()).map_err(|failure| failure.why)
    }

    #[test]
    fn answers_are_checked_in_the_words_of_kube_apiserver() {
        assert_eq!(response(|_| {}), Ok(1));
        let cases: [(Change, &str); 9] = [
            (|r| r.refresh_hint_seconds = 0, "found invalid refresh hint (0s)"),
            (|r| r.refresh_hint_seconds = -1, "found invalid refresh hint (-1s)"),
            (|r| r.keys.clear(), "found no keys"),
            (|r| r.keys = vec![r.keys[0].clone(); 1001], "found 1001 keys, more than 1000"),
            (|r| r.data_timestamp = None, "invalid data timestamp: proto: invalid nil Timestamp"),
            (|r| r.keys[0].key_id.clear(), "found invalid public key id \"\""),
            (|r| r.keys[0].key.clear(), "found empty public key"),
            (
                |r| r.keys[0].key = vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
                "while parsing external public keys: not a public key",
            ),
            (
                |r| r.data_timestamp = Some(Timestamp { seconds: 0, nanos: -1 }),
                "invalid data timestamp: proto: timestamp (seconds:0 nanos:-1) has out-of-range nanos",
            ),
        ];
        for (change, expected) in cases {
            assert_eq!(response(change), Err(expected.to_owned()));
        }
        let long = "k".repeat(1025);
        let refused = response(|r| r.keys[0].key_id.clone_from(&long));
        assert_eq!(refused, Err(format!("found invalid public key id \"{long}\"")));
        assert_eq!(response(|r| r.refresh_hint_seconds = i64::MAX), Ok(1));
    }
}
