//! What depends on how the server was started: fields of features that are off, and privileged
//! containers.

use meta::{FieldErrors, GroupVersionKind, Value};
use registry::{FeatureGatedFields, FieldPattern};

use crate::{
    feature_gates::FeatureGates,
    kind_facts::{self, KindFacts},
    validation::{cursor::Field, pod_spec::each_container},
};

/// What the server does not allow of a kind.
pub(crate) fn of(
    facts: &KindFacts,
    allow_privileged: bool,
    features: FeatureGates,
) -> FeatureGatedFields {
    let off = facts.gated_fields.iter().filter(|(gate, _)| !features.enabled(*gate));
    let rule: fn(&Value, &mut FieldErrors) = no_privileged_containers;
    FeatureGatedFields {
        dropped: off.map(|(_, field)| FieldPattern::new(*field)).collect(),
        rule: (facts.pod_spec.is_some() && !allow_privileged).then_some(rule),
    }
}

/// Without `--allow-privileged`.
fn no_privileged_containers(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let api_version = root.get("apiVersion").str();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind::new(group, version, root.get("kind").str());
    let Some(path) = kind_facts::of(&kind).pod_spec else { return };
    below(&root, path, &mut |spec| {
        each_container(spec, |container| {
            let security = container.get("securityContext");
            if security.get("privileged").bool() {
                security.get("privileged").forbidden(errors, "disallowed by cluster policy");
            }
        });
        let is_host_process = |owner: &Field<'_>| {
            owner.value_at(&["securityContext", "windowsOptions", "hostProcess"])
                == Some(&Value::Bool(true))
        };
        let mut any = is_host_process(spec);
        each_container(spec, |container| any |= is_host_process(&container));
        if any {
            spec.forbidden(errors, "hostProcess containers are disallowed by cluster policy");
        }
    });
}

fn below(field: &Field<'_>, path: &str, visit: &mut dyn FnMut(&Field<'_>)) {
    match path.split_once('.') {
        Some((step, rest)) => below(&field.get(step), rest, visit),
        None => visit(&field.get(path)),
    }
}
