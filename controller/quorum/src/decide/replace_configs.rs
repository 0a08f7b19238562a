//! AlterConfigs, as Kafka had it before there was IncrementalAlterConfigs: what a resource is given is all that it has
//! from then on. What the commands of a cluster mirror have written stays.

use tarn_image::config::topic;
use tarn_image::{ConfigResource, MetadataImage, ResourceType};
use tarn_wire::Str;
use tarn_wire::messages::alter_configs_response::AlterConfigsResourceResponse;
use tarn_wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource as AlteredResource, AlterableConfig,
};
use tarn_wire::messages::{AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest};

use super::Decision;
use super::alter_configs::alter_configs;

/// The numbers of operations in IncrementalAlterConfigs.
const SET: i8 = 0;
const DELETE: i8 = 1;

/// Decides a whole request. A resource that fails does not hinder the others.
pub fn replace_configs(
    image: &MetadataImage,
    request: &AlterConfigsRequest,
) -> Decision<AlterConfigsResponse> {
    alter_configs(image, &as_incremental(image, request)).map(|response| AlterConfigsResponse {
        responses: response
            .responses
            .into_iter()
            .map(|one| AlterConfigsResourceResponse {
                error_code: one.error_code,
                error_message: one.error_message,
                resource_type: one.resource_type,
                resource_name: one.resource_name,
            })
            .collect(),
        ..AlterConfigsResponse::default()
    })
}

/// The same, key by key.
fn as_incremental(image: &MetadataImage, request: &AlterConfigsRequest) -> IncrementalAlterConfigsRequest {
    let resources = request.resources.iter().map(|asked| {
        let kind = ResourceType(asked.resource_type);
        let resource = ConfigResource { kind, name: asked.resource_name.as_str().into() };
        // A null value means that there is to be none.
        let given = asked.configs.iter().map(|config| AlterableConfig {
            name: config.name.clone(),
            config_operation: if config.value.is_some() { SET } else { DELETE },
            value: config.value.clone(),
        });
        let is_left_out =
            |key: &str| !topic::is_internal(key) && !asked.configs.iter().any(|config| *config.name == *key);
        let before = image.configs().of(&resource);
        let left_out = before.keys().filter(|key| is_left_out(key)).map(|key| AlterableConfig {
            name: Str::from(&**key),
            config_operation: DELETE,
            value: None,
        });
        AlteredResource {
            resource_type: asked.resource_type,
            resource_name: asked.resource_name.clone(),
            configs: given.chain(left_out).collect(),
        }
    });
    IncrementalAlterConfigsRequest { resources: resources.collect(), validate_only: request.validate_only }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::World;
    use tarn_wire::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};

    #[test]
    fn a_topic_has_what_it_is_given_and_nothing_else_but_what_its_mirror_wrote() {
        let mut world = World::with_topics(&["t"]);
        assert_eq!(
            replace(&mut world, &[("retention.ms", Some("5")), ("segment.bytes", Some("2000000"))]),
            0
        );
        assert_eq!(configs(&world), ["retention.ms=5", "segment.bytes=2000000"]);
        assert_eq!(replace(&mut world, &[("retention.ms", Some("7"))]), 0);
        assert_eq!(configs(&world), ["retention.ms=7"]);
        assert_eq!(replace(&mut world, &[("retention.ms", Some("no number"))]), 40);
        assert_eq!(configs(&world), ["retention.ms=7"], "it changes whole or not at all");
        assert_eq!(replace(&mut world, &[("retention.ms", None)]), 0);
        assert!(configs(&world).is_empty());
    }

    fn replace(world: &mut World, configs: &[(&str, Option<&str>)]) -> i16 {
        let configs = configs
            .iter()
            .map(|(name, value)| AlterableConfig { name: (*name).into(), value: value.map(Str::from) });
        let resource = AlterConfigsResource {
            resource_type: ResourceType::TOPIC.0,
            resource_name: "t".into(),
            configs: configs.collect(),
        };
        let request = AlterConfigsRequest { resources: vec![resource], validate_only: false };
        let decision = replace_configs(&world.image, &request);
        world.apply(decision).responses[0].error_code
    }

    fn configs(world: &World) -> Vec<String> {
        let topic = world.image.configs().topic("t");
        topic.iter().map(|(key, value)| format!("{key}={value}")).collect()
    }
}
