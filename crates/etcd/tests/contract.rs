//! What every backend promises, kept by a real etcd.

mod common;

use std::sync::Arc;

use store::Backend;

use common::{Cluster, options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_keeps_every_promise() {
    let clusters = std::sync::Mutex::new(Vec::new());
    store::contract::every_promise(async || {
        // An empty store means an empty etcd: revisions are counted from its beginning.
        let cluster = Cluster::start(1);
        let etcd = etcd::Etcd::new(&options(&cluster)).expect("the options are valid");
        clusters.lock().expect("nobody panics").push(cluster);
        Arc::new(etcd) as Arc<dyn Backend>
    })
    .await;
}
