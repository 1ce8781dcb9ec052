//! The audit of a request, from the policy to its last event.
//!
//! [`begin`] asks the policy and makes the first event; the handling of the request adds to
//! [`AuditRecord`]; [`finish`] makes the events of the response. What streams ends with an event when
//! the last byte is sent, by a guard in the body.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Instant, SystemTime},
};

use audit::{
    Auditor, Event, ObjectReference, RequestPolicy, ResponseStatus, Stage, StageSet, source_ips,
    user_agent,
};
use http::{HeaderMap, Request, Response, StatusCode, Uri, header::USER_AGENT};
use http_body::Body as _;
use meta::{
    AuditAnnotations, AuditLevel, AuditRecord, LatencyLayer, Status, User,
    time::{Duration, Time},
};

use crate::{Body, Context};

/// What is known about the audit of a request. The user and the request's attributes are in its [`Context`].
#[derive(Default)]
pub struct RequestAudit {
    /// `Audit-Id`: given by the client or made here, sent back on every answer.
    pub id: String,
    /// What the handling of the request adds.
    pub record: Arc<AuditRecord>,
    /// None: not audited.
    in_progress: Option<Box<InProgress>>,
}

/// An event between its first and its last stage.
struct InProgress {
    auditor: Arc<Auditor>,
    record: Arc<AuditRecord>,
    event: Event,
    omit_stages: StageSet,
    received: Instant,
    /// When the response began to be sent.
    sending: Option<Instant>,
    /// The request was refused before its user was known; there is one event about that.
    refused: bool,
    /// The last event has been made.
    done: bool,
}

/// How a request ended.
pub(crate) enum Outcome {
    /// The status of a failure, if the response is a `Status`.
    Answered(Option<Status>),
    Panicked(String),
}

impl RequestAudit {
    pub(crate) fn new(id: String, auditor: Option<&Arc<Auditor>>) -> Self {
        let record = match auditor {
            None => Arc::default(),
            // Authentication may annotate before the policy is asked.
            Some(_) => {
                let annotations = AuditAnnotations::recorded();
                Arc::new(AuditRecord::new(AuditLevel::None, false, annotations))
            }
        };
        Self { id, record, in_progress: None }
    }

    /// Applies what the policy says; true: the request is audited.
    fn apply(&mut self, policy: RequestPolicy) -> bool {
        let annotations = match policy.level {
            AuditLevel::None => AuditAnnotations::default(),
            _ => {
                let recorded = AuditAnnotations::recorded();
                for (key, value) in self.record.annotations.take() {
                    recorded.add(key, value);
                }
                recorded
            }
        };
        let record = AuditRecord::new(policy.level, policy.omit_managed_fields, annotations);
        self.record = Arc::new(record);
        policy.level > AuditLevel::None
    }

    /// The request acts as another user from now on.
    pub(crate) fn impersonated(&mut self, user: &User, constraint: &str) {
        if let Some(in_progress) = &mut self.in_progress {
            in_progress.event.impersonated_user = Some(user.clone());
            in_progress.event.impersonation_constraint = constraint.into();
        }
    }
}

/// Asks the policy and makes the first event. False: it could not be stored, and the request has to
/// fail (mode blocking-strict).
pub(crate) async fn begin<B>(
    auditor: Option<&Arc<Auditor>>,
    cx: &mut Context,
    request: &Request<B>,
) -> bool {
    let Some(auditor) = auditor else { return true };
    let policy = auditor.evaluate(Some(&cx.user), &cx.info);
    if !cx.audit.apply(policy) {
        return true;
    }
    let mut begun = InProgress::new(auditor, cx, request, policy, cx.user.clone());
    let stored = begun.process(Stage::RequestReceived, cx.deadline).await;
    if stored {
        cx.audit.in_progress = Some(begun);
    } else {
        auditor.metrics.rejected.inc();
        begun.done = true;
    }
    stored
}

/// The same for a request that is refused before its user is known. Compat: kube-apiserver makes one
/// event, at stage ResponseStarted, without a user.
pub(crate) fn refused<B>(auditor: Option<&Arc<Auditor>>, cx: &mut Context, request: &Request<B>) {
    let Some(auditor) = auditor else { return };
    let policy = auditor.evaluate(None, &cx.info);
    if cx.audit.apply(policy) {
        let mut begun = InProgress::new(auditor, cx, request, policy, User::default());
        begun.refused = true;
        cx.audit.in_progress = Some(begun);
    }
}

/// Makes the events of a response that is about to be sent. Where the body is a stream, its end makes
/// the last one.
///
/// Invariant: called before the guards that shutdown waits for are in the body. They are dropped in
/// order, and the audit backends are flushed after them.
pub(crate) async fn finish(cx: &mut Context, response: &mut Response<Body>, outcome: Outcome) {
    let Some(mut ending) = cx.audit.in_progress.take() else { return };
    let code = response.status();
    let deadline = cx.deadline;
    let streams = match outcome {
        Outcome::Panicked(why) => {
            ending.set_status(ResponseStatus {
                status: "Failure".into(),
                message: format!("APIServer panic'd: {why}"),
                reason: "InternalError".to_owned(),
                code: code.as_u16(),
                details: None,
            });
            ending.process(Stage::Panic, deadline).await;
            false
        }
        Outcome::Answered(failure) => {
            ending.answered(code, failure);
            if ending.refused || cx.info.is_long_running() {
                ending.process(Stage::ResponseStarted, deadline).await;
            }
            let whole = response.body().as_bytes().is_some()
                || (response.body().is_end_stream() && code != StatusCode::SWITCHING_PROTOCOLS);
            if whole && !ending.refused {
                ending.annotate_latencies();
                ending.process(Stage::ResponseComplete, deadline).await;
            }
            !whole
        }
    };
    ending.done = !streams || ending.refused;
    ending.sending = Some(Instant::now());
    if streams {
        response.body_mut().hold(ending);
    }
}

impl InProgress {
    fn new<B>(
        auditor: &Arc<Auditor>,
        cx: &Context,
        request: &Request<B>,
        policy: RequestPolicy,
        user: User,
    ) -> Box<Self> {
        let age = Duration { nanos: i64::try_from(cx.received.elapsed().as_nanos()).unwrap_or(0) };
        let now = Time::from(SystemTime::now());
        let headers = request.headers();
        let request_received = now.plus(Duration { nanos: -age.nanos });
        let event = Event {
            level: policy.level,
            audit_id: cx.audit.id.clone(),
            stage: Stage::RequestReceived,
            request_uri: request_uri(request.uri()),
            verb: cx.info.verb.clone(),
            user,
            impersonated_user: None,
            impersonation_constraint: meta::Str::default(),
            source_ips: source_ips(
                text(headers, "x-forwarded-for"),
                text(headers, "x-real-ip"),
                Some(cx.peer.address.ip()),
            ),
            user_agent: headers
                .get(USER_AGENT)
                .map(|agent| user_agent(agent.as_bytes()))
                .unwrap_or_default(),
            object_ref: ObjectReference::of(&cx.info),
            response_status: None,
            request_object: None,
            response_object: None,
            request_received,
            stage_time: request_received,
            annotations: BTreeMap::new(),
        };
        Box::new(Self {
            auditor: auditor.clone(),
            record: cx.audit.record.clone(),
            event,
            omit_stages: policy.omit_stages,
            received: cx.received,
            sending: None,
            refused: false,
            done: false,
        })
    }

    /// Makes an event unless the policy omits the stage. Waits for backends that requests have to
    /// wait for, but not beyond the request's deadline; then they get it in the background. False:
    /// it could not be stored.
    async fn process(&mut self, stage: Stage, deadline: Option<tokio::time::Instant>) -> bool {
        if !self.enter(stage) {
            return true;
        }
        self.auditor.process(&self.event).stored_by(deadline).await
    }

    /// The same without waiting.
    fn process_in_background(&mut self, stage: Stage) {
        if self.enter(stage) {
            self.auditor.process(&self.event).detach();
        }
    }

    fn enter(&mut self, stage: Stage) -> bool {
        if self.omit_stages.contains(stage) {
            return false;
        }
        self.event.stage = stage;
        if stage != Stage::RequestReceived {
            self.event.stage_time = Time::now();
            self.absorb();
        }
        true
    }

    /// Takes over what the handling of the request has recorded.
    fn absorb(&mut self) {
        let content = self.record.take_content();
        if let Some(object) = &mut self.event.object_ref {
            object.complete(&content.object);
        }
        if content.request_object.is_some() {
            self.event.request_object = content.request_object;
        }
        if content.response_object.is_some() {
            self.event.response_object = content.response_object;
        }
        if let Some(status) = content.response_status {
            let code = self.event.response_status.as_ref().map_or(status.code, |given| given.code);
            self.event.response_status =
                Some(ResponseStatus { code, ..ResponseStatus::from(status) });
        }
        self.event.annotations.append(&mut self.record.annotations.take());
    }

    fn answered(&mut self, code: StatusCode, failure: Option<Status>) {
        let Some(status) = failure else {
            self.set_status(ResponseStatus::code(code.as_u16()));
            return;
        };
        if self.event.level == AuditLevel::RequestResponse {
            self.record.response_object(status.to_json());
        }
        self.set_status(ResponseStatus { code: code.as_u16(), ..ResponseStatus::from(status) });
    }

    fn set_status(&mut self, status: ResponseStatus) {
        self.event.response_status = Some(status);
    }

    fn annotate_latencies(&self) {
        if let Some(sending) = self.sending {
            self.record.track(LatencyLayer::ResponseWrite, sending.elapsed());
        }
        self.record.annotate_latencies(self.received.elapsed());
    }
}

impl Drop for InProgress {
    /// The last event of a response that was streamed, or of a request whose client went away.
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if self.event.response_status.is_none() {
            // Compat: kube-apiserver's words for a handler that ends without a response.
            self.set_status(ResponseStatus {
                status: "Success".into(),
                message: "Connection closed early".to_owned(),
                ..ResponseStatus::code(200)
            });
        }
        self.annotate_latencies();
        self.process_in_background(Stage::ResponseComplete);
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Path and query as they were sent, but for a token: some clients put theirs there.
pub(crate) fn request_uri(uri: &Uri) -> String {
    let whole = uri.path_and_query().map_or_else(|| uri.path(), |whole| whole.as_str());
    let Some(query) = uri.query().filter(|query| query.contains(TOKEN)) else {
        return whole.to_owned();
    };
    let parameters = query.split('&').map(|parameter| match parameter.strip_prefix(TOKEN) {
        Some(_) => format!("{TOKEN}REDACTED"),
        None => parameter.to_owned(),
    });
    format!("{}?{}", uri.path(), parameters.collect::<Vec<_>>().join("&"))
}

const TOKEN: &str = "access_token=";
