//! Producer states against a model that keeps everything and looks through it for each answer.

use bytes::Bytes;
use proptest::prelude::*;
use tarn_log::producers::{Check, Origin, ProducerStates};
use tarn_record::{
    Attributes, BatchHeader, ControlRecord, ControlType, Epoch, Offset, ProducerEpoch, ProducerId, Sequence,
};

#[derive(Clone, Debug)]
enum Step {
    /// A producer sends records; relative to what it should send.
    Send {
        id: i64,
        epoch_ahead: i16,
        sequence_ahead: i64,
        records: i32,
        transactional: bool,
    },
    /// It sends one of its newest batches again.
    SendAgain {
        id: i64,
        age: usize,
    },
    End {
        id: i64,
        epoch_ahead: i16,
        aborted: bool,
    },
    HighWatermark {
        behind: i64,
    },
    Reset,
    /// The process stops: only a snapshot survives.
    Restart,
}

/// All that is in the log.
#[derive(Clone, Copy, Debug)]
enum Event {
    Records { id: i64, epoch: i16, first: i64, last: i64, base: i64, transactional: bool },
    Marker { id: i64, epoch: i16, base: i64 },
    Reset,
}

/// What is said to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    New,
    Duplicate { base: i64, last: i64 },
    Refused(i16),
}

/// Sequences live on a ring of this size.
const RING: i64 = 1 << 31;

#[derive(Debug, Default)]
struct Model {
    events: Vec<Event>,
    end: i64,
    high_watermark: i64,
    /// Before this event only a producer's newest batch is remembered.
    restarted_at: usize,
}

impl Model {
    /// The events of a producer that count: those since the last reset.
    fn of(&self, id: i64) -> impl DoubleEndedIterator<Item = (usize, Event)> + '_ {
        let reset =
            self.events.iter().rposition(|event| matches!(event, Event::Reset)).map_or(0, |at| at + 1);
        self.events.iter().copied().enumerate().skip(reset).filter(move |(_, event)| match event {
            Event::Records { id: of, .. } | Event::Marker { id: of, .. } => *of == id,
            Event::Reset => false,
        })
    }

    fn epoch(&self, id: i64) -> Option<i16> {
        self.of(id).next_back().map(|(_, event)| match event {
            Event::Records { epoch, .. } | Event::Marker { epoch, .. } => epoch,
            Event::Reset => unreachable!("filtered out"),
        })
    }

    /// The batches of the current epoch, newest first, with the numbers of their events.
    fn batches(&self, id: i64) -> Vec<(usize, i64, i64, i64)> {
        let current = self.epoch(id);
        let mut batches = Vec::new();
        for (number, event) in self.of(id).rev() {
            match event {
                Event::Records { epoch, first, last, base, .. } if Some(epoch) == current => {
                    batches.push((number, first, last, base));
                }
                Event::Marker { epoch, .. } if Some(epoch) == current => {}
                _ => break,
            }
        }
        batches
    }

    fn transaction(&self, id: i64) -> Option<i64> {
        let mut open = None;
        for (_, event) in self.of(id) {
            match event {
                Event::Records { base, transactional: true, .. } => open = open.or(Some(base)),
                Event::Marker { .. } => open = None,
                _ => {}
            }
        }
        open
    }

    /// Completed transactions: first offset and marker. A reset does not undo that they were completed.
    fn completed(&self) -> Vec<(i64, i64)> {
        let mut open = std::collections::BTreeMap::new();
        let mut completed = Vec::new();
        for event in &self.events {
            match *event {
                Event::Records { id, base, transactional: true, .. } => {
                    open.entry(id).or_insert(base);
                }
                Event::Marker { id, base, .. } => {
                    completed.extend(open.remove(&id).map(|first| (first, base)))
                }
                Event::Reset => open.clear(),
                Event::Records { .. } => {}
            }
        }
        completed
    }

    fn expected(&self, sent: &BatchHeader) -> Answer {
        let id = sent.producer_id.0;
        let (first, last) = (i64::from(sent.base_sequence.0), i64::from(sent.last_sequence().0));
        let Some(epoch) = self.epoch(id) else { return Answer::New };
        let batches = self.batches(id);
        let before_restart = batches.iter().filter(|batch| batch.0 < self.restarted_at).count();
        let remembered = batches.len() - before_restart.saturating_sub(1);
        for &(_, known_first, known_last, base) in batches.iter().take(remembered.min(5)) {
            if (epoch, known_first, known_last) == (sent.producer_epoch.0, first, last) {
                return Answer::Duplicate { base, last: base + (last - first).rem_euclid(RING) };
            }
        }
        let follows = batches.first().filter(|_| sent.producer_epoch.0 == epoch);
        match follows.map_or(0, |batch| (batch.2 + 1) % RING) {
            _ if sent.producer_epoch.0 < epoch => Answer::Refused(47),
            next if first != next => Answer::Refused(45),
            _ if self.transaction(id).is_some() && !sent.is_transactional() => Answer::Refused(48),
            _ => Answer::New,
        }
    }

    fn first_unstable(&self) -> Option<i64> {
        let open = (1..=PRODUCERS).filter_map(|id| self.transaction(id));
        let waiting = self.completed().into_iter().filter(|(_, marker)| *marker >= self.high_watermark);
        open.chain(waiting.map(|(first, _)| first)).min()
    }
}

const PRODUCERS: i64 = 3;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn producer_states_answer_as_the_model_does(steps in prop::collection::vec(steps(), 1..60)) {
        let mut states = ProducerStates::default();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Send { id, epoch_ahead, sequence_ahead, records, transactional } => {
                    let epoch = (model.epoch(id).unwrap_or(0) + epoch_ahead).max(0);
                    let next = model.batches(id).first().map_or(RING - 7, |batch| batch.2 + 1);
                    let first = (next + sequence_ahead).rem_euclid(RING);
                    let first = if epoch_ahead == 1 && sequence_ahead == 0 { 0 } else { first };
                    let sent = header(id, epoch, first, records, model.end, transactional);
                    send(&mut states, &mut model, &sent)?;
                }
                Step::SendAgain { id, age } => {
                    let known = model.batches(id).get(age).copied();
                    if let (Some((_, first, last, _)), Some(epoch)) = (known, model.epoch(id)) {
                        let records = (last - first).rem_euclid(RING) as i32 + 1;
                        let sent = header(id, epoch, first, records, model.end, false);
                        send(&mut states, &mut model, &sent)?;
                    }
                }
                Step::End { id, epoch_ahead, aborted } => {
                    let epoch = model.epoch(id).unwrap_or(0) + epoch_ahead;
                    let began = model.transaction(id);
                    let batch = header(id, epoch, -1, 1, model.end, true);
                    let marker = BatchHeader { attributes: batch.attributes.control(), ..batch };
                    let control = if aborted { ControlType::Abort } else { ControlType::Commit };
                    let ended = states.update(&marker, Some(&record(control)));
                    prop_assert_eq!(ended.map(|ended| ended.first_offset.0), began);
                    model.events.push(Event::Marker { id, epoch, base: model.end });
                    model.end += 1;
                    if let Some(ended) = ended {
                        let open = (1..=PRODUCERS).filter_map(|id| model.transaction(id)).min();
                        prop_assert_eq!(ended.last_stable_offset.0, open.unwrap_or(model.end));
                    }
                }
                Step::HighWatermark { behind } => {
                    model.high_watermark = model.high_watermark.max(model.end - behind);
                    states.on_high_watermark(Offset(model.high_watermark));
                }
                Step::Reset => {
                    let batch = header(-1, -1, -1, 1, model.end, false);
                    let reset = BatchHeader { attributes: batch.attributes.control(), ..batch };
                    states.update(&reset, Some(&record(ControlType::MirrorPidReset)));
                    model.events.push(Event::Reset);
                    model.end += 1;
                }
                Step::Restart => {
                    states = ProducerStates::load(&states.snapshot()).expect("it was just written");
                    model.restarted_at = model.events.len();
                    model.high_watermark = model.end;
                }
            }
            prop_assert_eq!(states.first_unstable().map(|offset| offset.0), model.first_unstable());
            let open: Vec<_> = states.open_transactions().map(|open| open.first_offset.0).collect();
            let mut expected: Vec<_> = (1..=PRODUCERS).filter_map(|id| model.transaction(id)).collect();
            expected.sort_unstable();
            prop_assert_eq!(open, expected);
        }
    }
}

/// Checks a batch, and appends it where it is to be.
fn send(states: &mut ProducerStates, model: &mut Model, sent: &BatchHeader) -> Result<(), TestCaseError> {
    let found = match states.check(sent, Origin::Client) {
        Ok(Check::New) => Answer::New,
        Ok(Check::Duplicate { base_offset, last_offset, .. }) => {
            Answer::Duplicate { base: base_offset.0, last: last_offset.0 }
        }
        Err(error) => Answer::Refused(error.code()),
    };
    prop_assert_eq!(found, model.expected(sent), "{:?}", sent);
    if found == Answer::New {
        states.update(sent, None);
        model.events.push(Event::Records {
            id: sent.producer_id.0,
            epoch: sent.producer_epoch.0,
            first: i64::from(sent.base_sequence.0),
            last: i64::from(sent.last_sequence().0),
            base: sent.base_offset.0,
            transactional: sent.is_transactional(),
        });
        model.end = sent.next_offset().0;
    }
    Ok(())
}

fn steps() -> impl Strategy<Value = Step> {
    let id = 1..=PRODUCERS;
    prop_oneof![
        10 => (id.clone(), 1i32..5, any::<bool>()).prop_map(|(id, records, transactional)| Step::Send {
            id, epoch_ahead: 0, sequence_ahead: 0, records, transactional,
        }),
        3 => (id.clone(), -1i16..=1, -3i64..4, 1i32..5, any::<bool>()).prop_map(
            |(id, epoch_ahead, sequence_ahead, records, transactional)| Step::Send {
                id, epoch_ahead, sequence_ahead, records, transactional,
            }
        ),
        3 => (id.clone(), 0usize..7).prop_map(|(id, age)| Step::SendAgain { id, age }),
        4 => (id, 0i16..=1, any::<bool>()).prop_map(|(id, epoch_ahead, aborted)| Step::End {
            id, epoch_ahead, aborted,
        }),
        3 => (0i64..10).prop_map(|behind| Step::HighWatermark { behind }),
        1 => Just(Step::Reset),
        1 => Just(Step::Restart),
    ]
}

fn header(id: i64, epoch: i16, first: i64, records: i32, base: i64, transactional: bool) -> BatchHeader {
    let attributes = Attributes::default();
    BatchHeader {
        base_offset: Offset(base),
        length: 100,
        leader_epoch: Epoch(0),
        magic: 2,
        crc: 0,
        attributes: if transactional { attributes.transactional() } else { attributes },
        last_offset_delta: records - 1,
        base_timestamp: 0,
        max_timestamp: base + i64::from(records) - 1,
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        base_sequence: Sequence(first as i32),
        record_count: records,
    }
}

fn record(control_type: ControlType) -> ControlRecord {
    ControlRecord { control_type, coordinator_epoch: Some(0), value: Bytes::new() }
}
