//! The identity of a span, and which traces are sampled.

use std::fmt::Write as _;

use http::HeaderValue;

pub type TraceId = [u8; 16];
pub type SpanId = [u8; 8];

/// What is known of a span outside of it: W3C's `traceparent` and `tracestate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanContext {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    pub sampled: bool,
    /// What other systems have to say of the trace; passed on as it came.
    pub trace_state: Option<HeaderValue>,
}

impl SpanContext {
    /// `00-TRACE-SPAN-FLAGS`, in hexadecimal digits. None: it is none, or its ids are zero.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let version = hex::<1>(parts.next()?)?[0];
        let (trace_id, span_id) = (hex(parts.next()?)?, hex(parts.next()?)?);
        let flags = hex::<1>(parts.next()?)?[0];
        // Later versions may have more parts; this one has not.
        let known = version != 0xff && (version != 0 || parts.next().is_none());
        (known && trace_id != TraceId::default() && span_id != SpanId::default()).then_some(Self {
            trace_id,
            span_id,
            sampled: flags & SAMPLED != 0,
            trace_state: None,
        })
    }

    /// The value of the header `traceparent`.
    pub fn traceparent(&self) -> String {
        let mut text = String::with_capacity(TRACEPARENT_BYTES);
        text.push_str("00-");
        for byte in self.trace_id {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('-');
        for byte in self.span_id {
            let _ = write!(text, "{byte:02x}");
        }
        let _ = write!(text, "-{:02x}", if self.sampled { SAMPLED } else { 0 });
        text
    }
}

const SAMPLED: u8 = 1;
const TRACEPARENT_BYTES: usize = 55;

/// Lower-case digits only, as the recommendation has it.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Which traces that begin here are recorded; one that came with a request is recorded if its sender does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// Trace ids below it: their last eight bytes, without the highest bit's weight.
    bound: u64,
}

impl Sampler {
    /// `samplingRatePerMillion`.
    pub fn per_million(rate: u32) -> Self {
        let bound = u128::from(rate.min(MILLION)) * (1 << 63) / u128::from(MILLION);
        Self { bound: bound as u64 }
    }

    pub fn is_never(self) -> bool {
        self.bound == 0
    }

    /// The same traces as those of other servers with this rate: the decision is the id's.
    pub fn samples(self, trace_id: &TraceId) -> bool {
        let low = u128::from_be_bytes(*trace_id) as u64;
        low >> 1 < self.bound
    }
}

const MILLION: u32 = 1_000_000;

/// Random and not zero; None: the system gives no random bytes, and nothing is traced.
pub(crate) fn random_id<const N: usize>() -> Option<[u8; N]> {
    let mut id = [0; N];
    getrandom::fill(&mut id).ok()?;
    (id != [0; N]).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_is_read_and_written() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = SpanContext::parse(text).expect("a traceparent");
        assert!(context.sampled);
        assert_eq!(context.traceparent(), text);
        let cases = [
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", Some(false)),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03", Some(true)),
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", Some(true)),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", None),
            ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
            ("00-00000000000000000000000000000000-b7ad6b7169203331-01", None),
            ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", None),
            ("00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
            ("00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01", None),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", None),
            ("00-é7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(SpanContext::parse(text).map(|context| context.sampled), expected, "{text}");
        }
    }

    #[test]
    fn a_share_of_traces_is_sampled_by_their_id() {
        let id = |last: u64| {
            let mut id = [7; 16];
            id[8..].copy_from_slice(&last.to_be_bytes());
            id
        };
        let cases = [
            (0, 0, false),
            (1_000_000, u64::MAX, true),
            (2_000_000, u64::MAX, true),
            (500_000, u64::MAX / 2, true),
            (500_000, u64::MAX / 2 + 2, false),
            (1, 0, true),
            (1, u64::MAX / 500_000, false),
        ];
        for (rate, last, expected) in cases {
            assert_eq!(Sampler::per_million(rate).samples(&id(last)), expected, "{rate} {last}");
        }
        assert!(Sampler::per_million(0).is_never());
    }
}
