//! A producer's connection that has several requests under way (Produce v7), each with one batch for one
//! partition. The batch is made once; each time it is sent it gets the time and a new checksum, no more. Who sends by
//! the clock takes the two halves apart, and waits for answers elsewhere.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;

use clap::ValueEnum;

use super::topics::WRITTEN_IN_MS;
use super::{BrokerClient, Fields, Request, bad};
use crate::batch::stamp;

/// How many requests may wait for their answers, as librdkafka and Kafka's producer have it.
pub(crate) const UNDER_WAY_MAX: u64 = 5;
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

/// One connection.
#[derive(Debug)]
pub(crate) struct Pipeline {
    requests: Requests,
    answers: Answers,
}

/// The half that sends: one request, again and again.
#[derive(Debug)]
pub(crate) struct Requests {
    stream: TcpStream,
    frame: Vec<u8>,
    partition_at: usize,
    batch_at: usize,
    partitions: Vec<i32>,
    next: usize,
}

/// The half that reads what is said to them, in their order.
#[derive(Debug)]
pub(crate) struct Answers(BufReader<TcpStream>);

impl Pipeline {
    /// Connects. Batches go to these partitions of the topic in turn, of which there is one at least.
    pub(crate) fn connect(
        address: &str,
        (topic, partitions): (&str, Vec<i32>),
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
        let answers = Answers(BufReader::new(stream.try_clone()?));
        let frame = request.framed();
        let requests = Requests { stream, frame, partition_at, batch_at, partitions, next: 0 };
        Ok(Pipeline { requests, answers })
    }

    /// Sends a request whenever `more` says so and fewer than so many are under way, and reads every answer; how many
    /// there were.
    pub(crate) fn run(&mut self, under_way_max: u64, mut more: impl FnMut() -> bool) -> io::Result<u64> {
        let (mut under_way, mut answered) = (0, 0);
        loop {
            while under_way < under_way_max && more() {
                self.requests.send()?;
                under_way += 1;
            }
            if under_way == 0 {
                return Ok(answered);
            }
            self.answers.receive()?;
            under_way -= 1;
            answered += 1;
        }
    }

    /// Its halves.
    pub(crate) fn halves(self) -> (Requests, Answers) {
        (self.requests, self.answers)
    }
}

impl Requests {
    /// Sends the next.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        let partition = self.partitions[self.next];
        self.next = (self.next + 1) % self.partitions.len();
        self.frame[self.partition_at..self.partition_at + 4].copy_from_slice(&partition.to_be_bytes());
        stamp(&mut self.frame[self.batch_at..]);
        self.stream.write_all(&self.frame)
    }
}

impl Answers {
    /// Reads the next; fails where the batch was not taken.
    pub(crate) fn receive(&mut self) -> io::Result<()> {
        let mut size = [0; 4];
        self.0.read_exact(&mut size)?;
        let mut answer = [0; ANSWER_BYTES_MAX];
        let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
        let answer = answer.get_mut(..size).ok_or_else(|| bad("an answer of an impossible size"))?;
        self.0.read_exact(answer)?;
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
