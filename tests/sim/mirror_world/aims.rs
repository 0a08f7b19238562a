//! What some seeds do right after one kind of event, again and again: the machine stops, or an operator commands
//! something. And what they do while an append is late: the things after which it must not be taken any more.

use tarn_image::mirrors::Truncation;

use super::MirrorWorld;
use super::happenings::{Event, Verb};
use super::lane::{Fetched, OfLane};
use super::network::{Channel, Message};
use crate::simulation::{Schedule, Violation};

/// What brings a cut about, in seeds that aim at one, and how often.
const TO_CUT: &[(Event, u32)] = &[
    (Event::UncleanElection, 3),
    (Event::Command(Verb::Recover(Truncation::Allowed)), 6),
    (Event::Command(Verb::Start(Truncation::Allowed)), 6),
];

/// The same for a stop.
const TO_STOP: &[(Event, u32)] =
    &[(Event::Command(Verb::Stop), 4), (Event::Command(Verb::Start(Truncation::Allowed)), 6)];

/// Arrivals that are rare.
const OF_A_CUT: &[&str] = &["cut", "copy", "drop"];
const OF_A_STOP: &[&str] = &["flush", "raise", "end log", "complete"];

/// The arrivals after which some seeds crash, and what that is called.
const CRASHES: &[(&str, &str)] = &[
    ("gate", "crash after the gate"),
    ("flush", "crash after an order to flush"),
    ("flushed", "crash after a flush"),
    ("write", "crash after a write of a state"),
    ("states flushed", "crash after a state is flushed"),
    ("raise", "crash after the epoch is raised"),
    ("end log", "crash after the end of the log"),
    ("complete", "crash after a stop is completed"),
    ("answer", "crash after an answer"),
];
const CRASHES_IN_A_CUT: &[(&str, &str)] = &[
    ("cut", "crash after an order to cut"),
    ("copy", "crash after an export"),
    ("drop", "crash after a cut"),
];

/// The arrivals after which some seeds command something.
const COMMANDS: &[(&str, &str)] = &[
    ("gate", "command after the gate"),
    ("flush", "command after an order to flush"),
    ("states flushed", "command after a state is flushed"),
    ("end log", "command after the end of the log"),
    ("complete", "command after a stop is completed"),
];
const COMMANDS_IN_A_CUT: &[(&str, &str)] = &[
    ("cut", "command after an order to cut"),
    ("copy", "command after an export"),
    ("drop", "command after a cut"),
];

const VERBS: &[Verb] = &[
    Verb::Stop,
    Verb::Start(Truncation::Allowed),
    Verb::StartOther(Truncation::Allowed),
    Verb::Recover(Truncation::Refused),
    Verb::Recover(Truncation::Allowed),
    Verb::Pause,
    Verb::Resume,
    Verb::Delete,
];

/// What happens while an append is late.
const MEANWHILE: &[Meanwhile] = &[
    Meanwhile::Stop,
    Meanwhile::Recover,
    Meanwhile::UncleanElection,
    Meanwhile::LinkBreaks,
    Meanwhile::LedAnew,
];

/// How late an append is, where it is.
const LATE_MS: std::ops::Range<i64> = 20..500;

/// What a seed aims at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    after: &'static str,
    name: &'static str,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Crash,
    Command,
}

/// Something that voids what was fetched before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    Stop,
    Recover,
    UncleanElection,
    LinkBreaks,
    LedAnew,
}

impl Meanwhile {
    fn event(self) -> Event {
        match self {
            Meanwhile::Stop => Event::Command(Verb::Stop),
            Meanwhile::Recover => Event::Command(Verb::Recover(Truncation::Allowed)),
            Meanwhile::UncleanElection => Event::UncleanElection,
            Meanwhile::LinkBreaks => Event::LinkBreaks,
            Meanwhile::LedAnew => Event::LedAnew,
        }
    }
}

impl Aim {
    /// Half of the seeds aim.
    pub(super) fn draw(rng: &mut fastrand::Rng) -> Option<Aim> {
        if rng.bool() {
            return None;
        }
        let (aims, what) = [
            (CRASHES, What::Crash),
            (CRASHES_IN_A_CUT, What::Crash),
            (COMMANDS, What::Command),
            (COMMANDS_IN_A_CUT, What::Command),
        ][rng.usize(..4)];
        let (after, name) = aims[rng.usize(..aims.len())];
        Some(Aim { after, name, what })
    }

    /// What makes it more often that there is what it aims at.
    pub(super) fn brings_about(&self) -> &'static [(Event, u32)] {
        match self.after {
            after if OF_A_CUT.contains(&after) => TO_CUT,
            after if OF_A_STOP.contains(&after) => TO_STOP,
            _ => &[],
        }
    }

    /// In one of so many cases.
    fn one_in(&self) -> u8 {
        if self.brings_about().is_empty() { 4 } else { 2 }
    }

    /// The names of all there are.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        let all = [CRASHES, CRASHES_IN_A_CUT, COMMANDS, COMMANDS_IN_A_CUT];
        all.into_iter().flatten().map(|(_, name)| *name)
    }
}

impl MirrorWorld {
    /// Something of this kind has arrived.
    pub(super) fn aim_behind(
        &mut self,
        kind: &'static str,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let Some(aim) = self.aim.filter(|aim| aim.after == kind && !self.at_rest) else { return Ok(()) };
        if self.rng.u8(..aim.one_in()) > 0 {
            return Ok(());
        }
        schedule.tally(aim.name);
        match aim.what {
            What::Crash => self.crash(schedule),
            What::Command => {
                let again = [Verb::Recover(Truncation::Refused), Verb::Recover(Truncation::Allowed)];
                let is_of_a_cut = OF_A_CUT.contains(&aim.after);
                let verbs = if is_of_a_cut && self.rng.bool() { &again[..] } else { VERBS };
                let verb = verbs[self.rng.usize(..verbs.len())];
                self.command(verb, schedule)
            }
        }
    }

    /// The lane sends what it fetched to the owning core; in some seeds that takes long, and much happens meanwhile.
    pub(super) fn send_append(&mut self, number: u64, fetched: Fetched, schedule: &mut Schedule<Event>) {
        let brings_something = !fetched.batches.is_empty();
        let message = Message::OfLane(number, OfLane::Append(fetched));
        if self.at_rest || !self.delays_appends || !brings_something || self.rng.u8(..4) > 0 {
            return self.send(Channel::LaneToCore, message, schedule);
        }
        schedule.tally("append that is late");
        let late_ms = self.rng.i64(LATE_MS);
        self.send_later(late_ms, message, schedule);
        if self.rng.u8(..4) == 0 {
            let meanwhile = MEANWHILE[self.rng.usize(..MEANWHILE.len())];
            schedule.after_ms(self.rng.i64(0..20), Event::Meanwhile(meanwhile));
        }
    }

    pub(super) fn meanwhile(
        &mut self,
        meanwhile: Meanwhile,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        schedule.tally("something else while an append is late");
        self.happen(meanwhile.event(), schedule)
    }
}
