//! Accepts the names of a definition that no other definition of its group has
//! (condition `NamesAccepted`).

use std::collections::{HashMap, HashSet};

use meta::{Str, field::quote};

use crate::{
    conditions::{Condition, NAMES_ACCEPTED},
    crd::{Crd, Names},
};

/// Accepted names by definition.
#[derive(Debug, Default)]
pub(crate) struct NameRegistry(HashMap<Str, (Str, Names)>);

impl NameRegistry {
    /// Records the accepted names of a definition.
    pub(crate) fn accept(&mut self, crd: &Crd, names: Names) {
        self.0.insert(crd.name.clone(), (crd.group.clone(), names));
    }

    pub(crate) fn free(&mut self, name: &str) {
        self.0.remove(name);
    }

    fn of_group(&self, group: &str) -> (HashSet<&Str>, HashSet<&Str>) {
        let (mut resources, mut kinds) = (HashSet::new(), HashSet::new());
        for (_, names) in self.0.values().filter(|(of, _)| of == group) {
            resources.extend([&names.plural, &names.singular]);
            resources.extend(&names.short_names);
            kinds.extend([&names.kind, &names.list_kind]);
        }
        (resources, kinds)
    }

    /// The accepted names and the condition `NamesAccepted`. A conflicting name keeps its previous
    /// value. None if all names are accepted already.
    pub(crate) fn calculate(&self, crd: &Crd) -> Option<(Names, Condition)> {
        let (asked, mut names) = (&crd.names, crd.accepted.clone());
        if *asked == names {
            return None;
        }
        let (resources, kinds) = self.of_group(&crd.group);
        let mut conflict: Option<(&'static str, String)> = None;
        let mut take = |reason, asked: &Str, have: &mut Str, used: &HashSet<&Str>| {
            if asked != have && used.contains(asked) {
                conflict = Some((reason, in_use(asked)));
            } else {
                have.clone_from(asked);
            }
        };
        take("PluralConflict", &asked.plural, &mut names.plural, &resources);
        take("SingularConflict", &asked.singular, &mut names.singular, &resources);
        let used = asked.short_names.iter();
        let used =
            used.filter(|name| !names.short_names.contains(name) && resources.contains(name));
        let used: Vec<String> = used.map(in_use).collect();
        if used.is_empty() {
            names.short_names.clone_from(&asked.short_names);
        } else {
            conflict = Some(("ShortNamesConflict", aggregate(&used)));
        }
        let mut take = |reason, asked: &Str, have: &mut Str, used: &HashSet<&Str>| {
            if asked != have && used.contains(asked) {
                conflict = Some((reason, in_use(asked)));
            } else {
                have.clone_from(asked);
            }
        };
        take("KindConflict", &asked.kind, &mut names.kind, &kinds);
        take("ListKindConflict", &asked.list_kind, &mut names.list_kind, &kinds);
        names.categories.clone_from(&asked.categories);
        let condition = match conflict {
            Some((reason, message)) => Condition::new(NAMES_ACCEPTED, false, reason, message),
            None => Condition::new(NAMES_ACCEPTED, true, "NoConflicts", "no conflicts found"),
        };
        Some((names, condition))
    }
}

fn in_use(name: &Str) -> String {
    format!("{} is already in use", quote(name))
}

fn aggregate(texts: &[String]) -> String {
    match texts {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Names {
        let parts: Vec<&str> = text.split(' ').collect();
        Names {
            plural: parts[0].into(),
            singular: parts[1].into(),
            kind: parts[2].into(),
            list_kind: parts[3].into(),
            short_names: parts[4..].iter().map(Str::new).collect(),
            ..Names::default()
        }
    }

    fn crd(name: &str, asked: &str, accepted: &str) -> Crd {
        let accepted = if accepted.is_empty() { Names::default() } else { names(accepted) };
        let group = name.split_once('.').map(|(_, group)| group).unwrap_or_default();
        let (name, group) = (name.into(), group.into());
        Crd { name, group, names: names(asked), accepted, ..Crd::default() }
    }

    #[test]
    fn names_that_are_free_in_the_group_are_accepted() {
        let mut taken = NameRegistry::default();
        taken.accept(&crd("as.g", "as a A AList sa", ""), names("as a A AList sa"));
        let cases = [
            ("bs.g", "bs b B BList sb", "", "True NoConflicts no conflicts found"),
            ("bs.g", "bs a B BList", "", r#"False SingularConflict "a" is already in use"#),
            ("bs.g", "bs b B BList sa", "", r#"False ShortNamesConflict "sa" is already in use"#),
            ("bs.g", "bs b A BList", "", r#"False KindConflict "A" is already in use"#),
            ("bs.g", "a b A AList", "", r#"False ListKindConflict "AList" is already in use"#),
            ("as.h", "as a A AList sa", "", "True NoConflicts no conflicts found"),
            ("as.g", "as a A AList sa", "as a A AList sa", ""),
            ("as.g", "as a A AList sa x", "as a A AList sa", "True NoConflicts no conflicts found"),
        ];
        for (name, asked, accepted, expected) in cases {
            let calculated = taken.calculate(&crd(name, asked, accepted));
            let text = calculated.map(|(_, c)| format!("{} {} {}", c.status, c.reason, c.message));
            assert_eq!(text.unwrap_or_default(), expected, "{name} {asked}");
        }
        taken.free("as.g");
        assert!(
            taken
                .calculate(&crd("bs.g", "bs b A AList", ""))
                .is_some_and(|(_, c)| c.status == "True")
        );
    }
}
