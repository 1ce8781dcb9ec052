//! Webhook configurations and policies from files: the `staticManifestsDir` of a plugin's configuration
//! (feature gate ManifestBasedAdmissionControlConfig). They count before those of the API, cannot be
//! changed by a client, and see the objects that configure admission, which those of the API do not.

mod metrics;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use codec::config_file::{Document, FieldType};
use meta::{Str, Value, field::quote};
use sha2::{Digest, Sha256};

pub use self::metrics::ManifestMetrics;
use crate::{StaticConfigurations, configuration::PluginConfiguration};

/// Compat: the names of what is in files end so, and those of objects of the API do not.
pub const STATIC_SUFFIX: &str = ".static.k8s.io";

pub const FEATURE_GATE: &str = "ManifestBasedAdmissionControlConfig";

/// More files than this, or more bytes, are refused instead of read.
const FILES_MAX: usize = 10_000;
const BYTES_MAX: u64 = 64 << 20;
/// Lists in lists are refused from here on.
const LIST_DEPTH_MAX: usize = 16;

/// A plugin whose configurations can be in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestPlugin {
    MutatingAdmissionWebhook,
    ValidatingAdmissionWebhook,
    MutatingAdmissionPolicy,
    ValidatingAdmissionPolicy,
}

impl ManifestPlugin {
    pub const ALL: [Self; 4] = [
        Self::MutatingAdmissionWebhook,
        Self::ValidatingAdmissionWebhook,
        Self::MutatingAdmissionPolicy,
        Self::ValidatingAdmissionPolicy,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::MutatingAdmissionWebhook => "MutatingAdmissionWebhook",
            Self::ValidatingAdmissionWebhook => "ValidatingAdmissionWebhook",
            Self::MutatingAdmissionPolicy => "MutatingAdmissionPolicy",
            Self::ValidatingAdmissionPolicy => "ValidatingAdmissionPolicy",
        }
    }

    /// The kind of its configurations, and that of bindings, where it has them.
    fn kinds(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::MutatingAdmissionWebhook => ("MutatingWebhookConfiguration", None),
            Self::ValidatingAdmissionWebhook => ("ValidatingWebhookConfiguration", None),
            Self::MutatingAdmissionPolicy => {
                ("MutatingAdmissionPolicy", Some("MutatingAdmissionPolicyBinding"))
            }
            Self::ValidatingAdmissionPolicy => {
                ("ValidatingAdmissionPolicy", Some("ValidatingAdmissionPolicyBinding"))
            }
        }
    }
}

/// Reads the objects of files as the API reads those of clients.
pub trait ManifestDecoder: Send + Sync {
    /// An object of a kind of `admissionregistration.k8s.io/v1`, with defaults. Err: why it is invalid,
    /// unknown fields included.
    fn decode(&self, kind: &str, object: &Value) -> Result<Value, String>;
}

/// The directory that a configuration names; None: it names none.
fn directory(given: &str, gate_is_on: bool) -> Result<Option<PathBuf>, String> {
    if given.is_empty() {
        return Ok(None);
    }
    if !gate_is_on {
        return Err(format!(
            "staticManifestsDir: Forbidden: staticManifestsDir requires the {FEATURE_GATE} feature \
             gate to be enabled"
        ));
    }
    let invalid =
        |why: String| format!("staticManifestsDir: Invalid value: {}: {why}", quote(given));
    let directory = Path::new(given);
    if !directory.is_absolute() {
        return Err(invalid("must be an absolute file path".to_owned()));
    }
    let found = fs::metadata(directory);
    let found = found.map_err(|error| invalid(format!("unable to read: {error}")))?;
    if !found.is_dir() {
        return Err(invalid("must be a directory".to_owned()));
    }
    Ok(Some(directory.to_path_buf()))
}

/// The directory that the configuration of a plugin names.
pub fn directory_of(
    plugin: ManifestPlugin,
    configuration: &PluginConfiguration,
    gate_is_on: bool,
) -> Result<Option<PathBuf>, String> {
    let value = match plugin {
        ManifestPlugin::MutatingAdmissionWebhook | ManifestPlugin::ValidatingAdmissionWebhook => {
            // The other fields are checked where the credentials are read.
            let given = configuration.value.get("staticManifestsDir");
            if given.is_some_and(|given| given.as_str().is_none() && !given.is_null()) {
                return Err(configuration.wrong("staticManifestsDir must be a string"));
            }
            &configuration.value
        }
        _ => policy_configuration(plugin, configuration)?,
    };
    let given = value.str_at(&["staticManifestsDir"]);
    directory(given, gate_is_on).map_err(|why| configuration.wrong(&why))
}

fn policy_configuration(
    plugin: ManifestPlugin,
    configuration: &PluginConfiguration,
) -> Result<&Value, String> {
    const FIELDS: FieldType = FieldType::Fields(&[
        ("apiVersion", FieldType::Text),
        ("kind", FieldType::Text),
        ("staticManifestsDir", FieldType::Text),
    ]);
    let kind = format!("{}Configuration", plugin.name());
    configuration.decode(&[("apiserver.config.k8s.io/v1", &kind)], &FIELDS)
}

/// The documents of a directory.
#[derive(Debug)]
pub struct Manifests {
    documents: Vec<(PathBuf, Vec<u8>)>,
    /// Of the files; empty: there are none.
    pub hash: String,
}

/// What the files of a directory configure.
#[derive(Debug)]
pub struct Loaded {
    pub configurations: StaticConfigurations,
    /// How many configurations or policies there are.
    pub count: usize,
}

/// Decodes all documents of a directory; one that is wrong makes all of them count for nothing.
pub fn load(
    plugin: ManifestPlugin,
    manifests: &Manifests,
    decoder: &dyn ManifestDecoder,
) -> Result<Loaded, String> {
    let mut found = Found { plugin, decoder, parts: Default::default() };
    for (file, text) in &manifests.documents {
        found
            .take_document(file, text)
            .map_err(|why| format!("error loading {}: {why}", file.display()))?;
    }
    let [configurations, bindings] = found.parts;
    for (name, (_, binding)) in &bindings {
        let policy = binding.str_at(&["spec", "policyName"]);
        if !configurations.contains_key(policy) {
            return Err(format!(
                "binding {} references policy {} which does not exist in the manifest directory",
                quote(name),
                quote(policy)
            ));
        }
    }
    let sorted = |part: Part| part.into_iter().map(|(name, (_, object))| (name, object)).collect();
    let (configurations, bindings): (Vec<_>, Vec<_>) = (sorted(configurations), sorted(bindings));
    let count = configurations.len();
    let configurations = match plugin {
        ManifestPlugin::MutatingAdmissionWebhook => {
            StaticConfigurations::MutatingWebhooks(configurations)
        }
        ManifestPlugin::ValidatingAdmissionWebhook => {
            StaticConfigurations::ValidatingWebhooks(configurations)
        }
        ManifestPlugin::MutatingAdmissionPolicy => {
            StaticConfigurations::MutatingPolicies { policies: configurations, bindings }
        }
        ManifestPlugin::ValidatingAdmissionPolicy => {
            StaticConfigurations::ValidatingPolicies { policies: configurations, bindings }
        }
    };
    Ok(Loaded { configurations, count })
}

/// The documents of all `.yaml`, `.yml` and `.json` files, by the names of the files.
pub fn read(directory: &Path) -> Result<Manifests, String> {
    let shown = quote(&directory.display().to_string());
    let unreadable = |error| format!("failed to read manifest directory {shown}: {error}");
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        // Compat: a link to a directory is read like a file, and fails.
        let is_directory = entry.file_type().map_err(unreadable)?.is_dir();
        let path = entry.path();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let is_manifest =
            ["yaml", "yml", "json"].iter().any(|known| ending.eq_ignore_ascii_case(known));
        if is_manifest && !is_directory {
            files.push(path);
        }
    }
    if files.len() > FILES_MAX {
        return Err(format!("manifest directory {shown} has more than {FILES_MAX} files"));
    }
    files.sort();
    let (mut documents, mut hash, mut bytes) = (Vec::new(), Sha256::new(), 0);
    for file in files {
        let shown = quote(&file.display().to_string());
        let unreadable = |why: String| format!("failed to read file {shown}: {why}");
        bytes += fs::metadata(&file).map_err(|error| unreadable(error.to_string()))?.len();
        if bytes > BYTES_MAX {
            return Err(unreadable(format!("the files have more than {BYTES_MAX} bytes")));
        }
        let text = fs::read(&file).map_err(|error| unreadable(error.to_string()))?;
        if text.is_empty() {
            continue;
        }
        hash.update(&text);
        hash.update([0]);
        let split = split_documents(&text)
            .map_err(|why| format!("failed to split YAML documents in file {shown}: {why}"))?;
        documents.extend(split.into_iter().map(|document| (file.clone(), document.to_vec())));
    }
    let hash = if bytes == 0 { String::new() } else { metrics::hexadecimal(&hash.finalize()[..]) };
    Ok(Manifests { documents, hash })
}

/// Splits a file at lines that begin with `---`. What has no text is left out.
fn split_documents(text: &[u8]) -> Result<Vec<&[u8]>, String> {
    let mut documents = Vec::new();
    let (mut begin, mut at) = (0, 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if let Some(rest) = line.strip_prefix(b"---") {
            let rest = rest.trim_ascii();
            if !rest.is_empty() && rest[0] != b'#' {
                let rest = String::from_utf8_lossy(rest);
                return Err(format!("invalid Yaml document separator: {rest}"));
            }
            documents.push(&text[begin..at]);
            begin = at + line.len();
        }
        at += line.len();
    }
    documents.push(&text[begin..]);
    documents.retain(|document| !document.trim_ascii().is_empty());
    Ok(documents)
}

/// By name, with the file that it is in.
type Part = BTreeMap<Str, (PathBuf, Value)>;

struct Found<'a> {
    plugin: ManifestPlugin,
    decoder: &'a dyn ManifestDecoder,
    /// Configurations or policies; bindings.
    parts: [Part; 2],
}

impl Found<'_> {
    fn take_document(&mut self, file: &Path, text: &[u8]) -> Result<(), String> {
        let document = Document::load(text)?.check(&FieldType::Any)?;
        self.take(file, &document, 0)
    }

    fn take(&mut self, file: &Path, object: &Value, depth: usize) -> Result<(), String> {
        let (version, kind) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
        if kind.is_empty() {
            return Err("Object 'Kind' is missing".to_owned());
        }
        if version.is_empty() {
            return Err("Object 'apiVersion' is missing".to_owned());
        }
        // Compat: a List is one in any version.
        if kind == "List" {
            if depth == LIST_DEPTH_MAX {
                return Err(format!("lists are nested deeper than {LIST_DEPTH_MAX}"));
            }
            return object
                .items_at(&["items"])
                .iter()
                .try_for_each(|item| self.take(file, item, depth + 1));
        }
        let (own, binding) = self.plugin.kinds();
        let is = |wanted: &str, ending: &str| {
            version == GROUP_VERSION && kind.strip_suffix(ending) == Some(wanted)
        };
        for (part, wanted) in [Some(own), binding].into_iter().enumerate() {
            let Some(wanted) = wanted else { continue };
            if is(wanted, "") {
                return self.accept(file, part, wanted, object);
            }
            if is(wanted, "List") {
                return object.items_at(&["items"]).iter().try_for_each(|item| {
                    // Compat: the items of a list of one kind need not say their kind.
                    self.accept(file, part, wanted, item)
                });
            }
        }
        let version = version.rsplit('/').next().unwrap_or_default();
        Err(format!("unsupported resource type *{version}.{kind}"))
    }

    fn accept(
        &mut self,
        file: &Path,
        part: usize,
        kind: &'static str,
        object: &Value,
    ) -> Result<(), String> {
        let name = object.str_at(&["metadata", "name"]);
        let decoded = self.decoder.decode(kind, object);
        let decoded = decoded.map_err(|why| format!("{kind} {}: {why}", quote(name)))?;
        check_name(file, name, &self.parts[part])?;
        match self.plugin {
            ManifestPlugin::MutatingAdmissionWebhook
            | ManifestPlugin::ValidatingAdmissionWebhook => check_webhooks(file, name, &decoded)?,
            _ if part == 0 => check_policy(kind, name, &decoded)?,
            _ => check_binding(name, &decoded)?,
        }
        self.parts[part].insert(Str::new(name), (file.to_path_buf(), decoded));
        Ok(())
    }
}

const GROUP_VERSION: &str = "admissionregistration.k8s.io/v1";

fn check_name(file: &Path, name: &str, seen: &Part) -> Result<(), String> {
    let (quoted, file) = (quote(name), quote(&file.display().to_string()));
    if name.is_empty() {
        return Err(format!("resource in file {file} must have a name"));
    }
    if !name.ends_with(STATIC_SUFFIX) {
        let suffix = quote(STATIC_SUFFIX);
        return Err(format!("{quoted} in file {file} must have a name ending with {suffix}"));
    }
    match seen.get(name) {
        None => Ok(()),
        Some((previous, _)) => Err(format!(
            "duplicate name {quoted} found in file {file} (previously seen in {})",
            quote(&previous.display().to_string())
        )),
    }
}

/// The server starts without a cluster to look up Services in.
fn check_webhooks(file: &Path, name: &str, configuration: &Value) -> Result<(), String> {
    for webhook in configuration.items_at(&["webhooks"]) {
        let wrong = |why: &str| {
            let webhook = quote(webhook.str_at(&["name"]));
            let (name, file) = (quote(name), quote(&file.display().to_string()));
            Err(format!("webhook {webhook} in {name} (file {file}): clientConfig.{why}"))
        };
        let client_config = webhook.get("clientConfig").unwrap_or(&Value::Null);
        if client_config.get("service").is_some_and(|service| !service.is_null()) {
            return wrong(
                "service is not supported for static manifests; use clientConfig.url instead",
            );
        }
        if client_config.str_at(&["url"]).is_empty() {
            return wrong("url is required for static manifests");
        }
    }
    Ok(())
}

fn check_policy(kind: &str, name: &str, policy: &Value) -> Result<(), String> {
    if is_given(policy, "paramKind") {
        let name = quote(name);
        return Err(format!("{kind} {name}: spec.paramKind is not supported for static manifests"));
    }
    Ok(())
}

fn check_binding(name: &str, binding: &Value) -> Result<(), String> {
    let (name, policy) = (quote(name), binding.str_at(&["spec", "policyName"]));
    if policy.is_empty() {
        return Err(format!("binding {name} must reference a policy (spec.policyName)"));
    }
    if !policy.ends_with(STATIC_SUFFIX) {
        let (policy, suffix) = (quote(policy), quote(STATIC_SUFFIX));
        return Err(format!("binding {name}: spec.policyName {policy} must end with {suffix}"));
    }
    if is_given(binding, "paramRef") {
        return Err(format!("binding {name}: spec.paramRef is not supported for static manifests"));
    }
    Ok(())
}

fn is_given(object: &Value, field: &str) -> bool {
    object.at(&["spec", field]).is_some_and(|value| !value.is_null())
}

#[cfg(test)]
mod tests;
