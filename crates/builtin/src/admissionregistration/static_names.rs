//! Names that end with `.static.k8s.io`: those of configurations from files.

use meta::{FieldErrors, Value, field::path};

use crate::feature_gates::{FeatureGate, FeatureGates};

/// What a client is told that gives an object such a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StaticNames {
    /// With ManifestBasedAdmissionControlConfig.
    Refused,
    Warned,
}

impl StaticNames {
    pub(crate) fn new(features: FeatureGates) -> Self {
        if features.enabled(FeatureGate::ManifestBasedAdmissionControlConfig) {
            Self::Refused
        } else {
            Self::Warned
        }
    }

    /// Of a new object: those that are there may still be updated.
    pub(crate) fn validate(self, object: &Value, errors: &mut FieldErrors) {
        let name = object.str_at(&["metadata", "name"]);
        if self == Self::Refused && is_static(name) {
            errors.invalid(path("metadata").child("name"), name, RESERVED);
        }
    }

    pub(crate) fn warnings(self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let is_refused = self == Self::Refused && old.is_none();
        if is_refused || !is_static(object.str_at(&["metadata", "name"])) {
            return Vec::new();
        }
        vec![format!("metadata.name: {RESERVED}")]
    }
}

fn is_static(name: &str) -> bool {
    name.ends_with(".static.k8s.io")
}

const RESERVED: &str = "names ending with \".static.k8s.io\" are reserved for static \
                        manifest-based configurations and cannot be managed via the API";
