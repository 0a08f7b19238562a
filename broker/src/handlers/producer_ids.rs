//! InitProducerId for idempotent producers: ids from a block that the controller gave to this core.

use std::rc::Rc;

use tarn_wire::ErrorCode;
use tarn_wire::messages::{AllocateProducerIdsRequest, InitProducerIdRequest, InitProducerIdResponse};

use crate::core::Core;

/// Serves InitProducerId. A transactional id needs a transaction coordinator, which there is not yet.
pub async fn init(core: &Rc<Core>, request: &InitProducerIdRequest) -> InitProducerIdResponse {
    match &request.transactional_id {
        Some(id) if id.is_empty() => return refused(ErrorCode::INVALID_REQUEST),
        Some(_) => return refused(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        None => {}
    }
    match next(core).await {
        Ok(producer_id) => InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() },
        Err(error) => refused(error),
    }
}

/// The next id of this core's block; of a new block where it is used up.
async fn next(core: &Rc<Core>) -> Result<i64, ErrorCode> {
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

fn refused(error: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse { error_code: error.0, producer_epoch: -1, ..Default::default() }
}
