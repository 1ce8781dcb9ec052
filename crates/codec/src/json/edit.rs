//! Changes of JSON text that keep everything else byte for byte: audit events carry objects in the
//! order of their fields, which a tree does not know.

use std::collections::BTreeMap;

use super::{
    DecodeOptions, decode_any,
    lexer::{Lexer, well_formed},
};

/// Removes whitespace and escapes as Go's `json.Compact` in an encoder does. None: not JSON.
pub fn compact(json: &[u8]) -> Option<Vec<u8>> {
    decode_any(json, DecodeOptions { strict: false }).ok()?;
    let mut out = Vec::with_capacity(json.len());
    meta::json::write_compact(&mut out, &well_formed(json));
    Some(out)
}

/// A list of maps as Go writes one whose values are raw messages: the members of each item are sorted by their
/// keys, the last of several with one key counts, and values stay as they are written, but for white space and
/// escapes. `json` is valid; what is no list of objects is only compacted.
pub fn sort_members_of_items(json: &[u8]) -> String {
    let mut compact = Vec::with_capacity(json.len());
    meta::json::write_compact(&mut compact, &well_formed(json));
    let text = String::from_utf8_lossy(&compact);
    if !text.starts_with('[') {
        return text.into_owned();
    }
    let mut out = vec![b'['];
    let mut at = 1;
    while text.as_bytes().get(at).is_some_and(|byte| *byte != b']') {
        if out.len() > 1 {
            out.push(b',');
        }
        let end = value_end(text.as_bytes(), at);
        write_sorted(&mut out, &text[at..end]);
        at = end + usize::from(text.as_bytes().get(end) == Some(&b','));
    }
    out.push(b']');
    String::from_utf8_lossy(&out).into_owned()
}

fn write_sorted(out: &mut Vec<u8>, item: &str) {
    if !item.starts_with('{') {
        out.extend_from_slice(item.as_bytes());
        return;
    }
    let mut members = BTreeMap::new();
    let mut lexer = Lexer { text: item, at: 1 };
    while lexer.peek() == Some(b'"') {
        let Ok(key) = lexer.string() else { break };
        let value_at = lexer.at + 1;
        let end = value_end(item.as_bytes(), value_at);
        members.insert(key, item.get(value_at..end).unwrap_or_default());
        lexer.at = end + 1;
    }
    out.push(b'{');
    for (at, (key, value)) in members.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        meta::json::write_string(out, &key);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b'}');
}

/// A member of an object, to be left out or replaced.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'a> {
    /// The names on the way to it; `*` stands for all items of an array.
    pub path: &'a [&'a str],
    /// None: left out. A member that is an empty text is not replaced.
    pub replacement: Option<&'a str>,
}

/// Applies edits to JSON without whitespace, which the server itself has written. Text that is not
/// like that is returned as it is, as far as it is not.
pub fn edit(json: &[u8], edits: &[Edit<'_>]) -> Vec<u8> {
    let mut editor = Editor { json, at: 0, out: Vec::with_capacity(json.len()) };
    editor.value(edits);
    editor.out.extend_from_slice(&json[editor.at..]);
    editor.out
}

struct Editor<'a> {
    json: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

impl Editor<'_> {
    /// Copies a value. Recursion ends with the paths of the edits.
    fn value(&mut self, edits: &[Edit<'_>]) {
        match self.json.get(self.at) {
            Some(b'{') if !edits.is_empty() => self.object(edits),
            Some(b'[') if !edits.is_empty() => self.array(edits),
            _ => self.copy_to(value_end(self.json, self.at)),
        }
    }

    fn object(&mut self, edits: &[Edit<'_>]) {
        self.copy_to(self.at + 1);
        let mut first = true;
        while self.json.get(self.at) == Some(&b'"') {
            let key_end = value_end(self.json, self.at);
            let key = &self.json[self.at + 1..key_end - 1];
            let value_at = key_end + 1;
            let below = |edit: &&Edit<'_>| edit.path.first().is_some_and(|n| n.as_bytes() == key);
            let inner: Vec<Edit<'_>> = edits
                .iter()
                .filter(below)
                .map(|edit| Edit { path: &edit.path[1..], ..*edit })
                .collect();
            let here = inner.iter().find(|edit| edit.path.is_empty());
            let removed = here.is_some_and(|edit| edit.replacement.is_none());
            if !removed {
                if !std::mem::take(&mut first) {
                    self.out.push(b',');
                }
                self.copy_to(value_at);
            }
            self.at = value_at.min(self.json.len());
            match here {
                None => self.value(&inner),
                Some(edit) => {
                    let end = value_end(self.json, self.at);
                    match edit.replacement {
                        Some(text) if &self.json[self.at..end] != b"\"\"" => {
                            self.out.extend_from_slice(text.as_bytes());
                            self.at = end;
                        }
                        Some(_) => self.copy_to(end),
                        None => self.at = end,
                    }
                }
            }
            if self.json.get(self.at) == Some(&b',') {
                self.at += 1;
            }
        }
        self.copy_to(self.at + 1);
    }

    fn array(&mut self, edits: &[Edit<'_>]) {
        self.copy_to(self.at + 1);
        let inner: Vec<Edit<'_>> = edits
            .iter()
            .filter(|edit| edit.path.first() == Some(&"*"))
            .map(|edit| Edit { path: &edit.path[1..], ..*edit })
            .collect();
        while self.json.get(self.at).is_some_and(|byte| *byte != b']') {
            let before = self.at;
            self.value(&inner);
            if self.json.get(self.at) == Some(&b',') {
                self.copy_to(self.at + 1);
            }
            if self.at == before {
                return;
            }
        }
        self.copy_to(self.at + 1);
    }

    fn copy_to(&mut self, end: usize) {
        let end = end.clamp(self.at, self.json.len());
        self.out.extend_from_slice(&self.json[self.at..end]);
        self.at = end;
    }
}

/// Where the value that begins at `at` ends.
fn value_end(json: &[u8], at: usize) -> usize {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (offset, &byte) in json[at.min(json.len())..].iter().enumerate() {
        let here = at + offset;
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    in_string = false;
                    if depth == 0 {
                        return here + 1;
                    }
                }
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            // The end of what is around a number or a word.
            b'}' | b']' | b',' if depth == 0 => return here,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return here + 1;
                }
            }
            _ => {}
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitespace_goes_and_html_is_escaped() {
        let cases = [
            (r#"{ "data":  {"a": "<x> y\" z"}}"#, Some(r#"{"data":{"a":"\u003cx\u003e y\" z"}}"#)),
            ("[1, 2,\n\t3]\n", Some("[1,2,3]")),
            (r#"{"a\\": " b "}"#, Some(r#"{"a\\":" b "}"#)),
            ("{\"a\":\"\u{2028}\u{e9}\"}", Some("{\"a\":\"\\u2028\u{e9}\"}")),
            (r#"{ "data": "#, None),
            ("", None),
        ];
        for (given, expected) in cases {
            let found = compact(given.as_bytes()).map(|json| String::from_utf8(json).unwrap());
            assert_eq!(found.as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn members_of_items_are_sorted_and_values_stay_as_written() {
        let cases = [
            (
                r#"[ {"value": {"b": 1.0, "a": [2, {"z":1, "y":"<"}]}, "path": "/x", "op":"add"} , null]"#,
                r#"[{"op":"add","path":"/x","value":{"b":1.0,"a":[2,{"z":1,"y":"\u003c"}]}},null]"#,
            ),
            (r#"[{"op":"a","op":"b"},{}]"#, r#"[{"op":"b"},{}]"#),
            (
                r#"[{"\u006fp":"\u0061dd","a,\"]}":"]}\\"}]"#,
                r#"[{"a,\"]}":"]}\\","op":"\u0061dd"}]"#,
            ),
            ("[]", "[]"),
            (" null ", "null"),
            (r#"[[{"b":1,"a":2}],1,"{"]"#, r#"[[{"b":1,"a":2}],1,"{"]"#),
        ];
        for (given, expected) in cases {
            assert_eq!(sort_members_of_items(given.as_bytes()), expected, "{given}");
        }
    }

    #[test]
    fn members_are_left_out_or_replaced() {
        let managed = [
            Edit { path: &["metadata", "managedFields"], replacement: None },
            Edit { path: &["items", "*", "metadata", "managedFields"], replacement: None },
        ];
        let token = [Edit { path: &["status", "token"], replacement: Some("\"X\"") }];
        let cases: [(&[Edit<'_>], &str, &str); 12] = [
            (&managed, r#"{"kind":"A","metadata":{}}"#, r#"{"kind":"A","metadata":{}}"#),
            (&managed, r#"{"metadata":{"managedFields":[{"a":"]\""}]}}"#, r#"{"metadata":{}}"#),
            (
                &managed,
                r#"{"metadata":{"managedFields":[1],"name":"a"},"z":{"managedFields":1}}"#,
                r#"{"metadata":{"name":"a"},"z":{"managedFields":1}}"#,
            ),
            (
                &managed,
                r#"{"metadata":{"name":"a","managedFields":[],"uid":"u"},"a":1.5}"#,
                r#"{"metadata":{"name":"a","uid":"u"},"a":1.5}"#,
            ),
            (
                &managed,
                r#"{"items":[{"metadata":{"managedFields":[1]}},{"metadata":{"b":[],"managedFields":2}},3]}"#,
                r#"{"items":[{"metadata":{}},{"metadata":{"b":[]}},3]}"#,
            ),
            (&managed, r#"{"items":[],"metadata":null}"#, r#"{"items":[],"metadata":null}"#),
            (&managed, r#"{"items":null}"#, r#"{"items":null}"#),
            (&token, r#"{"status":{"token":"abc","a":1}}"#, r#"{"status":{"token":"X","a":1}}"#),
            (&token, r#"{"status":{"token":""}}"#, r#"{"status":{"token":""}}"#),
            (&[], r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (&managed, r#"{"metadata":{"managedFields"#, r#"{"metadata":{"managedFields"#),
            (&managed, "", ""),
        ];
        for (edits, json, expected) in cases {
            let found = edit(json.as_bytes(), edits);
            assert_eq!(String::from_utf8(found).unwrap(), expected);
        }
    }
}
