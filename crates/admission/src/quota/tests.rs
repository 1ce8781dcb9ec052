use std::sync::{Arc, atomic::Ordering};

use meta::{GroupResource, Value, quantity::Quantity, value};

use super::{
    Evaluator, Evaluators, ObjectCount, ResourceList, ResourceQuota, Scope,
    check::{Demand, Quota},
    configuration::LimitedResource,
    testing::MemoryQuotas,
};
use crate::{Operation, harness};

/// Objects that use `cpu`, which each of them has to name, and may be `Special`.
struct Cpu;

impl Evaluator for Cpu {
    fn handles(&self, _: Operation, _: &str, _: &Value, _: Option<&Value>) -> bool {
        true
    }

    fn measures(&self, name: &str) -> bool {
        matches!(name, "cpu" | "pods")
    }

    fn matches_scope(&self, scope: &Scope, object: &Value) -> Option<bool> {
        Some(scope.name == "Special" && object.str_at(&["special"]) == "yes")
    }

    fn check_constraints(&self, required: &[&str], object: &Value) -> Result<(), String> {
        match object.get("cpu") {
            None if required.contains(&"cpu") => Err("must specify cpu for: c".to_owned()),
            _ => Ok(()),
        }
    }

    fn usage(&self, object: &Value) -> ResourceList {
        let amount = object.get("cpu").map(|cpu| Quantity::from_value(cpu).unwrap());
        let cpu = amount.map(|amount| ("cpu".into(), amount));
        cpu.into_iter().chain([("pods".into(), Quantity::parse("1").unwrap())]).collect()
    }
}

fn quota(text: &str) -> Quota {
    let mut object = harness::yaml(text);
    object.set_at(&["metadata", "name"], "q");
    Quota::new(object)
}

fn demand(object: &str, old: Option<&str>) -> Demand {
    Demand {
        evaluator: Arc::new(Cpu),
        operation: if old.is_some() { Operation::Update } else { Operation::Create },
        resource: GroupResource::new("", "pods"),
        is_status: false,
        is_dry_run: false,
        name: "p".to_owned(),
        object: harness::yaml(object),
        old: old.map(harness::yaml),
    }
}

/// Quota, object, old object, and the usage afterwards or why not.
#[test]
fn requests_are_charged_or_refused() {
    let plain = "status: {hard: {cpu: 2}, used: {cpu: 1}}";
    let special = "spec: {scopes: [Special]}\nstatus: {hard: {cpu: 2}, used: {cpu: 1}}";
    let cases: &[(&str, &str, Option<&str>, &str)] = &[
        (plain, "{cpu: 500m}", None, "cpu=1500m"),
        (plain, "{cpu: 1}", None, "cpu=2"),
        (
            plain,
            "{cpu: 1001m}",
            None,
            "pods \"p\" is forbidden: exceeded quota: q, requested: cpu=1001m, used: cpu=1, limited: cpu=2",
        ),
        (plain, "{}", None, "pods \"p\" is forbidden: failed quota: q: must specify cpu for: c"),
        (
            plain,
            "{cpu: -1}",
            None,
            "pods \"p\" is forbidden: quota usage is negative for resource(s): cpu",
        ),
        // An update is charged for what it adds, and pays nothing back.
        (plain, "{cpu: 3}", Some("{cpu: 2}"), "cpu=2"),
        (plain, "{cpu: 1}", Some("{cpu: 2}"), "cpu=1"),
        (
            "status: {hard: {cpu: 2}}",
            "{cpu: 1}",
            None,
            "pods \"p\" is forbidden: status unknown for quota: q, resources: cpu",
        ),
        // A quota on something else, or with a scope that the object is not in.
        ("status: {hard: {memory: 1}, used: {memory: 0}}", "{cpu: 5}", None, "memory=0"),
        (special, "{cpu: 5}", None, "cpu=1"),
        (special, "{cpu: 1, special: 'yes'}", None, "cpu=2"),
        // An object that enters the scope is charged in full.
        (special, "{cpu: 1, special: 'yes'}", Some("{cpu: 1}"), "cpu=2"),
        // What is used beyond a lowered limit stays; what does not add to it is not refused.
        (
            "status: {hard: {cpu: 1, pods: 9}, used: {cpu: 5, pods: 2}}",
            "{cpu: 0}",
            None,
            "cpu=5,pods=3",
        ),
    ];
    for (text, object, old, expected) in cases {
        let mut quotas = [quota(text)];
        let seen = match demand(object, *old).charge(&mut quotas, &[]) {
            Err(error) => error.to_string(),
            Ok(_) => {
                let used = quotas[0].used.iter();
                used.map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
            }
        };
        assert_eq!(seen, *expected, "{text} {object} {old:?}");
    }
}

#[test]
fn a_request_that_one_quota_refuses_is_charged_to_none() {
    let text = "status: {hard: {cpu: 2}, used: {cpu: 1}}";
    let mut quotas = [quota(text), quota(&text.replace("cpu: 2", "cpu: 1"))];
    demand("{cpu: 1}", None).charge(&mut quotas, &[]).unwrap_err();
    assert!(quotas.iter().all(|quota| quota.used["cpu"].to_string() == "1" && !quota.changed));
}

#[test]
fn what_the_configuration_limits_needs_a_quota() {
    let special = Scope { name: "Special".into(), operator: "Exists".into(), values: Vec::new() };
    let limited = [LimitedResource {
        resource: GroupResource::new("", "pods"),
        match_contains: vec!["cp".to_owned()],
        match_scopes: vec![special],
    }];
    let plain = "status: {hard: {cpu: 9}, used: {cpu: 1}}";
    let scoped = "spec: {scopes: [Special]}\nstatus: {hard: {cpu: 9}, used: {cpu: 1}}";
    let cases = [
        (vec![], "{cpu: 1}", "pods \"p\" is forbidden: insufficient quota to consume: cpu"),
        (vec![quota(plain)], "{cpu: 1}", ""),
        (
            vec![quota(plain)],
            "{cpu: 1, special: 'yes'}",
            "insufficient quota to match these scopes: [{Special Exists []}]",
        ),
        (vec![quota(scoped)], "{cpu: 1, special: 'yes'}", ""),
    ];
    for (mut quotas, object, expected) in cases {
        let charged = demand(object, None).charge(&mut quotas, &limited);
        assert_eq!(charged.err().map(|error| error.to_string()).unwrap_or_default(), expected);
    }
}

fn pods_quota(hard: usize) -> Arc<MemoryQuotas> {
    let quotas = MemoryQuotas::default();
    quotas.quotas.lock().unwrap().push(value!({
        "metadata": {"name": "q", "namespace": "n", "resourceVersion": "1"},
        "status": {"hard": {"count/pods": (hard.to_string())}, "used": {"count/pods": "0"}},
    }));
    Arc::new(quotas)
}

fn plugin(quotas: &Arc<MemoryQuotas>) -> Arc<ResourceQuota> {
    let evaluators = Arc::new(Evaluators::default());
    Arc::new(ResourceQuota::new(evaluators, quotas.clone(), None).unwrap())
}

/// A pod that counts as one.
fn counted() -> Demand {
    let evaluator = Arc::new(ObjectCount::new(&GroupResource::new("", "pods"), None));
    Demand { evaluator, ..demand("{}", None) }
}

fn used(quotas: &MemoryQuotas) -> String {
    quotas.quotas.lock().unwrap()[0].str_at(&["status", "used", "count/pods"]).to_owned()
}

/// Creates pods through the plugins, concurrently; returns how many were accepted.
async fn create_pods(plugins: &[Arc<ResourceQuota>], count: usize) -> usize {
    let requests = (0..count).map(|at| {
        let plugin = plugins[at % plugins.len()].clone();
        tokio::spawn(async move { plugin.decide("n", counted()).await })
    });
    let mut accepted = 0;
    for request in requests.collect::<Vec<_>>() {
        accepted += usize::from(request.await.unwrap().is_ok());
    }
    accepted
}

#[tokio::test]
async fn concurrent_creates_share_writes_and_never_exceed_the_quota() {
    let quotas = pods_quota(60);
    assert_eq!(create_pods(&[plugin(&quotas)], 100).await, 60);
    assert_eq!(used(&quotas), "60");
    assert!(quotas.writes.load(Ordering::SeqCst) <= 10, "{:?}", quotas.writes);
}

#[tokio::test]
async fn two_servers_never_exceed_the_quota_together() {
    let quotas = pods_quota(60);
    assert_eq!(create_pods(&[plugin(&quotas), plugin(&quotas)], 200).await, 60);
    assert_eq!(used(&quotas), "60");
}

#[tokio::test]
async fn a_conflict_is_decided_again_from_the_current_quota() {
    let quotas = pods_quota(2);
    quotas.conflicts.store(3, Ordering::SeqCst);
    assert_eq!(create_pods(&[plugin(&quotas)], 5).await, 2);
    assert_eq!(used(&quotas), "2");
}

#[tokio::test]
async fn dry_runs_are_checked_and_not_charged() {
    let quotas = pods_quota(1);
    let plugin = plugin(&quotas);
    let dry = || Demand { is_dry_run: true, ..counted() };
    assert!(plugin.decide("n", dry()).await.is_ok());
    assert_eq!(used(&quotas), "0");
    assert_eq!(create_pods(std::slice::from_ref(&plugin), 1).await, 1);
    let refused = plugin.decide("n", dry()).await.map(drop).unwrap_err().to_string();
    assert_eq!(
        refused,
        "pods \"p\" is forbidden: exceeded quota: q, requested: count/pods=1, used: count/pods=1, limited: count/pods=1"
    );
}
