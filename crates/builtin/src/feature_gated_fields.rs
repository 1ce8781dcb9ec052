//! What depends on how the server was started: fields of features that are off, and privileged
//! containers.

use meta::{FieldErrors, Value};
use registry::{FeatureGatedFields, FieldPattern, GatedRule};

use crate::{
    feature_gates::FeatureGates,
    kind_facts::KindFacts,
    validation::{cursor::Field, pod_spec::each_container},
};

/// What the server does not allow of a kind.
pub(crate) fn of(
    facts: &KindFacts,
    allow_privileged: bool,
    features: FeatureGates,
) -> FeatureGatedFields {
    let off = facts.gated_fields.iter().filter(|(gate, _)| !features.enabled(*gate));
    let pod_spec = facts.pod_spec.filter(|_| !allow_privileged);
    let rule = |path| GatedRule { check: no_privileged_containers, path };
    FeatureGatedFields {
        dropped: off.map(|(_, field)| FieldPattern::new(*field)).collect(),
        rule: pod_spec.map(rule),
    }
}

/// Without `--allow-privileged`. Where the pod spec is, the kind that is written says: the object's own `kind`
/// can be removed by a patch.
fn no_privileged_containers(object: &Value, path: &str, errors: &mut FieldErrors) {
    let root = Field::root(object);
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
    use crate::kind_facts::KINDS;

    /// The rule looked for the object's own kind, which a patch could remove: a privileged container was let in.
    #[test]
    fn privileged_containers_are_refused_whatever_kind_the_object_names() {
        for (kind, spec) in [("Pod", "spec"), ("CronJob", "spec.jobTemplate.spec.template.spec")] {
            let facts = KINDS.iter().find(|facts| facts.kind == kind).expect("a kind");
            for named in [Some(kind), None, Some("Secret"), Some("Nothing")] {
                let mut object = value!({});
                if let Some(named) = named {
                    object.set_at(&["kind"], named);
                }
                let path: Vec<&str> = spec.split('.').chain(["containers"]).collect();
                object.set_at(&path, value!([{"securityContext": {"privileged": true}}]));
                for (allowed, expected) in [(false, 1), (true, 0)] {
                    let gated = of(facts, allowed, FeatureGates::default());
                    let mut errors = FieldErrors::default();
                    if let Some(GatedRule { check, path }) = gated.rule {
                        check(&object, path, &mut errors);
                    }
                    assert_eq!(errors.count(), expected, "{kind} {named:?} {allowed}");
                }
            }
        }
    }
}
