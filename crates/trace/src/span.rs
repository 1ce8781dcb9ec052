//! Spans: started, described, finished.

use std::{
    borrow::Cow,
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use crate::{
    context::{Sampler, SpanContext, SpanId, random_id},
    current::{Current, InScope, Scope, current},
    propagation::Propagated,
};

/// Takes finished spans. It must return at once, whatever becomes of the span.
pub trait SpanSink: Send + Sync {
    fn finished(&self, span: FinishedSpan);
}

/// Decides which requests are traced, and knows where their spans go.
#[derive(Clone)]
pub struct Tracer {
    pub sampler: Sampler,
    pub sink: Arc<dyn SpanSink>,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("sampler", &self.sampler).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Internal,
    /// A request that is served.
    Server,
    /// A call to another server.
    Client,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    Text(String),
    Int(i64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(cut(text).to_owned())
    }
}

impl From<String> for Attribute {
    fn from(mut text: String) -> Self {
        text.truncate(cut(&text).len());
        Self::Text(text)
    }
}

impl From<i64> for Attribute {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

/// URLs and user agents are made by clients.
const TEXT_BYTES_MAX: usize = 1024;
/// Further ones are dropped, and counted.
const EVENTS_MAX: usize = 128;

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub time: SystemTime,
    pub name: &'static str,
    pub attributes: Vec<(&'static str, Attribute)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    #[default]
    Unset,
    Error(String),
}

/// Another trace that has to do with this one.
pub type Link = SpanContext;

/// A span with its end.
#[derive(Clone, Debug)]
pub struct FinishedSpan {
    pub name: Cow<'static, str>,
    pub kind: Kind,
    pub context: SpanContext,
    pub parent: Option<SpanId>,
    pub started: SystemTime,
    pub duration: Duration,
    pub attributes: Vec<(&'static str, Attribute)>,
    pub events: Vec<Event>,
    pub dropped_events: u32,
    pub link: Option<Link>,
    pub status: Status,
}

/// A span under way; it ends when it is dropped. One that is not recorded costs nothing.
#[derive(Debug, Default)]
pub struct Span {
    current: Option<Arc<Current>>,
    recorded: Option<Box<Recorded>>,
}

#[derive(Debug)]
struct Recorded {
    span: FinishedSpan,
    began: Instant,
}

impl Span {
    /// The span of a request that has just been authenticated.
    ///
    /// A request of a trusted client belongs to the trace that it came with, and is recorded if its sender
    /// records it. Any other request begins a trace of its own, and its headers are ignored: any client
    /// could have everything recorded otherwise. Without a tracer the context of a trusted client is passed on.
    pub fn of_request(
        tracer: Option<&Tracer>,
        propagated: Option<Propagated>,
        trusted: bool,
        began: Instant,
        name: impl FnOnce() -> String,
    ) -> Self {
        let (parent, link) = if trusted { (propagated, None) } else { (None, propagated) };
        let Some(tracer) = tracer else {
            let current = parent.map(|Propagated { context, baggage }| {
                Arc::new(Current { tracer: None, context, baggage })
            });
            return Self { current, recorded: None };
        };
        if parent.is_none() && tracer.sampler.is_never() {
            return Self::default();
        }
        let Some(span_id) = random_id() else { return Self::default() };
        let (parent_id, baggage, context) = match parent {
            Some(Propagated { context, baggage }) => {
                (Some(context.span_id), baggage, SpanContext { span_id, ..context })
            }
            None => {
                let Some(trace_id) = random_id() else { return Self::default() };
                let sampled = tracer.sampler.samples(&trace_id);
                (None, None, SpanContext { trace_id, span_id, sampled, trace_state: None })
            }
        };
        let current =
            Arc::new(Current { tracer: Some(tracer.clone()), context: context.clone(), baggage });
        let recorded = context.sampled.then(|| {
            let mut recorded =
                Recorded::new(name().into(), Kind::Server, context, parent_id, began);
            recorded.span.link = link.map(|link| link.context);
            Box::new(recorded)
        });
        Self { current: Some(current), recorded }
    }

    /// Whether the span is recorded; attributes of any other span need not be made.
    pub fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    pub fn attribute(&mut self, key: &'static str, value: impl Into<Attribute>) {
        if let Some(recorded) = &mut self.recorded {
            recorded.span.attributes.push((key, value.into()));
        }
    }

    /// Something that happened at a point in time.
    pub fn event(&mut self, name: &'static str, attributes: Vec<(&'static str, Attribute)>) {
        let Some(recorded) = &mut self.recorded else { return };
        let span = &mut recorded.span;
        if span.events.len() < EVENTS_MAX {
            span.events.push(Event { time: SystemTime::now(), name, attributes });
        } else {
            span.dropped_events += 1;
        }
    }

    pub fn error(&mut self, why: impl Into<String>) {
        if let Some(recorded) = &mut self.recorded {
            let mut why = why.into();
            why.truncate(cut(&why).len());
            recorded.span.status = Status::Error(why);
        }
    }

    /// The time that it began, where that was before it was made.
    #[must_use]
    pub fn began(mut self, began: Instant) -> Self {
        if let Some(recorded) = &mut self.recorded {
            recorded.set_began(began);
        }
        self
    }

    /// Where the children of this span are started.
    pub fn scope(&self) -> Scope {
        Scope(self.current.clone())
    }

    /// Runs a future in the span; in the outer one, where this is none.
    pub fn run<F: Future>(&self, future: F) -> InScope<F> {
        self.scope().run(future)
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let (Some(recorded), Some(current)) = (self.recorded.take(), self.current.take()) else {
            return;
        };
        let Recorded { mut span, began } = *recorded;
        span.duration = began.elapsed();
        if let Some(tracer) = &current.tracer {
            tracer.sink.finished(span);
        }
    }
}

impl Recorded {
    fn new(
        name: Cow<'static, str>,
        kind: Kind,
        context: SpanContext,
        parent: Option<SpanId>,
        began: Instant,
    ) -> Self {
        let span = FinishedSpan {
            name,
            kind,
            context,
            parent,
            started: SystemTime::UNIX_EPOCH,
            duration: Duration::ZERO,
            attributes: Vec::with_capacity(16),
            events: Vec::new(),
            dropped_events: 0,
            link: None,
            status: Status::Unset,
        };
        let mut recorded = Self { span, began };
        recorded.set_began(began);
        recorded
    }

    fn set_began(&mut self, began: Instant) {
        self.began = began;
        self.span.started = SystemTime::now() - began.elapsed();
    }
}

/// Starts a child of the current span; outside of a recorded one it is no span at all.
pub fn start(name: impl Into<Cow<'static, str>>) -> Span {
    start_kind(Kind::Internal, name)
}

pub fn start_kind(kind: Kind, name: impl Into<Cow<'static, str>>) -> Span {
    let Some(outer) = current() else { return Span::default() };
    child(&outer, kind, name.into())
}

fn child(outer: &Arc<Current>, kind: Kind, name: Cow<'static, str>) -> Span {
    if !outer.context.sampled || outer.tracer.is_none() {
        return Span::default();
    }
    let Some(span_id) = random_id() else { return Span::default() };
    let context = SpanContext { span_id, ..outer.context.clone() };
    let current = Current {
        tracer: outer.tracer.clone(),
        context: context.clone(),
        baggage: outer.baggage.clone(),
    };
    let recorded = Recorded::new(name, kind, context, Some(outer.context.span_id), Instant::now());
    Span { current: Some(Arc::new(current)), recorded: Some(Box::new(recorded)) }
}

impl Scope {
    /// Starts a child of this span.
    pub fn start(&self, name: impl Into<Cow<'static, str>>) -> Span {
        match &self.0 {
            Some(outer) => child(outer, Kind::Internal, name.into()),
            None => Span::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::{current_scope, inject};

    #[derive(Default)]
    struct Kept(Mutex<Vec<FinishedSpan>>);

    impl SpanSink for Kept {
        fn finished(&self, span: FinishedSpan) {
            self.0.lock().unwrap().push(span);
        }
    }

    fn tracer(rate: u32) -> (Arc<Kept>, Tracer) {
        let kept = Arc::new(Kept::default());
        (kept.clone(), Tracer { sampler: Sampler::per_million(rate), sink: kept })
    }

    fn propagated(flags: &str) -> Propagated {
        let mut headers = HeaderMap::new();
        let parent = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
        headers.insert("traceparent", HeaderValue::from_str(&parent).unwrap());
        headers.insert("baggage", HeaderValue::from_static("a=1"));
        Propagated::extract(&headers).unwrap()
    }

    fn request(tracer: Option<&Tracer>, flags: &str, trusted: bool) -> Span {
        let propagated = (!flags.is_empty()).then(|| propagated(flags));
        Span::of_request(tracer, propagated, trusted, Instant::now(), || "GET".to_owned())
    }

    #[test]
    fn only_trusted_clients_decide_what_is_recorded() {
        // Rate, flags of the client, whether it is trusted; recorded, in the client's trace.
        let cases = [
            (0, "", false, false, false),
            (0, "01", true, true, true),
            (0, "00", true, false, true),
            (0, "01", false, false, false),
            (1_000_000, "", true, true, false),
            (1_000_000, "00", true, false, true),
            (1_000_000, "00", false, true, false),
            (1_000_000, "01", false, true, false),
        ];
        for (rate, flags, trusted, recorded, own) in cases {
            let case = format!("{rate} {flags:?} {trusted}");
            let (kept, tracer) = tracer(rate);
            let span = request(Some(&tracer), flags, trusted);
            assert_eq!(span.is_recorded(), recorded, "{case}");
            let current = span.scope().0;
            let in_trace = current.is_some_and(|current| {
                current.context.trace_id[0] == 0x0a && current.context.trace_id[1] == 0xf7
            });
            assert_eq!(in_trace, own, "{case}");
            drop(span);
            let kept = kept.0.lock().unwrap();
            assert_eq!(kept.len(), usize::from(recorded), "{case}");
            if let Some(span) = kept.first() {
                assert_eq!(span.link.is_some(), !trusted && !flags.is_empty(), "{case}");
                assert_eq!(span.parent.is_some(), own, "{case}");
            }
        }
    }

    #[tokio::test]
    async fn children_are_started_where_a_future_runs() {
        let (kept, tracer) = tracer(0);
        assert!(!start("outside").is_recorded());
        let span = request(Some(&tracer), "01", true);
        span.run(async {
            tokio::task::yield_now().await;
            let child = start("child");
            let scope = current_scope();
            child.run(async { drop(start_kind(Kind::Client, "grandchild")) }).await;
            let elsewhere = tokio::spawn(scope.run(async { drop(start("elsewhere")) }));
            elsewhere.await.unwrap();
            let mut headers = HeaderMap::new();
            inject(&mut headers);
            assert_eq!(headers.len(), 2, "traceparent and baggage");
        })
        .await;
        assert!(!start("after").is_recorded());
        drop(span);
        let kept = kept.0.lock().unwrap();
        let names: Vec<&str> = kept.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["grandchild", "elsewhere", "child", "GET"]);
        let id = |at: usize| Some(kept[at].context.span_id);
        assert_eq!([kept[0].parent, kept[1].parent, kept[2].parent], [id(2), id(3), id(3)]);
        assert!(kept.iter().all(|span| span.context.trace_id == kept[0].context.trace_id));
    }

    #[tokio::test]
    async fn without_a_tracer_the_context_of_trusted_clients_is_passed_on() {
        for (trusted, expected) in [(true, 2), (false, 0)] {
            let span = request(None, "01", trusted);
            assert!(!span.is_recorded());
            let headers = span.run(async {
                assert!(!start("child").is_recorded());
                let mut headers = HeaderMap::new();
                inject(&mut headers);
                headers
            });
            assert_eq!(headers.await.len(), expected, "{trusted}");
        }
    }

    #[test]
    fn what_clients_make_long_is_cut() {
        let (kept, tracer) = tracer(1_000_000);
        let mut span = request(Some(&tracer), "", false);
        span.attribute("text", "é".repeat(2000));
        for _ in 0..200 {
            span.event("again", Vec::new());
        }
        drop(span);
        let kept = kept.0.lock().unwrap();
        let Attribute::Text(text) = &kept[0].attributes[0].1 else { panic!("a text") };
        assert_eq!((text.len(), kept[0].events.len(), kept[0].dropped_events), (1024, 128, 72));
    }
}
