//! Whole exchanges, compared byte by byte with what kube-apiserver answered.
//!
//! `integration/exchanges/<topic>.http` holds requests, `<topic>.answers` what a real kube-apiserver
//! said to them, with what differs from run to run masked. A request is
//!
//! ```text
//! ### what it is about
//! ! why Pintle answers something else, if it does
//! POST /api/v1/namespaces/{ns}/configmaps?dryRun=All
//! Content-Type: application/json
//! > rv = /metadata/resourceVersion
//!
//! {"metadata": {"name": "a"}}
//! ```
//!
//! `{ns}` is a namespace of the topic's own; a line with `>` keeps a part of the answer for the
//! requests that follow, one with `-` names a list that another topic is about and that is left
//! out. A line `? 200` sends the request until it is answered so. A body `hex:…` is bytes, one
//! `repeat:<n>:<text>` is text over and over.
//! Lines `flags: …` before the first request start a server of the topic's own; `{exchanges}` in them is the
//! directory of the files. `{audit}` is a log file: answers then have the audit annotations of their request. `{files}` is
//! a directory with a copy of `<topic>.yaml` and `<topic>.kubeconfig`.
//! A topic with a file `<topic>.replies` has a webhook, see [`replies`]: `{webhook}` is its URL, `{port}` its port, `{ca}` the
//! certificate that it is trusted by. Answers then have what the webhook was asked, to the byte.
//! Run with `PINTLE_RECORD=1` and `PINTLE_PEER=…` to write the answers anew.

mod replies;

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use integration::{Answer, Flavour, Http, Server, eventually};
use regex::Regex;

use self::replies::Replies;

/// One test for each topic, so that they run side by side and fail by name.
macro_rules! topics {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { play(stringify!($name)); })*

        #[test]
        fn every_file_of_exchanges_is_played() {
            let mut topics = vec![$(stringify!($name)),*];
            topics.sort_unstable();
            let files = fs::read_dir(directory()).expect("the directory of exchanges");
            let files = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
            let mut files: Vec<String> =
                files.filter_map(|name| name.strip_suffix(".http").map(str::to_owned)).collect();
            files.sort_unstable();
            assert_eq!(files, topics);
        }
    };
}

topics![
    admission_certificates,
    admission_classes,
    admission_image_reviews,
    admission_images,
    admission_limits,
    admission_mutating_identity,
    admission_mutating_policies,
    admission_nodes,
    admission_optional,
    admission_plugins,
    admission_pod_security,
    admission_policies,
    admission_quotas,
    admission_restrictions,
    admission_service_accounts,
    admission_webhook_answers,
    admission_webhook_choice,
    admission_webhook_reviews,
    admission_webhook_timing,
    bodies,
    columns,
    connect_rights,
    conversions,
    custom,
    decisions,
    deletes,
    dry_runs,
    edges,
    encodings,
    errors,
    exact,
    go_values,
    kinds,
    lists,
    metadata,
    ownership,
    pages,
    patches,
    paths,
    pod_subresources,
    reviews,
    routes,
    scales,
    services,
    token_requests,
    versions,
    writes,
];

fn directory() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "exchanges"].iter().collect()
}

/// A server of their own: a request may be about what the server has kept since its start, and no
/// controller of quotas may have a hand in what was recorded without one.
fn server() -> &'static Server {
    static SERVER: LazyLock<Server> = LazyLock::new(|| {
        let flavour = Flavour::from_env();
        let flags = ["--standalone-controllers=*,-resourcequota-controller"];
        match flavour {
            Flavour::Peer(_) => Server::of(flavour),
            Flavour::Embedded => Server::with(flavour, &flags),
            // In a shared one the first revisions are long gone.
            Flavour::Etcd => Server::on_own_etcd_with(flavour, 1, &flags),
        }
    });
    &SERVER
}

/// A server with the flags of a topic. None: the topic has none. Accounts are made by the exchanges only.
fn server_with_flags(requests: &str, variables: &BTreeMap<String, String>) -> Option<Server> {
    let head = requests.split("###").next().unwrap_or_default();
    let flags = head.lines().filter_map(|line| line.strip_prefix("flags: "));
    let mut flags: Vec<String> = flags.map(|flag| fill(flag, variables)).collect();
    if flags.is_empty() {
        return None;
    }
    let flavour = Flavour::from_env();
    if flavour == Flavour::Embedded {
        // Hundreds of writes, one after the other: no fsync for each.
        flags.push("--storage-backend=memory".to_owned());
    }
    if !flavour.is_peer() {
        let off = "-resourcequota-controller,-serviceaccount-controller,-root-ca-certificate-publisher-controller,\
                   -garbage-collector-controller";
        flags.push(format!("--standalone-controllers=*,{off}"));
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Some(Server::with(flavour, &flags))
}

/// A text with the values of `{name}`.
fn fill(text: &str, variables: &BTreeMap<String, String>) -> String {
    variables
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// What flags and requests may name. The files that only a running webhook makes complete are copied.
fn variables(topic: &str, files: &Path, replies: Option<&Replies>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::from([
        ("exchanges".to_owned(), directory().display().to_string()),
        ("files".to_owned(), files.display().to_string()),
        ("audit".to_owned(), files.join("audit.log").display().to_string()),
    ]);
    let of_webhook = replies.iter().flat_map(|replies| replies.variables());
    variables.extend(of_webhook.map(|(name, value)| (name.to_owned(), value)));
    for ending in ["yaml", "kubeconfig"] {
        let name = format!("{topic}.{ending}");
        if let Ok(text) = fs::read_to_string(directory().join(&name)) {
            fs::write(files.join(&name), fill(&text, &variables)).expect("a file");
        }
    }
    variables
}

/// kube-apiserver learns of a webhook a moment after its configuration is written.
const CONFIGURATION_SEEN: Duration = Duration::from_secs(2);

fn play(topic: &str) {
    let file = |ending: &str| directory().join(format!("{topic}.{ending}"));
    let requests = fs::read_to_string(file("http")).expect("a file of requests");
    let files = tempfile::tempdir().expect("a directory");
    let audit_log = files.path().join("audit.log");
    let replies = Replies::read(&file("replies"));
    let mut variables = variables(topic, files.path(), replies.as_ref());
    let own = server_with_flags(&requests, &variables);
    let server = own.as_ref().unwrap_or_else(|| server());
    let is_peer = matches!(server.flavour(), Flavour::Peer(_));
    let namespace = server.namespace(&topic.replace('_', "-"));
    variables.insert("ns".to_owned(), namespace);
    let http = server.http();
    let mut played = Vec::new();
    let recorded = fs::read_to_string(file("answers")).unwrap_or_default();
    let recorded: BTreeMap<&str, &str> = sections(&recorded).collect();
    for exchange in Exchange::parse_all(&requests) {
        let shown = |answer: &Answer, variables: &BTreeMap<String, String>| {
            // Over a shared etcd every server has a prefix of its own.
            let prefix = format!("{}/", server.storage_prefix());
            let audited = audit_annotations(answer, &audit_log);
            let mut noted: Vec<String> =
                audited.iter().map(|(key, value)| format!("audit {key}: {value}")).collect();
            let asked = replies.iter().flat_map(Replies::take_asked);
            noted.extend(asked.map(|asked| format!("asked {asked}")));
            let shown = shown(answer, &noted, &variables["ns"]).replace(&prefix, "/registry/");
            let shown = match &replies {
                Some(replies) => replies.mask(&shown),
                None => shown,
            };
            exchange.without.iter().fold(shown, |shown, list| without(&shown, list))
        };
        let mut answer = exchange.play(&http, &mut variables, replies.as_ref());
        // What is waited for may come in parts.
        let expected = recorded.get(exchange.title.as_str()).copied().unwrap_or_default();
        let awaited = exchange.until.is_some() && exchange.method == "GET";
        if awaited && exchange.differs.is_none() && !is_peer {
            answer = eventually(&exchange.title, || {
                let answer = exchange.play(&http, &mut variables, replies.as_ref());
                is_same(&shown(&answer, &variables), expected).then_some(answer)
            });
        }
        let shown = shown(&answer, &variables);
        let configures = exchange.path.contains("/admissionregistration.k8s.io/");
        if is_peer && replies.is_some() && configures && exchange.method != "GET" {
            #[expect(clippy::disallowed_methods, reason = "a test's own thread serves no request")]
            thread::sleep(CONFIGURATION_SEEN);
        }
        played.push((exchange, shown));
    }
    if is_peer && env::var_os("PINTLE_RECORD").is_some() {
        let all: Vec<String> = played
            .iter()
            .map(|(exchange, shown)| format!("### {}\n{shown}", exchange.title))
            .collect();
        fs::write(file("answers"), all.join("\n")).expect("the answers can be written");
        return;
    }
    let mut report = String::new();
    for (exchange, shown) in &played {
        let expected = recorded.get(exchange.title.as_str()).copied().unwrap_or("(not recorded)");
        let same = is_same(shown, expected);
        match (&exchange.differs, same) {
            (Some(why), true) if !is_peer => {
                let _ = writeln!(report, "### {}\nno longer differs: {why}", exchange.title);
            }
            (None, false) => {
                let title = &exchange.title;
                let _ = writeln!(
                    report,
                    "### {title}\n{}--- expected\n{expected}--- got\n{shown}",
                    exchange.text
                );
            }
            _ => {}
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

/// Whether an answer is as it was recorded, to the byte. Managers are listed in the order of the seconds
/// in which they wrote, so on a slow machine they may come in another one.
fn is_same(shown: &str, expected: &str) -> bool {
    let (shown, expected) = (shown.trim_end(), expected.trim_end());
    shown == expected || with_sorted_managers(shown) == with_sorted_managers(expected)
}

/// The same text, with the entries of each `managedFields` sorted.
fn with_sorted_managers(text: &str) -> String {
    const NAME: &str = "\"managedFields\":[";
    let Some(at) = text.find(NAME) else { return text.to_owned() };
    let (before, list) = text.split_at(at + NAME.len());
    let (mut entries, mut start, mut depth) = (Vec::new(), 0, 0);
    let (mut in_string, mut escaped) = (false, false);
    for (at, c) in list.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' | '[' => depth += 1,
            ',' | ']' if depth == 0 => {
                entries.push(&list[start..at]);
                start = at + 1;
                if c == ']' {
                    entries.sort_unstable();
                    let rest = with_sorted_managers(&list[at..]);
                    return format!("{before}{}{rest}", entries.join(","));
                }
            }
            '}' | ']' => depth -= 1,
            _ => {}
        }
    }
    text.to_owned()
}

#[test]
fn only_the_order_of_managers_may_differ() {
    let recorded =
        r#"{"metadata":{"managedFields":[{"manager":"a,]","f":{"x":[1]}},{"manager":"b"}]},"k":1}"#;
    let swapped =
        r#"{"metadata":{"managedFields":[{"manager":"b"},{"manager":"a,]","f":{"x":[1]}}]},"k":1}"#;
    let lost = r#"{"metadata":{"managedFields":[{"manager":"b"}]},"k":1}"#;
    let moved =
        r#"{"k":1,"metadata":{"managedFields":[{"manager":"b"},{"manager":"a,]","f":{"x":[1]}}]}}"#;
    assert!(is_same(swapped, recorded));
    assert!(!is_same(lost, recorded));
    assert!(!is_same(moved, recorded));
}

/// A request and what is to be done with its answer.
struct Exchange {
    title: String,
    text: String,
    differs: Option<String>,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    captures: Vec<(String, String)>,
    /// The code that is waited for.
    until: Option<u16>,
    without: Vec<String>,
    body: String,
}

/// The parts of a file by their titles.
fn sections(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("### ").skip(1).map(|section| section.split_once('\n').unwrap_or((section, "")))
}

impl Exchange {
    fn parse_all(text: &str) -> Vec<Self> {
        sections(text).map(|(title, text)| Self::parse(title, text)).collect()
    }

    fn parse(title: &str, text: &str) -> Self {
        let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
        let mut exchange = Self {
            title: title.trim().to_owned(),
            text: format!("{}\n", text.trim_end()),
            differs: None,
            method: String::new(),
            path: String::new(),
            headers: Vec::new(),
            captures: Vec::new(),
            until: None,
            without: Vec::new(),
            body: body.trim_end().to_owned(),
        };
        for line in head.lines().filter(|line| !line.starts_with('#')) {
            if let Some(why) = line.strip_prefix("! ") {
                exchange.differs = Some(why.to_owned());
            } else if let Some(capture) = line.strip_prefix("> ") {
                let (name, pointer) = capture.split_once(" = ").expect("name = /pointer");
                exchange.captures.push((name.to_owned(), pointer.to_owned()));
            } else if let Some(code) = line.strip_prefix("? ") {
                exchange.until = Some(code.parse().expect("a code"));
            } else if let Some(list) = line.strip_prefix("- ") {
                exchange.without.push(list.to_owned());
            } else if exchange.method.is_empty() {
                let (method, path) = line.split_once(' ').expect("METHOD /path");
                (exchange.method, exchange.path) = (method.to_owned(), path.to_owned());
            } else {
                let (name, value) = line.split_once(": ").expect("Header: value");
                exchange.headers.push((name.to_owned(), value.to_owned()));
            }
        }
        exchange
    }

    fn play(
        &self,
        http: &Http,
        variables: &mut BTreeMap<String, String>,
        replies: Option<&Replies>,
    ) -> Answer {
        let fill = |text: &str| fill(text, variables);
        let mut request = Request::builder().method(self.method.as_str()).uri(fill(&self.path));
        // A request with its own credentials, or marked as anonymous, is sent without the client certificate.
        let said = self.headers.iter().find(|(name, _)| name == "Authorization");
        for (name, value) in self.headers.iter().filter(|(_, value)| value != "none") {
            request = request.header(name, fill(value));
        }
        let body = bytes_of(&fill(&self.body));
        let http = if said.is_some() { http.clone().anonymous() } else { http.clone() };
        let request = request.body(body).expect("a valid request");
        let answer = eventually(&self.title, || {
            // Only what the last attempt made the server ask is shown.
            let _: Option<Vec<String>> = replies.map(Replies::take_asked);
            let answer = http.try_request(request.clone());
            let answer = answer.unwrap_or_else(|error| panic!("{}: {error:#}", self.title));
            self.until.is_none_or(|code| answer.code == code).then_some(answer)
        });
        if !self.captures.is_empty() {
            let json = answer.json();
            for (name, pointer) in &self.captures {
                let found = json.pointer(pointer).and_then(serde_json::Value::as_str);
                let found = found.unwrap_or_else(|| panic!("no {pointer} in {}", answer.text()));
                variables.insert(name.clone(), found.to_owned());
            }
        }
        answer
    }
}

/// The text of some JSON without the lists of this name.
fn without(text: &str, list: &str) -> String {
    let opening = format!("\"{list}\":[");
    let Some(at) = text.find(&opening) else { return text.to_owned() };
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    let from = at + opening.len() - 1;
    let end = text[from..].find(|c: char| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '[' if !quoted => depth += 1,
            ']' if !quoted => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    let end = end.map_or(text.len(), |end| from + end + 1);
    // With the comma before it, or the one behind it if it comes first.
    let (head, tail) = (&text[..at], &text[end..]);
    let (head, tail) = match (head.strip_suffix(','), tail.strip_prefix(',')) {
        (Some(head), _) => (head, tail),
        (None, behind) => (head, behind.unwrap_or(tail)),
    };
    without(&[head, tail].concat(), list)
}

fn bytes_of(body: &str) -> Bytes {
    if let Some(digits) = body.strip_prefix("hex:") {
        let digits: Vec<char> = digits.chars().filter(char::is_ascii_hexdigit).collect();
        let value =
            |pair: &[char]| pair.iter().filter_map(|c| c.to_digit(16)).fold(0, |n, d| n * 16 + d);
        return digits.chunks(2).map(|pair| value(pair) as u8).collect();
    }
    if let Some((count, text)) = body.strip_prefix("repeat:").and_then(|rest| rest.split_once(':'))
    {
        return text.repeat(count.parse().expect("a number")).into();
    }
    Bytes::copy_from_slice(body.as_bytes())
}

/// The headers that are compared.
const HEADERS: [&str; 9] = [
    "allow",
    "content-type",
    "location",
    "retry-after",
    "sec-websocket-protocol",
    "upgrade",
    "warning",
    "x-content-type-options",
    "www-authenticate",
];

/// The annotations of the request's last audit event, if the server writes a log: those of admission, by name.
fn audit_annotations(answer: &Answer, log: &Path) -> BTreeMap<String, String> {
    let Some(id) = answer.headers.get("audit-id").filter(|_| log.exists()) else {
        return BTreeMap::new();
    };
    let id = id.to_str().expect("an ID");
    let event = eventually("the audit event of the request", || {
        let events = fs::read_to_string(log).expect("the log");
        let events = events.lines().filter(|line| line.contains(id));
        let mut events =
            events.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        events.find(|event| event["stage"] == "ResponseComplete")
    });
    let annotations = event["annotations"].as_object().into_iter().flatten();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let others = ["authorization.k8s.io/", "apiserver.latency.k8s.io/"];
    annotations
        .filter(|(key, _)| !others.iter().any(|other| key.starts_with(other)))
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

/// An answer without what differs from run to run.
fn shown(answer: &Answer, noted: &[String], namespace: &str) -> String {
    let mut text = format!("{}\n", answer.code);
    for name in HEADERS {
        for value in answer.headers.get_all(name) {
            let _ = writeln!(text, "{name}: {}", value.to_str().unwrap_or("(not text)"));
        }
    }
    for line in noted {
        let _ = writeln!(text, "{line}");
    }
    let body = match std::str::from_utf8(&answer.body) {
        Ok(body) if !body.contains('\0') => body.to_owned(),
        _ => answer.body.escape_ascii().to_string(),
    };
    text.push('\n');
    text.push_str(&body);
    if !text.ends_with('\n') {
        text.push_str("(no newline)\n");
    }
    let text = text.replace(namespace, "NS");
    let masks = [
        (r#"("serverAddress": ?)"[^"]*""#, "${1}\"ADDRESS\""),
        // The sentences about the columns of a table are not ours to repeat.
        (r#"("description": ?)"(?:[^"\\]|\\.)*""#, "${1}\"TEXT\""),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r#"(resourceVersion(?:\\*")?: ?(?:\\*")?)\d+"#, "${1}RV"),
        (r#"("?continue"?: ?)"[^"]+""#, "${1}\"TOKEN\""),
        (r"X509SHA256=[0-9a-f]{64}", "X509SHA256=HASH"),
        (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-SUFFIX"),
        (r"\bgenerated-[a-z0-9]{5}\b", "generated-SUFFIX"),
        (r#"("token": ?)"[^"]+""#, "${1}\"TOKEN\""),
        (r"current: \d+", "current: RV"),
        (r"in record \(\d+\)", "in record (RV)"),
        (r"too old resource version: (\d+) \(\d+\)", "too old resource version: $1 (RV)"),
    ];
    // Outside of tables, what looks like an age is a quantity.
    let is_table = [r#""kind":"Table""#, r#""kind": "Table""#].iter().any(|own| text.contains(own));
    let age = is_table.then_some((r#""(\d+[smhdy])+""#, "\"AGE\""));
    masks.iter().chain(&age).fold(text, |text, (pattern, with)| {
        Regex::new(pattern).expect("a valid pattern").replace_all(&text, *with).into_owned()
    })
}
