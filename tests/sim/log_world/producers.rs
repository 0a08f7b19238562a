//! The oracle for producers and transactions, written from Kafka's rules and not from the code.
//!
//! It plays the history batch by batch. What a log may have forgotten is not demanded, and nothing else is excused: to
//! each batch that is sent it says which answers are right.

use std::collections::BTreeMap;

use super::batches::{Meaning, Sent, Stored};
use super::doubts::{Doubt, Recalls};
use super::transactions::Began;

/// How many batches of a producer are recognised when sent again.
const REMEMBERED: usize = 5;

/// And how many are known here, to be sent again too late.
pub(crate) const KNOWN: usize = 7;

#[derive(Clone, Debug, Default)]
pub(crate) struct Producers {
    known: BTreeMap<i64, Known>,
    /// Completed transactions whose marker the high watermark has not passed, and where that is.
    unreplicated: Vec<(Began, i64)>,
}

/// What the log knows of one producer.
#[derive(Clone, Debug)]
struct Known {
    epoch: i16,
    /// The newest batches of this epoch.
    batches: Vec<Earlier>,
    /// How many of the newest the log cannot have forgotten.
    certain: usize,
    /// False where it may have forgotten what told the epoch and the sequence: the newest batch, or the marker that
    /// began the epoch.
    is_sure: bool,
    /// What a marker of this epoch, which came after that and tells the epoch alone, may have left the log with.
    marked: Marked,
    transaction: Option<Began>,
}

/// Whether a marker came after what tells the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Marked {
    No,
    /// The log may have forgotten it too.
    Perhaps,
    Yes,
}

/// A batch that a producer has sent.
#[derive(Clone, Copy, Debug)]
struct Earlier {
    first_sequence: i32,
    last_sequence: i32,
    base: i64,
    doubt: Doubt,
}

/// What the log may answer to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is appended.
    New,
    /// It is there.
    Duplicate {
        base: i64,
    },
    Refused {
        code: i16,
    },
}

const OUT_OF_ORDER: i16 = 45;
const STALE_EPOCH: i16 = 47;
const NOT_IN_TRANSACTION: i16 = 48;

impl Producers {
    /// What follows from a whole history, for a log that has learnt it anew.
    pub(crate) fn replayed(history: &[Stored], recalls: Recalls, high_watermark: i64) -> Producers {
        let mut producers = Producers::default();
        history.iter().for_each(|batch| producers.apply(batch));
        producers.known.values_mut().for_each(|known| known.certain = known.recalled(recalls));
        producers.on_high_watermark(high_watermark);
        producers
    }

    pub(crate) fn apply(&mut self, batch: &Stored) {
        match batch.meaning {
            Meaning::Records(sent) if sent.id < 0 => {}
            Meaning::Records(sent) => self.apply_records(batch, sent),
            Meaning::Marker { id, epoch, .. } => {
                let known = self.at_epoch(id, epoch, batch.doubt);
                let marked = if batch.doubt.producer { Marked::Perhaps } else { Marked::Yes };
                known.marked = known.marked.max(marked);
                if let Some(began) = known.transaction.take() {
                    self.unreplicated.push((began, batch.base));
                }
            }
            Meaning::Reset => self.known.clear(),
        }
    }

    fn apply_records(&mut self, batch: &Stored, sent: Sent) {
        let known = self.at_epoch(sent.id, sent.epoch, batch.doubt);
        if !known.is_sure {
            known.certain = 0;
        }
        (known.is_sure, known.marked) = (!batch.doubt.producer, Marked::No);
        if known.batches.len() == KNOWN {
            known.batches.remove(0);
        }
        known.batches.push(Earlier {
            first_sequence: sent.first_sequence,
            last_sequence: sent.last_sequence(),
            base: batch.base,
            doubt: batch.doubt,
        });
        known.certain = REMEMBERED.min(known.certain + 1);
        match &mut known.transaction {
            _ if !sent.transactional => {}
            Some(began) => began.go_on(batch),
            none => *none = Some(Began::with(batch)),
        }
    }

    fn at_epoch(&mut self, id: i64, epoch: i16, doubt: Doubt) -> &mut Known {
        let begun = Known {
            epoch,
            batches: Vec::new(),
            certain: 0,
            is_sure: !doubt.producer,
            marked: Marked::No,
            transaction: None,
        };
        let known = self.known.entry(id).or_insert_with(|| begun.clone());
        if known.epoch != epoch {
            *known = Known { transaction: known.transaction.take(), ..begun };
        }
        known
    }

    pub(crate) fn on_high_watermark(&mut self, high_watermark: i64) {
        self.unreplicated.retain(|(_, marker)| *marker >= high_watermark);
    }

    /// The last stable offset of a log that starts at `start`.
    pub(crate) fn last_stable(&self, high_watermark: i64, start: i64) -> i64 {
        stable(self.undecided().map(Began::first).min(), high_watermark, start)
    }

    /// The highest that the log may tell, where it has forgotten what it may have.
    pub(crate) fn last_stable_max(&self, high_watermark: i64, start: i64) -> i64 {
        stable(self.undecided().filter_map(Began::highest).min(), high_watermark, start)
    }

    fn undecided(&self) -> impl Iterator<Item = &Began> {
        let open = self.known.values().filter_map(|known| known.transaction.as_ref());
        open.chain(self.unreplicated.iter().map(|(began, _)| began))
    }

    /// What the log may answer to a client's batch.
    pub(crate) fn answers(&self, sent: &Sent) -> Vec<Answer> {
        self.known.get(&sent.id).map_or_else(|| vec![Answer::New], |known| known.answers(sent))
    }

    /// The epoch and the next sequence of a producer that goes on as it should.
    pub(crate) fn next_of(&self, id: i64) -> (i16, i32) {
        let Some(known) = self.known.get(&id) else { return (0, 0) };
        let next = |earlier: &Earlier| earlier.last_sequence.checked_add(1).unwrap_or(0);
        (known.epoch, known.batches.last().map_or(0, next))
    }

    /// One of the newest batches of a producer: its first sequence and its length.
    pub(crate) fn earlier_of(&self, id: i64, age: usize) -> Option<(i32, i32)> {
        let known = self.known.get(&id)?;
        let &Earlier { first_sequence: first, last_sequence: last, .. } =
            known.batches.iter().rev().nth(age)?;
        Some((first, ((i64::from(last) - i64::from(first)).rem_euclid(1 << 31) + 1) as i32))
    }

    /// True where a log with this history may have these open transactions, by producer, and no others.
    pub(crate) fn may_have_open(&self, found: &BTreeMap<i64, i64>) -> bool {
        let open = |id| self.known.get(id).and_then(|known: &Known| known.transaction.as_ref());
        let are_possible =
            found.iter().all(|(id, first)| open(id).is_some_and(|began| began.may_be_at(*first)));
        let is_there = |id, began: &Began| began.may_be_forgotten() || found.contains_key(id);
        let known = self.known.iter().filter_map(|(id, known)| Some((id, known.transaction.as_ref()?)));
        are_possible && known.into_iter().all(|(id, began)| is_there(id, began))
    }

    pub(crate) fn has_open(&self, id: i64) -> bool {
        self.known.get(&id).is_some_and(|known| known.transaction.is_some())
    }
}

impl Known {
    /// How many of the newest batches a log recalls that has learnt them anew.
    fn recalled(&self, recalls: Recalls) -> usize {
        let most = match recalls {
            Recalls::Last => 1,
            Recalls::LookedAt => REMEMBERED,
        };
        self.batches.iter().rev().take(most).take_while(|earlier| !earlier.doubt.producer).count()
    }

    fn answers(&self, sent: &Sent) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(2);
        if let Some(age) = self.newest().position(|earlier| self.is_again(earlier, sent)) {
            answers.extend(self.newest().nth(age).map(|earlier| Answer::Duplicate { base: earlier.base }));
            if age < self.certain {
                return answers;
            }
        }
        let newest = self.batches.last();
        let mut may = |answer| {
            if !answers.contains(&answer) {
                answers.push(answer);
            }
        };
        may(self.answer_after(newest, self.transaction.is_some(), sent));
        if self.transaction.as_ref().is_some_and(Began::may_be_forgotten) {
            may(self.answer_after(newest, false, sent));
        }
        if !self.is_sure && self.marked != Marked::No {
            may(self.answer_after(None, false, sent));
        }
        if !self.is_sure && self.marked != Marked::Yes {
            may(Answer::New);
        }
        if newest.is_some_and(|earlier| earlier.doubt.presence) {
            // The log may end with any of those before.
            let codes = [OUT_OF_ORDER, STALE_EPOCH, NOT_IN_TRANSACTION];
            codes.into_iter().for_each(|code| may(Answer::Refused { code }));
            may(Answer::New);
        }
        answers
    }

    /// What a log answers that recalls no batch with these sequences, and of all of this epoch knows the newest.
    fn answer_after(&self, newest: Option<&Earlier>, in_transaction: bool, sent: &Sent) -> Answer {
        if sent.epoch < self.epoch {
            return Answer::Refused { code: STALE_EPOCH };
        }
        let expected = match newest {
            Some(earlier) if sent.epoch == self.epoch => earlier.last_sequence.checked_add(1).unwrap_or(0),
            _ => 0,
        };
        if sent.first_sequence != expected {
            return Answer::Refused { code: OUT_OF_ORDER };
        }
        match in_transaction && !sent.transactional {
            true => Answer::Refused { code: NOT_IN_TRANSACTION },
            false => Answer::New,
        }
    }

    /// Those that may be recognised, the newest first.
    fn newest(&self) -> impl Iterator<Item = &Earlier> {
        self.batches.iter().rev().take(REMEMBERED)
    }

    fn is_again(&self, earlier: &Earlier, sent: &Sent) -> bool {
        let known = (self.epoch, earlier.first_sequence, earlier.last_sequence);
        known == (sent.epoch, sent.first_sequence, sent.last_sequence())
    }
}

fn stable(first_undecided: Option<i64>, high_watermark: i64, start: i64) -> i64 {
    first_undecided.map_or(high_watermark, |first| first.max(start).min(high_watermark))
}

#[cfg(test)]
mod tests {
    use super::super::batches::tests::in_transaction;
    use super::*;

    /// Producer 3 has sent seven batches, of which the first so many are in doubt.
    fn producers(doubted: usize, recalls: Recalls) -> Producers {
        let mut history: Vec<Stored> = (0..7).map(|base| in_transaction(3, base)).collect();
        let doubt = Doubt { producer: true, ..Doubt::default() };
        history[..doubted].iter_mut().for_each(|batch| batch.doubt = doubt);
        Producers::replayed(&history, recalls, 7)
    }

    fn again(base: i64) -> Sent {
        let Meaning::Records(sent) = in_transaction(3, base).meaning else { unreachable!("it has records") };
        sent
    }

    #[test]
    fn the_last_five_that_were_looked_at_are_recognised() {
        let answers = |doubted, base| producers(doubted, Recalls::LookedAt).answers(&again(base));
        let refused = Answer::Refused { code: OUT_OF_ORDER };
        assert_eq!(answers(0, 2), [Answer::Duplicate { base: 2 }]);
        assert_eq!(answers(0, 1), [refused]);
        assert_eq!(answers(3, 3), [Answer::Duplicate { base: 3 }]);
        assert_eq!(answers(3, 2), [Answer::Duplicate { base: 2 }, refused]);
        assert_eq!(answers(7, 6), [Answer::Duplicate { base: 6 }, refused, Answer::New]);
    }

    #[test]
    fn a_snapshot_has_the_last_one() {
        let answers = |base| producers(0, Recalls::Last).answers(&again(base));
        assert_eq!(answers(6), [Answer::Duplicate { base: 6 }]);
        assert_eq!(answers(5), [Answer::Duplicate { base: 5 }, Answer::Refused { code: OUT_OF_ORDER }]);
    }
}
