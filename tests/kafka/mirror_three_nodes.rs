//! A source of three nodes moves its leaders and its replicas; the mirror follows by itself.

use std::time::Duration;
use tarn_tests::cluster::Cluster;
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::dataset::fill;
use tarn_tests::kafka::ThreeNodes;
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::{kcat, tool};
use tarn_tests::waiting::until_some;

const COPIED: Duration = Duration::from_secs(60);
const MOVED: Duration = Duration::from_secs(60);

/// The topics that are written to between the moves.
const WRITTEN: [&str; 3] = ["codec.none", "codec.zstd", ALONE];
/// The topic of which one node has the only replica in the end.
const ALONE: &str = "empty";

/// Each replica at the source compacts for itself and notes its own delete horizons, so after a change of
/// leader Kafka's own copies of a compacted partition differ.
fn mirrored(topic: &str) -> bool {
    !topic.starts_with("__") && !topic.starts_with("compacted")
}

#[test]
fn reassignment_election_and_the_death_of_a_node_at_the_source_are_followed() {
    let mut source = ThreeNodes::start();
    fill(&source.bootstrap(), &source.nodes[0].controller(), 20_000, 3, None);
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", ".*");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);

    reassign(&source, "codec.none", 0, &[2, 3]);
    await_leader(&source, "codec.none", 0, &[2, 3]);
    append_everywhere(&source, "after the reassignment");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);

    reassign(&source, "codec.none", 0, &[1, 2, 3]);
    until_some("a preferred leader", MOVED, || {
        let elect = ["--bootstrap-server", &source.bootstrap(), "--election-type", "preferred"];
        tool("LeaderElectionCommand", &[&elect[..], &["--topic", "codec.none", "--partition", "0"]].concat());
        match leader(&source, "codec.none", 0) {
            1 => Ok(()),
            other => Err(format!("node {other} leads")),
        }
    });
    append_everywhere(&source, "after the election");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);

    // One partition has no other replica: while its node is dead it has no leader, for as long as we look.
    reassign(&source, ALONE, 0, &[1]);
    await_leader(&source, ALONE, 0, &[1]);
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);

    // The kit's own connections go to a node that stays.
    let rest = format!("{},{}", source.nodes[1].bootstrap(), source.nodes[2].bootstrap());
    source.nodes[0].kill();
    await_leader(&source, "codec.none", 0, &[2, 3]);
    append_to(&rest, &["codec.none", "codec.zstd"], "after a death");
    await_mirrored(&rest, &tarn.bootstrap(), |topic| mirrored(topic) && topic != ALONE, COPIED);
    until_some("a reason beside the partition without a leader", MOVED, || {
        let found =
            tarn.describe_mirror("m").into_iter().find(|one| one.topic == ALONE && one.partition == 0);
        let alone = found.ok_or("it is not shown")?;
        match alone.reason_code.as_deref() {
            Some("SOURCE_UNREACHABLE" | "SOURCE_LEADER_UNKNOWN") if alone.error_message.is_some() => Ok(()),
            _ => Err(format!("{alone:?}")),
        }
    });
    source.nodes[0].start_again();
    await_leader(&source, ALONE, 0, &[1]);
    append_to(&rest, &WRITTEN, "after its return");
    await_mirrored(&rest, &tarn.bootstrap(), mirrored, COPIED);
    assert_identical(&rest, &tarn.bootstrap(), mirrored);
    for partition in tarn.describe_mirror("m") {
        assert_eq!(partition.state, "MIRRORING", "{partition:?}");
    }
}

fn append_everywhere(source: &ThreeNodes, text: &str) {
    append_to(&source.bootstrap(), &WRITTEN, text);
}

fn append_to(bootstrap: &str, topics: &[&str], text: &str) {
    for topic in topics {
        kcat(&["-P", "-b", bootstrap, "-t", topic, "-p", "0"], Some(format!("{text}\n").as_bytes())).ok();
    }
}

fn reassign(source: &ThreeNodes, topic: &str, partition: i32, replicas: &[i32]) {
    let directory = tempfile::tempdir().expect("there is room");
    let file = directory.path().join("plan.json");
    let plan = serde_json::json!({
        "version": 1,
        "partitions": [{"topic": topic, "partition": partition, "replicas": replicas}],
    });
    std::fs::write(&file, plan.to_string()).expect("there is room");
    let file = file.display().to_string();
    let arguments = ["--bootstrap-server", &source.bootstrap(), "--reassignment-json-file", &file];
    tool("reassign.ReassignPartitionsCommand", &[&arguments[..], &["--execute"]].concat()).ok();
    until_some("the end of the reassignment", MOVED, || {
        let said = tool("reassign.ReassignPartitionsCommand", &[&arguments[..], &["--verify"]].concat()).ok();
        if said.contains("is completed") { Ok(()) } else { Err(said) }
    });
}

fn leader(source: &ThreeNodes, topic: &str, partition: usize) -> i32 {
    let bootstrap = source.nodes[1].bootstrap();
    Cluster::connect(&bootstrap).topic(topic).partitions[partition].leader
}

fn await_leader(source: &ThreeNodes, topic: &str, partition: usize, among: &[i32]) {
    until_some(&format!("a leader among {among:?}"), MOVED, || {
        let leader = leader(source, topic, partition);
        if among.contains(&leader) { Ok(()) } else { Err(format!("node {leader} leads")) }
    });
}
