//! What producers that number their batches may send next.

use bytes::Bytes;
use tarn_record::{Compression, ProducerEpoch, ProducerId, Sequence};
use tarn_wire::messages::{InitProducerIdRequest, InitProducerIdResponse};

use super::making::{batch_of, with_header};
use super::{Both, Differences, Sent, UNVERIFIED};

/// A producer, its epoch, the first sequence, how many records.
type Next = (i64, i16, i32, usize);

const LAST: i32 = i32::MAX;

#[test]
fn sequences_and_epochs_are_judged_as_kafka_does() {
    let mut both = Both::start(&[UNVERIFIED]);
    let stories: &[(&str, &[Next])] = &[
        ("in sequence", &[(1, 0, 0, 3), (1, 0, 3, 1), (1, 0, 4, 2)]),
        ("sent again", &[(1, 0, 0, 3), (1, 0, 3, 1), (1, 0, 0, 3), (1, 0, 3, 1), (1, 0, 4, 1)]),
        (
            "sent again with other bounds",
            &[(1, 0, 0, 3), (1, 0, 0, 2), (1, 0, 1, 2), (1, 0, 0, 4), (1, 0, 2, 1)],
        ),
        (
            "sent again after five and after six",
            &[
                (1, 0, 0, 1),
                (1, 0, 1, 1),
                (1, 0, 2, 1),
                (1, 0, 3, 1),
                (1, 0, 4, 1),
                (1, 0, 0, 1),
                (1, 0, 5, 1),
                (1, 0, 0, 1),
                (1, 0, 1, 1),
            ],
        ),
        ("a gap", &[(1, 0, 0, 3), (1, 0, 4, 1), (1, 0, 3, 1)]),
        ("not from 0", &[(1, 0, 7, 1), (1, 0, 8, 1), (1, 0, 0, 1)]),
        ("from epoch 3", &[(1, 3, 0, 1), (1, 3, 1, 1)]),
        ("a new epoch", &[(1, 0, 0, 3), (1, 1, 0, 1), (1, 1, 1, 1), (1, 0, 3, 1), (1, 0, 0, 3)]),
        ("a new epoch not from 0", &[(1, 0, 0, 3), (1, 1, 3, 1), (1, 1, 1, 1), (1, 1, 0, 1)]),
        ("the wrap", &[(1, 0, LAST - 1, 2), (1, 0, 0, 1), (1, 0, LAST - 1, 2), (1, 0, 1, 1)]),
        ("a wrap inside a batch", &[(1, 0, LAST - 1, 4), (1, 0, LAST - 1, 4), (1, 0, 2, 1), (1, 0, 3, 1)]),
        ("no wrap but a start over", &[(1, 0, LAST - 2, 1), (1, 0, 0, 1)]),
        ("two producers", &[(1, 0, 0, 1), (2, 0, 0, 1), (1, 0, 1, 1), (2, 0, 0, 1), (2, 5, 0, 1)]),
        ("an epoch below none", &[(1, -1, 0, 1), (1, -1, 1, 1), (1, 0, 0, 1)]),
    ];
    both.create("t", stories.len(), &[]);
    both.create("appended", stories.len(), &["message.timestamp.type=LogAppendTime"]);
    let mut differences = Differences::default();
    for topic in ["t", "appended"] {
        for (partition, (story, batches)) in stories.iter().enumerate() {
            for (number, &next) in batches.iter().enumerate() {
                let answers = both.send(&Sent::to(topic, partition as i32, numbered(next)));
                differences.answers(&format!("{story}, batch {number} {next:?} to {topic}"), answers);
            }
        }
    }
    differences.judge();
}

#[test]
fn a_producer_is_known_again_after_a_restart() {
    let mut both = Both::start(&[UNVERIFIED]);
    both.create("t", 2, &[]);
    let mut differences = Differences::default();
    let mut send = |both: &mut Both, name: &str, partition, next| {
        differences.answers(name, both.send(&Sent::to("t", partition, numbered(next))));
    };
    for partition in 0..2 {
        send(&mut both, "first", partition, (1, 0, 0, 3));
        send(&mut both, "second", partition, (1, 0, 3, 1));
    }
    both.restart();
    send(&mut both, "the second again", 0, (1, 0, 3, 1));
    send(&mut both, "the next", 0, (1, 0, 4, 1));
    send(&mut both, "a gap", 1, (1, 0, 5, 1));
    send(&mut both, "another epoch", 1, (1, 1, 0, 1));
    differences.judge();
}

#[test]
fn a_producer_without_a_name_gets_an_id_and_may_write_transactions_until_there_is_a_coordinator() {
    let mut both = Both::start(&[UNVERIFIED]);
    both.create("t", 1, &[]);
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    let given = [&mut both.kafka, &mut both.tarn].map(|client| -> InitProducerIdResponse {
        tarn_tests::waiting::until_some("a producer id", super::LED, || {
            let given = client.call(4, &request);
            if given.error_code == 0 { Ok(given) } else { Err(format!("error {}", given.error_code)) }
        })
    });
    assert_eq!(given.map(|given| given.producer_epoch), [0, 0]);
    let batch =
        with_header(&numbered((77, 0, 0, 3)), |header| header.attributes = header.attributes.transactional());
    let mut differences = Differences::default();
    let sent = Sent { version: 11, transactional_id: Some("x"), ..Sent::to("t", 0, batch) };
    differences.answers("the first", both.send(&sent));
    differences.answers("sent again", both.send(&sent));
    differences.answers("outside of it", both.send(&Sent::to("t", 0, numbered((77, 0, 3, 1)))));
    differences.judge();
}

/// A batch with these numbers.
fn numbered((producer, epoch, sequence, records): Next) -> Bytes {
    let records = vec![(Some("k"), super::THEN + i64::from(sequence % 100)); records];
    let plain = batch_of(Compression::None, &records);
    with_header(&plain, |header| {
        header.producer_id = ProducerId(producer);
        header.producer_epoch = ProducerEpoch(epoch);
        header.base_sequence = Sequence(sequence);
    })
}
