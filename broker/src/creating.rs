//! Topics that come into being because a client asks for them (`auto.create.topics.enable`).
//!
//! Invariants:
//! * a core asks the controller for one topic once at a time;
//! * what a mirror of this cluster would begin with is left to it: an empty topic of the name would be in its way.

use std::rc::Rc;

use tarn_image::config::mirror::MirrorConfig;
use tarn_image::{MetadataImage, ResourceType};
use tarn_quorum::decide::create_topics::AS_CONFIGURED;
use tarn_runtime::{Queue, spawn};
use tarn_wire::messages::CreateTopicsRequest;
use tarn_wire::messages::create_topics_request::CreatableTopic;
use tarn_wire::{ErrorCode, Str};
use tracing::{info, warn};

use crate::core::Core;
use crate::internal_topics::is_internal;
use crate::limits;

/// How long the controller has for a topic that nobody waits for, in milliseconds.
const TIMEOUT_MS: i32 = 30_000;

/// Begins to make topics that a client has asked for, where that is to be done. Nobody waits for them.
pub(crate) fn begin(core: &Rc<Core>, names: impl IntoIterator<Item = Str>) {
    if !core.node().config().topics.auto_created {
        return;
    }
    for name in names.into_iter().filter(|name| !is_internal(name)) {
        let is_new = {
            let mut creating = core.creating();
            creating.len() < limits::TOPICS_CREATED_AT_ONCE && creating.insert(name.clone())
        };
        if is_new {
            spawn(Queue::Background, run(core.clone(), name)).detach();
        }
    }
}

async fn run(core: Rc<Core>, name: Str) {
    if !is_left_to_a_mirror(&core.image(), &name) {
        match create(&core, name.clone()).await {
            Ok(()) => info!(topic = &*name, "a topic that a client has asked for is created"),
            Err(error) => warn!(topic = &*name, %error, "a topic that a client has asked for is not created"),
        }
    }
    core.creating().remove(&name);
}

async fn create(core: &Rc<Core>, name: Str) -> Result<(), ErrorCode> {
    let topic = CreatableTopic {
        name,
        num_partitions: AS_CONFIGURED,
        replication_factor: AS_CONFIGURED as i16,
        ..CreatableTopic::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS, ..CreateTopicsRequest::default() };
    let decided = core.decided(core.node().controller().create_topics(request)).await;
    let response = decided.map_err(|_| ErrorCode::NOT_CONTROLLER)?;
    match response.topics.first().map(|topic| ErrorCode(topic.error_code)) {
        // Somebody else was quicker.
        Some(ErrorCode::NONE | ErrorCode::TOPIC_ALREADY_EXISTS) => Ok(()),
        Some(error) => Err(error),
        None => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
    }
}

/// True for a name that the patterns of one of this cluster's mirrors mean.
fn is_left_to_a_mirror(image: &MetadataImage, name: &str) -> bool {
    let mut mirrors = image.configs().resources(ResourceType::CLUSTER_MIRROR);
    mirrors.any(|(_, configs)| match MirrorConfig::resolve(configs) {
        Ok(config) => config.topics_include.matches(name) && !config.topics_exclude.matches(name),
        // Nobody knows what it would begin with.
        Err(_) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_image::MetadataDelta;
    use tarn_image::config::mirror::stored;
    use tarn_wire::messages::ConfigRecord;

    #[test]
    fn what_a_mirror_would_begin_with_is_left_to_it() {
        let mut image = MetadataImage::default();
        assert!(!is_left_to_a_mirror(&image, "orders"));
        let given = [
            ("bootstrap.servers", Some("a:1")),
            ("topics.include", Some("orders.*")),
            ("topics.exclude", Some("orders-tmp")),
        ];
        for (key, value) in stored(given).expect("it is a good one") {
            let record = ConfigRecord {
                resource_type: ResourceType::CLUSTER_MIRROR.0,
                resource_name: "m".into(),
                name: (&*key).into(),
                value: Some((&*value).into()),
            };
            image.apply(&record.into(), &mut MetadataDelta::default()).expect("the records fit each other");
        }
        let left =
            ["orders", "orders-2", "orders-tmp", "payments"].map(|name| is_left_to_a_mirror(&image, name));
        assert_eq!(left, [true, true, false, false]);
    }
}
