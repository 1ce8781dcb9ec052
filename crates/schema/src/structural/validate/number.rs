//! Bounds of numbers. Integers are compared as integers, with bounds cut to integers.

use meta::{Number, Value, field::show};

use super::{Failure, Outcome};
use crate::structural::{
    node::{JsonType, StructuralNode, ValueValidation},
    value_path::ValuePath,
};

pub(super) fn check(
    number: Number,
    node: &StructuralNode,
    value_validation: Option<&ValueValidation>,
    at: &ValuePath<'_>,
    outcome: &mut Outcome,
) {
    let range = Range::of(node, value_validation);
    range.check(number, "Checked", at, outcome);
    let Some(value_validation) = value_validation else { return };
    if let Some(factor) = value_validation.multiple_of {
        // A factor that is no value of the type itself is compared as a float.
        let fits = range.check(Number::Float(factor), "MultipleOf", at, outcome);
        check_factor(if fits { number } else { as_float(number) }, factor, at, outcome);
    }
    if let Some(min) = value_validation.minimum {
        let fits = range.check(Number::Float(min), "Minimum boundary", at, outcome);
        let number = if fits { number } else { as_float(number) };
        let exclusive = value_validation.exclusive_minimum;
        let (below, bound) = match number {
            Number::Int(value) => {
                let min = min as i64;
                (value < min || exclusive && value == min, Value::from(min))
            }
            Number::Float(value) => (value < min || exclusive && value <= min, Value::from(min)),
        };
        if below {
            let or_equal = if exclusive { "" } else { " or equal to" };
            let should = || format!("should be greater than{or_equal} {}", show(&bound));
            outcome.fail(|| Failure::invalid(at, &Value::Number(number), &should()));
        }
    }
    if let Some(max) = value_validation.maximum {
        let fits = range.check(Number::Float(max), "Maximum boundary", at, outcome);
        let number = if fits { number } else { as_float(number) };
        let exclusive = value_validation.exclusive_maximum;
        let (above, bound) = match number {
            Number::Int(value) => {
                let max = max as i64;
                (value > max || exclusive && value == max, Value::from(max))
            }
            Number::Float(value) => (value > max || exclusive && value >= max, Value::from(max)),
        };
        if above {
            let or_equal = if exclusive { "" } else { " or equal to" };
            let should = || format!("should be less than{or_equal} {}", show(&bound));
            outcome.fail(|| Failure::invalid(at, &Value::Number(number), &should()));
        }
    }
}

fn check_factor(number: Number, factor: f64, at: &ValuePath<'_>, outcome: &mut Outcome) {
    let (positive, multiple, factor) = match number {
        Number::Int(value) => {
            let factor = factor as i64;
            (factor > 0, factor > 0 && value % factor == 0, Value::from(factor))
        }
        Number::Float(value) => {
            let times = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
            (factor > 0.0, is_integer(times), Value::from(factor))
        }
    };
    if !positive {
        outcome.fail(|| {
            let name = at.dotted();
            let factor = show(&factor);
            let text = format!("factor MultipleOf declared for {name} must be positive: {factor}");
            Failure {
                name,
                reason: meta::field::FieldReason::Invalid,
                message: format!("Invalid value: {factor}: {text}"),
                text: text.into(),
            }
        });
    } else if !multiple {
        let should = || format!("should be a multiple of {}", show(&factor));
        outcome.fail(|| Failure::invalid(at, &Value::Number(number), &should()));
    }
}

/// What fits into the type and format of a schema.
struct Range<'a> {
    ty: &'a str,
    format: &'a str,
}

impl<'a> Range<'a> {
    fn of(node: &'a StructuralNode, value_validation: Option<&'a ValueValidation>) -> Self {
        let (ty, formats): (_, &[&str]) = match node.ty {
            _ if node.int_or_string => ("", &[]),
            JsonType::Integer => ("integer", &["int32", "int64"]),
            JsonType::Number => ("number", &["float", "double"]),
            _ => ("", &[]),
        };
        let format = value_validation.map_or("", |value_validation| &value_validation.format);
        Self { ty, format: if formats.contains(&format) { format } else { "" } }
    }

    fn check(&self, number: Number, what: &str, at: &ValuePath<'_>, outcome: &mut Outcome) -> bool {
        let fits = match (self.ty, self.format, number) {
            ("integer", "int32", Number::Int(value)) => i32::try_from(value).is_ok(),
            ("integer", "int32", Number::Float(value)) => {
                value.fract() == 0.0 && value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX)
            }
            // 2^63 is the first float that is too big.
            ("integer", _, Number::Float(value)) => {
                value.fract() == 0.0 && (-TWO_63..TWO_63).contains(&value)
            }
            ("number", "float", Number::Float(value)) => (value as f32).is_finite(),
            _ => true,
        };
        if !fits {
            outcome.fail(|| {
                let format = match self.format {
                    "" => "(default format)".to_owned(),
                    format => format!("with format {format}"),
                };
                let (ty, name) = (self.ty, at.dotted());
                Failure::unplaced(format!("{what} value must be of type {ty} {format} in {name}"))
            });
        }
        fits
    }
}

const TWO_63: f64 = 9_223_372_036_854_775_808.0;

fn as_float(number: Number) -> Number {
    match number {
        Number::Int(value) => Number::Float(value as f64),
        float @ Number::Float(_) => float,
    }
}

/// Whether a float is an integer that JSON can hold, give or take what arithmetic loses.
pub(super) fn is_integer(value: f64) -> bool {
    const JSON_MAX: f64 = 9_007_199_254_740_991.0;
    const EPSILON: f64 = 1e-9;
    if !(-JSON_MAX..=JSON_MAX).contains(&value) {
        return false;
    }
    // Upstream converts to an unsigned number first.
    let cut = value as u64 as f64;
    let off = (value - cut).abs();
    if off == 0.0 || value.fract() == 0.0 {
        return true;
    }
    if value == 0.0 || cut == 0.0 || off < f64::MIN_POSITIVE {
        return false;
    }
    off / (value.abs() + cut.abs()).min(f64::MAX) < EPSILON
}
