//! Node ports of several servers over one store: a bitmap that each of them reads and writes by
//! compare-and-commit. It is kube-apiserver's own, so that both kinds of servers agree.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use meta::{Str, Value, value};
use registry::StorageCodec;
use store::{Backend, Expect, StoreError, Write};

pub(crate) struct SharedPorts {
    pub(crate) backend: Arc<dyn Backend>,
    /// `/registry/ranges/servicenodeports`
    pub(crate) key: Str,
    pub(crate) codec: Arc<dyn StorageCodec>,
    pub(crate) first: u16,
    pub(crate) last: u16,
}

/// After so many lost races in a row something else is wrong.
const ATTEMPTS_MAX: usize = 64;
/// A port that this many runs in a row find without a service is leaked, and is released.
const SIGHTINGS_MAX: u32 = 3;

/// Counts one more sighting of each port that no service has, and releases those that were seen so
/// too often. Answers the counts for the next time.
pub(super) fn leaks_after(
    leaks: &HashMap<u16, u32>,
    unused: Vec<u16>,
    mut release: impl FnMut(u16),
) -> HashMap<u16, u32> {
    let mut next = HashMap::new();
    for port in unused {
        let seen = leaks.get(&port).copied().unwrap_or(0) + 1;
        if seen > SIGHTINGS_MAX {
            tracing::info!(port, "releasing the node port of a service that is gone");
            release(port);
        } else {
            next.insert(port, seen);
        }
    }
    next
}

impl SharedPorts {
    /// Changes the bitmap with compare-and-swap: retries from the current one on a conflict.
    pub(crate) async fn change<T>(
        &self,
        mut change: impl FnMut(&mut Bitmap) -> Result<T, String>,
    ) -> Result<T, String> {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.backend.get(&self.key).await.map_err(|error| error.to_string())?;
            let (mut object, expect) = match &found {
                Some(found) => (self.decode(&found.value)?, Expect::At(found.mod_revision)),
                None => (self.fresh(), Expect::Absent),
            };
            let mut bitmap = Bitmap::read(&object, self.first, self.last)?;
            let before = bitmap.clone();
            let answer = change(&mut bitmap)?;
            if found.is_some() && bitmap == before {
                return Ok(answer);
            }
            object.set_at(&["range"], self.range());
            object.set_at(&["data"], BASE64.encode(bitmap.bytes()));
            let write = Write::put(self.key.clone(), expect, self.encode(&object)?);
            match self.backend.write(write).await {
                Ok(_) => return Ok(answer),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("the node ports keep changing".to_owned())
    }

    /// Brings what is written down together with the ports that services have. What no service has is
    /// given back when it was seen so several times in a row: a service may be on its way. Returns the
    /// ports that were not written down.
    pub(crate) async fn repair(
        &self,
        services: &[u16],
        leaks: &mut HashMap<u16, u32>,
    ) -> Result<Vec<u16>, String> {
        let (mut next, mut missing) = (HashMap::new(), Vec::new());
        self.change(|bitmap| {
            missing = services.iter().copied().filter(|port| !bitmap.has(*port)).collect();
            for port in services {
                bitmap.set(*port, true);
            }
            let unused: Vec<u16> = bitmap.ports().filter(|port| !services.contains(port)).collect();
            next = leaks_after(leaks, unused, |port| bitmap.set(port, false));
            Ok(())
        })
        .await?;
        *leaks = next;
        Ok(missing)
    }

    fn range(&self) -> String {
        format!("{}-{}", self.first, self.last)
    }

    fn fresh(&self) -> Value {
        value!({
            "kind": "RangeAllocation",
            "apiVersion": "v1",
            "metadata": {},
            "range": (self.range()),
            "data": "",
        })
    }

    fn decode(&self, stored: &Bytes) -> Result<Value, String> {
        let json = self.codec.decode(stored)?;
        let options = codec::json::DecodeOptions { strict: false };
        Ok(codec::json::decode_any(&json, options).map_err(|error| error.to_string())?.value)
    }

    fn encode(&self, object: &Value) -> Result<Bytes, String> {
        let json = Bytes::from(meta::json::to_string(object));
        self.codec.encode(object, &json)
    }
}

/// Which ports of a range are taken. The lowest bit of a long number is the first port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bitmap {
    first: u16,
    taken: Vec<bool>,
}

impl Bitmap {
    /// A bitmap of another range is worth nothing; services bring their ports into the new one.
    fn read(object: &Value, first: u16, last: u16) -> Result<Self, String> {
        let size = usize::from(last.saturating_sub(first)) + 1;
        let mut bitmap = Self { first, taken: vec![false; size] };
        if object.str_at(&["range"]) != format!("{first}-{last}") {
            return Ok(bitmap);
        }
        let data = BASE64.decode(object.str_at(&["data"])).map_err(|error| error.to_string())?;
        let bits = data.iter().rev().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
        for (taken, bit) in bitmap.taken.iter_mut().zip(bits) {
            *taken = bit;
        }
        Ok(bitmap)
    }

    /// The number, its highest byte first and without leading zeros.
    fn bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| {
            bits.iter().enumerate().fold(0u8, |byte, (at, bit)| byte | u8::from(*bit) << at)
        };
        let mut bytes: Vec<u8> = self.taken.chunks(8).map(byte).collect();
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        bytes.reverse();
        bytes
    }

    pub(crate) fn has(&self, port: u16) -> bool {
        let at = port.checked_sub(self.first).map(usize::from);
        at.and_then(|at| self.taken.get(at)).copied().unwrap_or_default()
    }

    /// Ports outside of the range are ignored.
    pub(crate) fn set(&mut self, port: u16, taken: bool) {
        let at = port.checked_sub(self.first).map(usize::from);
        if let Some(bit) = at.and_then(|at| self.taken.get_mut(at)) {
            *bit = taken;
        }
    }

    fn ports(&self) -> impl Iterator<Item = u16> {
        let taken = self.taken.iter().enumerate().filter(|(_, taken)| **taken);
        taken.filter_map(|(at, _)| self.first.checked_add(u16::try_from(at).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use registry::AsJson;
    use store::MemoryBackend;

    use super::*;

    fn shared(backend: &Arc<dyn Backend>) -> SharedPorts {
        SharedPorts {
            backend: backend.clone(),
            key: "/registry/ranges/servicenodeports".into(),
            codec: Arc::new(AsJson),
            first: 30000,
            last: 30010,
        }
    }

    async fn taken(shared: &SharedPorts) -> Vec<u16> {
        shared.change(|bitmap| Ok(bitmap.ports().collect())).await.unwrap()
    }

    #[test]
    fn a_bitmap_is_a_number_as_go_writes_it() {
        // Ports, and the bytes of `big.Int`.
        let cases: [(&[u16], &[u8]); 4] =
            [(&[], &[]), (&[30000], &[1]), (&[30008], &[1, 0]), (&[30001, 30009, 30010], &[6, 2])];
        for (ports, bytes) in cases {
            let mut bitmap = Bitmap::read(&value!({"range": ""}), 30000, 30010).unwrap();
            for port in ports {
                bitmap.set(*port, true);
            }
            assert_eq!(bitmap.bytes(), bytes, "{ports:?}");
            let object = value!({"range": "30000-30010", "data": (BASE64.encode(bytes))});
            assert_eq!(Bitmap::read(&object, 30000, 30010).unwrap(), bitmap);
        }
    }

    #[tokio::test]
    async fn two_servers_see_what_the_other_takes() {
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::default());
        let (one, other) = (shared(&backend), shared(&backend));
        one.change(|bitmap| {
            bitmap.set(30003, true);
            Ok(())
        })
        .await
        .unwrap();
        assert!(other.change(|bitmap| Ok(bitmap.has(30003))).await.unwrap());
        other
            .change(|bitmap| {
                bitmap.set(30003, false);
                bitmap.set(30004, true);
                Ok(())
            })
            .await
            .unwrap();
        assert_eq!(taken(&one).await, [30004]);
    }

    #[tokio::test]
    async fn a_port_without_a_service_is_given_back_after_a_while() {
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::default());
        let shared = shared(&backend);
        let set = |bitmap: &mut Bitmap| {
            bitmap.set(30001, true);
            Ok(())
        };
        shared.change(set).await.unwrap();
        let mut leaks = HashMap::new();
        for _ in 0..SIGHTINGS_MAX {
            shared.repair(&[30005], &mut leaks).await.unwrap();
            assert_eq!(taken(&shared).await, [30001, 30005]);
        }
        shared.repair(&[30005], &mut leaks).await.unwrap();
        assert_eq!(taken(&shared).await, [30005]);
        // One that has its service again is no leak.
        shared.change(set).await.unwrap();
        shared.repair(&[30005], &mut leaks).await.unwrap();
        shared.repair(&[30001, 30005], &mut leaks).await.unwrap();
        assert_eq!(leaks, HashMap::new());
    }
}
