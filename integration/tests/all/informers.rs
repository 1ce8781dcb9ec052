//! The informers of client-go, on which nearly every controller is built.

use std::env;
use std::process::Command;

use integration::{informer, shared};
use serde_json::Value;

/// How long others write. `PINTLE_INFORMER_SECONDS` makes it minutes.
const SECONDS: u32 = 4;

#[test]
fn informers_see_every_write_once_without_a_relist() {
    let server = shared();
    let namespace = server.namespace("informers");
    let seconds = env::var("PINTLE_INFORMER_SECONDS").ok().and_then(|text| text.parse().ok());
    let output = Command::new(informer())
        .arg(format!("--kubeconfig={}", server.kubeconfig().display()))
        .arg(format!("--namespace={namespace}"))
        .arg(format!("--seconds={}", seconds.unwrap_or(SECONDS)))
        .output()
        .expect("the program can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("a summary");
    // Shown with --nocapture.
    println!("{summary}");
    // The program checks the events; this only makes sure that there were some.
    assert!(summary["events"].as_u64() > Some(100), "{summary}");
    assert_eq!((&summary["lists"], &summary["streams"]), (&0.into(), &2.into()), "{summary}");
}
