//! The built-in table, as a server would serve it.

use std::sync::Arc;

use aggregator::ServedGroupVersion;
use builtin::Definitions;
use schema::ResourceFacts;

/// What is served by default, or everything that can be turned on.
pub(crate) fn served(definitions: &Definitions, all: bool) -> Vec<ServedGroupVersion> {
    let resources: Vec<Arc<ResourceFacts>> = definitions
        .resources
        .iter()
        .filter(|resource| all || resource.on_by_default)
        .cloned()
        .map(Arc::new)
        .collect();
    definitions
        .group_versions
        .iter()
        .filter(|facts| !facts.internal && (all || facts.on_by_default))
        .map(|facts| ServedGroupVersion::new(facts, &resources))
        .collect()
}
