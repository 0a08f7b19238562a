//! What the world compares where a log may have forgotten something, and how seldom that may be an excuse.

use crate::simulation::Demand;

/// What a log answers to a producer that sends a batch again.
pub(super) const AGAIN: Demand = Demand {
    demanded: "batch sent again that had to be recognised",
    excused: "batch sent again that the log may have forgotten",
    for_one_excused: 3,
    for_a_seed: 10,
};

/// What it answers to any other batch of one that numbers them.
pub(super) const ANSWERS: Demand = Demand {
    demanded: "answer to a producer that had to be so",
    excused: "answer to a producer that the log may have forgotten",
    for_one_excused: 30,
    for_a_seed: 200,
};

/// The aborted transactions in a range.
pub(super) const ABORTS: Demand = Demand {
    demanded: "aborted transaction that had to be told",
    excused: "aborted transaction that the log may have forgotten",
    for_one_excused: 12,
    for_a_seed: 150,
};

/// The last stable offset, after each event.
pub(super) const STABLE: Demand = Demand {
    demanded: "last stable offset that had to be so",
    excused: "last stable offset of a log that may have forgotten a transaction",
    for_one_excused: 25,
    for_a_seed: 1000,
};

/// The epoch of a batch.
pub(super) const EPOCHS: Demand = Demand {
    demanded: "epoch that had to be known",
    excused: "epoch that the log may have forgotten",
    for_one_excused: 12,
    for_a_seed: 2500,
};

pub(super) const ALL: &[Demand] = &[AGAIN, ANSWERS, ABORTS, STABLE, EPOCHS];
