//! The simulator: production code under seeded histories, where everything fails that can fail.
//!
//! A seed is a history: it runs again the same way. `SEED` and `EVENTS` replay one, `SEEDS` says how many
//! are tried. For each rule there is a variant with the rule left out, which the seeds must find.

#![allow(missing_docs, reason = "nothing here is a library")]

mod disk;
mod log_world;
mod mirror_world;
mod simulation;

use log_world::{Broken, LogWorld};
use mirror_world::{Broken as BrokenMirror, MirrorWorld};
use simulation::{must_be_found, must_repeat, search};

const EVENTS: u64 = 400;

#[test]
fn a_log_on_a_failing_disk() {
    search::<LogWorld>(0..2000, EVENTS);
}

#[test]
#[ignore = "takes minutes"]
fn a_log_on_a_failing_disk_with_more_seeds() {
    search::<LogWorld>(2000..10_000, EVENTS);
}

#[test]
fn a_seed_is_one_history() {
    must_repeat::<LogWorld>(0..20, EVENTS);
}

#[test]
fn a_flush_that_reaches_no_medium_is_found() {
    must_be_found::<LogWorld>(0..300, EVENTS, Broken::FlushSkipped, &["durability", "recovery"]);
}

#[test]
fn names_that_reach_no_medium_are_found() {
    let checkers = ["durability", "recovery", "read"];
    must_be_found::<LogWorld>(0..300, EVENTS, Broken::NamesNotSynced, &checkers);
}

#[test]
fn a_failed_flush_that_is_tried_again_is_found() {
    let checkers = ["durability", "recovery", "read"];
    must_be_found::<LogWorld>(0..600, EVENTS, Broken::FailedFlushRetried, &checkers);
}

#[test]
fn a_plan_used_after_a_truncation_is_found() {
    must_be_found::<LogWorld>(0..300, EVENTS, Broken::StalePlanAccepted, &["stale plan"]);
}

#[test]
fn a_recovery_point_above_what_was_flushed_is_found() {
    let checkers = ["durability", "recovery", "read", "epochs"];
    must_be_found::<LogWorld>(0..300, EVENTS, Broken::RecoveryPointAhead, &checkers);
}

#[test]
fn a_marker_trusted_before_it_is_replicated_is_found() {
    must_be_found::<LogWorld>(0..300, EVENTS, Broken::MarkerTrustedEarly, &["last stable offset"]);
}

#[test]
fn a_clean_shutdown_of_a_log_that_was_not_closed_is_found() {
    let checkers = ["durability", "recovery", "read", "epochs"];
    must_be_found::<LogWorld>(0..300, EVENTS, Broken::CleanMarkWithoutClose, &checkers);
}

#[test]
fn a_batch_appended_twice_is_found() {
    must_be_found::<LogWorld>(0..300, EVENTS, Broken::SequenceNotChecked, &["producers"]);
}

#[test]
fn a_mirrored_partition_that_is_stopped() {
    search::<MirrorWorld>(0..10_000, 2000);
}

#[test]
fn a_seed_of_a_mirrored_partition_is_one_history() {
    must_repeat::<MirrorWorld>(0..20, EVENTS);
}

#[test]
fn a_gate_that_was_not_closed_is_found() {
    // Who closes a gate knows of the binding that its topic has: without that, clients write on as before.
    must_be_found::<MirrorWorld>(0..2000, EVENTS, BrokenMirror::GateNotClosed, &["gate", "writable"]);
}

#[test]
fn an_append_of_a_stale_generation_is_found() {
    let checkers = ["gate", "identity"];
    must_be_found::<MirrorWorld>(0..2000, EVENTS, BrokenMirror::StaleGenerationAccepted, &checkers);
}

#[test]
fn a_stop_of_an_older_version_that_is_believed_is_found() {
    must_be_found::<MirrorWorld>(0..10_000, 2000, BrokenMirror::OldStopBelieved, &["writable"]);
}

#[test]
fn a_stop_whose_flush_reaches_no_medium_is_found() {
    let checkers = ["durability", "recovery"];
    must_be_found::<MirrorWorld>(0..300, EVENTS, BrokenMirror::FlushSkipped, &checkers);
}

#[test]
fn a_position_that_is_written_again_is_found() {
    must_be_found::<MirrorWorld>(0..600, EVENTS, BrokenMirror::PositionWrittenAgain, &["position"]);
}

#[test]
fn a_marker_that_is_left_out_is_found() {
    must_be_found::<MirrorWorld>(0..600, EVENTS, BrokenMirror::MarkerLeftOut, &["end"]);
}

#[test]
fn a_stop_that_is_written_before_the_log_is_ended_is_found() {
    must_be_found::<MirrorWorld>(0..300, EVENTS, BrokenMirror::StoppedBeforeEnd, &["stopped early"]);
}
