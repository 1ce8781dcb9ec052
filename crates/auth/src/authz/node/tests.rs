use std::collections::HashSet;

use meta::{RequestInfo, Value, value};

use super::{
    references::{pod_refers_to, volume_refers_to_secret},
    *,
};
use crate::authz::Decision;

/// Node `n1` is related to these, by kind and `namespace/name`.
struct Fixed(HashSet<(Related, String)>);

impl Nodes for Fixed {
    fn is_related(&self, node: &str, what: Related, namespace: &str, name: &str) -> bool {
        node == "n1" && self.0.contains(&(what, format!("{namespace}/{name}")))
    }
}

fn node(name: &str) -> User {
    User {
        name: format!("system:node:{name}").into(),
        groups: vec!["system:nodes".into()],
        ..User::default()
    }
}

fn decide(authorizer: &NodeAuthorizer, user: &User, text: &str) -> Verdict {
    let info = request(text);
    match authorizer.authorize(&Attributes::of_request(user, &info)) {
        Authorize::Ready(verdict) => verdict,
        Authorize::Pending(_) => panic!("decides from memory"),
    }
}

/// `verb [namespace:]resource[/subresource][.group][=name][ selector]`
fn request(text: &str) -> RequestInfo {
    let mut words = text.split(' ');
    let (verb, what) = (words.next().unwrap(), words.next().unwrap());
    let (what, name) = what.split_once('=').unwrap_or((what, ""));
    let (namespace, what) = what.split_once(':').unwrap_or(("", what));
    let (what, group) = what.split_once('.').unwrap_or((what, ""));
    let (resource, subresource) = what.split_once('/').unwrap_or((what, ""));
    RequestInfo {
        verb: verb.into(),
        is_resource: true,
        group: group.into(),
        namespace: namespace.into(),
        resource: resource.into(),
        subresource: subresource.into(),
        name: name.into(),
        field_selector: words.next().unwrap_or_default().to_owned(),
        ..RequestInfo::default()
    }
}

#[test]
fn a_node_reads_what_its_pods_need_and_writes_what_is_its_own() {
    let related = [
        (Related::Secret, "ns/s"),
        (Related::Pod, "ns/p"),
        (Related::ServiceAccount, "ns/a"),
        (Related::Volume, "/v"),
        (Related::ResourceSlice, "/r"),
    ];
    let related = related.map(|(what, name)| (what, name.to_owned()));
    let authorizer = NodeAuthorizer::new(Arc::new(Fixed(related.into())));
    let none = "no relationship found between node 'n1' and this object";
    let cases = [
        ("get ns:secrets=s", None),
        ("watch ns:secrets=s", None),
        ("get ns:secrets=other", Some(none)),
        ("list ns:secrets", Some("No Object name found")),
        ("list secrets", Some("can only read namespaced object of this type")),
        ("update ns:secrets=s", Some("can only read resources of this type")),
        ("get persistentvolumes=v", None),
        ("list persistentvolumes", Some("can only get individual resources of this type")),
        ("get ns:pods=p", None),
        ("get ns:pods=q", Some(none)),
        ("list pods spec.nodeName=n1", None),
        (
            "list pods spec.nodeName=n2",
            Some("can only list/watch pods with spec.nodeName field selector"),
        ),
        (
            "list pods spec.nodeName!=n1",
            Some("can only list/watch pods with spec.nodeName field selector"),
        ),
        ("patch ns:pods/status=p", None),
        ("update ns:pods=p", Some("")),
        ("create ns:pods/eviction=p", None),
        ("get nodes=n1", None),
        ("get nodes=n2", Some("node 'n1' cannot read 'n2', only its own Node object")),
        ("list nodes", Some("node 'n1' cannot read all nodes, only its own Node object")),
        ("patch nodes/status=n1", None),
        ("get nodes/proxy=n1", Some("")),
        ("create ns:serviceaccounts/token=a", None),
        ("create ns:serviceaccounts/token=b", Some(none)),
        (
            "create ns:serviceaccounts",
            Some("can only create tokens for individual service accounts"),
        ),
        ("get kube-node-lease:leases.coordination.k8s.io=n1", None),
        ("create kube-node-lease:leases.coordination.k8s.io", None),
        (
            "get kube-node-lease:leases.coordination.k8s.io=n2",
            Some("can only access node lease with the same name as the requesting node"),
        ),
        (
            "get default:leases.coordination.k8s.io=n1",
            Some("can only access leases in the \"kube-node-lease\" system namespace"),
        ),
        ("patch resourceslices.resource.k8s.io=r", None),
        ("list services", None),
        ("create ns:events", None),
        ("delete ns:events=e", Some("")),
        ("list deployments.apps", Some("")),
    ];
    for (text, refused) in cases {
        let verdict = decide(&authorizer, &node("n1"), text);
        let expected = match refused {
            None => Verdict::allow(""),
            Some(reason) => Verdict::no_opinion(reason),
        };
        assert_eq!(verdict, expected, "{text}");
    }
}

#[test]
fn a_node_is_one_by_name_and_group() {
    let authorizer = NodeAuthorizer::new(Arc::new(Fixed(HashSet::new())));
    let by_name = User { name: "system:node:n1".into(), ..User::default() };
    let by_group = User { groups: vec!["system:nodes".into()], ..User::default() };
    for user in [by_name, by_group, node("")] {
        let verdict = decide(&authorizer, &user, "list services");
        assert_eq!(verdict.decision, Decision::NoOpinion, "{user:?}");
    }
    assert!(authorizer.rules(&node("n1"), "").incomplete);
}

#[test]
fn references_are_found_wherever_they_are() {
    let pod = value!({
        "metadata": {"name": "p"},
        "spec": {
            "serviceAccountName": "account",
            "imagePullSecrets": [{"name": "s-pull"}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "s-all"}}, {"configMapRef": {"name": "c-all"}}]}],
            "containers": [{"env": [
                {"valueFrom": {"secretKeyRef": {"name": "s-one"}}},
                {"valueFrom": {"configMapKeyRef": {"name": "c-one"}}},
            ]}],
            "volumes": [
                {"name": "v1", "secret": {"secretName": "s-volume"}},
                {"name": "v2", "configMap": {"name": "c-volume"}},
                {"name": "v3", "projected": {"sources": [{"secret": {"name": "s-projected"}}, {"configMap": {"name": "c-projected"}}]}},
                {"name": "v4", "csi": {"nodePublishSecretRef": {"name": "s-csi"}}},
                {"name": "v5", "iscsi": {"secretRef": {"name": "s-iscsi"}}},
                {"name": "v6", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "v7", "ephemeral": {}},
            ],
            "resourceClaims": [{"name": "r", "resourceClaimName": "device"}],
        },
        "status": {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "made"}]},
    });
    let cases: [(Related, &[&str]); 5] = [
        (
            Related::Secret,
            &["s-pull", "s-all", "s-one", "s-volume", "s-projected", "s-csi", "s-iscsi"],
        ),
        (Related::ConfigMap, &["c-all", "c-one", "c-volume", "c-projected"]),
        (Related::Claim, &["claim", "p-v7"]),
        (Related::ServiceAccount, &["account"]),
        (Related::ResourceClaim, &["device", "made"]),
    ];
    let mut mirror = pod.clone();
    mirror.set_at(&["metadata", "annotations", "kubernetes.io/config.mirror"], "x");
    for (what, names) in cases {
        for name in names {
            assert!(pod_refers_to(&pod, what, name), "{what:?} {name}");
            assert!(!pod_refers_to(&mirror, what, name), "a mirror pod gives nothing");
        }
        assert!(!pod_refers_to(&pod, what, "other") && !pod_refers_to(&pod, what, ""));
    }
    let volume = |source: Value| {
        let mut volume = value!({"spec": {"claimRef": {"namespace": "ns"}}});
        volume.set_at(
            &["spec", source.str_at(&["kind"])],
            source.get("source").cloned().unwrap_or_default(),
        );
        volume
    };
    let csi = volume(value!({"kind": "csi", "source": {
        "nodeStageSecretRef": {"namespace": "x", "name": "stage"},
        "controllerPublishSecretRef": {"namespace": "x", "name": "controller"}}}));
    assert!(volume_refers_to_secret(&csi, "x", "stage"));
    assert!(!volume_refers_to_secret(&csi, "ns", "stage"));
    assert!(!volume_refers_to_secret(&csi, "x", "controller"), "not for kubelets");
    let azure = volume(value!({"kind": "azureFile", "source": {"secretName": "a"}}));
    assert!(volume_refers_to_secret(&azure, "ns", "a"));
}
