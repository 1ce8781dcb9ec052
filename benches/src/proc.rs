//! What the server's processes cost: CPU time and resident memory, read from `/proc`.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Measures from [`Probe::begin`] to [`Probe::end`].
pub(crate) struct Probe {
    pids: Vec<u32>,
    begun: Instant,
    rss_before_mb: Option<f64>,
    cpu_before: Option<f64>,
    client_cpu_before: Option<f64>,
    peak: PeakRss,
}

/// What happened meanwhile. `None` where no process was named, or one is gone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cost {
    pub(crate) server_cpu_ms: Option<f64>,
    pub(crate) rss_peak_mb: Option<f64>,
    pub(crate) rss_extra_mb: Option<f64>,
    /// The generator's own share of one core. Near 1 it is the generator that was measured.
    pub(crate) client_load: Option<f64>,
}

impl Probe {
    pub(crate) fn begin(pids: &[u32]) -> Self {
        Self {
            pids: pids.to_vec(),
            begun: Instant::now(),
            rss_before_mb: rss_mb(pids),
            cpu_before: cpu_ms(pids),
            client_cpu_before: cpu_ms(&[std::process::id()]),
            peak: PeakRss::start(pids.to_vec()),
        }
    }

    /// Starts the clocks again, but keeps what memory has been seen: after a warm-up.
    pub(crate) fn restart_clocks(&mut self) {
        self.begun = Instant::now();
        self.cpu_before = cpu_ms(&self.pids);
        self.client_cpu_before = cpu_ms(&[std::process::id()]);
    }

    pub(crate) fn end(self) -> Cost {
        let elapsed_ms = self.begun.elapsed().as_secs_f64() * 1e3;
        let since = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        let server_cpu_ms = since(cpu_ms(&self.pids), self.cpu_before);
        let client_cpu_ms = since(cpu_ms(&[std::process::id()]), self.client_cpu_before);
        let rss_after_mb = rss_mb(&self.pids);
        let sampled_mb = self.peak.stop();
        let rss_peak_mb = rss_after_mb.map(|after| after.max(sampled_mb));
        Cost {
            server_cpu_ms,
            rss_peak_mb,
            rss_extra_mb: since(rss_peak_mb, self.rss_before_mb),
            client_load: client_cpu_ms.map(|cpu| cpu / elapsed_ms),
        }
    }
}

/// User and system time of the processes, in ms; `None` if there are none or one is gone.
pub(crate) fn cpu_ms(pids: &[u32]) -> Option<f64> {
    sum(pids, |pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        ticks_of_stat(&stat).map(|ticks| ticks as f64 * MS_PER_TICK)
    })
}

/// The same with ns resolution, from the scheduler. It forgets threads that have ended, so the
/// coarser counter wins where it is ahead. For short lives such as a start.
pub(crate) fn fine_cpu_ms(pid: u32) -> Option<f64> {
    let mut run_ns = 0.0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let schedstat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        run_ns += schedstat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0);
    }
    Some(cpu_ms(&[pid])?.max(run_ns / 1e6))
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> Option<u64> {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    schedstat.split(' ').next()?.parse().ok()
}

/// Resident memory of the processes together, in MB.
pub(crate) fn rss_mb(pids: &[u32]) -> Option<f64> {
    sum(pids, |pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        rss_kb_of_status(&status).map(|kb| kb as f64 / 1024.0)
    })
}

fn sum(pids: &[u32], of: impl Fn(u32) -> Option<f64>) -> Option<f64> {
    if pids.is_empty() { None } else { pids.iter().map(|&pid| of(pid)).sum() }
}

/// utime + stime, fields 14 and 15. The command name (field 2) may hold spaces and brackets.
fn ticks_of_stat(stat: &str) -> Option<u64> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn rss_kb_of_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// A thread of its own that looks at the memory: the load keeps the other one busy.
struct PeakRss {
    stop: Arc<AtomicBool>,
    peak_kb: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl PeakRss {
    fn start(pids: Vec<u32>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let peak_kb = Arc::new(AtomicU64::new(0));
        let (stopped, peak) = (Arc::clone(&stop), Arc::clone(&peak_kb));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Some(mb) = rss_mb(&pids) {
                    peak.fetch_max((mb * 1024.0) as u64, Ordering::Relaxed);
                }
                // `stop` wakes it, so that the end of a scenario does not wait for a sample.
                std::thread::park_timeout(SAMPLE_EVERY);
            }
        });
        Self { stop, peak_kb, thread }
    }

    fn stop(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        drop(self.thread.join());
        self.peak_kb.load(Ordering::Relaxed) as f64 / 1024.0
    }
}

/// `USER_HZ` is 100 on every Linux.
const MS_PER_TICK: f64 = 10.0;
/// Short enough to see the peak of a list, long enough to cost nothing.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_read_past_any_process_name() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194560 100 0 0 0 17 5 0 0 20 0 1 0 99 1 1";
        assert_eq!(ticks_of_stat(stat), Some(22));
        assert_eq!(ticks_of_stat("42 (x) S 1"), None);
        assert_eq!(ticks_of_stat(""), None);
    }

    #[test]
    fn resident_memory_is_vm_rss() {
        assert_eq!(rss_kb_of_status("VmPeak: 9 kB\nVmRSS:\t   1234 kB\n"), Some(1234));
        assert_eq!(rss_kb_of_status("Name: x\n"), None);
    }

    #[test]
    fn this_process_has_memory_and_a_missing_one_has_none() {
        assert!(rss_mb(&[std::process::id()]).is_some_and(|mb| mb > 0.5));
        assert_eq!(rss_mb(&[std::process::id(), u32::MAX]), None);
        assert_eq!(cpu_ms(&[]), None);
    }
}
