//! Fetches of what memory does not have, and of more than an answer has room for.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use rustix::fs::{Advice, fadvise};
use tarn_wire::ErrorCode;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::messages::{FetchRequest, FetchResponse};

use crate::running::{Client, Running};

#[test]
fn records_that_the_kernel_has_let_go_are_read_all_the_same() {
    let node = Running::new("tarn.cores=0\n");
    let mut client = node.client();
    let topics = ["a", "b", "c"];
    for topic in topics {
        client.create(topic, 1, &[]);
        fill(&mut client, topic, 40, 50_000);
    }
    for with_session in [true, false] {
        let mut reader = Reader::new(&topics, with_session);
        while topics.iter().any(|topic| reader.offset(topic) < 40) {
            topics.iter().for_each(|topic| let_go(&node.log(topic, 0)));
            let sent = reader.fetch(&mut client, 500_000);
            assert!(!sent.is_empty(), "it waits for the disk, though it is not to wait for a producer");
        }
    }
}

#[test]
fn no_partition_starves_whatever_the_order_and_however_many_cores_own_them() {
    let node = Running::new("tarn.cores=0,0\n");
    let mut client = node.client();
    let topics: Vec<String> = (0..8).map(|number| format!("t{number}")).collect();
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    for topic in &names {
        client.create(topic, 1, &[]);
        // Of different sizes: small batches fit where large ones do not.
        let bytes = if *topic == "t3" { 1500 } else { 400 };
        fill(&mut client, topic, 100, bytes);
    }
    for with_session in [true, false] {
        let mut reader = Reader::new(&names, with_session);
        let mut served: BTreeMap<String, u32> = BTreeMap::new();
        for _ in 0..64 {
            for topic in reader.fetch(&mut client, 2000) {
                *served.entry(topic).or_default() += 1;
            }
        }
        let (least, most) = (served.values().min(), served.values().max());
        assert!(served.len() == 8 && least >= Some(&4), "{with_session}: {served:?}");
        assert!(
            most.zip(least).is_some_and(|(most, least)| most <= &(least * 4)),
            "{with_session}: {served:?}"
        );
    }
}

/// Writes so many records of so many bytes; all of them are committed then.
fn fill(client: &mut Client, topic: &str, records: i32, bytes: usize) {
    for number in 1..=records {
        let acks = if number == records { -1 } else { 1 };
        assert_eq!(client.produce(topic, acks, bytes).error_code, 0);
    }
}

/// A consumer as Kafka's: what had records is asked for last the next time.
struct Reader {
    /// Topics in the order of the next request, and the next offset of each.
    wanted: Vec<(String, i64)>,
    session: (i32, i32),
    with_session: bool,
    /// What the session does not know yet.
    moved: Vec<String>,
}

impl Reader {
    fn new(topics: &[&str], with_session: bool) -> Reader {
        let wanted: Vec<_> = topics.iter().map(|topic| ((*topic).to_owned(), 0)).collect();
        let moved = wanted.iter().map(|(topic, _)| topic.clone()).collect();
        Reader { wanted, session: (0, if with_session { 0 } else { -1 }), with_session, moved }
    }

    fn offset(&self, topic: &str) -> i64 {
        self.wanted.iter().find(|(name, _)| name == topic).expect("it is wanted").1
    }

    /// Fetches once, and moves on; the topics whose records came.
    fn fetch(&mut self, client: &mut Client, max_bytes: i32) -> Vec<String> {
        let named = self.wanted.iter().filter(|(topic, _)| !self.with_session || self.moved.contains(topic));
        let topics = named.map(|(topic, offset)| asked(topic, *offset)).collect();
        let (session_id, session_epoch) = self.session;
        let request = FetchRequest {
            replica_id: -1,
            min_bytes: 1,
            max_bytes,
            session_id,
            session_epoch,
            topics,
            ..Default::default()
        };
        let answer = client.call(12, &request);
        assert_eq!(answer.error_code, 0);
        if self.with_session {
            self.session = (answer.session_id, session_epoch + 1);
        }
        self.moved = self.move_on(&answer);
        self.moved.clone()
    }

    fn move_on(&mut self, answer: &FetchResponse) -> Vec<String> {
        let mut sent = Vec::new();
        for topic in &answer.responses {
            let partition = &topic.partitions[0];
            assert_eq!(partition.error_code, ErrorCode::NONE.0);
            let bytes = partition.records.as_ref().and_then(|records| records.to_bytes()).unwrap_or_default();
            // The last may be cut short.
            let Some(last) = tarn_record::batches(bytes).map_while(Result::ok).last() else { continue };
            let at = self.wanted.iter().position(|(name, _)| **name == *topic.topic).expect("it is wanted");
            let (name, _) = self.wanted.remove(at);
            sent.push(name.clone());
            self.wanted.push((name, last.header().next_offset().0));
        }
        sent
    }
}

fn asked(topic: &str, fetch_offset: i64) -> FetchTopic {
    let partition = FetchPartition {
        fetch_offset,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    FetchTopic { topic: topic.into(), partitions: vec![partition], ..Default::default() }
}

/// Has the kernel forget what it has in memory of the files in a directory, where it does.
fn let_go(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("it is a directory") {
        // A checkpoint may just have been replaced by a new one.
        let Ok(file) = File::open(entry.expect("it can be read").path()) else { continue };
        file.sync_all().expect("the disk works");
        fadvise(&file, 0, None, Advice::DontNeed).expect("it is a file");
    }
}
