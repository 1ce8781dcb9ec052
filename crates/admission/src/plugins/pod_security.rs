//! The Pod Security Standards, as namespaces ask for them with labels: `enforce` refuses pods, `audit` and
//! `warn` note violations, also those of the pods that a workload would make.

mod configuration;
mod metrics;
mod policy;
mod standards;

use std::{
    collections::{BTreeMap, HashSet},
    time::{Duration, Instant},
};

use meta::{ApiError, FieldErrors, Value, field::quote, selector::LabelSelector};
use prometheus::IntCounterVec;

use self::{
    configuration::Configuration,
    metrics::Metrics,
    policy::{LABEL_PREFIX, Level, LevelVersion, Policy},
    standards::{details, evaluate, reasons},
};
use crate::{
    Attributes, BoxFuture, Cluster, Freshness, Operation, Phases, Plugin,
    configuration::PluginConfiguration, is_namespace, resources,
};

pub struct PodSecurity {
    configuration: Configuration,
    metrics: Metrics,
}

/// A changed namespace is checked against this many of its pods, for this long.
const PODS_MAX: usize = 3000;
const PODS_TIMEOUT: Duration = Duration::from_secs(1);

impl PodSecurity {
    pub(crate) fn new(configuration: Option<&PluginConfiguration>) -> Result<Self, String> {
        Ok(Self { configuration: Configuration::read(configuration)?, metrics: Metrics::new() })
    }
}

impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        let (group, resource) = (&*attributes.gvr.group, &*attributes.gvr.resource);
        if (group, resource) == ("", "pods") {
            return !IGNORED_SUBRESOURCES.contains(&attributes.subresource);
        }
        attributes.subresource.is_empty()
            && ((group, resource) == ("", "namespaces") || template_path(group, resource).is_some())
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn counters(&self) -> Vec<IntCounterVec> {
        self.metrics.counters()
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(object) = object else { return Ok(()) };
            if is_namespace(attributes.gvr) {
                self.namespace(attributes, object, cluster).await
            } else if attributes.gvr.resource == "pods" {
                self.pod(attributes, object, cluster).await
            } else {
                self.workload(attributes, object, cluster).await
            }
        })
    }
}

/// What these change is not the spec. Any other subresource of pods is checked.
const IGNORED_SUBRESOURCES: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// Where a workload has its pod template.
fn template_path(group: &str, resource: &str) -> Option<&'static [&'static str]> {
    match (group, resource) {
        ("", "podtemplates") => Some(&["template"]),
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => Some(&["spec", "template"]),
        ("batch", "cronjobs") => Some(&["spec", "jobTemplate", "spec", "template"]),
        _ => None,
    }
}

fn annotate(attributes: &Attributes<'_>, key: &str, value: impl Into<String>) {
    attributes.annotate(format!("{LABEL_PREFIX}{key}"), value);
}

impl PodSecurity {
    /// Refuses wrong labels, and warns about pods that violate a new level.
    async fn namespace(
        &self,
        attributes: &Attributes<'_>,
        namespace: &Value,
        cluster: &Cluster,
    ) -> Result<(), ApiError> {
        let defaults = &self.configuration.defaults;
        let (policy, errors) = Policy::of_namespace(namespace, defaults);
        let invalid = |errors: FieldErrors| {
            let (kind, name) = (attributes.gvk.group_kind(), attributes.name.to_owned());
            Err(ApiError::Invalid { kind, name, errors: Box::new(errors) })
        };
        let warn_if_exempt = || {
            let is_exempt = self.configuration.exempt_namespaces.contains(attributes.name);
            if let Some(text) = is_exempt.then(|| self.exempt_warning(namespace, &policy)).flatten()
            {
                attributes.warn(text);
            }
            is_exempt
        };
        let Some(old) = attributes.old else {
            if !errors.is_empty() {
                return invalid(errors);
            }
            warn_if_exempt();
            return Ok(());
        };
        let (old_policy, old_errors) = Policy::of_namespace(old, defaults);
        // What was wrong before may stay.
        if !errors.is_empty() && errors.to_string() != old_errors.to_string() {
            return invalid(errors);
        }
        let (new, old) = (policy.enforce, old_policy.enforce);
        if new.level == Level::Privileged || (new.version == old.version && new.level <= old.level)
        {
            return Ok(());
        }
        if warn_if_exempt() {
            return Ok(());
        }
        for text in self.check_pods(attributes.name, new, cluster).await {
            attributes.warn(text);
        }
        Ok(())
    }

    fn exempt_warning(&self, namespace: &Value, policy: &Policy) -> Option<String> {
        if policy.is_fully_privileged() || policy.is_equivalent(&self.configuration.defaults) {
            return None;
        }
        let has = |name: &str| {
            let of = |label: String| namespace.at(&["metadata", "labels", &label]).is_some();
            of(format!("{LABEL_PREFIX}{name}")) || of(format!("{LABEL_PREFIX}{name}-version"))
        };
        let modes = [("enforce", policy.enforce), ("audit", policy.audit), ("warn", policy.warn)];
        let set = modes.iter().filter(|(name, mode)| mode.level != Level::Privileged && has(name));
        let set: Vec<String> = set.map(|(name, mode)| format!("{name}={mode}")).collect();
        Some(format!(
            "namespace {} is exempt from Pod Security, and the policy ({}) will be ignored",
            quote(namespace.str_at(&["metadata", "name"])),
            set.join(", ")
        ))
    }

    /// The warnings about the pods that a namespace has.
    async fn check_pods(
        &self,
        namespace: &str,
        enforce: LevelVersion,
        cluster: &Cluster,
    ) -> Vec<String> {
        let deadline = Instant::now() + PODS_TIMEOUT;
        let everything = LabelSelector::everything();
        let Ok(pods) = cluster.objects.list(&resources::PODS, namespace, &everything).await else {
            let text = "failed to list pods while checking new PodSecurity enforce level";
            return vec![text.to_owned()];
        };
        let pods = self.prioritized(&pods);
        let mut checked = 0;
        // The first pod by name and the number of pods, by what is wrong with them.
        let mut found: BTreeMap<String, (&str, usize)> = BTreeMap::new();
        for pod in pods.iter().take(PODS_MAX) {
            checked += 1;
            let (metadata, spec) = parts(pod);
            let violations = evaluate(enforce, metadata, spec);
            if !violations.is_empty() {
                let name = metadata.str_at(&["name"]);
                let of_reason = found.entry(reasons(&violations)).or_insert((name, 0));
                of_reason.0 = of_reason.0.min(name);
                of_reason.1 += 1;
            }
            if Instant::now() > deadline {
                break;
            }
        }
        let mut warnings = Vec::new();
        if checked < pods.len() {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {} \
                 existing pods",
                pods.len()
            ));
        }
        if !found.is_empty() {
            let (namespace, enforce) = (quote(namespace), quote(&enforce.to_string()));
            warnings.push(format!(
                "existing pods in namespace {namespace} violate the new PodSecurity enforce level \
                 {enforce}"
            ));
        }
        let of_pods = found.into_iter().map(|(reasons, (pod, count))| match count {
            1 => format!("{pod}: {reasons}"),
            2 => format!("{pod} (and 1 other pod): {reasons}"),
            _ => format!("{pod} (and {} other pods): {reasons}", count - 1),
        });
        let mut of_pods: Vec<String> = of_pods.collect();
        of_pods.sort();
        warnings.extend(of_pods);
        warnings
    }

    /// The pods to check: one of each controller before the others, which are alike.
    fn prioritized<'a>(&self, pods: &'a [Value]) -> Vec<&'a Value> {
        let (mut first, mut later, mut controllers) = (Vec::new(), Vec::new(), HashSet::new());
        for pod in pods.iter().filter(|pod| !self.is_exempt_class(parts(pod).1)) {
            let owners = pod.items_at(&["metadata", "ownerReferences"]).iter();
            let mut owners = owners.filter(|owner| owner.bool_at(&["controller"]));
            match owners.next() {
                Some(owner) if !controllers.insert(owner.str_at(&["uid"])) => later.push(pod),
                _ => first.push(pod),
            }
        }
        first.extend(later);
        first
    }

    fn is_exempt_class(&self, spec: &Value) -> bool {
        self.configuration.exempt_runtime_classes.contains(spec.str_at(&["runtimeClassName"]))
    }

    /// Whether the namespace or the user of a request is exempt.
    fn is_exempt(&self, attributes: &Attributes<'_>) -> bool {
        let exempt = if self.configuration.exempt_namespaces.contains(attributes.namespace) {
            "namespace"
        } else if self.configuration.exempt_users.contains(&*attributes.user.name) {
            "user"
        } else {
            return false;
        };
        annotate(attributes, "exempt", exempt);
        self.metrics.exempted(attributes);
        true
    }

    async fn pod(
        &self,
        attributes: &Attributes<'_>,
        pod: &Value,
        cluster: &Cluster,
    ) -> Result<(), ApiError> {
        if self.is_exempt(attributes) {
            return Ok(());
        }
        let namespace = find_namespace(attributes.namespace, cluster).await.ok().flatten();
        let Some(namespace) = namespace else {
            let namespace = quote(attributes.namespace);
            let error = ApiError::internal(format!("failed to lookup namespace {namespace}"));
            annotate(attributes, "error", error.to_string());
            self.metrics.failed(attributes, true);
            return Err(error);
        };
        let (policy, errors) = Policy::of_namespace(&namespace, &self.configuration.defaults);
        if errors.is_empty() && policy.is_fully_privileged() {
            annotate(attributes, "enforce-policy", LevelVersion::PRIVILEGED.to_string());
            self.metrics.evaluated(attributes, "enforce", policy.enforce, true);
            return Ok(());
        }
        if attributes.old.is_some_and(|old| !is_significant(pod, old)) {
            return Ok(());
        }
        let (metadata, spec) = parts(pod);
        self.check(attributes, &policy, &errors, metadata, spec, true)
    }

    async fn workload(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        cluster: &Cluster,
    ) -> Result<(), ApiError> {
        if self.is_exempt(attributes) {
            return Ok(());
        }
        let namespace = find_namespace(attributes.namespace, cluster).await.ok().flatten();
        let Some(namespace) = namespace else {
            let text = format!("failed to lookup namespace {}", quote(attributes.namespace));
            annotate(attributes, "error", text);
            self.metrics.failed(attributes, true);
            return Ok(());
        };
        let (policy, errors) = Policy::of_namespace(&namespace, &self.configuration.defaults);
        let silent =
            policy.warn.level == Level::Privileged && policy.audit.level == Level::Privileged;
        if errors.is_empty() && silent {
            return Ok(());
        }
        let path = template_path(&attributes.gvr.group, &attributes.gvr.resource);
        let template = path.and_then(|path| object.at(path)).filter(|value| !value.is_null());
        let Some(template) = template else { return Ok(()) };
        let (metadata, spec) = parts(template);
        self.check(attributes, &policy, &errors, metadata, spec, false)
    }

    fn check(
        &self,
        attributes: &Attributes<'_>,
        policy: &Policy,
        errors: &FieldErrors,
        metadata: &Value,
        spec: &Value,
        enforce: bool,
    ) -> Result<(), ApiError> {
        if self.is_exempt_class(spec) {
            annotate(attributes, "exempt", "runtimeClass");
            self.metrics.exempted(attributes);
            return Ok(());
        }
        if !errors.is_empty() {
            annotate(attributes, "error", format!("Failed to parse policy: {errors}"));
            self.metrics.failed(attributes, false);
        }
        let violations = |mode: LevelVersion| details(&evaluate(mode, metadata, spec));
        let enforced = if enforce { violations(policy.enforce) } else { String::new() };
        if enforce {
            annotate(attributes, "enforce-policy", policy.enforce.to_string());
            self.metrics.evaluated(attributes, "enforce", policy.enforce, enforced.is_empty());
        }
        let would = |mode: LevelVersion, violations: &str| {
            format!("would violate PodSecurity {}: {violations}", quote(&mode.to_string()))
        };
        let audited = violations(policy.audit);
        if !audited.is_empty() {
            annotate(attributes, "audit-violations", would(policy.audit, &audited));
            self.metrics.evaluated(attributes, "audit", policy.audit, false);
        }
        if !enforced.is_empty() {
            let policy = quote(&policy.enforce.to_string());
            return Err(ApiError::Forbidden {
                resource: attributes.gvr.group_resource(),
                name: attributes.name.to_owned(),
                why: format!("violates PodSecurity {policy}: {enforced}"),
                causes: Vec::new(),
            });
        }
        let warned = violations(policy.warn);
        if !warned.is_empty() {
            attributes.warn(would(policy.warn, &warned));
            self.metrics.evaluated(attributes, "warn", policy.warn, false);
        }
        Ok(())
    }
}

fn parts(pod: &Value) -> (&Value, &Value) {
    static NOTHING: Value = Value::Null;
    (pod.get("metadata").unwrap_or(&NOTHING), pod.get("spec").unwrap_or(&NOTHING))
}

async fn find_namespace(name: &str, cluster: &Cluster) -> Result<Option<Value>, ApiError> {
    let get = |freshness| cluster.objects.get(&resources::NAMESPACES, "", name, freshness);
    match get(Freshness::Cached).await? {
        Some(found) => Ok(Some(found)),
        None => get(Freshness::Linearizable).await,
    }
}

/// Whether an update of a pod changes what the standards are about: of that, only images and ephemeral
/// containers can change.
fn is_significant(pod: &Value, old: &Value) -> bool {
    let image = |container: &Value| container.str_at(&["image"]).to_owned();
    for list in ["containers", "initContainers"] {
        let (new, old) = (pod.items_at(&["spec", list]), old.items_at(&["spec", list]));
        if new.len() != old.len() || new.iter().map(image).ne(old.iter().map(image)) {
            return true;
        }
    }
    let path = ["spec", "ephemeralContainers"];
    let old: BTreeMap<&str, &str> = old
        .items_at(&path)
        .iter()
        .map(|container| (container.str_at(&["name"]), container.str_at(&["image"])))
        .collect();
    pod.items_at(&path).iter().any(|container| {
        old.get(container.str_at(&["name"])) != Some(&container.str_at(&["image"]))
    })
}

#[cfg(test)]
mod tests;
