//! Configuration files of the server (`--authorization-config`, `--audit-policy-file`, …): YAML or JSON of
//! one kind, decoded strictly. A wrong type, an unknown field and a key that comes twice are errors that
//! name the line.
//!
//! Reading the file is up to the caller: nothing here does I/O.

use meta::{FieldPath, Value, field::quote};

use crate::yaml;

/// The type of a field of a file. Null is a value of every type.
pub enum FieldType {
    /// Checked by its reader.
    Any,
    Bool,
    Int,
    Text,
    TextMap,
    /// Any fields.
    Object,
    List(&'static FieldType),
    Fields(&'static [(&'static str, FieldType)]),
}

impl FieldType {
    pub const TEXTS: Self = Self::List(&Self::Text);
}

/// A file before its fields are checked.
pub struct Document<'a> {
    bytes: &'a [u8],
    pub value: Value,
    duplicates: Vec<String>,
}

/// Decodes a file of one of these kinds, each a `GROUP/VERSION` and a kind.
pub fn decode(bytes: &[u8], kinds: &[(&str, &str)], ty: &FieldType) -> Result<Value, String> {
    let document = Document::load(bytes)?;
    check_kind(&document.value, kinds)?;
    document.check(ty)
}

impl<'a> Document<'a> {
    /// Any object.
    pub fn load(bytes: &'a [u8]) -> Result<Self, String> {
        let converted = yaml::load(bytes).map_err(|error| error.to_string())?;
        if converted.value.as_object().is_none() {
            let found = converted.value.type_name();
            return Err(format!(
                "couldn't get version/kind; json parse error: not an object: {found}"
            ));
        }
        Ok(Self { bytes, value: converted.value, duplicates: converted.duplicates })
    }

    /// The value, if it has these fields and no others.
    pub fn check(self, ty: &FieldType) -> Result<Value, String> {
        let mut checked = Checked { bytes: Some(self.bytes), strict: self.duplicates, more: 0 };
        checked.visit(&self.value, ty, &FieldPath::root())?;
        checked.finish().map(|()| self.value)
    }
}

/// Checks the fields of a part of a file whose text is not at hand.
pub fn check_fields(value: &Value, ty: &FieldType) -> Result<(), String> {
    let mut checked = Checked { bytes: None, strict: Vec::new(), more: 0 };
    checked.visit(value, ty, &FieldPath::root())?;
    checked.finish()
}

/// Is this an object of one of these kinds?
pub fn check_kind(value: &Value, kinds: &[(&str, &str)]) -> Result<(), String> {
    let (version, kind) = (value.str_at(&["apiVersion"]), value.str_at(&["kind"]));
    if kind.is_empty() {
        return Err("Object 'Kind' is missing".to_owned());
    }
    if version.is_empty() {
        return Err("Object 'apiVersion' is missing".to_owned());
    }
    if kinds.contains(&(version, kind)) {
        return Ok(());
    }
    let (version, kind) = (quote(version), quote(kind));
    let why = format!("no kind {kind} is registered for version {version}");
    Err(match kinds.first() {
        Some((version, kind)) => format!("{why}: only {kind} of {version} is"),
        None => why,
    })
}

struct Checked<'a> {
    /// The text, for the lines of errors.
    bytes: Option<&'a [u8]>,
    /// Keys that come twice, and unknown fields.
    strict: Vec<String>,
    /// Those that are not listed.
    more: usize,
}

/// To find the line of an error the text is read again.
const LISTED_MAX: usize = 100;

impl Checked<'_> {
    /// A wrong type is an error at once; unknown fields are collected.
    fn visit(&mut self, value: &Value, ty: &FieldType, at: &FieldPath) -> Result<(), String> {
        let wanted = match (ty, value) {
            (_, Value::Null)
            | (FieldType::Any, _)
            | (FieldType::Bool, Value::Bool(_))
            | (FieldType::Text, Value::String(_))
            | (FieldType::Object, Value::Object(_)) => return Ok(()),
            (FieldType::Int, _) if value.as_i64().is_some() => return Ok(()),
            (FieldType::List(item), Value::Array(items)) => {
                let mut items = items.iter().enumerate();
                return items.try_for_each(|(n, value)| self.visit(value, item, &at.index(n)));
            }
            (FieldType::TextMap, Value::Object(map)) => {
                let mut entries = map.iter();
                return entries.try_for_each(|(key, value)| {
                    self.visit(value, &FieldType::Text, &at.key(key))
                });
            }
            (FieldType::Fields(fields), Value::Object(object)) => {
                return object.iter().try_for_each(|(name, value)| {
                    let at = at.child(name);
                    match fields.iter().find(|(known, _)| known == name) {
                        Some((_, ty)) => self.visit(value, ty, &at),
                        None => {
                            self.unknown(&at);
                            Ok(())
                        }
                    }
                });
            }
            (FieldType::Bool, _) => "bool",
            (FieldType::Int, _) => "int32",
            (FieldType::Text, _) => "string",
            (FieldType::TextMap, _) => "map[string]string",
            (FieldType::Object | FieldType::Fields(_), _) => "object",
            (FieldType::List(_), _) => "list",
        };
        let (line, found) = (self.line(at), value.type_name());
        Err(format!("{line}json: cannot unmarshal {found} into field {at} of type {wanted}"))
    }

    fn unknown(&mut self, at: &FieldPath) {
        if self.strict.len() >= LISTED_MAX {
            self.more += 1;
            return;
        }
        let unknown = format!("{}unknown field {}", self.line(at), quote(&at.to_string()));
        self.strict.push(unknown);
    }

    fn line(&self, at: &FieldPath) -> String {
        let line = self.bytes.and_then(|bytes| yaml::line_of(bytes, &at.to_string()));
        line.map_or_else(String::new, |line| format!("line {line}: "))
    }

    fn finish(self) -> Result<(), String> {
        if self.strict.is_empty() {
            return Ok(());
        }
        let more = match self.more {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Err(format!("strict decoding error: {}{more}", self.strict.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FieldType = FieldType::Fields(&[
        ("apiVersion", FieldType::Text),
        ("kind", FieldType::Text),
        ("metadata", FieldType::Object),
        ("count", FieldType::Int),
        ("labels", FieldType::TextMap),
        ("any", FieldType::Any),
        ("names", FieldType::TEXTS),
        ("list", FieldType::List(&ITEM)),
    ]);
    const ITEM: FieldType =
        FieldType::Fields(&[("flag", FieldType::Bool), ("text", FieldType::Text)]);
    const KINDS: [(&str, &str); 2] = [("g/v1", "K"), ("g/v1beta1", "K")];

    #[test]
    fn files_are_decoded_strictly_and_errors_name_the_line() {
        let head = "apiVersion: g/v1\nkind: K\n";
        let cases = [
            ("list: [{flag: true, text: x}]\nmetadata: {a: 1}\ncount: 3\nlabels: {a: b}", ""),
            ("list:\nany: [1, {}]\nnames: [a]", ""),
            (
                "list: [{flag: yes-please}]",
                "line 3: json: cannot unmarshal string into field list[0].flag of type bool",
            ),
            ("list: {}", "line 3: json: cannot unmarshal object into field list of type list"),
            ("names: [a, 1]", "cannot unmarshal number into field names[1] of type string"),
            ("count: 1.5", "cannot unmarshal number into field count of type int32"),
            ("metadata: []", "cannot unmarshal array into field metadata of type object"),
            ("labels: [a]", "cannot unmarshal array into field labels of type map[string]string"),
            ("labels: {a: 1}", "cannot unmarshal number into field labels[a] of type string"),
            (
                "list:\n- {a: 1}\nb: 2",
                "strict decoding error: line 5: unknown field \"b\", line 4: unknown field \
                 \"list[0].a\"",
            ),
            (
                "list: []\nlist: []",
                "strict decoding error: line 4: key \"list\" already set in map",
            ),
            ("list: [", "yaml: line"),
        ];
        for (text, expected) in cases {
            match decode(format!("{head}{text}").as_bytes(), &KINDS, &FILE) {
                Ok(_) => assert_eq!(expected, "", "{text}"),
                Err(why) => {
                    assert!(!expected.is_empty() && why.contains(expected), "{text}: {why}");
                }
            }
        }
    }

    #[test]
    fn the_kind_has_to_be_one_of_those_that_are_known() {
        let cases = [
            ("", "couldn't get version/kind; json parse error: not an object: null"),
            ("[]", "couldn't get version/kind; json parse error: not an object: array"),
            ("apiVersion: g/v1", "Object 'Kind' is missing"),
            ("kind: K", "Object 'apiVersion' is missing"),
            (
                "kind: K\napiVersion: g/v2",
                "no kind \"K\" is registered for version \"g/v2\": only K of g/v1 is",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(decode(text.as_bytes(), &KINDS, &FILE), Err(expected.to_owned()), "{text}");
        }
        assert!(decode(b"kind: K\napiVersion: g/v1beta1", &KINDS, &FILE).is_ok());
    }

    #[test]
    fn a_part_of_a_file_has_no_lines_and_errors_are_bounded() {
        let value = yaml::load(b"flag: true\nother: 1").unwrap().value;
        let why = "strict decoding error: unknown field \"other\"";
        assert_eq!(check_fields(&value, &ITEM), Err(why.to_owned()));
        let many: String = (0..1000).map(|n| format!("f{n}: 1\n")).collect();
        let value = yaml::load(many.as_bytes()).unwrap().value;
        let why = check_fields(&value, &ITEM).unwrap_err();
        assert_eq!(why.matches("unknown field").count(), LISTED_MAX);
        assert!(why.ends_with(", and 900 more"), "{why}");
    }
}
