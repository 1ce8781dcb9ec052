//! The difference of two texts, line by line, as kube-apiserver shows it: Python's difflib with three lines
//! of context. Clients see which lines match, so the choice of matches has to be the same.

use std::{collections::HashMap, fmt::Write as _, ops::Range};

/// Texts with more lines are not compared. A pod of ten containers has a thousand.
const LINES_MAX: usize = 5_000;

/// Pairs of lines that are looked at before the comparison is given up; some 0.1 s. The number grows with the
/// square of the lines if a client chooses them so.
const PAIRS_MAX: usize = 4_000_000;

const CONTEXT: usize = 3;

/// The hunks of a unified diff, without file names.
pub(crate) fn unified_diff(old: &str, new: &str) -> String {
    let (old, new) = (lines(old), lines(new));
    let small = old.len() <= LINES_MAX && new.len() <= LINES_MAX;
    let Some(changes) = small.then(|| changes(&old, &new)).flatten() else {
        return "(too many lines to be compared)\n".to_owned();
    };
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

/// All lines, as what stays and what is replaced in turn. None: that takes too long.
fn changes(old: &[&str], new: &[&str]) -> Option<Vec<Change>> {
    let mut changes = Vec::new();
    let (mut old_at, mut new_at) = (0, 0);
    let end = Match { old: old.len(), new: new.len(), len: 0 };
    for found in matches(old, new)?.into_iter().chain([end]) {
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

/// The longest match, then what matches before it and behind it, and so on; in order, runs that touch
/// joined.
fn matches(old: &[&str], new: &[&str]) -> Option<Vec<Match>> {
    let places = places(new);
    let mut pairs_left = PAIRS_MAX;
    let mut found = Vec::new();
    let mut open = vec![(0..old.len(), 0..new.len())];
    while let Some((old_part, new_part)) = open.pop() {
        let longest = longest_match(old, new, &places, &old_part, &new_part, &mut pairs_left)?;
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
            Some(last) if last.old + last.len == next.old && last.new + last.len == next.new => {
                last.len += next.len;
            }
            _ => joined.push(next),
        }
    }
    Some(joined)
}

/// Where each line is. A line that makes up more than a hundredth of a long text starts no match.
fn places<'a>(lines: &[&'a str]) -> HashMap<&'a str, Vec<usize>> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        places.entry(line).or_default().push(at);
    }
    if lines.len() >= 200 {
        places.retain(|_, places| places.len() <= lines.len() / 100 + 1);
    }
    places
}

/// The longest run of equal lines in two parts; of several the first in the old text, then in the new.
fn longest_match(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    old_part: &Range<usize>,
    new_part: &Range<usize>,
    pairs_left: &mut usize,
) -> Option<Match> {
    let mut best = Match { old: old_part.start, new: new_part.start, len: 0 };
    // Runs that end at the line before, by their last line in the new text.
    let mut runs: HashMap<usize, usize> = HashMap::new();
    for at in old_part.clone() {
        meta::cancel::checkpoint();
        let mut longer = HashMap::new();
        let all = places.get(old[at]).map_or(&[][..], Vec::as_slice);
        *pairs_left = pairs_left.checked_sub(1 + all.len())?;
        for &place in all.iter().filter(|at| new_part.contains(at)) {
            let before = place.checked_sub(1).and_then(|before| runs.get(&before));
            let len = before.copied().unwrap_or(0) + 1;
            longer.insert(place, len);
            if len > best.len {
                best = Match { old: at + 1 - len, new: place + 1 - len, len };
            }
        }
        runs = longer;
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

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
