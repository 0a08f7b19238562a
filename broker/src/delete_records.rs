//! DeleteRecords on the owning core: log starts rise at once, and are on the disk before the client is told, so that
//! no crash brings back what it was told is deleted.
//!
//! One round at a time writes `log-start-offset-checkpoint` for every request that came in since the last one began.

use std::cell::RefCell;
use std::rc::Rc;
use std::{iter, mem};

use tarn_log::LogError;
use tarn_record::{Offset, Timestamp, TopicIdPartition};
use tarn_runtime::blocking;
use tarn_runtime::channel::{LocalNotify, ReplySlot};
use tarn_wire::ErrorCode;
use tracing::{debug, warn};

use crate::core::Core;
use crate::envelope::CheckpointEntry;
use crate::failing;
use crate::replica::{DeleteUpTo, NotDeleted};

/// Records of one partition that a client deletes.
#[derive(Clone, Copy, Debug)]
pub struct DeleteOrder {
    /// The partition.
    pub partition: TopicIdPartition,
    /// Up to where.
    pub upto: DeleteUpTo,
}

/// What became of one order: where the log starts now, or why it is not changed.
pub type Deleted = Result<Offset, ErrorCode>;

/// Requests whose log starts are not on the disk yet.
#[derive(Debug, Default)]
pub(crate) struct UnkeptStarts {
    requests: RefCell<Vec<Request>>,
    came_in: LocalNotify,
}

#[derive(Debug)]
struct Request {
    deleted: Vec<Result<CheckpointEntry, ErrorCode>>,
    reply: ReplySlot<Vec<Deleted>>,
}

impl Request {
    /// Answers; `kept` says of each start in turn whether it is on the disk.
    fn answer(self, kept: &mut impl Iterator<Item = Result<(), ErrorCode>>) {
        let unknown = Err(ErrorCode::KAFKA_STORAGE_ERROR);
        let answers = self.deleted.into_iter().map(|one| {
            let entry = one?;
            kept.next().unwrap_or(unknown).map(|()| entry.log_start)
        });
        // Who asked may have gone.
        let _ = self.reply.fill(answers.collect());
    }
}

/// Deletes records; the answer comes once the log starts are on the disk.
pub(crate) fn delete(
    core: &Rc<Core>,
    orders: &[DeleteOrder],
    now: Timestamp,
    reply: ReplySlot<Vec<Deleted>>,
) {
    let deleted: Vec<_> = orders.iter().map(|order| delete_one(core, order, now)).collect();
    core.remove_files();
    let request = Request { deleted, reply };
    if request.deleted.iter().all(Result::is_err) {
        return request.answer(&mut iter::empty());
    }
    let unkept = core.unkept_starts();
    unkept.requests.borrow_mut().push(request);
    unkept.came_in.notify_all();
}

fn delete_one(core: &Rc<Core>, order: &DeleteOrder, now: Timestamp) -> Result<CheckpointEntry, ErrorCode> {
    let partition = order.partition;
    let deleted = core.partitions().delete_records(partition, order.upto, now);
    match deleted {
        Some(Ok(entry)) => Ok(entry),
        Some(Err(error)) => {
            debug!(%partition, %error, "records not deleted");
            if let NotDeleted::Storage(cause) = &error
                && !passes(cause)
            {
                failing::log_failed(core, partition, cause);
            }
            Err(error.code())
        }
        None => Err(core.absence(partition)),
    }
}

/// True for an error after which the log is what its directory says.
fn passes(error: &LogError) -> bool {
    error.is_full() || matches!(error, LogError::HalfCut { .. })
}

/// Writes log starts to the disk in rounds, and answers who waits for them, until the core ends.
pub(crate) async fn keep_starts(core: Rc<Core>) {
    loop {
        let came_in = core.unkept_starts().came_in.wait();
        let requests = mem::take(&mut *core.unkept_starts().requests.borrow_mut());
        if requests.is_empty() {
            came_in.await;
            continue;
        }
        let entries: Vec<CheckpointEntry> =
            requests.iter().flat_map(|request| request.deleted.iter().flatten().cloned()).collect();
        let log_dirs = core.node().log_dirs().clone();
        // Not in the lane of flushes that are promised: it takes turns with whoever writes checkpoints.
        let kept = match blocking(move || log_dirs.keep_starts(&entries)).await {
            Ok(kept) => kept,
            Err(error) => {
                warn!(%error, "log starts not written; clients are told so");
                Vec::new()
            }
        };
        if let Some(why) = kept.iter().find_map(|one| one.as_ref().err()) {
            warn!(%why, "log starts not written; clients are told so");
        }
        let mut kept = kept.into_iter().map(|one| one.map_err(|_| ErrorCode::KAFKA_STORAGE_ERROR));
        requests.into_iter().for_each(|request| request.answer(&mut kept));
    }
}
