//! Kubernetes' dialect of JSONPath, as far as printer columns use it: fields, indexes, slices,
//! wildcards, recursion, unions and filters.

mod parse;

use std::cmp::Ordering;

use crate::{Number, Str, Value};

/// A path, parsed once.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(Str),
    /// `[start:end:step]`; a single index is a slice of one.
    Slice(Slice),
    /// `.*`
    Wildcard,
    /// `..`: all descendants that are not empty
    Recursive,
    /// `['a','b']`
    Union(Vec<JsonPath>),
    Filter(Box<Filter>),
    Literal(Value),
    /// An identifier without a meaning in a column, such as `range`.
    Nowhere,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
    /// No colon: a single index, 0 if it is absent.
    single: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: JsonPath,
    /// None: a test for existence of the left side.
    compare: Option<(Operator, JsonPath)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// An unknown operator, which fails when it is evaluated.
    Unknown,
}

/// The path does not fit the value (an index of an object, an index beyond the end), or it has more
/// results than `STEPS_MAX` allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;

impl JsonPath {
    /// Parses a path such as `.spec.replicas`. Errors are worded as kubectl's.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse::parse(text)
    }

    /// All values at the path; missing keys are skipped.
    pub fn find<'a>(&'a self, root: &'a Value) -> Result<Vec<&'a Value>, Mismatch> {
        self.walk(vec![root], &mut Steps(STEPS_MAX))
    }

    fn walk<'a>(
        &'a self,
        from: Vec<&'a Value>,
        steps: &mut Steps,
    ) -> Result<Vec<&'a Value>, Mismatch> {
        self.0.iter().try_fold(from, |found, step| step.take(found, steps))
    }
}

/// Each `..`, repeated name and nested filter multiplies the results of a path; this bounds the product.
const STEPS_MAX: usize = 100_000;

/// How many values may still be visited.
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
        found: Vec<&'a Value>,
        steps: &mut Steps,
    ) -> Result<Vec<&'a Value>, Mismatch> {
        steps.take(1 + found.len())?;
        let mut next = Vec::new();
        match self {
            Self::Field(name) => next.extend(found.iter().filter_map(|value| value.get(name))),
            Self::Wildcard => next.extend(found.into_iter().flat_map(children)),
            Self::Recursive => {
                for value in found {
                    descend(value, &mut next, steps)?;
                }
            }
            Self::Slice(slice) => slice.take_each(&found, &mut next)?,
            Self::Union(paths) => {
                for path in paths {
                    next.extend(path.walk(found.clone(), steps)?);
                }
            }
            Self::Filter(filter) => {
                for value in found {
                    let items = value.as_array().ok_or(Mismatch)?;
                    for item in items {
                        if filter.keeps(item, steps)? {
                            next.push(item);
                        }
                    }
                }
            }
            Self::Literal(text @ Value::String(_)) => next.push(text),
            Self::Literal(value) => next.extend(found.iter().map(|_| value)),
            Self::Nowhere => return Err(Mismatch),
        }
        steps.take(next.len())?;
        Ok(next)
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
    let children = children(value);
    // Compat: a string counts as non-empty by its bytes; a number counts as empty.
    if !children.is_empty() || value.as_str().is_some_and(|text| !text.is_empty()) {
        out.push(value);
    }
    for child in children {
        descend(child, out, steps)?;
    }
    Ok(())
}

impl Slice {
    fn take_each<'a>(&self, lists: &[&'a Value], out: &mut Vec<&'a Value>) -> Result<(), Mismatch> {
        for list in lists {
            let items = match list {
                Value::Array(items) => items,
                Value::Null => continue,
                _ => return Err(Mismatch),
            };
            let length = items.len() as i64;
            let absolute = |index: i64| if index < 0 { index + length } else { index };
            let start = absolute(self.start.unwrap_or(0));
            let end = match self.end {
                Some(end) => absolute(end),
                None if self.single => start + 1,
                None => length,
            };
            // Compat: an empty slice also ends the lists that follow.
            if start == end {
                return Ok(());
            }
            let step = self.step.unwrap_or(1);
            if start < 0 || start > end || end > length || step <= 0 {
                return Err(Mismatch);
            }
            out.extend(items[start as usize..end as usize].iter().step_by(step as usize));
        }
        Ok(())
    }
}

impl Filter {
    fn keeps(&self, item: &Value, steps: &mut Steps) -> Result<bool, Mismatch> {
        steps.take(1)?;
        let left = self.left.walk(vec![item], steps);
        // Compat: a path that does not fit the value counts as found.
        let Some((operator, right)) = &self.compare else {
            return Ok(left.map_or(true, |left| !left.is_empty()));
        };
        let Some(left) = single(&left?)? else { return Ok(false) };
        let Some(right) = single(&right.walk(vec![item], steps)?)? else { return Ok(false) };
        operator.holds(left, right)
    }
}

/// The single value of a side of a comparison; None if it is missing. Several values are an error.
fn single<'a>(found: &[&'a Value]) -> Result<Option<&'a Value>, Mismatch> {
    match found {
        [] => Ok(None),
        [value] => Ok(Some(value)),
        _ => Err(Mismatch),
    }
}

impl Operator {
    fn holds(self, left: &Value, right: &Value) -> Result<bool, Mismatch> {
        let order = compare(left, right)?;
        // Booleans have no order.
        let ordered = || if left.as_bool().is_some() { Err(Mismatch) } else { Ok(()) };
        match self {
            Self::Equal => Ok(order == Some(Ordering::Equal)),
            Self::NotEqual => Ok(order != Some(Ordering::Equal)),
            Self::Less => ordered().map(|()| order == Some(Ordering::Less)),
            Self::LessOrEqual => ordered().map(|()| order.is_some_and(Ordering::is_le)),
            Self::Greater => ordered().map(|()| order == Some(Ordering::Greater)),
            Self::GreaterOrEqual => ordered().map(|()| order.is_some_and(Ordering::is_ge)),
            Self::Unknown => Err(Mismatch),
        }
    }
}

/// Only values of one type can be compared; 2 and 2.0 have different types.
fn compare(a: &Value, b: &Value) -> Result<Option<Ordering>, Mismatch> {
    Ok(match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Number(Number::Int(a)), Value::Number(Number::Int(b))) => Some(a.cmp(b)),
        (Value::Number(Number::Float(a)), Value::Number(Number::Float(b))) => a.partial_cmp(b),
        _ => return Err(Mismatch),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn paths_find_values() {
        let object = value!({
            "spec": {
                "a.b": 1i64,
                "n": 2i64,
                "list": [{"t": "x", "v": 1i64}, {"t": "Ready", "v": 2i64}],
                "m": {"k": "v"},
                "empty": [[], [1i64]]
            },
            "status": null
        });
        let cases = [
            (".spec.n", "2"),
            (r".spec.a\.b", "1"),
            (r".spec['a\.b']", "1"),
            (".spec['a.b']", ""),
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
            (".spec.m[*]", "mismatch"),
            (".spec.list[].v", "1"),
            (".spec.list[?(@.v==2.0)].t", "mismatch"),
            (".spec.list[?(@.v!='1')].t", "mismatch"),
            (".spec.list[?(@.v=2)].t", "mismatch"),
            (".spec.list[?(@.x=2)].t", ""),
            (".spec.list[?(@.x=)].t", ""),
            (".spec.list[?(@.v[0])].t", r#""x" "Ready""#),
            (".status[?(@.t)]", "mismatch"),
            (".spec.empty[*][*]", ""),
            (".spec.n range", "mismatch"),
            (".spec.n 'text'", r#""text""#),
            (".spec.n 5", "5"),
            (".spec.n}{.more} and more", "2"),
            (".spec.empty..", "[[],[1]] [1]"),
            (".", ""),
            ("$.spec.n", "2"),
            (".status", "null"),
            (".status.conditions[0]", ""),
        ];
        for (path, expected) in cases {
            let parsed = JsonPath::parse(path).unwrap_or_else(|why| panic!("{path}: {why}"));
            let found = match parsed.find(&object) {
                Ok(found) => {
                    found.into_iter().map(crate::json::to_string).collect::<Vec<_>>().join(" ")
                }
                Err(Mismatch) => "mismatch".to_owned(),
            };
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn a_path_with_too_many_results_is_an_error() {
        let mut object = Value::from(1i64);
        for _ in 0..12 {
            object = Value::Array(vec![object.clone(), object]);
        }
        let find =
            |path: &str| JsonPath::parse(path).expect("a path").find(&object).map(|all| all.len());
        assert_eq!(find("..[*]"), Ok((1 << 13) - 2));
        assert_eq!(find("..[*]..[*]"), Err(Mismatch));
        assert_eq!(find("..[*]..[*]..[*]..[*]..[*]..[*]..[*]"), Err(Mismatch));
    }

    #[test]
    fn invalid_paths_are_refused() {
        let paths = [
            ".spec[",
            ".a['b]",
            ".a[x]",
            ".a[?(@.b==\"c\"]",
            "..*",
            "....a",
            r#".a["b"]"#,
            ".a[ 0 ]",
            ".a[+1]",
            ".a[-]",
            ".a[1:2:3:4]",
            r#".a[?(@.b=="c"||@.b=="d")]"#,
            ".a,b",
            ".a]",
            "{.a}",
            ".a}{.b[",
            ".a[?(@.b==)]",
            r".a\",
        ];
        for text in paths {
            assert!(JsonPath::parse(text).is_err(), "{text}");
        }
    }
}
