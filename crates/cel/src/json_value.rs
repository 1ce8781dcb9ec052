//! Values as JSON: what the mutations of admission policies make.

use meta::{Map as JsonMap, Number, Str, Value};

use crate::go_text::show;
use crate::value::{Key, List, Map, Val};

/// Deeper values are refused. Objects are bounded by the decoder, which has a larger bound; an
/// expression is bounded by its own depth and cannot come near this.
const DEPTH_MAX: usize = 1_000;

impl Val<'_> {
    /// The value as JSON. Err: it has no form in JSON.
    pub fn to_json(&self) -> Result<Value, String> {
        self.to_json_within(DEPTH_MAX)
    }

    fn to_json_within(&self, depth: usize) -> Result<Value, String> {
        let depth = depth.checked_sub(1).ok_or("nested too deeply")?;
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(int) => Value::Number(Number::Int(*int)),
            Self::Uint(uint) => match i64::try_from(*uint) {
                Ok(int) => Value::Number(Number::Int(int)),
                Err(_) => Value::Number(Number::Float(*uint as f64)),
            },
            Self::Double(double) if double.is_finite() => Value::Number(Number::Float(*double)),
            Self::Double(_) => return Err(format!("{} is no JSON number", show(self))),
            Self::String(text) => Value::String(Str::new(text.as_str())),
            Self::Bytes(bytes) => {
                use base64::Engine;
                Value::string(base64::engine::general_purpose::STANDARD.encode(bytes))
            }
            Self::Duration(_) | Self::Timestamp(_) => Value::string(show(self)),
            Self::List(List::Tree(items, _)) => Value::Array(items.to_vec()),
            Self::List(list) => {
                let items = list.iter().map(|item| match item {
                    Ok(item) => item.to_json_within(depth),
                    Err(error) => Err(error.to_string()),
                });
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Self::Map(Map::Tree(map, _)) => Value::Object((*map).clone()),
            Self::Map(Map::Own(entries)) => {
                let mut pairs = Vec::with_capacity(entries.map.len());
                for (key, value) in &entries.map {
                    let Key::String(name) = key else {
                        return Err("the keys of a JSON object are strings".to_owned());
                    };
                    pairs.push((Str::new(name.as_str()), value.to_json_within(depth)?));
                }
                Value::Object(JsonMap::from_pairs(pairs))
            }
            Self::Preserved(value) => (*value).clone(),
            Self::Optional(_) | Self::Type(_) | Self::Kubernetes(_) => {
                return Err(format!("type {} has no form in JSON", self.type_of().name()));
            }
        })
    }

    /// Whether an object that an expression made by its name is what its name says: `Object.spec{…}`
    /// may only be the field `spec` of an `Object{…}`. None: it was not made by a name.
    pub fn check_type_names(&self) -> Option<Result<(), String>> {
        let Self::Map(Map::Own(entries)) = self else { return None };
        let root = entries.made.as_ref()?;
        let mut errors = Vec::new();
        check(self, root, &mut errors, DEPTH_MAX);
        Some(if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) })
    }
}

fn check(value: &Val<'_>, path: &str, errors: &mut Vec<String>, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Val::Map(Map::Own(entries)) => {
            if let Some(made) = &entries.made
                && made != path
            {
                errors.push(format!(
                    "unexpected type name {made:?}, expected {path:?}, which matches field name \
                     path from root Object type"
                ));
            }
            for (key, value) in &entries.map {
                match (key, &entries.made) {
                    (Key::String(name), Some(_)) => {
                        check(value, &format!("{path}.{}", name.as_str()), errors, depth);
                    }
                    _ => check(value, path, errors, depth),
                }
            }
        }
        Val::List(List::Own(items)) => {
            for item in &items.items {
                check(item, path, errors, depth);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::{Env, PER_CALL_LIMIT};

    #[test]
    fn what_an_expression_makes_has_the_names_of_its_places() {
        let cases = [
            ("Object{spec: Object.spec{replicas: 3}}", Ok(r#"{"spec":{"replicas":3}}"#)),
            (
                "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'a'}]}}",
                Ok(r#"{"spec":{"containers":[{"name":"a"}]}}"#),
            ),
            (
                "Object{metadata: Object.metadata{labels: {'a': 'b', 'c': 'd'}}}",
                Ok(r#"{"metadata":{"labels":{"a":"b","c":"d"}}}"#),
            ),
            ("Object{a: 1.5, b: b'xy', c: null}", Ok(r#"{"a":1.5,"b":"eHk=","c":null}"#)),
            (
                "Object{spec: Object.status{}}",
                Err("unexpected type name \"Object.status\", expected \"Object.spec\", which \
                     matches field name path from root Object type"),
            ),
        ];
        let env = Env::new().for_mutations();
        for (text, expected) in cases {
            let program = env.compile(text).expect("compiles");
            let outcome = program.evaluate(&[], PER_CALL_LIMIT);
            let value = outcome.result.expect("evaluates");
            let checked = value.check_type_names().expect("made by a name");
            let shown = value.to_json().map(|value| meta::json::to_string(&value));
            let found = checked.and(shown);
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }
}
