//! The condition `Established`: the names are accepted and the objects are served.

use meta::Value;

use crate::{
    conditions::{self, Condition, ESTABLISHED, NAMES_ACCEPTED},
    definition::ca_bundle_error,
};

/// The condition to set; None if the definition is established, which it stays. `served`: its objects
/// are served already, without which it cannot be established.
pub(crate) fn condition(definition: &Value, served: bool) -> Option<Condition> {
    if conditions::is_true(definition, ESTABLISHED) {
        return None;
    }
    let accepted = conditions::is_true(definition, NAMES_ACCEPTED);
    let bundle = definition.str_at(&CA_BUNDLE);
    if accepted && ca_bundle_error(bundle).is_some() {
        let why = "The conversion webhook CABundle is invalid";
        return Some(Condition::new(ESTABLISHED, false, "InvalidCABundle", why));
    }
    Some(match (accepted, served) {
        (true, true) => Condition::new(
            ESTABLISHED,
            true,
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ),
        (true, false) => {
            Condition::new(ESTABLISHED, false, "Installing", "the initial names have been accepted")
        }
        (false, _) => {
            Condition::new(ESTABLISHED, false, "NotAccepted", "not all names are accepted")
        }
    })
}

const CA_BUNDLE: [&str; 5] = ["spec", "conversion", "webhook", "clientConfig", "caBundle"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_established_when_its_names_are_accepted_and_it_is_served() {
        let cases = [
            (false, false, "False NotAccepted"),
            (false, true, "False NotAccepted"),
            (true, false, "False Installing"),
            (true, true, "True InitialNamesAccepted"),
        ];
        for (accepted, served, expected) in cases {
            let mut definition = Value::object();
            let names = Condition::new(NAMES_ACCEPTED, accepted, "", "");
            conditions::set(&mut definition, &names, "");
            let found = condition(&definition, served).expect("not established yet");
            assert_eq!(format!("{} {}", found.status, found.reason), expected);
        }
    }

    #[test]
    fn an_established_definition_stays_established() {
        let mut definition = Value::object();
        conditions::set(&mut definition, &Condition::new(ESTABLISHED, true, "", ""), "");
        assert_eq!(condition(&definition, false), None);
    }
}
