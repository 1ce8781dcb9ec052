//! Work, in seats times seconds.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// Time since the controller was made, in nanoseconds.
pub(crate) type Nanos = u64;

/// Seats times nanoseconds. The virtual time of fair queuing is measured in it.
///
/// 128 bits never overflow, so that virtual time needs no epochs: 64 bits would last for half a year
/// of 600 busy seats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeatSeconds(i128);

impl SeatSeconds {
    pub(crate) const ZERO: Self = Self(0);
    pub(crate) const MAX: Self = Self(i128::MAX);

    pub(crate) fn new(seats: u32, duration: Nanos) -> Self {
        Self(i128::from(seats) * i128::from(duration))
    }

    /// `seats` spread evenly over `parts`.
    pub(crate) fn share(seats: u32, parts: usize, duration: Nanos) -> Self {
        Self(Self::new(seats, duration).0 / parts.max(1) as i128)
    }

    /// How long `seats` take for this work.
    pub(crate) fn duration_for(self, seats: u32) -> Nanos {
        Nanos::try_from(self.0 / i128::from(seats.max(1))).unwrap_or_default()
    }

    pub(crate) fn to_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for SeatSeconds {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for SeatSeconds {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl AddAssign for SeatSeconds {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl SubAssign for SeatSeconds {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Sum for SeatSeconds {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

/// Compat: eight decimals and the unit, as in kube-apiserver's dumps.
impl fmt::Display for SeatSeconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundred_millionths = self.0.unsigned_abs() / 10;
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (hundred_millionths / 100_000_000, hundred_millionths % 100_000_000);
        write!(out, "{sign}{whole}.{rest:08}ss")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_written_as_kube_apiserver_writes_it() {
        let cases = [
            (SeatSeconds::ZERO, "0.00000000ss"),
            (SeatSeconds::new(1, 3_000_000), "0.00300000ss"),
            (SeatSeconds::new(10, 5_000_000_000), "50.00000000ss"),
            (SeatSeconds::share(3, 2, 1_000_000_000), "1.50000000ss"),
            (SeatSeconds::ZERO - SeatSeconds::new(1, 20), "-0.00000002ss"),
        ];
        for (work, expected) in cases {
            assert_eq!(work.to_string(), expected);
        }
    }
}
