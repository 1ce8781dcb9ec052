//! Tables of expressions with what kube-apiserver 1.36 makes of them: type, estimated cost, result
//! or error, actual cost. The tables in `data/` were written by a program around kube-apiserver's
//! own packages; the data they run on is [`world`].
//!
//! A table has an expression per block: `> ` and the text (`\n` is a line break), then what came of
//! it, one fact per line.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use cel::{Bound, CompileError, Decl, Env, KubernetesValue, ListType, PER_CALL_LIMIT, Val};
use meta::{Str, Value, value};

#[test]
fn results_match_kube_apiserver() {
    let (decl, object, old) = world();
    let env = Env::new().data("self", &decl).data("oldSelf", &decl);
    let variables = [Bound::Data(&object, &decl), Bound::Data(&old, &decl)];
    let mut wrong = String::new();
    let (mut count, mut failed) = (0, 0);
    for table in tables() {
        for (expression, expected) in blocks(&table) {
            count += 1;
            let actual = run(&env, &variables, &expression);
            if actual != expected {
                failed += 1;
                writeln!(wrong, "> {expression}\n--- expected\n{expected}--- actual\n{actual}")
                    .expect("writes to a string");
            }
        }
    }
    assert!(count > 300, "the tables are there");
    assert!(wrong.is_empty(), "{failed} of {count} differ:\n{wrong}");
}

fn tables() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .expect("the tables are part of the crate")
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).expect("readable")).collect()
}

/// Expressions and the lines that follow them.
fn blocks(table: &str) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    for line in table.lines() {
        if let Some(expression) = line.strip_prefix("> ") {
            blocks.push((expression.replace("\\n", "\n"), String::new()));
        } else if let (Some((_, facts)), false) =
            (blocks.last_mut(), line.is_empty() || line.starts_with('#'))
        {
            facts.push_str(line);
            facts.push('\n');
        }
    }
    blocks
}

fn run(env: &Env, variables: &[Bound<'_>], expression: &str) -> String {
    let line = |text: &str| text.replace('\\', "\\\\").replace('\n', "\\n");
    let program = match env.compile(expression) {
        Ok(program) => program,
        Err(CompileError::Invalid(issues)) => {
            return format!("compile: {}\n", line(&issues.to_string()));
        }
        Err(CompileError::Unusable { output, estimate, message }) => {
            return format!(
                "type: {output}\nestimate: {} {}\nprogram: {}\n",
                estimate.min,
                estimate.max,
                line(&message)
            );
        }
    };
    let estimate = program.estimate();
    let outcome = program.evaluate(variables, PER_CALL_LIMIT);
    let result = match &outcome.result {
        Ok(value) => format!("value: {}", line(&show(value))),
        Err(fault) => format!("error: {}", line(&fault.to_string())),
    };
    format!(
        "type: {}\nestimate: {} {}\n{result}\ncost: {}\n",
        program.output_type(),
        estimate.min,
        estimate.max,
        outcome.cost
    )
}

fn show(value: &Val<'_>) -> String {
    let quote = meta::field::quote;
    match value {
        Val::Null => "null".into(),
        Val::Bool(value) => value.to_string(),
        Val::Int(int) => int.to_string(),
        Val::Uint(uint) => format!("{uint}u"),
        Val::Double(double) if double.is_infinite() => {
            format!("double({}Inf)", if *double > 0.0 { "+" } else { "-" })
        }
        Val::Double(double) => format!("double({double})"),
        Val::String(text) => quote(text.as_str()),
        Val::Bytes(bytes) => {
            let text: String = bytes
                .utf8_chunks()
                .map(|chunk| {
                    let invalid: String =
                        chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")).collect();
                    format!("{}{invalid}", quote(chunk.valid()).trim_matches('"'))
                })
                .collect();
            format!("b\"{text}\"")
        }
        Val::Duration(_) | Val::Timestamp(_) => {
            let name = if matches!(value, Val::Duration(_)) { "duration" } else { "timestamp" };
            let env = Env::new().variable("x", cel::Type::Dyn);
            let program = env.compile("string(x)").expect("compiles");
            let variables = [Bound::Val(value.clone())];
            let text = program.evaluate(&variables, PER_CALL_LIMIT).result.expect("has a text");
            format!("{name}({})", text.as_str().expect("is a text"))
        }
        Val::Optional(None) => "optional.none()".into(),
        Val::Optional(Some(value)) => format!("optional.of({})", show(value)),
        Val::List(list) => {
            let items: Vec<String> = list.iter().map(|item| show_element(&item)).collect();
            format!("[{}]", items.join(", "))
        }
        Val::Map(map) => {
            let mut entries: Vec<String> = map
                .keys()
                .iter()
                .map(|key| {
                    let value = map.find(key).map(Option::unwrap_or_default);
                    format!("{}: {}", show(key), show_element(&value))
                })
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Val::Type(ty) => format!("type({})", ty.name()),
        Val::Kubernetes(value) => show_kubernetes(value),
        Val::Preserved(_) => "preserved".into(),
    }
}

fn show_element(element: &cel::EvalResult<'_>) -> String {
    element.as_ref().map_or_else(|fault| format!("error({fault})"), show)
}

fn show_kubernetes(value: &KubernetesValue) -> String {
    let name = match value {
        KubernetesValue::Quantity(_) => "quantity",
        KubernetesValue::Url(_) => "url",
        KubernetesValue::Ip(_) => "ip",
        KubernetesValue::Cidr(_) => "cidr",
        KubernetesValue::Semver(_) => "semver",
        KubernetesValue::Format(_) => "format",
        _ => "authorization",
    };
    format!("{name}({value})")
}

/// The declaration of `self` and `oldSelf`, and their values.
fn world() -> (Arc<Decl>, Value, Value) {
    let decl = |decl: Decl| Arc::new(decl);
    let int = || decl(Decl::int());
    let string = |max| decl(Decl::string(max));
    let list = |items, max| decl(Decl::list(items, ListType::Atomic, max));
    let item = decl(Decl::object([("key", string(Some(8)), true), ("value", int(), false)]));
    let element =
        decl(Decl::object([("key", string(None), false), ("sub", list(int(), Some(3)), false)]));
    let nested = decl(Decl::object([
        ("a", decl(Decl::object([("b", int(), false)])), false),
        ("with-dash", string(None), false),
        ("a.b", int(), false),
        ("namespace", string(None), false),
        ("under__score", decl(Decl::bool()), false),
    ]));
    let keys = ListType::Map(vec![Str::new("key")]);
    let root = Decl::object([
        ("int", int(), true),
        ("num", decl(Decl::double()), false),
        ("name", string(Some(16)), true),
        ("text", string(None), false),
        ("choice", decl(Decl::string_enum(["small", "large"])), false),
        ("flag", decl(Decl::bool()), false),
        ("data", decl(Decl::bytes(None)), false),
        ("wait", decl(Decl::duration()), false),
        ("day", decl(Decl::date()), false),
        ("time", decl(Decl::date_time()), false),
        ("port", decl(Decl::int_or_string(None)), false),
        ("ints", list(int(), Some(10)), false),
        ("nums", list(decl(Decl::double()), None), false),
        ("words", list(string(Some(20)), Some(5)), false),
        ("texts", list(string(None), None), false),
        ("set", decl(Decl::list(string(Some(10)), ListType::Set, Some(8))), false),
        ("items", decl(Decl::list(item, keys, Some(6))), false),
        ("list", list(element, None), false),
        ("labels", decl(Decl::map(string(Some(12)), Some(8))), false),
        ("sizes", decl(Decl::map(int(), None)), false),
        ("nested", nested, false),
        ("missing", string(None), false),
        ("missings", list(string(None), None), false),
        ("nothing", decl(Decl::string(None).nullable(true)), false),
        ("kept", decl(Decl::preserved()), false),
        ("open", decl(Decl::object([("known", int(), false)])), false),
    ]);
    let object = value!({
        "int": 7i64, "num": 2.5, "name": "web-01", "text": "Hello, Wörld! Hello again",
        "choice": "small", "flag": true, "data": "aGVsbG8=", "wait": "1h30m", "day": "2024-02-29",
        "time": "2024-03-10T12:34:56.789Z", "port": "http", "ints": [3i64, 1i64, 2i64],
        "nums": [1.5, 2i64], "words": ["alpha", "beta", "gamma"], "texts": ["x", "y"],
        "set": ["a", "b", "c"],
        "items": [{"key": "k1", "value": 1i64}, {"key": "k2", "value": 2i64}],
        "list": [{"key": "a", "sub": [1i64, 2i64]}, {"key": "b", "sub": []}],
        "labels": {"app": "web", "tier": "front"}, "sizes": {"s": 1i64, "m": 5i64, "l": 10i64},
        "nested": {"a": {"b": 4i64}, "with-dash": "dash", "a.b": 9i64, "namespace": "ns",
            "under__score": true},
        "nothing": null, "kept": {"x": 1i64}, "open": {"known": 1i64, "unknown": [1i64]},
    });
    let old = value!({
        "int": 5i64, "num": 2.5, "name": "web-01", "text": "old", "flag": false,
        "ints": [3i64, 1i64], "words": ["alpha"], "set": ["c", "b", "a"],
        "items": [{"key": "k2", "value": 2i64}, {"key": "k1", "value": 1i64}],
        "labels": {"app": "web"}, "kept": {"x": 1i64},
        "open": {"known": 1i64, "unknown": [2i64]},
    });
    (Arc::new(root), object, old)
}
