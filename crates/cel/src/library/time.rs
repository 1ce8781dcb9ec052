//! The parts of timestamps, in UTC or elsewhere, and of durations.

use crate::functions::{FunctionOp, Functions};
use crate::time::{Civil, Timestamp};
use crate::types::Type;
use crate::value::{EvalError, EvalResult, NO_SUCH_OVERLOAD, Val};

type TimestampField = fn(Timestamp, Civil) -> i64;

pub(super) fn declare(f: &mut Functions) {
    macro_rules! part {
        ($name:literal, $id:literal, $zoned:literal, $part:expr) => {
            f.member($name, $id, &[Type::Timestamp], Type::Int, |args| read(args, $part));
            let args = [Type::Timestamp, Type::String];
            f.member($name, $zoned, &args, Type::Int, |args| read(args, $part));
        };
    }
    part!("getFullYear", "timestamp_to_year", "timestamp_to_year_with_tz", |_, c| c.year);
    part!("getMonth", "timestamp_to_month", "timestamp_to_month_with_tz", |_, c| c.month - 1);
    part!(
        "getDayOfYear",
        "timestamp_to_day_of_year",
        "timestamp_to_day_of_year_with_tz",
        |_, c| c.day_of_year
    );
    part!(
        "getDayOfMonth",
        "timestamp_to_day_of_month",
        "timestamp_to_day_of_month_with_tz",
        |_, c| c.day - 1
    );
    part!(
        "getDate",
        "timestamp_to_day_of_month_1_based",
        "timestamp_to_day_of_month_1_based_with_tz",
        |_, c| c.day
    );
    part!(
        "getDayOfWeek",
        "timestamp_to_day_of_week",
        "timestamp_to_day_of_week_with_tz",
        |_, c| c.day_of_week
    );
    part!("getHours", "timestamp_to_hours", "timestamp_to_hours_with_tz", |_, c| c.second_of_day
        / 3600);
    part!("getMinutes", "timestamp_to_minutes", "timestamp_to_minutes_with_tz", |_, c| c
        .second_of_day
        / 60
        % 60);
    part!("getSeconds", "timestamp_to_seconds", "timestamp_to_seconds_tz", |_, c| c.second_of_day
        % 60);
    part!(
        "getMilliseconds",
        "timestamp_to_milliseconds",
        "timestamp_to_milliseconds_with_tz",
        |time, _| i64::from(time.nanos) / 1_000_000
    );
    let durations: [(&'static str, &'static str, FunctionOp); 4] = [
        ("getHours", "duration_to_hours", |args| of_duration(args, 3_600_000_000_000)),
        ("getMinutes", "duration_to_minutes", |args| of_duration(args, 60_000_000_000)),
        ("getSeconds", "duration_to_seconds", |args| of_duration(args, 1_000_000_000)),
        ("getMilliseconds", "duration_to_milliseconds", |args| of_duration(args, 1_000_000)),
    ];
    for (name, id, op) in durations {
        f.member(name, id, &[Type::Duration], Type::Int, op);
    }
}

fn of_duration<'a>(args: &[Val<'a>], unit: i64) -> EvalResult<'a> {
    match &args[0] {
        Val::Duration(duration) => Ok(Val::Int(duration.0 / unit)),
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

fn read<'a>(args: &[Val<'a>], part: TimestampField) -> EvalResult<'a> {
    let (time, offset) = match args {
        [Val::Timestamp(time)] => (time, 0),
        [Val::Timestamp(time), Val::String(zone)] => (time, offset_of(*time, zone.as_str())?),
        _ => return Err(NO_SUCH_OVERLOAD),
    };
    Ok(Val::Int(part(*time, time.civil(offset))))
}

/// Seconds east of UTC: of an offset (`-08:00`), or of a zone's name at that moment.
fn offset_of(time: Timestamp, zone: &str) -> Result<i32, EvalError> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let number = |text: &str| {
            text.parse::<i32>().map_err(|_| {
                let text = meta::field::quote(text);
                EvalError::Failed(format!("strconv.Atoi: parsing {text}: invalid syntax").into())
            })
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let minutes = if zone.starts_with('-') { -minutes } else { minutes };
        return Ok(hours.saturating_mul(60).saturating_add(minutes).saturating_mul(60));
    }
    if matches!(zone, "" | "UTC") {
        return Ok(0);
    }
    let unknown = || EvalError::Failed(format!("unknown time zone {zone}").into());
    let found = jiff::tz::TimeZone::get(zone).map_err(|_| unknown())?;
    let moment = jiff::Timestamp::from_second(time.seconds).map_err(|_| unknown())?;
    Ok(found.to_offset(moment).seconds())
}
