use std::io::{self, Write};
use std::sync::Mutex;

use tracing::{debug, error, info, trace, warn};

use super::*;

/// What `body` logs under the given settings, at one second and a half after the epoch.
fn logged(settings: &Settings, body: impl FnOnce(&Verbosity)) -> String {
    let out = Shared::default();
    let output = Output::single(Box::new(out.clone()));
    let mut logger = Logger::new(settings, Arc::new(output));
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
    let (vmodule, flush_interval) = (Vec::new(), Duration::from_secs(5));
    Settings { format, verbosity, vmodule, split: None, flush_interval }
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

#[test]
fn every_crate_of_the_workspace_is_known() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a directory");
    let entries = std::fs::read_dir(crates).expect("the crates");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().replace('-', "_"))
        .collect();
    names.sort();
    assert_eq!(names, OWN_CRATES);
}

/// What one event of a library at each level, and the log of a request, leave at a verbosity.
fn library_events() {
    error!(target: "h2::codec", "E");
    warn!(target: "h2::codec", "W");
    info!(target: "tonic::transport", "I");
    debug!(target: "hyper::proto", "D");
    trace!(target: "h2::frame", "T");
    debug!(target: "serve::request_log", "HTTP");
}

#[test]
fn libraries_are_silent_and_requests_logged_by_verbosity() {
    let cases = [(0, "E W"), (2, "E W"), (3, "E W HTTP"), (9, "E W HTTP"), (10, "E W I D T HTTP")];
    for (verbosity, expected) in cases {
        let lines = logged(&settings(Format::Text, verbosity), |_| library_events());
        assert_eq!(messages(&lines), expected, "--v={verbosity}");
    }
}

/// Errors are on one stream, the rest on the other; what is buffered is there after a flush.
#[test]
fn streams_are_split_by_severity() {
    let text = |shared: &Shared| {
        String::from_utf8(shared.0.lock().expect("no panic").clone()).expect("UTF-8")
    };
    for (format, buffer, on_errors) in
        [(Format::Text, 0, "E W"), (Format::Json, 0, "E"), (Format::Text, 1 << 20, "E W")]
    {
        let (info, errors) = (Shared::default(), Shared::default());
        let output = Output::split(Box::new(info.clone()), Box::new(errors.clone()), buffer);
        let output = Arc::new(output);
        let logger = Logger::new(&settings(format, 0), output.clone());
        tracing::subscriber::with_default(logger, || {
            error!("E");
            warn!("W");
            info!("I");
        });
        assert_eq!(text(&info).is_empty(), buffer > 0, "{}", text(&info));
        output.flush();
        let lines = |shared: &Shared, message: &str| {
            let text = text(shared);
            text.contains(&format!("] {message:?}"))
                || text.contains(&format!("\"msg\":{message:?}"))
                || text.contains(&format!("] {message}"))
        };
        for message in ["E", "W", "I"] {
            let expected = on_errors.contains(message);
            assert_eq!(
                lines(&errors, message),
                expected,
                "{format:?} {message}: {}",
                text(&errors)
            );
            assert_eq!(lines(&info, message), !expected, "{format:?} {message}: {}", text(&info));
        }
    }
}

#[test]
fn the_time_zone_is_that_of_the_system() {
    let (own, system) = (local_time_zone(), TimeZone::system());
    for seconds in [0, 1_000_000_000, 1_700_000_000, 1_720_000_000] {
        let at = Timestamp::from_second(seconds).expect("within the range of time");
        assert_eq!(own.to_offset(at), system.to_offset(at), "{at}");
    }
}
