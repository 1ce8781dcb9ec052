//! A cursor over compact JSON. Values that are not needed are skipped: strings eight bytes at a
//! time, containers by counting brackets.

use meta::Str;

use super::ScanError;
use crate::json::lexer::{Lexer, find_special};

pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(crate) fn byte_before(&self, at: usize) -> Option<u8> {
        self.bytes.get(at.checked_sub(1)?).copied()
    }

    pub(crate) fn unexpected(&self) -> ScanError {
        ScanError::Syntax(self.at)
    }

    /// Reads an opening bracket; false if the closing one follows, which then is read too.
    pub(crate) fn open(&mut self, bracket: u8) -> Result<bool, ScanError> {
        self.expect(bracket)?;
        if self.peek() == Some(bracket + 2) {
            self.at += 1;
            return Ok(false);
        }
        Ok(true)
    }

    /// Behind a member: true if another one follows, false at the closing bracket, which is read.
    pub(crate) fn another(&mut self, close: u8) -> Result<bool, ScanError> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.unexpected()),
        }
    }

    /// A key and its colon, as it is spelt.
    pub(crate) fn key(&mut self) -> Result<&'a [u8], ScanError> {
        let key = self.string()?;
        self.expect(b':')?;
        Ok(key)
    }

    /// A key and its colon, escapes resolved.
    pub(crate) fn key_text(&mut self) -> Result<Str, ScanError> {
        let key = self.string_text()?;
        self.expect(b':')?;
        Ok(key)
    }

    /// The raw text between a string's quotes.
    pub(crate) fn string(&mut self) -> Result<&'a [u8], ScanError> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            self.at = find_special(self.bytes, self.at);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(&self.bytes[start..self.at - 1]);
                }
                Some(b'\\') if self.at + 1 < self.bytes.len() => self.at += 2,
                _ => return Err(self.unexpected()),
            }
        }
    }

    /// The text of a leaf: a string's, or a number or truth value as it is spelt.
    pub(crate) fn text(&mut self) -> Result<Option<Str>, ScanError> {
        match self.peek() {
            Some(b'"') => self.string_text().map(Some),
            Some(b'{' | b'[') => self.skip().map(|()| None),
            _ => {
                let start = self.at;
                self.skip()?;
                let word = std::str::from_utf8(&self.bytes[start..self.at]);
                let word = word.map_err(|_| ScanError::Syntax(start))?;
                Ok((word != "null").then(|| Str::new(word)))
            }
        }
    }

    fn string_text(&mut self) -> Result<Str, ScanError> {
        let start = self.at;
        let raw = self.string()?;
        if !raw.contains(&b'\\') {
            return Ok(Str::new(String::from_utf8_lossy(raw)));
        }
        let quoted = String::from_utf8_lossy(&self.bytes[start..self.at]);
        let text = Lexer::new(&quoted).string().map_err(|_| ScanError::Syntax(start))?;
        Ok(Str::new(text))
    }

    /// Any value.
    pub(crate) fn skip(&mut self) -> Result<(), ScanError> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{' | b'[') => self.skip_container(),
            Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                while !matches!(self.peek(), None | Some(b',' | b'}' | b']')) {
                    self.at += 1;
                }
                Ok(())
            }
            _ => Err(self.unexpected()),
        }
    }

    fn skip_container(&mut self) -> Result<(), ScanError> {
        let mut depth = 0usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.unexpected())
    }

    fn expect(&mut self, byte: u8) -> Result<(), ScanError> {
        if self.peek() != Some(byte) {
            return Err(self.unexpected());
        }
        self.at += 1;
        Ok(())
    }
}
