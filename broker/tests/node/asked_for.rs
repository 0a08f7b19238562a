//! What clients ask the cluster for beside their data: topics that come into being, configs as they are to be, levels of
//! features, and the list of what has configs.

use tarn_image::ResourceType;
use tarn_wire::ErrorCode;
use tarn_wire::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use tarn_wire::messages::describe_configs_request::DescribeConfigsResource;
use tarn_wire::messages::metadata_request::MetadataRequestTopic;
use tarn_wire::messages::update_features_request::FeatureUpdateKey;
use tarn_wire::messages::{
    AlterConfigsRequest, DescribeConfigsRequest, ListConfigResourcesRequest, MetadataRequest,
    UpdateFeaturesRequest,
};

use crate::running::{Client, Running, until};

/// The source of a config that is set for a topic itself.
const OF_TOPIC: i8 = 1;

#[test]
fn a_topic_that_a_client_asks_for_comes_into_being() {
    let node = Running::new("num.partitions=3");
    let mut client = node.client();
    assert_eq!(asked(&mut client, "orders", true), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    until("it is there", || asked(&mut client, "orders", true) == ErrorCode::NONE);
    client.produce_to("orders", 2, 10);
    assert_eq!(asked(&mut client, "no name", true), ErrorCode::INVALID_TOPIC_EXCEPTION);
}

#[test]
fn no_topic_comes_into_being_where_client_or_broker_does_not_want_it() {
    let node = Running::new("");
    let mut client = node.client();
    for topic in ["unwanted", "__consumer_offsets"] {
        assert_eq!(asked(&mut client, topic, topic != "unwanted"), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
    // What the node was asked for after them is there before this ends.
    until("another is there", || asked(&mut client, "wanted", true) == ErrorCode::NONE);
    for topic in ["unwanted", "__consumer_offsets"] {
        assert_eq!(asked(&mut client, topic, false), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
    let node = Running::again_with(node.stop().path(), "auto.create.topics.enable=false");
    let mut client = node.client();
    assert_eq!(asked(&mut client, "unwanted", true), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    client.create("made", 1, &[]);
    assert_eq!(asked(&mut client, "unwanted", false), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn alter_configs_gives_a_topic_all_that_it_has() {
    let node = Running::new("");
    let mut client = node.client();
    client.create("t", 1, &[("retention.ms", "5"), ("segment.bytes", "2000000")]);
    let mut replace = |value: &str| {
        let config = AlterableConfig { name: "retention.ms".into(), value: Some(value.into()) };
        let resource = AlterConfigsResource {
            resource_type: ResourceType::TOPIC.0,
            resource_name: "t".into(),
            configs: vec![config],
        };
        let request = AlterConfigsRequest { resources: vec![resource], validate_only: false };
        ErrorCode(client.call(2, &request).responses[0].error_code)
    };
    assert_eq!(replace("7"), ErrorCode::NONE);
    assert_eq!(replace("soon"), ErrorCode::INVALID_CONFIG);
    assert_eq!(set_configs(&mut client, "t"), [("retention.ms".to_owned(), "7".to_owned())]);
}

#[test]
fn what_has_configs_is_listed_by_its_kind() {
    let node = Running::new("");
    let mut client = node.client();
    client.create("t", 1, &[]);
    let mut list = |version, kinds: &[ResourceType]| {
        let request =
            ListConfigResourcesRequest { resource_types: kinds.iter().map(|kind| kind.0).collect() };
        let response = client.call(version, &request);
        let named = response.config_resources.iter();
        let named = named.map(|one| (one.resource_type, one.resource_name.to_string())).collect::<Vec<_>>();
        (ErrorCode(response.error_code), named)
    };
    let broker = |kind: ResourceType| (kind.0, "1".to_owned());
    let topic = (ResourceType::TOPIC.0, "t".to_owned());
    let (kind_of_broker, loggers) = (broker(ResourceType::BROKER), broker(ResourceType::BROKER_LOGGER));
    assert_eq!(list(1, &[]), (ErrorCode::NONE, vec![topic.clone(), kind_of_broker.clone(), loggers]));
    assert_eq!(list(1, &[ResourceType::TOPIC]), (ErrorCode::NONE, vec![topic]));
    assert_eq!(list(1, &[ResourceType::BROKER]), (ErrorCode::NONE, vec![kind_of_broker]));
    assert_eq!(list(1, &[ResourceType(77)]), (ErrorCode::UNSUPPORTED_VERSION, Vec::new()));
    assert_eq!(list(0, &[]), (ErrorCode::NONE, Vec::new()), "there are no subscriptions for client metrics");
}

#[test]
fn a_feature_is_finalized_where_the_node_serves_it() {
    let node = Running::new("");
    let mut client = node.client();
    let mut update = |feature: &str, level, version| {
        let key = FeatureUpdateKey {
            feature: feature.into(),
            max_version_level: level,
            ..FeatureUpdateKey::default()
        };
        let request = UpdateFeaturesRequest { feature_updates: vec![key], ..Default::default() };
        let response = client.call(version, &request);
        (ErrorCode(response.error_code), response.results.len())
    };
    assert_eq!(update("mirror.version", 1, 2), (ErrorCode::NONE, 0));
    assert_eq!(update("mirror.version", 1, 1), (ErrorCode::NONE, 1), "it has it already");
    assert_eq!(update("share.version", 1, 2).0, ErrorCode::INVALID_UPDATE_VERSION);
}

/// What is set for a topic itself.
fn set_configs(client: &mut Client, topic: &str) -> Vec<(String, String)> {
    let resource = DescribeConfigsResource {
        resource_type: ResourceType::TOPIC.0,
        resource_name: topic.into(),
        configuration_keys: None,
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let described = client.call(4, &request).results.remove(0);
    let of_topic = described.configs.into_iter().filter(|config| config.config_source == OF_TOPIC);
    of_topic.map(|config| (config.name.to_string(), config.value.unwrap_or_default().to_string())).collect()
}

/// Asks for a topic, and says whether it may be created.
fn asked(client: &mut Client, topic: &str, allow_auto_topic_creation: bool) -> ErrorCode {
    let asked = MetadataRequestTopic { name: Some(topic.into()), ..Default::default() };
    let request =
        MetadataRequest { topics: Some(vec![asked]), allow_auto_topic_creation, ..Default::default() };
    let topics = client.call(12, &request).topics;
    match topics[0].partitions.is_empty() {
        true => ErrorCode(topics[0].error_code),
        false => ErrorCode(topics[0].partitions[0].error_code),
    }
}
