//! `x-kubernetes-validations`: rules in CEL, compiled once per schema.

mod check;
mod run;

use std::sync::Arc;

use cel::{CompileError, Decl, DeclKind, Env, Program, Type};
use meta::{Str, Value, json};

use super::{
    cel_decl::declare,
    node::{StructuralNode, ValidationRule},
};

pub use self::check::RuleOptions;
pub(super) use self::{check::check, run::Rules};

/// A compiled rule. A rule that does not compile keeps its error.
#[derive(Debug)]
struct Compiled {
    rule: ValidationRule,
    /// None: the rule is empty.
    program: Option<Result<Program, String>>,
    message: Option<Result<Program, String>>,
    uses_old_self: bool,
    /// The `fieldPath` of errors, relative to the rule's node.
    field_path: Option<String>,
}

impl Compiled {
    fn new(rule: &ValidationRule, node: &StructuralNode, decl: &Arc<Decl>) -> Self {
        let env = Env::new().data("self", decl);
        let env = match rule.optional_old_self {
            Some(true) => env.optional_data("oldSelf", decl),
            _ => env.data("oldSelf", decl),
        };
        let program = (!rule.rule.trim().is_empty()).then(|| {
            compile(&env, &rule.rule, &Type::Bool, "", "cel expression must evaluate to a bool")
        });
        let usable = matches!(program, Some(Ok(_)));
        let message = (usable && !rule.message_expression.is_empty()).then(|| {
            let why = "messageExpression must evaluate to a string";
            compile(&env, &rule.message_expression, &Type::String, "messageExpression ", why)
        });
        let field_path = Some(&rule.field_path).filter(|path| !path.is_empty());
        let field_path = field_path.and_then(|path| node.find(path, true).ok());
        Self {
            uses_old_self: matches!(&program, Some(Ok(program)) if program.uses("oldSelf")),
            program,
            message,
            field_path: field_path.map(|(path, _)| path.to_string()),
            rule: rule.clone(),
        }
    }

    /// The text of the rule in messages.
    fn shown(&self) -> &str {
        if self.rule.message.is_empty() { self.rule.rule.trim() } else { self.rule.message.trim() }
    }
}

fn compile(
    env: &Env,
    expression: &str,
    output: &Type,
    what: &str,
    wrong_type: &str,
) -> Result<Program, String> {
    match env.compile(expression) {
        Ok(program) if program.output_type() == output => Ok(program),
        Err(CompileError::Invalid(issues)) => Err(format!("{what}compilation failed: {issues}")),
        Err(CompileError::Unusable { output: found, message, .. }) if found == *output => {
            let what = if what.is_empty() { "program " } else { what };
            Err(format!("{what}instantiation failed: {message}"))
        }
        Ok(_) | Err(CompileError::Unusable { .. }) => Err(wrong_type.to_owned()),
    }
}

/// The declaration of a child of a declared node. Children whose names cannot be used in
/// expressions, or whose parents are not declared, get a declaration of their own.
fn child_decl(
    parent: Option<&Arc<Decl>>,
    name: Option<&str>,
    child: &StructuralNode,
) -> Option<Arc<Decl>> {
    let known = parent.and_then(|parent| match (&parent.kind, name) {
        (DeclKind::List { items, .. }, None) => Some(items.clone()),
        (DeclKind::Map { values, .. }, None) => Some(values.clone()),
        (DeclKind::Object(object), Some(name)) => {
            let fields = object.fields();
            let at = fields.binary_search_by(|field| field.property.as_str().cmp(name)).ok()?;
            Some(fields[at].decl.clone())
        }
        _ => None,
    });
    known.or_else(|| declare(child, child.embedded_resource))
}

impl ValidationRule {
    /// Reads one item of `x-kubernetes-validations`.
    pub fn read(rule: &Value) -> Self {
        let text = |name: &str| Str::from(rule.str_at(&[name]));
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool),
        }
    }

    /// As kube-apiserver prints it: with Go's names for the fields.
    pub fn show(&self) -> String {
        let text = |text: &Str| json::to_string(&Value::String(text.clone()));
        let reason = if self.reason.is_empty() { "null".to_owned() } else { text(&self.reason) };
        let optional = self.optional_old_self.map_or("null".to_owned(), |flag| flag.to_string());
        format!(
            "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\
             \"FieldPath\":{},\"OptionalOldSelf\":{optional}}}",
            text(&self.rule),
            text(&self.message),
            text(&self.message_expression),
            text(&self.field_path),
        )
    }
}
