//! Formats an event as a line of klog's text or JSON.

use std::fmt::{self, Write};

use jiff::Timestamp;
use jiff::civil::DateTime;
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata};

use crate::flags::quote;

/// The message, verbosity and other fields of an event.
#[derive(Default)]
pub(super) struct Fields {
    message: String,
    pub(super) verbosity: Option<u64>,
    others: Vec<(&'static str, Rendered)>,
}

enum Rendered {
    /// Numbers and booleans, which are unquoted in both formats.
    Plain(String),
    Text(String),
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = cut(format!("{value:?}"));
        } else {
            self.others.push((field.name(), Rendered::Text(cut(format!("{value:?}")))));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = cut(value.to_owned());
        } else {
            self.others.push((field.name(), Rendered::Text(cut(value.to_owned()))));
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.others.push((field.name(), Rendered::Text(cut(value.to_string()))));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "v" {
            self.verbosity = Some(value);
        } else {
            self.others.push((field.name(), Rendered::Plain(value.to_string())));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match u64::try_from(value) {
            Ok(value) if field.name() == "v" => self.verbosity = Some(value),
            _ => self.others.push((field.name(), Rendered::Plain(value.to_string()))),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.others.push((field.name(), Rendered::Plain(value.to_string())));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinity and no NaN.
        let text = value.to_string();
        let rendered = if value.is_finite() { Rendered::Plain(text) } else { Rendered::Text(text) };
        self.others.push((field.name(), rendered));
    }
}

/// A message or value, as long as it may be: paths, names and errors are made by clients, and a flood
/// of long ones must not fill the disk.
fn cut(mut text: String) -> String {
    if text.len() > VALUE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(VALUE_BYTES_MAX));
        text.push('…');
    }
    text
}

/// Long enough for the errors of this server itself.
const VALUE_BYTES_MAX: usize = 2048;

/// `I1115 21:00:00.000000   15293 chain.rs:71] "Served" verb="GET" code=200`.
pub(super) fn text(
    now: DateTime,
    process: u32,
    metadata: &Metadata<'_>,
    fields: &Fields,
) -> String {
    let letter = match *metadata.level() {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    };
    let mut line = String::with_capacity(160);
    let _ = write!(
        line,
        "{letter}{:02}{:02} {:02}:{:02}:{:02}.{:06} {process:7} {}:{}] ",
        now.month(),
        now.day(),
        now.hour(),
        now.minute(),
        now.second(),
        now.subsec_nanosecond() / 1000,
        file_name(metadata),
        metadata.line().unwrap_or(1),
    );
    // A message without fields is unquoted as in klog, but newlines are escaped: text from a client
    // must not forge a log line.
    if fields.others.is_empty() && !fields.message.contains(char::is_control) {
        line.push_str(&fields.message);
    } else {
        line.push_str(&quote(&fields.message));
    }
    for (name, value) in &fields.others {
        let _ = match value {
            Rendered::Plain(value) => write!(line, " {name}={value}"),
            Rendered::Text(value) => write!(line, " {name}={}", quote(value)),
        };
    }
    line.push('\n');
    line
}

/// `{"ts":1763240400000.123,"caller":"serve/chain.rs:71","msg":"Served","v":0,"verb":"GET"}`; the
/// time is in milliseconds, and errors have no `v`.
pub(super) fn json(now: Timestamp, metadata: &Metadata<'_>, fields: &Fields) -> String {
    let mut line = String::with_capacity(200);
    let micros = now.as_microsecond();
    let _ = write!(line, "{{\"ts\":{}.{:03}", micros.div_euclid(1000), micros.rem_euclid(1000));
    let crate_name = metadata.target().split("::").next().unwrap_or_default();
    let caller = format!("{crate_name}/{}:{}", file_name(metadata), metadata.line().unwrap_or(1));
    let _ = write!(line, ",\"caller\":{},\"msg\":{}", Json(&caller), Json(&fields.message));
    if *metadata.level() != Level::ERROR {
        let verbosity =
            fields.verbosity.unwrap_or_else(|| super::lowest_verbosity(metadata).into());
        let _ = write!(line, ",\"v\":{verbosity}");
    }
    for (name, value) in &fields.others {
        let _ = match value {
            Rendered::Plain(value) => write!(line, ",{}:{value}", Json(name)),
            Rendered::Text(value) => write!(line, ",{}:{}", Json(name), Json(value)),
        };
    }
    line.push_str("}\n");
    line
}

fn file_name<'a>(metadata: &Metadata<'a>) -> &'a str {
    metadata.file().map_or("???", |file| file.rsplit(['/', '\\']).next().unwrap_or(file))
}

/// A JSON string.
struct Json<'a>(&'a str);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
