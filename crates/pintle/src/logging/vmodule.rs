//! `--vmodule`: verbosities for single source files, by the name of the file without `.rs`.

/// File patterns in order; the first match counts.
pub(super) struct VModule(Vec<(String, u32)>);

impl VModule {
    pub(super) fn new(patterns: &[(String, u32)]) -> Self {
        Self(patterns.to_vec())
    }

    /// The verbosity of a source file, if a pattern matches it.
    pub(super) fn level(&self, file: &str) -> Option<u32> {
        let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
        let name = name.strip_suffix(".rs").unwrap_or(name);
        let (_, level) = self.0.iter().find(|(pattern, _)| matches(pattern, name))?;
        Some(*level)
    }

    pub(super) fn level_max(&self) -> u32 {
        self.0.iter().map(|(_, level)| *level).max().unwrap_or(0)
    }
}

/// Shell patterns with `*` and `?`. Patterns come from the command line and names from the source,
/// so the quadratic worst case does not matter.
fn matches(pattern: &str, name: &str) -> bool {
    let mut letters = pattern.chars();
    match letters.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = letters.as_str();
            matches(rest, name)
                || name.char_indices().any(|(i, c)| matches(rest, &name[i + c.len_utf8()..]))
        }
        Some(letter) => {
            let mut name = name.chars();
            name.next().is_some_and(|c| letter == '?' || letter == c)
                && matches(letters.as_str(), name.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pattern_that_matches_the_file_counts() {
        let patterns = [("chain", 3), ("wa*ch", 4), ("?at", 5), ("*", 1)];
        let vmodule = VModule::new(&patterns.map(|(pattern, level)| (pattern.to_owned(), level)));
        let cases = [
            ("crates/serve/src/chain.rs", 3),
            ("watch.rs", 4),
            ("wach.rs", 4),
            ("cat.rs", 5),
            ("chat.rs", 1),
            ("src\\chain.rs", 3),
        ];
        for (file, level) in cases {
            assert_eq!(vmodule.level(file), Some(level), "{file}");
        }
        assert_eq!(VModule::new(&[]).level("chain.rs"), None);
    }
}
