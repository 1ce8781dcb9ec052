//! Text that holds certificates, read as Go reads it: what is between blocks is skipped, and so is a
//! block that is broken.

use base64::Engine as _;

pub(crate) struct Block {
    pub(crate) label: String,
    pub(crate) has_headers: bool,
    pub(crate) contents: Vec<u8>,
}

pub(crate) fn blocks(text: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(text);
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim_end);
    while let Some(line) = lines.next() {
        let Some(label) = label(line, "-----BEGIN ") else { continue };
        if let Some(block) = body(label, &mut lines.clone()) {
            found.push(block);
        }
    }
    found
}

fn label<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    line.strip_prefix(start)?.strip_suffix("-----")
}

fn body<'a>(label_text: &str, lines: &mut impl Iterator<Item = &'a str>) -> Option<Block> {
    let (mut base64, mut has_headers) = (String::new(), false);
    for line in lines {
        // No digit of base64: the block is broken. Reading on to the end for each of many such lines would
        // take the square of their number.
        if line.starts_with("-----BEGIN ") {
            return None;
        }
        if line.starts_with("-----END ") {
            if label(line, "-----END ")? != label_text {
                return None;
            }
            let engine = &base64::engine::general_purpose::STANDARD;
            let contents = engine.decode(base64).ok()?;
            return Some(Block { label: label_text.to_owned(), has_headers, contents });
        }
        if base64.is_empty() && line.contains(':') {
            has_headers = true;
        } else {
            base64.push_str(line.trim());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cost_no_more_than_in_proportion() {
        for end in ["", "-----END B-----\n"] {
            let made = |n: usize| "-----BEGIN A-----\n".repeat(n) + end;
            meta::growth::assert_linear("blocks without an end", 2_000, made, |text| {
                assert!(blocks(text.as_bytes()).is_empty());
            });
        }
    }

    #[test]
    fn blocks_are_found_between_anything_else() {
        let text = "note\n-----BEGIN A-----\nYWJj\n-----END A-----\n-----BEGIN B-----\nk: v\n\nYQ==\n\
                    -----END B-----\n-----BEGIN C-----\n!\n-----END C-----\n-----BEGIN D-----\nYQ==\n";
        let found: Vec<_> = blocks(text.as_bytes())
            .into_iter()
            .map(|block| (block.label, block.has_headers, block.contents))
            .collect();
        let expected =
            [("A".to_owned(), false, b"abc".to_vec()), ("B".to_owned(), true, b"a".to_vec())];
        assert_eq!(found, expected);
    }
}
