//! Timestamps and durations of CEL: Go's ranges and Go's text formats.

/// The seconds of 0001-01-01T00:00:00Z and of 9999-12-31T23:59:59Z.
const UNIX_MIN: i64 = -62_135_596_800;
const UNIX_MAX: i64 = 253_402_300_799;

const NANOS: i64 = 1_000_000_000;

/// Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub i64);

/// A moment. The offset is how it was written; moments compare without it.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanos: u32,
    /// Seconds east of UTC.
    pub offset: i32,
}

/// A time that was read; none if it is out of the range of timestamps.
pub(crate) struct ParsedTimestamp(pub(crate) Option<Timestamp>);

/// A moment's date and time of day somewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// From 1.
    pub(crate) month: i64,
    /// From 1.
    pub(crate) day: i64,
    /// From 0.
    pub(crate) day_of_year: i64,
    /// From 0, which is Sunday.
    pub(crate) day_of_week: i64,
    pub(crate) second_of_day: i64,
}

impl Duration {
    /// Go's `time.ParseDuration`: `1h30m`, `-1.5s`, `100ms`.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, mut rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Some(Self(0));
        }
        if rest.is_empty() {
            return None;
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
            let whole = digits(rest);
            let mut value: u64 = if whole > 0 { rest[..whole].parse().ok()? } else { 0 };
            rest = &rest[whole..];
            let mut fraction = "";
            if let Some(after) = rest.strip_prefix('.') {
                fraction = &after[..digits(after)];
                rest = &after[fraction.len()..];
            }
            if whole == 0 && fraction.is_empty() {
                return None;
            }
            let unit = rest.bytes().take_while(|b| *b != b'.' && !b.is_ascii_digit()).count();
            let scale: u64 = match &rest[..unit] {
                "ns" => 1,
                "us" | "µs" | "μs" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "m" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                _ => return None,
            };
            rest = &rest[unit..];
            value = value.checked_mul(scale).filter(|value| *value <= 1 << 63)?;
            if !fraction.is_empty() {
                // More digits than a nanosecond has are beyond what counts.
                let kept = &fraction[..fraction.len().min(18)];
                let part: f64 = kept.parse::<u64>().ok()? as f64;
                value += (part * (scale as f64 / 10f64.powi(kept.len() as i32))) as u64;
            }
            total = total.checked_add(value).filter(|total| *total <= 1 << 63)?;
        }
        if negative {
            return Some(Self((total as i64).wrapping_neg()));
        }
        i64::try_from(total).ok().map(Self)
    }

    /// The names of units; of the last name of each, a prefix is enough.
    const UNITS: [(&[&str], i64); 8] = [
        (&["ns", "nano"], 1),
        (&["us", "µs", "micro"], 1_000),
        (&["ms", "milli"], 1_000_000),
        (&["s", "sec"], NANOS),
        (&["m", "min"], 60 * NANOS),
        (&["h", "hr", "hour"], 3_600 * NANOS),
        (&["d", "day"], 86_400 * NANOS),
        (&["w", "wk", "week"], 604_800 * NANOS),
    ];

    /// As OpenAPI's format `duration` is read: Go's, or words as in `3 days`.
    pub(crate) fn parse_open_api(text: &str) -> Option<Self> {
        if let Some(duration) = Self::parse(text) {
            return Some(duration);
        }
        let mut total: Option<i64> = None;
        let mut rest = text;
        while let Some(begin) = rest.find(|c: char| c.is_ascii_digit()) {
            rest = &rest[begin..];
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let factor: i64 = rest[..digits].parse().ok()?;
            let after = rest[digits..].trim_start();
            let end = after.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ');
            let unit = after[..end.unwrap_or(after.len())].to_lowercase();
            rest = &after[unit.len().min(after.len())..];
            for (names, scale) in Self::UNITS {
                let last = names.len() - 1;
                for (at, name) in names.iter().enumerate() {
                    if unit == *name || (at == last && unit.starts_with(name)) {
                        total = Some(total.unwrap_or(0).wrapping_add(factor.wrapping_mul(scale)));
                    }
                }
            }
        }
        total.map(Self)
    }

    pub(crate) fn seconds(self) -> f64 {
        (self.0 / NANOS) as f64 + (self.0 % NANOS) as f64 / 1e9
    }

    /// `1.5s`
    pub(crate) fn text(self) -> String {
        format!("{}s", self.seconds())
    }
}

impl Timestamp {
    /// A moment in the years 1 to 9999.
    pub(crate) fn new(seconds: i64, nanos: u32, offset: i32) -> Option<Self> {
        (UNIX_MIN..=UNIX_MAX).contains(&seconds).then_some(Self { seconds, nanos, offset })
    }

    /// Go's `time.RFC3339`; none if the text is no time.
    pub(crate) fn parse(text: &str) -> Option<ParsedTimestamp> {
        let bytes = text.as_bytes();
        if bytes.len() < 20 || bytes[4] != b'-' || bytes[7] != b'-' || bytes[10] != b'T' {
            return None;
        }
        let number = |from: usize, to: usize| -> Option<i64> {
            let digits = text.get(from..to)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let days = days_of(number(0, 4)?, number(5, 7)?, number(8, 10)?)?;
        // Compat: Go reads an hour of one digit as well.
        let hour_end = if bytes[12] == b':' { 12 } else { 13 };
        let hour = number(11, hour_end)?;
        let (minute, second) =
            (number(hour_end + 1, hour_end + 3)?, number(hour_end + 4, hour_end + 6)?);
        if bytes[hour_end] != b':' || *bytes.get(hour_end + 3)? != b':' {
            return None;
        }
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut rest = &text[hour_end + 6..];
        let mut nanos = 0;
        if let Some(fraction) = rest.strip_prefix(['.', ',']) {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return None;
            }
            nanos = format!("{:0<9}", &fraction[..digits.min(9)]).parse().ok()?;
            rest = &fraction[digits..];
        }
        let offset = match rest.as_bytes() {
            [b'Z'] => 0,
            [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2]
                if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()) =>
            {
                let pair = |a: u8, b: u8| i32::from(a - b'0') * 10 + i32::from(b - b'0');
                let (hours, minutes) = (pair(*h1, *h2), pair(*m1, *m2));
                if hours > 24 || minutes > 60 {
                    return None;
                }
                let east = hours * 3600 + minutes * 60;
                if *sign == b'-' { -east } else { east }
            }
            _ => return None,
        };
        let local = days * 86_400 + hour * 3_600 + minute * 60 + second;
        Some(ParsedTimestamp(Self::new(local - i64::from(offset), nanos, offset)))
    }

    /// OpenAPI's format `date`.
    pub(crate) fn parse_date(text: &str) -> Option<Self> {
        if text.len() != 10 {
            return None;
        }
        Self::parse(&format!("{text}T00:00:00Z"))?.0
    }

    /// OpenAPI's format `date-time`: also without seconds' colon rules that RFC 3339 has.
    pub(crate) fn parse_open_api(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Self::new(0, 0, 0);
        }
        if let Some(parsed) = Self::parse(text) {
            return parsed.0;
        }
        // `+0000` instead of `+00:00`.
        let (head, zone) = text.split_at_checked(text.len().checked_sub(5)?)?;
        if zone.starts_with(['+', '-']) {
            return Self::parse(&format!("{head}{}:{}", &zone[..3], &zone[3..]))?.0;
        }
        None
    }

    pub(crate) fn cmp(self, other: Self) -> std::cmp::Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }

    pub(crate) fn is_zero(self) -> bool {
        self.seconds == UNIX_MIN && self.nanos == 0
    }

    /// None if it leaves the range of timestamps.
    pub(crate) fn plus(self, duration: Duration) -> Option<Self> {
        let nanos = i64::from(self.nanos) + duration.0.rem_euclid(NANOS);
        let seconds = self.seconds + duration.0.div_euclid(NANOS) + nanos / NANOS;
        Self::new(seconds, (nanos % NANOS) as u32, self.offset)
    }

    /// None if it is more than a duration holds.
    pub(crate) fn minus(self, other: Self) -> Option<Duration> {
        let nanos = i64::from(self.nanos) - i64::from(other.nanos);
        let seconds = self.seconds - other.seconds;
        seconds.checked_mul(NANOS)?.checked_add(nanos).map(Duration)
    }

    pub(crate) fn civil(self, offset: i32) -> Civil {
        let local = self.seconds + i64::from(offset);
        let (days, second_of_day) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = civil_of(days);
        let begin = days_of(year, 1, 1).expect("the first of January exists");
        Civil {
            year,
            month,
            day,
            day_of_year: days - begin,
            day_of_week: (days + 4).rem_euclid(7),
            second_of_day,
        }
    }

    /// Go's `time.RFC3339Nano`, at the offset it was written with.
    pub(crate) fn text(self, offset: i32) -> String {
        let civil = self.civil(offset);
        let second = civil.second_of_day;
        let mut text = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            civil.year,
            civil.month,
            civil.day,
            second / 3600,
            second / 60 % 60,
            second % 60
        );
        if self.nanos > 0 {
            let fraction = format!(".{:09}", self.nanos);
            text.push_str(fraction.trim_end_matches('0'));
        }
        if offset == 0 {
            text.push('Z');
        } else {
            let minutes = offset.abs() / 60;
            let sign = if offset < 0 { '-' } else { '+' };
            text.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
        }
        text
    }
}

/// Days since 1970-01-01; none for a date that does not exist.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Years begin in March, so that the leap day is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

/// Year, month and day of a day since 1970-01-01.
fn civil_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}
