//! Every limit of the runtime, by name. A limit that an operator should see is documented with the
//! place that reports it.

use std::time::Duration;

/// The places in a core's ring for what is to be handed to the kernel with its next call; more make a call of their own.
pub const RING_ENTRIES: u32 = 256;

/// How long a busy core works before it asks the kernel what is ready.
pub const LOOK: Duration = Duration::from_micros(250);

/// How long a task may run before `yield_if_needed` yields, and so how long a message waits for a
/// core that is busy with background work.
pub const PREEMPT_TIMER: Duration = Duration::from_millis(1);

/// The disks of which one core reads at once, whichever of them hang.
pub const READ_DISKS_MAX: usize = 16;

/// The reads of one core under way beside one of each disk.
pub const READ_THREADS_SHARED: usize = 3;

/// The reads of one disk that may wait in one core; more are refused.
pub const READS_WAITING_MAX: usize = 16_384;

/// Jobs that may wait in one blocking lane of one core. The next caller waits for room.
pub const LANE_JOBS_MAX: usize = 4096;

/// The pause before the next accept when the process or the kernel has run out of descriptors or
/// memory. Counted by `Listener::refusals`.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// The most that one `sendfile` call sends before the task may yield.
pub const SEND_FILE_CHUNK_BYTES_MAX: usize = 1 << 20;

/// The room that `read_into` makes for the first bytes of a message.
pub const RECEIVE_CHUNK_BYTES_MIN: usize = 16 << 10;

/// The most room that `read_into` adds at once, whatever was received before.
pub const RECEIVE_CHUNK_BYTES_MAX: usize = 1 << 20;

/// The most that `read_exact_into` reserves before the bytes arrive. Beyond it, memory grows with
/// what is received.
pub const RESERVE_AT_ONCE_BYTES_MAX: usize = 4 << 20;

/// Where at least so many bytes of a message are missing, its reader is not woken for each segment.
pub const WAKE_FROM_BYTES_MIN: usize = 64 << 10;

/// The most bytes that are waited for before a reader is woken: receiving goes on beside the sender.
pub const WAKE_FROM_BYTES_MAX: usize = 256 << 10;

/// The buffers handed to the kernel in one vectored write.
pub const IO_SLICES_MAX: usize = 128;

/// The grain of timers: those of the same tick share one wake-up of the core.
pub const TIMER_TICK: Duration = Duration::from_micros(250);

/// The longest sleep. Longer ones end here: no timer of Tarn is meant to outlive it.
pub const SLEEP_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);
