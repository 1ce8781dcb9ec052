//! The query string, read as Go reads it.

use crate::ApiError;

/// Decoded parameters in the order they were sent.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a raw query. A pair with a bad escape or a semicolon is refused rather than dropped:
    /// Go drops it, so that `?dryRun=All;x` would really write.
    pub fn parse(raw: &str) -> Result<Self, ApiError> {
        let mut pairs = Vec::new();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            if pair.contains(';') {
                return Err(ApiError::bad_request("invalid semicolon separator in query"));
            }
            if pairs.len() == PARAMETERS_MAX {
                return Err(ApiError::bad_request("number of URL query parameters exceeded limit"));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((unescape(name)?, unescape(value)?));
        }
        Ok(Self(pairs))
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first value, or "" where there is none.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Kubernetes reads anything but `0` and `false` as true, an empty value included.
    pub fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or_default()
    }

    pub fn optional_flag(&self, name: &str) -> Option<bool> {
        let value = self.get(name)?;
        Some(!(value == "0" || value.eq_ignore_ascii_case("false")))
    }

    pub fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        parse_integer(text).map(Some)
    }
}

/// More parameters than this are refused (Go ignores the whole query then).
const PARAMETERS_MAX: usize = 10_000;

/// `strconv.ParseInt` with its words.
fn parse_integer(text: &str) -> Result<i64, ApiError> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let why = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        let text = crate::field::quote(text);
        ApiError::BadRequest(format!("strconv.ParseInt: parsing {text}: {why}"))
    })
}

fn unescape(text: &str) -> Result<String, ApiError> {
    let bad = || ApiError::BadRequest(format!("invalid URL escape in query: {text:?}"));
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let high = digit(bytes.next()).ok_or_else(bad)?;
                let low = digit(bytes.next()).ok_or_else(bad)?;
                out.push((high * 16 + low) as u8);
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_in_go() {
        let query = Query::parse("watch&limit=5&a=x%2Cy+z&b=false&c=0&d=yes&a=2").unwrap();
        assert!(query.flag("watch") && query.flag("d"));
        assert!(!query.flag("b") && !query.flag("c") && !query.flag("missing"));
        assert_eq!(query.integer("limit").unwrap(), Some(5));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["x,y z", "2"]);
    }

    #[test]
    fn malformed_pairs_are_rejected() {
        for raw in ["dryRun=All;x=1", "a=%zz", "a=%2", "a=%ff"] {
            assert!(Query::parse(raw).is_err(), "{raw}");
        }
        let error = Query::parse("limit=x").unwrap().integer("limit").unwrap_err();
        assert_eq!(error.to_string(), r#"strconv.ParseInt: parsing "x": invalid syntax"#);
    }
}
