//! Clients that write, read, list and watch the same objects until they are stopped, and record all
//! requests and responses for the checkers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, Request};
use integration::{Connection, Http};
use serde_json::{Value, json};

use super::linearizability::{self, NEVER, Operation, Outcome, What};
use super::watch_checker::{self, Event, Kind, Object, Record, Session, Verified, everything};

pub(super) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 5;
/// The objects that all clients write; few, so that they conflict.
const CONTESTED: u64 = 10;

/// Everything that clients asked and saw, over all rounds.
pub(super) struct Load {
    /// Whether watches may have to begin anew when the server has been gone.
    pub(super) forgetful: bool,
    shared: Arc<Shared>,
    followers: Vec<Follower>,
    running: Vec<JoinHandle<()>>,
    following: Vec<JoinHandle<Follower>>,
}

struct Shared {
    zero: Instant,
    /// No more requests.
    stop: AtomicBool,
    /// There is no server to watch for now.
    gone: AtomicBool,
    /// Watches are done when they have come this far.
    target: AtomicU64,
    values: AtomicU64,
    seed: AtomicU64,
    history: Mutex<Vec<Operation>>,
    record: Mutex<Record>,
}

impl Load {
    /// Takes note of what is there before anything happens.
    pub(super) fn new(http: &Http) -> Self {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_micros());
        let start = list(&mut http.connect().expect("the server is there"), CONFIG_MAPS);
        let start = start.expect("there is a list");
        let follower = |query: &'static str, wants| Follower {
            query,
            wants,
            at: Some(start.0),
            sessions: Vec::new(),
        };
        let followers = vec![
            follower("", everything),
            follower("&allowWatchBookmarks=true&timeoutSeconds=1", everything),
            follower("&labelSelector=parity%3Deven", is_even),
            Follower { at: None, ..follower(INITIAL_EVENTS, everything) },
        ];
        let shared = Arc::new(Shared {
            zero: Instant::now(),
            stop: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            target: AtomicU64::new(u64::MAX),
            values: AtomicU64::new(0),
            seed: AtomicU64::new(seed as u64),
            history: Mutex::default(),
            record: Mutex::new(Record { start, ..Record::default() }),
        });
        let (running, following) = (Vec::new(), Vec::new());
        Self { forgetful: false, shared, followers, running, following }
    }

    /// A number that differs from run to run.
    pub(super) fn random(&self) -> Random {
        Random(self.shared.seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed) | 1)
    }

    /// Sends the clients to work; each takes one of the servers.
    pub(super) fn begin(&mut self, servers: &[Http]) {
        self.shared.stop.store(false, Ordering::Relaxed);
        let mut servers = servers.iter().cycle();
        let mut next = || servers.next().expect("there is a server").clone();
        for _ in 0..WRITERS {
            let (http, shared, random) = (next(), Arc::clone(&self.shared), self.random());
            self.running.push(thread::spawn(move || Writer { http, shared, random }.work()));
        }
        let (http, shared, random) = (next(), Arc::clone(&self.shared), self.random());
        self.running.push(thread::spawn(move || list_on(&http, &shared, random)));
        for mut follower in std::mem::take(&mut self.followers) {
            let (http, shared) = (next(), Arc::clone(&self.shared));
            self.following.push(thread::spawn(move || {
                follower.follow(&http, &shared);
                follower
            }));
        }
    }

    /// Stops the clients of a server that was killed. `alone`: it was the only server, so a request
    /// without a response has either taken effect already or never will.
    pub(super) fn end_with_the_server(&mut self, alone: bool) {
        self.shared.gone.store(true, Ordering::Relaxed);
        self.end_writing();
        for follower in self.following.drain(..) {
            self.followers.push(follower.join().expect("a follower is fine"));
        }
        self.shared.gone.store(false, Ordering::Relaxed);
        if !alone {
            return;
        }
        let now = self.shared.now();
        for operation in lock(&self.shared.history).iter_mut() {
            if operation.outcome == Outcome::Unknown {
                operation.ended = operation.ended.min(now);
            }
        }
    }

    /// Stops the writers and listers. The watchers go on.
    pub(super) fn end_writing(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for client in self.running.drain(..) {
            client.join().expect("a client is fine");
        }
    }

    /// Reads everything, as a client that knows which objects there were.
    pub(super) fn look(&self, http: &Http) {
        let began = self.shared.now();
        let found = list(&mut http.connect().expect("the server is there"), CONFIG_MAPS);
        let (version, objects) = found.expect("there is a list");
        let ended = self.shared.now();
        let mut history = lock(&self.shared.history);
        let mut keys: Vec<String> = history.iter().map(|one| one.key.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let object = objects.iter().find(|object| object.name == key);
            let what = What::Read(object.map(|object| object.value));
            let version = object.map(|object| object.version);
            history.push(Operation { key, began, ended, what, outcome: Outcome::Done, version });
        }
        drop(history);
        lock(&self.shared.record).lists.push((version, objects));
    }

    /// Compares the current state with the state at a resourceVersion. To be called after
    /// [`Self::verify`].
    pub(super) fn verify_restored(&self, version: u64, http: &Http) {
        let found = list(&mut http.connect().expect("the server is there"), CONFIG_MAPS);
        let mut record = lock(&self.shared.record);
        record.lists.push((version, found.expect("there is a list").1));
        if let Err(wrong) = watch_checker::verify(&record) {
            panic!("not what was there at {version}: {wrong}");
        }
    }

    /// Waits until every watch has caught up, and checks all observations.
    pub(super) fn verify(&mut self, http: &Http) -> (usize, Verified) {
        // Even, so that watches by label see them as well. The second one is for watches that had seen the
        // first before they learned that it is the last.
        for name in ["last", "behind-the-last"] {
            let value = self.shared.values.fetch_add(2, Ordering::Relaxed) / 2 * 2 + 2;
            let last = http.post(CONFIG_MAPS, &config_map(name, value, None)).expect(201);
            self.shared.target.fetch_min(object(&last).version, Ordering::Relaxed);
        }
        let idle = std::mem::take(&mut self.followers).into_iter().map(|mut follower| {
            follower.follow(http, &self.shared);
            follower
        });
        let busy = self.following.drain(..);
        let busy = busy.map(|follower| follower.join().expect("a follower is fine"));
        for mut follower in idle.chain(busy) {
            lock(&self.shared.record).sessions.append(&mut follower.sessions);
        }
        self.look(http);
        let verified = watch_checker::verify(&lock(&self.shared.record));
        let verified =
            verified.unwrap_or_else(|wrong| panic!("watches or lists are wrong: {wrong}"));
        let last = self.shared.target.load(Ordering::Relaxed);
        assert!(verified.end >= last || self.forgetful, "watches had to begin anew: {verified:?}");
        let history = lock(&self.shared.history);
        if let Err(wrong) = linearizability::verify(&history) {
            panic!("the history is not linearizable: {wrong}");
        }
        (history.len(), verified)
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.zero.elapsed().as_nanos() as u64
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The connection is over.
struct Over;

/// Creates, reads, changes and deletes.
struct Writer {
    http: Http,
    shared: Arc<Shared>,
    random: Random,
}

impl Writer {
    fn work(&mut self) {
        // What this client knows of the contested objects: their value and version.
        let mut known: Vec<Option<(u64, u64)>> = vec![None; CONTESTED as usize];
        let mut own = Vec::new();
        while !self.shared.stopped() {
            let Ok(mut connection) = self.http.connect() else {
                pause();
                continue;
            };
            while !self.shared.stopped() {
                if self.random.below(4) > 0 {
                    let n = self.random.below(CONTESTED);
                    let (name, known) = (format!("contested-{n}"), &mut known[n as usize]);
                    let Ok(found) = self.step(&mut connection, &name, *known) else { break };
                    *known = found;
                } else if self.own_step(&mut connection, &mut own).is_err() {
                    break;
                }
            }
        }
    }

    /// Does something to an object that others want as well, and answers what is known of it
    /// afterwards.
    fn step(
        &mut self,
        connection: &mut Connection,
        name: &str,
        known: Option<(u64, u64)>,
    ) -> Result<Option<(u64, u64)>, Over> {
        let from = known.filter(|_| self.random.below(4) > 0);
        let value = from.map(|(value, _)| value);
        let to = self.shared.values.fetch_add(1, Ordering::Relaxed) + 1;
        let what = match (self.random.below(10), known) {
            (0..3, _) => What::Read(None),
            (3..7, Some(_)) => What::Update { from: value, to },
            (7, Some(_)) => What::Delete { from: value },
            (8, _) => What::Update { from: None, to },
            _ => What::Create(to),
        };
        let named =
            matches!(what, What::Update { from: Some(_), .. } | What::Delete { from: Some(_) });
        let version = from.filter(|_| named).map(|(_, version)| version);
        self.ask(connection, name, what, version)
    }

    /// Makes objects of its own, and deletes some of them again.
    fn own_step(&mut self, connection: &mut Connection, own: &mut Vec<String>) -> Result<(), Over> {
        let to = self.shared.values.fetch_add(1, Ordering::Relaxed) + 1;
        if self.random.below(3) > 0 || own.is_empty() {
            let name = format!("own-{to}");
            own.push(name.clone());
            self.ask(connection, &name, What::Create(to), None)?;
        } else {
            let name = own.swap_remove(self.random.below(own.len() as u64) as usize);
            self.ask(connection, &name, What::Delete { from: None }, None)?;
        }
        Ok(())
    }

    /// Asks, and remembers what came of it. Answers the value and version that the object is known to
    /// have now.
    fn ask(
        &self,
        connection: &mut Connection,
        name: &str,
        what: What,
        version: Option<u64>,
    ) -> Result<Option<(u64, u64)>, Over> {
        let path = format!("{CONFIG_MAPS}/{name}");
        let (method, path, body) = match what {
            What::Read(_) => (Method::GET, path, None),
            What::Create(to) => {
                (Method::POST, CONFIG_MAPS.to_owned(), Some(config_map(name, to, None)))
            }
            What::Update { to, .. } => (Method::PUT, path, Some(config_map(name, to, version))),
            What::Delete { .. } => {
                let version = version.map(|version| version.to_string());
                let options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
                    "preconditions": {"resourceVersion": version}});
                (Method::DELETE, path, Some(options))
            }
        };
        let began = self.shared.now();
        let answer = request(connection, &method, &path, body.as_ref());
        let ended = self.shared.now();
        let note = |what, outcome, version| {
            let ended = if outcome == Outcome::Unknown { NEVER } else { ended };
            let key = name.to_owned();
            let operation = Operation { key, began, ended, what, outcome, version };
            lock(&self.shared.history).push(operation);
        };
        let Ok((code, answer)) = answer else {
            if !matches!(what, What::Read(_)) {
                note(what, Outcome::Unknown, None);
            }
            return Err(Over);
        };
        let outcome = match (code, answer["reason"].as_str().unwrap_or_default()) {
            (200 | 201, _) => Outcome::Done,
            (404, "NotFound") => Outcome::Missing,
            (409, "AlreadyExists") => Outcome::Exists,
            (409, "Conflict") => Outcome::Conflict,
            // Never begun.
            (429, _) => return Ok(None),
            (500.., _) => Outcome::Unknown,
            _ => panic!("{method} {path}: {code}: {answer}"),
        };
        match (what, outcome) {
            (What::Read(_), Outcome::Done) => {
                let found = object(&answer);
                note(What::Read(Some(found.value)), outcome, Some(found.version));
                return Ok(Some((found.value, found.version)));
            }
            (What::Read(_), Outcome::Missing) => note(What::Read(None), Outcome::Done, None),
            (What::Read(_), _) => {}
            (What::Create(_) | What::Update { .. }, Outcome::Done) => {
                let written = object(&answer);
                note(what, outcome, Some(written.version));
                let known = (written.value, written.version);
                lock(&self.shared.record).written.push(written);
                return Ok(Some(known));
            }
            (What::Delete { .. }, Outcome::Done) => {
                note(what, outcome, None);
                let uid = answer["details"]["uid"].as_str().unwrap_or_default().to_owned();
                lock(&self.shared.record).deleted.push(uid);
            }
            _ => note(what, outcome, None),
        }
        Ok(None)
    }
}

/// Lists in every way: as it is now, at a version, page by page.
fn list_on(http: &Http, shared: &Shared, mut random: Random) {
    let mut versions = vec![lock(&shared.record).start.0];
    while !shared.stopped() {
        let Ok(mut connection) = http.connect() else {
            pause();
            continue;
        };
        while !shared.stopped() {
            let version = versions[random.below(versions.len() as u64) as usize];
            let found = match random.below(3) {
                0 => list(&mut connection, CONFIG_MAPS),
                1 => {
                    let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
                    list(&mut connection, &format!("{CONFIG_MAPS}?{exact}"))
                }
                _ => pages(&mut connection, 1 + random.below(20)),
            };
            match found {
                Found::List(version, objects) => {
                    versions.push(version);
                    lock(&shared.record).lists.push((version, objects));
                }
                // Too old by now.
                Found::Gone => versions = vec![*versions.last().expect("there is one")],
                Found::Nothing => break,
            }
        }
    }
}

/// What came of a list.
enum Found {
    List(u64, Vec<Object>),
    /// 410
    Gone,
    Nothing,
}

impl Found {
    fn expect(self, what: &str) -> (u64, Vec<Object>) {
        match self {
            Self::List(version, objects) => (version, objects),
            _ => panic!("{what}"),
        }
    }
}

fn list(connection: &mut Connection, path: &str) -> Found {
    match request(connection, &Method::GET, path, None) {
        Ok((200, list)) => Found::List(version_of(&list), items(&list)),
        Ok((410, _)) => Found::Gone,
        Ok((code, answer)) if code < 429 => panic!("{path}: {code}: {answer}"),
        _ => Found::Nothing,
    }
}

fn pages(connection: &mut Connection, limit: u64) -> Found {
    let (mut token, mut all, mut at) = (String::new(), Vec::new(), None);
    loop {
        let path = format!("{CONFIG_MAPS}?limit={limit}{token}");
        let page = match request(connection, &Method::GET, &path, None) {
            Ok((200, page)) => page,
            Ok((410, _)) => return Found::Gone,
            Ok((code, answer)) if code < 429 => panic!("{path}: {code}: {answer}"),
            _ => return Found::Nothing,
        };
        let version = version_of(&page);
        assert_eq!(*at.get_or_insert(version), version, "pages of one list show one version");
        all.extend(items(&page));
        match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
            Some(next) => token = format!("&continue={next}"),
            None => return Found::List(version, all),
        }
    }
}

/// A client that watches, and goes on where it was when a watch ends.
struct Follower {
    query: &'static str,
    wants: fn(u64) -> bool,
    /// Where to go on; nothing to begin with initial events, each time.
    at: Option<u64>,
    sessions: Vec<Session>,
}

const INITIAL_EVENTS: &str =
    "&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

impl Follower {
    fn follow(&mut self, http: &Http, shared: &Shared) {
        while !shared.gone.load(Ordering::Relaxed) {
            let from =
                self.at.map_or_else(String::new, |version| format!("&resourceVersion={version}"));
            let path = format!("{CONFIG_MAPS}?watch=true{}{from}", self.query);
            let watch = http.try_stream(&path).ok().filter(|watch| watch.code == 200);
            let Some(mut watch) = watch else {
                pause();
                continue;
            };
            let mut session = Session { from: self.at, wants: self.wants, events: Vec::new() };
            let mut too_old = false;
            while session.reached() < Some(shared.target.load(Ordering::Relaxed))
                && let Some(event) = watch.next_event()
            {
                if event["type"] == "ERROR" {
                    assert_eq!(event["object"]["code"], 410, "{event}");
                    too_old = true;
                    break;
                }
                session.events.extend(read_event(&event));
            }
            let reached = session.reached();
            if self.at.is_some() {
                self.at = reached;
            }
            self.sessions.push(session);
            if too_old && self.at.is_some() {
                self.start_over(http);
            }
            if reached >= Some(shared.target.load(Ordering::Relaxed)) {
                return;
            }
        }
    }

    /// 410: the client has to list again.
    fn start_over(&mut self, http: &Http) {
        let found = http.connect().map(|mut connection| list(&mut connection, CONFIG_MAPS));
        if let Ok(Found::List(version, _)) = found {
            self.at = Some(version);
        }
    }
}

/// Nothing, if it is about an object that the tests did not make.
fn read_event(event: &Value) -> Option<Event> {
    let changed = &event["object"];
    let kind = match event["type"].as_str() {
        Some("ADDED") => Kind::Added,
        Some("MODIFIED") => Kind::Modified,
        Some("DELETED") => Kind::Deleted,
        Some("BOOKMARK") => {
            let version = version_of(changed);
            let ends = &changed["metadata"]["annotations"]["k8s.io/initial-events-end"];
            let ends = ends == "true";
            return Some(if ends { Event::InitialEnd(version) } else { Event::Bookmark(version) });
        }
        _ => panic!("what is this? {event}"),
    };
    is_ours(changed).then(|| Event::Change(kind, object(changed)))
}

/// The code and body of a response; an error if the outcome is unknown.
fn request(
    connection: &mut Connection,
    method: &Method,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<(u16, Value)> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
    let answer = connection.request(request.body(body)?)?;
    Ok((answer.code, serde_json::from_slice(&answer.body)?))
}

/// An object that shows whether it is whole: its text and label are made from its value.
fn config_map(name: &str, value: u64, version: Option<u64>) -> Value {
    let mut object = json!({
        "metadata": {"name": name, "labels": {"parity": parity(value)}},
        "data": {"value": value.to_string(), "text": text(value)},
    });
    if let Some(version) = version {
        object["metadata"]["resourceVersion"] = version.to_string().into();
    }
    object
}

/// Of very different lengths, so that records end anywhere in a page of the disk.
fn text(value: u64) -> String {
    format!("{value}-").repeat(1 + (value * 7919 % 2500) as usize)
}

fn parity(value: u64) -> &'static str {
    if is_even(value) { "even" } else { "odd" }
}

fn is_even(value: u64) -> bool {
    value.is_multiple_of(2)
}

fn items(list: &Value) -> Vec<Object> {
    let items = list["items"].as_array().expect("a list has items").iter();
    items.filter(|item| is_ours(item)).map(object).collect()
}

/// Every namespace has an object that a controller looks after.
fn is_ours(object: &Value) -> bool {
    object["data"]["value"].is_string()
}

/// What the checkers compare; panics if the object is incomplete.
fn object(object: &Value) -> Object {
    let metadata = &object["metadata"];
    let text_of = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    let value = object["data"]["value"].as_str().and_then(|value| value.parse().ok());
    let value = value.expect("it is one of ours");
    assert_eq!(object["data"]["text"], text(value), "half an object");
    assert_eq!(metadata["labels"]["parity"], parity(value), "half an object");
    Object { name: text_of("name"), uid: text_of("uid"), version: version_of(object), value }
}

fn version_of(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.and_then(|text| text.parse().ok()).expect("everything has a version")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}

/// Before the next try at a server that is not there.
#[expect(clippy::disallowed_methods, reason = "a test's own thread serves no request")]
fn pause() {
    thread::sleep(Duration::from_millis(5));
}

/// Small numbers from a seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}
