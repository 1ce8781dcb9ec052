use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

type Headers<'a> = &'a [(&'static str, &'static str)];

fn headers(given: Headers<'_>) -> HeaderMap {
    given
        .iter()
        .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
        .collect()
}

#[test]
fn only_an_upgrade_to_websocket_is_one() {
    let cases: [(Headers<'_>, bool); 5] = [
        (&[("upgrade", "websocket"), ("connection", "Upgrade")], true),
        (&[("upgrade", "WebSocket"), ("connection", "keep-alive, Upgrade")], true),
        (&[("upgrade", "websocket")], false),
        (&[("upgrade", "SPDY/3.1"), ("connection", "Upgrade")], false),
        (&[("connection", "Upgrade")], false),
    ];
    for (given, expected) in cases {
        assert_eq!(asks_for_websocket(&headers(given)), expected, "{given:?}");
    }
}

#[test]
fn the_handshake_is_that_of_a_browser() {
    const KEY: (&str, &str) = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    const V13: (&str, &str) = ("sec-websocket-version", "13");
    const ORIGIN: (&str, &str) = ("origin", "https://example.com");
    let protocol = |value| ("sec-websocket-protocol", value);
    let cases: [(Headers<'_>, Result<Option<&str>, u16>); 11] = [
        (&[KEY, V13, ORIGIN], Ok(None)),
        (&[KEY, V13, ORIGIN, protocol("binary.k8s.io")], Ok(Some("binary.k8s.io"))),
        (&[KEY, V13, ORIGIN, protocol(" anything ")], Ok(Some("anything"))),
        (&[KEY, V13, ORIGIN, protocol("a, b")], Err(400)),
        (&[V13, ORIGIN], Err(400)),
        (&[KEY, ORIGIN], Err(400)),
        (&[KEY, ("sec-websocket-version", "8"), ORIGIN], Err(400)),
        (&[KEY, V13], Err(403)),
        (&[KEY, V13, ("origin", "null")], Err(403)),
        (&[KEY, V13, ("origin", "/path")], Ok(None)),
        (&[KEY, V13, ("origin", "1http://x")], Err(403)),
    ];
    for (given, expected) in cases {
        let shaken = shake_hands(&headers(given));
        if let Ok((accept, _)) = &shaken {
            // The example of RFC 6455.
            assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        }
        let shaken = match &shaken {
            Ok((_, protocol)) => Ok(protocol.as_ref().map(|value| value.to_str().unwrap())),
            Err(refusal) => Err(refusal.code.as_u16()),
        };
        assert_eq!(shaken, expected, "{given:?}");
    }
}

fn chunk(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[tokio::test]
async fn every_chunk_is_a_message_and_the_end_a_goodbye() {
    let (client, server) = tokio::io::duplex(4096);
    let body = Body::events(futures_util::stream::iter([chunk("one"), chunk("two")]));
    pump(server, body, Message::Text, Duration::from_secs(5)).await.expect("it ends well");
    let mut sent = Vec::new();
    let mut client = client;
    client.read_to_end(&mut sent).await.expect("the server is done");
    assert_eq!(sent, b"\x81\x03one\x81\x03two\x88\x02\x03\xe8");
}

#[tokio::test]
async fn a_ping_is_answered_and_a_goodbye_returned_while_nothing_happens() {
    let (mut client, server) = tokio::io::duplex(4096);
    let held = std::sync::Arc::new(());
    let mut body = Body::events(futures_util::stream::pending());
    body.hold(held.clone());
    let pumping = tokio::spawn(pump(server, body, Message::Binary, Duration::from_secs(5)));
    client.write_all(b"\x89\x82\0\0\0\0hi\x88\x80\0\0\0\0").await.expect("the server reads");
    let mut sent = Vec::new();
    client.read_to_end(&mut sent).await.expect("the server is done");
    assert_eq!(sent, b"\x8a\x02hi\x88\x02\x03\xe8");
    pumping.await.expect("no panic").expect("it ends well");
    assert_eq!(std::sync::Arc::strong_count(&held), 1, "guards go with the body");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_given_up() {
    let (_client, server) = tokio::io::duplex(16);
    let body = Body::events(futures_util::stream::repeat_with(|| chunk("more than fits")));
    let ended = pump(server, body, Message::Text, Duration::from_mins(1)).await;
    assert_eq!(ended.expect_err("it stalls").kind(), std::io::ErrorKind::TimedOut);
}
