//! Which servers there are, for service `default/kubernetes`: each writes down its address for a few
//! seconds, again and again, where kube-apiserver does.

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use meta::{ApiError, Str, Value, value};
use registry::StorageCodec;
use store::{Backend, Expect, Range, StoreError, Write};

pub struct MasterLeases(pub(crate) LeaseStore);

impl MasterLeases {
    /// A server is there for some more seconds.
    pub async fn renew(&self, address: IpAddr) -> Result<(), ApiError> {
        self.0.renew(&address.to_string(), |generation| lease(address, generation)).await
    }

    /// The addresses of all servers, in the order of their keys.
    pub async fn addresses(&self) -> Result<Vec<IpAddr>, ApiError> {
        let mut addresses = Vec::new();
        for lease in self.0.list().await? {
            let subset = lease.items_at(&["subsets"]).first().unwrap_or(&Value::Null);
            let address = subset.items_at(&["addresses"]).first().unwrap_or(&Value::Null);
            addresses.extend(address.str_at(&["ip"]).parse::<IpAddr>());
        }
        Ok(addresses)
    }

    /// A server is about to go.
    pub async fn leave(&self, address: IpAddr) -> Result<(), ApiError> {
        self.0.remove(&address.to_string()).await
    }
}

/// Where API servers tell each other how to be reached: kube-apiserver's `peerserverleases`.
pub struct PeerLeases(pub(crate) LeaseStore);

impl PeerLeases {
    /// The server of this identity can be reached at an address for some more seconds.
    pub async fn renew(&self, id: &str, address: IpAddr, port: u16) -> Result<(), ApiError> {
        self.0.renew(id, |generation| peer_lease(id, address, port, generation)).await
    }

    /// Where the server of this identity can be reached. None: it does not run.
    pub async fn endpoint(&self, id: &str) -> Result<Option<(IpAddr, u16)>, ApiError> {
        let Some(lease) = self.0.get(id).await? else { return Ok(None) };
        let subset = lease.items_at(&["subsets"]).first().unwrap_or(&Value::Null);
        let address = subset.items_at(&["addresses"]).first().unwrap_or(&Value::Null);
        let port = subset.items_at(&["ports"]).first().and_then(|port| port.i64_at(&["port"]));
        let port = port.and_then(|port| u16::try_from(port).ok());
        Ok(address.str_at(&["ip"]).parse().ok().zip(port))
    }

    /// A server is about to go.
    pub async fn leave(&self, id: &str) -> Result<(), ApiError> {
        self.0.remove(id).await
    }
}

/// Objects that go away when they are not renewed.
pub(crate) struct LeaseStore {
    pub(crate) backend: Arc<dyn Backend>,
    /// `/registry/masterleases/`
    pub(crate) prefix: Str,
    pub(crate) codec: Arc<dyn StorageCodec>,
}

/// Renewed well before.
const LIFE: Duration = Duration::from_secs(15);
const ATTEMPTS_MAX: usize = 8;

impl LeaseStore {
    async fn renew(&self, name: &str, lease: impl Fn(i64) -> Value) -> Result<(), ApiError> {
        let key: Str = format!("{}{name}", self.prefix).into();
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
            let lease = lease(generation.unwrap_or_default() + 1);
            let json = Bytes::from(meta::json::to_string(&lease));
            let stored = self.codec.encode(&lease, &json).map_err(ApiError::internal)?;
            let write = Write::put(key.clone(), expect, stored).with_ttl(Some(LIFE));
            match self.backend.write(write).await {
                Ok(_) => return Ok(()),
                // It ran out meanwhile, or another server has the same name.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(ApiError::internal(error)),
            }
        }
        Err(ApiError::internal("the lease keeps changing"))
    }

    async fn get(&self, name: &str) -> Result<Option<Value>, ApiError> {
        let key = format!("{}{name}", self.prefix);
        let found = self.backend.get(&key).await.map_err(ApiError::internal)?;
        found.map(|lease| self.decode(&lease.value)).transpose()
    }

    async fn list(&self) -> Result<Vec<Value>, ApiError> {
        let found = self.backend.range(Range::of(self.prefix.clone())).await;
        let found = found.map_err(ApiError::internal)?;
        found.items.iter().map(|lease| self.decode(&lease.value)).collect()
    }

    async fn remove(&self, name: &str) -> Result<(), ApiError> {
        let key = format!("{}{name}", self.prefix);
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

fn peer_lease(id: &str, address: IpAddr, port: u16, generation: i64) -> Value {
    value!({
        "kind": "Endpoints",
        "apiVersion": "v1",
        "metadata": {"generation": (generation), "labels": {"apiserverIdentity": (id)}},
        "subsets": [{
            "addresses": [{"ip": (address.to_string())}],
            "ports": [{"name": "https", "port": (i64::from(port)), "protocol": "TCP"}],
        }],
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
        let leases = MasterLeases(LeaseStore { backend, prefix, codec: Arc::new(AsJson) });
        let [one, two]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().unwrap());
        for address in [two, one, two] {
            leases.renew(address).await.unwrap();
        }
        assert_eq!(leases.addresses().await.unwrap(), [one, two]);
        let stored =
            leases.0.backend.get("/registry/masterleases/192.0.2.2").await.unwrap().unwrap();
        let lease = leases.0.decode(&stored.value).unwrap();
        assert_eq!(lease.i64_at(&["metadata", "generation"]), Some(2));
        leases.leave(two).await.unwrap();
        leases.leave(two).await.unwrap();
        assert_eq!(leases.addresses().await.unwrap(), [one]);
    }

    #[tokio::test]
    async fn a_peer_lease_names_the_server_and_its_port() {
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::default());
        let prefix = "/registry/peerserverleases/".into();
        let leases = PeerLeases(LeaseStore { backend, prefix, codec: Arc::new(AsJson) });
        leases.renew("apiserver-x", "192.0.2.1".parse().unwrap(), 6443).await.unwrap();
        let [lease] = &leases.0.list().await.unwrap()[..] else { panic!("one lease") };
        assert_eq!(lease.str_at(&["metadata", "labels", "apiserverIdentity"]), "apiserver-x");
        let ports = lease.items_at(&["subsets"])[0].items_at(&["ports"]).to_vec();
        assert_eq!(ports[0].i64_at(&["port"]), Some(6443));
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(leases.endpoint("apiserver-x").await.unwrap(), Some((address, 6443)));
        assert_eq!(leases.endpoint("apiserver-y").await.unwrap(), None);
        leases.leave("apiserver-x").await.unwrap();
        assert!(leases.0.list().await.unwrap().is_empty());
    }
}
