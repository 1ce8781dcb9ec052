//! `--debug-socket-path`: `/debug/pprof` and `/debug/flags/v` on a unix socket, for the user that runs the
//! server. There is neither authentication nor authorization: the mode of the file is what protects it.

use std::{
    convert::Infallible,
    fs::{self, Permissions},
    io,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
};

use http::{Request, Response, StatusCode};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
};

use crate::{
    Body,
    generic::{SetVerbosity, debug_answer},
    health::text,
};

/// Further connections wait.
const CONNECTIONS_MAX: usize = 16;

/// Binds the socket; one that an earlier run has left behind is replaced. Must be called inside the runtime.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "not a socket")),
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until the task is dropped.
pub async fn serve(listener: Arc<UnixListener>, set_verbosity: SetVerbosity) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let set_verbosity = set_verbosity.clone();
        tokio::spawn(async move {
            connection(stream, set_verbosity).await;
            drop(slot);
        });
    }
}

async fn connection(stream: UnixStream, set_verbosity: SetVerbosity) {
    let service = service_fn(move |request: Request<Incoming>| {
        let set_verbosity = set_verbosity.clone();
        async move { Ok::<_, Infallible>(answer(request, &set_verbosity).await) }
    });
    let mut http1 = http1::Builder::new();
    let served = http1.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    // A client that breaks off is its own affair.
    let _ = served.await;
}

async fn answer(request: Request<Incoming>, set_verbosity: &SetVerbosity) -> Response<Body> {
    let path = request.uri().path().to_owned();
    match debug_answer(&path, request, set_verbosity).await {
        Some(Ok(response)) => response,
        Some(Err(error)) => {
            let code = StatusCode::from_u16(error.status().code);
            text(code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), format!("{error}\n"))
        }
        None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use http::Method;
    use http_body_util::{BodyExt as _, Full};
    use hyper::client::conn::http1;

    use super::*;

    async fn ask(path: &Path, method: Method, uri: &str, body: &str) -> (u16, String) {
        let stream = UnixStream::connect(path).await.expect("connected");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(uri).header("host", "debug");
        let request = request.body(Full::new(bytes::Bytes::from(body.to_owned())));
        let answer = sender.send_request(request.expect("a request")).await.expect("an answer");
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn profiles_and_verbosity_are_served_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("debug.sock");
        drop(bind(&path).expect("bound"));
        let listener = bind(&path).expect("an old socket is replaced");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let level = Arc::new(AtomicI32::new(0));
        let set = level.clone();
        let set: SetVerbosity = Arc::new(move |given| set.store(given, Ordering::SeqCst));
        tokio::spawn(serve(Arc::new(listener), set));
        assert_eq!(ask(&path, Method::GET, "/debug/pprof/", "").await.0, 200);
        assert_eq!(ask(&path, Method::GET, "/debug/pprof/heap", "").await.0, 501);
        assert_eq!(ask(&path, Method::PUT, "/debug/flags/v", "4").await.0, 200);
        assert_eq!(level.load(Ordering::SeqCst), 4);
        let dump = "/debug/api_priority_and_fairness/dump_queues";
        for other in ["/", "/metrics", "/api/v1/secrets", dump] {
            assert_eq!(ask(&path, Method::GET, other, "").await.0, 404, "{other}");
        }
        let file = directory.path().join("file");
        fs::write(&file, "kept").expect("a file");
        assert!(bind(&file).is_err(), "a file is not replaced");
    }
}
