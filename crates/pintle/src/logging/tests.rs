use std::io;

use tracing::{debug, error, info, trace, warn};

use super::*;

/// What `body` logs under the given settings, at one second and a half after the epoch.
fn logged(settings: &Settings, body: impl FnOnce(&Verbosity)) -> String {
    let out = Shared::default();
    let mut logger = Logger::new(settings, Box::new(out.clone()));
    logger.time_zone = TimeZone::UTC;
    logger.process = 42;
    logger.now = || Timestamp::from_microsecond(1_500_007).expect("within the range of time");
    let verbosity = logger.verbosity.clone();
    tracing::subscriber::with_default(logger, || body(&verbosity));
    let bytes = out.0.lock().expect("no test panics while it writes").clone();
    // Line numbers of this file change with every edit.
    let text = String::from_utf8(bytes).expect("log lines are UTF-8");
    let parts =
        text.split("tests.rs:").map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
    parts.collect::<Vec<_>>().join("tests.rs:N")
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no test panics while it writes").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn settings(format: Format, verbosity: u32) -> Settings {
    Settings { format, verbosity, vmodule: Vec::new() }
}

#[test]
fn text_lines_look_like_klog() {
    let lines = logged(&settings(Format::Text, 0), |_| {
        info!("Serving on {}", "127.0.0.1:6443");
        warn!(flag = "--watch-cache", count = 3, ok = true, "No \"effect\"");
        error!(err = %io::Error::other("disk full\nE0101 forged"), "Cannot write");
        info!("forged\nE0101");
    });
    let expected = r#"I0101 00:00:01.500007      42 tests.rs:N] Serving on 127.0.0.1:6443
W0101 00:00:01.500007      42 tests.rs:N] "No \"effect\"" flag="--watch-cache" count=3 ok=true
E0101 00:00:01.500007      42 tests.rs:N] "Cannot write" err="disk full\nE0101 forged"
I0101 00:00:01.500007      42 tests.rs:N] "forged\nE0101"
"#;
    assert_eq!(lines, expected);
}

#[test]
fn json_lines_have_the_fields_of_kubernetes() {
    let lines = logged(&settings(Format::Json, 4), |_| {
        info!(v = 2, path = "/a\"b\u{1}", share = 0.5, "Compacted");
        debug!("Looking");
        error!(err = "no", "Failed");
    });
    let expected = r#"{"ts":1500.007,"caller":"pintle/tests.rs:N","msg":"Compacted","v":2,"path":"/a\"b\u0001","share":0.5}
{"ts":1500.007,"caller":"pintle/tests.rs:N","msg":"Looking","v":4}
{"ts":1500.007,"caller":"pintle/tests.rs:N","msg":"Failed","err":"no"}
"#;
    assert_eq!(lines, expected);
}

fn one_event_per_level() {
    error!("E");
    warn!("W");
    info!("I");
    info!(v = 2, "I2");
    debug!("D");
    trace!("T");
}

/// The messages only.
fn messages(lines: &str) -> String {
    lines.lines().map(|line| line.rsplit("] ").next().unwrap_or(line)).collect::<Vec<_>>().join(" ")
}

#[test]
fn verbosity_decides_what_is_logged_and_can_change() {
    let cases = [(0, "E W I"), (2, "E W I I2"), (4, "E W I I2 D"), (5, "E W I I2 D T")];
    for (verbosity, expected) in cases {
        let lines = logged(&settings(Format::Text, verbosity), |_| one_event_per_level());
        assert_eq!(messages(&lines), expected, "--v={verbosity}");
    }
    let lines = logged(&settings(Format::Text, 0), |verbosity| {
        debug!("before");
        verbosity.set(4);
        assert_eq!(verbosity.get(), 4);
        debug!("after");
        verbosity.set(0);
        debug!("again");
    });
    assert_eq!(messages(&lines), "after");
}

#[test]
fn a_file_can_have_its_own_verbosity() {
    let vmodule = vec![("tests".to_owned(), 5)];
    let lines =
        logged(&Settings { vmodule, ..settings(Format::Text, 0) }, |_| one_event_per_level());
    assert_eq!(messages(&lines), "E W I I2 D T");
    let vmodule = vec![("te?t".to_owned(), 5)];
    let lines =
        logged(&Settings { vmodule, ..settings(Format::Text, 0) }, |_| one_event_per_level());
    assert_eq!(messages(&lines), "E W I");
}

#[test]
fn a_long_value_of_a_client_is_cut() {
    let path = "é".repeat(30_000);
    let lines = logged(&settings(Format::Text, 0), |_| {
        tracing::info!(path = path.as_str(), "{path}");
        tracing::info!("{path}");
    });
    assert!(lines.lines().all(|line| line.len() < 5_000 && line.contains('…')), "{lines:.100}");
    assert_eq!(lines.lines().count(), 2);
}
