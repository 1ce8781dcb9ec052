//! Creates, updates, patches, applies and deletes.

use bytes::Bytes;
use http::Method;

use super::reads::scattered;
use super::world::{MORE_NAMESPACE, NAMESPACE, pod_path, pods_path};
use super::{Outcome, World, drive};
use crate::bodies::{self, REVISION_MARKER};
use crate::client::{Call, Failure, JSON, Keep};
use crate::load::Plan;

/// The creates that bring the data set from few pods to all of them. The few were the warm-up.
pub(super) async fn create(world: &mut World, plan: Plan) -> Outcome {
    let first = world.pods_made;
    let count = plan.count.min(world.sizes.pods - first.min(world.sizes.pods));
    if count == 0 {
        return Outcome::NotAvailable("needs more than 1 000 --pods".to_owned());
    }
    let outcome = drive(world, Plan { count, ..plan }, None, 0, async |_, _, number| {
        world.create_pod(NAMESPACE, first + number).await
    })
    .await;
    world.pods_made = first + outcome.begun();
    outcome
}

/// Creates beside the data set, which stays as it is.
pub(super) async fn create_more(world: &World, plan: Plan) -> Outcome {
    drive(world, plan, None, 500, async |_, _, number| {
        world.create_pod(MORE_NAMESPACE, number).await
    })
    .await
}

/// Read, change, write back, as a controller does.
pub(super) async fn update(world: &World, plan: Plan) -> Outcome {
    drive(world, plan, None, 64, async |client, _, number| {
        let path = pod_path(scattered(number, world.pods_made));
        let old = client.ok(&Call::get(path.clone()), Keep::All).await?;
        let new = with_revision(&old.kept, number).ok_or_else(|| Failure {
            code: None,
            message: "the pod has lost its annotation".to_owned(),
        })?;
        let call = Call::send(Method::PUT, path, JSON, new);
        Ok(old.bytes + client.ok(&call, Keep::Nothing).await?.bytes)
    })
    .await
}

pub(super) async fn merge_patch(world: &World, plan: Plan) -> Outcome {
    patch(world, plan, "application/merge-patch+json", |number| {
        format!(r#"{{"metadata":{{"annotations":{{"bench-revision":"m{number}"}}}}}}"#)
    })
    .await
}

/// Changes an annotation and, in the list of containers, the image of the one called `app`.
pub(super) async fn strategic_patch(world: &World, plan: Plan) -> Outcome {
    patch(world, plan, "application/strategic-merge-patch+json", |number| {
        format!(
            r#"{{"metadata":{{"annotations":{{"bench-revision":"s{number}"}}}},"spec":{{"containers":[{{"name":"app","image":"registry.example.com/shop/checkout:3.{number}"}}]}}}}"#
        )
    })
    .await
}

async fn patch(
    world: &World,
    plan: Plan,
    content_type: &'static str,
    body: impl Fn(usize) -> String,
) -> Outcome {
    drive(world, plan, None, 64, async |client, _, number| {
        let path = pod_path(scattered(number, world.pods_made));
        let call = Call::send(Method::PATCH, path, content_type, body(number));
        Ok(client.ok(&call, Keep::Nothing).await?.bytes)
    })
    .await
}

pub(super) async fn apply_create(world: &mut World, plan: Plan) -> Outcome {
    let first = world.revisions.borrow().len();
    let outcome = drive(world, plan, None, WARM_UP_WRITES, async |_, _, number| {
        world.apply(first + number, 0).await
    })
    .await;
    if let Outcome::Measured { .. } = outcome {
        let made = first + WARM_UP_WRITES + outcome.begun();
        world.revisions.borrow_mut().resize(made, 0);
    }
    outcome
}

/// Each apply carries a new image and a new number of replicas.
pub(super) async fn apply_change(world: &mut World, plan: Plan) -> Outcome {
    if let Err(failure) = world.ensure_deployments(DEPLOYMENTS_MIN).await {
        return failure.into();
    }
    drive(world, plan, None, WARM_UP_WRITES, async |_, _, number| {
        let (index, revision) = {
            let mut revisions = world.revisions.borrow_mut();
            let index = scattered(number, revisions.len());
            revisions[index] += 1;
            (index, revisions[index])
        };
        world.apply(index, revision).await
    })
    .await
}

/// What is applied is what is already there: the answer is the object as it was.
pub(super) async fn apply_same(world: &mut World, plan: Plan) -> Outcome {
    if let Err(failure) = world.ensure_deployments(DEPLOYMENTS_MIN).await {
        return failure.into();
    }
    drive(world, plan, None, WARM_UP_WRITES, async |_, _, number| {
        let (index, revision) = {
            let revisions = world.revisions.borrow();
            let index = scattered(number, revisions.len());
            (index, revisions[index])
        };
        world.apply(index, revision).await
    })
    .await
}

/// Without a grace period: a pod on a node would otherwise only be marked.
pub(super) async fn delete(world: &mut World, plan: Plan) -> Outcome {
    let count = plan.count.min(world.pods_made / 2) - WARM_UP_WRITES;
    let outcome =
        drive(world, Plan { count, ..plan }, None, WARM_UP_WRITES, async |client, _, number| {
            let path = format!("{}?gracePeriodSeconds=0", pod_path(number));
            let call = Call::send(Method::DELETE, path, "", Bytes::new());
            Ok(client.ok(&call, Keep::Nothing).await?.bytes)
        })
        .await;
    if let Outcome::Measured { .. } = outcome {
        world.pods_deleted = WARM_UP_WRITES + outcome.begun();
        let gone = world.client.answer(&Call::get(pod_path(0)), Keep::Nothing).await;
        if !gone.is_ok_and(|answer| answer.status == 404) {
            return Outcome::NotAvailable("wrong: a deleted pod is still there".to_owned());
        }
    }
    outcome
}

/// Whole groups of pods, chosen by label, one request after the other.
pub(super) async fn delete_collection(world: &mut World, plan: Plan) -> Outcome {
    let first = world.pods_deleted.div_ceil(bodies::GROUP_PODS);
    let groups = (world.pods_made / bodies::GROUP_PODS).saturating_sub(first);
    let path = |number: usize| {
        let group = bodies::group_of((first + number) * bodies::GROUP_PODS);
        format!("{}?labelSelector=bench-group%3D{group}", pods_path(NAMESPACE))
    };
    let plan = Plan { count: plan.count.min(groups), ..plan };
    let outcome = drive(world, plan, None, 0, async |client, _, number| {
        let path = format!("{}&gracePeriodSeconds=0", path(number));
        let call = Call::send(Method::DELETE, path, "", Bytes::new());
        Ok(client.ok(&call, Keep::Nothing).await?.bytes)
    })
    .await;
    for number in 0..outcome.begun() {
        let left =
            world.client.ok(&Call::get(format!("{}&limit=1", path(number))), Keep::All).await;
        if !left.is_ok_and(|list| memchr::memmem::find(&list.kept, b"\"items\":[]").is_some()) {
            return Outcome::NotAvailable("wrong: a deleted group is still there".to_owned());
        }
    }
    outcome.per(bodies::GROUP_PODS)
}

/// The object with another value of the revision annotation; its JSON is not parsed.
fn with_revision(object: &[u8], revision: usize) -> Option<Bytes> {
    let begin = memchr::memmem::find(object, REVISION_MARKER.as_bytes())? + REVISION_MARKER.len();
    let end = begin + memchr::memchr(b'"', &object[begin..])?;
    let mut new = Vec::with_capacity(object.len() + 8);
    new.extend_from_slice(&object[..begin]);
    new.extend_from_slice(format!("u{revision}").as_bytes());
    new.extend_from_slice(&object[end..]);
    Some(new.into())
}

/// Two rounds of 32 writers.
pub(super) const WARM_UP_WRITES: usize = 64;
/// So many that 32 writers seldom meet on one.
const DEPLOYMENTS_MIN: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_revision_is_written_into_the_bytes() {
        let cases = [
            (
                r#"{"a":{"bench-revision":"0","b":"c"}}"#,
                Some(r#"{"a":{"bench-revision":"u7","b":"c"}}"#),
            ),
            (r#"{"bench-revision":"m123"}"#, Some(r#"{"bench-revision":"u7"}"#)),
            (r#"{"f:bench-revision":{}}"#, None),
            (r#"{"bench-revision":"cut"#, None),
        ];
        for (old, expected) in cases {
            let new = with_revision(old.as_bytes(), 7);
            assert_eq!(new.as_deref(), expected.map(str::as_bytes), "{old}");
        }
    }
}
