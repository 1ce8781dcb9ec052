//! The order in which go-yaml prints keys: letters behind everything else, numbers by value (`a2`
//! before `a10`).

use std::cmp::Ordering;

/// Sorts members by key. The order is not transitive for odd keys, and then a library's sort may
/// panic; merging halves cannot.
pub(super) fn sorted<T: Copy>(members: Vec<(&str, T)>) -> Vec<(&str, T)> {
    if members.len() < 2 {
        return members;
    }
    let mut left = members;
    let right = left.split_off(left.len() / 2);
    let (left, right) = (sorted(left), sorted(right));
    let mut out = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.as_slice(), right.as_slice());
    while let ([first, rest @ ..], [other, others @ ..]) = (left, right) {
        if compare(first.0, other.0).is_le() {
            out.push(*first);
            left = rest;
        } else {
            out.push(*other);
            right = others;
        }
    }
    out.extend_from_slice(left);
    out.extend_from_slice(right);
    out
}

fn compare(a: &str, b: &str) -> Ordering {
    let differs = |((_, a), b): &((usize, char), char)| a != b;
    let Some(((at, x), y)) = a.char_indices().zip(b.chars()).find(differs) else {
        return a.len().cmp(&b.len());
    };
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x.cmp(&y),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // Zeros count if they stand behind another digit of the same number.
    let behind_digit = (x == '0' || y == '0')
        && a[..at].chars().rev().take_while(|c| c.is_numeric()).any(|c| c != '0');
    let (x_value, x_digits) = number(&a[at..], behind_digit);
    let (y_value, y_digits) = number(&b[at..], behind_digit);
    x_value.cmp(&y_value).then(x_digits.cmp(&y_digits)).then(x.cmp(&y))
}

/// The number at the start, and how many digits it has.
fn number(text: &str, behind_digit: bool) -> (i64, usize) {
    let digits = text.chars().take_while(|c| c.is_numeric());
    digits.fold((i64::from(behind_digit), 0), |(value, count), c| {
        let digit = i64::from(u32::from(c)) - i64::from(u32::from('0'));
        (value.wrapping_mul(10).wrapping_add(digit), count + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_go_yaml() {
        let expected = [
            "",
            "-x",
            ".dot",
            "_x",
            "1",
            "2",
            "10",
            "A",
            "a b",
            "a-b",
            "a/b",
            "a: b",
            "a0",
            "a1",
            "a01",
            "a2",
            "a10",
            "aB",
            "ab",
            "f:metadata",
            "x.y/z",
            "é",
        ];
        let keys = expected.iter().rev().map(|key| (*key, ())).collect();
        let keys: Vec<&str> = sorted(keys).into_iter().map(|(key, ())| key).collect();
        assert_eq!(keys, expected);
    }
}
