//! Connections that send much take turns.
//!
//! The runtime runs its tasks in the order in which they became ready. With hundreds of connections that send long lists, a
//! short request would wait until each of them has encrypted and written as much as its socket takes. So a connection may
//! write [`FREE_BYTES`] whenever it runs; for more it needs a turn, and only as many connections as the runtime has threads
//! have one at a time; one less while many wait. A turn ends when the connection has run, or has written [`TURN_BYTES`].
//!
//! The runtime runs a task that another one has woken before all others, and connections that are ready together one after the
//! other, so that turns would follow each other while short requests wait. A connection therefore begins each turn after
//! the runtime has looked for arrivals ([`Turn::poll_begin`]), even if the turn was free when it asked for it.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

/// What a connection writes without a turn each time it runs: most single objects, and events of a watch. Not more than a
/// stream of HTTP/2 may have waiting ([`super::Limits::send_buffer_bytes`]), or lists would never need a turn.
const FREE_BYTES: usize = 16 << 10;
/// What a connection writes in one turn: it takes a fraction of a millisecond to encrypt and to hand to the kernel.
const TURN_BYTES: usize = 256 << 10;
/// With more connections than this waiting for a turn or for their clients to read, each holds less that is encrypted and
/// not sent.
const CROWD: usize = 32;

/// The connections that wait for their turn, of one server.
pub(crate) struct Turns {
    /// How many connections have a turn at the same time, unless they are a crowd.
    at_once: usize,
    queue: Mutex<Queue>,
    /// How many wait; written under the lock of the queue.
    waiting: AtomicUsize,
    /// How many have bytes that their sockets do not take.
    stalled: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    /// Connections that have a turn, or were woken for it.
    turns: usize,
    waiting: VecDeque<Weak<Turn>>,
}

impl Turns {
    pub(crate) fn new() -> Arc<Self> {
        let at_once = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Self {
            at_once,
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            stalled: AtomicUsize::new(0),
        })
    }

    /// One processor is left to short requests while many connections send.
    fn at_once_for(&self, waiting: usize) -> usize {
        if waiting > CROWD { (self.at_once - 1).max(1) } else { self.at_once }
    }

    fn wake_next(&self, queue: &mut Queue) {
        while queue.turns < self.at_once_for(queue.waiting.len())
            && let Some(next) = queue.waiting.pop_front()
        {
            // A connection that has ended meanwhile is left out.
            if let Some(turn) = next.upgrade() {
                turn.ticket.store(GRANTED, Ordering::Release);
                queue.turns += 1;
                turn.waker.wake();
            }
        }
        self.waiting.store(queue.waiting.len(), Ordering::Relaxed);
    }
}

const NONE: u8 = 0;
const WAITING: u8 = 1;
/// It was woken for its turn, and waits until the runtime has looked for arrivals.
const GRANTED: u8 = 2;
const BEGUN: u8 = 3;

/// The turn of one connection.
pub(super) struct Turn {
    turns: Arc<Turns>,
    /// Changed under the lock of the queue.
    ticket: AtomicU8,
    waker: AtomicWaker,
    /// The socket does not take what was written.
    is_stalled: AtomicBool,
    // Only the task of the connection takes the lock.
    run: Mutex<Run>,
}

/// What a connection has done since its task began to run.
#[derive(Default)]
struct Run {
    has_turn: bool,
    bytes_left: usize,
    bytes_written: usize,
    /// It would have written more.
    wants_more: bool,
    /// It wrote much when it ran last, or would have: it needs a turn from its first byte on.
    is_bulk: bool,
    /// It has ended, or carries another protocol now, and is not run by the server any more.
    is_upgraded: bool,
}

impl Turn {
    pub(super) fn new(turns: &Arc<Turns>) -> Arc<Self> {
        Arc::new(Self {
            turns: turns.clone(),
            ticket: AtomicU8::new(NONE),
            waker: AtomicWaker::new(),
            is_stalled: AtomicBool::new(false),
            run: Mutex::default(),
        })
    }

    /// To be called before the task of the connection runs. `Pending`: it has been woken for its turn, and what else is
    /// ready comes first.
    pub(super) fn poll_begin(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ticket.load(Ordering::Acquire) != GRANTED {
            return Poll::Ready(());
        }
        // A ticket that was granted is changed by its connection alone.
        self.ticket.store(BEGUN, Ordering::Release);
        pin!(tokio::task::yield_now()).poll(cx)
    }

    /// The task of the connection runs until the guard is dropped.
    pub(super) fn run(self: &Arc<Self>) -> Running<'_> {
        let mut run = self.run.lock();
        let has_turn = self.ticket.load(Ordering::Acquire) == BEGUN;
        let bytes_left = match (has_turn, run.is_bulk) {
            (true, _) => TURN_BYTES,
            (false, true) => 0,
            (false, false) => FREE_BYTES,
        };
        *run = Run { has_turn, bytes_left, ..Run::default() };
        Running(self)
    }

    /// Whether bytes may be written now.
    pub(super) fn poll(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut run = self.run.lock();
        if run.bytes_left > 0 || run.is_upgraded {
            return Poll::Ready(());
        }
        self.waker.register(cx.waker());
        run.wants_more = true;
        if !run.has_turn {
            self.queue();
        }
        Poll::Pending
    }

    /// Whether what was written may be handed to the kernel now: in the same run, or with the next turn.
    pub(super) fn poll_send(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<()> {
        let may_send = {
            let run = self.run.lock();
            run.has_turn || run.bytes_written > 0
        };
        if may_send { Poll::Ready(()) } else { self.poll(cx) }
    }

    pub(super) fn wrote(&self, bytes: usize) {
        let mut run = self.run.lock();
        run.bytes_left = run.bytes_left.saturating_sub(bytes);
        run.bytes_written += bytes;
    }

    /// The socket takes what was written, or not.
    pub(super) fn set_stalled(&self, stalled: bool) {
        if self.is_stalled.swap(stalled, Ordering::Relaxed) != stalled {
            let count = &self.turns.stalled;
            if stalled {
                count.fetch_add(1, Ordering::Relaxed);
            } else {
                count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether so many connections wait that each should hold little.
    pub(super) fn is_crowded(&self) -> bool {
        let Turns { waiting, stalled, .. } = &*self.turns;
        waiting.load(Ordering::Relaxed) + stalled.load(Ordering::Relaxed) > CROWD
    }

    /// The HTTP library has let go of the connection.
    pub(super) fn end(&self) {
        self.run.lock().is_upgraded = true;
    }

    /// Queues for a turn, unless it has been woken for one, or will be.
    fn queue(self: &Arc<Self>) {
        let mut queue = self.turns.queue.lock();
        if self.ticket.load(Ordering::Acquire) == NONE {
            self.ticket.store(WAITING, Ordering::Release);
            queue.waiting.push_back(Arc::downgrade(self));
            self.turns.wake_next(&mut queue);
        }
    }

    /// Ends the turn. The connection queues for the next one if it has more to write.
    fn give_back(&self, queue_again: Option<&Arc<Self>>) {
        let mut queue = self.turns.queue.lock();
        queue.turns -= 1;
        match queue_again {
            Some(turn) => {
                self.ticket.store(WAITING, Ordering::Release);
                queue.waiting.push_back(Arc::downgrade(turn));
            }
            None => self.ticket.store(NONE, Ordering::Release),
        }
        self.turns.wake_next(&mut queue);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.set_stalled(false);
        if [GRANTED, BEGUN].contains(self.ticket.get_mut()) {
            self.give_back(None);
        }
    }
}

/// While the task of a connection runs.
pub(super) struct Running<'a>(&'a Arc<Turn>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut run = self.0.run.lock();
        run.is_bulk = run.wants_more || run.bytes_written >= FREE_BYTES;
        // A turn that was granted since then is for the next run.
        if run.has_turn {
            self.0.give_back(run.wants_more.then_some(self.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::ready;

    use super::*;

    fn turns(at_once: usize) -> Arc<Turns> {
        Arc::new(Turns {
            at_once,
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            stalled: AtomicUsize::new(0),
        })
    }

    /// Runs a connection that has `bytes` to write; returns how many it wrote.
    fn run(turn: &Arc<Turn>, mut bytes: usize) -> usize {
        const PIECE: usize = 16 << 10;
        let mut cx = Context::from_waker(std::task::Waker::noop());
        // The second time it is ready.
        let _ = turn.poll_begin(&mut cx);
        let (_running, begun) = (turn.run(), bytes);
        while bytes > 0 && turn.poll(&mut cx).is_ready() {
            turn.wrote(PIECE.min(bytes));
            bytes = bytes.saturating_sub(PIECE);
        }
        begun - bytes
    }

    const MUCH: usize = 10 << 20;

    #[test]
    fn a_turn_that_is_free_begins_after_arrivals_were_looked_for() {
        let turns = turns(1);
        let turn = Turn::new(&turns);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert_eq!(run(&turn, MUCH), FREE_BYTES);
        assert!(turn.poll_begin(&mut cx).is_pending(), "what else is ready comes first");
        assert!(turn.poll_begin(&mut cx).is_ready());
        assert_eq!(run(&turn, MUCH), TURN_BYTES);
    }

    #[test]
    fn alone_a_connection_writes_a_turn_each_time_it_runs() {
        let turns = turns(1);
        let turn = Turn::new(&turns);
        // The bytes that are free come first.
        assert_eq!(run(&turn, MUCH), FREE_BYTES);
        for _ in 0..3 {
            assert_eq!(run(&turn, MUCH), TURN_BYTES);
        }
        assert_eq!(run(&turn, 0), 0);
        assert_eq!(turns.queue.lock().turns, 0);
    }

    #[test]
    fn turns_come_in_the_order_of_the_queue() {
        let turns = turns(1);
        let [first, second, third] = [(); 3].map(|()| Turn::new(&turns));
        assert_eq!(run(&first, MUCH), FREE_BYTES);
        // The first one was woken at once; the others find it so.
        assert_eq!((run(&second, MUCH), run(&third, MUCH)), (FREE_BYTES, FREE_BYTES));
        assert_eq!((run(&third, MUCH), run(&second, MUCH)), (0, 0));
        for _ in 0..2 {
            for next in [&first, &second, &third] {
                assert_eq!(run(next, MUCH), TURN_BYTES);
            }
        }
    }

    #[test]
    fn small_writes_need_no_turn() {
        let turns = turns(1);
        let bulk = Turn::new(&turns);
        run(&bulk, MUCH);
        let small = Turn::new(&turns);
        for _ in 0..10 {
            assert_eq!(run(&small, FREE_BYTES), FREE_BYTES);
            // That was much; what comes next is judged by itself.
            assert_eq!(run(&small, 0), 0);
        }
    }

    #[test]
    fn a_crowd_is_noticed_and_its_end_too() {
        let turns = turns(1);
        let senders: Vec<_> = (0..CROWD + 2).map(|_| Turn::new(&turns)).collect();
        for (at, sender) in senders.iter().enumerate() {
            assert_eq!(run(sender, MUCH), FREE_BYTES);
            // The first one does not wait.
            assert_eq!(sender.is_crowded(), at > CROWD, "{at}");
        }
        for sender in &senders {
            run(sender, 0);
        }
        assert!(!senders[0].is_crowded());
    }

    #[test]
    fn a_crowd_leaves_one_processor_to_short_requests() {
        let turns = turns(2);
        let senders: Vec<_> = (0..CROWD + 4).map(|_| Turn::new(&turns)).collect();
        for sender in &senders {
            run(sender, MUCH);
        }
        assert_eq!(turns.queue.lock().turns, 2, "two were free before the others came");
        assert_eq!(run(&senders[0], MUCH), TURN_BYTES);
        assert_eq!(turns.queue.lock().turns, 1);
        drop(senders);
        let [first, second] = [(); 2].map(|()| Turn::new(&turns));
        run(&first, MUCH);
        run(&second, MUCH);
        assert_eq!(turns.queue.lock().turns, 2);
    }

    #[test]
    fn connections_whose_clients_do_not_read_are_a_crowd_until_they_end() {
        let turns = turns(1);
        let sender = Turn::new(&turns);
        let stalled: Vec<_> = (0..=CROWD).map(|_| Turn::new(&turns)).collect();
        for turn in &stalled {
            assert!(!sender.is_crowded());
            turn.set_stalled(true);
            turn.set_stalled(true);
        }
        assert!(sender.is_crowded());
        stalled[0].set_stalled(false);
        assert!(!sender.is_crowded());
        drop(stalled);
        assert_eq!(turns.stalled.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn connections_that_end_hold_up_none() {
        let turns = turns(1);
        let [woken, waiting, last] = [(); 3].map(|()| Turn::new(&turns));
        for turn in [&woken, &waiting, &last] {
            run(turn, MUCH);
        }
        drop(waiting);
        drop(woken);
        assert_eq!(run(&last, MUCH), TURN_BYTES);
    }

    #[test]
    fn a_turn_that_is_not_used_is_given_on() {
        let turns = turns(1);
        let [idle, last] = [(); 2].map(|()| Turn::new(&turns));
        run(&idle, MUCH);
        run(&last, MUCH);
        // The stream that it had to send was reset.
        assert_eq!(run(&idle, 0), 0);
        assert_eq!(run(&last, MUCH), TURN_BYTES);
    }

    #[test]
    fn bytes_that_were_written_are_sent_in_the_same_run_or_with_a_turn() {
        let turns = turns(1);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let [first, second] = [(); 2].map(|()| Turn::new(&turns));
        run(&first, MUCH);
        {
            let _running = second.run();
            second.wrote(FREE_BYTES);
            assert!(second.poll_send(&mut cx).is_ready());
            assert!(second.poll(&mut cx).is_pending());
        }
        {
            let _running = second.run();
            assert!(second.poll_send(&mut cx).is_pending(), "the first one is before it");
        }
        assert_eq!(run(&first, 0), 0);
        assert!(second.poll_begin(&mut cx).is_pending() && second.poll_begin(&mut cx).is_ready());
        let _running = second.run();
        assert!(second.poll_send(&mut cx).is_ready());
    }

    #[test]
    fn an_upgraded_connection_never_queues() {
        let turns = turns(1);
        let [bulk, tunnel] = [(); 2].map(|()| Turn::new(&turns));
        run(&bulk, MUCH);
        run(&tunnel, MUCH);
        tunnel.end();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(tunnel.poll(&mut cx).is_ready());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_up_is_lost() {
        let turns = turns(2);
        let connection = |_| {
            let turn = Turn::new(&turns);
            tokio::spawn(async move {
                let mut left = 200 * TURN_BYTES;
                poll_fn(|cx| {
                    ready!(turn.poll_begin(cx));
                    let _running = turn.run();
                    while left > 0 && turn.poll(cx).is_ready() {
                        let bytes = left.min(100_000);
                        turn.wrote(bytes);
                        left -= bytes;
                    }
                    if left == 0 { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            })
        };
        for done in (0..20).map(connection).collect::<Vec<_>>() {
            done.await.expect("ended");
        }
        assert_eq!(turns.queue.lock().turns, 0);
    }
}
