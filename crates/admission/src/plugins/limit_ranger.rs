//! The LimitRanges of a namespace: they fill in what containers do not request, and refuse pods and claims
//! outside their bounds.

use meta::{ApiError, Value, quantity::Quantity, selector::LabelSelector};

use super::{
    aggregate,
    pod_resources::{self, ResourceList, list_of},
};
use crate::{Attributes, BoxFuture, Cluster, Operation, Plugin, resources};

pub struct LimitRanger {
    /// The gate PodLevelResources.
    pub pod_level_resources: bool,
}

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        // Containers of a pod change by `resize` only.
        match attributes.operation {
            Operation::Update if attributes.is("", "pods", "resize") => true,
            Operation::Update => attributes.is("", "persistentvolumeclaims", ""),
            _ => attributes.is_pod() || attributes.is("", "persistentvolumeclaims", ""),
        }
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object.filter(|_| attributes.gvr.resource == "pods") else {
                return Ok(());
            };
            for range in limit_ranges(attributes, cluster).await? {
                fill_in(pod, &range);
            }
            Ok(())
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(checked) = object else { return Ok(()) };
            for range in limit_ranges(attributes, cluster).await? {
                let errors = if attributes.gvr.resource == "pods" {
                    check_pod(checked, &range, self.pod_level_resources)
                } else {
                    check_claim(checked, &range)
                };
                if let Some(why) = aggregate(errors) {
                    return Err(attributes.forbidden(object, why));
                }
            }
            Ok(())
        })
    }
}

async fn limit_ranges(
    attributes: &Attributes<'_>,
    cluster: &Cluster,
) -> Result<Vec<Value>, ApiError> {
    // What is on its way out may still be updated.
    let deleted = attributes
        .old
        .is_some_and(|old| !old.str_at(&["metadata", "deletionTimestamp"]).is_empty());
    if deleted {
        return Ok(Vec::new());
    }
    let everything = LabelSelector::everything();
    cluster.objects.list(&resources::LIMIT_RANGES, attributes.namespace, &everything).await
}

/// The limits of a type in a LimitRange.
fn limits_of<'a>(range: &'a Value, ty: &'a str) -> impl Iterator<Item = &'a Value> {
    range.items_at(&["spec", "limits"]).iter().filter(move |limit| limit.str_at(&["type"]) == ty)
}

/// Fills in default requests and limits, and says so in an annotation.
fn fill_in(pod: &mut Value, range: &Value) {
    let (mut requests, mut limits) = (meta::Map::default(), meta::Map::default());
    for limit in limits_of(range, "Container") {
        for (field, defaults) in [("defaultRequest", &mut requests), ("default", &mut limits)] {
            let given = limit.get(field).and_then(Value::as_object);
            for (name, amount) in given.into_iter().flat_map(meta::Map::iter) {
                defaults.insert(name, amount.clone());
            }
        }
    }
    let mut changes = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.at_mut(&["spec", list]).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            // Looked up before either is filled in: the order is that of the annotation.
            let requests = fill_in_list(container, "requests", &requests);
            let limits = fill_in_list(container, "limits", &limits);
            let name = container.str_at(&["name"]);
            for (names, of) in [(requests, "request"), (limits, "limit")] {
                if !names.is_empty() {
                    changes.push(format!("{} {of} for {what} {name}", names.join(", ")));
                }
            }
        }
    }
    if !changes.is_empty() {
        let text = format!("LimitRanger plugin set: {}", changes.join("; "));
        pod.set_at(&["metadata", "annotations", ANNOTATION], text);
    }
}

/// The names of the resources that were filled in.
fn fill_in_list(container: &mut Value, field: &str, defaults: &meta::Map) -> Vec<String> {
    let mut filled = Vec::new();
    for (name, amount) in defaults.iter() {
        let path = ["resources", field, name.as_str()];
        if container.at(&path).is_none() {
            container.set_at(&path, amount.clone());
            filled.push(name.to_string());
        }
    }
    filled
}

fn check_claim(claim: &Value, range: &Value) -> Vec<String> {
    let ty = "PersistentVolumeClaim";
    let requests = list_of(claim.at(&["spec", "resources"]), "requests");
    let mut errors = Vec::new();
    for limit in limits_of(range, ty) {
        for (name, min) in list_of(Some(limit), "min") {
            errors.extend(check_min(ty, &name, &min, &requests, &ResourceList::new()).err());
        }
        for (name, max) in list_of(Some(limit), "max") {
            errors.extend(check_max_request(ty, &name, &max, &requests).err());
        }
    }
    errors
}

fn check_pod(pod: &Value, range: &Value, pod_level: bool) -> Vec<String> {
    let mut errors = Vec::new();
    for limit in range.items_at(&["spec", "limits"]) {
        match limit.str_at(&["type"]) {
            "Container" => {
                let containers = pod.items_at(&["spec", "containers"]).iter();
                for container in containers.chain(pod.items_at(&["spec", "initContainers"])) {
                    let resources = container.get("resources");
                    let (requests, limits) =
                        (list_of(resources, "requests"), list_of(resources, "limits"));
                    check_bounds("Container", limit, &requests, &limits, &mut errors);
                }
            }
            "Pod" => {
                let requests = pod_resources::of_pod(pod, "requests", pod_level);
                let limits = pod_resources::of_pod(pod, "limits", pod_level);
                check_bounds("Pod", limit, &requests, &limits, &mut errors);
            }
            _ => {}
        }
    }
    errors
}

fn check_bounds(
    ty: &str,
    limit: &Value,
    requests: &ResourceList,
    limits: &ResourceList,
    errors: &mut Vec<String>,
) {
    for (name, min) in list_of(Some(limit), "min") {
        errors.extend(check_min(ty, &name, &min, requests, limits).err());
    }
    for (name, max) in list_of(Some(limit), "max") {
        errors.extend(check_max(ty, &name, &max, requests, limits).err());
    }
    for (name, ratio) in list_of(Some(limit), "maxLimitRequestRatio") {
        errors.extend(check_ratio(ty, &name, &ratio, requests, limits).err());
    }
}

/// Upstream's `resource.MaxMilliValue`: larger amounts are compared as whole numbers.
const MILLI_MAX: i64 = i64::MAX / 1000;

/// A request, a limit and a bound as numbers of the same precision.
fn comparable(amounts: [Option<&Quantity>; 3]) -> [i64; 3] {
    let whole = amounts.map(|amount| amount.map_or(0, Quantity::value));
    if whole.iter().all(|value| *value <= MILLI_MAX) {
        return amounts.map(|amount| amount.map_or(0, Quantity::milli_value));
    }
    whole
}

fn check_min(
    ty: &str,
    name: &str,
    min: &Quantity,
    requests: &ResourceList,
    limits: &ResourceList,
) -> Result<(), String> {
    let (request, limit) = (requests.get(name), limits.get(name));
    let [request_value, limit_value, bound] = comparable([request, limit, Some(min)]);
    let text = format!("minimum {name} usage per {ty} is {min}");
    match (request, limit) {
        (None, _) => Err(format!("{text}.  No request is specified")),
        (Some(request), _) if request_value < bound => {
            Err(format!("{text}, but request is {request}"))
        }
        (_, Some(limit)) if limit_value < bound => Err(format!("{text}, but limit is {limit}")),
        _ => Ok(()),
    }
}

/// For claims, which have no limits.
fn check_max_request(
    ty: &str,
    name: &str,
    max: &Quantity,
    requests: &ResourceList,
) -> Result<(), String> {
    let request = requests.get(name);
    let [request_value, _, bound] = comparable([request, None, Some(max)]);
    let text = format!("maximum {name} usage per {ty} is {max}");
    match request {
        None => Err(format!("{text}.  No request is specified")),
        Some(request) if request_value > bound => Err(format!("{text}, but request is {request}")),
        Some(_) => Ok(()),
    }
}

fn check_max(
    ty: &str,
    name: &str,
    max: &Quantity,
    requests: &ResourceList,
    limits: &ResourceList,
) -> Result<(), String> {
    let (request, limit) = (requests.get(name), limits.get(name));
    let [request_value, limit_value, bound] = comparable([request, limit, Some(max)]);
    let text = format!("maximum {name} usage per {ty} is {max}");
    match (limit, request) {
        (None, _) => Err(format!("{text}.  No limit is specified")),
        (Some(limit), _) if limit_value > bound => Err(format!("{text}, but limit is {limit}")),
        (_, Some(request)) if request_value > bound => {
            Err(format!("{text}, but request is {request}"))
        }
        _ => Ok(()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "upstream compares ratios as floats")]
fn check_ratio(
    ty: &str,
    name: &str,
    max: &Quantity,
    requests: &ResourceList,
    limits: &ResourceList,
) -> Result<(), String> {
    let amounts = [requests.get(name), limits.get(name), Some(max)];
    let [request, limit, _] = comparable(amounts);
    let text = format!("{name} max limit to request ratio per {ty} is {max}");
    if request == 0 {
        return Err(format!("{text}, but no request is specified or request is 0"));
    }
    if limit == 0 {
        return Err(format!("{text}, but no limit is specified or limit is 0"));
    }
    let ratio = limit as f64 / request as f64;
    let (compared, bound) = if max.value() <= MILLI_MAX {
        (ratio * 1000.0, max.milli_value() as f64)
    } else {
        (ratio, max.value() as f64)
    };
    if compared > bound {
        return Err(format!("{text}, but provided ratio is {ratio:.6}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{cluster, create, update, yaml};

    const PLUGIN: LimitRanger = LimitRanger { pod_level_resources: true };

    fn range(limits: &str) -> String {
        format!("{{metadata: {{name: r, namespace: n1}}, spec: {{limits: [{limits}]}}}}")
    }

    fn pod(containers: &str) -> Value {
        yaml(&format!(
            "{{metadata: {{name: p, namespace: n1}}, spec: {{containers: [{containers}]}}}}"
        ))
    }

    #[test]
    fn defaults_are_filled_in_and_noted() {
        let range = range(
            "{type: Container, default: {cpu: 2, memory: 2Gi}, defaultRequest: {cpu: 1, memory: 1Gi}}, \
             {type: Pod, max: {cpu: 1}}",
        );
        let cluster = cluster(&[(&resources::LIMIT_RANGES, &range)], &[]);
        let mut object = yaml(
            "{metadata: {name: p, namespace: n1}, spec: {containers: [{name: a}, {name: b, resources: \
             {requests: {cpu: 3}, limits: {cpu: 4, memory: 4Gi}}}], initContainers: [{name: i}]}}",
        );
        let outcome = create(&resources::PODS).admit(&PLUGIN, &mut object, &cluster);
        assert_eq!(outcome.message(), "");
        let all = "requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 2Gi}";
        let expected = yaml(&format!(
            "{{metadata: {{name: p, namespace: n1, annotations: {{kubernetes.io/limit-ranger: \
             'LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for \
             container a; memory request for container b; cpu, memory request for init container i; \
             cpu, memory limit for init container i'}}}}, spec: {{containers: [{{name: a, resources: \
             {{{all}}}}}, {{name: b, resources: {{requests: {{cpu: 3, memory: 1Gi}}, limits: {{cpu: 4, \
             memory: 4Gi}}}}}}], initContainers: [{{name: i, resources: {{{all}}}}}]}}}}"
        ));
        assert_eq!(object, expected);
        let mut elsewhere =
            yaml("{metadata: {name: p, namespace: m1}, spec: {containers: [{name: a}]}}");
        let before = elsewhere.clone();
        create(&resources::PODS).admit(&PLUGIN, &mut elsewhere, &cluster);
        assert_eq!(elsewhere, before, "a LimitRange counts in its namespace");
    }

    #[test]
    fn pods_stay_within_the_bounds() {
        let c = |resources: &str| format!("{{name: c, resources: {{{resources}}}}}");
        let cases = [
            ("{type: Container, min: {cpu: 1}}", c("requests: {cpu: 1}"), ""),
            (
                "{type: Container, min: {cpu: 1}}",
                c(""),
                "minimum cpu usage per Container is 1.  No request is specified",
            ),
            (
                "{type: Container, min: {cpu: 1}}",
                c("requests: {cpu: 500m}"),
                "minimum cpu usage per Container is 1, but request is 500m",
            ),
            (
                "{type: Container, min: {cpu: 1}}",
                c("requests: {cpu: 1}, limits: {cpu: 500m}"),
                "minimum cpu usage per Container is 1, but limit is 500m",
            ),
            ("{type: Container, max: {memory: 1Gi}}", c("limits: {memory: 1Gi}"), ""),
            (
                "{type: Container, max: {memory: 1Gi}}",
                c("requests: {memory: 1Gi}"),
                "maximum memory usage per Container is 1Gi.  No limit is specified",
            ),
            (
                "{type: Container, max: {memory: 1Gi}}",
                c("limits: {memory: 2Gi}"),
                "maximum memory usage per Container is 1Gi, but limit is 2Gi",
            ),
            (
                "{type: Container, max: {memory: 1Gi}}",
                c("requests: {memory: 2Gi}, limits: {memory: 1Gi}"),
                "maximum memory usage per Container is 1Gi, but request is 2Gi",
            ),
            (
                "{type: Container, maxLimitRequestRatio: {cpu: 1500m}}",
                c("requests: {cpu: 1}, limits: {cpu: 2}"),
                "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000",
            ),
            (
                "{type: Container, maxLimitRequestRatio: {cpu: 2}}",
                c("requests: {cpu: 1}, limits: {cpu: 2}"),
                "",
            ),
            (
                "{type: Container, maxLimitRequestRatio: {cpu: 2}}",
                c("limits: {cpu: 2}"),
                "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ),
            (
                "{type: Container, maxLimitRequestRatio: {cpu: 2}}",
                c("requests: {cpu: 2}"),
                "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
            ),
            (
                "{type: Container, min: {cpu: 1, memory: 1Gi}}",
                c(""),
                "[minimum cpu usage per Container is 1.  No request is specified, minimum memory usage per Container is 1Gi.  No request is specified]",
            ),
            (
                "{type: Container, min: {cpu: 1}}",
                format!("{}, {}", c(""), c("")),
                "minimum cpu usage per Container is 1.  No request is specified",
            ),
            (
                "{type: Pod, max: {cpu: 1}}",
                format!("{}, {}", c("limits: {cpu: 1}"), c("limits: {cpu: 500m}")),
                "maximum cpu usage per Pod is 1, but limit is 1500m",
            ),
        ];
        for (limits, containers, why) in cases {
            let range = range(limits);
            let cluster = cluster(&[(&resources::LIMIT_RANGES, &range)], &[]);
            let expected = if why.is_empty() {
                String::new()
            } else {
                format!("pods \"p\" is forbidden: {why}")
            };
            let object = pod(&containers);
            let outcome = create(&resources::PODS).validate(&PLUGIN, &object, &cluster);
            assert_eq!(outcome.message(), expected, "{limits} {containers}");
            let resize = update(&resources::PODS, object.clone()).subresource("resize");
            assert_eq!(resize.validate(&PLUGIN, &object, &cluster).message(), expected);
            let updated = update(&resources::PODS, object.clone());
            assert_eq!(updated.validate(&PLUGIN, &object, &cluster).message(), "");
        }
    }

    #[test]
    fn claims_stay_within_the_bounds() {
        let range =
            range("{type: PersistentVolumeClaim, min: {storage: 1Gi}, max: {storage: 4Gi}}");
        let cluster = cluster(&[(&resources::LIMIT_RANGES, &range)], &[]);
        let claim = |size: &str, deleted: &str| {
            yaml(&format!(
                "{{metadata: {{name: c, namespace: n1{deleted}}}, spec: {{resources: {{requests: \
                 {{storage: {size}}}}}}}}}"
            ))
        };
        let claims = &resources::PERSISTENT_VOLUME_CLAIMS;
        let forbidden = |why: &str| format!("persistentvolumeclaims \"c\" is forbidden: {why}");
        let small = forbidden(
            "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi",
        );
        let large =
            forbidden("maximum storage usage per PersistentVolumeClaim is 4Gi, but request is 5Gi");
        let deleted = ", deletionTimestamp: '2020-01-01T00:00:00Z'";
        let cases = [
            (create(claims), "2Gi", ""),
            (create(claims), "512Mi", &small),
            (create(claims), "5Gi", &large),
            (update(claims, claim("2Gi", "")), "5Gi", &large),
            (update(claims, claim("2Gi", deleted)), "5Gi", ""),
            (update(claims, claim("2Gi", "")).subresource("status"), "5Gi", ""),
        ];
        for (request, size, expected) in cases {
            let outcome = request.validate(&PLUGIN, &claim(size, ""), &cluster);
            assert_eq!(outcome.message(), expected, "{size}");
        }
    }
}
