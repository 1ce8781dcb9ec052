//! Which servers there are, for service `default/kubernetes`: each writes down its address for a few
//! seconds, again and again, where kube-apiserver does.

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use meta::{ApiError, Str, Value, value};
use registry::StorageCodec;
use store::{Backend, Expect, Range, StoreError, Write};

pub struct MasterLeases {
    pub(crate) backend: Arc<dyn Backend>,
    /// `/registry/masterleases/`
    pub(crate) prefix: Str,
    pub(crate) codec: Arc<dyn StorageCodec>,
}

/// Renewed well before.
const LIFE: Duration = Duration::from_secs(15);
const ATTEMPTS_MAX: usize = 8;

impl MasterLeases {
    /// A server is there for some more seconds.
    pub async fn renew(&self, address: IpAddr) -> Result<(), ApiError> {
        let key: Str = format!("{}{address}", self.prefix).into();
        for _ in 0..ATTEMPTS_MAX {
            let found = self.backend.get(&key).await.map_err(ApiError::internal)?;
            let (generation, expect) = match &found {
                Some(found) => (
                    self.decode(&found.value)?.i64_at(&["metadata", "generation"]),
                    Expect::At(found.mod_revision),
                ),
                None => (None, Expect::Absent),
            };
            // Compat: counted on each time, so that the bytes change.
            let lease = lease(address, generation.unwrap_or_default() + 1);
            let json = Bytes::from(meta::json::to_string(&lease));
            let stored = self.codec.encode(&lease, &json).map_err(ApiError::internal)?;
            let write = Write::put(key.clone(), expect, stored).with_ttl(Some(LIFE));
            match self.backend.write(write).await {
                Ok(_) => return Ok(()),
                // It ran out meanwhile, or another server has the same address.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(ApiError::internal(error)),
            }
        }
        Err(ApiError::internal("the lease keeps changing"))
    }

    /// The addresses of all servers, in the order of their keys.
    pub async fn addresses(&self) -> Result<Vec<IpAddr>, ApiError> {
        let found = self.backend.range(Range::of(self.prefix.clone())).await;
        let found = found.map_err(ApiError::internal)?;
        let mut addresses = Vec::new();
        for lease in &found.items {
            let lease = self.decode(&lease.value)?;
            let subset = lease.items_at(&["subsets"]).first().unwrap_or(&Value::Null);
            let address = subset.items_at(&["addresses"]).first().unwrap_or(&Value::Null);
            addresses.extend(address.str_at(&["ip"]).parse::<IpAddr>());
        }
        Ok(addresses)
    }

    /// A server is about to go.
    pub async fn leave(&self, address: IpAddr) -> Result<(), ApiError> {
        let key = format!("{}{address}", self.prefix);
        match self.backend.write(Write::delete(key, Expect::Any)).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(ApiError::internal(error)),
        }
    }

    fn decode(&self, stored: &Bytes) -> Result<Value, ApiError> {
        let json = self.codec.decode(stored).map_err(ApiError::internal)?;
        let options = codec::json::DecodeOptions { strict: false };
        Ok(codec::json::decode_any(&json, options).map_err(ApiError::internal)?.value)
    }
}

fn lease(address: IpAddr, generation: i64) -> Value {
    value!({
        "kind": "Endpoints",
        "apiVersion": "v1",
        "metadata": {"generation": (generation)},
        "subsets": [{"addresses": [{"ip": (address.to_string())}]}],
    })
}

#[cfg(test)]
mod tests {
    use registry::AsJson;
    use store::MemoryBackend;

    use super::*;

    #[tokio::test]
    async fn servers_are_listed_until_they_leave() {
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::default());
        let prefix = "/registry/masterleases/".into();
        let leases = MasterLeases { backend, prefix, codec: Arc::new(AsJson) };
        let [one, two]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().unwrap());
        for address in [two, one, two] {
            leases.renew(address).await.unwrap();
        }
        assert_eq!(leases.addresses().await.unwrap(), [one, two]);
        let stored = leases.backend.get("/registry/masterleases/192.0.2.2").await.unwrap().unwrap();
        let lease = leases.decode(&stored.value).unwrap();
        assert_eq!(lease.i64_at(&["metadata", "generation"]), Some(2));
        leases.leave(two).await.unwrap();
        leases.leave(two).await.unwrap();
        assert_eq!(leases.addresses().await.unwrap(), [one]);
    }
}
