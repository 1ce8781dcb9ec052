//! Tokens whose signature was right: checking one takes a tenth of a millisecond, and clients send the
//! same one again and again. Only the signature is remembered; times and objects are looked at again
//! for every request.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use meta::Value;
use sha2::{Digest as _, Sha256};

#[derive(Default)]
pub(super) struct Verified(Mutex<Tokens>);

#[derive(Default)]
struct Tokens {
    claims: HashMap<[u8; 32], Arc<Value>>,
    /// Of the keys that have verified them.
    generation: u64,
}

/// When more tokens than this are in use, all are forgotten and come back as they are used.
const TOKENS_MAX: usize = 8192;

impl Verified {
    pub(super) fn get(&self, token: &str, generation: u64) -> Option<Arc<Value>> {
        let key = hash(token);
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.generation != generation {
            return None;
        }
        tokens.claims.get(&key).cloned()
    }

    pub(super) fn put(&self, token: &str, claims: Value, generation: u64) -> Arc<Value> {
        let (key, claims) = (hash(token), Arc::new(claims));
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.claims.len() >= TOKENS_MAX || tokens.generation < generation {
            tokens.claims.clear();
        }
        if tokens.generation <= generation {
            tokens.generation = generation;
            tokens.claims.insert(key, claims.clone());
        }
        claims
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
