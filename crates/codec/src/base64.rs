//! Standard base64 as Go's `encoding/base64` reads it: line breaks are skipped, padding is
//! required, and an error has the offset of the invalid byte.

use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("illegal base64 data at input byte {0}")]
pub struct Base64Error(pub usize);

/// Decodes standard base64 with padding.
pub fn decode(text: &str) -> Result<Vec<u8>, Base64Error> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let mut input = text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\n' | b'\r'));
    loop {
        let mut quantum = [0u8; 4];
        let mut digits = 0;
        while digits < 4 {
            let Some((at, byte)) = input.next() else {
                if digits == 0 {
                    return Ok(out);
                }
                // Padding is missing. Go reports the start of the incomplete quantum.
                return Err(Base64Error(text.len() - digits));
            };
            match value_of(byte) {
                Some(value) => quantum[digits] = value,
                None if byte == b'=' => return finish(out, quantum, digits, at, text, input),
                None => return Err(Base64Error(at)),
            }
            digits += 1;
        }
        out.extend_from_slice(&bytes_of(quantum));
    }
}

/// At the first `=`: the quantum ends here, and the text must too.
fn finish(
    mut out: Vec<u8>,
    quantum: [u8; 4],
    digits: usize,
    at: usize,
    text: &str,
    mut input: impl Iterator<Item = (usize, u8)>,
) -> Result<Vec<u8>, Base64Error> {
    if digits < 2 {
        return Err(Base64Error(at));
    }
    if digits == 2 {
        match input.next() {
            Some((_, b'=')) => {}
            Some((at, _)) => return Err(Base64Error(at - 1)),
            None => return Err(Base64Error(text.len())),
        }
    }
    if let Some((at, _)) = input.next() {
        return Err(Base64Error(at));
    }
    out.extend_from_slice(&bytes_of(quantum)[..digits - 1]);
    Ok(out)
}

fn bytes_of([a, b, c, d]: [u8; 4]) -> [u8; 3] {
    [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d]
}

fn value_of(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// Encodes with padding.
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut word = [0u8; 3];
        word[..chunk.len()].copy_from_slice(chunk);
        let [a, b, c] = word;
        let digits = [a >> 2, (a & 3) << 4 | b >> 4, (b & 15) << 2 | c >> 6, c & 63];
        for (at, digit) in digits.into_iter().enumerate() {
            let padding = at > chunk.len();
            out.push(if padding { '=' } else { char::from(DIGITS[usize::from(digit)]) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_and_written() {
        let cases: [(&str, &[u8], &str); 7] = [
            ("", b"", ""),
            ("Zg==", b"f", "Zg=="),
            ("Zm8=", b"fo", "Zm8="),
            ("Zm9v", b"foo", "Zm9v"),
            ("Zm9\nvYg==\r\n", b"foob", "Zm9vYg=="),
            // Bits beyond the last byte are ignored.
            ("Zh==", b"f", "Zg=="),
            ("+/+/", &[0xFB, 0xFF, 0xBF], "+/+/"),
        ];
        for (text, bytes, canonical) in cases {
            assert_eq!(decode(text).unwrap(), bytes, "{text}");
            assert_eq!(encode(bytes), canonical);
        }
    }

    /// The offsets are those that Go reports.
    #[test]
    fn errors_have_the_offset_of_go() {
        for (text, at) in PLACES {
            assert_eq!(decode(text), Err(Base64Error(*at)), "{text:?}");
        }
    }

    const PLACES: &[(&str, usize)] = &[
        ("!", 0),
        ("Zm9", 0),
        ("Z", 0),
        ("Zg=", 3),
        ("Zg==x", 4),
        ("Zg===", 4),
        ("=", 0),
        ("Z=", 1),
        ("Zm=v", 2),
        ("Zm8=Zm8=", 4),
        ("Zm9v\n!", 5),
        ("Zg=\n", 4),
        ("Zm9vZ", 4),
        ("Zm9v\nZg", 5),
        ("Zm9v\nZg\n", 6),
        ("Zm9v Zg==", 4),
        ("Zm8=\nx", 5),
        ("Zg=\n\nx", 4),
    ];
}
