//! Verifies responses once per scenario, outside the measured time: a server that responds with JSON
//! instead of protobuf, or with half of the objects, must not count as fast.

use std::io::Read as _;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::client::{Answer, PROTOBUF};

/// The expected response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expect {
    pub(crate) protobuf: bool,
    pub(crate) gzip: bool,
    pub(crate) kind: &'static str,
    /// Items of a list or rows of a table; `None` for a single object.
    pub(crate) items: Option<usize>,
}

impl Expect {
    /// The answer must have been kept whole.
    pub(crate) fn check(&self, answer: &Answer) -> Result<()> {
        ensure!(answer.gzip == self.gzip, "asked for gzip: {}, got: {}", self.gzip, answer.gzip);
        let is_protobuf = answer.content_type.starts_with(PROTOBUF);
        ensure!(is_protobuf == self.protobuf, "answered as {}", answer.content_type);
        let unpacked;
        let body = if answer.gzip {
            unpacked = gunzip(&answer.kept)?;
            &unpacked
        } else {
            &answer.kept
        };
        let (kind, items) = if is_protobuf { read_protobuf(body)? } else { read_json(body)? };
        ensure!(kind == self.kind, "answered a {kind}, not a {}", self.kind);
        match self.items {
            Some(expected) => ensure!(items == expected, "answered {items} items, not {expected}"),
            None => ensure!(items == 0, "answered a list"),
        }
        Ok(())
    }
}

fn gunzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut unpacked).context("unpacking")?;
    Ok(unpacked)
}

fn read_json(body: &[u8]) -> Result<(String, usize)> {
    #[derive(Deserialize)]
    struct Shape {
        kind: String,
        #[serde(default)]
        items: Vec<IgnoredAny>,
        #[serde(default)]
        rows: Vec<IgnoredAny>,
    }
    let shape: Shape = serde_json::from_slice(body).context("not the JSON of an object")?;
    Ok((shape.kind, shape.items.len() + shape.rows.len()))
}

/// Kind and number of items of `k8s\0` + `Unknown{1: TypeMeta{1: apiVersion, 2: kind}, 2: raw}`. A list
/// keeps its items in field 2; so does an object its spec, which is why only lists are counted.
fn read_protobuf(body: &[u8]) -> Result<(String, usize)> {
    let unknown = body.strip_prefix(b"k8s\0").context("no k8s envelope")?;
    let mut kind = String::new();
    let mut raw: &[u8] = &[];
    for field in Fields(unknown) {
        match field? {
            (1, type_meta) => {
                for field in Fields(type_meta) {
                    if let (2, name) = field? {
                        kind = String::from_utf8_lossy(name).into_owned();
                    }
                }
            }
            (2, bytes) => raw = bytes,
            _ => {}
        }
    }
    let mut items = 0;
    if kind.ends_with("List") {
        for field in Fields(raw) {
            items += usize::from(field?.0 == 2);
        }
    }
    Ok((kind, items))
}

/// The fields of a protobuf message; numbers come with an empty value.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u64, &'a [u8])> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => {
                self.varint()?;
                &[][..]
            }
            1 => self.bytes(8)?,
            2 => {
                let length = self.varint()?;
                self.bytes(length)?
            }
            5 => self.bytes(4)?,
            other => bail!("protobuf wire type {other}"),
        };
        Ok((tag >> 3, value))
    }

    fn bytes(&mut self, length: u64) -> Result<&'a [u8]> {
        let length = usize::try_from(length)?;
        let (value, rest) = self.0.split_at_checked(length).context("protobuf ends early")?;
        self.0 = rest;
        Ok(value)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        bail!("protobuf number too long")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST_OF_TWO: &[u8] =
        b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x08\x0a\x02\x0a\x00\x12\x00\x12\x00\x1a\x00\x22\x00";

    fn answer(content_type: &str, gzip: bool, body: &[u8]) -> Answer {
        let bytes = body.len() as u64;
        Answer {
            status: 200,
            content_type: content_type.to_owned(),
            gzip,
            bytes,
            kept: body.to_vec(),
        }
    }

    #[test]
    fn only_what_was_asked_for_passes() {
        let pods = Expect { protobuf: false, gzip: false, kind: "PodList", items: Some(2) };
        let table = Expect { kind: "Table", ..pods };
        let protobuf = Expect { protobuf: true, ..pods };
        let json = br#"{"kind":"PodList","items":[{"a":1},{}]}"#.as_slice();
        let one = br#"{"kind":"PodList","items":[{}]}"#.as_slice();
        let rows = br#"{"kind":"Table","rows":[{},{}]}"#.as_slice();
        let cases = [
            (pods, JSON, json, ""),
            (pods, JSON, one, "answered 1 items, not 2"),
            (pods, JSON, rows, "answered a Table, not a PodList"),
            (pods, JSON, b"<html>", "not the JSON of an object"),
            (table, JSON, rows, ""),
            (protobuf, PROTOBUF, LIST_OF_TWO, ""),
            (protobuf, JSON, json, "answered as application/json"),
            (pods, PROTOBUF, LIST_OF_TWO, "answered as application/vnd.kubernetes.protobuf"),
            (protobuf, PROTOBUF, b"k8s\0\x0a\x7f", "protobuf ends early"),
            (protobuf, PROTOBUF, b"junk", "no k8s envelope"),
        ];
        for (expect, content_type, body, expected) in cases {
            let outcome = expect.check(&answer(content_type, false, body));
            let said = outcome.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(said, expected, "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn an_answer_that_is_not_compressed_fails_the_gzip_scenario() {
        let expect = Expect { protobuf: false, gzip: true, kind: "PodList", items: Some(0) };
        let body = br#"{"kind":"PodList","items":[]}"#;
        assert!(expect.check(&answer(JSON, false, body)).is_err());
        assert!(expect.check(&answer(JSON, true, body)).is_err());
        let mut packed = flate2::read::GzEncoder::new(&body[..], flate2::Compression::fast());
        let mut bytes = Vec::new();
        packed.read_to_end(&mut bytes).unwrap();
        assert!(expect.check(&answer(JSON, true, &bytes)).is_ok());
    }

    const JSON: &str = crate::client::JSON;
}
