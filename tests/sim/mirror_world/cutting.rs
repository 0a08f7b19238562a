//! Cutting the log in the world, step by step, with everything that can happen in between: an order is looked at, the
//! copy is made, the log is cut, the cut is flushed. The rules are production's; this is a stand-in for the driver.
//!
//! An order to cut is neither repeated nor its answer lost: it never leaves the process, and has no time limit.

use tarn_broker::replica::{NotTruncated, ReadyToTruncate, TruncationWork};
use tarn_log::{ExportDir, Exported};
use tarn_mirror::local_cluster::{Export, LocalError, LogTruncated, TruncateOrder};
use tarn_mirror::reasons::Reason;
use tarn_mirror::state::MirrorState;
use tarn_mirror::truncation::TruncationPlan;
use tarn_record::{BrokerId, Timestamp};

use super::MirrorWorld;
use super::broken::Broken;
use super::consents::Asked;
use super::flushing::FlushedFor;
use super::happenings::Event;
use super::manager::{Answer, Task};
use super::network::{Channel, Message};
use crate::disk::Faults;
use crate::simulation::{Schedule, Violation};

pub(super) const EXPORTS: &str = "/exports";
/// The only node of the world.
const HERE: BrokerId = BrokerId(1);

/// Where a cut is.
pub(super) enum Cut {
    /// The end of the log is to be copied.
    Copy(TruncationWork),
    /// It is copied, as far as it has to be; the log is to be cut.
    Drop(ReadyToTruncate),
}

/// An order to cut, and who waits for it.
pub(super) struct Ordered {
    pub(super) task: Task,
    pub(super) order: TruncateOrder,
    pub(super) cutting: TruncationPlan,
}

impl MirrorWorld {
    /// The owning core gets the order.
    pub(super) fn begin_cut(&mut self, ordered: Ordered, schedule: &mut Schedule<Event>) {
        match self.core.replica.truncation_work(&ordered.order) {
            Ok(work) => {
                self.send(Channel::LongDisk, Message::Cut(ordered, Box::new(Cut::Copy(work))), schedule)
            }
            Err(why) => self.not_cut(&ordered, why, schedule),
        }
    }

    pub(super) fn go_on_cutting(
        &mut self,
        ordered: Ordered,
        cut: Cut,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let loses_power = !self.at_rest && self.loses_power && self.rng.u8(..8) == 0;
        if loses_power {
            self.core.disk.lose_power_after(self.rng.u32(..12));
        }
        let went = match cut {
            Cut::Copy(work) => self.copy(ordered, work, schedule),
            Cut::Drop(ready) => self.drop_end(ordered, ready, schedule),
        };
        if self.core.disk.power_lost() {
            schedule.tally("power lost in a cut");
            return went.and_then(|()| self.crash(schedule));
        }
        self.core.disk.keep_power();
        went
    }

    fn copy(
        &mut self,
        ordered: Ordered,
        work: TruncationWork,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let faults = self.core.disk.faults();
        if self.broken == Broken::ExportNotSynced {
            self.core.disk.set_faults(Faults { sync_lies: true, ..faults });
        }
        let ready = work.run(&ExportDir::new(EXPORTS), Timestamp(schedule.now_ms()), || true);
        self.core.disk.set_faults(faults);
        match ready {
            Ok(ready) => {
                schedule.tally(if ready.exported.is_some() { "exported" } else { "nothing to export" });
                self.send(Channel::LongDisk, Message::Cut(ordered, Box::new(Cut::Drop(ready))), schedule);
            }
            Err(NotTruncated::Export(_)) if self.broken == Broken::FailedExportIgnored => {
                return self.drop_uncopied(ordered, schedule);
            }
            Err(why) => {
                if matches!(why, NotTruncated::Export(_)) {
                    schedule.tally("export failed");
                }
                self.not_cut(&ordered, why, schedule);
            }
        }
        Ok(())
    }

    /// What is broken: no copy was made, and the log is cut.
    fn drop_uncopied(&mut self, ordered: Ordered, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let faults = self.core.disk.faults();
        self.core.disk.set_faults(self.core.quiet());
        let work = self.core.replica.truncation_work(&ordered.order);
        let ready = work.and_then(|work| {
            let mut ready = work.run(&ExportDir::new(EXPORTS), Timestamp(schedule.now_ms()), || true)?;
            discard(ready.exported.take());
            Ok(ready)
        });
        self.core.disk.set_faults(faults);
        match ready {
            Ok(ready) => self.drop_end(ordered, ready, schedule),
            Err(why) => {
                self.not_cut(&ordered, why, schedule);
                Ok(())
            }
        }
    }

    fn drop_end(
        &mut self,
        ordered: Ordered,
        mut ready: ReadyToTruncate,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let mut exported = ready.exported.take();
        let export = exported.as_ref().map(export_of);
        let path = exported.as_ref().map(|exported| exported.path.clone());
        if self.broken == Broken::ExportSkipped {
            discard(exported.take());
        }
        let Ordered { order, cutting, .. } = &ordered;
        let asked = Asked { version: order.version, ground: cutting.ground };
        let durable = self.states.durable(self.mirror);
        if durable.state.is_some_and(MirrorState::means_mirrored) {
            self.consents.aligned(durable.state_version);
        }
        let now_ms = schedule.now_ms();
        let result = self.core.cut(order, ready, path.as_deref(), &asked, &mut self.consents, now_ms)?;
        match result {
            Ok(log_end) => {
                schedule.tally(cut_by(cutting));
                if let Some(export) = &export {
                    self.unsaid = Some((order.version, export.path.clone()));
                }
                let done = LogTruncated { log_end, export, unflushed: None };
                let task = ordered.task;
                self.flush_for(FlushedFor::Cut(task, done, *cutting, order.version), schedule);
            }
            Err(NotTruncated::Storage(error)) => {
                schedule.tally("cut refused by the disk");
                self.not_cut(&ordered, NotTruncated::Storage(error), schedule);
            }
            Err(why) => {
                schedule.tally("cut refused");
                discard(exported);
                self.not_cut(&ordered, why, schedule);
            }
        }
        Ok(())
    }

    fn not_cut(&mut self, ordered: &Ordered, why: NotTruncated, schedule: &mut Schedule<Event>) {
        let answer = match why.of(&ordered.order) {
            LocalError::Export { .. } | LocalError::Storage { .. } => {
                Answer::Failed(Reason::DestinationStorage)
            }
            _ => Answer::CutRefused(Reason::DestinationNoLeader),
        };
        self.send(Channel::ToManager, Message::Answer(ordered.task, answer), schedule);
    }
}

fn export_of(exported: &Exported) -> Export {
    Export {
        broker: HERE,
        path: exported.path.to_string_lossy().as_ref().into(),
        from: exported.from,
        to: exported.to,
        records: exported.counts.records,
        bytes: exported.bytes,
    }
}

/// A copy of what was not cut after all; one that stays does no harm.
fn discard(exported: Option<Exported>) {
    if let Some(exported) = exported {
        drop(exported.discard());
    }
}

fn cut_by(cutting: &TruncationPlan) -> &'static str {
    use tarn_mirror::local_cluster::Truncate;
    use tarn_mirror::truncation::Ground;
    match (cutting.ground, cutting.truncate, cutting.reason) {
        (_, Truncate::Fully { .. }, _) => "cut of everything",
        (Ground::NoRecords, ..) => "cut of what held no records",
        (Ground::Configured, ..) => "cut of a few records, as configured",
        (Ground::Consent, _, Reason::LocalRecords) => "cut of local records, by consent",
        (Ground::Consent, ..) => "cut of what the source lost, by consent",
    }
}
