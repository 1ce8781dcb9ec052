use std::io::{Read, Write};

use proptest::prelude::*;

use super::*;

/// Objects that resemble each other.
fn object(n: usize, len: usize) -> Vec<u8> {
    let mut text =
        format!("{{\"metadata\":{{\"name\":\"pod-{n:06}\",\"uid\":\"{}\"}},\"spec\":{{", n * 7_919);
    let mut field = 0;
    while text.len() < len {
        text.push_str(&format!("\"field{field}\":{{\"value\":\"{}\"}},", (field * field) % 97));
        field += 1;
    }
    text.push_str("}}");
    text.into_bytes()
}

fn unpacked(member: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(member);
    decoder.read_to_end(&mut plain).expect("valid gzip");
    plain
}

enum Step {
    Text(Vec<u8>),
    /// After the step before as its dictionary.
    Piece(Vec<u8>),
    /// Made for another place, so it has no dictionary.
    Alone(Vec<u8>),
}

/// Writes the steps as one member, and the text that it has to be.
fn written(steps: &[Step]) -> (Vec<u8>, Vec<u8>) {
    let (mut member, mut plain, mut last) = (Vec::new(), Vec::new(), &[][..]);
    let mut gzip = GzipWriter::new();
    for step in steps {
        let (Step::Text(text) | Step::Piece(text) | Step::Alone(text)) = step;
        if let Step::Text(text) = step {
            gzip.write(text);
        } else {
            let mut piece = Vec::new();
            let dictionary = if matches!(step, Step::Piece(_)) { last } else { &[] };
            gzip.compress_piece(dictionary, text, &mut piece);
            let piece = Piece::read(&piece).expect("was just made");
            assert_eq!((piece.len as usize, piece.crc), (text.len(), crc(0, text)));
            gzip.write_piece(&piece);
        }
        plain.extend_from_slice(text);
        last = text;
        if gzip.output_len() > 100 {
            member.extend(gzip.take_output());
        }
    }
    member.extend(gzip.finish());
    (member, plain)
}

#[test]
fn text_and_pieces_are_one_member() {
    use Step::{Alone, Piece, Text};
    let text = |n| object(n, 3_000);
    let cases = [
        vec![],
        vec![Text(text(1))],
        vec![Piece(text(1))],
        vec![Text(Vec::new()), Piece(Vec::new()), Text(Vec::new())],
        vec![Text(text(1)), Piece(text(2)), Piece(text(3)), Text(text(4))],
        vec![Piece(text(1)), Alone(text(2)), Text(text(3)), Text(text(4)), Piece(text(5))],
        // Longer than the window of deflate.
        vec![Text(object(1, 100_000)), Piece(object(2, 100_000)), Text(object(3, 70_000))],
        (0..200).map(|n| if n % 3 == 0 { Text(object(n, 500)) } else { Piece(text(n)) }).collect(),
    ];
    for (case, steps) in cases.iter().enumerate() {
        let (member, plain) = written(steps);
        assert!(unpacked(&member) == plain, "case {case}");
    }
}

#[test]
fn a_piece_after_a_similar_one_is_smaller_than_alone() {
    let (first, second) = (object(1, 8_000), object(2, 8_000));
    let (mut after, mut alone) = (Vec::new(), Vec::new());
    let mut gzip = GzipWriter::new();
    gzip.compress_piece(&first, &second, &mut after);
    gzip.compress_piece(&[], &second, &mut alone);
    assert!(after.len() * 2 < alone.len(), "{} and {}", after.len(), alone.len());
}

#[test]
fn what_is_too_short_is_no_piece() {
    assert_eq!(Piece::read(&[0; 11]), None);
    assert!(Piece::read(&[0; 12]).is_some());
}

/// Other programs read it too, where they are there.
#[test]
fn zcat_and_python_read_it() {
    let steps: Vec<Step> = (0..50).map(|n| Step::Piece(object(n, 2_000))).collect();
    let (member, plain) = written(&steps);
    let python =
        "import gzip, sys; sys.stdout.buffer.write(gzip.decompress(sys.stdin.buffer.read()))";
    for (program, args) in [("gzip", vec!["-dc"]), ("python3", vec!["-c", python])] {
        let mut command = std::process::Command::new(program);
        command.args(args).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let Ok(mut child) = command.spawn() else { continue };
        let mut input = child.stdin.take().expect("is piped");
        let member = member.clone();
        let writer = std::thread::spawn(move || input.write_all(&member));
        let output = child.wait_with_output().expect("it ends");
        writer.join().expect("no panic").expect("it reads all");
        assert!(output.status.success() && output.stdout == plain, "{program}");
    }
}

proptest! {
    #[test]
    fn checksums_are_combined_as_crc32fast_does(a: Vec<u8>, b: Vec<u8>) {
        let whole = crc(crc(0, &a), &b);
        prop_assert_eq!(multiply(shift(b.len()), crc(0, &a)) ^ crc(0, &b), whole);
    }

    #[test]
    fn any_texts_come_back(steps: Vec<(u8, Vec<u8>)>) {
        let step = |(kind, text): (u8, Vec<u8>)| match kind % 3 {
            0 => Step::Text(text),
            1 => Step::Piece(text),
            _ => Step::Alone(text),
        };
        let (member, plain) = written(&steps.into_iter().map(step).collect::<Vec<_>>());
        prop_assert_eq!(unpacked(&member), plain);
    }
}

/// `cargo test --release -p codec -- --ignored --nocapture speed`
#[test]
#[ignore = "a measurement"]
fn speed_of_gzip() {
    for len in [500, 1_000, 2_000, 11_000] {
        let objects: Vec<_> = (0..(20_000_000 / len).min(4_000)).map(|n| object(n, len)).collect();
        let all: usize = objects.iter().map(Vec::len).sum();
        let report = |what: &str, began: std::time::Instant, bytes: usize| {
            let took = began.elapsed();
            println!(
                "{len} bytes, {what}: {:.0} MB/s, {} ns and {} bytes an object, ratio {:.1}",
                all as f64 / took.as_secs_f64() / 1e6,
                took.as_nanos() as usize / objects.len(),
                bytes / objects.len(),
                all as f64 / bytes as f64
            );
        };
        let began = std::time::Instant::now();
        let mut gzip = GzipWriter::new();
        let mut bytes = 0;
        for object in &objects {
            gzip.write(object);
            bytes += gzip.take_output().len();
        }
        report("one window", began, bytes + gzip.finish().len());

        for chained in [false, true] {
            let began = std::time::Instant::now();
            let mut gzip = GzipWriter::new();
            let mut pieces = Vec::new();
            let mut last = &[][..];
            for object in &objects {
                let mut piece = Vec::new();
                gzip.compress_piece(last, object, &mut piece);
                pieces.push(piece);
                last = if chained { object } else { &[] };
            }
            let bytes = pieces.iter().map(|piece| piece.len() - 12).sum();
            report(if chained { "pieces after each other" } else { "pieces alone" }, began, bytes);
            let began = std::time::Instant::now();
            let mut bytes = 0;
            for piece in &pieces {
                gzip.write_piece(&Piece::read(piece).expect("was just made"));
                if gzip.output_len() > 64 << 10 {
                    bytes += gzip.take_output().len();
                }
            }
            report("... put together", began, bytes + gzip.finish().len());
        }
    }
}
