//! The manager and its lanes, whole: a source behind a socket, a destination in memory.

#[path = "mirroring/cluster.rs"]
mod cluster;
#[path = "mirroring/controller.rs"]
mod controller;
#[path = "mirroring/cut_link.rs"]
mod cut_link;
#[path = "mirroring/damaged.rs"]
mod damaged;
#[path = "mirroring/discovery.rs"]
mod discovery;
#[path = "mirroring/diverged.rs"]
mod diverged;
#[path = "mirroring/existing.rs"]
mod existing;
#[path = "mirroring/lane_identity.rs"]
mod lane_identity;
#[path = "mirroring/log.rs"]
mod log;
#[path = "mirroring/restored.rs"]
mod restored;
#[path = "mirroring/shown.rs"]
mod shown;
#[path = "mirroring/source.rs"]
mod source;
#[path = "mirroring/stopping.rs"]
mod stopping;
#[path = "mirroring/untold.rs"]
mod untold;

use std::time::{Duration, Instant};

use cluster::{COORDINATORS, Cluster};
use futures_lite::future;
use source::{Serving, Source};
use tarn_image::config::mirror::{MirrorConfig, Patterns, stored};
use tarn_image::config::server::MirrorNodeConfig;
use tarn_mirror::coordinator::coordinator_partition;
use tarn_mirror::manager::{CoreTask, Manager, ManagerHandle, MirrorCores, Standing};
use tarn_mirror::reasons::Reason;
use tarn_mirror::source::{Resolved, SourceError, cluster_id, resolve};
use tarn_mirror::state::MirrorState;
use tarn_record::{PartitionIndex, TopicIdPartition, ValidBatch};
use tarn_runtime::{CoreHandle, CoreSpec, Queue, sleep, spawn, spawn_core};
use tarn_wire::ErrorCode;

#[test]
fn a_topic_that_the_patterns_find_is_copied_byte_for_byte() {
    let source = Source::new("source");
    source.topic("orders", 2, 5);
    source.topic("other", 1, 0);
    produce(&source, "orders", 0, 10);
    produce(&source, "orders", 1, 3);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 2));
    for index in 0..2 {
        let standing =
            eventually_some(|| mirror.standing(&cluster, "orders", index).filter(|now| now.lag_ms.is_some()));
        assert_eq!((standing.state, standing.reason), (MirrorState::Mirroring, None));
    }
    let partition = cluster.partition("orders", 0).expect("it was begun");
    assert!(cluster.leader_epoch(partition) > 5, "the epoch was raised before the first append");
    assert_eq!(written(&cluster, 0), [MirrorState::LogAlignment, MirrorState::Mirroring]);
    assert_eq!(cluster.partition("other", 0), None);
    assert_eq!(cluster.state().begun_with["orders"], [("retention.ms".to_owned(), "77000".to_owned())]);
    produce(&source, "orders", 1, 7);
    eventually(|| caught_up(&source, &cluster, "orders", 2));
}

#[test]
fn a_restart_goes_on_where_it_was_and_writes_no_state() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 20);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let first = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    drop(first);
    let (states, end) = (written(&cluster, 0), source.log("orders", 0, |log| log.end()));
    source.state().fetched_from.clear();
    produce(&source, "orders", 0, 1);
    let _second = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(written(&cluster, 0), states);
    let fetched_from = source.state().fetched_from.clone();
    assert_eq!(fetched_from.iter().min(), Some(&end), "only what was missing is fetched");
    assert_eq!(source.state().compared_at, [end - 1], "and the newest batch again, to compare it");
}

#[test]
fn a_disk_that_stays_full_is_tried_again_until_it_has_room() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let node = MirrorNodeConfig {
        retry_initial_backoff_ms: 20,
        retry_max_backoff_ms: 80,
        retry_max_attempts: 3,
        ..node()
    };
    let mirror = Mirroring::with(&cluster, &node);
    eventually(|| {
        mirror.standing(&cluster, "orders", 0).is_some_and(|now| now.state == MirrorState::Mirroring)
    });
    cluster.state().disk_is_full = true;
    produce(&source, "orders", 0, 1);
    // Many more attempts than a failure that needs an operator gets.
    eventually(|| {
        let standing = mirror.standing(&cluster, "orders", 0).expect("it is mirrored");
        assert_ne!(standing.retry_attempt, -1, "{standing:?}");
        cluster.state().refused > 8
    });
    let standing = mirror.standing(&cluster, "orders", 0).expect("it is mirrored");
    assert_eq!((standing.state, standing.reason), (MirrorState::Failed, Some(Reason::DestinationStorage)));
    cluster.state().disk_is_full = false;
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    eventually(|| mirror.standing(&cluster, "orders", 0).is_some_and(|now| now.reason.is_none()));
}

#[test]
fn a_partition_whose_appends_fail_is_not_said_to_mirror_while_it_is_tried_again() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 2);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let node = MirrorNodeConfig { retry_initial_backoff_ms: 10, retry_max_backoff_ms: 40, ..node() };
    let mirror = Mirroring::with(&cluster, &node);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    cluster.state().disk_is_full = true;
    produce(&source, "orders", 0, 1);
    eventually(|| {
        let shown = cluster.state().refused;
        let standing = mirror.standing(&cluster, "orders", 0).expect("it is mirrored");
        assert!(shown < 2 || standing.state == MirrorState::Failed, "{standing:?}");
        shown >= 5
    });
    let shown = cluster.state().shown_when_refused.clone();
    assert!(shown[1..].iter().all(|state| *state == MirrorState::Failed), "{shown:?}");
    cluster.state().disk_is_full = false;
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    let well = |now: &Standing| now.state == MirrorState::Mirroring && now.reason.is_none();
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(well));
}

#[test]
fn a_source_that_refuses_every_fetch_says_so_and_its_partitions_do_not_look_fresh() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 3);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    cluster.configure("fetch.backoff.ms", "10");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    source.state().refuses_sessions = Some(ErrorCode::CLUSTER_AUTHORIZATION_FAILED);
    let refused = |now: &Standing| now.reason == Some(Reason::SourceAuthorizationFailed);
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(refused));
    let began = Instant::now();
    source.state().fetched_from.clear();
    eventually(|| source.state().fetched_from.len() >= 20);
    let refused_ms = began.elapsed().as_millis() as u64;
    let standing = mirror.standing(&cluster, "orders", 0).expect("it is mirrored");
    assert!(refused(&standing) && standing.last_fetch_age_ms >= Some(refused_ms), "{standing:?}");
    source.state().refuses_sessions = None;
    produce(&source, "orders", 0, 1);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    eventually(|| mirror.standing(&cluster, "orders", 0).is_some_and(|now| now.reason.is_none()));
}

#[test]
fn a_source_that_is_another_cluster_for_a_while_is_looked_for_and_found_again() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 5);
    let serving = source.serve();
    let port = source.state().port;
    let cluster = Cluster::new(port, "orders");
    cluster.configure("source.cluster.id", "source");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    drop(serving);
    let other = Source::new("other");
    other.topic("orders", 1, 0);
    produce(&other, "orders", 0, 1);
    other.state().port = port;
    let serving = other.serve();
    // It is tried again and again, and says so.
    let standing =
        eventually_some(|| mirror.standing(&cluster, "orders", 0).filter(|now| now.retry_attempt >= 3));
    assert_eq!((standing.state, standing.reason), (MirrorState::Failed, Some(Reason::SourceClusterChanged)));
    assert!(standing.message.is_some_and(|said| said.contains("other") && said.contains("source")));
    assert!(mirror.handle.metrics().retries.of(Reason::SourceClusterChanged).get() >= 1);
    drop(serving);
    assert!(other.state().fetched_from.is_empty(), "nothing was taken from there");
    produce(&source, "orders", 0, 2);
    let _serving = source.serve();
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    let well = |now: &Standing| now.state == MirrorState::Mirroring && now.reason.is_none();
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(well));
    assert_eq!(written(&cluster, 0), [MirrorState::LogAlignment, MirrorState::Mirroring]);
}

#[test]
fn a_broker_that_is_of_another_cluster_is_not_compared_with() {
    let (source, other) = (Source::new("source"), Source::new("other"));
    for (one, batches) in [(&source, 5), (&other, 1)] {
        one.topic("orders", 1, 0);
        produce(one, "orders", 0, batches);
    }
    let (_serving, _other_serving) = (source.serve(), other.serve());
    let cluster = Cluster::new(source.state().port, "orders");
    cluster.configure("source.cluster.id", "source");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    drop(mirror);
    source.state().advertises = Some(other.state().port);
    let mirror = Mirroring::begin(&cluster);
    let standing = eventually_some(|| {
        mirror.standing(&cluster, "orders", 0).filter(|now| now.reason == Some(Reason::SourceClusterChanged))
    });
    assert_eq!(standing.state, MirrorState::LogAlignment, "the source is found, its broker is not");
    source.state().advertises = None;
    produce(&source, "orders", 0, 1);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(written(&cluster, 0), [MirrorState::LogAlignment, MirrorState::Mirroring]);
}

#[test]
fn an_address_that_leads_to_another_cluster_is_passed_over() {
    let (source, other) = (Source::new("source"), Source::new("other"));
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 3);
    let (_serving, _other_serving) = (source.serve(), other.serve());
    let cluster = Cluster::new(source.state().port, "orders");
    let addresses = format!("127.0.0.1:{},127.0.0.1:{}", other.state().port, source.state().port);
    cluster.configure("bootstrap.servers", &addresses);
    cluster.configure("source.cluster.id", "source");
    let _mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
}

#[test]
fn a_source_whose_sessions_never_hold_is_asked_less_and_less() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 3);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let _mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    source.state().fetched_from.clear();
    source.state().refuses_sessions = Some(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    let began = Instant::now();
    // The request that was under way, one at once, and then with waits of at least 40, 80, 160 and 320 ms.
    eventually(|| source.state().fetched_from.len() >= 6);
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
    source.state().refuses_sessions = None;
    produce(&source, "orders", 0, 1);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
}

#[test]
fn a_partition_that_nobody_fetches_does_not_look_fresh_because_another_is_fetched() {
    let source = Source::new("source");
    source.topic("orders", 2, 0);
    produce(&source, "orders", 0, 3);
    produce(&source, "orders", 1, 3);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 2));
    source.log("orders", 0, |log| {
        log.batches.pop();
        log.lead_in(4);
    });
    eventually(|| mirror.standing(&cluster, "orders", 0).is_some_and(|now| now.state == MirrorState::Failed));
    let failed_at = Instant::now();
    while failed_at.elapsed() < Duration::from_millis(300) {
        let before = source.log("orders", 1, |log| log.end());
        produce(&source, "orders", 1, 1);
        eventually(|| {
            let partition = cluster.partition("orders", 1).expect("it was begun");
            cluster.state().logs[&partition].end() > before
        });
    }
    let standing = mirror.standing(&cluster, "orders", 0).expect("it is mirrored");
    assert!(standing.last_fetch_age_ms.is_some_and(|age_ms| age_ms >= 290), "{standing:?}");
    assert!(standing.lag_ms.is_some_and(|lag_ms| lag_ms >= 290), "{standing:?}");
}

#[test]
fn a_source_that_says_that_histories_diverge_is_compared_with_and_no_gap_is_shown() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 3);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    source.state().says_diverged = true;
    let standing = eventually_some(|| {
        let standing = mirror.standing(&cluster, "orders", 0).expect("it is mirrored");
        assert_ne!(standing.reason, Some(Reason::SourceGap), "{standing:?}");
        (standing.state == MirrorState::Failed).then_some(standing)
    });
    // Comparing finds nothing, and it says so again: it is the source that is wrong.
    assert_eq!(standing.reason, Some(Reason::SourceError));
    assert!(standing.message.is_some_and(|said| said.contains("has diverged from ours")));
    source.state().says_diverged = false;
    produce(&source, "orders", 0, 1);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    let well = |now: &Standing| now.state == MirrorState::Mirroring && now.reason.is_none();
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(well));
}

#[test]
fn a_new_leader_at_the_source_is_followed() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 4);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let _mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    source.log("orders", 0, |log| {
        log.lead_in(40);
        log.produce(2);
    });
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    let partition = cluster.partition("orders", 0).expect("it was begun");
    assert!(cluster.leader_epoch(partition) >= 40);
}

#[test]
fn a_source_that_lost_records_fails_the_partition_and_nothing_is_dropped() {
    let source = Source::new("source");
    source.topic("orders", 1, 3);
    produce(&source, "orders", 0, 6);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    let end = source.log("orders", 0, |log| log.end());
    source.log("orders", 0, |log| {
        log.batches.pop();
        log.lead_in(4);
        log.produce(1);
    });
    let standing = eventually_some(|| {
        mirror.standing(&cluster, "orders", 0).filter(|now| now.state == MirrorState::Failed)
    });
    assert_eq!((standing.reason, standing.retry_attempt), (Some(Reason::SourceTruncated), -1));
    eventually(|| written(&cluster, 0).last() == Some(&MirrorState::Failed));
    let message = standing.message.unwrap_or_default();
    assert!(message.contains(&format!("offsets {} to {}", end - 3, end - 1)), "{message}");
    let partition = cluster.partition("orders", 0).expect("it was begun");
    assert_eq!(cluster.state().logs[&partition].end(), end);
    assert!(cluster.state().truncations.is_empty());
}

#[test]
fn a_topic_with_records_of_its_own_fails_although_the_source_has_the_same() {
    let source = Source::new("source");
    source.topic("orders", 1, 3);
    produce(&source, "orders", 0, 6);
    let _serving = source.serve();
    let first = source.log("orders", 0, |log| log.batches[0].2.clone());
    let first = ValidBatch::parse(first).expect("it is one");
    let cluster = Cluster::new(source.state().port, "orders");
    cluster.bind("orders", source.id("orders"), vec![first]);
    let mirror = Mirroring::begin(&cluster);
    let standing = eventually_some(|| {
        mirror.standing(&cluster, "orders", 0).filter(|now| now.state == MirrorState::Failed)
    });
    assert_eq!((standing.reason, standing.retry_attempt), (Some(Reason::LocalRecords), -1));
    assert_eq!(mirror.handle.metrics().terminal_failures.of(Reason::LocalRecords).get(), 1);
    eventually(|| written(&cluster, 0) == [MirrorState::LogAlignment, MirrorState::Failed]);
    let partition = cluster.partition("orders", 0).expect("it is bound");
    assert_eq!(cluster.state().logs[&partition].batches.len(), 1);
}

#[test]
fn an_empty_topic_with_the_sources_id_is_mirrored() {
    let source = Source::new("source");
    source.topic("orders", 1, 3);
    produce(&source, "orders", 0, 6);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    cluster.bind("orders", source.id("orders"), Vec::new());
    let _mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
}

#[test]
fn a_batch_larger_than_the_fetch_passes_and_one_larger_than_allowed_fails_its_partition_alone() {
    let source = Source::new("source");
    source.topic("orders", 6, 0);
    let (below, above, beyond_any_response) = (600 << 10, 2 << 20, 18 << 20);
    for (index, bytes) in
        [None, Some(below), Some(above), Some(beyond_any_response), None, None].iter().enumerate()
    {
        produce(&source, "orders", index, 5);
        if let Some(bytes) = bytes {
            source.log("orders", index, |log| log.produce_large(*bytes));
        }
        produce(&source, "orders", index, 1);
    }
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    cluster.configure("fetch.max.bytes", "1000");
    let mirror = Mirroring::begin(&cluster);
    let failed = |index| {
        let standing = eventually_some(|| {
            mirror.standing(&cluster, "orders", index).filter(|now| now.state == MirrorState::Failed)
        });
        assert_eq!((standing.reason, standing.retry_attempt), (Some(Reason::BatchTooLarge), -1));
        let message = standing.message.unwrap_or_default();
        assert!(message.contains("tarn.mirror.batch.max.bytes"), "{message}");
        let partition = cluster.partition("orders", index).expect("it was begun");
        assert_eq!(cluster.state().logs[&partition].batches.len(), 5, "what came before it is here");
    };
    failed(2);
    failed(3);
    for _ in 0..2 {
        for index in [0, 1, 4, 5] {
            eventually(|| is_copied(&source, &cluster, "orders", index));
            // On a busy machine an answer may come late, which shows for a moment.
            eventually(|| {
                let standing = mirror.standing(&cluster, "orders", index);
                standing.is_some_and(|now| now.state == MirrorState::Mirroring && now.reason.is_none())
            });
            produce(&source, "orders", index as usize, 2);
        }
    }
    assert_eq!(mirror.handle.metrics().link_failures.get(), 0, "the source was never away");
    assert_eq!(mirror.handle.metrics().terminal_failures.of(Reason::BatchTooLarge).get(), 2);
}

#[test]
fn offsets_that_are_missing_at_the_source_are_said_and_mirroring_goes_on() {
    let source = Source::new("source");
    source.topic("orders", 2, 0);
    produce(&source, "orders", 0, 9);
    produce(&source, "orders", 1, 2);
    source.log("orders", 0, |log| drop(log.batches.remove(4)));
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 2));
    let missed = |message: &str| {
        // Where histories were compared to find it, it mirrors again once something is appended.
        let is_missed = |now: &Standing| {
            now.message.as_ref().is_some_and(|said| said.contains(message))
                && now.state == MirrorState::Mirroring
        };
        let standing = eventually_some(|| mirror.standing(&cluster, "orders", 0).filter(is_missed));
        assert_eq!(standing.reason, Some(Reason::SourceGap));
    };
    missed("offsets 7 to 8 (2)");
    assert_eq!(mirror.handle.metrics().gap_records.get(), 2);
    // The same where the source removes what is not copied yet: the partition leaves its lane meanwhile.
    let start = source.log("orders", 0, |log| {
        (0..6).for_each(|_| log.produce(2));
        log.batches.drain(..12);
        log.start = log.batches[0].0;
        log.start
    });
    missed(&format!("the newest offsets 18 to {}", start - 1));
    eventually(|| {
        let partition = cluster.partition("orders", 0).expect("it was begun");
        let there = source.log("orders", 0, |log| log.end());
        cluster.state().logs[&partition].end() == there
    });
    let other = mirror.standing(&cluster, "orders", 1).expect("it is mirrored");
    assert_eq!((other.state, other.reason), (MirrorState::Mirroring, None));
}

#[test]
fn a_topic_that_the_source_mirrors_from_here_is_not_mirrored_back() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    source.topic("other", 1, 0);
    produce(&source, "orders", 0, 3);
    source.state().mirrors = vec![("destination".into(), "other".into()), ("far".into(), "orders".into())];
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders,other,bound");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    let task = eventually_some(|| mirror.handle.tasks("m").into_iter().find(|task| task.reason.is_some()));
    assert_eq!((task.name, task.reason), ("topics", Some(Reason::MirrorLoop)));
    assert_eq!(cluster.partition("other", 0), None);
    eventually(|| mirror.handle.upstream("m") == ["far"]);
    // Where it is bound all the same, its partitions wait and say why.
    source.topic("bound", 1, 0);
    source.state().mirrors.push(("destination".into(), "bound".into()));
    cluster.bind("bound", source.id("bound"), Vec::new());
    let standing = eventually_some(|| {
        mirror.standing(&cluster, "bound", 0).filter(|now| now.state == MirrorState::Failed)
    });
    assert_eq!(standing.reason, Some(Reason::MirrorLoop));
    source.state().mirrors.clear();
    eventually(|| {
        mirror.standing(&cluster, "bound", 0).is_some_and(|now| now.state == MirrorState::Mirroring)
    });
}

#[test]
fn a_coordinator_that_does_not_answer_holds_up_only_its_own_partitions() {
    let source = Source::new("source");
    source.topic("orders", 12, 0);
    let stuck = PartitionIndex(1);
    let waits = |index: i32| {
        let partition = TopicIdPartition { topic_id: source.id("orders"), partition: PartitionIndex(index) };
        coordinator_partition("m", partition, COORDINATORS) == stuck
    };
    let (waiting, others): (Vec<i32>, Vec<i32>) = (0..12).partition(|index| waits(*index));
    assert!(!waiting.is_empty() && !others.is_empty(), "both kinds are there");
    (0..12).for_each(|index| produce(&source, "orders", index, 2));
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    cluster.state().stuck_coordinator = Some(stuck);
    let mirror = Mirroring::begin(&cluster);
    for index in others {
        eventually(|| is_copied(&source, &cluster, "orders", index));
    }
    for index in waiting {
        let standing = mirror.standing(&cluster, "orders", index).expect("it is led here");
        assert_eq!(standing.state, MirrorState::LogAlignment);
    }
}

#[test]
fn a_controller_that_does_not_answer_is_asked_once_and_holds_up_no_partition() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 2);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders,later");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    cluster.state().stuck_controller = true;
    source.topic("later", 1, 0);
    eventually(|| cluster.state().starts_asked == 2);
    let looks = source.state().metadata_asked;
    eventually(|| source.state().metadata_asked > looks + 3);
    assert_eq!(cluster.state().starts_asked, 2);
    produce(&source, "orders", 0, 2);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    drop(mirror);
}

#[test]
fn a_batch_that_was_damaged_on_the_way_is_fetched_again() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 5);
    source.state().damage_next = true;
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let _mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert!(!source.state().damage_next, "it was damaged once");
    assert_eq!(written(&cluster, 0), [MirrorState::LogAlignment, MirrorState::Mirroring]);
}

#[test]
fn handlers_learn_which_topics_the_source_has_and_why_not() {
    let source = Source::new("source");
    source.topic("orders", 3, 0);
    source.topic("orders-tmp", 1, 0);
    source.topic("__internal", 1, 0);
    let _serving = source.serve();
    let port = source.state().port;
    let asked = on_a_core(move || async move {
        let config = config(port);
        let patterns = |pattern| Patterns::parse([pattern]).expect("it is one");
        let asked = [".*", "orders", "a.b", "__internal", "later.*"];
        let topics = resolve(&config, (&asked, &patterns(".*")), &patterns(".*-tmp"), "us").await;
        (topics, cluster_id(&config, "us").await, cluster_id(&config, "source").await)
    });
    let (topics, id, ourselves) = asked;
    let Resolved { topics, missing } = topics.expect("the source answers");
    assert_eq!(missing, ["a.b", "__internal"], "a pattern may match later");
    let found: Vec<_> = topics.iter().map(|topic| (topic.name.as_str(), topic.partitions)).collect();
    assert_eq!(found, [("orders", 3)]);
    assert_eq!(topics[0].configs, [("retention.ms".to_owned(), "77000".to_owned())]);
    assert_eq!(id, Ok("source".to_owned()));
    assert_eq!(ourselves, Err(SourceError::Loop("source".into())));
    drop(_serving);
    let gone = on_a_core(move || async move { cluster_id(&config(port), "us").await });
    let said = gone.expect_err("nobody listens").to_string();
    assert!(said.contains(&format!("127.0.0.1:{port}")), "{said}");
}

/// A manager on a core of its own, with its lanes.
struct Mirroring {
    cluster: Cluster,
    handle: ManagerHandle,
    core: Option<CoreHandle<()>>,
}

struct SameCore(Cluster);

impl MirrorCores<Cluster> for SameCore {
    fn count(&self) -> usize {
        1
    }

    fn spawn(&self, _: usize, task: CoreTask<Cluster>) {
        let cluster = self.0.clone();
        let lane = task(cluster.clone());
        spawn(Queue::Mirror, async move {
            let is_dying = || cluster.state().lanes_die;
            if is_dying() {
                // It stands there for a while before it is found dead.
                sleep(Duration::from_millis(30)).await;
                drop(lane);
            } else {
                let dies = async {
                    while !is_dying() {
                        sleep(Duration::from_millis(5)).await;
                    }
                };
                future::or(lane, dies).await;
            }
            if is_dying() {
                cluster.state().lanes_died += 1;
            }
        })
        .detach();
    }
}

impl Mirroring {
    fn begin(cluster: &Cluster) -> Mirroring {
        Mirroring::with(cluster, &node())
    }

    fn with(cluster: &Cluster, node: &MirrorNodeConfig) -> Mirroring {
        let (manager, handle) = Manager::new(node);
        cluster.attach(&handle);
        let here = cluster.clone();
        let core = spawn_core(CoreSpec { cpu: None, name: "mirror".into() }, move || async move {
            manager.run(here.clone(), SameCore(here)).await;
        });
        let core = Some(core.expect("a core can be made"));
        Mirroring { cluster: cluster.clone(), handle, core }
    }

    fn standing(&self, cluster: &Cluster, topic: &str, partition: i32) -> Option<Standing> {
        self.handle.offsets("m", &[cluster.partition(topic, partition)?]).remove(0)
    }
}

impl Drop for Mirroring {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the mirror stands like this: {:?}", self.standing(&self.cluster, "orders", 0));
            eprintln!("its tasks: {:?}", self.handle.tasks("m"));
        }
        self.handle.stop();
        if let Some(core) = self.core.take() {
            core.join();
        }
    }
}

fn node() -> MirrorNodeConfig {
    MirrorNodeConfig {
        state_topic_partitions: 1,
        state_topic_replication_factor: 1,
        fetchers: 1,
        refresh_interval_ms: 500,
        retry_initial_backoff_ms: 100,
        retry_max_backoff_ms: 1000,
        retry_max_attempts: 20,
        coordinator_write_timeout_ms: 5000,
        fetch_memory_bytes: 64 << 20,
        batch_max_bytes: 1 << 20,
    }
}

fn config(port: u16) -> MirrorConfig {
    let bootstrap = format!("127.0.0.1:{port}");
    let given = stored([("bootstrap.servers", Some(bootstrap.as_str()))]).expect("it is a key");
    MirrorConfig::resolve(&given).expect("it is right")
}

fn on_a_core<T, F>(work: impl FnOnce() -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    spawn_core(CoreSpec { cpu: None, name: "asking".into() }, work).expect("a core can be made").join()
}

fn produce(source: &Source, topic: &str, partition: usize, batches: usize) {
    source.log(topic, partition, |log| (0..batches).for_each(|index| log.produce(index % 3 + 1)));
}

fn caught_up(source: &Source, cluster: &Cluster, topic: &str, partitions: i32) -> bool {
    (0..partitions).all(|index| is_copied(source, cluster, topic, index))
}

fn is_copied(source: &Source, cluster: &Cluster, topic: &str, index: i32) -> bool {
    let theirs = source.log(topic, index as usize, |log| {
        log.batches.iter().map(|(.., batch)| batch.clone()).collect::<Vec<_>>()
    });
    let Some(partition) = cluster.partition(topic, index) else { return false };
    let state = cluster.state();
    let ours = state.logs.get(&partition).map(|log| log.batches.iter().map(|batch| batch.bytes().clone()));
    ours.is_some_and(|ours| ours.collect::<Vec<_>>() == theirs)
}

fn written(cluster: &Cluster, partition: i32) -> Vec<MirrorState> {
    let state = cluster.state();
    let of = state.written.iter().filter(|(at, ..)| at.partition.0 == partition);
    of.map(|(_, state, _)| *state).collect()
}

fn eventually(condition: impl Fn() -> bool) {
    eventually_some(|| condition().then_some(()));
}

fn eventually_some<T>(condition: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "it did not come to pass");
        std::thread::sleep(Duration::from_millis(5));
    }
}
