//! What the partition's log here must hold, written from the rules of mirroring and not from the code.
//!
//! It is told what is asked of the log and looks at what was appended for it. A crash may take what was not
//! flushed, from the end on, and nothing else.

use std::collections::BTreeMap;

use bytes::Bytes;
use tarn_record::{ControlRecord, ControlType, ValidBatch};

use super::source::There;
use crate::log_world::batches::Meaning;
use crate::simulation::Violation;

/// A batch here.
#[derive(Clone, Debug)]
pub(super) struct Here {
    pub(super) base: i64,
    pub(super) next: i64,
    bytes: Bytes,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The source's batch of this number.
    Mirrored(u64, Meaning),
    /// A client's.
    Local,
    /// The end of a transaction that this cluster has aborted.
    Abort(i64),
    Reset,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    log: Vec<Here>,
    /// Below here the log was said to be flushed.
    flushed: i64,
    /// Below here clients were told that their records are kept.
    acknowledged: i64,
}

impl Oracle {
    pub(super) fn end(&self) -> i64 {
        self.log.last().map_or(0, |batch| batch.next)
    }

    /// Where what the mirror has brought ends.
    pub(super) fn mirrored_end(&self) -> i64 {
        let mirrored = |batch: &&Here| matches!(batch.what, What::Mirrored(..));
        self.log.iter().rfind(mirrored).map_or(0, |batch| batch.next)
    }

    /// The mirror has appended this; `stopping_at` is where the coordinator says that it has left the log.
    pub(super) fn mirrored(&mut self, batch: &There, stopping_at: Option<i64>) -> Result<(), Violation> {
        if let Some(position) = stopping_at {
            let text = format!("{} was mirrored, the last mirror position is {position}", batch.stored.base);
            return Err(Violation::new("gate", text));
        }
        let follows = match self.log.last().map(|last| last.what) {
            None => batch.before.is_none(),
            Some(What::Mirrored(number, _)) => batch.before == Some(number),
            Some(_) => false,
        };
        if !follows || batch.stored.base != self.end() {
            let text = format!("source batch {} was appended after {:?}", batch.number, self.log.last());
            return Err(Violation::new("identity", text));
        }
        let what = What::Mirrored(batch.number, batch.stored.meaning);
        let (base, next) = (batch.stored.base, batch.stored.last + 1);
        self.log.push(Here { base, next, bytes: batch.stored.bytes.clone(), what });
        Ok(())
    }

    /// A client has appended this.
    pub(super) fn local(&mut self, batch: &ValidBatch) {
        self.keep(batch, What::Local);
    }

    /// A client was told that what it sent is kept.
    pub(super) fn acknowledged(&mut self, below: i64) {
        self.acknowledged = self.acknowledged.max(below);
    }

    pub(super) fn flushed(&mut self, below: i64) {
        self.flushed = self.flushed.max(below);
    }

    fn keep(&mut self, batch: &ValidBatch, what: What) {
        let (base, next) = (batch.header().base_offset.0, batch.header().next_offset().0);
        self.log.push(Here { base, next, bytes: batch.bytes().clone(), what });
    }

    /// This cluster has appended this to end the log behind a position.
    pub(super) fn ended(&mut self, batch: &ValidBatch, position: i64) -> Result<(), Violation> {
        let wrong = |text: String| Err(Violation::new("end", text));
        if let Some(odd) = self.behind(position).find(|batch| !matches!(batch.what, What::Abort(_))) {
            return wrong(format!("{odd:?} stands between the position {position} and more of the end"));
        }
        let control =
            ControlRecord::parse(batch).ok_or_else(|| Violation::new("end", "records end nothing"))?;
        let open = self.open_transactions();
        let id = batch.header().producer_id.0;
        match control.control_type {
            ControlType::Abort if open.contains_key(&id) => self.keep(batch, What::Abort(id)),
            ControlType::MirrorPidReset if open.is_empty() => self.keep(batch, What::Reset),
            ControlType::Abort => return wrong(format!("producer {id} has no transaction to be aborted")),
            ControlType::MirrorPidReset => return wrong(format!("reset while {open:?} are open")),
            other => return wrong(format!("a {other:?} record ends nothing")),
        }
        Ok(())
    }

    fn behind(&self, position: i64) -> impl Iterator<Item = &Here> {
        self.log.iter().filter(move |batch| batch.next > position)
    }

    /// Producers with an open transaction, and where it began.
    fn open_transactions(&self) -> BTreeMap<i64, i64> {
        let mut open = BTreeMap::new();
        for batch in &self.log {
            match batch.what {
                What::Mirrored(_, Meaning::Records(sent)) if sent.transactional => {
                    open.entry(sent.id).or_insert(batch.base);
                }
                What::Mirrored(_, Meaning::Marker { id, .. }) | What::Abort(id) => {
                    open.remove(&id);
                }
                What::Reset => open.clear(),
                What::Mirrored(..) | What::Local => {}
            }
        }
        open
    }

    /// STOPPED has been written behind this position: the log is ended, by one reset, and all of it kept.
    pub(super) fn check_ended(&self, position: i64) -> Result<(), Violation> {
        let mut resets = 0;
        for batch in self.behind(position) {
            match batch.what {
                What::Abort(_) if resets == 0 => {}
                What::Reset => {
                    resets += 1;
                    if self.flushed < batch.next {
                        let text = format!("the reset at {} may still be lost", batch.base);
                        return Err(Violation::new("stopped early", text));
                    }
                }
                What::Local if resets == 1 => {}
                _ => return Err(Violation::new("end", format!("{batch:?} is behind {position}"))),
            }
        }
        match resets {
            1 => Ok(()),
            0 => Err(Violation::new("stopped early", format!("no reset stands behind {position}"))),
            _ => Err(Violation::new("end", format!("{resets} resets stand behind {position}"))),
        }
    }

    /// What a crash has left.
    pub(super) fn crashed(&mut self, found: &[(i64, Bytes)]) -> Result<(), Violation> {
        self.compare(found, found.len()).map_err(|text| Violation::new("durability", text))?;
        self.log.truncate(found.len());
        let (end, kept) = (self.end(), self.flushed.max(self.acknowledged));
        if end < kept {
            let text = format!("the log ends at {end}, {kept} was promised to be kept");
            return Err(Violation::new("durability", text));
        }
        Ok(())
    }

    /// Every byte.
    pub(super) fn compare_all(&self, found: &[(i64, Bytes)]) -> Result<(), Violation> {
        self.compare(found, self.log.len()).map_err(|text| Violation::new("bytes", text))
    }

    fn compare(&self, found: &[(i64, Bytes)], count: usize) -> Result<(), String> {
        if found.len() != count || count > self.log.len() {
            return Err(format!("{} batches are here instead of {}", found.len(), self.log.len()));
        }
        let pairs = self.log.iter().zip(found);
        match pairs.clone().find(|(known, (base, bytes))| known.base != *base || known.bytes != *bytes) {
            Some((known, (base, _))) => Err(format!("another batch is at {base} instead of {known:?}")),
            None => Ok(()),
        }
    }

    /// Whether the mirrored part is the beginning of the source's log; records of this cluster are none of it.
    pub(super) fn is_beginning_of(&self, source: &[There]) -> bool {
        let same = |(here, there): (&Here, &There)| matches!(here.what, What::Mirrored(number, _) if number == there.number);
        self.log.len() <= source.len() && self.log.iter().zip(source).all(same)
    }

    pub(super) fn has_local_records(&self) -> bool {
        self.log.iter().any(|batch| !matches!(batch.what, What::Mirrored(..)))
    }
}
