//! The table against kube-apiserver's flags, and the parser over cases as data.

use std::collections::BTreeMap;

use super::parse::FlagError;
use super::*;

/// Where Pintle's flags are not kube-apiserver's, and why.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "bind-address",
        "a server that is tried out should not be reachable from elsewhere; over etcd it is",
    ),
    ("cert-dir", "everything generated lives under --data-dir or in memory, which needs no root"),
    ("data-dir", "Pintle's own flag: the embedded store"),
    ("encoding-cache-size", "Pintle's own flag: kube-apiserver encodes for each request"),
    ("service-cluster-ip-range", "kube-apiserver falls back to the same range, with a warning"),
    ("standalone-controllers", "Pintle's own flag: the loops of a controller manager"),
];

#[test]
fn the_table_has_the_flags_of_kube_apiserver_with_their_types_and_defaults() {
    let facts = include_str!("../../tests/flags.tsv");
    let rows = facts.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    let theirs: BTreeMap<_, _> = rows.map(|row| (row[0], (row[1], row[2]))).collect();
    let default = |flag: &'static Flag| if flag.default.is_empty() { "-" } else { flag.default };
    let ours: BTreeMap<_, _> =
        all().map(|flag| (flag.name, (flag.kind.name(), default(flag)))).collect();
    assert_eq!(ours.len(), all().count(), "a flag is defined twice");
    assert!(theirs.len() > 170);

    let mut differing: Vec<_> = ours.keys().chain(theirs.keys()).copied().collect();
    differing.retain(|name| ours.get(name) != theirs.get(name));
    differing.sort_unstable();
    differing.dedup();
    let expected: Vec<_> = DIFFERENCES.iter().map(|(name, _)| *name).collect();
    assert_eq!(differing, expected);
}

#[test]
fn every_row_is_consistent() {
    for (section, flags) in SECTIONS {
        assert!(flags.is_sorted_by_key(|flag| flag.name), "{section}");
    }
    for flag in all() {
        let name = flag.name;
        flag.default_value();
        assert!(flag.help.ends_with(['.', ')']), "--{name}: help is a sentence");
        assert!(!flag.hidden || flag.deprecated.is_some(), "--{name}: hidden without a reason");
    }
}

fn read(args: &[&str]) -> Result<Parsed, FlagError> {
    parse(args.iter().map(|&arg| arg.to_owned()))
}

#[test]
fn values_are_parsed_as_by_pflag() {
    let cases: &[(&[&str], &str, &str)] = &[
        (&[], "secure-port", "6443"),
        (&["--secure-port=1"], "secure-port", "1"),
        (&["--secure-port", "1"], "secure-port", "1"),
        (&["--secure_port=1"], "secure-port", "1"),
        (&["--secure-port=1", "--secure-port=2"], "secure-port", "2"),
        (&["--secure-port=0x1_0"], "secure-port", "16"),
        (&["--secure-port=010"], "secure-port", "8"),
        (&["--secure-port=0o10"], "secure-port", "8"),
        (&["--secure-port=-0b11"], "secure-port", "-3"),
        (&["--secure-port=-9223372036854775808"], "secure-port", "-9223372036854775808"),
        (&["--profiling"], "profiling", "true"),
        (&["--profiling=false"], "profiling", "false"),
        (&["--profiling=F"], "profiling", "false"),
        (&["--external-hostname="], "external-hostname", ""),
        (&["--external-hostname", "--profiling"], "external-hostname", "--profiling"),
        (&["--external-hostname=a=b,c"], "external-hostname", "a=b,c"),
        (
            &["--cors-allowed-origins=a,b", "--cors-allowed-origins=c"],
            "cors-allowed-origins",
            "[a,b,c]",
        ),
        (&["--cors-allowed-origins=\"a,b\",c,,"], "cors-allowed-origins", r#"["a,b",c,,]"#),
        (&["--cors-allowed-origins=\"a\"\"b\""], "cors-allowed-origins", r#"["a""b"]"#),
        (&["--cors-allowed-origins="], "cors-allowed-origins", "[]"),
        (&["--oidc-signing-algs=ES256"], "oidc-signing-algs", "[ES256]"),
        (
            &["--service-account-issuer=a,b", "--service-account-issuer=c"],
            "service-account-issuer",
            r#"["a,b",c]"#,
        ),
        (
            &["--runtime-config=a/v1,b/v1=false", "--runtime-config= c/v1 = true "],
            "runtime-config",
            "a/v1=,b/v1=false,c/v1=true",
        ),
        (&["--oidc-required-claim=a=b,c=d"], "oidc-required-claim", "a=b,c=d"),
        (&["--allow-metric-labels=m,l='a,b'"], "allow-metric-labels", "m,l='a,b'"),
        (&["--allow-metric-labels=\"m,l=a,b\",n=c"], "allow-metric-labels", "m,l=a,b,n=c"),
        (
            &["--feature-gates=A=true,kube:B=false", "--feature-gates=C=true"],
            "feature-gates",
            ":A=true,:C=true,kube:B=false",
        ),
        (&["--request-timeout=90s"], "request-timeout", "1m30s"),
        (&["--request-timeout=1h"], "request-timeout", "1h0m0s"),
        (&["--request-timeout=1.5h10ms"], "request-timeout", "1h30m0.01s"),
        (&["--request-timeout=500ms"], "request-timeout", "500ms"),
        (&["--request-timeout=1500us"], "request-timeout", "1.5ms"),
        (&["--request-timeout=.5µs"], "request-timeout", "500ns"),
        (&["--request-timeout=-1s"], "request-timeout", "-1s"),
        (&["--request-timeout=0"], "request-timeout", "0s"),
        (
            &["--request-timeout=2562047h47m16.854775807s"],
            "request-timeout",
            "2562047h47m16.854775807s",
        ),
        (&["--bind-address= ::1 "], "bind-address", "::1"),
        (&["--bind-address="], "bind-address", "127.0.0.1"),
        (&["--service-node-port-range=30000+10"], "service-node-port-range", "30000-30010"),
        (&["--service-node-port-range=30000"], "service-node-port-range", "30000-30000"),
        (&["--service-node-port-range="], "service-node-port-range", ""),
        (
            &["--tls-sni-cert-key=a.crt, a.key", "--tls-sni-cert-key=b.crt,b.key: *.b, c"],
            "tls-sni-cert-key",
            "[a.crt,a.key;b.crt,b.key:*.b,c]",
        ),
        (&["--tls-curve-preferences=23,0x1d"], "tls-curve-preferences", "[23,29]"),
        (&["--goaway-chance=1e-3"], "goaway-chance", "0.001"),
        (&["--log-json-info-buffer-size=1.5Ki"], "log-json-info-buffer-size", "1.5Ki"),
        (&["-v=3"], "v", "3"),
        (&["-v3"], "v", "3"),
        (&["-v", "3"], "v", "3"),
        (&["-hv3"], "v", "3"),
        (&["--v", "3"], "v", "3"),
        (&["-h"], "help", "true"),
        (&["-h=false"], "help", "false"),
        (&["--vmodule=a=1,,b*=2", "--vmodule=c=3"], "vmodule", "a=1,b*=2,c=3"),
        (&["--version"], "version", "true"),
        (&["--version=raw"], "version", "raw"),
        (&["--version=v1.36.4-x"], "version", "v1.36.4-x"),
    ];
    for (args, name, expected) in cases {
        assert_eq!(read(args).unwrap().value(name).to_string(), *expected, "{args:?}");
    }
}

#[test]
fn parse_errors_have_pflags_messages() {
    let cases: &[(&[&str], &str)] = &[
        (&["--foo"], "unknown flag: --foo\nSee --help for all flags."),
        (&["--secure-prot=1"], "unknown flag: --secure-prot\nDid you mean --secure-port?"),
        (&["--Bind_Address=::1"], "unknown flag: --Bind_Address\nDid you mean --bind-address?"),
        (&["--etcd-server=x"], "unknown flag: --etcd-server\nDid you mean --etcd-servers?"),
        (&["-x"], "unknown shorthand flag: 'x' in -x"),
        (&["-hx"], "unknown shorthand flag: 'x' in -x"),
        (&["-é"], "unknown shorthand flag: 'é' in -é"),
        (&["--v"], "flag needs an argument: --v"),
        (&["-v"], "flag needs an argument: 'v' in -v"),
        (&["---"], "bad flag syntax: ---"),
        (&["--=x"], "bad flag syntax: --=x"),
        (
            &["--v=x"],
            r#"invalid argument "x" for "-v, --v" flag: strconv.ParseUint: parsing "x": invalid syntax"#,
        ),
        (
            &["-v="],
            r#"invalid argument "=" for "-v, --v" flag: strconv.ParseUint: parsing "=": invalid syntax"#,
        ),
        (
            &["--v=2147483648"],
            r#"invalid argument "2147483648" for "-v, --v" flag: strconv.ParseUint: parsing "2147483648": value out of range"#,
        ),
        (
            &["--request-timeout=5"],
            r#"invalid argument "5" for "--request-timeout" flag: time: missing unit in duration "5""#,
        ),
        (
            &["--request-timeout=5x"],
            r#"invalid argument "5x" for "--request-timeout" flag: time: unknown unit "x" in duration "5x""#,
        ),
        (
            &["--request-timeout="],
            r#"invalid argument "" for "--request-timeout" flag: time: invalid duration """#,
        ),
        (
            &["--request-timeout=9999999h"],
            r#"invalid argument "9999999h" for "--request-timeout" flag: time: invalid duration "9999999h""#,
        ),
        (
            &["--secure-port=abc"],
            r#"invalid argument "abc" for "--secure-port" flag: strconv.ParseInt: parsing "abc": invalid syntax"#,
        ),
        (
            &["--secure-port=08"],
            r#"invalid argument "08" for "--secure-port" flag: strconv.ParseInt: parsing "08": invalid syntax"#,
        ),
        (
            &["--secure-port=1__0"],
            r#"invalid argument "1__0" for "--secure-port" flag: strconv.ParseInt: parsing "1__0": invalid syntax"#,
        ),
        (
            &["--secure-port=9223372036854775808"],
            r#"invalid argument "9223372036854775808" for "--secure-port" flag: strconv.ParseInt: parsing "9223372036854775808": value out of range"#,
        ),
        (
            &["--kubelet-port=-1"],
            r#"invalid argument "-1" for "--kubelet-port" flag: strconv.ParseUint: parsing "-1": invalid syntax"#,
        ),
        (
            &["--bind-address=a"],
            r#"invalid argument "a" for "--bind-address" flag: failed to parse IP: "a""#,
        ),
        (
            &["--anonymous-auth=maybe"],
            r#"invalid argument "maybe" for "--anonymous-auth" flag: strconv.ParseBool: parsing "maybe": invalid syntax"#,
        ),
        (
            &["--service-node-port-range=1-2-3"],
            r#"invalid argument "1-2-3" for "--service-node-port-range" flag: strconv.Atoi: parsing "2-3": invalid syntax"#,
        ),
        (
            &["--service-node-port-range=1-70000"],
            r#"invalid argument "1-70000" for "--service-node-port-range" flag: the port range cannot be greater than 65535: 1-70000"#,
        ),
        (
            &["--service-node-port-range=5-1"],
            r#"invalid argument "5-1" for "--service-node-port-range" flag: end port cannot be less than start port: 5-1"#,
        ),
        (
            &["--service-node-port-range=1-2+3"],
            r#"invalid argument "1-2+3" for "--service-node-port-range" flag: unable to parse port range: 1-2+3"#,
        ),
        (
            &["--vmodule=x"],
            r#"invalid argument "x" for "--vmodule" flag: "x" does not have the pattern=N format"#,
        ),
        (
            &["--vmodule=x=y"],
            r#"invalid argument "x=y" for "--vmodule" flag: parsing verbosity in "x=y": strconv.ParseUint: parsing "y": invalid syntax"#,
        ),
        (
            &["--tls-sni-cert-key=x"],
            r#"invalid argument "x" for "--tls-sni-cert-key" flag: expected comma separated certificate and key file paths"#,
        ),
        (
            &["--tls-sni-cert-key=a,b:"],
            r#"invalid argument "a,b:" for "--tls-sni-cert-key" flag: empty names list is not allowed"#,
        ),
        (
            &["--tls-curve-preferences=a"],
            r#"invalid argument "a" for "--tls-curve-preferences" flag: strconv.ParseInt: parsing "a": invalid syntax"#,
        ),
        (
            &["--allow-metric-labels=a"],
            r#"invalid argument "a" for "--allow-metric-labels" flag: a must be formatted as key=value"#,
        ),
        (
            &["--oidc-required-claim=a"],
            r#"invalid argument "a" for "--oidc-required-claim" flag: malformed pair, expect string=string"#,
        ),
        (
            &["--goaway-chance=x"],
            r#"invalid argument "x" for "--goaway-chance" flag: strconv.ParseFloat: parsing "x": invalid syntax"#,
        ),
        (
            &["--log-json-info-buffer-size=x"],
            r#"invalid argument "x" for "--log-json-info-buffer-size" flag: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"#,
        ),
        (
            &["--version=x"],
            r#"invalid argument "x" for "--version" flag: strconv.ParseBool: parsing "x": invalid syntax"#,
        ),
        (
            &["--cors-allowed-origins=a,b\"c"],
            r#"invalid argument "a,b\"c" for "--cors-allowed-origins" flag: parse error on line 1, column 4: bare " in non-quoted-field"#,
        ),
        (
            &["--cors-allowed-origins=\"a"],
            r#"invalid argument "\"a" for "--cors-allowed-origins" flag: parse error on line 1, column 3: extraneous or missing " in quoted-field"#,
        ),
        (
            &["--cors-allowed-origins=\"a\"b"],
            r#"invalid argument "\"a\"b" for "--cors-allowed-origins" flag: parse error on line 1, column 3: extraneous or missing " in quoted-field"#,
        ),
    ];
    for (args, expected) in cases {
        assert_eq!(
            read(args).err().map(|error| error.to_string()).as_deref(),
            Some(*expected),
            "{args:?}"
        );
    }
}

#[test]
fn other_words_are_positional_arguments() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["a", "--profiling", "false", "-", ""], &["a", "false", "-", ""]),
        (&["--v=1", "--", "--v=2", "-h"], &["--v=2", "-h"]),
    ];
    for (args, expected) in cases {
        assert_eq!(read(args).unwrap().arguments, *expected, "{args:?}");
    }
}

#[test]
fn changed_flags_are_listed_by_effect() {
    let args = [
        "--etcd-prefix=/registry",
        "--etcd-servers=x",
        "--watch-cache=true",
        "--contention-profiling=true",
        "--v=1",
    ];
    let parsed = read(&args).unwrap();
    let names = |effect| parsed.changed(effect).map(|flag| flag.name).collect::<Vec<_>>();
    assert_eq!(names(Effect::Harmless), ["contention-profiling"]);
    assert_eq!(names(Effect::Done), ["etcd-servers", "v"]);
}

#[test]
fn a_deprecated_flag_is_a_warning() {
    assert_eq!(
        read(&["--apiserver-count=2"]).unwrap().deprecations,
        [
            "Flag --apiserver-count has been deprecated, apiserver-count is deprecated and will be removed in a future version."
        ]
    );
}
