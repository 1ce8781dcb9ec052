//! Expressions come from users: any text must give a result or an error, never a panic.

use std::sync::Arc;

use cel::regex::Regex;
use cel::{Bound, Decl, Env, ListType};
use meta::value;
use proptest::prelude::*;

/// Fragments of expressions, so that random texts are sometimes almost valid.
const PIECES: [&str; 64] = [
    "self",
    ".",
    "a",
    "l",
    "m",
    "s",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "?",
    "+",
    "-",
    "*",
    "/",
    "%",
    "<",
    ">=",
    "==",
    "!=",
    "&&",
    "||",
    "!",
    "in",
    "1",
    "-9223372036854775808",
    "0u",
    "1.5",
    "1e400",
    "'x'",
    "\"é\"",
    "b'\\xff'",
    "r'\\d'",
    "true",
    "null",
    "has",
    "all",
    "map",
    "filter",
    "exists_one",
    "transformMap",
    "optMap",
    "sortBy",
    "size",
    "string",
    "duration",
    "timestamp",
    "matches",
    "format",
    "join",
    "optional.none()",
    "dyn",
    "type",
    "x",
    "'%s %d'",
    "'1h'",
    "\n",
    "//",
    "'''",
    "`a`",
];

fn run(expression: &str) {
    let list = Decl::list(Arc::new(Decl::int()), ListType::Atomic, None);
    let decl = Arc::new(Decl::object([
        ("a", Arc::new(Decl::int()), false),
        ("l", Arc::new(list), false),
        ("m", Arc::new(Decl::map(Arc::new(Decl::string(None)), None)), false),
        ("s", Arc::new(Decl::string(None)), false),
    ]));
    let object = value!({"a": 1i64, "l": [1i64, 2i64], "m": {"k": "v"}, "s": "é"});
    let env = Env::new().data("self", &decl).data("x", &decl);
    let variables = [Bound::Data(&object, &decl), Bound::Data(&object, &decl)];
    match env.compile(expression) {
        Ok(program) => {
            // A small budget, as some expressions would run for a while.
            let outcome = program.evaluate(&variables, 10_000);
            drop(format!("{outcome:?}"));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..<_>::default() })]

    #[test]
    fn random_expressions_give_a_result_or_an_error(
        pieces in prop::collection::vec(prop::sample::select(PIECES.as_slice()), 0..14)
    ) {
        run(&pieces.concat());
        run(&pieces.join(" "));
    }

    #[test]
    fn random_text_gives_a_result_or_an_error(text in "\\PC{0,40}") {
        run(&text);
    }

    #[test]
    fn any_pattern_compiles_or_is_refused(pattern in "[a-c\\[\\](){}*+?|^$.\\\\\\-:,0-9PpQE<>isé]{0,24}") {
        if let Ok(regex) = Regex::new(&pattern) {
            regex.find_all("aé1-c\nb", Some(10));
        }
    }
}

#[test]
fn deep_nesting_ends_in_an_error() {
    for (open, close) in [("(", ")"), ("[", "]"), ("{1:", "}"), ("size(", ")"), ("!(", ")")] {
        run(&format!("{}1{}", open.repeat(20_000), close.repeat(20_000)));
    }
    run(&"-".repeat(50_000));
    run(&format!("1{}", "+1".repeat(40_000)));
    run(&format!("true{}", "&&true".repeat(10_000)));
    // Every `optMap` copies what is in front of it.
    run(&format!("optional.of(1){}", ".optMap(x,x)".repeat(60)));
    assert!(Regex::new(&"(".repeat(100_000)).is_err());
    assert!(Regex::new("((a{100}){100}){100}").is_err());
}
