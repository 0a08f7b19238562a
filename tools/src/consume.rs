//! `tarn consume`: prints the records of a topic, without a group.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, StdoutLock, Write, stdout};
use std::rc::Rc;
use std::str::FromStr;
use std::time::Instant;

use clap::{Args, ValueEnum};
use tarn_record::{RecordView, ValidBatch};

use crate::admin::{Cluster, End, PATIENCE, Topic, offline_log, on_core};
use crate::connect::ConnectArguments;
use crate::failure::Failure;
use crate::fetch::Reader;

/// What to read, and what to print of it.
#[derive(Debug, Args)]
#[command(after_help = "Aborted transactions are printed too: this reads as consumers with \
                        isolation.level=read_uncommitted do.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: ConnectArguments,
    /// The topic
    #[arg(long)]
    topic: String,
    /// Read this partition; all of them where this is left out
    #[arg(long)]
    partition: Option<i32>,
    /// Begin with the oldest record
    #[arg(long, conflicts_with = "offset")]
    from_beginning: bool,
    /// Begin here: an offset, earliest or latest [default: latest, and earliest with --until-end]
    #[arg(long, value_name = "OFFSET")]
    offset: Option<Start>,
    /// Stop after so many records
    #[arg(long, value_name = "RECORDS")]
    max_messages: Option<u64>,
    /// Stop at the end that the partitions have when this begins
    #[arg(long)]
    until_end: bool,
    /// What to print of a record, in this order, tabs between
    #[arg(long, value_name = "PART", value_delimiter = ',', default_value = "key,value")]
    print: Vec<Part>,
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Earliest,
    Latest,
    At(i64),
}

/// What is printed of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Partition,
    Offset,
    Timestamp,
    Key,
    Value,
    Headers,
}

impl FromStr for Start {
    type Err = String;

    fn from_str(text: &str) -> Result<Start, String> {
        match text {
            "earliest" => Ok(Start::Earliest),
            "latest" => Ok(Start::Latest),
            number => match number.parse() {
                Ok(offset) if offset >= 0 => Ok(Start::At(offset)),
                _ => Err("an offset, earliest or latest is expected".to_owned()),
            },
        }
    }
}

/// What one batch may be when it is decompressed.
const DECOMPRESSED_BYTES_MAX: usize = 256 << 20;

/// Prints records until it is told to stop.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    on_core(move || consume(arguments))
}

async fn consume(arguments: Arguments) -> Result<(), Failure> {
    let cluster = Rc::new(Cluster::connect(&arguments.connect).await?);
    let (topic, partitions) = find(&cluster, &arguments).await?;
    let mut offline = BTreeSet::new();
    let mut open = partitions.clone();
    if arguments.until_end {
        let deadline = Instant::now() + PATIENCE;
        offline = cluster.ends_of_open(&topic.name, &partitions, End::Latest, deadline).await?.offline;
        open.retain(|partition| !offline.contains(partition));
    }
    let partitions = open;
    let starts = starts(&cluster, &arguments, &partitions).await?;
    let ends = match (arguments.until_end, arguments.offset) {
        (false, None | Some(Start::Earliest | Start::Latest)) => None,
        _ => Some(cluster.ends(&topic.name, &partitions, End::Latest).await?),
    };
    let beyond = ends.as_ref().map(|ends| beyond_the_end(&topic.name, &starts, ends)).unwrap_or_default();
    beyond.iter().for_each(|line| eprintln!("tarn: {line}"));
    let ends = ends.filter(|_| arguments.until_end);
    let mut printer = Printer::new(&arguments, starts.clone());
    let name = topic.name.clone();
    let mut reader = Reader::new(cluster, topic, starts);
    while !printer.is_full() {
        if let Some(ends) = &ends {
            reader.positions().retain(|partition, position| *position < ends[partition]);
        }
        if reader.positions().is_empty() {
            break;
        }
        for (partition, batches) in reader.next().await? {
            let end = ends.as_ref().map_or(i64::MAX, |ends| ends[&partition]);
            batches.iter().try_for_each(|batch| printer.batch(partition, batch, end))?;
        }
        printer.out.flush()?;
        if arguments.until_end {
            offline.extend(reader.leave_offline());
        }
    }
    printer.out.flush()?;
    if !offline.is_empty() {
        return Err(offline_log(&name, offline));
    }
    match (arguments.until_end, beyond.first()) {
        (true, Some(_)) => Err(Failure::Failed(format!(
            "{} of {} partitions end before the offset to begin with",
            beyond.len(),
            partitions.len()
        ))),
        _ => Ok(()),
    }
}

/// A line for each partition that ends before the offset at which reading it is to begin.
fn beyond_the_end(topic: &str, starts: &BTreeMap<i32, i64>, ends: &BTreeMap<i32, i64>) -> Vec<String> {
    let beyond = starts.iter().filter_map(|(partition, start)| {
        let end = ends.get(partition).filter(|end| *end < start)?;
        Some(format!("offset {start} is beyond the end of {topic}-{partition}, which is {end}"))
    });
    beyond.collect()
}

async fn find(cluster: &Cluster, arguments: &Arguments) -> Result<(Topic, Vec<i32>), Failure> {
    let name = &arguments.topic;
    let Some(topic) = cluster.topic(name).await? else {
        return Err(Failure::Failed(format!("there is no topic {name}")));
    };
    let partitions: Vec<i32> = match arguments.partition {
        None => topic.leaders.keys().copied().collect(),
        Some(partition) if topic.leaders.contains_key(&partition) => vec![partition],
        Some(partition) => {
            return Err(Failure::Failed(format!("{name} has no partition {partition}")));
        }
    };
    Ok((topic, partitions))
}

async fn starts(
    cluster: &Rc<Cluster>,
    arguments: &Arguments,
    partitions: &[i32],
) -> Result<BTreeMap<i32, i64>, Failure> {
    let start = match arguments.offset {
        Some(start) => start,
        None if arguments.from_beginning || arguments.until_end => Start::Earliest,
        None => Start::Latest,
    };
    match start {
        Start::Earliest => cluster.ends(&arguments.topic, partitions, End::Earliest).await,
        Start::Latest => cluster.ends(&arguments.topic, partitions, End::Latest).await,
        Start::At(offset) => Ok(partitions.iter().map(|partition| (*partition, offset)).collect()),
    }
}

/// Writes records to standard output.
#[derive(Debug)]
struct Printer {
    out: BufWriter<StdoutLock<'static>>,
    parts: Vec<Part>,
    starts: BTreeMap<i32, i64>,
    left: u64,
}

impl Printer {
    fn new(arguments: &Arguments, starts: BTreeMap<i32, i64>) -> Printer {
        Printer {
            out: BufWriter::new(stdout().lock()),
            parts: arguments.print.clone(),
            starts,
            left: arguments.max_messages.unwrap_or(u64::MAX),
        }
    }

    fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Prints the records of a batch between the partition's start and `end`. Control batches hold none.
    fn batch(&mut self, partition: i32, batch: &ValidBatch, end: i64) -> Result<(), Failure> {
        let header = *batch.header();
        if header.is_control() {
            return Ok(());
        }
        let broken =
            |why: String| Failure::Failed(format!("{partition}: offset {}: {why}", header.base_offset));
        let mut reader = batch.reader(DECOMPRESSED_BYTES_MAX).map_err(|error| broken(error.to_string()))?;
        let start = self.starts.get(&partition).copied().unwrap_or_default();
        while let Some(record) = reader.next() {
            let record = record.map_err(|error| broken(error.to_string()))?;
            let offset = header.base_offset.0 + i64::from(record.offset_delta);
            if self.is_full() || offset >= end {
                return Ok(());
            }
            if offset >= start {
                let place =
                    Place { partition, offset, timestamp: header.timestamp_of(record.timestamp_delta) };
                print(&mut self.out, &self.parts, &place, &record)?;
                self.left -= 1;
            }
        }
        Ok(())
    }
}

struct Place {
    partition: i32,
    offset: i64,
    timestamp: i64,
}

fn print(out: &mut impl Write, parts: &[Part], place: &Place, record: &RecordView<'_>) -> io::Result<()> {
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            out.write_all(b"\t")?;
        }
        match part {
            Part::Partition => write!(out, "{}", place.partition)?,
            Part::Offset => write!(out, "{}", place.offset)?,
            Part::Timestamp => write!(out, "{}", place.timestamp)?,
            Part::Key => out.write_all(record.key.unwrap_or(b"null"))?,
            Part::Value => out.write_all(record.value.unwrap_or(b"null"))?,
            Part::Headers => print_headers(out, record)?,
        }
    }
    out.write_all(b"\n")
}

fn print_headers(out: &mut impl Write, record: &RecordView<'_>) -> io::Result<()> {
    for (at, header) in record.headers.enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        out.write_all(header.key)?;
        out.write_all(b":")?;
        out.write_all(header.value.unwrap_or(b"null"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_beyond_the_end_is_told_with_the_end() {
        let (starts, ends) =
            (BTreeMap::from([(0, 5), (1, 5), (2, 5)]), BTreeMap::from([(0, 5), (1, 4), (2, 9)]));
        assert_eq!(beyond_the_end("t", &starts, &ends), ["offset 5 is beyond the end of t-1, which is 4"]);
    }

    #[test]
    fn reading_begins_at_an_offset_or_an_end() {
        assert_eq!("earliest".parse(), Ok(Start::Earliest));
        assert_eq!("latest".parse(), Ok(Start::Latest));
        assert_eq!("42".parse(), Ok(Start::At(42)));
        assert!("-1".parse::<Start>().is_err());
        assert!("end".parse::<Start>().is_err());
    }
}
