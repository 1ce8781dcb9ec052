//! Kubernetes' `Quantity`: an exact decimal with a suffix (`100m`, `1Gi`, `1e3`).
//!
//! Almost every quantity fits an `i64` and a power of ten; the rest ([`decimal`]) is exact too, but
//! slow. The text of a quantity that is already canonical is kept, because Kubernetes prints it back
//! as it came (`1E6` stays `1E6`).

mod decimal;
#[cfg(test)]
mod tests;

use std::{cmp::Ordering, fmt, str::FromStr};

use thiserror::Error;

use self::decimal::Decimal;
use crate::{Number, Str, Value};

/// Compared by amount: `1000m` equals `1`.
#[derive(Clone, Debug)]
pub struct Quantity {
    amount: Amount,
    format: Format,
    // The text it was read from, where that needs no change.
    text: Option<Str>,
}

/// Which family of suffixes a quantity is printed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    #[default]
    DecimalSi,
}

#[derive(Clone, Debug)]
enum Amount {
    /// `value × 10^scale`
    Int {
        value: i64,
        scale: i32,
    },
    Big(Box<Decimal>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QuantityError {
    #[error(
        "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Powers of ten that have a name.
pub const NANO: i32 = -9;
pub const MILLI: i32 = -3;

/// Digits that surely fit an `i64`.
const INT_DIGITS_MAX: i32 = 18;

/// Larger exponents are refused. Kubernetes accepts them and then needs gigabytes to add or compare.
const EXPONENT_MAX: i64 = 9_999;

impl Quantity {
    pub const ZERO: Self =
        Self { amount: Amount::Int { value: 0, scale: 0 }, format: Format::DecimalSi, text: None };

    pub fn new(value: i64, format: Format) -> Self {
        Self::scaled(value, 0, format)
    }

    pub fn milli(value: i64, format: Format) -> Self {
        Self::scaled(value, MILLI, format)
    }

    /// `value × 10^scale`
    pub fn scaled(value: i64, scale: i32, format: Format) -> Self {
        Self { amount: Amount::Int { value, scale }, format, text: None }
    }

    /// Parses a quantity. Fractions below a billionth are rounded up, so that a small request is
    /// never zero; binary amounts stop at the largest `i64`.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = Parts::split(text)?;
        let suffix = Suffix::parse(parts.suffix).ok_or(QuantityError::Suffix)?;
        if let Some(quantity) = Self::parse_int(text, &parts, suffix)? {
            return Ok(quantity);
        }
        Self::parse_big(&parts, suffix)
    }

    /// The quantity in a decoded object: text, or a bare number.
    pub fn from_value(value: &Value) -> Result<Self, QuantityError> {
        match value {
            Value::Null => Ok(Self::ZERO),
            Value::String(text) => Self::parse(text.trim()),
            Value::Number(Number::Int(value)) => Ok(Self::new(*value, Format::DecimalSi)),
            other => Self::parse(&crate::json::to_string(other)),
        }
    }

    fn parse_int(text: &str, parts: &Parts, suffix: Suffix) -> Result<Option<Self>, QuantityError> {
        let (whole, fraction) = (parts.whole, parts.fraction);
        let (precision, factor, scale) = match suffix {
            Suffix::Decimal { exponent, .. } => {
                (INT_DIGITS_MAX - (whole.len() + fraction.len()) as i32, 1, exponent)
            }
            Suffix::Binary { exponent } if fraction.is_empty() => {
                // 1Mi (2^20) has some six decimal digits.
                let digits = (exponent * 3 / 10) as i32;
                (15 - whole.len() as i32 - digits - 1, 1i64 << exponent, 0)
            }
            Suffix::Binary { .. } => return Ok(None),
        };
        let scale = scale - fraction.len() as i32;
        if precision < 0 || scale < NANO {
            return Ok(None);
        }
        let digits: String = [whole, fraction].concat();
        let value: i64 = digits.parse().map_err(|_| QuantityError::Numeric)?;
        let Some(amount) = value.checked_mul(factor) else { return Ok(None) };
        let canonical = match suffix {
            Suffix::Binary { .. } => value & 7 != 0,
            Suffix::Decimal { .. } => {
                scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
            }
        };
        let amount = if parts.negative { -amount } else { amount };
        Ok(Some(Self {
            amount: Amount::Int { value: amount, scale },
            format: suffix.format(),
            text: canonical.then(|| Str::new(text)),
        }))
    }

    fn parse_big(parts: &Parts, suffix: Suffix) -> Result<Self, QuantityError> {
        if !parts.has_digits {
            return Err(QuantityError::Numeric);
        }
        let mut amount = Decimal::from_digits(parts.whole, parts.fraction);
        let mut format = suffix.format();
        match suffix {
            Suffix::Decimal { exponent, .. } => amount.shift(exponent),
            Suffix::Binary { exponent } => {
                for _ in 0..exponent / 10 {
                    amount.multiply(1024);
                }
            }
        }
        amount.round_up(NANO);
        if format == Format::BinarySi {
            let max = Decimal::from(i64::MAX);
            if amount > max {
                amount = max;
            }
            if !amount.is_zero() && amount < Decimal::from(1) {
                // Less than one has no binary suffix.
                format = Format::DecimalSi;
            }
        }
        if parts.negative {
            amount.negate();
        }
        Ok(Self { amount: Amount::Big(Box::new(amount)), format, text: None })
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.sign() == Ordering::Equal
    }

    /// How it compares to zero.
    pub fn sign(&self) -> Ordering {
        match &self.amount {
            Amount::Int { value, .. } => value.cmp(&0),
            Amount::Big(decimal) => decimal.sign(),
        }
    }

    /// The amount, if it is a whole number that is held as one (`1k` is, `1.000` is not).
    pub fn as_i64(&self) -> Option<i64> {
        match self.amount {
            Amount::Int { value, scale: 0 } => Some(value),
            Amount::Int { value, scale: 1.. } => self.times_power_of_ten(value, 0),
            _ => None,
        }
    }

    /// The nearest floating-point number, or the one beside it.
    pub fn as_f64(&self) -> f64 {
        let (base, exponent) = match &self.amount {
            Amount::Int { value, scale } => (*value as f64, *scale),
            Amount::Big(decimal) => decimal.to_f64_parts(),
        };
        if exponent == 0 {
            return base;
        }
        base * format!("1e{exponent}").parse::<f64>().unwrap_or(f64::INFINITY)
    }

    /// The amount in whole units, fractions rounded away from zero. Stops at the ends of `i64`.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// The amount in thousandths, as CPUs are counted.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(MILLI)
    }

    /// The amount in units of `10^scale`, rounded away from zero.
    pub fn scaled_value(&self, scale: i32) -> i64 {
        if let Amount::Int { value, scale: own } = self.amount {
            if own >= scale {
                let limit = if value < 0 { i64::MIN } else { i64::MAX };
                return self.times_power_of_ten(value, scale).unwrap_or(limit);
            }
            return divide_by_power_of_ten(value, scale - own).0;
        }
        let mut decimal = self.decimal();
        decimal.round_up(scale);
        decimal.shift(-scale);
        decimal.to_i64_saturating()
    }

    fn times_power_of_ten(&self, value: i64, scale: i32) -> Option<i64> {
        let Amount::Int { scale: own, .. } = self.amount else { return None };
        if value == 0 {
            return Some(0);
        }
        value.checked_mul(10i64.checked_pow(u32::try_from(own - scale).ok()?)?)
    }

    /// Rounds up to a multiple of `10^scale`; true if nothing was lost.
    pub fn round_up(&mut self, scale: i32) -> bool {
        match &mut self.amount {
            Amount::Int { scale: own, .. } if *own >= scale => true,
            Amount::Int { value, scale: own } => {
                let (rounded, exact) = divide_by_power_of_ten(*value, scale - *own);
                (*value, *own) = (rounded, scale);
                self.text = None;
                exact
            }
            Amount::Big(decimal) => {
                self.text = None;
                !decimal.round_up(scale)
            }
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.text = None;
        if self.is_zero() {
            self.format = other.format;
        }
        if let (Amount::Int { value: a, scale: a10 }, Amount::Int { value: b, scale: b10 }) =
            (&self.amount, &other.amount)
            && let Some((value, scale)) = add_ints((*a, *a10), (*b, *b10))
        {
            self.amount = Amount::Int { value, scale };
            return;
        }
        let sum = self.decimal().plus(&other.decimal());
        self.amount = Amount::Big(Box::new(sum));
    }

    pub fn sub(&mut self, other: &Self) {
        self.add(&other.negated());
    }

    #[must_use]
    pub fn negated(&self) -> Self {
        let mut negated = Self { text: None, ..self.clone() };
        negated.amount = match &self.amount {
            Amount::Int { value, scale } if *value != i64::MIN => {
                Amount::Int { value: -value, scale: *scale }
            }
            _ => {
                let mut decimal = self.decimal();
                decimal.negate();
                Amount::Big(Box::new(decimal))
            }
        };
        negated
    }

    /// Multiplies by a whole number.
    pub fn mul(&mut self, factor: i64) {
        self.text = None;
        if let Amount::Int { value, scale } = self.amount
            && let Some(value) = value.checked_mul(factor)
        {
            self.amount = Amount::Int { value, scale };
            return;
        }
        let mut product = self.decimal();
        // In steps that fit: a factor has three digits of base 2^22.
        let magnitude = factor.unsigned_abs();
        let low = product.clone().times((magnitude & 0x3F_FFFF) as u32);
        let middle = product.clone().times(1 << 22).times((magnitude >> 22 & 0x3F_FFFF) as u32);
        let high = product.times(1 << 22).times(1 << 22).times((magnitude >> 44) as u32);
        product = low.plus(&middle).plus(&high);
        if factor < 0 {
            product.negate();
        }
        self.amount = Amount::Big(Box::new(product));
    }

    fn decimal(&self) -> Decimal {
        match &self.amount {
            Amount::Int { value, scale } => {
                let mut decimal = Decimal::from(*value);
                decimal.shift(*scale);
                decimal
            }
            Amount::Big(decimal) => (**decimal).clone(),
        }
    }
}

fn add_ints((a, a_scale): (i64, i32), (b, b_scale): (i64, i32)) -> Option<(i64, i32)> {
    if b == 0 {
        return Some((a, a_scale));
    }
    if a == 0 {
        return Some((b, b_scale));
    }
    let scale = a_scale.min(b_scale);
    let at_scale =
        |value: i64, own: i32| value.checked_mul(10i64.checked_pow(own.abs_diff(scale))?);
    Some((at_scale(a, a_scale)?.checked_add(at_scale(b, b_scale)?)?, scale))
}

/// The quotient rounded away from zero, and whether it is exact.
fn divide_by_power_of_ten(value: i64, power: i32) -> (i64, bool) {
    let Some(divisor) = u32::try_from(power).ok().and_then(|power| 10i64.checked_pow(power)) else {
        return (value.signum(), value == 0);
    };
    let (quotient, rest) = (value / divisor, value % divisor);
    (quotient + rest.signum(), rest == 0)
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Amount::Int { value: a, scale: a10 }, Amount::Int { value: b, scale: b10 }) =
            (&self.amount, &other.amount)
            && a10 == b10
        {
            return a.cmp(b);
        }
        self.decimal().cmp(&other.decimal())
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl Default for Quantity {
    fn default() -> Self {
        Self::ZERO
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

/// The canonical form: no fraction, the largest suffix that allows it.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        let decimal = self.decimal();
        let mut format = self.format;
        if format == Format::BinarySi {
            let small = decimal.magnitude() < Decimal::from(1024);
            if small || !decimal.is_whole() {
                // A binary suffix would hide or round something.
                format = Format::DecimalSi;
            }
        }
        if format == Format::BinarySi {
            let (digits, thousands) = decimal.without_factors_of_1024();
            return write!(f, "{digits}{}", BINARY.get(thousands).unwrap_or(&""));
        }
        let (digits, exponent) = decimal.in_thousands();
        f.write_str(&digits)?;
        match decimal_suffix(exponent) {
            Some(suffix) if format == Format::DecimalSi || exponent == 0 => f.write_str(suffix),
            _ => write!(f, "e{exponent}"),
        }
    }
}

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Beyond `E` there is no suffix. Kubernetes then prints none and loses the amount; an exponent
/// keeps it.
fn decimal_suffix(exponent: i32) -> Option<&'static str> {
    Some(match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        0 => "",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => return None,
    })
}

#[derive(Clone, Copy)]
enum Suffix {
    Decimal { exponent: i32, format: Format },
    Binary { exponent: u32 },
}

impl Suffix {
    fn parse(text: &str) -> Option<Self> {
        let si = |exponent| Some(Self::Decimal { exponent, format: Format::DecimalSi });
        match text {
            "" => si(0),
            "n" => si(-9),
            "u" => si(-6),
            "m" => si(-3),
            "k" => si(3),
            "M" => si(6),
            "G" => si(9),
            "T" => si(12),
            "P" => si(15),
            "E" => si(18),
            _ => Self::parse_long(text),
        }
    }

    fn parse_long(text: &str) -> Option<Self> {
        if let Some(thousands) = BINARY.iter().position(|suffix| *suffix == text) {
            return Some(Self::Binary { exponent: thousands as u32 * 10 });
        }
        let exponent: i64 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
        if exponent > EXPONENT_MAX {
            return None;
        }
        // Smaller fractions are rounded up to one billionth as well.
        let exponent = exponent.max(-1_000_000_000) as i32;
        Some(Self::Decimal { exponent, format: Format::DecimalExponent })
    }

    fn format(self) -> Format {
        match self {
            Self::Decimal { format, .. } => format,
            Self::Binary { .. } => Format::BinarySi,
        }
    }
}

/// A quantity's text, taken apart: `-0012.50Mi` is negative, `12`, `50`, `Mi`.
struct Parts<'a> {
    negative: bool,
    /// Without leading zeros; `0` if nothing else is left.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    /// False for `.` and the like, which are zero unless an exponent makes them an error.
    has_digits: bool,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (zeros, rest) = split_while(unsigned, |byte| byte == b'0');
        let (whole, rest) = split_while(rest, |byte| byte.is_ascii_digit());
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_while(rest, |byte| byte.is_ascii_digit()),
            None => ("", rest),
        };
        let (_, rest) = split_while(suffix, |byte| b"eEinumkKMGTP".contains(&byte));
        let exponent = rest.strip_prefix(['-', '+']).unwrap_or(rest);
        if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        let has_digits = !(zeros.is_empty() && whole.is_empty() && fraction.is_empty());
        let whole = if whole.is_empty() { "0" } else { whole };
        Ok(Self { negative, whole, fraction, suffix, has_digits })
    }
}

fn split_while(text: &str, keep: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().position(|byte| !keep(byte)).unwrap_or(text.len());
    text.split_at(end)
}
