//! The expressions of webhooks and policies: whether they compile, and to what.

use std::sync::{Arc, LazyLock};

use cel::{CompileError, Decl, Env, ListType, Type};
use meta::{FieldErrors, field::FieldReason};

use crate::validation::cursor::Field;

/// What the expressions of one configuration can refer to.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    pub(crate) has_params: bool,
    /// The variables of a policy so far, with what they evaluate to; None: there are none at all.
    variables: Option<Vec<(String, Arc<Decl>)>>,
}

impl Scope {
    pub(crate) fn new(has_params: bool, has_variables: bool) -> Self {
        Self { has_params, variables: has_variables.then(Vec::new) }
    }

    /// A variable, which the expressions after it can use.
    pub(crate) fn declare(&mut self, variable: &Field<'_>, errors: &mut FieldErrors) {
        let expression = variable.get("expression");
        let decl = match compile(&self.env(true), &expression, expression.str(), &[], errors) {
            Some(ty) => declared(&ty),
            None => Decl::dynamic(),
        };
        let name = variable.str_at(&["name"]).to_owned();
        if let Some(variables) = &mut self.variables {
            variables.retain(|(known, _)| *known != name);
            variables.push((name, Arc::new(decl)));
        }
    }

    /// A rule: true or false.
    pub(crate) fn condition(&self, expression: &Field<'_>, errors: &mut FieldErrors) {
        compile(&self.env(true), expression, expression.str(), &[Type::Bool], errors);
    }

    /// Whether something is to be looked at. Knows no variables.
    pub(crate) fn match_condition(&self, expression: &Field<'_>, errors: &mut FieldErrors) {
        let scope = Self::new(self.has_params, false);
        let text = expression.str().trim();
        compile(&scope.env(true), expression, text, &[Type::Bool], errors);
    }

    pub(crate) fn message(&self, expression: &Field<'_>, errors: &mut FieldErrors) {
        let env = self.env(false);
        compile(&env, expression, expression.str(), &[Type::String], errors);
    }

    pub(crate) fn annotation(&self, expression: &Field<'_>, errors: &mut FieldErrors) {
        let text = expression.str().trim();
        let types = [Type::String, Type::Null];
        compile(&self.env(true), expression, text, &types, errors);
    }

    /// A patch: what it makes is of a type that only patches know.
    pub(crate) fn mutation(&self, expression: &Field<'_>, wanted: Type, errors: &mut FieldErrors) {
        let env = self.env(true).for_mutations();
        compile(&env, expression, expression.str().trim(), &[wanted], errors);
    }

    fn env(&self, has_authorizer: bool) -> Env {
        let mut env = Env::new()
            .variable("object", Type::Dyn)
            .variable("oldObject", Type::Dyn)
            .variable("namespaceObject", Type::of(&NAMESPACE, "kubernetes.Namespace"))
            .variable("request", Type::of(&REQUEST, "kubernetes.AdmissionRequest"));
        if self.has_params {
            env = env.variable("params", Type::Dyn);
        }
        if has_authorizer {
            env = env
                .variable("authorizer", Type::authorizer())
                .variable("authorizer.requestResource", Type::resource_check());
        }
        if let Some(variables) = &self.variables {
            let fields = variables.iter().map(|(name, decl)| (name, decl.clone(), true));
            let decl = Arc::new(Decl::object(fields));
            env = env.variable("variables", Type::of(&decl, "kubernetes.variables"));
        }
        env
    }
}

/// The type of an expression, which must be one of these; any, if there are none. None if something
/// is wrong with it.
fn compile(
    env: &Env,
    field: &Field<'_>,
    text: &str,
    expected: &[Type],
    errors: &mut FieldErrors,
) -> Option<Type> {
    let (found, unusable) = match env.compile(text) {
        Ok(program) => (program.output_type().clone(), None),
        Err(CompileError::Unusable { output, message, .. }) => (output, Some(message)),
        Err(error @ CompileError::Invalid(_)) => {
            field.invalid_value(errors, text, &format!("compilation failed: {error}"));
            return None;
        }
    };
    let why = match expected {
        [] => None,
        fitting if fitting.contains(&found) => None,
        [one] => Some(format!("must evaluate to {one} but got {found}")),
        several => {
            let several: Vec<&str> = several.iter().map(Type::name).collect();
            Some(format!("must evaluate to one of [{}] but got {found}", several.join(" ")))
        }
    };
    match (why, unusable) {
        (None, None) => return Some(found),
        (Some(why), _) => field.invalid_value(errors, text, &why),
        (None, Some(message)) => {
            let why = format!("Internal error: program instantiation failed: {message}");
            errors.push(FieldReason::Internal, field.path(), why);
        }
    }
    None
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

static REQUEST: LazyLock<Arc<Decl>> = LazyLock::new(|| {
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

static NAMESPACE: LazyLock<Arc<Decl>> = LazyLock::new(|| {
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
