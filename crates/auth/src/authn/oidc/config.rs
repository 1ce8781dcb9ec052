//! `AuthenticationConfiguration`: the JWT authenticators and who may be anonymous.

use codec::config_file::FieldType;
use meta::{
    Str, Value,
    field::{FieldErrors, FieldPath, path},
    names::is_dns1123_subdomain,
};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};

use super::claims::{claims_env, compile, user_env};
use crate::{authn::Anonymous, config_file};

/// The file, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationConfig {
    pub jwt: Vec<JwtConfig>,
    /// None: as the flag says.
    pub anonymous: Option<Anonymous>,
}

/// One issuer, and how its claims become a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JwtConfig {
    pub url: String,
    pub discovery_url: String,
    /// PEM; empty: the host's roots.
    pub certificate_authority: String,
    pub audiences: Vec<String>,
    pub audience_match_policy: String,
    pub egress_selector_type: String,
    pub claim_rules: Vec<ClaimRule>,
    pub username: ClaimOrExpression,
    pub groups: ClaimOrExpression,
    pub uid: ClaimOrExpression,
    /// Key and expression.
    pub extra: Vec<(String, String)>,
    /// Expression and message.
    pub user_rules: Vec<(String, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRule {
    pub claim: String,
    pub required_value: String,
    pub expression: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimOrExpression {
    pub claim: String,
    pub prefix: Option<String>,
    pub expression: String,
}

const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
const ISSUERS_MAX: usize = 64;

const MAPPING: FieldType = FieldType::Fields(&[
    ("claim", FieldType::Text),
    ("prefix", FieldType::Text),
    ("expression", FieldType::Text),
]);

const FILE: FieldType = FieldType::Fields(&[
    ("apiVersion", FieldType::Text),
    ("kind", FieldType::Text),
    (
        "jwt",
        FieldType::List(&FieldType::Fields(&[
            (
                "issuer",
                FieldType::Fields(&[
                    ("url", FieldType::Text),
                    ("discoveryURL", FieldType::Text),
                    ("certificateAuthority", FieldType::Text),
                    ("audiences", FieldType::TEXTS),
                    ("audienceMatchPolicy", FieldType::Text),
                    ("egressSelectorType", FieldType::Text),
                ]),
            ),
            (
                "claimValidationRules",
                FieldType::List(&FieldType::Fields(&[
                    ("claim", FieldType::Text),
                    ("requiredValue", FieldType::Text),
                    ("expression", FieldType::Text),
                    ("message", FieldType::Text),
                ])),
            ),
            (
                "claimMappings",
                FieldType::Fields(&[
                    ("username", MAPPING),
                    ("groups", MAPPING),
                    (
                        "uid",
                        FieldType::Fields(&[
                            ("claim", FieldType::Text),
                            ("expression", FieldType::Text),
                        ]),
                    ),
                    (
                        "extra",
                        FieldType::List(&FieldType::Fields(&[
                            ("key", FieldType::Text),
                            ("valueExpression", FieldType::Text),
                        ])),
                    ),
                ]),
            ),
            (
                "userValidationRules",
                FieldType::List(&FieldType::Fields(&[
                    ("expression", FieldType::Text),
                    ("message", FieldType::Text),
                ])),
            ),
        ])),
    ),
    (
        "anonymous",
        FieldType::Fields(&[
            ("enabled", FieldType::Bool),
            ("conditions", FieldType::List(&FieldType::Fields(&[("path", FieldType::Text)]))),
        ]),
    ),
]);

/// Reads the content of a file.
pub fn parse(bytes: &[u8]) -> Result<AuthenticationConfig, String> {
    let file = config_file::decode(bytes, "AuthenticationConfiguration", &VERSIONS, &FILE)?;
    let jwt = file.items_at(&["jwt"]).iter().map(JwtConfig::new).collect();
    let anonymous = file.get("anonymous").filter(|value| value.as_object().is_some());
    let anonymous = anonymous.map(|anonymous| Anonymous {
        enabled: anonymous.get("enabled").and_then(Value::as_bool).unwrap_or_default(),
        paths: anonymous
            .items_at(&["conditions"])
            .iter()
            .map(|condition| condition.str_at(&["path"]).to_owned())
            .collect(),
    });
    Ok(AuthenticationConfig { jwt, anonymous })
}

/// Reads a file: its content, and what it says.
pub fn load(file: &std::path::Path) -> Result<(Vec<u8>, AuthenticationConfig), String> {
    let bytes = config_file::read(file)?;
    let config = parse(&bytes)?;
    Ok((bytes, config))
}

impl JwtConfig {
    fn new(jwt: &Value) -> Self {
        let text = |value: &Value, path: &[&str]| value.str_at(path).to_owned();
        let mapping = |name: &str| {
            let mapping = jwt.at(&["claimMappings", name]).unwrap_or(&Value::Null);
            ClaimOrExpression {
                claim: text(mapping, &["claim"]),
                prefix: mapping.get("prefix").and_then(Value::as_str).map(str::to_owned),
                expression: text(mapping, &["expression"]),
            }
        };
        let pairs = |path: &[&str], first: &str, second: &str| {
            let items = jwt.items_at(path).iter();
            items.map(|item| (text(item, &[first]), text(item, &[second]))).collect()
        };
        Self {
            url: text(jwt, &["issuer", "url"]),
            discovery_url: text(jwt, &["issuer", "discoveryURL"]),
            certificate_authority: text(jwt, &["issuer", "certificateAuthority"]),
            audiences: jwt
                .items_at(&["issuer", "audiences"])
                .iter()
                .map(|audience| audience.as_str().unwrap_or_default().to_owned())
                .collect(),
            audience_match_policy: text(jwt, &["issuer", "audienceMatchPolicy"]),
            egress_selector_type: text(jwt, &["issuer", "egressSelectorType"]),
            claim_rules: jwt
                .items_at(&["claimValidationRules"])
                .iter()
                .map(|rule| ClaimRule {
                    claim: text(rule, &["claim"]),
                    required_value: text(rule, &["requiredValue"]),
                    expression: text(rule, &["expression"]),
                    message: text(rule, &["message"]),
                })
                .collect(),
            username: mapping("username"),
            groups: mapping("groups"),
            uid: mapping("uid"),
            extra: pairs(&["claimMappings", "extra"], "key", "valueExpression"),
            user_rules: pairs(&["userValidationRules"], "expression", "message"),
        }
    }
}

impl AuthenticationConfig {
    /// What is wrong, with kube-apiserver's field paths and words. Issuers of service account tokens
    /// are not allowed: their tokens would be taken for those of another issuer.
    pub fn validate(&self, disallowed_issuers: &[Str]) -> FieldErrors {
        let (mut errors, root) = (FieldErrors::default(), path("jwt"));
        if self.jwt.len() > ISSUERS_MAX {
            errors.too_many(&root, self.jwt.len(), ISSUERS_MAX);
            return errors;
        }
        for (at, jwt) in self.jwt.iter().enumerate() {
            let (field, before) = (root.index(at), &self.jwt[..at]);
            jwt.validate(&field, disallowed_issuers, &mut errors);
            if before.iter().any(|other| other.url == jwt.url) {
                errors.duplicate(field.child("issuer").child("url"), jwt.url.as_str());
            }
            let discovery = jwt.discovery_url.as_str();
            if !discovery.is_empty() && before.iter().any(|other| other.discovery_url == discovery)
            {
                errors.duplicate(field.child("issuer").child("discoveryURL"), discovery);
            }
        }
        if let Some(anonymous) = &self.anonymous
            && !anonymous.enabled
            && !anonymous.paths.is_empty()
        {
            errors.invalid(
                path("anonymous").child("conditions"),
                anonymous.paths.clone(),
                "enabled should be set to true when conditions are defined",
            );
        }
        errors
    }
}

impl JwtConfig {
    fn validate(&self, field: &FieldPath, disallowed: &[Str], errors: &mut FieldErrors) {
        self.validate_issuer(&field.child("issuer"), disallowed, errors);
        let verified = self.validate_claim_rules(&field.child("claimValidationRules"), errors);
        self.validate_mappings(&field.child("claimMappings"), verified, errors);
        let (env, _) = user_env();
        let field = field.child("userValidationRules");
        for (at, (expression, _)) in self.user_rules.iter().enumerate() {
            let field = field.index(at).child("expression");
            if expression.is_empty() {
                errors.required(field, "");
            } else if self.user_rules[..at].iter().any(|(other, _)| other == expression) {
                errors.duplicate(field, expression.as_str());
            } else if let Err(why) = compile(&env, expression, true) {
                errors.invalid(field, expression.as_str(), &why);
            }
        }
    }

    fn validate_issuer(&self, field: &FieldPath, disallowed: &[Str], errors: &mut FieldErrors) {
        let url = field.child("url");
        if self.url.is_empty() {
            errors.required(url, "");
        } else {
            validate_url(&self.url, disallowed, &url, errors);
        }
        let discovery = field.child("discoveryURL");
        if !self.discovery_url.is_empty() {
            let trimmed = |url: &str| url.trim_end_matches('/').to_owned();
            if !self.url.is_empty() && trimmed(&self.url) == trimmed(&self.discovery_url) {
                let why = "discoveryURL must be different from URL";
                errors.invalid(&discovery, self.discovery_url.as_str(), why);
            }
            validate_url(&self.discovery_url, &[], &discovery, errors);
        }
        self.validate_audiences(field, errors);
        if !self.certificate_authority.is_empty() {
            let pem = self.certificate_authority.as_bytes();
            let count = CertificateDer::pem_slice_iter(pem).flatten().count();
            if count == 0 {
                let why = "data does not contain any valid RSA or ECDSA certificates";
                errors.invalid(field.child("certificateAuthority"), "<omitted>", why);
            }
        }
        let egress = field.child("egressSelectorType");
        match self.egress_selector_type.as_str() {
            "" | "controlplane" | "cluster" => {}
            other => {
                errors.invalid(
                    egress,
                    other,
                    "egress selector must be either controlplane or cluster",
                );
            }
        }
    }

    fn validate_audiences(&self, field: &FieldPath, errors: &mut FieldErrors) {
        let (audiences, policy) = (field.child("audiences"), field.child("audienceMatchPolicy"));
        if self.audiences.is_empty() {
            return errors.required(&audiences, &format!("at least one {audiences} is required"));
        }
        for (at, audience) in self.audiences.iter().enumerate() {
            if audience.is_empty() {
                errors.required(audiences.index(at), "");
            }
            if self.audiences[..at].contains(audience) {
                errors.duplicate(audiences.index(at), audience.as_str());
            }
        }
        let given = self.audience_match_policy.as_str();
        if self.audiences.len() > 1 && given != "MatchAny" {
            let why = "audienceMatchPolicy must be MatchAny for multiple audiences";
            errors.invalid(policy, given, why);
        } else if !matches!(given, "" | "MatchAny") {
            let why = "audienceMatchPolicy must be empty or MatchAny for single audience";
            errors.invalid(policy, given, why);
        }
    }

    /// Whether a rule looks at `claims.email_verified`.
    fn validate_claim_rules(&self, field: &FieldPath, errors: &mut FieldErrors) -> bool {
        let ((env, _), mut verified) = (claims_env(), false);
        for (at, rule) in self.claim_rules.iter().enumerate() {
            let (field, before) = (field.index(at), &self.claim_rules[..at]);
            match (rule.claim.as_str(), rule.expression.as_str()) {
                ("", "") => errors.required(field, "claim or expression is required"),
                (claim, "") => {
                    if !rule.message.is_empty() {
                        let why = "may not be specified when claim is set";
                        errors.invalid(field.child("message"), rule.message.as_str(), why);
                    }
                    if before.iter().any(|other| other.claim == claim) {
                        errors.duplicate(field.child("claim"), claim);
                    }
                }
                ("", expression) => {
                    if !rule.required_value.is_empty() {
                        let why = "may not be specified when expression is set";
                        let value = rule.required_value.as_str();
                        errors.invalid(field.child("requiredValue"), value, why);
                    }
                    let field = field.child("expression");
                    if before.iter().any(|other| other.expression == expression) {
                        errors.duplicate(field, expression);
                        continue;
                    }
                    match compile(&env, expression, true) {
                        Ok(program) => verified |= program.selects("claims", "email_verified"),
                        Err(why) => errors.invalid(field, expression, &why),
                    }
                }
                (claim, _) => {
                    errors.invalid(field, claim, "claim and expression can't both be set");
                }
            }
        }
        verified
    }

    fn validate_mappings(&self, field: &FieldPath, mut verified: bool, errors: &mut FieldErrors) {
        let (env, _) = claims_env();
        let mut uses_email = false;
        for (name, mapping) in [("username", &self.username), ("groups", &self.groups)] {
            let field = field.child(name);
            match (mapping.claim.as_str(), mapping.expression.as_str()) {
                ("", "") if name == "username" => {
                    errors.required(field, "claim or expression is required");
                }
                ("", "") => {}
                (_, "") => {
                    if mapping.prefix.is_none() {
                        let why = "prefix is required when claim is set. It can be set to an empty \
                                   string to disable prefixing";
                        errors.required(field.child("prefix"), why);
                    }
                }
                ("", expression) => {
                    if let Some(prefix) = &mapping.prefix {
                        let why = "may not be specified when expression is set";
                        errors.invalid(field.child("prefix"), prefix.as_str(), why);
                    }
                    match compile(&env, expression, false) {
                        Ok(program) if name == "username" => {
                            uses_email = program.selects("claims", "email");
                            verified |= program.selects("claims", "email_verified");
                        }
                        Ok(_) => {}
                        Err(why) => errors.invalid(field.child("expression"), expression, &why),
                    }
                }
                _ => errors.invalid(field, "", "claim and expression can't both be set"),
            }
        }
        let uid = field.child("uid");
        match (self.uid.claim.as_str(), self.uid.expression.as_str()) {
            (_, "") => {}
            ("", expression) => {
                if let Err(why) = compile(&env, expression, false) {
                    errors.invalid(uid.child("expression"), expression, &why);
                }
            }
            _ => errors.invalid(uid, "", "claim and expression can't both be set"),
        }
        for (at, (key, expression)) in self.extra.iter().enumerate() {
            let field = field.child("extra").index(at);
            validate_extra_key(key, &field.child("key"), errors);
            if self.extra[..at].iter().any(|(other, _)| other == key) {
                errors.duplicate(field.child("key"), key.as_str());
                continue;
            }
            let field = field.child("valueExpression");
            if expression.is_empty() {
                errors.required(field, "");
                continue;
            }
            match compile(&env, expression, false) {
                Ok(program) => verified |= program.selects("claims", "email_verified"),
                Err(why) => errors.invalid(field, expression.as_str(), &why),
            }
        }
        if uses_email && !verified {
            errors.invalid(
                field.child("username").child("expression"),
                self.username.expression.as_str(),
                "claims.email_verified must be used in claimMappings.username.expression or \
                 claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when \
                 claims.email is used in claimMappings.username.expression",
            );
        }
    }
}

fn validate_url(url: &str, disallowed: &[Str], field: &FieldPath, errors: &mut FieldErrors) {
    if disallowed.iter().any(|issuer| issuer == url) {
        let mut all: Vec<&str> = disallowed.iter().map(Str::as_str).collect();
        all.sort_unstable();
        let why = format!("URL must not overlap with disallowed issuers: [{}]", all.join(" "));
        errors.invalid(field, url, &why);
    }
    let Ok(parsed) = url.parse::<http::Uri>() else {
        return errors.invalid(field, url, "not a URL");
    };
    let authority = parsed.authority().map_or("", http::uri::Authority::as_str);
    let wrong = [
        (parsed.scheme_str() != Some("https"), "URL scheme must be https"),
        (authority.contains('@'), "URL must not contain a username or password"),
        (parsed.query().is_some_and(|query| !query.is_empty()), "URL must not contain a query"),
        // `Uri` drops it.
        (url.contains('#'), "URL must not contain a fragment"),
    ];
    for (_, why) in wrong.iter().filter(|(is_wrong, _)| *is_wrong) {
        errors.invalid(field, url, why);
    }
}

/// `example.org/foo`: keys belong to an authenticator.
fn validate_extra_key(key: &str, field: &FieldPath, errors: &mut FieldErrors) {
    if key.is_empty() {
        return errors.required(field, "");
    }
    match key.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) {
        None => {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.invalid(field, key, why);
        }
        Some((host, path)) => {
            for why in is_dns1123_subdomain(host) {
                errors.invalid(field, host, &why);
            }
            let is_path_character =
                |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
            if !path.chars().all(is_path_character) {
                let why = "Invalid path (regex used for validation is \
                           '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                errors.invalid(field, path, why);
            }
        }
    }
    if key != key.to_lowercase() {
        errors.invalid(field, key, "must be lowercase");
    }
    let host = key.split_once('/').map_or("", |(host, _)| host);
    let reserved = ["kubernetes.io", "k8s.io"];
    if reserved.iter().any(|own| host == *own || host.ends_with(&format!(".{own}"))) {
        let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        errors.invalid(field, key, why);
    }
}
