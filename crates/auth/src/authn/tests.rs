//! The order of the authenticators, and what a credential that is not good does to the next one.

use super::*;

fn authenticator() -> Authenticator {
    Authenticator {
        tokens: Some(token_file::TokenFile::parse("good,jane,1,dev").unwrap()),
        audiences: vec![Str::new("https://this")],
        anonymous: Anonymous { enabled: true, paths: Vec::new() },
        ..Authenticator::default()
    }
}

fn named(name: &str) -> User {
    User { name: Str::new(name), ..User::default() }
}

const CERTIFICATE: x509::Certificate<'static> = x509::Certificate {
    common_name: "of-certificate",
    organizations: &[],
    uid: "",
    credential_id: "",
};

#[tokio::test]
async fn the_first_good_credential_counts_and_a_bad_one_is_never_anonymous() {
    let authenticator = authenticator();
    let bad_proxy = || Some(Err("not in the allowed list".to_owned()));
    let none = Credentials { path: "/api", ..Credentials::default() };
    let cases = [
        (none, Ok("system:anonymous")),
        (Credentials { bearer: Some("good"), ..Credentials::default() }, Ok("jane")),
        (
            Credentials { bearer: Some("bad"), ..Credentials::default() },
            Err("invalid bearer token"),
        ),
        (
            Credentials {
                front_proxy: Some(Ok(named("of-proxy"))),
                certificate: Some(CERTIFICATE),
                bearer: Some("good"),
                ..Credentials::default()
            },
            Ok("of-proxy"),
        ),
        (
            Credentials {
                front_proxy: bad_proxy(),
                certificate: Some(CERTIFICATE),
                bearer: Some("bad"),
                ..Credentials::default()
            },
            Ok("of-certificate"),
        ),
        (
            Credentials {
                certificate_error: Some("x509: expired"),
                bearer: Some("good"),
                ..Credentials::default()
            },
            Ok("jane"),
        ),
        (
            Credentials { certificate_error: Some("x509: expired"), ..Credentials::default() },
            Err("x509: expired"),
        ),
        (
            Credentials {
                front_proxy: bad_proxy(),
                certificate_error: Some("x509: expired"),
                bearer: Some("bad"),
                ..Credentials::default()
            },
            Err("[not in the allowed list, x509: expired, invalid bearer token]"),
        ),
    ];
    for (credentials, expected) in cases {
        let case = format!("{credentials:?}");
        let user = authenticator.authenticate(credentials, &mut TokenNotes::default()).await;
        let user = user.map(|user| user.name.to_string()).map_err(|why| why.0);
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(user, expected, "{case}");
    }
}

#[tokio::test]
async fn users_are_authenticated_and_anonymous_ones_are_not() {
    let authenticator = authenticator();
    let mut notes = TokenNotes::default();
    let good = Credentials { bearer: Some("good"), ..Credentials::default() };
    let user = authenticator.authenticate(good, &mut notes).await;
    assert_eq!(user.unwrap().groups, ["dev", "system:authenticated"]);
    let user = authenticator.authenticate(Credentials::default(), &mut notes).await.unwrap();
    assert_eq!(user.groups, ["system:unauthenticated"]);
}

#[tokio::test]
async fn anonymous_requests_can_be_limited_to_paths() {
    let only = |paths: &[&str]| Authenticator {
        anonymous: Anonymous {
            enabled: true,
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        },
        ..Authenticator::default()
    };
    let authenticator = only(&["/livez", "/readyz"]);
    for (path, allowed) in [("/livez", true), ("/livez/ping", false), ("/api", false)] {
        let credentials = Credentials { path, ..Credentials::default() };
        let user = authenticator.authenticate(credentials, &mut TokenNotes::default()).await;
        assert_eq!(user.is_ok(), allowed, "{path}");
    }
    let off = Authenticator::default();
    let credentials = Credentials { path: "/livez", ..Credentials::default() };
    assert!(off.authenticate(credentials, &mut TokenNotes::default()).await.is_err());
}

#[tokio::test]
async fn a_token_of_a_file_is_for_the_audiences_of_this_server() {
    let authenticator = authenticator();
    let found = |audiences: &'static [&'static str]| {
        let authenticator = &authenticator;
        async move {
            let audiences: Vec<Str> = audiences.iter().copied().map(Str::new).collect();
            let found = authenticator.token("good", &audiences, &mut TokenNotes::default()).await;
            let found = found.unwrap();
            found.map(|found| found.audiences.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
    };
    assert_eq!(found(&[]).await, Some(vec![]));
    assert_eq!(found(&["vault", "https://this"]).await, Some(vec!["https://this".to_owned()]));
    assert_eq!(found(&["vault"]).await, None);
}
