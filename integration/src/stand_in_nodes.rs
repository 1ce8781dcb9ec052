//! Nodes without machines: what a kubelet reports about pods and nodes, so that controllers and a scheduler come
//! to their end.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{Answer, Http};

/// Nodes that run every pod that is bound to them: at once, or to its end if it must not be started again.
/// They are ready until this is dropped.
pub struct StandInNodes {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How often the pods are looked at.
const PERIOD: Duration = Duration::from_millis(50);
/// A node without a sign of life for 40 seconds is not ready.
const HEARTBEAT: Duration = Duration::from_secs(5);

impl StandInNodes {
    pub fn start(http: &Http, names: &[&str]) -> Self {
        for name in names {
            let node = json!({"metadata": {"name": name, "labels": {
                "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
            }}});
            http.post("/api/v1/nodes", &node).expect(201);
            heartbeat(http, name).expect(200);
        }
        let (stop, stopped) = channel();
        let (http, names) = (http.clone(), names.iter().map(|&name| name.to_owned()).collect());
        let thread = thread::spawn(move || run(&http, names, &stopped));
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for StandInNodes {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.expect("is joined once").expect("the nodes have not panicked");
        }
    }
}

fn run(http: &Http, names: Vec<String>, stopped: &Receiver<()>) {
    let names: HashSet<String> = names.into_iter().collect();
    let mut beaten = Instant::now();
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(PERIOD) {
        if beaten.elapsed() > HEARTBEAT {
            beaten = Instant::now();
            for name in &names {
                heartbeat(http, name).expect(200);
            }
        }
        let pods = http.get("/api/v1/pods?resourceVersion=0").expect(200);
        for pod in pods["items"].as_array().expect("a list") {
            if pod["spec"]["nodeName"].as_str().is_some_and(|node| names.contains(node)) {
                run_pod(http, pod);
            }
        }
    }
}

fn heartbeat(http: &Http, node: &str) -> Answer {
    let now = now();
    let status = json!({"status": {
        "capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now,
        }],
    }});
    let path = format!("/api/v1/nodes/{node}/status");
    http.patch(&path, "application/strategic-merge-patch+json", &status)
}

fn run_pod(http: &Http, pod: &Value) {
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}",
        pod["metadata"]["namespace"].as_str().expect("is namespaced"),
        pod["metadata"]["name"].as_str().expect("has a name"),
    );
    // The pod may be gone meanwhile, or another one of its name be there: both are seen at the next look.
    let expect = |answer: &Answer| {
        let (code, text) = (answer.code, answer.text());
        assert!(matches!(code, 200 | 404 | 409), "{path}: {code} {text}");
    };
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        expect(&http.delete(&format!("{path}?gracePeriodSeconds=0")));
        return;
    }
    let ends = pod["spec"]["restartPolicy"] != "Always";
    let phase = if ends { "Succeeded" } else { "Running" };
    if pod["status"]["phase"] == phase {
        return;
    }
    let now = now();
    let state = if ends {
        json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}})
    } else {
        json!({"running": {"startedAt": now}})
    };
    let containers = pod["spec"]["containers"].as_array().expect("a pod has containers");
    let statuses: Vec<Value> = containers
        .iter()
        .map(|container| {
            json!({
                "name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
                "ready": !ends, "started": !ends, "state": state,
            })
        })
        .collect();
    let address = address_of(pod["metadata"]["uid"].as_str().expect("is stored"));
    let ready = if ends { "False" } else { "True" };
    let condition = |kind: &str| json!({"type": kind, "status": ready, "lastTransitionTime": now});
    let status = json!({
        "metadata": {"uid": pod["metadata"]["uid"]},
        "status": {
            "phase": phase, "startTime": now, "containerStatuses": statuses,
            "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [condition("Ready"), condition("ContainersReady"), {
                "type": "Initialized", "status": "True", "lastTransitionTime": now,
            }],
        },
    });
    let patched =
        http.patch(&format!("{path}/status"), "application/strategic-merge-patch+json", &status);
    expect(&patched);
}

/// An address of its own for each pod: endpoints of a Service are told apart by theirs.
fn address_of(uid: &str) -> Ipv4Addr {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let bits = u32::try_from(hasher.finish() & 0x0001_ffff).expect("17 bits");
    // 198.18.0.0/15 is for tests, and not routed.
    Ipv4Addr::from_bits(u32::from_be_bytes([198, 18, 0, 0]) | bits)
}

fn now() -> String {
    k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
