//! `pods/eviction`: a delete that asks the pod's disruption budget first.

use std::sync::{Arc, OnceLock};

use meta::{
    ApiError, Cause, FieldErrors, GroupKind, GroupResource, GroupVersionKind, Query, Status, Value,
    field::path, selector::LabelSelector, time::Time, value,
};
use registry::{Action, ActionContext, ActionOutcome, BoxFuture, DeleteOptions, Kind};

use super::condition::set_condition;
use crate::printer_cells::condition_is_true;

#[derive(Default)]
pub(crate) struct PodEviction {
    /// Known when all kinds are.
    pub(crate) budgets: OnceLock<Arc<Kind>>,
}

impl Action for PodEviction {
    fn accepts(&self) -> Vec<GroupVersionKind> {
        // Compat: the beta version is served no more, but its evictions are still heard.
        ["v1", "v1beta1"].map(|version| GroupVersionKind::new("policy", version, "Eviction")).into()
    }

    fn act<'a>(
        &'a self,
        eviction: Value,
        cx: &'a ActionContext<'a>,
    ) -> BoxFuture<'a, Result<ActionOutcome, ApiError>> {
        Box::pin(async move {
            if eviction.str_at(&["metadata", "name"]) != cx.name() {
                let why = "name in URL does not match name in Eviction object";
                return Err(ApiError::bad_request(why));
            }
            refuse_ignoring_reads(&eviction, cx.name())?;
            let query = Query::parse("")?;
            let mut options = DeleteOptions::read(&query, eviction.get("deleteOptions"))?;
            options.dry_run |= cx.dry_run;
            self.evict(cx, options).await?;
            Ok(ActionOutcome::Done)
        })
    }
}

impl PodEviction {
    async fn evict(&self, cx: &ActionContext<'_>, asked: DeleteOptions) -> Result<(), ApiError> {
        for _ in 0..CONFLICTS_MAX {
            let pod = cx.object().await?;
            let mut options = asked.clone();
            let permission = self.ask_budget(cx, &pod, options.dry_run).await?;
            // If the pod becomes ready meanwhile, the budget counts again.
            if permission == Permission::WhileItIsAsItIs {
                let version = pod.str_at(&["metadata", "resourceVersion"]);
                options.resource_version.get_or_insert_with(|| version.to_owned());
            }
            match mark_and_delete(cx, options).await {
                // Looked at again; what a budget has granted is not asked for twice.
                Err(ApiError::Conflict { .. })
                    if asked.resource_version.is_none()
                        && permission == Permission::WhileItIsAsItIs => {}
                other => return other,
            }
        }
        Err(too_many(Vec::new(), BUSY_RETRY_SECONDS))
    }

    async fn ask_budget(
        &self,
        cx: &ActionContext<'_>,
        pod: &Value,
        dry_run: bool,
    ) -> Result<Permission, ApiError> {
        let deleting = !pod.str_at(&["metadata", "deletionTimestamp"]).is_empty();
        match pod.str_at(&["status", "phase"]) {
            // A pod that has ended or is being deleted does not count for a budget.
            "Succeeded" | "Failed" => return Ok(Permission::Granted),
            _ if deleting => return Ok(Permission::Granted),
            "Pending" => return Ok(Permission::WhileItIsAsItIs),
            _ => {}
        }
        let Some(budgets) = self.budgets.get() else { return Ok(Permission::Granted) };
        let found = matching(budgets, cx.namespace(), pod).await?;
        let budget = match found.as_slice() {
            [] => return Ok(Permission::Granted),
            [budget] => budget,
            _ => {
                let message = "This pod has more than one PodDisruptionBudget, which the eviction \
                               subresource does not support.";
                let status = Status { code: 500, message: message.to_owned(), ..Status::default() };
                return Err(ApiError::Status(Box::new(status)));
            }
        };
        if !condition_is_true(pod, "Ready") {
            let policy = budget.str_at(&["spec", "unhealthyPodEvictionPolicy"]);
            let (current, desired) = healthy(budget);
            if policy == "AlwaysAllow" || (current >= desired && desired > 0) {
                return Ok(Permission::WhileItIsAsItIs);
            }
        }
        let name = budget.str_at(&["metadata", "name"]);
        let pod = cx.name();
        let take = &mut |budget: &mut Value| take_disruption(budget, pod);
        budgets.rewrite(cx.namespace(), name, dry_run, take).await?;
        Ok(Permission::Granted)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Permission {
    Granted,
    /// The pod must not have changed since it was looked at.
    WhileItIsAsItIs,
}

/// After so many lost races a client is asked to come back later.
const CONFLICTS_MAX: usize = 20;
const BUSY_RETRY_SECONDS: u32 = 10;

/// A pod that can't be read can't be asked how it is.
fn refuse_ignoring_reads(eviction: &Value, name: &str) -> Result<(), ApiError> {
    let field = "ignoreStoreReadErrorWithClusterBreakingPotential";
    if !eviction.bool_at(&["deleteOptions", field]) {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    let why = "can not be set for pod eviction, try after removing the option";
    errors.invalid(path("deleteOptions").child(field), true, why);
    Err(ApiError::Invalid {
        kind: GroupKind::new("policy", "Eviction"),
        name: name.to_owned(),
        errors: Box::new(errors),
    })
}

/// The budgets of the pod's namespace that select it.
async fn matching(budgets: &Kind, namespace: &str, pod: &Value) -> Result<Vec<Value>, ApiError> {
    let mut found = budgets.objects(namespace).await?;
    found.retain(|budget| {
        let selector = LabelSelector::from_object(budget.at(&["spec", "selector"]));
        // An invalid selector selects nothing.
        selector.is_ok_and(|selector| selector.matches_object(pod))
    });
    Ok(found)
}

fn healthy(budget: &Value) -> (i64, i64) {
    let count = |field| budget.i64_at(&["status", field]).unwrap_or_default();
    (count("currentHealthy"), count("desiredHealthy"))
}

/// Counts one disruption, if the budget allows one.
fn take_disruption(budget: &mut Value, pod: &str) -> Result<(), ApiError> {
    let name = budget.str_at(&["metadata", "name"]).to_owned();
    let count = |path: &[&str]| budget.i64_at(path).unwrap_or_default();
    if count(&["status", "observedGeneration"]) < count(&["metadata", "generation"]) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(too_many(vec![cause(why)], BUSY_RETRY_SECONDS));
    }
    let forbidden = |why: &str| ApiError::Forbidden {
        resource: GroupResource::new("policy", "poddisruptionbudget"),
        name: name.clone(),
        why: why.to_owned(),
        causes: Vec::new(),
    };
    let allowed = count(&["status", "disruptionsAllowed"]);
    if allowed < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    let disrupted = budget.at(&["status", "disruptedPods"]).and_then(Value::as_object);
    if disrupted.is_some_and(|pods| pods.len() > DISRUPTED_PODS_MAX) {
        return Err(forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        return Err(too_many(vec![cause(why_not(budget, &name))], 0));
    }
    let observed = count(&["status", "observedGeneration"]);
    budget.set_at(&["status", "disruptionsAllowed"], allowed - 1);
    if allowed == 1 {
        let condition = value!({
            "type": "DisruptionAllowed", "status": "False", "observedGeneration": (observed),
            "reason": "InsufficientPods", "message": "",
        });
        set_condition(budget, condition);
    }
    budget.set_at(&["status", "disruptedPods", pod], Time::now().to_rfc3339());
    Ok(())
}

/// As many evictions may wait to be noticed.
const DISRUPTED_PODS_MAX: usize = 2000;

fn why_not(budget: &Value, name: &str) -> String {
    let conditions = budget.items_at(&["status", "conditions"]).iter();
    let mut allowed = conditions.filter(|c| c.str_at(&["type"]) == "DisruptionAllowed");
    let refused = allowed
        .next()
        .filter(|c| c.str_at(&["status"]) == "False" && !c.str_at(&["message"]).is_empty());
    let (reason, message) = match refused {
        Some(condition) => (condition.str_at(&["reason"]), condition.str_at(&["message"])),
        None => ("", ""),
    };
    let (current, desired) = healthy(budget);
    if refused.is_some() && reason == "SyncFailed" {
        return format!(
            "The disruption budget {name} does not allow evicting pods currently because it \
             failed sync: {message}"
        );
    }
    if current <= desired {
        return format!(
            "The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        );
    }
    let short = format!("The disruption budget {name} does not allow evicting pods currently");
    if refused.is_some() { format!("{short} ({reason}): {message}") } else { short }
}

fn cause(message: String) -> Cause {
    Cause { reason: "DisruptionBudget".to_owned(), message, field: String::new() }
}

fn too_many(causes: Vec<Cause>, retry_after_seconds: u32) -> ApiError {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.".to_owned();
    ApiError::TooManyRequests { message, retry_after_seconds, causes }
}

/// The pod says why it goes, and goes.
async fn mark_and_delete(
    cx: &ActionContext<'_>,
    mut options: DeleteOptions,
) -> Result<(), ApiError> {
    if !options.dry_run {
        let expected = options.resource_version.take();
        let mut uid = String::new();
        let mark = &mut |pod: &mut Value| {
            let conflict = |why| {
                let (resource, name) = (GroupResource::new("", "Pod"), cx.name().to_owned());
                Err(ApiError::Conflict { resource, name, why })
            };
            let actual = pod.str_at(&["metadata", "uid"]);
            if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != actual) {
                return conflict(format!(
                    "the UID in the precondition ({wanted}) does not match the UID in record \
                     ({actual}). The object might have been deleted and then recreated"
                ));
            }
            let version = pod.str_at(&["metadata", "resourceVersion"]);
            if let Some(wanted) = expected.as_deref().filter(|wanted| *wanted != version) {
                return conflict(format!(
                    "the ResourceVersion in the precondition ({wanted}) does not match the \
                     ResourceVersion in record ({version}). The object might have been modified"
                ));
            }
            actual.clone_into(&mut uid);
            let condition = value!({
                "type": "DisruptionTarget", "status": "True",
                "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
            });
            set_condition(pod, condition);
            Ok(())
        };
        cx.kind().rewrite(cx.namespace(), cx.name(), false, mark).await?;
        options.uid.get_or_insert(uid);
    }
    cx.delete(&options).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_says_why_it_allows_nothing() {
        let cases = [
            (
                value!({"currentHealthy": 1i64, "desiredHealthy": 2i64}),
                "The disruption budget b needs 2 healthy pods and has 1 currently",
            ),
            (
                value!({"currentHealthy": 3i64, "desiredHealthy": 2i64}),
                "The disruption budget b does not allow evicting pods currently",
            ),
            (
                value!({"currentHealthy": 3i64, "desiredHealthy": 2i64, "conditions": [
                    {"type": "DisruptionAllowed", "status": "False", "reason": "R", "message": "m"}]}),
                "The disruption budget b does not allow evicting pods currently (R): m",
            ),
        ];
        for (status, expected) in cases {
            let mut budget = value!({"metadata": {"name": "b"}, "status": (status)});
            let refused = take_disruption(&mut budget, "p").unwrap_err();
            let status = refused.status();
            assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));
            assert_eq!(status.details.unwrap().causes[0].message, expected);
        }
    }

    #[test]
    fn an_allowed_disruption_is_counted() {
        let mut budget =
            value!({"metadata": {"name": "b"}, "status": {"disruptionsAllowed": 2i64}});
        take_disruption(&mut budget, "p").unwrap();
        assert_eq!(budget.i64_at(&["status", "disruptionsAllowed"]), Some(1));
        assert!(!budget.str_at(&["status", "disruptedPods", "p"]).is_empty());
        assert_eq!(budget.at(&["status", "conditions"]), None);
        // The last one is reported.
        take_disruption(&mut budget, "q").unwrap();
        let condition = &budget.items_at(&["status", "conditions"])[0];
        assert_eq!(
            (condition.str_at(&["status"]), condition.str_at(&["reason"])),
            ("False", "InsufficientPods")
        );
    }
}
