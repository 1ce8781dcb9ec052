//! A kubelet writes what is its own: its node, its lease, mirror pods and the status of the pods on
//! its node, tokens for these pods. The Node authorizer lets it come this far; here its objects are
//! looked at.

use auth::authz::node::{node_name, references::needed_of_api};
use meta::{
    ApiError, GroupResource, GroupVersionResource, Str, Value, authorization::Attributes as Asked,
};

use x509_parser::x509::X509Name;

use super::{aggregate, certificates::with_subject};
use crate::{Attributes, BoxFuture, Cluster, Freshness, Operation, Phases, Plugin, resources};

pub struct NodeRestriction {
    /// Not with the gate AllowInsecureKubeletCertificateSigningRequests.
    pub restrict_signing_requests: bool,
    /// The gate ServiceAccountNodeAudienceRestriction.
    pub restrict_audiences: bool,
}

const MIRROR: &str = "kubernetes.io/config.mirror";

impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation != Operation::Connect
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        node_name(attributes.user).is_some()
    }

    fn phases(&self) -> Phases {
        Phases::Mutating
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(node) = node_name(attributes.user) else { return Ok(()) };
            let object = object.map(|object| &*object);
            let object = object.unwrap_or(&Value::Null);
            let write = Write { plugin: self, attributes, node, object, cluster };
            match write.check().await {
                Ok(()) => Ok(()),
                Err(Refusal::Because(why)) => Err(forbidden(attributes, why)),
                Err(Refusal::Error(error)) => Err(error),
            }
        })
    }
}

fn forbidden(attributes: &Attributes<'_>, why: String) -> ApiError {
    let (group, resource) = (attributes.gvr.group.clone(), attributes.gvr.resource.clone());
    ApiError::Forbidden {
        resource: GroupResource { group, resource },
        name: attributes.name.to_owned(),
        why,
        causes: Vec::new(),
    }
}

enum Refusal {
    Because(String),
    Error(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Error(error)
    }
}

type Checked = Result<(), Refusal>;

fn no(why: impl Into<String>) -> Checked {
    Err(Refusal::Because(why.into()))
}

/// Refuses unless something holds.
fn check(holds: bool, why: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { no(why()) }
}

/// A write by a node.
struct Write<'a> {
    plugin: &'a NodeRestriction,
    attributes: &'a Attributes<'a>,
    node: &'a str,
    /// Null on delete.
    object: &'a Value,
    cluster: &'a Cluster,
}

impl Write<'_> {
    async fn check(&self) -> Checked {
        let attributes = self.attributes;
        if self.node.is_empty() {
            let user = meta::field::quote(&attributes.user.name);
            return no(format!("could not determine node from user {user}"));
        }
        let gvr = (attributes.gvr.group.as_str(), attributes.gvr.resource.as_str());
        match (gvr, attributes.subresource) {
            (("", "pods"), "") => self.pod().await,
            (("", "pods"), "status") => self.pod_status(),
            (("", "pods"), "eviction") => {
                let pod = self.existing(&resources::PODS, attributes.name).await?;
                let node = self.node;
                check(is_on(&pod, node), || {
                    format!("node {node} can only evict pods with spec.nodeName set to itself")
                })
            }
            (("", "pods"), other) => no(format!(
                "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
                meta::field::quote(other)
            )),
            (("", "nodes"), _) => self.own_node(),
            (("", "persistentvolumeclaims"), "status") => self.claim_status(),
            (("", "persistentvolumeclaims"), _) => no("may only update PVC status"),
            (("", "serviceaccounts"), "token") if attributes.operation == Operation::Create => {
                self.token().await
            }
            (("coordination.k8s.io", "leases"), _) => {
                check(attributes.namespace == "kube-node-lease", || {
                    "can only access leases in the \"kube-node-lease\" system namespace".to_owned()
                })?;
                self.named_as_node("node lease")
            }
            (("storage.k8s.io", "csinodes"), _) => self.named_as_node("CSINode"),
            (("resource.k8s.io", "resourceslices"), _) => self.resource_slice().await,
            (("certificates.k8s.io", "podcertificaterequests"), _) => {
                self.pod_certificate_request().await
            }
            (("certificates.k8s.io", "certificatesigningrequests"), _)
                if self.plugin.restrict_signing_requests =>
            {
                self.signing_request()
            }
            _ => Ok(()),
        }
    }

    /// An object of the write's namespace that must be there.
    async fn existing(
        &self,
        resource: &GroupVersionResource,
        name: &str,
    ) -> Result<Value, Refusal> {
        let namespace = if *resource == resources::NODES { "" } else { self.attributes.namespace };
        let found = self.get(resource, namespace, name).await?;
        // Compat: kube-apiserver looks it up with a lister, whose errors name the singular.
        let singular = resource.resource.strip_suffix('s').unwrap_or(&resource.resource);
        let singular = GroupResource::new(resource.group.as_str(), singular);
        Ok(found.ok_or_else(|| ApiError::not_found(singular, name))?)
    }

    async fn get(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        let objects = &self.cluster.objects;
        objects.get(resource, namespace, name, Freshness::Linearizable).await
    }

    fn name(&self) -> &str {
        match self.attributes.operation {
            Operation::Create => self.object.str_at(&["metadata", "name"]),
            _ => self.attributes.name,
        }
    }

    fn named_as_node(&self, what: &str) -> Checked {
        check(self.name() == self.node, || {
            format!("can only access {what} with the same name as the requesting node")
        })
    }

    async fn pod(&self) -> Checked {
        let node = meta::field::quote(self.node);
        match self.attributes.operation {
            Operation::Create => self.mirror_pod().await,
            Operation::Delete => {
                let pod = self.existing(&resources::PODS, self.attributes.name).await?;
                check(is_on(&pod, self.node), || {
                    format!("node {node} can only delete pods with spec.nodeName set to itself")
                })
            }
            _ => no(format!(
                "unexpected operation \"UPDATE\", node {node} can only create and delete mirror pods"
            )),
        }
    }

    async fn mirror_pod(&self) -> Checked {
        let (pod, node) = (self.object, meta::field::quote(self.node));
        check(pod.at(&["metadata", "annotations", MIRROR]).is_some(), || {
            format!(
                "pod does not have \"{MIRROR}\" annotation, node {node} can only create mirror pods"
            )
        })?;
        check(is_on(pod, self.node), || {
            format!("node {node} can only create pods with spec.nodeName set to itself")
        })?;
        let owner = match pod.items_at(&["metadata", "ownerReferences"]) {
            [] => {
                return no(format!(
                    "node {node} can only create pods with an owner reference set to itself"
                ));
            }
            [owner] => owner,
            _ => {
                return no(format!(
                    "node {node} can only create pods with a single owner reference set to itself"
                ));
            }
        };
        let is_node = owner.str_at(&["apiVersion"]) == "v1"
            && owner.str_at(&["kind"]) == "Node"
            && owner.str_at(&["name"]) == self.node;
        check(is_node, || {
            format!("node {node} can only create pods with an owner reference set to itself")
        })?;
        check(owner.bool_at(&["controller"]), || {
            format!(
                "node {node} can only create pods with a controller owner reference set to itself"
            )
        })?;
        check(!owner.bool_at(&["blockOwnerDeletion"]), || {
            format!("node {node} must not set blockOwnerDeletion on an owner reference")
        })?;
        let found = self.existing(&resources::NODES, self.node).await?;
        let (given, actual) = (owner.str_at(&["uid"]), found.str_at(&["metadata", "uid"]));
        check(given == actual, || {
            let node = self.node;
            format!("node {node} UID mismatch: expected {given} got {actual}")
        })?;
        match needed_of_api(pod) {
            None => Ok(()),
            Some(needed) => no(format!("node {node} can not create pods that reference {needed}")),
        }
    }

    fn pod_status(&self) -> Checked {
        let (new, node) = (self.object, meta::field::quote(self.node));
        let Some(old) = self.attributes.old else { return no("unexpected operation \"CREATE\"") };
        check(is_on(old, self.node), || {
            format!(
                "node {node} can only update pod status for pods with spec.nodeName set to itself"
            )
        })?;
        let same = |path: &[&str]| given(new, path) == given(old, path);
        check(same(&["metadata", "labels"]), || {
            format!("node {node} cannot update labels through pod status")
        })?;
        check(same(&["status", "resourceClaimStatuses"]), || {
            format!("node {node} cannot update resource claim statues")
        })?;
        check(same(&["status", "extendedResourceClaimStatus"]), || {
            format!("node {node} cannot update extended resource claim status")
        })
    }

    fn claim_status(&self) -> Checked {
        let Some(old) = self.attributes.old else { return no("unexpected operation \"CREATE\"") };
        let without = |claim: &Value| {
            let mut claim = claim.clone();
            for field in ["resourceVersion", "managedFields"] {
                claim.remove_at(&["metadata", field]);
            }
            for field in
                ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"]
            {
                claim.remove_at(&["status", field]);
            }
            if given(&claim, &["status"]).is_none() {
                claim.remove_at(&["status"]);
            }
            claim
        };
        check(without(self.object) == without(old), || {
            let node = meta::field::quote(self.node);
            format!(
                "node {node} is not allowed to update fields other than status.quantity and \
                 status.conditions"
            )
        })
    }

    fn own_node(&self) -> Checked {
        let (name, node) = (self.name(), meta::field::quote(self.node));
        check(name == self.node, || {
            format!("node {node} is not allowed to modify node {}", meta::field::quote(name))
        })?;
        let new = self.object;
        let source = given(new, &["spec", "configSource"]);
        match (self.attributes.operation, self.attributes.old) {
            (Operation::Create, _) => {
                check(source.is_none(), || {
                    format!("node {node} is not allowed to create pods with a non-nil configSource")
                })?;
                // Stricter than upstream, which refuses only changes of them: with an owner of its
                // choice a node could have itself deleted, and come back without its taints.
                check(given(new, &["metadata", "ownerReferences"]).is_none(), || {
                    format!("node {node} is not allowed to set ownerReferences")
                })?;
                let labels = forbidden_labels(new, &Value::Null);
                check(labels.is_empty(), || {
                    let labels = labels.join(", ");
                    format!("node {node} is not allowed to set the following labels: {labels}")
                })
            }
            (Operation::Update, Some(old)) => {
                let same = |path: &[&str]| given(new, path) == given(old, path);
                check(source.is_none() || same(&["spec", "configSource"]), || {
                    format!(
                        "node {node} is not allowed to update configSource to a new non-nil \
                         configSource"
                    )
                })?;
                check(same(&["spec", "taints"]), || {
                    format!("node {node} is not allowed to modify taints")
                })?;
                check(same(&["metadata", "ownerReferences"]), || {
                    format!("node {node} is not allowed to modify ownerReferences")
                })?;
                let labels = forbidden_labels(new, old);
                check(labels.is_empty(), || {
                    format!("is not allowed to modify labels: {}", labels.join(", "))
                })
            }
            _ => Ok(()),
        }
    }

    async fn token(&self) -> Checked {
        let empty = Value::object();
        let bound = self.object.at(&["spec", "boundObjectRef"]).unwrap_or(&empty);
        let text = |field| bound.str_at(&[field]);
        let is_pod =
            text("apiVersion") == "v1" && text("kind") == "Pod" && !text("name").is_empty();
        check(is_pod, || "node requested token not bound to a pod".to_owned())?;
        check(!text("uid").is_empty(), || {
            "node requested token with a pod binding without a uid".to_owned()
        })?;
        let pod = self.existing(&resources::PODS, text("name")).await?;
        check(text("uid") == pod.str_at(&["metadata", "uid"]), || {
            format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The \
                 object might have been deleted and then recreated",
                text("uid")
            )
        })?;
        check(is_on(&pod, self.node), || {
            "node requested token bound to a pod scheduled on a different node".to_owned()
        })?;
        if self.plugin.restrict_audiences { self.token_audience(&pod).await } else { Ok(()) }
    }

    /// A pod names the audiences of its tokens.
    async fn token_audience(&self, pod: &Value) -> Checked {
        let audience = match self.object.items_at(&["spec", "audiences"]) {
            [] => "",
            [one] => one.as_str().unwrap_or_default(),
            _ => return no("node may only request 0 or 1 audiences"),
        };
        let mut errors = Vec::new();
        for volume in pod.items_at(&["spec", "volumes"]) {
            let sources = volume.items_at(&["projected", "sources"]).iter();
            let mut tokens = sources.filter_map(|source| source.get("serviceAccountToken"));
            if tokens.any(|token| token.str_at(&["audience"]) == audience) {
                return Ok(());
            }
            match self.driver_asks(pod, volume, audience).await? {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(missing) => errors.push(missing),
            }
        }
        if let Some(why) = aggregate(errors) {
            let audience = meta::field::quote(audience);
            return no(format!("error validating audience {audience}: {why}"));
        }
        let verb = "request-serviceaccounts-token-audience";
        let asked = Asked {
            version: "v1",
            namespace: self.attributes.namespace,
            name: self.attributes.name,
            ..Asked::of_resource(self.attributes.user, verb, "", audience)
        };
        let verdict = self.cluster.authorizer.authorize(&asked).await;
        check(verdict.is_allowed(), || {
            let audience = meta::field::quote(audience);
            let user = &self.attributes.user.name;
            format!(
                "audience {audience} not found in pod spec volume, {user} is not authorized to \
                 request tokens for this audience"
            )
        })
    }

    /// Whether the CSI driver behind a volume asks for tokens of an audience; Err: which object on the
    /// way to it is missing.
    async fn driver_asks(
        &self,
        pod: &Value,
        volume: &Value,
        audience: &str,
    ) -> Result<Result<bool, String>, Refusal> {
        let claim = if volume.at(&["ephemeral", "volumeClaimTemplate"]).is_some() {
            format!("{}-{}", pod.str_at(&["metadata", "name"]), volume.str_at(&["name"]))
        } else {
            volume.str_at(&["persistentVolumeClaim", "claimName"]).to_owned()
        };
        let missing = |resource: &str, name: &str| {
            Ok(Err(format!("{resource} {} not found", meta::field::quote(name))))
        };
        let driver = if claim.is_empty() {
            driver_of(volume).to_owned()
        } else {
            let namespace = self.attributes.namespace;
            let claims = &resources::PERSISTENT_VOLUME_CLAIMS;
            let Some(found) = self.get(claims, namespace, &claim).await? else {
                return missing("persistentvolumeclaim", &claim);
            };
            let name = found.str_at(&["spec", "volumeName"]);
            let Some(volume) = self.get(&resources::PERSISTENT_VOLUMES, "", name).await? else {
                return missing("persistentvolume", name);
            };
            volume.get("spec").map(driver_of).unwrap_or_default().to_owned()
        };
        if driver.is_empty() {
            return Ok(Ok(false));
        }
        let Some(found) = self.get(&resources::CSI_DRIVERS, "", &driver).await? else {
            return missing("csidriver.storage.k8s.io", &driver);
        };
        let mut requests = found.items_at(&["spec", "tokenRequests"]).iter();
        Ok(Ok(requests.any(|request| request.str_at(&["audience"]) == audience)))
    }

    async fn resource_slice(&self) -> Checked {
        let (verb, slice) = match self.attributes.operation {
            Operation::Create => ("create", self.object.clone()),
            Operation::Delete => {
                let name = self.attributes.name;
                let found = self.get(&resources::RESOURCE_SLICES, "", name).await?;
                ("delete", found.unwrap_or_default())
            }
            _ => return Ok(()),
        };
        check(is_on(&slice, self.node), || {
            format!("can only {verb} ResourceSlice with the same NodeName as the requesting node")
        })
    }

    async fn pod_certificate_request(&self) -> Checked {
        if self.attributes.operation != Operation::Create {
            return no("unexpected operation UPDATE");
        }
        let text = |field| self.object.str_at(&["spec", field]);
        let node = meta::field::quote(self.node);
        check(text("nodeName") == self.node, || {
            let given = meta::field::quote(text("nodeName"));
            format!(
                "PodCertificateRequest.Spec.NodeName={given}, which is not the requesting node {node}"
            )
        })?;
        let found = self.existing(&resources::NODES, self.node).await?;
        let pod = self.existing(&resources::PODS, text("podName")).await?;
        let account =
            self.existing(&resources::SERVICE_ACCOUNTS, text("serviceAccountName")).await?;
        for (field, object, what) in [
            ("nodeUID", &found, "node"),
            ("podUID", &pod, "pod"),
            ("serviceAccountUID", &account, "service account"),
        ] {
            let (given, actual) = (text(field), object.str_at(&["metadata", "uid"]));
            check(given == actual, || {
                format!(
                    "PodCertificateRequest names {what} UID {given:?}, which differs from the running {what} ({actual:?})"
                )
            })?;
        }
        let place = format!("{}/{}", self.attributes.namespace, text("podName"));
        check(is_on(&pod, self.node), || {
            format!(
                "pod {place:?} is not running on node {node} named in the PodCertificateRequest"
            )
        })?;
        check(pod.at(&["metadata", "annotations", MIRROR]).is_none(), || {
            format!("pod {place:?} is a mirror pod")
        })?;
        let actual = pod.str_at(&["spec", "serviceAccountName"]);
        check(text("serviceAccountName") == actual, || {
            let given = text("serviceAccountName");
            format!(
                "PodCertificateRequest for pod {place:?} contains serviceAccountName ({given:?}) \
                 that differs from running pod ({actual:?})"
            )
        })
    }

    /// Certificates of kubelets are for the node's own name.
    fn signing_request(&self) -> Checked {
        let signer = self.object.str_at(&["spec", "signerName"]);
        let of_kubelets = matches!(
            signer,
            "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet"
        );
        if self.attributes.operation != Operation::Create || !of_kubelets {
            return Ok(());
        }
        let wanted = format!("system:node:{}", self.node);
        match common_name(self.object.str_at(&["spec", "request"])) {
            None => no("unable to parse csr: PEM block type must be CERTIFICATE REQUEST"),
            Some(name) => {
                check(name == wanted, || format!("can only create a node CSR with CN={wanted}"))
            }
        }
    }
}

/// The CSI driver of a volume, or the one that took over a volume type of Kubernetes' own; empty: none.
fn driver_of(volume: &Value) -> &str {
    const MIGRATED: [(&str, &str); 7] = [
        ("gcePersistentDisk", "pd.csi.storage.gke.io"),
        ("awsElasticBlockStore", "ebs.csi.aws.com"),
        ("cinder", "cinder.csi.openstack.org"),
        ("azureDisk", "disk.csi.azure.com"),
        ("azureFile", "file.csi.azure.com"),
        ("vsphereVolume", "csi.vsphere.vmware.com"),
        ("portworxVolume", "pxd.portworx.com"),
    ];
    let driver = volume.str_at(&["csi", "driver"]);
    if !driver.is_empty() {
        return driver;
    }
    let migrated = MIGRATED.iter().find(|(field, _)| given(volume, &[field]).is_some());
    migrated.map_or("", |(_, driver)| driver)
}

/// The common name in a certificate request: PEM, in base64.
fn common_name(request: &str) -> Option<String> {
    let name = |subject: &X509Name<'_>| {
        let name = subject.iter_common_name().next()?.as_str().ok()?;
        Some(name.to_owned())
    };
    with_subject(request, name)?
}

fn is_on(object: &Value, node: &str) -> bool {
    object.str_at(&["spec", "nodeName"]) == node
}

/// A field that holds something.
fn given<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    object.at(path).filter(|value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    })
}

/// The labels that changed and are not for kubelets to change, by name.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let labels = |object: &Value| -> Vec<(Str, Value)> {
        let labels = object.at(&["metadata", "labels"]).and_then(Value::as_object);
        let labels = labels.into_iter().flat_map(meta::Map::iter);
        labels.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let (new, old) = (labels(new), labels(old));
    let changed = new.iter().filter(|label| !old.contains(label));
    let changed = changed.chain(old.iter().filter(|label| !new.contains(label)));
    let mut forbidden: Vec<String> =
        changed.map(|(key, _)| key.to_string()).filter(|key| !may_label(key)).collect();
    forbidden.sort();
    forbidden.dedup();
    forbidden
}

/// Whether a kubelet may give its node this label.
fn may_label(key: &str) -> bool {
    const OWN: [&str; 11] = [
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ];
    let Some((namespace, _)) = key.split_once('/') else { return true };
    let within = |domain: &str| {
        namespace.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if within("node-restriction.kubernetes.io") {
        return false;
    }
    if !within("kubernetes.io") && !within("k8s.io") {
        return true;
    }
    OWN.contains(&key) || within("kubelet.kubernetes.io") || within("node.kubernetes.io")
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn kubelets_may_set_some_labels() {
        let cases = [
            ("mine", true),
            ("example.com/x", true),
            ("kubernetes.io/hostname", true),
            ("topology.kubernetes.io/zone", true),
            ("kubelet.kubernetes.io/x", true),
            ("x.node.kubernetes.io/y", true),
            ("node-restriction.kubernetes.io/x", false),
            ("a.node-restriction.kubernetes.io/x", false),
            ("kubernetes.io/other", false),
            ("node-role.kubernetes.io/control-plane", false),
            ("x.k8s.io/y", false),
            ("fakekubernetes.io/y", true),
        ];
        for (label, allowed) in cases {
            assert_eq!(may_label(label), allowed, "{label}");
        }
        let node = |labels: Value| value!({"metadata": {"labels": (labels)}});
        let old = node(value!({"kubernetes.io/a": "1", "mine": "1", "kubernetes.io/same": "1"}));
        let new =
            node(value!({"kubernetes.io/a": "2", "kubernetes.io/same": "1", "k8s.io/b": "1"}));
        assert_eq!(forbidden_labels(&new, &old), ["k8s.io/b", "kubernetes.io/a"]);
    }

    #[test]
    fn a_kubelet_writes_what_is_its_own() {
        use crate::harness::{cluster, create, delete, update, yaml};
        let plugin = NodeRestriction { restrict_signing_requests: true, restrict_audiences: true };
        let objects = [
            (&resources::NODES, "{metadata: {name: n1, uid: u1}}"),
            (
                &resources::PODS,
                "{metadata: {name: mine, namespace: ns, uid: p1}, spec: {nodeName: n1, volumes: [{name: v, projected: {sources: [{serviceAccountToken: {audience: vault}}]}}, {name: c, csi: {driver: d}}]}}",
            ),
            (
                &resources::PODS,
                "{metadata: {name: other, namespace: ns, uid: p2}, spec: {nodeName: n2}}",
            ),
            (
                &resources::CSI_DRIVERS,
                "{metadata: {name: d}, spec: {tokenRequests: [{audience: csi}]}}",
            ),
        ];
        let cluster = cluster(&objects, &["request-serviceaccounts-token-audience allowed sa"]);
        let mirror = |owner: &str, spec: &str| {
            format!(
                "{{metadata: {{name: m, namespace: ns, annotations: {{kubernetes.io/config.mirror: x}}, ownerReferences: [{owner}]}}, spec: {{nodeName: n1, {spec}}}}}"
            )
        };
        let owner = "{apiVersion: v1, kind: Node, name: n1, uid: u1, controller: true}";
        let token = |pod: &str, uid: &str, audiences: &str| {
            format!(
                "{{metadata: {{name: sa, namespace: ns}}, spec: {{boundObjectRef: {{apiVersion: v1, kind: Pod, name: {pod}, uid: '{uid}'}}, audiences: [{audiences}]}}}}"
            )
        };
        let tokens = || create(&resources::SERVICE_ACCOUNTS).subresource("token");
        let pod = |node: &str| {
            format!("{{metadata: {{name: mine, namespace: ns}}, spec: {{nodeName: {node}}}}}")
        };
        let node = |metadata: &str, spec: &str| {
            format!("{{metadata: {{name: n1{metadata}}}, spec: {{{spec}}}}}")
        };
        let leases = GroupVersionResource {
            group: "coordination.k8s.io".into(),
            version: "v1".into(),
            resource: "leases".into(),
        };
        let csi_nodes = GroupVersionResource {
            group: "storage.k8s.io".into(),
            version: "v1".into(),
            resource: "csinodes".into(),
        };
        let slices = &resources::RESOURCE_SLICES;
        let cases = [
            (create(&resources::PODS), mirror(owner, ""), ""),
            (create(&resources::PODS), pod("n1"), "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods"),
            (create(&resources::PODS), mirror("", ""), "node \"n1\" can only create pods with an owner reference set to itself"),
            (create(&resources::PODS), mirror(&owner.replace("u1", "u9"), ""), "node n1 UID mismatch: expected u9 got u1"),
            (create(&resources::PODS), mirror(owner, "serviceAccountName: x"), "node \"n1\" can not create pods that reference serviceaccounts"),
            (create(&resources::PODS).subresource("binding"), pod("n1"), "unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed"),
            (update(&resources::PODS, yaml(&pod("n1"))), pod("n1"), "unexpected operation \"UPDATE\", node \"n1\" can only create and delete mirror pods"),
            (delete(&resources::PODS, yaml(&pod("n1"))), pod("n1"), ""),
            (delete(&resources::PODS, yaml("{metadata: {name: other, namespace: ns}}")), pod("n2"), "node \"n1\" can only delete pods with spec.nodeName set to itself"),
            (update(&resources::PODS, yaml(&pod("n1"))).subresource("status"), pod("n1"), ""),
            (update(&resources::PODS, yaml(&pod("n2"))).subresource("status"), pod("n2"), "node \"n1\" can only update pod status for pods with spec.nodeName set to itself"),
            (create(&resources::NODES), node("", ""), ""),
            (create(&resources::NODES), "{metadata: {name: n2}}".to_owned(), "node \"n1\" is not allowed to modify node \"n2\""),
            (create(&resources::NODES), node(", ownerReferences: [{kind: Pod}]", ""), "node \"n1\" is not allowed to set ownerReferences"),
            (create(&resources::NODES), node(", labels: {node-restriction.kubernetes.io/a: b}", ""), "node \"n1\" is not allowed to set the following labels: node-restriction.kubernetes.io/a"),
            (update(&resources::NODES, yaml(&node("", "taints: [{key: a}]"))), node("", ""), "node \"n1\" is not allowed to modify taints"),
            (update(&resources::NODES, yaml(&node("", ""))), node(", ownerReferences: [{kind: Pod}]", ""), "node \"n1\" is not allowed to modify ownerReferences"),
            (update(&resources::NODES, yaml(&node("", ""))), node(", labels: {k8s.io/a: b}", ""), "is not allowed to modify labels: k8s.io/a"),
            (tokens(), token("mine", "p1", "vault"), ""),
            (tokens(), token("mine", "p1", "csi"), ""),
            (tokens(), token("mine", "p1", "allowed"), ""),
            (tokens(), token("mine", "p1", "other"), "audience \"other\" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience"),
            (tokens(), token("mine", "p1", "a, b"), "node may only request 0 or 1 audiences"),
            (tokens(), token("mine", "p9", ""), "the UID in the bound object reference (p9) does not match the UID in record. The object might have been deleted and then recreated"),
            (tokens(), token("mine", "", ""), "node requested token with a pod binding without a uid"),
            (tokens(), token("other", "p2", ""), "node requested token bound to a pod scheduled on a different node"),
            (create(&leases), "{metadata: {name: n1, namespace: kube-node-lease}}".to_owned(), ""),
            (create(&leases), "{metadata: {name: n1, namespace: ns}}".to_owned(), "can only access leases in the \"kube-node-lease\" system namespace"),
            (create(&leases), "{metadata: {name: n2, namespace: kube-node-lease}}".to_owned(), "can only access node lease with the same name as the requesting node"),
            (create(&csi_nodes), "{metadata: {name: n2}}".to_owned(), "can only access CSINode with the same name as the requesting node"),
            (create(slices), "{metadata: {name: s}, spec: {nodeName: n2}}".to_owned(), "can only create ResourceSlice with the same NodeName as the requesting node"),
            (create(slices), "{metadata: {name: s}, spec: {nodeName: n1}}".to_owned(), ""),
            (create(&resources::PERSISTENT_VOLUME_CLAIMS), "{metadata: {name: c}}".to_owned(), "may only update PVC status"),
            (create(&resources::CERTIFICATE_SIGNING_REQUESTS), "{metadata: {name: c}, spec: {signerName: kubernetes.io/kubelet-serving, request: eA==}}".to_owned(), "unable to parse csr: PEM block type must be CERTIFICATE REQUEST"),
        ];
        let kubelet = meta::User {
            name: "system:node:n1".into(),
            groups: vec!["system:nodes".into()],
            ..meta::User::anonymous()
        };
        for (request, object, expected) in cases {
            let mut object = yaml(&object);
            let outcome = request.by(kubelet.clone()).admit(&plugin, &mut object, &cluster);
            let message = outcome.message();
            let why =
                message.split_once(" is forbidden: ").map_or(message.as_str(), |(_, why)| why);
            assert_eq!(why, expected, "{object:?}");
        }
        let mut pod = yaml(&pod("n2"));
        let outcome = create(&resources::PODS).admit(&plugin, &mut pod, &cluster);
        assert_eq!(outcome.message(), "", "other users are not restricted");
    }
}
