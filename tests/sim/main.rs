//! The simulator: production code under seeded histories, where everything fails that can fail.
//!
//! A seed is a history: it runs again the same way. `SEED` and `EVENTS` replay one, `FROM` and `SEEDS` say which
//! are tried. For each rule there is a variant with the rule left out, which the seeds must find.

#![allow(missing_docs, reason = "nothing here is a library")]

mod disk;
mod log_world;
mod mirror_world;
mod simulation;

use log_world::cleaning::{Broken as BrokenCleaning, CompactedWorld};
use log_world::{Broken, LogWorld};
use mirror_world::{Broken as BrokenMirror, MirrorWorld};
use simulation::{must_be_found, must_repeat, search};

/// What every world has to stand. A rule that is left out is found by fewer: about twice as many as it takes now, so that
/// a checker that becomes weaker is noticed.
const SEEDS: std::ops::Range<u64> = 0..10_000;
const EVENTS: u64 = 2000;

/// What finds most rules that are left out of a mirrored partition.
const FEW_EVENTS: u64 = 400;

#[test]
fn a_log_on_a_failing_disk() {
    search::<LogWorld>(SEEDS, EVENTS);
}

#[test]
#[ignore = "takes minutes"]
fn a_log_on_a_failing_disk_with_more_seeds() {
    search::<LogWorld>(10_000..40_000, EVENTS);
}

#[test]
fn a_seed_is_one_history() {
    must_repeat::<LogWorld>(0..20, EVENTS);
}

#[test]
fn a_flush_that_reaches_no_medium_is_found() {
    must_be_found::<LogWorld>(0..20, EVENTS, Broken::FlushSkipped, &["durability", "recovery"]);
}

#[test]
fn names_that_reach_no_medium_are_found() {
    let checkers = ["durability", "recovery", "read"];
    must_be_found::<LogWorld>(0..20, EVENTS, Broken::NamesNotSynced, &checkers);
}

#[test]
fn a_failed_flush_that_is_tried_again_is_found() {
    let checkers = ["durability", "recovery", "read"];
    must_be_found::<LogWorld>(0..40, EVENTS, Broken::FailedFlushRetried, &checkers);
}

#[test]
fn a_plan_used_after_a_truncation_is_found() {
    must_be_found::<LogWorld>(0..20, EVENTS, Broken::StalePlanAccepted, &["stale plan"]);
}

#[test]
fn a_recovery_point_above_what_was_flushed_is_found() {
    let checkers = ["durability", "recovery", "read", "epochs"];
    must_be_found::<LogWorld>(0..20, EVENTS, Broken::RecoveryPointAhead, &checkers);
}

#[test]
fn a_marker_trusted_before_it_is_replicated_is_found() {
    must_be_found::<LogWorld>(0..20, EVENTS, Broken::MarkerTrustedEarly, &["last stable offset"]);
}

#[test]
fn a_clean_shutdown_of_a_log_that_was_not_closed_is_found() {
    let checkers = ["durability", "recovery", "read", "epochs"];
    must_be_found::<LogWorld>(0..20, EVENTS, Broken::CleanMarkWithoutClose, &checkers);
}

#[test]
fn a_batch_appended_twice_is_found() {
    must_be_found::<LogWorld>(0..20, EVENTS, Broken::SequenceNotChecked, &["producers"]);
}

#[test]
fn retention_of_what_is_not_replicated_is_found() {
    must_be_found::<LogWorld>(0..20, EVENTS, Broken::RetentionUnbounded, &["retention"]);
}

#[test]
fn a_deletion_that_is_told_before_it_is_on_the_medium_is_found() {
    must_be_found::<LogWorld>(0..20, EVENTS, Broken::StartNotKept, &["durability"]);
}

#[test]
fn batches_that_a_crash_makes_forgotten_are_found() {
    must_be_found::<LogWorld>(0..20, EVENTS, Broken::EarlierBatchesForgotten, &["producers"]);
}

#[test]
fn a_compacted_log_on_a_failing_disk() {
    search::<CompactedWorld>(SEEDS, EVENTS);
}

#[test]
#[ignore = "takes minutes"]
fn a_compacted_log_on_a_failing_disk_with_more_seeds() {
    search::<CompactedWorld>(10_000..40_000, EVENTS);
}

#[test]
fn a_seed_of_a_compacted_log_is_one_history() {
    must_repeat::<CompactedWorld>(0..20, EVENTS);
}

#[test]
fn a_swap_of_what_is_not_on_the_medium_is_found() {
    let checkers = ["durability", "recovery", "read"];
    must_be_found::<CompactedWorld>(0..20, EVENTS, BrokenCleaning::SwapBeforeSync, &checkers);
}

#[test]
fn a_stale_swap_that_is_accepted_is_found() {
    let checkers = ["durability", "recovery", "read"];
    must_be_found::<CompactedWorld>(0..20, EVENTS, BrokenCleaning::StaleSwapAccepted, &checkers);
}

#[test]
fn a_tombstone_that_goes_too_early_is_found() {
    let checkers = ["durability", "read"];
    must_be_found::<CompactedWorld>(0..80, EVENTS, BrokenCleaning::HorizonIgnored, &checkers);
}

#[test]
fn a_compaction_of_what_may_be_taken_back_is_found() {
    let checkers = ["durability", "read"];
    must_be_found::<CompactedWorld>(0..640, EVENTS, BrokenCleaning::HighWatermarkIgnored, &checkers);
}

#[test]
fn a_mirrored_partition_that_is_stopped() {
    search::<MirrorWorld>(SEEDS, EVENTS);
}

#[test]
#[ignore = "takes minutes"]
fn a_mirrored_partition_that_is_stopped_with_more_seeds() {
    search::<MirrorWorld>(10_000..40_000, EVENTS);
}

#[test]
fn a_seed_of_a_mirrored_partition_is_one_history() {
    must_repeat::<MirrorWorld>(0..20, FEW_EVENTS);
}

#[test]
fn a_gate_that_was_not_closed_is_found() {
    // Who closes a gate knows of the binding that its topic has: without that, clients write on as before.
    must_be_found::<MirrorWorld>(0..160, FEW_EVENTS, BrokenMirror::GateNotClosed, &["gate", "writable"]);
}

#[test]
fn an_append_of_a_stale_generation_is_found() {
    let checkers = ["gate", "identity"];
    must_be_found::<MirrorWorld>(0..1280, EVENTS, BrokenMirror::StaleGenerationAccepted, &checkers);
}

#[test]
fn a_stop_of_an_older_version_that_is_believed_is_found() {
    must_be_found::<MirrorWorld>(0..20, EVENTS, BrokenMirror::OldStopBelieved, &["writable"]);
}

#[test]
fn a_stop_whose_flush_reaches_no_medium_is_found() {
    let checkers = ["durability", "recovery"];
    must_be_found::<MirrorWorld>(0..20, FEW_EVENTS, BrokenMirror::FlushSkipped, &checkers);
}

#[test]
fn a_position_that_is_written_again_is_found() {
    // The report names the stop's position; where that is not known yet it claims nothing of what is there.
    let checkers = ["position", "gate", "reported position"];
    must_be_found::<MirrorWorld>(0..40, FEW_EVENTS, BrokenMirror::PositionWrittenAgain, &checkers);
}

#[test]
fn a_marker_that_is_left_out_is_found() {
    // Where an earlier try has appended some of the markers, its report is compared first.
    must_be_found::<MirrorWorld>(0..160, FEW_EVENTS, BrokenMirror::MarkerLeftOut, &["end", "reported end"]);
}

#[test]
fn a_report_that_lacks_what_an_earlier_try_has_aborted_is_found() {
    must_be_found::<MirrorWorld>(0..80, FEW_EVENTS, BrokenMirror::AbortedForgotten, &["reported end"]);
}

#[test]
fn a_stop_that_is_written_before_the_log_is_ended_is_found() {
    must_be_found::<MirrorWorld>(0..20, FEW_EVENTS, BrokenMirror::StoppedBeforeEnd, &["stopped early"]);
}

#[test]
fn a_consent_that_was_not_asked_for_is_found() {
    must_be_found::<MirrorWorld>(0..40, FEW_EVENTS, BrokenMirror::ConsentNotAsked, &["consent"]);
}

#[test]
fn a_consent_that_is_used_for_as_long_as_its_version_lasts_is_found() {
    must_be_found::<MirrorWorld>(0..40, EVENTS, BrokenMirror::ConsentKept, &["consent"]);
}

#[test]
fn a_cut_of_what_is_not_exported_is_found() {
    must_be_found::<MirrorWorld>(0..80, FEW_EVENTS, BrokenMirror::ExportSkipped, &["export"]);
}

#[test]
fn a_cut_before_the_export_is_on_the_medium_is_found() {
    must_be_found::<MirrorWorld>(0..160, FEW_EVENTS, BrokenMirror::ExportNotSynced, &["export"]);
}

#[test]
fn a_cut_after_an_export_that_failed_is_found() {
    must_be_found::<MirrorWorld>(0..320, FEW_EVENTS, BrokenMirror::FailedExportIgnored, &["export"]);
}

#[test]
fn an_export_that_is_not_written_down_is_found() {
    // What lacks its notice is written again.
    let checkers = ["notice", "state writes"];
    must_be_found::<MirrorWorld>(0..80, FEW_EVENTS, BrokenMirror::NoticeForgotten, &checkers);
}

#[test]
fn a_common_point_that_is_too_high_is_found() {
    must_be_found::<MirrorWorld>(0..40, FEW_EVENTS, BrokenMirror::CommonPointTooHigh, &["identity"]);
}

#[test]
fn histories_that_are_not_compared_are_found() {
    must_be_found::<MirrorWorld>(0..20, FEW_EVENTS, BrokenMirror::NotCompared, &["identity"]);
}

#[test]
fn a_stop_that_waits_for_its_source_is_found() {
    must_be_found::<MirrorWorld>(0..20, FEW_EVENTS, BrokenMirror::StopWaitsForSource, &["waits", "rest"]);
}

#[test]
fn a_failure_without_a_reason_is_found() {
    must_be_found::<MirrorWorld>(0..40, FEW_EVENTS, BrokenMirror::ReasonForgotten, &["waits"]);
}

#[test]
fn a_report_that_forgets_what_the_source_had_is_found() {
    must_be_found::<MirrorWorld>(0..40, FEW_EVENTS, BrokenMirror::KnownForgotten, &["known of the source"]);
}

#[test]
fn a_state_that_is_not_known_and_taken_for_stopped_is_found() {
    must_be_found::<MirrorWorld>(0..20, FEW_EVENTS, BrokenMirror::UnknownTakenForStopped, &["writable"]);
}
