//! Open connections, kept for the next call, and the bounds on their number.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use hyper::client::conn::http1;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::{
    Body,
    connection::{Http2, Sender},
    limits::Limits,
    origin::HostPort,
};

/// Connections with the same key can be used for the same calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) dial: HostPort,
    /// None: plain HTTP.
    pub(crate) server_name: Option<String>,
    /// The request asks for an upgrade.
    pub(crate) http1_only: bool,
    /// Which certificates it was made with.
    pub(crate) tls_generation: u64,
}

pub(crate) struct Pool {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hosts: HashMap<Key, Host>,
    /// A task closes what has been idle for too long. It runs while anything is idle.
    reaping: bool,
}

struct Host {
    /// One permit for each HTTP/1.1 connection that is in use, for each upgraded one and for each
    /// connection being opened.
    ///
    /// Invariant: a connection is opened only by a call that holds a permit and has found none idle,
    /// and becomes idle before its permit is returned; so idle ones and those in use together never
    /// exceed the number of permits.
    permits: Arc<Semaphore>,
    /// The one used last is at the end.
    http1: Vec<Idle<http1::SendRequest<Body>>>,
    /// Several only while there are more calls at a time than one connection takes.
    http2: Vec<Idle<Http2>>,
}

struct Idle<S> {
    since: Instant,
    sender: S,
}

/// The right to use or open one connection.
pub(crate) type Permit = OwnedSemaphorePermit;

impl Pool {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    /// A shared HTTP/2 connection, which takes no permit.
    pub(crate) fn shared(&self, key: &Key) -> Option<Sender> {
        self.state.lock().hosts.get_mut(key)?.shared(&self.limits)
    }

    pub(crate) async fn permit(&self, key: &Key) -> Permit {
        let permits = self.permits(key);
        permits.acquire_owned().await.expect("the semaphore is never closed")
    }

    /// A permit, unless all are in use.
    pub(crate) fn try_permit(&self, key: &Key) -> Option<Permit> {
        self.permits(key).try_acquire_owned().ok()
    }

    fn permits(&self, key: &Key) -> Arc<Semaphore> {
        let mut state = self.state.lock();
        if !state.hosts.contains_key(key) {
            // Hosts come and go with the addresses of services; old generations go for good.
            state.hosts.retain(|_, host| !host.is_unused());
        }
        let host = state.hosts.entry(key.clone()).or_insert_with(|| Host::new(&self.limits));
        host.permits.clone()
    }

    /// An idle connection, if there is one.
    pub(crate) fn take(&self, key: &Key) -> Option<Sender> {
        let mut state = self.state.lock();
        let host = state.hosts.get_mut(key)?;
        host.shared(&self.limits).or_else(|| host.take(&self.limits))
    }

    /// Makes an HTTP/2 connection available to all calls. If another call was first, that one's
    /// connection is used and the new one is dropped: a burst of first calls ends with one connection.
    /// Not so with `replace`, when the connection in the pool has just failed.
    pub(crate) fn share(self: &Arc<Self>, key: &Key, new: Http2, replace: bool) -> Http2 {
        let mut state = self.state.lock();
        let host = state.hosts.entry(key.clone()).or_insert_with(|| Host::new(&self.limits));
        if replace {
            host.http2.clear();
        } else if let Some(Sender::Http2(first)) = host.shared(&self.limits) {
            return first;
        }
        host.http2.push(Idle { since: Instant::now(), sender: new.clone() });
        self.start_reaping(&mut state);
        new
    }

    /// Keeps an HTTP/1.1 connection once its response has been read to the end. If the body is
    /// dropped before, hyper closes the connection.
    pub(crate) fn keep_when_ready(
        self: &Arc<Self>,
        key: Key,
        mut sender: http1::SendRequest<Body>,
        permit: Permit,
    ) {
        // The client may go first; its connections then end with their calls.
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            let ready = sender.ready().await;
            if let (Ok(()), Some(pool)) = (ready, pool.upgrade()) {
                pool.keep(&key, sender);
            }
            drop(permit);
        });
    }

    fn keep(self: &Arc<Self>, key: &Key, sender: http1::SendRequest<Body>) {
        let mut state = self.state.lock();
        let Some(host) = state.hosts.get_mut(key) else { return };
        if host.http1.len() < self.limits.idle_connections_per_host_max {
            host.http1.push(Idle { since: Instant::now(), sender });
            self.start_reaping(&mut state);
        }
    }

    fn start_reaping(self: &Arc<Self>, state: &mut State) {
        if !state.reaping {
            state.reaping = true;
            tokio::spawn(reap(Arc::downgrade(self), Instant::now() + self.limits.idle_timeout));
        }
    }

    /// Closes what has been idle for too long. Some: when to look again.
    fn close_idle(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        for host in state.hosts.values_mut() {
            host.http1.retain(|idle| is_usable(idle.since, idle.sender.is_closed(), &self.limits));
            host.http2
                .retain(|shared| shared.sender.in_use() > 0 || shared.is_usable(&self.limits));
        }
        state.hosts.retain(|_, host| !host.is_unused());
        let oldest = state.hosts.values().flat_map(Host::idle_since).min();
        state.reaping = oldest.is_some();
        // A shared connection in use may have been taken long ago; it is looked at again later.
        let soonest = Instant::now() + self.limits.idle_timeout / 4;
        oldest.map(|since| (since + self.limits.idle_timeout).max(soonest))
    }
}

/// Lets the next idle connection start the task again, if it panics.
struct Reaping(Weak<Pool>);

impl Drop for Reaping {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(pool) = self.0.upgrade()
        {
            pool.state.lock().reaping = false;
        }
    }
}

async fn reap(pool: Weak<Pool>, first: Instant) {
    let reaping = Reaping(pool);
    let mut next = first;
    loop {
        tokio::time::sleep_until(next).await;
        match reaping.0.upgrade().and_then(|pool| pool.close_idle()) {
            Some(at) => next = at,
            None => return,
        }
    }
}

impl Idle<Http2> {
    fn is_usable(&self, limits: &Limits) -> bool {
        is_usable(self.since, self.sender.is_closed(), limits)
    }
}

fn is_usable(since: Instant, closed: bool, limits: &Limits) -> bool {
    !closed && since.elapsed() < limits.idle_timeout
}

impl Host {
    fn new(limits: &Limits) -> Self {
        let permits = Arc::new(Semaphore::new(limits.connections_per_host_max));
        Self { permits, http1: Vec::new(), http2: Vec::new() }
    }

    /// A connection that takes one more call. None: all are full, and another may be opened.
    fn shared(&mut self, limits: &Limits) -> Option<Sender> {
        self.http2.retain(|shared| shared.is_usable(limits) || shared.sender.in_use() > 0);
        self.http2.retain(|shared| !shared.sender.is_closed());
        // The fullest first, so that those that are not needed any more become idle.
        let free =
            |shared: &&mut Idle<Http2>| shared.sender.in_use() < limits.streams_per_connection_max;
        let shared = if self.http2.len() < limits.connections_per_host_max {
            self.http2.iter_mut().filter(free).max_by_key(|one| one.sender.in_use())?
        } else {
            self.http2.iter_mut().min_by_key(|one| one.sender.in_use())?
        };
        shared.since = Instant::now();
        Some(Sender::Http2(shared.sender.clone()))
    }

    fn take(&mut self, limits: &Limits) -> Option<Sender> {
        while let Some(idle) = self.http1.pop() {
            if is_usable(idle.since, idle.sender.is_closed(), limits) {
                return Some(Sender::Http1(idle.sender));
            }
        }
        None
    }

    fn idle_since(&self) -> impl Iterator<Item = Instant> {
        let http1 = self.http1.iter().map(|idle| idle.since);
        http1.chain(self.http2.iter().map(|idle| idle.since))
    }

    /// Nothing is idle, in use or waited for.
    fn is_unused(&self) -> bool {
        // Permits and calls that wait for one hold a reference to the semaphore.
        self.http1.is_empty() && self.http2.is_empty() && Arc::strong_count(&self.permits) == 1
    }
}
