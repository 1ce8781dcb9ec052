//! Which devices will do: an expression over one device, checked and costed when it is written.

use std::sync::{Arc, LazyLock};

use cel::{CompileError, Decl, Env, PER_CALL_LIMIT, Type};
use meta::{FieldErrors, field::FieldReason};

use crate::validation::cursor::Field;

/// A `cel` selector.
pub(crate) fn validate(selector: &Field<'_>, errors: &mut FieldErrors) {
    let expression = selector.get("expression");
    if expression.len() > EXPRESSION_BYTES_MAX {
        return errors.too_long(expression.path(), EXPRESSION_BYTES_MAX);
    }
    let (output, cost, unusable) = match ENV.compile(expression.str()) {
        Ok(program) => (program.output_type().clone(), program.estimate().max, None),
        Err(CompileError::Unusable { output, estimate, message }) => {
            (output, estimate.max, Some(message))
        }
        Err(error @ CompileError::Invalid(_)) => {
            let why = format!("compilation failed: {error}");
            return expression.invalid_value(errors, expression.str(), &why);
        }
    };
    // What an attribute is, only the device knows.
    if !matches!(output, Type::Bool | Type::Any) {
        let why = format!("must evaluate to bool or the unknown type, not {output}");
        return expression.invalid_value(errors, expression.str(), &why);
    }
    if let Some(message) = unusable {
        let why = format!("Internal error: program instantiation failed: {message}");
        return errors.push(FieldReason::Internal, expression.path(), why);
    }
    if cost > PER_CALL_LIMIT {
        expression.forbidden(errors, "too complex, exceeds cost limit");
    }
}

const EXPRESSION_BYTES_MAX: usize = 10 * 1024;

/// The one variable is `device`. Its sizes are those that the rules for slices allow.
static ENV: LazyLock<Env> = LazyLock::new(|| {
    const ATTRIBUTES_MAX: u64 = 32;
    const DOMAIN_MAX: u64 = 63;
    const ID_MAX: u64 = 32;
    let by_domain = |values: Decl| {
        let own = Decl::map_with_keys(Arc::new(values), ID_MAX, ATTRIBUTES_MAX);
        Arc::new(Decl::map_with_keys(Arc::new(own), DOMAIN_MAX, ATTRIBUTES_MAX))
    };
    let driver = Decl::string(None).with_max_elements(DOMAIN_MAX);
    let device = Decl::object([
        ("driver", Arc::new(driver), true),
        ("allowMultipleAllocations", Arc::new(Decl::bool().with_max_elements(1)), true),
        ("attributes", by_domain(Decl::any(64)), true),
        ("capacity", by_domain(Decl::quantity()), true),
    ]);
    Env::new().with_bindings().named_data("device", "kubernetes.DRADevice", &Arc::new(device))
});

#[cfg(test)]
mod tests {
    use super::*;

    /// Expressions, with what they cost at most by kube-apiserver's own account.
    #[test]
    fn selectors_cost_what_they_cost_elsewhere() {
        let cases = [
            (r#"device.driver == """#, 2),
            (r#"device.driver == "dra.example.com""#, 4),
            (r#"device.attributes["dra.example.com"].name"#, 4),
            (r#"device.attributes["dra.example.com"]["name"]"#, 4),
            (r#"cel.bind(dra, device.attributes["dra.example.com"], dra.name)"#, 15),
            (r#"device.attributes["dra.example.com"].name > 0"#, 5),
            (r#"device.attributes["dra.example.com"].name == "fish""#, 5),
            (r#"device.attributes["dra.example.com"].name.isGreaterThan(semver("0.0.1"))"#, 6),
            (r#"device.capacity["dra.example.com"].name.isGreaterThan(quantity("1Ki"))"#, 6),
            (r#"device.attributes.exists_one(x, x == "dra.example.com")"#, 164),
            (r#"device.attributes["dra.example.com"].exists_one(x, x == "services")"#, 133),
            (r#"device.attributes["dra.example.com"].services.split("example").size() >= 2"#, 19),
            (r#"device.attributes["dra.example.com"].services.matches("[^a]?sym")"#, 18),
            (r#"device.capacity.exists_one(x, x == "dra.example.com")"#, 164),
            (r#"device.capacity["dra.example.com"].exists_one(x, x == "memory")"#, 133),
        ];
        for (expression, expected) in cases {
            let program = ENV.compile(expression).map_err(|error| error.to_string());
            assert_eq!(program.map(|program| program.estimate().max), Ok(expected), "{expression}");
        }
    }
}
