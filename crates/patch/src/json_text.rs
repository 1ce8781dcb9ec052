//! Parses the JSON that is embedded in objects: the keys of `managedFields` and the last-applied
//! annotation of `kubectl apply`. (Request bodies are decoded by the codec.)

use meta::{Map, Number, Str, Value};

/// Parses one JSON value. None if the text is anything else.
pub(crate) fn parse(text: &str) -> Option<Value> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.skip_space();
    (reader.at == text.len()).then_some(value)
}

/// Deeper values are refused, so that the stack is bounded.
const DEPTH_MAX: usize = 128;

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip_space();
        match self.peek()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(|text| Value::String(text.into())),
            b'n' => self.word("null", Value::Null),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut pairs: Vec<(Str, Value)> = Vec::new();
        if self.eat(b'}') {
            return Some(Value::object());
        }
        loop {
            self.skip_space();
            let key = self.string()?;
            if !self.eat(b':') {
                return None;
            }
            pairs.push((key.into(), self.value(depth + 1)?));
            if self.eat(b'}') {
                return Some(Map::from_pairs(pairs).into());
            }
            if !self.eat(b',') {
                return None;
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut items = Vec::new();
        if self.eat(b']') {
            return Some(Value::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.eat(b']') {
                return Some(Value::Array(items));
            }
            if !self.eat(b',') {
                return None;
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let stop = rest.find(|c: char| c == '"' || c == '\\' || (c as u32) < 0x20)?;
            out.push_str(&rest[..stop]);
            self.at += stop + 1;
            match rest.as_bytes()[stop] {
                b'"' => return Some(out),
                b'\\' => out.push(self.escape()?),
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(match c {
            b'"' | b'\\' | b'/' => char::from(c),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex4()?;
                let low = self.text.get(self.at..).and_then(|rest| rest.strip_prefix("\\u"));
                match (first, low) {
                    (0xD800..0xDC00, Some(low)) => {
                        let low = u32::from_str_radix(low.get(..4)?, 16).ok()?;
                        if (0xDC00..0xE000).contains(&low) {
                            self.at += 6;
                            char::from_u32(0x10000 + ((first - 0xD800) << 10) + (low - 0xDC00))?
                        } else {
                            char::REPLACEMENT_CHARACTER
                        }
                    }
                    // An unpaired surrogate.
                    _ => char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER),
                }
            }
            _ => return None,
        })
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
        u32::from_str_radix(digits, 16).ok()
    }

    fn number(&mut self) -> Option<Value> {
        let rest = &self.text.as_bytes()[self.at..];
        let len = rest.iter().take_while(|b| b"+-.eE0123456789".contains(b)).count();
        let text = &self.text[self.at..self.at + len];
        let digits = text.strip_prefix('-').unwrap_or(text);
        let leading_zero = digits.len() > 1 && digits.starts_with('0');
        if !digits.starts_with(|c: char| c.is_ascii_digit())
            || leading_zero && digits.as_bytes()[1].is_ascii_digit()
            || text.ends_with('.')
        {
            return None;
        }
        self.at += len;
        if let Ok(number) = text.parse::<i64>() {
            return Some(Value::Number(Number::Int(number)));
        }
        text.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::from)
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        let matches = self.text[self.at..].starts_with(word);
        self.at += word.len();
        matches.then_some(value)
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.skip_space();
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }
}

/// Small objects with few different keys, so that two of them have something in common.
#[cfg(test)]
pub(crate) fn any_object() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0i64..3).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::vec(("[abc]", inner), 0..4)
                .prop_map(|pairs| pairs.into_iter().collect::<Map>().into()),
        ]
    });
    prop::collection::vec(("[abc]", value), 0..4)
        .prop_map(|pairs| pairs.into_iter().collect::<Map>().into())
}

#[cfg(test)]
mod tests {
    use meta::json;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_read() {
        let cases = [
            (
                r#" {"b" : [1, -2.5, 1e3, true, false, null], "a":"x"} "#,
                Some(r#"{"a":"x","b":[1,-2.5,1000,true,false,null]}"#),
            ),
            (r#""\u00e9\n\ud83d\ude00\/""#, Some("\"é\\n😀/\"")),
            ("{}", Some("{}")),
            ("[]", Some("[]")),
            ("0", Some("0")),
            ("9223372036854775808", Some("9223372036854776000")),
            ("", None),
            ("01", None),
            ("1.", None),
            ("-", None),
            ("nul", None),
            ("[1,]", None),
            ("{\"a\"}", None),
            ("\"\n\"", None),
            ("\"\\x\"", None),
            ("1 2", None),
            ("\"\\ud800\"", Some("\"\u{fffd}\"")),
            ("\"\\u00", None),
        ];
        for (text, expected) in cases {
            let got = parse(text).map(|value| json::to_string(&value));
            assert_eq!(got.as_deref(), expected, "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_none());
    }

    proptest! {
        #[test]
        fn written_values_parse_back(object in any_object()) {
            prop_assert_eq!(parse(&json::to_string(&object)), Some(object));
        }

        #[test]
        fn any_text_is_read_or_refused(text in r#"["\\u{}\[\]:,0-9a-f.é ]{0,20}"#) {
            let _ = parse(&text);
        }
    }
}
