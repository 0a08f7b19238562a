//! Comparing histories in the world: what has to be known next is asked here and at the source in turn, as the
//! manager does it for many partitions at once. What is decided by the answers is production code.

use std::sync::Arc;

use tarn_mirror::alignment::{
    Apart, BatchThere, Content, EpochEnd, GoOn, SameBatch, SourceLog, align, compare_batch, go_on,
    has_batch_to_compare,
};
use tarn_mirror::common_point::{Ask, CommonPoint, Logs, Proof, Search};
use tarn_mirror::divergence::{Alignment, Rest, judge};
use tarn_mirror::local_cluster::{Ending, LastPosition, LogEnds, Suffix};
use tarn_mirror::reasons::Reason;
use tarn_mirror::source::metadata::SourceLeader;
use tarn_record::{BatchHeader, Epoch, Offset};

use super::broken::Broken;
use super::owning_core::OwningCore;
use super::source::Source;
use crate::simulation::Violation;

/// A comparison under way.
#[derive(Clone, Debug)]
pub(super) struct Comparing {
    pub(super) leader: SourceLeader,
    looks: Looks,
    content: Content,
    last_position: Option<LastPosition>,
    /// The cluster that is mirrored.
    cluster: Arc<str>,
    broken: Broken,
    step: Step,
}

/// How far a comparison goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// Until it is known whether the log here is a beginning of the source's, or may be none.
    Only,
    /// Until it is known where they part.
    AndSearches,
}

#[derive(Clone, Debug)]
enum Step {
    /// Here: where does the log begin and end?
    Ends,
    /// There: the same.
    Source(LogEnds),
    /// Here: which batch is the newest?
    Newest(LogEnds, SourceLog, GoOn),
    /// There: is it the same?
    Same(LogEnds, SourceLog, GoOn, BatchHeader),
    /// Whatever the search asks.
    Searching(Box<Parting>, Search),
    /// Here: what stands behind the common point?
    Counting(Box<Parting>, Option<CommonPoint>),
}

#[derive(Clone, Debug)]
struct Parting {
    ours: LogEnds,
    source: SourceLog,
    why: String,
}

/// Who has to answer next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    Here,
    There,
}

/// What an answer has brought.
pub(super) enum Answered {
    GoesOn(Box<Comparing>),
    Done(Box<Alignment>),
    /// The log here may be no beginning of the source's, and why.
    Apart(Arc<str>),
    /// The source's broker does not lead the partition, or does not know its own log yet.
    SourceLost,
    Failed(Reason),
}

impl Comparing {
    pub(super) fn new(
        leader: SourceLeader,
        looks: Looks,
        (content, last_position): (Content, Option<LastPosition>),
        cluster: Arc<str>,
        broken: Broken,
    ) -> Comparing {
        Comparing { leader, looks, content, last_position, cluster, broken, step: Step::Ends }
    }

    pub(super) fn asks(&self) -> Asks {
        match &self.step {
            Step::Ends | Step::Newest(..) | Step::Counting(..) => Asks::Here,
            Step::Source(_) | Step::Same(..) => Asks::There,
            Step::Searching(_, search) => match search.next() {
                Ask::EpochThere(_) | Ask::BatchThere(_) => Asks::There,
                Ask::BatchHere(_) | Ask::EpochHere(_) | Ask::Found(_) => Asks::Here,
            },
        }
    }

    /// The owning core answers.
    pub(super) fn answered_here(self, core: &OwningCore) -> Result<Answered, Violation> {
        let log = core.replica.log();
        let batch_below = |below: Offset| {
            log.batch_below(below).run().map_err(|error| Violation::new("read", error.to_string()))
        };
        let content = self.content;
        Ok(match self.step.clone() {
            Step::Ends => {
                let ours = core.replica.ends();
                let last_position = match self.last_position {
                    Some(position) if content == Content::Local && ours.latest_epoch > position.epoch => {
                        let behind = core.replica.look_behind_position(position).run();
                        let behind = behind.map_err(|error| Violation::new("read", error.to_string()))?;
                        let is_ours =
                            |ending: &Ending| ending.source_cluster_id.as_ref() == Some(&self.cluster);
                        behind.ending().filter(is_ours).map(|_| position)
                    }
                    position => position,
                };
                Comparing { last_position, ..self }.goes_on(Step::Source(ours))
            }
            Step::Newest(ours, source, go_on) => match batch_below(log.end())? {
                Some(newest) => self.goes_on(Step::Same(ours, source, go_on, newest)),
                None => Answered::Done(Box::new(Alignment::GoOn(go_on))),
            },
            Step::Searching(parting, mut search) => {
                match search.next() {
                    Ask::BatchHere(below) => search.batch_here(batch_below(below)?),
                    Ask::EpochHere(asked) => {
                        let found = core.replica.epoch_end(asked);
                        let (epoch, end) =
                            found.map_or((Epoch::NONE, Offset::NONE), |found| (found.epoch, found.end));
                        search.epoch_here(EpochEnd { epoch, end });
                    }
                    Ask::EpochThere(_) | Ask::BatchThere(_) | Ask::Found(_) => {}
                }
                self.searching(parting, search)
            }
            Step::Counting(parting, common) => {
                let Parting { ours, source, why } = *parting;
                let from = common.map_or(ours.log_start, |point| point.offset);
                let counted = log.batches(from.max(log.start()), log.end()).count();
                let counted = counted.map_err(|error| Violation::new("read", error.to_string()))?;
                let (records, control_records) = (counted.records, counted.control_records);
                let suffix = Suffix { records, control_records, has_more: false };
                let mirrored_end = mirrored_end(content, self.last_position, &ours);
                let rest = Rest { why, suffix, mirrored_end, compacted_there: ours.compacted };
                Answered::Done(Box::new(judge(&ours, content, &source, common, rest)))
            }
            Step::Source(_) | Step::Same(..) => self.goes_on(Step::Ends),
        })
    }

    /// The source answers, which can be reached.
    pub(super) fn answered_there(self, source: &mut Source, rng: &mut fastrand::Rng) -> Answered {
        if source.is_deleted || self.leader.epoch.0 != source.epoch() {
            return Answered::SourceLost;
        }
        match self.step.clone() {
            Step::Source(ours) => {
                let shown = source.show(rng);
                let has_history = ours.latest_epoch != Epoch::NONE;
                let log = SourceLog {
                    log_start: Offset(shown.start),
                    high_watermark: Offset(if has_history { shown.start } else { shown.high_watermark }),
                    epoch_end: has_history.then(|| source.end_of(ours.latest_epoch, rng)),
                };
                if self.broken == Broken::NotCompared {
                    let all = go_on(&ours, ours.latest_epoch, &log);
                    return Answered::Done(Box::new(Alignment::GoOn(all)));
                }
                match align(&ours, self.content, &log) {
                    Ok(go_on) if has_batch_to_compare(&ours, &log) => {
                        self.goes_on(Step::Newest(ours, log, go_on))
                    }
                    Ok(go_on) => Answered::Done(Box::new(Alignment::GoOn(go_on))),
                    Err(Apart(why)) => self.parts(ours, log, why),
                }
            }
            Step::Same(ours, log, go_on, newest) => {
                let theirs = match batch_there(source, &newest, rng) {
                    Ok(theirs) => theirs,
                    Err(answered) => return answered,
                };
                match compare_batch(&newest, &theirs) {
                    // A cleaner may have removed ours.
                    SameBatch::Another(_) if ours.compacted => {
                        Answered::Done(Box::new(Alignment::GoOn(go_on)))
                    }
                    SameBatch::Another(why) | SameBatch::Replaced(why) => self.parts(ours, log, why),
                    SameBatch::Same | SameBatch::Cleaned => Answered::Done(Box::new(Alignment::GoOn(go_on))),
                }
            }
            Step::Searching(parting, mut search) => {
                match search.next() {
                    Ask::EpochThere(asked) => search.epoch_there(source.end_of(asked, rng)),
                    Ask::BatchThere(ours) => match batch_there(source, &ours, rng) {
                        Ok(theirs) => search.batch_there(&theirs),
                        Err(answered) => return answered,
                    },
                    Ask::BatchHere(_) | Ask::EpochHere(_) | Ask::Found(_) => {}
                }
                self.searching(parting, search)
            }
            Step::Ends | Step::Newest(..) | Step::Counting(..) => self.goes_on(Step::Ends),
        }
    }

    fn goes_on(self, step: Step) -> Answered {
        Answered::GoesOn(Box::new(Comparing { step, ..self }))
    }

    /// The log here may be no beginning of the source's: where do they part?
    fn parts(self, ours: LogEnds, source: SourceLog, why: String) -> Answered {
        if self.looks == Looks::Only {
            return Answered::Apart(why.into());
        }
        let mirrored_end = mirrored_end(self.content, self.last_position, &ours);
        let search = Search::new(Logs {
            log_start: ours.log_start,
            mirrored_end,
            source_start: source.log_start,
            source_epoch: self.leader.epoch,
            proof: if ours.compacted { Proof::Epochs } else { Proof::Crcs },
        });
        self.searching(Box::new(Parting { ours, source, why }), search)
    }

    fn searching(self, parting: Box<Parting>, search: Search) -> Answered {
        let Ask::Found(common) = search.next() else {
            return self.goes_on(Step::Searching(parting, search));
        };
        let higher = |point: CommonPoint| CommonPoint { offset: point.offset.plus(1), ..point };
        let common = if self.broken == Broken::CommonPointTooHigh { common.map(higher) } else { common };
        self.goes_on(Step::Counting(parting, common))
    }
}

/// Up to where the mirror has filled the log.
fn mirrored_end(content: Content, last_position: Option<LastPosition>, ours: &LogEnds) -> Offset {
    match content {
        Content::Mirrored => ours.log_end,
        Content::Local => last_position.map_or(Offset(0), |position| position.offset.min(ours.log_end)),
    }
}

/// What a source answers that is asked for a batch.
fn batch_there(
    source: &mut Source,
    ours: &BatchHeader,
    rng: &mut fastrand::Rng,
) -> Result<BatchThere, Answered> {
    let shown = source.show(rng);
    match source.batch_at(ours) {
        None => Err(Answered::Failed(Reason::SourceError)),
        Some(_) if shown.high_watermark <= ours.last_offset().0 => Err(Answered::SourceLost),
        Some(theirs) => Ok(theirs),
    }
}
