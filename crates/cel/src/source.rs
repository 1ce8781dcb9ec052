//! Source positions, and errors that refer to them.

use std::fmt;

/// The text of an expression and where its lines begin.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) chars: Vec<char>,
    // Offsets of the first character of each line.
    lines: Vec<u32>,
}

/// An offset in characters; none for errors of the expression as a whole.
pub(crate) type Position = Option<u32>;

/// At most this many errors are listed; more are counted.
const ISSUES_MAX: usize = 100;

/// Longer lines are not shown with the error.
const SNIPPET_BYTES_MAX: usize = 16384;

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut lines = vec![0];
        lines.extend(
            chars.iter().enumerate().filter(|(_, c)| **c == '\n').map(|(at, _)| at as u32 + 1),
        );
        Self { chars, lines }
    }

    pub(crate) fn text(&self, from: usize, to: usize) -> String {
        self.chars[from..to.min(self.chars.len())].iter().collect()
    }

    /// Line (from 1) and column (from 0) of an offset.
    fn location(&self, offset: u32) -> (usize, usize) {
        let line = self.lines.partition_point(|begin| *begin <= offset);
        (line, (offset - self.lines[line - 1]) as usize)
    }

    fn line(&self, line: usize) -> String {
        let begin = self.lines[line - 1] as usize;
        let end = self.lines.get(line).map_or(self.chars.len(), |next| *next as usize - 1);
        self.chars[begin..end].iter().collect()
    }
}

/// One error in an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Issue {
    position: Position,
    message: String,
}

/// The errors of an expression, formatted as cel-go does:
///
/// ```text
/// ERROR: <input>:1:1: undeclared reference to 'x' (in container '')
///  | x
///  | ^
/// ```
#[derive(Clone, Debug)]
pub struct Issues {
    source: Source,
    list: Vec<Issue>,
    count: usize,
}

impl Issues {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, list: Vec::new(), count: 0 }
    }

    pub(crate) fn report(&mut self, position: Position, message: impl Into<String>) {
        self.count += 1;
        if self.list.len() < ISSUES_MAX {
            self.list.push(Issue { position, message: message.into() });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut issues: Vec<&Issue> = self.list.iter().collect();
        issues.sort_by_key(|issue| issue.position);
        for (at, issue) in issues.into_iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            show(f, &self.source, issue)?;
        }
        if self.count > ISSUES_MAX {
            write!(f, "\n{} more errors were truncated", self.count - ISSUES_MAX)?;
        }
        Ok(())
    }
}

impl std::error::Error for Issues {}

fn show(f: &mut fmt::Formatter<'_>, source: &Source, issue: &Issue) -> fmt::Result {
    let Some(offset) = issue.position else {
        return write!(f, "ERROR: <input>:-1:0: {}", issue.message);
    };
    if source.chars.is_empty() {
        return write!(f, "ERROR: <input>:1:0: {}", issue.message);
    }
    let (line, column) = source.location(offset);
    write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, issue.message)?;
    let snippet = source.line(line).replace('\t', " ");
    if snippet.len() > SNIPPET_BYTES_MAX {
        return Ok(());
    }
    write!(f, "\n | {snippet}\n | ")?;
    let mut chars = snippet.chars();
    for c in chars.by_ref().take(column) {
        f.write_str(if c.len_utf8() > 1 { "\u{ff0e}" } else { "." })?;
    }
    f.write_str(if chars.next().is_some_and(|c| c.len_utf8() > 1) { "\u{ff3e}" } else { "^" })
}
