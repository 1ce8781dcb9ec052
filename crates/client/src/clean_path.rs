//! Paths as client-go cleans them.

/// A path without empty segments, `.`, `..` and a slash at its end, as Go's `path.Join("/", path)`.
///
/// Compat: kube-apiserver calls webhooks so. Servers written in Go redirect a path like `//hook`, which
/// envtest's configurations have, and redirects are not followed.
pub fn clean_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        let cases = [
            ("", "/"),
            ("/", "/"),
            ("/a", "/a"),
            ("a", "/a"),
            ("//a", "/a"),
            ("/a/", "/a"),
            ("/a//b/./c/../d", "/a/b/d"),
            ("/../a", "/a"),
            ("/..", "/"),
            ("/a%2F..%2Fb", "/a%2F..%2Fb"),
        ];
        for (path, expected) in cases {
            assert_eq!(clean_path(path), expected, "{path}");
        }
    }
}
