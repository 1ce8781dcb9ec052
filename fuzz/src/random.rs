//! Numbers that look random and come from a seed.

/// SplitMix64: small, fast, the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`; 0 if there is nothing below.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.draw() % bound as u64) as usize }
    }

    /// From one to `most`.
    pub fn some(&mut self, most: usize) -> usize {
        1 + self.below(most)
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A number of any size, also from the ends.
    pub fn integer(&mut self) -> i64 {
        let bits = self.below(64);
        let number = self.draw() as i64 >> bits;
        match self.below(10) {
            0 => i64::MAX,
            1 => i64::MIN,
            2 => number & 0xff,
            _ => number,
        }
    }

    /// A short text: mostly a word, sometimes what codecs get wrong.
    pub fn text(&mut self) -> String {
        const ODD: [char; 24] = [
            '"', '\\', '/', '<', '>', '&', '\n', '\t', '\r', '\u{0}', '\u{1f}', '\u{7f}',
            '\u{2028}', '\u{2029}', 'é', '漢', '🦀', '\u{fffd}', '\u{feff}', ':', '#', '\'', ' ',
            '-',
        ];
        const WORDS: [&str; 12] =
            ["a", "name", "true", "null", "1", "1e3", "0x1f", "~", "yes", "2001-01-01", "<<", "="];
        match self.below(10) {
            0 => (*self.pick(&WORDS)).to_owned(),
            1 => (0..self.some(8)).map(|_| *self.pick(&ODD)).collect(),
            2 => String::new(),
            _ => (0..self.some(12)).map(|_| char::from(b'a' + self.below(26) as u8)).collect(),
        }
    }
}
