//! What an expression can refer to, and compiling one.

use std::sync::Arc;

use meta::Str;

use crate::check::{Checked, Reference, check};
use crate::cost::{CostEstimate, estimate};
use crate::decl::{Decl, DeclKind};
use crate::escape::RESERVED;
use crate::eval::Program;
use crate::functions::{Function, MUTATIONS, STANDARD};
use crate::parse::parse;
use crate::plan::plan;
use crate::source::Issues;
use crate::types::{ObjectType, Type};
use crate::validate::validate;

/// The variables of an expression, in the order in which [`Program::evaluate`] gets their values.
/// The functions are always the same: all of Kubernetes 1.36.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: Vec<Variable>,
    /// What sizes are estimated from.
    root: Option<Root>,
    mutations: bool,
    bindings: bool,
}

/// An operation of a JSON patch.
pub(crate) const PATCH: &str = "JSONPatch";

/// Where paths through the data begin.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) decl: Arc<Decl>,
    /// The only variable that leads here; none if every path does.
    pub(crate) variable: Option<Str>,
}

#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: Str,
    pub(crate) ty: Type,
}

/// Why an expression does not compile.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// It is wrong as a text or in its types.
    #[error("{0}")]
    Invalid(Box<Issues>),
    /// It is well-formed, but a constant in it can never be evaluated (`int('x')`).
    #[error("{message}")]
    Unusable { output: Type, estimate: CostEstimate, message: String },
}

impl Env {
    pub fn new() -> Self {
        Self::default()
    }

    /// A variable of declared data. The first one is what the cost estimate takes sizes from.
    #[must_use]
    pub fn data(self, name: &str, decl: &Arc<Decl>) -> Self {
        let ty = Type::of(decl, "selfType");
        self.with(name, ty, decl)
    }

    /// A variable that is an optional of declared data.
    #[must_use]
    pub fn optional_data(self, name: &str, decl: &Arc<Decl>) -> Self {
        let ty = Type::optional(Type::of(decl, "selfType"));
        self.with(name, ty, decl)
    }

    /// A variable of declared data whose type has a name of its own. Nothing else has a known size.
    #[must_use]
    pub fn named_data(mut self, name: &str, type_name: &str, decl: &Arc<Decl>) -> Self {
        let variable = Some(Str::new(name));
        self.root = Some(Root { decl: decl.clone(), variable });
        self.variable(name, Type::of(decl, type_name))
    }

    /// A variable of a type, about whose size nothing is known.
    #[must_use]
    pub fn variable(mut self, name: &str, ty: Type) -> Self {
        self.variables.push(Variable { name: Str::new(name), ty });
        self
    }

    /// Adds the functions and the types that only the mutations of admission policies have.
    #[must_use]
    pub fn for_mutations(self) -> Self {
        Self { mutations: true, ..self }
    }

    /// Adds `cel.bind(name, value, expression)`, which only the selectors of devices have.
    #[must_use]
    pub fn with_bindings(self) -> Self {
        Self { bindings: true, ..self }
    }

    fn with(mut self, name: &str, ty: Type, decl: &Arc<Decl>) -> Self {
        self.root.get_or_insert_with(|| Root { decl: decl.clone(), variable: None });
        self.variables.push(Variable { name: Str::new(name), ty });
        self
    }

    /// Parses, checks, estimates and plans an expression.
    pub fn compile(&self, expression: &str) -> Result<Program, CompileError> {
        let checked =
            self.check(expression).map_err(|issues| CompileError::Invalid(issues.into()))?;
        let cost = self.estimate(&checked);
        let uses = self.uses(&checked);
        let mut selects = Vec::new();
        checked.parsed.expr.selections(&mut selects);
        let output = checked.type_of(&checked.parsed.expr).clone();
        let (root, locals) = match plan(&checked, self) {
            Ok(planned) => planned,
            Err(message) => {
                return Err(CompileError::Unusable { output, estimate: cost, message });
            }
        };
        Ok(Program { root, locals, output, cost, uses, selects })
    }

    fn check(&self, expression: &str) -> Result<Checked, Issues> {
        let (parsed, source) = parse(expression, self.bindings)?;
        let checked = check(parsed, self, Issues::new(source.clone()))?;
        let mut issues = Issues::new(source);
        validate(&checked, &mut issues);
        if issues.is_empty() { Ok(checked) } else { Err(issues) }
    }

    fn estimate(&self, checked: &Checked) -> CostEstimate {
        estimate(checked, self.root.as_ref())
    }

    fn uses(&self, checked: &Checked) -> Vec<Str> {
        let mut uses = Vec::new();
        for reference in checked.references.iter().flatten() {
            if let Reference::Name(name) = reference
                && self.slot(name).is_some()
                && !uses.contains(name)
            {
                uses.push(name.clone());
            }
        }
        uses
    }

    pub(crate) fn variable_named(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }

    pub(crate) fn slot(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|variable| variable.name == name)
    }

    /// The types of objects that expressions can make: `Object` and, by the path of the field that
    /// they are for, its parts (`Object.spec.containers`); and the operations of a JSON patch.
    pub(crate) fn made(&self, name: &str) -> Option<Type> {
        let known = matches!(name, "Object" | PATCH) || name.starts_with("Object.");
        (self.mutations && known)
            .then(|| Type::Object(ObjectType { name: Str::new(name), decl: None }))
    }

    pub(crate) fn function(&self, name: &str) -> Option<&'static Function> {
        STANDARD.get(name).or_else(|| MUTATIONS.get(name).filter(|_| self.mutations))
    }
}

/// The type of a field of a declared object.
pub(crate) fn field_type(object: &str, decl: &Arc<Decl>, field: &str) -> Option<Type> {
    let DeclKind::Object(properties) = &decl.kind else { return None };
    // `self.namespace` may be written instead of `self.__namespace__`.
    let found = properties.field(field).or_else(|| {
        RESERVED
            .binary_search(&field)
            .is_ok()
            .then(|| properties.field(&format!("__{field}__")))
            .flatten()
    })?;
    let name = found.name.as_deref().unwrap_or(field);
    Some(Type::of(&found.decl, &format!("{object}.{name}")))
}
