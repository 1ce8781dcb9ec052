//! What this server has written itself. Each of its writes comes back as an event from the store that it shares with
//! others, and need not be decoded to be known.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;

/// The newest writes that have not come back.
#[derive(Default)]
pub(super) struct OwnWrites(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// The stored bytes and the JSON that they were made of, oldest first.
    writes: VecDeque<(Bytes, Bytes)>,
    bytes: usize,
}

/// Some never come: they were refused. An entry that is dropped too early is decoded like the write of another server.
const WRITES_MAX: usize = 256;
const BYTES_MAX: usize = 1 << 20;

impl OwnWrites {
    pub(super) fn remember(&self, stored: &Bytes, json: &Bytes) {
        let mut waiting = self.0.lock();
        waiting.bytes += stored.len() + json.len();
        waiting.writes.push_back((stored.clone(), json.clone()));
        while waiting.writes.len() > WRITES_MAX || waiting.bytes > BYTES_MAX {
            waiting.take(0);
        }
    }

    /// The JSON of these bytes, if they are among the newest writes. Only once: then it has come back.
    pub(super) fn take(&self, stored: &Bytes) -> Option<Bytes> {
        let mut waiting = self.0.lock();
        // The oldest come back first, and most that are not it differ in length or in the first few bytes.
        let at = waiting.writes.iter().position(|(written, _)| written == stored)?;
        waiting.take(at)
    }
}

impl Waiting {
    fn take(&mut self, at: usize) -> Option<Bytes> {
        let (stored, json) = self.writes.remove(at)?;
        self.bytes -= stored.len() + json.len();
        Some(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(n: usize) -> Bytes {
        n.to_string().into()
    }

    #[test]
    fn a_write_comes_back_once_and_old_ones_are_forgotten() {
        let own = OwnWrites::default();
        for n in 0..=WRITES_MAX {
            own.remember(&numbered(n), &numbered(n));
        }
        assert_eq!(own.take(&numbered(0)), None, "forgotten");
        assert_eq!(own.take(&numbered(7)), Some(numbered(7)));
        assert_eq!(own.take(&numbered(7)), None, "it has come back");
        let large = Bytes::from(vec![0; BYTES_MAX - 1]);
        own.remember(&large, &numbered(1));
        assert_eq!(own.take(&numbered(8)), None, "room was made for a large one");
        assert_eq!(own.take(&large), Some(numbered(1)));
        assert_eq!(own.0.lock().bytes, 0);
    }
}
