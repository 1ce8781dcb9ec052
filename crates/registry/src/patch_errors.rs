//! A patched object as error messages quote it. Go's patch libraries sort the keys of the objects
//! that a patch goes through, and leave everything else as it was written.

use std::borrow::Cow;

use meta::{GroupVersionKind, Value, json::write_value};
use schema::{Node, NodeType, Schema, TypeId};

/// An object or patch without what a secret holds. Errors end up in logs and audit events, and a client
/// may have the right to patch a secret without that to read it.
pub(crate) fn redact<'a>(object: &'a Value, gvk: &GroupVersionKind) -> Cow<'a, Value> {
    const REDACTED: &str = "[redacted]";
    const LAST_APPLIED: [&str; 3] =
        ["metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"];
    if !gvk.group.is_empty() || gvk.kind != "Secret" {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    for field in ["data", "stringData"] {
        match object.get_mut(field) {
            Some(Value::Object(values)) => {
                values.iter_mut().for_each(|(_, value)| *value = REDACTED.into());
            }
            Some(other) => *other = REDACTED.into(),
            None => {}
        }
    }
    if let Some(annotation) = object.at_mut(&LAST_APPLIED) {
        *annotation = REDACTED.into();
    }
    Cow::Owned(object)
}

/// The text of a patched object.
pub(crate) fn show(current: &Value, patched: &Value, schema: &Schema, ty: TypeId) -> String {
    let mut out = Vec::with_capacity(4096);
    match patched {
        Value::Object(_) => Writer { schema }.touched(&mut out, patched, current, &node_of(ty)),
        other => write_value(&mut out, other),
    }
    String::from_utf8(out).unwrap_or_default()
}

fn node_of(ty: TypeId) -> Node {
    NodeType::Object(ty).into()
}

struct Writer<'a> {
    schema: &'a Schema,
}

impl Writer<'_> {
    fn value(&self, out: &mut Vec<u8>, patched: &Value, current: &Value, node: Option<&Node>) {
        match node {
            Some(node) if patched == current => {
                codec::json::encode_node(patched, node, self.schema, out);
            }
            Some(node) => self.touched(out, patched, current, node),
            None => write_value(out, patched),
        }
    }

    fn touched(&self, out: &mut Vec<u8>, patched: &Value, current: &Value, node: &Node) {
        match (patched, current) {
            (Value::Object(new), Value::Object(old)) => {
                out.push(b'{');
                for (at, (name, value)) in new.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    meta::json::write_string(out, name);
                    out.push(b':');
                    let old = old.get(name).unwrap_or(&Value::Null);
                    self.value(out, value, old, self.member(node, name));
                }
                out.push(b'}');
            }
            (Value::Array(new), Value::Array(old)) => {
                let item = match &node.kind {
                    NodeType::List(item, _) => Some(&**item),
                    _ => None,
                };
                out.push(b'[');
                for (at, value) in new.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    self.value(out, value, old.get(at).unwrap_or(&Value::Null), item);
                }
                out.push(b']');
            }
            // What comes from the patch.
            (patched, _) => write_value(out, patched),
        }
    }

    fn member<'n>(&'n self, node: &'n Node, name: &str) -> Option<&'n Node> {
        match &node.kind {
            NodeType::Object(ty) => self.schema.get(*ty).field(name).map(|field| &field.node),
            NodeType::Map(item) => Some(item),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use meta::value;
    use schema::{Field, Type};

    use super::*;

    #[test]
    fn only_what_a_patch_went_through_is_sorted() {
        let mut schema = Schema::default();
        let field = |name: &str, kind: NodeType| Field {
            name: name.into(),
            node: kind.into(),
            ..Field::default()
        };
        let mut with = |fields: Vec<Field>| {
            let mut ty = Type::default();
            ty.fields = fields;
            schema.add(ty)
        };
        let inner = with(vec![field("z", NodeType::String), field("a", NodeType::String)]);
        let list =
            NodeType::List(Box::new(NodeType::Object(inner).into()), schema::ListType::Atomic);
        let outer = with(vec![
            field("two", NodeType::Object(inner)),
            field("one", NodeType::Object(inner)),
            field("list", list),
        ]);
        let current = value!({
            "two": {"z": "1", "a": "2"}, "one": {"z": "1", "a": "2"}, "list": [{"z": "1", "a": "2"}, {"z": "1", "a": "2"}]
        });
        let patched = value!({
            "two": {"z": "1", "a": "2"}, "one": {"z": "3", "a": "2"}, "list": [{"z": "1", "a": "2"}, {"z": "1", "a": "3"}]
        });
        assert_eq!(
            show(&current, &patched, &schema, outer),
            r#"{"list":[{"z":"1","a":"2"},{"a":"3","z":"1"}],"one":{"a":"2","z":"3"},"two":{"z":"1","a":"2"}}"#
        );
    }

    #[test]
    fn what_a_secret_holds_is_cut_out() {
        let secret = value!({
            "data": {"a": "c2VjcmV0", "b": 1i64},
            "stringData": "secret",
            "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "secret", "x": "y"}}
        });
        let shown = |group: &str, kind: &str| {
            let gvk = GroupVersionKind::new(group, "v1", kind);
            meta::json::to_string(&redact(&secret, &gvk))
        };
        assert_eq!(
            shown("", "Secret"),
            r#"{"data":{"a":"[redacted]","b":"[redacted]"},"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"[redacted]","x":"y"}},"stringData":"[redacted]"}"#
        );
        for (group, kind) in [("", "ConfigMap"), ("example.com", "Secret")] {
            assert_eq!(shown(group, kind), meta::json::to_string(&secret));
        }
    }
}
