//! The difference of two texts, line by line, as kube-apiserver shows it: Python's difflib with three lines
//! of context. Clients see which lines match, so the choice of matches has to be the same.

use std::{collections::HashMap, fmt::Write as _, ops::Range};

/// Texts with more lines are not compared. A pod of ten containers has a thousand.
pub(crate) const LINES_MAX: usize = 5_000;

/// Pairs of equal lines that are looked at before comparing is given up; some 20 ms. The number grows with the
/// square of the lines if a client chooses them so.
const PAIRS_MAX: usize = 4_000_000;

const CONTEXT: usize = 3;

/// Compares texts. An object may have many that changed, so the bound is one for all of them.
pub(crate) struct Differ {
    pairs_left: usize,
}

impl Default for Differ {
    fn default() -> Self {
        Self { pairs_left: PAIRS_MAX }
    }
}

impl Differ {
    /// The hunks of a unified diff, without file names. None of a text: it has more than [`LINES_MAX`] lines.
    pub(crate) fn unified_diff(&mut self, old: Option<&str>, new: Option<&str>) -> String {
        let (old, new) = (old.map(lines).unwrap_or_default(), new.map(lines).unwrap_or_default());
        let small = (1..=LINES_MAX).contains(&old.len()) && (1..=LINES_MAX).contains(&new.len());
        match small.then(|| self.changes(&old, &new)).flatten() {
            Some(changes) => written(&old, &new, changes),
            None => "(too many lines to be compared)\n".to_owned(),
        }
    }

    /// All lines, as what stays and what is replaced in turn. None: that takes too long.
    fn changes(&mut self, old: &[&str], new: &[&str]) -> Option<Vec<Change>> {
        let mut changes = Vec::new();
        let (mut old_at, mut new_at) = (0, 0);
        let end = Match { old: old.len(), new: new.len(), len: 0 };
        for found in Texts::new(old, new).matches(&mut self.pairs_left)?.into_iter().chain([end]) {
            if old_at < found.old || new_at < found.new {
                let (old, new) = (old_at..found.old, new_at..found.new);
                changes.push(Change { equal: false, old, new });
            }
            (old_at, new_at) = (found.old + found.len, found.new + found.len);
            if found.len > 0 {
                let (old, new) = (found.old..old_at, found.new..new_at);
                changes.push(Change { equal: true, old, new });
            }
        }
        Some(changes)
    }
}

fn written(old: &[&str], new: &[&str], changes: Vec<Change>) -> String {
    let mut out = String::new();
    for hunk in hunks(changes) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let old_lines = shown_range(&(first.old.start..last.old.end));
        let new_lines = shown_range(&(first.new.start..last.new.end));
        let _ = writeln!(out, "@@ -{old_lines} +{new_lines} @@");
        for change in hunk {
            if change.equal {
                old[change.old].iter().for_each(|line| _ = writeln!(out, " {line}"));
            } else {
                old[change.old].iter().for_each(|line| _ = writeln!(out, "-{line}"));
                new[change.new].iter().for_each(|line| _ = writeln!(out, "+{line}"));
            }
        }
    }
    out
}

fn lines(text: &str) -> Vec<&str> {
    text.split('\n').collect()
}

fn shown_range(lines: &Range<usize>) -> String {
    match lines.len() {
        1 => (lines.start + 1).to_string(),
        0 => format!("{},0", lines.start),
        count => format!("{},{count}", lines.start + 1),
    }
}

/// Lines that stay, or lines that are replaced by others.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    equal: bool,
    old: Range<usize>,
    new: Range<usize>,
}

/// Changes with the lines around them. Those with few lines between them are in one hunk.
fn hunks(mut changes: Vec<Change>) -> Vec<Vec<Change>> {
    if let Some(first) = changes.first_mut().filter(|first| first.equal) {
        *first = last_lines(first);
    }
    if let Some(last) = changes.last_mut().filter(|last| last.equal) {
        *last = first_lines(last);
    }
    let (mut hunks, mut hunk) = (Vec::new(), Vec::new());
    for change in changes {
        if change.equal && change.old.len() > 2 * CONTEXT {
            hunk.push(first_lines(&change));
            hunks.push(std::mem::take(&mut hunk));
            hunk.push(last_lines(&change));
        } else {
            hunk.push(change);
        }
    }
    hunks.push(hunk);
    hunks.retain(|hunk| hunk.iter().any(|change| !change.equal));
    hunks
}

fn first_lines(equal: &Change) -> Change {
    let (old, new) = (equal.old.start, equal.new.start);
    let count = equal.old.len().min(CONTEXT);
    Change { equal: true, old: old..old + count, new: new..new + count }
}

fn last_lines(equal: &Change) -> Change {
    let (old, new) = (equal.old.end, equal.new.end);
    let count = equal.old.len().min(CONTEXT);
    Change { equal: true, old: old - count..old, new: new - count..new }
}

/// Equal runs of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Match {
    old: usize,
    new: usize,
    len: usize,
}

/// Two texts as the numbers of their lines: equal lines have the same, so that no line is compared twice.
struct Texts {
    old: Vec<usize>,
    new: Vec<usize>,
    /// Where in the new text the line with a number is, in order. A line that makes up more than a hundredth of
    /// a long text starts no match.
    places: Vec<Vec<usize>>,
}

impl Texts {
    fn new(old: &[&str], new: &[&str]) -> Self {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut places: Vec<Vec<usize>> = Vec::new();
        for (at, &line) in new.iter().enumerate() {
            let number = *numbers.entry(line).or_insert(places.len());
            if number == places.len() {
                places.push(Vec::new());
            }
            places[number].push(at);
        }
        let numbered = |line: &&str| numbers.get(line).copied();
        let new_numbers = new.iter().filter_map(numbered).collect();
        // What the new text does not have is nowhere.
        let old_numbers = old.iter().map(|line| numbered(line).unwrap_or(usize::MAX)).collect();
        if new.len() >= 200 {
            let popular = |places: &&mut Vec<usize>| places.len() > new.len() / 100 + 1;
            places.iter_mut().filter(popular).for_each(Vec::clear);
        }
        Self { old: old_numbers, new: new_numbers, places }
    }

    /// The longest match, then what matches before it and behind it, and so on; in order, runs that touch
    /// joined. None: `pairs_left` are not enough.
    fn matches(&self, pairs_left: &mut usize) -> Option<Vec<Match>> {
        let mut found = Vec::new();
        let mut open = vec![(0..self.old.len(), 0..self.new.len())];
        while let Some((old_part, new_part)) = open.pop() {
            let longest = self.longest_match(&old_part, &new_part, pairs_left)?;
            if longest.len == 0 {
                continue;
            }
            found.push(longest);
            let (old_end, new_end) = (longest.old + longest.len, longest.new + longest.len);
            for (old, new) in [
                (old_part.start..longest.old, new_part.start..longest.new),
                (old_end..old_part.end, new_end..new_part.end),
            ] {
                if !old.is_empty() && !new.is_empty() {
                    open.push((old, new));
                }
            }
        }
        found.sort_by_key(|found| found.old);
        let mut joined: Vec<Match> = Vec::with_capacity(found.len());
        for next in found {
            match joined.last_mut() {
                Some(last)
                    if last.old + last.len == next.old && last.new + last.len == next.new =>
                {
                    last.len += next.len;
                }
                _ => joined.push(next),
            }
        }
        Some(joined)
    }

    /// The places of a line of the old text in a part of the new one.
    fn places_of(&self, number: usize, new_part: &Range<usize>) -> &[usize] {
        let all = self.places.get(number).map_or(&[][..], Vec::as_slice);
        let (from, to) = (new_part.start, new_part.end);
        &all[all.partition_point(|at| *at < from)..all.partition_point(|at| *at < to)]
    }

    /// The longest run of equal lines in two parts; of several the first in the old text, then in the new.
    fn longest_match(
        &self,
        old_part: &Range<usize>,
        new_part: &Range<usize>,
        pairs_left: &mut usize,
    ) -> Option<Match> {
        let (old, new) = (&self.old, &self.new);
        let mut best = Match { old: old_part.start, new: new_part.start, len: 0 };
        // Runs that end at the line before: their last line in the new text, in order, and their length.
        let (mut runs, mut longer): (Vec<(usize, usize)>, Vec<_>) = Default::default();
        for at in old_part.clone() {
            meta::cancel::checkpoint();
            let all = self.places_of(old[at], new_part);
            *pairs_left = pairs_left.checked_sub(1 + all.len())?;
            let mut before = runs.iter().peekable();
            for &place in all {
                while before.next_if(|(end, _)| end + 1 < place).is_some() {}
                let run = before.peek().filter(|(end, _)| end + 1 == place);
                let len = run.map_or(0, |(_, len)| *len) + 1;
                longer.push((place, len));
                if len > best.len {
                    best = Match { old: at + 1 - len, new: place + 1 - len, len };
                }
            }
            std::mem::swap(&mut runs, &mut longer);
            longer.clear();
        }
        // Lines that start no match may be part of one.
        while best.old > old_part.start
            && best.new > new_part.start
            && old[best.old - 1] == new[best.new - 1]
        {
            (best.old, best.new, best.len) = (best.old - 1, best.new - 1, best.len + 1);
        }
        while best.old + best.len < old_part.end
            && best.new + best.len < new_part.end
            && old[best.old + best.len] == new[best.new + best.len]
        {
            best.len += 1;
        }
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use meta::growth::cpu_time_of;

    use super::*;

    fn unified_diff(old: &str, new: &str) -> String {
        Differ::default().unified_diff(Some(old), Some(new))
    }

    /// Expected is what Python's `difflib.unified_diff` prints.
    #[test]
    fn differences_are_those_of_difflib() {
        let cases = [
            ("a\nb\nc", "a\nb\nc", ""),
            ("a\nb\nc", "a\nx\nc", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"),
            ("a", "b", "@@ -1 +1 @@\n-a\n+b\n"),
            ("a\nb", "a\nc\na\nb", "@@ -1,2 +1,4 @@\n+a\n+c\n a\n b\n"),
            (
                "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12",
                "1\nx\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13",
                "@@ -1,5 +1,5 @@\n 1\n-2\n+x\n 3\n 4\n 5\n@@ -10,3 +10,4 @@\n 10\n 11\n 12\n+13\n",
            ),
            (
                "1\n2\n3\n4\n5\n6\n7\n8",
                "x\n2\n3\n4\n5\n6\n7\ny",
                "@@ -1,8 +1,8 @@\n-1\n+x\n 2\n 3\n 4\n 5\n 6\n 7\n-8\n+y\n",
            ),
        ];
        for (old, new, expected) in cases {
            assert_eq!(unified_diff(old, new), expected, "{old:?} {new:?}");
        }
    }

    #[test]
    fn long_texts_are_not_compared() {
        let long = "a\n".repeat(LINES_MAX + 1);
        assert_eq!(unified_diff(&long, "b"), "(too many lines to be compared)\n");
        let mut differ = Differ::default();
        assert_eq!(differ.unified_diff(None, Some("b")), "(too many lines to be compared)\n");
    }

    /// Lines of a text in which each is as often as it may be to start matches, in an order in which no
    /// long run matches.
    fn shuffled(count: usize, step: usize) -> String {
        let different = count / (count / 100 + 1);
        let lines = (0..count).map(|at| format!("{:x>500}", (at * step + at / 7) % different));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn many_hostile_texts_cost_no_more_than_one_bound_together() {
        let texts = [shuffled(4_900, 3), shuffled(4_900, 11)];
        let mut differ = Differ::default();
        let took = cpu_time_of(|| {
            for _ in 0..50 {
                let _ = differ.unified_diff(Some(&texts[0]), Some(&texts[1]));
            }
        });
        assert!(differ.pairs_left < PAIRS_MAX / 10, "{} of the pairs are left", differ.pairs_left);
        // Each text is read once, and all pairs are as many as one bound allows; a debug build takes some 10 times as long.
        assert!(took.as_secs() < 8, "{took:?}");
    }

    #[test]
    fn texts_of_other_lines_are_compared_in_linear_time() {
        let text = |n: usize| {
            let lines = |from: usize| (from..from + n).map(|at| at.to_string()).collect::<Vec<_>>();
            (lines(0).join("\n"), lines(n / 2).join("\n"))
        };
        meta::growth::assert_linear("texts", 100, text, |(old, new)| {
            std::hint::black_box(unified_diff(old, new));
        });
    }
}
