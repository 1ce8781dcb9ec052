//! From a Service to an address that can be dialed. The URL and the name that the certificate must
//! have stay `<name>.<namespace>.svc`; only where the connection goes is decided here.

use std::sync::Arc;

use meta::{Value, field::quote};

use crate::{BoxFuture, origin::HostPort};

/// Finds an address behind a port of a Service.
pub trait ServiceResolver: Send + Sync {
    fn resolve<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<HostPort, ResolveError>>;
}

/// Where resolvers find objects.
pub trait ServiceLookup: Send + Sync {
    /// None: there is no such Service.
    fn service<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, LookupError>>;

    /// The EndpointSlices (`discovery.k8s.io/v1`) of a Service: those with the label
    /// `kubernetes.io/service-name`.
    fn endpoint_slices<'a>(
        &'a self,
        namespace: &'a str,
        service: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, LookupError>>;
}

/// The lookup itself has failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LookupError(pub Box<dyn std::error::Error + Send + Sync>);

/// Compat: the words of k8s.io/apiserver/pkg/util/proxy, which end up in messages to clients.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("service {} not found", quote(.name))]
    NotFound { name: String },
    #[error(r#"cannot route to service with ClusterIP "None""#)]
    Headless,
    #[error("unsupported service type {}", quote(.service_type))]
    UnsupportedType { service_type: String },
    #[error("no service port {port} found for service {}", quote(.name))]
    NoSuchPort { port: u16, name: String },
    #[error("no endpoints available for service {}", quote(.name))]
    NoEndpoints { name: String },
    #[error(transparent)]
    Lookup(#[from] LookupError),
}

/// Goes to the Service's cluster IP, and leaves the choice of an endpoint to the network.
pub struct ClusterIp<L>(pub L);

impl<L: ServiceLookup> ServiceResolver for ClusterIp<L> {
    fn resolve<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<HostPort, ResolveError>> {
        Box::pin(async move {
            let service = find_service(&self.0, namespace, name).await?;
            match service_type(&service) {
                "ClusterIP" | "NodePort" | "LoadBalancer" => {
                    let host = service.str_at(&["spec", "clusterIP"]);
                    if matches!(host, "" | "None") {
                        return Err(ResolveError::Headless);
                    }
                    find_port(&service, name, port)?;
                    Ok(HostPort { host: host.to_owned(), port })
                }
                "ExternalName" => {
                    let host = service.str_at(&["spec", "externalName"]).to_owned();
                    Ok(HostPort { host, port })
                }
                other => Err(ResolveError::UnsupportedType { service_type: other.to_owned() }),
            }
        })
    }
}

/// Goes to one of the Service's ready endpoints, chosen at random: `--enable-aggregator-routing`, for
/// API servers on hosts that cannot reach cluster IPs.
pub struct Endpoints<L> {
    lookup: L,
    /// A number below the given one, which is not 0.
    pick: fn(usize) -> usize,
}

impl<L: ServiceLookup> Endpoints<L> {
    pub fn new(lookup: L) -> Self {
        Self { lookup, pick: random_below }
    }
}

fn random_below(bound: usize) -> usize {
    // Without random numbers the first endpoint is as good as any.
    getrandom::u64().unwrap_or_default() as usize % bound
}

impl<L: ServiceLookup> ServiceResolver for Endpoints<L> {
    fn resolve<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<HostPort, ResolveError>> {
        Box::pin(async move {
            let service = find_service(&self.lookup, namespace, name).await?;
            let service_type = service_type(&service);
            if !matches!(service_type, "ClusterIP" | "NodePort" | "LoadBalancer") {
                let service_type = service_type.to_owned();
                return Err(ResolveError::UnsupportedType { service_type });
            }
            let port_name = find_port(&service, name, port)?.str_at(&["name"]);
            let slices = self.lookup.endpoint_slices(namespace, name).await?;
            let family = service.items_at(&["spec", "ipFamilies"]).first().and_then(Value::as_str);
            self.ready_endpoint(&slices, port_name, family.unwrap_or_default())
                .ok_or_else(|| ResolveError::NoEndpoints { name: name.to_owned() })
        })
    }
}

impl<L> Endpoints<L> {
    /// Slices of the Service's first IP family come first.
    fn ready_endpoint(&self, slices: &[Value], port: &str, family: &str) -> Option<HostPort> {
        let is_first = |slice: &&Value| slice.str_at(&["addressType"]) == family;
        let (first, others): (Vec<&Value>, Vec<&Value>) = slices.iter().partition(is_first);
        [first, others].iter().find_map(|slices| {
            self.in_random_rotation(slices).find_map(|slice| self.ready_in_slice(slice, port))
        })
    }

    fn ready_in_slice(&self, slice: &Value, port: &str) -> Option<HostPort> {
        let mut ports = slice.items_at(&["ports"]).iter();
        let port = ports.find(|known| known.str_at(&["name"]) == port)?.i64_at(&["port"])?;
        let port = u16::try_from(port).ok()?;
        let endpoints: Vec<&Value> = slice.items_at(&["endpoints"]).iter().collect();
        // No condition means ready.
        let is_ready = |endpoint: &&Value| {
            endpoint.at(&["conditions", "ready"]).and_then(Value::as_bool) != Some(false)
        };
        self.in_random_rotation(&endpoints).filter(is_ready).find_map(|endpoint| {
            // Of the addresses of an endpoint only the first counts.
            let host = endpoint.items_at(&["addresses"]).first()?.as_str()?.to_owned();
            Some(HostPort { host, port })
        })
    }

    /// All of them, from a random one on.
    fn in_random_rotation<'v>(&self, values: &[&'v Value]) -> impl Iterator<Item = &'v Value> {
        let start = if values.is_empty() { 0 } else { (self.pick)(values.len()) };
        let (before, from) = values.split_at(start);
        [from, before].concat().into_iter()
    }
}

/// The API server itself stands behind `kubernetes.default.svc`, so a call to it stays on this host.
pub struct Loopback {
    pub host: HostPort,
    pub otherwise: Arc<dyn ServiceResolver>,
}

impl ServiceResolver for Loopback {
    fn resolve<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<HostPort, ResolveError>> {
        if (namespace, name, port) == ("default", "kubernetes", 443) {
            let host = self.host.clone();
            return Box::pin(async move { Ok(host) });
        }
        self.otherwise.resolve(namespace, name, port)
    }
}

async fn find_service(
    lookup: &impl ServiceLookup,
    namespace: &str,
    name: &str,
) -> Result<Value, ResolveError> {
    let found = lookup.service(namespace, name).await?;
    found.ok_or_else(|| ResolveError::NotFound { name: name.to_owned() })
}

fn service_type(service: &Value) -> &str {
    match service.str_at(&["spec", "type"]) {
        "" => "ClusterIP",
        given => given,
    }
}

fn find_port<'v>(service: &'v Value, name: &str, port: u16) -> Result<&'v Value, ResolveError> {
    let mut ports = service.items_at(&["spec", "ports"]).iter();
    ports
        .find(|known| known.i64_at(&["port"]) == Some(port.into()))
        .ok_or_else(|| ResolveError::NoSuchPort { port, name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One Service and its slices, in YAML.
    struct One(&'static str, &'static str);

    impl ServiceLookup for One {
        fn service<'a>(
            &'a self,
            _: &'a str,
            name: &'a str,
        ) -> BoxFuture<'a, Result<Option<Value>, LookupError>> {
            let service = codec::yaml::load(self.0.as_bytes()).unwrap().value;
            Box::pin(async move { Ok((name == "s").then_some(service)) })
        }

        fn endpoint_slices<'a>(
            &'a self,
            _: &'a str,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Vec<Value>, LookupError>> {
            let slices = codec::yaml::load(self.1.as_bytes()).unwrap().value;
            Box::pin(async move { Ok(slices.as_array().unwrap_or_default().to_vec()) })
        }
    }

    async fn resolved(resolver: &dyn ServiceResolver, name: &str, port: u16) -> String {
        match resolver.resolve("n", name, port).await {
            Ok(HostPort { host, port }) => format!("{host} {port}"),
            Err(error) => error.to_string(),
        }
    }

    const PLAIN: &str =
        "spec: {type: ClusterIP, clusterIP: 10.0.0.1, ports: [{port: 443, name: https}]}";

    #[tokio::test]
    async fn a_cluster_ip_is_dialed_on_the_port_of_the_service() {
        let headless = "spec: {type: ClusterIP, clusterIP: None, ports: [{port: 443}]}";
        let external = "spec: {type: ExternalName, externalName: a.b}";
        let load_balancer = "spec: {type: LoadBalancer, clusterIP: '::1', ports: [{port: 443}]}";
        let cases = [
            (PLAIN, "s", 443, "10.0.0.1 443"),
            (PLAIN, "s", 80, r#"no service port 80 found for service "s""#),
            (PLAIN, "t", 443, r#"service "t" not found"#),
            (headless, "s", 443, r#"cannot route to service with ClusterIP "None""#),
            (
                "spec: {type: ClusterIP}",
                "s",
                443,
                r#"cannot route to service with ClusterIP "None""#,
            ),
            (external, "s", 8443, "a.b 8443"),
            (load_balancer, "s", 443, "::1 443"),
            ("spec: {type: New}", "s", 443, r#"unsupported service type "New""#),
        ];
        for (service, name, port, expected) in cases {
            assert_eq!(resolved(&ClusterIp(One(service, "[]")), name, port).await, expected);
        }
    }

    #[tokio::test]
    async fn a_ready_endpoint_is_dialed_on_its_own_port() {
        let none = r#"no endpoints available for service "s""#;
        let headless = "spec: {type: ClusterIP, clusterIP: None, ipFamilies: [IPv6], ports: [{port: 443, name: https}]}";
        let cases = [
            (PLAIN, "[]", 443, none),
            (PLAIN, "[]", 80, r#"no service port 80 found for service "s""#),
            (
                PLAIN,
                "[{ports: [{name: https, port: 8443}], endpoints: [{addresses: [10.1.0.1]}]}]",
                443,
                "10.1.0.1 8443",
            ),
            (
                PLAIN,
                "[{ports: [{name: http, port: 80}], endpoints: [{addresses: [10.1.0.1]}]}]",
                443,
                none,
            ),
            (
                PLAIN,
                "[{ports: [{name: https, port: 8443}], endpoints: [
                    {addresses: [10.1.0.1], conditions: {ready: false}},
                    {addresses: [10.1.0.2, 10.1.0.3], conditions: {ready: true}}]}]",
                443,
                "10.1.0.2 8443",
            ),
            // A headless Service has endpoints as well; its first family is preferred.
            (
                headless,
                "[{addressType: IPv4, ports: [{name: https, port: 1}], endpoints: [{addresses: [10.1.0.1]}]},
                  {addressType: IPv6, ports: [{name: https, port: 1}], endpoints: [{addresses: ['::2']}]}]",
                443,
                "::2 1",
            ),
            (
                "spec: {type: ExternalName, externalName: a.b}",
                "[]",
                443,
                r#"unsupported service type "ExternalName""#,
            ),
        ];
        for (service, slices, port, expected) in cases {
            let resolver = Endpoints { lookup: One(service, slices), pick: |_| 0 };
            assert_eq!(resolved(&resolver, "s", port).await, expected);
        }
        let two =
            "[{ports: [{name: https, port: 1}], endpoints: [{addresses: [a]}, {addresses: [b]}]}]";
        let last = Endpoints { lookup: One(PLAIN, two), pick: |bound| bound - 1 };
        assert_eq!(resolved(&last, "s", 443).await, "b 1");
        let random = Endpoints::new(One(PLAIN, two));
        assert!(["a 1", "b 1"].contains(&resolved(&random, "s", 443).await.as_str()));
    }

    #[tokio::test]
    async fn the_api_server_itself_is_called_on_this_host() {
        let host = HostPort { host: "127.0.0.1".into(), port: 6443 };
        let resolver = Loopback { host, otherwise: Arc::new(ClusterIp(One(PLAIN, "[]"))) };
        let cases = [
            ("default", "kubernetes", 443, "127.0.0.1:6443"),
            ("default", "kubernetes", 80, r#"service "kubernetes" not found"#),
            ("default", "s", 443, "10.0.0.1:443"),
        ];
        for (namespace, name, port, expected) in cases {
            let found = resolver.resolve(namespace, name, port).await;
            let found = match found {
                Ok(HostPort { host, port }) => format!("{host}:{port}"),
                Err(error) => error.to_string(),
            };
            assert_eq!(found, expected);
        }
    }
}
