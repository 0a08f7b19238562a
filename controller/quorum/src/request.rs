//! What can be asked of the controller, and the handle to ask it with, from any thread.

use tarn_record::Offset;
use tarn_runtime::channel::{ReplySlot, Sender, reply};
use tarn_wire::messages::*;
use thiserror::Error;

use crate::decide::partitions::Grower;

/// An answer, and how far an image must be to show what it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered<R> {
    /// The answer.
    pub response: R,
    /// The offset of the last record behind it: an image with this provenance, or a later one, has it all.
    pub offset: Offset,
}

/// Why there is no decision. Asked again later, there may be one.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Undecided {
    /// This node is not the active controller, or stopped before the decision was committed.
    #[error("this node is not the active controller")]
    NotController,
    /// The decision could not be written.
    #[error("the disk of the metadata log is full")]
    NoRoom,
    /// The decision does not fit the metadata, which the controller's log tells more about.
    #[error("the decision contradicts the metadata")]
    Impossible,
}

/// What becomes of a request.
pub(crate) type Answer = Result<Answered<ControllerResponse>, Undecided>;

/// What the controller's mailbox holds.
pub(crate) enum Letter {
    /// A request and where its answer goes.
    Ask(Box<ControllerRequest>, ReplySlot<Answer>),
    /// Close the log and end.
    Stop,
}

/// The way to the controller.
#[derive(Clone)]
pub struct ControllerHandle {
    letters: Sender<Letter>,
}

impl ControllerHandle {
    pub(crate) fn new(letters: Sender<Letter>) -> ControllerHandle {
        ControllerHandle { letters }
    }

    /// Asks, and waits until the decision is committed.
    ///
    /// # Errors
    /// Where this node does not lead, or no longer, or cannot write what it has decided.
    async fn call(&self, request: ControllerRequest) -> Answer {
        let (slot, answer) = reply();
        self.letters
            .send(Letter::Ask(Box::new(request), slot))
            .await
            .map_err(|_| Undecided::NotController)?;
        answer.await.unwrap_or(Err(Undecided::NotController))
    }

    /// Asks the controller to close its log and end. Called on a plain thread.
    pub fn stop(&self) {
        // It has ended already where its mailbox is closed.
        let _ = self.letters.send_blocking(Letter::Stop);
    }
}

macro_rules! requests {
    ($($(#[$doc:meta])* $kind:ident($($field:ident: $type:ty),+) -> $response:ty, $method:ident;)*) => {
        /// A request; the payloads are those of the protocol.
        #[derive(Clone, Debug, PartialEq)]
        pub enum ControllerRequest {
            $($(#[$doc])* $kind($($type),+),)*
        }

        /// The answer to the request of the same name.
        #[derive(Clone, Debug, PartialEq)]
        pub enum ControllerResponse {
            $($(#[$doc])* $kind($response),)*
        }

        impl ControllerHandle {
            $($(#[$doc])*
            ///
            /// # Errors
            /// Where this node does not lead, or no longer, or cannot write what it has decided.
            pub async fn $method(&self, $($field: $type),+) -> Result<Answered<$response>, Undecided> {
                match self.call(ControllerRequest::$kind($($field),+)).await? {
                    Answered { response: ControllerResponse::$kind(response), offset } => {
                        Ok(Answered { response, offset })
                    }
                    _ => Err(Undecided::NotController),
                }
            })*
        }
    };
}

requests! {
    /// Creates topics.
    CreateTopics(request: CreateTopicsRequest) -> CreateTopicsResponse, create_topics;
    /// Deletes topics.
    DeleteTopics(request: DeleteTopicsRequest) -> DeleteTopicsResponse, delete_topics;
    /// Adds partitions to topics.
    CreatePartitions(request: CreatePartitionsRequest, grower: Grower) -> CreatePartitionsResponse, create_partitions;
    /// Alters configs, key by key.
    IncrementalAlterConfigs(request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse, alter_configs;
    /// Gives resources the configs that they have from then on.
    AlterConfigs(request: AlterConfigsRequest) -> AlterConfigsResponse, replace_configs;
    /// Finalizes levels of features.
    UpdateFeatures(request: UpdateFeaturesRequest) -> UpdateFeaturesResponse, update_features;
    /// Hands out a block of producer ids.
    AllocateProducerIds(request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse, allocate_producer_ids;
    /// Registers a broker, fenced.
    RegisterBroker(request: BrokerRegistrationRequest) -> BrokerRegistrationResponse, register_broker;
    /// Unfences a broker, or lets it go.
    Heartbeat(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse, heartbeat;
    /// Describes the quorum.
    DescribeQuorum(request: DescribeQuorumRequest) -> DescribeQuorumResponse, describe_quorum;
    /// Creates a cluster mirror.
    CreateClusterMirror(request: CreateClusterMirrorRequest) -> CreateClusterMirrorResponse, create_mirror;
    /// Starts mirror topics that a broker has resolved against the source.
    StartMirrorTopics(request: StartMirrorTopicsRequest) -> StartMirrorTopicsResponse, start_mirror_topics;
    /// Has mirror topics stopped.
    StopMirrorTopics(request: StopMirrorTopicsRequest) -> StopMirrorTopicsResponse, stop_mirror_topics;
    /// Pauses mirror topics.
    PauseMirrorTopics(request: PauseMirrorTopicsRequest) -> PauseMirrorTopicsResponse, pause_mirror_topics;
    /// Goes on with paused mirror topics.
    ResumeMirrorTopics(request: ResumeMirrorTopicsRequest) -> ResumeMirrorTopicsResponse, resume_mirror_topics;
    /// Has failed mirror topics tried again.
    RecoverMirrorTopics(request: RecoverMirrorTopicsRequest) -> RecoverMirrorTopicsResponse, recover_mirror_topics;
    /// Writes down that mirror topics have stopped.
    CompleteMirrorStop(request: CompleteMirrorStopRequest) -> CompleteMirrorStopResponse, complete_mirror_stop;
    /// Deletes a cluster mirror whose topics are all stopped.
    DeleteClusterMirror(request: DeleteClusterMirrorRequest) -> DeleteClusterMirrorResponse, delete_mirror;
    /// Raises leader epochs of mirror partitions.
    BumpLeaderEpochs(request: BumpLeaderEpochsRequest) -> BumpLeaderEpochsResponse, bump_leader_epochs;
}
