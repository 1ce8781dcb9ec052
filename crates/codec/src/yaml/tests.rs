//! Expected answers are those of `sigs.k8s.io/yaml`.

use meta::value;
use proptest::prelude::*;

use super::*;
use crate::testing::types;

#[test]
fn yaml_is_read_as_in_go() {
    for (text, expected) in READ {
        let value = load(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}")).value;
        assert_eq!(meta::json::to_string(&value), *expected, "{text:?}");
    }
}

#[test]
fn errors_are_worded_as_in_go() {
    for (text, expected) in REFUSED {
        match load(text.as_bytes()) {
            Ok(converted) => panic!("{text:?} is read as {:?}", converted.value),
            Err(error) => assert_eq!(error.to_string(), *expected, "{text:?}"),
        }
    }
    let error = load(b"\xff").unwrap_err();
    assert_eq!(error.to_string(), "yaml: invalid leading UTF-8 octet");
}

/// A space before it sends a text by the long way.
#[test]
fn json_fast_path_and_yaml_parser_agree() {
    let long_key = format!(r#"{{"{}":1}}"#, "k".repeat(1_100));
    let texts = [
        r#"{"a":1,"b":[true,null,"x",{"c":-3}],"d":{}}"#,
        r#"{"a":1.0,"b":1e3,"c":2.5,"d":-0,"e":123456789012345678901234567890}"#,
        r#"{"a":2.5,"b":-1e-7,"c":123456789.123456789}"#,
        r#"{"a":"\u003ca\u0026b\u0000"}"#,
        r#"{"a":"\u00e9\ud83d\ude00","b":"\/\n\"\\","c":"é"}"#,
        "{\"a\":\t1}",
        "{\"a\":\n  [1,\n 2]\n}\n",
        r#"{"a":1,"a":2}"#,
        r#"{"<<":{"a":1},"b":2}"#,
        r#"{"yes":"no","1":"010","~":"null"}"#,
        r#"{"a":1} trailing"#,
        r#"{"a":1"#,
        "{a: b, c: yes}",
        "{}",
        &long_key,
    ];
    for text in texts {
        let read = |text: &str| {
            let decoded = decode_any(text.as_bytes(), DecodeOptions { strict: true });
            decoded.map(|decoded| (decoded.value, decoded.strict)).map_err(|why| why.to_string())
        };
        assert_eq!(read(text), read(&format!(" {text}")), "{text}");
    }
}

#[test]
fn values_are_printed_as_in_go() {
    for (json, expected) in PRINTED {
        let options = DecodeOptions::default();
        let value = crate::json::decode_any(json.as_bytes(), options).unwrap().value;
        assert_eq!(emit(&value), *expected, "{json}");
        // Printed YAML parses back to the same value.
        let again = load(expected.as_bytes()).unwrap().value;
        assert_eq!(meta::json::to_string(&again), meta::json::to_string(&value), "{expected}");
    }
}

#[test]
fn duplicate_keys_are_one_strict_error_before_the_others() {
    let types = types();
    for (text, expected) in DUPLICATES {
        let decoded = decode_any(text.as_bytes(), DecodeOptions::default()).unwrap();
        let strict: Vec<String> = decoded.strict.iter().map(ToString::to_string).collect();
        assert_eq!(strict, [*expected], "{text:?}");
    }
    let text = b"kind: ConfigMap\nfoo: 1\ndata:\n  a: x\n  a: z\n";
    let options = DecodeOptions::default();
    let decoded = decode(text, &types.schema, types.config_map, options).unwrap();
    let strict: Vec<String> = decoded.strict.iter().map(ToString::to_string).collect();
    let expected = [
        "yaml: unmarshal errors:\n  line 5: key \"a\" already set in map",
        "unknown field \"foo\"",
    ];
    assert_eq!(strict, expected);
    assert_eq!(decoded.value, meta::value!({"kind": "ConfigMap", "data": {"a": "z"}}));
}

#[test]
fn wrong_types_are_named_as_in_json() {
    let types = types();
    let decoded =
        decode(b"data:\n  a: 1\n", &types.schema, types.config_map, DecodeOptions::default());
    assert_eq!(
        decoded.unwrap_err().to_string(),
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    );
}

#[test]
fn alias_expansion_is_bounded() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        text = [text, format!("a{level}: &a{level} [{below}]\n")].concat();
    }
    let error = load(text.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "yaml: document contains excessive aliasing");
}

#[test]
fn bytes_from_aliases_are_bounded() {
    let document = |aliases: usize, bytes: usize| {
        let text = "x".repeat(bytes);
        let aliases: String = (0..aliases).map(|at| format!("k{at}: *a\n")).collect();
        format!("a: &a {text}\n{aliases}")
    };
    assert!(load(document(15, 200_000).as_bytes()).is_ok());
    for (aliases, bytes) in [(16, 200_000), (900, 200_000), (50_000, 80)] {
        let error = load(document(aliases, bytes).as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "yaml: document contains excessive aliasing");
    }
    // As keys.
    let keys: String = (0..900).map(|at| format!("k{at}: {{*a : 1}}\n")).collect();
    let error = load(format!("a: &a {}\n{keys}", "x".repeat(200_000)).as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "yaml: document contains excessive aliasing");
}

#[test]
fn numbers_of_nodes_and_flow_entries_are_bounded() {
    let list = |items: usize| format!("a: [{}]\n", "1,".repeat(items));
    assert!(load(list(1_000).as_bytes()).is_ok());
    let error = load(list(load::FLOW_ENTRIES_MAX).as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "yaml: exceeded max number of flow entries of 100000");
    let error = load("- 1\n".repeat(load::NODES_MAX).as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "yaml: exceeded max number of nodes of 190000");
    let anchors = |count: usize| (0..count).map(|at| format!("- &a{at} 1\n")).collect::<String>();
    assert!(load(anchors(load::ANCHORS_MAX).as_bytes()).is_ok());
    let error = load(anchors(load::ANCHORS_MAX + 2).as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "yaml: exceeded max number of anchors of 10000");
    assert!(meta::cancel::is_interruptible(|| drop(load("- 1\n".repeat(2_000).as_bytes()))));
    // Commas in texts are no entries.
    let commas = ",[".repeat(load::FLOW_ENTRIES_MAX);
    for text in
        [format!("a: |\n  {commas}\n"), format!("a: '{commas}'\n"), format!("a: b{commas}\n")]
    {
        assert!(load(text.as_bytes()).is_ok());
    }
}

#[test]
fn duplicate_keys_beyond_the_bound_are_counted() {
    let duplicates = load("a: 1\n".repeat(300).as_bytes()).unwrap().duplicates;
    assert_eq!(duplicates.len(), 65);
    assert_eq!(duplicates[63], r#"line 65: key "a" already set in map"#);
    assert_eq!(duplicates[64], "and 235 more keys already set in map");
    // Float keys that differ, but not in single precision, and NaN, which differs from itself.
    let keys: String = (0..40).map(|at| format!("1.000000000{at:02}: {at}\n")).collect();
    let converted = load(format!("{keys}.nan: 1\n.nan: 2\n-0.0: 1\n0.0: 2\n").as_bytes()).unwrap();
    assert_eq!(converted.duplicates, ["line 44: key 0 already set in map"]);
    assert_eq!(meta::json::to_string(&converted.value), r#"{"-0":2,".nan":2,"1":39}"#);
}

#[test]
fn deep_values_are_printed_as_json() {
    let nested =
        |levels| (0..levels).fold(value!([1i64, "x: y"]), |inner, _| value!({"a": (inner)}));
    for levels in [99, 100, 101, 150] {
        let text = emit(&nested(levels));
        assert_eq!(load(text.as_bytes()).unwrap().value, nested(levels), "{levels}");
    }
    let wide = Value::Array(vec![Value::from(1i64); 10_000]);
    let wide = (0..240).fold(wide, |inner, _| value!({"a": (inner)}));
    assert!(emit(&wide).len() < 100_000);
}

#[test]
fn reindenting_is_bounded() {
    let text = format!("a: [\n{}]\n", "x,\n".repeat(100_000));
    assert!(load(text.as_bytes()).is_err());
    let text = format!("a: [\n{}]\n", "x,\n".repeat(100));
    assert!(load(text.as_bytes()).is_ok());
}

#[test]
fn depth_is_bounded() {
    let test = || {
        for (unit, depth) in [("[", 20_000), ("- ", 20_000), ("{a: ", 20_000), ("- ", 300)] {
            let error = load(unit.repeat(depth).as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), "yaml: exceeded max depth of 10000", "{unit} {depth}");
        }
        let line = |n| format!("{}a:\n", " ".repeat(n));
        let block = |depth: usize| (0..depth).map(line).collect::<Vec<_>>().concat();
        let (shallow, deep) = (block(200), block(300));
        assert!(load(shallow.as_bytes()).is_ok());
        assert!(load(deep.as_bytes()).is_err());
    };
    std::thread::Builder::new().stack_size(1 << 21).spawn(test).unwrap().join().unwrap();
}

proptest! {
    #[test]
    fn strings_round_trip(text in "\\PC{0,40}|[ a:#'\"\\n\\-?|>]{0,12}|[a-z ]{60,200}") {
        let value = meta::value!({"k": (text.clone()), "l": [(text)]});
        let printed = emit(&value);
        let again = load(printed.as_bytes()).unwrap_or_else(|error| panic!("{printed}: {error}"));
        prop_assert_eq!(again.value, value, "{}", printed);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[-a: \\n{}\\[\\]&*<!|>'\"#?%@\t,0.]{0,60}") {
        let _ = load(text.as_bytes());
    }
}

/// YAML, and the JSON it is.
const READ: &[(&str, &str)] = &[
    ("a: [\n]\nb: 1\n", "{\"a\":[],\"b\":1}"),
    ("a: {\n}\nb: 1\n", "{\"a\":{},\"b\":1}"),
    ("x:\n  a: [\n    1\n  ]\n  b: {\n  }\n", "{\"x\":{\"a\":[1],\"b\":{}}}"),
    ("a:\n  b: [1,\n2]\n", "{\"a\":{\"b\":[1,2]}}"),
    ("a: \"x\ny\"\n", "{\"a\":\"x y\"}"),
    ("a:\n  b: \"x\ny\"\n", "{\"a\":{\"b\":\"x y\"}}"),
    ("a: 'x\n\ny'\nb: |\n  [\n  \"\nc: [\n]\n", "{\"a\":\"x\\ny\",\"b\":\"[\\n\\\"\\n\",\"c\":[]}"),
    ("a:\n- [\n]\n- {\nb: 1\n}\n", "{\"a\":[[],{\"b\":1}]}"),
    ("k: \"a # b\nc\" # [\nd: e\n", "{\"d\":\"e\",\"k\":\"a # b c\"}"),
    ("a: it's [fine\nb: [\n]\n", "{\"a\":\"it's [fine\",\"b\":[]}"),
    ("- |\n  [\n- - \"x\ny\"\n", "[\"[\\n\",[\"x y\"]]"),
    ("a: [\n# ] comment\nx\n]\n", "{\"a\":[\"x\"]}"),
    ("a: &x [\n]\nb: !!str \"x\ny\"\n", "{\"a\":[],\"b\":\"x y\"}"),
    ("a:\n  - b: >-\n      it's\n    c: [\n]\n", "{\"a\":[{\"b\":\"it's\",\"c\":[]}]}"),
    ("", "null"),
    ("# c\n", "null"),
    ("a: 1\n", "{\"a\":1}"),
    (
        "a: yes\nb: no\nc: on\nd: off\ne: y\nf: n\ng: ~\nh:\ni: null\nj: Null\n",
        "{\"a\":true,\"b\":false,\"c\":true,\"d\":false,\"e\":true,\"f\":false,\"g\":null,\"h\":null,\"i\":null,\"j\":null}",
    ),
    (
        "a: 010\nb: 0x1F\nc: 0o17\nd: 0b11\ne: 1_000\nf: 08\ng: 1e3\nh: 1.50\ni: .5\nj: +1\nk: -0x10\n",
        "{\"a\":8,\"b\":31,\"c\":15,\"d\":3,\"e\":1000,\"f\":8,\"g\":1000,\"h\":1.5,\"i\":0.5,\"j\":1,\"k\":-16}",
    ),
    (
        "a: 2024-01-01\nb: 2024-01-01T00:00:00Z\n",
        "{\"a\":\"2024-01-01\",\"b\":\"2024-01-01T00:00:00Z\"}",
    ),
    (
        "1: a\n1.5: b\ntrue: c\n2024-01-01: d\n010: e\n",
        "{\"1\":\"a\",\"1.5\":\"b\",\"2024-01-01\":\"d\",\"8\":\"e\",\"true\":\"c\"}",
    ),
    (
        "a: &x {k: 1, l: 2}\nb: *x\nc:\n  <<: *x\n  l: 3\n",
        "{\"a\":{\"k\":1,\"l\":2},\"b\":{\"k\":1,\"l\":2},\"c\":{\"k\":1,\"l\":3}}",
    ),
    (
        "x: &x {k: 1}\ny: &y {k: 2, m: 3}\nz:\n  <<: [*x, *y]\n",
        "{\"true\":{\"k\":2,\"m\":3},\"x\":{\"k\":1},\"z\":{\"k\":1,\"m\":3}}",
    ),
    ("x: &x {k: 1}\nz:\n  k: 0\n  <<: *x\n", "{\"x\":{\"k\":1},\"z\":{\"k\":1}}"),
    ("z:\n  <<: {a: 1}\n  a: 2\n", "{\"z\":{\"a\":2}}"),
    ("a: 1\na: 2\n", "{\"a\":2}"),
    ("a: 1\nb:\n  c: 1\n  c: 2\n", "{\"a\":1,\"b\":{\"c\":2}}"),
    ("1: a\n\"1\": b\n", "{\"1\":\"b\"}"),
    ("a: |\n  line1\n  line2\n", "{\"a\":\"line1\\nline2\\n\"}"),
    ("a: |-\n  line1\n  line2\n\n", "{\"a\":\"line1\\nline2\"}"),
    ("a: |+\n  line1\n\n", "{\"a\":\"line1\\n\\n\"}"),
    ("a: >\n  folded\n  text\n\n  para\n", "{\"a\":\"folded text\\npara\\n\"}"),
    ("a: >-\n  x\n  y\n", "{\"a\":\"x y\"}"),
    ("a: \"x\\ty\\u00e9\\n\"\n", "{\"a\":\"x\\tyé\\n\"}"),
    ("a: 'it''s'\n", "{\"a\":\"it's\"}"),
    ("a: plain multi\n  line text\n", "{\"a\":\"plain multi line text\"}"),
    ("- a\n- b: 1\n  c: 2\n- - x\n  - y\n", "[\"a\",{\"b\":1,\"c\":2},[\"x\",true]]"),
    (
        "a: [1, two, {b: c}]\nb: {x: 1, y: [z]}\n",
        "{\"a\":[1,\"two\",{\"b\":\"c\"}],\"b\":{\"true\":[\"z\"],\"x\":1}}",
    ),
    ("a: {}\nb: []\n", "{\"a\":{},\"b\":[]}"),
    (
        "a: !!str 123\nb: !!int \"5\"\nc: !!float 3\nd: !!bool yes\ne: !!null ''\nf: !foo bar\ng: ! 12\n",
        "{\"a\":\"123\",\"b\":5,\"c\":3,\"d\":true,\"e\":null,\"f\":\"bar\",\"g\":\"12\"}",
    ),
    ("a: !!binary aGVsbG8=\n", "{\"a\":\"hello\"}"),
    ("a: !!timestamp 2024-01-01\n", "{\"a\":\"2024-01-01\"}"),
    ("---\na: 1\n---\nb: 2\n", "{\"a\":1}"),
    ("---\n", "null"),
    ("a: 1\n...\njunk: [\n", "{\"a\":1}"),
    ("{\"a\": 1, \"b\": [true, null, 1.5]}", "{\"a\":1,\"b\":[true,null,1.5]}"),
    ("\u{feff}a: 1\n", "{\"a\":1}"),
    ("a: 99999999999999999999\n", "{\"a\":100000000000000000000}"),
    ("a: 1e999\n", "{\"a\":\"1e999\"}"),
    ("a: -0\n", "{\"a\":0}"),
    ("a: 0.1\n", "{\"a\":0.1}"),
    ("a: 1e21\n", "{\"a\":1e+21}"),
    ("a: 1:30\n", "{\"a\":\"1:30\"}"),
    ("a: 12:30:45\n", "{\"a\":\"12:30:45\"}"),
    ("a: =\n", "{\"a\":\"=\"}"),
    ("a: <<\n", "{\"a\":\"\\u003c\\u003c\"}"),
    ("a: b # c\n", "{\"a\":\"b\"}"),
    ("a: b#c\n", "{\"a\":\"b#c\"}"),
    ("a: 'b' # c\n", "{\"a\":\"b\"}"),
    ("a:    \n  b: c\n", "{\"a\":{\"b\":\"c\"}}"),
    ("\"a\": b\n'c': d\n", "{\"a\":\"b\",\"c\":\"d\"}"),
    ("? a\n: b\n", "{\"a\":\"b\"}"),
    ("? a\n", "{\"a\":null}"),
    ("- - - a\n", "[[[\"a\"]]]"),
    ("-\n", "[null]"),
    ("- \n- a\n", "[null,\"a\"]"),
    ("a:\n- b\n- c\nd: e\n", "{\"a\":[\"b\",\"c\"],\"d\":\"e\"}"),
    ("a:\r\n  b: c\r\n", "{\"a\":{\"b\":\"c\"}}"),
    ("a: ?b\n", "{\"a\":\"?b\"}"),
    ("a: :b\n", "{\"a\":\":b\"}"),
    ("a: http://x:80/y?z\n", "{\"a\":\"http://x:80/y?z\"}"),
    ("a: [x:y]\n", "{\"a\":[\"x:y\"]}"),
    ("a: {x:y}\n", "{\"a\":{\"x:y\":null}}"),
    ("a: {x: y,}\n", "{\"a\":{\"x\":true}}"),
    ("a: [x,]\n", "{\"a\":[\"x\"]}"),
    ("a: {a, b: c}\n", "{\"a\":{\"a\":null,\"b\":\"c\"}}"),
    ("a: [a: b]\n", "{\"a\":[{\"a\":\"b\"}]}"),
    ("&a a: &b b\n*b : c\n", "{\"a\":\"b\",\"b\":\"c\"}"),
    ("a: &x\nb: *x\n", "{\"a\":null,\"b\":null}"),
    ("a: &x 1\nb: &x 2\nc: *x\n", "{\"a\":1,\"b\":2,\"c\":2}"),
    ("a: \"line one\n  line two\n\n  three\"\n", "{\"a\":\"line one line two\\nthree\"}"),
    ("a: |2\n   x\n  y\n", "{\"a\":\" x\\ny\\n\"}"),
    ("a: |1\n x\n", "{\"a\":\"x\\n\"}"),
    ("a: >\n\n  x\n   more\n  y\n", "{\"a\":\"\\nx\\n more\\ny\\n\"}"),
    ("a: !!map {b: c}\n", "{\"a\":{\"b\":\"c\"}}"),
    ("a: !!seq [b]\n", "{\"a\":[\"b\"]}"),
    ("!!map {a: b}\n", "{\"a\":\"b\"}"),
    ("a: !!set {x}\n", "{\"a\":{\"x\":null}}"),
    ("a: 1 2\n", "{\"a\":\"1 2\"}"),
    ("{a: 1, a: 2}", "{\"a\":2}"),
    ("x: 'a\n\n  b'\n", "{\"x\":\"a\\nb\"}"),
    ("a: \"\\\n  b\"\n", "{\"a\":\"b\"}"),
    ("no: 1\n", "{\"false\":1}"),
    ("a: 0xFFFFFFFFFFFFFFFFF\n", "{\"a\":\"0xFFFFFFFFFFFFFFFFF\"}"),
    ("a: +.5\n", "{\"a\":0.5}"),
    ("a: 1__0\n", "{\"a\":10}"),
    ("a: _1\n", "{\"a\":\"_1\"}"),
    ("a: 0.\n", "{\"a\":0}"),
    ("a: 0x_1\n", "{\"a\":1}"),
    ("a: 1.e5\n", "{\"a\":100000}"),
    ("a:b\n", "\"a:b\""),
    ("a: b\n---\n", "{\"a\":\"b\"}"),
    ("a: |\n  x\n   \n  y\n", "{\"a\":\"x\\n \\ny\\n\"}"),
];

/// YAML documents with their errors.
const REFUSED: &[(&str, &str)] = &[
    ("a: .inf\n", "json: unsupported value: +Inf"),
    ("a: .nan\n", "json: unsupported value: NaN"),
    ("a: -.inf\n", "json: unsupported value: -Inf"),
    ("~: a\n", "unsupported map key of type: %!s(<nil>), key: <nil>, value: \"a\""),
    ("? [a]\n: b\n", "yaml: invalid map key: []interface {}{\"a\"}"),
    ("? {a: b}\n: c\n", "yaml: invalid map key: map[interface {}]interface {}{\"a\":\"b\"}"),
    ("z:\n  <<: 5\n", "yaml: map merge requires map or sequence of maps as the value"),
    ("z:\n  <<: [5]\n", "yaml: map merge requires map or sequence of maps as the value"),
    ("a: *x\n", "yaml: unknown anchor 'x' referenced"),
    ("a: &a [*a]\n", "yaml: anchor 'a' value contains itself"),
    ("a: &a\n  b: *a\n", "yaml: anchor 'a' value contains itself"),
    ("a: !!int abc\n", "yaml: cannot decode !!str `abc` as a !!int"),
    ("a: !!binary '!'\n", "yaml: !!binary value contains invalid base64 data"),
    ("a: !!float x\n", "yaml: cannot decode !!str `x` as a !!float"),
    ("a: !!bool 1\n", "yaml: cannot decode !!int `1` as a !!bool"),
    ("a: b: c\n", "yaml: mapping values are not allowed in this context"),
    ("a:\n  - b\n c\n", "yaml: line 2: did not find expected key"),
    ("a: [1, 2\n", "yaml: line 1: did not find expected ',' or ']'"),
    ("a: {b: c\n", "yaml: line 1: did not find expected ',' or '}'"),
    ("a: \"unterminated\n", "yaml: line 2: found unexpected end of stream"),
    ("a: 'x\n", "yaml: line 2: found unexpected end of stream"),
    ("a:\n\t- b\n", "yaml: line 2: found character that cannot start any token"),
    ("a: @x\n", "yaml: found character that cannot start any token"),
    ("a: `x`\n", "yaml: found character that cannot start any token"),
    ("- a\nb: c\n", "yaml: line 1: did not find expected '-' indicator"),
    ("a: 1\n- b\n", "yaml: line 1: did not find expected key"),
    ("a: %x\n", "yaml: found character that cannot start any token"),
    ("key\nkey2: v\n", "yaml: line 2: mapping values are not allowed in this context"),
    ("a: 1\nb\n", "yaml: line 3: could not find expected ':'"),
    ("a: 1\nb\nc: 2\n", "yaml: line 3: could not find expected ':'"),
    ("a: *\n", "yaml: did not find expected alphabetic or numeric character"),
    ("a: &\n", "yaml: did not find expected alphabetic or numeric character"),
    ("a: !<x\n", "yaml: did not find the expected '>'"),
    ("a: \"\\x\"\n", "yaml: did not find expected hexdecimal number"),
    ("a: \"\\xZZ\"\n", "yaml: did not find expected hexdecimal number"),
    ("foo: bar: baz\n", "yaml: mapping values are not allowed in this context"),
    ("a: 1\n\n\nb: [\n", "yaml: line 4: did not find expected node content"),
    ("a: \u{1}\n", "yaml: control characters are not allowed"),
    ("a: \u{7f}\n", "yaml: control characters are not allowed"),
    ("<<: x\n", "yaml: map merge requires map or sequence of maps as the value"),
    ("a: -\n", "yaml: block sequence entries are not allowed in this context"),
    ("a: - b\n", "yaml: block sequence entries are not allowed in this context"),
    ("a: b\n  c: d\n", "yaml: line 2: mapping values are not allowed in this context"),
    ("a: \"b\"c\n", "yaml: did not find expected key"),
    ("a: [b]c\n", "yaml: did not find expected key"),
    ("[a, b]: c\n", "yaml: invalid map key: []interface {}{\"a\", \"b\"}"),
    ("a: b:\n", "yaml: mapping values are not allowed in this context"),
    ("a: [,]\n", "yaml: did not find expected node content"),
    ("'a", "yaml: found unexpected end of stream"),
];

/// YAML documents with their strict decoding errors.
const DUPLICATES: &[(&str, &str)] = &[
    (
        "a: &x {k: 1, l: 2}\nb: *x\nc:\n  <<: *x\n  l: 3\n",
        "yaml: unmarshal errors:\n  line 5: key \"l\" already set in map",
    ),
    (
        "x: &x {k: 1}\ny: &y {k: 2, m: 3}\nz:\n  <<: [*x, *y]\n",
        "yaml: unmarshal errors:\n  line 1: key \"k\" already set in map",
    ),
    (
        "x: &x {k: 1}\nz:\n  k: 0\n  <<: *x\n",
        "yaml: unmarshal errors:\n  line 1: key \"k\" already set in map",
    ),
    (
        "z:\n  <<: {a: 1}\n  a: 2\n",
        "yaml: unmarshal errors:\n  line 3: key \"a\" already set in map",
    ),
    ("a: 1\na: 2\n", "yaml: unmarshal errors:\n  line 2: key \"a\" already set in map"),
    (
        "a: 1\nb:\n  c: 1\n  c: 2\n",
        "yaml: unmarshal errors:\n  line 4: key \"c\" already set in map",
    ),
    ("{a: 1, a: 2}", "yaml: unmarshal errors:\n  line 1: key \"a\" already set in map"),
];

/// JSON, and the YAML it is printed as.
const PRINTED: &[(&str, &str)] = &[
    ("null", "null\n"),
    ("true", "true\n"),
    ("1", "1\n"),
    ("1.5", "1.5\n"),
    ("\"\"", "\"\"\n"),
    ("\"a\"", "a\n"),
    ("\"yes\"", "\"yes\"\n"),
    ("\"1\"", "\"1\"\n"),
    ("\"1.5\"", "\"1.5\"\n"),
    ("\"null\"", "\"null\"\n"),
    ("\"~\"", "\"~\"\n"),
    ("\"2024-01-01\"", "\"2024-01-01\"\n"),
    ("\"1:30\"", "\"1:30\"\n"),
    ("\"12:30:45.5\"", "\"12:30:45.5\"\n"),
    ("\" a\"", "' a'\n"),
    ("\"a \"", "'a '\n"),
    ("\"a b\"", "a b\n"),
    ("\"a: b\"", "'a: b'\n"),
    ("\"a:b\"", "a:b\n"),
    ("\"a #b\"", "'a #b'\n"),
    ("\"a#b\"", "a#b\n"),
    ("\"#a\"", "'#a'\n"),
    ("\"-\"", "'-'\n"),
    ("\"- a\"", "'- a'\n"),
    ("\"-a\"", "-a\n"),
    ("\"---\"", "'---'\n"),
    ("\"...\"", "'...'\n"),
    ("\"--- a\"", "'--- a'\n"),
    ("\"?\"", "'?'\n"),
    ("\"? a\"", "'? a'\n"),
    ("\"?a\"", "?a\n"),
    ("\":\"", "':'\n"),
    ("\":a\"", ":a\n"),
    ("\"[\"", "'['\n"),
    ("\"{a}\"", "'{a}'\n"),
    ("\"\\u0026a\"", "'&a'\n"),
    ("\"*a\"", "'*a'\n"),
    ("\"!a\"", "'!a'\n"),
    ("\"|\"", "'|'\n"),
    ("\"\\u003e\"", "'>'\n"),
    ("\"'\"", "''''\n"),
    ("\"\\\"\"", "'\"'\n"),
    ("\"%a\"", "'%a'\n"),
    ("\"@a\"", "'@a'\n"),
    ("\"`a\"", "'`a'\n"),
    ("\"a'b\"", "a'b\n"),
    ("\"a\\\"b\"", "a\"b\n"),
    ("\"a\\\\b\"", "a\\b\n"),
    ("\"a\\nb\"", "|-\n  a\n  b\n"),
    ("\"a\\nb\\n\"", "|\n  a\n  b\n"),
    ("\"a\\nb\\n\\n\"", "|+\n  a\n  b\n\n"),
    ("\"\\na\"", "|2-\n\n  a\n"),
    ("\" a\\nb\"", "|2-\n   a\n  b\n"),
    ("\"a \\nb\"", "\"a \\nb\"\n"),
    ("\"a\\n b\"", "|-\n  a\n   b\n"),
    ("\"a\\tb\"", "\"a\\tb\"\n"),
    ("\"a\\n\\tb\"", "\"a\\n\\tb\"\n"),
    ("\"é\"", "é\n"),
    ("\"日本\"", "日本\n"),
    ("\"😀\"", "\"\\U0001F600\"\n"),
    ("\"\u{a0}\"", "\u{a0}\n"),
    ("\"\u{ad}\"", "\u{ad}\n"),
    ("\"\u{feff}\"", "\"\\uFEFF\"\n"),
    ("\"\\u0000\"", "\"\\0\"\n"),
    ("\"\\u001b\"", "\"\\e\"\n"),
    ("\"a,b\"", "a,b\n"),
    ("\"a]b\"", "a]b\n"),
    ("\"\\u003c\\u003c\"", "<<\n"),
    ("\"=\"", "=\n"),
    ("\"0x1F\"", "\"0x1F\"\n"),
    ("\"010\"", "\"010\"\n"),
    ("\"1_000\"", "\"1_000\"\n"),
    ("\".5\"", "\".5\"\n"),
    ("\"+1\"", "\"+1\"\n"),
    ("\"-1\"", "\"-1\"\n"),
    ("\"1e3\"", "\"1e3\"\n"),
    ("\".inf\"", "\".inf\"\n"),
    ("\".nan\"", "\".nan\"\n"),
    ("\"y\"", "\"y\"\n"),
    ("\"n\"", "\"n\"\n"),
    ("\"on\"", "\"on\"\n"),
    ("\"off\"", "\"off\"\n"),
    ("\"true\"", "\"true\"\n"),
    ("\"True\"", "\"True\"\n"),
    ("\"tRue\"", "tRue\n"),
    ("\"\\n\"", "|2+\n\n"),
    ("\"\\n\\n\"", "|2+\n\n\n"),
    ("\" \"", "' '\n"),
    ("\"  \"", "'  '\n"),
    ("\"a\\r\\nb\"", "\"a\\r\\nb\"\n"),
    ("\"a\\r\"", "\"a\\r\"\n"),
    (
        "\"word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word \"",
        "'word word word word word word word word word word word word word word word word word\n  word word word word word word word word word word word word word word word word\n  word word word word word word word '\n",
    ),
    (
        "\"word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word\"",
        "word word word word word word word word word word word word word word word word word\n  word word word word word word word word word word word word word word word word\n  word word word word word word word\n",
    ),
    (
        "\"x: word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word\"",
        "'x: word word word word word word word word word word word word word word word word\n  word word word word word word word word word word word word word word word word\n  word word word word word word word word'\n",
    ),
    (
        "\"word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word 'q'\"",
        "word word word word word word word word word word word word word word word word word\n  word word word word word word word word word word word word word word word word\n  word word word word word word word 'q'\n",
    ),
    (
        "\"'word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word \"",
        "'''word word word word word word word word word word word word word word word word\n  word word word word word word word word word word word word word word word word\n  word word word word word word word word '\n",
    ),
    (
        "\"word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word\\t\"",
        "\"word word word word word word word word word word word word word word word word word\n  word word word word word word word word word word word word word word word word\n  word word word word word word word\\t\"\n",
    ),
    (
        "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
    ),
    (
        "\"word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word\"",
        "word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word  word\n",
    ),
    (
        "\"word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word\\nword word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word\"",
        "|-\n  word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word\n  word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word\n",
    ),
    (
        "\"1: a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b\"",
        "'1: a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b\n  a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b a  b\n  a  b a  b a  b a  b a  b a  b a  b a  b'\n",
    ),
    ("[]", "[]\n"),
    ("{}", "{}\n"),
    (
        "[1,\"a\",null,[1,[2]],{\"a\":1,\"b\":[1,2],\"c\":{\"d\":1}},[],{}]",
        "- 1\n- a\n- null\n- - 1\n  - - 2\n- a: 1\n  b:\n  - 1\n  - 2\n  c:\n    d: 1\n- []\n- {}\n",
    ),
    (
        "{\"a\":[{\"x\":[1],\"y\":\"z\"}],\"b\":{\"c\":{\"d\":[[1]]}}}",
        "a:\n- x:\n  - 1\n  \"y\": z\nb:\n  c:\n    d:\n    - - 1\n",
    ),
    (
        "{\"\":7,\"-x\":6,\".dot\":25,\"1\":9,\"10\":10,\"2\":11,\"A\":4,\"_x\":5,\"a\\nb\":19,\"a b\":12,\"a-b\":13,\"a/b\":14,\"a0\":23,\"a01\":22,\"a1\":3,\"a10\":1,\"a2\":2,\"a: b\":18,\"aB\":15,\"ab\":16,\"f:metadata\":27,\"k:{\\\"a\\\":\\\"b\\\"}\":28,\"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\":21,\"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\":20,\"null\":24,\"x.y/z\":26,\"yes\":8,\"é\":17}",
        "\"\": 7\n-x: 6\n.dot: 25\n_x: 5\n\"1\": 9\n\"2\": 11\n\"10\": 10\nA: 4\n? |-\n  a\n  b\n: 19\na b: 12\na-b: 13\na/b: 14\n'a: b': 18\na0: 23\na1: 3\na01: 22\na2: 2\na10: 1\naB: 15\nab: 16\nf:metadata: 27\nk:{\"a\":\"b\"}: 28\nkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk: 21\n? kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\n: 20\n\"null\": 24\nx.y/z: 26\n\"yes\": 8\né: 17\n",
    ),
    (
        "{\"a\":\"x\\ny\\n\",\"b\":\"x\\ny\",\"c\":{\"d\":\"x\\n\\ny\\n\\n\",\"e\":[\"p\\nq\\n\",\"r\"]},\"f\":\"word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word \",\"g\":[\"word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word \",\"x: word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word\"],\"h\":\" lead\\ntrail\",\"i\":\"\\nlead\"}",
        "a: |\n  x\n  y\nb: |-\n  x\n  y\nc:\n  d: |+\n    x\n\n    y\n\n  e:\n  - |\n    p\n    q\n  - r\nf: 'word word word word word word word word word word word word word word word word\n  word word word word word word word word word word word word word word word word\n  word word word word word word word word '\ng:\n- 'word word word word word word word word word word word word word word word word\n  word word word word word word word word word word word word word word word word\n  word word word word word word word word '\n- 'x: word word word word word word word word word word word word word word word word\n  word word word word word word word word word word word word word word word word\n  word word word word word word word word'\nh: |2-\n   lead\n  trail\ni: |2-\n\n  lead\n",
    ),
    ("1e+21", "1e+21\n"),
    ("100000000000000000000", "1e+20\n"),
    ("1.5e-7", "1.5e-07\n"),
    ("123456.5", "123456.5\n"),
    ("1234567.5", "1.2345675e+06\n"),
    ("100000000.5", "1.000000005e+08\n"),
    ("-0.25", "-0.25\n"),
    ("1000000", "1000000\n"),
    ("9223372036854775807", "9223372036854775807\n"),
    ("9223372036854776000", "9223372036854776000\n"),
    ("1e+300", "1e+300\n"),
    ("5e-324", "5e-324\n"),
];
