//! Validation of the spec of a definition.

use std::collections::BTreeSet;

use meta::{
    FieldErrors, FieldPath, Value,
    field::FieldReason,
    names::{is_dns1035_label, validate_immutable},
};
use schema::structural::{RuleOptions, Structural};

use super::{
    conversion,
    internal_version::{self, InternalSpec, PerVersionField, SCHEMA_FIELDS},
    names, schema_rules,
    validation_options::ValidationOptions,
    version_fields,
};

pub(super) fn check(
    definition: &Value,
    options: &ValidationOptions,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let spec = InternalSpec::of(definition);
    names::check_group(spec.raw.str_at(&["group"]), &path.child("group"), errors);
    match spec.raw.str_at(&["scope"]) {
        "" => errors.required(path.child("scope"), ""),
        "Cluster" | "Namespaced" => {}
        other => errors.not_supported(path.child("scope"), other, &["Cluster", "Namespaced"]),
    }
    let preserve_unknown = spec.raw.bool_at(&["preserveUnknownFields"]);
    check_schemas_are_there(&spec, preserve_unknown, options, path, errors);
    let schemas = spec.schemas();
    let has = |what: fn(&Value) -> bool| {
        schemas.iter().any(|schema| schema_rules::any(schema, &mut |node| what(node)))
    };
    let has_defaults = has(|node| node.get("default").is_some_and(|default| !default.is_null()));
    if has_defaults && preserve_unknown {
        let why = "must be false in order to use defaults in the schema";
        errors.invalid(path.child("preserveUnknownFields"), true, why);
    }
    let structural = options.require_structural
        || !preserve_unknown
        || has_defaults
        || has(schema_rules::has_extensions);
    check_versions(&spec, structural, options, path, errors);

    let names = spec.raw.get("names");
    names::check_required(names, &path.child("names"), errors);
    names::check(names, &path.child("names"), errors);
    let first = spec.versions.first().map_or("", |version| version.str_at(&["name"]));
    let shared = Schemas {
        structural,
        status: spec.versions.iter().any(has_status),
        suppress_cost: options.unchanged_schemas.contains(first),
    };
    if let Some(schema) = spec.top_level(PerVersionField::Schema) {
        shared.check(schema, options, &path.child("validation"), errors);
    }
    if let Some(subresources) = spec.top_level(PerVersionField::Subresources) {
        version_fields::check_subresources(subresources, &path.child("subresources"), errors);
    }
    let columns =
        spec.top_level(PerVersionField::Columns).and_then(Value::as_array).unwrap_or_default();
    for (at, column) in columns.iter().enumerate() {
        version_fields::check_column(
            column,
            &path.child("additionalPrinterColumns").index(at),
            errors,
        );
    }
    if let Some(fields) = spec.top_level(PerVersionField::SelectableFields) {
        let at = path.child("selectableFields");
        match spec
            .top_level(PerVersionField::Schema)
            .and_then(|schema| schema.get("openAPIV3Schema"))
        {
            None => errors.invalid(at, "", "may only be set when validations.schema is included"),
            Some(schema) => check_selectable(fields, schema, "", options, path, errors),
        }
    }
    if let Some(conversion) = spec.raw.get("conversion").filter(|given| !given.is_null()) {
        let (strategy, at) = (conversion.str_at(&["strategy"]), path.child("conversion"));
        if strategy != "None" && preserve_unknown {
            let why = "must be None if spec.preserveUnknownFields is true";
            errors.invalid(at.child("strategy"), strategy, why);
        }
        conversion::check(conversion, options, &at, errors);
    }
}

pub(super) fn check_update(
    new: &Value,
    old: &Value,
    options: &ValidationOptions,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    check(new, options, path, errors);
    let mut immutable = |names: &[&str]| {
        let at = names.iter().fold(path.clone(), |at, name| at.child(name));
        let full: Vec<&str> = ["spec"].iter().chain(names).copied().collect();
        let [new, old] = [new, old].map(|object| Value::from(object.str_at(&full)));
        validate_immutable(Some(&new), Some(&old), &at, errors);
    };
    if options.require_immutable_names {
        immutable(&["scope"]);
        immutable(&["names", "kind"]);
    }
    immutable(&["group"]);
    immutable(&["names", "plural"]);
}

/// Every version needs a schema: without one, all fields would be pruned.
fn check_schemas_are_there(
    spec: &InternalSpec<'_>,
    preserve_unknown: bool,
    options: &ValidationOptions,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    for (at, version) in spec.versions.iter().enumerate() {
        if version.at(&["schema", "openAPIV3Schema"]).is_some_and(|schema| !schema.is_null()) {
            continue;
        }
        let at = path.child("versions").index(at).child("schema").child("openAPIV3Schema");
        if options.require_schema {
            errors.required(at, "");
        } else if !preserve_unknown && version.bool_at(&["served"]) {
            errors.required(at, "because otherwise all fields are pruned");
        }
    }
}

fn check_versions(
    spec: &InternalSpec<'_>,
    structural: bool,
    options: &ValidationOptions,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let versions_path = path.child("versions");
    let mut seen = BTreeSet::new();
    let mut unique = true;
    for (at, version) in spec.versions.iter().enumerate() {
        let at = versions_path.index(at);
        let name = version.str_at(&["name"]);
        unique &= seen.insert(name);
        let wrong = is_dns1035_label(name);
        if !wrong.is_empty() {
            errors.invalid(at.child("name"), name, &wrong.join(","));
        }
        check_version(spec, version, structural, options, &at, errors);
    }
    let mut invalid = |why: &str| {
        let message = format!("Invalid value: {}: {why}", internal_version::show_versions(spec));
        errors.push(FieldReason::Invalid, &versions_path, message);
    };
    if !unique {
        invalid("must contain unique version names");
    }
    let stored = spec.versions.iter().filter(|version| version.bool_at(&["storage"]));
    if stored.count() != 1 {
        invalid("must have exactly one version marked as storage version");
    }
    // Compat: the internal version has the first version's name in the spec as well.
    if let Some(first) = spec.versions.first().map(|version| version.str_at(&["name"])) {
        let wrong = is_dns1035_label(first);
        if !first.is_empty() && !wrong.is_empty() {
            errors.invalid(path.child("version"), first, &wrong.join(","));
        }
    }
}

fn check_version(
    spec: &InternalSpec<'_>,
    version: &Value,
    structural: bool,
    options: &ValidationOptions,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    check_deprecation(version, &path.child("deprecationWarning"), errors);
    let name = version.str_at(&["name"]);
    let schema = spec.per_version(version, PerVersionField::Schema);
    if let Some(schema) = schema {
        let schemas = Schemas {
            structural,
            status: has_status(version),
            suppress_cost: options.unchanged_schemas.contains(name),
        };
        schemas.check(schema, options, &path.child("schema"), errors);
    }
    if let Some(subresources) = spec.per_version(version, PerVersionField::Subresources) {
        version_fields::check_subresources(subresources, &path.child("subresources"), errors);
    }
    let columns = spec
        .per_version(version, PerVersionField::Columns)
        .and_then(Value::as_array)
        .unwrap_or_default();
    for (at, column) in columns.iter().enumerate() {
        version_fields::check_column(
            column,
            &path.child("additionalPrinterColumns").index(at),
            errors,
        );
    }
    if let Some(fields) = spec.per_version(version, PerVersionField::SelectableFields) {
        let at = path.child("selectableFields");
        match schema.and_then(|schema| schema.get("openAPIV3Schema")) {
            None => {
                let why = "may only be set when `version.schema.openAPIV3Schema` is not included";
                errors.invalid(at, "", why);
            }
            Some(schema) => check_selectable(fields, schema, name, options, path, errors),
        }
    }
}

fn check_selectable(
    fields: &Value,
    schema: &Value,
    version: &str,
    options: &ValidationOptions,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    match Structural::new(schema) {
        Err(why) => errors.invalid(path.child("schema.openAPIV3Schema"), "", &why),
        Ok(schema) => version_fields::check_selectable_fields(
            fields.as_array().unwrap_or_default(),
            schema.root(),
            options.too_many_selectable.contains(version),
            &path.child("selectableFields"),
            errors,
        ),
    }
}

fn check_deprecation(version: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return };
    let mut invalid = |why: &str| errors.invalid(path, warning, why);
    if !version.bool_at(&["deprecated"]) {
        return invalid("can only be set for deprecated versions");
    }
    if warning.len() > 256 {
        invalid("must be <= 256 characters long");
    }
    if warning.is_empty() {
        invalid("must not be an empty string");
    }
    let unprintable = |c: char| c.is_control() || c.is_whitespace() && c != ' ';
    if let Some(at) = warning.find(unprintable) {
        invalid(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index \
             {at}"
        ));
    }
}

fn has_status(version: &Value) -> bool {
    version.at(&["subresources", "status"]).is_some_and(|status| !status.is_null())
}

/// Validation of the schema of one version, or of all versions.
struct Schemas {
    structural: bool,
    /// The status subresource is enabled.
    status: bool,
    suppress_cost: bool,
}

impl Schemas {
    fn check(
        &self,
        schema: &Value,
        options: &ValidationOptions,
        path: &FieldPath,
        errors: &mut FieldErrors,
    ) {
        let Some(schema) = schema.get("openAPIV3Schema").filter(|schema| !schema.is_null()) else {
            return;
        };
        let at = path.child("openAPIV3Schema");
        let before = errors.count();
        if self.status {
            check_root_with_status(schema, path, errors);
        }
        if schema.bool_at(&["nullable"]) {
            let at = path.child("openAPIV3Schema.nullable");
            errors.forbidden(at, "nullable cannot be true at the root");
        }
        // The rules of x-kubernetes-validations are compiled only if the schema is valid.
        let mut compilable = None;
        let mut unreadable = None;
        if self.structural {
            match Structural::new(schema) {
                Err(why) => unreadable = Some(why),
                Ok(structural) => {
                    let before = errors.count();
                    structural.check(&at, errors);
                    if errors.count() == before {
                        structural.check_defaults(&at, options.require_pruned_defaults, errors);
                    }
                    compilable = (errors.count() == before).then_some(structural);
                }
            }
        }
        let mut wrong = FieldErrors::default();
        schema_rules::check(schema, &at, options, &mut wrong);
        if let Some(structural) = compilable {
            let how = RuleOptions { suppress_cost: self.suppress_cost, broken: &wrong };
            let mut rules = FieldErrors::default();
            structural.check_rules(&at, &how, &mut rules);
            wrong.extend(rules);
        }
        errors.extend(wrong);
        if let (Some(why), true) = (unreadable, errors.count() == before) {
            errors.invalid(at, "", &why);
        }
    }
}

/// With a status subresource the status is validated alone, so the root schema may have no constraints
/// besides its properties.
fn check_root_with_status(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const ALLOWED: [&str; 22] = [
        "Description",
        "Type",
        "Format",
        "Title",
        "Maximum",
        "ExclusiveMaximum",
        "Minimum",
        "ExclusiveMinimum",
        "MaxLength",
        "MinLength",
        "Pattern",
        "MaxItems",
        "MinItems",
        "UniqueItems",
        "MultipleOf",
        "Required",
        "Items",
        "Properties",
        "ExternalDocs",
        "Example",
        "XPreserveUnknownFields",
        "XValidations",
    ];
    let is_given = |name: &str, value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        // Pointers count as set even if they are empty.
        Value::String(text) => {
            let pointers = ["$ref", "x-kubernetes-list-type", "x-kubernetes-map-type"];
            !text.is_empty() || pointers.contains(&name)
        }
        _ => true,
    };
    for (go_name, name, _) in SCHEMA_FIELDS {
        let given = schema.get(name).filter(|value| is_given(name, value));
        let Some(value) = given else { continue };
        if go_name == "Type" && value.as_str() != Some("object") {
            let why = "only \"object\" is allowed as the type at the root of the schema if the \
                       status subresource is enabled";
            return errors.invalid(path.child("openAPIV3Schema.type"), value.clone(), why);
        }
        if !ALLOWED.contains(&go_name) {
            let shown = internal_version::show_schema(schema);
            let allowed = ALLOWED.join(" ");
            let message = format!(
                "Invalid value: {shown}: only [{allowed}] fields are allowed at the root of the \
                 schema if the status subresource is enabled"
            );
            return errors.push(FieldReason::Invalid, path.child("openAPIV3Schema"), message);
        }
    }
}
