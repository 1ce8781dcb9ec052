//! The Pod Security Standards by the pods that their authors publish: for each level and version, pods that
//! pass and pods that fail each check.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use bytes::Bytes;
use http::Request;
use integration::{Answer, Connection, Flavour, Server, eventually, pod_security_fixtures};
use serde_json::json;

/// The pods of one level and version.
struct Standard {
    level: String,
    version: String,
    directory: PathBuf,
}

fn standards() -> Vec<Standard> {
    let mut standards = Vec::new();
    for level in ["baseline", "restricted"] {
        for directory in entries(&pod_security_fixtures().join(level)) {
            let version = name_of(&directory);
            standards.push(Standard { level: level.to_owned(), version, directory });
        }
    }
    standards
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the published pods are there");
    let mut entries: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    entries.sort();
    entries
}

fn name_of(path: &Path) -> String {
    path.file_name().and_then(|name| name.to_str()).expect("names are text").to_owned()
}

impl Standard {
    /// Creates a namespace that enforces and warns by this level and version.
    fn namespace(&self, server: &Server) -> String {
        let purpose = format!("pss-{}-{}", self.level, self.version.replace('.', "-"));
        let name = server.namespace(&purpose);
        let label = |key: &str| format!("pod-security.kubernetes.io/{key}");
        let labels = json!({
            label("enforce"): self.level, label("enforce-version"): self.version,
            label("warn"): self.level, label("warn-version"): self.version,
        });
        let http = server.http();
        let path = format!("/api/v1/namespaces/{name}");
        let patch = json!({"metadata": {"labels": labels}});
        http.patch(&path, "application/merge-patch+json", &patch).expect(200);
        if server.has_controllers() {
            eventually("the default service account", || {
                let account = http.get(&format!("{path}/serviceaccounts/default"));
                (account.code == 200).then_some(())
            });
        }
        name
    }

    /// Sends every pod of a directory with `send`, and collects what it says is wrong.
    fn check(
        &self,
        outcome: &str,
        mut wrong: impl FnMut(&str) -> Option<String>,
    ) -> (usize, Vec<String>) {
        let (mut count, mut found) = (0, Vec::new());
        for file in entries(&self.directory.join(outcome)) {
            let pod = fs::read_to_string(&file).expect("pods are text");
            // Some are called after their check, which is no name of a pod.
            let name = name_of(&file).replace(".yaml", "");
            let pod = pod.replace(&format!("name: {name}\n"), "name: test\n");
            count += 1;
            if let Some(why) = wrong(&pod) {
                let (level, version, file) = (&self.level, &self.version, name_of(&file));
                found.push(format!("{level}/{version}/{outcome}/{file}: {why}"));
            }
        }
        (count, found)
    }
}

fn dry_run(connection: &mut Connection, path: &str, content_type: &str, body: String) -> Answer {
    let request = Request::post(format!("{path}?dryRun=All"))
        .header("Content-Type", content_type)
        .body(Bytes::from(body))
        .expect("a valid request");
    connection.request(request).expect("the server answers")
}

/// Why the answer to a pod is not the one that the standard asks for.
fn wrong_answer(answer: &Answer, standard: &Standard, passes: bool) -> Option<String> {
    let violates = format!("violates PodSecurity \\\"{}:{}\\\"", standard.level, standard.version);
    let text = answer.text();
    let right = match (passes, answer.code) {
        (true, code) => code == 201,
        (false, 403) => text.contains(&violates),
        // Some of what a standard forbids is no valid pod at all, for another reason.
        (false, code) => code == 422,
    };
    (!right).then(|| format!("{} {text}", answer.code))
}

/// Where nothing but a standard forbids privileged containers.
fn privileged_server() -> Server {
    Server::with(Flavour::from_env(), &["--allow-privileged=true"])
}

#[test]
fn pods_pass_and_fail_as_published() {
    let server = privileged_server();
    let standards = standards();
    assert!(standards.len() > 60, "{} levels and versions", standards.len());
    let (next, played) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut connection = server.http().connect().expect("a connection");
                while let Some(standard) = standards.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let path = format!("/api/v1/namespaces/{}/pods", standard.namespace(&server));
                    for (outcome, passes) in [("pass", true), ("fail", false)] {
                        let (count, found) = standard.check(outcome, |pod| {
                            let pod = pod.to_owned();
                            let answer = dry_run(&mut connection, &path, "application/yaml", pod);
                            wrong_answer(&answer, standard, passes)
                        });
                        played.fetch_add(count, Ordering::Relaxed);
                        wrong.lock().expect("not poisoned").extend(found);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("not poisoned");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(played.into_inner() > 4000, "the directories were read");
}

/// The template of a workload is not refused: it draws a warning.
#[test]
fn workloads_are_warned_about_as_published() {
    let server = privileged_server();
    let mut connection = server.http().connect().expect("a connection");
    let mut wrong = Vec::new();
    for standard in standards().iter().filter(|standard| standard.version == "v1.35") {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments", standard.namespace(&server));
        let warned = format!("would violate PodSecurity \"{}:v1.35\"", standard.level);
        for (outcome, passes) in [("pass", true), ("fail", false)] {
            let (_, found) = standard.check(outcome, |pod| {
                let answer = dry_run(&mut connection, &path, "application/yaml", deployment(pod));
                let mut warnings = answer.headers.get_all("warning").iter();
                let has_warning = warnings.any(|warning| {
                    warning.to_str().is_ok_and(|text| text.replace('\\', "").contains(&warned))
                });
                let right = match (passes, answer.code) {
                    (_, 201) => has_warning != passes,
                    // Some of what a standard forbids is no valid pod at all, for another reason.
                    (passes, code) => !passes && code == 422,
                };
                (!right).then(|| format!("{} {:?}", answer.code, answer.headers))
            });
            wrong.extend(found);
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A Deployment that would make this pod.
fn deployment(pod: &str) -> String {
    let (_, pod) = pod.split_once("metadata:\n").expect("a pod has metadata");
    let template = pod.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: test}}\nspec:\n  \
         selector: {{matchLabels: {{test: 'true'}}}}\n  template:\n    metadata:\n      \
         labels: {{test: 'true'}}\n{template}"
    )
}
