//! The limits of this crate: what a configuration can make a node be at most.

/// The largest number of a CPU that a configuration may name; the kernel's own limit.
pub const CPU_MAX: usize = 4095;

/// The executors that a node has at most, of partitions and of mirroring each.
pub const CORES_MAX: usize = 256;
