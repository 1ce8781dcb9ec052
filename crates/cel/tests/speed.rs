//! How long compiling and evaluating take. Not run by default, as it asserts nothing about time:
//! `cargo test --release -p cel --test speed -- --ignored --nocapture`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cel::{Bound, Decl, Env, ListType, PER_CALL_LIMIT, Val};
use meta::value;

#[test]
#[ignore = "measures, and asserts only that the rules hold"]
fn compiling_and_evaluating() {
    let int = Arc::new(Decl::int());
    let names = Decl::list(Arc::new(Decl::string(Some(63))), ListType::Atomic, Some(20));
    let spec = Decl::object([
        ("replicas", int.clone(), true),
        ("max", int, false),
        ("memory", Arc::new(Decl::string(Some(20))), false),
        ("names", Arc::new(names), false),
    ]);
    let decl = Arc::new(Decl::object([("spec", Arc::new(spec), false)]));
    let object = value!({"spec": {"replicas": 3i64, "max": 5i64, "memory": "512Mi",
        "names": ["alpha", "beta", "gamma", "delta", "epsilon"]}});
    let env = Env::new().data("self", &decl).data("oldSelf", &decl);
    let variables = [Bound::Data(&object, &decl), Bound::Data(&object, &decl)];
    let rules = [
        "self.spec.replicas <= self.spec.max",
        "self.spec.replicas >= oldSelf.spec.replicas",
        "!has(self.spec.max) || has(self.spec.memory)",
        "quantity(self.spec.memory).isLessThan(quantity('1Gi'))",
        "self.spec.names.all(n, n.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",
    ];
    for rule in rules {
        let compile = per_call(|| drop(black_box(env.compile(black_box(rule)))));
        let program = env.compile(rule).expect("compiles");
        let evaluate = per_call(|| {
            let outcome = program.evaluate(black_box(&variables), PER_CALL_LIMIT);
            assert!(matches!(outcome.result, Ok(Val::Bool(true))));
        });
        println!("compile {compile:>9.2?}  evaluate {evaluate:>9.2?}  {rule}");
    }
}

/// The best of several rounds, as others may use the machine.
fn per_call(mut call: impl FnMut()) -> Duration {
    const ROUNDS: u32 = 20;
    const CALLS: u32 = 2_000;
    (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..CALLS {
                call();
            }
            begin.elapsed() / CALLS
        })
        .min()
        .expect("has rounds")
}
