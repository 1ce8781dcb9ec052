//! Options from command lines.

use std::path::Path;

use super::*;
use crate::flags::{self, Effect};

const API_VERSIONS: &[&str] = &[
    "v1",
    "apps/v1",
    "flowcontrol.apiserver.k8s.io/v1",
    "networking.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
];

pub(super) fn read(args: &[&str]) -> Result<Options, Vec<String>> {
    let parsed = flags::parse(args.iter().map(|&arg| arg.to_owned())).expect("well-formed flags");
    Options::new(&parsed, API_VERSIONS, &|like| {
        Some(if like.is_ipv6() { "2001:db8::7".parse() } else { "192.0.2.7".parse() }.unwrap())
    })
}

#[test]
fn defaults_start_on_any_machine() {
    let options = read(&[]).unwrap();
    assert_eq!(options.data_dir, Some(PathBuf::from("./pintle-data")));
    assert_eq!(options.bind_address.to_string(), "127.0.0.1");
    assert_eq!(options.secure_port, 6443);
    assert_eq!(options.advertise_address.to_string(), "192.0.2.7");
    assert_eq!(options.external_hostname, "192.0.2.7");
    assert_eq!(options.http2_max_streams_per_connection, 100);
    assert_eq!(options.request_timeout, Duration::from_mins(1));
    assert_eq!(options.min_request_timeout, Duration::from_mins(30));
    assert_eq!(options.event_ttl, Duration::from_hours(1));
    assert_eq!(options.compaction_interval, Some(Duration::from_mins(5)));
    assert_eq!(options.kubernetes_service_ip.to_string(), "10.0.0.1");
    assert_eq!(options.serving_cert, None);
    assert_eq!(options.version.git_version, "v1.36.4+pintle");
    let missing = "admission plugins that are on by default in kube-apiserver";
    let others = options.warnings.iter().filter(|text| !text.starts_with(missing));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
}

/// kubeadm gives no `--bind-address` and expects to reach the server from other machines.
#[test]
fn only_a_server_that_is_tried_out_is_for_this_machine_alone() {
    let etcd = "--etcd-servers=http://127.0.0.1:2379";
    let pair = ["--tls-cert-file=c", "--tls-private-key-file=k"];
    let cases: [(&[&str], &str); 7] = [
        (&[], "127.0.0.1"),
        (&["--storage-backend=memory"], "127.0.0.1"),
        (&["--cert-dir=/c", "--data-dir=/d"], "127.0.0.1"),
        (&[etcd], "0.0.0.0"),
        (&pair, "0.0.0.0"),
        (&[etcd, "--bind-address=127.0.0.1"], "127.0.0.1"),
        (&[etcd, "--bind-address=192.0.2.2"], "192.0.2.2"),
    ];
    for (args, expected) in cases {
        let options = read(args).unwrap();
        assert_eq!(options.bind_address.to_string(), expected, "{args:?}");
        let shown = options.flag_values.iter().find(|(name, _)| *name == "bind-address");
        assert_eq!(shown.expect("a flag").1, expected, "{args:?}");
    }
}

#[test]
fn only_the_embedded_store_writes_where_the_server_was_started() {
    let etcd = "--etcd-servers=http://127.0.0.1:2379";
    let lasting = "--service-account-signing-key-file=/sa.key";
    let cases: [(&[&str], Option<&str>, usize); 7] = [
        (&[], Some("./pintle-data"), 0),
        (&["--storage-backend=embedded"], Some("./pintle-data"), 0),
        (&["--storage-backend=memory"], None, 0),
        (&["--storage-backend=memory", "--data-dir=/d"], Some("/d"), 0),
        (&[etcd], None, 1),
        (&[etcd, lasting], None, 0),
        (&[etcd, "--data-dir=/d"], Some("/d"), 0),
    ];
    for (args, expected, warnings) in cases {
        let options = read(args).unwrap();
        assert_eq!(options.data_dir.as_deref(), expected.map(Path::new), "{args:?}");
        let about_keys = options.warnings.iter().filter(|text| text.contains("signed with a key"));
        assert_eq!(about_keys.count(), warnings, "{args:?}");
    }
}

#[test]
fn the_advertise_address_is_reachable() {
    let cases: [(&[&str], &str); 6] = [
        (&["--advertise-address=192.0.2.1"], "192.0.2.1"),
        (&["--bind-address=192.0.2.2"], "192.0.2.2"),
        (&["--bind-address=0.0.0.0"], "192.0.2.7"),
        (&["--bind-address="], "192.0.2.7"),
        (&["--bind-address=192.0.2.2", "--advertise-address=0.0.0.0"], "192.0.2.2"),
        (&["--bind-address=::1", "--service-cluster-ip-range=fd00::/108"], "2001:db8::7"),
    ];
    for (args, expected) in cases {
        assert_eq!(read(args).unwrap().advertise_address.to_string(), expected, "{args:?}");
    }
    let nowhere = advertised(None, "::1".parse().unwrap(), &|_| None);
    assert_eq!(nowhere.to_string(), "::1", "a machine without network has itself");
}

#[test]
fn flags_reach_their_options() {
    let options = read(&[
        "--secure-port=0",
        "--tls-cert-file=a.crt",
        "--tls-private-key-file=a.key",
        "--cert-dir=/c",
        "--external-hostname=h",
        "--etcd-compaction-interval=0",
        "--delete-collection-workers=-3",
        "--http2-max-streams-per-connection=7",
        "--version=v1.36.4-x",
        "--feature-gates=WatchList=false",
        "--runtime-config=apps/v1=false",
        "--watch-cache=false",
        "--encoding-cache-size=1500Ki",
        "-v2",
        "--logging-format=json",
    ])
    .unwrap();
    assert_eq!(options.secure_port, 0);
    assert_eq!(
        options.serving_cert,
        Some(CertKey { cert_file: "a.crt".into(), key_file: "a.key".into() })
    );
    assert_eq!(options.cert_dir.as_deref(), Some(Path::new("/c")));
    assert_eq!(options.external_hostname, "h");
    assert_eq!(options.compaction_interval, None);
    assert!(options.watch_cache.is_off(&meta::GroupResource::new("", "pods")));
    assert_eq!(options.encoding_cache_bytes, 1500 << 10);
    assert_eq!(options.http2_max_streams_per_connection, 7);
    assert_eq!(options.delete_collection_workers, 1);
    assert_eq!(options.version.git_version, "v1.36.4-x");
    assert!(!options.feature_gates.enabled("WatchList"));
    assert!(!options.runtime_config.serves("apps", "v1", "deployments", true));
    assert_eq!(options.logging.verbosity, 2);
    let expected = "feature gate WatchList has no effect in Pintle yet";
    assert!(options.warnings.iter().any(|text| text == expected), "{:?}", options.warnings);
    assert_eq!(options.logging.format, logging::Format::Json);
}

#[test]
fn every_broken_rule_is_reported() {
    let cases: [(&[&str], &[&str]); 26] = [
        (
            &["--encoding-cache-size=much"],
            &["--encoding-cache-size must be a size such as 64Mi, or 0: \"much\""],
        ),
        (
            &["--encoding-cache-size=-1Mi"],
            &["--encoding-cache-size must be a size such as 64Mi, or 0: \"-1Mi\""],
        ),
        (
            &["--admission-control=PodSecurity,Nothing", "--enable-admission-plugins=AlwaysDeny"],
            &[
                "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive",
                "admission-control plugin \"Nothing\" is unknown",
            ],
        ),
        (
            &["--service-account-signing-endpoint=/s", "--service-account-key-file=/k"],
            &[
                "can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with `--service-account-signing-endpoint` (They are mutually exclusive)",
            ],
        ),
        (
            &["--service-account-signing-endpoint=@a..b"],
            &[
                "invalid value \"@a..b\" passed for `--service-account-signing-endpoint`, when prefixed with @ must be a valid abstract socket name",
            ],
        ),
        (
            &[
                "--secure-port=70000",
                "--goaway-chance=0.5",
                "--min-request-timeout=-1",
                "--feature-gates=Foo=true",
            ],
            &[
                "unrecognized feature gate: Foo",
                "--min-request-timeout can not be negative value",
                "--goaway-chance can not be less than 0 or greater than 0.02",
                "--secure-port 70000 must be between 0 and 65535, inclusive. 0 picks a free port",
            ],
        ),
        (
            &["--goaway-chance=NaN"],
            &["--goaway-chance can not be less than 0 or greater than 0.02"],
        ),
        (&["--request-timeout=-1s"], &["--request-timeout can not be negative value"]),
        (
            &["--max-requests-inflight=0", "--max-mutating-requests-inflight=0"],
            &[
                "invalid configuration: MaxRequestsInFlight=0 and MaxMutatingRequestsInFlight=0; they must add up to something positive",
            ],
        ),
        (
            &[
                "--max-requests-inflight=0",
                "--max-mutating-requests-inflight=0",
                "--enable-priority-and-fairness=false",
            ],
            &[],
        ),
        (
            &["--tls-cert-file=a.crt"],
            &[
                "missing filename for serving cert: --tls-cert-file and --tls-private-key-file go together",
            ],
        ),
        (
            &["--tls-sni-cert-key=,b"],
            &["failed to load SNI cert and key: missing filename for serving cert in \",b\""],
        ),
        (
            &["--strict-transport-security-directives=max-age=1,preload,x,"],
            &[
                "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information",
                "empty value in strict-transport-security-directives",
            ],
        ),
        (
            &["--cors-allowed-origins=example.com,//example\\.com(:|$)"],
            &[
                "--cors-allowed-origins has an invalid regular expression: regular expression does not pin to start/end of host in the origin header: \"example.com\"",
            ],
        ),
        (
            &["--service-cluster-ip-range=fd00::/108"],
            &["service IP family \"fd00::/108\" must match public address family \"192.0.2.7\""],
        ),
        (
            &["--kubernetes-service-node-port=80"],
            &["kubernetes service node port range 30000-32767 doesn't contain 80"],
        ),
        (
            &["--runtime-config=api/ga=false,flowcontrol.apiserver.k8s.io/v1=false"],
            &[
                "--runtime-config=flowcontrol.apiserver.k8s.io/v1=false conflicts with --enable-priority-and-fairness=true",
                "--runtime-config turns v1 off, which the server itself needs for namespaces, services and config maps",
                "--runtime-config turns networking.k8s.io/v1 off, which the addresses of services are kept in",
                "--runtime-config turns rbac.authorization.k8s.io/v1 off, which --authorization-mode=RBAC needs",
            ],
        ),
        (
            &["--runtime-config=api/ga=false,v1=true,flowcontrol.apiserver.k8s.io/v1=true,\
                 networking.k8s.io/v1=true,rbac.authorization.k8s.io/v1=true"],
            &[],
        ),
        (
            &["--runtime-config=rbac.authorization.k8s.io/v1=false", "--authorization-mode=Node"],
            &[],
        ),
        (
            &[
                "--peer-advertise-port=x",
                "--peer-ca-file=x",
                "--feature-gates=UnknownVersionInteroperabilityProxy=false",
            ],
            &[
                "--peer-ca-file requires UnknownVersionInteroperabilityProxy feature to be turned on",
                "--peer-advertise-port requires UnknownVersionInteroperabilityProxy feature to be turned on",
                "--peer-advertise-port \"x\" is not a port",
                "error building peer proxy handler, proxy-cert-file not specified",
            ],
        ),
        (
            &["--show-hidden-metrics-for-version=1.30"],
            &[
                "--show-hidden-metrics-for-version must be omitted or have the value '1.35'. Only the previous minor version is allowed",
            ],
        ),
        (
            &["--logging-format=xml", "--vmodule=a=1", "--log-flush-frequency=0"],
            &[
                "flushFrequency: Invalid value: \"0s\": Must be greater than zero",
                "format: Invalid value: \"xml\": Unsupported log format",
                "vmodule: Forbidden: Only supported for text log format",
            ],
        ),
        (
            &["--coordinated-leadership-lease-duration=1s"],
            &[
                "--coordinated-leadership-lease-duration must be greater than --coordinated-leadership-renew-deadline",
            ],
        ),
        (
            &["--log-json-split-stream"],
            &["options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"],
        ),
        (&["--data-dir="], &["--data-dir must not be empty"]),
        (
            &[
                "--apiserver-count=0",
                "--storage-media-type=text/plain",
                "--endpoint-reconciler-type=x",
            ],
            &[
                "--storage-media-type \"text/plain\" invalid, allowed values: application/json, application/vnd.kubernetes.protobuf, application/yaml",
                "Reconciler not implemented: x",
                "--apiserver-count should be a positive number, but value '0' provided",
            ],
        ),
    ];
    for (args, expected) in cases {
        assert_eq!(read(args).err().unwrap_or_default(), expected, "{args:?}");
    }
}

#[test]
fn etcd_flags_reach_their_options() {
    let options = read(&[
        "--etcd-servers=https://a:2379,https://b:2379",
        "--etcd-cafile=ca",
        "--etcd-certfile=c",
        "--etcd-keyfile=k",
        "--etcd-prefix=other/",
        "--etcd-servers-overrides=/events#http://e:1;http://e:2,apps/deployments#http://d:1",
        "--storage-media-type=application/json",
    ])
    .unwrap();
    assert_eq!(options.storage_prefix, "/other");
    let etcd = options.etcd.unwrap();
    assert_eq!(etcd.servers, ["https://a:2379", "https://b:2379"]);
    assert_eq!(etcd.tls.key_file, Some("k".into()));
    assert_eq!(etcd.form, builtin::StorageFormat::Json);
    assert_eq!(etcd.lease_reuse_seconds, 60);
    let overrides: Vec<_> = etcd
        .overrides
        .iter()
        .map(|over| (over.group.as_str(), over.resource.as_str(), over.servers.len()))
        .collect();
    assert_eq!(overrides, [("", "events", 2), ("apps", "deployments", 1)]);
    assert!(read(&[]).unwrap().etcd.is_none());
}

#[test]
fn etcd_flags_that_make_no_sense_are_refused() {
    let cases: [(&[&str], &str); 8] = [
        (&["--storage-backend=etcd3"], "--etcd-servers must be specified"),
        (
            &["--etcd-servers=http://e:1", "--storage-backend=memory"],
            "--storage-backend=memory and --etcd-servers exclude each other",
        ),
        (
            &["--etcd-servers-overrides=/events#http://e:1"],
            "--etcd-servers-overrides needs --etcd-servers",
        ),
        (
            &["--etcd-servers=http://e:1", "--etcd-servers-overrides=events"],
            "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated",
        ),
        (
            &["--etcd-servers=http://e:1", "--storage-backend=etcd2"],
            "--storage-backend invalid, allowed values: etcd3, embedded, memory. If not specified, it will default to 'etcd3' with --etcd-servers, and to 'embedded' without",
        ),
        (
            &["--etcd-servers=https://e:1"],
            "--etcd-servers with https need --etcd-cafile, to know whom to trust",
        ),
        (
            &["--etcd-servers=http://e:1", "--etcd-certfile=c"],
            "--etcd-certfile and --etcd-keyfile go together",
        ),
        (
            &["--etcd-servers=http://e:1", "--lease-reuse-duration-seconds=-1"],
            "--lease-reuse-duration-seconds can not be negative value",
        ),
    ];
    for (args, expected) in cases {
        assert_eq!(read(args).unwrap_err(), [expected], "{args:?}");
    }
}

#[test]
fn standalone_controllers_default_to_all_with_the_embedded_store() {
    let (gc, namespaces) = ("garbage-collector-controller", "namespace-controller");
    let cases: [(&[&str], bool, bool); 8] = [
        (&[], true, true),
        (&["--standalone-controllers="], false, false),
        (&["--standalone-controllers=*,-garbage-collector-controller"], false, true),
        (&["--standalone-controllers=namespace-controller"], false, true),
        (&["--etcd-servers=http://127.0.0.1:2379"], false, false),
        (&["--etcd-servers=http://127.0.0.1:2379", "--standalone-controllers=*"], true, true),
        (&["--standalone-controllers=namespace-controller,*"], true, true),
        (&["--standalone-controllers=-namespace-controller"], false, false),
    ];
    for (args, has_gc, has_namespaces) in cases {
        let controllers = read(args).unwrap().standalone_controllers;
        assert_eq!(
            (controllers.has(gc), controllers.has(namespaces)),
            (has_gc, has_namespaces),
            "{args:?}"
        );
    }
    let errors = read(&["--standalone-controllers=*,-garbage-collector"]).unwrap_err();
    assert!(
        errors[0].contains("\"garbage-collector\" is not in the list of known controllers"),
        "{errors:?}"
    );
}

#[test]
fn always_allow_lets_no_anonymous_client_in() {
    let cases: [(&[&str], bool, usize); 5] = [
        (&[], true, 0),
        (&["--anonymous-auth=false"], false, 0),
        (&["--authorization-mode=AlwaysAllow"], false, 1),
        (&["--authorization-mode=RBAC,AlwaysAllow", "--anonymous-auth"], false, 1),
        (&["--authorization-mode=AlwaysAllow", "--anonymous-auth=false"], false, 0),
    ];
    for (args, expected, warnings) in cases {
        let options = read(args).unwrap();
        assert_eq!(
            (options.authentication.anonymous, options.warnings.len()),
            (expected, warnings),
            "{args:?}"
        );
    }
}

#[test]
fn a_remote_etcd_without_tls_is_warned_about() {
    let cases = [
        ("https://10.0.0.1:2379", 0),
        ("http://127.0.0.1:2379", 0),
        ("http://[::1]:2379", 0),
        ("http://localhost:2379", 0),
        ("http://10.0.0.1:2379", 1),
        ("http://[fd00::1]:2379", 1),
        ("http://etcd.example", 1),
        ("http://localhost.example:2379,https://10.0.0.1:2379,http://10.0.0.2:2379", 2),
    ];
    for (servers, expected) in cases {
        let options = read(&[&format!("--etcd-servers={servers}"), "--etcd-cafile=/ca"]).unwrap();
        let about_tls = options.warnings.iter().filter(|warning| warning.contains("without TLS"));
        assert_eq!(about_tls.count(), expected, "{servers}");
    }
}

/// Flags that change no option, and why.
const WITHOUT_OPTION: &[(&str, &str)] = &[
    ("default-watch-cache-size", "kube-apiserver does not read it either"),
    ("kubelet-read-only-port", "kube-apiserver does not read it either"),
    ("help", "read before the options are made"),
    ("show-hidden-metrics-for-version", "checked only: Pintle hides no metrics"),
];

/// Flags that need a special value, or count beside another flag only. `FILE` is a file of [`FILES`].
const SPECIAL: &[(&str, &[&str], &str)] = &[
    ("admission-control", &[], "PodSecurity"),
    ("authorization-mode", &[], "RBAC"),
    ("authorization-policy-file", &["--authorization-mode=ABAC"], "other"),
    (
        "authorization-webhook-cache-authorized-ttl",
        &["--authorization-mode=Webhook", "--authorization-webhook-config-file=f"],
        "7m",
    ),
    (
        "authorization-webhook-cache-unauthorized-ttl",
        &["--authorization-mode=Webhook", "--authorization-webhook-config-file=f"],
        "7m",
    ),
    ("authorization-webhook-config-file", &["--authorization-mode=Webhook"], "other"),
    (
        "authorization-webhook-version",
        &["--authorization-mode=Webhook", "--authorization-webhook-config-file=f"],
        "v1",
    ),
    (
        "authentication-token-webhook-cache-ttl",
        &["--authentication-token-webhook-config-file=f"],
        "7m",
    ),
    (
        "authentication-token-webhook-version",
        &["--authentication-token-webhook-config-file=f"],
        "v1",
    ),
    ("disable-admission-plugins", &[], "PodSecurity"),
    ("emulated-version", &[], "1.35"),
    ("emulation-forward-compatible", &["--emulated-version=1.35"], "true"),
    ("enable-admission-plugins", &[], "AlwaysPullImages"),
    ("encryption-provider-config-automatic-reload", &["--encryption-provider-config=f"], "true"),
    ("endpoint-reconciler-type", &[], "none"),
    ("etcd-cafile", &["--etcd-servers=http://127.0.0.1:1"], "other"),
    ("etcd-certfile", &["--etcd-servers=http://127.0.0.1:1"], "other"),
    ("etcd-healthcheck-timeout", &["--etcd-servers=http://127.0.0.1:1"], "7s"),
    ("etcd-keyfile", &["--etcd-servers=http://127.0.0.1:1"], "other"),
    ("etcd-readycheck-timeout", &["--etcd-servers=http://127.0.0.1:1"], "7s"),
    ("etcd-servers", &[], "http://127.0.0.1:1"),
    (
        "etcd-servers-overrides",
        &["--etcd-servers=http://127.0.0.1:1"],
        "/events#http://127.0.0.1:2",
    ),
    ("etcd-prefix", &[], "/other"),
    ("lease-reuse-duration-seconds", &["--etcd-servers=http://127.0.0.1:1"], "7"),
    ("kubelet-client-certificate", &["--kubelet-client-key=k"], "other"),
    ("kubelet-client-key", &["--kubelet-client-certificate=c"], "other"),
    ("logging-format", &[], "json"),
    (
        "log-json-info-buffer-size",
        &[
            "--logging-format=json",
            "--log-json-split-stream",
            "--feature-gates=LoggingAlphaOptions=true",
        ],
        "7",
    ),
    (
        "log-json-split-stream",
        &["--logging-format=json", "--feature-gates=LoggingAlphaOptions=true"],
        "true",
    ),
    (
        "log-text-info-buffer-size",
        &["--log-text-split-stream", "--feature-gates=LoggingAlphaOptions=true"],
        "7",
    ),
    ("log-text-split-stream", &["--feature-gates=LoggingAlphaOptions=true"], "true"),
    ("min-compatibility-version", &["--emulated-version=1.35"], "1.33"),
    ("etcd-count-metric-poll-period", &[], "0"),
    ("oidc-ca-file", &["--oidc-issuer-url=https://i", "--oidc-client-id=c"], "FILE"),
    ("oidc-client-id", &["--oidc-issuer-url=https://i"], "other"),
    ("oidc-groups-claim", &["--oidc-issuer-url=https://i", "--oidc-client-id=c"], "other"),
    (
        "oidc-groups-prefix",
        &["--oidc-issuer-url=https://i", "--oidc-client-id=c", "--oidc-groups-claim=g"],
        "other",
    ),
    ("oidc-issuer-url", &["--oidc-client-id=c"], "https://other"),
    ("oidc-required-claim", &["--oidc-issuer-url=https://i", "--oidc-client-id=c"], "a=b"),
    ("oidc-signing-algs", &["--oidc-issuer-url=https://i", "--oidc-client-id=c"], "ES256"),
    ("oidc-username-claim", &["--oidc-issuer-url=https://i", "--oidc-client-id=c"], "other"),
    ("oidc-username-prefix", &["--oidc-issuer-url=https://i", "--oidc-client-id=c"], "other"),
    ("peer-advertise-ip", &[], "192.0.2.77"),
    ("peer-advertise-port", &[], "7"),
    ("proxy-client-cert-file", &["--proxy-client-key-file=k"], "other"),
    ("proxy-client-key-file", &["--proxy-client-cert-file=c"], "other"),
    (
        "requestheader-allowed-names",
        &["--requestheader-client-ca-file=f", "--requestheader-username-headers=U"],
        "other",
    ),
    ("requestheader-client-ca-file", &[], "other"),
    (
        "requestheader-extra-headers-prefix",
        &["--requestheader-client-ca-file=f", "--requestheader-username-headers=U"],
        "X-Other-",
    ),
    (
        "requestheader-group-headers",
        &["--requestheader-client-ca-file=f", "--requestheader-username-headers=U"],
        "X-Other",
    ),
    (
        "requestheader-uid-headers",
        &["--requestheader-client-ca-file=f", "--requestheader-username-headers=U"],
        "X-Other",
    ),
    ("requestheader-username-headers", &["--requestheader-client-ca-file=f"], "X-Other"),
    ("runtime-config", &[], "apps/v1=false"),
    ("runtime-config-emulation-forward-compatible", &["--emulated-version=1.35"], "true"),
    ("service-cluster-ip-range", &[], "10.7.0.0/24"),
    ("service-account-signing-endpoint", &[], "/other"),
    ("standalone-controllers", &[], "-namespace"),
    ("storage-backend", &[], "memory"),
    ("storage-media-type", &["--etcd-servers=http://127.0.0.1:1"], "application/json"),
    ("tls-cert-file", &["--tls-private-key-file=k"], "other"),
    ("tls-private-key-file", &["--tls-cert-file=c"], "other"),
    ("tls-cipher-suites", &[], "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("tls-curve-preferences", &[], "23"),
    ("tls-min-version", &[], "VersionTLS13"),
    ("version", &[], "v1.36.4-other"),
    ("watch-cache-sizes", &[], "pods#0"),
    ("bind-address", &[], "192.0.2.77"),
    ("authentication-config", &[], "FILE"),
    ("authorization-config", &[], "FILE"),
    ("tracing-config-file", &[], "FILE"),
    ("allow-metric-labels-manifest", &[], "FILE"),
    ("admission-control-config-file", &[], "FILE"),
    ("allow-metric-labels", &[], "m,l=a"),
    ("audit-log-format", &[], "legacy"),
    ("audit-log-mode", &[], "batch"),
    ("audit-webhook-mode", &[], "blocking"),
];

/// What is in the files of flags that are read at once.
const FILES: &[(&str, &str)] = &[
    (
        "admission-control-config-file",
        "{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{name: PodNodeSelector, \
         configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b}}}]}",
    ),
    ("allow-metric-labels-manifest", "{'m,l': a}"),
    (
        "authentication-config",
        "{apiVersion: apiserver.config.k8s.io/v1, kind: AuthenticationConfiguration, jwt: []}",
    ),
    (
        "authorization-config",
        "{apiVersion: apiserver.config.k8s.io/v1, kind: AuthorizationConfiguration, authorizers: [{type: RBAC, name: rbac}]}",
    ),
    ("oidc-ca-file", "anything"),
    (
        "tracing-config-file",
        "{apiVersion: apiserver.config.k8s.io/v1, kind: TracingConfiguration, samplingRatePerMillion: 7}",
    ),
];

/// A flag that is accepted and changes nothing misleads whoever sets it. An option that nothing reads is found by
/// the compiler: `Options` has no derived code that would read it.
#[test]
fn every_flag_changes_an_option() {
    let directory = tempfile::tempdir().expect("a directory");
    for (flag, content) in FILES {
        std::fs::write(directory.path().join(flag), content).expect("written");
    }
    let completed = |args: &[String]| {
        let parsed = flags::parse(args.iter().cloned()).map_err(|why| why.to_string())?;
        let route = |_| Some("192.0.2.7".parse().expect("an address"));
        let mut options = Options::complete(&parsed, API_VERSIONS, &route, &mut Vec::new());
        // That a flag is deprecated or does nothing is no effect, nor that it is shown.
        options.warnings.clear();
        options.flag_values.clear();
        Ok::<_, String>(format!("{options:?}"))
    };
    let mut wrong = Vec::new();
    for flag in flags::all().filter(|flag| flag.effect == Effect::Done) {
        let special = SPECIAL.iter().find(|(name, ..)| *name == flag.name);
        let context = special.map_or(&[][..], |(_, context, _)| context);
        let context: Vec<String> = context.iter().map(|&arg| arg.to_owned()).collect();
        let value = match special {
            Some((.., "FILE")) => directory.path().join(flag.name).display().to_string(),
            Some((.., value)) => (*value).to_owned(),
            None => another_value(flag),
        };
        let mut args = context.clone();
        args.push(format!("--{}={value}", flag.name));
        let is_exempt = WITHOUT_OPTION.iter().any(|(name, _)| *name == flag.name);
        match (completed(&context), completed(&args)) {
            (Ok(before), Ok(after)) if (before != after) != is_exempt => {}
            (Ok(_), Ok(_)) => wrong.push(format!("{args:?} changes nothing")),
            (before, after) => wrong.push(format!("{args:?}: {:?}", after.err().or(before.err()))),
        }
    }
    assert!(wrong.is_empty(), "{} flags: {wrong:#?}", wrong.len());
}

/// A value of the flag's type that is not its default.
fn another_value(flag: &flags::Flag) -> String {
    use crate::flags::FlagKind;
    match flag.kind {
        FlagKind::Bool => (flag.default != "true").to_string(),
        FlagKind::Int | FlagKind::Uint | FlagKind::Level => {
            (flag.default.parse().unwrap_or(0) + 7).to_string()
        }
        FlagKind::Int32s | FlagKind::Quantity => "7".to_owned(),
        FlagKind::Float | FlagKind::Float32 => "0.7".to_owned(),
        FlagKind::Duration => "7m7s".to_owned(),
        FlagKind::Ip => "192.0.2.77".to_owned(),
        FlagKind::Text | FlagKind::Texts | FlagKind::TextArray => "other".to_owned(),
        FlagKind::Pair | FlagKind::Configuration | FlagKind::TextMap => "a=b".to_owned(),
        FlagKind::Gates => "WatchList=false".to_owned(),
        FlagKind::PortRange => "31000-31999".to_owned(),
        FlagKind::CertKeys => "a.crt,a.key".to_owned(),
        FlagKind::VModule => "a=7".to_owned(),
        FlagKind::Version => "v1.36.0-other".to_owned(),
    }
}
