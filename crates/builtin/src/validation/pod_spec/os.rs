//! What a pod may not have, once it says on which system it runs.

use meta::FieldErrors;

use super::each_container;
use crate::validation::cursor::Field;

pub(crate) fn validate(spec: &Field<'_>, errors: &mut FieldErrors) {
    let os = spec.get("os");
    if !os.is_set() {
        return;
    }
    match os.get("name").str() {
        "" => os.get("name").required(errors, ""),
        "linux" => linux(spec, errors),
        "windows" => windows(spec, errors),
        other => errors.not_supported(os.path(), other, &["linux", "windows"]),
    }
}

fn linux(spec: &Field<'_>, errors: &mut FieldErrors) {
    let why = "windows options cannot be set for a linux pod";
    let mut check = |context: &Field<'_>| {
        if context.get("windowsOptions").is_set() {
            context.get("windowsOptions").forbidden(errors, why);
        }
    };
    check(&spec.get("securityContext"));
    each_container(spec, |container| check(&container.get("securityContext")));
}

fn windows(spec: &Field<'_>, errors: &mut FieldErrors) {
    let why = "cannot be set for a windows pod";
    let context = spec.get("securityContext");
    for name in OF_POD {
        let field = match *name {
            "hostUsers" | "hostPID" | "hostIPC" | "shareProcessNamespace" => spec.get(name),
            name => context.get(name),
        };
        let is_given = match *name {
            "hostPID" | "hostIPC" => field.bool(),
            "sysctls" => !field.is_empty(),
            _ => field.is_set(),
        };
        if is_given {
            field.forbidden(errors, why);
        }
    }
    each_container(spec, |container| {
        let context = container.get("securityContext");
        for name in OF_CONTAINER {
            if context.get(name).is_set() {
                context.get(name).forbidden(errors, why);
            }
        }
    });
}

const OF_POD: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "shareProcessNamespace",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];

const OF_CONTAINER: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];
