//! Checks of writes of resource claims: admin access needs a namespace with the admin-access label, and
//! allocating devices or reporting their status needs a right of its own.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use meta::{
    ApiError, FieldErrors, FieldPath, Str, User, Value,
    authorization::{Attributes, Authorizer},
    field::{FieldReason, path},
};
use registry::{BoxFuture, Kind, WriteAuthorizer, WriteRequest};

use super::{resource_claim, resource_claim_template};
use crate::conversion::device::{claim_to_newest, template_to_newest};

const ADMIN_LABEL: &str = "resource.kubernetes.io/admin-access";

/// For claims and templates of claims.
pub(crate) struct ClaimWriteAuthorizer {
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) namespaces: Arc<OnceLock<Arc<Kind>>>,
}

impl WriteAuthorizer for ClaimWriteAuthorizer {
    fn check<'a>(&'a self, write: &'a WriteRequest<'a>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let mut errors = FieldErrors::default();
            match (write.old, write.info.subresource.as_str()) {
                (None, _) => self.create(write, &mut errors).await,
                (Some(old), "status") => {
                    let [claim, old] =
                        [write.object, old].map(|claim| claim_to_newest(claim.clone()));
                    self.status(write, &claim, &old, &mut errors).await;
                }
                (Some(_), _) => {}
            }
            if errors.is_empty() {
                return Ok(());
            }
            let kind = meta::GroupKind {
                group: write.info.group.clone(),
                kind: Str::new(write.object.str_at(&["kind"])),
            };
            let name = write.object.str_at(&["metadata", "name"]).to_owned();
            Err(ApiError::Invalid { kind, name, errors: Box::new(errors) })
        })
    }
}

impl ClaimWriteAuthorizer {
    async fn create(&self, write: &WriteRequest<'_>, errors: &mut FieldErrors) {
        let is_template = write.object.str_at(&["kind"]) == "ResourceClaimTemplate";
        let (newest, requests): (_, &[&str]) = if is_template {
            (template_to_newest(write.object.clone()), &["spec", "spec", "devices", "requests"])
        } else {
            (claim_to_newest(write.object.clone()), &["spec", "devices", "requests"])
        };
        let mut requests = newest.items_at(requests).iter();
        let asked = requests.position(|request| request.bool_at(&["exactly", "adminAccess"]));
        if let Some(at) = asked {
            // Compat: the path is that of a claim, also for a template, and of the oldest version.
            let place = path("spec").child("devices").child("requests").index(at);
            self.needs_marked_namespace(write, &place.child("adminAccess"), errors).await;
        }
        // A refused client also gets the validation errors.
        if !errors.is_empty() {
            if is_template {
                resource_claim_template::validation::validate(&newest, errors);
            } else {
                resource_claim::validation::validate(&newest, errors);
            }
        }
    }

    async fn status(
        &self,
        write: &WriteRequest<'_>,
        claim: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        let asked = |claim: &Value| {
            let mut results =
                claim.items_at(&["status", "allocation", "devices", "results"]).iter();
            results.position(|result| result.bool_at(&["adminAccess"]))
        };
        if let (None, Some(at)) = (asked(old), asked(claim)) {
            let results = path("status").child("allocation").child("devices").child("results");
            let place = results.index(at).child("adminAccess");
            self.needs_marked_namespace(write, &place, errors).await;
        }
        let part = |claim: &Value, name: &str| claim.at(&["status", name]).cloned();
        if ["allocation", "reservedFor"].iter().any(|name| part(claim, name) != part(old, name)) {
            let verb = &write.info.verb;
            let binding = Attributes {
                subresource: "binding",
                namespace: "",
                name: "",
                ..Attributes::of_request(write.user, write.info)
            };
            if let Err(why) = self.authorize(&binding).await {
                let why = format!(
                    "changing status.allocation or status.reservedFor requires \
                     resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {why}"
                );
                errors.forbidden(path("status").child("allocation"), &why);
            }
        }
        if part(claim, "allocation").is_some() {
            self.device_status(write, claim, old, errors).await;
        }
    }

    /// Each driver that something is said about, or no longer said, needs the right to.
    async fn device_status(
        &self,
        write: &WriteRequest<'_>,
        claim: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        let verb = &write.info.verb;
        let mut verbs = vec![format!("arbitrary-node:{verb}")];
        if is_on_node(write.user, allocated_node(claim)) {
            verbs.insert(0, format!("associated-node:{verb}"));
        }
        for driver in changed_drivers(claim, old) {
            let mut first = None;
            for verb in &verbs {
                let driver = Attributes {
                    verb,
                    subresource: "driver",
                    name: driver,
                    ..Attributes::of_request(write.user, write.info)
                };
                match self.authorize(&driver).await {
                    Ok(()) => {
                        first = None;
                        break;
                    }
                    Err(why) => first = first.or(Some(why)),
                }
            }
            if let Some(why) = first {
                let why = format!(
                    "changing status.devices requires resource=\"resourceclaims/driver\", \
                     verb=\"[{}]\" permission: {why}",
                    verbs.join(" ")
                );
                errors.forbidden(path("status").child("devices"), &why);
            }
        }
    }

    async fn authorize(&self, attributes: &Attributes<'_>) -> Result<(), String> {
        let verdict = self.authorizer.authorize(attributes).await;
        if verdict.is_allowed() {
            return Ok(());
        }
        let why = match (verdict.error, verdict.reason.as_str()) {
            (None, reason) => reason.to_owned(),
            (Some(error), "") => error,
            (Some(error), reason) => format!("{error}: {reason}"),
        };
        Err(ApiError::forbidden(attributes, &why).to_string())
    }

    async fn needs_marked_namespace(
        &self,
        write: &WriteRequest<'_>,
        place: &FieldPath,
        errors: &mut FieldErrors,
    ) {
        let name = &write.info.namespace;
        let namespace = match self.namespaces.get() {
            Some(kind) => kind.object("", name).await,
            None => Err(ApiError::NotServed),
        };
        match namespace {
            Ok(namespace) if namespace.str_at(&["metadata", "labels", ADMIN_LABEL]) == "true" => {}
            Ok(_) => {
                let why = format!(
                    "admin access to devices requires the `{ADMIN_LABEL}: true` label on the \
                     containing namespace"
                );
                errors.forbidden(place, &why);
            }
            Err(error) => {
                let why = format!(
                    "Internal error: could not retrieve namespace to verify admin access: {error}"
                );
                errors.push(FieldReason::Internal, place, why);
            }
        }
    }
}

/// The drivers of devices whose status is new, gone or other than before, sorted.
fn changed_drivers<'a>(claim: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let devices = |claim: &'a Value| claim.items_at(&["status", "devices"]).iter();
    let key = |device: &'a Value| {
        ["driver", "pool", "device", "shareID"].map(|part| device.str_at(&[part]))
    };
    let differs = |one: &'a Value, others: &'a Value| {
        devices(others).rfind(|other| key(other) == key(one)) != Some(one)
    };
    let changed = devices(claim).filter(|device| differs(device, old));
    let gone = devices(old).filter(|device| !devices(claim).any(|now| key(now) == key(device)));
    changed.chain(gone).map(|device| device.str_at(&["driver"])).collect()
}

/// The one node that an allocation is for.
fn allocated_node(claim: &Value) -> Option<&str> {
    let terms = ["status", "allocation", "nodeSelector", "nodeSelectorTerms"];
    let [term] = claim.items_at(&terms) else { return None };
    let [field] = term.items_at(&["matchFields"]) else { return None };
    let [value] = field.items_at(&["values"]) else { return None };
    let is_name = field.str_at(&["key"]) == "metadata.name" && field.str_at(&["operator"]) == "In";
    let only = is_name && term.items_at(&["matchExpressions"]).is_empty();
    value.as_str().filter(|_| only)
}

/// A service account whose token belongs to a pod of this node.
fn is_on_node(user: &User, node: Option<&str>) -> bool {
    const NODE: &str = "authentication.kubernetes.io/node-name";
    let own = user.extra.iter().find(|(key, _)| *key == NODE).map(|(_, values)| values);
    let is_account = user.name.starts_with("system:serviceaccount:");
    let own = own.filter(|values| values.len() == 1).and_then(|values| values.first());
    is_account && node.is_some() && own.map(Str::as_str) == node
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn drivers_are_asked_about_what_changed_of_them() {
        let device = |driver: &str, data: i64| value!({"driver": (driver), "pool": "p", "device": "d", "data": (data)});
        let status = |devices: Vec<Value>| value!({"status": {"devices": (devices)}});
        let old = status(vec![device("same", 1), device("other", 1), device("gone", 1)]);
        let new = status(vec![device("same", 1), device("other", 2), device("new", 1)]);
        let drivers: Vec<&str> = changed_drivers(&new, &old).into_iter().collect();
        assert_eq!(drivers, ["gone", "new", "other"]);
    }

    #[test]
    fn a_node_is_known_by_its_name_only() {
        let selector = |field: &Value| value!({"status": {"allocation": {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [(field.clone())]}]}}}});
        let by_name =
            selector(&value!({"key": "metadata.name", "operator": "In", "values": ["n1"]}));
        assert_eq!(allocated_node(&by_name), Some("n1"));
        let two =
            selector(&value!({"key": "metadata.name", "operator": "In", "values": ["a", "b"]}));
        assert_eq!(allocated_node(&two), None);
        assert_eq!(allocated_node(&Value::object()), None);
    }
}
