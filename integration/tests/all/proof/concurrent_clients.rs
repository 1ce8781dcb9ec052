//! Concurrent clients see one linearizable order, on one server and on two servers over one etcd.

use std::thread;
use std::time::Duration;

use integration::{Flavour, Http, Server};

use super::load::Load;
use super::rounds;

#[test]
fn clients_that_race_for_objects_see_one_order() {
    let server = Server::start();
    race(&[server.http()]);
}

#[test]
fn clients_of_two_servers_over_one_etcd_see_one_order() {
    let one = Server::of(Flavour::Etcd);
    let two = one.beside(Flavour::Etcd);
    race(&[one.http(), two.http()]);
}

#[expect(clippy::disallowed_methods, reason = "the race takes a configured time")]
fn race(servers: &[Http]) {
    let mut load = Load::new(&servers[0]);
    load.begin(servers);
    thread::sleep(Duration::from_secs(2) * rounds(1) as u32);
    load.end_writing();
    let (operations, verified) = load.verify(&servers[0]);
    eprintln!("{operations} operations, {verified:?}");
    assert!(
        operations > 100 && verified.lists > 5,
        "too little happened: {operations}, {verified:?}"
    );
}
