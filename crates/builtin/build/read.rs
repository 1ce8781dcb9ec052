//! From descriptors to the engine's types.

use std::collections::HashMap;

use meta::{GroupVersion, Number, Str, Value};
use prost_reflect::{
    Cardinality, DescriptorPool, FieldDescriptor, FileDescriptor, Kind as ProtoKind,
    MessageDescriptor,
};
use schema::{
    Field, GroupVersionFacts, ListType, Node, NodeType, PatchStrategy, Presence, Type, TypeId,
    Union,
};

use crate::options::Options;
use crate::{Definitions, kinds, resources};

/// Reads every file that has facts about a type.
pub(super) fn definitions(pool: &DescriptorPool) -> Result<Definitions, String> {
    let reader = Reader::new(pool);
    let mut definitions = Definitions::default();
    for message in &reader.messages {
        if let Shape::Object(id) = reader.shapes[message.full_name()] {
            let added = definitions.schema.add(Type::default());
            assert_eq!(added, id, "types are added in the order in which they were numbered");
        }
    }
    for message in &reader.messages {
        if let Shape::Object(id) = reader.shapes[message.full_name()] {
            let (ty, gated) =
                reader.object(message).map_err(|why| format!("{}: {why}", message.full_name()))?;
            definitions.schema.set(id, ty);
            definitions.gated_fields.insert(id, gated);
        }
    }
    definitions.group_versions =
        reader.group_versions.iter().map(|(facts, _)| facts.clone()).collect();
    for message in &reader.messages {
        if let Some(resource) = reader.options(message).message("resource") {
            let home = reader.home(message).ok_or("a resource needs a group version")?;
            let facts = resources::read(&resource, message, home, &definitions.schema)
                .map_err(|why| format!("{}: {why}", message.full_name()))?;
            definitions.kinds.push(kinds::read(&resource, &facts.kind, facts.type_id));
            definitions.resources.push(facts);
        }
    }
    definitions.feature_gates = feature_gates(pool);
    definitions.enums = reader.enums;
    // A stable order, and the one in which discovery lists them.
    definitions.resources.sort_by(|a, b| {
        (a.kind.group_version(), &a.plural).cmp(&(b.kind.group_version(), &b.plural))
    });
    Ok(definitions)
}

/// The name of a field and its feature gate.
type GatedFields = Vec<(Str, String)>;

fn feature_gates(pool: &DescriptorPool) -> Vec<String> {
    let gates = pool.get_enum_by_name("pintle.FeatureGate").expect("pintle.proto declares it");
    let mut names: Vec<String> = gates.values().map(|value| value.name().to_owned()).collect();
    names.sort();
    names
}

/// What a message is in JSON.
enum Shape {
    Object(TypeId),
    /// One value.
    Scalar(String),
    /// The list of its items.
    List,
}

struct Reader<'a> {
    pool: &'a DescriptorPool,
    messages: Vec<MessageDescriptor>,
    shapes: HashMap<String, Shape>,
    /// The group version of each file that has one, with the name of the file.
    group_versions: Vec<(GroupVersionFacts, FileDescriptor)>,
    /// `pintle.corev1.Protocol` → its values.
    enums: HashMap<String, Vec<Str>>,
    /// Group versions that `"*"` stands for.
    every: Vec<GroupVersion>,
}

impl<'a> Reader<'a> {
    fn new(pool: &'a DescriptorPool) -> Self {
        let mut reader = Self {
            pool,
            messages: Vec::new(),
            shapes: HashMap::new(),
            group_versions: Vec::new(),
            enums: HashMap::new(),
            every: Vec::new(),
        };
        let files = pool.files().filter(|file| {
            file.package_name().starts_with("pintle.") || file.name() == "scalars.proto"
        });
        for file in files {
            reader.file(&file);
        }
        reader.every.sort();
        reader
    }

    fn file(&mut self, file: &FileDescriptor) {
        let options = Options::of(self.pool, file.options());
        if let Some(declared) = options.message("group_version") {
            let facts = GroupVersionFacts {
                group_version: group_version(&declared),
                group_priority: declared.int("group_priority"),
                version_priority: declared.int("version_priority"),
                on_by_default: !declared.flag("off") && !declared.flag("internal"),
                internal: declared.flag("internal"),
            };
            let also = declared.strings("also");
            self.every.extend(also.iter().map(|name| parse_group_version(name)));
            // Options are kinds of the groups that Go registers them for, which these two are not.
            if !matches!(facts.group_version.group.as_str(), "meta.k8s.io" | "apidiscovery.k8s.io")
            {
                self.every.push(facts.group_version.clone());
            }
            self.group_versions.push((facts, file.clone()));
        }
        for declared in options.messages("enum_type") {
            let name = declared.string("name").expect("required");
            let values = declared.strings("value").iter().map(Str::new).collect();
            self.enums.insert(format!("{}.{name}", file.package_name()), values);
        }
        for message in file.messages() {
            let facts = Options::of(self.pool, message.options()).message("type");
            let scalar = facts.as_ref().and_then(|facts| facts.name("scalar"));
            let shape = match (scalar, facts.is_some_and(|facts| facts.flag("list"))) {
                (Some(scalar), _) => Shape::Scalar(scalar),
                (None, true) => Shape::List,
                (None, false) => {
                    let objects =
                        self.shapes.values().filter(|shape| matches!(shape, Shape::Object(_)));
                    Shape::Object(TypeId(objects.count() as u32))
                }
            };
            self.shapes.insert(message.full_name().to_owned(), shape);
            self.messages.push(message);
        }
    }

    fn options(&self, message: &MessageDescriptor) -> Options {
        Options::of(self.pool, message.options())
    }

    fn home(&self, message: &MessageDescriptor) -> Option<&GroupVersionFacts> {
        let home = self.group_versions.iter().find(|(_, file)| *file == message.parent_file());
        home.map(|(facts, _)| facts)
    }

    /// The type, and its fields that wait for a feature gate.
    fn object(&self, message: &MessageDescriptor) -> Result<(Type, GatedFields), String> {
        let options = self.options(message);
        let facts = options.message("type");
        let flag = |name| facts.as_ref().is_some_and(|facts| facts.flag(name));
        let has_kind = flag("kind") || options.message("resource").is_some();
        let mut fields = Vec::new();
        if has_kind {
            fields.extend(["kind", "apiVersion"].map(|name| Field {
                name: Str::new_static(name),
                node: NodeType::String.into(),
                presence: Presence::OmitEmpty,
                ..Field::default()
            }));
        }
        let mut gated = Vec::new();
        self.fields(message, &[], &mut fields, &mut gated)?;
        if flag("json_only") {
            for field in &mut fields {
                field.tag = 0;
            }
        }
        let mut kinds = Vec::new();
        let elsewhere =
            facts.as_ref().map(|facts| facts.strings("group_version")).unwrap_or_default();
        if elsewhere == ["*"] {
            kinds.extend(self.every.iter().map(|every| every.with_kind(message.name())));
        } else if !elsewhere.is_empty() {
            kinds.extend(
                elsewhere.iter().map(|name| parse_group_version(name).with_kind(message.name())),
            );
        } else if has_kind {
            let home = self.home(message).ok_or("a kind needs a group version")?;
            kinds.push(home.group_version.with_kind(message.name()));
        }
        let unions = facts.iter().flat_map(|facts| facts.messages("union")).map(|union| Union {
            discriminator: union.string("discriminator").map(Str::from),
            fields: union.strings("member").into_iter().map(Str::from).collect(),
        });
        let mut ty = Type::default();
        ty.name = Str::new(self.definition(message).ok_or("no OpenAPI definition")?);
        ty.fields = fields;
        ty.atomic = flag("atomic");
        ty.unions = unions.collect();
        ty.kinds = kinds;
        Ok((ty, gated))
    }

    fn fields(
        &self,
        message: &MessageDescriptor,
        within: &[u32],
        fields: &mut Vec<Field>,
        gated: &mut GatedFields,
    ) -> Result<(), String> {
        // `message.fields()` would be in the order of tags.
        for declared in &message.descriptor_proto().field {
            let field = message.get_field(declared.number() as u32).expect("it was declared");
            let options = Options::of(self.pool, field.options());
            if options.flag("inline") {
                let ProtoKind::Message(embedded) = field.kind() else {
                    return Err(format!("{} can't be inlined", field.name()));
                };
                let deeper: Vec<u32> = within.iter().copied().chain([field.number()]).collect();
                self.fields(&embedded, &deeper, fields, gated)?;
                continue;
            }
            let read =
                self.field(&field, &options).map_err(|why| format!("{}: {why}", field.name()))?;
            if let Some(gate) = options.name("feature_gate") {
                gated.push((read.name.clone(), gate));
            }
            fields.push(Field { within: within.to_vec(), ..read });
        }
        Ok(())
    }

    fn field(&self, field: &FieldDescriptor, options: &Options) -> Result<Field, String> {
        let is_many = field.is_list() || field.is_map();
        let is_struct = !is_many
            && matches!(&field.kind(), ProtoKind::Message(message)
            if !matches!(self.shapes[message.full_name()], Shape::List));
        let labelled = field.cardinality() == Cardinality::Required;
        let required = labelled || options.flag("required");
        let pointer = options.flag("pointer");
        // What pintle.proto says about declarations and when JSON prints them.
        let usual = if labelled || is_many && required {
            Presence::Always
        } else if pointer {
            Presence::AsGiven
        } else if is_struct {
            Presence::Always
        } else {
            Presence::OmitEmpty
        };
        let presence = match options.name("presence").as_deref() {
            None => usual,
            Some("AS_GIVEN") => Presence::AsGiven,
            Some("OMIT_EMPTY") => Presence::OmitEmpty,
            Some("ALWAYS") => Presence::Always,
            Some(other) => return Err(format!("unknown presence {other}")),
        };
        Ok(Field {
            name: json_name(field),
            node: self.node(field, options)?,
            tag: field.number(),
            within: Vec::new(),
            required,
            presence,
            pointer,
            patch: patch(options)?,
        })
    }

    fn node(&self, field: &FieldDescriptor, options: &Options) -> Result<Node, String> {
        let (item_kind, is_map) = match field.kind() {
            ProtoKind::Message(entry) if entry.is_map_entry() => {
                (entry.map_entry_value_field().kind(), true)
            }
            kind => (kind, false),
        };
        let mut item = self.item(&item_kind)?;
        if let Some(name) = options.string("enum") {
            let full_name = if name.contains('.') {
                format!("pintle.{name}")
            } else {
                format!("{}.{name}", field.parent_file().package_name())
            };
            let values = self.enums.get(&full_name).ok_or(format!("no enum {name}"))?;
            item.enum_values.clone_from(values);
        }
        let keys: Vec<Str> = options.strings("key").into_iter().map(Str::from).collect();
        let list = match (options.name("list").as_deref(), keys.is_empty()) {
            (None, true) => ListType::Undeclared,
            (None, false) => ListType::Map(keys),
            (Some("ATOMIC"), true) => ListType::Atomic,
            (Some("SET"), true) => ListType::Set,
            (Some(other), _) => return Err(format!("keys in a list that is {other}")),
        };
        let mut node = if field.is_list() {
            NodeType::List(Box::new(item), list).into()
        } else if list != ListType::Undeclared {
            return Err("keys or a kind of list, but no list".to_owned());
        } else if is_map {
            NodeType::Map(Box::new(item)).into()
        } else {
            item
        };
        if options.has("atomic") {
            node.atomic = options.flag("atomic");
            node.granular = !node.atomic;
        }
        node.nullable = options.flag("nullable");
        if let Some(format) = options.string("format") {
            node.format = Some(Str::from(format));
        }
        if let Some(text) = options.string("default") {
            node.default = Some(default(&node.kind, &text)?);
        }
        Ok(node)
    }

    /// A single value: what a list or map holds, or a field that is neither.
    fn item(&self, kind: &ProtoKind) -> Result<Node, String> {
        let ProtoKind::Message(message) = kind else {
            return scalar(kind).map(Node::from);
        };
        let facts = self.options(message).message("type");
        let atomic = facts.is_some_and(|facts| facts.flag("atomic"));
        let definition = self.definition(message).map(Str::from);
        match &self.shapes[message.full_name()] {
            Shape::Object(id) => {
                Ok(Node { kind: NodeType::Object(*id), atomic, ..Node::default() })
            }
            Shape::Scalar(name) => {
                let kind = self.special(name, message)?;
                Ok(Node { kind, definition, ..Node::default() })
            }
            Shape::List => {
                let items = message.get_field(1).ok_or("a list without items")?;
                let item = self.item(&items.kind())?;
                let kind = NodeType::List(Box::new(item), ListType::Undeclared);
                Ok(Node { kind, wrapped: true, ..Node::default() })
            }
        }
    }

    fn special(&self, scalar: &str, message: &MessageDescriptor) -> Result<NodeType, String> {
        let schema = || {
            let schema = message.get_field_by_name("schema").ok_or("no field schema")?;
            let ProtoKind::Message(schema) = schema.kind() else {
                return Err("schema is no message");
            };
            match self.shapes[schema.full_name()] {
                Shape::Object(id) => Ok(id),
                _ => Err("schema is no object"),
            }
        };
        Ok(match scalar {
            "ANY" => NodeType::Any,
            "RAW" => NodeType::Raw,
            "TIME" => NodeType::Time,
            "MICRO_TIME" => NodeType::MicroTime,
            "DURATION" => NodeType::Duration,
            "QUANTITY" => NodeType::Quantity,
            "INT_OR_STRING" => NodeType::IntOrString,
            "SCHEMA_OR_ARRAY" => NodeType::SchemaOrArray(schema()?),
            "SCHEMA_OR_BOOL" => NodeType::SchemaOrBool(schema()?),
            "SCHEMA_OR_STRING_ARRAY" => NodeType::SchemaOrStringArray(schema()?),
            other => return Err(format!("unknown scalar {other}")),
        })
    }

    /// The name of its OpenAPI definition; scalars may have none.
    fn definition(&self, message: &MessageDescriptor) -> Option<String> {
        let declared =
            self.options(message).message("type").and_then(|facts| facts.string("definition"));
        declared.or_else(|| {
            let file = Options::of(self.pool, message.parent_file().options());
            let prefix = file.message("group_version")?.string("definitions")?;
            Some(format!("{prefix}.{}", message.name()))
        })
    }
}

/// The one that was written, or the name as it stands: protobuf's own rule would turn `jSONSchemas`
/// and `a_b` into something else.
fn json_name(field: &FieldDescriptor) -> Str {
    let descriptor = field.field_descriptor_proto();
    let derived = derived_json_name(field.name());
    match &descriptor.json_name {
        Some(declared) if *declared != derived => Str::new(declared),
        _ => Str::new(field.name()),
    }
}

/// What protobuf compilers fill in when no `json_name` is given.
fn derived_json_name(name: &str) -> String {
    let mut derived = String::new();
    let mut upper = false;
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                derived.push(c.to_ascii_uppercase());
                upper = false;
            }
            c => derived.push(c),
        }
    }
    derived
}

fn scalar(kind: &ProtoKind) -> Result<NodeType, String> {
    Ok(match kind {
        ProtoKind::Bool => NodeType::Bool,
        ProtoKind::Int32 => NodeType::Int32,
        ProtoKind::Int64 => NodeType::Int64,
        ProtoKind::Double => NodeType::Double,
        ProtoKind::String => NodeType::String,
        ProtoKind::Bytes => NodeType::Bytes,
        other => return Err(format!("Kubernetes doesn't use {other:?}")),
    })
}

fn patch(options: &Options) -> Result<PatchStrategy, String> {
    let merge_key = options.string("merge_key").map(Str::from);
    let declared = options.name("patch");
    Ok(PatchStrategy {
        merge: match declared.as_deref() {
            None => merge_key.is_some(),
            Some("MERGE" | "MERGE_RETAIN_KEYS") => true,
            Some("REPLACE" | "RETAIN_KEYS") => false,
            Some(other) => return Err(format!("unknown patch strategy {other}")),
        },
        retain_keys: matches!(declared.as_deref(), Some("RETAIN_KEYS" | "MERGE_RETAIN_KEYS")),
        replace: declared.as_deref() == Some("REPLACE"),
        merge_key,
    })
}

fn default(kind: &NodeType, text: &str) -> Result<Value, String> {
    match kind {
        NodeType::String => Ok(Value::String(Str::new(text))),
        NodeType::Bool => text.parse().map(Value::Bool).map_err(|_| format!("{text} is no bool")),
        NodeType::Int32 | NodeType::Int64 => match text.parse() {
            Ok(number) => Ok(Value::Number(Number::Int(number))),
            Err(_) => Err(format!("{text} is no integer")),
        },
        NodeType::Object(_) | NodeType::Map(_) if text == "{}" => Ok(Value::object()),
        _ => Err(format!("a field of this kind can't have the default {text}")),
    }
}

fn group_version(declared: &Options) -> GroupVersion {
    let part = |name| declared.string(name).expect("required");
    GroupVersion::new(part("group"), part("version"))
}

fn parse_group_version(name: &str) -> GroupVersion {
    GroupVersion::parse(name).unwrap_or_else(|| panic!("{name} is no group version"))
}
