//! What no server can go below: as many bytes as a list has, encrypted and sent from memory by a thread that does nothing
//! else. The CPU time is that thread's.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::server::TlsStream;

use super::world::{NAMESPACE, pods_path};
use super::{Outcome, World, drive};
use crate::client::{Call, Failure, Keep, Target};
use crate::kubeconfig::Credentials;
use crate::load::Plan;
use crate::proc::thread_cpu_ns;
use crate::tls_server::TlsServer;

pub(super) async fn send(world: &World, plan: Plan) -> Outcome {
    let list = Call::get(format!("{}?resourceVersion=0", pods_path(NAMESPACE)));
    let bytes = match world.client.ok(&list, Keep::Nothing).await {
        Ok(answer) => answer.bytes,
        Err(failure) => return failure.into(),
    };
    match measure(world, plan, bytes).await {
        Ok(outcome) => outcome,
        Err(error) => Failure::local(&error).into(),
    }
}

async fn measure(world: &World, plan: Plan, bytes: u64) -> Result<Outcome> {
    let cpu_ns = Arc::<AtomicU64>::default();
    let counted = cpu_ns.clone();
    let ip = Ipv4Addr::LOCALHOST.into();
    let server = TlsServer::start(ip, &["floor"], &["http/1.1"], move |stream| {
        let counted = counted.clone();
        async move { drop(serve(stream, &counted).await) }
    })?;
    let target = Target::new(&format!("https://{}", server.address), &Credentials::default())?;
    let stream = Mutex::new(target.open_http1().await?);
    let outcome = drive(world, plan, None, 0, async |_, _, _| {
        let mut stream = stream.lock().await;
        let received = async {
            stream.write_u64(bytes).await?;
            stream.flush().await?;
            tokio::io::copy(&mut (&mut *stream).take(bytes), &mut tokio::io::sink()).await
        };
        received.await.map_err(|error| Failure::local(&error.into()))
    })
    .await;
    Ok(match outcome {
        Outcome::Measured { measured, mut cost, ops_per_call, note } => {
            let cpu_ms = cpu_ns.load(Ordering::Relaxed) as f64 / 1e6;
            cost.server_cpu_ms = Some(cpu_ms);
            (cost.rss_peak_mb, cost.rss_extra_mb) = (None, None);
            Outcome::Measured { measured, cost, ops_per_call, note }
        }
        other @ Outcome::NotAvailable(_) => other,
    })
}

/// Sends as many bytes as each number on the connection says.
async fn serve(mut stream: TlsStream<TcpStream>, cpu_ns: &AtomicU64) -> Result<()> {
    let piece = vec![b'x'; PIECE_BYTES];
    loop {
        let mut left = stream.read_u64().await?;
        let before = thread_cpu_ns().context("the CPU time of a thread")?;
        while left > 0 {
            let part = left.min(PIECE_BYTES as u64);
            stream.write_all(&piece[..part as usize]).await?;
            left -= part;
        }
        stream.flush().await?;
        let after = thread_cpu_ns().context("the CPU time of a thread")?;
        cpu_ns.fetch_add(after - before, Ordering::Relaxed);
    }
}

const PIECE_BYTES: usize = 128 << 10;
