//! Flow collections and quoted scalars may span several lines. YAML 1.2, which the parser
//! implements, requires those lines to be indented more than their parent; go-yaml does not:
//!
//! ```yaml
//! args: [
//! ]
//! ```
//!
//! Documents that the parser rejects for their indentation are therefore parsed again with such
//! lines indented. Leading white space has no meaning there, and line numbers stay the same.

/// Deeper than anything that is really written.
const INDENT: usize = 128;

/// Documents that would grow beyond this, and beyond four times their size, are left unchanged:
/// many short lines would turn into a lot of white space.
const BYTES_MAX: usize = 256 * 1024;

/// Indents every line that begins inside of a flow collection or a quoted text.
pub(super) fn reindent(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    let mut state = State::default();
    for line in text.split_inclusive('\n') {
        if state.is_inside() && !line.trim().is_empty() {
            out.extend(std::iter::repeat_n(' ', INDENT));
        }
        out.push_str(line);
        if out.len() > BYTES_MAX.max(text.len() * 4) {
            return None;
        }
        state.read(line);
    }
    Some(out)
}

/// How many entries the flow collections of a text have, as far as its lines tell.
pub(super) fn flow_entries(text: &str) -> usize {
    let mut state = State::default();
    // Every entry but the first of a collection has a comma before it or a bracket around it.
    let separators = memchr::memchr3_iter(b',', b'[', b'{', text.as_bytes());
    if separators.count() <= super::load::FLOW_ENTRIES_MAX {
        return 0;
    }
    text.split_inclusive('\n').for_each(|line| state.read(line));
    state.entries
}

#[derive(Default)]
struct State {
    /// Open brackets.
    depth: usize,
    quote: Option<char>,
    /// Inside of a block text (`|`, `>`): the indentation of what it is the value of.
    block: Option<usize>,
    /// Commas and brackets of flow collections so far.
    entries: usize,
}

impl State {
    fn is_inside(&self) -> bool {
        self.depth > 0 || self.quote.is_some()
    }

    fn read(&mut self, line: &str) {
        let indent = line.len() - line.trim_start_matches(' ').len();
        if let Some(outer) = self.block {
            if indent > outer || line.trim().is_empty() {
                return;
            }
            self.block = None;
        }
        // Where the key or the value of the innermost list item is.
        let mut inner = indent;
        while line[inner..].starts_with("- ") {
            inner += 2;
        }
        // Could a value begin here?
        let mut at_start = true;
        let mut previous = ' ';
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match (self.quote, c) {
                (Some('"'), '\\') => {
                    chars.next();
                }
                (Some('\''), '\'') if chars.peek() == Some(&'\'') => {
                    chars.next();
                }
                (Some(quote), c) => {
                    if c == quote {
                        self.quote = None;
                        at_start = false;
                    }
                }
                (None, '#') if previous.is_whitespace() => return,
                (None, '"' | '\'') if at_start => self.quote = Some(c),
                (None, '[' | '{') if at_start || self.depth > 0 => {
                    self.depth += 1;
                    self.entries += 1;
                    at_start = true;
                }
                (None, ']' | '}') if self.depth > 0 => {
                    self.depth -= 1;
                    at_start = false;
                }
                (None, '|' | '>') if at_start && self.depth == 0 => {
                    // Of a list item itself, or of a key.
                    let of_item = inner > indent && line[inner..].starts_with(c);
                    self.block = Some(if of_item { inner - 2 } else { inner });
                    return;
                }
                (None, ',') if self.depth > 0 => {
                    self.entries += 1;
                    at_start = true;
                }
                (None, ' ' | '\t') => at_start |= matches!(previous, ':' | '-' | '?'),
                // An anchor or a tag: the value comes behind it.
                (None, '&' | '!') if at_start => {
                    while chars.next_if(|c| !c.is_whitespace()).is_some() {}
                }
                (None, '-' | '?') if at_start => {}
                (None, _) => at_start = false,
            }
            previous = c;
        }
    }
}
