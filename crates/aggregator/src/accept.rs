//! Parses the `Accept` header as kube-apiserver does.

/// One media range of the header.
#[derive(Debug, PartialEq)]
pub(crate) struct AcceptClause<'a> {
    media: (&'a str, &'a str),
    quality: f32,
    params: Vec<(&'a str, &'a str)>,
}

impl AcceptClause<'_> {
    /// Whether the range includes this media type.
    pub(crate) fn allows(&self, media: &str) -> bool {
        let (main, sub) = media.split_once('/').unwrap_or((media, ""));
        match self.media {
            ("*", "*") => true,
            (a, "*") => a == main,
            named => named == (main, sub),
        }
    }

    /// The value of a parameter; the last one if the name is repeated.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn sorts_before(&self, other: &Self) -> bool {
        let is_more_specific = |a, b| a != "*" && b == "*";
        self.quality > other.quality
            || is_more_specific(self.media.0, other.media.0)
            || is_more_specific(self.media.1, other.media.1)
    }
}

/// No real client sends more; the rest of the header is not read.
const CLAUSES_MAX: usize = 64;

/// The clauses of a header by descending preference.
pub(crate) fn parse(header: &str) -> Vec<AcceptClause<'_>> {
    let mut clauses: Vec<AcceptClause<'_>> =
        header.split(',').filter_map(parse_clause).take(CLAUSES_MAX).collect();
    // Compat: `sorts_before` is not a strict order (`a/b;q=0` and `*/*` sort before each other), so the
    // result depends on the algorithm. Go uses insertion sort for short lists.
    for end in 1..clauses.len() {
        let mut at = end;
        while at > 0 && clauses[at].sorts_before(&clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
    clauses
}

fn parse_clause(text: &str) -> Option<AcceptClause<'_>> {
    let mut parts = text.split(';');
    let media = parts.next()?;
    let media = match media.split_once('/') {
        Some((main, sub)) => (trim(main), trim(sub)),
        None if trim(media) == "*" => ("*", "*"),
        None => return None,
    };
    if media.1.is_empty() || media.1.contains('/') {
        return None;
    }
    let mut clause = AcceptClause { media, quality: 1.0, params: Vec::new() };
    for part in parts {
        match part.split_once('=') {
            Some((_, value)) if value.is_empty() || value.contains('=') => {}
            Some((name, value)) if trim(name) == "q" => {
                clause.quality = value.parse().unwrap_or_default();
            }
            Some((name, value)) => clause.params.push((trim(name), trim(value))),
            None => {}
        }
    }
    Some(clause)
}

/// Trims spaces only, no tabs.
fn trim(text: &str) -> &str {
    text.trim_matches(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_sorted_by_preference() {
        let cases = [
            ("application/json", "application/json"),
            ("*/*, application/json", "application/json */*"),
            ("application/*, application/json", "application/json application/*"),
            ("application/json;q=0.1, application/yaml", "application/yaml application/json"),
            ("text/html;q=x, a/b ; q=0.5", "a/b text/html"),
            ("*", "*/*"),
            ("json, a/b/c, /, a/", ""),
            ("", ""),
        ];
        for (header, expected) in cases {
            let media: Vec<String> = parse(header)
                .iter()
                .map(|clause| format!("{}/{}", clause.media.0, clause.media.1))
                .collect();
            assert_eq!(media.join(" "), expected, "{header}");
        }
    }

    #[test]
    fn parameters_are_read_by_name() {
        let clauses = parse("application/json; g=a ;v=v2;as=List;odd=a=b;empty=;none");
        let params = ["g", "v", "as", "odd", "empty", "none"].map(|name| clauses[0].param(name));
        assert_eq!(params, [Some("a"), Some("v2"), Some("List"), None, None, None]);
    }

    #[test]
    fn a_star_allows_everything() {
        let cases = [
            ("application/json", [true, false]),
            ("application/*", [true, true]),
            ("*/*", [true, true]),
            ("text/*", [false, false]),
            ("*/json", [false, false]),
        ];
        for (header, expected) in cases {
            let clause = &parse(header)[0];
            let allowed =
                ["application/json", "application/yaml"].map(|media| clause.allows(media));
            assert_eq!(allowed, expected, "{header}");
        }
    }
}
