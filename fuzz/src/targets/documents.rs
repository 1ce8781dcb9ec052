//! Whole objects in every format.

use codec::{
    cbor,
    json::{self, DecodeOptions},
    protobuf,
    raw_object::{self, FieldSet},
    yaml,
};
use meta::Value;
use schema::TypeId;

use super::{Target, ending};
use crate::{Objects, Random, definitions, tables};

pub(super) const JSON: Target =
    Target { name: "json", seeds: json_seeds, words: JSON_WORDS, run: run_json };
pub(super) const JSON_ANY: Target =
    Target { name: "json_any", seeds: json_seeds, words: JSON_WORDS, run: run_json_any };
pub(super) const STORED: Target =
    Target { name: "stored", seeds: json_seeds, words: JSON_WORDS, run: run_stored };
pub(super) const YAML: Target =
    Target { name: "yaml", seeds: yaml_seeds, words: YAML_WORDS, run: run_yaml };
pub(super) const PROTOBUF: Target = Target {
    name: "protobuf",
    seeds: protobuf_seeds,
    words: &["k8s\0", "v1", "Pod", "\u{7f}"],
    run: run_protobuf,
};
pub(super) const CBOR: Target =
    Target { name: "cbor", seeds: cbor_seeds, words: &["kind", "\u{7f}", "\u{1b}"], run: run_cbor };

const JSON_WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\\u0000",
    "\\ud800",
    "\\udc00",
    "null",
    "true",
    "false",
    "1e999",
    "-0",
    "0.1",
    "9223372036854775808",
    "1E+2",
    "\"metadata\":{",
    "\"kind\":",
    "\"name\":",
    "\u{feff}",
    "\\",
    "\"spec\":",
    "\"a\":",
    " ",
    "[[[[[[[[",
    "{\"a\":",
    "\"limits\":{\"cpu\":",
    "\"items\":[",
];

const YAML_WORDS: &[&str] = &[
    "- ",
    ": ",
    "&a ",
    "*a",
    "<<: ",
    "!!binary ",
    "!!str ",
    "!!int ",
    "|\n",
    ">-\n",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "{",
    "}",
    "[",
    "]",
    "'",
    "\"",
    "#",
    "\n",
    "  ",
    "\t",
    "? ",
    "~",
    "0o7",
    "0b1",
    ".inf",
    "1_000",
    "2001-01-01",
    "yes",
    "\u{85}",
    "\\x",
    "@",
    "`",
    "&b [*a,*a,*a]\n",
    "*b",
];

/// The types that inputs are read as: wide, deep, recursive, with bytes and with times.
const KINDS: [(&str, &str, &str); 8] = [
    ("", "v1", "Pod"),
    ("", "v1", "Secret"),
    ("", "v1", "Event"),
    ("apps", "v1", "Deployment"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("coordination.k8s.io", "v1", "Lease"),
    ("networking.k8s.io", "v1", "NetworkPolicy"),
    ("", "v1", "PodList"),
];

pub(super) fn types() -> impl Iterator<Item = TypeId> {
    KINDS.iter().map(|(group, version, kind)| {
        let gvk = meta::GroupVersionKind::new(*group, *version, *kind);
        definitions().type_of(&gvk).expect("a built-in kind")
    })
}

fn objects(random: &mut Random) -> Vec<(TypeId, Value)> {
    let objects = Objects { filled_percent: 30, ..Objects::new(&definitions().schema) };
    types().map(|ty| (ty, objects.object(ty, random))).collect()
}

fn json_of(value: &Value, ty: TypeId) -> Vec<u8> {
    let mut out = Vec::new();
    json::encode(value, &definitions().schema, ty, &mut out);
    out
}

pub(super) fn json_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = objects(random).iter().map(|(ty, value)| json_of(value, *ty)).collect();
    let written = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","labels":{"b":"c"}},"spec":{"containers":[]}}"#;
    seeds.push(written.to_vec());
    seeds.push(br#" {"a" : [1, -2.5e3, "\u00e9\n", null, true, {}]} "#.to_vec());
    seeds
}

fn yaml_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> =
        objects(random).iter().map(|(_, value)| yaml::emit(value).into()).collect();
    seeds.push(
        b"a: &x\n  - 1\n  - 'two'\nb: *x\nc: |\n  text\nd: {e: f, <<: {g: h}}\n? k\n: v\n".to_vec(),
    );
    seeds.push(b"%YAML 1.1\n---\nkind: Pod\nmetadata: {name: a}\n...\n---\nsecond: 1\n".to_vec());
    seeds.extend(json_seeds(random));
    seeds
}

fn protobuf_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let sealed = objects(random).into_iter().map(|(ty, value)| {
        protobuf::encode_object(&value, tables(), &definitions().schema, ty)
            .expect("an object of its type")
    });
    sealed.collect()
}

fn cbor_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let schema = &definitions().schema;
    let mut seeds: Vec<_> =
        objects(random).iter().map(|(ty, value)| cbor::encode_typed(value, schema, *ty)).collect();
    seeds.push(b"\xbf\x61a\x9f\x01\x20\xf5\xf6\xff\x61b\x5f\x41x\x41y\xff\xff".to_vec());
    seeds.push(b"\xd9\xd9\xf7\xa1\x61a\xfb\x3f\xf1\x99\x99\x99\x99\x99\x9a".to_vec());
    seeds
}

fn run_json(input: &[u8]) -> String {
    let schema = &definitions().schema;
    let mut endings = String::new();
    for ty in types().take(5) {
        match json::decode(input, schema, ty, DecodeOptions { strict: true }) {
            Ok(decoded) => {
                let text = json_of(&decoded.value, ty);
                let again = json::decode(&text, schema, ty, DecodeOptions { strict: true });
                let again = again.expect("what was written can be read");
                assert!(again.strict.is_empty(), "{:?} in {}", again.strict, super::as_text(&text));
                assert_eq!(super::as_text(&json_of(&again.value, ty)), super::as_text(&text));
                endings.push_str("ok ");
                endings.extend(decoded.strict.first().map(ending));
            }
            Err(error) => endings.push_str(&ending(error)),
        }
    }
    endings
}

fn run_json_any(input: &[u8]) -> String {
    let read = |bytes: &[u8]| json::decode_any(bytes, DecodeOptions { strict: true });
    match read(input) {
        Ok(decoded) => {
            let text = meta::json::to_string(&decoded.value);
            let again = read(text.as_bytes()).expect("what was written can be read");
            // Compared as text: a float without a fraction is written as Go writes it, and reads as an integer.
            assert_eq!(meta::json::to_string(&again.value), text);
            assert!(again.strict.is_empty());
            let indented = json::indent(text.as_bytes());
            assert_eq!(read(&indented).expect("indented").value, again.value);
            format!("ok {:?}", decoded.strict.first().map(ending))
        }
        Err(error) => ending(error),
    }
}

/// The bytes in the store are trusted to be ours, but a disk may have other ideas.
fn run_stored(input: &[u8]) -> String {
    let wanted = FieldSet::new(["metadata.name", "spec.nodeName", "status.phase"]);
    let scanned = raw_object::scan(input, &wanted).map(|_| ());
    match raw_object::splice(input, 42, raw_object::KeyOrder::Struct, &wanted) {
        Ok((bytes, found)) => {
            // These are cut out of the bytes without another look.
            assert!(
                bytes.get(found.metadata.clone()).is_some() && bytes.get(found.body_at..).is_some()
            );
            assert!(found.managed_fields.is_none_or(|range| bytes.get(range).is_some()));
            "ok".to_owned()
        }
        Err(error) => format!("{} {}", ending(error), scanned.is_ok()),
    }
}

fn run_yaml(input: &[u8]) -> String {
    match yaml::load(input) {
        Ok(converted) => {
            let text = yaml::emit(&converted.value);
            // Written as Go does it, where these end a line, and read by YAML 1.2, where they don't; a key `<<` is written
            // plainly and read as a merge.
            let shown = super::as_text(text.as_ref());
            if shown.contains(['\u{85}', '\u{2028}', '\u{2029}']) || shown.contains("<<") {
                return "odd breaks".to_owned();
            }
            let again = yaml::load(text.as_ref()).expect("what was written can be read");
            let shown = |value| meta::json::to_string(value);
            assert_eq!(
                shown(&again.value),
                shown(&converted.value),
                "{}",
                super::as_text(text.as_ref())
            );
            format!("ok {}", converted.duplicates.len())
        }
        Err(error) => ending(error),
    }
}

fn run_protobuf(input: &[u8]) -> String {
    let schema = &definitions().schema;
    let mut endings = String::new();
    for ty in types() {
        match protobuf::decode_object(input, tables(), schema, ty) {
            Ok(value) => {
                // Zero values that were left out are written, so the second round is the first stable one.
                let write = |value| protobuf::encode_object(value, tables(), schema, ty);
                let first = write(&value).expect("what was read can be written");
                let again = protobuf::decode_object(&first, tables(), schema, ty);
                let again = again.expect("what was written can be read");
                assert_eq!(write(&again).expect("as above"), first);
                endings.push_str("ok ");
            }
            Err(error) => endings.push_str(&ending(error)),
        }
    }
    endings
}

fn run_cbor(input: &[u8]) -> String {
    match cbor::decode(input) {
        Ok(value) => {
            let bytes = cbor::encode(&value);
            assert_eq!(cbor::decode(&bytes).expect("what was written can be read"), value);
            "ok".to_owned()
        }
        Err(error) => ending(error),
    }
}
