//! Frames written out by hand, byte by byte, from the protocol's description.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tarn_wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchResponse, HeartbeatRequest, OffsetCommitKey,
    OffsetCommitValue, ProduceRequest, TopicRecord, api_versions_response, fetch_response, produce_request,
};
use tarn_wire::{
    ApiKey, Cursor, EncodeError, ErrorCode, FilePart, FileRange, HeaderError, Message, MetadataRecord, Part,
    Records, Str, coordinator_key_type, decode_request_header, decode_response_header, encode_key,
    encode_request, encode_response, encode_value,
};
use uuid::Uuid;

#[rustfmt::skip]
const API_VERSIONS_V3: &[u8] = &[
    0, 0, 0, 29,                      // size
    0, 18,  0, 3,  0, 0, 0, 7,        // key, version, correlation id
    0, 4, b't', b'e', b's', b't',     // client id: an int16 length even in a flexible header
    0,                                // tagged fields of the header
    5, b't', b'a', b'r', b'n',        // client software name
    8, b'0', b'.', b'1', b'.', b'0', b'-', b'a', // client software version
    0,                                // tagged fields of the request
];

#[test]
fn an_api_versions_request_is_these_bytes() {
    let request = ApiVersionsRequest {
        client_software_name: "tarn".into(),
        client_software_version: "0.1.0-a".into(),
        ..Default::default()
    };
    let frame = encode_request(7, "test", 3, &request).unwrap().to_bytes().unwrap();
    assert_eq!(frame, API_VERSIONS_V3);

    let mut cursor = Cursor::new(frame.slice(4..));
    let header = decode_request_header(&mut cursor).unwrap();
    assert_eq!(header.api_key, ApiKey::API_VERSIONS);
    assert_eq!((header.api_version, header.correlation_id), (3, 7));
    assert_eq!(header.client_id, Some(Str::from_static("test")));
    assert_eq!(ApiVersionsRequest::decode(&mut cursor, 3), Ok(request));
    assert_eq!(cursor.expect_end(), Ok(()));
}

#[test]
fn an_api_versions_response_has_the_old_header_in_every_version() {
    let api = api_versions_response::ApiVersion { api_key: 18, min_version: 0, max_version: 5 };
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION.0,
        api_keys: vec![api],
        ..Default::default()
    };
    let fallback = encode_response(7, 0, &response).unwrap().to_bytes().unwrap();
    #[rustfmt::skip]
    assert_eq!(fallback[..], [
        0, 0, 0, 16,   0, 0, 0, 7,              // size, correlation id
        0, 35,  0, 0, 0, 1,                     // error, one API
        0, 18,  0, 0,  0, 5,
    ]);
    let flexible = encode_response(7, 3, &response).unwrap().to_bytes().unwrap();
    #[rustfmt::skip]
    assert_eq!(flexible[..], [
        0, 0, 0, 19,   0, 0, 0, 7,              // no tagged fields after the correlation id
        0, 35,  2,
        0, 18,  0, 0,  0, 5,  0,
        0, 0, 0, 0,  0,
    ]);
    let mut cursor = Cursor::new(flexible.slice(4..));
    assert_eq!(decode_response_header::<ApiVersionsResponse>(&mut cursor, 3), Ok(7));
    assert_eq!(ApiVersionsResponse::decode(&mut cursor, 3), Ok(response));
}

#[test]
fn a_header_of_an_unknown_version_can_be_read_and_one_of_an_unknown_api_is_named() {
    let mut far = API_VERSIONS_V3[4..].to_vec();
    far[3] = 99;
    let header = decode_request_header(&mut Cursor::new(Bytes::from(far))).unwrap();
    assert_eq!((header.api_key, header.api_version), (ApiKey::API_VERSIONS, 99));

    let unknown = Bytes::from_static(&[0x7f, 0, 0, 1, 0, 0, 0, 9]);
    let refused = decode_request_header(&mut Cursor::new(unknown));
    assert_eq!(
        refused,
        Err(HeaderError::UnknownApi { api_key: ApiKey(0x7f00), api_version: 1, correlation_id: 9 })
    );
}

#[test]
fn an_old_request_has_a_header_without_tagged_fields() {
    let request = HeartbeatRequest {
        group_id: "g".into(),
        generation_id: 2,
        member_id: "m".into(),
        ..Default::default()
    };
    let frame = encode_request(1, "", 0, &request).unwrap().to_bytes().unwrap();
    #[rustfmt::skip]
    assert_eq!(frame[..], [
        0, 0, 0, 20,
        0, 12,  0, 0,  0, 0, 0, 1,  0, 0,
        0, 1, b'g',  0, 0, 0, 2,  0, 1, b'm',
    ]);
}

#[test]
fn records_of_a_request_are_a_slice_of_its_frame() {
    let batch = Bytes::from(vec![0xab; 100]);
    let request = ProduceRequest {
        acks: -1,
        topic_data: vec![produce_request::TopicProduceData {
            name: "orders".into(),
            partition_data: vec![produce_request::PartitionProduceData {
                index: 3,
                records: Some(Records::from(batch.clone())),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let frame = encode_request(1, "c", 9, &request).unwrap().to_bytes().unwrap();
    let mut cursor = Cursor::new(frame.slice(4..));
    decode_request_header(&mut cursor).unwrap();
    let read = ProduceRequest::decode(&mut cursor, 9).unwrap();
    let records = read.topic_data[0].partition_data[0].records.as_ref().unwrap().to_bytes().unwrap();
    assert_eq!(records, batch);
    assert!(frame.as_ptr_range().contains(&records.as_ptr()), "no copy was made");
}

#[derive(Debug)]
struct Segment;

impl FileRange for Segment {
    fn open(&self) -> io::Result<Arc<File>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn is_current(&self) -> bool {
        true
    }
}

#[test]
fn a_range_of_a_file_stays_a_part_between_the_bytes_around_it() {
    let mut records = Records::default();
    records.push(Part::File(FilePart { range: Arc::new(Segment), position: 4096, len: 65_536 }));
    let large = Bytes::from(vec![7; 5000]);
    records.push(Part::Bytes(large.clone()));
    records.push(Part::Bytes(Bytes::from_static(b"small")));
    let response = FetchResponse {
        responses: vec![fetch_response::FetchableTopicResponse {
            topic_id: Uuid::from_u128(1),
            partitions: vec![fetch_response::PartitionData { records: Some(records), ..Default::default() }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let frame = encode_response(1, 16, &response).unwrap();
    assert_eq!(frame.to_bytes(), None, "a file is not in memory");
    assert_eq!(frame.len, frame.parts.iter().map(Part::len).sum::<usize>());
    let [Part::Bytes(before), Part::File(file), Part::Bytes(shared), Part::Bytes(after)] = &frame.parts[..]
    else {
        panic!("{:?}", frame.parts);
    };
    assert_eq!(before[..4], u32::try_from(frame.len - 4).unwrap().to_be_bytes());
    assert_eq!((file.position, file.len), (4096, 65_536));
    assert_eq!(shared.as_ptr(), large.as_ptr(), "no copy was made");
    assert!(after.starts_with(b"small"));
}

#[test]
fn a_field_that_a_version_lacks_is_dropped_or_refused_as_its_schema_says() {
    let dropped = fetch_response::PartitionData { log_start_offset: 5, ..Default::default() };
    let response = |partition| FetchResponse {
        responses: vec![fetch_response::FetchableTopicResponse {
            topic: "orders".into(),
            partitions: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    };
    assert!(
        response(dropped).encoded_size(4).is_ok(),
        "LogStartOffset begins with version 5, and is ignorable"
    );
    let refused = fetch_response::PartitionData { preferred_read_replica: 2, ..Default::default() };
    assert_eq!(
        response(refused).encoded_size(10),
        Err(EncodeError::UnsupportedField { field: "PartitionData.preferred_read_replica", version: 10 })
    );
}

#[test]
fn a_null_that_a_version_does_not_allow_is_refused() {
    let request = tarn_wire::messages::MetadataRequest { topics: None, ..Default::default() };
    assert!(request.encoded_size(1).is_ok());
    assert_eq!(
        request.encoded_size(0),
        Err(EncodeError::Null { field: "MetadataRequest.topics", version: 0 })
    );
}

#[test]
fn a_topic_record_is_these_bytes() {
    let record = MetadataRecord::from(TopicRecord { name: "foo".into(), topic_id: Uuid::from_u128(2) });
    let mut expected = vec![1, 2, 0, 4, b'f', b'o', b'o'];
    expected.extend([0; 15]);
    expected.extend([2, 0]);
    assert_eq!(record.encode(0).unwrap(), expected);

    expected.push(0);
    assert!(MetadataRecord::decode(Bytes::from(expected)).is_err(), "a byte follows the record");
}

#[test]
fn an_unknown_metadata_record_is_carried_as_it_is() {
    let value = Bytes::from_static(&[1, 0xc8, 0x01, 3, 9, 9]);
    let record = MetadataRecord::decode(value.clone()).unwrap();
    let body = Bytes::from_static(&[9, 9]);
    assert_eq!(record, MetadataRecord::Unknown { api_key: 200, version: 3, body });
    assert_eq!(record.encode(record.latest_version()), Ok(value));
}

#[test]
fn a_committed_offset_is_these_bytes() {
    let key = OffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 5 };
    let bytes = encode_key(&key).unwrap();
    assert_eq!(bytes[..], [0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 5]);
    assert_eq!(coordinator_key_type(&bytes), Ok(1));

    let value = OffsetCommitValue { offset: 9, commit_timestamp: 1, ..Default::default() };
    #[rustfmt::skip]
    assert_eq!(encode_value(&value, 3).unwrap()[..], [
        0, 3,
        0, 0, 0, 0, 0, 0, 0, 9,
        0xff, 0xff, 0xff, 0xff,
        0, 0,
        0, 0, 0, 0, 0, 0, 0, 1,
    ]);
}

#[test]
fn a_response_that_is_kept_answers_other_requests() {
    let response = ApiVersionsResponse { error_code: 35, ..Default::default() };
    for version in [0, 3] {
        let kept = encode_response(0, version, &response).unwrap();
        let sent = kept.answering(7);
        assert_eq!(sent.to_bytes(), encode_response(7, version, &response).unwrap().to_bytes());
        assert_eq!(sent.len, kept.len);
    }
}
