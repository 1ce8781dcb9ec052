//! The options of the server: the flags with their final types, completed and validated.

mod admission;
mod auditing;
mod authentication;
mod authorization;
mod cidr;
mod controllers;
mod effective_version;
mod endpoint_reconciler;
mod etcd;
mod kubelet;
mod metrics;
mod runtime_config;
mod service_accounts;
mod tls;
mod traces;
mod validate;
mod watch_cache;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use ::controllers::LeaderElectionTimers;
use auth::authz::config::AuthorizerType;
use builtin::Definitions;
use serve::metrics::MetricsConfig;

use crate::feature_gates::FeatureGates;
use crate::flags::{self, Effect, NamedCertKey, Parsed, PortRange, VersionFlag};
use crate::logging;
use crate::version;

pub(crate) use admission::AdmissionPlugins;
pub(crate) use authentication::{AuthenticationOptions, PublishedHeaders};
pub(crate) use authorization::AuthorizationOptions;
pub(crate) use cidr::Cidr;
pub(crate) use controllers::StandaloneControllers;
pub(crate) use effective_version::EffectiveVersion;
pub(crate) use endpoint_reconciler::ReconcilerType;
pub(crate) use etcd::{Etcd, form as storage_form, prefix as storage_prefix, tls as etcd_tls};
pub(crate) use kubelet::KubeletOptions;
pub(crate) use runtime_config::RuntimeConfig;
pub(crate) use service_accounts::ServiceAccountOptions;
pub(crate) use tls::{KeyExchange, TlsVersion};
pub(crate) use watch_cache::WatchCache;

/// The configuration of a server.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Of the embedded store, and of generated keys. `None`: nothing is written.
    pub(crate) data_dir: Option<PathBuf>,

    // Addresses and names.
    pub(crate) bind_address: IpAddr,
    /// 0 picks a free port.
    pub(crate) secure_port: u16,
    pub(crate) advertise_address: IpAddr,
    pub(crate) external_hostname: String,
    pub(crate) permit_address_sharing: bool,
    pub(crate) permit_port_sharing: bool,
    pub(crate) version: version::Info,

    // TLS.
    pub(crate) serving_cert: Option<CertKey>,
    /// Directory of the generated serving certificate.
    pub(crate) cert_dir: Option<PathBuf>,
    pub(crate) sni_certs: Vec<NamedCertKey>,
    pub(crate) tls_min_version: TlsVersion,
    /// IANA names of TLS 1.2 suites; empty: all that are built in.
    pub(crate) tls_cipher_suites: Vec<&'static str>,
    /// Empty: all that are built in.
    pub(crate) tls_key_exchanges: Vec<KeyExchange>,

    // HTTP.
    pub(crate) http2: bool,
    pub(crate) http2_max_streams_per_connection: u32,
    pub(crate) goaway_chance: f64,
    pub(crate) strict_transport_security_directives: Vec<String>,
    pub(crate) cors_allowed_origins: Vec<String>,
    pub(crate) request_timeout: Duration,
    /// Concurrent requests; 0 without limit.
    pub(crate) priority_and_fairness: bool,
    pub(crate) max_requests_inflight: usize,
    pub(crate) max_mutating_requests_inflight: usize,
    /// A watch without `timeoutSeconds` lasts between this and twice as long.
    pub(crate) min_request_timeout: Duration,
    /// At least one.
    pub(crate) delete_collection_workers: usize,
    pub(crate) enable_garbage_collector: bool,
    pub(crate) profiling: bool,
    /// `/logs` shows the files below `/var/log`.
    pub(crate) logs_handler: bool,
    /// Name and value of every flag, for `/flagz`.
    pub(crate) flag_values: Vec<(&'static str, String)>,

    pub(crate) egress_selector_config: Option<PathBuf>,
    pub(crate) debug_socket_path: Option<PathBuf>,
    pub(crate) kubelet: KubeletOptions,

    // Aggregation.
    /// Aggregated servers are called at their endpoints.
    pub(crate) aggregator_routing: bool,
    pub(crate) aggregator_reject_forwarding_redirect: bool,

    // Shutdown.
    pub(crate) livez_grace_period: Duration,
    /// How long the start waits for caches that the server itself does not depend on.
    pub(crate) storage_initialization_timeout: Duration,
    pub(crate) shutdown_delay_duration: Duration,
    pub(crate) shutdown_send_retry_after: bool,
    pub(crate) shutdown_watch_termination_grace_period: Duration,

    // Authentication and authorization.
    pub(crate) authentication: AuthenticationOptions,
    pub(crate) service_accounts: ServiceAccountOptions,
    /// In this order, after `system:masters`.
    pub(crate) authorization: AuthorizationOptions,

    // Admission.
    pub(crate) admission_plugins: AdmissionPlugins,

    // APIs and storage.
    pub(crate) allow_privileged: bool,
    /// How many apiservers share the store, by `--apiserver-count`.
    pub(crate) servers: i64,
    pub(crate) feature_gates: FeatureGates,
    pub(crate) runtime_config: RuntimeConfig,
    pub(crate) effective_version: EffectiveVersion,
    pub(crate) event_ttl: Duration,
    /// The lease of the server that elects leaders.
    pub(crate) coordinated_leadership: LeaderElectionTimers,
    /// `None`: the embedded store.
    pub(crate) etcd: Option<Etcd>,
    /// The embedded store has no files.
    pub(crate) in_memory: bool,
    /// The prefix of all keys: `/registry`.
    pub(crate) storage_prefix: String,
    /// Which resources bypass the watch cache.
    pub(crate) watch_cache: WatchCache,
    /// What the process keeps of objects in other encodings than JSON.
    pub(crate) encoding_cache_bytes: usize,
    /// Objects are counted for the metrics.
    pub(crate) count_metric: bool,
    /// Interval at which the size of the store is measured; `None` for never.
    pub(crate) size_metric_interval: Option<Duration>,
    /// `None`: the store is never compacted.
    pub(crate) compaction_interval: Option<Duration>,
    pub(crate) encryption: Option<EncryptionFile>,
    /// One range, or two of different families; the first is the default for new services.
    pub(crate) service_cluster_ip_ranges: Vec<Cidr>,
    /// The address of service default/kubernetes: the first one of the first range.
    pub(crate) kubernetes_service_ip: IpAddr,
    pub(crate) service_node_port_range: PortRange,

    /// `--endpoint-reconciler-type`: how the endpoints of service default/kubernetes are written.
    pub(crate) endpoint_reconciler: ReconcilerType,
    /// The node port of service default/kubernetes; 0 for none.
    pub(crate) kubernetes_service_node_port: u16,
    /// How API servers over the same store reach this one; the advertised address and the secure port
    /// unless they are set.
    pub(crate) peer_advertise_ip: Option<IpAddr>,
    pub(crate) peer_advertise_port: Option<u16>,
    /// `--peer-ca-file`
    pub(crate) peer_ca_file: Option<PathBuf>,

    /// The controllers of kube-controller-manager that this server runs.
    pub(crate) standalone_controllers: StandaloneControllers,
    /// For how long the namespace controller leaves a terminating namespace alone; not a flag.
    pub(crate) namespace_grace: Duration,

    pub(crate) metrics: MetricsConfig,
    pub(crate) audit: audit::Options,
    /// None: no spans are recorded.
    pub(crate) tracing: Option<otlp::TracingConfig>,
    pub(crate) logging: logging::Settings,
    /// Warnings that are logged at the start, one line each.
    pub(crate) warnings: Vec<String>,
}

/// Encryption at rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EncryptionFile {
    pub(crate) file: PathBuf,
    /// Whether the file is reloaded when it changes.
    pub(crate) reload: bool,
}

/// A certificate file with its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertKey {
    pub(crate) cert_file: PathBuf,
    pub(crate) key_file: PathBuf,
}

/// The address of the default route in the family of another address.
pub(crate) type DefaultRoute = dyn Fn(IpAddr) -> Option<IpAddr>;

impl Options {
    /// The same with the group-versions that `--runtime-config` may name, and the routes of this machine.
    pub(crate) fn from_parsed(
        parsed: &Parsed,
        definitions: &Definitions,
    ) -> Result<Self, Vec<String>> {
        let served = definitions.group_versions.iter().filter(|facts| !facts.internal);
        let versions: Vec<String> = served.map(|facts| facts.group_version.to_string()).collect();
        let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
        Self::new(parsed, &versions, &default_route)
    }

    /// Builds the options, or returns every error in the flags. `api_versions` are the existing
    /// group-versions, such as `apps/v1` and `v1`.
    pub(crate) fn new(
        parsed: &Parsed,
        api_versions: &[&str],
        default_route: &DefaultRoute,
    ) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let options = Self::complete(parsed, api_versions, default_route, &mut errors);
        validate::validate(parsed, &options, &mut errors);
        if errors.is_empty() { Ok(options) } else { Err(errors) }
    }

    /// Whether RBAC is among the authorization modes.
    pub(crate) fn has_rbac(&self) -> bool {
        self.authorization.config.has(AuthorizerType::Rbac)
    }

    /// Where other API servers reach this one. Compat: the flags count together only.
    pub(crate) fn peer_address(&self, port: u16) -> (IpAddr, u16) {
        let advertised = self.peer_advertise_ip.zip(self.peer_advertise_port);
        advertised.unwrap_or((self.advertise_address, port))
    }

    /// Gives every flag its final type and derives defaults. A value out of range is replaced by a
    /// valid one here; `validate` checks the flags themselves and refuses it.
    fn complete(
        parsed: &Parsed,
        api_versions: &[&str],
        default_route: &DefaultRoute,
        errors: &mut Vec<String>,
    ) -> Self {
        let mut warnings = unsupported(parsed);
        let effective_version = EffectiveVersion::from_flags(parsed, errors);
        let feature_gates =
            FeatureGates::from_flag(&parsed.gates("feature-gates"), effective_version)
                .unwrap_or_else(|wrong| {
                    errors.extend(wrong);
                    FeatureGates::default()
                });
        warnings.extend(feature_gates.warnings.iter().cloned());
        warnings.extend(effective_version.warnings(&feature_gates));
        let runtime_config = RuntimeConfig::from_flag(&parsed.map("runtime-config"), api_versions)
            .unwrap_or_else(|wrong| {
                errors.extend(wrong);
                RuntimeConfig::default()
            });
        let service_cluster_ip_ranges =
            cidr::service_ranges(&parsed.text("service-cluster-ip-range"), errors);
        let tls = tls::Tls::from_flags(parsed, errors, &mut warnings);
        let authorization = AuthorizationOptions::from_flags(parsed, errors);
        let service_accounts = ServiceAccountOptions::from_flags(parsed, errors);

        let data_dir = data_dir(parsed);
        let bind_address = bind_address(parsed);
        let advertise_address =
            advertised(parsed.ip("advertise-address"), bind_address, default_route);
        let external_hostname = match parsed.text("external-hostname") {
            host if host.is_empty() => advertise_address.to_string(),
            host => host,
        };
        let over_etcd = !parsed.texts("etcd-servers").is_empty();
        if !over_etcd && parsed.is_changed("peer-ca-file") {
            warnings.push(
                "--peer-ca-file has no effect without --etcd-servers: no other API server shares the \
                 store"
                    .to_owned(),
            );
        }
        if parsed.is_changed("peer-advertise-ip") != parsed.is_changed("peer-advertise-port") {
            warnings.push(
                "--peer-advertise-ip and --peer-advertise-port have no effect without each other"
                    .to_owned(),
            );
        }
        if over_etcd && data_dir.is_none() && service_accounts.signing_key_file.is_none() {
            warnings.push(
                "service account tokens are signed with a key that ends with this process: set \
                 --service-account-signing-key-file, or --data-dir to keep the generated key"
                    .to_owned(),
            );
        }
        let reported = match parsed.version("version") {
            VersionFlag::Report(version) => Some(version),
            _ => None,
        };

        Self {
            data_dir,

            bind_address,
            secure_port: u16::try_from(parsed.int("secure-port")).unwrap_or(0),
            advertise_address,
            external_hostname,
            permit_address_sharing: parsed.bool("permit-address-sharing"),
            permit_port_sharing: parsed.bool("permit-port-sharing"),
            version: effective_version.apply(version::info(reported.as_deref())),
            effective_version,

            serving_cert: path(parsed, "tls-cert-file")
                .zip(path(parsed, "tls-private-key-file"))
                .map(|(cert_file, key_file)| CertKey { cert_file, key_file }),
            cert_dir: path(parsed, "cert-dir"),
            sni_certs: parsed.cert_keys("tls-sni-cert-key"),
            tls_min_version: tls.min_version,
            tls_cipher_suites: tls.cipher_suites,
            tls_key_exchanges: tls.key_exchanges,

            http2: !parsed.bool("disable-http2-serving"),
            http2_max_streams_per_connection: match parsed.int("http2-max-streams-per-connection") {
                ..=0 => HTTP2_STREAMS_DEFAULT,
                streams => u32::try_from(streams).unwrap_or(u32::MAX),
            },
            goaway_chance: parsed.float("goaway-chance"),
            strict_transport_security_directives: parsed
                .texts("strict-transport-security-directives"),
            cors_allowed_origins: parsed.texts("cors-allowed-origins"),
            request_timeout: duration(parsed, "request-timeout"),
            priority_and_fairness: parsed.bool("enable-priority-and-fairness"),
            max_requests_inflight: count(parsed, "max-requests-inflight"),
            max_mutating_requests_inflight: count(parsed, "max-mutating-requests-inflight"),
            delete_collection_workers: count(parsed, "delete-collection-workers").max(1),
            enable_garbage_collector: parsed.bool("enable-garbage-collector"),
            min_request_timeout: Duration::from_secs(count(parsed, "min-request-timeout") as u64),
            profiling: parsed.bool("profiling"),
            logs_handler: parsed.bool("enable-logs-handler"),
            flag_values: flags::all()
                .map(|flag| match flag.name {
                    "bind-address" => (flag.name, bind_address.to_string()),
                    name => (name, parsed.value(name).to_string()),
                })
                .collect(),

            egress_selector_config: path(parsed, "egress-selector-config-file"),
            debug_socket_path: path(parsed, "debug-socket-path"),
            aggregator_routing: parsed.bool("enable-aggregator-routing"),
            aggregator_reject_forwarding_redirect: parsed
                .bool("aggregator-reject-forwarding-redirect"),
            kubelet: KubeletOptions::from_flags(parsed, errors),

            livez_grace_period: duration(parsed, "livez-grace-period"),
            storage_initialization_timeout: duration(parsed, "storage-initialization-timeout"),
            shutdown_delay_duration: duration(parsed, "shutdown-delay-duration"),
            shutdown_send_retry_after: parsed.bool("shutdown-send-retry-after"),
            shutdown_watch_termination_grace_period: duration(
                parsed,
                "shutdown-watch-termination-grace-period",
            ),

            authentication: AuthenticationOptions::from_flags(
                parsed,
                &authorization.config,
                &service_accounts.issuers,
                errors,
                &mut warnings,
            ),
            service_accounts,
            admission_plugins: admission::plugins(parsed, errors, &mut warnings),
            authorization,

            allow_privileged: parsed.bool("allow-privileged"),
            servers: parsed.int("apiserver-count"),
            feature_gates,
            runtime_config,
            // Compat: values below 1 count as 1.
            event_ttl: duration(parsed, "event-ttl"),
            coordinated_leadership: LeaderElectionTimers {
                lease_duration: duration(parsed, "coordinated-leadership-lease-duration"),
                renew_deadline: duration(parsed, "coordinated-leadership-renew-deadline"),
                retry_period: duration(parsed, "coordinated-leadership-retry-period"),
            },
            etcd: Etcd::from_flags(parsed, &mut warnings),
            in_memory: etcd::in_memory(parsed),
            storage_prefix: storage_prefix(parsed),
            watch_cache: WatchCache::from_flags(parsed, errors, &mut warnings),
            encoding_cache_bytes: watch_cache::encoding_cache_bytes(parsed, errors),
            count_metric: !duration(parsed, "etcd-count-metric-poll-period").is_zero(),
            size_metric_interval: Some(duration(parsed, "etcd-db-metric-poll-interval"))
                .filter(|interval| !interval.is_zero()),
            compaction_interval: Some(duration(parsed, "etcd-compaction-interval"))
                .filter(|interval| !interval.is_zero()),
            encryption: path(parsed, "encryption-provider-config").map(|file| EncryptionFile {
                file,
                reload: parsed.bool("encryption-provider-config-automatic-reload"),
            }),
            kubernetes_service_ip: service_cluster_ip_ranges
                .first()
                .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), Cidr::first_address),
            service_cluster_ip_ranges,
            service_node_port_range: parsed.port_range("service-node-port-range"),

            endpoint_reconciler: ReconcilerType::from_flags(parsed),
            kubernetes_service_node_port: u16::try_from(parsed.int("kubernetes-service-node-port"))
                .unwrap_or(0),
            peer_advertise_ip: parsed.text("peer-advertise-ip").parse().ok(),
            peer_advertise_port: parsed.text("peer-advertise-port").parse().ok(),
            peer_ca_file: path(parsed, "peer-ca-file"),

            standalone_controllers: StandaloneControllers::from_flags(parsed, over_etcd, errors),
            namespace_grace: Duration::ZERO,

            metrics: metrics::from_flags(parsed, errors),
            audit: auditing::from_flags(parsed, errors),
            tracing: traces::from_flags(parsed, errors),
            logging: logging::Settings {
                format: match parsed.text("logging-format").as_str() {
                    "json" => logging::Format::Json,
                    _ => logging::Format::Text,
                },
                verbosity: parsed.level("v"),
                vmodule: parsed.vmodule("vmodule"),
                split: split_stream(parsed),
                flush_interval: duration(parsed, "log-flush-frequency"),
            },
            warnings,
        }
    }
}

/// Whether errors and the rest of the log are separate streams, and how many bytes of the rest are buffered.
fn split_stream(parsed: &Parsed) -> Option<usize> {
    let format = if parsed.text("logging-format") == "json" { "json" } else { "text" };
    if !parsed.bool(&format!("log-{format}-split-stream")) {
        return None;
    }
    let size = parsed.text(&format!("log-{format}-info-buffer-size"));
    let size = meta::quantity::Quantity::parse(&size).ok().map_or(0, |size| size.value());
    Some(usize::try_from(size).unwrap_or(0))
}

/// kube-apiserver's default if the flag is not set.
const HTTP2_STREAMS_DEFAULT: u32 = 100;

/// Warns of flags that are not implemented.
fn unsupported(parsed: &Parsed) -> Vec<String> {
    let harmless = parsed.changed(Effect::Harmless);
    harmless.map(|flag| format!("--{} has no effect in Pintle yet", flag.name)).collect()
}

/// The bind address: by flag, or this machine only for a server that is tried out. Compat: with
/// `--etcd-servers` or a serving certificate it belongs to a cluster, and kubeadm, for one, expects
/// kube-apiserver's default.
fn bind_address(parsed: &Parsed) -> IpAddr {
    let address = parsed.ip("bind-address").expect("an address that has a default");
    let in_cluster =
        !parsed.texts("etcd-servers").is_empty() || !parsed.text("tls-cert-file").is_empty();
    if parsed.is_set("bind-address") || !in_cluster {
        return address;
    }
    IpAddr::V4(Ipv4Addr::UNSPECIFIED)
}

/// The data directory: by flag, or where the embedded store is on disk. Compat: otherwise nothing is
/// written into the working directory; generated keys are in memory.
fn data_dir(parsed: &Parsed) -> Option<PathBuf> {
    let is_embedded = parsed.texts("etcd-servers").is_empty() && !etcd::in_memory(parsed);
    (is_embedded || parsed.is_set("data-dir")).then(|| parsed.text("data-dir").into())
}

/// The advertise address: by flag, the bind address, or the address of the default route. Without a
/// route it is loopback.
fn advertised(given: Option<IpAddr>, bind: IpAddr, default_route: &DefaultRoute) -> IpAddr {
    let useful = |ip: &IpAddr| !ip.is_unspecified();
    // Endpoints must not be loopback addresses, so a loopback bind address does not count.
    let bound = Some(bind).filter(|ip| useful(ip) && !ip.is_loopback());
    given.filter(useful).or(bound).or_else(|| default_route(bind)).unwrap_or(if bind.is_ipv6() {
        IpAddr::V6(Ipv6Addr::LOCALHOST)
    } else {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    })
}

/// Asks the kernel which address it would send from. Connecting a datagram socket sends nothing;
/// the addresses are those reserved for documentation.
fn default_route(like: IpAddr) -> Option<IpAddr> {
    let from = |local: IpAddr, remote: IpAddr| {
        let socket = UdpSocket::bind((local, 0)).ok()?;
        socket.connect((remote, 9)).ok()?;
        let ip = socket.local_addr().ok()?.ip();
        (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
    };
    let v4 = || from(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into());
    let v6 = || {
        from(Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into())
    };
    if like.is_ipv6() { v6().or_else(v4) } else { v4().or_else(v6) }
}

pub(crate) fn path(parsed: &Parsed, name: &str) -> Option<PathBuf> {
    Some(parsed.text(name)).filter(|text| !text.is_empty()).map(PathBuf::from)
}

pub(crate) fn duration(parsed: &Parsed, name: &str) -> Duration {
    Duration::from_nanos(u64::try_from(parsed.nanos(name)).unwrap_or(0))
}

fn count(parsed: &Parsed, name: &str) -> usize {
    usize::try_from(parsed.int(name)).unwrap_or(0)
}

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod flag_sets;
#[cfg(test)]
mod tests;
