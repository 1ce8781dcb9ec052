//! `serviceaccounts/token`: makes a token for a service account, bound to it and perhaps to a pod, a
//! secret or a node, and good for a while.

use std::sync::{Arc, OnceLock};

use meta::{
    ApiError, FieldErrors, GroupKind, GroupResource, GroupVersionKind, Str, Value,
    field::path,
    time::{Duration, Time},
    value,
};
use registry::{Action, ActionContext, ActionOutcome, BoxFuture, Kind};

use crate::access::texts;

/// Issues tokens of service accounts.
pub trait TokenIssuer: Send + Sync + 'static {
    /// The audiences of a token whose request names none: those of this server.
    fn audiences(&self) -> &[Str];

    /// No token lives longer than this; 0: as asked for.
    fn expiration_seconds_max(&self) -> i64;

    /// How long tokens of pods live on although they should have been renewed; None: they do not.
    fn extended_expiration_seconds(&self) -> Option<i64>;

    fn sign(&self, claims: Value) -> BoxFuture<'_, Result<String, String>>;
}

pub(crate) struct TokenRequests {
    tokens: Arc<dyn TokenIssuer>,
    /// Known when all kinds are.
    pub(crate) pods: OnceLock<Arc<Kind>>,
    pub(crate) secrets: OnceLock<Arc<Kind>>,
    pub(crate) nodes: OnceLock<Arc<Kind>>,
}

impl Action for TokenRequests {
    fn accepts(&self) -> Vec<GroupVersionKind> {
        vec![GroupVersionKind::new(GROUP, "v1", KIND)]
    }

    fn default(&self, request: &mut Value) {
        default_seconds(request);
    }

    fn complete<'a>(
        &'a self,
        object: &'a mut Value,
        cx: &'a ActionContext<'a>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(self.complete_request(object, cx))
    }

    fn act<'a>(
        &'a self,
        request: Value,
        cx: &'a ActionContext<'a>,
    ) -> BoxFuture<'a, Result<ActionOutcome, ApiError>> {
        Box::pin(async move { self.issue(request, cx).await.map(ActionOutcome::Object) })
    }
}

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
/// The audit annotation by which the uses of a token are traced back to its request.
const ISSUED_CREDENTIAL_ID: &str = "authentication.kubernetes.io/issued-credential-id";
const EXPIRATION_SECONDS_DEFAULT: i64 = 3600;
const EXPIRATION_SECONDS_MIN: i64 = 600;
const EXPIRATION_SECONDS_MAX: i64 = 1 << 32;
/// What the volume of a pod asks for; by this its tokens are known.
const POD_EXPIRATION_SECONDS: i64 = 3607;

impl TokenRequests {
    pub(crate) fn new(tokens: Arc<dyn TokenIssuer>) -> Self {
        let (pods, secrets, nodes) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { tokens, pods, secrets, nodes }
    }

    /// Compat: validating admission sees the request with what the service account adds to it.
    async fn complete_request(
        &self,
        request: &mut Value,
        cx: &ActionContext<'_>,
    ) -> Result<(), ApiError> {
        if request.str_at(&["metadata", "name"]).is_empty() {
            request.set_at(&["metadata", "name"], cx.name());
        }
        check_name(request, cx.name())?;
        let account = cx.object().await?;
        let uid = account.str_at(&["metadata", "uid"]);
        let given = request.str_at(&["metadata", "uid"]);
        if !given.is_empty() && given != uid {
            let why = format!(
                "the UID in the token request ({given}) does not match the UID of the service \
                 account ({uid})"
            );
            cx.annotate("authentication.k8s.io/token-request-uid-mismatch", &why);
            let resource = GroupResource::new(GROUP, KIND);
            return Err(ApiError::Conflict { resource, name: cx.name().to_owned(), why });
        }
        complete(request, &account, self.tokens.audiences(), Time::now());
        Ok(())
    }

    async fn issue(&self, mut request: Value, cx: &ActionContext<'_>) -> Result<Value, ApiError> {
        let now = Time::now();
        let uid = request.str_at(&["metadata", "uid"]).to_owned();
        let seconds = request.i64_at(&["spec", "expirationSeconds"]).unwrap_or_default();
        check_seconds(seconds)?;

        let bound = self.bound(&request, cx).await?;
        let seconds = match self.tokens.expiration_seconds_max() {
            max if max > 0 && seconds > max => {
                cx.warn(format!(
                    "requested expiration of {seconds} seconds shortened to {max} seconds"
                ));
                request.set_at(&["spec", "expirationSeconds"], max);
                max
            }
            _ => seconds,
        };
        let audiences = texts(&request, &["spec", "audiences"]);
        let for_server = audiences.iter().all(|name| self.tokens.audiences().contains(name));
        let extendable =
            bound.get("pod").is_some() && seconds == POD_EXPIRATION_SECONDS && for_server;
        let extended = self.tokens.extended_expiration_seconds().filter(|_| extendable);
        let life = extended.unwrap_or(seconds);
        let unix = now.unix_seconds();
        let id = uuid::Uuid::new_v4().to_string();
        let mut claims = value!({
            "aud": (audiences),
            "exp": (unix + life),
            "iat": (unix),
            "nbf": (unix),
            "jti": (id.as_str()),
            "sub": (format!("system:serviceaccount:{}:{}", cx.namespace(), cx.name())),
            "kubernetes.io": (bound),
        });
        claims.set_at(&["kubernetes.io", "namespace"], cx.namespace());
        let named = value!({"name": (cx.name()), "uid": (uid.as_str())});
        claims.set_at(&["kubernetes.io", "serviceaccount"], named);
        if extended.is_some() {
            claims.set_at(&["kubernetes.io", "warnafter"], unix + seconds);
        }
        let token = self.tokens.sign(claims).await;
        let token = token
            .map_err(|error| ApiError::internal(format!("failed to generate token: {error}")))?;
        cx.annotate(ISSUED_CREDENTIAL_ID, &format!("JTI={id}"));
        let end = now.plus(Duration { nanos: seconds.saturating_mul(1_000_000_000) });
        let status = value!({"token": (token), "expirationTimestamp": (end.to_rfc3339())});
        request.set_at(&["status"], status);
        Ok(request)
    }

    /// What the token is to be bound to beside its account: claims by kind.
    async fn bound(&self, request: &Value, cx: &ActionContext<'_>) -> Result<Value, ApiError> {
        let mut claims = Value::object();
        let asked = request.at(&["spec", "boundObjectRef"]).filter(|asked| !asked.is_null());
        let Some(asked) = asked else { return Ok(claims) };
        let text = |field| asked.str_at(&[field]);
        let (name, kind) = (text("name"), text("kind"));
        let (group, version) = match text("apiVersion").split_once('/') {
            Some(both) => both,
            None => ("", text("apiVersion")),
        };
        let (claim, object) = match (group, kind) {
            ("", "Pod") => ("pod", find(&self.pods, cx.namespace(), name).await?),
            ("", "Secret") => ("secret", find(&self.secrets, cx.namespace(), name).await?),
            ("", "Node") => ("node", find(&self.nodes, "", name).await?),
            _ => {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token to object of type {group}/{version}, Kind={kind}"
                )));
            }
        };
        if claim == "pod" && object.str_at(&["spec", "serviceAccountName"]) != cx.name() {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {} to pod running with different \
                 serviceaccount name.",
                meta::field::quote(cx.name())
            )));
        }
        let uid = object.str_at(&["metadata", "uid"]);
        let given = text("uid");
        if !given.is_empty() && given != uid {
            return Err(ApiError::Conflict {
                resource: GroupResource::new(group, kind),
                name: name.to_owned(),
                why: format!(
                    "the UID in the bound object reference ({given}) does not match the UID in \
                     record. The object might have been deleted and then recreated"
                ),
            });
        }
        claims.set_at(&[claim], value!({"name": (name), "uid": (uid)}));
        let node = object.str_at(&["spec", "nodeName"]);
        if claim == "pod" && !node.is_empty() {
            let mut named = value!({"name": (node)});
            // A node that is not there is still where the pod should be.
            match find(&self.nodes, "", node).await {
                Ok(found) => named.set_at(&["uid"], found.str_at(&["metadata", "uid"])),
                Err(ApiError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
            claims.set_at(&["node"], named);
        }
        Ok(claims)
    }
}

async fn find(kind: &OnceLock<Arc<Kind>>, namespace: &str, name: &str) -> Result<Value, ApiError> {
    match kind.get() {
        Some(kind) => kind.object(namespace, name).await,
        None => Err(ApiError::NotServed),
    }
}

/// The name in the body, if any, is that of the path.
fn check_name(request: &Value, name: &str) -> Result<(), ApiError> {
    let given = request.str_at(&["metadata", "name"]);
    if given.is_empty() || given == name {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    let why = "must match the service account name if specified";
    errors.invalid(path("metadata").child("name"), given, why);
    Err(invalid(name, errors))
}

fn check_seconds(seconds: i64) -> Result<(), ApiError> {
    let mut errors = FieldErrors::default();
    let field = path("spec").child("expirationSeconds");
    if seconds < EXPIRATION_SECONDS_MIN {
        errors.invalid(field, seconds, "may not specify a duration less than 10 minutes");
    } else if seconds > EXPIRATION_SECONDS_MAX {
        errors.invalid(field, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    if errors.is_empty() { Ok(()) } else { Err(invalid("", errors)) }
}

fn invalid(name: &str, errors: FieldErrors) -> ApiError {
    ApiError::Invalid {
        kind: GroupKind::new(GROUP, KIND),
        name: name.to_owned(),
        errors: Box::new(errors),
    }
}

/// Fills in what was left out, and what only the server knows.
fn complete(request: &mut Value, account: &Value, audiences: &[Str], now: Time) {
    request.set_at(&["kind"], KIND);
    request.set_at(&["apiVersion"], format!("{GROUP}/v1"));
    for field in ["name", "namespace", "uid"] {
        request.set_at(&["metadata", field], account.str_at(&["metadata", field]));
    }
    request.set_at(&["metadata", "creationTimestamp"], now.to_rfc3339());
    request.remove_at(&["status"]);
    if request.items_at(&["spec", "audiences"]).is_empty() {
        request.set_at(&["spec", "audiences"], audiences.to_vec());
    }
}

fn default_seconds(request: &mut Value) {
    if request.at(&["spec", "expirationSeconds"]).is_none_or(Value::is_null) {
        request.set_at(&["spec", "expirationSeconds"], EXPIRATION_SECONDS_DEFAULT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_completed_and_checked() {
        let account = value!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}});
        let mut request = value!({"metadata": {}, "spec": {}, "status": {"token": "forged"}});
        default_seconds(&mut request);
        complete(&mut request, &account, &["api".into()], Time::from_unix(0, 0));
        let expected = value!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": "a", "namespace": "n", "uid": "u",
                "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"audiences": ["api"], "expirationSeconds": 3600i64},
        });
        assert_eq!(request, expected);
        for (seconds, good) in
            [(0, false), (599, false), (600, true), (1 << 32, true), ((1 << 32) + 1, false)]
        {
            assert_eq!(check_seconds(seconds).is_ok(), good, "{seconds}");
        }
        assert!(check_name(&value!({"metadata": {"name": "b"}}), "a").is_err());
        assert!(check_name(&value!({"metadata": {"name": "a"}}), "a").is_ok());
    }
}
