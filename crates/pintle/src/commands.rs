//! The subcommands: backup and check of the embedded store, migration between stores, programs for envtest,
//! completion scripts and the manual page.

use std::path::{Path, PathBuf};

use store::StoreError;
use store::embedded::backup::{self, Summary};

use crate::{envtest, man_page, migrate, shell_completion};

const USAGE: &str = "\
Usage:
  pintle snapshot save FILE [--data-dir DIR]     write a snapshot, also while a server runs on DIR
  pintle snapshot status FILE                    verify a snapshot and say what is in it
  pintle snapshot restore FILE [--data-dir DIR]  make a new store of a snapshot; DIR may not have one
  pintle check [--data-dir DIR]                  verify every record of a store that no server uses
";

/// Runs the subcommand that the arguments name, if any; returns the text to print or the error.
pub(crate) fn run(args: &[String]) -> Option<Result<String, String>> {
    let (command, rest) = args.split_first()?;
    let asked = rest.iter().any(|arg| arg == "--help" || arg == "-h");
    match command.as_str() {
        "migrate" | "envtest" | "completion" | "man" if asked => return Some(Ok(usage())),
        "migrate" => return Some(migrate::run(rest)),
        "envtest" => return Some(envtest::make_assets(rest)),
        "completion" => return Some(shell_completion::script(rest)),
        "man" if rest.is_empty() => return Some(Ok(man_page::page())),
        "man" => return Some(Err(format!("unknown arguments\n{}", usage()))),
        _ => {}
    }
    matches!(command.as_str(), "snapshot" | "check").then(|| {
        let (words, data_dir) = arguments(rest)?;
        if words.iter().any(|word| *word == "--help" || *word == "-h") {
            return Ok(usage());
        }
        let words: Vec<&str> = std::iter::once(command.as_str()).chain(words).collect();
        let store = data_dir.join("store");
        let done = |what: &str, at: &Path, result: Result<Summary, StoreError>| match result {
            Ok(summary) => Ok(format!("{what} {}: {}\n", at.display(), summary_text(summary))),
            Err(error) => Err(error.to_string()),
        };
        match words[..] {
            ["snapshot", "save", file] => {
                done("saved", Path::new(file), backup::save(&store, Path::new(file)))
            }
            ["snapshot", "status", file] => {
                done("good", Path::new(file), backup::status(Path::new(file)))
            }
            ["snapshot", "restore", file] => {
                done("restored into", &data_dir, backup::restore(Path::new(file), &store))
            }
            ["check"] => done("good", &data_dir, backup::check(&store)),
            _ => Err(format!("unknown arguments\n{}", usage())),
        }
    })
}

pub(crate) fn usage() -> String {
    let others = [migrate::USAGE, envtest::USAGE, shell_completion::USAGE, man_page::USAGE];
    format!("{USAGE}{}", others.concat())
}

/// The positional arguments and the data directory.
fn arguments(args: &[String]) -> Result<(Vec<&str>, PathBuf), String> {
    let (mut words, mut data_dir) = (Vec::new(), PathBuf::from("./pintle-data"));
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if let Some(dir) = arg.strip_prefix("--data-dir=") {
            data_dir = dir.into();
        } else if arg == "--data-dir" {
            data_dir = args.next().ok_or("flag needs an argument: --data-dir")?.into();
        } else if arg.starts_with('-') && arg != "--help" && arg != "-h" {
            return Err(format!("unknown flag: {arg}\n{}", usage()));
        } else {
            words.push(arg.as_str());
        }
    }
    Ok((words, data_dir))
}

fn summary_text(summary: Summary) -> String {
    let Summary { revision, compacted, keys, bytes } = summary;
    format!("revision {revision}, {keys} keys, {bytes} bytes, history from revision {compacted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_arguments_are_no_subcommands() {
        let run =
            |line: &str| run(&line.split_whitespace().map(str::to_owned).collect::<Vec<String>>());
        assert!(run("").is_none() && run("--data-dir=x").is_none() && run("serve").is_none());
        for command in ["snapshot --help", "migrate -h", "envtest --help", "man -h"] {
            assert!(matches!(run(command), Some(Ok(text)) if text == usage()), "{command}");
        }
        for (line, wrong) in [
            ("snapshot", "unknown arguments"),
            ("snapshot save", "unknown arguments"),
            ("check --data-dir", "flag needs an argument"),
            ("check --nonsense", "unknown flag: --nonsense"),
            ("check --data-dir=/nowhere", "/nowhere"),
            ("snapshot status /nowhere", "/nowhere"),
            ("snapshot save file --data-dir=/nowhere", "there is no store in /nowhere"),
        ] {
            let error = run(line).and_then(Result::err).unwrap_or_default();
            assert!(error.contains(wrong), "{line}: {error}");
        }
    }
}
