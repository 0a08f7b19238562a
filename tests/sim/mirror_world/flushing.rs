//! Flushes of the log here, one at a time, and who waits for them.

use tarn_mirror::local_cluster::{LogEnded, LogTruncated};
use tarn_mirror::reasons::Reason;
use tarn_mirror::truncation::TruncationPlan;

use super::MirrorWorld;
use super::happenings::Event;
use super::manager::{Answer, Task};
use super::network::{Channel, Message};
use super::owning_core::Flushing;
use crate::simulation::Schedule;

/// Who waits for a flush of the log; some answers will be lost.
#[derive(Debug)]
pub(super) enum FlushedFor {
    Flush(Task, bool),
    End(Task, bool, LogEnded),
    Cut(Task, LogTruncated, TruncationPlan, i64),
    Client,
}

impl MirrorWorld {
    /// Has the log flushed; one flush is under way at a time.
    pub(super) fn flush_for(&mut self, waiting: FlushedFor, schedule: &mut Schedule<Event>) {
        self.wait_for_flush.push(waiting);
        if !self.flushing {
            self.begin_flush(schedule);
        }
    }

    fn begin_flush(&mut self, schedule: &mut Schedule<Event>) {
        self.flushing = true;
        let (flushing, waiting) = (self.core.begin_flush(), std::mem::take(&mut self.wait_for_flush));
        self.send(Channel::Disk, Message::Flushed(flushing, waiting), schedule);
    }

    pub(super) fn flushed(
        &mut self,
        flushing: Flushing,
        waiting: Vec<FlushedFor>,
        schedule: &mut Schedule<Event>,
    ) {
        let result = self.core.end_flush(flushing);
        schedule.tally(if result.is_ok() { "flush" } else { "flush that failed" });
        for waiting in waiting {
            let storage = Answer::Failed(Reason::DestinationStorage);
            let (task, loses, answer) = match (waiting, &result) {
                (FlushedFor::Client, _) => continue,
                (FlushedFor::Flush(task, loses), Ok(ends)) => (task, loses, Answer::Flushed(*ends)),
                (FlushedFor::End(task, loses, ended), Ok(_)) => {
                    match self.core.replica.has_durable_end(&ended) {
                        true => (task, loses, Answer::Ended(ended)),
                        false => (task, loses, Answer::EndRefused(Reason::DestinationNoLeader)),
                    }
                }
                (FlushedFor::Cut(task, done, cutting, version), Ok(_)) => {
                    (task, false, Answer::Cut(cutting, done, version))
                }
                (FlushedFor::Cut(task, ..), Err(_)) => (task, false, storage.clone()),
                (FlushedFor::Flush(task, loses) | FlushedFor::End(task, loses, _), Err(_)) => {
                    (task, loses, storage.clone())
                }
            };
            if loses {
                schedule.tally("answer lost");
            }
            let answer = if loses { storage } else { answer };
            self.send(Channel::ToManager, Message::Answer(task, answer), schedule);
        }
        self.flushing = false;
        if !self.wait_for_flush.is_empty() {
            self.begin_flush(schedule);
        }
    }
}
