//! Truncations of which nobody was told: the process died, or another verb came first. What was exported is named all
//! the same, and whoever reads the log is made to look.

use tarn_image::config::server::MirrorNodeConfig;
use tarn_mirror::state::MirrorState;

use super::cluster::Cluster;
use super::diverged::{elect_uncleanly, failed, mirrored, mirrors, partition};
use super::{Mirroring, caught_up, eventually, node, produce, written};

const EXPORT: &str = "/exports/it";

#[test]
fn a_process_that_dies_after_a_truncation_leaves_its_export_to_be_named_by_the_next() {
    let (source, _serving, cluster, mirror) = mirrored();
    let led_in = truncate_untold(&source, &cluster, &mirror);
    drop(mirror);
    cluster.state().truncates_in_silence = false;
    let mirror = again(&cluster);
    let standing = mirrors(&cluster, &mirror);
    assert!(standing.message.is_some_and(|said| said.contains(EXPORT)));
    assert_eq!(reported(&cluster).as_deref(), Some(EXPORT));
    assert!(cluster.leader_epoch(partition(&cluster)) > led_in);
    assert_eq!(cluster.state().truncations.len(), 1);
    // It is said once, and not again by each start.
    let states = written(&cluster, 0);
    drop(mirror);
    let mirror = again(&cluster);
    mirrors(&cluster, &mirror);
    assert_eq!(written(&cluster, 0), states);
}

#[test]
fn consent_that_was_used_before_the_process_died_drops_nothing_that_parts_afterwards() {
    let (source, _serving, cluster, mirror) = mirrored();
    truncate_untold(&source, &cluster, &mirror);
    drop(mirror);
    cluster.state().truncates_in_silence = false;
    // It loses all that it got meanwhile, and one batch that the log here still has.
    elect_uncleanly(&source, 5);
    let mirror = again(&cluster);
    assert_eq!(failed(&cluster, &mirror).state, MirrorState::Failed);
    assert_eq!(cluster.state().truncations.len(), 1);
    cluster.want("orders", "mirroring:3:truncate");
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    assert_eq!(cluster.state().truncations.len(), 2);
}

#[test]
fn a_stop_that_overtakes_the_answer_of_a_truncation_names_what_was_exported() {
    let (source, _serving, cluster, mirror) = mirrored();
    let led_in = truncate_untold(&source, &cluster, &mirror);
    cluster.want("orders", "stopping:3");
    eventually(|| cluster.wanted("orders") == "stopped:3");
    assert_eq!(reported(&cluster).as_deref(), Some(EXPORT));
    assert!(cluster.leader_epoch(partition(&cluster)) > led_in);
}

#[test]
fn what_was_exported_before_a_pause_that_overtook_its_answer_is_named_once_it_is_resumed() {
    let (source, _serving, cluster, mirror) = mirrored();
    let led_in = truncate_untold(&source, &cluster, &mirror);
    let looked_up = || cluster.state().asked.get("noted").copied().unwrap_or(0);
    let before = looked_up();
    cluster.want("orders", "paused:3");
    eventually(|| looked_up() > before);
    cluster.state().truncates_in_silence = false;
    cluster.want("orders", "mirroring:4");
    eventually(|| reported(&cluster).as_deref() == Some(EXPORT));
    eventually(|| cluster.leader_epoch(partition(&cluster)) > led_in);
}

#[test]
fn a_note_that_cannot_be_read_holds_up_neither_mirroring_nor_a_stop() {
    let (source, _serving, cluster, mirror) = mirrored();
    drop(mirror);
    cluster.state().notes_are_unreadable = true;
    let mirror = again(&cluster);
    produce(&source, "orders", 0, 1);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    drop(mirror);
    cluster.want("orders", "stopping:2");
    let _mirror = again(&cluster);
    eventually(|| cluster.wanted("orders") == "stopped:2");
}

/// The log is truncated by consent, and nobody is told. The leader epoch in which that was.
fn truncate_untold(source: &super::source::Source, cluster: &Cluster, mirror: &Mirroring) -> i32 {
    cluster.state().truncates_in_silence = true;
    elect_uncleanly(source, 2);
    assert_eq!(failed(cluster, mirror).state, MirrorState::Failed);
    let led_in = cluster.leader_epoch(partition(cluster));
    cluster.want("orders", "mirroring:2:truncate");
    eventually(|| cluster.state().truncations.len() == 1);
    led_in
}

fn again(cluster: &Cluster) -> Mirroring {
    let node = MirrorNodeConfig { retry_initial_backoff_ms: 10, retry_max_backoff_ms: 40, ..node() };
    Mirroring::with(cluster, &node)
}

/// The export that the report names.
fn reported(cluster: &Cluster) -> Option<String> {
    let report = cluster.reports().remove(&partition(cluster))?;
    report.export_file.map(|file| file.to_string())
}
