//! Reads the crate k8s-pb: Rust that prost has made of Kubernetes' protobuf definitions, whose comments are
//! those of the Go types. It has the types that k8s-openapi has not: lists, and the options of requests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Definition;

/// Adds the lists and options below a directory of the crate, under the names of OpenAPI: those that begin
/// with `prefix`, which stands for the directory.
pub(crate) fn collect(
    directory: &Path,
    prefix: &str,
    definitions: &mut BTreeMap<String, Definition>,
) {
    for entry in fs::read_dir(directory).expect("a directory of k8s-pb can be read") {
        let path = entry.expect("a directory of k8s-pb can be read").path();
        if path.is_dir() {
            let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8");
            collect(&path, &format!("{prefix}.{}", name.replace('_', "-")), definitions);
        } else {
            let source = fs::read_to_string(&path).expect("a file of k8s-pb can be read");
            for (name, definition) in structs(&source) {
                if name.ends_with("List") || name.ends_with("Options") {
                    definitions.entry(format!("{prefix}.{name}")).or_insert(definition);
                }
            }
        }
    }
}

/// The types of a file: one item in a line, each after its comment.
fn structs(source: &str) -> Vec<(&str, Definition)> {
    let mut found: Vec<(&str, Definition)> = Vec::new();
    let mut comment = Vec::new();
    for line in source.lines() {
        let text = line.trim_start();
        if let Some(line) = text.strip_prefix("///") {
            comment.push(line);
        } else if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.trim_end_matches([' ', '{', '}', ';']);
            found.push((name, Definition { text: described(&comment), ..Definition::default() }));
            comment.clear();
        } else if let Some((name, _)) =
            line.strip_prefix("    pub ").and_then(|field| field.split_once(": "))
        {
            let (_, definition) = found.last_mut().expect("a field is in a struct");
            definition.fields.insert(json_name(name), described(&comment));
            comment.clear();
        } else if !text.starts_with("#[") {
            comment.clear();
        }
    }
    found
}

/// What OpenAPI says of a type or field with this comment: lines are joined unless they are indented, and
/// instructions for generators are left out.
fn described(comment: &[&str]) -> String {
    let mut text = String::new();
    for line in comment {
        // Prost indents each line by a space, and those that are indented by one more.
        let line =
            line.strip_prefix(if line.starts_with("  ") { "  " } else { " " }).unwrap_or(line);
        let line = line.trim_end();
        if line.starts_with("---") {
            break;
        }
        if line.is_empty() {
            text.pop();
            text.push_str("\n\n");
        } else if line.trim_start().starts_with(['+']) || line.trim_start().starts_with("TODO") {
        } else if line.starts_with([' ', '\t']) {
            text.pop();
            text.push('\n');
            text.push_str(line);
            text.push('\n');
        } else {
            text.push_str(line);
            text.push(' ');
        }
    }
    without_links(text.trim())
}

/// Prost writes `<https://…>` for an address, and `\[` for a bracket.
fn without_links(text: &str) -> String {
    let mut parts = text.split("<http");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str("http");
        plain.push_str(&part.replacen('>', "", 1));
    }
    plain.replace("\\[", "[").replace("\\]", "]")
}

/// `label_selector` is `labelSelector`.
fn json_name(field: &str) -> String {
    // The only abbreviation among the options.
    if field == "insecure_skip_tls_verify_backend" {
        return "insecureSkipTLSVerifyBackend".to_owned();
    }
    let field = field.strip_prefix("r#").unwrap_or(field);
    let mut words = field.split('_');
    let mut name = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(word.len().min(1));
        name.push_str(&first.to_uppercase());
        name.push_str(rest);
    }
    name
}
