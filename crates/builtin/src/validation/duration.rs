//! Durations as Go writes them: `1h30m`, `1.5s`, `100ms`.

use meta::field::quote;

/// Why a text is no duration.
pub(crate) fn error(text: &str) -> Option<String> {
    nanoseconds(text).err()
}

/// The duration in nanoseconds.
pub(crate) fn nanoseconds(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned == "0" {
        return Ok(0);
    }
    if unsigned.is_empty() {
        return Err(invalid());
    }
    let (mut rest, mut total) = (unsigned, 0f64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = &rest[..digits];
        let amount: f64 = number.parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = &rest[..end];
        rest = &rest[end..];
        let scale = match unit {
            "" => return Err(format!("time: missing unit in duration {}", quote(text))),
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            unknown => {
                let unknown = quote(unknown);
                return Err(format!("time: unknown unit {unknown} in duration {}", quote(text)));
            }
        };
        total += amount * scale;
    }
    if total >= i64::MAX as f64 {
        return Err(invalid());
    }
    let total = total as i64;
    Ok(if text.starts_with('-') { -total } else { total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        let cases = [
            ("1h30m", Ok(5_400_000_000_000)),
            ("-1.5s", Ok(-1_500_000_000)),
            ("0", Ok(0)),
            ("", Err("time: invalid duration \"\"")),
            ("5", Err("time: missing unit in duration \"5\"")),
            ("5x", Err("time: unknown unit \"x\" in duration \"5x\"")),
        ];
        for (text, expected) in cases {
            assert_eq!(nanoseconds(text), expected.map_err(str::to_owned), "{text}");
        }
    }
}
