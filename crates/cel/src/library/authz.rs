//! Asking what a user may do: `authorizer.group('').resource('pods').check('create').allowed()`.
//!
//! Who answers is behind [`Authorizer`]: this crate knows neither users nor roles.

use std::sync::Arc;

use meta::names;

use super::standard::text;
use crate::functions::Functions;
use crate::kubernetes_value::KubernetesValue;
use crate::types::Type;
use crate::value::{EvalError, EvalResult, NO_SUCH_OVERLOAD, Val, fail};

/// Answers whether the user of the current request (or a service account) may do something.
pub trait Authorizer: std::fmt::Debug + Send + Sync {
    fn decide(&self, question: &Question) -> Decision;
}

/// The `authorizer` of an expression: who is asked, about whom.
#[derive(Clone, Debug)]
pub struct Authority {
    pub authorizer: Arc<dyn Authorizer>,
    /// Namespace and name of the service account to ask about instead of the request's user.
    pub service_account: Option<(String, String)>,
}

/// A question on its way: what is not said is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    pub service_account: Option<(String, String)>,
    pub verb: String,
    /// For a path; then there is no resource.
    pub path: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: Option<String>,
    pub label_selector: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Check {
    authority: Authority,
    kind: CheckKind,
    question: Question,
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
        self.kind == other.kind && self.question == other.question
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
        let question = Question { path: path.to_owned(), ..Question::default() };
        Ok(start(authority(args)?, CheckKind::Path, question))
    });
    f.member("group", "authorizer_group", &on(&authorizer), group.clone(), |args| {
        let question = Question { group: second(args)?.to_owned(), ..Question::default() };
        Ok(start(authority(args)?, CheckKind::Group, question))
    });
    let account = [authorizer.clone(), String, String];
    f.member("serviceAccount", "authorizer_serviceaccount", &account, authorizer, service_account);
    f.member("resource", "groupcheck_resource", &on(&group), resource.clone(), |args| {
        let resource = second(args)?;
        if resource.is_empty() {
            return fail("resource must not be empty");
        }
        refine(args, CheckKind::Resource, |question, text| question.resource = text)
    });
    macro_rules! refine {
        ($name:literal, $id:literal, $field:ident) => {
            f.member($name, $id, &on(&resource), resource.clone(), |args| {
                refine(args, CheckKind::Resource, |question, text| question.$field = text.into())
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
        Ok(Val::Bool(decision_of(args)?.allowed))
    });
    f.member("reason", "decision_reason", &one, String, |args| {
        Ok(Val::text(decision_of(args)?.reason.clone()))
    });
}

fn second<'v>(args: &'v [Val<'_>]) -> Result<&'v str, EvalError> {
    text(args.get(1..).unwrap_or_default())
}

fn authority<'v>(args: &'v [Val<'_>]) -> Result<&'v Authority, EvalError> {
    match args.first() {
        Some(Val::Kubernetes(value)) => match &**value {
            KubernetesValue::Authorizer(authority) => Ok(authority),
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

fn decision_of<'v>(args: &'v [Val<'_>]) -> Result<&'v Decision, EvalError> {
    match args.first() {
        Some(Val::Kubernetes(value)) => match &**value {
            KubernetesValue::Decision(decision) => Ok(decision),
            _ => Err(NO_SUCH_OVERLOAD),
        },
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

fn start<'a>(authority: &Authority, kind: CheckKind, question: Question) -> Val<'a> {
    let question = Question { service_account: authority.service_account.clone(), ..question };
    Val::kubernetes(KubernetesValue::Check(Check { authority: authority.clone(), kind, question }))
}

fn refine<'a>(args: &[Val<'a>], kind: CheckKind, set: fn(&mut Question, String)) -> EvalResult<'a> {
    let mut check = check(args)?.clone();
    check.kind = kind;
    set(&mut check.question, second(args)?.to_owned());
    Ok(Val::kubernetes(KubernetesValue::Check(check)))
}

fn service_account<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let mut authority = authority(args)?.clone();
    let (namespace, name) = (second(args)?, text(args.get(2..).unwrap_or_default())?);
    if !names::name_is_dns_subdomain(name, false).is_empty() {
        return fail("Invalid service account name");
    }
    if !names::name_is_dns_label(namespace, false).is_empty() {
        return fail("Invalid service account namespace");
    }
    authority.service_account = Some((namespace.to_owned(), name.to_owned()));
    Ok(Val::kubernetes(KubernetesValue::Authorizer(authority)))
}

fn ask<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let check = check(args)?;
    let question = Question { verb: second(args)?.to_owned(), ..check.question.clone() };
    let decision = check.authority.authorizer.decide(&question);
    Ok(Val::kubernetes(KubernetesValue::Decision(decision)))
}
