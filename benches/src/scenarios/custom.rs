//! Custom resources: a small kind and a large one, and the installation of a platform's definitions.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use http::Method;

use super::reads::{repeat, scattered};
use super::world::NAMESPACE;
use super::writes::WARM_UP_WRITES;
use super::{Check, Outcome, World, drive};
use crate::bodies::custom::{self, CustomKind};
use crate::bodies::custom_name;
use crate::client::{Call, Client, Failure, JSON, Keep};
use crate::load::{Latencies, Plan, closed_loop};
use crate::proc::Probe;
use crate::verify::Expect;

/// Which custom kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Small,
    Large,
}

/// A kind, and what this run has made of it.
pub(super) struct Custom {
    pub(super) kind: CustomKind,
    pub(super) made: usize,
    pub(super) served: bool,
}

impl Custom {
    pub(super) fn new(kind: CustomKind) -> Self {
        Self { kind, made: 0, served: false }
    }
}

pub(super) async fn create(world: &mut World, plan: Plan, size: Size) -> Outcome {
    if let Err(failure) = ensure(world, size, WARM_UP_WRITES).await {
        return failure.into();
    }
    let first = world.custom(size).made;
    let count = plan.count.min(world.sizes.customs().saturating_sub(first));
    let outcome = drive(world, Plan { count, ..plan }, None, 0, async |_, _, number| {
        create_one(world, size, first + number).await
    })
    .await;
    world.custom_mut(size).made = first + outcome.begun();
    outcome
}

pub(super) async fn get(world: &mut World, plan: Plan, size: Size) -> Outcome {
    if let Err(failure) = ensure(world, size, world.sizes.customs()).await {
        return failure.into();
    }
    let custom = world.custom(size);
    let call = |number: usize| {
        let name = custom_name(scattered(number, custom.made));
        Call::get(format!("{}/{name}", custom.kind.path(NAMESPACE)))
    };
    let expect = Expect { protobuf: false, gzip: false, kind: custom.kind.kind, items: None };
    drive(world, plan, Some(Check { call: &call(0), expect }), 500, async |client, _, number| {
        Ok(client.ok(&call(number), Keep::Nothing).await?.bytes)
    })
    .await
}

pub(super) async fn list(world: &mut World, plan: Plan, size: Size) -> Outcome {
    if let Err(failure) = ensure(world, size, world.sizes.customs()).await {
        return failure.into();
    }
    let custom = world.custom(size);
    let expect = Expect {
        protobuf: false,
        gzip: false,
        kind: custom.kind.list_kind,
        items: Some(custom.made),
    };
    repeat(world, plan, &Call::get(custom.kind.path(NAMESPACE)), expect).await
}

pub(super) async fn merge_patch(world: &mut World, plan: Plan, size: Size) -> Outcome {
    if let Err(failure) = ensure(world, size, world.sizes.customs()).await {
        return failure.into();
    }
    let custom = world.custom(size);
    drive(world, plan, None, WARM_UP_WRITES, async |client, _, number| {
        let name = custom_name(scattered(number, custom.made));
        let path = format!("{}/{name}", custom.kind.path(NAMESPACE));
        let body = format!(r#"{{"spec":{{"minReplicas":{}}}}}"#, 1 + number % 17);
        let call = Call::send(Method::PATCH, path, "application/merge-patch+json", body);
        Ok(client.ok(&call, Keep::Nothing).await?.bytes)
    })
    .await
}

/// Installs many definitions; an operation ends when the objects of its definition are served. A client
/// reads meanwhile, one request at a time, and its latency should not change.
pub(super) async fn install(world: &mut World, plan: Plan) -> Outcome {
    if let Err(failure) = uninstall(world).await {
        return failure.into();
    }
    let client = &world.client;
    let probe = Probe::begin(&world.pids);
    let begun = Instant::now();
    let (installed, latencies) = (Cell::new(false), RefCell::new(Latencies::default()));
    let read = async {
        let call = Call::get(format!("/api/v1/namespaces/{NAMESPACE}"));
        while !installed.get() {
            let sent = Instant::now();
            if client.ok(&call, Keep::Nothing).await.is_ok() {
                latencies.borrow_mut().push(sent.elapsed());
            }
            tokio::time::sleep(READ_EVERY).await;
        }
    };
    let write = async {
        let measured = closed_loop(plan, async |_, number| install_one(client, number).await).await;
        installed.set(true);
        measured
    };
    let (measured, ()) = futures_util::future::join(write, read).await;
    let cost = probe.end();
    let published = match published(client, measured.done + measured.failed).await {
        Ok(()) => format!("published after {:.1} s", begun.elapsed().as_secs_f64()),
        Err(failure) => return failure.into(),
    };
    let mut latencies = latencies.into_inner();
    let mut quantile = |share| latencies.quantile_ms(share).unwrap_or_default();
    let note = format!(
        "{published}; GET meanwhile: p50 {:.2}, p99 {:.2} ms",
        quantile(0.5),
        quantile(0.99)
    );
    Outcome::Measured { measured, cost, ops_per_call: 1, note }
}

async fn install_one(client: &Client, number: usize) -> Result<u64, Failure> {
    let call = Call::send(Method::POST, DEFINITIONS, JSON, custom::platform_crd(number));
    let answer = client.ok(&call, Keep::Nothing).await?;
    served(client, &format!("{}?limit=1", custom::platform_path(number))).await?;
    Ok(answer.bytes)
}

/// Discovery and OpenAPI have every group.
async fn published(client: &Client, count: usize) -> Result<(), Failure> {
    for path in ["/apis", "/openapi/v3"] {
        let mut polls = 0;
        loop {
            let answer = client.ok(&Call::get(path), Keep::All).await?;
            let has = |number| {
                let group = custom::platform_group(number);
                memchr::memmem::find(&answer.kept, group.as_bytes()).is_some()
            };
            if (0..count).all(has) {
                break;
            }
            polls += 1;
            if polls > POLLS_MAX {
                let message = format!("{path} never had all groups");
                return Err(Failure { code: None, message });
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
    Ok(())
}

/// Removes what an earlier run has installed.
async fn uninstall(world: &World) -> Result<(), Failure> {
    let chosen = format!("{DEFINITIONS}?labelSelector={}%3Dyes", custom::PLATFORM_LABEL);
    world.client.ok(&Call::send(Method::DELETE, &chosen, "", ""), Keep::Nothing).await?;
    let list = Call::get(format!("{chosen}&limit=1"));
    for _ in 0..POLLS_MAX {
        let answer = world.client.ok(&list, Keep::All).await?;
        if memchr::memmem::find(&answer.kept, b"\"items\":[]").is_some() {
            return Ok(());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    Err(Failure { code: None, message: "old definitions do not go".to_owned() })
}

/// At least `wanted` objects, and the kind they need.
async fn ensure(world: &mut World, size: Size, wanted: usize) -> Result<(), Failure> {
    ensure_kind(world, size).await?;
    let first = world.custom(size).made;
    let count = wanted.saturating_sub(first);
    world.fill(count, async |number| create_one(world, size, first + number).await).await?;
    world.custom_mut(size).made = first.max(wanted);
    Ok(())
}

async fn ensure_kind(world: &mut World, size: Size) -> Result<(), Failure> {
    let custom = world.custom(size);
    if custom.served {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&custom.kind.crd).into_owned();
    world.create_unless_there(DEFINITIONS, body).await?;
    served(&world.client, &format!("{}?limit=1", custom.kind.path(NAMESPACE))).await?;
    world.custom_mut(size).served = true;
    Ok(())
}

async fn create_one(world: &World, size: Size, index: usize) -> Result<u64, Failure> {
    let kind = &world.custom(size).kind;
    let body = kind.template.custom(index);
    let call = Call::send(Method::POST, kind.path(NAMESPACE), JSON, body);
    Ok(world.client.ok(&call, Keep::Nothing).await?.bytes)
}

/// A definition is established asynchronously; its kind is served once its list answers.
async fn served(client: &Client, list: &str) -> Result<(), Failure> {
    let list = Call::get(list);
    let mut outcome = client.ok(&list, Keep::Nothing).await;
    for _ in 0..POLLS_MAX {
        if outcome.is_ok() {
            break;
        }
        tokio::time::sleep(POLL_EVERY).await;
        outcome = client.ok(&list, Keep::Nothing).await;
    }
    outcome.map(|_| ())
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POLL_EVERY: Duration = Duration::from_millis(10);
const POLLS_MAX: usize = 6_000;
const READ_EVERY: Duration = Duration::from_millis(2);
