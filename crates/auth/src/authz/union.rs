//! Several authorizers, asked in order: the first that allows or denies decides.

use std::sync::Arc;

use meta::{RequestInfo, User};

use super::{Authorizer, Decision, Rules, Verdict, aggregate};

pub struct Union(pub Vec<Arc<dyn Authorizer>>);

impl Authorizer for Union {
    fn decide(&self, user: &User, info: &RequestInfo) -> Verdict {
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for authorizer in &self.0 {
            let verdict = authorizer.decide(user, info);
            if verdict.decision != Decision::NoOpinion {
                return verdict;
            }
            reasons.extend(Some(verdict.reason).filter(|reason| !reason.is_empty()));
            errors.extend(verdict.error);
        }
        Verdict {
            decision: Decision::NoOpinion,
            reason: reasons.join("\n"),
            error: aggregate(&errors),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::{AlwaysAllow, AlwaysDeny, PrivilegedGroup};

    struct Says(Decision, &'static str, Option<&'static str>);

    impl Authorizer for Says {
        fn decide(&self, _user: &User, _info: &RequestInfo) -> Verdict {
            let error = self.2.map(str::to_owned);
            Verdict { decision: self.0, reason: self.1.to_owned(), error }
        }

        fn rules(&self, _user: &User, _namespace: &str) -> Rules {
            Rules { error: self.2.map(str::to_owned), ..Rules::default() }
        }
    }

    #[test]
    fn the_first_opinion_counts_and_none_is_a_no() {
        use Decision::{Allow, Deny, NoOpinion};
        let says = |decision, reason, error| -> Arc<dyn Authorizer> {
            Arc::new(Says(decision, reason, error))
        };
        let cases = [
            (vec![], (NoOpinion, "", None)),
            (vec![says(NoOpinion, "", None), says(Allow, "yes", None)], (Allow, "yes", None)),
            (vec![says(Deny, "no", None), says(Allow, "yes", None)], (Deny, "no", None)),
            // An error of one does not undo the yes of another.
            (vec![says(NoOpinion, "", Some("e")), says(Allow, "y", None)], (Allow, "y", None)),
            (
                vec![says(NoOpinion, "a", Some("e")), says(NoOpinion, "b", Some("f"))],
                (NoOpinion, "a\nb", Some("[e, f]")),
            ),
            (vec![Arc::new(AlwaysDeny), Arc::new(AlwaysAllow)], (Allow, "", None)),
            (
                vec![Arc::new(PrivilegedGroup), Arc::new(AlwaysDeny)],
                (NoOpinion, "Everything is forbidden.", None),
            ),
        ];
        for (authorizers, (decision, reason, error)) in cases {
            let verdict = Union(authorizers).decide(&User::default(), &RequestInfo::default());
            let expected =
                Verdict { decision, reason: reason.to_owned(), error: error.map(str::to_owned) };
            assert_eq!(verdict, expected);
        }
    }
}
