//! What Go calls a type in an error: `int32`, `[]v1.Container`, `map[string]string`.

use schema::{Kind, Schema, Type};

use super::{GoKind, GoType};

/// A type that Go has a word for.
pub(super) fn basic(name: &'static str) -> GoType {
    GoType { name: name.to_owned(), kind: GoKind::Basic }
}

/// The Go type of a value.
pub(super) fn of_kind(kind: &Kind, schema: &Schema) -> GoType {
    let go_kind = match kind {
        Kind::Any | Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::Double | Kind::String => {
            GoKind::Basic
        }
        Kind::AnyObject | Kind::Map(_) => GoKind::Map,
        Kind::Bytes | Kind::List(..) => GoKind::Slice,
        Kind::Object(_) => GoKind::Struct,
        // Structs too, but read from and printed as one text or number.
        Kind::Time
        | Kind::MicroTime
        | Kind::Duration
        | Kind::Quantity
        | Kind::IntOrString
        | Kind::SchemaOrBool(_)
        | Kind::SchemaOrArray(_)
        | Kind::SchemaOrStringArray(_) => GoKind::Named,
    };
    GoType { name: name_of(kind, schema), kind: go_kind }
}

fn name_of(kind: &Kind, schema: &Schema) -> String {
    match kind {
        Kind::Any => "interface {}".to_owned(),
        Kind::AnyObject => "map[string]interface {}".to_owned(),
        Kind::Bool => "bool".to_owned(),
        Kind::Int32 => "int32".to_owned(),
        Kind::Int64 => "int64".to_owned(),
        Kind::Double => "float64".to_owned(),
        Kind::String => "string".to_owned(),
        Kind::Bytes => "[]uint8".to_owned(),
        Kind::Time => "v1.Time".to_owned(),
        Kind::MicroTime => "v1.MicroTime".to_owned(),
        Kind::Duration => "v1.Duration".to_owned(),
        Kind::Quantity => "resource.Quantity".to_owned(),
        Kind::IntOrString => "intstr.IntOrString".to_owned(),
        Kind::Object(id) => of_type(schema.get(*id)),
        Kind::List(item, _) => format!("[]{}", name_of(&item.kind, schema)),
        Kind::Map(item) => format!("map[string]{}", name_of(&item.kind, schema)),
        Kind::SchemaOrBool(_) => "v1.JSONSchemaPropsOrBool".to_owned(),
        Kind::SchemaOrArray(_) => "v1.JSONSchemaPropsOrArray".to_owned(),
        Kind::SchemaOrStringArray(_) => "v1.JSONSchemaPropsOrStringArray".to_owned(),
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
