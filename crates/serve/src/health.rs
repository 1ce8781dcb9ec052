//! `/healthz`, `/livez`, `/readyz`: is the server well, should it be restarted, may it be used?

mod slis;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use meta::Query;
use tokio::sync::watch;

use self::slis::Slis;
use crate::Body;

/// One thing that must hold.
#[derive(Clone)]
pub struct Check {
    pub name: String,
    pub healthz: bool,
    pub livez: bool,
    pub readyz: bool,
    /// A part of the start: `/livez` takes it for done within `--livez-grace-period`.
    pub boot_sequence: bool,
    /// `?exclude=` of this name excludes the check too.
    pub group: Option<&'static str>,
    /// Err: why it doesn't hold. Clients are not told; the log is.
    pub probe: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Check {
    /// A check that all three endpoints show.
    pub fn new(
        name: impl Into<String>,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            healthz: true,
            livez: true,
            readyz: true,
            boot_sequence: false,
            group: None,
            probe: Arc::new(probe),
        }
    }

    /// A part of the start.
    #[must_use]
    pub fn boot_sequence(mut self) -> Self {
        self.boot_sequence = true;
        self
    }

    #[must_use]
    pub fn in_group(mut self, group: &'static str) -> Self {
        self.group = Some(group);
        self
    }

    /// Fails where only a restart helps; whether the server may be used is for others to say.
    #[must_use]
    pub fn alive_only(mut self) -> Self {
        self.readyz = false;
        self
    }

    /// Says nothing about whether the process should live.
    #[must_use]
    pub fn ready_only(mut self) -> Self {
        (self.healthz, self.livez) = (false, false);
        self
    }
}

/// A post-start hook as the health endpoints and other hooks see it: its check fails until it is done.
#[derive(Clone, Debug)]
pub struct Hook(watch::Sender<bool>);

impl Default for Hook {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Hook {
    pub fn done(&self) {
        self.0.send_replace(true);
    }

    pub fn is_done(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is done.
    pub async fn finished(&self) {
        // The sender is `self`, so it cannot be gone.
        let _ = self.0.subscribe().wait_for(|done| *done).await;
    }

    pub fn check(&self, name: &str) -> Check {
        let hook = self.clone();
        Check::new(format!("poststarthook/{name}"), move || {
            if hook.is_done() { Ok(()) } else { Err("not finished".to_owned()) }
        })
        .boot_sequence()
    }
}

/// All checks, in the order in which they are shown.
pub struct Health {
    checks: Vec<Check>,
    started: Instant,
    /// For so long after the start `/livez` takes the boot sequence for done.
    livez_grace: Duration,
    slis: Slis,
}

impl Health {
    pub fn new(checks: Vec<Check>, livez_grace: Duration) -> Self {
        Self { checks, started: Instant::now(), livez_grace, slis: Slis::new() }
    }

    /// The answer to `/metrics/slis`.
    pub fn slis(&self) -> Vec<u8> {
        self.slis.render()
    }

    /// `DELETE /metrics/slis`.
    pub fn reset_slis(&self) {
        self.slis.reset();
    }

    /// The paths of the endpoints and of each check.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for endpoint in ["healthz", "livez", "readyz"] {
            paths.push(format!("/{endpoint}"));
            let checks = self.checks.iter().filter(|check| shown(check, endpoint));
            paths.extend(checks.map(|check| format!("/{endpoint}/{}", check.name)));
        }
        paths
    }

    /// Answers one of the paths; None for others.
    pub fn answer(&self, path: &str, query: &Query) -> Option<Response<Body>> {
        let path = path.strip_prefix('/')?;
        let (endpoint, name) = path.split_once('/').unwrap_or((path, ""));
        if !matches!(endpoint, "healthz" | "livez" | "readyz") {
            return None;
        }
        let shown: Vec<&Check> =
            self.checks.iter().filter(|check| shown(check, endpoint)).collect();
        if path == endpoint {
            return Some(self.all(endpoint, &shown, query));
        }
        let check = shown.into_iter().find(|check| check.name == name)?;
        Some(match self.probe(endpoint, check) {
            // Compat: this answer alone has no `X-Content-Type-Options: nosniff`.
            Ok(()) => {
                let mut ok = text(StatusCode::OK, "ok");
                ok.headers_mut().remove(X_CONTENT_TYPE_OPTIONS);
                ok
            }
            Err(why) => {
                text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
            }
        })
    }

    fn all(&self, endpoint: &str, checks: &[&Check], query: &Query) -> Response<Body> {
        let excluded: BTreeSet<&str> = query.all("exclude").collect();
        let mut unknown = excluded.clone();
        let (mut lines, mut failed, mut reasons) = (String::new(), Vec::new(), String::new());
        for check in checks {
            let name = check.name.as_str();
            if excluded.contains(name) {
                unknown.remove(name);
                lines.push_str(&format!("[+]{name} excluded: ok\n"));
                continue;
            }
            if let Some(group) = check.group.filter(|group| excluded.contains(group)) {
                unknown.remove(group);
                lines.push_str(&format!("[+]{name} excluded with {group}: ok\n"));
                continue;
            }
            let verdict = self.probe(endpoint, check);
            self.slis.note(name, endpoint, verdict.is_ok());
            match verdict {
                Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
                Err(why) => {
                    lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
                    reasons.push_str(&format!("[-]{name} failed: {why}\n"));
                    failed.push(name);
                }
            }
        }
        if !unknown.is_empty() {
            let names: Vec<String> = unknown.iter().map(|name| meta::field::quote(name)).collect();
            lines.push_str(&format!(
                "warn: some health checks cannot be excluded: no matches for {}\n",
                names.join(", ")
            ));
        }
        if !failed.is_empty() {
            tracing::info!(v = 2, "{} check failed: {endpoint}\n{reasons}", failed.join(","));
            lines.push_str(&format!("{endpoint} check failed\n"));
            return text(StatusCode::INTERNAL_SERVER_ERROR, lines);
        }
        if query.get("verbose").is_none() {
            return text(StatusCode::OK, "ok");
        }
        lines.push_str(&format!("{endpoint} check passed\n"));
        text(StatusCode::OK, lines)
    }

    fn probe(&self, endpoint: &str, check: &Check) -> Result<(), String> {
        let within_grace =
            endpoint == "livez" && check.boot_sequence && self.started.elapsed() < self.livez_grace;
        if within_grace { Ok(()) } else { (check.probe)() }
    }

    /// Whether `/readyz` would say ok.
    pub fn is_ready(&self) -> bool {
        self.checks.iter().filter(|check| check.readyz).all(|check| (check.probe)().is_ok())
    }
}

fn shown(check: &Check, endpoint: &str) -> bool {
    match endpoint {
        "livez" => check.livez,
        "readyz" => check.readyz,
        _ => check.healthz,
    }
}

/// Plain text that browsers must not take for another type.
pub(crate) fn text(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> (Health, Hook) {
        let hook = Hook::default();
        let checks = vec![
            Check::new("ping", || Ok(())),
            Check::new("etcd-readiness", || Ok(())).ready_only(),
            hook.check("start"),
        ];
        (Health::new(checks, Duration::ZERO), hook)
    }

    #[track_caller]
    fn check(health: &Health, path: &str, query: &str, expected: &str) {
        let answer = health.answer(path, &Query::parse(query).unwrap());
        let shown = answer.map_or("none".to_owned(), |answer| {
            let body = String::from_utf8(answer.body().as_bytes().unwrap().to_vec()).unwrap();
            format!("{} {body}", answer.status().as_u16())
        });
        assert_eq!(shown, expected, "{path}?{query}");
    }

    #[test]
    fn a_failing_check_fails_its_endpoint_and_keeps_its_reason() {
        let (health, hook) = health();
        let failing =
            "500 [+]ping ok\n[-]poststarthook/start failed: reason withheld\nlivez check failed\n";
        check(&health, "/livez", "", failing);
        check(&health, "/livez/ping", "", "200 ok");
        check(&health, "/livez/etcd-readiness", "", "none");
        check(&health, "/livez", "exclude=poststarthook/start", "200 ok");
        hook.done();
        check(&health, "/livez", "", "200 ok");
        check(
            &health,
            "/readyz",
            "verbose&exclude=ping&exclude=x",
            "200 [+]ping excluded: ok\n[+]etcd-readiness ok\n[+]poststarthook/start ok\n\
             warn: some health checks cannot be excluded: no matches for \"x\"\nreadyz check passed\n",
        );
    }

    #[test]
    fn exclusions_are_a_set_and_may_name_a_group() {
        let checks = vec![
            Check::new("etcd", || Err("down".to_owned())).in_group("etcd"),
            Check::new("etcd-override-0", || Err("down".to_owned())).in_group("etcd"),
        ];
        let health = Health::new(checks, Duration::ZERO);
        check(
            &health,
            "/livez",
            "verbose&exclude=etcd&exclude=etcd&exclude=z&exclude=a",
            "200 [+]etcd excluded: ok\n[+]etcd-override-0 excluded with etcd: ok\n\
             warn: some health checks cannot be excluded: no matches for \"a\", \"z\"\n\
             livez check passed\n",
        );
    }

    #[test]
    fn livez_alone_has_a_grace_period_for_the_boot_sequence_alone() {
        let failing = || Err::<(), _>("not yet".to_owned());
        let checks = vec![
            Hook::default().check("start"),
            Check::new("autoregister-completion", failing).boot_sequence(),
        ];
        let health = Health::new(checks, Duration::from_hours(1));
        check(&health, "/livez", "", "200 ok");
        check(&health, "/livez/autoregister-completion", "", "200 ok");
        let not_yet = "500 internal server error: not yet\n";
        check(&health, "/readyz/autoregister-completion", "", not_yet);
        check(&health, "/healthz/autoregister-completion", "", not_yet);
        let health = Health::new(vec![Check::new("etcd", failing)], Duration::from_hours(1));
        check(&health, "/livez/etcd", "", not_yet);
    }

    #[test]
    fn the_checks_of_an_endpoint_are_counted() {
        let (health, hook) = health();
        check(&health, "/livez", "exclude=poststarthook/start", "200 ok");
        // Compat: a check that is asked for alone is not.
        check(
            &health,
            "/readyz/poststarthook/start",
            "",
            "500 internal server error: not finished\n",
        );
        assert!(!health.is_ready());
        let failing = "500 [+]ping excluded: ok\n[+]etcd-readiness excluded: ok\n\
             [-]poststarthook/start failed: reason withheld\nreadyz check failed\n";
        check(&health, "/readyz", "exclude=ping&exclude=etcd-readiness", failing);
        hook.done();
        check(&health, "/readyz", "exclude=ping&exclude=etcd-readiness", "200 ok");
        let rendered = String::from_utf8(health.slis()).unwrap();
        let lines: Vec<&str> = rendered.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            r#"kubernetes_healthcheck{name="ping",type="livez"} 1"#,
            r#"kubernetes_healthcheck{name="poststarthook/start",type="readyz"} 1"#,
            r#"kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 1"#,
            r#"kubernetes_healthchecks_total{name="poststarthook/start",status="error",type="readyz"} 1"#,
            r#"kubernetes_healthchecks_total{name="poststarthook/start",status="success",type="readyz"} 1"#,
        ];
        assert_eq!(lines, expected);
    }
}
