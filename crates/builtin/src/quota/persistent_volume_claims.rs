//! PersistentVolumeClaims: their number and the storage they request, in all and by storage class.

use admission::{
    Operation,
    quota::{Evaluator, ResourceList, Scope},
};
use meta::{Value, quantity::Quantity};

use super::count;
pub(super) struct PersistentVolumeClaims {
    recover_expansion: bool,
    volume_attributes_class: bool,
}

impl PersistentVolumeClaims {
    pub(super) fn new(is_enabled: &dyn Fn(&str) -> bool) -> Self {
        Self {
            recover_expansion: is_enabled("RecoverVolumeExpansionFailure"),
            volume_attributes_class: is_enabled("VolumeAttributesClass"),
        }
    }

    /// The storage that a claim requests or, if that is more, was given; whole bytes, as a quota's status
    /// has them.
    fn storage(&self, claim: &Value) -> Option<Quantity> {
        let quantity = |path: &[&str]| Quantity::from_value(claim.at(path)?).ok();
        let mut storage = quantity(&["spec", "resources", "requests", "storage"])?;
        if self.recover_expansion
            && let Some(allocated) = quantity(&["status", "allocatedResources", "storage"])
            && allocated > storage
        {
            storage = allocated;
        }
        storage.round_up(0);
        Some(storage)
    }
}

const COUNT: &str = "count/persistentvolumeclaims";
const CLAIMS: &str = "persistentvolumeclaims";
const STORAGE: &str = "requests.storage";
/// Between the name of a storage class and what is limited of it.
const BY_CLASS: &str = ".storageclass.storage.k8s.io/";

impl Evaluator for PersistentVolumeClaims {
    fn handles(
        &self,
        operation: Operation,
        subresource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> bool {
        match subresource {
            "" => matches!(operation, Operation::Create | Operation::Update),
            "status" => {
                let allocated =
                    |claim: &Value| claim.at(&["status", "allocatedResources", "storage"]).cloned();
                let classes = |claim: &Value| attributes_classes(claim).map(str::to_owned);
                old.is_some_and(|old| {
                    self.recover_expansion && allocated(old) != allocated(object)
                        || self.volume_attributes_class && classes(old) != classes(object)
                })
            }
            _ => false,
        }
    }

    fn measures(&self, name: &str) -> bool {
        let of_class = name.find(BY_CLASS).map(|at| &name[at + BY_CLASS.len()..]);
        name == COUNT || matches!(of_class.unwrap_or(name), CLAIMS | STORAGE)
    }

    fn matches_scope(&self, scope: &Scope, claim: &Value) -> Option<bool> {
        if !self.volume_attributes_class {
            return None;
        }
        if scope.name != "VolumeAttributesClass" {
            return Some(false);
        }
        let classes = attributes_classes(claim);
        if classes.iter().all(|class| class.is_empty()) {
            return Some(scope.selects(None));
        }
        Some(classes.iter().any(|class| !class.is_empty() && scope.selects(Some(class))))
    }

    fn usage(&self, claim: &Value) -> ResourceList {
        let class =
            match claim.at(&["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"])
            {
                Some(class) => class.as_str().unwrap_or_default(),
                None => claim.str_at(&["spec", "storageClassName"]),
            };
        let mut usage = ResourceList::from([(COUNT.into(), count(1)), (CLAIMS.into(), count(1))]);
        if !class.is_empty() {
            usage.insert(format!("{class}{BY_CLASS}{CLAIMS}").into(), count(1));
        }
        if let Some(storage) = self.storage(claim) {
            if !class.is_empty() {
                usage.insert(format!("{class}{BY_CLASS}{STORAGE}").into(), storage.clone());
            }
            usage.insert(STORAGE.into(), storage);
        }
        usage
    }
}

/// The VolumeAttributesClasses that a claim refers to: wanted, current, and being changed to.
fn attributes_classes(claim: &Value) -> [&str; 3] {
    [
        claim.str_at(&["spec", "volumeAttributesClassName"]),
        claim.str_at(&["status", "currentVolumeAttributesClassName"]),
        claim.str_at(&["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"]),
    ]
}
