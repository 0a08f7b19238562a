//! Producers that wrote nothing for `producer.id.expiration.ms`.

use tarn_log::{Log, LogConfig};
use tarn_record::{Epoch, Offset, ProducerId, Timestamp, TimestampType};

use crate::world::*;

const EXPIRATION_MS: i64 = 1000;

fn config() -> LogConfig {
    LogConfig { producer_expiration_ms: EXPIRATION_MS, ..LogConfig::default() }
}

fn after_ms(ms: i64) -> Timestamp {
    Timestamp(NOW.0 + ms)
}

/// A batch of one record with the timestamp `NOW`.
fn send(log: &mut Log, id: i64, sequence: i32, transactional: bool) -> Result<(), i16> {
    let sent = Idempotent { id, epoch: 0, sequence, transactional }.batch(0, 1, -1);
    let appended = log.append_as_leader(&client_of(sent), Epoch(0), TimestampType::CreateTime, NOW);
    appended.map(|_| ()).map_err(|error| error.code())
}

fn known(log: &Log) -> Vec<i64> {
    log.producers().iter().map(|(id, _)| id.0).collect()
}

#[test]
fn an_idle_producer_is_forgotten_while_the_log_is_open() {
    let world = World::new(config());
    let mut log = world.create();
    send(&mut log, 1, 0, false).unwrap();
    log.expire_producers(after_ms(EXPIRATION_MS - 1));
    assert_eq!(send(&mut log, 1, 9, false), Err(45), "its sequence is known");
    log.expire_producers(after_ms(EXPIRATION_MS));
    assert!(log.producers().is_empty());
    assert_eq!(send(&mut log, 1, 9, false), Ok(()), "it may begin anywhere");
}

#[test]
fn a_producer_with_an_open_transaction_is_not_idle() {
    let world = World::new(config());
    let mut log = world.create();
    send(&mut log, 1, 0, true).unwrap();
    log.expire_producers(after_ms(EXPIRATION_MS * 100));
    assert_eq!((known(&log), log.first_unstable()), (vec![1], Some(Offset(0))));
}

#[test]
fn a_changed_expiration_counts_from_the_next_check() {
    let world = World::new(config());
    let mut log = world.create();
    send(&mut log, 1, 0, false).unwrap();
    log.configure(LogConfig { producer_expiration_ms: 2 * EXPIRATION_MS, ..config() });
    log.expire_producers(after_ms(EXPIRATION_MS));
    assert_eq!(known(&log), [1]);
    log.configure(config());
    log.expire_producers(after_ms(EXPIRATION_MS));
    assert!(log.producers().get(ProducerId(1)).is_none());
}

#[test]
fn a_truncation_does_not_bring_back_a_producer_that_was_forgotten() {
    let world = World::new(config());
    let mut log = world.create();
    send(&mut log, 1, 0, false).unwrap();
    send(&mut log, 2, 0, true).unwrap();
    produce(&mut log, 1);
    log.expire_producers(after_ms(EXPIRATION_MS));
    assert_eq!(known(&log), [2]);
    let _ = log.truncate_to(Offset(2), after_ms(EXPIRATION_MS)).unwrap();
    assert_eq!((known(&log), log.end()), (vec![2], Offset(2)));
}
