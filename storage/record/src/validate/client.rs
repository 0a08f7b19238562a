//! What a client may append to a partition, and which error says what is wrong.
//!
//! The checks and their order are Kafka's (LogValidator and what runs before it), so that a client sees the
//! same error from both. They need CPU in proportion to the decompressed records; [`ClientBatchValidator`]
//! does them in steps so that a core can serve others in between.
//!
//! Stricter than Kafka: offsets inside the batch must be 0, 1, 2, … and each record as long as it says, whatever the
//! codec, and nothing may follow the batch, where Kafka takes the batch and drops what is cut short behind it.
//! What Kafka answers with UNKNOWN_SERVER_ERROR, because nobody expects it there, has a code of its own here;
//! none that a producer would try again.

use bytes::Bytes;

use super::recompressing::{Recompression, Recompressor};
use super::refusal::{InvalidBatch, RecordError};
use super::verdict::Verdict;
use crate::batch::{
    AT_CRC_COVERS, BatchError, BatchHeader, ReadError, RecordFault, RecordReader, TimestampType, ValidBatch,
    announced_size,
};
use crate::codec::{CodecError, Compression, kafka_reads_lz4};
use crate::ids::{Offset, Timestamp};

/// What the topic and the request demand of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceRules {
    /// `max.message.bytes`.
    pub max_batch_bytes: usize,
    /// `segment.bytes`: a batch has to fit into a segment.
    pub segment_bytes: usize,
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
    /// `max.decompressed.message.bytes`: the most that one compressed record may be.
    pub record_max: usize,
    /// The codec of stored batches; `None` for that of the producer.
    pub recompress: Option<Recompression>,
}

/// A batch that may be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientBatch {
    /// The batch as it came, but in the topic's codec: base offset 0.
    pub batch: ValidBatch,
    /// The largest timestamp of its records, in ms; -1 where none has one. The header's may differ.
    pub max_timestamp: i64,
    /// The offset delta of the first record with that timestamp.
    pub offset_of_max_timestamp: i32,
}

/// How much memory a step may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// What almost every batch needs at most.
    Usual,
    /// What the rules allow a record, or a window of the codec, to be.
    AsAllowed,
}

/// The largest record that is decompressed, and the largest block or window of a codec, in the usual room. zstd has
/// larger windows only where its compressor was told so, or beyond level 19.
const USUAL_RECORD_BYTES: usize = 1024 * 1024;
const USUAL_BLOCK_BYTES: usize = 8 * 1024 * 1024;

/// Checks that `records` is exactly one batch that a client may append at the time `now`.
///
/// # Errors
/// What is wrong, as the client is told.
pub fn client_batch(
    records: Bytes,
    rules: &ProduceRules,
    now: Timestamp,
) -> Result<ClientBatch, InvalidBatch> {
    let mut validator = ClientBatchValidator::new(records, rules, now);
    loop {
        match validator.step(usize::MAX) {
            Progress::Done(result) => return result,
            Progress::NeedsRoom => validator.give_room(),
            Progress::More => {}
        }
    }
}

/// The same in steps: call `step` until it is done, letting other work run in between.
#[derive(Debug)]
pub struct ClientBatchValidator {
    rules: ProduceRules,
    now: Timestamp,
    room: Room,
    phase: Phase,
}

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to check.
    More,
    /// A record, or the codec, needs more memory than [`ClientBatchValidator::USUAL_MEMORY`]: give it room, and the checks
    /// begin anew.
    NeedsRoom,
    /// The verdict. Returned once.
    Done(Result<ClientBatch, InvalidBatch>),
}

#[derive(Debug)]
enum Phase {
    Header {
        records: Bytes,
    },
    Checksum {
        batch: Bytes,
        header: BatchHeader,
        crc: u32,
        at: usize,
    },
    Records {
        batch: ValidBatch,
        reader: Box<RecordReader>,
        verdict: Verdict,
        anew: Option<Box<Recompressor>>,
    },
    Done,
}

impl ClientBatchValidator {
    /// About the most bytes that the check of a compressed batch holds besides the batch, unless it is given room for
    /// more: a codec's window, and a record while it grows.
    pub const USUAL_MEMORY: usize = 2 * USUAL_BLOCK_BYTES;

    /// Begins; nothing is checked yet.
    pub fn new(records: Bytes, rules: &ProduceRules, now: Timestamp) -> ClientBatchValidator {
        ClientBatchValidator { rules: *rules, now, room: Room::Usual, phase: Phase::Header { records } }
    }

    /// Allows as much memory as the largest record takes that the rules allow.
    pub fn give_room(&mut self) {
        self.room = Room::AsAllowed;
    }

    /// Goes on until about `budget` bytes were looked at. A step may take longer by one slice of 32 KiB, one
    /// record, or the whole batch where it is a single raw snappy block.
    ///
    /// # Panics
    /// Where it is called again after `Done`: there is no second verdict.
    pub fn step(&mut self, budget: usize) -> Progress {
        let mut left = budget.max(1);
        while left > 0 {
            match self.advance(&mut left) {
                Ok(None) => {}
                Ok(Some(batch)) => return Progress::Done(Ok(batch)),
                Err(Stop::NeedsRoom) => return Progress::NeedsRoom,
                Err(Stop::Refused(refusal)) => return Progress::Done(Err(refusal)),
            }
        }
        Progress::More
    }

    /// Spends what is `left` on the current phase, and enters the next where this one ends before.
    fn advance(&mut self, left: &mut usize) -> Result<Option<ClientBatch>, Stop> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Header { records } => {
                let header = check_shape(&records, &self.rules)?;
                self.phase = Phase::Checksum { batch: records, header, crc: 0, at: AT_CRC_COVERS };
            }
            Phase::Checksum { batch, header, crc, at } => {
                let end = at.saturating_add(*left).min(batch.len());
                *left -= end - at;
                let crc = crc32c::crc32c_append(crc, &batch[at..end]);
                self.phase = match end == batch.len() {
                    true => self.begin_records(batch, header, crc)?,
                    false => Phase::Checksum { batch, header, crc, at: end },
                };
            }
            Phase::Records { batch, mut reader, mut verdict, mut anew } => {
                let mut spent = 0;
                while spent < *left {
                    if let Some(anew) = anew.as_mut().filter(|anew| anew.is_behind()) {
                        spent += anew.step();
                        check_size(anew.size(), &self.rules)?;
                        continue;
                    }
                    let Some(record) = reader.next() else {
                        let taken = verdict.pronounce(batch)?;
                        return Ok(Some(in_topics_codec(taken, anew, &self.rules)?));
                    };
                    let record = match record {
                        Err(error) if self.has_too_little_room(&error, batch.header()) => {
                            self.phase = Phase::Header { records: batch.bytes().clone() };
                            return Err(Stop::NeedsRoom);
                        }
                        record => record.map_err(|error| unreadable(&error))?,
                    };
                    verdict.check(&record, batch.header(), &self.rules, self.now)?;
                    if let Some(anew) = &mut anew {
                        anew.take(&record);
                    }
                    spent += record.encoded.len();
                }
                *left = 0;
                self.phase = Phase::Records { batch, reader, verdict, anew };
            }
            Phase::Done => panic!("a batch is judged once"),
        }
        Ok(None)
    }

    /// True where more room may give another verdict.
    fn has_too_little_room(&self, error: &ReadError, header: &BatchHeader) -> bool {
        let is_short = match error {
            ReadError::Malformed { fault: RecordFault::TooLarge(_, max), .. } => *max < self.rules.record_max,
            ReadError::Malformed { .. } => false,
            // What a block lacks, snappy tells as it tells of the whole, and zstd not at all.
            ReadError::Codec(CodecError::LimitExceeded { .. }) => {
                header.compression() == Ok(Compression::Snappy)
            }
            ReadError::Codec(_) => header.compression() == Ok(Compression::Zstd),
        };
        is_short && self.room == Room::Usual
    }

    fn begin_records(&self, batch: Bytes, header: BatchHeader, crc: u32) -> Result<Phase, InvalidBatch> {
        if crc != header.crc {
            let error =
                BatchError::BadChecksum { offset: header.base_offset, stored: header.crc, computed: crc };
            return Err(InvalidBatch::new(RecordError::CorruptMessage, error.to_string()));
        }
        check_header(&header)?;
        let batch = ValidBatch::checked_elsewhere(batch, header);
        let reader = batch.reader(self.rules.decompressed_limit).map_err(|error| undecodable(&error))?;
        let record_max = self.rules.record_max;
        let reader = match self.room {
            Room::Usual => reader
                .with_record_max(record_max.min(USUAL_RECORD_BYTES))
                .with_block_max(USUAL_BLOCK_BYTES)
                .map_err(|error| undecodable(&error))?,
            Room::AsAllowed => reader.with_record_max(record_max),
        };
        if header.compression() == Ok(Compression::Lz4) && !kafka_reads_lz4(&batch.section()) {
            let message = "the lz4 data is not a frame of independent blocks, which consumers need";
            return Err(InvalidBatch::new(RecordError::InvalidRecord, message));
        }
        let anew = Recompressor::of(&header, self.rules.recompress).map(Box::new);
        Ok(Phase::Records { batch, reader: Box::new(reader), verdict: Verdict::default(), anew })
    }
}

/// Why there is no next step.
enum Stop {
    Refused(InvalidBatch),
    NeedsRoom,
}

impl From<InvalidBatch> for Stop {
    fn from(refusal: InvalidBatch) -> Stop {
        Stop::Refused(refusal)
    }
}

/// The end of a good batch: it is in the topic's codec and may have become too large by it.
fn in_topics_codec(
    taken: ClientBatch,
    anew: Option<Box<Recompressor>>,
    rules: &ProduceRules,
) -> Result<ClientBatch, InvalidBatch> {
    let batch = match anew {
        Some(anew) => anew.finish(taken.batch.header()),
        None => taken.batch,
    };
    let size = batch.bytes().len();
    check_size(size, rules)?;
    if size > rules.segment_bytes {
        let message = format!("the batch has {size} bytes; segment.bytes is {}", rules.segment_bytes);
        return Err(InvalidBatch::new(RecordError::RecordListTooLarge, message));
    }
    Ok(ClientBatch { batch, ..taken })
}

fn check_size(size: usize, rules: &ProduceRules) -> Result<(), InvalidBatch> {
    if size <= rules.max_batch_bytes {
        return Ok(());
    }
    let message = format!("the batch has {size} bytes; max.message.bytes allows {}", rules.max_batch_bytes);
    Err(InvalidBatch::new(RecordError::MessageTooLarge, message))
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
        return Err(after_batch(&records[size..]));
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
    check_size(size, rules)?;
    Ok(header)
}

fn after_batch(rest: &[u8]) -> InvalidBatch {
    match announced_size(rest) {
        Err(error) => InvalidBatch::new(RecordError::CorruptMessage, error.to_string()),
        Ok(None) => {
            let message = format!("{} bytes follow the record batch", rest.len());
            InvalidBatch::new(RecordError::InvalidRecord, message)
        }
        Ok(Some(_)) => {
            let message = "there is more than one record batch for the partition";
            InvalidBatch::new(RecordError::InvalidRecord, message)
        }
    }
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
    Ok(())
}

fn unreadable(error: &ReadError) -> InvalidBatch {
    match error {
        ReadError::Codec(error) => undecodable(error),
        ReadError::Malformed { .. } => InvalidBatch::new(RecordError::InvalidRecord, error.to_string()),
    }
}

fn undecodable(error: &CodecError) -> InvalidBatch {
    let code = match error {
        // The CRC fits, so that to send it again would not help: CORRUPT_MESSAGE would make producers do so.
        CodecError::Corrupt { .. } => RecordError::InvalidRecord,
        CodecError::LimitExceeded { .. } => RecordError::MessageTooLarge,
        CodecError::UnknownId(_) | CodecError::UnknownName(_) => RecordError::UnsupportedCompression,
    };
    InvalidBatch::new(code, error.to_string())
}

#[cfg(test)]
mod tests;
