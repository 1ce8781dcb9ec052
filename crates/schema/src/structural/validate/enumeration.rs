//! The `enum` keyword. Long lists are indexed, so that an object with many values of a long enum costs no more
//! than the two together.

use std::collections::{HashMap, HashSet};

use meta::{Number, Str, Value};

use crate::structural::node::ValueValidation;

/// Whether the value is one of the enum's.
pub(super) fn allows(value_validation: &ValueValidation, value: &Value) -> bool {
    let enumeration = &value_validation.enumeration;
    if enumeration.len() <= SEARCHED_MAX {
        return enumeration.iter().any(|allowed| is_allowed(value, allowed));
    }
    value_validation.enum_index.get_or_init(|| EnumIndex::new(enumeration)).allows(value)
}

/// Enums up to this length are searched from the start.
const SEARCHED_MAX: usize = 16;

/// Null is never in an enum; numbers are compared in the type of the allowed value.
fn is_allowed(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Null, _) => false,
        (Value::Number(Number::Int(value)), Value::Number(Number::Float(allowed))) => {
            (*value as f64 - *allowed) == 0.0
        }
        (Value::Number(Number::Float(value)), Value::Number(Number::Int(allowed))) => {
            *value as i64 == *allowed
        }
        _ => value == allowed,
    }
}

/// The values of a long enum.
#[derive(Debug, Default)]
pub(in crate::structural) struct EnumIndex {
    texts: HashSet<Str>,
    integers: HashSet<i64>,
    /// By their bits.
    floats: HashSet<u64>,
    /// By their JSON, which is the same for equal values.
    others: HashMap<String, Vec<Value>>,
}

impl EnumIndex {
    fn new(enumeration: &[Value]) -> Self {
        let mut index = Self::default();
        for allowed in enumeration {
            match allowed {
                Value::String(text) => _ = index.texts.insert(text.clone()),
                Value::Number(Number::Int(integer)) => _ = index.integers.insert(*integer),
                Value::Number(Number::Float(float)) => _ = index.floats.insert(bits(*float)),
                other => {
                    index
                        .others
                        .entry(meta::json::to_string(other))
                        .or_default()
                        .push(other.clone());
                }
            }
        }
        index
    }

    fn allows(&self, value: &Value) -> bool {
        match value {
            Value::Null => false,
            Value::String(text) => self.texts.contains(text),
            Value::Number(Number::Int(integer)) => {
                self.integers.contains(integer) || self.floats.contains(&bits(*integer as f64))
            }
            Value::Number(Number::Float(float)) => {
                self.floats.contains(&bits(*float)) || self.integers.contains(&(*float as i64))
            }
            other => {
                let like = self.others.get(&meta::json::to_string(other));
                like.is_some_and(|like| like.contains(other))
            }
        }
    }
}

/// Zero and minus zero are equal.
fn bits(float: f64) -> u64 {
    if float == 0.0 { 0 } else { float.to_bits() }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn a_long_enum_allows_what_a_short_one_does() {
        let allowed =
            value!(["a", "", 1i64, 2.0, 2.5, 0.0, (i64::MAX), true, null, [1i64], {"a": 1.0}]);
        let Value::Array(allowed) = allowed else { panic!("a list") };
        let padding = (0..SEARCHED_MAX as i64).map(|at| Value::from(format!("padding {at}")));
        let long: Vec<Value> = allowed.iter().cloned().chain(padding).collect();
        let index = EnumIndex::new(&long);
        let others = value!(["b", 1.0, 1.5, 2i64, 0i64, (-0.0), 3i64, false, [1.0], [], {}, {"a": 1i64}, 9.3e18]);
        let Value::Array(others) = others else { panic!("a list") };
        for value in allowed.iter().chain(&others) {
            let expected = long.iter().any(|allowed| is_allowed(value, allowed));
            assert_eq!(index.allows(value), expected, "{value:?}");
        }
    }
}
