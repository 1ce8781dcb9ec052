//! The headers that every answer carries.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CACHE_CONTROL, STRICT_TRANSPORT_SECURITY},
};

use crate::context::Context;

/// `Audit-Id`, flow control, `Cache-Control` (unless the handler set one), `Warning`s and, where asked for, HSTS.
pub(crate) fn add_headers(headers: &mut HeaderMap, cx: &Context, hsts: Option<&HeaderValue>) {
    if let Ok(id) = HeaderValue::from_str(&cx.audit.id) {
        headers.insert(AUDIT_ID, id);
    }
    // Compat: what cannot be taken apart is refused before the filter that sets it.
    let is_parsed = !cx.info.path.is_empty();
    if is_parsed && !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    }
    // Compat: UIDs and not names, so that clients do not learn how they are classified.
    if let Some(schema) = &cx.flow_schema {
        for (name, uid) in
            [(FLOW_SCHEMA_UID, &schema.uid), (PRIORITY_LEVEL_UID, schema.level_uid())]
        {
            if let Ok(uid) = HeaderValue::from_str(uid) {
                headers.insert(name, uid);
            }
        }
    }
    if let Some(hsts) = hsts {
        headers.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
    for warning in shorten(cx.warnings.take()) {
        if let Ok(value) = HeaderValue::from_bytes(format_warning(&warning).as_bytes()) {
            headers.append("warning", value);
        }
    }
}

// A name that is given as text is parsed, hashed and copied for every answer.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Once all warnings together pass this, each is cut to `WARNING_CHARS_MAX`.
const WARNINGS_CHARS_MAX: usize = 4096;
const WARNING_CHARS_MAX: usize = 256;

/// What is sent of the warnings. Compat: one with control characters is left out.
fn shorten(mut warnings: Vec<String>) -> Vec<String> {
    let is_sendable = |warning: &String| !warning.chars().any(char::is_control);
    let sendable = warnings.iter().filter(|warning| is_sendable(warning));
    let total: usize = sendable.map(|warning| warning.chars().count()).sum();
    if total <= WARNINGS_CHARS_MAX {
        warnings.retain(is_sendable);
        return warnings;
    }
    let mut kept: Vec<String> = Vec::new();
    let mut total = 0;
    for warning in warnings {
        let short: String = warning.chars().take(WARNING_CHARS_MAX).collect();
        if !is_sendable(&short) {
            continue;
        }
        total += short.chars().count();
        if total > WARNINGS_CHARS_MAX {
            break;
        }
        if !kept.contains(&short) {
            kept.push(short);
        }
    }
    kept
}

/// `299 - "text"`, quotes and backslashes escaped.
fn format_warning(text: &str) -> String {
    let mut out = String::from("299 - \"");
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_quoted_and_cut_when_there_are_too_many() {
        assert_eq!(format_warning("unknown field \"a\\b\""), r#"299 - "unknown field \"a\\b\"""#);
        let long: Vec<String> = (0..100).map(|at| format!("{}{at}", "x".repeat(5000))).collect();
        assert_eq!(shorten(long), ["x".repeat(256)]);
        let short = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(shorten(short.clone()), short);
        // A header must stay one line.
        let controls = ["a\nb", "\r\nx: y", "\u{1b}[2K", "\u{0}", "\u{7f}", "\u{85}", "fine"];
        assert_eq!(shorten(controls.map(str::to_owned).to_vec()), ["fine"]);
        let late = format!("{}\n", "x".repeat(5000));
        assert_eq!(
            shorten(vec![late.clone(), "y".repeat(5000), "a\n".to_owned()]),
            ["x".repeat(256), "y".repeat(256)]
        );
        assert_eq!(shorten(vec![late]), Vec::<String>::new());
    }
}
