//! Validation of priority level configurations.

use meta::{FieldErrors, Value, value};

use crate::{flowcontrol::flow_schema::validation::status_conditions, validation::cursor::Field};

fn mandatory_level(name: &str, spec: &Field<'_>, errors: &mut FieldErrors) {
    match name {
        "exempt" => {
            let spec_type = spec.str_at(&["type"]);
            if spec_type != "Exempt" || spec.get("limited").is_set() {
                let why = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed \
                           value";
                spec.invalid(errors, why);
            }
        }
        "catch-all" => {
            let fixed = value!({"type": "Limited", "limited": {
                "nominalConcurrencyShares": 5i64, "lendablePercent": 0i64,
                "limitResponse": {"type": "Reject"}
            }});
            if spec.value() != Some(&fixed) {
                spec.invalid(errors, "spec of 'catch-all' must equal the fixed value");
            }
        }
        _ => {}
    }
}

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let (kind, limited, exempt) = (spec.get("type"), spec.get("limited"), spec.get("exempt"));
    if (root.str_at(&["metadata", "name"]) == "exempt") != kind.is("Exempt") {
        let why = "must be 'Exempt' if and only if `name` is 'exempt'";
        kind.invalid_value(errors, kind.str(), why);
    }
    match kind.str() {
        "Exempt" => {
            if limited.is_set() {
                limited.forbidden(errors, "must be nil if the type is not Limited");
            }
            shares(&exempt, errors);
            percent(&exempt.get("lendablePercent"), errors);
        }
        "Limited" => {
            if exempt.is_set() {
                exempt.forbidden(errors, "must be nil if the type is Limited");
            }
            if limited.is_set() {
                limited_level(&limited, errors);
            } else {
                limited.required(errors, "must not be empty when type is Limited");
            }
        }
        "" => kind.required(errors, ""),
        _ => kind.not_supported(errors, &["Exempt", "Limited"]),
    }
    mandatory_level(root.str_at(&["metadata", "name"]), &spec, errors);
}

pub(crate) fn validate_update(object: &Value, _old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    status_conditions(object, errors);
}

fn shares(level: &Field<'_>, errors: &mut FieldErrors) {
    let shares = level.get("nominalConcurrencyShares");
    if shares.int_or_zero() < 0 {
        shares.invalid(errors, "must be a non-negative integer");
    }
}

fn percent(percent: &Field<'_>, errors: &mut FieldErrors) {
    if !(0..=100).contains(&percent.int_or_zero()) {
        percent.invalid(errors, "must be between 0 and 100, inclusive");
    }
}

fn limited_level(limited: &Field<'_>, errors: &mut FieldErrors) {
    shares(limited, errors);
    let response = limited.get("limitResponse");
    let (kind, queuing) = (response.get("type"), response.get("queuing"));
    match kind.str() {
        "Reject" => {
            if queuing.is_set() {
                let why = "must be nil if limited.limitResponse.type is not Limited";
                queuing.forbidden(errors, why);
            }
        }
        "Queue" if !queuing.is_set() => {
            let why = "must not be empty if limited.limitResponse.type is Limited";
            queuing.required(errors, why);
        }
        "Queue" => self::queuing(&queuing, errors),
        "" => kind.required(errors, ""),
        _ => kind.not_supported(errors, &["Queue", "Reject"]),
    }
    percent(&limited.get("lendablePercent"), errors);
    let borrowing = limited.get("borrowingLimitPercent");
    if borrowing.int_or_zero() < 0 {
        borrowing.invalid(errors, "if specified, must be a non-negative integer");
    }
}

fn queuing(queuing: &Field<'_>, errors: &mut FieldErrors) {
    let (limit, queues, hand) =
        (queuing.get("queueLengthLimit"), queuing.get("queues"), queuing.get("handSize"));
    let positive = "must be positive";
    if limit.int_or_zero() <= 0 {
        limit.invalid_value(errors, limit.int_or_zero(), positive);
    }
    match queues.int_or_zero() {
        ..=0 => queues.invalid_value(errors, queues.int_or_zero(), positive),
        10_000_001.. => queues.invalid(errors, "must not be greater than 10000000"),
        _ => {}
    }
    let (size, deck) = (hand.int_or_zero(), queues.int_or_zero());
    if size <= 0 {
        hand.invalid_value(errors, size, positive);
    } else if size > deck {
        hand.invalid(errors, &format!("should not be greater than queues ({deck})"));
    } else if entropy_bits(deck, size) > 60 {
        let why = format!(
            "required entropy bits of deckSize {deck} and handSize {size} should not be greater \
             than 60"
        );
        hand.invalid(errors, &why);
    }
}

/// How many bits it takes to deal a hand of this size from the deck.
fn entropy_bits(deck: i64, hand: i64) -> i64 {
    ((deck as f64).log2() * hand as f64).ceil() as i64
}
