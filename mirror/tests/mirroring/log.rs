//! A log of the destination, in memory: what was mirrored, what ended it for its mirror, what clients wrote after.

use std::sync::Arc;

use tarn_mirror::alignment::EpochEnd;
use tarn_mirror::local_cluster::*;
use tarn_record::{
    BatchBuilder, BatchHeader, BrokerId, Compression, Epoch, Offset, ProducerEpoch, ProducerId, Record,
    ValidBatch,
};

#[derive(Default)]
pub(crate) struct Log {
    pub(crate) batches: Vec<ValidBatch>,
    pub(crate) start: i64,
    pub(crate) gate: Option<u64>,
    pub(crate) generations: u64,
    /// How many transactions the source has not decided.
    pub(crate) open_transactions: i64,
    /// Where the reset record is, and in which leader epoch.
    pub(crate) reset: Option<(i64, i32)>,
    /// Which source it names.
    pub(crate) reset_of: Option<Arc<str>>,
    /// How many were written.
    pub(crate) resets: usize,
    /// The newest batch has another checksum than was written.
    pub(crate) is_damaged: bool,
    /// What is noted beside it of an export, and the last batch in that.
    pub(crate) noted: Option<(NotedExport, Option<BatchHeader>)>,
}

impl Log {
    pub(crate) fn end(&self) -> i64 {
        let of_batches = self.batches.last().map_or(self.start, |batch| batch.header().next_offset().0);
        of_batches.max(self.reset.map_or(0, |(offset, _)| offset + 1))
    }

    fn mirrored_end(&self) -> i64 {
        let reset = self.reset.map_or(i64::MAX, |(offset, _)| offset);
        let mirrored = self.batches.iter().map(ValidBatch::header).rfind(|batch| batch.base_offset.0 < reset);
        mirrored.map_or(self.start, |batch| batch.next_offset().0)
    }

    pub(crate) fn latest_epoch(&self) -> Epoch {
        self.epochs().last().map_or(Epoch::NONE, |(epoch, _)| *epoch)
    }

    /// Which epochs begin where.
    fn epochs(&self) -> Vec<(Epoch, i64)> {
        let of_batches = self.batches.iter().map(ValidBatch::header);
        let mut begun: Vec<_> = of_batches.map(|batch| (batch.leader_epoch, batch.base_offset.0)).collect();
        begun.extend(self.reset.map(|(offset, epoch)| (Epoch(epoch), offset)));
        begun.sort_by_key(|(_, offset)| *offset);
        begun.dedup_by_key(|(epoch, _)| *epoch);
        begun
    }

    pub(crate) fn epoch_end(&self, asked: Epoch) -> EpochEnd {
        let epochs = self.epochs();
        let after = epochs.partition_point(|(epoch, _)| *epoch <= asked);
        let epoch = after.checked_sub(1).map_or(asked, |found| epochs[found].0);
        EpochEnd { epoch, end: Offset(epochs.get(after).map_or(self.end(), |(_, start)| *start)) }
    }

    /// The header of the newest batch, as it stands there.
    pub(crate) fn newest(&self) -> Option<BatchHeader> {
        let newest = *self.batches.last()?.header();
        Some(BatchHeader { crc: newest.crc ^ u32::from(self.is_damaged), ..newest })
    }

    /// The header of a batch that was read and found to be what was written; an error where it is not.
    pub(crate) fn below(&self, offset: Offset) -> Result<Option<BatchHeader>, String> {
        let found =
            self.batches.iter().map(|batch| *batch.header()).rfind(|batch| batch.base_offset < offset);
        let is_newest = found.is_some() && found == self.batches.last().map(|batch| *batch.header());
        if self.is_damaged && is_newest { Err("it is damaged at byte 7".into()) } else { Ok(found) }
    }

    /// What was exported before it was truncated.
    pub(crate) fn noted_export(&self) -> Option<NotedExport> {
        let (noted, last) = self.noted.as_ref()?;
        let is_truncated = !self.batches.iter().any(|batch| Some(batch.header()) == last.as_ref());
        is_truncated.then(|| noted.clone())
    }

    pub(crate) fn suffix(&self, from: Offset, records_max: u64) -> Suffix {
        let behind = self.batches.iter().map(ValidBatch::header).filter(|batch| batch.next_offset() > from);
        let (of_control, of_records): (Vec<_>, Vec<_>) =
            behind.partition(|batch| batch.attributes.is_control());
        let count = |batches: &[&BatchHeader]| {
            batches.iter().map(|batch| batch.record_count.unsigned_abs()).sum::<u32>()
        };
        let ending = self.reset.filter(|(offset, _)| *offset >= from.0).map_or(0, |_| 1);
        let (records, control_records) =
            (u64::from(count(&of_records)), u64::from(count(&of_control)) + ending);
        let has_more = records > records_max;
        Suffix { records: records.min(records_max), control_records, has_more }
    }

    /// How it was ended behind a position.
    pub(crate) fn ending(&self, position: LastPosition) -> Option<Ending> {
        let (reset, epoch) = self.reset?;
        let is_behind = reset >= position.offset.0 && epoch > position.epoch.0;
        is_behind.then(|| Ending { source_cluster_id: self.reset_of.clone() })
    }

    /// Drops what is ordered; says what that was.
    pub(crate) fn truncate(
        &mut self,
        order: &TruncateOrder,
    ) -> Result<(LogTruncated, Vec<ValidBatch>), String> {
        if self.gate.is_some() || order.log_end.0 != self.end() {
            return Err(format!("its gate is {:?} and its end {}", self.gate, self.end()));
        }
        let from = match order.truncate {
            Truncate::To(offset) => offset,
            Truncate::Fully { .. } => Offset(self.start),
        };
        let holds_records = self.suffix(from, u64::MAX).records > 0;
        if holds_records && order.export_from.is_none() {
            return Err("what is dropped holds records".to_owned());
        }
        let export = order.export_from.map(|from| Export {
            broker: BrokerId(1),
            path: "/exports/it".into(),
            from,
            to: order.log_end,
            records: self.suffix(from, u64::MAX).records,
            bytes: 1,
        });
        let version = order.version;
        let last = self.batches.last().map(|batch| *batch.header());
        self.noted = export.clone().map(|export| (NotedExport { version, export }, last));
        let kept = self.batches.partition_point(|batch| batch.header().next_offset() <= from);
        let mut dropped = self.batches.split_off(kept);
        dropped.retain(|batch| order.export_from.is_some_and(|from| batch.header().next_offset() > from));
        self.reset = self.reset.filter(|(offset, _)| *offset < from.0);
        if let Truncate::Fully { start_at } = order.truncate {
            self.start = start_at.0;
        }
        Ok((LogTruncated { log_end: Offset(self.end()), export, unflushed: None }, dropped))
    }

    /// What a client writes in this leader epoch.
    pub(crate) fn write(&mut self, records: usize, epoch: i32) {
        let mut batch = BatchBuilder::new(Offset(self.end()), Compression::None).leader_epoch(Epoch(epoch));
        for _ in 0..records {
            batch.add(&Record { value: Some(b"written here"), ..Record::default() });
        }
        self.batches.push(ValidBatch::parse(batch.build()).expect("it is one"));
    }

    /// An abort marker for every open transaction, and the reset record.
    pub(crate) fn end_for_mirror(&mut self, order: &EndOrder, leader_epoch: i32) -> Result<LogEnded, String> {
        let EndOrder { position, .. } = order;
        if self.gate.is_some() {
            return Err("its gate is open".to_owned());
        }
        if leader_epoch <= position.epoch.0 || self.mirrored_end() != position.offset.0 {
            return Err(format!("{position:?} in epoch {leader_epoch}, and its end is {}", self.end()));
        }
        if self.reset.is_none() {
            self.reset = Some((self.mirrored_end() + self.open_transactions, leader_epoch));
            self.reset_of = order.source_cluster_id.clone();
            self.resets += 1;
        }
        Ok(LogEnded {
            reset_offset: Offset(self.end() - 1),
            aborted_count: self.open_transactions as u32,
            aborted: (0..self.open_transactions)
                .map(|number| AbortedTransaction {
                    producer_id: ProducerId(number),
                    producer_epoch: ProducerEpoch(0),
                    first_offset: Offset(number),
                })
                .collect(),
            log_end: Offset(self.end()),
        })
    }
}
