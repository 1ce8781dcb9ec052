//! From the claims of a token to a user: by the names of claims, or by CEL expressions.

use std::sync::Arc;

use cel::{Bound, Decl, Env, ListType, PER_CALL_LIMIT, Program, Type, Val};
use meta::{Str, User, Value, field::quote};

use super::config::{ClaimOrExpression, JwtConfig};

pub(super) struct Mapper {
    config: JwtConfig,
    username: Option<Program>,
    groups: Option<Program>,
    uid: Option<Program>,
    /// In the order of the configuration.
    extra: Vec<Program>,
    claim_rules: Vec<(Program, String)>,
    user_rules: Vec<(Program, String)>,
    claims_type: Arc<Decl>,
    user_type: Arc<Decl>,
}

/// `claims`: any claim by its name. Names that are no identifiers are escaped, at every depth:
/// `claims.kubernetes__dot__io.pod`.
pub(super) fn claims_env() -> (Env, Arc<Decl>) {
    let any = Arc::new(Decl::dynamic().unescaping_keys());
    let decl = Arc::new(Decl::map(any, None).unescaping_keys());
    (Env::new().data("claims", &decl), decl)
}

/// `user`: as it comes out of the claims.
pub(super) fn user_env() -> (Env, Arc<Decl>) {
    let text = Arc::new(Decl::string(None));
    let texts = Arc::new(Decl::list(text.clone(), ListType::Atomic, None));
    let decl = Arc::new(Decl::object([
        ("username", text.clone(), false),
        ("uid", text, false),
        ("groups", texts.clone(), false),
        ("extra", Arc::new(Decl::map(texts, None).unescaping_keys()), false),
    ]));
    (Env::new().named_data("user", "kubernetes.UserInfo", &decl), decl)
}

/// Compiles an expression; a condition has to be a boolean.
pub(super) fn compile(env: &Env, expression: &str, is_condition: bool) -> Result<Program, String> {
    let program =
        env.compile(expression).map_err(|error| format!("compilation failed: {error}"))?;
    if is_condition && *program.output_type() != Type::Bool {
        return Err("must evaluate to bool".to_owned());
    }
    Ok(program)
}

impl Mapper {
    pub(super) fn new(config: &JwtConfig) -> Result<Self, String> {
        let ((claims, claims_type), (user, user_type)) = (claims_env(), user_env());
        let mapping = |by: &ClaimOrExpression| match by.expression.as_str() {
            "" => Ok(None),
            expression => compile(&claims, expression, false).map(Some),
        };
        let rules = |env: &Env, rules: Vec<(&String, &String)>| {
            let rules = rules.into_iter().filter(|(expression, _)| !expression.is_empty());
            rules
                .map(|(expression, message)| {
                    let failed = format!("validation expression '{expression}' failed: {message}");
                    Ok((compile(env, expression, true)?, failed))
                })
                .collect::<Result<Vec<_>, String>>()
        };
        Ok(Self {
            username: mapping(&config.username)?,
            groups: mapping(&config.groups)?,
            uid: mapping(&config.uid)?,
            extra: config
                .extra
                .iter()
                .map(|(_, expression)| compile(&claims, expression, false))
                .collect::<Result<_, _>>()?,
            claim_rules: rules(
                &claims,
                config.claim_rules.iter().map(|rule| (&rule.expression, &rule.message)).collect(),
            )?,
            user_rules: rules(
                &user,
                config
                    .user_rules
                    .iter()
                    .map(|(expression, message)| (expression, message))
                    .collect(),
            )?,
            config: config.clone(),
            claims_type,
            user_type,
        })
    }

    pub(super) fn user(&self, claims: &Value) -> Result<User, String> {
        let user = User {
            name: self.username(claims)?,
            groups: self.groups(claims)?,
            uid: self.uid(claims)?,
            extra: self.extra(claims)?,
        };
        for rule in self.config.claim_rules.iter().filter(|rule| !rule.claim.is_empty()) {
            let (claim, wanted) = (&rule.claim, &rule.required_value);
            let Some(value) = claims.get(claim) else {
                return Err(format!("oidc: required claim {claim} not present in ID token"));
            };
            let value = value.as_str().ok_or_else(|| format!("oidc: parse claim {claim}"))?;
            if value != wanted {
                return Err(format!(
                    "oidc: required claim {claim} value does not match. Got = {value}, want = {wanted}"
                ));
            }
        }
        for (rule, failed) in &self.claim_rules {
            holds(rule, claims, &self.claims_type, failed).map_err(|why| {
                format!("oidc: error evaluating claim validation expression: {why}")
            })?;
        }
        if !self.user_rules.is_empty() {
            let user = user_value(&user);
            for (rule, failed) in &self.user_rules {
                holds(rule, &user, &self.user_type, failed).map_err(|why| {
                    format!("oidc: error evaluating user info validation rule: {why}")
                })?;
            }
        }
        Ok(user)
    }

    fn username(&self, claims: &Value) -> Result<Str, String> {
        if let Some(program) = &self.username {
            let failed = "oidc: error evaluating username claim expression";
            let name = text(program, claims, &self.claims_type)
                .map_err(|why| format!("{failed}: {why}"))?
                .ok_or_else(|| {
                    format!("{failed}: username claim expression must return a string")
                })?;
            if name.is_empty() {
                let why = "oidc: empty username via CEL expression is not allowed";
                return Err(why.to_owned());
            }
            return Ok(name);
        }
        let claim = self.config.username.claim.as_str();
        let name = claims.get(claim).ok_or_else(|| {
            format!("oidc: parse username claims {}: claim not present", quote(claim))
        })?;
        let name = name
            .as_str()
            .ok_or_else(|| format!("oidc: parse username claims {}: not a string", quote(claim)))?;
        if claim == "email" {
            match claims.get("email_verified") {
                None | Some(Value::Bool(true)) => {}
                Some(Value::Bool(false)) => return Err("oidc: email not verified".to_owned()),
                Some(_) => return Err("oidc: parse 'email_verified' claim".to_owned()),
            }
        }
        let name = format!("{}{name}", self.config.username.prefix.as_deref().unwrap_or_default());
        // A user without a name could not be told from any other.
        if name.is_empty() {
            return Err(format!("oidc: empty username in claim {}", quote(claim)));
        }
        Ok(Str::from(name))
    }

    fn groups(&self, claims: &Value) -> Result<Vec<Str>, String> {
        let claim = self.config.groups.claim.as_str();
        if !claim.is_empty()
            && let Some(found) = claims.get(claim)
        {
            let wrong = || format!("oidc: parse groups claim {}", quote(claim));
            // Compat: one group may be a string; null is none.
            let groups: Vec<&str> = match found {
                Value::Null => Vec::new(),
                Value::String(one) => vec![one.as_str()],
                Value::Array(several) => {
                    several.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(wrong)?
                }
                _ => return Err(wrong()),
            };
            let prefix = self.config.groups.prefix.as_deref().unwrap_or_default();
            return Ok(groups.iter().map(|group| Str::from(format!("{prefix}{group}"))).collect());
        }
        let Some(program) = &self.groups else { return Ok(Vec::new()) };
        texts(program, claims, &self.claims_type)
            .map_err(|why| format!("oidc: error evaluating group claim expression: {why}"))
    }

    fn uid(&self, claims: &Value) -> Result<Str, String> {
        let claim = self.config.uid.claim.as_str();
        if !claim.is_empty() {
            let uid = claims.get(claim).and_then(Value::as_str);
            return uid
                .map(Str::new)
                .ok_or_else(|| format!("oidc: parse uid claim {}", quote(claim)));
        }
        let Some(program) = &self.uid else { return Ok(Str::default()) };
        let failed = "oidc: error evaluating uid claim expression";
        text(program, claims, &self.claims_type)
            .map_err(|why| format!("{failed}: {why}"))?
            .ok_or_else(|| format!("{failed}: uid claim expression must return a string"))
    }

    fn extra(&self, claims: &Value) -> Result<Vec<(Str, Vec<Str>)>, String> {
        let mut extra = Vec::new();
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            let key = Str::new_static("authentication.kubernetes.io/credential-id");
            extra.push((key, vec![Str::from(format!("JTI={id}"))]));
        }
        for ((key, expression), program) in self.config.extra.iter().zip(&self.extra) {
            let values = texts(program, claims, &self.claims_type).map_err(|why| {
                format!("oidc: error evaluating extra claim expression: {expression}: {why}")
            })?;
            if !values.is_empty() {
                extra.push((Str::new(key), values));
            }
        }
        extra.sort();
        Ok(extra)
    }
}

fn user_value(user: &User) -> Value {
    let mut value = Value::object();
    value.set_at(&["username"], user.name.clone());
    value.set_at(&["uid"], user.uid.clone());
    value.set_at(&["groups"], user.groups.clone());
    value.set_at(&["extra"], Value::object());
    for (key, values) in &user.extra {
        value.set_at(&["extra", key], values.clone());
    }
    value
}

fn holds(rule: &Program, data: &Value, decl: &Decl, failed: &str) -> Result<(), String> {
    let variables = [Bound::Data(data, decl)];
    match rule.evaluate(&variables, PER_CALL_LIMIT).result {
        Ok(Val::Bool(true)) => Ok(()),
        Ok(Val::Bool(false)) => Err(failed.to_owned()),
        Ok(_) => Err("validation expression must return a boolean".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The string that an expression makes; None: it makes something else.
fn text(program: &Program, claims: &Value, decl: &Decl) -> Result<Option<Str>, String> {
    let variables = [Bound::Data(claims, decl)];
    let value = program.evaluate(&variables, PER_CALL_LIMIT).result;
    let value = value.map_err(|error| error.to_string())?;
    Ok(value.as_str().map(Str::new))
}

/// A string or a list of strings, without empty ones.
fn texts(program: &Program, claims: &Value, decl: &Decl) -> Result<Vec<Str>, String> {
    let wrong = || "expression must return a string or a list of strings".to_owned();
    let variables = [Bound::Data(claims, decl)];
    let value = program.evaluate(&variables, PER_CALL_LIMIT).result;
    let mut texts = Vec::new();
    match value.map_err(|error| error.to_string())? {
        Val::Null => {}
        Val::List(list) => {
            for item in list.iter() {
                let item = item.map_err(|error| error.to_string())?;
                texts.push(Str::new(item.as_str().ok_or_else(wrong)?));
            }
        }
        other => texts.push(Str::new(other.as_str().ok_or_else(wrong)?)),
    }
    texts.retain(|text| !text.is_empty());
    Ok(texts)
}
