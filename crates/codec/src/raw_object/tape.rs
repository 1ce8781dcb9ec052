//! The structure of compact JSON, found in one pass: where each value begins and ends, and which value follows it. With a
//! [`Cursor`] alone a byte is looked at once for each container around it.

use std::ops::Range;

use meta::cancel::Steps;

use super::{ScanError, cursor::Cursor};

/// All values of a text, a container before what it holds.
pub(crate) struct Tape<'a> {
    json: &'a [u8],
    values: Vec<Place>,
}

struct Place {
    /// As it is spelt; empty for the items of a list.
    key: Range<u32>,
    value: Range<u32>,
    /// The first value behind this one that is not within it.
    next: u32,
}

/// A value of a [`Tape`].
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    /// As it is spelt; empty for the items of a list.
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    place: u32,
}

impl<'a> Tape<'a> {
    pub(crate) fn read(json: &'a [u8]) -> Result<Self, ScanError> {
        let mut tape = Self { json, values: Vec::with_capacity(json.len() / VALUE_BYTES) };
        if u32::try_from(json.len()).is_err() {
            return Err(ScanError::Syntax(0));
        }
        let (mut cursor, mut steps) = (Cursor::new(json), Steps::default());
        // The containers that are open, with the brackets that close them.
        let mut open: Vec<(usize, u8)> = Vec::new();
        let mut key = 0..0;
        loop {
            steps.step();
            let (at, start) = (tape.values.len(), cursor.at() as u32);
            tape.values.push(Place { key, value: start..start, next: 0 });
            let opened = match cursor.peek() {
                Some(bracket @ (b'{' | b'[')) => cursor.open(bracket)?.then_some(bracket + 2),
                _ => {
                    cursor.skip()?;
                    None
                }
            };
            if let Some(close) = opened {
                open.push((at, close));
            } else {
                tape.end(at, &cursor);
                loop {
                    let Some(&(container, close)) = open.last() else { return Ok(tape) };
                    if cursor.another(close)? {
                        break;
                    }
                    tape.end(container, &cursor);
                    open.pop();
                }
            }
            key = match open.last() {
                Some((_, b'}')) => {
                    let before = cursor.at() as u32 + 1;
                    let key = cursor.key()?;
                    before..before + key.len() as u32
                }
                _ => 0..0,
            };
        }
    }

    fn end(&mut self, at: usize, cursor: &Cursor<'_>) {
        let next = self.values.len() as u32;
        let place = &mut self.values[at];
        place.value.end = cursor.at() as u32;
        place.next = next;
    }

    /// The outermost value.
    pub(crate) fn root(&self) -> Node<'a> {
        self.node(0)
    }

    /// The members or items of a container.
    pub(crate) fn children(&self, of: Node<'a>) -> impl Iterator<Item = Node<'a>> {
        let end = self.values[of.place as usize].next;
        let mut next = of.place + 1;
        std::iter::from_fn(move || {
            let node = (next < end).then(|| self.node(next))?;
            next = self.values[next as usize].next;
            Some(node)
        })
    }

    fn node(&self, place: u32) -> Node<'a> {
        let Place { key, value, .. } = &self.values[place as usize];
        let text = |range: &Range<u32>| &self.json[range.start as usize..range.end as usize];
        Node { key: text(key), value: text(value), place }
    }
}

/// Objects have a value in about so many bytes.
const VALUE_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    /// Values with their keys, in brackets what they hold.
    fn show(tape: &Tape<'_>, node: Node<'_>) -> String {
        let held: String = tape.children(node).map(|child| show(tape, child)).collect();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (key, value) = (text(node.key), text(node.value));
        if held.is_empty() { format!("<{key}:{value}>") } else { format!("<{key}:[{held}]>") }
    }

    #[test]
    fn values_are_found_with_what_they_hold() {
        let cases = [
            ("{}", "<:{}>"),
            ("[]", "<:[]>"),
            (r#""a,b""#, r#"<:"a,b">"#),
            ("12", "<:12>"),
            (r#"{"a":1}"#, "<:[<a:1>]>"),
            (r#"[1,"]",[]]"#, r#"<:[<:1><:"]"><:[]>]>"#),
            (
                r#"{"a":{"b":[{"c":"}"},true],"d":{}},"\"e":null}"#,
                r#"<:[<a:[<b:[<:[<c:"}">]><:true>]><d:{}>]><\"e:null>]>"#,
            ),
        ];
        for (json, expected) in cases {
            let tape = Tape::read(json.as_bytes()).unwrap();
            assert_eq!(show(&tape, tape.root()), expected, "{json}");
        }
    }

    #[test]
    fn what_is_no_compact_json_is_an_error() {
        for json in
            ["", "{", "[1", "{\"a\"}", "{\"a\":", "{1:2}", "[1}", "{\"a\":1]", "[,]", "x", "\"a"]
        {
            assert!(Tape::read(json.as_bytes()).is_err(), "{json}");
        }
    }

    #[test]
    fn nesting_costs_no_stack() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(Tape::read(deep.as_bytes()).unwrap().values.len(), 100_000);
    }
}
