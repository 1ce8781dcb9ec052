//! Every decoder for about a second, from a seed that is always the same. `cargo run --release -p fuzz` goes on from there.

use std::time::Duration;

use fuzz::{TARGETS, drive};

/// One test for each target, so that they run side by side and fail by name.
macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { run(stringify!($name)); })*

        #[test]
        fn every_target_is_driven() {
            let named = [$(stringify!($name)),*];
            let all: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(all, named);
        }
    };
}

targets![
    json,
    json_any,
    stored,
    yaml,
    protobuf,
    cbor,
    json_patch,
    merge_patch,
    strategic_patch,
    apply,
    fields_v1,
    label_selector,
    field_selector,
    continue_token,
    query,
    accept,
    quantity,
    time,
    duration,
    cel,
    regex,
    json_path,
    traceparent,
    jwt,
    der,
    websocket,
    kubeconfig,
    websocket_messages,
    spdy,
    log_record,
    log_segment,
    log_hint,
    kms_envelope,
];

fn run(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target by its name");
    let report = drive(target, 1, Duration::from_millis(1200));
    // Shown with --nocapture.
    println!("{name}: {} inputs, {} endings", report.inputs, report.kept);
    assert!(report.inputs > 20, "{name} is slow: {report:?}");
    assert!(report.kept > 1, "{name} always ends alike: {report:?}");
}
