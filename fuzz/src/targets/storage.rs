//! What is read from disk or from etcd: files of the embedded store and envelopes of KMS plugins. Each input is
//! read as it is and with its checksums corrected: damage that a checksum finds says nothing about the decoder behind it.

use store::embedded::fuzzing::{self, Log};

use super::{Target, ending};

pub(super) const LOG_RECORD: Target = Target {
    name: "log_record",
    seeds: |_| {
        let first = Log::sample().first;
        // Behind the header of the segment, at the offset of each record.
        (64..first.len()).step_by(8).map(|at| first[at..].to_vec()).collect()
    },
    words: WORDS,
    run: run_record,
};
pub(super) const LOG_SEGMENT: Target = Target {
    name: "log_segment",
    seeds: |_| vec![Log::sample().first, Log::sample().second],
    words: WORDS,
    run: run_segment,
};
pub(super) const LOG_HINT: Target =
    Target { name: "log_hint", seeds: |_| vec![Log::sample().hint], words: WORDS, run: run_hint };
pub(super) const KMS_ENVELOPE: Target = Target {
    name: "kms_envelope",
    seeds: |_| {
        let values: [&[u8]; 2] = [b"", b"{\"kind\":\"Secret\"}"];
        values.iter().map(|value| kms::fuzzing::seal(value, CONTEXT)).collect()
    },
    words: &[
        "\u{0}",
        "\u{1}",
        "\u{8}",
        "\u{a}",
        "\u{12}",
        "\u{1a}",
        "\"",
        "(",
        "key.example.com",
        "/",
        ".",
    ],
    run: run_envelope,
};

const WORDS: &[&str] = &[
    "pintlelg",
    "pintleix",
    "/a",
    "/b",
    "\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}",
    "\u{1}",
    "\u{2}",
    "\u{3}",
    "\u{4}",
    "0",
];
const CONTEXT: &[u8] = b"/registry/secrets/default/a";

fn run_record(input: &[u8]) -> String {
    let raw = fuzzing::decode_record(input);
    let mut repaired = input.to_vec();
    fuzzing::repair_record(&mut repaired);
    format!("{raw:?} {:?}", fuzzing::decode_record(&repaired))
}

/// The input is the first of two segments, then the last one.
fn run_segment(input: &[u8]) -> String {
    let mut repaired = input.to_vec();
    fuzzing::repair_segment(&mut repaired);
    let mut endings = String::new();
    for bytes in [input, &repaired] {
        let first = Log { first: bytes.to_vec(), hint: Vec::new(), ..Log::sample() };
        let second = Log { second: bytes.to_vec(), ..Log::sample() };
        for log in [first, second] {
            endings.push_str(&outcome(log));
            endings.push('|');
        }
    }
    endings
}

fn run_hint(input: &[u8]) -> String {
    let mut repaired = input.to_vec();
    fuzzing::repair_hint(&mut repaired);
    // Without a valid checksum the segment is read instead.
    let raw = outcome(Log { hint: input.to_vec(), ..Log::sample() });
    let bare = outcome(Log { hint: Vec::new(), ..Log::sample() });
    if input != repaired {
        assert_eq!(raw, bare, "a hint file that is damaged is not used");
    }
    outcome(Log { hint: repaired, ..Log::sample() })
}

fn outcome(log: Log) -> String {
    log.read().unwrap_or_else(ending)
}

fn run_envelope(input: &[u8]) -> String {
    match kms::fuzzing::open(input, CONTEXT) {
        Ok(value) => {
            let again = kms::fuzzing::open(&kms::fuzzing::seal(&value, CONTEXT), CONTEXT);
            assert_eq!(again, Ok(value), "a value is sealed and opened");
            assert!(kms::fuzzing::open(input, b"/another").is_err(), "it belongs to its key");
            "opened".to_owned()
        }
        Err(error) => ending(error),
    }
}
