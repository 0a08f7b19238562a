//! Stops, pauses and recoveries, whole: in whatever state the source is, and across restarts.

use std::net::TcpListener;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tarn_mirror::local_cluster::{KnownState, LocalCluster};
use tarn_mirror::manager::Standing;
use tarn_mirror::reasons::Reason;
use tarn_mirror::state::MirrorState;
use tarn_record::{BrokerId, Epoch, Offset, TopicId, TopicIdPartition};

use super::cluster::Cluster;
use super::source::Source;
use super::{Mirroring, caught_up, eventually, eventually_some, node, produce, written};

/// What a stop writes that comes from MIRRORING.
const STOPPED: [MirrorState; 4] =
    [MirrorState::LogAlignment, MirrorState::Mirroring, MirrorState::Stopping, MirrorState::Stopped];

#[test]
fn a_topic_is_stopped_and_its_report_says_what_was_copied() {
    let (source, _serving, cluster, mirror) = mirrored(3);
    let partition = cluster.partition("orders", 0).expect("it was begun");
    let end = cluster.state().logs[&partition].end();
    cluster.state().logs.get_mut(&partition).expect("it is there").open_transactions = 2;
    eventually(|| mirror.standing(&cluster, "orders", 0).is_some_and(|now| now.lag_ms.is_some()));
    let before = wall_ms();
    cluster.want("orders", "stopping:2");
    eventually(|| cluster.wanted("orders") == "stopped:2");
    let after = wall_ms();
    for index in 0..3 {
        assert_eq!(written(&cluster, index), STOPPED);
        let partition = cluster.partition("orders", index).expect("it was begun");
        assert_eq!(told(&cluster, partition), Some(stopped_at(2)));
    }
    assert_eq!(resets(&cluster), 3);
    let report = cluster.reports().remove(&partition).expect("it was written");
    assert_eq!((&*report.topic, report.version), ("orders", 2));
    assert_eq!((report.mirrored_offset.0, report.source_offset.0, report.lag_ms), (end, end, 0));
    assert!((before..=after).contains(&report.stopped_at_ms), "{report:?}");
    // The source answers at least every 100 ms.
    assert!((before - 1000..=after).contains(&report.source_known_at_ms), "{report:?}");
    assert_eq!((report.aborted_count, report.aborted.len(), report.reset_offset.0), (2, 2, end + 2));
    assert_eq!(cluster.reports().len(), 3);
    // It is an ordinary topic now: nobody mirrors it.
    eventually(|| mirror.standing(&cluster, "orders", 0).is_none());
    produce(&source, "orders", 0, 1);
    let looks = source.state().metadata_asked;
    eventually(|| source.state().metadata_asked > looks + 2);
    assert_eq!(cluster.state().logs[&partition].end(), end + 3);
}

#[test]
fn a_source_that_is_gone_is_not_missed_and_what_it_had_is_reported() {
    let (source, serving, cluster, mirror) = mirrored(1);
    eventually(|| mirror.standing(&cluster, "orders", 0).is_some_and(|now| now.lag_ms.is_some()));
    // The last that was heard of it is that it has more than could be copied.
    cluster.state().disk_is_full = true;
    let produced_at = wall_ms();
    produce(&source, "orders", 0, 2);
    let there = source.log("orders", 0, |log| log.end());
    let known = |now: &Standing| now.source_high_watermark.is_some_and(|at| at.0 == there);
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(known));
    drop(serving);
    let gone_at = wall_ms();
    cluster.state().disk_is_full = false;
    let partition = cluster.partition("orders", 0).expect("it was begun");
    cluster.want("orders", "stopping:2");
    eventually(|| cluster.wanted("orders") == "stopped:2");
    let report = cluster.reports().remove(&partition).expect("it was written");
    assert_eq!(report.source_offset.0, there);
    assert!(report.mirrored_offset.0 < there && report.lag_ms >= 0, "{report:?}");
    assert!((produced_at..=gone_at).contains(&report.source_known_at_ms), "{report:?}, gone at {gone_at}");
    assert!(report.stopped_at_ms >= gone_at);
}

#[test]
fn a_source_is_known_to_have_had_what_it_sent_although_it_said_that_it_has_less() {
    let (source, _serving, cluster, mirror) = mirrored(1);
    source.state().says_ends_late_by = 1;
    produce(&source, "orders", 0, 2);
    let there = source.log("orders", 0, |log| log.end());
    let partition = cluster.partition("orders", 0).expect("it was begun");
    eventually(|| cluster.state().logs[&partition].end() == there);
    let known = || mirror.standing(&cluster, "orders", 0).and_then(|now| now.source_high_watermark);
    eventually(|| known() == Some(Offset(there)));
    cluster.want("orders", "stopping:2");
    eventually(|| cluster.wanted("orders") == "stopped:2");
    let report = cluster.reports().remove(&partition).expect("it was written");
    assert_eq!((report.source_offset, report.mirrored_offset), (Offset(there), Offset(there)));
}

#[test]
fn what_an_earlier_lane_knew_of_the_source_is_reported() {
    let (source, _serving, cluster, mirror) = mirrored(1);
    let known = || mirror.standing(&cluster, "orders", 0).and_then(|now| now.source_high_watermark);
    let there = eventually_some(known);
    // From now on the source answers, and says nothing of the partition.
    source.state().throttle_ms = 5;
    cluster.state().lanes_die = true;
    eventually(|| cluster.state().lanes_died >= 2);
    cluster.state().lanes_die = false;
    let fetched = |now: &Standing| now.reason.is_none() && now.source_high_watermark.is_none();
    let throttled = source.state().throttled;
    eventually(|| source.state().throttled > throttled + 3);
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(fetched));
    cluster.want("orders", "stopping:2");
    eventually(|| cluster.wanted("orders") == "stopped:2");
    let report = cluster.reports().into_values().next().expect("it was written");
    assert_eq!(report.source_offset, there);
    assert!(report.source_known_at_ms > 0 && report.source_known_at_ms <= report.stopped_at_ms, "{report:?}");
}

#[test]
fn a_source_broker_that_never_answers_holds_up_no_stop() {
    let (source, _serving, cluster, mirror) = mirrored(1);
    drop(mirror);
    let silent = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    source.state().advertises = Some(silent.local_addr().expect("it has one").port());
    // It takes connections, and that is all.
    let mirror = Mirroring::begin(&cluster);
    silent.accept().expect("histories are to be compared");
    // Long before the question times out.
    let before = Instant::now();
    cluster.want("orders", "stopping:2");
    eventually(|| cluster.wanted("orders") == "stopped:2");
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    drop(mirror);
}

#[test]
fn what_never_was_mirrored_is_stopped_without_its_source() {
    let cluster = Cluster::new(1, "orders");
    cluster.bind_as("orders", TopicId::random(), 1, "mirroring:1");
    let mirror = Mirroring::begin(&cluster);
    let waits = |now: &Standing| now.reason == Some(Reason::SourceUnreachable);
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(waits));
    cluster.want("orders", "stopping:2");
    eventually(|| cluster.wanted("orders") == "stopped:2");
    assert_eq!(
        written(&cluster, 0),
        [MirrorState::LogAlignment, MirrorState::Stopping, MirrorState::Stopped]
    );
}

#[test]
fn a_failed_topic_is_stopped() {
    let (source, _serving, cluster, mirror) = mirrored(1);
    lose_records(&source);
    eventually(|| written(&cluster, 0).last() == Some(&MirrorState::Failed));
    cluster.want("orders", "stopping:2");
    eventually(|| cluster.wanted("orders") == "stopped:2");
    assert_eq!(written(&cluster, 0)[2..], [MirrorState::Failed, MirrorState::Stopping, MirrorState::Stopped]);
    drop(mirror);
}

#[test]
fn another_process_ends_a_stop_and_writes_no_second_position_or_reset() {
    let (_source, serving, cluster, mirror) = mirrored(1);
    let partition = cluster.partition("orders", 0).expect("it was begun");
    let end = cluster.state().logs[&partition].end();
    cluster.state().ends_nothing = true;
    cluster.want("orders", "stopping:2");
    let refused = |now: &Standing| now.reason == Some(Reason::DestinationNoLeader);
    let standing = eventually_some(|| mirror.standing(&cluster, "orders", 0).filter(|now| refused(now)));
    assert_eq!((standing.state, standing.retry_attempt), (MirrorState::Stopping, 0));
    assert!(standing.message.is_some_and(|said| said.contains("it is told not to")));
    let known = standing.source_high_watermark;
    drop((mirror, serving));
    // The log is ended, and the process dies before it can say so.
    cluster.state().ends_nothing = false;
    cluster.state().loses_answers = 1;
    let mirror = Mirroring::begin(&cluster);
    eventually(|| cluster.wanted("orders") == "stopped:2");
    drop(mirror);
    let positions = positions(&cluster);
    assert!(positions.iter().all(|offset| *offset == end) && !positions.is_empty(), "{positions:?}");
    assert_eq!(resets(&cluster), 1);
    let report = cluster.reports().remove(&partition).expect("it was written");
    assert_eq!((report.mirrored_offset.0, report.reset_offset.0), (end, end));
    assert_eq!(Some(report.source_offset), known, "what the first process knew");
}

#[test]
fn answers_that_are_lost_repeat_nothing() {
    for lost in 1..6 {
        let (_source, _serving, cluster, _mirror) = mirrored(1);
        cluster.state().loses_answers = lost;
        cluster.want("orders", "stopping:2");
        eventually(|| cluster.wanted("orders") == "stopped:2");
        assert_eq!((resets(&cluster), cluster.state().loses_answers), (1, 0));
        let partition = cluster.partition("orders", 0).expect("it was begun");
        let end = cluster.state().logs[&partition].end() - 1;
        let positions = positions(&cluster);
        assert!(positions.iter().all(|offset| *offset == end), "{positions:?}");
    }
}

#[test]
fn a_full_disk_is_said_while_a_stop_waits_for_room() {
    let (_source, _serving, cluster, mirror) = mirrored(1);
    cluster.state().disk_is_full = true;
    cluster.want("orders", "stopping:2");
    let full = |now: &Standing| now.reason == Some(Reason::DestinationStorage);
    let standing = eventually_some(|| mirror.standing(&cluster, "orders", 0).filter(|now| full(now)));
    assert_eq!((standing.state, standing.retry_attempt), (MirrorState::Stopping, 0));
    let tries = cluster.state().asked["flush"];
    eventually(|| cluster.state().asked["flush"] > tries + 2);
    assert_eq!(written(&cluster, 0), STOPPED[..2], "nothing is claimed of what is not durable");
    cluster.state().disk_is_full = false;
    eventually(|| cluster.wanted("orders") == "stopped:2");
}

#[test]
fn a_position_is_not_written_before_all_replicas_have_what_it_claims() {
    let (_source, _serving, cluster, mirror) = mirrored(1);
    cluster.state().lacks_replicas = true;
    cluster.want("orders", "stopping:2");
    let lacking = |now: &Standing| now.reason == Some(Reason::DestinationUnderMinIsr);
    let standing = eventually_some(|| mirror.standing(&cluster, "orders", 0).filter(|now| lacking(now)));
    assert_eq!(standing.state, MirrorState::Stopping);
    assert_eq!(positions(&cluster), []);
    cluster.state().lacks_replicas = false;
    eventually(|| cluster.wanted("orders") == "stopped:2");
}

#[test]
fn a_broker_whose_metadata_are_behind_asks_the_coordinator_less_and_less() {
    let cluster = Cluster::new(1, "orders");
    cluster.bind_as("orders", TopicId::random(), 1, "stopping:2");
    let partition = cluster.partition("orders", 0).expect("it is bound");
    // Whoever led it before knew a later version of the binding.
    cluster.persist(partition, MirrorState::Mirroring, 9);
    let began = Instant::now();
    let mirror = Mirroring::begin(&cluster);
    let asked = || cluster.state().asked.get("WriteMirrorStatesRequest").copied().unwrap_or(0);
    // With waits of at least 16, 32, 64, 128 and 256 ms.
    eventually(|| asked() >= 6);
    assert!(began.elapsed() >= Duration::from_millis(490), "{:?}", began.elapsed());
    cluster.want("orders", "stopping:10");
    eventually(|| cluster.wanted("orders") == "stopped:10");
    drop(mirror);
}

#[test]
fn a_stop_of_many_partitions_takes_few_requests() {
    let cluster = Cluster::new(1, "many");
    let partitions = 5000;
    cluster.bind_as("many", TopicId::random(), partitions, "stopping:1");
    let _mirror = Mirroring::begin(&cluster);
    eventually(|| cluster.wanted("many") == "stopped:1");
    let told = cluster.state().told.clone();
    let asked = cluster.state().asked.clone();
    let stopped = told.values().filter(|known| **known == stopped_at(1));
    assert_eq!(stopped.count(), partitions as usize);
    assert_eq!(asked["CompleteMirrorStopRequest"], 1);
    // A request takes 2,000 partitions, and of each of the three coordinators its own.
    assert!(asked.values().sum::<usize>() < 100, "{asked:?}");
}

#[test]
fn the_metadata_say_stopped_once_every_partition_is_wherever_it_is_led() {
    let (_source, _serving, cluster, mirror) = mirrored(2);
    let other = cluster.partition("orders", 1).expect("it was begun");
    cluster.lead_elsewhere(other, MirrorState::Stopped, 1);
    cluster.want("orders", "stopping:2");
    let asked = |what: &str| cluster.state().asked.get(what).copied().unwrap_or(0);
    eventually(|| {
        mirror.standing(&cluster, "orders", 0).is_some_and(|now| now.state == MirrorState::Stopped)
    });
    let reads = asked("ReadMirrorStatesRequest");
    eventually(|| asked("ReadMirrorStatesRequest") > reads + 2);
    assert_eq!((cluster.wanted("orders").as_str(), asked("CompleteMirrorStopRequest")), ("stopping:2", 0));
    cluster.lead_elsewhere(other, MirrorState::Stopped, 2);
    eventually(|| cluster.wanted("orders") == "stopped:2");
}

#[test]
fn the_home_broker_of_the_mirror_completes_a_stop_whoever_that_becomes() {
    let (source, _serving, cluster, mirror) = mirrored(1);
    cluster.move_home(BrokerId(8));
    cluster.want("orders", "stopping:2");
    eventually(|| {
        mirror.standing(&cluster, "orders", 0).is_some_and(|now| now.state == MirrorState::Stopped)
    });
    let looks = source.state().metadata_asked;
    eventually(|| source.state().metadata_asked > looks + 2);
    assert_eq!(cluster.state().asked.get("CompleteMirrorStopRequest"), None);
    cluster.move_home(cluster.broker_id());
    eventually(|| cluster.wanted("orders") == "stopped:2");
}

#[test]
fn a_stop_that_the_controller_does_not_complete_is_writable_says_so_and_goes_on_after_a_restart() {
    let (_source, _serving, cluster, mirror) = mirrored(1);
    let partition = cluster.partition("orders", 0).expect("it was begun");
    cluster.state().completes_nothing = true;
    cluster.want("orders", "stopping:2");
    let refused = |now: &Standing| now.reason == Some(Reason::ControllerUnavailable);
    let standing = eventually_some(|| mirror.standing(&cluster, "orders", 0).filter(|now| refused(now)));
    assert_eq!(standing.state, MirrorState::Stopped);
    assert_eq!(told(&cluster, partition), Some(stopped_at(2)));
    drop(mirror);
    // A core that has begun anew knows nothing until it is told.
    cluster.state().told.clear();
    let mirror = Mirroring::begin(&cluster);
    eventually(|| told(&cluster, partition) == Some(stopped_at(2)));
    assert_eq!(cluster.wanted("orders"), "stopping:2");
    cluster.state().completes_nothing = false;
    eventually(|| cluster.wanted("orders") == "stopped:2");
    assert_eq!(written(&cluster, 0), STOPPED);
    drop(mirror);
}

#[test]
fn what_was_stopped_is_stopped_again_at_once() {
    let (_source, _serving, cluster, mirror) = mirrored(1);
    cluster.want("orders", "stopping:2");
    eventually(|| cluster.wanted("orders") == "stopped:2");
    let reports = cluster.reports();
    cluster.want("orders", "stopping:3");
    eventually(|| cluster.wanted("orders") == "stopped:3");
    assert_eq!(cluster.reports(), reports, "nothing was copied since");
    assert_eq!((resets(&cluster), positions(&cluster).len()), (1, 1));
    drop(mirror);
}

#[test]
fn a_mirror_whose_configuration_cannot_be_used_can_be_stopped_and_paused() {
    let (_source, serving, cluster, mirror) = mirrored(1);
    cluster.configure("fetch.max.bytes", "many");
    let invalid = |now: &Standing| now.reason == Some(Reason::ConfigInvalid);
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(invalid));
    drop(serving);
    cluster.want("orders", "paused:2");
    let paused = |now: &Standing| (now.state, now.reason) == (MirrorState::Paused, None);
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(paused));
    cluster.want("orders", "stopping:3");
    eventually(|| cluster.wanted("orders") == "stopped:3");
}

#[test]
fn a_paused_topic_copies_nothing_until_it_is_resumed() {
    let (source, _serving, cluster, mirror) = mirrored(2);
    cluster.want("orders", "paused:2");
    for index in 0..2 {
        let paused = |now: &Standing| (now.state, now.reason) == (MirrorState::Paused, None);
        eventually(|| mirror.standing(&cluster, "orders", index).as_ref().is_some_and(paused));
    }
    let partition = cluster.partition("orders", 0).expect("it was begun");
    let end = cluster.state().logs[&partition].end();
    produce(&source, "orders", 0, 2);
    drop(mirror);
    let mirror = Mirroring::begin(&cluster);
    let looks = source.state().metadata_asked;
    eventually(|| source.state().metadata_asked > looks + 2);
    assert_eq!(cluster.state().logs[&partition].end(), end);
    source.state().compared_at.clear();
    cluster.want("orders", "mirroring:3");
    eventually(|| caught_up(&source, &cluster, "orders", 2));
    assert_eq!(source.state().compared_at.len(), 2, "histories were compared first");
    use MirrorState::{LogAlignment, Mirroring as Mirrored, Paused, Pausing};
    assert_eq!(written(&cluster, 0), [LogAlignment, Mirrored, Pausing, Paused, Mirrored]);
    drop(mirror);
}

#[test]
fn a_failed_topic_is_recovered_once_the_source_has_its_records_again() {
    let (source, _serving, cluster, mirror) = mirrored(1);
    let before = source.log("orders", 0, |log| (log.batches.clone(), log.epochs.clone()));
    lose_records(&source);
    eventually(|| written(&cluster, 0).last() == Some(&MirrorState::Failed));
    // It is looked at again, and nothing has changed.
    cluster.want("orders", "mirroring:2");
    eventually(|| written(&cluster, 0).iter().filter(|state| **state == MirrorState::Failed).count() == 2);
    source.log("orders", 0, |log| {
        (log.batches, log.epochs) = before;
        log.lead_in(9);
        log.produce(1);
    });
    cluster.want("orders", "mirroring:3");
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    let well = |now: &Standing| now.state == MirrorState::Mirroring && now.reason.is_none();
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(well));
    let partition = cluster.partition("orders", 0).expect("it was begun");
    let newest = cluster.state().logs[&partition].batches.last().map(|batch| batch.header().leader_epoch);
    assert_eq!(newest, Some(Epoch(9)));
}

/// A topic that was mirrored up to its end, so many partitions of it.
fn mirrored(partitions: i32) -> (Source, super::Serving, Cluster, Mirroring) {
    let source = Source::new("source");
    source.topic("orders", partitions as usize, 3);
    (0..partitions).for_each(|index| produce(&source, "orders", index as usize, 4));
    let serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let mirror = Mirroring::with(&cluster, &node());
    eventually(|| caught_up(&source, &cluster, "orders", partitions));
    let mirrors = |index| {
        let standing = mirror.standing(&cluster, "orders", index);
        standing.is_some_and(|now| now.state == MirrorState::Mirroring)
    };
    eventually(|| (0..partitions).all(mirrors));
    (source, serving, cluster, mirror)
}

/// The source loses its newest batch to an election, and goes on without it.
fn lose_records(source: &Source) {
    source.log("orders", 0, |log| {
        log.batches.pop();
        log.lead_in(4);
        log.produce(1);
    });
}

/// STOPPED, written for this version.
fn stopped_at(version: i64) -> KnownState {
    KnownState::Known { state: MirrorState::Stopped, version }
}

/// What its owning core was told last of a partition.
fn told(cluster: &Cluster, partition: TopicIdPartition) -> Option<KnownState> {
    cluster.state().told.get(&partition).copied()
}

/// How many reset records were written.
fn resets(cluster: &Cluster) -> usize {
    cluster.state().logs.values().map(|log| log.resets).sum()
}

/// The offsets of all positions that were written.
fn positions(cluster: &Cluster) -> Vec<i64> {
    cluster.state().positions.iter().map(|(_, position)| position.offset.0).collect()
}

fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    i64::try_from(since.as_millis()).expect("it is long until then")
}
