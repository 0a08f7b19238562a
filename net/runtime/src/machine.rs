//! What the kernel lets this process have: CPUs, their time, and descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::sync::OnceLock;

/// The affinity of the process before the first core was pinned: threads that a core starts take it
/// back, lest they compete with the core for its CPU.
static AFFINITY: OnceLock<CpuSet> = OnceLock::new();

/// The CPUs that this process may run on, ascending. From the affinity mask rather than from `/sys`,
/// so that a container's or `taskset`'s limits are respected.
///
/// # Errors
/// When the kernel does not tell, as on a machine with more than 1024 CPUs.
pub fn available_cpus() -> io::Result<Vec<usize>> {
    let mask = match AFFINITY.get() {
        Some(mask) => *mask,
        None => sched_getaffinity(None)?,
    };
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).collect())
}

/// Raises the soft limit on open descriptors to the hard one, and returns the limit now in force.
///
/// # Errors
/// When the kernel refuses; the limit is then as it was.
pub fn raise_nofile() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// Remembers the process's affinity. Called before any thread is pinned.
pub(crate) fn remember_affinity() {
    if AFFINITY.get().is_none()
        && let Ok(mask) = sched_getaffinity(None)
    {
        AFFINITY.set(mask).ok();
    }
}

/// Gives a thread that a core started the affinity of the process.
pub(crate) fn unpin_this_thread() {
    if let Some(mask) = AFFINITY.get() {
        // A refusal leaves the thread on its core's CPU: slower, not wrong.
        sched_setaffinity(None, mask).ok();
    }
}

/// Has this thread, and no other, come last where CPUs are busy. Needs no privilege, and cannot be taken back without.
///
/// # Errors
/// When the kernel refuses; the thread then competes with the others.
pub fn lower_priority_of_this_thread() -> io::Result<()> {
    // On Linux a nice value is a thread's own, and no process id names the calling thread.
    Ok(setpriority_process(None, NICEST)?)
}

/// The largest nice value that there is.
const NICEST: i32 = 19;

/// Binds this thread to `cpu`.
pub(crate) fn pin_this_thread(cpu: usize) -> io::Result<()> {
    let refused = |cause: String| io::Error::new(io::ErrorKind::InvalidInput, cause);
    if cpu >= CpuSet::MAX_CPU {
        return Err(refused(format!("CPU {cpu} is beyond the {} that can be named", CpuSet::MAX_CPU)));
    }
    let mut mask = CpuSet::new();
    mask.set(cpu);
    sched_setaffinity(None, &mask).map_err(|error| {
        let usable = available_cpus().unwrap_or_default();
        let usable: Vec<String> = usable.iter().map(ToString::to_string).collect();
        let usable = usable.join(", ");
        refused(format!("cannot pin a core to CPU {cpu}: {error}; the process may use CPU {usable}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_on_descriptors_reaches_the_hard_one() {
        let now = raise_nofile().unwrap();
        assert_eq!(Some(now), getrlimit(Resource::Nofile).maximum);
        assert_eq!(raise_nofile().unwrap(), now, "raising again changes nothing");
    }

    #[test]
    fn a_pinned_thread_has_one_cpu_and_the_process_keeps_its_list() {
        remember_affinity();
        let all = available_cpus().unwrap();
        let last = *all.last().unwrap();
        std::thread::spawn(move || {
            pin_this_thread(last).unwrap();
            assert_eq!(rustix::thread::sched_getcpu(), last);
            assert_eq!(available_cpus().unwrap(), all, "the list is the process's, not the thread's");
            unpin_this_thread();
            assert_eq!(sched_getaffinity(None).unwrap().count() as usize, all.len());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_comes_last_and_the_others_do_not() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        let lowered = std::thread::spawn(move || {
            lower_priority_of_this_thread().unwrap();
            nice()
        });
        assert_eq!((lowered.join().unwrap(), nice()), (NICEST, before));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused_by_number() {
        let refused = std::thread::spawn(|| pin_this_thread(1023)).join().unwrap().unwrap_err();
        assert!(refused.to_string().contains("CPU 1023"), "{refused}");
        assert!(pin_this_thread(5000).unwrap_err().to_string().contains("CPU 5000"));
    }
}
