//! Structural schemas of CRDs (`openAPIV3Schema`), parsed once and applied to every object: prune,
//! default, coerce, validate.
//!
//! A schema is compiled when it is read; an object is walked once per step, and never copied.

mod cel_decl;
mod cel_rules;
mod correlate;
mod defaulting;
mod format;
mod json_path;
mod list_type;
mod node;
mod object_meta;
mod pattern;
mod prune;
mod read;
mod structural_rules;
mod timing;
mod typed_object_meta;
mod validate;
mod validate_defaults;
mod value_path;

use std::sync::OnceLock;

use meta::{
    FieldErrors, FieldPath, Value,
    field::FieldReason,
    limits::{TooLarge, TreeSize},
};

pub use self::{
    cel_rules::RuleOptions,
    format::is_recognized as is_recognized_format,
    json_path::has_path,
    node::{AdditionalProperties, JsonType, StructuralNode, ValidationRule, ValueValidation},
    pattern::Pattern,
    prune::UnknownFields,
    read::{SCHEMA_DEPTH_MAX, is_too_deep},
    timing::{Observer, TimedStep, observe_with},
};

use self::timing::{ratcheted, timed};

/// The schema of one version of a custom resource.
#[derive(Debug, Default)]
pub struct Structural {
    root: StructuralNode,
    /// The rules of `x-kubernetes-validations`, compiled for the first object.
    rules: OnceLock<Option<cel_rules::Rules>>,
}

impl Structural {
    /// Reads `openAPIV3Schema`. The error is kube-apiserver's, and names no field.
    pub fn new(schema: &Value) -> Result<Self, String> {
        Ok(Self { root: read::read(schema)?, rules: OnceLock::new() })
    }

    pub fn root(&self) -> &StructuralNode {
        &self.root
    }

    /// Checks the rules that make a schema structural. `path` is where the schema is found.
    pub fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        structural_rules::check(&self.root, path, errors);
    }

    /// Checks that all defaults are valid and, if `require_pruned`, contain no unknown fields. The
    /// schema itself must have passed [`Structural::check`].
    pub fn check_defaults(&self, path: &FieldPath, require_pruned: bool, errors: &mut FieldErrors) {
        validate_defaults::check(&self.root, path, require_pruned, errors);
    }

    /// Compiles the rules of `x-kubernetes-validations` and estimates what they cost. The schema
    /// itself must have passed [`Structural::check`].
    pub fn check_rules(&self, path: &FieldPath, how: &RuleOptions<'_>, errors: &mut FieldErrors) {
        cel_rules::check(&self.root, path, how, errors);
    }

    /// Prunes defaults, which in CRDs stored by older versions may have unknown fields. True if
    /// anything was removed.
    pub fn prune_defaults(&mut self) -> bool {
        validate_defaults::prune_all(&mut self.root)
    }

    /// Prunes an object; `apiVersion`, `kind` and `metadata` of the object itself stay. Paths of
    /// removed fields are added to `unknown`, sorted: `spec.list[0].field`.
    pub fn prune(&self, object: &mut Value, unknown: Option<&mut UnknownFields>) {
        let mut found = UnknownFields::default();
        let collected = unknown.is_some().then_some(&mut found);
        prune::prune(object, Some(&self.root), true, &mut prune::Unknown::new(collected));
        if let Some(unknown) = unknown {
            unknown.append(found);
        }
    }

    /// Removes null fields that are not nullable and have no default.
    pub fn drop_nulls(&self, object: &mut Value) {
        defaulting::drop_nulls(object, Some(&self.root));
    }

    /// Applies defaults.
    pub fn default(&self, object: &mut Value) {
        let unbounded = self.default_within(object, &mut TreeSize::unbounded());
        debug_assert!(unbounded.is_ok());
    }

    /// The same for an object of a client, which may grow only so much.
    pub fn default_within(&self, object: &mut Value, size: &mut TreeSize) -> Result<(), TooLarge> {
        defaulting::default(object, &self.root, size)
    }

    /// Whether defaulting would add a status or fields of it.
    pub fn has_default_status(&self) -> bool {
        let status = self.root.property("status");
        status.is_some_and(|status| status.default.is_some() || status.subtree.defaults)
    }

    /// Coerces the metadata of embedded resources (not that of the object itself) to its typed
    /// form. `drop_invalid`: fields of the wrong type are dropped instead of rejected, for objects
    /// from storage.
    pub fn coerce_embedded(
        &self,
        object: &mut Value,
        drop_invalid: bool,
        unknown: Option<&mut UnknownFields>,
    ) -> Result<(), FieldErrors> {
        if !self.root.subtree.embedded {
            return Ok(());
        }
        let mut found = UnknownFields::default();
        let collected = unknown.is_some().then_some(&mut found);
        let mut how = object_meta::Coercion { drop_invalid, unknown: collected };
        let root = FieldPath::root();
        object_meta::coerce(
            object,
            &self.root,
            false,
            &value_path::ValuePath::root(&root),
            &mut how,
        )?;
        if let Some(unknown) = unknown {
            unknown.append(found);
        }
        Ok(())
    }

    /// Validates a new object except its own metadata. `others` adds the errors that are reported
    /// between those of the schema and the rest.
    pub fn validate(
        &self,
        object: &Value,
        others: impl FnOnce(&mut FieldErrors),
        errors: &mut FieldErrors,
    ) {
        let root = FieldPath::root();
        validate::validate(object, None, &self.root, &root, errors);
        others(errors);
        let at = value_path::ValuePath::root(&root);
        object_meta::validate(object, &self.root, false, &at, errors);
        list_type::validate(object, &self.root, &at, errors);
        self.run_rules(object, None, errors);
    }

    /// Validates an update: errors at unchanged values are ratcheted.
    pub fn validate_update(
        &self,
        object: &Value,
        old: &Value,
        others: impl FnOnce(&mut FieldErrors),
        errors: &mut FieldErrors,
    ) {
        ratcheted(|| {
            let root = FieldPath::root();
            validate::validate(object, Some(old), &self.root, &root, errors);
            others(errors);
            let at = value_path::ValuePath::root(&root);
            object_meta::validate(object, &self.root, false, &at, errors);
            self.validate_new_lists(object, old, errors);
            self.run_rules(object, Some(old), errors);
        });
    }

    /// Validates a status update: only the status is checked.
    pub fn validate_status(
        &self,
        object: &Value,
        old: &Value,
        others: impl FnOnce(&mut FieldErrors),
        errors: &mut FieldErrors,
    ) {
        ratcheted(|| {
            let (status, node) = (object.get("status"), self.root.property("status"));
            if let (Some(status), Some(node)) = (status, node) {
                let at = FieldPath::new("status");
                validate::validate(status, old.get("status"), node, &at, errors);
            }
            others(errors);
            self.validate_new_lists(object, old, errors);
            self.run_rules(object, Some(old), errors);
        });
    }

    /// Rules are only evaluated on objects that have the declared types and sizes.
    fn run_rules(&self, object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        let compile = || timed(TimedStep::Compilation, || cel_rules::Rules::compile(&self.root));
        let rules = self.rules.get_or_init(compile);
        let Some(rules) = rules else { return };
        let root = FieldPath::root();
        let blocks = |reason| {
            use FieldReason::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(reason, NotSupported | Required | TooLong | TooMany | TypeInvalid)
        };
        if errors.iter().any(|error| blocks(error.reason)) {
            let why = "some validation rules were not checked because the object was invalid; \
                       correct the existing errors to complete validation";
            return errors.invalid(root, Value::Null, why);
        }
        timed(TimedStep::Evaluation, || rules.validate(object, old, &self.root, &root, errors));
    }

    /// Duplicates in sets and maps may stay if the old object had duplicates.
    fn validate_new_lists(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        let root = FieldPath::root();
        let at = value_path::ValuePath::root(&root);
        let mut wrong = FieldErrors::default();
        list_type::validate(object, &self.root, &at, &mut wrong);
        if !wrong.is_empty() {
            let mut known = FieldErrors::default();
            list_type::validate(old, &self.root, &at, &mut known);
            if known.is_empty() {
                errors.extend(wrong);
            }
        }
    }
}
