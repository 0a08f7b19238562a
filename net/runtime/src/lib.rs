//! The thread-per-core runtime of Tarn, and the only crate that knows what runs underneath.
//!
//! A *core* is one thread with one executor ([`spawn_core`]). Tasks never leave their core; what
//! crosses cores are messages ([`channel`]) and sockets ([`socket`]). Everything that could block a
//! core goes to its blocking lanes ([`blocking`]). Files are read and written by the caller with plain
//! system calls: nothing but readiness of sockets ever goes through the ring, so that no buffer is
//! lent to the kernel and a task can be dropped at any await.
//!
//! Shutting a core down, in this order: stop accepting; raise the flag that its tasks watch, or drop
//! their [`Task`]s; let the future given to `spawn_core` return, which waits for the blocking lanes;
//! join the core; exit. A task that was detached and never ended is not dropped in an orderly way, so
//! what others wait for belongs in tasks that are kept or told to end.

pub mod blocking;
pub mod channel;
pub mod core;
mod executor;
pub mod limits;
pub mod machine;
pub mod panics;
pub mod probe;
pub mod queues;
pub mod signal;
pub mod socket;
pub mod timer;

pub use self::core::{CoreHandle, CoreId, CoreSpec, CoreUsage, spawn_core, take_usage};
pub use blocking::{
    BlockingError, DiskId, blocking, blocking_copy, blocking_long, blocking_read, blocking_sync,
    blocking_work, reads_under_way,
};
pub use panics::{Panic, catch_panics};
pub use queues::{Queue, Task, spawn, yield_if_needed, yield_now};
pub use timer::{Elapsed, Sleep, now, sleep, sleep_until, timeout, wall_clock_ms};
