use http_body_util::{BodyExt as _, StreamBody, combinators::BoxBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};

use super::*;

/// A konnectivity server that sends back what it gets, and refuses to dial port 1.
fn serve(socket: &Path) {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let serving = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(serving);
        }
    });
}

type Answer = Response<BoxBody<Bytes, std::convert::Infallible>>;

async fn answer(request: Request<Incoming>) -> Result<Answer, std::convert::Infallible> {
    assert_eq!(request.uri().path(), "/ProxyService/Proxy");
    let (sender, frames) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut body = request.into_body();
        let mut buffer = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(packet) = take_packet(&mut buffer) {
                let Some(answer) = respond(packet) else { continue };
                let bytes = answer.encode_to_vec();
                let head = [&[0][..], &(bytes.len() as u32).to_be_bytes()].concat();
                let frame = Frame::data(Bytes::from([head, bytes].concat()));
                if sender.send(frame).await.is_err() {
                    return;
                }
            }
        }
        let ok = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            http::HeaderValue::from_static("0"),
        )]);
        let _ = sender.send(Frame::trailers(ok)).await;
    });
    let body = StreamBody::new(ReceiverStream::new(frames).map(Ok)).boxed();
    Ok(Response::builder().header("content-type", "application/grpc").body(body).unwrap())
}

fn take_packet(buffer: &mut Vec<u8>) -> Option<Packet> {
    let length = u32::from_be_bytes(buffer.get(1..5)?.try_into().ok()?) as usize;
    let packet = Packet::decode(buffer.get(5..5 + length)?).unwrap();
    buffer.drain(..5 + length);
    Some(packet)
}

fn respond(packet: Packet) -> Option<Packet> {
    Some(match packet.payload? {
        Payload::DialRequest(dial) => {
            assert_eq!(dial.protocol, "tcp");
            let refused = dial.address.ends_with(":1");
            let error = if refused { "no route".to_owned() } else { String::new() };
            let response = DialResponse { error, connect_id: 7, random: dial.random };
            Packet::new(PacketType::DialRsp, Payload::DialResponse(response))
        }
        Payload::Data(data) => Packet::new(PacketType::Data, Payload::Data(data)),
        Payload::CloseRequest(close) => {
            let response = CloseResponse { error: String::new(), connect_id: close.connect_id };
            Packet::new(PacketType::CloseRsp, Payload::CloseResponse(response))
        }
        _ => return None,
    })
}

#[tokio::test]
async fn a_connection_goes_through_a_stream_of_packets() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("s");
    serve(&socket);
    let channel = connect(&socket).await.unwrap();
    let mut stream = dial(channel, "192.0.2.1", 10250).await.unwrap();
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let mut received = vec![0; sent.len()];
    let (written, read) = tokio::join!(writer.write_all(&sent), reader.read_exact(&mut received));
    written.unwrap();
    read.unwrap();
    assert!(received == sent);
    // The end of one side ends the connection, when the proxy has agreed.
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_proxy_says_why_it_does_not_connect() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("s");
    assert!(connect(&socket).await.is_err(), "no server listens");
    serve(&socket);
    let channel = connect(&socket).await.unwrap();
    let Err(error) = dial(channel, "192.0.2.1", 1).await else { panic!("it is refused") };
    assert_eq!(error.to_string(), "no route");
}
