//! The CEL expressions of webhooks and policies: compiled once for each change of a configuration,
//! evaluated with the objects of a request.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use cel::{
    AuthorizerBinding, AuthorizerCheck, Bound, CompileError, Env, EvalError, EvalResult,
    KubernetesValue, LazyFields, MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, Program, Type, Val,
    admission::{ANYTHING, NAMESPACE, REQUEST, Values, Variables},
};
use meta::{GroupVersionKind, GroupVersionResource, Str, Value, authorization::Authorizer, value};

use crate::{Attributes, evaluate_with_authorizer};

/// An expression, or why it cannot be evaluated.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) text: String,
    program: Result<Program, String>,
}

/// All expressions of a configuration together cost more than they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfBudget;

impl OutOfBudget {
    pub(crate) const TEXT: &str = "validation failed due to running out of cost budget, no further \
                                   validation rules will be run";
}

impl Expression {
    /// Compiles an expression that has to evaluate to one of these types; to any, if there are none.
    pub(crate) fn compile(env: &Env, text: &str, types: &[Type]) -> Self {
        let program = match env.compile(text) {
            Ok(program) => {
                let found = program.output_type();
                if types.is_empty() || types.contains(found) {
                    Ok(program)
                } else {
                    Err(format!("must evaluate to {} but got {found}", expected(types)))
                }
            }
            Err(CompileError::Unusable { message, .. }) => {
                Err(format!("program instantiation failed: {message}"))
            }
            Err(error @ CompileError::Invalid(_)) => Err(format!("compilation failed: {error}")),
        };
        Self { text: text.to_owned(), program }
    }

    pub(crate) fn output_type(&self) -> Option<&Type> {
        self.program.as_ref().ok().map(Program::output_type)
    }

    /// Why the expression does not compile.
    pub(crate) fn compile_error(&self) -> Option<&str> {
        self.program.as_ref().err().map(String::as_str)
    }

    pub(crate) fn uses_authorizer(&self) -> bool {
        self.uses("authorizer") || self.uses("authorizer.requestResource")
    }

    pub(crate) fn uses(&self, variable: &str) -> bool {
        self.program.as_ref().is_ok_and(|program| program.uses(variable))
    }

    /// Evaluates it and takes what it costs off the budget, with what its variables have cost. The
    /// inner error is the expression's own.
    pub(crate) fn evaluate<'v>(
        &'v self,
        bound: &'v [Bound<'v>],
        composition: Option<&Composition<'_>>,
        budget: &mut u64,
    ) -> Result<Result<Val<'v>, String>, OutOfBudget> {
        let program = match &self.program {
            Ok(program) => program,
            Err(why) => return Ok(Err(format!("compilation error: {why}"))),
        };
        let outcome = program.evaluate(bound, PER_CALL_LIMIT);
        let composed = composition.map_or(0, Composition::take_cost);
        for cost in [composed, outcome.cost] {
            *budget = budget.checked_sub(cost).ok_or(OutOfBudget)?;
        }
        Ok(outcome
            .result
            .map_err(|error| format!("expression '{}' resulted in error: {error}", self.text)))
    }
}

fn expected(types: &[Type]) -> String {
    match types {
        [one] => one.to_string(),
        several => {
            let several: Vec<&str> = several.iter().map(Type::name).collect();
            format!("one of [{}]", several.join(" "))
        }
    }
}

/// What expressions are evaluated with.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) attributes: &'a Attributes<'a>,
    pub(crate) object: Option<&'a Value>,
    pub(crate) old: Option<&'a Value>,
    /// Made by [`request_value`].
    pub(crate) request: &'a Value,
    pub(crate) namespace: Option<&'a Value>,
    pub(crate) params: Option<&'a Value>,
}

/// `authorizer` and `authorizer.requestResource`.
pub(crate) struct AuthorizerValues {
    authorizer: Arc<KubernetesValue>,
    request_resource: Arc<KubernetesValue>,
}

impl AuthorizerValues {
    fn new(binding: &AuthorizerBinding, attributes: &Attributes<'_>) -> Self {
        let check = AuthorizerCheck {
            group: attributes.gvr.group.to_string(),
            resource: attributes.gvr.resource.to_string(),
            subresource: attributes.subresource.to_owned(),
            namespace: attributes.namespace.to_owned(),
            name: attributes.name.to_owned(),
            ..AuthorizerCheck::default()
        };
        Self {
            request_resource: Arc::new(binding.resource_check(check)),
            authorizer: Arc::new(KubernetesValue::Authorizer(binding.clone())),
        }
    }
}

impl<'a> Inputs<'a> {
    pub(crate) fn values<'v>(
        &self,
        authorizer: Option<&AuthorizerValues>,
        composed: Bound<'v>,
    ) -> Values<'v>
    where
        'a: 'v,
    {
        let data = |value: Option<&'a Value>| match value {
            Some(value) => Bound::Data(value, &ANYTHING),
            None => Bound::Val(Val::Null),
        };
        let own = |value: fn(&AuthorizerValues) -> &Arc<KubernetesValue>| match authorizer {
            Some(values) => Bound::Val(Val::Kubernetes(value(values).clone())),
            None => Bound::Missing,
        };
        Values {
            object: data(self.object),
            old_object: data(self.old),
            namespace: match self.namespace {
                Some(namespace) => Bound::Data(namespace, &NAMESPACE),
                None => Bound::Val(Val::Null),
            },
            request: Bound::Data(self.request, &REQUEST),
            params: data(self.params),
            authorizer: own(|values| &values.authorizer),
            request_resource: own(|values| &values.request_resource),
            composed,
        }
    }

    /// Runs an evaluation, again for each decision of an authorizer that it had to wait for.
    pub(crate) async fn evaluate<T>(
        &self,
        authorizer: &Arc<dyn Authorizer>,
        uses_authorizer: bool,
        mut evaluate: impl FnMut(Option<&AuthorizerValues>) -> T,
    ) -> T {
        if !uses_authorizer {
            return evaluate(None);
        }
        evaluate_with_authorizer(authorizer, self.attributes.user, |binding| {
            evaluate(Some(&AuthorizerValues::new(binding, self.attributes)))
        })
        .await
    }
}

/// The variable `request`: an AdmissionRequest without its objects.
pub(crate) fn request_value(
    attributes: &Attributes<'_>,
    resource: &GroupVersionResource,
    kind: &GroupVersionKind,
) -> Value {
    let texts = |texts: &[Str]| {
        Value::Array(texts.iter().map(|text| Value::String(text.clone())).collect())
    };
    let mut user = value!({});
    for (field, text) in [("username", &attributes.user.name), ("uid", &attributes.user.uid)] {
        if !text.is_empty() {
            user.set_at(&[field], text.clone());
        }
    }
    if !attributes.user.groups.is_empty() {
        user.set_at(&["groups"], texts(&attributes.user.groups));
    }
    for (key, values) in &attributes.user.extra {
        user.object_at_mut(&["extra"]).insert(key, texts(values));
    }
    let mut request = value!({
        "kind": (kind_value(kind)),
        "resource": (resource_value(resource)),
        "requestKind": (kind_value(attributes.gvk)),
        "requestResource": (resource_value(attributes.gvr)),
        "operation": (attributes.operation.as_str()),
        "userInfo": (user),
        "dryRun": (attributes.is_dry_run()),
        "options": (attributes.options.to_object(attributes.operation)),
    });
    for (field, text) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", attributes.name),
        ("namespace", attributes.namespace),
    ] {
        if !text.is_empty() {
            request.set_at(&[field], text);
        }
    }
    request
}

pub(crate) fn kind_value(kind: &GroupVersionKind) -> Value {
    value!({
        "group": (kind.group.clone()),
        "version": (kind.version.clone()),
        "kind": (kind.kind.clone()),
    })
}

pub(crate) fn resource_value(resource: &GroupVersionResource) -> Value {
    value!({
        "group": (resource.group.clone()),
        "version": (resource.version.clone()),
        "resource": (resource.resource.clone()),
    })
}

/// The match conditions of a webhook or policy.
#[derive(Debug)]
pub(crate) struct MatchConditions {
    conditions: Vec<Expression>,
    has_params: bool,
    uses_authorizer: bool,
    /// `failurePolicy: Ignore`: a condition that fails does not match.
    ignores_errors: bool,
}

/// What match conditions decided, and how many of them failed.
pub(crate) struct ConditionsOutcome {
    /// Err: what the client is told.
    pub(crate) matches: Result<bool, String>,
    pub(crate) errors: usize,
}

impl MatchConditions {
    pub(crate) fn read(conditions: &[Value], has_params: bool, ignores_errors: bool) -> Self {
        let env = Self::variables(has_params).env();
        let compile = |condition: &Value| {
            let text = condition.str_at(&["expression"]).trim();
            Expression::compile(&env, text, &[Type::Bool])
        };
        let conditions: Vec<Expression> = conditions.iter().map(compile).collect();
        let uses_authorizer = conditions.iter().any(Expression::uses_authorizer);
        Self { conditions, has_params, uses_authorizer, ignores_errors }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    fn variables(has_params: bool) -> Variables<'static> {
        Variables { params: has_params, authorizer: true, ..Variables::default() }
    }

    pub(crate) async fn evaluate(
        &self,
        inputs: &Inputs<'_>,
        authorizer: &Arc<dyn Authorizer>,
    ) -> ConditionsOutcome {
        inputs.evaluate(authorizer, self.uses_authorizer, |asked| self.decide(inputs, asked)).await
    }

    /// A condition that is false decides, whatever the others are.
    fn decide(
        &self,
        inputs: &Inputs<'_>,
        authorizer: Option<&AuthorizerValues>,
    ) -> ConditionsOutcome {
        let values = inputs.values(authorizer, Bound::Missing);
        let bound = Self::variables(self.has_params).bind(&values);
        let mut budget = MATCH_CONDITIONS_BUDGET;
        let mut errors: Vec<String> = Vec::new();
        let mut failed = 0;
        let mut is_false = false;
        for condition in &self.conditions {
            match condition.evaluate(&bound, None, &mut budget) {
                Ok(Ok(Val::Bool(false))) => {
                    is_false = true;
                    break;
                }
                Ok(Ok(_)) => {}
                Ok(Err(why)) => {
                    failed += 1;
                    if !errors.contains(&why) {
                        errors.push(why);
                    }
                }
                Err(OutOfBudget) => {
                    errors = vec![OutOfBudget::TEXT.to_owned()];
                    break;
                }
            }
        }
        let matches = match errors.as_slice() {
            _ if is_false => Ok(false),
            [] => Ok(true),
            _ if self.ignores_errors => Ok(false),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        };
        ConditionsOutcome { matches, errors: failed }
    }
}

/// The variables of a policy for one evaluation: each is computed when it is first read.
#[derive(Debug)]
pub(crate) struct Composition<'x> {
    variables: &'x [(Str, Expression)],
    values: Vec<OnceLock<EvalResult<'x>>>,
    bound: OnceLock<&'x [Bound<'x>]>,
    cost: AtomicU64,
    /// How many variables are being computed, each for the one before it.
    depth: AtomicUsize,
}

/// A variable that reads a variable is computed on the stack of its reader. Deeper chains fail.
pub(crate) const VARIABLE_DEPTH_MAX: usize = 100;

impl<'x> Composition<'x> {
    pub(crate) fn new(variables: &'x [(Str, Expression)]) -> Self {
        let values = variables.iter().map(|_| OnceLock::new()).collect();
        let (bound, cost, depth) = (OnceLock::new(), AtomicU64::new(0), AtomicUsize::new(0));
        Self { variables, values, bound, cost, depth }
    }

    /// What the variables are computed from: themselves, too.
    pub(crate) fn bind(&self, bound: &'x [Bound<'x>]) {
        let _ = self.bound.set(bound);
    }

    fn take_cost(&self) -> u64 {
        self.cost.swap(0, Ordering::Relaxed)
    }

    fn compute(&self, name: &str, expression: &'x Expression) -> EvalResult<'x> {
        let failed = |why: String| Err(EvalError::Failed(Str::from(why)));
        let program = match &expression.program {
            Ok(program) => program,
            Err(why) => {
                return failed(format!("composited variable {name:?} fails to compile: {why}"));
            }
        };
        let Some(bound) = self.bound.get() else {
            return failed(format!("unable to get evaluation details of variable {name:?}"));
        };
        if self.depth.fetch_add(1, Ordering::Relaxed) >= VARIABLE_DEPTH_MAX {
            self.depth.fetch_sub(1, Ordering::Relaxed);
            let why = format!("more than {VARIABLE_DEPTH_MAX} variables that read each other");
            return failed(format!("composited variable {name:?} fails to evaluate: {why}"));
        }
        let outcome = program.evaluate(bound, PER_CALL_LIMIT);
        self.depth.fetch_sub(1, Ordering::Relaxed);
        self.cost.fetch_add(outcome.cost, Ordering::Relaxed);
        match outcome.result {
            Err(EvalError::Undecided) => Err(EvalError::Undecided),
            Err(why) => failed(format!("composited variable {name:?} fails to evaluate: {why}")),
            value => value,
        }
    }
}

impl LazyFields for Composition<'_> {
    fn field<'a>(&'a self, name: &str) -> Option<EvalResult<'a>> {
        let at = self.variables.iter().rposition(|(known, _)| known == name)?;
        let (name, expression) = &self.variables[at];
        Some(self.values[at].get_or_init(|| self.compute(name, expression)).clone())
    }
}
