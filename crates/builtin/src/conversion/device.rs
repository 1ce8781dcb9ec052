//! `resource.k8s.io/v1beta1`: the fields of an exact request are in the request itself, those of a
//! device in a `basic` below it. Later versions differ in nothing but their name.

use meta::{Map, Value, cancel::interruptible};
use registry::Conversion;

pub(super) struct ClaimV1Beta1;
pub(super) struct TemplateV1Beta1;
pub(super) struct SliceV1Beta1;

impl Conversion for ClaimV1Beta1 {
    fn to_stored(&self, object: Value) -> Value {
        claim_to_newest(object)
    }

    fn to_served(&self, mut object: Value) -> Value {
        each(&mut object, &["spec", "devices", "requests"], flatten_request);
        object
    }
}

impl Conversion for TemplateV1Beta1 {
    fn to_stored(&self, object: Value) -> Value {
        template_to_newest(object)
    }

    fn to_served(&self, mut object: Value) -> Value {
        each(&mut object, &["spec", "spec", "devices", "requests"], flatten_request);
        object
    }
}

impl Conversion for SliceV1Beta1 {
    fn to_stored(&self, object: Value) -> Value {
        slice_to_newest(object)
    }

    fn to_served(&self, mut object: Value) -> Value {
        each(&mut object, &["spec", "devices"], |device| {
            let name = device.remove("name");
            let basic = std::mem::take(device);
            if let Some(name) = name {
                device.insert("name", name);
            }
            device.insert("basic", basic);
        });
        object
    }
}

/// A claim of any version as the newest has it.
pub(crate) fn claim_to_newest(mut claim: Value) -> Value {
    each(&mut claim, &["spec", "devices", "requests"], nest_request);
    claim
}

pub(crate) fn template_to_newest(mut template: Value) -> Value {
    each(&mut template, &["spec", "spec", "devices", "requests"], nest_request);
    template
}

pub(crate) fn slice_to_newest(mut slice: Value) -> Value {
    each(&mut slice, &["spec", "devices"], |device| {
        if let Some(Value::Object(basic)) = device.remove("basic") {
            for (key, value) in basic.iter() {
                device.insert(key, value.clone());
            }
        }
    });
    slice
}

/// What a request and an exact request have in common in the older version.
const EXACT: [&str; 7] = [
    "adminAccess",
    "allocationMode",
    "capacity",
    "count",
    "deviceClassName",
    "selectors",
    "tolerations",
];

fn nest_request(request: &mut Map) {
    let mut exactly = Map::new();
    for field in EXACT {
        if let Some(value) = request.remove(field).filter(|value| !is_zero(value)) {
            exactly.insert(field, value);
        }
    }
    if !exactly.is_empty() && !request.contains_key("exactly") {
        request.insert("exactly", exactly);
    }
}

fn flatten_request(request: &mut Map) {
    if let Some(Value::Object(exactly)) = request.remove("exactly") {
        for (key, value) in exactly.iter() {
            request.insert(key, value.clone());
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        other => other.as_i64() == Some(0),
    }
}

fn each(object: &mut Value, path: &[&str], change: impl Fn(&mut Map)) {
    let items = object.at_mut(path).and_then(Value::as_array_mut);
    let items = interruptible(items.into_iter().flatten());
    items.filter_map(Value::as_object_mut).for_each(change);
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn claims_and_slices_read_the_same_in_both_versions() {
        let cases: [(&dyn Conversion, Value, Value); 3] = [
            (
                &ClaimV1Beta1,
                value!({"spec": {"devices": {"requests": [
                    {"name": "a", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1i64},
                    {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]}
                ]}}}),
                value!({"spec": {"devices": {"requests": [
                    {"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1i64}},
                    {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]}
                ]}}}),
            ),
            (
                &TemplateV1Beta1,
                value!({"spec": {"spec": {"devices": {"requests": [{"name": "a", "deviceClassName": "c"}]}}}}),
                value!({"spec": {"spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "c"}}]}}}}),
            ),
            (
                &SliceV1Beta1,
                value!({"spec": {"driver": "d", "devices": [{"name": "a", "basic": {"attributes": {"x": {"int": 1i64}}}}]}}),
                value!({"spec": {"driver": "d", "devices": [{"name": "a", "attributes": {"x": {"int": 1i64}}}]}}),
            ),
        ];
        for (conversion, served, stored) in cases {
            assert_eq!(conversion.to_stored(served.clone()), stored);
            assert_eq!(conversion.to_served(stored), served);
        }
    }
}
