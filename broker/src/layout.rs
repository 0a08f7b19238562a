//! Which executors a node has, on which CPUs, and in which roles.
//!
//! `tarn.cores` and `tarn.mirror.cores` are lists of CPU numbers; a number given twice makes two
//! executors on that CPU. A mirror core serves connections and fetches, but owns no partitions.

use tarn_image::config::server::ServerConfig;
use tarn_runtime::CoreId;

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
    pub fn of(config: &ServerConfig, cpus: &[usize]) -> Layout {
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
        Layout { cores, placement: Placement::new(ids(0..owners)), fetch_cores }
    }
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
    fn a_quarter_of_a_larger_one_fetches() {
        assert_eq!(split(&[0, 1, 2]), (vec![0, 1], vec![2]));
        assert_eq!(split(&[0, 1, 2, 3, 4, 5, 6, 7]), (vec![0, 1, 2, 3, 4, 5], vec![6, 7]));
    }
}
