//! The servers behind the chain: aggregator, built-in resources, custom resources, 404. A request finds
//! its owner with one look-up in a table that is replaced whole and never locked by a request.

use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc};

use arc_swap::ArcSwap;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use meta::{ApiError, GroupVersion, RequestInfo};
use parking_lot::Mutex;

use crate::{Body, context::Context};

/// One of the servers. It answers whatever the table sends to it, if only with a 404.
pub trait Delegate: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    fn serve<'a>(&'a self, cx: &'a mut Context, request: Request<Incoming>) -> Serving<'a>;

    /// Whether it has this resource with this verb and subresource. Only then are they labels of
    /// metrics: names that clients make up would fill the memory.
    fn serves(&self, _info: &RequestInfo) -> bool {
        false
    }
}

/// Answers what other API servers of the cluster have and this one has not.
pub trait PeerProxy: Delegate {
    /// Whether a request goes to a peer.
    fn claims(&self, info: &RequestInfo, headers: &HeaderMap) -> bool;
}

pub type Serving<'a> = Pin<Box<dyn Future<Output = Result<Response<Body>, ApiError>> + Send + 'a>>;

/// Which server answers which request. Where two servers claim the same, the one that comes first in
/// the order of delegation gets it.
pub struct Delegates {
    /// In the order of delegation.
    claims: Mutex<Vec<(Arc<dyn Delegate>, Claims)>>,
    table: ArcSwap<Table>,
    /// Answers what no server claims.
    not_found: Arc<dyn Delegate>,
}

/// What a server answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Requests for resources of these.
    pub group_versions: Vec<GroupVersion>,
    /// Paths that are no resources: `/version`, or `/openapi/*` for all that begins like it.
    pub paths: Vec<&'static str>,
}

#[derive(Default)]
struct Table {
    group_versions: HashMap<GroupVersion, Arc<dyn Delegate>>,
    paths: HashMap<&'static str, Arc<dyn Delegate>>,
    /// The longest first.
    prefixes: Vec<(&'static str, Arc<dyn Delegate>)>,
}

impl Delegates {
    /// `servers` in the order of delegation.
    pub fn new(
        servers: Vec<(Arc<dyn Delegate>, Claims)>,
        not_found: Arc<dyn Delegate>,
    ) -> Arc<Self> {
        let table = ArcSwap::from_pointee(Table::new(&servers));
        Arc::new(Self { claims: Mutex::new(servers), table, not_found })
    }

    /// From now on the server of this name answers these group-versions.
    pub fn replace_group_versions(&self, name: &str, mut group_versions: Vec<GroupVersion>) {
        group_versions.sort();
        let mut servers = self.claims.lock();
        let Some((_, claims)) = servers.iter_mut().find(|(server, _)| server.name() == name) else {
            return;
        };
        if claims.group_versions == group_versions {
            return;
        }
        claims.group_versions = group_versions;
        // Under the lock: two changes at once must not leave the older table behind.
        self.table.store(Arc::new(Table::new(&servers)));
    }

    /// The server that answers a request.
    pub(crate) fn find(&self, info: &RequestInfo) -> Arc<dyn Delegate> {
        self.table.load().find(info).unwrap_or(&self.not_found).clone()
    }
}

impl Table {
    fn new(servers: &[(Arc<dyn Delegate>, Claims)]) -> Self {
        let mut table = Self::default();
        for (server, claims) in servers {
            for group_version in &claims.group_versions {
                let entry = table.group_versions.entry(group_version.clone());
                entry.or_insert_with(|| server.clone());
            }
            for path in &claims.paths {
                match path.strip_suffix('*') {
                    Some(prefix) => table.prefixes.push((prefix, server.clone())),
                    None => drop(table.paths.entry(path).or_insert_with(|| server.clone())),
                }
            }
        }
        // Stable: of equal prefixes that of the earlier server stays first.
        table.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        table
    }

    fn find(&self, info: &RequestInfo) -> Option<&Arc<dyn Delegate>> {
        if info.is_resource {
            let (group, version) = (info.group.clone(), info.version.clone());
            return self.group_versions.get(&GroupVersion { group, version });
        }
        let path = info.path.as_str();
        self.paths.get(path).or_else(|| {
            let mut prefixes = self.prefixes.iter();
            prefixes.find(|(prefix, _)| path.starts_with(prefix)).map(|(_, server)| server)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str);

    impl Delegate for Named {
        fn name(&self) -> &'static str {
            self.0
        }

        fn serve<'a>(&'a self, _cx: &'a mut Context, _request: Request<Incoming>) -> Serving<'a> {
            Box::pin(async { Err(ApiError::UnknownPath) })
        }
    }

    fn server(
        name: &'static str,
        group_versions: &[(&str, &str)],
        paths: &[&'static str],
    ) -> (Arc<dyn Delegate>, Claims) {
        let group_versions =
            group_versions.iter().map(|(group, version)| GroupVersion::new(group, version));
        let claims = Claims { group_versions: group_versions.collect(), paths: paths.to_vec() };
        (Arc::new(Named(name)), claims)
    }

    fn owner(delegates: &Delegates, what: &str) -> &'static str {
        let info = match what.strip_prefix('/') {
            Some(_) => RequestInfo { path: what.to_owned(), ..RequestInfo::default() },
            None => {
                let gv = GroupVersion::parse(what).expect("a group-version");
                let (group, version) = (gv.group, gv.version);
                RequestInfo { is_resource: true, group, version, ..RequestInfo::default() }
            }
        };
        delegates.table.load().find(&info).map_or("none", |server| server.name())
    }

    #[test]
    fn a_request_is_the_first_server_s_that_claims_it() {
        let delegates = Delegates::new(
            vec![
                server("front", &[], &["/apis", "/apis/*", "/openapi/*"]),
                server("builtin", &[("", "v1"), ("apps", "v1")], &["/version", "/apis"]),
                server("custom", &[("apps", "v1"), ("x.io", "v1")], &["/openapi/v2/*"]),
            ],
            Arc::new(Named("not found")),
        );
        let cases = [
            ("v1", "builtin"),
            ("apps/v1", "builtin"),
            ("x.io/v1", "custom"),
            ("x.io/v2", "none"),
            ("/apis", "front"),
            ("/apis/x", "front"),
            ("/version", "builtin"),
            ("/version/x", "none"),
            ("/openapi/v3", "front"),
            // The longer prefix is the more exact claim.
            ("/openapi/v2/x", "custom"),
        ];
        for (what, expected) in cases {
            assert_eq!(owner(&delegates, what), expected, "{what}");
        }
        delegates.replace_group_versions("custom", vec![GroupVersion::new("x.io", "v2")]);
        let cases = [("x.io/v1", "none"), ("x.io/v2", "custom"), ("apps/v1", "builtin")];
        for (what, expected) in cases {
            assert_eq!(owner(&delegates, what), expected, "{what}");
        }
    }
}
