//! Cron schedules: whether one can be understood, and if not, why.

use std::num::IntErrorKind;

use meta::field::quote;

/// What is wrong with a schedule of five fields or a descriptor such as `@daily`.
pub(crate) fn schedule_error(schedule: &str) -> Option<String> {
    let mut text = schedule;
    if ["TZ=", "CRON_TZ="].iter().any(|prefix| text.starts_with(prefix)) {
        // Compat: without a blank behind the zone upstream panics, and says so.
        let Some(blank) = text.find(' ') else {
            let start = text.find('=').map_or(0, |at| at + 1);
            return Some(format!(
                "invalid schedule format: runtime error: slice bounds out of range [{start}:-1]"
            ));
        };
        text = text[blank..].trim();
    }
    if text.starts_with('@') {
        return descriptor_error(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let count = fields.len();
        return Some(format!("expected exactly 5 fields, found {count}: [{}]", fields.join(" ")));
    }
    fields.iter().zip(FIELDS).find_map(|(text, field)| {
        text.split(',')
            .filter(|range| !range.is_empty())
            .find_map(|range| range_error(range, &field))
    })
}

fn descriptor_error(text: &str) -> Option<String> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => {
            None
        }
        _ => match text.strip_prefix("@every ") {
            None => Some(format!("unrecognized descriptor: {text}")),
            Some(duration) => super::duration::error(duration)
                .map(|why| format!("failed to parse duration {text}: {why}")),
        },
    }
}

struct Bounds {
    min: u64,
    max: u64,
    /// Their values count from `min`.
    names: &'static [&'static str],
}

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds {
        min: 1,
        max: 12,
        names: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    },
    Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

/// One of `*`, `5`, `1-5`, `*/2`, `1-5/2`.
fn range_error(text: &str, bounds: &Bounds) -> Option<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = if matches!(ends[0], "*" | "?") {
        (bounds.min, bounds.max)
    } else {
        let numbers: Result<Vec<u64>, String> =
            ends.iter().take(2).map(|end| number_or_name(end, bounds)).collect();
        match numbers {
            Err(why) => return Some(why),
            Ok(_) if ends.len() > 2 => return Some(format!("too many hyphens: {text}")),
            Ok(numbers) => (numbers[0], *numbers.last().unwrap_or(&numbers[0])),
        }
    };
    let mut step = 1;
    match *parts {
        [_] => {}
        [_, by] => {
            match number(by) {
                Err(why) => return Some(why),
                Ok(by) => step = by,
            }
            if ends.len() == 1 {
                end = bounds.max;
            }
        }
        _ => return Some(format!("too many slashes: {text}")),
    }
    let (min, max) = (bounds.min, bounds.max);
    if start < min {
        return Some(format!("beginning of range ({start}) below minimum ({min}): {text}"));
    }
    if end > max {
        return Some(format!("end of range ({end}) above maximum ({max}): {text}"));
    }
    if start > end {
        return Some(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    (step == 0).then(|| format!("step of range should be a positive number: {text}"))
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let name = text.to_lowercase();
    match bounds.names.iter().position(|known| *known == name) {
        Some(at) => Ok(at as u64 + bounds.min),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let number = text.parse::<i64>().map_err(|error| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {why}", quote(text))
    })?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_understood_or_explained() {
        let cases = [
            ("*/5 * * * *", None),
            ("0 0 1 jan sun-sat", None),
            ("0,30 8-18/2 ? * MON", None),
            ("@daily", None),
            ("@every 1h30m", None),
            ("@never", Some("unrecognized descriptor: @never")),
            ("* * * *", Some("expected exactly 5 fields, found 4: [* * * *]")),
            ("60 * * * *", Some("end of range (60) above maximum (59): 60")),
            ("* * 0 * *", Some("beginning of range (0) below minimum (1): 0")),
            ("5-1 * * * *", Some("beginning of range (5) beyond end of range (1): 5-1")),
            ("*/0 * * * *", Some("step of range should be a positive number: */0")),
            ("1-2-3 * * * *", Some("too many hyphens: 1-2-3")),
            (
                "x * * * *",
                Some("failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ),
        ];
        for (schedule, expected) in cases {
            assert_eq!(schedule_error(schedule).as_deref(), expected, "{schedule}");
        }
    }
}
