//! The lexer, and the decoding of string literals.

use crate::source::{Issues, Source};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Token {
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Ident,
    QuotedIdent,
    End,
}

impl Token {
    /// As syntax errors name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Equals => "'=='",
            Self::NotEquals => "'!='",
            Self::In => "'in'",
            Self::Less => "'<'",
            Self::LessEquals => "'<='",
            Self::GreaterEquals => "'>='",
            Self::Greater => "'>'",
            Self::And => "'&&'",
            Self::Or => "'||'",
            Self::LeftBracket => "'['",
            Self::RightBracket => "']'",
            Self::LeftBrace => "'{'",
            Self::RightBrace => "'}'",
            Self::LeftParen => "'('",
            Self::RightParen => "')'",
            Self::Dot => "'.'",
            Self::Comma => "','",
            Self::Minus => "'-'",
            Self::Not => "'!'",
            Self::Question => "'?'",
            Self::Colon => "':'",
            Self::Plus => "'+'",
            Self::Star => "'*'",
            Self::Slash => "'/'",
            Self::Percent => "'%'",
            Self::True => "'true'",
            Self::False => "'false'",
            Self::Null => "'null'",
            Self::Float => "NUM_FLOAT",
            Self::Int => "NUM_INT",
            Self::Uint => "NUM_UINT",
            Self::String => "STRING",
            Self::Bytes => "BYTES",
            Self::Ident => "IDENTIFIER",
            Self::QuotedIdent => "ESC_IDENTIFIER",
            Self::End => "<EOF>",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexeme {
    pub(crate) token: Token,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// All tokens, the end included. Invalid characters are reported and skipped.
pub(crate) fn lex(source: &Source, issues: &mut Issues) -> Vec<Lexeme> {
    let mut lexer = Lexer { chars: &source.chars, at: 0 };
    let mut lexemes = Vec::new();
    while lexer.skip_blanks() {
        let start = lexer.at;
        if let Some(token) = lexer.token() {
            lexemes.push(Lexeme { token, start, end: lexer.at });
        } else {
            // The character that fits nothing belongs to the error.
            let end = (lexer.at + 1).min(source.chars.len());
            let text = source.text(start, end);
            issues.report(
                Some(start as u32),
                format!("Syntax error: token recognition error at: '{text}'"),
            );
            lexer.at = end;
        }
    }
    lexemes.push(Lexeme { token: Token::End, start: lexer.at, end: lexer.at });
    lexemes
}

/// Line breaks and tabs as an error message shows them.
pub(crate) fn shown(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    /// False at the end.
    fn skip_blanks(&mut self) -> bool {
        loop {
            match self.peek(0) {
                '\t' | ' ' | '\r' | '\n' | '\u{c}' => self.at += 1,
                '/' if self.peek(1) == '/' => {
                    while self.at < self.chars.len() && self.peek(0) != '\n' {
                        self.at += 1;
                    }
                }
                _ => return self.at < self.chars.len(),
            }
        }
    }

    fn token(&mut self) -> Option<Token> {
        let first = self.peek(0);
        let pair = |second: char| self.peek(1) == second;
        let (token, length) = match first {
            '=' if pair('=') => (Token::Equals, 2),
            '!' if pair('=') => (Token::NotEquals, 2),
            '<' if pair('=') => (Token::LessEquals, 2),
            '>' if pair('=') => (Token::GreaterEquals, 2),
            '&' if pair('&') => (Token::And, 2),
            '|' if pair('|') => (Token::Or, 2),
            '<' => (Token::Less, 1),
            '>' => (Token::Greater, 1),
            '[' => (Token::LeftBracket, 1),
            ']' => (Token::RightBracket, 1),
            '{' => (Token::LeftBrace, 1),
            '}' => (Token::RightBrace, 1),
            '(' => (Token::LeftParen, 1),
            ')' => (Token::RightParen, 1),
            '.' if self.peek(1).is_ascii_digit() => return Some(self.number()),
            '.' => (Token::Dot, 1),
            ',' => (Token::Comma, 1),
            '-' => (Token::Minus, 1),
            '!' => (Token::Not, 1),
            '?' => (Token::Question, 1),
            ':' => (Token::Colon, 1),
            '+' => (Token::Plus, 1),
            '*' => (Token::Star, 1),
            '/' => (Token::Slash, 1),
            '%' => (Token::Percent, 1),
            '=' | '&' | '|' => {
                self.at += 1;
                return None;
            }
            '0'..='9' => return Some(self.number()),
            '`' => return self.quoted_ident(),
            '"' | '\'' => return self.string(false).then_some(Token::String),
            'a'..='z' | 'A'..='Z' | '_' => return self.word(),
            _ => return None,
        };
        self.at += length;
        Some(token)
    }

    /// An identifier, a keyword, or a string with a prefix.
    fn word(&mut self) -> Option<Token> {
        let lower = |ahead: usize| self.peek(ahead).to_ascii_lowercase();
        let quote = |ahead: usize| matches!(self.peek(ahead), '"' | '\'');
        let prefix = match (lower(0), lower(1)) {
            ('r', _) if quote(1) => Some((1, true, Token::String)),
            ('b', _) if quote(1) => Some((1, false, Token::Bytes)),
            ('b', 'r') if quote(2) => Some((2, true, Token::Bytes)),
            _ => None,
        };
        if let Some((length, raw, token)) = prefix {
            let start = self.at;
            self.at += length;
            if self.string(raw) {
                return Some(token);
            }
            // An unterminated string: the prefix alone is an identifier.
            self.at = start + 1;
            return Some(Token::Ident);
        }
        let start = self.at;
        while matches!(self.peek(0), 'a'..='z' | 'A'..='Z' | '0'..='9' | '_') {
            self.at += 1;
        }
        let word: String = self.chars[start..self.at].iter().collect();
        Some(match word.as_str() {
            "in" => Token::In,
            "true" => Token::True,
            "false" => Token::False,
            "null" => Token::Null,
            _ => Token::Ident,
        })
    }

    fn number(&mut self) -> Token {
        if self.peek(0) == '0' && self.peek(1) == 'x' && self.peek(2).is_ascii_hexdigit() {
            self.at += 2;
            while self.peek(0).is_ascii_hexdigit() {
                self.at += 1;
            }
            return self.unsigned_or(Token::Int);
        }
        let mut token = Token::Int;
        self.digits();
        if self.peek(0) == '.' && self.peek(1).is_ascii_digit() {
            self.at += 1;
            self.digits();
            token = Token::Float;
        }
        let sign = usize::from(matches!(self.peek(1), '+' | '-'));
        if matches!(self.peek(0), 'e' | 'E') && self.peek(1 + sign).is_ascii_digit() {
            self.at += 1 + sign;
            self.digits();
            token = Token::Float;
        }
        if token == Token::Int { self.unsigned_or(token) } else { token }
    }

    fn digits(&mut self) {
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
    }

    fn unsigned_or(&mut self, token: Token) -> Token {
        if matches!(self.peek(0), 'u' | 'U') {
            self.at += 1;
            return Token::Uint;
        }
        token
    }

    fn quoted_ident(&mut self) -> Option<Token> {
        self.at += 1;
        let start = self.at;
        while matches!(self.peek(0), 'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | '-' | '/' | ' ')
        {
            self.at += 1;
        }
        if self.peek(0) != '`' || self.at == start {
            return None;
        }
        self.at += 1;
        Some(Token::QuotedIdent)
    }

    /// Moves behind the string that begins here; false (at where it went wrong) if it does not end.
    fn string(&mut self, raw: bool) -> bool {
        let quote = self.peek(0);
        let triple = self.peek(1) == quote && self.peek(2) == quote;
        let start = self.at;
        let ended = self.string_end(quote, triple, raw);
        if triple && !ended {
            // Without its end, what begins three times is an empty string and something else.
            self.at = start + 2;
            return true;
        }
        ended
    }

    fn string_end(&mut self, quote: char, triple: bool, raw: bool) -> bool {
        self.at += if triple { 3 } else { 1 };
        while self.at < self.chars.len() {
            match self.peek(0) {
                c if c == quote && !triple => {
                    self.at += 1;
                    return true;
                }
                c if c == quote && self.peek(1) == quote && self.peek(2) == quote => {
                    self.at += 3;
                    return true;
                }
                '\n' | '\r' if !triple => return false,
                '\\' if !raw => match self.escape_length() {
                    Ok(length) => self.at += length,
                    Err(good) => {
                        self.at += good;
                        return false;
                    }
                },
                _ => self.at += 1,
            }
        }
        false
    }

    /// The length of the escape that begins here, or how much of it is good.
    fn escape_length(&self) -> Result<usize, usize> {
        let digits = |from: usize, count: usize, radix: u32| match (from..from + count)
            .find(|ahead| !self.peek(*ahead).is_digit(radix))
        {
            Some(bad) => Err(bad),
            None => Ok(from + count),
        };
        match self.peek(1) {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Ok(2),
            'x' | 'X' => digits(2, 2, 16),
            'u' => digits(2, 4, 16),
            'U' => digits(2, 8, 16),
            '0'..='3' => digits(2, 2, 8),
            _ => Err(1),
        }
    }
}

/// The value of a string token (without `b`). The lexer has checked its escapes.
pub(crate) fn unquote(token: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let token = token.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, quoted) = match token.strip_prefix(['r', 'R']) {
        Some(quoted) => (true, quoted),
        None => (false, token.as_str()),
    };
    let length = if quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\""))
    {
        3
    } else {
        1
    };
    let inner = &quoted[length..quoted.len() - length];
    if raw || !inner.contains('\\') {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let escape =
            rest.next().ok_or("unable to unescape string, found '\\' as last character")?;
        let (digits, radix, first) = match escape {
            'a' => (0, 0, 7),
            'b' => (0, 0, 8),
            'f' => (0, 0, 12),
            'n' => (0, 0, 10),
            'r' => (0, 0, 13),
            't' => (0, 0, 9),
            'v' => (0, 0, 11),
            'x' | 'X' => (2, 16, 0),
            'u' | 'U' if bytes => return Err("unable to unescape string"),
            'u' => (4, 16, 0),
            'U' => (8, 16, 0),
            '0'..='3' => (2, 8, u32::from(escape) - u32::from('0')),
            other => (0, 0, u32::from(other)),
        };
        let mut code = first;
        for _ in 0..digits {
            let digit = rest.next().and_then(|c| c.to_digit(radix));
            code = code.wrapping_mul(radix) + digit.ok_or("unable to unescape string")?;
        }
        if bytes && digits > 0 {
            out.push(code as u8);
        } else {
            let c = char::from_u32(code).ok_or("invalid unicode code point")?;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Ok(out)
}
