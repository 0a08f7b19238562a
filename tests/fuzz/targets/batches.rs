//! Record batches: as a client sends them, as a mirror gets them, as a reader finds them. Most inputs have a right CRC.

use std::hint::black_box;

use bytes::{Buf, Bytes};
use tarn_record::{
    BatchBuilder, BatchHeader, ClientBatch, ClientBatchValidator, Compression, ControlRecord, EndTransaction,
    Epoch, MirroredScanner, Offset, Outcome, ProduceRules, ProducerEpoch, ProducerId, Progress,
    Recompression, Record, RecordReader, Rewrite, Sequence, Timestamp, TimestampType, ValidBatch, batches,
    end_transaction_marker, mirrored, records,
};

use crate::checksums;
use crate::engine::{Says, Steps, Target};

/// The most that is decompressed.
const LIMIT: usize = 128 * 1024;

/// A codec's own tables and window, of which lz4's is the largest, and what grows with the output.
const MEMORY_BASE: usize = (13 << 20) + 4 * LIMIT;

/// What is on the disk or on the wire may be smaller than what it is in memory: batches, as headers of their own.
const MEMORY_PER_BYTE: usize = 16;

pub(crate) fn all() -> Vec<Target> {
    vec![
        target("batch.read", read).inputs(30_000),
        target("batch.mirrored", from_a_source).memory(MEMORY_PER_BYTE, 4096),
        target("batch.client", |input, steps| from_a_client(input, steps, None)),
        target("batch.client-recompressed", |input, steps| {
            let codec = Compression::ALL[usize::from(input.first().copied().unwrap_or(0)) % 4];
            from_a_client(input, steps, Some(Recompression { compression: codec, level: None }))
        })
        .inputs(4000),
        target("batch.rewritten", rewritten),
        records_target(),
    ]
}

fn target(name: &str, decode: impl Fn(Bytes, &mut Steps) -> Says + 'static) -> Target {
    Target::new(name, decode)
        .seeds(seeds())
        .memory(MEMORY_PER_BYTE, MEMORY_BASE)
        // A record of one byte is one step, and so is a header of two.
        .steps(4, 2 * LIMIT)
        .repair(checksums::batches)
}

/// Batches of every codec, of both kinds of producers, and in old formats.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for compression in Compression::ALL {
        for count in [1, 3, 40] {
            seeds.push(batch(0, compression, count).to_vec());
        }
    }
    seeds.push([batch(0, Compression::None, 2), batch(2, Compression::Lz4, 3), marker(5)].concat());
    seeds.push(marker(7).to_vec());
    seeds.push(idempotent(0, 0, 3).to_vec());
    seeds.extend(OLD_FORMATS.map(|old| old.to_vec()));
    seeds
}

/// A message of format 0 and one of format 1: offset, size, CRC, magic, attributes, the timestamp, key, value.
const OLD_FORMATS: [&[u8]; 2] = [
    &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 17, 1, 2, 3, 4, 0, 0, 255, 255, 255, 255, 0, 0, 0, 3, 97, 98, 99],
    &[
        0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 24, 1, 2, 3, 4, 1, 0, 0, 0, 1, 0x8b, 0xcf, 0xe5, 0x68, 0, 0, 0, 0,
        1, 107, 0, 0, 0, 2, 118, 118,
    ],
];

pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);

pub(crate) fn batch(base: i64, compression: Compression, count: usize) -> Bytes {
    let mut builder = BatchBuilder::new(Offset(base), compression).timestamp(NOW).leader_epoch(Epoch(1));
    let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", Some(b"1")), (b"h", None), (b"", Some(b""))];
    for index in 0..count {
        let value = format!("value {index} value value").into_bytes();
        builder.add(&Record {
            key: (index % 3 > 0).then_some(&b"key"[..]),
            value: (index % 4 > 0).then_some(&value),
            headers: if index % 5 == 0 { headers } else { &[] },
            timestamp: Timestamp(NOW.0 + index as i64),
        });
    }
    builder.build()
}

/// A batch of a transaction.
pub(crate) fn idempotent(base: i64, sequence: i32, count: usize) -> Bytes {
    let builder = BatchBuilder::new(Offset(base), Compression::None).timestamp(NOW).leader_epoch(Epoch(1));
    let mut builder =
        builder.producer(ProducerId(4000), ProducerEpoch(3), Sequence(sequence)).transactional();
    for _ in 0..count {
        builder.add(&Record { key: Some(b"k"), value: Some(b"v"), timestamp: NOW, ..Record::default() });
    }
    builder.build()
}

/// The end of that transaction.
pub(crate) fn marker(base: i64) -> Bytes {
    let end = EndTransaction {
        producer_id: ProducerId(4000),
        producer_epoch: ProducerEpoch(3),
        outcome: Outcome::Abort,
        coordinator_epoch: 11,
    };
    end_transaction_marker(&end, Offset(base), Epoch(1), NOW)
}

/// Every batch there is, every record, every header.
fn read(input: Bytes, steps: &mut Steps) -> Says {
    let mut says =
        Says::result(&BatchHeader::parse(&input), |header| usize::from(header.attributes.0 as u16));
    for batch in batches(input) {
        steps.take();
        says = says.and(match &batch {
            Ok(batch) => read_batch(batch, steps),
            Err(error) => Says::shown(error),
        });
    }
    says
}

fn read_batch(batch: &ValidBatch, steps: &mut Steps) -> Says {
    let header = batch.header();
    black_box((header.last_offset(), header.last_sequence(), header.timestamp_of(i64::MAX), header.write()));
    let control = ControlRecord::parse(batch);
    let says = Says::shown(&control.map(|control| control.control_type)).and(Says::shown(&header.attributes));
    let reader = match batch.reader(LIMIT) {
        Ok(reader) => reader,
        Err(error) => return says.and(Says::shown(&error)),
    };
    says.and(read_records(reader, steps))
}

fn read_records(mut reader: RecordReader, steps: &mut Steps) -> Says {
    let mut read = 0;
    while let Some(record) = reader.next() {
        steps.take();
        let record = match record {
            Ok(record) => record,
            Err(error) => return Says::shown(&error).and(Says::good(read)),
        };
        read += 1;
        let announced = record.headers.len();
        let found = record.headers.inspect(|_| steps.take()).count();
        assert_eq!(found, announced, "headers that were checked");
    }
    Says::good(read)
}

/// What a mirror appends: at once, and as it arrives.
fn from_a_source(input: Bytes, steps: &mut Steps) -> Says {
    let at_once = mirrored(input.clone());
    let (mut scanner, mut from, mut found) = (MirroredScanner::new(), 0, 0);
    let mut arrived = 0;
    let in_pieces = loop {
        arrived = (arrived + 100).min(input.len());
        steps.take();
        let received = input.slice(..arrived);
        let whole = MirroredScanner::whole_bytes(&received);
        match whole.and_then(|_| scanner.scan(&received, from)) {
            Err(error) => break Err(error),
            Ok((batches, end)) => {
                assert!(end >= from && end <= arrived, "it goes on from {end} of {arrived} bytes");
                (from, found) = (end, found + batches.len());
            }
        }
        if arrived == input.len() {
            break Ok(found);
        }
    };
    match (&at_once, &in_pieces) {
        (Ok(all), Ok(found)) => assert_eq!(all.batches.len(), *found, "in pieces there are others"),
        (Err(_), Ok(_)) | (Ok(_), Err(_)) => panic!("{at_once:?}, in pieces {in_pieces:?}"),
        (Err(_), Err(_)) => {}
    }
    Says::result(&at_once, |all| all.batches.len())
}

fn from_a_client(input: Bytes, steps: &mut Steps, recompress: Option<Recompression>) -> Says {
    let rules = ProduceRules {
        max_batch_bytes: 1 << 20,
        segment_bytes: 1 << 20,
        compacted: input.len().is_multiple_of(5),
        timestamp_type: match input.len() % 2 {
            0 => TimestampType::CreateTime,
            _ => TimestampType::LogAppendTime,
        },
        before_max_ms: i64::MAX,
        after_max_ms: 3_600_000,
        zstd_allowed: true,
        decompressed_limit: LIMIT,
        record_max: LIMIT / 2,
        recompress,
    };
    let mut validator = ClientBatchValidator::new(input, &rules, NOW);
    loop {
        steps.take();
        match validator.step(100) {
            Progress::More => {}
            Progress::NeedsRoom => validator.give_room(),
            Progress::Done(verdict) => {
                let count = |taken: &ClientBatch| taken.batch.header().record_count.unsigned_abs() as usize;
                return Says::result(&verdict, count);
            }
        }
    }
}

/// As compaction does it: every other record stays.
fn rewritten(input: Bytes, steps: &mut Steps) -> Says {
    let mut says = Says::good(0);
    for batch in batches(input).flatten() {
        let Ok(mut reader) = batch.reader(LIMIT) else { continue };
        let mut rewrite = Rewrite::of(batch.header());
        let mut read = 0;
        while let Some(Ok(record)) = reader.next() {
            steps.take();
            read += 1;
            if read % 2 == 0 {
                rewrite.keep(&record);
            }
        }
        black_box(batch.emptied());
        let kept = rewrite.count();
        if kept > 0 {
            let whole = ValidBatch::parse(rewrite.finish(Some(NOW)).into_bytes());
            assert!(whole.is_ok(), "what was written is no batch: {whole:?}");
        }
        says = says.and(Says::good(kept.unsigned_abs() as usize));
    }
    says
}

/// The section of a batch alone, behind the number of its records, and as a list.
fn records_target() -> Target {
    let seeds = [1, 3, 40].map(|count: u32| {
        let section = batch(0, Compression::None, count as usize).slice(61..);
        [&count.to_be_bytes()[..], &section].concat()
    });
    let decode = |mut input: Bytes, steps: &mut Steps| {
        let Ok(count) = input.try_get_i32() else { return Says::good(0) };
        let listed = records(&input, count).inspect(|_| steps.take()).filter(Result::is_ok).count();
        let reader = RecordReader::new(Compression::None, input, count, LIMIT);
        Says::good(listed).and(reader.map_or(Says::good(0), |reader| read_records(reader, steps)))
    };
    Target::new("batch.records", decode).seeds(seeds).steps(4, 100).memory(0, 1024).inputs(30_000)
}
