//! CEL's `authorizer`: `authorizer.group('').resource('pods').check('create').allowed()`.
//!
//! Evaluation is synchronous, an authorizer need not be. A decision that is ready (RBAC decides from
//! memory) is used at once. One that is not stops the evaluation with [`EvalError::Undecided`]; the caller
//! asks for what [`AuthorizerChecks::take_undecided`] lists, records the verdicts and evaluates again.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use meta::{
    User,
    authorization::{Attributes, Authorize, Authorizer, Verdict},
    names,
};

use super::standard::text;
use crate::functions::Functions;
use crate::kubernetes_value::KubernetesValue;
use crate::types::Type;
use crate::value::{EvalError, EvalResult, NO_SUCH_OVERLOAD, Val, fail};

/// The value of the variable `authorizer`: the authorizer, and the user that it is asked about.
#[derive(Clone, Debug)]
pub struct AuthorizerBinding {
    pub checks: Arc<AuthorizerChecks>,
    /// The user of the request, or the service account that the expression asks about.
    pub user: Arc<User>,
}

impl AuthorizerBinding {
    /// The value of the variable `authorizer.requestResource`.
    pub fn resource_check(&self, check: AuthorizerCheck) -> KubernetesValue {
        let asked = AuthorizerCheck { user: self.user.clone(), ..check };
        let checks = self.checks.clone();
        KubernetesValue::Check(Check { checks, kind: CheckKind::Resource, asked })
    }
}

/// An authorizer, and what it has decided so far for one evaluation.
pub struct AuthorizerChecks {
    authorizer: Arc<dyn Authorizer>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    decided: HashMap<AuthorizerCheck, Arc<Verdict>>,
    undecided: Vec<AuthorizerCheck>,
}

impl AuthorizerChecks {
    pub fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer, state: Mutex::default() }
    }

    fn decide(&self, check: AuthorizerCheck) -> Result<Arc<Verdict>, EvalError> {
        if let Some(verdict) = self.state().decided.get(&check) {
            return Ok(verdict.clone());
        }
        let ready = match self.authorizer.authorize(&check.attributes()) {
            Authorize::Ready(verdict) => Some(Arc::new(verdict)),
            Authorize::Pending(_) => None,
        };
        match ready {
            Some(verdict) => {
                self.state().decided.insert(check, verdict.clone());
                Ok(verdict)
            }
            None => {
                self.state().undecided.push(check);
                Err(EvalError::Undecided)
            }
        }
    }

    /// What an evaluation needed to know and did not.
    pub fn take_undecided(&self) -> Vec<AuthorizerCheck> {
        std::mem::take(&mut self.state().undecided)
    }

    /// Notes a verdict for the next evaluation.
    pub fn record(&self, check: AuthorizerCheck, verdict: Verdict) {
        self.state().decided.insert(check, Arc::new(verdict));
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AuthorizerChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthorizerChecks")
    }
}

/// What an expression asks the authorizer; what is not said is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AuthorizerCheck {
    pub user: Arc<User>,
    pub verb: String,
    /// For a path; then there is no resource.
    pub path: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
}

impl AuthorizerCheck {
    pub fn attributes(&self) -> Attributes<'_> {
        if self.resource.is_empty() {
            return Attributes::of_path(&self.user, &self.verb, &self.path);
        }
        Attributes {
            // Compat: any version, as the expression names none.
            version: "*",
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            field_selector: &self.field_selector,
            label_selector: &self.label_selector,
            ..Attributes::of_resource(&self.user, &self.verb, &self.group, &self.resource)
        }
    }
}

/// A check that is being put together, call by call.
#[derive(Clone, Debug)]
pub struct Check {
    checks: Arc<AuthorizerChecks>,
    kind: CheckKind,
    asked: AuthorizerCheck,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckKind {
    Path,
    Group,
    Resource,
}

impl CheckKind {
    fn type_of(self) -> Type {
        Type::object(match self {
            Self::Path => "kubernetes.authorization.PathCheck",
            Self::Group => "kubernetes.authorization.GroupCheck",
            Self::Resource => "kubernetes.authorization.ResourceCheck",
        })
    }
}

impl Check {
    pub(crate) fn type_of(&self) -> Type {
        self.kind.type_of()
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.asked == other.asked
    }
}

pub(super) fn declare(f: &mut Functions) {
    use Type::{Bool, String};
    let authorizer = Type::authorizer();
    let decision = Type::object("kubernetes.authorization.Decision");
    let path = CheckKind::Path.type_of();
    let group = CheckKind::Group.type_of();
    let resource = CheckKind::Resource.type_of();
    let on = |ty: &Type| [ty.clone(), String];
    f.member("path", "authorizer_path", &on(&authorizer), path.clone(), |args| {
        let path = second(args)?;
        if path.is_empty() {
            return fail("path must not be empty");
        }
        let check = AuthorizerCheck { path: path.to_owned(), ..AuthorizerCheck::default() };
        Ok(start(binding(args)?, CheckKind::Path, check))
    });
    f.member("group", "authorizer_group", &on(&authorizer), group.clone(), |args| {
        let group = second(args)?.to_owned();
        let check = AuthorizerCheck { group, ..AuthorizerCheck::default() };
        Ok(start(binding(args)?, CheckKind::Group, check))
    });
    let account = [authorizer.clone(), String, String];
    f.member("serviceAccount", "authorizer_serviceaccount", &account, authorizer, service_account);
    f.member("resource", "groupcheck_resource", &on(&group), resource.clone(), |args| {
        let resource = second(args)?;
        if resource.is_empty() {
            return fail("resource must not be empty");
        }
        refine(args, CheckKind::Resource, |check, text| check.resource = text)
    });
    macro_rules! refine {
        ($name:literal, $id:literal, $field:ident) => {
            f.member($name, $id, &on(&resource), resource.clone(), |args| {
                refine(args, CheckKind::Resource, |check, text| check.$field = text)
            });
        };
    }
    refine!("subresource", "resourcecheck_subresource", subresource);
    refine!("namespace", "resourcecheck_namespace", namespace);
    refine!("name", "resourcecheck_name", name);
    refine!("fieldSelector", "authorizer_fieldselector", field_selector);
    refine!("labelSelector", "authorizer_labelselector", label_selector);
    f.member("check", "pathcheck_check", &on(&path), decision.clone(), ask);
    f.member("check", "resourcecheck_check", &on(&resource), decision.clone(), ask);
    let one = [decision];
    f.member("errored", "decision_errored", &one, Bool, |args| {
        Ok(Val::Bool(decision_of(args)?.error.is_some()))
    });
    f.member("error", "decision_error", &one, String, |args| {
        Ok(Val::text(decision_of(args)?.error.clone().unwrap_or_default()))
    });
    f.member("allowed", "decision_allowed", &one, Bool, |args| {
        Ok(Val::Bool(decision_of(args)?.is_allowed()))
    });
    f.member("reason", "decision_reason", &one, String, |args| {
        Ok(Val::text(decision_of(args)?.reason.clone()))
    });
}

fn second<'v>(args: &'v [Val<'_>]) -> Result<&'v str, EvalError> {
    text(args.get(1..).unwrap_or_default())
}

fn binding<'v>(args: &'v [Val<'_>]) -> Result<&'v AuthorizerBinding, EvalError> {
    match args.first() {
        Some(Val::Kubernetes(value)) => match &**value {
            KubernetesValue::Authorizer(binding) => Ok(binding),
            _ => Err(NO_SUCH_OVERLOAD),
        },
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

fn check<'v>(args: &'v [Val<'_>]) -> Result<&'v Check, EvalError> {
    match args.first() {
        Some(Val::Kubernetes(value)) => match &**value {
            KubernetesValue::Check(check) => Ok(check),
            _ => Err(NO_SUCH_OVERLOAD),
        },
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

fn decision_of<'v>(args: &'v [Val<'_>]) -> Result<&'v Verdict, EvalError> {
    match args.first() {
        Some(Val::Kubernetes(value)) => match &**value {
            KubernetesValue::Decision(decision) => Ok(decision),
            _ => Err(NO_SUCH_OVERLOAD),
        },
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

fn start<'a>(binding: &AuthorizerBinding, kind: CheckKind, check: AuthorizerCheck) -> Val<'a> {
    let check = AuthorizerCheck { user: binding.user.clone(), ..check };
    let checks = binding.checks.clone();
    Val::kubernetes(KubernetesValue::Check(Check { checks, kind, asked: check }))
}

fn refine<'a>(
    args: &[Val<'a>],
    kind: CheckKind,
    set: fn(&mut AuthorizerCheck, String),
) -> EvalResult<'a> {
    let mut check = check(args)?.clone();
    check.kind = kind;
    set(&mut check.asked, second(args)?.to_owned());
    Ok(Val::kubernetes(KubernetesValue::Check(check)))
}

fn service_account<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let mut binding = binding(args)?.clone();
    let (namespace, name) = (second(args)?, text(args.get(2..).unwrap_or_default())?);
    if !names::name_is_dns_subdomain(name, false).is_empty() {
        return fail("Invalid service account name");
    }
    if !names::name_is_dns_label(namespace, false).is_empty() {
        return fail("Invalid service account namespace");
    }
    binding.user = Arc::new(User::service_account(namespace, name));
    Ok(Val::kubernetes(KubernetesValue::Authorizer(binding)))
}

fn ask<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let check = check(args)?;
    let asked = AuthorizerCheck { verb: second(args)?.to_owned(), ..check.asked.clone() };
    let verdict = check.checks.decide(asked)?;
    Ok(Val::kubernetes(KubernetesValue::Decision(verdict)))
}
