//! The settings of `--audit-*`, validated with kube-apiserver's messages.

use std::{path::PathBuf, time::Duration};

use meta::{field::quote, json::show_float};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// None: nothing is recorded.
    pub policy_file: Option<PathBuf>,
    pub log: LogOptions,
    pub webhook: WebhookOptions,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogOptions {
    /// Empty: no log. `-` is standard output.
    pub path: String,
    pub format: String,
    pub version: String,
    pub max_age_days: i64,
    pub max_backups: i64,
    pub max_size_megabytes: i64,
    pub compress: bool,
    pub delivery: DeliveryOptions,
    pub truncate: TruncateOptions,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebhookOptions {
    /// None: no webhook.
    pub config_file: Option<PathBuf>,
    pub version: String,
    pub initial_backoff: Duration,
    pub delivery: DeliveryOptions,
    pub truncate: TruncateOptions,
}

/// How events get to a backend. All but the mode is for batches only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryOptions {
    pub mode: String,
    pub buffer_size: i64,
    pub max_batch_size: i64,
    pub max_batch_wait: Duration,
    pub throttle_enable: bool,
    pub throttle_qps: f32,
    pub throttle_burst: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TruncateOptions {
    pub enabled: bool,
    pub max_event_bytes: i64,
    pub max_batch_bytes: i64,
}

pub(crate) const BATCH: &str = "batch";
pub(crate) const BLOCKING: &str = "blocking";
pub(crate) const BLOCKING_STRICT: &str = "blocking-strict";
const MODES: [&str; 3] = [BATCH, BLOCKING, BLOCKING_STRICT];

pub(crate) const LEGACY: &str = "legacy";
const FORMATS: [&str; 2] = [LEGACY, "json"];

impl Options {
    /// Everything that is wrong. A backend that is not used is not looked at.
    pub fn validate(&self) -> Vec<String> {
        let mut errors = Vec::new();
        if !self.log.path.is_empty() {
            self.log.validate(&mut errors);
        }
        if self.webhook.config_file.is_some() {
            self.webhook.delivery.validate("webhook", &mut errors);
            self.webhook.truncate.validate("webhook", &mut errors);
            validate_version(&self.webhook.version, &mut errors);
        }
        errors
    }
}

impl LogOptions {
    fn validate(&self, errors: &mut Vec<String>) {
        self.delivery.validate("log", errors);
        self.truncate.validate("log", errors);
        validate_version(&self.version, errors);
        if !FORMATS.contains(&self.format.as_str()) {
            let allowed = quote(&FORMATS.join(","));
            let format = &self.format;
            errors
                .push(format!("invalid audit log format {format}, allowed formats are {allowed}"));
        }
        for (flag, number) in [
            ("maxage", self.max_age_days),
            ("maxbackup", self.max_backups),
            ("maxsize", self.max_size_megabytes),
        ] {
            if number < 0 {
                errors.push(format!("--audit-log-{flag} {number} can't be a negative number"));
            }
        }
    }
}

impl DeliveryOptions {
    /// Compat: one error at most.
    fn validate(&self, plugin: &str, errors: &mut Vec<String>) {
        let mode = &self.mode;
        if !MODES.contains(&mode.as_str()) {
            let allowed = quote(&MODES.join(","));
            errors.push(format!("invalid audit {plugin} mode {mode}, allowed modes are {allowed}"));
            return;
        }
        if mode != BATCH {
            return;
        }
        let qps = show_float(f64::from(self.throttle_qps));
        let throttled = self.throttle_enable;
        let rules = [
            (self.buffer_size > 0, "buffer size", self.buffer_size.to_string()),
            (self.max_batch_size > 0, "max batch size", self.max_batch_size.to_string()),
            // Written so that NaN is refused as well.
            (!throttled || self.throttle_qps > 0.0, "throttle QPS", qps),
            (
                !throttled || self.throttle_burst > 0,
                "throttle burst",
                self.throttle_burst.to_string(),
            ),
        ];
        if let Some((_, what, value)) = rules.iter().find(|(fine, ..)| !fine) {
            errors.push(format!(
                "invalid audit batch {plugin} {what} {value}, must be a positive number"
            ));
        }
    }
}

impl TruncateOptions {
    fn validate(&self, plugin: &str, errors: &mut Vec<String>) {
        let (event, batch) = (self.max_event_bytes, self.max_batch_bytes);
        if event <= 0 {
            errors.push(format!(
                "invalid audit truncate {plugin} max event size {event}, must be a positive number"
            ));
        } else if batch < event {
            errors.push(format!(
                "invalid audit truncate {plugin} max batch size {batch}, must be greater than max \
                 event size ({event})"
            ));
        }
    }
}

fn validate_version(version: &str, errors: &mut Vec<String>) {
    match version {
        "audit.k8s.io/v1" => {}
        version if version.matches('/').count() > 1 => {
            errors.push(format!("unexpected GroupVersion string: {version}"));
        }
        _ => errors
            .push("invalid group version, allowed versions are [\"audit.k8s.io/v1\"]".to_owned()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn delivery(mode: &str) -> DeliveryOptions {
        DeliveryOptions {
            mode: mode.to_owned(),
            buffer_size: 100,
            max_batch_size: 1,
            ..DeliveryOptions::default()
        }
    }

    pub(crate) fn truncate() -> TruncateOptions {
        TruncateOptions { enabled: false, max_event_bytes: 1024, max_batch_bytes: 4096 }
    }

    pub(crate) fn log(path: &str) -> LogOptions {
        LogOptions {
            path: path.to_owned(),
            format: "json".to_owned(),
            version: "audit.k8s.io/v1".to_owned(),
            delivery: delivery(BLOCKING),
            truncate: truncate(),
            ..LogOptions::default()
        }
    }

    type Change = fn(&mut LogOptions);

    #[test]
    fn settings_are_refused_in_the_words_of_kubernetes() {
        let cases: [(Change, &str); 12] = [
            (|_| {}, ""),
            (
                |log| log.delivery.mode = "x".to_owned(),
                "invalid audit log mode x, allowed modes are \"batch,blocking,blocking-strict\"",
            ),
            (|log| log.delivery.buffer_size = 0, ""),
            (
                |log| log.delivery = DeliveryOptions { buffer_size: 0, ..delivery(BATCH) },
                "invalid audit batch log buffer size 0, must be a positive number",
            ),
            (
                |log| log.delivery = DeliveryOptions { max_batch_size: -1, ..delivery(BATCH) },
                "invalid audit batch log max batch size -1, must be a positive number",
            ),
            (
                |log| log.delivery = DeliveryOptions { throttle_enable: true, ..delivery(BATCH) },
                "invalid audit batch log throttle QPS 0, must be a positive number",
            ),
            (
                |log| {
                    log.delivery = DeliveryOptions {
                        throttle_enable: true,
                        throttle_qps: 0.5,
                        ..delivery(BATCH)
                    };
                },
                "invalid audit batch log throttle burst 0, must be a positive number",
            ),
            (
                |log| log.truncate.max_event_bytes = 0,
                "invalid audit truncate log max event size 0, must be a positive number",
            ),
            (
                |log| log.truncate.max_batch_bytes = 3,
                "invalid audit truncate log max batch size 3, must be greater than max event size (1024)",
            ),
            (
                |log| log.version = "audit.k8s.io/v1beta1".to_owned(),
                "invalid group version, allowed versions are [\"audit.k8s.io/v1\"]",
            ),
            (
                |log| log.format = "xml".to_owned(),
                "invalid audit log format xml, allowed formats are \"legacy,json\"",
            ),
            (
                |log| (log.max_age_days, log.max_backups, log.max_size_megabytes) = (-1, -2, -3),
                "--audit-log-maxage -1 can't be a negative number; \
                 --audit-log-maxbackup -2 can't be a negative number; \
                 --audit-log-maxsize -3 can't be a negative number",
            ),
        ];
        for (change, expected) in cases {
            let mut options = Options { log: log("a"), ..Options::default() };
            change(&mut options.log);
            assert_eq!(options.validate().join("; "), expected);
            options.log.path.clear();
            assert_eq!(options.validate(), Vec::<String>::new(), "a log that is not used");
        }
    }
}
