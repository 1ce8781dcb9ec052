//! Server-side apply against a model: an object is a set of places with values, a manager a set of places that it owns. Random
//! managers apply and update a pod; after every step the values and the owners must be those of the model.
//!
//! The pod has one of each: a map (labels), a set (finalizers), and a list of objects with a key (containers).

use std::collections::{BTreeMap, BTreeSet};

use codec::json::{self, DecodeOptions};
use fuzz::{Random, definitions};
use meta::{Value, value};
use patch::apply::{self, ApplyError, Filter, Manager, Set, SingleVersion, TypeContext};

/// A field of the pod. A container is a field of its own: a manager that applies it owns it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Label(usize),
    Finalizer(usize),
    Container(usize),
    /// A field of a container: 0 is its image, 1 its working directory.
    Field(usize, usize),
}

const FIELDS: [&str; 2] = ["image", "workingDir"];

/// Values of fields; fields that are only present or absent have "".
type State = BTreeMap<Place, String>;

/// What managers own: by name, and whether by apply.
type Owners = BTreeMap<(String, bool), BTreeSet<Place>>;

#[derive(Clone, Debug, Default)]
struct Model {
    state: State,
    owners: Owners,
}

impl Model {
    /// The fields of other managers that would change.
    fn conflicts(&self, who: &(String, bool), config: &State) -> BTreeSet<(String, bool, Place)> {
        let mut conflicts = BTreeSet::new();
        for (place, value) in config {
            if self.state.get(place).is_some_and(|live| live != value) {
                let owners = self
                    .owners
                    .iter()
                    .filter(|(owner, places)| *owner != who && places.contains(place));
                conflicts.extend(
                    owners.map(|((name, applied), _)| (name.clone(), *applied, place.clone())),
                );
            }
        }
        conflicts
    }

    fn apply(&mut self, name: &str, config: &State, force: bool) -> Result<(), usize> {
        let who = (name.to_owned(), true);
        let conflicts = self.conflicts(&who, config);
        if !force && !conflicts.is_empty() {
            return Err(conflicts.len());
        }
        for (owner, applied, place) in conflicts {
            self.owners.get_mut(&(owner, applied)).expect("it owns the place").remove(&place);
        }
        let given_up = self.owners.remove(&who).unwrap_or_default();
        self.state.extend(config.clone());
        for place in given_up.into_iter().filter(|place| !config.contains_key(place)) {
            // A container that no other manager applied is removed, even if another manager changed
            // a field of it.
            let wanted = self.owners.values().any(|places| places.contains(&place));
            if !wanted {
                self.remove(&place);
            }
        }
        self.owners.insert(who, config.keys().cloned().collect());
        self.settle();
        Ok(())
    }

    fn update(&mut self, name: &str, new: &State) {
        let who = (name.to_owned(), false);
        let changed: BTreeSet<Place> = new
            .iter()
            .filter(|(place, value)| self.state.get(place) != Some(*value))
            .map(|(place, _)| place.clone())
            .collect();
        for places in self.owners.values_mut() {
            places.retain(|place| !changed.contains(place));
        }
        self.owners.entry(who).or_default().extend(changed);
        self.state.clone_from(new);
        self.settle();
    }

    fn remove(&mut self, place: &Place) {
        self.state.retain(|other, _| other != place && !is_inside(other, place));
    }

    /// Removes ownership of absent fields, and managers without fields.
    fn settle(&mut self) {
        for places in self.owners.values_mut() {
            places.retain(|place| self.state.contains_key(place));
        }
        self.owners.retain(|_, places| !places.is_empty());
    }
}

fn is_inside(inner: &Place, outer: &Place) -> bool {
    matches!((inner, outer), (Place::Field(container, _), Place::Container(of)) if container == of)
}

/// Fields need their container.
fn complete(mut state: State) -> State {
    let containers: Vec<_> = state
        .keys()
        .filter_map(|place| {
            if let Place::Field(container, _) = place {
                Some(Place::Container(*container))
            } else {
                None
            }
        })
        .collect();
    state.extend(containers.into_iter().map(|place| (place, String::new())));
    state
}

fn random_state(random: &mut Random, percent: usize) -> State {
    let mut state = State::new();
    let mut add = |place: Place, random: &mut Random| {
        if random.chance(percent) {
            let has_value = matches!(place, Place::Label(_) | Place::Field(..));
            let value = if has_value { format!("v{}", random.below(3)) } else { String::new() };
            state.insert(place, value);
        }
    };
    for n in 0..3 {
        add(Place::Label(n), random);
        add(Place::Finalizer(n), random);
        add(Place::Container(n), random);
        add(Place::Field(n, 0), random);
        add(Place::Field(n, 1), random);
    }
    complete(state)
}

fn pod(state: &State) -> Value {
    let mut pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let mut finalizers = Vec::new();
    let mut containers: BTreeMap<usize, Value> = BTreeMap::new();
    for (place, value) in state {
        match place {
            Place::Label(n) => {
                pod.set_at(&["metadata", "labels", &format!("l{n}")], value.as_str());
            }
            Place::Finalizer(n) => finalizers.push(Value::from(format!("f{n}"))),
            Place::Container(n) => {
                containers.entry(*n).or_default().set_at(&["name"], format!("c{n}"));
            }
            Place::Field(n, field) => {
                containers.entry(*n).or_default().set_at(&[FIELDS[*field]], value.as_str());
            }
        }
    }
    if !finalizers.is_empty() {
        pod.set_at(&["metadata", "finalizers"], Value::Array(finalizers));
    }
    if !containers.is_empty() {
        pod.set_at(&["spec", "containers"], Value::Array(containers.into_values().collect()));
    }
    pod
}

fn number(text: &str) -> usize {
    text[1..].parse().expect("a letter and a number")
}

fn state_of(pod: &Value) -> State {
    let mut state = State::new();
    for (key, value) in pod
        .at(&["metadata", "labels"])
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(meta::Map::iter)
    {
        state.insert(Place::Label(number(key)), value.as_str().expect("a text").to_owned());
    }
    for value in pod.items_at(&["metadata", "finalizers"]) {
        state.insert(Place::Finalizer(number(value.as_str().expect("a text"))), String::new());
    }
    for container in pod.items_at(&["spec", "containers"]) {
        let n = number(container.str_at(&["name"]));
        state.insert(Place::Container(n), String::new());
        for (at, field) in FIELDS.iter().enumerate() {
            if let Some(value) = container.get(field).and_then(Value::as_str) {
                state.insert(Place::Field(n, at), value.to_owned());
            }
        }
    }
    state
}

fn owners_of(pod: &Value) -> Owners {
    let mut owners = Owners::new();
    for entry in pod.items_at(&["metadata", "managedFields"]) {
        let (set, canonical) =
            Set::from_value(entry.get("fieldsV1").expect("fields")).expect("a set");
        assert!(canonical, "what the server writes is what it would write again");
        let mut places = BTreeSet::new();
        for path in set.paths(usize::MAX) {
            let text = String::from_utf8(Set::to_json(&only(&path))).expect("JSON");
            places.extend(place_of(&text));
        }
        let who = (entry.str_at(&["manager"]).to_owned(), entry.str_at(&["operation"]) == "Apply");
        if !places.is_empty() {
            owners.insert(who, places);
        }
    }
    owners
}

fn only(path: &[patch::apply::PathElement]) -> Set {
    let mut set = Set::default();
    set.insert(path);
    set
}

/// The field of a path; parents that are owned themselves are not part of this model.
fn place_of(text: &str) -> Option<Place> {
    let tree =
        json::decode_any(text.as_bytes(), DecodeOptions { strict: false }).expect("JSON").value;
    let mut steps = Vec::new();
    let mut at = &tree;
    while let Some((key, next)) = at.as_object().and_then(|map| map.iter().next()) {
        steps.push(key.as_str());
        at = next;
    }
    let key = |step: &str| {
        number(step.strip_prefix("k:{\"name\":\"").expect("a key").trim_end_matches("\"}"))
    };
    match steps[..] {
        ["f:metadata", "f:labels", label] => Some(Place::Label(number(label.strip_prefix("f:")?))),
        ["f:metadata", "f:finalizers", value] => {
            Some(Place::Finalizer(number(value.strip_prefix("v:")?.trim_matches('"'))))
        }
        ["f:spec", "f:containers", item] => Some(Place::Container(key(item))),
        ["f:spec", "f:containers", item, field] => {
            let at = FIELDS.iter().position(|name| field == format!("f:{name}"))?;
            Some(Place::Field(key(item), at))
        }
        _ => None,
    }
}

#[test]
fn values_and_managers_match_the_model() {
    let ty = definitions()
        .type_of(&meta::GroupVersionKind::new("", "v1", "Pod"))
        .expect("a built-in kind");
    let typing = TypeContext {
        schema: &definitions().schema,
        ty,
        fields: &Filter::All,
        versions: &SingleVersion,
    };
    let (mut conflicts, mut forced) = (0, 0);
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let mut model = Model::default();
        let mut live: Option<Value> = None;
        let mut story = Vec::new();
        for _ in 0..12 {
            let name = format!("m{}", random.below(3));
            let manager = Manager {
                name: &name,
                api_version: "v1",
                subresource: "",
                now: "2001-02-03T04:05:06Z",
            };
            if random.chance(60) || live.is_none() {
                let force = random.chance(40);
                let config = random_state(&mut random, 30);
                story.push(format!(
                    "{name} applies{} {config:?}",
                    if force { " by force" } else { "" }
                ));
                let expected = model.clone().apply(&name, &config, force);
                match (
                    apply::apply(live.as_ref(), &pod(&config), &typing, &manager, force),
                    expected,
                ) {
                    (Ok(applied), Ok(())) => {
                        forced += usize::from(force);
                        model.apply(&name, &config, force).expect("as above");
                        live = Some(applied);
                    }
                    (Err(ApplyError::Conflicts(found)), Err(expected)) => {
                        conflicts += 1;
                        assert_eq!(
                            found.len(),
                            expected,
                            "seed {seed}: {found:?}\n{}",
                            story.join("\n")
                        );
                    }
                    (got, expected) => {
                        panic!("seed {seed}: {got:?}, expected {expected:?}\n{}", story.join("\n"))
                    }
                }
            } else {
                let before = live.as_ref().expect("there is one");
                let mut new = model.state.clone();
                let other = random_state(&mut random, 50);
                new.retain(|_, _| random.chance(80));
                new.extend(other.into_iter().filter(|_| random.chance(30)).collect::<State>());
                let new = complete(new);
                story.push(format!("{name} updates to {new:?}"));
                let mut next = pod(&new);
                apply::update(Some(before), &mut next, &typing, &manager);
                model.update(&name, &new);
                live = Some(next);
            }
            let pod = live.as_ref().unwrap_or(&Value::Null);
            assert_eq!(state_of(pod), model.state, "values, seed {seed}:\n{}", story.join("\n"));
            assert_eq!(owners_of(pod), model.owners, "owners, seed {seed}:\n{}", story.join("\n"));
        }
    }
    assert!(conflicts > 50 && forced > 50, "{conflicts} conflicts, {forced} by force");
}
