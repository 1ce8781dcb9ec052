//! What expressions get from outside: optional data, plain values, an authorizer, a budget.

use std::sync::Arc;

use cel::{
    AuthorizerBinding, AuthorizerChecks, Bound, Decl, Env, EvalError, KubernetesValue, Type, Val,
};
use meta::{
    User,
    authorization::{Attributes, Authorize, Authorizer, Decision, Rules, Verdict},
    value,
};

fn decl() -> Arc<Decl> {
    Arc::new(Decl::object([("size", Arc::new(Decl::int()), true)]))
}

#[track_caller]
fn check(env: &Env, variables: &[Bound<'_>], cases: &[(&str, Result<bool, &str>)]) {
    for (expression, expected) in cases {
        let program = env.compile(expression).unwrap_or_else(|e| panic!("{expression}: {e}"));
        let result = program.evaluate(variables, cel::PER_CALL_LIMIT).result;
        let actual = result.map(|value| value.as_bool().expect("a bool"));
        let expected = expected.map_err(|message| EvalError::Failed(message.into()));
        assert_eq!(actual, expected, "{expression}");
    }
}

#[test]
fn old_data_may_be_optional() {
    let decl = decl();
    let env = Env::new().data("self", &decl).optional_data("oldSelf", &decl);
    let (new, old) = (value!({"size": 3i64}), value!({"size": 2i64}));
    let update = [Bound::Data(&new, &decl), Bound::Optional(Some((&old, &decl)))];
    check(
        &env,
        &update,
        &[
            ("oldSelf.hasValue()", Ok(true)),
            ("oldSelf.value().size == 2", Ok(true)),
            ("oldSelf.optMap(o, self.size > o.size).orValue(false)", Ok(true)),
            ("oldSelf.size.orValue(0) == 2", Ok(true)),
        ],
    );
    let create = [Bound::Data(&new, &decl), Bound::Optional(None)];
    check(
        &env,
        &create,
        &[
            ("oldSelf.hasValue()", Ok(false)),
            ("oldSelf.value().size == 2", Err("optional.none() dereference")),
            ("oldSelf.optMap(o, self.size > o.size).orValue(true)", Ok(true)),
        ],
    );
    let program = env.compile("self.size > 1").expect("compiles");
    assert!(program.uses("self") && !program.uses("oldSelf"));
}

#[test]
fn a_variable_without_a_value_fails_where_it_is_needed() {
    let env = Env::new().variable("a", Type::Bool).variable("b", Type::Dyn);
    let variables = [Bound::Val(Val::Bool(true)), Bound::Missing];
    check(
        &env,
        &variables,
        &[
            ("a || b", Ok(true)),
            ("b || a", Ok(true)),
            ("a && b", Err("no such attribute(s): b")),
            ("has(b.x)", Err("no such attribute(s): b")),
        ],
    );
}

#[test]
fn the_budget_ends_an_evaluation_and_nothing_absorbs_that() {
    let env = Env::new();
    let program = env.compile("lists.range(100).all(i, i >= 0) || true").expect("compiles");
    assert!(matches!(program.evaluate(&[], 1_000).result, Ok(Val::Bool(true))));
    let outcome = program.evaluate(&[], 200);
    assert_eq!(outcome.result.expect_err("is cancelled"), EvalError::CostLimit);
    assert!(outcome.cost > 200);
    // These cost little or nothing, and would never end.
    let doubled = ".map(x, x + x)".repeat(60);
    let nested = ".map(x, [dyn(x), dyn(x)])".repeat(60);
    for expression in [
        format!("[[1]]{doubled}[0].exists_one(x, false)"),
        format!("[[dyn(1)]]{nested} == [[dyn(1)]]{nested}"),
        "lists.range(900000).exists_one(x, lists.range(9).map(y, y).exists_one(z, false))".into(),
    ] {
        let program = env.compile(&expression).expect("compiles");
        let outcome = program.evaluate(&[], cel::PER_CALL_LIMIT);
        assert_eq!(outcome.result.expect_err("is cancelled"), EvalError::CostLimit, "{expression}");
    }
}

/// Lets every user read, and says what it was asked; at once or only when it is waited for.
struct Readers {
    waits: bool,
}

impl Authorizer for Readers {
    fn authorize<'a>(&'a self, asked: &'a Attributes<'a>) -> Authorize<'a> {
        let Attributes { verb, group, resource, namespace, name, path, .. } = asked;
        let account = asked.user.name.strip_prefix("system:serviceaccount:");
        let account = account.map(|account| format!("{account} ")).unwrap_or_default();
        let reason = format!("{account}{verb} {group}/{resource} {namespace}/{name}{path}");
        let decision = if *verb == "get" { Decision::Allow } else { Decision::NoOpinion };
        let verdict = Verdict { decision, reason, error: None };
        if self.waits { Authorize::later(async { verdict }) } else { verdict.into() }
    }

    fn rules(&self, _user: &User, _namespace: &str) -> Rules {
        Rules::default()
    }
}

fn binding(waits: bool) -> AuthorizerBinding {
    let checks = AuthorizerChecks::new(Arc::new(Readers { waits }));
    AuthorizerBinding { checks: Arc::new(checks), user: Arc::default() }
}

#[test]
fn an_undecided_check_stops_the_evaluation_and_nothing_absorbs_it() {
    let binding = binding(true);
    let env = Env::new().variable("authorizer", Type::authorizer());
    let variables =
        [Bound::Val(Val::Kubernetes(Arc::new(KubernetesValue::Authorizer(binding.clone()))))];
    let pods = |verb| format!("authorizer.group('').resource('pods').check('{verb}').allowed()");
    let program = env.compile(&format!("{} || {} || true", pods("list"), pods("get"))).unwrap();
    let mut asked = Vec::new();
    loop {
        let outcome = program.evaluate(&variables, cel::PER_CALL_LIMIT);
        let undecided = binding.checks.take_undecided();
        if undecided.is_empty() {
            assert!(matches!(outcome.result, Ok(Val::Bool(true))));
            break;
        }
        assert_eq!(outcome.result.expect_err("cannot know"), EvalError::Undecided);
        for check in undecided {
            asked.push(check.verb.clone());
            let decision = if check.verb == "get" { Decision::Allow } else { Decision::Deny };
            binding.checks.record(check, Verdict { decision, ..Verdict::no_opinion("") });
        }
    }
    assert_eq!(asked, ["list", "get"], "each is asked once");
}

#[test]
fn policies_can_ask_what_a_user_may_do() {
    let authorizer = KubernetesValue::Authorizer(binding(false));
    let env = Env::new().variable("authorizer", Type::authorizer());
    let variables = [Bound::Val(Val::Kubernetes(Arc::new(authorizer)))];
    let pods = "authorizer.group('').resource('pods').namespace('n').name('p')";
    let reason = |question: &str, reason: &str| format!("{question}.reason() == '{reason}'");
    let cases = [
        format!("{pods}.check('get').allowed()"),
        format!("!{pods}.check('delete').allowed() && !{pods}.check('delete').errored()"),
        reason(&format!("{pods}.check('get')"), "get /pods n/p"),
        reason("authorizer.path('/healthz').check('get')", "get / //healthz"),
        reason(
            "authorizer.serviceAccount('n', 'a').group('g').resource('r').check('list')",
            "n:a list g/r /",
        ),
    ];
    for case in &cases {
        check(&env, &variables, &[(case, Ok(true))]);
    }
    check(
        &env,
        &variables,
        &[
            ("authorizer.path('').check('get').allowed()", Err("path must not be empty")),
            (
                "authorizer.serviceAccount('n', 'A').path('/x').check('get').allowed()",
                Err("Invalid service account name"),
            ),
        ],
    );
    let program = env.compile(&cases[0]).expect("compiles");
    assert_eq!(program.evaluate(&variables, cel::PER_CALL_LIMIT).cost, 350_006);
}

#[test]
fn only_mutations_know_json_patch() {
    let expression = "jsonpatch.escapeKey('a/b~c') == 'a~1b~0c'";
    assert!(Env::new().compile(expression).is_err());
    check(&Env::new().for_mutations(), &[], &[(expression, Ok(true))]);
}

#[test]
fn a_cancelled_evaluation_ends() {
    let decl = decl();
    let env = Env::new().data("self", &decl);
    let ten = "[0,1,2,3,4,5,6,7,8,9]";
    let expression = format!(
        "{ten}.all(a, {ten}.all(b, {ten}.all(c, {ten}.all(d, a + b + c + d + self.size >= 0))))"
    );
    let program = env.compile(&expression).expect("an expression");
    let object = value!({"size": 3i64});
    let variables = [Bound::Data(&object, &decl)];
    let evaluate = || drop(program.evaluate(&variables, cel::PER_CALL_LIMIT));
    evaluate();
    assert!(meta::cancel::is_interruptible(evaluate));
}
