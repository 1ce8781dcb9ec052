//! Every decoder and encoder, with inputs that are made to be expensive: none may take more than in
//! proportion to the size, and each ends when its request is cancelled.

use meta::{Value, cancel::is_interruptible, growth::assert_linear};

use crate::{
    cbor,
    json::{self, DecodeOptions},
    protobuf, raw_object,
    testing::types,
    yaml,
};

const STRICT: DecodeOptions = DecodeOptions { strict: true };

type Make = fn(usize) -> String;
type MakeBytes = fn(usize) -> Vec<u8>;

/// Name, size, and the text of that size. JSON is YAML as well.
const TEXTS: [(&str, usize, Make); 12] = [
    ("numbers", 5_000, |n| format!("[{}1]", "1,".repeat(n))),
    ("empty objects", 5_000, |n| format!("[{}{{}}]", "{},".repeat(n))),
    ("sorted keys", 3_000, |n| object((0..n).map(|i| format!(r#""{i:07}":0"#)))),
    ("keys in reverse order", 3_000, |n| object((0..n).rev().map(|i| format!(r#""{i:07}":0"#)))),
    ("one key", 3_000, |n| object((0..n).map(|_| r#""a":0"#.to_owned()))),
    ("two keys in turn", 3_000, |n| object((0..n).map(|i| format!(r#""a{}":0"#, i % 2)))),
    ("a long key", 50_000, |n| format!(r#"{{"{}":0}}"#, "k".repeat(n))),
    ("a long text", 50_000, |n| format!(r#"["{}"]"#, "t".repeat(n))),
    ("escapes", 20_000, |n| format!(r#"["{}"]"#, r"\u00e9\n".repeat(n))),
    ("a long number", 50_000, |n| format!("[{}]", "7".repeat(n))),
    ("many deep lists", 30, |n| {
        format!("[{}0]", format!("{}{},", "[".repeat(200), "]".repeat(200)).repeat(n))
    }),
    ("unknown keys below a long key", 1_000, |n| {
        let keys = object((0..n).map(|i| format!(r#""u{i}":0"#)));
        format!(r#"{{"metadata":{{"{}":{keys}}}}}"#, "k".repeat(1_000))
    }),
];

fn object(members: impl Iterator<Item = String>) -> String {
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

#[test]
fn json_is_decoded_and_encoded_in_linear_time() {
    let types = types();
    for (name, size, make) in TEXTS {
        assert_linear(name, size, make, |text| {
            drop(json::decode_any_body(text.as_bytes(), STRICT));
        });
        assert_linear(name, size, make, |text| {
            drop(json::decode_body(text.as_bytes(), &types.schema, types.config_map, STRICT));
        });
        let tree = |size| {
            let decoded = json::decode_any(make(size).as_bytes(), DecodeOptions { strict: false });
            decoded.map(|decoded| decoded.value).unwrap_or_default()
        };
        assert_linear(name, size, tree, |tree| json::encode_any(tree, &mut Vec::new()));
        assert_linear(name, size, tree, |tree| drop(yaml::emit(tree)));
        assert_linear(name, size, tree, |tree| drop(cbor::encode(tree)));
        let compact = |size| meta::json::to_string(&tree(size)).into_bytes();
        assert_linear(name, size, compact, |json| drop(json::indent(json)));
        assert_linear(name, size, compact, |json| drop(json::compact(json)));
        let fields = raw_object::FieldSet::new(["metadata.name", "a.b"]);
        assert_linear(name, size, compact, |json| drop(raw_object::scan(json, &fields)));
    }
}

#[test]
fn yaml_is_decoded_in_linear_time() {
    for (name, size, make) in TEXTS {
        // Debug builds of the parser are slow.
        let size = size / 5;
        assert_linear(name, size, make, |text| drop(yaml::load(text.as_bytes())));
    }
    let texts: [(&str, usize, Make); 7] = [
        ("a block list", 1_000, |n| "- a\n".repeat(n)),
        ("a block map", 1_000, |n| (0..n).map(|i| format!("k{i}: a\n")).collect()),
        ("one key", 1_000, |n| "k: a\n".repeat(n)),
        ("float keys", 500, |n| (0..n).map(|i| format!("1.{}: a\n", "0".repeat(i % 40))).collect()),
        ("aliases", 500, |n| format!("- &a b\n{}", "- *a\n".repeat(n))),
        ("comments", 3_000, |n| "# c\n".repeat(n)),
        ("a plain text over many lines", 1_000, |n| format!("a: {}", "b\n  ".repeat(n))),
    ];
    for (name, size, make) in texts {
        assert_linear(name, size, make, |text| drop(yaml::load(text.as_bytes())));
    }
}

#[test]
fn binary_formats_are_decoded_in_linear_time() {
    let lists: [(&str, MakeBytes); 4] = [
        ("cbor: empty lists", |n| [&[0x9f][..], &vec![0x80; n], &[0xff]].concat()),
        ("cbor: keys", |n| {
            let key =
                |i: usize| [&[0x44][..], &u32::try_from(i).unwrap().to_be_bytes(), &[0]].concat();
            let keys =
                (0..n).map(|i| key((i * 7919 % n) & 0x7f7f_7f7f)).collect::<Vec<_>>().concat();
            [&[0xbf][..], &keys, &[0xff]].concat()
        }),
        ("cbor: pieces of a text", |n| [&[0x7f][..], &[0x61, 0x61].repeat(n), &[0xff]].concat()),
        ("cbor: tags", |n| vec![0xc1; n]),
    ];
    for (name, make) in lists {
        assert_linear(name, 5_000, make, |bytes| drop(cbor::decode(bytes)));
    }
    let types = types();
    let tables = protobuf::Tables::new(&types.schema);
    let messages: [(&str, MakeBytes); 4] = [
        // metadata.finalizers, data, unknown fields, and the metadata again and again.
        ("protobuf: a list", |n| message(1, &[0x72, 0x01, b'f'].repeat(n))),
        ("protobuf: a map", |n| {
            (0..n)
                .map(|i| message(2, &message(1, &i.to_be_bytes().map(|b| b & 0x7f))))
                .collect::<Vec<_>>()
                .concat()
        }),
        ("protobuf: unknown fields", |n| [0x78, 0x01].repeat(n)),
        ("protobuf: one field many times", |n| message(1, &message(1, b"name")).repeat(n)),
    ];
    for (name, make) in messages {
        assert_linear(name, 2_000, make, |bytes| {
            drop(protobuf::decode(bytes, &tables, &types.schema, types.config_map));
        });
    }
}

#[test]
fn every_decoder_is_interruptible() {
    let list = format!("[{}1]", "1,".repeat(5_000));
    assert!(is_interruptible(|| drop(json::decode_any_body(list.as_bytes(), STRICT))));
    assert!(is_interruptible(|| drop(yaml::load(list.as_bytes()))));
    let cbor = cbor::encode(&Value::Array(vec![Value::Null; 5_000]));
    assert!(is_interruptible(|| drop(cbor::decode(&cbor))));
    let types = types();
    let tables = protobuf::Tables::new(&types.schema);
    let finalizers = message(1, &[0x72, 0x01, b'f'].repeat(5_000));
    assert!(is_interruptible(|| {
        drop(protobuf::decode(&finalizers, &tables, &types.schema, types.config_map));
    }));
}

#[test]
fn every_encoder_is_interruptible() {
    let types = types();
    let tables = protobuf::Tables::new(&types.schema);
    let (schema, ty) = (&types.schema, types.config_map);
    let texts = |field: &str, list: bool| {
        let names: Vec<String> = (0..2_000).map(|at| format!("{at:04}")).collect();
        let values = if list {
            Value::Array(names.iter().map(|name| Value::from(name.as_str())).collect())
        } else {
            let member = |name: &String| (meta::Str::from(name.as_str()), Value::from("v"));
            Value::Object(names.iter().map(member).collect())
        };
        let mut object = Value::object();
        object.set_at(&["metadata", field], values);
        object
    };
    for object in [texts("finalizers", true), texts("labels", false)] {
        let json = meta::json::to_string(&object).into_bytes();
        let encoders: [(&str, &dyn Fn()); 9] = [
            ("json", &|| json::encode(&object, schema, ty, &mut Vec::new())),
            ("any json", &|| json::encode_any(&object, &mut Vec::new())),
            ("pretty json", &|| drop(json::indent(&json))),
            ("normalize", &|| json::normalize(&mut object.clone(), schema, ty)),
            ("yaml", &|| drop(yaml::emit(&object))),
            ("cbor", &|| drop(cbor::encode(&object))),
            ("typed cbor", &|| drop(cbor::encode_typed(&object, schema, ty))),
            ("protobuf", &|| drop(protobuf::encode(&object, &tables, schema, ty))),
            ("protobuf of json", &|| drop(protobuf::encode_json(&json, &tables, schema, ty))),
        ];
        for (name, encode) in encoders {
            encode();
            assert!(is_interruptible(encode), "{name}");
        }
    }
}

/// A length-delimited field.
fn message(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(content);
    out
}
