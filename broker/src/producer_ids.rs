//! The producer ids that a core gives away, out of blocks that the controller allocates to this broker.
//!
//! Each core has a block of its own, so that giving an id away needs no other core. Ids of a block that is
//! replaced or forgotten with a restart are never used: there are enough.

use std::rc::Rc;

use tarn_wire::ErrorCode;
use tarn_wire::messages::AllocateProducerIdsRequest;

use crate::core::Core;

/// The next id of this core's block; of a new block where it is used up.
///
/// # Errors
/// COORDINATOR_NOT_AVAILABLE where the controller gives no block.
pub(crate) async fn next(core: &Rc<Core>) -> Result<i64, ErrorCode> {
    if let Some(id) = core.producer_ids().next() {
        return Ok(id);
    }
    let broker_id = core.node().broker_id();
    let registration = core.image().registrations().broker(broker_id).map(|broker| broker.epoch);
    let request =
        AllocateProducerIdsRequest { broker_id: broker_id.0, broker_epoch: registration.unwrap_or(-1) };
    let allocated = core.decided(core.node().controller().allocate_producer_ids(request)).await;
    let block = allocated.map_err(|_| ErrorCode::COORDINATOR_NOT_AVAILABLE)?;
    if block.error_code != ErrorCode::NONE.0 {
        return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
    }
    let end = block.producer_id_start.saturating_add(i64::from(block.producer_id_len));
    // Two requests may have asked at once: the second block takes the place of what is left of the first.
    let mut ids = core.producer_ids();
    *ids = block.producer_id_start..end;
    ids.next().ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE)
}
