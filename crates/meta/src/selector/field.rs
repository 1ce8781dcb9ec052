//! Field selectors: `metadata.name=x,status.phase!=Running`.

use std::fmt;

use crate::Str;

/// Requirements that must all be met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    pub field: Str,
    pub value: Str,
    /// `!=` instead of `=`.
    pub negated: bool,
}

impl FieldSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    /// Terms are sorted, and empty ones are left out. In values `,`, `=` and `\` are escaped by `\`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let Some((field, negated, value)) = split_term(term) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
            };
            let value = unescape(value)?;
            if field.is_empty() && value.is_empty() {
                continue;
            }
            requirements.push(FieldRequirement { field: Str::new(field), value, negated });
        }
        Ok(Self { requirements })
    }

    pub fn of(requirements: Vec<FieldRequirement>) -> Self {
        Self { requirements }
    }

    /// `value` reads a field; what an object doesn't have reads as "".
    pub fn matches<'a>(&self, value: impl Fn(&str) -> &'a str) -> bool {
        let meets = |required: &FieldRequirement| {
            (value(&required.field) == required.value) != required.negated
        };
        self.requirements.iter().all(meets)
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// The value that a field is required to have. The first one, should there be two.
    pub fn exact_value(&self, field: &str) -> Option<&str> {
        let exact = |required: &&FieldRequirement| !required.negated && required.field == field;
        Some(&self.requirements.iter().find(exact)?.value)
    }

    /// A list with this becomes a get.
    pub fn exact_name(&self) -> Option<&str> {
        self.exact_value("metadata.name")
    }

    pub fn exact_namespace(&self) -> Option<&str> {
        self.exact_value("metadata.namespace")
    }
}

/// At commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
    .collect()
}

/// At the first operator; there is no escaping before it.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        for (operator, negated) in [("!=", true), ("==", false), ("=", false)] {
            if let Some(value) = term[at..].strip_prefix(operator) {
                return Some((&term[..at], negated, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<Str, String> {
    let invalid = |sequence: &str| {
        Err(format!("invalid field selector: invalid escape sequence: {sequence}"))
    };
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                Some(other) => return invalid(&format!("\\{other}")),
                None => return invalid("\\"),
            },
            // Compat: upstream prints the number of the character here.
            ',' | '=' => {
                let c = c as u32;
                return Err(format!("invalid field selector: unescaped character in value: {c}"));
            }
            c => plain.push(c),
        }
    }
    Ok(plain.into())
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, FieldRequirement { field, value, negated }) in self.requirements.iter().enumerate()
        {
            let comma = if at > 0 { "," } else { "" };
            let operator = if *negated { "!=" } else { "=" };
            let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{comma}{field}{operator}{value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_brought_into_their_canonical_form() {
        let cases = [
            ("", ""),
            (",,", ""),
            ("=,!=", ""),
            ("x=a,y=b,z=c", "x=a,y=b,z=c"),
            ("z=c,x==a", "x=a,z=c"),
            ("x!=a", "x!=a"),
            ("x=", "x="),
            (r"x=a\,b\=c\\", r"x=a\,b\=c\\"),
            ("x==a==", "error: invalid field selector: unescaped character in value: 61"),
            ("x=a||y=b", "error: invalid field selector: unescaped character in value: 61"),
            ("a", "error: invalid selector: 'a'; can't understand 'a'"),
            ("a,b=c", "error: invalid selector: 'a,b=c'; can't understand 'a'"),
            (r"x=\a", r"error: invalid field selector: invalid escape sequence: \a"),
            (r"x=\", r"error: invalid field selector: invalid escape sequence: \"),
            ("x<a", "error: invalid selector: 'x<a'; can't understand 'x<a'"),
        ];
        for (text, expected) in cases {
            let got = match FieldSelector::parse(text) {
                Ok(selector) => selector.to_string(),
                Err(why) => format!("error: {why}"),
            };
            assert_eq!(got, expected, "{text:?}");
        }
    }

    #[test]
    fn fields_are_matched() {
        let fields = |field: &str| match field {
            "x" => "y",
            "z" => "w",
            _ => "",
        };
        let cases = [
            ("", true),
            ("x=y", true),
            ("x=y,z=w", true),
            ("x!=a,z!=b", true),
            ("missing=", true),
            ("x=z", false),
            ("x=y,z!=w", false),
            ("missing=a", false),
        ];
        for (text, expected) in cases {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(fields), expected, "{text}");
        }
    }

    #[test]
    fn name_and_namespace_are_found() {
        let selector = FieldSelector::parse("metadata.name=a,metadata.namespace!=b").unwrap();
        assert_eq!(selector.exact_name(), Some("a"));
        assert_eq!(selector.exact_namespace(), None);
    }

    proptest! {
        #[test]
        fn values_survive_escaping(field in "[a-z.]{1,5}", value in r"[a,=\\! é]{0,8}", negated: bool) {
            let required = FieldRequirement { field: field.into(), value: value.into(), negated };
            let selector = FieldSelector::of(vec![required]);
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap(), selector);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in r"[a=!,\\é]{0,12}") {
            let _ = FieldSelector::parse(&text);
        }
    }
}
