//! What the process takes from its machine, read from `/proc` when `/metrics` is scraped.

use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge};

/// `process_*`, under the names of every Prometheus client.
pub(super) struct Process {
    cpu_seconds: Counter,
    open_fds: Gauge,
    max_fds: Gauge,
    resident_bytes: Gauge,
    virtual_bytes: Gauge,
    virtual_bytes_max: Gauge,
    start_seconds: Gauge,
    received_bytes: Counter,
    transmitted_bytes: Counter,
}

impl Process {
    pub(super) fn new() -> Self {
        let gauge = |name: &str, help: &str| Gauge::new(name, help).expect("valid names");
        let counter = |name: &str, help: &str| Counter::new(name, help).expect("valid names");
        let process = Self {
            cpu_seconds: counter("process_cpu_seconds_total", "User and system CPU time spent."),
            open_fds: gauge("process_open_fds", "Open file descriptors."),
            max_fds: gauge("process_max_fds", "File descriptors that may be open."),
            resident_bytes: gauge("process_resident_memory_bytes", "Memory in use."),
            virtual_bytes: gauge("process_virtual_memory_bytes", "Address space in use."),
            virtual_bytes_max: gauge(
                "process_virtual_memory_max_bytes",
                "Address space that may be used; -1: no limit.",
            ),
            start_seconds: gauge("process_start_time_seconds", "Start, in seconds since 1970."),
            received_bytes: counter(
                "process_network_receive_bytes_total",
                "Bytes that came in over the network, of all processes of the network namespace.",
            ),
            transmitted_bytes: counter(
                "process_network_transmit_bytes_total",
                "Bytes that went out over the network, of all processes of the network namespace.",
            ),
        };
        process.start_seconds.set(started().unwrap_or_default());
        process
    }

    /// Whatever cannot be read keeps its last value: other systems have no `/proc`.
    fn read(&self) {
        if let Some(stat) = Stat::read() {
            let more = stat.cpu_seconds - self.cpu_seconds.get();
            self.cpu_seconds.inc_by(more.max(0.0));
            self.resident_bytes.set(stat.resident_pages * PAGE_BYTES);
            self.virtual_bytes.set(stat.virtual_bytes);
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            self.open_fds.set(files.count() as f64);
        }
        if let Some(most) = limit("Max open files") {
            self.max_fds.set(most);
        }
        self.virtual_bytes_max.set(limit("Max address space").unwrap_or(-1.0));
        let octets = fs::read_to_string("/proc/self/net/netstat").ok();
        if let Some((received, transmitted)) = octets.as_deref().and_then(network_bytes) {
            self.received_bytes.inc_by((received - self.received_bytes.get()).max(0.0));
            self.transmitted_bytes.inc_by((transmitted - self.transmitted_bytes.get()).max(0.0));
        }
    }

    fn all(&self) -> [&dyn Collector; 9] {
        [
            &self.cpu_seconds,
            &self.open_fds,
            &self.max_fds,
            &self.resident_bytes,
            &self.virtual_bytes,
            &self.virtual_bytes_max,
            &self.start_seconds,
            &self.received_bytes,
            &self.transmitted_bytes,
        ]
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.all().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read();
        self.all().into_iter().flat_map(Collector::collect).collect()
    }
}

/// `USER_HZ`, which Linux fixes independently of the kernel's own tick.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_BYTES: f64 = 4096.0;

struct Stat {
    cpu_seconds: f64,
    start_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

impl Stat {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name in parentheses may hold anything, so the fields are counted from behind it.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (number(11)? + number(12)?) / TICKS_PER_SECOND,
            start_ticks: number(19)?,
            virtual_bytes: number(20)?,
            resident_pages: number(21)?,
        })
    }
}

pub(crate) fn started() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<f64>().ok()? + Stat::read()?.start_ticks / TICKS_PER_SECOND)
}

/// The soft limit of this name; None: there is none.
fn limit(name: &str) -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes in and out, by the line pair `IpExt:` of `/proc/self/net/netstat`: names, then values.
fn network_bytes(netstat: &str) -> Option<(f64, f64)> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |wanted: &str| {
        let at = names.split_whitespace().position(|name| name == wanted)?;
        values.split_whitespace().nth(at)?.parse::<f64>().ok()
    };
    Some((value("InOctets")?, value("OutOctets")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_behind_any_name() {
        let line = "7 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 4 0 4242 8192 3 18446744";
        let stat = Stat::parse(line).expect("a line of stat");
        assert_eq!(
            (stat.cpu_seconds, stat.start_ticks, stat.virtual_bytes, stat.resident_pages),
            (2.0, 4242.0, 8192.0, 3.0)
        );
        assert!(Stat::parse("7 (x) S 1").is_none());
        let netstat =
            "TcpExt: A B\nTcpExt: 1 2\nIpExt: InMcastPkts InOctets OutOctets\nIpExt: 0 71 92\n";
        assert_eq!(network_bytes(netstat), Some((71.0, 92.0)));
    }
}
