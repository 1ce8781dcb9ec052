//! Tokens that live in a Secret of type `kubernetes.io/service-account-token`: they don't run out, and
//! are good as long as the Secret holds exactly them.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use meta::{User, Value};
use sha2::{Digest as _, Sha256};

use super::{Bound, ServiceAccounts, account_user};

const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

impl ServiceAccounts {
    pub(super) async fn legacy_user(&self, token: &str, claims: &Value) -> Result<User, String> {
        let claim = |name: &str| claims.str_at(&[&format!("kubernetes.io/serviceaccount/{name}")]);
        let namespace = claim("namespace");
        let secret = claim("secret.name");
        let (account, uid) = (claim("service-account.name"), claim("service-account.uid"));
        let subject = claims.str_at(&["sub"]);
        let needed = [
            (subject, "sub"),
            (namespace, "namespace"),
            (secret, "secretName"),
            (account, "serviceAccountName"),
            (uid, "serviceAccountUID"),
        ];
        if let Some((_, name)) = needed.iter().find(|(text, _)| text.is_empty()) {
            return Err(format!("{name} claim is missing"));
        }
        if subject != format!("system:serviceaccount:{namespace}:{account}") {
            return Err("sub claim is invalid".to_owned());
        }
        let found = LegacyToken { token, namespace, secret, account, uid };
        if self.options.lookup {
            match self.check_legacy(&found, false).await {
                Ok(()) => {}
                Err(_) => self.check_legacy(&found, true).await?,
            }
        }
        Ok(account_user(namespace, account, uid))
    }

    async fn check_legacy(&self, of: &LegacyToken<'_>, fresh: bool) -> Result<(), String> {
        let (namespace, account) = (of.namespace, of.account);
        let deleted = |object: &Value| object.at(&["metadata", "deletionTimestamp"]).is_some();
        let secret = self.objects.find(Bound::Secret, namespace, of.secret, fresh).await;
        let Some(secret) = secret.filter(|secret| !deleted(secret)) else {
            return Err("Token has been invalidated".to_owned());
        };
        let kept = BASE64.decode(secret.str_at(&["data", "token"])).unwrap_or_default();
        // By their hashes: takes the same time however much of it is right.
        if Sha256::digest(&kept) != Sha256::digest(of.token.as_bytes()) {
            return Err("Token does not match server's copy".to_owned());
        }
        let found = self.objects.find(Bound::ServiceAccount, namespace, account, fresh).await;
        let Some(found) = found else {
            return Err(format!("serviceaccounts {} not found", meta::field::quote(account)));
        };
        if deleted(&found) {
            return Err(format!("ServiceAccount {namespace}/{account} has been deleted"));
        }
        let actual = found.str_at(&["metadata", "uid"]);
        if actual != of.uid {
            let uid = of.uid;
            return Err(format!("ServiceAccount UID ({actual}) does not match claim ({uid})"));
        }
        self.objects.note_use(&secret);
        if !secret.str_at(&["metadata", "labels", INVALID_SINCE]).is_empty() {
            let secret = of.secret;
            return Err(format!(
                "the token in secret {namespace}/{secret} for service account \
                 {namespace}/{account} has been marked invalid. Use tokens from the TokenRequest \
                 API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label \
                 from the secret to temporarily allow use of this token"
            ));
        }
        Ok(())
    }
}

/// What a legacy token says of itself.
struct LegacyToken<'a> {
    token: &'a str,
    namespace: &'a str,
    secret: &'a str,
    account: &'a str,
    uid: &'a str,
}

/// The claims of a token that is to live in this Secret.
pub fn legacy_claims(account: &Value, secret: &str) -> Value {
    let text = |field| account.str_at(&["metadata", field]);
    let (namespace, name) = (text("namespace"), text("name"));
    let mut claims = Value::object();
    let pairs = [
        ("iss", super::LEGACY_ISSUER.to_owned()),
        ("sub", format!("system:serviceaccount:{namespace}:{name}")),
        ("kubernetes.io/serviceaccount/namespace", namespace.to_owned()),
        ("kubernetes.io/serviceaccount/secret.name", secret.to_owned()),
        ("kubernetes.io/serviceaccount/service-account.name", name.to_owned()),
        ("kubernetes.io/serviceaccount/service-account.uid", text("uid").to_owned()),
    ];
    for (name, text) in pairs {
        claims.set_at(&[name], text);
    }
    claims
}
