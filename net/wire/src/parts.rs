//! What a frame is made of: bytes in memory, and ranges of files that go to the socket without being read.
//!
//! A fetch response of a megabyte is a few hundred bytes of fields around ranges of segment files. The
//! ranges stay `FilePart`s until the socket sends them. Owned by the response that carries them.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

/// A file that a response may be sent from; a segment of a log. How it is written out, `Debug`, is what is told where it
/// cannot be sent: a few words.
pub trait FileRange: Send + Sync + Debug {
    /// The open file. The descriptor comes out of the node's budget while the `Arc` lives.
    ///
    /// # Errors
    /// What the operating system says, or that the file is gone.
    fn open(&self) -> io::Result<Arc<File>>;

    /// The same where that does not wait for the disk; else an error of kind `WouldBlock`, at once.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and `WouldBlock`.
    fn open_cached(&self) -> io::Result<Arc<File>> {
        self.open()
    }

    /// Which disk the file is on, by any number: what is read of one does not wait for another.
    fn disk(&self) -> usize {
        0
    }

    /// Whether the bytes are still what they were: false once they were truncated under the reader, when the sender must close the connection rather than send others in their place.
    fn is_current(&self) -> bool;
}

/// A range of a file.
#[derive(Clone, Debug)]
pub struct FilePart {
    /// The file.
    pub range: Arc<dyn FileRange>,
    /// The first byte.
    pub position: u64,
    /// How many bytes.
    pub len: u32,
}

impl PartialEq for FilePart {
    fn eq(&self, other: &FilePart) -> bool {
        Arc::ptr_eq(&self.range, &other.range) && self.position == other.position && self.len == other.len
    }
}

/// A piece of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in a file.
    File(FilePart),
}

impl Part {
    /// Its size in bytes.
    pub fn len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::File(file) => file.len as usize,
        }
    }

    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its first `bytes` bytes; all of it where it has no more.
    fn first(self, bytes: usize) -> Part {
        match self {
            Part::Bytes(all) => Part::Bytes(all.slice(..bytes.min(all.len()))),
            Part::File(file) => {
                let len = u32::try_from(bytes).unwrap_or(u32::MAX).min(file.len);
                Part::File(FilePart { len, ..file })
            }
        }
    }
}

/// A field of type `records`: record batches one after the other, wherever they lie. Decoding yields one
/// slice of the frame.
#[derive(Clone, Default)]
pub struct Records {
    pieces: Pieces,
}

/// Nearly always none or one, so that a partition without news allocates nothing.
#[derive(Clone, Default)]
enum Pieces {
    #[default]
    None,
    One(Part),
    Many(Vec<Part>),
}

impl Records {
    /// Appends a piece; an empty one leaves no trace.
    pub fn push(&mut self, part: Part) {
        if part.is_empty() {
            return;
        }
        self.pieces = match std::mem::take(&mut self.pieces) {
            Pieces::None => Pieces::One(part),
            Pieces::One(first) => Pieces::Many(vec![first, part]),
            Pieces::Many(mut parts) => {
                parts.push(part);
                Pieces::Many(parts)
            }
        };
    }

    /// Drops what is beyond the first `bytes` bytes.
    pub fn truncate(&mut self, bytes: usize) {
        let mut left = bytes;
        let parts = std::mem::take(self);
        for part in parts.parts() {
            let part = part.clone().first(left);
            left -= part.len();
            self.push(part);
        }
    }

    /// The pieces, in order.
    pub fn parts(&self) -> &[Part] {
        match &self.pieces {
            Pieces::None => &[],
            Pieces::One(part) => std::slice::from_ref(part),
            Pieces::Many(parts) => parts,
        }
    }

    /// The size of all of it, in bytes.
    pub fn len(&self) -> usize {
        self.parts().iter().map(Part::len).sum()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.parts().is_empty()
    }

    /// All of it as one piece of memory, copied only where it is several; `None` where a part is in a file.
    pub fn to_bytes(&self) -> Option<Bytes> {
        flatten(self.parts())
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Records {
        let mut records = Records::default();
        records.push(Part::Bytes(bytes));
        records
    }
}

/// Equal where the bytes are, however they are cut; parts in files are compared as places.
impl PartialEq for Records {
    fn eq(&self, other: &Records) -> bool {
        match (self.to_bytes(), other.to_bytes()) {
            (Some(ours), Some(theirs)) => ours == theirs,
            (None, None) => self.parts() == other.parts(),
            _ => false,
        }
    }
}

impl Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.parts() {
            [] => f.write_str("b\"\""),
            [Part::Bytes(bytes)] => bytes.fmt(f),
            parts => parts.fmt(f),
        }
    }
}

/// `parts` as one piece of memory, copied only where it is several; `None` where one is in a file.
pub(crate) fn flatten(parts: &[Part]) -> Option<Bytes> {
    if let [Part::Bytes(only)] = parts {
        return Some(only.clone());
    }
    let mut all = Vec::new();
    for part in parts {
        match part {
            Part::Bytes(bytes) => all.extend_from_slice(bytes),
            Part::File(_) => return None,
        }
    }
    Some(Bytes::from(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_cut_within_a_piece_or_between_two() {
        let of = |text: &'static str| Part::Bytes(Bytes::from_static(text.as_bytes()));
        for (bytes, left) in [(0, ""), (2, "ab"), (3, "abc"), (5, "abcde"), (6, "abcdef"), (9, "abcdef")] {
            let mut records = Records::default();
            [of("abc"), of("def")].into_iter().for_each(|part| records.push(part));
            records.truncate(bytes);
            assert_eq!(records.to_bytes().as_deref(), Some(left.as_bytes()), "{bytes}");
        }
    }
}
