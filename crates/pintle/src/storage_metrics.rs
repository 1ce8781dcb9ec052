//! How many objects there are, counted when somebody asks.

use std::sync::Arc;

use endpoints::Resources;
use prometheus::{
    IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use registry::{Kind, Storage};

/// Registers `apiserver_resource_objects` (and its older name `apiserver_storage_objects`).
pub(crate) fn register(registry: &Registry, kinds: &[Arc<Kind>], extensions: &Arc<Resources>) {
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
        extensions: extensions.clone(),
        new: gauge("apiserver_resource_objects", &["group", "resource"]),
        old: gauge("apiserver_storage_objects", &["resource"]),
    };
    registry.register(Box::new(objects)).expect("registered once");
}

struct Objects {
    counted: Vec<(String, String, Arc<Storage>)>,
    extensions: Arc<Resources>,
    new: IntGaugeVec,
    old: IntGaugeVec,
}

impl Objects {
    fn count(&self, group: &str, resource: &str, storage: &Storage) {
        let count = storage.cache.snapshot().len() as i64;
        self.new.with_label_values(&[group, resource]).set(count);
        let full =
            if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        self.old.with_label_values(&[full.as_str()]).set(count);
    }
}

impl Collector for Objects {
    fn desc(&self) -> Vec<&Desc> {
        let mut desc = self.new.desc();
        desc.extend(self.old.desc());
        desc
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // Custom kinds that are gone are not counted any more.
        self.new.reset();
        self.old.reset();
        for (group, resource, storage) in &self.counted {
            self.count(group, resource, storage);
        }
        for kind in self.extensions.kinds().iter().filter(|kind| kind.is_custom()) {
            if let Some(storage) = &kind.storage {
                self.count(&kind.gvk().group, &kind.facts.plural, storage);
            }
        }
        let mut families = self.new.collect();
        families.extend(self.old.collect());
        families
    }
}
