//! The server over an etcd of three members, of which one is killed and one paused, and whose leader
//! changes, while clients write, list and watch.

use integration::{Server, eventually};
use serde_json::json;

use super::load::{CONFIG_MAPS, Load};
use super::rounds;

#[test]
fn nothing_is_lost_or_made_up_while_members_of_etcd_fail() {
    let server = Server::on_members(3);
    let http = server.http();
    let etcd = server.etcd().expect("it is there");
    let mut load = Load::new(&http);
    let mut random = load.random();
    let mut count = 0;
    // After any of these faults, writes are accepted again soon.
    let mut works_again = || {
        eventually("writes are taken again", || {
            count += 1;
            let probe = json!({"metadata": {"name": format!("probe-{count}")}});
            let path = CONFIG_MAPS.replace("default", "kube-public");
            (http.post(&path, &probe).code == 201).then_some(())
        });
    };
    load.begin(&[server.http()]);
    for _ in 0..rounds(1) {
        let victim = random.below(3) as usize;
        works_again();
        etcd.kill(victim);
        works_again();
        etcd.start_again(victim);

        let victim = random.below(3) as usize;
        etcd.pause(victim);
        works_again();
        etcd.resume(victim);

        etcd.move_leader();
        works_again();
    }
    load.end_writing();
    let (operations, verified) = load.verify(&server.http());
    eprintln!("{operations} operations, {verified:?}");
    assert!(verified.changes > 20 && verified.lists > 0, "too little happened: {verified:?}");
}
