//! What is said of topics before a mirror begins with them or tries them again.

use std::collections::HashMap;
use std::time::Duration;

use tarn_mirror::existing::{Found, Known, Which, look};
use tarn_mirror::limits;
use tarn_mirror::reasons::Reason;
use tarn_record::{TopicId, TopicIdPartition};
use tarn_runtime::{CoreSpec, spawn_core};
use tarn_wire::ErrorCode;

use super::cluster::{Cluster, Log};

#[test]
fn a_thousand_topics_are_looked_at_with_one_question_of_each_kind() {
    let cluster = Cluster::new(1, "none");
    let topics: Vec<TopicId> = (0..1_000).map(|number| filled(&cluster, number, 2)).collect();
    let found = found_in(&cluster, &topics, limits::COUNTED_WITHIN);
    assert_eq!(found.len(), 1_000);
    for ranges in found.values() {
        let ranges = ranges.as_ref().expect("it is known");
        assert_eq!((ranges[0].from.0, ranges[0].to.0, ranges[0].suffix.records), (0, 2, 2));
    }
    assert_eq!(cluster.state().asked.get("count"), Some(&1));
    let counted: u64 = cluster.state().count_orders.iter().map(|order| order.records_max).sum();
    assert!(counted <= limits::COUNTED_TOGETHER_MAX, "{counted}");
}

#[test]
fn a_log_that_cannot_be_read_is_refused_and_no_other_with_it() {
    let cluster = Cluster::new(1, "none");
    let (damaged, empty, other) = (filled(&cluster, 0, 3), filled(&cluster, 1, 0), filled(&cluster, 2, 3));
    cluster.state().cannot_read = Some(damaged);
    let found = found_in(&cluster, &[damaged, empty, other], limits::COUNTED_WITHIN);
    let why = found[&damaged].as_ref().expect_err("it is not known what it holds");
    assert_eq!((why.error, why.reason), (ErrorCode::KAFKA_STORAGE_ERROR, Reason::DestinationStorage));
    assert!(why.why.contains("try again"), "{why:?}");
    assert_eq!(found[&empty], Ok(Vec::new()));
    assert_eq!(found[&other].as_ref().map(Vec::len), Ok(1));
}

#[test]
fn what_cannot_be_counted_in_time_is_refused() {
    let cluster = Cluster::new(1, "none");
    let (topic, empty) = (filled(&cluster, 0, 3), filled(&cluster, 1, 0));
    cluster.state().counts_for_ever = true;
    let found = found_in(&cluster, &[topic, empty], Duration::from_millis(5));
    assert_eq!(found[&topic].as_ref().map_err(|why| why.error), Err(ErrorCode::REQUEST_TIMED_OUT));
    assert_eq!(found[&empty], Ok(Vec::new()), "nothing is to be counted in it");
}

/// A topic that no mirror has filled, with so many records.
fn filled(cluster: &Cluster, number: usize, records: usize) -> TopicId {
    let topic = TopicId::random();
    cluster.bind_as(&format!("topic-{number}"), topic, 1, "stopped:1");
    let partition = cluster.partition(&format!("topic-{number}"), 0).expect("it is bound");
    let mut log = Log::default();
    if records > 0 {
        log.write(records, 0);
    }
    cluster.state().logs.insert(partition, log);
    topic
}

fn found_in(cluster: &Cluster, topics: &[TopicId], within: Duration) -> Found {
    let (cluster, topics) = (cluster.clone(), topics.to_vec());
    let core = spawn_core(CoreSpec { cpu: None, name: "existing".into() }, move || async move {
        let read = async |partitions: Vec<TopicIdPartition>| -> Known {
            partitions.into_iter().map(|partition| (partition, Ok(None))).collect::<HashMap<_, _>>()
        };
        look(&cluster, &topics, Which::All, within, read).await
    });
    core.expect("a core can be made").join()
}
