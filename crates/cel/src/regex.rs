//! Regular expressions as Go's `regexp` accepts them: RE2's syntax, and Go's words for what is
//! wrong. Matching is linear in the text, and the compiled pattern is bounded.

use regex_automata::meta;
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, Look, Repetition};

/// A pattern that compiles to more than this is refused.
const COMPILED_BYTES_MAX: usize = 10 << 20;

/// How often a repetition may repeat, nested ones multiplied.
const REPEAT_MAX: u32 = 1000;

/// How deep groups may nest. Go allows 1000; real patterns stay far below this.
const DEPTH_MAX: usize = 200;

#[derive(Debug)]
pub struct Regex {
    regex: meta::Regex,
}

impl Regex {
    /// Compiles a pattern, or returns Go's error message.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let hir = parse(pattern).map_err(|wrong| format!("error parsing regexp: {wrong}"))?;
        let config = meta::Config::new()
            .nfa_size_limit(Some(COMPILED_BYTES_MAX))
            .hybrid_cache_capacity(2 << 20);
        let regex = meta::Builder::new().configure(config).build_from_hir(&hir);
        let too_large = |_| "error parsing regexp: expression too large".to_owned();
        Ok(Self { regex: regex.map_err(too_large)? })
    }

    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.regex.find(text).map(|found| &text[found.range()])
    }

    pub fn find_all<'t>(&self, text: &'t str, limit: Option<usize>) -> Vec<&'t str> {
        self.regex
            .find_iter(text)
            .take(limit.unwrap_or(usize::MAX))
            .map(|found| &text[found.range()])
            .collect()
    }
}

fn parse(pattern: &str) -> Result<Hir, String> {
    let mut parser = Parser { rest: pattern, flags: Flags::default(), depth: 0 };
    let hir = parser.alternation()?;
    if parser.rest.starts_with(')') {
        return Err(format!("unexpected ): `{pattern}`"));
    }
    check_repeats(&hir, 1).map_err(|()| format!("invalid repeat count: `{pattern}`"))?;
    Ok(hir)
}

#[derive(Clone, Copy, Default)]
struct Flags {
    fold_case: bool,
    multi_line: bool,
    dot_newline: bool,
    swap_greed: bool,
}

struct Parser<'p> {
    rest: &'p str,
    flags: Flags,
    depth: usize,
}

type ParseResult<T> = Result<T, String>;

impl<'p> Parser<'p> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn take(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Up to the end or an unmatched `)`.
    fn alternation(&mut self) -> ParseResult<Hir> {
        let mut branches = vec![self.concatenation()?];
        while self.take("|") {
            branches.push(self.concatenation()?);
        }
        Ok(Hir::alternation(branches))
    }

    fn concatenation(&mut self) -> ParseResult<Hir> {
        let mut items: Vec<Hir> = Vec::new();
        // The operator in front, as doubled ones are reported together.
        let mut after_repeat: Option<&'p str> = None;
        while let Some(c) = self.peek() {
            let before = self.rest;
            match c {
                '|' | ')' => break,
                '*' | '+' | '?' => {
                    self.next();
                    let (min, max) = match c {
                        '*' => (0, None),
                        '+' => (1, None),
                        _ => (0, Some(1)),
                    };
                    self.repeat(&mut items, before, after_repeat, min, max)?;
                    after_repeat = Some(before);
                    continue;
                }
                '{' => {
                    if let Some((min, max)) = self.counts() {
                        let text = &before[..before.len() - self.rest.len()];
                        let wrong = max.is_some_and(|max| max < min)
                            || min > REPEAT_MAX
                            || max.is_some_and(|max| max > REPEAT_MAX);
                        if wrong {
                            return Err(format!("invalid repeat count: `{text}`"));
                        }
                        self.repeat(&mut items, before, after_repeat, min, max)?;
                        after_repeat = Some(before);
                        continue;
                    }
                    self.next();
                    items.push(self.literal('{'));
                }
                '(' => {
                    if let Some(group) = self.group()? {
                        items.push(group);
                    } else {
                        after_repeat = None;
                        continue;
                    }
                }
                '[' => {
                    let class = self.class()?;
                    items.push(Hir::class(Class::Unicode(class)));
                }
                '\\' => self.escape(&mut items)?,
                '.' => {
                    self.next();
                    items.push(self.dot());
                }
                '^' => {
                    self.next();
                    let multi = self.flags.multi_line;
                    items.push(Hir::look(if multi { Look::StartLF } else { Look::Start }));
                }
                '$' => {
                    self.next();
                    let multi = self.flags.multi_line;
                    items.push(Hir::look(if multi { Look::EndLF } else { Look::End }));
                }
                c => {
                    self.next();
                    items.push(self.literal(c));
                }
            }
            after_repeat = None;
        }
        Ok(Hir::concat(items))
    }

    fn repeat(
        &mut self,
        items: &mut Vec<Hir>,
        before: &'p str,
        after_repeat: Option<&'p str>,
        min: u32,
        max: Option<u32>,
    ) -> ParseResult<()> {
        let lazy = self.take("?");
        let text = |from: &'p str| from[..from.len() - self.rest.len()].to_owned();
        if let Some(first) = after_repeat {
            return Err(format!("invalid nested repetition operator: `{}`", text(first)));
        }
        let Some(item) = items.pop() else {
            let operator = text(before);
            return Err(format!("missing argument to repetition operator: `{operator}`"));
        };
        let greedy = lazy == self.flags.swap_greed;
        items.push(Hir::repetition(Repetition { min, max, greedy, sub: Box::new(item) }));
        Ok(())
    }

    /// `{n}`, `{n,}` or `{n,m}`; anything else is text.
    fn counts(&mut self) -> Option<(u32, Option<u32>)> {
        let inner = self.rest.strip_prefix('{')?;
        let end = inner.find('}')?;
        let (min, max) = match inner[..end].split_once(',') {
            None => (count(&inner[..end])?, Some(count(&inner[..end])?)),
            Some((min, "")) => (count(min)?, None),
            Some((min, max)) => (count(min)?, Some(count(max)?)),
        };
        self.rest = &inner[end + 1..];
        Some((min, max))
    }

    /// A group; none if it only sets flags for what follows.
    fn group(&mut self) -> ParseResult<Option<Hir>> {
        let whole = self.rest;
        self.next();
        let outer = self.flags;
        if self.take("?P<") || self.take("?<") {
            let Some(end) = self.rest.find('>') else {
                return Err(format!("invalid named capture: `{whole}`"));
            };
            let text = &self.rest[..end];
            let valid =
                !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if !valid {
                let group = &whole[..=whole.len() - self.rest.len() + end];
                return Err(format!("invalid named capture: `{group}`"));
            }
            self.rest = &self.rest[end + 1..];
        } else if self.take("?") && self.group_flags(whole)? {
            return Ok(None);
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("expression nests too deeply".into());
        }
        let inner = self.alternation()?;
        self.depth -= 1;
        if !self.take(")") {
            return Err(format!("missing closing ): `{whole}`"));
        }
        self.flags = outer;
        // Captures are never read, so none are kept.
        Ok(Some(inner))
    }

    /// `imsU-imsU` up to `:` or `)`; true if it was `)`.
    fn group_flags(&mut self, whole: &str) -> ParseResult<bool> {
        let mut flags = self.flags;
        let (mut on, mut any) = (true, false);
        loop {
            let c = self.next();
            match c {
                Some('i') => flags.fold_case = on,
                Some('m') => flags.multi_line = on,
                Some('s') => flags.dot_newline = on,
                Some('U') => flags.swap_greed = on,
                Some('-') if on => {
                    on = false;
                    any = false;
                    continue;
                }
                Some(end @ (':' | ')')) if on || any => {
                    self.flags = flags;
                    return Ok(end == ')');
                }
                None => return Err(format!("missing closing ): `{whole}`")),
                Some(_) => {
                    let text = &whole[..whole.len() - self.rest.len()];
                    return Err(format!("invalid or unsupported Perl syntax: `{text}`"));
                }
            }
            any = true;
        }
    }

    fn literal(&self, c: char) -> Hir {
        if self.flags.fold_case {
            let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
            class.case_fold_simple();
            return Hir::class(Class::Unicode(class));
        }
        Hir::literal(c.encode_utf8(&mut [0; 4]).as_bytes())
    }

    fn dot(&self) -> Hir {
        let mut class = ClassUnicode::new([ClassUnicodeRange::new('\0', char::MAX)]);
        if !self.flags.dot_newline {
            class.difference(&ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));
        }
        Hir::class(Class::Unicode(class))
    }

    fn escape(&mut self, items: &mut Vec<Hir>) -> ParseResult<()> {
        let whole = self.rest;
        self.next();
        match self.peek() {
            Some('A') => items.push(Hir::look(Look::Start)),
            Some('z') => items.push(Hir::look(Look::End)),
            Some('b') => items.push(Hir::look(Look::WordAscii)),
            Some('B') => items.push(Hir::look(Look::WordAsciiNegate)),
            Some('Q') => {
                self.next();
                let (text, after) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                items.extend(text.chars().map(|c| self.literal(c)));
                self.rest = after;
                return Ok(());
            }
            _ => {
                self.rest = whole;
                if let Some(class) = self.class_escape()? {
                    items.push(Hir::class(Class::Unicode(class)));
                } else {
                    let c = self.char_escape()?;
                    items.push(self.literal(c));
                }
                return Ok(());
            }
        }
        self.next();
        Ok(())
    }

    /// `\d \s \w \pL \p{Greek}` and their negations.
    fn class_escape(&mut self) -> ParseResult<Option<ClassUnicode>> {
        let whole = self.rest;
        let Some(letter) = whole[1..].chars().next() else { return Ok(None) };
        let mut class = match letter.to_ascii_lowercase() {
            'd' => ascii(&[('0', '9')]),
            's' => ascii(&[('\t', '\n'), ('\u{c}', '\r'), (' ', ' ')]),
            'w' => ascii(&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')]),
            'p' => {
                self.rest = &whole[2..];
                return self.unicode_class(whole, letter == 'P').map(Some);
            }
            _ => return Ok(None),
        };
        self.rest = &whole[2..];
        if letter.is_ascii_uppercase() {
            class.negate();
        }
        Ok(Some(class))
    }

    fn unicode_class(&mut self, whole: &str, mut negate: bool) -> ParseResult<ClassUnicode> {
        let name = if self.take("{") {
            let Some(end) = self.rest.find('}') else {
                return Err(format!("invalid character class range: `{whole}`"));
            };
            let name = self.rest[..end].to_owned();
            self.rest = &self.rest[end + 1..];
            name
        } else {
            self.next().map(String::from).unwrap_or_default()
        };
        let text = &whole[..whole.len() - self.rest.len()];
        let wrong = || Err(format!("invalid character class range: `{text}`"));
        let name = match name.strip_prefix('^') {
            Some(name) => {
                negate = !negate;
                name.to_owned()
            }
            None => name,
        };
        let mut class = if name == "Any" {
            ClassUnicode::new([ClassUnicodeRange::new('\0', char::MAX)])
        } else if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return wrong();
        } else {
            match regex_syntax::parse(&format!("\\p{{{name}}}")).map(Hir::into_kind) {
                Ok(regex_syntax::hir::HirKind::Class(Class::Unicode(class))) => class,
                _ => return wrong(),
            }
        };
        if self.flags.fold_case {
            class.case_fold_simple();
        }
        if negate {
            class.negate();
        }
        Ok(class)
    }

    fn char_escape(&mut self) -> ParseResult<char> {
        let whole = self.rest;
        self.next();
        let Some(c) = self.next() else {
            return Err("trailing backslash at end of expression: ``".into());
        };
        let wrong = |rest: &str| {
            let text = &whole[..whole.len() - rest.len()];
            Err(format!("invalid escape sequence: `{text}`"))
        };
        Ok(match c {
            'a' => '\u{7}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            // A single digit would be a back-reference.
            '1'..='7' if !self.rest.starts_with(|c: char| ('0'..='7').contains(&c)) => {
                return wrong(self.rest);
            }
            '0'..='7' => {
                let mut code = u32::from(c) - u32::from('0');
                for _ in 0..2 {
                    let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else { break };
                    code = code * 8 + digit;
                    self.next();
                }
                char::from_u32(code).expect("three octal digits are a character")
            }
            'x' => {
                let digits = if self.take("{") {
                    let end = self.rest.find('}').unwrap_or(self.rest.len());
                    let digits = &self.rest[..end];
                    self.rest = self.rest.get(end + 1..).unwrap_or_default();
                    digits
                } else {
                    let end = self.rest.char_indices().nth(2).map_or(self.rest.len(), |(at, _)| at);
                    let digits = &self.rest[..end];
                    self.rest = &self.rest[end..];
                    if digits.len() != 2 {
                        return wrong(self.rest);
                    }
                    digits
                };
                match u32::from_str_radix(digits, 16).ok().and_then(char::from_u32) {
                    Some(c) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => c,
                    _ => return wrong(self.rest),
                }
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
            _ => return wrong(self.rest),
        })
    }

    fn class(&mut self) -> ParseResult<ClassUnicode> {
        let whole = self.rest;
        self.next();
        let negate = self.take("^");
        let mut class = ClassUnicode::empty();
        let mut first = true;
        while first || !self.rest.starts_with(']') {
            if self.rest.is_empty() {
                return Err(format!("missing closing ]: `{whole}`"));
            }
            // A `-` that begins no range is a character, wherever it stands.
            first = false;
            if self.rest.starts_with("[:")
                && let Some(end) = self.rest[2..].find(":]")
            {
                let name = &self.rest[..end + 4];
                let Some(named) = posix(name) else {
                    return Err(format!("invalid character class range: `{name}`"));
                };
                self.rest = &self.rest[end + 4..];
                class.union(&named);
                continue;
            }
            if self.rest.starts_with('\\')
                && let Some(escaped) = self.class_escape()?
            {
                class.union(&escaped);
                continue;
            }
            let before = self.rest;
            let low = self.class_char(whole)?;
            let mut high = low;
            if self.rest.starts_with('-') && self.rest.len() > 1 && !self.rest[1..].starts_with(']')
            {
                self.next();
                high = self.class_char(whole)?;
                if high < low {
                    let range = &before[..before.len() - self.rest.len()];
                    return Err(format!("invalid character class range: `{range}`"));
                }
            }
            let mut range = ClassUnicode::new([ClassUnicodeRange::new(low, high)]);
            if self.flags.fold_case {
                range.case_fold_simple();
            }
            class.union(&range);
        }
        self.next();
        if negate {
            class.negate();
        }
        Ok(class)
    }

    fn class_char(&mut self, whole: &str) -> ParseResult<char> {
        match self.peek() {
            None => Err(format!("missing closing ]: `{whole}`")),
            Some('\\') => self.char_escape(),
            Some(c) => {
                self.next();
                Ok(c)
            }
        }
    }
}

/// A count of a repetition. What is no number of at most four digits is too large or no count.
fn count(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    Some(text.parse().unwrap_or(u32::MAX))
}

fn ascii(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(ranges.iter().map(|(low, high)| ClassUnicodeRange::new(*low, *high)))
}

fn posix(name: &str) -> Option<ClassUnicode> {
    let inner = name.strip_prefix("[:")?.strip_suffix(":]")?;
    let (negate, inner) = match inner.strip_prefix('^') {
        Some(inner) => (true, inner),
        None => (false, inner),
    };
    let mut class = ascii(match inner {
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "ascii" => &[('\0', '\u{7f}')],
        "blank" => &[('\t', '\t'), (' ', ' ')],
        "cntrl" => &[('\0', '\u{1f}'), ('\u{7f}', '\u{7f}')],
        "digit" => &[('0', '9')],
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "upper" => &[('A', 'Z')],
        "word" => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        _ => return None,
    });
    if negate {
        class.negate();
    }
    Some(class)
}

/// Do nested repetitions stay below the limit when multiplied?
fn check_repeats(hir: &Hir, outer: u32) -> Result<(), ()> {
    use regex_syntax::hir::HirKind;
    match hir.kind() {
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            let product = outer.saturating_mul(times);
            if product > REPEAT_MAX {
                return Err(());
            }
            check_repeats(&repetition.sub, product)
        }
        HirKind::Concat(items) | HirKind::Alternation(items) => {
            items.iter().try_for_each(|item| check_repeats(item, outer))
        }
        HirKind::Capture(capture) => check_repeats(&capture.sub, outer),
        _ => Ok(()),
    }
}
