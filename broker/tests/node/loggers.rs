//! The levels of a broker's loggers, asked as Kafka's clients ask.

use tarn_wire::ErrorCode;
use tarn_wire::messages::describe_configs_request::DescribeConfigsResource;
use tarn_wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use tarn_wire::messages::{DescribeConfigsRequest, IncrementalAlterConfigsRequest};

use crate::running::{Client, Running};

const TOPIC: i8 = 2;
const LOGGERS: i8 = 8;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;

#[test]
fn levels_are_changed_all_of_a_request_or_none() {
    let node = Running::new("");
    let mut client = node.client();
    let refused =
        client.change(&[resource("1", &[("tarn_log", SET, "TRACE"), ("root", DELETE, "")])], Check::No);
    assert_eq!(refused, [ErrorCode::INVALID_REQUEST.0]);
    assert_eq!(client.level("tarn_log"), "INFO");
    let changes = [resource("1", &[("tarn_log", SET, "TRACE"), ("root", SET, "WARN")])];
    assert_eq!(client.change(&changes, Check::Only), [0]);
    assert_eq!(client.level("root"), "INFO", "that was a question");
    assert_eq!(client.change(&changes, Check::No), [0]);
    assert_eq!(["tarn_log", "tarn_mirror", "root"].map(|name| client.level(name)), ["TRACE", "WARN", "WARN"]);
    assert_eq!(client.change(&[resource("1", &[("tarn_log", DELETE, "")])], Check::No), [0]);
    assert_eq!(client.level("tarn_log"), "WARN");
}

#[test]
fn loggers_and_topics_are_changed_in_one_request_and_each_resource_fails_alone() {
    let node = Running::new("");
    let mut client = node.client();
    client.create("t", 1, &[]);
    let mut topic = resource("t", &[("retention.ms", SET, "1000")]);
    topic.resource_type = TOPIC;
    let resources = [
        topic,
        resource("1", &[("root", SET, "ERROR")]),
        resource("2", &[("root", SET, "ERROR")]),
        resource("me", &[("root", SET, "ERROR")]),
        resource("again", &[("root", SET, "ERROR")]),
        resource("again", &[("root", SET, "ERROR")]),
    ];
    let mut errors = client.change(&resources, Check::No);
    errors.sort_unstable();
    let invalid = ErrorCode::INVALID_REQUEST.0;
    assert_eq!(errors, [0, 0, invalid, invalid, invalid, invalid]);
    assert_eq!(client.level("root"), "ERROR");
}

#[test]
fn what_is_no_level_no_logger_and_no_operation_is_refused() {
    let node = Running::new("");
    let mut client = node.client();
    for (change, error) in [
        (("root", SET, "OFF"), ErrorCode::INVALID_CONFIG),
        (("nobody", SET, "INFO"), ErrorCode::INVALID_CONFIG),
        (("nobody", DELETE, ""), ErrorCode::INVALID_CONFIG),
        (("root", APPEND, "INFO"), ErrorCode::INVALID_REQUEST),
    ] {
        assert_eq!(client.change(&[resource("1", &[change])], Check::No), [error.0], "{change:?}");
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    Only,
    No,
}

fn resource(broker: &str, changes: &[(&str, i8, &str)]) -> AlterConfigsResource {
    let change = |&(name, config_operation, value): &(&str, i8, &str)| AlterableConfig {
        name: name.into(),
        config_operation,
        value: Some(value.into()),
    };
    let configs = changes.iter().map(change).collect();
    AlterConfigsResource { resource_type: LOGGERS, resource_name: broker.into(), configs }
}

impl Client {
    /// Asks for changes; the error of each resource.
    fn change(&mut self, resources: &[AlterConfigsResource], check: Check) -> Vec<i16> {
        let validate_only = check == Check::Only;
        let request = IncrementalAlterConfigsRequest { resources: resources.to_vec(), validate_only };
        self.call(1, &request).responses.iter().map(|response| response.error_code).collect()
    }

    /// The level of a logger.
    fn level(&mut self, name: &str) -> String {
        let resource = DescribeConfigsResource {
            resource_type: LOGGERS,
            resource_name: "1".into(),
            configuration_keys: Some(vec![name.into()]),
        };
        let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
        let result = self.call(4, &request).results.remove(0);
        assert_eq!((result.error_code, result.configs.len()), (0, 1), "{:?}", result.error_message);
        assert_eq!(result.configs[0].config_source, 6, "a dynamic level of a logger");
        result.configs[0].value.as_deref().unwrap_or_default().to_owned()
    }
}
