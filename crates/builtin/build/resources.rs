//! Facts about resources, with everything filled in that the files may leave out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use meta::{GroupVersion, GroupVersionKind, Str};
use prost_reflect::MessageDescriptor;
use schema::{
    GroupVersionFacts, ResourceFacts, Schema, SelectableField, StorageEncoding, StorageFacts,
    SubresourceFacts, TypeId, UnknownLabel,
};
use sha2::{Digest, Sha256};

use crate::options::Options;

pub(super) fn read(
    declared: &Options,
    message: &MessageDescriptor,
    home: &GroupVersionFacts,
    schema: &Schema,
) -> Result<ResourceFacts, String> {
    let kind = home.group_version.with_kind(message.name());
    let plural = Str::from(declared.string("plural").expect("required"));
    let verbs = or_else(declared.strings("verb"), &VERBS);
    let (list_kind, list_type_id) = list_of(&kind, &verbs, schema)?;
    let mut subresources = Vec::new();
    for declared in declared.messages("subresource") {
        subresources.push(SubresourceFacts {
            name: Str::from(declared.string("name").expect("required")),
            kind: declared
                .string("kind")
                .map_or(Ok(kind.clone()), |name| parse_kind(&name, &kind))?,
            verbs: or_else(declared.strings("verb"), &["get", "patch", "update"]),
        });
    }
    let (selectable, unknown_label) = selectable(declared)?;
    Ok(ResourceFacts {
        singular: Str::from(
            declared.string("singular").unwrap_or_else(|| kind.kind.to_lowercase()),
        ),
        short_names: declared.strings("short_name").into_iter().map(Str::from).collect(),
        categories: declared.strings("category").into_iter().map(Str::from).collect(),
        namespaced: declared.name("scope").as_deref() == Some("NAMESPACED"),
        verbs,
        type_id: type_of(&kind, schema).ok_or("its own type is missing")?,
        list_kind,
        list_type_id,
        subresources,
        storage: if declared.flag("virtual") {
            None
        } else {
            Some(storage(declared, &plural, &kind)?)
        },
        selectable,
        unknown_label,
        on_by_default: home.on_by_default && !declared.flag("off"),
        delete_returns_object: declared.name("delete_answer").as_deref() == Some("OBJECT"),
        plural,
        kind,
    })
}

const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn or_else(declared: Vec<String>, usual: &[&'static str]) -> Vec<Str> {
    if declared.is_empty() {
        return usual.iter().copied().map(Str::new_static).collect();
    }
    declared.into_iter().map(Str::from).collect()
}

fn list_of(
    kind: &GroupVersionKind,
    verbs: &[Str],
    schema: &Schema,
) -> Result<(Str, Option<TypeId>), String> {
    if !verbs.iter().any(|verb| verb == "list") {
        return Ok((Str::default(), None));
    }
    let list = kind.group_version().with_kind(format!("{}List", kind.kind));
    let id = type_of(&list, schema)
        .ok_or(format!("{} can be listed, but has no {}", kind.kind, list.kind))?;
    Ok((list.kind, Some(id)))
}

fn storage(
    declared: &Options,
    plural: &Str,
    kind: &GroupVersionKind,
) -> Result<StorageFacts, String> {
    let declared = declared.message("storage");
    let part = |name| declared.as_ref().and_then(|declared| declared.string(name));
    let version = match part("version") {
        Some(name) => GroupVersion::parse(&name).ok_or(format!("{name} is no group version"))?,
        None => kind.group_version(),
    };
    let encoding = declared.as_ref().and_then(|declared| declared.name("encoding"));
    Ok(StorageFacts {
        prefix: part("prefix").map_or(plural.clone(), Str::from),
        encoding: if encoding.as_deref() == Some("JSON") {
            StorageEncoding::Json
        } else {
            StorageEncoding::Protobuf
        },
        version_hash: version_hash(&version, &kind.kind),
        version,
    })
}

/// Discovery tells clients by this hash that the stored version has changed.
fn version_hash(version: &GroupVersion, kind: &str) -> Str {
    let name = format!("{}/{}/{kind}", version.group, version.version);
    Str::from(STANDARD.encode(&Sha256::digest(name)[..8]))
}

fn selectable(declared: &Options) -> Result<(Vec<SelectableField>, UnknownLabel), String> {
    let itself = |label: &str| {
        let label = Str::new(label);
        SelectableField { paths: vec![label.clone()], label }
    };
    let mut fields: Vec<_> = declared.strings("select").iter().map(|label| itself(label)).collect();
    if fields.is_empty() {
        return Ok((
            ["metadata.name", "metadata.namespace"].map(itself).into(),
            UnknownLabel::NotKnown,
        ));
    }
    fields.extend(declared.messages("select_from").iter().map(|declared| SelectableField {
        label: Str::from(declared.string("label").expect("required")),
        paths: declared.strings("path").into_iter().map(Str::from).collect(),
    }));
    let unknown_label = match declared.name("unknown_label").as_deref() {
        None | Some("NOT_SUPPORTED") => UnknownLabel::NotSupported,
        Some("NOT_SUPPORTED_FOR_KIND") => UnknownLabel::NotSupportedForKind,
        Some("NOT_SUPPORTED_FOR_VERSION_KIND") => UnknownLabel::NotSupportedForVersionKind,
        Some(other) => return Err(format!("unknown {other}")),
    };
    Ok((fields, unknown_label))
}

/// `Binding`, which is of the resource's own group version, or `autoscaling/v1.Scale`.
fn parse_kind(name: &str, home: &GroupVersionKind) -> Result<GroupVersionKind, String> {
    let Some((group_version, kind)) = name.rsplit_once('.') else {
        return Ok(home.group_version().with_kind(name));
    };
    let group_version = GroupVersion::parse(group_version).ok_or(format!("{name} is no kind"))?;
    Ok(group_version.with_kind(kind))
}

pub(super) fn type_of(kind: &GroupVersionKind, schema: &Schema) -> Option<TypeId> {
    schema.types().find(|(_, ty)| ty.kinds.contains(kind)).map(|(id, _)| id)
}
