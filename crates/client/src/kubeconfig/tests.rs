use super::*;

/// A file with one cluster, user and context, and what it is read as; or the error, without the
/// directory.
fn read(directory: &Path, cluster: &str, user: &str) -> String {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    );
    shown(directory, &text)
}

fn shown(directory: &Path, text: &str) -> String {
    let path = directory.join("config");
    std::fs::write(&path, text).unwrap();
    let directory = format!("{}/", directory.display());
    let shown = match Kubeconfig::load(&path) {
        Ok(Kubeconfig { server, tls, credentials }) => {
            let trust = match tls.trust {
                Trust::Bundle(_) => "Bundle".to_owned(),
                other => format!("{other:?}"),
            };
            let name = tls.server_name.unwrap_or_default();
            let identity = tls.identity.map(|id| format!("{:?}+{:?}", id.certificate, id.key));
            format!("{server} {trust} {name} {} {credentials:?}", identity.unwrap_or_default())
        }
        Err(error) => error.to_string(),
    };
    assert!(!shown.contains("hunter2"), "{shown}");
    shown.replace(&directory, "")
}

/// A directory with what kubeconfigs refer to, and `certificate-authority-data` and the like.
struct Files {
    directory: tempfile::TempDir,
    certificate: String,
    key: String,
}

fn files() -> Files {
    let directory = tempfile::tempdir().unwrap();
    let own = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["b".to_owned()]).unwrap();
    let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("ca.pem", &certificate);
    write("client.pem", &certificate);
    write("client.key", &key);
    write("other.key", &other.signing_key.serialize_pem());
    write("token", "hunter2\n");
    write("empty", "");
    let encode = |text: String| codec::base64::encode(text.as_bytes());
    Files { directory, certificate: encode(certificate), key: encode(key) }
}

#[test]
fn clusters_say_where_the_server_is_and_who_is_trusted() {
    let Files { directory, certificate, .. } = files();
    let data = format!("server: 'https://a', certificate-authority-data: {certificate}");
    let cases = [
        ("server: 'https://a:1/b'", "https://a:1/b System   None"),
        ("server: 'http://a'", "http://a/ System   None"),
        ("server: 'a:1'", "http://a:1/ System   None"),
        ("server: 'a:1', certificate-authority: ca.pem", r#"https://a:1/ File("ca.pem")   None"#),
        (data.as_str(), "https://a/ Bundle   None"),
        (
            "server: 'https://a', insecure-skip-tls-verify: true, tls-server-name: b",
            "https://a/ Insecure b  None",
        ),
        ("server: 'https://a', proxy-url: '', extensions: []", "https://a/ System   None"),
        ("", "config: clusters[c].cluster.server: required"),
        ("server: 3", "config: clusters[c].cluster.server: must be a string"),
        (
            "server: 'ftp://a'",
            "config: clusters[c].cluster.server: the scheme must be https or http",
        ),
        ("server: 'https://'", "config: clusters[c].cluster.server: it cannot be parsed"),
        (
            "server: 'https://me:hunter2@a'",
            "config: clusters[c].cluster.server: user and password in a URL are not supported",
        ),
        (
            "server: 'https://a', proxy-url: 'http://p'",
            "config: clusters[c].cluster.proxy-url: not supported",
        ),
        (
            "server: 'https://a', certificate-autority: x",
            "config: clusters[c].cluster.certificate-autority: unknown field",
        ),
        (
            "server: 'https://a', certificate-authority: none.pem",
            "config: clusters[c].cluster.certificate-authority: none.pem: No such file or directory \
             (os error 2)",
        ),
        (
            "server: 'https://a', certificate-authority: empty",
            "config: clusters[c].cluster.certificate-authority: empty: no certificate could be parsed",
        ),
        (
            "server: 'https://a', certificate-authority-data: '%'",
            "config: clusters[c].cluster.certificate-authority-data: not valid base64",
        ),
        (
            "server: 'https://a', certificate-authority-data: YQ==, certificate-authority: ca.pem",
            "config: clusters[c].cluster.certificate-authority: cannot be used together with \
             certificate-authority-data",
        ),
        (
            "server: 'https://a', insecure-skip-tls-verify: true, certificate-authority: ca.pem",
            "config: clusters[c].cluster.certificate-authority: cannot be used together with \
             insecure-skip-tls-verify",
        ),
        (
            "server: 'https://a', insecure-skip-tls-verify: 'yes'",
            "config: clusters[c].cluster.insecure-skip-tls-verify: must be true or false",
        ),
        (
            "server: 'https://a', tls-server-name: 'a b'",
            r#"config: clusters[c].cluster.tls-server-name: "a b" is not a valid TLS server name"#,
        ),
    ];
    for (cluster, expected) in cases {
        assert_eq!(read(directory.path(), cluster, ""), expected, "{cluster}");
    }
}

#[test]
fn users_say_who_calls() {
    let Files { directory, certificate, key } = files();
    let data = format!("client-certificate-data: {certificate}, client-key-data: {key}");
    let cases = [
        ("", "https://a/ System   None"),
        ("token: hunter2", "https://a/ System   Bearer([redacted])"),
        ("tokenFile: token", r#"https://a/ System   BearerFile("token")"#),
        ("tokenFile: token, token: x", r#"https://a/ System   BearerFile("token")"#),
        (
            "username: me, password: hunter2",
            r#"https://a/ System   Basic { username: "me", password: [redacted] }"#,
        ),
        (
            "client-certificate: client.pem, client-key: client.key",
            r#"https://a/ System  File("client.pem")+File("client.key") None"#,
        ),
        (data.as_str(), "https://a/ System  Bytes([redacted])+Bytes([redacted]) None"),
        (
            "tokenFile: none",
            "config: users[u].user.tokenFile: none: No such file or directory (os error 2)",
        ),
        ("tokenFile: empty", "config: users[u].user.tokenFile: the bearer token in empty is empty"),
        (
            r#"token: "hunter2\n""#,
            "config: users[u].user.token: the bearer token cannot be sent in a header",
        ),
        (
            "username: me, password: hunter2, token: hunter2",
            "config: users[u].user.username: cannot be used together with token",
        ),
        ("password: hunter2", "config: users[u].user.username: required where password is given"),
        (
            "client-certificate: client.pem",
            "config: users[u].user.client-key: required where client-certificate is given",
        ),
        (
            "client-key: client.key",
            "config: users[u].user.client-certificate: required where client-key is given",
        ),
        (
            "client-certificate: client.pem, client-key: none",
            "config: users[u].user.client-key: none: No such file or directory (os error 2)",
        ),
        (
            "client-certificate: client.pem, client-key: empty",
            "config: users[u].user.client-key: client key, empty: no items found",
        ),
        (
            "client-certificate: empty, client-key: client.key",
            "config: users[u].user.client-certificate: empty: no certificate could be parsed",
        ),
        (
            "client-certificate: client.pem, client-key: other.key",
            "config: users[u].user.client-certificate: client certificate, client.pem, with client \
             key, other.key: keys may not be consistent: KeyMismatch",
        ),
        (
            "client-certificate: client.pem, client-certificate-data: YQ==",
            "config: users[u].user.client-certificate: cannot be used together with \
             client-certificate-data",
        ),
        ("exec: {command: x}", "config: users[u].user.exec: not supported"),
        ("auth-provider: {name: x}", "config: users[u].user.auth-provider: not supported"),
        ("as: x", "config: users[u].user.as: not supported"),
        ("tokenfile: x", "config: users[u].user.tokenfile: unknown field"),
    ];
    for (user, expected) in cases {
        assert_eq!(read(directory.path(), "server: 'https://a'", user), expected, "{user}");
    }
}

#[test]
fn the_current_context_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        ("", "config: must be an object"),
        ("[]", "config: must be an object"),
        ("a: [", "config: yaml: line 1: did not find expected node content"),
        ("kind: Config\nkind: Config", r#"config: line 2: key "kind" already set in map"#),
        ("kind: Pod", r#"config: kind: must be "Config""#),
        ("clusters: []", "config: current-context: required"),
        ("current-context: x", "config: current-context: no entry has this name"),
        (
            "{current-context: x, contexts: [{name: x}]}",
            "config: contexts[x].context: must be an object",
        ),
        (
            "{current-context: x, contexts: [{name: x, context: {cluster: c}}]}",
            "config: contexts[x].context.cluster: no entry has this name",
        ),
        (
            "{current-context: x, contexts: [{name: x, context: {}}, {name: x, context: {}}]}",
            "config: contexts[x].name: more than one entry has this name",
        ),
        (
            "{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}], \
             clusters: [{name: c, cluster: {server: a}}]}",
            "config: contexts[x].context.user: no entry has this name",
        ),
        (
            "{preferences: {}, current-context: x, contexts: [{name: x, context: {cluster: c, namespace: n}}], \
             clusters: [{name: c, cluster: {server: a}}, {name: d}]}",
            "http://a/ System   None",
        ),
        ("{current-contxt: x}", "config: current-contxt: unknown field"),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(directory.path(), text), expected, "{text}");
    }
    let missing = Kubeconfig::load(Path::new("/nowhere/config")).unwrap_err();
    assert!(missing.to_string().contains("/nowhere/config: No such file"), "{missing}");
}
