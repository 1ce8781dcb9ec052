//! The bytes are those of the generated Go code.

use meta::value;
use proptest::prelude::*;
use schema::{Field, ListType, NodeType, Presence, Type};

use super::*;
use crate::{
    json::{self, DecodeOptions},
    testing::{Types, types},
};

fn hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

#[track_caller]
fn check(types: &Types, ty: TypeId, sealed: bool, text: &str, bytes: &str) {
    let (schema, bytes) = (&types.schema, hex(bytes));
    let tables = Tables::new(schema);
    let value = json::decode(text.as_bytes(), schema, ty, DecodeOptions::default()).unwrap().value;
    let (encoded, decoded) = if sealed {
        let encoded = encode_object(&value, &tables, schema, ty).unwrap();
        (encoded, decode_object(&bytes, &tables, schema, ty).unwrap())
    } else {
        let encoded = encode(&value, &tables, schema, ty).unwrap();
        (encoded, decode(&bytes, &tables, schema, ty).unwrap())
    };
    assert_eq!(encoded, bytes, "{text}");
    let print = |value: &Value| {
        let mut out = Vec::new();
        json::encode(value, schema, ty, &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(print(&decoded), print(&value), "{text}");
}

#[test]
fn objects_are_the_bytes_that_go_writes() {
    let types = types();
    check(
        &types,
        types.config_map,
        true,
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"b",
            "creationTimestamp":"2024-02-29T12:34:56Z","labels":{"x":"y","a":"é"},
            "ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","controller":true}],
            "finalizers":["f","g"],
            "managedFields":[{"manager":"m","time":"2024-01-01T00:00:00Z","fieldsV1":{"f:data":{}}}]},
            "immutable":false,"data":{"k":"v","":""},"binaryData":{"b":"AAEC/w==","e":""}}"#,
        "6b3873000a0f0a0276311209436f6e6669674d61701291010a6d0a016112001a016222002a003200380042\
         0808f0f381af0610005a070a01611202c3a95a060a01781201796a110a03506f641a01702201752a02763130\
         017201667201678a01260a016d12001a002208088081c8ac06100032003a0f0a0d7b22663a64617461223a7b\
         7d7d420012040a00120012060a016b1201761a090a01621204000102ff1a050a0165120020001a002200",
    );
    check(&types, types.config_map, false, "{}", "0a100a0012001a0022002a00320038004200");
    check(
        &types,
        types.lease,
        true,
        r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l"},
            "spec":{"renewTime":"2024-01-01T00:00:00.123456Z"}}"#,
        "6b3873000a1f0a16636f6f7264696e6174696f6e2e6b38732e696f2f763112054c6561736512220a110a01\
         6c12001a0022002a00320038004200120d220b088081c8ac06108094ef3a1a002200",
    );
}

#[test]
fn embedded_structs_quantities_and_negative_numbers() {
    let types = types();
    check(
        &types,
        types.container,
        false,
        r#"{"name":"c","image":"i","ports":[{"name":"p","containerPort":-1}],
            "resources":{"limits":{"cpu":"500m","memory":"1Gi"}},
            "livenessProbe":{"httpGet":{"path":"/","port":"http"},"periodSeconds":7}}"#,
        "0a01631201692a0032140a0170100018ffffffffffffffffff0122002a0042200a0d0a0363707512060a04\
         3530306d0a0f0a066d656d6f727912050a0331476952210a1512130a012f120a080110001a04687474701a00\
         2200100018002007280030006a007200800100880100900100a20100",
    );
    check(
        &types,
        types.container,
        false,
        r#"{"name":"","resources":{},"livenessProbe":{"httpGet":{"port":8080}}}"#,
        "0a0012002a004200521d0a11120f0a001207080010903f1a001a002200100018002000280030006a007200\
         800100880100900100a20100",
    );
    check(
        &types,
        types.volume,
        false,
        r#"{"name":"v","hostPath":{"path":"/p"}}"#,
        "0a017612060a040a022f70",
    );
    check(&types, types.volume, false, r#"{"name":"v"}"#, "0a01761200");
}

#[test]
fn json_schema_props_unions_round_trip() {
    let types = types();
    check(
        &types,
        types.props,
        false,
        r#"{"type":"object","default":{"a":[1,null]},
            "properties":{"p":{"type":"string","items":[{"type":"a"},{"type":"b"}]}},
            "items":{"type":"c"},"additionalProperties":{"type":"d"}}"#,
        "0a00120022002a066f626a65637432003a0042100a0e7b2261223a5b312c6e756c6c5d7d500060007a0090\
         0100c201210a1f0a00120022002a016332003a00500060007a00900100a80200b80200c00200ea016e0a0170\
         12690a00120022002a06737472696e6732003a00500060007a00900100c20142121f0a00120022002a016132\
         003a00500060007a00900100a80200b80200c00200121f0a00120022002a016232003a00500060007a009001\
         00a80200b80200c00200a80200b80200c00200f201230801121f0a00120022002a016432003a00500060007a\
         00900100a80200b80200c00200a80200b80200c00200",
    );
    check(
        &types,
        types.props,
        false,
        r#"{"additionalProperties":false,"maximum":1.5}"#,
        "0a00120022002a0032003a0049000000000000f83f500060007a00900100f201020800a80200b80200c002\
         00",
    );
}

#[test]
fn unknown_fields_are_skipped() {
    let types = types();
    let tables = Tables::new(&types.schema);
    // A group, a number, four and eight bytes, a text, all with tags that a volume doesn't have.
    let message = hex("9b010801f2010161 9c01 d00105 f50101020304 f1010102030405060708 0a0176"
        .replace(' ', "")
        .as_str());
    let volume = decode(&message, &tables, &types.schema, types.volume).unwrap();
    assert_eq!(volume, value!({"name": "v"}));
}

#[test]
fn numbers_may_be_packed_and_entries_incomplete() {
    let mut schema = Schema::default();
    let mut ty = Type::default();
    let list = |kind: NodeType| NodeType::List(Box::new(kind.into()), ListType::Undeclared);
    let field = |name: &str, tag, kind: NodeType| Field {
        name: name.into(),
        tag,
        node: kind.into(),
        presence: Presence::OmitEmpty,
        ..Field::default()
    };
    let mut verbs = field("verbs", 3, list(NodeType::String));
    verbs.node.wrapped = true;
    ty.fields = vec![
        field("ports", 1, list(NodeType::Int32)),
        field("limits", 2, NodeType::Map(Box::new(NodeType::Quantity.into()))),
        verbs,
        field("timeout", 4, NodeType::Duration),
    ];
    let ty = schema.add(ty);
    let tables = Tables::new(&schema);
    let decoded = decode(&hex("0a0301027f080412030a01611a060a01780a0179"), &tables, &schema, ty);
    let value =
        value!({"ports": [1i64, 2i64, 127i64, 4i64], "limits": {"a": "0"}, "verbs": ["x", "y"]});
    assert_eq!(decoded.unwrap(), value);
    let encoded = encode(&value, &tables, &schema, ty).unwrap();
    assert_eq!(encoded, hex("08010802087f080412080a016112030a01301a060a01780a017922020800"));
    let minute = value!({"timeout": "1m0s", "verbs": []});
    let encoded = encode(&minute, &tables, &schema, ty).unwrap();
    assert_eq!(encoded, hex("1a00220708 80b09dc2df01".replace(' ', "").as_str()));
    assert_eq!(decode(&encoded, &tables, &schema, ty).unwrap(), minute);
}

#[test]
fn malformed_bytes_get_go_error_messages() {
    let types = types();
    let tables = Tables::new(&types.schema);
    let cases = [
        ("", "empty data"),
        ("6b387300", "empty body"),
        (
            "7b7d",
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ),
        ("6b3873000a", "unexpected EOF"),
        ("6b3873000aff", "unexpected EOF"),
        ("6b3873000a05", "unexpected EOF"),
        ("6b38730012ffffffffffffffff7f", "unexpected EOF"),
        ("6b38730012ffffffffffffffffff01", "proto: negative length found during unmarshaling"),
        ("6b387300ffffffffffffffffffff01", "proto: integer overflow"),
        ("6b3873000800", "proto: wrong wireType = 0 for field TypeMeta"),
        ("6b38730000", "proto: Unknown: illegal tag 0 (wire type 0)"),
        ("6b3873000c", "proto: Unknown: wiretype end group for non-group"),
        ("6b3873004f", "proto: illegal wireType 7"),
        ("6b38730012020801", "proto: wrong wireType = 0 for field ObjectMeta"),
    ];
    for (bytes, expected) in cases {
        let decoded = decode_object(&hex(bytes), &tables, &types.schema, types.config_map);
        assert_eq!(decoded.unwrap_err().to_string(), expected, "{bytes}");
    }
}

#[test]
fn nan_and_infinity_are_rejected() {
    let types = types();
    let tables = Tables::new(&types.schema);
    let decoded = decode(&hex("49000000000000f07f"), &tables, &types.schema, types.props);
    assert_eq!(decoded.unwrap_err().to_string(), "maximum: unsupported value: inf");
}

#[test]
fn depth_is_bounded_in_both_directions() {
    let test = || {
        let types = types();
        let tables = Tables::new(&types.schema);
        // `items.schema.items.schema …`
        let mut message = Vec::new();
        for _ in 0..DEPTH_MAX + 2 {
            let mut writer = Writer::with_capacity(message.len() + 16);
            writer.field_bytes(1, &message);
            writer.end_message(24, 0);
            message = writer.finish();
        }
        let decoded = decode(&message, &tables, &types.schema, types.props);
        assert_eq!(decoded, Err(ProtobufError::TooDeep));

        let mut value = Value::object();
        for _ in 0..DEPTH_MAX + 2 {
            value = value!({"items": (value)});
        }
        let encoded = encode(&value, &tables, &types.schema, types.props);
        assert_eq!(encoded, Err(ProtobufError::TooDeep));

        let groups = [0x9b, 0x01].repeat(60_000);
        let decoded = decode(&groups, &tables, &types.schema, types.volume);
        assert_eq!(decoded, Err(ProtobufError::UnexpectedEnd));
    };
    std::thread::Builder::new().stack_size(1 << 21).spawn(test).unwrap().join().unwrap();
}

#[test]
fn a_value_of_the_wrong_type_is_an_error() {
    let types = types();
    let tables = Tables::new(&types.schema);
    let cases = [
        (value!({"name": 1i64}), "name: expected string, found number"),
        (value!({"ports": {}}), "ports: expected list or map, found object"),
        (value!({"stdin": "x"}), "stdin: expected bool, found string"),
        (
            value!({"resources": {"limits": {"cpu": "x"}}}),
            "limits: quantities must match the regular expression \
             '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ];
    for (value, expected) in cases {
        let encoded = encode(&value, &tables, &types.schema, types.container);
        assert_eq!(encoded.unwrap_err().to_string(), expected);
    }
}

#[test]
fn watch_events_are_framed() {
    let sealed = seal("v1", "Pod", b"\x0a\x00");
    let envelope = Envelope::open(&sealed).unwrap();
    assert_eq!((envelope.api_version.as_str(), envelope.kind.as_str()), ("v1", "Pod"));
    assert_eq!(envelope.raw, b"\x0a\x00");
    let event = watch_event("ADDED", &sealed);
    let expected = hex("000000220a05414444454412190a17");
    assert_eq!(event, [expected, sealed].concat());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let types = types();
        let tables = Tables::new(&types.schema);
        for ty in [types.pod, types.container, types.volume, types.props, types.lease] {
            let _ = decode(&bytes, &tables, &types.schema, ty);
        }
        let _ = decode_object(&[&PREFIX, &bytes[..]].concat(), &tables, &types.schema, types.pod);
    }

    #[test]
    fn damaged_messages_are_errors_or_other_objects(
        at in 0usize..200, byte in any::<u8>(), cut in 0usize..200,
    ) {
        let types = types();
        let tables = Tables::new(&types.schema);
        let value = value!({
            "name": "c", "ports": [{"containerPort": 80i64}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"port": "http"}},
        });
        let mut bytes = encode(&value, &tables, &types.schema, types.container).unwrap();
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        if let Ok(value) = decode(&bytes, &tables, &types.schema, types.container) {
            let again = encode(&value, &tables, &types.schema, types.container).unwrap();
            let same = decode(&again, &tables, &types.schema, types.container).unwrap();
            // Fields that are always written are there now.
            let third = encode(&same, &tables, &types.schema, types.container).unwrap();
            prop_assert_eq!(third, again);
        }
    }
}

#[test]
fn raw_fields_are_carried_as_they_were_sent() {
    let mut schema = Schema::default();
    let mut ty = Type::default();
    ty.fields = vec![Field {
        name: "data".into(),
        node: NodeType::Raw.into(),
        tag: 2,
        pointer: true,
        ..Field::default()
    }];
    let ty = schema.add(ty);
    let tables = Tables::new(&schema);
    let text = br#"{"data":{"b": 1.0, "a":1}}"#;
    let sent = json::decode(text, &schema, ty, DecodeOptions::default()).unwrap().value;
    let bytes = encode(&sent, &tables, &schema, ty).unwrap();
    let raw = br#"{"b": 1.0, "a":1}"#;
    let expected = [&[0x12, 2 + raw.len() as u8, 0x0a, raw.len() as u8][..], raw].concat();
    assert_eq!(bytes, expected);
    let read = decode(&bytes, &tables, &schema, ty).unwrap();
    assert_eq!(encode(&read, &tables, &schema, ty).unwrap(), expected);
    assert_eq!(meta::json::to_string(&read), r#"{"data":{"b":1.0,"a":1}}"#);
    // What is no JSON cannot be printed.
    let broken = [0x12, 3, 0x0a, 1, b'{'];
    assert!(decode(&broken, &tables, &schema, ty).is_err());
}
