//! Two connections copied into each other.

mod spdy_probe;

use std::{io, num::NonZeroU64, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    sync::Mutex,
    time::{Instant, sleep_until, timeout},
};

use self::spdy_probe::ProbedWriter;

/// What the two sides speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// SPDY/3.1, of which the ends of frames are known.
    Spdy,
    Other,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyOptions {
    /// Bytes per second, each way.
    pub(crate) rate: Option<NonZeroU64>,
    pub(crate) protocol: Protocol,
    /// How often a client is probed whose input the backend does not take.
    pub(crate) probe_period: Duration,
}

impl CopyOptions {
    pub(crate) fn new(rate: Option<NonZeroU64>, protocol: Protocol) -> Self {
        Self { rate, protocol, probe_period: PROBE_PERIOD }
    }
}

/// As for WebSockets that are translated.
const PROBE_PERIOD: Duration = Duration::from_secs(30);

/// Copies in both directions until one of them ends; what is still on its way in the other gets
/// [`LINGER`].
pub(crate) async fn copy<C, B>(client: C, backend: B, options: CopyOptions) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut from_client, to_client) = split(client);
    let (mut from_backend, mut to_backend) = split(backend);
    let to_client = Mutex::new(ProbedWriter::new(to_client));
    let mut requests =
        Box::pin(to_backend_from(&mut from_client, &mut to_backend, &to_client, options));
    let mut responses = Box::pin(to_client_from(&mut from_backend, &to_client, options.rate));
    tokio::select! {
        ended = &mut requests => {
            ended?;
            // Elapsed: the backend had its time.
            timeout(LINGER, responses).await.unwrap_or(Ok(()))
        }
        ended = &mut responses => {
            ended?;
            timeout(LINGER, requests).await.unwrap_or(Ok(()))
        }
    }
}

/// Compat: kube-apiserver closes both sides as soon as one of them ends. This long more lets a backend
/// say its last words to a client that has closed its half.
const LINGER: Duration = Duration::from_secs(5);

/// Copies until the client ends, and then shuts the backend's side down. A client that leaves while the backend takes
/// nothing cannot be read from; it is noticed by probes.
async fn to_backend_from<W: AsyncWrite + Unpin>(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    to_client: &Mutex<ProbedWriter<W>>,
    options: CopyOptions,
) -> io::Result<()> {
    let mut input = Input::new(options.rate);
    while let Some(bytes) = input.read(from).await? {
        let stalled_at = Instant::now() + STALL_TIMEOUT;
        let mut written = Box::pin(async {
            to.write_all(bytes).await?;
            to.flush().await
        });
        loop {
            let probe_at = match options.protocol {
                Protocol::Spdy => stalled_at.min(Instant::now() + options.probe_period),
                Protocol::Other => stalled_at,
            };
            match tokio::time::timeout_at(probe_at, &mut written).await {
                Ok(done) => break done?,
                Err(_) if Instant::now() >= stalled_at => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                // Otherwise something is being written to the client, which learns it.
                Err(_) => {
                    if let Ok(mut client) = to_client.try_lock() {
                        client.probe().await?;
                    }
                }
            }
        }
        drop(written);
        input.wait().await;
    }
    to.shutdown().await
}

/// Copies until the backend ends, and then shuts the client's side down.
async fn to_client_from<W: AsyncWrite + Unpin>(
    from: &mut (impl AsyncRead + Unpin),
    to: &Mutex<ProbedWriter<W>>,
    rate: Option<NonZeroU64>,
) -> io::Result<()> {
    let mut input = Input::new(rate);
    while let Some(bytes) = input.read(from).await? {
        let written = async { to.lock().await.write(bytes).await };
        timeout(STALL_TIMEOUT, written).await.map_err(|_| io::ErrorKind::TimedOut)??;
        input.wait().await;
    }
    to.lock().await.shutdown().await
}

/// What was read of one side, at the rate that is allowed.
struct Input {
    buffer: Vec<u8>,
    count: usize,
    pace: Option<RateLimit>,
}

impl Input {
    fn new(rate: Option<NonZeroU64>) -> Self {
        Self { buffer: vec![0; BUFFER_BYTES], count: 0, pace: rate.map(RateLimit::new) }
    }

    /// None: the side has ended.
    async fn read(&mut self, from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<&[u8]>> {
        let chunk_bytes = self.pace.as_ref().map_or(BUFFER_BYTES, |pace| pace.chunk_bytes);
        self.count = from.read(&mut self.buffer[..chunk_bytes]).await?;
        Ok((self.count > 0).then(|| &self.buffer[..self.count]))
    }

    /// Waits until what was read is paid for.
    async fn wait(&mut self) {
        if let Some(pace) = &mut self.pace {
            pace.wait(self.count).await;
        }
    }
}

const BUFFER_BYTES: usize = 16 << 10;

/// A side that takes nothing for so long is given up: the other side may have left, which cannot be noticed while
/// nothing is read from it, but for clients that speak SPDY. Compat: kubelets end a session without traffic after the same time.
const STALL_TIMEOUT: Duration = Duration::from_hours(4);

/// Lets no more than so many bytes pass per second.
pub struct RateLimit {
    bytes_per_second: NonZeroU64,
    /// What passes at a time: small enough that a low rate is smooth.
    pub chunk_bytes: usize,
    /// When the bytes that have passed are paid for.
    next: Instant,
}

impl RateLimit {
    pub fn new(bytes_per_second: NonZeroU64) -> Self {
        let tenth = usize::try_from(bytes_per_second.get() / 10).unwrap_or(usize::MAX);
        let chunk_bytes = tenth.clamp(1, BUFFER_BYTES);
        Self { bytes_per_second, chunk_bytes, next: Instant::now() }
    }

    pub async fn wait(&mut self, count: usize) {
        let cost = Duration::from_secs_f64(count as f64 / self.bytes_per_second.get() as f64);
        // Time that was not used is not saved up.
        self.next = self.next.max(Instant::now()) + cost;
        sleep_until(self.next).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::duplex,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_kept() {
        let (mut client, near) = duplex(1 << 20);
        let (far, mut backend) = duplex(1 << 20);
        let began = Instant::now();
        let copying =
            tokio::spawn(copy(near, far, CopyOptions::new(NonZeroU64::new(1000), Protocol::Other)));
        client.write_all(&[7; 5000]).await.expect("room");
        client.shutdown().await.expect("open");
        let mut got = Vec::new();
        backend.read_to_end(&mut got).await.expect("open");
        assert_eq!(got, [7; 5000]);
        let took = began.elapsed();
        assert!((4..=6).contains(&took.as_secs()), "{took:?}");
        drop(backend);
        copying.await.expect("no panic").expect("no error");
    }

    #[tokio::test(start_paused = true)]
    async fn a_backend_that_reads_nothing_is_left_in_the_end() {
        let (mut client, near) = duplex(1 << 20);
        let (far, backend) = duplex(64);
        let began = Instant::now();
        client.write_all(&[7; 5000]).await.expect("room");
        drop(client);
        let ended =
            copy(near, far, CopyOptions::new(None, Protocol::Other)).await.expect_err("it stalls");
        assert_eq!((ended.kind(), began.elapsed()), (io::ErrorKind::TimedOut, STALL_TIMEOUT));
        drop(backend);
    }

    #[tokio::test(start_paused = true)]
    async fn a_backend_that_stays_silent_is_left_after_the_client() {
        let (client, near) = duplex(64);
        let (far, backend) = duplex(64);
        let began = Instant::now();
        drop(client);
        copy(near, far, CopyOptions::new(None, Protocol::Other)).await.expect("no error");
        assert_eq!(began.elapsed(), LINGER);
        drop(backend);
    }

    #[tokio::test(start_paused = true)]
    async fn a_spdy_client_that_leaves_is_noticed_although_the_backend_takes_nothing() {
        let (mut client, near) = duplex(1 << 20);
        let (far, backend) = duplex(64);
        let began = Instant::now();
        client.write_all(&[7; 5000]).await.expect("room");
        let options = CopyOptions::new(None, Protocol::Spdy);
        let copying = tokio::spawn(copy(near, far, options));
        // It is waited for as long as it is there.
        let mut probe = [0; 12];
        for number in 1..=5 {
            client.read_exact(&mut probe).await.expect("a probe");
            assert_eq!(probe, *spdy_probe::EMPTY_SETTINGS);
            assert_eq!(began.elapsed(), number * PROBE_PERIOD);
        }
        drop(client);
        copying.await.expect("no panic").expect_err("the client is gone");
        assert_eq!(began.elapsed(), 6 * PROBE_PERIOD);
        drop(backend);
    }

    /// Over TCP the end of a client that has sent more than fits is behind what it has sent.
    #[tokio::test]
    async fn a_spdy_client_that_leaves_is_noticed_over_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (client, near) = (TcpStream::connect(address).await, listener.accept().await);
        let (mut client, (near, _)) = (client.expect("connected"), near.expect("accepted"));
        let (far, backend) = duplex(64);
        let probe_period = Duration::from_millis(50);
        let options = CopyOptions { probe_period, ..CopyOptions::new(None, Protocol::Spdy) };
        let copying = tokio::spawn(copy(near, far, options));
        // Until nothing more fits into the buffers on the way.
        let flood = vec![7; 1 << 20];
        while timeout(Duration::from_millis(200), client.write_all(&flood)).await.is_ok() {}
        assert!(!copying.is_finished(), "the client is there");
        drop(client);
        let ended = timeout(Duration::from_secs(20), copying).await.expect("it is noticed");
        ended.expect("no panic").expect_err("the client is gone");
        drop(backend);
    }
}
