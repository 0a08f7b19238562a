//! A consumer's fetch session (KIP-227, Fetch v11): the first request names all partitions, each later one those
//! that have moved on. Kafka's own consumer fetches so.

use std::io;

use super::{BrokerClient, FETCH_WAIT_MS, Fields, Request, bad};

/// See the module. Of one connection.
#[derive(Debug, Default)]
pub(crate) struct FetchSession {
    id: i32,
    epoch: i32,
    /// The offsets that the broker was told last.
    told: Vec<i64>,
}

impl FetchSession {
    /// What [`BrokerClient::fetch`] does, in the session.
    pub(crate) fn fetch(
        &mut self,
        broker: &mut BrokerClient,
        topic: &str,
        offsets: &[i64],
        response_bytes: i32,
        take: impl FnMut(usize, i64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        broker.ask(self.request(topic, offsets, response_bytes))?;
        self.told = offsets.to_vec();
        let mut fields = Fields::of_answer(&broker.answer)?;
        fields.number::<4>()?;
        let (error, id) = (fields.number::<2>()?, fields.number::<4>()? as i32);
        if error != 0 || id == 0 {
            return Err(bad(&format!("session {id}: error {error}")));
        }
        (self.id, self.epoch) = (id, self.epoch + 1);
        // The last stable offset and the log start, and after the aborted transactions the preferred replica.
        fields.fetched(16, 4, take)
    }

    fn request(&self, topic: &str, offsets: &[i64], response_bytes: i32) -> Request {
        let mut request = Request::new(1, 11);
        request.number32(-1);
        request.number32(FETCH_WAIT_MS);
        request.number32(1);
        request.number32(response_bytes);
        request.0.push(0);
        request.number32(self.id);
        request.number32(self.epoch);
        let named = offsets.iter().enumerate();
        let changed: Vec<_> = named.filter(|(index, offset)| self.told.get(*index) != Some(offset)).collect();
        request.number32(1);
        request.string(topic);
        request.number32(changed.len() as i32);
        for (index, offset) in changed {
            request.number32(index as i32);
            request.number32(-1);
            request.number64(*offset);
            request.number64(-1);
            request.number32(response_bytes);
        }
        // Nothing is forgotten, and there is no rack.
        request.number32(0);
        request.string("");
        request
    }
}
