//! The table of built-in kinds: facts from the definitions, strategies from this crate, storage
//! opened once per resource.

use std::{collections::HashMap, sync::Arc, time::Duration};

use meta::{GroupResource, Str};
use registry::{Conversion, Kind, Storage, StorageOptions, Strategy};
use schema::{ResourceFacts, Schema};
use store::Backend;

use crate::{
    Access, Definitions, RestStorageProvider, TokenIssuer, columns,
    conversion::{self, ServedVersion, ServedVersions},
    feature_gated_fields,
    feature_gates::FeatureGates,
    kind_facts,
    storage_format::{StorageFormat, StorageFormats},
    strategies,
};

/// What of the definitions is served, and how.
pub struct Options {
    /// `/registry`
    pub prefix: String,
    /// What the backend keeps of an object.
    pub form: StorageFormat,
    /// Which resources are read from the backend each time, not from memory.
    pub from_store: Arc<dyn Fn(&GroupResource) -> bool + Send + Sync>,
    /// Resources that live in another backend than the rest.
    pub overrides: Vec<(GroupResource, Arc<dyn Backend>)>,
    pub event_ttl: Duration,
    /// The strategy of CustomResourceDefinition.
    pub crd_strategy: Arc<dyn Strategy>,
    /// Authorizer and token authenticator, for reviews and escalation checks.
    pub access: Access,
    /// Issues tokens of service accounts.
    pub tokens: Arc<dyn TokenIssuer>,
    /// `10.0.0.0/24`: one range, or two of different families; the first is the default.
    pub service_cluster_ip_ranges: Vec<String>,
    /// First and last of the ports that services get on nodes.
    pub service_node_ports: (u16, u16),
    /// Pods may run privileged containers.
    pub allow_privileged: bool,
    pub features: FeatureGates,
}

/// Makes the kinds for the resources that are served. One cache per resource starts to fill here.
pub fn kinds(
    definitions: &Definitions,
    schema: &Arc<Schema>,
    served: &dyn Fn(&ResourceFacts) -> bool,
    backend: &Arc<dyn Backend>,
    options: &Options,
) -> (Vec<Arc<Kind>>, RestStorageProvider) {
    let rest_storage = RestStorageProvider::new(options, backend);
    let mut served_resources: Vec<ServedResource<'_>> = Vec::new();
    for facts in definitions.resources.iter().filter(|facts| served(facts)) {
        served_resources.push(ServedResource::new(definitions, facts));
    }
    let forms = StorageFormats::new(definitions, schema, options.form, &options.crd_strategy);
    if let Some(codec) = forms.between_servers("RangeAllocation") {
        rest_storage.share_node_ports(&options.prefix, codec);
    }
    if let Some(codec) = forms.between_servers("Endpoints") {
        rest_storage.share_addresses(&options.prefix, codec);
    }
    let mut storages: HashMap<Str, Arc<Storage>> = HashMap::new();
    let mut kinds = Vec::with_capacity(served_resources.len());
    for served_resource in &served_resources {
        let storage = served_resource.stored.as_ref().map(|stored| {
            let opened = storages.entry(stored.prefix.clone()).or_insert_with(|| {
                let fields = fields_of(&served_resources, &stored.prefix);
                let mut own = options.overrides.iter();
                let own = own.find(|(resource, _)| *resource == served_resource.resource());
                Storage::start(
                    own.map_or(backend, |(_, backend)| backend).clone(),
                    served_resource.storage_options(schema, stored, fields, &forms, options),
                )
            });
            opened.clone()
        });
        let (group, name) = (&served_resource.facts.kind.group, &served_resource.facts.kind.kind);
        let facts = kind_facts::of(&served_resource.facts.kind);
        let kind = Kind::new(
            served_resource.facts.clone(),
            schema.clone(),
            facts.behaviour,
            strategies::of(group, name, options.features, &options.crd_strategy),
            storage,
            served_resource.conversion.clone(),
            None,
        );
        let kind = kind.with_versions(Arc::new(served_resource.versions(&served_resources)));
        let kind = kind.with_described_columns(|column| columns::describe(name, column));
        let gated_fields =
            feature_gated_fields::of(facts, options.allow_privileged, options.features);
        kinds.push(Arc::new(rest_storage.provide(kind).with_gated_fields(gated_fields)));
    }
    rest_storage.link_kinds(&kinds);
    (kinds, rest_storage)
}

/// The kinds of admission configurations in `v1`, for those that are read from files: their names, which the
/// API refuses, are allowed.
pub fn static_admission_kinds(
    definitions: &Definitions,
    schema: &Arc<Schema>,
    crd_strategy: &Arc<dyn Strategy>,
) -> Vec<Kind> {
    let of_group = definitions.resources.iter().filter(|facts| {
        facts.kind.group == "admissionregistration.k8s.io" && facts.kind.version == "v1"
    });
    let kinds = of_group.map(|facts| {
        let (own, off) = (kind_facts::of(&facts.kind), FeatureGates::default());
        let strategy = strategies::of(&facts.kind.group, &facts.kind.kind, off, crd_strategy);
        Kind::new(facts.clone(), schema.clone(), own.behaviour, strategy, None, None, None)
            .with_gated_fields(feature_gated_fields::of(own, false, off))
    });
    kinds.collect()
}

/// A served resource, with its storage version and the conversion to it.
pub(crate) struct ServedResource<'a> {
    pub(crate) facts: &'a ResourceFacts,
    pub(crate) stored: Option<Stored>,
    conversion: Option<Arc<dyn Conversion>>,
}

pub(crate) struct Stored {
    pub(crate) prefix: Str,
    pub(crate) gvk: meta::GroupVersionKind,
    pub(crate) ty: schema::TypeId,
}

impl<'a> ServedResource<'a> {
    pub(crate) fn new(definitions: &Definitions, facts: &'a ResourceFacts) -> Self {
        let Some(storage) = &facts.storage else {
            return Self { facts, stored: None, conversion: None };
        };
        let gvk = storage.version.with_kind(&facts.kind.kind);
        // CRDs are stored by kube-apiserver in a version that is not served any more and has another
        // shape. The cache holds them as they are served; `stored` knows the other one.
        let (gvk, ty) = match definitions.type_of(&gvk) {
            Some(ty) if gvk.group != "apiextensions.k8s.io" => (gvk, ty),
            _ => (facts.kind.clone(), facts.type_id),
        };
        let conversion = conversion::between(&facts.kind, &gvk);
        Self { facts, stored: Some(Stored { prefix: storage.prefix.clone(), gvk, ty }), conversion }
    }

    /// The versions that server-side apply converts between: those of the same group.
    // Compat: events are served by two groups, neither of which knows owners of the other.
    fn versions(&self, served_resources: &[ServedResource<'_>]) -> ServedVersions {
        let (group, name) = (&self.facts.kind.group, &self.facts.plural);
        let same = |facts: &ResourceFacts| facts.kind.group == *group && facts.plural == *name;
        let versions = served_resources
            .iter()
            .filter(|served_resource| same(served_resource.facts))
            .map(|served_resource| ServedVersion {
                gvk: served_resource.facts.kind.clone(),
                ty: served_resource.facts.type_id,
                conversion: served_resource.conversion.clone(),
            });
        ServedVersions(versions.collect())
    }

    fn resource(&self) -> GroupResource {
        let (group, resource) = (self.facts.kind.group.clone(), self.facts.plural.clone());
        GroupResource { group, resource }
    }

    fn storage_options(
        &self,
        schema: &Arc<Schema>,
        stored: &Stored,
        fields: Vec<Str>,
        forms: &StorageFormats<'_>,
        options: &Options,
    ) -> StorageOptions {
        let is_event = self.facts.kind.kind == "Event";
        StorageOptions {
            prefix: format!("{}/{}/", options.prefix, stored.prefix).into(),
            namespaced: self.facts.namespaced,
            gvk: stored.gvk.clone(),
            schema: schema.clone(),
            ty: stored.ty,
            ttl: is_event.then_some(options.event_ttl),
            // A kubelet asks for the pods of its node, again and again.
            index: (stored.prefix == "pods").then(|| Str::new_static("spec.nodeName")),
            fields,
            custom: false,
            from_store: (options.from_store)(&self.resource()),
            codec: forms.codec(self.facts, &stored.gvk, stored.ty),
        }
    }
}

/// All fields that any served version of a stored resource may select by, as they are stored.
fn fields_of(served_resources: &[ServedResource<'_>], prefix: &Str) -> Vec<Str> {
    let mut fields: Vec<Str> = Vec::new();
    let same = served_resources.iter().filter(|served_resource| {
        served_resource.stored.as_ref().is_some_and(|s| s.prefix == *prefix)
    });
    for served_resource in same {
        let selectable = served_resource.facts.selectable.iter();
        let selectable = selectable.filter(|field| !field.label.starts_with("metadata."));
        for path in selectable.flat_map(|field| &field.paths) {
            let path = match &served_resource.conversion {
                Some(conversion) => Str::new(conversion.stored_path(path)),
                None => path.clone(),
            };
            if !fields.contains(&path) {
                fields.push(path);
            }
        }
    }
    fields
}
