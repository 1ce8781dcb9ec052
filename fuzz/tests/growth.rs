//! The work of every decoder, patch and encoder grows with its input, and not with the square of it: four
//! times the input may take at most six times the CPU time.

use codec::{cbor, json as codec_json, protobuf, yaml};
use fuzz::{definitions, tables};
use meta::{GroupVersionKind, Map, Value, growth::assert_linear, json, value};
use patch::{
    apply::{self, Filter, Manager, SingleVersion, TypeContext},
    json_patch::JsonPatch,
    merge, strategic,
};
use schema::TypeId;

/// A piece of work, prepared for an input of a size.
type Work = Box<dyn Fn()>;
type Case = (&'static str, fn(usize) -> Work);

#[test]
fn json() {
    check(&[
        ("sorted keys", |n| read_json(members(0..n, |at| format!("\"k{at:07}\":{at}")))),
        ("reversed keys", |n| read_json(members((0..n).rev(), |at| format!("\"k{at:07}\":{at}")))),
        ("equal keys", |n| read_json(members(0..n, |_| "\"a\":1".to_owned()))),
        ("empty lists", |n| read_json(format!("[{}[]]", "[],".repeat(n)))),
        ("nested lists", |n| read_json(format!("[{}[]]", "[[[[0]]]],".repeat(n)))),
        ("escapes", |n| read_json(format!("\"{}\"", "\\ud83d\\ude00\\n".repeat(n)))),
        ("lone surrogates", |n| read_json(format!("\"{}\"", "\\ud83d".repeat(n)))),
        ("long number", |n| read_json(format!("1{}", "0".repeat(n * 4)))),
        ("long fraction", |n| read_json(format!("0.{}", "1".repeat(n * 4)))),
        ("long exponent", |n| read_json(format!("1e{}", "9".repeat(n * 4)))),
        ("white space", |n| read_json(format!("[{}]", " ".repeat(n * 8)))),
        ("unknown fields", |n| read_pod(members(0..n, |at| format!("\"x{at}\":{at}")))),
        ("known field again", |n| read_pod(members(0..n, |_| "\"kind\":\"Pod\"".to_owned()))),
        ("unknown fields far down", |n| {
            let fields = members(0..n, |at| format!("\"x{at}\":{at}"));
            read_pod(format!(
                r#"{{"spec":{{"containers":[{{"{}":1,"env":[{fields}]}}]}}}}"#,
                "k".repeat(n)
            ))
        }),
        ("wrong types", |n| {
            let labels = members(0..n, |at| format!("\"k{at}\":{at}"));
            read_pod(format!(r#"{{"metadata":{{"labels":{labels}}}}}"#))
        }),
        ("wrong types far down", |n| {
            let deep = "{\"not\":".repeat(150);
            let wrong = members(0..n, |at| format!("\"k{at}\":{at}"));
            let end = "}".repeat(150);
            let text = format!(
                r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{deep}{{"properties":{wrong}}}{end}}}}}]}}}}"#
            );
            read_as("apiextensions.k8s.io", "CustomResourceDefinition", text)
        }),
        ("empty containers", |n| {
            read_pod(format!(r#"{{"spec":{{"containers":[{}{{}}]}}}}"#, "{},".repeat(n)))
        }),
    ]);
}

#[test]
fn yaml_documents() {
    check(&[
        ("equal keys", |n| read_yaml("a: 1\n".repeat(n))),
        ("keys", |n| read_yaml(lines(n, |at| format!("k{}: {at}\n", n - at)))),
        ("float keys of one text", |n| {
            read_yaml(lines(n, |at| format!("1.0000000{at:07}: {at}\n")))
        }),
        ("block list", |n| read_yaml("- a\n".repeat(n))),
        ("flow list", |n| read_yaml(format!("a: [{}]\n", "a, ".repeat(n)))),
        ("flow list at the root", |n| read_yaml(format!("[{}]\n", "a, ".repeat(n)))),
        ("flow map", |n| read_yaml(format!(" {{{}}}\n", lines(n, |at| format!("k{at}: 1, "))))),
        ("flow lists in a flow list", |n| read_yaml(format!("[{}]\n", "[[a], b], ".repeat(n)))),
        ("aliases in a line", |n| {
            // Half of the nodes: more are refused as excessive aliasing.
            read_yaml(format!("a: &a 1\nb: [{}]\n", "*a, 1, 1, ".repeat(n)))
        }),
        ("aliases in lines", |n| {
            read_yaml(format!("a: &a 1\nb:\n{}", "- *a\n- 1\n- 1\n".repeat(n)))
        }),
        ("anchors", |n| read_yaml(lines(n, |at| format!("k{at}: &a{at} 1\n")))),
        ("merges", |n| {
            read_yaml(format!(
                "a: &a {{x: 1}}\n{}",
                lines(n, |at| format!("k{at}:\n  <<: *a\n  y: 1\n"))
            ))
        }),
        ("comments", |n| read_yaml(format!("{}a: 1\n", "# comment\n".repeat(n)))),
        ("literal text", |n| read_yaml(format!("a: |\n{}", "  line\n".repeat(n)))),
        ("folded plain text", |n| read_yaml(format!("a: x\n{}", "  line\n".repeat(n)))),
        ("quoted text", |n| read_yaml(format!("a: \"{}\"\n", "\\n x\n  ".repeat(n)))),
        ("unclosed list", |n| read_yaml(format!("a: [{}", "x,\n".repeat(n)))),
        ("json with escapes", |n| read_yaml(members(0..n, |at| format!("\"k{at}\":\"\\ud83d\"")))),
        ("printing keys", |n| {
            let map = map(n, |at| (format!("k{:x}", at * 7919 % n), Value::from("x")));
            Box::new(move || drop(yaml::emit(&map)))
        }),
        ("printing a deep list", |n| {
            let list = Value::Array(vec![Value::from(1i64); n]);
            let deep = (0..240).fold(list, |inner, _| value!({"a": (inner)}));
            Box::new(move || drop(yaml::emit(&deep)))
        }),
    ]);
}

#[test]
fn cbor_documents() {
    check(&[
        ("keys", |n| {
            // Written backwards, so that every key comes before the ones that were read.
            let mut bytes = vec![0xbf];
            for at in (0..n).rev() {
                bytes.extend_from_slice(&[0x47, b'k']);
                bytes.extend_from_slice(format!("{at:06}").as_bytes());
                bytes.push(0x01);
            }
            bytes.push(0xff);
            read_cbor(bytes)
        }),
        ("list", |n| read_cbor([vec![0x9f], vec![0x80; n * 8], vec![0xff]].concat())),
        ("nested lists", |n| {
            read_cbor([vec![0x9f], [0x81, 0x81, 0x80].repeat(n), vec![0xff]].concat())
        }),
        ("pieces of a text", |n| {
            read_cbor([vec![0x7f], [0x61, b'x'].repeat(n * 4), vec![0xff]].concat())
        }),
        ("encoding keys", |n| {
            let map = map(n, |at| (format!("k{at}"), Value::from(at as i64)));
            Box::new(move || drop(cbor::encode(&map)))
        }),
    ]);
}

#[test]
fn protobuf_messages() {
    check(&[
        ("containers", |n| {
            read_protobuf(
                value!({"spec": {"containers": (list(n, |at| value!({"name": (format!("c{at}"))})))}}),
            )
        }),
        ("labels", |n| {
            read_protobuf(
                value!({"metadata": {"labels": (map(n, |at| (format!("k{at}"), "x".into())))}}),
            )
        }),
        ("finalizers", |n| {
            read_protobuf(
                value!({"metadata": {"finalizers": (list(n, |at| format!("f{at}").into()))}}),
            )
        }),
        ("unknown fields", |n| {
            let mut bytes = protobuf::seal("v1", "Pod", &[0xf8, 0x07, 0x01].repeat(n * 4));
            bytes.shrink_to_fit();
            read_sealed(bytes)
        }),
        ("the same field again", |n| {
            read_sealed(protobuf::seal("v1", "Pod", &[0x0a, 0x03, 0x0a, 0x01, b'x'].repeat(n)))
        }),
        ("unknown groups", |n| {
            read_sealed(protobuf::seal(
                "v1",
                "Pod",
                &[[0xfb, 0x07].repeat(n * 4), [0xfc, 0x07].repeat(n * 4)].concat(),
            ))
        }),
    ]);
}

#[test]
fn json_patches() {
    check(&[
        ("appends", |n| {
            patch_json(
                value!({"a": (list(n, |_| Value::Null))}),
                operations(n / 4, |_| r#"{"op":"add","path":"/a/-","value":1}"#.to_owned()),
            )
        }),
        ("tests", |n| {
            patch_json(
                value!({"a": (map(n, |at| (format!("k{at}"), Value::from(at as i64))))}),
                operations(n / 4, |at| {
                    format!(r#"{{"op":"test","path":"/a/k{at}","value":{at}}}"#)
                }),
            )
        }),
        ("replacements", |n| {
            patch_json(
                value!({"a": (map(n, |at| (format!("k{at}"), Value::Null)))}),
                operations(n / 4, |at| {
                    format!(r#"{{"op":"replace","path":"/a/k{at}","value":{{}}}}"#)
                }),
            )
        }),
        ("copies of a small value", |n| {
            patch_json(
                value!({"a": (list(n, |_| Value::Null)), "b": [1i64]}),
                operations(n / 4, |_| r#"{"op":"copy","from":"/b","path":"/a/-"}"#.to_owned()),
            )
        }),
        ("long paths", |n| {
            patch_json(
                value!({}),
                operations(1, |_| {
                    format!(r#"{{"op":"add","path":"{}","value":1}}"#, "/~01".repeat(n * 4))
                }),
            )
        }),
    ]);
}

#[test]
fn merge_patches() {
    fn merged(object: Value, patch: Value) -> Work {
        Box::new(move || drop(merge::apply(&object, &patch)))
    }
    check(&[
        ("a third of the keys", |n| {
            merged(
                map(n, |at| (format!("k{:07}", at * 3), "x".into())),
                map(n / 3, |at| (format!("k{at:07}"), "y".into())),
            )
        }),
        ("removals", |n| {
            merged(
                map(n, |at| (format!("k{at:07}"), "x".into())),
                map(n, |at| (format!("k{at:07}"), Value::Null)),
            )
        }),
        ("new keys before the others", |n| {
            merged(
                map(n, |at| (format!("k{at:07}"), "x".into())),
                map(n, |at| (format!("a{at:07}"), "y".into())),
            )
        }),
    ]);
}

#[test]
fn strategic_merge_patches() {
    fn merged(object: Value, patch: Value) -> Work {
        let (schema, ty) = (&definitions().schema, pod());
        Box::new(move || drop(strategic::apply(&object, &patch, schema, ty)))
    }
    check(&[
        ("labels", |n| {
            merged(
                value!({"metadata": {"labels": (map(n, |at| (format!("k{at:07}"), "x".into())))}}),
                value!({"metadata": {"labels": (map(n, |at| (format!("a{at:07}"), "y".into())))}}),
            )
        }),
        ("removed labels", |n| {
            merged(
                value!({"metadata": {"labels": (map(n, |at| (format!("k{at:07}"), "x".into())))}}),
                value!({"metadata": {"labels": (map(n, |at| (format!("k{at:07}"), Value::Null)))}}),
            )
        }),
        ("list by key", |n| merged(containers(n, "x"), containers(n, "y"))),
        ("new items of a list by key", |n| {
            merged(
                containers(n, "x"),
                value!({"spec": {"containers": (list(n, |at| value!({"name": (format!("d{at}"))})))}}),
            )
        }),
        ("deleted items", |n| {
            merged(
                containers(n, "x"),
                value!({"spec": {"containers": (list(n, |at| value!({"name": (format!("c{at}")), "$patch": "delete"})))}}),
            )
        }),
        ("order of items", |n| {
            let mut patch = containers(n, "y");
            let order = list(n, |at| value!({"name": (format!("c{at}"))}));
            patch.set_at(&["spec", "$setElementOrder/containers"], order);
            merged(containers(n, "x"), patch)
        }),
        ("finalizers", |n| merged(finalizers(n), finalizers(n))),
        ("deleted finalizers", |n| {
            merged(
                finalizers(n),
                value!({"metadata": {"$deleteFromPrimitiveList/finalizers": (list(n, |at| format!("f{at}").into()))}}),
            )
        }),
        ("order of finalizers", |n| {
            let mut patch = finalizers(n);
            patch.set_at(
                &["metadata", "$setElementOrder/finalizers"],
                list(n, |at| format!("f{at}").into()),
            );
            merged(finalizers(n), patch)
        }),
        ("retained keys", |n| {
            let labels = map(n, |at| (format!("k{at:07}"), "x".into()));
            let retained = list(n, |at| format!("k{at:07}").into());
            merged(
                value!({"metadata": {"labels": (labels)}}),
                value!({"metadata": {"labels": {"$retainKeys": (retained)}}}),
            )
        }),
    ]);
}

#[test]
fn applies() {
    check(&[
        ("labels", |n| {
            applied(
                None,
                value!({"metadata": {"labels": (map(n, |at| (format!("k{at}"), "x".into())))}}),
            )
        }),
        ("set, reversed", |n| {
            applied(
                None,
                value!({"metadata": {"finalizers": (list(n, |at| format!("f{:07}", n - at).into()))}}),
            )
        }),
        ("list by key, reversed", |n| {
            applied(
                None,
                value!({"spec": {"containers": (list(n, |at| value!({"name": (format!("c{:07}", n - at))})))}}),
            )
        }),
        ("the same again", |n| applied(Some(containers(n, "x")), containers(n, "x"))),
        ("other values", |n| applied(Some(containers(n, "x")), containers(n, "y"))),
        ("another order", |n| {
            applied(
                Some(containers(n, "x")),
                value!({"spec": {"containers": (list(n, |at| value!({"name": (format!("c{}", n - 1 - at)), "image": "x"})))}}),
            )
        }),
        ("less", |n| applied(Some(containers(n, "x")), containers(n / 2, "x"))),
        ("wrong values", |n| {
            applied(
                None,
                value!({"spec": {"containers": (list(n, |at| value!({"name": (format!("c{at}")), "image": 1i64})))}}),
            )
        }),
        ("equal items", |n| {
            applied(None, value!({"spec": {"containers": (list(n, |_| value!({"name": "c"})))}}))
        }),
        ("deep values", |n| {
            let deep = |text: &str| {
                let labels = map(n, |at| (format!("k{at:07}"), text.into()));
                (0..100).fold(labels, |inner, _| value!({"a": (inner)}))
            };
            applied_custom(deep("x"), deep("y"))
        }),
        ("an update by many managers", |n| {
            let entry = |at: usize| {
                value!({
                    "manager": (format!("m{at}")), "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": {"f:labels": (map(1, |_| (format!("f:k{at:07}"), Value::object())))}}
                })
            };
            let mut old = labelled(n, "x");
            old.set_at(&["metadata", "managedFields"], list(n, entry));
            let new = labelled(n, "y");
            Box::new(move || {
                let mut new = new.clone();
                apply::update(Some(&old), &mut new, &types(pod()), &manager("m"));
            })
        }),
        ("an apply over many managers", |n| {
            let entry = |at: usize| {
                value!({
                    "manager": (format!("m{at}")), "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": {"f:labels": (map(1, |_| (format!("f:k{at:07}"), Value::object())))}}
                })
            };
            let mut old = labelled(n, "x");
            old.set_at(&["metadata", "managedFields"], list(n, entry));
            let config = labelled(n / 2, "y");
            Box::new(move || {
                drop(apply::apply(Some(&old), &config, &types(pod()), &manager("m1"), false));
                drop(apply::apply(Some(&old), &config, &types(pod()), &manager("m1"), true));
            })
        }),
    ]);
}

#[test]
fn an_object_applied_deep_can_be_applied_to_again() {
    let deep = |levels: usize, text: &str| {
        let inner = (0..levels).fold(Value::from(text), |inner, _| value!({"a": (inner)}));
        configuration(inner)
    };
    let run = move || {
        // The configuration, its `spec` and the innermost text are levels too.
        for levels in [100, 257, 900, meta::limits::OBJECT_DEPTH_MAX - 2] {
            let (ty, name) = (custom(), manager("m"));
            let live = apply::apply(None, &deep(levels, "x"), &types(ty), &name, false).unwrap();
            let stored = json::to_string(&live);
            let lenient = codec_json::DecodeOptions { strict: false };
            let live = codec_json::decode_any(stored.as_bytes(), lenient).unwrap().value;
            let again = apply::apply(Some(&live), &deep(levels, "y"), &types(ty), &name, false);
            assert!(json::to_string(&again.unwrap()).contains("\"y\""), "{levels}");
            let other =
                apply::apply(Some(&live), &deep(levels, "z"), &types(ty), &manager("o"), false);
            assert!(other.unwrap_err().to_string().starts_with("Apply failed with 1 conflict"));
        }
    };
    let stack_bytes = meta::limits::THREAD_STACK_BYTES;
    std::thread::Builder::new().stack_size(stack_bytes).spawn(run).unwrap().join().unwrap();
}

#[track_caller]
fn check(cases: &[Case]) {
    for (name, prepare) in cases {
        assert_linear(name, SIZE, prepare, |work| work());
    }
}

/// Large enough that other costs do not matter.
const SIZE: usize = 1600;

fn read_json(text: String) -> Work {
    Box::new(move || {
        drop(codec_json::decode_any_body(text.as_bytes(), codec_json::DecodeOptions::default()));
    })
}

fn read_pod(text: String) -> Work {
    read_as("", "Pod", text)
}

fn read_as(group: &str, kind: &str, text: String) -> Work {
    let ty = type_of(group, kind);
    let schema = &definitions().schema;
    Box::new(move || {
        drop(codec_json::decode_body(
            text.as_bytes(),
            schema,
            ty,
            codec_json::DecodeOptions::default(),
        ));
    })
}

fn read_yaml(text: String) -> Work {
    Box::new(move || drop(yaml::decode_any(text.as_bytes(), codec_json::DecodeOptions::default())))
}

fn read_cbor(bytes: Vec<u8>) -> Work {
    Box::new(move || drop(cbor::decode(&bytes)))
}

fn read_protobuf(pod_value: Value) -> Work {
    let encoded = protobuf::encode(&pod_value, tables(), &definitions().schema, pod());
    read_sealed(protobuf::seal("v1", "Pod", &encoded.expect("a pod")))
}

fn read_sealed(bytes: Vec<u8>) -> Work {
    Box::new(move || {
        drop(protobuf::decode_object(&bytes, tables(), &definitions().schema, pod()));
    })
}

fn patch_json(object: Value, patch: String) -> Work {
    Box::new(move || {
        let tree =
            codec_json::decode_any_body(patch.as_bytes(), codec_json::DecodeOptions::default());
        let patch = JsonPatch::decode(&tree.expect("JSON").value);
        drop(patch.map(|patch| patch.apply(&object)));
    })
}

fn applied(live: Option<Value>, config: Value) -> Work {
    let named = |mut config: Value| {
        config.set_at(&["apiVersion"], "v1");
        config.set_at(&["kind"], "Pod");
        config
    };
    applied_as(pod(), live.map(named), named(config))
}

fn applied_custom(live: Value, config: Value) -> Work {
    applied_as(custom(), Some(configuration(live)), configuration(config))
}

/// The live object is applied first, by another manager and by the same one.
fn applied_as(ty: TypeId, live: Option<Value>, config: Value) -> Work {
    let first =
        |name: &str, live: &Value| apply::apply(None, live, &types(ty), &manager(name), false);
    let lives = match &live {
        None => vec![None],
        Some(live) => ["m", "other"].into_iter().map(|name| first(name, live).ok()).collect(),
    };
    Box::new(move || {
        for live in &lives {
            drop(apply::apply(live.as_ref(), &config, &types(ty), &manager("m"), false));
            drop(apply::apply(live.as_ref(), &config, &types(ty), &manager("m"), true));
        }
    })
}

fn types(ty: TypeId) -> TypeContext<'static> {
    let schema = &definitions().schema;
    TypeContext { schema, ty, fields: &Filter::All, versions: &SingleVersion }
}

fn manager(name: &str) -> Manager<'_> {
    Manager { name, api_version: "v1", subresource: "", now: "2001-02-03T04:05:06Z" }
}

/// A type that takes any field, with an owner for each member of its objects, as a custom resource that
/// preserves unknown fields.
fn custom() -> TypeId {
    let schema = &definitions().schema;
    let open = |(_, ty): &(TypeId, &schema::Type)| ty.preserve_unknown || ty.fields.is_empty();
    schema.types().find(open).map(|(id, _)| id).expect("a type that takes any field")
}

fn configuration(inner: Value) -> Value {
    value!({"apiVersion": "v1", "kind": "Any", "spec": (inner)})
}

fn pod() -> TypeId {
    type_of("", "Pod")
}

fn type_of(group: &str, kind: &str) -> TypeId {
    definitions().type_of(&GroupVersionKind::new(group, "v1", kind)).expect("a built-in kind")
}

fn members(range: impl Iterator<Item = usize>, member: impl Fn(usize) -> String) -> String {
    format!("{{{}}}", range.map(member).collect::<Vec<_>>().join(","))
}

fn operations(n: usize, operation: impl Fn(usize) -> String) -> String {
    // At most as many as there may be.
    format!("[{}]", (0..n.min(10_000)).map(operation).collect::<Vec<_>>().join(","))
}

fn lines(n: usize, line: impl Fn(usize) -> String) -> String {
    (0..n).map(line).collect()
}

fn list(n: usize, item: impl Fn(usize) -> Value) -> Value {
    Value::Array((0..n).map(item).collect())
}

fn map(n: usize, member: impl Fn(usize) -> (String, Value)) -> Value {
    (0..n).map(member).collect::<Map>().into()
}

fn containers(n: usize, image: &str) -> Value {
    value!({"spec": {"containers": (list(n, |at| value!({"name": (format!("c{at}")), "image": (image)})))}})
}

fn finalizers(n: usize) -> Value {
    value!({"metadata": {"finalizers": (list(n, |at| format!("f{at}").into()))}})
}

fn labelled(n: usize, text: &str) -> Value {
    let labels = map(n, |at| (format!("k{at:07}"), text.into()));
    value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": (labels)}})
}
