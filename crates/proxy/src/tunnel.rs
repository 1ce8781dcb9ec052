//! Two connections copied into each other.

use std::{io, num::NonZeroU64, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    time::{Instant, sleep_until, timeout},
};

/// Copies in both directions until one of them ends; what is still on its way in the other gets
/// [`LINGER`].
pub(crate) async fn copy<C, B>(client: C, backend: B, rate: Option<NonZeroU64>) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut from_client, mut to_client) = split(client);
    let (mut from_backend, mut to_backend) = split(backend);
    let mut requests = Box::pin(one_way(&mut from_client, &mut to_backend, rate));
    let mut responses = Box::pin(one_way(&mut from_backend, &mut to_client, rate));
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

/// Copies until the reader ends, and then shuts the writer down.
async fn one_way(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    rate: Option<NonZeroU64>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut pace = rate.map(RateLimit::new);
    loop {
        let room = pace.as_ref().map_or(BUFFER_BYTES, |pace| pace.chunk_bytes);
        let count = from.read(&mut buffer[..room]).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        let written = async {
            to.write_all(&buffer[..count]).await?;
            to.flush().await
        };
        timeout(STALL_TIMEOUT, written).await.map_err(|_| io::ErrorKind::TimedOut)??;
        if let Some(pace) = &mut pace {
            pace.wait(count).await;
        }
    }
}

const BUFFER_BYTES: usize = 16 << 10;

/// A side that takes nothing for so long is given up: the other side may have left, which cannot be noticed while
/// nothing is read from it. Compat: kubelets end a session without traffic after the same time.
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
    use tokio::io::duplex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_kept() {
        let (mut client, near) = duplex(1 << 20);
        let (far, mut backend) = duplex(1 << 20);
        let began = Instant::now();
        let copying = tokio::spawn(copy(near, far, NonZeroU64::new(1000)));
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
        let ended = copy(near, far, None).await.expect_err("it stalls");
        assert_eq!((ended.kind(), began.elapsed()), (io::ErrorKind::TimedOut, STALL_TIMEOUT));
        drop(backend);
    }

    #[tokio::test(start_paused = true)]
    async fn a_backend_that_stays_silent_is_left_after_the_client() {
        let (client, near) = duplex(64);
        let (far, backend) = duplex(64);
        let began = Instant::now();
        drop(client);
        copy(near, far, None).await.expect("no error");
        assert_eq!(began.elapsed(), LINGER);
        drop(backend);
    }
}
