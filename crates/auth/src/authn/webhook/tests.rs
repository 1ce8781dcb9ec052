//! The token webhook against servers that answer well, badly, or not at all.

use super::*;
use crate::testing::{Answer, TestServer};

const VERSION: &str = "authentication.k8s.io/v1";

fn review(status: &str) -> String {
    format!(r#"{{"kind":"TokenReview","apiVersion":"{VERSION}","status":{status}}}"#)
}

fn webhook(server: &TestServer, ttl: Duration) -> TokenWebhook {
    let (version, kind) = (VERSION.to_owned(), "TokenReview");
    let reviews = ReviewClient::load(&server.kubeconfig(), version, kind, CALL_TIMEOUT, None);
    let (reviews, own) = (reviews.unwrap().without_pauses(), vec![Str::new("https://this")]);
    TokenWebhook::new(reviews, own, ttl, &Metrics::new("test"))
}

async fn ask(server: &TestServer, audiences: &[&str]) -> Result<Option<String>, String> {
    let audiences: Vec<Str> = audiences.iter().copied().map(Str::new).collect();
    let found = webhook(server, Duration::ZERO).user("secret-token", &audiences).await?;
    Ok(found.map(|found| format!("{:?} {:?}", found.user, found.audiences)))
}

#[tokio::test]
async fn a_review_is_posted_and_its_user_comes_back() {
    let server = TestServer::start(|_, _, asked| {
        assert_eq!(asked.str_at(&["kind"]), "TokenReview");
        assert_eq!(asked.str_at(&["apiVersion"]), VERSION);
        assert_eq!(asked.str_at(&["spec", "token"]), "secret-token");
        assert_eq!(asked.items_at(&["spec", "audiences"]).len(), 1);
        Answer::ok(review(
            r#"{"authenticated":true,"audiences":["https://this","other"],"user":{"username":"jane",
                "uid":"42","groups":["dev"],"extra":{"b":["2"],"a":["1"]}}}"#,
        ))
    })
    .await;
    let webhook = webhook(&server, Duration::ZERO);
    let found = webhook.user("secret-token", &[Str::new("https://this")]).await.unwrap().unwrap();
    assert_eq!((found.user.name.as_str(), found.user.uid.as_str()), ("jane", "42"));
    assert_eq!(found.user.groups, ["dev"]);
    assert_eq!(found.user.extra[0].0, "a");
    assert_eq!(found.audiences, ["https://this"]);
}

#[tokio::test]
async fn audiences_are_those_of_the_answer_or_of_this_server() {
    let jane = r#""authenticated":true,"user":{"username":"jane"}"#;
    let cases = [
        (format!("{{{jane}}}"), vec!["https://this"], true),
        (format!("{{{jane}}}"), vec!["vault"], false),
        (format!(r#"{{{jane},"audiences":["vault"]}}"#), vec!["vault"], true),
        (format!(r#"{{{jane},"audiences":["vault"]}}"#), vec!["https://this"], false),
        (format!("{{{jane}}}"), vec![], true),
    ];
    for (status, audiences, expected) in cases {
        let answer = review(&status);
        let server = TestServer::start(move |_, _, _| Answer::ok(answer.clone())).await;
        let found = ask(&server, &audiences).await.unwrap();
        assert_eq!(found.is_some(), expected, "{status} {audiences:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_clear_yes_is_none() {
    let jane = r#""user":{"username":"jane","groups":["system:masters"]}"#;
    let moved = "HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    let endless =
        format!("HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n{}", "x".repeat(4096));
    let cases: Vec<(Answer, &str)> = vec![
        (Answer::ok(review(&format!(r#"{{"authenticated":false,{jane}}}"#))), "none"),
        (Answer::ok(review(&format!("{{{jane}}}"))), "none"),
        (Answer::ok(review(r#"{"authenticated":false,"error":"expired"}"#)), "expired"),
        (Answer::ok(review(&format!(r#"{{"authenticated":"true",{jane}}}"#))), "not a boolean"),
        (Answer::ok(review(r#"{"authenticated":true}"#)), "without a name"),
        (Answer::ok(review("[]")), "not an object"),
        (Answer::ok("{}"), "answered with kind"),
        (Answer::ok("not json"), "not JSON"),
        (Answer::ok(""), "0-length response"),
        (
            Answer::ok(review(&format!(r#"{{"authenticated":true,{jane}}}"#)).replace("v1", "v9")),
            "answered with kind",
        ),
        (
            Answer::ok(
                review(&format!(r#"{{"authenticated":true,{jane}}}"#))
                    .replace("TokenReview", "SubjectAccessReview"),
            ),
            "answered with kind",
        ),
        (Answer::Json(403, "no".to_owned()), "status code 403"),
        (Answer::Raw(moved.to_owned()), "redirect"),
        (Answer::Raw(endless), "length limit exceeded"),
    ];
    for (answer, expected) in cases {
        let answer = std::sync::Mutex::new(Some(answer));
        let server = TestServer::start(move |_, _, _| {
            answer.lock().unwrap().take().unwrap_or(Answer::Close)
        })
        .await;
        match ask(&server, &[]).await {
            Ok(None) => assert_eq!(expected, "none"),
            Ok(Some(user)) => panic!("{user} instead of {expected}"),
            Err(why) => assert!(why.contains(expected), "{why} instead of {expected}"),
        }
    }
}

#[tokio::test]
async fn calls_are_repeated_while_the_webhook_may_recover() {
    for (failure, calls) in [(500, 5), (504, 5), (429, 5), (503, 1), (404, 1), (0, 5)] {
        let server = TestServer::start(move |call, _, _| match failure {
            _ if call == 4 => {
                Answer::ok(review(r#"{"authenticated":true,"user":{"username":"j"}}"#))
            }
            0 => Answer::Close,
            code => Answer::Json(code, "{}".to_owned()),
        })
        .await;
        assert_eq!(ask(&server, &[]).await.is_ok(), calls == 5, "{failure}");
        assert_eq!(server.calls(), calls, "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_hangs_is_given_up() {
    let server = TestServer::start(|_, _, _| Answer::Hang).await;
    let began = tokio::time::Instant::now();
    let why = ask(&server, &[]).await.unwrap_err();
    assert!(why.contains("context deadline exceeded"), "{why}");
    assert_eq!((began.elapsed().as_secs(), server.calls()), (30, 1));
}

#[tokio::test]
async fn answers_are_remembered_yes_and_no_but_not_errors() {
    let server = TestServer::start(|_, _, asked| match asked.str_at(&["spec", "token"]) {
        "yes" => Answer::ok(review(r#"{"authenticated":true,"user":{"username":"jane"}}"#)),
        "no" => Answer::ok(review(r#"{"authenticated":false}"#)),
        _ => Answer::Json(404, "{}".to_owned()),
    })
    .await;
    let webhook = webhook(&server, Duration::from_mins(2));
    for (token, calls) in [("yes", 1), ("no", 2), ("down", 4)] {
        for _ in 0..2 {
            drop(webhook.user(token, &[]).await);
        }
        assert_eq!(server.calls(), calls, "{token}");
    }
    drop(webhook.user("yes", &[Str::new("other")]).await);
    assert_eq!(server.calls(), 5, "another audience is another question");
}
