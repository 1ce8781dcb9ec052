//! The backend contract on a real etcd.

mod common;

use std::sync::Arc;

use store::{Backend, Expect, Range, Write};

use common::{Cluster, options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_fulfils_the_contract() {
    let cluster = Cluster::start(1);
    store::contract::check_all(async || {
        let etcd = etcd::Etcd::new(&options(&cluster), &background::Tasks::default())
            .expect("the options are valid");
        // Each test needs an empty store. One etcd is emptied for all of them, because starting one
        // takes longer than most tests.
        for left in etcd.range(Range::of("")).await.expect("reads").items {
            etcd.write(Write::delete(left.key, Expect::Any)).await.expect("deletes");
        }
        Arc::new(etcd) as Arc<dyn Backend>
    })
    .await;
}
