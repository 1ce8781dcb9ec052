//! Several authorizers, asked in order: the first that allows or denies decides.

use std::sync::Arc;

use meta::User;

use super::{Attributes, Authorize, Authorizer, Decision, Rules, Verdict, aggregate};

pub struct Union(pub Vec<Arc<dyn Authorizer>>);

impl Authorizer for Union {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Authorize<'a> {
        let mut so_far = NoOpinions::default();
        for (at, authorizer) in self.0.iter().enumerate() {
            match authorizer.authorize(attributes) {
                Authorize::Ready(verdict) => {
                    if let Some(decided) = so_far.add(verdict) {
                        return decided.into();
                    }
                }
                Authorize::Pending(first) => {
                    let rest = &self.0[at + 1..];
                    return Authorize::later(ask_rest(so_far, first, rest, attributes));
                }
            }
        }
        so_far.verdict().into()
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let (mut all, mut errors) = (Rules::default(), Vec::new());
        for authorizer in &self.0 {
            let rules = authorizer.rules(user, namespace);
            all.resource.extend(rules.resource);
            all.non_resource.extend(rules.non_resource);
            all.incomplete |= rules.incomplete;
            errors.extend(rules.error);
        }
        all.error = aggregate(&errors);
        all
    }
}

/// Goes on from the first authorizer that has to wait.
async fn ask_rest(
    mut so_far: NoOpinions,
    first: impl Future<Output = Verdict>,
    rest: &[Arc<dyn Authorizer>],
    attributes: &Attributes<'_>,
) -> Verdict {
    if let Some(decided) = so_far.add(first.await) {
        return decided;
    }
    for authorizer in rest {
        if let Some(decided) = so_far.add(authorizer.authorize(attributes).await) {
            return decided;
        }
    }
    so_far.verdict()
}

/// What the authorizers said that had no opinion.
#[derive(Default)]
struct NoOpinions {
    reasons: Vec<String>,
    errors: Vec<String>,
}

impl NoOpinions {
    /// The verdict, if it is a decision.
    fn add(&mut self, verdict: Verdict) -> Option<Verdict> {
        if verdict.decision != Decision::NoOpinion {
            return Some(verdict);
        }
        self.reasons.extend(Some(verdict.reason).filter(|reason| !reason.is_empty()));
        self.errors.extend(verdict.error);
        None
    }

    fn verdict(self) -> Verdict {
        Verdict {
            decision: Decision::NoOpinion,
            reason: self.reasons.join("\n"),
            error: aggregate(&self.errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::{AlwaysAllow, AlwaysDeny, PrivilegedGroup};

    /// Answers at once, or only when it is waited for.
    struct Says(Decision, &'static str, Option<&'static str>, bool);

    impl Authorizer for Says {
        fn authorize<'a>(&'a self, _attributes: &'a Attributes<'a>) -> Authorize<'a> {
            let error = self.2.map(str::to_owned);
            let verdict = Verdict { decision: self.0, reason: self.1.to_owned(), error };
            if self.3 { Authorize::later(async { verdict }) } else { verdict.into() }
        }

        fn rules(&self, _user: &User, _namespace: &str) -> Rules {
            Rules { error: self.2.map(str::to_owned), ..Rules::default() }
        }
    }

    #[tokio::test]
    async fn the_first_opinion_counts_and_none_is_a_no() {
        for waits in [[false, false], [true, false], [false, true], [true, true]] {
            check(waits).await;
        }
    }

    async fn check([first, second]: [bool; 2]) {
        use Decision::{Allow, Deny, NoOpinion};
        let say = |decision, reason, error, waits| -> Arc<dyn Authorizer> {
            Arc::new(Says(decision, reason, error, waits))
        };
        let one = |decision, reason, error| say(decision, reason, error, first);
        let two = |decision, reason, error| say(decision, reason, error, second);
        let cases = [
            (vec![], (NoOpinion, "", None)),
            (vec![one(NoOpinion, "", None), two(Allow, "yes", None)], (Allow, "yes", None)),
            (vec![one(Deny, "no", None), two(Allow, "yes", None)], (Deny, "no", None)),
            // An error of one does not undo the yes of another.
            (vec![one(NoOpinion, "", Some("e")), two(Allow, "y", None)], (Allow, "y", None)),
            (
                vec![one(NoOpinion, "a", Some("e")), two(NoOpinion, "b", Some("f"))],
                (NoOpinion, "a\nb", Some("[e, f]")),
            ),
            (vec![Arc::new(AlwaysDeny), Arc::new(AlwaysAllow)], (Allow, "", None)),
            (
                vec![Arc::new(PrivilegedGroup), Arc::new(AlwaysDeny)],
                (NoOpinion, "Everything is forbidden.", None),
            ),
        ];
        let user = User::default();
        for (authorizers, (decision, reason, error)) in cases {
            let expected =
                Verdict { decision, reason: reason.to_owned(), error: error.map(str::to_owned) };
            let union = Union(authorizers);
            let attributes = Attributes::of_path(&user, "get", "/");
            assert_eq!(union.authorize(&attributes).await, expected);
        }
    }

    #[test]
    fn a_decision_from_memory_is_ready_whatever_comes_behind_it() {
        let user = User::default();
        let attributes = Attributes::of_path(&user, "get", "/");
        let slow: Arc<dyn Authorizer> = Arc::new(Says(Decision::Allow, "", None, true));
        let ready = Union(vec![Arc::new(AlwaysAllow), slow.clone()]);
        assert!(matches!(ready.authorize(&attributes), Authorize::Ready(_)));
        let waits = Union(vec![Arc::new(AlwaysDeny), slow]);
        assert!(matches!(waits.authorize(&attributes), Authorize::Pending(_)));
    }
}
