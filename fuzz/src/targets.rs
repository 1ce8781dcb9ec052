//! The decoders, and what must hold of each: no panic, and what was read and written reads the same again.

mod connections;
mod documents;
mod patches;
mod storage;
mod texts;

use crate::Random;

/// Something that reads what others wrote.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// Good inputs to begin with.
    pub seeds: fn(&mut Random) -> Vec<Vec<u8>>,
    /// Tokens of the format.
    pub words: &'static [&'static str],
    /// Decodes an input, checks its invariants, and returns the outcome: a word for success, the
    /// error otherwise.
    pub run: fn(&[u8]) -> String,
}

/// All of them.
pub const TARGETS: [Target; 30] = [
    documents::JSON,
    documents::JSON_ANY,
    documents::STORED,
    documents::YAML,
    documents::PROTOBUF,
    documents::CBOR,
    patches::JSON_PATCH,
    patches::MERGE_PATCH,
    patches::STRATEGIC_PATCH,
    patches::APPLY,
    patches::FIELDS_V1,
    texts::LABEL_SELECTOR,
    texts::FIELD_SELECTOR,
    texts::CONTINUE,
    texts::QUERY,
    texts::ACCEPT,
    texts::QUANTITY,
    texts::TIME,
    texts::DURATION,
    texts::CEL,
    texts::REGEX,
    texts::JSON_PATH,
    connections::JWT,
    connections::DER,
    connections::WEBSOCKET,
    connections::KUBECONFIG,
    storage::LOG_RECORD,
    storage::LOG_SEGMENT,
    storage::LOG_HINT,
    storage::KMS_ENVELOPE,
];

/// An ending without what differs from input to input: numbers and quoted parts.
fn ending(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut quoted = false;
    let kept = text.chars().filter(|character| {
        if *character == '"' {
            quoted = !quoted;
        }
        !quoted && !character.is_ascii_digit()
    });
    kept.take(120).collect()
}

fn as_text(input: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(input)
}
