//! The program as a shell sees it: exit code, standard output, standard error.

use std::process::{Command, Output};

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_pintle"))
        .args(args)
        .output()
        .expect("the binary under test starts");
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn help_and_version_go_to_standard_output() {
    let (code, out, err) = run(&["--help", "ignored-argument"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for section in ["Generic", "Etcd", "Secure serving", "Authentication", "Logs", "Misc", "Global"]
    {
        assert!(out.contains(&format!("\n{section} flags:\n\n  ")), "{section}");
    }

    let (code, out, err) = run(&["--version"]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "Kubernetes v1.36.4+pintle\n", ""));

    let (code, out, _) = run(&["--version=raw"]);
    assert_eq!(code, Some(0));
    assert!(out.starts_with("version.Info{Major:\"1\", Minor:\"36\""), "{out}");
}

#[test]
fn mistakes_go_to_standard_error_with_exit_code_1() {
    let cases: [(&[&str], &str); 4] = [
        (&["--secure-prot=1"], "Error: unknown flag: --secure-prot\nDid you mean --secure-port?\n"),
        (
            &["serve", "now"],
            "Error: \"pintle\" does not take any arguments, got [\"serve\" \"now\"]\n",
        ),
        (
            &["--secure-port=70000", "--goaway-chance=1"],
            "Error: --goaway-chance can not be less than 0 or greater than 0.02\n\
             Error: --secure-port 70000 must be between 0 and 65535, inclusive. 0 picks a free port\n",
        ),
        (
            &[
                "--enable-garbage-collector=false",
                "--standalone-controllers=garbage-collector-controller",
            ],
            "Error: --standalone-controllers: garbage-collector-controller needs --enable-garbage-collector\n",
        ),
    ];
    for (args, expected) in cases {
        assert_eq!(run(args), (Some(1), String::new(), expected.to_owned()), "{args:?}");
    }
}
