//! JSON patch (RFC 6902) with the extensions that Kubernetes accepts: negative indexes count from
//! the end, `replace` adds a missing member, `copy` of a missing one is null.

use meta::{
    Map, Number, Value, cancel,
    field::quote,
    json,
    limits::{
        FIELD_PATH_BYTES_MAX, OBJECT_DEPTH_MAX, QUOTED_BYTES_MAX, STRICT_ERRORS_MAX, TooDeep, cut,
        fits,
    },
};

use crate::PatchError;

/// Bounds the work of one request.
pub const OPERATIONS_MAX: usize = 10_000;

/// `copy` can double a document each time, so the total size that copies add is bounded.
pub const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// List items and members that the operations of one patch may move: each insertion into a list or
/// object moves what comes behind it. Some 0.1 s; 10 000 insertions at the front of a list of 2 000 are
/// within it.
pub const MOVED_VALUES_MAX: usize = 20_000_000;

/// A decoded patch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JsonPatch {
    operations: Vec<Map>,
    strict_errors: Vec<String>,
}

impl JsonPatch {
    pub fn decode(patch: &Value) -> Result<Self, PatchError> {
        let operations: &[Value] = match patch {
            Value::Null => &[],
            Value::Array(operations) => operations,
            other => return Err(cannot_decode(other, "value of type []handlers.jsonPatchOp")),
        };
        if operations.len() > OPERATIONS_MAX {
            return Err(PatchError::TooManyOperations(operations.len()));
        }
        let mut decoded = Self::default();
        let mut more = 0;
        for (at, operation) in operations.iter().enumerate() {
            let operation = match operation {
                Value::Null => Map::new(),
                Value::Object(operation) => operation.clone(),
                other => return Err(cannot_decode(other, "value of type handlers.jsonPatchOp")),
            };
            for (name, value) in operation.iter() {
                match (name.as_str(), value) {
                    ("op" | "path" | "from", Value::String(_) | Value::Null) | ("value", _) => {}
                    ("op" | "path" | "from", other) => {
                        let what = format!("struct field jsonPatchOp.{name} of type string");
                        return Err(cannot_decode(other, &what));
                    }
                    _ if decoded.strict_errors.len() == STRICT_ERRORS_MAX => more += 1,
                    _ => {
                        let name = cut(name, FIELD_PATH_BYTES_MAX);
                        decoded.strict_errors.push(format!(
                            "json patch unknown field {}",
                            quote(&format!("[{at}].{name}"))
                        ));
                    }
                }
            }
            decoded.operations.push(operation);
        }
        if more > 0 {
            decoded.strict_errors.push(format!("and {more} more json patch unknown fields"));
        }
        Ok(decoded)
    }

    /// Decodes a patch of a webhook. Compat: the types of its fields are looked at when it is applied.
    pub fn decode_leniently(patch: &Value) -> Result<Self, PatchError> {
        let operations = patch.as_array().unwrap_or_default();
        if operations.len() > OPERATIONS_MAX {
            return Err(PatchError::TooManyOperations(operations.len()));
        }
        let operation = |own: &Value| own.as_object().cloned().unwrap_or_default();
        let operations = operations.iter().map(operation).collect();
        Ok(Self { operations, strict_errors: Vec::new() })
    }

    /// Unknown and duplicate fields, which `fieldValidation` warns about or rejects.
    pub fn strict_errors(&self) -> &[String] {
        &self.strict_errors
    }

    /// Applies all operations or none.
    pub fn apply(&self, object: &Value) -> Result<Value, PatchError> {
        let mut object = object.clone();
        let mut work = Work::default();
        for operation in &self.operations {
            cancel::checkpoint();
            apply(operation, &mut object, &mut work).map_err(|failure| match failure {
                Failure::DoesNotApply(why) => PatchError::DoesNotApply(shortened(why)),
                Failure::TestFailed(why) => PatchError::TestFailed(shortened(why)),
                Failure::TooDeep => PatchError::TooDeep(TooDeep),
                Failure::TooMuchWork => PatchError::TooMuchWork,
            })?;
        }
        Ok(object)
    }
}

fn shortened(why: String) -> String {
    if why.len() > QUOTED_BYTES_MAX { cut(&why, QUOTED_BYTES_MAX).into_owned() } else { why }
}

/// What the operations of a patch have cost so far.
#[derive(Default)]
struct Work {
    copied_bytes: usize,
    moved: usize,
}

impl Work {
    fn moves(&mut self, values: usize) -> Result<(), Failure> {
        self.moved = self.moved.saturating_add(values);
        if self.moved > MOVED_VALUES_MAX { Err(Failure::TooMuchWork) } else { Ok(()) }
    }
}

enum Failure {
    DoesNotApply(String),
    TestFailed(String),
    TooDeep,
    TooMuchWork,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::DoesNotApply(why)
    }
}

type Result<T, E = Failure> = std::result::Result<T, E>;

/// Checks that a value is not too deep for its new place. Without this, a value copied into itself
/// again and again would overflow the stack of every later walk.
fn check_depth(value: &Value, path: &str, work: &mut Work) -> Result<()> {
    let levels = OBJECT_DEPTH_MAX.checked_sub(depth_of(path)).ok_or(Failure::TooDeep)?;
    let mut visited = 0;
    let fits = fits(value, levels, &mut visited);
    work.moves(visited)?;
    if fits { Ok(()) } else { Err(Failure::TooDeep) }
}

/// The containers around a path.
fn depth_of(path: &str) -> usize {
    path.matches('/').count()
}

fn cannot_decode(value: &Value, what: &str) -> PatchError {
    let found = value.type_name();
    PatchError::Malformed(format!(
        "error decoding patch: json: cannot unmarshal {found} into Go {what}"
    ))
}

fn apply(operation: &Map, object: &mut Value, work: &mut Work) -> Result<()> {
    let value = || operation.get("value").cloned().unwrap_or_default();
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let kind = text("op").unwrap_or("unknown");
    if !matches!(kind, "add" | "remove" | "replace" | "move" | "test" | "copy") {
        return Err(format!("Unexpected kind: {kind}").into());
    }
    let path = || {
        let why = match kind {
            "add" | "remove" | "copy" => "",
            _ => "operation missing path field: ",
        };
        text("path")
            .ok_or_else(|| format!("{kind} operation failed to decode path: {why}{MISSING}"))
    };
    let from = || {
        let why = "operation, missing from field";
        text("from")
            .ok_or_else(|| format!("{kind} operation failed to decode from: {why}: {MISSING}"))
    };
    match kind {
        "add" => {
            let (path, value) = (path()?, value());
            check_depth(&value, path, work)?;
            add(object, path, value, kind, work)
        }
        "remove" => {
            let path = path()?;
            let removed = remove_at(object, path, kind, work)?;
            removed.map_err(|why| format!("error in remove for path: '{path}': {why}"))?;
            Ok(())
        }
        "replace" => {
            let (path, value) = (path()?, value());
            check_depth(&value, path, work)?;
            replace(object, path, value, work)
        }
        "move" => {
            let from = from()?;
            let key = unescape(from.rsplit('/').next().unwrap_or_default());
            let moved = remove_at(object, from, kind, work)?
                .map_err(|why| format!("error in move for path: '{key}': {why}"))?;
            let path = path()?;
            // Upwards, nothing gets deeper.
            if depth_of(path) > depth_of(from) {
                check_depth(&moved, path, work)?;
            }
            add(object, path, moved, kind, work)
        }
        "test" => test(object, path()?, &value()),
        _ => {
            let copy = copy_of(object, from()?, work, path)?;
            add(object, path()?, copy, kind, work)
        }
    }
}

/// Removes a value. The inner error is that of the last path segment.
fn remove_at(
    object: &mut Value,
    path: &str,
    kind: &str,
    work: &mut Work,
) -> Result<Result<Value, String>> {
    let Some((parent, key)) = find(object, path) else {
        return Err(match kind {
            "move" => format!(
                "move operation does not apply: doc is missing from path: {path}: {MISSING}"
            ),
            _ => format!(
                "{kind} operation does not apply: doc is missing path: \"{path}\": {MISSING}"
            ),
        }
        .into());
    };
    remove(parent, &key, work)
}

/// The value to copy. What is missing is copied as null, and costs nothing.
fn copy_of<'a>(
    object: &mut Value,
    from: &str,
    work: &mut Work,
    path: impl Fn() -> Result<&'a str, String>,
) -> Result<Value> {
    let Some((parent, key)) = find(object, from) else {
        return Err(format!(
            "copy operation does not apply: doc is missing from path: {from}: {MISSING}"
        )
        .into());
    };
    let copy = member(parent, &key)
        .map_err(|why| format!("error in copy for from: '{from}': {why}"))?
        .cloned();
    let path = path()?;
    if find(object, path).is_none() {
        return Err(format!(
            "copy operation does not apply: doc is missing destination path: {path}: {MISSING}"
        )
        .into());
    }
    let copy = copy.unwrap_or_default();
    if !copy.is_null() {
        work.copied_bytes += json::to_string(&copy).len();
    }
    let copied_bytes = work.copied_bytes;
    if copied_bytes > COPIED_BYTES_MAX {
        return Err(format!(
            "Unable to complete the copy, the accumulated size increase of copy is \
             {copied_bytes}, exceeding the limit {COPIED_BYTES_MAX}"
        )
        .into());
    }
    check_depth(&copy, path, work)?;
    Ok(copy)
}

fn add(object: &mut Value, path: &str, value: Value, kind: &str, work: &mut Work) -> Result<()> {
    let Some((parent, key)) = find(object, path) else {
        return Err(match kind {
            "add" => {
                format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}")
            }
            _ => format!(
                "{kind} operation does not apply: doc is missing destination path: {path}: {MISSING}"
            ),
        }
        .into());
    };
    let place = match kind {
        "copy" => "error while adding value during copy".to_owned(),
        _ => format!("error in {kind} for path: '{path}'"),
    };
    match parent {
        Value::Object(map) => insert(map, &key, value, work)?,
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&key, items.len() + 1).map_err(|why| match key.parse::<i64>() {
                Ok(_) => format!("{place}: {why}"),
                Err(_) => format!("{place}: value was not a proper array index: '{key}': {why}"),
            })?;
            work.moves(items.len() - at)?;
            items.insert(at, value);
        }
        _ => return Err(format!("{place}: {INVALID_STATE}").into()),
    }
    Ok(())
}

fn insert(map: &mut Map, key: &str, value: Value, work: &mut Work) -> Result<()> {
    if let Err(at) = map.position(key) {
        work.moves(map.len() - at)?;
    }
    map.insert(key, value);
    Ok(())
}

fn replace(object: &mut Value, path: &str, value: Value, work: &mut Work) -> Result<()> {
    if path.is_empty() {
        if !matches!(value, Value::Object(_) | Value::Array(_)) {
            return Err("replace operation value must be object or array".to_owned().into());
        }
        *object = value;
        return Ok(());
    }
    let Some((parent, key)) = find(object, path) else {
        let why =
            format!("replace operation does not apply: doc is missing path: {path}: {MISSING}");
        return Err(why.into());
    };
    match parent {
        Value::Object(map) => insert(map, &key, value, work),
        Value::Array(items) => match index(&key, items.len()) {
            Ok(at) => {
                items[at] = value;
                Ok(())
            }
            Err(_) => Err(format!(
                "replace operation does not apply: doc is missing key: {path}: {MISSING}"
            )
            .into()),
        },
        _ => Err(INVALID_STATE.to_owned().into()),
    }
}

fn test(object: &mut Value, path: &str, expected: &Value) -> Result<()> {
    let found = if path.is_empty() {
        Some(&*object)
    } else {
        let Some((parent, key)) = find(object, path) else {
            return Err(format!(
                "test operation does not apply: is missing path: {path}: {MISSING}"
            )
            .into());
        };
        let found = member(parent, &key);
        found.map_err(|why| format!("error in test for path: '{path}': {why}"))?
    };
    // A missing value equals null.
    if same(found.unwrap_or(&Value::Null), expected) {
        return Ok(());
    }
    Err(Failure::TestFailed(format!("testing value {path} failed: test failed")))
}

/// Equal as JSON. Numbers are equal as they are written, so `1` is not `1.0`.
fn same(a: &Value, b: &Value) -> bool {
    match (a.tree(), b) {
        (Value::Number(Number::Float(a)), Value::Number(Number::Float(b))) => {
            a.to_bits() == b.to_bits()
        }
        (a, b) => a == b,
    }
}

/// The container of the last path segment, and that segment. Compat: text before the first slash is
/// ignored, as upstream.
fn find<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (_, steps) = path.split_once('/')?;
    let steps: Vec<&str> = steps.split('/').collect();
    let (last, parents) = steps.split_last()?;
    let mut parent = object;
    for step in parents {
        let step = unescape(step);
        parent = match parent.tree_mut() {
            Value::Object(map) => map.get_mut(&step)?,
            Value::Array(items) => {
                let at = index(&step, items.len()).ok()?;
                &mut items[at]
            }
            _ => return None,
        };
    }
    matches!(parent.tree_mut(), Value::Object(_) | Value::Array(_))
        .then(|| (parent, unescape(last)))
}

fn member<'a>(parent: &'a Value, key: &str) -> Result<Option<&'a Value>, String> {
    match parent {
        Value::Object(map) => Ok(map.get(key)),
        Value::Array(items) => Ok(Some(&items[index(key, items.len())?])),
        _ => Err(INVALID_STATE.to_owned()),
    }
}

/// The inner error is that of the operation.
fn remove(parent: &mut Value, key: &str, work: &mut Work) -> Result<Result<Value, String>> {
    let missing = || format!("Unable to remove nonexistent key: {key}: {MISSING}");
    Ok(match parent {
        Value::Object(map) => {
            if let Ok(at) = map.position(key) {
                work.moves(map.len() - at)?;
            }
            map.remove(key).ok_or_else(missing)
        }
        Value::Array(items) => match index(key, items.len()) {
            Ok(at) => {
                work.moves(items.len() - at)?;
                Ok(items.remove(at))
            }
            Err(why) => Err(why),
        },
        _ => Err(INVALID_STATE.to_owned()),
    })
}

/// An index into `len` items; a negative one counts from the end.
fn index(key: &str, len: usize) -> Result<usize, String> {
    let at: i64 =
        key.parse().map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", quote(key)))?;
    let place = if at < 0 { at.checked_add(len as i64) } else { Some(at) };
    match place.and_then(|place| usize::try_from(place).ok()) {
        Some(place) if place < len => Ok(place),
        _ => Err(format!("Unable to access invalid index: {at}: invalid index referenced")),
    }
}

fn unescape(step: &str) -> String {
    if step.contains('~') {
        // One pass, so that `~01` is `~1` and not `/`.
        let mut plain = String::with_capacity(step.len());
        let mut rest = step;
        while let Some(at) = rest.find('~') {
            plain.push_str(&rest[..at]);
            let (text, skip) = match rest.as_bytes().get(at + 1) {
                Some(b'1') => ("/", 2),
                Some(b'0') => ("~", 2),
                _ => ("~", 1),
            };
            plain.push_str(text);
            rest = &rest[at + skip..];
        }
        plain + rest
    } else {
        step.to_owned()
    }
}

const MISSING: &str = "missing value";
const INVALID_STATE: &str = "invalid state detected";

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;
    use crate::json_text::parse;

    #[track_caller]
    fn check(object: &str, patch: &str, expected: &str) {
        let patch = JsonPatch::decode(&parse(patch).unwrap());
        let got = match patch.and_then(|patch| patch.apply(&parse(object).unwrap())) {
            Ok(object) => json::to_string(&object),
            Err(PatchError::DoesNotApply(why) | PatchError::TestFailed(why)) => {
                format!("422 {why}")
            }
            Err(error) => format!("error {error}"),
        };
        assert_eq!(got, expected);
    }

    /// Admission policies ignore a patch whose test fails, and only that.
    #[test]
    fn a_failed_test_is_an_error_of_its_own() {
        let cases = [
            (r#"[{"op":"test","path":"/a","value":2}]"#, true),
            (r#"[{"op":"test","path":"/missing/path","value":2}]"#, false),
            (r#"[{"op":"remove","path":"/test failed"}]"#, false),
        ];
        for (patch, expected) in cases {
            let patch = JsonPatch::decode(&parse(patch).unwrap()).unwrap();
            let error = patch.apply(&value!({"a": 1i64})).unwrap_err();
            assert_eq!(matches!(error, PatchError::TestFailed(_)), expected, "{error:?}");
        }
    }

    #[test]
    fn operations_are_applied_in_order() {
        let cases = [
            (
                r#"{"foo":"bar"}"#,
                r#"[{"op":"add","path":"/baz","value":"qux"}]"#,
                r#"{"baz":"qux","foo":"bar"}"#,
            ),
            (
                r#"{"foo":["a","b"]}"#,
                r#"[{"op":"add","path":"/foo/1","value":"x"}]"#,
                r#"{"foo":["a","x","b"]}"#,
            ),
            (
                r#"{"foo":["a","b"]}"#,
                r#"[{"op":"add","path":"/foo/-1","value":"x"}]"#,
                r#"{"foo":["a","b","x"]}"#,
            ),
            (
                r#"{"foo":["a"]}"#,
                r#"[{"op":"add","path":"/foo/-","value":["x"]}]"#,
                r#"{"foo":["a",["x"]]}"#,
            ),
            (r#"{"foo":["a","b"]}"#, r#"[{"op":"remove","path":"/foo/-2"}]"#, r#"{"foo":["b"]}"#),
            (
                r#"{"a":{"b":1},"c":2}"#,
                r#"[{"op":"move","from":"/a/b","path":"/d"}]"#,
                r#"{"a":{},"c":2,"d":1}"#,
            ),
            (
                r#"{"a":[1,2,3]}"#,
                r#"[{"op":"move","from":"/a/0","path":"/a/2"}]"#,
                r#"{"a":[2,3,1]}"#,
            ),
            (
                r#"{"a":{"b":1}}"#,
                r#"[{"op":"copy","from":"/a","path":"/c"},{"op":"replace","path":"/c/b","value":2}]"#,
                r#"{"a":{"b":1},"c":{"b":2}}"#,
            ),
            (r#"{"a":1}"#, r#"[{"op":"copy","from":"/x","path":"/c"}]"#, r#"{"a":1,"c":null}"#),
            (r#"{"a":1}"#, r#"[{"op":"replace","path":"/b","value":null}]"#, r#"{"a":1,"b":null}"#),
            (r#"{"a":1}"#, r#"[{"op":"replace","path":"","value":{"x":1}}]"#, r#"{"x":1}"#),
            (r#"{"a/b":{"~1":1}}"#, r#"[{"op":"remove","path":"/a~1b/~01"}]"#, r#"{"a/b":{}}"#),
            (r#"{"":1}"#, r#"[{"op":"add","path":"/","value":2}]"#, r#"{"":2}"#),
            (r#"{"a":1}"#, r#"[{"op":"add","path":"ignored/b","value":2}]"#, r#"{"a":1,"b":2}"#),
            (
                r#"{"a":{"b":[1,{"c":null}]}}"#,
                r#"[{"op":"test","path":"/a","value":{"b":[1,{"c":null}]}}]"#,
                r#"{"a":{"b":[1,{"c":null}]}}"#,
            ),
            (
                r#"{"a":1}"#,
                r#"[{"op":"test","path":"/b","value":null},{"op":"test","path":"/b"}]"#,
                r#"{"a":1}"#,
            ),
            (r#"{"a":1}"#, r#"[{"op":"test","path":"","value":{"a":1}}]"#, r#"{"a":1}"#),
            (r#"{"a":1}"#, "null", r#"{"a":1}"#),
        ];
        for (object, patch, expected) in cases {
            check(object, patch, expected);
        }
    }

    #[test]
    fn invalid_and_inapplicable_patches_give_different_errors() {
        let cases = [
            (
                r#"[{"op":"add","path":"/x/y","value":1}]"#,
                "422 add operation does not apply: doc is missing path: \"/x/y\": missing value",
            ),
            (
                r#"[{"op":"add","path":"","value":1}]"#,
                "422 add operation does not apply: doc is missing path: \"\": missing value",
            ),
            (
                r#"[{"op":"add","path":"/s/y","value":1}]"#,
                "422 add operation does not apply: doc is missing path: \"/s/y\": missing value",
            ),
            (
                r#"[{"op":"add","path":"/l/4","value":1}]"#,
                "422 error in add for path: '/l/4': Unable to access invalid index: 4: invalid index referenced",
            ),
            (
                r#"[{"op":"add","path":"/l/x","value":1}]"#,
                "422 error in add for path: '/l/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
            ),
            (
                r#"[{"op":"remove","path":"/x"}]"#,
                "422 error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
            ),
            (
                r#"[{"op":"remove","path":"/l/-3"}]"#,
                "422 error in remove for path: '/l/-3': Unable to access invalid index: -3: invalid index referenced",
            ),
            (
                r#"[{"op":"replace","path":"/l/2","value":1}]"#,
                "422 replace operation does not apply: doc is missing key: /l/2: missing value",
            ),
            (
                r#"[{"op":"move","from":"/x","path":"/y"}]"#,
                "422 error in move for path: 'x': Unable to remove nonexistent key: x: missing value",
            ),
            (
                r#"[{"op":"test","path":"/s","value":"other"}]"#,
                "422 testing value /s failed: test failed",
            ),
            (
                r#"[{"op":"test","path":"/n","value":1.0}]"#,
                "422 testing value /n failed: test failed",
            ),
            (
                r#"[{"op":"test","path":"/x/y","value":1}]"#,
                "422 test operation does not apply: is missing path: /x/y: missing value",
            ),
            (r#"[{"op":"foo","path":"/x"}]"#, "422 Unexpected kind: foo"),
            (r#"[{"path":"/x"}]"#, "422 Unexpected kind: unknown"),
            (
                r#"[{"op":"add","value":1}]"#,
                "422 add operation failed to decode path: missing value",
            ),
            (
                r#"{"op":"add"}"#,
                "error error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                r#"["x"]"#,
                "error error decoding patch: json: cannot unmarshal string into Go value of type handlers.jsonPatchOp",
            ),
            (
                r#"[{"op":1}]"#,
                "error error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
            ),
        ];
        for (patch, expected) in cases {
            check(r#"{"s":"text","l":[1,2],"n":1}"#, patch, expected);
        }
    }

    #[test]
    fn the_work_of_a_patch_is_bounded() {
        let operation = value_of(r#"{"op":"test","path":"/a"}"#);
        let patch = Value::Array(vec![operation; OPERATIONS_MAX + 1]);
        assert_eq!(
            JsonPatch::decode(&patch).unwrap_err().to_string(),
            "The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
        // Each copy doubles the list; without a bound twenty copies would make it a million times
        // larger.
        let double = value_of(r#"[{"op":"copy","from":"/a","path":"/a/-"}]"#);
        let copies = vec![double.as_array().unwrap()[0].clone(); 30];
        let patch = JsonPatch::decode(&Value::Array(copies)).unwrap();
        let error = patch.apply(&value_of(r#"{"a":["0123456789"]}"#)).unwrap_err().to_string();
        assert!(error.ends_with("exceeding the limit 3145728"), "{error}");
    }

    #[test]
    fn a_value_cannot_be_copied_or_moved_into_itself_without_end() {
        let nest = |op: &str, operations: usize| -> String {
            // `/a` becomes `{"a": …}` around a copy of itself, one level deeper each time.
            let step = |at: usize| {
                let path = "/a".repeat(at + 2);
                match op {
                    "copy" => format!(r#"{{"op":"copy","from":"/a","path":"{path}"}}"#),
                    "add" => format!(r#"{{"op":"add","path":"{path}","value":{{}}}}"#),
                    _ => concat!(
                        r#"{"op":"add","path":"/b","value":{}},"#,
                        r#"{"op":"move","from":"/a","path":"/b/a"},"#,
                        r#"{"op":"move","from":"/b","path":"/a"}"#
                    )
                    .to_owned(),
                }
            };
            format!("[{}]", (0..operations).map(step).collect::<Vec<_>>().join(","))
        };
        let run = move || {
            let object = value_of(r#"{"a":{}}"#);
            // The copies add more levels each time, the others one.
            for (op, fitting, too_deep) in [("copy", 44, 45), ("add", 998, 999), ("move", 998, 999)]
            {
                let fits = JsonPatch::decode(&value_of(&nest(op, fitting))).unwrap();
                let patched = fits.apply(&object).unwrap();
                assert_eq!(meta::limits::check_depth(&patched), Ok(()), "{op}");
                let deeper = JsonPatch::decode(&value_of(&nest(op, too_deep))).unwrap();
                assert_eq!(deeper.apply(&object), Err(PatchError::TooDeep(TooDeep)), "{op}");
            }
        };
        // Debug builds take several times the stack.
        let stack_bytes = if cfg!(debug_assertions) { 2 << 20 } else { 512 << 10 };
        std::thread::Builder::new().stack_size(stack_bytes).spawn(run).unwrap().join().unwrap();
    }

    #[test]
    fn the_values_that_a_patch_moves_are_bounded() {
        let list = value!({"a": (Value::Array(vec![Value::Null; 100_000]))});
        let map = (0..100_000).map(|at| (format!("k{at:06}"), Value::Null)).collect::<Map>();
        let map = value!({"a": (map)});
        let too_much = Err(PatchError::TooMuchWork);
        for (object, operation, times, fits) in [
            (&list, r#"{"op":"add","path":"/a/0","value":1}"#, 2_000, false),
            (&list, r#"{"op":"add","path":"/a/0","value":1}"#, 150, true),
            (&list, r#"{"op":"add","path":"/a/-","value":1}"#, 9_999, true),
            (&list, r#"{"op":"remove","path":"/a/0"}"#, 2_000, false),
            (&list, r#"{"op":"move","from":"/a/0","path":"/a/5"}"#, 2_000, false),
            (
                &list,
                r#"{"op":"move","from":"/a","path":"/b"},{"op":"move","from":"/b","path":"/c/d/a"},{"op":"move","from":"/c/d/a","path":"/a"}"#,
                1_000,
                false,
            ),
            (
                &map,
                r#"{"op":"add","path":"/a/a","value":1},{"op":"remove","path":"/a/a"}"#,
                1_000,
                false,
            ),
            (
                &map,
                r#"{"op":"add","path":"/a/z","value":1},{"op":"remove","path":"/a/z"}"#,
                1_000,
                true,
            ),
        ] {
            let setup = r#"{"op":"add","path":"/c","value":{"d":{}}}"#;
            let patch = format!("[{setup},{}]", vec![operation; times].join(","));
            let patched = JsonPatch::decode(&value_of(&patch)).unwrap().apply(object);
            assert_eq!(patched.is_ok(), fits, "{operation}");
            assert!(fits || patched == too_much, "{operation}");
        }
    }

    #[test]
    fn unknown_members_are_reported() {
        let patch = JsonPatch::decode(&value_of(r#"[{},{"op":"test","foo":1}]"#)).unwrap();
        assert_eq!(patch.strict_errors(), [r#"json patch unknown field "[1].foo""#]);
        let many = format!("[{}]", vec![r#"{"foo":1}"#; 300].join(","));
        let patch = JsonPatch::decode(&value_of(&many)).unwrap();
        assert_eq!(patch.strict_errors().len(), 65);
        assert_eq!(patch.strict_errors()[64], "and 236 more json patch unknown fields");
    }

    fn value_of(text: &str) -> Value {
        parse(text).unwrap()
    }

    #[test]
    fn operations_cost_no_more_than_in_proportion() {
        let object = |n: usize| meta::value!({"l": (Value::Array(vec![Value::from(1i64); n]))});
        let operations = |operation: &str, n: usize| {
            let operation = parse(operation).unwrap();
            JsonPatch::decode(&Value::Array(vec![operation; n])).unwrap()
        };
        for operation in [
            r#"{"op":"add","path":"/l/-","value":1}"#,
            r#"{"op":"remove","path":"/l/-1"}"#,
            r#"{"op":"replace","path":"/l/0","value":1}"#,
            r#"{"op":"test","path":"/l/0","value":1}"#,
            r#"{"op":"copy","from":"/l/0","path":"/a"}"#,
        ] {
            let made = |n: usize| (object(10 * n), operations(operation, n));
            meta::growth::assert_linear(operation, 200, made, |(object, patch)| {
                let _ = patch.apply(object);
            });
            let (object, patch) = made(10);
            assert!(cancel::is_interruptible(|| drop(patch.apply(&object))));
        }
    }
}
