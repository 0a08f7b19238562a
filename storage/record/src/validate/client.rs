//! What a client may append to a partition, and which error says what is wrong.
//!
//! The checks and their order are Kafka's (LogValidator and what runs before it), so that a client sees the
//! same error from both. They need CPU in proportion to the decompressed records; [`ClientBatchValidator`]
//! does them in steps so that a core can serve others in between.
//!
//! Stricter than Kafka: offsets inside the batch must be 0, 1, 2, …, and nothing may follow the batch.

use bytes::Bytes;
use thiserror::Error;

use crate::batch::{
    AT_CRC_COVERS, BatchError, BatchHeader, HEADER_BYTES_TO_MAGIC, ReadError, RecordReader, RecordView,
    TimestampType, ValidBatch, announced_size,
};
use crate::codec::{CodecError, Compression, lz4_blocks_are_independent};
use crate::ids::{Offset, Timestamp};

/// How many records of one batch are named in an answer; a batch may hold millions of bad ones.
const RECORD_ERRORS_MAX: usize = 100;
/// How many of them the message of the whole batch repeats.
const RECORD_ERRORS_IN_MESSAGE: usize = 3;

/// What the topic and the request demand of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceRules {
    /// `max.message.bytes`.
    pub max_batch_bytes: usize,
    /// Whether `cleanup.policy` has `compact`: every record needs a key.
    pub compacted: bool,
    /// `message.timestamp.type`; the producer's timestamps matter only for CreateTime.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub after_max_ms: i64,
    /// Whether the request is new enough for zstd: Produce 7 or later (KIP-110).
    pub zstd_allowed: bool,
    /// The most bytes the records may decompress to.
    pub decompressed_limit: usize,
}

/// A batch that may be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientBatch {
    /// The batch as it came: base offset 0, no leader epoch.
    pub batch: ValidBatch,
    /// The largest timestamp of its records, in ms; -1 where none has one. The header's may differ.
    pub max_timestamp: i64,
    /// The offset delta of the first record with that timestamp.
    pub offset_of_max_timestamp: i32,
}

/// The kinds of refusal that Kafka's protocol knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordError {
    /// `CORRUPT_MESSAGE`: the bytes are not those that the client wrote.
    CorruptMessage,
    /// `MESSAGE_TOO_LARGE`.
    MessageTooLarge,
    /// `INVALID_TIMESTAMP`.
    InvalidTimestamp,
    /// `UNSUPPORTED_COMPRESSION_TYPE`.
    UnsupportedCompression,
    /// `INVALID_RECORD`.
    InvalidRecord,
}

impl RecordError {
    /// Kafka's error code.
    pub fn code(self) -> i16 {
        match self {
            RecordError::CorruptMessage => 2,
            RecordError::MessageTooLarge => 10,
            RecordError::InvalidTimestamp => 32,
            RecordError::UnsupportedCompression => 76,
            RecordError::InvalidRecord => 87,
        }
    }
}

/// Why a batch may not be appended. Nothing of it is.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct InvalidBatch {
    /// What the client is told.
    pub error: RecordError,
    /// One sentence for people.
    pub message: String,
    /// The records at fault, by their place in the batch, where single records are: the first hundred.
    pub record_errors: Vec<(i32, String)>,
}

impl InvalidBatch {
    fn new(error: RecordError, message: impl Into<String>) -> InvalidBatch {
        InvalidBatch { error, message: message.into(), record_errors: Vec::new() }
    }
}

/// Checks that `records` is exactly one batch that a client may append at the time `now`.
///
/// # Errors
/// What is wrong, as the client is told.
pub fn client_batch(records: Bytes, rules: &ProduceRules, now: Timestamp) -> Result<ClientBatch, InvalidBatch> {
    let mut validator = ClientBatchValidator::new(records, rules, now);
    loop {
        if let Progress::Done(result) = validator.step(usize::MAX) {
            return result;
        }
    }
}

/// The same in steps: call `step` until it is done, letting other work run in between.
#[derive(Debug)]
pub struct ClientBatchValidator {
    rules: ProduceRules,
    now: Timestamp,
    phase: Phase,
}

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to check.
    More,
    /// The verdict. Returned once.
    Done(Result<ClientBatch, InvalidBatch>),
}

#[derive(Debug)]
enum Phase {
    Header { records: Bytes },
    Checksum { batch: Bytes, header: BatchHeader, crc: u32, at: usize },
    Records { batch: ValidBatch, reader: Box<RecordReader>, seen: Seen },
    Done,
}

impl ClientBatchValidator {
    /// Begins; nothing is checked yet.
    pub fn new(records: Bytes, rules: &ProduceRules, now: Timestamp) -> ClientBatchValidator {
        ClientBatchValidator { rules: *rules, now, phase: Phase::Header { records } }
    }

    /// Goes on until about `budget` bytes were looked at. A step may take longer by one slice of 32 KiB, one
    /// record, or the whole batch where it is a single raw snappy block.
    ///
    /// # Panics
    /// Where it is called again after `Done`: there is no second verdict.
    pub fn step(&mut self, budget: usize) -> Progress {
        match self.advance(budget) {
            Ok(None) => Progress::More,
            Ok(Some(batch)) => Progress::Done(Ok(batch)),
            Err(refusal) => Progress::Done(Err(refusal)),
        }
    }

    fn advance(&mut self, budget: usize) -> Result<Option<ClientBatch>, InvalidBatch> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Header { records } => {
                let header = check_shape(&records, &self.rules)?;
                self.phase = Phase::Checksum { batch: records, header, crc: 0, at: AT_CRC_COVERS };
                Ok(None)
            }
            Phase::Checksum { batch, header, crc, at } => {
                let end = at.saturating_add(budget.max(1)).min(batch.len());
                let crc = crc32c::crc32c_append(crc, &batch[at..end]);
                self.phase = match end == batch.len() {
                    true => self.begin_records(batch, header, crc)?,
                    false => Phase::Checksum { batch, header, crc, at: end },
                };
                Ok(None)
            }
            Phase::Records { batch, mut reader, mut seen } => {
                let until = reader.bytes_read().saturating_add(budget.max(1));
                while reader.bytes_read() < until {
                    let Some(record) = reader.next() else { return seen.verdict(batch).map(Some) };
                    let record = record.map_err(|error| unreadable(&error))?;
                    seen.check(&record, batch.header(), &self.rules, self.now)?;
                }
                self.phase = Phase::Records { batch, reader, seen };
                Ok(None)
            }
            Phase::Done => panic!("a batch is judged once"),
        }
    }

    fn begin_records(&self, batch: Bytes, header: BatchHeader, crc: u32) -> Result<Phase, InvalidBatch> {
        if crc != header.crc {
            let error = BatchError::BadChecksum { offset: header.base_offset, stored: header.crc, computed: crc };
            return Err(InvalidBatch::new(RecordError::CorruptMessage, error.to_string()));
        }
        check_header(&header)?;
        let batch = ValidBatch::checked_elsewhere(batch, header);
        let reader = batch.reader(self.rules.decompressed_limit).map_err(|error| undecodable(&error))?;
        if header.compression() == Ok(Compression::Lz4) && !lz4_blocks_are_independent(&batch.section()) {
            let message = "the lz4 frame has blocks that depend on each other, which consumers cannot read";
            return Err(InvalidBatch::new(RecordError::CorruptMessage, message));
        }
        Ok(Phase::Records { batch, reader: Box::new(reader), seen: Seen::default() })
    }
}

/// Everything that comes before the CRC: one batch, of format 2, not too large, from a client.
fn check_shape(records: &Bytes, rules: &ProduceRules) -> Result<BatchHeader, InvalidBatch> {
    let size = match announced_size(records) {
        Ok(Some(size)) if size <= records.len() => size,
        Ok(_) => return Err(InvalidBatch::new(RecordError::InvalidRecord, "there is no whole record batch")),
        Err(error @ BatchError::UnsupportedMagic { .. }) => {
            return Err(InvalidBatch::new(RecordError::InvalidRecord, error.to_string()));
        }
        Err(error) => return Err(InvalidBatch::new(RecordError::CorruptMessage, error.to_string())),
    };
    if size < records.len() {
        return Err(InvalidBatch::new(RecordError::InvalidRecord, after_batch(&records[size..])));
    }
    let header = BatchHeader::parse(records)
        .map_err(|error| InvalidBatch::new(RecordError::CorruptMessage, error.to_string()))?;
    match header.compression() {
        Err(error) => return Err(undecodable(&error)),
        Ok(Compression::Zstd) if !rules.zstd_allowed => {
            let message = "zstd needs version 7 or later of the Produce request";
            return Err(InvalidBatch::new(RecordError::UnsupportedCompression, message));
        }
        Ok(_) => {}
    }
    if header.base_offset != Offset(0) {
        let message = format!("the base offset of a new batch must be 0, but it is {}", header.base_offset);
        return Err(InvalidBatch::new(RecordError::InvalidRecord, message));
    }
    if size > rules.max_batch_bytes {
        let message =
            format!("the batch has {size} bytes; max.message.bytes allows {}", rules.max_batch_bytes);
        return Err(InvalidBatch::new(RecordError::MessageTooLarge, message));
    }
    Ok(header)
}

fn after_batch(rest: &[u8]) -> String {
    if rest.len() < HEADER_BYTES_TO_MAGIC {
        return format!("{} bytes follow the record batch", rest.len());
    }
    "there is more than one record batch for the partition".to_owned()
}

/// What the header says, once its CRC shows that it is what the client wrote.
fn check_header(header: &BatchHeader) -> Result<(), InvalidBatch> {
    let BatchHeader { last_offset_delta, record_count, producer_id, base_sequence, .. } = *header;
    let invalid = |message: String| Err(InvalidBatch::new(RecordError::InvalidRecord, message));
    if last_offset_delta < 0 {
        return invalid(format!("the batch has the last offset delta {last_offset_delta}"));
    }
    if record_count <= 0 {
        return invalid(format!("the batch announces {record_count} records"));
    }
    if last_offset_delta != record_count - 1 {
        return invalid(format!(
            "the batch announces {record_count} records, but its last offset delta is {last_offset_delta}"
        ));
    }
    if header.is_control() {
        return invalid("clients may not write control records".to_owned());
    }
    if header.has_producer_id() && base_sequence.0 < 0 {
        return invalid(format!("producer {producer_id} sent a batch with the sequence {base_sequence}"));
    }
    if header.timestamp_type() == TimestampType::LogAppendTime {
        let message = "a producer may not set the timestamp type LogAppendTime";
        return Err(InvalidBatch::new(RecordError::InvalidTimestamp, message));
    }
    Ok(())
}

/// What the records so far came to.
#[derive(Debug)]
struct Seen {
    count: i32,
    max_timestamp: i64,
    offset_of_max_timestamp: i32,
    bad: usize,
    worst: RecordError,
    errors: Vec<(i32, String)>,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            count: 0,
            max_timestamp: Timestamp::NONE.0,
            offset_of_max_timestamp: 0,
            bad: 0,
            worst: RecordError::InvalidRecord,
            errors: Vec::new(),
        }
    }
}

impl Seen {
    fn check(
        &mut self,
        record: &RecordView<'_>,
        header: &BatchHeader,
        rules: &ProduceRules,
        now: Timestamp,
    ) -> Result<(), InvalidBatch> {
        let index = self.count;
        if record.offset_delta != index {
            let message = format!("record {index} of the batch has the offset delta {}", record.offset_delta);
            return Err(InvalidBatch::new(RecordError::InvalidRecord, message));
        }
        let timestamp = header.timestamp_of(record.timestamp_delta);
        if rules.compacted && record.key.is_none() {
            let message = || format!("record {index} has no key, which a compacted topic needs");
            self.reject(index, RecordError::InvalidRecord, message);
        } else if rules.timestamp_type == TimestampType::CreateTime && !in_range(timestamp, rules, now) {
            let message = || out_of_range(index, timestamp, rules, now);
            self.reject(index, RecordError::InvalidTimestamp, message);
        }
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.offset_of_max_timestamp = index;
        }
        self.count += 1;
        Ok(())
    }

    fn reject(&mut self, index: i32, error: RecordError, message: impl FnOnce() -> String) {
        self.bad += 1;
        if error == RecordError::InvalidTimestamp {
            self.worst = error;
        }
        if self.errors.len() < RECORD_ERRORS_MAX {
            self.errors.push((index, message()));
        }
    }

    fn verdict(self, batch: ValidBatch) -> Result<ClientBatch, InvalidBatch> {
        if self.bad == 0 {
            let Seen { max_timestamp, offset_of_max_timestamp, .. } = self;
            return Ok(ClientBatch { batch, max_timestamp, offset_of_max_timestamp });
        }
        let first: Vec<&str> =
            self.errors.iter().take(RECORD_ERRORS_IN_MESSAGE).map(|(_, message)| &message[..]).collect();
        let message = match self.bad {
            1 => format!("one record was refused: {}", first.join("; ")),
            bad => format!("{bad} records were refused, among them: {}", first.join("; ")),
        };
        Err(InvalidBatch { error: self.worst, message, record_errors: self.errors })
    }
}

/// A record without a timestamp is never out of range.
fn in_range(timestamp: i64, rules: &ProduceRules, now: Timestamp) -> bool {
    timestamp == Timestamp::NONE.0
        || (now.0.saturating_sub(timestamp) <= rules.before_max_ms
            && timestamp.saturating_sub(now.0) <= rules.after_max_ms)
}

fn out_of_range(index: i32, timestamp: i64, rules: &ProduceRules, now: Timestamp) -> String {
    let earliest = now.0.saturating_sub(rules.before_max_ms);
    let latest = now.0.saturating_add(rules.after_max_ms);
    format!("record {index} has the timestamp {timestamp}, which is not within [{earliest}, {latest}]")
}

fn unreadable(error: &ReadError) -> InvalidBatch {
    match error {
        ReadError::Codec(error) => undecodable(error),
        ReadError::Malformed { .. } => InvalidBatch::new(RecordError::InvalidRecord, error.to_string()),
    }
}

fn undecodable(error: &CodecError) -> InvalidBatch {
    let code = match error {
        CodecError::Corrupt { .. } => RecordError::CorruptMessage,
        CodecError::LimitExceeded { .. } => RecordError::MessageTooLarge,
        CodecError::UnknownId(_) | CodecError::UnknownName(_) => RecordError::UnsupportedCompression,
    };
    InvalidBatch::new(code, error.to_string())
}
