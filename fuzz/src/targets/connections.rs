//! What a client sends before it is authenticated, or beside its requests: tokens, keys, WebSocket frames.

use std::{path::Path, sync::LazyLock};

use auth::authn::jwt::{PublicKey, SigningKey, Unverified};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use codec::json::{self, DecodeOptions};
use meta::{Value, value};

use super::{Target, as_text, ending};

pub(super) const JWT: Target = Target {
    name: "jwt",
    seeds: |_| {
        let token = KEY.token(&claims()).expect("signs");
        let parts = token.split('.').map(|part| {
            let part = URL_SAFE_NO_PAD.decode(part).expect("is base64");
            // Signatures are not text; what comes of them is another signature.
            String::from_utf8_lossy(&part).into_owned()
        });
        let parts: Vec<String> = parts.collect();
        vec![token.into_bytes(), parts.join("\n").into_bytes()]
    },
    words: &[
        ".",
        "\n",
        "\"alg\":\"none\"",
        "\"alg\":\"ES256\"",
        "\"kid\":\"\"",
        "\"crit\":[]",
        "{}",
        "\"iss\":",
        "=",
        "A",
        "eyJ",
    ],
    run: run_jwt,
};
pub(super) const DER: Target = Target {
    name: "der",
    seeds: |_| SEEDS.iter().map(|seed| seed.to_vec()).collect(),
    words: &["0", "\u{2}\u{1}", "\u{3}", "\u{4}", "\u{6}", "\u{30}\u{0}", "\u{7f}", "\u{0}"],
    run: run_der,
};
pub(super) const WEBSOCKET: Target = Target {
    name: "websocket",
    seeds: |_| {
        vec![
            b"\x81\x85\x01\x02\x03\x04hello".to_vec(),
            b"\x89\x84\x00\x00\x00\x00ping\x82\xfe\x00\x80\x01\x02\x03\x04".to_vec(),
            b"\x82\xff\x00\x00\x00\x00\x00\x00\x00\x02\x01\x02\x03\x04ab\x88\x80\x01\x02\x03\x04"
                .to_vec(),
            b"\x81\x05hello".to_vec(),
        ]
    },
    words: &["\u{7f}", "\u{7e}", "\u{0}", "\t"],
    run: run_websocket,
};

pub(super) const KUBECONFIG: Target = Target {
    name: "kubeconfig",
    seeds: |_| {
        let certificate = STANDARD.encode(pem("CERTIFICATE", SEEDS[0]));
        let key = STANDARD.encode(pem("PRIVATE KEY", SEEDS[1]));
        let users = [
            format!("{{client-certificate-data: {certificate}, client-key-data: {key}}}"),
            "{token: t}".to_owned(),
            "{username: u, password: p}".to_owned(),
            "{}".to_owned(),
        ];
        let file = |user: &String| {
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: \
                 {{cluster: k, user: u}}\nclusters:\n- name: k\n  cluster:\n    server: \
                 https://localhost:1/a\n    certificate-authority-data: {certificate}\nusers:\n- name: \
                 u\n  user: {user}\n"
            )
        };
        users.iter().map(|user| file(user).into_bytes()).collect()
    },
    words: &[
        "current-context: ",
        "insecure-skip-tls-verify: true",
        "tls-server-name: a",
        "proxy-url: http://a",
        "exec: {}",
        "https://",
        "[::1]",
        "\n- name: ",
        "null",
        "\"\"",
        ": ",
    ],
    run: run_kubeconfig,
};

pub(super) const WEBSOCKET_MESSAGES: Target = Target {
    name: "websocket_messages",
    seeds: WEBSOCKET.seeds,
    words: WEBSOCKET.words,
    run: run_websocket_messages,
};
pub(super) const SPDY: Target = Target {
    name: "spdy",
    seeds: |_| {
        let (mut encoder, mut frames) = (spdy::Encoder::default(), bytes::BytesMut::new());
        encoder.syn_stream(1, &[("streamtype", "error")], &mut frames);
        encoder.syn_reply(1, &[], &mut frames);
        let opened = frames.to_vec();
        spdy::Encoder::data_head(1, 5, true, &mut frames);
        frames.extend_from_slice(b"hello");
        spdy::Encoder::ping(2, &mut frames);
        spdy::Encoder::rst_stream(1, spdy::Reset::Cancel, &mut frames);
        spdy::Encoder::go_away(&mut frames);
        let settings =
            b"\x80\x03\x00\x04\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x00\x00\x07\x00\x01\x00\x00";
        vec![opened, frames.to_vec(), settings.to_vec()]
    },
    words: &["\u{0}", "\u{1}", "\u{3}", "\u{7f}"],
    run: run_spdy,
};

/// Keys that sign nothing outside of these targets.
const SEEDS: [&[u8]; 7] = [
    include_bytes!("../../testdata/p256.cert.der"),
    include_bytes!("../../testdata/p256.pkcs8.der"),
    include_bytes!("../../testdata/p256.public.der"),
    include_bytes!("../../testdata/p256.sec1.der"),
    include_bytes!("../../testdata/rsa.pkcs1.der"),
    include_bytes!("../../testdata/rsa.pkcs8.der"),
    include_bytes!("../../testdata/rsa.public.der"),
];
const SECTIONS: [&str; 5] =
    ["PUBLIC KEY", "CERTIFICATE", "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"];

static KEY: LazyLock<SigningKey> = LazyLock::new(|| {
    SigningKey::from_pem(pem("PRIVATE KEY", SEEDS[1]).as_bytes()).expect("is a key")
});

fn claims() -> Value {
    value!({"iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:a:b"})
}

fn pem(section: &str, der: &[u8]) -> String {
    format!("-----BEGIN {section}-----\n{}\n-----END {section}-----\n", STANDARD.encode(der))
}

/// The input is a token, or the three parts of one, decoded and in lines.
fn run_jwt(input: &[u8]) -> String {
    let text = as_text(input);
    let encoded = input.split(|byte| *byte == b'\n').map(|part| URL_SAFE_NO_PAD.encode(part));
    let tokens = [text.into_owned(), encoded.collect::<Vec<_>>().join(".")];
    let mut endings = String::new();
    for token in tokens {
        let ended = match Unverified::parse(&token) {
            None => "not a token".to_owned(),
            Some(parsed) => {
                let issuer = !parsed.issuer().is_empty();
                match parsed.verify(std::slice::from_ref(KEY.public())) {
                    Ok(found) => {
                        assert_eq!(found, claims(), "only what was signed is verified");
                        "verified".to_owned()
                    }
                    Err(error) => format!("{issuer} {}", ending(error)),
                }
            }
        };
        endings.push_str(&ended);
        endings.push('|');
    }
    endings
}

fn run_der(input: &[u8]) -> String {
    let mut endings = String::new();
    for section in SECTIONS {
        let text = pem(section, input);
        let ended = match PublicKey::all_from_pem(text.as_bytes()) {
            Ok(keys) => {
                for key in &keys {
                    let jwk = key.to_jwk();
                    let decoded = json::decode_any(jwk.as_bytes(), DecodeOptions { strict: true });
                    let decoded = decoded.expect("a JWK is JSON").value;
                    assert_eq!(decoded.str_at(&["kid"]), key.id());
                }
                format!("{} keys", keys.len())
            }
            Err(error) => ending(error),
        };
        endings.push_str(&ended);
        if let Ok(key) = SigningKey::from_pem(text.as_bytes()) {
            endings.push_str(key.public().algorithm());
        }
        endings.push('|');
    }
    endings
}

fn run_websocket_messages(input: &[u8]) -> String {
    let whole = serve::websocket::decode_messages([input]);
    assert_eq!(whole, serve::websocket::decode_messages(input.chunks(1)), "byte by byte");
    assert_eq!(
        whole,
        serve::websocket::decode_messages(input.chunks(3)),
        "in pieces of three bytes"
    );
    let shown: Vec<_> = whole.iter().take(4).map(ending).collect();
    format!("{} {shown:?}", whole.len().min(8))
}

fn run_spdy(input: &[u8]) -> String {
    let whole = spdy::decode_frames([input]);
    assert_eq!(whole, spdy::decode_frames(input.chunks(1)), "byte by byte");
    assert_eq!(whole, spdy::decode_frames(input.chunks(3)), "in pieces of three bytes");
    let shown: Vec<_> = whole.iter().take(4).map(ending).collect();
    format!("{} {shown:?}", whole.len().min(8))
}

/// What arrives does not depend on the pieces in which it arrives.
fn run_websocket(input: &[u8]) -> String {
    let whole = serve::websocket::decode_frames([input]);
    let bytes = serve::websocket::decode_frames(input.chunks(1));
    assert_eq!(whole, bytes, "byte by byte");
    let thirds = serve::websocket::decode_frames(input.chunks(3));
    assert_eq!(whole, thirds, "in pieces of three bytes");
    let shown: Vec<_> = whole.iter().take(4).map(ending).collect();
    format!("{} {shown:?}", whole.len().min(8))
}

/// A file of an administrator; what is not understood is an error and never ignored.
fn run_kubeconfig(input: &[u8]) -> String {
    // Webhooks take the users of a file without a server.
    if let Ok(users) = client::KubeconfigUsers::parse(input, Path::new("kubeconfig")) {
        let shown = format!("{users:?}");
        assert!(!shown.contains("BEGIN PRIVATE KEY"), "secrets are not shown");
    }
    match client::Kubeconfig::parse(input, Path::new("kubeconfig")) {
        Err(error) => ending(error),
        Ok(kubeconfig) => {
            let scheme = kubeconfig.server.scheme_str();
            assert!(matches!(scheme, Some("http" | "https")), "{}", kubeconfig.server);
            let shown = format!("{kubeconfig:?}");
            assert!(!shown.contains("BEGIN PRIVATE KEY"), "secrets are not shown");
            "read".to_owned()
        }
    }
}
