//! A change of configuration reaches what is open.

use std::path::Path;
use std::time::{Duration, Instant};

use tarn_wire::ErrorCode;
use tarn_wire::messages::describe_topic_partitions_request::TopicRequest;
use tarn_wire::messages::{DescribeTopicPartitionsRequest, MetadataRequest};

use crate::running::{Client, Running, refusal};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const HALF_A_SEGMENT: usize = 600 * 1024;

#[test]
fn a_node_of_one_role_is_refused() {
    for roles in ["broker", "controller"] {
        let listeners = match roles {
            "broker" => "listeners=PLAINTEXT://127.0.0.1:0\n",
            _ => "listeners=CONTROLLER://127.0.0.1:0\n",
        };
        let refused = refusal(&format!("process.roles={roles}\n{listeners}"));
        assert!(refused.contains("process.roles must name both"), "{refused}");
    }
}

#[test]
fn a_core_on_a_cpu_that_is_not_there_keeps_the_node_from_starting() {
    let refused = refusal("tarn.cores=0,1000\n");
    assert!(
        refused.starts_with("tarn.cores names CPU 1000; the CPUs that this process may use are 0"),
        "{refused}"
    );
}

#[test]
fn a_broker_default_reaches_the_logs_that_are_open() {
    let node = Running::new("");
    let mut client = node.client();
    client.create("t", 1, &[]);
    client.create("own", 1, &[("segment.bytes", "104857600")]);
    client.alter(BROKER, "", "log.segment.bytes", "1048576");
    for topic in ["t", "own"] {
        (0..4).for_each(|_| assert_eq!(client.produce(topic, 1, HALF_A_SEGMENT).error_code, 0));
    }
    assert_eq!(segments(&node.log("t", 0)), 4, "the default rules it");
    assert_eq!(segments(&node.log("own", 0)), 1, "its own config rules it");
}

#[test]
fn a_config_of_this_broker_and_one_of_the_topic_reach_the_log_in_their_order() {
    let node = Running::new("");
    let mut client = node.client();
    client.create("t", 1, &[]);
    client.alter(BROKER, "1", "log.segment.bytes", "1048576");
    (0..2).for_each(|_| assert_eq!(client.produce("t", 1, HALF_A_SEGMENT).error_code, 0));
    assert_eq!(segments(&node.log("t", 0)), 2);
    client.alter(TOPIC, "t", "segment.bytes", "104857600");
    (0..2).for_each(|_| assert_eq!(client.produce("t", 1, HALF_A_SEGMENT).error_code, 0));
    assert_eq!(segments(&node.log("t", 0)), 2);
}

#[test]
fn an_answer_describes_as_many_partitions_as_the_node_allows() {
    let node = Running::new("max.request.partition.size.limit=2\n");
    let mut client = node.client();
    client.create("t", 3, &[]);
    let topics = vec![TopicRequest { name: "t".into() }];
    let request = DescribeTopicPartitionsRequest { topics, ..Default::default() };
    let answer = client.call(0, &request);
    assert_eq!(answer.topics[0].partitions.len(), 2);
    assert_eq!(answer.next_cursor.map(|next| next.partition_index), Some(2));
}

#[test]
fn limits_of_connections_that_are_altered_hold_at_once() {
    let node = Running::new("");
    let mut first = node.client();
    first.create("t", 1, &[]);
    let alter = |client: &mut Client, key: &str, value: &str| client.alter(BROKER, "", key, value);
    alter(&mut first, "max.connections.per.ip", "2");
    let mut second = node.client();
    assert!(second.is_served());
    assert!(!node.client().is_served(), "it is the third");
    alter(&mut first, "max.connections.per.ip.overrides", "127.0.0.1:3");
    let mut third = node.client();
    assert!(third.is_served() && !node.client().is_served());
    alter(&mut first, "max.connections.per.ip.overrides", "");
    assert!(first.is_served() && second.is_served() && third.is_served(), "who is there stays");
    drop(third);
    alter(&mut first, "max.connections.per.ip", "100");
    assert!(node.client().is_served());
}

#[test]
fn connections_beyond_the_most_wait_until_there_may_be_more() {
    let node = Running::new("");
    let mut first = node.client();
    first.alter(BROKER, "1", "max.connections", "1");
    let mut waits = node.client();
    waits.send(9, &MetadataRequest::default());
    first.alter(BROKER, "1", "max.connections", "2");
    assert_eq!(waits.receive::<MetadataRequest>(9).brokers.len(), 1);
}

#[test]
fn connections_come_as_fast_as_is_configured_now() {
    let node = Running::new("");
    node.client().alter(BROKER, "", "max.connection.creation.rate", "5");
    let began = Instant::now();
    for _ in 0..8 {
        assert!(node.client().is_served());
    }
    // Five at once, and then each a fifth of a second after the other.
    assert!(began.elapsed() >= Duration::from_millis(450), "{:?}", began.elapsed());
}

#[test]
fn a_list_of_hosts_that_is_none_is_refused() {
    let node = Running::new("");
    let (refused, why) = node.client().try_alter(BROKER, "", "max.connections.per.ip.overrides", "127.0.0.1");
    assert_eq!(refused, ErrorCode::INVALID_REQUEST.0);
    assert!(why.is_some_and(|why| why.contains("host:count")));
}

#[test]
fn the_largest_batch_of_all_topics_is_altered_at_once() {
    let node = Running::new("");
    let mut client = node.client();
    client.create("t", 1, &[]);
    assert_eq!(client.produce("t", 1, 100_000).error_code, 0);
    client.alter(BROKER, "", "message.max.bytes", "50000");
    assert_eq!(client.produce("t", 1, 100_000).error_code, ErrorCode::MESSAGE_TOO_LARGE.0);
    client.alter(BROKER, "", "message.max.bytes", "200000");
    assert_eq!(client.produce("t", 1, 100_000).error_code, 0);
}

fn segments(log: &Path) -> usize {
    let files = std::fs::read_dir(log).expect("the log is there");
    files
        .filter(|file| file.as_ref().is_ok_and(|file| file.path().extension() == Some("log".as_ref())))
        .count()
}
