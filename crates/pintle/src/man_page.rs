//! `pintle man`: the manual page, from the table of flags.

use std::fmt::Write as _;

use crate::flags::{Flag, FlagKind, SECTIONS};
use crate::{commands, version};

pub(crate) const USAGE: &str =
    "  pintle man                                     the manual page: pintle man >pintle.1
";

/// The page in the man macros.
pub(crate) fn page() -> String {
    let version = version::info(None).git_version;
    let mut out = format!(
        ".TH PINTLE 1 \"\" \"{version}\" \"Pintle\"\n\
         .SH NAME\npintle \\- the Kubernetes API server\n\
         .SH SYNOPSIS\n.B pintle\n[\\fIflags\\fR]\n.br\n.B pintle\n\\fIcommand\\fR\n\
         .SH DESCRIPTION\n"
    );
    out.push_str(
        "A drop\\-in for kube\\-apiserver that stores its objects itself, in etcd or in memory. Started without \
         flags it serves https://127.0.0.1:6443 and keeps everything in ./pintle\\-data.\n",
    );
    out.push_str(".SH COMMANDS\n.nf\n");
    for line in commands::usage().lines().skip(1) {
        let _ = writeln!(out, "{}", escape(line));
    }
    out.push_str(".fi\n.SH FLAGS\n");
    for (title, flags) in SECTIONS {
        let _ = writeln!(out, ".SS {title}");
        for flag in flags.iter().filter(|flag| !flag.hidden) {
            write_flag(&mut out, flag);
        }
    }
    out.push_str(
        ".SH FILES\n.TP\n\\&./pintle\\-data\nThe embedded store, the generated keys, and admin.kubeconfig \
         (\\fB\\-\\-data\\-dir\\fR).\n",
    );
    out.push_str(
        ".SH EXIT STATUS\n0 after SIGTERM or SIGINT, 1 if the server could not start or go on.\n",
    );
    out
}

fn write_flag(out: &mut String, flag: &Flag) {
    let name = escape(flag.name);
    let short = flag.short.map(|letter| format!("\\fB\\-{letter}\\fR, ")).unwrap_or_default();
    let value = match flag.kind {
        FlagKind::Bool => String::new(),
        kind => format!(" \\fI{}\\fR", escape(kind.name())),
    };
    let _ = writeln!(out, ".TP\n{short}\\fB\\-\\-{name}\\fR{value}");
    let mut help = flag.help.to_owned();
    if !matches!(flag.default, "" | "0" | "0s" | "false") {
        let _ = write!(help, " Default: {}.", flag.default);
    }
    if let Some(instead) = flag.deprecated {
        let _ = write!(help, " Deprecated: {instead}.");
    }
    let _ = writeln!(out, "{}", escape(&help));
}

/// Text as troff wants it: a hyphen that can be copied, and no line that begins with a request.
fn escape(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    match escaped.as_bytes().first() {
        Some(b'.' | b'\'') => format!("\\&{escaped}"),
        _ => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

    #[test]
    fn every_flag_and_command_is_described() {
        let page = page();
        for flag in flags::all().filter(|flag| !flag.hidden) {
            let name = format!("\\fB\\-\\-{}\\fR", flag.name.replace('-', "\\-"));
            assert!(page.contains(&name), "{}", flag.name);
        }
        for command in ["snapshot save", "migrate", "envtest", "completion", "pintle man"] {
            assert!(page.contains(command), "{command}");
        }
        // Requests are known ones; text never begins with a dot.
        let known = [".TH", ".SH", ".SS", ".TP", ".B ", ".br", ".nf", ".fi"];
        for line in page.lines().filter(|line| line.starts_with(['.', '\''])) {
            assert!(known.iter().any(|request| line.starts_with(request)), "{line}");
        }
    }
}
