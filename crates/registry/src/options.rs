//! The options of the verbs: parsed from the query and validated with Kubernetes' messages.

use std::sync::Mutex;

use admission::{Operation, RequestOptions};
use meta::{
    ApiError, FieldErrors, GroupKind, Query, Value,
    field::path,
    names,
    selector::{FieldSelector, LabelSelector},
    value,
};

use crate::managed_fields_conversions::ManagedFieldsConversions;

/// Options of list, watch and deletecollection.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListOptions {
    pub label_selector: LabelSelector,
    pub field_selector: FieldSelector,
    pub watch: bool,
    pub allow_watch_bookmarks: bool,
    pub resource_version: String,
    pub resource_version_match: String,
    pub timeout_seconds: Option<i64>,
    pub limit: i64,
    pub continue_token: String,
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Compat: a watch by its old path (`/watch/…`) without `watch=true` has the options of a list.
    pub(crate) fn read(query: &Query) -> Result<Self, ApiError> {
        let mut options = Self {
            watch: query.flag("watch"),
            allow_watch_bookmarks: query.flag("allowWatchBookmarks"),
            resource_version: query.text("resourceVersion").to_owned(),
            resource_version_match: query.text("resourceVersionMatch").to_owned(),
            timeout_seconds: query.integer("timeoutSeconds")?,
            limit: query.integer("limit")?.unwrap_or_default(),
            continue_token: query.text("continue").to_owned(),
            send_initial_events: query.optional_flag("sendInitialEvents"),
            ..Self::default()
        };
        // Parse errors come before validation errors.
        options.label_selector =
            LabelSelector::parse(query.text("labelSelector")).map_err(ApiError::BadRequest)?;
        options.field_selector =
            FieldSelector::parse(query.text("fieldSelector")).map_err(ApiError::BadRequest)?;
        options.default_send_initial_events();
        options.validate()?;
        Ok(options)
    }

    /// A legacy watch without a version or from 0 with bookmarks also gets the bookmark at the end
    /// of the initial events.
    fn default_send_initial_events(&mut self) {
        let legacy = matches!(self.resource_version.as_str(), "" | "0");
        if self.watch
            && self.send_initial_events.is_none()
            && self.resource_version_match.is_empty()
            && legacy
        {
            self.send_initial_events = Some(true);
            NOT_OLDER_THAN.clone_into(&mut self.resource_version_match);
        }
    }

    fn validate(&self) -> Result<(), ApiError> {
        let mut errors = FieldErrors::default();
        if self.watch {
            self.validate_watch(&mut errors);
        } else {
            self.validate_list(&mut errors);
        }
        invalid_options("ListOptions", errors)
    }

    fn validate_list(&self, errors: &mut FieldErrors) {
        let (field, matching) =
            (path("resourceVersionMatch"), self.resource_version_match.as_str());
        if !matching.is_empty() {
            if self.resource_version.is_empty() {
                errors.forbidden(
                    &field,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if !self.continue_token.is_empty() {
                errors.forbidden(
                    &field,
                    "resourceVersionMatch is forbidden when continue is provided",
                );
            }
            if matching != EXACT && matching != NOT_OLDER_THAN {
                errors.not_supported(&field, matching, &[EXACT, NOT_OLDER_THAN, ""]);
            }
            if matching == EXACT && self.resource_version == "0" {
                errors.forbidden(
                    &field,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
        }
        if self.send_initial_events.is_some() {
            errors.forbidden(path("sendInitialEvents"), "sendInitialEvents is forbidden for list");
        }
    }

    fn validate_watch(&self, errors: &mut FieldErrors) {
        let (field, matching) =
            (path("resourceVersionMatch"), self.resource_version_match.as_str());
        if self.send_initial_events.is_some() && matching != NOT_OLDER_THAN {
            errors.forbidden(
                &field,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        if !matching.is_empty() {
            if self.send_initial_events.is_none() {
                errors.forbidden(&field, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
            }
            if matching != NOT_OLDER_THAN {
                errors.not_supported(&field, matching, &[NOT_OLDER_THAN]);
            }
            if !self.continue_token.is_empty() {
                errors.forbidden(
                    &field,
                    "resourceVersionMatch is forbidden when continue is provided",
                );
            }
        }
    }
}

pub(crate) const EXACT: &str = "Exact";
pub(crate) const NOT_OLDER_THAN: &str = "NotOlderThan";

/// Options of create, update and patch.
#[derive(Debug, Default)]
pub(crate) struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
    /// The same as the client sent it, "" where it did not.
    sent_field_validation: String,
    pub force: Option<bool>,
    /// managedFields are up to date: the object comes from an apply or a scale.
    pub managed_fields_tracked: bool,
    /// Conversions for managedFields, where a webhook converts.
    pub conversions: ManagedFieldsConversions,
    /// A write to a scale: the next scale and the current one, as mutating admission sees them.
    pub scales: Mutex<Option<[Value; 2]>>,
}

impl WriteOptions {
    pub(crate) fn is_strict(&self) -> bool {
        self.field_validation == FieldValidation::Strict
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl WriteOptions {
    /// `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`; `apply` for apply patches.
    pub(crate) fn read(query: &Query, kind: &str, apply: bool) -> Result<Self, ApiError> {
        let mut errors = FieldErrors::default();
        let force = query.optional_flag("force");
        let field_manager = query.text("fieldManager");
        if kind == "PatchOptions" {
            if apply && field_manager.is_empty() {
                errors.required(path("fieldManager"), "is required for apply patch");
            }
            if !apply && force.is_some() {
                errors.forbidden(path("force"), "may not be specified for non-apply patch");
            }
        }
        names::validate_field_manager(field_manager, &path("fieldManager"), &mut errors);
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        let dry_run = read_dry_run(&dry_run, &mut errors);
        let field_validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.not_supported(
                    path("fieldValidation"),
                    other,
                    &["", "Ignore", "Strict", "Warn"],
                );
                FieldValidation::Warn
            }
        };
        invalid_options(kind, errors)?;
        Ok(Self {
            dry_run,
            field_manager: field_manager.to_owned(),
            field_validation,
            sent_field_validation: query.text("fieldValidation").to_owned(),
            force,
            managed_fields_tracked: apply,
            conversions: ManagedFieldsConversions::default(),
            scales: Mutex::default(),
        })
    }
}

impl RequestOptions for WriteOptions {
    fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    fn to_object(&self, operation: Operation) -> Value {
        let create = operation == Operation::Create;
        let mut object = options_object(if create { "CreateOptions" } else { "UpdateOptions" });
        set_dry_run(&mut object, self.dry_run);
        for (field, text) in [
            ("fieldManager", &self.field_manager),
            ("fieldValidation", &self.sent_field_validation),
        ] {
            if !text.is_empty() {
                object.set_at(&[field], text.as_str());
            }
        }
        object
    }
}

fn options_object(kind: &str) -> Value {
    value!({"kind": (kind), "apiVersion": "meta.k8s.io/v1"})
}

fn set_dry_run(object: &mut Value, dry_run: bool) {
    if dry_run {
        object.set_at(&["dryRun"], value!(["All"]));
    }
}

fn read_dry_run(values: &[&str], errors: &mut FieldErrors) -> bool {
    if values.iter().any(|value| *value != "All") {
        let shown = Value::from(values.iter().map(|value| Value::from(*value)).collect::<Vec<_>>());
        let message = format!(
            "Unsupported value: {}: supported values: \"All\"",
            meta::json::to_string(&shown)
        );
        errors.push(meta::field::FieldReason::NotSupported, path("dryRun"), message);
    }
    !values.is_empty()
}

/// Options of delete and deletecollection.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<i64>,
    pub propagation_policy: Option<String>,
    pub orphan_dependents: Option<bool>,
    /// Whether there are preconditions, be it empty ones: admission sees them.
    pub has_preconditions: bool,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// Deletes an object that cannot be read. Has an effect only with the feature gate.
    pub ignore_read_error: bool,
}

impl DeleteOptions {
    /// From the body if there is one. Compat: kube-apiserver ignores the query then, so that
    /// `?dryRun=All` with a body really deletes; here either of them makes a dry run.
    pub fn read(query: &Query, body: Option<&Value>) -> Result<Self, ApiError> {
        let mut errors = FieldErrors::default();
        let mut dry_run: Vec<&str> = query.all("dryRun").collect();
        let given = |name| Some(query.text(name).to_owned()).filter(|text| !text.is_empty());
        let mut options = match body {
            Some(body) => {
                dry_run.extend(body.items_at(&["dryRun"]).iter().filter_map(Value::as_str));
                Self::from_body(body)
            }
            None => Self {
                grace_period_seconds: query.integer("gracePeriodSeconds")?,
                propagation_policy: query.get("propagationPolicy").map(str::to_owned),
                orphan_dependents: query.optional_flag("orphanDependents"),
                uid: given("uid"),
                resource_version: given("resourceVersion"),
                ignore_read_error: query.optional_flag(IGNORE_READ_ERROR) == Some(true),
                ..Self::default()
            },
        };
        if let Some(policy) = &options.propagation_policy {
            if options.orphan_dependents.is_some() {
                errors.invalid(
                    path("propagationPolicy"),
                    policy.as_str(),
                    "orphanDependents and deletionPropagation cannot be both set",
                );
            }
            if !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan") {
                errors.not_supported(
                    path("propagationPolicy"),
                    policy,
                    &["Foreground", "Background", "Orphan", "nil"],
                );
            }
        }
        options.dry_run = read_dry_run(&dry_run, &mut errors);
        invalid_options("DeleteOptions", errors)?;
        // A negative grace period has always meant one second.
        if options.grace_period_seconds.is_some_and(|seconds| seconds < 0) {
            options.grace_period_seconds = Some(1);
        }
        Ok(options)
    }

    fn from_body(body: &Value) -> Self {
        let text = |at: &[&str]| body.at(at).and_then(Value::as_str).map(str::to_owned);
        Self {
            dry_run: false,
            grace_period_seconds: body.i64_at(&["gracePeriodSeconds"]),
            propagation_policy: text(&["propagationPolicy"]),
            orphan_dependents: body.at(&["orphanDependents"]).and_then(Value::as_bool),
            has_preconditions: body.get("preconditions").and_then(Value::as_object).is_some(),
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
            ignore_read_error: body.at(&[IGNORE_READ_ERROR]).and_then(Value::as_bool) == Some(true),
        }
    }

    /// Refuses other options together with the deletion of an object that cannot be read.
    pub(crate) fn check_unsafe(&self) -> Result<(), ApiError> {
        let mut errors = FieldErrors::default();
        let with = [
            (self.grace_period_seconds.is_some(), "gracePeriodSeconds"),
            (self.uid.is_some() || self.resource_version.is_some(), "preconditions"),
            (self.orphan_dependents.is_some(), "orphanDependents"),
            (self.propagation_policy.is_some(), "propagationPolicy"),
            (self.dry_run, "dryRun"),
        ];
        for (_, name) in with.iter().filter(|(set, _)| *set) {
            let why = format!("cannot be set together with .{name}");
            errors.invalid(path(IGNORE_READ_ERROR), true, &why);
        }
        invalid_options("DeleteOptions", errors)
    }
}

impl RequestOptions for DeleteOptions {
    fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    fn to_object(&self, _operation: Operation) -> Value {
        let mut object = options_object("DeleteOptions");
        set_dry_run(&mut object, self.dry_run);
        if self.has_preconditions {
            object.set_at(&["preconditions"], Value::object());
        }
        let texts: [(&[&str], &Option<String>); 3] = [
            (&["preconditions", "uid"], &self.uid),
            (&["preconditions", "resourceVersion"], &self.resource_version),
            (&["propagationPolicy"], &self.propagation_policy),
        ];
        for (at, text) in texts {
            if let Some(text) = text {
                object.set_at(at, text.as_str());
            }
        }
        if let Some(seconds) = self.grace_period_seconds {
            object.set_at(&["gracePeriodSeconds"], seconds);
        }
        if let Some(orphan) = self.orphan_dependents {
            object.set_at(&["orphanDependents"], orphan);
        }
        if self.ignore_read_error {
            object.set_at(&[IGNORE_READ_ERROR], true);
        }
        object
    }
}

/// The field of `DeleteOptions` and the query parameter.
pub(crate) const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

fn invalid_options(kind: &str, errors: FieldErrors) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupKind::new("meta.k8s.io", kind);
    Err(ApiError::Invalid { kind, name: String::new(), errors: Box::new(errors) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_list(query: &str, expected: &str) {
        let options = ListOptions::read(&Query::parse(query).unwrap());
        assert_eq!(options.err().map(|error| error.to_string()).unwrap_or_default(), expected);
    }

    #[test]
    fn list_options_are_refused_as_upstream_refuses_them() {
        check_list("limit=5&resourceVersion=7&resourceVersionMatch=Exact", "");
        check_list(
            "resourceVersionMatch=Exact",
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
             resourceVersionMatch is forbidden unless resourceVersion is provided",
        );
        check_list(
            "resourceVersionMatch=Exact&fieldSelector=a",
            "invalid selector: 'a'; can't understand 'a'",
        );
        check_list(
            "sendInitialEvents=true",
            "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: \
             sendInitialEvents is forbidden for list",
        );
        check_list("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "");
        check_list(
            "watch=1&resourceVersion=5&resourceVersionMatch=NotOlderThan",
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
             resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        );
    }

    #[test]
    fn write_options_are_refused_as_upstream_refuses_them() {
        let read = |query: &str, kind, apply| {
            WriteOptions::read(&Query::parse(query).unwrap(), kind, apply)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        assert_eq!(read("dryRun=All&fieldManager=x", "CreateOptions", false), "");
        assert_eq!(
            read("dryRun=Some", "CreateOptions", false),
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: \
             supported values: \"All\""
        );
        assert_eq!(
            read("", "PatchOptions", true),
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        );
        assert_eq!(
            read("force=true", "PatchOptions", false),
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
        );
    }

    #[test]
    fn admission_sees_the_options_as_the_object_of_the_operation() {
        let query = "dryRun=All&fieldManager=x&fieldValidation=Strict&force=true";
        let patch =
            WriteOptions::read(&Query::parse(query).unwrap(), "PatchOptions", true).unwrap();
        let mut expected = value!({
            "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"],
            "fieldManager": "x", "fieldValidation": "Strict",
        });
        assert_eq!(patch.to_object(Operation::Create), expected);
        expected.set_at(&["kind"], "UpdateOptions");
        assert_eq!(patch.to_object(Operation::Update), expected);
        let body = value!({
            "gracePeriodSeconds": 5i64, "propagationPolicy": "Orphan", "preconditions": {"uid": "u"},
        });
        let delete = DeleteOptions::read(&Query::default(), Some(&body)).unwrap();
        let mut expected = body.clone();
        expected.set_at(&["kind"], "DeleteOptions");
        expected.set_at(&["apiVersion"], "meta.k8s.io/v1");
        assert_eq!(delete.to_object(Operation::Delete), expected);
    }

    #[test]
    fn a_dry_run_in_the_query_holds_although_there_is_a_body() {
        let query = Query::parse("dryRun=All").unwrap();
        let options = DeleteOptions::read(&query, Some(&Value::object())).unwrap();
        assert!(options.dry_run);
    }
}
