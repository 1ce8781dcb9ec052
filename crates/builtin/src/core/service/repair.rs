//! Puts right what a crash between two writes, a write with an unknown outcome, or a client that writes
//! IPAddresses itself has left: kube-apiserver's `ipallocator-repair-controller` and
//! `portallocator-repair-controller`. What is wrong with a Service or an address is told in an Event.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
    time::{Duration, SystemTime},
};

use meta::{ApiError, GroupVersionResource, Value, time::Time, value};
use registry::Kind;

use super::{
    addresses::{AddressObjects, family},
    allocate::{ServiceAllocator, all_ports},
    ip_families::Addressing,
    metrics,
    range::AddressRange,
};

/// An address may be taken for so long before its service is there.
const GRACE: Duration = Duration::from_mins(1);
/// The same where the service is there and does not have it: the write that took it may be undone.
const UNDO_GRACE: Duration = Duration::from_secs(5);

impl ServiceAllocator {
    /// Compares services with what is taken for them.
    pub(crate) async fn repair(&self, services: &Kind) -> Result<(), ApiError> {
        let Some(server) = self.addresses.server.get() else { return Ok(()) };
        let failed = |_: &ApiError| metrics::ip_repair_failed();
        // In this order: an address is taken before its service is written.
        let services = services.objects("").await.inspect_err(failed)?;
        let taken = server.addresses.objects("").await.inspect_err(failed)?;
        let mut findings = Vec::new();
        let repaired = self.repair_ports(&services, &mut findings).await;
        repaired.inspect_err(|_| metrics::port_repair_failed()).map_err(ApiError::internal)?;
        let known = Known::new(&services, &taken);
        self.release_leaks(&known, &taken, &mut findings).await;
        self.note_addresses(server, &known, &services, &mut findings).await;
        self.report(server, findings).await;
        Ok(())
    }

    /// Checks the addresses of one service, when it was written.
    pub(crate) async fn repair_service(
        &self,
        services: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        let Some(server) = self.addresses.server.get() else { return Ok(()) };
        let Some(service) = services.find_object(namespace, name, false).await? else {
            return Ok(());
        };
        let mut taken = Vec::new();
        for ip in Addressing::of(&service).cluster_ips {
            let mut address = server.addresses.find_object("", &ip, false).await?;
            if address.is_none() {
                // The watch cache may be behind: the address is written before its service.
                address = server.addresses.find_object("", &ip, true).await?;
            }
            taken.extend(address);
        }
        let mut found = vec![service];
        for address in &taken {
            let (namespace, name) = parent(address);
            let is_other = name != found[0].str_at(&["metadata", "name"])
                || namespace != found[0].str_at(&["metadata", "namespace"]);
            if is_of_service(address) && is_other {
                found.extend(services.find_object(namespace, name, true).await?);
            }
        }
        let known = Known::new(&found, &taken);
        let mut findings = Vec::new();
        self.note_addresses(server, &known, &found[..1], &mut findings).await;
        self.report_more(server, findings).await;
        Ok(())
    }

    /// Checks that an address is one of a service, when it was written. Returns when to look at it again.
    pub(crate) async fn repair_address(
        &self,
        services: &Kind,
        name: &str,
    ) -> Result<Option<Duration>, ApiError> {
        let Some(server) = self.addresses.server.get() else { return Ok(None) };
        let Some(address) = server.addresses.find_object("", name, false).await? else {
            return Ok(None);
        };
        let (namespace, of) = parent(&address);
        let mut found = Leak::No;
        // From the cache first, which says that nothing is wrong most of the time.
        for linearizable in [false, true] {
            let service = if is_of_service(&address) {
                services.find_object(namespace, of, linearizable).await?
            } else {
                None
            };
            found = leak(&address, service.as_ref(), Time::now());
            match &found {
                Leak::No => return Ok(None),
                Leak::After(wait) => return Ok(Some(*wait)),
                Leak::Yes(..) => {}
            }
        }
        let Leak::Yes(reason, note) = found else { return Ok(None) };
        metrics::ip_repaired("leak");
        let finding = Finding { about: About::Address, object: &address, reason, note };
        self.report_more(server, vec![finding]).await;
        self.addresses.release(&[name.to_owned()]).await;
        Ok(None)
    }

    async fn repair_ports<'a>(
        &self,
        services: &'a [Value],
        findings: &mut Vec<Finding<'a>>,
    ) -> Result<(), String> {
        let of_services: Vec<(&Value, BTreeSet<u16>)> = services
            .iter()
            .map(|service| (service, all_ports(service).into_iter().collect()))
            .collect();
        let ports: Vec<u16> = of_services.iter().flat_map(|(_, ports)| ports).copied().collect();
        let mut leaks = self.leaks.lock().await;
        let missing: HashSet<u16> =
            self.ports.repair(&ports, &mut leaks).await?.into_iter().collect();
        drop(leaks);
        let (first, last) = (self.ports.first, self.ports.last);
        let mut seen = HashSet::new();
        for (service, ports) in of_services {
            for port in ports {
                let (what, reason, note) = if !(first..=last).contains(&port) {
                    let why = format!("is not within the port range {first}-{last}");
                    ("outOfRange", "PortOutOfRange", format!("{why}; please recreate service"))
                } else if !seen.insert(port) {
                    let why = "was assigned to multiple services; please recreate service";
                    ("duplicate", "PortAlreadyAllocated", why.to_owned())
                } else if missing.contains(&port) {
                    ("repair", "PortNotAllocated", "is not allocated; repairing".to_owned())
                } else {
                    continue;
                };
                metrics::port_repaired(what);
                let note = format!("Port {port} {note}");
                findings.push(Finding { about: About::Port, object: service, reason, note });
            }
        }
        Ok(())
    }

    /// Addresses that no service has.
    async fn release_leaks<'a>(
        &self,
        known: &Known<'a>,
        taken: &'a [Value],
        findings: &mut Vec<Finding<'a>>,
    ) {
        let now = Time::now();
        for address in taken {
            let name = address.str_at(&["metadata", "name"]);
            let service = known.services.get(&parent(address)).copied();
            let Leak::Yes(reason, note) = leak(address, service, now) else { continue };
            // The services were listed first: one that was written since may have it.
            if known.owners.contains_key(name) || age(address, now) < GRACE {
                continue;
            }
            tracing::info!(address = name, "releasing the address of a service that is gone");
            metrics::ip_repaired("leak");
            findings.push(Finding { about: About::Address, object: address, reason, note });
            self.addresses.release(&[name.to_owned()]).await;
        }
    }

    /// Addresses of services that are not recorded, or recorded for another service.
    async fn note_addresses<'a>(
        &self,
        server: &AddressObjects,
        known: &Known<'a>,
        services: &'a [Value],
        findings: &mut Vec<Finding<'a>>,
    ) {
        let ranges = self.addresses.all_ranges().await;
        for service in services {
            let cluster_ips = Addressing::of(service).cluster_ips;
            for ip in cluster_ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()) {
                let Some(Problem { reason, note, state }) = known.problem(service, ip, &ranges)
                else {
                    continue;
                };
                if state == State::Missing && server.has(ip).await {
                    // Its watch cache was behind.
                    continue;
                }
                // Compat: wrong labels are put right without an Event.
                if state != State::WrongLabels {
                    let about = About::ClusterIp;
                    findings.push(Finding { about, object: service, reason, note });
                }
                match state {
                    State::Unchanged => continue,
                    State::Missing => {}
                    State::WrongReference | State::WrongLabels => {
                        self.addresses.release(&[ip.to_string()]).await;
                    }
                }
                metrics::ip_repaired("repair");
                match server.create(ip, service).await {
                    Ok(()) | Err(ApiError::AlreadyExists { .. }) => {}
                    Err(error) => tracing::warn!(address = %ip, "cannot note it: {error}"),
                }
            }
        }
    }

    /// Makes an Event of each finding that is new. One that stays, because a client has to act, is told once.
    async fn report(&self, server: &AddressObjects, mut findings: Vec<Finding<'_>>) {
        let current: HashSet<(String, String)> = findings.iter().map(Finding::key).collect();
        let told = {
            let mut reported = self.reported.lock().await;
            std::mem::replace(&mut *reported, current)
        };
        findings.retain(|finding| !told.contains(&finding.key()));
        Self::create_events(server, &findings).await;
    }

    /// The same for what was found between two repairs of everything.
    async fn report_more(&self, server: &AddressObjects, mut findings: Vec<Finding<'_>>) {
        let mut reported = self.reported.lock().await;
        findings.retain(|finding| reported.insert(finding.key()));
        drop(reported);
        Self::create_events(server, &findings).await;
    }

    async fn create_events(server: &AddressObjects, findings: &[Finding<'_>]) {
        for finding in findings {
            tracing::warn!(reason = finding.reason, "{}", finding.note);
            let event = finding.event();
            let namespace = event.str_at(&["metadata", "namespace"]).to_owned();
            if let Err(error) = server.client.create(events(), &namespace, &event).await {
                tracing::warn!("cannot create an event about a service: {error}");
            }
        }
    }
}

fn events() -> GroupVersionResource {
    GroupVersionResource {
        group: "events.k8s.io".into(),
        version: "v1".into(),
        resource: "events".into(),
    }
}

/// Namespace and name of the service that an address says it belongs to.
fn parent(address: &Value) -> (&str, &str) {
    let part = |name: &str| address.str_at(&["spec", "parentRef", name]);
    (part("namespace"), part("name"))
}

fn is_of_service(address: &Value) -> bool {
    let part = |name: &str| address.str_at(&["spec", "parentRef", name]);
    part("group").is_empty() && part("resource") == "services"
}

fn age(object: &Value, now: Time) -> Duration {
    let created = Time::parse(object.str_at(&["metadata", "creationTimestamp"]));
    let nanos = created.map_or(0, |created| now.since(created).nanos);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or_default())
}

/// Whether an address belongs to no service.
#[derive(Debug, PartialEq, Eq)]
enum Leak {
    No,
    /// Perhaps then: its service may be being written.
    After(Duration),
    /// The reason and the note of its Event.
    Yes(&'static str, String),
}

/// `service` is the one that the address refers to.
fn leak(address: &Value, service: Option<&Value>, now: Time) -> Leak {
    let label = ["metadata", "labels", "ipaddress.kubernetes.io/managed-by"];
    if address.str_at(&label) != "ipallocator.k8s.io" {
        return Leak::No;
    }
    let name = address.str_at(&["metadata", "name"]);
    if !is_of_service(address) {
        let part = |name: &str| address.str_at(&["spec", "parentRef", name]);
        let (group, resource) = (part("group"), part("resource"));
        let (namespace, of) = parent(address);
        // Compat: Go's text of the struct.
        let note = format!(
            "IPAddress {name} appears to have been modified, not referencing a Service \
             &ParentReference{{Group:{group},Resource:{resource},Namespace:{namespace},Name:{of},}}: cleaning up"
        );
        return Leak::Yes("IPAddressNotAllocated", note);
    }
    let (namespace, of) = parent(address);
    let (grace, reason, what) = match service {
        None => (GRACE, "IPAddressNotAllocated", "appears to have leaked: cleaning up"),
        Some(service) => {
            if Addressing::of(service).cluster_ips.iter().any(|ip| ip == name) {
                return Leak::No;
            }
            let created = |object: &Value| {
                Time::parse(object.str_at(&["metadata", "creationTimestamp"])).ok()
            };
            let grace = if service.str_at(&["spec", "type"]) == "ExternalName" {
                // It becomes one with an address.
                GRACE
            } else if created(address) > created(service) {
                UNDO_GRACE
            } else {
                Duration::ZERO
            };
            (grace, "IPAddressWrongReference", "has a wrong reference; cleaning up")
        }
    };
    let left = grace.saturating_sub(age(address, now));
    if !left.is_zero() {
        return Leak::After(left);
    }
    Leak::Yes(reason, format!("IPAddress: {name} for Service {namespace}/{of} {what}"))
}

/// Services and addresses by what they are looked up by.
struct Known<'a> {
    services: HashMap<(&'a str, &'a str), &'a Value>,
    addresses: HashMap<&'a str, &'a Value>,
    /// The services that have an address.
    owners: HashMap<String, Vec<&'a Value>>,
}

/// What there is of the record of an address.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Missing,
    WrongReference,
    WrongLabels,
    /// Nothing can be done without a client.
    Unchanged,
}

struct Problem {
    /// Of its Event, as the note.
    reason: &'static str,
    note: String,
    state: State,
}

impl<'a> Known<'a> {
    fn new(services: &'a [Value], taken: &'a [Value]) -> Self {
        let mut owners: HashMap<String, Vec<&Value>> = HashMap::new();
        for service in services {
            for ip in Addressing::of(service).cluster_ips {
                owners.entry(ip.clone()).or_default().push(service);
            }
        }
        let name = |object: &'a Value| object.str_at(&["metadata", "name"]);
        Self {
            services: services
                .iter()
                .map(|service| {
                    ((service.str_at(&["metadata", "namespace"]), name(service)), service)
                })
                .collect(),
            addresses: taken.iter().map(|address| (name(address), address)).collect(),
            owners,
        }
    }

    /// What is wrong with an address of a service.
    fn problem(&self, service: &Value, ip: IpAddr, ranges: &[AddressRange]) -> Option<Problem> {
        let found = |reason, note, state| Some(Problem { reason, note, state });
        let family = family(ip.is_ipv4());
        let name =
            (service.str_at(&["metadata", "namespace"]), service.str_at(&["metadata", "name"]));
        if !ranges.iter().any(|range| range.contains(ip)) {
            let note = format!(
                "Cluster IP [{family}]: {ip} is not within any configured Service CIDR; please recreate \
                 service"
            );
            return found("ClusterIPOutOfRange", note, State::Unchanged);
        }
        let Some(address) = self.addresses.get(ip.to_string().as_str()) else {
            let note = format!("Cluster IP [{family}]: {ip} is not allocated; repairing");
            return found("ClusterIPNotAllocated", note, State::Missing);
        };
        let wrong = || {
            let (namespace, name) = name;
            let note = format!(
                "the ClusterIP [{family}]: {ip} for Service {namespace}/{name} has a wrong reference; \
                 repairing"
            );
            found("ClusterIPNotAllocated", note, State::WrongReference)
        };
        if !is_of_service(address) {
            return wrong();
        }
        if parent(address) != name {
            let Some(other) = self.services.get(&parent(address)) else { return wrong() };
            let others = Addressing::of(other).cluster_ips;
            if others.iter().any(|other| *other == ip.to_string()) {
                let note = format!(
                    "Cluster IP [{family}]:{ip} was assigned to multiple services; please recreate \
                     service"
                );
                return found("ClusterIPAlreadyAllocated", note, State::Unchanged);
            }
        }
        let label = |name| address.str_at(&["metadata", "labels", name]);
        let has_labels = label("ipaddress.kubernetes.io/ip-family") == family
            && label("ipaddress.kubernetes.io/managed-by") == "ipallocator.k8s.io";
        if has_labels { None } else { found("", String::new(), State::WrongLabels) }
    }
}

/// Something that is wrong, or was and is put right.
struct Finding<'a> {
    about: About,
    /// A Service, or an IPAddress.
    object: &'a Value,
    reason: &'static str,
    note: String,
}

#[derive(Clone, Copy)]
enum About {
    Port,
    ClusterIp,
    Address,
}

impl Finding<'_> {
    /// One that stays is told once.
    fn key(&self) -> (String, String) {
        (self.object.str_at(&["metadata", "uid"]).to_owned(), self.note.clone())
    }

    fn event(&self) -> Value {
        let (controller, action, kind, api_version) = match self.about {
            About::Port => ("portallocator-repair-controller", "PortAllocation", "Service", "v1"),
            About::ClusterIp => {
                ("ipallocator-repair-controller", "ClusterIPAllocation", "Service", "v1")
            }
            About::Address => (
                "ipallocator-repair-controller",
                "IPAddressAllocation",
                "IPAddress",
                "networking.k8s.io/v1",
            ),
        };
        let part = |name: &str| self.object.str_at(&["metadata", name]);
        let namespace = if part("namespace").is_empty() { "default" } else { part("namespace") };
        let nanos = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        // Addresses of IPv6 have colons.
        let name = format!("{}.{nanos:x}", part("name").replace(':', "-"));
        value!({
            "kind": "Event",
            "apiVersion": "events.k8s.io/v1",
            "metadata": {"name": (name), "namespace": namespace},
            "eventTime": (meta::time::now_micro()),
            "reportingController": controller,
            "reportingInstance": (format!("{controller}-{}", hostname())),
            "action": action,
            "reason": (self.reason),
            "regarding": {
                "kind": kind,
                "apiVersion": api_version,
                "namespace": (part("namespace")),
                "name": (part("name")),
                "uid": (part("uid")),
                "resourceVersion": (part("resourceVersion")),
            },
            "note": (self.note.as_str()),
            "type": "Warning",
        })
    }
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, ip: &str) -> Value {
        value!({
            "metadata": {"namespace": "n", "name": name, "uid": name},
            "spec": {"clusterIP": ip, "clusterIPs": [ip]},
        })
    }

    fn address(name: &str, resource: &str, service: &str) -> Value {
        value!({
            "metadata": {"name": name, "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            }},
            "spec": {"parentRef": {"group": "", "resource": resource, "namespace": "n", "name": service}},
        })
    }

    #[test]
    fn every_address_of_a_service_is_recorded_for_it() {
        let services =
            [service("a", "10.0.0.1"), service("b", "10.0.0.1"), service("c", "192.0.2.1")];
        let range = [AddressRange::parse("10.0.0.0/24").unwrap()];
        let problem = |taken: &[Value], which: usize| {
            let known = Known::new(&services, taken);
            let ip = services[which].str_at(&["spec", "clusterIP"]).parse().unwrap();
            known
                .problem(&services[which], ip, &range)
                .map(|found| format!("{} {:?} {}", found.reason, found.state, found.note))
        };
        let good = address("10.0.0.1", "services", "a");
        let mut unlabelled = good.clone();
        unlabelled.set_at(&["metadata", "labels"], value!({}));
        let cases = [
            (vec![good.clone()], 0, None),
            (vec![unlabelled], 0, Some(" WrongLabels ")),
            (
                vec![],
                0,
                Some(
                    "ClusterIPNotAllocated Missing Cluster IP [IPv4]: 10.0.0.1 is not allocated; repairing",
                ),
            ),
            (
                vec![good.clone()],
                1,
                Some(
                    "ClusterIPAlreadyAllocated Unchanged Cluster IP [IPv4]:10.0.0.1 was assigned to \
                     multiple services; please recreate service",
                ),
            ),
            (
                vec![good],
                2,
                Some(
                    "ClusterIPOutOfRange Unchanged Cluster IP [IPv4]: 192.0.2.1 is not within any \
                     configured Service CIDR; please recreate service",
                ),
            ),
            (
                vec![address("10.0.0.1", "gateways", "a")],
                0,
                Some(
                    "ClusterIPNotAllocated WrongReference the ClusterIP [IPv4]: 10.0.0.1 for Service \
                     n/a has a wrong reference; repairing",
                ),
            ),
            (
                vec![address("10.0.0.1", "services", "gone")],
                0,
                Some(
                    "ClusterIPNotAllocated WrongReference the ClusterIP [IPv4]: 10.0.0.1 for Service \
                     n/a has a wrong reference; repairing",
                ),
            ),
        ];
        for (taken, which, expected) in cases {
            assert_eq!(problem(&taken, which).as_deref(), expected, "{which} {taken:?}");
        }
    }

    #[test]
    fn an_address_of_no_service_is_released_in_time() {
        // The address was created at second 0.
        let at = |seconds: i64| Time::from_unix(1_800_000_000 + seconds, 0);
        let created = |mut object: Value, seconds| {
            object.set_at(&["metadata", "creationTimestamp"], at(seconds).to_rfc3339());
            object
        };
        let mut external = created(service("a", ""), -100);
        external.set_at(&["spec"], value!({"type": "ExternalName"}));
        let (before, after) =
            (created(service("a", "10.0.0.9"), -100), created(service("a", "10.0.0.9"), 1));
        let owner = created(service("a", "10.0.0.1"), -100);
        let of_service = created(address("10.0.0.1", "services", "a"), 0);
        let mut of_others = of_service.clone();
        of_others.set_at(&["metadata", "labels"], value!({}));
        let of_gateway = created(address("10.0.0.1", "gateways", "a"), 0);
        let cases = [
            (&of_service, Some(&owner), 1000, "No"),
            (&of_others, None, 1000, "No"),
            (&of_service, None, 20, "After(40s)"),
            (
                &of_service,
                None,
                60,
                "IPAddress: 10.0.0.1 for Service n/a appears to have leaked: cleaning up",
            ),
            (&of_service, Some(&external), 20, "After(40s)"),
            (
                &of_service,
                Some(&external),
                60,
                "IPAddress: 10.0.0.1 for Service n/a has a wrong reference; cleaning up",
            ),
            (&of_service, Some(&before), 2, "After(3s)"),
            (
                &of_service,
                Some(&before),
                5,
                "IPAddress: 10.0.0.1 for Service n/a has a wrong reference; cleaning up",
            ),
            (
                &of_service,
                Some(&after),
                1,
                "IPAddress: 10.0.0.1 for Service n/a has a wrong reference; cleaning up",
            ),
            (
                &of_gateway,
                None,
                0,
                "IPAddress 10.0.0.1 appears to have been modified, not referencing a Service \
                 &ParentReference{Group:,Resource:gateways,Namespace:n,Name:a,}: cleaning up",
            ),
        ];
        for (address, service, seconds, expected) in cases {
            let found = match leak(address, service, at(seconds)) {
                Leak::Yes(_, note) => note,
                other => format!("{other:?}"),
            };
            assert_eq!(found, expected, "{address:?} {service:?} {seconds}");
        }
    }
}
