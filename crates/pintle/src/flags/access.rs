//! Flags of authentication, authorization and served APIs.

use super::FlagKind::{Bool, Configuration, Duration, Int, Pair, Text, TextArray, Texts};
use super::{Flag, done, harmless};

pub(super) const FEATURES: &[Flag] = &[
    harmless("contention-profiling", Bool, "false")
        .help("Profile lock contention as well, which is a part of Go's runtime."),
    done("debug-socket-path", Text, "").help(
        "Unix socket with the endpoints of --profiling, for the server's own user and without \
         authentication.",
    ),
    done("enable-priority-and-fairness", Bool, "true").help(
        "Queue requests by priority levels and flows. Without it, requests above the limits get a \
         429 at once.",
    ),
    done("profiling", Bool, "true").help(
        "Serve /debug/flags/v and /debug/pprof. CPU profiles need a build with the feature \
         cpu-profiler.",
    ),
];

pub(super) const AUTHENTICATION: &[Flag] = &[
    done("anonymous-auth", Bool, "true").help(
        "Treat requests without credentials as user system:anonymous of group \
         system:unauthenticated instead of refusing them.",
    ),
    done("api-audiences", Texts, "")
        .help("Audiences of which a service account token must name one. Unset: the issuers."),
    done("authentication-config", Text, "").help(
        "AuthenticationConfiguration file: token issuers, claim rules, anonymous access. Token \
             issuers are reloaded when it changes.",
    ),
    done("authentication-token-webhook-cache-ttl", Duration, "2m0s")
        .help("How long answers of the token webhook are remembered."),
    done("authentication-token-webhook-config-file", Text, "")
        .help("Kubeconfig of a server that checks bearer tokens."),
    done("authentication-token-webhook-version", Text, "v1beta1")
        .help("Version of the TokenReview sent to that server: v1 or v1beta1."),
    done("client-ca-file", Text, "").help(
        "Authorities whose client certificates are accepted: common name is the user, \
         organizations are the groups.",
    ),
    done("enable-bootstrap-token-auth", Bool, "false")
        .help("Accept bootstrap tokens kept as secrets in kube-system."),
    done("oidc-ca-file", Text, "").help("Authority of the OpenID issuer's certificate."),
    done("oidc-client-id", Text, "").help("Client id that an OpenID token must be meant for."),
    done("oidc-groups-claim", Text, "").help("Claim that holds the groups."),
    done("oidc-groups-prefix", Text, "").help("Prefix put before each group."),
    done("oidc-issuer-url", Text, "")
        .help("URL (https) of the OpenID issuer whose tokens are accepted."),
    done("oidc-required-claim", Pair, "")
        .help("Claim that a token must carry, as key=value. Repeatable."),
    done("oidc-signing-algs", Texts, "RS256")
        .help("Signature algorithms accepted in OpenID tokens."),
    done("oidc-username-claim", Text, "sub").help("Claim that holds the user name."),
    done("oidc-username-prefix", Text, "").help("Prefix put before the user name; - is none."),
    done("requestheader-allowed-names", Texts, "")
        .help("Common names of front proxies that may name a user in headers. Unset: any."),
    done("requestheader-client-ca-file", Text, "")
        .help("Authorities of the front proxies that may name a user in headers."),
    done("requestheader-extra-headers-prefix", Texts, "")
        .help("Prefixes of headers with extra user information, usually X-Remote-Extra-."),
    done("requestheader-group-headers", Texts, "")
        .help("Headers with the groups, usually X-Remote-Group."),
    done("requestheader-uid-headers", Texts, "")
        .help("Headers with the user's uid, usually X-Remote-Uid."),
    done("requestheader-username-headers", Texts, "")
        .help("Headers with the user name, usually X-Remote-User."),
    done("service-account-extend-token-expiration", Bool, "true").help(
        "Extend tokens of pods to a year, and record uses after their expiry in the audit log.",
    ),
    done("service-account-issuer", TextArray, "").help(
        "Issuer of service account tokens; repeatable: the first signs, all are accepted. Unset: \
         https://kubernetes.default.svc.cluster.local (kube-apiserver requires this flag).",
    ),
    done("service-account-jwks-uri", Text, "")
        .help("URL (https) of the token keys in the OpenID discovery document."),
    done("service-account-key-file", TextArray, "").help(
        "Keys that verify service account tokens. Repeatable. Unset: that of the signing key.",
    ),
    done("service-account-lookup", Bool, "true")
        .help("Accept a service account token only while the objects it is bound to exist."),
    done("service-account-max-token-expiration", Duration, "0s")
        .help("Longest lifetime of a service account token; 0: as requested."),
    done("token-auth-file", Text, "")
        .help("CSV file of fixed tokens: token,user,uid and optionally \"group,group\"."),
];

pub(super) const AUTHORIZATION: &[Flag] = &[
    done("authorization-config", Text, "")
        .help("AuthorizationConfiguration file: a chain of authorizers, reloaded when it changes."),
    done("authorization-mode", Texts, "").help(
        "Authorizers in order: AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node. Unset: \
         Node,RBAC (kube-apiserver: AlwaysAllow). Group system:masters may always do everything.",
    ),
    done("authorization-policy-file", Text, "")
        .help("Policy of mode ABAC, one JSON object a line."),
    done("authorization-webhook-cache-authorized-ttl", Duration, "5m0s")
        .help("How long a yes of the authorization webhook is remembered."),
    done("authorization-webhook-cache-unauthorized-ttl", Duration, "30s")
        .help("How long a no of the authorization webhook is remembered."),
    done("authorization-webhook-config-file", Text, "")
        .help("Kubeconfig of the authorization webhook of mode Webhook."),
    done("authorization-webhook-version", Text, "v1beta1")
        .help("Version of the SubjectAccessReview sent to that server."),
];

pub(super) const API_ENABLEMENT: &[Flag] = &[done("runtime-config", Configuration, "").help(
    "APIs to switch, as group/version=true, group/version/resource=false, v1=false for the core \
     group, or api/all, api/ga, api/beta, api/alpha.",
)];

pub(super) const EGRESS_SELECTOR: &[Flag] = &[done("egress-selector-config-file", Text, "").help(
    "EgressSelectorConfiguration: proxies for connections to the cluster (nodes, pods, Services), to \
     the control plane (webhooks, issuers that ask for it) and to etcd.",
)];

pub(super) const ADMISSION: &[Flag] = &[
    done("admission-control", Texts, "")
        .help("Admission plugins instead of the default set. Their order here does not matter.")
        .deprecated(
            "Use --enable-admission-plugins or --disable-admission-plugins instead. Will be \
             removed in a future version.",
        ),
    done("admission-control-config-file", Text, "")
        .help("AdmissionConfiguration file: the configuration of admission plugins."),
    done("default-not-ready-toleration-seconds", Int, "300")
        .help("Default toleration of pods for not-ready nodes."),
    done("default-unreachable-toleration-seconds", Int, "300")
        .help("Default toleration of pods for unreachable nodes."),
    done("disable-admission-plugins", Texts, "")
        .help("Admission plugins to leave out of the default set."),
    done("enable-admission-plugins", Texts, "")
        .help("Admission plugins to add to the default set."),
];
