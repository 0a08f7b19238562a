//! The errors that a response says it has are those on the wire.

use tarn_wire::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use tarn_wire::messages::find_coordinator_response::Coordinator;
use tarn_wire::messages::{CreateTopicsResponse, FetchResponse, FindCoordinatorResponse};
use tarn_wire::{ErrorCode, Response};

#[test]
fn a_response_tells_the_errors_that_its_version_has() {
    let coordinators = vec![Coordinator { error_code: 15, ..Default::default() }; 2];
    let response = FindCoordinatorResponse { error_code: 16, coordinators, ..Default::default() };
    assert_eq!(errors(&response, 3), [16]);
    assert_eq!(errors(&response, 4), [15, 15]);
}

#[test]
fn errors_of_all_that_was_asked_for_are_told() {
    let partitions = [0, 6].map(|error_code| PartitionData { error_code, ..Default::default() });
    let topic = FetchableTopicResponse { partitions: partitions.into(), ..Default::default() };
    let response = FetchResponse { error_code: 71, responses: vec![topic; 2], ..Default::default() };
    assert_eq!(errors(&response, 18), [71, 0, 6, 0, 6]);
    assert_eq!(errors(&response, 6), [0, 6, 0, 6], "it has sessions from version 7 on");
    assert_eq!(errors(&CreateTopicsResponse::default(), 7), [0; 0]);
}

fn errors<R: Response>(response: &R, version: i16) -> Vec<i16> {
    let mut told = Vec::new();
    response.each_error(version, &mut |code: ErrorCode| told.push(code.0));
    told
}
