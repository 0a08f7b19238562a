//! CPU seconds and memory as the kernel counts them.

use std::fs;
use std::time::Instant;

/// Linux fixes the unit of these counters at 100 per second for user space (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// The processes whose work is told apart.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    destination: Vec<u32>,
    source: u32,
}

/// What a copy cost between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Wall time.
    pub(crate) seconds: f64,
    /// User and system time of all processes of the destination.
    pub(crate) cpu_seconds: f64,
    /// The same of the source.
    pub(crate) source_cpu_seconds: f64,
    /// The cores that everything else kept busy, but for what measures: how quiet the machine was. Kernel
    /// threads are in it.
    pub(crate) others_cores: f64,
}

/// A measurement that has begun.
#[derive(Debug)]
pub(crate) struct Running {
    processes: Processes,
    began: Instant,
    before: Used,
}

#[derive(Clone, Copy, Debug)]
struct Used {
    destination: f64,
    source: f64,
    own: f64,
    machine: f64,
}

impl Processes {
    /// The processes of the destination, and the source's.
    pub(crate) fn new(destination: &[u32], source: u32) -> Processes {
        Processes { destination: destination.to_vec(), source }
    }

    /// A server alone, which nothing feeds but what measures.
    pub(crate) fn of_server(server: u32) -> Processes {
        // No process has the id 0.
        Processes::new(&[server], 0)
    }

    /// Begins to measure.
    pub(crate) fn start(self) -> Running {
        let before = self.used();
        Running { processes: self, began: Instant::now(), before }
    }

    fn used(&self) -> Used {
        let of = |id: &u32| cpu_seconds(&id.to_string()).unwrap_or_default();
        Used {
            destination: self.destination.iter().map(of).sum(),
            source: of(&self.source),
            own: own_cpu_seconds().unwrap_or_default(),
            machine: machine_cpu_seconds().unwrap_or_default(),
        }
    }
}

impl Running {
    /// Ends; what it cost since the start.
    pub(crate) fn stop(self) -> Cost {
        let (seconds, after, before) =
            (self.began.elapsed().as_secs_f64(), self.processes.used(), self.before);
        let cpu_seconds = after.destination - before.destination;
        let source_cpu_seconds = after.source - before.source;
        let known = cpu_seconds + source_cpu_seconds + after.own - before.own;
        Cost {
            seconds,
            cpu_seconds,
            source_cpu_seconds,
            others_cores: (after.machine - before.machine - known).max(0.0) / seconds,
        }
    }
}

/// The CPU seconds that a running process has used so far; `None` where there is no such process. It is
/// named by its id, or `self`.
pub(crate) fn cpu_seconds(process: &str) -> Option<f64> {
    Some(times(process)?[..2].iter().sum())
}

/// What this process has used so far, and the programs that it ran to their end.
fn own_cpu_seconds() -> Option<f64> {
    Some(times("self")?.iter().sum())
}

/// What the programs have used that this process started and that have ended.
pub(crate) fn ended_cpu_seconds() -> f64 {
    times("self").map_or(f64::NAN, |times| times[2..].iter().sum())
}

/// Seconds of a process in user space and in the kernel, and the same of its children that have ended.
fn times(process: &str) -> Option<[f64; 4]> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before the closing bracket may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let mut times = [0.0; 4];
    for (time, field) in times.iter_mut().zip(fields.get(11..15)?) {
        *time = field.parse::<f64>().ok()? / TICKS_PER_SECOND;
    }
    Some(times)
}

/// The most memory that a running process has had resident; 0 where there is no such process.
pub(crate) fn memory_peak_bytes(process: &str) -> u64 {
    status_bytes(process, "VmHWM:")
}

/// The memory that a running process has resident; 0 where there is no such process.
pub(crate) fn memory_bytes(process: &str) -> u64 {
    status_bytes(process, "VmRSS:")
}

fn status_bytes(process: &str, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|number| number.parse().ok());
    kib.map_or(0, |kib: u64| kib * 1024)
}

/// The CPU seconds that all processes have used since the machine started.
fn machine_cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<f64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, ...
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|&at| fields.get(at)).sum::<f64>();
    Some(busy / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(seconds: f64) {
        let until = cpu_seconds("self").unwrap() + seconds;
        let mut value = 1u64;
        while cpu_seconds("self").unwrap() < until {
            value = std::hint::black_box(value.wrapping_mul(3));
        }
    }

    #[test]
    fn work_shows_as_cpu_time_of_the_process_and_of_the_machine() {
        let (own, machine) = (cpu_seconds("self").unwrap(), machine_cpu_seconds().unwrap());
        work(0.1);
        assert!(cpu_seconds("self").unwrap() >= own + 0.1);
        // The two counters are rounded apart.
        assert!(machine_cpu_seconds().unwrap() > machine + 0.05);
        assert!(cpu_seconds("no-such-process").is_none());
    }

    #[test]
    fn work_of_the_destination_is_told_from_that_of_the_source() {
        let running = Processes::new(&[std::process::id()], 1).start();
        work(0.1);
        let cost = running.stop();
        assert!(cost.cpu_seconds >= 0.1 && cost.seconds >= 0.05, "{cost:?}");
        assert!(cost.source_cpu_seconds < cost.cpu_seconds, "{cost:?}");
    }

    #[test]
    fn a_program_that_ended_counts_as_its_own() {
        let (own, alone) = (own_cpu_seconds().unwrap(), cpu_seconds("self").unwrap());
        let ended = ended_cpu_seconds();
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", script]).status().unwrap().success());
        let (own, alone) = (own_cpu_seconds().unwrap() - own, cpu_seconds("self").unwrap() - alone);
        assert!(own > alone + 0.02, "{own} {alone}");
        assert!(ended_cpu_seconds() > ended + 0.02);
    }

    #[test]
    fn memory_is_counted_in_bytes() {
        assert!(memory_peak_bytes("self") > 1 << 20);
        assert_eq!(memory_peak_bytes("no-such-process"), 0);
    }
}
