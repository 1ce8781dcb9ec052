//! What a service takes when it is written, and gives back when it goes: cluster addresses and node
//! ports.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use meta::{
    ApiError, FieldErrors, GroupKind, GroupVersionResource, Str, Value,
    field::{FieldPath, path},
};
use registry::{Allocation, Allocator, BoxFuture, Kind, Reservation, StorageCodec};
use store::Backend;

use super::{
    addresses::{AddressObjects, Addresses, NoAddress},
    ip_families::{Addressing, family_of},
    ports::{NodePorts, PortOperation},
    range::AddressRange,
    shared_ports::SharedPorts,
    type_dependent_fields::{is_exposed, needs_health_check_port, needs_node_ports, node_ports},
};
use crate::Client;

/// The supplies of a cluster's services.
pub(crate) struct ServiceAllocator {
    pub(super) addresses: Arc<Addresses>,
    pub(super) ports: Arc<NodePorts>,
    /// Node ports that no Service seems to have, and how often they were seen so.
    pub(super) leaks: tokio::sync::Mutex<HashMap<u16, u32>>,
    /// What the last repair has found: uid of an object, and note. Bounded by the number of services.
    pub(super) reported: tokio::sync::Mutex<HashSet<(String, String)>>,
}

impl ServiceAllocator {
    /// `ranges` are those of the command line, checked there; the first is the default.
    pub(crate) fn new(ranges: &[String], (first, last): (u16, u16)) -> Self {
        let ranges = ranges.iter().filter_map(|range| AddressRange::parse(range)).collect();
        Self {
            addresses: Arc::new(Addresses { ranges, server: std::sync::OnceLock::new() }),
            ports: Arc::new(NodePorts::new(first, last)),
            leaks: tokio::sync::Mutex::default(),
            reported: tokio::sync::Mutex::default(),
        }
    }

    /// Several servers hand out the ports: what is taken is in the store.
    pub(crate) fn share_ports(
        &self,
        backend: Arc<dyn Backend>,
        key: Str,
        codec: Arc<dyn StorageCodec>,
    ) {
        let NodePorts { first, last, .. } = *self.ports;
        let shared = SharedPorts { backend, key, codec, first, last };
        drop(self.ports.shared.set(shared));
    }

    /// From here on there are addresses to be had. `kinds` have read what there is.
    pub(crate) async fn connect(
        &self,
        client: Arc<dyn Client>,
        kinds: &[Arc<Kind>],
    ) -> Result<(), ApiError> {
        let find = |name: &str| kinds.iter().find(|kind| kind.gvk().kind == name).cloned();
        if let Some(services) = find("Service") {
            for service in services.objects("").await? {
                self.ports.seed(all_ports(&service));
            }
        }
        if let Some(addresses) = find("IPAddress") {
            let server = AddressObjects { client, addresses, cidrs: find("ServiceCIDR") };
            drop(self.addresses.server.set(server));
            self.addresses.count_taken();
        }
        Ok(())
    }

    async fn create(&self, service: &mut Value, dry_run: bool) -> Result<Allocation, ApiError> {
        let mut taken = self.guard(dry_run);
        match self.take_for_create(service, &mut taken).await {
            Ok(()) => Ok(taken.reservation(Released::default())),
            Err(error) => {
                taken.give_back().await;
                Err(error)
            }
        }
    }

    async fn take_for_create(
        &self,
        service: &mut Value,
        taken: &mut PendingAllocation,
    ) -> Result<(), ApiError> {
        let mut addressing = Addressing::of(service);
        addressing.normalize(None);
        self.init_ip_families(service, &mut addressing, None)?;
        if !addressing.is_external_name() && !addressing.is_headless() {
            self.fill_addresses(service, &mut addressing, 0, taken).await?;
        }
        addressing.write(service);
        create_ports(service, &mut taken.ports).await?;
        if needs_health_check_port(service) {
            take_health_check_port(service, &mut taken.ports).await?;
        }
        Ok(())
    }

    async fn update(
        &self,
        service: &mut Value,
        old_service: &Value,
        dry_run: bool,
    ) -> Result<Allocation, ApiError> {
        let mut taken = self.guard(dry_run);
        match self.take_for_update(service, old_service, &mut taken).await {
            Ok(released) => Ok(taken.reservation(released)),
            Err(error) => {
                taken.give_back().await;
                Err(error)
            }
        }
    }

    async fn take_for_update(
        &self,
        service: &mut Value,
        old_service: &Value,
        taken: &mut PendingAllocation,
    ) -> Result<Released, ApiError> {
        let old = Addressing::of(old_service);
        keep_ports(service, old_service);
        let mut addressing = Addressing::of(service);
        addressing.normalize(Some(&old));
        self.init_ip_families(service, &mut addressing, Some(&old))?;
        let mut addresses = Vec::new();
        if addressing.keeps_preference(Some(&old)) {
            // Untouched.
        } else if old.is_external_name() && !addressing.is_external_name() {
            if !addressing.is_headless() {
                self.fill_addresses(service, &mut addressing, 0, taken).await?;
            }
        } else if old.is_headless() {
            // Has none, and will have none.
        } else if addressing.is_external_name() {
            addresses.clone_from(&old.cluster_ips);
        } else if old.families.len() == 1 && addressing.families.len() == 2 {
            self.fill_addresses(service, &mut addressing, 1, taken).await?;
        } else if old.families.len() == 2 && addressing.families.len() == 1 {
            addresses.extend(old.cluster_ips.get(1).cloned());
        }
        addressing.write(service);
        let ports = update_ports(service, old_service, &mut taken.ports).await?;
        Ok(Released { addresses, ports })
    }

    fn init_ip_families(
        &self,
        service: &Value,
        addressing: &mut Addressing,
        old: Option<&Addressing>,
    ) -> Result<(), ApiError> {
        let mut errors = FieldErrors::default();
        addressing.init_ip_families(old, &self.addresses.families(), &mut errors);
        if errors.is_empty() { Ok(()) } else { Err(invalid(service, errors)) }
    }

    /// Takes an address of each family from the `from`th on.
    async fn fill_addresses(
        &self,
        service: &Value,
        addressing: &mut Addressing,
        from: usize,
        taken: &mut PendingAllocation,
    ) -> Result<(), ApiError> {
        let families = addressing.families.clone();
        addressing
            .cluster_ips
            .resize(addressing.cluster_ips.len().max(families.len()), String::new());
        for (at, family) in families.iter().enumerate().skip(from) {
            let wanted = addressing.cluster_ips[at].clone();
            let shown = || Value::from(addressing.cluster_ips.clone());
            let field = path("spec").child("clusterIPs");
            let got = if wanted.is_empty() {
                let any = self.addresses.take_any(family, service, taken.dry_run).await;
                any.map_err(|why| match why {
                    NoAddress::Full => {
                        let name = meta::field::quote(service.str_at(&["metadata", "name"]));
                        ApiError::Internal(format!(
                            "failed to allocate a serviceIP for Service {name}: range is full"
                        ))
                    }
                    NoAddress::Other(_) => one_error(
                        service,
                        &field,
                        shown(),
                        &format!("failed to allocate IP: {why}"),
                    ),
                })?
                .to_string()
            } else {
                let address: IpAddr = wanted.parse().map_err(|_| {
                    let ip = meta::field::quote(&wanted);
                    ApiError::Internal(format!("failed to parse service IP {ip}"))
                })?;
                self.addresses.take(address, service, taken.dry_run).await.map_err(|why| {
                    let why = format!("failed to allocate IP {wanted}: {why}");
                    one_error(service, &field, shown(), &why)
                })?;
                wanted
            };
            debug_assert!(family_of(&got) == family);
            taken.addresses.push(got.clone());
            if at == 0 {
                addressing.cluster_ip.clone_from(&got);
            }
            addressing.cluster_ips[at] = got;
        }
        Ok(())
    }

    fn guard(&self, dry_run: bool) -> PendingAllocation {
        let ports = PortOperation::new(self.ports.clone(), dry_run);
        PendingAllocation { supply: self.addresses.clone(), addresses: Vec::new(), ports, dry_run }
    }
}

/// What a change of a service makes free once it is written.
#[derive(Default)]
struct Released {
    addresses: Vec<String>,
    ports: Vec<u16>,
}

/// Addresses and ports taken so far: a request that is cut off gives them back.
struct PendingAllocation {
    supply: Arc<Addresses>,
    addresses: Vec<String>,
    ports: PortOperation,
    dry_run: bool,
}

impl PendingAllocation {
    /// Done before the answer: a client may look at once, and what it did not get is free by then.
    async fn give_back(mut self) {
        let addresses = std::mem::take(&mut self.addresses);
        self.ports.give_back().await;
        if !self.dry_run {
            self.supply.release(&addresses).await;
        }
    }

    fn reservation(mut self, released: Released) -> Allocation {
        if self.dry_run {
            return Allocation::default();
        }
        let (supply, addresses) = (self.supply.clone(), std::mem::take(&mut self.addresses));
        let ports = self.ports.take();
        Allocation::new(ServiceReservation { supply, addresses, ports, released })
    }
}

/// What was taken for one write of a service, and what that write makes free.
struct ServiceReservation {
    supply: Arc<Addresses>,
    addresses: Vec<String>,
    ports: PortOperation,
    released: Released,
}

impl Reservation for ServiceReservation {
    fn commit(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let ports_supply = self.ports.supply();
            self.ports.keep();
            ports_supply.release(self.released.ports).await;
            self.supply.release(&self.released.addresses).await;
        })
    }

    fn release(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.ports.give_back().await;
            self.supply.release(&self.addresses).await;
        })
    }

    fn abandon(self: Box<Self>) {
        tracing::warn!(
            addresses = ?self.addresses,
            ports = ?self.ports.allocated,
            "the store does not tell whether a service was written; the repair will release what \
             no service has"
        );
        self.ports.keep();
    }
}

impl Drop for PendingAllocation {
    fn drop(&mut self) {
        if self.addresses.is_empty() || self.dry_run {
            return;
        }
        let (supply, addresses) = (self.supply.clone(), std::mem::take(&mut self.addresses));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { supply.release(&addresses).await });
        }
    }
}

impl Allocator for ServiceAllocator {
    fn for_create<'a>(
        &'a self,
        service: &'a mut Value,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Allocation, ApiError>> {
        Box::pin(self.create(service, dry_run))
    }

    fn for_update<'a>(
        &'a self,
        service: &'a mut Value,
        old: &'a Value,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Allocation, ApiError>> {
        Box::pin(self.update(service, old, dry_run))
    }

    fn release<'a>(&'a self, service: &'a Value) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.ports.release(all_ports(service)).await;
            let addressing = Addressing::of(service);
            if !addressing.is_external_name() && !addressing.is_headless() {
                self.addresses.release(&addressing.cluster_ips).await;
            }
            // A client that creates a Service of this name again must not find the old endpoints.
            if let Some(server) = self.addresses.server.get() {
                let endpoints = GroupVersionResource {
                    group: "".into(),
                    version: "v1".into(),
                    resource: "endpoints".into(),
                };
                let at = |field| service.str_at(&["metadata", field]);
                drop(server.client.delete(endpoints, at("namespace"), at("name")).await);
            }
        })
    }
}

fn invalid(service: &Value, errors: FieldErrors) -> ApiError {
    let name = service.str_at(&["metadata", "name"]).to_owned();
    ApiError::Invalid { kind: GroupKind::new("", "Service"), name, errors: Box::new(errors) }
}

fn one_error(service: &Value, field: &FieldPath, value: Value, why: &str) -> ApiError {
    let mut errors = FieldErrors::default();
    errors.invalid(field, value, why);
    invalid(service, errors)
}

/// Node ports of all kinds that a service has.
pub(super) fn all_ports(service: &Value) -> Vec<u16> {
    let mut ports = node_ports(service);
    if needs_health_check_port(service) {
        ports.extend(service.i64_at(&["spec", "healthCheckNodePort"]));
    }
    ports.into_iter().filter_map(|port| u16::try_from(port).ok()).filter(|port| *port > 0).collect()
}

fn port_field(at: usize) -> FieldPath {
    path("spec").child("ports").index(at).child("nodePort")
}

fn no_port(why: String) -> ApiError {
    ApiError::Internal(format!("failed to allocate a nodePort: {why}"))
}

/// Ports of a new service. The same port for two protocols gets one node port.
async fn create_ports(service: &mut Value, operation: &mut PortOperation) -> Result<(), ApiError> {
    if !is_exposed(service) {
        return Ok(());
    }
    let allocates = needs_node_ports(service);
    let mut by_port: HashMap<i64, i64> = HashMap::new();
    // The first node port that is given for each port.
    let given = service.items_at(&["spec", "ports"]).iter().rev().filter_map(|port| {
        let own = port.i64_at(&["nodePort"]).filter(|own| *own != 0)?;
        Some((port.i64_at(&["port"]).unwrap_or_default(), own))
    });
    let given: HashMap<i64, i64> = given.collect();
    for at in 0..service.items_at(&["spec", "ports"]).len() {
        let ports = service.items_at(&["spec", "ports"]);
        let number = |port: &Value, field: &str| port.i64_at(&[field]).unwrap_or_default();
        let (port, own) = (number(&ports[at], "port"), number(&ports[at], "nodePort"));
        if own == 0 && !allocates {
            continue;
        }
        let shared = by_port.get(&port).copied();
        let refused = |wanted: i64, why: String| {
            one_error(service, &port_field(at), Value::from(wanted), &why)
        };
        let node_port = match shared {
            Some(shared) if own == 0 || own == shared => shared,
            Some(_) => {
                operation.allocate(own).await.map_err(|why| refused(own, why))?;
                own
            }
            None => {
                let node_port = match given.get(&port).copied() {
                    Some(wanted) => {
                        operation.allocate(wanted).await.map_err(|why| refused(wanted, why))?;
                        wanted
                    }
                    None => operation.allocate_next().await.map_err(no_port)?,
                };
                by_port.insert(port, node_port);
                node_port
            }
        };
        set_node_port(service, at, node_port);
    }
    Ok(())
}

fn set_node_port(service: &mut Value, at: usize, node_port: i64) {
    let ports = service.at_mut(&["spec", "ports"]).and_then(Value::as_array_mut);
    if let Some(port) = ports.and_then(|ports| ports.get_mut(at)) {
        port.set_at(&["nodePort"], node_port);
    }
}

/// Ports that were given before stay when a manifest without them is sent again.
fn keep_ports(service: &mut Value, old: &Value) {
    if needs_node_ports(old) && needs_node_ports(service) {
        let (before, now) = (node_ports(old), node_ports(service));
        let now: HashSet<i64> = now.into_iter().collect();
        let used: HashSet<i64> = before.into_iter().filter(|port| now.contains(port)).collect();
        // Of several with one name the last.
        let old_ports = old.items_at(&["spec", "ports"]).iter();
        let by_name: HashMap<&str, &Value> =
            old_ports.map(|port| (port.str_at(&["name"]), port)).collect();
        for at in 0..service.items_at(&["spec", "ports"]).len() {
            let port = &service.items_at(&["spec", "ports"])[at];
            if port.i64_at(&["nodePort"]).unwrap_or_default() != 0 {
                continue;
            }
            let name = port.str_at(&["name"]);
            let known = by_name.get(name);
            let known = known.and_then(|known| known.i64_at(&["nodePort"])).unwrap_or_default();
            if known != 0 && !used.contains(&known) {
                set_node_port(service, at, known);
            }
        }
    }
    let health = ["spec", "healthCheckNodePort"];
    if needs_health_check_port(old)
        && needs_health_check_port(service)
        && service.i64_at(&health).unwrap_or_default() == 0
        && let Some(port) = old.i64_at(&health)
    {
        service.set_at(&health, port);
    }
}

/// Takes the ports that are new; answers those that are no longer needed.
async fn update_ports(
    service: &mut Value,
    old: &Value,
    operation: &mut PortOperation,
) -> Result<Vec<u16>, ApiError> {
    let before: HashSet<i64> = node_ports(old).into_iter().collect();
    if is_exposed(service) {
        let allocates = needs_node_ports(service);
        let mut seen = HashSet::new();
        for at in 0..service.items_at(&["spec", "ports"]).len() {
            let own = service.items_at(&["spec", "ports"])[at].i64_at(&["nodePort"]);
            match own.unwrap_or_default() {
                0 if !allocates => continue,
                0 => {
                    let next = operation.allocate_next().await.map_err(no_port)?;
                    set_node_port(service, at, next);
                }
                own if before.contains(&own) => {}
                own if operation.allocated.contains(&own) => {}
                own => operation
                    .allocate(own)
                    .await
                    .map_err(|why| one_error(service, &port_field(at), Value::from(own), &why))?,
            }
            let port = &service.items_at(&["spec", "ports"])[at];
            let taken = (port.str_at(&["protocol"]), port.i64_at(&["nodePort"]));
            let taken = format!("{{{} {}}}", taken.0, taken.1.unwrap_or_default());
            if let Some(taken) = seen.replace(taken) {
                // Compat: a 500, because upstream gets to it before it validates.
                return Err(ApiError::Storage(format!("duplicate nodePort: {taken}")));
            }
        }
    }
    if needs_health_check_port(service) && !needs_health_check_port(old) {
        take_health_check_port(service, operation).await?;
    }
    let kept: HashSet<u16> =
        if is_exposed(service) { all_ports(service).into_iter().collect() } else { HashSet::new() };
    let was_exposed = is_exposed(old);
    Ok(all_ports(old).into_iter().filter(|port| was_exposed && !kept.contains(port)).collect())
}

async fn take_health_check_port(
    service: &mut Value,
    operation: &mut PortOperation,
) -> Result<(), ApiError> {
    let at = ["spec", "healthCheckNodePort"];
    match service.i64_at(&at).unwrap_or_default() {
        0 => {
            let next = operation.allocate_next().await.map_err(|why| {
                ApiError::Internal(format!("failed to allocate a HealthCheck NodePort 0: {why}"))
            })?;
            service.set_at(&at, next);
        }
        wanted => operation.allocate(wanted).await.map_err(|why| {
            ApiError::Internal(format!(
                "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
            ))
        })?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Mutex};

    use meta::value;
    use tokio::runtime::Handle;

    use super::*;
    use crate::{Definitions, validation::tests::kind};

    fn ports(service: &Value) -> Vec<i64> {
        node_ports(service)
    }

    #[tokio::test]
    async fn a_port_of_two_protocols_gets_one_node_port() {
        let supply = Arc::new(NodePorts::new(30000, 30010));
        let mut service = value!({"spec": {"type": "NodePort", "ports": [
            {"port": 80i64, "nodePort": 30005i64},
            {"port": 53i64, "protocol": "TCP"}, {"port": 53i64, "protocol": "UDP"}]}});
        let mut operation = PortOperation::new(supply, false);
        create_ports(&mut service, &mut operation).await.unwrap();
        let got = ports(&service);
        assert_eq!(got[0], 30005);
        assert_eq!(got[1], got[2]);
        assert_eq!(operation.allocated.len(), 2);
    }

    /// The IPAddress objects of a server, by name.
    #[derive(Clone, Default)]
    struct Objects(Arc<Mutex<BTreeSet<String>>>);

    impl Objects {
        fn of(names: &[&str]) -> Self {
            Self(Arc::new(Mutex::new(names.iter().map(ToString::to_string).collect())))
        }

        /// After everything that was started has come to its end.
        async fn check(&self, expected: &[&str], context: &str) {
            while Handle::current().metrics().num_alive_tasks() > 0 {
                tokio::task::yield_now().await;
            }
            assert!(self.0.lock().unwrap().iter().eq(expected), "{context}: {:?}", self.0);
        }
    }

    impl Client for Objects {
        fn create<'a>(
            &'a self,
            _: GroupVersionResource,
            _: &'a str,
            object: &'a Value,
        ) -> BoxFuture<'a, Result<(), ApiError>> {
            self.0.lock().unwrap().insert(object.str_at(&["metadata", "name"]).to_owned());
            Box::pin(std::future::ready(Ok(())))
        }

        fn delete<'a>(
            &'a self,
            _: GroupVersionResource,
            _: &'a str,
            name: &'a str,
        ) -> BoxFuture<'a, Result<(), ApiError>> {
            self.0.lock().unwrap().remove(name);
            Box::pin(std::future::ready(Ok(())))
        }
    }

    /// An allocator of the addresses 10.0.0.1 and 10.0.0.2, whose objects are these, and of one node port.
    fn allocator(objects: &Objects) -> ServiceAllocator {
        let allocator = ServiceAllocator::new(&["10.0.0.0/30".to_owned()], (30000, 30000));
        let definitions = Definitions::load();
        let schema = Arc::new(Definitions::load().schema);
        let address = value!({"kind": "IPAddress", "apiVersion": "networking.k8s.io/v1"});
        let addresses = Arc::new(kind(&definitions, &schema, &address));
        let client = Arc::new(objects.clone());
        drop(allocator.addresses.server.set(AddressObjects { client, addresses, cidrs: None }));
        allocator
    }

    #[expect(
        clippy::unnecessary_box_returns,
        reason = "its methods take a box, as the trait has it"
    )]
    fn reservation(ports: PortOperation) -> Box<ServiceReservation> {
        let supply = Arc::new(Addresses { ranges: Vec::new(), server: std::sync::OnceLock::new() });
        let released = Released::default();
        Box::new(ServiceReservation { supply, addresses: Vec::new(), ports, released })
    }

    /// The addresses were given back, and handed out a second time, although the service was there.
    #[tokio::test]
    async fn addresses_are_given_back_only_if_it_is_known_that_no_service_has_them() {
        type Resolve = fn(Box<ServiceReservation>) -> BoxFuture<'static, ()>;
        let abandon: Resolve = |reservation| {
            reservation.abandon();
            Box::pin(std::future::ready(()))
        };
        // The write takes 10.0.0.1 and makes 10.0.0.2 free.
        let cases: [(&str, Resolve, &[&str]); 3] = [
            ("written", Reservation::commit, &["10.0.0.1"]),
            ("not written", Reservation::release, &["10.0.0.2"]),
            ("unknown", abandon, &["10.0.0.1", "10.0.0.2"]),
        ];
        for (outcome, resolve, expected) in cases {
            let objects = Objects::of(&["10.0.0.1", "10.0.0.2"]);
            let allocator = allocator(&objects);
            let reservation = ServiceReservation {
                supply: allocator.addresses,
                addresses: vec!["10.0.0.1".to_owned()],
                ports: PortOperation::new(allocator.ports, false),
                released: Released { addresses: vec!["10.0.0.2".to_owned()], ports: Vec::new() },
            };
            resolve(Box::new(reservation)).await;
            objects.check(expected, outcome).await;
        }
    }

    #[tokio::test]
    async fn an_address_is_taken_until_its_allocation_is_dropped_before_the_write() {
        let objects = Objects::default();
        let allocator = allocator(&objects);
        let mut service = value!({"metadata": {"name": "a"}, "spec": {"clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1"], "type": "ClusterIP", "ports": [{"port": 80i64}]}});
        let allocation = allocator.for_create(&mut service, false).await.unwrap();
        objects.check(&["10.0.0.1"], "allocated").await;
        drop(allocation);
        objects.check(&[], "dropped").await;
    }

    /// The ports were given back, and handed out a second time, although the service was there.
    #[tokio::test]
    async fn ports_of_a_write_with_an_unknown_outcome_stay_taken_until_the_repair() {
        let supply = Arc::new(NodePorts::new(30000, 30000));
        let take = async || {
            let mut operation = PortOperation::new(supply.clone(), false);
            operation.allocate(30000).await.map(|()| operation)
        };
        reservation(take().await.unwrap()).release().await;
        reservation(take().await.unwrap()).abandon();
        assert!(take().await.is_err());
        let mut leaks = HashMap::new();
        for _ in 0..3 {
            supply.repair(&[], &mut leaks).await.unwrap();
            assert!(take().await.is_err());
        }
        supply.repair(&[], &mut leaks).await.unwrap();
        reservation(take().await.unwrap()).abandon();
        for _ in 0..10 {
            supply.repair(&[30000], &mut leaks).await.unwrap();
        }
        assert!(take().await.is_err());
    }

    #[tokio::test]
    async fn ports_survive_an_update_that_does_not_name_them_and_go_with_the_type() {
        let supply = Arc::new(NodePorts::new(30000, 30010));
        supply.seed([30001, 30002]);
        let old = value!({"spec": {"type": "NodePort", "ports": [
            {"name": "a", "port": 1i64, "nodePort": 30001i64},
            {"name": "b", "port": 2i64, "nodePort": 30002i64}]}});
        let mut again = value!({"spec": {"type": "NodePort", "ports": [
            {"name": "b", "port": 2i64}, {"name": "a", "port": 1i64}]}});
        keep_ports(&mut again, &old);
        assert_eq!(ports(&again), [30002, 30001]);
        let mut operation = PortOperation::new(supply.clone(), false);
        let released = update_ports(&mut again, &old, &mut operation).await.unwrap();
        assert_eq!(released, [0u16; 0]);
        assert!(operation.allocated.is_empty());
        let mut inner = value!({"spec": {"type": "ClusterIP", "ports": [{"port": 1i64}]}});
        let released = update_ports(&mut inner, &old, &mut operation).await.unwrap();
        assert_eq!(released, [30001, 30002]);
    }
}
