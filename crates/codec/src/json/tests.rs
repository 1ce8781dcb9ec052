//! Expected answers are those of Go's decoder and encoder with the real types.

use meta::{Value, value};
use proptest::prelude::*;
use schema::{NodeType, Schema, TypeId};

use super::*;
use crate::testing::{Types, types};

/// The document as it is printed after reading, or the error.
fn round_trip(types: &Types, ty: TypeId, text: &[u8]) -> (String, Vec<String>) {
    match decode(text, &types.schema, ty, DecodeOptions::default()) {
        Ok(decoded) => {
            let mut out = Vec::new();
            encode(&decoded.value, &types.schema, ty, &mut out);
            let strict = decoded.strict.iter().map(ToString::to_string).collect();
            (String::from_utf8(out).unwrap(), strict)
        }
        Err(error) => (error.to_string(), Vec::new()),
    }
}

#[track_caller]
fn check(types: &Types, ty: TypeId, cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let (printed, strict) = round_trip(types, ty, text.as_bytes());
        assert_eq!(printed, *expected, "{text}");
        assert_eq!(strict, [""; 0], "{text}");
    }
}

#[test]
fn objects_are_read_and_printed_as_in_go() {
    let types = types();
    let cases = [
        (r"null", r#"{"metadata":{}}"#),
        (
            r#" { "data" : { "b":"x" , "a":"\u00e9\n" , "c":null } , "apiVersion":"v1", "kind":"ConfigMap" } "#,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{},"data":{"a":"é\n","b":"x","c":""}}"#,
        ),
        (r#"{"binaryData":{"a":"Zh=="}}"#, r#"{"metadata":{},"binaryData":{"a":"Zg=="}}"#),
        (
            r#"{"binaryData":{"a":[104,null,255],"b":[]}}"#,
            r#"{"metadata":{},"binaryData":{"a":"aAD/","b":""}}"#,
        ),
        (r#"{"immutable":null,"data":{}}"#, r#"{"metadata":{}}"#),
        (r#"{"immutable":false}"#, r#"{"metadata":{},"immutable":false}"#),
        (
            r#"{"metadata":{"creationTimestamp":"2024-01-01T00:00:00.5+01:00"}}"#,
            r#"{"metadata":{"creationTimestamp":"2023-12-31T23:00:00Z"}}"#,
        ),
        (r#"{"metadata":{"creationTimestamp":"0001-01-01T00:00:00Z"}}"#, r#"{"metadata":{}}"#),
        (
            r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{},"b":[1.0,null]}}]}}"#,
            r#"{"metadata":{"managedFields":[{"fieldsV1":{"b":[1,null],"f:a":{}}}]}}"#,
        ),
        (
            r#"{"data":{"a":"\ud83d\ude00 \ud83d x \ude00\ud83d"}}"#,
            "{\"metadata\":{},\"data\":{\"a\":\"😀 \u{FFFD} x \u{FFFD}\u{FFFD}\"}}",
        ),
        (r#"{"data":{"a":"<&>"}}"#, r#"{"metadata":{},"data":{"a":"\u003c\u0026\u003e"}}"#),
    ];
    check(&types, types.config_map, &cases);
    let (printed, _) =
        round_trip(&types, types.config_map, b"{\"data\":{\"a\":\"\xff\xe2\x80A\"}}");
    assert_eq!(printed, "{\"metadata\":{},\"data\":{\"a\":\"\u{FFFD}\u{FFFD}\u{FFFD}A\"}}");

    let cases = [
        (r"{}", r#"{"metadata":{},"spec":{"containers":null},"status":{}}"#),
        (
            r#"{"spec":{"containers":[null]}}"#,
            r#"{"metadata":{},"spec":{"containers":[{"name":"","resources":{}}]},"status":{}}"#,
        ),
        (
            r#"{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"0.5","memory":1073741824,"x":null,"y":" 1Gi "}}}]}}"#,
            r#"{"metadata":{},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"500m","memory":"1073741824","x":"0","y":"1Gi"}}}]},"status":{}}"#,
        ),
        (
            r#"{"spec":{"hostNetwork":false,"terminationGracePeriodSeconds":0,"containers":[{"name":"a","livenessProbe":{"httpGet":{"port":null},"periodSeconds":0}}]}}"#,
            r#"{"metadata":{},"spec":{"containers":[{"name":"a","resources":{},"livenessProbe":{"httpGet":{"port":0}}}],"terminationGracePeriodSeconds":0},"status":{}}"#,
        ),
        (
            r#"{"spec":{"containers":[{"name":"a","livenessProbe":{"httpGet":{"port":"http"}}}]}}"#,
            r#"{"metadata":{},"spec":{"containers":[{"name":"a","resources":{},"livenessProbe":{"httpGet":{"port":"http"}}}]},"status":{}}"#,
        ),
    ];
    check(&types, types.pod, &cases);

    let cases = [
        (
            r#"{"spec":{"renewTime":"2024-01-01T00:00:00.123456+01:00","weight":1}}"#,
            r#"{"metadata":{},"spec":{"renewTime":"2023-12-31T23:00:00.123456Z","weight":1}}"#,
        ),
        (r#"{"spec":{"weight":1.50e1}}"#, r#"{"metadata":{},"spec":{"weight":15}}"#),
    ];
    check(&types, types.lease, &cases);

    let cases = [
        (
            r#"{"items":{"type":"a","x":1},"additionalProperties":{"items":[{"type":"b"},null]}}"#,
            r#"{"items":{"type":"a"},"additionalProperties":{"items":[{"type":"b"},{}]}}"#,
        ),
        (r#"{"items":5,"additionalProperties":false}"#, r#"{"additionalProperties":false}"#),
        (r#"{"additionalProperties":1}"#, "boolean or JSON schema expected"),
        (
            r#"{"default":null,"properties":{"a":{"default":{"b":[]}}}}"#,
            r#"{"properties":{"a":{"default":{"b":[]}}}}"#,
        ),
    ];
    check(&types, types.props, &cases);
}

/// A type whose field `raw` is kept with its text.
fn with_raw_field() -> (Schema, TypeId) {
    let mut schema = Schema::default();
    let mut ty = schema::Type::default();
    let field = |name: &str, kind: NodeType| schema::Field {
        name: name.into(),
        node: kind.into(),
        ..schema::Field::default()
    };
    ty.fields = vec![field("raw", NodeType::Raw), field("any", NodeType::Any)];
    let id = schema.add(ty);
    (schema, id)
}

#[test]
fn raw_fields_keep_their_text() {
    let (schema, ty) = with_raw_field();
    let cases = [
        (
            r#"{"raw":{"b":1.50,"a":{"z":1,"y":[1e2]}}}"#,
            r#"{"raw":{"b":1.50,"a":{"z":1,"y":[1e2]}}}"#,
        ),
        // White space goes when the object is printed.
        (
            r#"{"raw": { "b" : [1, 2] } ,"any":{"b":1,"a":2}}"#,
            r#"{"raw":{"b":[1,2]},"any":{"a":2,"b":1}}"#,
        ),
        (r#"{"raw":{"a":1,"a":2}}"#, r#"{"raw":{"a":1,"a":2}}"#),
        (r#"{"raw":12345678901234567890}"#, r#"{"raw":12345678901234567890}"#),
        (r#"{"raw":{"a":1e999}}"#, r#"{"raw":{"a":1e999}}"#),
        (r#"{"raw":[]}"#, r#"{"raw":[]}"#),
        (r#"{"raw":"<"}"#, r#"{"raw":"\u003c"}"#),
        (r#"{"raw":null}"#, "{}"),
    ];
    for (text, expected) in cases {
        let decoded = decode(text.as_bytes(), &schema, ty, DecodeOptions::default()).unwrap();
        assert_eq!(decoded.strict, []);
        let mut out = Vec::new();
        encode(&decoded.value, &schema, ty, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
    let nested = format!("{{\"raw\":{}1{}}}", "[".repeat(2_000), "]".repeat(2_000));
    let error = decode(nested.as_bytes(), &schema, ty, DecodeOptions::default()).unwrap_err();
    assert!(error.to_string().contains("max depth"), "{error}");
    let broken = decode(br#"{"raw":{"a":}}"#, &schema, ty, DecodeOptions::default());
    assert!(broken.unwrap_err().to_string().contains("looking for beginning of value"));
}

#[test]
fn wrong_types_are_named_as_in_go() {
    let types = types();
    let into = "json: cannot unmarshal";
    let cases = [
        (r#"{"data":{"a":1}}"#, "number into Go struct field ConfigMap.data of type string"),
        (r#"{"data":[1]}"#, "array into Go struct field ConfigMap.data of type map[string]string"),
        (r#"{"data":"x"}"#, "string into Go struct field ConfigMap.data of type map[string]string"),
        (
            r#"{"binaryData":{"a":[1,256,"x"]}}"#,
            "number 256 into Go struct field ConfigMap.binaryData of type uint8",
        ),
        (
            r#"{"binaryData":{"a":["x"]}}"#,
            "string into Go struct field ConfigMap.binaryData of type uint8",
        ),
        (
            r#"{"binaryData":{"a":[[]]}}"#,
            "array into Go struct field ConfigMap.binaryData of type uint8",
        ),
        (
            r#"{"binaryData":{"a":1}}"#,
            "number into Go struct field ConfigMap.binaryData of type []uint8",
        ),
        (r#"{"immutable":"x"}"#, "string into Go struct field ConfigMap.immutable of type bool"),
        (r#"{"kind":1}"#, "number into Go struct field ConfigMap.TypeMeta.kind of type string"),
        (
            r#"{"metadata":{"labels":{"a":true}}}"#,
            "bool into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            r#"{"metadata":{"creationTimestamp":1}}"#,
            "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (
            r#"{"metadata":{"creationTimestamp":{}}}"#,
            "object into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (
            r#"{"metadata":{"generation":1.5}}"#,
            "number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64",
        ),
        (
            r#"{"metadata":{"generation":9223372036854775808}}"#,
            "number 9223372036854775808 into Go struct field ObjectMeta.metadata.generation of type int64",
        ),
        (
            r#"{"metadata":{"finalizers":["a",null,1]}}"#,
            "number into Go struct field ObjectMeta.metadata.finalizers of type string",
        ),
        // The first of several.
        (
            r#"{"data":{"a":1},"immutable":"x"}"#,
            "number into Go struct field ConfigMap.data of type string",
        ),
        ("[]", "array into Go value of type v1.ConfigMap"),
        (r#""x""#, "string into Go value of type v1.ConfigMap"),
        ("1", "number into Go value of type v1.ConfigMap"),
        (
            r#"{"metadata":{"managedFields":[{"fieldsV1":{"a":1e999}}]}}"#,
            "number 1e999 into Go struct field ManagedFieldsEntry.metadata.managedFields.fieldsV1 of type float64",
        ),
    ];
    for (text, expected) in cases {
        let (printed, _) = round_trip(&types, types.config_map, text.as_bytes());
        assert_eq!(printed, format!("{into} {expected}"), "{text}");
    }
    let cases = [
        (
            r#"{"spec":{"containers":[{"name":1}]}}"#,
            "number into Go struct field Container.spec.containers.name of type string",
        ),
        (
            r#"{"spec":{"containers":{"name":1}}}"#,
            "object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            r#"{"spec":{"containers":[1]}}"#,
            "number into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            r#"{"spec":{"containers":[{"ports":[{"containerPort":3000000000}]}]}}"#,
            "number 3000000000 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            r#"{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":1.5}}}]}}"#,
            "number 1.5 into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        (
            r#"{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":[]}}}]}}"#,
            "array into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        (
            r#"{"spec":{"volumes":[{"name":"a","hostPath":{"path":1}}]}}"#,
            "number into Go struct field HostPathVolumeSource.spec.volumes.VolumeSource.hostPath.path of type string",
        ),
        (
            r#"{"spec":{"nodeSelector":{"a":{}}}}"#,
            "object into Go struct field PodSpec.spec.nodeSelector of type string",
        ),
    ];
    for (text, expected) in cases {
        let (printed, _) = round_trip(&types, types.pod, text.as_bytes());
        assert_eq!(printed, format!("{into} {expected}"), "{text}");
    }
}

#[test]
fn malformed_values_get_the_errors_of_their_go_types() {
    let types = types();
    let quantity = "quantities must match the regular expression \
                    '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let time =
        "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"";
    let cases = [
        (r#"{"binaryData":{"a":"!"}}"#, "illegal base64 data at input byte 0"),
        (r#"{"metadata":{"creationTimestamp":"x"}}"#, time),
        // Go stops here, and forgets what it found before.
        (r#"{"data":{"a":1},"metadata":{"creationTimestamp":"x"}}"#, time),
    ];
    check(&types, types.config_map, &cases);
    let limits = |value: &str| {
        format!(r#"{{"spec":{{"containers":[{{"resources":{{"limits":{{"cpu":{value}}}}}}}]}}}}"#)
    };
    for value in [r#""x""#, "{}", "[]", "true"] {
        let (printed, _) = round_trip(&types, types.pod, limits(value).as_bytes());
        assert_eq!(printed, quantity, "{value}");
    }
}

#[test]
fn syntax_errors_are_worded_as_in_go() {
    let types = types();
    let cases = [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        (r#"{"a"#, "unexpected end of JSON input"),
        (r#"{"a""#, "unexpected end of JSON input"),
        (r#"{"a":"#, "unexpected end of JSON input"),
        (r#"{"a":1"#, "unexpected end of JSON input"),
        (r#"{"a":1,"#, "unexpected end of JSON input"),
        (r#"""#, "unexpected end of JSON input"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        (r#"{"a" 1}"#, "invalid character '1' after object key"),
        (r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        (r#"{"a":tru}"#, "invalid character '}' in literal true (expecting 'e')"),
        (r#"{"a":tru"#, "invalid character ' ' in literal true (expecting 'e')"),
        (r#"{"data":nul"#, "invalid character ' ' in literal null (expecting 'l')"),
        (r#"{"a":-}"#, "invalid character '}' in numeric literal"),
        ("-", "invalid character ' ' in numeric literal"),
        (r#"{"a":01}"#, "invalid character '1' after object key:value pair"),
        (r#"{"a":1.}"#, "invalid character '}' after decimal point in numeric literal"),
        ("1e", "invalid character ' ' in exponent of numeric literal"),
        ("{\"a\":\"\u{1}\"}", "invalid character '\\x01' in string literal"),
        (r#"{"a":"\x"}"#, "invalid character 'x' in string escape code"),
        (r#"{"a":"\u12g4"}"#, "invalid character 'g' in \\u hexadecimal character escape"),
        (r#"{"a":"\"#, "invalid character ' ' in string escape code"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("{}{}", "invalid character '{' after top-level value"),
        ("'", "invalid character '\\'' looking for beginning of value"),
        ("\\", "invalid character '\\\\' looking for beginning of value"),
        // A syntax error wins over everything before it.
        (r#"{"data":1,"metadata":{"creationTimestamp":"x"},"#, "unexpected end of JSON input"),
    ];
    check(&types, types.config_map, &cases);
    match decode_any(b"[1, 2, x]", DecodeOptions::default()) {
        Err(DecodeError::Syntax { offset, .. }) => assert_eq!(offset, 8),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unknown_and_duplicate_fields_are_reported_with_their_paths() {
    let types = types();
    let cases = [
        (
            r#"{"a":1,"metadata":{"b":2,"name":"x","name":"y"},"data":{"k":"1","k":"2"},"data":{"z":"1"},"a":2}"#,
            r#"{"metadata":{"name":"y"},"data":{"z":"1"}}"#,
            vec![
                r#"unknown field "a""#,
                r#"unknown field "metadata.b""#,
                r#"duplicate field "metadata.name""#,
                r#"duplicate field "data.k""#,
                r#"duplicate field "data""#,
            ],
        ),
        (
            r#"{"metadata":{"ownerReferences":[{"name":"a","foo":1},{"bar":{}}]},"DATA":{}}"#,
            r#"{"metadata":{"ownerReferences":[{"apiVersion":"","kind":"","name":"a","uid":""},{"apiVersion":"","kind":"","name":"","uid":""}]}}"#,
            vec![
                r#"unknown field "metadata.ownerReferences[0].foo""#,
                r#"unknown field "metadata.ownerReferences[1].bar""#,
                r#"unknown field "DATA""#,
            ],
        ),
        // Go keeps these as raw bytes and doesn't look.
        (
            r#"{"metadata":{"managedFields":[{"fieldsV1":{"a":1,"a":2}}]}}"#,
            r#"{"metadata":{"managedFields":[{"fieldsV1":{"a":2}}]}}"#,
            vec![],
        ),
    ];
    for (text, expected, reported) in cases {
        let (printed, strict) = round_trip(&types, types.config_map, text.as_bytes());
        assert_eq!(printed, expected);
        assert_eq!(strict, reported, "{text}");
    }

    let text = br#"{"a":1,"a":2,"b":[{"c":1,"c":1}],"d":{"x":1,"y":{"z":1,"z":2}}}"#;
    let decoded = decode_any(text, DecodeOptions::default()).unwrap();
    let strict: Vec<String> = decoded.strict.iter().map(ToString::to_string).collect();
    let expected =
        [r#"duplicate field "a""#, r#"duplicate field "b[0].c""#, r#"duplicate field "d.y.z""#];
    assert_eq!(strict, expected);

    let lenient = DecodeOptions { strict: false };
    let decoded = decode(br#"{"a":1,"a":1}"#, &types.schema, types.pod, lenient).unwrap();
    assert_eq!(decoded.strict, []);
}

#[test]
fn strict_errors_beyond_the_bound_are_counted() {
    let types = types();
    let members: Vec<String> = (0..200).map(|n| format!("\"x{n}\":0")).collect();
    let text = format!("{{{}}}", members.join(","));
    let (_, strict) = round_trip(&types, types.pod, text.as_bytes());
    assert_eq!(strict.len(), 65);
    assert_eq!(strict[63], r#"unknown field "x63""#);
    assert_eq!(strict[64], "and 136 more unknown or duplicate fields");

    // Neither many equal errors nor long paths are expensive.
    let key = "k".repeat(100_000);
    let text = format!(r#"{{"spec":{{"volumes":[{{"{key}":[{}]}}]}}}}"#, "0,".repeat(9) + "0");
    let (_, strict) = round_trip(&types, types.pod, text.as_bytes());
    assert_eq!(strict, [format!("unknown field \"spec.volumes[0].{}...\"", "k".repeat(1024 - 16))]);
    let text = format!("{{{}}}", vec![r#""x":0"#; 5000].join(","));
    let (_, strict) = round_trip(&types, types.pod, text.as_bytes());
    assert_eq!(strict, [r#"unknown field "x""#, "and 4360 more unknown or duplicate fields"]);

    let twice: Vec<String> = (0..40).rev().chain(0..40).map(|n| format!("\"x{n}\":0")).collect();
    let text = format!("{{{}}}", twice.join(","));
    let decoded = decode_any(text.as_bytes(), DecodeOptions::default()).unwrap();
    assert_eq!(decoded.strict.len(), 40);
}

#[test]
fn untyped_integral_numbers_decode_as_integers() {
    let cases = [
        ("1", Value::from(1), "1"),
        ("1.0", Value::from(1.0), "1"),
        ("1e3", Value::from(1000.0), "1000"),
        ("-0", Value::from(0), "0"),
        ("9223372036854775807", Value::from(i64::MAX), "9223372036854775807"),
        ("9223372036854775808", Value::from(9_223_372_036_854_775_808.0), "9223372036854776000"),
        ("-1.5e-7", Value::from(-1.5e-7), "-1.5e-7"),
        ("1e21", Value::from(1e21), "1e+21"),
    ];
    for (text, expected, printed) in cases {
        let decoded = decode_any(text.as_bytes(), DecodeOptions::default()).unwrap();
        assert_eq!(decoded.value, expected);
        let mut out = Vec::new();
        encode_any(&decoded.value, &mut out);
        assert_eq!(out, printed.as_bytes());
    }
    let error = decode_any(b"1e999", DecodeOptions::default()).unwrap_err();
    let expected = "json: cannot unmarshal number 1e999 into Go value of type float64";
    assert_eq!(error.to_string(), expected);
}

/// On a stack that is half of what a worker thread has.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(1 << 20).spawn(test).unwrap().join().unwrap();
}

#[test]
fn nesting_is_bounded_and_costs_no_stack() {
    on_a_small_stack(|| {
        let types = types();
        let nested = |open: &str, inner: &str, close: &str, depth: usize| {
            [open.repeat(depth), inner.to_owned(), close.repeat(depth)].concat()
        };
        let too_deep = "invalid character '[' exceeded max depth";

        // Kept.
        let text = nested("[", "", "]", TREE_DEPTH_MAX);
        let value = decode_any(text.as_bytes(), DecodeOptions::default()).unwrap().value;
        let mut out = Vec::new();
        encode_any(&value, &mut out);
        assert_eq!(out, text.as_bytes());
        let text = nested("[", "", "]", TREE_DEPTH_MAX + 1);
        let error = decode_any(text.as_bytes(), DecodeOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), too_deep);
        let text = nested(r#"{"properties":{"a":"#, "{}", "}}", TREE_DEPTH_MAX);
        let error = round_trip(&types, types.props, text.as_bytes()).0;
        assert_eq!(error, "invalid character '{' exceeded max depth");

        // Dropped.
        let text = format!(r#"{{"x":{}}}"#, nested("[", "", "]", DEPTH_MAX - 1));
        let (_, strict) = round_trip(&types, types.pod, text.as_bytes());
        assert_eq!(strict, [r#"unknown field "x""#]);
        let text = format!(r#"{{"x":{}}}"#, nested("[", "", "]", DEPTH_MAX));
        assert_eq!(round_trip(&types, types.pod, text.as_bytes()).0, too_deep);
        for open in ["[", r#"{"a":"#] {
            let text = open.repeat(1_500_000);
            let error = decode_any(text.as_bytes(), DecodeOptions::default()).unwrap_err();
            assert!(error.to_string().ends_with("exceeded max depth"));
        }
    });
}

#[test]
fn empty_fields_that_protobuf_drops_are_removed() {
    let types = types();
    let mut pod = value!({
        "metadata": {"labels": {}, "finalizers": [], "name": "a"},
        "spec": {"containers": [], "volumes": [{"name": "v"}], "nodeSelector": {}},
    });
    remove_empty_fields(&mut pod, &types.schema, types.pod);
    let expected = value!({"metadata": {"name": "a"}, "spec": {"volumes": [{"name": "v"}]}});
    assert_eq!(pod, expected);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // JSON has no others, and minus zero is read as the integer zero, as in Go.
        any::<f64>().prop_filter("plain", |f| f.is_normal()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..8)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Text that has the shape of a pod, more or less.
fn almost_pod() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "null",
        "true",
        "1",
        "-1.5e3",
        "\"\"",
        "\"spec\"",
        "\"containers\"",
        "\"name\"",
        "\"resources\"",
        "\"limits\"",
        "\"1Gi\"",
        "\"metadata\"",
        "\"creationTimestamp\"",
        "\"2024-01-01T00:00:00Z\"",
        "\"x\\u00e9\"",
        " ",
        "{\"spec\":{",
        "\"containers\":[{",
        "\"labels\":{\"a\":\"b\"}",
        "\"hostNetwork\":true",
    ]);
    prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
}

/// A pod with random contents.
fn pod_json() -> impl Strategy<Value = Value> {
    let labels = prop::collection::btree_map("[a-c]{1,2}", "\\PC{0,4}", 0..4);
    let limits = prop::collection::btree_map("[a-c]", "[0-9]{1,4}(\\.[0-9]{1,3})?[mk]?", 0..3);
    (labels, limits, any::<Option<bool>>(), any::<Option<i64>>(), "\\PC{0,8}").prop_map(
        |(labels, limits, host_network, grace, name)| {
            let map = |pairs: std::collections::BTreeMap<String, String>| {
                Value::Object(pairs.into_iter().collect())
            };
            let mut pod = Value::object();
            pod.set_at(&["metadata", "labels"], map(labels));
            let mut container = value!({"name": (name)});
            container.set_at(&["resources", "limits"], map(limits));
            pod.set_at(&["spec", "containers"], vec![container]);
            if let Some(host_network) = host_network {
                pod.set_at(&["spec", "hostNetwork"], host_network);
            }
            if let Some(grace) = grace {
                pod.set_at(&["spec", "terminationGracePeriodSeconds"], grace);
            }
            pod
        },
    )
}

/// Canonical is what reading the text would neither change nor report.
#[track_caller]
fn check_canonical(types: &Types, tree: &Value) {
    let text = meta::json::to_string(tree);
    let read = decode(text.as_bytes(), &types.schema, types.pod, DecodeOptions::default());
    match to_canonical(tree.clone(), &types.schema, types.pod) {
        Ok(value) => assert_eq!(read.unwrap(), Decoded { value, strict: Vec::new() }, "{text}"),
        Err(value) => assert_eq!(value, *tree),
    }
}

#[test]
fn trees_that_the_decoder_would_change_or_report_are_not_canonical() {
    let types = types();
    let pod = |metadata: Value| value!({"kind": "Pod", "metadata": (metadata)});
    let cases = [
        (value!({"name": "a", "labels": {"b": "c"}}), true),
        (value!({"name": null, "ownerReferences": [{"controller": null}]}), true),
        (value!({"name": 1i64}), false),
        (value!({"unknown": "a"}), false),
        (value!({"labels": {"b": null}}), false),
        (value!({"creationTimestamp": "2024-01-01T00:00:00Z"}), true),
        (value!({"creationTimestamp": "2024-01-01T00:00:00+01:00"}), false),
        (value!({"managedFields": [{"fieldsV1": {"a": [null, 1i64, 1.5]}}]}), true),
        (value!({"managedFields": [{"fieldsV1": {"a": 1.0}}]}), false),
        (value!({"managedFields": [{"fieldsV1": null}]}), true),
        (value!({"managedFields": [null]}), false),
    ];
    for (metadata, expected) in cases {
        let pod = pod(metadata);
        check_canonical(&types, &pod);
        let canonical = to_canonical(pod.clone(), &types.schema, types.pod);
        assert_eq!(canonical.is_ok(), expected, "{pod:?}");
    }
    assert_eq!(to_canonical(value!([]), &types.schema, types.pod), Err(value!([])));
    let fields = |levels| (0..levels).fold(Value::object(), |inner, _| value!([(inner)]));
    for (levels, expected) in [(TREE_DEPTH_MAX - 5, true), (TREE_DEPTH_MAX - 4, false)] {
        let pod = pod(value!({"managedFields": [{"fieldsV1": (fields(levels))}]}));
        let canonical = to_canonical(pod.clone(), &types.schema, types.pod);
        assert_eq!(canonical.is_ok(), expected, "{levels}");
        let text = meta::json::to_string(&pod);
        let read = decode(text.as_bytes(), &types.schema, types.pod, DecodeOptions::default());
        assert_eq!(read.is_ok(), expected, "{levels}");
    }
    let (schema, ty) = with_raw_field();
    let raw = |text: &str| decode(text.as_bytes(), &schema, ty, DecodeOptions::default()).unwrap();
    for (text, expected) in [
        (r#"{"raw":{"b":1.0,"a":"\u003c"}}"#, true),
        (r#"{"raw":{"b": 1}}"#, false),
        (r#"{"raw":"<"}"#, false),
        (r#"{"any":{"b":1}}"#, true),
    ] {
        assert_eq!(to_canonical(raw(text).value, &schema, ty).is_ok(), expected, "{text}");
    }
    assert!(to_canonical(value!({"raw": {"a": 1i64}}), &schema, ty).is_err());
}

proptest! {
    #[test]
    fn any_value_round_trips(value in any_json()) {
        let mut out = Vec::new();
        encode_any(&value, &mut out);
        let again = decode_any(&out, DecodeOptions::default()).unwrap();
        prop_assert_eq!(again.strict, []);
        let mut second = Vec::new();
        encode_any(&again.value, &mut second);
        // Floats without a fraction come back as integers, so the text is what has to be the same.
        prop_assert_eq!(&out, &second);
        let indented = decode_any(&indent(&out), DecodeOptions::default()).unwrap();
        prop_assert_eq!(indented.value, again.value);
    }

    #[test]
    fn encoding_and_decoding_again_changes_nothing(pod in pod_json()) {
        let types = types();
        let mut sent = Vec::new();
        encode_any(&pod, &mut sent);
        let options = DecodeOptions::default();
        let decoded = decode(&sent, &types.schema, types.pod, options).unwrap();
        let mut first = Vec::new();
        encode(&decoded.value, &types.schema, types.pod, &mut first);
        let again = decode(&first, &types.schema, types.pod, options).unwrap();
        let mut second = Vec::new();
        encode(&again.value, &types.schema, types.pod, &mut second);
        prop_assert_eq!(first, second);
    }

    #[test]
    fn a_canonical_tree_is_what_its_text_is_decoded_to(pod in pod_json(), part in any_json()) {
        let types = types();
        let options = DecodeOptions::default();
        let mut patched = pod.clone();
        for at in [&["metadata", "managedFields"][..], &["spec", "containers"], &["unknown"]] {
            check_canonical(&types, &patched);
            patched = pod.clone();
            patched.set_at(at, part.clone());
        }
        check_canonical(&types, &patched);
        let mut sent = Vec::new();
        encode_any(&pod, &mut sent);
        let decoded = decode(&sent, &types.schema, types.pod, options).unwrap();
        prop_assert!(to_canonical(decoded.value, &types.schema, types.pod).is_ok());
    }

    #[test]
    fn nothing_that_looks_like_a_pod_makes_it_panic(text in almost_pod()) {
        let types = types();
        let (printed, _) = round_trip(&types, types.pod, text.as_bytes());
        let typed = decode(text.as_bytes(), &types.schema, types.pod, DecodeOptions::default());
        // Both readers agree on what JSON is.
        let free = decode_any(text.as_bytes(), DecodeOptions::default());
        let syntax = |error: Option<DecodeError>| match error {
            Some(DecodeError::Syntax { message, offset }) => Some((message, offset)),
            _ => None,
        };
        prop_assert_eq!(syntax(typed.err()), syntax(free.err()));
        prop_assert!(!printed.is_empty());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let types = types();
        let _ = decode(&bytes, &types.schema, types.pod, DecodeOptions::default());
        let _ = decode_any(&bytes, DecodeOptions::default());
        let _ = indent(&bytes);
    }

    #[test]
    fn scanning_agrees_with_decoding(pod in pod_json(), revision in any::<u64>()) {
        use crate::raw_object::{FieldSet, KeyOrder, scan, splice};
        let types = types();
        let mut stored = Vec::new();
        encode(&pod, &types.schema, types.pod, &mut stored);
        let wanted = FieldSet::new(["spec.hostNetwork", "metadata.labels.a"]);
        let (bytes, found) = splice(&stored, revision, KeyOrder::Struct, &wanted).unwrap();
        let decoded = decode(&bytes, &types.schema, types.pod, DecodeOptions::default()).unwrap();
        let version = decoded.value.str_at(&["metadata", "resourceVersion"]);
        prop_assert_eq!(version, revision.to_string());
        let labels = decoded.value.at(&["metadata", "labels"]).and_then(Value::as_object);
        let labels: Vec<_> = labels.into_iter().flat_map(meta::Map::iter)
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().into()))
            .collect();
        prop_assert_eq!(&found.labels, &labels);
        let host_network = decoded.value.at(&["spec", "hostNetwork"]).and_then(Value::as_bool);
        let text = found.fields[0].as_deref();
        prop_assert_eq!(text, host_network.map(|value| if value { "true" } else { "false" }));
        let mut item = vec![b'{'];
        item.extend_from_slice(&bytes[found.body_at..]);
        prop_assert_eq!(&item, &bytes[..]);
        let metadata = decode_any(&bytes[found.metadata.clone()], DecodeOptions::default());
        prop_assert!(metadata.is_ok());
        prop_assert_eq!(scan(&bytes, &wanted).unwrap(), found);
    }
}
