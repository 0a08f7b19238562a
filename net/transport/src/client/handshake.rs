//! The first words of a connection: which versions does the broker serve, and is it one at all?
//!
//! We ask in our highest version. A broker that does not know it answers in the form of version 0 with
//! error 35, and since Kafka 2.4 with the versions it knows (KIP-511); we ask again with the highest of
//! those, and at last with version 0, which every broker knows.

use std::rc::Rc;

use bytes::Bytes;
use tarn_wire::messages::api_versions_request::ApiVersionsRequest;
use tarn_wire::messages::api_versions_response::ApiVersionsResponse;
use tarn_wire::{
    ApiKey, Cursor, DecodeError, ErrorCode, Message, Str, decode_response_header, encode_request,
};

use super::call::Calls;
use super::{CallLimits, ClientError, ClientOptions, Endpoint};
use crate::limits;
use crate::versions::{BrokerVersions, fallback};

/// The record type of a TLS alert and the major version after it, which is how a TLS listener answers.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

pub(super) async fn versions(
    calls: &Rc<Calls>,
    endpoint: &Endpoint,
    options: &ClientOptions,
) -> Result<BrokerVersions, ClientError> {
    let mut version = ApiVersionsRequest::MAX_VERSION;
    loop {
        let response = ask(calls, version, options).await.map_err(|error| about(endpoint, error))?;
        match ErrorCode(response.error_code) {
            ErrorCode::NONE => return Ok(response.into()),
            ErrorCode::UNSUPPORTED_VERSION if version > 0 => version = fallback(&response).min(version - 1),
            code => return Err(ClientError::HandshakeRefused { code }),
        }
    }
}

async fn ask(
    calls: &Rc<Calls>,
    version: i16,
    options: &ClientOptions,
) -> Result<ApiVersionsResponse, ClientError> {
    let request = ApiVersionsRequest {
        client_software_name: Str::from_static("tarn"),
        client_software_version: Str::from_static(env!("CARGO_PKG_VERSION")),
        ..ApiVersionsRequest::default()
    };
    let api = ApiKey::API_VERSIONS;
    let correlation_id = calls.next_correlation_id();
    let frame = encode_request(correlation_id, &options.client_id, version, &request)
        .map_err(|error| ClientError::Unencodable { api, detail: error.to_string() })?;
    let max_response_bytes = limits::HANDSHAKE_BYTES_MAX;
    let limits = CallLimits { timeout: options.connect_timeout, max_response_bytes };
    let answer = calls.exchange(api, correlation_id, frame, limits).await?;
    decode(answer, version).map_err(|error| ClientError::Malformed { detail: error.to_string() })
}

/// Reads an answer to a request of `version`, which may have the form of version 0.
fn decode(answer: Bytes, version: i16) -> Result<ApiVersionsResponse, DecodeError> {
    let mut cursor = Cursor::new(answer);
    decode_response_header::<ApiVersionsResponse>(&mut cursor, version)?;
    let error = ErrorCode(cursor.clone().get_i16()?);
    let form = if error == ErrorCode::UNSUPPORTED_VERSION { 0 } else { version };
    ApiVersionsResponse::decode(&mut cursor, form)
}

/// What went wrong, as it looks at the first contact.
fn about(endpoint: &Endpoint, error: ClientError) -> ClientError {
    let detail = match error {
        ClientError::TooLarge { announced, .. } if announced.to_be_bytes().starts_with(&TLS_ALERT) => {
            "it answers with a TLS alert".to_owned()
        }
        ClientError::TooLarge { announced, .. } => {
            format!("its answer begins with {:?}", announced.to_be_bytes().escape_ascii().to_string())
        }
        ClientError::Malformed { detail } => detail,
        ClientError::Closed { detail } => {
            let detail = format!("{detail}, before it answered ApiVersions; does it speak PLAINTEXT?");
            return ClientError::Closed { detail };
        }
        other => return other,
    };
    ClientError::NotKafka { endpoint: endpoint.clone(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_wire::encode_response;
    use tarn_wire::messages::api_versions_response::ApiVersion;

    #[test]
    fn a_refusal_is_read_in_the_form_of_version_0_whatever_was_asked() {
        // As brokers before Kafka 2.4 answer: an error, and no versions.
        let old = Bytes::from_static(&[0, 0, 0, 7, 0, 35, 0, 0, 0, 0]);
        let refused = decode(old, 5).expect("the form of version 0");
        assert_eq!((refused.error_code, refused.api_keys.len()), (35, 0));
    }

    #[test]
    fn an_answer_is_read_in_the_version_that_was_asked() {
        let api_keys = vec![ApiVersion { api_key: 3, min_version: 0, max_version: 13 }];
        let response = ApiVersionsResponse { api_keys, ..ApiVersionsResponse::default() };
        for version in 0..=ApiVersionsRequest::MAX_VERSION {
            let frame = encode_response(7, version, &response).expect("it has no field that lacks there");
            let frame = frame.to_bytes().expect("it is all in memory").slice(4..);
            assert_eq!(decode(frame, version), Ok(response.clone()), "version {version}");
        }
    }

    #[test]
    fn whoever_answers_with_something_else_is_no_broker() {
        let endpoint: Endpoint = "example:443".parse().expect("an endpoint");
        for (bytes, said) in [(*b"HTTP", "\"HTTP\""), ([0x15, 3, 3, 0], "TLS")] {
            let announced = i32::from_be_bytes(bytes);
            let error = about(&endpoint, ClientError::TooLarge { announced, limit: 1 });
            assert!(
                matches!(&error, ClientError::NotKafka { detail, .. } if detail.contains(said)),
                "{error}"
            );
        }
    }
}
