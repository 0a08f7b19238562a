//! Gzip members, one after the other.
//!
//! Java's reader looks for another member behind each, and takes what does not begin one for the end; so
//! batches with bytes behind their gzip data are in logs, and are read.

use std::io::{self, Cursor, Read};

use flate2::bufread::GzDecoder;

/// The magic of a member, and its only method.
const MEMBER: &[u8] = &[0x1f, 0x8b, 8];

/// Reads all members.
pub(super) struct GzipReader<T: AsRef<[u8]>> {
    /// None after the last.
    member: Option<GzDecoder<Cursor<T>>>,
}

impl<T: AsRef<[u8]>> GzipReader<T> {
    /// Reads `data`, which has one member at least.
    pub(super) fn new(data: Cursor<T>) -> GzipReader<T> {
        GzipReader { member: Some(GzDecoder::new(data)) }
    }

    /// Fills `out` as far as it goes; 0 at the end.
    pub(super) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(out)?;
            if read > 0 {
                return Ok(read);
            }
            self.member = self.member.take().map(GzDecoder::into_inner).and_then(next_member);
        }
        Ok(0)
    }
}

fn next_member<T: AsRef<[u8]>>(data: Cursor<T>) -> Option<GzDecoder<Cursor<T>>> {
    let at = usize::try_from(data.position()).ok()?;
    data.get_ref().as_ref().get(at..)?.starts_with(MEMBER).then(|| GzDecoder::new(data))
}

#[cfg(test)]
mod tests {
    use crate::codec::{Compression, compress, decompress};

    #[test]
    fn what_follows_the_last_member_and_is_none_is_ignored() {
        let member = |data| compress(Compression::Gzip, None, data);
        let two = [member(b"one "), member(b"two")].concat();
        for behind in [&[][..], &[0; 7], &[0x1f], &[0x1f, 0x8b, 7, 1, 2]] {
            let read = decompress(Compression::Gzip, &[&two, behind].concat(), 100);
            assert_eq!(read.as_deref(), Ok(&b"one two"[..]), "{behind:?}");
        }
        let begun = [&two[..], &member(b"three")[..9]].concat();
        assert!(decompress(Compression::Gzip, &begun, 100).is_err(), "a member that is cut short");
    }
}
