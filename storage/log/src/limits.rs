//! What a log holds at most. Each limit comes from the file format or bounds memory.

/// The largest segment: positions in an offset index are `int32`.
pub const SEGMENT_BYTES_MAX: u32 = i32::MAX as u32;

/// The most offsets that a segment spans: offsets in its indexes are relative to its base, `int32`.
pub const SEGMENT_OFFSETS_MAX: i64 = i32::MAX as i64;

/// Index entries that a segment keeps in memory before it writes them to the file: 64 KiB.
pub const INDEX_ENTRIES_IN_MEMORY_MAX: usize = 4096;

/// The most decompressed bytes of one batch that a search for a timestamp looks at.
pub const SEARCHED_BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The largest control batch whose record is read.
pub const CONTROL_BATCH_BYTES_MAX: usize = 1024 * 1024;

/// What of a log is copied at once into another file, 1 MiB.
pub const EXPORT_PIECE_BYTES: usize = 1 << 20;

/// What a copy of a log leaves free on its disk, 64 MiB. By default that disk has the metadata log and the state of the
/// mirrors too, and the cut that follows needs a new segment; nothing of it is large.
pub const EXPORT_RESERVE_BYTES: u64 = 64 << 20;

/// What of a file is written out at once before it is synced. A background flush of less is a sync alone.
pub const WRITE_OUT_BYTES: u64 = 4 << 20;

/// The most logs of a flush that are synced file by file, which takes some milliseconds each. Of more, the file
/// system is synced as a whole, and waits for all that others have written to it: up to a second or two.
pub const FILES_SYNCED_ALONE_MAX: usize = 128;

/// The most segments that compaction writes as one: their exchange for it is done on the log's core.
pub const SEGMENTS_IN_GROUP_MAX: usize = 64;

/// What compaction writes at once, 1 MiB.
pub const CLEANED_PIECE_BYTES: usize = 1 << 20;

/// The most segments whose ages retention looks up at once.
pub const AGES_READ_AT_ONCE: usize = 64;

/// How many of the last bytes below the first segment that a recovery checks it looks through, one after the other, for
/// batches that may be sent again, as long as some may be further below: 1, 8 and 64 MiB.
pub const SENT_AGAIN_BYTES: [u64; 3] = [1 << 20, 8 << 20, SENT_AGAIN_BYTES_MAX];

/// The most of them: some tenths of a second, beside a segment that is read anyway.
pub const SENT_AGAIN_BYTES_MAX: u64 = 64 << 20;
