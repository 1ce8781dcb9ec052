//! Flags of authentication and authorization.

use super::{tests::read, *};

fn modes(options: &Options) -> Vec<&str> {
    options.authorization.config.authorizers.iter().map(|mode| mode.name.as_str()).collect()
}

#[test]
fn defaults_are_node_and_rbac_and_generated_token_keys() {
    let options = read(&[]).unwrap();
    assert_eq!(modes(&options), ["node", "rbac"]);
    assert!(options.has_rbac());
    let accounts = &options.service_accounts;
    assert_eq!(accounts.issuers, ["https://kubernetes.default.svc.cluster.local"]);
    assert_eq!(accounts.audiences, accounts.issuers);
    assert!(accounts.lookup && accounts.extend_expiration && accounts.max_expiration.is_zero());
    for plugin in ["NamespaceLifecycle", "ServiceAccount", "NodeRestriction"] {
        assert!(options.admission_plugins.is_on(plugin), "{plugin}");
    }
}

#[test]
fn authorization_and_service_account_flags_reach_their_options() {
    let options = read(&[
        "--authorization-mode=AlwaysDeny,RBAC",
        "--authorization-mode=AlwaysAllow",
        "--service-account-issuer=https://a",
        "--service-account-issuer=https://b",
        "--api-audiences=x,y",
        "--service-account-key-file=1.pub",
        "--service-account-key-file=2.pub",
        "--service-account-max-token-expiration=2h",
        "--disable-admission-plugins=ServiceAccount,ResourceQuota",
        "--enable-admission-plugins=NodeRestriction",
    ])
    .unwrap();
    assert_eq!(modes(&options), ["alwaysdeny", "rbac", "alwaysallow"]);
    assert!(!options.authentication.anonymous, "every client would be allowed everything");
    let accounts = &options.service_accounts;
    assert_eq!(accounts.issuers, ["https://a", "https://b"]);
    assert_eq!(accounts.audiences, ["x", "y"]);
    assert_eq!(accounts.key_files, [PathBuf::from("1.pub"), PathBuf::from("2.pub")]);
    assert_eq!(accounts.max_expiration, Duration::from_hours(2));
    assert!(!options.admission_plugins.is_on("ServiceAccount"));
    assert!(options.admission_plugins.is_on("NodeRestriction"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let cases: [(&[&str], &str); 18] = [
        (&["--authorization-mode=Nobody"], "authorization-mode \"Nobody\" is not a valid mode"),
        (
            &["--authorization-mode=RBAC,RBAC"],
            "authorization-mode [\"RBAC\" \"RBAC\"] has mode specified more than once",
        ),
        (
            &["--authorization-mode=ABAC"],
            "authorization-mode ABAC's authorization policy file not passed",
        ),
        (
            &["--authorization-mode=Webhook"],
            "authorization-mode Webhook's authorization config file not passed",
        ),
        (
            &["--authorization-policy-file=x"],
            "cannot specify --authorization-policy-file without mode ABAC",
        ),
        (
            &["--authorization-webhook-config-file=x"],
            "cannot specify --authorization-webhook-config-file without mode Webhook",
        ),
        (
            &["--oidc-issuer-url=https://a"],
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are \
             set",
        ),
        (
            &["--oidc-issuer-url=http://a", "--oidc-client-id=b"],
            "invalid authentication configuration: jwt[0].issuer.url: Invalid value: \"http://a\": \
             URL scheme must be https",
        ),
        (
            &[
                "--oidc-issuer-url=https://a",
                "--oidc-client-id=b",
                "--oidc-signing-algs=RS256,HS256",
            ],
            "oidc: unsupported signing alg: \"HS256\"",
        ),
        (
            &["--requestheader-uid-headers=X-Uid", "--requestheader-client-ca-file=x"],
            "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - \
             API aggregation will not work",
        ),
        (
            &["--kubelet-client-key=x"],
            "--kubelet-client-certificate and --kubelet-client-key go together",
        ),
        (
            &["--service-account-issuer=a", "--service-account-issuer=a"],
            "service-account-issuer \"a\" is already specified",
        ),
        (&["--service-account-issuer="], "service-account-issuer should not be an empty string"),
        (
            &["--service-account-max-token-expiration=1m"],
            "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds",
        ),
        (
            &["--service-account-jwks-uri=http://x"],
            "service-account-jwks-uri requires https scheme, parsed as: http://x",
        ),
        (
            &["--enable-admission-plugins=Nothing"],
            "enable-admission-plugins plugin \"Nothing\" is unknown",
        ),
        (
            &["--disable-admission-plugins=Nothing"],
            "disable-admission-plugins plugin \"Nothing\" is unknown",
        ),
        (
            &[
                "--enable-admission-plugins=ServiceAccount",
                "--disable-admission-plugins=ServiceAccount",
            ],
            "[ServiceAccount] in enable-admission-plugins and disable-admission-plugins overlapped",
        ),
    ];
    for (args, expected) in cases {
        assert_eq!(read(args).unwrap_err(), [expected], "{args:?}");
    }
}

#[test]
fn admission_plugins_are_kube_apiservers_default_set() {
    let options = read(&[
        "--enable-admission-plugins=AlwaysPullImages,AlwaysDeny",
        "--disable-admission-plugins=PodSecurity",
    ])
    .unwrap();
    let cases = [
        ("LimitRanger", true),
        ("CertificateSubjectRestriction", true),
        ("PodSecurity", false),
        ("AlwaysPullImages", true),
        ("EventRateLimit", false),
    ];
    for (plugin, on) in cases {
        assert_eq!(options.admission_plugins.is_on(plugin), on, "{plugin}");
    }
    let deprecated = "AlwaysDeny admission controller is deprecated. Please remove this controller \
                      from your configuration files and scripts.";
    assert!(options.warnings.iter().any(|text| text == deprecated), "{:?}", options.warnings);
    let gates = |_: &str| false;
    let quotas = std::sync::Arc::new(crate::quotas::Quotas::new(&gates, false));
    let built =
        options.admission_plugins.build(&gates, quotas.evaluators.clone(), quotas.clone()).unwrap();
    let names: Vec<_> = built.iter().map(|plugin| plugin.name()).collect();
    assert!(
        names.starts_with(&["NamespaceLifecycle", "LimitRanger", "ServiceAccount"]),
        "{names:?}"
    );
    assert_eq!(names.last(), Some(&"AlwaysDeny"));
}

/// The deprecated flag names all plugins that are on.
#[test]
fn admission_control_replaces_the_default_set() {
    let options = read(&["--admission-control=AlwaysPullImages,LimitRanger"]).unwrap();
    let cases = [("LimitRanger", true), ("AlwaysPullImages", true), ("PodSecurity", false)];
    for (plugin, on) in cases {
        assert_eq!(options.admission_plugins.is_on(plugin), on, "{plugin}");
    }
}

#[test]
fn admission_configurations_are_for_plugins_that_take_one() {
    let name = format!("pintle-options-admission-{}", std::process::id());
    let file = std::env::temp_dir().join(name);
    let flag = format!("--admission-control-config-file={}", file.display());
    let cases = [
        ("PodSecurity", Ok(0)),
        ("PodNodeSelector", Ok(1)),
        ("Priority", Err("admission plugin \"Priority\" takes no configuration")),
        ("Nothing", Err("unknown admission plugin: Nothing")),
    ];
    for (plugin, expected) in cases {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: \
             {plugin}\n  configuration: {{}}\n"
        );
        std::fs::write(&file, text).unwrap();
        match (read(&[&flag]), expected) {
            (Ok(options), Ok(warnings)) => {
                let off = |text: &&String| text.contains("has no effect: the plugin is off");
                assert_eq!(options.warnings.iter().filter(off).count(), warnings, "{plugin}");
            }
            (Err(errors), Err(expected)) => {
                assert!(errors.len() == 1 && errors[0].ends_with(expected), "{errors:?}");
            }
            (read, _) => panic!("{plugin}: {:?}", read.err()),
        }
    }
    std::fs::remove_file(&file).unwrap();
}
