//! CEL expressions that ask an authorizer (`authorizer.group('').resource('pods')…`), in match
//! conditions and policies.

use std::sync::Arc;

use cel::{AuthorizerBinding, AuthorizerChecks};
use meta::{User, authorization::Authorizer};

/// Evaluates expressions about a user. With an authorizer that decides from memory this is one
/// evaluation; otherwise one more for each check that had to be waited for. The cost limit of CEL
/// bounds their number: each check costs 350 000 of the 1 000 000 that one expression may cost.
pub async fn evaluate_with_authorizer<T>(
    authorizer: &Arc<dyn Authorizer>,
    user: &User,
    mut evaluate: impl FnMut(&AuthorizerBinding) -> T,
) -> T {
    let checks = Arc::new(AuthorizerChecks::new(authorizer.clone()));
    let binding = AuthorizerBinding { checks, user: Arc::new(user.clone()) };
    loop {
        let outcome = evaluate(&binding);
        let undecided = binding.checks.take_undecided();
        if undecided.is_empty() {
            return outcome;
        }
        for check in undecided {
            let verdict = authorizer.authorize(&check.attributes()).await;
            binding.checks.record(check, verdict);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cel::{Bound, Env, KubernetesValue, Type, Val};
    use meta::authorization::{Attributes, Authorize, Rules, Verdict};

    use super::*;

    /// Allows every verb but `delete`.
    struct ByVerb {
        waits: bool,
        asked: AtomicUsize,
    }

    impl Authorizer for ByVerb {
        fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Authorize<'a> {
            let verdict = match attributes.verb {
                "delete" => Verdict::no_opinion(""),
                _ => Verdict::allow(""),
            };
            if !self.waits {
                self.asked.fetch_add(1, Ordering::Relaxed);
                return verdict.into();
            }
            Authorize::later(async move {
                self.asked.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                verdict
            })
        }

        fn rules(&self, _user: &User, _namespace: &str) -> Rules {
            Rules::default()
        }
    }

    #[tokio::test]
    async fn an_expression_is_evaluated_once_more_for_each_check_that_waits() {
        let env = Env::new().variable("authorizer", Type::authorizer());
        let check =
            |verb| format!("authorizer.group('').resource('pods').check('{verb}').allowed()");
        let cases = [
            (format!("{} && {}", check("get"), check("list")), true, 2, [1, 3]),
            (format!("{} && {}", check("delete"), check("list")), false, 1, [1, 2]),
            (format!("{0} && {0}", check("get")), true, 1, [1, 2]),
        ];
        for (expression, expected, checks, evaluations) in cases {
            let program = env.compile(&expression).expect("compiles");
            for (waits, evaluations) in [false, true].into_iter().zip(evaluations) {
                let by_verb = Arc::new(ByVerb { waits, asked: AtomicUsize::new(0) });
                let authorizer: Arc<dyn Authorizer> = by_verb.clone();
                let mut evaluated = 0;
                let user = User::default();
                let result = evaluate_with_authorizer(&authorizer, &user, |binding| {
                    evaluated += 1;
                    let bound =
                        Val::Kubernetes(Arc::new(KubernetesValue::Authorizer(binding.clone())));
                    let variables = [Bound::Val(bound)];
                    let outcome = program.evaluate(&variables, cel::PER_CALL_LIMIT);
                    matches!(outcome.result, Ok(Val::Bool(true)))
                });
                assert_eq!(result.await, expected, "{expression}");
                assert_eq!(evaluated, evaluations, "{expression}");
                assert_eq!(by_verb.asked.load(Ordering::Relaxed), checks, "{expression}");
            }
        }
    }
}
