//! Writing responses: parts in memory and parts in files, to one socket.
//!
//! Small pieces are gathered, so that a response of a thousand small parts is one send. A range of a file
//! goes with `sendfile` where it is in the page cache, is read on the blocking pool where it is not, and is
//! copied where it is short. Owned by the connection's task.
//!
//! Invariants:
//! * what is gathered leaves before anything that comes after it;
//! * a range is checked before each chunk and after each read: where it was truncated, nothing more is
//!   sent, and the connection must be closed, because its frame cannot be finished;
//! * every write but the last of a frame says that more follows.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tarn_runtime::socket::{Then, WriteHalf, resident};
use tarn_runtime::{DiskId, blocking_read, now};
use tarn_wire::{FilePart, Frame, Part};
use thiserror::Error;

use crate::limits;
use crate::metrics::{ListenerNumber, TransportMetrics};
use crate::progress::Progress;

/// Why a frame was not written. The connection is of no further use.
#[derive(Debug, Error)]
pub(crate) enum WriteError {
    /// A range was truncated under the reader.
    #[error("{len} bytes at {position} of {range} were truncated while they were being sent")]
    Truncated { range: String, position: u64, len: u32 },
    /// The file was removed before it was opened: of what was deleted, answers are finished that come that far in time.
    #[error("{len} bytes at {position} of {range} were deleted, and removed before they were sent")]
    Removed { range: String, position: u64, len: u32 },
    /// A range could not be opened or read.
    #[error("{len} bytes at {position} of {range} cannot be read: {cause}")]
    Unreadable { range: String, position: u64, len: u32, cause: io::Error },
    /// The connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The sending side of one connection, in the server as in the client.
pub(crate) struct FrameWriter {
    socket: WriteHalf,
    /// Gathered, not yet sent.
    pending: BytesMut,
    progress: Rc<Progress>,
    metrics: Arc<TransportMetrics>,
    listener: ListenerNumber,
}

impl FrameWriter {
    pub(crate) fn new(
        socket: WriteHalf,
        progress: Rc<Progress>,
        metrics: Arc<TransportMetrics>,
        listener: ListenerNumber,
    ) -> FrameWriter {
        FrameWriter { socket, pending: BytesMut::new(), progress, metrics, listener }
    }

    /// Writes a frame; its last small bytes may wait for [`flush`](Self::flush). Parts in files are written
    /// by boxed futures, so that idle connections hold no room for them.
    pub(crate) async fn write(&mut self, frame: Frame) -> Result<(), WriteError> {
        let mut parts = frame.parts.into_iter().filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let then = if parts.peek().is_some() { Then::More } else { Then::Push };
            match part {
                Part::Bytes(bytes) if bytes.len() < limits::GATHER_BYTES_MAX => {
                    self.pending.extend_from_slice(&bytes);
                    self.send_if_full().await?;
                }
                Part::Bytes(bytes) => {
                    self.send_pending(Then::More).await?;
                    self.send(&bytes, then).await?;
                }
                Part::File(part) if part.len < limits::SENDFILE_BYTES_MIN => {
                    Box::pin(self.copy(&part)).await?;
                    self.send_if_full().await?;
                }
                Part::File(part) => Box::pin(self.send_range(&part, then)).await?,
            }
        }
        Ok(())
    }

    /// Sends everything that is gathered.
    pub(crate) async fn flush(&mut self) -> Result<(), WriteError> {
        self.send_pending(Then::Push).await?;
        if self.pending.capacity() > limits::PENDING_BYTES_KEPT {
            self.pending = BytesMut::new();
        }
        Ok(())
    }

    /// Tells the peer that no more comes.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    async fn send_if_full(&mut self) -> Result<(), WriteError> {
        if self.pending.len() >= limits::PENDING_BYTES_MAX {
            // Whatever comes next ends with a push of its own, `flush` at the latest.
            self.send_pending(Then::Push).await?;
        }
        Ok(())
    }

    async fn send_pending(&mut self, then: Then) -> Result<(), WriteError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let sent = self.send(&pending, then).await;
        pending.clear();
        self.pending = pending;
        sent
    }

    async fn send(&mut self, bytes: &[u8], then: Then) -> Result<(), WriteError> {
        let mut chunks = bytes.chunks(limits::WRITE_CHUNK_BYTES).peekable();
        while let Some(chunk) = chunks.next() {
            let then = if chunks.peek().is_some() { Then::More } else { then };
            self.progress.write_begins(now());
            self.socket.write_all(chunk, then).await?;
            self.progress.write_ends(now());
        }
        self.metrics.of(self.listener).bytes_sent.add(bytes.len() as u64);
        Ok(())
    }

    /// A short range joins what is gathered.
    async fn copy(&mut self, part: &FilePart) -> Result<(), WriteError> {
        let file = open(part).await?;
        if resident(&file, part.position, u64::from(part.len)) {
            let at = self.pending.len();
            self.pending.resize(at + part.len as usize, 0);
            let read = file.read_exact_at(&mut self.pending[at..], part.position);
            read.map_err(|cause| unreadable(part, cause))?;
        } else {
            let bytes = self.read_cold(part, &file, part.position, part.len).await?;
            self.pending.extend_from_slice(&bytes);
        }
        check_current(part)
    }

    /// A longer range goes chunk by chunk, each in the way that fits where it lies now.
    async fn send_range(&mut self, part: &FilePart, then: Then) -> Result<(), WriteError> {
        let file = open(part).await?;
        let mut sent = 0;
        while sent < part.len {
            check_current(part)?;
            let position = part.position + u64::from(sent);
            let chunk = (part.len - sent).min(limits::FILE_CHUNK_BYTES);
            sent += if resident(&file, position, u64::from(chunk)) {
                self.send_pending(Then::More).await?;
                let then = if sent + chunk < part.len { Then::More } else { then };
                self.send_resident(part, &file, position, chunk, then).await?;
                chunk
            } else {
                let chunk = chunk.min(limits::COLD_CHUNK_BYTES);
                let bytes = self.read_cold(part, &file, position, chunk).await?;
                check_current(part)?;
                self.send_pending(Then::More).await?;
                let then = if sent + chunk < part.len { Then::More } else { then };
                self.send(&bytes, then).await?;
                chunk
            };
        }
        Ok(())
    }

    async fn send_resident(
        &mut self,
        part: &FilePart,
        file: &File,
        position: u64,
        len: u32,
        then: Then,
    ) -> Result<(), WriteError> {
        self.progress.write_begins(now());
        match self.socket.send_file(file, position, u64::from(len), then).await {
            Ok(sent) => {
                self.progress.write_ends(now());
                self.metrics.of(self.listener).bytes_sent.add(sent);
                self.metrics.bytes_sent_from_files.add(sent);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(truncated(part)),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads beside the core what is not in the page cache.
    async fn read_cold(
        &self,
        part: &FilePart,
        file: &Arc<File>,
        position: u64,
        len: u32,
    ) -> Result<Bytes, WriteError> {
        let file = Arc::clone(file);
        let read = blocking_read(DiskId(part.range.disk()), move || {
            let mut bytes = vec![0; len as usize];
            file.read_exact_at(&mut bytes, position).map(|()| Bytes::from(bytes))
        });
        let read = read.await.map_err(io::Error::from).and_then(|read| read);
        self.metrics.bytes_read_cold.add(u64::from(len));
        read.map_err(|cause| unreadable(part, cause))
    }
}

async fn open(part: &FilePart) -> Result<Arc<File>, WriteError> {
    let opened = match part.range.open_cached() {
        Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
            let range = Arc::clone(&part.range);
            let opened = blocking_read(DiskId(part.range.disk()), move || range.open()).await;
            opened.map_err(io::Error::from).and_then(|opened| opened)
        }
        opened => opened,
    };
    opened.map_err(|cause| unreadable(part, cause))
}

fn check_current(part: &FilePart) -> Result<(), WriteError> {
    if part.range.is_current() { Ok(()) } else { Err(truncated(part)) }
}

fn truncated(part: &FilePart) -> WriteError {
    let FilePart { range, position, len } = part;
    WriteError::Truncated { range: format!("{range:?}"), position: *position, len: *len }
}

/// A file that ends too early was truncated under us, and one that is not there was deleted; anything else is the
/// file's own fault.
fn unreadable(part: &FilePart, cause: io::Error) -> WriteError {
    if cause.kind() == io::ErrorKind::UnexpectedEof || !part.range.is_current() {
        return truncated(part);
    }
    let FilePart { range, position, len } = part;
    let (range, position, len) = (format!("{range:?}"), *position, *len);
    match cause.kind() {
        io::ErrorKind::NotFound => WriteError::Removed { range, position, len },
        _ => WriteError::Unreadable { range, position, len, cause },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;
    use tarn_wire::FileRange;

    struct Gone {
        is_current: bool,
    }

    impl fmt::Debug for Gone {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("orders-3, segment 42")
        }
    }

    impl FileRange for Gone {
        fn open(&self) -> io::Result<Arc<File>> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn is_current(&self) -> bool {
            self.is_current
        }
    }

    #[test]
    fn what_was_deleted_is_not_called_truncated_nor_the_other_way_round() {
        let told = |is_current| {
            let part = FilePart { range: Arc::new(Gone { is_current }), position: 7, len: 10 };
            let cause = part.range.open().err().unwrap_or_else(|| io::ErrorKind::Other.into());
            unreadable(&part, cause).to_string()
        };
        let bytes = "10 bytes at 7 of orders-3, segment 42 were";
        assert_eq!(told(true), format!("{bytes} deleted, and removed before they were sent"));
        assert_eq!(told(false), format!("{bytes} truncated while they were being sent"));
    }
}
