//! How property names that are no CEL identifiers are written in expressions: `a.b` as `a__dot__b`,
//! `namespace` as `__namespace__`.

/// Words that CEL's grammar keeps for itself.
pub(crate) const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The identifier for a property name; none if it has a character that cannot be written.
pub fn escape(property: &str) -> Option<String> {
    if property.is_empty() || property.as_bytes()[0].is_ascii_digit() {
        return None;
    }
    if RESERVED.binary_search(&property).is_ok() {
        return Some(format!("__{property}__"));
    }
    let mut escaped = String::with_capacity(property.len());
    let mut rest = property;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '_' if rest.starts_with("__") => {
                escaped.push_str("__underscores__");
                taken = 2;
            }
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => escaped.push(c),
            _ => return None,
        }
        rest = &rest[taken..];
    }
    Some(escaped)
}

/// The property name of an identifier; none if it has an escape that does not exist.
pub fn unescape(name: &str) -> Option<String> {
    let mut property = String::with_capacity(name.len());
    let mut rest = name;
    while !rest.is_empty() {
        if let Some((content, after)) = escape_sequence(rest) {
            match content {
                "underscores" => property.push_str("__"),
                "dot" => property.push('.'),
                "dash" => property.push('-'),
                "slash" => property.push('/'),
                // A reserved word is escaped as a whole or not at all.
                word if RESERVED.binary_search(&word).is_ok() && word.len() + 4 == name.len() => {
                    property.push_str(word);
                }
                _ => return None,
            }
            rest = after;
        } else {
            let c = rest.chars().next().expect("not empty");
            property.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    Some(property)
}

/// `__content__` at the start of `text`, where content has no underscore; and what follows.
fn escape_sequence(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix("__")?;
    let end = inner.find('_')?;
    let after = inner[end..].strip_prefix("__")?;
    (end > 0).then(|| (&inner[..end], after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_back() {
        let cases = [
            ("a", Some("a")),
            ("a.b", Some("a__dot__b")),
            ("a-b/c", Some("a__dash__b__slash__c")),
            ("namespace", Some("__namespace__")),
            ("a__b", Some("a__underscores__b")),
            ("___", Some("__underscores___")),
            ("1a", None),
            ("", None),
            ("a b", None),
            ("ä", None),
        ];
        for (property, escaped) in cases {
            assert_eq!(escape(property).as_deref(), escaped, "{property}");
            if let Some(escaped) = escaped {
                assert_eq!(unescape(escaped).as_deref(), Some(property));
            }
        }
        assert_eq!(unescape("a__foo__b"), None);
        assert_eq!(unescape("a__if__"), None);
    }
}
