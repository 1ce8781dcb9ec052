//! What Go calls a type in an error: `int32`, `[]v1.Container`, `map[string]string`.

use schema::{NodeType, Schema, Type};

use super::{GoKind, GoType};

/// A type that Go has a word for.
pub(super) fn basic(name: &'static str) -> GoType {
    GoType { name: name.to_owned(), kind: GoKind::Basic }
}

/// The Go type of a value.
pub(super) fn of_kind(kind: &NodeType, schema: &Schema) -> GoType {
    let go_kind = match kind {
        NodeType::Any
        | NodeType::Bool
        | NodeType::Int32
        | NodeType::Int64
        | NodeType::Double
        | NodeType::String => GoKind::Basic,
        NodeType::AnyObject | NodeType::Map(_) => GoKind::Map,
        NodeType::Bytes | NodeType::List(..) => GoKind::Slice,
        NodeType::Object(_) => GoKind::Struct,
        // Structs too, but read from and printed as one text or number.
        NodeType::Raw
        | NodeType::Time
        | NodeType::MicroTime
        | NodeType::Duration
        | NodeType::Quantity
        | NodeType::IntOrString
        | NodeType::SchemaOrBool(_)
        | NodeType::SchemaOrArray(_)
        | NodeType::SchemaOrStringArray(_) => GoKind::Named,
    };
    GoType { name: name_of(kind, schema), kind: go_kind }
}

fn name_of(kind: &NodeType, schema: &Schema) -> String {
    match kind {
        NodeType::Any => "interface {}".to_owned(),
        NodeType::Raw => "runtime.RawExtension".to_owned(),
        NodeType::AnyObject => "map[string]interface {}".to_owned(),
        NodeType::Bool => "bool".to_owned(),
        NodeType::Int32 => "int32".to_owned(),
        NodeType::Int64 => "int64".to_owned(),
        NodeType::Double => "float64".to_owned(),
        NodeType::String => "string".to_owned(),
        NodeType::Bytes => "[]uint8".to_owned(),
        NodeType::Time => "v1.Time".to_owned(),
        NodeType::MicroTime => "v1.MicroTime".to_owned(),
        NodeType::Duration => "v1.Duration".to_owned(),
        NodeType::Quantity => "resource.Quantity".to_owned(),
        NodeType::IntOrString => "intstr.IntOrString".to_owned(),
        NodeType::Object(id) => of_type(schema.get(*id)),
        NodeType::List(item, _) => format!("[]{}", name_of(&item.kind, schema)),
        NodeType::Map(item) => format!("map[string]{}", name_of(&item.kind, schema)),
        NodeType::SchemaOrBool(_) => "v1.JSONSchemaPropsOrBool".to_owned(),
        NodeType::SchemaOrArray(_) => "v1.JSONSchemaPropsOrArray".to_owned(),
        NodeType::SchemaOrStringArray(_) => "v1.JSONSchemaPropsOrStringArray".to_owned(),
    }
}

/// A package is called as the last part of its path, which is the version: `v1.Pod`.
fn of_type(ty: &Type) -> String {
    let mut parts = ty.name.rsplit('.');
    match (parts.next(), parts.next()) {
        (Some(name), Some(package)) => format!("{package}.{name}"),
        _ => ty.name.to_string(),
    }
}

/// The type without its package.
pub(super) fn struct_name(ty: &Type) -> &str {
    ty.name.rsplit('.').next().unwrap_or_default()
}

/// The name that Go has for the type of a field, or of the items of one; what it is without a name is
/// `plain`.
pub(super) fn named(ty: &Type, field: &str, plain: &GoType) -> Option<GoType> {
    let mut rows = include_str!("go_types.tsv").lines().map(|line| line.split('\t'));
    let name = rows.find_map(|mut row| {
        let is_it = ty.name.strip_prefix("io.k8s.") == row.next() && row.next() == Some(field);
        row.next().filter(|_| is_it)
    })?;
    let named = |name: &str, kind| Some(GoType { name: name.to_owned(), kind });
    match (name.strip_prefix("[]"), plain.kind) {
        (Some(_), GoKind::Slice) => named(name, GoKind::Slice),
        (Some(item), GoKind::Basic) if plain.name == "string" => named(item, GoKind::Named),
        // Lists and maps of quantities have names, the quantities in them have not.
        (None, GoKind::Map) => named(name, GoKind::Map),
        (None, GoKind::Basic) if matches!(plain.name.as_str(), "string" | "int32") => {
            named(name, GoKind::Named)
        }
        _ => None,
    }
}

/// The Go struct that a field is inlined from: Go names it in the path of an error, JSON doesn't.
pub(super) fn inlined_from(ty: &Type, field: &str) -> Option<&'static str> {
    if matches!(field, "kind" | "apiVersion") && !ty.kinds.is_empty() {
        return Some("TypeMeta");
    }
    let mut inlined = INLINED.iter().filter(|(name, ..)| *name == ty.name);
    inlined.find(|(_, _, own)| !own.contains(&field)).map(|(_, embedded, _)| *embedded)
}

/// Type, what it inlines, and the fields that are its own.
const INLINED: &[(&str, &str, &[&str])] = &[
    ("io.k8s.api.core.v1.Volume", "VolumeSource", &["name"]),
    ("io.k8s.api.networking.v1.IngressRule", "IngressRuleValue", &["host"]),
    ("io.k8s.api.admissionregistration.v1.RuleWithOperations", "Rule", &["operations"]),
    (
        "io.k8s.api.admissionregistration.v1.NamedRuleWithOperations",
        "RuleWithOperations.Rule",
        &["resourceNames", "operations"],
    ),
    (
        "io.k8s.api.admissionregistration.v1.NamedRuleWithOperations",
        "RuleWithOperations",
        &["resourceNames"],
    ),
    ("io.k8s.api.resource.v1.DeviceClassConfiguration", "DeviceConfiguration", &[]),
    ("io.k8s.api.resource.v1.DeviceClaimConfiguration", "DeviceConfiguration", &["requests"]),
    (
        "io.k8s.api.resource.v1.DeviceAllocationConfiguration",
        "DeviceConfiguration",
        &["source", "requests"],
    ),
    ("io.k8s.api.core.v1.Probe", "ProbeHandler", PROBE),
    ("io.k8s.api.core.v1.EphemeralContainer", "EphemeralContainerCommon", &["targetContainerName"]),
    ("io.k8s.api.core.v1.PersistentVolumeSpec", "PersistentVolumeSource", PERSISTENT_VOLUME),
    ("io.k8s.api.core.v1.ConfigMapKeySelector", "LocalObjectReference", &["key", "optional"]),
    ("io.k8s.api.core.v1.SecretKeySelector", "LocalObjectReference", &["key", "optional"]),
    ("io.k8s.api.core.v1.ConfigMapEnvSource", "LocalObjectReference", &["optional"]),
    ("io.k8s.api.core.v1.SecretEnvSource", "LocalObjectReference", &["optional"]),
    ("io.k8s.api.core.v1.ConfigMapProjection", "LocalObjectReference", &["items", "optional"]),
    ("io.k8s.api.core.v1.SecretProjection", "LocalObjectReference", &["items", "optional"]),
    (
        "io.k8s.api.core.v1.ConfigMapVolumeSource",
        "LocalObjectReference",
        &["items", "defaultMode", "optional"],
    ),
];

const PROBE: &[&str] = &[
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "terminationGracePeriodSeconds",
];

const PERSISTENT_VOLUME: &[&str] = &[
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];
