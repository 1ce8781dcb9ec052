//! The settings of `--audit-*`.

use audit::{DeliveryOptions, LogOptions, Options, TruncateOptions, WebhookOptions};

use super::{duration, path};
use crate::flags::Parsed;

pub(super) fn from_flags(parsed: &Parsed, errors: &mut Vec<String>) -> Options {
    let backoff = if parsed.is_given("audit-webhook-initial-backoff") {
        "audit-webhook-initial-backoff"
    } else {
        "audit-webhook-batch-initial-backoff"
    };
    let options = Options {
        policy_file: path(parsed, "audit-policy-file"),
        log: LogOptions {
            path: parsed.text("audit-log-path"),
            format: parsed.text("audit-log-format"),
            version: parsed.text("audit-log-version"),
            max_age_days: parsed.int("audit-log-maxage"),
            max_backups: parsed.int("audit-log-maxbackup"),
            max_size_megabytes: parsed.int("audit-log-maxsize"),
            compress: parsed.bool("audit-log-compress"),
            delivery: delivery(parsed, "log"),
            truncate: truncate(parsed, "log"),
        },
        webhook: WebhookOptions {
            config_file: path(parsed, "audit-webhook-config-file"),
            version: parsed.text("audit-webhook-version"),
            initial_backoff: duration(parsed, backoff),
            delivery: delivery(parsed, "webhook"),
            truncate: truncate(parsed, "webhook"),
        },
    };
    errors.extend(options.validate());
    options
}

fn delivery(parsed: &Parsed, plugin: &str) -> DeliveryOptions {
    let flag = |name: &str| format!("audit-{plugin}-{name}");
    DeliveryOptions {
        mode: parsed.text(&flag("mode")),
        buffer_size: parsed.int(&flag("batch-buffer-size")),
        max_batch_size: parsed.int(&flag("batch-max-size")),
        max_batch_wait: duration(parsed, &flag("batch-max-wait")),
        throttle_enable: parsed.bool(&flag("batch-throttle-enable")),
        throttle_qps: parsed.float(&flag("batch-throttle-qps")) as f32,
        throttle_burst: parsed.int(&flag("batch-throttle-burst")),
    }
}

fn truncate(parsed: &Parsed, plugin: &str) -> TruncateOptions {
    let flag = |name: &str| format!("audit-{plugin}-truncate-{name}");
    TruncateOptions {
        enabled: parsed.bool(&flag("enabled")),
        max_event_bytes: parsed.int(&flag("max-event-size")),
        max_batch_bytes: parsed.int(&flag("max-batch-size")),
    }
}
