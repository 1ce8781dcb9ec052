//! Validation of names, label keys and the like, and generated names. Each rule returns Kubernetes'
//! messages; an empty list means that the text is valid.

mod object_meta;
mod webhook;

pub(crate) use object_meta::is_printable;
pub use object_meta::*;
pub use webhook::{validate_webhook_service, validate_webhook_url};

/// A rule for the names of a kind. `prefix` is true for a `generateName`, which will get a suffix
/// and may therefore end in a dash.
pub type NameRule = fn(name: &str, prefix: bool) -> Vec<String>;

pub fn name_is_dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    is_dns1123_subdomain(&as_prefix(name, prefix))
}

/// The same for kinds that leave `generateName` unchecked, as the generated name has to pass.
pub fn generated_name_is_dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    if prefix { Vec::new() } else { is_dns1123_subdomain(name) }
}

pub fn name_is_dns_label(name: &str, prefix: bool) -> Vec<String> {
    is_dns1123_label(&as_prefix(name, prefix))
}

pub fn name_is_dns1035_label(name: &str, prefix: bool) -> Vec<String> {
    is_dns1035_label(&as_prefix(name, prefix))
}

/// RBAC names and every name that only has to fit into a URL.
pub fn name_is_path_segment(name: &str, prefix: bool) -> Vec<String> {
    match name {
        "." | ".." if !prefix => vec![format!("may not be '{name}'")],
        _ => ["/", "%"]
            .into_iter()
            .filter(|illegal| name.contains(*illegal))
            .map(|illegal| format!("may not contain '{illegal}'"))
            .collect(),
    }
}

/// The final dash of a prefix is followed by a generated character, so it counts as one.
fn as_prefix(name: &str, prefix: bool) -> std::borrow::Cow<'_, str> {
    // Compat: upstream replaces the last *two* characters by one; the verdict on the character
    // before the dash is lost, and clients may rely on that.
    match name.strip_suffix('-') {
        Some(head) if prefix && !head.is_empty() => {
            // Upstream takes a byte, so a wider character stays as broken as it was.
            let head = head.strip_suffix(|c: char| c.is_ascii()).unwrap_or(head);
            format!("{head}a").into()
        }
        _ => name.into(),
    }
}

/// `base` with five random characters; `random` gives numbers from the whole range of `u32`.
/// The base is cut so that the name still fits into a DNS label.
pub fn generate_name(base: &str, mut random: impl FnMut() -> u32) -> String {
    let cut = base.floor_char_boundary(GENERATED_BASE_BYTES_MAX);
    let mut name = base[..cut].to_owned();
    for _ in 0..SUFFIX_CHARS {
        name.push(char::from(SUFFIX_ALPHABET[random() as usize % SUFFIX_ALPHABET.len()]));
    }
    name
}

const GENERATED_BASE_BYTES_MAX: usize = LABEL_BYTES_MAX - SUFFIX_CHARS;
const SUFFIX_CHARS: usize = 5;
/// No vowels and nothing that looks like one, so that no words come out.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

pub fn is_dns1123_label(text: &str) -> Vec<String> {
    dns1123_label_errors(text, CHARACTERS)
}

fn dns1123_label_errors(text: &str, unit: &str) -> Vec<String> {
    let mut errors = longer_than(text, LABEL_BYTES_MAX, unit);
    if !dns1123_label(text) {
        errors.push(if dns1123_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            regex_error(DNS1123_LABEL_WHY, DNS1123_LABEL, &["my-name", "123-abc"])
        });
    }
    errors
}

pub fn is_dns1123_subdomain(text: &str) -> Vec<String> {
    dns1123_subdomain_errors(text, CHARACTERS)
}

/// As [`is_dns1123_label`]. Compat: upstream's declarative validation counts bytes, and says so.
pub fn is_short_name(text: &str) -> Vec<String> {
    dns1123_label_errors(text, BYTES)
}

/// As [`is_dns1123_subdomain`], for declarative validation.
pub fn is_long_name(text: &str) -> Vec<String> {
    dns1123_subdomain_errors(text, BYTES)
}

/// As [`is_long_name`], but upper case is allowed.
pub fn is_long_name_caseless(text: &str) -> Vec<String> {
    let text = &text.to_lowercase();
    let mut errors = longer_than(text, SUBDOMAIN_BYTES_MAX, BYTES);
    if !dns1123_subdomain(text) {
        errors.push(regex_error(
            "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            &dns1123_subdomain_regex(),
            &["Example.com"],
        ));
    }
    errors
}

pub fn is_dns1123_subdomain_with_underscore(text: &str) -> Vec<String> {
    let mut errors = longer_than(text, SUBDOMAIN_BYTES_MAX, CHARACTERS);
    let label = |label: &str| {
        let rest = label.strip_prefix('_').unwrap_or(label);
        rest.starts_with(is_lower_alphanumeric)
            && rest.ends_with(is_lower_alphanumeric)
            && rest.chars().all(|c| is_lower_alphanumeric(c) || c == '-' || c == '_')
    };
    if !text.split('.').all(label) {
        let regex = format!("{DNS1123_LABEL_UNDERSCORE}(\\.{DNS1123_LABEL_UNDERSCORE})*");
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '_', '-' or '.', and must start and end with an alphanumeric character",
            &regex,
            &["example.com"],
        ));
    }
    errors
}

pub fn is_wildcard_dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = longer_than(text, SUBDOMAIN_BYTES_MAX, CHARACTERS);
    if !text.strip_prefix("*.").is_some_and(dns1123_subdomain) {
        errors.push(regex_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS \
             subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and \
             end with an alphanumeric character",
            &format!("\\*\\.{}", dns1123_subdomain_regex()),
            &["*.example.com"],
        ));
    }
    errors
}

pub fn is_dns1035_label(text: &str) -> Vec<String> {
    let mut errors = longer_than(text, LABEL_BYTES_MAX, CHARACTERS);
    if !(dns1123_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())) {
        errors.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// A label key: a name with an optional DNS subdomain before a slash. Finalizers, annotation keys
/// and condition types are qualified names as well.
pub fn is_qualified_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match *text.split('/').collect::<Vec<_>>() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                let wrong = dns1123_subdomain_errors(prefix, BYTES);
                errors.extend(wrong.into_iter().map(|why| format!("prefix part {why}")));
            }
            name
        }
        _ => {
            let why = regex_error(QUALIFIED_NAME_WHY, QUALIFIED_NAME, QUALIFIED_NAME_EXAMPLES);
            return vec![format!(
                "a valid label key {why} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    }
    let wrong = longer_than(name, LABEL_BYTES_MAX, BYTES);
    errors.extend(wrong.into_iter().map(|why| format!("name part {why}")));
    if !qualified_name_part(name) {
        let why = regex_error(QUALIFIED_NAME_WHY, QUALIFIED_NAME, QUALIFIED_NAME_EXAMPLES);
        errors.push(format!("name part {why}"));
    }
    errors
}

pub fn is_label_value(text: &str) -> Vec<String> {
    let mut errors = longer_than(text, LABEL_BYTES_MAX, BYTES);
    if !(text.is_empty() || qualified_name_part(text)) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character",
            &format!("({QUALIFIED_NAME})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

pub fn is_c_identifier(text: &str) -> Vec<String> {
    let start = |c: char| c.is_ascii_alphabetic() || c == '_';
    if text.starts_with(start) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Vec::new();
    }
    vec![regex_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string \
         of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// The keys of `data` in ConfigMap and Secret.
pub fn is_config_map_key(text: &str) -> Vec<String> {
    let mut errors = longer_than(text, SUBDOMAIN_BYTES_MAX, CHARACTERS);
    if text.is_empty() || !text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
        errors.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    errors.extend(parent_directory_prefix(text));
    errors
}

/// The strict form; nearly everything accepts [`is_relaxed_env_var_name`] nowadays.
pub fn is_env_var_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let start = |c: char| c.is_ascii_alphabetic() || "-._".contains(c);
    if !(text.starts_with(start) && text.chars().all(|c| start(c) || c.is_ascii_digit())) {
        errors.push(regex_error(
            "a valid environment variable name must consist of alphabetic characters, digits, \
             '_', '-', or '.', and must not start with a digit",
            "[-._a-zA-Z][-._a-zA-Z0-9]*",
            &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
        ));
    }
    errors.extend(parent_directory_prefix(text));
    errors
}

pub fn is_relaxed_env_var_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    }
    if !text.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        let why = "a valid environment variable name must consist only of printable ASCII \
                   characters other than '='";
        errors.push(why.to_owned());
    }
    errors
}

/// The name of a container or service port (IANA service name).
pub fn is_port_name(text: &str) -> Vec<String> {
    let mut errors = longer_than(text, 15, CHARACTERS);
    let mut check = |fine: bool, why: &str| {
        if !fine {
            errors.push(why.to_owned());
        }
    };
    check(
        !text.is_empty() && text.chars().all(|c| is_lower_alphanumeric(c) || c == '-'),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    check(text.chars().any(|c| c.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    check(!text.contains("--"), "must not contain consecutive hyphens");
    check(!text.starts_with('-') && !text.ends_with('-'), "must not begin or end with a hyphen");
    errors
}

pub fn is_port_number(port: i64) -> Vec<String> {
    is_in_range(port, 1, 65535)
}

/// A user or group id.
pub fn is_user_id(id: i64) -> Vec<String> {
    is_in_range(id, 0, i64::from(i32::MAX))
}

pub fn is_in_range(number: i64, min: i64, max: i64) -> Vec<String> {
    if (min..=max).contains(&number) {
        return Vec::new();
    }
    vec![format!("must be between {min} and {max}, inclusive")]
}

pub fn is_percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

pub fn is_http_header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Vec::new();
    }
    vec![regex_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// `must be …` with the regular expression and examples that stand for it.
pub fn regex_error(why: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{why} (regex used for validation is '{regex}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{why} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn dns1123_subdomain_errors(text: &str, unit: &str) -> Vec<String> {
    let mut errors = longer_than(text, SUBDOMAIN_BYTES_MAX, unit);
    if !dns1123_subdomain(text) {
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '-' or '.', and must start and end with an alphanumeric character",
            &dns1123_subdomain_regex(),
            &["example.com"],
        ));
    }
    errors
}

/// Lengths are bytes everywhere, but the older rules call them characters.
fn longer_than(text: &str, max: usize, unit: &str) -> Vec<String> {
    if text.len() <= max {
        return Vec::new();
    }
    vec![format!("must be no more than {max} {unit}")]
}

/// Keys become file names, which must stay inside their directory.
fn parent_directory_prefix(text: &str) -> Option<String> {
    match text {
        "." | ".." => Some(format!("must not be '{text}'")),
        _ if text.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

fn dns1123_subdomain(text: &str) -> bool {
    text.split('.').all(dns1123_label)
}

fn dns1123_label(text: &str) -> bool {
    text.starts_with(is_lower_alphanumeric)
        && text.ends_with(is_lower_alphanumeric)
        && text.chars().all(|c| is_lower_alphanumeric(c) || c == '-')
}

fn qualified_name_part(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_lower_alphanumeric(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn dns1123_subdomain_regex() -> String {
    format!("{DNS1123_LABEL}(\\.{DNS1123_LABEL})*")
}

const LABEL_BYTES_MAX: usize = 63;
const SUBDOMAIN_BYTES_MAX: usize = 253;
const BYTES: &str = "bytes";
const CHARACTERS: &str = "characters";

const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_LABEL_UNDERSCORE: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
const DNS1123_LABEL_WHY: &str = "a lowercase RFC 1123 label must consist of lower case \
    alphanumeric characters or '-', and must start and end with an alphanumeric character";
const QUALIFIED_NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_NAME_WHY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character";
const QUALIFIED_NAME_EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];

#[cfg(test)]
mod tests {
    use super::*;

    type Rule = fn(&str) -> Vec<String>;

    #[track_caller]
    fn check(rule: Rule, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(rule(text), Vec::<String>::new(), "{text:?}");
        }
        for text in bad {
            assert!(!rule(text).is_empty(), "{text:?} was accepted");
        }
    }

    #[test]
    fn dns_names_are_validated() {
        let (label63, label64) = ("a".repeat(63), "a".repeat(64));
        let (name253, name254) = ("a".repeat(253), "a".repeat(254));
        check(
            is_dns1123_label,
            &["a", "a1", "a--1--2--b", "0", "1-a", &label63],
            &["", "A", "a-", "-a", "a_b", "a.b", ".", "a b", "é", &label64],
        );
        check(
            is_dns1123_subdomain,
            &["a", "0.1", "a--1--2--b.a", "11.22.33", &name253],
            &["", "A.a", "a..b", ".a", "a.", "a.-b", "a_b", "a/b", &name254],
        );
        check(is_dns1035_label, &["a", "a1", "a-b"], &["", "1a", "a-", "-", "a.b", &label64]);
        check(
            is_dns1123_subdomain_with_underscore,
            &["_a.b_c", "a", "_sip._tcp.x"],
            &["a_", "__a", "_", "a._", "A"],
        );
        check(is_wildcard_dns1123_subdomain, &["*.a", "*.a.b"], &["a.b", "*", "*.", "*.*.a"]);
    }

    #[test]
    fn keys_values_and_identifiers_are_validated() {
        let long = "a".repeat(64);
        check(
            is_qualified_name,
            &["simple", "Now-with-dashes", "1.2.3.4/5678", "a.b/C_d", "example.com/a.b"],
            &["", "nospace s", "a/b/c", "/name", "prefix/", "A/b", "-a", "a.", &long],
        );
        check(is_label_value, &["", "a", "A_b.c-1"], &["_", "a ", "-a", "a/b", &long]);
        check(is_c_identifier, &["_a1", "A"], &["", "1a", "a-b", "é"]);
        check(is_config_map_key, &["a", ".a", "a..b", "A_-."], &["", ".", "..", "..a", "a/b"]);
        check(is_env_var_name, &[".a", "-a1", "A_B"], &["", "1a", ".", "..a", "a b"]);
        check(is_relaxed_env_var_name, &["1 !@", "a"], &["", "a=b", "é", "\u{7f}"]);
        check(is_port_name, &["a", "1-a", "telnet"], &["", "1", "a--b", "-a", "A", &long]);
        check(is_percent, &["0%", "100%"], &["", "%", "1", "1%%", "-1%"]);
        check(is_http_header_name, &["X-A"], &["", "a b", "a_b"]);
    }

    #[test]
    fn messages_are_those_of_kubernetes() {
        let cases: &[(Vec<String>, &str)] = &[
            (
                is_dns1123_subdomain("A"),
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                 characters, '-' or '.', and must start and end with an alphanumeric character \
                 (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ),
            (is_dns1123_label("a.b"), "must not contain dots"),
            (is_dns1123_label(&"a".repeat(64)), "must be no more than 63 characters"),
            (is_label_value(&"a".repeat(64)), "must be no more than 63 bytes"),
            (is_qualified_name(&"a".repeat(64)), "name part must be no more than 63 bytes"),
            (
                is_qualified_name("a b"),
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
                 '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ),
            (name_is_path_segment("a/b", false), "may not contain '/'"),
            (name_is_path_segment("..", false), "may not be '..'"),
            (name_is_path_segment("..", true), ""),
            (is_port_number(0), "must be between 1 and 65535, inclusive"),
        ];
        for (errors, expected) in cases {
            assert_eq!(&errors.join("; "), expected);
        }
    }

    #[test]
    fn a_prefix_may_end_in_a_dash() {
        assert!(name_is_dns_label("web-", true).is_empty());
        assert!(!name_is_dns_label("web-", false).is_empty());
        assert!(!name_is_dns_label("-", true).is_empty());
        assert!(name_is_dns1035_label("a-", true).is_empty());
        assert!(!name_is_dns_subdomain("A-b-", true).is_empty());
    }

    #[test]
    fn generated_names_fit_into_a_label() {
        let mut state = 7u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 3
        };
        let name = generate_name("web-", &mut random);
        assert_eq!(name.len(), 9);
        assert!(name.strip_prefix("web-").unwrap().bytes().all(|b| SUFFIX_ALPHABET.contains(&b)));
        assert_ne!(name, generate_name("web-", &mut random));
        assert_eq!(generate_name(&"a".repeat(100), &mut random).len(), 63);
        // A cut never falls into a character.
        assert!(generate_name(&"é".repeat(50), random).len() <= 63);
    }
}
