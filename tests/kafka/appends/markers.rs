//! WriteTxnMarkers and DescribeProducers.

use bytes::Bytes;
use tarn_record::{Compression, ProducerEpoch, ProducerId, Sequence};
use tarn_tests::cluster::Cluster;
use tarn_tests::dump;
use tarn_tests::golden::replaced;
use tarn_tests::raw::RawClient;
use tarn_wire::messages::describe_producers_request::TopicRequest;
use tarn_wire::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use tarn_wire::messages::{DescribeProducersRequest, WriteTxnMarkersRequest};

use super::making::{good, with_header};
use super::{Both, Differences, Sent, UNVERIFIED};

/// One step of a story on one partition.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Three records of a transaction: epoch, first sequence.
    Records(i16, i32),
    /// Three records outside of any.
    Plain(i16, i32),
    /// The end: epoch, epoch of the coordinator.
    Commit(i16, i32),
    Abort(i16, i32),
    /// The same as transactions of version 2 end.
    BumpedCommit(i16, i32),
    BumpedAbort(i16, i32),
}

use Step::{Abort, BumpedAbort, BumpedCommit, Commit, Plain, Records};

const STORIES: [&[Step]; 12] = [
    &[Records(0, 0), Commit(0, 5), Records(0, 3), Abort(0, 5)],
    &[Records(0, 0), Plain(0, 3), Abort(0, 0), Plain(0, 3)],
    &[Commit(0, 0), Abort(0, 0), Records(0, 0), Abort(0, 0)],
    &[Records(3, 0), Commit(2, 0), Commit(3, 0), Records(2, 3), Records(3, 3)],
    &[Records(0, 0), Abort(0, 7), Records(0, 3), Commit(0, 6), Commit(0, 7), Commit(0, 6)],
    &[Records(0, 0), Abort(1, 0), Records(0, 3), Records(1, 3), Records(1, 0), Commit(1, 0)],
    &[Records(0, 0), BumpedCommit(0, 0), BumpedCommit(1, 0), Records(0, 3), Records(1, 0), BumpedAbort(2, 0)],
    &[
        Records(0, 0),
        BumpedAbort(1, 0),
        BumpedAbort(1, 0),
        BumpedAbort(0, 0),
        Records(1, 0),
        BumpedAbort(1, 0),
    ],
    &[Commit(0, -1), Records(0, 0), Commit(0, -1)],
    &[BumpedCommit(0, 0), BumpedCommit(0, 0), Records(0, 0)],
    &[Records(32767, 0), Commit(32767, 2147483647), Abort(32767, 2147483646)],
    &[Records(0, 0), Commit(0, 0), Commit(0, 0), Records(0, 0), Records(0, 3), Commit(0, 0)],
];

#[test]
fn markers_are_taken_and_refused_as_kafka_does_and_leave_the_same_logs() {
    let mut both = Both::start(&[UNVERIFIED]);
    let mut differences = Differences::default();
    for (topic, configs) in [("t", &[][..]), ("appended", &["message.timestamp.type=LogAppendTime"])] {
        both.create(topic, STORIES.len(), configs);
        for (partition, story) in STORIES.iter().enumerate() {
            let producer = 1000 + partition as i64;
            for step in *story {
                both.take(*step, topic, partition, producer, &mut differences);
                let ends = both.each(|cluster| {
                    let topic = cluster.topic(topic);
                    cluster.offsets(&topic, &topic.partitions[partition])
                });
                differences.things(&format!("offsets after {step:?} of {story:?}"), ends);
            }
            let known = both.describe(topic, partition);
            differences.things(&format!("producers after {story:?}"), known);
        }
    }
    differences.things("what is unknown", both.describe("nothing", 0));
    differences.things("what is beyond", both.describe("t", STORIES.len()));
    differences.judge();
    for topic in ["t", "appended"] {
        for partition in 0..STORIES.len() {
            let dumped = [both.nodes.kafka.data(), both.nodes.tarn.data()].map(|data| {
                let files = dump::files_with(&data.join(format!("{topic}-{partition}")), "log");
                replaced(&dump::records(&files), r"(Dumping .*|(CreateTime|LogAppendTime): \d+|crc: \d+)", "")
            });
            assert_eq!(dumped[0], dumped[1], "{topic}-{partition}");
            let of_tarn = dump::files_of(&both.nodes.tarn.data().join(format!("{topic}-{partition}")));
            assert_eq!(dump::problems(&of_tarn), Vec::<String>::new());
        }
    }
    assert_eq!(both.aborted("t"), both.aborted("appended"));
}

#[test]
fn a_request_of_many_markers_has_an_answer_for_each() {
    let mut both = Both::start(&[UNVERIFIED]);
    both.create("t", 3, &[]);
    let topics = |partitions: &[i32]| {
        vec![
            WritableTxnMarkerTopic { name: "t".into(), partition_indexes: partitions.to_vec() },
            WritableTxnMarkerTopic { name: "nothing".into(), partition_indexes: vec![0] },
        ]
    };
    let marker = |producer_id, partitions: &[i32]| WritableTxnMarker {
        producer_id,
        topics: topics(partitions),
        ..Default::default()
    };
    let request =
        WriteTxnMarkersRequest { markers: vec![marker(1, &[0, 1, 9]), marker(2, &[2]), marker(1, &[2])] };
    let mut differences = Differences::default();
    for request in [request, WriteTxnMarkersRequest::default()] {
        let answers = [&mut both.kafka, &mut both.tarn].map(|client| marked(client, 1, &request));
        differences.things("answers", answers);
    }
    differences.things(
        "logs",
        [0, 1, 2].map(|partition| both.logs("t", partition).map(|log| log.len())).concat().chunks(2).fold(
            [vec![], vec![]],
            |[mut kafka, mut tarn], pair| {
                kafka.push(pair[0]);
                tarn.push(pair[1]);
                [kafka, tarn]
            },
        ),
    );
    differences.judge();
}

#[test]
fn kafka_transactions_shows_producers_and_aborts_what_hangs() {
    let mut both = Both::start(&[UNVERIFIED]);
    both.create("t", 1, &[]);
    for (name, producer, transactional) in [("hangs", 7, true), ("goes on", 8, true), ("in none", 9, false)] {
        let sent = Sent {
            version: 11,
            transactional_id: Some("x"),
            ..Sent::to("t", 0, records(producer, 0, 0, transactional))
        };
        let said = both.send(&sent);
        assert_eq!(said.map(|said| said.error), [0, 0], "{name}");
    }
    let transactions = |arguments: &[&str]| both.nodes.tool("TransactionsCommand", arguments, &[]);
    let of = ["--topic", "t", "--partition", "0"];
    transactions(&[&["describe-producers"], &of[..]].concat());
    transactions(&[&["abort"], &of[..], &["--start-offset", "0"]].concat());
    transactions(&[&["abort"], &of[..], &["--start-offset", "1"]].concat());
    transactions(
        &[&["abort"], &of[..], &["--producer-id", "8", "--producer-epoch", "0", "--coordinator-epoch", "3"]]
            .concat(),
    );
    let log = |data: std::path::PathBuf| {
        let dumped = dump::records(&dump::files_with(&data.join("t-0"), "log"));
        replaced(&dumped, r"(Dumping .*|CreateTime: \d+|crc: \d+)", "")
    };
    assert_eq!(log(both.nodes.kafka.data()), log(both.nodes.tarn.data()));
    let stable = both.each(|cluster| {
        let topic = cluster.topic("t");
        cluster.offsets(&topic, &topic.partitions[0]).last_stable
    });
    assert_eq!(stable, [11, 11]);
}

impl Both {
    fn take(
        &mut self,
        step: Step,
        topic: &str,
        partition: usize,
        producer: i64,
        differences: &mut Differences,
    ) {
        let name = format!("{step:?} in {topic}-{partition}");
        match step {
            Records(epoch, sequence) => {
                let records = records(producer, epoch, sequence, true);
                let sent = Sent {
                    version: 11,
                    transactional_id: Some("x"),
                    ..Sent::to(topic, partition as i32, records)
                };
                differences.answers(&name, self.send(&sent));
            }
            Plain(epoch, sequence) => {
                let records = records(producer, epoch, sequence, false);
                differences.answers(&name, self.send(&Sent::to(topic, partition as i32, records)));
            }
            Commit(epoch, coordinator) => {
                self.mark(&name, topic, partition, (producer, epoch, true, coordinator, 0), differences)
            }
            Abort(epoch, coordinator) => {
                self.mark(&name, topic, partition, (producer, epoch, false, coordinator, 0), differences)
            }
            BumpedCommit(epoch, coordinator) => {
                self.mark(&name, topic, partition, (producer, epoch, true, coordinator, 2), differences)
            }
            BumpedAbort(epoch, coordinator) => {
                self.mark(&name, topic, partition, (producer, epoch, false, coordinator, 2), differences)
            }
        }
    }

    fn mark(
        &mut self,
        name: &str,
        topic: &str,
        partition: usize,
        (producer_id, producer_epoch, transaction_result, coordinator_epoch, transaction_version): (
            i64,
            i16,
            bool,
            i32,
            i8,
        ),
        differences: &mut Differences,
    ) {
        let request = WriteTxnMarkersRequest {
            markers: vec![WritableTxnMarker {
                producer_id,
                producer_epoch,
                transaction_result,
                topics: vec![WritableTxnMarkerTopic {
                    name: topic.into(),
                    partition_indexes: vec![partition as i32],
                }],
                coordinator_epoch,
                transaction_version,
            }],
        };
        let version = if transaction_version == 0 { 1 } else { 2 };
        let answers = [&mut self.kafka, &mut self.tarn].map(|client| marked(client, version, &request));
        differences.things(name, answers);
    }

    /// The producers of a partition, but for times.
    fn describe(&mut self, topic: &str, partition: usize) -> [String; 2] {
        let request = DescribeProducersRequest {
            topics: vec![TopicRequest { name: topic.into(), partition_indexes: vec![partition as i32] }],
        };
        [&mut self.kafka, &mut self.tarn].map(|client| {
            let answer = client.call(0, &request);
            let known = &answer.topics[0].partitions[0];
            let mut text = format!("error {}", known.error_code);
            for producer in &known.active_producers {
                text += &format!(
                    "; {} epoch {} sequence {} coordinator {} since {} {}",
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.last_sequence,
                    producer.coordinator_epoch,
                    producer.current_txn_start_offset,
                    if producer.last_timestamp > super::THEN + super::DAY_MS { "now" } else { "then" }
                );
            }
            text
        })
    }

    /// Asks both anything.
    fn each<T>(&self, ask: impl Fn(&mut Cluster) -> T) -> [T; 2] {
        [self.nodes.kafka.bootstrap(), self.nodes.tarn.bootstrap()]
            .map(|bootstrap| ask(&mut Cluster::connect(&bootstrap)))
    }

    /// The transaction indexes of Tarn's partitions, as Kafka's tool reads them, found to be the same as Kafka's.
    fn aborted(&self, topic: &str) -> Vec<String> {
        let of = |data: std::path::PathBuf, partition: usize| {
            let files = dump::files_with(&data.join(format!("{topic}-{partition}")), "txnindex");
            let dumped = if files.iter().all(|file| file.metadata().is_ok_and(|file| file.len() == 0)) {
                String::new()
            } else {
                dump::records(&files)
            };
            replaced(&dumped, "Dumping .*", "")
        };
        (0..STORIES.len())
            .map(|partition| {
                let [kafka, tarn] =
                    [self.nodes.kafka.data(), self.nodes.tarn.data()].map(|data| of(data, partition));
                assert_eq!(kafka, tarn, "{topic}-{partition}");
                tarn
            })
            .collect()
    }
}

/// What is answered to markers, in an order of its own.
fn marked(client: &mut RawClient, version: i16, request: &WriteTxnMarkersRequest) -> Vec<String> {
    let answer = client.call(version, request);
    let mut all = Vec::new();
    for of_producer in &answer.markers {
        for topic in &of_producer.topics {
            for partition in &topic.partitions {
                all.push(format!(
                    "{} {}-{}: {}",
                    of_producer.producer_id, &*topic.name, partition.partition_index, partition.error_code
                ));
            }
        }
    }
    all.sort();
    all
}

fn records(producer: i64, epoch: i16, sequence: i32, transactional: bool) -> Bytes {
    with_header(&good(Compression::None), |header| {
        (header.producer_id, header.producer_epoch) = (ProducerId(producer), ProducerEpoch(epoch));
        header.base_sequence = Sequence(sequence);
        if transactional {
            header.attributes = header.attributes.transactional();
        }
    })
}
