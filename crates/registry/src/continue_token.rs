//! The `continue` token of a list: base64url JSON in kube-apiserver's format, so that a client can
//! continue a list on another server.

use base64::{
    Engine as _,
    engine::{
        DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::URL_SAFE_NO_PAD,
    },
};
use meta::ApiError;

/// Where a list continues.
#[derive(Debug, PartialEq, Eq)]
pub struct Continue {
    /// None: continue at the newest revision (after the first one expired).
    pub revision: Option<u64>,
    /// The first key of the next page, relative to what is listed: the resource, or one namespace of it.
    pub start: String,
    /// Compat: kube-apiserver writes the key with a slash in front when it lists from its cache, and without when it
    /// lists from etcd.
    pub with_slash: bool,
}

impl Continue {
    pub fn encode(&self) -> String {
        let revision = self.revision.map_or(-1, |revision| revision as i64);
        // Field order of the Go struct: v, rv, start.
        let mut token = format!(r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":"#).into_bytes();
        let slash = if self.with_slash { "/" } else { "" };
        meta::json::write_string(&mut token, &format!("{slash}{}", self.start));
        token.push(b'}');
        URL_SAFE_NO_PAD.encode(token)
    }

    pub fn decode(token: &str) -> Result<Self, ApiError> {
        if let Some(at) = illegal_byte(token) {
            return Err(invalid(&format!(": illegal base64 data at input byte {at}")));
        }
        // Go skips line breaks.
        let digits: Vec<u8> = token.bytes().filter(|byte| !LINE_BREAKS.contains(byte)).collect();
        let bytes = LENIENT.decode(digits).map_err(|error| invalid(&format!(": {error}")))?;
        if let Some(byte) = bytes.first().filter(|byte| **byte >= 0x80) {
            // Not JSON at all; Go shows the byte as if it were a character.
            let shown = codec::json::quote_byte(*byte);
            let why = format!(": invalid character {shown} looking for beginning of value");
            return Err(invalid(&why));
        }
        let options = codec::json::DecodeOptions { strict: false };
        let token = codec::json::decode_any(&bytes, options)
            .map_err(|error| invalid(&format!(": {error}")))?
            .value;
        let version = token.str_at(&["v"]);
        if version != VERSION {
            return Err(invalid(&format!(
                ": server does not recognize this encoded version {version}"
            )));
        }
        let revision = token.i64_at(&["rv"]).unwrap_or_default();
        if revision == 0 {
            return Err(invalid(
                ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ));
        }
        let start = token.str_at(&["start"]);
        if start.is_empty() {
            return Err(invalid(": encoded start key empty (version meta.k8s.io/v1)"));
        }
        let with_slash = start.starts_with('/');
        let relative = start.strip_prefix('/').unwrap_or(start);
        // Invariant: a token must not lead to keys outside of the listed resource or namespace.
        let climbs = relative.split('/').any(|part| matches!(part, "" | "." | ".."));
        // A single slash is the start of the list.
        if climbs && start != "/" {
            return Err(invalid(&format!(": {start}")));
        }
        let revision = u64::try_from(revision).ok();
        Ok(Self { revision, start: relative.to_owned(), with_slash })
    }
}

const LINE_BREAKS: &[u8] = b"\r\n";

/// Where Go finds that a text is not base64url: the first byte that is no digit, or the end of a text
/// whose last group has a single digit.
fn illegal_byte(token: &str) -> Option<usize> {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut digits = 0;
    for (at, byte) in token.bytes().enumerate() {
        match byte {
            _ if LINE_BREAKS.contains(&byte) => {}
            _ if is_digit(byte) => digits += 1,
            _ => return Some(at),
        }
    }
    (digits % 4 == 1).then(|| token.len() - 1)
}

/// Go accepts trailing bits after the last byte.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

const VERSION: &str = "meta.k8s.io/v1";

fn invalid(why: &str) -> ApiError {
    ApiError::BadRequest(format!("invalid continue token: continue key is not valid{why}"))
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn a_token_reads_back_as_it_was_written() {
        for (revision, with_slash) in [(Some(7), true), (Some(7), false), (None, false)] {
            let token = Continue { revision, start: "ns/name\0".to_owned(), with_slash };
            assert_eq!(Continue::decode(&token.encode()).unwrap(), token);
        }
    }

    #[test]
    fn tokens_of_kube_apiserver_are_understood() {
        let cases = [
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTY5NCwic3RhcnQiOiIvYlx1MDAwMCJ9",
                Some(1694),
                "b\0",
                true,
            ),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiY1x1MDAwMCJ9",
                None,
                "c\0",
                false,
            ),
        ];
        for (token, revision, start, with_slash) in cases {
            let expected = Continue { revision, start: start.to_owned(), with_slash };
            assert_eq!(Continue::decode(token).unwrap(), expected);
        }
    }

    #[test]
    fn a_token_cannot_lead_out_of_its_resource() {
        for start in ["../secrets/x", "a/../../b", "//etc", "/../a", "./a", "a//b", "a/", ""] {
            let text = meta::json::to_string(
                &value!({"v": "meta.k8s.io/v1", "rv": 7i64, "start": (start)}),
            );
            assert!(Continue::decode(&URL_SAFE_NO_PAD.encode(text)).is_err(), "{start}");
        }
    }

    #[test]
    fn illegal_digits_are_found_where_go_finds_them() {
        let cases = [
            ("!", Some(0)),
            ("e", Some(0)),
            ("AAAAA", Some(4)),
            ("AA\nAAA", Some(5)),
            ("a!bc!", Some(1)),
            ("abc=", Some(3)),
            ("ab=", Some(2)),
            ("a+b/", Some(1)),
            ("abcd", None),
            ("ab", None),
        ];
        for (token, expected) in cases {
            assert_eq!(illegal_byte(token), expected, "{token:?}");
        }
    }

    #[test]
    fn garbage_is_a_bad_request() {
        for token in ["!", "AAAA", "e30", ""] {
            let error = Continue::decode(token).unwrap_err().to_string();
            assert!(
                error.starts_with("invalid continue token: continue key is not valid: "),
                "{error}"
            );
        }
    }
}
