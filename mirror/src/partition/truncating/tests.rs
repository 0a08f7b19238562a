//! Logs that have diverged from the source's: failed, or truncated and compared again.

use super::super::tests::{
    POLICY, bound, diverged, divergence, ends, fetched, go_on, leader, partition, persisted, run, truncated,
};
use super::*;
use crate::local_cluster::Truncate;
use crate::partition::{Bound, Want};
use tarn_image::DesiredState;
use tarn_record::{Epoch, Offset};

#[test]
fn with_consent_a_log_that_has_diverged_is_truncated_behind_a_closed_gate_and_compared_again() {
    let mut partition = recovered(Truncation::Allowed);
    partition.compared(&diverged(), None);
    let Want::Truncate(plan) = partition.want(0) else { panic!("{:?}", partition.want(0)) };
    assert_eq!((plan.truncate, plan.export_from), (Truncate::To(Offset(5)), Some(Offset(5))));
    assert_eq!(partition.state(), MirrorState::LogAlignment, "it is FAILED no more");
    partition.begin(Want::Truncate(plan));
    partition.end();
    partition.truncated(&plan, &truncated(), 2);
    let mut written = Vec::new();
    let steps = ["Compare", "RaiseEpoch", "Wait", "WriteState", "OpenGate", "Fetch"];
    assert_eq!(
        run(&mut partition, &mut written),
        steps,
        "nothing is appended in the epoch in which it was cut"
    );
    assert_eq!(written, [MirrorState::Mirroring]);
    let (reason, said) = partition.notice().expect("it says what was cut");
    assert_eq!(reason, Reason::SourceTruncated);
    assert!(said.contains("offsets 5 to 9 (5 records)"), "{said}");
    assert!(said.ends_with("/exports/t-0 on node 1"), "{said}");
    assert_eq!((partition.trouble(), partition.retry_attempt()), (None, 0));
    // What is missing for good is told as well, and first.
    partition.missed(crate::gaps::Gap { first: Offset(5), next: Offset(9) });
    let (reason, both) = partition.notice().expect("it says both");
    assert_eq!(reason, Reason::SourceGap);
    assert!(both.starts_with("offsets 5 to 8 (4) were removed") && both.ends_with(&*said), "{both}");
}

#[test]
fn consent_is_used_once() {
    let mut partition = recovered(Truncation::Allowed);
    partition.compared(&diverged(), None);
    let Want::Truncate(plan) = partition.want(0) else { panic!("{:?}", partition.want(0)) };
    partition.truncated(&plan, &truncated(), 2);
    partition.compared(&diverged(), None);
    assert_eq!(partition.want(0), Want::WriteState(MirrorState::Failed));
    // Nor is it kept by an alignment that did not need it, in this life or the next.
    let mut partition = recovered(Truncation::Allowed);
    partition.compared(&go_on(), None);
    partition.source_seen(Some(leader(2, 6)));
    partition.compared(&diverged(), None);
    assert_eq!(partition.trouble().map(|(reason, _)| reason), Some(Reason::SourceTruncated));
    let mut restarted = Partition::new(Bound { truncation: Truncation::Allowed, ..bound() });
    restarted.gate_closed();
    restarted.state_read(persisted(MirrorState::Mirroring));
    restarted.source_seen(Some(leader(1, 5)));
    restarted.compared(&diverged(), None);
    assert_eq!(restarted.want(0), Want::WriteState(MirrorState::Failed));
}

#[test]
fn an_alignment_that_did_not_need_the_consent_of_its_version_is_written_down() {
    let mut partition = fetched();
    let consent = Bound { version: 2, truncation: Truncation::Allowed, ..partition.bound() };
    partition.rebound(consent);
    let mut written = Vec::new();
    let steps = ["LeaveLane", "CloseGate", "Compare", "WriteState", "OpenGate", "Fetch"];
    assert_eq!(run(&mut partition, &mut written), steps);
    assert_eq!(written, [MirrorState::Mirroring]);
}

#[test]
fn consent_that_another_version_had_is_none() {
    let mut partition = recovered(Truncation::Allowed);
    partition.rebound(Bound { version: 3, truncation: Truncation::Refused, ..partition.bound() });
    partition.gate_closed();
    partition.compared(&diverged(), None);
    assert_eq!(partition.want(0), Want::WriteState(MirrorState::Failed));
}

#[test]
fn an_export_that_fails_is_tried_again_and_nothing_else_is_done() {
    let mut partition = recovered(Truncation::Allowed);
    partition.compared(&diverged(), None);
    let want = partition.want(0);
    let mut now = 1000;
    for _ in 0..20 {
        partition.failed(Reason::DestinationStorage, "it cannot be written".into(), now, 0.5, &POLICY);
        assert_eq!(partition.state(), MirrorState::Failed);
        let Want::Wait(until) = partition.want(now) else { panic!("{:?}", partition.want(now)) };
        now = until;
        assert_eq!(partition.want(now), want);
    }
    assert_eq!(partition.trouble().map(|(reason, _)| reason), Some(Reason::DestinationStorage));
    // Then it can be written, and the source has nothing more.
    let Want::Truncate(plan) = want else { panic!("{want:?}") };
    partition.truncated(&plan, &truncated(), 2);
    run(&mut partition, &mut Vec::new());
    assert_eq!((partition.state(), partition.trouble()), (MirrorState::Mirroring, None));
    assert_eq!(partition.retry_attempt(), 0);
}

#[test]
fn a_cut_that_is_refused_is_decided_anew() {
    let mut partition = recovered(Truncation::Allowed);
    partition.compared(&diverged(), None);
    partition.truncation_refused();
    assert_eq!(partition.want(0), Want::CloseGate);
    partition.gate_closed();
    assert_eq!(partition.want(0), Want::Compare(leader(1, 5)));
}

#[test]
fn what_the_source_says_meanwhile_is_compared_first() {
    let mut partition = recovered(Truncation::Allowed);
    partition.compared(&diverged(), None);
    partition.source_seen(Some(leader(2, 6)));
    assert_eq!(partition.want(0), Want::Compare(leader(2, 6)));
}

#[test]
fn a_stop_wins_over_a_cut_and_a_cut_of_an_older_version_uses_up_nothing() {
    let mut partition = recovered(Truncation::Allowed);
    partition.compared(&diverged(), None);
    let Want::Truncate(plan) = partition.want(0) else { panic!("{:?}", partition.want(0)) };
    partition.begin(Want::Truncate(plan));
    let stop = Bound { desired: DesiredState::Stopping, version: 3, ..partition.bound() };
    partition.rebound(Bound { truncation: Truncation::Refused, ..stop });
    partition.end();
    partition.truncated(&plan, &truncated(), 2);
    assert_eq!(partition.want(0), Want::CloseGate);
    partition.gate_closed();
    assert_eq!(partition.want(0), Want::Flush);
    partition.rebound(Bound { desired: DesiredState::Mirroring, version: 4, ..partition.bound() });
    partition.rebound(Bound { version: 5, truncation: Truncation::Allowed, ..partition.bound() });
    partition.truncated(&plan, &truncated(), 4);
    partition.gate_closed();
    partition.compared(&diverged(), None);
    assert!(matches!(partition.want(0), Want::Truncate(_)), "{:?}", partition.want(0));
}

#[test]
fn a_few_records_are_given_up_where_that_is_configured_again_and_again_but_not_for_ever() {
    let mut partition = fetched();
    partition.source_seen(Some(leader(2, 6)));
    partition.left_lane();
    partition.gate_closed();
    for _ in 0..limits::TRUNCATIONS_IN_A_ROW_MAX {
        partition.compared(&diverged(), Some(5));
        let Want::Truncate(plan) = partition.want(0) else { panic!("{:?}", partition.want(0)) };
        assert_eq!((plan.ground, partition.state()), (Ground::Configured, MirrorState::UleRecovery));
        partition.truncated(&plan, &truncated(), 1);
    }
    partition.compared(&diverged(), Some(5));
    assert_eq!(partition.want(0), Want::WriteState(MirrorState::Failed));
    let mut others = fetched();
    others.source_seen(Some(leader(2, 6)));
    others.compared(&diverged(), Some(4));
    assert_eq!(others.trouble().map(|(reason, _)| reason), Some(Reason::SourceTruncated));
}

#[test]
fn a_cut_that_is_not_on_the_disk_is_known_and_flushed_before_anything_else() {
    let mut partition = recovered(Truncation::Allowed);
    partition.compared(&diverged(), None);
    let Want::Truncate(plan) = partition.want(0) else { panic!("{:?}", partition.want(0)) };
    partition.truncated(&plan, &LogTruncated { unflushed: Some("no room".into()), ..truncated() }, 2);
    let mut now = 1000;
    for _ in 0..3 {
        partition.failed(Reason::DestinationStorage, "no room".into(), now, 0.5, &POLICY);
        let Want::Wait(until) = partition.want(now) else { panic!("{:?}", partition.want(now)) };
        now = until;
        partition.source_seen(Some(leader(2, 6)));
        assert_eq!(partition.want(now), Want::Flush);
    }
    assert_eq!(partition.trouble().map(|(reason, _)| reason), Some(Reason::DestinationStorage));
    assert_eq!(partition.unreported(), truncated().export.as_ref());
    partition.flushed(&ends());
    assert_eq!(partition.want(now), Want::Compare(leader(2, 6)));
    assert_ne!(partition.trouble().map(|(reason, _)| reason), Some(Reason::DestinationStorage));
    partition.compared(&diverged(), None);
    assert_eq!(partition.want(now), Want::WriteState(MirrorState::Failed), "consent was used by the cut");
    // Whatever is ordered meanwhile; and what was flushed for it says nothing of where a later stop finds the log.
    partition.rebound(Bound { version: 3, truncation: Truncation::Allowed, ..partition.bound() });
    partition.gate_closed();
    partition.compared(&diverged(), None);
    partition.truncated(&plan, &LogTruncated { unflushed: Some("no room".into()), ..truncated() }, 3);
    partition.rebound(Bound { version: 4, ..partition.bound() });
    partition.gate_closed();
    assert_eq!(partition.want(now), Want::Flush);
    partition.flushed(&ends());
    assert_eq!((partition.want(now), partition.position()), (Want::Compare(leader(2, 6)), None));
}

#[test]
fn a_promoted_log_with_nothing_of_its_own_is_cut_unasked() {
    let mut partition = partition();
    partition.rebound(Bound { leader_epoch: Epoch(99), ..partition.bound() });
    partition.state_read(persisted(MirrorState::LogAlignment));
    partition.source_seen(Some(leader(1, 5)));
    partition.compared(&Alignment::LocalRecords(divergence(0)), None);
    let Want::Truncate(plan) = partition.want(0) else { panic!("{:?}", partition.want(0)) };
    assert_eq!((plan.ground, plan.export_from), (Ground::NoRecords, None));
    partition.truncated(&plan, &LogTruncated { export: None, ..truncated() }, 1);
    assert_eq!(
        run(&mut partition, &mut Vec::new()),
        ["Compare", "RaiseEpoch", "Wait", "WriteState", "OpenGate", "Fetch"]
    );
    assert_eq!(partition.notice(), None, "nothing is lost");
}

#[test]
fn what_was_exported_is_said_after_a_restart_and_until_the_binding_is_another() {
    let mut partition = partition();
    let said: Arc<str> = "offsets 5 to 9 are exported to /exports/t-0".into();
    let known = Persisted {
        reason: Some(Reason::LocalRecords),
        message: Some(said.clone()),
        ..persisted(MirrorState::Mirroring)
    };
    partition.state_read(known);
    assert_eq!(partition.notice(), Some((Reason::LocalRecords, said)));
    let mut written = Vec::new();
    run(&mut partition, &mut written);
    assert_eq!(written, [], "it is written down already");
    partition.rebound(Bound { version: 2, ..partition.bound() });
    assert_eq!(partition.notice(), None);
    run(&mut partition, &mut written);
    assert_eq!(written, [MirrorState::Mirroring], "nor is it said after the next restart");
}

#[test]
fn what_was_exported_is_reported_with_the_next_state_whatever_comes_between() {
    let truncated_under_consent = || {
        let mut partition = recovered(Truncation::Allowed);
        partition.compared(&diverged(), None);
        let Want::Truncate(plan) = partition.want(0) else { panic!("{:?}", partition.want(0)) };
        assert_eq!(partition.unreported(), None);
        partition.truncated(&plan, &truncated(), 2);
        partition
    };
    let mut partition = truncated_under_consent();
    assert_eq!(partition.unreported(), truncated().export.as_ref());
    partition.state_written(MirrorState::Mirroring, 5, 2);
    assert_eq!(partition.unreported(), None);
    // A stop comes before that.
    let mut partition = truncated_under_consent();
    let stop = Bound { desired: DesiredState::Stopping, version: 3, ..partition.bound() };
    partition.rebound(Bound { truncation: Truncation::Refused, ..stop });
    assert_eq!(partition.notice(), None);
    partition.state_unknown();
    assert_eq!(partition.unreported(), truncated().export.as_ref());
    partition.state_read(persisted(MirrorState::LogAlignment));
    partition.state_written(MirrorState::Stopping, 6, 3);
    assert_eq!(partition.unreported(), None);
}

#[test]
fn what_was_exported_before_is_news_where_nothing_that_was_written_since_names_it() {
    let noted = |version| NotedExport { version, export: truncated().export.expect("it was exported") };
    let found = |persisted: Persisted, version| {
        let mut partition = partition();
        partition.gate_closed();
        partition.state_read(persisted);
        partition.export_found(&noted(version));
        partition.unreported().is_some().then(|| partition.notice().map(|(reason, _)| reason))
    };
    let at = |state, version| Persisted { version, ..persisted(state) };
    let (local, lost) = (Some(Some(Reason::LocalRecords)), Some(Some(Reason::SourceTruncated)));
    assert_eq!(found(at(MirrorState::LogAlignment, 2), 2), local);
    assert_eq!(found(at(MirrorState::Mirroring, 1), 2), lost, "it was recovered, and that wrote no state");
    assert_eq!(found(at(MirrorState::Mirroring, 3), 2), None, "a later state has named it");
    let named = format!("5 records are exported to {} on node 1", noted(2).export.path);
    let named = Persisted { message: Some(named.as_str().into()), ..at(MirrorState::Mirroring, 2) };
    assert_eq!(found(named, 2), None, "so has this one");
    assert_eq!(found(Persisted::default(), 2), None, "it is of another mirror");
}

#[test]
fn consent_that_another_life_has_used_is_not_used_again() {
    let restarted = |noted: Option<i64>| {
        let mut partition = Partition::new(Bound { version: 2, truncation: Truncation::Allowed, ..bound() });
        partition.gate_closed();
        partition.state_read(persisted(MirrorState::LogAlignment));
        if let Some(version) = noted {
            let export = truncated().export.expect("it was exported");
            partition.export_found(&NotedExport { version, export });
        }
        partition.source_seen(Some(leader(1, 5)));
        partition.compared(&diverged(), None);
        partition.trouble().map(|(reason, _)| reason)
    };
    assert_eq!(restarted(Some(2)), Some(Reason::SourceTruncated), "what has parted since needs another");
    assert_eq!(restarted(Some(1)), None, "that was by another command");
    assert_eq!(restarted(None), None, "it was not carried out");
}

#[test]
fn a_truncation_that_is_given_up_may_have_been_made() {
    let mut partition = recovered(Truncation::Allowed);
    partition.compared(&diverged(), None);
    let plan = partition.want(0);
    assert!(matches!(plan, Want::Truncate(_)), "{plan:?}");
    partition.begin(plan);
    let led_in = partition.bound().leader_epoch;
    let stop = Bound { desired: DesiredState::Stopping, version: 3, ..partition.bound() };
    partition.rebound(Bound { truncation: Truncation::Refused, ..stop });
    assert!(partition.gives_up_step());
    partition.gate_closed();
    assert_eq!(partition.want(0), Want::ReadState, "and what is noted of an export with it");
    partition.state_read(Persisted { version: 1, ..persisted(MirrorState::Failed) });
    partition.flushed(&ends());
    partition.stopping_written(partition.position().expect("it is flushed"), None, 6, 3);
    let Want::RaiseEpoch(above) = partition.want(0) else { panic!("{:?}", partition.want(0)) };
    assert!(above >= led_in, "who reads it is made to look");
}

/// A partition that had failed and is recovered by version 2, with its gate closed, about to be compared.
fn recovered(truncation: Truncation) -> Partition {
    let mut partition = fetched();
    partition.left_lane();
    partition.gate_closed();
    partition.compared(&diverged(), None);
    partition.state_written(MirrorState::Failed, 4, 1);
    partition.rebound(Bound { version: 2, truncation, ..partition.bound() });
    partition.gate_closed();
    assert_eq!(partition.want(0), Want::Compare(leader(1, 5)));
    partition
}
