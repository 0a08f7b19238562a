//! Appending to one log and reading it back.

use std::sync::Arc;

use tarn_log::producers::MarkerRule;
use tarn_log::{
    Aborted, AppendError, Descriptors, FirstBatch, FlushPolicy, Log, LogConfig, LogDir, ReadError, ReadFrom,
    ReadOrder, RealDisk,
};
use tarn_record::{
    BatchBuilder, Compression, EndTransaction, Epoch, Offset, Outcome, PartitionIndex, ProducerEpoch,
    ProducerId, Record, Timestamp, TimestampType, ValidBatch,
};

use crate::world::*;

#[test]
fn a_leader_gives_offsets_and_its_epoch() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let first = log.append_as_leader(&client(3), Epoch(4), TimestampType::CreateTime, NOW).unwrap();
    let second = log.append_as_leader(&client(2), Epoch(5), TimestampType::CreateTime, NOW).unwrap();
    assert_eq!((first.first, first.last), (Offset(0), Offset(2)));
    assert_eq!((second.first, second.last), (Offset(3), Offset(4)));
    assert_eq!(second.log_append_time, Timestamp::NONE);
    assert_eq!(log.end(), Offset(5));
    let read = read_all(&log, Offset(0), 1 << 20);
    assert_eq!(spans(&read), [(0, 2), (3, 4)]);
    let epochs: Vec<_> = read.iter().map(|batch| batch.header().leader_epoch).collect();
    assert_eq!(epochs, [Epoch(4), Epoch(5)]);
    assert_eq!(log.epochs().end_of(Epoch(4), log.end()).unwrap().end, Offset(3));
}

#[test]
fn log_append_time_is_given_to_all_records() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let later = Timestamp(NOW.0 + 5);
    let appended = log.append_as_leader(&client(2), Epoch(0), TimestampType::LogAppendTime, later).unwrap();
    assert_eq!(appended.log_append_time, later);
    let read = read_all(&log, Offset(0), 1 << 20);
    assert_eq!(read[0].header().max_timestamp, later.0);
    assert_eq!(read[0].header().timestamp_type(), TimestampType::LogAppendTime);
}

#[test]
fn a_deposed_leader_cannot_append() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    log.begin_epoch(Epoch(7)).unwrap();
    let refused = log.append_as_leader(&client(1), Epoch(6), TimestampType::CreateTime, NOW);
    assert!(matches!(refused, Err(AppendError::Epoch(_))));
    assert_eq!(refused.unwrap_err().code(), 74);
    assert_eq!(log.end(), Offset(0));
}

#[test]
fn mirrored_batches_are_the_same_bytes_with_gaps_and_epochs() {
    let world = World::new(segments_of(1000));
    let mut log = world.create();
    let source = [batch(3, 2, 0), batch(5, 1, 2), batch(90, 4, 2), batch(94, 3, 9)];
    let appended = mirror(&mut log, &contiguous(&source)).unwrap();
    assert_eq!((appended.first, appended.last), (Offset(3), Offset(96)));
    assert_eq!(read_all(&log, Offset(0), 1 << 20), source);
    assert_eq!(log.latest_epoch(), Epoch(9));
    assert_eq!(log.epochs().end_of(Epoch(2), log.end()).unwrap().end, Offset(94));
}

#[test]
fn a_batch_that_the_log_has_is_skipped_and_another_with_its_offsets_is_refused() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let source = [batch(0, 3, 0), batch(3, 2, 0), batch(5, 2, 1)];
    mirror(&mut log, &source[..2]).unwrap();
    let appended = mirror(&mut log, &source).unwrap();
    assert_eq!((appended.skipped, appended.first, appended.last), (2, Offset(5), Offset(6)));
    let again = mirror(&mut log, &source).unwrap();
    assert_eq!((again.skipped, again.bytes), (3, 0));
    for other in [batch(3, 2, 1), batch(4, 1, 0), batch(5, 9, 1)] {
        let refused = mirror(&mut log, &[other]);
        assert!(matches!(refused, Err(AppendError::Overlap { .. })), "{refused:?}");
    }
    assert_eq!(log.end(), Offset(7));
}

#[test]
fn an_older_epoch_is_refused_before_anything_is_written() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    mirror(&mut log, &[batch(0, 1, 3)]).unwrap();
    let refused = mirror(&mut log, &[batch(1, 1, 3), batch(2, 1, 2)]);
    assert!(matches!(refused, Err(AppendError::EpochRegressed { base: Offset(2), .. })));
    assert_eq!(log.end(), Offset(1));
}

#[test]
fn an_empty_log_accepts_the_batch_that_spans_its_start() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let _ = log.truncate_fully_and_start_at(Offset(100), NOW).unwrap();
    mirror(&mut log, &[batch(95, 10, 2), batch(105, 1, 2)]).unwrap();
    assert_eq!((log.start(), log.end()), (Offset(100), Offset(106)));
    assert_eq!(spans(&read_all(&log, Offset(100), 10_000)), [(95, 104), (105, 105)]);
    assert!(matches!(
        log.read(Offset(99), 1, FirstBatch::MayBeLarger, log.end()),
        Err(ReadError::OutOfRange { .. })
    ));
    assert_eq!(log.start_to_checkpoint(), Some(Offset(100)));
}

#[test]
fn a_gap_wider_than_a_segment_spans_begins_a_segment() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let far = i64::from(i32::MAX) * 3;
    mirror(&mut log, &[batch(0, 1, 0), batch(far, 1, 0), batch(2 * far, 1, 0)]).unwrap();
    assert_eq!(log.segment_count(), 3);
    assert_eq!(spans(&read_all(&log, Offset(0), 10_000)), [(0, 0), (far, far), (2 * far, 2 * far)]);
    let read = log.read(Offset(5), 10_000, FirstBatch::MayBeLarger, log.end()).unwrap();
    assert_eq!(read.first_offset, Offset(far), "a read from inside the gap finds what is after it");
    assert_eq!(
        log.read(Offset(far + 1), 1, FirstBatch::MayBeLarger, log.end()).unwrap().first_offset,
        Offset(2 * far)
    );
}

#[test]
fn a_far_first_batch_moves_the_empty_segment() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let far = i64::from(i32::MAX) * 3;
    mirror(&mut log, &[batch(far, 1, 0)]).unwrap();
    assert_eq!(log.segment_count(), 1);
    assert_eq!(spans(&read_all(&log, Offset(0), 10_000)), [(far, far)]);
}

#[test]
fn a_read_ends_at_its_upper_bound_and_may_cut_the_last_batch() {
    let world = World::new(segments_of(300));
    let mut log = world.create();
    let batches: Vec<_> = (0..20).map(|number| batch(number * 2, 2, 0)).collect();
    mirror(&mut log, &batches).unwrap();
    assert!(log.segment_count() > 3);
    let size = batches[0].bytes().len();
    let below = log.read(Offset(0), 1 << 20, FirstBatch::MayBeLarger, Offset(7)).unwrap();
    assert_eq!(
        spans(&tarn_record::batches(below.read().unwrap()).flatten().collect::<Vec<_>>()).last(),
        Some(&(4, 5))
    );
    let cut = log.read(Offset(0), size + 10, FirstBatch::MayBeLarger, log.end()).unwrap();
    assert_eq!(cut.bytes, size + 10);
    let first_only = log.read(Offset(1), 1, FirstBatch::MayBeLarger, log.end()).unwrap();
    assert_eq!((first_only.bytes, first_only.first_offset), (size, Offset(0)));
    assert!(log.read(Offset(0), size - 1, FirstBatch::MustFit, log.end()).unwrap().is_empty());
    assert!(log.read(Offset(4), 1 << 20, FirstBatch::MayBeLarger, Offset(4)).unwrap().is_empty());
    assert!(log.read(log.end(), 1 << 20, FirstBatch::MayBeLarger, log.end()).unwrap().is_empty());
    assert!(matches!(
        log.read(Offset(41), 1, FirstBatch::MayBeLarger, log.end()),
        Err(ReadError::OutOfRange { .. })
    ));
}

#[test]
fn where_nothing_fits_any_more_nothing_is_read() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    mirror(&mut log, &[batch(0, 1, 0)]).unwrap();
    let file = world.path().join("00000000000000000000.log");
    std::fs::write(&file, [0; 100]).unwrap();
    let read = |max_bytes, first| log.read(Offset(0), max_bytes, first, log.end());
    assert!(read(1 << 20, FirstBatch::MustFit).is_err(), "it is damaged");
    assert!(read(0, FirstBatch::MayBeLarger).is_err());
    assert!(read(0, FirstBatch::MustFit).unwrap().is_empty());
}

#[test]
fn every_offset_is_found_whatever_the_sizes() {
    let world = World::new(segments_of(4000));
    let mut log = world.create();
    let mut base = 0;
    for number in 0..300 {
        let records = 1 + number * 7 % 5;
        mirror(&mut log, &[batch(base, records, 0)]).unwrap();
        base += records as i64 + number as i64 % 3;
    }
    let all = read_all(&log, Offset(0), 1 << 24);
    for offset in 0..log.end().0 {
        let expected = all.iter().find(|batch| batch.header().last_offset().0 >= offset).unwrap();
        let plan = log.read(Offset(offset), 1, FirstBatch::MayBeLarger, log.end()).unwrap();
        assert_eq!(plan.first_offset, expected.header().base_offset, "from {offset}");
        assert_eq!(plan.read().unwrap(), expected.bytes());
    }
}

#[test]
fn a_segment_is_rolled_by_the_time_of_its_records() {
    let config = LogConfig { segment_ms: 1000, ..LogConfig::default() };
    let world = World::new(config);
    let mut log = world.create();
    mirror(&mut log, &[dated(0, 1, 0, NOW.0)]).unwrap();
    assert!(!mirror(&mut log, &[dated(1, 1, 0, NOW.0 + 1000)]).unwrap().rolled);
    assert!(mirror(&mut log, &[dated(2, 1, 0, NOW.0 + 1001)]).unwrap().rolled);
    assert!(!mirror(&mut log, &[dated(3, 1, 0, NOW.0 + 1002)]).unwrap().rolled);
}

#[test]
fn a_segment_is_rolled_when_an_index_is_full() {
    let config = LogConfig { segment_index_bytes: 24, index_interval_bytes: 0, ..LogConfig::default() };
    let world = World::new(config);
    let mut log = world.create();
    for number in 0..10 {
        mirror(&mut log, &[dated(number, 1, 0, NOW.0 + number)]).unwrap();
    }
    assert_eq!(log.segment_count(), 4, "two entries of 12 bytes fit, and the first batch needs none");
}

#[test]
fn a_batch_that_was_sent_again_gets_the_first_answer() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let producer = Idempotent { id: 9, epoch: 0, sequence: 0, transactional: false };
    let sent = client_of(producer.batch(0, 3, -1));
    let first = log.append_as_leader(&sent, Epoch(0), TimestampType::CreateTime, NOW).unwrap();
    produce(&mut log, 1);
    let again = log.append_as_leader(&sent, Epoch(0), TimestampType::CreateTime, NOW).unwrap();
    assert_eq!(again.duplicate_of, Some((first.first, NOW)));
    assert_eq!((again.first, again.last, again.bytes), (Offset(0), Offset(2), 0));
    assert_eq!(log.end(), Offset(4));
    let late = Idempotent { sequence: 7, ..producer };
    let refused =
        log.append_as_leader(&client_of(late.batch(0, 1, -1)), Epoch(0), TimestampType::CreateTime, NOW);
    assert_eq!(refused.unwrap_err().code(), 45);
}

#[test]
fn an_open_transaction_holds_back_the_last_stable_offset_and_an_aborted_one_is_listed() {
    let world = World::new(segments_of(300));
    let mut log = world.create();
    produce(&mut log, 5);
    let send = |log: &mut Log, id| {
        let sent = Idempotent { id, epoch: 0, sequence: 0, transactional: true }.batch(0, 2, -1);
        log.append_as_leader(&client_of(sent), Epoch(0), TimestampType::CreateTime, NOW).unwrap();
    };
    send(&mut log, 1);
    send(&mut log, 2);
    assert_eq!(log.last_stable_offset(log.end()), Offset(5));
    assert_eq!(log.last_stable_offset(Offset(3)), Offset(3));
    log.append_as_leader_raw(&marker(1, Outcome::Abort, 0), Epoch(0), NOW).unwrap();
    assert_eq!(log.last_stable_offset(log.end()), Offset(5), "the marker is not known to be replicated");
    log.on_high_watermark(log.end());
    assert_eq!(log.last_stable_offset(log.end()), Offset(7));
    log.append_as_leader_raw(&marker(2, Outcome::Commit, 0), Epoch(0), NOW).unwrap();
    log.on_high_watermark(log.end());
    assert_eq!(log.last_stable_offset(log.end()), log.end());
    let aborted = log.aborted_transactions(Offset(0), log.end()).unwrap();
    let aborted: Vec<_> =
        aborted.iter().map(|one| (one.producer_id.0, one.first_offset.0, one.last_offset.0)).collect();
    assert_eq!(aborted, [(1, 5, 9)]);
    assert!(log.aborted_transactions(Offset(10), log.end()).unwrap().is_empty());
}

#[test]
fn a_marker_of_a_replaced_producer_or_coordinator_is_refused_and_changes_nothing() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let sent = Idempotent { id: 1, epoch: 3, sequence: 0, transactional: true }.batch(0, 2, -1);
    log.append_as_leader(&client_of(sent), Epoch(0), TimestampType::CreateTime, NOW).unwrap();
    let end = |producer_epoch, coordinator_epoch| EndTransaction {
        producer_id: ProducerId(1),
        producer_epoch: ProducerEpoch(producer_epoch),
        outcome: Outcome::Abort,
        coordinator_epoch,
    };
    let mut append = |end: &EndTransaction, rule, kind| log.append_marker(end, rule, Epoch(0), kind, NOW);
    let (same, create) = (MarkerRule::SameEpoch, TimestampType::CreateTime);
    assert_eq!(append(&end(2, 5), same, create).unwrap_err().code(), 47);
    assert_eq!(append(&end(3, 5), MarkerRule::BumpedEpoch, create).unwrap_err().code(), 47);
    let appended = append(&end(3, 5), same, TimestampType::LogAppendTime).unwrap();
    assert_eq!((appended.first, appended.bytes, appended.log_append_time), (Offset(2), 78, NOW));
    assert_eq!(append(&end(3, 4), same, create).unwrap_err().code(), 52);
    assert_eq!(log.end(), Offset(3));
    let stored = read_all(&log, Offset(2), 1 << 20);
    assert_eq!(stored[0].header().timestamp_type(), TimestampType::LogAppendTime);
    let control = tarn_record::ControlRecord::parse(&stored[0]).unwrap();
    assert_eq!(control.coordinator_epoch, Some(5));
    assert_eq!(log.aborted_transactions(Offset(0), log.end()).unwrap().len(), 1);
}

/// Transactions of two records one after the other, some that overlap, all of them aborted.
fn aborted_one_by_one(log: &mut Log) {
    let send = |log: &mut Log, id| {
        let sent = Idempotent { id, epoch: 0, sequence: 0, transactional: true }.batch(0, 2, -1);
        log.append_as_leader(&client_of(sent), Epoch(0), TimestampType::CreateTime, NOW).unwrap();
    };
    let abort = |log: &mut Log, id| {
        log.append_as_leader_raw(&marker(id, Outcome::Abort, 0), Epoch(0), NOW).unwrap();
    };
    send(log, 100);
    for id in 0..30 {
        send(log, id);
        produce(log, 1 + id as usize % 3);
        abort(log, id);
        if id == 20 {
            abort(log, 100);
        }
    }
    log.on_high_watermark(log.end());
}

#[test]
fn the_aborted_transactions_of_a_read_are_those_that_touch_its_batches() {
    for segment_bytes in [400, 2000, 1 << 20] {
        let world = World::new(LogConfig { index_interval_bytes: 200, ..segments_of(segment_bytes) });
        let mut log = world.create();
        aborted_one_by_one(&mut log);
        let all = log.aborted_transactions(Offset(0), log.end()).unwrap();
        let batches = read_all(&log, Offset(0), 1 << 20);
        assert_eq!(all.len(), 31);
        for (from, max_bytes) in (0..log.end().0).flat_map(|from| [1, 250, 1000].map(|bytes| (from, bytes))) {
            let order = ReadOrder {
                from: Offset(from),
                max_bytes,
                first_batch: FirstBatch::MayBeLarger,
                upper: log.end(),
                aborted: Aborted::Named,
            };
            let read = log.read_from(&order, ReadFrom::Disk).unwrap();
            assert_eq!(log.read_search(&order).run().unwrap().aborted, read.aborted, "on another thread");
            let (mut rest, aborted) = (read.plan.bytes as i64, read.aborted);
            let read = batches.iter().skip_while(|batch| batch.header().last_offset().0 < from);
            let touched = read.take_while(|batch| {
                rest -= batch.bytes().len() as i64;
                rest + batch.bytes().len() as i64 > 0
            });
            let end = touched.last().unwrap().header().next_offset();
            let expected: Vec<_> = all
                .iter()
                .filter(|one| one.last_offset.0 >= from && one.first_offset < end)
                .copied()
                .collect();
            assert_eq!(aborted, expected, "{from}, {max_bytes} bytes");
        }
    }
}

#[test]
fn a_changed_configuration_counts_from_the_next_append() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    mirror(&mut log, &[dated(0, 5, 0, NOW.0), dated(5, 5, 0, NOW.0)]).unwrap();
    log.configure(segments_of(log.size_bytes() as u32));
    assert!(mirror(&mut log, &[dated(10, 5, 0, NOW.0)]).unwrap().rolled, "segment.bytes");
    log.configure(LogConfig::default());
    assert!(!mirror(&mut log, &[dated(15, 5, 0, NOW.0 + 2000)]).unwrap().rolled);
    log.configure(LogConfig { segment_ms: 1000, ..LogConfig::default() });
    assert!(mirror(&mut log, &[dated(20, 5, 0, NOW.0 + 2000)]).unwrap().rolled, "segment.ms");
    assert_eq!((log.segment_count(), log.config().segment_ms), (3, 1000));
}

#[test]
fn a_search_by_time_finds_the_record_and_not_only_its_batch() {
    let world = World::new(segments_of(700));
    let mut log = world.create();
    for number in 0..40 {
        mirror(&mut log, &[dated(number * 3, 3, 1, NOW.0 + number * 10)]).unwrap();
    }
    let find = |timestamp: i64| log.search_timestamp(Timestamp(timestamp), log.end()).run().unwrap();
    for number in 0..40 {
        for record in 0..3 {
            let found = find(NOW.0 + number * 10 + record).unwrap();
            assert_eq!(found.offset, Offset(number * 3 + record));
            assert_eq!(
                (found.timestamp, found.leader_epoch),
                (Timestamp(NOW.0 + number * 10 + record), Epoch(1))
            );
        }
    }
    assert_eq!(find(NOW.0 - 500).unwrap().offset, Offset(0));
    assert_eq!(find(NOW.0 + 393), None);
    let largest = log.max_timestamp(log.end()).run().unwrap().unwrap();
    assert_eq!((largest.offset, largest.timestamp), (Offset(119), Timestamp(NOW.0 + 392)));
    assert_eq!(log.search_timestamp(Timestamp(NOW.0 + 392), Offset(119)).run().unwrap(), None);
}

#[test]
fn a_search_by_time_looks_into_compressed_batches() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let mut builder = BatchBuilder::new(Offset(0), Compression::Zstd).timestamp(NOW);
    for number in 0..10 {
        let timestamp = Timestamp(NOW.0 + number);
        builder.add(&Record { value: Some(&[7; 100]), timestamp, ..Record::default() });
    }
    mirror(&mut log, &[ValidBatch::parse(builder.build()).unwrap()]).unwrap();
    let found = log.search_timestamp(Timestamp(NOW.0 + 6), log.end()).run().unwrap().unwrap();
    assert_eq!(found.offset, Offset(6));
}

#[test]
fn a_file_is_closed_for_another_and_opened_again() {
    let world = World::new(segments_of(200));
    let small = Descriptors::new(3);
    let other = tempfile::tempdir().unwrap();
    let dir = LogDir::open(Arc::new(RealDisk), other.path(), small.clone()).unwrap();
    let config = LogConfig { flush: FlushPolicy::None, ..world.config.clone() };
    let mut log = Log::create(&dir, TOPIC, PartitionIndex(0), TOPIC_ID, config, NOW).unwrap();
    for number in 0..40 {
        mirror(&mut log, &[batch(number, 1, 0)]).unwrap();
    }
    assert!(log.segment_count() >= 20);
    assert!(small.in_use() <= 3, "{}", small.in_use());
    assert!(small.closed() > 0);
    assert_eq!(read_all(&log, Offset(0), 100).len(), 40);
    let held: Vec<_> = (0..40)
        .step_by(4)
        .map(|from| {
            log.read(Offset(from), 1, FirstBatch::MayBeLarger, log.end()).unwrap().slices[0]
                .open_file(ReadFrom::Disk)
                .unwrap()
        })
        .collect();
    assert!(small.in_use() >= held.len(), "what a response holds is counted");
    assert_eq!(read_all(&log, Offset(0), 100).len(), 40);
}

#[test]
fn promised_bytes_keep_their_descriptor_until_they_are_flushed() {
    let root = tempfile::tempdir().unwrap();
    let one = Descriptors::new(1);
    let dir = LogDir::open(Arc::new(RealDisk), root.path(), one.clone()).unwrap();
    let config = LogConfig { flush: FlushPolicy::Group, ..LogConfig::default() };
    let mut logs: Vec<_> = (0..3)
        .map(|number| {
            let partition = PartitionIndex(number);
            Log::create(&dir, TOPIC, partition, TOPIC_ID, config.clone(), NOW).unwrap()
        })
        .collect();
    logs.iter_mut().for_each(|log| {
        produce(log, 1);
    });
    assert_eq!(one.in_use(), 3, "none of them may be closed");
    for log in &mut logs {
        let flushed = log.flush_job().unwrap().run().unwrap();
        log.flushed(flushed).unwrap();
        assert_eq!((log.recovery_point(), log.unflushed_bytes()), (Offset(1), 0));
    }
    read_all(&logs[0], Offset(0), 100);
    let fourth = PartitionIndex(3);
    let _log = Log::create(&dir, TOPIC, fourth, TOPIC_ID, config, NOW).unwrap();
    assert_eq!(one.in_use(), 1);
}

#[test]
fn the_newest_batch_is_the_last_in_whichever_segment_and_an_empty_log_has_none() {
    let world = World::new(segments_of(300));
    let mut log = world.create();
    assert_eq!(log.newest_batch().run().unwrap(), None);
    for base in [0, 3, 9, 20] {
        mirror(&mut log, &[batch(base, 2, 1)]).unwrap();
        let newest = log.newest_batch().run().unwrap().map(|header| header.base_offset);
        assert_eq!(newest, Some(Offset(base)));
    }
    // It may read the disk, so it can be given to a thread that may wait for one.
    let search = log.newest_batch();
    let found = std::thread::spawn(move || search.run()).join().expect("it does not panic").unwrap();
    assert_eq!(found.map(|header| header.base_offset), Some(Offset(20)));
    let end = log.end();
    drop(log.advance_start(end, NOW).unwrap());
    assert_eq!(log.newest_batch().run().unwrap(), None, "everything was removed");
}
