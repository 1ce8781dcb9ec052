//! Cluster addresses. Each one that is taken has an `IPAddress` object of its name: making that
//! object is what takes the address, so two servers over one store never hand out the same.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Instant,
};

use meta::{ApiError, GroupVersionResource, Value, value};
use registry::Kind;

use super::{
    ip_families::{IPV4, IPV6},
    metrics::{self, Scope},
    range::AddressRange,
};
use crate::Client;

pub(crate) struct Addresses {
    /// From the command line; the first one is the default.
    pub(crate) ranges: Vec<AddressRange>,
    pub(crate) server: OnceLock<AddressObjects>,
}

/// What is known when the server is put together.
pub(crate) struct AddressObjects {
    pub(crate) client: Arc<dyn Client>,
    pub(crate) addresses: Arc<Kind>,
    /// More ranges, as `ServiceCIDR` objects.
    pub(crate) cidrs: Option<Arc<Kind>>,
}

/// Why there is no address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoAddress {
    Full,
    Other(String),
}

impl std::fmt::Display for NoAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full => "range is full",
            Self::Other(why) => why,
        })
    }
}

const NOT_READY: &str = "allocator not ready";

impl Addresses {
    /// The families that there are addresses of, the default one first.
    pub(crate) fn families(&self) -> Vec<&'static str> {
        let mut families = Vec::new();
        for range in &self.ranges {
            let family = family(range.is_ipv4());
            if !families.contains(&family) {
                families.push(family);
            }
        }
        families
    }

    /// Takes any free address of a family for a service.
    pub(crate) async fn take_any(
        &self,
        wanted: &str,
        service: &Value,
        dry_run: bool,
    ) -> Result<IpAddr, NoAddress> {
        let server = self.server()?;
        for range in self.ranges_of(wanted).await {
            if dry_run {
                // Compat: a dry run looks for nothing.
                return Ok(range.network());
            }
            let began = Instant::now();
            let taken = server.take_any_of(&range, service).await;
            server.count(&range, Scope::Dynamic, taken.is_ok(), began);
            match taken {
                Err(NoAddress::Full) => {}
                taken => return taken,
            }
        }
        Err(NoAddress::Full)
    }

    /// Takes the address that the service asks for.
    pub(crate) async fn take(
        &self,
        address: IpAddr,
        service: &Value,
        dry_run: bool,
    ) -> Result<(), NoAddress> {
        let server = self.server()?;
        let ranges = self.ranges_of(family(address.is_ipv4())).await;
        let Some(range) = ranges.iter().find(|range| range.contains(address)) else {
            let why = "the provided network does not match the current range";
            return Err(NoAddress::Other(why.to_owned()));
        };
        if dry_run {
            return Ok(());
        }
        let began = Instant::now();
        let created = server.create(address, service).await;
        server.count(range, Scope::Static, created.is_ok(), began);
        match created {
            Ok(()) => Ok(()),
            Err(ApiError::AlreadyExists { .. }) => {
                Err(NoAddress::Other("provided IP is already allocated".to_owned()))
            }
            Err(error) => Err(NoAddress::Other(error.to_string())),
        }
    }

    pub(crate) async fn release(&self, addresses: &[String]) {
        let Ok(server) = self.server() else { return };
        for address in addresses.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()) {
            let name = address.to_string();
            match server.client.delete(ip_addresses(), "", &name).await {
                Ok(()) | Err(ApiError::NotFound { .. }) => {}
                Err(error) => tracing::warn!(address = name, "cannot release an address: {error}"),
            }
        }
        self.count_taken();
    }

    /// Measures how many addresses of the ranges of the command line are taken.
    pub(crate) fn count_taken(&self) {
        let Some(server) = self.server.get() else { return };
        for range in &self.ranges {
            metrics::ips_taken(&range.to_string(), server.taken_in(range), range.size());
        }
    }

    fn server(&self) -> Result<&AddressObjects, NoAddress> {
        self.server.get().ok_or_else(|| NoAddress::Other(NOT_READY.to_owned()))
    }

    async fn ranges_of(&self, wanted: &str) -> Vec<AddressRange> {
        let mut ranges = self.all_ranges().await;
        ranges.retain(|range| family(range.is_ipv4()) == wanted);
        ranges
    }

    pub(super) async fn all_ranges(&self) -> Vec<AddressRange> {
        let mut ranges = self.ranges.clone();
        if let Some(cidrs) = self.server.get().and_then(|server| server.cidrs.as_ref()) {
            let cidrs = cidrs.objects("").await.unwrap_or_default();
            let (staying, leaving): (Vec<Value>, Vec<Value>) = cidrs
                .into_iter()
                .partition(|cidr| cidr.str_at(&["metadata", "deletionTimestamp"]).is_empty());
            // The ranges of the command line count before there is a ServiceCIDR for them, but not once
            // that is being deleted.
            let leaving: Vec<AddressRange> = leaving.iter().flat_map(ranges_in).collect();
            ranges.retain(|range| !leaving.contains(range));
            let ready = staying
                .iter()
                .filter(|cidr| crate::printer_cells::condition_is_true(cidr, "Ready"));
            for range in ready.flat_map(ranges_in) {
                if !ranges.contains(&range) {
                    ranges.push(range);
                }
            }
        }
        ranges
    }
}

fn ranges_in(cidr: &Value) -> impl Iterator<Item = AddressRange> {
    let texts = cidr.items_at(&["spec", "cidrs"]).iter().filter_map(Value::as_str);
    texts.filter_map(AddressRange::parse)
}

impl AddressObjects {
    async fn take_any_of(
        &self,
        range: &AddressRange,
        service: &Value,
    ) -> Result<IpAddr, NoAddress> {
        for address in range.candidates(random()) {
            if self.has(address).await {
                continue;
            }
            match self.create(address, service).await {
                Ok(()) => return Ok(address),
                // Another server took it: try the next one.
                Err(ApiError::AlreadyExists { .. }) => {}
                Err(error) => return Err(NoAddress::Other(error.to_string())),
            }
        }
        Err(NoAddress::Full)
    }

    fn count(&self, range: &AddressRange, scope: Scope, taken: bool, began: Instant) {
        let cidr = range.to_string();
        metrics::ip_allocated(&cidr, scope, taken, began.elapsed());
        metrics::ips_taken(&cidr, self.taken_in(range), range.size());
    }

    /// How many addresses of a range are taken, as the watch cache knows it. Services are created seldom,
    /// so that counting all is cheap enough.
    fn taken_in(&self, range: &AddressRange) -> usize {
        let Some(storage) = &self.addresses.storage else { return 0 };
        let snapshot = storage.cache.snapshot();
        let entries = snapshot.range(&storage.prefix, None);
        let addresses = entries.filter_map(|entry| entry.name.parse::<IpAddr>().ok());
        addresses.filter(|address| range.contains(*address)).count()
    }

    pub(super) async fn has(&self, address: IpAddr) -> bool {
        let Some(storage) = &self.addresses.storage else { return false };
        storage.find("", &address.to_string(), false).await.is_ok_and(|found| found.is_some())
    }

    pub(crate) async fn create(&self, address: IpAddr, service: &Value) -> Result<(), ApiError> {
        let object = ip_address(address, service);
        self.client.create(ip_addresses(), "", &object).await
    }
}

/// The object that says whose an address is.
fn ip_address(address: IpAddr, service: &Value) -> Value {
    value!({
        "kind": "IPAddress",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {
            "name": (address.to_string()),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": (family(address.is_ipv4())),
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {
            "group": "",
            "resource": "services",
            "namespace": (service.str_at(&["metadata", "namespace"])),
            "name": (service.str_at(&["metadata", "name"])),
        }},
    })
}

pub(crate) fn ip_addresses() -> GroupVersionResource {
    GroupVersionResource {
        group: "networking.k8s.io".into(),
        version: "v1".into(),
        resource: "ipaddresses".into(),
    }
}

pub(super) fn family(is_ipv4: bool) -> &'static str {
    if is_ipv4 { IPV4 } else { IPV6 }
}

fn random() -> u128 {
    let half = || u128::from(getrandom::u64().unwrap_or_default());
    half() << 64 | half()
}
