//! The typed value of a flag, and how each type parses its arguments.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::go::{
    format_duration, parse_bool, parse_decimal, parse_duration, parse_float, parse_int,
    parse_level, parse_uint, quote, read_csv, write_csv,
};
use super::{Flag, FlagKind};
use crate::version;

/// The value of a flag. Integers are not narrowed, so that validation can report what was given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Int32s(Vec<i32>),
    Float(f64),
    /// Nanoseconds; Go's durations may be negative.
    Duration(i64),
    Ip(Option<IpAddr>),
    Text(String),
    Texts(Vec<String>),
    Map(BTreeMap<String, String>),
    /// Texts by component; "" without a component.
    Gates(BTreeMap<String, Vec<String>>),
    PortRange(PortRange),
    CertKeys(Vec<NamedCertKey>),
    Level(u32),
    /// File patterns with their verbosities.
    VModule(Vec<(String, u32)>),
    Version(VersionFlag),
}

/// `size` ports from `base` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PortRange {
    pub(crate) base: u16,
    pub(crate) size: u32,
}

impl PortRange {
    pub(crate) fn contains(self, port: i64) -> bool {
        let base = i64::from(self.base);
        (base..base + i64::from(self.size)).contains(&port)
    }

    /// First and last port; the last is before the first if the range is empty.
    pub(crate) fn bounds(self) -> (u16, u16) {
        match u16::try_from(u32::from(self.base) + self.size) {
            _ if self.size == 0 => (1, 0),
            Ok(end) => (self.base, end - 1),
            Err(_) => (self.base, u16::MAX),
        }
    }
}

/// A certificate with its key and the host names that it is for; by default those of the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedCertKey {
    pub(crate) cert_file: String,
    pub(crate) key_file: String,
    pub(crate) names: Vec<String>,
}

/// The value of `--version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VersionFlag {
    Off,
    Print,
    PrintRaw,
    /// Report this version instead.
    Report(String),
}

impl Value {
    pub(super) fn default_of(flag: &Flag) -> Self {
        let mut value = Self::zero(flag.kind);
        if !flag.default.is_empty() {
            value
                .set(flag.kind, flag.default, true)
                .expect("a default is a valid value, which a test checks for every flag");
        }
        value
    }

    fn zero(kind: FlagKind) -> Self {
        match kind {
            FlagKind::Bool => Self::Bool(false),
            FlagKind::Int => Self::Int(0),
            FlagKind::Uint => Self::Uint(0),
            FlagKind::Int32s => Self::Int32s(Vec::new()),
            FlagKind::Float | FlagKind::Float32 => Self::Float(0.0),
            FlagKind::Duration => Self::Duration(0),
            FlagKind::Ip => Self::Ip(None),
            FlagKind::Text | FlagKind::Quantity => Self::Text(String::new()),
            FlagKind::Texts | FlagKind::TextArray => Self::Texts(Vec::new()),
            FlagKind::Pair | FlagKind::Configuration | FlagKind::TextMap => {
                Self::Map(BTreeMap::new())
            }
            FlagKind::Gates => Self::Gates(BTreeMap::new()),
            FlagKind::PortRange => Self::PortRange(PortRange::default()),
            FlagKind::CertKeys => Self::CertKeys(Vec::new()),
            FlagKind::Level => Self::Level(0),
            FlagKind::VModule => Self::VModule(Vec::new()),
            FlagKind::Version => Self::Version(VersionFlag::Off),
        }
    }

    /// Applies one occurrence of the flag. The first one replaces the default; further ones are appended
    /// to lists and maps.
    pub(super) fn set(&mut self, kind: FlagKind, text: &str, first: bool) -> Result<(), String> {
        // Compat: an empty address keeps the previous value.
        if kind == FlagKind::Ip && text.is_empty() {
            return Ok(());
        }
        if first {
            *self = Self::zero(kind);
        }
        match self {
            Self::Bool(value) => *value = parse_bool(text)?,
            Self::Int(value) => *value = parse_int(text, 64)?,
            Self::Uint(value) => *value = parse_uint(text)?,
            Self::Int32s(values) => {
                for part in text.split(',') {
                    values.push(parse_int(part, 32)? as i32);
                }
            }
            Self::Float(value) => *value = parse_float(text)?,
            Self::Duration(value) => *value = parse_duration(text)?,
            Self::Ip(value) => {
                let ip = text.trim().parse();
                *value = Some(ip.map_err(|_| format!("failed to parse IP: {}", quote(text)))?);
            }
            Self::Text(value) => {
                if kind == FlagKind::Quantity {
                    check_quantity(text)?;
                }
                text.clone_into(value);
            }
            Self::Texts(values) if kind == FlagKind::TextArray => values.push(text.to_owned()),
            // Compat: an empty argument adds nothing, while `a,,b` has an empty item.
            Self::Texts(_) if text.is_empty() => {}
            Self::Texts(values) => values.extend(read_csv(text)?),
            Self::Map(pairs) => match kind {
                FlagKind::Pair => insert_pair(pairs, text)?,
                FlagKind::Configuration => insert_configuration(pairs, text),
                _ => insert_text_map(pairs, text)?,
            },
            Self::Gates(gates) => insert_gates(gates, text),
            Self::PortRange(range) => *range = parse_port_range(text)?,
            Self::CertKeys(pairs) => pairs.push(parse_cert_key(text)?),
            Self::Level(level) => *level = parse_level(text)?,
            Self::VModule(patterns) => extend_vmodule(patterns, text)?,
            Self::Version(flag) => *flag = parse_version(text)?,
        }
        Ok(())
    }
}

/// Only validated: the one such flag is the size of a buffer that Pintle does not have.
fn check_quantity(text: &str) -> Result<(), String> {
    const SUFFIXES: &[&str] =
        &["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let is_number = number.bytes().any(|b| b.is_ascii_digit()) && number.matches('.').count() < 2;
    let is_exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|e| e.parse::<i32>().is_ok());
    if is_number && (SUFFIXES.contains(&suffix) || is_exponent) {
        return Ok(());
    }
    Err("quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        .to_owned())
}

fn insert_pair(pairs: &mut BTreeMap<String, String>, text: &str) -> Result<(), String> {
    let (key, value) = text.split_once('=').ok_or("malformed pair, expect string=string")?;
    pairs.insert(key.trim().to_owned(), value.trim().to_owned());
    Ok(())
}

fn insert_configuration(pairs: &mut BTreeMap<String, String>, text: &str) {
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        pairs.insert(key.trim().to_owned(), value.trim().to_owned());
    }
}

fn insert_text_map(pairs: &mut BTreeMap<String, String>, text: &str) -> Result<(), String> {
    let parts = match text.matches('=').count() {
        // Compat: a single pair is not read as CSV, so its value may hold commas.
        1 => vec![text.trim_matches('"').to_owned()],
        0 => vec![text.to_owned()],
        _ => read_csv(text)?,
    };
    for part in parts {
        let malformed = || format!("{part} must be formatted as key=value");
        let (key, value) = part.split_once('=').ok_or_else(malformed)?;
        pairs.insert(key.to_owned(), value.to_owned());
    }
    Ok(())
}

fn insert_gates(gates: &mut BTreeMap<String, Vec<String>>, text: &str) {
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (component, gate) = part.split_once(':').unwrap_or(("", part));
        gates.entry(component.trim().to_owned()).or_default().push(gate.trim().to_owned());
    }
}

fn parse_port_range(text: &str) -> Result<PortRange, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(PortRange::default());
    }
    let (low, high) = match (text.split_once('-'), text.split_once('+')) {
        (None, None) => {
            let port = parse_decimal(text)?;
            (port, port)
        }
        (Some((low, high)), None) => (parse_decimal(low)?, parse_decimal(high)?),
        (None, Some((low, offset))) => {
            let low = parse_decimal(low)?;
            (low, low.saturating_add(parse_decimal(offset)?))
        }
        (Some(_), Some(_)) => return Err(format!("unable to parse port range: {text}")),
    };
    if low > 65535 || high > 65535 {
        return Err(format!("the port range cannot be greater than 65535: {text}"));
    }
    if high < low {
        return Err(format!("end port cannot be less than start port: {text}"));
    }
    let base = u16::try_from(low).map_err(|_| format!("unable to parse port range: {text}"))?;
    Ok(PortRange { base, size: (high - low + 1) as u32 })
}

fn parse_cert_key(text: &str) -> Result<NamedCertKey, String> {
    let (pair, names) = match text.split_once(':') {
        Some((_, names)) if names.trim().is_empty() => {
            return Err("empty names list is not allowed".to_owned());
        }
        Some((pair, names)) => {
            (pair, names.trim().split(',').map(|name| name.trim().to_owned()).collect())
        }
        None => (text, Vec::new()),
    };
    match pair.split(',').collect::<Vec<_>>()[..] {
        [cert, key] => {
            let (cert_file, key_file) = (cert.trim().to_owned(), key.trim().to_owned());
            Ok(NamedCertKey { cert_file, key_file, names })
        }
        _ => Err("expected comma separated certificate and key file paths".to_owned()),
    }
}

fn extend_vmodule(patterns: &mut Vec<(String, u32)>, text: &str) -> Result<(), String> {
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let malformed = || format!("{} does not have the pattern=N format", quote(part));
        let (pattern, level) = part.split_once('=').ok_or_else(malformed)?;
        if pattern.is_empty() || level.is_empty() || level.contains('=') {
            return Err(malformed());
        }
        let level = parse_level(level)
            .map_err(|error| format!("parsing verbosity in {}: {error}", quote(part)))?;
        patterns.push((pattern.to_owned(), level));
    }
    Ok(())
}

fn parse_version(text: &str) -> Result<VersionFlag, String> {
    if text == "raw" {
        return Ok(VersionFlag::PrintRaw);
    }
    if text.starts_with('v') {
        version::check_override(text)?;
        return Ok(VersionFlag::Report(text.to_owned()));
    }
    Ok(if parse_bool(text)? { VersionFlag::Print } else { VersionFlag::Off })
}

/// The value as a flag would be written, for the log of all flags at the start.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Level(value) => write!(f, "{value}"),
            Self::Duration(nanos) => f.write_str(&format_duration(*nanos)),
            Self::Ip(ip) => ip.map_or(Ok(()), |ip| write!(f, "{ip}")),
            Self::Text(text) => f.write_str(text),
            Self::Texts(texts) => write!(f, "[{}]", write_csv(texts)),
            Self::Int32s(values) => {
                let values: Vec<_> = values.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", values.join(","))
            }
            Self::Map(pairs) => {
                let pairs: Vec<_> =
                    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
                f.write_str(&pairs.join(","))
            }
            Self::Gates(gates) => {
                let each = gates.iter().flat_map(|(component, gates)| {
                    gates.iter().map(move |gate| format!("{component}:{gate}"))
                });
                f.write_str(&each.collect::<Vec<_>>().join(","))
            }
            Self::PortRange(range) if range.size == 0 => Ok(()),
            Self::PortRange(PortRange { base, size }) => {
                write!(f, "{base}-{}", u32::from(*base) + size - 1)
            }
            Self::CertKeys(pairs) => {
                let pairs: Vec<_> = pairs.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", pairs.join(";"))
            }
            Self::VModule(patterns) => {
                let patterns: Vec<_> =
                    patterns.iter().map(|(p, level)| format!("{p}={level}")).collect();
                f.write_str(&patterns.join(","))
            }
            Self::Version(VersionFlag::Off) => f.write_str("false"),
            Self::Version(VersionFlag::Print) => f.write_str("true"),
            Self::Version(VersionFlag::PrintRaw) => f.write_str("raw"),
            Self::Version(VersionFlag::Report(version)) => f.write_str(version),
        }
    }
}

impl fmt::Display for NamedCertKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.cert_file, self.key_file)?;
        if self.names.is_empty() { Ok(()) } else { write!(f, ":{}", self.names.join(",")) }
    }
}
