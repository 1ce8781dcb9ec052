//! The server is killed repeatedly at random moments while clients write, list and watch. Acknowledged
//! writes survive, others are atomic, resourceVersions never decrease, and watches resume.

use std::thread;
use std::time::Duration;

use integration::{Flavour, Server};

use super::load::Load;
use super::rounds;

#[test]
fn killed_at_any_moment_it_loses_nothing_and_makes_nothing_up() {
    let mut server = Server::start();
    let alone = *server.flavour() == Flavour::Embedded;
    if alone {
        // So that it also dies while it tidies up.
        server.kill();
        server.set_flags(&["--etcd-compaction-interval=10s"]);
        server.start_again();
    }
    // A kube-apiserver takes a while to start, and is here to show that the test is right.
    let rounds = if server.flavour().is_peer() { 3 } else { rounds(50) };
    let mut load = Load::new(&server.http());
    load.forgetful = server.flavour().is_peer();
    let mut random = load.random();
    for _ in 0..rounds {
        load.begin(&[server.http()]);
        wait(random.below(200));
        server.kill();
        load.end_with_the_server(alone);
        if random.below(5) == 0 {
            die_young(&server, random.below(60));
        }
        server.start_again();
        load.look(&server.http());
    }
    let (operations, verified) = load.verify(&server.http());
    eprintln!("{rounds} rounds: {operations} operations, {verified:?}");
    let enough = verified.changes > rounds && verified.lists > rounds;
    assert!(enough || load.forgetful, "too little happened: {verified:?}");
}

/// The moments that chance seldom finds: between the steps of a write.
#[test]
fn killed_between_any_two_steps_of_a_write_it_loses_nothing_and_makes_nothing_up() {
    let mut server = Server::of(Flavour::Embedded);
    let mut load = Load::new(&server.http());
    let mut random = load.random();
    let rounds = rounds(2);
    for _ in 0..rounds {
        for point in STEPS {
            server.kill();
            // Behind what it writes by itself when it starts.
            let passed = if point.starts_with("cache.") { 500 } else { 40 };
            server.die_at(point, passed + random.below(200));
            server.start_again();
            load.begin(&[server.http()]);
            server.wait_for_death();
            load.end_with_the_server(true);
            server.start_again();
            load.look(&server.http());
        }
    }
    let (operations, verified) = load.verify(&server.http());
    eprintln!("{rounds} rounds: {operations} operations, {verified:?}");
    assert!(verified.changes > rounds * STEPS.len(), "too little happened: {verified:?}");
}

/// Of `store::failpoint`, which has more; the store's own test goes through those.
const STEPS: [&str; 7] = [
    "log.allocated",
    "log.written",
    "log.synced",
    "publish.indexed",
    "publish.notified",
    "cache.state",
    "cache.notified",
];

/// Starts the server and kills it before it is ready, or just then.
fn die_young(server: &Server, after_ms: u64) {
    let Some(mut command) = server.same_again() else { return };
    let mut child = command.spawn().expect("the server can be started");
    wait(after_ms);
    child.kill().expect("a child can be killed");
    child.wait().expect("a child can be waited for");
}

/// The one sleep that is meant: the moment of death is random.
#[expect(clippy::disallowed_methods, reason = "a test's own thread serves no request")]
fn wait(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}
