//! Which executors a node has, on which CPUs, and in which roles.
//!
//! `tarn.cores` and `tarn.mirror.cores` are lists of CPU numbers; a number given twice makes two
//! executors on that CPU. A mirror core serves connections and fetches, but owns no partitions.

use tarn_image::config::server::ServerConfig;
use tarn_runtime::CoreId;
use thiserror::Error;

use crate::router::Placement;

/// From so many CPUs on, mirrors fetch on cores of their own.
const CPUS_FOR_MIRROR_CORES: usize = 3;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The CPU of each core, by the core's number.
    pub cores: Vec<Option<usize>>,
    /// Which core owns which partition.
    pub placement: Placement,
    /// The cores on which mirrors fetch.
    pub fetch_cores: Vec<CoreId>,
}

impl Layout {
    /// The layout that the configuration asks for on a machine with these CPUs.
    ///
    /// # Errors
    /// A CPU that is not among them.
    pub fn of(config: &ServerConfig, cpus: &[usize]) -> Result<Layout, NoSuchCpu> {
        let named = [("tarn.cores", &config.cores), ("tarn.mirror.cores", &config.mirror_cores)];
        for (key, cores) in named {
            let missing = cores.iter().flatten().find(|cpu| !cpus.contains(cpu));
            if let Some(&cpu) = missing {
                return Err(NoSuchCpu { key, cpu, cpus: cpus.to_vec() });
            }
        }
        let (partition_cpus, mirror_cpus) = match (&config.cores, &config.mirror_cores) {
            (Some(cores), mirror_cores) => (cores.clone(), mirror_cores.clone().unwrap_or_default()),
            (None, Some(mirror_cores)) => (without(cpus, mirror_cores), mirror_cores.clone()),
            (None, None) => split(cpus),
        };
        let partition_cpus = if partition_cpus.is_empty() { cpus.to_vec() } else { partition_cpus };
        let owners = partition_cpus.len();
        let ids = |range: std::ops::Range<usize>| range.map(|index| CoreId(index as u16)).collect::<Vec<_>>();
        let fetch_cores = match mirror_cpus.len() {
            0 => ids(0..owners),
            count => ids(owners..owners + count),
        };
        let cores = partition_cpus.into_iter().chain(mirror_cpus).map(Some).collect();
        Ok(Layout { cores, placement: Placement::new(ids(0..owners)), fetch_cores })
    }
}

/// A core that was asked for on a CPU that this process cannot use.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{key} names CPU {cpu}; the CPUs that this process may use are {}", listed(cpus))]
pub struct NoSuchCpu {
    /// The configuration key.
    pub key: &'static str,
    /// The CPU it names.
    pub cpu: usize,
    /// Those there are.
    pub cpus: Vec<usize>,
}

/// `0-3, 8`: ranges, because large machines have hundreds.
fn listed(cpus: &[usize]) -> String {
    let ranges = cpus.chunk_by(|before, cpu| before + 1 == *cpu);
    let range = |range: &[usize]| match range {
        [first, .., last] => format!("{first}-{last}"),
        one => one.iter().map(ToString::to_string).collect(),
    };
    ranges.map(range).collect::<Vec<_>>().join(", ")
}

fn without(cpus: &[usize], taken: &[usize]) -> Vec<usize> {
    cpus.iter().copied().filter(|cpu| !taken.contains(cpu)).collect()
}

/// A quarter of the CPUs, at least one, for mirrors; none of a small machine.
fn split(cpus: &[usize]) -> (Vec<usize>, Vec<usize>) {
    if cpus.len() < CPUS_FOR_MIRROR_CORES {
        return (cpus.to_vec(), Vec::new());
    }
    let (partitions, mirrors) = cpus.split_at(cpus.len() - (cpus.len() / 4).max(1));
    (partitions.to_vec(), mirrors.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_machine_shares_its_cores() {
        assert_eq!(split(&[0, 1]), (vec![0, 1], vec![]));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused_with_those_that_are() {
        let refused =
            |more: &str| Layout::of(&config(more), &[0, 1, 2, 5]).map_err(|error| error.to_string());
        let there = "the CPUs that this process may use are 0-2, 5";
        assert_eq!(refused("tarn.cores=0,3\n"), Err(format!("tarn.cores names CPU 3; {there}")));
        assert_eq!(
            refused("tarn.mirror.cores=4-5\n"),
            Err(format!("tarn.mirror.cores names CPU 4; {there}"))
        );
        let layout = refused("tarn.cores=5,5\ntarn.mirror.cores=0\n").expect("they are all there");
        assert_eq!(layout.cores, [Some(5), Some(5), Some(0)]);
    }

    fn config(more: &str) -> ServerConfig {
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\nlog.dirs=/data\n\
             controller.quorum.bootstrap.servers=127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n\
             listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n{more}"
        );
        ServerConfig::parse(&text).expect("the test's file is good").0
    }

    #[test]
    fn a_quarter_of_a_larger_one_fetches() {
        assert_eq!(split(&[0, 1, 2]), (vec![0, 1], vec![2]));
        assert_eq!(split(&[0, 1, 2, 3, 4, 5, 6, 7]), (vec![0, 1, 2, 3, 4, 5], vec![6, 7]));
    }
}
