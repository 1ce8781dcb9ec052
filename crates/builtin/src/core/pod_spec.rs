//! The defaults of pods, and of the templates that controllers make pods from.

use meta::{Map, Value};

use super::image::default_pull_policy;
use super::persistent_volume_claim::default_claim_spec;
use crate::defaulting::{SetDefault, is_empty, round_resources};

/// Fills in the template of a controller. One behind a pointer may be missing.
pub(crate) fn default_template(template: &mut Map) {
    drop_init_container_annotations(template);
    default_pod_spec(template.part("spec"));
}

/// What a pod and a template have in common.
pub(crate) fn default_pod_spec(spec: &mut Map) {
    spec.set_default_if_empty("dnsPolicy", "ClusterFirst");
    spec.set_default_if_empty("restartPolicy", "Always");
    spec.set_default("securityContext", Map::new());
    spec.set_default("terminationGracePeriodSeconds", 30i64);
    spec.set_default_if_empty("schedulerName", "default-scheduler");
    default_service_account(spec);
    spec.each("volumes").for_each(default_volume);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        spec.each(list).for_each(default_container);
    }
    round_resources(spec, &["overhead"]);
    if let Some(resources) = spec.given("resources") {
        round_resources(resources, &["limits", "requests"]);
    }
}

/// Compat: clients of Kubernetes 1.0 wrote annotations for what are fields now.
pub(crate) fn drop_init_container_annotations(object: &mut Map) {
    let Some(metadata) = object.given("metadata") else { return };
    let Some(annotations) = metadata.given("annotations") else { return };
    annotations.retain(|key, _| !INIT_CONTAINER_ANNOTATIONS.contains(&key));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-container-statuses",
    "pod.beta.kubernetes.io/init-container-statuses",
];

/// `serviceAccount` is what `serviceAccountName` was called once: readers of either find it.
fn default_service_account(spec: &mut Map) {
    let name = |key| spec.get(key).filter(|name| !is_empty(name));
    let name = name("serviceAccountName").or_else(|| name("serviceAccount")).cloned();
    if let Some(name) = name {
        spec.insert("serviceAccountName", name.clone());
        spec.insert("serviceAccount", name);
    }
}

fn default_container(container: &mut Map) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = default_pull_policy(image);
    container.set_default_if_empty("imagePullPolicy", policy);
    container.set_default_if_empty("terminationMessagePath", "/dev/termination-log");
    container.set_default_if_empty("terminationMessagePolicy", "File");
    for variable in container.each("env") {
        if let Some(source) = variable.given("valueFrom") {
            default_field_ref(source);
        }
    }
    if let Some(resources) = container.given("resources") {
        round_resources(resources, &["limits", "requests"]);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.given(probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = container.given("lifecycle") {
        for handler in ["postStart", "preStop"] {
            if let Some(handler) = lifecycle.given(handler) {
                default_http_get(handler);
            }
        }
    }
}

fn default_probe(probe: &mut Map) {
    probe.set_default_if_empty("timeoutSeconds", 1i64);
    probe.set_default_if_empty("periodSeconds", 10i64);
    probe.set_default_if_empty("successThreshold", 1i64);
    probe.set_default_if_empty("failureThreshold", 3i64);
    default_http_get(probe);
}

fn default_http_get(handler: &mut Map) {
    if let Some(get) = handler.given("httpGet") {
        get.set_default_if_empty("path", "/");
        get.set_default_if_empty("scheme", "HTTP");
    }
}

fn default_field_ref(source: &mut Map) {
    if let Some(field) = source.given("fieldRef") {
        field.set_default_if_empty("apiVersion", "v1");
    }
}

/// A volume without a source is an empty directory.
fn default_volume(volume: &mut Map) {
    if volume.iter().all(|(key, source)| key == "name" || source.is_null()) {
        volume.insert("emptyDir", Map::new());
    }
    if let Some(image) = volume.given("image") {
        let reference = image.get("reference").and_then(Value::as_str).unwrap_or_default();
        let policy = default_pull_policy(reference);
        image.set_default_if_empty("pullPolicy", policy);
    }
    default_host_path(volume);
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.given(source) {
            source.set_default("defaultMode", FILE_MODE);
        }
    }
    if let Some(downward) = volume.given("downwardAPI") {
        downward.each("items").for_each(default_field_ref);
    }
    if let Some(projected) = volume.given("projected") {
        projected.each("sources").for_each(default_projection);
    }
    let ephemeral = volume.given("ephemeral");
    if let Some(template) = ephemeral.and_then(|own| own.given("volumeClaimTemplate")) {
        default_claim_spec(template.part("spec"));
    }
}

/// 0644
const FILE_MODE: i64 = 420;

fn default_projection(projection: &mut Map) {
    if let Some(downward) = projection.given("downwardAPI") {
        downward.each("items").for_each(default_field_ref);
    }
    if let Some(token) = projection.given("serviceAccountToken") {
        token.set_default("expirationSeconds", HOUR_SECONDS);
    }
}

const HOUR_SECONDS: i64 = 60 * 60;

/// Volumes of pods and persistent volumes say whether a path has to be of some type.
pub(crate) fn default_host_path(volume: &mut Map) {
    if let Some(path) = volume.given("hostPath") {
        path.set_default("type", "");
    }
}
