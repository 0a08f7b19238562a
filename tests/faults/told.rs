//! What a producer was told of its records, beside where they are in the log afterwards.
//!
//! librdkafka reports a record without an offset where it learns only from a later batch that it is in the log: a
//! batch that was in the log before a crash was refused after it, because the log was still being recovered, and the
//! one behind it on the connection was taken. A node that takes none before the other is back does not do that.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use tarn_record::Offset;

/// How many offsets on either side of a fault are shown.
const AROUND: i64 = 8;

/// What was acknowledged of a topic's records, in that order.
pub(crate) struct Told {
    records: Vec<Acknowledged>,
}

/// One acknowledgement.
#[derive(Debug)]
struct Acknowledged {
    value: String,
    offset: Option<i64>,
}

/// How many of a program's lines are acknowledgements.
pub(crate) fn acknowledged(said: &str) -> usize {
    said.lines().filter(|line| line.starts_with("acked ")).count()
}

impl Told {
    /// What a program said of a topic: `acked TOPIC PARTITION OFFSET VALUE`.
    ///
    /// # Panics
    /// Where an acknowledgement is not one.
    pub(crate) fn of(topic: &str, said: &str) -> Told {
        let lines = said.lines().filter_map(|line| line.strip_prefix("acked "));
        let records = lines.filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [of, _, offset, value] = words[..] else { panic!("no acknowledgement: {line}") };
            let offset = (offset != "None").then(|| offset.parse().expect("an offset"));
            (of == topic).then(|| Acknowledged { value: value.to_string(), offset })
        });
        Told { records: records.collect() }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Where what was said is not what is `stored`, by offset; `None` where all of it is, and nothing else.
    pub(crate) fn fault(&self, stored: &BTreeMap<i64, String>) -> Option<String> {
        let mut open: BTreeMap<&str, i64> =
            stored.iter().map(|(offset, value)| (value.as_str(), *offset)).collect();
        for record in &self.records {
            let Some(at) = open.remove(record.value.as_str()) else {
                return Some(format!("it was acknowledged twice, or is nowhere: {record:?}"));
            };
            if record.offset != Some(at) {
                let near = |offset: i64| (offset - at).abs() <= AROUND;
                let others = self.records.iter().filter(|other| other.offset.is_some_and(near));
                let around: Vec<_> = stored.range(at - AROUND..=at + AROUND).collect();
                return Some(format!(
                    "{record:?} is at {at}; around it are {around:?}; said was {:?}",
                    others.collect::<Vec<_>>()
                ));
            }
        }
        (!open.is_empty()).then(|| format!("these were never acknowledged: {open:?}"))
    }
}

/// The batches of a partition's directory, a line each: offsets, leader epoch, producer and sequences.
pub(crate) fn batches(log: &Path) -> String {
    let entries = std::fs::read_dir(log).expect("the partition has a directory");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "log"));
    files.sort();
    let mut lines = String::new();
    for file in files {
        lines += &format!("{}\n", file.display());
        for batch in tarn_record::batches(Bytes::from(std::fs::read(file).expect("it can be read"))) {
            let Ok(batch) = batch else { break };
            let header = batch.header();
            let (Offset(first), Offset(last)) = (header.base_offset, header.last_offset());
            lines += &format!(
                "{first}..{last} epoch {} producer {}/{} sequences {}..{}\n",
                header.leader_epoch,
                header.producer_id,
                header.producer_epoch.0,
                header.base_sequence.0,
                header.last_sequence().0
            );
        }
    }
    lines
}

#[test]
fn what_was_said_of_a_record_is_compared_with_its_place() {
    let said = "acked t 0 5 a\n%5|a line of librdkafka\nacked other 0 5 x\nacked t 0 6 b\nacked t 0 7 c\n";
    let told = Told::of("t", said);
    let stored =
        |values: &[(i64, &str)]| values.iter().map(|(at, value)| (*at, (*value).to_string())).collect();
    assert_eq!((told.len(), acknowledged(said)), (3, 4));
    assert_eq!(told.fault(&stored(&[(5, "a"), (6, "b"), (7, "c")])), None);
    let unplaced = Told::of("t", "acked t 0 None b\n").fault(&stored(&[(6, "b")]));
    assert!(unplaced.is_some_and(|fault| fault.contains("b\", offset: None } is at 6")));
    for (wrong, why) in [
        (stored(&[(5, "a"), (6, "c"), (7, "b")]), "b\", offset: Some(6) } is at 7"),
        (stored(&[(5, "a"), (6, "b")]), "nowhere"),
        (stored(&[(5, "a"), (6, "b"), (7, "c"), (8, "d")]), "never acknowledged: {\"d\": 8}"),
    ] {
        let fault: Option<String> = told.fault(&wrong);
        assert!(fault.as_ref().is_some_and(|fault| fault.contains(why)), "{fault:?}");
    }
}
