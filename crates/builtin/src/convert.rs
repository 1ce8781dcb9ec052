//! Between the versions of a resource, where one is stored and others are served as well.

mod custom_resource_definition;
pub(crate) mod device;
mod event;
mod horizontal_pod_autoscaler;

use std::sync::Arc;

use meta::{GroupVersionKind, Value};
use registry::Conversion;

/// The conversion between a served and the stored kind; None where they are the same.
pub(crate) fn between(
    served: &GroupVersionKind,
    stored: &GroupVersionKind,
) -> Option<Arc<dyn Conversion>> {
    if served == stored {
        return None;
    }
    Some(match (served.group.as_str(), served.version.as_str(), served.kind.as_str()) {
        ("apiextensions.k8s.io", "v1beta1", "CustomResourceDefinition") => {
            Arc::new(custom_resource_definition::V1Beta1)
        }
        ("events.k8s.io", "v1", "Event") => Arc::new(event::EventsV1),
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => Arc::new(horizontal_pod_autoscaler::V1),
        ("resource.k8s.io", "v1beta1", "ResourceClaim") => Arc::new(device::ClaimV1Beta1),
        ("resource.k8s.io", "v1beta1", "ResourceClaimTemplate") => {
            Arc::new(device::TemplateV1Beta1)
        }
        ("resource.k8s.io", "v1beta1", "ResourceSlice") => Arc::new(device::SliceV1Beta1),
        _ => Arc::new(SameShape),
    })
}

/// Versions that differ in nothing but their name.
struct SameShape;

impl Conversion for SameShape {
    fn to_stored(&self, object: Value) -> Value {
        object
    }

    fn to_served(&self, object: Value) -> Value {
        object
    }
}
