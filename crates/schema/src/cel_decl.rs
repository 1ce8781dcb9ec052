//! The CEL declarations of types: what is known of an object in the expressions of admission policies.

use std::{collections::HashMap, sync::Arc};

pub use cel::Decl;
use cel::ListType as CelListType;

use crate::{ListType, Node, NodeType, Schema, TypeId};

/// The declaration of a type. A type that contains itself (`JSONSchemaProps`) can be anything there.
pub fn declare(schema: &Schema, ty: TypeId) -> Arc<Decl> {
    Declarer { schema, known: HashMap::new() }.object(ty)
}

struct Declarer<'a> {
    schema: &'a Schema,
    /// None: being made.
    known: HashMap<TypeId, Option<Arc<Decl>>>,
}

impl Declarer<'_> {
    fn object(&mut self, id: TypeId) -> Arc<Decl> {
        match self.known.get(&id) {
            Some(Some(decl)) => return decl.clone(),
            Some(None) => return Arc::new(Decl::dynamic()),
            None => drop(self.known.insert(id, None)),
        }
        let ty = self.schema.get(id);
        let decl = if ty.preserve_unknown {
            Arc::new(Decl::dynamic())
        } else {
            let fields = ty.fields.iter();
            let fields: Vec<(&str, Arc<Decl>, bool)> = fields
                .map(|field| (field.name.as_str(), self.node(&field.node), field.required))
                .collect();
            Arc::new(Decl::object(fields))
        };
        self.known.insert(id, Some(decl.clone()));
        decl
    }

    fn node(&mut self, node: &Node) -> Arc<Decl> {
        Arc::new(match &node.kind {
            NodeType::Bool => Decl::bool(),
            NodeType::Int32 | NodeType::Int64 => Decl::int(),
            NodeType::Double => Decl::double(),
            NodeType::String if node.format.as_deref() == Some("duration") => Decl::duration(),
            NodeType::String if node.format.as_deref() == Some("date-time") => Decl::date_time(),
            NodeType::String | NodeType::Duration => Decl::string(None),
            NodeType::Bytes => Decl::bytes(None),
            NodeType::Time | NodeType::MicroTime => Decl::date_time(),
            NodeType::Object(id) => return self.object(*id),
            NodeType::List(item, kind) => {
                let kind = match kind {
                    ListType::Set => CelListType::Set,
                    ListType::Map(keys) => CelListType::Map(keys.clone()),
                    ListType::Atomic | ListType::Undeclared => CelListType::Atomic,
                };
                Decl::list(self.node(item), kind, None)
            }
            NodeType::Map(values) => Decl::map(self.node(values), None),
            // Text or number, or of no fixed shape.
            NodeType::Any
            | NodeType::Raw
            | NodeType::AnyObject
            | NodeType::Quantity
            | NodeType::IntOrString
            | NodeType::SchemaOrBool(_)
            | NodeType::SchemaOrArray(_)
            | NodeType::SchemaOrStringArray(_) => Decl::dynamic(),
        })
    }
}
