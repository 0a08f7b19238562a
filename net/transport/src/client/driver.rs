//! The task of one outgoing connection: writes what is called, reads what is answered.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Buf;
use futures_lite::future;
use tarn_runtime::now;
use tarn_runtime::socket::WriteHalf;

use super::ClientError;
use super::call::Calls;
use crate::frames::{FrameError, FrameReader, InboundFrame};
use crate::metrics::ListenerNumber;
use crate::progress::Progress;
use crate::response::{FrameWriter, WriteError};

/// The bytes of a correlation id, which begins every response.
const CORRELATION_ID_BYTES: usize = 4;

/// Reads and writes until the connection is closed by either side, and tells every call that waits.
pub(super) async fn drive(calls: Rc<Calls>, frames: FrameReader, socket: WriteHalf) {
    // Late peers are noticed by the timeouts of the calls.
    let progress = Rc::new(Progress::new(now()));
    let writer = FrameWriter::new(socket, Rc::clone(&progress), Arc::default(), ListenerNumber::NONE);
    let ended = future::or(write(&calls, writer), read(&calls, frames, &progress));
    let error = future::or(calls.closed(), ended).await;
    calls.close(error);
}

async fn write(calls: &Calls, mut writer: FrameWriter) -> ClientError {
    loop {
        if let Err(error) = write_some(calls, &mut writer).await {
            return ClientError::closed(error);
        }
    }
}

/// Writes what is there, waiting for at least one request.
async fn write_some(calls: &Calls, writer: &mut FrameWriter) -> Result<(), WriteError> {
    writer.write(calls.outgoing().await).await?;
    while let Some(frame) = calls.more_outgoing() {
        writer.write(frame).await?;
    }
    writer.flush().await
}

async fn read(calls: &Calls, mut frames: FrameReader, progress: &Progress) -> ClientError {
    loop {
        let mut response = match frames.next(|| calls.next_limit(), progress).await {
            Ok(Some(InboundFrame { bytes, .. })) => bytes,
            Ok(None) => return ClientError::closed("the broker closed it"),
            Err(error) => return unread(error),
        };
        if response.len() < CORRELATION_ID_BYTES {
            return ClientError::Malformed { detail: format!("a response has {} bytes", response.len()) };
        }
        let correlation_id = response.slice(..CORRELATION_ID_BYTES).get_i32();
        if let Err(error) = calls.answer(correlation_id, std::mem::take(&mut response)) {
            return error;
        }
    }
}

fn unread(error: FrameError) -> ClientError {
    match error {
        FrameError::TooLarge { limit: 0, .. } => {
            ClientError::Malformed { detail: format!("nothing was asked, but {error}") }
        }
        FrameError::TooLarge { announced, limit } => ClientError::TooLarge { announced, limit },
        FrameError::Negative { .. } => ClientError::Malformed { detail: error.to_string() },
        FrameError::CutShort { .. } | FrameError::Io(_) => ClientError::closed(error),
    }
}
