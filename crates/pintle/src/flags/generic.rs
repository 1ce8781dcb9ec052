//! The server as a whole: addresses, limits, timeouts, shutdown, feature gates.

use super::FlagKind::{Bool, Duration, Float, Gates, Int, Ip, Text, Texts};
use super::{Flag, done};

pub(super) const FLAGS: &[Flag] = &[
    done("advertise-address", Ip, "").help(
        "Address under which others reach this server; written into the endpoints of service \
         default/kubernetes. Unset: --bind-address, or the address of the default route.",
    ),
    done("cors-allowed-origins", Texts, "").help(
        "Regular expressions of origins that browsers may call from, anchored at both ends of the \
         host ('//example\\.com(:|$)'). Unset: no CORS.",
    ),
    done("data-dir", Text, "./pintle-data").help(
        "Directory of the embedded store, the generated keys and certificates, and \
         admin.kubeconfig. Unset with --etcd-servers or --storage-backend=memory: none, and what is \
         generated stays in memory. (Pintle's own flag.)",
    ),
    done("emulated-version", Texts, "")
        .help("Minor version to behave as, kube=1.33 to kube=1.36: its APIs and feature gates."),
    done("emulation-forward-compatible", Bool, "false")
        .help("Under --emulated-version, serve newer versions of the enabled APIs as well."),
    done("external-hostname", Text, "").help("Host name used in URLs that the server generates."),
    done("feature-gates", Gates, "").help(
        "Features to switch, as Name=true,Other=false or kube:Name=true. An unknown name is an \
         error.",
    ),
    done("goaway-chance", Float, "0").help(
        "Share of HTTP/2 requests answered with GOAWAY, so that clients spread over several \
         servers: 0 (off) to 0.02.",
    ),
    done("livez-grace-period", Duration, "0s")
        .help("How long /livez ignores post-start hooks that are still running."),
    done("max-mutating-requests-inflight", Int, "200").help(
        "Writes served at the same time; more wait, and get a 429 when a quarter of \
         --request-timeout is over. 0: no limit.",
    ),
    done("max-requests-inflight", Int, "400").help(
        "Reads served at the same time; more wait, and get a 429 when a quarter of \
         --request-timeout is over. 0: no limit.",
    ),
    done("min-compatibility-version", Texts, "")
        .help("Oldest minor version of the control plane to stay compatible with, as kube=1.35."),
    done("min-request-timeout", Int, "1800").help(
        "Seconds that a watch without a timeout of its own stays open at least; the real time is \
         drawn between this and twice as much.",
    ),
    done("request-timeout", Duration, "1m0s")
        .help("Longest time for a request other than a watch or another stream."),
    done("runtime-config-emulation-forward-compatible", Bool, "false").help(
        "Under --emulated-version, allow --runtime-config to enable APIs newer than that version.",
    ),
    done("shutdown-delay-duration", Duration, "0s")
        .help("Time between the signal and the end of service, with /readyz already failing."),
    done("shutdown-send-retry-after", Bool, "false")
        .help("While requests drain, keep listening and answer new ones with 429 and Retry-After."),
    done("shutdown-watch-termination-grace-period", Duration, "0s")
        .help("Longest time to let open watches end by themselves during shutdown."),
    done("standalone-controllers", Texts, "*").help(
        "Loops of kube-controller-manager that the server runs itself: * for all of them, name, \
         -name; empty when a real controller manager runs. Unset: all with the embedded store, none \
         with --etcd-servers. (Pintle's own flag.)",
    ),
    done("storage-initialization-timeout", Duration, "1m0s").help(
        "Longest wait at the start for the objects of resources that the server does not itself \
         depend on.",
    ),
    done("strict-transport-security-directives", Texts, "").help(
        "Directives of the Strict-Transport-Security header: max-age=N, includeSubDomains, \
         preload. Unset: no header.",
    ),
];
