//! Named formats: `format.dns1123Label().validate(self.name)`.

use meta::field::quote;
use meta::names;

use super::urls::Url;
use super::{list_of, standard};
use crate::functions::{FunctionOp, Functions};
use crate::kubernetes_value::KubernetesValue;
use crate::time::Timestamp;
use crate::types::Type;
use crate::value::{EvalResult, NO_SUCH_OVERLOAD, Val};

#[derive(Debug)]
pub struct Format {
    pub(crate) name: &'static str,
    /// What is wrong with a text; nothing if it fits.
    validate: fn(&str) -> Vec<String>,
    /// The length of the pattern that its cost is counted by.
    pub(crate) regex_size: usize,
}

/// By the names in expressions.
static FORMATS: [(&str, Format); 13] = [
    ("dns1123Label", Format::new("DNS1123Label", |s| names::name_is_dns_label(s, false), 30)),
    (
        "dns1123Subdomain",
        Format::new("DNS1123Subdomain", |s| names::name_is_dns_subdomain(s, false), 60),
    ),
    ("dns1035Label", Format::new("DNS1035Label", |s| names::name_is_dns1035_label(s, false), 30)),
    ("qualifiedName", Format::new("QualifiedName", names::is_qualified_name, 60)),
    (
        "dns1123LabelPrefix",
        Format::new("DNS1123LabelPrefix", |s| names::name_is_dns_label(s, true), 30),
    ),
    (
        "dns1123SubdomainPrefix",
        Format::new("DNS1123SubdomainPrefix", |s| names::name_is_dns_subdomain(s, true), 60),
    ),
    (
        "dns1035LabelPrefix",
        Format::new("DNS1035LabelPrefix", |s| names::name_is_dns1035_label(s, true), 30),
    ),
    ("labelValue", Format::new("LabelValue", names::is_label_value, 40)),
    ("uri", Format::new("URI", uri, 1103)),
    ("uuid", Format::new("uuid", |s| unless(is_uuid(s), "does not match the UUID format"), 70)),
    ("byte", Format::new("byte", |s| unless(is_base64(s), "invalid base64"), 84)),
    (
        "date",
        Format::new("date", |s| unless(Timestamp::parse_date(s).is_some(), "invalid date"), 71),
    ),
    ("datetime", Format::new("datetime", |s| unless(is_date_time(s), "invalid datetime"), 71)),
];

impl Format {
    const fn new(name: &'static str, validate: fn(&str) -> Vec<String>, regex_size: usize) -> Self {
        Self { name, validate, regex_size }
    }
}

pub(super) fn declare(f: &mut Functions) {
    let ty = Type::object("kubernetes.NamedFormat");
    let found = Type::optional(list_of(Type::String));
    f.member("validate", "format-validate", &[ty.clone(), Type::String], found, validate);
    let named = Type::optional(ty.clone());
    f.global("format.named", "format-named", &[Type::String], named, |args| {
        let name = standard::text(args)?;
        Ok(match FORMATS.iter().find(|(other, _)| *other == name) {
            Some((_, format)) => Val::some(Val::kubernetes(KubernetesValue::Format(format))),
            None => Val::Optional(None),
        })
    });
    macro_rules! named {
        ($($at:literal)*) => {
            $(
                let name = format!("format.{}", FORMATS[$at].0).leak();
                let op: FunctionOp = |_| Ok(Val::kubernetes(KubernetesValue::Format(&FORMATS[$at].1)));
                f.global(name, name, &[], ty.clone(), op);
            )*
        };
    }
    named!(0 1 2 3 4 5 6 7 8 9 10 11 12);
}

fn validate<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let [Val::Kubernetes(value), Val::String(text)] = args else { return Err(NO_SUCH_OVERLOAD) };
    let KubernetesValue::Format(format) = &**value else { return Err(NO_SUCH_OVERLOAD) };
    let wrong = (format.validate)(text.as_str());
    if wrong.is_empty() {
        return Ok(Val::Optional(None));
    }
    Ok(Val::some(Val::list(wrong.into_iter().map(Val::text).collect())))
}

fn unless(fits: bool, message: &str) -> Vec<String> {
    if fits { Vec::new() } else { vec![message.to_owned()] }
}

fn uri(text: &str) -> Vec<String> {
    match Url::parse(text, true) {
        Ok(_) => Vec::new(),
        Err(why) => vec![format!("parse {}: {why}", quote(text))],
    }
}

/// Dashes may be left out, each of them.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (at, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.get(..length) {
            Some(group) if group.bytes().all(|b| b.is_ascii_hexdigit()) => rest = &rest[length..],
            _ => return false,
        }
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_uppercase();
    // A leap of the clock is no time here: seconds end at 59.
    text.len() >= 4 && text.contains('T') && Timestamp::parse(&text).is_some()
}
