//! A link that cuts every connection after so many bytes: what is asked for over it shrinks until it passes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tarn_mirror::alignment::BatchThere;
use tarn_mirror::fetch::budget::FetchBudget;
use tarn_mirror::source::batches::{BatchAnswer, BatchLimits, BatchQuestion, ask};
use tarn_mirror::source::connections::Connections;
use tarn_record::{Epoch, PartitionIndex, batches};
use tarn_transport::Endpoint;

use super::cluster::Cluster;
use super::source::Source;
use super::{Mirroring, caught_up, config, eventually, on_a_core};

/// What a connection carries from the source before it is cut: two batches, and no third.
const CARRIED_BYTES: usize = 24 << 10;
const BATCH_BYTES: usize = 10 << 10;

#[test]
fn a_link_that_cuts_every_large_response_is_asked_for_less_until_all_is_copied() {
    let source = Source::new("source");
    source.topic("orders", 2, 0);
    for partition in 0..2 {
        source.log("orders", partition, |log| (0..4).for_each(|_| log.produce_large(BATCH_BYTES)));
    }
    let _serving = source.serve();
    let (port, cuts) = relay_to(source.state().port);
    source.state().advertises = Some(port);
    let cluster = Cluster::new(port, "orders");
    // A first response holds three batches of each partition, which is more than the link carries.
    cluster.configure("fetch.response.max.bytes", "100000");
    let _mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 2));
    assert!(cuts.load(Ordering::Relaxed) > 1, "the link has cut some");
}

#[test]
fn newest_batches_that_a_link_does_not_carry_at_once_are_compared_one_after_the_other() {
    let source = Source::new("source");
    source.topic("orders", 4, 0);
    for partition in 0..4 {
        source.log("orders", partition, |log| log.produce_large(BATCH_BYTES));
    }
    let _serving = source.serve();
    let (port, cuts) = relay_to(source.state().port);
    let question = |partition: i32| {
        let newest = source.log("orders", partition as usize, |log| log.batches[0].2.clone());
        let newest = batches(newest).next().expect("there is one").expect("it is whole");
        BatchQuestion {
            topic: "orders".into(),
            partition: PartitionIndex(partition),
            leader_epoch: Epoch(0),
            ours: *newest.header(),
        }
    };
    let questions: Vec<BatchQuestion> = (0..4).map(question).collect();
    let expected: Vec<BatchAnswer> =
        questions.iter().map(|asked| Ok(BatchThere::Batch(asked.ours))).collect();
    let answers = on_a_core(move || async move {
        let (config, budget) = (config(port), FetchBudget::new(64 << 20));
        let limits =
            BatchLimits { config: &config, wait: Duration::ZERO, batch_max_bytes: 1 << 20, budget: &budget };
        let connections = Connections::new(&config, "comparing".to_owned(), Arc::default());
        ask(&connections, &Endpoint { host: "127.0.0.1".into(), port }, &questions, &limits).await
    });
    assert_eq!(answers, Ok(expected));
    assert!(cuts.load(Ordering::Relaxed) > 0, "the link has cut some");
}

/// A port from which connections lead to another, and how many were cut for what they carried.
fn relay_to(port: u16) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let at = listener.local_addr().expect("it is bound").port();
    let cuts = Arc::new(AtomicUsize::new(0));
    let counted = cuts.clone();
    // It ends with the process: nobody connects any more.
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            let (Ok(from_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { continue };
            thread::spawn(move || carry(from_client, to_server, usize::MAX));
            let counted = counted.clone();
            thread::spawn(move || {
                if carry(server, client, CARRIED_BYTES) {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    (at, cuts)
}

/// Carries so many bytes and closes both ends. True where it was cut for that.
fn carry(mut from: TcpStream, mut to: TcpStream, mut left: usize) -> bool {
    let mut buffer = [0; 4096];
    while left > 0 {
        let most = left.min(buffer.len());
        match from.read(&mut buffer[..most]) {
            Ok(read @ 1..) if to.write_all(&buffer[..read]).is_ok() => left -= read,
            _ => break,
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    left == 0
}
