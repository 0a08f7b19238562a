//! FindCoordinator.
//!
//! There are no coordinators yet, and no key has one. The API is served all the same: librdkafka takes a broker
//! without it for one from before 0.8.2, and then sends what it was told to compress with lz4 as it is.

use tarn_wire::ErrorCode;
use tarn_wire::messages::find_coordinator_response::Coordinator;
use tarn_wire::messages::{FindCoordinatorRequest, FindCoordinatorResponse};

/// The first version that asks for several keys at once.
const BATCHED: i16 = 4;
/// What Kafka answers where it has none. Another error would end consumers of librdkafka that read by partition: they
/// have a group too, and only ask.
const NONE_YET: ErrorCode = ErrorCode::COORDINATOR_NOT_AVAILABLE;
const WHY: &str = "This broker does not coordinate groups or transactions yet.";

/// Serves FindCoordinator.
pub fn find(version: i16, request: FindCoordinatorRequest) -> FindCoordinatorResponse {
    if version < BATCHED {
        return FindCoordinatorResponse {
            error_code: NONE_YET.0,
            error_message: Some(WHY.into()),
            node_id: -1,
            port: -1,
            ..Default::default()
        };
    }
    let coordinators = request.coordinator_keys.into_iter().map(|key| Coordinator {
        key,
        node_id: -1,
        port: -1,
        error_code: NONE_YET.0,
        error_message: Some(WHY.into()),
        ..Default::default()
    });
    FindCoordinatorResponse { coordinators: coordinators.collect(), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_answered_as_kafka_does_without_a_coordinator() {
        let asked = FindCoordinatorRequest {
            coordinator_keys: vec!["a".into(), "b".into()],
            ..FindCoordinatorRequest::default()
        };
        let answered = find(BATCHED, asked.clone()).coordinators;
        let keys: Vec<&str> = answered.iter().map(|coordinator| coordinator.key.as_str()).collect();
        assert_eq!(keys, ["a", "b"]);
        let codes = answered.iter().map(|coordinator| coordinator.error_code);
        for code in codes.chain([find(BATCHED - 1, asked).error_code]) {
            assert_eq!(ErrorCode(code), ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
    }
}
