//! A producer's connection that has several requests under way (Produce v7), each with one batch for one
//! partition. The batch is made once; each time it is sent it gets the time and a new checksum, no more.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;

use clap::ValueEnum;

use super::topics::WRITTEN_IN_MS;
use super::{BrokerClient, Fields, Request, bad};
use crate::batch::stamp;

/// How many requests may wait for their answers, as librdkafka and Kafka's producer have it.
const UNDER_WAY_MAX: u64 = 5;
/// The largest answer to a request with one partition.
const ANSWER_BYTES_MAX: usize = 4096;

/// Who has a batch when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Acks {
    /// The leader.
    #[value(name = "1")]
    One,
    /// All replicas that are in sync.
    All,
}

impl Acks {
    /// Its name in tables and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Acks::One => "1",
            Acks::All => "all",
        }
    }

    fn number(self) -> i16 {
        match self {
            Acks::One => 1,
            Acks::All => -1,
        }
    }
}

/// One connection, with the request that it sends again and again.
#[derive(Debug)]
pub(crate) struct Pipeline {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
    frame: Vec<u8>,
    partition_at: usize,
    batch_at: usize,
    partitions: i32,
    next: i32,
}

impl Pipeline {
    /// Connects. The first batch goes to partition `first` of the topic, each other one to the next.
    pub(crate) fn connect(
        address: &str,
        (topic, partitions): (&str, i32),
        first: i32,
        acks: Acks,
        batch: &[u8],
    ) -> io::Result<Pipeline> {
        let BrokerClient { stream, .. } = BrokerClient::connect(address)?;
        let mut request = Request::new(0, 7);
        request.number16(-1);
        request.number16(acks.number());
        request.number32(WRITTEN_IN_MS);
        request.number32(1);
        request.string(topic);
        request.number32(1);
        let partition_at = request.0.len();
        request.number32(0);
        request.number32(batch.len() as i32);
        let batch_at = request.0.len();
        request.0.extend(batch);
        let answers = BufReader::new(stream.try_clone()?);
        let (frame, next) = (request.framed(), first % partitions);
        Ok(Pipeline { stream, answers, frame, partition_at, batch_at, partitions, next })
    }

    /// Sends a request whenever `more` says so and fewer than five are under way, and reads every answer.
    pub(crate) fn run(&mut self, mut more: impl FnMut() -> bool) -> io::Result<()> {
        let mut under_way = 0;
        loop {
            while under_way < UNDER_WAY_MAX && more() {
                self.send()?;
                under_way += 1;
            }
            if under_way == 0 {
                return Ok(());
            }
            self.receive()?;
            under_way -= 1;
        }
    }

    fn send(&mut self) -> io::Result<()> {
        self.frame[self.partition_at..self.partition_at + 4].copy_from_slice(&self.next.to_be_bytes());
        self.next = (self.next + 1) % self.partitions;
        stamp(&mut self.frame[self.batch_at..]);
        self.stream.write_all(&self.frame)
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut size = [0; 4];
        self.answers.read_exact(&mut size)?;
        let mut answer = [0; ANSWER_BYTES_MAX];
        let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
        let answer = answer.get_mut(..size).ok_or_else(|| bad("an answer of an impossible size"))?;
        self.answers.read_exact(answer)?;
        let mut fields = Fields::of_answer(answer)?;
        fields.count()?;
        fields.skip_string()?;
        fields.count()?;
        let (partition, error) = (fields.number::<4>()?, fields.number::<2>()?);
        match error {
            0 => Ok(()),
            error => Err(bad(&format!("partition {partition} did not take a batch: error {error}"))),
        }
    }
}
