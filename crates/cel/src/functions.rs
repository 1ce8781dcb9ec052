//! The functions an expression can call: names, overloads, implementations.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::library;
use crate::types::Type;
use crate::value::{EvalResult, Val};

/// The implementation of an overload. The arguments are of the declared types.
pub(crate) type FunctionOp = for<'a> fn(&[Val<'a>]) -> EvalResult<'a>;

pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
    /// One implementation for all overloads, which looks at the values itself.
    pub(crate) single: Option<FunctionOp>,
}

pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// How many type parameters the signature has.
    pub(crate) params: u32,
    pub(crate) op: Option<FunctionOp>,
}

/// All functions, by name; a library adds to it.
#[derive(Default)]
pub(crate) struct Functions {
    by_name: HashMap<&'static str, Function>,
}

impl Functions {
    pub(crate) fn get(&self, name: &str) -> Option<&Function> {
        self.by_name.get(name)
    }

    fn function(&mut self, name: &'static str) -> &mut Function {
        self.by_name.entry(name).or_insert_with(|| Function {
            name,
            overloads: Vec::new(),
            single: None,
        })
    }

    /// Declares `name(args) -> result`.
    pub(crate) fn global(
        &mut self,
        name: &'static str,
        id: &'static str,
        args: &[Type],
        result: Type,
        op: FunctionOp,
    ) {
        self.add(name, id, false, args, result, Some(op));
    }

    /// Declares `args[0].name(args[1..]) -> result`.
    pub(crate) fn member(
        &mut self,
        name: &'static str,
        id: &'static str,
        args: &[Type],
        result: Type,
        op: FunctionOp,
    ) {
        self.add(name, id, true, args, result, Some(op));
    }

    /// An overload of a function with a single implementation, or of one the planner knows.
    pub(crate) fn signature(
        &mut self,
        name: &'static str,
        id: &'static str,
        member: bool,
        args: &[Type],
        result: Type,
    ) {
        self.add(name, id, member, args, result, None);
    }

    pub(crate) fn single(&mut self, name: &'static str, op: FunctionOp) {
        self.function(name).single = Some(op);
    }

    fn add(
        &mut self,
        name: &'static str,
        id: &'static str,
        member: bool,
        args: &[Type],
        result: Type,
        op: Option<FunctionOp>,
    ) {
        let params = args.iter().chain([&result]).map(params_of).max().unwrap_or_default();
        let overload = Overload { id, member, args: args.to_vec(), result, params, op };
        self.function(name).overloads.push(overload);
    }
}

/// One more than the highest parameter of a declared type.
fn params_of(ty: &Type) -> u32 {
    match ty {
        Type::Param(param) => param + 1,
        Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => params_of(of),
        Type::Map(of) => params_of(&of.0).max(params_of(&of.1)),
        _ => 0,
    }
}

/// Everything Kubernetes 1.36 offers to every expression.
pub(crate) static STANDARD: LazyLock<Functions> = LazyLock::new(|| {
    let mut functions = Functions::default();
    library::declare(&mut functions);
    functions
});

/// Functions that only mutations of admission policies have.
pub(crate) static MUTATIONS: LazyLock<Functions> = LazyLock::new(|| {
    let mut functions = Functions::default();
    library::declare_for_mutations(&mut functions);
    functions
});
