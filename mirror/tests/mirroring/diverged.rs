//! Logs that are no beginning of their source's, whole: found, left alone, or exported, cut and mirrored again.

use tarn_image::config::server::MirrorNodeConfig;
use tarn_mirror::limits;
use tarn_mirror::local_cluster::Truncate;
use tarn_mirror::manager::Standing;
use tarn_mirror::reasons::Reason;
use tarn_mirror::state::MirrorState;
use tarn_record::{Offset, TopicIdPartition};

use super::cluster::{Cluster, Log};
use super::source::{Serving, Source};
use super::{Mirroring, caught_up, eventually, eventually_some, node, produce, written};

#[test]
fn what_the_source_has_lost_is_dropped_with_consent_and_kept_without() {
    let (source, _serving, cluster, mirror) = mirrored();
    let lost = elect_uncleanly(&source, 2);
    let standing = failed(&cluster, &mirror);
    assert_eq!((standing.reason, standing.retry_attempt), (Some(Reason::SourceTruncated), -1));
    let message = standing.message.unwrap_or_default();
    assert!(message.contains(&format!("offsets {} to {}", lost.0, lost.1 - 1)), "{message}");
    eventually(|| written(&cluster, 0).last() == Some(&MirrorState::Failed));
    // Trying it again without consent finds the same.
    let failures = || written(&cluster, 0).iter().filter(|state| **state == MirrorState::Failed).count();
    cluster.want("orders", "mirroring:2");
    eventually(|| failures() == 2);
    assert!(cluster.state().truncations.is_empty());
    cluster.want("orders", "mirroring:3:truncate");
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(exported(&cluster), [lost]);
    let standing = mirrors(&cluster, &mirror);
    assert_eq!(standing.reason, Some(Reason::SourceTruncated), "it says what was dropped");
    let message = standing.message.unwrap_or_default();
    assert!(
        message.contains("/exports/it") && message.contains(&format!("offsets {} ", lost.0)),
        "{message}"
    );
    // The consent is used: the next divergence waits for an operator again.
    elect_uncleanly(&source, 1);
    let standing = failed(&cluster, &mirror);
    assert_eq!(standing.reason, Some(Reason::SourceTruncated));
    assert_eq!(cluster.state().truncations.len(), 1);
}

#[test]
fn a_divergence_that_is_found_on_reconnecting_is_given_up_where_that_is_configured() {
    let (source, serving, cluster, mirror) = mirrored();
    cluster.configure("support.unclean.leader.election", "true");
    drop(serving);
    let lost = elect_uncleanly(&source, 2);
    let _serving = source.serve();
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(exported(&cluster), [lost]);
    assert!(!written(&cluster, 0).contains(&MirrorState::Failed));
    mirrors(&cluster, &mirror);
}

#[test]
fn more_than_the_configuration_gives_up_waits_for_an_operator() {
    let (source, _serving, cluster, mirror) = mirrored();
    cluster.configure("support.unclean.leader.election", "true");
    cluster.configure("divergence.max.records", "2");
    elect_uncleanly(&source, 2);
    let message = failed(&cluster, &mirror).message.unwrap_or_default();
    assert!(message.contains("mirror.divergence.max.records=2"), "{message}");
    assert!(cluster.state().truncations.is_empty());
}

#[test]
fn a_source_that_was_restored_is_searched_for_the_last_batch_that_is_the_same() {
    let (source, serving, cluster, mirror) = mirrored();
    drop(serving);
    let parts_at = restore_with_others_from(&source, 3);
    let _serving = source.serve();
    let message = failed(&cluster, &mirror).message.unwrap_or_default();
    assert!(message.contains(&format!("offsets {parts_at} to ")), "{message}");
    cluster.want("orders", "mirroring:2:truncate");
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(exported(&cluster)[0].0, parts_at);
}

#[test]
fn a_stop_does_not_wait_for_an_export_that_takes_as_long_as_the_disk_does() {
    let (source, _serving, cluster, mirror) = mirrored();
    cluster.state().copies_for_ever = true;
    elect_uncleanly(&source, 2);
    failed(&cluster, &mirror);
    let before = end(&cluster);
    cluster.want("orders", "mirroring:2:truncate");
    eventually(|| cluster.state().asked.get("truncate").is_some_and(|asked| *asked > 0));
    cluster.want("orders", "stopping:3");
    eventually(|| cluster.wanted("orders") == "stopped:3");
    assert_eq!(
        cluster.reports().remove(&partition(&cluster)).map(|report| report.mirrored_offset.0),
        Some(before)
    );
    assert!(cluster.state().truncations.is_empty());
}

#[test]
fn a_partition_whose_histories_have_parted_holds_up_no_other_of_its_source_broker() {
    let (source, serving, cluster, mirror) = mirrored();
    source.topic("calm", 3, 3);
    cluster.bind_as("calm", source.id("calm"), 3, "mirroring:1");
    eventually(|| caught_up(&source, &cluster, "calm", 3));
    cluster.state().counts_for_ever = true;
    drop(serving);
    elect_uncleanly(&source, 2);
    (0..3).for_each(|partition| produce(&source, "calm", partition, 2));
    let _serving = source.serve();
    eventually(|| cluster.state().asked.get("count").is_some_and(|asked| *asked > 0));
    eventually(|| caught_up(&source, &cluster, "calm", 3));
    // They are compared again while the other one is still searched.
    source.log("calm", 1, |log| log.lead_in(4));
    produce(&source, "calm", 1, 2);
    eventually(|| caught_up(&source, &cluster, "calm", 3));
    let standing = mirror.standing(&cluster, "orders", 0).expect("it is mirrored");
    assert_eq!(
        (standing.state, standing.reason, standing.retry_attempt),
        (MirrorState::LogAlignment, Some(Reason::ComparingHistories), 0)
    );
    assert!(standing.message.is_some_and(|said| said.contains("ends at") && said.contains("searched for")));
    cluster.want("orders", "stopping:2");
    eventually(|| cluster.wanted("orders") == "stopped:2");
    assert!(cluster.state().truncations.is_empty());
}

#[test]
fn of_more_than_is_counted_the_range_is_exact() {
    let source = Source::new("source");
    source.topic("orders", 1, 3);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    cluster.bind("orders", source.id("orders"), Vec::new());
    let records = limits::COUNTED_RECORDS_MAX as usize + 1;
    write(&cluster, records);
    let mirror = Mirroring::begin(&cluster);
    let message = failed(&cluster, &mirror).message.unwrap_or_default();
    let range = format!("offsets 0 to {} (more than {} records)", records - 1, records - 1);
    assert!(message.contains(&range), "{message}");
}

#[test]
fn a_source_that_sends_nothing_for_a_while_has_no_other_history() {
    let (source, serving, cluster, mirror) = mirrored();
    cluster.configure("support.unclean.leader.election", "true");
    drop(serving);
    source.state().sends_nothing_below = i64::MAX;
    let serving = source.serve();
    let waits = |now: &Standing| {
        let says = now.message.as_ref().is_some_and(|said| said.contains("sends nothing at offset"));
        says && (now.state, now.reason) == (MirrorState::LogAlignment, Some(Reason::ComparingHistories))
    };
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(waits));
    source.state().sends_nothing_below = 0;
    produce(&source, "orders", 0, 1);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(exported(&cluster), []);
    // Nor does it part earlier than it does.
    drop(serving);
    let parts_at = restore_with_others_from(&source, 3);
    source.state().sends_nothing_below = parts_at;
    let _serving = source.serve();
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(waits));
    assert_eq!(exported(&cluster), []);
    source.state().sends_nothing_below = 0;
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(exported(&cluster)[0].0, parts_at);
}

#[test]
fn an_export_that_fails_drops_nothing_and_says_so_until_it_can_be_written() {
    let (source, _serving, cluster, mirror) = mirrored();
    cluster.state().exports_nothing = true;
    let lost = elect_uncleanly(&source, 2);
    failed(&cluster, &mirror);
    let before = end(&cluster);
    cluster.want("orders", "mirroring:2:truncate");
    eventually(|| cluster.state().exports_failed > 5);
    let standing = eventually_some(|| {
        let of_storage = |now: &Standing| now.reason == Some(Reason::DestinationStorage);
        mirror.standing(&cluster, "orders", 0).filter(of_storage)
    });
    assert_eq!(standing.state, MirrorState::Failed);
    assert!(standing.message.is_some_and(|said| said.contains("it cannot be written")));
    assert_eq!(end(&cluster), before);
    assert!(cluster.state().truncations.is_empty());
    cluster.state().exports_nothing = false;
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(exported(&cluster), [lost]);
    mirrors(&cluster, &mirror);
}

#[test]
fn a_log_that_is_not_cut_as_it_is_now_is_compared_again_and_says_so() {
    let (source, _serving, cluster, mirror) = mirrored();
    cluster.state().truncates_nothing = true;
    let lost = elect_uncleanly(&source, 2);
    failed(&cluster, &mirror);
    cluster.want("orders", "mirroring:2:truncate");
    let waits = |now: &Standing| {
        let says = now.message.as_ref().is_some_and(|said| said.contains("it is compared again"));
        says && now.reason == Some(Reason::ComparingHistories)
    };
    eventually(|| mirror.standing(&cluster, "orders", 0).as_ref().is_some_and(waits));
    cluster.state().truncates_nothing = false;
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(exported(&cluster), [lost]);
}

#[test]
fn a_cut_that_the_disk_has_no_room_to_flush_is_known_and_not_made_again() {
    let (source, _serving, cluster, mirror) = mirrored();
    let lost = elect_uncleanly(&source, 2);
    failed(&cluster, &mirror);
    cluster.state().disk_is_full = true;
    cluster.want("orders", "mirroring:2:truncate");
    let flushes = || cluster.state().asked.get("flush").copied().unwrap_or(0);
    eventually(|| flushes() > 5);
    let standing = mirror.standing(&cluster, "orders", 0).expect("it is known");
    assert_eq!((standing.state, standing.reason), (MirrorState::Failed, Some(Reason::DestinationStorage)));
    assert_eq!(exported(&cluster), [lost]);
    let metrics = mirror.handle.metrics();
    assert_eq!((metrics.exports.get(), metrics.exported_bytes.get()), (1, 1));
    assert!(metrics.exported_records.get() > 0);
    cluster.state().disk_is_full = false;
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    let standing = mirrors(&cluster, &mirror);
    assert!(standing.message.is_some_and(|said| said.contains("/exports/it")), "it is named");
    assert_eq!((exported(&cluster).len(), metrics.exports.get()), (1, 1));
}

#[test]
fn a_promoted_topic_with_nothing_of_its_own_is_begun_again_without_consent() {
    let (source, _serving, cluster, mirror) = mirrored();
    stop(&cluster);
    produce(&source, "orders", 0, 2);
    cluster.want("orders", "mirroring:4");
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(reset(&cluster), None, "what ended it is gone");
    assert_eq!(exported(&cluster), []);
    let standing = mirrors(&cluster, &mirror);
    assert_eq!(standing.reason, None);
}

#[test]
fn what_clients_wrote_into_a_promoted_topic_is_dropped_with_consent_only() {
    let (source, _serving, cluster, mirror) = mirrored();
    let position = source.log("orders", 0, |log| log.end());
    stop(&cluster);
    write(&cluster, 3);
    let written = end(&cluster);
    produce(&source, "orders", 0, 2);
    cluster.want("orders", "mirroring:4");
    let standing = failed(&cluster, &mirror);
    assert_eq!((standing.reason, standing.retry_attempt), (Some(Reason::LocalRecords), -1));
    let message = standing.message.unwrap_or_default();
    assert!(message.contains(&format!("offsets {position} to {} (3 records)", written - 1)), "{message}");
    assert_eq!(end(&cluster), written);
    cluster.want("orders", "mirroring:5:truncate");
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(exported(&cluster), [(position + 1, written)]);
    assert_eq!(cluster.state().truncations[0].0.truncate, Truncate::To(Offset(position)));
    let standing = mirrors(&cluster, &mirror);
    assert_eq!(standing.reason, Some(Reason::LocalRecords), "it says where they are");
}

#[test]
fn a_position_is_believed_only_of_a_log_that_was_ended_for_its_source() {
    for ended_for in [None, Some("another source")] {
        let (source, _serving, cluster, mirror) = mirrored();
        stop(&cluster);
        write(&cluster, 3);
        let (partition, written) = (partition(&cluster), end(&cluster));
        // Meanwhile another mirror has filled the log, to below the position, and was stopped; or somebody has filled it.
        let position = cluster.state().positions[0].1.offset.0;
        let log_start = written + 10;
        {
            let mut state = cluster.state();
            let log = state.logs.get_mut(&partition).expect("it is there");
            let (_, epoch) = log.reset.expect("it was stopped");
            log.reset = ended_for.map(|_| (position, epoch));
            log.reset_of = ended_for.map(Into::into);
        }
        // The source has removed all that was there then, and has only epochs that are newer than any here.
        source.log("orders", 0, |log| {
            let epoch = cluster.leader_epoch(partition) + 100;
            log.batches.clear();
            (log.start, log.epochs) = (log_start, vec![(epoch, log_start)]);
        });
        produce(&source, "orders", 0, 2);
        cluster.want("orders", "mirroring:4");
        let standing = failed(&cluster, &mirror);
        assert_eq!(standing.reason, Some(Reason::LocalRecords), "{:?}", standing.message);
        assert_eq!(end(&cluster), written, "what clients wrote is here");
        cluster.want("orders", "mirroring:5:truncate");
        eventually(|| caught_up(&source, &cluster, "orders", 1));
        let exported = exported(&cluster);
        assert_eq!(exported[0].1, written, "{exported:?}");
        assert!(exported[0].0 < position, "{exported:?}: nothing is taken to be the source's");
    }
}

#[test]
fn records_of_a_topic_that_no_mirror_has_filled_are_exported_whole() {
    let source = Source::new("source");
    source.topic("orders", 1, 3);
    produce(&source, "orders", 0, 6);
    source.log("orders", 0, |log| {
        log.batches.remove(0);
        log.start = log.batches[0].0;
    });
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    cluster.bind("orders", source.id("orders"), Vec::new());
    write(&cluster, 4);
    cluster.want("orders", "mirroring:2:truncate");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(exported(&cluster), [(0, 4)]);
    let start = source.log("orders", 0, |log| log.start);
    assert_eq!(cluster.state().truncations[0].0.truncate, Truncate::Fully { start_at: Offset(start) });
    mirrors(&cluster, &mirror);
}

#[test]
fn a_mirrored_log_that_is_empty_is_begun_again_without_consent() {
    let source = Source::new("source");
    source.topic("orders", 1, 3);
    produce(&source, "orders", 0, 2);
    let _serving = source.serve();
    let end = source.log("orders", 0, |log| log.end());
    let cluster = Cluster::new(source.state().port, "orders");
    cluster.bind("orders", source.id("orders"), Vec::new());
    let partition = partition(&cluster);
    // The source has removed all that was mirrored, and was put back to before that.
    cluster.state().logs.insert(partition, Log { start: end + 5, ..Log::default() });
    cluster.persist(partition, MirrorState::Mirroring, 1);
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(exported(&cluster), []);
    assert_eq!(cluster.state().truncations[0].0.truncate, Truncate::Fully { start_at: Offset(0) });
    assert_eq!(mirrors(&cluster, &mirror).reason, None);
}

#[test]
fn a_compacted_topic_is_mirrored_again_from_the_beginning() {
    for compacted_here in [true, false] {
        let (source, _serving, cluster, mirror) = mirrored();
        source.state().compacted = !compacted_here;
        cluster.state().compacted = compacted_here;
        stop(&cluster);
        write(&cluster, 3);
        let written = end(&cluster);
        cluster.want("orders", "mirroring:4:truncate");
        eventually(|| caught_up(&source, &cluster, "orders", 1));
        assert_eq!(cluster.state().truncations[0].0.truncate, Truncate::Fully { start_at: Offset(0) });
        assert_eq!(exported(&cluster), [(0, written)], "the source may lack what an epoch alone says it has");
        mirrors(&cluster, &mirror);
    }
}

/// A mirror of one partition that has all of its source.
pub(crate) fn mirrored() -> (Source, Serving, Cluster, Mirroring) {
    let source = Source::new("source");
    source.topic("orders", 1, 3);
    produce(&source, "orders", 0, 6);
    let serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let node = MirrorNodeConfig { retry_initial_backoff_ms: 10, retry_max_backoff_ms: 40, ..node() };
    let mirror = Mirroring::with(&cluster, &node);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    (source, serving, cluster, mirror)
}

/// The source loses so many batches to an unclean election, and gets others. The offsets that are lost.
pub(crate) fn elect_uncleanly(source: &Source, batches: usize) -> (i64, i64) {
    source.log("orders", 0, |log| {
        let end = log.end();
        let kept = log.batches.len() - batches;
        log.batches.truncate(kept);
        let from = log.end();
        let epoch = log.epochs.last().map_or(0, |(epoch, _)| *epoch) + 1;
        log.lead_in(epoch);
        (0..4).for_each(|_| log.produce_another(2));
        (from, end)
    })
}

/// The source is restored: the same epoch, other records from this batch on, and a longer log than before. The first
/// offset that is another one.
fn restore_with_others_from(source: &Source, batch: usize) -> i64 {
    source.log("orders", 0, |log| {
        log.batches.truncate(batch);
        log.rewrite_newest();
        (0..9).for_each(|_| log.produce_another(2));
        log.batches[batch - 1].0
    })
}

/// Makes the topic writable.
fn stop(cluster: &Cluster) {
    cluster.want("orders", "stopping:2");
    eventually(|| cluster.wanted("orders") == "stopped:2");
}

/// Writes so many records as a client.
fn write(cluster: &Cluster, records: usize) {
    let partition = partition(cluster);
    let epoch = cluster.leader_epoch(partition);
    cluster.state().logs.get_mut(&partition).expect("it is there").write(records, epoch);
}

pub(crate) fn partition(cluster: &Cluster) -> TopicIdPartition {
    cluster.partition("orders", 0).expect("it is bound")
}

pub(crate) fn end(cluster: &Cluster) -> i64 {
    let partition = partition(cluster);
    cluster.state().logs[&partition].end()
}

/// Where what ended the log for its mirror is.
fn reset(cluster: &Cluster) -> Option<(i64, i32)> {
    let partition = partition(cluster);
    cluster.state().logs[&partition].reset
}

/// The offsets of the batches that were exported, for each cut that exported any.
fn exported(cluster: &Cluster) -> Vec<(i64, i64)> {
    let state = cluster.state();
    let ends = state.truncations.iter().filter_map(|(_, dropped)| {
        let (first, last) = (dropped.first()?.header(), dropped.last()?.header());
        Some((first.base_offset.0, last.next_offset().0))
    });
    ends.collect()
}

pub(crate) fn failed(cluster: &Cluster, mirror: &Mirroring) -> Standing {
    let is_failed = |now: &Standing| now.state == MirrorState::Failed && now.retry_attempt == -1;
    eventually_some(|| mirror.standing(cluster, "orders", 0).filter(is_failed))
}

pub(crate) fn mirrors(cluster: &Cluster, mirror: &Mirroring) -> Standing {
    let is_well = |now: &Standing| now.state == MirrorState::Mirroring && now.retry_attempt == 0;
    eventually_some(|| mirror.standing(cluster, "orders", 0).filter(is_well))
}
