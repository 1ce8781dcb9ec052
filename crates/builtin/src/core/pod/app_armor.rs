//! AppArmor profiles of a new pod: annotations, as they were before v1.30, become fields.

use meta::{Value, Warnings, value};

/// The container's name follows.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
/// What validation allows.
const LOCALHOST_PROFILE_BYTES_MAX: usize = 4095;

/// Sets the profile of each container that has an annotation and no field, and warns about the
/// annotation: kubelets look at the fields only.
pub(crate) fn copy_annotations_to_fields(pod: &mut Value, warnings: &Warnings) {
    if pod.str_at(&["spec", "os", "name"]) == "windows" {
        return;
    }
    let annotations = pod.at(&["metadata", "annotations"]).and_then(Value::as_object).cloned();
    let (Some(annotations), Some(spec)) = (annotations, pod.get_mut("spec")) else { return };
    let of_pod = spec.at(&["securityContext", "appArmorProfile"]).cloned();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let key = format!("{ANNOTATION}{}", container.str_at(&["name"]));
            let Some(annotation) = annotations.get(&key).and_then(Value::as_str) else { continue };
            let field = ["securityContext", "appArmorProfile"];
            if container.at(&field).is_some() {
                continue;
            }
            let profile = profile_of(annotation);
            if profile.is_some() && profile == of_pod {
                continue;
            }
            if let Some(profile) = profile {
                container.set_at(&field, profile);
            }
            warnings.add(format!(
                "metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
            ));
        }
    }
}

/// None: the annotation says nothing that a field could say.
fn profile_of(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(value!({"type": "Unconfined"})),
        "runtime/default" => Some(value!({"type": "RuntimeDefault"})),
        _ => {
            let path = annotation.strip_prefix("localhost/")?;
            let is_valid = !path.is_empty()
                && path.trim() == path
                && path.len() <= LOCALHOST_PROFILE_BYTES_MAX;
            is_valid.then(|| value!({"type": "Localhost", "localhostProfile": path}))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The annotation, the profiles of pod and container before, and of the container after; whether there is
    /// a warning.
    #[test]
    fn annotations_become_fields() {
        let unconfined = || value!({"type": "Unconfined"});
        let default = || value!({"type": "RuntimeDefault"});
        let local = |path: &str| value!({"type": "Localhost", "localhostProfile": path});
        let none = || Value::Null;
        let long = format!("localhost/{}", "a".repeat(LOCALHOST_PROFILE_BYTES_MAX + 1));
        let cases = [
            ("unconfined", none(), none(), unconfined(), true),
            ("runtime/default", none(), none(), default(), true),
            ("localhost/a/b", none(), none(), local("a/b"), true),
            // The pod's profile is the same, or another one.
            ("unconfined", unconfined(), none(), none(), false),
            ("localhost/a", local("a"), none(), none(), false),
            ("localhost/a", local("b"), none(), local("a"), true),
            // A field is left alone.
            ("unconfined", none(), default(), default(), false),
            // No profile.
            ("", none(), none(), none(), true),
            ("localhost/", none(), none(), none(), true),
            ("localhost/ a", none(), none(), none(), true),
            (&long, none(), none(), none(), true),
            ("docker/default", default(), none(), none(), true),
        ];
        let field = ["securityContext", "appArmorProfile"];
        for (annotation, of_pod, before, after, warns) in cases {
            for list in ["containers", "initContainers"] {
                let key = format!("{ANNOTATION}c");
                let mut pod = value!({"metadata": {}, "spec": {}});
                pod.set_at(&["metadata", "annotations", &key], annotation);
                let mut container = value!({"name": "c"});
                if !of_pod.is_null() {
                    pod.set_at(&["spec", "securityContext", "appArmorProfile"], of_pod.clone());
                }
                if !before.is_null() {
                    container.set_at(&field, before.clone());
                }
                pod.set_at(&["spec", list], vec![container]);
                let warnings = Warnings::default();
                copy_annotations_to_fields(&mut pod, &warnings);
                let container = &pod.items_at(&["spec", list])[0];
                assert_eq!(container.at(&field).unwrap_or(&Value::Null), &after, "{annotation}");
                assert_eq!(!warnings.take().is_empty(), warns, "{annotation}");
            }
        }
    }

    #[test]
    fn windows_has_no_profiles() {
        let mut pod = value!({
            "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}},
            "spec": {"os": {"name": "windows"}, "containers": [{"name": "c"}]},
        });
        let before = pod.clone();
        copy_annotations_to_fields(&mut pod, &Warnings::default());
        assert_eq!(pod, before);
    }
}
