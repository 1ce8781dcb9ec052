//! Configuration files: YAML or JSON of a kind of `apiserver.config.k8s.io`, decoded strictly, and
//! followed while the server runs.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use meta::{Value, field::FieldPath, field::quote};

use crate::metrics::ReloadMetrics;

/// The type of a field of a file.
pub(crate) enum Shape {
    Text,
    Bool,
    List(&'static Shape),
    Fields(&'static [(&'static str, Shape)]),
}

pub(crate) const GROUP: &str = "apiserver.config.k8s.io";
/// A file of this size is certainly wrong.
const FILE_BYTES_MAX: u64 = 3 * 1024 * 1024;

pub(crate) fn read(file: &Path) -> Result<Vec<u8>, String> {
    let length = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!("the file is larger than {FILE_BYTES_MAX} bytes"));
    }
    std::fs::read(file).map_err(|error| error.to_string())
}

/// Decodes a file and checks it against its shape: a wrong type, an unknown field and a key that comes
/// twice are errors.
pub(crate) fn decode(
    bytes: &[u8],
    kind: &str,
    versions: &[&str],
    shape: &Shape,
) -> Result<Value, String> {
    if bytes.is_empty() {
        return Err("empty config data".to_owned());
    }
    let converted = codec::yaml::load(bytes).map_err(|error| error.to_string())?;
    let value = converted.value;
    if value.as_object().is_none() {
        return Err(format!(
            "couldn't get version/kind; json parse error: not an object: {}",
            value.type_name()
        ));
    }
    let (version, found) = (value.str_at(&["apiVersion"]), value.str_at(&["kind"]));
    if found.is_empty() {
        return Err("Object 'Kind' is missing".to_owned());
    }
    let known = version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
    if found != kind || !known.is_some_and(|version| versions.contains(&version)) {
        return Err(format!(
            "no kind {} is registered for version {}: expected {kind} of {GROUP}/{}",
            quote(found),
            quote(version),
            versions[0]
        ));
    }
    let mut strict = converted.duplicates;
    check(&value, shape, &FieldPath::root(), &mut strict)?;
    if strict.is_empty() {
        Ok(value)
    } else {
        Err(format!("strict decoding error: {}", strict.join(", ")))
    }
}

/// A wrong type is an error at once; unknown fields are collected.
fn check(
    value: &Value,
    shape: &Shape,
    at: &FieldPath,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let wrong = |wanted| {
        let found = value.type_name();
        Err(format!("json: cannot unmarshal {found} into field {at} of type {wanted}"))
    };
    match (shape, value) {
        (_, Value::Null) | (Shape::Text, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => {
            Ok(())
        }
        (Shape::Text, _) => wrong("string"),
        (Shape::Bool, _) => wrong("bool"),
        (Shape::List(item), _) => {
            let Some(items) = value.as_array() else { return wrong("list") };
            for (n, value) in items.iter().enumerate() {
                check(value, item, &at.index(n), unknown)?;
            }
            Ok(())
        }
        (Shape::Fields(fields), _) => {
            let Some(object) = value.as_object() else { return wrong("object") };
            for (name, value) in object.iter() {
                let at = at.child(name);
                match fields.iter().find(|(known, _)| known == name) {
                    Some((_, shape)) => check(value, shape, &at, unknown)?,
                    None => unknown.push(format!("unknown field {}", quote(&at.to_string()))),
                }
            }
            Ok(())
        }
    }
}

/// Go's `time.ParseDuration`, in nanoseconds; None: it is none.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let unit = &rest[number..];
        let unit_end = unit.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(unit.len());
        let nanos = match &unit[..unit_end] {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 6e10,
            "h" => 3.6e12,
            _ => return None,
        };
        total += rest[..number].parse::<f64>().ok()? * nanos;
        rest = &unit[unit_end..];
    }
    (!text.trim_start_matches(['+', '-']).is_empty() && total < 9.2e18)
        .then_some((sign * total) as i64)
}

/// Why a new version of a file was not taken over.
pub(crate) enum ReloadError {
    /// The content is wrong, and stays wrong.
    Content(String),
    /// It may work the next time.
    Retry(String),
}

/// Follows a file: `apply` gets every new content. What cannot be applied is logged and counted, and
/// what was applied before stays in use.
pub(crate) async fn follow<Apply, Applying>(
    file: PathBuf,
    mut applied: Vec<u8>,
    every: Duration,
    what: &'static str,
    metrics: ReloadMetrics,
    mut apply: Apply,
) where
    Apply: FnMut(Vec<u8>) -> Applying,
    Applying: Future<Output = Result<(), ReloadError>>,
{
    metrics.applied(&applied);
    loop {
        tokio::time::sleep(every).await;
        let content = match read(&file) {
            Ok(content) if content == applied => continue,
            Ok(content) => content,
            Err(error) => {
                tracing::error!(%error, "failed to read {what} config file");
                metrics.failed();
                continue;
            }
        };
        match apply(content.clone()).await {
            Ok(()) => {
                tracing::info!("reloaded {what} config");
                metrics.reloaded(&content);
                applied = content;
            }
            Err(ReloadError::Content(error)) => {
                tracing::error!(%error, "failed to load {what} config; the previous one stays");
                metrics.failed();
                applied = content;
            }
            Err(ReloadError::Retry(error)) => {
                tracing::error!(%error, "failed to update {what} config; the previous one stays");
                metrics.failed();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape::Fields(&[
        ("apiVersion", Shape::Text),
        ("kind", Shape::Text),
        ("list", Shape::List(&Shape::Fields(&[("flag", Shape::Bool), ("text", Shape::Text)]))),
    ]);

    #[test]
    fn files_are_decoded_strictly() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: K\n";
        let cases = [
            ("list: [{flag: true, text: x}]", ""),
            ("list:", ""),
            (
                "list: [{flag: yes-please}]",
                "cannot unmarshal string into field list[0].flag of type bool",
            ),
            ("list: {}", "cannot unmarshal object into field list of type list"),
            (
                "list: [{a: 1}]\nb: 2",
                "strict decoding error: unknown field \"b\", unknown field \"list[0].a\"",
            ),
            (
                "list: []\nlist: []",
                "strict decoding error: line 4: key \"list\" already set in map",
            ),
            ("list: [", "yaml: line"),
        ];
        for (text, expected) in cases {
            let decoded = decode(format!("{head}{text}").as_bytes(), "K", &["v1"], &SHAPE);
            match decoded {
                Ok(_) => assert_eq!(expected, "", "{text}"),
                Err(why) => {
                    assert!(!expected.is_empty() && why.contains(expected), "{text}: {why}");
                }
            }
        }
        for text in [
            "",
            "[]",
            "kind: K",
            "kind: K\napiVersion: v1",
            "kind: L\napiVersion: apiserver.config.k8s.io/v1",
        ] {
            assert!(decode(text.as_bytes(), "K", &["v1"], &SHAPE).is_err(), "{text}");
        }
    }
}
