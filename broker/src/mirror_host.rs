//! This broker as its mirrors see it: the one implementation of `LocalCluster`.
//!
//! Requests go through the handlers that serve them to anybody, so a mirror can do nothing that the
//! protocol does not show. Appends go to the owning cores in one envelope each.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use tarn_image::MetadataImage;
use tarn_mirror::alignment::EpochEnd;
use tarn_mirror::local_cluster::{
    CountOrder, EndOrder, Ending, GateOrder, KnownState, LastPosition, LocalCluster, LocalError, LogEnded,
    LogEnds, LogTruncated, MirrorAppend, MirrorAppended, MirrorGeneration, NotedExport, Suffix,
    TruncateOrder,
};
use tarn_mirror::manager::{CoreTask, MirrorCores};
use tarn_record::{BatchHeader, BrokerId, Epoch, Offset, TopicIdPartition};
use tarn_runtime::channel::Sender;
use tarn_runtime::{Queue, catch_panics, spawn};
use tarn_wire::Request;
use tarn_wire::messages as m;
use tracing::error;

use crate::core::Core;
use crate::envelope::Envelope;
use crate::handlers::{admin, mirrors};
use crate::scatter::{Scattered, scatter};

/// A core of this broker, as mirrors see it.
#[derive(Clone)]
pub struct MirrorHost(Rc<Core>);

impl MirrorHost {
    /// The host of one core.
    pub fn new(core: Rc<Core>) -> MirrorHost {
        MirrorHost(core)
    }
}

impl LocalCluster for MirrorHost {
    fn broker_id(&self) -> BrokerId {
        self.0.node().broker_id()
    }

    fn cluster_id(&self) -> String {
        self.0.node().cluster_id().to_owned()
    }

    fn image(&self) -> Arc<MetadataImage> {
        self.0.image()
    }

    async fn call<R>(&self, request: R) -> Result<R::Response, LocalError>
    where
        R: Request + 'static,
        R::Response: 'static,
    {
        let core = &self.0;
        let request: Box<dyn Any> = Box::new(request);
        let response = match R::KEY {
            key if key == m::ReadMirrorStatesRequest::KEY => {
                answer::<R, _>(mirrors::read_states(core, taken(request)?).await)
            }
            key if key == m::WriteMirrorStatesRequest::KEY => {
                answer::<R, _>(mirrors::write_states(core, taken(request)?).await)
            }
            key if key == m::StartMirrorTopicsRequest::KEY => {
                answer::<R, _>(mirrors::start(core, taken(request)?).await)
            }
            key if key == m::CompleteMirrorStopRequest::KEY => {
                answer::<R, _>(mirrors::complete_stop(core, taken(request)?).await)
            }
            key if key == m::BumpLeaderEpochsRequest::KEY => {
                answer::<R, _>(admin::bump_leader_epochs(core, taken(request)?).await)
            }
            key if key == m::CreatePartitionsRequest::KEY => {
                answer::<R, _>(admin::grow_mirrored_topics(core, taken(request)?).await)
            }
            _ => None,
        };
        response.ok_or_else(|| LocalError::Unanswered {
            api: R::NAME,
            reason: "this broker serves no such request to its mirrors".to_owned(),
        })
    }

    async fn append(&self, appends: Vec<MirrorAppend>) -> Vec<MirrorAppended> {
        let sent = scatter(&self.0, appends, |append| append.partition, Envelope::Mirrored).await;
        let answers = sent.gather().await.into_iter();
        answers.map(|answer| answer.unwrap_or(MirrorAppended::NotLeader)).collect()
    }

    async fn ends(&self, partitions: Vec<TopicIdPartition>) -> Vec<Result<LogEnds, LocalError>> {
        let sent = scatter(&self.0, partitions.clone(), |one| *one, Envelope::Ends).await;
        answered(&partitions, sent).await
    }

    async fn newest_batches(
        &self,
        partitions: Vec<TopicIdPartition>,
    ) -> Vec<Result<Option<BatchHeader>, LocalError>> {
        let sent = scatter(&self.0, partitions.clone(), |one| *one, Envelope::NewestBatches).await;
        answered(&partitions, sent).await
    }

    async fn batches_below(
        &self,
        places: Vec<(TopicIdPartition, Offset)>,
    ) -> Vec<Result<Option<BatchHeader>, LocalError>> {
        let partitions: Vec<_> = places.iter().map(|(partition, _)| *partition).collect();
        let sent = scatter(&self.0, places, |(partition, _)| *partition, Envelope::BatchesBelow).await;
        answered(&partitions, sent).await
    }

    async fn epoch_ends(&self, epochs: Vec<(TopicIdPartition, Epoch)>) -> Vec<Result<EpochEnd, LocalError>> {
        let partitions: Vec<_> = epochs.iter().map(|(partition, _)| *partition).collect();
        let sent = scatter(&self.0, epochs, |(partition, _)| *partition, Envelope::LocalEpochEnds).await;
        answered(&partitions, sent).await
    }

    async fn suffixes(&self, orders: Vec<CountOrder>) -> Vec<Result<Suffix, LocalError>> {
        let partitions: Vec<_> = orders.iter().map(|order| order.partition).collect();
        let sent = scatter(&self.0, orders, |order| order.partition, Envelope::Suffixes).await;
        answered(&partitions, sent).await
    }

    async fn endings(
        &self,
        positions: Vec<(TopicIdPartition, LastPosition)>,
    ) -> Vec<Result<Option<Ending>, LocalError>> {
        let partitions: Vec<_> = positions.iter().map(|(partition, _)| *partition).collect();
        let sent = scatter(&self.0, positions, |(partition, _)| *partition, Envelope::Endings).await;
        answered(&partitions, sent).await
    }

    async fn noted_exports(
        &self,
        partitions: Vec<TopicIdPartition>,
    ) -> Vec<Result<Option<NotedExport>, LocalError>> {
        let sent = scatter(&self.0, partitions.clone(), |one| *one, Envelope::NotedExports).await;
        answered(&partitions, sent).await
    }

    async fn truncate_logs(&self, orders: Vec<TruncateOrder>) -> Vec<Result<LogTruncated, LocalError>> {
        let partitions: Vec<_> = orders.iter().map(|order| order.partition).collect();
        let sent = scatter(&self.0, orders, |order| order.partition, Envelope::TruncateLogs).await;
        answered(&partitions, sent).await
    }

    async fn set_gates(&self, gates: Vec<GateOrder>) -> Vec<Result<MirrorGeneration, LocalError>> {
        let partitions: Vec<_> = gates.iter().map(|order| order.partition).collect();
        let sent = scatter(&self.0, gates, |order| order.partition, Envelope::Gates).await;
        answered(&partitions, sent).await
    }

    async fn flush(&self, partitions: Vec<TopicIdPartition>) -> Vec<Result<LogEnds, LocalError>> {
        let sent = scatter(&self.0, partitions.clone(), |one| *one, Envelope::Flush).await;
        answered(&partitions, sent).await
    }

    async fn end_logs(&self, orders: Vec<EndOrder>) -> Vec<Result<LogEnded, LocalError>> {
        let partitions: Vec<_> = orders.iter().map(|order| order.partition).collect();
        let sent = scatter(&self.0, orders, |order| order.partition, Envelope::EndLogs).await;
        answered(&partitions, sent).await
    }

    async fn set_states(&self, states: Vec<(TopicIdPartition, KnownState)>) {
        let sent = scatter(&self.0, states, |(partition, _)| *partition, Envelope::KnownStates).await;
        // A core that has gone, or does not lead, knows nothing and lets nothing be written.
        sent.gather().await;
    }
}

/// The answers to questions about `partitions`; a core that has gone leads nothing.
async fn answered<A: Send>(
    partitions: &[TopicIdPartition],
    sent: Scattered<Result<A, LocalError>>,
) -> Vec<Result<A, LocalError>> {
    let answers = partitions.iter().zip(sent.gather().await);
    answers.map(|(one, answer)| answer.unwrap_or(Err(LocalError::NotLeader(*one)))).collect()
}

/// The request as what it is; its key has said so.
fn taken<T: 'static>(request: Box<dyn Any>) -> Result<T, LocalError> {
    request.downcast::<T>().map(|request| *request).map_err(|_| LocalError::Unanswered {
        api: "request",
        reason: "its key is another message's".to_owned(),
    })
}

fn answer<R, T>(response: T) -> Option<R::Response>
where
    R: Request,
    R::Response: 'static,
    T: 'static,
{
    let response: Box<dyn Any> = Box::new(response);
    response.downcast::<R::Response>().map(|response| *response).ok()
}

/// The cores on which mirrors fetch.
pub struct FetchCores {
    cores: Vec<Sender<CoreTask<MirrorHost>>>,
}

impl FetchCores {
    /// Cores that take tasks by these mailboxes.
    pub fn new(cores: Vec<Sender<CoreTask<MirrorHost>>>) -> FetchCores {
        FetchCores { cores }
    }
}

impl MirrorCores<MirrorHost> for FetchCores {
    fn count(&self) -> usize {
        self.cores.len()
    }

    fn spawn(&self, core: usize, task: CoreTask<MirrorHost>) {
        if let Some(mailbox) = self.cores.get(core)
            && mailbox.try_send(task).is_err()
        {
            error!(core, "a fetcher could not be started: the core takes no more tasks");
        }
    }
}

/// Runs on a core what a mirror spawns there.
pub async fn run_tasks(core: Rc<Core>, mut mailbox: tarn_runtime::channel::Receiver<CoreTask<MirrorHost>>) {
    while let Some(task) = mailbox.recv().await {
        let future = task(MirrorHost::new(core.clone()));
        spawn(Queue::Mirror, async move {
            if let Err(panic) = catch_panics(future).await {
                error!(%panic, "a mirror fetcher ended");
            }
        })
        .detach();
    }
}
