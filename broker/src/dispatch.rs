//! From an API key to its handler, and the list of what is served.
//!
//! The list and the dispatch are one table: what is not here is not advertised, and nothing is advertised
//! that is not here.

use std::future::Future;
use std::rc::Rc;
use std::time::Instant;

use tarn_runtime::{blocking_work, now};
use tarn_transport::{
    Answer, ApiRange, ApiRanges, ApiVersionsData, FeatureLevels, InboundRequest, ListenerName, Outcome,
    Service,
};
use tarn_wire::messages as m;
use tarn_wire::{ApiKey, Cursor, Message, Request, RequestHeader, Response, encode_response};

use crate::core::Core;
use crate::handlers::{
    admin, config_resources, configs, coordinators, delete_records, fetch, log_dirs, metadata, mirrors,
    offsets, produce, producer_ids, producers, txn_markers,
};
use crate::limits;

type LocalBoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T>>>;

/// What clients talk to, on one core.
pub struct BrokerService {
    core: Rc<Core>,
    broker: Rc<ApiRanges>,
    controller: Rc<ApiRanges>,
}

/// What a controller's listener serves of it: what Kafka's tools ask with `--bootstrap-controller`.
pub const SERVED_BY_CONTROLLERS: &[ApiKey] = &[
    ApiKey::API_VERSIONS,
    ApiKey::CREATE_TOPICS,
    ApiKey::DELETE_TOPICS,
    ApiKey::DESCRIBE_CONFIGS,
    ApiKey::CREATE_PARTITIONS,
    ApiKey::INCREMENTAL_ALTER_CONFIGS,
    ApiKey::DESCRIBE_QUORUM,
    ApiKey::DESCRIBE_CLUSTER,
    ApiKey::UPDATE_FEATURES,
];

/// A request on its way to its handler.
pub struct Call {
    /// The core of the connection.
    pub core: Rc<Core>,
    /// The request's header.
    pub header: RequestHeader,
    /// The listener it came in by.
    pub listener: ListenerName,
}

macro_rules! served {
    ($($request:ident $min:literal ..= $max:literal => $serve:expr;)*) => {
        /// Every API that a broker serves, with the versions it serves.
        pub const SERVED: &[(ApiKey, i16, i16)] = &[
            (ApiKey::API_VERSIONS, 0, 5),
            $((ApiKey(<m::$request as Request>::KEY), $min, $max),)*
        ];

        async fn dispatch(call: Call, mut body: Cursor) -> Outcome {
            match call.header.api_key {
                $(ApiKey(<m::$request as Request>::KEY) => {
                    match m::$request::decode(&mut body, call.header.api_version) {
                        Ok(request) => ($serve)(call, request).await,
                        Err(error) => Outcome::Close(format!("malformed {}: {error}", m::$request::NAME)),
                    }
                })*
                other => Outcome::Close(format!("{other} is not served")),
            }
        }
    };
}

served! {
    ProduceRequest 3..=13 => |call: Call, request| produce::handle(call.core, call.header, request);
    FetchRequest 4..=18 => |call: Call, request| fetch::handle(call.core, call.header, request);
    ListOffsetsRequest 1..=11 => |call: Call, request| later(call, move |call: Call| async move {
        let response = offsets::list(call.core.clone(), &call.header, request).await;
        call.frame(&response)
    });
    MetadataRequest 0..=13 => |call: Call, request| {
        later(call, move |call: Call| metadata::metadata(call, request))
    };
    FindCoordinatorRequest 0..=6 => |call: Call, request| {
        ready(&call, &coordinators::find(call.header.api_version, request))
    };
    CreateTopicsRequest 2..=7 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&admin::create_topics(&call, request).await)
    });
    DeleteTopicsRequest 1..=6 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&admin::delete_topics(&call, request).await)
    });
    DeleteRecordsRequest 0..=2 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&delete_records::handle(call.core.clone(), request).await)
    });
    InitProducerIdRequest 0..=5 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&producer_ids::init(&call.core, &request).await)
    });
    OffsetForLeaderEpochRequest 2..=4 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&offsets::epoch_ends(call.core.clone(), request).await)
    });
    WriteTxnMarkersRequest 1..=2 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&txn_markers::write(&call.core, request).await)
    });
    DescribeConfigsRequest 1..=4 => |call: Call, request| later(call, move |call: Call| async move {
        let response = configs::describe(&call.core, request).await;
        match response.results.len() {
            0..=limits::RESOURCES_WRITTEN_INLINE => call.frame(&response),
            _ => call.frame_beside(response).await,
        }
    });
    AlterConfigsRequest 0..=2 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&admin::replace_configs(&call, request).await)
    });
    UpdateFeaturesRequest 0..=2 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&admin::update_features(&call, request).await)
    });
    ListConfigResourcesRequest 0..=1 => |call: Call, request: m::ListConfigResourcesRequest| {
        ready(&call, &config_resources::list(&call.core, call.header.api_version, &request))
    };
    DescribeLogDirsRequest 1..=5 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&log_dirs::describe(call.core.clone(), request).await)
    });
    CreatePartitionsRequest 0..=3 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&admin::create_partitions(&call, request).await)
    });
    IncrementalAlterConfigsRequest 0..=1 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&admin::alter_configs(&call, request).await)
    });
    DescribeQuorumRequest 0..=2 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&admin::describe_quorum(&call, request).await)
    });
    DescribeClusterRequest 0..=2 => |call: Call, request: m::DescribeClusterRequest| {
        ready(&call, &metadata::cluster(&call.core, call.listener.as_str(), &request))
    };
    DescribeProducersRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&producers::describe(&call.core, request).await)
    });
    DescribeTopicPartitionsRequest 0..=0 => |call: Call, request: m::DescribeTopicPartitionsRequest| {
        ready(&call, &metadata::topic_partitions(&call.core, call.listener.as_str(), &request))
    };
    CreateClusterMirrorRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&mirrors::create(&call.core, request).await)
    });
    StartMirrorTopicsRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&mirrors::start(&call.core, request).await)
    });
    StopMirrorTopicsRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&mirrors::stop(&call.core, request).await)
    });
    PauseMirrorTopicsRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&mirrors::pause(&call.core, request).await)
    });
    ResumeMirrorTopicsRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&mirrors::resume(&call.core, request).await)
    });
    RecoverMirrorTopicsRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&mirrors::recover(&call.core, request).await)
    });
    DeleteClusterMirrorRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&mirrors::delete(&call.core, request).await)
    });
    ListClusterMirrorsRequest 0..=0 => |call: Call, request: m::ListClusterMirrorsRequest| {
        ready(&call, &mirrors::list(&call.core, &request))
    };
    DescribeClusterMirrorsRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&mirrors::describe(&call.core, request).await)
    });
    DescribeMirrorReportsRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&mirrors::reports(&call.core, request).await)
    });
    ReadMirrorStatesRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&mirrors::read_states(&call.core, request).await)
    });
    WriteMirrorStatesRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&mirrors::write_states(&call.core, request).await)
    });
    ReadMirrorOffsetsRequest 0..=0 => |call: Call, request| later(call, move |call: Call| async move {
        call.frame(&mirrors::read_offsets(&call.core, request).await)
    });
}

impl BrokerService {
    /// The service of a core's connections.
    pub fn new(core: Rc<Core>) -> BrokerService {
        let ranges = || SERVED.iter().map(|(key, min, max)| ApiRange { key: *key, min: *min, max: *max });
        let controller = ranges().filter(|range| SERVED_BY_CONTROLLERS.contains(&range.key));
        BrokerService {
            core,
            broker: Rc::new(ApiRanges::new(ranges())),
            controller: Rc::new(ApiRanges::new(controller)),
        }
    }
}

impl Service for BrokerService {
    fn call(self: Rc<Self>, request: InboundRequest) -> LocalBoxFuture<Outcome> {
        let InboundRequest { header, body, connection, permit } = request;
        let (core, key, began) = (self.core.clone(), header.api_key, now());
        core.metrics().requests.came(key, header.api_version);
        let call = Call { core: self.core.clone(), header, listener: connection.listener.clone() };
        Box::pin(async move {
            let outcome = dispatch(call, body).await;
            // The frame has been worked on; what waits now does not count against inbound memory.
            drop(permit);
            timed(core, key, began, outcome)
        })
    }

    fn api_versions(&self, listener: &ListenerName) -> ApiVersionsData {
        let image = self.core.image();
        let of_controllers = self.core.node().config().is_controller_listener(listener.as_str());
        let level = |(name, level): (&str, i16)| FeatureLevels { name: name.into(), min: level, max: level };
        ApiVersionsData {
            apis: if of_controllers { self.controller.clone() } else { self.broker.clone() },
            supported_features: tarn_image::features::SUPPORTED
                .iter()
                .map(|feature| FeatureLevels {
                    name: feature.name.into(),
                    min: feature.min,
                    max: feature.max,
                })
                .collect(),
            finalized_features_epoch: image.provenance().offset.0.max(0),
            finalized_features: image.features().advertised().map(level).collect(),
            cluster_id: self.core.node().cluster_id().into(),
            node_id: self.core.node().broker_id().0,
        }
    }
}

/// Counts an answer once it is there, with the time that it took.
fn timed(core: Rc<Core>, key: ApiKey, began: Instant, outcome: Outcome) -> Outcome {
    let answer = match outcome {
        Outcome::Answer(answer) => answer,
        closed @ Outcome::Close(_) => {
            core.metrics().requests.closed(key);
            return closed;
        }
    };
    Outcome::Answer(Box::pin(async move {
        let answer = answer.await;
        match &answer {
            Answer::Frame(_) | Answer::Nothing => core.metrics().requests.answered(key, began.elapsed()),
            Answer::Close(_) => core.metrics().requests.closed(key),
        }
        answer
    }))
}

impl Call {
    /// The answer that a response makes.
    pub fn frame<R: Response>(&self, response: &R) -> Answer {
        frame(&self.core, &self.header, response)
    }

    /// The same, written beside the core: a long one takes milliseconds.
    async fn frame_beside<R: Response + Send + 'static>(self, response: R) -> Answer {
        let (header, metrics) = (self.header, self.core.node().metrics_of(self.core.id()));
        let written = blocking_work(move || {
            metrics.requests.told(header.api_version, &response);
            encoded(&header, &response)
        });
        written
            .await
            .unwrap_or_else(|error| Answer::Close(format!("{} could not be written: {error}", R::NAME)))
    }
}

/// The answer that a response makes, whose errors are counted.
pub fn frame<R: Response>(core: &Core, header: &RequestHeader, response: &R) -> Answer {
    core.metrics().requests.told(header.api_version, response);
    encoded(header, response)
}

fn encoded<R: Response>(header: &RequestHeader, response: &R) -> Answer {
    match encode_response(header.correlation_id, header.api_version, response) {
        Ok(frame) => Answer::Frame(frame),
        Err(error) => Answer::Close(format!("{} could not be written: {error}", R::NAME)),
    }
}

/// An answer that is there at once.
fn ready<R: Response>(call: &Call, response: &R) -> std::future::Ready<Outcome> {
    std::future::ready(Outcome::ready(call.frame(response)))
}

/// An answer that takes its time, beside later requests of the connection.
fn later<F>(call: Call, serve: impl FnOnce(Call) -> F) -> std::future::Ready<Outcome>
where
    F: Future<Output = Answer> + 'static,
{
    std::future::ready(Outcome::Answer(Box::pin(serve(call))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_served_version_is_in_the_schema_and_none_is_served_twice() {
        let mut keys = BTreeSet::new();
        for (key, min, max) in SERVED {
            let info = tarn_wire::api(*key).expect("the schema has it");
            assert!(info.min <= *min && *max <= info.max_stable, "{key}: {min} to {max}");
            assert!(keys.insert(key.0), "{key} is served twice");
        }
    }
}
