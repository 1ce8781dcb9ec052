//! What containers ask for and may use: names of resources, quantities, limits and claims.

use std::{cmp::Ordering, collections::BTreeSet};

use meta::{
    FieldErrors, Value,
    field::FieldReason,
    field::RuleId,
    names::{is_dns1123_label, is_dns1123_subdomain, is_qualified_name},
    quantity::Quantity,
};

use super::{Owner, each_container};
use crate::validation::cursor::Field;

pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    Quantity::from_value(value).ok()
}

fn quantity_of(field: &Field<'_>) -> Quantity {
    field.value().and_then(quantity).unwrap_or_else(zero)
}

/// Missing quantities are zero.
pub(crate) fn compare_quantities(value: Option<&Value>, other: Option<&Value>) -> Ordering {
    let [value, other] = [value, other].map(|value| value.and_then(quantity).unwrap_or_else(zero));
    compare(&value, &other)
}

fn zero() -> Quantity {
    Quantity::new(0, meta::quantity::Format::DecimalSi)
}

fn at_most(quantity: &Quantity, max: &Quantity) -> bool {
    compare(quantity, max) != Ordering::Greater
}

fn compare(quantity: &Quantity, other: &Quantity) -> Ordering {
    let mut difference = quantity.clone();
    difference.sub(other);
    difference.sign()
}

/// Not negative, and whole if the resource is counted.
pub(crate) fn quantity_value(resource: &str, field: &Field<'_>, errors: &mut FieldErrors) {
    let value = quantity_of(field);
    if value.sign().is_lt() {
        let why = "must be greater than or equal to 0";
        field.invalid_value(errors, value.to_string(), why);
    }
    if is_integer_resource(resource) && value.milli_value() % 1000 != 0 {
        field.invalid_value(errors, value.to_string(), "must be an integer");
    }
}

pub(crate) fn basic_resource(field: &Field<'_>, errors: &mut FieldErrors) {
    let value = quantity_of(field).value();
    if value < 0 {
        field.invalid_value(errors, value, "must be a valid resource quantity");
    }
}

/// True if it is.
pub(crate) fn positive_quantity(field: &Field<'_>, errors: &mut FieldErrors) -> bool {
    let value = quantity_of(field);
    let fine = value.sign().is_gt();
    if !fine {
        field.invalid_value(errors, value.to_string(), "must be greater than zero");
    }
    fine
}

/// A resource that Kubernetes knows, or one with a domain. True if it is.
pub(crate) fn resource_name(name: &str, at: &Field<'_>, errors: &mut FieldErrors) -> bool {
    let wrong = is_qualified_name(name);
    for why in &wrong {
        at.invalid_value(errors, name, why);
    }
    if !wrong.is_empty() {
        return false;
    }
    if !name.contains('/') && !STANDARD_RESOURCES.contains(&name) && !is_quota_huge_page(name) {
        at.invalid_value(errors, name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

pub(crate) fn container_resource_name(
    name: &str,
    at: &Field<'_>,
    errors: &mut FieldErrors,
) -> bool {
    let fine = resource_name(name, at, errors);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_page(name) {
            at.invalid_value(errors, name, "must be a standard resource for containers");
            return false;
        }
    } else if !is_native_resource(name) && !is_extended_resource(name) {
        at.invalid_value(errors, name, "doesn't follow extended resource name standard");
        return false;
    }
    fine
}

fn pod_resource_name(name: &str, at: &Field<'_>, errors: &mut FieldErrors) -> bool {
    let fine = resource_name(name, at, errors);
    if fine && !matches!(name, "cpu" | "memory") && !is_huge_page(name) {
        errors.not_supported(at.path(), name, &["cpu", "hugepages-", "memory"]);
        return false;
    }
    fine
}

/// The names without a domain that mean something to Kubernetes.
pub(crate) const STANDARD_RESOURCES: &[&str] = &[
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
    "storage",
];

/// Without a domain, or with one of Kubernetes'.
pub(crate) fn is_native_resource(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub(crate) fn is_extended_resource(name: &str) -> bool {
    let quota = format!("requests.{name}");
    !is_native_resource(name)
        && !name.starts_with("requests.")
        && is_qualified_name(&quota).is_empty()
}

pub(crate) fn is_integer_resource(name: &str) -> bool {
    const COUNTED: &[&str] = &[
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    ];
    COUNTED.contains(&name) || is_extended_resource(name)
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

pub(crate) fn is_quota_huge_page(name: &str) -> bool {
    is_huge_page(name) || name.starts_with("requests.hugepages-")
}

pub(crate) fn allows_overcommit(name: &str) -> bool {
    is_native_resource(name) && !is_huge_page(name)
}

type NameRule = fn(&str, &Field<'_>, &mut FieldErrors) -> bool;

pub(crate) fn container(resources: &Field<'_>, claims: &BTreeSet<&str>, errors: &mut FieldErrors) {
    requirements(resources, container_resource_name, errors);
    claim_names(&resources.get("claims"), claims, errors);
}

/// Limits and requests: their names, their values, and that no request is above its limit.
pub(crate) fn requirements(resources: &Field<'_>, name_rule: NameRule, errors: &mut FieldErrors) {
    let (limits, requests) = (resources.get("limits"), resources.get("requests"));
    let (mut has_compute, mut has_huge_pages) = (false, false);
    let mut each = |name: &str, entry: &Field<'_>, errors: &mut FieldErrors| {
        if is_huge_page(name) {
            has_huge_pages = true;
            huge_pages(name, entry, errors);
        }
        has_compute |= matches!(name, "cpu" | "memory");
    };
    for (name, limit) in limits.entries() {
        name_rule(name, &limit, errors);
        quantity_value(name, &limit, errors);
        each(name, &limit, errors);
    }
    for (name, entry) in requests.entries() {
        name_rule(name, &entry, errors);
        quantity_value(name, &entry, errors);
        let request = quantity_of(&entry);
        if let Some(limit) = limits.value_at(&[name]).and_then(quantity) {
            let relation = if allows_overcommit(name) {
                (!at_most(&request, &limit)).then_some("less than or equal to")
            } else {
                (compare(&request, &limit) != Ordering::Equal).then_some("equal to")
            };
            if let Some(relation) = relation {
                let why = format!("must be {relation} {name} limit of {limit}");
                requests.invalid_value(errors, request.to_string(), &why);
            }
        } else if !allows_overcommit(name) {
            limits.required(errors, "Limit must be set for non overcommitable resources");
        }
        each(name, &entry, errors);
    }
    if has_huge_pages && !has_compute {
        resources.forbidden(errors, "HugePages require cpu or memory");
    }
}

fn huge_pages(name: &str, entry: &Field<'_>, errors: &mut FieldErrors) {
    let size = name.strip_prefix("hugepages-").and_then(|size| Quantity::parse(size).ok());
    let size = size.filter(|size| size.sign().is_gt() && size.milli_value() % 1000 == 0);
    let value = quantity_of(entry);
    if size.is_none_or(|size| value.value() % size.value() != 0) {
        let why = format!("{value} is not positive integer multiple of {name}");
        errors.with_rule(HUGE_PAGES_MULTIPLE, |errors| {
            entry.invalid_value(errors, value.to_string(), &why);
        });
    }
}

/// An amount of huge pages is a multiple of their size.
pub(crate) const HUGE_PAGES_MULTIPLE: RuleId = RuleId::new("huge pages multiple");

fn claim_names(claims: &Field<'_>, known: &BTreeSet<&str>, errors: &mut FieldErrors) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for claim in claims.items() {
        let (name, request) = (claim.str_at(&["name"]), claim.get("request"));
        if name.is_empty() {
            claim.required(errors, "");
            continue;
        }
        if seen.contains(name) {
            errors.duplicate(claim.path(), name);
        } else {
            request.rule_if_filled(errors, is_dns1123_label);
            let key = match request.str() {
                "" => name.to_owned(),
                request => format!("{name}/{request}"),
            };
            if seen.contains(&key) {
                errors.duplicate(claim.path(), key.as_str());
            } else if request.is_empty() {
                let part_of = |key: &&String| key.split_once('/').is_some_and(|(n, _)| n == name);
                for _ in seen.iter().filter(part_of) {
                    errors.duplicate(claim.path(), name);
                }
            }
            seen.insert(key);
        }
        if !known.contains(name) {
            let names: Vec<&str> = known.iter().copied().collect();
            let names = if names.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", names.join(", "))
            };
            let message = format!(
                "Not found: {}: must be one of the names in pod.spec.resourceClaims{names}",
                meta::field::quote(name)
            );
            errors.push(FieldReason::NotFound, claim.path(), message);
        }
    }
}

/// The claims of the pod, which its containers refer to.
pub(crate) fn pod_claims(claims: &Field<'_>, owner: &Owner<'_>, errors: &mut FieldErrors) {
    let mut names = BTreeSet::new();
    for claim in claims.items() {
        if owner.is_mirror {
            let why = "static pods do not support resource claims";
            // Compat: the path is that of an empty key of nothing.
            errors.forbidden(meta::FieldPath::root().key(""), why);
            continue;
        }
        let name = claim.get("name");
        if name.is_empty() {
            name.required(errors, "");
        } else if !names.insert(name.str().to_owned()) {
            name.duplicate(errors);
        } else {
            name.rule(errors, is_dns1123_label);
        }
        let (by_name, by_template) =
            (claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName"));
        let why = match (by_name.is_set(), by_template.is_set()) {
            (true, true) => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
            (false, false) => {
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            }
            _ => "",
        };
        if !why.is_empty() {
            let go = |field: &Field<'_>| {
                field.value().map_or_else(|| "null".to_owned(), meta::json::to_string)
            };
            let shown = format!(
                r#"{{"Name":{},"ResourceClaimName":{},"ResourceClaimTemplateName":{}}}"#,
                meta::json::to_string(&name.str().into()),
                go(&by_name),
                go(&by_template),
            );
            claim.invalid_shown(errors, &shown, why);
        }
        for name in [by_name, by_template] {
            if name.is_set() {
                name.rule(errors, is_dns1123_subdomain);
            }
        }
    }
}

pub(crate) fn overhead(overhead: &Field<'_>, errors: &mut FieldErrors) {
    if overhead.is_set() {
        let limits = Value::Object(
            [("limits", overhead.value().cloned().unwrap_or_default())].into_iter().collect(),
        );
        requirements(&overhead.with(Some(&limits)), container_resource_name, errors);
    }
}

/// Resources of the pod as a whole.
pub(crate) fn pod_level(spec: &Field<'_>, claims: &BTreeSet<&str>, errors: &mut FieldErrors) {
    let resources = spec.get("resources");
    if !resources.is_set() {
        return;
    }
    if spec.str_at(&["os", "name"]) == "windows" {
        return resources.forbidden(errors, "may not be set for a windows pod");
    }
    if resources.get("claims").is_set() {
        let why = "claims may not be set for Resources at pod-level";
        resources.get("claims").forbidden(errors, why);
    }
    requirements(&resources, pod_resource_name, errors);
    claim_names(&resources.get("claims"), claims, errors);
    consistency(spec, &resources, errors);
}

/// The pod has to have as much as its containers together.
fn consistency(spec: &Field<'_>, resources: &Field<'_>, errors: &mut FieldErrors) {
    let requests = resources.get("requests");
    for (name, entry) in requests.entries() {
        let (whole, sum) = (quantity_of(&entry), aggregate(spec, "requests", name));
        if let Some(sum) = sum.filter(|sum| !at_most(sum, &whole)) {
            let why =
                format!("must be greater than or equal to aggregate container requests of {sum}");
            entry.invalid_value(errors, whole.to_string(), &why);
        }
    }
    let limits = resources.get("limits");
    for (name, entry) in limits.entries().filter(|(name, _)| is_huge_page(name)) {
        let (whole, sum) = (quantity_of(&entry), aggregate(spec, "limits", name));
        if let Some(sum) = sum.filter(|sum| !at_most(sum, &whole)) {
            let why =
                format!("must be greater than or equal to aggregate container limits of {sum}");
            entry.invalid_value(errors, whole.to_string(), &why);
        }
    }
    let containers = resources.get("containers");
    for (at, container) in spec.get("containers").items().enumerate() {
        let of_container = container.get("resources");
        for (name, limit) in of_container.get("limits").entries() {
            let Some(max) = limits.value_at(&[name]).and_then(quantity) else { continue };
            let limit = quantity_of(&limit);
            if !at_most(&limit, &max) {
                let why = format!("must be less than or equal to pod limits of {max}");
                let place = containers.index(at);
                place.key(name).get("limits").invalid_value(errors, limit.to_string(), &why);
            }
        }
    }
}

/// What the containers of a pod need at once: those that run side by side, or the greediest of the
/// init containers with the sidecars that were started before it.
fn aggregate(spec: &Field<'_>, list: &str, name: &str) -> Option<Quantity> {
    let mut together: Option<Quantity> = None;
    let mut sidecars: Option<Quantity> = None;
    let mut peak: Option<Quantity> = None;
    each_container(spec, |container| {
        let Some(value) = container.value_at(&["resources", list, name]).and_then(quantity) else {
            return;
        };
        let is_init = container.is_within("initContainers");
        if container.is_within("ephemeralContainers") {
            return;
        }
        if is_init && container.str_at(&["restartPolicy"]) != "Always" {
            let mut with_sidecars = value;
            if let Some(sidecars) = &sidecars {
                with_sidecars.add(sidecars);
            }
            if !peak.as_ref().is_some_and(|peak| at_most(&with_sidecars, peak)) {
                peak = Some(with_sidecars);
            }
            return;
        }
        if is_init {
            add(&mut sidecars, &value);
        }
        add(&mut together, &value);
    });
    match (together, peak) {
        (Some(together), Some(peak)) if at_most(&together, &peak) => Some(peak),
        (Some(together), _) => Some(together),
        (None, peak) => peak,
    }
}

fn add(sum: &mut Option<Quantity>, value: &Quantity) {
    match sum {
        Some(sum) => sum.add(value),
        None => *sum = Some(value.clone()),
    }
}
