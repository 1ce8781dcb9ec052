use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use super::*;

type Damage = fn(&Path);

const DAY: Duration = Duration::from_hours(24);

fn pki_paths(data_dir: &Path) -> PkiPaths {
    PkiPaths { data_dir: Some(data_dir.to_owned()), cert_dir: None }
}

fn names() -> ServerNames {
    ServerNames::new(&[IpAddr::from([192, 0, 2, 7])], IpAddr::from([10, 0, 0, 1]))
}

fn content_of(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir.join("pki")).expect("the directory is there");
    let file = |entry: io::Result<std::fs::DirEntry>| {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, std::fs::read(path).expect("readable"))
    };
    entries.map(file).collect()
}

/// The names of the files that are not as they were.
fn changed(before: &BTreeMap<String, Vec<u8>>, dir: &Path) -> Vec<String> {
    let after = content_of(dir);
    let differs =
        |(name, content): (String, Vec<u8>)| (before.get(&name) != Some(&content)).then_some(name);
    after.into_iter().filter_map(differs).collect()
}

#[test]
fn a_first_start_makes_everything_and_a_second_changes_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = dir.path().join("data");
    let pki = Pki::ensure(&pki_paths(&data), &names(), SystemTime::now()).expect("made");
    let before = content_of(&data);
    let expected = [
        "admin.crt",
        "admin.key",
        "apiserver.crt",
        "apiserver.key",
        "ca.crt",
        "ca.key",
        "front-proxy-ca.crt",
        "front-proxy-ca.key",
        "front-proxy-client.crt",
        "front-proxy-client.key",
        "sa.key",
        "sa.pub",
    ];
    assert_eq!(before.keys().collect::<Vec<_>>(), expected);
    for name in before.keys() {
        let mode = data.join("pki").join(name).metadata().expect("exists").permissions().mode();
        let public = matches!(name.rsplit_once('.'), Some((_, "crt" | "pub")));
        assert_eq!(mode & 0o777, if public { 0o644 } else { 0o600 }, "{name}");
    }
    let mode = data.join("pki").metadata().expect("exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    Pki::ensure(&pki_paths(&data), &names(), SystemTime::now()).expect("kept");
    assert_eq!(changed(&before, &data), Vec::<String>::new());

    let roots = |pem: &Pem| Roots::from_pem(&pem.read().expect("there")).expect("CA");
    let leaf =
        |pem: &Pem| CertificateDer::from_pem_slice(&pem.read().expect("there")).expect("a leaf");
    let now = SystemTime::now();
    let admin = verify_chain(&roots(&pki.ca_cert), &[leaf(&pki.admin_cert)], now).expect("good");
    assert_eq!(admin.common_name, "kubernetes-admin");
    assert_eq!(admin.organizations, ["system:masters"]);
    let front_roots = roots(&pki.front_proxy_ca_cert);
    let proxy = [leaf(&pki.front_proxy_client_cert)];
    assert_eq!(
        verify_chain(&front_roots, &proxy, now).expect("good").common_name,
        "front-proxy-client"
    );
    assert!(verify_chain(&roots(&pki.ca_cert), &proxy, now).is_err(), "two separate trusts");
    let sa_pub = pki.service_account_pub.read_text().expect("there");
    assert!(sa_pub.starts_with("-----BEGIN PUBLIC KEY-----"), "{sa_pub}");
}

#[test]
fn the_serving_certificate_has_every_name_of_the_server() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let pki = Pki::ensure(&pki_paths(dir.path()), &names(), SystemTime::now()).expect("made");
    let der = CertificateDer::from_pem_file(pki.serving_cert.path()).expect("certificate");
    let (_, parsed) = X509Certificate::from_der(&der).expect("parses");
    let expected = ServerNames {
        dns: SERVICE_NAMES.map(str::to_owned).into(),
        addresses: ["127.0.0.1", "::1", "10.0.0.1", "192.0.2.7"]
            .map(|address| address.parse().expect("an address"))
            .into(),
    };
    assert!(expected.are_in(&parsed));
    let more = ServerNames::new(&[IpAddr::from([192, 0, 2, 8])], IpAddr::from([10, 0, 0, 1]));
    assert!(!more.are_in(&parsed));
}

#[test]
fn only_what_has_to_be_renewed_is_renewed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let now = SystemTime::now();
    let other = ServerNames::new(&[IpAddr::from([192, 0, 2, 8])], IpAddr::from([10, 0, 0, 1]));
    Pki::ensure(&pki_paths(dir.path()), &names(), now).expect("made");
    let pki_dir = dir.path().join("pki");
    let leaves = [
        "admin.crt",
        "admin.key",
        "apiserver.crt",
        "apiserver.key",
        "front-proxy-client.crt",
        "front-proxy-client.key",
    ];
    let cases: [(&str, Damage, &ServerNames, SystemTime, &[&str]); 6] = [
        ("most of a year later", |_| {}, &names(), now + 300 * DAY, &[]),
        ("a new address", |_| {}, &other, now, &["apiserver.crt", "apiserver.key"]),
        ("shortly before the end", |_| {}, &other, now + 350 * DAY, &leaves),
        (
            "a lost certificate",
            |dir| std::fs::remove_file(dir.join("admin.crt")).expect("there"),
            &other,
            now + 350 * DAY,
            &["admin.crt", "admin.key"],
        ),
        (
            "a key of another certificate",
            |dir| {
                std::fs::copy(dir.join("sa.key"), dir.join("apiserver.key")).expect("there");
            },
            &other,
            now + 350 * DAY,
            &["apiserver.crt", "apiserver.key"],
        ),
        (
            "a lost public key",
            |dir| std::fs::remove_file(dir.join("sa.pub")).expect("there"),
            &other,
            now + 350 * DAY,
            &[],
        ),
    ];
    for (what, damage, names, at, expected) in cases {
        let before = content_of(dir.path());
        damage(&pki_dir);
        Pki::ensure(&pki_paths(dir.path()), names, at).expect(what);
        assert_eq!(changed(&before, dir.path()), expected, "{what}");
    }
}

#[tokio::test]
async fn a_running_server_renews_what_it_needs() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let long_ago = SystemTime::now() - 350 * DAY;
    let pki = Pki::ensure(&pki_paths(dir.path()), &names(), long_ago).expect("made");
    let old = pki.serving_cert.read().expect("there");
    let renewing = Pki::keep_renewed(pki_paths(dir.path()), names(), Duration::from_millis(1));
    let renewed = async {
        while pki.serving_cert.read().expect("there") == old {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = renewing => unreachable!("it never ends by itself"),
        result = tokio::time::timeout(Duration::from_secs(10), renewed) => result.expect("in time"),
    }
}

#[test]
fn a_ca_is_kept_whatever_happens_to_its_parts() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let now = SystemTime::now();
    let pki = Pki::ensure(&pki_paths(dir.path()), &names(), now).expect("made");
    let before = content_of(dir.path());

    std::fs::remove_file(pki.ca_cert.path()).expect("there");
    Pki::ensure(&pki_paths(dir.path()), &names(), now + DAY).expect("the key is enough");
    assert_eq!(changed(&before, dir.path()), ["ca.crt"], "signatures of the same key stay good");

    std::fs::remove_file(pki.ca_key.path()).expect("there");
    Pki::ensure(&pki_paths(dir.path()), &names(), now).expect("nothing has to be signed");
    let error = Pki::ensure(&pki_paths(dir.path()), &names(), now + 350 * DAY).expect_err("no key");
    assert!(
        error.to_string().ends_with("ca.key: missing, and a certificate has to be signed with it"),
        "{error}"
    );

    std::fs::copy(pki.service_account_key.path(), pki.ca_key.path()).expect("there");
    let error =
        Pki::ensure(&pki_paths(dir.path()), &names(), now + 350 * DAY).expect_err("wrong key");
    assert!(error.to_string().ends_with("does not belong to the CA certificate"), "{error}");

    let error =
        Pki::ensure(&pki_paths(dir.path()), &names(), now + 4000 * DAY).expect_err("too old");
    assert!(error.to_string().contains("the CA has expired"), "{error}");
}

#[test]
fn the_kubeconfig_follows_the_address() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let pki = Pki::ensure(&pki_paths(dir.path()), &names(), SystemTime::now()).expect("made");
    for port in [6443, 6443, 7443] {
        let server = format!("https://127.0.0.1:{port}");
        let path = pki.write_admin_kubeconfig(&server, None).expect("written").expect("a file");
        assert_eq!(path, dir.path().join("admin.kubeconfig"));
        let text = std::fs::read_to_string(&path).expect("there");
        assert!(text.contains(&format!("server: {server}\n")), "{text}");
        let data = |key: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(key)).expect(key);
            String::from_utf8(BASE64.decode(line.trim()).expect("base64")).expect("PEM")
        };
        let file = |pem: &Pem| pem.read_text().expect("there");
        assert_eq!(data("certificate-authority-data:"), file(&pki.ca_cert));
        assert_eq!(data("client-certificate-data:"), file(&pki.admin_cert));
        let key = data("client-key-data:");
        assert!(key.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{key}");
        assert_eq!(Some(key), sec1::from_pkcs8(&file(&pki.admin_key)));
        assert_eq!(path.metadata().expect("exists").permissions().mode() & 0o777, 0o600);
    }
    let text = pki.admin_kubeconfig("https://x", Some("another CA")).expect("made");
    assert!(text.contains(&BASE64.encode("another CA")), "{text}");
}

#[test]
fn the_serving_certificate_goes_where_it_is_wanted() {
    let (dir, certs) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("another"));
    let pki_paths = PkiPaths {
        data_dir: Some(dir.path().to_owned()),
        cert_dir: Some(certs.path().join("new")),
    };
    let pki = Pki::ensure(&pki_paths, &names(), SystemTime::now()).expect("made");
    assert_eq!(pki.serving_cert.path(), certs.path().join("new/apiserver.crt"));
    assert!(pki.serving_cert.path().exists() && pki.serving_key.path().exists());
    assert!(!dir.path().join("pki/apiserver.key").exists());
}

/// envtest's suites trust the certificate that they put into `--cert-dir`, and no other.
#[test]
fn a_serving_certificate_of_another_ca_is_served_as_it_is() {
    let [first, second, certs] = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
    let paths = |dir: &tempfile::TempDir| PkiPaths {
        data_dir: Some(dir.path().to_owned()),
        cert_dir: Some(certs.path().to_owned()),
    };
    let read = |pem: &Pem| pem.read_text().expect("there");
    let now = SystemTime::now();
    let other = Pki::ensure(&paths(&first), &names(), now).expect("made");
    assert!(!other.serving_cert_is_given);
    let (cert, key) = (read(&other.serving_cert), read(&other.serving_key));
    let pki = Pki::ensure(&paths(&second), &names(), now).expect("kept");
    assert!(pki.serving_cert_is_given);
    assert_eq!((read(&pki.serving_cert), read(&pki.serving_key)), (cert.clone(), key));
    // Its own one is renewed as before, there too.
    let late = now + LEAF_LIFETIME;
    let own = Pki::ensure(&paths(&first), &names(), late).expect("renewed");
    assert!(!own.serving_cert_is_given);
    assert_ne!(read(&own.serving_cert), cert);
}

/// kube-apiserver without `--cert-dir` and its like writes nothing either.
#[test]
fn without_a_data_directory_nothing_is_written() {
    let certs = tempfile::tempdir().expect("a directory");
    let now = SystemTime::now();
    let paths = PkiPaths { data_dir: None, cert_dir: None };
    let pki = Pki::ensure(&paths, &names(), now).expect("made");
    for pem in [&pki.ca_cert, &pki.ca_key, &pki.serving_cert, &pki.service_account_key] {
        assert!(matches!(pem, Pem::Memory(_)), "{pem}");
    }
    assert!(!Path::new(MEMORY).exists());
    assert_eq!(pki.write_admin_kubeconfig("https://x", None).expect("nothing to do"), None);
    let kubeconfig = pki.admin_kubeconfig("https://x", None).expect("made");
    assert!(kubeconfig.contains("client-key-data: "), "{kubeconfig}");
    assert!(!pki.serving_cert_has_expired(now));
    assert!(pki.serving_cert_has_expired(now + LEAF_LIFETIME + DAY));

    // The serving certificate alone goes to --cert-dir, with the CA that a client has to trust.
    let paths = PkiPaths { cert_dir: Some(certs.path().to_owned()), ..paths };
    let pki = Pki::ensure(&paths, &names(), now).expect("made");
    let text = std::fs::read_to_string(certs.path().join("apiserver.crt")).expect("written");
    assert!(text.ends_with(&pki.ca_cert.read_text().expect("there")), "{text}");
    assert_eq!(std::fs::read_dir(certs.path()).expect("readable").count(), 2);
    let again = Pki::ensure(&paths, &names(), now).expect("kept");
    assert!(again.serving_cert_is_given, "as kube-apiserver, it serves what it finds");
}

#[test]
fn certificates_and_keys_can_be_used_before_their_files_are_written() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let paths = pki_paths(dir.path());
    let (pki, files) = Pki::prepare(&paths, &names(), SystemTime::now()).expect("made");
    let parts = [&pki.ca_cert, &pki.serving_cert, &pki.serving_key, &pki.service_account_key];
    let early = parts.map(|part| part.read_text().expect("in memory"));
    assert!(content_of(dir.path()).is_empty(), "nothing is written yet");
    assert!(!files.is_empty());
    files.write().expect("written");
    for (part, early) in parts.into_iter().zip(early) {
        assert_eq!(part.read_text().expect("a file"), early, "{part}");
        assert_eq!(std::fs::read_to_string(part.path()).expect("a file"), early, "{part}");
    }
    // From now on the file counts.
    std::fs::write(pki.serving_cert.path(), "renewed").expect("writable");
    assert_eq!(pki.serving_cert.read_text().expect("a file"), "renewed");
    let (_, files) =
        Pki::prepare(&pki_paths(&dir.path().join("other")), &names(), SystemTime::now())
            .expect("made");
    std::fs::remove_dir_all(dir.path().join("other")).expect("removable");
    let error = files.write().expect_err("the directory is gone").to_string();
    assert!(error.contains("other/pki"), "{error}");
}
