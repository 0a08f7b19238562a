//! ApiVersions, both ways: what a listener serves and how it says so, and what a broker said it serves.
//!
//! The handshake must work with peers of any age (KIP-35, KIP-511): a version that is not known is
//! answered in the form of version 0, with error 35 and the versions that would work; a client that gets
//! such an answer asks again. Owned by nobody: values and pure functions.
//!
//! Invariants:
//! * ranges are sorted by API key, one for each key;
//! * Produce is advertised from version 0 on, although older ones than 3 are not served: librdkafka
//!   derives from it which codecs a broker knows (KAFKA-18659).

use std::rc::Rc;

use tarn_wire::messages::api_versions_request::ApiVersionsRequest;
use tarn_wire::messages::api_versions_response::{
    ApiVersion, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use tarn_wire::{ApiKey, ErrorCode, Message, Str};

/// From this version on a response may name features whose lowest level is 0 (KAFKA-17492).
const LEVEL_ZERO_FROM: i16 = 4;

/// The versions of one API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiRange {
    /// Which API.
    pub key: ApiKey,
    /// The lowest version.
    pub min: i16,
    /// The highest version.
    pub max: i16,
}

/// The APIs that one side of a connection serves, and in which versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiRanges {
    ranges: Vec<ApiRange>,
}

/// The levels of one feature (KIP-584).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureLevels {
    /// Its name, such as `metadata.version`.
    pub name: Str,
    /// The lowest level.
    pub min: i16,
    /// The highest level.
    pub max: i16,
}

/// What a listener says of itself in answer to ApiVersions.
#[derive(Clone, Debug)]
pub struct ApiVersionsData {
    /// What it serves.
    pub apis: Rc<ApiRanges>,
    /// The features that this node supports.
    pub supported_features: Vec<FeatureLevels>,
    /// The epoch of the finalized features; −1 while it is not known.
    pub finalized_features_epoch: i64,
    /// The features that the cluster has finalized.
    pub finalized_features: Vec<FeatureLevels>,
    /// The id of the cluster.
    pub cluster_id: Str,
    /// The id of this node.
    pub node_id: i32,
}

/// The name and version that a client gives itself (KIP-511).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSoftware {
    /// Such as `apache-kafka-java`.
    pub name: String,
    /// Such as `4.4.0`.
    pub version: String,
}

/// What the broker at the other end serves, and its features.
#[derive(Clone, Debug, Default)]
pub struct BrokerVersions {
    apis: ApiRanges,
    supported_features: Vec<FeatureLevels>,
    finalized_features: Option<(i64, Vec<FeatureLevels>)>,
}

impl ApiRanges {
    /// The ranges given; a later one replaces an earlier one of the same key.
    pub fn new(ranges: impl IntoIterator<Item = ApiRange>) -> ApiRanges {
        let by_key: std::collections::BTreeMap<i16, ApiRange> =
            ranges.into_iter().map(|range| (range.key.0, range)).collect();
        ApiRanges { ranges: by_key.into_values().collect() }
    }

    /// The range of one API.
    pub fn get(&self, key: ApiKey) -> Option<ApiRange> {
        let at = self.ranges.binary_search_by_key(&key.0, |range| range.key.0).ok()?;
        self.ranges.get(at).copied()
    }

    /// Whether a request of this version is served.
    pub fn serves(&self, key: ApiKey, version: i16) -> bool {
        self.get(key).is_some_and(|range| (range.min..=range.max).contains(&version))
    }

    /// All ranges, by key.
    pub fn iter(&self) -> impl Iterator<Item = ApiRange> + '_ {
        self.ranges.iter().copied()
    }

    fn advertised(&self) -> Vec<ApiVersion> {
        self.iter()
            .map(|range| ApiVersion {
                api_key: range.key.0,
                min_version: if range.key == ApiKey::PRODUCE { 0 } else { range.min },
                max_version: range.max,
            })
            .collect()
    }
}

impl BrokerVersions {
    /// The highest version of an API that the broker and we both know; `None` where there is none.
    pub fn usable(&self, key: ApiKey, our_min: i16, our_max: i16) -> Option<i16> {
        let theirs = self.apis.get(key)?;
        let highest = theirs.max.min(our_max);
        (highest >= theirs.min.max(our_min)).then_some(highest)
    }

    /// What the broker serves.
    pub fn apis(&self) -> &ApiRanges {
        &self.apis
    }

    /// The levels of a feature that the broker supports.
    pub fn supported_feature(&self, name: &str) -> Option<&FeatureLevels> {
        self.supported_features.iter().find(|feature| &*feature.name == name)
    }

    /// The level that the broker's cluster has finalized for a feature; `None` where none is, or where the
    /// broker does not know yet.
    pub fn finalized_level(&self, name: &str) -> Option<i16> {
        let (_, features) = self.finalized_features.as_ref()?;
        features.iter().find(|feature| &*feature.name == name).map(|feature| feature.max)
    }

    /// The epoch of the finalized features.
    pub fn finalized_features_epoch(&self) -> Option<i64> {
        self.finalized_features.as_ref().map(|(epoch, _)| *epoch)
    }
}

impl From<ApiVersionsResponse> for BrokerVersions {
    fn from(response: ApiVersionsResponse) -> BrokerVersions {
        let apis = response.api_keys.iter().map(|api| ApiRange {
            key: ApiKey(api.api_key),
            min: api.min_version,
            max: api.max_version,
        });
        let supported = response.supported_features.iter().map(|feature| FeatureLevels {
            name: feature.name.to_owned_str(),
            min: feature.min_version,
            max: feature.max_version,
        });
        let finalized = response.finalized_features.iter().map(|feature| FeatureLevels {
            name: feature.name.to_owned_str(),
            min: feature.min_version_level,
            max: feature.max_version_level,
        });
        let epoch = response.finalized_features_epoch;
        BrokerVersions {
            apis: ApiRanges::new(apis),
            supported_features: supported.collect(),
            finalized_features: (epoch >= 0).then(|| (epoch, finalized.collect())),
        }
    }
}

/// The answer to an ApiVersions request of a version that is in the schema.
pub(crate) fn answer(
    request: &ApiVersionsRequest,
    version: i16,
    data: &ApiVersionsData,
) -> ApiVersionsResponse {
    if version >= 3 && client_software(request).is_none() {
        return refusal(ErrorCode::INVALID_REQUEST);
    }
    let meant_for_us = |cluster_id: &Str| *cluster_id == data.cluster_id && request.node_id == data.node_id;
    if version >= 5 && !request.cluster_id.as_ref().is_none_or(meant_for_us) {
        return refusal(ErrorCode::REBOOTSTRAP_REQUIRED);
    }
    let supported =
        data.supported_features.iter().filter(|feature| version >= LEVEL_ZERO_FROM || feature.min > 0);
    ApiVersionsResponse {
        api_keys: data.apis.advertised(),
        supported_features: supported
            .map(|feature| SupportedFeatureKey {
                name: feature.name.clone(),
                min_version: feature.min,
                max_version: feature.max,
            })
            .collect(),
        finalized_features_epoch: data.finalized_features_epoch,
        finalized_features: data
            .finalized_features
            .iter()
            .map(|feature| FinalizedFeatureKey {
                name: feature.name.clone(),
                min_version_level: feature.min,
                max_version_level: feature.max,
            })
            .collect(),
        ..ApiVersionsResponse::default()
    }
}

/// The answer to a version that is not in the schema, to be written in the form of version 0.
pub(crate) fn unsupported() -> ApiVersionsResponse {
    let ours = ApiVersion {
        api_key: ApiKey::API_VERSIONS.0,
        min_version: ApiVersionsRequest::MIN_VERSION,
        max_version: ApiVersionsRequest::MAX_VERSION,
    };
    ApiVersionsResponse { api_keys: vec![ours], ..refusal(ErrorCode::UNSUPPORTED_VERSION) }
}

/// The version to ask again with, after a broker refused ours: the highest that it says it knows, or 0
/// where it says nothing, as brokers before Kafka 2.4 do.
pub(crate) fn fallback(refusal: &ApiVersionsResponse) -> i16 {
    refusal
        .api_keys
        .iter()
        .find(|api| api.api_key == ApiKey::API_VERSIONS.0)
        .map_or(0, |api| api.max_version.clamp(0, ApiVersionsRequest::MAX_VERSION))
}

/// How the client names itself; `None` where a name or a version is not one.
pub(crate) fn client_software(request: &ApiVersionsRequest) -> Option<ClientSoftware> {
    let (name, version) = (&request.client_software_name, &request.client_software_version);
    (is_software_word(name) && is_software_word(version))
        .then(|| ClientSoftware { name: name.to_string(), version: version.to_string() })
}

/// Letters, digits, dots and hyphens, with a letter or digit at both ends.
fn is_software_word(word: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let bytes = word.as_bytes();
    let ends_well = |end: Option<&u8>| end.is_some_and(u8::is_ascii_alphanumeric);
    ends_well(bytes.first()) && ends_well(bytes.last()) && bytes.iter().all(inner)
}

fn refusal(error: ErrorCode) -> ApiVersionsResponse {
    ApiVersionsResponse { error_code: error.0, ..ApiVersionsResponse::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn produce_is_advertised_from_version_0_but_served_from_3() {
        let answered = answer(&request("kcat", "1.8.0"), 3, &data());
        let produce = answered.api_keys.iter().find(|api| api.api_key == 0).expect("Produce is served");
        assert_eq!((produce.min_version, produce.max_version), (0, 13));
        assert!(data().apis.serves(ApiKey::PRODUCE, 3));
        assert!(!data().apis.serves(ApiKey::PRODUCE, 2));
        let fetch = answered.api_keys.iter().find(|api| api.api_key == 1).expect("Fetch is served");
        assert_eq!((fetch.min_version, fetch.max_version), (4, 18));
    }

    #[test]
    fn a_client_must_name_its_software_from_version_3_on() {
        for (name, version, error) in [
            ("apache-kafka-java", "4.4.0", ErrorCode::NONE),
            ("a", "1", ErrorCode::NONE),
            ("", "4.4.0", ErrorCode::INVALID_REQUEST),
            ("-kcat", "1", ErrorCode::INVALID_REQUEST),
            ("kcat", "1.", ErrorCode::INVALID_REQUEST),
            ("my client", "1", ErrorCode::INVALID_REQUEST),
        ] {
            assert_eq!(answer(&request(name, version), 3, &data()).error_code, error.0, "{name} {version}");
        }
        assert_eq!(answer(&ApiVersionsRequest::default(), 2, &data()).error_code, 0);
    }

    #[test]
    fn a_client_that_looks_for_another_node_or_cluster_is_sent_away() {
        for (cluster_id, node_id, error) in [
            (None, -1, ErrorCode::NONE),
            (Some("ours"), 7, ErrorCode::NONE),
            (Some("ours"), 8, ErrorCode::REBOOTSTRAP_REQUIRED),
            (Some("theirs"), 7, ErrorCode::REBOOTSTRAP_REQUIRED),
        ] {
            let cluster_id = cluster_id.map(Str::from_static);
            let request = ApiVersionsRequest { cluster_id, node_id, ..request("kcat", "1") };
            assert_eq!(answer(&request, 5, &data()).error_code, error.0);
            assert_eq!(answer(&request, 4, &data()).error_code, 0, "version 4 has no such fields");
        }
    }

    #[test]
    fn features_that_begin_at_level_0_are_shown_from_version_4_on() {
        let names = |version| -> Vec<String> {
            let answered = answer(&request("kcat", "1"), version, &data());
            answered.supported_features.iter().map(|feature| feature.name.to_string()).collect()
        };
        assert_eq!(names(3), ["metadata.version"]);
        assert_eq!(names(4), ["kraft.version", "metadata.version"]);
    }

    #[test]
    fn the_fallback_is_what_the_broker_says_or_0() {
        assert_eq!(fallback(&unsupported()), ApiVersionsRequest::MAX_VERSION);
        assert_eq!(fallback(&ApiVersionsResponse::default()), 0);
        let newer = ApiVersion { api_key: 18, min_version: 0, max_version: 99 };
        let newer = ApiVersionsResponse { api_keys: vec![newer], ..ApiVersionsResponse::default() };
        assert_eq!(fallback(&newer), ApiVersionsRequest::MAX_VERSION);
    }

    #[test]
    fn the_usable_version_is_the_highest_that_both_know() {
        let versions = BrokerVersions::from(answer(&request("kcat", "1"), 4, &data()));
        assert_eq!(versions.usable(ApiKey::FETCH, 4, 12), Some(12));
        assert_eq!(versions.usable(ApiKey::FETCH, 4, 99), Some(18));
        assert_eq!(versions.usable(ApiKey::FETCH, 19, 99), None);
        assert_eq!(versions.usable(ApiKey::METADATA, 0, 13), None);
        assert_eq!(versions.finalized_level("metadata.version"), Some(29));
        assert_eq!(versions.finalized_level("kraft.version"), None);
        assert_eq!(versions.supported_feature("kraft.version").map(|feature| feature.max), Some(1));
    }

    fn request(name: &'static str, version: &'static str) -> ApiVersionsRequest {
        ApiVersionsRequest {
            client_software_name: Str::from_static(name),
            client_software_version: Str::from_static(version),
            ..ApiVersionsRequest::default()
        }
    }

    fn data() -> ApiVersionsData {
        let levels = |name, min, max| FeatureLevels { name: Str::from_static(name), min, max };
        ApiVersionsData {
            apis: Rc::new(ApiRanges::new([
                ApiRange { key: ApiKey::FETCH, min: 4, max: 18 },
                ApiRange { key: ApiKey::PRODUCE, min: 3, max: 13 },
                ApiRange { key: ApiKey::API_VERSIONS, min: 0, max: 5 },
            ])),
            supported_features: vec![levels("kraft.version", 0, 1), levels("metadata.version", 1, 33)],
            finalized_features_epoch: 12,
            finalized_features: vec![levels("metadata.version", 29, 29)],
            cluster_id: Str::from_static("ours"),
            node_id: 7,
        }
    }
}
