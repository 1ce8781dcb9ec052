//! The rules for `metadata` that every kind shares.

use std::collections::BTreeSet;

use super::{NameRule, is_label_value, is_qualified_name, name_is_dns_label};
use crate::{
    FieldErrors, FieldPath, Map, Value,
    field::{FieldReason, RuleId, path, quote},
    json,
};

pub const FIELD_IMMUTABLE: &str = "field is immutable";

/// All keys and values of the annotations of one object together.
pub const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// Checks `metadata` on its own, after a name was generated.
pub fn validate_object_meta(
    meta: &Value,
    namespaced: bool,
    name_rule: NameRule,
    errors: &mut FieldErrors,
) {
    let at = path("metadata");
    let generate_name = meta.str_at(&["generateName"]);
    if !generate_name.is_empty() {
        invalid_each(
            errors,
            &at.child("generateName"),
            generate_name,
            name_rule(generate_name, true),
        );
    }
    let name = meta.str_at(&["name"]);
    if name.is_empty() {
        errors.with_rule(NAME_REQUIRED, |errors| {
            errors.required(at.child("name"), "name or generateName is required");
        });
    } else {
        invalid_each(errors, &at.child("name"), name, name_rule(name, false));
    }
    validate_namespace(meta.str_at(&["namespace"]), namespaced, &at.child("namespace"), errors);
    if let Some(generation @ ..0) = meta.i64_at(&["generation"]) {
        let why = "must be greater than or equal to 0";
        errors.invalid(at.child("generation"), generation, why);
    }
    validate_common(meta, &at, errors);
    validate_finalizers(meta.items_at(&["finalizers"]), &at.child("finalizers"), errors);
    validate_managed_fields(meta.items_at(&["managedFields"]), &at.child("managedFields"), errors);
}

/// An embedded object, such as a template, need not have a name.
pub const NAME_REQUIRED: RuleId = RuleId::new("metadata.name is required");

/// Checks what may not change between two versions of an object. The new one is checked on its own
/// as well, by [`validate_object_meta`].
pub fn validate_object_meta_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let at = path("metadata");
    if !absent(old.get("deletionTimestamp")) {
        validate_no_new_finalizers(new, old, &at.child("finalizers"), errors);
    }
    if new.str_at(&["resourceVersion"]).is_empty() {
        errors.invalid(at.child("resourceVersion"), "", "must be specified for an update");
    }
    let generation = new.i64_at(&["generation"]).unwrap_or(0);
    if generation < old.i64_at(&["generation"]).unwrap_or(0) {
        errors.invalid(at.child("generation"), generation, "must not be decremented");
    }
    for name in ["name", "namespace", "uid"] {
        let now = new.str_at(&[name]);
        if now != old.str_at(&[name]) {
            errors.invalid(at.child(name), now, FIELD_IMMUTABLE);
        }
    }
    for name in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        validate_immutable(new.get(name), old.get(name), &at.child(name), errors);
    }
    validate_common(new, &at, errors);
    validate_managed_fields(new.items_at(&["managedFields"]), &at.child("managedFields"), errors);
}

/// The value of a field that may not change; null and absent are the same.
pub fn validate_immutable(
    new: Option<&Value>,
    old: Option<&Value>,
    at: &FieldPath,
    errors: &mut FieldErrors,
) {
    if absent(new) && absent(old) || new == old {
        return;
    }
    errors.invalid(at, new.cloned().unwrap_or_default(), FIELD_IMMUTABLE);
}

fn absent(value: Option<&Value>) -> bool {
    value.is_none_or(Value::is_null)
}

fn validate_namespace(namespace: &str, namespaced: bool, at: &FieldPath, errors: &mut FieldErrors) {
    match (namespaced, namespace) {
        (true, "") => errors.required(at, ""),
        (true, _) => invalid_each(errors, at, namespace, name_is_dns_label(namespace, false)),
        (false, "") => {}
        (false, _) => errors.forbidden(at, "not allowed on this type"),
    }
}

/// The checks common to create and update.
fn validate_common(meta: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    validate_labels(meta.get("labels"), &at.child("labels"), errors);
    validate_annotations(meta.get("annotations"), &at.child("annotations"), errors);
    let owners = meta.items_at(&["ownerReferences"]);
    validate_owner_references(owners, &at.child("ownerReferences"), errors);
}

/// A map of labels: the metadata of objects and templates, node selectors, `matchLabels`.
pub fn validate_labels(labels: Option<&Value>, at: &FieldPath, errors: &mut FieldErrors) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flat_map(Map::iter) {
        invalid_each(errors, at, key, is_qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        invalid_each(errors, at, value, is_label_value(value));
    }
}

pub fn validate_annotations(annotations: Option<&Value>, at: &FieldPath, errors: &mut FieldErrors) {
    let Some(annotations) = annotations.and_then(Value::as_object) else { return };
    let mut bytes = 0;
    for (key, value) in annotations.iter() {
        // Annotation keys are qualified names in which the case doesn't matter.
        invalid_each(errors, at, key, is_qualified_name(&key.to_lowercase()));
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.too_long(at, ANNOTATIONS_BYTES_MAX);
    }
}

/// How many owner references of one object are validated one by one. Controllers set one or two; kube-apiserver
/// has no bound, but the garbage collector looks up each of them.
pub const OWNER_REFERENCES_MAX: usize = 10_000;

pub fn validate_owner_references(owners: &[Value], at: &FieldPath, errors: &mut FieldErrors) {
    if owners.len() > OWNER_REFERENCES_MAX {
        return errors.too_many(at, owners.len(), OWNER_REFERENCES_MAX);
    }
    let mut controller: Option<&Value> = None;
    // Each error about a second controller shows all owners: they are written out once.
    let mut shown: Option<String> = None;
    for owner in owners {
        validate_owner_reference(owner, at, errors);
        if !owner.bool_at(&["controller"]) {
            continue;
        }
        let Some(first) = controller else {
            controller = Some(owner);
            continue;
        };
        errors.push_with(FieldReason::Invalid, at, || {
            let shown = shown.get_or_insert_with(|| show_owners(owners));
            let name = |owner: &Value| {
                format!("{}/{}", owner.str_at(&["kind"]), owner.str_at(&["name"]))
            };
            format!(
                "Invalid value: [{shown}]: Only one reference can have Controller set to true. Found \
                 \"true\" in references for {} and {}",
                name(first),
                name(owner),
            )
        });
    }
}

/// Cut at [`OWNERS_SHOWN_BYTES_MAX`], so that the names that follow it in the message are never cut.
fn show_owners(owners: &[Value]) -> String {
    let mut shown = String::new();
    for (at, owner) in owners.iter().enumerate() {
        if shown.len() > OWNERS_SHOWN_BYTES_MAX {
            shown.push_str(&format!(",... ({} more)", owners.len() - at));
            break;
        }
        if at > 0 {
            shown.push(',');
        }
        shown.push_str(&show_owner(owner));
    }
    shown
}

const OWNERS_SHOWN_BYTES_MAX: usize = 16 * 1024;

fn validate_owner_reference(owner: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    let api_version = owner.str_at(&["apiVersion"]);
    // Something with two slashes parses as no version at all.
    let version = match *api_version.split('/').collect::<Vec<_>>() {
        [version] | [_, version] => version,
        _ => "",
    };
    if version.is_empty() {
        errors.invalid(at.child("apiVersion"), api_version, "version must not be empty");
    }
    for name in ["kind", "name", "uid"] {
        if owner.str_at(&[name]).is_empty() {
            errors.invalid(at.child(name), "", "must not be empty");
        }
    }
    if api_version == "v1" && owner.str_at(&["kind"]) == "Event" {
        let why = "/v1, Kind=Event is disallowed from being an owner";
        let message = || format!("Invalid value: {}: {why}", show_owner(owner));
        errors.push_with(FieldReason::Invalid, at, message);
    }
}

/// As JSON in the order in which Go prints it.
fn show_owner(owner: &Value) -> String {
    let mut members: Vec<String> = ["apiVersion", "kind", "name", "uid"]
        .iter()
        .map(|name| format!("\"{name}\":{}", json::to_string(&owner.str_at(&[name]).into())))
        .collect();
    for name in ["controller", "blockOwnerDeletion"] {
        if let Some(value) = owner.get(name).filter(|value| !value.is_null()) {
            members.push(format!("\"{name}\":{}", json::to_string(value)));
        }
    }
    format!("{{{}}}", members.join(","))
}

pub fn validate_finalizers(finalizers: &[Value], at: &FieldPath, errors: &mut FieldErrors) {
    for finalizer in finalizers.iter().filter_map(Value::as_str) {
        validate_finalizer_name(finalizer, at, errors);
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer.as_str() == Some(name));
    if has(FINALIZER_ORPHAN) && has(FINALIZER_FOREGROUND) {
        let why =
            format!("finalizer {FINALIZER_ORPHAN} and {FINALIZER_FOREGROUND} cannot be both set");
        errors.invalid(at, finalizers.to_vec(), &why);
    }
}

/// Dependents are let go before the object is removed.
pub const FINALIZER_ORPHAN: &str = "orphan";
/// Dependents are removed before the object is.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

pub fn validate_finalizer_name(finalizer: &str, at: &FieldPath, errors: &mut FieldErrors) {
    invalid_each(errors, at, finalizer, is_qualified_name(finalizer));
}

fn validate_no_new_finalizers(new: &Value, old: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    let names = |meta: &Value| -> BTreeSet<String> {
        let finalizers = meta.items_at(&["finalizers"]).iter();
        finalizers.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (new, old) = (names(new), names(old));
    let extra: Vec<String> = new.difference(&old).map(|name| quote(name)).collect();
    if !extra.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers \
             []string{{{}}}",
            extra.join(", "),
        );
        errors.forbidden(at, &why);
    }
}

pub fn validate_managed_fields(entries: &[Value], at: &FieldPath, errors: &mut FieldErrors) {
    for (index, entry) in entries.iter().enumerate() {
        let at = at.index(index);
        let operation = entry.str_at(&["operation"]);
        if !matches!(operation, "Apply" | "Update") {
            errors.invalid(at.child("operation"), operation, "must be `Apply` or `Update`");
        }
        let fields_type = entry.str_at(&["fieldsType"]);
        if !matches!(fields_type, "" | "FieldsV1") {
            errors.invalid(at.child("fieldsType"), fields_type, "must be `FieldsV1`");
        }
        validate_field_manager(entry.str_at(&["manager"]), &at.child("manager"), errors);
        if entry.str_at(&["subresource"]).len() > SUBRESOURCE_BYTES_MAX {
            errors.too_long(at.child("subresource"), SUBRESOURCE_BYTES_MAX);
        }
    }
}

const SUBRESOURCE_BYTES_MAX: usize = 256;

/// The `fieldManager` of a request and of an entry in `managedFields`.
pub fn validate_field_manager(manager: &str, at: &FieldPath, errors: &mut FieldErrors) {
    if manager.len() > FIELD_MANAGER_BYTES_MAX {
        errors.too_long(at, FIELD_MANAGER_BYTES_MAX);
    }
    for (position, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        if errors.stop_early() {
            break;
        }
        let why = format!("invalid character U+{:04X} (at position {position})", c as u32);
        errors.invalid(at, manager, &why);
    }
}

const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// Go's `unicode.IsPrint`, near enough: of all spaces only the plain one is printable. The letter in
/// front keeps combining marks from being escaped for standing alone.
pub(crate) fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        _ => !c.is_whitespace() && ['a', c].iter().collect::<String>().escape_debug().count() == 2,
    }
}

/// A `LabelSelector` object.
pub fn validate_label_selector(selector: Option<&Value>, at: &FieldPath, errors: &mut FieldErrors) {
    validate_label_selector_values(selector, LABEL_SELECTOR_VALUE, at, errors);
}

/// The same; `values` is the rule that its values are label values.
pub fn validate_label_selector_values(
    selector: Option<&Value>,
    values: RuleId,
    at: &FieldPath,
    errors: &mut FieldErrors,
) {
    let Some(selector) = selector else { return };
    validate_labels(selector.get("matchLabels"), &at.child("matchLabels"), errors);
    for (index, expression) in selector.items_at(&["matchExpressions"]).iter().enumerate() {
        let at = at.child("matchExpressions").index(index);
        match expression.str_at(&["operator"]) {
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(at.child("operator"), other, "not a valid selector operator"),
        }
        validate_requirement(expression, values, &at, errors);
    }
}

/// One requirement of a label selector, whose operator may be unknown.
pub fn validate_label_requirement(requirement: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    validate_requirement(requirement, LABEL_SELECTOR_VALUE, at, errors);
}

fn validate_requirement(
    requirement: &Value,
    values: RuleId,
    at: &FieldPath,
    errors: &mut FieldErrors,
) {
    validate_operand(requirement, at, errors);
    let key = requirement.str_at(&["key"]);
    invalid_each(errors, &at.child("key"), key, is_qualified_name(key));
    for (index, value) in requirement.items_at(&["values"]).iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        errors.with_rule(values, |errors| {
            invalid_each(errors, &at.child("values").index(index), value, is_label_value(value));
        });
    }
}

/// The values of a label selector's requirement are label values.
pub const LABEL_SELECTOR_VALUE: RuleId = RuleId::new("label selector value");

/// One requirement of a selector of fields, whose operator may be unknown.
pub fn validate_field_requirement(requirement: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    if requirement.str_at(&["key"]).is_empty() {
        errors.required(at.child("key"), "must be specified");
    }
    validate_operand(requirement, at, errors);
}

/// Values are there if the operator of a requirement wants some.
fn validate_operand(requirement: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    let values = requirement.items_at(&["values"]);
    match requirement.str_at(&["operator"]) {
        "In" | "NotIn" if values.is_empty() => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.required(at.child("values"), why);
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(at.child("values"), why);
        }
        _ => {}
    }
}

/// One `Invalid value` for each thing that a rule found.
pub fn invalid_each(errors: &mut FieldErrors, at: &FieldPath, text: &str, wrong: Vec<String>) {
    for why in wrong {
        errors.push_with(FieldReason::Invalid, at, || {
            format!("Invalid value: {}: {why}", quote(text))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::name_is_dns_subdomain;
    use super::*;
    use crate::value;

    #[track_caller]
    fn check(meta: &Value, expected: &str) {
        let mut errors = FieldErrors::default();
        validate_object_meta(meta, true, name_is_dns_subdomain, &mut errors);
        let text = if errors.is_empty() { String::new() } else { errors.to_string() };
        // The explanation of a rule has its own tests.
        let text = text.split(" must consist").next().unwrap_or_default();
        assert_eq!(text, expected);
    }

    #[test]
    fn metadata_is_checked_on_create() {
        let event = value!({"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "1"});
        let first = value!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1",
            "controller": true, "blockOwnerDeletion": false});
        let second = value!({"apiVersion": "a/v1", "kind": "X", "name": "b", "uid": "2", "controller": true});
        let cases = [
            (value!({"name": "a", "namespace": "b"}), ""),
            (
                value!({}),
                "[metadata.name: Required value: name or generateName is required, metadata.namespace: Required value]",
            ),
            (
                value!({"name": "a", "namespace": "B"}),
                "metadata.namespace: Invalid value: \"B\": a lowercase RFC 1123 label",
            ),
            (
                value!({"name": "a", "namespace": "b", "generation": (-1i64)}),
                "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
            ),
            (value!({"name": "a", "generateName": "a-", "namespace": "b"}), ""),
            (
                value!({"name": "a", "generateName": "A-b", "namespace": "b"}),
                "metadata.generateName: Invalid value: \"A-b\": a lowercase RFC 1123 subdomain",
            ),
            (
                value!({"name": "a", "namespace": "b", "labels": {"a/b": "c", "/x": "y"}}),
                "metadata.labels: Invalid value: \"/x\": prefix part must be non-empty",
            ),
            (value!({"name": "a", "namespace": "b", "annotations": {"A/b": "any thing"}}), ""),
            (
                value!({"name": "a", "namespace": "b", "annotations": {"a": ("x".repeat(262_144))}}),
                "metadata.annotations: Too long: may not be more than 262144 bytes",
            ),
            (
                value!({"name": "a", "namespace": "b", "annotations": {"a": ("x".repeat(262_143))}}),
                "",
            ),
            (
                value!({"name": "a", "namespace": "b", "finalizers": ["orphan", "foregroundDeletion"]}),
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
            ),
            (
                value!({"name": "a", "namespace": "b", "ownerReferences": [{"apiVersion": "a/b/c", "kind": "X", "name": "x"}]}),
                "[metadata.ownerReferences.apiVersion: Invalid value: \"a/b/c\": version must not be empty, metadata.ownerReferences.uid: Invalid value: \"\": must not be empty]",
            ),
            (
                value!({"name": "a", "namespace": "b", "ownerReferences": [(event)]}),
                "metadata.ownerReferences: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"e\",\"uid\":\"1\"}: /v1, Kind=Event is disallowed from being an owner",
            ),
            (
                value!({"name": "a", "namespace": "b", "ownerReferences": [(first), (second)]}),
                "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"a\",\"uid\":\"1\",\"controller\":true,\"blockOwnerDeletion\":false},{\"apiVersion\":\"a/v1\",\"kind\":\"X\",\"name\":\"b\",\"uid\":\"2\",\"controller\":true}]: Only one reference can have Controller set to true. Found \"true\" in references for Pod/a and X/b",
            ),
            (
                value!({"name": "a", "namespace": "b", "managedFields": [{"operation": "Foo", "fieldsType": "X", "manager": "a\u{7}"}]}),
                "[metadata.managedFields[0].operation: Invalid value: \"Foo\": must be `Apply` or `Update`, metadata.managedFields[0].fieldsType: Invalid value: \"X\": must be `FieldsV1`, metadata.managedFields[0].manager: Invalid value: \"a\\a\": invalid character U+0007 (at position 1)]",
            ),
        ];
        for (meta, expected) in &cases {
            check(meta, expected);
        }
    }

    #[test]
    fn only_namespaced_kinds_have_a_namespace() {
        let mut errors = FieldErrors::default();
        let meta = value!({"name": "a", "namespace": "b"});
        validate_object_meta(&meta, false, name_is_dns_subdomain, &mut errors);
        assert_eq!(errors.to_string(), "metadata.namespace: Forbidden: not allowed on this type");
    }

    #[test]
    fn metadata_is_checked_on_update() {
        let old = value!({"name": "a", "uid": "1", "resourceVersion": "5", "generation": 2i64,
            "finalizers": ["a/b"], "deletionTimestamp": "2020-01-01T00:00:00Z"});
        let with = |name: &str, value: Value| {
            let mut new = old.clone();
            new.set_at(&[name], value);
            new
        };
        let cases = [
            (old.clone(), ""),
            (
                with("resourceVersion", Value::Null),
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
            ),
            (
                with("generation", 1i64.into()),
                "metadata.generation: Invalid value: 1: must not be decremented",
            ),
            (with("name", "b".into()), "metadata.name: Invalid value: \"b\": field is immutable"),
            (
                with("deletionTimestamp", Value::Null),
                "metadata.deletionTimestamp: Invalid value: null: field is immutable",
            ),
            (
                with("deletionGracePeriodSeconds", 3i64.into()),
                "metadata.deletionGracePeriodSeconds: Invalid value: 3: field is immutable",
            ),
            (
                with("finalizers", value!(["c/d", "a/b"])),
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"c/d\"}",
            ),
            (with("finalizers", Value::Null), ""),
        ];
        for (new, expected) in &cases {
            let mut errors = FieldErrors::default();
            validate_object_meta_update(new, &old, &mut errors);
            let text = if errors.is_empty() { String::new() } else { errors.to_string() };
            assert_eq!(&text, expected);
        }
    }

    #[test]
    fn printable_matches_go() {
        for (c, printable) in [
            ('a', true),
            (' ', true),
            ('"', true),
            ('é', true),
            ('\u{301}', true),
            ('\t', false),
            ('\u{a0}', false),
            ('\u{200b}', false),
            ('\u{7f}', false),
        ] {
            assert_eq!(is_printable(c), printable, "{c:?}");
        }
    }

    #[test]
    fn label_selectors_are_checked() {
        let selector = value!({"matchLabels": {"a": "b c"}, "matchExpressions": [
            {"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "a", "operator": "Has"}, {"key": "a", "operator": "NotIn", "values": ["x"]}]});
        let mut errors = FieldErrors::default();
        validate_label_selector(Some(&selector), &path("spec"), &mut errors);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "spec.matchLabels",
                "spec.matchExpressions[0].values",
                "spec.matchExpressions[1].values",
                "spec.matchExpressions[2].operator"
            ]
        );
    }
}
