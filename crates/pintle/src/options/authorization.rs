//! `--authorization-mode`: the authorizers.

use crate::flags::{Parsed, quote};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthorizationMode {
    AlwaysAllow,
    AlwaysDeny,
    Node,
    Rbac,
}

/// Unlike kube-apiserver, whose default is AlwaysAllow.
const DEFAULT: [AuthorizationMode; 2] = [AuthorizationMode::Node, AuthorizationMode::Rbac];

/// The authorizers in their order.
pub(super) fn modes(parsed: &Parsed, errors: &mut Vec<String>) -> Vec<AuthorizationMode> {
    let names = parsed.texts("authorization-mode");
    if !parsed.is_changed("authorization-mode") {
        return DEFAULT.to_vec();
    }
    if names.is_empty() {
        errors.push("at least one authorization-mode must be passed".to_owned());
    }
    let mut modes = Vec::new();
    for name in &names {
        let mode = match name.as_str() {
            "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
            "AlwaysDeny" => AuthorizationMode::AlwaysDeny,
            "Node" => AuthorizationMode::Node,
            "RBAC" => AuthorizationMode::Rbac,
            "ABAC" | "Webhook" => {
                errors.push(format!("authorization-mode {name} is not available in Pintle yet"));
                continue;
            }
            _ => {
                errors.push(format!("authorization-mode {} is not a valid mode", quote(name)));
                continue;
            }
        };
        if modes.contains(&mode) {
            let names: Vec<String> = names.iter().map(|name| quote(name)).collect();
            let names = names.join(" ");
            errors.push(format!("authorization-mode [{names}] has mode specified more than once"));
        }
        modes.push(mode);
    }
    modes
}
/// `--anonymous-auth`. Compat: never with AlwaysAllow, where a client without a credential could do
/// everything.
pub(super) fn anonymous_auth(parsed: &Parsed, warnings: &mut Vec<String>) -> bool {
    let asked = parsed.bool("anonymous-auth");
    let always_allow = parsed.texts("authorization-mode").iter().any(|mode| mode == "AlwaysAllow");
    if asked && always_allow {
        warnings.push(
            "AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to \
             false. You should use a different authorizer"
                .to_owned(),
        );
    }
    asked && !always_allow
}
