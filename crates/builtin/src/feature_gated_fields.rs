//! What depends on how the server was started: fields of features that are off, and privileged
//! containers.

use meta::{FieldErrors, Value};
use registry::{FeatureGatedFields, FieldPattern};

use crate::{
    feature_gates::FeatureGates,
    kind_facts::{KINDS, KindFacts},
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
    // A patch may have removed the kind or changed it to anything.
    let kind = root.get("kind");
    let path = KINDS.iter().filter(|facts| kind.is(facts.kind)).find_map(|facts| facts.pod_spec);
    let Some(path) = path else { return };
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

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn privileged_containers_are_found_by_kind_and_an_unknown_kind_is_no_panic() {
        let check = |kind: &str, spec: &str| {
            let containers = value!([{"securityContext": {"privileged": true}}]);
            let mut object = value!({"kind": (kind)});
            let path: Vec<&str> = spec.split('.').chain(["containers"]).collect();
            object.set_at(&path, containers);
            let mut errors = FieldErrors::default();
            no_privileged_containers(&object, &mut errors);
            errors.count()
        };
        assert_eq!(check("Pod", "spec"), 1);
        assert_eq!(check("CronJob", "spec.jobTemplate.spec.template.spec"), 1);
        assert_eq!(
            (check("", "spec"), check("Nothing", "spec"), check("Secret", "spec")),
            (0, 0, 0)
        );
    }
}
