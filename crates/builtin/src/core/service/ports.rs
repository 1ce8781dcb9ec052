//! Node ports: which are taken. A server that has its store to itself keeps that in memory and reads it
//! off the services when it starts; servers that share one keep it there.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use super::{
    metrics::{self, Scope},
    shared_ports::{SharedPorts, leaks_after},
};

/// The ports that services are given on every node.
pub(crate) struct NodePorts {
    pub(crate) first: u16,
    pub(crate) last: u16,
    taken: Mutex<HashSet<u16>>,
    pub(crate) shared: OnceLock<SharedPorts>,
}

/// Why a port can't be had.
pub(crate) const FULL: &str = "range is full";
const TAKEN: &str = "provided port is already allocated";

impl NodePorts {
    pub(crate) fn new(first: u16, last: u16) -> Self {
        Self { first, last, taken: Mutex::default(), shared: OnceLock::new() }
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<u16>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ports that services have already, whether they lie in the range or not.
    pub(crate) fn seed(&self, ports: impl IntoIterator<Item = u16>) {
        let mut taken = self.taken();
        taken.extend(ports);
        self.count(taken.iter().copied());
    }

    /// Measures how many ports of the range are taken.
    fn count(&self, taken: impl Iterator<Item = u16>) {
        let range = self.first..=self.last;
        let size = usize::from(self.last.saturating_sub(self.first)) + 1;
        metrics::ports_taken(taken.filter(|port| range.contains(port)).count(), size);
    }

    /// Takes a port, or says why not.
    async fn take(&self, port: u16, dry_run: bool) -> Result<(), String> {
        let refused = || Err(TAKEN.to_owned());
        if let Some(shared) = self.shared.get() {
            let take = |bitmap: &mut super::shared_ports::Bitmap| {
                if bitmap.has(port) {
                    return refused();
                }
                if !dry_run {
                    bitmap.set(port, true);
                    self.count((self.first..=self.last).filter(|port| bitmap.has(*port)));
                }
                Ok(())
            };
            return shared.change(take).await;
        }
        let mut taken = self.taken();
        if taken.contains(&port) {
            return refused();
        }
        if !dry_run {
            taken.insert(port);
            self.count(taken.iter().copied());
        }
        Ok(())
    }

    /// Takes any port that is free.
    async fn take_any(&self) -> Result<u16, String> {
        let candidates: Vec<u16> = candidates(self.first, self.last).collect();
        let full = || FULL.to_owned();
        if let Some(shared) = self.shared.get() {
            let take = |bitmap: &mut super::shared_ports::Bitmap| {
                let free = candidates.iter().copied().find(|port| !bitmap.has(*port));
                let port = free.ok_or_else(full)?;
                bitmap.set(port, true);
                self.count((self.first..=self.last).filter(|port| bitmap.has(*port)));
                Ok(port)
            };
            return shared.change(take).await;
        }
        let mut taken = self.taken();
        let free = candidates.into_iter().find(|port| !taken.contains(port));
        let port = free.ok_or_else(full)?;
        taken.insert(port);
        self.count(taken.iter().copied());
        Ok(port)
    }

    /// Brings the ports that are taken together with those that services have. A port that no
    /// service has is released when it was seen so several times in a row: a service may be about
    /// to be written. Returns the ports that were not recorded.
    pub(crate) async fn repair(
        &self,
        services: &[u16],
        leaks: &mut HashMap<u16, u32>,
    ) -> Result<Vec<u16>, String> {
        if let Some(shared) = self.shared.get() {
            return shared.repair(services, leaks).await;
        }
        let mut taken = self.taken();
        let missing = services.iter().copied().filter(|port| taken.insert(*port)).collect();
        let unused: Vec<u16> =
            taken.iter().copied().filter(|port| !services.contains(port)).collect();
        *leaks = leaks_after(leaks, unused, |port| {
            metrics::port_repaired("leak");
            taken.remove(&port);
        });
        self.count(taken.iter().copied());
        Ok(missing)
    }

    pub(crate) async fn release(&self, ports: Vec<u16>) {
        if ports.is_empty() {
            return;
        }
        if let Some(shared) = self.shared.get() {
            let give_back = |bitmap: &mut super::shared_ports::Bitmap| {
                for port in &ports {
                    bitmap.set(*port, false);
                }
                self.count((self.first..=self.last).filter(|port| bitmap.has(*port)));
                Ok(())
            };
            if let Err(error) = shared.change(give_back).await {
                tracing::warn!(?ports, "cannot release node ports, the repair will: {error}");
            }
            return;
        }
        let mut taken = self.taken();
        for port in ports {
            taken.remove(&port);
        }
        self.count(taken.iter().copied());
    }
}

/// What one write takes; given back when it is dropped before it is kept.
pub(crate) struct PortOperation {
    ports: Arc<NodePorts>,
    dry_run: bool,
    /// Ports of the range, unless nothing is really taken.
    pub(crate) allocated: Vec<i64>,
    kept: bool,
}

impl PortOperation {
    pub(crate) fn new(ports: Arc<NodePorts>, dry_run: bool) -> Self {
        Self { ports, dry_run, allocated: Vec::new(), kept: false }
    }

    /// A port that the client wants.
    pub(crate) async fn allocate(&mut self, port: i64) -> Result<(), String> {
        let NodePorts { first, last, .. } = *self.ports;
        if self.allocated.contains(&port) {
            return Err(TAKEN.to_owned());
        }
        let wanted = u16::try_from(port).ok().filter(|port| (first..=last).contains(port));
        // Compat: a dry run doesn't look whether there is such a port.
        if let Some(wanted) = wanted {
            let taken = self.ports.take(wanted, self.dry_run).await;
            if !self.dry_run {
                metrics::port_allocated(Scope::Static, taken.is_ok());
            }
            taken?;
        } else if !self.dry_run {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {first}-{last}"
            ));
        }
        self.allocated.push(port);
        Ok(())
    }

    /// Any port that is free.
    pub(crate) async fn allocate_next(&mut self) -> Result<i64, String> {
        let port = if self.dry_run {
            // Compat: a dry run looks for nothing and counts on from here, or from 0 if the client gave
            // a negative port.
            self.allocated.iter().max().map_or(32769, |max| (*max).max(0).saturating_add(1))
        } else {
            let taken = self.ports.take_any().await;
            metrics::port_allocated(Scope::Dynamic, taken.is_ok());
            i64::from(taken?)
        };
        self.allocated.push(port);
        Ok(port)
    }

    pub(crate) fn supply(&self) -> Arc<NodePorts> {
        self.ports.clone()
    }

    /// What was allocated so far; the caller commits or releases it.
    pub(crate) fn take(&mut self) -> Self {
        let allocated = std::mem::take(&mut self.allocated);
        Self { ports: self.ports.clone(), dry_run: self.dry_run, allocated, kept: false }
    }

    /// The write did not go through: the ports are free when this returns.
    pub(crate) async fn give_back(&mut self) {
        let allocated = self.taken();
        if !self.dry_run {
            self.ports.release(allocated).await;
        }
    }

    /// What is really taken, which is no longer this operation's.
    fn taken(&mut self) -> Vec<u16> {
        let allocated = std::mem::take(&mut self.allocated);
        allocated.into_iter().filter_map(|port| u16::try_from(port).ok()).collect()
    }

    /// The write went through.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for PortOperation {
    fn drop(&mut self) {
        if self.kept || self.dry_run || self.allocated.is_empty() {
            return;
        }
        let (ports, allocated) = (self.ports.clone(), self.taken());
        if self.ports.shared.get().is_none() {
            let mut taken = ports.taken();
            for port in &allocated {
                taken.remove(port);
            }
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { ports.release(allocated).await });
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

    #[tokio::test]
    async fn a_port_is_given_to_one_service_only() {
        let ports = Arc::new(NodePorts::new(30000, 30003));
        ports.seed([30001]);
        let mut operation = PortOperation::new(ports.clone(), false);
        let refused = operation.allocate(30001).await;
        assert_eq!(refused, Err("provided port is already allocated".to_owned()));
        assert_eq!(
            operation.allocate(80).await,
            Err("provided port is not in the valid range. The range of valid ports is 30000-30003"
                .to_owned())
        );
        let mut got = Vec::new();
        for _ in 0..3 {
            got.push(operation.allocate_next().await.unwrap());
        }
        got.sort_unstable();
        assert_eq!(got, [30000, 30002, 30003]);
        assert_eq!(operation.allocate_next().await, Err("range is full".to_owned()));
        drop(operation);
        let mut again = PortOperation::new(ports.clone(), false);
        assert_eq!(again.allocate(30000).await, Ok(()));
        again.keep();
        let mut other = PortOperation::new(ports.clone(), false);
        assert!(other.allocate(30000).await.is_err());
        ports.release(vec![30000]).await;
        assert_eq!(other.allocate(30000).await, Ok(()));
    }

    /// Compat: kube-apiserver answers 1, and 2 for the next port.
    #[tokio::test]
    async fn a_dry_run_counts_from_zero_after_a_negative_port() {
        let ports = Arc::new(NodePorts::new(30000, 30000));
        let mut dry = PortOperation::new(ports, true);
        assert_eq!(dry.allocate(-1).await, Ok(()));
        let counted = (dry.allocate_next().await, dry.allocate_next().await);
        assert_eq!(counted, (Ok(1), Ok(2)));
    }

    #[tokio::test]
    async fn a_dry_run_takes_nothing() {
        let ports = Arc::new(NodePorts::new(30000, 30000));
        let mut dry = PortOperation::new(ports.clone(), true);
        let counted = (dry.allocate_next().await, dry.allocate_next().await);
        assert_eq!(counted, (Ok(32769), Ok(32770)));
        assert_eq!(dry.allocate(30000).await, Ok(()));
        assert_eq!(PortOperation::new(ports, false).allocate_next().await, Ok(30000));
    }
}
