//! What a look at the source finds, and what follows from it that this cluster's controller has to do.

use tarn_transport::Endpoint;
use tarn_wire::ErrorCode;
use tarn_wire::messages::create_partitions_request::CreatePartitionsTopic;
use tarn_wire::messages::start_mirror_topics_response::MirrorTopicResult;
use tarn_wire::messages::{CreatePartitionsRequest, StartMirrorTopicsRequest};

use super::news::some_of;
use crate::local_cluster::{LocalCluster, LocalError};
use crate::reasons::Reason;
use crate::source::connections::Connections;
use crate::source::metadata::{self, SourceMetadata, Topics};
use crate::source::upstream::{self, Upstream};
use crate::source::{SourceError, SourceTopic};

/// How long the controller may take to add partitions.
const CREATE_PARTITIONS_MS: i32 = 30_000;

/// What a look at the source has found.
pub(super) struct Looked {
    pub(super) metadata: SourceMetadata,
    pub(super) upstream: Upstream,
}

/// What a sync has to say: nothing, or what is wrong.
pub(super) type Synced = Result<(), (Reason, String)>;

/// Asks whichever broker of the source answers.
pub(super) async fn look(
    connections: &Connections,
    known: &[Endpoint],
    topics: Topics,
) -> Result<Looked, SourceError> {
    let client = connections.any(known).await?;
    let metadata = metadata::ask(&client, topics).await?;
    Ok(Looked { metadata, upstream: upstream::ask(&client).await? })
}

/// Adds partitions to topics that have grown at the source.
pub(super) async fn create_partitions(
    topics: Vec<CreatePartitionsTopic>,
    cluster: &impl LocalCluster,
) -> Synced {
    if topics.is_empty() {
        return Ok(());
    }
    let request = CreatePartitionsRequest { topics, timeout_ms: CREATE_PARTITIONS_MS, validate_only: false };
    let response = cluster.call(request).await.map_err(unavailable)?;
    let failed = response.results.iter().find(|result| !is_done(result.error_code));
    match failed {
        None => Ok(()),
        Some(result) => {
            Err(refused("more partitions for", &result.name, result.error_code, &result.error_message))
        }
    }
}

/// Begins with topics that are new at the source. Where the mirror's lists have changed since it was asked, the
/// controller leaves them out.
pub(super) async fn start(mirror: &str, topics: Vec<SourceTopic>, cluster: &impl LocalCluster) -> Synced {
    let request = StartMirrorTopicsRequest {
        mirror_name: mirror.into(),
        topics: topics.iter().map(SourceTopic::to_start).collect(),
        discovered: true,
        ..StartMirrorTopicsRequest::default()
    };
    let response = cluster.call(request).await.map_err(unavailable)?;
    if response.error_code != ErrorCode::NONE.0 {
        return Err(refused("to start topics of", mirror, response.error_code, &response.error_message));
    }
    let is_begun = |result: &&MirrorTopicResult| result.error_code == ErrorCode::NONE.0;
    let begun: Vec<&str> = response.topics.iter().filter(is_begun).map(|result| &*result.name).collect();
    if !begun.is_empty() {
        let (found, topics) = (begun.len(), some_of(begun));
        tracing::info!(mirror, found, %topics, "topics that match are new at the source");
    }
    let failed = response.topics.iter().find(|result| !is_done(result.error_code));
    match failed {
        None => Ok(()),
        Some(result) => Err(refused("to start", &result.name, result.error_code, &result.error_message)),
    }
}

/// True also where the topic was stopped, or begun with, while its source was asked: nothing is left to be done.
fn is_done(code: i16) -> bool {
    matches!(ErrorCode(code), ErrorCode::NONE | ErrorCode::INVALID_CLUSTER_MIRROR_STATE)
}

fn unavailable(error: LocalError) -> (Reason, String) {
    (Reason::ControllerUnavailable, error.to_string())
}

fn refused(what: &str, name: &str, code: i16, message: &Option<tarn_wire::Str>) -> (Reason, String) {
    let code = ErrorCode(code);
    let why = message.as_ref().map_or(code.message(), |message| message);
    (Reason::ControllerUnavailable, format!("the controller refuses {what} {name}: {} ({why})", code.name()))
}
