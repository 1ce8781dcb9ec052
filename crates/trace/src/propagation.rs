//! W3C trace context and baggage, from and to the headers of HTTP and gRPC.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{context::SpanContext, current::current};

/// What a request brought with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Propagated {
    pub context: SpanContext,
    pub(crate) baggage: Option<HeaderValue>,
}

impl Propagated {
    /// None: the request is not part of a trace. Headers that are not as they should be count as
    /// none, and so does what is larger than the recommendation asks a server to take.
    pub fn extract(headers: &HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all(&TRACEPARENT).iter();
        let parent = parents.next()?;
        // Two of them are no answer to whose child the request is.
        if parents.next().is_some() {
            return None;
        }
        let mut context = SpanContext::parse(parent.to_str().ok()?)?;
        context.trace_state =
            single(headers, &TRACESTATE, TRACE_STATE_BYTES_MAX, TRACE_STATE_MEMBERS_MAX);
        let baggage = single(headers, &BAGGAGE, BAGGAGE_BYTES_MAX, BAGGAGE_MEMBERS_MAX);
        Some(Self { context, baggage })
    }
}

/// A list in one header, within its bounds.
fn single(
    headers: &HeaderMap,
    name: &HeaderName,
    bytes_max: usize,
    members_max: usize,
) -> Option<HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() || value.len() > bytes_max {
        return None;
    }
    let members = value.to_str().ok()?.split(',').count();
    (members <= members_max).then(|| value.clone())
}

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// The recommendation asks for at least this much.
const TRACE_STATE_BYTES_MAX: usize = 512;
const TRACE_STATE_MEMBERS_MAX: usize = 32;
const BAGGAGE_BYTES_MAX: usize = 8192;
const BAGGAGE_MEMBERS_MAX: usize = 64;

/// Tells the receiver of an outgoing request which span it is called from.
pub fn inject(headers: &mut HeaderMap) {
    for (name, value) in propagated_headers() {
        headers.insert(name, value);
    }
}

/// The headers of an outgoing call; none outside of a trace.
pub fn propagated_headers() -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let current = current();
    let parent = current.as_ref().and_then(|current| {
        // Digits and dashes always make a header.
        HeaderValue::from_str(&current.context.traceparent()).ok()
    });
    let state = current.as_ref().and_then(|current| current.context.trace_state.clone());
    let baggage = current.as_ref().and_then(|current| current.baggage.clone());
    [(TRACEPARENT, parent), (TRACESTATE, state), (BAGGAGE, baggage)]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn extract(pairs: &[(&'static str, &str)]) -> Option<Propagated> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).expect("a header"));
        }
        Propagated::extract(&headers)
    }

    #[test]
    fn what_a_client_sends_is_bounded() {
        let (long, many) = ("a=".repeat(4097), "a=1,".repeat(64) + "a=1");
        let fits = "a=1,".repeat(63) + "a=1";
        // Headers; whether there is a trace, a state, baggage.
        let cases: [(&[(&'static str, &str)], _); 8] = [
            (&[], None),
            (&[("baggage", "a=1")], None),
            (&[("traceparent", "nonsense")], None),
            (&[("traceparent", PARENT), ("traceparent", PARENT)], None),
            (&[("traceparent", PARENT)], Some((false, false))),
            (
                &[("traceparent", PARENT), ("tracestate", "a=1"), ("baggage", &fits)],
                Some((true, true)),
            ),
            (
                &[("traceparent", PARENT), ("tracestate", &many), ("baggage", &many)],
                Some((false, false)),
            ),
            (&[("traceparent", PARENT), ("baggage", &long)], Some((false, false))),
        ];
        for (headers, expected) in cases {
            let found = extract(headers);
            let found =
                found.map(|found| (found.context.trace_state.is_some(), found.baggage.is_some()));
            assert_eq!(found, expected, "{headers:.80?}");
        }
        let hundred = ["a=1"; 100].map(|value| ("baggage", value));
        let mut headers = vec![("traceparent", PARENT)];
        headers.extend(hundred);
        assert_eq!(extract(&headers).expect("a trace").baggage, None);
    }
}
