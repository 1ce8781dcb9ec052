//! Where a field of a YAML text is, for errors about configuration files.

use super::load::{self, NodeIndex, NodeKind, Tree};

/// The line, counted from one, of the field at a path such as `rules[2].level`. A field that is not
/// there has the line of the nearest part of its path. None: the text is no YAML.
pub fn line_of(bytes: &[u8], path: &str) -> Option<usize> {
    Tree::load(load::readable(bytes).ok()?, |tree| Ok(line_in(tree, path))).ok()?
}

fn line_in(tree: &Tree<'_>, path: &str) -> Option<usize> {
    let node_at = |index: NodeIndex| &tree.nodes[index as usize];
    let mut node = tree.root?;
    let mut line = node_at(node).line;
    for step in path.split(['.', '[']) {
        while let NodeKind::Alias(target) = node_at(node).kind {
            node = target;
        }
        let found = match &node_at(node).kind {
            NodeKind::Sequence(items) => {
                let at = step.strip_suffix(']').and_then(|index| index.parse::<usize>().ok());
                at.and_then(|at| items.get(at)).map(|&item| (item, item))
            }
            NodeKind::Mapping(pairs) => pairs.chunks_exact(2).find_map(|pair| {
                let is_key = matches!(&node_at(pair[0]).kind,
                    NodeKind::Scalar { text, .. } if text == step);
                is_key.then_some((pair[0], pair[1]))
            }),
            _ => None,
        };
        let Some((shown, next)) = found else { break };
        line = node_at(shown).line;
        node = next;
    }
    Some(line as usize)
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
