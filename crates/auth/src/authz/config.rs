//! `AuthorizationConfiguration`: the authorizers of a server in their order.

use std::{path::PathBuf, time::Duration};

use codec::config_file::FieldType;
use meta::{
    Value,
    field::{FieldErrors, FieldPath, path, quote},
    names::is_dns1123_subdomain,
};

use super::webhook::{WebhookConfig, compile};
use crate::config_file::{self, parse_duration};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationConfig {
    pub authorizers: Vec<AuthorizerConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizerConfig {
    pub kind: AuthorizerType,
    pub name: String,
    /// Only of a webhook.
    pub webhook: Option<WebhookConfig>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizerType {
    AlwaysAllow,
    AlwaysDeny,
    Abac,
    Webhook,
    Rbac,
    Node,
}

impl AuthorizerType {
    const ALL: [Self; 6] =
        [Self::AlwaysAllow, Self::AlwaysDeny, Self::Abac, Self::Webhook, Self::Rbac, Self::Node];

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Abac => "ABAC",
            Self::Webhook => "Webhook",
            Self::Rbac => "RBAC",
            Self::Node => "Node",
        }
    }
}

impl AuthorizerConfig {
    /// One without settings. Compat: its name is the type in lower case.
    pub fn of(kind: AuthorizerType) -> Self {
        Self { kind, name: kind.name().to_lowercase(), webhook: None }
    }
}

impl AuthorizationConfig {
    pub fn has(&self, kind: AuthorizerType) -> bool {
        self.authorizers.iter().any(|authorizer| authorizer.kind == kind)
    }
}

const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
const CONDITIONS_MAX: usize = 64;
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// Compat: kube-apiserver's defaults.
const AUTHORIZED_TTL: Duration = Duration::from_mins(5);
const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);

const FILE: FieldType = FieldType::Fields(&[
    ("apiVersion", FieldType::Text),
    ("kind", FieldType::Text),
    (
        "authorizers",
        FieldType::List(&FieldType::Fields(&[
            ("type", FieldType::Text),
            ("name", FieldType::Text),
            (
                "webhook",
                FieldType::Fields(&[
                    ("authorizedTTL", FieldType::Text),
                    ("cacheAuthorizedRequests", FieldType::Bool),
                    ("unauthorizedTTL", FieldType::Text),
                    ("cacheUnauthorizedRequests", FieldType::Bool),
                    ("timeout", FieldType::Text),
                    ("subjectAccessReviewVersion", FieldType::Text),
                    ("matchConditionSubjectAccessReviewVersion", FieldType::Text),
                    ("failurePolicy", FieldType::Text),
                    (
                        "connectionInfo",
                        FieldType::Fields(&[
                            ("type", FieldType::Text),
                            ("kubeConfigFile", FieldType::Text),
                        ]),
                    ),
                    (
                        "matchConditions",
                        FieldType::List(&FieldType::Fields(&[("expression", FieldType::Text)])),
                    ),
                ]),
            ),
        ])),
    ),
]);

/// Reads and validates the content of a file, with kube-apiserver's field paths and words.
pub fn parse(bytes: &[u8]) -> Result<AuthorizationConfig, String> {
    let file = config_file::decode(bytes, "AuthorizationConfiguration", &VERSIONS, &FILE)
        .map_err(|why| format!("failed to load AuthorizationConfiguration from file: {why}"))?;
    let mut errors = FieldErrors::default();
    let items = file.items_at(&["authorizers"]);
    if items.is_empty() {
        let why = "at least one authorization mode must be defined";
        errors.required(path("authorizers"), why);
    }
    let mut config = AuthorizationConfig::default();
    for (at, item) in items.iter().enumerate() {
        let field = path("authorizers").index(at);
        config.authorizers.extend(authorizer(item, &field, &config, &mut errors));
    }
    if !errors.is_empty() {
        return Err(errors.to_string());
    }
    let wrong = config.authorizers.iter().filter(|authorizer| {
        authorizer.webhook.is_none() && authorizer.name != authorizer.kind.name().to_lowercase()
    });
    let wrong: Vec<String> = wrong
        .map(|authorizer| {
            let (kind, name) = (authorizer.kind.name(), &authorizer.name);
            format!("expected name {} for authorizer {kind} instead of {name}", kind.to_lowercase())
        })
        .collect();
    super::aggregate(&wrong).map_or(Ok(config), Err)
}

/// Reads a file: its content, and what it says.
pub fn load(file: &std::path::Path) -> Result<(Vec<u8>, AuthorizationConfig), String> {
    let bytes = config_file::read(file)?;
    let config = parse(&bytes)?;
    Ok((bytes, config))
}

fn authorizer(
    item: &Value,
    field: &FieldPath,
    before: &AuthorizationConfig,
    errors: &mut FieldErrors,
) -> Option<AuthorizerConfig> {
    let text = item.str_at(&["type"]);
    if text.is_empty() {
        errors.required(field.child("type"), "");
        return None;
    }
    let Some(kind) = AuthorizerType::parse(text) else {
        let mut known = AuthorizerType::ALL.map(AuthorizerType::name);
        known.sort_unstable();
        errors.not_supported(field.child("type"), text, &known);
        return None;
    };
    if kind != AuthorizerType::Webhook && before.has(kind) {
        errors.duplicate(field.child("type"), text);
        return None;
    }
    let name = item.str_at(&["name"]);
    if name.is_empty() {
        errors.required(field.child("name"), "");
    } else if before.authorizers.iter().any(|other| other.name == name) {
        errors.duplicate(field.child("name"), name);
    } else {
        let wrong = is_dns1123_subdomain(name);
        if !wrong.is_empty() {
            let why = format!("authorizer name is invalid: {}", wrong.join(", "));
            errors.invalid(field.child("name"), name, &why);
        }
    }
    let given = item.get("webhook").filter(|webhook| webhook.as_object().is_some());
    let webhook = match (kind, given) {
        (AuthorizerType::Webhook, Some(given)) => Some(webhook(given, field, errors)),
        (AuthorizerType::Webhook, None) => {
            errors.required(field.child("webhook"), "required when type=Webhook");
            return None;
        }
        (_, Some(_)) => {
            let why = "may only be specified when type=Webhook";
            errors.invalid(field.child("webhook"), "non-null", why);
            None
        }
        (_, None) => None,
    };
    Some(AuthorizerConfig { kind, name: name.to_owned(), webhook })
}

/// Compat: the paths of errors are those of the authorizer, without `webhook`.
fn webhook(given: &Value, field: &FieldPath, errors: &mut FieldErrors) -> WebhookConfig {
    let text = |name: &str| given.str_at(&[name]);
    let timeout = duration(given, "timeout", field, errors);
    if timeout == Some(0) {
        errors.required(field.child("timeout"), "");
    } else if timeout.is_some_and(|nanos| nanos < 0 || nanos > TIMEOUT_MAX.as_nanos() as i64) {
        errors.invalid(field.child("timeout"), text("timeout"), "must be > 0s and <= 30s");
    }
    let mut ttl = |name: &str, cached: &str, default: Duration| {
        let nanos = duration(given, name, field, errors).unwrap_or(0);
        if nanos < 0 {
            errors.invalid(field.child(name), text(name), "must be > 0s");
        }
        let is_cached = given.get(cached).and_then(Value::as_bool).unwrap_or(true);
        match u64::try_from(nanos) {
            _ if !is_cached => Duration::ZERO,
            Ok(0) | Err(_) => default,
            Ok(nanos) => Duration::from_nanos(nanos),
        }
    };
    let authorized_ttl = ttl("authorizedTTL", "cacheAuthorizedRequests", AUTHORIZED_TTL);
    let unauthorized_ttl = ttl("unauthorizedTTL", "cacheUnauthorizedRequests", UNAUTHORIZED_TTL);
    let mut one_of = |name: &str, values: &[&str], is_required: bool, why: &str| match text(name) {
        "" if is_required => errors.required(field.child(name), why),
        "" => {}
        given if values.contains(&given) => {}
        given => errors.not_supported(field.child(name), given, values),
    };
    let conditions = given.items_at(&["matchConditions"]);
    one_of("subjectAccessReviewVersion", &["v1", "v1beta1"], true, "");
    let why = "required if match conditions are specified";
    one_of("matchConditionSubjectAccessReviewVersion", &["v1"], !conditions.is_empty(), why);
    one_of("failurePolicy", &["NoOpinion", "Deny"], true, "");
    let kubeconfig = connection(given, field, errors);
    let expressions: Vec<&str> =
        conditions.iter().map(|condition| condition.str_at(&["expression"])).collect();
    validate_conditions(&expressions, &field.child("matchConditions"), errors);
    WebhookConfig {
        kubeconfig,
        timeout: Duration::from_nanos(u64::try_from(timeout.unwrap_or(0)).unwrap_or(0)),
        authorized_ttl,
        unauthorized_ttl,
        version: text("subjectAccessReviewVersion").to_owned(),
        denies_on_failure: text("failurePolicy") == "Deny",
        match_conditions: expressions.iter().map(|text| (*text).to_owned()).collect(),
    }
}

/// In nanoseconds, 0 if it is not given; None: it is wrong, which is reported.
fn duration(given: &Value, name: &str, field: &FieldPath, errors: &mut FieldErrors) -> Option<i64> {
    match given.str_at(&[name]) {
        "" => Some(0),
        text => {
            let parsed = parse_duration(text);
            if parsed.is_none() {
                let why = format!("time: invalid duration {}", quote(text));
                errors.invalid(field.child(name), text, &why);
            }
            parsed
        }
    }
}

fn connection(given: &Value, field: &FieldPath, errors: &mut FieldErrors) -> PathBuf {
    let (kind, file) = (
        given.str_at(&["connectionInfo", "type"]),
        given.str_at(&["connectionInfo", "kubeConfigFile"]),
    );
    let info = field.child("connectionInfo");
    let at = info.child("kubeConfigFile");
    match kind {
        "" => errors.required(info.child("type"), ""),
        // Compat: kube-apiserver accepts it here and has no use for it either.
        "InClusterConfig" => {
            let why = "an API server has no configuration in the cluster: use KubeConfigFile";
            errors.invalid(info.child("type"), kind, why);
        }
        "KubeConfigFile" if file.is_empty() => errors.required(at, ""),
        "KubeConfigFile" if !file.starts_with('/') => {
            errors.invalid(at, file, "must be an absolute path");
        }
        "KubeConfigFile" => match std::fs::metadata(file) {
            Err(error) => errors.invalid(at, file, &format!("error loading file: {error}")),
            Ok(found) if !found.is_file() => errors.invalid(at, file, "must be a regular file"),
            Ok(_) => {}
        },
        other => {
            let known = ["InClusterConfig", "KubeConfigFile"];
            errors.not_supported(info.child("type"), other, &known);
        }
    }
    PathBuf::from(file)
}

fn validate_conditions(expressions: &[&str], field: &FieldPath, errors: &mut FieldErrors) {
    if expressions.len() > CONDITIONS_MAX {
        return errors.too_many(field, expressions.len(), CONDITIONS_MAX);
    }
    for (at, expression) in expressions.iter().enumerate() {
        let field = field.index(at).child("expression");
        if expression.trim().is_empty() {
            errors.required(field, "");
        } else if expressions[..at].contains(expression) {
            errors.duplicate(field, *expression);
        } else if let Err(why) = compile(expression) {
            errors.invalid(field, *expression, &why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(authorizers: &str) -> Result<AuthorizationConfig, String> {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n\
             authorizers: {authorizers}"
        );
        parse(text.as_bytes())
    }

    fn hook(file: &str, rest: &str) -> String {
        format!(
            "{{type: Webhook, name: hook, webhook: {{timeout: 3s, subjectAccessReviewVersion: v1, \
             failurePolicy: Deny, connectionInfo: {{type: KubeConfigFile, kubeConfigFile: \
             {file}}}{rest}}}}}"
        )
    }

    #[test]
    fn a_file_has_the_authorizers_in_their_order() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let rest = ", cacheUnauthorizedRequests: false, authorizedTTL: 1m30s, \
                    matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{expression: \
                    'request.user != \"x\"'}]";
        let text = format!(
            "[{{type: Node, name: node}}, {}, {{type: RBAC, name: rbac}}]",
            hook(path, rest)
        );
        let config = check(&text).unwrap();
        let kinds: Vec<&str> =
            config.authorizers.iter().map(|authorizer| authorizer.kind.name()).collect();
        assert_eq!(kinds, ["Node", "Webhook", "RBAC"]);
        let webhook = config.authorizers[1].webhook.as_ref().unwrap();
        assert_eq!(webhook.timeout, Duration::from_secs(3));
        assert_eq!(webhook.authorized_ttl, Duration::from_secs(90));
        assert_eq!(webhook.unauthorized_ttl, Duration::ZERO);
        assert!(webhook.denies_on_failure && webhook.match_conditions.len() == 1);
    }

    #[test]
    fn errors_have_the_paths_of_kube_apiserver() {
        let missing = "/nowhere/at/all";
        let cases = [
            ("[]".to_owned(), "authorizers: Required value: at least one authorization mode must be defined"),
            (
                "[{name: a}, {type: Nobody, name: b}, {type: RBAC, name: rbac}, {type: RBAC, name: c}, {type: Webhook, name: d}]".to_owned(),
                "[authorizers[0].type: Required value, authorizers[1].type: Unsupported value: \
                 \"Nobody\": supported values: \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \"Node\", \
                 \"RBAC\", \"Webhook\", authorizers[3].type: Duplicate value: \"RBAC\", \
                 authorizers[4].webhook: Required value: required when type=Webhook]",
            ),
            ("[{type: RBAC, name: roles}]".to_owned(), "expected name rbac for authorizer RBAC instead of roles"),
            (
                "[{type: Webhook, name: 'a_b', webhook: {}}]".to_owned(),
                "authorizers[0].name: Invalid value: \"a_b\": authorizer name is invalid: ",
            ),
            (
                "[{type: Webhook, name: a, webhook: {timeout: 31s, failurePolicy: Allow, authorizedTTL: -1s}}]".to_owned(),
                "[authorizers[0].timeout: Invalid value: \"31s\": must be > 0s and <= 30s, \
                 authorizers[0].authorizedTTL: Invalid value: \"-1s\": must be > 0s, \
                 authorizers[0].subjectAccessReviewVersion: Required value, \
                 authorizers[0].failurePolicy: Unsupported value: \"Allow\": supported values: \
                 \"NoOpinion\", \"Deny\", authorizers[0].connectionInfo.type: Required value]",
            ),
            (hook(missing, ""), "authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"/nowhere/at/all\": error loading file: "),
            (hook("relative", ""), "authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"relative\": must be an absolute path"),
            (
                hook(missing, ", matchConditions: [{expression: ' '}, {expression: 'request.user'}, {expression: 'x'}]"),
                "authorizers[0].matchConditions[1].expression: Invalid value: \"request.user\": must evaluate to bool but got string",
            ),
        ];
        for (text, expected) in cases {
            let text = if text.starts_with('[') { text } else { format!("[{text}]") };
            let why = check(&text).unwrap_err();
            assert!(why.contains(expected), "{why}\n instead of\n{expected}");
        }
        assert!(
            check("[{type: RBAC, name: rbac, nmae: x}]").unwrap_err().contains("unknown field")
        );
    }
}
