//! Threads for requests that take long to compute: large bodies, long lists in a format that has to
//! be made, compression.
//!
//! The threads of the runtime poll connections, watches and probes. A request that computes for
//! seconds on one of them stops all connections that it polls; here it stops nothing but its like.
//! What the requests wait for meanwhile (the store, webhooks) is still driven by the runtime: a
//! future on this pool gives its thread back while it waits.

use std::{
    collections::VecDeque,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use meta::{ApiError, cancel::Cancel};
use parking_lot::{Condvar, Mutex};
use tokio::{runtime::Handle, sync::oneshot};

/// A pool of threads; clones share it. The threads end with the last clone.
#[derive(Clone)]
pub struct CpuPool(Arc<Owner>);

/// Futures of requests inside at a time; the next one is refused with 429. Each holds a body of up
/// to 3 MiB and what becomes of it.
const REQUESTS_MAX: usize = 512;

/// With 5 they get a quarter of a processor that others are busy on, and all of an idle one.
const NICENESS: i32 = 5;

struct Owner {
    shared: Arc<Shared>,
    requests: Arc<AtomicUsize>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close();
    }
}

#[derive(Default)]
struct Queue {
    /// In the order in which they became ready.
    tasks: VecDeque<Arc<Task>>,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
}

impl CpuPool {
    /// Starts the threads, to be called inside the runtime that drives what their futures wait for.
    pub fn start(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { queue: Mutex::default(), ready: Condvar::new() });
        let owner = Owner { shared: shared.clone(), requests: Arc::default() };
        for number in 0..threads.max(1) {
            let (shared, runtime) = (shared.clone(), Handle::current());
            let thread = thread::Builder::new()
                .name(format!("pintle-cpu-{number}"))
                .stack_size(meta::limits::THREAD_STACK_BYTES);
            thread.spawn(move || {
                let _runtime = runtime.enter();
                // Where it is not allowed, the threads compete with the others.
                let _ = rustix::process::nice(NICENESS);
                shared.work();
            })?;
        }
        Ok(Self(Arc::new(owner)))
    }

    /// Ends the threads although clones are left; what is queued is not run any more.
    pub fn close(&self) {
        self.0.shared.close();
    }

    /// As many threads as there are processors: the threads of the runtime go first all the same.
    pub fn threads() -> usize {
        thread::available_parallelism().map_or(1, usize::from)
    }

    /// Runs the future of a request on the pool. A future that is not waited for any longer is
    /// dropped, in the midst of its computation where that asks [`meta::cancel`].
    pub fn request<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<Pooled<T>, ApiError> {
        let place = PoolPermit::take(&self.0.requests)
            .ok_or(ApiError::Overloaded { retry_after_seconds: 1 })?;
        Ok(self.run(async move {
            let _place = place;
            future.await
        }))
    }

    /// Runs a short computation on the pool: one chunk of a body.
    pub(crate) fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pooled<T> {
        self.run(async move { work() })
    }

    fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Pooled<T> {
        let (sender, result) = oneshot::channel();
        let future = async move {
            // The receiver may be gone, and the result with it.
            let _ = sender.send(AssertUnwindSafe(future).catch_unwind().await);
        };
        let task = Arc::new(Task {
            state: AtomicU8::new(IDLE),
            future: Mutex::new(Some(future.boxed())),
            cancel: Cancel::default(),
            shared: self.0.shared.clone(),
        });
        task.wake_by_ref();
        Pooled { task, result }
    }
}

/// One of the bounded number of requests.
struct PoolPermit(Arc<AtomicUsize>);

impl PoolPermit {
    fn take(count: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(count.clone());
        (count.fetch_add(1, Ordering::Relaxed) < REQUESTS_MAX).then_some(place)
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result to be. Dropping it cancels the work.
pub struct Pooled<T> {
    task: Arc<Task>,
    result: oneshot::Receiver<thread::Result<T>>,
}

impl<T> Future for Pooled<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match std::task::ready!(self.result.poll_unpin(cx)) {
            Ok(Ok(result)) => Poll::Ready(result),
            // A panic is the request's, as it would be on this thread.
            Ok(Err(panic)) => resume_unwind(panic),
            // Only a process that ends drops a task that is waited for.
            Err(_) => Poll::Pending,
        }
    }
}

impl<T> Drop for Pooled<T> {
    fn drop(&mut self) {
        self.task.cancel.cancel();
        // So that a future that waits for something is dropped now.
        self.task.wake_by_ref();
    }
}

struct Task {
    state: AtomicU8,
    /// Gone once it has ended. Only the thread that has taken the task from the queue locks it.
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    cancel: Cancel,
    shared: Arc<Shared>,
}

/// Waits for its waker.
const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
/// Woken while running: runs again.
const WOKEN: u8 = 3;
const ENDED: u8 = 4;

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let next = |state| match state {
            IDLE => Some(QUEUED),
            RUNNING => Some(WOKEN),
            _ => None,
        };
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        if before == Ok(IDLE) {
            self.shared.push(self.clone());
        }
    }
}

impl Task {
    fn run(self: Arc<Self>) {
        self.state.store(RUNNING, Ordering::Release);
        let mut future = self.future.lock();
        let waker = Waker::from(self.clone());
        let ended = self.cancel.is_requested()
            || match future.as_mut() {
                None => true,
                Some(future) => {
                    let poll = || future.as_mut().poll(&mut Context::from_waker(&waker));
                    // The future catches its own panics; what is left is a panic while it is
                    // dropped, which must not end the thread.
                    let polled = catch_unwind(AssertUnwindSafe(|| self.cancel.scope(poll)));
                    polled.map_or(true, |polled| polled.is_ready())
                }
            };
        if ended {
            let future = future.take();
            self.state.store(ENDED, Ordering::Release);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
            return;
        }
        drop(future);
        let idle = self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if idle.is_err() {
            // Behind the others: a future that yields lets them run.
            self.state.store(QUEUED, Ordering::Release);
            let shared = self.shared.clone();
            shared.push(self);
        }
    }
}

impl Shared {
    fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        let left = std::mem::take(&mut queue.tasks);
        drop(queue);
        self.ready.notify_all();
        // Not under the lock: what they hold may wake others.
        drop(left);
    }

    fn push(&self, task: Arc<Task>) {
        self.queue.lock().tasks.push_back(task);
        self.ready.notify_one();
    }

    fn work(&self) {
        loop {
            let mut queue = self.queue.lock();
            let task = loop {
                if queue.closed {
                    return;
                }
                if let Some(task) = queue.tasks.pop_front() {
                    break task;
                }
                self.ready.wait(&mut queue);
            };
            drop(queue);
            task.run();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Barrier, mpsc},
        time::Duration,
    };

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_future_computes_on_the_pool_and_waits_on_the_runtime() {
        let pool = CpuPool::start(2).expect("threads");
        let name = || thread::current().name().unwrap_or_default().to_owned();
        let (first, second) = pool
            .request(async move {
                let first = name();
                tokio::time::sleep(Duration::from_millis(5)).await;
                tokio::task::yield_now().await;
                let spawned = tokio::spawn(async move { name() }).await.expect("no panic");
                (first, (name(), spawned))
            })
            .expect("a place")
            .await;
        assert!(first.starts_with("pintle-cpu-") && second.0.starts_with("pintle-cpu-"));
        assert!(!second.1.starts_with("pintle-cpu-"), "spawned tasks are the runtime's");
    }

    #[tokio::test]
    async fn many_futures_that_yield_all_end() {
        let pool = CpuPool::start(2).expect("threads");
        let all = (0..100_usize).map(|at| {
            pool.compute(move || at);
            pool.run(async move {
                for _ in 0..at {
                    tokio::task::yield_now().await;
                }
                at
            })
        });
        let all = futures_util::future::join_all(all).await;
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn work_that_is_not_waited_for_stops() {
        let pool = CpuPool::start(1).expect("threads");
        let held = Arc::new(());
        // One that computes, one that waits, one that has not begun.
        let (begun, begins) = mpsc::channel();
        let (ended, ends) = mpsc::channel();
        let guard = held.clone();
        let waiting = pool.run(async move {
            std::future::pending::<()>().await;
            drop(guard);
        });
        let computing = pool.compute(move || {
            begun.send(()).expect("waited for");
            while !meta::cancel::requested() {
                thread::yield_now();
            }
            ended.send(()).expect("waited for");
        });
        let guard = held.clone();
        let queued = pool.compute(move || drop(guard));
        begins.recv_timeout(Duration::from_secs(10)).expect("it computes");
        drop(waiting);
        drop(queued);
        drop(computing);
        ends.recv_timeout(Duration::from_secs(10)).expect("it has stopped");
        // The thread is free again, and the others are dropped.
        pool.compute(|| ()).await;
        assert_eq!(Arc::strong_count(&held), 1);
    }

    /// A decoder or validator in the midst of its work.
    #[tokio::test]
    async fn a_walk_that_is_not_waited_for_ends_at_its_next_checkpoint() {
        let pool = CpuPool::start(1).expect("threads");
        let (begun, begins) = mpsc::channel();
        let endless = pool.compute(move || {
            begun.send(()).expect("waited for");
            loop {
                meta::cancel::checkpoint();
                thread::yield_now();
            }
        });
        begins.recv_timeout(Duration::from_secs(10)).expect("it computes");
        drop::<Pooled<()>>(endless);
        assert_eq!(pool.compute(|| 1).await, 1, "the thread is free again");
    }

    #[tokio::test]
    async fn a_panic_is_the_requests_own() {
        let pool = CpuPool::start(1).expect("threads");
        let panicking = pool.compute(|| panic!("asked for"));
        assert!(AssertUnwindSafe(panicking).catch_unwind().await.is_err());
        assert_eq!(pool.compute(|| 1).await, 1);
    }

    #[tokio::test]
    async fn the_number_of_requests_is_bounded() {
        let pool = CpuPool::start(1).expect("threads");
        let gate = Arc::new(Barrier::new(2));
        let inside = gate.clone();
        let blocking = pool.compute(move || {
            inside.wait();
        });
        let all: Vec<_> = (0..REQUESTS_MAX).map(|_| pool.request(async {})).collect();
        assert!(all.iter().all(Result::is_ok));
        assert!(matches!(pool.request(async {}), Err(ApiError::Overloaded { .. })));
        gate.wait();
        blocking.await;
        for request in all {
            request.expect("a place").await;
        }
        assert!(pool.request(async {}).is_ok());
    }
}
