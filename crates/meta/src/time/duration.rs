//! Go's `time.Duration`: `1m0s` in and out, and the short form that ages are printed in.

use std::{fmt, str::FromStr};

use thiserror::Error;

use super::rfc3339::quote;

/// Nanoseconds, as Go counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    pub nanos: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DurationError {
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit { unit: String, text: String },
}

const SECOND: u64 = 1_000_000_000;
/// The magnitude of the most negative duration: one more than the largest.
const MAGNITUDE_MAX: u64 = 1 << 63;

impl Duration {
    pub const fn from_secs(seconds: i64) -> Self {
        Self { nanos: seconds.saturating_mul(SECOND as i64) }
    }

    /// Reads `1h15m30.918s`, `-1.5h`, `0`.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        let invalid = || DurationError::Invalid(text.to_owned());
        let negative = text.starts_with('-');
        let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        if rest == "0" {
            return Ok(Self::default());
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total = 0u64;
        while !rest.is_empty() {
            let (nanos, after) = parse_term(text, rest)?;
            rest = after;
            total = total.checked_add(nanos).filter(|n| *n <= MAGNITUDE_MAX).ok_or_else(invalid)?;
        }
        if negative {
            return Ok(Self { nanos: (total as i64).wrapping_neg() });
        }
        Ok(Self { nanos: i64::try_from(total).map_err(|_| invalid())? })
    }

    /// Whole seconds, towards zero.
    pub const fn as_secs(self) -> i64 {
        self.nanos / SECOND as i64
    }

    /// Two or three significant figures, as `kubectl get` shows ages: `5s`, `3m2s`, `47h`, `2d`.
    pub fn human(self) -> String {
        let seconds = self.as_secs();
        // Clocks differ a little: nearly now is now.
        if seconds < -1 {
            return "<invalid>".to_owned();
        }
        let (minutes, hours) = (seconds / 60, seconds / 3600);
        let days = hours / 24;
        match () {
            () if seconds < 0 => "0s".to_owned(),
            () if seconds < 60 * 2 => format!("{seconds}s"),
            () if minutes < 10 => two_units((minutes, "m"), (seconds % 60, "s")),
            () if minutes < 60 * 3 => format!("{minutes}m"),
            () if hours < 8 => two_units((hours, "h"), (minutes % 60, "m")),
            () if hours < 48 => format!("{hours}h"),
            () if hours < 24 * 8 => two_units((days, "d"), (hours % 24, "h")),
            () if hours < 24 * 365 * 2 => format!("{days}d"),
            () if hours < 24 * 365 * 8 => two_units((days / 365, "y"), (days % 365, "d")),
            () => format!("{}y", days / 365),
        }
    }

    /// One significant unit: `5s`, `3m`, `2d`.
    pub fn short_human(self) -> String {
        let seconds = self.as_secs();
        match seconds {
            ..-1 => "<invalid>".to_owned(),
            -1 => "0s".to_owned(),
            0..60 => format!("{seconds}s"),
            60..3600 => format!("{}m", seconds / 60),
            3600..86_400 => format!("{}h", seconds / 3600),
            86_400..31_536_000 => format!("{}d", seconds / 86_400),
            _ => format!("{}y", seconds / 31_536_000),
        }
    }
}

fn two_units((large, large_unit): (i64, &str), (small, small_unit): (i64, &str)) -> String {
    if small == 0 {
        return format!("{large}{large_unit}");
    }
    format!("{large}{large_unit}{small}{small_unit}")
}

/// A number with its unit, in nanoseconds, and what follows it.
fn parse_term<'a>(text: &str, term: &'a str) -> Result<(u64, &'a str), DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (whole, rest) = split_digits(term);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let unit_end = rest.bytes().position(|byte| byte == b'.' || byte.is_ascii_digit());
    let (unit, rest) = rest.split_at(unit_end.unwrap_or(rest.len()));
    let unit_nanos = match unit {
        "" => return Err(DurationError::MissingUnit(text.to_owned())),
        "ns" => 1,
        // Both the micro sign and the Greek letter.
        "us" | "µs" | "μs" => 1000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3600 * SECOND,
        unit => {
            let (unit, text) = (unit.to_owned(), text.to_owned());
            return Err(DurationError::UnknownUnit { unit, text });
        }
    };
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
    let nanos = whole.checked_mul(unit_nanos).filter(|nanos| *nanos <= MAGNITUDE_MAX);
    let nanos = nanos.ok_or_else(invalid)? + fraction_of(fraction, unit_nanos);
    if nanos > MAGNITUDE_MAX {
        return Err(invalid());
    }
    Ok((nanos, rest))
}

/// `0.fraction × unit`, cut to whole nanoseconds. Digits that no longer fit are dropped.
fn fraction_of(fraction: &str, unit_nanos: u64) -> u64 {
    let (mut number, mut scale) = (0u64, 1f64);
    for digit in fraction.bytes() {
        let longer = number.checked_mul(10).map(|n| n + u64::from(digit - b'0'));
        let Some(longer) = longer.filter(|n| *n <= MAGNITUDE_MAX) else { break };
        number = longer;
        scale *= 10.0;
    }
    (number as f64 * (unit_nanos as f64 / scale)) as u64
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        Self::parse(text)
    }
}

/// `72h3m0.5s`; below a second in the unit that fits: `1.5ms`, `2µs`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos.unsigned_abs();
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..1000 => write!(f, "{nanos}ns"),
            1000..1_000_000 => write!(f, "{}µs", with_fraction(nanos, 1000)),
            1_000_000..SECOND => write!(f, "{}ms", with_fraction(nanos, 1_000_000)),
            _ => {
                let minutes = nanos / (60 * SECOND);
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                write!(f, "{}s", with_fraction(nanos % (60 * SECOND), SECOND))
            }
        }
    }
}

/// `number / unit`, where the unit is a power of ten, without trailing zeros.
fn with_fraction(number: u64, unit: u64) -> String {
    let rest = number % unit;
    if rest == 0 {
        return (number / unit).to_string();
    }
    let width = unit.ilog10() as usize;
    let fraction = format!("{rest:0width$}");
    format!("{}.{}", number / unit, fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_printed_as_in_go() {
        let cases = [
            ("0", "0s"),
            ("-0s", "0s"),
            ("1m", "1m0s"),
            ("1.5h", "1h30m0s"),
            ("90s", "1m30s"),
            ("1h15m30.918273645s", "1h15m30.918273645s"),
            ("-2m3.4s", "-2m3.4s"),
            ("39h9m14.425s", "39h9m14.425s"),
            (".5s", "500ms"),
            ("1.s", "1s"),
            ("100ns", "100ns"),
            ("12us", "12µs"),
            ("12.3µs", "12.3µs"),
            ("12μs", "12µs"),
            ("0.3333333333333333333h", "20m0s"),
            ("9223372036854775807ns", "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
            ("100000h", "100000h0m0s"),
        ];
        for (text, expected) in cases {
            assert_eq!(Duration::parse(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_durations_get_go_error_messages() {
        let cases = [
            ("", "time: invalid duration \"\""),
            ("abc", "time: invalid duration \"abc\""),
            ("3", "time: missing unit in duration \"3\""),
            ("-", "time: invalid duration \"-\""),
            (".s", "time: invalid duration \".s\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("1s1", "time: missing unit in duration \"1s1\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            ("3000000h", "time: invalid duration \"3000000h\""),
            ("99999999999999999999s", "time: invalid duration \"99999999999999999999s\""),
            ("1é", "time: unknown unit \"\\xc3\\xa9\" in duration \"1\\xc3\\xa9\""),
        ];
        for (text, expected) in cases {
            assert_eq!(Duration::parse(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn ages_have_two_or_three_figures() {
        let cases = [
            (-2, "<invalid>", "<invalid>"),
            (-1, "0s", "0s"),
            (0, "0s", "0s"),
            (119, "119s", "1m"),
            (120, "2m", "2m"),
            (182, "3m2s", "3m"),
            (600, "10m", "10m"),
            (10_799, "179m", "2h"),
            (10_800, "3h", "3h"),
            (3 * 3600 + 60, "3h1m", "3h"),
            (8 * 3600 + 60, "8h", "8h"),
            (47 * 3600, "47h", "1d"),
            (48 * 3600, "2d", "2d"),
            (49 * 3600, "2d1h", "2d"),
            (8 * 86_400, "8d", "8d"),
            (729 * 86_400, "729d", "1y"),
            (730 * 86_400, "2y", "2y"),
            ((3 * 365 + 10) * 86_400, "3y10d", "3y"),
            (8 * 365 * 86_400 + 86_400, "8y", "8y"),
        ];
        for (seconds, human, short) in cases {
            let duration = Duration::from_secs(seconds);
            assert_eq!(
                (duration.human().as_str(), duration.short_human().as_str()),
                (human, short)
            );
        }
    }
}
