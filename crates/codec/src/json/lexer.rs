//! JSON tokens, and Go's error messages for invalid ones.

use std::borrow::Cow;

use meta::limits::TooLarge;

use super::{DEPTH_MAX, DecodeError};

/// A position in a JSON text. All methods leave it after what they read.
pub(crate) struct Lexer<'a> {
    pub(crate) text: &'a str,
    pub(crate) at: usize,
}

/// The text of a document. Bytes that are not UTF-8 become U+FFFD one by one, as in Go; outside of
/// strings that is a syntax error a moment later.
pub(crate) fn well_formed(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{FFFD}'));
    }
    Cow::Owned(text)
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// The byte at the current position; none at the end.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes().get(self.at).copied()
    }

    /// The next byte that is not white space, without reading it.
    #[inline]
    pub(crate) fn skip_space(&mut self) -> Option<u8> {
        loop {
            match self.peek() {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                other => return other,
            }
        }
    }

    /// Like [`Self::skip_space`], where the document must go on.
    #[inline]
    pub(crate) fn next_token(&mut self) -> Result<u8, DecodeError> {
        self.skip_space().ok_or_else(|| self.unexpected_end())
    }

    /// Reads a key's opening quote or returns an error with what was expected.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        match self.next_token()? {
            b'"' => self.string(),
            _ => Err(self.unexpected("looking for beginning of object key string")),
        }
    }

    /// Reads the colon behind a key.
    #[inline]
    pub(crate) fn colon(&mut self) -> Result<(), DecodeError> {
        match self.next_token()? {
            b':' => {
                self.at += 1;
                Ok(())
            }
            _ => Err(self.unexpected("after object key")),
        }
    }

    /// Behind a member or an item: true if another one follows, false at the closing bracket, which
    /// is read.
    #[inline]
    pub(crate) fn another(&mut self, close: u8) -> Result<bool, DecodeError> {
        match self.next_token()? {
            b',' => {
                self.at += 1;
                Ok(true)
            }
            byte if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ if close == b'}' => Err(self.unexpected("after object key:value pair")),
            _ => Err(self.unexpected("after array element")),
        }
    }

    /// Only white space may follow the document.
    pub(crate) fn end(&mut self) -> Result<(), DecodeError> {
        match self.skip_space() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("after top-level value")),
        }
    }

    /// Reads a string, at its opening quote. Without escapes it is a part of the text.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        let start = self.at + 1;
        let end = find_special(self.bytes(), start);
        if self.bytes().get(end) == Some(&b'"') {
            self.at = end + 1;
            return Ok(Cow::Borrowed(&self.text[start..end]));
        }
        self.string_with_escapes(start, end).map(Cow::Owned)
    }

    #[cold]
    fn string_with_escapes(&mut self, start: usize, end: usize) -> Result<String, DecodeError> {
        let mut out = String::with_capacity(end - start + 32);
        let (mut start, mut end) = (start, end);
        loop {
            out.push_str(&self.text[start..end]);
            self.at = end;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => self.escape(&mut out)?,
                Some(_) => return Err(self.unexpected("in string literal")),
                None => return Err(self.unexpected_end()),
            }
            start = self.at;
            end = find_special(self.bytes(), start);
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), DecodeError> {
        self.at += 1;
        let c = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                let unit = self.hex4()?;
                out.push(self.surrogates(unit));
                return Ok(());
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        out.push(c);
        self.at += 1;
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, DecodeError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }

    /// Two halves make one character; a half alone is U+FFFD.
    fn surrogates(&mut self, unit: u32) -> char {
        if let Some(c) = char::from_u32(unit) {
            return c;
        }
        let second = self
            .text
            .get(self.at..self.at + 6)
            .and_then(|text| u32::from_str_radix(text.strip_prefix("\\u")?, 16).ok());
        if let (0xD800..0xDC00, Some(second @ 0xDC00..0xE000)) = (unit, second) {
            self.at += 6;
            let c = 0x1_0000 + ((unit - 0xD800) << 10) + (second - 0xDC00);
            return char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER);
        }
        char::REPLACEMENT_CHARACTER
    }

    /// Reads a number, at its first digit or sign.
    pub(crate) fn number(&mut self) -> Result<&'a str, DecodeError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
    }

    fn some_digits(&mut self, context: &str) -> Result<(), DecodeError> {
        let start = self.at;
        self.digits();
        if self.at == start { Err(self.unexpected(context)) } else { Ok(()) }
    }

    /// Reads `true`, `false` or `null`, at its first letter.
    pub(crate) fn word(&mut self, word: &'static str) -> Result<(), DecodeError> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                let expected = char::from(expected);
                let context = format!("in literal {word} (expecting '{expected}')");
                return Err(self.unexpected(&context));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Reads any value and forgets it; `depth` containers are already open around it.
    pub(crate) fn skip_value(&mut self, depth: usize) -> Result<(), DecodeError> {
        // The closing brackets that are still to come, innermost last.
        let mut open: Vec<u8> = Vec::new();
        loop {
            match self.next_token()? {
                byte @ (b'{' | b'[') => {
                    if depth + open.len() >= DEPTH_MAX {
                        return Err(self.too_deep());
                    }
                    self.at += 1;
                    // The closing bracket comes two places later in ASCII.
                    let close = byte + 2;
                    if self.next_token()? == close {
                        self.at += 1;
                    } else {
                        open.push(close);
                        if close == b'}' {
                            self.key()?;
                            self.colon()?;
                        }
                        continue;
                    }
                }
                _ => self.skip_leaf()?,
            }
            loop {
                let Some(&close) = open.last() else { return Ok(()) };
                if self.another(close)? {
                    if close == b'}' {
                        self.key()?;
                        self.colon()?;
                    }
                    break;
                }
                open.pop();
            }
        }
    }

    fn skip_leaf(&mut self) -> Result<(), DecodeError> {
        match self.next_token()? {
            b'"' => self.string().map(drop),
            b'-' | b'0'..=b'9' => self.number().map(drop),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    pub(crate) fn too_deep(&self) -> DecodeError {
        self.unexpected("exceeded max depth")
    }

    #[cold]
    pub(crate) fn too_large(&self, error: TooLarge) -> DecodeError {
        DecodeError::Syntax { message: error.to_string(), offset: self.at + 1 }
    }

    /// The error for an unexpected byte at the current position. Inside a token Go treats the end
    /// of the text as a space.
    #[cold]
    pub(crate) fn unexpected(&self, context: &str) -> DecodeError {
        let byte = quote_byte(self.peek().unwrap_or(b' '));
        let message = format!("invalid character {byte} {context}");
        DecodeError::Syntax { message, offset: self.at + 1 }
    }

    #[cold]
    fn unexpected_end(&self) -> DecodeError {
        let message = "unexpected end of JSON input".to_owned();
        DecodeError::Syntax { message, offset: self.text.len() }
    }
}

/// A byte as Go shows it: a Latin-1 character, escaped where it can't be printed.
pub fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => "'\\\\'".to_owned(),
        0x80..=0xA0 | 0xAD => format!("'\\u{byte:04x}'"),
        _ => {
            let quoted = meta::field::quote(char::from(byte).encode_utf8(&mut [0; 4]));
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}

/// The first quote, backslash or control character from `at` on, or the end. Eight bytes at a time.
#[inline]
pub(crate) fn find_special(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    while let Some(chunk) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        let quote = word ^ (ONES * u64::from(b'"'));
        let backslash = word ^ (ONES * u64::from(b'\\'));
        // A borrow can only raise false alarms above a true one, and the lowest is taken.
        let found = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        let found = found & HIGHS;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while let Some(byte) = bytes.get(at) {
        if matches!(byte, b'"' | b'\\' | 0..0x20) {
            break;
        }
        at += 1;
    }
    at
}
