//! How many objects there are, counted when somebody asks.

use std::sync::Arc;

use prometheus::{
    IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use registry::{Kind, Storage};

/// Registers `apiserver_resource_objects` (and its older name `apiserver_storage_objects`).
pub(crate) fn register(registry: &Registry, kinds: &[Arc<Kind>]) {
    let mut counted = Vec::new();
    for kind in kinds {
        let Some(storage) = &kind.storage else { continue };
        if !counted
            .iter()
            .any(|(_, _, other): &(String, String, Arc<Storage>)| other.prefix == storage.prefix)
        {
            let (group, resource) = (kind.gvk().group.to_string(), kind.facts.plural.to_string());
            counted.push((group, resource, storage.clone()));
        }
    }
    let gauge = |name: &str, labels: &[&str]| {
        IntGaugeVec::new(Opts::new(name, "Objects in the store by resource."), labels)
            .expect("valid names")
    };
    let objects = Objects {
        counted,
        new: gauge("apiserver_resource_objects", &["group", "resource"]),
        old: gauge("apiserver_storage_objects", &["resource"]),
    };
    registry.register(Box::new(objects)).expect("registered once");
}

struct Objects {
    counted: Vec<(String, String, Arc<Storage>)>,
    new: IntGaugeVec,
    old: IntGaugeVec,
}

impl Collector for Objects {
    fn desc(&self) -> Vec<&Desc> {
        let mut desc = self.new.desc();
        desc.extend(self.old.desc());
        desc
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for (group, resource, storage) in &self.counted {
            let count = storage.cache.snapshot().len() as i64;
            self.new.with_label_values(&[group, resource]).set(count);
            let full =
                if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
            self.old.with_label_values(&[&full]).set(count);
        }
        let mut families = self.new.collect();
        families.extend(self.old.collect());
        families
    }
}
