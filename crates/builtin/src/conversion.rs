//! Between the versions of a resource, where one is stored and others are served as well.

mod custom_resource_definition;
pub(crate) mod device;
mod event;
pub(crate) mod horizontal_pod_autoscaler;

use std::sync::Arc;

use meta::{GroupVersionKind, Value};
use patch::apply::VersionConverter;
use registry::Conversion;
use schema::TypeId;

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
        _ => Arc::new(SameFields),
    })
}

/// All served versions of one resource, for server-side apply: a manager may own a field in
/// another version than the one that is written now.
#[derive(Default)]
pub(crate) struct ServedVersions(pub(crate) Vec<ServedVersion>);

pub(crate) struct ServedVersion {
    pub(crate) gvk: GroupVersionKind,
    pub(crate) ty: TypeId,
    /// From and to the stored version; None where it is that.
    pub(crate) conversion: Option<Arc<dyn Conversion>>,
}

impl ServedVersions {
    fn find(&self, api_version: &str) -> Option<&ServedVersion> {
        self.0.iter().find(|version| version.gvk.group_version().to_string() == api_version)
    }
}

impl VersionConverter for ServedVersions {
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, TypeId)> {
        let to = self.find(api_version)?;
        let written_as = object.str_at(&["apiVersion"]);
        if written_as == api_version {
            return Some((object.clone(), to.ty));
        }
        let from = self.find(written_as).and_then(|from| from.conversion.as_ref());
        let mut object = object.clone();
        if let Some(from) = from {
            object = from.to_stored(object);
        }
        if let Some(conversion) = &to.conversion {
            object = conversion.to_served(object);
        }
        object.set_at(&["apiVersion"], api_version);
        Some((object, to.ty))
    }
}

/// Versions that differ in nothing but their name.
struct SameFields;

impl Conversion for SameFields {
    fn to_stored(&self, object: Value) -> Value {
        object
    }

    fn to_served(&self, object: Value) -> Value {
        object
    }
}

#[cfg(test)]
mod tests {
    use meta::{cancel::is_interruptible, growth::assert_linear, value};

    use super::*;

    /// A huge object is not converted to its end for a client that is gone, and costs in proportion to its size.
    #[test]
    fn conversions_are_linear_and_interruptible() {
        let metric = value!({"type": "Resource",
            "resource": {"name": "memory", "target": {"type": "Value", "averageValue": "1"}}});
        let column = value!({"name": "a", "type": "string", "jsonPath": ".spec.a"});
        let cases: [(&str, &dyn Conversion, &[&str], Value); 5] = [
            ("metrics", &horizontal_pod_autoscaler::V1, &["spec", "metrics"], metric),
            (
                "versions",
                &custom_resource_definition::V1Beta1,
                &["spec", "versions"],
                value!({"name": "v1", "additionalPrinterColumns": [(column)]}),
            ),
            (
                "claim",
                &device::ClaimV1Beta1,
                &["spec", "devices", "requests"],
                value!({"name": "r", "exactly": {"deviceClassName": "c", "count": 1i64}}),
            ),
            (
                "template",
                &device::TemplateV1Beta1,
                &["spec", "spec", "devices", "requests"],
                value!({"name": "r", "exactly": {"deviceClassName": "c"}}),
            ),
            (
                "slice",
                &device::SliceV1Beta1,
                &["spec", "devices"],
                value!({"name": "d", "attributes": {"a": {"int": 1i64}}}),
            ),
        ];
        for (name, conversion, path, item) in cases {
            let object = |n: usize| {
                let mut object = Value::object();
                object.set_at(path, vec![item.clone(); n]);
                object
            };
            let both = |object: &Value| {
                drop(conversion.to_stored(conversion.to_served(object.clone())));
            };
            assert_linear(name, 500, object, both);
            assert!(is_interruptible(|| drop(conversion.to_served(object(500)))), "{name}");
            let served = conversion.to_served(object(500));
            assert!(is_interruptible(|| drop(conversion.to_stored(served))), "{name}");
        }
    }
}
