//! What the partition's log here must hold, written from the rules of mirroring and not from the code.
//!
//! It is told what is asked of the log and looks at what was appended for it. A crash may take what was not
//! flushed, from the end on, or bring back what was cut and not flushed, and nothing else.

use std::fmt;

use bytes::Bytes;
use tarn_mirror::local_cluster::LastPosition;
use tarn_record::{ControlRecord, ControlType, Offset, ValidBatch};

use super::consents::Dropped;
use super::mirrors::Life;
use super::source::{Source, There};
use crate::log_world::batches::Meaning;
use crate::simulation::Violation;

/// A batch here.
#[derive(Clone)]
struct Here {
    base: i64,
    next: i64,
    epoch: i32,
    bytes: Bytes,
    what: What,
    /// The mirror that has brought it.
    by: Option<Life>,
}

impl Here {
    fn of(batch: &There, by: Life) -> Here {
        Here {
            base: batch.stored.base,
            next: batch.stored.last + 1,
            epoch: batch.stored.epoch,
            bytes: batch.stored.bytes.clone(),
            what: What::Mirrored(batch.number, batch.stored.meaning),
            by: Some(by),
        }
    }
}

impl fmt::Debug for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at offsets {} to {}", self.what, self.base, self.next - 1)
    }
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

/// A transaction that is not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Undecided {
    id: i64,
    first: i64,
    /// After its last batch.
    next: i64,
}

/// How a log was ended behind a position.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Whose transactions were aborted, and where they began.
    pub(super) aborted: Vec<(i64, i64)>,
    pub(super) reset: i64,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// From long before the log start.
    log: Vec<Here>,
    start: i64,
    /// The highest start: a crash may undo it, but what transactions did below may be forgotten.
    start_highest: i64,
    /// So many batches were gone from the beginning when the log was empty, which are another history.
    begun_at: usize,
    end: i64,
    /// Below here the log was said to be flushed.
    flushed: i64,
    /// Below here clients were told that their records are kept.
    acknowledged: i64,
    /// Logs that a crash may bring back: what was cut is not flushed.
    before_cuts: Vec<BeforeCut>,
    cuts: u64,
}

/// A log as it was, of which the batches that end up to `kept` stay.
#[derive(Debug)]
struct BeforeCut {
    log: Vec<Here>,
    start: i64,
    kept: i64,
}

/// What a log holds, from its start on.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) start: i64,
    pub(super) end: i64,
    /// Where batches begin, and their bytes.
    pub(super) batches: Vec<(i64, Bytes)>,
}

/// What a cut has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) is_all_gone: bool,
}

/// What is dropped by a cut.
#[derive(Debug, Default)]
pub(super) struct Lost {
    pub(super) dropped: Dropped,
    /// What has to be in an export.
    pub(super) batches: Vec<(i64, Bytes)>,
}

impl Oracle {
    pub(super) fn end(&self) -> i64 {
        self.end
    }

    /// How many cuts there were.
    pub(super) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// The mirror has appended this; `stopping_at` is where the coordinator says that it has left the log.
    pub(super) fn mirrored(
        &mut self,
        batch: &There,
        by: Life,
        stopping_at: Option<i64>,
        source: &Source,
    ) -> Result<(), Violation> {
        if let Some(position) = stopping_at {
            let text = format!("{} was mirrored, the last mirror position is {position}", batch.stored.base);
            return Err(Violation::new("gate", text));
        }
        let (base, next) = (batch.stored.base, batch.stored.last + 1);
        // Of what the source said that it had removed nothing can be known.
        let is_told = base >= self.end && base <= source.told_start();
        if self.start == self.end {
            // Nothing is left of the log, and no history to go on with.
            self.begun_at = self.log.len();
        }
        let last = self.log.last().filter(|_| self.begun_at != self.log.len());
        let follows = match last.map(|last| last.what) {
            None if self.end == 0 && base == 0 => batch.before.is_none(),
            None => next > self.end && (base <= self.end || is_told),
            Some(What::Mirrored(number, _)) => is_told || (base == self.end && batch.before == Some(number)),
            Some(_) => false,
        };
        if !follows {
            let There { number, before, .. } = batch;
            let text = format!(
                "source batch {number} at {base}, which follows {before:?}, was appended after {:?} at {}",
                self.log.last(),
                self.end
            );
            return Err(Violation::new("identity", text));
        }
        self.log.push(Here::of(batch, by));
        self.end = next;
        Ok(())
    }

    /// The log begins here now, for the source says that it does not begin below.
    pub(super) fn starts_at(&mut self, start: i64, told: i64) -> Result<(), Violation> {
        if start <= self.start {
            return Ok(());
        }
        let is_gone = |batch: &&Here| batch.next > self.start && batch.next <= start;
        let is_local = |batch: &Here| batch.what == What::Local;
        if start > told || self.log.iter().filter(is_gone).any(is_local) {
            let text = format!("the log starts at {start}, the source says that it starts at {told}");
            return Err(Violation::new("log start", text));
        }
        self.start = start;
        self.start_highest = self.start_highest.max(start);
        Ok(())
    }

    /// Nothing of what was here is at the source any more: the log is empty, and begins here.
    pub(super) fn emptied(&mut self, start: i64) -> Result<(), Violation> {
        self.starts_at(start, start)?;
        self.drop_from(0, 0);
        self.end = start;
        Ok(())
    }

    /// What a cut from here on drops: all that has a record in it has to be exported, whoever else may have it.
    pub(super) fn lost_by(&self, from: i64) -> Lost {
        let mut lost = Lost::default();
        let here = self.here();
        let at = here.partition_point(|batch| batch.next <= from.max(self.start));
        for batch in &here[at..] {
            match batch.what {
                What::Mirrored(_, Meaning::Records(sent)) => {
                    lost.dropped.mirrored_records += u64::from(sent.records.unsigned_abs());
                }
                What::Local => lost.dropped.local_records += (batch.next - batch.base).unsigned_abs(),
                What::Mirrored(..) | What::Abort(_) | What::Reset => continue,
            }
            lost.batches.push((batch.base, batch.bytes.clone()));
        }
        lost
    }

    /// Without what was there before the log was emptied, and may overlap what has come since.
    fn here(&self) -> &[Here] {
        let overlaps = |pair: &[Here]| pair[1].base < pair[0].next;
        let begins = self.log.windows(2).enumerate().rev().find(|(_, pair)| overlaps(pair));
        &self.log[begins.map_or(0, |(before, _)| before + 1)..]
    }

    /// The log was cut, wholly or in part, and is this now; what ends up to `kept` stays whatever happens.
    pub(super) fn cut(&mut self, left: Left, kept: i64) {
        let Left { start, end, is_all_gone } = left;
        let at = if is_all_gone { 0 } else { self.log.partition_point(|batch| batch.next <= end) };
        self.drop_from(at, kept);
        (self.start, self.end) = (start, end);
    }

    /// What the disk has refused is cut off, which is not flushed yet.
    pub(super) fn may_come_back(&mut self, refused: &[There], by: Life) {
        let mut log = self.log.clone();
        log.extend(refused.iter().map(|batch| Here::of(batch, by)));
        self.before_cuts.push(BeforeCut { log, start: self.start, kept: self.end });
        self.cuts += 1;
    }

    fn drop_from(&mut self, at: usize, kept: i64) {
        let before = BeforeCut { log: self.log.clone(), start: self.start, kept };
        self.before_cuts.push(before);
        self.log.truncate(at);
        self.cuts += 1;
        let end = self.log.last().map_or(0, |batch| batch.next);
        (self.flushed, self.acknowledged) = (self.flushed.min(end), self.acknowledged.min(end));
    }

    /// A client has appended this.
    pub(super) fn local(&mut self, batch: &ValidBatch) {
        self.keep(batch, What::Local);
    }

    /// A client was told that what it sent is kept.
    pub(super) fn acknowledged(&mut self, below: i64) {
        self.acknowledged = self.acknowledged.max(below);
    }

    /// A flush has ended that began after so many cuts, and of all that ends up to here.
    pub(super) fn flushed(&mut self, below: i64, cuts: u64) {
        if cuts == self.cuts {
            self.before_cuts.clear();
            self.flushed = self.flushed.max(below);
        }
    }

    fn keep(&mut self, batch: &ValidBatch, what: What) {
        let (base, next) = (batch.header().base_offset.0, batch.header().next_offset().0);
        let (epoch, bytes) = (batch.header().leader_epoch.0, batch.bytes().clone());
        self.log.push(Here { base, next, epoch, bytes, what, by: None });
        self.end = next;
    }

    /// This cluster has appended this to end the log behind a position.
    pub(super) fn ended(&mut self, batch: &ValidBatch, position: LastPosition) -> Result<(), Violation> {
        let wrong = |text: String| Err(Violation::new("end", text));
        let is_left = self.is_left_to_others(position);
        let odd = self.end_behind(position).find(|batch| !is_left && !matches!(batch.what, What::Abort(_)));
        if let Some(odd) = odd {
            return wrong(format!("{odd:?} stands between {position:?} and more of the end"));
        }
        let control =
            ControlRecord::parse(batch).ok_or_else(|| Violation::new("end", "records end nothing"))?;
        let open = self.open_transactions();
        let id = batch.header().producer_id.0;
        match control.control_type {
            ControlType::Abort if open.iter().any(|open| open.id == id) => self.keep(batch, What::Abort(id)),
            ControlType::MirrorPidReset if is_left => {
                return wrong(format!("reset of what others wrote behind {position:?}"));
            }
            ControlType::MirrorPidReset if !open.iter().any(|open| self.is_remembered(open)) => {
                self.keep(batch, What::Reset)
            }
            ControlType::Abort => return wrong(format!("producer {id} has no transaction to be aborted")),
            ControlType::MirrorPidReset => return wrong(format!("reset while {open:?} are open")),
            other => return wrong(format!("a {other:?} record ends nothing")),
        }
        Ok(())
    }

    fn behind(&self, position: LastPosition) -> impl Iterator<Item = &Here> {
        self.log.iter().filter(move |batch| batch.next > position.offset.0)
    }

    /// What has ended the log, and what clients have written since; what they wrote before is in an older epoch.
    fn end_behind(&self, position: LastPosition) -> impl Iterator<Item = &Here> {
        self.behind(position).filter(move |batch| batch.epoch > position.epoch.0)
    }

    /// True where the mirror has brought nothing into a log that holds what others wrote, whose end is their own: for
    /// this one no more than the transactions that they left open is ended.
    fn is_left_to_others(&self, position: LastPosition) -> bool {
        let is_of_others = |first: &Here| matches!(first.what, What::Local | What::Mirrored(..));
        position == LastPosition::NOTHING && self.behind(position).next().is_some_and(is_of_others)
    }

    /// A position claims all that the mirror has brought, and nothing of clients here.
    pub(super) fn check_position(&self, position: LastPosition, by: Life) -> Result<(), Violation> {
        let said = |batch: &Here, how: &str| format!("{position:?} was written, {batch:?} stands {how} it");
        // What it had brought before others filled the log anew is claimed with theirs, or not at all.
        let is_shared = self.log.iter().any(|batch| batch.by != Some(by));
        let claims_nothing = position == LastPosition::NOTHING && is_shared;
        if let Some(batch) = self.behind(position).find(|batch| batch.by == Some(by) && !claims_nothing) {
            return Err(Violation::new("gate", said(batch, "behind")));
        }
        let is_claimed = |batch: &&Here| batch.next > self.start && batch.next <= position.offset.0;
        let claimed = self.log.iter().filter(is_claimed);
        match claimed.into_iter().find(|batch| batch.what == What::Local) {
            Some(batch) => Err(Violation::new("position", said(batch, "before"))),
            None => Ok(()),
        }
    }

    /// Whether a report of the end behind a position says what was done, by what was open there.
    pub(super) fn is_end_behind(&self, position: LastPosition, ended: &Ended) -> bool {
        if self.is_left_to_others(position) {
            // Where their records are removed from the beginning, their end may be the first that is found.
            let is_theirs = |batch: &Here| batch.what == What::Reset && batch.base == ended.reset;
            let was_aborted = |id: i64| self.log.iter().any(|batch| batch.what == What::Abort(id));
            let is_none = ended.reset == Offset::NONE.0;
            return is_none && ended.aborted.iter().all(|(id, _)| was_aborted(*id))
                || self.log.iter().any(is_theirs);
        }
        let begins = self.end_behind(position).next().map_or(self.end, |first| first.base);
        let open = self.open_below(begins);
        let is_open = |&(id, first): &(i64, i64)| {
            let is_it =
                |open: &Undecided| open.id == id && (open.first == first || open.first < self.start_highest);
            open.iter().any(is_it)
        };
        let is_whole = |id: i64| open.iter().any(|open| open.id == id && open.first >= self.start_highest);
        let whole = ended.aborted.iter().filter(|(id, _)| is_whole(*id));
        let in_order: Vec<i64> = whole.map(|(_, first)| *first).collect();
        let is_told = |open: &Undecided| ended.aborted.iter().any(|(id, _)| *id == open.id);
        let reset = self.end_behind(position).find(|batch| batch.what == What::Reset);
        reset.is_some_and(|reset| reset.base == ended.reset)
            && ended.aborted.iter().all(is_open)
            && in_order.is_sorted()
            && open.iter().all(|open| is_told(open) || !self.is_remembered(open))
    }

    /// Whether the log is ended behind a position.
    pub(super) fn has_reset(&self, position: LastPosition) -> bool {
        self.end_behind(position).any(|batch| batch.what == What::Reset)
    }

    /// Whether that is flushed.
    pub(super) fn has_durable_reset(&self, position: LastPosition) -> bool {
        self.end_behind(position).any(|batch| batch.what == What::Reset && batch.next <= self.flushed)
    }

    /// How many transactions that end has aborted; `None` where the end is others'.
    pub(super) fn aborts_behind(&self, position: LastPosition) -> Option<usize> {
        let is_abort = |batch: &&Here| matches!(batch.what, What::Abort(_));
        let count = || self.end_behind(position).filter(is_abort).count();
        (!self.is_left_to_others(position)).then(count)
    }

    /// What a report of the end behind a position has to say, for a person.
    pub(super) fn undecided_at(&self, position: LastPosition) -> String {
        let begins = self.end_behind(position).next().map_or(self.end, |first| first.base);
        let (open, start) = (self.open_below(begins), self.start_highest);
        format!("{open:?} were open in a log that started at {start}")
    }

    /// What a transaction did below the log start may be forgotten.
    fn is_remembered(&self, open: &Undecided) -> bool {
        open.next > self.start_highest
    }

    /// Producers with an open transaction.
    fn open_transactions(&self) -> Vec<Undecided> {
        self.open_below(i64::MAX)
    }

    fn open_below(&self, offset: i64) -> Vec<Undecided> {
        let mut open: Vec<Undecided> = Vec::new();
        for batch in self.log.iter().take_while(|batch| batch.next <= offset) {
            match batch.what {
                What::Mirrored(_, Meaning::Records(sent)) if sent.transactional => {
                    match open.iter_mut().find(|open| open.id == sent.id) {
                        Some(open) => open.next = batch.next,
                        None => open.push(Undecided { id: sent.id, first: batch.base, next: batch.next }),
                    }
                }
                What::Mirrored(_, Meaning::Marker { id, .. }) | What::Abort(id) => {
                    open.retain(|open| open.id != id);
                }
                What::Reset => open.clear(),
                What::Mirrored(..) | What::Local => {}
            }
        }
        open
    }

    /// STOPPED has been written behind this position: the log is ended, by one reset, and all of it kept.
    pub(super) fn check_ended(&self, position: LastPosition) -> Result<(), Violation> {
        if self.is_left_to_others(position) {
            let open = self.open_transactions();
            return match open.iter().find(|open| self.is_remembered(open)) {
                Some(open) => Err(Violation::new("end", format!("{open:?} of others was left open"))),
                None => Ok(()),
            };
        }
        let mut resets = 0;
        for batch in self.end_behind(position) {
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
                _ => return Err(Violation::new("end", format!("{batch:?} is behind {position:?}"))),
            }
        }
        match resets {
            1 => Ok(()),
            0 => Err(Violation::new("stopped early", format!("no reset stands behind {position:?}"))),
            _ => Err(Violation::new("end", format!("{resets} resets stand behind {position:?}"))),
        }
    }

    /// Whether a crash may have left this of the log as it is, or of one before a cut that was not flushed.
    pub(super) fn knows(&self, found: &Found) -> bool {
        self.kept_of(found).is_ok()
    }

    /// What a crash has left.
    pub(super) fn crashed(&mut self, found: &Found) -> Result<(), Violation> {
        let (which, length) = self.kept_of(found).map_err(|text| Violation::new("durability", text))?;
        if let Some(which) = which {
            self.log = self.before_cuts.swap_remove(which).log;
        }
        self.log.truncate(length);
        // Where the log starts lower again, what the first batch has replaced does not come back with it.
        let hidden = self.log.len().saturating_sub(found.batches.len());
        let mut index = 0;
        self.log.retain(|batch| {
            index += 1;
            index > hidden || batch.next <= found.start
        });
        self.before_cuts.clear();
        (self.start, self.end, self.begun_at) = (found.start, found.end, 0);
        // What a cut was to drop was not promised any more.
        (self.flushed, self.acknowledged) = (self.flushed.min(self.end), self.acknowledged.min(self.end));
        Ok(())
    }

    /// Of which log, and how many batches of it: of the log as it is, or of one as it was before a cut.
    fn kept_of(&self, found: &Found) -> Result<(Option<usize>, usize), String> {
        let promised = self.flushed.max(self.acknowledged);
        let refused = match length_of(&self.log, self.start, promised, found) {
            Ok(length) => return Ok((None, length)),
            Err(text) => text,
        };
        let mut others = self.before_cuts.iter().enumerate().rev();
        let other = others.find_map(|(which, before)| {
            let start = before.start.max(self.start);
            let length = length_of(&before.log, start, promised.min(before.kept), found).ok()?;
            Some((Some(which), length))
        });
        other.ok_or(refused)
    }

    /// Every byte.
    pub(super) fn compare_all(&self, found: &Found) -> Result<(), Violation> {
        let wrong = |text: String| Err(Violation::new("bytes", text));
        if (found.start, found.end) != (self.start, self.end) {
            return wrong(format!("offsets {} to {} are here", found.start, found.end));
        }
        match length_of(&self.log, self.start, self.end, found) {
            Ok(length) if length == self.log.len() => Ok(()),
            Ok(length) => wrong(format!("{length} batches are here instead of {}", self.log.len())),
            Err(text) => wrong(text),
        }
    }

    /// Whether this log is the beginning of the source's from its start on, but for what the source said that it
    /// had removed; records of this cluster are none of it.
    pub(super) fn is_beginning_of(&self, source: &Source) -> bool {
        let here = self.here().iter().filter(|batch| batch.next > self.start.max(source.start()));
        let mut there = source.log.iter();
        let mut is_there = |batch: &Here| matches!(batch.what, What::Mirrored(number, _) if there.any(|found| found.number == number));
        self.end <= source.end().max(source.start()) && here.into_iter().all(&mut is_there)
    }

    /// Behind what a cut has kept nothing of this cluster is left.
    pub(super) fn check_is_mirrored(&self) -> Result<(), Violation> {
        let is_own = |batch: &&Here| batch.next > self.start && !matches!(batch.what, What::Mirrored(..));
        match self.here().iter().find(is_own) {
            Some(batch) => Err(Violation::new("identity", format!("{batch:?} was not cut off"))),
            None => Ok(()),
        }
    }

    /// What is here of what the source has not removed, it has.
    pub(super) fn check_common(&self, source: &Source) -> Result<(), Violation> {
        let is_there = |number: u64| source.log.binary_search_by_key(&number, |there| there.number).is_ok();
        let is_common = |batch: &Here| matches!(batch.what, What::Mirrored(number, _) if is_there(number));
        let begins = self.start.max(source.start());
        match self.here().iter().find(|batch| batch.next > begins && !is_common(batch)) {
            Some(batch) => Err(Violation::new(
                "identity",
                format!("{batch:?} is taken for the source's, which has it not"),
            )),
            None => Ok(()),
        }
    }

    /// Whether something is here that the source never had, or has lost; what it has removed from its beginning it
    /// has not.
    pub(super) fn has_parted_from(&self, source: &Source) -> bool {
        let is_there = |number: u64| source.log.binary_search_by_key(&number, |there| there.number).is_ok();
        let here = self.here().iter().filter(|batch| batch.next > self.start);
        let is_other = |batch: &Here| !matches!(batch.what, What::Mirrored(number, _) if is_there(number));
        // Of an empty log the leader epochs are compared all the same.
        let is_empty = self.start == self.end && self.end > 0;
        is_empty || self.end > source.end() || here.into_iter().any(is_other)
    }
}

/// How many batches of a log there are where this was found of it; or why it is no part of that log, from its start
/// on, with all that was promised.
fn length_of(log: &[Here], start: i64, promised: i64, found: &Found) -> Result<usize, String> {
    if found.end < promised {
        return Err(format!("the log ends at {}, {promised} was promised to be kept", found.end));
    }
    if found.start > start {
        return Err(format!("the log starts at {} instead of {start}", found.start));
    }
    let Some((first, bytes)) = found.batches.first() else {
        let length = log.partition_point(|batch| batch.next <= found.end);
        let is_empty = found.start == found.end || length == 0;
        return if is_empty { Ok(length) } else { Err(format!("nothing is here up to {}", found.end)) };
    };
    // The first batch of a log that was emptied may reach back over what is gone, and begin below that.
    let is_first = |batch: &Here| batch.base == *first && batch.bytes == *bytes;
    let Some(at) = log.iter().rposition(is_first) else {
        return Err(format!("a batch is at {first} that nobody has appended there"));
    };
    let known = &log[at..log.len().min(at + found.batches.len())];
    if known.len() < found.batches.len() {
        return Err(format!("{} batches are here instead of {}", found.batches.len(), known.len()));
    }
    let mut pairs = known.iter().zip(&found.batches);
    match pairs.find(|(known, (base, bytes))| known.base != *base || known.bytes != *bytes) {
        Some((known, (base, _))) => Err(format!("another batch is at {base} instead of {known:?}")),
        None => Ok(at + known.len()),
    }
}
