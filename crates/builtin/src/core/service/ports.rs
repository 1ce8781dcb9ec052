//! Node ports: which are taken. Kept in memory and read off the services when the server starts.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The ports that services are given on every node.
pub(crate) struct NodePorts {
    first: u16,
    last: u16,
    taken: Mutex<HashSet<u16>>,
}

/// Why a port can't be had.
pub(crate) const FULL: &str = "range is full";
const TAKEN: &str = "provided port is already allocated";

impl NodePorts {
    pub(crate) fn new(first: u16, last: u16) -> Self {
        Self { first, last, taken: Mutex::default() }
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<u16>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ports that services have already, whether they lie in the range or not.
    pub(crate) fn seed(&self, ports: impl IntoIterator<Item = u16>) {
        self.taken().extend(ports);
    }

    pub(crate) fn release(&self, ports: impl IntoIterator<Item = u16>) {
        let mut taken = self.taken();
        for port in ports {
            taken.remove(&port);
        }
    }
}

/// What one write takes; given back when it is dropped before it is kept.
pub(crate) struct PortOperation {
    ports: Arc<NodePorts>,
    dry_run: bool,
    pub(crate) allocated: Vec<u16>,
    kept: bool,
}

impl PortOperation {
    pub(crate) fn new(ports: Arc<NodePorts>, dry_run: bool) -> Self {
        Self { ports, dry_run, allocated: Vec::new(), kept: false }
    }

    /// A port that the client wants.
    pub(crate) fn allocate(&mut self, port: i64) -> Result<(), String> {
        let NodePorts { first, last, .. } = *self.ports;
        let port = u16::try_from(port).ok().filter(|port| (first..=last).contains(port));
        let Some(port) = port else {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {first}-{last}"
            ));
        };
        let mut taken = self.ports.taken();
        if taken.contains(&port) || self.allocated.contains(&port) {
            return Err(TAKEN.to_owned());
        }
        if !self.dry_run {
            taken.insert(port);
        }
        drop(taken);
        self.allocated.push(port);
        Ok(())
    }

    /// Any port that is free.
    pub(crate) fn allocate_next(&mut self) -> Result<u16, &'static str> {
        if self.dry_run {
            // Compat: a dry run looks for nothing and counts from one.
            let next = self.allocated.iter().max().map_or(1, |max| max.saturating_add(1));
            self.allocated.push(next);
            return Ok(next);
        }
        let mut taken = self.ports.taken();
        let free = candidates(self.ports.first, self.ports.last).find(|port| !taken.contains(port));
        let port = free.ok_or(FULL)?;
        taken.insert(port);
        drop(taken);
        self.allocated.push(port);
        Ok(port)
    }

    pub(crate) fn supply(&self) -> Arc<NodePorts> {
        self.ports.clone()
    }

    /// The write went through.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for PortOperation {
    fn drop(&mut self) {
        if !self.kept && !self.dry_run {
            self.ports.release(self.allocated.drain(..));
        }
    }
}

/// Every port once, beginning somewhere at random; those kept for static use come last.
fn candidates(first: u16, last: u16) -> impl Iterator<Item = u16> {
    let (first, end) = (u32::from(first), u32::from(last) + 1);
    let size = end.saturating_sub(first);
    let reserved = if size < 16 { 0 } else { (size / 32).clamp(16, 128).min(size) };
    let middle = first + reserved;
    let upper = end.saturating_sub(middle);
    let random = getrandom::u32().unwrap_or_default();
    let start = middle + if upper == 0 { 0 } else { random % upper };
    let all = (start..end).chain(middle..start).chain(first..middle);
    all.filter_map(|port| u16::try_from(port).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_to_one_service_only() {
        let ports = Arc::new(NodePorts::new(30000, 30003));
        ports.seed([30001]);
        let mut operation = PortOperation::new(ports.clone(), false);
        assert_eq!(operation.allocate(30001), Err("provided port is already allocated".to_owned()));
        assert_eq!(
            operation.allocate(80),
            Err("provided port is not in the valid range. The range of valid ports is 30000-30003"
                .to_owned())
        );
        let mut got: Vec<u16> = (0..3).map(|_| operation.allocate_next().unwrap()).collect();
        got.sort_unstable();
        assert_eq!(got, [30000, 30002, 30003]);
        assert_eq!(operation.allocate_next(), Err("range is full"));
        drop(operation);
        let mut again = PortOperation::new(ports.clone(), false);
        assert_eq!(again.allocate(30000), Ok(()));
        again.keep();
        let mut other = PortOperation::new(ports.clone(), false);
        assert!(other.allocate(30000).is_err());
        ports.release([30000]);
        assert_eq!(other.allocate(30000), Ok(()));
    }

    #[test]
    fn a_dry_run_takes_nothing() {
        let ports = Arc::new(NodePorts::new(30000, 30000));
        let mut dry = PortOperation::new(ports.clone(), true);
        assert_eq!((dry.allocate_next(), dry.allocate_next()), (Ok(1), Ok(2)));
        assert_eq!(dry.allocate(30000), Ok(()));
        assert_eq!(PortOperation::new(ports, false).allocate_next(), Ok(30000));
    }
}
