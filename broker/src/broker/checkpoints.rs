//! The checkpoint files while the node runs: what a start after a crash may rely on.

use std::rc::Rc;
use std::time::Duration;

use tarn_runtime::channel::{Flag, reply};
use tarn_runtime::{blocking, sleep};
use tracing::error;

use crate::core::Core;
use crate::envelope::Envelope;

/// Writes the checkpoint files of the node every few seconds.
pub(super) async fn write_checkpoints(core: Rc<Core>, stop: Flag) {
    while !stop.is_raised() {
        sleep(Duration::from_millis(core.node().config().storage.checkpoint_interval_ms())).await;
        let log_dirs = core.node().log_dirs().clone();
        let begun = log_dirs.clone();
        // Another thread may be writing, which takes a while.
        if blocking(move || begun.begin_checkpoints()).await.is_err() {
            continue;
        }
        let mut entries = Vec::new();
        for owner in core.partition_cores().to_vec() {
            let (slot, answer) = reply();
            core.deliver(owner, Envelope::Checkpoint(slot)).await;
            entries.extend(answer.await.unwrap_or_default());
        }
        if stop.is_raised() {
            return;
        }
        match blocking(move || log_dirs.write_checkpoints(&entries)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => error!(%error, "checkpoints not written"),
            Err(error) => error!(%error, "checkpoints not written"),
        }
    }
}
