//! What client-go makes of a response: the body of a success, or an error with a message.

use bytes::Bytes;
use http::{Response, header::CONTENT_TYPE};

/// A response that is no success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ResponseError {
    pub code: u16,
    /// As client-go words it.
    pub message: String,
}

/// The body of a success.
pub fn successful_body(response: Response<Bytes>) -> Result<Bytes, ResponseError> {
    let code = response.status().as_u16();
    let failed = |message: String| Err(ResponseError { code, message });
    let (head, body) = response.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|text| text.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    if let Some(why) = media_type_error(content_type) {
        return failed(format!("Internal error occurred: {why}"));
    }
    if (200..=206).contains(&code) {
        if body.is_empty() {
            // Compat: where the server names no type, it is the one that was asked for.
            let asked = if content_type.is_empty() { "application/json" } else { content_type };
            return failed(format!(
                "0-length response with status code: {code} and content type: {asked}"
            ));
        }
        return Ok(body);
    }
    let options = codec::json::DecodeOptions { strict: false };
    let status = codec::json::decode_any(&body, options).map(|decoded| decoded.value);
    let status = status.ok().filter(|status| status.str_at(&["kind"]) == "Status");
    if let Some(status) = status {
        return failed(status.str_at(&["message"]).to_owned());
    }
    let is_text = content_type.is_empty() || content_type.starts_with("text/");
    // Compat: client-go shows this much of a text.
    let shown = &body[..body.len().min(SHOWN_BYTES_MAX)];
    let said = if is_text { String::from_utf8_lossy(shown) } else { "unknown".into() };
    failed(generic_message(code, said.trim()))
}

const SHOWN_BYTES_MAX: usize = 2048;

/// What Go says about a content type that is none.
fn media_type_error(content_type: &str) -> Option<&'static str> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if media_type.is_empty() {
        return (!content_type.is_empty()).then_some("mime: no media type");
    }
    let token_end = |text: &str| {
        let is_token = |c: char| c.is_ascii_graphic() && !r#"()<>@,;:\"/[]?="#.contains(c);
        text.find(|c: char| !is_token(c)).unwrap_or(text.len())
    };
    let (ty, rest) = media_type.split_at(token_end(media_type));
    if ty.is_empty() {
        return Some("mime: no media type");
    }
    if rest.is_empty() {
        return None;
    }
    let Some(subtype) = rest.strip_prefix('/') else {
        return Some("mime: expected slash after first token");
    };
    match token_end(subtype) {
        0 => Some("mime: expected token after slash"),
        end if end == subtype.len() => None,
        _ => Some("mime: unexpected content after media subtype"),
    }
}

/// What client-go says about a code without a `Status`.
pub fn generic_message(code: u16, said: &str) -> String {
    let message = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 if matches!(said, "" | "unknown") => {
            "the server was unable to respond with a content type that the client supports"
        }
        403 | 406 | 415 => said,
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be \
             processing the request"
        }
        500.. => {
            let said = meta::field::quote(said);
            return format!(
                "an error on the server ({said}) has prevented the request from succeeding"
            );
        }
        _ => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    message.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_that_is_no_success_has_the_message_of_client_go() {
        let cases = [
            (
                200,
                "application/json",
                "",
                "0-length response with status code: 200 and content type: application/json",
            ),
            (
                500,
                "application/json",
                "boom",
                r#"an error on the server ("unknown") has prevented the request from succeeding"#,
            ),
            (
                500,
                "text/plain",
                "boom\n",
                r#"an error on the server ("boom") has prevented the request from succeeding"#,
            ),
            (
                404,
                "text/plain",
                "404 page not found",
                "the server could not find the requested resource",
            ),
            (404, "application/json", r#"{"kind":"Status","message":"gone"}"#, "gone"),
            (403, "", "not you", "not you"),
            (415, "application/json", "what?", "unknown"),
            (
                406,
                "application/json",
                "what?",
                "the server was unable to respond with a content type that the client supports",
            ),
            (
                200,
                "a/b/c",
                "{}",
                "Internal error occurred: mime: unexpected content after media subtype",
            ),
            (200, "a/", "{}", "Internal error occurred: mime: expected token after slash"),
            (
                302,
                "text/html",
                "",
                "the server responded with the status code 302 but did not return more information",
            ),
        ];
        for (code, content_type, body, message) in cases {
            let response = Response::builder().status(code).header(CONTENT_TYPE, content_type);
            let response = response.body(Bytes::from_static(body.as_bytes())).unwrap();
            let expected = ResponseError { code, message: message.to_owned() };
            assert_eq!(successful_body(response), Err(expected));
        }
    }
}
