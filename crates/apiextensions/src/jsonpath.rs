//! Kubernetes' dialect of JSONPath, as far as printer columns use it: fields, indexes, slices,
//! wildcards, recursion, unions and filters.

mod parse;

use std::cmp::Ordering;

use meta::{Number, Str, Value};

/// A path, parsed once.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(Str),
    /// `[start:end:step]`; a single index is a slice of one.
    Slice(Slice),
    /// `[*]` and `.*`
    Wildcard,
    /// `..`: everything below
    Recursive,
    /// `['a','b']`
    Union(Vec<JsonPath>),
    Filter(Box<Filter>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
    /// One index must exist; a slice may be empty.
    single: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Operand,
    /// None: it is enough that the left side exists.
    compare: Option<(Operator, Operand)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The path asks of a value what it can't have: an index of an object, one beyond the end; or it leads to more than anybody
/// would want to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;

impl JsonPath {
    /// Parses `.spec.replicas`. Err: why it is none, as `kubectl` would say it.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse::parse(text)
    }

    /// All values that the path leads to; keys that are missing lead nowhere.
    pub fn find<'a>(&'a self, root: &'a Value) -> Result<Vec<&'a Value>, Mismatch> {
        self.walk(root, &mut Steps(STEPS_MAX))
    }

    fn walk<'a>(&'a self, root: &'a Value, steps: &mut Steps) -> Result<Vec<&'a Value>, Mismatch> {
        let mut found = vec![root];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in found {
                step.take(value, &mut next, steps)?;
            }
            found = next;
        }
        Ok(found)
    }
}

/// Each `..`, each name that is said twice and each filter in a filter multiplies what a path leads to; this bounds the product.
const STEPS_MAX: usize = 100_000;

/// How many values may still be looked at.
struct Steps(usize);

impl Steps {
    fn take(&mut self, count: usize) -> Result<(), Mismatch> {
        self.0 = self.0.checked_sub(count).ok_or(Mismatch)?;
        Ok(())
    }
}

impl Step {
    fn take<'a>(
        &'a self,
        value: &'a Value,
        out: &mut Vec<&'a Value>,
        steps: &mut Steps,
    ) -> Result<(), Mismatch> {
        let before = out.len();
        match self {
            Self::Field(name) => out.extend(value.get(name)),
            Self::Wildcard => out.extend(children(value)),
            Self::Recursive => descend(value, out, steps)?,
            Self::Slice(slice) => match value {
                Value::Array(items) => slice.take(items, out)?,
                Value::Null => {}
                _ => return Err(Mismatch),
            },
            Self::Union(paths) => {
                for path in paths {
                    out.extend(path.walk(value, steps)?);
                }
            }
            Self::Filter(filter) => match value {
                Value::Array(items) => {
                    for item in items {
                        if filter.keeps(item, steps)? {
                            out.push(item);
                        }
                    }
                }
                Value::Null => {}
                _ => return Err(Mismatch),
            },
        }
        steps.take(1 + out.len() - before)
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn descend<'a>(
    value: &'a Value,
    out: &mut Vec<&'a Value>,
    steps: &mut Steps,
) -> Result<(), Mismatch> {
    steps.take(1)?;
    out.push(value);
    for child in children(value) {
        descend(child, out, steps)?;
    }
    Ok(())
}

impl Slice {
    fn take<'a>(&self, items: &'a [Value], out: &mut Vec<&'a Value>) -> Result<(), Mismatch> {
        let length = items.len() as i64;
        let absolute = |index: i64| if index < 0 { index + length } else { index };
        let start = absolute(self.start.unwrap_or(0));
        let end = match self.end {
            Some(end) => absolute(end),
            None if self.single => start + 1,
            None => length,
        };
        if start < 0 || end < 0 || end > length || (self.single && start >= length) {
            return Err(Mismatch);
        }
        let step = self.step.unwrap_or(1);
        if step <= 0 || start > end {
            return Err(Mismatch);
        }
        out.extend(items[start as usize..end as usize].iter().step_by(step as usize));
        Ok(())
    }
}

impl Filter {
    fn keeps(&self, item: &Value, steps: &mut Steps) -> Result<bool, Mismatch> {
        steps.take(1)?;
        let left = self.left.read(item, steps)?;
        let Some((operator, right)) = &self.compare else { return Ok(!left.is_empty()) };
        let right = right.read(item, steps)?;
        // What is missing on either side is equal to nothing.
        let (Some(left), Some(right)) = (left.first(), right.first()) else { return Ok(false) };
        Ok(match (operator, compare(left, right)) {
            (Operator::Equal, order) => order == Some(Ordering::Equal),
            (Operator::NotEqual, order) => order != Some(Ordering::Equal),
            (Operator::Less, order) => order == Some(Ordering::Less),
            (Operator::Greater, order) => order == Some(Ordering::Greater),
            (Operator::LessOrEqual, order) => order.is_some_and(Ordering::is_le),
            (Operator::GreaterOrEqual, order) => order.is_some_and(Ordering::is_ge),
        })
    }
}

impl Operand {
    fn read<'a>(&'a self, item: &'a Value, steps: &mut Steps) -> Result<Vec<&'a Value>, Mismatch> {
        match self {
            Self::Literal(value) => Ok(vec![value]),
            Self::Path(path) => path.walk(item, steps),
        }
    }
}

/// Values of one type have an order; others are just not equal.
fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => float(*a).partial_cmp(&float(*b)),
        _ => None,
    }
}

fn float(number: Number) -> f64 {
    match number {
        Number::Int(int) => int as f64,
        Number::Float(float) => float,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_values() {
        let object = r#"{"spec":{"a.b":1,"n":2,"list":[{"t":"x","v":1},{"t":"Ready","v":2}],"m":{"k":"v"}},"status":null}"#;
        let options = codec::json::DecodeOptions { strict: false };
        let object = codec::json::decode_any(object.as_bytes(), options).unwrap().value;
        let cases = [
            (".spec.n", "2"),
            (r".spec.a\.b", "1"),
            (".spec['a.b']", "1"),
            (".spec.missing.more", ""),
            (".spec.list[0].t", r#""x""#),
            (".spec.list[-1].v", "2"),
            (".spec.list[5].v", "mismatch"),
            (".spec.list[*].v", "1 2"),
            (".spec.list[0:1].v", "1"),
            (".spec.list[:].t", r#""x" "Ready""#),
            (r#".spec.list[?(@.type=="x")].v"#, ""),
            (r#".spec.list[?(@.t=="Ready")].v"#, "2"),
            (".spec.list[?(@.t=='Ready')].v", "2"),
            (".spec.list[?(@.v>1)].t", r#""Ready""#),
            (".spec.list[?(@.v)].t", r#""x" "Ready""#),
            (".spec['n','m']", r#"2 {"k":"v"}"#),
            ("..v", "1 2"),
            (".spec.m.*", r#""v""#),
            (".spec.m[0]", "mismatch"),
            (".status", "null"),
            (".status.conditions[0]", ""),
        ];
        for (path, expected) in cases {
            let parsed = JsonPath::parse(path).unwrap_or_else(|why| panic!("{path}: {why}"));
            let found = match parsed.find(&object) {
                Ok(found) => {
                    found.into_iter().map(meta::json::to_string).collect::<Vec<_>>().join(" ")
                }
                Err(Mismatch) => "mismatch".to_owned(),
            };
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn a_path_that_multiplies_itself_leads_nowhere() {
        let mut object = Value::from(1i64);
        for _ in 0..12 {
            object = Value::Array(vec![object.clone(), object]);
        }
        let find =
            |path: &str| JsonPath::parse(path).expect("a path").find(&object).map(|all| all.len());
        assert_eq!(find("..*"), Ok((1 << 13) - 2));
        assert_eq!(find("..*..*"), Err(Mismatch));
        assert_eq!(find("..*..*..*..*..*..*..*..*..*..*..*"), Err(Mismatch));
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in [".spec[", ".a[?(@.b=)]", ".a['b]", ".spec}", ".a[x]", ".a[?(@.b==\"c\"]"] {
            assert!(JsonPath::parse(text).is_err(), "{text}");
        }
    }
}
