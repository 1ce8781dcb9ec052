//! Annotations that are fields in disguise: mirror pods, seccomp, AppArmor, deletion cost.

use meta::FieldErrors;

use crate::validation::{
    cursor::Field,
    pod_spec::{each_container, relative_path},
};

/// Marks a pod that a kubelet runs from a file.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(crate) fn validate(annotations: &Field<'_>, spec: &Field<'_>, errors: &mut FieldErrors) {
    if annotations.is_empty() {
        return;
    }
    let mirror = annotations.key(MIRROR);
    if mirror.is_set() && spec.get("nodeName").is_empty() {
        mirror.invalid(errors, "must set spec.nodeName if mirror pod annotation is set");
    }
    let cost = annotations.key(DELETION_COST);
    if cost.is_set() && !is_cost(cost.str()) {
        cost.invalid(errors, "must be a 32bit integer");
    }
    let pod = annotations.get(SECCOMP_POD);
    if pod.is_set() {
        seccomp(&pod, errors);
    }
    let keys: Vec<&str> = annotations.entries().map(|(key, _)| key).collect();
    for key in &keys {
        if key.starts_with(SECCOMP_CONTAINER) {
            seccomp(&annotations.get(key), errors);
        }
    }
    for key in keys {
        if let Some(container) = key.strip_prefix(APP_ARMOR) {
            app_armor(&annotations.key(key), container, spec, errors);
        }
    }
}

/// A number as Go prints it: no plus sign, no zeros in front.
fn is_cost(text: &str) -> bool {
    text.parse::<i32>().is_ok_and(|cost| cost.to_string() == text)
}

fn seccomp(profile: &Field<'_>, errors: &mut FieldErrors) {
    match profile.str() {
        "runtime/default" | "docker/default" | "unconfined" => {}
        text => match text.strip_prefix("localhost/") {
            Some(path) => {
                let path = meta::Value::from(path);
                relative_path(&profile.with(Some(&path)), errors);
            }
            None => profile.invalid(errors, "must be a valid seccomp profile"),
        },
    }
}

fn app_armor(profile: &Field<'_>, container: &str, spec: &Field<'_>, errors: &mut FieldErrors) {
    let mut found = false;
    each_container(spec, |other| found |= other.str_at(&["name"]) == container);
    if !found {
        profile.invalid_value(errors, container, "container not found");
    }
    let text = profile.str();
    let is_known = matches!(text, "" | "runtime/default" | "unconfined");
    if !is_known && !text.starts_with("localhost/") {
        let why = format!("invalid AppArmor profile name: {}", meta::field::quote(text));
        profile.invalid(errors, &why);
    }
}

/// Where there is both an annotation and a field, they say the same.
pub(crate) fn match_fields(annotations: &Field<'_>, spec: &Field<'_>, errors: &mut FieldErrors) {
    if annotations.is_empty() {
        return;
    }
    let context = spec.get("securityContext");
    let of_pod = context.get("seccompProfile");
    if of_pod.is_set() && annotations.get(SECCOMP_POD).is_set() {
        matches(annotations.str_at(&[SECCOMP_POD]), &of_pod, "seccomp", errors);
    }
    each_container(spec, |container| {
        let context = container.get("securityContext");
        let profile = context.get("seccompProfile");
        let key = format!("{SECCOMP_CONTAINER}{}", container.str_at(&["name"]));
        if profile.is_set() && annotations.get(&key).is_set() {
            matches(annotations.str_at(&[&key]), &profile, "seccomp", errors);
        }
    });
    if spec.str_at(&["os", "name"]) == "windows" {
        return;
    }
    each_container(spec, |container| {
        let of_container = container.get("securityContext");
        let mut profile = of_container.get("appArmorProfile");
        if !profile.is_set() {
            profile = profile.with(context.value_at(&["appArmorProfile"]));
        }
        let key = format!("{APP_ARMOR}{}", container.str_at(&["name"]));
        if profile.is_set() && annotations.get(&key).is_set() {
            matches(annotations.str_at(&[&key]), &profile, "apparmor", errors);
        }
    });
}

fn matches(annotation: &str, profile: &Field<'_>, what: &str, errors: &mut FieldErrors) {
    let type_differs = match profile.str_at(&["type"]) {
        "Unconfined" => annotation != "unconfined",
        "RuntimeDefault" => {
            annotation != "runtime/default"
                && !(what == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => !annotation.starts_with("localhost/"),
        _ => return,
    };
    if type_differs {
        let why = format!("{what} type in annotation and field must match");
        profile.get("type").forbidden(errors, &why);
    } else if profile.str_at(&["type"]) == "Localhost" {
        let local = profile.get("localhostProfile");
        if !local.is_set() || annotation.strip_prefix("localhost/") != Some(local.str()) {
            let why = format!("{what} profile in annotation and field must match");
            local.forbidden(errors, &why);
        }
    }
}

pub(crate) fn validate_update(annotations: &Field<'_>, old: &Field<'_>, errors: &mut FieldErrors) {
    if annotations.value() == old.value() {
        return;
    }
    let what = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        _ if key.starts_with(APP_ARMOR) => Some("AppArmor annotations"),
        _ => None,
    };
    for (key, before) in old.entries() {
        let now = annotations.key(key);
        if let Some(what) = what(key).filter(|_| now.value() != before.value()) {
            now.forbidden(errors, &format!("may not remove or update {what}"));
        }
    }
    for (key, now) in annotations.entries() {
        if let Some(what) = what(key).filter(|_| !old.key(key).is_set()) {
            now.forbidden(errors, &format!("may not add {what}"));
        }
    }
}
