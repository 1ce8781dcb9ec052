//! The strategy of CustomResourceDefinitions: defaulting, preparation, validation, warnings.

mod approval;
mod conversion;
mod internal_version;
mod names;
mod schema_rules;
mod spec;
mod validation_options;
mod version_fields;

use std::collections::{BTreeMap, HashSet};

use meta::{
    FieldErrors, FieldPath, Map, Value,
    field::{path, quote},
};
use registry::{Strategy, WriteContext};
use schema::structural::{SCHEMA_DEPTH_MAX, is_too_deep};

pub(crate) use self::approval::{Approval, approval, is_protected};
pub(crate) use self::conversion::ca_bundle_error;
use self::validation_options::ValidationOptions;

/// The strategy of the kind `CustomResourceDefinition`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CustomResourceDefinition;

impl Strategy for CustomResourceDefinition {
    fn default(&self, definition: &mut Value) {
        default_names(definition);
        if definition.at(&["spec", "conversion"]).is_none_or(Value::is_null) {
            definition.set_at(&["spec", "conversion", "strategy"], "None");
        }
        let webhook = ["spec", "conversion", "webhook"];
        if definition.at(&webhook).is_some_and(is_empty_webhook) {
            definition.remove_at(&webhook);
        }
        let service = ["spec", "conversion", "webhook", "clientConfig", "service"];
        if let Some(service) = definition.at_mut(&service).and_then(Value::as_object_mut)
            && service.get("port").is_none_or(Value::is_null)
        {
            service.insert("port", 443);
        }
        if definition.items_at(&["status", "storedVersions"]).is_empty() {
            add_stored_version(definition);
        }
    }

    fn prepare_for_create(&self, definition: &mut Value, _cx: &WriteContext<'_>) {
        definition.set_at(&["status"], Map::new());
        add_stored_version(definition);
    }

    fn prepare_for_update(&self, definition: &mut Value, _old: &Value, _cx: &WriteContext<'_>) {
        add_stored_version(definition);
    }

    /// The finalizing controller deletes the objects first.
    fn holds_deletion(&self, definition: &Value) -> bool {
        definition.str_at(&["metadata", "deletionTimestamp"]).is_empty()
    }

    fn begin_deletion(&self, definition: &mut Value) {
        crate::finalizing_controller::mark_for_deletion(definition);
    }

    fn validate(&self, definition: &Value, errors: &mut FieldErrors) {
        if has_too_deep_schema(definition, errors) {
            return;
        }
        let plural = definition.str_at(&["spec", "names", "plural"]);
        let expected = format!("{plural}.{}", definition.str_at(&["spec", "group"]));
        for field in ["generateName", "name"] {
            let given = definition.str_at(&["metadata", field]);
            // A missing name is reported with the other metadata.
            if !given.is_empty() && given != expected {
                let why = "must be spec.names.plural+\".\"+spec.group";
                errors.invalid(path("metadata").child(field), given, why);
            }
        }
        spec::check(definition, &ValidationOptions::for_create(), &path("spec"), errors);
        check_status(definition, errors);
        check_stored_versions(definition, errors);
        approval::check(definition, None, errors);
        check_preserve_unknown(definition, None, errors);
    }

    fn validate_update(&self, definition: &Value, old: &Value, errors: &mut FieldErrors) {
        if has_too_deep_schema(definition, errors) {
            return;
        }
        let options = ValidationOptions::for_update(definition, old);
        spec::check_update(definition, old, &options, &path("spec"), errors);
        check_status(definition, errors);
        check_stored_versions(definition, errors);
        approval::check(definition, Some(old), errors);
        check_preserve_unknown(definition, Some(old), errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        definition: &Value,
        _old: &Value,
        errors: &mut FieldErrors,
    ) {
        check_status(definition, errors);
    }

    fn warnings(&self, _subresource: &str, definition: &Value, old: Option<&Value>) -> Vec<String> {
        let known: HashSet<String> =
            old.map(unrecognized_formats).unwrap_or_default().into_iter().collect();
        let mut formats = unrecognized_formats(definition);
        formats.retain(|format| !known.contains(format));
        formats.iter().map(|format| format!("unrecognized format {}", quote(format))).collect()
    }
}

/// Refuses schemas that are nested too deeply, before anything recurses into them.
fn has_too_deep_schema(definition: &Value, errors: &mut FieldErrors) -> bool {
    let before = errors.count();
    let why = format!("must not be nested more than {SCHEMA_DEPTH_MAX} levels deep");
    let mut check = |schema: Option<&Value>, at: FieldPath| {
        if schema.is_some_and(is_too_deep) {
            errors.invalid(at.child("openAPIV3Schema"), "", &why);
        }
    };
    let spec = path("spec");
    let shared = definition.at(&["spec", "validation", "openAPIV3Schema"]);
    check(shared, spec.child("validation"));
    for (at, version) in definition.items_at(&["spec", "versions"]).iter().enumerate() {
        let at = spec.child("versions").index(at).child("schema");
        check(version.at(&["schema", "openAPIV3Schema"]), at);
    }
    errors.count() > before
}

/// Neither `clientConfig` nor `conversionReviewVersions` is set.
fn is_empty_webhook(webhook: &Value) -> bool {
    webhook.get("clientConfig").is_none_or(Value::is_null)
        && webhook.items_at(&["conversionReviewVersions"]).is_empty()
}

fn default_names(definition: &mut Value) {
    let names = definition.object_at_mut(&["spec", "names"]);
    let text = |names: &Map, name: &str| {
        names.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let kind = text(names, "kind");
    if kind.is_empty() {
        return;
    }
    if text(names, "singular").is_empty() {
        names.insert("singular", kind.to_lowercase());
    }
    if text(names, "listKind").is_empty() {
        names.insert("listKind", format!("{kind}List"));
    }
}

/// Adds the storage version to `status.storedVersions`.
fn add_stored_version(definition: &mut Value) {
    let versions = definition.items_at(&["spec", "versions"]);
    let stored = versions.iter().find(|version| version.bool_at(&["storage"]));
    // A version without a name is refused by validation, but added here as upstream does.
    let Some(name) = stored.map(|version| Value::from(version.str_at(&["name"]))) else { return };
    if definition.items_at(&["status", "storedVersions"]).contains(&name) {
        return;
    }
    let stored = definition.object_at_mut(&["status"]).entry("storedVersions");
    match stored {
        Value::Array(names) => names.push(name),
        other => *other = Value::Array(vec![name]),
    }
}

fn check_status(definition: &Value, errors: &mut FieldErrors) {
    let at = path("status").child("acceptedNames");
    names::check(definition.at(&["status", "acceptedNames"]), &at, errors);
}

/// Objects that are stored in a version can be read only while the version is in the spec.
fn check_stored_versions(definition: &Value, errors: &mut FieldErrors) {
    let at = path("status").child("storedVersions");
    let stored = definition.items_at(&["status", "storedVersions"]);
    if stored.is_empty() {
        let shown = definition.at(&["status", "storedVersions"]).cloned().unwrap_or_default();
        return errors.invalid(at, shown, "must have at least one stored version");
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut missing: BTreeMap<String, usize> =
        stored.iter().enumerate().map(|(at, name)| (text(name), at)).collect();
    for version in definition.items_at(&["spec", "versions"]) {
        let name = version.str_at(&["name"]);
        if missing.remove(name).is_none() && version.bool_at(&["storage"]) {
            let why = format!("must have the storage version {name}");
            errors.invalid(&at, Value::Array(stored.to_vec()), &why);
        }
    }
    for (name, index) in missing {
        let why = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain \
             in spec.versions until a storage migration ensures no data remains persisted in \
             {name} and removes {name} from status.storedVersions"
        );
        errors.invalid(at.index(index), name, &why);
    }
}

fn check_preserve_unknown(definition: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    const FIELD: [&str; 2] = ["spec", "preserveUnknownFields"];
    if definition.bool_at(&FIELD) && !old.is_some_and(|old| old.bool_at(&FIELD)) {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                   spec.versions[*].schema instead";
        errors.invalid(path("spec").child("preserveUnknownFields"), true, why);
    }
}

/// Formats that validation does not know, in the order of the schemas.
fn unrecognized_formats(definition: &Value) -> Vec<String> {
    let mut formats = Vec::new();
    let schemas = internal_version::InternalSpec::of(definition).schemas();
    for schema in schemas.into_iter().filter(|schema| !is_too_deep(schema)) {
        schema_rules::any(schema, &mut |node| {
            let (ty, format) = (node.str_at(&["type"]), node.str_at(&["format"]));
            if !format.is_empty() && !schema::structural::is_recognized_format(ty, format) {
                formats.push(format.to_owned());
            }
            false
        });
    }
    formats
}
