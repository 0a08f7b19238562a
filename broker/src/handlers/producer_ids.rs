//! InitProducerId for idempotent producers.

use std::rc::Rc;

use tarn_wire::ErrorCode;
use tarn_wire::messages::{InitProducerIdRequest, InitProducerIdResponse};

use crate::core::Core;
use crate::producer_ids;

/// Serves InitProducerId. A transactional id needs a transaction coordinator, which there is not yet.
pub async fn init(core: &Rc<Core>, request: &InitProducerIdRequest) -> InitProducerIdResponse {
    match &request.transactional_id {
        Some(id) if id.is_empty() => return refused(ErrorCode::INVALID_REQUEST),
        Some(_) => return refused(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        None => {}
    }
    match producer_ids::next(core).await {
        Ok(producer_id) => InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() },
        Err(error) => refused(error),
    }
}

fn refused(error: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse { error_code: error.0, producer_epoch: -1, ..Default::default() }
}
