//! Parsers of queries, headers and single fields.

use std::sync::Arc;

use cel::{Bound, Decl, Env, ListType, regex::Regex};
use codec::negotiate::{self, Endpoint};
use meta::{
    Query,
    jsonpath::JsonPath,
    quantity::Quantity,
    selector::{FieldSelector, LabelSelector},
    time::{Duration, Time},
    value,
};
use registry::Continue;
use trace::SpanContext;

use super::{Target, as_text, ending};
use crate::Random;

macro_rules! target {
    ($constant:ident, $name:literal, $run:ident, $seeds:expr, $words:expr) => {
        pub(super) const $constant: Target = Target {
            name: $name,
            seeds: |_: &mut Random| {
                let seeds: &[&str] = &$seeds;
                seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect()
            },
            words: &$words,
            run: $run,
        };
    };
}

target!(
    LABEL_SELECTOR,
    "label_selector",
    run_label_selector,
    ["a=b", "a==b,c!=d", "x in (a,b), y notin (c), !z, w", "n > 3, m<4", "example.com/k=v", ""],
    [",", "(", ")", " in ", " notin ", "!", "=", "==", "!=", ">", "<", "a", "a/b", "\\", " ", "1"]
);
target!(
    FIELD_SELECTOR,
    "field_selector",
    run_field_selector,
    ["metadata.name=a", "a=b,c!=d,e==f", "spec.x=\\,\\=\\\\", ""],
    [",", "=", "==", "!=", "\\", "\\,", "metadata.name", "!"]
);
target!(
    CONTINUE,
    "continue_token",
    run_continue,
    [
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Nywic3RhcnQiOiJucy9uYW1lXHUwMDAwIn0",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYSJ9",
        r#"{"v":"meta.k8s.io/v1","rv":7,"start":"ns/name\u0000"}"#,
        r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"../a"}"#
    ],
    ["\"rv\":", "-1", "0", "/", "..", "\"start\":", "\"v\":", "=", "A", "eyJ"]
);
target!(
    QUERY,
    "query",
    run_query,
    [
        "a=b&c=%20d&watch",
        "limit=500&continue=x&labelSelector=a%3Db%2Cc",
        "timeoutSeconds=1&x=+&y=%F0%9F%A6%80"
    ],
    ["&", "=", "%", "%2", "%00", "%zz", ";", "+", "limit", "true", "-1"]
);
target!(
    ACCEPT,
    "accept",
    run_accept,
    [
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "application/vnd.kubernetes.protobuf;q=0.5, */*;q=0.1",
        "application/yaml, text/*;q=1.0",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io;stream=watch;pretty=1"
    ],
    [";", ",", "q=", "as=", "\"", "*/*", "application/", "*", "/", "=", "pretty=1", "0.0001", "\\"]
);
target!(
    QUANTITY,
    "quantity",
    run_quantity,
    ["1", "100m", "1.5Gi", "-2e3", "9223372036854775807", "0.000000001n", "12E", "1Ei", "+5"],
    ["0", "9", ".", "e", "E", "-", "+", "Ki", "Ei", "n", "u", "m", "00000000000000000000"]
);
target!(
    TIME,
    "time",
    run_time,
    [
        "2001-02-03T04:05:06Z",
        "2001-02-03T04:05:06.123456Z",
        "0001-01-01T00:00:00Z",
        "1969-12-31T23:59:59+14:00"
    ],
    ["-", ":", "T", "Z", "+", ".", "00", "99", "23:59:60", "02-29", "9999", "0000", "t", " "]
);
target!(
    TRACEPARENT,
    "traceparent",
    run_traceparent,
    [
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more",
    ],
    ["-", "00", "ff", "0", "a", "F"]
);
target!(
    DURATION,
    "duration",
    run_duration,
    ["1h2m3.5s", "-1.5h", "100ms", "1us", "1µs", "0", "2562047h47m16.854775807s", "1ns"],
    ["h", "m", "s", "ms", "us", "µs", "ns", ".", "-", "+", "9", "0", "99999999999999999999"]
);
target!(
    CEL,
    "cel",
    run_cel,
    [
        "self.a > 1 && self.l.all(x, x < 3)",
        "has(self.m.k) ? self.m['k'] : self.s.matches('^a')",
        "self.l.map(i, i * 2).filter(j, j in [2, 4]).size() == 2u",
        "duration('1h') > duration('1m') && self.s.split('').join(',').lowerAscii() != ''",
        "optional.of(self.a).optMap(v, v + 1).orValue(-9223372036854775808)",
        "quantity('1Gi').isGreaterThan(quantity('1G')) || ip('::1').isLoopback() || url('http://a').getHost() == 'b'",
        "'%s %d %.2f'.format([self.s, self.a, 1.5]) + string(b'\\xff\\u00e9'.size())"
    ],
    [
        "self",
        ".",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        "?",
        ":",
        "&&",
        "||",
        "!",
        "==",
        "<",
        "+",
        "-",
        "*",
        "/",
        "%",
        " in ",
        "1",
        "1u",
        "1.5",
        "'a'",
        "\"\\x\"",
        "r'\\d'",
        "b''",
        "null",
        "has(",
        ".all(x, ",
        ".map(x, ",
        ".optMap(x, ",
        "dyn(",
        "'''",
        "//",
        "`a`",
        "size(",
        "1e400",
        "-9223372036854775808",
        ".?a",
        "cel.bind(y, ",
        ".sortBy(x, "
    ]
);
target!(
    REGEX,
    "regex",
    run_regex,
    [
        "^[a-z]([-a-z0-9]*[a-z0-9])?$",
        "(?i:a|b)*?",
        r"\d{2,5}\pL\Q.*\E",
        "[[:alpha:]&&x]",
        "(?P<n>a)(?s).{3}"
    ],
    [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "{1000}",
        "*",
        "+",
        "?",
        "|",
        "\\",
        "\\p{Greek}",
        "(?",
        "[^",
        "-",
        "^",
        "$",
        "é",
        "\\x{10ffff}"
    ]
);
target!(
    JSON_PATH,
    "json_path",
    run_json_path,
    [
        ".spec.replicas",
        ".a[0]",
        ".a[-1:]",
        "..name",
        ".a[?(@.b=='c')].d",
        ".m['x','y']",
        ".a[*].b",
        ".a\\.b"
    ],
    [
        ".",
        "..",
        "[",
        "]",
        "*",
        "?(",
        ")",
        "@",
        "'",
        "\"",
        "==",
        "<=",
        ":",
        ",",
        "-1",
        "\\",
        "a",
        "$",
        "99999999999999999999"
    ]
);

fn run_label_selector(input: &[u8]) -> String {
    match LabelSelector::parse(&as_text(input)) {
        Ok(selector) => {
            let text = selector.to_string();
            let again = LabelSelector::parse(&text).expect("what was written can be read");
            assert_eq!(again.to_string(), text);
            let _ = selector.matches(&[("a".into(), "b".into()), ("n".into(), "5".into())]);
            "ok".to_owned()
        }
        Err(error) => ending(error),
    }
}

fn run_field_selector(input: &[u8]) -> String {
    match FieldSelector::parse(&as_text(input)) {
        Ok(selector) => {
            let text = selector.to_string();
            let again = FieldSelector::parse(&text).expect("what was written can be read");
            // Requirements are sorted as they were spelled, so the second round is the first stable one.
            let settled = FieldSelector::parse(&again.to_string()).expect("as above");
            assert_eq!(settled.to_string(), again.to_string());
            "ok".to_owned()
        }
        Err(error) => ending(error),
    }
}

/// Tokens are base64 around JSON: damage to either is tried.
fn run_continue(input: &[u8]) -> String {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let as_is = as_text(input).into_owned();
    let wrapped = URL_SAFE_NO_PAD.encode(input);
    let endings = [as_is, wrapped].map(|token| match Continue::decode(&token) {
        Ok(read) => {
            assert!(!read.start.split('/').any(|part| part == ".."), "leads out: {read:?}");
            let again = Continue::decode(&read.encode());
            assert_eq!(again.expect("what was written can be read"), read);
            "ok".to_owned()
        }
        Err(error) => ending(error),
    });
    endings.concat()
}

fn run_query(input: &[u8]) -> String {
    match Query::parse(&as_text(input)) {
        Ok(query) => {
            let limit = query.integer("limit").map_err(ending);
            format!("ok {} {}", query.flag("watch"), limit.is_ok())
        }
        Err(error) => ending(error),
    }
}

fn run_accept(input: &[u8]) -> String {
    let header = as_text(input);
    let header = Some(header.as_ref());
    let mut endings = format!(
        "{:?}",
        negotiate::content_type(header, negotiate::OFFERED_WITH_CBOR).map_err(ending)
    );
    for endpoint in [Endpoint::Resource, Endpoint::CustomResource, Endpoint::Document] {
        match negotiate::accept_stream(header, endpoint, negotiate::OFFERED_WITH_CBOR) {
            Ok(accepted) => endings.push_str(&format!("{:?}", accepted.media_type)),
            Err(error) => endings.push_str(&ending(error)),
        }
    }
    drop(negotiate::accept_discovery(header));
    endings
}

fn run_quantity(input: &[u8]) -> String {
    match Quantity::parse(&as_text(input)) {
        Ok(quantity) => {
            let text = quantity.to_string();
            let again = Quantity::parse(&text).expect("what was written can be read");
            assert_eq!(again.to_string(), text, "{}", as_text(input));
            std::hint::black_box((quantity.value(), quantity.milli_value(), quantity.as_f64()));
            let mut sum = quantity.clone();
            sum.add(&again);
            sum.mul(3);
            sum.sub(&quantity);
            format!("ok {:?} {}", quantity.format(), quantity.as_i64().is_some())
        }
        Err(error) => ending(error),
    }
}

fn run_time(input: &[u8]) -> String {
    match Time::parse(&as_text(input)) {
        Ok(time) => {
            let text = time.to_rfc3339();
            // Zones can lead out of the years that can be written.
            if let Ok(again) = Time::parse(&text) {
                assert_eq!(again.unix_seconds(), time.unix_seconds(), "{text}");
                assert_eq!(again.to_rfc3339(), text);
            }
            let micro = Time::parse_micro(&time.to_rfc3339_micro());
            format!("ok {}", micro.is_ok())
        }
        Err(error) => ending(error),
    }
}

fn run_duration(input: &[u8]) -> String {
    match Duration::parse(&as_text(input)) {
        Ok(duration) => {
            let text = duration.to_string();
            assert_eq!(Duration::parse(&text).expect("what was written can be read"), duration);
            let _ = (duration.human(), duration.short_human());
            "ok".to_owned()
        }
        Err(error) => ending(error),
    }
}

fn run_traceparent(input: &[u8]) -> String {
    match SpanContext::parse(&as_text(input)) {
        Some(context) => {
            let text = context.traceparent();
            assert_eq!(SpanContext::parse(&text), Some(context));
            "ok".to_owned()
        }
        None => "none".to_owned(),
    }
}

fn run_cel(input: &[u8]) -> String {
    let list = Decl::list(Arc::new(Decl::int()), ListType::Atomic, None);
    let decl = Arc::new(Decl::object([
        ("a", Arc::new(Decl::int()), false),
        ("l", Arc::new(list), false),
        ("m", Arc::new(Decl::map(Arc::new(Decl::string(None)), None)), false),
        ("s", Arc::new(Decl::string(None)), false),
    ]));
    let object = value!({"a": 1i64, "l": [1i64, 2i64], "m": {"k": "v"}, "s": "é"});
    match Env::new().data("self", &decl).compile(&as_text(input)) {
        Ok(program) => {
            match program.evaluate(&[Bound::Data(&object, &decl)], CEL_COST_MAX).result {
                Ok(value) => {
                    let shown = format!("{value:?}");
                    format!("ok {}", shown.split(['(', ' ']).next().unwrap_or_default())
                }
                Err(error) => ending(format!("{error:?}")),
            }
        }
        Err(error) => ending(error),
    }
}

/// Some expressions would run for a while.
const CEL_COST_MAX: u64 = 10_000;

fn run_regex(input: &[u8]) -> String {
    match Regex::new(&as_text(input)) {
        Ok(regex) => format!("ok {}", regex.find_all("aé1-c\nb", Some(10)).len()),
        Err(error) => ending(error),
    }
}

fn run_json_path(input: &[u8]) -> String {
    let object = value!({"spec": {"replicas": 1i64}, "a": [{"b": "c", "d": 1.5}, {"b": null, "name": "x"}], "m": {"x": [[1i64]], "y": true}});
    match JsonPath::parse(&as_text(input)) {
        Ok(path) => match path.find(&object) {
            Ok(found) => format!("ok {}", found.len()),
            Err(_) => "mismatch".to_owned(),
        },
        Err(error) => ending(error),
    }
}
