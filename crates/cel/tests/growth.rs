//! Expressions come from users: to compile one costs no more than in proportion to its size, to evaluate it no more than in
//! proportion to the object, as far as the expression itself does not ask for more.

use std::sync::Arc;

use cel::{Bound, Decl, Env, ListType, PER_CALL_LIMIT};
use meta::{Str, Value, growth::assert_linear, value};

type Make = fn(usize) -> String;

/// Its text, many times over.
fn repeated(n: usize, text: &str, separator: &str) -> String {
    vec![text; n].join(separator)
}

#[test]
fn expressions_are_compiled_in_linear_time() {
    let cases: [(&str, Make); 16] = [
        ("conjunctions", |n| repeated(n, "self.a > 1", " && ")),
        ("disjunctions", |n| repeated(n, "true", " || ")),
        ("sums", |n| repeated(n, "1", " + ")),
        ("a list", |n| format!("[{}].size() > 0", repeated(n, "1", ","))),
        ("a list of lists", |n| format!("[{}].size() > 0", repeated(n, "[1]", ","))),
        ("a mixed list", |n| format!("[{}].size() > 0", repeated(n, "1, 'a', [self]", ","))),
        ("a map", |n| {
            let members: Vec<String> = (0..n).map(|at| format!("'k{at}': {at}")).collect();
            format!("{{{}}}.size() > 0", members.join(","))
        }),
        ("a text", |n| format!("'{}' == ''", "a".repeat(20 * n))),
        ("escapes", |n| format!("'{}' == ''", r"\n\u00e9".repeat(n))),
        ("blanks", |n| format!("true{}", " \n".repeat(10 * n))),
        ("unknown names", |n| repeated(n, "nowhere", " && ")),
        ("unknown functions", |n| repeated(n, "f(1)", " && ")),
        ("wrong types", |n| repeated(n, "1 == 'a'", " && ")),
        ("negations", |n| format!("{}true", "!".repeat(n))),
        ("parentheses", |n| format!("{}true", "(".repeat(n))),
        ("macros", |n| repeated(n, "self.l.all(x, x > 0)", " && ")),
    ];
    let list = Decl::list(Arc::new(Decl::int()), ListType::Atomic, Some(10));
    let decl =
        Arc::new(Decl::object([("a", Arc::new(Decl::int()), true), ("l", Arc::new(list), true)]));
    let env = Env::new().data("self", &decl);
    for (name, make) in cases {
        assert_linear(name, 150, make, |text| drop(env.compile(text)));
    }
}

#[test]
fn objects_are_walked_in_linear_time() {
    let text = Arc::new(Decl::string(None));
    let list = Decl::list(text.clone(), ListType::Atomic, None);
    let map = Decl::map(text, None);
    let decl = Arc::new(Decl::object([("l", Arc::new(list), true), ("m", Arc::new(map), true)]));
    let env = Env::new().data("self", &decl);
    let object = |n: usize| {
        let texts: Vec<Value> = (0..n).map(|at| Value::from(format!("{at:06}"))).collect();
        let members = (0..n).map(|at| (Str::from(format!("k{at}")), Value::from("v"))).collect();
        value!({"l": (texts), "m": (Value::Object(members))})
    };
    let rules = [
        "self.l.all(x, x != '')",
        "self.l.exists(x, x == 'none')",
        "self.l.exists_one(x, x == '000001')",
        "self.l.map(x, x + 'a').size() > 0",
        "self.l.filter(x, x.matches('^[0-9]+$')).size() > 0",
        "self.m.all(k, self.m[k] == 'v')",
        "'none' in self.l",
        "self.l.join(',').size() > 0",
        "self.l.isSorted()",
        "self.l == self.l && self.m == self.m",
        "(self.l + self.l).size() > 0",
        "self.l.join(',').split(',').size() > 0",
        "self.l.join(',').replace('0', '11').size() > 0",
    ];
    for rule in rules {
        let program = env.compile(rule).unwrap_or_else(|error| panic!("{rule}: {error}"));
        assert_linear(rule, 500, object, |object| {
            let variables = [Bound::Data(object, &decl)];
            drop(program.evaluate(&variables, PER_CALL_LIMIT).result);
        });
    }
}
