//! Reading frames from a socket: four bytes of size, then so many bytes.
//!
//! Small frames are cut out of what one read brought; a large frame gets a buffer of its own, which grows
//! with what arrives. A connection that waits between frames holds no memory here. Owned by the task of
//! the connection, in the server as in the client.
//!
//! Invariants:
//! * memory is at most twice what has arrived, plus one first step rounded up to `BUFFER_GRAIN_BYTES`, whatever
//!   a size announces; the step is small for requests, which come from anyone, and large for answers, which
//!   were asked for. A buffer that was kept from an earlier frame may be larger;
//! * nothing is read while the budget is exhausted.

use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tarn_runtime::socket::ReadHalf;
use tarn_runtime::{now, yield_if_needed};
use thiserror::Error;

use crate::budget::{MemoryBudget, Permit};
use crate::buffers;
use crate::limits;
use crate::progress::{Progress, Reading};

/// The bytes of a frame's size.
const SIZE_BYTES: usize = 4;

/// Why there is no further frame. The connection is of no further use.
#[derive(Debug, Error)]
pub(crate) enum FrameError {
    /// A size below zero. What the four bytes look like as text often tells who is there.
    #[error("a frame announces {announced} bytes; its first bytes read {:?}", as_text(*announced))]
    Negative { announced: i32 },
    /// A size above the limit.
    #[error("a frame announces {announced} bytes, {limit} are allowed; its first bytes read {:?}", as_text(*announced))]
    TooLarge { announced: i32, limit: usize },
    /// The peer ended its stream inside a frame.
    #[error("the stream ends {missing} bytes short of a frame")]
    CutShort { missing: usize },
    /// The connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A frame without its size, and what it holds of the budget.
pub(crate) struct InboundFrame {
    pub(crate) bytes: Bytes,
    pub(crate) permit: Permit,
}

/// The frames of one connection.
pub(crate) struct FrameReader {
    socket: ReadHalf,
    /// What was read and not yet taken as a frame.
    buffer: BytesMut,
    budget: Arc<MemoryBudget>,
    first_step: usize,
}

impl FrameReader {
    /// The requests that a client sends.
    pub(crate) fn of_requests(socket: ReadHalf, budget: Arc<MemoryBudget>) -> FrameReader {
        FrameReader { socket, buffer: BytesMut::new(), budget, first_step: limits::REQUEST_STEP_BYTES }
    }

    /// The answers that a broker sends to what was asked here.
    pub(crate) fn of_answers(socket: ReadHalf) -> FrameReader {
        let budget = MemoryBudget::unlimited();
        FrameReader { socket, buffer: BytesMut::new(), budget, first_step: limits::ANSWER_STEP_BYTES }
    }

    /// The next frame; `None` where the peer ended its stream between frames. `limit` is asked once the
    /// size is known.
    pub(crate) async fn next(
        &mut self,
        limit: impl Fn() -> usize,
        progress: &Progress,
    ) -> Result<Option<InboundFrame>, FrameError> {
        progress.reads(if self.buffer.is_empty() { Reading::Between } else { Reading::InFrame });
        while self.buffer.len() < SIZE_BYTES {
            let missing = SIZE_BYTES - self.buffer.len();
            if self.socket.read_into(&mut self.buffer, 1).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(FrameError::CutShort { missing }) };
            }
            progress.moved(now());
            progress.reads(Reading::InFrame);
        }
        let size = self.size(limit())?;
        let whole = SIZE_BYTES + size;

        progress.reads(Reading::OurTurn);
        let first_step = whole.min(self.first_step.max(self.buffer.len()));
        let mut permit = self.budget.start(first_step).await;
        progress.frame_holds(permit.bytes(), now());

        let mut bytes = if whole <= self.buffer.len().max(limits::SMALL_FRAME_BYTES_MAX) {
            self.small(whole, progress).await?
        } else {
            // Boxed, as most frames never need its room.
            Box::pin(self.large(whole, &mut permit, progress)).await?
        };
        permit.settle(whole);
        bytes.advance(SIZE_BYTES);
        progress.reads(Reading::OurTurn);
        Ok(Some(InboundFrame { bytes, permit }))
    }

    /// Reads on for nobody, until the peer ends its stream.
    pub(crate) async fn discard(&mut self) {
        let mut unwanted = vec![0; limits::DISCARD_BYTES];
        while self.socket.read(&mut unwanted).await.is_ok_and(|read| read > 0) {
            yield_if_needed().await;
        }
    }

    fn size(&self, limit: usize) -> Result<usize, FrameError> {
        let announced = (&self.buffer[..SIZE_BYTES]).get_i32();
        let size = usize::try_from(announced).map_err(|_| FrameError::Negative { announced })?;
        if size > limit { Err(FrameError::TooLarge { announced, limit }) } else { Ok(size) }
    }

    /// A frame that shares its memory with its neighbours.
    async fn small(&mut self, whole: usize, progress: &Progress) -> Result<Bytes, FrameError> {
        while self.buffer.len() < whole {
            let missing = whole - self.buffer.len();
            match self.socket.read_into(&mut self.buffer, 1).await? {
                0 => return Err(FrameError::CutShort { missing }),
                brought => progress.frame_brought(brought, now()),
            }
        }
        Ok(self.buffer.split_to(whole).freeze())
    }

    /// A frame with memory of its own. All that was read belongs to it.
    async fn large(
        &mut self,
        whole: usize,
        permit: &mut Permit,
        progress: &Progress,
    ) -> Result<Bytes, FrameError> {
        let mut frame = buffers::take(whole, self.first_step);
        frame.extend_from_slice(&std::mem::take(&mut self.buffer));
        while frame.len() < whole {
            if frame.len() == permit.bytes() {
                progress.reads(Reading::OurTurn);
                permit.grow(frame.len().min(whole - frame.len())).await;
                progress.frame_holds(permit.bytes(), now());
            }
            let room = permit.bytes().min(whole) - frame.len();
            let missing = whole - frame.len();
            let chunk = room.min(limits::READ_CHUNK_BYTES);
            match self.socket.read_exact_into(&mut frame, chunk).await {
                Ok(()) => progress.frame_brought(chunk, now()),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(FrameError::CutShort { missing });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(buffers::freeze(frame))
    }
}

/// The four bytes of a size as the text that they may be, such as `GET ` or `HTTP`.
fn as_text(announced: i32) -> String {
    announced.to_be_bytes().escape_ascii().to_string()
}
