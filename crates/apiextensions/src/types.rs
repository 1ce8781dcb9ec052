//! The `schema::Type`s of custom resources: an unstructured one, which knows the metadata only, for
//! decoding; and one for each version for server-side apply.

use std::{collections::HashMap, sync::Arc};

use meta::{Str, Value};
use schema::{Field, ListType, Node, NodeType, Schema, Type, TypeId};

/// The type by which bodies and stored objects are decoded, shared by all definitions.
#[derive(Clone)]
pub(crate) struct UnstructuredType {
    pub(crate) schema: Arc<Schema>,
    pub(crate) ty: TypeId,
}

impl UnstructuredType {
    pub(crate) fn new(builtin: &Schema) -> Self {
        let DefinitionTypes { schema, unstructured, .. } = DefinitionTypes::new(builtin);
        Self { schema: Arc::new(schema), ty: unstructured }
    }
}

/// The types of one definition.
pub(crate) struct DefinitionTypes {
    pub(crate) schema: Schema,
    unstructured: TypeId,
    object_meta: TypeId,
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl DefinitionTypes {
    /// `builtin` has `ObjectMeta`.
    pub(crate) fn new(builtin: &Schema) -> Self {
        let mut schema = Schema::default();
        let object_meta = builtin.by_name(OBJECT_META).expect("every built-in kind has metadata");
        let object_meta = copy(builtin, object_meta, &mut schema, &mut HashMap::new());
        let mut unstructured = Type::default();
        unstructured.fields = type_meta(object_meta);
        unstructured.preserve_unknown = true;
        let unstructured = schema.add(unstructured);
        Self { schema, unstructured, object_meta }
    }

    /// The type for server-side apply. Without a schema every field is deduced.
    pub(crate) fn add_version(&mut self, openapi: &Value, preserve_unknown: bool) -> TypeId {
        if preserve_unknown || openapi.is_null() {
            return self.unstructured;
        }
        let mut ty = self.object(openapi, false);
        ty.fields
            .retain(|field| !matches!(field.name.as_str(), "apiVersion" | "kind" | "metadata"));
        ty.fields.extend(type_meta(self.object_meta));
        self.schema.add(ty)
    }

    /// `open`: an enclosing schema has `x-kubernetes-preserve-unknown-fields`.
    fn object(&mut self, openapi: &Value, open: bool) -> Type {
        let open = open || openapi.bool_at(&["x-kubernetes-preserve-unknown-fields"]);
        let mut ty = Type::default();
        ty.preserve_unknown = open;
        if let Some(properties) = openapi.at(&["properties"]).and_then(Value::as_object) {
            for (name, property) in properties.iter() {
                let node = self.node(property, open);
                ty.fields.push(Field { name: name.clone(), node, ..Field::default() });
            }
        }
        if openapi.bool_at(&["x-kubernetes-embedded-resource"]) {
            ty.fields
                .retain(|field| !matches!(field.name.as_str(), "apiVersion" | "kind" | "metadata"));
            ty.fields.extend(type_meta(self.object_meta));
        }
        ty
    }

    fn node(&mut self, openapi: &Value, open: bool) -> Node {
        let open = open || openapi.bool_at(&["x-kubernetes-preserve-unknown-fields"]);
        let kind = match openapi.str_at(&["type"]) {
            "object" => self.object_kind(openapi, open),
            "array" => {
                let item = match openapi.get("items") {
                    Some(items) => self.node(items, open),
                    None => Node::default(),
                };
                NodeType::List(Box::new(item), list_kind(openapi))
            }
            "integer" => NodeType::Int64,
            "number" => NodeType::Double,
            "boolean" => NodeType::Bool,
            "string" => NodeType::String,
            // `x-kubernetes-int-or-string` as well; validation checks the type.
            _ => NodeType::Any,
        };
        let format = openapi.str_at(&["format"]);
        Node {
            kind,
            atomic: openapi.str_at(&["x-kubernetes-map-type"]) == "atomic",
            // Strings with a format are merged as any scalar.
            format: (!matches!(format, "" | "byte")).then(|| Str::new(format)),
            // Keys of list items may have defaults.
            default: openapi.get("default").cloned(),
            ..Node::default()
        }
    }

    fn object_kind(&mut self, openapi: &Value, open: bool) -> NodeType {
        let has_properties = openapi
            .at(&["properties"])
            .and_then(Value::as_object)
            .is_some_and(|properties| !properties.is_empty());
        if has_properties || openapi.bool_at(&["x-kubernetes-embedded-resource"]) {
            let ty = self.object(openapi, open);
            return NodeType::Object(self.schema.add(ty));
        }
        match openapi.get("additionalProperties") {
            Some(item @ Value::Object(_)) => NodeType::Map(Box::new(self.node(item, open))),
            Some(Value::Bool(false)) => NodeType::Object(self.schema.add(Type::default())),
            _ => NodeType::AnyObject,
        }
    }
}

fn list_kind(openapi: &Value) -> ListType {
    match openapi.str_at(&["x-kubernetes-list-type"]) {
        "set" => ListType::Set,
        "map" => {
            let keys = openapi.items_at(&["x-kubernetes-list-map-keys"]).iter();
            ListType::Map(keys.filter_map(Value::as_str).map(Str::new).collect())
        }
        "atomic" => ListType::Atomic,
        _ => ListType::Undeclared,
    }
}

/// The fields that every object has.
fn type_meta(object_meta: TypeId) -> Vec<Field> {
    let field = |name, kind: NodeType| Field {
        name: Str::new_static(name),
        node: kind.into(),
        ..Field::default()
    };
    vec![
        field("apiVersion", NodeType::String),
        field("kind", NodeType::String),
        field("metadata", NodeType::Object(object_meta)),
    ]
}

/// Copies a type into another schema, with the types that it refers to.
fn copy(from: &Schema, id: TypeId, to: &mut Schema, known: &mut HashMap<TypeId, TypeId>) -> TypeId {
    if let Some(known) = known.get(&id) {
        return *known;
    }
    let place = to.add(Type::default());
    known.insert(id, place);
    let mut ty = from.get(id).clone();
    for field in &mut ty.fields {
        copy_kind(from, &mut field.node.kind, to, known);
    }
    to.set(place, ty);
    place
}

fn copy_kind(
    from: &Schema,
    kind: &mut NodeType,
    to: &mut Schema,
    known: &mut HashMap<TypeId, TypeId>,
) {
    match kind {
        NodeType::Object(id)
        | NodeType::SchemaOrBool(id)
        | NodeType::SchemaOrArray(id)
        | NodeType::SchemaOrStringArray(id) => *id = copy(from, *id, to, known),
        NodeType::List(item, _) | NodeType::Map(item) => copy_kind(from, &mut item.kind, to, known),
        _ => {}
    }
}
