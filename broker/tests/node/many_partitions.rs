//! Answers about so many partitions that they are made beside the core, and kept.

use tarn_wire::messages::metadata_request::MetadataRequestTopic;
use tarn_wire::messages::{DescribeTopicPartitionsRequest, MetadataRequest};

use crate::running::{Client, Running};

const PARTITIONS: i32 = 1100;

#[test]
fn all_topics_are_told_as_each_is_and_as_they_are_now() {
    let node = Running::new("");
    let mut client = node.client();
    ["a", "b"].iter().for_each(|topic| client.create(topic, PARTITIONS, &[]));
    for version in [0, 7, 12, 13, 12] {
        is_complete(&mut client, version, &["a", "b"]);
    }
    client.create("c", 1, &[]);
    is_complete(&mut client, 12, &["a", "b", "c"]);
    client.delete("b");
    is_complete(&mut client, 12, &["a", "c"]);
    // Another connection of another core has the same.
    (0..4).for_each(|_| is_complete(&mut node.client(), 12, &["a", "c"]));
}

#[test]
fn pages_of_partitions_follow_each_other() {
    let node = Running::new("");
    let mut client = node.client();
    [("a", 3), ("b", 5), ("c", 1)].iter().for_each(|(topic, count)| client.create(topic, *count, &[]));
    let (mut seen, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let request = DescribeTopicPartitionsRequest {
            response_partition_limit: 2,
            cursor: cursor.take(),
            ..Default::default()
        };
        let page = client.call(0, &request);
        for topic in page.topics {
            let name = topic.name.expect("it has one").to_string();
            seen.extend(topic.partitions.iter().map(|one| (name.clone(), one.partition_index)));
        }
        pages += 1;
        let Some(next) = page.next_cursor else { break };
        cursor = Some(tarn_wire::messages::describe_topic_partitions_request::Cursor {
            topic_name: next.topic_name,
            partition_index: next.partition_index,
        });
    }
    let all: Vec<_> = [("a", 3), ("b", 5), ("c", 1)]
        .iter()
        .flat_map(|(topic, count)| (0..*count).map(|index| ((*topic).to_owned(), index)))
        .collect();
    assert_eq!((seen, pages), (all, 5));
}

/// What is said of all topics is what is said of each alone, which is made on the core.
fn is_complete(client: &mut Client, version: i16, topics: &[&str]) {
    let request = match version {
        0 => MetadataRequest { topics: Some(Vec::new()), ..Default::default() },
        _ => MetadataRequest { topics: None, ..Default::default() },
    };
    let all = client.call(version, &request).topics;
    let names: Vec<_> = all.iter().map(|topic| topic.name.clone().expect("it has one").to_string()).collect();
    assert_eq!(names, topics, "version {version}");
    for topic in all {
        let name = topic.name.clone();
        let named = MetadataRequestTopic { name, ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![named]), ..Default::default() };
        assert_eq!(client.call(version, &request).topics, [topic], "version {version}");
    }
}
