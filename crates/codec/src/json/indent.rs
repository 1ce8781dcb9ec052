//! Indented JSON, for people who look at it (`?pretty=true`).

use meta::cancel::Steps;

use super::lexer::find_special;

/// Indents compact JSON by two spaces a level, as Go's `json.Indent` does. The output for invalid
/// JSON is unspecified.
pub fn indent(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let mut depth = 0usize;
    let mut at = 0;
    let mut steps = Steps::default();
    while let Some(&byte) = compact.get(at) {
        steps.step();
        match byte {
            b'"' => {
                let end = string_end(compact, at);
                out.extend_from_slice(&compact[at..end]);
                at = end;
                continue;
            }
            b'{' | b'[' => {
                out.push(byte);
                if compact.get(at + 1) == Some(&(byte + 2)) {
                    out.push(byte + 2);
                    at += 1;
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                new_line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            _ => out.push(byte),
        }
        at += 1;
    }
    out
}

/// Deeper lines are indented as far as these: a list of short items a thousand levels down would become
/// a thousand times its size.
const INDENTED_DEPTH_MAX: usize = 50;

fn new_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + depth.min(INDENTED_DEPTH_MAX) * 2, b' ');
}

/// Behind the closing quote of the string that begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        at = find_special(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_as_in_go() {
        let cases = [
            ("{}", "{}"),
            ("[]", "[]"),
            ("1", "1"),
            (
                r#"{"a":[1,{"b":[],"c":{}}],"d":"x,\"{[\\"}"#,
                "{\n  \"a\": [\n    1,\n    {\n      \"b\": [],\n      \"c\": {}\n    }\n  ],\n  \
                 \"d\": \"x,\\\"{[\\\\\"\n}",
            ),
            (r#"{"broken":"#, "{\n  \"broken\": "),
            ("\"\\", "\"\\"),
        ];
        for (compact, expected) in cases {
            assert_eq!(String::from_utf8(indent(compact.as_bytes())).unwrap(), expected);
        }
    }

    #[test]
    fn deep_documents_do_not_become_white_space() {
        let compact = ["[".repeat(900), "0,".repeat(10_000), "0".to_owned(), "]".repeat(900)];
        let compact = compact.concat();
        assert!(indent(compact.as_bytes()).len() < 60 * compact.len());
    }
}
