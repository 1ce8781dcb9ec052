//! `pintle completion bash|zsh|fish`: completion scripts, from the table of flags.

use std::fmt::Write as _;

use crate::flags::{self, Flag, FlagKind};

pub(crate) const USAGE: &str =
    "  pintle completion bash|zsh|fish                a completion script for the shell
";

/// The subcommands with what may follow each.
const COMMANDS: [(&str, &str, &[&str]); 6] = [
    ("snapshot", "snapshots of the embedded store", &["save", "status", "restore"]),
    ("check", "verify the embedded store", &[]),
    ("migrate", "copy a store", &[]),
    ("envtest", "programs for KUBEBUILDER_ASSETS", &[]),
    ("completion", "completion scripts", &["bash", "zsh", "fish"]),
    ("man", "the manual page", &[]),
];

/// The script for a shell.
pub(crate) fn script(args: &[String]) -> Result<String, String> {
    match args {
        [shell] if shell == "bash" => Ok(bash()),
        [shell] if shell == "zsh" => Ok(zsh()),
        [shell] if shell == "fish" => Ok(fish()),
        _ => Err(format!("one of bash, zsh and fish is needed\n{USAGE}")),
    }
}

fn shown() -> impl Iterator<Item = &'static Flag> {
    flags::all().filter(|flag| !flag.hidden)
}

/// Whether the value is a file, as far as the name says.
fn takes_file(flag: &Flag) -> bool {
    let name = flag.name;
    flag.kind == FlagKind::Text
        && ["-file", "-config", "-dir", "cafile", "certfile", "keyfile", "-manifest"]
            .iter()
            .any(|end| name.ends_with(end))
}

fn bash() -> String {
    let commands: Vec<&str> = COMMANDS.iter().map(|(name, ..)| *name).collect();
    let flags: Vec<String> = shown()
        .map(|flag| match flag.kind {
            FlagKind::Bool => format!("--{}", flag.name),
            _ => format!("--{}=", flag.name),
        })
        .collect();
    let files: Vec<String> =
        shown().filter(|flag| takes_file(flag)).map(|flag| format!("--{}", flag.name)).collect();
    let mut cases = String::new();
    for (name, _, words) in COMMANDS.iter().filter(|(.., words)| !words.is_empty()) {
        let words = words.join(" ");
        let _ = writeln!(
            cases,
            "        {name}) COMPREPLY=($(compgen -W '{words}' -- \"$current\")); return ;;"
        );
    }
    format!(
        r#"# bash completion of pintle: eval "$(pintle completion bash)"
_pintle() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    # With = among the word breaks, the flag and its value are words of their own.
    [ "$previous" = "=" ] && previous=${{COMP_WORDS[COMP_CWORD-2]}}
    [ "$current" = "=" ] && current=
    case $previous in
        {}) COMPREPLY=($(compgen -f -- "$current")); return ;;
{cases}    esac
    if [ "$COMP_CWORD" = 1 ] && [[ $current != -* ]]; then
        COMPREPLY=($(compgen -W '{}' -- "$current"))
        return
    fi
    COMPREPLY=($(compgen -W '{}' -- "$current"))
    [[ ${{COMPREPLY[0]-}} == *= ]] && compopt -o nospace
}}
complete -o default -F _pintle pintle kube-apiserver
"#,
        files.join("|"),
        commands.join(" "),
        flags.join(" ")
    )
}

fn zsh() -> String {
    let mut out = String::from(
        "#compdef pintle kube-apiserver\n# zsh completion of pintle: source <(pintle completion zsh)\n\
         _pintle() {\n    local -a commands\n    commands=(\n",
    );
    for (name, about, _) in COMMANDS {
        let _ = writeln!(out, "        '{name}:{about}'");
    }
    out.push_str("    )\n    _arguments \\\n");
    for flag in shown() {
        let help = zsh_text(first_sentence(flag.help));
        let _ = match flag.kind {
            FlagKind::Bool => writeln!(out, "        '--{}[{help}]' \\", flag.name),
            _ if takes_file(flag) => {
                writeln!(out, "        '--{}=[{help}]:file:_files' \\", flag.name)
            }
            kind => {
                writeln!(out, "        '--{}=[{help}]:{}: ' \\", flag.name, zsh_text(kind.name()))
            }
        };
    }
    out.push_str("        '1: :{_describe command commands}' \\\n        '*:: :->rest'\n");
    out.push_str("    case $words[1] in\n");
    for (name, _, words) in COMMANDS.iter().filter(|(.., words)| !words.is_empty()) {
        let _ = writeln!(out, "        {name}) _values {name} {} ;;", words.join(" "));
    }
    out.push_str("    esac\n}\ncompdef _pintle pintle kube-apiserver\n");
    out
}

fn fish() -> String {
    let mut out = String::from("# fish completion of pintle: pintle completion fish | source\n");
    for (name, about, words) in COMMANDS {
        let _ =
            writeln!(out, "complete -c pintle -n __fish_use_subcommand -f -a {name} -d '{about}'");
        for word in words {
            let seen = format!("__fish_seen_subcommand_from {name}");
            let _ = writeln!(out, "complete -c pintle -n '{seen}' -f -a {word}");
        }
    }
    for flag in shown() {
        let help = first_sentence(flag.help).replace('\\', "\\\\").replace('\'', "\\'");
        let value = match flag.kind {
            FlagKind::Bool => "",
            _ if takes_file(flag) => " -r -F",
            _ => " -x",
        };
        let _ = writeln!(out, "complete -c pintle -l {}{value} -d '{help}'", flag.name);
    }
    out
}

/// Text inside `'--flag[…]'` of zsh.
fn zsh_text(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('\'', "'\\''")
        .replace('[', "\\[")
        .replace(']', "\\]")
        .replace(':', "\\:")
}

fn first_sentence(help: &str) -> &str {
    help.split_once(". ").map_or(help, |(first, _)| first).trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn of(shell: &str) -> String {
        script(&[shell.to_owned()]).expect("a known shell")
    }

    #[test]
    fn every_flag_and_command_is_completed() {
        for shell in ["bash", "zsh", "fish"] {
            let script = of(shell);
            for flag in shown() {
                let name = if shell == "fish" {
                    format!("-l {}", flag.name)
                } else {
                    format!("--{}", flag.name)
                };
                assert!(script.contains(&name), "{shell}: {name}");
            }
            for (name, ..) in COMMANDS {
                assert!(script.contains(name), "{shell}: {name}");
            }
        }
        assert!(script(&[]).is_err() && script(&["tcsh".to_owned()]).is_err());
    }

    /// bash completes with it what a user types.
    #[test]
    fn bash_completes() {
        let cases = [
            (&["pintle", "sna"][..], "snapshot"),
            (&["pintle", "completion", "z"], "zsh"),
            (&["pintle", "--anonymous-a"], "--anonymous-auth"),
            (&["pintle", "--secure-p"], "--secure-port="),
        ];
        for (words, expected) in cases {
            let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            let test = format!(
                "compopt() {{ :; }}\nCOMP_WORDS=({})\nCOMP_CWORD={}\n_pintle\necho \"${{COMPREPLY[*]}}\"",
                words.join(" "),
                words.len() - 1
            );
            let output = Command::new("bash")
                .args(["--norc", "-c", &format!("{}\n{test}", of("bash"))])
                .stdin(Stdio::null())
                .output()
                .expect("bash can be started");
            let (out, err) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert_eq!((out.trim(), err.trim()), (expected, ""), "{words:?}");
        }
    }
}
