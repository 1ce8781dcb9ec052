//! Sends requests: finds or opens a connection, and knows when a request may be sent again.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{Method, Request, Response, header::UPGRADE};
use http_body::Body as _;
use tokio::{sync::Notify, time::Instant};
use trace::{Kind, Span};

use crate::{
    Body, Config,
    connection::{self, Sender},
    credentials::Authorization,
    deadline::Deadline,
    dial::Dial,
    empty_body,
    error::{ConfigError, Error, Phase},
    limits::Limits,
    origin::{HostPort, Origin},
    pool::{Key, Permit, Pool},
    response_body::ResponseBody,
    tls::{TlsConfig, TlsConfigs},
};

/// Makes calls with the settings it was built from. Clones share connections; the last one that is
/// dropped closes those that are idle.
#[derive(Clone)]
pub struct Client {
    transport: Arc<Transport>,
}

struct Transport {
    tls: TlsConfigs,
    server_name: Option<String>,
    authorization: Authorization,
    dial: Arc<dyn Dial>,
    limits: Limits,
    pool: Arc<Pool>,
}

/// What a request needs beside itself.
#[derive(Clone, Debug, Default)]
pub struct SendOptions {
    /// What to connect to instead of the URL's host: the address behind a service.
    pub connect_to: Option<HostPort>,
    /// On a connection of its own, which is never used for another request, as every request with an
    /// `Upgrade` header is: after it a connection may not be what it seems.
    pub dedicated: bool,
    /// Until the head of the response is there. None: the caller ends the call by dropping it.
    pub deadline: Option<Instant>,
}

impl Client {
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let Config { tls, credentials, dial, limits } = config;
        let server_name = tls.server_name.clone();
        let tls = TlsConfigs::new(tls)?;
        let authorization = Authorization::new(credentials)?;
        let pool = Pool::new(limits);
        let transport = Transport { tls, server_name, authorization, dial, limits, pool };
        Ok(Self { transport: Arc::new(transport) })
    }

    /// Sends a request and returns as soon as the head of the response is there; the body is read by
    /// the caller, at the caller's pace. Redirects are responses like any other. A request with an
    /// `Upgrade` header goes over HTTP/1.1, and `hyper::upgrade::on` takes over its connection.
    ///
    /// Dropping the future, or the body before its end, closes the connection (HTTP/1.1) or resets the
    /// stream (HTTP/2).
    pub fn send(
        &self,
        request: Request<Body>,
        options: SendOptions,
    ) -> Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Error>> + Send + '_>> {
        // Boxed, so that hyper's client is compiled into this crate and not into every one that sends.
        Box::pin(self.transport.send(request, options))
    }
}

/// May the pool serve a request?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reuse {
    Allowed,
    /// The last connection from there has failed.
    Never,
}

/// A connection for one request.
struct Checkout {
    sender: Sender,
    /// None: the connection is shared.
    permit: Option<Permit>,
    reused: bool,
}

impl Transport {
    /// The receiver learns which span it is called from.
    async fn send(
        &self,
        mut request: Request<Body>,
        options: SendOptions,
    ) -> Result<Response<ResponseBody>, Error> {
        let mut span = call_span(&request);
        span.run(async { trace::inject(request.headers_mut()) }).await;
        let answered = span.run(self.send_in_span(request, options)).await;
        match &answered {
            Ok(response) => {
                span.attribute("http.response.status_code", i64::from(response.status().as_u16()));
                // Compat: a client's span is an error from 400 on.
                if response.status().as_u16() >= 400 {
                    span.error("");
                }
            }
            Err(error) if span.is_recorded() => span.error(error.to_string()),
            Err(_) => {}
        }
        answered
    }

    /// A request is sent a second time, over a new connection, if the first was a kept one that turned
    /// out to be dead and either
    ///
    /// - hyper hands the request back, because nothing of it was written; or
    /// - the connection was lost before a response came, and the request is idempotent without a body.
    ///
    /// Anything else may have been acted on by the server, and is never repeated here. These are the
    /// rules of Go's transport.
    async fn send_in_span(
        &self,
        mut request: Request<Body>,
        options: SendOptions,
    ) -> Result<Response<ResponseBody>, Error> {
        let deadline = Deadline(options.deadline);
        let origin = Origin::new(request.uri(), options.connect_to, self.server_name.as_deref())?;
        let (tls_generation, tls) = self.tls.current();
        let key = Key {
            dial: origin.dial.clone(),
            server_name: origin.server_name.as_ref().map(|name| name.to_str().into_owned()),
            http1_only: request.headers().contains_key(UPGRADE),
            tls_generation,
        };
        self.authorization.apply(request.headers_mut());
        let replay = Replay::of(&request);

        if options.dedicated || key.http1_only {
            // It may last for days, so that waiting for another one to end would be in vain.
            let permit = self.pool.try_permit(&key);
            let permit = permit.ok_or_else(|| Error::TooManyUpgrades {
                host: format!("{}:{}", key.dial.host, key.dial.port),
                connections_max: self.limits.connections_per_host_max,
            })?;
            let sender = self.open(&key, &tls, &origin, deadline, Some(permit)).await?;
            let only = Checkout { sender, permit: None, reused: false };
            let answered = self.exchange(only, request, &key, &origin, deadline).await?;
            return answered.map_err(|failure| self.http_error(failure.error));
        }
        let first = self.connection(&key, &tls, &origin, Reuse::Allowed, deadline).await?;
        let reused = first.reused;
        let failure = match self.exchange(first, request, &key, &origin, deadline).await? {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        let again = failure.unsent.or_else(|| replay.request().filter(|_| failure.connection_lost));
        let Some(request) = again.filter(|_| reused) else {
            return Err(self.http_error(failure.error));
        };
        let second = self.connection(&key, &tls, &origin, Reuse::Never, deadline).await?;
        let answered = self.exchange(second, request, &key, &origin, deadline).await?;
        answered.map_err(|failure| self.http_error(failure.error))
    }

    async fn connection(
        &self,
        key: &Key,
        tls: &TlsConfig,
        origin: &Origin,
        reuse: Reuse,
        deadline: Deadline,
    ) -> Result<Checkout, Error> {
        let may_reuse = reuse == Reuse::Allowed;
        if may_reuse && let Some(sender) = self.pool.shared(key) {
            return Ok(Checkout { sender, permit: None, reused: true });
        }
        let permit = deadline.bound(Phase::WaitingForConnection, self.pool.permit(key)).await?;
        // Calls that waited for the permit may have left a connection.
        if may_reuse && let Some(sender) = self.pool.take(key) {
            let permit = matches!(sender, Sender::Http1(_)).then_some(permit);
            return Ok(Checkout { sender, permit, reused: true });
        }
        let opened = self.open(key, tls, origin, deadline, None).await?;
        Ok(match opened {
            Sender::Http1(_) => Checkout { sender: opened, permit: Some(permit), reused: false },
            Sender::Http2(new) => {
                let sender = Sender::Http2(self.pool.share(key, new, !may_reuse));
                Checkout { sender, permit: None, reused: false }
            }
        })
    }

    async fn open(
        &self,
        key: &Key,
        tls: &TlsConfig,
        origin: &Origin,
        deadline: Deadline,
        permit: Option<Permit>,
    ) -> Result<Sender, Error> {
        let tls = if key.http1_only { &tls.http1 } else { &tls.any };
        connection::open(&*self.dial, tls, origin, &self.limits, deadline, permit).await
    }

    /// The outer error is the deadline's, after which nothing is tried again.
    async fn exchange(
        &self,
        connection: Checkout,
        mut request: Request<Body>,
        key: &Key,
        origin: &Origin,
        deadline: Deadline,
    ) -> Result<Result<Response<ResponseBody>, connection::Failure>, Error> {
        let Checkout { mut sender, permit, .. } = connection;
        let informational = InformationalResponses::of(&mut request);
        let answer = async {
            tokio::select! {
                answer = sender.send(request, origin) => Ok(answer),
                () = informational.too_many() => Err(Error::TooManyInformationalResponses),
            }
        };
        let answer = deadline.bound(Phase::WaitingForResponse, answer).await??;
        let stream = match (sender, permit) {
            (Sender::Http1(sender), Some(permit)) if answer.is_ok() => {
                self.pool.keep_when_ready(key.clone(), sender, permit);
                None
            }
            (Sender::Http1(_), _) => None,
            (Sender::Http2(sender), _) => Some(sender.stream()),
        };
        Ok(answer.map(|response| response.map(|body| ResponseBody::new(body, stream))))
    }

    fn http_error(&self, error: hyper::Error) -> Error {
        if error.is_parse_too_large() {
            let bytes_max = self.limits.response_header_bytes_max;
            return Error::ResponseHeadersTooLarge { bytes_max };
        }
        Error::Http(error)
    }
}

/// Responses 100 to 199 that precede the response over HTTP/1.1. Each takes its turn in the connection's buffer, so
/// that the bound on a head does not hold them. Over HTTP/2 [`crate::frame_budget`] holds them.
struct InformationalResponses(Arc<Notify>);

/// More fail the call. Compat: Go's transport gives up after as many bytes as a head may have.
pub(crate) const INFORMATIONAL_RESPONSES_MAX: usize = 64;

impl InformationalResponses {
    fn of(request: &mut Request<Body>) -> Self {
        let too_many = Arc::new(Notify::new());
        let (count, notify) = (AtomicUsize::new(0), too_many.clone());
        hyper::ext::on_informational(request, move |_| {
            if count.fetch_add(1, Ordering::Relaxed) == INFORMATIONAL_RESPONSES_MAX {
                notify.notify_one();
            }
        });
        Self(too_many)
    }

    async fn too_many(&self) {
        self.0.notified().await;
    }
}

/// Without the query, which may hold secrets.
fn call_span(request: &Request<Body>) -> Span {
    let method = request.method().as_str();
    let mut span = trace::start_kind(
        Kind::Client,
        match *request.method() {
            Method::GET => "HTTP GET",
            Method::POST => "HTTP POST",
            _ => "HTTP",
        },
    );
    if span.is_recorded() {
        let uri = request.uri();
        span.attribute("http.request.method", method);
        let (scheme, host) = (uri.scheme_str().unwrap_or("https"), uri.host().unwrap_or_default());
        span.attribute(
            "url.full",
            match uri.port_u16() {
                Some(port) => format!("{scheme}://{host}:{port}{}", uri.path()),
                None => format!("{scheme}://{host}{}", uri.path()),
            },
        );
        span.attribute("server.address", host);
        if let Some(port) = uri.port_u16() {
            span.attribute("server.port", i64::from(port));
        }
    }
    span
}

/// A request that can be made again.
struct Replay(Option<http::request::Parts>);

impl Replay {
    fn of(request: &Request<Body>) -> Self {
        let idempotent = matches!(
            *request.method(),
            Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE
        );
        if !idempotent || !request.body().is_end_stream() {
            return Self(None);
        }
        let mut copy = Request::new(());
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        Self(Some(copy.into_parts().0))
    }

    fn request(self) -> Option<Request<Body>> {
        Some(Request::from_parts(self.0?, empty_body()))
    }
}
