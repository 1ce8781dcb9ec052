//! Bodies in every media type. The attacker has no role: a self review is decoded for every user.

use http::Method;

use super::{CBOR, Case, Client, JSON, NAMESPACE, PROTOBUF, YAML, sized};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Nearly what a body may have: 3 MiB.
const LARGEST: usize = 3_100_000;

fn json(
    name: &'static str,
    codes: &'static [u16],
    query: &str,
    body: impl Fn() -> String + 'static,
) -> Case {
    let path = format!("{REVIEWS}{query}");
    Case::send(name, Client::User, codes, (Method::POST, &path, JSON), move || body().into())
}

fn yaml(name: &'static str, codes: &'static [u16], body: impl Fn() -> String + 'static) -> Case {
    Case::send(name, Client::User, codes, (Method::POST, REVIEWS, YAML), move || body().into())
}

fn bytes(
    name: &'static str,
    content_type: &'static str,
    codes: &'static [u16],
    body: impl Fn() -> Vec<u8> + 'static,
) -> Case {
    Case::send(name, Client::User, codes, (Method::POST, REVIEWS, content_type), body)
}

/// A review with a field that is none of it.
fn review(unknown: &str) -> String {
    format!(
        r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{{"nonResourceAttributes":{{"path":"/","verb":"get"}}}},"x":{unknown}}}"#
    )
}

fn nested(open: &str, close: &str, depth: usize) -> String {
    format!("{}{}", open.repeat(depth), close.repeat(depth))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = json_cases();
    cases.extend(yaml_cases());
    cases.extend(binary_cases());
    cases
}

fn json_cases() -> Vec<Case> {
    let empties = || review(&format!("[{}[]]", "[],".repeat(sized(LARGEST) / 3 - 100)));
    let objects = || review(&format!("[{}{{}}]", r#"{"a":1},"#.repeat(sized(LARGEST) / 8 - 100)));
    let keys = |n: usize| {
        let keys: String = (0..n).map(|i| format!(r#""{i}":0,"#)).collect();
        review("0").replace(r#""x":0"#, &format!(r#"{keys}"y":0"#))
    };
    let duplicates =
        |n: usize| review("0").replace(r#""x":0"#, &format!(r#"{}"x":0"#, r#""x":0,"#.repeat(n)));
    vec![
        json("json: arrays nested to the limit", &[201], "", || review(&nested("[", "]", 9_990))),
        json("json: arrays nested beyond the limit", &[400], "", || {
            review(&nested("[", "]", 1_000_000))
        }),
        json("json: objects nested beyond the limit", &[400], "", || {
            review(&nested(r#"{"a":"#, "}", 400_000))
        }),
        json("json: never closed", &[400], "", || review("0").replace("0}", &"[".repeat(LARGEST))),
        json("json: a million empty arrays", &[201], "", empties),
        json("json: 390 000 small objects", &[201], "", objects),
        json("json: 250 000 unknown fields", &[201], "", move || keys(sized(250_000))),
        json(
            "json: 250 000 unknown fields, strict",
            &[400],
            "?fieldValidation=Strict",
            move || keys(sized(250_000)),
        ),
        json("json: 400 000 times the same field", &[201], "", move || duplicates(sized(400_000))),
        json(
            "json: 400 000 times the same field, strict",
            &[400],
            "?fieldValidation=Strict",
            move || duplicates(sized(400_000)),
        ),
        json("json: one field of 3 MB", &[201], "", || {
            review("0").replace(r#""x""#, &format!("\"{}\"", "k".repeat(sized(LARGEST) - 300)))
        }),
        json("json: a number of 3 MB", &[201, 400], "", || {
            review(&"7".repeat(sized(LARGEST) - 300))
        }),
        json("json: an exponent of a million digits", &[201, 400], "", || {
            review(&format!("1e{}", "9".repeat(sized(1_000_000))))
        }),
        json("json: escapes only", &[201], "", || {
            review(&format!("\"{}\"", r"\u00e9".repeat(sized(LARGEST) / 6 - 100)))
        }),
        json("json: lone surrogates only", &[201], "", || {
            review(&format!("\"{}\"", r"\ud800".repeat(sized(LARGEST) / 6 - 100)))
        }),
        json("json: a body beyond the limit", &[413], "", || {
            review(&format!("\"{}\"", "a".repeat(3_300_000)))
        }),
        json("json: a value of the wrong type, 3 MB", &[400], "", || {
            let text = "a".repeat(sized(LARGEST) - 300);
            review("0").replace(r#"{"path":"/","verb":"get"}"#, &format!("\"{text}\""))
        }),
    ]
}

fn yaml_cases() -> Vec<Case> {
    vec![
        yaml("yaml: 900 aliases of a 200 KB scalar", &[400], || {
            let aliases: String = "  - *a\n".repeat(900);
            format!("a: &a {}\nx:\n{aliases}", "s".repeat(200_000))
        }),
        yaml("yaml: 14 000 aliases of a 3 MB scalar", &[400], || {
            let aliases: String = "- *a\n".repeat(14_000);
            format!("a: &a {}\nx:\n{aliases}", "s".repeat(sized(3_000_000)))
        }),
        yaml("yaml: a billion laughs", &[400], || {
            let levels = (1..10).map(|level| {
                let below = level - 1;
                let aliases = vec![format!("*l{below}"); 10].join(", ");
                format!("l{level}: &l{level} [{aliases}]\n")
            });
            format!("l0: &l0 lol\n{}", levels.collect::<String>())
        }),
        yaml("yaml: an alias of a map in a map, nested", &[400], || {
            let levels = (1..60).map(|level| {
                let below = level - 1;
                format!("m{level}: &m{level} {{a: *m{below}, b: *m{below}}}\n")
            });
            format!("m0: &m0 {{a: b}}\n{}", levels.collect::<String>())
        }),
        yaml("yaml: 400 000 times the same key", &[400, 422], || "abc: d\n".repeat(sized(400_000))),
        yaml("yaml: 300 000 different keys", &[400, 422], || {
            (0..sized(300_000)).map(|i| format!("{i}: \n")).collect()
        }),
        yaml("yaml: float keys with equal text", &[400, 422], || {
            (0..sized(60_000)).map(|i| format!("1.{}: a\n", "0".repeat(i % 40 + 1))).collect()
        }),
        yaml("yaml: a flow list of a million", &[400], || {
            format!("x: [{}a]", "a, ".repeat(sized(LARGEST) / 3 - 100))
        }),
        yaml("yaml: a flow map of 200 000", &[400, 422], || {
            let keys: String = (0..sized(200_000)).map(|i| format!("{i}: a, ")).collect();
            format!("x: {{{keys}}}")
        }),
        yaml("yaml: flow lists nested", &[400], || format!("x: {}", nested("[", "]", 1_000_000))),
        yaml("yaml: flow maps nested", &[400], || {
            format!("x: {}", nested("{a: ", "}", sized(500_000)))
        }),
        yaml("yaml: block lists nested on one line", &[400], || {
            format!("x:\n  {}a", "- ".repeat(sized(1_000_000)))
        }),
        yaml("yaml: block maps nested by indentation", &[400], || {
            (0..2_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect()
        }),
        yaml("yaml: a key that is a nested question", &[400], || {
            format!("{}a", "? ".repeat(sized(1_000_000)))
        }),
        yaml("yaml: 700 000 documents", &[400, 422], || "---\n".repeat(sized(700_000))),
        yaml("yaml: 300 000 anchors", &[400], || {
            (0..sized(200_000)).map(|i| format!("- &a{i} b\n")).collect()
        }),
        yaml("yaml: a tag of 3 MB", &[400, 422], || {
            format!("x: !{} a", "t".repeat(sized(LARGEST) - 100))
        }),
        yaml("yaml: 3 MB of comments", &[400, 422], || "#\n".repeat(sized(LARGEST) / 2 - 10)),
        yaml("yaml: quoted scalars with escapes", &[400, 422], || {
            format!("x: \"{}\"", r"\x41".repeat(sized(LARGEST) / 4 - 10))
        }),
        yaml("yaml: a plain scalar over a million lines", &[400, 422], || {
            format!("x: {}", "a\n  ".repeat(sized(LARGEST) / 4 - 10))
        }),
        yaml("yaml: merge keys", &[400, 422], || {
            format!("a: &a {{b: c}}\nx:\n{}", "  <<: *a\n".repeat(sized(200_000)))
        }),
        yaml("yaml: tabs, directives and byte order marks", &[400], || {
            "%YAML 1.2\n\u{feff}\t".repeat(sized(200_000))
        }),
    ]
}

fn binary_cases() -> Vec<Case> {
    // The envelope: type meta, then the object's bytes.
    let envelope = |raw: &[u8]| {
        let mut body = b"k8s\0".to_vec();
        let type_meta = message(
            1,
            b"authorization.k8s.io/v1",
            message(2, b"SelfSubjectAccessReview", Vec::new()),
        );
        field(&mut body, 1, &type_meta);
        field(&mut body, 2, raw);
        body
    };
    let nest = |depth: usize, number: u32| {
        let mut inner = Vec::new();
        for _ in 0..depth {
            let mut outer = Vec::new();
            field(&mut outer, number, &inner);
            inner = outer;
        }
        inner
    };
    vec![
        bytes("protobuf: a field in itself, 2 000 levels", PROTOBUF, &[201, 400], move || {
            envelope(&nest(2_000, 2))
        }),
        bytes("protobuf: groups nested", PROTOBUF, &[400], move || {
            envelope(&vec![0x0b; sized(LARGEST)])
        }),
        bytes("protobuf: 1 500 000 unknown fields", PROTOBUF, &[400, 422], move || {
            envelope(&[0x78, 0x01].repeat(sized(LARGEST) / 2 - 100))
        }),
        bytes("protobuf: a million empty repeated fields", PROTOBUF, &[400, 413, 422], move || {
            // metadata.ownerReferences
            let mut meta = Vec::new();
            field(&mut meta, 1, &[0x6a, 0x00].repeat(sized(LARGEST) / 2 - 100));
            envelope(&meta)
        }),
        Case::send(
            "protobuf: 600 000 containers",
            Client::NamespaceAdmin,
            &[400, 413, 422],
            (Method::POST, &format!("/api/v1/namespaces/{NAMESPACE}/pods"), PROTOBUF),
            || {
                let mut body = b"k8s\0".to_vec();
                field(&mut body, 1, &message(1, b"v1", message(2, b"Pod", Vec::new())));
                // Each has a name of one byte.
                let containers = [0x12, 0x03, 0x0a, 0x01, b'c'].repeat(sized(600_000));
                field(&mut body, 2, &message(2, &containers, Vec::new()));
                body
            },
        ),
        bytes("protobuf: a length beyond the end", PROTOBUF, &[400], move || {
            envelope(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f])
        }),
        bytes("protobuf: a varint without end", PROTOBUF, &[400], move || {
            envelope(&vec![0xff; sized(LARGEST)])
        }),
        bytes("protobuf: no envelope", PROTOBUF, &[400], || vec![0x0a; sized(LARGEST)]),
        bytes("cbor: arrays nested", CBOR, &[400, 422], || vec![0x81; sized(LARGEST)]),
        bytes("cbor: maps nested", CBOR, &[400, 422], || {
            [0xa1, 0x61, 0x61].repeat(sized(LARGEST) / 3)
        }),
        bytes("cbor: an array of 2^60", CBOR, &[400, 422], || {
            vec![0x9b, 0x10, 0, 0, 0, 0, 0, 0, 0]
        }),
        bytes("cbor: a string of 2^60 bytes", CBOR, &[400, 422], || {
            vec![0x7b, 0x10, 0, 0, 0, 0, 0, 0, 0]
        }),
        bytes("cbor: a string of a million pieces", CBOR, &[400, 422], || {
            let mut body = vec![0xa1, 0x61, 0x78, 0x7f];
            body.extend([0x61, 0x61].repeat(sized(LARGEST) / 2 - 10));
            body.push(0xff);
            body
        }),
        bytes("cbor: a million equal keys", CBOR, &[400, 422], || {
            let mut body = vec![0xbf];
            body.extend([0x61, 0x61, 0x00].repeat(sized(LARGEST) / 3 - 10));
            body.push(0xff);
            body
        }),
        bytes("cbor: a million empty arrays", CBOR, &[400, 422], || {
            let mut body = vec![0xa1, 0x61, 0x78, 0x9f];
            body.extend(vec![0x80; sized(1_000_000)]);
            body.push(0xff);
            body
        }),
    ]
}

/// A length-delimited protobuf field.
fn field(message: &mut Vec<u8>, number: u32, content: &[u8]) {
    varint(message, u64::from(number << 3 | 2));
    varint(message, content.len() as u64);
    message.extend_from_slice(content);
}

fn message(number: u32, content: &[u8], rest: Vec<u8>) -> Vec<u8> {
    let mut message = Vec::new();
    field(&mut message, number, content);
    message.extend(rest);
    message
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}
