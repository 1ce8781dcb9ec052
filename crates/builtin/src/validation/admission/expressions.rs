//! The expressions of webhooks and policies: whether they compile, and to what.

use cel::{
    CompileError, Env, Type,
    admission::{ComposedVariables, Variables},
};
use meta::{FieldErrors, field::FieldReason};

use crate::validation::cursor::Field;

/// What the expressions of one configuration can refer to.
#[derive(Clone, Default)]
pub(crate) struct ExpressionScope {
    pub(crate) has_params: bool,
    /// The variables of a policy so far, with what they evaluate to; None: there are none at all.
    variables: Option<ComposedVariables>,
}

impl ExpressionScope {
    pub(crate) fn new(has_params: bool, has_variables: bool) -> Self {
        Self { has_params, variables: has_variables.then(ComposedVariables::default) }
    }

    /// A variable, which the expressions after it can use.
    pub(crate) fn declare(&mut self, variable: &Field<'_>, errors: &mut FieldErrors) {
        let expression = variable.get("expression");
        let ty = compile(&self.env(true), &expression, expression.str(), &[], errors);
        if let Some(variables) = &mut self.variables {
            variables.declare(variable.str_at(&["name"]), ty.as_ref());
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
        Variables {
            params: self.has_params,
            authorizer: has_authorizer,
            composed: self.variables.as_ref(),
            ..Variables::default()
        }
        .env()
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
