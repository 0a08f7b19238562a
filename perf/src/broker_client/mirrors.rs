//! Requests about mirrors, which are flexible: lengths are varints plus one, and tags may follow anything.

use std::collections::BTreeMap;
use std::io;

use super::{BrokerClient, Fields, Request, bad};

const STOP_MIRROR_TOPICS: i16 = 10_096;
const DESCRIBE_CLUSTER_MIRRORS: i16 = 10_099;
/// The state version of who has not looked before.
const ANY_VERSION: i64 = -1;
/// Mirrored partitions in one page, which do not matter to counts.
const PAGE: i32 = 2_000;

impl BrokerClient {
    /// Stops every topic of the mirror, as a failover does; how many topics that is.
    pub(crate) fn stop_everything(&mut self, mirror: &str) -> io::Result<usize> {
        let mut request = Request::flexible(STOP_MIRROR_TOPICS);
        request.compact_string(mirror);
        request.compact_count(0);
        request.compact_count(1);
        request.compact_string(".*");
        request.number64(ANY_VERSION);
        request.0.push(0);
        request.no_tags();
        self.ask(request)?;
        let mut fields = Fields::of_flexible_answer(&self.answer)?;
        expect_no_error(&mut fields)?;
        let topics = fields.compact_count()?;
        for _ in 0..topics {
            let name = fields.compact_string()?;
            let error = fields.number::<2>()?;
            fields.compact_string()?;
            fields.skip_tags()?;
            if error != 0 {
                let name = String::from_utf8_lossy(name);
                return Err(bad(&format!("{name} was not stopped: error {error}")));
            }
        }
        Ok(topics)
    }

    /// How many partitions of the mirror are in which state.
    pub(crate) fn mirror_states(&mut self, mirror: &str) -> io::Result<BTreeMap<String, i64>> {
        let mut request = Request::flexible(DESCRIBE_CLUSTER_MIRRORS);
        request.compact_count(1);
        request.compact_string(mirror);
        // All topics, and no cluster id.
        request.0.extend([0, 0]);
        // With states, without offsets, without authorized operations, counts only.
        request.0.extend([1, 0, 0, 1]);
        request.number32(PAGE);
        // No cursor.
        request.0.push(0xff);
        request.no_tags();
        self.ask(request)?;
        let mut fields = Fields::of_flexible_answer(&self.answer)?;
        expect_no_error(&mut fields)?;
        if fields.compact_count()? != 1 {
            return Err(bad("not the mirror that was asked for"));
        }
        let error = fields.number::<2>()?;
        if error != 0 {
            return Err(bad(&format!("the mirror is not described: error {error}")));
        }
        // The error's message, the name, the source's address and cluster id.
        for _ in 0..4 {
            fields.compact_string()?;
        }
        fields.number::<4>()?;
        if fields.compact_count()? != 0 {
            return Err(bad("topics where counts were asked for"));
        }
        let mut states = BTreeMap::new();
        for _ in 0..fields.compact_count()? {
            let state = String::from_utf8_lossy(fields.compact_string()?).into_owned();
            states.insert(state, fields.number::<4>()?);
            fields.skip_tags()?;
        }
        Ok(states)
    }
}

/// Reads how an answer begins: a throttle time, an error, its message.
fn expect_no_error(fields: &mut Fields<'_>) -> io::Result<()> {
    fields.number::<4>()?;
    let error = fields.number::<2>()?;
    let message = String::from_utf8_lossy(fields.compact_string()?);
    if error != 0 {
        return Err(bad(&format!("error {error}: {message}")));
    }
    Ok(())
}

impl Request {
    /// A flexible request of version 0.
    fn flexible(api_key: i16) -> Request {
        let mut request = Request::new(api_key, 0);
        request.no_tags();
        request
    }

    fn compact_count(&mut self, count: usize) {
        let mut rest = count + 1;
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }

    fn compact_string(&mut self, text: &str) {
        self.compact_count(text.len());
        self.0.extend(text.as_bytes());
    }

    fn no_tags(&mut self) {
        self.0.push(0);
    }
}

impl<'a> Fields<'a> {
    fn of_flexible_answer(answer: &'a [u8]) -> io::Result<Fields<'a>> {
        let mut fields = Fields::of_answer(answer)?;
        fields.skip_tags()?;
        Ok(fields)
    }

    fn unsigned_varint(&mut self) -> io::Result<usize> {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let byte = usize::from(self.bytes(1)?[0]);
            value |= (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(bad("a number without an end"))
    }

    /// Null is none.
    fn compact_count(&mut self) -> io::Result<usize> {
        Ok(self.unsigned_varint()?.saturating_sub(1))
    }

    /// Null is empty.
    fn compact_string(&mut self) -> io::Result<&'a [u8]> {
        let length = self.compact_count()?;
        self.bytes(length)
    }

    fn skip_tags(&mut self) -> io::Result<()> {
        for _ in 0..self.unsigned_varint()? {
            self.unsigned_varint()?;
            let length = self.unsigned_varint()?;
            self.bytes(length)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_lengths_are_read_as_they_are_written() {
        let mut request = Request(Vec::new());
        let long = "x".repeat(300);
        request.compact_string(&long);
        request.compact_string("");
        request.no_tags();
        let mut fields = Fields::new(&request.0);
        assert_eq!(fields.compact_string().unwrap(), long.as_bytes());
        assert_eq!(fields.compact_string().unwrap(), b"");
        fields.skip_tags().unwrap();
        assert!(fields.skip_tags().is_err());
        assert!(Fields::new(&[0xff; 8]).compact_count().is_err());
    }
}
