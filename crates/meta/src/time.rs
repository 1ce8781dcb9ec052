//! Times and durations as Kubernetes reads and prints them: `metav1.Time`, `MicroTime`, Go durations
//! and the ages that `kubectl get` shows.

mod duration;
mod rfc3339;

pub use duration::{Duration, DurationError};
pub use rfc3339::TimeError;

use std::time::{SystemTime, UNIX_EPOCH};

/// An instant, as seconds and nanoseconds since 1970. Any year that RFC 3339 can write fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    seconds: i64,
    // Invariant: below one second.
    nanos: u32,
}

/// What `metav1.Time` reads.
const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
/// What `metav1.MicroTime` reads: exactly six digits of fraction.
const LAYOUT_MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";

impl Time {
    /// January 1 of the year 1: Go's zero time, which Kubernetes prints as `null`.
    pub const ZERO: Self = Self { seconds: -62_135_596_800, nanos: 0 };

    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// Whole seconds and nanoseconds since 1970; nanoseconds beyond a second are carried over.
    pub fn from_unix(seconds: i64, nanos: u32) -> Self {
        let carried = i64::from(nanos / 1_000_000_000);
        Self { seconds: seconds.saturating_add(carried), nanos: nanos % 1_000_000_000 }
    }

    /// Reads RFC 3339, as `metav1.Time` does: with or without a fraction.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        rfc3339::parse(text, LAYOUT)
    }

    /// Reads RFC 3339 with six digits of fraction, as `metav1.MicroTime` does.
    pub fn parse_micro(text: &str) -> Result<Self, TimeError> {
        rfc3339::parse(text, LAYOUT_MICRO)
    }

    pub fn unix_seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds within the second.
    pub fn nanos(self) -> u32 {
        self.nanos
    }

    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// `2006-01-02T15:04:05Z`
    pub fn to_rfc3339(self) -> String {
        let mut text = rfc3339::date_and_time(self.seconds);
        text.push('Z');
        text
    }

    /// `2006-01-02T15:04:05.000000Z`
    pub fn to_rfc3339_micro(self) -> String {
        format!("{}.{:06}Z", rfc3339::date_and_time(self.seconds), self.nanos / 1000)
    }

    /// How long after `earlier` this is; negative if it isn't.
    pub fn since(self, earlier: Self) -> Duration {
        let nanos = (i128::from(self.seconds) - i128::from(earlier.seconds)) * 1_000_000_000
            + i128::from(self.nanos)
            - i128::from(earlier.nanos);
        let limit = if nanos < 0 { i64::MIN } else { i64::MAX };
        Duration { nanos: i64::try_from(nanos).unwrap_or(limit) }
    }

    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        let nanos = i64::from(self.nanos) + duration.nanos.rem_euclid(1_000_000_000);
        let seconds = self.seconds.saturating_add(duration.nanos.div_euclid(1_000_000_000));
        Self::from_unix(seconds, nanos as u32)
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let nanos = Duration { nanos: -i64::from(before.subsec_nanos()) };
                Self { seconds: -(before.as_secs() as i64), nanos: 0 }.plus(nanos)
            }
        }
    }
}

/// Now, as `metav1.Time` prints it.
pub fn now() -> String {
    Time::now().to_rfc3339()
}

/// Now, as `metav1.MicroTime` prints it.
pub fn now_micro() -> String {
    Time::now().to_rfc3339_micro()
}

/// The age of something created at `created`, as `kubectl get` prints it; `<unknown>` where it
/// doesn't say.
pub fn age(created: &str, now: Time) -> String {
    match Time::parse(created) {
        Ok(created) if !created.is_zero() => now.since(created).human(),
        _ => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_in_utc() {
        let cases = [
            ("2024-02-29T12:34:56Z", "2024-02-29T12:34:56Z", "2024-02-29T12:34:56.000000Z"),
            ("2024-01-01T00:30:00+01:00", "2023-12-31T23:30:00Z", "2023-12-31T23:30:00.000000Z"),
            (
                "1999-12-31T23:59:59.999999999-08:00",
                "2000-01-01T07:59:59Z",
                "2000-01-01T07:59:59.999999Z",
            ),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000000Z"),
            ("9999-12-31T23:59:59-01:00", "10000-01-01T00:59:59Z", "10000-01-01T00:59:59.000000Z"),
            ("0000-01-01T00:00:00+01:00", "-0001-12-31T23:00:00Z", "-0001-12-31T23:00:00.000000Z"),
            ("2024-01-01T5:00:00,25Z", "2024-01-01T05:00:00Z", "2024-01-01T05:00:00.250000Z"),
            ("2024-01-01T00:00:00+24:60", "2023-12-30T23:00:00Z", "2023-12-30T23:00:00.000000Z"),
        ];
        for (text, seconds, micro) in cases {
            let time = Time::parse(text).unwrap();
            assert_eq!(time.to_rfc3339(), seconds, "{text}");
            assert_eq!(time.to_rfc3339_micro(), micro, "{text}");
        }
    }

    #[test]
    fn micro_times_have_six_digits() {
        let time = Time::parse_micro("2024-02-29T12:34:56.123456+00:00").unwrap();
        assert_eq!(time.to_rfc3339_micro(), "2024-02-29T12:34:56.123456Z");
        assert_eq!(
            Time::parse_micro("2024-02-29T12:34:56.123Z").unwrap_err().to_string(),
            "parsing time \"2024-02-29T12:34:56.123Z\" as \
             \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \".123Z\" as \".000000\""
        );
    }

    #[test]
    fn invalid_times_get_go_error_messages() {
        let cannot = |text: &str, rest: &str, part: &str| {
            format!(
                "parsing time \"{text}\" as \"2006-01-02T15:04:05Z07:00\": \
                 cannot parse \"{rest}\" as \"{part}\""
            )
        };
        let cases = [
            ("x", cannot("x", "x", "2006")),
            ("", cannot("", "", "2006")),
            ("2024", cannot("2024", "", "-")),
            ("2024-1-01T00:00:00Z", cannot("2024-1-01T00:00:00Z", "1-01T00:00:00Z", "01")),
            ("2024-01-01", cannot("2024-01-01", "", "T")),
            ("2024-01-01 00:00:00Z", cannot("2024-01-01 00:00:00Z", " 00:00:00Z", "T")),
            ("2024-01-01T00:00:00", cannot("2024-01-01T00:00:00", "", "Z07:00")),
            ("2024-01-01T00:00:00z", cannot("2024-01-01T00:00:00z", "z", "Z07:00")),
            (
                "2024-13-01T00:00:00Z",
                "parsing time \"2024-13-01T00:00:00Z\": month out of range".to_owned(),
            ),
            (
                "2023-02-29T00:00:00Z",
                "parsing time \"2023-02-29T00:00:00Z\": day out of range".to_owned(),
            ),
            (
                "2024-01-01T24:00:00Z",
                "parsing time \"2024-01-01T24:00:00Z\": hour out of range".to_owned(),
            ),
            (
                "2024-01-01T00:00:00Zx",
                "parsing time \"2024-01-01T00:00:00Zx\": extra text: \"x\"".to_owned(),
            ),
            (
                "2024-01-01T00:00:00+25:00",
                "parsing time \"2024-01-01T00:00:00+25:00\": time zone offset hour out of range"
                    .to_owned(),
            ),
            ("é\"", cannot("\\xc3\\xa9\\\"", "\\xc3\\xa9\\\"", "2006")),
        ];
        for (text, expected) in cases {
            assert_eq!(Time::parse(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn adding_and_subtracting_durations() {
        let start = Time::parse("2024-01-01T00:00:00.75Z").unwrap();
        let later = start.plus(Duration { nanos: 1_500_000_000 });
        assert_eq!(later.to_rfc3339_micro(), "2024-01-01T00:00:02.250000Z");
        assert_eq!(later.since(start).to_string(), "1.5s");
        assert_eq!(
            start.plus(start.since(later)).to_rfc3339_micro(),
            "2023-12-31T23:59:59.250000Z"
        );
        assert_eq!(age("2024-01-01T00:00:00Z", later), "2s");
        assert_eq!(age("", later), "<unknown>");
        assert_eq!(Time::from(UNIX_EPOCH - std::time::Duration::from_millis(1500)).seconds, -2);
    }
}
