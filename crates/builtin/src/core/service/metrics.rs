//! `kube_apiserver_clusterip_allocator_*`, `kube_apiserver_nodeport_allocator_*` and the errors of the repair
//! loops. One set for the process, as kube-apiserver has it.

use std::{sync::LazyLock, time::Duration};

use prometheus::{
    DEFAULT_BUCKETS, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, Opts, Registry,
};

static FAMILIES: LazyLock<Families> = LazyLock::new(Families::new);

struct Families {
    allocated_ips: GaugeVec,
    available_ips: GaugeVec,
    ip_allocations: IntCounterVec,
    ip_errors: IntCounterVec,
    ip_durations: HistogramVec,
    allocated_ports: IntGauge,
    available_ports: Gauge,
    port_allocations: IntCounterVec,
    port_errors: IntCounterVec,
    ip_repair_errors: IntCounter,
    port_repair_errors: IntCounter,
    leaked_ips: IntCounterVec,
    leaked_ports: IntCounterVec,
}

impl Families {
    fn new() -> Self {
        let ips = |name: &str| format!("kube_apiserver_clusterip_allocator_{name}");
        let ports = |name: &str| format!("kube_apiserver_nodeport_allocator_{name}");
        let gauges = |name: &str, help: &str| {
            GaugeVec::new(Opts::new(ips(name), help), &["cidr"]).expect("valid names")
        };
        let counters = |name: String, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels).expect("valid names")
        };
        let counter = |name: &str, help: &str| IntCounter::new(name, help).expect("valid names");
        let durations = HistogramOpts::new(
            ips("allocation_duration_seconds"),
            "Time to take a cluster address.",
        );
        Self {
            allocated_ips: gauges("allocated_ips", "Cluster addresses that are taken."),
            available_ips: gauges("available_ips", "Cluster addresses that are free."),
            ip_allocations: counters(
                ips("allocation_total"),
                "Cluster addresses that were taken, by whether the client chose them.",
                &["cidr", "scope"],
            ),
            ip_errors: counters(
                ips("allocation_errors_total"),
                "Cluster addresses that could not be taken.",
                &["cidr", "scope"],
            ),
            ip_durations: HistogramVec::new(durations.buckets(DEFAULT_BUCKETS.to_vec()), &["cidr"])
                .expect("valid names"),
            allocated_ports: IntGauge::new(ports("allocated_ports"), "Node ports that are taken.")
                .expect("valid names"),
            available_ports: Gauge::new(ports("available_ports"), "Node ports that are free.")
                .expect("valid names"),
            port_allocations: counters(
                ports("allocation_total"),
                "Node ports that were taken, by whether the client chose them.",
                &["scope"],
            ),
            port_errors: counters(
                ports("allocation_errors_total"),
                "Node ports that could not be taken.",
                &["scope"],
            ),
            ip_repair_errors: counter(
                "apiserver_clusterip_repair_reconcile_errors_total",
                "Comparisons of cluster addresses with Services that failed.",
            ),
            port_repair_errors: counter(
                "apiserver_nodeport_repair_reconcile_errors_total",
                "Comparisons of node ports with Services that failed.",
            ),
            leaked_ips: counters(
                "apiserver_clusterip_repair_ip_errors_total".to_owned(),
                "Cluster addresses that were put right, by what was wrong.",
                &["type"],
            ),
            leaked_ports: counters(
                "apiserver_nodeport_repair_port_errors_total".to_owned(),
                "Node ports that were put right, by what was wrong.",
                &["type"],
            ),
        }
    }
}

/// Makes the metrics of the allocators part of a registry.
pub fn register_service_metrics(registry: &Registry) -> Result<(), String> {
    let families = &*FAMILIES;
    let register = |metric| registry.register(metric).map_err(|error| error.to_string());
    register(Box::new(families.allocated_ips.clone()))?;
    register(Box::new(families.available_ips.clone()))?;
    register(Box::new(families.ip_allocations.clone()))?;
    register(Box::new(families.ip_errors.clone()))?;
    register(Box::new(families.ip_durations.clone()))?;
    register(Box::new(families.allocated_ports.clone()))?;
    register(Box::new(families.available_ports.clone()))?;
    register(Box::new(families.port_allocations.clone()))?;
    register(Box::new(families.port_errors.clone()))?;
    register(Box::new(families.ip_repair_errors.clone()))?;
    register(Box::new(families.port_repair_errors.clone()))?;
    register(Box::new(families.leaked_ips.clone()))?;
    register(Box::new(families.leaked_ports.clone()))
}

/// Whether the client chose the address or port.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    Static,
    Dynamic,
}

impl Scope {
    fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
        }
    }
}

pub(super) fn ip_allocated(cidr: &str, scope: Scope, taken: bool, took: Duration) {
    let labels = [cidr, scope.name()];
    let counter = if taken { &FAMILIES.ip_allocations } else { &FAMILIES.ip_errors };
    counter.with_label_values(&labels).inc();
    if taken {
        FAMILIES.ip_durations.with_label_values(&[cidr]).observe(took.as_secs_f64());
    }
}

/// How many addresses of a range are taken, of how many.
pub(super) fn ips_taken(cidr: &str, taken: usize, size: f64) {
    FAMILIES.allocated_ips.with_label_values(&[cidr]).set(taken as f64);
    FAMILIES.available_ips.with_label_values(&[cidr]).set((size - taken as f64).max(0.0));
}

pub(super) fn port_allocated(scope: Scope, taken: bool) {
    let counter = if taken { &FAMILIES.port_allocations } else { &FAMILIES.port_errors };
    counter.with_label_values(&[scope.name()]).inc();
}

/// How many node ports are taken, of how many.
pub(super) fn ports_taken(taken: usize, size: usize) {
    FAMILIES.allocated_ports.set(i64::try_from(taken).unwrap_or(i64::MAX));
    FAMILIES.available_ports.set(size.saturating_sub(taken) as f64);
}

pub(super) fn ip_repair_failed() {
    FAMILIES.ip_repair_errors.inc();
}

pub(super) fn port_repair_failed() {
    FAMILIES.port_repair_errors.inc();
}

/// An address was put right: `leak` had no Service, `repair` had no record.
pub(super) fn ip_repaired(what: &str) {
    FAMILIES.leaked_ips.with_label_values(&[what]).inc();
}

pub(super) fn port_repaired(what: &str) {
    FAMILIES.leaked_ports.with_label_values(&[what]).inc();
}
