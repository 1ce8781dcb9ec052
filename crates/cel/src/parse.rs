//! Tokens to a tree: recursive descent over CEL's grammar. Macros are expanded on the way
//! (`macros.rs`), so that what follows knows calls and loops only.

use meta::Str;

use crate::ast::{Entry, Expr, ExprKind, Id, Literal, StructField, op};
use crate::escape::RESERVED;
use crate::lex::{Lexeme, Token, lex, shown, unquote};
use crate::macros;
use crate::source::{Issues, Position, Source};

/// Longer expressions are not looked at.
const EXPRESSION_CHARS_MAX: usize = 100_000;

/// How deep expressions may nest: in brackets and conditionals, and in chains of operators.
const DEPTH_MAX: usize = 250;

/// A tree, and where each of its nodes was written.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) expr: Expr,
    positions: Vec<u32>,
}

impl Parsed {
    pub(crate) fn position(&self, id: Id) -> Position {
        self.positions.get(id as usize).copied()
    }

    /// The number of ids given, 0 included.
    pub(crate) fn ids(&self) -> usize {
        self.positions.len()
    }
}

pub(crate) fn parse(text: &str, bindings: bool) -> Result<(Parsed, Source), Issues> {
    let source = Source::new(text);
    let mut issues = Issues::new(source.clone());
    if source.chars.len() > EXPRESSION_CHARS_MAX {
        issues.report(
            None,
            format!(
                "expression code point size exceeds limit: size: {}, limit {EXPRESSION_CHARS_MAX}",
                source.chars.len()
            ),
        );
        return Err(issues);
    }
    let lexemes = lex(&source, &mut issues);
    let mut parser = Parser {
        source: &source,
        lexemes,
        at: 0,
        positions: vec![0],
        issues,
        depth: 0,
        height: 0,
        open: Vec::new(),
        bindings,
    };
    let parsed = parser.start();
    match parsed {
        Ok(expr) if parser.issues.is_empty() => {
            Ok((Parsed { expr, positions: parser.positions }, source))
        }
        _ => Err(parser.issues),
    }
}

/// The parser stopped; the reason is among the issues.
pub(crate) struct ParseAborted;

type ParseResult<T> = Result<T, ParseAborted>;

pub(crate) struct Parser<'s> {
    source: &'s Source,
    lexemes: Vec<Lexeme>,
    at: usize,
    positions: Vec<u32>,
    issues: Issues,
    /// Of the rule `expr`, which is inside itself for every bracket and conditional.
    depth: usize,
    /// Of what was parsed last: how many operators, fields, elements and calls on something are
    /// inside each other. Counted from below, as a chain grows on its left side.
    height: usize,
    /// The brackets that are open, as the tokens that close them.
    open: Vec<Token>,
    /// Is there a macro `cel.bind`?
    pub(crate) bindings: bool,
}

/// What an operand can begin with.
const OPERAND: [Token; 15] = [
    Token::LeftBracket,
    Token::LeftBrace,
    Token::LeftParen,
    Token::Dot,
    Token::Minus,
    Token::Not,
    Token::True,
    Token::False,
    Token::Null,
    Token::Float,
    Token::Int,
    Token::Uint,
    Token::String,
    Token::Bytes,
    Token::Ident,
];

/// An operand, or one of these.
fn with(others: &[Token]) -> Vec<Token> {
    let mut expected = [&OPERAND, others].concat();
    expected.sort_unstable();
    expected
}

impl Parser<'_> {
    fn start(&mut self) -> ParseResult<Expr> {
        let expr = self.expr()?;
        self.expect(Token::End)?;
        Ok(expr)
    }

    fn expr(&mut self) -> ParseResult<Expr> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            self.issues.report(None, format!("expression recursion limit exceeded: {DEPTH_MAX}"));
            return Err(ParseAborted);
        }
        let mut result = self.binary(OR)?;
        if let Some(question) = self.take(Token::Question) {
            let id = self.id_at(question.start);
            let mut height = self.height;
            let truthy = self.binary(OR)?;
            height = height.max(self.height);
            self.expect(Token::Colon)?;
            let falsy = self.expr()?;
            self.grow(height)?;
            result = call(id, op::CONDITIONAL, vec![result, truthy, falsy]);
        }
        self.depth -= 1;
        Ok(result)
    }

    /// Everything with operators that bind at least as close as `closeness`. One function for all
    /// of them: brackets nest through it, and stacks are small.
    fn binary(&mut self, closeness: u8) -> ParseResult<Expr> {
        let mut left = self.unary()?;
        while let Some((function, binds)) = operator(self.peek()) {
            if binds < closeness {
                break;
            }
            left = if binds <= AND {
                self.logic(left, function, binds)?
            } else {
                let height = self.height;
                let operator = self.next();
                let id = self.id_at(operator.start);
                let right = self.binary(binds + 1)?;
                self.grow(height)?;
                call(id, function, vec![left, right])
            };
        }
        Ok(left)
    }

    /// A chain of one logical operator, behind its first term.
    fn logic(&mut self, first: Expr, function: &'static str, binds: u8) -> ParseResult<Expr> {
        let token = self.peek();
        let mut height = self.height;
        let (mut terms, mut ops) = (vec![Some(first)], Vec::new());
        while let Some(operator) = self.take(token) {
            terms.push(Some(self.binary(binds + 1)?));
            height = height.max(self.height);
            ops.push(self.id_at(operator.start));
        }
        self.height = height;
        Ok(balance(function, &mut terms, &ops, 0, ops.len() - 1))
    }

    fn unary(&mut self) -> ParseResult<Expr> {
        self.sync(&OPERAND)?;
        let (token, function) = match self.peek() {
            Token::Not => (Token::Not, op::NOT),
            // `-1` is a literal, `--1` is not.
            Token::Minus if !matches!(self.peek_at(1), Token::Int | Token::Float) => {
                (Token::Minus, op::NEGATE)
            }
            _ => return self.member(),
        };
        let first = self.peek_lexeme().start;
        let mut count = 0;
        while self.take(token).is_some() {
            count += 1;
        }
        self.sync(&OPERAND)?;
        if count % 2 == 0 {
            return self.member();
        }
        let id = self.id_at(first);
        let operand = self.member()?;
        Ok(call(id, function, vec![operand]))
    }

    fn member(&mut self) -> ParseResult<Expr> {
        let mut operand = self.primary()?;
        loop {
            let height = self.height;
            operand = match self.peek() {
                Token::Dot => self.select(operand)?,
                Token::LeftBracket => self.index(operand)?,
                _ => return Ok(operand),
            };
            self.grow(height)?;
        }
    }

    fn select(&mut self, operand: Expr) -> ParseResult<Expr> {
        let dot = self.next();
        let optional = self.take(Token::Question).is_some();
        if !optional && self.peek() == Token::Ident && self.peek_at(1) == Token::LeftParen {
            let name = self.next();
            let name = self.text(name);
            let open = self.next();
            let id = self.id_at(open.start);
            let args = self.arguments()?;
            return Ok(self.member_call(id, &name, operand, args));
        }
        let field = self.field_name(optional)?;
        if optional {
            let id = self.id_at(dot.start);
            let name_id = self.id_at(field.1);
            let name = Expr { id: name_id, kind: ExprKind::Literal(Literal::String(field.0)) };
            return Ok(call(id, op::OPT_SELECT, vec![operand, name]));
        }
        let id = self.id_at(dot.start);
        let kind = ExprKind::Select { operand: Box::new(operand), field: field.0, test: false };
        Ok(Expr { id, kind })
    }

    /// A field's name and where it is.
    fn field_name(&mut self, optional: bool) -> ParseResult<(Str, usize)> {
        match self.peek() {
            Token::Ident => {
                let name = self.next();
                Ok((Str::from(self.text(name)), name.start))
            }
            Token::QuotedIdent => {
                let name = self.next();
                // Compat: KubernetesValue does not switch this syntax on.
                self.error(name.start, "unsupported syntax: '`'");
                Ok((Str::default(), name.start))
            }
            Token::True | Token::False | Token::Null if !optional => {
                let word = self.peek_lexeme();
                let message = format!(
                    "Syntax error: mismatched input '{}' expecting IDENTIFIER",
                    self.text(word)
                );
                self.error(word.start, message);
                Err(ParseAborted)
            }
            _ if optional => {
                self.unexpected("mismatched", &[Token::Ident, Token::QuotedIdent]);
                self.error(self.peek_lexeme().start, "unsupported ident kind");
                Err(ParseAborted)
            }
            _ => Err(self.no_viable(1)),
        }
    }

    fn index(&mut self, operand: Expr) -> ParseResult<Expr> {
        let open = self.next();
        let id = self.id_at(open.start);
        self.sync(&with(&[Token::Question]))?;
        let optional = self.take(Token::Question).is_some();
        self.open.push(Token::RightBracket);
        let index = self.expr()?;
        self.close(Token::RightBracket)?;
        let function = if optional { op::OPT_INDEX } else { op::INDEX };
        Ok(call(id, function, vec![operand, index]))
    }

    fn primary(&mut self) -> ParseResult<Expr> {
        self.height = 0;
        match self.peek() {
            Token::Dot | Token::Ident => self.name(),
            Token::LeftParen => {
                self.next();
                self.open.push(Token::RightParen);
                let inner = self.expr()?;
                self.close(Token::RightParen)?;
                Ok(inner)
            }
            Token::LeftBracket => self.list(),
            Token::LeftBrace => self.map(),
            _ => self.literal(),
        }
    }

    /// An identifier, a call, or a struct.
    fn name(&mut self) -> ParseResult<Expr> {
        let start = self.peek_lexeme().start;
        let dot = if self.take(Token::Dot).is_some() { "." } else { "" };
        if self.peek() != Token::Ident {
            return Err(self.no_viable(usize::from(!dot.is_empty())));
        }
        if let Some(length) = self.struct_name() {
            return self.message(dot, length);
        }
        let lexeme = self.next();
        let name = self.text(lexeme);
        if RESERVED.contains(&name.as_str()) {
            self.error(start, format!("reserved identifier: {name}"));
            if self.take(Token::LeftParen).is_some() {
                self.arguments()?;
            }
            return Ok(Expr { id: self.id_at(start), kind: ExprKind::Invalid });
        }
        if let Some(open) = self.take(Token::LeftParen) {
            let id = self.id_at(open.start);
            let args = self.arguments()?;
            return Ok(self.global_call(id, &format!("{dot}{name}"), args));
        }
        let id = self.id_at(lexeme.start);
        Ok(Expr { id, kind: ExprKind::Ident(Str::from(format!("{dot}{name}"))) })
    }

    /// The number of tokens of `a.b.c` if a `{` follows it.
    fn struct_name(&self) -> Option<usize> {
        let mut length = 1;
        while self.peek_at(length) == Token::Dot && self.peek_at(length + 1) == Token::Ident {
            length += 2;
        }
        (self.peek_at(length) == Token::LeftBrace).then_some(length)
    }

    fn message(&mut self, dot: &str, length: usize) -> ParseResult<Expr> {
        let mut name = dot.to_owned();
        for _ in 0..length {
            let part = self.next();
            name.push_str(&self.text(part));
        }
        let open = self.next();
        let id = self.id_at(open.start);
        self.open.push(Token::RightBrace);
        let mut fields = Vec::new();
        let mut height = 0;
        while self.peek() != Token::RightBrace {
            let optional = self.take(Token::Question).is_some();
            if !matches!(self.peek(), Token::Ident | Token::QuotedIdent) {
                let expected = [
                    Token::RightBrace,
                    Token::Comma,
                    Token::Question,
                    Token::Ident,
                    Token::QuotedIdent,
                ];
                return Err(self.mismatch(&expected));
            }
            let (name, _) = self.field_name(optional)?;
            let colon = self.expect(Token::Colon)?;
            let id = self.id_at(colon.start);
            let value = self.expr()?;
            height = height.max(self.height);
            fields.push(StructField { id, name, optional, value });
            if self.take(Token::Comma).is_none() {
                break;
            }
        }
        self.height = height;
        self.close_literal(Token::RightBrace)?;
        Ok(Expr { id, kind: ExprKind::Struct { name: Str::from(name), fields } })
    }

    /// The arguments of a call, behind its `(`, up to and with its `)`.
    fn arguments(&mut self) -> ParseResult<Vec<Expr>> {
        self.open.push(Token::RightParen);
        self.sync(&with(&[Token::RightParen]))?;
        let mut args = Vec::new();
        let mut height = 0;
        if self.peek() != Token::RightParen {
            loop {
                args.push(self.expr()?);
                height = height.max(self.height);
                if self.take(Token::Comma).is_none() {
                    break;
                }
            }
        }
        self.height = height;
        self.close(Token::RightParen)?;
        Ok(args)
    }

    fn list(&mut self) -> ParseResult<Expr> {
        let open = self.next();
        let id = self.id_at(open.start);
        self.open.push(Token::RightBracket);
        let (mut items, mut optional) = (Vec::new(), Vec::new());
        let mut height = 0;
        while self.peek() != Token::RightBracket {
            if self.peek() == Token::Comma && items.is_empty() {
                self.next();
                break;
            }
            if self.take(Token::Question).is_some() {
                optional.push(items.len());
            }
            items.push(self.expr()?);
            height = height.max(self.height);
            if self.take(Token::Comma).is_none() {
                break;
            }
        }
        self.height = height;
        self.close_literal(Token::RightBracket)?;
        Ok(Expr { id, kind: ExprKind::List { items, optional } })
    }

    fn map(&mut self) -> ParseResult<Expr> {
        let open = self.next();
        let id = self.id_at(open.start);
        self.open.push(Token::RightBrace);
        let mut entries = Vec::new();
        let mut height = 0;
        while self.peek() != Token::RightBrace {
            if self.peek() == Token::Comma && entries.is_empty() {
                self.next();
                break;
            }
            let optional = self.take(Token::Question).is_some();
            let key = self.expr()?;
            height = height.max(self.height);
            self.expect(Token::Colon)?;
            let value = self.expr()?;
            height = height.max(self.height);
            entries.push(Entry { key, value, optional });
            if self.take(Token::Comma).is_none() {
                break;
            }
        }
        self.height = height;
        self.close_literal(Token::RightBrace)?;
        Ok(Expr { id, kind: ExprKind::Map(entries) })
    }

    fn literal(&mut self) -> ParseResult<Expr> {
        let start = self.peek_lexeme().start;
        let sign = if self.take(Token::Minus).is_some() { "-" } else { "" };
        let lexeme = self.next();
        let text = self.text(lexeme);
        let literal = match lexeme.token {
            Token::Int => parse_int(sign, &text).map(Literal::Int).ok_or("invalid int literal"),
            Token::Uint => {
                parse_uint(&text[..text.len() - 1]).map(Literal::Uint).ok_or("invalid uint literal")
            }
            Token::Float => format!("{sign}{text}")
                .parse()
                .ok()
                .filter(|double: &f64| double.is_finite())
                .map(Literal::Double)
                .ok_or("invalid double literal"),
            Token::String => unquote(&text, false).map(|text| {
                Literal::String(Str::from(
                    String::from_utf8(text).expect("made of characters of a string"),
                ))
            }),
            Token::Bytes => unquote(&text[1..], true).map(Literal::Bytes),
            Token::True => Ok(Literal::Bool(true)),
            Token::False => Ok(Literal::Bool(false)),
            Token::Null => Ok(Literal::Null),
            _ => {
                self.at -= 1;
                return Err(self.mismatch(&OPERAND));
            }
        };
        let id = self.id_at(start);
        match literal {
            Ok(literal) => Ok(Expr { id, kind: ExprKind::Literal(literal) }),
            Err(message) => {
                self.error(start, message);
                Ok(Expr { id, kind: ExprKind::Invalid })
            }
        }
    }
}

/// Calls, which may be macros.
impl Parser<'_> {
    fn global_call(&mut self, id: Id, function: &str, args: Vec<Expr>) -> Expr {
        match macros::expand(self, id, function, None, args) {
            Ok(expanded) => expanded,
            Err((_, args)) => call(id, function, args),
        }
    }

    fn member_call(&mut self, id: Id, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        match macros::expand(self, id, function, Some(target), args) {
            Ok(expanded) => expanded,
            Err((target, args)) => {
                let target = target.map(Box::new);
                Expr { id, kind: ExprKind::Call { function: Str::new(function), target, args } }
            }
        }
    }

    /// A new id at the source position of another.
    pub(crate) fn id_like(&mut self, id: Id) -> Id {
        self.positions.push(self.positions[id as usize]);
        self.positions.len() as Id - 1
    }

    pub(crate) fn last_id(&self) -> Id {
        self.positions.len() as Id - 1
    }

    pub(crate) fn error_at(&mut self, id: Id, message: &str) {
        self.issues.report(Some(self.positions[id as usize]), message);
    }
}

/// Walking over the tokens.
impl Parser<'_> {
    fn peek_lexeme(&self) -> Lexeme {
        self.lexemes[self.at]
    }

    fn peek(&self) -> Token {
        self.lexemes[self.at].token
    }

    fn peek_at(&self, ahead: usize) -> Token {
        self.lexemes.get(self.at + ahead).map_or(Token::End, |lexeme| lexeme.token)
    }

    fn next(&mut self) -> Lexeme {
        let lexeme = self.lexemes[self.at];
        if lexeme.token != Token::End {
            self.at += 1;
        }
        lexeme
    }

    fn take(&mut self, token: Token) -> Option<Lexeme> {
        (self.peek() == token).then(|| self.next())
    }

    fn text(&self, lexeme: Lexeme) -> String {
        if lexeme.token == Token::End {
            return "<EOF>".into();
        }
        self.source.text(lexeme.start, lexeme.end)
    }

    fn id_at(&mut self, offset: usize) -> Id {
        self.positions.push(offset as u32);
        self.positions.len() as Id - 1
    }

    /// One more level on top of what was parsed last and of something else.
    fn grow(&mut self, other: usize) -> ParseResult<()> {
        self.height = self.height.max(other) + 1;
        if self.height > DEPTH_MAX {
            self.issues.report(None, "max recursion depth exceeded");
            return Err(ParseAborted);
        }
        Ok(())
    }

    fn error(&mut self, offset: usize, message: impl Into<String>) {
        self.issues.report(Some(offset as u32), message);
    }

    /// The token that must come now. One token too many is reported and skipped, a missing one
    /// reported and assumed: what follows may hold more mistakes.
    fn expect(&mut self, token: Token) -> ParseResult<Lexeme> {
        if self.peek() == token {
            return Ok(self.next());
        }
        if self.peek_at(1) == token && self.peek() != Token::End {
            self.extraneous(&[token]);
            self.next();
            return Ok(self.next());
        }
        if token != Token::End && self.can_follow(token) {
            let found = self.peek_lexeme();
            let message =
                format!("Syntax error: missing {} at '{}'", token.name(), self.text(found));
            self.error(found.start, message);
            return Ok(Lexeme { token, ..found });
        }
        Err(self.mismatch(&[token]))
    }

    fn close(&mut self, token: Token) -> ParseResult<()> {
        self.open.pop();
        self.expect(token).map(|_| ())
    }

    /// The end of a literal, where a comma would have been as good.
    fn close_literal(&mut self, token: Token) -> ParseResult<()> {
        self.sync(&[token, Token::Comma])?;
        self.close(token)
    }

    /// Could the next token come behind `token`?
    fn can_follow(&self, token: Token) -> bool {
        let next = self.peek();
        if token == Token::Colon {
            return OPERAND.contains(&next);
        }
        match next {
            Token::End => self.open.is_empty(),
            Token::RightBracket | Token::RightBrace | Token::RightParen => {
                self.open.last() == Some(&next)
            }
            Token::Comma => !self.open.is_empty(),
            Token::Colon => false,
            _ => {
                !OPERAND.contains(&next)
                    || matches!(next, Token::LeftBracket | Token::Minus | Token::Dot)
            }
        }
    }

    /// The next token must be one of these.
    fn sync(&mut self, expected: &[Token]) -> ParseResult<()> {
        if expected.contains(&self.peek()) {
            return Ok(());
        }
        if self.peek() != Token::End && expected.contains(&self.peek_at(1)) {
            self.extraneous(expected);
            self.next();
            return Ok(());
        }
        Err(self.mismatch(expected))
    }

    fn extraneous(&mut self, expected: &[Token]) {
        self.unexpected("extraneous", expected);
    }

    fn mismatch(&mut self, expected: &[Token]) -> ParseAborted {
        self.unexpected("mismatched", expected);
        ParseAborted
    }

    fn unexpected(&mut self, how: &str, expected: &[Token]) {
        let found = self.peek_lexeme();
        let names: Vec<&str> = expected.iter().map(|token| token.name()).collect();
        let names = match names.as_slice() {
            [name] => (*name).to_owned(),
            names => format!("{{{}}}", names.join(", ")),
        };
        let text = shown(&self.text(found));
        self.error(found.start, format!("Syntax error: {how} input '{text}' expecting {names}"));
    }

    /// `back` is how many tokens before this one the undecided rule began.
    fn no_viable(&mut self, back: usize) -> ParseAborted {
        let found = self.peek_lexeme();
        let begin = self.lexemes[self.at.saturating_sub(back)].start;
        let text = if found.token == Token::End {
            self.source.text(begin, found.start)
        } else {
            self.source.text(begin, found.end)
        };
        let message = format!("Syntax error: no viable alternative at input '{}'", shown(&text));
        self.error(found.start, message);
        ParseAborted
    }
}

fn call(id: Id, function: &str, args: Vec<Expr>) -> Expr {
    Expr { id, kind: ExprKind::Call { function: Str::new(function), target: None, args } }
}

/// How close `||` and `&&` bind; everything else binds closer.
const OR: u8 = 0;
const AND: u8 = 1;

/// The function of an operator between two operands, and how close it binds.
fn operator(token: Token) -> Option<(&'static str, u8)> {
    Some(match token {
        Token::Or => (op::OR, OR),
        Token::And => (op::AND, AND),
        Token::Less => (op::LESS, 2),
        Token::LessEquals => (op::LESS_EQUALS, 2),
        Token::GreaterEquals => (op::GREATER_EQUALS, 2),
        Token::Greater => (op::GREATER, 2),
        Token::Equals => (op::EQUALS, 2),
        Token::NotEquals => (op::NOT_EQUALS, 2),
        Token::In => (op::IN, 2),
        Token::Plus => (op::ADD, 3),
        Token::Minus => (op::SUBTRACT, 3),
        Token::Star => (op::MULTIPLY, 4),
        Token::Slash => (op::DIVIDE, 4),
        Token::Percent => (op::MODULO, 4),
        _ => return None,
    })
}

/// A balanced tree of one logical operator: evaluation nests less deep.
fn balance(
    function: &'static str,
    terms: &mut [Option<Expr>],
    ops: &[Id],
    low: usize,
    high: usize,
) -> Expr {
    let middle = (low + high).div_ceil(2);
    let mut side = |single: usize, is_single: bool, low: usize, high: usize| {
        if is_single {
            terms[single].take().expect("each term is used once")
        } else {
            balance(function, terms, ops, low, high)
        }
    };
    let left = side(middle, middle == low, low, middle.wrapping_sub(1));
    let right = side(middle + 1, middle == high, middle + 1, high);
    let kind = ExprKind::Call {
        function: Str::new_static(function),
        target: None,
        args: vec![left, right],
    };
    Expr { id: ops[middle], kind }
}

fn parse_int(sign: &str, text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => format!("{sign}{text}").parse().ok(),
    }
}

fn parse_uint(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
