//! As much of DER as keys need.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_ID: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
/// `[1]`, explicit.
/// `[0]`, explicit.
pub(super) const TAGGED_0: u8 = 0xa0;

/// Reads elements one after the other.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next element: tag, content, and all of it.
    pub(super) fn element(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let bytes = self.0;
        let (tag, first) = (*bytes.first()?, usize::from(*bytes.get(1)?));
        let (head, length) = if first < 0x80 {
            (2, first)
        } else {
            let count = first - 0x80;
            // Longer lengths than of two bytes belong to no key.
            let length = bytes.get(2..2 + count).filter(|_| (1..=2).contains(&count))?;
            (2 + count, length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
        };
        let whole = bytes.get(..head + length)?;
        self.0 = &bytes[head + length..];
        Some((tag, &whole[head..], whole))
    }

    /// The content of the next element, which has this tag.
    pub(super) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.element().filter(|element| element.0 == tag).map(|element| element.1)
    }

    /// The same, of an element that may be left out.
    pub(super) fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.0.first() == Some(&tag) { self.expect(tag) } else { None }
    }
}

/// An element.
pub(super) fn write(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        length @ 0..0x80 => out.push(length as u8),
        length @ 0x80..0x100 => out.extend([0x81, length as u8]),
        length => out.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    out.extend_from_slice(content);
    out
}
