use std::io::Read as _;

use crate::{
    kind::{SLOT_JSON_PIECE, SLOT_PROTOBUF, SLOT_PROTOBUF_PIECE},
    testing::TestServer,
};

const WIDGETS: &str = "/v1/namespaces/ns/widgets";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Widgets of a few KB, every seventh of them small.
async fn server(widgets: usize) -> TestServer {
    let server = TestServer::start().await;
    for n in 0..widgets {
        create(&server, &format!("w{n:03}"), if n % 7 == 3 { 1 } else { 40 }).await;
    }
    server
}

async fn create(server: &TestServer, name: &str, parts: usize) {
    let parts: Vec<_> =
        (0..parts).map(|part| format!("{{name: part-{part}-of-{name}, value: v{part}}}")).collect();
    let color = if name.ends_with('5') { "red" } else { "blue" };
    let body = format!(
        "{{metadata: {{name: {name}, labels: {{c: {color}}}}}, spec: {{color: {color}, parts: [{}]}}}}",
        parts.join(", ")
    );
    server.check(&format!("POST {WIDGETS}"), &body, "201").await;
}

fn unpacked(member: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(member).read_to_end(&mut plain).expect("valid gzip");
    plain
}

/// Lists in every way, and compares with the list that is not compressed.
async fn check_all(server: &TestServer, context: &str) {
    let lists = [
        WIDGETS.to_owned(),
        "/v1/widgets".to_owned(),
        format!("{WIDGETS}?limit=30"),
        format!("{WIDGETS}?limit=1"),
        format!("{WIDGETS}?labelSelector=c%3Dred"),
        format!("{WIDGETS}?fieldSelector=spec.color%3Dblue"),
        "/v2/widgets".to_owned(),
    ];
    for accept in [JSON, PROTOBUF] {
        for list in &lists {
            let line = format!("GET {list}");
            let expected = server.send_accepting(accept, &line, "").await.body;
            for plain in [0, 1, 2] {
                let compressed = server.list_compressed(accept, &line, plain).await;
                let same = unpacked(&compressed) == expected;
                assert!(same, "{context}: {line} as {accept} after {plain} chunks");
            }
        }
    }
}

#[tokio::test]
async fn a_compressed_list_has_the_same_bytes_whatever_changed_meanwhile() {
    let server = server(100).await;
    check_all(&server, "new").await;
    check_all(&server, "kept").await;
    let patch = "{spec: {color: green}}";
    for name in ["w000", "w050", "w051", "w099"] {
        server.check(&format!("MERGE-PATCH {WIDGETS}/{name}"), patch, "200").await;
    }
    check_all(&server, "changed").await;
    for name in ["w001", "w060", "w098"] {
        server.check(&format!("DELETE {WIDGETS}/{name}"), "", "200").await;
    }
    check_all(&server, "deleted").await;
    create(&server, "w0505", 40).await;
    create(&server, "a", 40).await;
    check_all(&server, "created").await;
}

#[tokio::test]
async fn pieces_are_kept_and_messages_are_not() {
    let server = server(60).await;
    let line = format!("GET {WIDGETS}");
    let entries = || -> Vec<_> {
        server.storage("widgets").cache.snapshot().range("", None).cloned().collect()
    };
    for (accept, slot) in [(JSON, SLOT_JSON_PIECE), (PROTOBUF, SLOT_PROTOBUF_PIECE)] {
        let kept =
            || -> Vec<_> { entries().iter().map(|entry| entry.cached_encoding(slot)).collect() };
        let first = server.list_compressed(accept, &line, 0).await;
        let pieces = kept();
        // Chunk by chunk, the first one and small objects are not kept.
        let expected = pieces.iter().flatten().count();
        assert!(expected > 10, "{expected} as {accept}");
        for (at, piece) in pieces.iter().enumerate() {
            assert!(piece.is_none() || at % 7 != 3, "{at}");
        }
        assert_eq!(server.list_compressed(accept, &line, 0).await, first);
        assert!(kept() == pieces, "nothing is made again");
        // Another list does not replace them.
        server.list_compressed(accept, &format!("{line}?labelSelector=c%3Dblue"), 0).await;
        assert!(kept() == pieces);

        // An object that changes takes its piece along, and that of the next one is made again.
        let changed = entries().len() - 5;
        let name = entries()[changed].name.clone();
        let patch = format!("{{metadata: {{annotations: {{list: s{slot}}}}}}}");
        server.check(&format!("MERGE-PATCH {WIDGETS}/{name}"), &patch, "200").await;
        server.list_compressed(accept, &line, 0).await;
        let after = kept();
        let mut compared = 0;
        for at in 0..after.len() {
            // The border of the first chunk moves with the length of the list's resourceVersion.
            let (Some(before), Some(now)) = (&pieces[at], &after[at]) else { continue };
            assert_eq!(before == now, at != changed && at != changed + 1, "{at} as {accept}");
            compared += 1;
        }
        assert!(after[changed].is_some() && after[changed + 1].is_some());
        assert!(compared + 1 >= expected, "{compared} of {expected} as {accept}");
    }
    let messages = entries().iter().filter(|entry| entry.has_encoding(SLOT_PROTOBUF)).count();
    assert!(messages < 60, "{messages}");
}

/// `cargo test --release -p registry -- --ignored --nocapture speed_of_lists`
#[tokio::test]
#[ignore = "a measurement"]
async fn speed_of_lists() {
    const WIDGETS_MAX: usize = 2_000;
    let server = TestServer::start().await;
    for n in 0..WIDGETS_MAX {
        create(&server, &format!("w{n:06}"), 90).await;
    }
    let line = format!("GET {WIDGETS}");
    let cache = store::EncodingCache::process();
    let per_object = |began: std::time::Instant| began.elapsed().as_nanos() as usize / WIDGETS_MAX;
    for budget in [store::ENCODING_CACHE_BYTES, 4 << 20, 0] {
        println!("with {} MiB:", budget >> 20);
        for accept in [JSON, PROTOBUF] {
            // Nothing is kept at first.
            cache.set_bytes_max(0);
            cache.set_bytes_max(budget);
            for round in ["first", "second", "third"] {
                let began = std::time::Instant::now();
                let plain = server.send_accepting(accept, &line, "").await.body.len();
                let took = per_object(began);
                println!(
                    "  {round} {accept}: {took} ns and {} bytes an object",
                    plain / WIDGETS_MAX
                );
            }
            for round in ["first", "second", "third"] {
                let began = std::time::Instant::now();
                let bytes = server.list_compressed(accept, &line, 1).await.len();
                let took = per_object(began);
                println!(
                    "  {round} {accept}, gzip: {took} ns and {} bytes an object",
                    bytes / WIDGETS_MAX
                );
            }
            let (kept, evicted) = (cache.bytes() >> 10, cache.evicted());
            println!("  {kept} KiB kept, {evicted} evictions so far");
        }
    }
    cache.set_bytes_max(store::ENCODING_CACHE_BYTES);
}
