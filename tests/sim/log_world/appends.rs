//! What is appended, and what the log must answer.

use tarn_log::{AppendError, Appended, Together};
use tarn_record::{Epoch, ProducerId, TimestampType, ValidBatch};

use super::batches::{self, Place, Sent, Stored};
use super::demands::{AGAIN, ANSWERS};
use super::producers::{Answer, KNOWN};
use super::{Broken, Event, LogWorld, now};
use crate::simulation::{Schedule, Violation};

/// Producers 1 to 4; the last two are transactional. 0 stands for one that is not idempotent.
const PRODUCERS: i64 = 4;

impl LogWorld {
    pub(super) fn append(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let sent = self.draw_sent();
        let place = self.place(schedule);
        let log_append_time = self.rng.u8(..8) == 0;
        let kind = if log_append_time { TimestampType::LogAppendTime } else { TimestampType::CreateTime };
        let prepared = batches::records(&mut self.rng, sent, place, kind);
        let right = self.oracle.producers.answers(&sent);
        let (epoch, now, end) = (Epoch(place.epoch), now(schedule), self.oracle.end);
        let appended = match self.broken {
            Broken::SequenceNotChecked => {
                self.log_mut().append_as_leader_raw(&prepared.stored.valid(), epoch, now)
            }
            _ => self.log_mut().append_as_leader(&prepared.client, epoch, kind, now),
        };
        let answer = match &appended {
            Ok(Appended { duplicate_of: Some((base, _)), .. }) => Answer::Duplicate { base: base.0 },
            Err(AppendError::Sequence(error)) => Answer::Refused { code: error.code() },
            // Also where the disk refuses it then.
            _ => Answer::New,
        };
        if !right.contains(&answer) {
            let known = self.open().log.producers().get(ProducerId(sent.id));
            let text =
                format!("to {sent:?} the log answers {answer:?}, right is {right:?}; it knows {known:?}");
            return Err(Violation::new("producers", text));
        }
        if sent.id >= 0 {
            let is_again = right.iter().any(|answer| matches!(answer, Answer::Duplicate { .. }));
            let demand = if is_again { AGAIN } else { ANSWERS };
            demand.count(right.len() == 1, schedule);
        }
        match (answer, appended) {
            (Answer::Duplicate { .. }, _) => schedule.tally("append recognised as sent again"),
            (Answer::Refused { .. }, _) => schedule.tally("append refused for its sequence"),
            (Answer::New, Ok(appended)) => {
                schedule.tally("append");
                self.count_roll(&appended, schedule);
                self.acknowledge(&appended, end, vec![prepared.stored])?;
            }
            (Answer::New, Err(error)) => self.append_failed(error, vec![prepared.stored], schedule)?,
        }
        Ok(())
    }

    pub(super) fn append_as_is(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let mut place = self.place(schedule);
        let mut stored = Vec::new();
        let mut producers = self.oracle.producers.clone();
        for _ in 0..self.rng.usize(1..5) {
            if self.rng.u8(..8) == 0 {
                place.base += self.rng.i64(1..20);
            }
            if self.rng.u8(..16) == 0 {
                place.epoch += 1;
            }
            let id = self.rng.i64(0..=PRODUCERS);
            let (epoch, sequence) = producers.next_of(id);
            let sent = self.sent(id, epoch, sequence, id > 2);
            let batch = match id > 2 && producers.has_open(id) && self.rng.u8(..3) == 0 {
                true => batches::marker(id, epoch, self.rng.bool(), place),
                false => batches::records(&mut self.rng, sent, place, TimestampType::CreateTime).stored,
            };
            producers.apply(&batch);
            place.base = batch.last + 1;
            stored.push(batch);
        }
        self.leader_epoch = self.leader_epoch.max(place.epoch);
        self.deliver(stored, schedule)
    }

    /// Another leader's batches arrive, sometimes with some before them that are here already.
    fn deliver(&mut self, stored: Vec<Stored>, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let again = self.oracle.readable(self.oracle.start, self.oracle.end);
        let again = &again[again.len() - again.len().min(self.rng.usize(..3))..];
        let known = again.len();
        let valid: Vec<ValidBatch> = again.iter().chain(&stored).map(Stored::valid).collect();
        let end = self.oracle.end;
        match self.log_mut().append_as_is(&valid, now(schedule)) {
            Ok(appended) => {
                schedule.tally("append as it is");
                self.count_roll(&appended, schedule);
                if appended.skipped != known {
                    let text = format!("{} batches were skipped instead of {known}", appended.skipped);
                    return Err(Violation::new("order", text));
                }
                self.acknowledge(&appended, end, stored)
            }
            Err(error) => self.append_failed(error, stored, schedule),
        }
    }

    pub(super) fn append_marker(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let id = self.rng.i64(3..=PRODUCERS);
        let (epoch, _) = self.oracle.producers.next_of(id);
        let bumped = if self.rng.u8(..4) == 0 { epoch.saturating_add(1) } else { epoch };
        let aborted = self.rng.bool();
        if self.oracle.producers.has_open(id) {
            schedule.tally(if aborted { "transaction aborted" } else { "transaction committed" });
        }
        let marker = batches::marker(id, bumped, aborted, self.place(schedule));
        self.append_control(marker, schedule)
    }

    /// A mirror ends the log: what is open is aborted, and the producers are forgotten.
    pub(super) fn append_reset(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        schedule.tally("producer state reset");
        let (mut place, mut stored) = (self.place(schedule), Vec::new());
        for id in (1..=PRODUCERS).filter(|&id| self.oracle.producers.has_open(id)) {
            let (epoch, _) = self.oracle.producers.next_of(id);
            schedule.tally("transaction aborted at the end of a mirror");
            stored.push(batches::marker(id, epoch, true, place));
            place.base += 1;
        }
        stored.push(batches::reset(place));
        let valid: Vec<ValidBatch> = stored.iter().map(Stored::valid).collect();
        let together = if self.rng.bool() { Together::Few } else { Together::Many };
        let end = self.oracle.end;
        match self.log_mut().append_own(&valid, together, now(schedule)) {
            Ok(appended) => {
                self.count_roll(&appended, schedule);
                self.acknowledge(&appended, end, stored)
            }
            Err(error) => self.append_failed(error, stored, schedule),
        }
    }

    fn append_control(&mut self, stored: Stored, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let (batch, end) = (stored.valid(), self.oracle.end);
        match self.log_mut().append_as_leader_raw(&batch, Epoch(stored.epoch), now(schedule)) {
            Ok(appended) => {
                self.count_roll(&appended, schedule);
                self.acknowledge(&appended, end, vec![stored])
            }
            Err(error) => self.append_failed(error, vec![stored], schedule),
        }
    }

    pub(super) fn become_leader(&mut self) -> Result<(), Violation> {
        self.leader_epoch += 1;
        let epoch = Epoch(self.leader_epoch);
        self.log_mut().begin_epoch(epoch).map_err(|error| Violation::new("epochs", error.to_string()))
    }

    /// What was acknowledged is part of the history.
    fn acknowledge(&mut self, appended: &Appended, end: i64, stored: Vec<Stored>) -> Result<(), Violation> {
        let bytes: usize = stored.iter().map(|batch| batch.bytes.len()).sum();
        let (first, last) = (stored[0].base, stored[stored.len() - 1].last);
        let expected = (first, last, bytes);
        let found = (appended.first.0, appended.last.0, appended.bytes);
        if found != expected {
            let text = format!("at the end {end} the log appended {found:?} instead of {expected:?}");
            return Err(Violation::new("order", text));
        }
        stored.into_iter().for_each(|batch| self.oracle.append(batch));
        Ok(())
    }

    /// Nothing is acknowledged, but for the batches that the log end says are there.
    fn append_failed(
        &mut self,
        error: AppendError,
        stored: Vec<Stored>,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let AppendError::Storage(cause) = &error else {
            return Err(Violation::new("order", format!("a good batch was refused: {error}")));
        };
        let (full, end) = (cause.is_full(), self.open().log.end().0);
        let (there, missing): (Vec<_>, Vec<_>) = stored.into_iter().partition(|batch| batch.last < end);
        there.into_iter().for_each(|batch| self.oracle.append(batch));
        self.oracle.append_failed(missing);
        if full {
            schedule.tally("append refused by a full disk");
            return Ok(());
        }
        self.disk_failed(schedule)
    }

    fn count_roll(&self, appended: &Appended, schedule: &mut Schedule<Event>) {
        if appended.rolled {
            schedule.tally("segment rolled");
        }
    }

    fn place(&self, schedule: &Schedule<Event>) -> Place {
        Place { base: self.oracle.end, epoch: self.leader_epoch, now_ms: schedule.now_ms() }
    }

    /// A producer's next batch; now and then one it sent before, or one that does not follow.
    fn draw_sent(&mut self) -> Sent {
        let id = self.rng.i64(0..=PRODUCERS);
        let (epoch, next) = self.oracle.producers.next_of(id);
        let (transactional, few) = (id > 2, self.rng.i32(1..9));
        match self.rng.u8(..12) {
            0..2 => {
                let earlier = self.oracle.producers.earlier_of(id, self.rng.usize(..KNOWN));
                let (first_sequence, records) = earlier.unwrap_or((next, 1));
                Sent { first_sequence, records, ..self.sent(id, epoch, next, transactional) }
            }
            2 => self.sent(id, epoch.saturating_add(1), 0, transactional),
            3 => self.sent(id, epoch, next.wrapping_add(few) & i32::MAX, transactional),
            4 => self.sent(id, (epoch - 1).max(0), next, transactional),
            5 => self.sent(id, epoch, next, !transactional),
            6 => self.sent(id, epoch.saturating_add(1), i32::MAX - few, transactional),
            _ => self.sent(id, epoch, next, transactional),
        }
    }

    fn sent(&mut self, id: i64, epoch: i16, first_sequence: i32, transactional: bool) -> Sent {
        let records = self.rng.i32(1..6);
        match id {
            0 => Sent { id: -1, epoch: -1, first_sequence: -1, records, transactional: false },
            _ => Sent { id, epoch, first_sequence, records, transactional },
        }
    }
}
