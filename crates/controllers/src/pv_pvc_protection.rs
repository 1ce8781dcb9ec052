//! kube-controller-manager's persistentvolume-, persistentvolumeclaim- and
//! volumeattributesclass-protection-controller: volumes, claims and volume attributes classes get a
//! finalizer, which is removed once a deleted one is no longer in use.

use std::sync::Arc;

use meta::{ApiError, Value};

use crate::{
    ApiClient, BoxFuture, Informer, ObjectEvent, ResourceRef,
    finalizers::{has_finalizer, with_finalizer, without_finalizer},
    workqueue::{self, Key, ReconcileResult, Reconciler},
};

/// Keeps claims while a scheduled pod uses them.
pub struct PvcProtectionController {
    pub api: Arc<dyn ApiClient>,
}

/// Keeps volumes while they are bound.
pub struct PvProtectionController {
    pub api: Arc<dyn ApiClient>,
}

/// Keeps volume attributes classes while a volume or claim names them.
pub struct VacProtectionController {
    pub api: Arc<dyn ApiClient>,
}

const VAC_FINALIZER: &str = "kubernetes.io/vac-protection";
const PVC_FINALIZER: &str = "kubernetes.io/pvc-protection";
const PV_FINALIZER: &str = "kubernetes.io/pv-protection";

impl PvcProtectionController {
    /// Runs until the server stops. `events` are events of claims and deletions of pods.
    pub async fn run(self, events: impl Informer) {
        workqueue::run(self, events).await;
    }

    async fn sync(&self, namespace: &str, name: &str) -> Result<ReconcileResult, ApiError> {
        let claims =
            ResourceRef::cluster("", "v1", "persistentvolumeclaims").in_namespace(namespace);
        // A pod was deleted: every claim of its namespace that is being deleted may be free now.
        let claims: Vec<(ResourceRef, Value)> = if name.is_empty() {
            let all = self.api.list(&claims).await?;
            let named = |claim: &Value| claims.clone().named(claim.str_at(&["metadata", "name"]));
            all.into_iter().filter(is_being_deleted).map(|claim| (named(&claim), claim)).collect()
        } else {
            let target = claims.named(name);
            vec![(target.clone(), self.api.get(&target).await?)]
        };
        let pods = ResourceRef::cluster("", "v1", "pods").in_namespace(namespace);
        for (target, claim) in claims {
            if !is_being_deleted(&claim) {
                add_finalizer(&*self.api, &target, claim, PVC_FINALIZER).await?;
            } else if has_finalizer(&claim, PVC_FINALIZER) {
                let pods = self.api.list(&pods).await?;
                if !pods.iter().any(|pod| uses_claim(pod, &claim)) {
                    remove_finalizer(&*self.api, &target, claim, PVC_FINALIZER).await?;
                }
            }
        }
        Ok(ReconcileResult::Done)
    }
}

impl Reconciler for PvcProtectionController {
    const QUEUE: &'static str = "pvcprotection";

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        let is_pod = event.resource.gvr.resource == "pods";
        match (is_pod, event.deleted) {
            (true, _) => vec![(event.namespace.clone(), "".into())],
            (false, true) => Vec::new(),
            (false, false) => vec![(event.namespace.clone(), event.name.clone())],
        }
    }

    fn reconcile<'a>(
        &'a self,
        (namespace, name): &'a Key,
    ) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(self.sync(namespace, name))
    }
}

impl PvProtectionController {
    /// Runs until the server stops. `events` are events of volumes.
    pub async fn run(self, events: impl Informer) {
        workqueue::run(self, events).await;
    }

    async fn sync(&self, name: &str) -> Result<ReconcileResult, ApiError> {
        let target = ResourceRef::cluster("", "v1", "persistentvolumes").named(name);
        let volume = self.api.get(&target).await?;
        if !is_being_deleted(&volume) {
            add_finalizer(&*self.api, &target, volume, PV_FINALIZER).await?;
        } else if volume.str_at(&["status", "phase"]) != "Bound" {
            remove_finalizer(&*self.api, &target, volume, PV_FINALIZER).await?;
        }
        Ok(ReconcileResult::Done)
    }
}

impl Reconciler for PvProtectionController {
    const QUEUE: &'static str = "pvprotection";

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        if event.deleted { Vec::new() } else { vec![("".into(), event.name.clone())] }
    }

    fn reconcile<'a>(
        &'a self,
        (_, name): &'a Key,
    ) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(self.sync(name))
    }
}

impl VacProtectionController {
    /// Runs until the server stops. `events` are events of classes, claims and volumes.
    pub async fn run(self, events: impl Informer) {
        workqueue::run(self, events).await;
    }

    async fn sync(&self, name: &str) -> Result<ReconcileResult, ApiError> {
        let classes = ResourceRef::cluster("storage.k8s.io", "v1", "volumeattributesclasses");
        // A claim or volume has changed: every class that is being deleted may be free now.
        let classes: Vec<(ResourceRef, Value)> = if name.is_empty() {
            let all = self.api.list(&classes).await?;
            let named = |class: &Value| classes.clone().named(class.str_at(&["metadata", "name"]));
            all.into_iter().filter(is_being_deleted).map(|class| (named(&class), class)).collect()
        } else {
            let target = classes.named(name);
            vec![(target.clone(), self.api.get(&target).await?)]
        };
        for (target, class) in classes {
            if !is_being_deleted(&class) {
                add_finalizer(&*self.api, &target, class, VAC_FINALIZER).await?;
            } else if has_finalizer(&class, VAC_FINALIZER)
                && !self.is_in_use(class.str_at(&["metadata", "name"])).await?
            {
                remove_finalizer(&*self.api, &target, class, VAC_FINALIZER).await?;
            }
        }
        Ok(ReconcileResult::Done)
    }

    async fn is_in_use(&self, class: &str) -> Result<bool, ApiError> {
        let volumes = self.api.list(&ResourceRef::cluster("", "v1", "persistentvolumes")).await?;
        let of_spec = ["spec", "volumeAttributesClassName"];
        if volumes.iter().any(|volume| volume.str_at(&of_spec) == class) {
            return Ok(true);
        }
        let claims =
            self.api.list(&ResourceRef::cluster("", "v1", "persistentvolumeclaims")).await?;
        let names = |claim: &Value| {
            let target = ["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"];
            claim.str_at(&of_spec) == class
                || claim.str_at(&["status", "currentVolumeAttributesClassName"]) == class
                || claim.str_at(&target) == class
        };
        Ok(claims.iter().any(names))
    }
}

impl Reconciler for VacProtectionController {
    const QUEUE: &'static str = "vacprotection";

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        let is_class = event.resource.gvr.resource == "volumeattributesclasses";
        match (is_class, event.deleted) {
            (true, true) => Vec::new(),
            (true, false) => vec![("".into(), event.name.clone())],
            (false, _) => vec![("".into(), "".into())],
        }
    }

    fn reconcile<'a>(
        &'a self,
        (_, name): &'a Key,
    ) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(self.sync(name))
    }
}

fn is_being_deleted(object: &Value) -> bool {
    !object.str_at(&["metadata", "deletionTimestamp"]).is_empty()
}

async fn add_finalizer(
    api: &dyn ApiClient,
    target: &ResourceRef,
    object: Value,
    name: &str,
) -> Result<(), ApiError> {
    match with_finalizer(object, name) {
        Some(object) => api.update(target, &object).await.map(drop),
        None => Ok(()),
    }
}

async fn remove_finalizer(
    api: &dyn ApiClient,
    target: &ResourceRef,
    object: Value,
    name: &str,
) -> Result<(), ApiError> {
    match without_finalizer(object, name) {
        Some(object) => api.update(target, &object).await.map(drop),
        None => Ok(()),
    }
}

/// Whether a pod uses a claim. A pod without a node does not: no kubelet starts a pod whose claim is
/// being deleted.
fn uses_claim(pod: &Value, claim: &Value) -> bool {
    if pod.str_at(&["spec", "nodeName"]).is_empty() {
        return false;
    }
    let name = claim.str_at(&["metadata", "name"]);
    let (pod_name, pod_uid) = (pod.str_at(&["metadata", "name"]), pod.str_at(&["metadata", "uid"]));
    // The kubelet has stopped the pod, or it was deleted by force.
    let is_shut_down =
        is_being_deleted(pod) && pod.i64_at(&["metadata", "deletionGracePeriodSeconds"]) == Some(0);
    let mut owners = claim.items_at(&["metadata", "ownerReferences"]).iter();
    let is_owned =
        owners.any(|owner| owner.bool_at(&["controller"]) && owner.str_at(&["uid"]) == pod_uid);
    pod.items_at(&["spec", "volumes"]).iter().any(|volume| {
        let is_generated_name = || format!("{pod_name}-{}", volume.str_at(&["name"])) == name;
        volume.str_at(&["persistentVolumeClaim", "claimName"]) == name
            || (!is_shut_down
                && volume.get("ephemeral").is_some()
                && is_owned
                && is_generated_name())
    })
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;
    use crate::testing::FakeClient;

    fn claim(deleting: bool) -> Value {
        let mut claim = value!({"metadata": {"name": "c", "namespace": "n",
            "finalizers": [(PVC_FINALIZER)], "ownerReferences": [{"uid": "u", "controller": true}]}});
        if deleting {
            claim.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        }
        claim
    }

    #[tokio::test]
    async fn a_claim_is_released_when_no_scheduled_pod_uses_it() {
        let by_name = value!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        let other = value!([{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}]);
        let ephemeral = value!([{"name": "c", "ephemeral": {}}]);
        // Volumes of the pod, its node, its name, whether the claim stays.
        let cases = [
            (&by_name, "node", "p", true),
            (&by_name, "", "p", false),
            (&other, "node", "p", false),
            (&ephemeral, "node", "p", false),
        ];
        for (volumes, node, pod, stays) in cases {
            let fake = FakeClient::new([
                ("persistentvolumeclaims", claim(true)),
                (
                    "pods",
                    value!({"metadata": {"name": (pod), "namespace": "n", "uid": "u"},
                    "spec": {"nodeName": (node), "volumes": (volumes.clone())}}),
                ),
            ]);
            let protection = PvcProtectionController { api: fake.clone() };
            protection.reconcile(&("n".into(), "".into())).await.unwrap();
            let left = fake.object("persistentvolumeclaims", "n", "c");
            assert_eq!(has_finalizer(&left, PVC_FINALIZER), stays, "{volumes:?} {node}");
        }
    }

    #[test]
    fn an_ephemeral_claim_belongs_to_its_pod() {
        let mut pod = value!({"metadata": {"name": "p", "uid": "u"},
            "spec": {"nodeName": "node", "volumes": [{"name": "v", "ephemeral": {}}]}});
        let mut claim = claim(true);
        claim.set_at(&["metadata", "name"], "p-v");
        assert!(uses_claim(&pod, &claim));
        pod.set_at(&["metadata", "uid"], "another");
        assert!(!uses_claim(&pod, &claim));
        pod.set_at(&["metadata", "uid"], "u");
        pod.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        pod.set_at(&["metadata", "deletionGracePeriodSeconds"], 0i64);
        assert!(!uses_claim(&pod, &claim));
    }

    #[tokio::test]
    async fn a_bound_volume_stays_and_a_new_one_is_protected() {
        for (phase, deleting, protected) in
            [("Bound", true, true), ("Released", true, false), ("Available", false, true)]
        {
            let mut volume = value!({"metadata": {"name": "v"}, "status": {"phase": (phase)}});
            if deleting {
                volume.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
                volume.set_at(&["metadata", "finalizers"], vec![PV_FINALIZER]);
            }
            let fake = FakeClient::new([("persistentvolumes", volume)]);
            PvProtectionController { api: fake.clone() }
                .reconcile(&("".into(), "v".into()))
                .await
                .unwrap();
            let left = fake.object("persistentvolumes", "", "v");
            assert_eq!(has_finalizer(&left, PV_FINALIZER), protected, "{phase}");
        }
    }

    #[tokio::test]
    async fn a_class_stays_while_a_claim_or_volume_names_it() {
        let named = |value: Value| Some(value);
        let cases = [
            (None, None, false),
            (named(value!({"spec": {"volumeAttributesClassName": "gold"}})), None, true),
            (named(value!({"status": {"currentVolumeAttributesClassName": "gold"}})), None, true),
            (named(value!({"spec": {"volumeAttributesClassName": "other"}})), None, false),
            (None, named(value!({"spec": {"volumeAttributesClassName": "gold"}})), true),
        ];
        for (claim, volume, stays) in cases {
            let class = value!({"metadata": {"name": "gold", "finalizers": [(VAC_FINALIZER)],
                "deletionTimestamp": "2026-01-01T00:00:00Z"}});
            let mut objects = vec![("volumeattributesclasses", class)];
            if let Some(mut claim) = claim {
                claim.set_at(&["metadata"], value!({"name": "c", "namespace": "n"}));
                objects.push(("persistentvolumeclaims", claim));
            }
            if let Some(mut volume) = volume {
                volume.set_at(&["metadata"], value!({"name": "v"}));
                objects.push(("persistentvolumes", volume));
            }
            let fake = FakeClient::new(objects);
            let controller = VacProtectionController { api: fake.clone() };
            controller.reconcile(&("".into(), "".into())).await.unwrap();
            let left = fake.object("volumeattributesclasses", "", "gold");
            assert_eq!(has_finalizer(&left, VAC_FINALIZER), stays);
        }
    }
}
