//! The bounds of a client.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// HTTP/1.1 connections to one host that are open at a time, in use or not. A call that needs one
    /// more waits for its turn, within its deadline. HTTP/2 needs one connection; only calls that find
    /// none yet open more at a time, and all but one of those are closed.
    ///
    /// As many connections again may be upgraded, and count until they are closed. A request for one
    /// more fails at once.
    pub connections_per_host_max: usize,
    /// Calls that share an HTTP/2 connection at a time; the next one opens another connection. Servers
    /// allow 100 or more, and calls beyond what they allow would wait for those before them: behind
    /// watches, for ever.
    pub streams_per_connection_max: usize,
    /// Connections to one host that are kept for the next call; more are closed when their call is over.
    pub idle_connections_per_host_max: usize,
    /// A connection that no call has used for this long is closed.
    pub idle_timeout: Duration,
    /// The head of a response; a larger one fails the call.
    pub response_header_bytes_max: usize,
    /// The number of headers of an HTTP/1.1 response; more fail the call.
    pub response_headers_max: usize,
}

impl Limits {
    /// For a proxy, whose calls include watches that each keep an HTTP/1.1 connection.
    pub fn for_proxy() -> Self {
        Self { connections_per_host_max: 4096, ..Self::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // kube-apiserver has no bound; a webhook that hangs would then take a file descriptor for
            // every request that waits for it.
            connections_per_host_max: 64,
            streams_per_connection_max: 100,
            // Compat: client-go's.
            idle_connections_per_host_max: 25,
            idle_timeout: Duration::from_secs(90),
            response_header_bytes_max: 256 * 1024,
            response_headers_max: 256,
        }
    }
}
