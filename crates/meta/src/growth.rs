//! For the tests of decoders, patches and validators: their cost may grow with the size of an input, not
//! with its square. Only tests call this; it reads the CPU time of the thread from `/proc`.

use std::{fs, time::Duration};

/// Four times the input may cost this much more.
pub const GROWTH_MAX: f64 = 6.0;

/// What takes less time than this is not measured well.
const MEASURABLE: Duration = Duration::from_millis(1);

/// Measurements of an input that seems to cost too much: a busy machine can disturb the first ones.
const ATTEMPTS_MAX: usize = 4;

/// Panics if `work` costs more than [`GROWTH_MAX`] times as much on an input of four times the size.
#[track_caller]
pub fn assert_linear<T>(
    what: &str,
    size: usize,
    make: impl Fn(usize) -> T,
    mut work: impl FnMut(&T),
) {
    let mut growths = Vec::new();
    while growths.len() < ATTEMPTS_MAX {
        // Larger each time, so that what is quadratic outweighs what is not.
        let size = size << growths.len();
        let [small, large] = [size, 4 * size].map(|size| {
            let input = make(size);
            let runs = [(); 2].map(|()| cpu_time_of(|| work(&input)));
            runs.into_iter().min().unwrap_or_default()
        });
        let growth = large.as_secs_f64() / small.max(MEASURABLE).as_secs_f64();
        if growth <= GROWTH_MAX {
            return;
        }
        growths.push(growth);
    }
    panic!("{what}: four times the input costs {growths:.1?} times as much");
}

/// CPU time that the current thread takes for `work`.
pub fn cpu_time_of(work: impl FnOnce()) -> Duration {
    let before = thread_cpu();
    work();
    thread_cpu().saturating_sub(before)
}

fn thread_cpu() -> Duration {
    // The kernel counts at its ticks, some milliseconds apart, and when a thread stops running.
    std::thread::park_timeout(Duration::from_micros(1));
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quadratic_work_is_found() {
        let items = |size: usize| (0..size).collect::<Vec<_>>();
        let sum = |items: &Vec<usize>| {
            let sum: usize = items.iter().map(|item| std::hint::black_box(item) % 7).sum();
            std::hint::black_box(sum);
        };
        assert_linear("a sum", 20_000, items, sum);
        let quadratic = std::panic::catch_unwind(|| {
            assert_linear("a search", 300, items, |items| {
                let found =
                    items.iter().filter(|item| items.iter().rev().any(|other| other == *item));
                std::hint::black_box(found.count());
            });
        });
        assert!(quadratic.is_err());
    }
}
