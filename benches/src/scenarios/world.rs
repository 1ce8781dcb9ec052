//! The data set on the server: how many objects were created, and how to create more.

use std::cell::RefCell;
use std::time::Duration;

use http::Method;

use super::Outcome;
use super::custom::{Custom, Size};
use crate::bodies::{self, Template, custom};
use crate::client::{Call, Client, Failure, JSON, Keep, Target};
use crate::load::{Plan, closed_loop};

/// The namespace of the pods, Deployments and custom resources.
pub(super) const NAMESPACE: &str = "bench";
/// The watched pods live apart, so that a watch begins with few objects.
pub(super) const WATCH_NAMESPACE: &str = "bench-watch";
/// Pods that no scenario reads.
pub(super) const MORE_NAMESPACE: &str = "bench-more";
/// The small data set.
pub(super) const FEW_PODS: usize = crate::args::PODS_MIN;

/// The size of the data set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) pods: usize,
    pub(crate) watchers: usize,
    /// Time cap per scenario.
    pub(crate) cap: Duration,
}

impl Sizes {
    /// Half as many custom resources as pods.
    pub(super) fn customs(&self) -> usize {
        self.pods / 2
    }

    /// A title with its numbers filled in.
    pub(super) fn fill(&self, title: &str) -> String {
        title
            .replace("{pods}", &grouped(self.pods))
            .replace("{customs}", &grouped(self.customs()))
            .replace("{watchers}", &grouped(self.watchers))
    }
}

/// One server with the objects of this run.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(super) target: Target,
    pub(super) pids: Vec<u32>,
    pub(crate) sizes: Sizes,
    pub(super) pods: Template,
    pub(super) deployments: Template,
    small: Custom,
    large: Custom,
    /// Pods `0..pods_made` have been created.
    pub(super) pods_made: usize,
    /// Pods `0..pods_deleted` have been deleted again.
    pub(super) pods_deleted: usize,
    /// The revision each Deployment was last applied with.
    pub(super) revisions: RefCell<Vec<usize>>,
    watched_pods_made: bool,
}

impl World {
    pub(crate) async fn new(target: &Target, pids: &[u32], sizes: Sizes) -> anyhow::Result<Self> {
        Ok(Self {
            client: Client::connect(target, CONNECTIONS).await?,
            target: target.clone(),
            pids: pids.to_vec(),
            sizes,
            pods: bodies::pod_template(),
            deployments: bodies::deployment_template(),
            small: Custom::new(custom::widgets()),
            large: Custom::new(custom::gadgets()),
            pods_made: 0,
            pods_deleted: 0,
            revisions: RefCell::default(),
            watched_pods_made: false,
        })
    }

    /// Makes the namespaces and removes what an earlier run has left in them.
    pub(crate) async fn reset(&self) -> Result<(), Failure> {
        for namespace in [NAMESPACE, WATCH_NAMESPACE, MORE_NAMESPACE] {
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#
            );
            self.create_unless_there("/api/v1/namespaces", body).await?;
            // The pods' ServiceAccount, which is missing without a kube-controller-manager.
            let body =
                r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#;
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
            self.create_unless_there(&path, body.to_owned()).await?;
            self.clear(&pods_path(namespace)).await?;
        }
        self.clear(&deployments_path()).await?;
        self.clear(&self.small.kind.path(NAMESPACE)).await?;
        self.clear(&self.large.kind.path(NAMESPACE)).await
    }

    pub(super) fn custom(&self, size: Size) -> &Custom {
        if size == Size::Small { &self.small } else { &self.large }
    }

    pub(super) fn custom_mut(&mut self, size: Size) -> &mut Custom {
        if size == Size::Small { &mut self.small } else { &mut self.large }
    }

    /// At least `wanted` pods, made without being measured.
    pub(super) async fn ensure_pods(&mut self, wanted: usize) -> Result<(), Failure> {
        let first = self.pods_made;
        self.fill(wanted.saturating_sub(first), async |number| {
            self.create_pod(NAMESPACE, first + number).await
        })
        .await?;
        self.pods_made = first.max(wanted);
        Ok(())
    }

    /// At least `wanted` Deployments, applied by the bench's own field manager.
    pub(super) async fn ensure_deployments(&mut self, wanted: usize) -> Result<(), Failure> {
        let first = self.revisions.borrow().len();
        self.fill(wanted.saturating_sub(first), async |number| self.apply(first + number, 0).await)
            .await?;
        let made = first.max(wanted);
        self.revisions.borrow_mut().resize(made, 0);
        Ok(())
    }

    /// The pods that the watch scenarios write to, one per writer.
    pub(super) async fn ensure_watched_pods(&mut self, wanted: usize) -> Result<(), Failure> {
        if !self.watched_pods_made {
            self.fill(wanted, async |number| self.create_pod(WATCH_NAMESPACE, number).await)
                .await?;
            self.watched_pods_made = true;
        }
        Ok(())
    }

    pub(super) async fn create_pod(&self, namespace: &str, index: usize) -> Result<u64, Failure> {
        let call = Call::send(Method::POST, pods_path(namespace), JSON, self.pods.pod(index));
        Ok(self.client.ok(&call, Keep::Nothing).await?.bytes)
    }

    /// Server-side apply of a Deployment. JSON is YAML, so the body is JSON.
    pub(super) async fn apply(&self, index: usize, revision: usize) -> Result<u64, Failure> {
        let path = format!(
            "{}/{}?fieldManager=bench&force=true",
            deployments_path(),
            bodies::deployment_name(index)
        );
        let body = self.deployments.deployment(index, revision);
        let call = Call::send(Method::PATCH, path, "application/apply-patch+yaml", body);
        Ok(self.client.ok(&call, Keep::Nothing).await?.bytes)
    }

    /// Unmeasured work: `count` operations that must all succeed.
    pub(super) async fn fill(
        &self,
        count: usize,
        operation: impl AsyncFn(usize) -> Result<u64, Failure>,
    ) -> Result<(), Failure> {
        let plan = Plan { at_once: 32, count, cap: FILL_CAP };
        let measured = closed_loop(plan, async |_, number| operation(number).await).await;
        match measured.first_failure {
            Some(failure) => Err(failure),
            None if measured.done < count => Err(Failure {
                code: None,
                message: format!("only {} of {count} objects could be made", measured.done),
            }),
            None => Ok(()),
        }
    }

    pub(super) async fn create_unless_there(
        &self,
        path: &str,
        body: String,
    ) -> Result<(), Failure> {
        let call = Call::send(Method::POST, path, JSON, body);
        match self.client.ok(&call, Keep::Nothing).await {
            Err(failure) if failure.code != Some(409) => Err(failure),
            _ => Ok(()),
        }
    }

    /// Empties a collection; one that does not exist is empty.
    pub(super) async fn clear(&self, path: &str) -> Result<(), Failure> {
        let path = format!("{path}?gracePeriodSeconds=0");
        let call = Call::send(Method::DELETE, path, "", "");
        match self.client.ok(&call, Keep::Nothing).await {
            Err(failure) if !failure.is_unsupported() => Err(failure),
            _ => Ok(()),
        }
    }
}

impl Outcome {
    /// The same with each call counting for several operations.
    pub(super) fn per(self, ops: usize) -> Self {
        match self {
            Self::Measured { measured, cost, note, .. } => {
                Self::Measured { measured, cost, note, ops_per_call: ops }
            }
            unavailable @ Self::NotAvailable(_) => unavailable,
        }
    }

    /// How many operations were begun in the measured loop.
    pub(super) fn begun(&self) -> usize {
        match self {
            Self::Measured { measured, .. } => measured.done + measured.failed,
            Self::NotAvailable(_) => 0,
        }
    }
}

pub(super) fn pods_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

pub(super) fn pod_path(index: usize) -> String {
    format!("{}/{}", pods_path(NAMESPACE), bodies::pod_name(index))
}

pub(super) fn deployments_path() -> String {
    format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
}

/// `10000` as `10 000`.
fn grouped(number: usize) -> String {
    if number < 1000 {
        number.to_string()
    } else {
        format!("{} {:03}", grouped(number / 1000), number % 1000)
    }
}

/// As many as kubelet, scheduler and a few controllers would hold.
const CONNECTIONS: usize = 4;
/// Making the data never takes longer than this; a server that is slower is reported so.
const FILL_CAP: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_show_the_numbers_of_the_run() {
        let sizes = Sizes { pods: 10_000, watchers: 500, cap: Duration::ZERO };
        let title = sizes.fill("{watchers} watch {pods} pods and {customs} widgets");
        assert_eq!(title, "500 watch 10 000 pods and 5 000 widgets");
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(grouped(1_002), "1 002");
    }
}
