//! RFC 3339 as Go's `time.Parse` reads it, with Go's words for what it cannot read.

use std::fmt::Write as _;

use thiserror::Error;

use super::Time;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TimeError {
    #[error(
        "parsing time {} as {}: cannot parse {} as {}",
        quote(.text), quote(.layout), quote(.rest), quote(.part)
    )]
    Syntax { text: String, layout: &'static str, rest: String, part: &'static str },
    #[error("parsing time {}: {what} out of range", quote(.text))]
    Range { text: String, what: &'static str },
    #[error("parsing time {}: extra text: {}", quote(.text), quote(.rest))]
    Extra { text: String, rest: String },
}

/// Walks along the layout, which must be one of the two in the parent module.
pub(super) fn parse(text: &str, layout: &'static str) -> Result<Time, TimeError> {
    let mut reader = Reader { text, rest: text, layout };
    let year = reader.year()?;
    reader.literal("-")?;
    let month = reader.number("01", 2)?;
    reader.in_range("month", month, 1..=12)?;
    reader.literal("-")?;
    let day = reader.number("02", 2)?;
    reader.literal("T")?;
    // Go takes an hour of one digit.
    let hour = reader.number("15", 1)?;
    reader.in_range("hour", hour, 0..=23)?;
    reader.literal(":")?;
    let minute = reader.number("04", 2)?;
    reader.in_range("minute", minute, 0..=59)?;
    reader.literal(":")?;
    let second = reader.number("05", 2)?;
    reader.in_range("second", second, 0..=59)?;
    let nanos = if layout == super::LAYOUT_MICRO { reader.micros()? } else { reader.fraction() };
    let offset = reader.offset()?;
    if !reader.rest.is_empty() {
        return Err(TimeError::Extra { text: text.to_owned(), rest: reader.rest.to_owned() });
    }
    reader.in_range("day", day, 1..=days_in(month, year))?;
    let days = days_since_1970(i64::from(year), i64::from(month), i64::from(day));
    let seconds = days * 86_400 + i64::from(hour * 3600 + minute * 60 + second) - offset;
    Ok(Time { seconds, nanos })
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Reader<'_> {
    fn year(&mut self) -> Result<u32, TimeError> {
        let digits = self.rest.as_bytes().first_chunk::<4>();
        let Some(digits) = digits.filter(|digits| digits.iter().all(u8::is_ascii_digit)) else {
            return Err(self.syntax(self.rest, "2006"));
        };
        self.rest = &self.rest[4..];
        Ok(digits.iter().fold(0, |year, digit| year * 10 + u32::from(digit - b'0')))
    }

    fn literal(&mut self, part: &'static str) -> Result<(), TimeError> {
        let Some(rest) = self.rest.strip_prefix(part) else {
            return Err(self.syntax(self.rest, part));
        };
        self.rest = rest;
        Ok(())
    }

    /// One or two digits, at least `digits_min`.
    fn number(&mut self, part: &'static str, digits_min: usize) -> Result<u32, TimeError> {
        let digits = self.rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
        if digits < digits_min {
            return Err(self.syntax(self.rest, part));
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        Ok(number.parse().expect("one or two digits"))
    }

    /// A fraction where the layout has none: any number of digits, or nothing.
    fn fraction(&mut self) -> u32 {
        let Some(rest) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return 0;
        }
        let (fraction, rest) = rest.split_at(digits);
        self.rest = rest;
        nanos_of(fraction)
    }

    fn micros(&mut self) -> Result<u32, TimeError> {
        let fraction = self.rest.strip_prefix(['.', ',']).and_then(|rest| rest.get(..6));
        match fraction {
            Some(fraction) if fraction.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.rest = &self.rest[7..];
                Ok(nanos_of(fraction))
            }
            _ => Err(self.syntax(self.rest, ".000000")),
        }
    }

    /// `Z` or `+01:00`, in seconds east of UTC.
    fn offset(&mut self) -> Result<i64, TimeError> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let part = "Z07:00";
        let bytes = self.rest.as_bytes().first_chunk::<6>();
        let Some(&[sign, h1, h2, b':', m1, m2]) = bytes else {
            return Err(self.syntax(self.rest, part));
        };
        if ![h1, h2, m1, m2].iter().all(u8::is_ascii_digit) {
            return Err(self.syntax(self.rest, part));
        }
        let hours = u32::from(h1 - b'0') * 10 + u32::from(h2 - b'0');
        let minutes = u32::from(m1 - b'0') * 10 + u32::from(m2 - b'0');
        // Some people do write offsets of 24 hours or 60 minutes.
        self.in_range("time zone offset hour", hours, 0..=24)?;
        self.in_range("time zone offset minute", minutes, 0..=60)?;
        let seconds = i64::from((hours * 60 + minutes) * 60);
        let offset = match sign {
            b'+' => seconds,
            b'-' => -seconds,
            _ => return Err(self.syntax(self.rest, part)),
        };
        self.rest = &self.rest[6..];
        Ok(offset)
    }

    fn in_range(
        &self,
        what: &'static str,
        number: u32,
        range: std::ops::RangeInclusive<u32>,
    ) -> Result<(), TimeError> {
        if range.contains(&number) {
            return Ok(());
        }
        Err(TimeError::Range { text: self.text.to_owned(), what })
    }

    fn syntax(&self, rest: &str, part: &'static str) -> TimeError {
        let (text, rest) = (self.text.to_owned(), rest.to_owned());
        TimeError::Syntax { text, layout: self.layout, rest, part }
    }
}

/// The first nine digits of a fraction count.
fn nanos_of(fraction: &str) -> u32 {
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    digits.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'))
}

fn days_in(month: u32, year: u32) -> u32 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// The Gregorian calendar, counted in years that begin in March so that leap days come last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - 719_468
}

/// `2006-01-02T15:04:05` of seconds since 1970.
pub(super) fn date_and_time(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year + i64::from(month >= 10);
    let month = if month < 10 { month + 3 } else { month - 9 };
    let sign = if year < 0 { "-" } else { "" };
    format!(
        "{sign}{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        year.unsigned_abs(),
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// How Go's time package quotes: everything that isn't printable ASCII byte by byte.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..0x80 => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
    out
}
