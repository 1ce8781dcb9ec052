//! Which strategy a kind has. A kind that is not listed has nothing special.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use registry::{Plain, Strategy};

use crate::{
    apps::{
        controller_revision::ControllerRevision, daemon_set::DaemonSet, deployment::Deployment,
        replica_set::ReplicaSet, stateful_set::StatefulSet,
    },
    autoscaling::horizontal_pod_autoscaler::HorizontalPodAutoscaler,
    batch::{cron_job::CronJob, job::Job},
    core::{
        component_status::ComponentStatus, config_map::ConfigMap, endpoints::Endpoints, event::Event,
        namespace::Namespace, node::Node, persistent_volume::PersistentVolume,
        persistent_volume_claim::PersistentVolumeClaim, pod::Pod, pod_template::PodTemplate,
        replication_controller::ReplicationController, resource_quota::ResourceQuota, secret::Secret,
        service::Service, service_account::ServiceAccount,
    },
    policy::pod_disruption_budget::PodDisruptionBudget,
};

pub(crate) fn of(group: &str, kind: &str) -> Arc<dyn Strategy> {
    match (group, kind) {
        ("", "ComponentStatus") => Arc::new(ComponentStatus),
        ("", "ConfigMap") => Arc::new(ConfigMap),
        ("", "Endpoints") => Arc::new(Endpoints),
        ("" | "events.k8s.io", "Event") => Arc::new(Event),
        ("", "Namespace") => Arc::new(Namespace),
        ("", "Node") => Arc::new(Node),
        ("", "PersistentVolume") => Arc::new(PersistentVolume),
        ("", "PersistentVolumeClaim") => Arc::new(PersistentVolumeClaim),
        ("", "Pod") => Arc::new(Pod),
        ("", "PodTemplate") => Arc::new(PodTemplate),
        ("", "ReplicationController") => Arc::new(ReplicationController),
        ("", "ResourceQuota") => Arc::new(ResourceQuota),
        ("", "Secret") => Arc::new(Secret),
        ("", "Service") => Arc::new(Service),
        ("", "ServiceAccount") => Arc::new(ServiceAccount),
        ("apps", "ControllerRevision") => Arc::new(ControllerRevision),
        ("apps", "DaemonSet") => Arc::new(DaemonSet),
        ("apps", "Deployment") => Arc::new(Deployment),
        ("apps", "ReplicaSet") => Arc::new(ReplicaSet),
        ("apps", "StatefulSet") => Arc::new(StatefulSet),
        ("autoscaling", "HorizontalPodAutoscaler") => Arc::new(HorizontalPodAutoscaler),
        ("batch", "CronJob") => Arc::new(CronJob),
        ("batch", "Job") => Arc::new(Job),
        ("policy", "PodDisruptionBudget") => Arc::new(PodDisruptionBudget),
        _ => Arc::new(Plain),
    }
}
