//! The file of `--encryption-provider-config`: an `EncryptionConfiguration`, decoded strictly.
//! Compat: errors have kube-apiserver's messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use codec::config_file::{self, FieldType};
use meta::field::{FieldErrors, FieldPath, FieldReason, path, quote};
use meta::{GroupResource, Value};

use super::cipher::Cipher;
use super::provider::{ProviderKey, Providers};
use super::remote::{Connect, KmsConfig, RemoteProvider};

/// The providers of each resource.
#[derive(Default)]
pub struct EncryptionConfig {
    /// `*` stands for all resources of a group, or for all groups.
    resources: HashMap<GroupResource, Arc<Providers>>,
    /// The KMS plugins among the providers, in the order of the file.
    pub(super) remotes: Vec<Arc<dyn RemoteProvider>>,
}

const GROUP_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";

impl EncryptionConfig {
    /// Parses a configuration; `file` is its name, for errors.
    pub fn parse(file: &str, bytes: &[u8], connect: &Connect) -> Result<Self, String> {
        let file = quote(file);
        if bytes.is_empty() {
            return Err(format!(
                "error while parsing file: error while loading file: encryption provider \
                 configuration file {file} is empty"
            ));
        }
        let config = config_file::decode(bytes, &[(GROUP_VERSION, KIND)], &FILE).map_err(|why| {
            format!(
                "error while parsing file: error decoding encryption provider configuration file \
                 {file}: {why}"
            )
        })?;
        let mut errors = FieldErrors::default();
        validate(&config, &mut errors);
        if !errors.is_empty() {
            return Err(format!("error while parsing file: {errors}"));
        }
        Self::build(&config, connect)
            .map_err(|why| format!("error while building transformers: {why}"))
    }

    /// The providers of a resource; `None`: it is not encrypted.
    pub(crate) fn providers(&self, resource: &GroupResource) -> Option<&Providers> {
        let any = |group| GroupResource::new(group, "*");
        let found = self.resources.get(resource);
        let found = found.or_else(|| self.resources.get(&any(resource.group.as_str())));
        found.or_else(|| self.resources.get(&any("*"))).map(|providers| &**providers)
    }

    fn build(config: &Value, connect: &Connect) -> Result<Self, String> {
        let mut collected: HashMap<GroupResource, Vec<ProviderKey>> = HashMap::new();
        let mut remotes = Vec::new();
        for rule in config.items_at(&["resources"]) {
            let mut keys = Vec::new();
            for provider in rule.items_at(&["providers"]) {
                add_provider_keys(provider, connect, &mut keys, &mut remotes)?;
            }
            for name in rule.items_at(&["resources"]) {
                let resource = parse_resource(name.as_str().unwrap_or_default());
                let masks =
                    [GroupResource::new(&resource.group, "*"), GroupResource::new("*", "*")];
                if let Some(mask) = masks.iter().find(|mask| collected.contains_key(*mask)) {
                    let (resource, mask) = (written(&resource), written(mask));
                    return Err(format!(
                        "resource {} is masked by earlier rule {}",
                        quote(&resource),
                        quote(&mask)
                    ));
                }
                collected.entry(resource).or_default().extend(keys.iter().cloned());
            }
        }
        let providers = |keys| Arc::new(Providers::new(keys));
        let resources = collected.into_iter().map(|(name, keys)| (name, providers(keys)));
        Ok(Self { resources: resources.collect(), remotes })
    }
}

type MakeCipher = fn(&[u8]) -> Option<Cipher>;

/// The keys of one element of `providers`.
fn add_provider_keys(
    provider: &Value,
    connect: &Connect,
    into: &mut Vec<ProviderKey>,
    remotes: &mut Vec<Arc<dyn RemoteProvider>>,
) -> Result<(), String> {
    if let Some(kms) = present(provider, "kms") {
        let name = kms.str_at(&["name"]);
        if kms.str_at(&["apiVersion"]) != "v2" {
            return Err(format!(
                "KMS provider {}: KMSv1 is deprecated and will only receive security updates going \
                 forward. Use KMSv2 instead (apiVersion: v2); Pintle knows no other",
                quote(name)
            ));
        }
        let timeout = match kms.str_at(&["timeout"]) {
            "" => KMS_TIMEOUT,
            text => {
                timeout(text).ok_or_else(|| format!("time: invalid duration {}", quote(text)))?
            }
        };
        let endpoint = kms.str_at(&["endpoint"]).to_owned();
        let remote = connect(&KmsConfig { name: name.to_owned(), endpoint, timeout })?;
        into.push(ProviderKey::kms(name, Arc::clone(&remote)));
        remotes.push(remote);
    }
    let ciphers: [(&str, MakeCipher); 3] =
        [("aesgcm", Cipher::gcm), ("aescbc", Cipher::cbc), ("secretbox", Cipher::secretbox)];
    for (name, make) in ciphers {
        let Some(found) = present(provider, name) else { continue };
        for key in found.items_at(&["keys"]) {
            let key_name = key.str_at(&["name"]);
            let cipher = codec::base64::decode(key.str_at(&["secret"])).ok();
            let cipher = cipher.and_then(|secret| make(&secret));
            let cipher = cipher
                .ok_or_else(|| format!("could not obtain secret for named key {key_name}"))?;
            into.push(ProviderKey::new(name, key_name, Arc::new(cipher)));
        }
    }
    if present(provider, "identity").is_some() {
        into.push(ProviderKey::identity());
    }
    Ok(())
}

/// Compat: the default timeout of a call to a plugin.
const KMS_TIMEOUT: Duration = Duration::from_secs(3);

/// `3s`, `500ms`, `1m30s`: a positive duration in Go's format.
fn timeout(text: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit_end = rest[end..].find(|c: char| c.is_ascii_digit());
        let unit_end = unit_end.map_or(rest.len(), |at| end + at);
        seconds += number
            * match &rest[end..unit_end] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    Duration::try_from_secs_f64(seconds).ok().filter(|timeout| !timeout.is_zero())
}

/// A field that exists and is not null.
fn present<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.get(name).filter(|value| !value.is_null())
}

/// `secrets`, `deployments.apps`, `*.` (the core group), `*.*`.
fn parse_resource(text: &str) -> GroupResource {
    match text.split_once('.') {
        Some((resource, group)) => GroupResource::new(group, resource),
        None => GroupResource::new("", text),
    }
}

fn written(resource: &GroupResource) -> String {
    match (resource.group.as_str(), resource.resource.as_str()) {
        ("", "*") => "*.".to_owned(),
        ("", name) => name.to_owned(),
        (group, name) => format!("{name}.{group}"),
    }
}

const KEYS: FieldType = FieldType::Fields(&[(
    "keys",
    FieldType::List(&FieldType::Fields(&[("name", FieldType::Text), ("secret", FieldType::Text)])),
)]);

const FILE: FieldType = FieldType::Fields(&[
    ("apiVersion", FieldType::Text),
    ("kind", FieldType::Text),
    (
        "resources",
        FieldType::List(&FieldType::Fields(&[
            ("resources", FieldType::TEXTS),
            (
                "providers",
                FieldType::List(&FieldType::Fields(&[
                    ("aesgcm", KEYS),
                    ("aescbc", KEYS),
                    ("secretbox", KEYS),
                    ("identity", FieldType::Fields(&[])),
                    (
                        "kms",
                        FieldType::Fields(&[
                            ("apiVersion", FieldType::Text),
                            ("name", FieldType::Text),
                            ("cachesize", FieldType::Int),
                            ("endpoint", FieldType::Text),
                            ("timeout", FieldType::Text),
                        ]),
                    ),
                ])),
            ),
        ])),
    ),
]);

fn validate(config: &Value, errors: &mut FieldErrors) {
    let root = path("resources");
    let rules = config.items_at(&["resources"]);
    if rules.is_empty() {
        errors.required(&root, "at least one resources is required");
    }
    let mut kms_names = Vec::new();
    for (n, rule) in rules.iter().enumerate() {
        let (resources, providers) =
            (root.index(n).child("resources"), root.index(n).child("providers"));
        let names: Vec<&str> =
            rule.items_at(&["resources"]).iter().filter_map(Value::as_str).collect();
        if names.is_empty() {
            errors.required(&resources, &format!("at least one {resources} is required"));
        }
        validate_overlap(&names, &resources, errors);
        for (n, name) in names.iter().enumerate() {
            if let Some(why) = invalid_resource_name(name) {
                errors.invalid(resources.index(n), *name, why);
            }
        }
        let given = rule.items_at(&["providers"]);
        if given.is_empty() {
            errors.required(&providers, &format!("at least one {providers} is required"));
        }
        for (n, provider) in given.iter().enumerate() {
            validate_provider(provider, &providers.index(n), &mut kms_names, errors);
        }
    }
}

fn validate_overlap(names: &[&str], at: &FieldPath, errors: &mut FieldErrors) {
    let parsed: Vec<GroupResource> = names.iter().map(|name| parse_resource(name)).collect();
    let mut pairs = Vec::new();
    for (n, one) in parsed.iter().enumerate() {
        pairs.extend(parsed[n + 1..].iter().map(|other| (one, other)));
    }
    let everything = GroupResource::new("*", "*");
    let twice = pairs.iter().any(|(one, other)| one == other);
    let overlap = pairs.iter().any(|(one, other)| {
        let all = **one == everything || **other == everything;
        let group = one.group == other.group && (one.resource == "*" || other.resource == "*");
        one != other && (all || group)
    });
    let shown = || Value::Array(names.iter().map(Value::string).collect());
    if twice {
        errors.invalid(at, shown(), "the same resource cannot be specified multiple times");
    }
    if overlap {
        errors.invalid(
            at,
            shown(),
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not \
             allowed as they will be masked",
        );
    }
}

fn invalid_resource_name(name: &str) -> Option<&'static str> {
    let parsed = parse_resource(name);
    let no_rest = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];
    if name.to_lowercase() != name {
        Some("resource name should not contain capital letters")
    } else if name == "*" {
        Some(
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
        )
    } else if no_rest.contains(&name) {
        Some("resources which do not have REST API/s cannot be encrypted")
    } else if parsed.group == "events.k8s.io" {
        Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' \
             instead in the config file",
        )
    } else if parsed.group == "extensions" {
        Some("'extensions' group has been removed and cannot be used for encryption")
    } else if parsed.group == "*" && parsed.resource != "*" {
        Some("encrypting the same resource across groups is not supported")
    } else {
        None
    }
}

fn validate_provider(
    provider: &Value,
    at: &FieldPath,
    kms_names: &mut Vec<String>,
    errors: &mut FieldErrors,
) {
    let kinds = ["aesgcm", "aescbc", "secretbox", "identity", "kms"];
    let found = kinds.iter().filter(|kind| present(provider, kind).is_some()).count();
    if found == 0 {
        let message = "Invalid value: {\"AESGCM\":null,\"AESCBC\":null,\"Secretbox\":null,\
                       \"Identity\":null,\"KMS\":null}: provider does not contain any of the expected \
                       providers: KMS, AESGCM, AESCBC, Secretbox, Identity";
        errors.push(FieldReason::Invalid, at, message.to_owned());
    }
    if found > 1 {
        // kube-apiserver prints the whole provider, including its keys.
        errors.invalid(
            at,
            "REDACTED",
            "more than one provider specified in a single element, should split into different list \
             elements",
        );
    }
    // Only the first, in the order in which kube-apiserver checks them.
    if let Some(kms) = present(provider, "kms") {
        validate_kms(kms, &at.child("kms"), kms_names, errors);
        kms_names.push(kms.str_at(&["name"]).to_owned());
        return;
    }
    let sizes: [(&str, &[usize]); 3] =
        [("aesgcm", &[16, 24, 32]), ("aescbc", &[16, 24, 32]), ("secretbox", &[32])];
    if let Some((name, sizes)) = sizes.iter().find(|(name, _)| present(provider, name).is_some()) {
        validate_keys(
            provider.items_at(&[name, "keys"]),
            &at.child(name).child("keys"),
            sizes,
            errors,
        );
    }
}

fn validate_keys(keys: &[Value], at: &FieldPath, sizes: &[usize], errors: &mut FieldErrors) {
    if keys.is_empty() {
        errors.required(at, "at least one keys is required");
    }
    for (n, key) in keys.iter().enumerate() {
        let at = at.index(n);
        if key.str_at(&["name"]).is_empty() {
            errors.required(at.child("name"), "name is a mandatory field for a key");
        }
        let secret = key.str_at(&["secret"]);
        let at = at.child("secret");
        if secret.is_empty() {
            errors.required(at, "secret is a mandatory field for a key");
            continue;
        }
        match codec::base64::decode(secret) {
            Err(_) => errors.invalid(at, "REDACTED", "secrets must be base64 encoded"),
            Ok(secret) if !sizes.contains(&secret.len()) => {
                let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
                let (got, sizes) = (secret.len(), sizes.join(" "));
                let why = format!(
                    "secret is not of the expected length, got {got}, expected one of [{sizes}]"
                );
                errors.invalid(at, "REDACTED", &why);
            }
            Ok(_) => {}
        }
    }
}

/// Name, endpoint and timeout.
fn validate_kms(kms: &Value, at: &FieldPath, names: &[String], errors: &mut FieldErrors) {
    let (name, endpoint) = (kms.str_at(&["name"]), kms.str_at(&["endpoint"]));
    let is_v1 = matches!(kms.str_at(&["apiVersion"]), "" | "v1");
    if name.is_empty() {
        errors.required(at.child("name"), "name is a mandatory field for a provider");
    }
    if !is_v1 && name.contains(':') {
        let why = format!("invalid KMS provider name {name}, must not contain ':'");
        errors.invalid(at.child("name"), name, &why);
    }
    if !is_v1 && names.iter().any(|known| known == name) {
        let why = format!("duplicate KMS provider name {name}, names must be unique");
        errors.invalid(at.child("name"), name, &why);
    }
    let at_endpoint = at.child("endpoint");
    if endpoint.is_empty() {
        errors.invalid(at_endpoint, "", "endpoint is a mandatory field for a kms");
    } else if !endpoint.starts_with("unix:") {
        let scheme = quote(endpoint.split_once(':').map_or("", |(scheme, _)| scheme));
        let why = format!("unsupported scheme {scheme} for KMS provider, only unix is supported");
        errors.invalid(at_endpoint, endpoint, &why);
    }
    let text = kms.str_at(&["timeout"]);
    if !text.is_empty() && timeout(text).is_none() {
        errors.invalid(at.child("timeout"), text, "timeout should be a positive value");
    }
    if !matches!(kms.str_at(&["apiVersion"]), "" | "v1" | "v2") {
        errors.invalid(
            at.child("apiVersion"),
            kms.str_at(&["apiVersion"]),
            "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported",
        );
    }
}
