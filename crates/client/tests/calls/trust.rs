use std::path::Path;

use client::{Call, CertificateMetrics, Error, HostPort, Identity, Pem, Secret, Tls, Trust};
use rcgen::{GeneralSubtree, NameConstraints};
use rustls::CertificateError;

use crate::{
    client, get,
    server::{Ca, HTTP1, HTTP2, Pair, TlsServer},
    text, trusting,
};

#[derive(Debug, PartialEq)]
enum Outcome {
    Trusted,
    UnknownIssuer,
    WrongName,
}

async fn outcome(tls: Tls, call: Call) -> Outcome {
    match client(tls).call(call).await {
        Ok(_) => Outcome::Trusted,
        Err(Error::Tls { source: rustls::Error::InvalidCertificate(why), .. }) => match why {
            CertificateError::UnknownIssuer => Outcome::UnknownIssuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Outcome::WrongName
            }
            other => panic!("{other}"),
        },
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_server_is_trusted_by_its_ca_and_its_name() {
    let (ca, other) = (Ca::new(), Ca::new());
    let by_ip = TlsServer::start(&ca.sign(&["127.0.0.1"]), HTTP2, None).await;
    let by_name = TlsServer::start(&ca.sign(&["hook.ns.svc"]), HTTP2, None).await;
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let own = Pair { certificate: own.cert.pem(), key: own.signing_key.serialize_pem() };
    let self_signed = TlsServer::start(&own, HTTP2, None).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.pem");
    std::fs::write(&file, ca.pem()).unwrap();

    let bundle = |ca: &Ca| Trust::Bundle(ca.pem());
    let both = [other.pem(), ca.pem()].concat();
    let cases = [
        (bundle(&ca), None, &by_ip, Outcome::Trusted),
        (Trust::File(file), None, &by_ip, Outcome::Trusted),
        (Trust::Bundle(both), None, &by_ip, Outcome::Trusted),
        (bundle(&other), None, &by_ip, Outcome::UnknownIssuer),
        (Trust::System, None, &by_ip, Outcome::UnknownIssuer),
        (bundle(&ca), None, &by_name, Outcome::WrongName),
        (bundle(&ca), Some("hook.ns.svc"), &by_name, Outcome::Trusted),
        (bundle(&ca), Some("other.ns.svc"), &by_name, Outcome::WrongName),
        (Trust::Insecure, None, &by_name, Outcome::Trusted),
        // A certificate that is given is trusted itself, for its name.
        (Trust::Bundle(own.certificate.clone().into()), None, &self_signed, Outcome::Trusted),
        (
            Trust::Bundle(own.certificate.clone().into()),
            Some("a.b"),
            &self_signed,
            Outcome::WrongName,
        ),
    ];
    for (trust, server_name, server, expected) in cases {
        let shown = format!("{trust:?} {server_name:?}");
        let tls = Tls { trust, server_name: server_name.map(str::to_owned), ..Tls::default() };
        assert_eq!(outcome(tls, get(&server.url("/"))).await, expected, "{shown}");
    }
}

/// Case H21: only subject alternative names count.
#[tokio::test]
async fn a_common_name_is_no_name_of_a_server() {
    let ca = Ca::new();
    let server = TlsServer::start(&ca.sign_common_name("hook.ns.svc"), HTTP2, None).await;
    let registry = prometheus::Registry::new();
    client::register_metrics(&registry).expect("registered once");
    let counted = || {
        let families = registry.gather();
        let mut counters = families.iter().filter(|own| own.name() == MISSING_SAN);
        counters.next().map(|own| own.get_metric()[0].get_counter().get_value())
    };
    // Only where the common name is the name that is called, as in Go.
    for (name, expected) in [(None, 0.0), (Some("hook.ns.svc".to_owned()), 1.0)] {
        let certificate_metrics = CertificateMetrics::Webhooks;
        let trust = Trust::Bundle(ca.pem());
        let tls = Tls { trust, server_name: name, certificate_metrics, ..Tls::default() };
        assert_eq!(outcome(tls, get(&server.url("/"))).await, Outcome::WrongName);
        assert_eq!(counted(), Some(expected));
    }
}

const MISSING_SAN: &str = "apiserver_webhooks_x509_missing_san_total";

type NameCase = (fn() -> NameConstraints, &'static [&'static str], &'static str, bool);

/// Case H20: a CA vouches only for names within its constraints, wildcards and any case included.
#[tokio::test]
async fn name_constraints_of_a_ca_bind_all_names() {
    fn permitted() -> NameConstraints {
        let permitted_subtrees = vec![GeneralSubtree::DnsName("inside.svc".to_owned())];
        NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() }
    }
    fn excluded() -> NameConstraints {
        let excluded_subtrees = vec![GeneralSubtree::DnsName("outside.svc".to_owned())];
        NameConstraints { permitted_subtrees: Vec::new(), excluded_subtrees }
    }
    // The CA's constraints, the names of the certificate, the name that is called, whether it is trusted.
    let cases: [NameCase; 9] = [
        (permitted, &["a.inside.svc"], "a.inside.svc", true),
        (permitted, &["*.inside.svc"], "a.inside.svc", true),
        (permitted, &["a.outside.svc"], "a.outside.svc", false),
        (permitted, &["A.Outside.SVC"], "a.outside.svc", false),
        (permitted, &["*.outside.svc"], "a.outside.svc", false),
        // One name outside spoils the others.
        (permitted, &["a.inside.svc", "a.outside.svc"], "a.inside.svc", false),
        (excluded, &["a.inside.svc"], "a.inside.svc", true),
        (excluded, &["A.OUTSIDE.svc"], "a.outside.svc", false),
        (excluded, &["*.outside.svc"], "a.outside.svc", false),
    ];
    for (constraints, names, called, expected) in cases {
        let ca = Ca::constrained(Some(constraints()));
        let server = TlsServer::start(&ca.sign(names), HTTP2, None).await;
        let (trust, server_name) = (Trust::Bundle(ca.pem()), Some(called.to_owned()));
        let tls = Tls { trust, server_name, ..Tls::default() };
        let answered = client(tls).call(get(&server.url("/"))).await;
        assert_eq!(answered.is_ok(), expected, "{names:?} called {called}: {:?}", answered.err());
    }
}

/// What a service is: dialed by its address, called and trusted by its name.
#[tokio::test]
async fn a_call_can_go_to_another_address_than_its_url_says() {
    let ca = Ca::new();
    for (alpn, version) in [(HTTP1, "HTTP/1.1"), (HTTP2, "HTTP/2.0")] {
        let server = TlsServer::start(&ca.sign(&["hook.ns.svc"]), alpn, None).await;
        let (host, port) = (server.address.ip().to_string(), server.address.port());
        let call = Call {
            connect_to: Some(HostPort { host, port }),
            ..get("https://hook.ns.svc:443/convert?timeout=30s")
        };
        let seen = text(&trusting(Trust::Bundle(ca.pem())), call).await;
        let expected = format!("{version} GET /convert?timeout=30s host=hook.ns.svc:443 ");
        assert!(seen.starts_with(&expected), "{seen}");
        assert!(seen.contains("accept-encoding=identity"), "{seen}");
    }
}

fn identity(pair: &Pair) -> Identity {
    let bytes = |pem: &str| Pem::Bytes(Secret::new(pem.as_bytes().to_vec()));
    Identity { certificate: bytes(&pair.certificate), key: bytes(&pair.key) }
}

#[tokio::test]
async fn a_client_certificate_is_presented() {
    let ca = Ca::new();
    let server = TlsServer::start(&ca.sign(&["127.0.0.1"]), HTTP2, Some(&ca)).await;
    let me = identity(&ca.sign(&["me"]));
    let with = |identity| Tls { trust: Trust::Bundle(ca.pem()), identity, ..Tls::default() };
    let seen = text(&client(with(Some(me.clone()))), get(&server.url("/"))).await;
    assert!(seen.contains("client=me "), "{seen}");
    let seen = text(&client(with(None)), get(&server.url("/"))).await;
    assert!(seen.contains("client= "), "{seen}");
    let shown = format!("{:?}", with(Some(me)));
    assert!(shown.contains("Bytes([redacted])"), "{shown}");
}

#[tokio::test]
async fn a_rotated_client_certificate_is_presented_on_a_new_connection() {
    let ca = Ca::new();
    let server = TlsServer::start(&ca.sign(&["127.0.0.1"]), HTTP2, Some(&ca)).await;
    let dir = tempfile::tempdir().unwrap();
    let replace = |name: &str, text: &str| {
        let new = dir.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, dir.path().join(name)).unwrap();
    };
    let (first, second) = (ca.sign(&["first"]), ca.sign(&["second"]));
    replace("crt", &first.certificate);
    replace("key", &first.key);
    let file = |name: &str| Pem::File(Path::join(dir.path(), name));
    let identity = Some(Identity { certificate: file("crt"), key: file("key") });
    let client = client(Tls { trust: Trust::Bundle(ca.pem()), identity, ..Tls::default() });
    let url = server.url("/");
    assert!(text(&client, get(&url)).await.contains("client=first "));
    // The key does not fit yet: the old pair goes on.
    replace("crt", &second.certificate);
    assert!(text(&client, get(&url)).await.contains("client=first "));
    assert_eq!(server.accepted(), 1);
    replace("key", &second.key);
    assert!(text(&client, get(&url)).await.contains("client=second "));
    assert_eq!(server.accepted(), 2);
}
