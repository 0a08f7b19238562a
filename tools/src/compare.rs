//! `tarn compare`: whether a topic is the same on two clusters, byte by byte.
//!
//! Compared are topic ids, partition counts, log starts and ends, and every batch as a Fetch answer
//! carries it: offsets, leader epochs and compressed bytes included. The source may be written meanwhile:
//! what it held when the comparison began is compared.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Write, stdout};
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Args;
use regex::Regex;
use tarn_image::mirrors::is_never_mirrored;
use tarn_record::ValidBatch;
use tarn_runtime::sleep;
use tarn_transport::{ClientOptions, Endpoint};

use crate::admin::{Cluster, End, PAUSE, Topic, on_core, seconds};
use crate::failure::Failure;
use crate::fetch::Reader;
use crate::progress::{Line, thousands};

/// What to compare.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The cluster that is mirrored
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required = true)]
    source: Vec<Endpoint>,
    /// The cluster that mirrors it
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required = true)]
    destination: Vec<Endpoint>,
    /// Names or regular expressions of topics at the source
    #[arg(long, value_delimiter = ',', required = true)]
    topics: Vec<String>,
    /// How long the destination may take to hold what the source holds now
    #[arg(long, value_name = "SECONDS", value_parser = seconds(), default_value_t = 60)]
    timeout: u64,
}

/// What was found equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Compared {
    topics: u64,
    partitions: u64,
    batches: u64,
    records: u64,
    bytes: u64,
}

/// Compares, and says what was compared.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let compared = on_core(move || compare(arguments))?;
    let Compared { topics, partitions, batches, records, bytes } = compared;
    let shown = [partitions, batches, records, bytes].map(|number| thousands(number as i64));
    let [partitions, batches, records, bytes] = shown;
    Ok(writeln!(
        stdout().lock(),
        "Identical on both sides: {topics} topics, {partitions} partitions, {batches} batches, {records} records, \
         {bytes} bytes; topic ids, log starts and log ends too."
    )?)
}

async fn compare(arguments: Arguments) -> Result<Compared, Failure> {
    let pattern = pattern(&arguments.topics)?;
    let sides = Sides {
        source: Rc::new(Cluster::connect_to(&arguments.source, options()).await?),
        destination: Rc::new(Cluster::connect_to(&arguments.destination, options()).await?),
        deadline: Instant::now() + Duration::from_secs(arguments.timeout),
    };
    let mut topics = sides.source.topics().await?;
    topics.retain(|topic| !is_never_mirrored(&topic.name) && pattern.is_match(&topic.name));
    if topics.is_empty() {
        return Err(Failure::Failed("no topic of the source matches".to_owned()));
    }
    let mut compared = Compared::default();
    for topic in topics {
        sides.compare_topic(topic, &mut compared).await?;
        compared.topics += 1;
    }
    Ok(compared)
}

fn options() -> ClientOptions {
    ClientOptions { client_id: "tarn-compare".to_owned(), ..ClientOptions::default() }
}

fn pattern(topics: &[String]) -> Result<Regex, Failure> {
    let any_of = topics.iter().map(|topic| format!("(?:{topic})")).collect::<Vec<_>>().join("|");
    Regex::new(&format!("^(?:{any_of})$")).map_err(|error| Failure::Usage(error.to_string()))
}

/// Both clusters.
struct Sides {
    source: Rc<Cluster>,
    destination: Rc<Cluster>,
    deadline: Instant,
}

/// The offsets that a partition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: i64,
    end: i64,
}

impl Sides {
    async fn compare_topic(&self, topic: Topic, compared: &mut Compared) -> Result<(), Failure> {
        let there = self.same_topic(&topic).await?;
        let spans = self.same_spans(&topic).await?;
        let records = spans.values().map(|span| (span.end - span.start).unsigned_abs()).sum();
        let line = Line::bar(records, &format!("offsets of {} compared", topic.name));
        for (partition, span) in spans {
            let reader = |cluster: &Rc<Cluster>, topic: &Topic| {
                let positions = BTreeMap::from([(partition, span.start)]);
                Feed {
                    reader: Reader::new(Rc::clone(cluster), topic.clone(), positions),
                    batches: VecDeque::new(),
                }
            };
            let mut source = reader(&self.source, &topic);
            let mut destination = reader(&self.destination, &there);
            let name = format!("{}-{partition}", topic.name);
            compare_partition(&name, span, &mut source, &mut destination, &line, compared).await?;
            compared.partitions += 1;
        }
        Ok(())
    }

    async fn same_topic(&self, topic: &Topic) -> Result<Topic, Failure> {
        let differs = |what: String| Err(Failure::Failed(format!("topic {}: {what}", topic.name)));
        let Some(there) = self.destination.topic(&topic.name).await? else {
            return differs("the destination has no such topic".to_owned());
        };
        let (ours, theirs) = (topic.leaders.len(), there.leaders.len());
        if ours != theirs {
            return differs(format!("{ours} partitions at the source, {theirs} at the destination"));
        }
        match topic.id.is_zero() || topic.id == there.id {
            true => Ok(there),
            false => {
                differs(format!("its id is {} at the source, {} at the destination", topic.id, there.id))
            }
        }
    }

    /// Where each partition begins and ends at the source, once the destination says the same.
    async fn same_spans(&self, topic: &Topic) -> Result<BTreeMap<i32, Span>, Failure> {
        let asked = spans(&self.source, topic).await?;
        loop {
            let source = spans(&self.source, topic).await?;
            let destination = spans(&self.destination, topic).await?;
            let newest = spans(&self.source, topic).await?;
            let behind = asked.iter().find_map(|(partition, asked)| {
                let (there, here) = (destination[partition], source[partition]);
                let held = there.start == here.start && there.end >= asked.end;
                (!held).then_some((*partition, here, there))
            });
            if let Some((partition, here, there)) = behind {
                if Instant::now() < self.deadline {
                    sleep(PAUSE).await;
                    continue;
                }
                return Err(Failure::Failed(format!(
                    "{}-{partition} holds {} to {} at the source, {} to {} at the destination",
                    topic.name, here.start, here.end, there.start, there.end
                )));
            }
            let ahead = destination.iter().find(|(partition, there)| there.end > newest[partition].end);
            if let Some((partition, there)) = ahead {
                return Err(Failure::Failed(format!(
                    "{}-{partition} ends at {} at the source, and at {} at the destination",
                    topic.name, newest[partition].end, there.end
                )));
            }
            let span =
                |(partition, here): (&i32, &Span)| (*partition, Span { end: asked[partition].end, ..*here });
            return Ok(source.iter().map(span).collect());
        }
    }
}

async fn spans(cluster: &Rc<Cluster>, topic: &Topic) -> Result<BTreeMap<i32, Span>, Failure> {
    let partitions: Vec<i32> = topic.leaders.keys().copied().collect();
    let starts = cluster.ends(&topic.name, &partitions, End::Earliest).await?;
    let ends = cluster.ends(&topic.name, &partitions, End::Latest).await?;
    Ok(starts
        .into_iter()
        .map(|(partition, start)| (partition, Span { start, end: ends[&partition] }))
        .collect())
}

/// The batches of one partition of one side, one after the other.
struct Feed {
    reader: Reader,
    batches: VecDeque<ValidBatch>,
}

impl Feed {
    /// The next batch below `end`; `None` where none is left.
    async fn next(&mut self, end: i64) -> Result<Option<ValidBatch>, Failure> {
        while self.batches.is_empty() {
            if self.reader.positions().values().all(|position| *position >= end) {
                return Ok(None);
            }
            for (_, batches) in self.reader.next().await? {
                self.batches.extend(batches);
            }
        }
        Ok(self.batches.pop_front_if(|batch| batch.header().base_offset.0 < end))
    }
}

async fn compare_partition(
    name: &str,
    span: Span,
    source: &mut Feed,
    destination: &mut Feed,
    line: &Line,
    compared: &mut Compared,
) -> Result<(), Failure> {
    let mut position = span.start;
    while position < span.end {
        let (theirs, ours) = (source.next(span.end).await?, destination.next(span.end).await?);
        match (theirs, ours) {
            (None, None) => break,
            (Some(theirs), Some(ours)) if theirs.bytes() == ours.bytes() => {
                let next = theirs.header().next_offset().0;
                line.advance((next - position).unsigned_abs());
                position = next;
                compared.batches += 1;
                compared.records += u64::try_from(theirs.header().record_count).unwrap_or_default();
                compared.bytes += theirs.bytes().len() as u64;
            }
            (theirs, ours) => {
                return Err(Failure::Failed(format!(
                    "{name}: {}",
                    difference(theirs.as_ref(), ours.as_ref())
                )));
            }
        }
    }
    Ok(())
}

fn difference(source: Option<&ValidBatch>, destination: Option<&ValidBatch>) -> String {
    let shown = |batch: &ValidBatch| {
        let header = batch.header();
        let (first, last) = (header.base_offset, header.last_offset());
        format!("offsets {first} to {last}, epoch {}, {} bytes", header.leader_epoch, batch.bytes().len())
    };
    let shown = |batch: Option<&ValidBatch>| batch.map_or_else(|| "nothing".to_owned(), shown);
    let mut text =
        format!("the source has a batch of {}, the destination one of {}", shown(source), shown(destination));
    if let (Some(source), Some(destination)) = (source, destination) {
        let pairs = source.bytes().iter().zip(destination.bytes().iter());
        if let Some(at) = pairs.into_iter().position(|(one, other)| one != other) {
            text.push_str(&format!("; they differ from byte {at} on"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{BatchBuilder, Compression, Epoch, Offset, Record};

    fn batch(offset: i64, epoch: i32) -> ValidBatch {
        let mut builder = BatchBuilder::new(Offset(offset), Compression::None).leader_epoch(Epoch(epoch));
        builder.add(&Record { value: Some(b"v"), ..Record::default() });
        ValidBatch::parse(builder.build()).unwrap()
    }

    #[test]
    fn a_difference_names_what_differs_and_where() {
        let text = difference(Some(&batch(7, 3)), Some(&batch(7, 4)));
        assert!(text.contains("offsets 7 to 7, epoch 3") && text.contains("epoch 4"), "{text}");
        assert!(text.contains("differ from byte 15 on"), "{text}");
        assert!(difference(Some(&batch(7, 3)), None).contains("the destination one of nothing"));
    }

    #[test]
    fn topics_are_matched_whole() {
        let pattern = pattern(&["a".to_owned(), "b.*".to_owned()]).unwrap();
        assert!(pattern.is_match("a") && pattern.is_match("bcd"));
        assert!(!pattern.is_match("ab") && !pattern.is_match("xb"));
        assert_eq!(super::pattern(&["(".to_owned()]).unwrap_err().exit_code(), 2);
    }
}
