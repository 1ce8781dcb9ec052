//! Ratcheting: what is wrong in the stored definition may stay wrong in an update.

use std::collections::{BTreeSet, HashMap};

use meta::{FieldErrors, FieldPath, Value};
use schema::structural::{Structural, is_too_deep};

use super::{
    conversion::{ca_bundle_error, has_recognized_version},
    internal_version::{InternalSpec, PerVersionField},
    schema_rules,
};

pub(super) struct ValidationOptions {
    pub require_recognized_review_version: bool,
    pub require_immutable_names: bool,
    pub require_schema: bool,
    pub require_valid_types: bool,
    pub require_structural: bool,
    pub require_pruned_defaults: bool,
    pub require_atomic_sets: bool,
    pub require_usable_list_keys: bool,
    /// Compat: an invalid CA bundle is refused only once the definition is established.
    pub allow_invalid_ca_bundle: bool,
    /// Versions whose schema is unchanged: the cost of their rules is not limited.
    pub unchanged_schemas: BTreeSet<String>,
    /// Versions whose stored definition has too many selectable fields; "" for all versions.
    pub too_many_selectable: BTreeSet<String>,
}

impl ValidationOptions {
    pub(super) fn for_create() -> Self {
        Self {
            require_recognized_review_version: true,
            require_immutable_names: false,
            require_schema: true,
            require_valid_types: true,
            require_structural: true,
            require_pruned_defaults: true,
            require_atomic_sets: true,
            require_usable_list_keys: true,
            allow_invalid_ca_bundle: true,
            unchanged_schemas: BTreeSet::new(),
            too_many_selectable: BTreeSet::new(),
        }
    }

    pub(super) fn for_update(new: &Value, old: &Value) -> Self {
        let (spec, old_spec) = (InternalSpec::of(new), InternalSpec::of(old));
        // A schema that was stored although it is too deep counts as one without errors.
        let mut schemas = old_spec.schemas();
        schemas.retain(|schema| !is_too_deep(schema));
        let none_has = |wrong: fn(&Value) -> bool| {
            !schemas.iter().any(|schema| schema_rules::any(schema, &mut |node| wrong(node)))
        };
        let review_versions =
            old_spec.raw.items_at(&["conversion", "webhook", "conversionReviewVersions"]);
        let has_schema = |version: &Value| {
            version.at(&["schema", "openAPIV3Schema"]).is_some_and(|s| !s.is_null())
        };
        Self {
            require_recognized_review_version: review_versions.is_empty()
                || has_recognized_version(review_versions),
            require_immutable_names: is_established(old),
            require_schema: old_spec.versions.iter().all(has_schema),
            require_valid_types: none_has(schema_rules::has_invalid_type),
            require_structural: schemas.iter().all(|schema| is_structural(schema)),
            require_pruned_defaults: !schemas.iter().any(|schema| has_unpruned_defaults(schema)),
            require_atomic_sets: none_has(schema_rules::is_set_of_non_atoms),
            require_usable_list_keys: none_has(schema_rules::has_unusable_list_keys),
            allow_invalid_ca_bundle: allow_invalid_ca_bundle(old),
            unchanged_schemas: unchanged_schemas(&spec, &old_spec),
            too_many_selectable: too_many_selectable(&spec, &old_spec),
        }
    }
}

pub(super) fn is_established(definition: &Value) -> bool {
    let conditions = definition.items_at(&["status", "conditions"]);
    conditions.iter().any(|condition| {
        condition.str_at(&["type"]) == "Established" && condition.str_at(&["status"]) == "True"
    })
}

fn is_structural(schema: &Value) -> bool {
    let Ok(structural) = Structural::new(schema) else { return false };
    let mut errors = FieldErrors::default();
    structural.check(&FieldPath::root(), &mut errors);
    errors.is_empty()
}

fn has_unpruned_defaults(schema: &Value) -> bool {
    let has_default = |node: &Value| node.get("default").is_some_and(|default| !default.is_null());
    if !schema_rules::any(schema, &mut |node| has_default(node)) || !is_structural(schema) {
        return false;
    }
    Structural::new(schema).is_ok_and(|mut structural| structural.prune_defaults())
}

fn allow_invalid_ca_bundle(old: &Value) -> bool {
    let path = ["spec", "conversion", "webhook", "clientConfig", "caBundle"];
    let bundle = old.str_at(&path);
    !is_established(old) || ca_bundle_error(bundle).is_some()
}

fn unchanged_schemas(spec: &InternalSpec<'_>, old: &InternalSpec<'_>) -> BTreeSet<String> {
    let by_name = versions_by_name(old);
    let same = |version: &&Value| {
        let before = by_name.get(version.str_at(&["name"]));
        before.is_some_and(|before| before.get("schema") == version.get("schema"))
    };
    spec.versions.iter().filter(same).map(|v| v.str_at(&["name"]).to_owned()).collect()
}

fn too_many_selectable(spec: &InternalSpec<'_>, old: &InternalSpec<'_>) -> BTreeSet<String> {
    const FIELDS_MAX: usize = 8;
    let too_many = |fields: Option<&Value>| {
        fields.and_then(Value::as_array).is_some_and(|fields| fields.len() > FIELDS_MAX)
    };
    let mut names = BTreeSet::new();
    let shared = old.top_level(PerVersionField::SelectableFields);
    if too_many(shared) && shared == spec.top_level(PerVersionField::SelectableFields) {
        names.insert(String::new());
    }
    let by_name = versions_by_name(old);
    for version in spec.versions {
        let name = version.str_at(&["name"]);
        let Some(before) = by_name.get(name) else { continue };
        let fields = before.get("selectableFields");
        if too_many(fields) && fields == version.get("selectableFields") {
            names.insert(name.to_owned());
        }
    }
    names
}

/// The first version of each name.
fn versions_by_name<'a>(spec: &InternalSpec<'a>) -> HashMap<&'a str, &'a Value> {
    spec.versions.iter().rev().map(|version| (version.str_at(&["name"]), version)).collect()
}
