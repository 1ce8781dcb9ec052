//! Where a field of a YAML text is, for errors about configuration files.

use super::load::{self, NodeKind, Tree};

/// The line, counted from one, of the field at a path such as `rules[2].level`. A field that is not
/// there has the line of the nearest part of its path. None: the text is no YAML.
pub fn line_of(bytes: &[u8], path: &str) -> Option<usize> {
    let tree = Tree::load(load::readable(bytes).ok()?).ok()?;
    let mut node = tree.root?;
    let mut line = tree.nodes[node].line;
    for step in path.split(['.', '[']) {
        while let NodeKind::Alias { target, .. } = &tree.nodes[node].kind {
            node = *target;
        }
        let found = match &tree.nodes[node].kind {
            NodeKind::Sequence(items) => {
                let at = step.strip_suffix(']').and_then(|index| index.parse::<usize>().ok());
                at.and_then(|at| items.get(at)).map(|&item| (item, item))
            }
            NodeKind::Mapping(pairs) => pairs.chunks_exact(2).find_map(|pair| {
                let is_key = matches!(&tree.nodes[pair[0]].kind,
                    NodeKind::Scalar { text, .. } if text == step);
                is_key.then_some((pair[0], pair[1]))
            }),
            _ => None,
        };
        let Some((shown, next)) = found else { break };
        line = tree.nodes[shown].line;
        node = next;
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_fields_are_found() {
        let text =
            b"a: 1\nrules:\n- level: x\n  users: [\"u\"]\n- level: y\n  more:\n    deep: 1\n";
        let cases = [
            ("a", 1),
            ("rules", 2),
            ("rules[0]", 3),
            ("rules[0].users", 4),
            ("rules[0].users[0]", 4),
            ("rules[1].level", 5),
            ("rules[1].more.deep", 7),
            ("rules[1].more.none", 6),
            ("rules[7].level", 2),
            ("none", 1),
        ];
        for (path, line) in cases {
            assert_eq!(line_of(text, path), Some(line), "{path}");
        }
        assert_eq!(line_of(b"{", "a"), None);
    }
}
