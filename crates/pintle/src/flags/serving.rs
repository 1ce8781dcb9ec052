//! The HTTPS port: where it listens and which TLS it speaks.

use super::FlagKind::{Bool, CertKeys, Int, Int32s, Ip, Text, Texts};
use super::{Flag, done};

pub(super) const FLAGS: &[Flag] = &[
    done("bind-address", Ip, "127.0.0.1").help(
        "Address to listen on; 0.0.0.0 or :: is every address. Unset: every address with \
         --etcd-servers or --tls-cert-file, as kube-apiserver, and otherwise this machine only.",
    ),
    done("cert-dir", Text, "").help(
        "Directory of the serving certificate apiserver.crt and its key apiserver.key, unless \
         --tls-cert-file is given. They are generated unless they are there. Unset: pki under \
         --data-dir, or in memory if there is none.",
    ),
    done("disable-http2-serving", Bool, "false").help("Serve HTTP/1.1 only."),
    done("http2-max-streams-per-connection", Int, "0")
        .help("Requests at the same time on one HTTP/2 connection; 0: 100."),
    done("permit-address-sharing", Bool, "false")
        .help("Listen with SO_REUSEADDR, without waiting for connections of an earlier server."),
    done("permit-port-sharing", Bool, "false")
        .help("Listen with SO_REUSEPORT, so that several servers can share the port."),
    done("secure-port", Int, "6443").help(
        "Port of HTTPS. 0 picks a free one, which is printed at the start (kube-apiserver refuses \
         0).",
    ),
    done("tls-cert-file", Text, "").help(
        "Serving certificate, followed by its intermediates. Unset: one is generated, see \
         --cert-dir.",
    ),
    done("tls-cipher-suites", Texts, "").help(
        "Cipher suites for TLS 1.2, by their IANA names. Unset: all that are considered safe.",
    ),
    done("tls-curve-preferences", Int32s, "").help(
        "Allowed key exchanges by number: 23 (P-256), 24 (P-384), 29 (X25519). Unset: all of them.",
    ),
    done("tls-min-version", Text, "").help(
        "Lowest TLS version: VersionTLS12 (also when unset) or VersionTLS13. VersionTLS10 and \
         VersionTLS11 are accepted, but 1.2 stays the lowest spoken.",
    ),
    done("tls-private-key-file", Text, "").help("Private key of --tls-cert-file."),
    done("tls-sni-cert-key", CertKeys, "").help(
        "Certificate and key for other host names, as cert,key or cert,key:name,name; names may \
         start with *. and default to those in the certificate. Repeatable.",
    ),
];
