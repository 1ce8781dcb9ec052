use super::*;
use crate::flags;

fn role(program: &Path) -> Role {
    Role::of(Some(program.as_os_str()))
}

#[test]
fn programs_act_by_their_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("pintle");
    fs::write(&program, "the program").expect("writable");
    assert_eq!(role(&program), Role::Pintle);
    assert_eq!(Role::of(None), Role::Pintle);
    assert_eq!(role(Path::new("etcd")), Role::Etcd);
    assert_eq!(role(Path::new("kube-apiserver")), Role::Pintle, "found through PATH");

    for (name, copy) in [("links", false), ("copy", true)] {
        let assets = dir.path().join(name);
        let made = write_assets(&assets, &program, Some(&program), copy).expect("made");
        write_assets(&assets, &program, None, copy).expect("made again");
        assert_eq!(role(&made.join("etcd")), Role::Etcd);
        assert_eq!(role(&made.join("kube-apiserver")), Role::ApiServer);
        assert!(made.join("kubectl").exists());
        assert_eq!(fs::read_dir(&made).expect("readable").count(), 3, "{name}");
        // Beside a real etcd it is a kube-apiserver like any other.
        fs::remove_file(made.join("etcd")).expect("there");
        fs::write(made.join("etcd"), "a real one").expect("writable");
        assert_eq!(role(&made.join("kube-apiserver")), Role::Pintle);
        let refused = write_assets(&assets, &program, None, copy).expect_err("it took a download");
        assert!(refused.to_string().contains("there is another"), "{refused}");
    }
}

#[test]
fn wrong_arguments_are_refused() {
    for (args, expected) in [
        (&[][..], "a directory is needed"),
        (&["--frobnicate"], "unknown flag: --frobnicate"),
        (&["a", "b"], "too many arguments"),
    ] {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let error = make_assets(&args).expect_err(expected);
        assert!(error.contains(expected) && error.contains("pintle envtest DIR"), "{error}");
    }
}

#[test]
fn envtests_flags_keep_objects_in_memory() {
    let args = ["--etcd-servers=http://127.0.0.1:2379", "--secure-port=1"];
    let mut parsed = flags::parse(args.map(str::to_owned)).expect("flags");
    keep_in_memory(&mut parsed).expect("known flags");
    assert!(parsed.texts("etcd-servers").is_empty());
    assert_eq!(parsed.text("storage-backend"), "memory");
    assert_eq!(parsed.texts("standalone-controllers").len(), 3);

    // What a suite says itself is kept.
    let args = ["--storage-backend=embedded", "--standalone-controllers="];
    let mut parsed = flags::parse(args.map(str::to_owned)).expect("flags");
    keep_in_memory(&mut parsed).expect("known flags");
    assert_eq!(parsed.text("storage-backend"), "embedded");
    assert!(parsed.texts("standalone-controllers").is_empty());
}

#[test]
fn etcds_flags_are_those_of_envtest() {
    let address = |line: &str| {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let found = etcd_address(&args);
        found.map(|(address, ignored)| format!("{address} {}", ignored.join(" ")))
    };
    let cases = [
        (
            "--listen-client-urls=http://127.0.0.1:2379 --data-dir=/d --unsafe-no-fsync=true",
            "127.0.0.1:2379 ",
        ),
        (
            "--data-dir /d --unsafe-no-fsync --listen-client-urls http://localhost:1/",
            "127.0.0.1:1 ",
        ),
        (
            "--listen-client-urls=http://[::1]:7 --quota-backend-bytes=1",
            "[::1]:7 quota-backend-bytes",
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(address(line).as_deref(), Ok(expected), "{line}");
    }
    for line in ["", "serve", "--listen-client-urls=https://127.0.0.1:1", "--listen-client-urls"] {
        assert!(address(line).is_err(), "{line}");
    }
}
