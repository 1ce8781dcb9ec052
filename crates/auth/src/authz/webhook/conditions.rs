//! Match conditions: CEL expressions that decide whether a webhook is called at all.

use std::sync::{Arc, LazyLock};

use cel::{Bound, Decl, Env, ListType, PER_CALL_LIMIT, Program, Type, Val};
use meta::{Str, Value};

use crate::authz::{Attributes, aggregate};

pub(super) struct Conditions(Vec<(Program, String)>);

/// `request`: the spec of a SubjectAccessReview in v1.
static REQUEST: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    let text = Arc::new(Decl::string(None));
    let texts = Arc::new(Decl::list(text.clone(), ListType::Atomic, None));
    let fields = |names: &[&'static str]| -> Vec<(&'static str, Arc<Decl>, bool)> {
        names.iter().map(|name| (*name, text.clone(), false)).collect()
    };
    let mut requirement = fields(&["key", "operator"]);
    requirement.push(("values", texts.clone(), false));
    let requirements = Arc::new(Decl::object(requirement));
    let requirements = Arc::new(Decl::list(requirements, ListType::Atomic, None));
    let mut selector = fields(&["rawSelector"]);
    selector.push(("requirements", requirements, false));
    let selector = Arc::new(Decl::object(selector));
    let mut resource =
        fields(&["namespace", "verb", "group", "version", "resource", "subresource", "name"]);
    resource.push(("fieldSelector", selector.clone(), false));
    resource.push(("labelSelector", selector, false));
    let mut spec = fields(&["user", "uid"]);
    spec.push(("resourceAttributes", Arc::new(Decl::object(resource)), false));
    spec.push(("nonResourceAttributes", Arc::new(Decl::object(fields(&["path", "verb"]))), false));
    spec.push(("groups", texts.clone(), false));
    spec.push(("extra", Arc::new(Decl::map(texts, None)), false));
    Arc::new(Decl::object(spec))
});

/// Compiles one condition.
pub(crate) fn compile(expression: &str) -> Result<Program, String> {
    let env = Env::new().named_data("request", "kubernetes.SubjectAccessReviewSpec", &REQUEST);
    let program =
        env.compile(expression).map_err(|error| format!("compilation failed: {error}"))?;
    if *program.output_type() != Type::Bool {
        let got = program.output_type().name().to_owned();
        return Err(format!("must evaluate to bool but got {got}"));
    }
    Ok(program)
}

impl Conditions {
    pub(super) fn new(expressions: &[String]) -> Result<Self, String> {
        let compiled = expressions.iter().map(|text| Ok((compile(text)?, text.clone())));
        compiled.collect::<Result<_, String>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// False as soon as one is false. An error is only one if none is false.
    pub(super) fn match_all(
        &self,
        attributes: &Attributes<'_>,
        spec: &Value,
    ) -> Result<bool, String> {
        let request = complete(attributes, spec);
        let variables = [Bound::Data(&request, &REQUEST)];
        let mut errors = Vec::new();
        for (program, text) in &self.0 {
            match program.evaluate(&variables, PER_CALL_LIMIT).result {
                Ok(Val::Bool(true)) => {}
                Ok(Val::Bool(false)) => return Ok(false),
                Ok(_) => errors.push(format!(
                    "cel evaluation error: expression '{text}' eval result type should be bool"
                )),
                Err(error) => errors.push(format!(
                    "cel evaluation error: expression '{text}' resulted in error: {error}"
                )),
            }
        }
        aggregate(&errors).map_or(Ok(true), Err)
    }
}

/// Compat: expressions see fields that a review leaves out when they are empty.
fn complete(attributes: &Attributes<'_>, spec: &Value) -> Value {
    let mut request = spec.clone();
    let user = attributes.user;
    let texts: [(&[&str], &str); 9] = [
        (&["user"], &user.name),
        (&["uid"], &user.uid),
        (&["resourceAttributes", "namespace"], attributes.namespace),
        (&["resourceAttributes", "verb"], attributes.verb),
        (&["resourceAttributes", "group"], attributes.group),
        (&["resourceAttributes", "version"], attributes.version),
        (&["resourceAttributes", "resource"], attributes.resource),
        (&["resourceAttributes", "subresource"], attributes.subresource),
        (&["resourceAttributes", "name"], attributes.name),
    ];
    for (path, text) in texts {
        if path.len() == 1 || attributes.is_resource {
            request.set_at(path, text);
        }
    }
    request.set_at(&["groups"], user.groups.clone());
    if request.get("extra").is_none() {
        request.set_at(&["extra"], Value::object());
    }
    if !attributes.is_resource {
        request.set_at(&["nonResourceAttributes", "path"], Str::new(attributes.path));
        request.set_at(&["nonResourceAttributes", "verb"], Str::new(attributes.verb));
    }
    request
}
