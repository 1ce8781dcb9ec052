//! Objects live in namespaces that exist: refuses creates in a namespace that is missing or on its
//! way out, and deletes of the namespaces that the system itself lives in.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use meta::{ApiError, Cause, GroupResource, Value};

use crate::{
    Attributes, BoxFuture, Cluster, Freshness, Operation, Phases, Plugin, is_namespace,
    namespace_of, resources,
};

#[derive(Default)]
pub struct NamespaceLifecycle {
    deleted: RecentlyDeleted,
}

/// These can't be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update | Operation::Delete)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        match attributes.operation {
            Operation::Delete => is_namespace(attributes.gvr),
            // Access reviews may be asked about namespaces that are not there.
            _ => {
                namespace_of(attributes).is_some()
                    && !is_namespace(attributes.gvr)
                    && attributes.gvr.group != "authorization.k8s.io"
            }
        }
    }

    fn phases(&self) -> Phases {
        Phases::Mutating
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        _object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if attributes.operation == Operation::Delete {
                refuse_delete_of_immortal(attributes)?;
                self.deleted.add(attributes.name, Instant::now());
                return Ok(());
            }
            self.check_namespace(attributes, cluster).await
        })
    }
}

impl NamespaceLifecycle {
    async fn check_namespace(
        &self,
        attributes: &Attributes<'_>,
        cluster: &Cluster,
    ) -> Result<(), ApiError> {
        let namespace = attributes.namespace;
        let is_terminating = |found: &Value| found.str_at(&["status", "phase"]) == "Terminating";
        let get = |freshness| cluster.objects.get(&resources::NAMESPACES, "", namespace, freshness);
        let mut found = get(Freshness::Cached).await?;
        // The cache may be behind a create or delete of a moment ago.
        let is_stale = match &found {
            None => true,
            Some(found) => {
                !is_terminating(found) && self.deleted.contains(namespace, Instant::now())
            }
        };
        if is_stale {
            found = get(Freshness::Linearizable).await?;
        }
        let Some(found) = found else {
            return Err(ApiError::not_found(GroupResource::new("", "namespaces"), namespace));
        };
        // Updates may still be needed to remove finalizers.
        if attributes.operation != Operation::Create || !is_terminating(&found) {
            return Ok(());
        }
        Err(ApiError::Forbidden {
            resource: attributes.gvr.group_resource(),
            name: attributes.name.to_owned(),
            why: format!(
                "unable to create new content in namespace {namespace} because it is being \
                 terminated"
            ),
            causes: vec![Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".to_owned(),
            }],
        })
    }
}

/// The namespaces whose deletion began here a moment ago: for them the cache is not believed.
#[derive(Default)]
struct RecentlyDeleted {
    any: AtomicBool,
    names: Mutex<VecDeque<(Instant, String)>>,
}

/// Compat: so many names, for so long.
const DELETED_MAX: usize = 100;
const DELETED_TTL: Duration = Duration::from_secs(30);

impl RecentlyDeleted {
    fn add(&self, name: &str, now: Instant) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|(_, known)| known != name);
        if names.len() >= DELETED_MAX {
            names.pop_front();
        }
        names.push_back((now, name.to_owned()));
        self.any.store(true, Ordering::Release);
    }

    fn contains(&self, name: &str, now: Instant) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|(added, _)| now.saturating_duration_since(*added) < DELETED_TTL);
        self.any.store(!names.is_empty(), Ordering::Release);
        names.iter().any(|(_, known)| known == name)
    }
}

fn refuse_delete_of_immortal(attributes: &Attributes<'_>) -> Result<(), ApiError> {
    if !IMMORTAL.contains(&attributes.name) {
        return Ok(());
    }
    Err(ApiError::Forbidden {
        resource: GroupResource::new("", "namespaces"),
        name: attributes.name.to_owned(),
        why: "this namespace may not be deleted".to_owned(),
        causes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{cluster, create, delete, update, yaml};

    #[test]
    fn objects_live_in_namespaces_that_exist() {
        let cluster = cluster(
            &[
                (&resources::NAMESPACES, "{metadata: {name: here}, status: {phase: Active}}"),
                (&resources::NAMESPACES, "{metadata: {name: going}, status: {phase: Terminating}}"),
            ],
            &[],
        );
        let gone = "namespaces \"gone\" not found";
        let going = "pods \"p\" is forbidden: unable to create new content in namespace going \
                     because it is being terminated";
        let pods = &resources::PODS;
        let cases = [("here", "", ""), ("gone", gone, gone), ("going", going, ""), ("", "", "")];
        for (namespace, on_create, on_update) in cases {
            let mut pod = yaml(&format!("{{metadata: {{name: p, namespace: '{namespace}'}}}}"));
            let plugin = NamespaceLifecycle::default();
            let requests = [
                (create(pods), on_create),
                (update(pods, pod.clone()), on_update),
                (delete(pods, pod.clone()), ""),
            ];
            for (request, expected) in requests {
                assert_eq!(request.admit(&plugin, &mut pod, &cluster).message(), expected);
            }
        }
    }

    #[test]
    fn namespaces_of_the_system_are_not_deleted() {
        for (name, refused) in
            [("default", true), ("kube-system", true), ("kube-public", true), ("mine", false)]
        {
            let plugin = NamespaceLifecycle::default();
            let mut namespace = yaml(&format!("{{metadata: {{name: {name}}}}}"));
            let request = delete(&resources::NAMESPACES, namespace.clone());
            let outcome = request.admit(&plugin, &mut namespace, &cluster(&[], &[]));
            let expected =
                format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
            assert_eq!(outcome.message(), if refused { expected.as_str() } else { "" });
            assert_eq!(plugin.deleted.contains(name, Instant::now()), !refused);
        }
    }

    #[test]
    fn recent_deletions_are_remembered_for_a_while() {
        let (deleted, start) = (RecentlyDeleted::default(), Instant::now());
        deleted.add("a", start);
        assert!(deleted.contains("a", start + Duration::from_secs(29)));
        assert!(!deleted.contains("b", start));
        assert!(!deleted.contains("a", start + DELETED_TTL));
        for n in 0..1000 {
            deleted.add(&n.to_string(), start);
        }
        assert_eq!(deleted.names.lock().unwrap().len(), DELETED_MAX);
    }
}
