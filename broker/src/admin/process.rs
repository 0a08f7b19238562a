//! What the kernel knows of this process, from `/proc/self`.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// See the module; what cannot be read is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    /// Processor time, in seconds.
    pub(super) cpu_seconds: Option<f64>,
    /// Resident memory, in bytes.
    pub(super) resident_bytes: Option<u64>,
    /// Open descriptors, the one that counts them left out.
    pub(super) open_fds: Option<u64>,
    /// How many there may be.
    pub(super) max_fds: Option<u64>,
    /// Its memory maps.
    pub(super) maps: Option<u64>,
    /// How many there may be.
    pub(super) max_maps: Option<u64>,
    /// When it began, in seconds since 1970.
    pub(super) started_at: Option<f64>,
}

impl Process {
    /// As it is now.
    pub(super) fn now() -> Process {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let entries = fs::read_dir("/proc/self/fd").map(|entries| entries.count() as u64);
        let mut process = Process::of_stat(&stat, clock_ticks_per_second() as f64, page_size() as u64);
        process.open_fds = entries.ok().map(|count| count.saturating_sub(1));
        process.max_fds = getrlimit(Resource::Nofile).current;
        process.maps = fs::read("/proc/self/maps").ok().map(|maps| lines(&maps));
        process.max_maps =
            fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|max| max.trim().parse().ok());
        process.started_at = process.started_at.and_then(|since_boot| Some(booted_at()? + since_boot));
        process
    }

    /// What the line of `stat` says; the start is told from the boot on.
    fn of_stat(stat: &str, ticks_per_second: f64, page_bytes: u64) -> Process {
        // The second field is the program's name in brackets, which may hold anything.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second;
        Process {
            cpu_seconds: field(14).zip(field(15)).map(|(user, system)| seconds(user + system)),
            resident_bytes: field(24).map(|pages| pages * page_bytes),
            started_at: field(22).map(seconds),
            ..Process::default()
        }
    }
}

fn lines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// When the machine was booted, in seconds since 1970.
fn booted_at() -> Option<f64> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    Some(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64() - uptime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_does_not_shift_the_fields() {
        let stat = "7 (a ) 1 2) S 1 7 7 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 5 0 600 1000 30 0";
        let process = Process::of_stat(stat, 100.0, 4096);
        assert_eq!(process.cpu_seconds, Some(3.0));
        assert_eq!((process.resident_bytes, process.started_at), (Some(30 * 4096), Some(6.0)));
        assert_eq!(Process::of_stat("", 100.0, 4096), Process::default());
    }

    #[test]
    fn this_process_is_known() {
        let process = Process::now();
        assert!(process.resident_bytes > Some(1 << 20), "{process:?}");
        assert!(process.open_fds > Some(2) && process.open_fds <= process.max_fds, "{process:?}");
        assert!(process.maps > Some(5) && process.maps <= process.max_maps, "{process:?}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs_f64();
        let age = now - process.started_at.expect("it began");
        assert!((-1.0..86_400.0).contains(&age), "{process:?}");
        assert!(process.cpu_seconds.is_some());
    }
}
