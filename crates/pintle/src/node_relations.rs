//! Which objects the pods of a node need. No graph is kept: the watch cache of pods knows which pods
//! are on a node, these are few, and only those whose bytes name the object are decoded.

use std::sync::{Arc, OnceLock};

use auth::authz::node::{
    Nodes, Related,
    references::{claims, pod_refers_to, volume_refers_to_secret},
};
use memchr::memmem;
use meta::Value;
use registry::{Kind, Storage};
use store::Entry;

use crate::in_process::tree;

/// Known once the caches are filled; until then nothing is related to anything.
#[derive(Default)]
pub(crate) struct NodeRelations(OnceLock<Caches>);

struct Caches {
    pods: Arc<Storage>,
    claims: Option<Arc<Storage>>,
    volumes: Option<Arc<Storage>>,
    attachments: Option<Arc<Storage>>,
    resource_slices: Option<Arc<Storage>>,
    certificate_requests: Option<Arc<Storage>>,
}

impl NodeRelations {
    pub(crate) fn connect(&self, kinds: &[Arc<Kind>]) {
        let storage = |group: &str, name: &str| {
            let of_group = kinds.iter().filter(|kind| kind.gvk().group == group);
            let mut named = of_group.filter(|kind| kind.gvk().kind == name);
            named.find_map(|kind| kind.storage.clone())
        };
        let Some(pods) = storage("", "Pod") else { return };
        let _ = self.0.set(Caches {
            pods,
            claims: storage("", "PersistentVolumeClaim"),
            volumes: storage("", "PersistentVolume"),
            attachments: storage("storage.k8s.io", "VolumeAttachment"),
            resource_slices: storage("resource.k8s.io", "ResourceSlice"),
            certificate_requests: storage("certificates.k8s.io", "PodCertificateRequest"),
        });
    }
}

impl Nodes for NodeRelations {
    fn is_related(&self, node: &str, what: Related, namespace: &str, name: &str) -> bool {
        let Some(caches) = self.0.get() else { return false };
        let on_node = |storage: &Option<Arc<Storage>>| {
            let found = storage.as_ref().and_then(|storage| object(storage, namespace, name));
            found.is_some_and(|object| object.str_at(&["spec", "nodeName"]) == node)
        };
        match what {
            Related::Pod => {
                caches.pods_on(node).any(|pod| pod.namespace == namespace && pod.name == name)
            }
            Related::Attachment => on_node(&caches.attachments),
            Related::ResourceSlice => on_node(&caches.resource_slices),
            Related::CertificateRequest => on_node(&caches.certificate_requests),
            Related::Volume => caches.volumes_on(node).any(|(volume, _)| volume == name),
            Related::Secret => {
                caches.pod_needs(node, what, namespace, name)
                    || caches
                        .volumes_on(node)
                        .any(|(_, volume)| volume_refers_to_secret(&volume, namespace, name))
            }
            _ => caches.pod_needs(node, what, namespace, name),
        }
    }
}

impl Caches {
    fn pods_on(&self, node: &str) -> impl Iterator<Item = Arc<Entry>> {
        let snapshot = self.pods.cache.snapshot();
        let pods: Vec<Arc<Entry>> = snapshot.indexed(node).cloned().collect();
        pods.into_iter()
    }

    fn pod_needs(&self, node: &str, what: Related, namespace: &str, name: &str) -> bool {
        let finder = memmem::Finder::new(name);
        // The name of a claim may be put together from others.
        let whole = |pod: &Entry| what == Related::Claim || finder.find(&pod.json.text()).is_some();
        self.pods_on(node)
            .filter(|pod| pod.namespace == namespace && whole(pod))
            .filter_map(|pod| tree(&pod).ok())
            .any(|pod| pod_refers_to(&pod, what, name))
    }

    /// The volumes that are bound to the claims of a node's pods, by name.
    fn volumes_on(&self, node: &str) -> impl Iterator<Item = (String, Value)> {
        let pods =
            self.pods_on(node).filter_map(|pod| Some((pod.namespace.clone(), tree(&pod).ok()?)));
        pods.flat_map(move |(namespace, pod)| {
            let claims: Vec<String> = claims(&pod).collect();
            claims.into_iter().filter_map(move |claim| {
                let claim = object(self.claims.as_ref()?, &namespace, &claim)?;
                let name = claim.str_at(&["spec", "volumeName"]).to_owned();
                let volume = object(self.volumes.as_ref()?, "", &name)?;
                // Both must agree that they belong together.
                let claimed = |field| volume.str_at(&["spec", "claimRef", field]);
                let same = claimed("namespace") == namespace
                    && claimed("name") == claim.str_at(&["metadata", "name"]);
                same.then_some((name, volume))
            })
        })
    }
}

fn object(storage: &Storage, namespace: &str, name: &str) -> Option<Value> {
    tree(&*storage.cached(namespace, name)?).ok()
}
