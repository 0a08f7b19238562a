//! AllocateProducerIds: a broker gets the next block of ids.
//!
//! Where the blocks begin was derived from the cluster's id when the directory was formatted, so that the
//! ids of clusters that mirror each other do not meet.

use tarn_image::MetadataImage;
use tarn_record::BrokerId;
use tarn_wire::ErrorCode;
use tarn_wire::messages::{AllocateProducerIdsRequest, AllocateProducerIdsResponse, ProducerIdsRecord};

use super::Decision;
use super::brokers::check_epoch;

/// The ids in one block, as in Kafka.
pub const BLOCK: i64 = 1000;

/// Decides a request.
pub fn allocate(
    image: &MetadataImage,
    request: &AllocateProducerIdsRequest,
) -> Decision<AllocateProducerIdsResponse> {
    let refuse = |code: ErrorCode| {
        Decision::unchanged(AllocateProducerIdsResponse {
            error_code: code.0,
            ..AllocateProducerIdsResponse::default()
        })
    };
    if let Err(error) = check_epoch(image, BrokerId(request.broker_id), request.broker_epoch) {
        return refuse(error.code);
    }
    let first = image.producer_ids().map_or(0, |newest| newest.next);
    let Some(next) = first.checked_add(BLOCK) else {
        return refuse(ErrorCode::UNKNOWN_SERVER_ERROR);
    };
    let record = ProducerIdsRecord {
        broker_id: request.broker_id,
        broker_epoch: request.broker_epoch,
        next_producer_id: next,
    };
    let response = AllocateProducerIdsResponse {
        producer_id_start: first,
        producer_id_len: 1000,
        ..AllocateProducerIdsResponse::default()
    };
    Decision::of(vec![record.into()], response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::World;

    #[test]
    fn two_requests_in_flight_never_get_the_same_ids() {
        let mut world = World::with_brokers(1);
        let request = AllocateProducerIdsRequest { broker_id: 1, broker_epoch: world.epoch_of(1) };
        let first = world.apply(allocate(&world.image, &request));
        let second = world.apply(allocate(&world.image, &request));
        assert_eq!((first.error_code, first.producer_id_start, first.producer_id_len), (0, 0, 1000));
        assert_eq!(second.producer_id_start, 1000);
    }

    #[test]
    fn an_earlier_life_of_a_broker_gets_none() {
        let world = World::with_brokers(1);
        let request = AllocateProducerIdsRequest { broker_id: 1, broker_epoch: world.epoch_of(1) - 1 };
        assert_eq!(allocate(&world.image, &request).response.error_code, ErrorCode::STALE_BROKER_EPOCH.0);
        let request = AllocateProducerIdsRequest { broker_id: 9, broker_epoch: 0 };
        assert_eq!(
            allocate(&world.image, &request).response.error_code,
            ErrorCode::BROKER_ID_NOT_REGISTERED.0
        );
    }
}
