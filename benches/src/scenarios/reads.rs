//! GET and LIST: the answer is verified once, then only counted.

use std::cell::RefCell;

use super::world::{NAMESPACE, pod_path, pods_path};
use super::{Check, List, Matches, Outcome, World, drive};
use crate::bodies;
use crate::client::{Call, JSON, Keep, PROTOBUF};
use crate::load::Plan;
use crate::verify::Expect;

pub(super) async fn get(world: &World, plan: Plan, protobuf: bool) -> Outcome {
    let accept = if protobuf { PROTOBUF } else { JSON };
    let call =
        |number: usize| Call::get(pod_path(scattered(number, world.pods_made))).accept(accept);
    let expect = Expect { protobuf, gzip: false, kind: "Pod", items: None };
    drive(world, plan, Some(Check { call: &call(0), expect }), 500, async |client, _, number| {
        Ok(client.ok(&call(number), Keep::Nothing).await?.bytes)
    })
    .await
}

pub(super) async fn list(world: &World, plan: Plan, list: &List) -> Outcome {
    let items = match list.matches {
        Matches::Everything => world.pods_made,
        Matches::OnePercent => bodies::one_percent_of(world.pods_made),
        Matches::SpreadNode => bodies::on_node(bodies::SPREAD_NODE, world.pods_made),
        Matches::FixedNode => bodies::on_node(bodies::FIXED_NODE, world.pods_made),
    };
    let mut call =
        Call::get(format!("{}?{}", pods_path(NAMESPACE), list.query)).accept(list.accept);
    if list.gzip {
        call = call.gzip();
    }
    let expect = Expect {
        protobuf: list.accept == PROTOBUF,
        gzip: list.gzip,
        kind: list.kind,
        items: Some(items),
    };
    repeat(world, plan, &call, expect).await
}

/// Pages of 500: each worker walks through all of them, again and again.
pub(super) async fn page(world: &World, plan: Plan) -> Outcome {
    let first = format!("{}?limit={PAGE_ITEMS}", pods_path(NAMESPACE));
    let expect = Expect { protobuf: false, gzip: false, kind: "PodList", items: Some(PAGE_ITEMS) };
    let check = Check { call: &Call::get(first.clone()), expect };
    let tokens = RefCell::new(vec![None::<String>; plan.at_once]);
    drive(world, plan, Some(check), plan.at_once * 2, async |client, worker, _| {
        let token = tokens.borrow_mut()[worker].take();
        let path = match token {
            Some(token) => format!("{first}&continue={token}"),
            None => first.clone(),
        };
        let answer = client.ok(&Call::get(path), Keep::Head).await?;
        tokens.borrow_mut()[worker] = continue_token(&answer.kept);
        Ok(answer.bytes)
    })
    .await
}

/// The same list over and over.
pub(super) async fn repeat(world: &World, plan: Plan, call: &Call, expect: Expect) -> Outcome {
    drive(world, plan, Some(Check { call, expect }), 1, async |client, _, _| {
        Ok(client.ok(call, Keep::Nothing).await?.bytes)
    })
    .await
}

/// Visits all of `0..count` with a prime step, to defeat CPU caches.
pub(super) fn scattered(number: usize, count: usize) -> usize {
    number * 7919 % count.max(1)
}

/// List metadata stands before the items, so the token is in the first bytes.
fn continue_token(head: &[u8]) -> Option<String> {
    let begin = memchr::memmem::find(head, CONTINUE_MARKER)? + CONTINUE_MARKER.len();
    let length = memchr::memchr(b'"', &head[begin..])?;
    let token = std::str::from_utf8(&head[begin..begin + length]).ok()?;
    (!token.is_empty()).then(|| token.to_owned())
}

const CONTINUE_MARKER: &[u8] = b"\"continue\":\"";
const PAGE_ITEMS: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_continue_token_is_cut_out_of_the_head() {
        let cases = [
            (
                r#"{"kind":"PodList","metadata":{"continue":"abc_-1","x":1},"items":["#,
                Some("abc_-1"),
            ),
            (r#"{"metadata":{"continue":""},"items":["#, None),
            (r#"{"metadata":{"resourceVersion":"1"},"items":["#, None),
            (r#"{"metadata":{"continue":"cut"#, None),
        ];
        for (head, expected) in cases {
            assert_eq!(continue_token(head.as_bytes()).as_deref(), expected, "{head}");
        }
    }

    #[test]
    fn scattering_meets_every_pod() {
        let mut seen: Vec<usize> = (0..10_000).map(|number| scattered(number, 10_000)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 10_000);
    }
}
