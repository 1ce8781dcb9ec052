//! Client settings from a kubeconfig file, as `--authorization-webhook-config-file` and others take
//! it: the cluster and the user of the current context.
//!
//! What is not supported is an error. A field that is skipped could be the one that makes a call
//! secure. Cluster and user are checked for what they refer to as well, so that a wrong path is found
//! at start and not by the first call.

use std::path::{Path, PathBuf};

use codec::yaml::YamlError;
use http::Uri;
use meta::Value;

use crate::{
    Config, Credentials, Identity, Pem, Secret, Tls, Trust,
    certificate_metrics::CertificateMetrics,
    credentials::Authorization,
    error::{ConfigError, Error, UrlProblem},
    origin::Origin,
    reload,
    tls::TlsConfigs,
};

/// Where a kubeconfig leads, and how.
#[derive(Clone, Debug)]
pub struct Kubeconfig {
    /// Calls go to this URL, or to paths below it.
    pub server: Uri,
    pub tls: Tls,
    pub credentials: Credentials,
}

/// Which file, which field, and what is wrong with it: `/etc/authz.yaml: users[hook].user.exec: not
/// supported`.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {problem}", .path.display(), in_field(.field))]
pub struct KubeconfigError {
    pub path: PathBuf,
    /// Empty: the file as a whole.
    pub field: String,
    #[source]
    pub problem: Box<KubeconfigProblem>,
}

impl KubeconfigError {
    fn new(path: &Path, field: &str, problem: impl Into<KubeconfigProblem>) -> Self {
        let problem = Box::new(problem.into());
        Self { path: path.to_owned(), field: field.to_owned(), problem }
    }
}

fn in_field(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!(": {field}") }
}

#[derive(Debug, thiserror::Error)]
pub enum KubeconfigProblem {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Yaml(#[from] YamlError),
    #[error("{0}")]
    DuplicateKey(String),
    #[error("must be {0}")]
    WrongType(&'static str),
    #[error("required")]
    Missing,
    #[error("unknown field")]
    Unknown,
    #[error("not supported")]
    Unsupported,
    #[error("must be {0:?}")]
    NotThis(&'static str),
    #[error("no entry has this name")]
    NoSuchName,
    #[error("more than one entry has this name")]
    DuplicateName,
    #[error("not valid base64")]
    Base64,
    #[error("cannot be used together with {0}")]
    Together(&'static str),
    #[error("required where {0} is given")]
    RequiredBy(&'static str),
    #[error("{0}")]
    Url(UrlProblem),
}

impl Kubeconfig {
    pub fn load(path: &Path) -> Result<Self, KubeconfigError> {
        let bytes = reload::read(path).map_err(|error| KubeconfigError::new(path, "", error))?;
        Self::parse(&bytes, path)
    }

    /// The settings of a client, with default limits and plain TCP.
    pub fn config(&self) -> Config {
        let (tls, credentials) = (self.tls.clone(), self.credentials.clone());
        Config { tls, credentials, ..Config::default() }
    }

    /// Relative paths in the file are relative to the directory it is in.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, KubeconfigError> {
        let loaded =
            codec::yaml::load(bytes).map_err(|error| KubeconfigError::new(path, "", error))?;
        if let Some(duplicate) = loaded.duplicates.into_iter().next() {
            let problem = KubeconfigProblem::DuplicateKey(duplicate);
            return Err(KubeconfigError::new(path, "", problem));
        }
        let top = Section { file: path, at: String::new(), value: &loaded.value };
        top.check(&TOP)?;
        for (field, expected) in [("apiVersion", "v1"), ("kind", "Config")] {
            if top.text(field)?.is_some_and(|given| given != expected) {
                return Err(top.error(field, KubeconfigProblem::NotThis(expected)));
            }
        }
        let context = top.required("current-context")?;
        let context = top.named("contexts", "context", context, "current-context")?;
        context.check(&CONTEXT)?;
        let cluster = context.required("cluster")?;
        let cluster = top.named("clusters", "cluster", cluster, &context.name_of("cluster"))?;
        cluster.check(&CLUSTER)?;
        let (identity, credentials) = match context.text("user")? {
            None => (None, Credentials::None),
            Some(user) => {
                let user = top.named("users", "user", user, &context.name_of("user"))?;
                user.check(&USER)?;
                (user.identity()?, user.credentials()?)
            }
        };
        let tls = Tls { identity, ..cluster.tls()? };
        let server = cluster.server(&tls)?;
        Ok(Self { server, tls, credentials })
    }
}

/// The users of a kubeconfig file that has no server: what to say to which host.
#[derive(Clone, Debug, Default)]
pub struct KubeconfigUsers {
    pub users: Vec<(String, KubeconfigUser)>,
    /// The user of the current context.
    pub current: Option<String>,
}

#[derive(Clone, Debug)]
pub struct KubeconfigUser {
    pub identity: Option<Identity>,
    pub credentials: Credentials,
}

impl KubeconfigUsers {
    pub fn load(path: &Path) -> Result<Self, KubeconfigError> {
        let bytes = reload::read(path).map_err(|error| KubeconfigError::new(path, "", error))?;
        Self::parse(&bytes, path)
    }

    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, KubeconfigError> {
        let loaded =
            codec::yaml::load(bytes).map_err(|error| KubeconfigError::new(path, "", error))?;
        if let Some(duplicate) = loaded.duplicates.into_iter().next() {
            let problem = KubeconfigProblem::DuplicateKey(duplicate);
            return Err(KubeconfigError::new(path, "", problem));
        }
        let top = Section { file: path, at: String::new(), value: &loaded.value };
        top.check(&TOP)?;
        let mut users = Vec::new();
        for entry in loaded.value.items_at(&["users"]) {
            let name = entry.str_at(&["name"]);
            let user = top.named("users", "user", name, "users")?;
            user.check(&USER)?;
            let user =
                KubeconfigUser { identity: user.identity()?, credentials: user.credentials()? };
            users.push((name.to_owned(), user));
        }
        let current = match top.text("current-context")? {
            None => None,
            Some(context) => {
                let context = top.named("contexts", "context", context, "current-context")?;
                context.text("user")?.map(str::to_owned)
            }
        };
        Ok(Self { users, current })
    }
}

/// The fields of a part of the file.
struct Fields {
    known: &'static [&'static str],
    /// Refused unless they are empty.
    unsupported: &'static [&'static str],
}

const TOP: Fields = Fields {
    known: &[
        "apiVersion",
        "clusters",
        "contexts",
        "current-context",
        // The next two are for clients with a user interface.
        "extensions",
        "kind",
        "preferences",
        "users",
    ],
    unsupported: &[],
};
const CONTEXT: Fields =
    Fields { known: &["cluster", "extensions", "namespace", "user"], unsupported: &[] };
const CLUSTER: Fields = Fields {
    known: &[
        "certificate-authority",
        "certificate-authority-data",
        // Compression is never asked for.
        "disable-compression",
        "extensions",
        "insecure-skip-tls-verify",
        "server",
        "tls-server-name",
    ],
    unsupported: &["proxy-url"],
};
const USER: Fields = Fields {
    known: &[
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "extensions",
        "password",
        "token",
        "tokenFile",
        "username",
    ],
    unsupported: &["as", "as-groups", "as-uid", "as-user-extra", "auth-provider", "exec"],
};

/// A part of the file, and what it is called in errors.
struct Section<'a> {
    file: &'a Path,
    at: String,
    value: &'a Value,
}

impl<'a> Section<'a> {
    fn name_of(&self, field: &str) -> String {
        if self.at.is_empty() { field.to_owned() } else { format!("{}.{field}", self.at) }
    }

    fn error(&self, field: &str, problem: impl Into<KubeconfigProblem>) -> KubeconfigError {
        KubeconfigError::new(self.file, &self.name_of(field), problem)
    }

    fn check(&self, fields: &Fields) -> Result<(), KubeconfigError> {
        let Some(map) = self.value.as_object() else {
            let problem = KubeconfigProblem::WrongType("an object");
            return Err(KubeconfigError::new(self.file, &self.at, problem));
        };
        for (field, value) in map.iter() {
            let field = field.as_str();
            if fields.unsupported.contains(&field) {
                if !is_empty(value) {
                    return Err(self.error(field, KubeconfigProblem::Unsupported));
                }
            } else if !fields.known.contains(&field) {
                return Err(self.error(field, KubeconfigProblem::Unknown));
            }
        }
        Ok(())
    }

    /// None: absent or empty.
    fn text(&self, field: &str) -> Result<Option<&'a str>, KubeconfigError> {
        match self.value.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.error(field, KubeconfigProblem::WrongType("a string"))),
        }
    }

    fn flag(&self, field: &str) -> Result<bool, KubeconfigError> {
        match self.value.get(field) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.error(field, KubeconfigProblem::WrongType("true or false"))),
        }
    }

    fn required(&self, field: &str) -> Result<&'a str, KubeconfigError> {
        self.text(field)?.ok_or_else(|| self.error(field, KubeconfigProblem::Missing))
    }

    fn file(&self, field: &str) -> Result<Option<PathBuf>, KubeconfigError> {
        let directory = self.file.parent().unwrap_or(Path::new(""));
        Ok(self.text(field)?.map(|path| directory.join(path)))
    }

    fn data(&self, field: &str) -> Result<Option<Vec<u8>>, KubeconfigError> {
        let decode = |text| {
            codec::base64::decode(text).map_err(|_| self.error(field, KubeconfigProblem::Base64))
        };
        self.text(field)?.map(decode).transpose()
    }

    /// The entry of a list with a name: `{name: …, <inner>: {…}}`. `from` is the field that has the
    /// name.
    fn named(
        &self,
        list: &str,
        inner: &'static str,
        name: &str,
        from: &str,
    ) -> Result<Section<'a>, KubeconfigError> {
        let is_it = |entry: &&Value| entry.str_at(&["name"]) == name;
        let mut found = self.value.items_at(&[list]).iter().filter(is_it);
        let Some(entry) = found.next() else {
            return Err(KubeconfigError::new(self.file, from, KubeconfigProblem::NoSuchName));
        };
        let entry = Section { file: self.file, at: format!("{list}[{name}]"), value: entry };
        if found.next().is_some() {
            return Err(entry.error("name", KubeconfigProblem::DuplicateName));
        }
        let value = entry.value.get(inner).unwrap_or(&Value::Null);
        Ok(Section { file: self.file, at: entry.name_of(inner), value })
    }

    /// Of a cluster.
    fn tls(&self) -> Result<Tls, KubeconfigError> {
        const FILE: &str = "certificate-authority";
        const DATA: &str = "certificate-authority-data";
        const INSECURE: &str = "insecure-skip-tls-verify";
        let (trust, field) = match (self.file(FILE)?, self.data(DATA)?, self.flag(INSECURE)?) {
            (Some(_), Some(_), _) => {
                return Err(self.error(FILE, KubeconfigProblem::Together(DATA)));
            }
            (Some(_), _, true) => {
                return Err(self.error(FILE, KubeconfigProblem::Together(INSECURE)));
            }
            (_, Some(_), true) => {
                return Err(self.error(DATA, KubeconfigProblem::Together(INSECURE)));
            }
            (Some(path), ..) => (Trust::File(path), FILE),
            (_, Some(bytes), _) => (Trust::Bundle(bytes), DATA),
            (_, _, true) => (Trust::Insecure, INSECURE),
            (None, None, false) => (Trust::System, FILE),
        };
        // Only webhooks are configured by kubeconfigs.
        let certificate_metrics = CertificateMetrics::Webhooks;
        let tls = Tls { trust, certificate_metrics, ..Tls::default() };
        TlsConfigs::new(tls.clone()).map_err(|error| self.error(field, error))?;
        let server_name = self.text("tls-server-name")?.map(str::to_owned);
        let server_name_only = server_name.clone();
        let named = Tls { trust: Trust::Insecure, server_name: server_name_only, ..Tls::default() };
        TlsConfigs::new(named).map_err(|error| self.error("tls-server-name", error))?;
        Ok(Tls { server_name, ..tls })
    }

    /// Of a cluster. Compat: without a scheme, TLS settings decide, as in client-go.
    fn server(&self, tls: &Tls) -> Result<Uri, KubeconfigError> {
        let text = self.required("server")?;
        let has_tls = !matches!(tls.trust, Trust::System) || tls.identity.is_some();
        let default = if has_tls { "https://" } else { "http://" };
        let url = if text.contains("://") { text.to_owned() } else { format!("{default}{text}") };
        let problem = |why| self.error("server", KubeconfigProblem::Url(why));
        let url: Uri = url.parse().map_err(|_| problem(UrlProblem::Syntax))?;
        match Origin::new(&url, None, tls.server_name.as_deref()) {
            Err(Error::Url { why, .. }) => Err(problem(why)),
            // A URL has no other errors.
            _ => Ok(url),
        }
    }

    /// Of a user.
    fn identity(&self) -> Result<Option<Identity>, KubeconfigError> {
        let certificate = self.pem("client-certificate", "client-certificate-data")?;
        let key = self.pem("client-key", "client-key-data")?;
        let ((certificate, certificate_field), (key, key_field)) = match (certificate, key) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => (certificate, key),
            (Some((_, field)), None) => {
                return Err(self.error("client-key", KubeconfigProblem::RequiredBy(field)));
            }
            (None, Some((_, field))) => {
                return Err(self.error("client-certificate", KubeconfigProblem::RequiredBy(field)));
            }
        };
        let identity = Identity { certificate, key };
        let presented = Some(identity.clone());
        let tls = Tls { trust: Trust::Insecure, identity: presented, ..Tls::default() };
        TlsConfigs::new(tls).map_err(|error| {
            let of_key = match &error {
                ConfigError::ClientKey { .. } => true,
                ConfigError::Read { path, .. } => {
                    matches!(&identity.key, Pem::File(key) if key == path)
                }
                _ => false,
            };
            self.error(if of_key { key_field } else { certificate_field }, error)
        })?;
        Ok(Some(identity))
    }

    fn pem(
        &self,
        file: &'static str,
        data: &'static str,
    ) -> Result<Option<(Pem, &'static str)>, KubeconfigError> {
        match (self.file(file)?, self.data(data)?) {
            (None, None) => Ok(None),
            (Some(path), None) => Ok(Some((Pem::File(path), file))),
            (None, Some(bytes)) => Ok(Some((Pem::Bytes(Secret::new(bytes)), data))),
            (Some(_), Some(_)) => Err(self.error(file, KubeconfigProblem::Together(data))),
        }
    }

    /// Of a user.
    fn credentials(&self) -> Result<Credentials, KubeconfigError> {
        let token = self.text("token")?;
        let token_file = self.file("tokenFile")?;
        let username = self.text("username")?;
        let password = self.text("password")?;
        if username.is_none() && password.is_some() {
            return Err(self.error("username", KubeconfigProblem::RequiredBy("password")));
        }
        let token_field = if token_file.is_some() { "tokenFile" } else { "token" };
        if username.is_some() && (token.is_some() || token_file.is_some()) {
            return Err(self.error("username", KubeconfigProblem::Together(token_field)));
        }
        let credentials = match (token_file, token, username) {
            // Compat: the file wins over the token.
            (Some(path), ..) => Credentials::BearerFile(path),
            (None, Some(token), _) => Credentials::Bearer(token.into()),
            (None, None, Some(username)) => Credentials::Basic {
                username: username.to_owned(),
                password: password.unwrap_or_default().into(),
            },
            (None, None, None) => Credentials::None,
        };
        Authorization::new(credentials.clone()).map_err(|error| self.error(token_field, error))?;
        Ok(credentials)
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
