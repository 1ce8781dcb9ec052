//! Which of the rules that a user wants to grant the user does not hold.
//!
//! kube-apiserver breaks each wanted rule down to single verbs, groups, resources and names, and compares every
//! part with every held rule: a rule of 1.5 KB has half a million parts. Here the verbs (groups, resources,
//! names) that the same held rules cover are one class, and only the combinations of classes are compared.
//! Most rules have one class of each.

use std::collections::{HashMap, HashSet, hash_map::Entry};

use meta::Str;

use super::rule::{ALL, Rule};

/// What of the wanted rules is not held.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    /// Parts that differ in their verbs only are one rule.
    pub rules: Vec<Rule>,
    /// How many further parts are missing.
    pub more: u128,
}

/// The comparison would cost too much; nothing was decided.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// The work of one comparison, in steps of a few nanoseconds. Only rules that were written for the purpose
/// need more: the user must hold thousands of rules that all cover different parts of the wanted ones.
const WORK_MAX: usize = 50_000_000;

/// Wanted rules with no more parts than this are listed part by part if one is missing, as kube-apiserver
/// does; of larger ones an example of each missing class.
const LISTED_PARTS_MAX: u128 = 50_000;

/// How many missing rules an error lists.
pub(super) const MISSING_RULES_MAX: usize = 1_000;

pub(super) fn missing(held: &[Rule], wanted: &[Rule]) -> Result<Missing, TooLarge> {
    let held = HeldRules::new(held);
    let (mut work, mut found) = (Work(WORK_MAX), Found::default());
    for rule in wanted {
        let names: Vec<Option<&Str>> = match &*rule.resource_names {
            [] => vec![None],
            names => names.iter().map(Some).collect(),
        };
        let groups: Vec<Option<&Str>> = rule.api_groups.iter().map(Some).collect();
        let resources: Vec<Option<&Str>> = rule.resources.iter().map(Some).collect();
        let verbs: Vec<Option<&Str>> = rule.verbs.iter().map(Some).collect();
        let box_of_resources = [
            (Axis::Group, &groups[..]),
            (Axis::Resource, &resources),
            (Axis::Verb, &verbs),
            (Axis::Name, &names),
        ];
        compare(&held, &box_of_resources, &mut work, &mut found)?;
        let urls: Vec<Option<&Str>> = rule.non_resource_urls.iter().map(Some).collect();
        let box_of_urls = [(Axis::Url, &urls[..]), (Axis::Verb, &verbs), (Axis::Name, &[None])];
        compare(&held, &box_of_urls, &mut work, &mut found)?;
    }
    Ok(Missing { rules: found.rules, more: found.more })
}

struct Work(usize);

impl Work {
    fn spend(&mut self, steps: usize) -> Result<(), TooLarge> {
        self.0 = self.0.checked_sub(steps).ok_or(TooLarge)?;
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    Verb,
    Group,
    Resource,
    /// None is a right to objects of any name.
    Name,
    Url,
}

type Element<'a> = Option<&'a Str>;

/// The held rules by what they cover, so that each text is looked up once.
#[derive(Default)]
struct HeldRules<'a> {
    count: usize,
    verbs: Texts<'a>,
    groups: Texts<'a>,
    resources: Texts<'a>,
    /// Here every rule without names covers all.
    names: Texts<'a>,
    urls: Texts<'a>,
    /// `/healthz/*` without its stars.
    url_prefixes: Vec<(&'a str, u32)>,
}

#[derive(Default)]
struct Texts<'a> {
    exact: HashMap<&'a str, Vec<u32>>,
    /// Rules that cover every text.
    all: Vec<u32>,
}

impl<'a> Texts<'a> {
    fn add(&mut self, texts: &'a [Str], rule: u32) {
        for text in texts {
            self.exact.entry(text).or_default().push(rule);
        }
        if texts.iter().any(|text| text == ALL) {
            self.all.push(rule);
        }
    }

    fn get(&self, text: &str) -> &[u32] {
        self.exact.get(text).map_or(&[], |rules| rules)
    }
}

impl<'a> HeldRules<'a> {
    fn new(rules: &'a [Rule]) -> Self {
        let mut seen = HashSet::new();
        let mut held = Self::default();
        // Many bindings give the same rules.
        for rule in rules.iter().filter(|rule| seen.insert(*rule)) {
            let id = held.count as u32;
            held.count += 1;
            held.verbs.add(&rule.verbs, id);
            held.groups.add(&rule.api_groups, id);
            held.resources.add(&rule.resources, id);
            held.names.add(&rule.resource_names, id);
            // A star is a name like any other.
            held.names.all.pop_if(|last| *last == id);
            if rule.resource_names.is_empty() {
                held.names.all.push(id);
            }
            for url in &rule.non_resource_urls {
                held.urls.exact.entry(url).or_default().push(id);
                if url.ends_with(ALL) {
                    held.url_prefixes.push((url.trim_end_matches(ALL), id));
                }
            }
        }
        held
    }

    /// Visits the rules that cover this element beside those that cover all.
    fn visit(
        &self,
        axis: Axis,
        element: Element<'_>,
        work: &mut Work,
        mut visit: impl FnMut(u32),
    ) -> Result<(), TooLarge> {
        let Some(text) = element else { return Ok(()) };
        let texts = match axis {
            Axis::Verb => &self.verbs,
            Axis::Group => &self.groups,
            Axis::Resource => &self.resources,
            Axis::Name => &self.names,
            Axis::Url => &self.urls,
        };
        let mut covering = texts.get(text).to_vec();
        if let (Axis::Resource, Some((_, subresource))) = (axis, text.split_once('/')) {
            covering.extend_from_slice(texts.get(&format!("{ALL}/{subresource}")));
        }
        if axis == Axis::Url {
            work.spend(self.url_prefixes.len())?;
            let prefixes = self.url_prefixes.iter();
            covering.extend(prefixes.filter(|(p, _)| text.starts_with(p)).map(|(_, id)| id));
        }
        work.spend(1 + covering.len())?;
        covering.into_iter().for_each(&mut visit);
        Ok(())
    }

    fn covering_all(&self, axis: Axis) -> &[u32] {
        match axis {
            Axis::Verb => &self.verbs.all,
            Axis::Group => &self.groups.all,
            Axis::Resource => &self.resources.all,
            Axis::Name => &self.names.all,
            Axis::Url => &[],
        }
    }
}

/// A set of held rules.
type Rules = Box<[u64]>;

/// The elements of one axis, in classes that the same held rules cover.
struct Classes {
    rules: Vec<Rules>,
    members: Vec<Vec<usize>>,
    of_element: Vec<usize>,
    /// The rules that cover every element.
    whole: Rules,
}

/// Adds what of a box (every combination of the axes' elements) no held rule covers.
fn compare(
    held: &HeldRules<'_>,
    axes: &[(Axis, &[Element<'_>])],
    work: &mut Work,
    found: &mut Found,
) -> Result<(), TooLarge> {
    if axes.iter().any(|(_, elements)| elements.is_empty()) {
        return Ok(());
    }
    // Only rules that cover something on every axis matter; they get small numbers.
    let mut covered_axes = vec![0u8; held.count];
    work.spend(held.count)?;
    for (bit, (axis, elements)) in axes.iter().enumerate() {
        let all = held.covering_all(*axis);
        work.spend(all.len())?;
        for id in all {
            covered_axes[*id as usize] |= 1 << bit;
        }
        for element in *elements {
            held.visit(*axis, *element, work, |id| covered_axes[id as usize] |= 1 << bit)?;
        }
    }
    let everywhere = (1u8 << axes.len()) - 1;
    let mut numbers = vec![None; held.count];
    let mut count = 0usize;
    for (id, covered) in covered_axes.iter().enumerate() {
        if *covered == everywhere {
            numbers[id] = Some(count);
            count += 1;
        }
    }
    let words = count.div_ceil(64).max(1);
    let classes = axes
        .iter()
        .map(|(axis, elements)| Classes::new(held, *axis, elements, &numbers, words, work))
        .collect::<Result<Vec<_>, _>>()?;
    let start = vec![u64::MAX; words].into_boxed_slice();
    let mut search = Search { classes: &classes, chosen: Vec::new(), missing: Vec::new(), work };
    search.below(&start)?;
    let missing = search.missing;
    if !missing.is_empty() {
        found.add(axes, &classes, &missing);
    }
    Ok(())
}

impl Classes {
    fn new(
        held: &HeldRules<'_>,
        axis: Axis,
        elements: &[Element<'_>],
        numbers: &[Option<usize>],
        words: usize,
        work: &mut Work,
    ) -> Result<Self, TooLarge> {
        let set = |rules: &mut Rules, id: u32| {
            if let Some(number) = numbers[id as usize] {
                rules[number / 64] |= 1 << (number % 64);
            }
        };
        let mut of_all = vec![0; words].into_boxed_slice();
        work.spend(words + held.covering_all(axis).len())?;
        for id in held.covering_all(axis) {
            set(&mut of_all, *id);
        }
        let mut whole = vec![u64::MAX; words].into_boxed_slice();
        let (mut rules, mut members): (Vec<Rules>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
        let mut known: HashMap<Rules, usize> = HashMap::new();
        let mut of_element = Vec::with_capacity(elements.len());
        for (at, element) in elements.iter().enumerate() {
            let mut covering = of_all.clone();
            held.visit(axis, *element, work, |id| set(&mut covering, id))?;
            work.spend(3 * words)?;
            intersect(&mut whole, &covering);
            let class = match known.entry(covering) {
                Entry::Occupied(class) => *class.get(),
                Entry::Vacant(vacant) => {
                    // Kept twice, so memory is bounded with the work.
                    work.spend(16 * words)?;
                    rules.push(vacant.key().clone());
                    members.push(Vec::new());
                    *vacant.insert(rules.len() - 1)
                }
            };
            members[class].push(at);
            of_element.push(class);
        }
        Ok(Self { rules, members, of_element, whole })
    }
}

fn intersect(rules: &mut Rules, others: &Rules) {
    for (word, other) in rules.iter_mut().zip(others) {
        *word &= other;
    }
}

fn is_none(rules: &Rules) -> bool {
    rules.iter().all(|word| *word == 0)
}

/// Walks the combinations of classes, one axis per level.
struct Search<'a> {
    classes: &'a [Classes],
    chosen: Vec<usize>,
    /// The classes that are chosen; all combinations below them are missing.
    missing: Vec<Vec<usize>>,
    work: &'a mut Work,
}

impl Search<'_> {
    /// `rules` cover what is chosen.
    fn below(&mut self, rules: &Rules) -> Result<(), TooLarge> {
        let rest = &self.classes[self.chosen.len()..];
        self.work.spend(rules.len() * (1 + rest.len()))?;
        if is_none(rules) {
            self.work.spend(8)?;
            self.missing.push(self.chosen.clone());
            return Ok(());
        }
        let mut covering = rules.clone();
        for axis in rest {
            intersect(&mut covering, &axis.whole);
        }
        if !is_none(&covering) {
            return Ok(());
        }
        for (class, of_class) in rest[0].rules.iter().enumerate() {
            let mut rules = rules.clone();
            intersect(&mut rules, of_class);
            self.chosen.push(class);
            self.below(&rules)?;
            self.chosen.pop();
        }
        Ok(())
    }
}

/// The missing rules, by all but their verbs.
#[derive(Default)]
struct Found {
    rules: Vec<Rule>,
    by_place: HashMap<[Option<Str>; 3], usize>,
    more: u128,
}

impl Found {
    fn add(
        &mut self,
        axes: &[(Axis, &[Element<'_>])],
        classes: &[Classes],
        missing: &[Vec<usize>],
    ) {
        let parts: u128 = axes.iter().map(|(_, elements)| elements.len() as u128).product();
        if parts <= LISTED_PARTS_MAX {
            let missing: HashSet<&[usize]> = missing.iter().map(Vec::as_slice).collect();
            let mut at = vec![0; axes.len()];
            for part in 0..parts as usize {
                let mut rest = part;
                for (axis, (_, elements)) in axes.iter().enumerate().rev() {
                    at[axis] = rest % elements.len();
                    rest /= elements.len();
                }
                let class: Vec<usize> =
                    at.iter().zip(classes).map(|(at, classes)| classes.of_element[*at]).collect();
                if (0..=class.len()).any(|length| missing.contains(&class[..length])) {
                    self.push(axes, &at, 1);
                }
            }
            return;
        }
        for chosen in missing {
            let class = |axis: usize| chosen.get(axis).map(|class| &*classes[axis].members[*class]);
            let members = |axis: usize| class(axis).map_or(axes[axis].1.len(), <[_]>::len);
            let count = (0..axes.len()).map(|axis| members(axis) as u128).product();
            let example: Vec<usize> =
                (0..axes.len()).map(|axis| class(axis).map_or(0, |members| members[0])).collect();
            self.push(axes, &example, count);
        }
    }

    /// Adds one of `count` missing parts.
    fn push(&mut self, axes: &[(Axis, &[Element<'_>])], at: &[usize], count: u128) {
        let text = |wanted: Axis| -> Option<Str> {
            let axis = axes.iter().position(|(axis, _)| *axis == wanted)?;
            axes[axis].1[at[axis]].cloned()
        };
        let list = |text: Option<Str>| text.into_iter().collect::<Vec<_>>();
        let rule = Rule {
            verbs: list(text(Axis::Verb)),
            api_groups: list(text(Axis::Group)),
            resources: list(text(Axis::Resource)),
            resource_names: list(text(Axis::Name)),
            non_resource_urls: list(text(Axis::Url)),
        };
        self.more += count - 1;
        let place = [text(Axis::Group), text(Axis::Resource), text(Axis::Name)];
        let known = match self.by_place.get(&place) {
            Some(known) if rule.non_resource_urls.is_empty() => Some(*known),
            _ => None,
        };
        if let Some(known) = known {
            self.rules[known].verbs.extend(rule.verbs);
        } else if self.rules.len() < MISSING_RULES_MAX {
            if rule.non_resource_urls.is_empty() {
                self.by_place.insert(place, self.rules.len());
            }
            self.rules.push(rule);
        } else {
            self.more += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::rbac::rule::{compact, missing as missing_parts};

    fn rule(
        verbs: &[&str],
        groups: &[&str],
        resources: &[&str],
        names: &[&str],
        urls: &[&str],
    ) -> Rule {
        let texts = |texts: &[&str]| texts.iter().map(Str::new).collect();
        Rule {
            verbs: texts(verbs),
            api_groups: texts(groups),
            resources: texts(resources),
            resource_names: texts(names),
            non_resource_urls: texts(urls),
        }
    }

    /// Small random rules over few words, which overlap in every way.
    #[test]
    fn the_same_is_missing_as_part_by_part() {
        let mut state = 7u64;
        let mut random = move |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let words: [&[&str]; 5] = [
            &["get", "list", "watch", "*"],
            &["", "apps", "batch", "*"],
            &["pods", "pods/log", "*/log", "*/scale", "jobs/scale", "pods/", "*"],
            &["a", "b", "*"],
            &["/a", "/a/b", "/a/*", "/*", "*", "/b"],
        ];
        let mut make = |size: usize| {
            let mut pick = |from: &[&'static str], least: usize| -> Vec<&'static str> {
                (0..least + random(size)).map(|_| from[random(from.len())]).collect()
            };
            let of_urls = pick(&["y", "n", "n"], 1)[0] == "y";
            let (verbs, groups) = (pick(words[0], 1), pick(words[1], 1));
            let (resources, names) = (pick(words[2], 1), pick(words[3], 0));
            let urls = pick(words[4], 1);
            if of_urls {
                rule(&verbs, &[], &[], &[], &urls)
            } else {
                rule(&verbs, &groups, &resources, &names, &[])
            }
        };
        let mut both = [0, 0];
        for _ in 0..3_000 {
            let held: Vec<Rule> = (0..8).map(|_| make(3)).collect();
            let wanted: Vec<Rule> = (0..2).map(|_| make(3)).collect();
            let expected = compact(missing_parts(&held, &wanted));
            let found = missing(&held, &wanted).expect("few rules");
            assert_eq!(found, Missing { rules: expected, more: 0 }, "{held:?} {wanted:?}");
            both[usize::from(found.rules.is_empty())] += 1;
        }
        assert!(both[0] > 100 && both[1] > 100, "{both:?}");
    }

    fn texts(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|at| format!("{prefix}{at}")).collect()
    }

    fn large(count: usize) -> Rule {
        let [verbs, groups, resources] = ["v", "g", "r"].map(|prefix| texts(prefix, count));
        let strs = |texts: &[String]| texts.iter().map(Str::new).collect();
        Rule {
            verbs: strs(&verbs),
            api_groups: strs(&groups),
            resources: strs(&resources),
            ..Rule::default()
        }
    }

    #[test]
    fn the_product_of_a_rule_is_not_walked() {
        let wanted = [large(80)];
        // Held as a whole, not at all, and in halves.
        assert_eq!(missing(&wanted, &wanted), Ok(Missing::default()));
        let none = missing(&[], &wanted).expect("one class");
        assert_eq!((none.rules.len(), none.more), (1, 80 * 80 * 80 - 1));
        let mut halves = [large(80), large(80)];
        halves[0].verbs.truncate(40);
        halves[1].verbs.drain(..40);
        assert_eq!(missing(&halves, &wanted), Ok(Missing::default()));
        halves[1].resources.pop();
        let found = missing(&halves, &wanted).expect("few classes");
        assert_eq!((found.rules.len(), found.more), (1, 40 * 80 - 1));
        assert_eq!(found.rules[0].resources, ["r79"]);
    }

    #[test]
    fn rules_of_any_size_are_decided_or_refused_in_bounded_work() {
        // Every verb, group and resource is in a class of its own.
        let diagonal = |count: usize| -> Vec<Rule> {
            let one = |prefix: &str, at: usize| vec![Str::from(format!("{prefix}{at}"))];
            (0..count)
                .flat_map(|at| {
                    let all = large(count);
                    [
                        Rule { verbs: one("v", at), ..all.clone() },
                        Rule { api_groups: one("g", at), ..all.clone() },
                        Rule { resources: one("r", at), ..all },
                    ]
                })
                .collect()
        };
        assert_eq!(missing(&diagonal(20), &[large(20)]), Ok(Missing::default()));
        let scattered: Vec<Rule> = (0..300)
            .map(|at| {
                let mut rule = large(300);
                rule.verbs.remove(at);
                rule.api_groups.remove((at * 7) % 300);
                rule.resources.remove((at * 11) % 300);
                rule
            })
            .collect();
        // Decided or not, it ends.
        let _ = missing(&scattered, &[large(300)]);
        let huge = large(100_000);
        assert_eq!(
            missing(std::slice::from_ref(&huge), std::slice::from_ref(&huge)),
            Ok(Missing::default())
        );
    }
}
