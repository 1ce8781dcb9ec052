//! A cluster of three members, some of which fail: acknowledged writes survive, and watches see
//! every revision once, in order. And two apiservers that share compaction.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use background::Tasks;
use etcd::{CompactionState, Etcd};
use store::{Backend, Expect, Range, StoreError, Write};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use common::{Cluster, options};

/// Creates keys one after the other until `stop` is set; returns the acknowledged ones with their
/// revisions.
async fn write_on(etcd: Arc<Etcd>, writer: usize, stop: Arc<AtomicBool>) -> BTreeMap<String, u64> {
    let mut acknowledged = BTreeMap::new();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("/load/{writer}-{n}");
        // A write that failed may or may not have taken effect.
        if let Ok(revision) = etcd.write(Write::create(key.as_str(), key.clone())).await {
            acknowledged.insert(key, revision);
        }
    }
    acknowledged
}

/// Waits until writes are acknowledged again.
async fn wait_until_healthy(etcd: &Etcd, name: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    for n in 0.. {
        let key = format!("/healthy/{name}-{n}");
        if etcd.write(Write::create(key, "")).await.is_ok() {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "not healthy again after {name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_failing_members() {
    let mut cluster = Cluster::start(3);
    let etcd = Arc::new(Etcd::new(&options(&cluster), &Tasks::default()).expect("valid options"));
    let start = etcd.revision().await.expect("has a revision");
    let mut watch = etcd.watch("/load/", start).await.expect("starts");
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> =
        (0..4).map(|n| tokio::spawn(write_on(etcd.clone(), n, stop.clone()))).collect();
    let (reached, mut last) = tokio::sync::watch::channel(0u64);
    let watcher = tokio::spawn(async move {
        let mut seen = BTreeMap::new();
        let mut newest = start;
        while !reached.is_closed() {
            let next = tokio::time::timeout(Duration::from_millis(200), watch.next()).await;
            let Ok(batch) = next else { continue };
            let batch = batch.expect("goes on");
            for change in batch.changes {
                assert!(change.revision > newest, "{} comes after {newest}", change.revision);
                newest = change.revision;
                seen.insert(change.key.to_string(), change.revision);
            }
            reached.send_replace(batch.revision);
        }
        seen
    });

    // Fails the member that serves calls.
    wait_until_healthy(&etcd, "start").await;
    cluster.kill(0);
    wait_until_healthy(&etcd, "kill").await;
    cluster.start_member(0);
    common::wait_until("the member is back", || common::is_healthy(&cluster.urls[0]));
    cluster.signal(1, "STOP");
    wait_until_healthy(&etcd, "pause").await;
    cluster.signal(1, "CONT");
    common::wait_until("the member goes on", || common::is_healthy(&cluster.urls[1]));
    let statuses = etcd.statuses().await;
    let statuses: Vec<_> = statuses.into_iter().filter_map(|(_, status)| status.ok()).collect();
    let leader = statuses[0].leader;
    let other = statuses.iter().find(|status| status.member != leader).expect("three members");
    etcd.move_leader(other.member).await.expect("the lead moves");
    wait_until_healthy(&etcd, "move").await;
    stop.store(true, Ordering::Relaxed);

    let mut acknowledged = BTreeMap::new();
    for writer in writers {
        acknowledged.extend(writer.await.expect("finishes"));
    }
    assert!(acknowledged.len() > 20, "the load was no load: {}", acknowledged.len());
    let there = etcd.range(Range::of("/load/")).await.expect("reads");
    let there: BTreeMap<String, u64> =
        there.items.iter().map(|item| (item.key.to_string(), item.mod_revision)).collect();
    for (key, revision) in &acknowledged {
        assert_eq!(there.get(key), Some(revision), "{key} was acknowledged");
    }
    let now = etcd.revision().await.expect("has a revision");
    tokio::time::timeout(Duration::from_secs(30), last.wait_for(|at| *at >= now))
        .await
        .expect("the watch arrives")
        .expect("the watch goes on");
    drop(last);
    assert_eq!(watcher.await.expect("finishes"), there, "every write was seen, once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apiservers_take_turns_to_compact() {
    let cluster = Cluster::start(1);
    let open = || Etcd::new(&options(&cluster), &Tasks::default()).expect("valid options");
    let (one, two) = (open(), open());
    let first = one.write(Write::create("/k", "1")).await.expect("writes");
    let (mut know_one, mut know_two) = (CompactionState::default(), CompactionState::default());
    // No revision is known to be old enough yet.
    know_one = one.compact_step(know_one).await.expect("looks");
    know_two = two.compact_step(know_two).await.expect("looks");
    assert_eq!((know_one.time, know_two.time), (1, 1), "the second one finds the first one's mark");
    let at = async |etcd: &Etcd, revision| etcd.range(Range::of("/").at(revision)).await;
    assert!(at(&one, first).await.is_ok(), "history is kept for a round");
    one.write(Write::update("/k", first, "2")).await.expect("writes");

    let compacts_to = know_two.revision;
    know_two = two.compact_step(know_two).await.expect("compacts");
    assert_eq!(know_two.time, 2);
    let gone = at(&one, first).await.err();
    assert!(
        matches!(gone, Some(StoreError::Compacted { oldest }) if oldest == compacts_to),
        "{gone:?}"
    );
    let late = one.watch("/", first).await.err();
    assert!(matches!(late, Some(StoreError::Compacted { .. })), "{late:?}");
    // The other one notices that it was too late, and compacts in the next round.
    know_one = one.compact_step(know_one).await.expect("looks");
    assert_eq!(know_one.time, 2);
    assert_eq!((one.oldest_revision(), two.oldest_revision()), (compacts_to, compacts_to));
    know_one = one.compact_step(know_one).await.expect("compacts");
    assert_eq!(know_one.time, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_share_a_lease_expire() {
    let cluster = Cluster::start(1);
    let etcd = Etcd::new(&options(&cluster), &Tasks::default()).expect("valid options");
    let start = etcd.revision().await.expect("has a revision");
    let mut watch = etcd.watch("/e/", start).await.expect("starts");
    let ttl = Some(Duration::from_secs(1));
    for n in 0..3 {
        etcd.write(Write::create(format!("/e/{n}"), "v").with_ttl(ttl)).await.expect("writes");
    }
    let mut gone = 0;
    while gone < 3 {
        let next = tokio::time::timeout(Duration::from_secs(30), watch.next()).await;
        let batch = next.expect("etcd lets leases end").expect("goes on");
        gone += batch.changes.iter().filter(|change| change.value.is_none()).count();
    }
    assert!(etcd.range(Range::of("/e/")).await.expect("reads").items.is_empty());
}

/// A proxy to a member that drops responses.
struct Wire {
    url: String,
    loses: Arc<AtomicBool>,
    cut: Arc<Notify>,
}

impl Wire {
    async fn to(member: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let wire = Self { url, loses: Arc::default(), cut: Arc::default() };
        let member = member.trim_start_matches("http://").to_owned();
        let (loses, cut) = (wire.loses.clone(), wire.cut.clone());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&member).await.expect("the member is there");
                tokio::spawn(carry(near, far, loses.clone(), cut.clone()));
            }
        });
        wire
    }
}

async fn carry(near: TcpStream, far: TcpStream, loses: Arc<AtomicBool>, cut: Arc<Notify>) {
    let (mut from_near, mut to_near) = near.into_split();
    let (mut from_far, mut to_far) = far.into_split();
    let back = async {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from_far.read(&mut bytes).await {
            if !loses.load(Ordering::SeqCst) && to_near.write_all(&bytes[..length]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        _ = tokio::io::copy(&mut from_near, &mut to_far) => {}
        () = back => {}
        () = cut.notified() => {}
    }
}

/// A create whose response was lost was retried. Another client had deleted the object meanwhile,
/// so the retry brought it back with its old uid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_whose_response_is_lost_takes_effect_once() {
    let cluster = Cluster::start(1);
    let direct = Etcd::new(&options(&cluster), &Tasks::default()).expect("valid options");
    let wire = Wire::to(&cluster.urls[0]).await;
    let far = etcd::Options { compact_every: None, ..etcd::Options::new([wire.url.as_str()]) };
    let far = Arc::new(Etcd::new(&far, &Tasks::default()).expect("valid options"));
    for (key, deleted) in [("/lost/kept", false), ("/lost/deleted", true)] {
        let start = far.revision().await.expect("the wire works");
        let mut watch = direct.watch(key, start).await.expect("starts");
        wire.loses.store(true, Ordering::SeqCst);
        let write = tokio::spawn({
            let far = far.clone();
            async move { far.write(Write::create(key, "value")).await }
        });
        let created = loop {
            let batch = watch.next().await.expect("goes on");
            if let Some(change) = batch.changes.first() {
                break change.revision;
            }
        };
        if deleted {
            let delete = Write::delete(key, Expect::At(created));
            direct.write(delete).await.expect("it is there");
        }
        wire.loses.store(false, Ordering::SeqCst);
        wire.cut.notify_waiters();
        let answer = write.await.expect("finishes");
        let there = direct.get(key).await.expect("reads").map(|found| found.mod_revision);
        if deleted {
            assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
            assert_eq!(there, None);
        } else {
            assert_eq!((answer.expect("it was found done"), there), (created, Some(created)));
        }
    }
}
