//! Divides the server's seats among the priority levels.

/// A level that wants seats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Claim {
    /// At least `least`.
    pub(crate) target: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// The result: seats for each claim, and the fraction of its target that a level gets whose bounds
/// do not matter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Allocation {
    pub(crate) seats: Vec<f64>,
    pub(crate) fair_fraction: f64,
}

/// Below it a target counts as this much, so that levels without demand share evenly.
const TARGET_MIN: f64 = 0.001;
const EPSILON: f64 = 1e-7;

/// Finds the fraction of targets with which the claims, each within its bounds, add up to `total`.
/// None if the bounds do not allow any.
pub(crate) fn allocate(total: f64, claims: &[Claim]) -> Option<Allocation> {
    let valid = claims.iter().all(|claim| {
        claim.least >= 0.0 && claim.target >= claim.least && claim.most >= claim.least
    });
    let least: f64 = claims.iter().map(|claim| claim.least).sum();
    let most: f64 = claims.iter().map(|claim| claim.most).sum();
    if !valid || least > total + EPSILON || most < total - EPSILON {
        return None;
    }
    // The sum is a piecewise linear function of the fraction. A claim adds to its slope between the
    // fractions at which it leaves its lower and reaches its upper bound.
    let mut turns: Vec<(f64, f64)> = Vec::with_capacity(2 * claims.len());
    for claim in claims {
        let target = claim.target.max(TARGET_MIN);
        turns.push((claim.least / target, target));
        turns.push((claim.most / target, -target));
    }
    turns.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let (mut sum, mut slope, mut fraction) = (least, 0.0, 0.0);
    for (turn, change) in turns {
        let at_turn = sum + slope * (turn - fraction);
        if slope > 0.0 && at_turn >= total {
            break;
        }
        (sum, fraction) = (at_turn, turn);
        if sum >= total - EPSILON {
            break;
        }
        slope += change;
    }
    if slope > 0.0 && sum < total {
        fraction += (total - sum) / slope;
    }
    let seats = claims
        .iter()
        .map(|claim| (fraction * claim.target.max(TARGET_MIN)).clamp(claim.least, claim.most))
        .collect();
    Some(Allocation { seats, fair_fraction: fraction })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim((target, least, most): (f64, f64, f64)) -> Claim {
        Claim { target, least, most }
    }

    #[test]
    fn seats_follow_the_targets_within_bounds() {
        // Total, claims (target, least, most), seats.
        type Case<'a> = (f64, &'a [(f64, f64, f64)], Option<&'a [f64]>);
        let cases: [Case<'_>; 9] = [
            (100.0, &[(10.0, 0.0, 100.0), (30.0, 0.0, 100.0)], Some(&[25.0, 75.0])),
            (100.0, &[(10.0, 5.0, 20.0), (30.0, 0.0, 100.0)], Some(&[20.0, 80.0])),
            (100.0, &[(60.0, 60.0, 90.0), (60.0, 0.0, 90.0)], Some(&[60.0, 40.0])),
            (100.0, &[(0.0, 0.0, 100.0), (0.0, 0.0, 100.0)], Some(&[50.0, 50.0])),
            (10.0, &[(5.0, 5.0, 5.0), (5.0, 5.0, 5.0)], Some(&[5.0, 5.0])),
            (10.0, &[(6.0, 6.0, 9.0), (5.0, 5.0, 9.0)], None),
            (10.0, &[(1.0, 0.0, 4.0), (1.0, 0.0, 5.0)], None),
            (10.0, &[(1.0, 2.0, 40.0)], None),
            (0.0, &[(1.0, 0.0, 4.0)], Some(&[0.0])),
        ];
        for (total, claims, expected) in cases {
            let claims: Vec<Claim> = claims.iter().copied().map(claim).collect();
            let got = allocate(total, &claims).map(|allocation| allocation.seats);
            match (&got, expected) {
                (Some(got), Some(expected)) => {
                    let close = got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
                    assert!(close, "{claims:?}: {got:?}, not {expected:?}");
                }
                _ => assert_eq!(got.is_some(), expected.is_some(), "{claims:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn every_seat_is_given_and_no_bound_broken(
            claims in proptest::collection::vec((0u32..300, 0u32..100, 0u32..400, 0u32..300), 1..12),
            place in 0.0f64..=1.0,
        ) {
            let claims: Vec<Claim> = claims
                .into_iter()
                .map(|(above, least, room, _)| {
                    claim((f64::from(least + above), f64::from(least), f64::from(least + room)))
                })
                .collect();
            let least: f64 = claims.iter().map(|claim| claim.least).sum();
            let most: f64 = claims.iter().map(|claim| claim.most).sum();
            let total = least + place * (most - least);
            let got = allocate(total, &claims).expect("within the bounds");
            let sum: f64 = got.seats.iter().sum();
            prop_assert!((sum - total).abs() < 1e-3, "{sum} of {total}");
            for (claim, &seats) in claims.iter().zip(&got.seats) {
                let fair = got.fair_fraction * claim.target.max(TARGET_MIN);
                prop_assert!(seats >= claim.least - 1e-9 && seats <= claim.most + 1e-9);
                // A level with another amount than the fair one is at a bound.
                let at_bound = (seats - claim.least).abs() < 1e-6 || (seats - claim.most).abs() < 1e-6;
                prop_assert!((seats - fair).abs() < 1e-6 || at_bound);
            }
        }
    }
}
