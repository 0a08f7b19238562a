//! The log of a mirror that was stopped, as Kafka's own tool reads it.

use std::path::Path;
use std::sync::Arc;

use tarn_log::{Descriptors, Log, LogConfig, LogDir, RealDisk, Together};
use tarn_record::{
    BatchBuilder, Compression, ControlType, EndTransaction, Epoch, Offset, Outcome, PartitionIndex,
    ProducerEpoch, ProducerId, Record, Sequence, Stamp, Timestamp, TopicId, ValidBatch, control_batch,
    end_transaction_marker,
};
use tarn_tests::dump;
use tarn_wire::encode_versioned;
use tarn_wire::messages::MirrorPidResetRecord;

const NOW: Timestamp = Timestamp(1_700_000_000_000);
/// The epoch of the source's leader, and the one in which the log was ended.
const SOURCE: Epoch = Epoch(3);
const HERE: Epoch = Epoch(13);

#[test]
fn kafka_dump_log_reads_markers_and_reset_and_finds_nothing_wrong() {
    let files = tempfile::tempdir().expect("there is room");
    write_ended_log(files.path());
    let directory = files.path().join("t-0");
    // Without an offset index, which so small a log has not, the tool does not read the time index.
    let (log, index) = (dump::files_with(&directory, "log"), dump::files_with(&directory, "txnindex"));
    assert_eq!(dump::problems(&log), Vec::<String>::new());
    let shown = dump::records(&log);
    let control: Vec<&str> = shown.lines().filter(|line| line.contains("isControl: true")).collect();
    let [first, second, reset] = control[..] else { panic!("three control batches: {shown}") };
    for (line, producer) in
        [(first, "producerId: 7 "), (second, "producerId: 8 "), (reset, "producerId: -1 ")]
    {
        assert!(line.contains(producer) && line.contains("partitionLeaderEpoch: 13 "), "{line}");
    }
    assert_eq!(shown.matches("endTxnMarker: ABORT coordinatorEpoch: 0").count(), 2, "{shown}");
    let aborted = dump::records(&index);
    for entry in [
        "producerId: 7 firstOffset: 0 lastOffset: 3 lastStableOffset: 1",
        "producerId: 8 firstOffset: 1 lastOffset: 4 lastStableOffset: 5",
    ] {
        assert!(aborted.contains(entry), "no {entry} in {aborted}");
    }
}

/// Two transactions that the source left open, a record beside them, the end of the mirror, and a record of a
/// client.
fn write_ended_log(files: &Path) {
    let dir = LogDir::open(Arc::new(RealDisk), files, Descriptors::new(10)).expect("it is new");
    let (partition, config) = (PartitionIndex(0), LogConfig::default());
    let mut log = Log::create(&dir, "t", partition, TopicId::random(), config, NOW).expect("it is new");
    let mirrored = [data(0, 7, true), data(1, 8, true), data(2, 9, false)];
    log.append_as_is(&mirrored, NOW).expect("they follow each other");
    let value = MirrorPidResetRecord { source_cluster_id: Some("MkU3OEVBNTcwNTJENDM2Qg".into()) };
    let value = encode_versioned(&value, 0).expect("it has that version");
    let reset = control_batch(ControlType::MirrorPidReset, &value, Offset(5), HERE, NOW);
    let end = [abort(3, 7), abort(4, 8), ValidBatch::parse(reset).expect("it is a batch")];
    log.append_own(&end, Together::Few, NOW).expect("they follow");
    log.append_as_is(&[in_epoch(HERE, &data(6, 9, false))], NOW).expect("it follows");
    log.close().expect("the disk works");
}

fn data(base: i64, producer: i64, transactional: bool) -> ValidBatch {
    let mut batch = BatchBuilder::new(Offset(base), Compression::None)
        .leader_epoch(SOURCE)
        .timestamp(NOW)
        .producer(ProducerId(producer), ProducerEpoch(0), Sequence(0));
    if transactional {
        batch = batch.transactional();
    }
    batch.add(&Record { value: Some(b"value"), timestamp: NOW, ..Record::default() });
    ValidBatch::parse(batch.build()).expect("it is a batch")
}

fn abort(base: i64, producer: i64) -> ValidBatch {
    let end = EndTransaction {
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(0),
        outcome: Outcome::Abort,
        coordinator_epoch: 0,
    };
    ValidBatch::parse(end_transaction_marker(&end, Offset(base), HERE, NOW)).expect("it is a batch")
}

fn in_epoch(epoch: Epoch, batch: &ValidBatch) -> ValidBatch {
    let stamp = Stamp::CreateTime { max_timestamp: batch.header().max_timestamp };
    batch.restamped(batch.header().base_offset, epoch, stamp).to_batch()
}
