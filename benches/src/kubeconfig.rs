//! Credentials: from a kubeconfig file (its current context) or from single files.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use saphyr_parser::{Event, Parser};
use serde_json::{Map, Value};

use crate::args::CredentialArgs;

/// Address and credentials. PEM bytes are kept unparsed.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    /// From the kubeconfig; flags give the URL otherwise.
    pub(crate) server: Option<String>,
    /// Without a CA the server's certificate is not verified.
    pub(crate) ca_pem: Option<Vec<u8>>,
    pub(crate) cert_pem: Option<Vec<u8>>,
    pub(crate) key_pem: Option<Vec<u8>>,
    pub(crate) token: Option<String>,
}

impl Credentials {
    pub(crate) fn load(args: &CredentialArgs) -> Result<Self> {
        let mut credentials = match &args.kubeconfig {
            Some(file) => from_kubeconfig(file)?,
            None => Self::default(),
        };
        let files = [
            (&args.ca, &mut credentials.ca_pem),
            (&args.cert, &mut credentials.cert_pem),
            (&args.key, &mut credentials.key_pem),
        ];
        for (file, pem) in files {
            if let Some(file) = file {
                *pem = Some(read(file)?);
            }
        }
        if args.token.is_some() {
            credentials.token.clone_from(&args.token);
        }
        Ok(credentials)
    }
}

fn from_kubeconfig(file: &Path) -> Result<Credentials> {
    let text = String::from_utf8(read(file)?).context("the kubeconfig is not UTF-8")?;
    let config = yaml(&text).with_context(|| format!("reading {}", file.display()))?;
    let folder = file.parent().unwrap_or(Path::new("."));

    let context = named(&config, "contexts", "context", config["current-context"].as_str())?;
    let cluster = named(&config, "clusters", "cluster", context["cluster"].as_str())?;
    let user = named(&config, "users", "user", context["user"].as_str())?;
    Ok(Credentials {
        server: cluster["server"].as_str().map(|url| url.trim_end_matches('/').to_owned()),
        ca_pem: pem(cluster, "certificate-authority", folder)?,
        cert_pem: pem(user, "client-certificate", folder)?,
        key_pem: pem(user, "client-key", folder)?,
        token: user["token"].as_str().map(str::to_owned),
    })
}

/// `list[name == wanted].inner`; an absent name means the first, as in a file with a single context.
fn named<'a>(
    config: &'a Value,
    list: &str,
    inner: &str,
    wanted: Option<&str>,
) -> Result<&'a Value> {
    let wanted = wanted.filter(|name| !name.is_empty());
    let entries = config[list].as_array().map_or(&[][..], Vec::as_slice);
    let entry = entries.iter().find(|entry| wanted.is_none_or(|name| entry["name"] == name));
    match entry {
        Some(entry) => Ok(&entry[inner]),
        None => bail!("the kubeconfig has no {inner} {:?}", wanted.unwrap_or("")),
    }
}

/// `<key>-data` in base64, or the file named by `<key>`, relative to the kubeconfig.
fn pem(entry: &Value, key: &str, folder: &Path) -> Result<Option<Vec<u8>>> {
    if let Some(data) = entry[format!("{key}-data")].as_str() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(data.trim());
        return Ok(Some(bytes.with_context(|| format!("{key}-data is not base64"))?));
    }
    entry[key].as_str().map(|file| read(&folder.join(PathBuf::from(file)))).transpose()
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("reading {}", file.display()))
}

/// The YAML a kubeconfig is made of: mappings, sequences, scalars (all kept as strings).
fn yaml(text: &str) -> Result<Value> {
    /// A collection that is still open, and in a mapping the key that waits for its value.
    enum Open {
        List(Vec<Value>),
        Map(Map<String, Value>, Option<String>),
    }
    let mut stack: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, _) = event.context("not YAML")?;
        let finished = match event {
            Event::SequenceStart(..) => {
                stack.push(Open::List(Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                stack.push(Open::Map(Map::new(), None));
                continue;
            }
            Event::Scalar(text, ..) => Value::String(text.into_owned()),
            Event::SequenceEnd | Event::MappingEnd => match stack.pop() {
                Some(Open::List(items)) => Value::Array(items),
                Some(Open::Map(entries, _)) => Value::Object(entries),
                None => bail!("not YAML"),
            },
            Event::Alias(_) => bail!("aliases are not supported"),
            _ => continue,
        };
        match stack.last_mut() {
            None => return Ok(finished),
            Some(Open::List(items)) => items.push(finished),
            Some(Open::Map(entries, key)) => match (key.take(), finished) {
                (Some(key), value) => drop(entries.insert(key, value)),
                (None, Value::String(text)) => *key = Some(text),
                (None, _) => bail!("a mapping key must be a scalar"),
            },
        }
    }
    bail!("an empty file")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_CONTEXTS: &str = "
apiVersion: v1
kind: Config
current-context: second
clusters:
- name: a
  cluster: {server: 'https://a:1', insecure-skip-tls-verify: true}
- cluster:
    certificate-authority-data: aGVsbG8=
    server: https://b:2/
  name: b
contexts:
- {name: first, context: {cluster: a, user: u}}
- {name: second, context: {cluster: b, user: v}}
users:
- name: u
  user: {}
- name: v
  user:
    token: s3cret
";

    #[test]
    fn the_current_context_decides() {
        let folder = std::env::temp_dir().join(format!("pintle-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("kubeconfig");
        std::fs::write(&file, TWO_CONTEXTS).unwrap();
        let args = CredentialArgs { kubeconfig: Some(file), ..CredentialArgs::default() };
        let credentials = Credentials::load(&args).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!(credentials.server.as_deref(), Some("https://b:2"));
        assert_eq!(credentials.ca_pem.as_deref(), Some(&b"hello"[..]));
        assert_eq!(credentials.token.as_deref(), Some("s3cret"));
        assert!(credentials.cert_pem.is_none());
    }

    #[test]
    fn what_is_no_kubeconfig_is_an_error() {
        for text in ["", "a: [", "{a: b}: c", "- &x 1\n- *x\n"] {
            assert!(yaml(text).is_err(), "{text:?}");
        }
    }
}
