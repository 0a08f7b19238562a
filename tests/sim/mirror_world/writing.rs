//! What the manager of the world writes down of the partition, and what must be true of what was written.

use tarn_mirror::coordinator::{PartitionState, Position, WriteRefused};
use tarn_mirror::known::SourceKnown;
use tarn_mirror::local_cluster::LastPosition;
use tarn_mirror::reasons::{Reason, Treatment};
use tarn_mirror::state::MirrorState;
use tarn_record::{Epoch, Offset};
use tarn_wire::Str;
use tarn_wire::messages::write_mirror_states_request::{
    AbortedTransaction, MirrorStopReport, WriteMirrorStatePartition,
};

use super::broken::Broken;
use super::happenings::Event;
use super::manager::{Answer, now_ms};
use super::mirrors::Mirror;
use super::oracle::Ended;
use super::{MirrorWorld, transitions};
use crate::simulation::{Schedule, Violation};

/// A write on its way to the coordinator.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    mirror: Mirror,
    pub(super) state: MirrorState,
    write: WriteMirrorStatePartition,
    position: Option<LastPosition>,
    known: Option<SourceKnown>,
    /// What the source had told by then, and when: what a report has to say.
    told: Option<Told>,
}

/// What the coordinator has taken.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) state: MirrorState,
    pub(super) state_epoch: i32,
    pub(super) version: i64,
    pub(super) position: Option<LastPosition>,
    pub(super) known: Option<SourceKnown>,
}

/// The end that the source last told this node, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) high_watermark: i64,
    pub(super) at_ms: i64,
}

impl MirrorWorld {
    pub(super) fn writing(&self, state: MirrorState, schedule: &Schedule<Event>) -> Writing {
        let known = match state {
            MirrorState::Stopping | MirrorState::Stopped => self.known_of_source(now_ms(schedule)),
            _ => None,
        };
        let (write, position) = (self.write(state, known), self.partition.position());
        Writing { mirror: self.mirror, state, write, position, known, told: self.told }
    }

    /// For a stop what was known when it wrote its position, else the newest.
    fn known_of_source(&self, now_ms: u64) -> Option<SourceKnown> {
        let of_lane = self.lane.as_ref().and_then(|lane| lane.known(now_ms));
        self.partition.known_at_stop().or_else(|| SourceKnown::newer(self.known, of_lane))
    }

    /// No lane fetches it any more; what this one knew of the source is kept.
    pub(super) fn left_lane(&mut self, schedule: &Schedule<Event>) {
        self.known = self.known_of_source(now_ms(schedule));
        if self.broken == Broken::KnownForgotten {
            self.known = None;
        }
        self.lane = None;
        self.connection.lets_go();
        self.partition.left_lane();
    }

    fn write(&self, state: MirrorState, known: Option<SourceKnown>) -> WriteMirrorStatePartition {
        let bound = self.partition.bound();
        let said = match state {
            MirrorState::Failed => self.partition.trouble(),
            MirrorState::Mirroring if self.broken != Broken::NoticeForgotten => {
                self.partition.truncation_notice()
            }
            _ => None,
        };
        let said = said.filter(|_| self.broken != Broken::ReasonForgotten);
        let written = WriteMirrorStatePartition {
            state: state.to_byte(),
            leader_epoch: bound.leader_epoch.0,
            state_epoch: self.partition.state_epoch(),
            state_version: bound.version,
            non_retryable: state == MirrorState::Failed,
            error_message: said.as_ref().map(|(_, message)| Str::from(&**message)),
            reason_code: said.as_ref().map(|(reason, _)| Str::from(reason.code())),
            source_offset_last_known: known.map_or(-1, |known| known.high_watermark.0),
            source_offset_known_at_ms: known.map_or(-1, |known| known.answered_at_ms as i64),
            ..WriteMirrorStatePartition::default()
        };
        match (state, self.partition.position(), self.partition.ended()) {
            (MirrorState::Stopping, Some(position), _) => WriteMirrorStatePartition {
                last_mirror_epoch: position.epoch.0,
                last_mirror_offset: position.offset.0,
                ..written
            },
            (MirrorState::Stopped, Some(position), Some(ended)) => {
                let aborted = ended.aborted.iter().map(|aborted| AbortedTransaction {
                    producer_id: aborted.producer_id.0,
                    producer_epoch: aborted.producer_epoch.0,
                    first_offset: aborted.first_offset.0,
                });
                let report = MirrorStopReport {
                    mirrored_offset: position.offset.0,
                    aborted_transaction_count: ended.aborted_count as i32,
                    aborted_transactions: aborted.collect(),
                    reset_offset: ended.reset_offset.0,
                    ..MirrorStopReport::default()
                };
                WriteMirrorStatePartition { report: Some(report), ..written }
            }
            _ => written,
        }
    }

    pub(super) fn write_state(
        &mut self,
        writing: Writing,
        schedule: &mut Schedule<Event>,
    ) -> Result<Answer, Violation> {
        let Writing { mirror, state, write, position, known, told } = writing;
        let version = write.state_version;
        // Whoever keeps states may have the newest metadata or not; what was forgotten it knows to be over.
        let is_over = self.rng.bool() && self.controller.is_over(mirror, version);
        if is_over || self.states.has_forgotten(mirror, version) {
            schedule.tally("write about a binding that has ended refused");
            return Ok(Answer::WrittenByOthers);
        }
        let before = self.states.read(mirror);
        Ok(match self.states.write(mirror, write, self.core.oracle.end())? {
            Ok(state_epoch) => {
                schedule.tally(transitions::written(before.state, state));
                self.check_left(mirror, &before, told)?;
                self.check_said(mirror, state, version)?;
                if state == MirrorState::Stopped && before.state == Some(MirrorState::Stopping) {
                    let position = self.states.read(mirror).position.map_or(NOWHERE, left_at);
                    self.core.oracle.check_ended(position)?;
                    self.compare_report(mirror, position, schedule)?;
                }
                Answer::Written(Box::new(Written { state, state_epoch, version, position, known }))
            }
            Err(WriteRefused::FencedState { .. }) => {
                schedule.tally("write of an old state epoch refused");
                Answer::WrittenByOthers
            }
            Err(WriteRefused::OldVersion { .. }) => {
                schedule.tally("write of an old version refused");
                Answer::WrittenByOthers
            }
            Err(WriteRefused::FencedLeader { .. }) => Answer::Failed(Reason::DestinationNoLeader),
            Err(_) => Answer::Failed(Reason::CoordinatorUnavailable),
        })
    }

    /// The report of a stop says what the log does.
    fn compare_report(
        &mut self,
        mirror: Mirror,
        position: LastPosition,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let wrong = |checker, text: String| Err(Violation::new(checker, text));
        let Some(report) = self.states.report(mirror) else {
            return wrong("report", "there is none".to_owned());
        };
        let reported = Ended {
            aborted: report.aborted.iter().map(|one| (one.producer_id.0, one.first_offset.0)).collect(),
            reset: report.reset_offset.0,
        };
        let (copied, version) = (report.mirrored_offset, self.states.read(mirror).state_version);
        let is_as_done = self.core.oracle.is_end_behind(position, &reported);
        let is_of_stop = (copied, report.version) == (position.offset, version);
        if !is_of_stop || !is_as_done {
            let open = self.core.oracle.undecided_at(position);
            let checker = if is_of_stop { "reported end" } else { "reported position" };
            return wrong(
                checker,
                format!("{report:?} is reported of {position:?}, version {version}, and {open}"),
            );
        }
        let known = self.states.read(mirror).position;
        let known = known.map(|known| (known.source_offset, known.source_known_at_ms));
        if known != Some((report.source_offset, report.source_known_at_ms)) {
            let text = format!("{report:?} is reported, {known:?} was known of the source");
            return wrong("reported source", text);
        }
        schedule.tally("report compared");
        let markers = self.core.oracle.aborts_behind(position);
        if markers.is_some_and(|markers| markers != report.aborted_count as usize) {
            return wrong("reported end", format!("{report:?} is reported, {markers:?} were aborted"));
        }
        if !reported.aborted.is_empty() {
            schedule.tally("report of aborted transactions compared");
        }
        if report.source_offset > report.mirrored_offset {
            schedule.tally("report of records at risk compared");
        }
        Ok(())
    }

    /// What the mirror is said to have brought it has brought, and nothing more. What was known of the source then is
    /// what it last told, and stays; also where a later stop leaves the log at the same place, and it told nothing since.
    fn check_left(
        &mut self,
        mirror: Mirror,
        before: &PartitionState,
        told: Option<Told>,
    ) -> Result<(), Violation> {
        let position = self.states.read(mirror).position;
        let Some(position) = position.filter(|_| position != before.position) else { return Ok(()) };
        self.core.oracle.check_position(left_at(position), self.controller.life(mirror))?;
        let known = (position.source_offset.0, position.source_known_at_ms);
        let is_told = known == told.map_or((-1, -1), |told| (told.high_watermark, told.at_ms));
        let is_kept = before.position.is_some_and(|before| {
            let is_there = (before.epoch, before.offset) == (position.epoch, position.offset);
            let is_kept = before.version == position.version || (is_there && told.is_none());
            is_kept && known == (before.source_offset.0, before.source_known_at_ms)
        });
        if is_told || is_kept {
            return Ok(());
        }
        let text = format!("{position:?} is written, and the source had told {told:?}");
        Err(Violation::new("known of the source", text))
    }

    /// FAILED says what it waits for, which is no source that cannot be reached; and MIRRORING what was exported.
    fn check_said(&mut self, mirror: Mirror, state: MirrorState, version: i64) -> Result<(), Violation> {
        let written = self.states.read(mirror);
        let reason = written.reason_code.as_ref().and_then(|code| Reason::from_code(code));
        if state == MirrorState::Failed {
            return match reason.map(Reason::treatment) {
                None => Err(Violation::new("waits", "FAILED is written, and not why")),
                Some(Treatment::OfTheLink) => {
                    Err(Violation::new("link", "FAILED is written because of the link"))
                }
                Some(_) => Ok(()),
            };
        }
        if state != MirrorState::Mirroring {
            return Ok(());
        }
        let Some((_, path)) = self.unsaid.take_if(|(cut, _)| *cut == version) else { return Ok(()) };
        match written.error_message.as_ref().is_some_and(|said| said.contains(&*path)) {
            true => Ok(()),
            false => Err(Violation::new("notice", format!("MIRRORING does not say what is in {path}"))),
        }
    }
}

const NOWHERE: LastPosition = LastPosition { epoch: Epoch::NONE, offset: Offset::NONE };

fn left_at(position: Position) -> LastPosition {
    LastPosition { epoch: position.epoch, offset: position.offset }
}
