//! Roles and bindings, indexed by their subjects. An index is never changed while a request reads
//! it: a change makes a new one that shares all that is the same.

use std::{collections::HashSet, sync::Arc};

use imbl::HashMap;
use meta::{Str, User, Value};

use super::rule::Rule;

/// All roles and bindings of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// By namespace; the empty one has the cluster roles and their bindings.
    scopes: HashMap<Str, Scope>,
}

/// The roles and bindings of a namespace, or of the cluster. Its maps share what is the same with those
/// of the index before: a change among ten thousand bindings copies a few nodes.
#[derive(Clone, Debug, Default)]
struct Scope {
    roles: HashMap<Str, Arc<[Rule]>>,
    bindings: HashMap<Str, Arc<Binding>>,
    /// The bindings about a user (or service account) and about a group, by name.
    users: HashMap<Str, Vec<Arc<Binding>>>,
    groups: HashMap<Str, Vec<Arc<Binding>>>,
}

/// A `RoleBinding` or `ClusterRoleBinding`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Binding {
    namespace: Str,
    name: Str,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// The role that a binding is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleRef {
    pub kind: Str,
    pub name: Str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Subject {
    kind: Str,
    namespace: Str,
    name: Str,
}

/// What the role of a binding allows, or why that is not known.
pub(super) type Granted<'a> = (&'a Arc<Binding>, Result<&'a [Rule], String>);

impl Index {
    /// A role (in a namespace) or cluster role (in the empty one); no rules: it is gone.
    pub fn set_role(&mut self, namespace: &str, name: &str, rules: Option<Vec<Rule>>) {
        self.change(namespace, |scope| match rules {
            Some(rules) => drop(scope.roles.insert(Str::new(name), rules.into())),
            None => drop(scope.roles.remove(name)),
        });
    }

    /// A role binding or cluster role binding; None: it is gone.
    pub fn set_binding(&mut self, namespace: &str, name: &str, binding: Option<&Value>) {
        let binding = binding.map(|object| Arc::new(Binding::new(namespace, name, object)));
        self.change(namespace, |scope| {
            if let Some(old) = scope.bindings.remove(name) {
                scope.forget(&old);
            }
            if let Some(binding) = binding {
                scope.note(&binding);
                scope.bindings.insert(Str::new(name), binding);
            }
        });
    }

    fn change(&mut self, namespace: &str, change: impl FnOnce(&mut Scope)) {
        let mut scope = self.scopes.remove(namespace).unwrap_or_default();
        change(&mut scope);
        if !(scope.roles.is_empty() && scope.bindings.is_empty()) {
            self.scopes.insert(Str::new(namespace), scope);
        }
    }

    /// What bindings give to a user, in the cluster and in a namespace (if there is one), by name.
    pub(super) fn granted<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = Granted<'a>> {
        let scopes = [""].into_iter().chain(Some(namespace).filter(|name| !name.is_empty()));
        let scopes = scopes.filter_map(|name| self.scopes.get(name));
        scopes.flat_map(move |scope| {
            let bindings = scope.about(user).into_iter();
            bindings.map(|binding| (binding, self.rules_of(&binding.role, &binding.namespace)))
        })
    }

    /// The rules of the role that a binding in this namespace refers to.
    pub fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], String> {
        let namespace = match role.kind.as_str() {
            "ClusterRole" => "",
            "Role" => namespace,
            other => {
                let other = meta::field::quote(other);
                return Err(format!("unsupported role reference kind: {other}"));
            }
        };
        let rules = self.scopes.get(namespace).and_then(|scope| scope.roles.get(&role.name));
        rules.map(|rules| &**rules).ok_or_else(|| {
            let kind = role.kind.to_lowercase();
            let name = meta::field::quote(&role.name);
            format!("{kind}.rbac.authorization.k8s.io {name} not found")
        })
    }
}

impl Scope {
    /// The bindings about a user, each once, by name.
    fn about(&self, user: &User) -> Vec<&Arc<Binding>> {
        let by_name = self.users.get(&user.name).into_iter();
        let by_group = user.groups.iter().filter_map(|group| self.groups.get(group));
        let mut bindings: Vec<_> = by_name.chain(by_group).flatten().collect();
        bindings.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        bindings.dedup_by(|a, b| a.name == b.name);
        bindings
    }

    fn note(&mut self, binding: &Arc<Binding>) {
        for (is_group, name) in binding.places() {
            self.places(is_group).entry(name).or_default().push(binding.clone());
        }
    }

    fn forget(&mut self, binding: &Arc<Binding>) {
        for (is_group, name) in binding.places() {
            let places = self.places(is_group);
            let Some(place) = places.get_mut(&name) else { continue };
            place.retain(|have| have.name != binding.name);
            if place.is_empty() {
                places.remove(&name);
            }
        }
    }

    fn places(&mut self, of_groups: bool) -> &mut HashMap<Str, Vec<Arc<Binding>>> {
        if of_groups { &mut self.groups } else { &mut self.users }
    }
}

impl Binding {
    fn new(namespace: &str, name: &str, object: &Value) -> Self {
        let subject = |subject: &Value| Subject {
            kind: Str::new(subject.str_at(&["kind"])),
            namespace: Str::new(subject.str_at(&["namespace"])),
            name: Str::new(subject.str_at(&["name"])),
        };
        Self {
            namespace: Str::new(namespace),
            name: Str::new(name),
            role: RoleRef::of(object),
            subjects: object.items_at(&["subjects"]).iter().map(subject).collect(),
        }
    }

    /// The users and groups (true) of a binding, each once however often the binding names it.
    fn places(&self) -> HashSet<(bool, Str)> {
        let place = |subject: &Subject| match subject.kind.as_str() {
            "Group" => Some((true, subject.name.clone())),
            _ => Some((false, self.user_name(subject)?)),
        };
        self.subjects.iter().filter_map(place).collect()
    }

    /// Who a subject is when it sends a request. A service account without a namespace lives in the
    /// binding's.
    fn user_name(&self, subject: &Subject) -> Option<Str> {
        match subject.kind.as_str() {
            "User" => Some(subject.name.clone()),
            "ServiceAccount" => {
                let mut namespaces = [&subject.namespace, &self.namespace].into_iter();
                let namespace = namespaces.find(|name| !name.is_empty())?;
                Some(format!("system:serviceaccount:{namespace}:{}", subject.name).into())
            }
            _ => None,
        }
    }

    /// Compat: how a reason names the binding that gave a right.
    pub(super) fn describe(&self, user: &User) -> String {
        let applies = |subject: &&Subject| match subject.kind.as_str() {
            "Group" => user.is_in(&subject.name),
            _ => self.user_name(subject).as_ref() == Some(&user.name),
        };
        let subject = self.subjects.iter().find(applies).cloned().unwrap_or_default();
        let subject_name = match subject.kind.as_str() {
            "ServiceAccount" if subject.namespace.is_empty() => {
                format!("{}/{}", subject.name, self.namespace)
            }
            "ServiceAccount" => format!("{}/{}", subject.name, subject.namespace),
            _ => subject.name.to_string(),
        };
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.to_string())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        let quote = meta::field::quote;
        format!(
            "{kind} {} of {} {} to {} {}",
            quote(&name),
            self.role.kind,
            quote(&self.role.name),
            subject.kind,
            quote(&subject_name),
        )
    }
}

impl RoleRef {
    /// The role that a binding refers to.
    pub fn of(binding: &Value) -> Self {
        Self {
            kind: Str::new(binding.str_at(&["roleRef", "kind"])),
            name: Str::new(binding.str_at(&["roleRef", "name"])),
        }
    }
}
