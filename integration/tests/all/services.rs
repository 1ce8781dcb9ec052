//! Cluster IPs and node ports: each is allocated to one service only, also in concurrent requests.

use std::collections::HashSet;
use std::thread;

use integration::{Flavour, Http, Server, eventually, peer_program, shared};
use serde_json::{Value, json};

fn services(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/services")
}

fn node_port(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}})
}

/// Creates services side by side through these clients; answers them as they were made.
fn create_at_once(clients: &[Http], namespace: &str, each: usize) -> Vec<Value> {
    let threads: Vec<_> = clients
        .iter()
        .enumerate()
        .map(|(client, http)| {
            let (http, path) = (http.clone(), services(namespace));
            thread::spawn(move || {
                let one = |n: usize| http.post(&path, &node_port(&format!("s{client}-{n}")));
                (0..each).map(|n| one(n).expect(201)).collect::<Vec<Value>>()
            })
        })
        .collect();
    threads.into_iter().flat_map(|thread| thread.join().expect("all are made")).collect()
}

fn assert_distinct(made: &[Value]) {
    let addresses: HashSet<&str> =
        made.iter().filter_map(|service| service["spec"]["clusterIP"].as_str()).collect();
    let ports: HashSet<i64> = made
        .iter()
        .filter_map(|service| service["spec"]["ports"][0]["nodePort"].as_i64())
        .collect();
    assert_eq!((addresses.len(), ports.len()), (made.len(), made.len()), "{addresses:?} {ports:?}");
}

#[test]
fn services_made_at_the_same_time_get_different_addresses_and_ports() {
    let server = shared();
    let namespace = server.namespace("at-once");
    let clients: Vec<Http> = (0..8).map(|_| server.http()).collect();
    let made = create_at_once(&clients, &namespace, 5);
    assert_distinct(&made);
    for service in &made {
        let name = service["metadata"]["name"].as_str().expect("a name");
        server.http().delete(&format!("{}/{name}", services(&namespace))).expect(200);
        let address = service["spec"]["clusterIP"].as_str().expect("an address");
        let path = format!("/apis/networking.k8s.io/v1/ipaddresses/{address}");
        // Released, unless another test has it by now.
        eventually("the address is given back", || {
            let found = server.http().get(&path);
            let is_ours = || found.json()["spec"]["parentRef"]["name"] == name;
            (found.code == 404 || !is_ours()).then_some(())
        });
    }
}

#[test]
fn a_range_that_runs_out_says_so_and_goes_on_when_something_is_given_back() {
    if Flavour::from_env().is_peer() {
        return;
    }
    let flags = ["--service-cluster-ip-range=10.9.0.0/29", "--service-node-port-range=30000-30002"];
    let server = Server::with(Flavour::from_env(), &flags);
    let http = server.http();
    let path = services("default");
    // Six addresses, one of them the server's own; three ports.
    for n in 0..3 {
        http.post(&path, &node_port(&format!("n{n}"))).expect(201);
    }
    let full = http.post(&path, &node_port("n3")).expect(500);
    assert_eq!(
        full["message"],
        "Internal error occurred: failed to allocate a nodePort: range is full"
    );
    let plain = |name: &str| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    // What failed has given back its address.
    for n in 0..2 {
        http.post(&path, &plain(&format!("c{n}"))).expect(201);
    }
    let full = http.post(&path, &plain("c2")).expect(500);
    assert_eq!(
        full["message"],
        "Internal error occurred: failed to allocate a serviceIP for Service \"c2\": range is full"
    );
    http.delete(&format!("{path}/n1")).expect(200);
    http.post(&path, &node_port("n3")).expect(201);
}

#[test]
fn what_was_taken_is_still_taken_after_a_restart() {
    if Flavour::from_env().is_peer() {
        return;
    }
    let mut server = Server::with(Flavour::from_env(), &["--service-node-port-range=30000-30003"]);
    let path = services("default");
    let mut made: Vec<Value> = Vec::new();
    made.extend(
        (0..2).map(|n| server.http().post(&path, &node_port(&format!("a{n}"))).expect(201)),
    );
    server.kill();
    server.start_again();
    made.extend(
        (0..2).map(|n| server.http().post(&path, &node_port(&format!("b{n}"))).expect(201)),
    );
    assert_distinct(&made);
    let taken = made[0]["spec"]["clusterIP"].clone();
    let same =
        json!({"metadata": {"name": "c"}, "spec": {"clusterIP": taken, "ports": [{"port": 80}]}});
    let refused = server.http().post(&path, &same).expect(422);
    assert!(
        refused["message"]
            .as_str()
            .unwrap_or_default()
            .ends_with("provided IP is already allocated"),
        "{refused}"
    );
}

/// kube-apiserver's `ipallocator-repair-controller`, which Pintle runs at its start and every three minutes.
#[test]
fn an_address_that_is_not_recorded_is_repaired_and_told() {
    if Flavour::from_env().is_peer() {
        return;
    }
    let mut server = Server::start();
    let service = json!({"metadata": {"name": "one"}, "spec": {"ports": [{"port": 80}]}});
    let service = server.http().post(&services("default"), &service).expect(201);
    let ip = service["spec"]["clusterIP"].as_str().expect("an address");
    let address = format!("/apis/networking.k8s.io/v1/ipaddresses/{ip}");
    server.http().delete(&address).expect(200);
    // An address finalizer may keep it for a moment.
    eventually("the address is gone", || (server.http().get(&address).code == 404).then_some(()));
    assert!(server.stop().success());
    server.start_again();
    let http = server.http();
    let recorded = http.get(&address).expect(200);
    assert_eq!(recorded["spec"]["parentRef"]["name"], "one");
    let events = http.get("/apis/events.k8s.io/v1/namespaces/default/events").expect(200);
    let about = |event: &&Value| event["regarding"]["name"] == "one";
    let event = events["items"].as_array().expect("a list").iter().find(about).expect("an event");
    assert_eq!(event["reason"], "ClusterIPNotAllocated");
    assert_eq!(event["reportingController"], "ipallocator-repair-controller");
    assert_eq!(event["note"], format!("Cluster IP [IPv4]: {ip} is not allocated; repairing"));
    assert_eq!(event["regarding"]["uid"], service["metadata"]["uid"]);
}

/// kube-apiserver's `ipallocator-repair-controller` does the same within seconds.
#[test]
fn addresses_are_repaired_when_something_is_written() {
    let server = Server::start();
    let http = server.http();
    let addresses = "/apis/networking.k8s.io/v1/ipaddresses";
    let told = |name: &str, reason: &str| {
        let events = http.get("/apis/events.k8s.io/v1/namespaces/default/events").expect(200);
        let mut events = events["items"].as_array().expect("a list").clone().into_iter();
        events.find(|event| event["regarding"]["name"] == name && event["reason"] == reason)
    };
    let service = json!({"metadata": {"name": "one"}, "spec": {"ports": [{"port": 80}]}});
    let service = http.post(&services("default"), &service).expect(201);
    let ip = service["spec"]["clusterIP"].as_str().expect("an address");
    let own = format!("{addresses}/{ip}");
    let touch = |value: &str| {
        let patch = json!({"metadata": {"annotations": {"touched": value}}});
        let path = format!("{}/one", services("default"));
        http.patch(&path, "application/merge-patch+json", &patch).expect(200);
    };

    // An address that was deleted is there again with the next write of its Service.
    http.delete(&own).expect(200);
    eventually("the address is there again", || {
        touch("once");
        touch("twice");
        let address = http.get(&own);
        (address.code == 200 && address.json()["metadata"].get("deletionTimestamp").is_none())
            .then_some(())
    });
    let event = eventually("it is told", || told("one", "ClusterIPNotAllocated"));
    assert_eq!(event["note"], format!("Cluster IP [IPv4]: {ip} is not allocated; repairing"));
    assert_eq!(event["regarding"]["kind"], "Service");

    // So are its labels.
    let patch = json!({"metadata": {"labels": {"ipaddress.kubernetes.io/ip-family": "IPv6"}}});
    http.patch(&own, "application/merge-patch+json", &patch).expect(200);
    eventually("the labels are put right", || {
        touch("once");
        touch("twice");
        let address = http.get(&own);
        let label = &address.json()["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"];
        (address.code == 200 && *label == "IPv4").then_some(())
    });

    // Addresses that say that they are of a Service, and are not.
    let leaked = |last: u8, reference: Value| {
        let ip = ip.rsplit_once('.').map(|(head, _)| format!("{head}.{last}")).expect("IPv4");
        let address = json!({
            "metadata": {"name": ip, "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            }},
            "spec": {"parentRef": reference},
        });
        http.post(addresses, &address).expect(201);
        ip
    };
    let wrong = leaked(
        251,
        json!({"group": "", "resource": "services", "namespace": "default", "name": "one"}),
    );
    let gateway = leaked(
        252,
        json!({"group": "example.com", "resource": "gateways", "namespace": "default", "name": "g"}),
    );
    for (ip, reason, note) in [
        (
            wrong,
            "IPAddressWrongReference",
            "IPAddress: {ip} for Service default/one has a wrong reference; cleaning up",
        ),
        (
            gateway,
            "IPAddressNotAllocated",
            "IPAddress {ip} appears to have been modified, not referencing a Service \
             &ParentReference{Group:example.com,Resource:gateways,Namespace:default,Name:g,}: cleaning up",
        ),
    ] {
        let path = format!("{addresses}/{ip}");
        eventually("the address is released", || (http.get(&path).code == 404).then_some(()));
        let event = eventually("it is told", || told(&ip, reason));
        assert_eq!(event["note"], note.replace("{ip}", &ip));
        assert_eq!(event["regarding"]["kind"], "IPAddress");
    }
}

#[test]
fn a_range_of_ones_own_is_used_and_kept_as_long_as_it_is() {
    if Flavour::from_env().is_peer() {
        return;
    }
    let server = Server::with(Flavour::from_env(), &["--service-cluster-ip-range=10.9.0.0/29"]);
    let http = server.http();
    let cidrs = "/apis/networking.k8s.io/v1/servicecidrs";
    let wanted = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.77.0.0/24"]}});
    http.post(cidrs, &wanted).expect(201);
    let more = format!("{cidrs}/more");
    let ready = |wanted: &str| {
        let cidr = http.get(&more).expect(200);
        let condition = cidr["status"]["conditions"][0].clone();
        (condition["type"] == "Ready" && condition["status"] == wanted).then_some(cidr)
    };
    let cidr = eventually("the range is ready", || ready("True"));
    assert_eq!(cidr["metadata"]["finalizers"], json!(["networking.k8s.io/service-cidr-finalizer"]));
    let path = services("default");
    let mut service = node_port("far");
    service["spec"]["clusterIP"] = json!("10.77.0.77");
    http.post(&path, &service).expect(201);
    // Without a requested address it is used once the first range is exhausted.
    for n in 0..6 {
        http.post(&path, &node_port(&format!("n{n}"))).expect(201);
    }
    http.delete(&more).expect(200);
    let cidr = eventually("the range is not ready any more", || ready("False"));
    assert_eq!(cidr["status"]["conditions"][0]["reason"], "Terminating");
    for name in ["far", "n0", "n1", "n2", "n3", "n4", "n5"] {
        http.delete(&format!("{path}/{name}")).expect(200);
    }
    eventually("the range is gone", || (http.get(&more).code == 404).then_some(()));
}

#[test]
fn two_servers_over_one_etcd_never_hand_out_the_same_twice_and_are_both_endpoints() {
    let one = Server::with(Flavour::Etcd, &["--advertise-address=192.0.2.10"]);
    let two = one.beside_with(Flavour::Etcd, &["--advertise-address=192.0.2.11"]);
    let namespace = one.namespace("both");
    let clients = [one.http(), two.http(), one.http(), two.http()];
    assert_distinct(&create_at_once(&clients, &namespace, 4));
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    eventually("both servers are listed", || {
        let found = one.http().get(endpoints).expect(200);
        let addresses = found["subsets"][0]["addresses"].clone();
        (addresses == json!([{"ip": "192.0.2.10"}, {"ip": "192.0.2.11"}])).then_some(())
    });
    let mut two = two;
    assert!(two.stop().success());
    eventually("one server is left", || {
        let found = one.http().get(endpoints).expect(200);
        (found["subsets"][0]["addresses"] == json!([{"ip": "192.0.2.10"}])).then_some(())
    });
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let slice = one.http().get(slice).expect(200);
    assert_eq!(slice["endpoints"].as_array().map(Vec::len), Some(1), "{slice}");
}

#[test]
fn pintle_and_kube_apiserver_agree_on_node_ports() {
    let Some(program) = peer_program() else { return };
    let pintle = Server::of(Flavour::Etcd);
    let peer = pintle.beside(Flavour::Peer(program));
    let path = services("default");
    let wanting = |name: &str, port: i64| {
        let mut service = node_port(name);
        service["spec"]["ports"][0]["nodePort"] = json!(port);
        service
    };
    pintle.http().post(&path, &wanting("a", 30100)).expect(201);
    peer.http().post(&path, &wanting("b", 30200)).expect(201);
    for (server, name, port) in [(&peer, "c", 30100), (&pintle, "d", 30200)] {
        let refused = server.http().post(&path, &wanting(name, port)).expect(422);
        assert!(
            refused["message"].as_str().unwrap_or_default().ends_with("port is already allocated"),
            "{refused}"
        );
    }
    // Given back by one, taken by the other.
    peer.http().delete(&format!("{path}/a")).expect(200);
    pintle.http().post(&path, &wanting("e", 30100)).expect(201);
    pintle.http().delete(&format!("{path}/b")).expect(200);
    peer.http().post(&path, &wanting("f", 30200)).expect(201);
}
