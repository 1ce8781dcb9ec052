use super::*;

#[test]
fn the_end_of_a_command_is_read_as_client_go_does() {
    let failed = |why: &str| Outcome::Failed(why.to_owned());
    let exit = |causes: &str| {
        format!(
            r#"{{"status":"Failure","reason":"NonZeroExitCode","details":{{"causes":[{causes}]}}}}"#
        )
    };
    let cases = [
        (String::new(), Outcome::Success),
        (r#"{"status":"Success"}"#.to_owned(), Outcome::Success),
        (exit(r#"{"reason":"ExitCode","message":"7"}"#), Outcome::ExitCode(7)),
        (
            exit(r#"{"reason":"ExitCode","message":"300"}"#),
            failed(r#"error stream protocol error: invalid exit code value "300""#),
        ),
        (exit(""), failed("error stream protocol error: no ExitCode cause given")),
        (
            r#"{"status":"Failure","reason":"NonZeroExitCode"}"#.to_owned(),
            failed("error stream protocol error: details must be set"),
        ),
        (r#"{"status":"Failure","message":"no such file"}"#.to_owned(), failed("no such file")),
        ("{}".to_owned(), failed("error stream protocol error: unknown error")),
    ];
    for (said, expected) in cases {
        assert_eq!(verdict(said.as_bytes()), expected, "{said}");
    }
}

#[test]
fn a_client_gets_the_status_that_go_would_write() {
    let cases = [
        (Outcome::Success, r#"{"metadata":{},"status":"Success"}"#),
        (
            Outcome::ExitCode(7),
            r#"{"details":{"causes":[{"message":"7","reason":"ExitCode"}]},"message":"command terminated with non-zero exit code: command terminated with exit code 7","metadata":{},"reason":"NonZeroExitCode","status":"Failure"}"#,
        ),
        (
            Outcome::Failed("boom".to_owned()),
            r#"{"code":500,"details":{"causes":[{"message":"boom"}]},"message":"Internal error occurred: boom","metadata":{},"reason":"InternalError","status":"Failure"}"#,
        ),
    ];
    for (outcome, expected) in cases {
        let mut json = Vec::new();
        codec::json::encode_any(&status(&outcome).unwrap(), &mut json);
        assert_eq!(String::from_utf8(json).unwrap(), expected);
    }
    assert_eq!(status(&Outcome::ClientGone), None);
}

/// Whatever a client sends as terminal sizes, the kubelet gets sizes, and memory stays small.
#[tokio::test]
async fn terminal_sizes_are_read_and_written_again() {
    let (near, far) = tokio::io::duplex(1 << 16);
    let writer = Mutex::new(Session::new(near).writer);
    let mut pending = Vec::new();
    for bytes in
        [&b"{\"Width\":80,\"Hei"[..], b"ght\":24} {\"Width\":1", b"}garbage}", &[b'x'; 4096]]
    {
        send_sizes(&mut pending, bytes, &writer, 9).await.unwrap();
        assert!(pending.len() < RESIZE_BYTES_MAX);
    }
    drop(writer);
    let (mut decoder, mut buffer) = (spdy::Decoder::default(), bytes::BytesMut::new());
    let mut far = far;
    while tokio::io::AsyncReadExt::read_buf(&mut far, &mut buffer).await.unwrap() > 0 {}
    let mut sent = String::new();
    while let Some(frame) = decoder.next(&mut buffer).unwrap() {
        let Frame::Data { stream: 9, bytes, .. } = frame else { panic!("{frame:?}") };
        sent.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert_eq!(sent, "{\"Width\":80,\"Height\":24}\n{\"Width\":1,\"Height\":0}\n");
}
