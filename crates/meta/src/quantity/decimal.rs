//! An exact decimal of any length, for the few quantities that an `i64` cannot hold. One byte per
//! digit: slow, obvious, and bounded by the length of the text it came from.

use std::cmp::Ordering;

/// `±digits × 10^exponent`
#[derive(Clone, Debug, Default)]
pub(super) struct Decimal {
    negative: bool,
    // Invariant: most significant first, no leading and no trailing zero; empty means zero, and
    // then `exponent` is 0 and `negative` false.
    digits: Vec<u8>,
    exponent: i32,
}

impl Decimal {
    /// Both parts hold ASCII digits only.
    pub(super) fn from_digits(whole: &str, fraction: &str) -> Self {
        let digits = whole.bytes().chain(fraction.bytes()).map(|byte| byte - b'0').collect();
        let mut decimal = Self { digits, exponent: -(fraction.len() as i32), negative: false };
        decimal.trim();
        decimal
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.exponent >= 0
    }

    pub(super) fn sign(&self) -> Ordering {
        match (self.is_zero(), self.negative) {
            (true, _) => Ordering::Equal,
            (false, true) => Ordering::Less,
            (false, false) => Ordering::Greater,
        }
    }

    pub(super) fn negate(&mut self) {
        self.negative = !self.negative && !self.is_zero();
    }

    pub(super) fn magnitude(&self) -> Self {
        Self { negative: false, ..self.clone() }
    }

    /// Multiplies by a power of ten.
    pub(super) fn shift(&mut self, power: i32) {
        if !self.is_zero() {
            self.exponent = self.exponent.saturating_add(power);
        }
    }

    pub(super) fn multiply(&mut self, factor: u32) {
        let mut carry = 0u64;
        for digit in self.digits.iter_mut().rev() {
            let product = u64::from(*digit) * u64::from(factor) + carry;
            *digit = (product % 10) as u8;
            carry = product / 10;
        }
        while carry > 0 {
            self.digits.insert(0, (carry % 10) as u8);
            carry /= 10;
        }
        self.trim();
    }

    #[must_use]
    pub(super) fn times(mut self, factor: u32) -> Self {
        self.multiply(factor);
        self
    }

    #[must_use]
    pub(super) fn plus(&self, other: &Self) -> Self {
        if self.is_zero() {
            return other.clone();
        }
        if other.is_zero() {
            return self.clone();
        }
        let exponent = self.exponent.min(other.exponent);
        let (a, b) = (self.digits_at(exponent), other.digits_at(exponent));
        let (digits, negative) = if self.negative == other.negative {
            (add_digits(&a, &b), self.negative)
        } else {
            match compare_digits(&a, &b) {
                Ordering::Less => (subtract_digits(&b, &a), other.negative),
                _ => (subtract_digits(&a, &b), self.negative),
            }
        };
        let mut sum = Self { negative, digits, exponent };
        sum.trim();
        sum
    }

    /// Rounds away from zero to a multiple of `10^scale`; true if that changed something.
    pub(super) fn round_up(&mut self, scale: i32) -> bool {
        if self.is_zero() || self.exponent >= scale {
            return false;
        }
        // Trailing digits are never zero, so something is always lost here.
        let dropped = self.exponent.abs_diff(scale) as usize;
        let kept = self.digits.len().saturating_sub(dropped);
        let rounded = add_digits(&self.digits[..kept], &[1]);
        (self.digits, self.exponent) = (rounded, scale);
        self.trim();
        true
    }

    pub(super) fn to_i64_saturating(&self) -> i64 {
        let limit = if self.negative { i64::MIN } else { i64::MAX };
        if self.is_zero() {
            return 0;
        }
        if self.exponent < 0 || self.order() > 19 {
            return limit;
        }
        let mut value = 0i128;
        for digit in self.digits_at(0) {
            value = value * 10 + i128::from(digit);
        }
        i64::try_from(if self.negative { -value } else { value }).unwrap_or(limit)
    }

    /// The digits as a number, and the exponent that goes with them.
    pub(super) fn to_f64_parts(&self) -> (f64, i32) {
        let base: f64 = self.digits_text().parse().unwrap_or(0.0);
        (base, self.exponent)
    }

    /// The digits with an exponent that is a multiple of three.
    pub(super) fn in_thousands(&self) -> (String, i32) {
        let zeros = self.exponent.rem_euclid(3);
        let mut digits = self.digits_text();
        digits.extend((0..zeros).map(|_| '0'));
        (digits, self.exponent - zeros)
    }

    /// The digits of a whole number with factors of 1024 taken out, and how many those were.
    pub(super) fn without_factors_of_1024(&self) -> (String, usize) {
        let mut digits = self.digits_at(0);
        let mut times = 0;
        loop {
            let (quotient, rest) = divide_digits(&digits, 1024);
            if rest != 0 || quotient.is_empty() {
                break;
            }
            digits = quotient;
            times += 1;
        }
        let whole = Self { negative: self.negative, digits, exponent: 0 };
        (whole.digits_text(), times)
    }

    /// How many digits there are before the decimal point.
    fn order(&self) -> i64 {
        self.digits.len() as i64 + i64::from(self.exponent)
    }

    fn digits_text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let digits = self.digits.iter().map(|digit| char::from(b'0' + digit));
        sign.chars().chain(digits).collect()
    }

    /// The digits as they are for a smaller (or equal) exponent.
    fn digits_at(&self, exponent: i32) -> Vec<u8> {
        let zeros = self.exponent.abs_diff(exponent) as usize;
        let mut digits = self.digits.clone();
        digits.resize(digits.len() + zeros, 0);
        digits
    }

    fn trim(&mut self) {
        let kept = self.digits.iter().rposition(|digit| *digit != 0).map_or(0, |at| at + 1);
        self.exponent = self.exponent.saturating_add((self.digits.len() - kept) as i32);
        self.digits.truncate(kept);
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
        if self.digits.is_empty() {
            *self = Self::default();
        }
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        let mut decimal = Self::from_digits(&value.unsigned_abs().to_string(), "");
        decimal.negative = value < 0;
        decimal
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (self.sign(), other.sign());
        if a != b || a == Ordering::Equal {
            return a.cmp(&b);
        }
        // The orders decide first: equal orders keep the digits comparable without expanding them.
        let magnitudes =
            self.order().cmp(&other.order()).then_with(|| self.digits.cmp(&other.digits));
        if self.negative { magnitudes.reverse() } else { magnitudes }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

fn compare_digits(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn add_digits(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut sum = Vec::with_capacity(a.len().max(b.len()) + 1);
    let mut carry = 0;
    let (mut a, mut b) = (a.iter().rev(), b.iter().rev());
    loop {
        let (x, y) = (a.next(), b.next());
        if x.is_none() && y.is_none() && carry == 0 {
            break;
        }
        let digit = x.unwrap_or(&0) + y.unwrap_or(&0) + carry;
        sum.push(digit % 10);
        carry = digit / 10;
    }
    sum.reverse();
    sum
}

/// `a - b`, where `a` is not the smaller one.
fn subtract_digits(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut difference = Vec::with_capacity(a.len());
    let mut borrow = 0;
    let mut b = b.iter().rev();
    for x in a.iter().rev() {
        let y = b.next().unwrap_or(&0) + borrow;
        borrow = u8::from(*x < y);
        difference.push(x + 10 * borrow - y);
    }
    difference.reverse();
    difference
}

/// Quotient without leading zeros, and remainder.
fn divide_digits(digits: &[u8], divisor: u32) -> (Vec<u8>, u32) {
    let mut quotient = Vec::with_capacity(digits.len());
    let mut rest = 0;
    for digit in digits {
        rest = rest * 10 + u32::from(*digit);
        let q = (rest / divisor) as u8;
        if q != 0 || !quotient.is_empty() {
            quotient.push(q);
        }
        rest %= divisor;
    }
    (quotient, rest)
}
