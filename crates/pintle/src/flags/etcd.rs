//! Storage. Without `--etcd-servers` everything lives in the embedded store under `--data-dir`.

use super::FlagKind::{Bool, Duration, Int, Text, Texts};
use super::{Flag, done};

pub(super) const FLAGS: &[Flag] = &[
    done("default-watch-cache-size", Int, "100")
        .help("No effect, as in kube-apiserver: caches size themselves.")
        .deprecated(
            "watch caches are sized automatically and this flag will be removed in a future \
             version",
        )
        .hidden(),
    done("delete-collection-workers", Int, "1")
        .help("Objects deleted at the same time by one request to delete a collection."),
    done("enable-garbage-collector", Bool, "true").help(
        "A deletion leaves dependents to the garbage collector, as its propagation policy says. \
         false: the policy has no effect, and the garbage collector of --standalone-controllers is off.",
    ),
    done("encoding-cache-size", Text, "96Mi").help(
        "Memory for encodings of objects that are kept beside their JSON: protobuf, other versions, table rows, compressed \
         pieces of lists. 0: none is kept. (Pintle's own flag.)",
    ),
    done("encryption-provider-config", Text, "")
        .help("EncryptionConfiguration: which resources are encrypted at rest, and how."),
    done("encryption-provider-config-automatic-reload", Bool, "false")
        .help("Read --encryption-provider-config again when it changes."),
    done("etcd-cafile", Text, "").help("Certificate authority of the etcd servers."),
    done("etcd-certfile", Text, "").help("Client certificate shown to etcd."),
    done("etcd-compaction-interval", Duration, "5m0s")
        .help("How often history that no watch can need any more is dropped; 0: never."),
    done("etcd-count-metric-poll-period", Duration, "1m0s")
        .help("0: objects are not counted for the metrics. Otherwise the count is always the newest."),
    done("etcd-db-metric-poll-interval", Duration, "30s")
        .help("How often the size of the store is measured for the metrics; 0: never."),
    done("etcd-healthcheck-timeout", Duration, "2s")
        .help("Longest time for the check of etcd's health."),
    done("etcd-keyfile", Text, "").help("Private key of --etcd-certfile."),
    done("etcd-prefix", Text, "/registry").help("Root of all keys in etcd."),
    done("etcd-readycheck-timeout", Duration, "2s")
        .help("Longest time for the check that etcd is ready."),
    done("etcd-servers", Texts, "").help(
        "etcd servers to store in, as https://host:2379, comma separated. Unset: the embedded \
         store (kube-apiserver requires this flag).",
    ),
    done("etcd-servers-overrides", Texts, "")
        .help("Other etcd servers for single resources, as group/resource#url;url."),
    done("lease-reuse-duration-seconds", Int, "60")
        .help("Seconds for which objects that expire share one etcd lease."),
    done("storage-backend", Text, "").help(
        "Where objects are kept: etcd3 (the default with --etcd-servers, and all that kube-apiserver \
         takes), embedded (the default without: a store under --data-dir), or memory (they end with \
         the process, and no file is written).",
    ),
    done("storage-media-type", Text, "application/vnd.kubernetes.protobuf").help(
        "Encoding of stored objects: application/json, application/yaml or \
         application/vnd.kubernetes.protobuf.",
    ),
    done("watch-cache", Bool, "true")
        .help("Answer gets and lists from memory; false: from the store, each time."),
    done("watch-cache-sizes", Texts, "").help(
        "resource.group#size; a size of 0 reads the resource from the store. Other sizes are all the \
         same: caches size themselves.",
    ),
];
