//! Quantities: `quantity('1Gi').isGreaterThan(quantity('500Mi'))`.

use std::cmp::Ordering;

use meta::quantity::{Format, Quantity};

use super::standard::text;
use crate::functions::Functions;
use crate::kubernetes_value::KubernetesValue;
use crate::types::Type;
use crate::value::{EvalError, EvalResult, NO_SUCH_OVERLOAD, Val, fail};

pub(super) fn declare(f: &mut Functions) {
    use Type::{Bool, Double, Int, String};
    let ty = Type::object("kubernetes.Quantity");
    let one = [ty.clone()];
    let two = [ty.clone(), ty.clone()];
    let with_int = [ty.clone(), Int];
    f.global(
        "quantity",
        "string_to_quantity",
        &[String],
        ty.clone(),
        |args| match Quantity::parse(text(args)?) {
            Ok(quantity) => Ok(Val::kubernetes(KubernetesValue::Quantity(quantity))),
            Err(error) => fail(error.to_string()),
        },
    );
    f.global("isQuantity", "is_quantity_string", &[String], Bool, |args| {
        Ok(Val::Bool(Quantity::parse(text(args)?).is_ok()))
    });
    // Compat: upstream declares it as a function, not as a member.
    f.global("sign", "quantity_sign", &one, Int, |args| {
        Ok(Val::Int(quantity(args, 0)?.sign() as i64))
    });
    f.member("isGreaterThan", "quantity_is_greater_than", &two, Bool, |args| {
        Ok(Val::Bool(order(args)? == Ordering::Greater))
    });
    f.member("isLessThan", "quantity_is_less_than", &two, Bool, |args| {
        Ok(Val::Bool(order(args)? == Ordering::Less))
    });
    f.member("compareTo", "quantity_compare_to", &two, Int, |args| {
        Ok(Val::Int(order(args)? as i64))
    });
    f.member("asApproximateFloat", "quantity_get_float", &one, Double, |args| {
        Ok(Val::Double(quantity(args, 0)?.as_f64()))
    });
    f.member("asInteger", "quantity_get_int", &one, Int, |args| {
        match quantity(args, 0)?.as_i64() {
            Some(int) => Ok(Val::Int(int)),
            None => fail("cannot convert value to integer"),
        }
    });
    f.member("isInteger", "quantity_is_integer", &one, Bool, |args| {
        Ok(Val::Bool(quantity(args, 0)?.as_i64().is_some()))
    });
    f.member("add", "quantity_add", &two, ty.clone(), |args| change(args, Quantity::add));
    f.member("add", "quantity_add_int", &with_int, ty.clone(), |args| change(args, Quantity::add));
    f.member("sub", "quantity_sub", &two, ty.clone(), |args| change(args, Quantity::sub));
    f.member("sub", "quantity_sub_int", &with_int, ty, |args| change(args, Quantity::sub));
}

fn quantity<'v>(args: &'v [Val<'_>], at: usize) -> Result<&'v Quantity, EvalError> {
    match args.get(at) {
        Some(Val::Kubernetes(value)) => match &**value {
            KubernetesValue::Quantity(quantity) => Ok(quantity),
            _ => Err(NO_SUCH_OVERLOAD),
        },
        _ => Err(NO_SUCH_OVERLOAD),
    }
}

fn order(args: &[Val<'_>]) -> Result<Ordering, EvalError> {
    Ok(quantity(args, 0)?.cmp(quantity(args, 1)?))
}

fn change<'a>(args: &[Val<'a>], change: fn(&mut Quantity, &Quantity)) -> EvalResult<'a> {
    let mut result = quantity(args, 0)?.clone();
    match &args[1] {
        Val::Int(int) => change(&mut result, &Quantity::new(*int, Format::DecimalExponent)),
        _ => change(&mut result, quantity(args, 1)?),
    }
    Ok(Val::kubernetes(KubernetesValue::Quantity(result)))
}
