//! A `Status` in the encoding that the client accepts. It needs no schema, so that the outermost
//! filters can use it as well.

use meta::{Details, ListMeta, Status};

use crate::{
    json,
    negotiate::{self, MediaType, Offered},
    protobuf, yaml,
};

/// A body and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedStatus {
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

/// Encodes a `Status` for a client's `Accept` header. If the client accepts none of the offered
/// types, or only a transformed object, it gets indented JSON.
pub fn encode(
    status: &Status,
    accept: Option<&str>,
    pretty: bool,
    offered: Offered,
) -> EncodedStatus {
    match negotiate::accept_as_is(accept, offered) {
        Some(accepted) => encode_as(status, accepted.media_type, pretty || accepted.pretty),
        None => encode_as(status, MediaType::Json, true),
    }
}

/// The `Status` in this format.
pub fn encode_as(status: &Status, media_type: MediaType, pretty: bool) -> EncodedStatus {
    let body = match media_type {
        MediaType::Json if pretty => json::indent(&status.to_json()),
        MediaType::Json => {
            let mut body = status.to_json();
            body.push(b'\n');
            body
        }
        MediaType::Protobuf => protobuf::seal("v1", "Status", &message(status)),
        MediaType::Yaml => yaml::emit(&tree(status)).into_bytes(),
        MediaType::Cbor => crate::cbor::encode(&tree(status)),
    };
    EncodedStatus { content_type: media_type.name(), body }
}

fn tree(status: &Status) -> meta::Value {
    let options = json::DecodeOptions::default();
    json::decode_any(&status.to_json(), options).map(|decoded| decoded.value).unwrap_or_default()
}

/// The protobuf message. Go writes every text, empty or not.
fn message(status: &Status) -> Vec<u8> {
    let mut out = Message::default();
    out.bytes(1, &message_of_metadata(status.metadata.as_deref().unwrap_or(&ListMeta::default())));
    out.text(2, status.status_text());
    out.text(3, &status.message);
    out.text(4, &status.reason);
    if let Some(details) = &status.details {
        out.bytes(5, &message_of_details(details));
    }
    out.number(6, u64::from(if status.code == 200 { 0 } else { status.code }));
    out.0
}

fn message_of_metadata(metadata: &ListMeta) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &metadata.self_link);
    out.text(2, &metadata.resource_version);
    out.text(3, &metadata.continue_token);
    if let Some(count) = metadata.remaining_item_count {
        out.number(4, count as u64);
    }
    if let Some(selector) = &metadata.shard_selector {
        let mut inner = Message::default();
        inner.text(1, selector);
        out.bytes(5, &inner.0);
    }
    out.0
}

fn message_of_details(details: &Details) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &details.name);
    out.text(2, &details.group);
    out.text(3, &details.kind);
    for cause in &details.causes {
        let mut inner = Message::default();
        inner.text(1, &cause.reason);
        inner.text(2, &cause.message);
        inner.text(3, &cause.field);
        out.bytes(4, &inner.0);
    }
    out.number(5, i64::from(details.retry_after_seconds) as u64);
    out.text(6, &details.uid);
    out.0
}

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn text(&mut self, tag: u64, text: &str) {
        self.bytes(tag, text.as_bytes());
    }

    fn bytes(&mut self, tag: u64, bytes: &[u8]) {
        self.varint(tag << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn number(&mut self, tag: u64, number: u64) {
        self.varint(tag << 3);
        self.varint(number);
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

#[cfg(test)]
mod tests {
    use meta::ApiError;

    use super::*;

    #[track_caller]
    fn check(accept: Option<&str>, pretty: bool, content_type: &str, start: &str) {
        let status = ApiError::bad_request("no").status();
        let encoded = encode(&status, accept, pretty, negotiate::OFFERED);
        assert_eq!(encoded.content_type, content_type);
        let body = encoded.body.escape_ascii().to_string();
        assert!(body.starts_with(start), "{body}");
    }

    #[test]
    fn status_is_encoded_as_the_client_accepts() {
        let json = "application/json";
        let protobuf = "application/vnd.kubernetes.protobuf";
        check(None, false, json, r#"{\"kind\":\"Status\",\"apiVersion\""#);
        check(None, true, json, r#"{\n  \"kind\": \"Status\""#);
        check(Some("application/yaml"), false, "application/yaml", "apiVersion: v1");
        check(Some(protobuf), false, protobuf, r"k8s\x00\n\x0c\n\x02v1\x12\x06Status");
        check(Some("text/html"), false, json, r"{\n  ");
        let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
        check(Some(table), false, json, r"{\n  ");
        check(Some(&format!("{table},application/json")), false, json, r#"{\"kind"#);
    }
}
