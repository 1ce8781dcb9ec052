//! Extensions and enums are YAML inside of the binary form. They are short and made of few things, so
//! this is a fraction of YAML.

use meta::{Value, json};

/// A value as a document, with a newline at the end.
pub(super) fn document(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, 0);
    out
}

/// Writes a value and a newline. The indentation of the first line is there already.
fn write(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    pad(out, indent);
                }
                out.push_str("- ");
                write(out, item, indent + 2);
            }
        }
        Value::Object(map) if !map.is_empty() => {
            for (at, (key, value)) in map.iter().enumerate() {
                if at > 0 {
                    pad(out, indent);
                }
                write_text(out, key);
                out.push(':');
                write_member(out, value, indent);
            }
        }
        Value::String(text) => {
            write_text(out, text);
            out.push('\n');
        }
        // Numbers, words and what is empty are the same in JSON.
        other => {
            out.push_str(&json::to_string(other));
            out.push('\n');
        }
    }
}

/// What has several lines begins on the next one.
fn write_member(out: &mut String, value: &Value, indent: usize) {
    let is_short = match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    };
    if is_short {
        out.push(' ');
        return write(out, value, indent);
    }
    let deeper = indent / STEP * STEP + STEP;
    out.push('\n');
    pad(out, deeper);
    write(out, value, deeper);
}

const STEP: usize = 4;

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Plain words are written as they are, everything else is quoted as in JSON.
fn write_text(out: &mut String, text: &str) {
    let are_words = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./,+ ".contains(c));
    if are_words && !KEYWORDS.contains(&text.to_ascii_lowercase().as_str()) {
        out.push_str(text);
    } else {
        out.push_str(&json::to_string(&Value::from(text)));
    }
}

/// Words that YAML takes for something else.
const KEYWORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn values_are_written_in_lines() {
        let cases = [
            (value!("atomic"), "atomic\n"),
            (value!("merge,retainKeys"), "merge,retainKeys\n"),
            (value!("cert sign"), "cert sign\n"),
            (value!("a "), "\"a \"\n"),
            (value!(""), "\"\"\n"),
            (value!("*"), "\"*\"\n"),
            (value!("No"), "\"No\"\n"),
            (value!("1"), "\"1\"\n"),
            (value!(true), "true\n"),
            (value!(["a", "b"]), "- a\n- b\n"),
            (value!([]), "[]\n"),
            (value!({"group": "", "kind": "Pod"}), "group: \"\"\nkind: Pod\n"),
            (value!([{"a": 1, "b": {"c": "d", "e": []}}]), "- a: 1\n  b:\n    c: d\n    e: []\n"),
            (value!({"a": ["b"]}), "a:\n    - b\n"),
        ];
        for (value, expected) in cases {
            assert_eq!(document(&value), expected);
        }
    }
}
