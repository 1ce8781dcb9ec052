//! Comprehensions: `all`, `exists`, `map`, `filter` and their like, each a fold over a list or map.

use std::sync::Arc;

use super::{Evaluator, FoldNode, LocalValue, Node, bounded, go_name, limited};
use crate::cost::{self, actual::CallCost};
use crate::ops;
use crate::value::{EvalError, EvalResult, List, NO_SUCH_OVERLOAD, Val, fail};

impl<'a> Evaluator<'a> {
    pub(super) fn fold(&mut self, fold: &'a FoldNode) -> EvalResult<'a> {
        let range = self.eval(&fold.range)?;
        self.locals[fold.slot] = LocalValue::Lazy(&fold.init);
        match range {
            Val::List(list) => {
                for index in 0..list.len() {
                    let item = list.get(index).expect("within the list");
                    let index = || Ok(Val::Int(index as i64));
                    let (var, var2) =
                        if fold.two { (index(), item) } else { (item, Ok(Val::Null)) };
                    if !self.step(fold, var, var2)? {
                        break;
                    }
                }
            }
            Val::Map(map) => {
                for key in map.keys() {
                    let value = if fold.two {
                        map.find(&key).map(Option::unwrap_or_default)
                    } else {
                        Ok(Val::Null)
                    };
                    if !self.step(fold, Ok(key), value)? {
                        break;
                    }
                }
            }
            other if fold.two => {
                let name = go_name(&other);
                return fail(format!("unsupported comprehension range type: {name}"));
            }
            other => return fail(format!("got '{}', expected iterable type", go_name(&other))),
        }
        self.eval(&fold.result)
    }

    /// One turn of a loop; false if it was not entered any more.
    pub(super) fn step(
        &mut self,
        fold: &'a FoldNode,
        var: EvalResult<'a>,
        var2: EvalResult<'a>,
    ) -> Result<bool, EvalError> {
        self.count_iterations(1)?;
        self.locals[fold.slot + 1] = LocalValue::Set(var);
        self.locals[fold.slot + 2] = LocalValue::Set(var2);
        if matches!(limited(self.eval(&fold.condition))?, Ok(Val::Bool(false))) {
            return Ok(false);
        }
        let accu = limited(self.eval(&fold.step))?;
        self.locals[fold.slot] = LocalValue::Set(accu);
        Ok(true)
    }

    /// The accumulator, taken out of its slot to be changed in place.
    pub(super) fn take_accu(&mut self, slot: usize) -> EvalResult<'a> {
        let value = match std::mem::replace(&mut self.locals[slot], LocalValue::Set(Ok(Val::Null)))
        {
            LocalValue::Set(value) => value,
            LocalValue::Lazy(init) => limited(self.eval(init))?,
        };
        self.charge(cost::IDENT)?;
        value
    }

    pub(super) fn append(&mut self, slot: usize, item: &'a Node) -> EvalResult<'a> {
        let accu = limited(self.take_accu(slot))?;
        let item = limited(self.eval(item))?;
        self.charge(cost::LIST + 1)?;
        match (accu?, item?) {
            (Val::List(List::Own(mut items)), item) => {
                Arc::make_mut(&mut items).push(item);
                bounded(Val::List(List::Own(items)))
            }
            (accu, item) => ops::add(accu, Val::list(vec![item])),
        }
    }

    pub(super) fn insert(
        &mut self,
        slot: usize,
        args: &'a [Node],
        cost: CallCost,
    ) -> EvalResult<'a> {
        let accu = limited(self.take_accu(slot))?;
        // With a key and a value the first error ends it, with a map both sides are evaluated.
        let all = args.len() == 1;
        let mut first_error = accu.as_ref().err().cloned();
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            if let (Some(first_error), false) = (&first_error, all) {
                return Err(first_error.clone());
            }
            match limited(self.eval(arg))? {
                Ok(value) => values.push(value),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        self.charge(cost.of(None, None, None))?;
        if let Some(first_error) = first_error {
            return Err(first_error);
        }
        let Val::Map(map) = accu? else { return Err(NO_SUCH_OVERLOAD) };
        let result = match values.as_slice() {
            [key, value] => ops::insert(map, key, value.clone()),
            [Val::Map(entries)] => entries.keys().iter().try_fold(map, |map, key| {
                let value = entries.find(key)?.unwrap_or_default();
                ops::insert(map, key, value)
            }),
            _ => Err(NO_SUCH_OVERLOAD),
        };
        bounded(Val::Map(result?))
    }
}
