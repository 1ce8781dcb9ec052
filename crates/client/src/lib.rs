//! Outgoing calls over HTTP: conversion and admission webhooks, and later webhooks for
//! authentication, authorization and audit, OIDC key sets, aggregated API servers and kubelets.
//!
//! A [`Client`] is built from a [`Config`], often read from a [`Kubeconfig`], and keeps connections.
//! [`Client::call`] exchanges whole bodies within one deadline and one bound on the size;
//! [`Client::send`] leaves the body of the response to the caller, for proxies. Services are turned
//! into addresses by a [`ServiceResolver`].
//!
//! # Why an own pool
//!
//! Connections are hyper's own (`hyper::client::conn`); the pool around them is ours and not
//! `hyper_util::client::legacy`, for four reasons:
//!
//! - its pool bounds idle connections, and not connections: a webhook that hangs would take a file
//!   descriptor for each request that waits for it;
//! - it finds connections by the URL, whereas here the address to dial, the name that the certificate
//!   must have and the certificates themselves, which change with their files, differ from the URL;
//! - it does not tell whether a failed request went over a kept connection, without which an idempotent
//!   request cannot be repeated safely; and it repeats nothing that was written, so a GET that meets the
//!   server's closing of an idle connection fails;
//! - its errors hide the connector's behind a box.
//!
//! reqwest stands on the same client, and brings its own TLS and URL types on top.

mod call;
mod certificate_metrics;
mod clean_path;
mod connection;
mod counted_stream;
mod credentials;
mod deadline;
mod dial;
mod error;
mod frame_budget;
mod go_text;
mod kubeconfig;
mod limits;
mod metrics;
mod origin;
mod pool;
mod reload;
mod response;
mod response_body;
mod secret;
mod service_resolver;
mod system_roots;
mod tls;
mod tls_streams;
mod transport;
mod verifier;

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full, combinators::UnsyncBoxBody};

pub use self::{
    call::Call,
    certificate_metrics::CertificateMetrics,
    clean_path::clean_path,
    credentials::Credentials,
    dial::{Dial, Stream, TcpDial, WebhookDials},
    error::{ConfigError, DialError, Error, PemOrigin, Phase, UrlProblem},
    go_text::{go_text, url_error},
    kubeconfig::{Kubeconfig, KubeconfigError, KubeconfigProblem, KubeconfigUser, KubeconfigUsers},
    limits::Limits,
    metrics::register_metrics,
    origin::HostPort,
    response::{ResponseError, generic_message, successful_body},
    response_body::ResponseBody,
    secret::Secret,
    service_resolver::{
        ClusterIp, Endpoints, LookupError, Loopback, ResolveError, ServiceLookup, ServiceResolver,
    },
    tls::{Identity, Pem, Tls, Trust},
    tls_streams::TlsStreams,
    transport::{Client, SendOptions},
};

/// Everything that a client is built from.
#[derive(Clone)]
pub struct Config {
    pub tls: Tls,
    pub credentials: Credentials,
    pub dial: Arc<dyn Dial>,
    pub limits: Limits,
}

impl Default for Config {
    /// Trusts the host's roots, and sends no credentials.
    fn default() -> Self {
        Self {
            tls: Tls::default(),
            credentials: Credentials::None,
            dial: Arc::new(TcpDial::default()),
            limits: Limits::default(),
        }
    }
}

/// The body of a request: in one piece, or a stream.
pub type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

pub fn empty_body() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub fn full_body(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

pub use meta::BoxFuture;
