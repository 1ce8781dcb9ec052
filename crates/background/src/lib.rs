//! The background tasks of the server: reflectors, indexes, controllers, reloaders, probes.
//!
//! A task that panics would be gone without a trace, and the server would go on with what it kept
//! current: rights that were taken away stay, certificates run out. Every task has a name and a rule for
//! that case; `/metrics` has how often it came. `tests/spawns.rs` accounts for what is started in other
//! ways: it ends with a request, a connection or its owner.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use tokio::task::{AbortHandle, JoinSet};

/// Starts and stops the tasks; clones share them.
#[derive(Clone)]
pub struct Tasks(Arc<Inner>);

struct Inner {
    running: Mutex<JoinSet<()>>,
    panics: IntCounterVec,
    up: IntGaugeVec,
    /// Ends the process because of the task of this name.
    end_process: Box<dyn Fn(&'static str) + Send + Sync>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new(end_process)
    }
}

impl Tasks {
    /// `end_process` is called when a critical task of that name has panicked.
    pub fn new(end_process: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        let panics = Opts::new(
            "pintle_background_task_panics_total",
            "Panics of background tasks; those that the server can do without are started again.",
        );
        let up = Opts::new("pintle_background_task_up", "Background tasks that are running.");
        Self(Arc::new(Inner {
            running: Mutex::default(),
            panics: IntCounterVec::new(panics, &["task"]).expect("valid names"),
            up: IntGaugeVec::new(up, &["task"]).expect("valid names"),
            end_process: Box::new(end_process),
        }))
    }

    pub fn register(&self, registry: &Registry) -> Result<(), String> {
        let register = |metric| registry.register(metric).map_err(|error| error.to_string());
        register(Box::new(self.0.panics.clone()))?;
        register(Box::new(self.0.up.clone()))
    }

    /// How many tasks of this name are running.
    pub fn running(&self, name: &str) -> i64 {
        self.0.up.with_label_values(&[name]).get()
    }

    /// How often tasks of this name have panicked.
    pub fn panics(&self, name: &str) -> u64 {
        self.0.panics.with_label_values(&[name]).get()
    }

    /// Starts a task that the server cannot do without and that cannot start over: when it panics, the
    /// process ends, as kube-apiserver's does.
    pub fn critical(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let tasks = self.0.clone();
        self.spawn(async move {
            if tasks.run(name, task).await.is_err() {
                (tasks.end_process)(name);
            }
        });
    }

    /// Starts a piece of work that ends by itself, and that its owner repeats if it has to: a panic is
    /// counted and said.
    pub fn once(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let tasks = self.0.clone();
        self.spawn(async move {
            let _ = tasks.run(name, work).await;
        });
    }

    /// Starts a task that is made anew after a panic, later and later. An object that makes a controller
    /// panic stops that controller and nothing else. The handle ends it before the others.
    pub fn restarting<F>(
        &self,
        name: &'static str,
        mut make: impl FnMut() -> F + Send + 'static,
    ) -> AbortHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let tasks = self.0.clone();
        self.spawn(async move {
            let mut pause = RESTART_MIN;
            loop {
                let began = Instant::now();
                // Making it may panic as well.
                let made = std::panic::catch_unwind(AssertUnwindSafe(&mut make));
                let ended = match made {
                    Ok(task) => tasks.run(name, task).await,
                    Err(_) => {
                        tasks.panicked(name);
                        Err(Panicked)
                    }
                };
                if ended.is_ok() {
                    return;
                }
                if began.elapsed() > RESTART_MAX {
                    pause = RESTART_MIN;
                }
                tracing::warn!(task = name, retry_in = ?pause, "starting a background task again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RESTART_MAX);
            }
        })
    }

    /// Stops all tasks, those that are in the midst of something at their next pause. Returns how many
    /// did not stop in time.
    pub async fn stop(&self, grace: Duration) -> usize {
        let mut running = std::mem::take(&mut *self.0.running.lock());
        running.abort_all();
        let all = async { while running.join_next().await.is_some() {} };
        let stopped = tokio::time::timeout(grace, all).await.is_ok();
        if stopped { 0 } else { running.len() }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut running = self.0.running.lock();
        let handle = running.spawn(task);
        // Those that have ended are forgotten.
        while running.try_join_next().is_some() {}
        handle
    }
}

const RESTART_MIN: Duration = Duration::from_secs(1);
const RESTART_MAX: Duration = Duration::from_mins(1);

struct Panicked;

/// Counts a task for as long as it is there, however it ends.
struct Up(IntGauge);

impl Up {
    fn new(up: &IntGaugeVec, name: &str) -> Self {
        let up = up.with_label_values(&[name]);
        up.inc();
        Self(up)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Inner {
    async fn run(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Panicked> {
        let _up = Up::new(&self.up, name);
        let ended = AssertUnwindSafe(task).catch_unwind().await;
        ended.map_err(|_| {
            self.panicked(name);
            Panicked
        })
    }

    fn panicked(&self, name: &'static str) {
        self.panics.with_label_values(&[name]).inc();
        tracing::error!(task = name, "background task panicked");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what the task kept current would be used as it is; nothing acknowledged is lost"
)]
fn end_process(name: &'static str) {
    tracing::error!(task = name, "the server cannot go on without this task; exiting");
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_started_again_with_pauses() {
        let tasks = Tasks::new(|name| panic!("{name} does not end the process"));
        let (starts, began) = (Arc::new(AtomicUsize::new(0)), tokio::time::Instant::now());
        let (done, ends) = tokio::sync::oneshot::channel();
        let (count, mut done) = (starts.clone(), Some(done));
        tasks.restarting("flaky", move || {
            let start = count.fetch_add(1, Ordering::Relaxed);
            assert!(start != 0, "the first is not even made");
            let done = (start == 3).then(|| done.take()).flatten();
            async move {
                assert!(start == 3, "asked for");
                if let Some(done) = done {
                    done.send(()).expect("waited for");
                }
            }
        });
        ends.await.expect("it ends at last");
        assert_eq!(starts.load(Ordering::Relaxed), 4);
        assert_eq!(began.elapsed(), Duration::from_secs(1 + 2 + 4));
        assert_eq!(tasks.panics("flaky"), 3);
    }

    #[tokio::test]
    async fn a_critical_task_that_panics_ends_the_process() {
        let (ended, mut ends) = tokio::sync::mpsc::channel(1);
        let tasks = Tasks::new(move |name| ended.try_send(name).expect("one task panics"));
        tasks.critical("good", async {});
        tasks.critical("index", async { panic!("asked for") });
        assert_eq!(ends.recv().await, Some("index"));
        assert_eq!((tasks.panics("index"), tasks.panics("good")), (1, 0));
    }

    #[tokio::test]
    async fn work_that_panics_is_counted_and_not_repeated() {
        let tasks = Tasks::new(|name| panic!("{name} does not end the process"));
        let (done, ends) = tokio::sync::oneshot::channel();
        tasks.once("work", async move {
            let _done: tokio::sync::oneshot::Sender<()> = done;
            panic!("asked for");
        });
        ends.await.expect_err("it has no result");
        while tasks.running("work") > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(tasks.panics("work"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn all_tasks_stop_in_time() {
        let held = Arc::new(());
        let tasks = Tasks::default();
        let guard = held.clone();
        tasks.critical("waiting", async move {
            std::future::pending::<()>().await;
            drop(guard);
        });
        let guard = held.clone();
        tasks.restarting("pausing", move || {
            drop(guard.clone());
            async { panic!("asked for") }
        });
        tokio::task::yield_now().await;
        assert_eq!(tasks.running("waiting"), 1);
        assert_eq!(tasks.stop(Duration::from_secs(1)).await, 0);
        assert_eq!(tasks.running("waiting"), 0);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
