//! A mirror goes on after either side died, wherever it was, with nothing missing and nothing twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tarn_tests::cluster::Cluster;
use tarn_tests::compare::{assert_identical, await_mirrored, copied_so_far};
use tarn_tests::dataset::{RECORDS, Source};
use tarn_tests::kafka::NodeOptions;
use tarn_tests::overheard::Overheard;
use tarn_tests::relay::Relay;
use tarn_tests::tarn::{MirrorPartition, Tarn, TarnOptions};
use tarn_tests::waiting::until_some;
use uuid::Uuid;

const COPIED: Duration = Duration::from_secs(90);
const KILLS: i64 = 10;
/// Slow enough that each kill finds a copy in progress.
const SLOW_BYTES_PER_SECOND: u64 = 16 * 1024 * 1024;

fn mirrored(topic: &str) -> bool {
    !topic.starts_with("__")
}

/// A source behind a link that tests slow down and cut.
fn relayed_source() -> (Relay, Source) {
    source_behind(Relay::start())
}

fn source_behind(relay: Relay) -> (Relay, Source) {
    let source = Source::start_with(NodeOptions { relay_port: Some(relay.port()), ..NodeOptions::default() });
    relay.connect_to(&source.node.relayed());
    (relay, source)
}

#[test]
fn ten_kills_in_the_middle_of_the_copy_lose_nothing_and_repeat_nothing() {
    let (relay, source) = relayed_source();
    relay.slow_to(SLOW_BYTES_PER_SECOND);
    let mut tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&relay.address(), "m", ".*");
    let mut copied = 0;
    for kill in 1..=KILLS {
        // All within the first half: a machine that is busy with other tests may kill seconds late.
        let wanted = RECORDS * kill / (2 * KILLS);
        copied = await_copied(&tarn, wanted);
        tarn.kill();
        tarn.start_again();
    }
    assert!(copied < RECORDS, "the last kill came after the copy had ended, at {copied} records");
    relay.slow_to(u64::MAX);
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    let compared = assert_identical(&source.bootstrap(), &tarn.bootstrap(), mirrored);
    assert!(compared.records > RECORDS, "{compared:?}");
}

#[test]
fn a_restart_fetches_one_batch_of_a_partition_again_at_most() {
    let overheard = Arc::new(Overheard::default());
    let (relay, source) = source_behind(Relay::heard_by(Some(overheard.clone())));
    let mut tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&relay.address(), "m", ".*");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    let names: BTreeMap<Uuid, String> = Cluster::connect(&source.bootstrap())
        .topics()
        .into_iter()
        .map(|topic| (topic.id, topic.name))
        .collect();
    for end in [Tarn::stop, Tarn::kill] {
        let before = overheard.batches();
        assert!(before.values().any(|batches| *batches > 1), "{before:?}");
        end(&mut tarn);
        tarn.start_again();
        until_some("an answer about every partition", COPIED, || {
            let partitions = tarn.describe_mirror("m");
            let goes_on = |one: &&MirrorPartition| one.state == "MIRRORING" && one.lag == Some(0);
            match partitions.iter().find(|one| !goes_on(one)) {
                None => Ok(()),
                Some(other) => Err(format!("{other:?}")),
            }
        });
        let mut again: BTreeMap<(String, i32), usize> = BTreeMap::new();
        for ((name, id, index), heard) in overheard.batches() {
            let more = heard - before.get(&(name.clone(), id, index)).unwrap_or(&0);
            let name = if id.is_nil() { name } else { names[&id].clone() };
            *again.entry((name, index)).or_default() += more;
        }
        assert!(again.values().all(|batches| *batches <= 1), "{again:?}");
        assert!(again.values().any(|batches| *batches == 1), "the newest batch is compared: {again:?}");
    }
}

#[test]
fn a_source_that_is_killed_is_named_and_followed_again_when_it_is_back() {
    let (relay, mut source) = relayed_source();
    relay.slow_to(SLOW_BYTES_PER_SECOND);
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&relay.address(), "m", ".*");
    await_copied(&tarn, RECORDS / 4);
    source.node.kill();
    until_some("a reason beside every partition that lags", Duration::from_secs(30), || {
        let partitions = tarn.describe_mirror("m");
        let behind: Vec<_> = partitions.iter().filter(|one| one.lag != Some(0)).collect();
        let named = |one: &&&tarn_tests::tarn::MirrorPartition| {
            one.reason_code.as_deref() == Some("SOURCE_UNREACHABLE")
        };
        match behind.iter().find(|one| !named(one)) {
            None if !behind.is_empty() => Ok(()),
            silent => Err(format!("{silent:?} of {}", behind.len())),
        }
    });
    // An unreachable source is a state of the link, not of its partitions.
    for partition in tarn.describe_mirror("m") {
        assert_ne!(partition.state, "FAILED", "{partition:?}");
    }
    source.node.start_again();
    relay.slow_to(u64::MAX);
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), mirrored);
    until_some("no reason beside any partition", Duration::from_secs(10), || {
        let unwell = tarn.describe_mirror("m").into_iter().find(|one| one.reason_code.is_some());
        unwell.map_or(Ok(()), |one| Err(format!("{one:?}")))
    });
}

#[test]
fn a_link_that_is_cut_or_silent_is_followed_again() {
    let (relay, mut source) = relayed_source();
    relay.slow_to(SLOW_BYTES_PER_SECOND);
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&relay.address(), "m", "codec.*");
    let codec = |topic: &str| topic.starts_with("codec.");
    await_copied(&tarn, RECORDS / 8);
    relay.cut();
    std::thread::sleep(Duration::from_millis(300));
    relay.mend();
    await_copied(&tarn, RECORDS / 4);
    source.node.pause();
    std::thread::sleep(Duration::from_millis(1500));
    source.node.resume();
    relay.slow_to(u64::MAX);
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), codec, COPIED);
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), codec);
}

/// Waits until the mirror has this many records.
fn await_copied(tarn: &Tarn, records: i64) -> i64 {
    let mut cluster = None;
    until_some(&format!("{records} records in the mirror"), COPIED, || {
        if cluster.is_none() {
            cluster = Some(Cluster::try_connect(&tarn.bootstrap())?);
        }
        let copied = copied_so_far(cluster.as_mut().expect("it was just made"), mirrored)?;
        if copied >= records { Ok(copied) } else { Err(format!("{copied} so far")) }
    })
}
