//! Builds the served kinds of a definition: one for each served version, over one storage prefix and
//! one watch cache.

use std::sync::{Arc, LazyLock};

use endpoints::LoopbackClient;
use meta::{GroupResource, GroupVersion, GroupVersionKind, Str};
use patch::apply::{PathElement, ReplicasPaths};
use registry::{
    ApplyTypes, Behaviour, Conversion, CustomKind, GarbageCollectionPolicy, Kind, LazyApplyTypes,
    MetadataChecks, ObjectMetaValidation, Storage, StorageOptions,
};
use schema::openapi::CustomResource;
use schema::{
    ResourceFacts, Schema, SelectableField, StorageEncoding, StorageFacts, SubresourceFacts,
    UnknownLabel,
};
use sha2::{Digest as _, Sha256};
use store::Backend;

use crate::{
    columns,
    conditions::Condition,
    crd::{Crd, Version, schema_tree},
    custom_resource_strategy::CustomResourceStrategy,
    prune_and_default::{
        DefinitionVersions, NoneConverter, OwnWrites, StoredVersionCodec, VersionSchema,
    },
    types::{DefinitionTypes, UnstructuredType},
    webhook::{ConversionWebhook, WebhookConversion},
};

/// A definition that is served.
pub(crate) struct ServedDefinition {
    pub(crate) crd: Crd,
    pub(crate) storage: Arc<Storage>,
    /// One for each served version.
    pub(crate) kinds: Vec<Arc<Kind>>,
    /// The storage version, served or not; for the finalizing controller and the garbage collector.
    pub(crate) stored: Arc<Kind>,
    pub(crate) terminating: bool,
    /// The condition `NonStructuralSchema`, if it applies.
    pub(crate) schema_condition: Option<Condition>,
}

/// What all served definitions share.
pub(crate) struct ServingContext {
    pub(crate) backend: Arc<dyn Backend>,
    /// `/registry`
    pub(crate) prefix: String,
    /// The built-in types, for `ObjectMeta`.
    pub(crate) schema: Arc<Schema>,
    /// The type by which objects of all definitions are decoded.
    pub(crate) unstructured: UnstructuredType,
    /// Client for the services of conversion webhooks.
    pub(crate) local: LoopbackClient,
    /// To conversion webhooks.
    pub(crate) webhook_dials: client::WebhookDials,
    pub(crate) from_store: Arc<dyn Fn(&GroupResource) -> bool + Send + Sync>,
}

impl ServedDefinition {
    /// Starts the cache of a definition; it is not filled yet. The cache of `before`, which served the
    /// same spec, is reused.
    pub(crate) fn new(
        serving: &ServingContext,
        crd: Crd,
        terminating: bool,
        schema_condition: Option<Condition>,
        before: Option<&Self>,
    ) -> Result<Self, &'static str> {
        let builder = DefinitionBuilder::new(serving, &crd)?;
        let storage = match before {
            Some(before) => before.storage.clone(),
            None => builder.storage(serving),
        };
        let mut kinds = Vec::new();
        let mut stored = None;
        for (at, version) in builder.versions.iter().enumerate() {
            let kind = Arc::new(builder.kind(at, &storage, terminating));
            if version.version.storage {
                stored = Some(kind.clone());
            }
            if version.version.served {
                kinds.push(kind);
            }
        }
        let stored = stored.ok_or("no version is stored")?;
        drop(builder);
        Ok(Self { crd, storage, kinds, stored, terminating, schema_condition })
    }
}

struct DefinitionBuilder<'a> {
    crd: &'a Crd,
    unstructured: UnstructuredType,
    versions: Vec<VersionParts<'a>>,
    /// Index of the storage version in `versions`.
    stored_at: usize,
    apply_types: Arc<LazyApplyTypes>,
    all: Arc<DefinitionVersions>,
    replicas_paths: Arc<ReplicasPaths>,
    webhook: Option<Arc<ConversionWebhook>>,
}

struct VersionParts<'a> {
    version: &'a Version,
    schema: Arc<VersionSchema>,
}

impl<'a> DefinitionBuilder<'a> {
    fn new(serving: &ServingContext, crd: &'a Crd) -> Result<Self, &'static str> {
        let versions = crd.versions.iter();
        let builder =
            |version| VersionParts { version, schema: Arc::new(VersionSchema::new(crd, version)) };
        let versions: Vec<VersionParts<'a>> = versions.map(builder).collect();
        let stored_at = versions.iter().position(|version| version.version.storage);
        let stored_at = stored_at.ok_or("no version is stored")?;
        let schemas: Vec<_> = versions.iter().map(|version| version.schema.clone()).collect();
        let apply_types = Arc::new(apply_types(serving.schema.clone(), crd));
        let all = DefinitionVersions { versions: schemas.clone(), types: apply_types.clone() };
        let all = Arc::new(all);
        let dials = &serving.webhook_dials;
        let webhook = ConversionWebhook::of(crd, schemas, &serving.local, dials).map(Arc::new);
        let replicas_paths = crd.versions.iter().map(|version| {
            let path = version.scale.as_ref().map(|scale| &scale.spec_replicas);
            let path = path.map(|path| path.iter().map(|name| PathElement::field(name)).collect());
            (format!("{}/{}", crd.group, version.name), path)
        });
        let replicas_paths = Arc::new(replicas_paths.collect());
        let unstructured = serving.unstructured.clone();
        Ok(Self {
            crd,
            unstructured,
            versions,
            stored_at,
            apply_types,
            all,
            replicas_paths,
            webhook,
        })
    }

    fn stored(&self) -> &VersionParts<'a> {
        &self.versions[self.stored_at]
    }

    fn storage(&self, serving: &ServingContext) -> Arc<Storage> {
        let crd = self.crd;
        let mut fields: Vec<Str> = Vec::new();
        for path in crd.versions.iter().flat_map(|version| &version.selectable) {
            let path = without_dot(path);
            if !fields.contains(&path) {
                fields.push(path);
            }
        }
        let codec = StoredVersionCodec {
            versions: self.versions.iter().map(|version| version.schema.clone()).collect(),
            stored: self.stored().schema.clone(),
            keeps_written_version: self.webhook.is_some(),
            own: OwnWrites::default(),
        };
        Storage::start(
            serving.backend.clone(),
            StorageOptions {
                prefix: format!("{}/{}/{}/", serving.prefix, crd.group, crd.accepted.plural).into(),
                namespaced: crd.namespaced,
                gvk: crd.gvk(self.stored().version),
                schema: self.unstructured.schema.clone(),
                ty: self.unstructured.ty,
                ttl: None,
                fields,
                index: None,
                custom: true,
                from_store: (serving.from_store)(&GroupResource::new(
                    &crd.group,
                    &crd.accepted.plural,
                )),
                codec: Arc::new(codec),
            },
        )
    }

    fn kind(&self, at: usize, storage: &Arc<Storage>, terminating: bool) -> Kind {
        let VersionParts { version, schema } = &self.versions[at];
        let conversion: Option<Arc<dyn Conversion>> = match &self.webhook {
            Some(webhook) => Some(Arc::new(WebhookConversion(webhook.clone()))),
            None if at == self.stored_at => None,
            None => {
                let stored = self.stored().schema.clone();
                Some(Arc::new(NoneConverter { served: schema.clone(), stored }))
            }
        };
        let strategy = CustomResourceStrategy {
            gvk: self.crd.gvk(version),
            schema: schema.clone(),
            scale: version.scale.clone(),
            columns: columns::columns(version),
        };
        let facts = self.facts(version);
        let custom = CustomKind {
            prune_and_default: schema.clone(),
            apply_types: self.apply_types.clone(),
            versions: self.all.clone(),
            scale: version.scale.clone(),
            replicas_paths: self.replicas_paths.clone(),
            deprecation: deprecation(self.crd, version),
            terminating,
            published: Arc::new(CustomResource {
                facts: facts.clone(),
                schema: version.schema.clone(),
                read: schema_tree,
                preserve_unknown: self.crd.preserve_unknown,
            }),
            version_index: at,
        };
        Kind::new(
            facts,
            self.unstructured.schema.clone(),
            BEHAVIOUR,
            Arc::new(strategy),
            Some(storage.clone()),
            conversion,
            Some(custom),
        )
    }

    fn facts(&self, version: &Version) -> ResourceFacts {
        let crd = self.crd;
        let names = &crd.accepted;
        let kind = crd.gvk(version);
        let stored = GroupVersion::new(&crd.group, &self.stored().version.name);
        let mut selectable = vec![field("metadata.name", &[])];
        if crd.namespaced {
            selectable.push(field("metadata.namespace", &[]));
        }
        for path in &version.selectable {
            let path = without_dot(path);
            selectable.push(field(&path, std::slice::from_ref(&path)));
        }
        ResourceFacts {
            subresources: subresources(version, &kind),
            plural: names.plural.clone(),
            singular: names.singular.clone(),
            short_names: names.short_names.clone(),
            categories: names.categories.clone(),
            namespaced: crd.namespaced,
            verbs: VERBS.map(Str::new_static).to_vec(),
            type_id: self.unstructured.ty,
            list_kind: names.list_kind.clone(),
            list_type_id: None,
            storage: Some(StorageFacts {
                prefix: format!("{}/{}", crd.group, names.plural).into(),
                encoding: StorageEncoding::Json,
                version_hash: storage_version_hash(&stored, &names.kind),
                version: stored,
            }),
            selectable,
            unknown_label: UnknownLabel::NotSupported,
            on_by_default: true,
            delete_returns_object: false,
            kind,
        }
    }
}

/// The types for server-side apply, built with the first apply.
fn apply_types(builtin: Arc<Schema>, crd: &Crd) -> LazyApplyTypes {
    let schemas: Vec<Arc<str>> =
        crd.versions.iter().map(|version| version.schema.clone()).collect();
    let open = crd.preserve_unknown;
    let build = move || {
        let mut types = DefinitionTypes::new(&builtin);
        let versions =
            schemas.iter().map(|schema| types.add_version(&schema_tree(schema), open)).collect();
        ApplyTypes { schema: types.schema, versions }
    };
    // A request that is cancelled meanwhile must not poison them for all others.
    LazyLock::new(Box::new(move || meta::cancel::shielded(build)))
}

const BEHAVIOUR: Behaviour = Behaviour {
    deprecation: None,
    name_rule: meta::names::name_is_dns_subdomain,
    unconditional_update: false,
    create_on_update: false,
    generation: &[Behaviour::ALL_BUT_METADATA],
    status_on_create: false,
    dependents: GarbageCollectionPolicy::DeleteDependents,
    returns_deleted_object: false,
    deleted_in_two_steps: false,
    resets: &[],
    metadata: MetadataChecks {
        qualified_finalizers: false,
        update: ObjectMetaValidation::Update,
        status: ObjectMetaValidation::Update,
    },
};

/// In the order of discovery.
const VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

fn subresources(version: &Version, kind: &GroupVersionKind) -> Vec<SubresourceFacts> {
    let verbs = || ["get", "patch", "update"].map(Str::new_static).to_vec();
    let scale = GroupVersionKind::new("autoscaling", "v1", "Scale");
    let mut subresources = Vec::new();
    if version.status {
        let kind = kind.clone();
        subresources.push(SubresourceFacts { name: "status".into(), kind, verbs: verbs() });
    }
    if version.scale.is_some() {
        subresources.push(SubresourceFacts { name: "scale".into(), kind: scale, verbs: verbs() });
    }
    subresources
}

fn field(label: &str, paths: &[Str]) -> SelectableField {
    SelectableField { label: Str::new(label), paths: paths.to_vec() }
}

fn without_dot(path: &Str) -> Str {
    Str::new(path.strip_prefix('.').unwrap_or(path))
}

/// `storageVersionHash` of discovery: storage migrators see by it that the storage version changed.
fn storage_version_hash(stored: &GroupVersion, kind: &str) -> Str {
    let hash = Sha256::digest(format!("{}/{}/{kind}", stored.group, stored.version));
    codec::base64::encode(&hash[..8]).into()
}

fn deprecation(crd: &Crd, version: &Version) -> Option<String> {
    if !version.deprecated {
        return None;
    }
    if let Some(warning) = &version.deprecation_warning {
        return Some(warning.to_string());
    }
    let (group, kind) = (&crd.group, &crd.names.kind);
    let mut text = format!("{group}/{} {kind} is deprecated", version.name);
    let better = crd.versions.iter().filter(|other| other.served && !other.deprecated);
    let better = better.map(|other| other.name.as_str());
    let newest = better
        .filter(|other| meta::compare_versions(other, &version.name).is_gt())
        .max_by(|a, b| meta::compare_versions(a, b));
    if let Some(newest) = newest {
        text.push_str(&format!("; use {group}/{newest} {kind}"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_kube_apiserver() {
        // apps/v1 Deployment in any cluster's discovery.
        assert_eq!(
            storage_version_hash(&GroupVersion::new("apps", "v1"), "Deployment"),
            "8aSe+NMegvE="
        );
    }

    #[test]
    fn a_deprecation_warning_names_the_newest_version() {
        let version = |name: &str, deprecated| Version {
            name: name.into(),
            served: true,
            deprecated,
            ..Version::default()
        };
        let versions = vec![version("v1beta1", true), version("v1", false), version("v2", false)];
        let mut crd = Crd { group: "g".into(), versions, ..Crd::default() };
        crd.names.kind = "K".into();
        let old = &crd.versions[0];
        assert_eq!(
            deprecation(&crd, old).as_deref(),
            Some("g/v1beta1 K is deprecated; use g/v2 K")
        );
        assert_eq!(deprecation(&crd, &crd.versions[1]), None);
    }
}
