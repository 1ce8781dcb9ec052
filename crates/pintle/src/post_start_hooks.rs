//! Post-start hooks: what the servers of the chain start once the port is open, each with its health
//! check.

use std::{
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use background::Tasks;
use futures_util::future::{LocalBoxFuture, try_join_all};
use meta::{ApiError, GroupVersionResource};
use registry::Kind;
use serve::health::Hook;
use tokio::task::JoinSet;

use crate::{in_process::ControllerClient, options::Options};

/// What a hook runs with.
#[derive(Clone)]
pub(crate) struct HookContext {
    pub(crate) options: Arc<Options>,
    /// The client of hooks and controllers; it goes through admission and validation, without HTTP.
    pub(crate) api: Arc<ControllerClient>,
    /// The built-in kinds that are served.
    pub(crate) kinds: Arc<[Arc<Kind>]>,
    pub(crate) tasks: Tasks,
    /// The bound port.
    pub(crate) port: u16,
    states: Rc<HashMap<&'static str, Hook>>,
}

impl HookContext {
    pub(crate) fn new(
        options: Arc<Options>,
        api: Arc<ControllerClient>,
        kinds: &[Arc<Kind>],
        tasks: Tasks,
        port: u16,
    ) -> Self {
        Self { options, api, kinds: kinds.into(), tasks, port, states: Rc::default() }
    }

    /// Waits for another hook. kube-apiserver's hooks fail and try again instead, which takes seconds.
    pub(crate) async fn after(&self, name: &str) {
        if let Some(hook) = self.states.get(name) {
            hook.finished().await;
        }
    }

    /// The served kinds of a group, each in one version.
    pub(crate) fn kinds_of(&self, group: &str, names: &[&str]) -> Vec<Arc<Kind>> {
        let find = |name: &&str| {
            let mut kinds = self.kinds.iter().filter(|kind| kind.gvk().group == group);
            kinds.find(|kind| kind.gvk().kind == **name).cloned()
        };
        names.iter().filter_map(find).collect()
    }

    /// The kind of a resource; `None` if `--runtime-config` has turned it off.
    pub(crate) fn kind_of(&self, resource: &GroupVersionResource) -> Option<Arc<Kind>> {
        self.kinds.iter().find(|kind| kind.facts.group_version_resource() == *resource).cloned()
    }
}

/// The hooks of all servers.
#[derive(Default)]
pub(crate) struct PostStartHooks(Vec<PostStartHook>);

struct PostStartHook {
    name: &'static str,
    state: Hook,
    run: Box<dyn FnOnce(HookContext) -> Outcome>,
}

type Outcome = LocalBoxFuture<'static, Result<(), String>>;

impl PostStartHooks {
    /// Returns what its health check looks at.
    pub(crate) fn add<F>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(HookContext) -> F + 'static,
    ) -> Hook
    where
        F: Future<Output = Result<(), String>> + 'static,
    {
        let state = Hook::default();
        let run = Box::new(move |cx| -> Outcome { Box::pin(run(cx)) });
        self.0.push(PostStartHook { name, state: state.clone(), run });
        state
    }

    /// Runs all hooks at once, so that the writes of many share their fsyncs. Compat: a hook that fails
    /// ends the process.
    pub(crate) async fn run(self, mut cx: HookContext) -> Result<(), String> {
        cx.states = Rc::new(self.0.iter().map(|hook| (hook.name, hook.state.clone())).collect());
        let hooks = self.0.into_iter().map(|hook| {
            let running = (hook.run)(cx.clone());
            async move {
                let ended = running.await;
                ended.map_err(|why| format!("PostStartHook \"{}\" failed: {why}", hook.name))?;
                hook.state.done();
                Ok(())
            }
        });
        try_join_all(hooks).await.map(drop)
    }
}

/// Runs a part of a hook on any thread of the runtime; it ends with the hook.
pub(crate) async fn on_runtime<T: Send + 'static>(
    part: impl Future<Output = T> + Send + 'static,
) -> T {
    let mut set = JoinSet::new();
    set.spawn(part);
    match set.join_next().await.expect("it was spawned") {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Repeats what a slow store made fail; objects that exist are not created again.
pub(crate) async fn retry_until_deadline(
    attempt: impl AsyncFn() -> Result<(), ApiError>,
) -> Result<(), String> {
    let deadline = Instant::now() + BOOTSTRAP_TIMEOUT;
    loop {
        let Err(error) = attempt().await else { return Ok(()) };
        let slow = matches!(
            error,
            ApiError::TooLargeResourceVersion { .. }
                | ApiError::Timeout(_)
                | ApiError::Conflict { .. }
        );
        if !slow || Instant::now() >= deadline {
            return Err(error.to_string());
        }
        tracing::warn!(%error, "cannot create the first objects yet; retrying");
    }
}

/// The first sync of a controller. Compat: what is refused, by a webhook that is down or by AlwaysDeny, does not
/// end the process. kube-apiserver's controllers log it and try again, and so does the controller that the
/// hook starts next: an administrator needs a running server to delete the webhook.
pub(crate) async fn first_sync(attempt: impl AsyncFn() -> Result<(), ApiError>) {
    if let Err(error) = retry_until_deadline(attempt).await {
        tracing::error!(error, "cannot create the first objects; their controller will retry");
    }
}

/// Repeats whatever failed, as kube-apiserver does for objects without which it ends.
pub(crate) async fn retry_every_error(
    timeout: Duration,
    attempt: impl AsyncFn() -> Result<(), ApiError>,
) -> Result<(), String> {
    let deadline = Instant::now() + timeout;
    loop {
        let Err(error) = attempt().await else { return Ok(()) };
        if Instant::now() >= deadline {
            return Err(error.to_string());
        }
        tracing::warn!(%error, "cannot create the first objects yet; retrying");
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How long the creation of the first objects may take on a slow machine.
const BOOTSTRAP_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_part_on_the_runtime_panics_and_ends_with_its_hook() {
        assert_eq!(on_runtime(async { 7 }).await, 7);
        let panicked = std::panic::AssertUnwindSafe(on_runtime(async { panic!("asked for") }));
        let panicked: Result<(), _> = panicked.catch_unwind().await;
        assert_eq!(panicked.expect_err("it panics").downcast_ref(), Some(&"asked for"));

        let (held, mut dropped) = oneshot::channel::<()>();
        let mut part = Box::pin(on_runtime(async move {
            let _held = held;
            std::future::pending::<()>().await;
        }));
        assert!(part.as_mut().now_or_never().is_none());
        assert!(dropped.try_recv().is_err());
        drop(part);
        let ended = tokio::time::timeout(Duration::from_secs(30), dropped).await;
        assert!(ended.expect("it ends").is_err(), "the sender was dropped with the task");
    }
}
