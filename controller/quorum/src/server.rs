//! The controller's driver: one thread that owns the quorum, the metadata log and the speculative image.
//!
//! Requests that arrive while a flush runs are decided and written together before the next one, so that
//! one flush commits them all. A failure of the disk ends the process: what was promised must not be lost.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use tarn_image::config::server::ServerConfig;
use tarn_image::features::SUPPORTED;
use tarn_image::{MetadataDelta, MetadataImage, Provenance};
use tarn_log::{LogDir, RemovalJob};
use tarn_record::{Epoch, Offset, Timestamp, TopicId};
use tarn_runtime as rt;
use tarn_runtime::channel::{Receiver, ReplySlot, mailbox};
use tarn_transport::remarks::Remarks;
use tarn_wire::MetadataRecord;
use tarn_wire::messages::NoOpRecord;
use tarn_wire::messages::RegisterControllerRecord;
use tarn_wire::messages::register_controller_record::{ControllerEndpoint, ControllerFeature};
use thiserror::Error;
use uuid::Uuid;

use crate::batch::VoterName;
use crate::decide::{self, Context, Decision};
use crate::load::{self, LoadError};
use crate::metadata_log::{MetadataLog, MetadataLogError, Opened};
use crate::quorum_state::{self, QuorumState, QuorumStateError, Resumed};
use crate::raft::{Input, Node, Output};
use crate::request::{
    Answer, Answered, ControllerHandle, ControllerRequest, ControllerResponse, Letter, Undecided,
};
use crate::snapshot::SnapshotId;
use crate::speculative::Speculative;

mod describe;

/// Requests that may wait for the controller.
const MAILBOX: usize = 1024;
/// Requests that are decided before a flush.
const DECIDED_AT_ONCE: usize = 256;
/// How long the controller may sleep where the configuration sets no limit.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// An image, and what changed since the one before.
#[derive(Clone, Debug)]
pub struct ImageUpdate {
    /// The image.
    pub image: Arc<MetadataImage>,
    /// What its newest batch changed; of the first image, everything.
    pub delta: Arc<MetadataDelta>,
}

/// What a controller is started with.
pub struct ControllerOptions {
    /// The server's configuration.
    pub config: Arc<ServerConfig>,
    /// The directory of the metadata log, formatted.
    pub log_dir: Arc<LogDir>,
    /// Called on the controller's thread, once for each committed batch; must not wait.
    pub publisher: Box<dyn Fn(ImageUpdate) + Send>,
}

/// A controller that runs.
pub struct Running {
    /// The way to ask it.
    pub handle: ControllerHandle,
    /// Its thread, which ends after `ControllerHandle::stop`, with the end of the metadata log that it closed.
    pub core: rt::CoreHandle<Offset>,
}

/// Why a controller cannot start or go on.
#[derive(Debug, Error)]
pub enum ControllerError {
    /// The directory was never formatted.
    #[error("{0} is not formatted: run tarn format first")]
    NotFormatted(String),
    /// Its log.
    #[error(transparent)]
    Log(#[from] MetadataLogError),
    /// What the log says.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The vote.
    #[error(transparent)]
    QuorumState(#[from] QuorumStateError),
    /// What formatting left to be written first could not be.
    #[error("the metadata log could not be begun: {0}")]
    NotBegun(Undecided),
    /// A flush failed: what is on the disk is not known any more.
    #[error("the metadata log could not be flushed: {0}")]
    Flush(String),
    /// Its thread.
    #[error("the controller's thread could not be started: {0}")]
    Thread(#[from] io::Error),
}

/// Opens the metadata log and starts the controller on a thread of its own.
///
/// # Errors
/// Where the log cannot be read or the thread not be started. Later failures end the process.
pub fn start(options: ControllerOptions) -> Result<Running, ControllerError> {
    let now = Timestamp(rt::wall_clock_ms());
    let (controller, to_write) = Controller::open(options, now)?;
    let (letters, inbox) = mailbox(MAILBOX);
    let spec = rt::CoreSpec { cpu: None, name: "controller".to_owned() };
    let core = rt::spawn_core(spec, move || async move {
        controller.run(inbox, to_write).await.unwrap_or_else(|error| {
            // As for a broker's logs: nothing may be promised any more, and the reason is the last line, past what
            // captures a test's output.
            tracing::error!(%error, "the controller cannot go on; the process ends");
            let last_line = format!("tarn: the controller cannot go on: {error}\n");
            io::stderr().write_all(last_line.as_bytes()).ok();
            std::process::exit(1);
        })
    })?;
    Ok(Running { handle: ControllerHandle::new(letters), core })
}

/// How often it is looked whether old metadata is to be deleted, in milliseconds.
const SHORTEN_INTERVAL_MS: i64 = 60_000;

/// How long after a snapshot that found no room the next is tried, in milliseconds.
const SNAPSHOT_AGAIN_MS: i64 = 10_000;

/// Why something is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Refused {
    /// The disk is full.
    NoRoom,
    /// The same of a snapshot.
    NoRoomForSnapshot,
    /// A decision contradicts the image, or does not fit its record.
    Impossible,
}

/// What waits for a commit: an answer and where it goes.
type Waiting = (Answered<ControllerResponse>, ReplySlot<Answer>);

struct Controller {
    config: Arc<ServerConfig>,
    cluster_id: String,
    directory_id: Uuid,
    publisher: Box<dyn Fn(ImageUpdate) + Send>,
    log: MetadataLog,
    node: Node,
    state: Speculative<Waiting>,
    /// The epoch in which this node decides, once it leads.
    leading: Option<Epoch>,
    written_at_ms: i64,
    snapshot_at_ms: i64,
    /// No snapshot is tried before.
    no_snapshot_before_ms: i64,
    shortened_at_ms: i64,
    snapshot_end: Offset,
    remarks: Remarks<Refused>,
}

impl Controller {
    /// The controller, and what it writes first once it leads.
    fn open(
        options: ControllerOptions,
        now: Timestamp,
    ) -> Result<(Controller, Vec<MetadataRecord>), ControllerError> {
        let ControllerOptions { config, log_dir, publisher } = options;
        let Some(properties) = log_dir.properties() else {
            return Err(ControllerError::NotFormatted(log_dir.path().display().to_string()));
        };
        let directory_id = properties.directory_id.map_or(Uuid::nil(), |id| id.0);
        let cluster_id = properties.cluster_id.clone();
        let voter = config.quorum.voters.is_empty().then(|| VoterName {
            id: config.node_id.0,
            directory_id,
            endpoints: config
                .advertised_controller_listeners()
                .map(|listener| (listener.name.clone(), listener.host.clone(), listener.port))
                .collect(),
        });
        let Opened { log, snapshot, batches } =
            MetadataLog::open(&log_dir, voter, &config.metadata_log, now)?;
        // What formatting wrote is of no epoch.
        let snapshot_id = snapshot.as_ref().map(|(id, _)| *id).filter(|id| id.end_offset > Offset(0));
        let snapshot_end = snapshot_id.map_or(Offset(0), |id| id.end_offset);
        let loaded = load::load(snapshot, &batches)?;
        for (feature, level) in loaded.image.features().not_served() {
            tracing::warn!(
                "feature {feature} is finalized at level {level}, which is not served; it is kept"
            );
        }
        let newest_snapshot = snapshot_id.map_or(Epoch::NONE, |id| id.epoch);
        let loaded_state = QuorumState::load(log.disk(), log.dir())?;
        let quorum_state = match QuorumState::resume(loaded_state, log.latest_epoch().max(newest_snapshot))? {
            Resumed::AsItWas(state) => state,
            Resumed::FromTheLog(state) => {
                let file = log.dir().join(quorum_state::FILE_NAME);
                tracing::warn!(file = %file.display(), epoch = %state.epoch, found = ?loaded_state, "the quorum state is lost or older than the metadata log; its epoch is taken from the log");
                state
            }
        };
        let controller = Controller {
            node: Node::new(config.node_id, quorum_state, log.end()),
            state: Speculative::loaded(loaded.image, loaded.delta),
            leading: None,
            written_at_ms: now.0,
            snapshot_at_ms: now.0,
            no_snapshot_before_ms: 0,
            shortened_at_ms: 0,
            snapshot_end,
            remarks: Remarks::default(),
            config,
            cluster_id,
            directory_id,
            publisher,
            log,
        };
        Ok((controller, loaded.to_write))
    }

    async fn run(
        mut self,
        mut inbox: Receiver<Letter>,
        to_write: Vec<MetadataRecord>,
    ) -> Result<Offset, ControllerError> {
        self.step(Input::ElectionTimeout).await?;
        self.activate(to_write).await?;
        let mut letters = Vec::new();
        loop {
            let received = rt::timeout(self.rest(), inbox.recv_many(&mut letters, DECIDED_AT_ONCE)).await;
            let before = self.log.end();
            let mut stopping = matches!(received, Ok(0));
            for letter in letters.drain(..) {
                match letter {
                    Letter::Ask(request, slot) => self.ask(*request, slot)?,
                    Letter::Stop => stopping = true,
                }
            }
            self.keep_moving()?;
            if self.log.end() > before {
                self.step(Input::Appended(self.log.end())).await?;
            }
            self.keep_short().await?;
            if stopping {
                return self.stop().await;
            }
        }
    }

    /// Writes what a new leader has to: what formatting left for it, and itself.
    async fn activate(&mut self, to_write: Vec<MetadataRecord>) -> Result<(), ControllerError> {
        if !to_write.is_empty() {
            self.write(vec![to_write])?.map_err(ControllerError::NotBegun)?;
        }
        // The next leader says who it is; this one goes on where there is no room for that.
        let _ = self.write(vec![vec![self.registration().into()]])?;
        self.step(Input::Appended(self.log.end())).await
    }

    fn registration(&self) -> RegisterControllerRecord {
        RegisterControllerRecord {
            controller_id: self.config.node_id.0,
            incarnation_id: Uuid::new_v4(),
            zk_migration_ready: false,
            end_points: self
                .config
                .advertised_controller_listeners()
                .map(|listener| ControllerEndpoint {
                    name: listener.name.as_str().into(),
                    host: listener.host.as_str().into(),
                    port: listener.port,
                    security_protocol: 0,
                })
                .collect(),
            features: SUPPORTED
                .iter()
                .map(|feature| ControllerFeature {
                    name: feature.name.into(),
                    min_supported_version: feature.min,
                    max_supported_version: feature.max,
                })
                .collect(),
        }
    }

    /// Feeds the quorum and does what it says, until there is nothing more to do.
    async fn step(&mut self, input: Input) -> Result<(), ControllerError> {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for output in self.node.step(input) {
                match output {
                    Output::PersistQuorumState(state) => {
                        state.store(self.log.disk(), self.log.dir())?;
                        inputs.push_back(Input::QuorumStatePersisted);
                    }
                    Output::AppendLeaderChange(epoch) => {
                        self.log.append_leader_change(self.config.node_id.0, epoch, self.now())?;
                        inputs.push_back(Input::Appended(self.log.end()));
                    }
                    Output::Flush => inputs.extend(self.flush().await?.map(Input::Flushed)),
                    Output::Commit(high_watermark) => self.commit(high_watermark),
                    Output::Lead(epoch) => self.leading = Some(epoch),
                    Output::StepDown => {
                        self.leading = None;
                        self.state.drop_pending();
                    }
                }
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<Option<Offset>, ControllerError> {
        let Some(job) = self.log.flush_job() else { return Ok(None) };
        let failed = |error: String| ControllerError::Flush(error);
        let flushed =
            rt::blocking_sync(move || job.run()).await.map_err(|error| failed(error.to_string()))?;
        self.log.flushed(flushed.map_err(|error| failed(error.to_string()))?)?;
        Ok(Some(self.log.flushed_end()))
    }

    /// Publishes what is committed, then lets its answers go.
    fn commit(&mut self, high_watermark: Offset) {
        for batch in self.state.commit(high_watermark) {
            (self.publisher)(ImageUpdate { image: batch.image, delta: batch.delta });
            for (answer, slot) in batch.answers {
                // Nobody waits for it any more where this fails.
                let _ = slot.fill(Ok(answer));
            }
        }
    }

    /// Decides a request and writes its records. Where this node does not lead the slot is dropped, which
    /// tells the caller.
    fn ask(&mut self, request: ControllerRequest, slot: ReplySlot<Answer>) -> Result<(), ControllerError> {
        if self.leading.is_none() {
            return Ok(());
        }
        let decision = self.decide(request);
        if let Err(undecided) = self.write(decision.batches)? {
            let _ = slot.fill(Err(undecided));
            return Ok(());
        }
        let offset = self.state.ahead().provenance().offset;
        if let Some((answer, slot)) =
            self.state.wait((Answered { response: decision.response, offset }, slot))
        {
            let _ = slot.fill(Ok(answer));
        }
        Ok(())
    }

    fn decide(&mut self, request: ControllerRequest) -> Decision<ControllerResponse> {
        use ControllerRequest as Ask;
        use ControllerResponse as Said;
        let image = self.state.ahead();
        let mut context = Context {
            next_offset: self.log.end(),
            cluster_id: &self.cluster_id,
            config: &self.config,
            new_id: &mut TopicId::random,
        };
        match request {
            Ask::CreateTopics(request) => {
                decide::create_topics::create_topics(image, &request, &mut context).map(Said::CreateTopics)
            }
            Ask::DeleteTopics(request) => {
                decide::delete_topics::delete_topics(image, &request, &context).map(Said::DeleteTopics)
            }
            Ask::CreatePartitions(request, grower) => {
                decide::partitions::create_partitions(image, &request, grower).map(Said::CreatePartitions)
            }
            Ask::IncrementalAlterConfigs(request) => {
                decide::alter_configs::alter_configs(image, &request).map(Said::IncrementalAlterConfigs)
            }
            Ask::AlterConfigs(request) => {
                decide::replace_configs::replace_configs(image, &request).map(Said::AlterConfigs)
            }
            Ask::UpdateFeatures(request) => {
                decide::features::update_features(image, &request).map(Said::UpdateFeatures)
            }
            Ask::AllocateProducerIds(request) => {
                decide::producer_ids::allocate(image, &request).map(Said::AllocateProducerIds)
            }
            Ask::RegisterBroker(request) => {
                decide::brokers::register(image, &request, &context).map(Said::RegisterBroker)
            }
            Ask::Heartbeat(request) => {
                decide::brokers::heartbeat(image, &request, &context).map(Said::Heartbeat)
            }
            Ask::DescribeQuorum(request) => {
                Decision::unchanged(Said::DescribeQuorum(self.describe_quorum(&request, self.now())))
            }
            Ask::CreateClusterMirror(request) => {
                decide::mirrors::create_mirror(image, &request, &mut context).map(Said::CreateClusterMirror)
            }
            Ask::StartMirrorTopics(request) => {
                decide::mirror_topics::start(image, &request, &mut context).map(Said::StartMirrorTopics)
            }
            Ask::StopMirrorTopics(request) => {
                decide::mirror_desired::stop(image, &request, &context).map(Said::StopMirrorTopics)
            }
            Ask::PauseMirrorTopics(request) => {
                decide::mirror_desired::pause(image, &request, &context).map(Said::PauseMirrorTopics)
            }
            Ask::ResumeMirrorTopics(request) => {
                decide::mirror_desired::resume(image, &request, &context).map(Said::ResumeMirrorTopics)
            }
            Ask::RecoverMirrorTopics(request) => {
                decide::mirror_desired::recover(image, &request, &context).map(Said::RecoverMirrorTopics)
            }
            Ask::CompleteMirrorStop(request) => {
                decide::mirror_stopped::complete(image, &request).map(Said::CompleteMirrorStop)
            }
            Ask::DeleteClusterMirror(request) => {
                decide::delete_mirror::delete_mirror(image, &request).map(Said::DeleteClusterMirror)
            }
            Ask::BumpLeaderEpochs(request) => {
                decide::leader_epochs::bump(image, &request).map(Said::BumpLeaderEpochs)
            }
        }
    }

    /// Writes the batches of a decision, all of them or none. There is room
    /// for all before the first is written; where others take it in between, those before it stay, each a
    /// whole.
    fn write(&mut self, batches: Vec<Vec<MetadataRecord>>) -> Result<Result<(), Undecided>, ControllerError> {
        let Some(epoch) = self.leading else { return Ok(Err(Undecided::NotController)) };
        let images = match self.state.try_apply(&batches) {
            Ok(images) => images,
            Err(error) => {
                let why =
                    format!("a decision of the controller contradicts its image and is dropped: {error}");
                self.say(Refused::Impossible, &why);
                return Ok(Err(Undecided::Impossible));
            }
        };
        let has_room = if batches.len() > 1 { self.log.has_room_for(&batches) } else { Ok(true) };
        match has_room {
            Ok(true) => {}
            Ok(false) => {
                let why = format!("there is no room for {} batches in the metadata log", batches.len());
                self.say(Refused::NoRoom, &why);
                return Ok(Err(Undecided::NoRoom));
            }
            Err(error) => return self.not_written(error),
        }
        let timestamp = self.now();
        for (records, (image, delta)) in batches.iter().zip(images) {
            let offset = match self.log.append(records, epoch, timestamp) {
                Ok(last) => last,
                Err(error) => return self.not_written(error),
            };
            self.state.push(image, delta, Provenance { offset, epoch, timestamp });
            self.written_at_ms = timestamp.0;
        }
        Ok(Ok(()))
    }

    /// A decision was not written; where the reason is of the disk and does not pass, nothing can be.
    fn not_written(&mut self, error: MetadataLogError) -> Result<Result<(), Undecided>, ControllerError> {
        match error {
            // What is asked or configured is checked before; what is missed there ends no process.
            MetadataLogError::Unencodable(error) => {
                let why =
                    format!("a decision of the controller does not fit its record and is dropped: {error}");
                self.say(Refused::Impossible, &why);
                Ok(Err(Undecided::Impossible))
            }
            error if error.is_full() => {
                self.say(Refused::NoRoom, &format!("there is no room for the metadata log: {error}"));
                Ok(Err(Undecided::NoRoom))
            }
            error => Err(error.into()),
        }
    }

    /// Says why something is not written, in so many lines a minute: a full disk is tried again and again.
    fn say(&mut self, reason: Refused, why: &str) {
        if let Some(remark) = self.remarks.may_say(reason, rt::now()) {
            tracing::error!("{why}{remark}");
        }
    }

    /// Writes an empty record where nothing else was written for long, so that the high watermark's age
    /// says something.
    fn keep_moving(&mut self) -> Result<(), ControllerError> {
        let limit = self.config.metadata_log.max_idle_interval_ms;
        if limit > 0 && self.now().0 - self.written_at_ms >= limit {
            // Also where the disk is full: it is tried again after another such silence, not at once.
            let _ = self.write(vec![vec![NoOpRecord::default().into()]])?;
            self.written_at_ms = self.now().0;
        }
        Ok(())
    }

    /// Writes a snapshot where the log has grown enough since the last, or long enough ago, and deletes
    /// what is too old or too much.
    async fn keep_short(&mut self) -> Result<(), ControllerError> {
        self.snapshot()?;
        if self.now().0 - self.shortened_at_ms < SHORTEN_INTERVAL_MS {
            return Ok(());
        }
        self.shortened_at_ms = self.now().0;
        let removals = self.log.shorten(self.now())?;
        if removals.is_empty() {
            return Ok(());
        }
        let removed = rt::blocking(move || removals.into_iter().try_for_each(RemovalJob::run)).await;
        if !matches!(removed, Ok(Ok(()))) {
            tracing::warn!(
                ?removed,
                "segments of the metadata log that are not needed stay until the next start"
            );
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), ControllerError> {
        let limits = &self.config.metadata_log;
        let grown =
            self.log.bytes_since_snapshot() >= limits.max_record_bytes_between_snapshots.unsigned_abs();
        let interval = limits.max_snapshot_interval_ms;
        let overdue = interval > 0 && self.now().0 - self.snapshot_at_ms >= interval;
        let committed = self.state.committed().clone();
        let end = committed.provenance().offset.plus(1);
        let is_put_off = self.now().0 < self.no_snapshot_before_ms;
        if !(grown || overdue) || is_put_off || end <= self.snapshot_end {
            return Ok(());
        }
        let id = SnapshotId { end_offset: end, epoch: committed.provenance().epoch };
        match self.log.write_snapshot(id, &committed.to_records(), self.now()) {
            Ok(()) => (self.snapshot_end, self.snapshot_at_ms) = (end, self.now().0),
            // The log holds all that would be in it, so nothing is lost by waiting for room.
            Err(error) if error.is_full() => {
                self.say(Refused::NoRoomForSnapshot, &format!("no snapshot of the metadata: {error}"));
                self.no_snapshot_before_ms = self.now().0 + SNAPSHOT_AGAIN_MS;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        // What the new snapshot makes unnecessary goes at once.
        self.shortened_at_ms = 0;
        Ok(())
    }

    /// How long there may be nothing to do.
    fn rest(&self) -> Duration {
        let limit = self.config.metadata_log.max_idle_interval_ms;
        if limit <= 0 {
            return IDLE_MAX;
        }
        let left = (self.written_at_ms + limit - self.now().0).max(1);
        Duration::from_millis(left.unsigned_abs()).min(IDLE_MAX)
    }

    /// Closes the log; where it ends.
    async fn stop(mut self) -> Result<Offset, ControllerError> {
        self.step(Input::Resign).await?;
        self.log.close()?;
        Ok(self.log.end())
    }

    fn now(&self) -> Timestamp {
        Timestamp(rt::wall_clock_ms())
    }
}
