//! JSON that is kept as it was written. Go's `RawExtension` holds bytes: the order of keys, the
//! spelling of numbers and repeated keys survive, and a change of them is a change of the object.

use crate::{Str, Value, json};

/// A text and what it says.
#[derive(Clone, Debug)]
pub struct RawJson {
    text: Str,
    // Invariant: decoded from `text`. Decoding it together with the object keeps one bound on depth
    // and memory for both.
    tree: Value,
}

impl RawJson {
    /// `tree` is `text`, decoded.
    pub fn new(text: impl AsRef<str>, tree: Value) -> Self {
        Self { text: Str::new(text), tree }
    }

    /// As it was sent, white space included: what protobuf carries.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn tree(&self) -> &Value {
        &self.tree
    }

    pub fn into_tree(self) -> Value {
        self.tree
    }
}

/// Equal without white space and escapes of HTML: the cache holds compact JSON, and a client that sends
/// again what it sent before must not be told that it changed something.
impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        let compact = |raw: &Self| {
            let mut out = Vec::with_capacity(raw.text.len());
            json::write_compact(&mut out, &raw.text);
            out
        };
        self.text == other.text || compact(self) == compact(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn raw(text: &str, tree: Value) -> Value {
        RawJson::new(text, tree).into()
    }

    #[test]
    fn raw_values_differ_by_more_than_white_space() {
        let tree = value!({"a": 1i64, "b": 2i64});
        let sent = raw(r#"{"b": 2, "a": 1}"#, tree.clone());
        let cases = [
            (r#"{"b":2,"a":1}"#, true),
            ("{\n\"b\":\t2 ,\"a\":1}", true),
            (r#"{"a":1,"b":2}"#, false),
            (r#"{"b":2.0,"a":1}"#, false),
        ];
        for (text, same) in cases {
            assert_eq!(sent == raw(text, tree.clone()), same, "{text}");
        }
        assert_ne!(sent, tree);
        let escaped = |text| raw(text, value!("<"));
        assert_eq!(escaped(r#""<""#), escaped(r#""\u003c""#));
    }

    #[test]
    fn raw_values_read_as_their_tree_and_lose_the_text_when_changed() {
        let mut value = value!({"data": (raw(r#"{"b":2,"a":1}"#, value!({"a": 1i64, "b": 2i64})))});
        assert_eq!(value.i64_at(&["data", "b"]), Some(2));
        assert_eq!(json::to_string(&value), r#"{"data":{"b":2,"a":1}}"#);
        let mut flat = value.clone();
        flat.flatten_raw();
        assert_eq!(json::to_string(&flat), r#"{"data":{"a":1,"b":2}}"#);
        value.set_at(&["data", "c"], 3i64);
        assert_eq!(json::to_string(&value), r#"{"data":{"a":1,"b":2,"c":3}}"#);
    }
}
