//! `--help`: the table of flags as text, in kube-apiserver's sections.

use std::fmt::Write;

use crate::flags::{Effect, Flag, FlagKind, SECTIONS};

const INTRODUCTION: &str = "\
Pintle is the Kubernetes API server: a drop-in for kube-apiserver that stores its objects itself.
Started without flags it serves https://127.0.0.1:6443 and keeps everything in ./pintle-data.

Usage:
  pintle [flags]
";

/// Below this width a second column is unreadable and help texts get lines of their own.
const HELP_COLUMNS_MIN: usize = 24;
/// Indentation of such lines.
const NARROW_INDENT: usize = 16;

/// The whole text, wrapped to the width of the terminal; without a width each flag is one line.
pub(crate) fn text(width: Option<usize>) -> String {
    let mut out = INTRODUCTION.to_owned();
    for (title, flags) in SECTIONS {
        let rows: Vec<(String, String)> = flags
            .iter()
            .filter(|flag| !flag.hidden)
            .map(|flag| (left(flag), right(flag)))
            .collect();
        let longest = rows.iter().map(|(left, _)| left.len()).max().unwrap_or(0);
        let _ = writeln!(out, "\n{title} flags:\n");
        for (left, right) in rows {
            write_row(&mut out, &left, &right, longest + 3, width);
        }
    }
    out
}

/// The width of the terminal behind standard output, if it is one.
pub(crate) fn terminal_width() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some(usize::from(width.0))
}

/// `      --secure-port int`.
fn left(flag: &Flag) -> String {
    let short = flag.short.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
    let name = flag.name;
    match flag.kind {
        FlagKind::Bool => format!("  {short}--{name}"),
        kind => format!("  {short}--{name} {}", kind.name()),
    }
}

fn right(flag: &Flag) -> String {
    let mut text = flag.help.to_owned();
    let is_zero = matches!(flag.default, "" | "0" | "0s" | "false");
    if !is_zero {
        let _ = match flag.kind {
            FlagKind::Text => write!(text, " (default \"{}\")", flag.default),
            FlagKind::Texts => write!(text, " (default [{}])", flag.default),
            _ => write!(text, " (default {})", flag.default),
        };
    }
    if let Some(instead) = flag.deprecated {
        let _ = write!(text, " (DEPRECATED: {instead})");
    }
    text.push_str(match flag.effect {
        Effect::Done => "",
        Effect::Harmless => " [no effect yet]",
    });
    text
}

fn write_row(out: &mut String, left: &str, right: &str, column: usize, width: Option<usize>) {
    let Some(width) = width else {
        let _ = writeln!(out, "{left:column$}{right}");
        return;
    };
    let (indent, mut line) = if width >= column + HELP_COLUMNS_MIN {
        (column, format!("{left:column$}"))
    } else {
        let _ = writeln!(out, "{left}");
        (NARROW_INDENT, " ".repeat(NARROW_INDENT))
    };
    for word in right.split(' ') {
        let used = line.chars().count();
        // A word longer than the column is not broken, so that it can be copied.
        if used > indent && used + 1 + word.chars().count() > width {
            let _ = writeln!(out, "{}", line.trim_end());
            line = " ".repeat(indent);
        } else if used > indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

    #[test]
    fn help_names_every_flag_that_is_not_hidden_once() {
        let help = text(None);
        for flag in flags::all() {
            let line = format!("{}\n", left(flag).trim_end());
            let lines = help.lines().filter(|l| {
                let rest = l.strip_prefix(line.trim_end());
                rest.is_some_and(|rest| rest.starts_with("   "))
            });
            assert_eq!(lines.count(), usize::from(!flag.hidden), "--{}", flag.name);
        }
    }

    #[test]
    fn help_fits_the_terminal() {
        for width in [60, 80, 120, 200] {
            for line in text(Some(width)).lines().skip_while(|line| !line.ends_with(" flags:")) {
                let breakable =
                    line.trim_start().contains(' ') && !line.trim_start().starts_with('-');
                assert!(!breakable || line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn a_row_is_wrapped_under_its_second_column() {
        let mut out = String::new();
        write_row(&mut out, "      --v Level", "one two three four five six seven", 20, Some(44));
        write_row(&mut out, "      --v Level", "one two three four five six seven", 20, Some(40));
        let expected = "\
\x20     --v Level     one two three four five
\x20                   six seven
\x20     --v Level
\x20               one two three four five
\x20               six seven
";
        assert_eq!(out, expected);
    }
}
