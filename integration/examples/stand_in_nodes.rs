//! Two stand-in nodes for a running server, until it is killed: `stand_in_nodes KUBECONFIG`. Kubernetes' end-to-end
//! tests use them (`make e2e`).

use std::{env, path::Path, thread};

use integration::{Http, StandInNodes};

fn main() {
    let kubeconfig = env::args().nth(1).expect("the path of a kubeconfig");
    let _nodes = StandInNodes::start(&Http::new(Path::new(&kubeconfig)), &["node-1", "node-2"]);
    loop {
        thread::park();
    }
}
