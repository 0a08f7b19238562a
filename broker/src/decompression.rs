//! Who may decompress now: what clients send is looked into on the cores, and what a batch of some kilobytes becomes may
//! be hundreds of megabytes.
//!
//! Invariant: the checks under way on the node hold no more than [`limits::decompression_bytes`], and the largest record
//! that is allowed once: nobody holds a turn of either kind while it waits for one.

use std::sync::Arc;

use tarn_record::Compression;
use tarn_record::validate::ClientBatchValidator;
use tarn_transport::{MemoryBudget, Permit};

use crate::limits;

/// The turns of one node.
pub struct Decompression {
    usual: Arc<MemoryBudget>,
    large: Arc<MemoryBudget>,
}

/// The turn of one batch, as long as it is kept.
#[must_use = "the turn ends where it is dropped"]
pub struct Turn {
    held: Option<Permit>,
}

impl Decompression {
    /// The turns of a node of so many cores.
    pub fn of_cores(cores: usize) -> Decompression {
        Decompression::new(limits::decompression_bytes(cores))
    }

    /// Turns for up to `bytes` of what batches usually need.
    fn new(bytes: usize) -> Decompression {
        Decompression { usual: MemoryBudget::new(bytes), large: MemoryBudget::new(1) }
    }

    /// The memory for what batches usually need.
    pub fn usual(&self) -> &MemoryBudget {
        &self.usual
    }

    /// True where a batch that needs more has its turn.
    pub fn is_large_under_way(&self) -> bool {
        self.large.in_use() > 0
    }

    /// The turn of a batch that is compressed like this, once there is room. Where it is not it needs none.
    pub async fn begin(&self, compression: Compression) -> Turn {
        let held = match compression {
            Compression::None => None,
            _ => Some(self.usual.start(ClientBatchValidator::USUAL_MEMORY).await),
        };
        Turn { held }
    }

    /// The turn of a batch for which the usual room did not do: one at a time on the whole node.
    pub async fn enlarge(&self, turn: &mut Turn) {
        turn.held = None;
        turn.held = Some(self.large.start(1).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};
    use std::pin::pin;

    #[test]
    fn what_needs_more_goes_one_after_the_other_beside_the_usual_and_in_nobodys_way() {
        block_on(async {
            let turns = Decompression::new(2 * ClientBatchValidator::USUAL_MEMORY);
            let (mut one, two) = (turns.begin(Compression::Zstd).await, turns.begin(Compression::Gzip).await);
            assert!(poll_once(turns.begin(Compression::Lz4)).await.is_none(), "there is no room");
            assert!(poll_once(turns.begin(Compression::None)).await.is_some(), "it needs none");
            turns.enlarge(&mut one).await;
            let mut three = turns.begin(Compression::Lz4).await;
            let mut waits = pin!(turns.enlarge(&mut three));
            assert!(poll_once(waits.as_mut()).await.is_none());
            assert!(poll_once(turns.begin(Compression::Snappy)).await.is_some(), "who waits holds nothing");
            drop((one, two));
            waits.await;
        });
    }
}
