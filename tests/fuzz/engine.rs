//! The search for an input that a decoder cannot take.
//!
//! A target is a decoder with inputs that are good, what its answers may cost, and how an input becomes another one.
//! An input may be refused. It may not make the decoder panic, take more memory than its size allows, or go on for
//! ever. Inputs that a decoder says something new about are kept and changed further: on a stable compiler that is
//! what stands in for coverage. A seed and a count of inputs are always the same run.

use std::any::Any;
use std::collections::HashSet;
use std::fmt::{self, Debug, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::metering::{Taken, taken_by};
use crate::mutation::Mutator;

/// The most inputs that are changed further.
const KEPT_MAX: usize = 1000;

/// No input may take longer, in an unoptimised build on a machine that does other things too.
const DURATION_MAX: Duration = Duration::from_secs(2);

/// How often one that takes longer is tried before it is believed.
const TRIES: usize = 4;

/// A decoder under test.
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) seeds: Vec<Vec<u8>>,
    /// How many inputs are tried.
    pub(crate) inputs: u64,
    memory: Bound,
    steps: Bound,
    words: &'static [&'static [u8]],
    change: Change,
    repair: Change,
    decode: Box<Decode>,
}

/// Decodes an input, and uses what it got.
type Decode = dyn Fn(Bytes, &mut Steps) -> Says;

/// How an input becomes another one; also what makes its checksums right then, so that what is behind them is reached.
pub(crate) type Change = fn(&mut Vec<u8>, &mut Mutator, other: &[u8]);

/// What an input may cost, by its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) per_byte: usize,
    pub(crate) base: usize,
}

impl Bound {
    fn of(self, bytes: usize) -> usize {
        self.base + bytes * self.per_byte
    }
}

/// What a decoder said, as far as it differs from what it says of other inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Says(u64);

impl Says {
    /// The input is good, and has so many things in it.
    pub(crate) fn good(things: usize) -> Says {
        Says(u64::from(usize::BITS - things.leading_zeros()))
    }

    /// The input is refused, or is good in a way that can be shown; numbers make no difference.
    pub(crate) fn shown(what: &impl Debug) -> Says {
        let mut digest = Digest(0xcbf2_9ce4_8422_2325);
        // It never fails.
        let _ = write!(digest, "{what:?}");
        Says(digest.0)
    }

    /// The first and then the second.
    pub(crate) fn and(self, then: Says) -> Says {
        Says(self.0.rotate_left(7) ^ then.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// What a result comes to, of which a good one has `things` in it.
    pub(crate) fn result<T, E: Debug>(result: &Result<T, E>, things: impl Fn(&T) -> usize) -> Says {
        match result {
            Ok(good) => Says::good(things(good)),
            Err(error) => Says::shown(error),
        }
    }
}

struct Digest(u64);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes().filter(|byte| !byte.is_ascii_digit()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

/// How often a loop over what a decoder yields may go round.
pub(crate) struct Steps {
    allowed: usize,
    taken: usize,
}

impl Steps {
    /// Goes round once more.
    pub(crate) fn take(&mut self) {
        self.taken += 1;
        assert!(self.taken <= self.allowed, "{NO_END} within {} steps", self.allowed);
    }
}

const NO_END: &str = "it does not end";

/// What went wrong with which input.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) what: String,
    pub(crate) input: Vec<u8>,
    /// Which input of the run it was, from 1; 0 where it is not made by the run.
    pub(crate) number: u64,
}

/// What a search came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) inputs: u64,
    pub(crate) answers: usize,
    pub(crate) most: Taken,
    /// The most memory for a byte of input, of what exceeds the base.
    pub(crate) most_per_byte: usize,
    pub(crate) slowest: Duration,
}

impl Target {
    /// A decoder that takes no more than a small multiple of its input: 16 bytes for each, and 4 KiB.
    pub(crate) fn new(
        name: impl Into<String>,
        decode: impl Fn(Bytes, &mut Steps) -> Says + 'static,
    ) -> Target {
        Target {
            name: name.into(),
            seeds: Vec::new(),
            inputs: 10_000,
            memory: Bound { per_byte: 16, base: 4096 },
            steps: Bound { per_byte: 4, base: 100 },
            words: &[],
            change: |input, mutator, other| mutator.change(input, other),
            repair: |_, _, _| {},
            decode: Box::new(decode),
        }
    }

    pub(crate) fn seeds<B: Into<Vec<u8>>>(mut self, seeds: impl IntoIterator<Item = B>) -> Target {
        self.seeds.extend(seeds.into_iter().map(Into::into));
        self
    }

    pub(crate) fn inputs(self, inputs: u64) -> Target {
        Target { inputs, ..self }
    }

    pub(crate) fn memory(self, per_byte: usize, base: usize) -> Target {
        Target { memory: Bound { per_byte, base }, ..self }
    }

    pub(crate) fn steps(self, per_byte: usize, base: usize) -> Target {
        Target { steps: Bound { per_byte, base }, ..self }
    }

    pub(crate) fn words(self, words: &'static [&'static [u8]]) -> Target {
        Target { words, ..self }
    }

    /// Where changes of bytes alone would change nothing but how they are arranged.
    pub(crate) fn changed_by(self, change: Change) -> Target {
        Target { change, ..self }
    }

    pub(crate) fn repair(self, repair: Change) -> Target {
        Target { repair, ..self }
    }

    /// Tries `stored` inputs and the seeds as they are, then changed ones. `note` hears of each before it is tried.
    pub(crate) fn search(
        &self,
        stored: Vec<Vec<u8>>,
        seed: u64,
        inputs: u64,
        mut note: impl FnMut(u64, &[u8]),
    ) -> Result<Tally, Fault> {
        let (mut tally, mut known) = (Tally::default(), HashSet::new());
        // What is made once for the whole process, a table or a pattern, is no input's.
        let _ = self.decode_once(&[], &mut Tally::default());
        if let Some(first) = self.seeds.first() {
            let _ = self.decode_once(first, &mut Tally::default());
        }
        let mut kept: Vec<Vec<u8>> = stored.into_iter().chain(self.seeds.iter().cloned()).collect();
        for input in &kept {
            note(0, input);
            let said = self.try_one(input, &mut tally);
            known.insert(said.map_err(|what| Fault { what, input: input.clone(), number: 0 })?);
        }
        kept.push(Vec::new());
        let random = fastrand::Rng::with_seed(seed ^ Says::shown(&self.name).0);
        let mut mutator = Mutator { random, words: self.words };
        for number in 1..=inputs {
            let input = self.next_input(&kept, &mut mutator);
            note(number, &input);
            match self.try_one(&input, &mut tally) {
                Ok(said) if known.insert(said) && kept.len() < KEPT_MAX => kept.push(input),
                Ok(_) => {}
                Err(what) => return Err(Fault { what, input, number }),
            }
        }
        tally.answers = known.len();
        Ok(tally)
    }

    fn next_input(&self, kept: &[Vec<u8>], mutator: &mut Mutator) -> Vec<u8> {
        let [base, other] = [(); 2].map(|()| mutator.random.usize(..kept.len()));
        let mut input = kept[base].clone();
        (self.change)(&mut input, mutator, &kept[other]);
        (self.repair)(&mut input, mutator, &kept[other]);
        input
    }

    /// What the decoder says of one input, or what is wrong with the decoder.
    pub(crate) fn try_one(&self, input: &[u8], tally: &mut Tally) -> Result<Says, String> {
        let mut quickest = Duration::MAX;
        for _ in 0..TRIES {
            let began = Instant::now();
            let said = self.decode_once(input, tally)?;
            quickest = quickest.min(began.elapsed());
            if quickest <= DURATION_MAX {
                tally.slowest = tally.slowest.max(quickest);
                tally.inputs += 1;
                return Ok(said);
            }
        }
        Err(format!("it takes {quickest:?} for {} bytes", input.len()))
    }

    fn decode_once(&self, input: &[u8], tally: &mut Tally) -> Result<Says, String> {
        let mut steps = Steps { allowed: self.steps.of(input.len()), taken: 0 };
        let bytes = Bytes::copy_from_slice(input);
        let (said, taken) = taken_by(|| catch_unwind(AssertUnwindSafe(|| (self.decode)(bytes, &mut steps))));
        let said = said.map_err(|panic| match text_of(panic.as_ref()) {
            text if text.starts_with(NO_END) => text,
            text => format!("it panics: {text}"),
        })?;
        let (length, Taken { peak, largest }) = (input.len(), taken);
        let allowed = self.memory.of(length);
        if peak > allowed {
            return Err(format!(
                "it takes {peak} bytes of memory, {largest} at once, for {length} bytes; {allowed} are allowed"
            ));
        }
        tally.most.peak = tally.most.peak.max(peak);
        tally.most.largest = tally.most.largest.max(largest);
        let per_byte = peak.saturating_sub(self.memory.base).div_ceil(length.max(1));
        tally.most_per_byte = tally.most_per_byte.max(per_byte);
        Ok(said)
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
