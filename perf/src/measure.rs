//! What a run cost: bytes, seconds, and CPU seconds as the kernel counts them.

use std::fs;

/// What was copied, and what it cost the process that copied it.
#[derive(Clone, Debug)]
pub(crate) struct Copied {
    /// Records, control records included.
    pub(crate) records: u64,
    /// Bytes of whole batches.
    pub(crate) bytes: u64,
    /// Wall time in seconds.
    pub(crate) seconds: f64,
    /// User and system time in seconds, of all threads.
    pub(crate) cpu_seconds: f64,
}

/// The CPU seconds that this process has used so far.
pub(crate) fn cpu_seconds() -> f64 {
    cpu_seconds_of("self").unwrap_or(0.0)
}

/// The CPU seconds that a running process has used so far; `None` where there is no such process.
pub(crate) fn cpu_seconds_of(process: &str) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(ticks / TICKS_PER_SECOND)
}

/// Linux fixes the unit of these counters at 100 per second for user space (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_as_cpu_time() {
        let before = cpu_seconds();
        let mut value = 1u64;
        while cpu_seconds() < before + 0.05 {
            value = std::hint::black_box(value.wrapping_mul(3));
        }
        assert!(cpu_seconds() > before);
        assert!(cpu_seconds_of("no-such-process").is_none());
    }
}
