//! How much of anything a broker holds, each limit by its name.

use std::time::Duration;

/// Produce requests that wait for the high watermark, on one core.
pub const WAITING_PRODUCES_PER_CORE: usize = 100_000;

/// How long a stop waits until what was produced is on the disk, so that it is answered: what is not, its producer
/// sends again, and after a start a log knows no more than the last batch of each producer.
pub const STOP_UNTIL_COMMITTED: Duration = Duration::from_secs(3);

/// How long a connection stays open then for the answers that are due. Fetches that wait have theirs when the logs are
/// closed, which comes after that.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// Producers of whose batches one core remembers that they were turned away from a log that was not open; about 100
/// bytes each.
pub const TURNED_AWAY: usize = 10_000;

/// How long that keeps what comes behind such a batch from being taken, in milliseconds.
pub const TURNED_AWAY_MS: i64 = 30_000;

/// Bytes appended on the node and not yet flushed, beyond which they are flushed in the background: what a crash makes
/// the next start read again. Each core keeps to its share.
pub const UNFLUSHED_BYTES: u64 = 512 * 1024 * 1024;

/// How often it is looked whether more than that is unflushed, in milliseconds.
pub const BACKGROUND_FLUSH_INTERVAL_MS: u64 = 1000;

/// Logs whose epochs are saved in one such interval, where all else of them is flushed.
pub const EPOCHS_SAVED_PER_INTERVAL: usize = 16;

/// Abort markers that one append of an ended log writes: as many as one system call takes.
pub const MARKERS_PER_APPEND: usize = 1023;

/// How often producers that were idle for `producer.id.expiration.ms` are looked for: Kafka's default of
/// `producer.id.expiration.check.interval.ms`, which it keeps to itself.
pub const PRODUCER_EXPIRY_INTERVAL: Duration = Duration::from_secs(600);

/// Flushes that wait for the node's background thread; each core has one there at a time.
pub const BACKGROUND_FLUSHES: usize = 1024;

/// Logs that a core proposes to the cleaner at a time; they are compacted before it is asked again.
pub const CLEANED_BEFORE_ASKED_AGAIN: usize = 16;

/// Logs that a core flushes each time that it is asked which of its logs are to be compacted.
pub const FLUSHED_FOR_COMPACTION: usize = 64;

/// Threads of the cleaner, whatever `log.cleaner.threads` says.
pub const CLEANER_THREADS_MAX: usize = 64;

/// How long a log waits that could not be compacted for lack of room, in milliseconds.
pub const CLEANING_RETRY_MS: u64 = 15_000;

/// The least pause of a cleaner's thread that has found nothing to do, whatever `log.cleaner.backoff.ms` says.
pub const CLEANER_PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest that a produce request waits for its high watermark, whatever it asks for.
pub const PRODUCE_WAIT_MS_MAX: u64 = 300_000;

/// How long a fetch that has nothing to send waits for the disk, whatever it says itself: well within the 30 s in which
/// Kafka's clients expect an answer.
pub const COLD_READ_WAIT_MAX: Duration = Duration::from_secs(10);

/// Markers that a core appends before it serves others.
pub const MARKERS_PER_ENVELOPE: usize = 1024;

/// Partitions of which a core deletes records before it serves others.
pub const DELETIONS_PER_ENVELOPE: usize = 64;

/// The longest that a coordinator waits for its markers to be committed: Kafka's `request.timeout.ms`.
pub const MARKER_WAIT_MS: u64 = 30_000;

/// Envelopes that wait in a core's mailbox before senders wait.
pub const MAILBOX_ENVELOPES: usize = 4096;

/// Bytes of records that are validated before other tasks of the core get their turn.
pub const VALIDATION_SLICE_BYTES: usize = 256 * 1024;

/// Bytes that a compressed batch may decompress to.
pub const DECOMPRESSED_BATCH_BYTES: usize = 256 * 1024 * 1024;

/// Memory that checks of compressed batches hold at a time on a node of so many cores. One record that is larger than
/// usual is decompressed beside them.
pub fn decompression_bytes(cores: usize) -> usize {
    const BYTES_PER_CORE: usize = 128 * 1024 * 1024;
    cores.max(2) * BYTES_PER_CORE
}

/// Places of logs that are looked at under one hold of their lock, for which a core may wait: a tenth of a millisecond or so.
pub const PLACES_AT_ONCE: usize = 128;

/// How long whoever goes through all of them stays away from that lock each time, so that those who wait get it.
pub const PLACES_PAUSE: Duration = Duration::from_micros(50);

/// Partitions that an answer describes while its core waits: about a millisecond of it.
pub const PARTITIONS_DESCRIBED_INLINE: usize = 2000;

/// Resources of which the configurations are written to an answer while its core waits, some 5 KB each.
pub const RESOURCES_WRITTEN_INLINE: usize = 100;

/// Answers about all topics that are kept, one for each listener and version that clients use; 5 MB each with 100,000
/// partitions.
pub const ANSWERS_KEPT: usize = 4;

/// How long after its start a node looks for old segments first, where `log.retention.check.interval.ms` is longer.
pub const FIRST_RETENTION_CHECK: Duration = Duration::from_secs(30);

/// Segments that leave a log before other tasks of its core get their turn: each takes some renames.
pub const SEGMENTS_DROPPED_AT_ONCE: usize = 8;

/// Files that are unlinked before whoever else waits for that thread has its turn: about those of one segment.
pub const FILES_REMOVED_AT_ONCE: usize = 5;

/// The pause after them: the disk has other things to do too.
pub const REMOVAL_PAUSE: Duration = Duration::from_millis(1);

/// The shortest time that DeleteRecords waits for the disk, whatever it asks for, in milliseconds.
pub const DELETE_RECORDS_WAIT_MS_MIN: u64 = 1000;

/// How long to wait before a flush that found no room is tried again.
pub const FULL_DISK_PAUSE: Duration = Duration::from_millis(500);

/// How often to look whether a log whose end is being copied may still be cut.
pub const COPY_LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Logs that are recovered in one turn: that of a busy core comes seldom, and the disk then takes what is left of all
/// at once.
pub const LOGS_RECOVERED_TOGETHER: usize = 64;

/// Bytes that are read of the logs of such a turn, where the first has no more: some hundredths of a second, for which
/// the first of them waits for the last.
pub const RECOVERED_TOGETHER_BYTES: u64 = 16 * 1024 * 1024;

/// The most logs of a turn that are synced file by file, some milliseconds each. Of more, their file system is.
pub const RECOVERED_LOGS_SYNCED_ALONE: usize = 8;

/// The first pause before a log that could not be opened or made is tried again, in milliseconds.
pub const LOG_RETRY_MS_MIN: u64 = 1000;

/// The longest such pause, in milliseconds.
pub const LOG_RETRY_MS_MAX: u64 = 60_000;

/// The largest batch that a coordinator writes or reads back, in bytes.
pub const COORDINATOR_BATCH_BYTES: usize = 64 * 1024 * 1024;

/// Topics that one core has created at once for clients that have asked for them.
pub const TOPICS_CREATED_AT_ONCE: usize = 1_000;

/// Changes of topics that a core remembers; a fetch session that was away for more looks up all it names.
pub const TOPIC_CHANGES: usize = 4096;

/// Partitions that all fetch sessions of one core's connections name: about 130 bytes each, up to 210 where a
/// topic has only one of them. A session that would exceed it ends, and its client names its partitions with
/// each request.
pub const FETCH_SESSION_PARTITIONS_PER_CORE: usize = 500_000;

/// Tasks of mirrors that wait for a core to start them.
pub const MIRROR_TASKS: usize = 1024;

/// Bytes of requests that a node of so many cores holds at a time (`queued.max.request.bytes` unset).
pub fn inbound_bytes(cores: usize) -> usize {
    const BYTES_PER_CORE: usize = 256 * 1024 * 1024;
    cores.max(1) * BYTES_PER_CORE
}

/// Connections to the admin listener; where another comes, the oldest that is idle goes.
pub const ADMIN_CONNECTIONS: usize = 32;

/// Those of them that may wait for the answer to a scrape.
pub const ADMIN_SCRAPES: usize = 16;

/// Connections to the admin listener that are taken at a time: fewer than it holds, so that whoever is there is read before
/// it can be the oldest of too many.
pub const ADMIN_ACCEPTED_AT_ONCE: usize = 8;

/// The head of a request to it, in bytes.
pub const ADMIN_HEAD_BYTES: usize = 8 * 1024;

/// The headers in it.
pub const ADMIN_HEADERS: usize = 64;

/// How long such a request may take to come.
pub const ADMIN_REQUEST_WAIT: Duration = Duration::from_secs(5);

/// How long its answer may take to be taken.
pub const ADMIN_ANSWER_WAIT: Duration = Duration::from_secs(30);

/// How long a client that has its answer may take to close the connection.
pub const ADMIN_LINGER: Duration = Duration::from_secs(1);

/// How long the admin thread waits before it tries again what the system refused.
pub const ADMIN_PAUSE: Duration = Duration::from_millis(50);

/// How long a scrape waits for the cores.
pub const SCRAPE_WAIT: Duration = Duration::from_secs(5);

/// How long a scrape waits for directories to say how much room they have.
pub const ROOM_WAIT: Duration = Duration::from_secs(1);

/// Mirrored partitions of which a scrape asks at a time, while whoever writes how they stand waits.
pub const MIRROR_PARTITIONS_MEASURED_AT_ONCE: usize = 500;

/// How long a start waits for a port that is still taken: a node that was killed keeps its own for a moment.
pub const PORT_WAIT: Duration = Duration::from_secs(3);

/// How long to wait before a port is tried again.
pub const PORT_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// How long a core that deletes logs waits until their directories are renamed, before it goes on to the next change of
/// the metadata. One whose disk does not answer is renamed after that.
pub const DELETION_WAIT: Duration = Duration::from_secs(1);

/// How long compaction waits before it puts a segment in its place again, where somebody was opening a file that leaves
/// the log.
pub const SWAP_PAUSE: Duration = Duration::from_millis(10);

/// How often one partition is looked up on the disk again for one request, each time because its files have changed
/// meanwhile, before its clients are told that it cannot be read.
pub const LOOKUPS_OF_CHANGED_MAX: u32 = 8;
