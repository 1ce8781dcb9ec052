//! Every image is pulled with the pod's own credentials: a private image that is on the node already can't
//! be used by those who may not pull it.

use std::collections::HashSet;

use meta::{ApiError, FieldErrors, FieldPath, Value, field::path};

use super::aggregate;
use crate::{Attributes, BoxFuture, Cluster, Operation, Plugin};

pub struct AlwaysPullImages;

const ALWAYS: &str = "Always";

impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_pod()
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if let Some(pod) = object.filter(|pod| !has_only_old_images(pod, attributes)) {
            pull_always(pod);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let pod = object.filter(|pod| !has_only_old_images(pod, attributes));
        let errors = pod.map(check).unwrap_or_default();
        let errors = errors.iter().map(|error| {
            let mut one = FieldErrors::default();
            one.add(error.clone());
            attributes.forbidden(object, one.to_string()).to_string()
        });
        // Compat: upstream's error is a list of errors, which is a 500.
        let result = aggregate(errors.collect()).map_or(Ok(()), |why| Err(ApiError::Storage(why)));
        Box::pin(std::future::ready(result))
    }
}

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

fn images(pod: &Value) -> impl Iterator<Item = &str> {
    let containers = CONTAINERS.into_iter().flat_map(|list| pod.items_at(&["spec", list]));
    containers.map(|container| container.str_at(&["image"]))
}

/// An update that names no new image is no use of one.
fn has_only_old_images(pod: &Value, attributes: &Attributes<'_>) -> bool {
    attributes.old.is_some_and(|old| {
        let old: HashSet<&str> = images(old).collect();
        images(pod).all(|image| old.contains(image))
    })
}

fn pull_always(pod: &mut Value) {
    for list in CONTAINERS {
        let containers = pod.at_mut(&["spec", list]).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            container.set_at(&["imagePullPolicy"], ALWAYS);
        }
    }
    let volumes = pod.at_mut(&["spec", "volumes"]).and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten().filter(|volume| has_image(volume)) {
        volume.set_at(&["image", "pullPolicy"], ALWAYS);
    }
}

fn has_image(volume: &Value) -> bool {
    volume.get("image").is_some_and(|image| !image.is_null())
}

fn check(pod: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let mut check = |policy: &str, at: FieldPath| {
        if policy != ALWAYS {
            errors.not_supported(at, policy, &[ALWAYS]);
        }
    };
    for list in CONTAINERS {
        for (at, container) in pod.items_at(&["spec", list]).iter().enumerate() {
            let at = path("spec").child(list).index(at).child("imagePullPolicy");
            check(container.str_at(&["imagePullPolicy"]), at);
        }
    }
    for (at, volume) in pod.items_at(&["spec", "volumes"]).iter().enumerate() {
        if has_image(volume) {
            let at = path("spec").child("volumes").index(at).child("image").child("pullPolicy");
            check(volume.str_at(&["image", "pullPolicy"]), at);
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{cluster, create, update, yaml},
        resources,
    };

    fn pod(policy: &str, image: &str) -> Value {
        yaml(&format!(
            "{{metadata: {{name: p}}, spec: {{initContainers: [{{imagePullPolicy: {policy}, image: a}}], \
             containers: [{{imagePullPolicy: {policy}, image: {image}}}], volumes: [{{image: \
             {{pullPolicy: {policy}}}}}, {{emptyDir: {{}}}}]}}}}"
        ))
    }

    #[test]
    fn images_are_always_pulled() {
        let cases = [
            (create(&resources::PODS), true),
            (update(&resources::PODS, pod("Never", "other")), true),
            (update(&resources::PODS, pod("Never", "b")), false),
            (create(&resources::PODS).subresource("eviction"), false),
        ];
        for (request, changed) in cases {
            let mut object = pod("Never", "b");
            request.admit(&AlwaysPullImages, &mut object, &cluster(&[], &[]));
            assert_eq!(object, pod(if changed { "Always" } else { "Never" }, "b"));
        }
    }

    #[test]
    fn a_later_plugin_can_not_undo_it() {
        let error = |at: &str| {
            format!(
                "pods \"p\" is forbidden: spec.{at}: Unsupported value: \"Never\": supported values: \
                 \"Always\""
            )
        };
        let expected = format!(
            "[{}, {}, {}]",
            error("initContainers[0].imagePullPolicy"),
            error("containers[0].imagePullPolicy"),
            error("volumes[0].image.pullPolicy")
        );
        let request = create(&resources::PODS);
        let cluster = cluster(&[], &[]);
        let outcome = request.validate(&AlwaysPullImages, &pod("Never", "b"), &cluster);
        assert_eq!(outcome.message(), expected);
        assert_eq!(outcome.error.unwrap().status().code, 500);
        let outcome = request.validate(&AlwaysPullImages, &pod("Always", "b"), &cluster);
        assert_eq!(outcome.message(), "");
    }
}
