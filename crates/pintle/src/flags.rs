//! The flags: kube-apiserver's names, types and meanings, each defined once in a row of a table.
//!
//! Everything else is derived from the rows: the parser (`parse.rs`), the typed values (`value.rs`),
//! `--help`, the test against `tests/flags.tsv`. A row begins with the effect of the flag: [`done`]
//! or [`harmless`]; implementing a flag means changing that word and reading the flag in
//! `options.rs`.

mod access;
mod auditing;
mod etcd;
mod generic;
mod go;
mod misc;
mod operations;
mod parse;
mod serving;
mod value;

pub(crate) use go::{format_duration, parse_bool, quote};
pub(crate) use parse::{Parsed, parse};
pub(crate) use value::{NamedCertKey, PortRange, Value, VersionFlag};

/// The sections of `--help`, in kube-apiserver's order.
pub(crate) const SECTIONS: &[(&str, &[Flag])] = &[
    ("Generic", generic::FLAGS),
    ("Etcd", etcd::FLAGS),
    ("Secure serving", serving::FLAGS),
    ("Auditing", auditing::FLAGS),
    ("Features", access::FEATURES),
    ("Authentication", access::AUTHENTICATION),
    ("Authorization", access::AUTHORIZATION),
    ("API enablement", access::API_ENABLEMENT),
    ("Egress selector", access::EGRESS_SELECTOR),
    ("Admission", access::ADMISSION),
    ("Metrics", operations::METRICS),
    ("Logs", operations::LOGS),
    ("Traces", operations::TRACES),
    ("Misc", misc::FLAGS),
    ("Global", misc::GLOBAL),
];

/// One flag: a row of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) kind: FlagKind,
    /// The default, written as on the command line; empty if it is the type's zero value.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
    pub(crate) effect: Effect,
    /// The letter of `-v` and `-h`.
    pub(crate) short: Option<char>,
    /// kube-apiserver's deprecation message, if it has one.
    pub(crate) deprecated: Option<&'static str>,
    /// Left out of `--help`.
    pub(crate) hidden: bool,
}

/// The effect of setting the flag. No flag is ignored without a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Implemented as in kube-apiserver.
    Done,
    /// Accepted with a warning that it has no effect yet.
    Harmless,
}

/// The type of a flag's value, with kube-apiserver's parsing rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlagKind {
    Bool,
    Int,
    Uint,
    Int32s,
    Float,
    Float32,
    Duration,
    Ip,
    Text,
    /// Comma lists that add up when the flag is repeated.
    Texts,
    /// One value each time the flag is given; a comma is part of the value.
    TextArray,
    /// `key=value`, one pair each time the flag is given.
    Pair,
    /// `key=value,key` lists; a bare key has an empty value.
    Configuration,
    /// `key=value,…` with CSV quoting.
    TextMap,
    /// `[component:]value` lists.
    Gates,
    PortRange,
    CertKeys,
    Quantity,
    Level,
    VModule,
    Version,
}

impl FlagKind {
    /// The name of the type as `--help` prints it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Int32s => "int32Slice",
            Self::Float => "float",
            Self::Float32 => "float32",
            Self::Duration => "duration",
            Self::Ip => "ip",
            Self::Text => "string",
            Self::Texts => "strings",
            Self::TextArray => "stringArray",
            Self::Pair | Self::Configuration => "mapStringString",
            Self::TextMap => "stringToString",
            Self::Gates => "colonSeparatedMultimapStringString",
            Self::PortRange => "portRange",
            Self::CertKeys => "namedCertKey",
            Self::Quantity => "quantity",
            Self::Level => "Level",
            Self::VModule => "pattern=N,...",
            Self::Version => "version[=true]",
        }
    }

    /// pflag's NoOptDefVal: the value of a flag without argument; `None` if it needs one.
    pub(crate) fn bare(self) -> Option<&'static str> {
        matches!(self, Self::Bool | Self::Version).then_some("true")
    }
}

/// An implemented flag.
const fn done(name: &'static str, kind: FlagKind, default: &'static str) -> Flag {
    let (help, effect) = ("", Effect::Done);
    Flag { name, kind, default, help, effect, short: None, deprecated: None, hidden: false }
}

/// A flag that is accepted and has no effect yet.
const fn harmless(name: &'static str, kind: FlagKind, default: &'static str) -> Flag {
    Flag { effect: Effect::Harmless, ..done(name, kind, default) }
}

impl Flag {
    const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    const fn short(self, letter: char) -> Self {
        Self { short: Some(letter), ..self }
    }

    const fn deprecated(self, instead: &'static str) -> Self {
        Self { deprecated: Some(instead), ..self }
    }

    const fn hidden(self) -> Self {
        Self { hidden: true, ..self }
    }

    /// The parsed default.
    pub(crate) fn default_value(&self) -> Value {
        Value::default_of(self)
    }
}

/// Every flag, in the order of `--help`.
pub(crate) fn all() -> impl Iterator<Item = &'static Flag> {
    SECTIONS.iter().flat_map(|(_, flags)| flags.iter())
}

/// The flag of that name, with dashes.
pub(crate) fn find(name: &str) -> Option<&'static Flag> {
    all().find(|flag| flag.name == name)
}

/// The flag whose name is closest to a mistyped one, if it is close enough.
fn nearest(name: &str) -> Option<&'static str> {
    // With more than a third of the letters wrong it is another word.
    let distance_max = (name.len() / 3).max(2);
    all()
        .filter(|flag| !flag.hidden)
        .map(|flag| (distance(name, flag.name), flag.name))
        .min()
        .filter(|(distance, _)| *distance <= distance_max)
        .map(|(_, nearest)| nearest)
}

/// Levenshtein distance in bytes; flag names are ASCII.
fn distance(one: &str, other: &str) -> usize {
    let other = other.as_bytes();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests;
