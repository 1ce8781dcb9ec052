//! The requests of a priority level, in slots that are used again.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use meta::{RequestInfo, Str};

use super::{Arrival, SERVICE_NANOS};
use crate::metrics::SchemaMetrics;
use crate::seat_seconds::{Nanos, SeatSeconds};
use crate::work_estimate::WorkEstimate;

/// Notifies a waiting request that it has been dispatched.
pub(crate) type Waker = tokio::sync::oneshot::Sender<()>;

/// No request, no queue.
pub(super) const NONE: u32 = u32::MAX;

/// A slot. Its owner gives it back once, so that it cannot belong to another request by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestId(u32);

impl RequestId {
    pub(super) fn new(index: u32) -> Self {
        Self(index)
    }

    pub(super) fn index(self) -> u32 {
        self.0
    }
}

#[derive(Default)]
pub(super) struct Requests {
    slots: Vec<Request>,
    free: Vec<u32>,
}

pub(super) struct Request {
    state: State,
    pub(super) queue: u32,
    /// Neighbours in the queue.
    previous: u32,
    next: u32,
    pub(super) estimate: WorkEstimate,
    /// What the request is charged when it is dispatched.
    pub(super) total_work: SeatSeconds,
    arrival: Nanos,
    pub(super) arrival_r: SeatSeconds,
    pub(super) start: Nanos,
    waker: Option<Waker>,
    /// None in a free slot.
    schema: Option<Arc<SchemaMetrics>>,
    description: Description,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Waiting,
    Executing,
}

/// What dumps say of a request. The path's buffer is used again by the slot's next request.
#[derive(Clone, Debug, Default)]
struct Description {
    distinguisher: Str,
    user: Str,
    verb: Str,
    path: String,
    namespace: Str,
    name: Str,
    group: Str,
    version: Str,
    resource: Str,
    subresource: Str,
}

/// Longer buffers are freed with their request: paths may have a megabyte.
const PATH_CAPACITY_KEPT: usize = 256;

impl Description {
    fn set(&mut self, distinguisher: &Str, user: &Str, info: &RequestInfo) {
        self.path.clear();
        self.path.push_str(&info.path);
        self.distinguisher.clone_from(distinguisher);
        self.user.clone_from(user);
        self.verb.clone_from(&info.verb);
        self.namespace.clone_from(&info.namespace);
        self.name.clone_from(&info.name);
        self.group.clone_from(&info.group);
        self.version.clone_from(&info.version);
        self.resource.clone_from(&info.resource);
        self.subresource.clone_from(&info.subresource);
    }
}

impl Request {
    pub(super) fn schema(&self) -> &SchemaMetrics {
        self.schema.as_ref().expect("only a free slot has none")
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }
}

impl Requests {
    pub(super) fn insert(
        &mut self,
        arrival: &Arrival<'_>,
        queue: u32,
        now: Nanos,
        arrival_r: SeatSeconds,
    ) -> RequestId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Request::empty());
            self.slots.len() as u32 - 1
        });
        let request = &mut self.slots[index as usize];
        let estimate = arrival.estimate;
        let lingers = u64::try_from(estimate.additional_latency.as_nanos()).unwrap_or(u64::MAX);
        request.state = State::Waiting;
        request.queue = queue;
        request.estimate = estimate;
        request.total_work = SeatSeconds::new(estimate.initial_seats, SERVICE_NANOS)
            + SeatSeconds::new(estimate.final_seats, lingers);
        request.arrival = now;
        request.arrival_r = arrival_r;
        request.schema = Some(Arc::clone(arrival.schema));
        request.description.set(&arrival.distinguisher, arrival.user, arrival.info);
        RequestId(index)
    }

    /// Frees the slot.
    pub(super) fn remove(&mut self, id: RequestId) -> Arc<SchemaMetrics> {
        let request = &mut self[id];
        request.state = State::Free;
        request.waker = None;
        if request.description.path.capacity() > PATH_CAPACITY_KEPT {
            request.description.path = String::new();
        }
        let schema = request.schema.take().expect("only a free slot has none");
        self.free.push(id.0);
        schema
    }

    pub(super) fn start(&mut self, id: RequestId) {
        let request = &mut self[id];
        request.state = State::Executing;
        if let Some(waker) = request.waker.take() {
            // A client that left gives the slot back itself.
            let _ = waker.send(());
        }
    }

    pub(super) fn set_waker(&mut self, id: RequestId, waker: Waker) {
        self[id].waker = Some(waker);
    }

    pub(super) fn is_executing(&self, id: RequestId) -> bool {
        self[id].state == State::Executing
    }

    /// Appends a request to a queue whose newest one is `tail`.
    pub(super) fn link(&mut self, id: RequestId, tail: u32) {
        self[id].previous = tail;
        self[id].next = NONE;
        if tail != NONE {
            self.slots[tail as usize].next = id.0;
        }
    }

    /// Takes a request out of its queue; returns its neighbours.
    pub(super) fn unlink(&mut self, id: RequestId) -> (u32, u32) {
        let (previous, next) = (self[id].previous, self[id].next);
        if previous != NONE {
            self.slots[previous as usize].next = next;
        }
        if next != NONE {
            self.slots[next as usize].previous = previous;
        }
        (previous, next)
    }

    pub(super) fn at(&self, index: u32) -> &Request {
        &self.slots[index as usize]
    }

    pub(super) fn executing(&self) -> impl Iterator<Item = u32> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, request)| request.state == State::Executing)
            .map(|(index, _)| index as u32)
    }

    #[cfg(test)]
    pub(super) fn path_bytes(&self) -> usize {
        self.slots.iter().map(|request| request.description.path.capacity()).sum()
    }

    pub(super) fn dump(&self, index: u32, place: i64) -> RequestDump {
        let request = self.at(index);
        let said = &request.description;
        RequestDump {
            schema: request.schema().name.clone(),
            queue: if request.queue == NONE { -1 } else { i64::from(request.queue) },
            place,
            distinguisher: said.distinguisher.clone(),
            arrival: request.arrival,
            estimate: request.estimate,
            start: (request.state == State::Executing).then_some(request.start),
            user: said.user.clone(),
            verb: said.verb.clone(),
            path: said.path.clone(),
            namespace: said.namespace.clone(),
            name: said.name.clone(),
            group: said.group.clone(),
            version: said.version.clone(),
            resource: said.resource.clone(),
            subresource: said.subresource.clone(),
        }
    }
}

impl Request {
    fn empty() -> Self {
        Self {
            state: State::Free,
            queue: NONE,
            previous: NONE,
            next: NONE,
            estimate: WorkEstimate::MINIMUM,
            total_work: SeatSeconds::ZERO,
            arrival: 0,
            arrival_r: SeatSeconds::ZERO,
            start: 0,
            waker: None,
            schema: None,
            description: Description::default(),
        }
    }
}

impl Index<RequestId> for Requests {
    type Output = Request;
    fn index(&self, id: RequestId) -> &Request {
        &self.slots[id.0 as usize]
    }
}

impl IndexMut<RequestId> for Requests {
    fn index_mut(&mut self, id: RequestId) -> &mut Request {
        &mut self.slots[id.0 as usize]
    }
}

/// A row of `dump_requests`.
pub(crate) struct RequestDump {
    pub(crate) schema: Str,
    /// -1: none.
    pub(crate) queue: i64,
    /// -1: executing.
    pub(crate) place: i64,
    pub(crate) distinguisher: Str,
    pub(crate) arrival: Nanos,
    pub(crate) estimate: WorkEstimate,
    pub(crate) start: Option<Nanos>,
    pub(crate) user: Str,
    pub(crate) verb: Str,
    pub(crate) path: String,
    pub(crate) namespace: Str,
    pub(crate) name: Str,
    pub(crate) group: Str,
    pub(crate) version: Str,
    pub(crate) resource: Str,
    pub(crate) subresource: Str,
}
