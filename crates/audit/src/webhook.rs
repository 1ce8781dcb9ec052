//! The webhook backend: `EventList`s posted to the server of a kubeconfig.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use client::{Call, Client, Dial, Kubeconfig};
use http::{
    HeaderMap, HeaderValue, Method, Uri,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};
use tokio::time::Instant;

pub(crate) struct Webhook {
    client: Client,
    url: Uri,
    initial_backoff: Duration,
}

/// Compat: kube-apiserver's.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const ATTEMPTS: u32 = 5;
const BACKOFF_FACTOR: f64 = 1.5;
const BACKOFF_JITTER: f64 = 0.2;

/// The response has nothing that is used; a larger one fails the call.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

impl Webhook {
    pub(crate) fn load(
        kubeconfig: &Path,
        initial_backoff: Duration,
        dial: Option<Arc<dyn Dial>>,
    ) -> Result<Self, String> {
        let config = Kubeconfig::load(kubeconfig).map_err(|error| error.to_string())?;
        let mut transport = config.config();
        if let Some(dial) = dial {
            transport.dial = dial;
        }
        let client =
            Client::new(transport).map_err(|error| format!("{}: {error}", kubeconfig.display()))?;
        Ok(Self { client, url: config.server, initial_backoff })
    }

    /// Sends events, again and again for a while if that fails: any error may pass.
    pub(crate) async fn send(&self, events: &[Vec<u8>]) -> Result<(), String> {
        let body = event_list(events);
        let mut backoff = self.initial_backoff;
        for attempt in 1.. {
            let error = match self.post(body.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if attempt == ATTEMPTS {
                return Err(error);
            }
            tracing::warn!(v = 2, attempt, error, "audit webhook failed; trying again");
            tokio::time::sleep(backoff.mul_f64(1.0 + BACKOFF_JITTER * random())).await;
            backoff = backoff.mul_f64(BACKOFF_FACTOR);
        }
        unreachable!("the last attempt has returned")
    }

    async fn post(&self, body: Bytes) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("pintle"));
        let call = Call {
            method: Method::POST,
            url: self.url.clone(),
            headers,
            body,
            connect_to: None,
            deadline: Instant::now() + CALL_TIMEOUT,
            response_bytes_max: RESPONSE_BYTES_MAX,
        };
        let response = self.client.call(call).await.map_err(|error| error.to_string())?;
        // Compat: an empty body is a success here.
        if (200..=206).contains(&response.status().as_u16()) {
            return Ok(());
        }
        match client::successful_body(response) {
            Ok(_) => Ok(()),
            // What the webhook says is not repeated: the message goes to the log.
            Err(error) => Err(format!("the webhook answered with the status code {}", error.code)),
        }
    }
}

fn event_list(items: &[Vec<u8>]) -> Bytes {
    const HEAD: &[u8] =
        br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
    let bytes = items.iter().map(|item| item.len() + 1).sum::<usize>();
    let mut body = Vec::with_capacity(HEAD.len() + bytes + 4);
    body.extend_from_slice(HEAD);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        body.extend_from_slice(item);
    }
    body.extend_from_slice(b"]}\n");
    body.into()
}

/// From zero to one.
fn random() -> f64 {
    f64::from(getrandom::u32().unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_posted_as_a_list() {
        let body = event_list(&[b"{\"a\":1}".to_vec(), b"{\"b\":2}".to_vec()]);
        assert_eq!(
            body,
            "{\"kind\":\"EventList\",\"apiVersion\":\"audit.k8s.io/v1\",\"metadata\":{},\"items\":[\
             {\"a\":1},{\"b\":2}]}\n"
        );
    }
}
