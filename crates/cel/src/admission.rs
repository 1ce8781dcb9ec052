//! What the expressions of admission webhooks and policies can refer to: `object`, `oldObject`,
//! `namespaceObject`, `request`, `params`, `authorizer` and `variables`.

use std::sync::{Arc, LazyLock, OnceLock};

use crate::decl::{Decl, ListType};
use crate::env::Env;
use crate::eval::Bound;
use crate::types::Type;

/// The variables that the expressions of one configuration have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Variables<'a> {
    /// What is known of objects; None: they can be anything.
    pub object: Option<&'a Type>,
    pub params: bool,
    /// What is known of parameters; None: they can be anything.
    pub params_type: Option<&'a Type>,
    pub authorizer: bool,
    /// The variables of a policy that are declared so far; None: the policy has none.
    pub composed: Option<&'a ComposedVariables>,
}

/// The values of these variables. What the expressions do not have is not looked at.
#[derive(Debug)]
pub struct Values<'a> {
    pub object: Bound<'a>,
    pub old_object: Bound<'a>,
    pub namespace: Bound<'a>,
    pub request: Bound<'a>,
    pub params: Bound<'a>,
    pub authorizer: Bound<'a>,
    pub request_resource: Bound<'a>,
    pub composed: Bound<'a>,
}

impl Variables<'_> {
    pub fn env(&self) -> Env {
        let object = self.object.cloned().unwrap_or(Type::Dyn);
        let mut env = Env::new()
            .variable("object", object.clone())
            .variable("oldObject", object)
            .variable("namespaceObject", Type::of(&NAMESPACE, "kubernetes.Namespace"))
            .variable("request", Type::of(&REQUEST, "kubernetes.AdmissionRequest"));
        if self.params {
            env = env.variable("params", self.params_type.cloned().unwrap_or(Type::Dyn));
        }
        if self.authorizer {
            env = env
                .variable("authorizer", Type::authorizer())
                .variable("authorizer.requestResource", Type::resource_check());
        }
        if let Some(composed) = self.composed {
            env = env.variable("variables", Type::of(composed.decl(), "kubernetes.variables"));
        }
        env
    }

    /// The values in the order in which [`Variables::env`] declares their variables.
    pub fn bind<'v>(&self, values: &Values<'v>) -> Vec<Bound<'v>> {
        let mut bound = vec![
            values.object.clone(),
            values.old_object.clone(),
            values.namespace.clone(),
            values.request.clone(),
        ];
        if self.params {
            bound.push(values.params.clone());
        }
        if self.authorizer {
            bound.push(values.authorizer.clone());
            bound.push(values.request_resource.clone());
        }
        if self.composed.is_some() {
            bound.push(values.composed.clone());
        }
        bound
    }
}

/// The variables of a policy, each of which can use those before it.
#[derive(Clone, Debug, Default)]
pub struct ComposedVariables {
    variables: Vec<(String, Arc<Decl>)>,
    /// Of all variables so far: made once for the many expressions that use them.
    decl: OnceLock<Arc<Decl>>,
}

impl ComposedVariables {
    /// Adds a variable by the type of its expression; None: the expression does not compile.
    pub fn declare(&mut self, name: &str, ty: Option<&Type>) {
        let decl = ty.map_or_else(Decl::dynamic, declared);
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), Arc::new(decl)));
        self.decl = OnceLock::new();
    }

    fn decl(&self) -> &Arc<Decl> {
        self.decl.get_or_init(|| {
            let fields = self.variables.iter().map(|(name, decl)| (name, decl.clone(), true));
            Arc::new(Decl::object(fields))
        })
    }
}

/// What a variable of this type holds. Types that have no declaration can be anything.
fn declared(ty: &Type) -> Decl {
    match ty {
        Type::Bool => Decl::bool(),
        Type::Int => Decl::int(),
        Type::Double => Decl::double(),
        Type::String => Decl::string(None),
        Type::Bytes => Decl::bytes(None),
        Type::Duration => Decl::duration(),
        Type::Timestamp => Decl::date_time(),
        Type::List(items) => Decl::list(Arc::new(declared(items)), ListType::Atomic, None),
        Type::Map(entry) if entry.0 == Type::String => {
            Decl::map(Arc::new(declared(&entry.1)), None)
        }
        _ => Decl::dynamic(),
    }
}

/// `request`: an `AdmissionRequest` without its objects.
pub static REQUEST: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    let text = text();
    let kind = object(&[("group", &text), ("version", &text), ("kind", &text)]);
    let resource = object(&[("group", &text), ("version", &text), ("resource", &text)]);
    let texts = list(&text);
    let extra = Arc::new(Decl::map(texts.clone(), None));
    let user =
        object(&[("username", &text), ("uid", &text), ("groups", &texts), ("extra", &extra)]);
    let (dry_run, options) = (Arc::new(Decl::bool()), Arc::new(Decl::dynamic()));
    object(&[
        ("kind", &kind),
        ("resource", &resource),
        ("subResource", &text),
        ("requestKind", &kind),
        ("requestResource", &resource),
        ("requestSubResource", &text),
        ("name", &text),
        ("namespace", &text),
        ("operation", &text),
        ("userInfo", &user),
        ("dryRun", &dry_run),
        ("options", &options),
    ])
});

/// `namespaceObject`.
pub static NAMESPACE: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    let (text, time) = (text(), Arc::new(Decl::date_time()));
    let (int, texts) = (Arc::new(Decl::int()), list(&text));
    let labels = Arc::new(Decl::map(text.clone(), None));
    let condition = object(&[
        ("status", &text),
        ("type", &text),
        ("lastTransitionTime", &time),
        ("message", &text),
        ("reason", &text),
    ]);
    let metadata = object(&[
        ("name", &text),
        ("generateName", &text),
        ("namespace", &text),
        ("labels", &labels),
        ("annotations", &labels),
        ("UID", &text),
        ("creationTimestamp", &time),
        ("deletionGracePeriodSeconds", &int),
        ("deletionTimestamp", &time),
        ("generation", &int),
        ("resourceVersion", &text),
        ("finalizers", &texts),
    ]);
    let spec = object(&[("finalizers", &texts)]);
    let status = object(&[("conditions", &list(&condition)), ("phase", &text)]);
    object(&[("metadata", &metadata), ("spec", &spec), ("status", &status)])
});

fn text() -> Arc<Decl> {
    Arc::new(Decl::string(None))
}

fn list(items: &Arc<Decl>) -> Arc<Decl> {
    Arc::new(Decl::list(items.clone(), ListType::Atomic, None))
}

fn object(fields: &[(&str, &Arc<Decl>)]) -> Arc<Decl> {
    let fields = fields.iter().map(|(name, decl)| (*name, Arc::clone(decl), true));
    Arc::new(Decl::object(fields))
}

/// Objects and parameters.
pub static ANYTHING: LazyLock<Decl> = LazyLock::new(Decl::dynamic);
