//! Parses the command line as pflag does.
//!
//! Hand-written over the table instead of with an argument crate, which would have to be bent to
//! accumulating lists, single values with commas, booleans that never take the next argument, `-v3`,
//! underscores for dashes, and Go's error texts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::value::{NamedCertKey, PortRange, Value, VersionFlag};
use super::{Effect, Flag, all, find, nearest, quote};

/// An error in the command line, worded as kube-apiserver's.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum FlagError {
    #[error("unknown flag: --{name}{}", suggestion(*.nearest))]
    Unknown { name: String, nearest: Option<&'static str> },
    #[error("unknown shorthand flag: {letter:?} in -{letters}")]
    UnknownShort { letter: char, letters: String },
    #[error("flag needs an argument: --{0}")]
    NeedsArgument(String),
    #[error("flag needs an argument: {letter:?} in -{letter}")]
    ShortNeedsArgument { letter: char },
    #[error("invalid argument {} for {} flag: {cause}", quote(.value), quote(&spelling(.flag)))]
    Invalid { value: String, flag: &'static str, cause: String },
    #[error("bad flag syntax: {0}")]
    Syntax(String),
}

fn suggestion(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("\nDid you mean --{name}?"),
        None => "\nSee --help for all flags.".to_owned(),
    }
}

fn spelling(name: &str) -> String {
    match find(name).and_then(|flag| flag.short) {
        Some(letter) => format!("-{letter}, --{name}"),
        None => format!("--{name}"),
    }
}

/// A parsed command line: the flags that it sets, and the positional arguments.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    values: BTreeMap<&'static str, Value>,
    pub(crate) arguments: Vec<String>,
    /// One line for each use of a deprecated flag.
    pub(crate) deprecations: Vec<String>,
}

/// Parses the arguments, without the name of the program.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Parsed, FlagError> {
    let mut parsed = Parsed::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            parsed.arguments.extend(args);
            break;
        } else if let Some(long) = arg.strip_prefix("--") {
            parsed.take_long(&arg, long, &mut args)?;
        } else if arg.len() > 1 && arg.starts_with('-') {
            parsed.take_short(&arg[1..], &mut args)?;
        } else {
            parsed.arguments.push(arg);
        }
    }
    Ok(parsed)
}

impl Parsed {
    fn take_long(
        &mut self,
        arg: &str,
        long: &str,
        rest: &mut dyn Iterator<Item = String>,
    ) -> Result<(), FlagError> {
        if long.starts_with(['-', '=']) {
            return Err(FlagError::Syntax(arg.to_owned()));
        }
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        // Compat: `--secure_port` is `--secure-port`.
        let dashed = name.replace('_', "-");
        let Some(flag) = find(&dashed) else {
            return Err(FlagError::Unknown { name: name.to_owned(), nearest: nearest(&dashed) });
        };
        let value = value
            .or_else(|| flag.kind.bare().map(str::to_owned))
            .or_else(|| rest.next())
            .ok_or_else(|| FlagError::NeedsArgument(name.to_owned()))?;
        self.set(flag, &value)
    }

    /// Letters after a single dash: `-h`, `-v=3`, `-v3`, `-v 3`, `-hv3`.
    fn take_short(
        &mut self,
        letters: &str,
        rest: &mut dyn Iterator<Item = String>,
    ) -> Result<(), FlagError> {
        let mut unread = letters;
        while let Some(letter) = unread.chars().next() {
            let after = &unread[letter.len_utf8()..];
            let Some(flag) = all().find(|flag| flag.short == Some(letter)) else {
                return Err(FlagError::UnknownShort { letter, letters: unread.to_owned() });
            };
            let (value, next) = match (after.strip_prefix('='), flag.kind.bare()) {
                (Some(value), _) if !value.is_empty() => (value.to_owned(), ""),
                (_, Some(bare)) => (bare.to_owned(), after),
                _ if !after.is_empty() => (after.to_owned(), ""),
                _ => (rest.next().ok_or(FlagError::ShortNeedsArgument { letter })?, ""),
            };
            self.set(flag, &value)?;
            unread = next;
        }
        Ok(())
    }

    fn set(&mut self, flag: &'static Flag, text: &str) -> Result<(), FlagError> {
        let first = !self.values.contains_key(flag.name);
        let value = self.values.entry(flag.name).or_insert_with(|| flag.default_value());
        value.set(flag.kind, text, first).map_err(|cause| FlagError::Invalid {
            value: text.to_owned(),
            flag: flag.name,
            cause,
        })?;
        if let Some(instead) = flag.deprecated {
            self.deprecations.push(format!("Flag --{} has been deprecated, {instead}", flag.name));
        }
        Ok(())
    }

    /// As if the flag had not been given.
    pub(crate) fn forget(&mut self, name: &str) {
        self.values.remove(name);
    }

    /// The value of a flag unless the command line has another one.
    pub(crate) fn set_default(&mut self, name: &str, text: &str) -> Result<(), FlagError> {
        if self.is_set(name) {
            return Ok(());
        }
        self.set(find(name).expect("only flags of the table are set"), text)
    }

    /// The value of a flag, given or by default.
    pub(crate) fn value(&self, name: &str) -> Value {
        self.values.get(name).cloned().unwrap_or_else(|| {
            find(name).expect("only flags of the table are asked for").default_value()
        })
    }

    /// Whether the flag was given at all.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Whether the flag was given another value than its default.
    pub(crate) fn is_changed(&self, name: &str) -> bool {
        self.values.contains_key(name)
            && find(name).is_some_and(|flag| self.values[name] != flag.default_value())
    }

    /// Whether the flag was given at all, even with its default.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The flags of that effect that were given another value than their default.
    pub(crate) fn changed(&self, effect: Effect) -> impl Iterator<Item = &'static Flag> {
        all().filter(move |flag| flag.effect == effect && self.is_changed(flag.name))
    }
}

/// One typed getter per type of value: `parsed.bool("anonymous-auth")`. Panics for another type than
/// the table's, which is a bug in `options.rs` that every start would show.
macro_rules! getters {
    ($($getter:ident: $variant:ident -> $type:ty,)*) => {
        impl Parsed {
            $(pub(crate) fn $getter(&self, name: &str) -> $type {
                match self.value(name) {
                    Value::$variant(value) => value,
                    other => unreachable!("--{name} is {other:?}"),
                }
            })*
        }
    };
}

getters! {
    bool: Bool -> bool,
    int: Int -> i64,
    uint: Uint -> u64,
    int32s: Int32s -> Vec<i32>,
    float: Float -> f64,
    nanos: Duration -> i64,
    ip: Ip -> Option<IpAddr>,
    text: Text -> String,
    texts: Texts -> Vec<String>,
    map: Map -> BTreeMap<String, String>,
    gates: Gates -> BTreeMap<String, Vec<String>>,
    port_range: PortRange -> PortRange,
    cert_keys: CertKeys -> Vec<NamedCertKey>,
    level: Level -> u32,
    vmodule: VModule -> Vec<(String, u32)>,
    version: Version -> VersionFlag,
}
