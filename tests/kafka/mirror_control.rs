//! The verbs of `tarn mirror`, and the states they show, against a live source.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tarn_tests::cluster::Cluster;
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::dataset::Source;
use tarn_tests::kafka::{CLUSTER_ID, KafkaNode, NodeOptions};
use tarn_tests::relay::Relay;
use tarn_tests::tarn::{MirrorPartition, Tarn, TarnOptions};
use tarn_tests::tools::{kcat, tool};
use tarn_tests::waiting::until_some;

const COPIED: Duration = Duration::from_secs(60);
/// From a fetch that waits at the source to its record here, on a busy machine. A fetch that nothing wakes
/// would take `PARKED_MS`.
const WOKEN: Duration = Duration::from_secs(10);
const PARKED_MS: i32 = 25_000;

fn mirrored(topic: &str) -> bool {
    !topic.starts_with("__")
}

#[test]
fn a_mirror_goes_from_alignment_to_mirroring_and_never_through_failed() {
    let relay = Relay::start();
    let source = Source::start_with(NodeOptions { relay_port: Some(relay.port()), ..NodeOptions::default() });
    relay.connect_to(&source.node.relayed());
    let mut tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&relay.address(), "m", ".*");
    let seen = states_until_mirroring(&tarn);
    assert!(!seen.contains("FAILED"), "{seen:?}");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    tarn.stop();
    relay.cut();
    tarn.start_again();
    // Until the histories are compared and a fetcher lives, it must not say MIRRORING.
    until_some("every partition to wait for the source", COPIED, || {
        let partitions = tarn.describe_mirror("m");
        let says_mirroring = partitions.iter().find(|one| one.state == "MIRRORING");
        assert!(says_mirroring.is_none(), "nothing is compared yet: {says_mirroring:?}");
        let waits = |one: &&MirrorPartition| one.reason_code.as_deref() == Some("SOURCE_UNREACHABLE");
        match partitions.iter().filter(waits).count() {
            waiting if waiting > 30 && waiting == partitions.len() => Ok(()),
            waiting => Err(format!("{waiting} of {}", partitions.len())),
        }
    });
    relay.mend();
    let seen = states_until_mirroring(&tarn);
    assert!(!seen.contains("FAILED"), "{seen:?}");
}

#[test]
fn every_fetch_that_waits_on_a_partition_wakes_when_a_record_is_mirrored() {
    let source = KafkaNode::start(&NodeOptions::default());
    create_topic(&source.bootstrap(), "t", "1");
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", "t");
    append(&source, "t", "first");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    let bootstrap = tarn.bootstrap();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                scope.spawn(|| {
                    let mut cluster = Cluster::connect(&bootstrap);
                    let topic = cluster.topic("t");
                    let batches = cluster.try_await_batches_at(&topic, &topic.partitions[0], 1, PARKED_MS);
                    (Instant::now(), batches)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(1000));
        let appended = Instant::now();
        append(&source, "t", "second");
        for wait in waiting {
            let (woken, batches) = wait.join().unwrap();
            assert_eq!(batches.unwrap().len(), 1);
            assert!(woken - appended < WOKEN, "woken {:?} after the append", woken - appended);
        }
    });
}

#[test]
fn new_topics_that_match_are_found_and_partitions_grow() {
    let source = KafkaNode::start(&NodeOptions::default());
    create_topic(&source.bootstrap(), "a.first", "1");
    create_topic(&source.bootstrap(), "other", "1");
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", "a\\..*");
    let matching = |topic: &str| topic.starts_with("a.");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), matching, COPIED);
    create_topic(&source.bootstrap(), "a.second", "2");
    append(&source, "a.second", "in a new topic");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), matching, COPIED);
    let grow =
        ["--bootstrap-server", &source.bootstrap(), "--alter", "--topic", "a.first", "--partitions", "3"];
    tool("TopicCommand", &grow).ok();
    let in_a_new_partition = ["-P", "-b", &source.bootstrap(), "-t", "a.first", "-p", "2"];
    kcat(&in_a_new_partition, Some(b"in a new partition\n")).ok();
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), matching, COPIED);
    let compared = assert_identical(&source.bootstrap(), &tarn.bootstrap(), matching);
    assert_eq!((compared.partitions, compared.records), (5, 2));
    let names: Vec<String> =
        Cluster::connect(&tarn.bootstrap()).topics().into_iter().map(|topic| topic.name).collect();
    assert_eq!(names, ["a.first", "a.second"]);
}

#[test]
fn topics_are_created_with_the_sources_configs() {
    let source = KafkaNode::start(&NodeOptions::default());
    let create = ["--bootstrap-server", &source.bootstrap(), "--create", "--topic", "t", "--partitions", "2"];
    let configs = ["--config", "cleanup.policy=compact", "--config", "max.message.bytes=2000000"];
    tool("TopicCommand", &[&create[..], &configs].concat()).ok();
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", "t");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    let describe = ["--bootstrap-server", &tarn.bootstrap(), "--describe", "--topic", "t"];
    let described = tool("TopicCommand", &describe).ok();
    for shown in ["cleanup.policy=compact", "max.message.bytes=2000000", "mirror.name=m"] {
        assert!(described.contains(shown), "no {shown} in {described}");
    }
}

#[test]
fn verbs_list_describe_and_can_be_repeated() {
    let source = KafkaNode::start(&NodeOptions::default());
    create_topic(&source.bootstrap(), "t", "2");
    let tarn = Tarn::start(&TarnOptions::default());
    assert!(tarn.mirror("list", &[]).ok().contains("No mirrors found"));
    tarn.mirror_from(&source.bootstrap(), "m", "t");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    tarn.mirror("start", &["--mirror", "m", "--topics", "t"]).ok();
    let listed = tarn.mirror("list", &[]).ok();
    for shown in ["m", CLUSTER_ID, &source.bootstrap()] {
        assert!(listed.contains(shown), "no {shown} in {listed}");
    }
    let described = tarn.mirror("describe", &["--mirror", "m"]).ok();
    assert!(described.contains("MIRROR") && described.contains("SOURCE-OFFSET"), "{described}");
    let mut partitions: Vec<(String, i64)> =
        tarn.describe_mirror("m").into_iter().map(|one| (one.topic, one.partition)).collect();
    partitions.sort();
    assert_eq!(partitions, [("t".into(), 0), ("t".into(), 1)]);
}

/// Every state that any partition shows until all show MIRRORING without a reason.
fn states_until_mirroring(tarn: &Tarn) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    until_some("every partition to mirror", COPIED, || {
        let partitions = tarn.describe_mirror("m");
        seen.extend(partitions.iter().map(|one| one.state.clone()));
        let well = |one: &MirrorPartition| one.state == "MIRRORING" && one.reason_code.is_none();
        match partitions.iter().find(|one| !well(one)) {
            None if partitions.len() > 30 => Ok(()),
            waiting => Err(format!("{waiting:?} of {}", partitions.len())),
        }
    });
    seen
}

fn create_topic(bootstrap: &str, name: &str, partitions: &str) {
    let arguments =
        ["--bootstrap-server", bootstrap, "--create", "--topic", name, "--partitions", partitions];
    tool("TopicCommand", &arguments).ok();
}

fn append(source: &KafkaNode, topic: &str, text: &str) {
    kcat(&["-P", "-b", &source.bootstrap(), "-t", topic, "-p", "0"], Some(format!("{text}\n").as_bytes()))
        .ok();
}
