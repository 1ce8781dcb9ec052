//! Evaluation: a walk over the planned tree that counts costs.
//!
//! Costs are charged where cel-go charges them: one for a name, one for each step to a field or an
//! element, calls by `cost::actual`, and nothing for what was folded into a constant.

mod attribute;
mod fold;
mod node;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use meta::{Str, Value, cancel::Steps};

use crate::cost::actual::CallCost;
use crate::cost::{self, CostEstimate};
use crate::decl::Decl;
use crate::functions::{Function, Overload};
use crate::go_text::show;
use crate::ops;
use crate::types::Type;
use crate::value::{
    Entries, EvalError, EvalResult, Key, Map, NO_SUCH_OVERLOAD, TEXT_BYTES_MAX, Text, Val,
    WEIGHT_MAX, fail,
};

pub(crate) use self::node::{
    Attribute, Base, Call, FoldNode, MapEntry, Node, Operator, Qualifier, QualifierKind,
};

/// A compiled expression. It holds no data and can be shared.
#[derive(Debug)]
pub struct Program {
    pub(crate) root: Node,
    pub(crate) locals: usize,
    pub(crate) output: Type,
    pub(crate) cost: CostEstimate,
    pub(crate) uses: Vec<Str>,
    /// Fields that are read from a name, as in `name.field`.
    pub(crate) selects: Vec<(Str, Str)>,
}

/// The value of a variable, in the order of [`Env`](crate::Env)'s declarations.
#[derive(Clone, Debug)]
pub enum Bound<'a> {
    /// Data and its declaration.
    Data(&'a Value, &'a Decl),
    /// For a variable declared as an optional of data.
    Optional(Option<(&'a Value, &'a Decl)>),
    Val(Val<'a>),
    /// An object whose fields are computed when an expression reads them.
    Lazy(&'a dyn LazyFields),
    /// Unknown; an expression that reads it fails.
    Missing,
}

/// The fields of a [`Bound::Lazy`] object: the variables of an admission policy.
pub trait LazyFields: std::fmt::Debug + Sync {
    /// Computed on the first call. None: there is no such field.
    fn field<'a>(&'a self, name: &str) -> Option<EvalResult<'a>>;
}

/// The result of an evaluation, and its cost.
#[derive(Debug)]
pub struct Outcome<'a> {
    pub result: EvalResult<'a>,
    pub cost: u64,
}

impl Program {
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// What the expression can cost, by the declared sizes.
    pub fn estimate(&self) -> CostEstimate {
        self.cost
    }

    /// Does the expression mention this variable?
    pub fn uses(&self, variable: &str) -> bool {
        self.uses.iter().any(|used| used == variable)
    }

    /// Does the expression read this field of this variable: `variable.field`, `has(variable.field)` or
    /// `variable.?field`?
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        self.selects.iter().any(|(name, selected)| name == variable && selected == field)
    }

    /// Runs the expression. It is cancelled when it costs more than `limit`.
    pub fn evaluate<'a>(&'a self, variables: &'a [Bound<'a>], limit: u64) -> Outcome<'a> {
        let locals = vec![LocalValue::Set(Ok(Val::Null)); self.locals];
        let steps = Steps::default();
        let mut evaluator = Evaluator { variables, locals, cost: 0, limit, iterations: 0, steps };
        let result = evaluator.eval(&self.root);
        Outcome { result, cost: evaluator.cost }
    }
}

/// A local variable. An accumulator's initial value is evaluated on first use.
#[derive(Clone)]
enum LocalValue<'a> {
    Set(EvalResult<'a>),
    Lazy(&'a Node),
}

struct Evaluator<'a> {
    variables: &'a [Bound<'a>],
    locals: Vec<LocalValue<'a>>,
    cost: u64,
    limit: u64,
    iterations: u64,
    /// A cancelled request ends its expressions too.
    steps: Steps,
}

/// How many elements an evaluation may look at. Some loops and comparisons cost nothing or little,
/// so that costs alone would not end them; kube-apiserver ends them with the request.
const ITERATIONS_MAX: u64 = 20_000_000;

impl<'a> Evaluator<'a> {
    fn count_iterations(&mut self, elements: u64) -> Result<(), EvalError> {
        self.iterations = self.iterations.saturating_add(elements);
        if self.iterations > ITERATIONS_MAX { Err(EvalError::CostLimit) } else { Ok(()) }
    }

    fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.steps.step();
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(EvalError::CostLimit) } else { Ok(()) }
    }

    fn eval(&mut self, node: &'a Node) -> EvalResult<'a> {
        match node {
            Node::Const(value) => Ok(borrow(value)),
            Node::Attribute(attribute) => {
                if let Some(value) = self.look_up(attribute) {
                    self.charge(attribute.qualifiers.len() as u64 + cost::IDENT)?;
                    return Ok(value);
                }
                let value = limited(self.resolve(attribute))?;
                if !matches!(attribute.base, Base::Conditional(_)) {
                    self.charge(cost::IDENT)?;
                }
                value
            }
            Node::Test(attribute) => {
                if let Some(value) = self.look_up(attribute) {
                    self.charge(attribute.qualifiers.len() as u64)?;
                    return Ok(value);
                }
                match self.resolve(attribute)? {
                    Val::Optional(value) => Ok(Val::Bool(value.is_some())),
                    value => Ok(value),
                }
            }
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Not(operand) => {
                let value = limited(self.eval(operand))?;
                self.charge(1)?;
                match value? {
                    Val::Bool(value) => Ok(Val::Bool(!value)),
                    _ => Err(NO_SUCH_OVERLOAD),
                }
            }
            Node::NotStrictlyFalse(operand) => {
                let value = limited(self.eval(operand))?;
                self.charge(1)?;
                Ok(Val::Bool(!matches!(value, Ok(Val::Bool(false)))))
            }
            Node::Operator { operator, sides, cost } => self.operator(*operator, sides, *cost),
            Node::InConstant(sides) => {
                let value = self.eval(&sides[0])?;
                let Node::Const(list) = &sides[1] else { unreachable!("planned as a constant") };
                Ok(Val::Bool(ops::contains(&value, list)?))
            }
            Node::OptionalOr { or, unwrap } => match self.eval(&or[0])? {
                Val::Optional(Some(value)) if *unwrap => Ok((*value).clone()),
                Val::Optional(None) => self.eval(&or[1]),
                other => Ok(other),
            },
            Node::Call(call) => self.call(call),
            Node::List { items, optional } => self.list(items, optional),
            Node::Map(entries) => self.map(entries, cost::MAP),
            Node::Object(name, fields) => match self.map(fields, cost::STRUCT)? {
                Val::Map(Map::Own(entries)) => {
                    let mut entries = Arc::unwrap_or_clone(entries);
                    entries.made = Some(name.clone());
                    Ok(Val::Map(Map::Own(Arc::new(entries))))
                }
                other => Ok(other),
            },
            Node::Fold(fold) => self.fold(fold),
            Node::Append { slot, item } => self.append(*slot, item),
            Node::Insert { slot, args, cost } => self.insert(*slot, args, *cost),
        }
    }

    /// `||` (decided by true) and `&&` (decided by false): the side that decides makes up for an
    /// error on the other.
    fn logic(&mut self, terms: &'a [Node; 2], decides: bool) -> EvalResult<'a> {
        let mut first_error = None;
        for term in terms {
            match limited(self.eval(term))? {
                Ok(Val::Bool(value)) if value == decides => return Ok(Val::Bool(decides)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => first_error = first_error.or(Some(NO_SUCH_OVERLOAD)),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(Val::Bool(!decides)), Err)
    }

    fn operator(
        &mut self,
        operator: Operator,
        sides: &'a [Node; 2],
        cost: CallCost,
    ) -> EvalResult<'a> {
        let left = limited(self.eval(&sides[0]))?;
        let right = limited(self.eval(&sides[1]))?;
        let cost = match cost {
            CallCost::One => 1,
            cost => cost.of(left.as_ref().ok(), right.as_ref().ok(), None),
        };
        let result = match (left, right) {
            (Ok(left), Ok(right)) => {
                if operator != Operator::Add {
                    self.count_iterations(left.weight().saturating_add(right.weight()))?;
                }
                apply(operator, left, right).and_then(bounded)
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        self.charge(cost)?;
        result
    }

    fn call(&mut self, call: &'a Call) -> EvalResult<'a> {
        // Most calls have one or two arguments, which need no heap allocation.
        match call.args.as_slice() {
            [arg] => match limited(self.eval(arg))? {
                Ok(value) => self.apply(call, &[value]),
                Err(error) => {
                    self.charge(call.cost.of(None, None, None))?;
                    Err(error)
                }
            },
            [first, second] => {
                let first = limited(self.eval(first))?;
                if let (Err(error), false) = (&first, call.all) {
                    return Err(error.clone());
                }
                match (first, limited(self.eval(second))?) {
                    (Ok(first), Ok(second)) => self.apply(call, &[first, second]),
                    (first, second) => {
                        let (first, second) = (first.as_ref(), second.as_ref());
                        self.charge(call.cost.of(first.ok(), second.ok(), None))?;
                        Err(first.err().or(second.err()).expect("one of them failed").clone())
                    }
                }
            }
            args => {
                let mut values = Vec::with_capacity(args.len());
                for (at, arg) in args.iter().enumerate() {
                    match limited(self.eval(arg))? {
                        Ok(value) => values.push(value),
                        Err(error) => {
                            // Only a call whose arguments were all evaluated is paid for.
                            if at + 1 == args.len() {
                                let cost = call.cost.of(values.first(), values.get(1), None);
                                self.charge(cost)?;
                            }
                            return Err(error);
                        }
                    }
                }
                self.apply(call, &values)
            }
        }
    }

    fn apply(&mut self, call: &Call, args: &[Val<'a>]) -> EvalResult<'a> {
        // What looks at one element or none does not depend on how many there are.
        if !matches!(call.function.name, "size" | "first" | "last" | "optional.of" | "dyn" | "type")
        {
            let weight = args.iter().fold(0, |sum: u64, arg| sum.saturating_add(arg.weight()));
            self.count_iterations(weight)?;
        }
        let result = limited(call.apply(args).and_then(bounded))?;
        let cost = match call.cost {
            CallCost::One => 1,
            cost => cost.of(args.first(), args.get(1), result.as_ref().ok()),
        };
        self.charge(cost)?;
        result
    }

    fn list(&mut self, items: &'a [Node], optional: &'a [bool]) -> EvalResult<'a> {
        let mut values = Vec::with_capacity(items.len());
        let mut first_error = None;
        for (item, optional) in items.iter().zip(optional) {
            match (limited(self.eval(item))?, optional) {
                (Err(error), _) => {
                    first_error = Some(error);
                    break;
                }
                (Ok(value), false) => values.push(value),
                (Ok(Val::Optional(Some(value))), true) => values.push((*value).clone()),
                (Ok(Val::Optional(None)), true) => {}
                (Ok(value), true) => {
                    let value = show(&value);
                    first_error = Some(EvalError::Failed(Str::from(format!(
                        "cannot initialize optional list element from non-optional value {value}"
                    ))));
                    break;
                }
            }
        }
        self.charge(cost::LIST)?;
        first_error.map_or_else(|| bounded(Val::list(values)), Err)
    }

    fn map(&mut self, entries: &'a [MapEntry], cost: u64) -> EvalResult<'a> {
        let mut map = BTreeMap::new();
        let mut first_error = None;
        for entry in entries {
            if let Err(error) = limited(self.entry(entry, &mut map))? {
                first_error = Some(error);
                break;
            }
        }
        self.charge(cost)?;
        first_error.map_or_else(|| bounded(Val::Map(Map::Own(Arc::new(Entries::new(map))))), Err)
    }

    fn entry(
        &mut self,
        entry: &'a MapEntry,
        map: &mut BTreeMap<Key<'a>, Val<'a>>,
    ) -> Result<(), EvalError> {
        let key = self.eval(&entry.key)?;
        let mut value = self.eval(&entry.value)?;
        let name = Key::of(&key)?;
        if entry.optional {
            value = match value {
                Val::Optional(Some(value)) => (*value).clone(),
                Val::Optional(None) => {
                    map.remove(&name);
                    return Ok(());
                }
                other => {
                    return fail(format!(
                        "cannot initialize optional entry '{}' from non-optional value {}",
                        show(&key),
                        show(&other)
                    ));
                }
            };
        }
        map.insert(name, value);
        Ok(())
    }
}

/// A value that is not too large to keep.
fn bounded(value: Val<'_>) -> EvalResult<'_> {
    let fits = match &value {
        Val::String(text) => text.as_str().len() <= TEXT_BYTES_MAX,
        value => value.weight() <= WEIGHT_MAX,
    };
    if fits { Ok(value) } else { Err(EvalError::CostLimit) }
}

/// Lets through what nothing absorbs, and hands any other outcome on.
fn limited<T>(result: Result<T, EvalError>) -> Result<Result<T, EvalError>, EvalError> {
    match result {
        Err(fault @ (EvalError::CostLimit | EvalError::Undecided)) => Err(fault),
        other => Ok(other),
    }
}

/// A constant without touching its reference count.
fn borrow<'a>(value: &'a Val<'static>) -> Val<'a> {
    match value {
        Val::String(text) => Val::String(Text::Ref(text.as_str())),
        other => other.clone(),
    }
}

fn apply<'a>(operator: Operator, left: Val<'a>, right: Val<'a>) -> EvalResult<'a> {
    let order = |function: &str, fits: fn(Ordering) -> bool| {
        ops::compare(function, &left, &right).map(|order| Val::Bool(fits(order)))
    };
    match operator {
        Operator::Equal => ops::equal(&left, &right).map(Val::Bool),
        // Compat: what cannot be compared is not equal.
        Operator::NotEqual => Ok(Val::Bool(ops::equal(&left, &right) != Ok(true))),
        Operator::Less => order("_<_", Ordering::is_lt),
        Operator::LessEqual => order("_<=_", Ordering::is_le),
        Operator::Greater => order("_>_", Ordering::is_gt),
        Operator::GreaterEqual => order("_>=_", Ordering::is_ge),
        Operator::Add => ops::add(left, right),
        Operator::Subtract => ops::subtract(&left, &right),
        Operator::Multiply => ops::multiply(&left, &right),
        Operator::Divide => ops::divide(&left, &right),
        Operator::Modulo => ops::modulo(&left, &right),
        Operator::In => ops::contains(&left, &right).map(Val::Bool),
    }
}

impl Call {
    pub(crate) fn apply<'a>(&self, args: &[Val<'a>]) -> EvalResult<'a> {
        if let Some(regex) = &self.regex {
            return crate::library::regex::with_pattern(self.function.name, regex, args);
        }
        if let Some(single) = self.function.single {
            return single(args);
        }
        let fits = |overload: &Overload| {
            overload.args.len() == args.len()
                && overload.args.iter().zip(args).all(|(ty, arg)| arg.is_a(ty))
        };
        let overload = match self.overload {
            Some(overload) if !self.guard || fits(overload) => Some(overload),
            Some(_) => None,
            None => self.function.overloads.iter().find(|overload| fits(overload)),
        };
        match overload.and_then(|overload| overload.op) {
            Some(op) => op(args),
            None => {
                let types: Vec<Type> = args.iter().map(Val::type_of).collect();
                let types: Vec<&str> = types.iter().map(Type::name).collect();
                let name = self.function.name;
                ops::no_overload(&format!("{name}({})", types.join(", ")))
            }
        }
    }
}

/// How Go names the type of a value that is no list and no map.
fn go_name(value: &Val<'_>) -> &'static str {
    match value {
        Val::Null => "types.Null",
        Val::Bool(_) => "types.Bool",
        Val::Int(_) => "types.Int",
        Val::Uint(_) => "types.Uint",
        Val::Double(_) => "types.Double",
        Val::String(_) => "types.String",
        Val::Bytes(_) => "types.Bytes",
        Val::Duration(_) => "types.Duration",
        Val::Timestamp(_) => "types.Timestamp",
        Val::Optional(_) => "*types.Optional",
        Val::Type(_) => "*types.Type",
        Val::Kubernetes(_) => "cel.Kubernetes",
        Val::Preserved(_) => "*common.unknownPreserved",
        Val::List(_) | Val::Map(_) => "traits.Container",
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl std::fmt::Debug for Overload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}
