//! Damage: what a fuzzer does to input that was good.

use crate::Random;

/// Mutates bytes in one to a few ways. `words` are tokens of the format, `others` valid inputs to
/// splice from.
pub fn mutate(input: &[u8], words: &[&str], others: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.some(4) {
        once(&mut bytes, words, others, random);
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

/// Decoders are to be linear or nearly so: longer inputs find nothing that shorter ones don't.
pub const INPUT_BYTES_MAX: usize = 16 << 10;

fn once(bytes: &mut Vec<u8>, words: &[&str], others: &[Vec<u8>], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let range = at..bytes.len().min(at + random.some(16));
    match random.below(10) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.draw() as u8;
            }
        }
        2 => bytes.insert(at, random.draw() as u8),
        3 => drop(bytes.drain(range)),
        4 => {
            let copy = bytes[range].to_vec();
            let to = random.below(bytes.len() + 1);
            bytes.splice(to..to, copy);
        }
        5 if !words.is_empty() => {
            let word = random.pick(words).bytes();
            bytes.splice(at..at, word);
        }
        6 if !words.is_empty() => {
            let word = random.pick(words).bytes();
            bytes.splice(range, word);
        }
        // The same over and over: nesting, long lists, long numbers.
        7 => {
            let piece = bytes[range].to_vec();
            let times = 1 << random.below(9);
            let many = piece.repeat(times.min(INPUT_BYTES_MAX / piece.len().max(1)));
            bytes.splice(at..at, many);
        }
        8 if !others.is_empty() => {
            let other = random.pick(others);
            let from = random.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => bytes.truncate(at),
    }
}
