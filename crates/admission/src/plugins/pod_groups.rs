//! Groups of pods that are scheduled together (gates GenericWorkload and WorkloadWithJob): they are kept while
//! pods refer to them, their workload exists, and a job in a gang keeps its size.

use meta::{ApiError, Value};

use crate::{
    Attributes, BoxFuture, Cluster, Freshness, Operation, Phases, Plugin,
    resources::{POD_GROUPS, WORKLOADS},
};

/// Adds the finalizer that makes the deletion of a group wait for its pods.
pub struct PodGroupProtection {
    pub enabled: bool,
}

const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

fn is_pod_group(attributes: &Attributes<'_>) -> bool {
    attributes.is("scheduling.k8s.io", "podgroups", "")
}

impl Plugin for PodGroupProtection {
    fn name(&self) -> &'static str {
        "PodGroupProtection"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        self.enabled && is_pod_group(attributes)
    }

    fn phases(&self) -> Phases {
        Phases::Mutating
    }

    fn admit<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if let Some(group) = object {
            super::add_finalizer(group, FINALIZER);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A group that refers to a workload is one of the workload's templates.
pub struct PodGroupWorkloadExists {
    pub enabled: bool,
}

impl Plugin for PodGroupWorkloadExists {
    fn name(&self) -> &'static str {
        "PodGroupWorkloadExists"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        self.enabled && is_pod_group(attributes)
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let reference = ["spec", "podGroupTemplateRef", "workload"];
            let Some(reference) = object.and_then(|group| group.at(&reference)) else {
                return Ok(());
            };
            let (name, template) =
                (reference.str_at(&["workloadName"]), reference.str_at(&["podGroupTemplateName"]));
            let quoted = meta::field::quote(name);
            let refused = |why: String| {
                Err(attributes.forbidden(object, format!("PodGroup rejected: {why}")))
            };
            // The workload may be of a moment ago.
            let namespace = attributes.namespace;
            let cached =
                cluster.objects.get(&WORKLOADS, namespace, name, Freshness::Cached).await?;
            let workload = match cached {
                Some(workload) => Some(workload),
                None => {
                    let fresh = Freshness::Linearizable;
                    cluster.objects.get(&WORKLOADS, namespace, name, fresh).await?
                }
            };
            let Some(workload) = workload else {
                return refused(format!("Workload {quoted} not found"));
            };
            if !workload.str_at(&["metadata", "deletionTimestamp"]).is_empty() {
                return refused(format!("Workload {quoted} is being deleted"));
            }
            let mut templates = workload.items_at(&["spec", "podGroupTemplates"]).iter();
            if templates.any(|known| known.str_at(&["name"]) == template) {
                return Ok(());
            }
            let template = meta::field::quote(template);
            refused(format!("PodGroupTemplate {template} not found in Workload {quoted}"))
        })
    }
}

/// A job whose pods are scheduled as a gang does not change its parallelism: the gang's size is fixed.
pub struct JobValidation {
    pub enabled: bool,
}

impl Plugin for JobValidation {
    fn name(&self) -> &'static str {
        "JobValidation"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        self.enabled && attributes.is("batch", "jobs", "")
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let (Some(job), Some(old)) = (object, attributes.old) else { return Ok(()) };
            let parallelism = ["spec", "parallelism"];
            if job.at(&parallelism) == old.at(&parallelism) {
                return Ok(());
            }
            let namespace = old.str_at(&["metadata", "namespace"]);
            let named =
                old.str_at(&["spec", "template", "spec", "schedulingGroup", "podGroupName"]);
            let groups = if named.is_empty() {
                let all = meta::selector::LabelSelector::everything();
                let mut groups = cluster.objects.list(&POD_GROUPS, namespace, &all).await?;
                groups.retain(|group| is_controlled_by(group, old));
                groups
            } else {
                let found = cluster.objects.get(&POD_GROUPS, namespace, named, Freshness::Cached);
                found.await?.into_iter().collect()
            };
            let is_gang =
                |group: &&Value| group.at(&["spec", "schedulingPolicy", "gang"]).is_some();
            let Some(gang) = groups.iter().find(is_gang) else { return Ok(()) };
            let name = meta::field::quote(gang.str_at(&["metadata", "name"]));
            let why = format!(
                "cannot change parallelism for a Job referencing gang-scheduled PodGroup {name}"
            );
            Err(attributes.forbidden(object, why))
        })
    }
}

fn is_controlled_by(group: &Value, job: &Value) -> bool {
    let mut owners = group.items_at(&["metadata", "ownerReferences"]).iter();
    let controller = owners.find(|owner| owner.bool_at(&["controller"]));
    controller.is_some_and(|owner| owner.str_at(&["uid"]) == job.str_at(&["metadata", "uid"]))
}

#[cfg(test)]
mod tests {
    use meta::GroupVersionResource;

    use super::*;
    use crate::harness::{cluster, create, update, yaml};

    #[test]
    fn groups_are_protected() {
        let cases = [
            (true, "{}", "{finalizers: [scheduling.k8s.io/podgroup-protection]}"),
            (true, "{finalizers: [a]}", "{finalizers: [a, scheduling.k8s.io/podgroup-protection]}"),
            (false, "{}", "{}"),
        ];
        for (enabled, metadata, expected) in cases {
            let object = |metadata: &str| yaml(&format!("{{metadata: {metadata}}}"));
            let mut group = object(metadata);
            let plugin = PodGroupProtection { enabled };
            create(&POD_GROUPS).admit(&plugin, &mut group, &cluster(&[], &[]));
            assert_eq!(group, object(expected));
        }
    }

    #[test]
    fn a_group_refers_to_a_template_that_exists() {
        let cluster = cluster(
            &[
                (
                    &WORKLOADS,
                    "{metadata: {namespace: n, name: w}, spec: {podGroupTemplates: [{name: t}]}}",
                ),
                (
                    &WORKLOADS,
                    "{metadata: {namespace: n, name: gone, deletionTimestamp: x}, spec: {podGroupTemplates: [{name: t}]}}",
                ),
            ],
            &[],
        );
        let forbidden = "podgroups.scheduling.k8s.io \"g\" is forbidden: PodGroup rejected: ";
        let cases = [
            ("", ""),
            ("w, podGroupTemplateName: t", ""),
            ("w, podGroupTemplateName: u", "PodGroupTemplate \"u\" not found in Workload \"w\""),
            ("gone, podGroupTemplateName: t", "Workload \"gone\" is being deleted"),
            ("none, podGroupTemplateName: t", "Workload \"none\" not found"),
        ];
        for (reference, expected) in cases {
            let reference = match reference {
                "" => String::new(),
                _ => format!("podGroupTemplateRef: {{workload: {{workloadName: {reference}}}}}"),
            };
            let group =
                yaml(&format!("{{metadata: {{namespace: n, name: g}}, spec: {{{reference}}}}}"));
            let check = |enabled| {
                let plugin = PodGroupWorkloadExists { enabled };
                create(&POD_GROUPS).validate(&plugin, &group, &cluster).message()
            };
            let expected =
                if expected.is_empty() { String::new() } else { format!("{forbidden}{expected}") };
            assert_eq!((check(true), check(false)), (expected, String::new()));
        }
    }

    #[test]
    fn a_job_in_a_gang_keeps_its_size() {
        let gang = "spec: {schedulingPolicy: {gang: {minCount: 2}}}";
        let basic = "spec: {schedulingPolicy: {basic: {}}}";
        let group = |name: &str, owner: &str, spec: &str| {
            format!(
                "{{metadata: {{namespace: n, name: {name}, ownerReferences: [{{uid: {owner}, \
                 controller: true}}]}}, {spec}}}"
            )
        };
        let groups =
            [group("gang", "other", gang), group("basic", "b", basic), group("own", "u", gang)];
        let groups: Vec<(&'static GroupVersionResource, &str)> =
            groups.iter().map(|group| (&POD_GROUPS, group.as_str())).collect();
        let cluster = cluster(&groups, &[]);
        let refused = |name: &str| {
            format!(
                "jobs.batch \"j\" is forbidden: cannot change parallelism for a Job referencing \
                 gang-scheduled PodGroup \"{name}\""
            )
        };
        // The job's uid, its group, its parallelism before and after.
        let cases = [
            ("u", "", 1, 1, String::new()),
            ("u", "", 1, 2, refused("own")),
            ("b", "", 1, 2, String::new()),
            ("x", "schedulingGroup: {podGroupName: gang}", 1, 2, refused("gang")),
            ("u", "schedulingGroup: {podGroupName: basic}", 1, 2, String::new()),
            ("u", "schedulingGroup: {podGroupName: none}", 1, 2, String::new()),
        ];
        let jobs = GroupVersionResource {
            group: "batch".into(),
            version: "v1".into(),
            resource: "jobs".into(),
        };
        for (uid, spec, before, after, expected) in cases {
            let job = |parallelism: i64| {
                yaml(&format!(
                    "{{metadata: {{namespace: n, name: j, uid: {uid}}}, spec: {{parallelism: \
                     {parallelism}, template: {{spec: {{{spec}}}}}}}}}"
                ))
            };
            let plugin = JobValidation { enabled: true };
            let outcome = update(&jobs, job(before)).validate(&plugin, &job(after), &cluster);
            assert_eq!(outcome.message(), expected);
        }
    }
}
