//! Shuffle sharding: which queues a flow may use.
//!
//! A flow gets a hand of queues out of the whole deck. Two flows seldom have the same hand, so that a
//! flow that fills all of its queues leaves most other flows a queue of their own.

/// The largest hand that 60 bits of hash are enough for: 15 cards out of 15.
const HAND_SIZE_MAX: usize = 15;

/// Deals hands of `hand_size` queues out of `deck_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dealer {
    deck_size: usize,
    hand_size: usize,
}

/// Compat: kube-apiserver's limit, which leaves 4 of 64 bits against the bias of the division.
const HASH_BITS_MAX: f64 = 60.0;

impl Dealer {
    /// None if a 64-bit hash is too short for such hands; validation refuses them.
    pub(crate) fn new(deck_size: usize, hand_size: usize) -> Option<Self> {
        let bits = (deck_size as f64).log2() * hand_size as f64;
        let fits = (1..=HAND_SIZE_MAX).contains(&hand_size)
            && hand_size <= deck_size
            && deck_size <= DECK_SIZE_MAX
            && bits.ceil() <= HASH_BITS_MAX;
        fits.then_some(Self { deck_size, hand_size })
    }

    pub(crate) fn deck_size(self) -> usize {
        self.deck_size
    }

    pub(crate) fn hand_size(self) -> usize {
        self.hand_size
    }

    /// The hand of a flow: distinct queues, each set equally likely.
    pub(crate) fn deal(self, mut hash: u64) -> Hand {
        // Card number n is one of the cards that are left: an index among those, from which the
        // cards dealt before are counted out.
        let mut hand = Hand { cards: [0; HAND_SIZE_MAX], size: self.hand_size };
        let mut picks = [0u32; HAND_SIZE_MAX];
        for nth in 0..self.hand_size {
            let left = (self.deck_size - nth) as u64;
            picks[nth] = (hash % left) as u32;
            hash /= left;
            let mut card = picks[nth];
            for earlier in picks[..nth].iter().rev() {
                card += u32::from(card >= *earlier);
            }
            hand.cards[nth] = card;
        }
        hand
    }
}

/// More queues would be memory without use. API validation allows ten million, with which
/// kube-apiserver takes gigabytes; a level with more queues than this gets this many.
pub(crate) const DECK_SIZE_MAX: usize = 100_000;

/// Distinct queues, in the order they were dealt.
pub(crate) struct Hand {
    cards: [u32; HAND_SIZE_MAX],
    size: usize,
}

impl Hand {
    pub(crate) fn cards(&self) -> &[u32] {
        &self.cards[..self.size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_that_the_hash_cannot_tell_apart_are_refused() {
        let cases = [
            (128, 6, true),
            (64, 8, true),
            (1, 1, true),
            (64, 10, true),
            (64, 11, false),
            (5, 6, false),
            (0, 0, false),
            (6, 0, false),
            (DECK_SIZE_MAX, 3, true),
            (DECK_SIZE_MAX + 1, 1, false),
        ];
        for (deck, hand, expected) in cases {
            assert_eq!(Dealer::new(deck, hand).is_some(), expected, "{deck} {hand}");
        }
    }

    /// All 5·4·3 orders of three out of five cards, each from exactly one remainder of the hash.
    #[test]
    fn every_hand_is_equally_likely() {
        let dealer = Dealer::new(5, 3).unwrap();
        let mut seen: Vec<Vec<u32>> =
            (0..60).map(|hash| dealer.deal(hash).cards().to_vec()).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 60);
        for hand in seen {
            let mut distinct = hand.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), 3, "{hand:?}");
            assert!(distinct.iter().all(|&card| card < 5), "{hand:?}");
        }
    }

    /// By the definition of kube-apiserver's dealer: mixed-radix digits of the hash.
    #[test]
    fn cards_are_dealt_from_the_digits_of_the_hash() {
        let cases: [(usize, usize, u64, &[u32]); 3] = [
            (128, 6, 0, &[0, 1, 2, 3, 4, 5]),
            (8, 3, 8 * 7 * 6 - 1, &[7, 6, 5]),
            (8, 3, 3 + 8 * (3 + 7 * 2), &[3, 4, 2]),
        ];
        for (deck, hand, hash, expected) in cases {
            assert_eq!(Dealer::new(deck, hand).unwrap().deal(hash).cards(), expected, "{hash}");
        }
    }
}
