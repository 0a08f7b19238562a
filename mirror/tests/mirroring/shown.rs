//! What is shown of a mirror that is not well: what is wrong, for as long as it is, and never MIRRORING while nobody
//! fetches.

use std::time::Instant;

use tarn_mirror::manager::Standing;
use tarn_mirror::reasons::Reason;
use tarn_mirror::state::MirrorState;

use super::cluster::Cluster;
use super::source::Source;
use super::{Mirroring, caught_up, eventually, eventually_some, produce, written};

#[test]
fn mirroring_is_not_shown_while_lanes_die() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 1);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    let state = || mirror.standing(&cluster, "orders", 0).map(|now| now.state);
    eventually(|| state() == Some(MirrorState::Mirroring));
    cluster.state().lanes_die = true;
    eventually(|| state() != Some(MirrorState::Mirroring));
    let standing = mirror.standing(&cluster, "orders", 0).expect("it is mirrored");
    assert_eq!(standing.reason, Some(Reason::DestinationNoLeader));
    eventually(|| {
        assert_ne!(state(), Some(MirrorState::Mirroring), "nobody fetches it");
        cluster.state().lanes_died >= 4
    });
    cluster.state().lanes_die = false;
    produce(&source, "orders", 0, 1);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    let well = |now: &Standing| now.state == MirrorState::Mirroring && now.reason.is_none();
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(well));
}

#[test]
fn a_mirror_whose_configuration_cannot_be_used_says_so_until_it_is_changed() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 1);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    for (key, bad, good) in [("topics.include", "(", "orders"), ("fetch.max.bytes", "many", "1000000")] {
        cluster.configure(key, bad);
        let standing = eventually_some(|| {
            mirror.standing(&cluster, "orders", 0).filter(|now| now.state == MirrorState::Failed)
        });
        assert_eq!(standing.reason, Some(Reason::ConfigInvalid));
        assert!(standing.message.is_some_and(|said| said.contains(key)), "{key}");
        cluster.configure(key, good);
        produce(&source, "orders", 0, 1);
        eventually(|| caught_up(&source, &cluster, "orders", 1));
        let well = |now: &Standing| now.state == MirrorState::Mirroring && now.reason.is_none();
        eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(well));
    }
}

#[test]
fn a_source_that_is_away_is_shown_and_found_again_and_nothing_fails() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 1);
    let serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    drop(serving);
    let standing = eventually_some(|| {
        mirror.standing(&cluster, "orders", 0).filter(|now| now.reason == Some(Reason::SourceUnreachable))
    });
    assert_eq!(standing.state, MirrorState::Mirroring);
    assert!(standing.message.is_some_and(|message| !message.is_empty()));
    let before = standing.last_fetch_age_ms;
    produce(&source, "orders", 0, 2);
    let later = eventually_some(|| {
        mirror.standing(&cluster, "orders", 0).filter(|now| now.last_fetch_age_ms > before)
    });
    assert!(later.lag_ms > standing.lag_ms, "the lag grows while the source is away");
    let _serving = source.serve();
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    eventually(|| mirror.standing(&cluster, "orders", 0).is_some_and(|now| now.reason.is_none()));
    assert_eq!(written(&cluster, 0), [MirrorState::LogAlignment, MirrorState::Mirroring]);
}

#[test]
fn a_source_that_holds_fetches_back_by_its_quota_says_nothing_new_of_its_partitions() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 3);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    source.state().throttle_ms = 5;
    eventually(|| source.state().throttled > 0);
    let began = Instant::now();
    eventually(|| source.state().throttled > 20);
    let held_back_ms = began.elapsed().as_millis() as u64;
    let standing = mirror.standing(&cluster, "orders", 0).expect("it is mirrored");
    assert_eq!(standing.state, MirrorState::Mirroring);
    assert!(standing.last_fetch_age_ms.is_some_and(|age_ms| age_ms >= held_back_ms), "{standing:?}");
    assert_eq!(standing.reason, None, "so short a wait is not worth a word");
    source.state().throttle_ms = 1_000;
    let held_back = |now: &Standing| now.reason == Some(Reason::Throttled);
    let standing = eventually_some(|| mirror.standing(&cluster, "orders", 0).filter(held_back));
    assert_eq!(standing.state, MirrorState::Mirroring);
    source.state().throttle_ms = 0;
    produce(&source, "orders", 0, 1);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    eventually(|| mirror.standing(&cluster, "orders", 0).is_some_and(|now| now.reason.is_none()));
}

#[test]
fn a_source_that_is_silent_is_shown_as_such_whatever_it_was_asked_and_for_how_long_by_now() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 3);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    for is_restarted in [false, true] {
        source.state().is_silent = false;
        let mirror = Mirroring::begin(&cluster);
        eventually(|| caught_up(&source, &cluster, "orders", 1));
        eventually(|| {
            mirror.standing(&cluster, "orders", 0).is_some_and(|now| now.state == MirrorState::Mirroring)
        });
        source.state().is_silent = true;
        let mirror = match is_restarted {
            false => mirror,
            true => {
                drop(mirror);
                Mirroring::begin(&cluster)
            }
        };
        let silent = |now: &Standing| now.reason == Some(Reason::SourceUnreachable);
        let first = eventually_some(|| mirror.standing(&cluster, "orders", 0).filter(silent));
        let state = if is_restarted { MirrorState::LogAlignment } else { MirrorState::Mirroring };
        assert_eq!(first.state, state);
        assert!(
            first.message.as_ref().is_some_and(|said| said.contains("has not answered for")),
            "{first:?}"
        );
        let later = |now: &Standing| silent(now) && now.message != first.message;
        eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(later));
        source.state().is_silent = false;
        eventually(|| mirror.standing(&cluster, "orders", 0).is_some_and(|now| now.reason.is_none()));
    }
}
