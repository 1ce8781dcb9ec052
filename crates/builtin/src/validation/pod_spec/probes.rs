//! What the kubelet does to a container: probes, and handlers around its life.

use meta::{
    FieldErrors, Value,
    names::{is_http_header_name, is_port_name, is_port_number},
};

use crate::validation::{cursor::Field, lists::SIGNALS};

/// The lifecycle and the probes of a container.
pub(crate) fn validate(container: &Field<'_>, spec: &Field<'_>, errors: &mut FieldErrors) {
    let grace = spec.get("terminationGracePeriodSeconds").int();
    let lifecycle = container.get("lifecycle");
    for name in ["postStart", "preStop"] {
        if lifecycle.get(name).is_set() {
            handler(&lifecycle.get(name), LIFECYCLE_HANDLERS, grace, errors);
        }
    }
    stop_signal(&lifecycle.get("stopSignal"), spec, errors);
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.get(name);
        if !probe.is_set() {
            continue;
        }
        self::probe(&probe, errors);
        let threshold = probe.get("successThreshold");
        let seconds = probe.get("terminationGracePeriodSeconds");
        if name != "readinessProbe" {
            if threshold.int().is_some_and(|threshold| threshold != 1) {
                threshold.invalid(errors, "must be 1");
            }
        } else if seconds.is_set() {
            seconds.invalid(errors, "must not be set for readinessProbes");
        }
    }
}

fn probe(probe: &Field<'_>, errors: &mut FieldErrors) {
    handler(probe, PROBE_HANDLERS, None, errors);
    for name in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        probe.get(name).non_negative(errors);
    }
    let seconds = probe.get("terminationGracePeriodSeconds");
    if seconds.int().is_some_and(|seconds| seconds <= 0) {
        seconds.invalid(errors, "must be greater than 0");
    }
}

const PROBE_HANDLERS: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc"];
const LIFECYCLE_HANDLERS: &[&str] = &["exec", "httpGet", "tcpSocket", "sleep"];

fn handler(parent: &Field<'_>, names: &[&str], grace: Option<i64>, errors: &mut FieldErrors) {
    let mut found = false;
    for name in names {
        let handler = parent.get(name);
        if !handler.is_set() {
            continue;
        }
        if found {
            handler.forbidden(errors, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *name {
            "exec" => drop(handler.get("command").require(errors)),
            "httpGet" => http_get(&handler, errors),
            "tcpSocket" => port(&handler.get("port"), errors),
            "grpc" => handler.get("port").int_rule(errors, is_port_number),
            _ => sleep(&handler, grace, errors),
        }
    }
    if !found {
        parent.required(errors, "must specify a handler type");
    }
}

fn http_get(get: &Field<'_>, errors: &mut FieldErrors) {
    port(&get.get("port"), errors);
    get.get("scheme").one_of_or_default(errors, &["HTTP", "HTTPS"]);
    let headers = get.get("httpHeaders");
    for header in headers.items() {
        let name = header.str_at(&["name"]);
        for why in is_http_header_name(name) {
            headers.invalid_value(errors, name, &why);
        }
    }
}

/// A port's number or name.
pub(crate) fn port(port: &Field<'_>, errors: &mut FieldErrors) {
    match port.value() {
        Some(Value::String(_)) => port.rule(errors, is_port_name),
        _ => port.int_rule(errors, is_port_number),
    }
}

fn sleep(sleep: &Field<'_>, grace: Option<i64>, errors: &mut FieldErrors) {
    let seconds = sleep.get("seconds").int_or_zero();
    if let Some(grace) = grace
        && !(0..=grace).contains(&seconds)
    {
        let why =
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        sleep.invalid_value(errors, seconds, &why);
    }
}

fn stop_signal(signal: &Field<'_>, spec: &Field<'_>, errors: &mut FieldErrors) {
    if !signal.is_set() {
        return;
    }
    match spec.value_at(&["os"]).map(|os| os.str_at(&["name"])) {
        None => signal.forbidden(errors, "may not be set for containers with empty `spec.os.name`"),
        Some("windows") => signal.one_of(errors, &["SIGKILL", "SIGTERM"]),
        Some("linux") => signal.one_of(errors, SIGNALS),
        Some(_) => {}
    }
}
