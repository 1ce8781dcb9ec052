//! Mode `Node`: a kubelet reads what the pods on its node need, and nothing else. What pods refer to is
//! looked up when it is asked for; other resources are the same for all nodes, by fixed rules.

pub mod references;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use meta::{Str, User, selector::FieldSelector};

use super::{Attributes, Authorize, Authorizer, Rules, Verdict, rbac::Rule};

/// What may be related to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Related {
    Pod,
    Secret,
    ConfigMap,
    ServiceAccount,
    Claim,
    Volume,
    Attachment,
    ResourceClaim,
    ResourceSlice,
    CertificateRequest,
}

/// Who knows which objects the pods of a node need.
pub trait Nodes: Send + Sync + 'static {
    fn is_related(&self, node: &str, what: Related, namespace: &str, name: &str) -> bool;
}

/// The authorizer.
pub struct NodeAuthorizer {
    nodes: Arc<dyn Nodes>,
    rules: Vec<Rule>,
}

/// The name of the node that a user is; None: the user is no node.
pub fn node_name(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix("system:node:")?;
    user.is_in("system:nodes").then_some(name)
}

impl Authorizer for NodeAuthorizer {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Authorize<'a> {
        let Some(node) = node_name(attributes.user) else {
            return Verdict::no_opinion("").into();
        };
        if node.is_empty() {
            let user = meta::field::quote(&attributes.user.name);
            return Verdict::no_opinion(format!("unknown node for user {user}")).into();
        }
        match self.check(node, attributes) {
            Ok(()) => Verdict::allow("").into(),
            Err(reason) => Verdict::no_opinion(reason).into(),
        }
    }

    fn rules(&self, user: &User, _namespace: &str) -> Rules {
        if node_name(user).is_none() {
            return Rules::default();
        }
        let error = "node authorizer does not support user rule resolution".to_owned();
        Rules { incomplete: true, error: Some(error), ..Rules::default() }
    }
}

/// Err says why not.
type Checked = Result<(), String>;

impl NodeAuthorizer {
    pub fn new(nodes: Arc<dyn Nodes>) -> Self {
        Self { nodes, rules: node_rules() }
    }

    fn check(&self, node: &str, attributes: &Attributes<'_>) -> Checked {
        if attributes.is_resource {
            match (attributes.group, attributes.resource) {
                ("", "secrets") => {
                    return self.read_in_namespace(node, Related::Secret, attributes);
                }
                ("", "configmaps") => {
                    return self.read_in_namespace(node, Related::ConfigMap, attributes);
                }
                ("", "persistentvolumeclaims") if attributes.subresource == "status" => {
                    return match attributes.verb {
                        "update" | "patch" => self.related(node, Related::Claim, attributes),
                        _ => no("can only get/update/patch this type"),
                    };
                }
                ("", "persistentvolumeclaims") => {
                    return self.get(node, Related::Claim, attributes);
                }
                ("", "persistentvolumes") => return self.get(node, Related::Volume, attributes),
                ("resource.k8s.io", "resourceclaims") => {
                    return self.get(node, Related::ResourceClaim, attributes);
                }
                ("storage.k8s.io", "volumeattachments") => {
                    return self.get(node, Related::Attachment, attributes);
                }
                ("", "serviceaccounts") => return self.service_account(node, attributes),
                ("coordination.k8s.io", "leases") => return lease(node, attributes),
                ("storage.k8s.io", "csinodes") => return csi_node(node, attributes),
                ("resource.k8s.io", "resourceslices") => {
                    return self.resource_slice(node, attributes);
                }
                ("", "nodes") => return own_node(node, attributes),
                ("", "pods") => return self.pod(node, attributes),
                ("certificates.k8s.io", "podcertificaterequests") => {
                    return self.certificate_request(node, attributes);
                }
                _ => {}
            }
        }
        if self.rules.iter().any(|rule| rule.allows(attributes)) { Ok(()) } else { no("") }
    }

    fn related(&self, node: &str, what: Related, attributes: &Attributes<'_>) -> Checked {
        if attributes.name.is_empty() {
            return no("No Object name found");
        }
        if self.nodes.is_related(node, what, attributes.namespace, attributes.name) {
            return Ok(());
        }
        Err(format!("no relationship found between node '{node}' and this object"))
    }

    fn get(&self, node: &str, what: Related, attributes: &Attributes<'_>) -> Checked {
        if attributes.verb != "get" {
            return no("can only get individual resources of this type");
        }
        if !attributes.subresource.is_empty() {
            return no("cannot get subresource");
        }
        self.related(node, what, attributes)
    }

    fn read_in_namespace(&self, node: &str, what: Related, attributes: &Attributes<'_>) -> Checked {
        if !attributes.is_read_only() {
            return no("can only read resources of this type");
        }
        if !attributes.subresource.is_empty() {
            return no("cannot read subresource");
        }
        if attributes.namespace.is_empty() {
            return no("can only read namespaced object of this type");
        }
        self.related(node, what, attributes)
    }

    fn service_account(&self, node: &str, attributes: &Attributes<'_>) -> Checked {
        if attributes.verb == "get" && attributes.subresource.is_empty() {
            return self.read_in_namespace(node, Related::ServiceAccount, attributes);
        }
        if attributes.verb != "create" || attributes.name.is_empty() {
            return no("can only create tokens for individual service accounts");
        }
        if attributes.subresource != "token" {
            return no("can only create token subresource of serviceaccount");
        }
        self.related(node, Related::ServiceAccount, attributes)
    }

    fn resource_slice(&self, node: &str, attributes: &Attributes<'_>) -> Checked {
        if !attributes.subresource.is_empty() {
            return no("cannot authorize ResourceSlice subresources");
        }
        match attributes.verb {
            // Whose it is to be is checked by NodeRestriction, which sees the object.
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => {
                self.related(node, Related::ResourceSlice, attributes)
            }
            "watch" | "list" | "deletecollection" if selects_node(node, attributes) => Ok(()),
            "watch" | "list" | "deletecollection" => no(
                "can only list/watch/deletecollection resourceslices with nodeName field selector",
            ),
            _ => no("only the following verbs are allowed for a ResourceSlice: get, watch, list, \
                 create, update, patch, delete, deletecollection"),
        }
    }

    fn certificate_request(&self, node: &str, attributes: &Attributes<'_>) -> Checked {
        if !attributes.subresource.is_empty() {
            return no("nodes may not access the status subresource of PodCertificateRequests");
        }
        match attributes.verb {
            "create" => Ok(()),
            "get" => self.related(node, Related::CertificateRequest, attributes),
            "list" | "watch" if selects_node(node, attributes) => Ok(()),
            "list" | "watch" => {
                no("can only list/watch podcertificaterequests with nodeName field selector")
            }
            verb => Err(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    fn pod(&self, node: &str, attributes: &Attributes<'_>) -> Checked {
        // Which pods a node may make, delete, report about and evict is checked by NodeRestriction.
        match (attributes.subresource, attributes.verb) {
            ("", "get") => self.related(node, Related::Pod, attributes),
            ("", "list" | "watch") if selects_node(node, attributes) => Ok(()),
            ("", "list" | "watch") if !attributes.name.is_empty() => {
                self.related(node, Related::Pod, attributes)
            }
            ("", "list" | "watch") => {
                no("can only list/watch pods with spec.nodeName field selector")
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Ok(())
            }
            _ => no(""),
        }
    }
}

fn no(reason: &str) -> Checked {
    Err(reason.to_owned())
}

/// Whether a list is one of what is on this node.
fn selects_node(node: &str, attributes: &Attributes<'_>) -> bool {
    let selector = FieldSelector::parse(attributes.field_selector);
    selector.is_ok_and(|selector| selector.exact_value("spec.nodeName") == Some(node))
}

const OWN_VERBS: [&str; 5] = ["get", "create", "update", "patch", "delete"];

fn lease(node: &str, attributes: &Attributes<'_>) -> Checked {
    if !OWN_VERBS.contains(&attributes.verb) {
        return no("can only get, create, update, patch, or delete a node lease");
    }
    if attributes.namespace != "kube-node-lease" {
        return no("can only access leases in the \"kube-node-lease\" system namespace");
    }
    // The name of a new one is in its body, which NodeRestriction sees.
    if attributes.verb != "create" && attributes.name != node {
        return no("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

fn csi_node(node: &str, attributes: &Attributes<'_>) -> Checked {
    if !OWN_VERBS.contains(&attributes.verb) {
        return no("can only get, create, update, patch, or delete a CSINode");
    }
    if !attributes.subresource.is_empty() {
        return no("cannot authorize CSINode subresources");
    }
    if attributes.verb != "create" && attributes.name != node {
        return no("can only access CSINode with the same name as the requesting node");
    }
    Ok(())
}

fn own_node(node: &str, attributes: &Attributes<'_>) -> Checked {
    match (attributes.subresource, attributes.verb) {
        // Which node is checked by NodeRestriction.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") if attributes.name == node => Ok(()),
        ("", "get" | "list" | "watch") if attributes.name.is_empty() => {
            Err(format!("node '{node}' cannot read all nodes, only its own Node object"))
        }
        ("", "get" | "list" | "watch") => {
            let name = attributes.name;
            Err(format!("node '{node}' cannot read '{name}', only its own Node object"))
        }
        _ => no(""),
    }
}

/// What every node may do, whatever runs on it; what is told apart above is not here.
fn node_rules() -> Vec<Rule> {
    let table: [(&[&str], &[&str], &[&str]); 8] = [
        (&["create"], &["authentication.k8s.io"], &["tokenreviews"]),
        (
            &["create"],
            &["authorization.k8s.io"],
            &["subjectaccessreviews", "localsubjectaccessreviews"],
        ),
        (&["get", "list", "watch"], &[""], &["services"]),
        (&["create", "update", "patch"], &["", "events.k8s.io"], &["events"]),
        (&["get"], &[""], &["endpoints"]),
        (
            &["create", "get", "list", "watch"],
            &["certificates.k8s.io"],
            &["certificatesigningrequests"],
        ),
        (&["get", "list", "watch"], &["storage.k8s.io"], &["csidrivers"]),
        (&["get", "list", "watch"], &["node.k8s.io"], &["runtimeclasses"]),
    ];
    let texts = |texts: &[&str]| texts.iter().map(Str::new).collect();
    let rule = |(verbs, groups, resources): &(&[&str], &[&str], &[&str])| Rule {
        verbs: texts(verbs),
        api_groups: texts(groups),
        resources: texts(resources),
        ..Rule::default()
    };
    table.iter().map(rule).collect()
}
