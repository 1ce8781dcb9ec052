//! Access reviews: `SelfSubjectAccessReview` is about the client itself, `SubjectAccessReview` about any
//! user, `LocalSubjectAccessReview` about any user in one namespace.

use std::sync::Arc;

use meta::{
    ApiError, FieldErrors, GroupKind, Str, User, Value,
    authorization::{Attributes, Authorizer, Decision, Verdict},
    field::{FieldPath, FieldReason, path},
    names,
    selector::{FieldSelector, LabelSelector},
    value,
};
use registry::{ActionOutcome, BoxFuture, ComputeContext, ComputedResource, Kind, Strategy};

use crate::access::texts;

/// The subject and namespace that a review may be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewScope {
    Oneself,
    AnySubject,
    AnySubjectInNamespace,
}

pub(crate) struct AccessReview {
    pub(crate) scope: ReviewScope,
    pub(crate) authorizer: Arc<dyn Authorizer>,
}

impl ComputedResource for AccessReview {
    fn create<'a>(
        &'a self,
        mut review: Value,
        cx: &'a ComputeContext<'a>,
    ) -> BoxFuture<'a, Result<ActionOutcome, ApiError>> {
        Box::pin(async move {
            let user = match self.scope {
                ReviewScope::Oneself => cx.user.clone(),
                ReviewScope::AnySubject | ReviewScope::AnySubjectInNamespace => subject(&review),
            };
            let (selectors, mut problems) = Selectors::read(&review);
            let attributes = attributes(&user, &review, &selectors);
            let verdict = self.authorizer.authorize(&attributes).await;
            if let Some(error) = &verdict.error {
                problems.insert(0, error.clone());
            }
            let status = status(&verdict, &problems.join("; "));
            review.set_at(&["status"], status);
            Ok(ActionOutcome::Object(review))
        })
    }

    // Compat: reviews are not named in errors.
    fn kind_in_errors(&self, kind: &Kind) -> GroupKind {
        GroupKind::new(&kind.gvk().group, "")
    }
}

fn status(verdict: &Verdict, error: &str) -> Value {
    let mut status = value!({"allowed": (verdict.is_allowed())});
    if verdict.decision == Decision::Deny {
        status.set_at(&["denied"], true);
    }
    for (field, text) in [("reason", verdict.reason.as_str()), ("evaluationError", error)] {
        if !text.is_empty() {
            status.set_at(&[field], text);
        }
    }
    status
}

fn subject(review: &Value) -> User {
    let extra = review.at(&["spec", "extra"]).and_then(Value::as_object);
    let extra = extra.into_iter().flat_map(meta::Map::iter);
    User {
        name: Str::new(review.str_at(&["spec", "user"])),
        uid: Str::new(review.str_at(&["spec", "uid"])),
        groups: texts(review, &["spec", "groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values, &[]))).collect(),
    }
}

/// The selectors of the request that a review is about, as text.
#[derive(Default)]
struct Selectors {
    field: String,
    label: String,
}

impl Selectors {
    /// The selectors, and what of them could not be understood.
    fn read(review: &Value) -> (Self, Vec<String>) {
        let Some(asked) = filled(review.at(&["spec", "resourceAttributes"])) else {
            return (Self::default(), Vec::new());
        };
        let mut problems = Vec::new();
        let field = selector(asked, "fieldSelector", &mut problems);
        let label = selector(asked, "labelSelector", &mut problems);
        (Self { field, label }, problems)
    }
}

/// The request that the review asks about.
fn attributes<'a>(user: &'a User, review: &'a Value, selectors: &'a Selectors) -> Attributes<'a> {
    let Some(asked) = filled(review.at(&["spec", "resourceAttributes"])) else {
        let text = |field| review.str_at(&["spec", "nonResourceAttributes", field]);
        return Attributes::of_path(user, text("verb"), text("path"));
    };
    let text = |field| asked.str_at(&[field]);
    Attributes {
        // No version means any.
        version: if text("version").is_empty() { "*" } else { text("version") },
        namespace: text("namespace"),
        subresource: text("subresource"),
        name: text("name"),
        field_selector: &selectors.field,
        label_selector: &selectors.label,
        ..Attributes::of_resource(user, text("verb"), text("group"), text("resource"))
    }
}

/// A selector as text, given as text or as requirements. What of it is not understood is left out:
/// that only widens what is asked for.
fn selector(asked: &Value, name: &str, problems: &mut Vec<String>) -> String {
    let understood = |text: &str| match name {
        "fieldSelector" => FieldSelector::parse(text).is_ok(),
        _ => LabelSelector::parse(text).is_ok(),
    };
    let raw = asked.str_at(&[name, "rawSelector"]);
    let requirements = asked.items_at(&[name, "requirements"]);
    let terms: Vec<Option<String>> = match requirements {
        [] if raw.is_empty() => return String::new(),
        [] => vec![Some(raw.to_owned())],
        requirements => requirements.iter().map(|requirement| term(name, requirement)).collect(),
    };
    let asked_for = terms.len();
    let terms: Vec<String> = terms.into_iter().flatten().filter(|term| understood(term)).collect();
    if terms.len() < asked_for {
        let how_much = if terms.is_empty() { "ignored" } else { "partially ignored" };
        problems.push(format!("spec.resourceAttributes.{name} {how_much} due to parse error"));
    }
    terms.join(",")
}

/// A requirement as text; none if it is one of those that a newer client may know.
fn term(name: &str, requirement: &Value) -> Option<String> {
    let (key, values) = (requirement.str_at(&["key"]), texts(requirement, &["values"]));
    let is_field = name == "fieldSelector";
    match (requirement.str_at(&["operator"]), values.as_slice()) {
        ("In", [value]) if is_field => Some(format!("{key}={value}")),
        ("NotIn", [value]) if is_field => Some(format!("{key}!={value}")),
        ("In", values) if !is_field => Some(format!("{key} in ({})", values.join(","))),
        ("NotIn", values) if !is_field => Some(format!("{key} notin ({})", values.join(","))),
        ("Exists", _) if !is_field => Some(key.to_owned()),
        ("DoesNotExist", _) if !is_field => Some(format!("!{key}")),
        _ => None,
    }
}

/// Compat: shown with the names that the fields have in Go.
fn as_go(non_resource: &Value) -> Value {
    let text = |field| non_resource.str_at(&[field]);
    value!({"Path": (text("path")), "Verb": (text("verb"))})
}

fn filled(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

/// What a question must look like.
pub(crate) struct AccessReviewRules(pub(crate) ReviewScope);

impl Strategy for AccessReviewRules {
    fn validate(&self, review: &Value, errors: &mut FieldErrors) {
        let spec = path("spec");
        let resource = filled(review.at(&["spec", "resourceAttributes"]));
        let non_resource = filled(review.at(&["spec", "nonResourceAttributes"]));
        if let (Some(_), Some(non_resource)) = (resource, non_resource) {
            let why = "cannot be specified in combination with resourceAttributes";
            errors.invalid(spec.child("nonResourceAttributes"), as_go(non_resource), why);
        }
        if resource.is_none() && non_resource.is_none() {
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.invalid(spec.child("resourceAttributes"), Value::Null, why);
        }
        if self.0 != ReviewScope::Oneself
            && review.str_at(&["spec", "user"]).is_empty()
            && review.items_at(&["spec", "groups"]).is_empty()
        {
            let why = "at least one of user or group must be specified";
            errors.invalid(spec.child("user"), "", why);
        }
        if let Some(resource) = resource {
            let at = spec.child("resourceAttributes");
            let mut validate = |name, requirement| {
                validate_selector(filled(resource.get(name)), &at.child(name), requirement, errors);
            };
            validate("fieldSelector", names::validate_field_requirement);
            validate("labelSelector", names::validate_label_requirement);
        }
        self.validate_metadata(review, errors);
        if self.0 == ReviewScope::AnySubjectInNamespace {
            let namespace = review.str_at(&["spec", "resourceAttributes", "namespace"]);
            if resource.is_some() && namespace != review.str_at(&["metadata", "namespace"]) {
                let at = spec.child("resourceAttributes").child("namespace");
                errors.invalid(at, namespace, "must match metadata.namespace");
            }
            if let Some(non_resource) = non_resource {
                let why = "disallowed on this kind of request";
                errors.invalid(spec.child("nonResourceAttributes"), as_go(non_resource), why);
            }
        }
    }
}

impl AccessReviewRules {
    fn validate_metadata(&self, review: &Value, errors: &mut FieldErrors) {
        let in_namespace = self.0 == ReviewScope::AnySubjectInNamespace;
        let metadata = review.get("metadata").unwrap_or(&Value::Null);
        let mut fields = metadata.as_object().into_iter().flat_map(meta::Map::iter);
        let surplus = fields.any(|(key, value)| {
            let expected = key == "managedFields" || (in_namespace && key == "namespace");
            let empty = match value {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                Value::Object(map) => map.is_empty(),
                Value::Array(items) => items.is_empty(),
                _ => false,
            };
            !expected && !empty
        });
        if surplus {
            let why =
                if in_namespace { "must be empty except for namespace" } else { "must be empty" };
            let message = format!("Invalid value: {}: {why}", as_struct(metadata, METADATA));
            errors.push(FieldReason::Invalid, path("metadata"), message);
        }
    }
}

/// An object with its fields in this order.
fn as_struct(object: &Value, fields: &[&str]) -> String {
    let member = |field: &&str| {
        let value = filled(object.get(field))?;
        let text = match *field {
            "managedFields" => {
                let entries = value.as_array().unwrap_or_default();
                let entries = entries.iter().map(|entry| as_struct(entry, MANAGED_FIELDS));
                format!("[{}]", entries.collect::<Vec<_>>().join(","))
            }
            "ownerReferences" => {
                let owners = value.as_array().unwrap_or_default();
                let owners = owners.iter().map(|owner| as_struct(owner, OWNER));
                format!("[{}]", owners.collect::<Vec<_>>().join(","))
            }
            _ => meta::json::to_string(value),
        };
        Some(format!("\"{field}\":{text}"))
    };
    format!("{{{}}}", fields.iter().filter_map(member).collect::<Vec<_>>().join(","))
}

const METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];
const MANAGED_FIELDS: &[&str] =
    &["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];
const OWNER: &[&str] = &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

fn validate_selector(
    selector: Option<&Value>,
    at: &FieldPath,
    validate: fn(&Value, &FieldPath, &mut FieldErrors),
    errors: &mut FieldErrors,
) {
    let Some(selector) = selector else { return };
    let raw = selector.str_at(&["rawSelector"]);
    let requirements = selector.items_at(&["requirements"]);
    if !raw.is_empty() && !requirements.is_empty() {
        let why = "may not specified at the same time as requirements";
        errors.invalid(at.child("rawSelector"), raw, why);
    }
    if raw.is_empty() && requirements.is_empty() {
        let why = format!("when {at} is specified, requirements or rawSelector is required");
        errors.required(at.child("requirements"), &why);
    }
    for (index, requirement) in requirements.iter().enumerate() {
        validate(requirement, &at.child("requirements").index(index), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_about_exactly_one_thing_and_somebody() {
        let cases = [
            (ReviewScope::Oneself, value!({"spec": {"resourceAttributes": {"verb": "get"}}}), ""),
            (
                ReviewScope::Oneself,
                value!({"spec": {}}),
                "spec.resourceAttributes: Invalid value: null: exactly one of \
                 nonResourceAttributes or resourceAttributes must be specified",
            ),
            (
                ReviewScope::AnySubject,
                value!({"spec": {"nonResourceAttributes": {"path": "/x"}}}),
                "spec.user: Invalid value: \"\": at least one of user or group must be specified",
            ),
            (
                ReviewScope::AnySubjectInNamespace,
                value!({"metadata": {"namespace": "a"}, "spec": {
                    "user": "u", "resourceAttributes": {"namespace": "b"}}}),
                "spec.resourceAttributes.namespace: Invalid value: \"b\": must match \
                 metadata.namespace",
            ),
            (
                ReviewScope::AnySubject,
                value!({"spec": {"user": "u", "resourceAttributes": {"fieldSelector": {
                    "requirements": [{"operator": "In"}, {"key": "k", "operator": "Newer"}]}}}}),
                "[spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must \
                 be specified, spec.resourceAttributes.fieldSelector.requirements[0].values: \
                 Required value: must be specified when `operator` is 'In' or 'NotIn']",
            ),
            (
                ReviewScope::AnySubject,
                value!({"metadata": {"labels": {"a": "b"}, "name": "x"},
                    "spec": {"user": "u", "resourceAttributes": {}}}),
                "metadata: Invalid value: {\"name\":\"x\",\"labels\":{\"a\":\"b\"}}: must be empty",
            ),
            (
                ReviewScope::AnySubject,
                value!({"spec": {"user": "u", "resourceAttributes": {"labelSelector": {}}}}),
                "spec.resourceAttributes.labelSelector.requirements: Required value: when \
                 spec.resourceAttributes.labelSelector is specified, requirements or rawSelector \
                 is required",
            ),
        ];
        for (scope, review, expected) in cases {
            let mut errors = FieldErrors::default();
            AccessReviewRules(scope).validate(&review, &mut errors);
            let said = if errors.is_empty() { String::new() } else { errors.to_string() };
            assert_eq!(said, expected, "{review:?}");
        }
    }

    #[test]
    fn a_question_becomes_a_request() {
        let review = value!({"spec": {"resourceAttributes": {
            "verb": "list", "group": "apps", "resource": "deployments", "namespace": "n",
            "fieldSelector": {"requirements": [
                {"key": "metadata.name", "operator": "In", "values": ["x"]}]},
            "labelSelector": {"rawSelector": "a=(b"},
        }}});
        let user = User::default();
        let (selectors, problems) = Selectors::read(&review);
        let asked = attributes(&user, &review, &selectors);
        assert!(asked.is_resource);
        assert_eq!((asked.verb, asked.version), ("list", "*"));
        assert_eq!((asked.group, asked.resource), ("apps", "deployments"));
        assert_eq!(asked.field_selector, "metadata.name=x");
        assert_eq!(problems, ["spec.resourceAttributes.labelSelector ignored due to parse error"]);
        let review = value!({"spec": {"resourceAttributes": {"labelSelector": {"requirements": [
            {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Newer"}]}}}});
        let (selectors, problems) = Selectors::read(&review);
        assert_eq!(selectors.label, "a");
        let said = "spec.resourceAttributes.labelSelector partially ignored due to parse error";
        assert_eq!(problems, [said]);
        let review =
            value!({"spec": {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}});
        let selectors = Selectors::default();
        let asked = attributes(&user, &review, &selectors);
        assert_eq!((asked.is_resource, asked.path), (false, "/metrics"));
    }
}
