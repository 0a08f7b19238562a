//! Requests that make many topics, fill them, and ask where they end.

use std::time::{Duration, Instant};
use std::{io, thread};

use super::{BrokerClient, Fields, LATEST, LEADER_NOT_AVAILABLE, NOT_LEADER, Request};
use super::{UNKNOWN_TOPIC_OR_PARTITION, bad};

/// How long a broker may take for a change or a write.
pub(super) const WRITTEN_IN_MS: i32 = 30_000;
/// How long it may take until it can give producer ids, and how often it is asked.
const LOADED_WITHIN: Duration = Duration::from_secs(30);
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(100);
const COORDINATOR_LOAD_IN_PROGRESS: i64 = 14;
/// All replicas that are in sync have it.
const ALL: i16 = -1;

/// A partition of one of many topics, by the numbers of both.
pub(crate) type Place = (usize, i32);

impl BrokerClient {
    /// Creates these topics with so many partitions each, one replica and these configs (CreateTopics v4).
    pub(crate) fn create_topics(
        &mut self,
        names: &[String],
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> io::Result<()> {
        let mut request = Request::new(19, 4);
        request.number32(names.len() as i32);
        for name in names {
            request.string(name);
            request.number32(partitions);
            request.number16(1);
            request.number32(0);
            request.number32(configs.len() as i32);
            for (key, value) in configs {
                request.string(key);
                request.string(value);
            }
        }
        request.number32(WRITTEN_IN_MS);
        request.0.push(0);
        self.ask(request)?;
        let mut fields = Fields::of_answer(&self.answer)?;
        fields.number::<4>()?;
        for _ in 0..fields.count()? {
            fields.skip_string()?;
            let error = fields.number::<2>()?;
            fields.skip_string()?;
            if error != 0 {
                return Err(bad(&format!("a topic was not created: error {error}")));
            }
        }
        Ok(())
    }

    /// Deletes a topic (DeleteTopics v1).
    pub(crate) fn delete_topic(&mut self, name: &str) -> io::Result<()> {
        let mut request = Request::new(20, 1);
        request.number32(1);
        request.string(name);
        request.number32(WRITTEN_IN_MS);
        self.ask(request)?;
        let mut fields = Fields::of_answer(&self.answer)?;
        // The throttle time, the number of answers.
        fields.bytes(8)?;
        fields.skip_string()?;
        match fields.number::<2>()? {
            0 => Ok(()),
            error => Err(bad(&format!("{name} was not deleted: error {error}"))),
        }
    }

    /// A producer id that nobody else has (InitProducerId v1). A broker that has only started may have none for a
    /// while, COORDINATOR_LOAD_IN_PROGRESS: its controller gives it a block of them.
    pub(crate) fn producer_id(&mut self) -> io::Result<i64> {
        let until = Instant::now() + LOADED_WITHIN;
        loop {
            let mut request = Request::new(22, 1);
            request.number16(-1);
            request.number32(WRITTEN_IN_MS);
            self.ask(request)?;
            let mut fields = Fields::of_answer(&self.answer)?;
            fields.number::<4>()?;
            match fields.number::<2>()? {
                0 => return fields.number::<8>(),
                COORDINATOR_LOAD_IN_PROGRESS if Instant::now() < until => thread::sleep(ASKED_AGAIN_AFTER),
                error => return Err(bad(&format!("no producer id: error {error}"))),
            }
        }
    }

    /// Writes one batch to each of these partitions of the topics named, acknowledged by all replicas (Produce
    /// v7); each partition with its error code, 0 where it was taken. Places of a topic stand together.
    pub(crate) fn produce(
        &mut self,
        names: &[String],
        places: &[Place],
        batch: &[u8],
        transactional_id: Option<&str>,
    ) -> io::Result<Vec<(Place, i64)>> {
        let topics: Vec<&[Place]> = places.chunk_by(|one, next| one.0 == next.0).collect();
        let mut request = Request::new(0, 7);
        match transactional_id {
            Some(id) => request.string(id),
            None => request.number16(-1),
        }
        request.number16(ALL);
        request.number32(WRITTEN_IN_MS);
        request.number32(topics.len() as i32);
        for topic in &topics {
            request.string(&names[topic[0].0]);
            request.number32(topic.len() as i32);
            for (_, partition) in *topic {
                request.number32(*partition);
                request.number32(batch.len() as i32);
                request.0.extend(batch);
            }
        }
        self.ask(request)?;
        let mut fields = Fields::of_answer(&self.answer)?;
        let mut answered = Vec::with_capacity(places.len());
        for _ in 0..fields.count()? {
            let name = fields.string()?;
            let topic = topics.iter().find(|topic| names[topic[0].0].as_bytes() == name);
            let topic = topic.ok_or_else(|| bad("a topic not asked for"))?[0].0;
            for _ in 0..fields.count()? {
                let (partition, error) = (fields.number::<4>()?, fields.number::<2>()?);
                // The offset, the time, where the log starts.
                fields.bytes(24)?;
                answered.push(((topic, partition as i32), error));
            }
        }
        Ok(answered)
    }

    /// The end of each partition of each of these topics as a client sees it (ListOffsets v1), topic after
    /// topic in the answer's order; `None` where the broker does not lead it, or not yet.
    pub(crate) fn ends_of(
        &mut self,
        names: &[String],
        partitions: i32,
    ) -> io::Result<Vec<(String, i32, Option<i64>)>> {
        let mut request = Request::new(2, 1);
        request.number32(-1);
        request.number32(names.len() as i32);
        for name in names {
            request.string(name);
            request.number32(partitions);
            for partition in 0..partitions {
                request.number32(partition);
                request.number64(LATEST);
            }
        }
        self.ask(request)?;
        let mut fields = Fields::of_answer(&self.answer)?;
        let mut ends = Vec::new();
        for _ in 0..fields.count()? {
            let name = String::from_utf8_lossy(fields.string()?).into_owned();
            for _ in 0..fields.count()? {
                let (partition, error) = (fields.number::<4>()?, fields.number::<2>()?);
                let (_timestamp, offset) = (fields.number::<8>()?, fields.number::<8>()?);
                let end = match error {
                    0 => Some(offset),
                    UNKNOWN_TOPIC_OR_PARTITION | LEADER_NOT_AVAILABLE | NOT_LEADER => None,
                    error => return Err(bad(&format!("{name}-{partition}: error {error}"))),
                };
                ends.push((name.clone(), partition as i32, end));
            }
        }
        Ok(ends)
    }
}
